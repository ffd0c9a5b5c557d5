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
    alike: dict[tuple[str, str, str], list[str]] = {}
    for move in moves:
        alike.setdefault((move.before, move.after, move.error), []).append(move.name)
    return [_note(names, *how) for how, moved in alike.items() for names in _groups(moved)]


def cannot_start(names: Sequence[str], said: str) -> list[str]:
    """Return the messages of the events about adapters whose Jobs cannot start for one reason."""
    return [f"{_counted(some)} cannot be staged yet: {said}" for some in _groups(names)]


def _groups(names: Sequence[str]) -> list[list[str]]:
    """Divide names so that each group fits into one event."""
    groups: list[list[str]] = [[]]
    for name in names:
        if groups[-1] and sum(len(one) + 2 for one in (*groups[-1], name)) > _MOST_NAMES:
            groups.append([])
        groups[-1].append(name)
    return groups


def _counted(names: Sequence[str]) -> str:
    return f"adapter{'s' if len(names) > 1 else ''} {', '.join(names)}"


def _note(names: Sequence[str], before: str, after: str, error: str) -> EventNote:
    words = f"{_counted(names)}: {before} → {after}"
    bad = after in ("Failed", "LoadRejected")
    return EventNote("Warning" if bad else "Normal", spoken(f"Adapter{after}"), f"{words}: {error}" if error else words)
