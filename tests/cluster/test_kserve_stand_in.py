"""The KServe stand-in with a real API server. No node runs here: the test writes pod status instead of a kubelet."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from api.view import JsonObject
from devcluster.by_path import Kube
from devcluster.kserve.__main__ import READY_LINE
from devcluster.paths import path_for
from kube.errors import ApiError

pytestmark = pytest.mark.cluster

GROUP = "serving.kserve.io"
AUTOSCALER = f"{GROUP}/autoscalerClass"
MANAGER = "aim-adapters"


class StandIn:
    """One process of the stand-in."""

    def __init__(self, kubeconfig: Path, log: Path) -> None:
        self._kubeconfig = kubeconfig
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self._log.open("wb") as out:
            command = [sys.executable, "-m", "devcluster.kserve", f"--kubeconfig={self._kubeconfig}"]
            self._process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT)
        deadline = time.monotonic() + 30
        while READY_LINE not in self._log.read_text():
            assert self._process.poll() is None, self._log.read_text()
            assert time.monotonic() < deadline, self._log.read_text()
            time.sleep(0.05)

    def stop(self) -> None:
        if self._process is None:
            return
        self._process.send_signal(signal.SIGTERM)
        assert self._process.wait(10) == 0, self._log.read_text()
        assert "Traceback" not in self._log.read_text()
        self._process = None


@pytest.fixture(scope="module")
def kubeconfig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A separate bare control plane: stopping KServe must not affect other tests."""
    folder = tmp_path_factory.mktemp("kserve")
    command = [sys.executable, "-m", "devcluster.cli"]
    subprocess.run([*command, "up", "--dir", str(folder), "--control-plane-only"], check=True, timeout=540)
    yield folder / "kubeconfig"
    subprocess.run([*command, "down", "--dir", str(folder)], check=True, timeout=120)


@pytest.fixture(scope="module")
def stand_in(kubeconfig: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandIn]:
    process = StandIn(kubeconfig, tmp_path_factory.mktemp("log") / "kserve.log")
    process.start()
    yield process
    process.stop()


@dataclass(frozen=True)
class World:
    """One namespace, and helpers for the tests in it."""

    kube: Kube
    namespace: str

    def path(self, plural: str, name: str | None = None) -> str:
        version = {
            "inferenceservices": f"{GROUP}/v1beta1", "deployments": "apps/v1", "replicasets": "apps/v1",
            "horizontalpodautoscalers": "autoscaling/v2",
        }.get(plural, "v1")  # fmt: skip
        return path_for(version, plural, self.namespace, name)

    async def apply(self, body: JsonObject, *, force: bool = False) -> JsonObject:
        path = self.path("inferenceservices", body["metadata"]["name"])
        return await self.kube.apply(path, body, field_manager=MANAGER, force=force)

    async def isvc(self, name: str = "demo") -> JsonObject:
        return await self.kube.get(self.path("inferenceservices", name))

    async def deployment(self, name: str = "demo-predictor") -> JsonObject | None:
        return await self.kube.find(self.path("deployments", name))

    async def service(self, name: str = "demo-predictor") -> JsonObject | None:
        return await self.kube.find(self.path("services", name))

    async def condition(self, kind: str = "Ready", name: str = "demo") -> JsonObject:
        conditions = ((await self.isvc(name)).get("status") or {}).get("conditions") or []
        return next((c for c in conditions if c["type"] == kind), {})

    async def eventually(self, ask: Callable[[], Awaitable[Any]], seconds: float = 10) -> Any:
        """Wait until `ask` returns something true, and return that."""
        deadline = time.monotonic() + seconds
        while True:
            answer = await ask()
            if answer or time.monotonic() > deadline:
                assert answer
                return answer
            await asyncio.sleep(0.03)

    async def made(self) -> JsonObject:
        """Wait for the Deployment and for the status that reports it."""

        async def ask() -> JsonObject | None:
            found = await self.deployment()
            status = (await self.isvc()).get("status") or {}
            return found if found and status.get("observedGeneration") else None

        return dict(await self.eventually(ask))

    async def answer_pods(self) -> None:
        """Make every pod of the namespace ready, as a kubelet does."""
        for pod in await self.kube.list(self.path("pods")):
            running = {"state": {"running": {}}, "name": "kserve-container", "ready": True, "restartCount": 0}
            status = {
                "phase": "Running",
                "conditions": [{"type": "Ready", "status": "True"}],
                "containerStatuses": [{**running, "image": "x", "imageID": "x", "started": True}],
            }
            await self.kube.patch_status(self.path("pods", pod["metadata"]["name"]), status)

    async def ready(self) -> JsonObject:
        """Make pods ready until the InferenceService reports it."""

        async def ask() -> JsonObject | None:
            await self.answer_pods()
            return (await self.isvc()) if (await self.condition()).get("status") == "True" else None

        return dict(await self.eventually(ask))

    async def replica_sets(self) -> list[str]:
        return sorted(item["metadata"]["name"] for item in await self.kube.list(self.path("replicasets")))


