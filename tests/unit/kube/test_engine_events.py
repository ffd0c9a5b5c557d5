"""Events: counted when they repeat, bounded, never raising."""

from __future__ import annotations

import asyncio
from typing import Any

from kube.client import Client
from kube.events import MAX_WAITING, EventRecorder
from tests.unit.kube.fake_api import FakeApi, status
from tests.waiting import until

OBJ = {"apiVersion": "v1", "kind": "Widget", "metadata": {"namespace": "ns", "name": "a", "uid": "u1"}}


def stored(api: FakeApi) -> list[dict[str, Any]]:
    return [obj for key, obj in api.objects.items() if key[0] == "events"]


async def test_an_event_is_written_once_and_counted_when_it_repeats(api: FakeApi, client: Client) -> None:
    now = 0.0
    recorder = EventRecorder(client, clock=lambda: now)
    for _ in range(3):
        recorder.record(OBJ, "Normal", "Staged", "adapter x is staged")
        await recorder.flush()
    recorder.record(OBJ, "Warning", "StagingFailed", "adapter y: 401")
    await recorder.flush()
    assert sorted((event["reason"], event["count"]) for event in stored(api)) == [("Staged", 3), ("StagingFailed", 1)]
    assert stored(api)[0]["involvedObject"]["uid"] == "u1"
    now += 601
    recorder.record(OBJ, "Normal", "Staged", "adapter x is staged")
    await recorder.flush()
    assert len(stored(api)) == 3


async def test_repetitions_before_the_first_write_are_one_write(api: FakeApi, client: Client) -> None:
    recorder = EventRecorder(client)
    for _ in range(5):
        recorder.record(OBJ, "Normal", "Staged", "x")
    await recorder.flush()
    assert [event["count"] for event in stored(api)] == [5]
    assert len(api.requests) == 1


async def test_an_event_that_the_server_forgot_is_written_again(api: FakeApi, client: Client) -> None:
    recorder = EventRecorder(client)
    recorder.record(OBJ, "Normal", "Staged", "x")
    await recorder.flush()
    api.objects.clear()
    recorder._client = client
    api.fail = [status(404, "NotFound")]
    recorder.record(OBJ, "Normal", "Staged", "x")
    await recorder.flush()
    assert [event["count"] for event in stored(api)] == [2]


async def test_a_flood_is_bounded_and_a_failing_server_blocks_nothing(api: FakeApi, client: Client) -> None:
    recorder = EventRecorder(client)
    for number in range(MAX_WAITING + 50):
        recorder.record(OBJ, "Normal", "Staged", f"x{number}")
    assert len(recorder._waiting) == MAX_WAITING
    api.fail = [status(403, "Forbidden")]
    task = asyncio.create_task(recorder.run())
    await until(lambda: len(stored(api)) >= 10)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_a_long_message_is_cut_at_a_whole_character(api: FakeApi, client: Client) -> None:
    recorder = EventRecorder(client)
    recorder.record(OBJ, "Normal", "Staged", "ü" * 2000)
    await recorder.flush()
    assert stored(api)[0]["message"] == "ü" * 512


async def test_an_event_of_a_leader_that_leads_no_more_ends_no_one(api: FakeApi, client: Client) -> None:
    class Lost:
        def remaining(self) -> float:
            return 0.0

    recorder = EventRecorder(client.guarded(Lost()))
    running = asyncio.create_task(recorder.run())
    recorder.record(OBJ, "Normal", "Staged", "x")
    await until(lambda: not recorder._waiting)
    assert not running.done()
    assert stored(api) == []
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
