"""The engine with a real API server that is disconnected, restarted, compacted; the lease between real processes."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import random
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

import pytest

from api.kinds import CONFIG_MAP, LEASE, Kind
from api.names import LEASE_NAME
from kube.cache import Key
from kube.client import Client
from kube.engine import AlwaysLeading, Engine, Watch
from kube.errors import Conflict, Forbidden, Invalid, NotFound, NotLeading, Unreachable
from kube.informer import Informer
from kube.lease import Lease, boot_time
from kube.metrics import CACHE_RELISTS
from tests.cluster.engine_plane import LEASE_DURATION, WRITTEN, Plane, Proxy, behind, started_plane
from tests.waiting import in_background, until

NAMESPACE = Kind("", "v1", "namespaces", "Namespace", False)
LONG = os.environ.get("AIM_TEST_LONG") == "1"
PAUSES = int(os.environ.get("AIM_TEST_PAUSES", "300" if LONG else "50"))
PAIRS = 5  # pairs of candidates that are paused in parallel
STEPS = int(os.environ.get("AIM_TEST_STEPS", "150"))

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Plane]:
    """A control plane that these tests can break."""
    with started_plane(tmp_path_factory.mktemp("engine") / "plane") as plane:
        yield plane


@pytest.fixture
async def direct(plane: Plane) -> AsyncIterator[Client]:
    """The administrator's client, without the proxy."""
    await asyncio.to_thread(plane.wait_ready)
    async with await Client.connect(str(plane.kubeconfig)) as client:
        yield client


@pytest.fixture
async def namespace(direct: Client) -> str:
    name = f"engine-{time.monotonic_ns()}"
    await direct.create(NAMESPACE, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    return name


@pytest.fixture
async def proxy(plane: Plane) -> AsyncIterator[Proxy]:
    address = urlparse(plane.server)
    proxy = Proxy((address.hostname or "", address.port or 0))
    yield proxy
    await proxy.stop()


@pytest.fixture
async def cut_off(plane: Plane, proxy: Proxy, tmp_path: Path) -> AsyncIterator[Client]:
    """A client that uses the proxy."""
    port = await proxy.start()
    async with await Client.connect(str(behind(port, plane, tmp_path))) as client:
        yield client


def config_map(namespace: str, name: str, **data: str) -> dict[str, Any]:
    metadata = {"namespace": namespace, "name": name}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}


def running(*informers: Informer) -> AbstractAsyncContextManager[list[asyncio.Task[None]]]:
    return in_background(*(informer.run() for informer in informers))


def relists() -> float:
    return float(CACHE_RELISTS.labels("configmaps")._value.get())


async def same(informer: Informer, client: Client, namespace: str) -> bool:
    """Whether the cache has exactly the versions of the API server."""
    items, _ = await client.list_all(CONFIG_MAP, namespace)
    world = {o["metadata"]["name"]: o["metadata"]["resourceVersion"] for o in items}
    return world == {o["metadata"]["name"]: o["metadata"]["resourceVersion"] for o in informer.items()}


async def until_same(informer: Informer, client: Client, namespace: str, seconds: float = 30) -> None:
    async with asyncio.timeout(seconds):
        while not await same(informer, client, namespace):  # noqa: ASYNC110 - asks the API server
            await asyncio.sleep(0.1)


