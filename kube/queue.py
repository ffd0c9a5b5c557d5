"""The work queue: which key is handled next.

`QueueCore` decides and owns neither clock nor I/O: each call gets the time. `WorkQueue` adds waiting on the running
event loop, and metrics.
"""

from __future__ import annotations

import asyncio
import heapq
import random
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import timedelta

from kube import metrics
from kube.cache import Key

FIRST_BACKOFF = 0.2  # seconds
LARGEST_BACKOFF = 300.0  # seconds
JITTER = 0.25  # a backoff is made longer by up to this part of itself
LOW_SHARE = 8  # of this many keys at least one is of low priority, when one waits


class _Lane:
    """Ready keys, taken in turn from each namespace, first come first served inside one."""

    def __init__(self) -> None:
        self._by_namespace: dict[str, deque[Key]] = {}
        self._turn: deque[str] = deque()
        self._members: set[Key] = set()

    def __len__(self) -> int:
        return len(self._members)

    def __contains__(self, key: Key) -> bool:
        return key in self._members

    def push(self, key: Key) -> None:
        if key in self._members:
            return
        self._members.add(key)
        waiting = self._by_namespace.get(key[0])
        if waiting is None:
            self._by_namespace[key[0]] = deque((key,))
            self._turn.append(key[0])
        else:
            waiting.append(key)

    def pop(self) -> Key | None:
        while self._turn:
            namespace = self._turn.popleft()
            waiting = self._by_namespace[namespace]
            found = self._first_member(waiting)
            if waiting:
                self._turn.append(namespace)
            else:
                del self._by_namespace[namespace]
            if found is not None:
                return found
        return None

    def _first_member(self, waiting: deque[Key]) -> Key | None:
        while waiting:
            key = waiting.popleft()
            if key in self._members:  # else it was discarded meanwhile
                self._members.discard(key)
                return key
        return None

    def discard(self, key: Key) -> None:
        """Forget a key; its place in the line is skipped when it comes up."""
        self._members.discard(key)


@dataclass(slots=True)
class QueueCore:
    """Deduplicated keys with priorities, delays and backoff. All times are seconds of one monotonic clock.

    A key is in at most one of these places: ready (high or low), in work. It may have one pending time besides; a key
    that is added while in work is ready again as soon as the work is done.
    """

    jitter: Callable[[], float] = random.random  # in [0, 1)
    _high: _Lane = field(default_factory=_Lane)
    _low: _Lane = field(default_factory=_Lane)
    _in_work: dict[Key, bool | None] = field(default_factory=dict)  # None: clean; else added again, with `low`
    _due: dict[Key, float] = field(default_factory=dict)
    _heap: list[tuple[float, Key]] = field(default_factory=list)  # may hold times that no longer count
    _failures: dict[Key, int] = field(default_factory=dict)
    _added_at: dict[Key, float] = field(default_factory=dict)
    _since_low: int = 0

    def __len__(self) -> int:
        return len(self._high) + len(self._low)

    @property
    def in_work(self) -> int:
        """How many keys workers hold now."""
        return len(self._in_work)

    def add(self, key: Key, now: float, *, low: bool = False) -> None:
        """Make a key ready. `low`: after the others (a first list, a resync)."""
        if key in self._in_work:
            dirty = self._in_work[key]
            self._in_work[key] = low if dirty is None else dirty and low
            return
        self._added_at.setdefault(key, now)
        if low:
            if key not in self._high:
                self._low.push(key)
            return
        self._low.discard(key)
        self._high.push(key)

    def add_after(self, key: Key, delay: float, now: float) -> None:
        """Make a key ready `delay` seconds from now, unless an earlier time is set for it already."""
        due = now + max(delay, 0.0)
        known = self._due.get(key)
        if known is not None and known <= due:
            return
        self._due[key] = due
        heapq.heappush(self._heap, (due, key))

    def retry(self, key: Key, now: float, *, at_least: float = 0.0, at_most: float = LARGEST_BACKOFF) -> float:
        """Put a failed key back with exponential backoff and return the delay in seconds.

        Args: `at_least`: what the other side asked for (Retry-After), which wins; `at_most`: before jitter.
        """
        failures = self._failures.get(key, 0)
        self._failures[key] = failures + 1
        delay: float = min(at_most, FIRST_BACKOFF * 2 ** min(failures, 30)) * (1 + JITTER * self.jitter())
        delay = max(delay, at_least)
        self.add_after(key, delay, now)
        return delay

    def forget(self, key: Key) -> None:
        """A pass succeeded: the next failure starts with the smallest backoff again."""
        self._failures.pop(key, None)

    def failures(self, key: Key) -> int:
        """How many passes in a row have failed."""
        return self._failures.get(key, 0)

    def pop(self, now: float) -> tuple[Key, float] | None:
        """Take the next key for a worker: (key, seconds it was ready), or None.

        A time that is still pending for the key is dropped: the pass that begins now works from state and sets its own.
        """
        self.release_due(now)
        key = self._choose()
        if key is None:
            return None
        self._in_work[key] = None
        self._due.pop(key, None)
        return key, now - self._added_at.pop(key, now)

    def done(self, key: Key, now: float) -> None:
        """The worker is through with a key; it is ready at once when it was added meanwhile."""
        dirty = self._in_work.pop(key)
        if dirty is not None:
            self.add(key, now, low=dirty)

    def next_due(self) -> float | None:
        """Return when the earliest pending key becomes ready."""
        while self._heap and self._due.get(self._heap[0][1]) != self._heap[0][0]:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def release_due(self, now: float) -> None:
        """Make the keys ready whose time has come."""
        while (due := self.next_due()) is not None and due <= now:
            _, key = heapq.heappop(self._heap)
            del self._due[key]
            self.add(key, now)

    def _choose(self) -> Key | None:
        if len(self._low) and (not len(self._high) or self._since_low >= LOW_SHARE - 1):
            self._since_low = 0
            return self._low.pop()
        self._since_low += 1
        return self._high.pop()


