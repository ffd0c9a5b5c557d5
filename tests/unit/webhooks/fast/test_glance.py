"""A glance may send the rules too many questions, never one too few."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.kinds import AIM_ARTIFACT, AIM_SERVICE, Kind
from rules.examples import manifest, merge, parse, scene, surroundings
from rules.registry import Basis, Rule, all_rules, rules_for, run
from rules.seen import Seen, ServiceSeen
from rules.validate import validate
from rules.world import World
from rules.worlds import SnapshotWorld
from tests.unit.rules.strategies import json_values, services, worlds
from webhooks.fast.glance import left_to_ask

BASES = [Basis.OBJECT, Basis.WORLD, Basis.REQUEST]
EDITED = [*BASES, Basis.TRANSITION]
OURS = [entry for entry in all_rules() if AIM_SERVICE.kind in entry.kinds]
FIELDS = sorted({field for entry in OURS for field in entry.when})


def seen(new: Any, old: Any, world: World, version: str = "v1alpha2") -> ServiceSeen:
    return ServiceSeen(AIM_SERVICE, new, old, world, request_version=version)


def asked(what: ServiceSeen, bases: Iterable[Basis]) -> set[str]:
    left = left_to_ask(what, bases)
    return {entry.name for basis, fields in left for entry in rules_for(AIM_SERVICE.kind, basis, about=fields)}


def speak_unasked(what: ServiceSeen, again: ServiceSeen, bases: list[Basis]) -> list[str]:
    """Return the rules that a glance leaves out and that have something to say all the same."""
    names = asked(what, bases)
    left_out = [entry for entry in rules_for(AIM_SERVICE.kind, *bases) if entry.name not in names]
    return [entry.name for entry in left_out if any(run([entry], again))]


@given(services, st.none() | services, worlds, st.sampled_from(["v1alpha1", "v1alpha2"]))
def test_no_rule_that_is_not_asked_has_anything_to_say(new: Any, old: Any, world: SnapshotWorld, version: str) -> None:
    bases = BASES if old is None else EDITED
    assert speak_unasked(seen(new, old, world, version), seen(new, old, world, version), bases) == []


@given(st.data())
def test_nor_where_values_are_of_any_type(data: st.DataObject) -> None:
    plain = manifest("AIMService", {})
    fields = st.sampled_from([*FIELDS, "anything"])
    changed = {field: data.draw(json_values) for field in data.draw(st.sets(fields, max_size=3))}
    new = {**plain, "spec": {**plain["spec"], **changed}}
    for old in (None, plain, {**plain, "spec": data.draw(json_values)}):
        bases = BASES if old is None else EDITED
        assert speak_unasked(seen(new, old, surroundings()), seen(new, old, surroundings()), bases) == []


ODD: list[Any] = [None, 5, 1.5, True, "", "odd", [], {}, ["odd"], [{}], {"name": 5}, {"odd": 1}]
FULL = """
profile: {name: qwen3-8b-mi300x}
model: {name: qwen3-8b}
template: {name: qwen3-8b-latency}
adapterMode: dynamic
adapterRuntime: {maxRank: 64}
adapters: [{name: medical, kind: AIMArtifact}, {name: legal, kind: AIMArtifact}]
caching: {mode: Shared}
env: [{name: A, value: b}]
replicas: 2
runtimeConfigName: default
"""


def _spoilt(value: Any) -> Iterator[Any]:
    """Every value with one unusual part instead of one of its parts."""
    yield from ODD
    for key in list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
        for part in _spoilt(value[key]):
            other = copy.copy(value)
            other[key] = part
            yield other


@pytest.mark.parametrize("left_out", [(), ("model", "template"), ("profile", "template"), ("profile",)])
def test_nor_where_any_one_part_is_unusual(left_out: tuple[str, ...]) -> None:
    spec = {field: part for field, part in parse(FULL).items() if field not in left_out}
    plain = manifest("AIMService", {}) | {"spec": spec}
    for other in _spoilt(spec):
        new = plain | {"spec": other}
        for old, version in ((None, "v1alpha1"), (None, "v1alpha2"), (plain, "v1alpha2")):
            bases = BASES if old is None else EDITED
            world = surroundings()
            assert speak_unasked(seen(new, old, world, version), seen(new, old, world, version), bases) == [], other


def test_fields_that_no_rule_knows_make_no_difference() -> None:
    """What is remembered about fields may not grow with what strangers send."""
    new = manifest("AIMService", {"spec": {"maxReplicas": 2}})
    more = merge(new, {"spec": {f"unknown{number}": 1 for number in range(50)}})
    assert left_to_ask(seen(more, None, surroundings()), BASES) == left_to_ask(seen(new, None, surroundings()), BASES)
    artifact = manifest("AIMArtifact", {})
    strange = Seen(AIM_ARTIFACT, merge(artifact, {"spec": {"unknown": 1}}), None, surroundings())
    assert left_to_ask(strange, BASES) == left_to_ask(Seen(AIM_ARTIFACT, artifact, None, surroundings()), BASES)


@pytest.mark.parametrize("entry", OURS, ids=lambda entry: entry.name)
def test_a_rule_is_asked_about_its_refused_example(entry: Rule) -> None:
    given_ = scene(AIM_SERVICE, entry.refused)
    assert entry.name in asked(seen(given_.new, given_.old, given_.world, given_.version), [entry.basis])


@pytest.mark.parametrize(
    "spec",
    [
        "{}",
        "{adapters: [{name: medical, kind: AIMArtifact}, {name: legal, kind: AIMArtifact}], env: [{name: A}]}",
        "{adapterMode: dynamic, adapterRuntime: {maxRank: 64}, adapters: [{name: medical, kind: AIMArtifact}]}",
        "{adapterMode: dynamic, caching: {mode: Shared}, replicas: 3, runtimeConfigName: default}",
    ],
)
def test_no_rule_is_asked_about_a_usual_service(spec: str) -> None:
    new = manifest("AIMService", {"spec": parse(spec)})
    edited = merge(new, {"spec": {"replicas": 2}})
    assert left_to_ask(seen(new, None, surroundings()), BASES) == ()
    assert left_to_ask(seen(edited, new, surroundings()), EDITED) == ()


def test_only_those_are_asked_whom_it_concerns() -> None:
    new = manifest("AIMService", {"spec": {"minReplicas": 3, "maxReplicas": 2}})
    assert asked(seen(new, None, surroundings()), BASES) == {
        "min_replicas_above_max",
        "replicas_ignored",
        "namespace_name_too_long",
    }


class _Broken(SnapshotWorld):
    def get(self, kind: Kind, namespace: str | None, name: str) -> Any:
        raise RuntimeError("the cache is broken")


def test_a_look_that_fails_leaves_it_to_the_rules() -> None:
    new = manifest("AIMService", {"spec": {"maxReplicas": 2, "minReplicas": 3}})
    verdict = validate(AIM_SERVICE, new, None, _Broken(), glance=left_to_ask)
    assert [error.reason for error in verdict.errors] == ["MinReplicasAboveMax"]
    assert verdict.blocked
