"""The numbered weak spots of a system that does this job today: each would be a bug here."""

from __future__ import annotations

import copy
import json
from dataclasses import replace
from datetime import timedelta
from typing import Any

from api import view
from api.kinds import (
    AIM_ARTIFACT,
    AIM_CLUSTER_PROFILE,
    AIM_CLUSTER_RUNTIME_CONFIG,
    AIM_PROFILE_CACHE,
    AIM_RUNTIME_CONFIG,
    AIM_SERVICE,
    INFERENCE_SERVICE,
    JOB,
)
from api.names import ROLE_STAGING, ROLE_SUBTREE_SYNC
from reconcile.service.decide import decide
from reconcile.service.loading import ServerPod
from reconcile.service.manifests import Staging, render_stage_job
from rules.examples import manifest, surroundings
from rules.seen import see_service
from rules.worlds import SnapshotWorld
from tests.unit.reconcile.model.life import Life
from tests.unit.rules.judging import validate_service


def served(mode: str = "dynamic", *adapters: str, **spec: Any) -> Life:
    """A running service with these adapters."""
    life = Life()
    for name in adapters:
        life.adapter(name)
    life.service(mode, adapters, **spec)
    life.settle()
    assert life.status["status"] == "Running"
    return life


def test_weak_spot_01_set_a_then_a_and_b_then_a_again_prunes_b() -> None:
    life = Life()
    life.adapter("a")
    life.adapter("b")
    life.service(adapters=["a"])
    life.settle()
    first = next(write for write in life.store.writes if "-sync-" in write and write.startswith("create"))
    life.edit(adapters=["a", "b"])
    life.settle()
    assert set(life.folder.live) == {"a", "b"}
    life.store.writes.clear()
    life.edit(adapters=["a"])
    life.settle()
    assert set(life.folder.live) == {"a"}
    assert first in life.store.writes  # the same set needs the same Job, and it runs again


def test_weak_spot_01_a_finished_job_that_could_not_be_deleted_proves_nothing() -> None:
    life = served("dynamic", "a", "b")
    life.edit(adapters=["a"])
    life.passes()
    life.run_jobs(ROLE_SUBTREE_SYNC)
    undeleted = life.jobs(ROLE_SUBTREE_SYNC)[0]
    life.passes()
    life.store.put(JOB, undeleted, "2026-01-01T00:00:00Z")  # its deletion was lost
    life.machinery.job_pods[life.jobs(ROLE_SUBTREE_SYNC)[0]["metadata"]["uid"]] = []
    life.edit(adapters=["a", "b"])
    life.settle()
    life.edit(adapters=["a"])
    life.settle()
    assert set(life.folder.live) == {"a"}


def test_weak_spot_01_what_is_removed_leaves_the_mount_though_the_profile_is_gone() -> None:
    """No base is known without it, but the servers still mount the disk of the last one."""
    life = served("dynamic", "a", "b")
    profile = life.store.all(AIM_CLUSTER_PROFILE)[0]
    server = copy.deepcopy(life.isvc)
    life.store.remove(AIM_CLUSTER_PROFILE, view.name_of(profile))
    life.edit(adapters=["a"])
    life.settle()
    assert (list(life.folder.live), life.state("a"), life.entry("b")) == (["a"], "Loaded", {})
    assert life.writes_of() == []
    life.edit(adapters=["a", "b"])
    life.settle()
    assert life.state("b") == "Pending"
    life.make(AIM_CLUSTER_PROFILE, profile)
    life.settle()
    assert (life.state("a"), life.state("b")) == ("Loaded", "Loaded")
    assert life.isvc is not None
    assert server is not None
    assert life.isvc["spec"] == server["spec"]


def test_weak_spot_02_removed_and_added_back_is_staged_again() -> None:
    life = served("dynamic", "a", "b")
    life.edit(adapters=["a"])
    life.settle()
    assert set(life.folder.live) == {"a"}
    life.edit(adapters=["a", "b"])
    life.passes()
    assert life.state("b") == "Pending"
    life.settle()
    assert set(life.folder.live) == {"a", "b"}
    assert life.state("b") == "Loaded"


def test_weak_spot_02_added_back_while_the_removal_is_under_way() -> None:
    life = served("dynamic", "a", "b")
    life.edit(adapters=["a"])
    life.passes()
    assert life.state("b") == "Deleting"
    life.run_jobs(ROLE_SUBTREE_SYNC)  # the bytes are gone, no pass has looked yet
    life.edit(adapters=["a", "b"])
    life.passes()
    assert life.state("b") == "Pending"
    life.settle()
    assert (life.state("b"), set(life.folder.live)) == ("Loaded", {"a", "b"})


