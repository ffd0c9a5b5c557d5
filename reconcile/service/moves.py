"""The events of adapters whose state changed. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from api.reasons import spoken
from reconcile.decision import EventNote


@dataclass(frozen=True, slots=True)
class Move:
    """An adapter whose state changed."""

    name: str
    before: str
    after: str
    error: str


_MOST_NAMES = 300  # bytes of names in one event; an error may follow, and its message holds 1,024


def events_of(moves: Sequence[Move]) -> list[EventNote]:
    """Return the events of a pass: adapters that moved alike share one."""
    alike: dict[tuple[str, str, str], list[list[str]]] = {}
    for move in moves:
        groups = alike.setdefault((move.before, move.after, move.error), [[]])
        if sum(len(name) + 2 for name in (*groups[-1], move.name)) > _MOST_NAMES:
            groups.append([])
        groups[-1].append(move.name)
    return [_note(names, *how) for how, groups in alike.items() for names in groups if names]


def _note(names: Sequence[str], before: str, after: str, error: str) -> EventNote:
    words = f"adapter{'s' if len(names) > 1 else ''} {', '.join(names)}: {before} → {after}"
    bad = after in ("Failed", "LoadRejected")
    return EventNote("Warning" if bad else "Normal", spoken(f"Adapter{after}"), f"{words}: {error}" if error else words)
