"""Caches, bases, gates and lists over time, in the cluster in memory."""

from __future__ import annotations

import copy
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from api import view
from api.kinds import (
    AIM_ARTIFACT,
    AIM_CLUSTER_PROFILE,
    AIM_MODEL,
    AIM_PROFILE,
    AIM_PROFILE_CACHE,
    AIM_RUNTIME_CONFIG,
    AIM_SERVICE,
    AIM_SERVICE_TEMPLATE,
    AIM_TEMPLATE_CACHE,
    INFERENCE_SERVICE,
    JOB,
    PERSISTENT_VOLUME_CLAIM,
    Kind,
)
from api.names import (
    ANNOTATION_RESTAGE,
    ANNOTATION_RETRY_STAGING,
    ANNOTATION_TAKE_OVER,
    LABEL_ARTIFACT,
    LABEL_MANAGED_BY,
    LABEL_SERVICE,
    ROLE_STAGING,
    ROLE_SUBTREE_SYNC,
)
from reconcile.decision import Decision
from reconcile.service.cache import cache_origin
from reconcile.service.decide import decide
from reconcile.service.live import live_cache_mounts, live_wiring
from tests.unit.reconcile.model.life import Life
from tests.unit.reconcile.service.scene import TEMPLATE, observe
from tests.unit.reconcile.service.test_weak_spots import served


def pods_of(life: Life) -> list[str]:
    return [pod.name for pods in life.machinery.pods.values() for pod in pods]


def test_adding_and_removing_in_dynamic_mode_touches_no_pod() -> None:
    life = served("dynamic")
    pods, isvc = pods_of(life), life.isvc
    for adapters in (["a"], ["a", "b"], ["b"], []):
        for name in adapters:
            if life.store.get(AIM_ARTIFACT, name) is None:
                life.adapter(name)
        life.edit(adapters=adapters)
        life.settle()
        assert set(life.folder.live) == set(adapters)
        assert life.isvc == isvc
        assert pods_of(life) == pods
    assert life.condition("Adapters") == ("True", "AdaptersStaged")


def test_adapters_that_move_alike_share_an_event_and_others_have_their_own() -> None:
    life = Life()
    for name in ("a", "b", "c"):
        life.adapter(name)
    long = [f"{letter}{'x' * 200}" for letter in "de"]
    for name in long:
        life.adapter(name)
    life.machinery.sources["hf://acme/c"].broken = True
    life.service("dynamic", ["a", "b", "c", *long])
    life.passes()
    for _ in range(2):  # Jobs that end in one moment: base and directory, then all staging
        life.cluster.events.clear()
        while life.machinery.waiting_jobs():
            for job in life.machinery.waiting_jobs():
                life.machinery.run(job, "ok")
        life.machinery.tick()
        life.passes()
    moves = [event for event in life.cluster.events if "chat: Adapter" in event]
    assert moves == [
        f"chat: AdapterDownloaded: adapters a, b, {long[0]}: Pending → Downloaded",
        f"chat: AdapterDownloaded: adapter {long[1]}: Pending → Downloaded",  # a message has its limit
        "chat: AdapterFailed: adapter c: Pending → Failed: SourceRepositoryNotFound: no such repository",
    ]


def test_two_jobs_never_write_to_one_directory_at_the_same_time() -> None:
    """An artifact is re-created while its staging still runs: the old Job goes first, whatever crashes in between."""
    life = Life()
    for name in ("a", "b"):
        life.adapter(name)
    life.service("dynamic", ["a", "b"])
    life.passes()
    while not life.jobs(ROLE_STAGING):
        for job in life.machinery.waiting_jobs():
            life.machinery.run(job, "ok")
        life.machinery.tick()
        life.passes()
    old = {view.name_of(job) for job in life.jobs(ROLE_STAGING)}
    life.store.delete(AIM_ARTIFACT, "a")
    life.adapter("a", uri="hf://acme/a-2")
    life.cluster.reconcile(AIM_SERVICE, "chat", steps=1)
    assert {view.name_of(job) for job in life.jobs(ROLE_STAGING)} == old
    life.cluster.reconcile(AIM_SERVICE, "chat")
    assert [job["metadata"]["labels"][LABEL_ARTIFACT] for job in life.jobs(ROLE_STAGING)] == ["b"]
    life.cluster.reconcile(AIM_SERVICE, "chat")
    assert sorted(job["metadata"]["labels"][LABEL_ARTIFACT] for job in life.jobs(ROLE_STAGING)) == ["a", "b"]
    life.settle()
    assert life.folder.live["a"][0] == "sha256:a"
    assert life.folder.done["a"] == life.entry("a")["stageKey"]


def test_a_static_service_waits_for_all_its_adapters() -> None:
    life = Life()
    life.adapter("a")
    life.service("static", ["a", "missing"])
    life.settle()
    assert life.isvc is None
    assert life.condition("Ready") == ("False", "AdaptersStaging")
    assert life.entry("missing")["lastError"] == "AdapterArtifactNotFound"
    life.adapter("missing", rank=64)
    life.settle()
    assert life.isvc is not None
    assert life.status["adapterMaxRank"] == 64
    assert life.status["status"] == "Running"


def test_static_without_adapters_mounts_nothing() -> None:
    life = served("static")
    assert live_wiring(life.isvc) is None
    assert "adapterMaxRank" not in life.status
    assert not any(entry["type"] == "Adapters" for entry in life.status["conditions"])


def test_a_static_list_that_changed_all_the_same_is_followed_on_the_disk_alone() -> None:
    life = served("static", "a", "b")
    life.adapter("c")
    pods = pods_of(life)
    life.edit(adapters=["a", "c"])
    life.cluster._work_off()
    assert set(life.folder.live) == {"a", "c"}
    assert pods_of(life) == pods
    assert life.entry("c")["lastError"].startswith("RestartRequired: ")
    assert life.state("b") == "Deleting"
    assert "restarted" in life.message("Adapters")
    for pod_list in life.machinery.pods.values():
        pod_list.clear()
    life.machinery.now += timedelta(minutes=1)
    life.settle()
    assert (life.state("a"), life.state("c"), life.entry("b")) == ("Loaded", "Loaded", {})
    assert life.status["status"] == "Running"


