"""One admission server process, as the product runs it: same server class, same event loop, same caches.

`bare` answers without reading the review: what the server itself costs.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import ssl
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import uvloop

from api.kinds import Kind
from api.view import Json
from app.servers import AsgiApp, Bounds, LoopServer, bind, serving
from bench.admission import corpus
from reconcile.informers import CachedWorld, make_informers
from rules.resolve import Ref
from rules.world import KIND_BY_NAME
from webhooks.direct import direct_of
from webhooks.routes import create_app

_BARE = b'{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","response":{"uid":"%s","allowed":true}}'


class NoClient:
    """Stands where informers keep their client: caches are filled from files, nothing is ever read."""


class CacheReader:
    """Answers a live read from the cache, after one turn of the event loop: the read's own cost is the API server's."""

    def __init__(self, world: CachedWorld) -> None:
        self._world = world

    async def read(self, ref: Ref) -> Json | None:
        """Return the object."""
        await asyncio.sleep(0)
        return self._world.get(ref.kind, ref.namespace, ref.name)


async def bare(scope: Any, receive: Any, send: Any) -> None:
    """Answer `allowed` after reading the body and the uid in it."""
    direct = direct_of(scope)
    body = bytearray((direct.whole_body() if direct is not None else None) or b"")
    while not body:
        message = await receive()
        body += message.get("body", b"")
        if not message.get("more_body"):
            break
    start = body.find(b'"uid":"') + 7
    reply = _BARE % body[start : body.find(b'"', start)]
    if direct is not None and direct.answer_json(reply):
        return
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(reply))]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": reply})


def filled_world(objects: Iterable[Json]) -> CachedWorld:
    """Return the informers' own world, filled from objects."""
    informers = make_informers(NoClient(), reconciling=False)  # type: ignore[arg-type] # never used
    for informer in informers.values():
        informer.synced.set()
    for obj in objects:
        kind: Kind = KIND_BY_NAME[obj["kind"]]
        informers[kind].store(dict(obj))
    return CachedWorld(informers)


def context(certs: Path) -> ssl.SSLContext:
    """Return what the product's socket shows."""
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    made.minimum_version = ssl.TLSVersion.TLSv1_2
    made.set_alpn_protocols(["http/1.1"])
    made.load_cert_chain(certs / "tls.crt", certs / "tls.key")
    return made


async def serve(app: AsgiApp, port: int, certs: Path) -> None:
    """Serve until the process is told to end."""
    server = LoopServer("admission", app, bind("127.0.0.1", port), Bounds(), tls=context(certs))
    async with serving(server):
        sys.stdout.write(f"{server.address[1]}\n")
        sys.stdout.flush()
        await asyncio.Event().wait()


def main() -> None:
    """Read the arguments and serve; the port is the first line of the output."""
    parser = argparse.ArgumentParser()
    parser.add_argument("mode", choices=["rules", "bare"])
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--certs", type=Path, required=True)
    parser.add_argument("--fixtures", type=Path, help="objects to add to the cache (a JSON list)")
    parser.add_argument("--small", action="store_true", help="leave out the thousands of other objects")
    parser.add_argument("--no-confirm", action="store_true")
    arguments = parser.parse_args()
    app: AsgiApp = bare
    if arguments.mode == "rules":
        objects = corpus.world(*((0, 1, 0) if arguments.small else ()))
        if arguments.fixtures:
            objects += json.loads(arguments.fixtures.read_text())
        world = filled_world(objects)
        app = create_app(world, None if arguments.no_confirm else CacheReader(world))
    gc.freeze()
    gc.set_threshold(20_000, 50, 100)
    uvloop.run(serve(app, arguments.port, arguments.certs))


if __name__ == "__main__":
    main()
