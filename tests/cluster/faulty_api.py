"""A proxy in front of the API server that answers instead of it, delays answers, or cuts connections.

It speaks plain HTTP on loopback and forwards requests as the administrator.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import re
import ssl
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

import aiohttp
from aiohttp import web

from tests.cluster.engine_plane import Plane

_HOP_BY_HOP = frozenset({"connection", "keep-alive", "transfer-encoding", "content-length", "host", "content-encoding"})
_KUBECONFIG = {
    "apiVersion": "v1",
    "kind": "Config",
    "users": [{"name": "u", "user": {"token": "none-is-looked-at"}}],
    "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
    "current-context": "x",
}


@dataclass
class Faults:
    """What happens to requests now. `matching`: only requests whose path contains it."""

    statuses: tuple[int, ...] = ()  # one of them is the answer; empty: requests are forwarded
    delay: tuple[float, float] = (0.0, 0.0)  # seconds, minimum and maximum, before a request and each piece of a watch
    matching: str = ""


@dataclass
class FaultyApi:
    """A proxy that runs during its `async with` block."""

    plane: Plane
    faults: Faults = field(default_factory=Faults)
    spoilt: int = 0  # answered instead of the API server
    delayed: int = 0
    _open: set[web.StreamResponse] = field(default_factory=set)
    _random: random.Random = field(default_factory=lambda: random.Random(7))

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, ssl=self._administrator()),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=5),
            auto_decompress=False,
        )
        app = web.Application(client_max_size=2**24)
        app.router.add_route("*", "/{path:.*}", self._handle)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.5, handler_cancellation=True)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self.port: int = self._runner.addresses[0][1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self.cut()
        await self._runner.cleanup()
        await self._session.close()

    def kubeconfig(self, folder: Path) -> Path:
        """Write a kubeconfig with this server."""
        cluster = {"name": "c", "cluster": {"server": f"http://127.0.0.1:{self.port}"}}
        path = folder / "kubeconfig-faulty"
        path.write_text(json.dumps({**_KUBECONFIG, "clusters": [cluster]}))
        return path

    def cut(self) -> None:
        """Reset all open answers, mainly watches."""
        for response in list(self._open):
            with contextlib.suppress(AttributeError):
                response._req.transport.abort()  # type: ignore[union-attr] # no public way to a reset

    def _administrator(self) -> ssl.SSLContext:
        pki = self.plane.folder / "pki"
        context = ssl.create_default_context(cafile=str(pki / "ca.crt"))
        context.load_cert_chain(str(pki / "admin.crt"), str(pki / "admin.key"))
        return context

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        faults = self.faults
        if re.search(faults.matching, request.path):
            if faults.delay[1]:
                self.delayed += 1
                await self._wait()
            if faults.statuses:
                self.spoilt += 1
                return self._spoilt(self._random.choice(faults.statuses))
        return await self._pass_on(request)

    def _spoilt(self, status: int) -> web.Response:
        """Return an error as API servers and proxies before them send it: a Status object, or a page."""
        if self._random.random() < 0.3:
            return web.Response(status=status, text=f"<html><h1>{status}</h1></html>", content_type="text/html")
        told = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": "made by a test", "code": status}
        return web.json_response(told, status=status)

    async def _pass_on(self, request: web.Request) -> web.StreamResponse:
        headers = {name: value for name, value in request.headers.items() if name.lower() not in _HOP_BY_HOP}
        headers.pop("Authorization", None)
        url = f"{self.plane.server}{request.raw_path}"
        try:
            async with self._session.request(
                request.method, url, headers=headers, data=await request.read() or None, allow_redirects=False
            ) as answer:
                kept = {name: value for name, value in answer.headers.items() if name.lower() not in _HOP_BY_HOP}
                if "Content-Encoding" in answer.headers:
                    kept["Content-Encoding"] = answer.headers["Content-Encoding"]
                response = web.StreamResponse(status=answer.status, headers=kept)
                self._open.add(response)
                try:
                    await response.prepare(request)
                    async for piece in answer.content.iter_any():
                        if "watch=true" in request.query_string and re.search(self.faults.matching, request.path):
                            await self._wait()
                        await response.write(piece)
                    await response.write_eof()
                finally:
                    self._open.discard(response)
                return response
        except aiohttp.ClientConnectorError:
            return web.Response(status=502, text="the API server is away")
        except (aiohttp.ClientError, OSError):
            if request.transport is not None:
                request.transport.abort()
            raise asyncio.CancelledError from None

    async def _wait(self) -> None:
        if self.faults.delay[1]:
            await asyncio.sleep(self._random.uniform(*self.faults.delay))
