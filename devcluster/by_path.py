"""Objects by their REST path, for the programs of the development cluster: a thin adapter over `kube.client`.

The product names kinds. A stand-in that imitates a node or a controller touches many kinds once or twice, and names a
path. Everything else (pages, watches, errors, credentials) is `kube/`.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlencode

import orjson

from api.kinds import Kind
from api.view import JsonObject
from kube.client import Client
from kube.errors import ApiError, NotFound, TooManyRequests
from kube.informer import Informer
from kube.wire import APPLY_PATCH, JSON, MERGE_PATCH

Params = Mapping[str, str | int | bool]

STRATEGIC_PATCH = "application/strategic-merge-patch+json"

_WITHIN_S = 30.0
_BUSY_TRIES = 5  # of one request that is answered with 429
_BUSY_PAUSE_S = 5.0  # at most, whatever the server asks for
# The Node authorizer allows a kubelet to read a Secret a moment after the pod is bound: the next try is soon.
_FIRST_BACKOFF_S = 0.05
_COLLECTION = re.compile(
    r"/(?:api|apis/(?P<group>[^/]+))/(?P<version>[^/]+)(?:/namespaces/(?P<namespace>[^/]+))?/(?P<plural>[^/]+)"
)


class Kube:
    """Requests to one API server by path. Close it with `aclose` or use it as an async context manager."""

    def __init__(self, client: Client) -> None:
        self._client = client

    @classmethod
    async def connect(cls, kubeconfig: str | Path, *, user_agent: str = "aim-dev") -> Self:
        """Use the current context of a kubeconfig. Raises: NoCredentials."""
        return cls(await Client.connect(str(kubeconfig), within=_WITHIN_S, user_agent=user_agent))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close every connection."""
        await self._client.close()

    @property
    def server(self) -> str:
        """The address of the API server."""
        return self._client.server

    async def request(
        self,
        method: str,
        path: str,
        *,
        params: Params | None = None,
        body: Any = None,
        content_type: str = JSON,
        timeout_s: float = _WITHIN_S,
    ) -> bytes:
        """Send one request and return the body; a 429 is tried again a few times. Raises: ApiError."""
        if params:
            path = f"{path}?{urlencode({k: str(v).lower() if isinstance(v, bool) else v for k, v in params.items()})}"
        for _ in range(_BUSY_TRIES - 1):
            try:
                return await self._client.send_raw(method, path, body, content_type=content_type, within=timeout_s)
            except TooManyRequests as error:
                await asyncio.sleep(min(1.0 if error.retry_after is None else error.retry_after, _BUSY_PAUSE_S))
        return await self._client.send_raw(method, path, body, content_type=content_type, within=timeout_s)

    async def text(self, path: str, params: Params | None = None, *, timeout_s: float = _WITHIN_S) -> str:
        """Read what is not an object: `/readyz`, the log of a pod. Raises: ApiError."""
        return (await self.request("GET", path, params=params, timeout_s=timeout_s)).decode(errors="replace")

    async def get(self, path: str, params: Params | None = None, *, timeout_s: float = _WITHIN_S) -> JsonObject:
        """Read one object. Raises: ApiError (NotFound when it is absent)."""
        return _object(await self.request("GET", path, params=params, timeout_s=timeout_s))

    async def find(self, path: str, params: Params | None = None) -> JsonObject | None:
        """Read one object, None when it does not exist. Raises: ApiError."""
        try:
            return await self.get(path, params)
        except NotFound:
            return None

    async def list(self, path: str, params: Params | None = None) -> list[JsonObject]:
        """Read a whole collection; items carry apiVersion and kind. Raises: ApiError."""
        kind, namespace = _collection(path)
        label, field = _selectors(params)
        pages = self._client.list_pages(kind, namespace, label_selector=label, field_selector=field)
        return [item async for page in pages for item in page.items]

    async def create(self, path: str, body: JsonObject, params: Params | None = None) -> JsonObject:
        """POST to a collection. Raises: ApiError (AlreadyExists when the name is taken)."""
        return _object(await self.request("POST", path, params=params, body=body))

    async def update(self, path: str, body: JsonObject, params: Params | None = None) -> JsonObject:
        """PUT one object. Raises: ApiError (Conflict on a stale resourceVersion)."""
        return _object(await self.request("PUT", path, params=params, body=body))

    async def patch(
        self, path: str, body: Any, *, content_type: str = MERGE_PATCH, params: Params | None = None
    ) -> JsonObject:
        """PATCH one object. Raises: ApiError."""
        return _object(await self.request("PATCH", path, params=params, body=body, content_type=content_type))

    async def patch_status(self, path: str, status: JsonObject, *, content_type: str = MERGE_PATCH) -> JsonObject:
        """Merge `status` into the status subresource of the object at `path`. Raises: ApiError."""
        return await self.patch(f"{path}/status", {"status": status}, content_type=content_type)

    async def apply(self, path: str, body: JsonObject, *, field_manager: str, force: bool = False) -> JsonObject:
        """Apply one object server-side as `field_manager`. Raises: ApiError (Conflict without `force`)."""
        params: dict[str, str | int | bool] = {"fieldManager": field_manager, "force": force}
        return await self.patch(path, body, content_type=APPLY_PATCH, params=params)

    async def delete(self, path: str, body: JsonObject | None = None, *, missing_ok: bool = True) -> None:
        """Delete one object (`body`: DeleteOptions). Raises: ApiError; NotFound only when `missing_ok` is False."""
        try:
            await self.request("DELETE", path, body=body)
        except NotFound:
            if not missing_ok:
                raise

    async def watch(self, path: str, params: Params | None = None) -> AsyncGenerator[tuple[str, JsonObject], None]:
        """Follow a collection until the iterator is closed: the changes of an informer as events.

        Yields (type, object): ADDED, MODIFIED, DELETED, and once ("SYNCED", {}) when the first list is complete. An
        object that another one replaced under its name is reported as DELETED and ADDED.
        """
        kind, namespace = _collection(path)
        label, field = _selectors(params)
        informer = Informer(
            self._client,
            kind,
            namespaces=None if namespace is None else [namespace],
            label_selector=label,
            field_selector=field,
            first_backoff=_FIRST_BACKOFF_S,
        )
        events: asyncio.Queue[tuple[str, JsonObject]] = asyncio.Queue()

        def changed(old: JsonObject | None, new: JsonObject | None) -> None:
            for event in _events(old, new):
                events.put_nowait(event)

        async def report_sync() -> None:
            await informer.synced.wait()
            events.put_nowait(("SYNCED", {}))

        informer.add_handler(changed)
        running = [asyncio.create_task(informer.run()), asyncio.create_task(report_sync())]
        running[0].add_done_callback(lambda _: events.put_nowait(("ENDED", {})))
        try:
            while True:
                event = await events.get()
                if event[0] == "ENDED":  # only with an error
                    running[0].result()
                    return
                yield event
        finally:
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)


