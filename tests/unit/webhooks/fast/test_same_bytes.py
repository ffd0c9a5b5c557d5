"""With the fast path and without it the server answers the same bytes: over the corpus and over the fuzzer's bodies.

Compared are status, body and every header, but for dates and the random references of failed checks.
"""

from __future__ import annotations

import asyncio
import os
import random
import re
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import httpx
import pytest
import uvloop
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from api.view import Json
from app.application import at_listener
from app.bind import bind
from app.connections import Bounds
from app.server import LoopServer, serving
from rules.examples import surroundings
from rules.references import Ref
from rules.world import World
from rules.worlds import SnapshotWorld
from tests.unit.webhooks import corpus
from tests.unit.webhooks.fuzz import bodies
from tests.unit.webhooks.reviews import application
from tests.waiting import until
from webhooks.admission import Admission, AdmissionSettings, Refusal
from webhooks.fast.admission import FastAdmission, make_admission
from webhooks.fast.protocol import at_once

COUNT = int(os.environ.get("AIM_FUZZ_CASES", "2000"))
Sent = tuple[str, bytes]  # path and body
Answer = tuple[int, dict[str, str], bytes]
_REFERENCE = re.compile(rb"reference [0-9a-f]{8}")
_QUIET = AdmissionSettings(recent_refusals=100_000)


class Reader:
    """Reads the same objects as the caches show, so that refusals are confirmed."""

    def __init__(self, world: World) -> None:
        self._world = world

    async def read(self, ref: Ref) -> Json | None:
        await asyncio.sleep(0)
        return self._world.get(ref.kind, ref.namespace, ref.name)


def of_the_corpus() -> Iterable[Sent]:
    cases = corpus.cases(200)
    assert {case.allowed for case in cases} == {True, False}
    return [(path, case.body) for case in cases for path in ("/validate", "/mutate")]


