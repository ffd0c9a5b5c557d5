"""The connections of one server, from accept on: how many there may be, and which one gives way to a new one.

uvicorn's own listener makes a TLS object for each TCP connection at once, 50 KB that a client gets without sending a
byte. Here a connection is a plain socket until its first byte arrives. The oldest connection without a request in work
is closed when there are too many, of its address or in all. So a client that asks something gets an answer, whatever
others hold open, and so do the probes of a kubelet.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import socket
import ssl
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from prometheus_client import Counter, Gauge

log = logging.getLogger(__name__)

CONNECTIONS = Gauge("aim_adapters_server_connections", "Open connections from accept on, by server.", ["server"])
REFUSED = Counter(
    "aim_adapters_server_refused_total",
    "Connections closed without an answer, by server and reason: connections (too many are open; the oldest without a "
    "request in work is closed), address (the same, of one client address), busy (too many are open and all have a "
    "request in work), slow (a handshake or a request did not arrive in time), head (the request line and headers are "
    "too long), files (the process has no file descriptor left).",
    ["server", "reason"],
)
_ACCEPTED_AT_ONCE = 64  # in one turn of the loop
_PAUSE_SECONDS = 0.1  # without accepting, when the process has no file descriptor left
_NO_FILES = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


@dataclass(frozen=True, slots=True)
class Bounds:
    """Limits of one server; times in seconds."""

    connections: int = 1024
    per_address: int = 1024  # connections of one client address
    request_seconds: float = 10.0  # for the first byte, for a handshake, and for a whole request to arrive
    keep_alive_seconds: float = 120.0
    finish_seconds: float = 5.0  # for requests in work, once the server is asked to finish


class Connection:
    """One connection. `close` ends it at once; it changes while the connection grows from a socket to a protocol."""

    __slots__ = ("_all", "address", "close")

    def __init__(self, connections: Connections, address: str, close: Callable[[], None]) -> None:
        self._all = connections
        self.address = address
        self.close = close

    def busy(self) -> None:
        """A request is here as a whole and is worked on: the connection does not give way."""
        self._all.set_busy(self)

    def idle(self) -> None:
        """No request is in work: from now on the connection may give way."""
        self._all.set_idle(self)

    def ended(self) -> None:
        """The connection is closed. May be called more than once."""
        self._all.remove(self)


class Connections:
    """Counts the connections of one server and chooses which of them gives way."""

    def __init__(self, server: str, bounds: Bounds) -> None:
        self._server, self._bounds = server, bounds
        self._idle: OrderedDict[Connection, None] = OrderedDict()  # the one that is idle for longest first
        self._by_address: dict[str, OrderedDict[Connection, bool]] = {}  # to whether it is idle; idle longest first
        self._count = 0
        self._gauge = CONNECTIONS.labels(server)

    def __len__(self) -> int:
        return self._count

    def admit(self, address: str, close: Callable[[], None]) -> Connection | None:
        """Register a new connection and return it, or None if there is no room. The oldest idle one may be closed."""
        if not (self._room_for(address) and self._room_in_all()):
            REFUSED.labels(self._server, "busy").inc()
            return None
        made = Connection(self, address, close)
        self._by_address.setdefault(address, OrderedDict())[made] = True
        self._idle[made] = None
        self._count += 1
        self._gauge.set(self._count)
        return made

    def make_room(self, count: int) -> None:
        """Close the oldest idle connections, because the process has no file descriptor left."""
        for oldest in list(self._idle)[:count]:
            self.close(oldest, "files")

    def set_busy(self, connection: Connection) -> None:
        """See `Connection.busy`."""
        self._idle.pop(connection, None)
        siblings = self._by_address.get(connection.address)
        if siblings is not None and connection in siblings:
            siblings[connection] = False

    def set_idle(self, connection: Connection) -> None:
        """See `Connection.idle`."""
        siblings = self._by_address.get(connection.address)
        if siblings is not None and connection in siblings:
            siblings[connection] = True
            siblings.move_to_end(connection)
            self._idle[connection] = None
            self._idle.move_to_end(connection)

    def remove(self, connection: Connection) -> None:
        """See `Connection.ended`."""
        siblings = self._by_address.get(connection.address)
        if siblings is None or siblings.pop(connection, None) is None:
            return
        if not siblings:
            del self._by_address[connection.address]
        self._idle.pop(connection, None)
        self._count -= 1
        self._gauge.set(self._count)

    def close(self, connection: Connection, reason: str) -> None:
        """Close a connection without an answer, and count the reason."""
        REFUSED.labels(self._server, reason).inc()
        self.remove(connection)
        connection.close()

    def _room_for(self, address: str) -> bool:
        siblings: OrderedDict[Connection, bool] = self._by_address.get(address, OrderedDict())
        if len(siblings) < self._bounds.per_address:
            return True
        return self._close_first((connection for connection, idle in siblings.items() if idle), "address")

    def _room_in_all(self) -> bool:
        return self._count < self._bounds.connections or self._close_first(iter(self._idle), "connections")

    def _close_first(self, idle: Iterator[Connection], reason: str) -> bool:
        """Close the first of some idle connections; False if there is none."""
        oldest = next(idle, None)
        if oldest is not None:
            self.close(oldest, reason)
        return oldest is not None


class Acceptor:
    """Accepts connections of a listening socket; what uvicorn expects of an asyncio server.

    Args: `make` returns the protocol of a connection. It is called when the first byte of the connection is here.
    """

    def __init__(
        self,
        name: str,
        listener: socket.socket,
        bounds: Bounds,
        make: Callable[[Connection], asyncio.Protocol],
        *,
        tls: ssl.SSLContext | None = None,
        backlog: int = 2048,
    ) -> None:
        self.connections = Connections(name, bounds)
        self._name, self._listener, self._bounds, self._make, self._tls = name, listener, bounds, make, tls
        self._loop = asyncio.get_running_loop()
        self._tasks: set[asyncio.Task[None]] = set()  # connections whose handshake is under way
        self._silent: set[_Silent] = set()
        self._closed = False
        listener.setblocking(False)
        listener.listen(backlog)
        self._loop.add_reader(listener.fileno(), self._accept)

    def close(self) -> None:
        """Stop listening, and close connections that have not sent anything yet."""
        if self._closed:
            return
        self._closed = True
        self._loop.remove_reader(self._listener.fileno())
        self._listener.close()
        for waiting in list(self._silent):
            waiting.close()

    async def wait_closed(self) -> None:
        """Wait for handshakes under way."""
        if self._tasks:
            await asyncio.wait(set(self._tasks), timeout=1.0)

    def _accept(self) -> None:
        for _ in range(_ACCEPTED_AT_ONCE):
            try:
                sock, peer = self._listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno not in _NO_FILES:
                    raise
                self._pause(error)
                return
            sock.setblocking(False)
            self._admit(sock, peer[0] if isinstance(peer, tuple) else "")

    def _pause(self, error: OSError) -> None:
        """Accept nothing for a moment and close some connections, so that there are file descriptors again."""
        log.warning("no connection can be accepted", extra={"server": self._name, "error": error.strerror})
        self.connections.make_room(_ACCEPTED_AT_ONCE)
        self._loop.remove_reader(self._listener.fileno())
        self._loop.call_later(_PAUSE_SECONDS, self._resume)

    def _resume(self) -> None:
        if not self._closed:
            self._loop.add_reader(self._listener.fileno(), self._accept)

    def _admit(self, sock: socket.socket, address: str) -> None:
        waiting = _Silent(self._loop, sock, self._silent)
        connection = self.connections.admit(address, waiting.close)
        if connection is None:
            _abort(sock)
            return
        waiting.start(
            self._bounds.request_seconds,
            lambda: self._begin(connection, sock),
            lambda: self.connections.close(connection, "slow"),
        )

    def _begin(self, connection: Connection, sock: socket.socket) -> None:
        if not _has_bytes(sock):
            connection.ended()
            _abort(sock)
            return
        task = self._loop.create_task(self._connect(connection, sock), name=f"connection of {self._name}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

        def close() -> None:
            task.cancel()
            _abort(sock)

        connection.close = close

    async def _connect(self, connection: Connection, sock: socket.socket) -> None:
        """Make the transport, with its handshake where there is TLS. The protocol ends the connection from then on."""
        patience = self._bounds.request_seconds if self._tls is not None else None
        try:
            await self._loop.connect_accepted_socket(
                lambda: self._make(connection),
                sock,
                ssl=self._tls,
                ssl_handshake_timeout=patience,
                ssl_shutdown_timeout=1.0 if self._tls is not None else None,
            )
        except BaseException as error:
            if isinstance(error, TimeoutError | ConnectionAbortedError):
                REFUSED.labels(self._name, "slow").inc()
            connection.ended()
            _abort(sock)
            if not isinstance(error, OSError | asyncio.CancelledError):
                raise


class _Silent:
    """A socket whose client has not sent anything yet."""

    __slots__ = ("_all", "_loop", "_sock", "_timer")

    def __init__(self, loop: asyncio.AbstractEventLoop, sock: socket.socket, others: set[_Silent]) -> None:
        self._loop, self._sock, self._all = loop, sock, others
        self._timer: asyncio.TimerHandle | None = None

    def start(self, seconds: float, spoke: Callable[[], None], silent: Callable[[], None]) -> None:
        """Call `spoke` when the first byte is here, `silent` after a time without one."""

        def ready() -> None:
            self._stop()
            spoke()

        self._all.add(self)
        self._loop.add_reader(self._sock.fileno(), ready)
        self._timer = self._loop.call_later(seconds, silent)

    def close(self) -> None:
        self._stop()
        _abort(self._sock)

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            self._all.discard(self)
            self._loop.remove_reader(self._sock.fileno())


def _has_bytes(sock: socket.socket) -> bool:
    """Return whether a readable socket has bytes to read; False at its end."""
    try:
        return bool(sock.recv(1, socket.MSG_PEEK))
    except (BlockingIOError, InterruptedError):
        return True
    except OSError:
        return False


def _abort(sock: socket.socket) -> None:
    """Close a socket without waiting for what its client does."""
    with contextlib.suppress(OSError):
        sock.shutdown(socket.SHUT_RDWR)
    sock.close()
