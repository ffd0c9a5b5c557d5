"""Attempts of a user who has not read the manual: each one works, or reports the problem and the fix."""

from __future__ import annotations

import json
import time
from typing import Any

from api.view import JsonObject
from tests.cluster.product.both import on_both_pipelines
from tests.cluster.product.team import IMAGE, ON_DISK, TINY, Team

PAUSED = "aim.eai.amd.com/reconciliation-paused"


def _patch_status(team: Team, kind: str, name: str, patch: Any, how: str = "merge") -> None:
    argv = ("patch", kind, name, "-n", team.namespace, "--subresource=status", f"--type={how}", "-p", json.dumps(patch))
    team.cluster.kubectl(*argv)


def _model(team: Team, name: str, **spec: Any) -> JsonObject:
    body = {"sourceUri": f"hf://{TINY.model_id}", "modelId": TINY.model_id, "size": "16Mi"} | spec
    metadata = {"name": name, "namespace": team.namespace}
    return {"apiVersion": "aim.eai.amd.com/v1alpha1", "kind": "AIMArtifact", "metadata": metadata, "spec": body}


def _profile(team: Team, name: str, **spec: Any) -> JsonObject:
    body = {
        "aimId": "acme/tiny",
        "modelId": TINY.model_id,
        "image": IMAGE,
        "features": ["adapters"],
        "acceleratorModel": "MI300X",
        "acceleratorCount": 1,
        "modelSources": [{"modelId": TINY.model_id, "sourceUri": f"hf://{TINY.model_id}", "size": "16Mi"}],
    } | spec
    metadata = {"name": name, "namespace": team.namespace}
    return {"apiVersion": "aim.eai.amd.com/v1alpha2", "kind": "AIMProfile", "metadata": metadata, "spec": body}


def _profile_cache(team: Team) -> JsonObject:
    spec = {"profileName": "tiny-mi300x", "profileScope": "Cluster", "requiresAdapterDisk": True}
    return team._object("v1alpha2", "AIMProfileCache", "mine", spec)


def _template_cache(team: Team) -> JsonObject:
    spec = {"templateName": "tiny", "templateScope": "Namespace", "requiresAdapterDisk": True}
    return team._object("v1alpha1", "AIMTemplateCache", "mine", spec)


def _fetched(team: Team) -> int:
    """Return how often weights of this namespace's adapters were requested."""
    asked = (json.dumps(request) for request in team.requests("hub"))
    return sum(1 for request in asked if ".safetensors" in request and team.namespace in request)


@on_both_pipelines
def test_own_base_and_cache_are_adopted(team: Team) -> None:
    """An existing model artifact and cache are used unchanged: nothing is downloaded twice."""
    caches, reference = f"aim{team.pipeline}caches", f"{team.pipeline}CacheRef"
    cache = _profile_cache(team) if team.pipeline == "profile" else _template_cache(team)
    team.apply(_model(team, "my-base"), cache, team.adapter("a", team.put("a")), team.service("svc", ["a"]))
    team.until_loaded("svc", "a")
    bases = [a for a in team.cluster.items("aimartifacts", team.namespace) if a["spec"].get("type") != "adapter"]
    assert [base["metadata"]["name"] for base in bases] == ["my-base"]
    assert "adapterDisk" not in bases[0]["spec"]  # no controller writes a user's spec
    assert [c["metadata"]["name"] for c in team.cluster.items(caches, team.namespace)] == ["mine"]
    assert team.status("svc")["cache"][reference]["name"] == "mine"


@on_both_pipelines
def test_a_paused_service_is_not_changed(team: Team) -> None:
    team.apply(team.adapter("a", team.put("a")), team.service("svc", ["a"]))
    team.until_loaded("svc", "a")
    team.cluster.kubectl("annotate", "aimsvc", "svc", "-n", team.namespace, f"{PAUSED}=true")
    before, pods = team.isvc("svc")["metadata"]["generation"], team.running("svc")
    generation = team.status("svc")["observedGeneration"]
    team.apply(team.service("svc", [], replicas=2))
    time.sleep(3)
    assert team.isvc("svc")["metadata"]["generation"] == before
    assert team.running("svc") == pods
    assert team.entry("svc", "a")["state"] == "Loaded"
    assert team.status("svc")["observedGeneration"] == generation  # observedGeneration does not claim an unhandled spec
    team.cluster.kubectl("annotate", "aimsvc", "svc", "-n", team.namespace, f"{PAUSED}-")
    team.until("the edits to be followed", lambda: team.status("svc").get("runtime", {}).get("replicas") == "2/2")
    team.until("a to leave", lambda: not team.entry("svc", "a"))


