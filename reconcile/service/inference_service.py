"""The InferenceService of an AIMService, rendered whole each time. Pure.

Source: docs/contract.md, InferenceService, AIM runtime.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from api import view
from api.accelerators import gpu_resource, node_selector_terms
from api.kinds import AIM_SERVICE, INFERENCE_SERVICE
from api.names import (
    ANNOTATION_MODEL_ID,
    ANNOTATION_RUNTIME_PROFILE,
    FIELD_OWNER,
    LABEL_COMPONENT,
    LABEL_MANAGED_BY,
    LABEL_SERVICE,
)
from api.view import Json
from reconcile.objects import created_labels, label_value, owner_reference, propagated_labels
from reconcile.pods import ADAPTER_VOLUME, CONTAINER
from reconcile.service.container import environment, resources
from reconcile.service.live import (
    ADAPTERS_MOUNT,
    CACHE_VOLUME,
    PORT,
    PROFILE_VOLUME,
    AdapterWiring,
    CacheMount,
)
from reconcile.service.plan import Plan
from reconcile.service.profile_file import render_profile_config_map
from reconcile.settings import ReconcileSettings

CACHE_ROOT = "/workspace/cache"
ANNOTATION_DEPLOYMENT_MODE = "serving.kserve.io/deploymentMode"
ANNOTATION_AUTOSCALER = "serving.kserve.io/autoscalerClass"
ANNOTATION_STOP = "serving.kserve.io/stop"  # set by people only, to stop what KServe runs
_CLUSTER_AUTH = "cluster-auth/"


def cache_mounts(plan: Plan, bases: Sequence[Json]) -> tuple[CacheMount, ...]:
    """Return where the base models are mounted; bases without a claim are left out."""
    mounts = []
    for index, base in enumerate(bases):
        if claim := view.text(base, "status", "persistentVolumeClaim"):
            directory = view.cache_directory(base)
            served = plan.model_id if index == 0 and plan.model_id else directory
            mounts.append(CacheMount(claim, directory, f"{CACHE_ROOT}/{served}"))
    return tuple(mounts)


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
    """Return the replica bounds (docs/contract.md, Replicas): absent or equal ones are fixed."""
    low, high = view.integer(service, "spec", "minReplicas"), view.integer(service, "spec", "maxReplicas")
    if (low is None and high is None) or (low is not None and low == high):
        fixed = view.integer(service, "spec", "replicas")
        fixed = 1 if fixed is None else fixed
        return Replicas(fixed, fixed) if low is None else Replicas(low, low)
    minimum = low if low is not None else 1
    return Replicas(minimum, high if high is not None else minimum)


def render_inference_service(
    service: Json,
    *,
    name: str,
    plan: Plan,
    caches: Sequence[CacheMount],
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
            "namespace": view.namespace_of(service),
            "labels": _kept_labels(service, live) or _labels(service, plan, config),
            "annotations": _annotations(service, plan, settings, live) | {ANNOTATION_AUTOSCALER: replicas.autoscaler},
            "ownerReferences": [owner_reference(AIM_SERVICE, service)],
        },
        "spec": {"predictor": _predictor(service, plan, caches, wiring, config=config, settings=settings)},
    }


def _kept_labels(service: Json, live: Json | None) -> dict[str, str]:
    """Labels reach the pod template, so those of the creation stay: a change would roll the pods.

    Only the label by which it and its pods belong to the service is always its own. Another operator's name in the
    label managed-by stays: the informers show it only where that operator's objects are adopted.
    """
    kept = view.mapping(live, "metadata", "labels")
    return {LABEL_MANAGED_BY: FIELD_OWNER, **kept, **_found_by(service)} if kept else {}


def _found_by(service: Json) -> dict[str, str]:
    return {LABEL_SERVICE: label_value(view.name_of(service))}


def _labels(service: Json, plan: Plan, config: Json) -> dict[str, str]:
    chosen = {key: label_value(value) for key, value in plan.labels.items()}
    own = {LABEL_COMPONENT: "inference", **chosen, **_found_by(service)}
    return created_labels(own, propagated_labels(service, config))


_ANNOTATIONS_OF_OURS = (
    ANNOTATION_MODEL_ID,
    ANNOTATION_RUNTIME_PROFILE,
    ANNOTATION_DEPLOYMENT_MODE,
    ANNOTATION_AUTOSCALER,
)


def _annotations(service: Json, plan: Plan, settings: ReconcileSettings, live: Json | None) -> dict[str, str]:
    """Return the annotations: those of the creation stay; a deployment mode that was removed comes back."""
    mode = {ANNOTATION_DEPLOYMENT_MODE: settings.deployment_mode}
    if live is not None:
        kept = view.mapping(live, "metadata", "annotations")
        return mode | {
            key: value for key, value in kept.items() if key in _ANNOTATIONS_OF_OURS or key.startswith(_CLUSTER_AUTH)
        }
    words = {ANNOTATION_MODEL_ID: plan.model_id, ANNOTATION_RUNTIME_PROFILE: plan.runtime_profile}
    own = view.mapping(service, "metadata", "annotations")
    return (
        mode
        | {key: value for key, value in words.items() if value}
        | {key: value for key, value in own.items() if key.startswith(_CLUSTER_AUTH)}
    )


def _predictor(
    service: Json,
    plan: Plan,
    caches: Sequence[CacheMount],
    wiring: AdapterWiring | None,
    *,
    config: Json,
    settings: ReconcileSettings,
) -> dict[str, Any]:
    replicas = replicas_of(service)
    volumes, mounts = _volumes(service, plan, caches, wiring)
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
                "env": environment(
                    service,
                    plan,
                    cache_root=CACHE_ROOT if caches else None,
                    adapters=wiring.env(settings) if wiring else {},
                ),
                "resources": resources(service, plan),
                "securityContext": _container_security(settings),
                "startupProbe": _probe(settings, failures=_startup_failures(settings)),
                "readinessProbe": _probe(settings, failures=3),
                "volumeMounts": mounts,
            }
        ],
        "volumes": volumes,
    }
    if plan.gpus:
        gpu = plan.gpu_resource or gpu_resource(plan.accelerator_vendor)
        predictor["tolerations"] = [{"key": gpu, "operator": "Exists", "effect": "NoSchedule"}]
    optional = {
        "affinity": node_affinity(plan),
        "imagePullSecrets": _pull_secrets(
            view.items(service, "spec", "imagePullSecrets"), plan.pull_secrets, view.items(config, "imagePullSecrets")
        ),
        "serviceAccountName": view.text(service, "spec", "serviceAccountName")
        or plan.service_account
        or view.text(config, "serviceAccountName"),
        "priorityClassName": view.text(service, "spec", "priorityClassName"),
    }
    return predictor | {key: value for key, value in optional.items() if value}


def _pull_secrets(*lists: Sequence[Any]) -> list[dict[str, Any]]:
    names = dict.fromkeys(name for entries in lists for entry in entries if (name := view.text(entry, "name")))
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
    service: Json, plan: Plan, caches: Sequence[CacheMount], wiring: AdapterWiring | None
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    volumes: list[dict[str, Any]] = [{"name": "dshm", "emptyDir": {"medium": "Memory", "sizeLimit": "8Gi"}}]
    mounts: list[dict[str, Any]] = [{"name": "dshm", "mountPath": "/dev/shm"}]  # noqa: S108 - shared memory of the engine
    for index, cache in enumerate(caches):
        name = CACHE_VOLUME if index == 0 else f"{CACHE_VOLUME}-{index + 1}"
        volumes.append(_claim_volume(name, cache.claim))
        mounts.append({"name": name, "mountPath": cache.path, "subPath": cache.directory, "readOnly": True})
    if wiring is not None:
        volumes.append(_claim_volume(ADAPTER_VOLUME, wiring.claim))
        mounts.append(
            {"name": ADAPTER_VOLUME, "mountPath": ADAPTERS_MOUNT, "subPath": view.uid_of(service), "readOnly": True}
        )
    config_map = render_profile_config_map(service, plan)
    if config_map is not None and plan.profile_file is not None:
        volumes.append({"name": PROFILE_VOLUME, "configMap": {"name": config_map["metadata"]["name"]}})
        mounts.append({"name": PROFILE_VOLUME, "mountPath": plan.profile_file.folder, "readOnly": True})
    return volumes, mounts


def _claim_volume(name: str, claim: str) -> dict[str, Any]:
    return {"name": name, "persistentVolumeClaim": {"claimName": claim, "readOnly": True}}


def node_affinity(plan: Plan) -> dict[str, Any] | None:
    """Return the required node affinity to the pool of the accelerator model, None when none is asked for."""
    if not plan.gpus or plan.accelerator_model is None:
        return None
    terms = node_selector_terms(plan.accelerator_model, plan.partitioning)
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}
