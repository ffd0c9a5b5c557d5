"""The adapter by path over the one API client: paths, events of an informer, what its callers rely on."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from devcluster.by_path import Kube
from devcluster.paths import path_for
from kube.auth import NoCredentials, plain_credentials
from kube.client import Client
from kube.errors import Invalid, NotFound
from tests.slow_tls import client_sockets, cut_short, slow_tls, trusting
from tests.unit.kube.fake_api import FakeApi, serve, status

WIDGETS = "/apis/example.com/v1/namespaces/d/widgets"


@pytest.fixture
async def api() -> FakeApi:
    return FakeApi()


@pytest.fixture
async def kube(api: FakeApi) -> AsyncIterator[Kube]:
    async with serve(api) as address, Kube(Client(plain_credentials(address), within=5)) as kube:
        yield kube


class Taken:
    """Takes events from a watch, a few at a time."""

    def __init__(self, watch: AsyncGenerator[tuple[str, dict[str, Any]], None]) -> None:
        self._watch = watch

    async def next(self, count: int) -> list[tuple[str, str]]:
        async with asyncio.timeout(10):
            events = [await anext(self._watch) for _ in range(count)]
        return [(kind, item.get("metadata", {}).get("name", "")) for kind, item in events]


async def test_watch_lists_and_then_reports_changes(api: FakeApi, kube: Kube) -> None:
    api.put("widgets", "d", "a")
    async with aclosing(kube.watch(WIDGETS)) as watch:
        taken = Taken(watch)
        assert await taken.next(2) == [("ADDED", "a"), ("SYNCED", "")]
        api.put("widgets", "d", "a", spec={"x": 1})
        assert await taken.next(1) == [("MODIFIED", "a")]
        api.remove("widgets", "d", "a")
        assert await taken.next(1) == [("DELETED", "a")]


async def test_expired_watch_lists_again_and_reports_what_vanished(api: FakeApi, kube: Kube) -> None:
    for name in ("a", "b"):
        api.put("widgets", "d", name)
    async with aclosing(kube.watch(WIDGETS)) as watch:
        taken = Taken(watch)
        assert sorted(await taken.next(3)) == [("ADDED", "a"), ("ADDED", "b"), ("SYNCED", "")]
        api.remove("widgets", "d", "a")
        api.put("widgets", "d", "b", spec={"x": 1})
        api.put("widgets", "d", "c")
        api.compact()
        api.cut()
        assert sorted(await taken.next(3)) == [("ADDED", "c"), ("DELETED", "a"), ("MODIFIED", "b")]


async def test_same_name_with_another_uid_is_deleted_and_added(api: FakeApi, kube: Kube) -> None:
    api.put("widgets", "d", "a")
    async with aclosing(kube.watch(WIDGETS)) as watch:
        taken = Taken(watch)
        assert await taken.next(2) == [("ADDED", "a"), ("SYNCED", "")]
        api.remove("widgets", "d", "a")
        api.put("widgets", "d", "a")
        api.compact()
        api.cut()
        assert await taken.next(2) == [("DELETED", "a"), ("ADDED", "a")]


async def test_a_watch_that_is_closed_leaves_no_task(api: FakeApi, kube: Kube) -> None:
    before = asyncio.all_tasks()
    async with aclosing(kube.watch(WIDGETS)) as watch:
        await Taken(watch).next(1)
    left = {task for task in asyncio.all_tasks() - before if "informer" in task.get_name()}
    assert left == set()


async def test_list_follows_pages_and_names_kinds(api: FakeApi, kube: Kube) -> None:
    for number in range(150):
        api.put("widgets", "d", f"{number:03}")
    items = await kube.list(WIDGETS)
    assert [item["metadata"]["name"] for item in items] == [f"{number:03}" for number in range(150)]
    assert {item["apiVersion"] for item in items} == {"example.com/v1"}


async def test_errors_carry_the_status_object(api: FakeApi, kube: Kube) -> None:
    api.fail = [status(422, "Invalid", "spec.x: no")]
    with pytest.raises(Invalid) as caught:
        await kube.create(WIDGETS, {"metadata": {"namespace": "d", "name": "a"}})
    assert (caught.value.status, caught.value.reason, caught.value.message) == (422, "Invalid", "spec.x: no")


async def test_busy_server_is_asked_again(api: FakeApi, kube: Kube) -> None:
    api.put("widgets", "d", "a")
    api.fail = [status(429, "TooManyRequests", headers={"Retry-After": "0"})]
    assert (await kube.get(f"{WIDGETS}/a"))["metadata"]["name"] == "a"


async def test_absent_object_is_none_and_its_deletion_no_error(kube: Kube) -> None:
    assert await kube.find(f"{WIDGETS}/a") is None
    await kube.delete(f"{WIDGETS}/a")
    with pytest.raises(NotFound):
        await kube.delete(f"{WIDGETS}/a", missing_ok=False)


async def test_a_path_that_is_not_a_collection_is_not_listed(kube: Kube) -> None:
    with pytest.raises(ValueError, match="is not the path of a collection"):
        await kube.list(f"{WIDGETS}/a")


async def test_kubeconfig_without_context_says_so(tmp_path: Path) -> None:
    (tmp_path / "k").write_text("apiVersion: v1\nkind: Config\n")
    with pytest.raises(NoCredentials, match="credentials cannot be used"):
        await Kube.connect(tmp_path / "k")


@pytest.mark.parametrize(
    ("args", "path"),
    [
        (("v1", "pods"), "/api/v1/pods"),
        (("v1", "pods", "d", "a"), "/api/v1/namespaces/d/pods/a"),
        (("apps/v1", "deployments", "d"), "/apis/apps/v1/namespaces/d/deployments"),
        (("v1", "nodes", None, "n"), "/api/v1/nodes/n"),
    ],
)
def test_path_for(args: tuple[Any, ...], path: str) -> None:
    assert path_for(*args) == path


def test_requests_that_are_cancelled_while_they_connect_leave_no_socket() -> None:
    async def run(port: int, after_s: float) -> int:
        before = client_sockets(port)
        credentials = dataclasses.replace(plain_credentials(f"https://127.0.0.1:{port}"), tls=trusting())
        async with Kube(Client(credentials)) as kube:
            await cut_short(lambda: kube.request("GET", "/version"), after_s)
        return client_sockets(port) - before

    with slow_tls() as port:
        left = [asyncio.run(run(port, step * 0.001)) for step in range(25)]
    assert left == [0] * 25
