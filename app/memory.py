"""Keeps cached objects where they hinder nobody: out of the garbage collector's sight, and on huge pages."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import time
from collections.abc import Iterator, Sequence

from app.hugepages import use_huge_pages
from kube.informer import Informer

log = logging.getLogger(__name__)

_GC_THRESHOLDS = (10_000, 5, 400)  # a look at the young holds the loop for 5 ms at most; a full one is rare
_FREEZE_SECONDS = 0.2  # while caches are filled
_REFREEZE_SECONDS = 900.0  # between two walks over what is young, where little came; two moves, where much did
_LOOK_SECONDS = 1.0
_MANY_CHANGES = 300  # of cached objects: a walk over what came with them takes some milliseconds
_MOVE_SECONDS = 60.0  # from filled caches to the first look for memory to put onto huge pages, and between two
_CALM_SECONDS = 3.0  # with few changes only: then it is done
_FEW_CHANGES = 30


@contextlib.contextmanager
def rare_collections() -> Iterator[None]:
    """Let the garbage collector look rarely while a block runs, and at nothing that `gc.freeze` was told of."""
    before = gc.get_threshold()
    gc.set_threshold(*_GC_THRESHOLDS)
    try:
        yield
    finally:
        gc.unfreeze()
        gc.set_threshold(*before)


async def tend_memory(informers: Sequence[Informer], *, huge_pages: bool = False) -> None:
    """Move what lives long out of the garbage collector's sight: a walk over full caches would stall the loop.

    Reference counts go on freeing what is replaced; cycles among frozen objects would stay, and parsed JSON has
    none, nor has a request (an answer that is an error leaves ten objects). Thresholds do not bound a walk: what
    replaces as much as it adds is never counted. Runs until cancelled.
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
        gc.collect()  # walks over what is younger than the last freeze only: the later, the longer


async def _move_again_and_again(informers: Sequence[Informer]) -> None:
    """Put memory onto huge pages in calm moments: for some milliseconds the loop waits for what is being moved."""
    known, moved_at = -1, time.monotonic()  # not while the first passes are made
    while True:
        before = _changes(informers)
        await asyncio.sleep(_CALM_SECONDS)
        changes, now = _changes(informers), time.monotonic()
        patience = _MOVE_SECONDS if changes - before <= _FEW_CHANGES else _REFREEZE_SECONDS
        if changes != known and now - moved_at >= patience:
            moved = await asyncio.to_thread(use_huge_pages)
            log.debug("memory lies on huge pages", extra={"bytes": moved})
            known, moved_at = changes, now


def _changes(informers: Sequence[Informer]) -> int:
    return sum(informer.changes for informer in informers)
