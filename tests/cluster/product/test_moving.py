"""aim-adapters takes over another operator's running service, claims and disk, without a restart."""

from __future__ import annotations

import json
from pathlib import Path

from api.view import JsonObject
from devcluster.base_models import write_base_model
from tests.cluster.product.both import on_both_pipelines
from tests.cluster.product.team import TINY, Team

OTHER = "another-operator"  # the setting adoptManagedBy of the test cluster
THEIRS = {"app.kubernetes.io/managed-by": OTHER}
PAUSED = "aim.eai.amd.com/reconciliation-paused"
TAKE_OVER = "aim.eai.amd.com/take-over"
NAME = "svc-by-another"  # a name that aim-adapters does not use


def named(team: Team, name: str) -> JsonObject:
    return {"name": name, "namespace": team.namespace}


def annotate(team: Team, kind: str, name: str, annotation: str) -> None:
    team.cluster.kubectl("annotate", kind, name, "-n", team.namespace, annotation)


def tell(team: Team, kind: str, name: str, status: JsonObject) -> None:
    """Patch a status."""
    patch = json.dumps({"status": status})
    argv = ("patch", kind, name, "-n", team.namespace, "--subresource=status", "--type=merge", "-p", patch)
    team.cluster.kubectl(*argv)


def base_with_their_claims(team: Team) -> None:
    """A base model whose claims another operator created and filled, with its own names and labels."""
    base = team._object("v1alpha1", "AIMArtifact", "base", {"type": "model", "sourceUri": f"hf://{TINY.model_id}"})
    base["metadata"]["annotations"] = {PAUSED: "true"}
    base["spec"] |= {"modelId": TINY.model_id, "size": "16Mi", "adapterDisk": {"size": "1Gi"}}
    team.apply(base)
    uid = team.get("aimartifact", "base")["metadata"]["uid"]
    owner = {"apiVersion": base["apiVersion"], "kind": "AIMArtifact", "name": "base", "uid": uid, "controller": True}
    claims = {"persistentVolumeClaim": "their-cache", "adapterPersistentVolumeClaim": "their-disk"}
    for name in claims.values():
        metadata = {"name": name, "namespace": team.namespace, "labels": THEIRS, "ownerReferences": [owner]}
        spec = {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Gi"}}}
        team.apply({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": spec})
    team.until(
        "their claims to be bound",
        lambda: all(team.get("pvc", name)["status"]["phase"] == "Bound" for name in claims.values()),
    )
    write_base_model(Path(team.cluster.info["claims"]) / team.namespace / "their-cache", TINY)
    tell(team, "aimartifact", "base", {"status": "Ready", **claims})


def serve_as_another(team: Team) -> None:
    """Replace the InferenceService by one that another operator wrote, and clear the status."""
    ours = team.isvc("svc")
    annotate(team, "aimservice", "svc", f"{PAUSED}=true")
    text = json.dumps(ours["spec"])
    projected = [v["configMap"]["name"] for v in ours["spec"]["predictor"]["volumes"] if "configMap" in v]
    assert len(projected) == (team.pipeline == "profile")
    for name in projected:
        text = text.replace(name, "their-profile")
        copy = team.get("configmap", name)["data"]
        team.apply({"apiVersion": "v1", "kind": "ConfigMap", "data": copy, "metadata": named(team, "their-profile")})
    team.delete("inferenceservice", ours["metadata"]["name"])
    spec = json.loads(text)
    container = spec["predictor"]["containers"][0]
    container["env"].append({"name": "THEIR_SETTING", "value": "1"})
    container.pop("startupProbe")
    metadata = named(team, NAME) | {"labels": ours["metadata"]["labels"] | THEIRS | {"example.org/engine": "vllm"}}
    metadata |= {"ownerReferences": ours["metadata"]["ownerReferences"], "annotations": ours["metadata"]["annotations"]}
    theirs = {"apiVersion": ours["apiVersion"], "kind": ours["kind"], "metadata": metadata, "spec": spec}
    team.cluster.kubectl("create", f"--field-manager={OTHER}", "-f", "-", input=theirs)
    found = team.get("aimservice", "svc")
    forgotten: JsonObject = dict.fromkeys(found["status"])
    tell(team, "aimservice", "svc", forgotten | {"status": "Running"})
    team.until("their server to be ready", lambda: ready_pods(team) == 1 and len(pods(team)) == 1)


def pods(team: Team) -> dict[str, int]:
    """Return the predictor's pods with their restarts, by UID."""
    selector = f"serving.kserve.io/inferenceservice={NAME}"
    return {
        pod["metadata"]["uid"]: sum(s["restartCount"] for s in pod["status"].get("containerStatuses", []))
        for pod in team.cluster.items("pods", team.namespace, "-l", selector)
    }


def ready_pods(team: Team) -> int:
    """Return the number of ready pods."""
    return int((team.get("deployment", f"{NAME}-predictor").get("status") or {}).get("readyReplicas", 0))


def env_of(team: Team) -> dict[str, str]:
    """Return the environment of the InferenceService."""
    container = team.get("inferenceservice", NAME)["spec"]["predictor"]["containers"][0]
    return {entry["name"]: entry.get("value", "") for entry in container["env"]}


def served_message(team: Team) -> str:
    """Return the condition of the InferenceService in the status."""
    return str(team.condition("svc", "InferenceServiceReady").get("message", ""))


@on_both_pipelines
def test_a_live_service_of_another_operator_is_taken_over_without_a_restart(team: Team) -> None:
    base_with_their_claims(team)
    team.apply(team.adapter("a", team.put("a")), team.adapter("b", team.put("b")), team.service("svc", ["a"]))
    team.until("our InferenceService to take the place of theirs", lambda: team.isvc("svc"))
    serve_as_another(team)
    before, template = pods(team), team.get("inferenceservice", NAME)["metadata"]["generation"]

    for kind, name in (("aimartifact", "base"), ("aimservice", "svc")):
        annotate(team, kind, name, f"{PAUSED}-")
    team.until_loaded("svc", "a")
    team.until_running("svc")
    team.until("its status to say whose it is", lambda: OTHER in served_message(team))
    team.apply(team.service("svc", ["a", "b"], env=[{"name": "NEW", "value": "1"}]))
    team.until_loaded("svc", "a", "b")
    assert pods(team) == before
    assert team.get("inferenceservice", NAME)["metadata"]["generation"] == template, "left as it is, spec or no spec"
    assert {claim["metadata"]["name"] for claim in team.cluster.items("pvc", team.namespace)} == {
        "their-cache",
        "their-disk",
    }
    team.until("the base to be ready", lambda: team.get("aimartifact", "base")["status"]["status"] == "Ready")

    annotate(team, "aimservice", "svc", f"{TAKE_OVER}=true")
    team.until("its spec to be followed", lambda: env_of(team).get("NEW") == "1")
    assert "THEIR_SETTING" not in env_of(team)
    team.until("its pods to be replaced, once", lambda: not pods(team).keys() & before.keys() and ready_pods(team) == 1)
    team.until_loaded("svc", "a", "b")
    assert len(team.cluster.items("isvc", team.namespace)) == 1
