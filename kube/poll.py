"""Asks pods for what only they know: the progress of a Job, the models that a server lists. Leader only, bounded.

A pass says what it wants to know (`want`); answers that differ from the last one wake the pass again, and so does the
want of any. Namespaces take turns, and each has a part of the questions in flight: pods that never answer delay only
pods of their own namespace. They are asked less and less often.
"""

from __future__ import annotations

import asyncio
import heapq
import math
import random
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import aiohttp
import orjson

from kube.cache import Key

TICK = 0.2  # seconds; the finest rhythm of polling
TIMEOUT = 2.0  # seconds for one answer
MAX_BYTES = 1 << 20  # of an answer
MAX_IN_FLIGHT = 16
MAX_OF_A_NAMESPACE = 12  # of these
LONGEST_WAIT = 60.0  # seconds between two questions to a pod that does not answer
MUTE_AFTER = 3  # questions without a usable answer, from the first on


@dataclass(frozen=True, slots=True)
class Question:
    """One URL to ask regularly. `interval` in seconds.

    `since`: an answer that was asked for earlier does not count. A new one is asked for then, and wakes the pass.
    """

    url: str
    interval: float
    since: datetime | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """A usable answer, and when it was asked for."""

    said: Any
    asked: datetime


@dataclass(slots=True)
class _Target:
    key: Key
    question: Question
    due: float
    answer: Answer | None = None
    asked: int = 0
    missed: int = 0  # questions without any answer, since the last answer
    in_flight: bool = False  # or in the line for it

    def waits_for_newer(self) -> bool:
        """Whether the last answer does not count, because it was asked for too early."""
        since = self.question.since
        return since is not None and (self.answer is None or self.answer.asked < since)


_SILENCE: Any = object()
"""What a target that does not answer returns."""


