"""When an adapter disk is swept, and what came of it (docs/contract.md, Reaper). Pure.

Decided from state: what the services on the disk looked like at the last sweep (their UIDs and how often they staged)
against what they look like now. The Job carries the former, so that a change during a sweep is not lost.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Literal

from api import view
from api.jobs import JobResult
from api.kinds import JOB
from api.names import ANNOTATION_REAP, short_hash
from api.reasons import Reason, spoken
from api.words import parse_time
from reconcile.artifact.facts import ArtifactFacts
from reconcile.decision import Draft, EventNote
from reconcile.jobs import JobState
from reconcile.objects import timestamp, without_nulls

_DRY_RUN = "dry-run"
_STATUS = ("lastReapTime", "lastReap", "lastReapWorld", "lastReapRequest")


@dataclass(frozen=True, slots=True)
class Sweep:
    """What to ask the shell for, and the fields of the status."""

    status: dict[str, Any] = field(default_factory=dict)
    sweep: Literal["", "sweep", "dry-run"] = ""
    world: str = ""


def world_hash(users: tuple[tuple[str, int], ...]) -> str:
    """Return a short hash over the services on a disk and their staging attempts."""
    return short_hash(*(f"{uid}={attempts}" for uid, attempts in sorted(users)), length=16)


_EMPTY_WORLD = world_hash(())


def decide_sweep(seen: ArtifactFacts, draft: Draft) -> Sweep:
    """Record sweeps that ended, and ask for the next one when it is due."""
    status = {key: value for key in _STATUS if (value := view.dig(seen.artifact, "status", key)) is not None}
    request = view.annotation(seen.artifact, ANNOTATION_REAP)
    busy = False
    for job in seen.reap_jobs:
        busy = busy or not job.finished or job.terminating
        mode, world, asked = _read_key(job.key)
        if request is not None and asked == short_hash(request):
            status["lastReapRequest"] = request
        if job.finished and not job.terminating:
            status |= _record(seen, draft, job, dry_run=mode == _DRY_RUN, world=world)
            draft.drop(JOB, view.namespace_of(seen.artifact), job.name, job.uid)
    if busy or seen.disk_claim is None or view.terminating(seen.disk_claim):
        return Sweep(status)
    now_world = world_hash(seen.users)
    if request is not None and request != status.get("lastReapRequest"):
        draft.look_again(seen.settings.reaper_period)
        return Sweep(status, "dry-run" if request.startswith(_DRY_RUN) else "sweep", now_world)
    due = _due(seen, status, now_world)
    if due is None:
        return Sweep(status)
    if due > seen.now:
        draft.look_again(due - seen.now)
        return Sweep(status)
    draft.look_again(seen.settings.reaper_period)
    return Sweep(status, "sweep", now_world)


def _read_key(key: str) -> tuple[str, str, str]:
    mode, _, rest = key.partition(":")
    world, _, request = rest.partition(":")
    return mode, "" if world == "-" else world, request


def _due(seen: ArtifactFacts, status: dict[str, Any], world: str) -> datetime | None:
    """When the next automatic sweep is due; None: this disk cannot hold anything yet.

    A disk that was never swept and has no service now may have had one that went before the first sweep.
    """
    last_world = status.get("lastReapWorld")
    swept = parse_time(status.get("lastReapTime"))
    if swept is None and world == _EMPTY_WORLD and view.dig(seen.disk_claim, "status", "phase") != "Bound":
        return None
    created = parse_time(view.dig(seen.disk_claim, "metadata", "creationTimestamp")) or seen.now
    settings = seen.settings
    period: timedelta = settings.reaper_idle_period if last_world == world else settings.reaper_period
    return (swept or created) + period


def _record(seen: ArtifactFacts, draft: Draft, job: JobState, *, dry_run: bool, world: str) -> dict[str, Any]:
    """Return the fields that a sweep's end changes; a failed one is tried again at the next tick."""
    ended = job.finished_at or seen.now
    result = job.result
    if result is None and job.phase == "succeeded":
        result = JobResult(ok=True, reason=Reason.DISK_REAPED, message="the sweep ended, its result was not read")
    result = result or JobResult(ok=False, reason=Reason.JOB_FAILED, message="the sweep failed without a word")
    words = f"{result.message} (dry run: nothing was removed)" if dry_run and result.ok else result.message
    outcome = {
        "reason": result.reason,
        "message": words,
        "reclaimedBytes": result.reclaimed_bytes,
        "removed": list(result.removed) or None,
    }
    _tell(draft, result, words, dry_run=dry_run)
    fields: dict[str, Any] = {"lastReap": without_nulls(outcome)}
    if not dry_run:
        fields |= {"lastReapTime": timestamp(ended), "lastReapWorld": _world_after(seen, result, world)}
    return fields


def _world_after(seen: ArtifactFacts, result: JobResult, world: str) -> str:
    """The state that was swept; after a failure, or when something was left for later, none: the next tick sweeps."""
    if not result.ok:
        return "failed"
    return "unfinished" if result.left else world or world_hash(seen.users)


def _tell(draft: Draft, result: JobResult, words: str, *, dry_run: bool) -> None:
    if not result.ok:
        draft.events.append(EventNote("Warning", spoken(result.reason), words))
    elif dry_run:
        draft.events.append(EventNote("Normal", Reason.SWEEP_DRY_RUN, words))
    elif result.removed:
        draft.events.append(EventNote("Normal", spoken(result.reason), words))
