"""A small API server over HTTP for one kind or many: list in pages, watch, 410, cut, conflicts."""

from __future__ import annotations

import asyncio
import base64
import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import orjson
from aiohttp import web

from api.view import JsonObject


def status(code: int, reason: str, message: str = "", headers: dict[str, str] | None = None) -> web.Response:
    """An answer that carries a Status object."""
    body = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason}
    return web.Response(
        body=orjson.dumps({**body, "message": message or reason}),
        status=code,
        headers=headers,
        content_type="application/json",
    )


class FakeApi:
    """Objects by (plural, namespace, name), one counter of resource versions, a log of all changes."""

    def __init__(self) -> None:
        self.objects: dict[tuple[str, str, str], JsonObject] = {}
        self.log: list[tuple[int, str, str, JsonObject]] = []  # version, plural, type, object
        self.version = itertools.count(1)
        self.now = 0
        self.compacted = 0  # watches and continue tokens from before this version are answered with 410
        self.served = {"widgets", "leases", "events"}
        self.requests: list[tuple[str, str]] = []  # method, path with query
        self.fail: list[web.Response | float] = []  # next answers to writes and lists; a float is a delay in seconds
        self.fail_watches: list[web.Response] = []
        self.page_hook: Any = None  # called between two pages of a list
        self.changed = asyncio.Event()
        self.watchers: set[web.StreamResponse] = set()
        self.bookmarks = True

    # Objects

    def put(self, plural: str, namespace: str, name: str, **content: Any) -> JsonObject:
        """Create or change an object as another user would."""
        key = (plural, namespace, name)
        old = self.objects.get(key)
        self.now = next(self.version)
        metadata = {**(old or {"metadata": {"uid": f"uid-{self.now}"}})["metadata"], **content.pop("metadata", {})}
        metadata |= {"name": name, "resourceVersion": str(self.now)}
        if namespace:
            metadata["namespace"] = namespace
        obj = {**(old or {}), **content, "metadata": metadata}
        self.objects[key] = obj
        self._record(plural, "MODIFIED" if old else "ADDED", obj)
        return obj

    def remove(self, plural: str, namespace: str, name: str) -> None:
        """Delete an object as another user would."""
        obj = self.objects.pop((plural, namespace, name))
        self.now = next(self.version)
        gone = {**obj, "metadata": {**obj["metadata"], "resourceVersion": str(self.now)}}
        self._record(plural, "DELETED", gone)

    def compact(self) -> None:
        """Forget the history: a watch from an older version gets 410."""
        self.now = next(self.version)
        self.compacted = self.now
        self.log.clear()

    def cut(self) -> None:
        """Cut all watches in the middle."""
        for response in list(self.watchers):
            transport = response._req.transport if response._req is not None else None
            if transport is not None:
                transport.abort()

    def count(self, method: str, part: str) -> int:
        """How many requests of a method had this part in their path."""
        return sum(1 for m, path in self.requests if m == method and part in path)

    def _record(self, plural: str, type_: str, obj: JsonObject) -> None:
        self.log.append((self.now, plural, type_, obj))
        self.changed.set()
        self.changed = asyncio.Event()

    # HTTP

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.requests.append((request.method, request.path_qs))
        parts = [part for part in request.path.split("/") if part]
        rest = parts[2:] if parts[0] == "api" else parts[3:]
        namespace = ""
        if rest[0] == "namespaces" and len(rest) > 2:
            namespace, rest = rest[1], rest[2:]
        plural, name = rest[0], rest[1] if len(rest) > 1 else None
        if plural not in self.served:
            return status(404, "NotFound", "the server could not find the requested resource")
        if request.query.get("watch") == "true":
            return await self._watch(request, plural, namespace)
        if self.fail:
            answer = self.fail.pop(0)
            if isinstance(answer, web.Response):
                return answer
            await asyncio.sleep(answer)
        if name is None and request.method == "GET":
            return await self._list(request, plural, namespace)
        return await self._object(request, plural, namespace, name)

    async def _list(self, request: web.Request, plural: str, namespace: str) -> web.Response:
        limit = int(request.query.get("limit", "0"))
        start, version = 0, self.now
        if token := request.query.get("continue"):
            start, version = orjson.loads(base64.b64decode(token))
            if version < self.compacted:
                return status(410, "Expired", "The provided continue parameter is too old")
        keys = sorted(k for k in self.objects if k[0] == plural and (not namespace or k[1] == namespace))
        page = keys[start : start + limit] if limit else keys[start:]
        more = limit and start + limit < len(keys)
        metadata: JsonObject = {"resourceVersion": str(version)}
        if more:
            metadata["continue"] = base64.b64encode(orjson.dumps([start + limit, version])).decode()
        body = orjson.dumps({"kind": "List", "metadata": metadata, "items": [self.objects[k] for k in page]})
        if more and self.page_hook is not None:
            self.page_hook()
        return web.Response(body=body, content_type="application/json")

    async def _watch(self, request: web.Request, plural: str, namespace: str) -> web.StreamResponse:
        if self.fail_watches:
            return self.fail_watches.pop(0)
        version = int(request.query["resourceVersion"])
        response = web.StreamResponse()
        response.content_type = "application/json"
        response.enable_chunked_encoding()
        await response.prepare(request)
        self.watchers.add(response)
        try:
            if version < self.compacted:
                error = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old resource version"}
                await response.write(orjson.dumps({"type": "ERROR", "object": error}) + b"\n")
                return response
            while True:
                changed = self.changed
                for number, kind, type_, obj in list(self.log):
                    ours = not namespace or obj["metadata"].get("namespace") == namespace
                    if number > version and kind == plural and ours:
                        version = number
                        await response.write(orjson.dumps({"type": type_, "object": obj}) + b"\n")
                if self.bookmarks and self.now > version:
                    version = self.now
                    mark = {"kind": "Widget", "metadata": {"resourceVersion": str(version)}}
                    await response.write(orjson.dumps({"type": "BOOKMARK", "object": mark}) + b"\n")
                await changed.wait()
        finally:
            self.watchers.discard(response)

    async def _object(self, request: web.Request, plural: str, namespace: str, name: str | None) -> web.Response:
        body = orjson.loads(raw) if (raw := await request.read()) else {}
        if name is None:
            name = body["metadata"]["name"]
        old = self.objects.get((plural, namespace, name))
        given = (body.get("metadata") or {}).get("resourceVersion") if isinstance(body, dict) else None
        if request.method == "POST" and old is not None:
            return status(409, "AlreadyExists")
        if request.method in ("GET", "PUT", "DELETE") and old is None:
            return status(404, "NotFound")
        if old is not None and given is not None and given != old["metadata"]["resourceVersion"]:
            return status(409, "Conflict")
        if request.method == "GET":
            return _json(old)
        if request.method == "DELETE":
            wanted = (body.get("preconditions") or {}).get("uid")
            if wanted is not None and old is not None and wanted != old["metadata"]["uid"]:
                return status(409, "Conflict")
            self.remove(plural, namespace, name)
            return _json({"kind": "Status", "status": "Success"})
        if isinstance(body, list):
            assert old is not None
            body = _patched(old, body)
        content = {key: value for key, value in body.items() if key != "metadata"}
        if old is not None and {**old, **content} == old:
            return _json(old)  # nothing changed: the resource version stays, as in a real server
        return _json(self.put(plural, namespace, name, **content))


