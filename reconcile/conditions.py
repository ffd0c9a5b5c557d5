"""Conditions whose transition times are true: they move with the status and with nothing else.

Source: Kubernetes API conventions, "Typical status properties".
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from api import view
from api.errors import FieldError
from api.reasons import Foreign, Reason
from api.text import clean
from api.view import Json
from reconcile.objects import timestamp


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition as it is computed: without time and generation."""

    type: str
    status: Literal["True", "False", "Unknown"]
    reason: Reason | Foreign
    message: str = ""

    @property
    def true(self) -> bool:
        """Whether the status is True."""
        return self.status == "True"


def told_in(status: Json, kind: str, words: str) -> dict[str, Any]:
    """Return a status that says `words` in a condition, too; one without that condition as it is."""
    conditions = [
        entry | {"message": clean("; ".join(filter(None, (entry["message"], words))), _MESSAGE_LIMIT)}
        if entry["type"] == kind
        else entry
        for entry in status.get("conditions", ())
    ]
    return {**status, "conditions": conditions} if conditions else dict(status)


_MESSAGE_LIMIT = 32768  # the API server's own limit for a condition's message


def render_conditions(
    obj: Json, conditions: Iterable[Condition], *, generation: int, now: datetime
) -> list[dict[str, Any]]:
    """Return the list to store, sorted by type; a condition whose status did not change keeps its transition time.

    Conditions of other programs are kept as they are, in their place. Source: docs/contract.md, Conditions.
    """
    rendered: list[dict[str, Any]] = []
    for new in sorted(conditions, key=lambda entry: entry.type):
        old = view.condition(obj, new.type)
        kept = old.get("lastTransitionTime") if old.get("status") == new.status else None
        rendered.append(
            {
                "type": new.type,
                "status": new.status,
                "reason": str(new.reason),
                "message": clean(new.message, _MESSAGE_LIMIT),
                "observedGeneration": generation,
                "lastTransitionTime": kept or timestamp(now),
            }
        )
    types = OWN_TYPES.union(entry["type"] for entry in rendered)
    for place, entry in enumerate(view.items(obj, "status", "conditions")):
        if view.text(entry, "type") not in types:
            rendered.insert(place, entry)
    return rendered


OWN_TYPES = frozenset(
    {
        *("ConfigValid", "CacheReady", "Adapters", "InferenceServiceReady", "Ready"),
        *("CacheStorageReady", "AdapterDiskReady", "ArtifactsReady"),
    }
)
"""Types of the conditions that aim-adapters writes, and removes where they no longer apply."""


def too_large(obj: Json, error: FieldError, now: datetime) -> dict[str, Any]:
    """Return the status of an object that is beyond a bound: the stored one, with what is wrong with the object.

    A server that runs keeps running, so that its own condition stays. Source: docs/contract.md, Bounds.
    """
    serves = view.condition(obj, "InferenceServiceReady").get("status") == "True"
    said = [Condition("ConfigValid", "False", error.reason, str(error))]
    if not serves:
        said.append(Condition("Ready", "False", Reason.CONFIG_INVALID, str(error)))
    generation = view.generation_of(obj)
    types = {one.type for one in said}
    rendered = render_conditions(obj, said, generation=generation, now=now)
    new = [entry for entry in rendered if entry["type"] in types]
    kept = [entry for entry in view.items(obj, "status", "conditions") if view.text(entry, "type") not in types]
    return {
        **view.mapping(obj, "status"),
        "status": "Degraded" if serves else "Failed",
        "observedGeneration": generation,
        "conditions": [*kept, *new],
    }
