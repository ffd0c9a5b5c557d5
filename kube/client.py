"""The Kubernetes API over raw JSON: orjson in and out, nothing deserialised into models.

kubernetes-asyncio supplies address, authentication and TLS (`auth.py`); requests go over aiohttp's pool. Each call has
a timeout. Writes of a guarded client are checked against the guard once more when their body is put on the wire, and
end before the guard's time is over.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import socket
import weakref
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from dataclasses import dataclass, replace
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeVar
from urllib.parse import urlencode

import aiohttp
import orjson
from aiohttp.payload import BytesPayload
from yarl import URL

from api.kinds import Kind
from api.names import FIELD_OWNER
from api.view import JsonObject
from kube.auth import Credentials, load_credentials
from kube.errors import Gone, NotFound, NotLeading, Unauthorized, Unreachable, parse_error
from kube.metrics import API_REQUESTS

if TYPE_CHECKING:
    from aiohttp.abc import AbstractStreamWriter

Taken = TypeVar("Taken")

DEFAULT_TIMEOUT = 15.0  # seconds for one request, waiting for a connection included
DEFAULT_PAGE_LIMIT = 500  # objects in a page
MAX_CONNECTIONS = 64  # of requests; watches have a pool of their own
PAGE_BYTES = 500_000  # size of a page that parses within a few milliseconds; page limits adapt to it
SMALLEST_PAGE = 20
WATCH_SILENCE = 120.0  # seconds without a byte after which a watch is taken for dead: bookmarks come each minute
_TURNS_TO_CLOSE = 20  # of the loop, the second half 10 ms long: a connection that was cut is closed within a few
MAX_LIST_RESTARTS = 3  # a list whose continue token expired is begun again so many times

_JSON = "application/json"
_MERGE_PATCH = "application/merge-patch+json"
_JSON_PATCH = "application/json-patch+json"
_APPLY_PATCH = "application/apply-patch+yaml"  # JSON is YAML


class Guard(Protocol):
    """Says for how long writes are still allowed."""

    def remaining(self) -> float:
        """Return the seconds for which writes are allowed; zero or less: none now."""
        ...


@dataclass(frozen=True, slots=True)
class Page:
    """One page of a list. `resource_version` is that of the whole list; `more` tells whether pages follow."""

    items: list[JsonObject]
    resource_version: str
    more: bool


@dataclass(frozen=True, slots=True)
class WatchEvent:
    """`type` is ADDED, MODIFIED, DELETED or BOOKMARK; an ERROR event is raised as an exception instead."""

    type: str
    object: JsonObject


class _GuardedBody(BytesPayload):
    """A body that asks the guard at the moment of sending, after any wait for a connection."""

    def __init__(self, value: bytes, guard: Guard | None, **kwargs: Any) -> None:
        super().__init__(value, **kwargs)
        self._guard = guard

    async def write_with_length(self, writer: AbstractStreamWriter, content_length: int | None) -> None:
        if self._guard is not None and self._guard.remaining() <= 0:
            raise NotLeading("the lease ran out while a write waited for its connection")
        await super().write_with_length(writer, content_length)


@dataclass(frozen=True, slots=True)
class _Call:
    """One request: HTTP method, Kubernetes verb and plural (for metrics), path with query, time it may take."""

    method: str
    verb: str
    plural: str
    path: str
    seconds: float
    content_type: str = _JSON
    body: bytes = b""
    guard: Guard | None = None


class Client:
    """Requests to one API server. Make one with `Client.connect(...)`; `async with` closes it."""

    def __init__(
        self, credentials: Credentials, *, within: float = DEFAULT_TIMEOUT, guard: Guard | None = None
    ) -> None:
        self._credentials = credentials
        self._within = within
        self._guard = guard
        self._sessions = _Sessions(credentials)
        self.heard: list[str] | None = None
        """A list here takes the Warning headers of all answers: for people who wait for them. Without one, writes ask
        the API server not to look for unknown and duplicate fields, of which it would only warn: that reads each body
        a second time, a sixth of its work for an InferenceService.
        """

    @classmethod
    async def connect(
        cls, kubeconfig: str | None = None, context: str | None = None, *, within: float = DEFAULT_TIMEOUT
    ) -> Self:
        """Return a client for a kubeconfig, or for the pod's service account.

        Raises: NoCredentials.
        """
        return cls(await load_credentials(kubeconfig, context), within=within)

    def guarded(self, guard: Guard) -> Client:
        """Return a client over the same connections whose writes are allowed by `guard` only."""
        other = Client.__new__(Client)
        other._credentials, other._within = self._credentials, self._within
        other._sessions, other._guard, other.heard = self._sessions, guard, None
        return other

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close all connections, those of every guarded client made from this one too."""
        await self._sessions.close()

    # Reads

    async def get(self, kind: Kind, namespace: str | None, name: str, *, within: float | None = None) -> JsonObject:
        """Return one object. Raises: NotFound, and the others of `kube.errors`.

        What cannot be a name is not asked for: `../../team-b/x`, written by a user, would lead to another namespace.
        Source: k8s.io/apimachinery `path.IsValidPathSegmentName`.
        """
        if not all(map(_is_segment, (name, namespace or "default"))):
            raise NotFound(404, "NotFound", f"no object can be called {name!r}")
        path = kind.path(namespace, name)
        parsed: JsonObject = orjson.loads(
            await self._send(_Call("GET", "get", kind.plural, path, self._seconds(within)))
        )
        return parsed

    async def find(
        self, kind: Kind, namespace: str | None, name: str, *, within: float | None = None
    ) -> JsonObject | None:
        """Return one object, or None when it does not exist."""
        try:
            return await self.get(kind, namespace, name, within=within)
        except NotFound:
            return None

    async def get_raw(self, path: str, *, within: float | None = None) -> bytes:
        """Return the body of a path that is no object (`/version`, `/readyz`)."""
        return await self._send(_Call("GET", "get", "raw", path, self._seconds(within)))

    async def list_pages(
        self,
        kind: Kind,
        namespace: str | None = None,
        *,
        label_selector: str | None = None,
        field_selector: str | None = None,
        limit: int = DEFAULT_PAGE_LIMIT,
    ) -> AsyncIterator[Page]:
        """Yield the pages of a list; each item carries apiVersion and kind.

        The first page is small and the next ones are sized by what a page weighs (`PAGE_BYTES`), so that parsing one
        does not hold up the event loop. Raises: Gone when the list took longer than its continue token lived.
        """
        path = kind.path(namespace)
        query = {"limit": str(min(limit, 100))}
        if label_selector:
            query["labelSelector"] = label_selector
        if field_selector:
            query["fieldSelector"] = field_selector
        while True:
            url = f"{path}?{urlencode(query)}"
            body = await self._send(_Call("GET", "list", kind.plural, url, self._within))
            parsed = orjson.loads(body)
            metadata = parsed.get("metadata") or {}
            items: list[JsonObject] = parsed.get("items") or []
            for item in items:  # built-in kinds leave both out inside a list
                item.setdefault("apiVersion", kind.api_version)
                item.setdefault("kind", kind.kind)
            token = metadata.get("continue") or ""
            yield Page(items, str(metadata.get("resourceVersion") or ""), bool(token))
            if not token:
                return
            query["continue"] = token
            query["limit"] = str(_next_limit(limit, len(items), len(body)))

    async def list_all(
        self, kind: Kind, namespace: str | None = None, *, label_selector: str | None = None
    ) -> tuple[list[JsonObject], str]:
        """Return all items and the list's resource version; begun again when a continue token expires."""
        return await self.list_each(kind, namespace, lambda obj: obj, label_selector=label_selector)

    async def list_each(
        self,
        kind: Kind,
        namespace: str | None,
        take: Callable[[JsonObject], Taken],
        *,
        label_selector: str | None = None,
    ) -> tuple[list[Taken], str]:
        """Return of all items what `take` takes, as `list_all` does: thousands of whole objects need not be held."""
        for attempt in range(MAX_LIST_RESTARTS):
            taken: list[Taken] = []
            version = ""
            try:
                async for page in self.list_pages(kind, namespace, label_selector=label_selector):
                    taken += map(take, page.items)
                    version = page.resource_version
            except Gone:
                if attempt + 1 == MAX_LIST_RESTARTS:
                    raise
                continue
            return taken, version
        raise AssertionError("unreachable: the last attempt returns or raises")

    async def watch(
        self,
        kind: Kind,
        resource_version: str,
        namespace: str | None = None,
        *,
        label_selector: str | None = None,
        field_selector: str | None = None,
        timeout_seconds: int = 300,
        silence: float = WATCH_SILENCE,
        opened: Callable[[], None] | None = None,
    ) -> AsyncGenerator[WatchEvent, None]:
        """Yield events after `resource_version` until the server ends the watch, which is no error.

        Args: `silence` seconds without a byte count as a dead connection; `opened` is called when the server accepts.
        Raises: Gone when the resource version is too old; Unreachable when the connection is cut.
        """
        query = {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": resource_version,
            "timeoutSeconds": str(timeout_seconds),
        }
        if label_selector:
            query["labelSelector"] = label_selector
        if field_selector:
            query["fieldSelector"] = field_selector
        url = self._url(f"{kind.path(namespace)}?{urlencode(query)}")
        response = await self._open_watch(url, kind, silence)
        try:
            if opened is not None:
                opened()
            async for line in _lines(response):
                yield _parse_event(line)
        except (TimeoutError, aiohttp.ClientError, OSError) as error:
            raise Unreachable(0, "WatchCut", _words(error)) from error
        finally:
            response.close()

    async def _open_watch(self, url: URL, kind: Kind, silence: float) -> aiohttp.ClientResponse:
        limits = aiohttp.ClientTimeout(total=None, sock_connect=10, sock_read=silence)
        for attempt in (1, 2):
            try:
                response = await self._sessions.watches().get(
                    url, headers=await self._headers(None), timeout=limits, **self._transport()
                )
            except (TimeoutError, aiohttp.ClientError, OSError) as error:
                API_REQUESTS.labels("watch", kind.plural, "0").inc()
                raise Unreachable(0, "Unreachable", _words(error)) from error
            API_REQUESTS.labels("watch", kind.plural, str(response.status)).inc()
            if response.status == 200:
                return response
            body = await _read_or_close(response)
            error_of_status = parse_error(response.status, body, response.headers.get("Retry-After"))
            if not isinstance(error_of_status, Unauthorized) or attempt == 2:
                raise error_of_status
            await self._credentials.refresh()
        raise AssertionError("unreachable: the second attempt returns or raises")

    # Writes

    async def apply(
        self,
        kind: Kind,
        obj: JsonObject,
        *,
        field_owner: str = FIELD_OWNER,
        force: bool = True,
        dry_run: bool = False,
        subresource: str | None = None,
        within: float | None = None,
    ) -> JsonObject:
        """Apply an object server-side and return what is stored. With metadata.resourceVersion set a 409 tells that
        someone else wrote in between. Raises: Denied, Invalid, MalformedApply, Conflict, and the transient ones.
        """
        metadata = obj["metadata"]
        query = {"fieldManager": field_owner, "force": "true" if force else "false"}
        path = kind.path(metadata.get("namespace"), metadata["name"], subresource)
        return await self._write(
            _Call("PATCH", "apply", kind.plural, path, self._seconds(within), _APPLY_PATCH), obj, query, dry_run
        )

    async def patch_status(self, kind: Kind, namespace: str | None, name: str, patch: JsonObject) -> JsonObject:
        """Merge-patch the status subresource; `patch` is the whole body, with its `status` key."""
        return await self.patch_merge(kind, namespace, name, patch, subresource="status")

    async def patch_merge(
        self,
        kind: Kind,
        namespace: str | None,
        name: str,
        patch: JsonObject,
        *,
        subresource: str | None = None,
        dry_run: bool = False,
        within: float | None = None,
    ) -> JsonObject:
        """Send an RFC 7386 merge patch; metadata.resourceVersion in it makes it conditional."""
        query = {"fieldManager": FIELD_OWNER}
        path = kind.path(namespace, name, subresource)
        return await self._write(
            _Call("PATCH", "patch", kind.plural, path, self._seconds(within), _MERGE_PATCH), patch, query, dry_run
        )

    async def patch_json(
        self,
        kind: Kind,
        namespace: str | None,
        name: str,
        operations: list[JsonObject],
        *,
        subresource: str | None = None,
        dry_run: bool = False,
        within: float | None = None,
    ) -> JsonObject:
        """Send RFC 6902 operations; a failing `test` operation is answered with Invalid."""
        query = {"fieldManager": FIELD_OWNER}
        path = kind.path(namespace, name, subresource)
        return await self._write(
            _Call("PATCH", "patch", kind.plural, path, self._seconds(within), _JSON_PATCH), operations, query, dry_run
        )

    async def create(
        self, kind: Kind, obj: JsonObject, *, dry_run: bool = False, within: float | None = None
    ) -> JsonObject:
        """Create an object. Raises: AlreadyExists."""
        query = {"fieldManager": FIELD_OWNER}
        path = kind.path(obj["metadata"].get("namespace"))
        return await self._write(
            _Call("POST", "create", kind.plural, path, self._seconds(within), _JSON), obj, query, dry_run
        )

    async def put(
        self, kind: Kind, obj: JsonObject, *, dry_run: bool = False, within: float | None = None
    ) -> JsonObject:
        """Put an object in place of the stored one. Raises: Conflict when its resourceVersion is not the stored one."""
        metadata = obj["metadata"]
        path = kind.path(metadata.get("namespace"), metadata["name"])
        return await self._write(
            _Call("PUT", "update", kind.plural, path, self._seconds(within), _JSON),
            obj,
            {"fieldManager": FIELD_OWNER},
            dry_run,
        )

    async def delete(
        self,
        kind: Kind,
        namespace: str | None,
        name: str,
        *,
        uid: str | None = None,
        resource_version: str | None = None,
        propagation: str = "Background",
        dry_run: bool = False,
        within: float | None = None,
    ) -> bool:
        """Delete an object; False when it was gone already.

        Args: `uid`, `resource_version` are preconditions, so that a namesake or a changed object is left alone;
        `propagation` is Background, Foreground or Orphan. Raises: Conflict when a precondition does not hold.
        """
        preconditions = {k: v for k, v in (("uid", uid), ("resourceVersion", resource_version)) if v is not None}
        body: JsonObject = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": propagation}
        if preconditions:
            body["preconditions"] = preconditions
        path = kind.path(namespace, name)
        try:
            await self._write(
                _Call("DELETE", "delete", kind.plural, path, self._seconds(within), _JSON), body, {}, dry_run
            )
        except NotFound:
            return False
        return True

    # Wire

    def _seconds(self, within: float | None) -> float:
        return self._within if within is None else within

    async def _write(
        self, call: _Call, body: JsonObject | list[JsonObject], query: dict[str, str], dry_run: bool
    ) -> JsonObject:
        seconds = call.seconds
        if self._guard is not None:
            seconds = min(seconds, self._guard.remaining())
            if seconds <= 0:
                raise NotLeading("writes are not allowed: this process does not hold the lease")
            # The server gives up by itself too: a write never lands after the lease that allowed it.
            query["timeout"] = f"{max(1, math.floor(seconds * 1000))}ms"
        if dry_run:
            query["dryRun"] = "All"
        if self.heard is None and call.method != "DELETE":
            query["fieldValidation"] = "Ignore"
        path = f"{call.path}?{urlencode(query)}" if query else call.path
        guarded = replace(call, path=path, seconds=seconds, body=orjson.dumps(body), guard=self._guard)
        parsed: JsonObject = orjson.loads(await self._send(guarded))
        return parsed

    async def _send(self, call: _Call) -> bytes:
        """Return the body of a 2xx answer. A 401 is tried once more with credentials read again: nothing happened."""
        deadline = asyncio.get_running_loop().time() + call.seconds
        for attempt in (1, 2):
            left = max(deadline - asyncio.get_running_loop().time(), 0.001)
            status, answer, retry_after = await self._exchange(call, left)
            if 200 <= status < 300:
                return answer
            error = parse_error(status, answer, retry_after)
            if not isinstance(error, Unauthorized) or attempt == 2:
                raise error
            await self._credentials.refresh()
        raise AssertionError("unreachable: the second attempt returns or raises")

    async def _exchange(self, call: _Call, seconds: float) -> tuple[int, bytes, str | None]:
        status = 0
        url = self._url(call.path)
        try:
            async with asyncio.timeout(seconds):
                headers = await self._headers(call.content_type if call.body else None)
                payload = _GuardedBody(call.body, call.guard, content_type=call.content_type) if call.body else None
                async with self._sessions.requests().request(
                    call.method, url, data=payload, headers=headers, **self._transport()
                ) as response:
                    answer = await response.read()
                    status = response.status
                    if self.heard is not None:
                        self.heard += response.headers.getall("Warning", ())
                    return status, answer, response.headers.get("Retry-After")
        except (TimeoutError, aiohttp.ClientError, OSError) as error:
            if isinstance(error.__cause__, NotLeading):
                raise NotLeading(str(error.__cause__)) from error
            reason = "Timeout" if isinstance(error, TimeoutError) else "Unreachable"
            raise Unreachable(0, reason, f"{call.method} {url.path}: {_words(error)}") from error
        finally:
            API_REQUESTS.labels(call.verb, call.plural, str(status)).inc()

    async def _headers(self, content_type: str | None) -> dict[str, str]:
        headers = {"Accept": _JSON, "Accept-Encoding": "identity"}  # inflating a large list costs more than the wire
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


