"""Users notice little while the API server, the network to it, or a replica fails.

Two replicas run as processes against a separate control plane; each review calls both. No node runs pods here:
`Outside` binds claims and ends Jobs like a provisioner and a kubelet.
"""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from api import view
from api.kinds import AIM_ARTIFACT, AIM_RUNTIME_CONFIG, AIM_SERVICE, INFERENCE_SERVICE, JOB, LEASE, Kind
from api.names import LABEL_ROLE, ROLE_STAGING, inference_service_name
from bench.reconcile.stand_ins import (
    DEFINITION,
    NAMESPACE,
    Outside,
    adapter,
    adapter_names,
    base_and_profile,
    install_kinds,
    namespace,
    service,
    service_name,
)
from kube.client import Client
from tests.cluster.engine_plane import Plane, started_plane
from tests.cluster.faulty_api import Faults, FaultyApi
from tests.cluster.replicas import CONFIGURATIONS, Replica, install_webhooks, judged, remove_webhooks, replicas
from tests.reviews import LONG, Stream
from tests.waiting import until

pytestmark = pytest.mark.cluster

FAULT_SECONDS = 60.0 if LONG else 5.0
RATE = 50.0  # reviews a second during the faults
LEASE_SETTINGS: dict[str, Any] = {"lease_duration": "6s", "lease_renew_period": "1s", "lease_write_margin": "1s"}
TROUBLE = {"5xx": Faults(statuses=(500, 502, 503, 504)), "slowness": Faults(delay=(1.0, 4.0))}


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Plane]:
    """A separate control plane: its faults do not affect other tests."""
    with started_plane(tmp_path_factory.mktemp("available") / "plane") as plane:
        yield plane


@pytest.fixture
async def client(plane: Plane) -> AsyncIterator[Client]:
    """The administrator, without faults; deletes the webhooks afterwards."""
    async with await Client.connect(str(plane.kubeconfig), within=30) as client:
        await install_kinds(client)
        yield client
        await remove_webhooks(client)


class Town:
    """Services in a separate namespace, and their expected state."""

    def __init__(self, client: Client, place: str) -> None:
        self._client, self._place = client, place
        self._env: dict[int, str] = {}  # by number: the value in its environment
        self._gone: set[int] = set()

    async def found(self) -> None:
        """Create the namespace with a base and a profile."""
        await self._client.create(NAMESPACE, namespace(self._place))
        for kind, obj in base_and_profile(self._place, disk=True, projected=False):
            await self._client.create(kind, obj)

    async def add(self, *numbers: int) -> None:
        """Create services with an adapter each. Raises: ApiError, as a user would see it."""
        for number in numbers:
            for name in adapter_names(number, 1):
                await self._client.create(AIM_ARTIFACT, adapter(self._place, name))
            await self._client.create(AIM_SERVICE, service(self._place, number, 1))
            self._env[number] = ""

    async def edit(self, number: int, value: str) -> None:
        """Change a service's environment."""
        env = [{"name": "EDITED", "value": value}]
        await self._client.patch_merge(AIM_SERVICE, self._place, service_name(number), {"spec": {"env": env}})
        self._env[number] = value

    async def remove(self, number: int) -> None:
        """Delete a service."""
        await self._client.delete(AIM_SERVICE, self._place, service_name(number))
        self._gone.add(number)

    async def pending(self) -> list[str]:
        """Return the differences from the services' specs, as text."""
        services, _ = await self._client.list_all(AIM_SERVICE, self._place)
        served = {view.name_of(obj): obj for obj in (await self._client.list_all(INFERENCE_SERVICE, self._place))[0]}
        by_name = {view.name_of(obj): obj for obj in services}
        found = []
        for number, value in self._env.items():
            name = service_name(number)
            isvc = served.get(inference_service_name(name, self._place) or "")
            if number in self._gone:
                found += [f"{name} is still there"] if name in by_name or isvc else []
            else:
                found += self._wrong(by_name.get(name, {}), isvc, value)
        return found

    def _wrong(self, obj: dict[str, Any], isvc: dict[str, Any] | None, value: str) -> list[str]:
        name, status = view.name_of(obj), obj.get("status") or {}
        if status.get("observedGeneration") != view.dig(obj, "metadata", "generation"):
            return [f"{name}: its status is about another generation"]
        if [entry["state"] for entry in status.get("adapters", [])] != ["Downloaded"]:
            return [f"{name}: adapters {status.get('adapters')}"]
        if isvc is None:
            return [f"{name}: no InferenceService, {view.text(obj, 'status', 'status')}"]
        env = {e["name"]: e.get("value", "") for e in isvc["spec"]["predictor"]["containers"][0]["env"]}
        return [] if env.get("EDITED", "") == value else [f"{name}: EDITED is {env.get('EDITED')}, not {value}"]

    async def settled(self, seconds: float = 180) -> float:
        """Wait until nothing is pending; return the seconds that it took."""
        begun = time.monotonic()
        while pending := await self.pending():
            assert time.monotonic() - begun < seconds, pending
            await asyncio.sleep(0.25)
        return time.monotonic() - begun


