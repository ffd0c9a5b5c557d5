"""One object never ends a list or a watch, whatever is stored in it."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import REGISTRY

from api import view
from api.view import JsonObject
from kube import client as kube_client
from kube import json_parts, reading
from kube.budget import CacheBudget
from kube.cache import Cache
from kube.client import Client
from kube.informer import Informer
from tests.unit.kube.conftest import WIDGET
from tests.unit.kube.fake_api import FakeApi
from tests.unit.kube.test_engine_informer import record, running
from tests.waiting import until

DEPTHS = (260, 1_100, 20_000)  # what writes JSON, what reads it, and what the API server stores have other limits
_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner, max_size=4),
    max_leaves=20,
)


def nested(depth: int) -> orjson.Fragment:
    """An object that is nested deeply, as JSON."""
    return orjson.Fragment(b'{"a":' * depth + b"1" + b"}" * depth)


def skipped_total(reason: str) -> float:
    """Return how many objects the process skipped for a reason."""
    return REGISTRY.get_sample_value("aim_adapters_objects_skipped_total", {"kind": "Widget", "reason": reason}) or 0


@pytest.mark.parametrize("depth", DEPTHS)
@pytest.mark.parametrize("field", ["spec", "status", "metadata"])
async def test_a_deep_object_in_a_list_and_on_a_watch(api: FakeApi, client: Client, depth: int, field: str) -> None:
    bad: dict[str, Any] = {"metadata": {"managedFields": nested(depth)}} if field == "metadata" else {}
    bad = bad or {field: nested(depth)}
    before = skipped_total("Unreadable")
    api.put("widgets", "ns", "a", v=1)
    api.put("widgets", "ns", "deep", **bad)
    api.put("widgets", "ns", "z", v=1)
    informer = Informer(client, WIDGET, indexes={"v": lambda obj: [str(obj.get("v"))]})
    async with running(informer):
        await asyncio.wait_for(informer.synced.wait(), 5)
        assert {view.name_of(obj) for obj in informer.items()} == {"a", "deep", "z"}
        api.put("widgets", "ns", "later", **bad)
        api.put("widgets", "ns", "a", v=2)
        await until(lambda: len(informer.by_index("v", "2")) == 1)
        assert informer.get("ns", "later") is not None
        lists = api.count("GET", "limit=")
        if field != "metadata":  # which is dropped before anything reads it
            assert {found.name for found in informer.skipped} == {"deep", "later"}
            assert skipped_total("Unreadable") - before == 2
            left = view.left_out(informer.get("ns", "later"))
            assert left is not None
            assert field in left["detail"]
            assert "ns/later" in str(informer.skipped.problem())
        api.put("widgets", "ns", "deep", spec={}, status={}, metadata={"managedFields": []})
        api.remove("widgets", "ns", "later")
        await until(lambda: not len(informer.skipped) and informer.get("ns", "later") is None)
        assert informer.skipped.problem() is None
    assert lists == api.count("GET", "limit=") == 1, "no list was begun again"


async def test_a_deep_object_can_be_read_by_its_name(api: FakeApi, client: Client) -> None:
    api.put("widgets", "ns", "deep", spec=nested(1_100), v=1)
    found = await client.get(WIDGET, "ns", "deep")
    assert found["v"] == 1
    assert view.left_out(found) == {"reason": "Unreadable", "detail": "spec is nested too deeply, or is not valid JSON"}


@pytest.mark.parametrize(
    "text",
    [
        b'{"spec":{}}',
        b'{"metadata":{"name":""}}',
        b'{"metadata":[]}',
        b'{"metadata":{"name":{"a":1}}}',
        b'{"metadata":{"name":"x","namespace":3}}',
        b"7",
        b"null",
        b'"text"',
        b"[]",
    ],
)
async def test_what_cannot_be_identified_is_counted(api: FakeApi, client: Client, text: bytes) -> None:
    api.put("widgets", "ns", "a", v=1)
    informer = Informer(client, WIDGET)
    async with running(informer):
        await asyncio.wait_for(informer.synced.wait(), 5)
        before = skipped_total("Unreadable")
        api.now = next(api.version)
        api._record("widgets", "MODIFIED", orjson.Fragment(text))  # type: ignore[arg-type] # JSON as it is
        api.put("widgets", "ns", "b")
        await until(lambda: informer.get("ns", "b"))
    assert informer.skipped.nameless == 1
    assert skipped_total("Unreadable") - before == 1
    page = reading.read_page(b'{"kind":"L","metadata":{"resourceVersion":"1"},"items":[' + text + b"]}")
    assert (page.items, page.unreadable) == ([], 1)


async def test_text_that_is_not_utf8_costs_its_own_object_only(client: Client) -> None:
    good = b'{"metadata":{"name":"good","resourceVersion":"2"}}'
    bad = b'{"metadata":{"name":"bad","resourceVersion":"3"},"spec":{"text":"\xff\xfe"}}'
    surrogate = b'{"metadata":{"name":"half","resourceVersion":"3"},"spec":{"text":"\\ud800"}}'
    body = (
        b'{"kind":"WidgetList","metadata":{"resourceVersion":"9"},"items":[' + b",".join((bad, surrogate, good)) + b"]}"
    )
    page = await kube_client._read_page(body)
    assert [view.name_of(obj) for obj in page.items] == ["bad", "half", "good"]
    assert [view.left_out(obj) is not None for obj in page.items] == [True, True, False]
    assert (page.resource_version, page.token, page.unreadable) == ("9", "", 0)


async def test_a_fault_of_an_index_removes_its_object_and_no_other(api: FakeApi, client: Client) -> None:
    informer = Informer(client, WIDGET, indexes={"v": lambda obj: [str(1 // obj["v"])]})
    seen = record(informer)
    api.put("widgets", "ns", "a", v=1)
    api.put("widgets", "ns", "b", v=0)
    async with running(informer):
        await asyncio.wait_for(informer.synced.wait(), 5)
        assert informer.get("ns", "b") is None
        api.put("widgets", "ns", "a", v=0)
        await until(lambda: informer.get("ns", "a") is None)
        assert informer.by_index("v", "1") == [], "no old state is served"
        assert {found.reason for found in informer.skipped} == {"Fault"}
        api.put("widgets", "ns", "b", v=1)
        await until(lambda: informer.get("ns", "b"))
        assert [found.name for found in informer.skipped] == ["a"]
    assert seen == [(None, "a=1"), ("a=1", None), (None, "b=1")]


async def test_a_handler_that_raises_is_noted_once_for_each_version(api: FakeApi, client: Client) -> None:
    informer = Informer(client, WIDGET)

    def fail(old: JsonObject | None, new: JsonObject | None) -> None:
        raise RuntimeError("a fault")

    informer.add_handler(fail)
    seen = record(informer)
    api.put("widgets", "ns", "a", v=1)
    async with running(informer):
        await asyncio.wait_for(informer.synced.wait(), 5)
        await until(lambda: seen)
    assert [found.reason for found in informer.skipped] == ["HandlerFault"]
    assert "RuntimeError: a fault" in str(informer.skipped.problem())


async def test_a_page_that_is_too_large_is_asked_for_in_smaller_pieces(
    api: FakeApi, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kube_client, "LARGEST_PAGE", 300_000)
    for number in range(30):
        api.put("widgets", "ns", f"w{number:02}", data="x" * 40_000)
    names = [view.name_of(obj) async for page in client.list_pages(WIDGET) for obj in page.items]
    assert names == [f"w{number:02}" for number in range(30)]


async def test_objects_beyond_the_budget_keep_their_metadata_and_come_back(api: FakeApi, client: Client) -> None:
    budget = CacheBudget(500_000)
    informer = Informer(client, WIDGET, budget=budget, first_backoff=0.01)
    for number in range(4):
        api.put("widgets", "ns", f"w{number}", data="x" * (150_000 + number), v=number)
    api.put("widgets", "ns", "small", v=9)
    seen = record(informer)
    async with running(informer):
        await asyncio.wait_for(informer.synced.wait(), 5)
        assert budget.used <= 500_000
        assert [found.name for found in informer.skipped] == ["w3"], "the largest"
        assert view.left_out(informer.get("ns", "w3")) == {
            "reason": "CacheBudgetExceeded",
            "detail": "the caches use more than the setting cacheBudget allows, 488 KiB",
        }
        assert ("w3=3", "w3=") in seen, "controllers learn of it"
        for name in ("w0", "w1"):
            api.remove("widgets", "ns", name)
        await until(lambda: informer.get("ns", "w1") is None)
        api.cut()
        await until(lambda: (informer.get("ns", "w3") or {}).get("v") == 3)
    assert informer.skipped.problem() is None
    assert ("w3=", "w3=3") in seen


def test_the_budget_remembers_no_more_than_the_caches_hold(client: Client) -> None:
    budget = CacheBudget(1_000_000)
    informer = Informer(client, WIDGET, budget=budget)
    for version in range(1, 3_001):
        metadata = {"name": f"w{version % 3}", "uid": "u", "resourceVersion": str(version)}
        informer.store({"metadata": metadata, "data": "x" * 20_000})
    assert len(budget._largest) < 1_100
    assert budget.used < 100_000
    informer.store({"metadata": {"name": "huge", "resourceVersion": "4000"}, "data": "x" * 250_000})
    budget.limit = 200_000
    informer.store({"metadata": {"name": "w0", "uid": "u", "resourceVersion": "4001"}, "data": "y" * 20_000})
    assert [found.name for found in informer.skipped] == ["huge"], "the largest is still found"


def test_large_objects_are_kept_as_bytes() -> None:
    cache = Cache({"v": lambda obj: [str(obj["v"])]})
    for number in range(40):
        obj: JsonObject = {"metadata": {"name": f"w{number}"}, "v": number % 2, "data": [{} for _ in range(8_000)]}
        assert cache.put(obj, orjson.dumps(obj))
    assert 40 * 24_000 < cache.weight < 40 * 25_000
    assert len(cache.by_index("v", "1")) == 20
    assert cache.get("", "w7") is cache.get("", "w7"), "what was read last is parsed once"
    assert len(cache._unpacked) <= 8
    assert sum(1 for _ in cache.items()) == 40
    for number in range(40):
        cache.remove(("", f"w{number}"))
    assert (cache.weight, len(cache), cache.by_index("v", "1")) == (0, 0, [])


def test_a_large_object_costs_the_event_loop_little() -> None:
    """An event of any object takes at most 20 ms on the event loop; the test allows for a slow machine."""
    spec = b'{"text":"' + b"x" * 200 + b'","l":[' + b",".join([b"{}"] * 150_000) + b"]}"
    line = b'{"type":"ADDED","object":{"metadata":{"name":"big","resourceVersion":"5"},"spec":' + spec + b"}}"
    assert len(line) < reading.WHOLE_BYTES
    cpu = []
    for _ in range(3):
        informer = Informer.__new__(Informer)
        Informer.__init__(informer, None, WIDGET)  # type: ignore[arg-type] # nothing is asked
        started = time.process_time()
        informer.store(kube_client._parse_event(line).object)
        cpu.append(time.process_time() - started)
    assert view.left_out(informer.get("", "big")) is not None
    assert min(cpu) < 0.1


def _members_by_scan(text: bytes) -> dict[str, bytes]:
    return dict(map(json_parts._member, json_parts._split(text, b"{", b"}")))


def _elements_by_scan(text: bytes) -> list[bytes]:
    return list(json_parts._split(text, b"[", b"]"))


@given(_JSON)
def test_parts_are_those_of_the_parser(value: Any) -> None:
    text = orjson.dumps({"value": value, "list": [value, 1, value]})
    for members, elements in (
        (json_parts.members, json_parts.elements),
        (_members_by_scan, _elements_by_scan),
    ):
        parts = members(text)
        assert {name: orjson.loads(part) for name, part in parts.items()} == orjson.loads(text)
        assert list(map(orjson.loads, elements(parts["list"]))) == [value, 1, value]


@pytest.mark.parametrize("read", [json_parts.members, json_parts.elements, reading.read_object])
@given(text=st.binary(max_size=60) | st.text(alphabet='{}[]",:\\a1 ', max_size=30).map(str.encode))
def test_any_bytes_are_cut_or_refused(read: Callable[[bytes], object], text: bytes) -> None:
    with contextlib.suppress(ValueError):
        read(text)
