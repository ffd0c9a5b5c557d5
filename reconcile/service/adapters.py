"""The life of each declared adapter: what its entry in status says, and which staging Job it needs. Pure.

Source: docs/contract.md, Subtree sync, Staging, Durable truth, Retry and refresh, Adapter states.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from api import view
from api.errors import FieldError
from api.jobs import JobResult, Progress
from api.kinds import JOB
from api.names import ANNOTATION_RESTAGE, ANNOTATION_RETRY_STAGING, stage_key
from api.reasons import Reason, spoken
from api.view import AdapterMode, AdapterRef, Json
from reconcile.decision import Delete, EventNote, sooner
from reconcile.jobs import JobState, retry_at
from reconcile.objects import label_value, parse_timestamp, timestamp
from reconcile.service.loading import (
    NOT_LISTED,
    ON_DISK,
    Present,
    ServerPod,
    as_served,
    counted,
    judge_loading,
    keeps_older,
    may_list,
    recounted,
)
from reconcile.service.manifests import Staging, render_stage_job
from reconcile.settings import ReconcileSettings
from rules.rank import round_up
from rules.resolve import ArtifactState, Unreadable

NOT_FOUND = Reason.ADAPTER_ARTIFACT_NOT_FOUND
RANK_EXCEEDS = Reason.ADAPTER_RANK_EXCEEDS_CEILING
HELD = Reason.ADAPTER_HELD_FOR_UNLOAD
RESTART_REQUIRED = Reason.RESTART_REQUIRED
RANK_UNKNOWN = (
    f"{Reason.RANK_CEILING_UNKNOWN}: no valid rank ceiling is known: what sets it is not valid or cannot be read"
)


@dataclass(frozen=True, slots=True)
class Observed:
    """What the adapters of one service depend on.

    `findings`: adapter name → what is wrong with it. `claim`/`claim_uid`: the adapter disk, empty while there is none.
    `synced`: the disk knows the present declared set. `mounted`: claim of the disk that the InferenceService mounts,
    empty while it mounts none. `configs`: adapter name → merged RuntimeConfig spec of its Jobs;
    `config_problems`: adapter name → why that is not known (`Reason: message`).
    """

    service: Json
    now: datetime
    settings: ReconcileSettings
    artifacts: Mapping[str, ArtifactState]
    findings: Mapping[str, tuple[FieldError, ...]] = field(default_factory=dict)
    base: Json = field(default_factory=dict)
    claim: str = ""
    claim_uid: str = ""
    synced: bool = False
    max_rank: int | None = None
    stage_jobs: tuple[JobState, ...] = ()
    progress: Mapping[str, Progress] = field(default_factory=dict)  # by Job UID
    configs: Mapping[str, Json] = field(default_factory=dict)
    config_problems: Mapping[str, str] = field(default_factory=dict)
    mounted: str = ""
    pull_secrets: tuple[Any, ...] = ()
    pods: tuple[ServerPod, ...] = ()  # ready ones

    @property
    def mode(self) -> AdapterMode:
        """The service's adapter mode."""
        return view.adapter_mode(self.service)

    @property
    def moving(self) -> bool:
        """Whether the servers use another disk than the present one: it was replaced, or is not known."""
        return bool(self.mounted) and self.mounted != self.claim


@dataclass(frozen=True, slots=True)
class AdaptersDecision:
    """New entries of status.adapters in declared order, removed ones behind; Jobs to make and to delete.

    `staging`: the declared entries as they stand on the present disk. `entries` differ from it while the servers use
    another one: they say what is served. `awaited`: names of what servers list from that other disk and the present one
    does not hold, for whatever reason: a server that moved now would lose them. `at_rest`: once this pass is written,
    the next step is a Job's, or nobody's.
    """

    entries: tuple[dict[str, Any], ...] = ()
    create: tuple[dict[str, Any], ...] = ()
    delete: tuple[Delete, ...] = ()
    events: tuple[EventNote, ...] = ()
    recheck_after: timedelta | None = None
    staging: tuple[dict[str, Any], ...] = ()
    awaited: tuple[str, ...] = ()
    at_rest: bool = False

    @property
    def declared(self) -> tuple[dict[str, Any], ...]:
        """Entries of what is declared now."""
        return tuple(entry for entry in self.entries if entry["state"] != "Deleting")

    @property
    def all_on_disk(self) -> bool:
        """Whether every declared adapter is on the present disk."""
        return all(entry["state"] in ON_DISK for entry in self.staging)


