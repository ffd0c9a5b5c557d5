"""Watches the event loop: how long did one turn of it last? A long one delays admission, leases and watches."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable

from prometheus_client import Counter, Gauge

log = logging.getLogger(__name__)

TICK_SECONDS = 0.05
WINDOW_SECONDS = 60.0
LONG_SECONDS = 0.25  # a stall that is worth a log line
LOG_EVERY_SECONDS = 30.0

_LONGEST = Gauge(
    "aim_adapters_event_loop_stall_seconds", "Longest time the event loop was busy in one go, in the last minute."
)
_STALLED = Counter("aim_adapters_event_loop_stalled_seconds_total", "Time the event loop was late, in sum.")


class Watchdog:
    """Measures how late a regular tick comes.

    Lateness is a lower bound of the time that something kept the loop busy; it also shows a process that got no CPU.
    """

    def __init__(self, *, tick_seconds: float = TICK_SECONDS, clock: Callable[[], float] = time.monotonic) -> None:
        self._tick, self._clock = tick_seconds, clock
        self._recent: deque[tuple[float, float]] = deque()  # (when, how long), falling lengths
        self._logged_at = float("-inf")
        self.longest_ever = 0.0
        self.last_tick = clock()
        _LONGEST.set_function(self.longest)

    def longest(self) -> float:
        """Return the longest stall of the last minute, in seconds."""
        horizon = self._clock() - WINDOW_SECONDS
        while self._recent and self._recent[0][0] < horizon:
            self._recent.popleft()
        return self._recent[0][1] if self._recent else 0.0

    async def run(self) -> None:
        """Tick until cancelled."""
        while True:
            before = self._clock()
            await asyncio.sleep(self._tick)
            self.last_tick = self._clock()
            self.note(self.last_tick - before - self._tick)

    def note(self, late: float) -> None:
        """Take in that a tick came late by so many seconds."""
        if late <= 0:
            return
        now = self._clock()
        _STALLED.inc(late)
        self.longest_ever = max(self.longest_ever, late)
        while self._recent and self._recent[-1][1] <= late:
            self._recent.pop()
        self._recent.append((now, late))
        if late >= LONG_SECONDS and now - self._logged_at > LOG_EVERY_SECONDS:
            self._logged_at = now
            log.warning("the event loop was held up", extra={"seconds": round(late, 3)})
