"""Labels of a user never override those of aim-adapters, on anything that it creates."""

from __future__ import annotations

from typing import Any

import pytest

from api.kinds import AIM_PROFILE_CACHE, INFERENCE_SERVICE, JOB, PERSISTENT_VOLUME_CLAIM
from api.names import FIELD_OWNER, LABEL_ARTIFACT, LABEL_MANAGED_BY, LABEL_ROLE, LABEL_SERVICE, OWN_LABELS
from reconcile.artifact.decide import decide as decide_artifact
from reconcile.artifact.facts import ArtifactFacts
from reconcile.decision import Decision
from reconcile.service.decide import decide
from reconcile.settings import ReconcileSettings
from rules.examples import manifest
from rules.runtime_config import MergedRuntimeConfig
from tests.unit.reconcile.model.life import START
from tests.unit.reconcile.service.scene import KEY, STAGED, SYNCED, observe

HOSTILE = dict.fromkeys(OWN_LABELS, "Helm") | {"app.kubernetes.io/part-of": "shop"}
CONFIG = {"labelPropagation": {"enabled": True, "match": ["*", "app.kubernetes.io/*", "aim.eai.amd.com/*"]}}
RUNTIME_CONFIG = {"kind": "AIMRuntimeConfig", "metadata": {"name": "default"}, "spec": CONFIG}
ADAPTERS = {"adapters": [{"name": "medical", "kind": "AIMArtifact"}], "adapterMode": "dynamic"}
LOADED = SYNCED | {"adapters": [STAGED | {"stageKey": KEY}]}


def created(decision: Decision) -> list[tuple[str, dict[str, str]]]:
    """Return the kind and the labels of each created object, and of the pods of Jobs."""
    found: list[tuple[str, dict[str, str]]] = []
    for kind, obj in (*decision.apply, *decision.create):
        found.append((kind.kind, obj["metadata"].get("labels") or {}))
        if kind == JOB:
            found.append(("Pod", obj["spec"]["template"]["metadata"]["labels"]))
    return found


def of_service(spec: dict[str, Any], status: dict[str, Any]) -> Decision:
    return decide(observe({"metadata": {"labels": HOSTILE}, "spec": spec, "status": status}, RUNTIME_CONFIG))


@pytest.mark.parametrize(
    ("status", "kinds"),
    [({}, {JOB.kind}), (SYNCED, {JOB.kind}), (LOADED, {INFERENCE_SERVICE.kind})],
    ids=["sync", "staging", "served"],
)
def test_objects_of_a_service(status: dict[str, Any], kinds: set[str]) -> None:
    labels = created(of_service(ADAPTERS, status))
    assert kinds <= {kind for kind, _ in labels}
    for kind, found in labels:
        assert found[LABEL_MANAGED_BY] == FIELD_OWNER
        assert found.get(LABEL_SERVICE) == (None if kind == AIM_PROFILE_CACHE.kind else "chat")
        assert "Helm" not in found.values()
    assert any(found.get("app.kubernetes.io/part-of") == "shop" for _, found in labels)


@pytest.mark.parametrize("size", [None, "16Gi"], ids=["unmeasured", "measured"])
def test_objects_of_a_base_model(size: str | None) -> None:
    metadata = {"name": "qwen3-8b-base", "uid": "base-uid", "labels": HOSTILE}
    spec: dict[str, Any] = {"sourceUri": "hf://Qwen/Qwen3-8B", "size": size, "type": "model", "adapterDisk": {}}
    base = manifest("AIMArtifact", {"metadata": metadata, "spec": spec})
    seen = ArtifactFacts(
        base, START, ReconcileSettings(), MergedRuntimeConfig("default", RUNTIME_CONFIG, None), disk_wanted=True
    )
    labels = created(decide_artifact(seen))
    assert {JOB.kind, PERSISTENT_VOLUME_CLAIM.kind} & {kind for kind, _ in labels}
    for _, found in labels:
        assert found[LABEL_MANAGED_BY] == FIELD_OWNER
        assert found[LABEL_ARTIFACT] == "qwen3-8b-base"
        assert found[LABEL_ROLE] != "Helm"
        assert "Helm" not in found.values()
