"""How many requests passes make: one for each thing that changes, none for what does not."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import nullcontext
from datetime import UTC, datetime, timedelta
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

import pytest

from api import view
from api.jobs import JobResult
from api.kinds import (
    AIM_ARTIFACT,
    AIM_PROFILE_CACHE,
    AIM_SERVICE,
    INFERENCE_SERVICE,
    JOB,
    PERSISTENT_VOLUME_CLAIM,
    POD,
    Kind,
)
from api.names import (
    ANNOTATION_STAGE_KEY,
    ANNOTATION_SYNC_KEY,
    FIELD_OWNER,
    LABEL_MANAGED_BY,
    inference_service_name,
)
from api.view import JsonObject
from bench.reconcile.stand_ins import BASE, adapter, adapter_names, base_and_profile, service
from kube.client import Client, ListPage
from kube.engine import Watch
from kube.errors import AlreadyExists, Conflict, Forbidden, Invalid, NamespaceTerminating, Transient, parse_error
from kube.poll import Poller
from reconcile.controllers import Tools, parse_models
from reconcile.decision import Decision, Delete
from reconcile.service.controller import ServiceController
from reconcile.settings import ReconcileSettings
from reconcile.shell import ApplyRefusedError, Shell
from reconcile.starts import Starts
from reconcile.turns import Turns
from reconcile.world import CachedWorld, make_informers

PLACE = "team"
READY = {"status": "Ready", "persistentVolumeClaim": "llama-cache"}


class Server:
    """Answers writes as an API server does, and counts them by verb and kind."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.statuses: list[dict[str, Any]] = []
        self.version = 0
        self.refuse: Kind | None = None
        self.refusal: Exception = Invalid(422, "Invalid", "spec.predictor: no")
        self.behind: dict[tuple[Kind, str], dict[str, Any]] = {}  # what is stored and no informer shows
        self.informers = make_informers(cast("Client", self))
        for informer in self.informers.values():
            informer.synced.set()
            informer._streams[0].version = "0"

    def stored(self, kind: Kind, obj: dict[str, Any], **more: Any) -> dict[str, Any]:
        self.version += 1
        made = {
            "uid": f"uid-{kind.plural}-{view.name_of(obj)}",
            "generation": 1,
            "creationTimestamp": "2026-01-01T00:00:00Z",
        }
        metadata = made | obj["metadata"] | {"resourceVersion": str(self.version)}
        return obj | {"kind": kind.kind, "metadata": metadata} | more

    def add(self, kind: Kind, obj: dict[str, Any], **more: Any) -> None:
        self.informers[kind].store(self.stored(kind, obj, **more))

    async def apply(self, kind: Kind, obj: dict[str, Any]) -> dict[str, Any]:
        self.calls.append(f"apply {kind.plural}")
        if kind == self.refuse:
            raise self.refusal
        there, fence = self.behind.get((kind, view.name_of(obj))) or self._cached(kind, obj), obj["metadata"]
        if there is not None and fence["resourceVersion"] != there["metadata"]["resourceVersion"]:
            raise Conflict(409, "Conflict", "the object has been modified")
        if there is None and "uid" in fence:
            raise Conflict(409, "Conflict", "uid mismatch")
        return self.stored(kind, obj)

    async def list_pages(self, kind: Kind, namespace: str, *, field_selector: str) -> AsyncIterator[ListPage]:
        self.calls.append(f"list {kind.plural}")
        there = self.behind.get((kind, field_selector.removeprefix("metadata.name=")))
        yield ListPage([there] if there else [], "1", False)

    def _cached(self, kind: Kind, obj: dict[str, Any]) -> dict[str, Any] | None:
        return self.informers[kind].get(obj["metadata"]["namespace"], view.name_of(obj))

    async def patch_status(self, kind: Kind, namespace: str, name: str, patch: dict[str, Any]) -> dict[str, Any]:
        self.calls.append(f"patch {kind.plural}")
        self.statuses.append(patch["status"])
        old = dict(self.informers[kind].get(namespace, name) or {"metadata": {"namespace": namespace, "name": name}})
        status = {
            key: value for key, value in (dict(old.get("status", {})) | patch["status"]).items() if value is not None
        }
        return self.stored(kind, old, status=status)

    async def create(self, kind: Kind, obj: dict[str, Any]) -> dict[str, Any]:
        self.calls.append(f"create {kind.plural}")
        if kind == self.refuse:
            raise self.refusal
        return self.stored(kind, obj)

    async def get_raw(self, path: str) -> bytes:
        """Answer a question for events; it is not a write."""
        assert "/events?" in path
        return b'{"items": []}'

    async def delete(self, kind: Kind, namespace: str, name: str, *, uid: str) -> bool:
        self.calls.append(f"delete {kind.plural} {name} {uid}")
        return True


