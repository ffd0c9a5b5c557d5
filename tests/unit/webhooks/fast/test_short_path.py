"""The short path over real sockets: it answers as the usual path does, in order, and takes nothing unusual."""

from __future__ import annotations

import asyncio
import gc
import socket
import ssl
import struct
import weakref
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from starlette.types import Receive, Scope, Send

from app.bind import bind
from app.connections import Bounds
from app.protocol import BoundedProtocol
from app.server import LoopServer, serving
from tests.unit.app.test_app_servers import App, certificate, ended, exchange, open_to
from webhooks.fast.protocol import at_once, direct_of


@asynccontextmanager
async def running(app: AtOnceApp, bounds: Bounds, tls: ssl.SSLContext | None = None) -> AsyncIterator[LoopServer]:
    server = LoopServer("test", app, bind("127.0.0.1", 0), bounds, tls=tls, http=at_once(app))
    async with serving(server):
        yield server


class AtOnceApp(App):
    """Answers what is here as a whole at once, unless the body says to wait: then `begun` is what was left."""

    def __init__(self) -> None:
        super().__init__()
        self.at_once: list[bytes] = []
        self.left: list[object] = []

    def answer_now(self, target: bytes, body: bytearray) -> bytes | object | None:
        assert target == b"/"
        if body == b"later":
            return ("left", bytes(body))
        self.at_once.append(bytes(body))
        return bytes(body)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        direct = direct_of(scope)
        self.left.append(direct.begun if direct is not None else None)
        await super().__call__(scope, receive, send)


class FinishingApp(AtOnceApp):
    """Finishes on the short path what it began at once."""

    def __init__(self) -> None:
        super().__init__()
        self.finished = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        direct = direct_of(scope)
        if direct is not None and direct.answer_json(b"finished"):
            self.finished += 1
            assert not direct.answer_json(b"twice")
        else:
            await super().__call__(scope, receive, send)


def post(body: bytes, more: bytes = b"") -> bytes:
    return b"POST / HTTP/1.1\r\nHost: x\r\n%bContent-Length: %d\r\n\r\n" % (more, len(body)) + body


async def answers(reader: asyncio.StreamReader, count: int) -> list[bytes]:
    found = []
    for _ in range(count):
        head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 5)
        length = int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0])
        found.append(await asyncio.wait_for(reader.readexactly(length), 5))
    return found


async def test_what_is_here_as_a_whole_is_answered_at_once() -> None:
    app = AtOnceApp()
    async with running(app, Bounds(), certificate().context) as server:
        reader, writer = await open_to(server, tls=True)
        for body in (b"a", b"", b"x" * 9_000):
            status, head, echoed = await exchange(reader, writer, body)
            assert (status, echoed) == (200, body)
            assert b"content-type: application/json" in head
            assert b"\r\ndate: " in head
        assert (app.at_once, app.begun, server.answered) == ([b"a", b"", b"x" * 9_000], 0, 3)
        server.drain()  # the last answer says that it is the last: that is the usual way
        _, head, _ = await exchange(reader, writer)
        assert (len(app.at_once), app.left, b"connection: close" in head) == (3, [None], True)
        writer.close()


async def test_what_was_begun_is_finished_on_the_short_path() -> None:
    app = FinishingApp()
    async with running(app, Bounds(), certificate().context) as server:
        reader, writer = await open_to(server, tls=True)
        for body, reply in ((b"later", b"finished"), (b"now", b"now"), (b"later", b"finished")):
            status, head, read = await exchange(reader, writer, body)
            assert (status, read) == (200, reply)
            assert b"content-type: application/json" in head
            assert b"\r\ndate: " in head
        writer.write(post(b"later") + post(b"later") + post(b"1"))
        assert await answers(reader, 3) == [b"finished", b"later", b"1"]  # two queue behind the first
        assert (app.finished, app.begun) == (3, 2)
        server.drain()  # the last answer names the end of the connection: through ASGI
        _, head, _ = await exchange(reader, writer, b"later")
        assert (app.finished, app.begun, b"connection: close" in head) == (3, 3, True)
        writer.close()