@pytest.fixture
async def world(kubeconfig: Path, stand_in: StandIn) -> AsyncIterator[World]:
    async with await Kube.connect(kubeconfig) as kube:
        made = await kube.create(
            "/api/v1/namespaces", {"metadata": {"generateName": "k-"}, "kind": "Namespace", "apiVersion": "v1"}
        )
        yield World(kube, made["metadata"]["name"])
        await kube.delete(f"/api/v1/namespaces/{made['metadata']['name']}")


def isvc(name: str = "demo", *, annotations: JsonObject | None = None, **predictor: Any) -> JsonObject:
    resources = {"requests": {"cpu": "100m", "memory": "1Gi"}, "limits": {"cpu": "1", "memory": "1024Mi"}}
    container = {
        "name": "kserve-container",
        "image": "x/y:1",
        "ports": [{"name": "http", "containerPort": 8000, "protocol": "TCP"}],
        "env": [{"name": "A", "value": "1"}],
        "resources": resources,
    }
    return {
        "apiVersion": f"{GROUP}/v1beta1",
        "kind": "InferenceService",
        "metadata": {
            "name": name,
            "annotations": {f"{GROUP}/deploymentMode": "RawDeployment", AUTOSCALER: "none", **(annotations or {})},
        },
        "spec": {"predictor": {"minReplicas": 1, "maxReplicas": 1, "containers": [container], **predictor}},
    }


async def test_a_life_from_apply_to_ready_to_deletion(world: World) -> None:
    begun = time.monotonic()
    await world.apply(isvc())
    await world.eventually(world.deployment)
    assert time.monotonic() - begun < 3.0  # a tenth of it on an idle machine
    deployment = await world.made()
    live = await world.isvc()
    assert live["metadata"]["finalizers"] == ["inferenceservice.finalizers"]
    assert live["metadata"]["annotations"][f"{GROUP}/deploymentMode"] == "Standard"
    assert live["spec"]["predictor"]["containers"][0]["resources"]["limits"]["memory"] == "1Gi"
    assert deployment["metadata"]["ownerReferences"][0]["uid"] == live["metadata"]["uid"]
    service = await world.service()
    assert service is not None
    address = f"http://{service['spec']['clusterIP']}:8000"
    assert live["status"]["url"] == live["status"]["address"]["url"] == address
    assert (await world.condition())["reason"] in {"NewReplicaSetCreated", "MinimumReplicasUnavailable"}

    ready = await world.ready()
    assert ready["status"]["components"]["predictor"]["url"] == address
    assert ready["status"]["deploymentMode"] == "Standard"

    async def loaded() -> bool:
        return bool((await world.isvc())["status"]["modelStatus"]["copies"]["totalCopies"] == 1)

    await world.eventually(loaded)

    async def told() -> bool:
        events = await world.kube.list(world.path("events"), {"fieldSelector": "reason=InferenceServiceReady"})
        return len(events) == 1

    await world.eventually(told)
    await world.kube.delete(world.path("inferenceservices", "demo"))

    async def gone() -> bool:
        return await world.kube.find(world.path("inferenceservices", "demo")) is None

    await world.eventually(gone)


