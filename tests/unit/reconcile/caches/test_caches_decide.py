"""Which artifacts a cache adopts or makes, and its status."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.kinds import AIM_ARTIFACT, AIM_PROFILE_CACHE, AIM_TEMPLATE_CACHE
from api.models import MODELS
from reconcile.caches.decide import CacheFacts, decide
from reconcile.decision import Decision
from reconcile.objects import artifact_names, merge_patch
from rules.examples import manifest
from rules.validate import judge_stored
from rules.worlds import SnapshotWorld
from tests.unit.reconcile.model.life import START

URI = "hf://Qwen/Qwen3-8B"
SOURCE = {"modelId": "Qwen/Qwen3-8B", "sourceUri": URI, "size": "16Gi"}


def cache(status: dict[str, Any] | None = None, metadata: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    meta = {"uid": "cache-uid", "generation": 2} | (metadata or {})
    made = manifest("AIMProfileCache", {"metadata": meta, "spec": spec})
    return made | ({"status": status} if status else {})


def artifact(name: str, created: str = "2026-01-01T00:00:00Z", **parts: Any) -> dict[str, Any]:
    metadata = {"name": name, "uid": f"{name}-uid", "creationTimestamp": created} | parts.pop("metadata", {})
    return {"metadata": metadata, "spec": {"sourceUri": URI, "modelId": "Qwen/Qwen3-8B"}, **parts}


def observe(obj: dict[str, Any], *artifacts: dict[str, Any], sources: Any = (SOURCE,), **rest: Any) -> CacheFacts:
    return CacheFacts(obj, AIM_PROFILE_CACHE, START, 'AIMProfile "p"', sources, {URI: artifacts}, **rest)


def ready(decision: Decision) -> tuple[str, str]:
    entry = next(entry for entry in decision.status["conditions"] if entry["type"] == "ArtifactsReady")
    return entry["status"], entry["reason"]


def owned_by(kind: str, name: str, uid: str) -> dict[str, Any]:
    return {"metadata": {"ownerReferences": [{"kind": kind, "name": name, "uid": uid}]}}


READY: dict[str, Any] = {"status": {"status": "Ready", "persistentVolumeClaim": "claim"}}
FAILED: dict[str, Any] = {
    "status": {
        "status": "Failed",
        "conditions": [{"type": "Ready", "status": "False", "reason": "SourceGated", "message": "m"}],
    }
}
GOING: dict[str, Any] = {"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}
OWNED: dict[str, Any] = {
    "metadata": {"ownerReferences": [{"kind": "AIMProfileCache", "name": "c", "uid": "cache-uid"}]}
}
FOREIGN: dict[str, Any] = {
    "metadata": {"ownerReferences": [{"kind": "AIMProfileCache", "name": "d", "uid": "other-uid"}]}
}
GITOPS: dict[str, Any] = {"metadata": {"ownerReferences": [{"kind": "Application", "name": "a", "uid": "app-uid"}]}}
OLD = "2025-01-01T00:00:00Z"
MADE = "qwen3-8b-hf-qwen-qwen3-8b-c98e9bef"
RECORDED = {"artifacts": {"young": {"name": "young", "uid": "young-uid"}}}
CASES: dict[str, tuple[CacheFacts, list[str], tuple[str, str], str, int]] = {
    "its profile does not exist": (observe(cache(), sources=None), [], ("False", "NoCaches"), "Pending", 0),
    "its profile has no sources": (observe(cache(), sources=()), [], ("False", "NoCaches"), "Pending", 0),
    "no artifact has the source": (observe(cache()), [MADE], ("False", "CreatingCaches"), "Progressing", 1),
    "an artifact has it": (observe(cache(), artifact("a", **READY)), ["a"], ("True", "AllCachesReady"), "Ready", 0),
    "not ready": (observe(cache(), artifact("a")), ["a"], ("False", "CachesNotReady"), "Progressing", 0),
    "failed": (observe(cache(), artifact("a", **FAILED)), ["a"], ("False", "CachesNotReady"), "Failed", 0),
    "of several the oldest": (
        observe(cache(), artifact("young", **READY), artifact("old", OLD, **READY)),
        ["old"],
        ("True", "AllCachesReady"),
        "Ready",
        0,
    ),
    "the recorded one stays": (
        observe(cache(RECORDED), artifact("young", **READY), artifact("old", OLD, **READY)),
        ["young"],
        ("True", "AllCachesReady"),
        "Ready",
        0,
    ),
    "the recorded one is going: another is there": (
        observe(cache(RECORDED), artifact("young", **GOING), artifact("old", OLD, **READY)),
        ["old"],
        ("True", "AllCachesReady"),
        "Ready",
        0,
    ),
    "the only one is going: its successor is made at once": (
        observe(cache(RECORDED), artifact("young", **GOING)),
        [MADE],
        ("False", "CreatingCaches"),
        "Progressing",
        1,
    ),
    "the one of our own name is going: its successor waits for the name": (
        observe(cache(), artifact(MADE, **GOING)),
        [],
        ("False", "ArtifactTerminating"),
        "Pending",
        0,
    ),
    "another cache's own is not taken": (
        observe(cache(), artifact("a", **FOREIGN, **READY)),
        [MADE],
        ("False", "CreatingCaches"),
        "Progressing",
        1,
    ),
    "a foreign owner is not a cache": (
        observe(cache(), artifact("a", **GITOPS, **READY)),
        ["a"],
        ("True", "AllCachesReady"),
        "Ready",
        0,
    ),
    "a dedicated cache takes no other's": (
        observe(cache(mode="Dedicated"), artifact("a", **READY)),
        ["qwen3-8b-hf-qwen-qwen3-8b-cache-uid-c3e9f3e8"],
        ("False", "CreatingCaches"),
        "Progressing",
        1,
    ),
    "a dedicated cache keeps its own": (
        observe(cache(mode="Dedicated"), artifact("a", **OWNED, **READY)),
        ["a"],
        ("True", "AllCachesReady"),
        "Ready",
        0,
    ),
}


@pytest.mark.parametrize(("seen", "names", "condition", "phase", "made"), CASES.values(), ids=CASES)
def test_cache(seen: CacheFacts, names: list[str], condition: tuple[str, str], phase: str, made: int) -> None:
    decision = decide(seen)
    assert sorted(decision.status["artifacts"]) == names
    assert (ready(decision), decision.status["status"], len(decision.create)) == (condition, phase, made)
    MODELS[AIM_PROFILE_CACHE].model_validate({**seen.cache, "status": decision.status})
    again = decide(replace(seen, cache={**seen.cache, "status": decision.status}))
    assert merge_patch(decision.status, again.status) == {}
    assert sorted(artifact_names({**seen.cache, "status": decision.status})) == names


def test_what_is_made_is_admitted() -> None:
    env = [
        {"name": "HF_TOKEN", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}},
        {"name": "HOME", "value": "/x"},
    ]
    seen = observe(cache(env=env, storageClassName="fast", runtimeConfigName="default"))
    ((_, made),) = decide(seen).create
    assert "ownerReferences" not in made["metadata"]  # it outlives the cache
    assert [entry["name"] for entry in made["spec"]["env"]] == ["HF_TOKEN"]
    assert made["spec"]["storageClassName"] == "fast"
    MODELS[AIM_ARTIFACT].model_validate(made)
    assert judge_stored(AIM_ARTIFACT, made, SnapshotWorld()).errors == []


def test_beside_a_typed_s3_block_no_credentials_are_copied() -> None:
    env = [{"name": "AWS_SECRET_ACCESS_KEY", "value": "x"}, {"name": "AWS_MAX_ATTEMPTS", "value": "3"}]
    ((_, made),) = decide(replace(observe(cache(env=env)), typed_s3=True)).create
    assert [entry["name"] for entry in made["spec"]["env"]] == ["AWS_MAX_ATTEMPTS"]


def test_two_caches_agree_on_the_name() -> None:
    first, second = (decide(observe(cache(metadata={"uid": uid}))).create[0][1] for uid in ("one", "two"))
    assert first == second


def test_the_resolved_profile_is_reported() -> None:
    reference = {"kind": "AIMProfile", "name": "p", "scope": "Cluster"}
    assert decide(observe(cache(), resolved=reference)).status["resolvedProfile"] == reference
    template = manifest("AIMTemplateCache", {"metadata": {"uid": "u"}})
    seen = replace(observe(template, resolved=reference), kind=AIM_TEMPLATE_CACHE)
    status = decide(seen).status
    assert status["resolvedTemplate"] == reference
    MODELS[AIM_TEMPLATE_CACHE].model_validate(template | {"status": status})


def test_the_same_source_twice_is_one_artifact() -> None:
    assert len(decide(observe(cache(), sources=(SOURCE, SOURCE))).create) == 1


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@given(
    st.fixed_dictionaries({"metadata": st.just({"name": "c", "uid": "u"})}, optional={"spec": JSON, "status": JSON}),
    st.lists(
        JSON | st.fixed_dictionaries({"sourceUri": st.just(URI)}, optional={"env": JSON, "size": JSON}), max_size=3
    ),
    st.lists(st.fixed_dictionaries({"metadata": JSON, "spec": st.just({"sourceUri": URI})}), max_size=2),
)
def test_deciding_never_raises(obj: dict[str, Any], sources: Any, artifacts: Any) -> None:
    decide(observe(obj, *artifacts, sources=sources))
