"""Whatever clients hold open, a request is answered, and what they held is free again."""

from __future__ import annotations

import asyncio
import errno
import gc
import os
import resource
import socket
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import pytest
import uvloop
from prometheus_client import REGISTRY

from app import connections
from app.connections import Acceptor, Bounds, Connections
from app.server import LoopServer
from tests.unit.app.test_app_servers import App, certificate, ended, exchange, open_to, running


def refused(reason: str) -> float:
    return REGISTRY.get_sample_value("aim_adapters_server_refused_total", {"server": "test", "reason": reason}) or 0


def open_now() -> float | None:
    return REGISTRY.get_sample_value("aim_adapters_server_connections", {"server": "test"})


@contextmanager
def many_files(count: int) -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    if before[1] < count:
        pytest.skip(f"this machine allows {before[1]} open files")
    resource.setrlimit(resource.RLIMIT_NOFILE, (count, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


@asynccontextmanager
async def silent(server: LoopServer, count: int, first: bytes = b"") -> AsyncIterator[list[socket.socket]]:
    """Open connections that send these bytes, and nothing more."""
    loop = asyncio.get_running_loop()
    opened: list[socket.socket] = []
    try:
        for number in range(count):
            sock = socket.socket()
            sock.setblocking(False)
            opened.append(sock)
            await loop.sock_connect(sock, server.address)
            if first:
                await loop.sock_sendall(sock, first)
            if number % 50 == 0:
                await asyncio.sleep(0)
        await asyncio.sleep(0.1)
        yield opened
    finally:
        for sock in opened:
            sock.close()
        await asyncio.sleep(0.1)


def acceptor_of(server: LoopServer) -> Acceptor:
    (found,) = server.servers
    assert isinstance(found, Acceptor)
    return found


def resident_mib() -> float:
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


@pytest.mark.parametrize("first", [b"", b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n", b"GET / HT", b"\x16\x03\x01"])
async def test_a_probe_is_answered_beside_many_idle_connections(first: bytes) -> None:
    bounds = Bounds(connections=128, per_address=64, request_seconds=5)
    async with running(App(), bounds) as server, silent(server, 200, first):
        slowest = 0.0
        for _ in range(20):
            begun = time.monotonic()
            reader, writer = await open_to(server)
            assert (await exchange(reader, writer))[0] == 200
            slowest = max(slowest, time.monotonic() - begun)
            writer.close()
        assert slowest < 1
        assert (open_now() or 0) <= 64


async def test_connections_of_one_address_do_not_take_the_room_of_others() -> None:
    async with running(App(), Bounds(connections=8, per_address=4)) as server:
        other = await asyncio.open_connection(*server.address, local_addr=("127.0.0.2", 0))
        await exchange(*other)
        before = refused("address")
        async with silent(server, 30):
            assert (await exchange(*other))[0] == 200
        assert refused("address") - before == 26
        other[1].close()


async def _bare_connections_are_cheap() -> tuple[float, float]:
    """Return the memory that 3,000 connections without a handshake take while they are open, and afterwards, in MiB."""
    async with running(App(), Bounds(connections=1024, per_address=512), certificate().context) as server:
        reader, writer = await open_to(server, tls=True)
        await exchange(reader, writer)
        gc.collect()
        before = resident_mib()
        async with silent(server, 3_000):
            during = resident_mib() - before
            assert (open_now() or 0) <= 512
            late = await open_to(server, tls=True)
            assert (await exchange(*late))[0] == 200
            late[1].close()
        for _ in range(50):
            if open_now() == 0:
                break
            await asyncio.sleep(0.1)
        writer.close()
        gc.collect()
        return during, resident_mib() - before


def test_connections_without_a_handshake_cost_little_and_leave_nothing() -> None:
    with many_files(8_192), asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_bare_connections_are_cheap())  # what is allocated once
        during, after = runner.run(_bare_connections_are_cheap())
    assert during < 20
    assert after < 20


@pytest.mark.parametrize("factory", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_handshakes_that_end_half_way_leave_nothing(factory: Any) -> None:
    async def scenario() -> None:
        bounds = Bounds(connections=64, request_seconds=0.5)
        async with running(App(), bounds, certificate().context) as server:
            slow = refused("slow")
            hello = b"\x16\x03\x01\x00\xa5\x01\x00\x00\xa1\x03\x03"
            async with silent(server, 20, hello):
                reader, writer = await open_to(server, tls=True)
                assert (await exchange(reader, writer))[0] == 200
                await asyncio.sleep(0.8)
            assert refused("slow") - slow == 20
            async with silent(server, 20, b"no TLS at all\r\n\r\n"):
                await asyncio.sleep(0.2)
            assert open_now() == 1
            writer.close()

    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(scenario())


async def test_a_connection_that_sends_nothing_is_closed_in_time() -> None:
    async with running(App(), Bounds(request_seconds=0.3)) as server:
        before = refused("slow")
        reader, writer = await open_to(server)
        assert 0.2 < await ended(reader, 3) < 2
        assert refused("slow") - before == 1
        writer.close()


async def test_without_file_descriptors_idle_connections_are_closed_and_accepting_continues(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with running(App(), Bounds()) as server:
        first = await open_to(server)
        await exchange(*first)
        acceptor = acceptor_of(server)
        listener = acceptor._listener
        tries = iter([OSError(errno.EMFILE, "Too many open files")])

        class Failing:
            def accept(self) -> Any:
                for error in tries:
                    raise error
                return listener.accept()

            def __getattr__(self, name: str) -> Any:
                return getattr(listener, name)

        monkeypatch.setattr(acceptor, "_listener", Failing())
        before = refused("files")
        late = await open_to(server)
        assert (await exchange(*late))[0] == 200
        assert refused("files") - before == 1
        assert await ended(first[0], 2) < 1
        first[1].close()
        late[1].close()


async def test_connections_that_come_and_go_leave_nothing() -> None:
    async with running(App(), Bounds(connections=16)) as server:
        for number in range(300):
            _, writer = await open_to(server)
            if number % 3:
                writer.write(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\nhi"[: 10 * (number % 6)])
            writer.transport.abort()
            if number % 50 == 0:
                await asyncio.sleep(0.02)
        await asyncio.sleep(0.2)
        acceptor = acceptor_of(server)
        assert len(acceptor.connections) == 0
        assert not acceptor.connections._by_address
        assert not acceptor._silent
        assert not acceptor._tasks


def test_the_choice_of_what_gives_way() -> None:
    closed: list[str] = []
    known = Connections("test", Bounds(connections=3, per_address=2))

    def admit(name: str, address: str) -> Any:
        return known.admit(address, lambda: closed.append(name))

    first, second = admit("first", "a"), admit("second", "a")
    assert admit("third", "a")
    assert closed == ["first"], "the oldest of the address"
    first.ended()
    second.busy()
    other = admit("other", "b")
    assert admit("fourth", "a")
    assert closed == ["first", "third"], "one in work stays"
    assert admit("fifth", "c")
    assert closed == ["first", "third", "other"], "the oldest of all"
    other.idle()
    other.ended()
    assert len(known) == 3
    assert connections.REFUSED