@on_both_pipelines
def test_an_edited_status_is_corrected(team: Team) -> None:
    """One entry is removed, then all fields are falsified; another test covers a completely lost status."""
    team.apply(team.adapter("a", team.put("a")), team.adapter("b", team.put("b")), team.service("svc", ["a", "b"]))
    team.until_loaded("svc", "a", "b")
    pods = team.running("svc")
    asked = _fetched(team)
    _patch_status(team, "aimsvc", "svc", {"status": {"adapters": [team.entry("svc", "b")], "adapterMaxRank": None}})
    team.until_loaded("svc", "a", "b")
    team.until("the ceiling in the status", lambda: team.status("svc").get("adapterMaxRank") == 32)
    lies = {"conditions": None, "status": "Failed", "adapterSubtreeSyncKey": None, "observedGeneration": 1}
    _patch_status(team, "aimsvc", "svc", {"status": lies})
    team.until_running("svc")
    team.until_loaded("svc", "a", "b")
    assert team.running("svc") == pods
    assert _fetched(team) == asked


def test_a_pool_that_no_node_offers_is_named_with_its_labels(team: Team) -> None:
    team.apply(_profile(team, "rare", acceleratorModel="MI355X"), team.service("svc", profile={"name": "rare"}))

    def told() -> JsonObject | None:
        found = team.condition("svc", "InferenceServiceReady")
        return found if found.get("reason") in ("NoMatchingNode", "Unschedulable") else None

    found: JsonObject = team.until("the empty pool in the status", told)
    assert "MI355X" in found["message"] or "node" in found["message"]
    team.until("the labels", lambda: "aim-accelerator.MI355X" in json.dumps(team.status("svc")["conditions"]))
    profile = team.get("aimprofile", "rare")["status"]
    assert (profile["status"], profile["matchingNodes"]) == ("NotAvailable", 0)


def test_no_template_and_several_have_different_reasons(team: Team) -> None:
    source = {"modelId": TINY.model_id, "sourceUri": f"hf://{TINY.model_id}", "size": "16Mi"}
    first, template = team.model_and_template()
    second = {**template, "metadata": {**template["metadata"], "name": "tiny-2"}}
    bare = {**first, "metadata": {**first["metadata"], "name": "bare"}, "spec": {"image": IMAGE}}
    team.pipeline = "template"
    several, none = team.service("several"), team.service("none")
    none["spec"]["model"] = {"name": "bare"}
    team.apply(first, template, second, bare, several, none)
    team.until("several", lambda: team.condition("several", "CacheReady").get("reason") == "TemplateAmbiguous")
    team.until("none", lambda: team.condition("none", "CacheReady").get("reason") == "TemplateNotFound")
    assert "tiny, tiny-2" in team.condition("several", "Ready")["message"]
    assert source["modelId"] not in team.condition("none", "Ready")["message"]
    team.delete("aimservicetemplate", "tiny-2")
    team.until_running("several")


@on_both_pipelines
def test_a_class_that_cannot_be_shared_is_reported(team: Team) -> None:
    disk = {"size": "1Gi", "storageClassName": "aim-dev-rwo"}
    team.apply(_model(team, "base", adapterDisk=disk), team.adapter("a", team.put("a")), team.service("svc", ["a"]))
    team.until(
        "the storage class in the status", lambda: "aim-dev-rwo" in team.condition("svc", "Adapters").get("message", "")
    )
    artifact = {c["type"]: c for c in team.get("aimartifact", "base")["status"]["conditions"]}
    assert artifact["AdapterDiskReady"]["status"] == "False"
    assert "ReadWriteMany" in artifact["AdapterDiskReady"]["message"]


@on_both_pipelines
def test_the_status_stays_correct_while_the_base_of_a_server_is_deleted(team: Team) -> None:
    """The pods serve from the disk of the old base until the new disk has all adapters; the status reports it."""
    team.apply(team.adapter("a", team.put("a")), team.service("svc", ["a"]))
    team.until_loaded("svc", "a")
    (old,) = team.pods("svc")
    (base,) = [a for a in team.cluster.items("aimartifacts", team.namespace) if a["spec"].get("type") != "adapter"]
    team.cluster.kubectl("delete", "aimartifact", base["metadata"]["name"], "-n", team.namespace, "--wait=false")
    seen: set[str] = set()

    def replaced() -> bool:
        entry, models = team.entry("svc", "a"), team.models("svc")
        pods = [pod["metadata"]["uid"] for pod in team.pods("svc")]
        if pods == [old["metadata"]["uid"]] and "a" in models:
            seen.add(entry.get("state", "none"))
        return bool(pods) and old["metadata"]["uid"] not in pods

    team.until("the pod to be replaced", replaced, timeout=150)
    assert seen <= {"Loaded", *ON_DISK}, seen
    team.until_loaded("svc", "a")
    team.until_running("svc")
    team.until("the old claims to go", lambda: len(team.cluster.items("pvc", team.namespace)) == 2)


