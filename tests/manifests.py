"""One manifest per kind that sets every field of its schema, also those that nobody acts on; never judged by rules."""

from __future__ import annotations

from copy import deepcopy

from api import kinds
from api.kinds import Kind
from api.view import JsonObject

ENV: list[JsonObject] = [
    {"name": "PLAIN", "value": "1"},
    {"name": "SECRET", "valueFrom": {"secretKeyRef": {"name": "s", "key": "token", "optional": True}}},
    {"name": "CONFIG", "valueFrom": {"configMapKeyRef": {"name": "c", "key": "k", "optional": False}}},
    {"name": "FIELD", "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.name"}}},
    {
        "name": "RESOURCE",
        "valueFrom": {"resourceFieldRef": {"containerName": "main", "resource": "limits.cpu", "divisor": "1m"}},
    },
]
PULL_SECRETS: list[JsonObject] = [{"name": "registry"}]
RESOURCES: JsonObject = {"limits": {"cpu": 8, "memory": "64Gi"}, "requests": {"cpu": "500m", "memory": "1e9"}}
FILTER: JsonObject = {"include": ["*.safetensors"], "exclude": ["*.bin"]}
STORAGE: JsonObject = {
    "defaultStorageClassName": "fast",
    "pvcHeadroomPercent": 10,
    "downloadFilter": FILTER,
    "adapterDiskStorageClassName": "shared",
    "adapterDiskSize": "50Gi",
}
MODEL_SOURCES: list[JsonObject] = [
    {"modelId": "org/name", "sourceUri": "hf://org/name/sub@main", "size": "60Gi", "env": ENV},
]
HARDWARE: JsonObject = {
    "gpu": {"model": "MI300X", "requests": 1, "count": 1, "minVram": "192Gi", "resourceName": "amd.com/gpu"},
    "cpu": {"requests": "4", "limits": "8"},
}
CACHING: JsonObject = {"enabled": True, "env": ENV}
MAX_RANK: JsonObject = {"maxRank": 64}

