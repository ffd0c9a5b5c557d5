"""Reviews as kube-apiserver sends them (managedFields included), with the verdict that each must get."""

from __future__ import annotations

import copy
import json
import random
from dataclasses import dataclass

import orjson

from api.view import JsonObject

GROUP = "aim.eai.amd.com"
NAMESPACE = "bench"
BASE = "acme/base-8b"
SERVICES, ARTIFACTS, PROFILES = 5_000, 20_000, 500
_TIME = "2026-01-01T00:00:00Z"


@dataclass(frozen=True, slots=True)
class Case:
    """One review body, and whether it must be admitted."""

    body: bytes
    allowed: bool
    fault: str


def world(services: int = SERVICES, artifacts: int = ARTIFACTS, profiles: int = PROFILES) -> list[JsonObject]:
    """Return the objects of the cache: those that reviews name, and many that they do not."""
    made = [*_named()]
    for index in range(artifacts):
        made.append(_artifact(f"other-{index}", f"team-{index % 50}"))
    for index in range(profiles):
        made.append(_profile(f"profile-{index}", ["adapters"]))
    for index in range(services):
        names = [f"other-{(index * 3 + step) % artifacts}" for step in range(3)]
        service = _service(f"service-{index}", names, dynamic=True, rng=random.Random(index))
        service["metadata"]["namespace"] = f"team-{index % 50}"
        service["metadata"].pop("managedFields")
        made.append(service)
    return made


def cases(count: int = 200, seed: int = 7) -> list[Case]:
    """Return the reviews: half creations, half updates; about a third to be refused."""
    rng = random.Random(seed)
    return [_case(index, rng) for index in range(count)]


def _named() -> list[JsonObject]:
    adapters = [_artifact(f"adapter-{index}", NAMESPACE, rank=(8, 16, 32)[index % 3]) for index in range(200)]
    base = _head("AIMArtifact", "v1alpha1", "base")
    base["spec"] = {"type": "model", "modelId": BASE, "sourceUri": f"hf://{BASE}"}
    return [*adapters, base, _profile("with-adapters", ["adapters"]), _profile("without", [])]


def _head(kind: str, version: str, name: str, namespace: str | None = NAMESPACE) -> JsonObject:
    metadata: JsonObject = {
        "name": name,
        "uid": f"uid-{kind}-{name}",
        "creationTimestamp": _TIME,
        "resourceVersion": "7",
    }
    if namespace is not None:
        metadata["namespace"] = namespace
    return {"apiVersion": f"{GROUP}/{version}", "kind": kind, "metadata": metadata}


def _artifact(name: str, namespace: str, rank: int = 16) -> JsonObject:
    obj = _head("AIMArtifact", "v1alpha1", name, namespace)
    obj["spec"] = {
        "type": "adapter",
        "modelId": f"acme/{name}",
        "sourceUri": f"s3://adapters/{name}/",
        "compatibleWith": [BASE],
        "rank": rank,
    }
    obj["status"] = {"status": "Ready", "adapterPath": name}
    return obj


def _profile(name: str, features: list[str]) -> JsonObject:
    obj = _head("AIMClusterProfile", "v1alpha2", name, None)
    obj["spec"] = {
        "aimId": "acme/base-8b",
        "image": "registry.example/aim/base-8b:0.13.2",
        "features": features,
        "acceleratorModel": "MI300X",
        "modelSources": [{"modelId": BASE, "sourceUri": f"hf://{BASE}"}],
    }
    return obj


def _service(name: str, adapters: list[str], *, dynamic: bool, rng: random.Random) -> JsonObject:
    obj = _head("AIMService", "v1alpha2", name)
    spec: JsonObject = {
        "profile": {"name": "with-adapters"},
        "adapterMode": "dynamic" if dynamic else "static",
        "adapters": [{"name": adapter, "kind": "AIMArtifact"} for adapter in adapters],
        "caching": {"mode": "Shared"},
        "replicas": rng.randint(1, 4),
        "env": [{"name": f"OPTION_{index}", "value": "x" * rng.randint(5, 40)} for index in range(rng.randint(1, 4))],
        "resources": {"requests": {"cpu": "4", "memory": "32Gi"}, "limits": {"cpu": "8", "memory": "64Gi"}},
        "imagePullSecrets": [{"name": "pull"}],
        "serviceAccountName": "serving",
    }
    if dynamic:
        spec["adapterRuntime"] = {"maxRank": rng.choice((32, 64, 128))}
    obj["spec"] = spec
    labels = {"app.kubernetes.io/name": name, "app.kubernetes.io/part-of": "chat", "team": "llm"}
    obj["metadata"]["labels"] = labels
    if rng.random() < 0.2:  # a client-side apply keeps a copy of the manifest
        applied = json.dumps({"metadata": {"name": name}, "spec": spec})
        obj["metadata"]["annotations"] = {"kubectl.kubernetes.io/last-applied-configuration": applied}
    obj["metadata"]["managedFields"] = [
        {
            "manager": "kubectl",
            "operation": "Apply",
            "apiVersion": obj["apiVersion"],
            "time": _TIME,
            "fieldsType": "FieldsV1",
            "fieldsV1": {"f:metadata": {"f:labels": _fields(labels)}, "f:spec": _fields(spec)},
        }
    ]
    return obj


