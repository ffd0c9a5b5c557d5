"""A healthy service with everything around it, and ways to spoil it: what the plugin's tests start from."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from api.names import KEY_ANNOTATIONS, LABEL_ROLE, inference_service_name
from api.view import JsonObject
from cli.plugin.snapshot import Snapshot
from rules.world import KIND_BY_NAME
from rules.worlds import SnapshotWorld

NOW = datetime(2024, 5, 1, 12, 0, tzinfo=UTC)
ISVC = inference_service_name("chat", "team") or ""
_SINCE = "2024-05-01T11:00:00Z"


def condition(kind: str, status: str, reason: str, message: str = "") -> JsonObject:
    return {"type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": _SINCE}


def service() -> JsonObject:
    return {
        "apiVersion": "aim.eai.amd.com/v1alpha2",
        "kind": "AIMService",
        "metadata": {"name": "chat", "namespace": "team", "uid": "u-service", "generation": 3, "resourceVersion": "7"},
        "spec": {
            "profile": {"name": "p"},
            "adapterMode": "dynamic",
            "adapters": [{"kind": "AIMArtifact", "name": "sql"}, {"kind": "AIMArtifact", "name": "med"}],
        },
        "status": {
            "status": "Running",
            "observedGeneration": 3,
            "adapterSummary": "2/2",
            "adapterMaxRank": 32,
            "adapterSubtreeSyncKey": "k",
            "adapterDiskPersistentVolumeClaim": "disk",
            "adapterDiskPersistentVolumeClaimUid": "u-disk",
            "runtime": {"currentReplicas": 2, "desiredReplicas": 2, "replicas": "2/2"},
            "cache": {"profileCacheRef": {"name": "p-cache"}},
            "conditions": [
                condition("ConfigValid", "True", "ConfigValid"),
                condition("CacheReady", "True", "AllCachesReady"),
                condition("Adapters", "True", "AdaptersStaged"),
                condition("InferenceServiceReady", "True", "InferenceServiceReady"),
                condition("Ready", "True", "Serving"),
            ],
            "adapters": [entry("sql"), entry("med")],
        },
    }


def entry(name: str, **more: Any) -> JsonObject:
    return {
        "name": name,
        "adapterPath": name,
        "modelId": f"o/{name}",
        "state": "Loaded",
        "rank": 16,
        "sizeBytes": 12 * 2**20,
        "digest": f"sha256:{name}",
        "attempts": 1,
        "loadedReplicas": 2,
        "stageKey": f"k-{name}",
        "lastObserved": _SINCE,
    } | more


def adapter(name: str) -> JsonObject:
    return {
        "apiVersion": "aim.eai.amd.com/v1alpha1",
        "kind": "AIMArtifact",
        "metadata": {"name": name, "namespace": "team", "uid": f"u-{name}"},
        "spec": {
            "type": "adapter",
            "sourceUri": f"hf://o/{name}",
            "modelId": f"o/{name}",
            "compatibleWith": ["Qwen/Q"],
        },
        "status": {"conditions": [condition("Ready", "True", "AdapterValidated")]},
    }


def profile() -> JsonObject:
    return {
        "apiVersion": "aim.eai.amd.com/v1alpha2",
        "kind": "AIMClusterProfile",
        "metadata": {"name": "p"},
        "spec": {
            "aimId": "q/q",
            "image": "x:0.13",
            "features": ["adapters"],
            "acceleratorModel": "MI300X",
            "modelSources": [{"sourceUri": "hf://Qwen/Q", "modelId": "Qwen/Q"}],
        },
    }


def base() -> JsonObject:
    return {
        "apiVersion": "aim.eai.amd.com/v1alpha1",
        "kind": "AIMArtifact",
        "metadata": {"name": "base", "namespace": "team", "uid": "u-base"},
        "spec": {"sourceUri": "hf://Qwen/Q", "modelId": "Qwen/Q"},
        "status": {
            "status": "Ready",
            "displaySize": "16.0 GiB",
            "persistentVolumeClaim": "cache",
            "adapterPersistentVolumeClaim": "disk",
            "conditions": [
                condition("Ready", "True", "ModelCached"),
                condition("CacheStorageReady", "True", "ClaimBound"),
                condition("AdapterDiskReady", "True", "ClaimBound"),
            ],
        },
    }


def cache() -> JsonObject:
    return {
        "apiVersion": "aim.eai.amd.com/v1alpha2",
        "kind": "AIMProfileCache",
        "metadata": {"name": "p-cache", "namespace": "team", "uid": "u-cache"},
        "spec": {"profileName": "p", "profileScope": "Cluster", "requiresAdapterDisk": True},
        "status": {
            "artifacts": {"base": {"name": "base", "uid": "u-base"}},
            "conditions": [condition("ArtifactsReady", "True", "AllCachesReady")],
        },
    }


def claim(name: str) -> JsonObject:
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name, "namespace": "team", "uid": f"u-{name}"},
        "spec": {"resources": {"requests": {"storage": "50Gi"}}},
        "status": {"phase": "Bound", "capacity": {"storage": "50Gi"}},
    }


def pod(name: str = "pod-0") -> JsonObject:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": "team",
            "uid": f"u-{name}",
            "labels": {"serving.kserve.io/inferenceservice": ISVC},
        },
        "status": {
            "conditions": [condition("PodScheduled", "True", ""), condition("Ready", "True", "")],
            "containerStatuses": [{"name": "kserve-container", "state": {"running": {}}}],
        },
    }


def job(role: str, owner_uid: str, message: str | None = None, waiting: str = "") -> list[JsonObject]:
    """A Job and its pod: blocked by `waiting`, or ended with a termination message."""
    state: JsonObject = {"running": {}}
    if waiting:
        state = {"waiting": {"reason": waiting, "message": "it cannot"}}
    elif message is not None:
        state = {"terminated": {"exitCode": 1, "message": message, "finishedAt": _SINCE}}
    return [
        {
            "kind": "Job",
            "metadata": {
                "name": f"job-{role}",
                "namespace": "team",
                "uid": "u-job",
                "labels": {LABEL_ROLE: role},
                "annotations": {KEY_ANNOTATIONS[role]: "k"},
                "ownerReferences": [{"uid": owner_uid}],
            },
        },
        {
            "kind": "Pod",
            "metadata": {
                "name": "job-pod",
                "namespace": "team",
                "uid": "u-job-pod",
                "ownerReferences": [{"uid": "u-job"}],
            },
            "status": {"containerStatuses": [{"name": "disk", "state": state}]},
        },
    ]


def lease(renewed: str = "2024-05-01T11:59:58.000000Z") -> JsonObject:
    return {"spec": {"holderIdentity": "pod-a", "leaseDurationSeconds": 15, "renewTime": renewed}}


@dataclass
class Scene:
    """All objects, healthy; tests spoil one and look."""

    service: JsonObject = field(default_factory=service)
    profile: JsonObject | None = field(default_factory=profile)
    base: JsonObject | None = field(default_factory=base)
    sql: JsonObject | None = field(default_factory=lambda: adapter("sql"))
    med: JsonObject | None = field(default_factory=lambda: adapter("med"))
    caches: list[JsonObject] = field(default_factory=lambda: [cache()])
    claims: dict[str, JsonObject] = field(default_factory=lambda: {name: claim(name) for name in ("disk", "cache")})
    jobs: list[JsonObject] = field(default_factory=list)
    pods: list[JsonObject] = field(default_factory=lambda: [pod()])
    leases: list[JsonObject] | None = field(default_factory=lambda: [lease()])
    more: list[JsonObject] = field(default_factory=list)
    deployment: JsonObject | None = None
    unreadable: frozenset[str] = frozenset()

    @property
    def status(self) -> JsonObject:
        found: JsonObject = self.service["status"]
        return found

    @property
    def spec(self) -> JsonObject:
        found: JsonObject = self.service["spec"]
        return found

    def say(self, kind: str, status: str, reason: str, message: str = "") -> None:
        """Replace a condition of the service."""
        kept = [one for one in self.status["conditions"] if one["type"] != kind]
        self.status["conditions"] = [*kept, condition(kind, status, reason, message)]

    def base_says(self, kind: str, status: str, reason: str, message: str = "") -> None:
        """Replace a condition of the base; a Ready that is not True makes it not Ready."""
        assert self.base is not None
        kept = [one for one in self.base["status"]["conditions"] if one["type"] != kind]
        self.base["status"]["conditions"] = [*kept, condition(kind, status, reason, message)]
        if kind == "Ready" and status != "True":
            self.base["status"]["status"] = "Pending"

    def adapter(self, **changes: Any) -> None:
        """Change the entry of `sql` in the status; None takes a field away."""
        found = self.status["adapters"][0]
        for key, value in changes.items():
            if value is None:
                found.pop(key, None)
            else:
                found[key] = value

    def snapshot(self) -> Snapshot:
        """Return it as the commands read it."""
        objects = [self.service, self.profile, self.base, self.sql, self.med, *self.caches, *self.more]
        unknown = [KIND_BY_NAME[kind] for kind in self.unreadable]
        world = SnapshotWorld(deepcopy([obj for obj in objects if obj is not None]), unknown=unknown)
        return Snapshot(
            service=self.service,
            now=NOW,
            world=world,
            caches=tuple(self.caches),
            claims=self.claims,
            jobs=tuple(one for one in self.jobs if one["kind"] == "Job"),
            pods=(*self.pods, *(one for one in self.jobs if one["kind"] == "Pod")),
            leases=tuple(self.leases) if self.leases is not None else None,
            deployment=self.deployment,
            unreadable=self.unreadable,
        )
