"""InferenceServices and Jobs as they are rendered, for the shapes that people run."""

from __future__ import annotations

from typing import Any

import pytest

from api.kinds import CONFIG_MAP, INFERENCE_SERVICE, JOB
from devcluster.kserve import decide as kserve
from devcluster.kserve.words import STANDARD
from reconcile.jobs import read_job
from reconcile.service.decide import decide
from reconcile.service.facts import ServiceFacts
from tests.unit.reconcile.golden import check_golden
from tests.unit.reconcile.service.scene import CLAIM, KEY, STAGED, SYNCED, TEMPLATE, observe, profile, rendered

DYNAMIC = {"adapterMode": "dynamic"}
LONG = "a-very.long-name-" + "x" * 60
SHAPES: dict[str, tuple[dict[str, Any], tuple[dict[str, Any], ...], dict[str, Any]]] = {
    "mi300x-1-plain": ({"spec": {}}, (), {}),
    "mi300x-1-dynamic": ({"spec": DYNAMIC, "status": SYNCED}, (), {}),
    "mi300x-2-static": (
        {
            "spec": {"adapters": [{"name": "medical", "kind": "AIMArtifact"}]},
            "status": SYNCED | {"adapters": [STAGED | {"stageKey": KEY}]},
        },
        (profile(acceleratorCount=2),),
        {},
    ),
    "mi325x-4": ({"spec": {}}, (profile(acceleratorModel="MI325X", acceleratorCount=4),), {}),
    "mi355x-8-partitioned": (
        {"spec": {}},
        (profile(acceleratorModel="MI355X", acceleratorCount=8, acceleratorPartitioningMode="cpx-nps4"),),
        {},
    ),
    "unknown-accelerator": ({"spec": {}}, (profile(acceleratorModel="MI999Z"),), {}),
    "cpu-profile": ({"spec": {}}, (profile(acceleratorType="cpu", acceleratorModel=None),), {}),
    "full-profile": (
        {"spec": {}},
        (
            profile(
                profileId="vllm-mi300x-fp8-tp1-latency",
                engine="vllm",
                metric="latency",
                precision="fp8",
                type="optimized",
                engineArgs={"max_model_len": 8192, "quantization": "fp8"},
                engineEnv={"VLLM_ROCM_USE_AITER": "1"},
                containerEnv=[{"name": "NCCL_DEBUG", "value": "WARN"}],
                resources={"requests": {"cpu": "8"}},
                imagePullSecrets=[{"name": "registry"}],
                serviceAccountName="profile-account",
            ),
        ),
        {},
    ),
    "overrides": (
        {
            "spec": {
                "profileOverrides": {
                    "features": ["adapters"],
                    "acceleratorModel": "MI300A",
                    "acceleratorCount": 2,
                    "containerEnv": [{"name": "NCCL_DEBUG", "value": "INFO"}],
                    "engineEnv": {"A": "1"},
                    "engineArgs": {"max-model-len": 4096},
                }
            }
        },
        (profile(features=None, engine="vllm", containerEnv=[{"name": "NCCL_DEBUG", "value": "WARN"}]),),
        {},
    ),
    "everything-of-the-service": (
        {
            "metadata": {
                "labels": {"aim.eai.amd.com/team": "blue", "team.example.com/cost": "42", "app": "mine"},
                "annotations": {"cluster-auth/allowed-group": "admins", "other": "no"},
            },
            "spec": {
                "env": [
                    {"name": "Z_FIRST", "value": "z"},
                    {"name": "A_LAST", "value": "$(Z_FIRST)/x"},
                    {"name": "AIM_ENGINE_ARGS", "value": '{"max-num-seqs": 8}'},
                    {"name": "SECRET", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}},
                ],
                "resources": {"requests": {"memory": "100Gi"}, "limits": {"cpu": 2}},
                "imagePullSecrets": [{"name": "mine"}],
                "serviceAccountName": "server",
                "priorityClassName": "high",
                "minReplicas": 1,
                "maxReplicas": 4,
            },
        },
        (
            profile(imagePullSecrets=[{"name": "registry"}, {"name": "mine"}]),
            {
                "kind": "AIMRuntimeConfig",
                "metadata": {"name": "default"},
                "spec": {
                    "labelPropagation": {"enabled": True, "match": ["team.example.com/*", "app"]},
                    "imagePullSecrets": [{"name": "shared"}],
                    "serviceAccountName": "unused",
                },
            },
        ),
        {},
    ),
    "fixed-replicas-3": ({"spec": {"replicas": 3}}, (), {}),
    "no-replicas": ({"spec": {"replicas": 0}}, (), {}),
    "restricted-with-surge": (
        {"spec": {}},
        (),
        {"security_profile": "restricted", "max_surge": 1, "max_unavailable": 0},
    ),
    "old-kserve": ({"spec": {}}, (), {"deployment_mode": "RawDeployment"}),
    "long-name": ({"metadata": {"name": LONG}, "spec": {"profile": {"name": "qwen3-8b-mi300x"}}}, (), {}),
    "template": ({"spec": {"profile": None, "model": {"name": "qwen3-8b"}}}, (TEMPLATE,), {}),
    "template-dynamic": (
        {"spec": {"profile": None, "model": {"name": "qwen3-8b"}, **DYNAMIC}, "status": SYNCED},
        (TEMPLATE,),
        {},
    ),
    "bare-image": ({"spec": {"profile": None, "model": {"image": "registry.example/aim:0.13.0"}}}, (), {}),
    "custom-model": (
        {
            "spec": {
                "profile": None,
                "model": {
                    "custom": {
                        "baseImage": "registry.example/vllm:1",
                        "modelSources": [{"modelId": "Qwen/Qwen3-8B", "sourceUri": "hf://Qwen/Qwen3-8B"}],
                        "hardware": {"gpu": {"model": "MI300X", "requests": 1}},
                    }
                },
            }
        },
        (),
        {},
    ),
}


