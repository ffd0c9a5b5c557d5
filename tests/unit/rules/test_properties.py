"""Properties of the rules for all objects, whatever other objects exist."""

from __future__ import annotations

import copy
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api import view
from api.kinds import AIM_KINDS, AIM_SERVICE, Kind
from rules.examples import kinds, manifest, merge, surroundings
from rules.rank import decide_ceiling, round_up
from rules.runtime_config import resolve_runtime_config
from rules.seen import Context, see_service
from rules.validate import judge_stored, validate
from rules.worlds import SnapshotWorld
from tests.unit.rules.judging import validate_service

from .strategies import artifacts, json_values, services, world_objects, worlds

VERSIONS = ["v1alpha1", "v1alpha2"]


@given(services, st.none() | services, worlds, st.sampled_from(VERSIONS))
def test_rules_never_fail_and_change_nothing(new: Any, old: Any, world: SnapshotWorld, version: str) -> None:
    """Prevents: a validator that mutates the object."""
    before = copy.deepcopy((new, old, world._objects))
    verdict = validate_service(new, old, world, request_version=version)
    assert not verdict.failures
    assert (new, old, world._objects) == before
    assert verdict.allowed == (not verdict.errors)


@given(st.sampled_from(AIM_KINDS), st.data())
def test_values_of_any_type_anywhere_never_fail(kind: Kind, data: st.DataObject) -> None:
    plain = manifest(kind.kind, {}) if kind in kinds() else {}
    paths = list(_paths(plain["spec"]))
    known = [
        "adapters",
        "env",
        "profile",
        "model",
        "caching",
        "storage",
        "artifact",
        "hardware",
        "modelSources",
        "rank",
    ]
    spec: Any = copy.deepcopy(plain["spec"])
    for key in data.draw(st.lists(st.sampled_from([*paths, *known]), max_size=4)):
        spec[key] = data.draw(json_values)
    new = {**plain, "spec": spec}
    old = data.draw(st.sampled_from([None, plain, {**plain, "spec": data.draw(json_values)}]))
    verdict = validate(kind, new, old, surroundings(), request_version="v1alpha2")
    assert not verdict.failures, verdict.failures[0].text


@given(json_values, json_values)
def test_values_instead_of_objects_never_fail(new: Any, old: Any) -> None:
    for kind in AIM_KINDS:
        if isinstance(new, dict) and isinstance(old, dict):
            assert not validate(kind, new, old, surroundings()).failures


def _paths(spec: dict[str, Any]) -> list[str]:
    return list(spec)


@given(services, st.none() | services, world_objects, st.integers(0, 2**32))
def test_order_never_changes_the_verdict(new: Any, old: Any, objects: list[Any], seed: int) -> None:
    mixed_objects = [_shuffled(obj, seed) for obj in objects]
    plain = validate_service(new, old, SnapshotWorld(objects))
    mixed_old = None if old is None else _shuffled(old, seed)
    mixed = validate_service(_shuffled(new, seed), mixed_old, SnapshotWorld(mixed_objects))
    assert _spoken(plain) == _spoken(mixed)


def _shuffled(value: Any, seed: int) -> Any:
    """Shuffle maps everywhere and the lists whose order means nothing, except where the later of two is named."""
    rng = random.Random(seed)
    if isinstance(value, dict):
        entries = list(value.items())
        rng.shuffle(entries)
        return {key: _shuffled(part, seed) for key, part in entries}
    if isinstance(value, list):
        parts = [_shuffled(part, seed) for part in value]
        rng.shuffle(parts)
        return parts
    return value


def _spoken(verdict: Any) -> set[tuple[str, ...]]:
    """Reasons; which of two adapters with one path is the later one depends on the order, as it should."""
    return {(error.reason, str(error.value) if "Path" not in error.reason else "") for error in verdict.errors}


