"""Runs controllers: changes become keys, keys become passes, failures become backoff.

Informers run always: they feed admission too. Passes run only while the lease is held. One pass over a key is never
concurrent with another pass over it, and between passes the event loop is free for admission: while reviews come in,
passes are spaced out.
"""

from __future__ import annotations

import asyncio
import logging
import time
import traceback
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Protocol

from api.view import JsonObject
from kube import metrics
from kube.cache import Key, key_of
from kube.courtesy import Courtesy
from kube.errors import Terminal, Transient
from kube.informer import Informer
from kube.queue import LARGEST_BACKOFF, WorkQueue

log = logging.getLogger(__name__)

KeyFunction = Callable[[JsonObject | None, JsonObject | None], Iterable[Key]]
GatherFunction = Callable[[JsonObject | None, JsonObject | None], timedelta]

DEFAULT_WORKERS = 8
TERMINAL_BACKOFF = 600.0  # seconds after an error that a retry does not fix: a safety net, should nothing change
GATHER = timedelta(seconds=0.1)  # changes that come in bursts (a Job, its pod, their states) make one pass together
KEYS_AT_ONCE = 1_000  # a millisecond or two
REPEAT_LOG_SECONDS = 600.0  # the same problem is logged in full again after this time
MAX_KNOWN_PROBLEMS = 256


def own_key(old: JsonObject | None, new: JsonObject | None) -> Iterable[Key]:
    """Map a change to the key of the changed object itself."""
    obj = new if new is not None else old
    return (key_of(obj),) if obj is not None else ()


def keys_of_both(function: Callable[[JsonObject], Iterable[Key]]) -> KeyFunction:
    """Return a mapping that applies `function` to the old and the new object: who is referenced, and who was."""

    def both(old: JsonObject | None, new: JsonObject | None) -> Iterable[Key]:
        keys: dict[Key, None] = {}
        for obj in (old, new):
            if obj is not None:
                keys.update(dict.fromkeys(function(obj)))
        return keys

    return both


@dataclass(frozen=True, slots=True)
class Watch:
    """A kind whose changes matter to a controller, and the keys that a change (old, new) concerns.

    `gather`: for how long changes are gathered into one pass; edits of the controller's own kind never wait.
    """

    informer: Informer
    keys: KeyFunction = own_key
    gather: timedelta | GatherFunction = GATHER


class Controller(Protocol):
    """Converges one kind. `watches[0]` is the kind itself: all its keys are handled when leadership begins."""

    @property
    def name(self) -> str:
        """Short and stable: a label of metrics and a word in logs."""
        ...

    @property
    def watches(self) -> Sequence[Watch]:
        """The kinds whose changes matter, the controller's own kind first."""
        ...

    async def reconcile(self, key: Key) -> timedelta | None:
        """Make one pass over a key; returns when to look again without a change, or None."""
        ...


@dataclass(slots=True)
class _Problems:
    """Unexpected errors by kind: the first of each is logged with its stack, repetitions are counted."""

    clock: Callable[[], float] = time.monotonic
    _known: dict[str, tuple[float, int]] = field(default_factory=dict)

    def report(self, controller: str, key: Key, error: BaseException) -> None:
        """Log an error, in full when this kind of problem is new or was last shown long ago."""
        frames = traceback.extract_tb(error.__traceback__)
        place = f"{frames[-1].filename}:{frames[-1].lineno}" if frames else ""
        kind = f"{controller} {type(error).__name__} {place}"
        shown_at, hidden = self._known.get(kind, (float("-inf"), 0))
        if self.clock() - shown_at < REPEAT_LOG_SECONDS:
            self._known[kind] = (shown_at, hidden + 1)
            return
        if len(self._known) >= MAX_KNOWN_PROBLEMS:
            self._known.clear()
        self._known[kind] = (self.clock(), 0)
        log.error(
            "a pass failed unexpectedly",
            exc_info=error,
            extra={"controller": controller, "ns": key[0], "object": key[1], "repeated": hidden},
        )


class Leadership(Protocol):
    """What the engine asks of a lease."""

    async def wait_held(self) -> None:
        """Return when this process leads."""
        ...

    async def wait_lost(self) -> None:
        """Return when it does not lead any more."""
        ...


class AlwaysLeading:
    """Leadership without an election, for tests and benches."""

    async def wait_held(self) -> None:
        """Return at once."""

    async def wait_lost(self) -> None:
        """Never return."""
        await asyncio.Event().wait()