SOURCES: dict[str, tuple[Callable[[], World], Callable[[], Iterable[Sent]]]] = {
    "corpus": (lambda: SnapshotWorld(corpus.world(0, 1, 0)), of_the_corpus),
    "fuzzer": (surroundings, lambda: bodies(COUNT // 4, seed=3)),
}


def seen(status: int, headers: Any, body: bytes) -> Answer:
    kept = {name: value for name, value in headers.items() if name != "date"}
    return status, kept, _REFERENCE.sub(b"reference ...", body)


def refusals(admission: Admission) -> list[Refusal]:
    return [replace(refusal, at=0.0) for refusal in admission.refusals]


@pytest.mark.parametrize(("world", "sent"), SOURCES.values(), ids=SOURCES)
async def test_in_one_process(world: Callable[[], World], sent: Callable[[], Iterable[Sent]]) -> None:
    shared = world()
    plain, fast = [make(shared, Reader(shared), _QUIET) for make in (Admission, make_admission)]
    begun = 0
    front = FastAdmission(fast, application(fast))
    async with in_process(application(plain)) as one, in_process(application(fast)) as other:
        for path, body in sent():
            expected = await post(one, path, body)
            assert await post(other, path, body) == expected, body[:2000]
            at_once_too = front.answer_now(path.encode(), bytearray(body))
            if isinstance(at_once_too, bytes):
                assert (200, _REFERENCE.sub(b"reference ...", at_once_too)) == (expected[0], expected[2]), body[:2000]
                judged = b'"details"' in at_once_too  # an object that cannot be parsed is not among the refusals
                fast.refusals.pop() if judged and b'"Failure"' in at_once_too and not _is_dry(body) else None
            else:
                begun += at_once_too is not None
    assert refusals(plain) == refusals(fast)
    assert begun > 0 or world is surroundings, "some refusals of the corpus rest on other objects"


def _is_dry(body: bytes) -> bool:
    return b'"dryRun":true' in body.replace(b" ", b"")


@asynccontextmanager
async def in_process(app: Any) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="https://admission") as client:
        yield client


async def post(client: httpx.AsyncClient, path: str, body: bytes) -> Answer:
    reply = await client.post(path, content=body)
    return seen(reply.status_code, reply.headers, reply.content)


@pytest.mark.parametrize(("world", "sent"), SOURCES.values(), ids=SOURCES)
def test_over_sockets(world: Callable[[], World], sent: Callable[[], Iterable[Sent]]) -> None:
    """On uvloop, as the product: its clock does not move within a turn, so that answers are gathered."""

    async def story() -> None:
        shared = world()
        plain, fast = [make(shared, Reader(shared), _QUIET) for make in (Admission, make_admission)]
        fast_app = FastAdmission(fast, served(fast))
        async with (
            listening(served(plain), HttpToolsProtocol) as one,
            listening(fast_app, at_once(fast_app)) as other,
        ):
            rng, waiting = random.Random(1), list(sent())
            while waiting:
                group, waiting = waiting[: (size := rng.randint(1, 4))], waiting[size:]
                pieces = cut(b"".join(request(*each) for each in group), rng)
                expected = await exchange(one, pieces, len(group))
                assert await exchange(other, pieces, len(group)) == expected, group
        assert sorted(map(repr, refusals(plain))) == sorted(map(repr, refusals(fast)))

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(story())


def served(admission: Admission) -> Any:
    return at_listener(application(admission), "admission")


@asynccontextmanager
async def listening(app: Any, http: type[HttpToolsProtocol]) -> AsyncIterator[LoopServer]:
    server = LoopServer("test", app, bind("127.0.0.1", 0), Bounds(), http=http)
    async with serving(server):
        yield server


def request(path: str, body: bytes) -> bytes:
    head = f"POST {path}?timeout=5s HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
    return head.encode() + b"Content-Length: %d\r\n\r\n" % len(body) + body


def cut(data: bytes, rng: random.Random) -> list[bytes]:
    """Return requests as they may arrive: at once, or in pieces that end anywhere."""
    places = sorted(rng.randrange(len(data)) for _ in range(rng.choice((0, 0, 0, 1, 3))))
    return [data[start:end] for start, end in zip([0, *places], [*places, len(data)], strict=True)]


async def exchange(server: LoopServer, pieces: list[bytes], count: int) -> list[Answer]:
    reader, writer = await asyncio.open_connection(*server.address)
    try:
        for piece in pieces:
            writer.write(piece)
            await asyncio.sleep(0)
        return [await asyncio.wait_for(read_answer(reader), 20) for _ in range(count)]
    finally:
        writer.close()


async def read_answer(reader: asyncio.StreamReader) -> Answer:
    head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
    headers = dict(line.lower().split(": ", 1) for line in head[1:] if line)
    return seen(int(head[0].split()[1]), headers, await reader.readexactly(int(headers["content-length"])))


OTHER_REQUESTS = {
    "no body": b"POST /validate HTTP/1.1\r\nHost: x\r\n\r\n",
    "GET": b"GET /validate HTTP/1.1\r\nHost: x\r\n\r\n",
    "another path": b"POST /nothing HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}",
    "an encoded path": b"POST /%76alidate HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}",
    "health": b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n",
    "readiness is not on this port": b"GET /readyz HTTP/1.1\r\nHost: x\r\n\r\n",
    "a slash too many": b"POST /validate/ HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}",
    "HTTP/1.0": b"POST /validate HTTP/1.0\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}",
    "the last request": b"POST /validate HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 2\r\n\r\n{}",
    "chunked": b"POST /validate HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
    "too large": b"POST /validate HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999\r\n\r\n{}",
    "not HTTP": b"hello\r\n\r\n",
}


@pytest.mark.parametrize("data", OTHER_REQUESTS.values(), ids=OTHER_REQUESTS)
async def test_other_requests(data: bytes) -> None:
    plain, fast = Admission(surroundings()), make_admission(surroundings())
    fast_app = FastAdmission(fast, served(fast))
    async with listening(served(plain), HttpToolsProtocol) as one, listening(fast_app, at_once(fast_app)) as other:
        assert await exchange(other, [data], 1) == await exchange(one, [data], 1)


@pytest.mark.parametrize("limit", [1, 3])
@pytest.mark.parametrize("make", [Admission, make_admission], ids=["plain", "fast"])
async def test_overload(make: Callable[..., Admission], limit: int) -> None:
    """The one limiter, maxInFlight, holds on both paths: more reviews in flight are answered with 503."""

    class Held(Reader):
        def __init__(self) -> None:
            super().__init__(surroundings())
            self.hold = asyncio.Event()

        async def read(self, ref: Ref) -> Json | None:
            await self.hold.wait()
            return await super().read(ref)

    cases = [case for case in corpus.cases(200) if case.fault == "not an adapter"][: limit + 2]
    world = SnapshotWorld(corpus.world(0, 1, 0))
    reader = Held()
    admission = make(world, reader, AdmissionSettings(max_in_flight=limit, confirm_seconds=5))
    app, http = served(admission), HttpToolsProtocol
    if make is make_admission:
        app = FastAdmission(admission, app)
        http = at_once(app)
    async with listening(app, http) as server:
        asked = [asyncio.create_task(exchange(server, [request("/validate", case.body)], 1)) for case in cases]
        await until(lambda: sum(task.done() for task in asked) == 2)
        done = [task for task in asked if task.done()]
        turned_away = [task.result()[0] for task in done]
        assert [(status, headers["retry-after"]) for status, headers, _ in turned_away] == [(503, "1")] * 2
        assert all(b"too many reviews at once, try again" in body for _, _, body in turned_away)
        reader.hold.set()
        assert sorted([(await task)[0][0] for task in asked]) == [200] * limit + [503] * 2
    assert admission.in_flight == 0
