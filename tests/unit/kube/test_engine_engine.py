"""The engine: from a change to a pass, from a failure to backoff, with and without leadership."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta

import pytest

from api.kinds import Kind
from api.view import JsonObject
from kube.cache import Key, key_of
from kube.client import Client
from kube.engine import AlwaysLeading, Engine, Leadership, Watch, keys_of_both
from kube.errors import Invalid, ServerError
from kube.informer import Informer
from tests.unit.kube.conftest import WIDGET
from tests.unit.kube.fake_api import FakeApi
from tests.waiting import in_background, until

PART = Kind("example.com", "v1", "parts", "Part")


class Recorder:
    """A controller that notes its passes and does what the test says."""

    def __init__(
        self, watches: Sequence[Watch], act: Callable[[Key], Awaitable[timedelta | None]] | None = None
    ) -> None:
        self.name = "widget"
        self.watches = watches
        self.passes: list[Key] = []
        self.at_once: dict[Key, int] = {}
        self.overlaps = 0
        self._act = act

    async def reconcile(self, key: Key) -> timedelta | None:
        self.at_once[key] = self.at_once.get(key, 0) + 1
        self.overlaps += self.at_once[key] > 1
        try:
            self.passes.append(key)
            await asyncio.sleep(0.002)
            return await self._act(key) if self._act else None
        finally:
            self.at_once[key] -= 1


class Switch:
    """Leadership that the test turns on and off."""

    def __init__(self) -> None:
        self.held, self.lost = asyncio.Event(), asyncio.Event()

    def turn(self, on: bool) -> None:
        (self.held.set if on else self.held.clear)()
        (self.lost.clear if on else self.lost.set)()

    async def wait_held(self) -> None:
        await self.held.wait()

    async def wait_lost(self) -> None:
        await self.lost.wait()


@asynccontextmanager
async def running(engine: Engine) -> AsyncIterator[asyncio.Task[None]]:
    async with in_background(engine.run()) as (task,):
        yield task


def engine_of(controller: Recorder, leadership: Leadership | None = None) -> Engine:
    return Engine([controller], [], leadership or AlwaysLeading(), workers=4, drain=timedelta(seconds=1))


async def test_first_list_then_changes(api: FakeApi, client: Client) -> None:
    api.put("widgets", "ns", "a")
    controller = Recorder([Watch(Informer(client, WIDGET))])
    async with running(engine_of(controller)):
        await until(lambda: controller.passes == [("ns", "a")])
        api.put("widgets", "ns", "b")
        await until(lambda: ("ns", "b") in controller.passes)
        api.remove("widgets", "ns", "a")
        await until(lambda: controller.passes.count(("ns", "a")) == 2)
    assert controller.overlaps == 0


async def test_a_change_elsewhere_finds_its_objects_by_an_index(api: FakeApi, client: Client) -> None:
    api.served.add("parts")
    api.put("widgets", "ns", "a", part="p1")
    api.put("widgets", "ns", "b", part="p2")
    widgets = Informer(client, WIDGET, indexes={"part": lambda o: [o["part"]]})

    def users(part: JsonObject) -> list[Key]:
        return [key_of(widget) for widget in widgets.cache.by_index("part", part["metadata"]["name"])]

    controller = Recorder([Watch(widgets), Watch(Informer(client, PART), keys_of_both(users))])
    engine = engine_of(controller)
    async with running(engine):
        await until(lambda: len(controller.passes) == 2 and engine.idle)
        api.put("parts", "ns", "p2")
        await until(lambda: len(controller.passes) == 3)
    assert controller.passes[2] == ("ns", "b")


async def test_a_kind_that_is_served_late_is_news_though_it_has_no_objects(
    api: FakeApi, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is missing was not known before; now it is known to be missing."""
    monkeypatch.setattr("kube.informer.LARGEST_ABSENT_BACKOFF", 0.1)
    api.put("widgets", "ns", "a")
    parts = Informer(client, PART)
    leadership = Switch()
    controller = Recorder([Watch(Informer(client, WIDGET)), Watch(parts, lambda old, new: [])])
    engine = engine_of(controller, leadership)
    leadership.turn(True)
    async with running(engine):
        await until(lambda: controller.passes == [("ns", "a")] and engine.idle)
        leadership.turn(False)  # one who leads no more waits for nothing
        await until(lambda: engine.queue("widget") is None)
        leadership.turn(True)
        await until(lambda: len(controller.passes) == 2 and engine.idle)
        api.served.add("parts")
        await until(lambda: len(controller.passes) == 3)
        await asyncio.sleep(0.3)
    assert len(controller.passes) == 3


async def test_transient_errors_come_back_with_backoff(api: FakeApi, client: Client) -> None:
    api.put("widgets", "ns", "a")

    async def act(key: Key) -> None:
        if len(controller.passes) < 3:
            raise ServerError(503, "ServiceUnavailable", "busy")

    controller = Recorder([Watch(Informer(client, WIDGET))], act)
    engine = engine_of(controller)
    async with running(engine):
        await until(lambda: len(controller.passes) == 3)
        queue = engine.queue("widget")
        assert queue is not None
        await until(lambda: queue.idle)
        assert queue.failures(("ns", "a")) == 0


async def test_a_terminal_error_waits_for_a_change(api: FakeApi, client: Client) -> None:
    api.put("widgets", "ns", "a")

    async def act(key: Key) -> None:
        raise Invalid(422, "Invalid", "no")

    controller = Recorder([Watch(Informer(client, WIDGET))], act)
    engine = engine_of(controller)
    async with running(engine):
        await until(lambda: controller.passes and engine.idle)
        await asyncio.sleep(0.5)
        assert len(controller.passes) == 1
        api.put("widgets", "ns", "a", x=1)
        await until(lambda: len(controller.passes) == 2)


