"""What an AIMArtifact needs and how it stands. Pure; contract, sections 1.3, 4.1 and 6.4."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

from api.errors import FieldError
from api.jobs import Progress
from api.kinds import AIM_ARTIFACT, JOB, PERSISTENT_VOLUME_CLAIM
from api.names import ANNOTATION_RETRY_STAGING, fetch_key
from api.view import (
    Json,
    adapter_path,
    annotation,
    compatible_with,
    condition,
    dig,
    generation_of,
    integer,
    is_adapter,
    mapping,
    model_id,
    name_of,
    namespace_of,
    parent_artifact,
    source_uri,
    text,
    uid_of,
)
from reconcile.artifact.manifests import (
    cache_storage_class,
    disk_storage_class,
    headroom_percent,
    render_cache_claim,
    render_disk_claim,
    render_fetch_job,
)
from reconcile.conditions import Condition, render_conditions
from reconcile.decision import Decision, Delete, EventNote, sooner
from reconcile.jobs import JobState, retry_at
from reconcile.objects import owned_by, owner_reference, parse_quantity, parse_timestamp, timestamp, without_nulls
from reconcile.settings import ReconcileSettings
from rules.resolve import MergedRuntimeConfig


@dataclass(frozen=True, slots=True)
class Observed:
    """All that a pass over one artifact looks at.

    `claim_problem` and `disk_problem`: what a provisioner said about a claim, empty when nothing.
    """

    artifact: Json
    now: datetime
    settings: ReconcileSettings
    config: MergedRuntimeConfig
    errors: tuple[FieldError, ...] = ()
    cache_env: tuple[Any, ...] = ()  # env of the caches that hold this artifact
    claim: Json | None = None
    disk_claim: Json | None = None
    disk_wanted: bool = False
    fetches: tuple[JobState, ...] = ()  # download and measuring Jobs
    progress: Progress | None = None
    parent: Json | None = None  # of an exact adapter
    claim_problem: str = ""
    disk_problem: str = ""


def decide(seen: Observed) -> Decision:
    """Return what this artifact needs: an adapter or a model."""
    return _decide_adapter(seen) if is_adapter(seen.artifact) else _Model(seen).decide()


def _status(seen: Observed, phase: str, conditions: list[Condition], **fields: Any) -> dict[str, Any]:
    generation = generation_of(seen.artifact)
    rendered = render_conditions(seen.artifact, conditions, generation=generation, now=seen.now)
    status: dict[str, Any] = without_nulls(
        {"status": phase, "observedGeneration": generation, "conditions": rendered, **fields}
    )
    return status


def _config_valid(seen: Observed) -> Condition:
    if seen.errors:
        first = seen.errors[0]
        message = "; ".join(str(error) for error in seen.errors)
        return Condition("ConfigValid", "False", first.reason, message)
    named = text(seen.artifact, "spec", "runtimeConfigName")
    if named and not seen.config.found and seen.config.readable:
        return Condition(
            "ConfigValid", "False", "ReferenceNotFound", f'no AIMRuntimeConfig or AIMClusterRuntimeConfig "{named}"'
        )
    return Condition("ConfigValid", "True", "ConfigValid")


# -- adapters -------------------------------------------------------------------------------------------------------


def _decide_adapter(seen: Observed) -> Decision:
    valid = _config_valid(seen)
    fields: dict[str, Any] = {"adapterPath": adapter_path(seen.artifact)}
    parent_name = parent_artifact(seen.artifact)
    if parent_name is None:
        fits = ", ".join(compatible_with(seen.artifact))
        ready = _adapter_ready(valid, "True", "AdapterValidated", "")
        return Decision(
            status=_status(
                seen, _phase(ready), [valid, ready], **fields, compatibility=f"fits {fits}" if fits else None
            )
        )
    fields["compatibility"] = f"child of {parent_name}"
    apply: tuple[tuple[Any, Any], ...] = ()
    if seen.parent is None:
        ready = _adapter_ready(
            valid, "False", "ParentArtifactNotFound", f'parent artifact "{parent_name}" does not exist yet'
        )
    elif is_adapter(seen.parent):
        ready = _adapter_ready(
            valid, "False", "ParentArtifactNotModel", f'parent artifact "{parent_name}" is itself an adapter'
        )
    else:
        fields["resolvedParent"] = _reference(seen.parent)
        fields["parentModelId"] = model_id(seen.parent)
        apply = (
            () if owned_by(seen.artifact, seen.parent) else ((AIM_ARTIFACT, _ownership(seen.artifact, seen.parent)),)
        )
        if text(seen.parent, "status", "adapterPersistentVolumeClaim"):
            ready = _adapter_ready(valid, "True", "AdapterValidated", "")
        else:
            ready = _adapter_ready(
                valid, "False", "ParentLacksAdapterDisk", f'parent artifact "{parent_name}" has no adapter disk yet'
            )
    return Decision(apply=apply, status=_status(seen, _phase(ready), [valid, ready], **fields))


_FAILED_REASONS = frozenset({"ParentArtifactNotModel", "ConfigInvalid"})


def _phase(ready: Condition) -> str:
    if ready.true:
        return "Ready"
    return "Failed" if ready.reason in _FAILED_REASONS else "Pending"


def _adapter_ready(valid: Condition, status: Any, reason: str, message: str) -> Condition:
    if not valid.true:
        return Condition("Ready", "False", "ConfigInvalid", valid.message)
    return Condition("Ready", status, reason, message)


def _reference(obj: Json) -> dict[str, str]:
    return {
        "kind": AIM_ARTIFACT.kind,
        "name": name_of(obj),
        "namespace": namespace_of(obj),
        "scope": "Namespace",
        "uid": uid_of(obj),
    }


def _ownership(artifact: Json, parent: Json) -> dict[str, Any]:
    """Return the partial object that makes the parent own an exact adapter: it dies with its parent."""
    return {
        "apiVersion": AIM_ARTIFACT.api_version,
        "kind": AIM_ARTIFACT.kind,
        "metadata": {
            "name": name_of(artifact),
            "namespace": namespace_of(artifact),
            "ownerReferences": [owner_reference(AIM_ARTIFACT, parent, controller=False)],
        },
    }


# -- base models ----------------------------------------------------------------------------------------------------


@dataclass
class _Model:
    """One pass over a base model; the fields collect what the steps find out."""

    seen: Observed
    create: list[tuple[Any, Any]] = field(default_factory=list)
    delete: list[Delete] = field(default_factory=list)
    events: list[EventNote] = field(default_factory=list)
    recheck: timedelta | None = None

    def decide(self) -> Decision:
        """Return claims, Jobs and status of a base model."""
        seen = self.seen
        valid = _config_valid(seen)
        download = dict(mapping(seen.artifact, "status", "download"))
        size = self._size(download)
        if valid.true and size is not None and seen.claim is None:
            self.create.append((PERSISTENT_VOLUME_CLAIM, render_cache_claim(seen.artifact, seen.config.spec, size)))
        if valid.true and seen.disk_wanted and seen.disk_claim is None:
            self.create.append((PERSISTENT_VOLUME_CLAIM, render_disk_claim(seen.artifact, seen.config.spec)))
        download = self._download(download, valid, size)
        ready = self._ready(valid, download, size)
        storage = self._storage()
        status = _status(
            seen,
            self._phase(ready, download),
            [valid, ready, *storage],
            mode=text(seen.artifact, "status", "mode") or "Shared",
            persistentVolumeClaim=name_of(seen.claim) or None,
            adapterPersistentVolumeClaim=name_of(seen.disk_claim) or None,
            download=download or None,
            progress=self._progress(download),
            discoveredSizeBytes=download.get("sizeBytes") or integer(seen.artifact, "status", "discoveredSizeBytes"),
            displaySize=_display_size(size),
            allocatedSize=text(seen.claim, "spec", "resources", "requests", "storage"),
            headroomPercent=headroom_percent(seen.config.spec),
        )
        for carried in ("lastUsed", "lastReapTime", "lastReap", "reapable"):
            if (value := dig(seen.artifact, "status", carried)) is not None:
                status[carried] = value
        return Decision(
            create=tuple(self.create),
            status=status,
            delete=tuple(self.delete),
            events=tuple(self.events),
            recheck_after=self.recheck,
        )

    def _size(self, download: dict[str, Any]) -> Decimal | None:
        """Bytes of the model: declared, else measured at the source."""
        declared = parse_quantity(dig(self.seen.artifact, "spec", "size"))
        if declared:
            return declared
        measured = integer(self.seen.artifact, "status", "discoveredSizeBytes") or download.get("sizeBytes")
        return Decimal(measured) if measured else None

    def _key(self) -> str:
        return fetch_key(uid_of(self.seen.artifact), source_uri(self.seen.artifact), uid_of(self.seen.claim))

    def _download(self, recorded: dict[str, Any], valid: Condition, size: Decimal | None) -> dict[str, Any]:
        """Return the new bookkeeping of the download; creates and deletes Jobs on the way."""
        key = self._key()
        if recorded.get("key") != key:
            recorded = {"key": key, "attempt": 0, "protocol": source_uri(self.seen.artifact).partition(":")[0]}
            if (retried := text(self.seen.artifact, "status", "download", "lastRetry")) is not None:
                recorded["lastRetry"] = retried
        for job in self.seen.fetches:
            if job.terminating:
                continue
            if job.key != key or job.attempt <= recorded.get("attempt", 0):
                self._delete(job)
            elif job.finished:
                recorded = self._record(recorded, job)
                self._delete(job)
            else:
                return recorded
        if recorded.get("completed") or not valid.true or (self.seen.claim is None and size is not None):
            return recorded
        if self._due(recorded):
            self._start(recorded, key)
        return self._handled(recorded)

    def _delete(self, job: JobState) -> None:
        self.delete.append(Delete(JOB, namespace_of(self.seen.artifact), job.name, job.uid))

    def _record(self, recorded: dict[str, Any], job: JobState) -> dict[str, Any]:
        result = job.result
        new = {key: value for key, value in recorded.items() if key not in ("reason", "message", "nextRetryTime")}
        new["attempt"] = job.attempt
        if job.phase == "succeeded":
            if result is not None and result.size_bytes:
                new["sizeBytes"] = result.size_bytes
            if self.seen.claim is not None and result is not None:
                new |= {"completed": True, "reason": result.reason}
                self.events.append(EventNote("Normal", "ModelFetched", "the base model is complete in its cache"))
            return new  # a success without a word is tried again: the command finds its own marker and ends at once
        reason, message = (result.reason, result.message) if result else ("JobFailed", "the Job failed")
        failed_at = job.finished_at or self.seen.now
        after = result.retry_after_seconds if result else None
        new |= {
            "reason": reason,
            "message": message,
            "nextRetryTime": timestamp(retry_at(failed_at, job.attempt, self.seen.settings, after)),
        }
        self.events.append(EventNote("Warning", reason, message))
        return new

    def _due(self, recorded: dict[str, Any]) -> bool:
        asked = annotation(self.seen.artifact, ANNOTATION_RETRY_STAGING)
        if asked and asked != recorded.get("lastRetry") and recorded.get("nextRetryTime"):
            return True
        due = parse_timestamp(recorded.get("nextRetryTime"))
        if due is None or due <= self.seen.now:
            return True
        self.recheck = sooner(self.recheck, due - self.seen.now)
        return False

    def _handled(self, recorded: dict[str, Any]) -> dict[str, Any]:
        asked = annotation(self.seen.artifact, ANNOTATION_RETRY_STAGING)
        return recorded | {"lastRetry": asked} if asked else recorded

    def _start(self, recorded: dict[str, Any], key: str) -> None:
        claim = name_of(self.seen.claim) or None
        job = render_fetch_job(
            self.seen.artifact,
            self.seen.config.spec,
            self.seen.cache_env,
            key=key,
            attempt=recorded.get("attempt", 0) + 1,
            claim=claim,
            settings=self.seen.settings,
        )
        self.create.append((JOB, job))

    def _running(self) -> JobState | None:
        key = self._key()
        return next((job for job in self.seen.fetches if job.key == key and not job.finished), None)

    def _ready(self, valid: Condition, download: dict[str, Any], size: Decimal | None) -> Condition:
        if not valid.true:
            return Condition("Ready", "False", "ConfigInvalid", valid.message)
        if download.get("completed"):
            return Condition("Ready", "True", "ModelCached")
        if reason := download.get("reason"):
            return Condition("Ready", "False", reason, f"{download.get('message', '')} (tried again by itself)".strip())
        if size is None:
            return Condition("Ready", "False", "MeasuringSource", "finding out the size of the source")
        running = self._running()
        if running is not None and running.blocked_by:
            return Condition("Ready", "False", "DownloadBlocked", running.blocked_by)
        if running is not None and running.phase == "running":
            return Condition("Ready", "False", "Downloading", "the base model is being downloaded")
        return Condition("Ready", "False", "Pending", "waiting for the claim and the download to start")

    def _phase(self, ready: Condition, download: dict[str, Any]) -> str:
        if ready.true:
            return "Ready"
        if ready.reason == "ConfigInvalid" or download.get("reason"):
            return "Failed"
        running = self._running()
        return "Progressing" if running is not None and running.phase == "running" else "Pending"

    def _progress(self, download: dict[str, Any]) -> dict[str, Any] | None:
        if download.get("completed"):
            total = download.get("sizeBytes") or 0
            return _render_progress(Progress(downloadedBytes=total, totalBytes=total, percentage=100))
        if self._running() is None:
            return None
        if self.seen.progress is not None:
            return _render_progress(self.seen.progress)
        kept = mapping(self.seen.artifact, "status", "progress")
        return dict(kept) if kept and kept.get("percentage") != 100 else None

    def _storage(self) -> list[Condition]:
        found = []
        spec = self.seen.config.spec
        for kind, claim, problem, storage_class in (
            (
                "CacheStorageReady",
                self.seen.claim,
                self.seen.claim_problem,
                cache_storage_class(self.seen.artifact, spec),
            ),
            (
                "AdapterDiskReady",
                self.seen.disk_claim,
                self.seen.disk_problem,
                disk_storage_class(self.seen.artifact, spec),
            ),
        ):
            if claim is not None:
                found.append(self._claim_condition(kind, claim, problem, storage_class))
        return found

    def _claim_condition(self, kind: str, claim: Json, problem: str, storage_class: str | None) -> Condition:
        if text(claim, "status", "phase") == "Bound":
            return Condition(kind, "True", "ClaimBound")
        shown = text(claim, "spec", "storageClassName") or storage_class or "the cluster's default"
        where = f'claim "{name_of(claim)}" of storage class "{shown}"'
        if problem:
            return Condition(
                kind,
                "False",
                "ClaimProvisioningFailed",
                f"{where} is not provisioned: {problem} (the class must support ReadWriteMany)",
            )
        created = parse_timestamp(dig(claim, "metadata", "creationTimestamp")) or self.seen.now
        bound_by = created + self.seen.settings.claim_bind_timeout
        if self.seen.now < bound_by:
            self.recheck = sooner(self.recheck, bound_by - self.seen.now)
            return Condition(kind, "False", "ClaimPending", f"{where} is not bound yet")
        return Condition(
            kind,
            "False",
            "ClaimUnbound",
            f"{where} is still not bound; the class must support ReadWriteMany: kubectl describe pvc {name_of(claim)}",
        )


def _render_progress(progress: Progress) -> dict[str, Any]:
    return {
        "downloadedBytes": progress.downloaded_bytes,
        "totalBytes": progress.total_bytes,
        "percentage": progress.percentage,
        "displayPercentage": f"{progress.percentage} %",
    }


_UNITS = ((2**40, "TiB"), (2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"))


def _display_size(size: Decimal | None) -> str | None:
    if size is None:
        return None
    for factor, unit in _UNITS:
        if size >= factor:
            return f"{float(size) / factor:.1f} {unit}"
    return f"{int(size)} B"


def phase_of(artifact: Json | None) -> str:
    """status.status of an artifact, `Pending` when it has none."""
    return text(artifact, "status", "status") or "Pending"


def is_ready(artifact: Json | None) -> bool:
    """Whether a base model may be served: its Ready condition holds for its present spec and cache."""
    return condition(artifact, "Ready").get("status") == "True" and phase_of(artifact) == "Ready"
