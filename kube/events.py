"""Events on objects: written once, counted when they repeat, never in the way of a pass."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

from api.kinds import EVENT
from api.names import short_hash
from api.text import clean
from api.view import JsonObject
from kube import metrics
from kube.client import Client
from kube.errors import ApiError, NotFound, NotLeading

log = logging.getLogger(__name__)


AGGREGATION_SECONDS = 600.0  # the same event within this time is counted, not written again
MAX_WAITING = 1_000  # events that may wait to be written; the newest are dropped beyond it
MAX_REMEMBERED = 4_096  # events whose repetition is recognised
RATE_PER_SECOND = 10.0
BURST = 50.0
MESSAGE_LIMIT = 1_024  # bytes; source: core/v1 Event validation

_Identity = tuple[str, str, str, str]  # uid, type, reason, message


@dataclass(slots=True)
class _Series:
    """One event as it is stored, and how often it happened since."""

    name: str
    namespace: str
    about: JsonObject
    type: str
    reason: str
    message: str
    first_at: str
    last_at: str
    touched: float  # monotonic
    count: int = 1
    written: int = 0  # the count that the API server knows
    queued: bool = False


class EventRecorder:
    """Collects events and writes them at a bounded rate while `run` runs."""

    def __init__(
        self,
        client: Client,
        *,
        component: str = "aim-adapters",
        instance: str = "",
        default_namespace: str = "default",
        rate_per_second: float = RATE_PER_SECOND,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._client = client
        self._component, self._instance = component, instance or component
        self._default_namespace = default_namespace
        self._rate = rate_per_second
        self._clock, self._now = clock, now
        self._series: OrderedDict[_Identity, _Series] = OrderedDict()
        self._waiting: list[_Series] = []
        self._wake = asyncio.Event()
        self._tokens = BURST
        self._refilled_at = clock()

    def record(self, obj: JsonObject, type_: str, reason: str, message: str) -> None:
        """Note an event about an object. Returns at once and never raises.

        Args: `type_` is Normal or Warning; `reason` a CamelCase word; `message` is cut at 1,024 bytes. `obj` needs
        apiVersion, kind and metadata (name, namespace, uid).
        """
        message = clean(message, MESSAGE_LIMIT).encode()[:MESSAGE_LIMIT].decode(errors="ignore")
        metadata = obj.get("metadata") or {}
        identity = (str(metadata.get("uid") or metadata.get("name")), type_, reason, message)
        now = self._clock()
        stamp = self._now().strftime("%Y-%m-%dT%H:%M:%SZ")
        series = self._series.get(identity)
        if series is None or now - series.touched > AGGREGATION_SECONDS:
            series = self._begin(obj, identity, stamp, now)
        else:
            series.count += 1
            series.last_at, series.touched = stamp, now
        self._series.move_to_end(identity)
        self._enqueue(series)

    async def run(self) -> None:
        """Write what was recorded, until cancelled."""
        while True:
            await self._wake.wait()
            await self._write_waiting()

    async def flush(self, *, within: float = 2.0) -> None:
        """Write what still waits, as far as the time goes: for the end of the process."""
        try:
            async with asyncio.timeout(within):
                await self._write_waiting()
        except TimeoutError:
            metrics.EVENTS_DROPPED.inc(len(self._waiting))

    def _begin(self, obj: JsonObject, identity: _Identity, stamp: str, now: float) -> _Series:
        metadata = obj.get("metadata") or {}
        name = str(metadata.get("name") or "")
        about = {
            "apiVersion": obj.get("apiVersion", ""),
            "kind": obj.get("kind", ""),
            "namespace": metadata.get("namespace", ""),
            "name": name,
            "uid": metadata.get("uid", ""),
        }
        series = _Series(
            name=f"{name[:200]}.{short_hash(*identity, self._instance, f'{now}', length=16)}",
            namespace=str(metadata.get("namespace") or self._default_namespace),
            about={key: value for key, value in about.items() if value},
            type=identity[1],
            reason=identity[2],
            message=identity[3],
            first_at=stamp,
            last_at=stamp,
            touched=now,
        )
        self._series[identity] = series
        while len(self._series) > MAX_REMEMBERED:
            self._series.popitem(last=False)
        return series

    def _enqueue(self, series: _Series) -> None:
        if series.queued:
            return
        if len(self._waiting) >= MAX_WAITING:
            metrics.EVENTS_DROPPED.inc()
            return
        series.queued = True
        self._waiting.append(series)
        self._wake.set()

    async def _write_waiting(self) -> None:
        while self._waiting:
            await self._take_token()
            series = self._waiting.pop(0)
            series.queued = False
            try:
                await self._write(series)
            except (ApiError, NotLeading) as error:  # the next leader reports what it sees
                metrics.EVENTS_DROPPED.inc()
                log.warning("an event could not be written", extra={"reason": series.reason, "error": str(error)})
        self._wake.clear()

    async def _write(self, series: _Series) -> None:
        count = series.count
        if series.written:
            patch = {"count": count, "lastTimestamp": series.last_at}
            try:
                await self._client.patch_merge(EVENT, series.namespace, series.name, patch)
            except NotFound:  # the API server forgets events after an hour
                await self._client.create(EVENT, self._body(series))
        else:
            await self._client.create(EVENT, self._body(series))
        series.written = count

    def _body(self, series: _Series) -> JsonObject:
        return {
            "apiVersion": EVENT.api_version,
            "kind": EVENT.kind,
            "metadata": {"name": series.name, "namespace": series.namespace},
            "involvedObject": series.about,
            "type": series.type,
            "reason": series.reason,
            "message": series.message,
            "count": series.count,
            "firstTimestamp": series.first_at,
            "lastTimestamp": series.last_at,
            "source": {"component": self._component},
            "reportingComponent": self._component,
            "reportingInstance": self._instance,
        }

    async def _take_token(self) -> None:
        now = self._clock()
        self._tokens = min(BURST, self._tokens + (now - self._refilled_at) * self._rate)
        self._refilled_at = now
        if self._tokens < 1:
            await asyncio.sleep((1 - self._tokens) / self._rate)
            self._tokens, self._refilled_at = 1.0, self._clock()
        self._tokens -= 1
