"""A service whose base is ready and has a disk: cases lay their differences over it."""

from __future__ import annotations

from typing import Any

from api.kinds import AIM_SERVICE
from api.names import stage_key
from reconcile.decision import Decision
from reconcile.service.facts import ServiceFacts
from reconcile.settings import ReconcileSettings
from rules.examples import manifest, surroundings
from rules.seen import see_service
from rules.validate import judge_stored
from tests.unit.reconcile.model.life import START

BASE: dict[str, Any] = {
    "kind": "AIMArtifact",
    "metadata": {"name": "qwen3-8b-base", "uid": "base-uid"},
    "status": {
        "status": "Ready",
        "persistentVolumeClaim": "qwen3-8b-cache",
        "adapterPersistentVolumeClaim": "qwen3-8b-adapters",
    },
}
CLAIM = {"metadata": {"name": "qwen3-8b-adapters", "uid": "claim-uid"}}
SYNCED = {
    "adapterDiskPersistentVolumeClaim": "qwen3-8b-adapters",
    "adapterDiskPersistentVolumeClaimUid": "claim-uid",
}
KEY = stage_key("", "hf://acme/medical-lora", "service-uid", "medical", "claim-uid")
STAGED = {"name": "medical", "state": "Downloaded", "digest": "sha256:1", "adapterPath": "medical"}


def profile(**spec: Any) -> dict[str, Any]:
    return {"kind": "AIMClusterProfile", "metadata": {"name": "qwen3-8b-mi300x"}, "spec": spec}


def observe(service: dict[str, Any], *world: dict[str, Any], **settings: Any) -> ServiceFacts:
    metadata = {"name": "chat", "uid": "service-uid", "generation": 1} | service.pop("metadata", {})
    known = surroundings([BASE, *world])
    obj = manifest("AIMService", {"metadata": metadata, **service})
    errors = tuple(judge_stored(AIM_SERVICE, obj, known).errors)
    facts = see_service(obj, known)
    return ServiceFacts(facts, START, ReconcileSettings(**settings), errors=errors, disk_claim=CLAIM)


def rendered(decision: Decision, kind: Any) -> list[Any]:
    return [obj for known, obj in (*decision.apply, *decision.create) if known == kind]


TEMPLATE: dict[str, Any] = {
    "kind": "AIMServiceTemplate",
    "metadata": {"name": "qwen3-8b-latency"},
    "spec": {
        "modelName": "qwen3-8b",
        "metric": "latency",
        "precision": "fp8",
        "hardware": {"gpu": {"model": "MI300X", "requests": 2}},
        "env": [{"name": "VLLM_USE_V1", "value": "1"}],
    },
}
