"""The status of models and templates."""

from __future__ import annotations

from typing import Any

import pytest

from api.kinds import AIM_MODEL, AIM_SERVICE_TEMPLATE
from api.models import MODELS
from reconcile.models.decide import ModelFacts, decide
from rules.examples import manifest
from rules.references import Missing, Resolved, Unknown
from rules.runtime_config import MergedRuntimeConfig
from tests.unit.reconcile.model.life import START

NONE = MergedRuntimeConfig("default", None, None)
CLUSTER = MergedRuntimeConfig("default", None, {"metadata": {"name": "default", "uid": "c"}})
FOUND = Resolved(AIM_MODEL, manifest("AIMModel", {}))
GPU = {"hardware": {"gpu": {"model": "MI300X", "requests": 2}}}
NODE = {"feature.node.kubernetes.io/aim-accelerator.MI300X": "true"}


def template(**spec: Any) -> dict[str, Any]:
    return manifest("AIMServiceTemplate", {"spec": spec})


CASES: dict[str, tuple[ModelFacts, str, str]] = {
    "a model": (ModelFacts(manifest("AIMModel", {}), START, CLUSTER), "Ready", "ModelValid"),
    "a template": (ModelFacts(template(**GPU), START, NONE, model=FOUND, nodes=[NODE]), "Ready", "NodesMatch"),
    "no node offers it": (
        ModelFacts(template(**GPU), START, NONE, model=FOUND, nodes=[{}]),
        "NotAvailable",
        "NoMatchingNode",
    ),
    "nodes are not watched": (ModelFacts(template(**GPU), START, NONE, model=FOUND), "Ready", "TemplateValid"),
    "its model does not exist": (
        ModelFacts(template(), START, NONE, model=Missing("qwen3-8b"), nodes=[NODE]),
        "Pending",
        "ReferenceNotFound",
    ),
    "its model cannot be read": (
        ModelFacts(template(), START, NONE, model=Unknown("qwen3-8b")),
        "Pending",
        "ReferenceUnreadable",
    ),
}


@pytest.mark.parametrize(("seen", "phase", "reason"), CASES.values(), ids=CASES)
def test_status(seen: ModelFacts, phase: str, reason: str) -> None:
    status = decide(seen).status
    assert (status["status"], status["conditions"][0]["reason"]) == (phase, reason)
    kind = AIM_SERVICE_TEMPLATE if "modelName" in seen.obj["spec"] else AIM_MODEL
    MODELS[kind].model_validate({**seen.obj, "status": status})


def test_what_was_resolved_is_reported() -> None:
    model = decide(ModelFacts(manifest("AIMModel", {}), START, CLUSTER)).status
    assert model["resolvedRuntimeConfig"] == {
        "kind": "AIMClusterRuntimeConfig",
        "name": "default",
        "scope": "Cluster",
        "uid": "c",
    }
    status = decide(ModelFacts(template(**GPU), START, NONE, model=FOUND)).status
    assert status["resolvedModel"]["name"] == "qwen3-8b"
    assert status["hardwareSummary"] == "2 x MI300X"
