"""A thin asynchronous REST client for the API server, for the development cluster's own programs.

It starts in a tenth of a second, speaks plain dicts by path, and knows what a list and watch loop must know. It has no
models, no discovery and no cache: whoever calls it names the path.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import logging
import random
import ssl
import tempfile
from collections.abc import AsyncGenerator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import httpx
import orjson
import yaml

from api.view import JsonObject
from devcluster.handshake import ClosesWhenGivenUp

log = logging.getLogger(__name__)

Objects = list[JsonObject]
Params = Mapping[str, str | int | bool]

MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"

_PAGE = 500  # objects per page of a list, as kubectl does
_BUSY_RETRIES = 5  # how often a 429 is tried again
_BACKOFF_FIRST_S = 0.05
_BACKOFF_MAX_S = 5.0
_WATCH_MIN_S = 240  # the server ends a watch after this time; spread so that watches do not end together
_WATCH_MAX_S = 480


class KubeError(Exception):
    """An answer of the API server that is no success, or no answer at all.

    `status` is the HTTP status (0: the server could not be reached), `reason` the Status object's reason
    ("NotFound", "AlreadyExists", "Conflict", "Invalid", …; "Unreachable" without an answer), `body` the whole Status.
    """

    def __init__(self, status: int, reason: str, message: str, body: Any = None) -> None:
        super().__init__(f"{status} {reason}: {message}")
        self.status = status
        self.reason = reason
        self.message = message
        self.body = body

    @property
    def not_found(self) -> bool:
        """Tell whether the object (or its kind) does not exist."""
        return self.status == 404

    @property
    def conflict(self) -> bool:
        """Tell whether another writer was first (also: AlreadyExists)."""
        return self.status == 409


def path_for(api_version: str, plural: str, namespace: str | None = None, name: str | None = None) -> str:
    """Return the REST path of a collection, or of one object when a name is given.

    `api_version` as in manifests ("v1", "apps/v1"), `plural` the resource name; "pods/status" style suffixes are
    appended by the caller.
    """
    root = f"/api/{api_version}" if "/" not in api_version else f"/apis/{api_version}"
    scope = f"/namespaces/{namespace}" if namespace else ""
    tail = f"/{name}" if name else ""
    return f"{root}{scope}/{plural}{tail}"


def access(path: Path) -> tuple[str, ssl.SSLContext | bool, str]:
    """Return server, TLS side and token of a kubeconfig's current context.

    Raises: ValueError when the file has no usable context; OSError when it cannot be read.
    """
    config = yaml.safe_load(path.read_text())
    cluster, user = _context(config, path)
    return str(cluster["server"]), _tls(cluster, user, path.parent), _token(user, path.parent)


class Kube:
    """One connection pool to one API server. Close it with `aclose` or use it as an async context manager."""

    def __init__(
        self,
        server: str,
        tls: ssl.SSLContext | bool,
        *,
        token: str = "",
        user_agent: str = "aim-dev",
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        headers = {"accept": "application/json", "user-agent": user_agent}
        if token:
            headers["authorization"] = f"Bearer {token}"
        self.server = server.rstrip("/")
        self._http = httpx.AsyncClient(
            base_url=self.server,
            verify=tls,
            headers=headers,
            timeout=httpx.Timeout(30.0, connect=5.0),
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=16),
            transport=transport,
            trust_env=False,  # a proxy of the host's environment never stands before a loopback server
        )

    @classmethod
    def from_kubeconfig(cls, path: str | Path, *, user_agent: str = "aim-dev") -> Self:
        """Read server, CA and client certificate or token of the current context.

        Raises: ValueError when the file has no usable context; OSError when it cannot be read.
        """
        server, tls, token = access(Path(path))
        return cls(server, tls, token=token, user_agent=user_agent)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close every connection."""
        await self._http.aclose()

    async def request(
        self,
        method: str,
        path: str,
        *,
        params: Params | None = None,
        body: Any = None,
        content_type: str = "application/json",
        timeout_s: float = 30.0,
    ) -> Any:
        """Send one request and return the decoded JSON (text when the answer is no JSON, None when it is empty).

        A 429 is tried again a few times; a broken connection once, for GET only.
        Raises: KubeError.
        """
        content = None if body is None else orjson.dumps(body)
        headers = {"content-type": content_type} if content is not None else {}
        for attempt in range(_BUSY_RETRIES):
            last = attempt == _BUSY_RETRIES - 1
            try:
                answer = await self._http.request(
                    method,
                    path,
                    params=_query(params),
                    content=content,
                    headers=headers,
                    timeout=timeout_s,
                    extensions={"trace": ClosesWhenGivenUp()},
                )
            except httpx.HTTPError as error:
                if method == "GET" and attempt == 0:
                    continue
                raise KubeError(0, "Unreachable", f"{method} {path}: {str(error) or type(error).__name__}") from error
            if answer.status_code == 429 and not last:
                await asyncio.sleep(min(_retry_after(answer), 5.0) + random.random() * 0.1)  # noqa: S311 (jitter)
                continue
            return _decode(answer.status_code, answer.headers.get("content-type", ""), answer.content)
        raise AssertionError("unreachable: the last attempt returns or raises")

    async def get(self, path: str, params: Params | None = None) -> JsonObject:
        """Read one object. Raises: KubeError (404 when it is absent)."""
        return as_object(await self.request("GET", path, params=params))

    async def find(self, path: str, params: Params | None = None) -> JsonObject | None:
        """Read one object, None when it does not exist. Raises: KubeError for anything but 404."""
        try:
            return await self.get(path, params)
        except KubeError as error:
            if error.not_found:
                return None
            raise

    async def list(self, path: str, params: Params | None = None) -> Objects:
        """Read a whole collection in pages; items carry apiVersion and kind. Raises: KubeError."""
        items, _ = await self._list(path, params)
        return items

    async def create(self, path: str, body: JsonObject, params: Params | None = None) -> JsonObject:
        """POST to a collection. Raises: KubeError (409 AlreadyExists when it is there)."""
        return as_object(await self.request("POST", path, params=params, body=body))

    async def update(self, path: str, body: JsonObject, params: Params | None = None) -> JsonObject:
        """PUT one object. Raises: KubeError (409 Conflict on a stale resourceVersion)."""
        return as_object(await self.request("PUT", path, params=params, body=body))

    async def patch(
        self, path: str, body: Any, *, content_type: str = MERGE_PATCH, params: Params | None = None
    ) -> JsonObject:
        """PATCH one object (merge patch unless told otherwise). Raises: KubeError."""
        return as_object(await self.request("PATCH", path, params=params, body=body, content_type=content_type))

    async def patch_status(self, path: str, status: JsonObject, *, content_type: str = MERGE_PATCH) -> JsonObject:
        """Merge `status` into the status subresource of the object at `path`. Raises: KubeError."""
        return await self.patch(f"{path}/status", {"status": status}, content_type=content_type)

    async def apply(self, path: str, body: JsonObject, *, field_manager: str, force: bool = False) -> JsonObject:
        """Apply one object server-side as `field_manager`. Raises: KubeError (409: a conflict, without force)."""
        params: dict[str, str | int | bool] = {"fieldManager": field_manager, "force": force}
        return await self.patch(path, body, content_type=APPLY_PATCH, params=params)

    async def delete(self, path: str, body: JsonObject | None = None, *, missing_ok: bool = True) -> None:
        """Delete one object (`body`: DeleteOptions). Raises: KubeError; 404 only when `missing_ok` is False."""
        try:
            await self.request("DELETE", path, body=body)
        except KubeError as error:
            if not (error.not_found and missing_ok):
                raise

    async def watch(self, path: str, params: Params | None = None) -> AsyncGenerator[tuple[str, JsonObject], None]:
        """List and watch a collection for ever; end it by cancelling or closing the iterator.

        Yields (type, object): ADDED, MODIFIED, DELETED, and ("SYNCED", {}) each time a whole list was delivered.
        It resumes from the last resource version, lists again when that is gone (410), and then also tells the
        DELETED of what vanished meanwhile. Failures are retried for ever with growing, jittered pauses.
        """
        known: dict[str, JsonObject] = {}
        version = ""
        failures = 0
        while True:
            try:
                if not version:
                    items, version = await self._list(path, params)
                    for event in _difference(known, items):
                        yield event
                    yield "SYNCED", {}
                async for kind, item in self._watch_once(path, params, version):
                    failures = 0
                    version = item["metadata"]["resourceVersion"]
                    if kind == "BOOKMARK":
                        continue
                    _remember(known, kind, item)
                    yield kind, item
            except KubeError as error:
                if error.status in {410, 400} or error.reason in {"Expired", "Gone"}:
                    version = ""
                    if failures == 0:
                        failures = 1
                        continue  # an expired version is no trouble of the server: list again at once
                failures += 1
                log.debug("watch of %s interrupted: %s", path, error)
                await asyncio.sleep(_backoff_s(failures))

    async def _list(self, path: str, params: Params | None) -> tuple[Objects, str]:
        """Read all pages. A continue token that expired half-way starts over once, unpaged."""
        query: dict[str, str | int | bool] = {"limit": _PAGE, **(params or {})}
        items: Objects = []
        while True:
            try:
                page = as_object(await self.request("GET", path, params=query))
            except KubeError as error:
                if error.status == 410 and "continue" in query:
                    query = dict(params or {})
                    items = []
                    continue
                raise
            kind = str(page.get("kind", "")).removesuffix("List")
            for item in page.get("items") or []:
                item.setdefault("apiVersion", page.get("apiVersion", ""))
                item.setdefault("kind", kind)
                items.append(item)
            token = page["metadata"].get("continue")
            if not token:
                return items, str(page["metadata"].get("resourceVersion", ""))
            query["continue"] = token

    async def _watch_once(
        self, path: str, params: Params | None, version: str
    ) -> AsyncGenerator[tuple[str, JsonObject], None]:
        """Yield the events of one watch request until the server ends it. Raises: KubeError."""
        seconds = random.randint(_WATCH_MIN_S, _WATCH_MAX_S)  # noqa: S311 (spreads load, no secret)
        query: dict[str, str | int | bool] = {
            **(params or {}),
            "watch": True,
            "allowWatchBookmarks": True,
            "resourceVersion": version,
            "timeoutSeconds": seconds,
        }
        timeout = httpx.Timeout(seconds + 30.0, connect=5.0)
        try:
            trace = {"trace": ClosesWhenGivenUp()}
            async with self._http.stream(
                "GET", path, params=_query(query), timeout=timeout, extensions=trace
            ) as answer:
                if answer.status_code != 200:
                    _decode(answer.status_code, answer.headers.get("content-type", ""), await answer.aread())
                rest = b""
                async for chunk in answer.aiter_bytes():
                    *lines, rest = (rest + chunk).split(b"\n")
                    for line in lines:
                        if line:
                            yield _event(line)
        except httpx.HTTPError as error:
            raise KubeError(0, "Unreachable", f"WATCH {path}: {str(error) or type(error).__name__}") from error