async def test_a_bug_over_one_object_is_logged_once_and_stops_no_one(
    api: FakeApi, client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(20):
        api.put("widgets", "ns", f"{number}")

    async def act(key: Key) -> None:
        if key != ("ns", "7"):
            raise RuntimeError(f"bug over {key}")

    controller = Recorder([Watch(Informer(client, WIDGET))], act)
    with caplog.at_level(logging.ERROR):
        async with running(engine_of(controller)) as task:
            await until(lambda: len(set(controller.passes)) == 20)
            await until(lambda: len(controller.passes) > 25, 10)
            assert not task.done()
    assert [record.message for record in caplog.records] == ["a pass failed unexpectedly"]


async def test_a_recheck_is_made(api: FakeApi, client: Client) -> None:
    api.put("widgets", "ns", "a")

    async def act(key: Key) -> timedelta | None:
        return timedelta(milliseconds=20) if len(controller.passes) < 3 else None

    controller = Recorder([Watch(Informer(client, WIDGET))], act)
    async with running(engine_of(controller)):
        await until(lambda: len(controller.passes) == 3)
        await asyncio.sleep(0.1)
    assert len(controller.passes) == 3


async def test_a_pass_is_not_woken_by_a_write_that_it_took_in_itself(api: FakeApi, client: Client) -> None:
    """Another change of the same object wakes it, and so does the write for everybody else."""
    api.put("widgets", "ns", "a")
    widgets = Informer(client, WIDGET)
    others = Recorder([Watch(Informer(client, PART)), Watch(widgets)])
    others.name = "part"

    async def act(key: Key) -> None:
        if len(controller.passes) == 1:
            written = await client.apply(WIDGET, {"metadata": {"namespace": "ns", "name": "a"}, "v": 1})
            widgets.observe_write(written, (WIDGET, key))

    controller = Recorder([Watch(widgets)], act)
    engine = Engine([controller, others], [], AlwaysLeading())
    async with running(engine):
        await until(lambda: others.passes and controller.passes)
        await asyncio.sleep(0.1)
        assert len(controller.passes) == 1
        api.put("widgets", "ns", "a", v=2)
        await until(lambda: len(controller.passes) == 2)


async def test_only_a_leader_makes_passes_but_caches_are_always_fed(api: FakeApi, client: Client) -> None:
    informer, switch = Informer(client, WIDGET), Switch()
    controller = Recorder([Watch(informer)])
    async with running(engine_of(controller, switch)):
        api.put("widgets", "ns", "a")
        await until(lambda: informer.get("ns", "a"))
        assert controller.passes == []
        switch.turn(True)
        await until(lambda: controller.passes == [("ns", "a")])
        switch.turn(False)
        await asyncio.sleep(0.05)
        api.put("widgets", "ns", "b")
        await until(lambda: informer.get("ns", "b"))
        await asyncio.sleep(0.05)
        assert controller.passes == [("ns", "a")]
        switch.turn(True)
        await until(lambda: len(controller.passes) == 3)


async def test_a_lost_lease_cancels_passes_in_flight(api: FakeApi, client: Client) -> None:
    api.put("widgets", "ns", "a")
    started: list[Key] = []
    cancelled: list[Key] = []

    async def act(key: Key) -> None:
        started.append(key)
        try:
            await asyncio.sleep(30)
        except asyncio.CancelledError:
            cancelled.append(key)
            raise

    switch = Switch()
    switch.turn(True)
    controller = Recorder([Watch(Informer(client, WIDGET))], act)
    async with running(engine_of(controller, switch)):
        await until(lambda: started)
        switch.turn(False)
        await until(lambda: cancelled)


async def test_stop_finishes_passes_in_flight(api: FakeApi, client: Client) -> None:
    for number in range(20):
        api.put("widgets", "ns", f"{number}")
    finished: list[Key] = []

    async def act(key: Key) -> None:
        await asyncio.sleep(0.2)
        finished.append(key)

    controller = Recorder([Watch(Informer(client, WIDGET))], act)
    engine = engine_of(controller)
    task = asyncio.create_task(engine.run())
    await until(lambda: len(controller.passes) == 4)
    engine.stop()
    await asyncio.wait_for(task, 3)
    assert len(finished) == 4
    assert len(controller.passes) == 4


async def test_stop_cancels_what_does_not_end(api: FakeApi, client: Client) -> None:
    api.put("widgets", "ns", "a")

    async def act(key: Key) -> None:
        await asyncio.sleep(60)

    controller = Recorder([Watch(Informer(client, WIDGET))], act)
    engine = Engine([controller], [], AlwaysLeading(), drain=timedelta(milliseconds=100))
    task = asyncio.create_task(engine.run())
    await until(lambda: controller.passes)
    engine.stop()
    await asyncio.wait_for(task, 2)


async def test_an_edit_is_handled_before_a_long_resync_ends(api: FakeApi, client: Client) -> None:
    for number in range(400):
        api.put("widgets", "ns", f"{number:03}")
    controller = Recorder([Watch(Informer(client, WIDGET))])
    engine = Engine([controller], [], AlwaysLeading(), workers=1)
    async with running(engine):
        await until(lambda: controller.passes)
        api.put("widgets", "ns", "399", x=1)
        await until(lambda: ("ns", "399") in controller.passes)
        assert len(controller.passes) < 200
