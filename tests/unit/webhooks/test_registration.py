"""What is wrong with the webhook configurations: each difference from what the server serves."""

from __future__ import annotations

import base64
import copy
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from api.kinds import MUTATING_WEBHOOK_CONFIGURATION, VALIDATING_WEBHOOK_CONFIGURATION, Kind
from api.view import JsonObject
from webhooks.registration import Expected, Trouble, bundles_of, problems_of

ROOT = Path(__file__).parents[3]
EXPECTED = Expected("aim-adapters-webhook", "aim-system")
Change = Callable[[JsonObject], Any]


@cache
def _documents(case: str) -> list[JsonObject]:
    text = (ROOT / "tests" / "golden" / "chart" / f"{case}.yaml").read_text()
    return [document for document in yaml.safe_load_all(text) if document]


def rendered(case: str, kind: Kind) -> JsonObject:
    """Return a configuration as the chart renders it."""
    (found,) = [document for document in _documents(case) if document["kind"] == kind.kind]
    return copy.deepcopy(found)


def troubles(configuration: JsonObject | None, kind: Kind = VALIDATING_WEBHOOK_CONFIGURATION) -> list[Trouble]:
    return [problem.trouble for problem in problems_of(kind, "aim-adapters", configuration, EXPECTED)]


@pytest.mark.parametrize("kind", [VALIDATING_WEBHOOK_CONFIGURATION, MUTATING_WEBHOOK_CONFIGURATION])
@pytest.mark.parametrize("case", ["cert-manager", "provided", "admission-only", "everything"])
def test_what_the_chart_installs_is_in_order(case: str, kind: Kind) -> None:
    configuration = rendered(case, kind)
    service = configuration["webhooks"][0]["clientConfig"]["service"]
    expected = Expected(service["name"], service["namespace"])
    assert problems_of(kind, configuration["metadata"]["name"], configuration, expected) == []


def test_the_chart_for_some_namespaces_is_in_order_for_these_alone() -> None:
    configuration = rendered("namespaces", VALIDATING_WEBHOOK_CONFIGURATION)
    hook = configuration["webhooks"][0]
    service, named = hook["clientConfig"]["service"], hook["namespaceSelector"]["matchExpressions"][0]["values"]
    scopes = {rule["scope"] for rule in hook["rules"]}
    for namespaces, fine in ((tuple(named), True), ((*named, "one-more"), False), ((), False)):
        expected = Expected(service["name"], service["namespace"], namespaces, "Cluster" in scopes)
        found = problems_of(VALIDATING_WEBHOOK_CONFIGURATION, "x", configuration, expected)
        assert [problem.trouble for problem in found] == ([] if fine else [Trouble.NAMESPACES])


def hook_of(configuration: JsonObject) -> JsonObject:
    return dict.__getitem__(configuration, "webhooks")[0]  # type: ignore[no-any-return]


CHANGES: dict[str, tuple[Change, Trouble]] = {
    "no webhook": (lambda it: it.update(webhooks=[]), Trouble.ELSEWHERE),
    "another service": (lambda it: hook_of(it)["clientConfig"]["service"].update(name="x"), Trouble.ELSEWHERE),
    "another namespace": (lambda it: hook_of(it)["clientConfig"]["service"].update(namespace="x"), Trouble.ELSEWHERE),
    "another path": (lambda it: hook_of(it)["clientConfig"]["service"].update(path="/x"), Trouble.ELSEWHERE),
    "another URL": (lambda it: hook_of(it).update(clientConfig={"url": "https://x/y"}), Trouble.ELSEWHERE),
    "no rules": (lambda it: hook_of(it).update(rules=[]), Trouble.RULES),
    "a kind less": (lambda it: hook_of(it)["rules"][0]["resources"].remove("aimservices"), Trouble.RULES),
    "creations only": (lambda it: hook_of(it)["rules"][0].update(operations=["CREATE"]), Trouble.RULES),
    "an old version only": (lambda it: hook_of(it)["rules"][0].update(apiVersions=["v1alpha0"]), Trouble.RULES),
    "labelled objects": (lambda it: hook_of(it).update(objectSelector={"matchLabels": {"a": "b"}}), Trouble.NAMESPACES),
    "labelled namespaces": (
        lambda it: hook_of(it).update(namespaceSelector={"matchLabels": {"a": "b"}}),
        Trouble.NAMESPACES,
    ),
    "namespaces that exist": (
        lambda it: hook_of(it)["namespaceSelector"]["matchExpressions"].append({"key": "x", "operator": "Exists"}),
        Trouble.NAMESPACES,
    ),
}


@pytest.mark.parametrize("change", CHANGES)
def test_each_difference_is_found(change: str) -> None:
    configuration = rendered("cert-manager", VALIDATING_WEBHOOK_CONFIGURATION)
    make, expected = CHANGES[change]
    make(configuration)
    found = problems_of(VALIDATING_WEBHOOK_CONFIGURATION, "aim-adapters", configuration, EXPECTED)
    assert [problem.trouble for problem in found] == [expected]
    assert "aim-adapters" in str(found[0])
    assert found[0].fix


def test_a_configuration_that_does_not_exist() -> None:
    assert troubles(None) == [Trouble.MISSING]
    assert troubles(None, MUTATING_WEBHOOK_CONFIGURATION) == [Trouble.MISSING]


def test_wildcards_cover_everything() -> None:
    configuration = rendered("cert-manager", VALIDATING_WEBHOOK_CONFIGURATION)
    star = {"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"], "resources": ["*"]}
    hook_of(configuration)["rules"] = [star]
    assert troubles(configuration) == []


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@given(_JSON, st.sampled_from(["webhooks", "clientConfig", "rules", "namespaceSelector", "objectSelector", "caBundle"]))
def test_any_configuration_has_an_answer(value: Any, field: str) -> None:
    configuration = rendered("cert-manager", VALIDATING_WEBHOOK_CONFIGURATION)
    holder = configuration if field == "webhooks" else hook_of(configuration)
    (holder["clientConfig"] if field == "caBundle" else holder)[field] = value
    troubles(configuration)
    bundles_of(configuration)


def test_bundles() -> None:
    encoded = base64.b64encode(b"pem").decode()
    hooks = [{"clientConfig": {"caBundle": encoded}}, {"clientConfig": {"caBundle": "no base64!"}}, {}]
    assert bundles_of({"webhooks": hooks}) == [b"pem", b"", b""]
    assert bundles_of(None) == []