def test_a_base_that_was_deleted_gets_its_successor_and_the_pods_keep_the_old_until_it_is_ready() -> None:
    life = served("dynamic", "a")
    old_isvc, pods = life.isvc, pods_of(life)
    base = next(obj for obj in life.store.all(AIM_ARTIFACT) if view.text(obj, "spec", "type") == "model")
    life.store.delete(AIM_ARTIFACT, view.name_of(base))
    life.passes()
    successor = life.store.get(AIM_ARTIFACT, view.name_of(base))
    assert successor is not None
    assert view.uid_of(successor) != view.uid_of(base)
    assert life.isvc == old_isvc
    assert life.condition("Ready") == ("True", "Serving")
    assert (life.state("a"), life.entry("a")["loadedReplicas"]) == ("Loaded", 1)  # by the pods, from the old disk
    assert life.condition("Adapters") == ("False", "AdapterSubtreeProvisioning")
    seen: list[tuple[bool, bool]] = []
    words: list[str] = []
    for _ in range(12):
        for job in life.machinery.waiting_jobs():
            life.machinery.run(job, "ok")
        life.passes()
        caches, wiring = live_cache_mounts(life.isvc), live_wiring(life.isvc)
        assert wiring is not None
        assert life.state("a") == "Loaded" if pods_of(life) == pods else life.state("a") in ("Loaded", "Downloaded")
        words.append(life.message("Adapters"))
        seen.append((caches == live_cache_mounts(old_isvc), wiring == live_wiring(old_isvc)))
        life.machinery.tick()
    assert not [event for event in life.cluster.events if "Loaded → " in event and "Downloaded" not in event]
    old_wiring, new_wiring = live_wiring(old_isvc), live_wiring(life.isvc)
    assert old_wiring is not None
    assert new_wiring is not None
    keeps = f'the pods keep claim "{old_wiring.claim}" until claim "{new_wiring.claim}" holds all adapters'
    assert f"{keeps} (a is Pending there)" in words
    assert seen[0] == (True, True)
    assert seen[-1] == (False, False)
    assert (True, False) not in seen  # one roll takes over both
    assert (False, True) not in seen
    assert pods_of(life) != pods
    life.settle()
    assert (life.state("a"), life.status["status"]) == ("Loaded", "Running")
    assert not [claim for claim in life.store.all(PERSISTENT_VOLUME_CLAIM) if "deletionTimestamp" in claim["metadata"]]


def other_model(life: Life) -> None:
    """Give the service a profile of another model."""
    plain = next(obj for obj in life.store.all(AIM_CLUSTER_PROFILE))["spec"]
    source = {"modelId": "Acme/other", "sourceUri": "hf://Acme/other", "size": "1Gi"}
    spec = dict(plain) | {"aimId": "Acme/other", "modelId": "Acme/other", "modelSources": [source]}
    life.make(AIM_CLUSTER_PROFILE, {"metadata": {"name": "other"}, "spec": spec})
    life.edit(profile={"name": "other"})


@pytest.mark.parametrize("adapters", [(), ("a",)])
def test_another_model_takes_over_in_one_roll_when_it_is_there(adapters: tuple[str, ...]) -> None:
    """A server that is to serve what is not mounted does not start, however long the download takes."""
    life = served("dynamic", *adapters)
    if adapters:
        fits = dict(life.store.objects[("AIMArtifact", "a")]["spec"]) | {
            "compatibleWith": ["Qwen/Qwen3-8B", "Acme/other"]
        }
        life.store.edit(AIM_ARTIFACT, "a", fits)
        life.settle()
    old, pods = life.isvc, pods_of(life)
    other_model(life)
    life.passes()
    assert life.condition("CacheReady")[0] == "False"
    assert (life.isvc, pods_of(life), life.condition("Ready")) == (old, pods, ("True", "Serving"))
    assert "the server stays as it is for now: model Acme/other takes over when it is ready" in life.message(
        "InferenceServiceReady"
    )
    life.settle()
    assert [mount.path for mount in live_cache_mounts(life.isvc)] == ["/workspace/cache/Acme/other"]
    assert sum("PredictorChanged" in event for event in life.cluster.events) == 1
    assert (life.status["status"], life.message("InferenceServiceReady")) == ("Running", "")


def test_adapters_that_do_not_fit_another_model_leave_the_server_as_it_is() -> None:
    life = served("dynamic", "a")
    old, pods = life.isvc, pods_of(life)
    other_model(life)
    life.settle()
    assert (life.isvc, pods_of(life)) == (old, pods)
    assert (life.status["status"], life.condition("Ready")) == ("Degraded", ("True", "Serving"))
    assert "its adapters are not ready (see Adapters)" in life.message("InferenceServiceReady")
    life.edit(adapters=[])
    life.settle()
    assert [mount.path for mount in live_cache_mounts(life.isvc)] == ["/workspace/cache/Acme/other"]
    assert life.status["status"] == "Running"


def lose_base(life: Life) -> None:
    base = next(obj for obj in life.store.all(AIM_ARTIFACT) if view.text(obj, "spec", "type") == "model")
    life.store.delete(AIM_ARTIFACT, view.name_of(base))


def mounted(life: Life) -> str:
    wiring = live_wiring(life.isvc)
    assert wiring is not None
    return wiring.claim


@pytest.mark.parametrize("mode", ["dynamic", "static"])
@pytest.mark.parametrize("why", ["its source is broken", "its artifact is gone"])
def test_what_is_served_and_cannot_come_to_a_new_disk_keeps_the_pods_on_the_old_one(mode: str, why: str) -> None:
    """For as long as it takes; the message names the adapter and the way out, and that way works."""
    life = served(mode, "a", "b")
    before, pods = mounted(life), pods_of(life)
    if why == "its artifact is gone":
        life.store.delete(AIM_ARTIFACT, "b")
    else:
        life.machinery.sources["hf://acme/b"].broken = True
    lose_base(life)
    for _ in range(6):
        life.machinery.now += timedelta(hours=2)
        life.cluster._work_off()
    assert (mounted(life), pods_of(life)) == (before, pods)
    assert life.state("a") == "Loaded"
    assert (life.state("b"), life.entry("b")["loadedReplicas"]) == (
        ("Loaded", 1) if why == "its artifact is gone" else ("Failed", 1)
    )
    message = life.message("Adapters")
    assert f'the pods keep claim "{before}" until claim' in message
    assert "what is served would be lost: for b, fix what lastError reports" in message
    assert ("or remove it from spec.adapters" in message) == (mode == "dynamic")
    assert life.writes_of() == []
    if mode == "dynamic":
        life.edit(adapters=["a"])
    elif why == "its artifact is gone":
        life.adapter("b")
    else:
        life.machinery.sources["hf://acme/b"].broken = False
    life.settle()
    assert mounted(life) != before
    assert {entry["name"]: entry["state"] for entry in life.status["adapters"]} == (
        {"a": "Loaded"} if mode == "dynamic" else {"a": "Loaded", "b": "Loaded"}
    )
    assert life.status["status"] == "Running"
    assert "claim" not in life.message("Adapters")