async def test_the_real_api_server_speaks_as_the_client_understands(direct: Client, namespace: str) -> None:
    created = await direct.create(CONFIG_MAP, config_map(namespace, "a", x="1"))
    stale = created["metadata"]["resourceVersion"]
    with pytest.raises(Conflict):
        await direct.create(CONFIG_MAP, config_map(namespace, "a"))
    applied = await direct.apply(CONFIG_MAP, config_map(namespace, "a", x="2"))
    assert applied["data"] == {"x": "2"}
    again = await direct.apply(CONFIG_MAP, config_map(namespace, "a", x="2"))
    assert again["metadata"]["resourceVersion"] == applied["metadata"]["resourceVersion"]
    fenced = config_map(namespace, "a", x="3")
    fenced["metadata"]["resourceVersion"] = stale
    with pytest.raises(Conflict):
        await direct.apply(CONFIG_MAP, fenced)
    assert (await direct.apply(CONFIG_MAP, config_map(namespace, "b"), dry_run=True))["kind"] == "ConfigMap"
    assert await direct.find(CONFIG_MAP, namespace, "b") is None
    with pytest.raises(Invalid):
        await direct.create(CONFIG_MAP, config_map(namespace, "Not_A_Name"))
    with pytest.raises(NotFound):
        await direct.get(Kind("example.com", "v1", "nothings", "Nothing"), namespace, "a")
    with pytest.raises(Conflict):
        await direct.delete(CONFIG_MAP, namespace, "a", uid="00000000-0000-0000-0000-000000000000")
    assert await direct.delete(CONFIG_MAP, namespace, "a", uid=created["metadata"]["uid"])
    test = {"op": "test", "path": "/metadata/resourceVersion", "value": "1"}
    await direct.create(CONFIG_MAP, config_map(namespace, "c"))
    with pytest.raises(Invalid):
        await direct.patch_json(CONFIG_MAP, namespace, "c", [test])


async def test_a_terminating_namespace_refuses_for_now(direct: Client, namespace: str) -> None:
    """It is not a configuration error: its type is transient."""
    await direct.delete(NAMESPACE, None, namespace)

    async def create_many() -> None:
        for number in range(200):
            await direct.create(CONFIG_MAP, config_map(namespace, f"x{number}"))

    with pytest.raises((Forbidden, NotFound)):
        await create_many()


async def test_lists_of_many_pages_are_complete(direct: Client, namespace: str) -> None:
    async with asyncio.TaskGroup() as group:
        for number in range(260):
            group.create_task(direct.create(CONFIG_MAP, config_map(namespace, f"c{number:03}", x="y" * 2000)))
    pages = [page async for page in direct.list_pages(CONFIG_MAP, namespace, limit=90)]
    assert len(pages) == 3
    names = [item["metadata"]["name"] for page in pages for item in page.items if "x" in (item.get("data") or {})]
    assert (len(names), names) == (260, sorted(names))


async def test_a_watch_that_is_cut_at_random_misses_nothing_and_never_lists_again(
    direct: Client, namespace: str, proxy: Proxy, cut_off: Client
) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")  # noqa: T201 - shown when it fails
    rng = random.Random(seed)
    informer = Informer(cut_off, CONFIG_MAP, namespaces=[namespace])
    before = relists()
    async with running(informer):
        await asyncio.wait_for(informer.synced.wait(), 20)
        for step in range(STEPS):
            name = f"c{rng.randrange(12)}"
            if rng.random() < 0.75:
                await direct.apply(CONFIG_MAP, config_map(namespace, name, step=f"{step}"))
            else:
                await direct.delete(CONFIG_MAP, namespace, name)
            if rng.random() < 0.15:
                proxy.cut()
        await until_same(informer, direct, namespace)
    assert relists() - before == 1


async def test_410_after_a_compaction_lists_again_and_reports_deletions(
    plane: Plane, direct: Client, namespace: str, proxy: Proxy, cut_off: Client
) -> None:
    for name in ("kept", "changed", "deleted"):
        await direct.create(CONFIG_MAP, config_map(namespace, name, v="1"))
    informer = Informer(cut_off, CONFIG_MAP, namespaces=[namespace])
    told: list[tuple[str, bool]] = []
    async with running(informer):
        await asyncio.wait_for(informer.synced.wait(), 20)
        informer.add_handler(lambda old, new: told.append(((new or old or {})["metadata"]["name"], new is None)))
        before = relists()
        proxy.refuse = True
        proxy.cut()
        await direct.apply(CONFIG_MAP, config_map(namespace, "changed", v="2"))
        await direct.delete(CONFIG_MAP, namespace, "deleted")
        await direct.create(CONFIG_MAP, config_map(namespace, "late"))  # the oldest version that remains
        await asyncio.to_thread(plane.compact)
        plane.kill("kube-apiserver")  # its watch cache keeps more than etcd does
        await asyncio.sleep(1)
        await asyncio.to_thread(plane.wait_ready)
        proxy.refuse = False
        await until_same(informer, direct, namespace, 60)
    assert relists() - before >= 1
    assert ("changed", False) in told
    assert ("deleted", True) in told
    assert ("late", False) in told
    assert ("kept", False) not in told


