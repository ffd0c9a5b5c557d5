"""The memory that cached objects may use together: beyond it, the largest are left out. No I/O and no clock."""

from __future__ import annotations

import heapq
from collections.abc import Callable

from kube.cache import Cache, Key

LeaveOut = Callable[[Key], None]
"""Replaces a cached object by its metadata and a note."""
_FEW = 1_000  # entries of the heap that may be stale
AGAIN_BELOW = 0.8  # of the limit: from here on, what was left out is read again


class CacheBudget:
    """One for all caches of a process. `limit` in bytes; None: no limit.

    Weights are of `Cache`: bytes of what is kept packed, an estimate for what is kept as objects.
    """

    def __init__(self, limit: int | None = None) -> None:
        self.limit = limit
        self._caches: list[tuple[Cache, LeaveOut]] = []
        self._largest: list[tuple[int, int, Key]] = []  # heap of (-weight, place of the cache, key); some are stale
        self._rebuilt_from = 0

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

    def grown(self, place: int, key: Key, *, packed: bool) -> None:
        """Leave out the largest objects until all caches fit again, after one of them took in an object."""
        if self.limit is None:
            return
        if packed:
            heapq.heappush(self._largest, (-(self._caches[place][0].weight_of(key) or 0), place, key))
            self._drop_stale()
        while self._largest and self.used > self.limit:
            known, where, largest = heapq.heappop(self._largest)
            cache, leave_out = self._caches[where]
            if cache.weight_of(largest) == -known:
                leave_out(largest)

    def _drop_stale(self) -> None:
        """Rebuild the heap when most of it is stale: each change of an object leaves its last weight behind."""
        if len(self._largest) <= 2 * self._rebuilt_from + _FEW:
            return
        self._largest = [
            (-weight, place, key) for place, (cache, _) in enumerate(self._caches) for key, weight in cache.packed()
        ]
        heapq.heapify(self._largest)
        self._rebuilt_from = len(self._largest)
