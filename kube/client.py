"""What is asked of the Kubernetes API: raw JSON in and out (orjson), nothing deserialised into models.

How a request is sent (connections, credentials, limits of time) is in `wire.py`.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Literal, Self, TypeVar
from urllib.parse import urlencode

import orjson

from api.kinds import Kind
from api.names import FIELD_OWNER
from api.view import JsonObject
from kube import json_parts, reading, wire
from kube.auth import Credentials, load_credentials
from kube.errors import Gone, NotFound, NotLeading, parse_error
from kube.slices import Slices
from kube.wire import AnswerTooLargeError, Call, Guard, Wire

Taken = TypeVar("Taken")
FieldValidation = Literal["Ignore", "Warn", "Strict"]

DEFAULT_TIMEOUT = 15.0  # seconds for one request, waiting for a connection included
DEFAULT_PAGE_LIMIT = 500  # objects in a page
FIRST_PAGE = 100
LARGEST_PAGE = 32 * 1024 * 1024  # bytes of a page; of a larger one fewer objects are asked for at once
PAGE_BYTES = 500_000  # size of a page that parses within a few milliseconds; page limits adapt to it
SMALLEST_PAGE = 20
WATCH_SILENCE = 120.0  # seconds without a byte after which a watch is taken for dead: bookmarks come each minute
MAX_LIST_RESTARTS = 3  # times that a list is begun again because its continue token expired


@dataclass(frozen=True, slots=True)
class ListPage:
    """One page of a list. `resource_version` is that of the whole list; `more`: whether pages follow.

    `unreadable`: objects of the page that are not in `items`, because not even their name can be read.
    """

    items: list[JsonObject]
    resource_version: str
    more: bool
    unreadable: int = 0


@dataclass(frozen=True, slots=True)
class WatchEvent:
    """`type` is ADDED, MODIFIED, DELETED, BOOKMARK, or UNREADABLE: of an object whose name cannot be read.

    An ERROR event is raised as an exception instead.
    """

    type: str
    object: JsonObject


class Client:
    """Requests to one API server. Make one with `Client.connect(...)`; `async with` closes it.

    Args:
        field_validation: what the API server does about unknown and duplicate fields of a write. The default, Ignore,
            saves it reading each body a second time, a sixth of its work for an InferenceService; nothing reads the
            warnings of a controller. Tests write with Strict, so that a misspelt field in a write fails them.
        user_agent: names this client in audit logs, and in managedFields where a write names no field manager.
    """

    def __init__(
        self,
        credentials: Credentials,
        *,
        within: float = DEFAULT_TIMEOUT,
        guard: Guard | None = None,
        field_validation: FieldValidation = "Ignore",
        user_agent: str = FIELD_OWNER,
    ) -> None:
        self._within = within
        self._guard = guard
        self._field_validation = field_validation
        self._wire = Wire(credentials, user_agent)
        self.heard: list[str] | None = None
        """A list here takes the Warning headers of all answers, and writes ask the API server for its warnings about
        unknown and duplicate fields: for commands that show them to people.
        """

    @classmethod
    async def connect(
        cls,
        kubeconfig: str | None = None,
        context: str | None = None,
        *,
        within: float = DEFAULT_TIMEOUT,
        field_validation: FieldValidation = "Ignore",
        user_agent: str = FIELD_OWNER,
    ) -> Self:
        """Return a client for a kubeconfig, or for the pod's service account.

        Raises: NoCredentials.
        """
        credentials = await load_credentials(kubeconfig, context)
        return cls(credentials, within=within, field_validation=field_validation, user_agent=user_agent)

    def guarded(self, guard: Guard) -> Client:
        """Return a client over the same connections whose writes are allowed by `guard` only."""
        other = Client.__new__(Client)
        other._within, other._field_validation, other._wire = self._within, self._field_validation, self._wire
        other._guard, other.heard = guard, None
        return other

    @property
    def server(self) -> str:
        """The address of the API server: scheme://host:port."""
        return self._wire.server

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close all connections, also those of every guarded client made from this one."""
        await self._wire.close()

    # Reads

    async def get(self, kind: Kind, namespace: str | None, name: str, *, within: float | None = None) -> JsonObject:
        """Return one object. Raises: NotFound, and the others of `kube.errors`.

        What cannot be a name is not asked for: `../../team-b/x`, written by a user, would lead to another namespace.
        Source: k8s.io/apimachinery `path.IsValidPathSegmentName`.
        """
        if not all(map(_is_segment, (name, namespace or "default"))):
            raise NotFound(404, "NotFound", f"no object can be called {name!r}")
        return _object(
            await self._wire.send(self._call("GET", "get", kind.plural, kind.path(namespace, name), within=within))
        )

    async def find(
        self, kind: Kind, namespace: str | None, name: str, *, within: float | None = None
    ) -> JsonObject | None:
        """Return one object, or None when it does not exist."""
        try:
            return await self.get(kind, namespace, name, within=within)
        except NotFound:
            return None

    async def get_raw(self, path: str, *, within: float | None = None) -> bytes:
        """Return the body of a path that is not an object (`/version`, `/readyz`, the log of a pod)."""
        return await self._wire.send(self._call("GET", "get", "raw", path, within=within))

    async def send_raw(
        self,
        method: str,
        path: str,
        body: JsonObject | None,
        content_type: str = wire.JSON,
        *,
        within: float | None = None,
    ) -> bytes:
        """Send any request to a path with its query as it is, without guard or field manager; return the body."""
        sent = b"" if body is None else orjson.dumps(body)
        call = self._call(method, method.lower(), "raw", path, content_type=content_type, body=sent, within=within)
        return await self._wire.send(call)

    async def list_pages(
        self,
        kind: Kind,
        namespace: str | None = None,
        *,
        label_selector: str | None = None,
        field_selector: str | None = None,
        limit: int = DEFAULT_PAGE_LIMIT,
    ) -> AsyncIterator[ListPage]:
        """Yield the pages of a list; each item carries apiVersion and kind.

        The first page is small and the next ones are sized by what a page weighs (`PAGE_BYTES`), so that parsing one
        does not hold up the event loop. An object that no parser takes is read part by part (`kube.reading`). A page
        above `LARGEST_PAGE` is not read: a smaller one is asked for.
        Raises: Gone when the list took longer than its continue token lived.
        """
        path = kind.path(namespace)
        wanted = min(limit, FIRST_PAGE) if limit else 0
        query: dict[str, str] = {}
        if label_selector:
            query["labelSelector"] = label_selector
        if field_selector:
            query["fieldSelector"] = field_selector
        while True:
            url = f"{path}?{urlencode({'limit': str(wanted), **query})}"
            call = self._call("GET", "list", kind.plural, url)
            try:
                body = await self._wire.send(replace(call, most_bytes=LARGEST_PAGE if wanted > 1 else None))
            except AnswerTooLargeError:
                wanted = max(1, wanted // 8)
                continue
            page = await _read_page(body)
            name = kind.kind or page.kind.removesuffix("List")
            for item in page.items:  # built-in kinds leave both out inside a list
                item.setdefault("apiVersion", kind.api_version)
                item.setdefault("kind", name)
            yield ListPage(page.items, page.resource_version, bool(page.token), page.unreadable)
            if not page.token:
                return
            query["continue"] = page.token
            wanted = _next_limit(limit, len(page.items), len(body))

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
        """Yield events after `resource_version` until the server ends the watch; its end is not an error.

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
        path = f"{kind.path(namespace)}?{urlencode(query)}"
        response = await self._wire.open(Call("GET", "watch", kind.plural, path, self._within), silence)
        with wire.cut_is_unreachable(response):
            if opened is not None:
                opened()
            async for line in wire.lines(response):
                yield await _read_event(line)

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
        """Apply an object server-side and return what is stored. With metadata.resourceVersion set, a 409 means that
        another client wrote in between. Raises: Denied, Invalid, MalformedApply, Conflict, and the transient ones.
        """
        metadata = obj["metadata"]
        query = {"fieldManager": field_owner, "force": "true" if force else "false"}
        path = kind.path(metadata.get("namespace"), metadata["name"], subresource)
        call = self._call("PATCH", "apply", kind.plural, path, content_type=wire.APPLY_PATCH, within=within)
        return await self._write(call, obj, query, dry_run)

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
        path = kind.path(namespace, name, subresource)
        return await self._patch(wire.MERGE_PATCH, kind, path, patch, dry_run=dry_run, within=within)

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
        path = kind.path(namespace, name, subresource)
        return await self._patch(wire.JSON_PATCH, kind, path, operations, dry_run=dry_run, within=within)

    async def create(
        self, kind: Kind, obj: JsonObject, *, dry_run: bool = False, within: float | None = None
    ) -> JsonObject:
        """Create an object. Raises: AlreadyExists."""
        call = self._call("POST", "create", kind.plural, kind.path(obj["metadata"].get("namespace")), within=within)
        return await self._write(call, obj, {"fieldManager": FIELD_OWNER}, dry_run)

    async def put(
        self, kind: Kind, obj: JsonObject, *, dry_run: bool = False, within: float | None = None
    ) -> JsonObject:
        """Put an object in place of the stored one. Raises: Conflict when its resourceVersion is not the stored one."""
        metadata = obj["metadata"]
        path = kind.path(metadata.get("namespace"), metadata["name"])
        call = self._call("PUT", "update", kind.plural, path, within=within)
        return await self._write(call, obj, {"fieldManager": FIELD_OWNER}, dry_run)

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
        call = self._call("DELETE", "delete", kind.plural, kind.path(namespace, name), within=within)
        try:
            await self._write(call, body, {}, dry_run)
        except NotFound:
            return False
        return True

    # Both

    def _call(
        self,
        method: str,
        verb: str,
        plural: str,
        path: str,
        *,
        content_type: str = wire.JSON,
        body: bytes = b"",
        within: float | None = None,
    ) -> Call:
        seconds = self._within if within is None else within
        return Call(method, verb, plural, path, seconds, content_type, body, heard=self.heard)

    async def _patch(
        self,
        content_type: str,
        kind: Kind,
        path: str,
        patch: JsonObject | list[JsonObject],
        *,
        dry_run: bool,
        within: float | None,
    ) -> JsonObject:
        call = self._call("PATCH", "patch", kind.plural, path, content_type=content_type, within=within)
        return await self._write(call, patch, {"fieldManager": FIELD_OWNER}, dry_run)

    async def _write(
        self, call: Call, body: JsonObject | list[JsonObject], query: dict[str, str], dry_run: bool
    ) -> JsonObject:
        seconds = call.seconds
        if self._guard is not None:
            seconds = min(seconds, self._guard.remaining())
            if seconds <= 0:
                raise NotLeading("writes are not allowed: this process does not hold the lease")
            # The server gives up after this time, too: a write never lands after the lease that allowed it.
            query["timeout"] = f"{max(1, math.floor(seconds * 1000))}ms"
        if dry_run:
            query["dryRun"] = "All"
        if self.heard is None and call.method != "DELETE":
            query["fieldValidation"] = self._field_validation
        path = f"{call.path}?{urlencode(query)}" if query else call.path
        guarded = replace(call, path=path, seconds=seconds, body=orjson.dumps(body), guard=self._guard)
        return _object(await self._wire.send(guarded))


