"""What one pass wants done: the answer of every `decide`, carried out by `reconcile.shell`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Literal

from api import view
from api.kinds import Kind
from api.reasons import Foreign, Reason
from api.view import Json


@dataclass(frozen=True, slots=True)
class Delete:
    """An object to delete: this very one (by UID), its children in the background."""

    kind: Kind
    namespace: str
    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class EventNote:
    """An event on the object that the pass is about, or on another one (`about`)."""

    type: Literal["Normal", "Warning"]
    reason: Reason | Foreign
    message: str
    about: Json | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Decision:
    """Desired objects, status and events of one pass, carried out in the order of the fields.

    `apply`: whole desired objects, applied server-side only where the live one does not say all that already;
    `create`: objects that are never changed after creation (Jobs, claims); `status`: the whole desired status;
    `delete`: carried out only after the status was stored (a finished Job goes once its outcome is recorded);
    `sweep`: ask for a sweep of the adapter disk, which needs a complete list of living services first; `sweep_world`
    goes to the Job as it is (what was there when the sweep was decided);
    `recheck_after`: when to look again although nothing happened (a retry is due, a bound ends);
    `queued`: Jobs are due that wait for their turn;
    `at_rest`: a pass over what this one writes would change nothing, so that its writes need to wake no pass.
    """

    apply: tuple[tuple[Kind, Mapping[str, Any]], ...] = ()
    create: tuple[tuple[Kind, Mapping[str, Any]], ...] = ()
    status: Mapping[str, Any] = field(default_factory=dict)
    delete: tuple[Delete, ...] = ()
    events: tuple[EventNote, ...] = ()
    sweep: Literal["", "sweep", "dry-run"] = ""
    sweep_world: str = ""
    recheck_after: timedelta | None = None
    at_rest: bool = False
    queued: bool = False


@dataclass(slots=True)
class Draft:
    """What a pass has found out so far that has to be done; the steps of a `decide` write into it."""

    apply: list[tuple[Kind, Mapping[str, Any]]] = field(default_factory=list)
    create: list[tuple[Kind, Mapping[str, Any]]] = field(default_factory=list)
    delete: list[Delete] = field(default_factory=list)
    events: list[EventNote] = field(default_factory=list)
    recheck: timedelta | None = None
    queued: bool = False

    def drop(self, kind: Kind, namespace: str, name: str, uid: str) -> None:
        """Delete an object, named once however many steps want it gone."""
        deletion = Delete(kind, namespace, name, uid)
        if deletion not in self.delete:
            self.delete.append(deletion)

    def look_again(self, after: timedelta | None) -> None:
        """Come back after this time, or earlier if another step asked for that."""
        self.recheck = sooner(self.recheck, after)

    def decision(
        self, status: Mapping[str, Any], *, sweep: Literal["", "sweep", "dry-run"] = "", sweep_world: str = ""
    ) -> Decision:
        """Return what was collected, with the status to store."""
        return Decision(
            apply=tuple(self.apply),
            create=tuple(self.create),
            status=status,
            delete=tuple(self.delete),
            events=tuple(self.events),
            sweep=sweep,
            sweep_world=sweep_world,
            recheck_after=self.recheck,
            queued=self.queued,
        )


def leave_alone(obj: Json) -> Decision:
    """Return the decision about an object that is paused or on its way out: nothing changes, its status included."""
    return Decision(status=dict(view.mapping(obj, "status")))


def sooner(*moments: timedelta | None) -> timedelta | None:
    """Return the shortest of the given durations, or None when there is none; never below a second."""
    known = [moment for moment in moments if moment is not None]
    return max(min(known), timedelta(seconds=1)) if known else None
