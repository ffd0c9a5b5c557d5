"""A stored object beyond a bound is reported on itself, and its pass does nothing else (docs/contract.md, Bounds)."""

from __future__ import annotations

from typing import Any
from unittest.mock import AsyncMock, MagicMock

import pytest

from api import view
from api.kinds import AIM_CLUSTER_PROFILE, AIM_PROFILE
from reconcile.artifact.controller import ArtifactController
from reconcile.decision import Decision
from reconcile.service.controller import ServiceController
from rules.references import UNREADABLE, Unknown, artifact_state, lookup
from rules.worlds import SnapshotWorld
from tests.unit.reconcile.model.life import START

ADAPTERS = [{"name": f"a{i}", "kind": "AIMArtifact"} for i in range(20_000)]
LARGE: dict[type[Any], dict[str, Any]] = {
    ServiceController: {"spec": {"profile": {"name": "p"}, "adapters": ADAPTERS}},
    ArtifactController: {"spec": {"type": "model", "sourceUri": "hf://a/b", "env": [{"name": "A"}] * 257}},
}


async def decision_about(controller: type[Any], obj: dict[str, Any]) -> Decision:
    """Return what a pass over a stored object carries out."""
    tools = MagicMock()
    tools.find.return_value = obj
    tools.now.return_value = START
    tools.shell.carry_out = AsyncMock(return_value=None)
    one = object.__new__(controller)
    one._tools, one._servers = tools, MagicMock()
    await one.reconcile(("team-llm", "large"))
    tools.informers.__getitem__.assert_not_called()
    decision = tools.shell.carry_out.await_args.args[2]
    assert isinstance(decision, Decision)
    return decision


@pytest.mark.parametrize("controller", LARGE)
async def test_only_the_status_is_written(controller: type[Any]) -> None:
    obj = {"metadata": {"name": "large", "namespace": "team-llm", "uid": "u", "generation": 3}, **LARGE[controller]}
    decision = await decision_about(controller, obj)
    assert (decision.apply, decision.create, decision.delete) == ((), (), ())
    stored = {"status": decision.status}
    found = view.condition(stored, "ConfigValid")
    assert (found["status"], found["reason"]) == ("False", "TooLarge")
    assert "at most" in found["message"]
    assert view.condition(stored, "Ready")["status"] == "False"
    assert (decision.status["status"], decision.status["observedGeneration"]) == ("Failed", 3)


async def test_a_running_server_and_foreign_conditions_stay() -> None:
    conditions = [{"type": "InferenceServiceReady", "status": "True"}, {"type": "Theirs", "status": "Unknown"}]
    status = {"conditions": conditions, "adapterMaxRank": 32}
    obj = {"metadata": {"name": "large", "namespace": "team-llm"}, **LARGE[ServiceController], "status": status}
    decision = await decision_about(ServiceController, obj)
    assert [view.text(entry, "type") for entry in decision.status["conditions"]] == [
        "InferenceServiceReady",
        "Theirs",
        "ConfigValid",
    ]
    assert (decision.status["status"], decision.status["adapterMaxRank"]) == ("Degraded", 32)


@pytest.mark.parametrize("reason", ["TooLarge", "Unreadable", "CacheBudgetExceeded"])
@pytest.mark.parametrize("controller", LARGE)
async def test_an_object_that_was_not_read_as_a_whole_is_reported(controller: type[Any], reason: str) -> None:
    left = {view.LEFT_OUT: {"reason": reason, "detail": "spec is nested too deeply"}}
    obj = {"metadata": {"name": "large", "namespace": "team-llm", "uid": "u", "generation": 3}, **left}
    decision = await decision_about(controller, obj)
    assert (decision.apply, decision.create, decision.delete) == ((), (), ())
    found = view.condition({"status": decision.status}, "ConfigValid")
    assert (found["status"], found["reason"]) == ("False", reason)
    assert "spec is nested too deeply" in found["message"]


def test_a_reference_to_an_object_that_was_not_read_as_a_whole_is_unknown() -> None:
    profile = {"metadata": {"name": "p", "namespace": "ns"}, view.LEFT_OUT: {"reason": "TooLarge", "detail": "spec"}}
    artifact = {**profile, "kind": "AIMArtifact", "metadata": {"name": "a", "namespace": "ns"}}
    world = SnapshotWorld([{"kind": "AIMProfile", **profile}, artifact])
    assert artifact_state(world, "ns", "a") is UNREADABLE
    found = lookup(world, (AIM_PROFILE, AIM_CLUSTER_PROFILE), "ns", "p")
    assert isinstance(found, Unknown)
    assert found.kinds == (AIM_PROFILE,), "a cluster profile of that name does not take its place"