def _wake(woken: list[tuple[str, str]], watch: Watch, old: JsonObject | None, new: JsonObject | None) -> None:
    woken += [key for key in watch.keys(old, new) if watch.informer.writer != (AIM_SERVICE, key)]


class Scene:
    """Services of one ready base (with an adapter disk, if that is asked for) and the controller over them."""

    def __init__(self, *, projected: bool, disk: bool = False) -> None:
        self.server = server = Server()
        self.told: list[str] = []
        self.moment = datetime(2026, 3, 1, tzinfo=UTC)
        ready = READY | ({"adapterPersistentVolumeClaim": "llama-disk"} if disk else {})
        for kind, obj in base_and_profile(PLACE, disk=disk, projected=projected):
            server.add(kind, obj, **({"status": ready} if kind == AIM_ARTIFACT else {}))
        if disk:
            claim = {"metadata": {"name": "llama-disk", "namespace": PLACE}}
            server.add(PERSISTENT_VOLUME_CLAIM, claim, status={"phase": "Bound"})
        recorder = SimpleNamespace(record=lambda _, __, reason, ___: self.told.append(reason))
        nobody: Callable[[Any], None] = lambda _: None  # noqa: E731
        self.shell = Shell(
            cast("Client", server), server.informers, recorder, cast("Any", SimpleNamespace(deleting=nobody))
        )
        world, servers = CachedWorld(server.informers), Poller(parse_models, nobody)
        informers, now = server.informers, lambda: self.moment
        turns = Turns(8, informers[JOB], informers[POD], lambda *_: None, now)
        starts = Starts(cast("Client", server), now)
        tools = Tools(informers, world, self.shell, ReconcileSettings(), cast("Any", servers), turns, starts, now)
        self.controller = ServiceController(tools, servers)

    def woken_from_now_on(self) -> list[tuple[str, str]]:
        """Return a list that takes each service that a change asks a pass for and that did not make it itself."""
        woken: list[tuple[str, str]] = []
        for watch in self.controller.watches:
            if watch.informer.kind in (AIM_SERVICE, INFERENCE_SERVICE, JOB):
                watch.informer.add_handler(partial(_wake, woken, watch))
        return woken

    def end_jobs(self, result: JobResult, key_annotation: str) -> None:
        """Let all Jobs end that carry this key, as their pods say."""
        for job in self.server.informers[JOB].items():
            if key_annotation in job["metadata"]["annotations"]:
                owner = {
                    "kind": "Job",
                    "apiVersion": "batch/v1",
                    "name": view.name_of(job),
                    "uid": job["metadata"]["uid"],
                }
                metadata = {"name": f"{view.name_of(job)}-x", "namespace": PLACE, "ownerReferences": [owner]}
                ended = {"exitCode": 0, "message": result.to_termination_message()}
                status = {"containerStatuses": [{"name": "disk", "state": {"terminated": ended}}]}
                self.server.add(POD, {"metadata": metadata}, status=status)

    async def passes(self, count: int) -> list[str]:
        """Make passes over all services, a minute apart; returns the requests."""
        self.server.calls.clear()
        for _ in range(count):
            for key in list(self.server.informers[AIM_SERVICE].cache):
                await self.controller.reconcile(key)
            self.moment += timedelta(minutes=1)
        return list(self.server.calls)


@pytest.mark.parametrize("projected", [False, True])
async def test_a_new_service_costs_an_apply_of_each_object_and_one_status(projected: bool) -> None:
    """The first one makes the cache for all; the status reports at once what this very pass made."""
    scene = Scene(projected=projected)
    scene.server.add(AIM_SERVICE, service(PLACE, 0, 0))
    await scene.passes(2)
    scene.server.add(AIM_SERVICE, service(PLACE, 1, 0))
    config_map = ["apply configmaps"] if projected else []
    assert await scene.passes(3) == [*config_map, "apply inferenceservices", "patch aimservices"]
    status = scene.server.statuses[-1]
    assert (status["status"], status["cache"]["profileCacheRef"]["kind"]) == ("Starting", "AIMProfileCache")
    assert status["runtime"]["replicas"] == "0/1"


