"""The life of each declared adapter: what its entry in status.adapters says. Pure.

One entry is read and written by `entry`, its Jobs are in `staging`, the events of its changes in `moves`.

Source: docs/contract.md, Subtree sync, Staging, Durable truth, Retry and refresh, Adapter states.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from api import view
from api.names import ANNOTATION_RESTAGE, ANNOTATION_RETRY_STAGING
from api.reasons import Reason, spoken
from api.view import AdapterRef, Json
from api.words import parse_time
from reconcile.decision import Delete, EventNote
from reconcile.objects import timestamp
from reconcile.service.entry import (
    HELD,
    NOT_FOUND,
    NOT_LOADED_YET,
    NOT_YET,
    RANK_EXCEEDS,
    RANK_UNKNOWN,
    RESTART_REQUIRED,
    AdapterFacts,
    last_error,
    on_present_disk,
    readable,
    reason_of,
    unchecked,
    way_to_serve,
    without,
)
from reconcile.service.loading import (
    NOT_LISTED,
    ON_DISK,
    Present,
    as_served,
    counted,
    judge_loading,
    keeps_older,
    may_list,
    proof_since,
    recounted,
)
from reconcile.service.manifests import whole_base_claim
from reconcile.service.moves import Move, cannot_start, events_of
from reconcile.service.staging import StageJobs, Work
from rules.references import Unreadable


@dataclass(frozen=True, slots=True)
class AdaptersDecision:
    """New entries of status.adapters in declared order, removed ones behind; Jobs to make and to delete.

    `staging`: the declared entries for the present disk. `entries` differ from it while the servers use another one:
    they say what is served. `awaited`: names of what servers list from that other disk and the present one does not
    hold, for whatever reason: a server that moved now would lose them. `at_rest`: once this pass is written, the next
    step is a Job's, or there is none. `queued`: Jobs wait for their turn. `unchecked`: names of adapters on the disk
    whose fit is being checked, because the base was not complete when they were staged.
    """

    entries: tuple[dict[str, Any], ...] = ()
    create: tuple[dict[str, Any], ...] = ()
    delete: tuple[Delete, ...] = ()
    events: tuple[EventNote, ...] = ()
    recheck_after: timedelta | None = None
    staging: tuple[dict[str, Any], ...] = ()
    awaited: tuple[str, ...] = ()
    at_rest: bool = False
    queued: bool = False
    unchecked: tuple[str, ...] = ()

    @property
    def declared(self) -> tuple[dict[str, Any], ...]:
        """Entries of what is declared now."""
        return tuple(entry for entry in self.entries if entry["state"] != "Deleting")

    @property
    def all_on_disk(self) -> bool:
        """Whether every declared adapter is on the present disk, and none is being checked against its base."""
        return not self.unchecked and all(entry["state"] in ON_DISK for entry in self.staging)


def decide_adapters(seen: AdapterFacts) -> AdaptersDecision:
    """Return the entries of all adapters, and the staging Jobs to make and to delete."""
    return _Pass(seen).run()


@dataclass
class _Pass:
    seen: AdapterFacts
    work: Work = field(default_factory=Work)
    events: list[EventNote] = field(default_factory=list)
    moved: list[Move] = field(default_factory=list)
    awaited: list[str] = field(default_factory=list)  # see `AdaptersDecision`
    unchecked: list[str] = field(default_factory=list)  # likewise

    @property
    def jobs(self) -> StageJobs:
        return StageJobs(self.seen, self.work)

    def run(self) -> AdaptersDecision:
        seen = self.seen
        old = {
            name: readable(entry)
            for entry in view.items(seen.service, "status", "adapters")
            if (name := view.text(entry, "name"))
        }
        refs: dict[str, AdapterRef] = {}
        for ref in view.adapter_refs(seen.service):
            refs.setdefault(ref.name, ref)
        on_disk = {}
        entries = []
        for name, ref in refs.items():
            before = old.get(name, view.EMPTY)
            on_disk[name] = self._entry(ref, on_present_disk(before))
            entries.append(self._report(ref, on_disk[name], before))
        for name in sorted(old.keys() - refs.keys()):
            self.work.restless = True
            leaving = self._leaving(old[name])
            if leaving is not None:
                entries.append(self._observe(leaving, old[name]))
        wanted = {entry.get("stageKey") for entry in on_disk.values()}
        self.jobs.drop_unwanted(wanted)
        return AdaptersDecision(
            tuple(entries),
            tuple(self.work.create),
            tuple(self.work.delete),
            (*self.events, *events_of(self.moved), *self._blocked_events()),
            self.work.recheck,
            tuple(entry for entry in on_disk.values() if entry["state"] != "Deleting"),
            tuple(self.awaited),
            at_rest=not (self.work.restless or seen.pods or seen.moving),
            queued=self.work.queued,
            unchecked=tuple(self.unchecked),
        )

    def _report(self, ref: AdapterRef, entry: dict[str, Any], before: Json) -> dict[str, Any]:
        """Return what the status says about a declared adapter; `entry` is its state on the present disk."""
        served = self._as_served(ref, entry, before)
        if entry["state"] not in ON_DISK and self._would_be_lost(ref, entry, before):
            self.awaited.append(ref.name)
            served = counted(served, self.seen.pods)
        elif served["state"] == "Failed" and not served.get("digest"):
            served = without(served, "loadedReplicas")
        elif served["state"] == "Failed":
            served = recounted(served, self.seen.pods)
        reported = self._observe(served, before)
        self.work.restless |= reported != before and ref.name not in self.work.calm
        return reported

    def _as_served(self, ref: AdapterRef, entry: dict[str, Any], before: Json) -> dict[str, Any]:
        """Say what is served while the servers use another disk than the one that the entry is about."""
        if not self.seen.moving or not entry.get("adapterPath") or reason_of(entry) == HELD:
            return entry
        if entry["state"] not in NOT_YET | ON_DISK or not self._was_served(ref, entry, before):
            return entry
        return as_served(entry, before, self.seen.pods)

    def _would_be_lost(self, ref: AdapterRef, entry: Json, before: Json) -> bool:
        """Whether servers list from another disk what the present one does not hold."""
        path = entry.get("adapterPath")
        if not self.seen.moving or not path or not self._was_served(ref, entry, before):
            return False
        return may_list(self.seen.pods, path)

    def _was_served(self, ref: AdapterRef, entry: Json, before: Json) -> bool:
        """Whether it is this adapter that servers may list by its name, and not one that had the name before."""
        if not before:  # the status was lost: who lists the name serves it
            return True
        if view.text(before, "state") not in ON_DISK and "loadedReplicas" not in before:
            return False
        known = [entry.get("stageKey")]
        artifact = self.seen.artifacts.get(ref.name)
        recorded = view.text(self.seen.service, "status", "adapterDiskPersistentVolumeClaimUid")
        if artifact is None or isinstance(artifact, Unreadable):
            return True
        if recorded is not None:
            known.append(self.seen.stage_key_of(artifact, entry["adapterPath"], recorded))
        return before.get("stageKey") in known

    # -- one declared adapter ---------------------------------------------------------------------------------------

    def _entry(self, ref: AdapterRef, old: Json) -> dict[str, Any]:
        seen = self.seen
        artifact = seen.artifacts.get(ref.name)
        if isinstance(artifact, Unreadable):
            return dict(old) if old and old.get("state") != "Deleting" else {"name": ref.name, "state": "Pending"}
        if artifact is None:
            return self._missing(ref, old)
        entry = self._facts(ref, artifact, old)
        if errors := seen.findings.get(ref.name):
            detail = "; ".join(error.message for error in errors)
            return entry | {"state": "Failed", "lastError": last_error(errors[0].reason, detail)}
        if not seen.claim_uid:
            return self._without_disk(entry, old)
        if not view.is_adapter(artifact):
            return {**without(entry, "lastError"), "state": "Pending"}
        if entry.get("digest") and not entry.get("nextRetryTime"):  # with a time: it is to be fetched again
            if unchecked(entry) and whole_base_claim(seen.base) is not None:
                entry = self.jobs.check_fit(entry, artifact)
                if unchecked(entry):
                    self.unchecked.append(ref.name)
                if not entry.get("digest"):
                    return entry
            return self._staged(entry)
        if seen.max_rank is None:
            return entry | {"state": "Pending", "lastError": RANK_UNKNOWN}
        return self.jobs.step(entry, artifact)

    def _without_disk(self, entry: dict[str, Any], old: Json) -> dict[str, Any]:
        """While the disk is not known, an adapter on it keeps its entry: the servers still have it."""
        if view.text(old, "stageKey") and view.text(old, "state"):
            return dict(old)
        return {**without(entry, "lastError"), "state": "Pending"}

    def _missing(self, ref: AdapterRef, old: Json) -> dict[str, Any]:
        if self._other_disk():
            where = {key: old[key] for key in ("adapterPath", "modelId") if old.get(key)}
            return {"name": ref.name, **where, "state": "Pending", "lastError": last_error(NOT_FOUND)}
        if old.get("digest") and view.text(old, "state") in ON_DISK:  # its bytes are there and served: say both
            said = dict(old) | {"lastError": last_error(NOT_FOUND, "the artifact is deleted; what was staged stays")}
            return as_served(said, old, self.seen.pods)
        if not old and self.seen.moving:  # the status was lost: servers on another disk may serve it, by its name
            return {"name": ref.name, "adapterPath": ref.name, "state": "Pending", "lastError": last_error(NOT_FOUND)}
        kept = {key: old[key] for key in ("adapterPath", "modelId", "stageKey", "digest") if old.get(key)}
        if old.get("state") == "Deleting":  # its bytes may be moved away by now
            kept.pop("digest", None)
        return {"name": ref.name, **kept, "state": "Pending", "lastError": last_error(NOT_FOUND)}

    def _other_disk(self) -> bool:
        """Whether the base has another disk now than the one that the status speaks of."""
        recorded = view.text(self.seen.service, "status", "adapterDiskPersistentVolumeClaimUid")
        return bool(self.seen.claim_uid) and recorded is not None and recorded != self.seen.claim_uid

    def _facts(self, ref: AdapterRef, artifact: Json, old: Json) -> dict[str, Any]:
        """Return the entry's standing facts; what an earlier staging found out counts only under the same key."""
        seen = self.seen
        path = view.adapter_path(artifact)
        entry: dict[str, Any] = {"name": ref.name, "adapterPath": path, "modelId": view.model_id(artifact)}
        key = self.seen.stage_key_of(artifact, path, seen.claim_uid)
        if not seen.claim_uid:  # the disk is not known now: what is known of the last one stays
            return dict(old) | entry if old.get("stageKey") else entry
        if old.get("stageKey") == key and old.get("state") != "Deleting":
            entry = dict(old) | entry
        else:
            entry |= {"stageKey": key, "attempts": 0, **self._asked(artifact)}
            if old.get("state") == "Deleting" or old.get("leftDiskAt"):  # declared again: servers may still list it
                entry["leftDiskAt"] = old.get("leftDiskAt") or timestamp(seen.now)
        return self._answer_asked(entry, artifact)

    def _asked(self, artifact: Json) -> dict[str, Any]:
        """The present values of the annotations that ask for another try; each new value counts once."""
        asked = {
            "lastRetryStaging": self._word(artifact, ANNOTATION_RETRY_STAGING),
            "lastRestage": self._word(artifact, ANNOTATION_RESTAGE),
        }
        return {key: value for key, value in asked.items() if value}

    def _word(self, artifact: Json, name: str) -> str:
        values = (view.annotation(self.seen.service, name), view.annotation(artifact, name))
        return "/".join(value or "" for value in values) if any(values) else ""

    def _answer_asked(self, entry: dict[str, Any], artifact: Json) -> dict[str, Any]:
        if reason_of(entry) == HELD:  # a server may list the old content: asked again once the new one is served
            return entry
        asked = self._asked(artifact)
        if (retry := asked.get("lastRetryStaging")) and retry != entry.get("lastRetryStaging"):
            entry = entry | {"lastRetryStaging": retry}
            if not entry.get("digest") or entry.get("nextRetryTime"):
                entry["nextRetryTime"] = timestamp(self.seen.now)
        restage = asked.get("lastRestage")
        if restage and restage != entry.get("lastRestage") and not self.jobs.under_way(entry):
            entry = entry | {"lastRestage": restage, "nextRetryTime": timestamp(self.seen.now)}
        return entry

    def _staged(self, entry: dict[str, Any]) -> dict[str, Any]:
        """An adapter whose content is on the disk: judge its real rank again, then ask the servers."""
        seen = self.seen
        self.jobs.drop_recorded(entry)
        rank, limit = view.integer(entry, "rank"), seen.max_rank
        if rank is not None and limit is not None and rank > limit:
            fix = way_to_serve(rank, static=seen.mode == "static")
            message = f"the files have rank {rank}, the ceiling is {limit}: {fix}"
            return entry | {"state": "Failed", "lastError": last_error(RANK_EXCEEDS, message)}
        if seen.mode == "static" and (kept := self._kept_by_old_pods(entry)) is not None:
            return kept
        judged, recheck = judge_loading(
            without(entry, "lastError", "progress", "nextRetryTime"),
            seen.pods,
            Present(seen.claim, seen.max_rank),
            now=seen.now,
            refresh=seen.settings.refresh_interval,
            namespace=view.namespace_of(seen.service),
        )
        self.work.look_again(recheck)
        if judged["state"] == "LoadRejected" and not judged.get("lastError"):  # not asked again: the words stay
            judged["lastError"] = entry.get("lastError") or str(NOT_LISTED)
        return judged

    def _kept_by_old_pods(self, entry: dict[str, Any]) -> dict[str, Any] | None:
        """Return the entry as static pods serve it that were started before its present content came to the disk.

        None: no pod is that old, or what they list is this content. Pods that are replaced anyhow are not asked.
        """
        seen, path = self.seen, entry["adapterPath"]
        since = parse_time(entry.get("stagedAt") or entry.get("lastObserved"))
        told = reason_of(entry) == RESTART_REQUIRED
        older = [pod for pod in self.seen.staying_pods if keeps_older(pod, path, since, known=told)]
        if not older:
            return None
        if not told and (not entry.get("stagedAt") or all(pod.listed is None or path in pod.listed for pod in older)):
            return None
        entry = without(entry, "progress", "nextRetryTime")
        if not told:
            entry["lastError"] = last_error(RESTART_REQUIRED, NOT_LOADED_YET)
        elif any(pod.listed is None for pod in seen.pods):  # not asked yet: the number stays
            return entry | {"state": "Downloaded"}
        loaded = sum(1 for pod in seen.pods if pod.listed and path in pod.listed and pod not in older)
        return entry | {"state": "Downloaded", "loadedReplicas": loaded}

    # -- removed adapters -------------------------------------------------------------------------------------------

    def _leaving(self, old: Json) -> dict[str, Any] | None:
        """Return the entry of a removed adapter, or None when no server lists it any more or the wait is over.

        Only an answer that was asked for after the directory left the mount shows that a server does not list it.
        """
        seen = self.seen
        path = view.text(old, "adapterPath")
        tried = old.get("digest") or view.integer(old, "attempts") or view.text(old, "state") in ON_DISK | {"Deleting"}
        if path is None or not old.get("stageKey") or not tried:
            return None  # never staged: nothing to unload
        entry = without(old, "lastError", "progress", "nextRetryTime", "leftDiskAt") | {"state": "Deleting"}
        listed = may_list(seen.pods, path)
        if seen.mode == "static" and listed:
            entry["lastError"] = last_error(RESTART_REQUIRED, "the running pods keep it until they are restarted")
        if not seen.synced and (seen.claim_uid or listed):  # without a disk there is nothing that could be moved away
            return entry
        if not seen.pods or not seen.synced:
            return None
        left = parse_time(old.get("leftDiskAt")) if old.get("state") == "Deleting" else None
        left = left or seen.now
        entry["leftDiskAt"] = timestamp(left)
        if not may_list(seen.pods, path, proof_since(left)):
            return None
        over = left + seen.settings.unload_grace
        if over <= seen.now:
            message = f"adapter {old.get('name')} is off the disk, but a server still listed it when the wait was over"
            self.events.append(EventNote("Warning", Reason.ADAPTER_UNLOAD_OVERDUE, message))
            return None
        self.work.look_again(over - seen.now)
        return entry

    def _blocked_events(self) -> Iterator[EventNote]:
        """Return one event for each reason why Jobs cannot start: on the service, and on each adapter's artifact."""
        reasons: dict[str, list[str]] = {}
        for name, said in self.work.blocked:
            reasons.setdefault(said, []).append(name)
        for said, names in reasons.items():
            reason = spoken(said.partition(":")[0])
            yield from (EventNote("Warning", reason, words) for words in cannot_start(names, said))
            for name in names:
                artifact = self.seen.artifacts.get(name)
                if artifact is not None and not isinstance(artifact, Unreadable):
                    whose = f'AIMService "{view.name_of(self.seen.service)}"'
                    words = f'{whose} cannot stage adapter "{name}" yet: {said}'
                    yield EventNote("Warning", reason, words, about=artifact)

    # -- state changes ----------------------------------------------------------------------------------------------

    def _observe(self, entry: dict[str, Any], old: Json) -> dict[str, Any]:
        """Stamp the entry when its state changed, and note an event; `lastObserved` moves with the state alone."""
        changed = entry["state"] != old.get("state")
        since = None if changed else view.text(old, "lastObserved")
        stamped = entry | {"lastObserved": since or timestamp(self.seen.now)}
        if changed and (old or entry["state"] != "Pending"):
            self.moved.append(
                Move(entry["name"], old.get("state") or "new", entry["state"], view.text(entry, "lastError") or "")
            )
        return {key: value for key, value in stamped.items() if value is not None}