async def test_requests_in_one_breath_are_answered_in_order() -> None:
    app = AtOnceApp()
    async with running(app, Bounds(request_seconds=0.4)) as server:
        reader, writer = await open_to(server)
        writer.write(post(b"1") + post(b"later") + post(b"2") + post(b"3")[:-1])
        assert await answers(reader, 3) == [b"1", b"later", b"2"]
        writer.write(b"3")
        assert await answers(reader, 1) == [b"3"]
        assert app.left[0] == ("left", b"later")
        writer.write(post(b"4") + b"POST / HT")  # the rest never comes
        assert await answers(reader, 1) == [b"4"]
        assert await ended(reader, 3) < 2
        writer.close()


@pytest.mark.parametrize("body", [b"now", b"later"])
async def test_a_closed_connection_leaves_nothing_to_the_garbage_collector(
    body: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What OpenSSL keeps for a connection is large, and a collection of the oldest generation is rare."""
    made: list[weakref.ref[object]] = []
    plain = BoundedProtocol.connection_made

    def remembered(self: BoundedProtocol, transport: asyncio.BaseTransport) -> None:
        made.append(weakref.ref(self))
        plain(self, transport)

    monkeypatch.setattr(BoundedProtocol, "connection_made", remembered)
    async with running(AtOnceApp(), Bounds(), certificate().context) as server:
        gc.collect()
        gc.disable()
        try:
            for _ in range(3):
                reader, writer = await open_to(server, tls=True)
                await exchange(reader, writer, body)
                raw = writer.get_extra_info("socket")
                linger = struct.pack("ii", 1, 0)  # an end by RST, as of a client that is killed
                raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
                writer.transport.abort()
            async with asyncio.timeout(5):
                while server.server_state.connections:  # noqa: ASYNC110 - the server sets no event
                    await asyncio.sleep(0.01)
            await asyncio.sleep(0.1)
            assert [ref() for ref in made] == [None] * 3
        finally:
            gc.enable()


@pytest.mark.parametrize("more", [b"Expect: 100-continue\r\n", b"Connection: close\r\n"])
async def test_what_is_out_of_the_ordinary_goes_the_usual_way(more: bytes) -> None:
    app = AtOnceApp()
    async with running(app, Bounds()) as server:
        reader, writer = await open_to(server)
        writer.write(post(b"hi", more))
        read = await asyncio.wait_for(reader.readuntil(b"hi"), 5)
        assert read.endswith(b"\r\n\r\nhi")
        assert (app.at_once, app.left) == ([], [None])
        writer.close()


async def test_a_body_in_pieces_goes_the_usual_way_and_may_be_large() -> None:
    app = AtOnceApp()
    async with running(app, Bounds()) as server:
        reader, writer = await open_to(server)
        body = b"x" * 500_000
        for _ in range(2):
            writer.write(post(body)[:100])
            await asyncio.sleep(0.05)
            writer.write(post(body)[100:])
            assert await answers(reader, 1) == [body]
            assert (await exchange(reader, writer, b"short"))[2] == b"short"
        assert (app.at_once, app.begun) == ([b"short", b"short"], 2)
        writer.close()


async def test_slowness_after_an_answer_at_once_is_cut_off_and_idleness_in_the_end() -> None:
    app = AtOnceApp()
    async with running(app, Bounds(request_seconds=0.3, keep_alive_seconds=1)) as server:
        for rest in (b"POST / HT", b"\r\n", post(b"12")[:-1]):
            reader, writer = await open_to(server)
            await exchange(reader, writer)
            writer.write(rest)
            assert 0.2 < await ended(reader, 3) < 0.95  # sooner than an idle one
            writer.close()
        reader, writer = await open_to(server)
        await exchange(reader, writer)
        assert 0.8 < await ended(reader, 4) < 3
        writer.close()
    assert app.at_once == [b"hi"] * 4


async def test_garbage_behind_a_head_is_a_400() -> None:
    app = AtOnceApp()
    async with running(app, Bounds()) as server:
        reader, writer = await open_to(server)
        writer.write(b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nZZZ\r\n")
        assert (await asyncio.wait_for(reader.read(), 5)).startswith(b"HTTP/1.1 400 ")
        assert app.left == []
        writer.close()
