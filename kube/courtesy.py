"""Who comes first on the shared event loop: while many reviews come in, passes wait.

A pass holds the loop for a millisecond or so, and there may be thousands of them in a row (a restart, a refresh). Who
applies a manifest meanwhile waits for the answer; the reconciler can wait. A few reviews a second find the loop free
often enough.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

SPACING = 0.02  # seconds between the beginnings of two passes: they take some 5 % of the loop
MANY = 100.0  # reviews a second
WINDOW = 0.1  # seconds over which they are counted


class Courtesy:
    """Spaces passes out while many reviews come in; else they begin as fast as the loop turns, one at each turn.

    Args: `answered` returns how many reviews were answered so far; `spacing` is in seconds.
    """

    def __init__(
        self,
        answered: Callable[[], int] = lambda: 0,
        *,
        spacing: float = SPACING,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._answered, self._spacing, self._clock = answered, spacing, clock
        self._counted, self._since = answered(), clock()
        self._many = False
        self._one = asyncio.Lock()
        self._next = 0.0

    async def turn(self) -> None:
        """Return when a pass may begin; first come, first served."""
        async with self._one:  # many workers at once would make a review wait for all of them
            await asyncio.sleep(self.wait_seconds())

    def wait_seconds(self) -> float:
        """Take a turn; returns how long it is until then."""
        now = self._clock()
        if now - self._since >= WINDOW:
            answered = self._answered()
            self._many = answered - self._counted >= MANY * (now - self._since)
            self._counted, self._since = answered, now
        if not self._many:
            return 0.0
        begins = max(now, self._next)
        self._next = begins + self._spacing
        return begins - now
