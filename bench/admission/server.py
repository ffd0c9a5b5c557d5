"""One admission server process, as the product runs it: same server class, same event loop, same caches.

`bare` answers without reading the review: what the server itself costs. `resync` is `rules` while the reconciler goes
over all services again and again in the same process, as it does after a restart or every refresh interval.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import ssl
import sys
import time
from collections.abc import Callable, Coroutine, Iterable
from functools import partial
from pathlib import Path
from typing import Any

import uvloop
from starlette.types import ASGIApp
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from api import view
from api.kinds import AIM_SERVICE, Kind
from api.view import Json
from app.application import at_listener, create_application
from app.bind import bind
from app.connections import Bounds
from app.hugepages import use_huge_pages
from app.memory import rare_collections
from app.server import LoopServer, serving
from kube.cache import Key
from kube.courtesy import Courtesy
from kube.engine import AlwaysLeading, Engine
from kube.informer import Informer
from reconcile.manager import make_reconciler
from reconcile.settings import ReconcileSettings
from reconcile.world import CachedWorld, make_informers
from rules.references import Ref
from rules.world import KIND_BY_NAME
from tests.unit.webhooks import corpus
from webhooks.admission import Admission
from webhooks.fast.admission import FastAdmission, make_admission
from webhooks.fast.protocol import at_once
from webhooks.routes import admission_router

_BARE = b'{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","response":{"uid":"%s","allowed":true}}'


class NoClient:
    """Takes the place of the informers' client: caches are filled from files, and nothing is read."""


class EchoClient:
    """Takes the place of the reconciler's client: every write is accepted and returned at once."""

    def __init__(self) -> None:
        self.informers: dict[Kind, Informer] = {}
        self.writes = 0

    def _stored(self, kind: Kind, namespace: str, name: str, patch: Any) -> dict[str, Any]:
        self.writes += 1
        live = self.informers[kind].get(namespace, name) if kind in self.informers else None
        made: dict[str, Any] = json_merge(live or {"metadata": {"uid": f"uid-{self.writes}"}}, patch)
        made["metadata"]["resourceVersion"] = str(1000 + self.writes)
        if kind in self.informers:
            self.informers[kind].store(made)
        return made

    async def apply(self, kind: Kind, obj: Json, **_: Any) -> dict[str, Any]:
        """Store an object."""
        return self._stored(kind, view.namespace_of(obj), view.name_of(obj), obj)

    create = apply

    async def patch_status(self, kind: Kind, namespace: str | None, name: str, patch: Json) -> dict[str, Any]:
        """Store a status."""
        return self._stored(kind, namespace or "", name, patch)

    async def delete(self, kind: Kind, namespace: str | None, name: str, **_: Any) -> None:
        """Forget the wish."""


def json_merge(under: Any, patch: Any) -> Any:
    """Return a value with a JSON merge patch laid over it."""
    if not isinstance(patch, dict):
        return patch
    kept = {**under} if isinstance(under, dict) else {}
    for key, value in patch.items():
        kept[key] = json_merge(kept.get(key), value)
        if value is None:
            kept.pop(key)
    return kept


class CacheReader:
    """Answers a live read from the cache, after one turn of the event loop: the read's own cost is the API server's."""

    def __init__(self, world: CachedWorld) -> None:
        self._world = world

    async def read(self, ref: Ref) -> Json | None:
        """Return the object."""
        await asyncio.sleep(0)
        return self._world.get(ref.kind, ref.namespace, ref.name)


class Bare:
    """Answers `allowed` after reading the body and the uid in it."""

    def answer_now(self, target: bytes, body: bytearray) -> bytes:
        """Answer what is here as a whole."""
        start = body.find(b'"uid":"') + 7
        return _BARE % body[start : body.find(b'"', start)]

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer what comes in pieces."""
        body, more = bytearray(), True
        while more:
            message = await receive()
            body += message.get("body", b"")
            more = message.get("more_body", False)
        reply = self.answer_now(b"", body)
        headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(reply))]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": reply})


def filled_informers(objects: Iterable[Json], *, reconciling: bool = False) -> dict[Kind, Informer]:
    """Return the product's informers, filled from objects."""
    informers = make_informers(NoClient(), reconciling=reconciling)  # type: ignore[arg-type] # never used
    for informer in informers.values():
        informer.synced.set()
        informer.settled.set()
    for obj in objects:
        kind: Kind = KIND_BY_NAME[obj["kind"]]
        informers[kind].store(dict(obj))
    return informers