def _object(body: bytes) -> JsonObject:
    """Return an object; part by part where no parser takes it as a whole (`view.left_out`)."""
    try:
        parsed: JsonObject = orjson.loads(body)
    except orjson.JSONDecodeError:
        return reading.read_parts(body)
    return parsed


def _is_segment(name: str) -> bool:
    return name not in ("", ".", "..") and "/" not in name and "%" not in name


def _next_limit(limit: int, items: int, size_bytes: int) -> int:
    if items == 0:
        return limit
    fitting = int(PAGE_BYTES * items / max(size_bytes, 1))
    return max(min(SMALLEST_PAGE, limit), min(limit, fitting))


async def _read_page(body: bytes) -> reading.Page:
    """Read a page at once if it is small and sound, else object by object, with pauses."""
    if len(body) <= reading.WHOLE_PAGE_BYTES:
        with contextlib.suppress(orjson.JSONDecodeError):
            return reading.read_page(body)
    slices = Slices()
    page, texts = await asyncio.to_thread(reading.cut_page, body)
    unreadable = 0
    for text in texts:
        try:
            page.items.append(await _read_object(text))
        except reading.UnreadableError:
            unreadable += 1
        await slices.breathe()
    return replace(page, unreadable=unreadable)


async def _read_object(text: bytes) -> JsonObject:
    whole = reading.read_whole(text)
    return await asyncio.to_thread(reading.read_parts, text) if whole is None else whole


async def _read_event(line: bytes) -> WatchEvent:
    """Read an event at once if it is small and sound, else part by part beside the event loop."""
    if len(line) <= reading.WHOLE_BYTES:
        with contextlib.suppress(orjson.JSONDecodeError):
            return _parse_event(line)
    return await asyncio.to_thread(_event_by_parts, line)


def _parse_event(line: bytes) -> WatchEvent:
    parsed = orjson.loads(line)
    kind, obj = str(parsed["type"]), parsed["object"]
    if kind == "ERROR":
        code = obj.get("code")
        raise parse_error(code if isinstance(code, int) else 500, orjson.dumps(obj))
    if kind == "BOOKMARK":
        return WatchEvent(kind, obj)
    try:
        return WatchEvent(kind, reading.identified(obj))
    except reading.UnreadableError:
        return _UNREADABLE


def _event_by_parts(line: bytes) -> WatchEvent:
    try:
        parts = json_parts.members(line)
        return WatchEvent(orjson.loads(parts["type"]), reading.read_object(parts["object"]))
    except (ValueError, KeyError):
        return _UNREADABLE


_UNREADABLE = WatchEvent("UNREADABLE", {"metadata": {}})