async def test_services_that_are_never_ready_are_left_in_peace() -> None:
    """No transition time is renewed and no pass wakes the next, however long they wait."""
    scene = Scene(projected=True)
    for index in range(200):
        scene.server.add(AIM_SERVICE, service(PLACE, index, 0))
    await scene.passes(1)
    assert await scene.passes(3) == []


async def test_an_edit_costs_one_apply_and_one_status() -> None:
    """Without pods nothing is rolled out, and no status says so for a moment."""
    scene = Scene(projected=False)
    scene.server.add(AIM_SERVICE, service(PLACE, 0, 0))
    await scene.passes(2)
    old = dict(next(scene.server.informers[AIM_SERVICE].items()))
    spec = old["spec"] | {"env": [{"name": "BENCH", "value": "1"}]}
    scene.server.add(AIM_SERVICE, old | {"spec": spec, "metadata": old["metadata"] | {"generation": 2}})
    assert await scene.passes(3) == ["apply inferenceservices", "patch aimservices"]


async def test_a_service_with_four_adapters_is_written_at_three_moments() -> None:
    """Its directory is being made; it is made, so the server and all staging start; all is staged.

    No pass is woken by what it wrote itself, and each finished Job goes.
    """
    scene = Scene(projected=False, disk=True)
    scene.server.add(AIM_SERVICE, service(PLACE, 0, 0))
    await scene.passes(2)  # makes the cache for all
    scene.server.add(AIM_PROFILE_CACHE, _holding_the_base(scene))
    for name in adapter_names(1, 4):
        scene.server.add(AIM_ARTIFACT, adapter(PLACE, name))
    scene.server.add(AIM_SERVICE, service(PLACE, 1, 4))
    woken_by_itself = scene.woken_from_now_on()
    assert _kinds(await scene.passes(2)) == ["create jobs", "patch aimservices"]
    scene.end_jobs(JobResult(ok=True, reason="SubtreeSynced"), ANNOTATION_SYNC_KEY)
    started = ["apply inferenceservices", *["create jobs"] * 4, "patch aimservices", "delete jobs"]
    assert _kinds(await scene.passes(2)) == started
    assert scene.server.statuses[-1]["status"] == "Starting"
    scene.end_jobs(JobResult(ok=True, reason="AdapterStaged", rank=16, digest="sha256:1"), ANNOTATION_STAGE_KEY)
    assert _kinds(await scene.passes(2)) == ["patch aimservices", *["delete jobs"] * 4]
    assert scene.server.statuses[-1]["adapterSummary"] == "4/4"
    assert scene.told == ["AdapterDownloaded"]
    assert woken_by_itself == []


def _kinds(calls: list[str]) -> list[str]:
    return [" ".join(call.split()[:2]) for call in calls]


def _holding_the_base(scene: Scene) -> dict[str, Any]:
    cache = next(scene.server.informers[AIM_PROFILE_CACHE].items())
    spec = cache["spec"] | {"requiresAdapterDisk": True}
    return dict(cache) | {"spec": spec, "status": {"status": "Ready", "artifacts": {"0": {"name": BASE}}}}


async def test_a_refused_apply_is_not_decided_again() -> None:
    scene = Scene(projected=True)
    scene.server.refuse = INFERENCE_SERVICE
    scene.server.add(AIM_SERVICE, service(PLACE, 0, 0))
    calls = await scene.passes(1)
    assert calls.count("apply inferenceservices") == 1
    assert scene.told == ["InferenceServiceRefused"]


OURS = {LABEL_MANAGED_BY: FIELD_OWNER}
JOB_OF_CHAT = {"metadata": {"name": "stage", "namespace": PLACE}}
ADAPTERS_WAIT = {"conditions": [{"type": "Adapters", "status": "True", "reason": "x", "message": "a is Pending"}]}


async def test_what_rights_or_quota_refuse_is_reported_beside_the_truth_and_tried_again() -> None:
    scene = Scene(projected=False)
    scene.server.refuse, scene.server.refusal = JOB, Forbidden(403, "Forbidden", "exceeded quota: none")
    chat = scene.server.stored(AIM_SERVICE, service(PLACE, 0, 0))
    decision = Decision(create=((JOB, JOB_OF_CHAT),), status=ADAPTERS_WAIT)
    with pytest.raises(ApplyRefusedError) as caught:
        await scene.shell.carry_out(AIM_SERVICE, chat, decision)
    assert isinstance(caught.value, Transient)
    assert caught.value.largest_backoff == 60
    (said,) = scene.server.statuses[-1]["conditions"]
    assert said["message"] == "a is Pending; not made or changed: Job stage: 403 Forbidden: exceeded quota: none"


