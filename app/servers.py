"""Two servers on one event loop: admission over TLS, health and metrics in plain HTTP.

uvicorn speaks HTTP; what it leaves open is bounded here: time for a handshake and for a whole request, connections,
reviews in work. During the end every answer says `Connection: close`, so that the API server's pool lets go of its
connections by itself: one that we close may be in use at that very moment.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, MutableMapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from email.utils import formatdate
from typing import Any

import uvicorn
from prometheus_client import Counter, Gauge
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from webhooks.fast.direct import EXTENSION, AnswersAtOnce
from webhooks.fast.outbox import Outbox

log = logging.getLogger(__name__)

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
AsgiApp = Callable[[Scope, Receive, Send], Awaitable[None]]

CONNECTIONS = Gauge("aim_adapters_server_connections", "Open connections.", ["server"])
REFUSED = Counter(
    "aim_adapters_server_refused_total",
    "Connections and requests turned away: too many connections, too many reviews in work, too slow, too long a head.",
    ["server", "reason"],
)
RETRY_AFTER_SECONDS = 1
MAX_HEAD_BYTES = 64 * 1024  # of a request line and headers; bodies are bounded by who reads them


@dataclass(frozen=True, slots=True)
class Bounds:
    """Limits of one server; times in seconds."""

    connections: int = 1024
    in_flight: int = 256
    request_seconds: float = 10.0  # for a handshake, and for a whole request to arrive
    keep_alive_seconds: float = 120.0
    finish_seconds: float = 5.0  # for requests in work, once the server is told to end


_JSON_HEAD = b"content-type: application/json\r\ncontent-length: %d\r\n\r\n"


class DirectCycle:
    """The short way for one request (see `webhooks.fast.direct`): past ASGI's messages, straight to uvicorn's cycle."""

    __slots__ = ("_cycle", "begun")

    def __init__(self, cycle: RequestResponseCycle, begun: object | None) -> None:
        self._cycle = cycle
        self.begun = begun

    def whole_body(self) -> bytearray | None:
        """Return the body if all of it is here and nobody began to read it."""
        cycle = self._cycle
        if cycle.more_body or cycle.disconnected or cycle.response_started:
            return None
        body, cycle.body = cycle.body, bytearray()
        return body

    def answer_json(self, body: bytes) -> bool:
        """Write head and body at once and end the response, unless something makes it an unusual one."""
        cycle = self._cycle
        if not cycle.keep_alive or cycle.disconnected or cycle.response_started or cycle.flow.write_paused:
            return False
        cycle.response_started = cycle.response_complete = True
        cycle.transport.write(_whole_answer(cycle.default_headers, body))
        cycle.message_event.set()
        cycle.on_response()
        return True

    def abort(self) -> None:
        """Cut the connection, what is not sent yet included."""
        self._cycle.transport.abort()


def _whole_answer(default_headers: list[tuple[bytes, bytes]], body: bytes) -> bytes:
    head = [b"HTTP/1.1 200 OK\r\n"]
    for name, value in default_headers:
        head += (name, b": ", value, b"\r\n")
    return b"".join((*head, _JSON_HEAD % len(body), body))


class BoundedProtocol(HttpToolsProtocol):
    """uvicorn's protocol with an end to patience: a request that does not arrive in time costs its connection.

    A POST that is here as a whole is offered to the application at once, past ASGI, its task and its timers; whatever
    it does not answer at once begins the usual way a moment later.
    """

    bounds: Bounds
    server_name: str
    draining: Callable[[], bool]
    at_once: AnswersAtOnce | None
    outbox: Outbox

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._patience: asyncio.TimerHandle | None = None
        self._idle_between, self._idle_since = False, 0.0
        self._in_head, self._head_bytes = True, 0
        self._arriving = True  # a request, or the first one, is not here as a whole
        self._offered: bytearray | None = None  # the body so far of a request that may be answered at once
        self._waits = False  # it is here as a whole, and answered in this turn of the loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin with the clock running: a client that says nothing is slow too."""
        super().connection_made(transport)  # type: ignore[arg-type] # uvicorn narrows the type
        CONNECTIONS.labels(self.server_name).set(len(self.connections))
        if len(self.connections) > self.bounds.connections:
            self._turn_away("connections")
            return
        self._start_patience()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the clocks, and leave nothing of the connection to the garbage collector, which rarely comes.

        uvicorn's own clock goes on after an abrupt end, and keeps all that TLS has of the connection for so long.
        """
        self._stop_patience()
        super().connection_lost(exc)
        if self.timeout_keep_alive_task is not None:
            self.timeout_keep_alive_task.cancel()
        self.cycle = None  # type: ignore[assignment] # it leads back here; uvicorn too begins with none
        CONNECTIONS.labels(self.server_name).set(len(self.connections))

    def data_received(self, data: bytes) -> None:
        """The first byte after an idle time starts the clock for the next request, unless that is all here."""
        if self._idle_between:
            self._idle_between, self._arriving = False, True
        answered = self.server_state.total_requests
        super().data_received(data)
        if self.transport.is_closing():
            return
        if self._offered is not None and not self._waits:
            self._begin(None)
        if self._arriving and self._patience is None:
            self._start_patience()
        if self._in_head and self.server_state.total_requests == answered:
            self._head_bytes += len(data)
            if self._head_bytes > MAX_HEAD_BYTES:
                self._turn_away("head")

    def on_message_begin(self) -> None:
        """A request begins, maybe in the same breath as the end of another, which is answered first."""
        if self._waits:
            self.outbox.flush()
        super().on_message_begin()
        self._idle_between, self._arriving = False, True

    def on_headers_complete(self) -> None:
        """Begin with what is nothing for an answer at once; else see first whether the body is here too."""
        self._in_head = False
        self._offered = bytearray()
        if not self._is_plain_post():
            self._begin(None)

    def _is_plain_post(self) -> bool:
        """Whether nothing but the body decides if the request can be answered at once: no end, no queue, no extras."""
        return (
            self.at_once is not None
            and self.parser.get_method() == b"POST"
            and self.parser.get_http_version() == "1.1"
            and self.parser.should_keep_alive()
            and not self.parser.should_upgrade()
            and not self.expect_100_continue
            and not self.flow.write_paused
            and not self.draining()
            and (self.cycle is None or self.cycle.response_complete)
        )

    def _begin(self, begun: object | None) -> None:
        """Begin the usual way, with what is here of the body. The last answer on a connection says that it is it."""
        body, self._offered = self._offered, None
        super().on_headers_complete()
        if self.draining():
            self.cycle.keep_alive = False
        self.cycle.scope["extensions"] = {EXTENSION: DirectCycle(self.cycle, begun)}  # type: ignore[dict-item] # ours
        if body:
            super().on_body(bytes(body))

    def on_body(self, body: bytes) -> None:
        """Collect what may be answered at once."""
        if self._offered is None:
            super().on_body(body)
        else:
            self._offered += body

    def on_message_complete(self) -> None:
        """The request is here; from now on it is our time."""
        self._stop_patience()
        self._arriving = False
        if self._offered is None:
            super().on_message_complete()
        else:
            self._waits = True
            self.outbox.ask(self.loop, self)

    def answer(self) -> bytes | None:
        """Answer what is here as a whole at once; None if that begins the usual way, or nobody is there any more."""
        self._waits = False
        if self._offered is None or self.at_once is None or self.transport.is_closing():
            return None
        answer = self.at_once.answer_now(self.url, self._offered)
        if isinstance(answer, bytes):
            self._offered = None
            self.on_response_complete()
            return _whole_answer(self.server_state.default_headers, answer)
        try:
            self._begin(answer)
            super().on_message_complete()
        except Exception:  # a target that is none: in the parser's own time uvicorn answers so
            self.send_400_response("Invalid HTTP request received.")
        return None

    def on_response_complete(self) -> None:
        """Idle until the next request begins, unless it is here already.

        In place of uvicorn's own, which sets and stops a clock for each answer.
        """
        self.server_state.total_requests += 1
        self._stop_patience()
        self._idle_between = True
        self._in_head, self._head_bytes = True, 0
        if self.transport.is_closing():
            return
        self.flow.resume_reading()
        if self.pipeline:
            self._start_asgi_task(*self.pipeline.pop())
            return
        self._idle_since = self.loop.time()
        if self.timeout_keep_alive_task is None:
            self.timeout_keep_alive_handler()

    def timeout_keep_alive_handler(self) -> None:
        """End a connection that has been idle for too long; one that is not is looked at again when it may be."""
        self.timeout_keep_alive_task = None
        left = self._idle_since + self.timeout_keep_alive - self.loop.time() if self._idle_between else 0.0
        if left > 0:
            self.timeout_keep_alive_task = self.loop.call_later(left, self.timeout_keep_alive_handler)
        elif self._idle_between:
            super().timeout_keep_alive_handler()

    def _unset_keepalive_if_required(self) -> None:
        """Leave the one clock alone: it looks for itself whether the connection is idle."""

    def _start_patience(self) -> None:
        self._stop_patience()
        self._patience = self.loop.call_later(self.bounds.request_seconds, self._turn_away, "slow")

    def _stop_patience(self) -> None:
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None

    def eof_received(self) -> None:
        """The other side has said all: what it asked is answered before the connection ends."""
        self.outbox.flush()
        super().eof_received()

    def send_400_response(self, msg: str) -> None:
        """Answer what is no HTTP, after what was answered before, and end the connection."""
        self.outbox.flush()
        super().send_400_response(msg)

    def shutdown(self) -> None:
        """End the connection, now or with its last answer."""
        self.outbox.flush()
        super().shutdown()

    def _turn_away(self, reason: str) -> None:
        REFUSED.labels(self.server_name, reason).inc()
        self.transport.abort()


class LoopServer(uvicorn.Server):
    """One of several uvicorn servers on a loop that somebody else owns: no signal handlers, no exit, no polling."""

    def __init__(
        self,
        name: str,
        app: AsgiApp,
        listener: socket.socket,
        bounds: Bounds,
        *,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.name = name
        self.address: tuple[str, int] = listener.getsockname()[:2]  # host and port
        self.draining = False
        self._bounds, self._tls, self._listener = bounds, tls, listener
        self._end = asyncio.Event()
        protocol = type(
            "Protocol",
            (BoundedProtocol,),
            {
                "bounds": bounds,
                "server_name": name,
                "draining": staticmethod(lambda: self.draining),
                "at_once": app if isinstance(app, AnswersAtOnce) else None,
                "outbox": Outbox(),
            },
        )
        super().__init__(
            uvicorn.Config(
                _limit_in_flight(app, name, bounds.in_flight),
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
        """Listen, with a limit to the time of a TLS handshake, which uvicorn does not offer."""
        await self.lifespan.startup()
        config, state = self.config, self.server_state

        def protocol() -> asyncio.Protocol:
            made: asyncio.Protocol = config.http_protocol_class(  # type: ignore[call-arg]
                config=config, server_state=state, app_state=self.lifespan.state
            )
            return made

        patience = self._bounds.request_seconds if self._tls is not None else None
        server = await asyncio.get_running_loop().create_server(
            protocol,
            sock=self._listener,
            ssl=self._tls,
            backlog=config.backlog,
            ssl_handshake_timeout=patience,
            ssl_shutdown_timeout=1.0 if self._tls is not None else None,
        )
        self.servers = [server]
        self.started = True

    async def main_loop(self) -> None:
        """Keep the Date header fresh until told to end."""
        while not self._end.is_set():
            self.server_state.default_headers = [(b"date", formatdate(usegmt=True).encode())]
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._end.wait(), 1.0)

    @property
    def answered(self) -> int:
        """Requests answered so far."""
        return self.server_state.total_requests

    def drain(self) -> None:
        """From now on each answer is the last one of its connection."""
        self.draining = True

    def finish(self) -> None:
        """Stop listening, end what is in work, return from `serve`."""
        self.draining = True
        self._end.set()


@asynccontextmanager
async def serving(*servers: LoopServer) -> AsyncIterator[None]:
    """Run servers around a block; they listen when it begins. Ends them in order, last started first."""
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


def bind(address: str, port: int) -> socket.socket:
    """Return a bound TCP socket. `::` takes IPv4 too, and becomes 0.0.0.0 where IPv6 is off.

    Raises: OSError, whose text names address and port.
    """
    if address == "::":
        try:
            return _bind(socket.AF_INET6, address, port)
        except OSError as error:
            if _ipv6_works():
                raise _named(error, address, port) from error
            address = "0.0.0.0"  # noqa: S104 - what `::` means without IPv6
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        return _bind(family, address, port)
    except OSError as error:
        raise _named(error, address, port) from error


def _bind(family: int, address: str, port: int) -> socket.socket:
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        sock.bind((address, port))
        sock.setblocking(False)
    except OSError:
        sock.close()
        raise
    return sock


def _ipv6_works() -> bool:
    try:
        _bind(socket.AF_INET6, "::1", 0).close()
    except OSError:
        return False
    return True


def _named(error: OSError, address: str, port: int) -> OSError:
    return OSError(error.errno, f"cannot listen on {address} port {port}: {error.strerror}")


def _limit_in_flight(app: AsgiApp, name: str, limit: int) -> AsgiApp:
    """Answer 503 with Retry-After beyond `limit` requests in work: better now than after the caller gave up."""
    in_work = 0

    async def limited(scope: Scope, receive: Receive, send: Send) -> None:
        nonlocal in_work
        if scope["type"] != "http" or in_work < limit:
            in_work += 1
            try:
                await app(scope, receive, send)
            finally:
                in_work -= 1
                scope.pop("extensions", None)  # which leads back to the scope: nothing is left to the garbage collector
            return
        REFUSED.labels(name, "in_flight").inc()
        headers = [(b"retry-after", str(RETRY_AFTER_SECONDS).encode())]
        await answer(send, 503, "too many requests in work; try again\n", headers)

    return limited


async def answer(send: Send, status: int, text: str | bytes, headers: list[tuple[bytes, bytes]] | None = None) -> None:
    """Send a whole answer; plain text unless the headers say otherwise."""
    body = text.encode() if isinstance(text, str) else text
    given = headers or []
    if not any(name == b"content-type" for name, _ in given):
        given = [(b"content-type", b"text/plain; charset=utf-8"), *given]
    length = (b"content-length", str(len(body)).encode())
    await send({"type": "http.response.start", "status": status, "headers": [*given, length]})
    await send({"type": "http.response.body", "body": body})
