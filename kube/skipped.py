"""The objects of one kind that were not taken in as a whole, and why: counted, logged once, kept for people to see.

Source: docs/contract.md, Faults of one object: a fault in one object concerns that object only.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass

from api.kinds import Kind
from api.reasons import Reason
from kube import metrics
from kube.cache import Key

log = logging.getLogger(__name__)

MOST_KEPT = 256  # of each kind; more are counted, and logged, but not listed
FAULT, HANDLER_FAULT = "Fault", "HandlerFault"


@dataclass(frozen=True, slots=True)
class Skipped:
    """One object. `reason` is a stable word, `detail` a sentence for people, `version` its resource version."""

    kind: str
    namespace: str
    name: str
    reason: str
    detail: str
    version: str

    def __str__(self) -> str:
        place = f"{self.namespace}/{self.name}" if self.namespace else self.name
        return f"{self.kind} {place} ({self.reason}: {self.detail})"


class SkippedObjects:
    """The skipped objects of one kind; `nameless` counts those whose name cannot be read."""

    def __init__(self, kind: Kind) -> None:
        self.nameless = 0
        self._kind = kind
        self._known: OrderedDict[Key, Skipped] = OrderedDict()

    def __iter__(self) -> Iterator[Skipped]:
        return iter(self._known.values())

    def __len__(self) -> int:
        return len(self._known)

    def note(self, key: Key, version: str, reason: str, detail: str, error: BaseException | None = None) -> None:
        """Count and keep an object; log it unless the same was logged about this version of it."""
        found = Skipped(self._kind.kind, *key, reason, detail, version)
        if self._known.get(key) == found:
            return
        metrics.OBJECTS_SKIPPED.labels(self._kind.kind, reason).inc()
        log.warning(
            "an object is left out",
            exc_info=error,
            extra={"kind": found.kind, "ns": key[0], "object": key[1], "reason": reason, "detail": detail},
        )
        self._known[key] = found
        self._known.move_to_end(key)
        while len(self._known) > MOST_KEPT:
            self._known.popitem(last=False)

    def note_nameless(self, count: int = 1) -> None:
        """Count objects that cannot be identified."""
        if not count:
            return
        self.nameless += count
        metrics.OBJECTS_SKIPPED.labels(self._kind.kind, Reason.UNREADABLE).inc(count)
        log.warning("objects are left out whose names cannot be read", extra={"kind": self._kind.kind, "count": count})

    def forget(self, key: Key) -> None:
        """Remove an object that is well again, or gone."""
        if self._known:
            self._known.pop(key, None)

    def problem(self) -> str | None:
        """Return in words how many objects are skipped and the newest of them, None if there are none."""
        if not self._known and not self.nameless:
            return None
        newest = "; ".join(map(str, list(self._known.values())[-3:]))
        more = len(self._known) - 3
        words = [newest] if newest else []
        if more > 0:
            words.append(f"{more} more")
        if self.nameless:
            words.append(f"{self.nameless} without a readable name")
        return f"left out: {'; '.join(words)}"
