"""Whatever keeps the pod of a Job from starting is in the status, in an event and in `why`; what helps, helps."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator

import pytest

from api.names import LABEL_ROLE, OWN_LABELS, ROLE_FETCH, ROLE_STAGING
from api.view import JsonObject
from tests.cluster.product.team import Team

_REPORTED = 25  # seconds; the product promises 15, on a machine that does nothing else


def _warnings(team: Team, kind: str, name: str) -> list[str]:
    """Return the reasons of the warnings about an object."""
    selector = f"involvedObject.kind={kind},involvedObject.name={name},type=Warning"
    return [event["reason"] for event in team.cluster.items("events", team.namespace, "--field-selector", selector)]


def _why(team: Team, service: str) -> str:
    done = team.cluster.run(sys.executable, "-m", "cli.main", "why", service, "-n", team.namespace, check=False)
    return done.stdout + done.stderr


def _typed(team: Team, secret: str) -> JsonObject:
    s3 = {
        "endpoint": team.cluster.info["s3"]["endpoint"],
        "auth": {"mode": "static", "credentialsSecretRef": {"name": secret}},
    }
    metadata = {"name": "typed", "namespace": team.namespace}
    return {
        "apiVersion": "aim.eai.amd.com/v1alpha1",
        "kind": "AIMRuntimeConfig",
        "metadata": metadata,
        "spec": {"artifact": {"s3": s3}},
    }


def _secret(team: Team, name: str) -> JsonObject:
    facts = team.cluster.info["s3"]
    data = {"accessKeyId": facts["accessKey"], "secretAccessKey": facts["secretKey"]}
    metadata = {"name": name, "namespace": team.namespace}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": data}


def _quota(team: Team, hard: dict[str, str]) -> JsonObject:
    metadata = {"name": "quota", "namespace": team.namespace}
    return {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": metadata, "spec": {"hard": hard}}


def test_a_secret_that_is_missing_and_a_job_that_is_suspended(team: Team) -> None:
    team.apply(
        _typed(team, "not-there"),
        team.adapter("french", team.put("french", where="s3"), runtimeConfigName="typed"),
        team.service("chat", ["french"]),
    )
    team.until("the cause", lambda: team.entry("chat", "french").get("lastError", "").startswith("FailedMount"))
    entry = team.entry("chat", "french")
    assert entry["state"] == "Pending"
    assert 'secret "not-there" not found' in entry["lastError"]
    assert 'artifact.s3.auth.credentialsSecretRef of AIMRuntimeConfig "typed"' in entry["lastError"]
    assert _warnings(team, "AIMService", "chat").count("FailedMount") == 1
    assert _warnings(team, "AIMArtifact", "french").count("FailedMount") == 1
    why = _why(team, "chat")
    assert "FailedMount" in why
    assert "create the object that the message names" in why
    (job,) = team.cluster.items("jobs", team.namespace, "-l", f"{LABEL_ROLE}={ROLE_STAGING}")
    suspend = ("patch", "job", job["metadata"]["name"], "-n", team.namespace, "--type=merge", "-p")
    team.cluster.kubectl(*suspend, '{"spec":{"suspend":true}}')
    team.until("the word", lambda: team.entry("chat", "french")["lastError"].startswith("JobSuspended"), _REPORTED)
    assert "JobSuspended" in _why(team, "chat")
    team.apply(_secret(team, "not-there"))
    team.cluster.kubectl(*suspend, '{"spec":{"suspend":false}}')
    team.until_loaded("chat", "french")
    assert "lastError" not in team.entry("chat", "french")


def test_a_quota_that_refuses_the_pod(team: Team) -> None:
    team.apply(_quota(team, {"count/pods": "0"}))
    team.apply(team.adapter("a", team.put("a")), team.service("chat", ["a"]))

    def base() -> JsonObject:
        found = [c for model in team.base_models() for c in (model.get("status") or {}).get("conditions") or []]
        return next((c for c in found if c["type"] == "Ready"), {})

    team.until("the cause", lambda: base().get("reason") == "DownloadBlocked", _REPORTED + 10)
    assert "FailedCreate: " in base()["message"]
    assert "exceeded quota: quota" in base()["message"]
    name = team.base_models()[0]["metadata"]["name"]
    assert _warnings(team, "AIMArtifact", name).count("FailedCreate") == 1
    why = _why(team, "chat")
    assert "exceeded quota" in why
    assert "change the quota or policy" in why
    team.cluster.kubectl("delete", "resourcequota", "quota", "-n", team.namespace)
    team.cluster.kubectl("delete", "jobs", "-n", team.namespace, "-l", f"{LABEL_ROLE}={ROLE_FETCH}")
    team.until_loaded("chat", "a")


def test_a_quota_that_demands_requests_and_limits(team: Team) -> None:
    """The quota of a shared namespace: all four of CPU and memory."""
    team.apply(_quota(team, dict.fromkeys(("limits.cpu", "requests.cpu"), "900") | {"limits.memory": "9Ti"}))
    team.apply(team.adapter("a", team.put("a")), team.service("chat", ["a"]))
    team.until("a to be staged", lambda: team.entry("chat", "a").get("state") in ("Downloaded", "Loaded"))


@pytest.fixture
def tainted(team: Team) -> Iterator[Team]:
    """All nodes have the taint that predictors tolerate."""
    taint = ("taint", "node", "--all", "--overwrite", "amd.com/gpu=present:NoSchedule")
    team.cluster.kubectl(*taint)
    yield team
    team.cluster.kubectl(*taint[:-1], "amd.com/gpu:NoSchedule-")


def test_nodes_with_the_taint_of_gpus(tainted: Team) -> None:
    tainted.apply(tainted.adapter("a", tainted.put("a")), tainted.service("chat", ["a"]))
    tainted.until_loaded("chat", "a")


def test_labels_of_other_programs_are_propagated_and_never_win(team: Team) -> None:
    """Objects that Helm made, or that have labels of aim-adapters with other meanings."""
    propagation = {"labelPropagation": {"enabled": True, "match": ["*", "app.kubernetes.io/*"]}}
    metadata = {"name": "default", "namespace": team.namespace}
    config = {"apiVersion": "aim.eai.amd.com/v1alpha1", "kind": "AIMRuntimeConfig", "metadata": metadata}
    labels = dict.fromkeys(OWN_LABELS, "Helm") | {"app.kubernetes.io/part-of": "shop"}
    objects = [team.adapter("a", team.put("a")), team.service("chat", ["a"])]
    for obj in objects:
        obj["metadata"]["labels"] = labels
    team.apply({**config, "spec": propagation}, *objects)
    seen: dict[str, JsonObject] = {}

    def loaded() -> bool:
        for kind in ("jobs", "pods", "pvc", "isvc", "configmaps", "aimartifacts", "aimprofilecaches"):
            for obj in team.cluster.items(kind, team.namespace):
                seen[f"{kind}/{obj['metadata']['name']}"] = obj["metadata"].get("labels") or {}
        return team.entry("chat", "a").get("state") == "Loaded"

    team.until("a to be loaded", loaded)
    made = {name: found for name, found in seen.items() if name != "aimartifacts/a"}
    assert not {name for name, found in made.items() if "Helm" in found.values()}, json.dumps(made, indent=1)
    shared = [name for name, found in made.items() if found.get("app.kubernetes.io/part-of") == "shop"]
    assert {name.partition("/")[0] for name in shared} >= {"jobs", "pods", "isvc"}
