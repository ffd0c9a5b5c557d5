"""The staging Jobs of a service's adapters: which one is needed, and what a finished one says. Pure.

Source: docs/contract.md, Adapter disk.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from msgspec.structs import asdict

from api import view
from api.jobs import JobResult
from api.kinds import JOB
from api.reasons import Reason, explain
from api.view import Json
from api.words import parse_time
from reconcile.decision import Delete, sooner
from reconcile.jobs import WAITS_FOR_TURN, JobState, keeps_from_starting, naming_reference, retry_at, same_trouble
from reconcile.objects import label_value, timestamp
from reconcile.service.entry import (
    HELD,
    NOT_LOADED_YET,
    OLD_CONTENT,
    RESTART_REQUIRED,
    AdapterFacts,
    held_since,
    last_error,
    reason_of,
    unchecked,
    without,
)
from reconcile.service.loading import ON_DISK, may_list
from reconcile.service.manifests import Staging, render_stage_job, whole_base_claim
from rules.runtime_config import AdapterConfig


@dataclass(slots=True)
class Work:
    """What a pass over the adapters of a service has to do so far.

    `queued`: Jobs wait for their turn. `restless`: something may follow from what this pass writes. `calm`: names of
    adapters that changed and now wait for a Job, or for nothing. `blocked`: names of adapters whose Jobs cannot start,
    each with a reason that is news.
    """

    create: list[dict[str, Any]] = field(default_factory=list)
    delete: list[Delete] = field(default_factory=list)
    recheck: timedelta | None = None
    restless: bool = False
    queued: bool = False
    calm: set[str] = field(default_factory=set)
    blocked: list[tuple[str, str]] = field(default_factory=list)

    def drop(self, service: Json, job: JobState) -> None:
        """Delete a Job, once."""
        deletion = Delete(JOB, view.namespace_of(service), job.name, job.uid)
        if deletion not in self.delete:
            self.delete.append(deletion)

    def look_again(self, after: timedelta | None) -> None:
        """Come back after this time, or earlier."""
        self.recheck = sooner(self.recheck, after)


@dataclass(frozen=True, slots=True)
class StageJobs:
    """The staging Jobs of one service."""

    seen: AdapterFacts
    work: Work

    def drop_recorded(self, entry: Json) -> None:
        """Delete the Jobs of an adapter that is on the disk: how they ended is in its entry."""
        known = view.integer(entry, "attempts") or 0
        for job in self.seen.stage_jobs:
            checks_fit = unchecked(entry) and job.attempt > known
            if job.key == entry["stageKey"] and not job.terminating and not checks_fit:
                self.work.drop(self.seen.service, job)

    def drop_unwanted(self, keys: set[Any]) -> None:
        """Delete the Jobs of other keys, and those that found their adapter undeclared: a sync follows first."""
        for job in self.seen.stage_jobs:
            if not job.terminating and (job.key not in keys or found_undeclared(job)):
                self.work.restless = True
                self.work.drop(self.seen.service, job)

    def step(self, entry: dict[str, Any], artifact: Json) -> dict[str, Any]:
        """Return the entry of an adapter that is not on the disk; records its Job, or makes the next one."""
        for job in self.seen.stage_jobs:
            if job.key != entry["stageKey"] or job.terminating:
                continue
            if job.attempt <= (view.integer(entry, "attempts") or 0):
                self.work.drop(self.seen.service, job)  # recorded before
            elif job.finished:
                self.work.drop(self.seen.service, job)
                return self._recorded(entry, job)
            else:
                return self._running(entry, job)
        if not self.seen.synced or self._other_writer(entry):
            return self._waiting(entry)
        if problem := _config_problem(self._config(entry["name"])):
            return without(entry, "progress") | {"state": "Pending", "lastError": problem}
        if not self._due(entry, artifact):
            return without(entry, "progress")
        return self._start(entry, artifact)

    def under_way(self, entry: Json) -> bool:
        """Whether there is a Job whose end is not counted: it may have read the source before it was asked to again."""
        known = view.integer(entry, "attempts") or 0
        return any(job.key == entry.get("stageKey") and job.attempt > known for job in self.seen.stage_jobs)

    def check_fit(self, entry: dict[str, Any], artifact: Json) -> dict[str, Any]:
        """Have a staged adapter compared with its base, once that is complete; what servers list stays as it is.

        The entry changes when the Job has ended: it no longer warns, or is Failed and off the disk.
        """
        seen, known = self.seen, view.integer(entry, "attempts") or 0
        mine = [job for job in seen.stage_jobs if job.key == entry["stageKey"] and not job.terminating]
        job = next((job for job in mine if job.attempt > known), None)
        if job is not None and job.finished and _says_whether_it_fits(job):
            self.work.drop(seen.service, job)
            recorded = self._recorded(entry, job)
            return recorded | {"attempts": known} if recorded["state"] in ON_DISK else without(recorded, "digest")
        if job is not None and job.finished:  # it could not look: the adapter stays as it is, and the next one may
            due = retry_at(job.finished_at or seen.now, job.attempt, seen.settings, None)
            if due > seen.now:
                self.work.look_again(due - seen.now)
                return entry
            self.work.drop(seen.service, job)
            entry, job = entry | {"attempts": job.attempt}, None
        if job is None and seen.synced and seen.max_rank is not None:
            if seen.free_jobs is not None and len(self.work.create) >= seen.free_jobs:
                self.work.queued = True
            elif not _config_problem(self._config(entry["name"])):
                self.work.create.append(self._job(entry, artifact, fresh=False))
        return entry

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
        self.work.calm.add(entry["name"])
        return without(entry, "lastError", "progress") | {"state": "Pending"}

    def _running(self, entry: dict[str, Any], job: JobState) -> dict[str, Any]:
        if not entry.get("digest"):
            entry = without(entry, "nextRetryTime")
        if job.phase == "waiting":
            if job.blocked_by:
                return self._blocked(entry, job.blocked_by)
            if entry.get("state") == "Failed" or keeps_from_starting(reason_of(entry)):
                return entry
            return without(entry, "lastError") | {"state": "Pending"}
        progress = self.seen.progress.get(job.uid)
        if progress is not None:
            entry["progress"] = {
                "downloadedBytes": progress.downloaded_bytes,
                "totalBytes": progress.total_bytes,
                "percentage": progress.percentage,
            }
        return without(entry, "lastError") | {"state": "Downloading"}

    def _blocked(self, entry: dict[str, Any], said: str) -> dict[str, Any]:
        """Return the entry of an adapter whose Job cannot start; the first time for a reason, an event reports it."""
        said = naming_reference(said, self._config(entry["name"]).origin_of)
        before = view.text(entry, "lastError") or ""
        if same_trouble(said, before):
            said = before
        elif reason_of(entry) != said.partition(":")[0]:
            self.work.blocked.append((entry["name"], said))
        return without(entry, "progress") | {"state": "Pending", "lastError": said}

    def _config(self, name: str) -> AdapterConfig:
        return self.seen.configs.get(name, _NO_CONFIG)

    def _due(self, entry: Json, artifact: Json) -> bool:
        """Whether to try now: never tried, time is over, or something changed that may fix it."""
        if not entry.get("attempts"):
            return True
        if reason_of(entry) == HELD:
            return self._released(entry)
        if view.integer(entry, "artifactGeneration") != view.generation_of(artifact):
            return True
        if (view.integer(entry, "stagedForMaxRank") or 0) < (self.seen.max_rank or 0):
            return True
        due = parse_time(entry.get("nextRetryTime"))
        if due is None or due <= self.seen.now:
            return True
        self.work.look_again(due - self.seen.now)
        return False

    def _released(self, entry: Json) -> bool:
        """Whether the old content of a changed adapter is out of every server, or the wait for it is over."""
        until = parse_time(entry.get("nextRetryTime")) or self.seen.now
        since = held_since(entry, self.seen.settings)
        if until <= self.seen.now or not may_list(self.seen.pods_on_disk, entry.get("adapterPath"), since):
            return True
        self.work.look_again(until - self.seen.now)
        return False

    def _may_be_listed(self, entry: Json) -> bool:
        """Whether a server may list what had the path before, though nothing of it is on the disk any more."""
        pods, path = self.seen.pods_on_disk, entry["adapterPath"]
        return any(entry.get("leftDiskAt") or (pod.listed and path in pod.listed) for pod in pods)

    def _queued(self, entry: dict[str, Any]) -> dict[str, Any]:
        """Return the entry of an adapter whose Job waits for its turn; what it said about an earlier try stays."""
        self.work.queued = True
        if entry.get("state") == "Failed" or reason_of(entry) == HELD:
            return entry
        return without(entry, "progress") | {"state": "Pending", "lastError": last_error(Reason.QUEUED, WAITS_FOR_TURN)}

    def _start(self, entry: dict[str, Any], artifact: Json) -> dict[str, Any]:
        seen = self.seen
        if seen.free_jobs is not None and len(self.work.create) >= seen.free_jobs:
            return self._queued(entry)
        held = reason_of(entry) == HELD
        fresh = bool(entry.get("lastRestage")) and bool(entry.get("attempts")) and not held
        self.work.create.append(self._job(entry, artifact, fresh=fresh))
        started = {"artifactGeneration": view.generation_of(artifact), "stagedForMaxRank": seen.max_rank}
        if entry.get("state") == "Failed":  # stays so until the new attempt really runs
            self.work.restless = True
            return entry | started
        if not entry.get("nextRetryTime"):
            self.work.calm.add(entry["name"])
        if not keeps_from_starting(reason_of(entry)):
            entry = without(entry, "lastError")
        return entry | started | {"state": "Pending"}

    def _job(self, entry: dict[str, Any], artifact: Json, *, fresh: bool) -> dict[str, Any]:
        """Return the next staging Job of an adapter; `fresh`: download it again."""
        seen, held = self.seen, reason_of(entry) == HELD
        staging = Staging(
            adapter=artifact,
            path=entry["adapterPath"],
            key=entry["stageKey"],
            attempt=(view.integer(entry, "attempts") or 0) + 1,
            claim=seen.claim,
            base=seen.base,
            max_rank=seen.max_rank or 0,
            fresh=fresh,
            gpu_resource=seen.gpu_resource,
            hold_changed=seen.mode == "dynamic" and not held,
            may_be_listed=seen.mode == "dynamic" and not held and self._may_be_listed(entry),
        )
        config = self._config(view.name_of(artifact))
        return render_stage_job(seen.service, staging, config.spec, seen.pull_secrets, seen.settings)

    def _recorded(self, entry: dict[str, Any], job: JobState) -> dict[str, Any]:
        """Write down how an attempt ended (docs/contract.md, Durable truth); its Job goes in the same pass."""
        could_not_start = view.text(entry, "lastError") if keeps_from_starting(reason_of(entry)) else None
        entry = without(entry, "progress", "nextRetryTime", "lastError", "leftDiskAt") | {"attempts": job.attempt}
        result = job.result
        if result is None and job.phase == "succeeded":  # ended without a word: the next one finds the marker
            return entry | {"state": "Pending"}
        result = result or JobResult(ok=False, reason=Reason.JOB_FAILED, message="the Job failed")
        warnings = [asdict(note) for note in result.warnings]
        facts: dict[str, Any] = {
            "rank": result.rank,
            "baseModelId": result.base_model_id,
            "sizeBytes": result.size_bytes,
            "revision": result.revision,
            "warnings": warnings or None,
        }
        entry = {**without(entry, *facts), **{key: value for key, value in facts.items() if value is not None}}
        if result.ok and result.reason == HELD:
            until = timestamp(self.seen.now + self.seen.settings.unload_grace)
            message = "the source has changed; the new content is served when no replica lists the old one any more"
            held = {"state": "Downloading", "lastError": last_error(HELD, message), "nextRetryTime": until}
            return without(entry, "digest") | held
        if result.ok:
            return self._succeeded(entry, result, job.finished_at or self.seen.now)
        retry = retry_at(job.finished_at or self.seen.now, job.attempt, self.seen.settings, result.retry_after_seconds)
        self.work.look_again(retry - self.seen.now)
        if could_not_start and result.reason == Reason.JOB_DEADLINE_EXCEEDED:  # no pod of it ever ran
            return entry | {"state": "Pending", "lastError": could_not_start, "nextRetryTime": timestamp(retry)}
        return entry | {
            "state": "Failed",
            "lastError": last_error(result.reason, result.message),
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
        fits_ceiling = (view.integer(entry, "rank") or 0) <= (self.seen.max_rank or 0)
        to_check = unchecked(entry) and whole_base_claim(self.seen.base) is not None
        if fits_ceiling and not to_check and "loadedReplicas" not in entry:
            self.work.calm.add(entry["name"])
        staying = self.seen.staying_pods
        if self.seen.mode == "dynamic" or not staying or unchanged:
            return entry
        listed = may_list(staying, entry["adapterPath"])
        return entry | {"lastError": last_error(RESTART_REQUIRED, OLD_CONTENT if listed else NOT_LOADED_YET)}


_NO_CONFIG = AdapterConfig(view.EMPTY)


def _says_whether_it_fits(job: JobState) -> bool:
    """Whether a finished Job compared an adapter with its base, or found other files than were recorded."""
    if job.result is None:
        return False
    said = explain(job.result.reason)
    return job.result.ok or (said is not None and said.group == "adapter")


def _config_problem(config: AdapterConfig) -> str:
    """Return why no Job of an adapter may start: it would run with wrong credentials."""
    if config.unreadable:
        message = f'RuntimeConfig "{config.unreadable}" cannot be read, so its credentials are not known'
        return f"{Reason.RUNTIME_CONFIG_UNREADABLE}: {message}"
    if config.missing:
        message = f'no AIMRuntimeConfig or AIMClusterRuntimeConfig "{config.missing}" exists'
        return f"{Reason.RUNTIME_CONFIG_NOT_FOUND}: {message}"
    return ""


def found_undeclared(job: JobState) -> bool:
    """Whether a staging Job says that the disk does not know its adapter as declared.

    A sync follows from that, once: the Job goes with it, whatever became of its adapter.
    """
    return job.finished and job.result is not None and job.result.reason == Reason.ADAPTER_NOT_DECLARED
