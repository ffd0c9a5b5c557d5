"""Waiting for what no event tells of: a condition is looked at again and again, up to a bound. Work beside a test."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

_PERIOD = 0.02  # seconds; twice that where looking may mean reading /proc or asking a server


async def until(condition: Callable[[], object], seconds: float = 30, what: str = "") -> None:
    """Wait until a condition holds. Raises: TimeoutError, with what was waited for, after so many seconds."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {seconds:g} s: {what or 'the condition'}")
        await asyncio.sleep(_PERIOD)


def within(condition: Callable[[], object], seconds: float = 30) -> bool:
    """Wait until a condition holds, at most so many seconds; return whether it does."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(2 * _PERIOD)
    return False


@asynccontextmanager
async def in_background(*work: Coroutine[Any, Any, None]) -> AsyncIterator[list[asyncio.Task[None]]]:
    """Do work beside the block, in its order; what is still at it at the end is cancelled, however it takes that."""
    tasks = [asyncio.create_task(each) for each in work]
    try:
        yield tasks
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