@pytest.mark.parametrize("mode", ["dynamic", "static"])
def test_pods_that_die_with_the_old_disk_come_back_when_what_must_be_there_is(mode: str) -> None:
    """A static server starts with all its adapters or not at all: the status says so, and how to get out."""
    life = served(mode, "a", "b")
    before = mounted(life)
    life.machinery.sources["hf://acme/b"].broken = True
    lose_base(life)
    life.cluster._work_off()
    assert life.entry("b")["loadedReplicas"] == 1
    for pods in life.machinery.pods.values():
        pods.clear()
    life.store.version += 1
    life.machinery.tick()  # the old disk goes with its last pod
    life.passes()
    assert [life.entry(name).get("loadedReplicas", 0) for name in ("a", "b")] == [0, 0]
    assert "Loaded" not in (life.state("a"), life.state("b"))
    if mode == "dynamic":  # it comes back with what there is
        life.cluster._work_off()
        assert (life.state("a"), life.state("b"), life.status["status"]) == ("Loaded", "Failed", "Degraded")
        return
    life.settle()
    assert life.condition("Ready")[0] == "False"
    message = life.message("Adapters")
    assert "no pod can start until claim" in message
    assert (
        f'claim "{before}" that they mount was deleted with its base; for b, fix what lastError reports or re-create'
        in message
    )
    assert "the pods keep claim" not in message
    assert life.writes_of() == []
    life.machinery.sources["hf://acme/b"].broken = False
    life.settle()
    assert (life.state("a"), life.state("b"), life.status["status"]) == ("Loaded", "Loaded", "Running")
    assert "claim" not in life.message("Adapters")


@pytest.mark.parametrize("sync_job", ["kept", "deleted"])
def test_a_directory_that_no_record_speaks_of_is_emptied_all_the_same(sync_job: str) -> None:
    """Seed 424718602: the status was lost before the server was made, then the list of a static service was emptied."""
    life = Life()
    life.adapter("a")
    life.adapter("b")
    life.machinery.sources["hf://acme/b"].broken = True
    life.service("static", ["a", "b"])
    for _ in range(8):
        life.passes()
        if life.jobs(ROLE_STAGING):
            break
        for job in life.machinery.waiting_jobs():
            life.machinery.run(job, "ok")
        life.machinery.tick()
    life.run_jobs(ROLE_STAGING)
    folder = life.folder
    assert list(folder.live) == ["a"]
    life.store.set_status(AIM_SERVICE, "chat", {})
    life.cluster.reconcile(AIM_SERVICE, "chat")  # finds the ended Jobs, and the directory not recorded
    assert life.entry("b")["attempts"] == 1
    assert life.isvc is None
    life.edit(adapters=[])
    if sync_job == "deleted":
        for job in life.jobs(ROLE_SUBTREE_SYNC):
            life.store.delete(JOB, view.name_of(job))
    life.settle()
    assert not life.status.get("adapters")
    assert folder.live == {}
    assert life.status["status"] == "Running"
    assert life.writes_of() == []


def test_what_was_not_served_holds_no_pod_on_an_old_disk() -> None:
    life = served("dynamic", "a")
    life.adapter("b")
    life.machinery.sources["hf://acme/b"].broken = True
    life.edit(adapters=["a", "b"])
    life.cluster._work_off()
    before = mounted(life)
    lose_base(life)
    life.cluster._work_off()
    assert mounted(life) != before
    assert (life.state("a"), life.state("b")) == ("Loaded", "Failed")
    assert "loadedReplicas" not in life.entry("b")


def test_the_old_claim_is_named_while_a_server_mounts_it_though_an_adapter_is_invalid() -> None:
    life = served("dynamic", "a")
    before = mounted(life)
    life.adapter("b")
    spec = life.store.objects[(AIM_ARTIFACT.kind, "b")]["spec"]
    life.store.edit(AIM_ARTIFACT, "b", {**spec, "compatibleWith": ["other/base"]})
    life.edit(adapters=["a", "b"])
    lose_base(life)
    life.settle()
    assert mounted(life) == before
    assert life.condition("Adapters") == ("False", "AdapterConfigInvalid")
    assert f'; the pods keep claim "{before}" until claim' in life.message("Adapters")
    life.edit(adapters=["a"])
    life.cluster.pass_over_all()  # KServe has not followed yet
    life.cluster.pass_over_all()
    assert mounted(life) != before
    assert life.message("Adapters").startswith(f'pods that are being replaced still mount claim "{before}"')
    life.settle()
    assert life.message("Adapters") == ""


def test_a_raised_ceiling_rolls_once_and_retries_at_once() -> None:
    life = served("dynamic", "a")
    life.adapter("big", rank=16)
    life.machinery.sources["hf://acme/big"].rank = 64  # the files say more than the artifact
    life.edit(adapters=["a", "big"])
    life.settle()
    assert life.entry("big")["lastError"].startswith("AdapterRankExceedsCeiling")
    assert life.entry("big")["nextRetryTime"]
    life.cluster.events.clear()
    life.edit(adapterRuntime={"maxRank": 64})
    life.cluster._work_off()
    assert life.state("big") == "Loaded"
    assert len([event for event in life.cluster.events if "AdapterMaxRankChanged" in event]) == 1


def test_what_new_pods_do_not_list_is_not_counted_as_loaded() -> None:
    life = Life()
    life.adapter("a", rank=8)
    life.machinery.sources["hf://acme/a"].rank = 16  # the files say more than the artifact
    life.service("dynamic", ["a"])
    life.settle()
    assert life.entry("a")["loadedReplicas"] == 1
    life.edit(adapterRuntime={"maxRank": 8})
    life.settle()
    assert life.entry("a")["lastError"] == (
        "AdapterRankExceedsCeiling: the files have rank 16, the ceiling is 8: raise adapterRuntime.maxRank to 16"
    )
    assert not life.entry("a").get("loadedReplicas")


def test_a_profile_that_is_not_there_is_named_wherever_something_waits_for_it() -> None:
    life = Life()
    life.adapter("a")
    life.service("dynamic", ["a"], profile={"name": "not-yet"})
    life.settle()
    missing = 'no AIMProfile or AIMClusterProfile "not-yet" exists yet'
    assert life.message("Adapters") == f"no base model is known: {missing}"
    assert life.message("CacheReady") == missing


def test_the_rank_of_static_files_is_fixed_on_the_artifact() -> None:
    life = served("static", "a")
    spec = life.store.objects[("AIMArtifact", "a")]["spec"]
    life.store.edit(AIM_ARTIFACT, "a", {**spec, "rank": 8})  # the files have 16
    life.settle()
    assert life.status["adapterMaxRank"] == 8
    assert life.entry("a")["lastError"].endswith("set spec.rank of the AIMArtifact to 16, and the ceiling follows")
    life.store.edit(AIM_ARTIFACT, "a", {**spec, "rank": 16})
    life.settle()
    assert life.state("a") == "Loaded"