async def test_applying_again_changes_nothing_and_nothing_is_written_at_rest(world: World, stand_in: StandIn) -> None:
    await world.apply(isvc())
    await world.made()
    await world.ready()

    async def versions() -> list[str]:
        plurals = ("inferenceservices", "deployments", "services", "events")
        about = {"fieldSelector": "involvedObject.kind=InferenceService"}  # the scheduler writes pod events without end
        found = [
            item
            for plural in plurals
            for item in await world.kube.list(world.path(plural), about if plural == "events" else None)
        ]
        return [item["metadata"]["resourceVersion"] for item in found]

    async def rested() -> bool:
        before = await versions()
        await asyncio.sleep(1)
        return before == await versions()

    await world.eventually(rested)
    before = await versions()
    await world.apply(isvc())
    await asyncio.sleep(1)
    assert await versions() == before
    stand_in.stop()
    stand_in.start()
    await asyncio.sleep(1)
    assert await versions() == before


async def test_another_editor_conflicts_on_the_whole_list(world: World) -> None:
    await world.apply(isvc())
    other = [{"op": "add", "path": "/spec/predictor/containers/0/env/-", "value": {"name": "B", "value": "2"}}]
    await world.kube.patch(world.path("inferenceservices", "demo"), other, content_type="application/json-patch+json")
    with pytest.raises(ApiError) as caught:
        await world.apply(isvc())
    assert caught.value.status == 409
    assert ".spec.predictor.containers" in caught.value.message
    forced = await world.apply(isvc(), force=True)
    assert [e["name"] for e in forced["spec"]["predictor"]["containers"][0]["env"]] == ["A"]


def with_container(**fields: Any) -> JsonObject:
    body = isvc()
    body["spec"]["predictor"]["containers"][0] |= fields
    return body


TYPED: dict[str, JsonObject] = {
    "unknown field": isvc(replica=3),
    "unknown field of a container": with_container(imagePolicy="Always"),
    "duplicate env name": with_container(env=[{"name": "A", "value": "1"}, {"name": "A", "value": "2"}]),
    "duplicate mountPath": with_container(
        volumeMounts=[{"name": "a", "mountPath": "/x"}, {"name": "b", "mountPath": "/x"}]
    ),
    "wrong type": isvc(minReplicas="many"),
}


@pytest.mark.parametrize("body", TYPED.values(), ids=TYPED)
async def test_what_does_not_fit_the_schema_is_a_500(world: World, body: JsonObject) -> None:
    with pytest.raises(ApiError, match="failed to create typed patch object") as caught:
        await world.apply(body)
    assert caught.value.status == 500


FORBIDDEN: dict[str, tuple[JsonObject, int, str]] = {
    "name": (isvc("1st"), 403, "denied the request"),
    "min above max": (isvc(minReplicas=2), 403, "minReplicas cannot be greater"),
    "negative": (isvc(minReplicas=-1), 403, "less than 0"),
    "PYTHONPATH": (with_container(env=[{"name": "PYTHONPATH", "value": "/x"}]), 403, "PYTHONPATH"),
    "autoscaler": (isvc(annotations={AUTOSCALER: "vpa"}), 403, "[vpa]"),
    "no containers": (isvc(containers=[]), 500, "index out of range"),
}


@pytest.mark.parametrize(("body", "status", "words"), FORBIDDEN.values(), ids=FORBIDDEN)
async def test_the_webhooks_refuse_invalid_objects(world: World, body: JsonObject, status: int, words: str) -> None:
    with pytest.raises(ApiError) as caught:
        await world.apply(body)
    assert caught.value.status == status
    assert words in caught.value.message


