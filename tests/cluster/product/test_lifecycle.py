"""Adapters from apply to serving and deletion, over both pipelines."""

from __future__ import annotations

import json

from tests.cluster.product.both import on_both_pipelines
from tests.cluster.product.team import ON_DISK, Team


@on_both_pipelines
def test_adapters_change_without_a_restart(team: Team) -> None:
    team.apply(team.adapter("a", team.put("a")), team.adapter("b", team.put("b", where="s3")))
    team.apply(team.service("svc", ["a"]))
    team.until_loaded("svc", "a")
    team.until_running("svc")
    before = team.running("svc")

    team.apply(team.service("svc", ["a", "b"]))
    team.until_loaded("svc", "a", "b")
    assert team.staged("svc") == {"a", "b"}
    assert team.status("svc")["adapterSummary"] == "2/2"

    team.apply(team.service("svc", ["b"]))
    team.until("a to leave the server", lambda: "a" not in team.models("svc"))
    team.until("a to leave the status", lambda: not team.entry("svc", "a"))
    assert team.staged("svc") == {"b"}
    assert "b" in team.models("svc")

    team.apply(team.service("svc", []))
    team.until("all adapters to leave", lambda: not team.status("svc").get("adapters"))
    assert team.staged("svc") == set()
    assert team.condition("svc", "Adapters")["reason"] == "AdaptersStaged"
    assert team.running("svc") == before


@on_both_pipelines
def test_a_static_service_waits_for_all_and_infers_its_ceiling(team: Team) -> None:
    team.put("small")
    team.apply(team.adapter("small", rank=8), team.adapter("large", rank=20))
    team.apply(team.service("svc", ["small", "large"], mode="static"))
    team.until("small to be there", lambda: team.entry("svc", "small").get("state") in ON_DISK)
    team.until_failed("svc", "large", "SourceRepositoryNotFound")
    assert not team.isvc("svc")
    assert team.condition("svc", "Adapters") | {"message": ""} == team.condition("svc", "Adapters") | {
        "status": "True",
        "reason": "AdaptersStaging",
        "message": "",
    }
    team.put("large", rank=20)  # the retry is automatic
    team.until_loaded("svc", "small", "large")
    assert team.status("svc")["adapterMaxRank"] == 32


def test_nothing_is_written_at_rest_without_jobs_or_after_a_restart_of_aim_adapters(team: Team) -> None:
    """Weak spots 3, 5, 13 and 14, a service of each pipeline: a second pass writes nothing, even without its Jobs."""
    other = Team(team.cluster, team.namespace, "template")
    team.apply(*other.model_and_template(), team.adapter("a", team.put("a")))
    services = {"svc": team, "by-template": other}
    for name, one in services.items():
        one.apply(one.service(name, ["a", "missing"]))
    for name, one in services.items():
        one.until_loaded(name, "a")
    told = "AdapterArtifactNotFound"
    team.until(
        "missing to be reported", lambda: all(team.entry(n, "missing").get("lastError") == told for n in services)
    )
    team.until("finished Jobs to be gone", lambda: not team.cluster.items("jobs", team.namespace))
    before = team.until_at_rest()
    team.cluster.kubectl("delete", "jobs", "--all", "-n", team.namespace)
    names = team.cluster.items("pods", "aim-system")
    team.cluster.kubectl("delete", "pods", "-n", "aim-system", "--all", "--wait=true", timeout=90)
    gone = {pod["metadata"]["uid"] for pod in names}

    def replaced() -> bool:
        pods = [pod for pod in team.cluster.items("pods", "aim-system") if pod["metadata"]["uid"] not in gone]
        ready = [
            c
            for pod in pods
            for c in pod["status"].get("conditions", [])
            if c["type"] == "Ready" and c["status"] == "True"
        ]
        return len(ready) >= 2

    team.until("new replicas", replaced)
    assert team.until_at_rest(quiet=10) == before
    assert {name: team.entry(name, "a")["state"] for name in services} == dict.fromkeys(services, "Loaded")


@on_both_pipelines
def test_a_dynamic_service_without_adapters_is_served_with_the_mount(team: Team) -> None:
    team.apply(team.service("svc"))
    team.until_running("svc")
    env = {e["name"]: e.get("value") for e in team.isvc("svc")["spec"]["predictor"]["containers"][0]["env"]}
    assert env["AIM_ADAPTER_MODE"] == "dynamic"
    assert env["AIM_ADAPTER_MAX_RANK"] == "32"
    assert team.staged("svc") == set()


@on_both_pipelines
def test_a_static_service_without_adapters_mounts_nothing(team: Team) -> None:
    team.apply(team.service("svc", mode="static"))
    team.until_running("svc")
    predictor = team.isvc("svc")["spec"]["predictor"]
    assert not [e for e in predictor["containers"][0]["env"] if e["name"].startswith("AIM_ADAPTER")]
    assert "adapter-disk" not in {volume["name"] for volume in predictor["volumes"]}
    assert not team.condition("svc", "Adapters")


@on_both_pipelines
def test_a_raised_ceiling_rolls_once_and_admits_a_larger_adapter(team: Team) -> None:
    team.apply(team.service("svc"))
    team.until_running("svc")
    first = team.running("svc")
    team.apply(team.adapter("wide", team.put("wide", rank=64), rank=64))
    refused = team.cluster.apply(team.service("svc", ["wide"]), check=False)
    assert "its rank 64 is above the ceiling 32" in refused
    team.apply(team.service("svc", ["wide"], adapterRuntime={"maxRank": 64}))
    team.until_loaded("svc", "wide")
    team.until("one new pod", lambda: team.replaced("svc", first))
    assert team.status("svc")["adapterMaxRank"] == 64
    assert team.isvc("svc")["metadata"]["generation"] == first[2] + 1
    events = team.cluster.items("events", team.namespace)
    assert any(event["reason"] == "AdapterMaxRankChanged" for event in events)


@on_both_pipelines
def test_a_namespace_with_all_kinds_of_objects_is_deleted(team: Team) -> None:
    """aim-adapters sets no finalizer, so nothing blocks the deletion."""
    team.apply(team.adapter("a", team.put("a")), team.service("svc", ["a"]))
    team.until_loaded("svc", "a")
    team.cluster.kubectl("delete", "namespace", team.namespace, "--wait=true", "--timeout=80s", timeout=90)


@on_both_pipelines
def test_kubectl_wait_works(team: Team) -> None:
    team.apply(team.adapter("a", team.put("a")), team.service("svc", ["a"]))
    wait = ("wait", "aimsvc/svc", "-n", team.namespace, "--timeout=80s")
    team.cluster.kubectl(*wait, "--for=condition=Ready", timeout=90)
    team.cluster.kubectl(*wait, "--for=jsonpath={.status.adapters[0].state}=Loaded", timeout=90)
    columns = team.cluster.kubectl("get", "aimsvc", "svc", "-n", team.namespace).stdout.split("\n")
    assert "1/1" in columns[1]
    assert json.loads(team.cluster.kubectl("get", "aimsvc", "svc", "-n", team.namespace, "-o", "json").stdout)
