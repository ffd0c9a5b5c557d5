"""A console over informers that tests fill: objects in every state, refusals, events, and a server."""

from __future__ import annotations

import socket
import time
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from api.kinds import (
    AIM_ARTIFACT,
    AIM_KINDS,
    AIM_PROFILE,
    AIM_RUNTIME_CONFIG,
    AIM_SERVICE,
    PERSISTENT_VOLUME_CLAIM,
    Kind,
)
from app.application import at_listener, create_application
from app.bind import bind
from app.connections import Bounds
from app.console import make_console
from app.health import health_router
from app.server import LoopServer, serving
from app.settings import Settings
from console.routes import Console, Limits
from reconcile.world import CachedWorld, make_informers
from webhooks.admission import Refusal

NOW = datetime.now(UTC).replace(microsecond=0)
MIB = 2**20
_version = iter(range(1, 10**9))


def stamp(**ago: float) -> str:
    """Return the time this long ago, in the format of the API server."""
    return (NOW - timedelta(**ago)).strftime("%Y-%m-%dT%H:%M:%SZ")


def obj(kind: Kind, namespace: str, name: str, **parts: Any) -> dict[str, Any]:
    """Return an object with metadata."""
    version = next(_version)
    metadata = {
        "namespace": namespace,
        "name": name,
        "uid": f"uid-{kind.plural}-{namespace}-{name}",
        "resourceVersion": str(version),
        "generation": 1,
        "creationTimestamp": parts.pop("created", stamp(hours=5)),
    }
    return {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata, **parts}


def adapter(name: str, state: str = "Loaded", **more: Any) -> dict[str, Any]:
    """Return an entry of status.adapters."""
    found: dict[str, Any] = {"name": name, "state": state, "lastObserved": stamp(minutes=12), "attempts": 1}
    if state in ("Loaded", "Downloaded"):
        found |= {"rank": 16, "sizeBytes": 118 * MIB, "digest": f"sha256:{name}"}
    if state == "Loaded":
        found["loadedReplicas"] = 2
    return found | more


def service(
    namespace: str, name: str, *adapters: dict[str, Any], status: str = "Running", **more: Any
) -> dict[str, Any]:
    """Return a dynamic service with these entries in its status, all of them declared."""
    spec: dict[str, Any] = {
        "profile": {"name": "gemma-3-27b-it-mi300x-bf16"},
        "adapterMode": "dynamic",
        "adapters": [{"name": one["name"], "kind": "AIMArtifact"} for one in adapters],
    }
    told: dict[str, Any] = {
        "status": status,
        "adapters": list(adapters),
        "adapterMaxRank": 32,
        "adapterDiskPersistentVolumeClaim": "gemma-3-27b-it-cache-adapters",
        "runtime": {"currentReplicas": 2, "replicas": "2/2"},
    }
    created = more.pop("created", stamp(hours=5))
    return obj(AIM_SERVICE, namespace, name, created=created, spec=spec | more.pop("spec", {}), status=told | more)


class NoClient:
    """A client without an API server; it answers reviews of tokens by the text of the token."""

    def __init__(self) -> None:
        self.reviews = 0
        self.users = {"good-token": True, "poor-token": False}

    async def create(self, kind: Kind, body: dict[str, Any]) -> dict[str, Any]:
        """Answer a review of a token or of an access."""
        self.reviews += 1
        spec = body["spec"]
        if "token" in spec:
            known = spec["token"] in self.users
            return {"status": {"authenticated": known, "user": {"username": spec["token"]} if known else {}}}
        assert spec["nonResourceAttributes"] == {"path": "/console", "verb": "get"}
        return {"status": {"allowed": self.users[spec["user"]]}}


@dataclass
class Events:
    """Stands in for the follower of events."""

    newest: list[dict[str, Any]] = field(default_factory=list)
    problem: str | None = None