class Poller:
    """Polls the pods that passes are interested in.

    Args: `parse` turns a JSON body into what passes read (None: no usable answer); `wake` asks for a pass over a key;
    `now` is the clock that answers are stamped with.
    """

    def __init__(
        self,
        parse: Callable[[Any], Any],
        wake: Callable[[Key], None],
        *,
        connector: Callable[[], aiohttp.BaseConnector] = aiohttp.TCPConnector,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        timeout: float = TIMEOUT,
    ) -> None:
        self._parse, self._wake, self._clock, self._timeout = parse, wake, clock, timeout
        self._now = now
        self._connector = connector
        self._session: aiohttp.ClientSession | None = None
        self._targets: dict[str, _Target] = {}
        self._by_key: dict[Key, frozenset[str]] = {}
        self._schedule: list[tuple[float, str]] = []
        self._lines: OrderedDict[str, deque[tuple[str, _Target]]] = OrderedDict()  # by namespace, the next one first
        self._in_flight: dict[str, int] = {}  # by namespace
        self._group: asyncio.TaskGroup | None = None
        self._asked = asyncio.Event()  # something is wanted: until then nothing ticks

    def want(self, key: Key, questions: Mapping[str, Question]) -> None:
        """Say all that a key wants to know from now on: target id (a pod's or Job's UID) → question."""
        before = self._by_key.get(key, frozenset())
        for gone in before - questions.keys():
            self._targets.pop(gone, None)
        if not questions:
            self._by_key.pop(key, None)
            return
        self._by_key[key] = frozenset(questions)
        self._asked.set()
        now = self._clock()
        for target_id, question in questions.items():
            target = self._targets.get(target_id)
            if target is None or target.question.url != question.url:
                self._targets[target_id] = _Target(key, question, now)
                heapq.heappush(self._schedule, (now, target_id))
            elif question != target.question:
                self._ask_otherwise(target_id, target, question)

    def _ask_otherwise(self, target_id: str, target: _Target, question: Question) -> None:
        """Change the rhythm of a target, and ask it as soon as an answer counts where a newer one is needed."""
        news, target.question = question.since != target.question.since, question
        self._schedule_next(target_id, target, news=news, latest=target.due)

    def _schedule_next(self, target_id: str, target: _Target, *, news: bool, latest: float = math.inf) -> None:
        """Ask after the interval; earlier where only a newer answer counts, unless that was tried before (`news`)."""
        wait, since = _wait(target), target.question.since
        if news and since is not None and target.waits_for_newer():
            wait = min(wait, max(0.0, (since - self._now()).total_seconds()))
        target.due = min(latest, self._clock() + wait)
        heapq.heappush(self._schedule, (target.due, target_id))

    def answer(self, target_id: str) -> Answer | None:
        """Return the last usable answer, None while there is none."""
        target = self._targets.get(target_id)
        return target.answer if target is not None else None

    def mute(self, target_id: str) -> bool:
        """Whether a target was asked a few times, and has not given a usable answer yet."""
        target = self._targets.get(target_id)
        return target is not None and target.answer is None and target.asked >= MUTE_AFTER

    async def run(self) -> None:
        """Poll until cancelled."""
        try:
            async with asyncio.TaskGroup() as group:
                self._group = group
                while True:
                    await self._tick()
        finally:
            self._group = None
            if self._session is not None:
                await self._session.close()
                self._session = None

    async def _tick(self) -> None:
        if not self._targets:
            self._asked.clear()
            await self._asked.wait()
        now = self._clock()
        while self._schedule and self._schedule[0][0] <= now:
            due, target_id = heapq.heappop(self._schedule)
            target = self._targets.get(target_id)
            if target is not None and target.due == due and not target.in_flight:
                target.in_flight = True
                self._lines.setdefault(target.key[0], deque()).append((target_id, target))
        self._ask_next()
        await asyncio.sleep(TICK)

    def _ask_next(self) -> None:
        """Begin questions, one of each namespace in turn, until as many are in flight as may be."""
        passed_over = 0
        while self._lines and passed_over < len(self._lines) and sum(self._in_flight.values()) < MAX_IN_FLIGHT:
            namespace, line = next(iter(self._lines.items()))
            self._lines.move_to_end(namespace)
            if self._in_flight.get(namespace, 0) >= MAX_OF_A_NAMESPACE:
                passed_over += 1
                continue
            passed_over = 0
            target_id, target = line.popleft()
            if not line:
                del self._lines[namespace]
            if self._targets.get(target_id) is target and self._group is not None:
                self._in_flight[namespace] = self._in_flight.get(namespace, 0) + 1
                self._group.create_task(self._ask(target_id, target))

    async def _ask(self, target_id: str, target: _Target) -> None:
        namespace, asked = target.key[0], self._now()
        try:
            said = await self._fetch(target.question.url)
        finally:
            self._in_flight[namespace] -= 1
            if not self._in_flight[namespace]:
                del self._in_flight[namespace]
        target.in_flight = False
        self._ask_next()
        if self._targets.get(target_id) is not target:
            return
        if said is _SILENCE:
            target.missed, said = target.missed + 1, None
        else:
            target.missed = 0
        target.asked += 1
        before, waited = target.answer, target.waits_for_newer()
        if said is not None:
            target.answer = Answer(said, asked)
        self._schedule_next(target_id, target, news=said is not None)
        if said is not None:
            if before is None or said != before.said or (waited and not target.waits_for_newer()):
                self._wake(target.key)
        elif target.asked == MUTE_AFTER and target.answer is None:
            self._wake(target.key)

    async def _fetch(self, url: str) -> Any:
        try:
            # The limit is for the whole answer: a server that lets it drip would hold a slot that others need. The body
            # is read as it is sent, without inflating it: a few compressed bytes may stand for very many.
            async with asyncio.timeout(self._timeout), self._http().get(url, allow_redirects=False) as response:
                if response.status != 200:
                    response.close()
                    return None
                body = b""
                async for chunk in response.content.iter_any():
                    body += chunk
                    if len(body) > MAX_BYTES:
                        response.close()
                        return None
            return self._parse(orjson.loads(body))
        except (aiohttp.ClientError, OSError, TimeoutError):
            return _SILENCE
        except ValueError:
            return None

    def _http(self) -> aiohttp.ClientSession:
        """Return the HTTP client. Pods are asked directly: no proxy, no redirect, no cookies, no credentials."""
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=self._connector(),
                cookie_jar=aiohttp.DummyCookieJar(),
                headers={"Accept-Encoding": "identity"},
                timeout=aiohttp.ClientTimeout(total=None),
                auto_decompress=False,
            )
        return self._session


def _wait(target: _Target) -> float:
    """Return the seconds to the next question: the interval, doubled for each one without an answer, up to a bound.

    A pod that was asked a few times only (it may be starting) is asked at the usual interval.
    """
    interval = target.question.interval
    doublings = min(max(target.missed - MUTE_AFTER, 0), 10)
    if not doublings:
        return interval
    longest = max(interval, LONGEST_WAIT)
    return float(min(interval * 2**doublings, longest) * random.uniform(0.9, 1.1))  # noqa: S311 - jitter
