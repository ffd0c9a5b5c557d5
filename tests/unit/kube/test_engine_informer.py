"""List, watch, resume, relist: what the cache holds and what handlers get."""

from __future__ import annotations

import asyncio
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import Any

import pytest

from api.view import JsonObject
from kube.client import Client
from kube.informer import Informer
from tests.unit.kube.conftest import WIDGET
from tests.unit.kube.fake_api import FakeApi, status
from tests.waiting import in_background, until


def running(*informers: Informer) -> AbstractAsyncContextManager[list[asyncio.Task[None]]]:
    return in_background(*(informer.run() for informer in informers))


def record(informer: Informer) -> list[tuple[str | None, str | None]]:
    """Collect (old, new) as names with a marker."""
    seen: list[tuple[str | None, str | None]] = []

    def name(obj: JsonObject | None) -> str | None:
        return None if obj is None else f"{obj['metadata']['name']}={obj.get('v', '')}"

    informer.add_handler(lambda old, new: seen.append((name(old), name(new))))
    return seen


async def test_list_then_watch(api: FakeApi, client: Client) -> None:
    api.put("widgets", "ns", "a", v=1)
    informer = Informer(client, WIDGET, indexes={"v": lambda o: [str(o["v"])]})
    seen = record(informer)
    async with running(informer):
        await asyncio.wait_for(informer.synced.wait(), 5)
        api.put("widgets", "ns", "a", v=2)
        api.put("widgets", "ns", "b", v=2)
        await until(lambda: len(informer.by_index("v", "2")) == 2)
        api.remove("widgets", "ns", "a")
        await until(lambda: informer.get("ns", "a") is None)
    assert seen == [(None, "a=1"), ("a=1", "a=2"), (None, "b=2"), ("a=2", None)]
    assert api.count("GET", "limit=") == 1
    assert informer.age() < 5


async def test_what_is_not_read_is_trimmed(api: FakeApi, client: Client) -> None:
    api.put("widgets", "ns", "a", big="x", metadata={"managedFields": [1]})

    def trim(obj: JsonObject) -> JsonObject:
        obj.pop("big", None)
        return obj

    informer = Informer(client, WIDGET, trim=trim)
    async with running(informer):
        await asyncio.wait_for(informer.synced.wait(), 5)
    kept = informer.get("ns", "a")
    assert kept is not None
    assert "big" not in kept
    assert "managedFields" not in kept["metadata"]


async def test_a_cut_watch_resumes_without_a_list(api: FakeApi, client: Client) -> None:
    informer = Informer(client, WIDGET)
    seen = record(informer)
    async with running(informer):
        await asyncio.wait_for(informer.synced.wait(), 5)
        for number in range(5):
            await until(lambda: api.watchers)
            api.cut()
            api.put("widgets", "ns", f"{number}")
            await until(partial(informer.get, "ns", f"{number}"))
    assert len(seen) == 5
    assert api.count("GET", "limit=") == 1


@pytest.mark.parametrize("how", ["event", "status"])
async def test_410_lists_again_and_reports_the_difference(api: FakeApi, client: Client, how: str) -> None:
    for name in ("kept", "changed", "deleted"):
        api.put("widgets", "ns", name, v=1)
    informer = Informer(client, WIDGET)
    async with running(informer):
        await asyncio.wait_for(informer.synced.wait(), 5)
        seen = record(informer)
        await until(lambda: api.watchers)
        if how == "status":
            api.fail_watches = [status(410, "Expired")]
        api.cut()
        api.objects.pop(("widgets", "ns", "deleted"))
        api.put("widgets", "ns", "changed", v=2)
        api.compact()
        await until(lambda: len(seen) >= 2)
        await asyncio.sleep(0.05)
    assert sorted(seen, key=str) == [("changed=1", "changed=2"), ("deleted=1", None)]
    assert api.count("GET", "limit=") == 2