class Scene:
    """Informers, a console over them, and methods that fill both."""

    def __init__(self, *, limits: Limits | None = None, synced: bool = True, **settings: Any) -> None:
        self.client = NoClient()
        self.settings = Settings(console=True, pod_name="aim-adapters-6f7c9-x2x8p", **settings)
        self.informers = make_informers(self.client, reconciling=self.settings.reconciler)  # type: ignore[arg-type]
        self.world = CachedWorld(self.informers)
        self.refusals: deque[Refusal] = deque(maxlen=200)
        self.events = Events()
        self.console: Console = make_console(
            self.settings,
            self.client,  # type: ignore[arg-type]
            self.informers,
            self.world,
            events=self.events,  # type: ignore[arg-type]
            refusals=self.refusals if self.settings.admission else None,
        )
        if limits is not None:
            self.console._limits = limits
        if synced:
            self.sync()

    def sync(self) -> None:
        """Mark the caches as filled."""
        for kind in AIM_KINDS:
            self.informers[kind].synced.set()

    def put(self, *objects: dict[str, Any]) -> None:
        """Store objects as a watch would."""
        kinds = {kind.kind: kind for kind in self.informers}
        for one in objects:
            self.informers[kinds[one["kind"]]].store(one)

    def change(self, namespace: str, name: str, edit: Callable[[dict[str, Any]], None]) -> None:
        """Store a changed copy of a service."""
        import copy

        old = self.informers[AIM_SERVICE].get(namespace, name)
        assert old is not None
        new = copy.deepcopy(old)
        edit(new)
        new["metadata"]["resourceVersion"] = str(next(_version))
        self.put(new)

    def refuse(
        self, name: str, *errors: str, reason: str = "", seconds_ago: float = 0, operation: str = "CREATE"
    ) -> None:
        """Record a refusal as admission does."""
        at = time.time() - seconds_ago
        told = (errors, tuple(reason.split()), len(errors))
        self.refusals.append(Refusal(at, "AIMService", "team-a", name, operation, *told))

    def tell(self, name: str, reason: str, message: str, *, bad: bool = False, **ago: float) -> None:
        """Record an event."""
        self.events.newest = [
            *self.events.newest,
            {
                "type": "Warning" if bad else "Normal",
                "reason": reason,
                "message": message,
                "count": 1,
                "lastTimestamp": stamp(**ago),
                "involvedObject": {"kind": "AIMService", "namespace": "team-a", "name": name},
            },
        ]

    def base(self, namespace: str = "team-a", *, percentage: int | None = None) -> None:
        """Store a profile, a RuntimeConfig, a base model with its adapter disk, and the disk's claim."""
        source = {"modelId": "google/gemma-3-27b-it", "sourceUri": "hf://google/gemma-3-27b-it"}
        status: dict[str, Any] = {"status": "Ready", "adapterPersistentVolumeClaim": "gemma-3-27b-it-cache-adapters"}
        if percentage is not None:
            status = {"status": "Downloading", "progress": {"percentage": percentage}}
        claim = {"phase": "Bound", "capacity": {"storage": "50Gi"}}
        self.put(
            obj(AIM_RUNTIME_CONFIG, namespace, "default", spec={"adapterRuntime": {"maxRank": 32}}),
            obj(
                AIM_PROFILE,
                namespace,
                "gemma-3-27b-it-mi300x-bf16",
                spec={"features": ["adapters"], "modelSources": [source]},
            ),
            obj(AIM_ARTIFACT, namespace, "gemma-3-27b-it-cache", spec={"type": "model"} | source, status=status),
            obj(PERSISTENT_VOLUME_CLAIM, namespace, "gemma-3-27b-it-cache-adapters", status=claim),
        )

    def artifact(self, name: str, rank: int = 16, namespace: str = "team-a") -> None:
        """Store an adapter's artifact."""
        spec = {"type": "adapter", "rank": rank, "sourceUri": f"s3://user:s3cret@bucket/{name}"}
        self.put(obj(AIM_ARTIFACT, namespace, name, spec=spec, status={"adapterPath": name}))

    def many(self, count: int) -> None:
        """Store this many services in all states, in a hundred namespaces."""
        for number in range(count):
            namespace = f"team-{number % 100:02d}"
            if number < 100:
                self.base(namespace)
            self.put(_one_of_many(namespace, number))

    @asynccontextmanager
    async def served(self, port: int = 0, *, send_buffer: int | None = None) -> AsyncIterator[str]:
        """Serve the console on the loopback interface; yields the address of the page.

        Args: `send_buffer`: bytes that the kernel buffers for a client that does not read.
        """
        app = at_listener(create_application(health_router([]), self.console.router()), "health")
        bounds = Bounds(connections=128, request_seconds=5, keep_alive_seconds=60, finish_seconds=1)
        listener = bind("127.0.0.1", port)
        if send_buffer is not None:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer)
        server = LoopServer("health", app, listener, bounds)
        async with serving(server):
            try:
                yield f"http://127.0.0.1:{server.address[1]}/console"
            finally:
                self.console.close()


def _one_of_many(namespace: str, number: int) -> dict[str, Any]:
    name = f"gemma-{number:04d}"
    if number % 97 == 5:
        error = "AdapterRankExceedsCeiling: its real rank 64 is above the ceiling 32"
        entries = [adapter("cs-tone-v3"), adapter("wide-v1", "Failed", lastError=error, attempts=3)]
        return service(namespace, name, *entries, status="Degraded")
    if number % 31 == 3:
        progress = {"percentage": number % 100, "downloadedBytes": number % 100 * MIB, "totalBytes": 100 * MIB}
        return service(namespace, name, adapter("cs-tone-v3"), adapter("sql-v2", "Downloading", progress=progress))
    if number % 53 == 7:
        return service(namespace, name, adapter("cs-tone-v3", "Downloaded"), status="Starting")
    return service(namespace, name, adapter("cs-tone-v3"), adapter(f"sql-v{number % 9}"))
