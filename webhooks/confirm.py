"""A refusal that rests on another object is confirmed by reading that object live: a cache may be behind."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import Protocol

from api import view
from api.errors import FieldWarning
from api.view import Json
from rules.references import Ref
from rules.verdict import Finding, Verdict
from rules.world import Address, World, address
from rules.worlds import OverlayWorld

log = logging.getLogger(__name__)

_MOST_ROUNDS = 3
"""A fresh object may lead to others (profiles, bases). After this many rounds the rest stays unconfirmed."""
_MOST_AT_ONCE = 16
_UNCONFIRMED_WEIGHT = 1

Judge = Callable[[World], Verdict]


class ConfirmReader(Protocol):
    """Reads single objects from the API server, past every cache."""

    async def read(self, ref: Ref) -> Json | None:
        """Return the object, None if it does not exist. Raises any exception if the read fails."""
        ...


async def confirm(
    judge: Judge, verdict: Verdict, world: World, reader: ConfirmReader, budget_seconds: float
) -> Verdict:
    """Return the verdict over the objects as they are stored now.

    Findings that rest on an object which could not be read in time become warnings: the reconciler judges them later.
    Args: `judge` returns the verdict for a `World`; `budget_seconds` bounds all reads together.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + budget_seconds
    fresh: dict[Address, Json | None] = {}
    for _ in range(_MOST_ROUNDS):
        wanted = {ref for ref in _rests_on(verdict.findings) if _key(ref) not in fresh}
        left = deadline - loop.time()
        if not wanted or left <= 0:
            break
        read = await _read_all(reader, wanted, left)
        fresh.update(read)
        if any(not _same(world.get(ref.kind, ref.namespace, ref.name), read.get(_key(ref))) for ref in wanted):
            verdict = judge(OverlayWorld(world, fresh))
        if len(read) < len(wanted):
            break
    return _without_unconfirmed(verdict, fresh)


def _same(cached: Json | None, read: Json | None) -> bool:
    """Whether a live read shows what the cache shows: one object at one resource version, or none."""
    if cached is None or read is None:
        return cached is read
    return (view.uid_of(cached), _resource_version(cached)) == (view.uid_of(read), _resource_version(read)) != ("", "")


def _resource_version(obj: Json) -> str:
    """metadata.resourceVersion, or the empty string."""
    return view.text(obj, "metadata", "resourceVersion") or ""


def needs_confirmation(verdict: Verdict) -> bool:
    """Whether a refusal rests on anything but the manifest."""
    return any(finding.rests_on for finding in verdict.findings)


def _rests_on(findings: Iterable[Finding]) -> set[Ref]:
    return {ref for finding in findings for ref in finding.rests_on}


def _key(ref: Ref) -> Address:
    return address(ref.kind, ref.namespace, ref.name)


async def _read_all(reader: ConfirmReader, refs: set[Ref], seconds: float) -> dict[Address, Json | None]:
    """Read in parallel what can be read in time; what failed is not in the result."""
    read = reader.read if len(refs) <= _MOST_AT_ONCE else _gated(reader)
    if len(refs) == 1:  # nearly always: no task of its own for it
        (ref,) = refs
        return await _read_one(read, ref, seconds)
    found: dict[Address, Json | None] = {}
    for one in await asyncio.gather(*(_read_one(read, ref, seconds) for ref in refs)):
        found.update(one)
    return found


async def _read_one(
    read: Callable[[Ref], Awaitable[Json | None]], ref: Ref, seconds: float
) -> dict[Address, Json | None]:
    """Return what was read by its address; nothing where that failed, or took too long."""
    try:
        async with asyncio.timeout(seconds):
            return {_key(ref): await read(ref)}
    except Exception as error:
        log.info("live read failed", extra={"ref": str(_key(ref)), "error": type(error).__name__})
        return {}


def _gated(reader: ConfirmReader) -> Callable[[Ref], Awaitable[Json | None]]:
    gate = asyncio.Semaphore(_MOST_AT_ONCE)

    async def read(ref: Ref) -> Json | None:
        async with gate:
            return await reader.read(ref)

    return read


def _without_unconfirmed(verdict: Verdict, fresh: dict[Address, Json | None]) -> Verdict:
    kept: list[Finding] = []
    warnings = list(verdict.warnings)
    for finding in verdict.findings:
        if all(_key(ref) in fresh for ref in finding.rests_on):
            kept.append(finding)
        else:
            error = finding.error
            detail = f"could not be confirmed now and is judged again later: {error.detail}"
            warnings.append(FieldWarning(error.path, error.reason, detail, _UNCONFIRMED_WEIGHT))
    return Verdict(tuple(kept), tuple(warnings), verdict.failures)