async def test_the_mode_cannot_be_changed_later(world: World) -> None:
    await world.apply(isvc())
    await world.made()
    with pytest.raises(ApiError, match="cannot be changed from 'Standard' to 'Knative'"):
        await world.apply(isvc(annotations={f"{GROUP}/deploymentMode": "Knative"}))


FAILING: dict[str, tuple[JsonObject, str]] = {
    "cpu request without limit": (
        with_container(resources={"requests": {"cpu": "4"}}), "must be less than or equal to cpu limit",
    ),
    "gpu request is not its limit": (
        with_container(resources={"requests": {"amd.com/gpu": "1"}, "limits": {"amd.com/gpu": "2"}}), "amd.com/gpu",
    ),
    "mount without volume": (with_container(volumeMounts=[{"name": "nope", "mountPath": "/x"}]), "Not found"),
    "unsupported mode": (isvc(annotations={f"{GROUP}/deploymentMode": "Raw"}), "unsupported deployment mode"),
    "keda is not installed": (isvc(annotations={AUTOSCALER: "keda"}), "ScaledObject"),
}  # fmt: skip


@pytest.mark.parametrize(("body", "words"), FAILING.values(), ids=FAILING)
async def test_accepted_but_never_created(world: World, body: JsonObject, words: str) -> None:
    await world.apply(body)

    async def failed() -> bool:
        return (await world.condition("PredictorReady")).get("reason") == "ReconcileFailed"

    await world.eventually(failed)
    ready = await world.condition()
    assert (ready["status"], ready["reason"]) == ("False", "ReconcileFailed")
    assert words in ready["message"]
    assert (await world.condition("IngressReady"))["status"] == "Unknown"

    async def told() -> int:
        return len(await world.kube.list(world.path("events"), {"fieldSelector": "reason=InternalError"}))

    await world.eventually(told)
    await asyncio.sleep(0.6)  # long enough for two retries
    assert await told() == 1, "a retry does not report it again"
    assert (await world.condition())["reason"] == "ReconcileFailed"
    await world.apply(isvc())
    await world.made()


async def test_a_name_that_is_too_long_is_accepted_and_then_fails(world: World) -> None:
    limit = min(48, 52 - len(world.namespace))
    await world.apply(isvc("a" * limit))
    await world.apply(isvc("b" * (limit + 1)))

    async def failed() -> bool:
        return (await world.condition(name="b" * (limit + 1))).get("reason") == "ReconcileFailed"

    await world.eventually(failed)
    assert "invalid domain name" in (await world.condition(name="b" * (limit + 1)))["message"]

    async def longest() -> JsonObject | None:
        return await world.deployment("a" * limit + "-predictor")

    await world.eventually(longest)


async def test_a_foreign_deployment_stays_and_a_foreign_service_is_taken_over(world: World) -> None:
    labels = {"app": "other"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "x"}]}}
    await world.kube.create(
        world.path("deployments"),
        {
            "metadata": {"name": "demo-predictor"},
            "spec": {"replicas": 0, "selector": {"matchLabels": labels}, "template": template},
        },
    )
    await world.kube.create(
        world.path("services"),
        {"metadata": {"name": "demo-predictor"}, "spec": {"selector": labels, "ports": [{"port": 9}]}},
    )
    await world.apply(isvc())

    async def failed() -> bool:
        return "immutable" in (await world.condition()).get("message", "")

    await world.eventually(failed)
    service, deployment = await world.service(), await world.deployment()
    assert service is not None
    assert deployment is not None
    assert service["spec"]["selector"] == {"app": "isvc.demo-predictor"}
    assert service["metadata"]["ownerReferences"][0]["name"] == "demo"
    assert deployment["spec"]["selector"]["matchLabels"] == labels


async def test_a_label_of_any_user_rolls_the_pods_without_a_new_generation(world: World) -> None:
    await world.apply(isvc())
    await world.made()
    before = await world.eventually(world.replica_sets)
    generation = (await world.isvc())["metadata"]["generation"]
    await world.kube.patch(
        world.path("inferenceservices", "demo"), {"metadata": {"annotations": {"restartedAt": "now"}}}
    )

    async def rolled() -> bool:
        return set(await world.replica_sets()) > set(before)

    await world.eventually(rolled)
    assert (await world.isvc())["metadata"]["generation"] == generation


