"""The console over real connections: who may look, what is sent, what is bounded."""

from __future__ import annotations

import asyncio
import json
import socket
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import httpx
import pytest

from console.access import FOREIGN, as_token, by_port_forward, is_loopback, token_of
from console.routes import Limits
from tests.console.scene import Scene, adapter, service
from tests.waiting import until

QUICK = Limits(period=0.02, heartbeat=0.3, send=0.5, recheck=0.1)


def client(**headers: str) -> httpx.AsyncClient:
    return httpx.AsyncClient(trust_env=False, timeout=30, headers=headers)


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


async def events(response: httpx.Response) -> AsyncIterator[tuple[str, Any]]:
    """Yield the events of a stream."""
    name = ""
    async for line in response.aiter_lines():
        if line.startswith("event: "):
            name = line.removeprefix("event: ")
        elif line.startswith("data: "):
            yield name, json.loads(line.removeprefix("data: "))


# -- the page ---------------------------------------------------------------------------------------------------------


async def test_the_page_its_files_and_its_headers() -> None:
    scene = Scene()
    scene.base()
    scene.put(service("team-a", "gemma", adapter("cs-tone-v3")))
    async with scene.served() as url, client() as http:
        page = await http.get(url)
        assert (page.status_code, page.headers["content-type"]) == (200, "text/html; charset=utf-8")
        policy = page.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "script-src 'self';" in policy
        assert "unsafe" not in policy
        assert "http" not in policy
        assert page.headers["cache-control"] == "no-store"
        assert page.headers["x-content-type-options"] == "nosniff"
        assert "gemma" in page.text
        assert "//" not in page.text.replace("</", "").replace("http://www.w3.org", "")  # no address elsewhere
        for name, kind in (("console.css", "text/css"), ("console.js", "text/javascript"), ("icon.svg", "image/svg")):
            address = page.text.partition(f"console/{name}?v=")[2].partition('"')[0]
            kept = await http.get(f"{url}/{name}?v={address}")
            assert (kept.status_code, "immutable" in kept.headers["cache-control"]) == (200, True)
            assert kept.headers["content-type"].startswith(kind)
            assert (await http.get(f"{url}/{name}?v=old")).headers["cache-control"] == "no-cache"
        assert (await http.head(url)).status_code == 200
        assert (await http.get(url.replace("/console", "/healthz"))).text == "ok\n"


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("POST", "", 405),
        ("DELETE", "", 405),
        ("PUT", "/stream", 405),
        ("GET", "/", 307),
        ("GET", "/nothing", 404),
        ("GET", "/../settings", 404),
        ("GET", "/console.css/../../x", 404),
        ("POST", "/sign-in", 405),
        ("GET", "?page=zzz&state=%3Cscript%3E&q=%00", 200),
    ],
)
async def test_other_requests(method: str, path: str, status: int) -> None:
    async with Scene().served() as url, client() as http:
        assert (await http.request(method, url + path)).status_code == status


async def test_filter_and_pages_without_a_script() -> None:
    scene = Scene()
    scene.put(*(service("team-a", f"gemma-{number:03d}") for number in range(120)))
    async with scene.served() as url, client() as http:
        second = (await http.get(f"{url}?page=2")).text
        assert "gemma-050" in second
        assert "gemma-049" not in second
        found = (await http.get(f"{url}?q=gemma-07&state=Running")).text
        assert found.count('class="service"') == 10
        assert 'value="gemma-07"' in found
        assert "No service matches this filter" in (await http.get(f"{url}?q=other")).text


async def test_an_internal_error_is_reported_without_a_trace(caplog: pytest.LogCaptureFixture) -> None:
    scene = Scene()
    scene.console.board.page = None  # type: ignore[assignment, method-assign]
    async with scene.served() as url, client() as http:
        answer = await http.get(url)
    assert (answer.status_code, "Traceback" in answer.text) == (500, False)
    assert "the console failed" in caplog.text


