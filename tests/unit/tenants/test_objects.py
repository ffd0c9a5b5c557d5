"""Random objects of every kind never end a judgement, an index, a pass or a page."""

from __future__ import annotations

import os
import time
import traceback
from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from api.errors import FieldError
from api.kinds import AIM_ARTIFACT, AIM_KINDS, AIM_SERVICE, Kind
from api.reasons import Reason
from cli.plugin.status import overview
from console.views import brief, service_view
from reconcile.artifact.decide import decide as decide_artifact
from reconcile.artifact.facts import ArtifactFacts
from reconcile.conditions import too_large
from reconcile.profiles.decide import ProfileFacts
from reconcile.profiles.decide import decide as decide_profile
from reconcile.service.decide import decide as decide_service
from reconcile.service.facts import ServiceFacts
from reconcile.service.plan import make_plan
from reconcile.settings import ReconcileSettings
from reconcile.world import _INDEXES
from rules.bounds import beyond
from rules.examples import manifest, surroundings
from rules.runtime_config import resolve_runtime_config
from rules.seen import see_service
from rules.validate import judge_stored, validate
from tests.unit.reconcile.model.life import START
from tests.unit.reconcile.service.scene import CLAIM
from tests.unit.tenants.objects import objects, storable

ROUNDS = int(os.environ.get("AIM_FUZZ_OBJECTS", "60"))
MOST_SECONDS = 0.2 * 4  # of CPU for everything about one object
WORLD = surroundings()
PROFILES = frozenset({"AIMProfile", "AIMClusterProfile"})


def passes(kind: Kind, obj: dict[str, Any]) -> None:
    """Do what the product does with an object that it reads."""
    for words in _INDEXES.get(kind, {}).values():
        list(words(obj))
    verdict = judge_stored(kind, obj, WORLD)
    assert not verdict.failures, verdict.failures[0].text
    whole = validate(kind, obj, None, WORLD, request_version=kind.version)
    assert not whole.failures, whole.failures[0].text
    plain = manifest(kind.kind, {"metadata": {"name": "large"}})
    for new, old in ((obj, plain), (plain, obj)):
        edited = validate(kind, new, old, WORLD, request_version=kind.version)
        assert not edited.failures, edited.failures[0].text
    _ = ([str(error) for error in whole.errors], whole.warning_texts)
    errors = tuple(verdict.errors)
    if kind in (AIM_SERVICE, AIM_ARTIFACT) and beyond(kind, obj) is not None:
        assert too_large(obj, errors[0], START)["conditions"]
    elif kind == AIM_SERVICE:
        _pass_of_service(obj, errors)
    elif kind == AIM_ARTIFACT:
        config = resolve_runtime_config(WORLD, "team-llm")
        decide_artifact(ArtifactFacts(obj, START, ReconcileSettings(), config, errors=errors))
    elif kind.kind in PROFILES:
        decide_profile(ProfileFacts(obj, START, errors=errors))
    if kind == AIM_SERVICE:
        brief(obj)
        service_view(obj, WORLD)
        overview([obj])


def _pass_of_service(obj: dict[str, Any], errors: tuple[FieldError, ...]) -> None:
    facts = see_service(obj, WORLD)
    plan = make_plan(facts.pipeline, obj)
    decide_service(ServiceFacts(facts, START, ReconcileSettings(), errors=errors, plan=plan, disk_claim=CLAIM))


@pytest.mark.parametrize("make", [objects, storable])
@pytest.mark.parametrize("kind", AIM_KINDS, ids=lambda kind: kind.kind)
def test_no_object_makes_anything_raise(kind: Kind, make: Callable[[Kind, Random], dict[str, Any]]) -> None:
    faults: Counter[str] = Counter()
    slow = []
    for seed in range(ROUNDS):
        obj = make(kind, Random(seed))
        start = time.process_time()
        try:
            passes(kind, obj)
        except Exception as error:
            last = traceback.extract_tb(error.__traceback__)[-1]
            where = f"{last.name} {last.filename}:{last.lineno}, seed {seed}"
            faults[f"{type(error).__name__} {str(error)[-300:]} in {where}"] += 1
        if (taken := time.process_time() - start) > MOST_SECONDS:
            slow.append((seed, taken))
    assert (dict(faults), slow) == ({}, [])


def test_the_generator_reaches_both_sides_of_the_bounds() -> None:
    for kind in AIM_KINDS:
        found = [beyond(kind, objects(kind, Random(seed))) for seed in range(200)]
        assert any(found), kind
        assert not all(found), kind
        assert {entry.error.reason for entry in found if entry} == {Reason.TOO_LARGE}


def test_the_same_seed_gives_the_same_object() -> None:
    assert objects(AIM_SERVICE, Random(7)) == objects(AIM_SERVICE, Random(7))
