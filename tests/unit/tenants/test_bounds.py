"""No object takes long to judge, however large it is, and one beyond a bound gets one error."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import cache
from typing import Any

import orjson
import pytest

from api import bounds
from api.errors import Cause
from api.kinds import AIM_ARTIFACT, AIM_KINDS, AIM_PROFILE, AIM_RUNTIME_CONFIG, AIM_SERVICE, Kind
from api.reasons import Reason
from reconcile.objects import propagated_labels
from reconcile.service.container import ordered_env
from rules.bounds import beyond
from rules.examples import surroundings
from rules.seen import same
from rules.suggest import did_you_mean, fit_names
from rules.validate import judge_stored, validate
from tests.unit.tenants.sizes import Sized, sized
from webhooks.admission import Admission
from webhooks.answer import failed
from webhooks.fast.admission import make_admission
from webhooks.review import Malformed, parse_review

SECONDS = 0.05  # of CPU, for a whole review
NOISE = 4  # a shared machine
WORLD = surroundings()
EACH_KIND = pytest.mark.parametrize("kind", AIM_KINDS, ids=lambda kind: kind.kind)
EACH_MAKER = pytest.mark.parametrize("make", [Admission, make_admission], ids=["plain", "fast"])
METADATA = {"name": "chat", "namespace": "team-llm"}


def service(**spec: Any) -> dict[str, Any]:
    return {"kind": "AIMService", "metadata": METADATA, "spec": {"profile": {"name": "qwen3-8b-mi300x"}, **spec}}


def nested(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = {"a": value}
    return value


def review(kind: Kind, new: Any, old: Any = None) -> bytes:
    """Return the body of a review."""
    request = {
        "uid": "1-2",
        "kind": {"group": kind.group, "version": kind.version, "kind": kind.kind},
        "operation": "CREATE" if old is None else "UPDATE",
        "namespace": "team-llm",
        "name": "chat",
        "object": new,
        "oldObject": old,
    }
    return orjson.dumps({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request})


def answer(admission: Admission, body: bytes, path: str = "/validate") -> dict[str, Any]:
    found = admission.read(body)
    assert not isinstance(found, Malformed)
    reply = admission.webhooks[path](found)
    assert isinstance(reply, bytes)
    response: dict[str, Any] = orjson.loads(reply)["response"]
    return response


@cache
def admissions() -> tuple[Admission, ...]:
    return Admission(WORLD), make_admission(WORLD)


def cpu(work: Callable[[], object]) -> float:
    """Return the least CPU time of three runs."""
    taken = []
    for _ in range(3):
        start = time.process_time()
        work()
        taken.append(time.process_time() - start)
    return min(taken)


@EACH_KIND
def test_every_field_is_within_its_bounds_at_the_greatest_size(kind: Kind) -> None:
    assert {case.field: beyond(kind, case.obj) for case in sized(kind, 1) if beyond(kind, case.obj)} == {}


# -- cost -------------------------------------------------------------------------------------------------------------


@EACH_KIND
def test_a_review_of_the_greatest_size_is_cheap_for_every_field(kind: Kind) -> None:
    slow = {}
    for case in sized(kind, 1):
        body = review(kind, case.obj, {**case.obj, "spec": {}})
        for admission in admissions():
            for path in ("/validate", "/mutate"):
                taken = cpu(lambda: answer(admission, body, path))  # noqa: B023 - called at once
                if taken > SECONDS * NOISE:
                    slow[case.field, path] = taken
    assert slow == {}


@EACH_KIND
def test_beyond_a_bound_there_is_one_error_and_little_work(kind: Kind) -> None:
    for case in sized(kind, 2):
        body = review(kind, case.obj)
        for admission in admissions():
            response = answer(admission, body)
            assert response["allowed"] is False, case.field
            assert [cause["field"].startswith("spec") for cause in response["status"]["details"]["causes"]] == [True]
            assert cpu(lambda: answer(admission, body)) < SECONDS * NOISE, case.field  # noqa: B023
        verdict = judge_stored(kind, case.obj, WORLD)
        assert [error.reason for error in verdict.errors] == [Reason.TOO_LARGE], case.field


@pytest.mark.parametrize("entries", [10_000, 30_000])
def test_lists_far_beyond_their_bounds_cost_little(entries: int) -> None:
    large = [
        (AIM_SERVICE, service(adapters=[{"name": f"a{i}", "kind": "AIMArtifact"} for i in range(entries)])),
        (AIM_SERVICE, service(env=[{"name": f"A{i}", "value": f"$(A{i + 1})"} for i in range(entries)])),
        (AIM_SERVICE, service(unknown={f"a{i}": i for i in range(entries)})),
        (AIM_ARTIFACT, {"metadata": METADATA, "spec": {"compatibleWith": [f"a/b{i}" for i in range(entries)]}}),
        (AIM_RUNTIME_CONFIG, {"metadata": METADATA, "spec": {"labelPropagation": {"match": ["*a*b"] * entries}}}),
        (AIM_PROFILE, {"metadata": METADATA, "spec": {"modelSources": [{"sourceUri": "hf://a/b"}] * entries}}),
    ]
    for kind, obj in large:
        body = review(kind, obj, {**obj, "spec": {}})
        for admission in admissions():
            response = answer(admission, body)
            assert len(response["status"]["details"]["causes"]) == 1
            assert cpu(lambda: answer(admission, body)) < SECONDS * NOISE  # noqa: B023


# -- the message ------------------------------------------------------------------------------------------------------


@EACH_MAKER
def test_the_error_names_field_bound_and_size(make: Callable[..., Admission]) -> None:
    adapters = [{"name": f"a{i}", "kind": "AIMArtifact"} for i in range(65)]
    response = answer(make(WORLD), review(AIM_SERVICE, service(adapters=adapters, caching={"mode": "Dedicated"})))
    (cause,) = response["status"]["details"]["causes"]
    assert cause["field"] == "spec.adapters"
    assert cause["reason"] == Cause.TOO_MANY
    assert "65 entries, at most 64" in cause["message"]


@pytest.mark.parametrize(
    ("spec", "path"),
    [
        ({"profileOverrides": {"engineArgs": nested(33)}}, "spec.profileOverrides.engineArgs"),
        ({"profileOverrides": {"engineArgs": nested(250)}}, "spec.profileOverrides.engineArgs"),
        ({"profileOverrides": {"engineArgs": {"a": "x" * 65_536}}}, "spec.profileOverrides.engineArgs"),
        ({"routing": nested(900)}, "spec.routing"),
        ({"unknown": nested(900)}, "spec.unknown"),
        ({"env": [{"name": "A", "value": "x" * 32_769}]}, "spec.env[0].value"),
        ({"env": [{"name": "x" * 254}]}, "spec.env[0].name"),
        ({"serviceAccountName": "x" * 254}, "spec.serviceAccountName"),
        ({"env": [{"name": f"A{i}", "value": "x" * 32_000} for i in range(9)]}, "spec"),
        ({"profileOverrides": {"modelSources": [{"sourceUri": "hf://a/" + "x" * 1024}]}}, None),
    ],
)
def test_each_kind_of_bound(spec: dict[str, Any], path: str | None) -> None:
    found = beyond(AIM_SERVICE, service(**spec))
    assert found is not None
    assert found.error.reason == Reason.TOO_LARGE
    assert found.error.path == (path or "spec.profileOverrides.modelSources[0].sourceUri")


@pytest.mark.parametrize(
    "spec",
    [
        {"profileOverrides": {"engineArgs": nested(32)}},
        {"profileOverrides": {"engineArgs": {"a": "x" * 65_528}}},
        {"env": [{"name": "A", "value": "x" * 32_768}]},
        {"env": [{"name": f"A{i}", "value": "1"} for i in range(256)]},
        {"adapters": [{"name": f"a{i}", "kind": "AIMArtifact"} for i in range(64)]},
        {"imagePullSecrets": [{"name": f"a{i}"} for i in range(16)]},
        {"env": "text", "adapters": 5, "profileOverrides": [1]},
    ],
)
def test_the_bound_itself_is_within(spec: dict[str, Any]) -> None:
    assert beyond(AIM_SERVICE, service(**spec)) is None


def test_labels_have_a_bound() -> None:
    labels = {f"label-{i}": "" for i in range(bounds.MOST_LABELS + 1)}
    found = beyond(AIM_ARTIFACT, {"metadata": {"labels": labels}, "spec": {}})
    assert found is not None
    assert found.error.path == "metadata.labels"


# -- updates ----------------------------------------------------------------------------------------------------------


@EACH_MAKER
@pytest.mark.parametrize("levels", [33, 300, 900])
def test_an_unchanged_spec_is_always_admitted(make: Callable[..., Admission], levels: int) -> None:
    body = review(AIM_SERVICE, service())
    spec = '{"profile":{"name":"a"},"profileOverrides":{"engineArgs":' + '{"a":' * levels + "1" + "}" * levels + "}}"
    obj = '{"metadata":{"name":"chat","namespace":"team-llm"},"spec":' + spec + "}"
    body = body.replace(b'"operation":"CREATE"', b'"operation":"UPDATE"')
    head, _, _ = body.partition(b'"object":')
    body = head + b'"object":' + obj.encode() + b',"oldObject":' + obj.encode() + b"}}"
    assert answer(make(WORLD), body)["allowed"] is True


def test_an_update_must_bring_the_object_within_its_bounds() -> None:
    old = service(env=[{"name": f"A{i}"} for i in range(300)])
    still = service(env=[{"name": f"A{i}"} for i in range(280)])
    assert [e.reason for e in validate(AIM_SERVICE, still, old, WORLD).errors] == [Reason.TOO_LARGE]
    assert validate(AIM_SERVICE, service(env=[{"name": "A"}]), old, WORLD).allowed


def test_an_old_object_of_any_depth_and_size_can_be_corrected() -> None:
    for old in (service(profileOverrides={"engineArgs": nested(5000)}), service(adapters=[{"name": "a"}] * 30_000)):
        verdict = validate(AIM_SERVICE, service(), old, WORLD)
        assert not verdict.failures
        assert verdict.blocked is False


@pytest.mark.parametrize("levels", [10, 5000])
def test_comparing_does_not_recurse(levels: int) -> None:
    assert same(nested(levels), nested(levels))
    assert not same(nested(levels), nested(levels - 1))
    assert same({"a": None, "b": 1}, {"b": 1}, nulls=False)
    assert not same({"a": None, "b": 1}, {"b": 1})


# -- the parser -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("levels", [1100, 9000, 200_000])
def test_an_object_that_no_parser_takes_in_is_refused_in_words(levels: int) -> None:
    body = (
        b'{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{"uid":"1-2","object":'
        + b'{"a":' * levels
        + b"1"
        + b"}" * levels
        + b"}}"
    )
    found = make_admission(WORLD).read(body)
    assert found == parse_review(body)
    assert isinstance(found, Malformed)
    assert found.too_deep
    assert found.uid == "1-2"
    assert Reason.TOO_LARGE in found.detail
    assert b"1-2" in failed(found.uid, 422, "Invalid", found.detail)


# -- linear work ------------------------------------------------------------------------------------------------------


def test_chains_of_variables_are_ordered_without_recursion() -> None:
    chain = [{"name": f"A{i:05}", "value": f"$(A{i + 1:05})"} for i in range(20_000)]
    names = [entry["name"] for entry in ordered_env(chain)]
    assert names == sorted(names, reverse=True)


def test_label_patterns_are_bounded_and_cheap() -> None:
    config = {"labelPropagation": {"enabled": True, "match": [f"*a*b*c{i}*" for i in range(34_000)]}}
    obj = {"metadata": {"labels": {f"abc{i}.example.com/x": "y" for i in range(10_000)}}}
    assert cpu(lambda: propagated_labels(obj, config)) < SECONDS * NOISE
    assert len(propagated_labels(obj, config)) <= bounds.MOST_LABELS
    few = {"labelPropagation": {"enabled": True, "match": ["team.example.com/*"]}}
    labels = {"team.example.com/a": "1", "other": "2", "app": "3", "aim.eai.amd.com/x": "4"}
    found = propagated_labels({"metadata": {"labels": labels}}, few)
    assert found == {"team.example.com/a": "1", "aim.eai.amd.com/x": "4"}


def test_suggestions_and_lists_of_names_are_cheap() -> None:
    assert cpu(lambda: did_you_mean("x" * 1_000_000, ["adapters"])) < SECONDS
    assert did_you_mean("adapterz", ["adapters"]) == 'did you mean "adapters"?'
    names = [f"name-{i}" for i in range(100_000)]
    assert cpu(lambda: fit_names(names, 60)) < SECONDS * NOISE
    assert fit_names(names, 30).endswith("more")


def test_cases_cover_every_kind() -> None:
    assert {case.kind for kind in AIM_KINDS for case in sized(kind, 1)} == set(AIM_KINDS)
    assert isinstance(next(iter(sized(AIM_SERVICE, 1))), Sized)
