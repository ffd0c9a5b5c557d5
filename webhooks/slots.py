"""How many reviews are judged at once, and how many may wait for it."""

from __future__ import annotations

import asyncio
from collections import deque


class OverloadedError(Exception):
    """Neither a slot nor a place in the queue is free, or none became free in time."""


class Slots:
    """A limit with a short queue, first come first served. Taking a free slot costs no trip through the event loop."""

    def __init__(self, limit: int, queue: int) -> None:
        """Allow `limit` at once and `queue` waiting."""
        self._limit = limit
        self._queue = queue
        self._taken = 0
        self._waiting: deque[asyncio.Future[None]] = deque()

    @property
    def taken(self) -> int:
        """How many slots are taken now."""
        return self._taken

    def take_free(self) -> bool:
        """Take a slot if one is free."""
        if self._taken >= self._limit:
            return False
        self._taken += 1
        return True

    async def take(self, seconds: float) -> None:
        """Take a slot; wait for one at most so long.

        Raises: OverloadedError.
        """
        if self.take_free():
            return
        if len(self._waiting) >= self._queue:
            raise OverloadedError
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            await asyncio.wait_for(turn, seconds)
        except BaseException as error:
            if turn in self._waiting:
                self._waiting.remove(turn)
            if turn.done() and not turn.cancelled():  # handed over just before the wait ended
                self.give_back()
            if isinstance(error, TimeoutError):
                raise OverloadedError from None
            raise

    def give_back(self) -> None:
        """Give a slot back, to the first who waits if there is one."""
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        self._taken -= 1
