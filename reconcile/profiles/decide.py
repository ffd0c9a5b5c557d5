"""Where a profile can run: nodes that offer its accelerators. Pure; docs/contract.md, Profiles, Accelerators."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from api import view
from api.errors import FieldError
from api.names import LABEL_MANAGED_BY
from api.reasons import Reason
from api.view import Json
from reconcile.conditions import Condition, render_conditions
from reconcile.decision import Decision, leave_alone
from reconcile.hardware import Accelerators, availability
from reconcile.objects import without_nulls


@dataclass(frozen=True, slots=True)
class ProfileFacts:
    """All that a pass over one profile looks at. `nodes`: labels of all nodes, None when nodes are not watched."""

    profile: Json
    now: datetime
    nodes: Sequence[Mapping[str, str]] | None = None
    errors: tuple[FieldError, ...] = ()


def hardware_of(profile: Json) -> Accelerators:
    """Return what a profile asks for."""
    spec = view.mapping(profile, "spec")
    count = view.integer(spec, "acceleratorCount")
    cpu = view.text(spec, "acceleratorType") == "cpu"
    return Accelerators(
        view.text(spec, "acceleratorModel"),
        0 if cpu else 1 if count is None else max(0, count),
        view.text(spec, "acceleratorPartitioningMode"),
    )


def decide(seen: ProfileFacts) -> Decision:
    """Return the status of a profile; it leads to no objects."""
    profile = seen.profile
    if view.paused(profile) or view.terminating(profile):
        return leave_alone(profile)
    hardware = hardware_of(profile)
    ready = availability(hardware, seen.nodes)
    if seen.errors:
        ready = Condition("Ready", "False", Reason.CONFIG_INVALID, "; ".join(str(error) for error in seen.errors))
    generation = view.generation_of(profile)
    terms = hardware.terms
    affinity = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}} if terms else None
    status = {
        "observedGeneration": generation,
        "status": None if ready.status == "Unknown" else "Ready" if ready.true else "NotAvailable",
        "deployable": view.text(profile, "spec", "aimId") is not None
        and bool(view.items(profile, "spec", "modelSources")),
        "matchingNodes": None if seen.nodes is None else hardware.matching(seen.nodes),
        "hardwareSummary": hardware.summary,
        "resolvedNodeAffinity": affinity,
        "origin": view.text(profile, "metadata", "labels", LABEL_MANAGED_BY),
        "conditions": render_conditions(profile, (ready,), generation=generation, now=seen.now),
    }
    return Decision(status=without_nulls(status))
