"""The memory that cached objects may use together: beyond it, the largest are left out. No I/O and no clock."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from itertools import count

from kube.cache import Cache, Key

LeaveOut = Callable[[Key], None]
"""Replaces a cached object by its metadata and a note."""
AGAIN_BELOW = 0.8  # of the limit: from here on, what was left out is read again


class CacheBudget:
    """One for all caches of a process. `limit` in bytes; None: no limit.

    Weights are of `Cache`: bytes of what is kept packed, an estimate for what is kept as objects.
    """

    def __init__(self, limit: int | None = None) -> None:
        self.limit = limit
        self._caches: list[tuple[Cache, LeaveOut]] = []
        self._largest: list[tuple[int, int, int, Key]] = []  # (-weight, tie, place of the cache, key); some are stale
        self._tie = count()

    def join(self, cache: Cache, leave_out: LeaveOut) -> int:
        """Count a cache in; returns its place."""
        self._caches.append((cache, leave_out))
        return len(self._caches) - 1

    @property
    def used(self) -> int:
        """The weight of all caches."""
        return sum(cache.weight for cache, _ in self._caches)

    @property
    def has_room(self) -> bool:
        """Whether what was left out may be read again."""
        return self.limit is None or self.used < self.limit * AGAIN_BELOW

    def grown(self, place: int, key: Key, weight: int, *, packed: bool) -> None:
        """Leave out the largest objects until all caches fit again, after one of them took in an object."""
        if self.limit is None:
            return
        if packed:
            heapq.heappush(self._largest, (-weight, next(self._tie), place, key))
        while self._largest and self.used > self.limit:
            known, _, where, largest = heapq.heappop(self._largest)
            cache, leave_out = self._caches[where]
            if cache.weight_of(largest) == -known:
                leave_out(largest)
