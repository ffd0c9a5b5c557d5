"""The status of models and templates: what they refer to, and whether a node offers what they ask for. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from api import view
from api.errors import FieldError
from api.reasons import Reason
from api.view import Json
from reconcile.conditions import Condition, render_conditions
from reconcile.decision import Decision, leave_alone
from reconcile.hardware import Accelerators, availability
from reconcile.objects import without_nulls
from reconcile.references import render_config_reference, render_reference
from rules.references import Missing, Reference, Resolved
from rules.runtime_config import MergedRuntimeConfig


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """All that a pass over one model or template looks at.

    `model`: what a template's `modelName` leads to, None for a model. `nodes`: labels of all nodes, None when nodes are
    not watched.
    """

    obj: Json
    now: datetime
    config: MergedRuntimeConfig
    errors: tuple[FieldError, ...] = ()
    model: Reference | None = None
    nodes: Sequence[Mapping[str, str]] | None = None


def decide(seen: ModelFacts) -> Decision:
    """Return the status of a model or of a template; neither leads to objects."""
    if view.paused(seen.obj) or view.terminating(seen.obj):
        return leave_alone(seen.obj)
    template = view.text(seen.obj, "spec", "modelName") is not None
    ready = _template_ready(seen) if template else Condition("Ready", "True", Reason.MODEL_VALID)
    if seen.errors:
        ready = Condition("Ready", "False", Reason.CONFIG_INVALID, "; ".join(str(error) for error in seen.errors))
    generation = view.generation_of(seen.obj)
    status: dict[str, Any] = {
        "observedGeneration": generation,
        "status": _phase(ready),
        "resolvedRuntimeConfig": render_config_reference(seen.config),
        "conditions": render_conditions(seen.obj, (ready,), generation=generation, now=seen.now),
    }
    if template:
        status["resolvedModel"] = render_reference(seen.model)
        status["hardwareSummary"] = hardware_of(seen.obj).summary
    return Decision(status=without_nulls(status))


def hardware_of(template: Json) -> Accelerators:
    """Return what a template asks for."""
    gpu = view.mapping(template, "spec", "hardware", "gpu")
    count = view.accelerators(gpu)
    return Accelerators(view.text(gpu, "model"), 1 if count is None else max(0, count))


def _template_ready(seen: ModelFacts) -> Condition:
    if isinstance(seen.model, Missing):
        message = f'no AIMModel or AIMClusterModel "{seen.model.name}" exists yet'
        return Condition("Ready", "False", Reason.REFERENCE_NOT_FOUND, message)
    if not isinstance(seen.model, Resolved):
        return Condition("Ready", "Unknown", Reason.REFERENCE_UNREADABLE, "the model could not be read")
    nodes = availability(hardware_of(seen.obj), seen.nodes)
    return Condition("Ready", "True", Reason.TEMPLATE_VALID) if nodes.status == "Unknown" else nodes


def _phase(ready: Condition) -> str:
    if ready.true:
        return "Ready"
    if ready.reason == Reason.CONFIG_INVALID:
        return "Failed"
    return "NotAvailable" if ready.reason == Reason.NO_MATCHING_NODE else "Pending"
