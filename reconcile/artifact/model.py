"""What a base model needs: a cache claim, a download, an adapter disk that is swept. Pure."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from api import view
from api.kinds import AIM_PROFILE_CACHE, AIM_TEMPLATE_CACHE, PERSISTENT_VOLUME_CLAIM
from api.reasons import Reason, spoken
from api.view import Json
from reconcile.artifact.download import Download, decide_download, download_progress, model_size
from reconcile.artifact.facts import ArtifactFacts
from reconcile.artifact.manifests import headroom_percent, render_cache_claim, render_disk_claim
from reconcile.artifact.status import config_valid, display_size, render_status, storage_conditions
from reconcile.artifact.sweep import decide_sweep
from reconcile.conditions import Condition
from reconcile.decision import Decision, Draft, EventNote
from reconcile.jobs import WAITS_FOR_TURN, naming_reference, same_trouble


def decide_model(seen: ArtifactFacts) -> Decision:
    """Return claims, Jobs, sweep and status of a base model."""
    draft = Draft()
    valid = config_valid(seen)
    size = model_size(seen)
    if valid.true and seen.config.readable:
        if size is not None and seen.claim is None:
            claim = render_cache_claim(seen.artifact, seen.config.spec, size)
            draft.create.append((PERSISTENT_VOLUME_CLAIM, claim))
        if seen.disk_wanted and seen.disk_claim is None:
            draft.create.append((PERSISTENT_VOLUME_CLAIM, render_disk_claim(seen.artifact, seen.config.spec)))
    usable = valid.true and not view.terminating(seen.claim)
    download = decide_download(seen, draft, allowed=usable)
    sweep = decide_sweep(seen, draft)
    ready = _ready(seen, valid, download)
    if ready.reason == Reason.DOWNLOAD_BLOCKED and _is_news(seen, ready):
        draft.events.append(EventNote("Warning", spoken(ready.message.partition(":")[0]), ready.message))
    fields = _fields(seen, download) | sweep.status
    for carried in ("lastUsed", "lastRestage"):
        fields[carried] = view.dig(seen.artifact, "status", carried)
    conditions = [valid, ready, *storage_conditions(seen, draft)]
    return draft.decision(
        render_status(seen, _phase(ready, download), conditions, fields), sweep=sweep.sweep, sweep_world=sweep.world
    )


def _fields(seen: ArtifactFacts, download: Download) -> dict[str, Any]:
    size = model_size(seen) or (Decimal(download.measured) if download.measured else None)
    return {
        "mode": _mode(seen.artifact),
        "persistentVolumeClaim": view.name_of(seen.claim) or None,
        "adapterPersistentVolumeClaim": view.name_of(seen.disk_claim) or None,
        "download": download.recorded,
        "progress": download_progress(seen, download),
        "discoveredSizeBytes": download.measured or view.integer(seen.artifact, "status", "discoveredSizeBytes"),
        "displaySize": display_size(size),
        "allocatedSize": view.text(seen.claim, "spec", "resources", "requests", "storage"),
        "headroomPercent": headroom_percent(seen.config.spec),
    }


_CACHES = frozenset({AIM_PROFILE_CACHE.kind, AIM_TEMPLATE_CACHE.kind})


def _mode(artifact: Json) -> str:
    """Dedicated: owned by a cache, with which it dies; Shared: anybody's."""
    owned = any(
        view.dig(reference, "kind") in _CACHES for reference in view.items(artifact, "metadata", "ownerReferences")
    )
    return "Dedicated" if owned else "Shared"


def _ready(seen: ArtifactFacts, valid: Condition, download: Download) -> Condition:
    recorded = download.recorded
    if not valid.true:
        return Condition("Ready", "False", Reason.CONFIG_INVALID, valid.message)
    if view.terminating(seen.claim):
        message = f'claim "{view.name_of(seen.claim)}" is being deleted; the model is downloaded again once it is gone'
        return Condition("Ready", "False", Reason.CLAIM_TERMINATING, message)
    if download.complete:
        return Condition("Ready", "True", Reason.MODEL_CACHED)
    if download.refused_image:
        allowed = ", ".join(seen.settings.allowed_download_images)
        message = f'image "{download.refused_image}" is not allowed for download Jobs; allowed prefixes: {allowed}'
        return Condition("Ready", "False", Reason.DOWNLOAD_IMAGE_NOT_ALLOWED, message)
    running = download.running
    if running is not None and running.blocked_by:
        return Condition("Ready", "False", Reason.DOWNLOAD_BLOCKED, _blocked(seen, running.blocked_by))
    if reason := view.text(recorded, "reason"):
        words = f"{view.text(recorded, 'message') or ''} (retried automatically)".strip()
        return Condition("Ready", "False", spoken(reason), words)
    if not seen.config.readable:
        message = f'RuntimeConfig "{seen.config.name}" cannot be read: storage and credentials are not known'
        return Condition("Ready", "False", Reason.RUNTIME_CONFIG_UNREADABLE, message)
    if download.queued:
        return Condition("Ready", "False", Reason.QUEUED, WAITS_FOR_TURN)
    if seen.claim is None and model_size(seen) is None:
        return Condition("Ready", "False", Reason.MEASURING_SOURCE, "finding out the size of the source")
    if running is not None and running.phase == "running":
        return Condition("Ready", "False", Reason.DOWNLOADING, "the base model is being downloaded")
    return Condition("Ready", "False", Reason.PENDING, "waiting for the claim and the download to start")


def _is_news(seen: ArtifactFacts, ready: Condition) -> bool:
    """Whether the status did not report yet that the download cannot start for this reason."""
    before = view.condition(seen.artifact, "Ready")
    said = (view.text(before, "message") or "").partition(":")[0]
    return before.get("reason") != ready.reason or said != ready.message.partition(":")[0]


def _blocked(seen: ArtifactFacts, said: str) -> str:
    """Return why the download cannot start; where only the kubelet's wording changes, the message stays."""
    before = view.text(view.condition(seen.artifact, "Ready"), "message") or ""
    if same_trouble(said, before):
        return before
    return naming_reference(said, lambda block: seen.config.value("artifact", block)[1])


def _phase(ready: Condition, download: Download) -> str:
    if ready.true:
        return "Ready"
    if ready.reason == Reason.CONFIG_INVALID or (download.recorded.get("reason") and not download.complete):
        return "Failed"
    return "Progressing" if download.running is not None and download.running.phase == "running" else "Pending"
