"""Where a profile can run: nodes that offer its accelerators. Pure; docs/contract.md, Profiles, Accelerators."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from api import view
from api.accelerators import labels_sought, node_matches, node_selector_terms
from api.errors import FieldError
from api.names import LABEL_MANAGED_BY
from api.reasons import Reason
from api.view import Json
from reconcile.conditions import Condition, render_conditions
from reconcile.decision import Decision, leave_alone
from reconcile.objects import without_nulls


@dataclass(frozen=True, slots=True)
class Observed:
    """All that a pass over one profile looks at. `nodes`: labels of all nodes, None when nodes are not watched."""

    profile: Json
    now: datetime
    nodes: Sequence[Mapping[str, str]] | None = None
    errors: tuple[FieldError, ...] = ()


@dataclass(frozen=True, slots=True)
class Hardware:
    """The accelerators that something asks for. `model` None: any node will do."""

    model: str | None
    count: int
    partitioning: str | None = None

    @property
    def terms(self) -> list[dict[str, Any]]:
        """Node selector terms, any of which admits a node; empty: every node."""
        if self.model is None or self.count == 0:
            return []
        return node_selector_terms(self.model, self.partitioning)

    @property
    def summary(self) -> str | None:
        """The accelerators for people, `4 x MI300X`."""
        if self.count == 0:
            return "CPU"
        return f"{self.count} x {self.model}" if self.model is not None else None

    def matching(self, nodes: Sequence[Mapping[str, str]]) -> int:
        """How many nodes offer them."""
        terms = self.terms
        return sum(1 for labels in nodes if node_matches(labels, terms)) if terms else len(nodes)

    def sought(self) -> str:
        """The labels that were looked for, in words."""
        return labels_sought(self.terms)


def hardware_of(profile: Json) -> Hardware:
    """Return what a profile asks for."""
    spec = view.mapping(profile, "spec")
    count = view.integer(spec, "acceleratorCount")
    cpu = view.text(spec, "acceleratorType") == "cpu"
    return Hardware(
        view.text(spec, "acceleratorModel"),
        0 if cpu else 1 if count is None else max(0, count),
        view.text(spec, "acceleratorPartitioningMode"),
    )


def decide(seen: Observed) -> Decision:
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


def availability(hardware: Hardware, nodes: Sequence[Mapping[str, str]] | None) -> Condition:
    """Return Ready: at least one node offers the accelerators; without a number, which changes with the nodes."""
    if nodes is None:
        return Condition("Ready", "Unknown", Reason.NODES_NOT_WATCHED, "nodes are not watched by this controller")
    if hardware.matching(nodes):
        return Condition("Ready", "True", Reason.NODES_MATCH)
    if not hardware.terms:
        return Condition("Ready", "False", Reason.NO_MATCHING_NODE, "the cluster has no nodes")
    message = f"no node offers {hardware.model}: looked for the labels {hardware.sought()}"
    return Condition("Ready", "False", Reason.NO_MATCHING_NODE, message)