async def test_faults_of_the_api_server_fail_no_review_and_everything_converges(
    plane: Plane, client: Client, tmp_path: Path
) -> None:
    """Users reach the API server, the replicas hardly do: the caches answer reviews, and the rest converges later.

    Then the API server is killed: it answers no request while it is down, and afterwards everything works again.
    """
    town = Town(client, "trouble")
    async with (
        FaultyApi(plane) as api,
        replicas(api.kubeconfig(tmp_path), tmp_path, **LEASE_SETTINGS) as two,
        Outside(client).at_work(),
    ):
        await install_webhooks(client, *two)
        await town.found()
        await town.add(*range(6))
        await town.settled()
        for turn, (what, faults) in enumerate(TROUBLE.items()):
            with Stream(plane.kubeconfig, RATE) as reviews:
                api.faults = faults
                api.cut()
                unready = await live_through(town, two, 100 * (turn + 1))
                api.faults = Faults()
                took = await town.settled()
            print(reviews.summary(f"{FAULT_SECONDS:g} s of {what}"))  # noqa: T201 - the proof
            print(f"  {api.spoilt} requests answered 5xx, {api.delayed} delayed; all as declared {took:.1f} s after")  # noqa: T201
            assert reviews.failed == []
            assert unready == []
        assert api.spoilt > 10
        assert api.delayed > 10
        await killed(plane, client, town)