@pytest.mark.parametrize("name", SHAPES)
def test_inference_service(name: str) -> None:
    service, world, settings = SHAPES[name]
    decision = decide(observe(dict(service), *world, **settings))
    (isvc,) = rendered(decision, INFERENCE_SERVICE)
    check_golden("inference_service", name, isvc)
    for config_map in rendered(decision, CONFIG_MAP):
        check_golden("inference_service", f"{name}.profile", config_map)
    isvc["metadata"]["uid"] = "isvc-uid"
    kserve.check(isvc, STANDARD)
    assert kserve.plan(isvc).deployment["spec"]["template"]["spec"]["containers"][0]["name"] == "kserve-container"


POOLS = [
    (model, count, partitioning)
    for model in ("MI300X", "MI325X", "MI355X")
    for count in (1, 2, 4, 8)
    for partitioning in (None, "unpartitioned", "cpx-nps4")
]


def test_every_pool_and_size_on_both_pipelines() -> None:
    """What follows from accelerator, count and partition mode: the resources, the pool's labels, the toleration."""
    table = {}
    for model, count, partitioning in POOLS:
        spec = {"acceleratorModel": model, "acceleratorCount": count, "acceleratorPartitioningMode": partitioning}
        (isvc,) = rendered(decide(observe({"spec": {}}, profile(**spec))), INFERENCE_SERVICE)
        table[f"{model} x {count} {partitioning or '-'}"] = shape = _shape(isvc)
        if partitioning is None:
            template = TEMPLATE | {
                "spec": TEMPLATE["spec"] | {"hardware": {"gpu": {"model": model, "requests": count}}}
            }
            service = {"spec": {"profile": None, "model": {"name": "qwen3-8b"}}}
            (other,) = rendered(decide(observe(service, template)), INFERENCE_SERVICE)
            assert _shape(other) == shape
    check_golden("inference_service", "pools", table)