def test_lowering_waits_for_what_is_not_known() -> None:
    life = served("dynamic", "a", adapterRuntime={"maxRank": 64})
    life.edit(adapters=["a", "missing"], adapterRuntime={"maxRank": 16})
    life.settle()
    assert life.status["adapterMaxRank"] == 64
    told = "the rank ceiling stays 64 and becomes 16 once the rank of missing is known"
    assert told in life.message("Adapters")
    life.adapter("missing")
    life.settle()
    assert life.status["adapterMaxRank"] == 16
    assert "ceiling" not in life.message("Adapters")
    wiring = live_wiring(life.isvc)
    assert wiring is not None
    assert wiring.max_rank == 16


def test_a_lower_ceiling_that_an_adapter_exceeds_is_not_taken() -> None:
    life = Life()
    life.adapter("a", rank=64)
    life.service(adapters=["a"], adapterRuntime={"maxRank": 64})
    life.settle()
    before = life.isvc
    life.edit(adapterRuntime={"maxRank": 32})
    life.settle()
    assert life.isvc == before
    assert life.status["adapterMaxRank"] == 64
    assert life.condition("ConfigValid") == ("False", "AdapterConfigInvalid")
    assert life.status["status"] == "Degraded"


def test_retry_and_restage_by_annotation() -> None:
    life = served("dynamic", "a")
    source = life.machinery.sources["hf://acme/a"]
    source.content = "sha256:new"
    life.store.annotate(AIM_ARTIFACT, "a", ANNOTATION_RESTAGE, "1")
    life.settle()
    assert life.folder.live["a"][0] == "sha256:new"
    assert life.state("a") == "Loaded"
    source.broken = True
    life.adapter("b", uri="hf://acme/a")
    source = life.machinery.sources["hf://acme/a"]
    source.broken = True
    life.edit(adapters=["a", "b"])
    life.cluster._work_off()
    assert life.state("b") == "Failed"
    source.broken = False
    life.cluster._work_off()
    assert life.state("b") == "Failed"  # not due
    life.store.annotate(AIM_SERVICE, "chat", ANNOTATION_RETRY_STAGING, "now")
    life.cluster._work_off()
    assert life.state("b") == "Loaded"
    assert life.status["lastRetryStaging"] == "now"
    assert life.writes_of() == []


def test_static_pods_that_start_while_an_adapter_comes_need_a_restart_and_reject_nothing() -> None:
    """In the same second, too."""
    life = served("static", "a")
    life.adapter("b")
    life.edit(adapters=["a", "b"])
    for pods in life.machinery.pods.values():
        pods.clear()
    life.machinery.tick()  # a new pod reads its directory, and in the same second b comes
    life.cluster._work_off()
    life.machinery.now += timedelta(hours=1)
    life.cluster._work_off()
    assert (life.state("b"), life.entry("b")["loadedReplicas"]) == ("Downloaded", 0)
    assert life.entry("b")["lastError"].startswith("RestartRequired: ")
    for pods in life.machinery.pods.values():
        pods.clear()
    life.settle()
    assert (life.state("a"), life.state("b"), life.status["status"]) == ("Loaded", "Loaded", "Running")


def test_a_restart_that_is_due_is_reported_although_the_status_was_lost() -> None:
    """The marker on the disk knows when the adapter came."""
    life = served("static", "a")
    life.adapter("b")
    life.machinery.now += timedelta(minutes=1)
    life.edit(adapters=["a", "b"])
    life.cluster._work_off()
    life.machinery.now += timedelta(hours=1)
    life.store.set_status(AIM_SERVICE, "chat", {})
    life.cluster._work_off()
    life.machinery.now += timedelta(hours=1)
    life.cluster._work_off()
    assert life.state("a") == "Loaded"
    assert life.entry("b")["lastError"].startswith("RestartRequired: ")


def test_a_static_server_that_had_its_adapters_and_lists_them_not_has_rejected_them() -> None:
    life = served("static", "a")
    for pods in life.machinery.pods.values():
        pods[:] = [replace(pod, loaded=frozenset()) for pod in pods]
    life.machinery.now += timedelta(hours=1)
    life.store.version += 1
    life.passes()
    life.machinery.now += timedelta(hours=1)
    life.passes()
    assert life.state("a") == "LoadRejected"


def test_a_static_service_says_when_its_pods_keep_old_content() -> None:
    life = served("static", "a")
    life.store.annotate(AIM_ARTIFACT, "a", ANNOTATION_RESTAGE, "1")
    life.cluster._work_off()
    assert (life.state("a"), life.status["status"]) == ("Loaded", "Running")  # fetched again, nothing new
    life.machinery.sources["hf://acme/a"].content = "sha256:new"
    life.machinery.now += timedelta(minutes=1)
    life.store.annotate(AIM_ARTIFACT, "a", ANNOTATION_RESTAGE, "2")
    life.cluster._work_off()
    assert life.folder.live["a"][0] == "sha256:new"
    assert life.entry("a")["lastError"].startswith("RestartRequired: ")
    assert life.status["status"] == "Degraded"


def test_a_crash_between_the_sync_job_and_the_status_calls_nothing_staged_that_is_gone() -> None:
    life = served("dynamic", "a", "b")
    life.edit(adapters=["a"])
    life.cluster.reconcile(AIM_SERVICE, "chat", steps=1)  # the first write lands, nothing after it
    life.run_jobs(ROLE_SUBTREE_SYNC)
    life.edit(adapters=["a", "b"])
    life.passes()
    assert life.state("b") != "Loaded" or "b" in life.folder.live
    life.settle()
    assert (life.state("b"), set(life.folder.live)) == ("Loaded", {"a", "b"})


def test_a_staging_that_found_its_adapter_undeclared_asks_for_one_sync_though_the_adapter_is_gone() -> None:
    life = served("dynamic", "a")
    life.adapter("b")
    life.edit(adapters=["a", "b"])
    life.passes()
    life.run_jobs(ROLE_SUBTREE_SYNC)
    life.passes()
    life.folder.declared = frozenset({"a"})  # an older sync came in between
    life.run_jobs(ROLE_STAGING)
    life.store.delete(AIM_ARTIFACT, "b")
    life.passes()
    life.run_jobs(ROLE_SUBTREE_SYNC)
    life.passes()
    assert life.folder.declared == {"a", "b"}
    assert life.jobs(ROLE_SUBTREE_SYNC) == life.jobs(ROLE_STAGING) == []
    assert life.writes_of() == []


def test_a_source_that_broke_leaves_what_is_served() -> None:
    life = served("dynamic", "a")
    life.machinery.sources["hf://acme/a"].broken = True
    life.store.annotate(AIM_ARTIFACT, "a", ANNOTATION_RESTAGE, "1")
    life.cluster._work_off()
    assert life.state("a") == "Failed"
    assert "a" in life.folder.live
    assert life.status["status"] == "Degraded"
    life.machinery.sources["hf://acme/a"].broken = False
    life.settle()
    assert (life.state("a"), life.status["status"]) == ("Loaded", "Running")