async def resync(informers: dict[Kind, Informer], world: CachedWorld, server: LoopServer) -> None:
    """Reconcile all services in a loop; the rate of passes is written to standard error, one line per second."""
    client = EchoClient()
    client.informers = informers
    engine: Engine

    def wake(controller: str, key: Key) -> None:
        engine.enqueue(controller, key)

    reconciler = make_reconciler(
        client,  # type: ignore[arg-type] # all of it that a pass uses
        informers=informers,
        world=world,
        recorder=NoRecorder(),
        settings=ReconcileSettings(),
        wake=wake,
        selected=["service"],
    )
    engine = Engine(reconciler.controllers, [], AlwaysLeading(), courtesy=Courtesy(lambda: server.answered))
    async with asyncio.TaskGroup() as group:
        group.create_task(engine.run_controllers())
        group.create_task(_again_and_again(engine, informers[AIM_SERVICE], client))


async def _again_and_again(engine: Engine, services: Informer, client: EchoClient) -> None:
    begun, writes = time.monotonic(), 0
    while True:
        await asyncio.sleep(0.2)
        if engine.idle:
            took = time.monotonic() - begun
            sys.stderr.write(f"{len(services.cache)} services in {took:.1f} s, {client.writes - writes} writes\n")
            sys.stderr.flush()
            begun, writes = time.monotonic(), client.writes
            for key in list(services.cache):
                engine.enqueue("service", key)


class NoRecorder:
    """Takes the place of the recorder of events."""

    def record(self, *_: Any) -> None:
        """Forget it."""


def context(certs: Path) -> ssl.SSLContext:
    """Return what the product's socket shows."""
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    made.minimum_version = ssl.TLSVersion.TLSv1_2
    made.set_alpn_protocols(["http/1.1"])
    made.load_cert_chain(certs / "tls.crt", certs / "tls.key")
    return made


async def serve(app: ASGIApp, http: type[HttpToolsProtocol], port: int, certs: Path, beside: Beside) -> None:
    """Serve until the process is ended; `beside` runs in the same loop."""
    server = LoopServer("admission", app, bind("127.0.0.1", port), Bounds(), tls=context(certs), http=http)
    async with serving(server):
        sys.stdout.write(f"{server.address[1]}\n")
        sys.stdout.flush()
        await beside(server)


Beside = Callable[[LoopServer], Coroutine[Any, Any, None]]


async def for_ever(_: LoopServer) -> None:
    """Do nothing until cancelled."""
    await asyncio.Event().wait()


def main() -> None:
    """Read the arguments and serve; the port is the first line of the output."""
    parser = argparse.ArgumentParser()
    parser.add_argument("mode", choices=["rules", "bare", "resync"])
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--certs", type=Path, required=True)
    parser.add_argument("--fixtures", type=Path, help="objects to add to the cache (a JSON list)")
    parser.add_argument("--small", action="store_true", help="leave out the thousands of other objects")
    parser.add_argument("--no-confirm", action="store_true")
    parser.add_argument("--plain", action="store_true", help="without the fast path, as --no-fast-path of the product")
    parser.add_argument("--huge-pages", action="store_true", help="as the setting of the product")
    arguments = parser.parse_args()
    beside: Beside = for_ever
    if arguments.mode == "bare":
        app: ASGIApp = Bare()
        http: type[HttpToolsProtocol] = at_once(Bare())
    else:
        objects = corpus.world(*((0, 1, 0) if arguments.small else ()))
        if arguments.fixtures:
            objects += json.loads(arguments.fixtures.read_text())
        informers = filled_informers(objects, reconciling=True)
        world = CachedWorld(informers)
        app, http = admission(world, None if arguments.no_confirm else CacheReader(world), plain=arguments.plain)
        if arguments.mode == "resync":
            beside = partial(resync, informers, world)
    with rare_collections():  # as app/memory.py does once caches are filled
        gc.freeze()
        if arguments.huge_pages:
            use_huge_pages()
        uvloop.run(serve(app, http, arguments.port, arguments.certs, beside))


def admission(
    world: CachedWorld, reader: CacheReader | None, *, plain: bool
) -> tuple[ASGIApp, type[HttpToolsProtocol]]:
    """Return the application on the admission port, and the HTTP protocol under it, as `app/serve.py` makes them."""
    made = (Admission if plain else make_admission)(world, reader)
    app = at_listener(create_application(admission_router(made)), "admission")
    if plain:
        return app, HttpToolsProtocol
    fast = FastAdmission(made, app)
    return fast, at_once(fast)


if __name__ == "__main__":
    main()