def test_weak_spot_03_downloaded_outlives_its_job() -> None:
    life = served("dynamic", "a")
    assert life.jobs(ROLE_STAGING) == []
    life.machinery.now += timedelta(days=400)
    assert [write for write in life.writes_of() if "chat" in write] == []
    assert life.state("a") == "Loaded"


def test_weak_spot_04_long_names_with_a_common_prefix_do_not_collide() -> None:
    prefix = "x" * 60
    life = Life()
    for name in (f"{prefix}-one", f"{prefix}-two"):
        life.adapter(name)
    life.service(adapters=[f"{prefix}-one", f"{prefix}-two"])
    life.passes()
    for _ in range(3):
        life.run_jobs(ROLE_SUBTREE_SYNC)
        for job in life.jobs("model-fetch"):
            life.machinery.run(job, "ok")
        life.passes()
    names = {view.name_of(job) for job in life.jobs(ROLE_STAGING)}
    assert len(names) == 2
    assert all(len(name) <= 63 for name in names)
    life.settle()
    assert set(life.folder.live) == {f"{prefix}-one", f"{prefix}-two"}


def test_weak_spot_05_last_observed_is_when_the_state_changed() -> None:
    life = served("dynamic", "a")
    before = life.entry("a")["lastObserved"]
    life.machinery.now += timedelta(hours=1)
    assert life.writes_of() == []
    assert life.entry("a")["lastObserved"] == before


def test_weak_spot_06_a_recreated_artifact_with_another_source_is_staged_again() -> None:
    life = served("dynamic", "a")
    life.store.delete(AIM_ARTIFACT, "a")
    life.adapter("a", uri="hf://acme/other", content="sha256:other")
    life.settle()
    assert life.folder.live["a"][0] == "sha256:other"
    assert life.entry("a")["digest"] == "sha256:other"
    assert life.state("a") == "Loaded"


def test_weak_spot_07_one_bad_adapter_freezes_no_other() -> None:
    life = served("dynamic", "a")
    life.adapter("too-big", rank=512)
    life.adapter("b")
    life.edit(adapters=["a", "too-big", "b"], replicas=2, env=[{"name": "X", "value": "1"}])
    life.settle()
    assert (life.state("a"), life.state("too-big"), life.state("b")) == ("Loaded", "Failed", "Loaded")
    assert life.condition("Adapters") == ("False", "AdapterConfigInvalid")
    assert life.condition("Ready") == ("True", "Serving")
    assert life.status["status"] == "Degraded"
    assert life.isvc is not None
    assert life.isvc["spec"]["predictor"]["minReplicas"] == 2
    assert {"name": "X", "value": "1"} in life.isvc["spec"]["predictor"]["containers"][0]["env"]


def test_weak_spot_08_a_cache_that_exists_gets_its_disk() -> None:
    life = Life()
    life.service("static", [])
    life.settle()
    cache = life.store.all(AIM_PROFILE_CACHE)[0]
    assert "requiresAdapterDisk" not in cache["spec"]
    life.store.delete(AIM_SERVICE, "chat")
    life.adapter("a")
    life.service("dynamic", ["a"])
    life.settle()
    cache = life.store.all(AIM_PROFILE_CACHE)[0]
    assert cache["spec"]["requiresAdapterDisk"] is True
    assert life.state("a") == "Loaded"


def test_weak_spot_08_a_users_cache_is_left_as_it_is() -> None:
    life = Life()
    spec = {"profileName": "qwen3-8b-mi300x", "profileScope": "Cluster"}
    life.make(AIM_PROFILE_CACHE, {"metadata": {"name": "mine"}, "spec": spec})
    life.adapter("a")
    life.service("dynamic", ["a"])
    life.settle()
    mine = life.store.get(AIM_PROFILE_CACHE, "mine")
    assert mine is not None
    assert mine["spec"] == spec
    assert life.state("a") == "Loaded"


def test_weak_spot_09_a_runtime_config_that_cannot_be_read_is_reported() -> None:
    life = served("dynamic", "a")
    life.adapter("b")
    life.edit(adapters=["a", "b"])
    life.passes()
    life.run_jobs(ROLE_SUBTREE_SYNC)
    seen = life.cluster.observe_service(life.chat)
    objects = [obj for (kind, _), obj in life.store.objects.items() if kind.startswith("AIM")]
    world = SnapshotWorld(objects, unknown=[AIM_RUNTIME_CONFIG, AIM_CLUSTER_RUNTIME_CONFIG])
    decision = decide(replace(seen, facts=see_service(life.chat, world)))
    entries = {entry["name"]: entry for entry in decision.status["adapters"]}
    assert entries["b"]["lastError"].startswith("RuntimeConfigUnreadable: ")
    assert entries["a"]["state"] == "Loaded"
    assert not [job for kind, job in decision.create if kind == JOB]


