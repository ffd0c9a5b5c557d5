"""Watches the event loop: how long does one turn last? A long turn delays admission, leases and watches."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable

from prometheus_client import Counter, Gauge

log = logging.getLogger(__name__)

TICK_SECONDS = 0.05
IDLE_TICKS = 4  # ticks are this many times longer while the loop is idle: an idle process is rarely woken
_BUSY_SHARE = 0.1  # of a tick, in CPU time of the loop's thread: above this the loop is not idle
WINDOW_SECONDS = 60.0
LONG_SECONDS = 0.25  # a stall that is logged
LOG_EVERY_SECONDS = 30.0

_LONGEST = Gauge(
    "aim_adapters_event_loop_stall_seconds", "Longest uninterrupted time the event loop was busy in the last minute."
)
_LONGEST_CPU = Gauge(
    "aim_adapters_event_loop_stall_cpu_seconds",
    "CPU time the event loop used during the longest stall of the last minute; it waited for a CPU in the remainder.",
)
_STALLED = Counter("aim_adapters_event_loop_stalled_seconds_total", "Total time by which the event loop ran late.")


class Watchdog:
    """Measures how late a regular tick comes.

    Lateness is a lower bound of the time that something kept the loop busy; it also shows a process that got no CPU.
    The CPU time of the loop's thread distinguishes the two; it covers the whole tick, so it is an upper bound.
    Of a stall that begins while the loop is idle, up to `IDLE_TICKS` ticks are not measured.
    """

    def __init__(self, *, tick_seconds: float = TICK_SECONDS, clock: Callable[[], float] = time.monotonic) -> None:
        self._tick, self._clock = tick_seconds, clock
        self._recent: deque[tuple[float, float, float]] = deque()  # (when, how long, CPU of it), falling lengths
        self._logged_at = float("-inf")
        self.longest_ever = 0.0
        _LONGEST.set_function(self.longest)
        _LONGEST_CPU.set_function(self.longest_cpu)

    def longest(self) -> float:
        """Return the longest stall of the last minute, in seconds."""
        return self._longest()[0]

    def longest_cpu(self) -> float:
        """Return the CPU seconds of the longest stall of the last minute (an upper bound)."""
        return self._longest()[1]

    def _longest(self) -> tuple[float, float]:
        horizon = self._clock() - WINDOW_SECONDS
        while self._recent and self._recent[0][0] < horizon:
            self._recent.popleft()
        return self._recent[0][1:] if self._recent else (0.0, 0.0)

    async def run(self) -> None:
        """Tick until cancelled."""
        tick = self._tick
        while True:
            before, spent = self._clock(), time.thread_time()
            await asyncio.sleep(tick)
            late, cpu = self._clock() - before - tick, time.thread_time() - spent
            self.note(late, cpu)
            tick = self._tick if cpu > tick * _BUSY_SHARE else min(2 * tick, IDLE_TICKS * self._tick)

    def note(self, late: float, cpu: float = 0.0) -> None:
        """Note that a tick came `late` seconds late, in which the loop used `cpu` seconds at most."""
        if late <= 0:
            return
        now = self._clock()
        _STALLED.inc(late)
        self.longest_ever = max(self.longest_ever, late)
        while self._recent and self._recent[-1][1] <= late:
            self._recent.pop()
        self._recent.append((now, late, min(cpu, late)))
        if late >= LONG_SECONDS and now - self._logged_at > LOG_EVERY_SECONDS:
            self._logged_at = now
            log.warning(
                "the event loop was blocked", extra={"seconds": round(late, 3), "cpu_seconds": round(min(cpu, late), 3)}
            )
