"""A stored object beyond a bound is reported on itself, and its pass does nothing else (docs/contract.md, Bounds)."""

from __future__ import annotations

from typing import Any
from unittest.mock import AsyncMock, MagicMock

import pytest

from api import view
from reconcile.artifact.controller import ArtifactController
from reconcile.decision import Decision
from reconcile.service.controller import ServiceController
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
