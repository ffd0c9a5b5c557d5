"""The objects that an AIMService leads to: cache, Jobs, profile ConfigMap, InferenceService. Pure.

Source: contract, sections 6 and 7; interface facts, sections 6 to 8.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fnmatch import fnmatchcase
from typing import Any

from api.accelerators import gpu_resource, node_selector_terms
from api.jobs import BASE_MOUNT, DISK_MOUNT, StageSpec, SyncSpec
from api.kinds import (
    AIM_PROFILE,
    AIM_PROFILE_CACHE,
    AIM_SERVICE,
    AIM_TEMPLATE_CACHE,
    CONFIG_MAP,
    INFERENCE_SERVICE,
    Kind,
)
from api.names import (
    ANNOTATION_MODEL_ID,
    ANNOTATION_RUNTIME_PROFILE,
    ANNOTATION_STAGE_KEY,
    ANNOTATION_SYNC_KEY,
    CPU_ADAPTER_SLOTS,
    FIELD_OWNER,
    GPU_ADAPTER_SLOTS,
    LABEL_ARTIFACT,
    LABEL_COMPONENT,
    LABEL_MANAGED_BY,
    LABEL_SERVICE,
    ROLE_STAGING,
    ROLE_SUBTREE_SYNC,
    derive_name,
    short_hash,
)
from api.view import (
    AdapterMode,
    Json,
    cache_directory,
    caching_mode,
    declared_rank,
    dig,
    generation_of,
    integer,
    items,
    mapping,
    model_id,
    name_of,
    namespace_of,
    source_uri,
    strings,
    text,
    uid_of,
)
from reconcile.jobs import JobPlan, job_credentials, render_job
from reconcile.objects import label_value, managed_labels, merge_env, owner_reference, parse_quantity, without_nulls
from reconcile.service.plan import Plan
from reconcile.settings import ReconcileSettings

CONTAINER = "kserve-container"
PORT = 8000
CACHE_ROOT = "/workspace/cache"
ADAPTERS_MOUNT = "/adapters"
ADAPTER_VOLUME = "adapter-disk"
CACHE_VOLUME = "model-cache"
PROFILE_VOLUME = "aim-profile"
ADAPTER_ENV = (
    "AIM_ADAPTER_SOURCE",
    "AIM_ADAPTER_MODE",
    "AIM_ADAPTER_MAX_COUNT",
    "AIM_ADAPTER_MAX_CPU_COUNT",
    "AIM_ADAPTER_MAX_RANK",
    "AIM_ADAPTER_REFRESH_INTERVAL",
)
ANNOTATION_DEPLOYMENT_MODE = "serving.kserve.io/deploymentMode"
ANNOTATION_AUTOSCALER = "serving.kserve.io/autoscalerClass"
_CLUSTER_AUTH = "cluster-auth/"


# -- caches ---------------------------------------------------------------------------------------------------------


def cache_name(service: Json, owner_of_sources: str, scope: str) -> str:
    """Name of the cache that we make: one for each profile or template, a dedicated one for each service."""
    dedicated = (uid_of(service),) if caching_mode(service) == "Dedicated" else ()
    return derive_name(owner_of_sources, scope.lower(), "cache", *dedicated, limit=50)


def render_cache(
    service: Json, kind: Kind, origin: str, scope: str, *, requires_disk: bool, sources: Sequence[Any] = ()
) -> dict[str, Any]:
    """Return the cache of a profile (AIMProfileCache) or a template (AIMTemplateCache).

    `requires_disk` is only ever set, never taken back: other services may need the disk.
    """
    dedicated = caching_mode(service) == "Dedicated"
    spec: dict[str, Any] = {
        "mode": caching_mode(service),
        "runtimeConfigName": text(service, "spec", "runtimeConfigName"),
        "requiresAdapterDisk": True if requires_disk else None,
        "storageClassName": text(service, "spec", "storage", "defaultStorageClassName"),
        "env": list(items(service, "spec", "caching", "env")) or None,
    }
    if kind is AIM_PROFILE_CACHE:
        spec |= {"profileName": origin, "profileScope": scope}
    else:
        spec |= {"templateName": origin, "templateScope": scope, "modelSources": list(sources) or None}
    metadata: dict[str, Any] = {
        "name": cache_name(service, origin, scope),
        "namespace": namespace_of(service),
        "labels": managed_labels(),
    }
    if dedicated:
        metadata["ownerReferences"] = [owner_reference(AIM_SERVICE, service)]
    return {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata, "spec": without_nulls(spec)}


def render_overlay(service: Json, spec: Json) -> dict[str, Any]:
    """Return the service's own copy of its effective profile, for overrides that change what must be cached."""
    return {
        "apiVersion": AIM_PROFILE.api_version,
        "kind": AIM_PROFILE.kind,
        "metadata": {
            "name": derive_name(name_of(service), "overlay", uid_of(service)),
            "namespace": namespace_of(service),
            "labels": managed_labels(**{LABEL_SERVICE: label_value(name_of(service))}),
            "ownerReferences": [owner_reference(AIM_SERVICE, service)],
        },
        "spec": dict(spec),
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
) -> dict[str, Any]:
    """Return the Job that makes the service's subtree and prunes what is not declared."""
    spec = SyncSpec(
        disk=DISK_MOUNT,
        namespace=namespace_of(service),
        service=name_of(service),
        service_uid=uid_of(service),
        generation=generation_of(service),
        sync_key=key,
        declared=sorted(set(paths)),
    )
    plan = JobPlan(
        name=derive_name(name_of(service), "sync", key, str(attempt)),
        namespace=namespace_of(service),
        role=ROLE_SUBTREE_SYNC,
        owner_kind=AIM_SERVICE,
        owner=service,
        command="sync",
        args=spec.to_args(),
        key_annotation=ANNOTATION_SYNC_KEY,
        key=key,
        attempt=attempt,
        deadline=settings.staging_deadline,
        labels={LABEL_SERVICE: label_value(name_of(service))},
        claims=((ADAPTER_VOLUME, claim, DISK_MOUNT, None, False),),
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


def render_stage_job(
    service: Json, staging: Staging, config: Json, pull_secrets: Sequence[Any], settings: ReconcileSettings
) -> dict[str, Any]:
    """Return the Job that downloads, checks and promotes one adapter.

    Args: `config` is the merged RuntimeConfig of the adapter (its own, else the service's).
    """
    adapter = staging.adapter
    credentials = job_credentials(config, items(service, "spec", "caching", "env"), items(adapter, "spec", "env"))
    filters = mapping(adapter, "spec", "downloadFilter")
    base_claim = text(staging.base, "status", "persistentVolumeClaim")
    base_ready = text(staging.base, "status", "status") == "Ready" and base_claim is not None
    spec = StageSpec(
        **credentials.s3.model_dump(),
        disk=DISK_MOUNT,
        namespace=namespace_of(service),
        service=name_of(service),
        service_uid=uid_of(service),
        artifact=name_of(adapter),
        artifact_uid=uid_of(adapter),
        path=staging.path,
        source_uri=source_uri(adapter),
        model_id=model_id(adapter) or name_of(adapter),
        stage_key=staging.key,
        max_rank=staging.max_rank,
        declared_rank=declared_rank(adapter),
        base_model_id=model_id(staging.base),
        base_dir=BASE_MOUNT if base_ready else None,
        include=list(strings(filters, "include")),
        exclude=list(strings(filters, "exclude")),
        strict_base=settings.strict_base,
        allow_pickle=settings.allow_pickle,
        allow_link_local=settings.allow_link_local,
        fresh=staging.fresh,
        hold_changed=staging.hold_changed,
        progress_port=settings.progress_port,
    )
    claims: list[tuple[str, str, str, str | None, bool]] = [(ADAPTER_VOLUME, staging.claim, DISK_MOUNT, None, False)]
    if base_ready and base_claim is not None:
        claims.append((CACHE_VOLUME, base_claim, BASE_MOUNT, cache_directory(staging.base), True))
    plan = JobPlan(
        name=derive_name(name_of(service), name_of(adapter), "stage", staging.key, str(staging.attempt)),
        namespace=namespace_of(service),
        role=ROLE_STAGING,
        owner_kind=AIM_SERVICE,
        owner=service,
        command="stage",
        args=spec.to_args(),
        key_annotation=ANNOTATION_STAGE_KEY,
        key=staging.key,
        attempt=staging.attempt,
        deadline=settings.staging_deadline,
        labels={
            LABEL_SERVICE: label_value(name_of(service)),
            LABEL_ARTIFACT: label_value(name_of(adapter)),
        },
        claims=tuple(claims),
        credentials=credentials,
        pull_secrets=[*pull_secrets, *items(adapter, "spec", "imagePullSecrets")],
        progress=True,
    )
    return render_job(plan, settings)


# -- profile file ---------------------------------------------------------------------------------------------------


def render_profile_config_map(service: Json, plan: Plan) -> dict[str, Any] | None:
    """Return the ConfigMap with the effective profile, named with its content's hash. None: nothing to project."""
    file = plan.profile_file
    if file is None:
        return None
    return {
        "apiVersion": CONFIG_MAP.api_version,
        "kind": CONFIG_MAP.kind,
        "metadata": {
            "name": derive_name(name_of(service), "profile", short_hash(file.folder, file.name, file.content)),
            "namespace": namespace_of(service),
            "labels": managed_labels(**{LABEL_SERVICE: label_value(name_of(service))}),
            "ownerReferences": [owner_reference(AIM_SERVICE, service)],
        },
        "data": {file.name: file.content},
        "immutable": True,
    }


# -- InferenceService -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class AdapterWiring:
    """The adapter part of the container: which disk, which mode, which ceiling."""

    claim: str
    mode: str
    max_rank: int

    def env(self, settings: ReconcileSettings) -> dict[str, str]:
        """The AIM_ADAPTER_ variables (contract, section 7)."""
        values = {
            "AIM_ADAPTER_SOURCE": ADAPTERS_MOUNT,
            "AIM_ADAPTER_MODE": self.mode,
            "AIM_ADAPTER_MAX_COUNT": str(GPU_ADAPTER_SLOTS),
            "AIM_ADAPTER_MAX_CPU_COUNT": str(CPU_ADAPTER_SLOTS),
            "AIM_ADAPTER_MAX_RANK": str(self.max_rank),
        }
        if self.mode == "dynamic":
            values["AIM_ADAPTER_REFRESH_INTERVAL"] = str(max(5, int(settings.refresh_interval.total_seconds())))
        return values


def live_wiring(isvc: Json | None) -> AdapterWiring | None:
    """Read the adapter part of a live InferenceService, or None when it has none."""
    predictor = mapping(isvc, "spec", "predictor")
    claim = next(
        (
            text(volume, "persistentVolumeClaim", "claimName")
            for volume in items(predictor, "volumes")
            if dig(volume, "name") == ADAPTER_VOLUME
        ),
        None,
    )
    env = {dig(entry, "name"): text(entry, "value") for entry in items(_container(isvc), "env")}
    rank = env.get("AIM_ADAPTER_MAX_RANK") or ""
    if claim is None or not rank.isdecimal():
        return None
    mode: AdapterMode = "dynamic" if env.get("AIM_ADAPTER_MODE") == "dynamic" else "static"
    return AdapterWiring(claim, mode, int(rank))


def _container(isvc: Json | None) -> Json:
    for container in items(isvc, "spec", "predictor", "containers"):
        if dig(container, "name") == CONTAINER:
            return mapping(container)
    return {}


@dataclass(frozen=True, slots=True)
class Replicas:
    """Bounds of the predictor: equal ones are fixed, others scale by load."""

    minimum: int
    maximum: int

    @property
    def autoscaler(self) -> str:
        """Value of KServe's autoscaler annotation."""
        return "none" if self.minimum == self.maximum else "hpa"


def replicas_of(service: Json) -> Replicas:
    """Return the replica bounds (contract, section 7): both absent or equal → fixed; the absent bound defaults."""
    low, high = integer(service, "spec", "minReplicas"), integer(service, "spec", "maxReplicas")
    if low is None and high is None:
        fixed = integer(service, "spec", "replicas")
        return Replicas(1 if fixed is None else fixed, 1 if fixed is None else fixed)
    minimum = low if low is not None else 1
    return Replicas(minimum, high if high is not None else minimum)


def render_inference_service(
    service: Json,
    *,
    name: str,
    plan: Plan,
    base: Json,
    wiring: AdapterWiring | None,
    config: Json,
    settings: ReconcileSettings,
    live: Json | None = None,
) -> dict[str, Any]:
    """Return the whole InferenceService. `live` keeps the labels and annotations that it was created with."""
    replicas = replicas_of(service)
    return {
        "apiVersion": INFERENCE_SERVICE.api_version,
        "kind": INFERENCE_SERVICE.kind,
        "metadata": {
            "name": name,
            "namespace": namespace_of(service),
            "labels": _kept_labels(live) or _labels(service, plan, config),
            "annotations": (_kept_annotations(live) or _annotations(service, plan, settings))
            | {ANNOTATION_AUTOSCALER: replicas.autoscaler},
            "ownerReferences": [owner_reference(AIM_SERVICE, service)],
        },
        "spec": {"predictor": _predictor(service, plan, base, wiring, replicas=replicas, settings=settings)},
    }


def _kept_labels(live: Json | None) -> dict[str, str]:
    """Labels reach the pod template, so those of the creation stay for ever: a change would roll the pods."""
    return dict(mapping(live, "metadata", "labels"))


def _kept_annotations(live: Json | None) -> dict[str, str]:
    ours = (ANNOTATION_MODEL_ID, ANNOTATION_RUNTIME_PROFILE, ANNOTATION_DEPLOYMENT_MODE, ANNOTATION_AUTOSCALER)
    annotations = mapping(live, "metadata", "annotations")
    return {key: value for key, value in annotations.items() if key in ours or key.startswith(_CLUSTER_AUTH)}


def _labels(service: Json, plan: Plan, config: Json) -> dict[str, str]:
    labels = propagated_labels(service, config)
    labels |= {LABEL_COMPONENT: "inference", LABEL_MANAGED_BY: FIELD_OWNER}
    for key, value in {LABEL_SERVICE: name_of(service), **plan.labels}.items():
        if (kept := label_value(value)) is not None:
            labels[key] = kept
    return labels


def propagated_labels(service: Json, config: Json) -> dict[str, str]:
    """Return the service's labels that its RuntimeConfig propagates; `aim.eai.amd.com/*` always are."""
    patterns = ["aim.eai.amd.com/*"]
    if dig(config, "labelPropagation", "enabled") is True:
        patterns += strings(config, "labelPropagation", "match")
    return {
        key: value
        for key, value in mapping(service, "metadata", "labels").items()
        if any(fnmatchcase(key, pattern) for pattern in patterns)
    }


def _annotations(service: Json, plan: Plan, settings: ReconcileSettings) -> dict[str, str]:
    values = {
        ANNOTATION_DEPLOYMENT_MODE: settings.deployment_mode,
        ANNOTATION_MODEL_ID: plan.model_id,
        ANNOTATION_RUNTIME_PROFILE: plan.runtime_profile,
    }
    annotations = {key: value for key, value in values.items() if value}
    own = mapping(service, "metadata", "annotations")
    return annotations | {key: value for key, value in own.items() if key.startswith(_CLUSTER_AUTH)}


def _predictor(
    service: Json,
    plan: Plan,
    base: Json,
    wiring: AdapterWiring | None,
    *,
    replicas: Replicas,
    settings: ReconcileSettings,
) -> dict[str, Any]:
    volumes, mounts = _volumes(service, plan, base, wiring)
    predictor: dict[str, Any] = {
        "minReplicas": replicas.minimum,
        "maxReplicas": replicas.maximum,
        "deploymentStrategy": {
            "type": "RollingUpdate",
            "rollingUpdate": {"maxSurge": settings.max_surge, "maxUnavailable": settings.max_unavailable},
        },
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "securityContext": _pod_security(settings),
        "containers": [
            {
                "name": CONTAINER,
                "image": plan.image,
                "imagePullPolicy": "IfNotPresent",
                "ports": [{"name": "http", "containerPort": PORT, "protocol": "TCP"}],
                "env": _environment(service, plan, base, wiring, settings),
                "resources": _resources(service, plan),
                "securityContext": _container_security(settings),
                "startupProbe": _probe(settings, failures=_startup_failures(settings)),
                "readinessProbe": _probe(settings, failures=3),
                "volumeMounts": mounts,
            }
        ],
        "volumes": volumes,
    }
    if affinity := _affinity(plan):
        predictor["affinity"] = affinity
    if plan.gpus:
        predictor["tolerations"] = [{"key": _gpu_resource(plan), "operator": "Exists", "effect": "NoSchedule"}]
    optional = {
        "imagePullSecrets": _pull_secrets(items(service, "spec", "imagePullSecrets"), plan.pull_secrets),
        "serviceAccountName": text(service, "spec", "serviceAccountName") or plan.service_account,
        "priorityClassName": text(service, "spec", "priorityClassName"),
    }
    return predictor | {key: value for key, value in optional.items() if value}


def _pull_secrets(*lists: Sequence[Any]) -> list[dict[str, Any]]:
    names = dict.fromkeys(name for entries in lists for entry in entries if (name := text(entry, "name")))
    return [{"name": name} for name in names]


def _pod_security(settings: ReconcileSettings) -> dict[str, Any]:
    context: dict[str, Any] = {"seccompProfile": {"type": "RuntimeDefault"}}
    if settings.security_profile == "restricted":
        context |= {"runAsNonRoot": True, "runAsUser": 1000, "runAsGroup": 1000, "fsGroup": 1000}
    return context


def _container_security(settings: ReconcileSettings) -> dict[str, Any]:
    context: dict[str, Any] = {"allowPrivilegeEscalation": False}
    if settings.security_profile == "restricted":
        context["capabilities"] = {"drop": ["ALL"]}
    return context


def _probe(settings: ReconcileSettings, *, failures: int) -> dict[str, Any]:
    return {
        "httpGet": {"path": "/v1/models", "port": "http", "scheme": "HTTP"},
        "periodSeconds": _probe_period(settings),
        "timeoutSeconds": 5,
        "successThreshold": 1,
        "failureThreshold": failures,
    }


def _probe_period(settings: ReconcileSettings) -> int:
    return max(1, int(settings.probe_period.total_seconds()))


def _startup_failures(settings: ReconcileSettings) -> int:
    return max(1, int(settings.startup_timeout.total_seconds()) // _probe_period(settings))


def _volumes(
    service: Json, plan: Plan, base: Json, wiring: AdapterWiring | None
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    volumes: list[dict[str, Any]] = [{"name": "dshm", "emptyDir": {"medium": "Memory", "sizeLimit": "8Gi"}}]
    mounts: list[dict[str, Any]] = [{"name": "dshm", "mountPath": "/dev/shm"}]  # noqa: S108 - shared memory of the engine
    if claim := text(base, "status", "persistentVolumeClaim"):
        directory = cache_directory(base)
        volumes.append(_claim_volume(CACHE_VOLUME, claim))
        mounts.append(
            {
                "name": CACHE_VOLUME,
                "mountPath": f"{CACHE_ROOT}/{plan.model_id or directory}",
                "subPath": directory,
                "readOnly": True,
            }
        )
    if wiring is not None:
        volumes.append(_claim_volume(ADAPTER_VOLUME, wiring.claim))
        mounts.append(
            {"name": ADAPTER_VOLUME, "mountPath": ADAPTERS_MOUNT, "subPath": uid_of(service), "readOnly": True}
        )
    config_map = render_profile_config_map(service, plan)
    if config_map is not None and plan.profile_file is not None:
        volumes.append({"name": PROFILE_VOLUME, "configMap": {"name": config_map["metadata"]["name"]}})
        mounts.append({"name": PROFILE_VOLUME, "mountPath": plan.profile_file.folder, "readOnly": True})
    return volumes, mounts


def _claim_volume(name: str, claim: str) -> dict[str, Any]:
    return {"name": name, "persistentVolumeClaim": {"claimName": claim, "readOnly": True}}


def _environment(
    service: Json, plan: Plan, base: Json, wiring: AdapterWiring | None, settings: ReconcileSettings
) -> list[dict[str, Any]]:
    """Return env, one entry per name: profile < override < service < ours (contract, section 11, "Environment")."""
    user = merge_env(plan.env, items(service, "spec", "env"))
    ours: dict[str, str | None] = {
        "AIM_CACHE_PATH": CACHE_ROOT if text(base, "status", "persistentVolumeClaim") else None,
        "AIM_MODEL_ID": plan.model_id,
        "AIM_ID": "" if plan.model_id else plan.aim_id,
        "AIM_PROFILE_ID": plan.profile_id,
        "AIM_ENGINE": plan.engine,
        "AIM_METRIC": plan.metric,
        "AIM_PRECISION": plan.precision,
        "AIM_ENGINE_ARGS": _engine_args(plan, user.get("AIM_ENGINE_ARGS")),
    }
    if wiring is not None:
        ours |= wiring.env(settings)
    entries = user | {name: {"name": name, "value": value} for name, value in ours.items() if value is not None}
    return ordered_env(list(entries.values()))


def _engine_args(plan: Plan, user: Mapping[str, Any] | None) -> str | None:
    """Merge the user's AIM_ENGINE_ARGS (a JSON object) deeply over the profile's; what is no object is kept."""
    merged: Any = dict(plan.engine_args)
    given = user.get("value") if user else None
    if isinstance(given, str):
        try:
            parsed = json.loads(given)
        except ValueError:
            return None
        if not isinstance(parsed, dict):
            return None
        merged = _deep_merge(merged, parsed)
    elif user is not None:
        return None
    return json.dumps(merged, sort_keys=True, separators=(",", ":")) if merged else None


def _deep_merge(under: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(under)
    for key, value in over.items():
        below = merged.get(key)
        merged[key] = _deep_merge(below, value) if isinstance(below, Mapping) and isinstance(value, Mapping) else value
    return merged


_REFERENCE = re.compile(r"\$\(([A-Za-z_.-][A-Za-z0-9_.-]*)\)")


def ordered_env(entries: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Sort env by name, an entry behind those that its `$(…)` names: the order never depends on who wrote what.

    Entries that name each other in a circle stay in the order of their names.
    """
    by_name = {entry["name"]: dict(entry) for entry in entries}
    ordered: dict[str, dict[str, Any]] = {}
    visiting: set[str] = set()

    def place(name: str) -> None:
        if name in ordered or name in visiting:
            return
        visiting.add(name)
        value = by_name[name].get("value")
        for needed in sorted(set(_REFERENCE.findall(value))) if isinstance(value, str) else ():
            if needed in by_name:
                place(needed)
        ordered.setdefault(name, by_name[name])

    for name in sorted(by_name):
        place(name)
    return list(ordered.values())


def _gpu_resource(plan: Plan) -> str:
    return plan.gpu_resource or gpu_resource(plan.accelerator_vendor)


def _resources(service: Json, plan: Plan) -> dict[str, Any]:
    """Return requests and limits, all four of CPU and memory written, limit = max(limit, request).

    Source: contract, section 7 (KServe fills each missing one with 1 CPU or 2Gi, and then never starts).
    """
    units = max(1, plan.gpus)
    requests: dict[str, Any] = {"cpu": str(4 * units), "memory": f"{32 * units}Gi"}
    limits: dict[str, Any] = {"cpu": str(4 * units), "memory": f"{48 * units}Gi"}
    for given in (plan.resources, mapping(service, "spec", "resources")):
        requests |= mapping(given, "requests")
        limits |= mapping(given, "limits")
    if plan.gpus:
        gpu = _gpu_resource(plan)
        requests[gpu] = limits[gpu] = str(plan.gpus)
    for name in ("cpu", "memory"):
        if _quantity(limits[name]) < _quantity(requests[name]):
            limits[name] = requests[name]
    return {
        "requests": {key: str(requests[key]) for key in sorted(requests)},
        "limits": {key: str(limits[key]) for key in sorted(limits)},
    }


def _quantity(value: object) -> Decimal:
    return parse_quantity(value) or Decimal(0)


def _affinity(plan: Plan) -> dict[str, Any] | None:
    if not plan.gpus or plan.accelerator_model is None:
        return None
    terms = node_selector_terms(plan.accelerator_model, plan.partitioning)
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}


def cache_kind(pipeline: str) -> Kind:
    """Kind of the cache of a pipeline."""
    return AIM_PROFILE_CACHE if pipeline == "profile" else AIM_TEMPLATE_CACHE