def _is_segment(name: str) -> bool:
    return name not in ("", ".", "..") and "/" not in name and "%" not in name


class _Sockets:
    """The sockets of the pools, each for as long as somebody uses it.

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
        """Cut what is still open, and see it closed: by the loop, which alone knows who reads there."""
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

    def __init__(self, credentials: Credentials) -> None:
        self._credentials = credentials
        self._sockets = _Sockets()
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
            headers={"User-Agent": "aim-adapters"},
            auto_decompress=False,
        )

    async def close(self) -> None:
        for session in (self._requests, self._watches):
            if session is not None:
                await session.close()
        self._requests = self._watches = None
        await self._sockets.close()


def _next_limit(limit: int, items: int, size_bytes: int) -> int:
    if items == 0:
        return limit
    fitting = int(PAGE_BYTES * items / max(size_bytes, 1))
    return max(min(SMALLEST_PAGE, limit), min(limit, fitting))


async def _lines(response: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
    """Yield the lines of a stream, however long: an object may weigh more than aiohttp's own line limit."""
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


def _parse_event(line: bytes) -> WatchEvent:
    parsed = orjson.loads(line)
    kind, obj = str(parsed["type"]), parsed["object"]
    if kind == "ERROR":
        code = obj.get("code")
        raise parse_error(code if isinstance(code, int) else 500, orjson.dumps(obj))
    return WatchEvent(kind, obj)


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


def namespace_of(obj: Mapping[str, Any]) -> str:
    """Return an object's namespace, or "" for a cluster-scoped one."""
    return str(obj["metadata"].get("namespace") or "")
