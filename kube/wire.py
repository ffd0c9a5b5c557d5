"""How a request to the API server is sent: connection pools, limits of time, authorization, one retry of a 401.

What is asked is in `client.py`. Requests go over aiohttp's pool; answers are bytes. Writes of a guarded client are
checked against the guard once more when their body is sent, and end before the guard's time is over.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import aiohttp
from yarl import URL

from kube.auth import Credentials
from kube.doors import CheckedBody
from kube.errors import NotLeading, Unauthorized, Unreachable, parse_error
from kube.metrics import API_REQUESTS

MAX_CONNECTIONS = 64  # of requests; watches have a pool of their own
_TURNS_TO_CLOSE = 20  # of the loop, the second half 10 ms long: a connection that was cut is closed within a few

JSON = "application/json"
MERGE_PATCH = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"  # JSON is YAML

_Result = TypeVar("_Result")


class Guard(Protocol):
    """Says for how long writes are still allowed."""

    def remaining(self) -> float:
        """Return the seconds for which writes are allowed; zero or less: none now."""
        ...


@dataclass(frozen=True, slots=True)
class Call:
    """One request: HTTP method, Kubernetes verb and plural (for metrics), path with query, time it may take."""

    method: str
    verb: str
    plural: str
    path: str
    seconds: float
    content_type: str = JSON
    body: bytes = b""
    guard: Guard | None = None
    heard: list[str] | None = None  # takes the Warning headers of the answer
    most_bytes: int | None = None  # of the answer's body; a larger one raises AnswerTooLargeError


class AnswerTooLargeError(Exception):
    """The body of an answer is larger than the request allows; it was not read to its end."""


class Wire:
    """The connections to one API server."""

    def __init__(self, credentials: Credentials, user_agent: str) -> None:
        self._credentials = credentials
        self._sessions = _Sessions(credentials, user_agent)

    @property
    def server(self) -> str:
        """The address of the API server."""
        return self._credentials.server

    async def close(self) -> None:
        """Close all connections."""
        await self._sessions.close()

    async def send(self, call: Call) -> bytes:
        """Return the body of a 2xx answer. Raises: the exceptions of `kube.errors`."""
        deadline = asyncio.get_running_loop().time() + call.seconds

        async def once() -> bytes:
            left = max(deadline - asyncio.get_running_loop().time(), 0.001)
            status, answer, retry_after = await self._exchange(call, left)
            if 200 <= status < 300:
                return answer
            raise parse_error(status, answer, retry_after)

        return await self._authorized(once)

    async def open(self, call: Call, silence: float) -> aiohttp.ClientResponse:
        """Return the open answer of a watch. Args: `silence` seconds without a byte count as a dead connection."""
        limits = aiohttp.ClientTimeout(total=None, sock_connect=10, sock_read=silence)

        async def once() -> aiohttp.ClientResponse:
            try:
                response = await self._sessions.watches().get(
                    self._url(call.path), headers=await self._headers(None), timeout=limits, **self._transport()
                )
            except (TimeoutError, aiohttp.ClientError, OSError) as error:
                API_REQUESTS.labels(call.verb, call.plural, "0").inc()
                raise Unreachable(0, "Unreachable", _words(error)) from error
            API_REQUESTS.labels(call.verb, call.plural, str(response.status)).inc()
            if response.status == 200:
                return response
            body = await _read_or_close(response)
            raise parse_error(response.status, body, response.headers.get("Retry-After"))

        return await self._authorized(once)

    async def _authorized(self, once: Callable[[], Awaitable[_Result]]) -> _Result:
        """Run a request; after a 401, which means that nothing happened, once more with credentials read again."""
        try:
            return await once()
        except Unauthorized:
            await self._credentials.refresh()
            return await once()

    async def _exchange(self, call: Call, seconds: float) -> tuple[int, bytes, str | None]:
        status = 0
        url = self._url(call.path)
        try:
            async with asyncio.timeout(seconds):
                headers = await self._headers(call.content_type if call.body else None)
                async with self._sessions.requests().request(
                    call.method, url, data=_payload(call), headers=headers, **self._transport()
                ) as response:
                    answer = await _read(response, call.most_bytes)
                    status = response.status
                    if call.heard is not None:
                        call.heard.extend(response.headers.getall("Warning", ()))
                    return status, answer, response.headers.get("Retry-After")
        except AnswerTooLargeError:
            status = 200
            raise
        except (TimeoutError, aiohttp.ClientError, OSError) as error:
            if isinstance(error.__cause__, NotLeading):
                raise NotLeading(str(error.__cause__)) from error
            reason = "Timeout" if isinstance(error, TimeoutError) else "Unreachable"
            raise Unreachable(0, reason, f"{call.method} {url.path}: {_words(error)}") from error
        finally:
            API_REQUESTS.labels(call.verb, call.plural, str(status)).inc()

    async def _headers(self, content_type: str | None) -> dict[str, str]:
        headers = {"Accept": JSON, "Accept-Encoding": "identity"}  # inflating a large list costs more than the wire
        if content_type is not None:
            headers["Content-Type"] = content_type
        authorization = await self._credentials.header()
        if authorization:
            headers["Authorization"] = authorization
        return headers

    def _url(self, path: str) -> URL:
        return URL(self._credentials.server + path, encoded=True)

    def _transport(self) -> dict[str, Any]:
        options: dict[str, Any] = {}
        if self._credentials.server_hostname:
            options["server_hostname"] = self._credentials.server_hostname
        if self._credentials.proxy:
            options["proxy"] = self._credentials.proxy
        return options


def _payload(call: Call) -> CheckedBody | None:
    guard = call.guard

    def check() -> None:
        if guard is not None and guard.remaining() <= 0:
            raise NotLeading("the lease ran out while a write waited for its connection")

    return CheckedBody(call.body, check, content_type=call.content_type) if call.body else None


class Sockets:
    """The sockets of a connection pool: pass `make` as `socket_factory`, and `close` after the pool is closed.

    A request that is cancelled while its connection is being made leaves a connection that no pool knows: it shuts down
    politely, for up to 30 s where the server does not answer, and outlives the pool.
    """

    def __init__(self) -> None:
        self._made: weakref.WeakSet[socket.socket] = weakref.WeakSet()

    def make(self, address: tuple[Any, ...]) -> socket.socket:
        """Make the socket for an entry of getaddrinfo."""
        family, kind, protocol, *_ = address
        made = socket.socket(family=family, type=kind, proto=protocol)
        self._made.add(made)
        return made

    async def close(self) -> None:
        """Shut down what is still open and wait until the event loop has closed it: only the loop knows its readers."""
        for sock in self._open():
            with contextlib.suppress(OSError):  # not connected, or closed by the other side
                sock.shutdown(socket.SHUT_RDWR)
        for turn in range(_TURNS_TO_CLOSE):
            if not self._open():
                return
            await asyncio.sleep(0 if turn < _TURNS_TO_CLOSE // 2 else 0.01)

    def _open(self) -> list[socket.socket]:
        return [sock for sock in self._made if sock.fileno() != -1]


class _Sessions:
    """Two pools, made on first use inside the running loop: watches hold their connections for minutes and must not
    starve requests."""

    def __init__(self, credentials: Credentials, user_agent: str) -> None:
        self._credentials = credentials
        self._user_agent = user_agent
        self._sockets = Sockets()
        self._requests: aiohttp.ClientSession | None = None
        self._watches: aiohttp.ClientSession | None = None

    def requests(self) -> aiohttp.ClientSession:
        if self._requests is None:
            self._requests = self._make(MAX_CONNECTIONS)
        return self._requests

    def watches(self) -> aiohttp.ClientSession:
        if self._watches is None:
            self._watches = self._make(0)
        return self._watches

    def _make(self, limit: int) -> aiohttp.ClientSession:
        tls: Any = self._credentials.tls if self._credentials.tls is not None else False
        return aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(
                limit=limit, ssl=tls, keepalive_timeout=60, ttl_dns_cache=30, socket_factory=self._sockets.make
            ),
            timeout=aiohttp.ClientTimeout(total=None),
            cookie_jar=aiohttp.DummyCookieJar(),
            headers={"User-Agent": self._user_agent},
            auto_decompress=False,
        )

    async def close(self) -> None:
        for session in (self._requests, self._watches):
            if session is not None:
                await session.close()
        self._requests = self._watches = None
        await self._sockets.close()


async def lines(response: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
    """Yield the lines of a stream, of any length.

    aiohttp's own line reader refuses a line above 128 KiB, and one object of a watch may weigh 1.5 MiB or more. Chunks
    are joined only when a line is complete, so that a long line is copied once and not with each chunk.
    Raises: Unreachable when the connection ends inside a line.
    """
    rest: list[bytes] = []
    while chunk := await response.content.readany():
        *complete, last = chunk.split(b"\n")
        for line in complete:
            if rest:
                line = b"".join((*rest, line))  # noqa: PLW2901 - the line's beginning came in earlier chunks
                rest.clear()
            if line:
                yield line
        if last:
            rest.append(last)
    if rest:
        raise Unreachable(0, "WatchCut", "the connection ended inside an event")


@contextlib.contextmanager
def cut_is_unreachable(response: aiohttp.ClientResponse) -> Any:
    """Close a stream at the end, and raise Unreachable when its connection is cut."""
    try:
        yield
    except (TimeoutError, aiohttp.ClientError, OSError) as error:
        raise Unreachable(0, "WatchCut", _words(error)) from error
    finally:
        response.close()


async def _read(response: aiohttp.ClientResponse, most_bytes: int | None) -> bytes:
    if most_bytes is None:
        return await response.read()
    chunks: list[bytes] = []
    size = 0
    async for chunk in response.content.iter_any():
        size += len(chunk)
        if size > most_bytes:
            response.close()
            raise AnswerTooLargeError
        chunks.append(chunk)
    return b"".join(chunks)


async def _read_or_close(response: aiohttp.ClientResponse) -> bytes:
    try:
        async with asyncio.timeout(5):
            return await response.read()
    except (TimeoutError, aiohttp.ClientError, OSError):
        return b""
    finally:
        response.close()


def _words(error: BaseException) -> str:
    return str(error) or type(error).__name__
