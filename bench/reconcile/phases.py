"""When each service came from one step to the next, and what was stored on the way, as a bare watcher sees it."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from api import view
from api.kinds import AIM_ARTIFACT, AIM_SERVICE, EVENT, INFERENCE_SERVICE, JOB, POD, Kind
from api.names import LABEL_ROLE, LABEL_SERVICE, ROLE_STAGING, ROLE_SUBTREE_SYNC
from api.view import Json
from bench.reconcile.stand_ins import Outside
from kube.client import Client
from kube.errors import ApiError

STEPS = ("created", "sync Job", "synced", "staging Jobs", "staged", "recorded")
_ENDED_POD = ("Succeeded", "Failed")


@dataclass(slots=True)
class Phases:
    """Follows the services of a namespace with a number of adapters each. All moments are monotonic seconds."""

    client: Client
    outside: Outside
    place: str
    adapters: int
    moments: dict[str, dict[str, float]] = field(default_factory=dict)  # service -> step -> when it last was reached
    samples: dict[str, Any] = field(default_factory=dict)  # what one service led to, for the floor
    settled: set[str] = field(default_factory=set)
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    @asynccontextmanager
    async def watched(self) -> AsyncIterator[None]:
        """Watch until the end of the block."""
        task = asyncio.create_task(self._follow())
        self.outside.listeners.append(self._told)
        try:
            yield
        finally:
            self.outside.listeners.remove(self._told)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def all_settled(self, count: int, *, within: float) -> float:
        """Wait until this many services have what they want; return when the last one got it. Raises: TimeoutError."""
        async with asyncio.timeout(within):
            while len(self.settled) < count:
                self.changed.clear()
                await self.changed.wait()
        return max(self.moments[name]["recorded"] for name in self.settled)

    async def collect(self) -> dict[str, Any]:
        """Return the samples, with those objects that are still stored."""
        isvcs, _ = await self.client.list_all(INFERENCE_SERVICE, self.place)
        events, _ = await self.client.list_all(EVENT, self.place)
        told = [event for event in events if (view.text(event, "reason") or "").startswith("Adapter")]
        found = self.samples | {"isvc": isvcs[:1], "event": told[:1]}
        if self.adapters:
            name = view.text(view.items(self.samples["statuses"][0], "adapters")[0], "name") or ""
            found["artifact"] = view.mapping(await self.client.get(AIM_ARTIFACT, self.place, name), "status")
        return found

    def table(self) -> dict[str, dict[str, float]]:
        """Return by step: seconds since the step before, median and largest over all services."""
        rows = {}
        for before, step in pairwise(STEPS):
            took = [at[step] - at[before] for at in self.moments.values() if step in at and before in at]
            if took:
                rows[step] = {"p50_s": statistics.median(took), "max_s": max(took)}
        return rows

    async def _follow(self) -> None:
        version = ""
        while True:
            try:
                if not version:
                    _, version = await self.client.list_all(AIM_SERVICE, self.place)
                async for event in self.client.watch(AIM_SERVICE, version, self.place):
                    version = view.text(event.object, "metadata", "resourceVersion") or version
                    self._service(event.type, event.object)
            except ApiError:
                version = ""
                await asyncio.sleep(0.05)

    def _told(self, kind: Kind, type_: str, obj: Json) -> None:
        if view.namespace_of(obj) == self.place and kind in (JOB, POD):
            (self._job if kind == JOB else self._pod)(type_, obj)

    def _reached(self, service: str, step: str) -> None:
        self.moments.setdefault(service, {})[step] = time.monotonic()

    def _service(self, type_: str, service: Json) -> None:
        name, status = view.name_of(service), view.mapping(service, "status")
        if type_ == "ADDED":
            self._reached(name, "created")
        if self.samples.setdefault("service", name) == name and status:
            self.samples.setdefault("statuses", []).append(dict(status))
        wanted = f"{self.adapters}/{self.adapters}" if self.adapters else None
        if name not in self.settled and status.get("status") == "Starting" and status.get("adapterSummary") == wanted:
            self._reached(name, "recorded")
            self.settled.add(name)
            self.changed.set()

    def _job(self, type_: str, job: Json) -> None:
        role, service = (
            view.text(job, "metadata", "labels", LABEL_ROLE),
            view.text(job, "metadata", "labels", LABEL_SERVICE),
        )
        if type_ == "ADDED" and service is not None and role in _JOB_STEPS:
            self.samples.setdefault(role, job)
            self._reached(service, _JOB_STEPS[role])

    def _pod(self, type_: str, pod: Json) -> None:
        role, service = (
            view.text(pod, "metadata", "labels", LABEL_ROLE),
            view.text(pod, "metadata", "labels", LABEL_SERVICE),
        )
        if type_ == "MODIFIED" and service is not None and role in _POD_STEPS and _just_ended(pod):
            self._reached(service, _POD_STEPS[role])


_JOB_STEPS = {ROLE_SUBTREE_SYNC: "sync Job", ROLE_STAGING: "staging Jobs"}
_POD_STEPS = {ROLE_SUBTREE_SYNC: "synced", ROLE_STAGING: "staged"}


def _just_ended(pod: Json) -> bool:
    """Whether the pod has ended and the Job controller has not counted it yet."""
    return (
        view.text(pod, "status", "phase") in _ENDED_POD
        and view.dig(pod, "metadata", "deletionTimestamp") is None
        and bool(view.items(pod, "metadata", "finalizers"))
    )