async def test_bookmarks_carry_a_quiet_watch_over_a_compaction(api: FakeApi, client: Client) -> None:
    informer = Informer(client, WIDGET)
    async with running(informer):
        await asyncio.wait_for(informer.synced.wait(), 5)
        await until(lambda: api.watchers)
        api.put("gadgets", "ns", "other")  # another kind moves the version on; a bookmark reports it
        await asyncio.sleep(0.1)
        api.compacted = api.now
        api.cut()
        api.put("widgets", "ns", "a")
        await until(lambda: informer.get("ns", "a"))
    assert api.count("GET", "limit=") == 1


async def test_a_continue_token_that_expires_begins_the_list_again(api: FakeApi, client: Client) -> None:
    for number in range(150):
        api.put("widgets", "ns", f"{number:04}")
    api.page_hook = api.compact  # every paged list expires half-way
    informer = Informer(client, WIDGET)
    seen = record(informer)
    async with running(informer):
        await asyncio.wait_for(informer.synced.wait(), 10)
    assert len(list(informer.items())) == len(seen) == 150
    assert api.count("GET", "limit=0") == 1


async def test_a_kind_that_is_not_served_settles_and_is_found_later(
    api: FakeApi, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kube.informer.LARGEST_ABSENT_BACKOFF", 0.1)
    api.served.clear()
    informer = Informer(client, WIDGET)
    async with running(informer):
        await asyncio.wait_for(informer.settled.wait(), 5)
        assert not informer.synced.is_set()
        assert "not served" in (informer.problem or "")
        api.put("widgets", "ns", "a")
        api.served.add("widgets")
        await asyncio.wait_for(informer.synced.wait(), 5)
        assert informer.problem is None


async def test_failures_back_off_and_are_reported_until_they_end(api: FakeApi, client: Client) -> None:
    api.fail = [status(500, "InternalError", "etcd is away") for _ in range(3)]
    informer = Informer(client, WIDGET)
    async with running(informer):
        await until(lambda: informer.problem)
        assert "etcd is away" in (informer.problem or "")
        await asyncio.wait_for(informer.synced.wait(), 10)
        assert informer.problem is None


async def test_namespaces_have_a_stream_each(api: FakeApi, client: Client) -> None:
    for namespace in ("one", "two", "three"):
        api.put("widgets", namespace, "a")
    informer = Informer(client, WIDGET, namespaces=["one", "two"])
    async with running(informer):
        await asyncio.wait_for(informer.synced.wait(), 5)
        assert len(list(informer.items())) == 2
        api.put("widgets", "two", "b")
        await until(lambda: informer.get("two", "b"))


async def test_our_own_write_is_seen_at_once_and_its_echo_wakes_no_one(api: FakeApi, client: Client) -> None:
    informer = Informer(client, WIDGET)
    seen = record(informer)
    async with running(informer):
        await asyncio.wait_for(informer.synced.wait(), 5)
        await until(lambda: api.watchers)
        written = await client.apply(WIDGET, {"metadata": {"namespace": "ns", "name": "a"}, "v": 1})
        informer.observe_write(written)
        assert informer.get("ns", "a") is not None
        api.put("widgets", "ns", "marker")
        await until(lambda: informer.get("ns", "marker"))
    assert [new for _, new in seen] == ["a=1", "marker="]


async def test_a_late_answer_does_not_bring_a_deleted_object_back(api: FakeApi, client: Client) -> None:
    informer = Informer(client, WIDGET)
    async with running(informer):
        await asyncio.wait_for(informer.synced.wait(), 5)
        written = await client.apply(WIDGET, {"metadata": {"namespace": "ns", "name": "a"}, "v": 1})
        await until(lambda: informer.get("ns", "a"))
        api.remove("widgets", "ns", "a")
        await until(lambda: informer.get("ns", "a") is None)
        informer.observe_write(written)
        assert informer.get("ns", "a") is None


async def test_an_own_deletion_is_taken_in_at_once_and_its_late_echoes_wake_no_one(
    api: FakeApi, client: Client
) -> None:
    informer = Informer(client, WIDGET)
    told: list[tuple[str, object]] = []
    informer.add_handler(lambda old, new: told.append(("gone" if new is None else "there", informer.writer)))
    me = (WIDGET, ("ns", "owner"))
    async with running(informer):
        await asyncio.wait_for(informer.synced.wait(), 5)
        kept = api.put("widgets", "ns", "a", metadata={"finalizers": ["x/y"]})
        stored = await client.apply(WIDGET, {"metadata": {"namespace": "ns", "name": "b"}})
        await until(lambda: len(list(informer.items())) == 2)
        informer.observe_deletion(("ns", "a"), kept["metadata"]["uid"], me)
        assert informer.get("ns", "a") is not None  # its finalizers are not done
        informer.observe_deletion(("ns", "b"), "another", me)
        assert informer.get("ns", "b") is not None
        told.clear()
        informer.observe_deletion(("ns", "b"), stored["metadata"]["uid"], me)
        informer.store(stored)  # what the watch still has to report from before
        api.remove("widgets", "ns", "b")
        api.put("widgets", "ns", "b", metadata={"uid": "a successor"})
        await until(lambda: informer.get("ns", "b"))
    assert told == [("gone", me), ("there", None)]


async def test_a_server_restored_from_a_backup_is_believed(api: FakeApi, client: Client) -> None:
    for _ in range(50):
        api.put("widgets", "ns", "a", v="new")
    informer = Informer(client, WIDGET)
    async with running(informer):
        await asyncio.wait_for(informer.synced.wait(), 5)
        await until(lambda: api.watchers)
        import itertools

        api.version = itertools.count(10)
        api.log.clear()
        api.objects.clear()
        uid = next(informer.items())["metadata"]["uid"]
        api.put("widgets", "ns", "a", v="old", metadata={"uid": uid})
        api.fail_watches = [status(504, "Timeout", "Too large resource version: 50, current: 10")]
        api.cut()
        await until(lambda: (informer.get("ns", "a") or {}).get("v") == "old")


async def test_a_handler_that_raises_does_not_end_the_watch(api: FakeApi, client: Client) -> None:
    informer = Informer(client, WIDGET)

    def broken(old: JsonObject | None, new: JsonObject | None) -> None:
        raise RuntimeError("bug")

    informer.add_handler(broken)
    async with running(informer):
        await asyncio.wait_for(informer.synced.wait(), 5)
        api.put("widgets", "ns", "a")
        await until(lambda: informer.get("ns", "a"))


async def test_a_random_history_converges(api: FakeApi, client: Client) -> None:
    """Edits, cuts, compactions in random order: the cache ends as the server, and each change was reported once."""
    import random

    seed = random.randrange(2**32)
    print(f"seed {seed}")  # noqa: T201 - shown when the test fails
    rng = random.Random(seed)
    informer = Informer(client, WIDGET, indexes={"v": lambda o: [str(o["v"])]})
    told: dict[str, Any] = {}

    def follow(old: JsonObject | None, new: JsonObject | None) -> None:
        name = (new or old or {})["metadata"]["name"]
        assert told.get(name) == (old or {}).get("v")
        told[name] = (new or {}).get("v")

    errors: list[BaseException] = []

    def checked(old: JsonObject | None, new: JsonObject | None) -> None:
        try:
            follow(old, new)
        except AssertionError as error:
            errors.append(error)

    informer.add_handler(checked)
    async with running(informer):
        for step in range(300):
            name = f"w{rng.randrange(8)}"
            act = rng.random()
            if act < 0.7:
                api.put("widgets", "ns", name, v=step)
            elif act < 0.85 and ("widgets", "ns", name) in api.objects:
                api.remove("widgets", "ns", name)
            elif act < 0.95:
                api.cut()
            else:
                api.compact()
            if rng.random() < 0.3:
                await asyncio.sleep(0.005)
        world = {key[2]: obj["v"] for key, obj in api.objects.items()}
        await until(lambda: {o["metadata"]["name"]: o["v"] for o in informer.items()} == world, 20)
    assert errors == []
    assert {name: value for name, value in told.items() if value is not None} == world
