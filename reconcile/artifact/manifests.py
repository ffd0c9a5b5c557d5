"""The objects that an AIMArtifact leads to: two claims, the download Job, the reaper Job. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from decimal import Decimal
from typing import Any

from msgspec.structs import asdict

from api import view
from api.jobs import CACHE_MOUNT, DISK_MOUNT, FetchSpec, ReapSpec
from api.kinds import AIM_ARTIFACT, PERSISTENT_VOLUME_CLAIM
from api.names import (
    ANNOTATION_REAP,
    LABEL_ARTIFACT,
    LABEL_ROLE,
    ROLE_ADAPTER_DISK,
    ROLE_FETCH,
    ROLE_MODEL_CACHE,
    ROLE_REAPER,
    derive_name,
    short_hash,
)
from api.quantity import parse_quantity
from api.view import Json
from reconcile.jobs import ClaimMount, JobPlan, job_credentials, render_job
from reconcile.objects import (
    created_labels,
    label_value,
    owner_reference,
    propagated_labels,
    whole_gibibytes,
)
from reconcile.settings import ReconcileSettings

DEFAULT_ADAPTER_DISK_SIZE = "50Gi"
DEFAULT_HEADROOM_PERCENT = 10


def cache_claim_name(artifact: Json) -> str:
    """Name of the base model's cache claim."""
    return derive_name(view.name_of(artifact), "cache", view.uid_of(artifact))


def disk_claim_name(artifact: Json) -> str:
    """Name of the adapter disk claim: from the artifact's UID, so that a recreated artifact has another disk."""
    return derive_name(view.name_of(artifact), "adapters", view.uid_of(artifact))


def headroom_percent(config: Json) -> int:
    """storage.pvcHeadroomPercent, else the deprecated top-level one, else 10."""
    for value in (view.integer(config, "storage", "pvcHeadroomPercent"), view.integer(config, "pvcHeadroomPercent")):
        if value is not None:
            return max(0, value)
    return DEFAULT_HEADROOM_PERCENT


def cache_storage_class(artifact: Json, config: Json) -> str | None:
    """Class of the cache claim: artifact, RuntimeConfig, deprecated RuntimeConfig field, cluster default (None)."""
    return (
        view.text(artifact, "spec", "storageClassName")
        or view.text(config, "storage", "defaultStorageClassName")
        or view.text(config, "defaultStorageClassName")
    )


def disk_storage_class(artifact: Json, config: Json) -> str | None:
    """Class of the adapter disk, None for the cluster's default (docs/contract.md, Model artifacts)."""
    return (
        view.text(artifact, "spec", "adapterDisk", "storageClassName")
        or view.text(config, "storage", "adapterDiskStorageClassName")
        or view.text(config, "storage", "defaultStorageClassName")
        or view.text(config, "defaultStorageClassName")
    )


def disk_size(artifact: Json, config: Json) -> str:
    """Size of the adapter disk: artifact, RuntimeConfig, 50Gi."""
    for value in (
        view.mapping(artifact, "spec", "adapterDisk").get("size"),
        view.mapping(config, "storage").get("adapterDiskSize"),
    ):
        if parse_quantity(value):
            return str(value)
    return DEFAULT_ADAPTER_DISK_SIZE


def render_cache_claim(artifact: Json, config: Json, size_bytes: Decimal) -> dict[str, Any]:
    """Return the claim for the base model's files: ReadWriteMany, size with headroom, whole Gi."""
    return _claim(
        artifact,
        config,
        name=cache_claim_name(artifact),
        role=ROLE_MODEL_CACHE,
        size=whole_gibibytes(size_bytes, headroom_percent(config)),
        storage_class=cache_storage_class(artifact, config),
    )


def render_disk_claim(artifact: Json, config: Json) -> dict[str, Any]:
    """Return the claim for the adapter disk: ReadWriteMany, owned by the base artifact."""
    return _claim(
        artifact,
        config,
        name=disk_claim_name(artifact),
        role=ROLE_ADAPTER_DISK,
        size=disk_size(artifact, config),
        storage_class=disk_storage_class(artifact, config),
    )