class Engine:
    """Informers, and the controllers over them.

    Args:
        workers: passes in flight per controller; passes mostly wait for the API server.
        drain: how long passes in flight may continue when the engine is stopped, before they are cancelled.
        courtesy: says when a pass may begin.
    """

    def __init__(
        self,
        controllers: Sequence[Controller],
        informers: Iterable[Informer],
        leadership: Leadership,
        *,
        workers: int = DEFAULT_WORKERS,
        drain: timedelta = timedelta(seconds=10),
        courtesy: Courtesy | None = None,
    ) -> None:
        self._courtesy = courtesy or Courtesy()
        self._controllers = list(controllers)
        self._informers = _unique([*informers, *(watch.informer for c in controllers for watch in c.watches)])
        self._leadership = leadership
        self._workers = workers
        self._drain = drain.total_seconds()
        self._stopping = asyncio.Event()
        self._problems = _Problems()
        self._queues: dict[str, WorkQueue] = {}
        for controller in self._controllers:
            for watch in controller.watches:
                watch.informer.add_handler(self._handler(controller, watch))

    @property
    def informers(self) -> list[Informer]:
        """All informers that this engine runs."""
        return list(self._informers)

    def queue(self, controller: str) -> WorkQueue | None:
        """Return a controller's work queue; None while this process does not lead."""
        return self._queues.get(controller)

    @property
    def idle(self) -> bool:
        """True when this process leads and no key is ready or in work."""
        return bool(self._queues) and all(queue.idle for queue in self._queues.values())

    def enqueue(self, controller: str, key: Key, after: timedelta | None = None) -> None:
        """Ask for a pass, from outside of a watch (a poll of pods found news); nothing while not leading."""
        queue = self._queues.get(controller)
        if queue is None:
            return
        if after is None:
            queue.add(key)
        else:
            queue.add_after(key, after)

    async def run(self) -> None:
        """Run informers and, while leading, controllers; until cancelled, or `stop` was called and all work is done."""
        async with asyncio.TaskGroup() as group:
            feeding = group.create_task(self.run_informers())
            try:
                await self.run_controllers()
            finally:
                feeding.cancel()

    async def run_informers(self) -> None:
        """Run all informers until cancelled: admission reads them also while controllers have ended."""
        async with asyncio.TaskGroup() as group:
            for informer in self._informers:
                group.create_task(informer.run(), name=f"informer {informer.kind.plural}")
            await asyncio.Event().wait()  # also without any: it ends when it is cancelled

    async def run_controllers(self) -> None:
        """Run controllers whenever this process leads; until cancelled, or `stop` was called and all work is done."""
        while not self._stopping.is_set():
            if not await self._unless_stopping(self._leadership.wait_held()):
                return
            settled = asyncio.gather(*(w.informer.settled.wait() for c in self._controllers for w in c.watches))
            if await self._unless_stopping(settled):
                await self._lead()

    def stop(self) -> None:
        """Start no more passes, finish those in flight, then return from `run_controllers`."""
        self._stopping.set()

    async def _lead(self) -> None:
        """Run all workers until leadership is lost (they are cancelled: writes are blocked anyway) or we stop."""
        self._queues = {controller.name: WorkQueue(controller.name) for controller in self._controllers}
        pool = _Pool()
        try:
            for controller in self._controllers:
                await _take_all(self._queues[controller.name], controller.watches[0].informer.cache)
            async with asyncio.TaskGroup() as group:
                for controller in self._controllers:
                    for _ in range(getattr(controller, "workers", self._workers)):
                        pool.add(group.create_task(self._work(controller, self._queues[controller.name], pool)))
                late = [
                    group.create_task(_when_served(watch.informer, self._queues[controller.name], controller))
                    for controller in self._controllers
                    for watch in controller.watches
                    if not watch.informer.synced.is_set()
                ]
                lost = group.create_task(self._leadership.wait_lost())
                stopping = group.create_task(self._stopping.wait())
                await asyncio.wait((lost, stopping), return_when=asyncio.FIRST_COMPLETED)
                if not lost.done():
                    await pool.drain(self._drain)
                for task in (lost, stopping, *late):
                    task.cancel()
                pool.cancel()
        finally:
            for queue in self._queues.values():
                queue.close()
            self._queues = {}

    async def _work(self, controller: Controller, queue: WorkQueue, pool: _Pool) -> None:
        while not pool.draining:
            key = await pool.idle_while(queue.get())
            try:
                await self._courtesy.turn()
                await self._pass(controller, queue, key)
            finally:
                queue.done(key)
            await asyncio.sleep(0)  # admission first

    async def _pass(self, controller: Controller, queue: WorkQueue, key: Key) -> None:
        started = time.monotonic()
        try:
            again = await controller.reconcile(key)
        except Transient as error:
            self._failed(controller, error)
            limit = LARGEST_BACKOFF if error.largest_backoff is None else error.largest_backoff
            delay = queue.retry(key, at_least=error.retry_after or 0.0, at_most=limit)
            level = logging.INFO if queue.failures(key) == 1 else logging.DEBUG
            log.log(
                level, "a pass is tried again", extra=_about(controller, key, error=str(error), seconds=round(delay, 1))
            )
        except Terminal as error:
            self._failed(controller, error)
            queue.retry(key, at_least=TERMINAL_BACKOFF)
            log.warning("a pass cannot succeed as things are", extra=_about(controller, key, error=str(error)))
        except Exception as error:  # a bug over one object must not stop the others
            self._failed(controller, error)
            self._problems.report(controller.name, key, error)
            queue.retry(key, at_least=1.0)
        else:
            queue.forget(key)
            if again is not None:
                queue.add_after(key, again)
        finally:
            metrics.RECONCILE_SECONDS.labels(controller.name).observe(time.monotonic() - started)

    def _failed(self, controller: Controller, error: BaseException) -> None:
        metrics.RECONCILE_ERRORS.labels(controller.name, type(error).__name__).inc()

    def _handler(self, controller: Controller, watch: Watch) -> Callable[[JsonObject | None, JsonObject | None], None]:
        name, own_kind, informer = controller.name, controller.watches[0].informer.kind, watch.informer

        def on_change(old: JsonObject | None, new: JsonObject | None) -> None:
            queue = self._queues.get(name)
            if queue is None:
                return  # all keys are taken when leadership begins
            now = informer.listing or (informer.kind == own_kind and _edited(old, new))
            # not the pass that wrote it: it has looked at it since
            keys = [key for key in watch.keys(old, new) if (own_kind, key) != informer.writer]
            if not keys:
                return
            if now:
                queue.add_all(keys, low=informer.listing)
            else:
                gather = watch.gather
                queue.add_all_after(keys, gather if isinstance(gather, timedelta) else gather(old, new))

        return on_change

    async def _unless_stopping(self, waiting: Awaitable[object]) -> bool:
        """Wait for something, or for `stop`; returns whether it came."""
        task: asyncio.Future[object] = asyncio.ensure_future(waiting)
        stopping: asyncio.Future[object] = asyncio.ensure_future(self._stopping.wait())
        try:
            await asyncio.wait((task, stopping), return_when=asyncio.FIRST_COMPLETED)
            return not self._stopping.is_set()
        finally:
            for pending in (task, stopping):
                pending.cancel()
            await asyncio.gather(task, stopping, return_exceptions=True)


