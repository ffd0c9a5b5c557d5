"""Changes by name: which patch, on which object and version; the commands around them over a small API server."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from typer.testing import CliRunner

from api.kinds import AIM_ARTIFACT, AIM_SERVICE
from cli.plugin.access import context_namespace, describe
from cli.plugin.edit import (
    Edit,
    EditError,
    NewAdapter,
    add_adapters,
    artifact_of,
    demand_fit,
    demand_same,
    remove_adapters,
    retry_staging,
    set_ceiling,
    set_rank,
)
from cli.program import cli
from kube.auth import NoCredentials
from kube.errors import Conflict, Forbidden, Invalid, NotFound, Unauthorized, Unreachable
from rules.worlds import SnapshotWorld
from tests.unit.cli.plugin.scene import Scene, adapter, base, service


def template_service() -> dict[str, Any]:
    found = service()
    found["spec"].pop("profile")
    return found


def static_service() -> dict[str, Any]:
    found = service()
    found["spec"]["adapterMode"] = "static"
    return found


def names(edit: Edit) -> list[str]:
    return [one["name"] for one in edit.patch["spec"]["adapters"]]


def test_adding_keeps_order_and_what_is_there() -> None:
    edit = add_adapters(service(), ["new", "sql", "new"])
    assert names(edit) == ["sql", "med", "new"]
    assert edit.patch["metadata"] == {"resourceVersion": "7"}
    assert edit.kind.version == "v1alpha2"


def test_adding_what_is_declared_does_nothing() -> None:
    assert add_adapters(service(), ["sql"]).patch == {}


def test_the_template_pipeline_is_written_as_v1alpha1() -> None:
    assert add_adapters(template_service(), ["new"]).kind.version == "v1alpha1"


def test_removing_keeps_the_others() -> None:
    edit = remove_adapters(service(), ["sql", "unknown"], ignore_not_found=True)
    assert (names(edit), edit.says) == (["med"], "removed: sql")
    assert remove_adapters(service(), ["unknown"], ignore_not_found=True).patch == {}


def test_removing_an_adapter_that_is_not_declared_is_an_error() -> None:
    with pytest.raises(EditError, match=r'"chat" does not declare "unknown" \(declared: sql, med\)'):
        remove_adapters(service(), ["sql", "unknown"])


def test_a_ceiling_is_set_on_the_service() -> None:
    assert set_ceiling(service(), 64).patch["spec"] == {"adapterRuntime": {"maxRank": 64}}
    there = service()
    there["spec"]["adapterRuntime"] = {"maxRank": 64}
    assert set_ceiling(there, 64).patch == {}


def test_a_rank_is_set_on_the_artifact() -> None:
    edit = set_rank(adapter("sql"), 32)
    assert (edit.kind, edit.patch["spec"]) == (AIM_ARTIFACT, {"rank": 32})


def test_retry_and_restage_are_annotations_with_a_new_word() -> None:
    scene = Scene()
    scene.adapter(state="Failed")
    retry = retry_staging(scene.service, None, restage=False, word="w")
    assert (retry.kind, retry.name) == (AIM_SERVICE, "chat")
    assert retry.patch == {"metadata": {"annotations": {"aim.eai.amd.com/retry-staging": "w"}}}
    restage = retry_staging(scene.service, "sql", restage=True, word="w")
    assert (restage.kind, restage.namespace, restage.name) == (AIM_ARTIFACT, "team", "sql")
    assert restage.patch == {"metadata": {"annotations": {"aim.eai.amd.com/restage": "w"}}}


def test_without_a_failed_adapter_there_is_nothing_to_retry() -> None:
    edit = retry_staging(Scene().service, None, restage=False, word="w")
    assert (edit.patch, edit.says) == ({}, "nothing to retry: no adapter of chat has failed")
    assert retry_staging(Scene().service, "sql", restage=False, word="w").patch
    assert retry_staging(Scene().service, None, restage=True, word="w").patch


REFUSED: dict[str, Callable[[], object]] = {
    "adding to static": lambda: add_adapters(static_service(), ["x"]),
    "removing from static": lambda: remove_adapters(static_service(), ["sql"]),
    "a ceiling of static": lambda: set_ceiling(static_service(), 64),
    "an unsupported ceiling": lambda: set_ceiling(service(), 48),
    "the rank of a model": lambda: set_rank(base(), 8),
    "a rank of nothing": lambda: set_rank(adapter("sql"), 0),
    "no model id": lambda: artifact_of("x", "team", NewAdapter("s3://b/x/"), "Qwen/Q"),
    "no base": lambda: artifact_of("x", "team", NewAdapter("hf://o/x"), None),
}


@pytest.mark.parametrize("attempt", REFUSED.values(), ids=REFUSED)
def test_what_makes_no_sense_is_refused_with_words(attempt: Callable[[], object]) -> None:
    with pytest.raises(EditError, match=r"."):
        attempt()


def test_a_new_adapter_fits_the_base_of_the_service() -> None:
    made = artifact_of("x", "team", NewAdapter("hf://o/x", rank=32), "Qwen/Q")
    assert made["spec"] == {
        "type": "adapter",
        "sourceUri": "hf://o/x",
        "modelId": "o/x",
        "compatibleWith": ["Qwen/Q"],
        "rank": 32,
    }
    other = artifact_of("x", "team", NewAdapter("s3://b/x/", "o/x", None, ("a/b",)), "Qwen/Q")
    assert (other["spec"]["compatibleWith"], "rank" in other["spec"]) == (["a/b"], False)


def new_of(rank: int | None = None, fits: str = "Qwen/Q") -> dict[str, Any]:
    return artifact_of("x", "team", NewAdapter("hf://o/x", None, rank), fits)


MISFITS = {
    "a rank above the ceiling": (service, new_of(64), "ceiling"),
    "a static service": (static_service, new_of(), "static"),
}


@pytest.mark.parametrize(("made", "artifact", "words"), MISFITS.values(), ids=MISFITS)
def test_nothing_is_made_for_a_service_that_would_refuse_it(
    made: Callable[[], dict[str, Any]], artifact: dict[str, Any], words: str
) -> None:
    with pytest.raises(EditError, match=words):
        demand_fit(made(), artifact, SnapshotWorld([]))
    demand_fit(service(), new_of(32), SnapshotWorld([]))


def test_an_artifact_that_is_there_is_the_one_that_was_meant() -> None:
    demand_same(new_of(), NewAdapter("hf://o/x", rank=16))  # absent means 16
    demand_same(new_of(8), NewAdapter("hf://o/x"))
    with pytest.raises(EditError, match="another source"):
        demand_same(new_of(), NewAdapter("hf://o/y"))
    with pytest.raises(EditError, match=r"exists with rank 8 .*rank SERVICE x 16"):
        demand_same(new_of(8), NewAdapter("hf://o/x", rank=16))


# -- failures in one line -------------------------------------------------------------------------------------------

FAILURES = {
    "unreachable": (Unreachable(0, "", "refused"), "does not answer", 2),
    "unauthorized": (Unauthorized(401, "Unauthorized", "no"), "credentials", 2),
    "forbidden": (Forbidden(403, "Forbidden", "User x\ncannot list"), "not allowed (403): User x cannot list", 2),
    "not found": (NotFound(404, "NotFound", 'namespaces "x" not found'), "not found", 2),
    "conflict": (Conflict(409, "Conflict", "changed"), "Error from server (Conflict): changed", 1),
    "refused by a webhook": (
        Invalid(
            422,
            "Invalid",
            'admission webhook "validate.aim.eai.amd.com" denied the request: '
            'AIMService.aim.eai.amd.com "chat" is invalid: spec.adapters[1].name: Invalid value: "x"',
        ),
        'The AIMService "chat" is invalid: spec.adapters[1].name: Invalid value: "x"',
        1,
    ),
    "no kubeconfig": (NoCredentials("no kubeconfig"), "no kubeconfig", 2),
    "a bug": (KeyError("x"), "please report it", 2),
    "out of a group": (ExceptionGroup("g", [Unreachable(0, "", "cut")]), "does not answer", 2),
}


@pytest.mark.parametrize(("error", "words", "code"), FAILURES.values(), ids=FAILURES)
def test_failures_are_one_line_and_a_code(error: Exception, words: str, code: int) -> None:
    line, exit_code = describe(error)
    assert words in line
    assert ("\n" in line, exit_code) == (False, code)


def test_the_namespace_of_the_context(tmp_path: Any) -> None:
    file = tmp_path / "config"
    file.write_text(
        "current-context: a\ncontexts:\n- {name: a, context: {namespace: team}}\n- {name: b, context: {}}\n"
    )
    assert context_namespace(str(file), None) == "team"
    assert context_namespace(str(file), "b") is None
    assert context_namespace(str(tmp_path / "none"), None) is None
    file.write_text("[")
    assert context_namespace(str(file), None) is None


USAGE = {
    "no service": ["why"],
    "an unknown option": ["status", "--nope"],
    "an unknown format": ["status", "-o", "xml"],
    "no file": ["check"],
    "a word for a rank": ["rank", "chat", "sql", "many"],
    "two adapters for one source": ["add", "chat", "a", "b", "--source", "hf://a/b"],
    "a rank of no new adapter": ["add", "chat", "a", "--rank", "8"],
    "bases of no new adapter": ["add", "chat", "a", "--compatible-with", "a/b"],
    "one service of all namespaces": ["status", "chat", "-A"],
    "an unknown command": ["explain"],
}


@pytest.mark.parametrize("args", USAGE.values(), ids=USAGE)
def test_wrong_usage_ends_with_two(args: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", "/nonexistent/kubeconfig")
    done = CliRunner().invoke(cli, args)
    assert done.exit_code == 2
    assert "Traceback" not in done.output


def test_without_a_cluster_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", "/nonexistent/kubeconfig")
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    done = CliRunner().invoke(cli, ["status"])
    assert done.exit_code == 2
    assert done.output.startswith('error: no kubeconfig at "/nonexistent/kubeconfig"')