def _claim(
    artifact: Json, config: Json, *, name: str, role: str, size: str, storage_class: str | None
) -> dict[str, Any]:
    spec: dict[str, Any] = {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": size}}}
    if storage_class:
        spec["storageClassName"] = storage_class
    return {
        "apiVersion": PERSISTENT_VOLUME_CLAIM.api_version,
        "kind": PERSISTENT_VOLUME_CLAIM.kind,
        "metadata": {
            "name": name,
            "namespace": view.namespace_of(artifact),
            "labels": created_labels(
                {LABEL_ROLE: role, LABEL_ARTIFACT: label_value(view.name_of(artifact))},
                propagated_labels(artifact, config),
            ),
            "ownerReferences": [owner_reference(AIM_ARTIFACT, artifact)],
        },
        "spec": spec,
    }


def download_image(artifact: Json, config: Json) -> str | None:
    """Return the image that a tenant selects for the download Job, None for the built-in one."""
    return view.text(artifact, "spec", "modelDownloadImage") or view.text(config, "artifact", "modelDownloadImage")


def render_fetch_job(
    artifact: Json,
    config: Json,
    env: Sequence[Any],
    *,
    key: str,
    attempt: int,
    claim: str | None,
    settings: ReconcileSettings,
) -> dict[str, Any]:
    """Return the Job that downloads a base model into its claim; without a claim it only measures the source."""
    credentials = job_credentials(config, view.source_uri(artifact), env, view.items(artifact, "spec", "env"))
    # unset: files in subfolders are left out by the command itself (docs/contract.md, Model artifacts)
    filters = view.mapping(artifact, "spec", "downloadFilter") or view.mapping(config, "storage", "downloadFilter")
    spec = FetchSpec(
        **asdict(credentials.options),
        cache=CACHE_MOUNT,
        namespace=view.namespace_of(artifact),
        artifact=view.name_of(artifact),
        artifact_uid=view.uid_of(artifact),
        source_uri=view.source_uri(artifact),
        model_id=view.cache_directory(artifact),
        include=list(view.strings(filters, "include")),
        exclude=list(view.strings(filters, "exclude")),
        progress_port=settings.progress_port,
        measure=claim is None,
        allow_link_local=settings.allow_link_local,
    )
    plan = JobPlan(
        name=derive_name(view.name_of(artifact), "fetch" if claim else "measure", key, str(attempt)),
        role=ROLE_FETCH,
        owner_kind=AIM_ARTIFACT,
        owner=artifact,
        command="fetch",
        args=spec.to_args(),
        key=key,
        attempt=attempt,
        deadline=settings.fetch_deadline,
        labels={LABEL_ARTIFACT: label_value(view.name_of(artifact))},
        propagated=propagated_labels(artifact, config),
        claims=(ClaimMount("cache", claim, CACHE_MOUNT),) if claim else (),
        credentials=credentials,
        image=download_image(artifact, config),
        pull_secrets=view.items(artifact, "spec", "imagePullSecrets") or view.items(config, "imagePullSecrets"),
        progress=True,
    )
    return render_job(plan, settings)


def render_reaper_job(
    artifact: Json,
    claim: str,
    live: Sequence[str],
    listed_at: datetime,
    *,
    dry_run: bool,
    settings: ReconcileSettings,
    swept: str = "",
) -> dict[str, Any]:
    """Return the Job that sweeps the artifact's adapter disk.

    Args: `live`: UIDs of all AIMServices of the namespace, read completely at or after `listed_at`; `swept`: the
    decision's `sweep_world`.
    """
    spec = ReapSpec(
        disk=DISK_MOUNT,
        listed_at=listed_at.timestamp(),
        live=sorted(live),
        scratch_guard_seconds=int(settings.scratch_guard.total_seconds()),
        subtree_skew_seconds=int(settings.reaper_subtree_skew.total_seconds()),
        dry_run=dry_run,
    )
    key = reap_key(dry_run=dry_run, world=swept, request=view.annotation(artifact, ANNOTATION_REAP))
    plan = JobPlan(
        name=derive_name(view.name_of(artifact), "reaper", view.uid_of(artifact), key, str(listed_at.timestamp())),
        role=ROLE_REAPER,
        owner_kind=AIM_ARTIFACT,
        owner=artifact,
        command="reap",
        args=spec.to_args(),
        key=key,
        deadline=settings.staging_deadline,
        labels={LABEL_ARTIFACT: label_value(view.name_of(artifact))},
        claims=(ClaimMount("adapter-disk", claim, DISK_MOUNT),),
        pull_secrets=view.items(artifact, "spec", "imagePullSecrets"),
    )
    return render_job(plan, settings)


def reap_key(*, dry_run: bool, world: str, request: str | None) -> str:
    """Return what a reaper Job says about itself: its mode, the state it was decided in, the request it answers."""
    return f"{'dry-run' if dry_run else 'sweep'}:{world or '-'}:{short_hash(request) if request else '-'}"
