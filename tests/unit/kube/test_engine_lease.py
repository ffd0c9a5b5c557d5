"""Leader election: who may write, from when, until when."""

from __future__ import annotations

import asyncio
from contextlib import AbstractAsyncContextManager
from datetime import timedelta
from typing import Any

import pytest

from api.kinds import LEASE
from kube.client import Client
from kube.lease import Lease, SeenLease, may_take, see
from tests.unit.kube.fake_api import FakeApi, status
from tests.waiting import in_background, until

FAST: dict[str, Any] = {
    "duration": timedelta(seconds=1),
    "renew_period": timedelta(milliseconds=100),
    "write_margin": timedelta(milliseconds=200),
}


def lease_object(holder: str, version: str, renew: str = "t0", duration: int = 15) -> dict[str, Any]:
    spec = {"holderIdentity": holder, "renewTime": renew, "leaseDurationSeconds": duration}
    return {"metadata": {"name": "aim-adapters", "namespace": "ns", "resourceVersion": version}, "spec": spec}


def seen(holder: str, changed_at: float, duration: float = 15) -> SeenLease:
    return SeenLease(holder, duration, (holder, "t", "1"), changed_at, {})


CASES = {
    "no one ever held it": (None, 0.0, True),
    "it was given up": (seen("", 0), 0.0, True),
    "it is its own": (seen("me", 0), 0.0, True),
    "another renewed it just now": (seen("other", 100), 101.0, False),
    "another's time is just over, but its clock may run slower": (seen("other", 100), 115.1, False),
    "another fell silent": (seen("other", 100), 115.4, True),
}


@pytest.mark.parametrize(("what", "now", "expected"), CASES.values(), ids=CASES)
def test_who_may_take_it(what: SeenLease | None, now: float, expected: bool) -> None:
    assert may_take(what, "me", now) is expected


def test_the_holders_clock_is_not_believed() -> None:
    """A renewTime in the far past or future means nothing; that it changed, does."""
    first = see(lease_object("other", "1", "1970-01-01T00:00:00Z"), None, 100, 15)
    same = see(lease_object("other", "1", "1970-01-01T00:00:00Z"), first, 110, 15)
    moved = see(lease_object("other", "2", "2099-01-01T00:00:00Z"), same, 112, 15)
    assert (first.changed_at, same.changed_at, moved.changed_at) == (100, 100, 112)


def campaigning(*leases: Lease) -> AbstractAsyncContextManager[list[asyncio.Task[None]]]:
    return in_background(*(lease.run() for lease in leases))


def test_impossible_times_are_refused() -> None:
    with pytest.raises(ValueError, match="last longer"):
        Lease(None, "ns", "a", duration=timedelta(seconds=1))  # type: ignore[arg-type]


async def test_one_of_two_leads_and_the_other_follows_when_it_lets_go(client: Client) -> None:
    first, second = Lease(client, "ns", "first", **FAST), Lease(client, "ns", "second", **FAST)
    async with campaigning(first) as tasks:
        await asyncio.wait_for(first.wait_held(), 5)
        async with campaigning(second):
            await asyncio.sleep(0.4)
            assert (first.is_held, second.is_held) == (True, False)
            tasks[0].cancel()
            await first.release()
            await asyncio.wait_for(second.wait_held(), 0.5)  # well before the lease would have run out
    assert not first.is_held


async def test_two_candidates_at_once_yield_one_leader(api: FakeApi, client: Client) -> None:
    leases = [Lease(client, "ns", f"c{n}", **FAST) for n in range(5)]
    async with campaigning(*leases):
        await until(lambda: any(lease.is_held for lease in leases))
        for _ in range(30):
            assert sum(lease.is_held for lease in leases) <= 1
            await asyncio.sleep(0.02)


async def test_a_leader_cut_off_stops_writing_before_another_begins(api: FakeApi, client: Client) -> None:
    """It loses the API server; the other still sees it. Their times of writing never overlap."""
    first, second = Lease(client, "ns", "first", **FAST), Lease(client, "ns", "second", **FAST)
    handle = api.handle

    async with campaigning(first) as tasks:
        await asyncio.wait_for(first.wait_held(), 5)
        deaf = asyncio.Event()

        async def cut_off(*args: Any, **kwargs: Any) -> Any:
            await deaf.wait()

        first._client = type("Cut", (), {"put": cut_off, "create": cut_off, "find": cut_off})()
        overlap = 0
        first_ended = second_began = 0.0
        loop = asyncio.get_running_loop()
        async with campaigning(second):
            while not second.is_held:
                if first.is_held:
                    first_ended = loop.time()
                await asyncio.sleep(0.005)
            second_began = loop.time()
            overlap += first.is_held
        assert overlap == 0
        assert second_began - first_ended > 0.1
        tasks[0].cancel()
    assert api.handle == handle