def test_changed_content_waits_until_no_server_lists_the_old() -> None:
    life = served("dynamic", "a")
    life.machinery.sources["hf://acme/a"].content = "sha256:new"
    life.store.annotate(AIM_ARTIFACT, "a", ANNOTATION_RESTAGE, "1")
    life.passes()
    life.run_jobs(ROLE_STAGING)
    life.passes()
    assert "a" not in life.folder.live  # a short 404 rather than wrong output
    assert life.entry("a")["lastError"].startswith("AdapterHeldForUnload: ")
    assert life.jobs(ROLE_STAGING) == []
    life.machinery.tick()
    life.passes()
    life.run_jobs(ROLE_STAGING)
    life.passes()
    assert life.folder.live["a"][0] == "sha256:new"


def test_content_that_changes_before_the_first_load_waits_for_servers_that_were_asked_since() -> None:
    """What a server was asked before it loaded the old content proves nothing about what it serves now."""
    life = served("dynamic")
    life.settle()
    life.machinery.late = True  # the last answer: base alone
    life.adapter("a")
    life.edit(adapters=["a"])
    life.cluster._work_off()
    assert "a" in life.folder.live
    life.machinery.sources["hf://acme/a"].content = "sha256:new"
    life.store.annotate(AIM_ARTIFACT, "a", ANNOTATION_RESTAGE, "1")
    life.passes()
    life.run_jobs(ROLE_STAGING)
    life.passes()
    assert "a" not in life.folder.live
    assert life.entry("a")["lastError"].startswith("AdapterHeldForUnload: ")
    life.store.annotate(AIM_ARTIFACT, "a", ANNOTATION_RESTAGE, "2")  # asked for again meanwhile: it waits all the same
    life.passes()
    assert life.jobs(ROLE_STAGING) == []
    life.machinery.tick()
    life.machinery.now += timedelta(minutes=5)
    life.cluster._work_off()
    assert "a" not in life.folder.live, "no server was asked since"
    life.machinery.late = False
    life.store.version += 1
    life.settle()
    assert (life.state("a"), life.folder.live["a"][0]) == ("Loaded", "sha256:new")
    assert life.entry("a")["lastRestage"].endswith("2")


@pytest.mark.parametrize("mode", ["dynamic", "static"])
def test_the_fit_is_checked_as_soon_as_the_base_is_complete(mode: str) -> None:
    """An adapter that came before its base is judged again without a download; what does not fit leaves the disk."""
    life = Life()
    for name in ("good", "unfit"):
        life.adapter(name)
    life.machinery.sources["hf://acme/unfit"].fits = False
    life.service(mode, adapters=["good", "unfit"])
    for _ in range(6):  # adapters arrive, the base does not
        life.passes()
        life.run_jobs(ROLE_SUBTREE_SYNC)
        life.run_jobs(ROLE_STAGING)
    for name in ("good", "unfit"):
        assert life.state(name) == "Downloaded"
        assert [note["reason"] for note in life.entry(name)["warnings"]] == ["AdapterFitUnchecked"]
    assert sorted(life.folder.live) == ["good", "unfit"]
    for source in life.machinery.sources.values():
        source.content = "sha256:changed"  # nothing is downloaded for the check
    for _ in range(2):  # the base is measured, and downloaded
        life.run_jobs("model-fetch")
        life.passes()
    assert life.isvc is None or mode == "dynamic", "a static server would end with what does not fit"
    jobs = life.jobs(ROLE_STAGING)
    assert len(jobs) == 2
    assert all("--base-dir=/base" in " ".join(job["spec"]["template"]["spec"]["containers"][0]["args"]) for job in jobs)
    life.run_jobs(ROLE_STAGING)
    life.passes()
    assert "warnings" not in life.entry("good")
    assert life.folder.live["good"][0] == "sha256:good"
    assert life.entry("unfit")["lastError"].startswith("AdapterFitsNoModule")
    assert (life.state("unfit"), list(life.folder.live)) == ("Failed", ["good"])
    life.settle()
    served_now = "Loaded" if mode == "dynamic" else "Downloaded"  # a static server waits for a list that is whole
    assert (life.state("good"), life.state("unfit")) == (served_now, "Failed")
    assert life.writes_of() == []


def test_what_is_asked_for_during_a_check_of_the_fit_is_done_after_it() -> None:
    """The Job of the check reads no source: it does not answer a request to fetch again."""
    life = Life()
    life.adapter("a")
    life.service(adapters=["a"])
    for _ in range(6):
        life.passes()
        life.run_jobs(ROLE_SUBTREE_SYNC)
        life.run_jobs(ROLE_STAGING)
    for _ in range(2):
        life.run_jobs("model-fetch")
        life.passes()
    assert len(life.jobs(ROLE_STAGING)) == 1
    life.machinery.sources["hf://acme/a"].content = "sha256:new"
    life.store.annotate(AIM_ARTIFACT, "a", ANNOTATION_RESTAGE, "1")
    life.passes()
    life.settle()
    assert (life.state("a"), life.folder.live["a"][0]) == ("Loaded", "sha256:new")


def test_a_check_of_the_fit_that_cannot_look_changes_nothing() -> None:
    life = Life()
    life.adapter("a")
    life.service(adapters=["a"])
    for _ in range(6):
        life.passes()
        life.run_jobs(ROLE_SUBTREE_SYNC)
        life.run_jobs(ROLE_STAGING)
    for _ in range(2):
        life.run_jobs("model-fetch")
        life.passes()
    life.run_jobs(ROLE_STAGING, "killed-before")
    life.passes()
    assert life.state("a") in ("Downloaded", "Loaded")
    assert "lastError" not in life.entry("a")
    life.settle()
    assert (life.state("a"), "warnings" in life.entry("a")) == ("Loaded", False)


def test_an_adapter_that_is_declared_again_with_other_content_waits_until_servers_let_go() -> None:
    life = served("dynamic", "a")
    life.machinery.late = True  # the servers keep what they have, for all that is known
    life.edit(adapters=[])
    life.passes()
    for job in life.jobs(ROLE_SUBTREE_SYNC):
        life.machinery.run(job, "ok")
    life.passes()
    assert life.state("a") == "Deleting"
    life.machinery.sources["hf://acme/a"].content = "sha256:new"
    life.edit(adapters=["a"])
    life.passes()
    life.cluster._work_off()
    assert life.entry("a")["lastError"].startswith("AdapterHeldForUnload: "), life.entry("a")
    life.machinery.late = False
    life.store.version += 1
    life.settle()
    assert (life.state("a"), life.folder.live["a"][0]) == ("Loaded", "sha256:new")


