"""Whose pass a change asks for: everything that a service's decision reads must wake it when it comes or changes."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, cast

import pytest

from api.jobs import JobResult
from api.kinds import AIM_ARTIFACT, AIM_SERVICE, AIM_TEMPLATE_CACHE, INFERENCE_SERVICE, JOB, POD, Kind
from api.names import ANNOTATION_ATTEMPT, inference_service_name
from kube.cache import key_of
from kube.client import Client
from kube.engine import GATHER, Controller
from reconcile.caches.controller import CacheController
from reconcile.controllers import SIBLINGS, unless_progress
from reconcile.manager import make_reconciler
from reconcile.settings import CONTROLLERS, ReconcileSettings
from reconcile.world import CachedWorld, make_informers
from rules.world import KIND_BY_NAME
from tests.unit.reconcile.test_reconcile_calls import PLACE, Scene

SERVICES: dict[str, dict[str, Any]] = {
    "profiled": {"profile": {"name": "p"}, "runtimeConfigName": "rc"},
    "adapted": {"profile": {"name": "other"}, "adapters": [{"name": "lora", "kind": "AIMArtifact"}]},
    "modelled": {"model": {"name": "m"}},
    "imaged": {"model": {"image": "img:1"}},
    "templated": {"model": {"image": "elsewhere"}, "template": {"name": "t"}},
    "apart": {"profile": {"name": "apart"}, "runtimeConfigName": "apart"},
}
STORED: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("AIMArtifact", "lora", {"type": "adapter", "runtimeConfigName": "keys"}),
    ("AIMModel", "m", {"image": "img:1"}),
    ("AIMServiceTemplate", "t", {"modelName": "m"}),
)
CASES: dict[str, tuple[str, str, dict[str, Any], set[str]]] = {
    "a profile": ("AIMProfile", "p", {}, {"profiled"}),
    "a cluster profile": ("AIMClusterProfile", "p", {}, {"profiled"}),
    "a RuntimeConfig": ("AIMRuntimeConfig", "rc", {}, {"profiled"}),
    "a RuntimeConfig that an adapter names": ("AIMRuntimeConfig", "keys", {}, {"adapted"}),
    "a cluster RuntimeConfig that an adapter names": ("AIMClusterRuntimeConfig", "keys", {}, {"adapted"}),
    "an adapter": ("AIMArtifact", "lora", {"type": "adapter"}, {"adapted"}),
    "a model, by name, image and template": ("AIMModel", "m", {"image": "img:1"}, {"modelled", "imaged", "templated"}),
    "a cluster model": ("AIMClusterModel", "m", {"image": "img:1"}, {"modelled", "imaged", "templated"}),
    "a template by name": ("AIMServiceTemplate", "t", {"modelName": "gone"}, {"templated"}),
    "one more template of the model": ("AIMServiceTemplate", "t2", {"modelName": "m"}, {"modelled", "imaged"}),
    "one more cluster template": ("AIMClusterServiceTemplate", "t2", {"modelName": "m"}, {"modelled", "imaged"}),
}


def _object(kind: Kind, name: str, spec: dict[str, Any]) -> dict[str, Any]:
    metadata = {"name": name} | ({"namespace": PLACE} if kind.namespaced else {})
    return {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata, "spec": spec}


@pytest.fixture
def scene() -> Scene:
    scene = Scene(projected=False)
    for name, spec in SERVICES.items():
        scene.server.add(AIM_SERVICE, _object(AIM_SERVICE, name, spec))
    for kind, name, spec in STORED:
        scene.server.add(KIND_BY_NAME[kind], _object(KIND_BY_NAME[kind], name, spec))
    return scene


def woken(controller: Controller, changed: dict[str, Any]) -> set[str]:
    kind = KIND_BY_NAME[changed["kind"]]
    keys = {key for watch in controller.watches if watch.informer.kind == kind for key in watch.keys(None, changed)}
    assert {namespace for namespace, _ in keys} <= {PLACE}
    return {name for _, name in keys}


@pytest.mark.parametrize(("kind", "name", "spec", "expected"), CASES.values(), ids=CASES)
def test_services(scene: Scene, kind: str, name: str, spec: dict[str, Any], expected: set[str]) -> None:
    assert woken(scene.controller, _object(KIND_BY_NAME[kind], name, spec)) == expected


async def test_an_inference_service_that_holds_the_name_of_another_wakes_the_one_that_waits(scene: Scene) -> None:
    """It has no owner, or another one: nothing in it leads to the service that waits until it is gone."""
    informer = scene.server.informers[INFERENCE_SERVICE]
    taken = _object(INFERENCE_SERVICE, inference_service_name("profiled", PLACE) or "", {})
    stored = scene.server.stored(INFERENCE_SERVICE, taken)

    async def wakes() -> set[tuple[str, str]]:
        await scene.controller.reconcile((PLACE, "profiled"))
        return {
            key for watch in scene.controller.watches if watch.informer is informer for key in watch.keys(stored, None)
        }

    assert await wakes() == set()
    informer.store(stored)
    assert await wakes() == {(PLACE, "profiled")}
    informer.drop(key_of(stored))
    assert await wakes() == set()


def test_of_an_adapters_status_only_its_path_wakes_services(scene: Scene) -> None:
    old = scene.server.informers[AIM_ARTIFACT].get(PLACE, "lora")
    assert old is not None
    for status, expected in (({"status": "Ready"}, set()), ({"adapterPath": "elsewhere"}, {"adapted"})):
        keys = {
            name
            for watch in scene.controller.watches
            if watch.informer.kind == AIM_ARTIFACT
            for _, name in watch.keys(old, old | {"status": status})
        }
        assert keys == expected


def test_a_sweep_of_the_disk_wakes_only_its_base() -> None:
    concerned = unless_progress(lambda obj: [key_of(dict(obj))])
    base = _object(AIM_ARTIFACT, "base", {"type": "model"}) | {"status": {"status": "Ready"}}
    swept = {"lastReapTime": "2026-01-01T00:00:00Z", "lastReapWorld": "w", "lastReap": {"reason": "DiskReaped"}}
    assert not list(concerned(base, base | {"status": base["status"] | swept}))
    assert list(concerned(base, base | {"status": base["status"] | {"persistentVolumeClaim": "other"}}))


# -- Jobs and their pods --------------------------------------------------------------------------------------------


class JobScene:
    """Two Jobs of one service, seen through the watches of the service controller."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        self.owner = {"apiVersion": AIM_SERVICE.api_version, "kind": "AIMService", "name": "adapted", "uid": "u"}
        self.jobs = [self.job(name) for name in ("one", "two")]
        for job in self.jobs:
            scene.server.informers[JOB].store(job)

    def job(self, name: str, **more: Any) -> dict[str, Any]:
        job = _object(JOB, name, {})
        job["metadata"] |= {"ownerReferences": [self.owner], "annotations": {ANNOTATION_ATTEMPT: "1"}}
        return self.scene.server.stored(JOB, job, **more)

    def pod(self, job: dict[str, Any], state: dict[str, Any], **status: Any) -> dict[str, Any]:
        pod = _object(POD, f"{job['metadata']['name']}-x", {})
        pod["metadata"]["ownerReferences"] = [{"kind": "Job", "apiVersion": "batch/v1"} | job["metadata"]]
        status |= {"containerStatuses": [{"name": "disk", "state": state}]}
        return self.scene.server.stored(POD, pod, status=status)

    def told(self, kind: Kind, new: dict[str, Any] | None, old: dict[str, Any] | None = None) -> list[timedelta]:
        """Take in a change; returns the gathering time of each wake of the service."""
        informer = self.scene.server.informers[kind]
        if new is not None:
            informer.store(new)
        elif old is not None:
            informer.drop(key_of(old))
        watches = [watch for watch in self.scene.controller.watches if watch.informer is informer]
        gathers = [watch.gather for watch in watches if (PLACE, "adapted") in watch.keys(old, new)]
        return [gather if isinstance(gather, timedelta) else gather(old, new) for gather in gathers]