def _shape(isvc: Any) -> dict[str, Any]:
    predictor = isvc["spec"]["predictor"]
    affinity = predictor["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    terms = [
        " and ".join(" ".join([word["key"], *word.get("values", ())]) for word in term["matchExpressions"])
        for term in affinity["nodeSelectorTerms"]
    ]
    resources = {
        part: " ".join(f"{key}={value}" for key, value in sorted(values.items()))
        for part, values in predictor["containers"][0]["resources"].items()
    }
    return {"any of": terms, "tolerations": predictor["tolerations"], **resources}


@pytest.mark.parametrize("name", SHAPES)
def test_the_same_again_is_not_a_write(name: str) -> None:
    service, world, settings = SHAPES[name]
    seen = observe(dict(service), *world, **settings)
    (isvc,) = rendered(decide(seen), INFERENCE_SERVICE)
    live = isvc | {"metadata": isvc["metadata"] | {"uid": "isvc-uid", "finalizers": ["inferenceservice.finalizers"]}}
    live["metadata"]["annotations"] = live["metadata"]["annotations"] | {"kubectl.kubernetes.io/restartedAt": "now"}
    again = ServiceFacts(seen.facts, seen.now, seen.settings, errors=seen.errors, disk_claim=CLAIM, isvc=live)
    decision = decide(again)
    assert rendered(decision, INFERENCE_SERVICE) == []
    assert decision.events == ()


def test_staging_and_sync_jobs() -> None:
    service = {
        "spec": {
            **DYNAMIC,
            "adapters": [{"name": "medical", "kind": "AIMArtifact"}],
            "imagePullSecrets": [{"name": "mine"}],
            "caching": {"env": [{"name": "HF_ENDPOINT", "value": "http://hub"}, {"name": "HOME", "value": "/x"}]},
        }
    }
    config = {
        "kind": "AIMRuntimeConfig",
        "metadata": {"name": "default"},
        "spec": {"env": [{"name": "HF_TOKEN", "valueFrom": {"secretKeyRef": {"name": "hub", "key": "token"}}}]},
    }
    seen = observe(dict(service), config)
    (sync,) = rendered(decide(seen), JOB)
    check_golden("jobs", "sync", sync)
    key = sync["metadata"]["annotations"]["aim.eai.amd.com/sync-key"]
    (stage,) = rendered(decide(observe(service | {"status": SYNCED | {"adapterSubtreeSyncKey": key}}, config)), JOB)
    check_golden("jobs", "stage", stage)
    assert read_job(stage, ()).key == stage["metadata"]["annotations"]["aim.eai.amd.com/stage-key"]


def test_a_typed_s3_block_mounts_its_credentials() -> None:
    config = {
        "kind": "AIMRuntimeConfig",
        "metadata": {"name": "store"},
        "spec": {
            "env": [{"name": "AWS_SECRET_ACCESS_KEY", "value": "x"}, {"name": "AWS_MAX_ATTEMPTS", "value": "9"}],
            "artifact": {
                "s3": {
                    "endpoint": "https://minio:9000",
                    "region": "eu",
                    "addressingStyle": "path",
                    "auth": {"mode": "static", "credentialsSecretRef": {"name": "keys"}},
                    "tls": {"caBundleRef": {"kind": "ConfigMap", "name": "ca", "key": "bundle.pem"}},
                }
            },
        },
    }
    spec = {"sourceUri": "s3://bucket/medical/", "runtimeConfigName": "store"}
    adapter = {"kind": "AIMArtifact", "metadata": {"name": "medical", "uid": "adapter-uid"}, "spec": spec}
    service = {"spec": {**DYNAMIC, "adapters": [{"name": "medical", "kind": "AIMArtifact"}]}}
    (sync,) = rendered(decide(observe(dict(service), config, adapter)), JOB)
    key = sync["metadata"]["annotations"]["aim.eai.amd.com/sync-key"]
    status = SYNCED | {"adapterSubtreeSyncKey": key}
    (stage,) = rendered(decide(observe(service | {"status": status}, config, adapter)), JOB)
    check_golden("jobs", "stage-s3", stage)