def test_an_invalid_adapter_does_not_hold_up_its_siblings_before_anything_exists() -> None:
    life = Life()
    life.adapter("a")
    life.adapter("too-big", rank=512)
    life.service(adapters=["a", "too-big"])
    life.settle()
    assert (life.state("a"), life.state("too-big")) == ("Downloaded", "Failed")
    assert life.isvc is None
    assert life.condition("Ready") == ("False", "AdapterConfigInvalid")


def test_what_jobs_brought_whose_end_was_not_read_goes_with_its_declaration() -> None:
    """Seed 949289377: b came and went, and no pass read the Jobs that brought it; the set is the old one again."""
    life = served("dynamic", "a")
    life.adapter("b")
    life.edit(adapters=["a", "b"])
    life.passes()
    life.run_jobs(ROLE_SUBTREE_SYNC)
    life.cluster.reconcile(AIM_SERVICE, "chat", steps=1)  # makes the staging Job, and falls
    life.run_jobs(ROLE_STAGING)
    assert sorted(life.folder.live) == ["a", "b"]
    for job in (*life.jobs(ROLE_SUBTREE_SYNC), *life.jobs(ROLE_STAGING)):
        life.store.delete(JOB, view.name_of(job))
    life.edit(adapters=["a"])
    life.settle()
    assert list(life.folder.live) == ["a"]
    assert [entry["name"] for entry in life.status["adapters"]] == ["a"]
    assert life.writes_of() == []


def test_a_lost_status_takes_nothing_from_pods_on_an_old_disk() -> None:
    """Seed 949287548: what they list of an artifact that is gone is served by its name."""
    life = served("dynamic", "a", "b")
    before, pods = mounted(life), pods_of(life)
    life.store.delete(AIM_ARTIFACT, "b")
    lose_base(life)
    life.settle()
    life.store.set_status(AIM_SERVICE, "chat", {})
    life.settle()
    assert (mounted(life), pods_of(life)) == (before, pods)
    assert (life.state("b"), life.entry("b")["lastError"]) == ("Loaded", "AdapterArtifactNotFound")
    life.edit(adapters=["a"])
    life.settle()
    assert mounted(life) != before
    assert life.status["status"] == "Running"


def test_each_field_of_a_status_that_was_spoilt_is_put_right() -> None:
    """With the name of another claim beside the right sync key the service once waited without end."""
    for field in served("dynamic", "a").status:
        life = served("dynamic", "a")
        before, mount = copy.deepcopy(life.status), mounted(life)
        spoilt = {key: value for key, value in before.items() if key != field}
        if isinstance(before[field], str) and field != "status":
            spoilt[field] = "spoilt"
        life.store.set_status(AIM_SERVICE, "chat", spoilt)
        life.settle()
        assert (life.condition("Adapters"), life.state("a")) == (("True", "AdaptersStaged"), "Loaded"), field
        assert mounted(life) == mount
        assert field in ("conditions", "adapters") or life.status[field] == before[field], field


@pytest.mark.parametrize("mode", ["dynamic", "static"])
def test_a_disk_that_is_deleted_under_its_pods_goes_when_they_do(mode: str) -> None:
    life = served(mode, "a")
    claim = mounted(life)
    life.store.delete(PERSISTENT_VOLUME_CLAIM, claim)
    life.settle()
    assert (life.state("a"), life.status["status"]) == ("Loaded", "Running")
    assert life.condition("Adapters") == ("False", "ParentLacksAdapterDisk")
    message = life.message("Adapters")
    assert "is being deleted; it is re-created once no pod mounts it; the pods keep claim" in message
    assert life.writes_of() == []
    life.machinery.end_pods_on(claim)
    life.store.version += 1
    life.settle()
    assert life.folder.live.keys() == {"a"}
    assert life.condition("Adapters")[0] == "True"
    assert life.state("a") == ("Loaded" if mode == "dynamic" else "Downloaded")
    assert life.entry("a").get("lastError", "RestartRequired").startswith("RestartRequired")


def test_only_one_sync_job_at_a_time() -> None:
    life = served("dynamic", "a")
    for name in "bcd":
        life.adapter(name)
        life.edit(adapters=["a", name])
        life.passes()
        assert len(life.jobs(ROLE_SUBTREE_SYNC)) == 1


def test_a_failed_sync_is_tried_again_and_reported() -> None:
    life = Life()
    life.service()
    life.passes()
    life.run_jobs("model-fetch")
    life.passes()
    life.run_jobs("model-fetch")
    life.passes()
    life.run_jobs(ROLE_SUBTREE_SYNC, "fail")
    life.passes()
    assert "SourceTimeout" in life.message("Adapters")
    assert life.writes_of() == []
    life.machinery.now += timedelta(minutes=1)
    life.passes()
    (job,) = life.jobs(ROLE_SUBTREE_SYNC)
    assert job["metadata"]["annotations"]["aim.eai.amd.com/attempt"] == "2"
    life.settle()
    assert life.status["status"] == "Running"


def test_a_deleted_inference_service_comes_back() -> None:
    life = served("dynamic", "a")
    isvc = life.isvc
    assert isvc is not None
    life.store.delete(INFERENCE_SERVICE, view.name_of(isvc))
    life.settle()
    assert life.isvc is not None
    assert life.status["status"] == "Running"


def test_a_server_of_another_operator_is_left_as_it_is_until_its_service_says_take_over() -> None:
    life = served("dynamic", "a")
    theirs = life.isvc
    assert theirs is not None
    theirs["metadata"]["labels"][LABEL_MANAGED_BY] = "another"
    theirs["spec"]["predictor"]["containers"][0]["env"].append({"name": "THEIRS", "value": "1"})
    life.store._store(INFERENCE_SERVICE, theirs)
    life.settle()
    before, pods = copy.deepcopy(life.isvc), pods_of(life)
    life.adapter("b")
    life.edit(adapters=["a", "b"], env=[{"name": "NEW", "value": "1"}])
    life.settle()
    assert life.isvc == before
    assert pods_of(life) == pods
    assert (life.status["status"], life.state("b")) == ("Running", "Loaded")
    assert '"another" made the InferenceService' in life.message("InferenceServiceReady")
    life.store.annotate(AIM_SERVICE, "chat", ANNOTATION_TAKE_OVER, "true")
    life.settle()
    assert life.isvc is not None
    env = [entry["name"] for entry in life.isvc["spec"]["predictor"]["containers"][0]["env"]]
    assert ("NEW" in env, "THEIRS" in env) == (True, False)
    assert life.isvc["metadata"]["labels"][LABEL_MANAGED_BY] == "another", "a label would roll the pods once more"
    assert life.message("InferenceServiceReady") == ""