async def test_manual_edits_of_the_deployment_are_reverted(world: World) -> None:
    await world.apply(isvc())
    made = await world.made()
    path = world.path("deployments", "demo-predictor")
    restart = {"spec": {"template": {"metadata": {"annotations": {"kubectl.kubernetes.io/restartedAt": "now"}}}}}
    unlabel = {"metadata": {"labels": {f"{GROUP}/inferenceservice": None}}, "spec": {"paused": True}}
    for patch in (restart, {"spec": {"progressDeadlineSeconds": 60}}, {"spec": {"replicas": 3}}, unlabel):
        await world.kube.patch(path, patch)

        async def restored() -> bool:
            live = await world.deployment()
            return live is not None and live["spec"] == made["spec"]

        await world.eventually(restored)


async def test_replicas_are_set_by_the_autoscaler_class(world: World) -> None:
    await world.apply(isvc(minReplicas=2, maxReplicas=2))
    assert (await world.made())["spec"]["replicas"] == 2
    scaler = world.path("horizontalpodautoscalers", "demo-predictor")
    assert await world.kube.find(scaler) is None

    await world.apply(isvc(minReplicas=2, maxReplicas=5, annotations={AUTOSCALER: "hpa"}))
    found = await world.eventually(lambda: world.kube.find(scaler))
    assert (found["spec"]["minReplicas"], found["spec"]["maxReplicas"]) == (2, 5)

    await world.apply(isvc(minReplicas=2, maxReplicas=5, annotations={AUTOSCALER: "external"}))

    async def removed() -> bool:
        return await world.kube.find(scaler) is None

    await world.eventually(removed)
    await world.kube.patch(world.path("deployments", "demo-predictor"), {"spec": {"replicas": 4}})
    await asyncio.sleep(1)
    deployment = await world.deployment()
    assert deployment is not None
    assert deployment["spec"]["replicas"] == 4


async def test_stop_deletes_the_pods_and_start_creates_them_again(world: World) -> None:
    await world.apply(isvc())
    await world.made()
    patch: JsonObject = {"metadata": {"annotations": {f"{GROUP}/stop": "true"}}}
    await world.kube.patch(world.path("inferenceservices", "demo"), patch)

    async def stopped() -> bool:
        gone = not await world.deployment() and not await world.service()
        return gone and (await world.condition("Stopped")).get("status") == "True"

    await world.eventually(stopped)
    patch["metadata"]["annotations"][f"{GROUP}/stop"] = None
    await world.kube.patch(world.path("inferenceservices", "demo"), patch)
    await world.eventually(world.deployment)


async def test_while_it_is_down_writes_fail_and_deletion_waits(world: World, stand_in: StandIn) -> None:
    await world.apply(isvc())
    await world.made()
    stand_in.stop()
    try:
        with pytest.raises(ApiError, match="failed calling webhook") as caught:
            await world.apply(isvc("other"))
        assert caught.value.status == 500
        await world.kube.delete(world.path("inferenceservices", "demo"))
        with pytest.raises(ApiError, match="failed calling webhook"):
            await world.kube.patch(world.path("inferenceservices", "demo"), {"metadata": {"finalizers": None}})
        assert (await world.isvc())["metadata"]["deletionTimestamp"]
    finally:
        stand_in.start()

    async def gone() -> bool:
        return await world.kube.find(world.path("inferenceservices", "demo")) is None

    await world.eventually(gone)


async def test_the_garbage_collector_follows_the_owner_references(world: World) -> None:
    await world.apply(isvc())
    await world.made()
    await world.kube.delete(world.path("inferenceservices", "demo"))

    async def collected() -> bool:
        return not await world.deployment() and not await world.service()

    await world.eventually(collected, 60)  # it discovers new kinds every 30 s