async def test_a_server_that_quota_refuses_is_reported_at_once_and_tried_again_soon() -> None:
    scene = Scene(projected=True)
    scene.server.refuse, scene.server.refusal = INFERENCE_SERVICE, Forbidden(403, "Forbidden", "exceeded quota: none")
    scene.server.add(AIM_SERVICE, service(PLACE, 0, 0))
    with pytest.raises(ApplyRefusedError):  # for the work queue's backoff
        await scene.passes(1)
    served = next(c for c in scene.server.statuses[-1]["conditions"] if c["type"] == "InferenceServiceReady")
    assert (served["reason"], served["message"]) == ("InferenceServiceRefused", "403 Forbidden: exceeded quota: none")
    assert scene.told == ["InferenceServiceRefused"]


async def test_a_server_of_another_owner_that_no_informer_shows_is_reported() -> None:
    scene = Scene(projected=True)
    scene.server.add(AIM_SERVICE, service(PLACE, 0, 0))
    chat = next(scene.server.informers[AIM_SERVICE].items())
    name = inference_service_name(view.name_of(chat), PLACE)
    theirs = isvc(2, {"uid": "other", "kind": "AIMService", "name": "other"})
    theirs["metadata"]["name"] = name
    scene.server.behind[INFERENCE_SERVICE, str(name)] = scene.server.stored(INFERENCE_SERVICE, theirs)
    for _ in range(2):
        with pytest.raises(ApplyRefusedError):  # for the work queue's backoff: no event reports when it is deleted
            await scene.passes(1)
        served = next(c for c in scene.server.statuses[-1]["conditions"] if c["type"] == "InferenceServiceReady")
        assert served["message"] == f'InferenceService "{name}" belongs to another owner'
    assert scene.told == ["InferenceServiceRefused"]


@pytest.mark.parametrize(("labels", "said"), [({}, "without the label by which it is found"), (OURS, "a is Pending")])
async def test_a_job_that_no_informer_will_show_is_reported(labels: dict[str, str], said: str) -> None:
    scene = Scene(projected=False)
    scene.server.refuse, scene.server.refusal = JOB, AlreadyExists(409, "AlreadyExists", "it exists")
    there = scene.server.stored(JOB, JOB_OF_CHAT)
    scene.server.behind[JOB, "stage"] = there | {"metadata": there["metadata"] | {"labels": labels}}
    chat = scene.server.stored(AIM_SERVICE, service(PLACE, 0, 0))
    decision = Decision(create=((JOB, JOB_OF_CHAT),), status=ADAPTERS_WAIT)
    with pytest.raises(ApplyRefusedError) if labels != OURS else nullcontext():
        await scene.shell.carry_out(AIM_SERVICE, chat, decision)
    (condition,) = scene.server.statuses[-1]["conditions"]
    assert said in condition["message"]


async def test_a_terminating_namespace_is_not_written_about() -> None:
    scene = Scene(projected=False)
    words = "unable to create new content in namespace team because it is being terminated"
    scene.server.refuse, scene.server.refusal = JOB, parse_error(403, json.dumps({"message": words}).encode())
    chat = scene.server.stored(AIM_SERVICE, service(PLACE, 0, 0))
    with pytest.raises(NamespaceTerminating):
        await scene.shell.carry_out(AIM_SERVICE, chat, Decision(create=((JOB, JOB_OF_CHAT),), status=ADAPTERS_WAIT))
    assert scene.server.statuses == []


async def test_an_object_is_deleted_once_however_many_passes_want_it_gone() -> None:
    """The watch needs a moment to show that it is going; its successor of the same name is another object."""
    scene = Scene(projected=False)
    for uid in ("one", "one", "two"):
        decision = Decision(delete=(Delete(JOB, PLACE, "stage", uid),))
        await scene.shell.carry_out(AIM_SERVICE, scene.server.stored(AIM_SERVICE, service(PLACE, 0, 0)), decision)
    assert scene.server.calls == ["delete jobs stage one", "delete jobs stage two"]