_ENDED = {"terminated": {"exitCode": 0, "message": JobResult(ok=True, reason="AdapterStaged").to_termination_message()}}


def test_a_job_wakes_its_owner_when_its_story_continues_and_not_for_bookkeeping(scene: Scene) -> None:
    jobs = JobScene(scene)
    one, two = jobs.jobs
    counted = jobs.job("one", status={"active": 1, "startTime": "2026-01-01T00:00:00Z"})
    assert jobs.told(JOB, counted, one) == []
    young = jobs.pod(one, {})
    assert jobs.told(POD, young) == []
    words = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "no node"}
    stuck = jobs.pod(one, {}, conditions=[words])
    assert jobs.told(POD, stuck, young) == [GATHER]
    runs = jobs.pod(one, {"running": {}}, podIP="10.0.0.1")
    assert jobs.told(POD, runs, stuck) == [GATHER]
    ended = jobs.pod(one, _ENDED)
    assert jobs.told(POD, ended, runs) == [SIBLINGS]  # the other Job may end in this very moment
    complete = {"conditions": [{"type": "Complete", "status": "True"}]}
    assert jobs.told(JOB, jobs.job("one", status=complete), counted) == []
    bare = jobs.pod(one, _ENDED)
    assert jobs.told(POD, bare, ended) == []
    assert jobs.told(POD, jobs.pod(two, _ENDED)) == [GATHER]  # nothing to wait for any more
    assert jobs.told(POD, None, bare) == [GATHER]  # its words are lost, its Job is still there


