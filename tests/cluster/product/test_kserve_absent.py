"""KServe that is not there: a condition says so, everything else continues, and so does the service afterwards."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator

from tests.cluster.conftest import Cluster
from tests.cluster.product.team import Team

_CRD = "inferenceservices.serving.kserve.io"


@contextlib.contextmanager
def _without_the_crd(cluster: Cluster) -> Iterator[None]:
    crd = json.loads(cluster.kubectl("get", "crd", _CRD, "-o", "json").stdout)
    cluster.kubectl("delete", "crd", _CRD, "--wait=true", timeout=90)
    try:
        yield
    finally:
        del crd["status"]
        crd["metadata"] = {"name": crd["metadata"]["name"]}
        cluster.kubectl("create", "-f", "-", input=json.dumps(crd))
        cluster.wait(lambda: cluster.kubectl("get", "isvc", check=False).returncode == 0, timeout=60, what="the CRD")


@contextlib.contextmanager
def _webhook_away(cluster: Cluster) -> Iterator[None]:
    """KServe's webhook is registered, and gives no answer."""
    kind, name = "validatingwebhookconfiguration", "inferenceservice.serving.kserve.io"
    before = json.loads(cluster.kubectl("get", kind, name, "-o", "json").stdout)["webhooks"]
    away = [hook | {"clientConfig": {"url": "https://127.0.0.1:1/validate"}} for hook in before]
    for hook in away:
        assert "kserve" in hook["name"]
    cluster.kubectl("patch", kind, name, "--type=merge", "-p", json.dumps({"webhooks": away}))
    try:
        yield
    finally:
        cluster.kubectl("patch", kind, name, "--type=merge", "-p", json.dumps({"webhooks": before}))


def _served(team: Team, service: str) -> tuple[str, str]:
    condition = team.condition(service, "InferenceServiceReady")
    return str(condition.get("status")), str(condition.get("reason"))


def test_kserve_is_taken_away_and_comes_back(team: Team) -> None:
    team.apply(team.adapter("a", team.put("a")), team.service("before", ["a"]))
    team.until_loaded("before", "a")
    with _without_the_crd(team.cluster):
        team.apply(team.adapter("b", team.put("b")), team.service("svc", ["a", "b"]))
        absent = ("False", "KServeNotInstalled")
        team.until("the condition", lambda: _served(team, "svc") == absent, 30)
        team.until("both to be staged", lambda: team.status("svc").get("adapterSummary") == "2/2", 60)
        status = team.status("svc")
        assert status["status"] == "Pending"
        assert {entry["state"] for entry in status["adapters"]} == {"Downloaded"}
        assert "KServe is not installed" in team.condition("svc", "InferenceServiceReady")["message"]
        team.until("the older one to report it", lambda: _served(team, "before") == absent, 60)
    team.until_loaded("svc", "a", "b")
    team.until_loaded("before", "a")


def test_the_webhook_of_kserve_gives_no_answer(team: Team) -> None:
    team.apply(team.service("running"))
    team.until_running("running")
    with _webhook_away(team.cluster):
        team.apply(team.service("new"), team.service("running", env=[{"name": "A", "value": "b"}]))
        team.until("the condition", lambda: _served(team, "new") == ("False", "KServeUnavailable"), 60)
        assert team.status("new")["status"] == "Pending"

        def told() -> bool:
            return "not applied yet" in team.condition("running", "InferenceServiceReady").get("message", "")

        team.until("the other one to report it", told, 60)
        assert team.status("running")["status"] == "Running"
    team.until_running("new")
    team.until("the change", lambda: team.isvc("running")["metadata"]["generation"] > 1, 90)