_RUNTIME_CONFIG: JsonObject = {
    "adapterRuntime": MAX_RANK,
    "storage": STORAGE,
    "env": ENV,
    "artifact": {
        "modelDownloadImage": "example.com/tool:1",
        "s3": {
            "endpoint": "https://s3.example.com:9000",
            "region": "eu-north-1",
            "addressingStyle": "path",
            "signatureVersion": "s3v4",
            "auth": {
                "mode": "static",
                "credentialsSecretRef": {
                    "name": "s3",
                    "accessKeyIdKey": "id",
                    "secretAccessKeyKey": "key",
                    "sessionTokenKey": "token",
                },
            },
            "tls": {"caBundleRef": {"kind": "ConfigMap", "name": "ca", "key": "ca.crt"}, "insecureSkipVerify": False},
        },
        "hub": {"caBundleRef": {"kind": "Secret", "name": "ca", "key": "ca.crt"}},
        "defaultRetentionPriority": 5,
    },
    "labelPropagation": {"enabled": True, "match": ["team.example.com/*"]},
    "imagePullSecrets": PULL_SECRETS,
    "serviceAccountName": "serving",
    "defaultStorageClassName": "old",
    "pvcHeadroomPercent": 5,
    "model": {"autoDiscovery": {"enabled": True}},
    "routing": {"enabled": True},
    "scaleFromZero": {},
}
_PROFILE: JsonObject = {
    "aimId": "org/name",
    "modelId": "org/name",
    "profileId": "vllm-mi300x-bf16-tp1-latency",
    "engine": "vllm",
    "variant": "a",
    "metric": "latency",
    "precision": "bf16",
    "type": "optimized",
    "autoSelectionPolicy": "Enabled",
    "primary": True,
    "manualSelectionOnly": False,
    "engineArgs": {"max-model-len": 4096, "nested": {"list": [1, "two", None]}},
    "engineEnv": {"VLLM_USE_V1": "1"},
    "acceleratorVendor": "amd",
    "acceleratorModel": "MI300X",
    "acceleratorType": "gpu",
    "acceleratorCount": 1,
    "acceleratorPartitioningMode": "unpartitioned",
    "resources": RESOURCES,
    "image": "example.com/aim:0.13",
    "modelSources": MODEL_SOURCES,
    "containerEnv": ENV,
    "imagePullSecrets": PULL_SECRETS,
    "serviceAccountName": "serving",
    "features": ["adapters"],
}
_MODEL: JsonObject = {
    "image": "example.com/aim:0.13",
    "modelSources": MODEL_SOURCES,
    "custom": {"baseImage": "x"},
    "customTemplates": [{"name": "t"}],
    "discovery": {"enabled": True},
    "imageMetadata": "anything",
    "defaultServiceTemplate": "t",
    "runtimeConfigName": "default",
    "imagePullSecrets": PULL_SECRETS,
    "serviceAccountName": "serving",
    "env": ENV,
    "resources": RESOURCES,
}
_TEMPLATE: JsonObject = {
    "modelName": "m",
    "metric": "throughput",
    "precision": "fp8",
    "hardware": HARDWARE,
    "runtimeConfigName": "default",
    "imagePullSecrets": PULL_SECRETS,
    "serviceAccountName": "serving",
    "resources": RESOURCES,
    "modelSources": MODEL_SOURCES,
    "profileId": "p",
    "type": "preview",
    "env": ENV,
    "caching": CACHING,
}
_SPECS: dict[Kind, JsonObject] = {
    kinds.AIM_SERVICE: {
        "model": {
            "name": "m",
            "image": "example.com/aim:0.13",
            "custom": {"baseImage": "example.com/base:1", "modelSources": MODEL_SOURCES, "hardware": HARDWARE},
        },
        "template": {"name": "t", "allowUnoptimized": True},
        "profile": {"name": "p", "selector": {"matchLabels": {}}},
        "profileOverrides": {
            "modelSources": MODEL_SOURCES,
            "features": ["adapters", "adapters-scale-only"],
            "acceleratorModel": "MI325X",
            "acceleratorVendor": "amd",
            "acceleratorCount": 2,
            "acceleratorPartitioningMode": "unpartitioned",
            "containerEnv": ENV,
            "engineEnv": {"A": "b"},
            "engineArgs": {"max-model-len": 4096},
        },
        "adapterMode": "dynamic",
        "adapters": [
            {"name": "a", "kind": "AIMArtifact", "sourceUri": "hf://o/n", "modelId": 7, "rank": "any"},
            {"name": "b", "kind": "AIMArtifact"},
        ],
        "adapterRuntime": MAX_RANK,
        "caching": {"mode": "Auto", "env": ENV},
        "replicas": 2,
        "minReplicas": 0,
        "maxReplicas": 4,
        "autoScaling": {"metrics": []},
        "routing": {},
        "scaleFromZero": True,
        "overrides": {"metric": "latency", "precision": "fp8", "hardware": HARDWARE},
        "cacheModel": True,
        "runtimeConfigName": "default",
        "storage": STORAGE,
        "env": ENV,
        "resources": RESOURCES,
        "imagePullSecrets": PULL_SECRETS,
        "serviceAccountName": "serving",
        "priorityClassName": "high",
    },
    kinds.AIM_ARTIFACT: {
        "type": "adapter",
        "sourceUri": "s3://bucket/prefix/",
        "modelId": "org/name",
        "parentArtifact": "base",
        "compatibleWith": ["org/base"],
        "rank": 16,
        "adapterDisk": {"size": 50, "storageClassName": "shared"},
        "size": "60Gi",
        "storageClassName": "fast",
        "env": ENV,
        "modelDownloadImage": "example.com/tool:1",
        "downloadFilter": FILTER,
        "imagePullSecrets": PULL_SECRETS,
        "runtimeConfigName": "default",
        "retentionPriority": 3,
    },
    kinds.AIM_RUNTIME_CONFIG: _RUNTIME_CONFIG,
    kinds.AIM_CLUSTER_RUNTIME_CONFIG: {**_RUNTIME_CONFIG, "artifactStorageQuota": {"limit": "1Ti"}},
    kinds.AIM_PROFILE: {**_PROFILE, "caching": CACHING},
    kinds.AIM_CLUSTER_PROFILE: _PROFILE,
    kinds.AIM_PROFILE_CACHE: {
        "profileName": "p",
        "profileScope": "Cluster",
        "storageClassName": "fast",
        "env": ENV,
        "runtimeConfigName": "default",
        "mode": "Dedicated",
        "requiresAdapterDisk": True,
    },
    kinds.AIM_MODEL: _MODEL,
    kinds.AIM_CLUSTER_MODEL: _MODEL,
    kinds.AIM_SERVICE_TEMPLATE: _TEMPLATE,
    kinds.AIM_CLUSTER_SERVICE_TEMPLATE: _TEMPLATE,
    kinds.AIM_TEMPLATE_CACHE: {
        "templateName": "t",
        "templateScope": "Namespace",
        "env": ENV,
        "imagePullSecrets": PULL_SECRETS,
        "storageClassName": "fast",
        "downloadImage": "example.com/tool:1",
        "modelSources": MODEL_SOURCES,
        "runtimeConfigName": "default",
        "mode": "Shared",
        "requiresAdapterDisk": True,
    },
}