def test_a_job_that_comes_goes_or_fails_alone_wakes_its_owner(scene: Scene) -> None:
    jobs = JobScene(scene)
    one, two = jobs.jobs
    failed = jobs.job("one", status={"conditions": [{"type": "Failed", "status": "True"}]})
    assert jobs.told(JOB, failed, one) == [GATHER]
    leaving = jobs.job("two")
    leaving["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert jobs.told(JOB, leaving, two) == [GATHER]
    assert jobs.told(JOB, None, leaving) == [GATHER]
    assert jobs.told(JOB, jobs.job("three")) == [GATHER]


def test_the_overlay_of_a_service_wakes_it(scene: Scene) -> None:
    overlay = _object(KIND_BY_NAME["AIMProfile"], "profiled-overlay", {})
    owner = {"apiVersion": AIM_SERVICE.api_version, "kind": "AIMService", "name": "profiled", "uid": "u"}
    overlay["metadata"]["ownerReferences"] = [owner]
    assert woken(scene.controller, overlay) == {"profiled"}


@pytest.mark.parametrize("model", ["AIMModel", "AIMClusterModel"])
def test_the_cache_of_a_template_has_its_models_sources(scene: Scene, model: str) -> None:
    cache = _object(AIM_TEMPLATE_CACHE, "t-cache", {"templateName": "t"})
    scene.server.add(AIM_TEMPLATE_CACHE, cache)
    controller = CacheController(scene.controller._tools, AIM_TEMPLATE_CACHE)
    changed = _object(KIND_BY_NAME[model], "m", {"image": "img:2"})
    assert woken(controller, changed) == {"t-cache"}
    assert woken(controller, _object(AIM_ARTIFACT, "any", {"sourceUri": "hf://a/b"})) == {"t-cache"}


def test_only_the_chosen_controllers_are_made() -> None:
    informers = make_informers(cast("Client", None))
    world, nobody = CachedWorld(informers), cast("Any", None)

    def names(*chosen: str) -> list[str]:
        made = make_reconciler(
            nobody,
            informers=informers,
            world=world,
            recorder=nobody,
            settings=ReconcileSettings(),
            wake=nobody,
            selected=chosen or CONTROLLERS,
        )
        return [controller.name for controller in made.controllers]

    assert names() == list(CONTROLLERS)
    assert names("artifact", "service") == ["service", "artifact"]
