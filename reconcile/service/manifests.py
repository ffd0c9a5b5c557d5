"""The caches, overlay profiles and Jobs that an AIMService leads to; its server is in `inference_service`. Pure.

Source: docs/contract.md, Caches, Adapter disk, Subtree sync, Staging.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from msgspec.structs import asdict

from api import view
from api.jobs import BASE_MOUNT, DISK_MOUNT, StageSpec, SyncSpec
from api.kinds import AIM_PROFILE, AIM_PROFILE_CACHE, AIM_SERVICE, AIM_TEMPLATE_CACHE, Kind
from api.names import (
    LABEL_ARTIFACT,
    LABEL_SERVICE,
    ROLE_STAGING,
    ROLE_SUBTREE_SYNC,
    derive_name,
    short_hash,
)
from api.view import Json
from reconcile.jobs import ClaimMount, JobCredentials, JobPlan, job_credentials, render_job
from reconcile.objects import created_labels, label_value, owner_reference, propagated_labels, without_nulls
from reconcile.pods import ADAPTER_VOLUME
from reconcile.service.live import CACHE_VOLUME
from reconcile.settings import ReconcileSettings

# -- caches ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CacheOrigin:
    """What a cache is made for.

    `name` and `scope` of the profile or template (of the model, or of the service itself, where there is no template).
    `sources` are written into the cache where no profile or template says them.
    """

    kind: Kind  # of the cache
    name: str
    scope: str
    sources: Sequence[Any] = ()


def cache_kind(pipeline: str) -> Kind:
    """Kind of the cache of a pipeline."""
    return AIM_PROFILE_CACHE if pipeline == "profile" else AIM_TEMPLATE_CACHE


def cache_name(service: Json, origin: CacheOrigin) -> str:
    """Name of the cache that we make: one for each origin (with its written sources), a dedicated one per service."""
    uris = tuple(uri for source in origin.sources if (uri := view.text(source, "sourceUri")))
    dedicated = (view.uid_of(service),) if view.caching_mode(service) == "Dedicated" else ()
    return derive_name(origin.name, origin.scope.lower(), "cache", *uris, *dedicated, limit=50)


def render_cache(service: Json, origin: CacheOrigin, *, requires_disk: bool) -> dict[str, Any]:
    """Return a new cache of a profile (AIMProfileCache) or a template (AIMTemplateCache)."""
    kind, dedicated = origin.kind, view.caching_mode(service) == "Dedicated"
    spec: dict[str, Any] = {
        "mode": view.caching_mode(service),
        "runtimeConfigName": view.text(service, "spec", "runtimeConfigName"),
        "requiresAdapterDisk": True if requires_disk else None,
        "storageClassName": view.text(service, "spec", "storage", "defaultStorageClassName"),
        "env": list(view.items(service, "spec", "caching", "env")) or None,
    }
    if kind == AIM_PROFILE_CACHE:
        spec |= {"profileName": origin.name, "profileScope": origin.scope}
    else:
        spec |= {
            "templateName": origin.name,
            "templateScope": origin.scope,
            "modelSources": list(origin.sources) or None,
            "imagePullSecrets": list(view.items(service, "spec", "imagePullSecrets")) or None,
        }
    metadata: dict[str, Any] = {
        "name": cache_name(service, origin),
        "namespace": view.namespace_of(service),
        "labels": created_labels({}),
    }
    if dedicated:
        metadata["ownerReferences"] = [owner_reference(AIM_SERVICE, service)]
    return {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata, "spec": without_nulls(spec)}


def render_cache_with_disk(kind: Kind, cache: Json) -> dict[str, Any]:
    """Return an own cache as it is, asking for a disk from now on (never taken back: others may need it)."""
    metadata = {"name": view.name_of(cache), "namespace": view.namespace_of(cache), "labels": created_labels({})}
    if owners := view.items(cache, "metadata", "ownerReferences"):
        metadata["ownerReferences"] = list(owners)
    spec = dict(view.mapping(cache, "spec")) | {"requiresAdapterDisk": True}
    return {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata, "spec": spec}


_CACHED_FIELDS = ("aimId", "modelId", "image", "modelSources", "features", "acceleratorModel")


def render_overlay(service: Json, spec: Json) -> dict[str, Any]:
    """Return the service's own profile with the model sources that it overrides, for a cache to refer to.

    Named after what it says: a profile's `aimId` never changes, another one is another overlay.
    """
    kept = {key: spec[key] for key in _CACHED_FIELDS if spec.get(key) is not None}
    uris = [view.text(source, "sourceUri") or "" for source in view.items(spec, "modelSources")]
    content = short_hash(view.text(spec, "aimId") or "", view.text(spec, "image") or "", *uris)
    return {
        "apiVersion": AIM_PROFILE.api_version,
        "kind": AIM_PROFILE.kind,
        "metadata": {
            "name": derive_name(view.name_of(service), "overlay", view.uid_of(service), content),
            "namespace": view.namespace_of(service),
            "labels": created_labels({LABEL_SERVICE: label_value(view.name_of(service))}),
            "ownerReferences": [owner_reference(AIM_SERVICE, service)],
        },
        "spec": kept,
    }


# -- Jobs -----------------------------------------------------------------------------------------------------------


def render_sync_job(
    service: Json,
    *,
    claim: str,
    key: str,
    paths: Sequence[str],
    attempt: int,
    pull_secrets: Sequence[Any],
    settings: ReconcileSettings,
    config: Json = view.EMPTY,
    gpu_resource: str | None = None,
) -> dict[str, Any]:
    """Return the Job that makes the service's subtree and prunes what is not declared."""
    spec = SyncSpec(
        disk=DISK_MOUNT,
        namespace=view.namespace_of(service),
        service=view.name_of(service),
        service_uid=view.uid_of(service),
        generation=view.generation_of(service),
        sync_key=key,
        declared=sorted(set(paths)),
    )
    plan = JobPlan(
        name=derive_name(view.name_of(service), "sync", key, str(attempt)),
        role=ROLE_SUBTREE_SYNC,
        owner_kind=AIM_SERVICE,
        owner=service,
        command="sync",
        args=spec.to_args(),
        key=key,
        attempt=attempt,
        deadline=settings.staging_deadline,
        labels={LABEL_SERVICE: label_value(view.name_of(service))},
        propagated=propagated_labels(service, config),
        claims=(ClaimMount(ADAPTER_VOLUME, claim, DISK_MOUNT),),
        gpu_resource=gpu_resource,
        pull_secrets=pull_secrets,
    )
    return render_job(plan, settings)