def test_overridden_sources_are_cached_by_a_profile_of_the_services_own() -> None:
    life = Life()
    life.service("static", profileOverrides={"modelSources": [{"sourceUri": "hf://Qwen/Qwen3-4B"}]})
    life.settle()
    (overlay,) = life.store.all(AIM_PROFILE)
    assert overlay["spec"]["modelSources"] == [{"sourceUri": "hf://Qwen/Qwen3-4B"}]
    assert life.status["status"] == "Running"
    (cache,) = life.store.all(AIM_PROFILE_CACHE)
    assert (cache["spec"]["profileName"], cache["spec"]["profileScope"]) == (view.name_of(overlay), "Namespace")
    assert life.writes_of() == []


def test_several_sources_without_adapters_are_all_mounted() -> None:
    sources = [{"sourceUri": "hf://Qwen/Qwen3-8B"}, {"sourceUri": "hf://Qwen/draft"}]
    life = Life(modelSources=sources)
    life.service("static")
    life.settle()
    assert [mount.path for mount in live_cache_mounts(life.isvc)] == [
        "/workspace/cache/Qwen/Qwen3-8B",
        "/workspace/cache/Qwen/draft",
    ]
    assert life.status["status"] == "Running"


def test_two_services_share_one_cache_and_a_dedicated_one_has_its_own() -> None:
    life = Life()
    life.service("static")
    life.make(AIM_SERVICE, {"metadata": {"name": "two"}, "spec": {"profile": {"name": "qwen3-8b-mi300x"}}})
    dedicated = {"profile": {"name": "qwen3-8b-mi300x"}, "caching": {"mode": "Dedicated"}}
    life.make(AIM_SERVICE, {"metadata": {"name": "own"}, "spec": dedicated})
    life.settle()
    modes = sorted(cache["spec"]["mode"] for cache in life.store.all(AIM_PROFILE_CACHE))
    assert modes == ["Dedicated", "Shared"]
    assert len([obj for obj in life.store.all(AIM_ARTIFACT)]) == 2  # noqa: C416 - counts them
    life.store.delete(AIM_SERVICE, "own")
    life.settle()
    assert len(life.store.all(AIM_PROFILE_CACHE)) == 1


def test_a_changed_profile_rolls_and_drops_the_old_projection() -> None:
    life = served("static")
    life.settle()
    profile = life.store.objects[(AIM_CLUSTER_PROFILE.kind, "qwen3-8b-mi300x")]
    life.store.edit(AIM_CLUSTER_PROFILE, "qwen3-8b-mi300x", dict(profile["spec"]) | {"engineEnv": {"A": "1"}})
    life.settle()
    config_maps = [obj for (kind, _), obj in life.store.objects.items() if kind == "ConfigMap"]
    assert len(config_maps) == 1
    assert any("PredictorChanged" in event and "volumes" in event for event in life.cluster.events)


@pytest.mark.parametrize("label", [LABEL_MANAGED_BY, LABEL_SERVICE])
def test_a_label_by_which_the_server_is_seen_is_put_back(label: str) -> None:
    life = served("dynamic", "a")
    theirs = copy.deepcopy(life.isvc)
    assert theirs is not None
    before = theirs["metadata"]["labels"].pop(label)
    theirs["metadata"]["labels"]["team"] = "x"
    life.store._store(INFERENCE_SERVICE, theirs)
    life.settle()
    assert life.isvc is not None
    assert life.isvc["metadata"]["labels"][label] == before
    assert life.isvc["metadata"]["labels"]["team"] == "x"


# -- template pipeline ----------------------------------------------------------------------------------------------

ON_TEMPLATES: dict[str, Any] = {"profile": None, "model": {"name": "qwen3-8b"}}
CUSTOM = {"custom": {"baseImage": "img", "modelSources": [{"sourceUri": "hf://Qwen/Qwen3-8B"}]}}
SECOND = {"kind": "AIMServiceTemplate", "metadata": {"name": "second"}, "spec": {"modelName": "qwen3-8b"}}
OWN_SOURCES = {
    "kind": "AIMServiceTemplate",
    "metadata": {"name": "qwen3-8b-latency"},
    "spec": {"modelName": "qwen3-8b", "modelSources": [{"sourceUri": "hf://Qwen/Qwen3-8B"}]},
}
TEMPLATES: dict[str, tuple[dict[str, Any], tuple[dict[str, Any], ...], tuple[str, str], tuple[str, bool] | None]] = {
    "the only template; the model says the sources": (
        ON_TEMPLATES,
        (TEMPLATE,),
        ("True", "AllCachesReady"),
        ("qwen3-8b-latency", True),
    ),
    "the template says its own": (
        ON_TEMPLATES,
        (OWN_SOURCES,),
        ("True", "AllCachesReady"),
        ("qwen3-8b-latency", False),
    ),
    "several fit": (ON_TEMPLATES, (TEMPLATE, SECOND), ("False", "TemplateAmbiguous"), ("qwen3-8b", True)),
    "the named one": (
        ON_TEMPLATES | {"template": {"name": "second"}},
        (TEMPLATE, SECOND),
        ("True", "AllCachesReady"),
        ("second", True),
    ),
    "the model does not exist": (
        {"profile": None, "model": {"name": "nobody"}},
        (),
        ("False", "ReferenceNotFound"),
        None,
    ),
    "none fits": (
        {"profile": None, "model": {"name": "bare"}},
        ({"kind": "AIMModel", "metadata": {"name": "bare"}, "spec": {"image": "img"}},),
        ("False", "TemplateNotFound"),
        None,
    ),
    "none fits, and the model says the sources": (
        {"profile": None, "model": {"name": "alone"}},
        (
            {
                "kind": "AIMModel",
                "metadata": {"name": "alone"},
                "spec": {"image": "img", "modelSources": [{"sourceUri": "hf://Qwen/Qwen3-8B"}]},
            },
        ),
        ("True", "AllCachesReady"),
        ("alone", True),
    ),
    "a bare image": ({"profile": None, "model": {"image": "img"}}, (), ("True", "NothingToCache"), None),
    "a custom model": ({"profile": None, "model": CUSTOM}, (), ("True", "AllCachesReady"), ("chat", True)),
}


@pytest.mark.parametrize(("spec", "world", "condition", "origin"), TEMPLATES.values(), ids=TEMPLATES)
def test_templates(
    spec: dict[str, Any],
    world: tuple[dict[str, Any], ...],
    condition: tuple[str, str],
    origin: tuple[str, bool] | None,
) -> None:
    seen = observe({"spec": spec}, *world)
    found = cache_origin(seen.facts)
    assert ((found.name, bool(found.sources)) if found else None) == origin
    decision = decide(seen)
    assert _condition(decision, "CacheReady") == condition
    caches = [obj for kind, obj in decision.apply if kind.kind == "AIMTemplateCache"]
    assert len(caches) == (1 if condition[1] == "AllCachesReady" else 0)


