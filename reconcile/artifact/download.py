"""The download of a base model: its bookkeeping in status.download, its Jobs, its retries. Pure.

One Job at a time; how it ended is written down under a key (artifact, source, claim) and the Job goes. Without a claim
(the size is not known yet) the Job only measures the source.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from api import view
from api.kinds import JOB
from api.names import ANNOTATION_RETRY_STAGING, fetch_key
from api.quantity import parse_quantity
from api.reasons import Reason, spoken
from api.words import parse_time
from reconcile.artifact.facts import ArtifactFacts
from reconcile.artifact.manifests import download_image, render_fetch_job
from reconcile.artifact.status import render_progress
from reconcile.decision import Draft, EventNote
from reconcile.jobs import JobState, retry_at
from reconcile.objects import timestamp
from rules.images import is_allowed

Bookkeeping = dict[str, Any]  # status.download


@dataclass(frozen=True, slots=True)
class Download:
    """The state of the download: what to record, the Job that runs, whether it waits for its turn.

    `refused_image`: the image that its Job may not run, empty for any other.
    """

    recorded: Bookkeeping
    running: JobState | None
    queued: bool = False
    refused_image: str = ""

    @property
    def complete(self) -> bool:
        """Whether every byte is in the claim, checked."""
        return bool(self.recorded.get("completed"))

    @property
    def measured(self) -> int | None:
        """Bytes that the source has, None while it was not asked."""
        size = self.recorded.get("sizeBytes")
        return size if isinstance(size, int) and size > 0 else None


def model_size(seen: ArtifactFacts) -> Decimal | None:
    """Bytes of the model: declared, else measured at the source; None while unknown."""
    if declared := parse_quantity(view.dig(seen.artifact, "spec", "size")):
        return declared
    measured = view.integer(seen.artifact, "status", "discoveredSizeBytes")
    return Decimal(measured) if measured else None


def decide_download(seen: ArtifactFacts, draft: Draft, *, allowed: bool) -> Download:
    """Return the state of the download; creates the next Job and deletes recorded ones."""
    key = fetch_key(view.uid_of(seen.artifact), view.source_uri(seen.artifact), view.uid_of(seen.claim))
    recorded = _bookkeeping(seen, key)
    running: JobState | None = None
    for job in seen.fetches:
        if job.terminating:
            continue
        if job.key != key or job.attempt <= (view.integer(recorded, "attempt") or 0):
            _drop(seen, draft, job)
        elif job.finished:
            recorded = _record(seen, draft, recorded, job)
            _drop(seen, draft, job)
        else:
            running = job
    unmeasured = seen.claim is None and model_size(seen) is None and not recorded.get("sizeBytes")
    wanted = not recorded.get("completed") and (seen.claim is not None or unmeasured)
    image = download_image(seen.artifact, seen.config.spec)
    if image is not None and not is_allowed(image, seen.settings.allowed_download_images):
        if running is not None:
            _drop(seen, draft, running)
        return Download(recorded, None, refused_image=image)
    queued = False
    if running is None and wanted and allowed and seen.config.readable and _is_due(seen, draft, recorded):
        queued = draft.queued = seen.free_jobs is not None and seen.free_jobs < 1
        if not queued:
            _start(seen, draft, recorded, key)
    asked = view.annotation(seen.artifact, ANNOTATION_RETRY_STAGING)
    if asked and allowed:
        recorded = recorded | {"lastRetry": asked}
    return Download(recorded, running, queued)


def _bookkeeping(seen: ArtifactFacts, key: str) -> Bookkeeping:
    """Return what is written down under this key; another key starts again (but for the handled annotation)."""
    recorded = dict(view.mapping(seen.artifact, "status", "download"))
    if recorded.get("key") == key:
        return recorded
    fresh: Bookkeeping = {"key": key, "attempt": 0, "protocol": view.source_uri(seen.artifact).partition(":")[0]}
    if retried := view.text(recorded, "lastRetry"):
        fresh["lastRetry"] = retried
    return fresh


def _drop(seen: ArtifactFacts, draft: Draft, job: JobState) -> None:
    draft.drop(JOB, view.namespace_of(seen.artifact), job.name, job.uid)


def _record(seen: ArtifactFacts, draft: Draft, recorded: Bookkeeping, job: JobState) -> Bookkeeping:
    """Write down how an attempt ended."""
    result = job.result
    new = {key: value for key, value in recorded.items() if key not in ("reason", "message", "nextRetryTime")}
    new["attempt"] = job.attempt
    if job.phase == "succeeded":
        if result is None:
            return new  # a success without a word is tried again: the command finds its own marker and ends at once
        if result.size_bytes:
            new["sizeBytes"] = result.size_bytes
        if seen.claim is not None:
            new |= {"completed": True, "reason": result.reason}
            draft.events.append(EventNote("Normal", Reason.MODEL_FETCHED, "the base model is complete in its cache"))
        return new
    reason, message = (result.reason, result.message) if result else (Reason.JOB_FAILED, "the Job failed")
    after = result.retry_after_seconds if result else None
    retry = retry_at(job.finished_at or seen.now, job.attempt, seen.settings, after)
    draft.events.append(EventNote("Warning", spoken(reason), message))
    return new | {"reason": str(reason), "message": message, "nextRetryTime": timestamp(retry)}


def _is_due(seen: ArtifactFacts, draft: Draft, recorded: Bookkeeping) -> bool:
    asked = view.annotation(seen.artifact, ANNOTATION_RETRY_STAGING)
    if asked and asked != recorded.get("lastRetry"):
        return True
    due = parse_time(recorded.get("nextRetryTime"))
    if due is None or due <= seen.now:
        return True
    draft.look_again(due - seen.now)
    return False


def _start(seen: ArtifactFacts, draft: Draft, recorded: Bookkeeping, key: str) -> None:
    job = render_fetch_job(
        seen.artifact,
        seen.config.spec,
        seen.cache_env,
        key=key,
        attempt=(view.integer(recorded, "attempt") or 0) + 1,
        claim=view.name_of(seen.claim) or None,
        settings=seen.settings,
    )
    draft.create.append((JOB, job))


def download_progress(seen: ArtifactFacts, download: Download) -> dict[str, Any] | None:
    """Return status.progress: of the running Job as far as it was asked, whole once complete."""
    if download.complete:
        total = download.measured or 0
        return {"downloadedBytes": total, "totalBytes": total, "percentage": 100, "displayPercentage": "100 %"}
    if download.running is None:
        return None
    if seen.progress is not None:
        return render_progress(seen.progress)
    kept = view.mapping(seen.artifact, "status", "progress")
    return dict(kept) if kept and kept.get("percentage") != 100 else None