_NOW = "2026-01-02T03:04:05Z"
_CONDITIONS: list[JsonObject] = [
    {
        "type": "Ready",
        "status": "True",
        "reason": "AsItShouldBe",
        "message": "all is well",
        "lastTransitionTime": _NOW,
        "observedGeneration": 3,
    }
]
_REFERENCE: JsonObject = {"name": "n", "namespace": "ns", "scope": "Merged", "kind": "K", "uid": "u"}
_COMMON: JsonObject = {"observedGeneration": 3, "conditions": _CONDITIONS}
_CACHED: JsonObject = {
    "uid": "u",
    "name": "n",
    "model": "org/name",
    "status": "Ready",
    "persistentVolumeClaim": "c",
    "mountPoint": "/workspace/cache/org/name",
}
_PROFILE_STATUS: JsonObject = {
    **_COMMON,
    "status": "Ready",
    "deployable": True,
    "matchingNodes": 4,
    "hardwareSummary": "4 x MI300X",
    "resolvedNodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": []}},
    "origin": "discovery",
}
_MODEL_STATUS: JsonObject = {**_COMMON, "status": "Ready", "resolvedRuntimeConfig": _REFERENCE}
_TEMPLATE_STATUS: JsonObject = {**_MODEL_STATUS, "resolvedModel": _REFERENCE, "hardwareSummary": "1 x MI300X"}
_STATUSES: dict[Kind, JsonObject] = {
    kinds.AIM_SERVICE: {
        **_COMMON,
        "status": "Running",
        "resolvedProfile": _REFERENCE,
        "resolvedModel": _REFERENCE,
        "resolvedTemplate": _REFERENCE,
        "resolvedRuntimeConfig": _REFERENCE,
        "cache": {"profileCacheRef": _REFERENCE, "templateCacheRef": _REFERENCE, "retryAttempts": 1},
        "runtime": {
            "currentReplicas": 1,
            "desiredReplicas": 2,
            "minReplicas": 1,
            "maxReplicas": 4,
            "replicas": "1/2",
        },
        "adapters": [
            {
                "name": "a",
                "adapterPath": "a",
                "modelId": "org/a",
                "state": "Downloading",
                "lastError": "Reason: message",
                "lastObserved": _NOW,
                "loadedReplicas": 1,
                "rank": 8,
                "baseModelId": "org/base",
                "sizeBytes": 5_000_000_000,
                "stagedAt": _NOW,
                "leftDiskAt": _NOW,
                "digest": "sha256:00",
                "revision": "main",
                "progress": {"downloadedBytes": 1, "totalBytes": 5_000_000_000, "percentage": 0},
                "attempts": 1,
                "nextRetryTime": _NOW,
                "stageKey": "k",
                "artifactGeneration": 2,
                "stagedForMaxRank": 32,
                "lastRetryStaging": "1",
                "lastRestage": "2",
                "warnings": [{"reason": "BiasTrained", "message": "engines differ"}],
            }
        ],
        "adapterSummary": "0/1",
        "adapterMaxRank": 32,
        "adapterSubtreeSyncKey": "k",
        "adapterDiskPersistentVolumeClaim": "c",
        "adapterDiskPersistentVolumeClaimUid": "u",
        "lastRetryStaging": "1",
        "lastRestage": "2",
    },
    kinds.AIM_ARTIFACT: {
        **_COMMON,
        "status": "Progressing",
        "persistentVolumeClaim": "c",
        "mode": "Shared",
        "progress": {
            "totalBytes": 10,
            "downloadedBytes": 5,
            "percentage": 50,
            "displayPercentage": "50 %",
            "message": "downloading",
        },
        "download": {
            "protocol": "hf",
            "attempt": 1,
            "totalAttempts": 3,
            "message": "m",
            "nextRetryTime": _NOW,
            "key": "k",
            "completed": False,
            "reason": "SourceForbidden",
            "sizeBytes": 10,
            "lastRetry": "1",
        },
        "lastReapTime": _NOW,
        "lastReap": {"reason": "Reaped", "message": "m", "reclaimedBytes": 5, "removed": ["uid"]},
        "lastReapWorld": "0123456789ab",
        "lastReapRequest": "1",
        "displaySize": "10 B",
        "discoveredSizeBytes": 10,
        "allocatedSize": "66Gi",
        "headroomPercent": 10,
        "lastUsed": _NOW,
        "adapterPersistentVolumeClaim": "d",
        "adapterPath": "a",
        "resolvedParent": _REFERENCE,
        "parentModelId": "org/base",
        "compatibility": "fits org/base",
        "lastRestage": "2",
    },
    kinds.AIM_RUNTIME_CONFIG: _COMMON,
    kinds.AIM_CLUSTER_RUNTIME_CONFIG: _COMMON,
    kinds.AIM_PROFILE: _PROFILE_STATUS,
    kinds.AIM_CLUSTER_PROFILE: _PROFILE_STATUS,
    kinds.AIM_PROFILE_CACHE: {
        **_COMMON,
        "status": "Ready",
        "artifacts": {"n": _CACHED},
        "resolvedProfile": _REFERENCE,
    },
    kinds.AIM_MODEL: _MODEL_STATUS,
    kinds.AIM_CLUSTER_MODEL: _MODEL_STATUS,
    kinds.AIM_SERVICE_TEMPLATE: _TEMPLATE_STATUS,
    kinds.AIM_CLUSTER_SERVICE_TEMPLATE: _TEMPLATE_STATUS,
    kinds.AIM_TEMPLATE_CACHE: {
        **_COMMON,
        "status": "Ready",
        "artifacts": {"n": _CACHED},
        "resolvedTemplate": _REFERENCE,
    },
}


def full(kind: Kind, name: str = "full", namespace: str = "default") -> JsonObject:
    """Return a manifest of that kind with every spec field set; AIMService in the version that `kind` has."""
    metadata: JsonObject = {"name": name} | ({"namespace": namespace} if kind.namespaced else {})
    spec = next(spec for known, spec in _SPECS.items() if known.plural == kind.plural)
    return {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata, "spec": deepcopy(spec)}


def full_status(kind: Kind) -> JsonObject:
    """Return a status of that kind with every field set."""
    return deepcopy(_STATUSES[kind])