@given(services, worlds, st.sampled_from(VERSIONS))
def test_an_admitted_object_can_always_be_applied_again(new: Any, world: SnapshotWorld, version: str) -> None:
    if validate_service(new, None, world, request_version=version).allowed:
        again = validate_service(new, copy.deepcopy(new), world, request_version=version)
        assert again.allowed
        assert again.warnings == ()


@given(services, worlds, worlds)
def test_an_object_that_became_invalid_can_be_edited_elsewhere(
    new: Any, world: SnapshotWorld, later: SnapshotWorld
) -> None:
    """Prevents: a new rule makes old objects un-updatable."""
    edited = merge(new, {"spec": {"priorityClassName": "high"}})
    verdict = validate_service(edited, new, later)
    assert verdict.allowed
    for error in validate_service(new, None, later).errors:
        assert any(error.reason == warning.reason for warning in verdict.warnings)


@given(services, worlds)
def test_admission_and_reconciler_agree(service: Any, world: SnapshotWorld) -> None:
    """The reconciler checks what the webhook admitted by the same code, where all references exist."""
    spec = service["spec"]
    if (spec.get("runtimeConfigName") or "default") != "default":
        return  # a missing named RuntimeConfig is the one thing that only the reconciler holds against a service
    admitted = validate_service(service, None, world, request_version="v1alpha1").allowed
    assert admitted == (judge_stored(AIM_SERVICE, service, world).errors == [])


@given(services, worlds)
def test_admission_only_differs_by_unimplemented_fields_only(service: Any, world: SnapshotWorld) -> None:
    full = validate_service(service, None, world)
    beside = validate_service(service, None, world, context=Context(admission_only=True))
    assert [e for e in full.errors if e.reason != "FieldNotImplemented"] == beside.errors


@given(services, worlds)
def test_warnings_are_few_and_short(service: Any, world: SnapshotWorld) -> None:
    texts = validate_service(service, None, world).warning_texts
    assert len(texts) <= 10
    assert all(len(text) <= 120 and text.isprintable() for text in texts)


@given(services, world_objects, st.sampled_from([None, 1, 8, 16, 32, 64, 512]))
def test_no_adapter_that_may_be_served_exceeds_the_ceiling(
    service: Any, objects: list[Any], reported: int | None
) -> None:
    world = SnapshotWorld(objects)
    seen = see_service(merge(service, {"status": {"adapterMaxRank": reported}}), world)
    decision = seen.ceiling
    refused = {finding.ref.name for finding in seen.adapter_findings}
    if decision.value is None or not decision.judged:
        return
    for name, artifact in seen.artifacts.items():
        if isinstance(artifact, dict) and artifact["spec"].get("type") == "adapter" and name not in refused:
            assert artifact["spec"].get("rank", 16) <= max(decision.value, reported or 0)


@given(st.integers(-5, 600))
def test_rounding_up_gives_the_smallest_supported_ceiling(rank: int) -> None:
    rounded = round_up(rank)
    if rank > 512:
        assert rounded is None
    else:
        assert rounded is not None
        assert rounded >= rank


@given(artifacts, artifacts)
def test_artifact_edits_never_fail(new: Any, old: Any) -> None:
    kind = next(kind for kind in AIM_KINDS if kind.kind == "AIMArtifact")
    service = manifest("AIMService", {"spec": {"adapters": [{"name": view.name_of(new), "kind": "AIMArtifact"}]}})
    world = surroundings([service, old])
    assert not validate(kind, merge(new, {"metadata": {"name": view.name_of(old)}}), old, world).failures


def test_deciding_a_ceiling_needs_no_other_objects() -> None:
    config = resolve_runtime_config(SnapshotWorld(), "n")
    assert decide_ceiling(manifest("AIMService", {}), config, {}, None).value is None


@pytest.mark.parametrize(
    "kind", [kind for kind in AIM_KINDS if kind.kind != AIM_SERVICE.kind], ids=lambda kind: kind.kind
)
def test_plain_manifests_of_every_kind_pass(kind: Kind) -> None:
    verdict = validate(kind, manifest(kind.kind, {}), None, surroundings())
    assert verdict.allowed
