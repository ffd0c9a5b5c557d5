"""Bounded waits: a lower ceiling waits for unknown ranks, a removed adapter's entry for a server that keeps it."""

from __future__ import annotations

import shutil
from pathlib import Path

from tests.cluster.product.both import on_both_pipelines
from tests.cluster.product.team import Team


@on_both_pipelines
def test_a_lower_ceiling_waits_until_every_rank_is_known_then_rolls_once(team: Team) -> None:
    """While an artifact is missing, status and pod keep the old ceiling; docs/contract.md, Static ceiling."""
    team.apply(team.adapter("a", team.put("a")))
    team.apply(team.service("svc", ["a", "later"], adapterRuntime={"maxRank": 64}))
    team.until_loaded("svc", "a")
    team.until_running("svc")
    before = team.running("svc")
    team.put("later", rank=16)

    team.apply(team.service("svc", ["a", "later"], adapterRuntime={"maxRank": 16}))
    wanted = team.get("aimservice", "svc")["metadata"]["generation"]
    team.until("the spec to be handled", lambda: team.status("svc")["observedGeneration"] == wanted)
    assert team.status("svc")["adapterMaxRank"] == 64
    assert team.entry("svc", "later")["lastError"] == "AdapterArtifactNotFound"
    assert team.running("svc") == before

    team.apply(team.adapter("later", rank=16))
    team.until("the lower ceiling", lambda: team.status("svc")["adapterMaxRank"] == 16)
    team.until("one new pod", lambda: team.replaced("svc", before))
    team.until_loaded("svc", "a", "later")
    assert team.running("svc")[2] == before[2] + 1
    rolls = [e for e in team.cluster.items("events", team.namespace) if e["reason"] == "AdapterMaxRankChanged"]
    assert len(rolls) == 1
    assert "AIM_ADAPTER_MAX_RANK 64 → 16" in rolls[0]["message"]


@on_both_pipelines
def test_an_adapter_that_a_server_never_unloads_leaves_the_status_in_bounded_time(team: Team) -> None:
    """Its files are deleted first, its entry waits for the grace period; docs/contract.md, Subtree sync."""
    team.apply(team.adapter("a", team.put("a")), team.adapter("b", team.put("b")))
    stubborn = [{"name": "AIM_STAND_IN_KEEP", "value": "a"}]
    team.apply(team.service("svc", ["a", "b"], env=stubborn))
    team.until_loaded("svc", "a", "b")
    team.until_running("svc")
    before = team.running("svc")

    team.apply(team.service("svc", ["b"], env=stubborn))
    team.until("its bytes to go", lambda: team.staged("svc") == {"b"})
    assert team.entry("svc", "a")["state"] == "Deleting"
    assert team.status("svc")["adapterSummary"] == "1/1"
    team.until("its entry to go", lambda: not team.entry("svc", "a"))
    assert team.models("svc") >= {"a", "b"}  # the server keeps running
    events = [e for e in team.cluster.items("events", team.namespace) if e["reason"] == "AdapterUnloadOverdue"]
    assert [(e["type"], "adapter a " in e["message"]) for e in events] == [("Warning", True)]
    assert team.entry("svc", "b")["state"] == "Loaded"
    assert team.running("svc") == before
    team.until_at_rest(quiet=3)


@on_both_pipelines
def test_a_static_server_whose_disk_is_deleted_waits_for_all_adapters(team: Team) -> None:
    """It starts with all declared adapters or not at all, and the status shows why; docs/contract.md, Serving gate."""
    team.apply(team.adapter("a", team.put("a")), team.adapter("b", team.put("b")))
    team.apply(team.service("svc", ["a", "b"], mode="static"))
    team.until_loaded("svc", "a", "b")
    old_disk = team.status("svc")["adapterDiskPersistentVolumeClaim"]
    shutil.rmtree(Path(team.cluster.info["hub"]["root"]) / team.namespace / "b")
    (base,) = team.base_models()
    team.delete("aimartifact", base["metadata"]["name"])
    team.until_failed("svc", "b", "SourceRepositoryNotFound")
    assert team.condition("svc", "Ready")["status"] == "True"

    def going() -> bool:
        claims = {claim["metadata"]["name"]: claim["metadata"] for claim in team.cluster.items("pvc", team.namespace)}
        return "deletionTimestamp" in claims.get(old_disk, {"deletionTimestamp": "gone"})

    team.until("the old claim to go with its base: a young cluster's collector comes late", going)
    team.cluster.kubectl("delete", "pods", "-n", team.namespace, "-l", "component=predictor", "--wait=false")

    def told() -> bool:
        message = team.condition("svc", "Adapters")["message"]
        gone = f'claim "{old_disk}" that they mount was deleted with its base'
        return f"{gone}; for b, fix what lastError reports or re-create the service without it" in message

    team.until("the status to report that no pod can start", told)
    team.until("Ready to follow", lambda: team.condition("svc", "Ready")["status"] == "False")
    assert "Loaded" not in {entry["state"] for entry in team.status("svc")["adapters"]}
    team.put("b")  # the retry is automatic
    team.until_loaded("svc", "a", "b")
