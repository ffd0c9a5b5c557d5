"""Requests that arrive together are answered together.

A write wakes whoever waits for it, and waking an idle core costs as much as a fifth of a review; and code that is run
for one request after the other is still in the core's caches for the second. So where many requests arrive in one turn
of the event loop, all are read, then judged, then answered. One that is alone in its turn is never held back.
"""

from __future__ import annotations

import asyncio
from typing import Protocol

MOST_TOGETHER = 32
"""Requests that wait for each other at most: the first of them by the time of so many reviews, 2 to 4 ms."""


class Asked(Protocol):
    """A connection with a request that may be answered at once."""

    transport: asyncio.Transport

    def answer(self) -> bytes | None:
        """Return the whole answer; None: nothing to write now. Asked once for each request."""
        ...


class Outbox:
    """What one server was asked in this turn of its loop and has not answered yet."""

    def __init__(self) -> None:
        """Start with nothing."""
        self._turn = -1.0
        self._waiting: list[Asked] = []

    def ask(self, loop: asyncio.AbstractEventLoop, asked: Asked) -> None:
        """Answer at once what is first in its turn, else with what follows.

        A turn is as long as the loop's clock stands still (uvloop's does for all that arrived at once).
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
        """Answer all that waits, in its order; a connection that has ended gets nothing."""
        waiting, self._waiting = self._waiting, []
        answers = [asked.answer() for asked in waiting]
        for asked, answer in zip(waiting, answers, strict=True):
            _write(asked, answer)


def _write(asked: Asked, answer: bytes | None) -> None:
    if answer is not None and not asked.transport.is_closing():
        asked.transport.write(answer)
