"""The accelerators that a profile or a template asks for, and whether a node offers them. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from api.accelerators import labels_sought, node_matches, node_selector_terms
from api.reasons import Reason
from reconcile.conditions import Condition


@dataclass(frozen=True, slots=True)
class Accelerators:
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


def availability(wanted: Accelerators, nodes: Sequence[Mapping[str, str]] | None) -> Condition:
    """Return Ready: at least one node offers the accelerators; without a number, which changes with the nodes."""
    if nodes is None:
        return Condition("Ready", "Unknown", Reason.NODES_NOT_WATCHED, "nodes are not watched by this controller")
    if wanted.matching(nodes):
        return Condition("Ready", "True", Reason.NODES_MATCH)
    if not wanted.terms:
        return Condition("Ready", "False", Reason.NO_MATCHING_NODE, "the cluster has no nodes")
    message = f"no node offers {wanted.model}: looked for the labels {wanted.sought()}"
    return Condition("Ready", "False", Reason.NO_MATCHING_NODE, message)