async def test_an_api_server_that_is_away_costs_the_lease_in_time_and_it_comes_back(
    api: FakeApi, client: Client
) -> None:
    lease = Lease(client, "ns", "only", **FAST)
    async with campaigning(lease):
        await asyncio.wait_for(lease.wait_held(), 5)
        api.served.discard("leases")  # reads fail with 404, the renewal too
        api.fail = [status(500, "InternalError") for _ in range(12)]
        await asyncio.wait_for(lease.wait_lost(), 3)
        assert lease.remaining() <= 0
        api.served.add("leases")
        api.fail.clear()
        await asyncio.wait_for(lease.wait_held(), 3)


async def test_a_paused_holder_finds_its_writes_blocked(client: Client) -> None:
    now = 1000.0
    lease = Lease(client, "ns", "only", clock=lambda: now)
    assert await lease._try_once()
    assert lease.remaining() == pytest.approx(15 * 0.98 - 3)
    now += 11.6  # the whole process stood still
    assert lease.remaining() > 0
    now += 0.2
    assert lease.remaining() <= 0


async def test_the_lease_shows_people_who_and_since_when(api: FakeApi, client: Client) -> None:
    lease = Lease(client, "ns", "first")
    await lease._try_once()
    await lease._try_once()
    spec = (await client.get(LEASE, "ns", "aim-adapters"))["spec"]
    assert (spec["holderIdentity"], spec["leaseDurationSeconds"], spec["leaseTransitions"]) == ("first", 15, 0)
    await lease.release()
    other = Lease(client, "ns", "second")
    await other._try_once()
    spec = (await client.get(LEASE, "ns", "aim-adapters"))["spec"]
    assert (spec["holderIdentity"], spec["leaseTransitions"]) == ("second", 1)


async def test_a_renewal_that_was_cut_under_way_does_not_block_the_release(client: Client) -> None:
    """The server took the renewal, but the answer never came: the version that we last saw is old."""
    lease = Lease(client, "ns", "first")
    await lease._try_once()
    stored = await client.get(LEASE, "ns", "aim-adapters")
    await client.put(LEASE, {**stored, "spec": {**stored["spec"], "renewTime": "2026-01-01T00:00:00.000000Z"}})
    await lease.release()
    assert (await client.get(LEASE, "ns", "aim-adapters"))["spec"]["holderIdentity"] == ""


async def test_a_release_leaves_the_lease_of_a_successor_alone(client: Client) -> None:
    first, now = Lease(client, "ns", "first"), 0.0
    await first._try_once()
    second = Lease(client, "ns", "second", clock=lambda: now)
    await second._try_once()
    now = 60.0
    assert await second._try_once()
    await first.release()
    assert (await client.get(LEASE, "ns", "aim-adapters"))["spec"]["holderIdentity"] == "second"


async def test_a_deleted_lease_is_made_again(api: FakeApi, client: Client) -> None:
    lease = Lease(client, "ns", "only", **FAST)
    async with campaigning(lease):
        await asyncio.wait_for(lease.wait_held(), 5)
        api.remove("leases", "ns", "aim-adapters")
        await until(lambda: ("leases", "ns", "aim-adapters") in api.objects)
        await until(lambda: lease.is_held)


async def test_a_deleted_lease_still_protects_its_holder(api: FakeApi, client: Client) -> None:
    """Another user deletes the object: the holder may be writing still, so a candidate waits as if it were there."""
    now = 0.0
    first = Lease(client, "ns", "first", clock=lambda: now)
    second = Lease(client, "ns", "second", clock=lambda: now)
    assert await first._try_once()
    assert not await second._try_once()
    api.remove("leases", "ns", "aim-adapters")
    assert first.is_held
    assert not await second._try_once()
    now += 16
    assert await second._try_once()
    assert not first.is_held
