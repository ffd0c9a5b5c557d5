"""Makes ClusterIPs work: listens on each Service's address and forwards to a ready pod.

EndpointSlices refuse loopback addresses, so the pods are chosen by the Service's selector. It runs inside the process
node, which knows at once which of them are ready. It does no UDP, no node ports and no session affinity.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, cast

from api.view import JsonObject
from devcluster.by_path import Kube

log = logging.getLogger(__name__)

_CONNECT_S = 2.0
_HIGH_WATER_BYTES = 1 << 20  # of what one side has not taken yet, before the other is paused
_BACKLOG = 512


@dataclass(frozen=True, slots=True)
class Backend:
    """A pod that may take traffic: its address, and its containers for the names of their ports."""

    ip: str
    containers: Sequence[JsonObject]

    def port(self, target: int | str) -> int | None:
        """Return the port's number, None when no container names such a port."""
        if isinstance(target, int) or target.isdigit():
            return int(target)
        named = (p for c in self.containers for p in c.get("ports") or [] if p.get("name") == target)
        return next((int(p["containerPort"]) for p in named), None)


class Backends(Protocol):
    """Who knows the pods."""

    def __call__(self, namespace: str, selector: Mapping[str, str], *, unready: bool = False) -> list[Backend]:
        """Return the pods that a Service may send to now."""


@dataclass(frozen=True, slots=True)
class Listening:
    """One place that must be listened on, and where it leads."""

    address: str
    port: int
    namespace: str
    service: str
    selector: tuple[tuple[str, str], ...]
    target: int | str
    unready: bool  # publishNotReadyAddresses


def matches(selector: Mapping[str, str], labels: Mapping[str, str]) -> bool:
    """Return whether labels match a Service's selector; an empty selector matches nothing."""
    return bool(selector) and all(labels.get(k) == v for k, v in selector.items())


def wanted_listenings(service: JsonObject) -> list[Listening]:
    """Return where a Service must be listened on: TCP ports of loopback ClusterIPs, if it selects pods."""
    spec, meta = service["spec"], service["metadata"]
    address = spec.get("clusterIP") or ""
    if not address.startswith("127.") or not spec.get("selector"):
        return []
    return [
        Listening(
            address=address,
            port=int(port["port"]),
            namespace=meta["namespace"],
            service=meta["name"],
            selector=tuple(sorted(spec["selector"].items())),
            target=port.get("targetPort", port["port"]),
            unready=bool(spec.get("publishNotReadyAddresses")),
        )
        for port in spec.get("ports") or []
        if port.get("protocol", "TCP") == "TCP"
    ]


class Turns:
    """Round robin: each call starts one further."""

    def __init__(self) -> None:
        self._next = 0

    def order(self, backends: list[Backend]) -> list[Backend]:
        """Return all backends, beginning with the one whose turn it is."""
        if not backends:
            return []
        self._next = (self._next + 1) % len(backends)
        return backends[self._next :] + backends[: self._next]


