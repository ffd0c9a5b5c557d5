"""Several replicas of one server: an adapter is Loaded when all of them list it, and the status counts them."""

from __future__ import annotations

import json
import urllib.request

from api.view import JsonObject
from tests.cluster.product.both import on_both_pipelines
from tests.cluster.product.team import Team


def _ask(pod: JsonObject, path: str, body: dict[str, str] | None = None) -> str:
    """Ask one replica directly, without the Service."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(f"http://{pod['status']['podIP']}:8000{path}", data)
    with urllib.request.urlopen(request, timeout=5) as answer:
        return str(answer.read().decode())


Counted = tuple[str, int | None, int | None]


def _until_counted(team: Team, adapter: str, *wanted: Counted) -> set[str]:
    """Wait for a state with n of m in one version of the status; return the states that were seen before."""
    seen: list[Counted] = []

    def counted() -> bool:
        status = team.status("svc")
        entry: JsonObject = next((e for e in status.get("adapters") or [] if e["name"] == adapter), {})
        replicas = (status.get("runtime") or {}).get("currentReplicas")
        seen.append((entry.get("state", ""), entry.get("loadedReplicas"), replicas))
        return seen[-1] in wanted

    team.until(f"{adapter} to be one of {wanted}", counted)
    return {state for state, _, _ in seen}


@on_both_pipelines
def test_an_adapter_is_loaded_when_every_replica_lists_it(team: Team) -> None:
    """A pod that does not list it is named after three refresh intervals; docs/contract.md, Loaded adapters."""
    team.apply(team.adapter("a", team.put("a")), team.adapter("b", team.put("b")))
    team.apply(team.service("svc", ["a"], replicas=2))
    _until_counted(team, "a", ("Loaded", 2, 2))
    team.until_running("svc")
    forgetful = team.pods("svc")[0]
    name = forgetful["metadata"]["name"]

    # one server drops an adapter while another adapter and a third replica are added
    _ask(forgetful, "/v1/unload_lora_adapter", {"lora_name": "a"})
    team.apply(team.service("svc", ["a", "b"], replicas=3))
    states = ("Downloaded", "LoadRejected")  # immediately the latter, if its three intervals are already over
    _until_counted(team, "a", *((state, n, m) for state in states for n, m in ((1, 2), (2, 3))))
    _until_counted(team, "b", ("Loaded", 3, 3))
    assert _until_counted(team, "a", ("LoadRejected", 2, 3)) <= {"Downloaded", "LoadRejected"}, "one does not list it"
    entry, adapters = team.entry("svc", "a"), team.condition("svc", "Adapters")
    assert entry["lastError"].startswith("AdapterNotListed: ")
    for word in (f"pod {name} ", f"kubectl logs -n {team.namespace} {name}", "0.13"):
        assert word in entry["lastError"]
    assert (adapters["status"], adapters["reason"]) == ("True", "AdaptersStaged")
    assert name in adapters["message"]
    assert team.status("svc")["status"] == "Degraded"
    assert team.condition("svc", "Ready")["status"] == "True"
    assert team.status("svc")["adapterSummary"] == "2/2"  # it counts as Downloaded

    # the pod is replaced: its successor gets the same time before it is reported
    team.cluster.kubectl("delete", "pod", name, "-n", team.namespace, "--wait=false")
    _until_counted(team, "a", ("Loaded", 3, 3))
    team.until_running("svc")
    assert "lastError" not in team.entry("svc", "a")
    team.cluster.kubectl("scale", "aimsvc/svc", "--replicas=1", "-n", team.namespace)
    for adapter in ("a", "b"):
        _until_counted(team, adapter, ("Loaded", 1, 1))
    told = [e for e in team.cluster.items("events", team.namespace) if e["reason"] == "AdapterLoadRejected"]
    assert [(e["type"], e.get("count") or 1) for e in told] == [("Warning", 1)]
