"""The limits of a connection that uvicorn leaves open: time for a whole request, and head size.

This file, `app/server.py` and `webhooks/fast/protocol.py` are the only ones that use internals of uvicorn.
`tests/unit/app/test_uvicorn_internals.py` fails when one of them changes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from app.connections import REFUSED, Bounds, Connection

MAX_HEAD_BYTES = 64 * 1024  # of a request line and headers; who reads a body limits its size
ABORT = "aim_adapters.abort"
"""An ASGI extension of each request: a function that cuts the connection, including what is not sent yet."""


class BoundedProtocol(HttpToolsProtocol):
    """uvicorn's protocol with limits: a request that does not arrive in time costs its connection."""

    bounds: Bounds
    server_name: str
    draining: Callable[[], bool]
    connection: Connection

    def __init__(self, *args: Any, connection: Connection, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.connection = connection
        self._patience: asyncio.TimerHandle | None = None
        self._idle_between, self._idle_since = False, 0.0
        self._in_head, self._head_bytes, self._read = True, 0, 0  # _read: whole requests so far
        self._arriving = True  # a request, or the first one, is not here as a whole

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin with the clock running: a client that sends nothing is slow too."""
        super().connection_made(transport)  # type: ignore[arg-type] # uvicorn narrows the type
        self.connection.close = self.transport.abort
        self._start_patience()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the clocks, and leave nothing of the connection to the garbage collector, which rarely runs.

        uvicorn's own clock continues after an abrupt end, and holds all that TLS keeps of the connection until then.
        """
        self._stop_patience()
        super().connection_lost(exc)
        if self.timeout_keep_alive_task is not None:
            self.timeout_keep_alive_task.cancel()
        self.cycle = None  # type: ignore[assignment] # it refers back to here; uvicorn too begins with none
        self.connection.ended()
        self.connection.close = _nothing

    def data_received(self, data: bytes) -> None:
        """Start the clock with the first byte after an idle time, unless the whole request is here."""
        if self._idle_between:
            self._idle_between, self._arriving = False, True
        read = self._read
        super().data_received(data)
        if self.transport.is_closing():
            return
        if self._arriving and self._patience is None:
            self._start_patience()
        if self._in_head and self._read == read:
            self._head_bytes += len(data)
            if self._head_bytes > MAX_HEAD_BYTES:
                self._turn_away("head")

    def on_message_begin(self) -> None:
        """Note that a request begins, maybe in the same bytes as the end of another."""
        super().on_message_begin()
        self._idle_between, self._arriving = False, True

    def on_headers_complete(self) -> None:
        """Stop counting the bytes of the head."""
        self._in_head = False
        super().on_headers_complete()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        """Give the application the means to cut the connection; while draining, this answer is the last one."""
        if self.draining():
            cycle.keep_alive = False
        extensions: dict[str, object] = cycle.scope.setdefault("extensions", {})  # type: ignore[assignment]
        extensions[ABORT] = self.transport.abort
        super()._start_asgi_task(cycle, app)

    def on_message_complete(self) -> None:
        """Stop the clock: the request is here, and the rest is the server's time."""
        self._stop_patience()
        self._arriving = False
        self.connection.busy()
        self._in_head, self._head_bytes = True, 0
        self._read += 1
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """Mark the connection idle until the next request begins, unless that is here already.

        In place of uvicorn's own method, which sets and stops a timer for each answer.
        """
        self.server_state.total_requests += 1
        self._stop_patience()
        self._idle_between = True
        self.connection.idle()
        if self.transport.is_closing():
            return
        self.flow.resume_reading()
        if self.pipeline:
            self.connection.busy()
            self._start_asgi_task(*self.pipeline.pop())
            return
        self._idle_since = self.loop.time()
        if self.timeout_keep_alive_task is None:
            self.timeout_keep_alive_handler()

    def timeout_keep_alive_handler(self) -> None:
        """Close a connection that has been idle for too long; look again later at one that has not."""
        self.timeout_keep_alive_task = None
        left = self._idle_since + self.timeout_keep_alive - self.loop.time() if self._idle_between else 0.0
        if left > 0:
            self.timeout_keep_alive_task = self.loop.call_later(left, self.timeout_keep_alive_handler)
        elif self._idle_between:
            super().timeout_keep_alive_handler()

    def _unset_keepalive_if_required(self) -> None:
        """Leave the one timer alone: it checks itself whether the connection is idle."""

    def _start_patience(self) -> None:
        self._stop_patience()
        self._patience = self.loop.call_later(self.bounds.request_seconds, self._turn_away, "slow")

    def _stop_patience(self) -> None:
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None

    def _turn_away(self, reason: str) -> None:
        REFUSED.labels(self.server_name, reason).inc()
        self.transport.abort()


def _nothing() -> None:
    """Close what is closed: the protocol keeps nothing of its transport alive."""