async def _when_served(informer: Informer, queue: WorkQueue, controller: Controller) -> None:
    """Look at all again when a kind is served that was not: that it has no objects is news, which no event reports."""
    await informer.synced.wait()
    await _take_all(queue, controller.watches[0].informer.cache)


async def _take_all(queue: WorkQueue, known: Iterable[Key]) -> None:
    """Make all keys ready, with a pause for the event loop after some: there may be tens of thousands."""
    keys = list(known)
    for begin in range(0, len(keys), KEYS_AT_ONCE):
        queue.add_all(keys[begin : begin + KEYS_AT_ONCE], low=True)
        await asyncio.sleep(0)


class _Pool:
    """The workers of one time of leadership: those that only wait for a key can be cancelled without loss."""

    def __init__(self) -> None:
        self.draining = False
        self._tasks: set[asyncio.Task[None]] = set()
        self._waiting: set[asyncio.Task[Any]] = set()

    def add(self, task: asyncio.Task[None]) -> None:
        self._tasks.add(task)

    async def idle_while(self, getting: Awaitable[Key]) -> Key:
        me = asyncio.current_task()
        assert me is not None
        self._waiting.add(me)
        try:
            return await getting
        finally:
            self._waiting.discard(me)

    async def drain(self, seconds: float) -> None:
        """Let passes in flight end, for at most this long."""
        self.draining = True
        for task in list(self._waiting):
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=seconds)

    def cancel(self) -> None:
        for task in self._tasks:
            task.cancel()


def _about(controller: Controller, key: Key, **more: object) -> dict[str, object]:
    return {"controller": controller.name, "ns": key[0], "object": key[1], **more}


def _edited(old: JsonObject | None, new: JsonObject | None) -> bool:
    """Whether the object was created, deleted or edited: more than its status is new."""
    if old is None or new is None:
        return True
    before, after = old["metadata"], new["metadata"]
    return any(before.get(field) != after.get(field) for field in _EDITED_FIELDS)


_EDITED_FIELDS = ("uid", "generation", "annotations", "labels", "deletionTimestamp")


def _unique(informers: Iterable[Informer]) -> list[Informer]:
    return list({id(informer): informer for informer in informers}.values())