def _fields(value: JsonObject) -> JsonObject:
    tree: JsonObject = {}
    for key, part in value.items():
        if isinstance(part, dict):
            tree[f"f:{key}"] = _fields(part)
        elif isinstance(part, list) and part and "name" in part[0]:
            names = [json.dumps({"name": entry["name"]}) for entry in part]
            tree[f"f:{key}"] = {f"k:{name}": {".": {}, "f:name": {}} for name in names}
        else:
            tree[f"f:{key}"] = {}
    return tree


def _case(index: int, rng: random.Random) -> Case:
    dynamic, update = index % 2 == 0, index % 4 >= 2
    names = [f"adapter-{number}" for number in rng.sample(range(200), rng.randint(1, 4))]
    new = _service(f"bench-{index}", names, dynamic=dynamic, rng=rng)
    old: JsonObject | None = None
    if update:
        new["status"] = _status(names)
        old = copy.deepcopy(new)
        new["spec"]["replicas"] += 1
        if dynamic:
            new["spec"]["adapters"].append({"name": f"adapter-{(index * 7) % 200}x", "kind": "AIMArtifact"})
        else:
            new["spec"]["adapters"].reverse()
    fault = _spoil(new, dynamic, update, rng) if rng.random() < 0.35 else ""
    return Case(orjson.dumps(_review(index, new, old)), not fault, fault)


def _status(names: list[str]) -> JsonObject:
    kinds = ("ConfigValid", "CacheReady", "Adapters", "InferenceServiceReady", "Ready")
    return {
        "status": "Running",
        "observedGeneration": 1,
        "adapters": [{"name": n, "adapterPath": n, "state": "Downloaded", "lastObserved": _TIME} for n in names],
        "runtime": {"currentReplicas": 2},
        "conditions": [
            {"type": kind, "status": "True", "reason": "Fine", "message": "", "lastTransitionTime": _TIME}
            for kind in kinds
        ],
    }


def _spoil(new: JsonObject, dynamic: bool, update: bool, rng: random.Random) -> str:
    faults = ["not an adapter", "no feature", "rank"] if dynamic else ["maxRank in static mode"]
    if update:
        faults.append("mode")
        if not dynamic:
            faults.append("static list")
    fault = rng.choice(faults)
    spec = new["spec"]
    if fault == "not an adapter":
        spec["adapters"].append({"name": "base", "kind": "AIMArtifact"})
    elif fault == "no feature":
        spec["profile"]["name"] = "without"
    elif fault == "rank":
        spec["adapterRuntime"]["maxRank"] = 1
    elif fault == "maxRank in static mode":
        spec["adapterRuntime"] = {"maxRank": 64}
    elif fault == "mode":
        spec["adapterMode"] = "static" if dynamic else "dynamic"
    else:
        spec["adapters"].append({"name": "adapter-0y", "kind": "AIMArtifact"})
    return fault


def _review(index: int, new: JsonObject, old: JsonObject | None) -> JsonObject:
    gvk = {"group": GROUP, "version": "v1alpha2", "kind": "AIMService"}
    gvr = {"group": GROUP, "version": "v1alpha2", "resource": "aimservices"}
    return {
        "kind": "AdmissionReview",
        "apiVersion": "admission.k8s.io/v1",
        "request": {
            "uid": f"00000000-0000-4000-8000-{index:012}",
            "kind": gvk,
            "resource": gvr,
            "requestKind": gvk,
            "requestResource": gvr,
            "name": new["metadata"]["name"],
            "namespace": NAMESPACE,
            "operation": "CREATE" if old is None else "UPDATE",
            "userInfo": {
                "username": "system:serviceaccount:delivery:controller",
                "groups": ["system:serviceaccounts", "system:serviceaccounts:delivery", "system:authenticated"],
            },
            "object": new,
            "oldObject": old,
            "dryRun": False,
            "options": {"kind": "CreateOptions" if old is None else "UpdateOptions", "apiVersion": "meta.k8s.io/v1"},
        },
    }
