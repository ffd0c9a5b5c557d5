"""Leader election by a coordination.k8s.io Lease: one process writes, the others wait.

No clock but our own is trusted: a candidate counts the lease's duration from the moment at which it saw it change, a
holder from the moment before its last renewal was sent. The holder's count therefore ends first, and it ends
`WRITE_MARGIN` earlier for writes, so that the last one has landed before anybody else can begin.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from api.kinds import LEASE
from api.names import LEASE_NAME
from api.view import JsonObject
from kube import metrics
from kube.client import Client
from kube.errors import AlreadyExists, ApiError, Conflict, NotFound

log = logging.getLogger(__name__)

Clock = Callable[[], float]

DURATION = timedelta(seconds=15)  # of the lease, as written in it
RENEW_PERIOD = timedelta(seconds=3)
WRITE_MARGIN = timedelta(seconds=3)  # writes end this long before the lease
_IN_ORDER = ("stopped", "released")
DRIFT = 0.02  # clocks of two machines may run at speeds that differ by this part


def boot_time() -> float:
    """Return monotonic seconds that also count while the machine is suspended (a paused virtual machine)."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()


@dataclass(frozen=True, slots=True)
class SeenLease:
    """A lease as this process last saw it. `changed_at` is our own clock when its content last differed."""

    holder: str
    duration: float  # seconds
    content: tuple[str, str, str]  # holder, renewTime, resourceVersion: any difference is a sign of life
    changed_at: float
    obj: JsonObject


def see(obj: JsonObject, before: SeenLease | None, now: float, default_duration: float) -> SeenLease:
    """Return what a Lease object means, given what was seen before."""
    spec = obj.get("spec") or {}
    holder = str(spec.get("holderIdentity") or "")
    content = (holder, str(spec.get("renewTime") or ""), str(obj["metadata"].get("resourceVersion") or ""))
    unchanged = before is not None and before.content == content
    duration = spec.get("leaseDurationSeconds")
    return SeenLease(
        holder=holder,
        duration=float(duration) if isinstance(duration, int) and duration > 0 else default_duration,
        content=content,
        changed_at=before.changed_at if unchanged and before is not None else now,
        obj=obj,
    )


def may_take(seen: SeenLease | None, identity: str, now: float) -> bool:
    """Return whether a candidate may write its name into the lease: it is free, its own, or its holder fell silent."""
    if seen is None or not seen.holder or seen.holder == identity:
        return True
    return now - seen.changed_at > seen.duration * (1 + DRIFT)


