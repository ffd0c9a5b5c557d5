"""A quota or another webhook refuses an object: the status reports which and why, and the rest keeps working."""

from __future__ import annotations

import time

from tests.cluster.product.both import on_both_pipelines
from tests.cluster.product.team import Team

CLAIMS, JOBS, SERVERS = "persistentvolumeclaims", "count/jobs.batch", "count/inferenceservices.serving.kserve.io"


def _refuse(team: Team, *resources: str) -> None:
    """Forbid these kinds in the namespace with a quota."""
    metadata = {"name": "none", "namespace": team.namespace}
    hard = dict.fromkeys(resources, "0")

    def counts() -> bool:
        team.apply({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": metadata, "spec": {"hard": hard}})
        time.sleep(1)
        status = team.get("resourcequota", "none").get("status", {})
        known = status.get("hard", {}) == hard
        counted = known and status.get("used", {}).keys() >= hard.keys()
        if (
            known and not counted
        ):  # the controller of a new cluster discovers KServe's kinds late, and evaluates new quotas only
            team.delete("resourcequota", "none")
        return bool(counted)

    team.until("the quota to count", counts)


def _base_says(team: Team) -> str:
    found = team.base_models()
    conditions = found[0].get("status", {}).get("conditions", []) if found else []
    return next((c["message"] for c in conditions if c["type"] == "Ready"), "")


@on_both_pipelines
def test_a_quota_for_claims_jobs_or_servers_is_reported_until_it_is_removed(team: Team) -> None:
    _refuse(team, CLAIMS, JOBS, SERVERS)
    team.apply(team.adapter("a", team.put("a")), team.service("svc", ["a"]))
    team.until(
        "the base to name the claim", lambda: "not made or changed: PersistentVolumeClaim tiny" in _base_says(team)
    )
    assert "exceeded quota: none" in _base_says(team)
    _refuse(team, JOBS, SERVERS)
    team.until("the base to name the Job", lambda: "not made or changed: Job tiny" in _base_says(team))
    _refuse(team, SERVERS)

    def told() -> str:
        found = team.condition("svc", "InferenceServiceReady")
        return found["message"] if found.get("reason") == "InferenceServiceRefused" else ""

    assert "exceeded quota: none" in team.until("the service to name the server", told)
    assert team.condition("svc", "CacheReady")["status"] == "True"
    team.until("a to be staged meanwhile", lambda: team.entry("svc", "a").get("state") == "Downloaded")

    team.delete("resourcequota", "none")
    team.until_loaded("svc", "a")
    team.until_running("svc")
    assert "quota" not in str(team.status("svc"))
    assert "quota" not in _base_says(team)


@on_both_pipelines
def test_an_unavailable_webhook_of_another_program_is_reported_until_it_is_back(team: Team) -> None:
    """KServe is down: its webhook blocks each InferenceService."""
    name = f"down-{team.namespace}"
    hook = {
        "name": "down.example.com",
        "clientConfig": {"url": "https://127.0.0.1:1/"},
        "rules": [
            {
                "apiGroups": ["serving.kserve.io"],
                "apiVersions": ["*"],
                "operations": ["CREATE"],
                "resources": ["inferenceservices"],
            }
        ],
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": team.namespace}},
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        "timeoutSeconds": 2,
    }
    kind = "ValidatingWebhookConfiguration"
    team.apply(
        {"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": {"name": name}, "webhooks": [hook]}
    )
    try:
        team.apply(team.service("svc"))

        def told() -> str:
            found = team.condition("svc", "InferenceServiceReady")
            return found["message"] if found.get("reason") == "InferenceServiceRefused" else ""

        message = team.until("the service to name the webhook", told)
        assert message.endswith('failed calling webhook "down.example.com": it gives no answer')
        assert team.condition("svc", "CacheReady")["status"] == "True"
        team.until_at_rest(quiet=3)
    finally:
        team.cluster.kubectl("delete", kind, name)
    team.until_running("svc")
