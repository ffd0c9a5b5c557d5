"""Memory of cached objects: its budget, and how the garbage collector and huge pages treat it."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from api.quantity import parse_quantity
from app.hugepages import use_huge_pages
from kube import metrics
from kube.budget import CacheBudget
from kube.informer import Informer

log = logging.getLogger(__name__)

_GC_THRESHOLDS = (10_000, 5, 400)  # a collection of young objects blocks the loop for 5 ms at most; a full one is rare
_FREEZE_SECONDS = 0.2  # while caches are filled
_REFREEZE_SECONDS = 900.0  # between two freezes while little changes, and between two moves while much changes
_LOOK_SECONDS = 1.0
_MANY_CHANGES = 300  # of cached objects: a collection of what came with them takes some milliseconds
_MOVE_SECONDS = 60.0  # from filled caches to the first move onto huge pages, and between two moves
_CALM_SECONDS = 3.0  # with few changes: then memory is moved
_FEW_CHANGES = 30


_LIMIT_FILES = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")  # cgroup v2, v1
_NO_LIMIT = 2**50  # bytes; cgroup v1 writes a number near 2**63 where no limit is set


def make_budget(setting: str | None) -> CacheBudget:
    """Return the budget of all caches: the setting `cacheBudget`, else half of the container's memory limit."""
    wanted = parse_quantity(setting)
    limit = int(wanted) if wanted is not None else _half(container_limit())
    metrics.CACHE_BUDGET.set(limit or 0)
    return CacheBudget(limit)


def container_limit(files: Sequence[str] = _LIMIT_FILES) -> int | None:
    """Return the memory limit of this container in bytes, None where there is none or it cannot be read."""
    for path in files:
        with contextlib.suppress(OSError, ValueError):
            limit = int(Path(path).read_text(encoding="ascii"))  # `max` is not a number: no limit
            return limit if limit < _NO_LIMIT else None
    return None


def _half(limit: int | None) -> int | None:
    return None if limit is None else limit // 2


@contextlib.contextmanager
def rare_collections() -> Iterator[None]:
    """Let the garbage collector run rarely during a block, and never over frozen objects."""
    before = gc.get_threshold()
    gc.set_threshold(*_GC_THRESHOLDS)
    try:
        yield
    finally:
        gc.unfreeze()
        gc.set_threshold(*before)


async def tend_memory(informers: Sequence[Informer], *, huge_pages: bool = False) -> None:
    """Hide long-lived objects from the garbage collector: a walk over full caches would stall the loop.

    Reference counts still free what is replaced. Cycles among frozen objects would stay, but neither parsed JSON nor a
    request on the fast path has any. Thresholds do not limit a walk: they do not count replaced objects.
    Runs until cancelled.
    """
    with rare_collections():
        while not all(informer.settled.is_set() for informer in informers):
            gc.freeze()
            await asyncio.sleep(_FREEZE_SECONDS)
        log.info("caches are filled", extra={"objects": sum(len(informer.cache) for informer in informers)})
        async with asyncio.TaskGroup() as group:
            group.create_task(_freeze_again_and_again(informers))
            if huge_pages:
                group.create_task(_move_again_and_again(informers))


async def _freeze_again_and_again(informers: Sequence[Informer]) -> None:
    while True:
        gc.freeze()
        known = _changes(informers)
        for _ in range(int(_REFREEZE_SECONDS / _LOOK_SECONDS)):
            await asyncio.sleep(_LOOK_SECONDS)
            if _changes(informers) - known >= _MANY_CHANGES:
                break
        gc.collect()  # walks only over objects newer than the last freeze: the later, the longer


async def _move_again_and_again(informers: Sequence[Informer]) -> None:
    """Move memory onto huge pages while little changes: the loop waits some milliseconds for what is being moved."""
    known, moved_at = -1, time.monotonic()  # not during the first passes
    while True:
        before = _changes(informers)
        await asyncio.sleep(_CALM_SECONDS)
        changes, now = _changes(informers), time.monotonic()
        patience = _MOVE_SECONDS if changes - before <= _FEW_CHANGES else _REFREEZE_SECONDS
        if changes != known and now - moved_at >= patience:
            moved = await asyncio.to_thread(use_huge_pages)
            log.debug("moved memory onto huge pages", extra={"bytes": moved})
            known, moved_at = changes, now


def _changes(informers: Sequence[Informer]) -> int:
    return sum(informer.changes for informer in informers)
