"""Requests that arrive together are answered together.

A write wakes the caller, and waking an idle core costs as much as a fifth of a review. Also, code that runs for one
request after another is still in the core's caches for the second. So when several requests arrive in one turn of the
event loop, all are judged first, and then all answers are written. A request that is alone in its turn never waits.
"""

from __future__ import annotations

import asyncio
from typing import Protocol

MOST_TOGETHER = 32
"""The most requests that wait for each other: the first of them for the time of this many reviews, 2 to 4 ms."""


class Asked(Protocol):
    """A connection with a request that may be answered at once."""

    transport: asyncio.Transport

    def answer(self) -> bytes | None:
        """Return the whole answer; None: nothing to write now. Called once for each request."""
        ...


class Outbox:
    """The requests of one server that arrived in this turn of its loop and are not answered yet."""

    def __init__(self) -> None:
        """Start empty."""
        self._turn = -1.0
        self._waiting: list[Asked] = []

    def ask(self, loop: asyncio.AbstractEventLoop, asked: Asked) -> None:
        """Answer the first request of a turn at once, and the others together.

        A turn lasts while the loop's clock shows the same time (that of uvloop does for all that arrived at once).
        """
        now = loop.time()
        if now != self._turn and not self._waiting:
            self._turn = now
            _write(asked, asked.answer())
            return
        self._waiting.append(asked)
        if len(self._waiting) == 1:
            loop.call_soon(self.flush)
        elif len(self._waiting) >= MOST_TOGETHER:
            self.flush()

    def flush(self) -> None:
        """Answer all waiting requests in order; a connection that has ended gets nothing."""
        waiting, self._waiting = self._waiting, []
        answers = [asked.answer() for asked in waiting]
        for asked, answer in zip(waiting, answers, strict=True):
            _write(asked, answer)


def _write(asked: Asked, answer: bytes | None) -> None:
    if answer is not None and not asked.transport.is_closing():
        asked.transport.write(answer)
