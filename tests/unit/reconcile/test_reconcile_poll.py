"""Asking servers what they list: bounded whatever they answer, and no more often than asked for."""

from __future__ import annotations

import asyncio
import gzip
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta

import aiohttp
import pytest
from aiohttp import web
from aiohttp.abc import AbstractResolver, ResolveResult

from kube import poll
from kube.poll import MAX_BYTES, MAX_IN_FLIGHT, MAX_OF_A_NAMESPACE, MUTE_AFTER, TICK, Poller, Question
from reconcile.controllers import parse_models
from tests.waiting import in_background, until

KEY = ("team", "chat")
LISTED = b'{"data": [{"id": "base"}, {"id": "medical"}]}'
Answers = Callable[[web.Request], web.StreamResponse | Awaitable[web.StreamResponse]]


def sent(body: bytes, **headers: str) -> web.Response:
    """A good answer."""
    return web.Response(body=body, headers=headers)


class ToLoopback(AbstractResolver):
    """Leads each name to one port on loopback."""

    def __init__(self, port: int) -> None:
        self._port = port

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        return [
            ResolveResult(
                hostname=host,
                host="127.0.0.1",
                port=self._port,
                family=socket.AF_INET,
                proto=0,
                flags=socket.AI_NUMERICHOST,
            )
        ]

    async def close(self) -> None:
        pass


class Scene:
    """A poller over answers that a test gives, with a clock that moves only when a test moves it."""

    def __init__(self, answers: Answers, timeout: float = 2.0) -> None:
        self.asked: list[str] = []
        self.woken: list[tuple[str, str]] = []
        self.now = 0.0
        self._answers = answers
        self._port = 0
        self.poller = Poller(
            parse_models,
            self.woken.append,
            connector=lambda: aiohttp.TCPConnector(resolver=ToLoopback(self._port)),
            clock=lambda: self.now,
            now=lambda: self.at(self.now),
            timeout=timeout,
        )

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        self.asked.append(request.host)
        answer = self._answers(request)
        return answer if isinstance(answer, web.StreamResponse) else await answer

    @staticmethod
    def at(seconds: float) -> datetime:
        return datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds)

    def want(self, *pods: str, interval: float = 30.0, since: float | None = None) -> None:
        newer = self.at(since) if since is not None else None
        self.poller.want(KEY, {pod: Question(f"http://{pod}/v1/models", interval, newer) for pod in pods})

    def taken(self, pod: str) -> int:
        """How many questions to a pod have ended."""
        return self.poller._targets[pod].asked

    def said(self, pod: str) -> object:
        answer = self.poller.answer(pod)
        return answer.said if answer is not None else None

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        app = web.Application()
        app.router.add_get("/v1/models", self._handle)
        runner = web.AppRunner(app, shutdown_timeout=0)
        await runner.setup()
        try:
            site = web.TCPSite(runner, "127.0.0.1", 0)
            await site.start()
            self._port = runner.addresses[0][1]
            async with in_background(self.poller.run()) as (task,):
                yield
                assert not task.done(), "the poller has ended"
        finally:
            await runner.cleanup()


async def ticks() -> None:
    await asyncio.sleep(2.5 * TICK)


async def test_news_wakes_the_pass_and_the_same_again_does_not() -> None:
    body = LISTED
    scene = Scene(lambda _: sent(body))
    scene.want("pod-1")
    async with scene.running():
        await until(lambda: scene.woken == [KEY])
        assert scene.said("pod-1") == {"base", "medical"}
        scene.now += 30
        await until(lambda: scene.taken("pod-1") == 2)
        await ticks()
        assert scene.woken == [KEY]
        body = b'{"data": [{"id": "base"}]}'
        scene.now += 30
        await until(lambda: scene.woken == [KEY, KEY])
    assert scene.said("pod-1") == {"base"}