@on_both_pipelines
def test_a_deleted_disk_of_a_server_is_filled_again(team: Team) -> None:
    """Kubernetes keeps a claim while it is mounted; after its last pod, a new claim is filled."""
    team.apply(team.adapter("a", team.put("a")), team.service("svc", ["a"]))
    team.until_loaded("svc", "a")
    claim = team.status("svc")["adapterDiskPersistentVolumeClaim"]
    uid = team.get("pvc", claim)["metadata"]["uid"]
    team.cluster.kubectl("delete", "pvc", claim, "-n", team.namespace, "--wait=false")
    time.sleep(2)
    assert team.entry("svc", "a")["state"] == "Loaded"  # the adapter is served
    assert team.condition("svc", "Ready")["status"] == "True"
    team.until("the deletion in the status", lambda: "being deleted" in team.condition("svc", "Adapters")["message"])
    team.cluster.kubectl("delete", "pods", "--all", "-n", team.namespace, "--wait=true", "--grace-period=1", timeout=90)

    def anew() -> bool:
        return (team.get("pvc", claim).get("metadata") or {}).get("uid") not in (None, uid)

    team.until("a new claim", anew, timeout=120)
    team.until_loaded("svc", "a")
    team.until_running("svc")


def test_conditions_and_status_fields_of_other_programs_survive(team: Team) -> None:
    """Another program adds to the status of a service: it stays, and nothing is written because of it."""
    team.apply(team.service("svc"))
    team.until_running("svc")
    theirs = {"type": "Scanned", "status": "True", "reason": "Clean", "message": "no finding"}
    theirs["lastTransitionTime"] = "2026-03-01T00:00:00Z"
    add = [
        {"op": "add", "path": "/status/conditions/1", "value": theirs},
        {"op": "add", "path": "/status/scanReport", "value": {"id": 7}},
    ]
    _patch_status(team, "aimsvc", "svc", add, "json")
    before = team.until_at_rest(quiet=3)
    team.apply(team.service("svc", env=[{"name": "A", "value": "b"}]))
    team.until("a roll", lambda: team.isvc("svc")["metadata"]["generation"] > 1)
    team.until_running("svc")
    assert team.until_at_rest(quiet=3) != before
    status = team.status("svc")
    assert status["conditions"][1] == theirs
    assert status["scanReport"] == {"id": 7}


def test_manifests_of_the_public_operator_are_applied_strictly(team: Team) -> None:
    """GPU and CPU of a template as its documentation has them, and an exported status with unknown fields."""
    hardware = {"gpu": {"requests": 2, "model": "MI300X"}, "cpu": {"requests": "3", "limits": "6"}}
    source = {"modelId": TINY.model_id, "sourceUri": f"hf://{TINY.model_id}", "size": "16Mi"}
    model = team._object("v1alpha1", "AIMModel", "tiny", {"image": IMAGE, "modelSources": [source]})
    template = team._object("v1alpha1", "AIMServiceTemplate", "tiny", {"modelName": "tiny", "hardware": hardware})
    template["status"] = {"status": "Ready", "discoveryJob": {"name": "x"}, "conditions": []}
    body = {"model": {"name": "tiny"}, "adapterMode": "dynamic"}
    service = team._object("v1alpha1", "AIMService", "svc", body)
    service["status"] = {"status": "Running", "runtime": {"currentReplicas": 1}}
    for obj in (model, template, service):
        obj["metadata"]["creationTimestamp"] = None
    team.cluster.apply(model, template, service, args=("--validate=strict",))
    resources = team.until(
        "the server", lambda: team.isvc("svc") and team.isvc("svc")["spec"]["predictor"]["containers"][0]["resources"]
    )
    assert (resources["requests"]["amd.com/gpu"], resources["requests"]["cpu"]) == ("2", "3")
    assert resources["limits"]["cpu"] == "6"
