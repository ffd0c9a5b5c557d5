"""Where profiles can run."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from api.kinds import AIM_CLUSTER_PROFILE
from api.models import MODELS
from reconcile.objects import merge_patch
from reconcile.profiles.decide import ProfileFacts, decide
from rules.examples import manifest
from rules.validate import judge_stored
from rules.worlds import SnapshotWorld
from tests.unit.reconcile.model.life import START

MI300X = {"feature.node.kubernetes.io/aim-accelerator.MI300X": "true"}
BY_ID = {"amd.com/gpu.device-id": "74a1"}
OTHER = {"amd.com/gpu.device-id": "74a5"}
CPX = BY_ID | {"amd.com/compute-memory-partition": "cpx-nps4"}


def observe(nodes: Any, **spec: Any) -> ProfileFacts:
    return ProfileFacts(manifest("AIMClusterProfile", {"metadata": {"generation": 2}, "spec": spec}), START, nodes)


CASES: dict[str, tuple[ProfileFacts, dict[str, Any], tuple[str, str]]] = {
    "two nodes offer it, by label and by id": (
        observe([MI300X, BY_ID, OTHER]),
        {"status": "Ready", "matchingNodes": 2, "hardwareSummary": "1 x MI300X", "deployable": True},
        ("True", "NodesMatch"),
    ),
    "none does": (
        observe([OTHER, {}], acceleratorCount=4),
        {"status": "NotAvailable", "matchingNodes": 0, "hardwareSummary": "4 x MI300X", "deployable": True},
        ("False", "NoMatchingNode"),
    ),
    "the partitioning must fit": (
        observe([BY_ID, CPX], acceleratorPartitioningMode="cpx-nps4"),
        {"status": "Ready", "matchingNodes": 1, "hardwareSummary": "1 x MI300X", "deployable": True},
        ("True", "NodesMatch"),
    ),
    "nodes are not watched": (
        observe(None),
        {"hardwareSummary": "1 x MI300X", "deployable": True},
        ("Unknown", "NodesNotWatched"),
    ),
    "a CPU profile runs anywhere": (
        observe([{}, {}], acceleratorType="cpu"),
        {"status": "Ready", "matchingNodes": 2, "hardwareSummary": "CPU", "deployable": True},
        ("True", "NodesMatch"),
    ),
    "no accelerator is named": (
        observe([{}], acceleratorModel=None, aimId=None, modelSources=None),
        {"status": "Ready", "matchingNodes": 1, "deployable": False},
        ("True", "NodesMatch"),
    ),
}


@pytest.mark.parametrize(("seen", "fields", "ready"), CASES.values(), ids=CASES)
def test_profile(seen: ProfileFacts, fields: dict[str, Any], ready: tuple[str, str]) -> None:
    status = decide(seen).status
    plain = {key: value for key, value in status.items() if key in ("status", "matchingNodes", "hardwareSummary")}
    assert plain | {"deployable": status["deployable"]} == fields
    (condition,) = status["conditions"]
    assert (condition["status"], condition["reason"]) == ready
    MODELS[AIM_CLUSTER_PROFILE].model_validate({**seen.profile, "status": status})
    again = decide(replace(seen, profile={**seen.profile, "status": status}))
    assert merge_patch(status, again.status) == {}


def test_the_affinity_is_what_the_server_gets() -> None:
    terms = decide(observe([])).status["resolvedNodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert len(terms["nodeSelectorTerms"]) == 3


def test_an_invalid_profile_says_so() -> None:
    seen = observe([MI300X], aimId=None)
    errors = tuple(judge_stored(AIM_CLUSTER_PROFILE, seen.profile, SnapshotWorld()).errors)
    assert errors
    status = decide(replace(seen, errors=errors)).status
    assert (status["status"], status["conditions"][0]["reason"]) == ("NotAvailable", "ConfigInvalid")