def cluster_ca(path: str | Path) -> bytes:
    """Return the CA (PEM) that a kubeconfig's current context trusts. Raises: ValueError, OSError."""
    path = Path(path)
    cluster, _ = _context(yaml.safe_load(path.read_text()), path)
    return _material(cluster, "certificate-authority", path.parent)


def as_object(value: Any) -> JsonObject:
    """Return `value` as a JSON object. Raises: KubeError when the server sent something else."""
    if not isinstance(value, dict):
        raise KubeError(200, "UnexpectedBody", f"expected a JSON object, got {type(value).__name__}")
    return value


def _query(params: Params | None) -> dict[str, str]:
    """Render parameters as the API server reads them (booleans in lower case)."""
    return {k: str(v).lower() if isinstance(v, bool) else str(v) for k, v in (params or {}).items()}


def _decode(status: int, content_type: str, raw: bytes) -> Any:
    """Return the body of a success. Raises: KubeError for every other status."""
    body: Any = None
    if raw:
        try:
            body = orjson.loads(raw) if "json" in content_type else raw.decode(errors="replace")
        except orjson.JSONDecodeError:
            body = raw.decode(errors="replace")
    if status < 400:
        return body
    if isinstance(body, dict):
        raise KubeError(status, str(body.get("reason") or f"HTTP{status}"), str(body.get("message") or ""), body)
    raise KubeError(status, f"HTTP{status}", str(body or "").strip()[:500], body)