def test_a_model_that_no_template_fits_is_served_and_the_status_says_how() -> None:
    spec, world, _, _ = TEMPLATES["none fits, and the model says the sources"]
    for known, told in ((world, True), ((*world, {**SECOND, "spec": {"modelName": "alone"}}), False)):
        entries = {entry["type"]: entry for entry in decide(observe({"spec": spec}, *known)).status["conditions"]}
        assert ("no template fits the model" in entries["CacheReady"].get("message", "")) is told


def template_life() -> Life:
    """A model, which says the sources, and its template."""
    life = Life()
    life.make(AIM_MODEL, {"spec": {"modelSources": [{"sourceUri": "hf://Qwen/Qwen3-8B"}]}})
    life.make(AIM_SERVICE_TEMPLATE, TEMPLATE)
    return life


def on_templates(model: dict[str, Any]) -> Life:
    """A dynamic service of the template pipeline that serves an adapter."""
    life = template_life()
    life.adapter("a")
    life.service("dynamic", ["a"], profile=None, model=model)
    life.settle()
    assert life.state("a") == "Loaded"
    return life


@pytest.mark.parametrize(
    "model",
    [{"name": "qwen3-8b"}, {"image": "amdenterpriseai/aim-qwen-qwen3-8b:0.13.0"}],
    ids=["by name", "by image"],
)
@pytest.mark.parametrize("gone", [(AIM_SERVICE_TEMPLATE,), (AIM_MODEL,), (AIM_SERVICE_TEMPLATE, AIM_MODEL)])
def test_a_server_outlives_the_template_and_the_model_that_it_was_made_from(
    model: dict[str, str], gone: tuple[Kind, ...]
) -> None:
    life = on_templates(model)
    pods, isvc = pods_of(life), life.isvc
    kept = [(kind, obj) for kind in gone for obj in life.store.all(kind)]
    assert len(kept) == len(gone)
    for kind, obj in kept:
        life.store.delete(kind, view.name_of(obj))
    life.settle()
    assert (pods_of(life), life.isvc, life.state("a")) == (pods, isvc, "Loaded")
    assert life.condition("CacheReady")[0] == "False"
    assert "stays as it is for now" in life.message("InferenceServiceReady")
    for kind, obj in kept:
        life.make(kind, {"metadata": {"name": view.name_of(obj)}, "spec": obj["spec"]})
    life.settle()
    assert (pods_of(life), life.isvc, life.status["status"]) == (pods, isvc, "Running")
    assert life.message("InferenceServiceReady") == ""


def test_a_template_cache_without_sources_is_shared() -> None:
    life = template_life()
    life.make(
        AIM_TEMPLATE_CACHE,
        {
            "metadata": {"name": "mine"},
            "spec": {"templateName": "qwen3-8b-latency", "templateScope": "Namespace", "requiresAdapterDisk": True},
        },
    )
    life.adapter("a")
    life.service("dynamic", ["a"], profile=None, model={"name": "qwen3-8b"})
    life.settle()
    assert life.state("a") == "Loaded"
    assert [view.name_of(cache) for cache in life.store.all(AIM_TEMPLATE_CACHE)] == ["mine"]


def test_a_named_config_that_is_deleted_leaves_the_ceiling() -> None:
    life = Life()
    life.make(AIM_RUNTIME_CONFIG, {"metadata": {"name": "team"}, "spec": {"adapterRuntime": {"maxRank": 128}}})
    life.adapter("a", rank=100)
    life.service("dynamic", ["a"], runtimeConfigName="team")
    life.settle()
    isvc = life.isvc
    life.store.delete(AIM_RUNTIME_CONFIG, "team")
    life.settle()
    assert (life.state("a"), life.status["adapterMaxRank"], life.isvc) == ("Loaded", 128, isvc)
    assert life.condition("ConfigValid") == ("False", "ReferenceNotFound")


def _condition(decision: Decision, kind: str) -> tuple[str, str]:
    entry = next(entry for entry in decision.status["conditions"] if entry["type"] == kind)
    return entry["status"], entry["reason"]


def moving(life: Life) -> None:
    """Replace the base under a running service and let its new disk come to exist."""
    base = next(obj for obj in life.store.all(AIM_ARTIFACT) if view.text(obj, "spec", "type") == "model")
    life.store.delete(AIM_ARTIFACT, view.name_of(base))
    life.passes()


def test_while_the_disk_moves_the_status_says_what_the_pods_serve() -> None:
    life = served("dynamic", "a", "b")
    moving(life)
    life.adapter("late")
    life.adapter("b", uri="hf://acme/other", content="sha256:other")  # re-created: what is served is not it
    life.edit(adapters=["a", "b", "late"])
    life.passes()
    assert (life.state("a"), life.state("b"), life.state("late")) == ("Loaded", "Pending", "Pending")
    life.store.set_status(AIM_SERVICE, "chat", {})
    life.passes()
    assert life.state("a") == "Loaded"
    life.store.delete(AIM_ARTIFACT, "a")
    life.passes()
    assert (life.state("a"), life.entry("a")["lastError"]) == ("Loaded", "AdapterArtifactNotFound")
    life.edit(adapters=["b", "late"])
    life.passes()
    assert life.state("a") == "Deleting"  # the pods still serve it
    life.settle()
    assert (life.state("a"), life.state("b"), life.state("late")) == (None, "Loaded", "Loaded")
    assert life.status["status"] == "Running"


def test_pods_that_are_about_to_be_replaced_reject_nothing() -> None:
    life = served("dynamic", "a")
    moving(life)
    life.adapter("late")
    life.edit(adapters=["a", "late"])
    for _ in range(4):
        for job in life.machinery.waiting_jobs():
            life.machinery.run(job, "ok")
        life.passes()
    assert live_wiring(life.isvc).claim == life.status["adapterDiskPersistentVolumeClaim"]  # type: ignore[union-attr]
    life.machinery.now += timedelta(minutes=30)  # a slow roll: the pod before still serves
    life.passes()
    assert (life.state("a"), life.state("late")) == ("Loaded", "Downloaded")
    life.settle()
    assert (life.state("a"), life.state("late")) == ("Loaded", "Loaded")


def test_an_event_does_not_count_pods_that_are_not_there() -> None:
    life = Life()
    life.service()
    for _ in range(6):
        life.run_jobs("model-fetch")
        life.run_jobs(ROLE_SUBTREE_SYNC)
        life.passes()
    assert life.isvc is not None
    life.edit(env=[{"name": "X", "value": "1"}])
    life.passes()
    assert any(event.endswith("PredictorChanged: no pod runs yet: env X") for event in life.cluster.events)
    life.settle()
    life.edit(env=[{"name": "X", "value": "2"}])
    life.passes()
    assert any(event.endswith("PredictorChanged: 1 pod is replaced: env X") for event in life.cluster.events)
