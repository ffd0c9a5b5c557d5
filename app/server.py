"""A uvicorn server that shares its event loop with others: no signal handlers, no exit, no polling.

While a server drains, every answer carries `Connection: close`, so that the API server's pool closes its own
connections. A connection that this side closes may be in use at that moment.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from email.utils import formatdate

import uvicorn
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from app.connections import Acceptor, Bounds, Connection
from app.protocol import BoundedProtocol


class LoopServer(uvicorn.Server):
    """One of several uvicorn servers on an event loop that the process owns.

    Args: `http` is the HTTP protocol under the bounds: uvicorn's own, or a subclass that answers faster.
    """

    def __init__(
        self,
        name: str,
        app: ASGIApp,
        listener: socket.socket,
        bounds: Bounds,
        *,
        tls: ssl.SSLContext | None = None,
        http: type[HttpToolsProtocol] = HttpToolsProtocol,
    ) -> None:
        self.name = name
        self.address: tuple[str, int] = listener.getsockname()[:2]  # host and port
        self.draining = False
        self._bounds, self._tls, self._listener = bounds, tls, listener
        self._end = asyncio.Event()
        protocol = type(
            "Protocol",
            (BoundedProtocol, http),
            {"bounds": bounds, "server_name": name, "draining": staticmethod(lambda: self.draining)},
        )
        super().__init__(
            uvicorn.Config(
                _without_extensions_afterwards(app),
                http=protocol,
                ws="none",
                lifespan="off",
                log_config=None,
                access_log=False,
                server_header=False,
                proxy_headers=False,
                timeout_keep_alive=max(1, round(bounds.keep_alive_seconds)),
                timeout_graceful_shutdown=max(1, round(bounds.finish_seconds)),
                interface="asgi3",
            )
        )

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals to the process."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen, with limits that uvicorn does not offer (`app.connections`)."""
        await self.lifespan.startup()
        config, state = self.config, self.server_state

        def protocol(connection: Connection) -> asyncio.Protocol:
            made: asyncio.Protocol = config.http_protocol_class(  # type: ignore[call-arg]
                config=config, server_state=state, app_state=self.lifespan.state, connection=connection
            )
            return made

        acceptor = Acceptor(self.name, self._listener, self._bounds, protocol, tls=self._tls, backlog=config.backlog)
        self.servers = [acceptor]  # type: ignore[list-item] # uvicorn closes it
        self.started = True

    async def main_loop(self) -> None:
        """Keep the Date header fresh until the server is asked to finish."""
        while not self._end.is_set():
            self.server_state.default_headers = [(b"date", formatdate(usegmt=True).encode())]
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._end.wait(), 1.0)

    @property
    def answered(self) -> int:
        """Requests answered so far."""
        return self.server_state.total_requests

    def drain(self) -> None:
        """Make each answer the last one of its connection from now on."""
        self.draining = True

    def finish(self) -> None:
        """Stop listening, let requests in work end, return from `serve`."""
        self.draining = True
        self._end.set()


def _without_extensions_afterwards(app: ASGIApp) -> ASGIApp:
    """Drop the extensions of a request when it ends.

    They refer to the connection, which refers to the request: a cycle that only the garbage collector, which rarely
    runs here, would free.
    """

    async def served(scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await app(scope, receive, send)
        finally:
            scope.pop("extensions", None)

    return served


@asynccontextmanager
async def serving(*servers: LoopServer) -> AsyncIterator[None]:
    """Run servers around a block; they listen when it begins. All are asked to finish when it ends."""
    tasks = [asyncio.create_task(server.serve(), name="server") for server in servers]
    try:
        while not all(server.started for server in servers):
            for task in tasks:
                if task.done():
                    task.result()
            await asyncio.sleep(0.005)
        yield
    finally:
        for server in servers:
            server.finish()
        await asyncio.gather(*tasks, return_exceptions=True)