@dataclass(frozen=True, slots=True)
class Staging:
    """One staging attempt of one adapter."""

    adapter: Json  # the AIMArtifact
    path: str
    key: str
    attempt: int
    claim: str
    base: Json
    max_rank: int
    fresh: bool = False
    hold_changed: bool = False
    may_be_listed: bool = False
    gpu_resource: str | None = None


def render_stage_job(
    service: Json, staging: Staging, config: Json, pull_secrets: Sequence[Any], settings: ReconcileSettings
) -> dict[str, Any]:
    """Return the Job that downloads, checks and promotes one adapter.

    Args: `config` is the merged RuntimeConfig of the adapter (its own, else the service's).
    """
    adapter, base_claim = staging.adapter, whole_base_claim(staging.base)
    credentials = job_credentials(
        config,
        view.source_uri(adapter),
        view.items(service, "spec", "caching", "env"),
        view.items(adapter, "spec", "env"),
    )
    spec = _stage_spec(service, staging, credentials, settings, base_dir=BASE_MOUNT if base_claim else None)
    claims = [ClaimMount(ADAPTER_VOLUME, staging.claim, DISK_MOUNT)]
    if base_claim is not None:
        directory = view.cache_directory(staging.base)
        claims.append(ClaimMount(CACHE_VOLUME, base_claim, BASE_MOUNT, directory, read_only=True))
    plan = JobPlan(
        name=derive_name(view.name_of(service), view.name_of(adapter), "stage", staging.key, str(staging.attempt)),
        role=ROLE_STAGING,
        owner_kind=AIM_SERVICE,
        owner=service,
        command="stage",
        args=spec.to_args(),
        key=staging.key,
        attempt=staging.attempt,
        deadline=settings.staging_deadline,
        labels={
            LABEL_SERVICE: label_value(view.name_of(service)),
            LABEL_ARTIFACT: label_value(view.name_of(adapter)),
        },
        propagated=propagated_labels(service, config),
        claims=tuple(claims),
        credentials=credentials,
        gpu_resource=staging.gpu_resource,
        pull_secrets=[*pull_secrets, *view.items(adapter, "spec", "imagePullSecrets")],
        progress=True,
    )
    return render_job(plan, settings)


def whole_base_claim(base: Json) -> str | None:
    """Return the claim that holds the whole base model, None while there is none."""
    return (
        view.text(base, "status", "persistentVolumeClaim") if view.text(base, "status", "status") == "Ready" else None
    )


def _stage_spec(
    service: Json, staging: Staging, credentials: JobCredentials, settings: ReconcileSettings, *, base_dir: str | None
) -> StageSpec:
    adapter = staging.adapter
    filters = view.mapping(adapter, "spec", "downloadFilter")
    return StageSpec(
        **asdict(credentials.options),
        disk=DISK_MOUNT,
        namespace=view.namespace_of(service),
        service=view.name_of(service),
        service_uid=view.uid_of(service),
        artifact=view.name_of(adapter),
        artifact_uid=view.uid_of(adapter),
        path=staging.path,
        source_uri=view.source_uri(adapter),
        model_id=view.model_id(adapter) or view.name_of(adapter),
        stage_key=staging.key,
        max_rank=staging.max_rank,
        declared_rank=view.declared_rank(adapter),
        base_model_id=view.model_id(staging.base),
        base_dir=base_dir,
        include=list(view.strings(filters, "include")),
        exclude=list(view.strings(filters, "exclude")),
        strict_base=settings.strict_base,
        allow_pickle=settings.allow_pickle,
        allow_link_local=settings.allow_link_local,
        fresh=staging.fresh,
        hold_changed=staging.hold_changed,
        may_be_listed=staging.may_be_listed,
        progress_port=settings.progress_port,
    )