@pytest.mark.parametrize("part", ["kube-apiserver", "etcd"])
async def test_a_restart_under_writes_converges(plane: Plane, direct: Client, namespace: str, part: str) -> None:
    """A controller copies `want-*` to `have-*` while the API server or its etcd is killed and restarts."""
    informer = Informer(direct, CONFIG_MAP, namespaces=[namespace])

    class Copier:
        name = "copier"
        watches = (Watch(informer),)

        async def reconcile(self, key: Key) -> timedelta | None:
            wanted = informer.get(*key)
            if wanted is None or not key[1].startswith("want-"):
                return None
            name = key[1].replace("want-", "have-")
            have = informer.get(key[0], name)
            if have is None or have.get("data") != wanted.get("data"):
                informer.observe_write(await direct.apply(CONFIG_MAP, config_map(key[0], name, **wanted["data"])))
            return None

    async def put(number: int, value: int) -> None:
        for _ in range(100):
            with contextlib.suppress(Unreachable, Conflict, Exception):
                await direct.apply(CONFIG_MAP, config_map(namespace, f"want-{number}", v=f"{value}"))
                return
            await asyncio.sleep(0.3)
        pytest.fail("the API server did not come back")

    def copied() -> bool:
        return all(
            ((informer.get(namespace, f"have-{n}") or {}).get("data") or {}).get("v") == f"{rounds - 1}"
            for n in range(10)
        )

    rounds = 3
    engine = Engine([Copier()], [], AlwaysLeading())
    task = asyncio.create_task(engine.run())
    try:
        for value in range(rounds):
            for number in range(10):
                await put(number, value)
            if value < rounds - 1:
                plane.kill(part)
        await until(copied, 90)
        await until_same(informer, direct, namespace)
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_only_the_own_clock_is_trusted(direct: Client, namespace: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Clocks differ by hours, in the lease too: one leads, and the other takes over only after it ended."""
    times = {"direct": 0.0, "ahead": 40_000.0}
    walls = iter(["1999-01-01T00:00:00.000000Z", "2099-12-31T00:00:00.000000Z"] * 10_000)
    monkeypatch.setattr("kube.lease._micro_now", lambda: next(walls))
    leases = {
        name: Lease(
            direct,
            namespace,
            name,
            duration=timedelta(seconds=2),
            renew_period=timedelta(milliseconds=300),
            write_margin=timedelta(milliseconds=400),
            clock=_shifted(offset),
        )
        for name, offset in times.items()
    }
    tasks = {name: asyncio.create_task(lease.run()) for name, lease in leases.items()}
    try:
        await until(lambda: any(lease.is_held for lease in leases.values()), 10)
        first = next(name for name, lease in leases.items() if lease.is_held)
        (other,) = leases.keys() - {first}
        for _ in range(40):
            assert not leases[other].is_held
            await asyncio.sleep(0.1)
        last_renewal = time.monotonic()  # or a little earlier
        tasks[first].cancel()
        await asyncio.wait_for(leases[other].wait_held(), 20)
        assert time.monotonic() - last_renewal > 2 - 0.3 * 1.2 - 0.1
        assert not leases[first].is_held
    finally:
        for task in tasks.values():
            task.cancel()
        await asyncio.gather(*tasks.values(), return_exceptions=True)


def _shifted(offset: float) -> Callable[[], float]:
    return lambda: boot_time() + offset


async def test_a_lease_lost_during_a_pass_blocks_its_write(direct: Client, namespace: str) -> None:
    """Another process takes the lease between read and write of a pass: the pass ends, and its write is blocked."""
    lease = Lease(
        direct,
        namespace,
        "mine",
        duration=timedelta(seconds=20),
        renew_period=timedelta(milliseconds=300),
        write_margin=timedelta(seconds=1),
    )
    writer, informer = direct.guarded(lease), Informer(direct, CONFIG_MAP, namespaces=[namespace])
    began, refused, ended = asyncio.Event(), asyncio.Event(), asyncio.Event()

    class Slow:
        name = "slow"
        watches = (Watch(informer),)

        async def reconcile(self, key: Key) -> timedelta | None:
            if key[1] != "want":
                return None
            began.set()
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:  # a pass that ignores its cancellation
                try:
                    await writer.create(CONFIG_MAP, config_map(key[0], "have"))
                except NotLeading:
                    refused.set()
                raise
            finally:
                ended.set()
            return None

    engine = Engine([Slow()], [], lease)
    tasks = [asyncio.create_task(lease.run()), asyncio.create_task(engine.run())]
    try:
        await direct.create(CONFIG_MAP, config_map(namespace, "want"))
        await asyncio.wait_for(began.wait(), 20)
        spec = {"holderIdentity": "theirs", "leaseDurationSeconds": 3600}
        await direct.patch_merge(LEASE, namespace, LEASE_NAME, {"spec": spec})
        await asyncio.wait_for(ended.wait(), 20)
        await asyncio.wait_for(refused.wait(), 20)
        assert not lease.is_held
        assert engine.queue("slow") is None
        assert await direct.find(CONFIG_MAP, namespace, "have") is None
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def test_the_engine_waits_for_a_slow_api_server(proxy: Proxy, cut_off: Client, namespace: str) -> None:
    proxy.delay = 0.3
    assert (await cut_off.create(CONFIG_MAP, config_map(namespace, "slow")))["kind"] == "ConfigMap"
    with pytest.raises(Unreachable):
        await cut_off.get(CONFIG_MAP, namespace, "slow", within=0.1)


# The lease


def spawn(plane: Plane, namespace: str, identity: str, lease: timedelta = LEASE_DURATION) -> Any:
    arguments = (str(plane.kubeconfig), namespace, identity, f"{lease.total_seconds()}")
    return asyncio.create_subprocess_exec(sys.executable, "-m", "tests.cluster.engine_plane", *arguments)


Write = tuple[str, int, int]  # holder, term, number


class History:
    """Return (holder, term, number) of each stored version of the ConfigMap, in order."""

    def __init__(self, client: Client, namespace: str) -> None:
        self.writes: list[Write] = []
        self._client, self._namespace = client, namespace

    async def follow(self) -> None:
        _, version = await self._client.list_all(CONFIG_MAP, self._namespace)
        async for event in self._client.watch(CONFIG_MAP, version, self._namespace):
            data = event.object.get("data") or {}
            if event.type != "BOOKMARK" and event.object["metadata"]["name"] == WRITTEN:
                self.writes.append((data["holder"], int(data["term"]), int(data["number"])))

    async def until(self, condition: Callable[[list[Write]], bool], seconds: float = 60) -> None:
        """Wait for writes; show the last ones if none arrive."""
        try:
            await until(lambda: condition(self.writes), seconds)
        except TimeoutError:
            pytest.fail(f"{self._namespace}: not after {seconds} s; the last writes: {self.writes[-5:]}")

    def holders(self) -> list[str]:
        """Return the holders in the order of their writes, each turn once."""
        turns: list[str] = []
        for holder, _, _ in self.writes:
            if not turns or turns[-1] != holder:
                turns.append(holder)
        return turns


@asynccontextmanager
async def followed(client: Client, namespace: str) -> AsyncIterator[History]:
    history = History(client, namespace)
    task = asyncio.create_task(history.follow())
    await asyncio.sleep(0.3)
    try:
        yield history
        assert not task.done()
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def end(*processes: asyncio.subprocess.Process) -> None:
    for process in processes:
        if process.returncode is None:
            process.send_signal(signal.SIGCONT)
            process.kill()
            await process.wait()


async def test_a_leader_that_stops_releases_the_lease_immediately(plane: Plane, direct: Client, namespace: str) -> None:
    lease = timedelta(seconds=20)  # no process waits for its end
    async with followed(direct, namespace) as history:
        first = await spawn(plane, namespace, "first", lease)
        second = None
        try:
            await until(lambda: history.writes)
            second = await spawn(plane, namespace, "second", lease)
            await asyncio.sleep(2)
            assert history.holders() == ["first"]
            first.send_signal(signal.SIGTERM)
            await first.wait()
            ended = time.monotonic()
            await until(lambda: history.holders() == ["first", "second"], 10)
            assert time.monotonic() - ended < lease.total_seconds() / 2
        finally:
            await end(first, *([second] if second else []))


async def test_another_leads_after_the_lease_of_a_killed_leader_expires(
    plane: Plane, direct: Client, namespace: str
) -> None:
    async with followed(direct, namespace) as history:
        first = await spawn(plane, namespace, "first")
        second = await spawn(plane, namespace, "second")
        try:
            await until(lambda: len(history.writes) > 5)
            leader, other = (first, "second") if history.holders() == ["first"] else (second, "first")
            leader.kill()
            await until(lambda: history.holders()[-1] == other, 15)
        finally:
            await end(first, second)


async def test_a_paused_leader_writes_nothing_stale(plane: Plane, direct: Client) -> None:
    """Stopped at random points for longer than the lease lasts, then continued under another leader.

    Each write contains the term of leadership in which it was decided: terms never decrease. The process does nothing
    but decide and write, so the random points are before, during and after its requests.
    """
    seed = random.randrange(2**32)
    print(f"seed {seed}, {PAUSES} pauses")  # noqa: T201 - shown when it fails
    each = [PAUSES // PAIRS + (index < PAUSES % PAIRS) for index in range(PAIRS)]
    counts = await asyncio.gather(
        *(_pause_in_turn(plane, direct, random.Random(seed + index), count) for index, count in enumerate(each))
    )
    print(f"{sum(counts)} writes, none stale")  # noqa: T201 - shown when it fails


async def _pause_in_turn(plane: Plane, direct: Client, rng: random.Random, pauses: int) -> int:
    """Let two candidates write, and pause the leader again and again; return the number of checked writes."""
    name = f"paused-{rng.randrange(10**9)}"
    await direct.create(NAMESPACE, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    async with followed(direct, name) as history:
        processes = {who: await spawn(plane, name, who) for who in ("first", "second")}
        try:
            for _ in range(pauses):
                seen = len(history.writes)
                await history.until(_longer_than(seen))
                leader, term, _ = history.writes[-1]
                await asyncio.sleep(rng.random() * 0.2)
                processes[leader].send_signal(signal.SIGSTOP)
                await history.until(_after_term(term))
                taken = len(history.writes)
                processes[leader].send_signal(signal.SIGCONT)
                await history.until(_longer_than(taken + 10))
            terms = [term for _, term, _ in history.writes]
            assert terms == sorted(terms), _steps_back(history.writes)
            assert len({(who, term) for who, term, _ in history.writes}) == len(set(terms))
            assert len(set(terms)) > pauses
        finally:
            await end(*processes.values())
    return len(history.writes)


def _longer_than(count: int) -> Callable[[list[Write]], bool]:
    return lambda writes: len(writes) > count


def _after_term(term: int) -> Callable[[list[Write]], bool]:
    return lambda writes: writes[-1][1] > term


def _steps_back(writes: list[Write]) -> list[tuple[Write, Write]]:
    pairs = itertools.pairwise(writes)
    return [(before, after) for before, after in pairs if after[1] < before[1]]


async def test_a_lease_survives_an_api_server_restart_shorter_than_itself(
    plane: Plane, direct: Client, namespace: str
) -> None:
    lease = Lease(direct, namespace, "only", duration=timedelta(seconds=60), renew_period=timedelta(milliseconds=300))
    task = asyncio.create_task(lease.run())
    try:
        await asyncio.wait_for(lease.wait_held(), 10)
        plane.kill("kube-apiserver")
        for _ in range(100):
            assert lease.is_held
            await asyncio.sleep(0.05)
        await asyncio.to_thread(plane.wait_ready)
        assert lease.is_held
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