def test_weak_spot_10_what_the_server_skips_is_not_called_loaded() -> None:
    life = served("dynamic", "a")
    seen = life.cluster.observe_service(life.chat)
    skipping = (ServerPod("pod-9", seen.now, frozenset({"base"})),)
    first = decide(replace(seen, pods=skipping))
    assert first.status["adapters"][0]["state"] == "Downloaded"
    life.store.store_status(AIM_SERVICE, life.chat, first.status)
    later = life.cluster.observe_service(life.chat)
    decision = decide(replace(later, pods=skipping, now=later.now + timedelta(seconds=91)))
    entry = decision.status["adapters"][0]
    assert entry["state"] == "LoadRejected"
    assert "kubectl logs" in entry["lastError"]
    assert decision.status["status"] == "Degraded"
    conditions = {found["type"]: found for found in decision.status["conditions"]}
    assert conditions["Adapters"]["status"] == "True"
    assert "pod-9" in conditions["Adapters"]["message"]


def test_a_replica_that_comes_later_is_not_blamed_before_it_had_its_time() -> None:
    """A newcomer is named when its own time is over, whatever it is called, and though another pod was named before."""
    life = served("dynamic", "a")
    seen = life.cluster.observe_service(life.chat)
    old = ServerPod("pod-9", seen.now, frozenset({"base"}))
    life.store.store_status(AIM_SERVICE, life.chat, decide(replace(seen, pods=(old,))).status)
    later = replace(life.cluster.observe_service(life.chat), now=seen.now + timedelta(seconds=91))
    life.store.store_status(AIM_SERVICE, life.chat, decide(replace(later, pods=(old,))).status)
    rejected = replace(life.cluster.observe_service(life.chat), now=later.now + timedelta(seconds=1))
    young = ServerPod("pod-1", rejected.now, frozenset({"base"}))

    def entry_of(pods: tuple[ServerPod, ...], after: int = 0) -> dict[str, Any]:
        decision = decide(replace(rejected, pods=pods, now=rejected.now + timedelta(seconds=after)))
        found: dict[str, Any] = decision.status["adapters"][0]
        return found

    assert "pod pod-9 is ready" in entry_of((old, young))["lastError"]
    assert entry_of((young,))["state"] == "Downloaded"
    assert "pod pod-1 is ready" in entry_of((old, young), after=91)["lastError"]


HOSTILE_ENV = [
    {"name": "HF_TOKEN", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}},
    {"name": "AIMA_DISK", "value": "/elsewhere"},
    {"name": "PYTHONPATH", "value": "/evil"},
    {"name": "LD_PRELOAD", "value": "/evil.so"},
]


def staging_job(life: Life) -> dict[str, Any]:
    """Bring a service to its first staging Job."""
    for _ in range(4):
        life.passes()
        for role in ("model-fetch", ROLE_SUBTREE_SYNC):
            life.run_jobs(role)
    life.passes()
    return life.jobs(ROLE_STAGING)[0]


def test_weak_spot_11_the_artifacts_env_cannot_aim_the_writer() -> None:
    life = Life()
    life.adapter("a")
    spec = dict(life.store.objects[("AIMArtifact", "a")]["spec"]) | {"env": HOSTILE_ENV}
    life.store.edit(AIM_ARTIFACT, "a", spec)
    life.adapter("b")
    life.service(adapters=["a", "b"])
    assert "--artifact=b" in staging_job(life)["spec"]["template"]["spec"]["containers"][0]["args"]
    life.settle()
    assert [life.state(name) for name in ("a", "b")] == ["Failed", "Downloaded"]
    assert life.entry("a")["lastError"].startswith(
        'AdapterArtifactInvalid: Invalid value: "a": its own rules refuse AIMArtifact "a": '
    )
    artifact = life.store.objects[("AIMArtifact", "a")]
    staging = Staging(adapter=artifact, path="a", key="k", attempt=1, claim="c", base={}, max_rank=16)
    job = render_stage_job(life.chat, staging, {}, (), life.settings)
    container = job["spec"]["template"]["spec"]["containers"][0]
    assert [entry["name"] for entry in container["env"]] == ["HF_TOKEN", "POD_IP"]
    assert f"--service-uid={life.chat['metadata']['uid']}" in container["args"]


def test_weak_spot_12_no_secret_on_a_command_line() -> None:
    life = Life()
    life.config(
        artifact={
            "s3": {
                "endpoint": "https://s3.example",
                "auth": {"mode": "static", "credentialsSecretRef": {"name": "keys", "sessionTokenKey": "t"}},
            }
        },
        env=[{"name": "AWS_SECRET_ACCESS_KEY", "value": "hunter2"}],
    )
    life.adapter("a", uri="s3://bucket/a/")
    life.service(adapters=["a"])
    job = staging_job(life)
    pod = job["spec"]["template"]["spec"]
    assert "hunter2" not in json.dumps(job)
    assert {"secretName": "keys"}.items() <= pod["volumes"][-1]["secret"].items()
    assert "--s3-credentials-dir=/var/run/secrets/aim-adapters/s3" in pod["containers"][0]["args"]