async def test_a_server_is_asked_when_its_time_has_come_or_news_is_due() -> None:
    scene = Scene(lambda _: sent(LISTED))
    scene.want("pod-1", interval=30)
    async with scene.running():
        await until(lambda: bool(scene.woken))
        scene.now += 29
        scene.want("pod-1", interval=30)  # another pass asks for the same
        await ticks()
        assert len(scene.asked) == 1
        scene.want("pod-1", interval=1)  # something changed
        scene.now += 1
        await until(lambda: len(scene.asked) == 2)
        scene.want()  # no pass wants to know any more
        scene.now += 100
        await ticks()
    assert len(scene.asked) == 2
    assert scene.poller.answer("pod-1") is None


async def test_an_answer_that_is_too_old_is_asked_for_again_and_the_newer_one_wakes_the_pass() -> None:
    scene = Scene(lambda _: sent(LISTED))
    scene.want("pod-1", interval=30)
    async with scene.running():
        await until(lambda: scene.woken == [KEY])
        scene.now += 5
        scene.want("pod-1", interval=30, since=6)  # an adapter left the disk in this second
        await ticks()
        assert scene.taken("pod-1") == 1, "an answer counts only from the next second on"
        scene.now += 1
        await until(lambda: scene.woken == [KEY, KEY])
        answer = scene.poller.answer("pod-1")
        assert answer is not None
        assert (answer.said, answer.asked) == ({"base", "medical"}, scene.at(6))
        scene.want("pod-1", interval=30, since=6)
        scene.now += 29
        await ticks()
        assert scene.taken("pod-1") == 2


async def test_an_answer_that_was_on_its_way_does_not_count_as_newer() -> None:
    waits, go = asyncio.Event(), asyncio.Event()

    async def answers(_: web.Request) -> web.StreamResponse:
        waits.set()
        await go.wait()
        return sent(LISTED)

    scene = Scene(answers)
    scene.want("pod-1", interval=30)
    async with scene.running():
        await waits.wait()
        scene.now += 3
        scene.want("pod-1", interval=30, since=2)
        go.set()
        await until(lambda: scene.taken("pod-1") == 2)
        assert scene.woken == [KEY, KEY]
        answer = scene.poller.answer("pod-1")
        assert answer is not None
        assert answer.asked == scene.at(3)


async def test_a_silent_server_is_not_asked_more_often_because_news_is_needed() -> None:
    scene = Scene(lambda _: web.Response(status=503))
    scene.want("pod-1", interval=30, since=0)
    async with scene.running():
        await until(lambda: scene.taken("pod-1") == 1)
        for _ in range(3):
            scene.want("pod-1", interval=30, since=0)
            await ticks()
        assert scene.taken("pod-1") == 1


async def test_a_server_that_never_gives_a_list_is_reported_once() -> None:
    body = b"[]"
    scene = Scene(lambda _: sent(body))
    scene.want("pod-1", interval=1)
    async with scene.running():
        for number in range(1, MUTE_AFTER):
            await until(lambda number=number: scene.taken("pod-1") == number)  # type: ignore[misc]
            assert not scene.poller.mute("pod-1")
            scene.now += 1
        await until(lambda: scene.woken == [KEY])
        assert scene.poller.mute("pod-1")
        scene.now += 1
        await until(lambda: scene.taken("pod-1") == MUTE_AFTER + 1)
        await ticks()
        assert scene.woken == [KEY]
        body = LISTED
        scene.now += 1
        await until(lambda: scene.woken == [KEY, KEY])
    assert not scene.poller.mute("pod-1")


async def drip(request: web.Request) -> web.StreamResponse:
    """Send a body that never ends, a little at a time."""
    answer = web.StreamResponse()
    await answer.prepare(request)
    for _ in range(1000):
        await asyncio.sleep(0.02)
        await answer.write(b" ")
    return answer


