"""Counts what becomes of adapters and Jobs, from what the shells see; the pure core knows of no metric."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping
from datetime import UTC, datetime

from api import view
from api.kinds import JOB, POD, Kind
from api.names import (
    LABEL_ROLE,
    ROLE_FETCH,
    ROLE_REAPER,
    ROLE_STAGING,
    ROLE_SUBTREE_SYNC,
)
from api.reasons import ENDS_OF_JOBS, Reason
from api.view import Json
from api.words import parse_time
from kube.informer import Informer
from reconcile import metrics
from reconcile.decision import Delete
from reconcile.jobs import JobState, read_job

ADAPTER_STATES = ("Pending", "Downloading", "Downloaded", "Loaded", "LoadRejected", "Failed", "Deleting")
OTHER = "Other"
"""Label value for all that is in no closed set."""

_ROLES = frozenset({ROLE_FETCH, ROLE_REAPER, ROLE_STAGING, ROLE_SUBTREE_SYNC})
OUTCOMES = ENDS_OF_JOBS | {"Complete"}
"""The words for how Jobs end, as label values; `Complete` is a success without a result. Any other is "Other"."""

_STAGED = Reason.ADAPTER_STAGED
_HELD = Reason.ADAPTER_HELD_FOR_UNLOAD  # well, but nothing is served yet: the adapter waits for a second Job
_MOST_WAITING = 10_000  # stage keys whose first Job is remembered; above it the oldest are forgotten


class AdapterMeter:
    """Keeps the gauge of adapters by state, by the changes that the informer of AIMService reports."""

    def __init__(self) -> None:
        self._counts = dict.fromkeys((*ADAPTER_STATES, OTHER), 0)
        self._show(self._counts)

    def changed(self, old: Json | None, new: Json | None) -> None:
        """Take in that a service came, changed or went."""
        before, after = _states(old), _states(new)
        if before == after:
            return
        moved = before.keys() | after.keys()
        for state in moved:
            self._counts[state] += after[state] - before[state]
        self._show(moved)

    def _show(self, states: Collection[str]) -> None:
        for state in states:
            metrics.ADAPTERS.labels(state).set(self._counts[state])


def _states(service: Json | None) -> Counter[str]:
    entries = view.items(service, "status", "adapters") if service is not None else ()
    states = (view.text(entry, "state") or "Pending" for entry in entries)
    return Counter(state if state in ADAPTER_STATES else OTHER for state in states)


class JobMeter:
    """Counts how Jobs ended, once each: when their outcome was recorded and they are about to be deleted."""

    def __init__(
        self,
        informers: Mapping[Kind, Informer],
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._jobs, self._pods = informers.get(JOB), informers.get(POD)
        self._now = now
        self._counted: set[str] = set()  # UIDs of Jobs that are still in the cache
        self._first: dict[str, datetime] = {}  # stage key -> creation of its first Job, while it is not staged
        if self._jobs is not None:
            self._jobs.add_handler(self._changed)

    def deleting(self, deletion: Delete) -> None:
        """Count a Job that ended, before it is deleted; a second time, or while it still runs, nothing is counted."""
        if deletion.kind != JOB or self._jobs is None or deletion.uid in self._counted:
            return
        job = self._jobs.get(deletion.namespace, deletion.name)
        if job is None or view.uid_of(job) != deletion.uid:
            return
        pods = self._pods.by_index("owner", f"{deletion.namespace}/{deletion.uid}") if self._pods is not None else ()
        state = read_job(job, pods)
        if not state.finished:
            return
        self._counted.add(deletion.uid)
        role, reason = view.text(job, "metadata", "labels", LABEL_ROLE), _reason(state)
        metrics.JOB_OUTCOMES.labels(
            role if role in _ROLES else OTHER, state.phase, reason if reason in OUTCOMES else OTHER
        ).inc()
        if role == ROLE_STAGING:
            self._staging_ended(state, parse_time(view.text(job, "metadata", "creationTimestamp")))

    def _staging_ended(self, state: JobState, created: datetime | None) -> None:
        """Note when the first try of a stage key began, or observe how long it took all in all."""
        result = state.result
        began = self._first.pop(state.key, None) or created
        if began is None:
            return
        if result is None or not result.ok or result.reason == _HELD:
            self._first[state.key] = began
            if len(self._first) > _MOST_WAITING:
                del self._first[next(iter(self._first))]
            return
        metrics.TIME_TO_STAGED.observe(max(0.0, (self._now() - began).total_seconds()))
        if result.reason == _STAGED:
            metrics.STAGED_BYTES.inc(max(0, result.size_bytes or 0))

    def _changed(self, old: Json | None, new: Json | None) -> None:
        """A Job that is gone, or another one of its name, is never asked for again."""
        if old is not None and (new is None or view.uid_of(new) != view.uid_of(old)):
            self._counted.discard(view.uid_of(old))


def _reason(state: JobState) -> str:
    if state.result is not None:
        return state.result.reason
    return "Complete" if state.phase == "succeeded" else Reason.JOB_FAILED