def test_weak_spot_13_reordering_a_static_list_changes_nothing() -> None:
    life = served("static", "a", "b")
    old = life.chat
    life.edit(adapters=["b", "a"])
    verdict = validate_service(life.chat, old, life.store.world(), request_version="v1alpha2")
    assert verdict.errors == []
    writes = life.writes_of()
    assert set(writes) <= {"status AIMService chat"}
    assert life.cluster.events == []


def test_weak_spot_14_warning_events_come_once() -> None:
    life = served("dynamic", "a")
    life.adapter("broken")
    life.machinery.sources["hf://acme/broken"].broken = True
    life.edit(adapters=["a", "broken"])
    life.settle()
    failures = [event for event in life.cluster.events if "broken" in event and "→ Failed" in event]
    assert len(failures) == 1
    assert life.writes_of() == []
    assert life.cluster.events == []


def test_weak_spot_15_cross_object_faults_are_refused_at_once() -> None:
    service = manifest("AIMService", {"spec": {"adapters": [{"name": "foreign", "kind": "AIMArtifact"}]}})
    spec = {"type": "adapter", "modelId": "a/b", "sourceUri": "hf://a/b", "compatibleWith": ["other/base"]}
    world = surroundings([{"kind": "AIMArtifact", "metadata": {"name": "foreign"}, "spec": spec}])
    verdict = validate_service(service, None, world, request_version="v1alpha2")
    assert [error.reason for error in verdict.errors] == ["AdapterIncompatible"]


def test_weak_spot_16_a_service_that_is_not_ready_rests() -> None:
    life = Life()
    life.service(adapters=["missing"], profile={"name": "not-yet"})
    life.passes()
    assert life.condition("Ready")[0] == "False"
    for _ in range(3):
        life.machinery.now += timedelta(minutes=7)
        assert life.writes_of() == []


def test_a_server_that_gives_no_list_of_models_is_named() -> None:
    """What it serves is not guessed: the state stays as it was last seen, and the way to look is shown."""
    life = served("dynamic", "a")
    seen = life.cluster.observe_service(life.chat)
    silent = (ServerPod("pod-9", seen.now), ServerPod("pod-8", seen.now, mute=True))
    refused = "AdapterNotListed: pod pod-8 is ready and does not list it"
    for state, error, reason in (
        ("Downloaded", None, "ModelListUnreadable: pod pod-8 "),
        ("Loaded", None, "ModelListUnreadable: pod pod-8 "),
        ("LoadRejected", refused, refused),
    ):
        entry = {**life.entry("a"), "state": state, "lastError": error}
        chat = {**life.chat, "status": {**life.status, "adapters": [entry]}}
        told = decide(replace(seen, facts=see_service(chat, seen.facts.world), pods=silent))
        (now,) = told.status["adapters"]
        assert (now["state"], now["lastError"].startswith(reason)) == (state, True)
        (adapters,) = [entry for entry in told.status["conditions"] if entry["type"] == "Adapters"]
        assert (adapters["status"], adapters["message"]) == ("True", f"a is {state}: {now['lastError']}")
        again = decide(replace(seen, facts=see_service({**chat, "status": told.status}, seen.facts.world), pods=silent))
        assert again.status == told.status
        heard = decide(replace(seen, facts=see_service({**chat, "status": told.status}, seen.facts.world)))
        assert (heard.status["adapters"][0]["state"], heard.status["adapters"][0].get("lastError")) == ("Loaded", None)


def test_one_roll_takes_over_cache_and_disk_of_a_new_base() -> None:
    """The new disk has all adapters, the new cache not its model yet: the server waits for both."""
    for ready in (False, True):
        life = served("dynamic", "a")
        (base,) = (
            obj
            for (kind, _), obj in life.store.objects.items()
            if kind == AIM_ARTIFACT.kind and not view.is_adapter(obj)
        )
        life.store.set_status(
            AIM_ARTIFACT, view.name_of(base), base["status"] | {"status": "Ready" if ready else "Progressing"}
        )
        seen = life.cluster.observe_service(life.chat)
        isvc = copy.deepcopy(life.isvc)
        assert isvc is not None
        for volume in isvc["spec"]["predictor"]["volumes"]:
            if "persistentVolumeClaim" in volume:
                volume["persistentVolumeClaim"]["claimName"] = f"old-{volume['name']}"
        rolls = [obj for kind, obj in decide(replace(seen, isvc=isvc)).apply if kind == INFERENCE_SERVICE]
        assert len(rolls) == ready
        assert "old-" not in str(rolls)
