"""The REST client of the development cluster: kubeconfig, errors, and what a list and watch loop must survive."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from pathlib import Path
from typing import Any

import httpx
import orjson
import pytest

from devcluster.kube import Kube, KubeError, path_for
from tests.slow_tls import client_sockets, cut_short, slow_tls, trusting

Answer = httpx.Response
Handler = Callable[[httpx.Request], Answer]


def kube_over(handler: Handler) -> Kube:
    return Kube("http://127.0.0.1:1", False, transport=httpx.MockTransport(handler))


def pod(name: str, version: int, uid: str = "") -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "d", "uid": uid or f"u-{name}", "resourceVersion": str(version)},
    }


def listing(version: int, *pods: dict[str, Any], token: str = "") -> Answer:
    meta = {"resourceVersion": str(version), **({"continue": token} if token else {})}
    return Answer(200, json={"kind": "PodList", "apiVersion": "v1", "metadata": meta, "items": list(pods)})


def events(*pairs: tuple[str, dict[str, Any]]) -> Answer:
    return Answer(200, content=b"".join(orjson.dumps({"type": t, "object": o}) + b"\n" for t, o in pairs))


def gone() -> dict[str, Any]:
    return {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old resource version"}


async def take(watch: AsyncGenerator[tuple[str, dict[str, Any]], None], count: int) -> list[tuple[str, str]]:
    got: list[tuple[str, str]] = []
    async with aclosing(watch) as stream:
        async for kind, item in stream:
            got.append((kind, item.get("metadata", {}).get("name", "")))
            if len(got) == count:
                break
    return got


async def test_watch_resumes_from_the_last_version_that_it_saw() -> None:
    seen: list[str] = []

    def handler(request: httpx.Request) -> Answer:
        if "watch" not in request.url.params:
            return listing(10, pod("a", 5))
        seen.append(request.url.params["resourceVersion"])
        if len(seen) == 1:
            return events(
                ("MODIFIED", pod("a", 11)), ("BOOKMARK", {"kind": "Pod", "metadata": {"resourceVersion": "20"}})
            )
        return events(("DELETED", pod("a", 21)))

    async with kube_over(handler) as kube:
        got = await take(kube.watch("/api/v1/pods"), 4)
    assert got == [("ADDED", "a"), ("SYNCED", ""), ("MODIFIED", "a"), ("DELETED", "a")]
    assert seen == ["10", "20"]


async def test_expired_watch_lists_again_and_tells_what_vanished() -> None:
    lists = [listing(10, pod("a", 5), pod("b", 6)), listing(30, pod("b", 25), pod("c", 26))]

    def handler(request: httpx.Request) -> Answer:
        if "watch" not in request.url.params:
            return lists.pop(0)
        return events(("ERROR", gone()))

    async with kube_over(handler) as kube:
        got = await take(kube.watch("/api/v1/pods"), 7)
    assert got[:3] == [("ADDED", "a"), ("ADDED", "b"), ("SYNCED", "")]
    assert got[3:] == [("DELETED", "a"), ("MODIFIED", "b"), ("ADDED", "c"), ("SYNCED", "")]


async def test_same_name_with_another_uid_is_deleted_and_added() -> None:
    lists = [listing(10, pod("a", 5, "old")), listing(30, pod("a", 25, "new"))]

    def handler(request: httpx.Request) -> Answer:
        return lists.pop(0) if "watch" not in request.url.params else events(("ERROR", gone()))

    async with kube_over(handler) as kube:
        got = await take(kube.watch("/api/v1/pods"), 4)
    assert got == [("ADDED", "a"), ("SYNCED", ""), ("DELETED", "a"), ("ADDED", "a")]


async def test_list_follows_pages_and_names_kinds() -> None:
    def handler(request: httpx.Request) -> Answer:
        if request.url.params.get("continue") == "next":
            return listing(10, {"metadata": {"name": "b"}})
        return listing(10, {"metadata": {"name": "a"}}, token="next")

    async with kube_over(handler) as kube:
        items = await kube.list("/api/v1/pods")
    assert [(i["kind"], i["apiVersion"], i["metadata"]["name"]) for i in items] == [
        ("Pod", "v1", "a"),
        ("Pod", "v1", "b"),
    ]


async def test_watch_survives_a_server_that_is_away() -> None:
    calls = 0

    def handler(request: httpx.Request) -> Answer:
        nonlocal calls
        calls += 1
        if calls <= 3:
            raise httpx.ConnectError("refused")
        return listing(10, pod("a", 5))

    async with kube_over(handler) as kube:
        got = await asyncio.wait_for(take(kube.watch("/api/v1/pods"), 1), 10)
    assert got == [("ADDED", "a")]


async def test_errors_carry_the_status_object() -> None:
    body = {"kind": "Status", "reason": "Invalid", "message": "spec.x: no", "details": {"causes": []}}
    async with kube_over(lambda _: Answer(422, json=body)) as kube:
        with pytest.raises(KubeError) as caught:
            await kube.create("/api/v1/namespaces/d/pods", pod("a", 1))
    assert (caught.value.status, caught.value.reason, caught.value.body) == (422, "Invalid", body)


async def test_busy_server_is_asked_again() -> None:
    answers = [Answer(429, headers={"retry-after": "0"}, json={}), Answer(200, json=pod("a", 1))]
    async with kube_over(lambda _: answers.pop(0)) as kube:
        assert (await kube.get("/api/v1/namespaces/d/pods/a"))["metadata"]["name"] == "a"


async def test_absent_object_is_none_and_its_deletion_no_error() -> None:
    async with kube_over(lambda _: Answer(404, json={"reason": "NotFound", "message": "no"})) as kube:
        assert await kube.find("/api/v1/namespaces/d/pods/a") is None
        await kube.delete("/api/v1/namespaces/d/pods/a")
        with pytest.raises(KubeError):
            await kube.delete("/api/v1/namespaces/d/pods/a", missing_ok=False)


def test_kubeconfig_without_context_says_so(tmp_path: Path) -> None:
    (tmp_path / "k").write_text("apiVersion: v1\nkind: Config\n")
    with pytest.raises(ValueError, match="no usable current-context"):
        Kube.from_kubeconfig(tmp_path / "k")


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
        async with Kube(f"https://127.0.0.1:{port}", trusting()) as kube:
            await cut_short(lambda: kube.request("GET", "/version"), after_s)
        return client_sockets(port) - before

    with slow_tls() as port:
        left = [asyncio.run(run(port, step * 0.001)) for step in range(25)]
    assert left == [0] * 25
