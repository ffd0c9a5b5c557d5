"""The one part of a kubelet's API that people use every day: container logs, for `kubectl logs`.

Clients show a certificate of the cluster's CA, as the API server does.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit

log = logging.getLogger(__name__)

_FOLLOW_S = 0.2
_CHUNK_BYTES = 64 * 1024
_TAIL_BYTES = 16 << 20  # no more than this is looked through for the last lines
_REQUEST_S = 10.0


@dataclass(frozen=True, slots=True)
class Wanted:
    """One request for logs."""

    namespace: str
    pod: str
    container: str
    follow: bool = False
    previous: bool = False
    tail_lines: int | None = None  # None: all
    limit_bytes: int | None = None


def parse_request(target: str) -> Wanted | None:
    """Read the request target `/containerLogs/NAMESPACE/POD/CONTAINER?…`, None when it is another one."""
    url = urlsplit(target)
    parts = [unquote(p) for p in url.path.strip("/").split("/")]
    if len(parts) != 4 or parts[0] != "containerLogs" or any(p in {"", ".", ".."} or "/" in p for p in parts):
        return None
    query = {k: v[-1] for k, v in parse_qs(url.query).items()}

    def number(name: str) -> int | None:
        return int(query[name]) if query.get(name, "").isdigit() else None

    return Wanted(
        namespace=parts[1],
        pod=parts[2],
        container=parts[3],
        follow=query.get("follow") == "true",
        previous=query.get("previous") == "true",
        tail_lines=number("tailLines"),
        limit_bytes=number("limitBytes"),
    )


def find_log(folder: Path, container: str, *, previous: bool) -> Path | None:
    """Return the newest log of a container (or the one before), None when there is none."""
    stems = [file.stem.rpartition("-") for file in folder.glob("*.log")]
    numbers = sorted(int(number) for name, _, number in stems if name == container and number.isdigit())
    index = -2 if previous else -1
    return folder / f"{container}-{numbers[index]}.log" if len(numbers) >= -index else None


def tail_start(file: Path, lines: int) -> int:
    """Return the offset in bytes where the last `lines` lines begin."""
    with file.open("rb") as stream:
        end = stream.seek(0, 2)
        begin = stream.seek(max(0, end - _TAIL_BYTES))
        kept = stream.read(end - begin).splitlines(keepends=True)
    return end - sum(map(len, kept[-lines:] if lines else []))


class LogsApi:
    """Serves logs over TLS."""

    def __init__(self, log_folder: Callable[[str, str], Path], is_running: Callable[[str, str, str], bool]) -> None:
        self._log_folder = log_folder  # (namespace, pod)
        self._is_running = is_running  # (namespace, pod, container): more may come

    async def serve(self, host: str, port: int, tls: ssl.SSLContext) -> asyncio.Server:
        """Start to listen."""
        return await asyncio.start_server(self._handle, host, port, ssl=tls)

    async def _handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one request and close."""
        try:
            async with asyncio.timeout(_REQUEST_S):
                head = await reader.readuntil(b"\r\n\r\n")
            method, target, _ = head.split(b"\r\n", 1)[0].decode("latin-1").split(" ", 2)
            await self._answer(method, target, writer)
        except (OSError, ValueError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # the client has closed the connection, or does not speak HTTP
        finally:
            with contextlib.suppress(OSError):
                writer.close()

    async def _answer(self, method: str, target: str, writer: asyncio.StreamWriter) -> None:
        if target.startswith("/healthz"):
            _plain(writer, "200 OK", "ok")
            return
        wanted = parse_request(target) if method == "GET" else None
        if wanted is None:
            _plain(writer, "404 Not Found", "the process node serves container logs only\n")
            return
        file = find_log(self._log_folder(wanted.namespace, wanted.pod), wanted.container, previous=wanted.previous)
        if file is None:
            which = "previous terminated container" if wanted.previous else "container"
            name = f'"{wanted.container}" in pod "{wanted.pod}"'
            _plain(writer, "400 Bad Request", f"{which} {name} has no log: it was not started\n")
            return
        writer.write(
            b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
        )
        await self._stream(wanted, file, writer)
        writer.write(b"0\r\n\r\n")
        await writer.drain()

    async def _stream(self, wanted: Wanted, file: Path, writer: asyncio.StreamWriter) -> None:
        left = wanted.limit_bytes
        with file.open("rb") as stream:
            if wanted.tail_lines is not None:
                stream.seek(tail_start(file, wanted.tail_lines))
            while not writer.is_closing():
                running = wanted.follow and self._is_running(wanted.namespace, wanted.pod, wanted.container)
                while block := stream.read(_CHUNK_BYTES if left is None else min(left, _CHUNK_BYTES)):
                    left = None if left is None else left - len(block)
                    writer.write(b"%x\r\n%s\r\n" % (len(block), block))
                    await writer.drain()
                if not running or left == 0:
                    return
                await asyncio.sleep(_FOLLOW_S)


def _plain(writer: asyncio.StreamWriter, status: str, text: str) -> None:
    body = text.encode()
    head = f"HTTP/1.1 {status}\r\nContent-Type: text/plain\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    writer.write(head.encode() + body)


def server_tls(certificate: Path, key: Path, client_ca: bytes) -> ssl.SSLContext:
    """Return the server's TLS: clients must show a certificate of this CA (PEM)."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(cadata=client_ca.decode())
    return context