def _event(line: bytes) -> tuple[str, JsonObject]:
    """Split one line of a watch. Raises: KubeError for an ERROR event (410 among them)."""
    event = orjson.loads(line)
    kind, item = str(event["type"]), as_object(event["object"])
    if kind == "ERROR":
        raise KubeError(
            int(item.get("code") or 500), str(item.get("reason") or ""), str(item.get("message") or ""), item
        )
    return kind, item


def _key(item: JsonObject) -> str:
    meta = item["metadata"]
    return f"{meta.get('namespace', '')}/{meta['name']}"


def _remember(known: dict[str, JsonObject], kind: str, item: JsonObject) -> None:
    """Keep the identity of what a later relist may find missing."""
    if kind == "DELETED":
        known.pop(_key(item), None)
    else:
        known[_key(item)] = item


def _difference(known: dict[str, JsonObject], items: list[JsonObject]) -> list[tuple[str, JsonObject]]:
    """Return the events that lead from `known` to a fresh list, and make `known` that list."""
    fresh = {_key(item): item for item in items}
    events: list[tuple[str, JsonObject]] = []
    for key, old in known.items():
        new = fresh.get(key)
        if new is None or new["metadata"].get("uid") != old["metadata"].get("uid"):
            events.append(("DELETED", old))
    for key, item in fresh.items():
        before = known.get(key)
        if before is None or before["metadata"].get("uid") != item["metadata"].get("uid"):
            events.append(("ADDED", item))
        elif before["metadata"].get("resourceVersion") != item["metadata"].get("resourceVersion"):
            events.append(("MODIFIED", item))
    known.clear()
    known.update(fresh)
    return events