SMALL_AND_LARGE = gzip.compress(LISTED + b" " * 8 * MAX_BYTES)
BAD: dict[str, Answers] = {
    "an error": lambda _: web.Response(status=500),
    "a redirect": lambda _: web.Response(status=302, headers={"Location": "http://elsewhere/"}),
    "no JSON": lambda _: sent(b"<html>"),
    "JSON of another shape": lambda _: sent(b'{"data": 7}'),
    "more than any list needs": lambda _: sent(LISTED + b" " * MAX_BYTES),
    "a little that is very much": lambda _: sent(SMALL_AND_LARGE, **{"Content-Encoding": "gzip"}),
    "an answer that drips": drip,
}


@pytest.mark.parametrize("answers", BAD.values(), ids=BAD)
async def test_a_bad_answer_wakes_no_one_and_blocks_no_one(answers: Answers) -> None:
    """As many bad servers as may be asked at once, and a good one behind them."""
    scene = Scene(
        lambda request: sent(LISTED) if request.host == "good" else answers(request),
        timeout=0.2,
    )
    scene.want(*(f"bad-{number}" for number in range(MAX_IN_FLIGHT)), "good")
    async with scene.running():
        await until(lambda: scene.woken == [KEY], 5)
        await until(lambda: len(scene.asked) == MAX_IN_FLIGHT + 1, 5)
    assert scene.said("good") == {"base", "medical"}
    assert {scene.poller.answer(f"bad-{number}") for number in range(MAX_IN_FLIGHT)} == {None}


async def test_pods_that_never_answer_delay_only_their_own_namespace() -> None:
    silent = asyncio.Event()

    async def answers(request: web.Request) -> web.StreamResponse:
        if request.host.startswith("mute"):
            await silent.wait()
        return sent(LISTED)

    scene = Scene(answers, timeout=20.0)
    mute = {f"mute-{number}": Question(f"http://mute-{number}/v1/models", 5.0) for number in range(200)}
    scene.poller.want(("attacker", "chat"), mute)
    async with scene.running():
        await until(lambda: len(scene.asked) == MAX_OF_A_NAMESPACE)
        scene.want(*(f"pod-{number}" for number in range(20)))
        begun = time.monotonic()
        await until(lambda: len([host for host in scene.asked if host.startswith("pod")]) == 20)
        assert time.monotonic() - begun < 2, "no time-out of a mute pod was waited for"
        assert len(scene.asked) == MAX_OF_A_NAMESPACE + 20
        silent.set()


async def test_namespaces_take_turns() -> None:
    gate = asyncio.Event()

    async def answers(request: web.Request) -> web.StreamResponse:
        await gate.wait()
        return sent(LISTED)

    scene = Scene(answers, timeout=20.0)
    for team in ("a", "b"):
        names = [f"{team}{number}" for number in range(100)]
        scene.poller.want((team, "chat"), {name: Question(f"http://{name}/v1/models", 500.0) for name in names})
    async with scene.running():
        await until(lambda: len(scene.asked) == MAX_IN_FLIGHT)
        scene.poller.want(("late", "chat"), {"late": Question("http://late/v1/models", 500.0)})
        await ticks()
        gate.set()
        await until(lambda: "late" in scene.asked)
        assert scene.asked.index("late") <= MAX_IN_FLIGHT + 3
        await until(lambda: len(scene.asked) == 201)
        assert not scene.poller._in_flight
        assert not scene.poller._lines


async def test_a_pod_that_does_not_answer_is_asked_less_and_less_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(poll, "TICK", 0.005)
    answering = asyncio.Event()

    async def answers(request: web.Request) -> web.StreamResponse:
        await answering.wait()
        return sent(LISTED)

    scene = Scene(answers, timeout=0.01)
    scene.want("pod-1", interval=5)
    async with scene.running():
        while scene.now < 600:
            scene.now += 5
            await asyncio.sleep(0.03)
        asked = len(scene.asked)
        assert MUTE_AFTER + 5 < asked < 30, "every 5 s it would be 120"
        assert scene.poller.mute("pod-1")
        answering.set()
        scene.now = 1100
        await until(lambda: scene.said("pod-1") == {"base", "medical"})
        asked = len(scene.asked)
        scene.now += 5
        await until(lambda: len(scene.asked) == asked + 1)
