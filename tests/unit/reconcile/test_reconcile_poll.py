"""Asking servers what they list: bounded whatever they answer, and no more often than was said."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import httpx
import pytest

from kube.poll import MAX_BYTES, MAX_IN_FLIGHT, MUTE_AFTER, TICK, Poller, Question
from reconcile.controllers import parse_models
from tests.waiting import in_background, until

KEY = ("team", "chat")
LISTED = b'{"data": [{"id": "base"}, {"id": "medical"}]}'
Answers = Callable[[httpx.Request], httpx.Response]


def sent(body: bytes, **headers: str) -> httpx.Response:
    """A good answer, as it comes over a network: nothing of it is here yet."""
    return httpx.Response(200, headers=headers, stream=httpx.ByteStream(body))


class Scene:
    """A poller over answers that a test gives, with a clock that stands still unless it is moved."""

    def __init__(self, answers: Answers, timeout: float = 2.0) -> None:
        self.asked: list[str] = []
        self.woken: list[tuple[str, str]] = []
        self.now = 0.0

        async def handle(request: httpx.Request) -> httpx.Response:
            self.asked.append(request.url.host)
            return answers(request)

        http = httpx.AsyncClient(transport=httpx.MockTransport(handle))
        self.poller = Poller(parse_models, self.woken.append, http=http, clock=lambda: self.now, timeout=timeout)

    def want(self, *pods: str, interval: float = 30.0) -> None:
        self.poller.want(KEY, {pod: Question(f"http://{pod}/v1/models", interval) for pod in pods})

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        async with in_background(self.poller.run()) as (task,):
            yield
            assert not task.done(), "the poller has ended"


async def ticks() -> None:
    await asyncio.sleep(2.5 * TICK)


async def test_news_wakes_the_pass_and_the_same_again_does_not() -> None:
    body = LISTED
    scene = Scene(lambda _: sent(body))
    scene.want("pod-1")
    async with scene.running():
        await until(lambda: scene.woken == [KEY])
        assert scene.poller.answer("pod-1") == {"base", "medical"}
        scene.now += 30
        await until(lambda: len(scene.asked) == 2)
        await ticks()
        assert scene.woken == [KEY]
        body = b'{"data": [{"id": "base"}]}'
        scene.now += 30
        await until(lambda: scene.woken == [KEY, KEY])
    assert scene.poller.answer("pod-1") == {"base"}


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
        scene.want()  # nobody wants to know any more
        scene.now += 100
        await ticks()
    assert len(scene.asked) == 2
    assert scene.poller.answer("pod-1") is None


async def test_a_server_that_never_gives_a_list_is_told_of_once() -> None:
    body = b"[]"
    scene = Scene(lambda _: sent(body))
    scene.want("pod-1", interval=1)
    async with scene.running():
        for number in range(1, MUTE_AFTER):
            await until(lambda number=number: len(scene.asked) == number)  # type: ignore[misc]
            assert not scene.poller.mute("pod-1")
            scene.now += 1
        await until(lambda: scene.woken == [KEY])
        assert scene.poller.mute("pod-1")
        scene.now += 1
        await until(lambda: len(scene.asked) == MUTE_AFTER + 1)
        await ticks()
        assert scene.woken == [KEY]
        body = LISTED
        scene.now += 1
        await until(lambda: scene.woken == [KEY, KEY])
    assert not scene.poller.mute("pod-1")


class Drip(httpx.AsyncByteStream):
    """A body that never ends, a little at a time."""

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while True:
            await asyncio.sleep(0.02)
            yield b" "


BAD: dict[str, Answers] = {
    "an error": lambda _: httpx.Response(500),
    "a redirect": lambda _: httpx.Response(302, headers={"Location": "http://elsewhere/"}),
    "no JSON": lambda _: sent(b"<html>"),
    "JSON of another shape": lambda _: sent(b'{"data": 7}'),
    "more than any list needs": lambda _: sent(LISTED + b" " * MAX_BYTES),
    "a little that is very much": lambda _: sent(
        gzip.compress(LISTED + b" " * 8 * MAX_BYTES), **{"Content-Encoding": "gzip"}
    ),
    "an answer that drips": lambda _: httpx.Response(200, stream=Drip()),
}


@pytest.mark.parametrize("answers", BAD.values(), ids=BAD)
async def test_what_is_no_answer_wakes_nobody_and_holds_nobody_up(answers: Answers) -> None:
    """As many bad servers as may be asked at once, and a good one behind them."""
    scene = Scene(
        lambda request: sent(LISTED) if request.url.host == "good" else answers(request),
        timeout=0.2,
    )
    scene.want(*(f"bad-{number}" for number in range(MAX_IN_FLIGHT)), "good")
    async with scene.running():
        await until(lambda: scene.woken == [KEY], 5)
        await until(lambda: len(scene.asked) == MAX_IN_FLIGHT + 1, 5)
    assert scene.poller.answer("good") == {"base", "medical"}
    assert {scene.poller.answer(f"bad-{number}") for number in range(MAX_IN_FLIGHT)} == {None}