async def live_through(town: Town, two: list[Replica], first: int) -> list[str]:
    """Send reviews during the fault; return the reasons that readiness reported."""
    end, unready, number = time.monotonic() + FAULT_SECONDS, [], first
    await town.edit(0, f"during {first}")
    await town.remove(first // 100)
    while time.monotonic() < end:
        if number < first + 6:
            await town.add(number)
            number += 1
        for replica in two:
            status, page = await asyncio.to_thread(replica.get, "/readyz")
            unready += [page] if status != 200 else []
        await asyncio.sleep(0.5)
    await town.edit(0, f"at the end {first}")
    return unready


async def killed(plane: Plane, client: Client, town: Town) -> None:
    """Kill the API server during reviews; the webhook must fail none of them, before or after."""
    with Stream(plane.kubeconfig, RATE) as reviews:
        plane.kill("kube-apiserver")
        await asyncio.sleep(1)
        await asyncio.to_thread(plane.wait_ready)
        await judged(client)
        again = time.monotonic()
        await town.edit(0, "after the kill")
        await town.settled()
        await asyncio.to_thread(reviews.more, 50)
    print(reviews.summary("API server killed"))  # noqa: T201 - the proof
    assert [failure for failure in reviews.failed if "failed calling webhook" in failure.text] == []
    assert [failure for failure in reviews.failed if failure.at > again] == []


async def test_kinds_that_no_rule_reads_block_nothing(plane: Plane, client: Client, tmp_path: Path) -> None:
    """KServe is not installed and Jobs cannot be watched: both are reported, and reviews continue."""
    await forget(client, INFERENCE_SERVICE)
    try:
        async with (
            FaultyApi(plane, Faults(statuses=(500,), matching="/jobs")) as api,
            replicas(api.kubeconfig(tmp_path), tmp_path, **LEASE_SETTINGS) as two,
        ):
            for replica in two:
                await replica.ready(30)
            await install_webhooks(client, *two)
            with Stream(plane.kubeconfig, RATE) as reviews:
                await asyncio.to_thread(reviews.more, 100)
            assert reviews.failed == []
            status, page = two[0].get("/readyz")
            assert status == 200
            assert "[!] watch inferenceservices: serving.kserve.io/v1beta1 InferenceService is not served" in page
            assert "[!] watch jobs: ServerError" in page
            failures = "aim_adapters_cache_failures_total"
            assert two[0].metric(f'{failures}{{kind="jobs",reason="ServerError"}}') > 0
            assert two[0].metric(f'{failures}{{kind="inferenceservices",reason="KindNotServed"}}') > 0
    finally:
        await install_kinds(client)


async def test_weak_spot_09_an_unreadable_runtime_config_is_reported(
    plane: Plane, client: Client, tmp_path: Path
) -> None:
    """Its kind is not served at the start: credentials are unknown, and an adapter that needs them reports it."""
    place = "unreadable"
    town = Town(client, place)
    try:
        async with Outside(client).at_work():
            async with replicas(plane.kubeconfig, tmp_path, 1, **LEASE_SETTINGS):
                await town.found()
                await town.add(0)
                await town.settled()
            await forget(client, AIM_RUNTIME_CONFIG)
            async with replicas(plane.kubeconfig, tmp_path, 1, **LEASE_SETTINGS):
                await client.create(AIM_ARTIFACT, adapter(place, "late"))
                refs = [{"name": name, "kind": "AIMArtifact"} for name in (*adapter_names(0, 1), "late")]
                await client.patch_merge(AIM_SERVICE, place, service_name(0), {"spec": {"adapters": refs}})
                told: dict[str, str] = {}
                deadline = time.monotonic() + 40
                while not told.get("late", "").startswith("RuntimeConfigUnreadable: "):
                    assert time.monotonic() < deadline, told
                    await asyncio.sleep(0.2)
                    status = (await client.get(AIM_SERVICE, place, service_name(0)))["status"]
                    told = {entry["name"]: entry.get("lastError", entry["state"]) for entry in status["adapters"]}
                assert told[adapter_names(0, 1)[0]] == "Downloaded"
                jobs, _ = await client.list_all(JOB, place)
                assert [job for job in jobs if view.text(job, "metadata", "labels", LABEL_ROLE) == ROLE_STAGING] == []
                await install_kinds(client)
                deadline = time.monotonic() + 60
                while told["late"] != "Downloaded":
                    assert time.monotonic() < deadline, told
                    await asyncio.sleep(0.2)
                    status = (await client.get(AIM_SERVICE, place, service_name(0)))["status"]
                    told = {entry["name"]: entry.get("lastError", entry["state"]) for entry in status["adapters"]}
    finally:
        await install_kinds(client)


async def forget(client: Client, kind: Kind) -> None:
    """Delete the CRD of a kind, and wait until it is gone."""
    name = f"{kind.plural}.{kind.group}"
    await client.delete(DEFINITION, None, name)
    async with asyncio.timeout(30):
        while await client.find(DEFINITION, None, name) is not None:  # noqa: ASYNC110 - another process's work
            await asyncio.sleep(0.1)


async def test_a_replica_stops_gracefully(plane: Plane, client: Client, tmp_path: Path) -> None:
    """SIGTERM: unready immediately, reviews answered until the endpoint is gone, the lease released, exit code 0."""
    settings = LEASE_SETTINGS | {"drain": "3s", "lease_duration": "20s"}
    async with replicas(plane.kubeconfig, tmp_path, 1, **settings) as (first,):
        await first.ready()
        await install_webhooks(client, first, first)
        await until(lambda: first.metric("aim_adapters_leader") == 1, what="it leads")
        async with replicas(plane.kubeconfig, tmp_path, 1, **settings) as (second,):
            await second.ready()
            with Stream(plane.kubeconfig, RATE) as reviews:
                begun = time.monotonic()
                first.process.send_signal(signal.SIGTERM)
                await until(lambda: first.get("/readyz")[0] == 503, 1, "unready at once")
                unready = time.monotonic() - begun
                await until(lambda: second.metric("aim_adapters_leader") == 1, 8, "the other leads")
                taken = time.monotonic() - begun
                assert first.process.poll() is None, "it serves while its endpoint is withdrawn"
                await asyncio.to_thread(reviews.more, 20)
                assert reviews.failed == []
                await point_to(client, second)  # stands in for the withdrawal of the endpoint
                code = await asyncio.to_thread(first.process.wait, 30)
                ended = time.monotonic() - begun
                await asyncio.to_thread(reviews.more, 20)
            holder = await client.get(LEASE, "default", "aim-adapters")
            print(reviews.summary("SIGTERM"))  # noqa: T201 - the proof
            print(f"  unready after {unready:.2f} s, next leader after {taken:.2f} s, ended after {ended:.2f} s")  # noqa: T201
            assert code == 0
            assert reviews.failed == []
            assert ended < 25
            assert view.text(holder, "spec", "holderIdentity")


async def point_to(client: Client, replica: Replica) -> None:
    """Let the API server call only this replica."""
    for name, (kind, path) in CONFIGURATIONS.items():
        url = f"https://127.0.0.1:{replica.ports['admission']}{path}"
        change = {"op": "replace", "path": "/webhooks/0/clientConfig/url", "value": url}
        await client.patch_json(kind, None, name, [change])