# -- who may look -----------------------------------------------------------------------------------------------------

FORWARDED = {
    "a port-forward": ("127.0.0.1", b"localhost:8080", (), True),
    "over IPv6": ("::1", b"[::1]:8080", (), True),
    "as IPv6 shows IPv4": ("::ffff:127.0.0.1", b"127.0.0.1", (), True),
    "an address of this machine": ("127.77.0.9", b"127.77.0.5:8080", (), True),
    "another pod": ("10.0.0.7", b"localhost", (), False),
    "another pod over IPv6": ("::ffff:10.0.0.7", b"localhost", (), False),
    "a name that points here": ("127.0.0.1", b"evil.example:8080", (), False),
    "no name": ("127.0.0.1", b"", (), False),
    "a proxy in the pod": ("127.0.0.1", b"localhost", ((b"x-forwarded-for", b"10.0.0.7"),), False),
    "a sidecar": ("127.0.0.6", b"localhost", ((b"via", b"1.1 envoy"),), False),
    "no address": ("", b"localhost", (), False),
}


@pytest.mark.parametrize(("peer", "host", "more", "allowed"), FORWARDED.values(), ids=FORWARDED)
def test_by_port_forward(peer: str, host: bytes, more: tuple[tuple[bytes, bytes], ...], allowed: bool) -> None:
    denial = by_port_forward((peer, 1) if peer else None, [(b"host", host), *more])
    assert denial == (None if allowed else FOREIGN)


def test_loopback() -> None:
    assert [is_loopback(one) for one in ("127.8.9.1", "::1", "unix", "0.0.0.0")] == [True, True, False, False]


async def test_strangers_see_nothing_at_all() -> None:
    scene = Scene()
    scene.put(service("team-a", "gemma"))
    async with scene.served() as url, client(Host="evil.example") as http:
        for path in ("", "/stream", "/console.js"):
            answer = await http.get(url + path)
            assert (answer.status_code, "gemma" in answer.text) == (403, False), path
            assert "kubectl port-forward" in answer.text


TOKENS = {"none": ("", 401), "unknown": ("other", 401), "may not": ("poor-token", 403), "may": ("good-token", 200)}


@pytest.mark.parametrize("path", ["", "/stream"])
@pytest.mark.parametrize(("token", "status"), TOKENS.values(), ids=TOKENS)
async def test_by_token(token: str, status: int, path: str) -> None:
    scene = Scene(console_access="token")
    scene.put(service("team-a", "gemma"))
    async with scene.served() as url, client(**(bearer(token) if token else {})) as http:
        async with http.stream("GET", url + path) as answer:
            assert answer.status_code == status
            if status == 401:
                assert answer.headers["www-authenticate"] == "Bearer"
            if status != 200:
                assert "gemma" not in (await answer.aread()).decode()
        assert (await http.get(f"{url}/console.css")).status_code == 200  # has nothing of anybody


async def test_signing_in_and_out() -> None:
    scene = Scene(console_access="token")
    scene.put(service("team-a", "gemma"))
    async with scene.served() as url, client() as http:
        first = await http.get(url)
        assert 'action="console/sign-in"' in first.text
        for token, status in (
            ("other", 401),
            ("poor-token", 403),
            ("no token\r\nSet-Cookie: x=y", 401),
            ("x" * 20_000, 401),
        ):
            refused = await http.post(f"{url}/sign-in", data={"token": token})
            assert (refused.status_code, "set-cookie" in refused.headers) == (status, False), token[:20]
        accepted = await http.post(f"{url}/sign-in", data={"token": "good-token"})
        assert (accepted.status_code, accepted.headers["location"]) == (303, "../console")
        cookie = accepted.headers["set-cookie"]
        assert cookie == "aim-console=good-token; HttpOnly; SameSite=Strict"
        page = await http.get(url, headers={"Cookie": "a=b; aim-console=good-token"})
        assert ("gemma" in page.text, "good-token" in page.text) == (True, False)
        foreign = await http.post(f"{url}/sign-out", headers={"Sec-Fetch-Site": "cross-site"})
        assert foreign.status_code == 405
        out = await http.post(f"{url}/sign-out")
        assert out.headers["set-cookie"].endswith("Max-Age=0")