def _collection(path: str) -> tuple[Kind, str | None]:
    """Return the kind that a collection's path names, and its namespace."""
    found = _COLLECTION.fullmatch(path)
    if found is None:
        raise ValueError(f"{path} is not the path of a collection")
    namespace = found["namespace"]
    return Kind(found["group"] or "", found["version"], found["plural"], "", namespace is not None), namespace


def _selectors(params: Params | None) -> tuple[str | None, str | None]:
    """Return label and field selector; a collection takes no other parameters."""
    rest = dict(params or {})
    label, field = rest.pop("labelSelector", None), rest.pop("fieldSelector", None)
    if rest:
        raise ValueError(f"unknown parameters {sorted(rest)}")
    return None if label is None else str(label), None if field is None else str(field)


def _events(old: JsonObject | None, new: JsonObject | None) -> list[tuple[str, JsonObject]]:
    if old is None:
        return [] if new is None else [("ADDED", new)]
    if new is None:
        return [("DELETED", old)]
    if old["metadata"].get("uid") != new["metadata"].get("uid"):
        return [("DELETED", old), ("ADDED", new)]
    return [("MODIFIED", new)]


def _object(body: bytes) -> JsonObject:
    """Return the JSON object of an answer. Raises: ApiError when the server sent something else."""
    try:
        value = orjson.loads(body)
    except orjson.JSONDecodeError:
        value = None
    if not isinstance(value, dict):
        raise ApiError(200, "UnexpectedBody", f"expected a JSON object, got {body[:80]!r}")
    return value