def _backoff_s(failures: int) -> float:
    """Return the pause before try number `failures` + 1: doubling, capped, between half and all of it."""
    ceiling: float = min(_BACKOFF_MAX_S, _BACKOFF_FIRST_S * 2 ** min(failures, 10))
    return ceiling * (0.5 + random.random() / 2)  # noqa: S311 (jitter)


def _retry_after(answer: httpx.Response) -> float:
    try:
        return float(answer.headers.get("retry-after", "1"))
    except ValueError:
        return 1.0


def _context(config: Any, path: Path) -> tuple[JsonObject, JsonObject]:
    """Return (cluster, user) of the current context. Raises: ValueError."""
    try:
        wanted = config["current-context"]
        context = next(c["context"] for c in config["contexts"] if c["name"] == wanted)
        cluster = next(c["cluster"] for c in config["clusters"] if c["name"] == context["cluster"])
        user: JsonObject | None = next((u["user"] for u in config["users"] if u["name"] == context["user"]), None)
    except (KeyError, TypeError, StopIteration) as error:
        raise ValueError(f"{path}: no usable current-context in this kubeconfig") from error
    return cluster, user or {}


def _tls(cluster: JsonObject, user: JsonObject, base: Path) -> ssl.SSLContext | bool:
    """Build the TLS side: trust the cluster's CA only, show the client certificate if there is one."""
    if str(cluster["server"]).startswith("http://"):
        return False
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    ca = _material(cluster, "certificate-authority", base)
    if cluster.get("insecure-skip-tls-verify"):
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    elif ca:
        context.load_verify_locations(cadata=ca.decode())
    else:
        context.load_default_certs()
    cert, key = _material(user, "client-certificate", base), _material(user, "client-key", base)
    if cert and key:
        # the ssl module loads client certificates from files only
        with tempfile.NamedTemporaryFile(prefix="aim-dev-") as pem:
            pem.write(cert.rstrip() + b"\n" + key)
            pem.flush()
            context.load_cert_chain(pem.name)
    return context


def _material(section: JsonObject, field: str, base: Path) -> bytes:
    """Return the PEM bytes of `field`, inline (`…-data`) or from a file; empty when neither is there."""
    inline = section.get(f"{field}-data")
    if inline:
        try:
            return base64.b64decode(inline, validate=True)
        except binascii.Error as error:
            raise ValueError(f"kubeconfig: {field}-data is no base64") from error
    named = section.get(field)
    return (base / named).read_bytes() if named else b""


def _token(user: JsonObject, base: Path) -> str:
    named = user.get("tokenFile")
    return str(user.get("token") or ((base / named).read_text().strip() if named else ""))