def _patched(old: JsonObject, operations: list[JsonObject]) -> JsonObject:
    """RFC 6902 as far as our writes need it: `add` at a path whose parent exists; `test` is taken to hold."""
    new: JsonObject = orjson.loads(orjson.dumps(old))
    for operation in operations:
        if operation["op"] == "add":
            *parents, last = operation["path"].split("/")[1:]
            target: Any = new
            for part in parents:
                target = target[int(part)] if isinstance(target, list) else target[part]
            target[last] = operation["value"]
    return new


def _json(obj: JsonObject | None) -> web.Response:
    return web.Response(body=orjson.dumps(obj), content_type="application/json")


@asynccontextmanager
async def serve(api: FakeApi, port: int = 0) -> AsyncIterator[str]:
    """Serve on loopback; yields the base address."""
    app = web.Application(client_max_size=2**24)
    app.router.add_route("*", "/{tail:.*}", api.handle)
    runner = web.AppRunner(app, shutdown_timeout=0.1, handler_cancellation=True)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", port, reuse_address=True)
    await site.start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


def write_kubeconfig(path: Path, server: str) -> None:
    """Write a kubeconfig that leads to a served API, with a token that no log may show."""
    path.write_text(
        f"""
apiVersion: v1
kind: Config
clusters: [{{name: c, cluster: {{server: "{server}"}}}}]
users: [{{name: u, user: {{token: secret-token}}}}]
contexts: [{{name: x, context: {{cluster: c, user: u}}}}]
current-context: x
"""
    )