class _Side(asyncio.Protocol):
    """One end of a forwarded connection: what it receives goes to the other end, once there is one."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self.other: _Side | None = None
        self.ended = False  # it sends no more
        self._early: list[bytes] = []  # received before the other end was there

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)  # uvloop's own class is none by inheritance
        self.transport.set_write_buffer_limits(high=_HIGH_WATER_BYTES)

    def data_received(self, data: bytes) -> None:
        if self.other is None:
            self._early.append(data)
            self._quietly(lambda t: t.pause_reading())
        elif self.other.transport:
            self.other.transport.write(data)

    def eof_received(self) -> bool:
        self.ended = True
        return self.other is None or self._pass_end(self.other)

    def join(self, other: _Side) -> None:
        """Learn the other end and give it what came early."""
        self.other = other
        if other.transport:
            other.transport.writelines(self._early)
        self._early = []
        if self.ended:
            self._pass_end(other)
        self._quietly(lambda t: t.resume_reading())

    def _pass_end(self, other: _Side) -> bool:
        """Close the sending direction to the other end; return whether this end stays open for the other direction."""
        other._quietly(lambda t: t.write_eof())
        if other.ended:
            other._quietly(lambda t: t.close())
            return False
        return True

    def pause_writing(self) -> None:
        if self.other:
            self.other._quietly(lambda t: t.pause_reading())

    def resume_writing(self) -> None:
        if self.other:
            self.other._quietly(lambda t: t.resume_reading())

    def connection_lost(self, exc: Exception | None) -> None:
        if self.other:
            self.other._quietly(lambda t: t.close())

    def _quietly(self, act: Callable[[asyncio.Transport], object]) -> None:
        """Act on the transport; a closing transport is ignored."""
        if self.transport:
            with contextlib.suppress(OSError, RuntimeError):
                act(self.transport)


class _Front(_Side):
    """The client's end: looks for a pod as soon as it is connected."""

    def __init__(
        self, connect: Callable[[], Coroutine[Any, Any, _Side | None]], tasks: set[asyncio.Task[None]]
    ) -> None:
        super().__init__()
        self._connect = connect
        self._tasks = tasks

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        task = asyncio.get_running_loop().create_task(self._find_pod())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _find_pod(self) -> None:
        assert self.transport is not None
        back = await self._connect()
        if back is None or back.transport is None:
            self.transport.abort()
        elif self.transport.is_closing():
            back.transport.abort()
        else:
            self.join(back)
            back.join(self)


class ServiceProxy:
    """Listens for every Service of the cluster."""

    def __init__(self, kube: Kube, backends: Backends) -> None:
        self._kube = kube
        self._backends = backends
        self._wanted: dict[str, list[Listening]] = {}  # by the Service's uid
        self._open: dict[tuple[str, int], tuple[Listening, asyncio.Server]] = {}
        self._told: set[tuple[str, int]] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Follow Services until cancelled."""
        try:
            async with contextlib.aclosing(self._kube.watch("/api/v1/services")) as events:
                async for kind, service in events:
                    if kind == "SYNCED":
                        continue
                    uid = service["metadata"]["uid"]
                    if kind == "DELETED":
                        self._wanted.pop(uid, None)
                    else:
                        self._wanted[uid] = wanted_listenings(service)
                    await self._reconcile()
        finally:
            self.close()

    def close(self) -> None:
        """Stop listening."""
        for _, server in self._open.values():
            server.close()
        self._open.clear()
        for task in self._tasks:
            task.cancel()

    async def _reconcile(self) -> None:
        wanted = {(one.address, one.port): one for many in self._wanted.values() for one in many}
        for place, (listening, server) in list(self._open.items()):
            if wanted.get(place) != listening:
                server.close()
                del self._open[place]
        for place, listening in wanted.items():
            if place not in self._open:
                await self._listen(place, listening)

    async def _listen(self, place: tuple[str, int], listening: Listening) -> None:
        turns = Turns()
        loop = asyncio.get_running_loop()
        try:
            server = await loop.create_server(
                lambda: _Front(lambda: self._connect(listening, turns), self._tasks), *place, backlog=_BACKLOG
            )
        except OSError as error:
            if place not in self._told:
                hint = " (ports below 1024 need root here)" if place[1] < 1024 and os.geteuid() != 0 else ""
                log.warning(
                    "cannot listen for Service %s/%s on %s:%d: %s%s",
                    listening.namespace,
                    listening.service,
                    *place,
                    error.strerror or error,
                    hint,
                )
                self._told.add(place)
            return
        self._told.discard(place)
        self._open[place] = (listening, server)

    async def _connect(self, listening: Listening, turns: Turns) -> _Side | None:
        """Connect to the next pod that takes the connection, None when none does."""
        loop = asyncio.get_running_loop()
        backends = self._backends(listening.namespace, dict(listening.selector), unready=listening.unready)
        for backend in turns.order(backends):
            port = backend.port(listening.target)
            if port is None:
                continue
            with contextlib.suppress(OSError, TimeoutError):
                async with asyncio.timeout(_CONNECT_S):
                    _, side = await loop.create_connection(_Side, backend.ip, port)
                return side
        return None