def woken(scene: Scene, kind: Kind, old: dict[str, Any], new: dict[str, Any]) -> set[tuple[str, str]]:
    """The services that a change wakes."""
    watches = (watch for watch in scene.controller.watches if watch.informer.kind == kind)
    return {key for watch in watches for key in watch.keys(old, new)}


async def test_the_progress_of_a_base_wakes_none_of_those_who_wait_for_it() -> None:
    scene = Scene(projected=False)
    for index in range(3):
        scene.server.add(AIM_SERVICE, service(PLACE, index, 0))
    await scene.passes(2)
    profile_cache = scene.server.informers[AIM_PROFILE_CACHE]
    cache = next(profile_cache.items())
    profile_cache.store(scene.server.stored(AIM_PROFILE_CACHE, cache, status={"artifacts": {"0": {"name": BASE}}}))
    old = next(scene.server.informers[AIM_ARTIFACT].items())
    moved = scene.server.stored(AIM_ARTIFACT, old, status=READY | {"progress": {"percentage": 7}})
    failed = scene.server.stored(AIM_ARTIFACT, old, status=READY | {"status": "Failed"})
    assert woken(scene, AIM_ARTIFACT, old, moved) == set()
    assert len(woken(scene, AIM_ARTIFACT, old, failed)) == 3


# -- writes that come late ------------------------------------------------------------------------------------------

OWNED = {"uid": "service-uid", "kind": "AIMService", "name": "chat"}


def isvc(replicas: int, owner: dict[str, str] = OWNED) -> dict[str, Any]:
    metadata = {"name": "chat", "namespace": PLACE, "labels": {}, "ownerReferences": [owner]}
    container = {"name": "kserve-container", "env": [], "resources": {}}
    return {"metadata": metadata, "spec": {"predictor": {"minReplicas": replicas, "containers": [container]}}}


async def apply(scene: Scene, wanted: dict[str, Any]) -> None:
    decision = Decision(apply=((INFERENCE_SERVICE, wanted),))
    await scene.shell.carry_out(AIM_SERVICE, scene.server.stored(AIM_SERVICE, service(PLACE, 0, 0)), decision)


async def test_an_apply_lands_on_the_version_that_was_known_and_on_no_other() -> None:
    scene = Scene(projected=False)
    scene.server.add(INFERENCE_SERVICE, isvc(1))
    changed = scene.server.stored(INFERENCE_SERVICE, isvc(2))
    scene.server.behind[INFERENCE_SERVICE, "chat"] = changed
    with pytest.raises(Conflict):
        await apply(scene, isvc(3))
    assert scene.server.calls == ["apply inferenceservices"]
    scene.server.behind.clear()
    await apply(scene, isvc(3))


async def test_what_was_deleted_is_not_made_again_by_a_late_apply(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(projected=False)
    scene.server.add(INFERENCE_SERVICE, isvc(1))
    monkeypatch.setattr(scene.server, "_cached", lambda kind, obj: None)  # the server has none any more
    with pytest.raises(Conflict):
        await apply(scene, isvc(3))


async def test_a_late_creation_changes_nothing_that_is_there() -> None:
    scene = Scene(projected=False)
    scene.server.behind[INFERENCE_SERVICE, "chat"] = scene.server.stored(INFERENCE_SERVICE, isvc(2))
    with pytest.raises(Conflict):
        await apply(scene, isvc(1))
    assert scene.server.calls == ["apply inferenceservices", "list inferenceservices"]
    known = scene.server.informers[INFERENCE_SERVICE].get(PLACE, "chat")
    assert known is not None
    assert known["spec"]["predictor"]["minReplicas"] == 2  # the next pass starts from what is there


async def test_what_another_made_just_as_wanted_is_fine() -> None:
    scene = Scene(projected=False)
    scene.server.behind[INFERENCE_SERVICE, "chat"] = scene.server.stored(INFERENCE_SERVICE, isvc(1))
    await apply(scene, isvc(1))


async def test_an_object_of_another_owner_is_left_alone_though_no_informer_shows_it() -> None:
    scene = Scene(projected=False)
    theirs = isvc(2, {"uid": "other", "kind": "AIMService", "name": "other"})
    scene.server.behind[INFERENCE_SERVICE, "chat"] = scene.server.stored(INFERENCE_SERVICE, theirs)
    with pytest.raises(ApplyRefusedError, match="belongs to another owner"):
        await apply(scene, isvc(1))
    assert scene.server.informers[INFERENCE_SERVICE].get(PLACE, "chat") is None