def declared_paths(service: Json, artifacts: Mapping[str, ArtifactState], rejected: frozenset[str]) -> list[str]:
    """Return the directories that may live in the subtree, sorted.

    An adapter that is invalid now keeps the directory it may have; one that never can have one (`rejected`) has none.
    A missing artifact's path is the one last seen.
    """
    old = {
        view.text(entry, "name"): view.text(entry, "adapterPath") for entry in view.items(service, "status", "adapters")
    }
    paths = set()
    for ref in view.adapter_refs(service):
        artifact = artifacts.get(ref.name)
        if ref.name in rejected:
            continue
        if artifact is None or isinstance(artifact, Unreadable):
            paths.add(old.get(ref.name) or ref.name)
        elif view.is_adapter(artifact):
            paths.add(view.adapter_path(artifact))
    return sorted(paths)


def reason_of(entry: Json) -> str:
    """The stable reason at the head of an entry's lastError, empty when there is none."""
    return (view.text(entry, "lastError") or "").partition(":")[0]


def _way_to_serve(rank: int, *, static: bool) -> str:
    """Say how an adapter whose files have this rank comes to be served."""
    needed = round_up(rank)
    if needed is None:
        return "no engine takes a rank above 512"
    if static:
        return f"set spec.rank of the AIMArtifact to {rank}, and the ceiling follows"
    return f"raise adapterRuntime.maxRank to {needed}"


def _last_error(reason: str, message: str = "") -> str:
    return f"{reason}: {message}" if message else str(reason)


def decide_adapters(seen: Observed) -> AdaptersDecision:
    """Return the entries of all adapters, and the staging Jobs to make and to delete."""
    return _Pass(seen).run()


