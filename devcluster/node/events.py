"""Events about pods, as `kubectl describe` shows them: the same thing again raises a counter."""

from __future__ import annotations

import asyncio
import logging
import time

from api.view import JsonObject
from devcluster.by_path import Kube
from devcluster.node.status import timestamp
from devcluster.paths import path_for
from kube.errors import ApiError, NotFound

log = logging.getLogger(__name__)

_REMEMBERED = 1000  # events that may still be counted up
_QUEUE = 1000  # what a server that is away lets pile up; more is dropped


class Events:
    """Writes events one after the other, in a task of its own, so that no caller waits."""

    def __init__(self, kube: Kube, node: str) -> None:
        self._kube = kube
        self._node = node
        self._queue: asyncio.Queue[tuple[JsonObject, str, str, str, str]] = asyncio.Queue(_QUEUE)
        self._known: dict[tuple[str, str, str, str], tuple[str, int]] = {}  # → (name, count)

    def normal(self, pod: JsonObject, reason: str, message: str, *, container: str = "") -> None:
        """Post a Normal event."""
        self._put(pod, "Normal", reason, message, container)

    def warning(self, pod: JsonObject, reason: str, message: str, *, container: str = "") -> None:
        """Post a Warning event."""
        self._put(pod, "Warning", reason, message, container)

    def _put(self, pod: JsonObject, kind: str, reason: str, message: str, container: str) -> None:
        try:
            self._queue.put_nowait((pod, kind, reason, message[:1000], container))
        except asyncio.QueueFull:
            log.warning("event dropped: %s about pod %s", reason, pod["metadata"]["name"])

    async def run(self) -> None:
        """Write events until cancelled."""
        while True:
            pod, kind, reason, message, container = await self._queue.get()
            try:
                await self._write(pod, kind, (reason, message, container))
            except ApiError as error:  # a terminating namespace takes no events
                log.info("event %s not written: %s", reason, error)

    async def _write(self, pod: JsonObject, kind: str, what: tuple[str, str, str]) -> None:
        meta = pod["metadata"]
        key = (meta["uid"], *what)
        now = timestamp()
        known = self._known.get(key)
        collection = path_for("v1", "events", meta["namespace"])
        if known is not None:
            name, count = known
            try:
                await self._kube.patch(f"{collection}/{name}", {"count": count + 1, "lastTimestamp": now})
            except ApiError as error:
                if not isinstance(error, NotFound):
                    raise
            else:
                self._known[key] = (name, count + 1)
                return
        event = render_event(pod, kind, what, node=self._node, now=now)
        await self._kube.create(collection, event)
        self._known[key] = (event["metadata"]["name"], 1)
        while len(self._known) > _REMEMBERED:
            self._known.pop(next(iter(self._known)))


def render_event(pod: JsonObject, kind: str, what: tuple[str, str, str], *, node: str, now: str) -> JsonObject:
    """Return the Event object; `what` is (reason, message, container or "")."""
    meta = pod["metadata"]
    reason, message, container = what
    involved = {
        "apiVersion": "v1",
        "kind": "Pod",
        "name": meta["name"],
        "namespace": meta["namespace"],
        "uid": meta["uid"],
        "resourceVersion": meta.get("resourceVersion", ""),
    }
    if container:
        involved["fieldPath"] = f"spec.containers{{{container}}}"
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": f"{meta['name'][:200]}.{time.time_ns():x}", "namespace": meta["namespace"]},
        "involvedObject": involved,
        "type": kind,
        "reason": reason,
        "message": message,
        "source": {"component": "kubelet", "host": node},
        "reportingComponent": "kubelet",
        "reportingInstance": node,
        "firstTimestamp": now,
        "lastTimestamp": now,
        "count": 1,
    }