async def test_tokens_are_asked_about_once_a_minute() -> None:
    scene = Scene(console_access="token")
    async with scene.served() as url, client(**bearer("good-token")) as http:
        for _ in range(20):
            assert (await http.get(url)).status_code == 200
        assert scene.client.reviews == 2  # who is it, and may they
        for number in range(70):
            await http.get(url, headers=bearer(f"unknown-{number}"))
        gate = scene.console._check.__self__  # type: ignore[union-attr]
        assert len(gate._known) <= 64


async def test_a_stream_ends_when_its_token_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.tokens.REMEMBER_SECONDS", 0.0)
    scene = Scene(console_access="token", limits=QUICK)
    async with (
        scene.served() as url,
        client(**bearer("good-token")) as http,
        asyncio.timeout(30),
        http.stream("GET", f"{url}/stream") as answer,
    ):
        heard = events(answer)
        assert (await anext(heard))[0] == "update"
        scene.client.users["good-token"] = False
        assert all([name == "beat" async for name, _ in heard])


def test_tokens_in_headers_and_cookies() -> None:
    assert token_of([(b"authorization", b"bearer  abc"), (b"cookie", b"aim-console=other")]) == "abc"
    assert token_of([(b"cookie", b"x=y; aim-console=a.b-c_d")]) == "a.b-c_d"
    assert token_of([(b"authorization", b"Basic abc")]) is None
    assert [as_token(text) for text in ("", "a b", "a;b", "ä", "a" * 4001)] == [None] * 5


# -- the stream -------------------------------------------------------------------------------------------------------


async def test_a_stream_sends_what_changes_and_nothing_else() -> None:
    scene = Scene(limits=QUICK)
    scene.base()
    scene.put(*(service("team-a", f"gemma-{number}", adapter("x")) for number in range(5)))
    async with scene.served() as url, client() as http, asyncio.timeout(30):
        stamp = (await http.get(url)).text.partition('data-stamp="')[2].partition('"')[0]
        async with http.stream("GET", f"{url}/stream?stamp={stamp}") as answer:
            assert answer.headers["content-type"] == "text/event-stream"
            heard = events(answer)
            assert await anext(heard) == ("beat", None)  # the page is known: nothing to send but a sign of life
            progress = {"percentage": 43, "totalBytes": 1000}
            scene.change(
                "team-a",
                "gemma-3",
                lambda one: one["status"].update(adapters=[adapter("x", "Downloading", progress=progress)]),
            )
            name, update = await anext(heard)
            assert (name, list(update["rows"]), list(update["parts"])) == ("update", ["s/team-a/gemma-3"], ["summary"])
            assert "43 %" in update["rows"]["s/team-a/gemma-3"]
        async with http.stream("GET", f"{url}/stream?q=gemma-4") as answer:
            _, first = await anext(events(answer))
            assert first["order"] == ["s/team-a/gemma-4"]


async def test_streams_are_limited_and_given_back() -> None:
    scene = Scene(limits=Limits(streams=2, period=0.02))
    async with scene.served() as url, client() as http, asyncio.timeout(30):
        async with http.stream("GET", f"{url}/stream") as one, http.stream("GET", f"{url}/stream") as two:
            await anext(events(one))
            await anext(events(two))
            third = await http.get(f"{url}/stream")
            assert (third.status_code, third.headers["retry-after"]) == (503, "5")
            assert (await http.get(url)).status_code == 200
        await until(lambda: not scene.console._streams)
        async with http.stream("GET", f"{url}/stream") as again:
            assert again.status_code == 200