class Lease:
    """Takes part in the election while `run` runs. It is a `Guard` for a client's writes.

    Args: `identity` must be unique to this process (host name and a random part), also across its restarts.
    """

    def __init__(
        self,
        client: Client,
        namespace: str,
        identity: str,
        *,
        name: str = LEASE_NAME,
        duration: timedelta = DURATION,
        renew_period: timedelta = RENEW_PERIOD,
        write_margin: timedelta = WRITE_MARGIN,
        clock: Clock = boot_time,
    ) -> None:
        if not renew_period + write_margin < duration:
            raise ValueError("a lease must last longer than its renew period and its write margin together")
        self.identity = identity
        self._client = client
        self._namespace, self._name = namespace, name
        self._duration = duration.total_seconds()
        self._renew_period = renew_period.total_seconds()
        self._margin = write_margin.total_seconds()
        self._clock = clock
        self._seen: SeenLease | None = None
        self._exists = False  # a lease that was deleted is still honoured for as long as it would have lasted
        self._writes_until = float("-inf")
        self._held = asyncio.Event()
        self._lost = asyncio.Event()
        self._lost.set()

    # What others ask

    @property
    def holder(self) -> str:
        """Who held the lease when it was last looked at; "" for no one."""
        return self._seen.holder if self._seen is not None else ""

    @property
    def is_held(self) -> bool:
        """True while this process may write."""
        return self.remaining() > 0

    def remaining(self) -> float:
        """Return the seconds for which writes are allowed; zero or less: none."""
        return self._writes_until - self._clock()

    async def wait_held(self) -> None:
        """Return as soon as this process holds the lease."""
        await self._held.wait()

    async def wait_lost(self) -> None:
        """Return as soon as this process does not hold the lease any more."""
        await self._lost.wait()

    # The election

    async def run(self) -> None:
        """Try to take the lease, renew it, try again when it is lost; until cancelled. Does not release it."""
        try:
            while True:
                held = await self._try_once()
                await self._sleep(held)
        finally:
            self._drop("stopped")

    async def release(self, *, within: float = 3.0) -> None:
        """Give the lease up, so that another process can start at once. Call it when all writes have ended."""
        self._drop("released")
        try:
            try:
                await self._give_up(within)
            except Conflict:  # a renewal was cut while it was under way: the server may have taken it
                await self._look()
                await self._give_up(within)
        except ApiError as error:
            log.warning("the lease could not be released; it expires automatically", extra={"error": str(error)})

    async def _give_up(self, within: float) -> None:
        """Replace our name in the lease, as last seen, by none. Raises: those of `kube.errors`."""
        seen = self._seen
        if seen is None or seen.holder != self.identity:
            return
        spec = {**seen.obj.get("spec", {}), "holderIdentity": "", "leaseDurationSeconds": 1, "renewTime": _micro_now()}
        await self._client.put(LEASE, {**seen.obj, "spec": spec}, within=within)

    async def _try_once(self) -> bool:
        """Look at the lease and take or renew it if we may. Returns whether we hold it now."""
        try:
            if self._seen is None or self._seen.holder != self.identity:
                await self._look()
            if not may_take(self._seen, self.identity, self._clock()):
                self._drop("held by another")
                return False
            return await self._write()
        except (AlreadyExists, Conflict, NotFound):
            await self._look_quietly()  # someone was quicker, edited it, or deleted it: see who
        except ApiError as error:
            log.warning("the lease could not be read or written", extra={"error": str(error)})
        self._check()
        return self.is_held

    async def _look(self) -> None:
        obj = await self._client.find(LEASE, self._namespace, self._name, within=self._renew_period * 2)
        self._exists = obj is not None
        if obj is not None:
            self._seen = see(obj, self._seen, self._clock(), self._duration)

    async def _look_quietly(self) -> None:
        try:
            await self._look()
        except ApiError as error:
            log.warning("the lease could not be read", extra={"error": str(error)})

    async def _write(self) -> bool:
        """Create or replace the lease for this process; the resource version ensures that no one was quicker."""
        sent_at = self._clock()
        body = self._body()
        if not self._exists:
            obj = await self._client.create(LEASE, body, within=self._renew_period * 2)
        else:
            obj = await self._client.put(LEASE, body, within=self._renew_period * 2)
        self._seen, self._exists = see(obj, self._seen, self._clock(), self._duration), True
        self._writes_until = sent_at + self._duration * (1 - DRIFT) - self._margin
        if not self._held.is_set() and self.is_held:
            log.info("took the lease", extra={"holder": self.identity})
            self._lost.clear()
            self._held.set()
            metrics.LEADER.set(1)
        self._check()
        return self.is_held

    def _body(self) -> JsonObject:
        now = _micro_now()
        old: JsonObject = (self._seen.obj.get("spec") or {}) if self._seen is not None else {}
        changes_hands = old.get("holderIdentity") != self.identity
        transitions = old.get("leaseTransitions") or 0
        spec = {
            **old,
            "holderIdentity": self.identity,
            "leaseDurationSeconds": max(1, round(self._duration)),
            "renewTime": now,
            "acquireTime": now if changes_hands else old.get("acquireTime", now),
            "leaseTransitions": transitions + 1 if changes_hands and self._seen is not None else transitions,
        }
        if self._seen is not None and self._exists:
            return {**self._seen.obj, "spec": spec}
        metadata = {"namespace": self._namespace, "name": self._name}
        return {"apiVersion": LEASE.api_version, "kind": LEASE.kind, "metadata": metadata, "spec": spec}

    def _check(self) -> None:
        if self._held.is_set() and not self.is_held:
            self._drop("could not be renewed in time")

    def _drop(self, why: str) -> None:
        """Stop writing now."""
        self._writes_until = float("-inf")
        if self._held.is_set():
            level = logging.INFO if why in _IN_ORDER else logging.WARNING
            log.log(level, "the lease is not held any more", extra={"why": why, "holder": self.holder})
        self._held.clear()
        self._lost.set()
        metrics.LEADER.set(0)

    async def _sleep(self, held: bool) -> None:
        """Wait for the next try. A holder notices the moment at which its time is over, whatever the server does."""
        period = self._renew_period * (0.8 + 0.4 * random.random())  # noqa: S311 - jitter
        if held and self.remaining() < period:
            period = max(0.05, min(period, self.remaining()))
        await asyncio.sleep(period)
        self._check()


def _micro_now() -> str:
    """Return the time as a MicroTime; for people only, no code reads it."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
