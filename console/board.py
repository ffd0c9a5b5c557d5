"""The index of all services, updated from the caches in small steps, and the pages made from it.

A change only marks a key. The work is done when a page is requested, in slices that let other tasks run. Without
visitors nothing is done.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left, insort
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from heapq import nsmallest
from typing import TypeVar

from api import view
from api.kinds import AIM_SERVICE
from api.record import record
from api.view import Json
from console.query import Query
from console.views import (
    ADAPTER_STATES,
    SERVICE_STATES,
    Brief,
    DiskView,
    EventView,
    Key,
    RefusalView,
    Refused,
    ServiceView,
    brief,
    disk_view,
    event_view,
    refusal_view,
    service_view,
    used_bytes,
)
from console.words import harmless
from kube.slices import Slices
from rules.world import World

BATCH = 500  # services that are filtered without a check of the clock
MOST_DISKS = 20
MOST_EVENTS = 50
MOST_REFUSALS = 50
KEPT_PAGES = 32

Item = TypeVar("Item")


def _nothing() -> tuple[str, ...]:
    return ()


@dataclass(frozen=True, slots=True)
class Sources:
    """What the board reads; all of it is in memory.

    `claim(namespace, name)` returns a claim, None when it is not known. `refusals` and `events` return the recent ones,
    newest last, None when this process has none. `events_problem`: why events cannot be read. `problems`: why the page
    may be out of date. `ready`: whether the caches are filled. `gaps`: what this process cannot show, for the foot of
    the page.
    """

    world: World
    claim: Callable[[str, str], Json | None] = lambda namespace, name: None
    refusals: Callable[[], Sequence[Refused] | None] = lambda: None
    events: Callable[[], Sequence[Json] | None] = lambda: None
    events_problem: Callable[[], str | None] = lambda: None
    problems: Callable[[], Iterable[str]] = _nothing
    ready: Callable[[], bool] = lambda: True
    gaps: tuple[str, ...] = ()
    replica: str = ""


@record
class Summary:
    """Numbers over all services, without the filter: (state, count), only states that occur."""

    services: int
    by_status: tuple[tuple[str, int], ...]
    adapters: int
    by_state: tuple[tuple[str, int], ...]
    trouble: int
    staging: int
    disks: int
    used: int


@record
class Page:
    """What one visitor sees. `first` counts from 1; `matches` is over all pages."""

    query: Query
    summary: Summary
    matches: int
    pages: int
    first: int
    rows: tuple[ServiceView, ...]
    disks: tuple[DiskView, ...]
    all_disks: int  # on how many disks the matching services are
    refusals: tuple[RefusalView, ...] | None
    events: tuple[EventView, ...] | None
    events_problem: str
    problems: tuple[str, ...]
    ready: bool
    gaps: tuple[str, ...]
    replica: str


class Board:
    """All services in brief. `changed` is a change handler of the caches; `touch` notes any other change."""

    def __init__(self, sources: Sources) -> None:
        self._sources = sources
        self._dirty: set[Key] = set()
        self._briefs: dict[Key, Brief] = {}
        self._keys: list[Key] = []  # sorted
        self._statuses: Counter[str] = Counter()
        self._states: Counter[str] = Counter()
        self._trouble = self._staging = 0
        self._disks: dict[Key, set[Key]] = {}  # (namespace, claim) -> services
        self._used: dict[Key, int] = {}  # bytes by disk, as far as they are worked out
        self._changes = 0
        self._lock = asyncio.Lock()
        self._pages: OrderedDict[Query, tuple[object, Page]] = OrderedDict()

    # -- what changes -----------------------------------------------------------------------------------------------

    def changed(self, old: Json | None, new: Json | None) -> None:
        """Note that a service changed; this costs almost nothing."""
        obj = new if new is not None else old
        if obj is None:
            return
        key = (view.namespace_of(obj), view.name_of(obj))
        if new is None and key not in self._briefs:  # deleted before it was shown: nothing of it is kept
            self._dirty.discard(key)
        else:
            self._dirty.add(key)
        self._changes += 1

    def touch(self, old: Json | None = None, new: Json | None = None) -> None:
        """Note that an object that services refer to changed."""
        self._changes += 1

    def mark(self) -> tuple[object, ...]:
        """Return a value that differs once anything has changed."""
        sources = self._sources
        refusals, events = sources.refusals(), sources.events()
        return (
            self._changes,
            id(refusals[-1]) if refusals else 0,
            len(refusals or ()),
            id(events[-1]) if events else 0,
            len(events or ()),
            sources.events_problem(),
            tuple(sources.problems()),
            sources.ready(),
        )

    # -- what is shown ----------------------------------------------------------------------------------------------

    async def page(self, query: Query) -> Page:
        """Return the page as of now; visitors of the same page share the work."""
        async with self._lock:
            mark = self.mark()
            kept = self._pages.get(query)
            if kept is not None and kept[0] == mark:
                return kept[1]
            slices = Slices()
            await self._catch_up(slices)
            page = await self._cut(query, slices)
            self._pages[query] = (mark, page)
            self._pages.move_to_end(query)
            while len(self._pages) > KEPT_PAGES:
                self._pages.popitem(last=False)
            return page

    async def _catch_up(self, slices: Slices) -> None:
        """Update the index with what changed."""
        if len(self._dirty) > 1_000:  # the first page: sort once instead of inserting one by one
            known = set(self._keys)
            self._keys = sorted(known | self._dirty)
        while self._dirty:
            key = self._dirty.pop()
            service = self._sources.world.get(AIM_SERVICE, *key)
            self._put(key, brief(service) if service is not None else None)
            await slices.breathe()
        self._keys = [key for key in self._keys if key in self._briefs]

    def _put(self, key: Key, new: Brief | None) -> None:
        old = self._briefs.get(key)
        if old == new:
            return
        if old is not None:
            self._count(key, old, -1)
        if new is None:
            del self._briefs[key]
            return
        self._briefs[key] = new
        self._count(key, new, 1)
        place = bisect_left(self._keys, key)
        if place == len(self._keys) or self._keys[place] != key:
            insort(self._keys, key)

    def _count(self, key: Key, one: Brief, by: int) -> None:
        self._statuses[one.status] += by
        self._trouble += by * one.trouble
        self._staging += by * one.staging
        for state in one.adapters:
            self._states[state] += by
        if one.claim:
            disk = (key[0], one.claim)
            self._used.pop(disk, None)
            on_it = self._disks.setdefault(disk, set())
            (on_it.add if by > 0 else on_it.discard)(key)
            if not on_it:
                del self._disks[disk]

    async def _cut(self, query: Query, slices: Slices) -> Page:
        matches = self._keys if query.open else await self._matching(query, slices)
        pages = max(1, -(-len(matches) // query.size))
        first = (min(query.page, pages) - 1) * query.size
        rows = []
        for key in matches[first : first + query.size]:
            service = self._sources.world.get(AIM_SERVICE, *key)
            if service is not None:
                rows.append(service_view(service, self._sources.world))
            await slices.breathe()
        sources = self._sources
        refusals, events = sources.refusals(), sources.events()
        disks = set(self._disks) if query.open else self._disks_of(matches)
        return Page(
            query=query,
            summary=await self._summary(slices),
            matches=len(matches),
            pages=pages,
            first=first + 1,
            rows=tuple(rows),
            disks=tuple(self._disk(disk) for disk in self._fullest(disks)),
            all_disks=len(disks),
            refusals=None if refusals is None else tuple(map(refusal_view, _newest(refusals, MOST_REFUSALS))),
            events=None if events is None else tuple(map(event_view, _newest(events, MOST_EVENTS))),
            events_problem=harmless(sources.events_problem() or ""),
            problems=tuple(harmless(problem) for problem in sources.problems()),
            ready=sources.ready(),
            gaps=sources.gaps,
            replica=sources.replica,
        )

    async def _matching(self, query: Query, slices: Slices) -> list[Key]:
        found: list[Key] = []
        matches, briefs = query.matcher(), self._briefs
        for start in range(0, len(self._keys), BATCH):
            found += [key for key in self._keys[start : start + BATCH] if matches(briefs[key])]
            await slices.breathe()
        return found

    async def _summary(self, slices: Slices) -> Summary:
        for disk in list(self._disks):
            self._bytes_on(disk)
            await slices.breathe()
        return Summary(
            services=len(self._keys),
            by_status=_counts(self._statuses, SERVICE_STATES),
            adapters=self._states.total(),
            by_state=_counts(self._states, ADAPTER_STATES),
            trouble=self._trouble,
            staging=self._staging,
            disks=len(self._disks),
            used=sum(self._used.values()),
        )

    def _bytes_on(self, disk: Key) -> int:
        if disk not in self._used:
            self._used[disk] = used_bytes(self._on(disk))
        return self._used[disk]

    def _on(self, disk: Key) -> list[Brief]:
        return [self._briefs[key] for key in self._disks.get(disk, ())]

    def _disks_of(self, keys: Sequence[Key]) -> set[Key]:
        return {(key[0], claim) for key in keys if (claim := self._briefs[key].claim)}

    def _disk(self, disk: Key) -> DiskView:
        services = len(self._disks.get(disk, ()))
        return disk_view(*disk, self._bytes_on(disk), services, self._sources.claim(*disk))

    def _fullest(self, disks: Iterable[Key]) -> list[Key]:
        return nsmallest(MOST_DISKS, disks, key=lambda disk: (-self._bytes_on(disk), disk))


def _newest(items: Sequence[Item], most: int) -> list[Item]:
    return list(reversed(list(items)[-most:]))


def _counts(counted: Counter[str], order: Sequence[str]) -> tuple[tuple[str, int], ...]:
    """Return the states that occur: known ones in their order, then others."""
    names = [*order, *sorted(set(counted) - set(order))]
    return tuple((name, counted[name]) for name in names if counted[name])