def _failing(turn: int) -> Callable[[dict[str, Any]], None]:
    entry = adapter("x", "Failed", lastError=f"{turn} " * 180)
    return lambda one: one["status"].update(adapters=[entry])


async def test_a_reader_that_does_not_read_is_cut_and_blocks_no_other() -> None:
    scene = Scene(limits=QUICK)
    scene.put(*(service("team-a", f"gemma-{number:03d}") for number in range(100)))
    async with scene.served(send_buffer=8192) as url, client() as http, asyncio.timeout(60):
        host, port = url.split("/")[2].split(":")
        with socket.socket() as lazy:
            lazy.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            lazy.setblocking(False)
            await asyncio.get_running_loop().sock_connect(lazy, (host, int(port)))
            lazy.send(b"GET /console/stream?size=100 HTTP/1.1\r\nHost: localhost\r\n\r\n")
            await until(lambda: scene.console._streams == 1)
            async with http.stream("GET", f"{url}/stream?q=gemma-001") as answer:
                heard = events(answer)
                await anext(heard)
                turn = 0
                while scene.console._streams > 1:  # its line is filled until it is given up
                    turn += 1
                    for number in range(2, 100):
                        scene.change("team-a", f"gemma-{number:03d}", _failing(turn))
                    await asyncio.sleep(0.05)
                scene.change("team-a", "gemma-001", _failing(turn))
                while "s/team-a/gemma-001" not in ((await anext(heard))[1] or {}).get("rows", {}):
                    pass
    assert turn > 1


async def test_streams_end_with_the_process() -> None:
    scene = Scene(limits=QUICK)
    async with scene.served() as url, client() as http, asyncio.timeout(30):
        async with http.stream("GET", f"{url}/stream") as answer:
            heard = events(answer)
            await anext(heard)
            scene.console.close()
            async for _ in heard:
                pass
        assert (await http.get(f"{url}/stream")).status_code == 503


# -- 5,000 services ---------------------------------------------------------------------------------------------------


async def _longest_stall(until: asyncio.Event) -> float:
    """Return the longest work in seconds between two turns of the loop, in time of this thread."""
    longest = 0.0
    while not until.is_set():
        before = time.thread_time()
        await asyncio.sleep(0)
        longest = max(longest, time.thread_time() - before)
        await asyncio.sleep(0.001)
    return longest


async def test_five_thousand_services(capsys: pytest.CaptureFixture[str]) -> None:
    scene = Scene(limits=Limits(period=0.02))
    scene.many(5_000)
    done = asyncio.Event()
    stalls = asyncio.create_task(_longest_stall(done))
    told = []
    async with scene.served() as url, client() as http:
        for what, query in (("first page", ""), ("again", ""), ("filtered", "?q=gemma-49"), ("last", "?page=100")):
            before = time.perf_counter()
            page = await http.get(url + query)
            milliseconds = (time.perf_counter() - before) * 1000
            told.append(f"{what}: {len(page.content):,} bytes, {milliseconds:.0f} ms")
            assert (page.status_code, len(page.content) < 250_000) == (200, True)
        stamp = page.text.partition('data-stamp="')[2].partition('"')[0]
        async with http.stream("GET", f"{url}/stream?page=100&stamp={stamp}") as answer:
            await asyncio.sleep(0.1)
            scene.change("team-99", "gemma-4999", lambda one: one["status"].update(status="Degraded"))
            before = time.perf_counter()
            async for name, update in events(answer):
                if name == "update":
                    size = len(json.dumps(update))
                    told.append(f"one change: {size:,} bytes, {(time.perf_counter() - before) * 1000:.0f} ms")
                    assert (list(update["rows"]), size < 6_000) == (["s/team-99/gemma-4999"], True)
                    break
    done.set()
    stall = await stalls
    told.append(f"longest work without a turn for others: {stall * 1000:.0f} ms")
    with capsys.disabled():
        print("\n5,000 services: " + "; ".join(told))  # noqa: T201 - the figures are what it is for
