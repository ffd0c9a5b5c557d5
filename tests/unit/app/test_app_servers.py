"""The servers over real sockets: bounds, draining, health, what a slow or greedy client can do."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta

import pytest
import uvloop
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from app import bind as bind_module
from app.application import create_application
from app.bind import bind
from app.connections import Bounds
from app.health import Check, Handshake, flag_check, health_router, report
from app.metrics import metrics_router
from app.server import LoopServer, serving
from certs.decide import authority_validity, leaf_validity
from certs.pem import issue_leaf, make_authority, parse_certificate, validity_of
from certs.serve import ServingCertificate
from tests.waiting import until

AUTHORITY = make_authority("test", authority_validity(datetime.now(UTC), timedelta(days=9)))


def certificate() -> ServingCertificate:
    life = leaf_validity(datetime.now(UTC), timedelta(days=1), validity_of(parse_certificate(AUTHORITY.certificate)))
    serving = ServingCertificate()
    serving.replace(issue_leaf(AUTHORITY, frozenset({"localhost"}), life))
    return serving


class App:
    """Answers with the body it got; can be held up."""

    def __init__(self) -> None:
        self.hold = asyncio.Event()
        self.hold.set()
        self.begun = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        body, more = b"", True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                return
            body += message.get("body", b"")
            more = message.get("more_body", False)
        self.begun += 1
        await self.hold.wait()
        await Response(body)(scope, receive, send)


async def begun(app: App, count: int) -> None:
    """Wait until this many requests have begun."""
    async with asyncio.timeout(5):
        while app.begun < count:  # noqa: ASYNC110 - the application counts, it sets no event
            await asyncio.sleep(0.01)


@asynccontextmanager
async def running(app: App, bounds: Bounds, tls: ssl.SSLContext | None = None) -> AsyncIterator[LoopServer]:
    server = LoopServer("test", app, bind("127.0.0.1", 0), bounds, tls=tls)
    async with serving(server):
        yield server


async def open_to(server: LoopServer, *, tls: bool = False) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    context = ssl.create_default_context(cadata=AUTHORITY.certificate.decode()) if tls else None
    host, port = server.address
    return await asyncio.open_connection(host, port, ssl=context, server_hostname="localhost" if tls else None)


async def exchange(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, body: bytes = b"hi"
) -> tuple[int, bytes, bytes]:
    """Send a POST and return (status, headers, body)."""
    writer.write(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
    head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 5)
    length = next(
        int(line.split(b":")[1]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length")
    )
    return int(head.split()[1]), head.lower(), await asyncio.wait_for(reader.readexactly(length), 5)


async def ended(reader: asyncio.StreamReader, seconds: float) -> float:
    """Return how long it took until the other side closed; fails after `seconds`."""
    begun = time.monotonic()
    with contextlib.suppress(ConnectionError, ssl.SSLError):
        await asyncio.wait_for(reader.read(), seconds)
    return time.monotonic() - begun


async def test_connections_are_kept_and_answers_are_whole() -> None:
    async with running(App(), Bounds(), certificate().context) as server:
        reader, writer = await open_to(server, tls=True)
        for body in (b"a", b"", b"x" * 300_000):
            assert (await exchange(reader, writer, body))[::2] == (200, body)
        writer.close()


@pytest.mark.parametrize(
    "sent",
    [b"", b"POST / HTTP/1.1\r\nHost:", b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\nfirst bytes"],
    ids=["says nothing", "half a head", "half a body"],
)
async def test_a_client_that_is_too_slow_is_cut_off(sent: bytes) -> None:
    async with running(App(), Bounds(request_seconds=0.3)) as server:
        reader, writer = await open_to(server)
        writer.write(sent)
        assert 0.2 < await ended(reader, 3) < 2
        writer.close()


async def test_an_endless_head_is_cut_off() -> None:
    async with running(App(), Bounds()) as server:
        reader, writer = await open_to(server)
        await exchange(reader, writer)
        writer.write(b"POST / HTTP/1.1\r\n" + b"X-Long: " + b"y" * 200_000)
        assert await ended(reader, 5) < 3
        writer.close()


async def test_a_long_body_behind_another_request_is_not_taken_for_a_head() -> None:
    app = App()
    app.hold.clear()
    async with running(app, Bounds()) as server:
        reader, writer = await open_to(server)
        writer.write(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\na")
        writer.write(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 300000\r\n\r\n" + b"b" * 1000)
        await begun(app, 1)
        app.hold.set()
        await asyncio.wait_for(reader.readuntil(b"\r\n\r\na"), 5)
        writer.write(b"b" * 299_000)
        await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 5)
        assert await asyncio.wait_for(reader.readexactly(300_000), 5) == b"b" * 300_000
        writer.close()


async def test_drops_of_a_body_do_not_buy_time() -> None:
    async with running(App(), Bounds(request_seconds=0.4)) as server:
        reader, writer = await open_to(server)
        writer.write(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n")
        end = asyncio.create_task(ended(reader, 3))
        while not end.done():
            with contextlib.suppress(ConnectionError):
                writer.write(b".")
                await writer.drain()
            await asyncio.sleep(0.05)
        assert await end < 2
        writer.close()


async def test_a_slow_second_request_on_a_kept_connection_is_cut_off_too() -> None:
    async with running(App(), Bounds(request_seconds=0.3)) as server:
        reader, writer = await open_to(server)
        await exchange(reader, writer)
        await asyncio.sleep(0.5)  # idle time is not slowness
        await exchange(reader, writer)
        writer.write(b"POST / HT")
        assert await ended(reader, 3) < 2
        writer.close()


async def test_a_slow_answer_does_not_cut_off_the_client() -> None:
    app = App()
    app.hold.clear()
    async with running(app, Bounds(request_seconds=0.2)) as server:
        reader, writer = await open_to(server)
        task = asyncio.create_task(exchange(reader, writer))
        await asyncio.sleep(0.5)
        app.hold.set()
        assert (await task)[0] == 200
        writer.close()


async def slow_handshake() -> None:
    async with running(App(), Bounds(request_seconds=0.4), certificate().context) as server:
        reader, writer = await asyncio.open_connection(*server.address)
        writer.write(b"\x16\x03\x01")
        assert await ended(reader, 4) < 3
        writer.close()


async def test_a_handshake_that_is_not_finished_is_cut_off() -> None:
    await slow_handshake()


def test_the_same_under_uvloop() -> None:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(slow_handshake())


async def test_beyond_the_limit_the_oldest_idle_connection_gives_way() -> None:
    async with running(App(), Bounds(connections=2)) as server:
        first, second = await open_to(server), await open_to(server)
        for each in (second, first):  # so the second one is idle for longest
            await exchange(*each)
        third = await open_to(server)
        assert (await exchange(*third))[0] == 200
        assert await ended(second[0], 2) < 1
        assert (await exchange(*first))[0] == 200
        for _, writer in (first, second, third):
            writer.close()


async def test_a_connection_whose_request_is_in_work_does_not_give_way() -> None:
    app = App()
    app.hold.clear()
    async with running(app, Bounds(connections=2)) as server:
        busy = [await open_to(server), await open_to(server)]
        tasks = [asyncio.create_task(exchange(*each)) for each in busy]
        await begun(app, 2)
        late = await open_to(server)
        assert await ended(late[0], 2) < 1
        app.hold.set()
        assert [(await task)[0] for task in tasks] == [200, 200]
        after = await open_to(server)
        assert (await exchange(*after))[0] == 200
        for _, writer in (*busy, late, after):
            writer.close()


async def test_an_idle_connection_is_closed_in_the_end() -> None:
    async with running(App(), Bounds(keep_alive_seconds=1)) as server:
        reader, writer = await open_to(server)
        await exchange(reader, writer)
        assert 0.5 < await ended(reader, 4) < 3
        writer.close()


async def test_draining_ends_connections_with_their_answers_and_takes_new_ones() -> None:
    async with running(App(), Bounds()) as server:
        reader, writer = await open_to(server)
        _, head, _ = await exchange(reader, writer)
        assert b"connection: close" not in head
        server.drain()
        status, head, _ = await exchange(reader, writer)
        assert (status, b"connection: close" in head) == (200, True)
        assert await ended(reader, 2) < 1
        late = await open_to(server)
        assert (await exchange(*late))[0] == 200
        for each in (writer, late[1]):
            each.close()


async def test_requests_in_work_are_answered_before_the_end() -> None:
    app = App()
    app.hold.clear()
    server = LoopServer("test", app, bind("127.0.0.1", 0), Bounds())
    async with serving(server):
        reader, writer = await open_to(server)
        task = asyncio.create_task(exchange(reader, writer))
        await begun(app, 1)
        asyncio.get_running_loop().call_later(0.3, app.hold.set)
    assert (await task)[0] == 200
    writer.close()


def failed(tasks: list[asyncio.Task[None]]) -> bool:
    return any(task.done() for task in tasks)


async def test_no_request_fails_while_a_server_drains_under_load() -> None:
    """Clients keep connections as the API server does and open new ones when asked to close."""
    app = App()
    first = LoopServer("test", app, bind("127.0.0.1", 0), Bounds(), tls=certificate().context)
    second = LoopServer("test", app, bind("127.0.0.1", 0), Bounds(), tls=certificate().context)
    target = [first]
    stop = asyncio.Event()
    answered = {first: 0, second: 0}

    async def client() -> None:
        while not stop.is_set():
            server = target[0]
            reader, writer = await open_to(server, tls=True)
            while not stop.is_set():
                _, head, body = await exchange(reader, writer)
                assert body == b"hi"
                answered[server] += 1
                if b"connection: close" in head:
                    break
            writer.close()

    async with serving(second):
        async with serving(first):
            clients = [asyncio.create_task(client()) for _ in range(8)]
            await until(lambda: answered[first] > 50 or failed(clients))
            target[0] = second  # the endpoint is withdrawn
            first.drain()
            await until(lambda: not first.server_state.connections or failed(clients))
        await until(lambda: answered[second] > 50 or failed(clients))
        stop.set()
        await asyncio.gather(*clients)


def test_all_addresses_means_ipv4_too() -> None:
    listener = bind("::", 0)
    port = listener.getsockname()[1]
    listener.listen()
    with socket.create_connection(("127.0.0.1", port), timeout=2):
        pass
    listener.close()


def test_without_ipv6_all_addresses_are_those_of_ipv4(monkeypatch: pytest.MonkeyPatch) -> None:
    real = bind_module._bind

    def without(family: int, address: str, port: int) -> socket.socket:
        if family == socket.AF_INET6:
            raise OSError(97, "Address family not supported by protocol")
        return real(family, address, port)

    monkeypatch.setattr(bind_module, "_bind", without)
    listener = bind("::", 0)
    assert listener.family == socket.AF_INET
    listener.close()


def test_a_port_that_is_taken_is_named() -> None:
    with bind("127.0.0.1", 0) as taken:
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(OSError, match=f"cannot listen on 127.0.0.1 port {port}"):
            bind("127.0.0.1", port).listen()


# Health


async def get(server: LoopServer, path: str) -> tuple[int, str]:
    reader, writer = await open_to(server)
    writer.write(f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
    head, _, body = (await asyncio.wait_for(reader.read(), 5)).partition(b"\r\n\r\n")
    writer.close()
    return int(head.split()[1]), body.decode()


@pytest.mark.parametrize(
    ("vital", "minor", "ready"), [(None, None, True), ("broken", None, False), (None, "worn", True)]
)
async def test_readiness_weighs_its_checks(vital: str | None, minor: str | None, ready: bool) -> None:
    checks = [flag_check("a", lambda: vital), flag_check("b", lambda: minor, vital=False)]
    found = await report(checks)
    assert found.ready is ready
    for word in (vital, minor):
        assert word is None or word in found.text()


async def test_health_pages() -> None:
    checks = [Check("x", flag_check("x", lambda: "no").problem)]
    app = create_application(health_router(checks), metrics_router())
    server = LoopServer("h", app, bind("::", 0), Bounds())
    async with serving(server):
        assert await get(server, "/healthz") == (200, "ok\n")
        status, text = await get(server, "/readyz")
        assert (status, text) == (503, "[-] x: no\nnot ready\n")
        status, text = await get(server, "/metrics")
        assert status == 200
        assert "aim_adapters_server_connections" in text
        assert (await get(server, "/other"))[0] == 404


async def test_the_handshake_check_is_a_real_one() -> None:
    """Prevents: ready before TLS is served."""
    serving_certificate = ServingCertificate()
    server = LoopServer("t", App(), bind("127.0.0.1", 0), Bounds(), tls=serving_certificate.context)
    async with serving(server):
        shake = Handshake(*server.address)
        assert "TLS handshake on port" in (await shake.problem() or "")
        serving_certificate.replace(certificate()._pair)  # type: ignore[arg-type]
        assert await Handshake(*server.address).problem() is None
    assert "TLS handshake" in (await Handshake(*server.address).problem() or "")
