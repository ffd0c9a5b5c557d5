"""A small HTTP/1.1 server for the stand-ins that start often: standard library only, so that it starts at once.

It reads a whole request (bounded), hands it to one asynchronous function, writes the answer whole. Keep-alive, no
chunked requests, no pipelining.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import ssl
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any
from urllib.parse import unquote, urlsplit

log = logging.getLogger(__name__)

MAX_BODY_BYTES = 4 * 1024 * 1024  # an object of the API server has at most 1.5 MiB; a review carries two of them
MAX_HEAD_BYTES = 32 * 1024
IDLE_TIMEOUT_S = 75.0


@dataclass(frozen=True, slots=True)
class Request:
    """One request: `path` is decoded and without the query, header names are in lower case."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        """Return the decoded body. Raises: ValueError."""
        return json.loads(self.body or b"null")


@dataclass(frozen=True, slots=True)
class Response:
    """One answer. `headers` are added to content-type and content-length."""

    status: int
    body: bytes = b""
    content_type: str = "application/json"
    headers: dict[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, payload: Any, status: int = 200) -> Response:
        """Return `payload` as JSON."""
        return cls(status, json.dumps(payload).encode())


Handler = Callable[[Request], Awaitable[Response]]


class Server:
    """Serves `handler` on one address; `close` ends it with its connections."""

    def __init__(self, handler: Handler) -> None:
        self._handler = handler
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()
        self._busy: set[asyncio.Task[None]] = set()  # those with a request in the handler

    async def start(self, host: str, port: int, *, tls: ssl.SSLContext | None = None) -> int:
        """Listen and return the port (the one the system chose when `port` is 0). Raises: OSError."""
        self._server = await asyncio.start_server(
            self._serve, host, port, ssl=tls, limit=MAX_HEAD_BYTES, reuse_address=True
        )
        number: int = self._server.sockets[0].getsockname()[1]
        return number

    async def close(self, grace_s: float = 1.0) -> None:
        """Stop listening, let running requests end within `grace_s`, then cut them off."""
        if self._server is None:
            return
        self._server.close()
        for task in self._connections - self._busy:
            task.cancel()
        if self._busy:
            await asyncio.wait(self._busy, timeout=grace_s)
        for task in tuple(self._connections):
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        try:
            while await self._one(reader, writer, task):
                self._busy.discard(task)
        except (OSError, EOFError, asyncio.LimitOverrunError, ssl.SSLError):
            pass  # the other side went away, or never spoke HTTP
        except asyncio.CancelledError:
            if self._server is not None and self._server.is_serving():
                raise
        finally:
            self._connections.discard(task)
            self._busy.discard(task)
            writer.close()
            with contextlib.suppress(OSError, asyncio.CancelledError):
                await writer.wait_closed()

    async def _one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, task: asyncio.Task[None]) -> bool:
        """Answer one request; return whether the connection stays open."""
        try:
            async with asyncio.timeout(IDLE_TIMEOUT_S):
                request = await _read(reader)
        except TimeoutError:
            return False
        except ValueError as error:
            await _write(writer, Response.of({"error": str(error)}, 400), keep=False)
            return False
        self._busy.add(task)
        listening = self._server is not None and self._server.is_serving()
        keep = listening and request.headers.get("connection", "").lower() != "close"
        try:
            answer = await self._handler(request)
        except Exception:
            log.exception("handler failed: %s %s", request.method, request.path)
            answer = Response.of({"error": "internal error"}, 500)
        await _write(writer, answer, keep=keep, head=request.method == "HEAD")
        return keep


async def _read(reader: asyncio.StreamReader) -> Request:
    """Read one request. Raises: EOFError at the end, ValueError for an invalid request."""
    head = await reader.readuntil(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    parts = first.split(" ")
    if len(parts) != 3:
        raise ValueError("malformed request line")
    headers = {
        name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines if line)
    }
    if "transfer-encoding" in headers:
        raise ValueError("chunked requests are not supported")
    length = int(headers.get("content-length") or 0)
    if not 0 <= length <= MAX_BODY_BYTES:
        raise ValueError(f"body of {length} bytes is above the limit of {MAX_BODY_BYTES}")
    body = await reader.readexactly(length) if length else b""
    return Request(parts[0], unquote(urlsplit(parts[1]).path), headers, body)


async def _write(writer: asyncio.StreamWriter, answer: Response, *, keep: bool, head: bool = False) -> None:
    reason = HTTPStatus(answer.status).phrase
    lines = [
        f"HTTP/1.1 {answer.status} {reason}",
        f"content-type: {answer.content_type}",
        f"content-length: {len(answer.body)}",
        f"connection: {'keep-alive' if keep else 'close'}",
        *(f"{name}: {value}" for name, value in answer.headers.items()),
    ]
    writer.write("\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + (b"" if head else answer.body))
    await writer.drain()