class WorkQueue:
    """A `QueueCore` that workers can wait on. Belongs to one event loop."""

    def __init__(self, name: str, *, jitter: Callable[[], float] = random.random) -> None:
        self._core = QueueCore(jitter=jitter)
        self._name = name
        self._waiters: deque[asyncio.Future[None]] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_due = 0.0
        self._depth = metrics.QUEUE_DEPTH.labels(name)
        self._latency = metrics.QUEUE_LATENCY.labels(name)
        self._retries = metrics.QUEUE_RETRIES.labels(name)
        self._depth.set(0)

    def __len__(self) -> int:
        return len(self._core)

    @property
    def in_work(self) -> int:
        """How many keys workers hold now."""
        return self._core.in_work

    @property
    def idle(self) -> bool:
        """True when no key is ready or in work; some may have a time to come."""
        return len(self._core) == 0 and self._core.in_work == 0

    def add(self, key: Key, *, low: bool = False) -> None:
        """Make a key ready; see `QueueCore.add`."""
        self.add_all((key,), low=low)

    def add_all(self, keys: Iterable[Key], *, low: bool = False) -> None:
        """Make keys ready: one change may concern thousands."""
        now, before = self._now(), len(self._core)
        for key in keys:
            self._core.add(key, now, low=low)
        self._changed(max(1, len(self._core) - before))

    def add_after(self, key: Key, delay: timedelta) -> None:
        """Make a key ready later; the earliest of several times counts."""
        self.add_all_after((key,), delay)

    def add_all_after(self, keys: Iterable[Key], delay: timedelta) -> None:
        """Make keys ready later; the earliest of several times counts for each."""
        now, seconds = self._now(), delay.total_seconds()
        for key in keys:
            self._core.add_after(key, seconds, now)
        self._changed()

    def retry(self, key: Key, *, at_least: float = 0.0, at_most: float = LARGEST_BACKOFF) -> float:
        """Put a failed key back with backoff; returns the delay in seconds."""
        delay = self._core.retry(key, self._now(), at_least=at_least, at_most=at_most)
        self._retries.inc()
        self._changed()
        return delay

    def forget(self, key: Key) -> None:
        """Reset a key's backoff."""
        self._core.forget(key)

    def failures(self, key: Key) -> int:
        """How many passes over a key failed in a row."""
        return self._core.failures(key)

    async def get(self) -> Key:
        """Wait for the next key. Each key that was handed out must be given back with `done`."""
        while True:
            found = self._core.pop(self._now())
            if found is not None:
                key, waited = found
                self._latency.observe(waited)
                self._changed()
                return key
            self._arm()
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiters.append(waiter)
            try:
                await waiter
            except asyncio.CancelledError:
                if waiter.done() and not waiter.cancelled():
                    self._wake(1)  # the wake-up was meant for a worker; hand it on
                raise
            finally:
                if waiter in self._waiters:
                    self._waiters.remove(waiter)

    def done(self, key: Key) -> None:
        """Give a key back."""
        self._core.done(key, self._now())
        self._changed()

    def close(self) -> None:
        """Take the timer down; the queue must not be used any more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._depth.set(0)

    @staticmethod
    def _now() -> float:
        return asyncio.get_running_loop().time()

    def _changed(self, wanted: int = 1) -> None:
        """Wake this many workers, if something is ready."""
        ready = len(self._core)
        self._depth.set(ready)
        self._wake(min(wanted, ready))
        self._arm()

    def _wake(self, workers: int) -> None:
        while workers > 0 and self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
                workers -= 1

    def _arm(self) -> None:
        due = self._core.next_due()
        if due is None:
            return
        if self._timer is not None:
            if self._timer_due <= due:
                return
            self._timer.cancel()
        self._timer_due = due
        self._timer = asyncio.get_running_loop().call_at(due, self._fire)

    def _fire(self) -> None:
        self._timer = None
        self._core.release_due(self._now())  # also when all workers are busy: else the timer would be set in the past
        ready = len(self._core)
        self._depth.set(ready)
        self._wake(ready)
        self._arm()
