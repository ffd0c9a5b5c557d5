"""Answers that leave together.

A write wakes whoever waits for it, and waking an idle core costs as much as a fifth of a review. Where many requests
arrive in one turn of the event loop their answers are gathered, so that the caller is woken once for several. An answer
that is alone in its turn is never held back.
"""

from __future__ import annotations

import asyncio

MOST_TOGETHER = 16
"""Answers that wait for each other at most: the first of them by the time of so many reviews, 1 to 2 ms."""


class Outbox:
    """What one server has answered in this turn of its loop and not written yet."""

    def __init__(self) -> None:
        """Start with nothing."""
        self._turn = -1.0
        self._waiting: list[tuple[asyncio.Transport, bytes]] = []

    def send(self, loop: asyncio.AbstractEventLoop, transport: asyncio.Transport, answer: bytes) -> None:
        """Write at once what is first in its turn, else with what follows; one connection's answers keep their order.

        A turn is as long as the loop's clock stands still (uvloop's does for all that arrived at once).
        """
        now = loop.time()
        if now != self._turn and not self._waiting:
            self._turn = now
            transport.write(answer)
            return
        self._waiting.append((transport, answer))
        if len(self._waiting) == 1:
            loop.call_soon(self.flush)
        elif len(self._waiting) >= MOST_TOGETHER:
            self.flush()

    def flush(self) -> None:
        """Write all that waits; a connection that has ended gets nothing."""
        waiting, self._waiting = self._waiting, []
        for transport, answer in waiting:
            if not transport.is_closing():
                transport.write(answer)
