"""Long work in slices, so that other tasks of the event loop get their turn."""

from __future__ import annotations

import asyncio
import time

SLICE_SECONDS = 0.004
"""The longest work without a pause: a review that arrives meanwhile waits this long at most."""


class Slices:
    """Measures uninterrupted work. Make one where the work begins, and await `breathe` between its steps."""

    __slots__ = ("_started",)

    def __init__(self) -> None:
        self._started = time.perf_counter()

    async def breathe(self) -> None:
        """Give other tasks their turn if this slice is over."""
        if time.perf_counter() - self._started > SLICE_SECONDS:
            await asyncio.sleep(0)
            self._started = time.perf_counter()