@dataclass
class _Pass:
    seen: Observed
    create: list[dict[str, Any]] = field(default_factory=list)
    delete: list[Delete] = field(default_factory=list)
    events: list[EventNote] = field(default_factory=list)
    moved: list[_Move] = field(default_factory=list)
    awaited: list[str] = field(default_factory=list)  # see `AdaptersDecision`
    recheck: timedelta | None = None
    restless: bool = False  # something may follow from what this pass writes
    calm: set[str] = field(default_factory=set)  # adapters that changed, and wait for a Job or for nobody now

    def run(self) -> AdaptersDecision:
        seen = self.seen
        old = {
            name: _readable(entry)
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
            on_disk[name] = self._entry(ref, _on_present_disk(before))
            entries.append(self._report(ref, on_disk[name], before))
        for name in sorted(old.keys() - refs.keys()):
            self.restless = True
            leaving = self._leaving(old[name])
            if leaving is not None:
                entries.append(self._observe(leaving, old[name]))
        wanted = {entry.get("stageKey") for entry in on_disk.values()}
        for job in seen.stage_jobs:
            if not job.terminating and (job.key not in wanted or found_undeclared(job)):
                self.restless = True
                self._drop(job)
        return AdaptersDecision(
            tuple(entries),
            tuple(self.create),
            tuple(self.delete),
            (*self.events, *_told(self.moved)),
            self.recheck,
            tuple(entry for entry in on_disk.values() if entry["state"] != "Deleting"),
            tuple(self.awaited),
            at_rest=not (self.restless or seen.pods or seen.moving),
        )

    def _report(self, ref: AdapterRef, entry: dict[str, Any], before: Json) -> dict[str, Any]:
        """Return what the status says about a declared adapter that stands on the present disk as `entry` says."""
        served = self._as_served(ref, entry, before)
        if entry["state"] not in ON_DISK and self._would_be_lost(ref, entry, before):
            self.awaited.append(ref.name)
            served = counted(served, self.seen.pods)
        elif served["state"] == "Failed" and not served.get("digest"):
            served = _without(served, "loadedReplicas")
        elif served["state"] == "Failed":
            served = recounted(served, self.seen.pods)
        reported = self._observe(served, before)
        self.restless |= reported != before and ref.name not in self.calm
        return reported

    def _as_served(self, ref: AdapterRef, entry: dict[str, Any], before: Json) -> dict[str, Any]:
        """Say what is served while the servers use another disk than the one that the entry is about."""
        if not self.seen.moving or not entry.get("adapterPath") or reason_of(entry) == HELD:
            return entry
        if entry["state"] not in _NOT_YET | ON_DISK or not self._was_served(ref, entry, before):
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
            known.append(self._key(artifact, entry["adapterPath"], recorded))
        return before.get("stageKey") in known

    def _key(self, artifact: Json, path: str, claim_uid: str) -> str:
        return stage_key(
            view.uid_of(artifact), view.source_uri(artifact), view.uid_of(self.seen.service), path, claim_uid
        )

    def _drop(self, job: JobState) -> None:
        deletion = Delete(JOB, view.namespace_of(self.seen.service), job.name, job.uid)
        if deletion not in self.delete:
            self.delete.append(deletion)

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
            return entry | {"state": "Failed", "lastError": _last_error(errors[0].reason, detail)}
        if not seen.claim_uid:
            return self._without_disk(entry, old)
        if not view.is_adapter(artifact):
            return {**_without(entry, "lastError"), "state": "Pending"}
        if entry.get("digest") and not entry.get("nextRetryTime"):  # with a time: it is to be fetched again
            return self._staged(entry)
        if seen.max_rank is None:
            return entry | {"state": "Pending", "lastError": RANK_UNKNOWN}
        return self._stage(entry, artifact)

    def _without_disk(self, entry: dict[str, Any], old: Json) -> dict[str, Any]:
        """While the disk is not known, what was said about an adapter on it stands: the servers still have it."""
        if view.text(old, "stageKey") and view.text(old, "state"):
            return dict(old)
        return {**_without(entry, "lastError"), "state": "Pending"}

    def _missing(self, ref: AdapterRef, old: Json) -> dict[str, Any]:
        if self._other_disk():
            where = {key: old[key] for key in ("adapterPath", "modelId") if old.get(key)}
            return {"name": ref.name, **where, "state": "Pending", "lastError": _last_error(NOT_FOUND)}
        if old.get("digest") and view.text(old, "state") in ON_DISK:  # its bytes are there and served: say both
            said = dict(old) | {"lastError": _last_error(NOT_FOUND, "the artifact is gone; what was staged stays")}
            return as_served(said, old, self.seen.pods)
        if not old and self.seen.moving:  # the status was lost: servers on another disk may serve it, by its name
            return {"name": ref.name, "adapterPath": ref.name, "state": "Pending", "lastError": _last_error(NOT_FOUND)}
        kept = {key: old[key] for key in ("adapterPath", "modelId", "stageKey", "digest") if old.get(key)}
        if old.get("state") == "Deleting":  # its bytes may be moved away by now
            kept.pop("digest", None)
        return {"name": ref.name, **kept, "state": "Pending", "lastError": _last_error(NOT_FOUND)}

    def _other_disk(self) -> bool:
        """Whether the base has another disk now than the one that the status speaks of."""
        recorded = view.text(self.seen.service, "status", "adapterDiskPersistentVolumeClaimUid")
        return bool(self.seen.claim_uid) and recorded is not None and recorded != self.seen.claim_uid

    def _facts(self, ref: AdapterRef, artifact: Json, old: Json) -> dict[str, Any]:
        """Return the entry's standing facts; what an earlier staging found out counts only under the same key."""
        seen = self.seen
        path = view.adapter_path(artifact)
        entry: dict[str, Any] = {"name": ref.name, "adapterPath": path, "modelId": view.model_id(artifact)}
        key = self._key(artifact, path, seen.claim_uid)
        if not seen.claim_uid:  # the disk is not known now: what is known of the last one stays
            return dict(old) | entry if old.get("stageKey") else entry
        if old.get("stageKey") == key and old.get("state") != "Deleting":
            entry = dict(old) | entry
        else:
            entry |= {"stageKey": key, "attempts": 0, **self._asked(artifact)}
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
        asked = self._asked(artifact)
        if (retry := asked.get("lastRetryStaging")) and retry != entry.get("lastRetryStaging"):
            entry = entry | {"lastRetryStaging": retry}
            if not entry.get("digest") or entry.get("nextRetryTime"):
                entry["nextRetryTime"] = timestamp(self.seen.now)
        if (restage := asked.get("lastRestage")) and restage != entry.get("lastRestage"):
            entry = entry | {"lastRestage": restage, "nextRetryTime": timestamp(self.seen.now)}
        return entry

    def _staged(self, entry: dict[str, Any]) -> dict[str, Any]:
        """An adapter whose content is on the disk: judge its real rank again, then ask the servers."""
        seen = self.seen
        for job in seen.stage_jobs:
            if job.key == entry["stageKey"] and not job.terminating:
                self._drop(job)
        rank, limit = view.integer(entry, "rank"), seen.max_rank
        if rank is not None and limit is not None and rank > limit:
            fix = _way_to_serve(rank, static=seen.mode == "static")
            message = f"the files have rank {rank}, the ceiling is {limit}: {fix}"
            return entry | {"state": "Failed", "lastError": _last_error(RANK_EXCEEDS, message)}
        if seen.mode == "static" and (kept := self._kept_by_old_pods(entry)) is not None:
            return kept
        judged, recheck = judge_loading(
            _without(entry, "lastError", "progress", "nextRetryTime"),
            seen.pods,
            Present(seen.claim, seen.max_rank),
            now=seen.now,
            refresh=seen.settings.refresh_interval,
            namespace=view.namespace_of(seen.service),
        )
        self.recheck = sooner(self.recheck, recheck)
        if judged["state"] == "LoadRejected" and not judged.get("lastError"):  # not asked anew: the words stay
            judged["lastError"] = entry.get("lastError") or str(NOT_LISTED)
        return judged

    def _staying_pods(self) -> list[ServerPod]:
        """Ready pods with the present disk and ceiling: nothing but a restart brings them anything new."""
        return [pod for pod in self.seen.pods if pod.runs_on(self.seen.claim, self.seen.max_rank)]

    def _kept_by_old_pods(self, entry: dict[str, Any]) -> dict[str, Any] | None:
        """Return the entry as static pods serve it that were started before its present content came to the disk.

        None: no pod is that old, or what they list is this content. Pods that are replaced anyhow are not asked.
        """
        seen, path = self.seen, entry["adapterPath"]
        since = parse_timestamp(entry.get("stagedAt") or entry.get("lastObserved"))
        told = reason_of(entry) == RESTART_REQUIRED
        older = [pod for pod in self._staying_pods() if keeps_older(pod, path, since, known=told)]
        if not older:
            return None
        if not told and (not entry.get("stagedAt") or all(pod.listed is None or path in pod.listed for pod in older)):
            return None
        entry = _without(entry, "progress", "nextRetryTime")
        if not told:
            entry["lastError"] = _last_error(RESTART_REQUIRED, _NOT_LOADED_YET)
        elif any(pod.listed is None for pod in seen.pods):  # not asked yet: the number stands
            return entry | {"state": "Downloaded"}
        loaded = sum(1 for pod in seen.pods if pod.listed and path in pod.listed and pod not in older)
        return entry | {"state": "Downloaded", "loadedReplicas": loaded}

    # -- staging ----------------------------------------------------------------------------------------------------

    def _stage(self, entry: dict[str, Any], artifact: Json) -> dict[str, Any]:
        for job in self.seen.stage_jobs:
            if job.key != entry["stageKey"] or job.terminating:
                continue
            if job.attempt <= (view.integer(entry, "attempts") or 0):
                self._drop(job)  # recorded before
            elif job.finished:
                self._drop(job)
                return self._recorded(entry, job)
            else:
                return self._running(entry, job)
        if not self.seen.synced or self._other_writer(entry):
            return self._waiting(entry)
        if problem := self.seen.config_problems.get(entry["name"]):
            return _without(entry, "progress") | {"state": "Pending", "lastError": problem}
        if not self._due(entry, artifact):
            return _without(entry, "progress")
        return self._start(entry, artifact)

    def _other_writer(self, entry: Json) -> bool:
        """Whether a Job may still write to the adapter's directory what it held for another stage key.

        Of the artifact that had the name before, or of an adapter that is not declared any more and had the path. Such
        Jobs are deleted in this pass; the new one is made when they are gone.
        """
        others = {label_value(ref.name) for ref in view.adapter_refs(self.seen.service)} - {label_value(entry["name"])}
        return any(
            not job.finished and job.key != entry["stageKey"] and job.artifact not in others
            for job in self.seen.stage_jobs
        )

    def _waiting(self, entry: dict[str, Any]) -> dict[str, Any]:
        if entry.get("state") == "Failed" or reason_of(entry) == HELD:
            return entry
        self.calm.add(entry["name"])
        return _without(entry, "lastError", "progress") | {"state": "Pending"}

    def _running(self, entry: dict[str, Any], job: JobState) -> dict[str, Any]:
        if not entry.get("digest"):
            entry = _without(entry, "nextRetryTime")
        if job.phase == "waiting":
            if job.blocked_by:
                return _without(entry, "progress") | {"state": "Pending", "lastError": job.blocked_by}
            return entry if entry.get("state") == "Failed" else _without(entry, "lastError") | {"state": "Pending"}
        progress = self.seen.progress.get(job.uid)
        if progress is not None:
            entry["progress"] = {
                "downloadedBytes": progress.downloaded_bytes,
                "totalBytes": progress.total_bytes,
                "percentage": progress.percentage,
            }
        return _without(entry, "lastError") | {"state": "Downloading"}

    def _due(self, entry: Json, artifact: Json) -> bool:
        """Whether to try now: never tried, time is over, or something changed that may mend it."""
        if not entry.get("attempts"):
            return True
        if reason_of(entry) == HELD:
            return self._released(entry)
        if view.integer(entry, "artifactGeneration") != view.generation_of(artifact):
            return True
        if (view.integer(entry, "stagedForMaxRank") or 0) < (self.seen.max_rank or 0):
            return True
        due = parse_timestamp(entry.get("nextRetryTime"))
        if due is None or due <= self.seen.now:
            return True
        self.recheck = sooner(self.recheck, due - self.seen.now)
        return False

    def _released(self, entry: Json) -> bool:
        """Whether the old content of a changed adapter is out of every server, or the wait for it is over."""
        since = parse_timestamp(entry.get("nextRetryTime")) or self.seen.now
        if since <= self.seen.now or not may_list(self.seen.pods, entry.get("adapterPath")):
            return True
        self.recheck = sooner(self.recheck, since - self.seen.now)
        return False

    def _start(self, entry: dict[str, Any], artifact: Json) -> dict[str, Any]:
        seen = self.seen
        held = reason_of(entry) == HELD
        staging = Staging(
            adapter=artifact,
            path=entry["adapterPath"],
            key=entry["stageKey"],
            attempt=(view.integer(entry, "attempts") or 0) + 1,
            claim=seen.claim,
            base=seen.base,
            max_rank=seen.max_rank or 0,
            fresh=bool(entry.get("lastRestage")) and bool(entry.get("attempts")) and not held,
            hold_changed=seen.mode == "dynamic" and not held and may_list(seen.pods, entry["adapterPath"]),
        )
        config = seen.configs.get(view.text(artifact, "metadata", "name") or "", view.EMPTY)
        self.create.append(render_stage_job(seen.service, staging, config, seen.pull_secrets, seen.settings))
        started = {"artifactGeneration": view.generation_of(artifact), "stagedForMaxRank": seen.max_rank}
        if entry.get("state") == "Failed":  # stays so until the new attempt really runs
            self.restless = True
            return entry | started
        if not entry.get("nextRetryTime"):
            self.calm.add(entry["name"])
        return _without(entry, "lastError") | started | {"state": "Pending"}

    def _recorded(self, entry: dict[str, Any], job: JobState) -> dict[str, Any]:
        """Write down how an attempt ended (docs/contract.md, Durable truth); its Job goes in the same pass."""
        entry = _without(entry, "progress", "nextRetryTime", "lastError") | {"attempts": job.attempt}
        result = job.result
        if result is None and job.phase == "succeeded":  # ended without a word: the next one finds the marker
            return entry | {"state": "Pending"}
        result = result or JobResult(ok=False, reason=Reason.JOB_FAILED, message="the Job failed")
        warnings = [note.model_dump() for note in result.warnings]
        facts: dict[str, Any] = {
            "rank": result.rank,
            "baseModelId": result.base_model_id,
            "sizeBytes": result.size_bytes,
            "revision": result.revision,
            "warnings": warnings or None,
        }
        entry = {**_without(entry, *facts), **{key: value for key, value in facts.items() if value is not None}}
        if result.ok and result.reason == HELD:
            until = timestamp(self.seen.now + self.seen.settings.unload_grace)
            message = "the source has changed; the new content is served when no replica lists the old one any more"
            held = {"state": "Downloading", "lastError": _last_error(HELD, message), "nextRetryTime": until}
            return _without(entry, "digest") | held
        if result.ok:
            return self._succeeded(entry, result, job.finished_at or self.seen.now)
        retry = retry_at(job.finished_at or self.seen.now, job.attempt, self.seen.settings, result.retry_after_seconds)
        self.recheck = sooner(self.recheck, retry - self.seen.now)
        return entry | {
            "state": "Failed",
            "lastError": _last_error(result.reason, result.message),
            "nextRetryTime": timestamp(retry),
        }

    def _succeeded(self, entry: dict[str, Any], result: JobResult, finished_at: datetime) -> dict[str, Any]:
        before = entry.get("digest")
        entry = entry | {"digest": result.digest or "unknown", "state": "Downloaded"}
        unchanged = result.reason == Reason.ALREADY_STAGED or before == entry["digest"]
        if result.staged_at is not None:
            entry["stagedAt"] = timestamp(datetime.fromtimestamp(result.staged_at, UTC))
        elif not unchanged:
            entry["stagedAt"] = timestamp(finished_at)
        if (view.integer(entry, "rank") or 0) <= (self.seen.max_rank or 0) and "loadedReplicas" not in entry:
            self.calm.add(entry["name"])
        staying = self._staying_pods()
        if self.seen.mode == "dynamic" or not staying or unchanged:
            return entry
        listed = may_list(staying, entry["adapterPath"])
        return entry | {"lastError": _last_error(RESTART_REQUIRED, _OLD_CONTENT if listed else _NOT_LOADED_YET)}

    # -- removed adapters -------------------------------------------------------------------------------------------

    def _leaving(self, old: Json) -> dict[str, Any] | None:
        """Return the entry of a removed adapter, or None when no server lists it any more or the wait is over."""
        seen = self.seen
        path = view.text(old, "adapterPath")
        tried = old.get("digest") or view.integer(old, "attempts") or view.text(old, "state") in ON_DISK | {"Deleting"}
        if path is None or not old.get("stageKey") or not tried:
            return None  # never staged: nothing to unload
        entry = _without(old, "lastError", "progress", "nextRetryTime") | {"state": "Deleting"}
        listed = may_list(seen.pods, path)
        if seen.mode == "static" and listed:
            entry["lastError"] = _last_error(RESTART_REQUIRED, "the running pods keep it until they are restarted")
        if not seen.synced and (seen.claim_uid or listed):  # without a disk there is nothing that could be moved away
            return entry
        if not listed:
            return None
        since = parse_timestamp(old.get("lastObserved")) if old.get("state") == "Deleting" else seen.now
        over = (since or seen.now) + seen.settings.unload_grace
        if over <= seen.now:
            message = f"adapter {old.get('name')} is off the disk, but a server still listed it when the wait was over"
            self.events.append(EventNote("Warning", Reason.ADAPTER_UNLOAD_OVERDUE, message))
            return None
        self.recheck = sooner(self.recheck, over - seen.now)
        return entry

    # -- state changes ----------------------------------------------------------------------------------------------

    def _observe(self, entry: dict[str, Any], old: Json) -> dict[str, Any]:
        """Stamp the entry when its state changed, and tell of it; `lastObserved` moves with the state alone."""
        changed = entry["state"] != old.get("state")
        since = None if changed else view.text(old, "lastObserved")
        stamped = entry | {"lastObserved": since or timestamp(self.seen.now)}
        if changed and (old or entry["state"] != "Pending"):
            self.moved.append(
                _Move(entry["name"], old.get("state") or "new", entry["state"], view.text(entry, "lastError") or "")
            )
        return {key: value for key, value in stamped.items() if value is not None}


@dataclass(frozen=True, slots=True)
class _Move:
    """An adapter whose state changed."""

    name: str
    before: str
    after: str
    error: str


_MOST_NAMES = 300  # bytes of names in one event; an error may follow, and its message holds 1,024


def _told(moves: Sequence[_Move]) -> list[EventNote]:
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


_NOT_YET = frozenset({"Pending", "Downloading"})
_WORDS = ("state", "stageKey", "adapterPath", "modelId", "digest", "lastError", "lastObserved", "stagedAt")
_OLD_CONTENT = "the disk has new content, the running pods keep the old one until they are restarted"
_NOT_LOADED_YET = "in static mode the running pods load it only when they are restarted"


def _readable(entry: Json) -> Json:
    """Return a stored entry without what is not a word where words stand; one without a state is Pending."""
    if all(isinstance(entry.get(key, ""), str) for key in _WORDS) and view.text(entry, "state"):
        return entry
    kept = {key: value for key, value in entry.items() if key not in _WORDS or isinstance(value, str)}
    return {"state": "Pending", **kept}


def found_undeclared(job: JobState) -> bool:
    """Whether a staging Job says that the disk does not know its adapter as declared.

    A sync follows from that, once: the Job goes with it, whatever became of its adapter.
    """
    return job.finished and job.result is not None and job.result.reason == Reason.ADAPTER_NOT_DECLARED


def _on_present_disk(entry: Json) -> Json:
    """Return a stored entry as it is about the present disk: what is served from another has no digest here."""
    if view.text(entry, "state") in ON_DISK and not entry.get("digest"):
        return _without(entry, "loadedReplicas") | {"state": "Pending"}
    return entry


def _without(entry: Mapping[str, Any], *keys: str) -> dict[str, Any]:
    return {key: value for key, value in entry.items() if key not in keys}


def describe(entries: tuple[dict[str, Any], ...]) -> str:
    """Name each adapter that is not on the disk (or needs a word) and why, in declared order."""
    words = []
    for entry in entries:
        error = view.text(entry, "lastError")
        if entry["state"] in ON_DISK and not error:
            continue
        words.append(f"{entry['name']} is {entry['state']}" + (f": {error}" if error else ""))
    return "; ".join(words)
