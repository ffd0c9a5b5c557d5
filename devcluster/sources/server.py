"""The shell that both sources share: sockets, sending of files, faults, the journal, threads and the command line."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import hmac
import json
import os
import signal
import socket
import ssl
import struct
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Final, Self, TypeVar
from urllib.parse import unquote, unquote_plus

from aiohttp import web

from devcluster.sources.faults import Faults, Rule, RuleError, parse_rules
from devcluster.sources.files import CHUNK_BYTES, Digests, Located, Root, open_file
from devcluster.sources.journal import Entry, Journal

CONTROL_HEADER: Final = "X-Control-Secret"
MAX_CONTROL_BYTES: Final = 1 << 20
FAULT_CHUNK_BYTES: Final = 64 << 10
LOOK_AGAIN: Final = 10  # times, when files are replaced under a request
STOP_SECONDS: Final = 0.2  # what requests in flight get at the end; then they are cancelled


@dataclass(slots=True)
class Call:
    """One request as the sources see it. The three last fields are set by `route` and `answer`."""

    request: web.BaseRequest
    site: str
    method: str
    raw_path: str  # percent-encoded as sent, without the query
    raw_query: str
    operation: str = ""
    path: str = ""
    identity: str = "anonymous"

    @property
    def segments(self) -> list[str]:
        """The decoded parts of the path; an encoded slash does not split."""
        return [unquote(part) for part in self.raw_path.split("/")[1:]]

    @property
    def query(self) -> dict[str, str]:
        """The decoded query; of a repeated name the last value."""
        pairs = (pair.partition("=") for pair in self.raw_query.split("&") if pair)
        return {unquote_plus(name): unquote_plus(value) for name, _, value in pairs}

    def header(self, name: str) -> str:
        """Return a header or an empty string."""
        return str(self.request.headers.get(name, ""))

    async def chunks(self) -> AsyncIterator[bytes]:
        """Yield the request's body, after the go-ahead if the client waits for one."""
        if self.header("Expect").lower() == "100-continue" and self.request.transport is not None:
            self.request.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        async for chunk in self.request.content.iter_chunked(CHUNK_BYTES):
            yield chunk

    async def body(self, limit: int = MAX_CONTROL_BYTES) -> bytes:
        """Return the whole body.

        Raises: ValueError above `limit` bytes.
        """
        parts = bytearray()
        async for chunk in self.chunks():
            parts += chunk
            if len(parts) > limit:
                raise ValueError(f"body is larger than {limit} bytes")
        return bytes(parts)


@dataclass(slots=True)
class FilePart:
    """The bytes of a file that an answer carries."""

    file: Located
    start: int
    count: int


@dataclass(slots=True)
class Answer:
    """The answer: either `body` or `part`."""

    status: int
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    part: FilePart | None = None
    code: str = ""  # for the journal

    @property
    def length(self) -> int:
        """Content-Length in bytes."""
        return self.part.count if self.part is not None else len(self.body)


@dataclass(slots=True)
class _Transfer:
    """One file on its way to a client."""

    call: Call
    response: web.StreamResponse
    fd: int
    part: FilePart
    rule: Rule | None
    entry: Entry


def json_answer(data: object, status: int = 200, headers: dict[str, str] | None = None) -> Answer:
    """Return data as a JSON answer."""
    body = json.dumps(data).encode()
    return Answer(status, {"Content-Type": "application/json; charset=utf-8", **(headers or {})}, body)


class RangeError(ValueError):
    """The first requested byte is behind the end: status 416."""


def parse_range(header: str, size: int) -> tuple[int, int] | None:
    """Return (start, count) of a single-range header, None when it is to be ignored.

    Ignored are other units, several ranges and malformed ones, as RFC 9110, section 14.2 allows.
    Raises: RangeError when it is well-formed but no byte of the `size` bytes is in it.
    """
    unit, _, spec = header.partition("=")
    first, dash, last = spec.strip().partition("-")
    if unit.strip().lower() != "bytes" or not dash or "," in spec:
        return None
    if not all(not part or (part.isascii() and part.isdigit()) for part in (first, last)) or not (first or last):
        return None
    if not first:
        count = min(int(last), size)
        if count == 0:
            raise RangeError(header)
        return size - count, count
    start, end = int(first), min(int(last), size - 1) if last else size - 1
    if last and int(last) < start:
        return None
    if start >= size:
        raise RangeError(header)
    return start, end - start + 1


class StandIn:
    """One source. Use it as `async with` in a running loop, or through `in_thread` from synchronous code."""

    name = "source"

    def __init__(
        self,
        root: str | os.PathLike[str],
        *,
        secret: str,
        host: str = "127.0.0.1",
        port: int = 0,
        faults_file: str | None = None,
        requests_file: str | None = None,
        tls_cert: str | None = None,
        tls_key: str | None = None,
    ) -> None:
        os.makedirs(root, exist_ok=True)
        self.root = Root(root)
        self.digests = Digests()
        self.faults = Faults(faults_file)
        self.journal = Journal(requests_file)
        self._control_secret = secret
        self._host, self._port = host, port
        self._tls: ssl.SSLContext | None = None
        if tls_cert is not None:
            self._tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self._tls.load_cert_chain(tls_cert, tls_key)
        self._open: list[tuple[asyncio.Server, web.Server]] = []
        self._in_flight = 0
        self.ports: dict[str, int] = {}

    # what a source decides

    def route(self, call: Call) -> None:
        """Set `call.operation` and `call.path`; no I/O."""
        raise NotImplementedError

    async def answer(self, call: Call) -> Answer:
        """Check the request and answer it."""
        raise NotImplementedError

    def fault_answer(self, call: Call, rule: Rule) -> Answer:
        """Return the error of `rule.status` in the source's own form."""
        raise NotImplementedError

    # life

    @property
    def scheme(self) -> str:
        """http or https."""
        return "https" if self._tls is not None else "http"

    @property
    def endpoint(self) -> str:
        """The base URL for clients, without a slash at the end."""
        return self.url_of(self.name)

    def url_of(self, site: str) -> str:
        """Return the base URL of one of the sites."""
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"{self.scheme}://{host}:{self.ports[site]}"

    def sites(self) -> dict[str, int]:
        """Return the port wanted for each site (0: any free one)."""
        return {self.name: self._port}

    async def start(self) -> None:
        """Listen.

        Raises: OSError when an address is taken.
        """
        loop = asyncio.get_running_loop()
        for site, port in self.sites().items():
            handler = web.Server(self._handler(site), access_log=None, max_line_size=32768, max_field_size=32768)
            # a client that keeps an idle connection never answers our goodbye: without a limit that takes 30 s
            limit = None if self._tls is None else STOP_SECONDS
            server = await loop.create_server(
                handler, self._host, port, ssl=self._tls, ssl_shutdown_timeout=limit, backlog=512
            )
            self.ports[site] = server.sockets[0].getsockname()[1]
            self._open.append((server, handler))

    async def stop(self) -> None:
        """Close the sockets, and what is still in flight."""
        for server, handler in self._open:
            server.close()
            handler.pre_shutdown()  # ends idle connections
        await asyncio.sleep(0)  # lets them notice, so that only requests in flight are waited for
        await asyncio.gather(*(handler.shutdown(STOP_SECONDS) for _, handler in self._open))
        for server, _ in self._open:
            await _all_closed(server)
        self._open.clear()
        self.journal.close()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    # what tests use

    def set_faults(self, rules: Sequence[Rule | dict[str, Any]]) -> None:
        """Replace the posted rules (those of a faults file stay).

        Raises: RuleError.
        """
        self.faults.set(rules)

    def requests(self, since: int = 0, wait_seconds: float = 2.0) -> list[dict[str, Any]]:
        """Return the journal from another thread, after requests in flight have ended (or `wait_seconds`)."""
        end = time.monotonic() + wait_seconds
        while self._in_flight and time.monotonic() < end:
            time.sleep(0.002)
        return self.journal.since(since)

    # requests

    def _handler(self, site: str) -> Callable[[web.BaseRequest], Coroutine[Any, Any, web.StreamResponse]]:
        async def handle(request: web.BaseRequest) -> web.StreamResponse:
            raw_path, _, raw_query = request.raw_path.partition("?")
            call = Call(request, site, request.method, raw_path, raw_query)
            if raw_path.startswith("/_"):
                return await self._send(call, await self._control(call), None, Entry())
            self._in_flight += 1
            try:
                return await self._serve(call)
            finally:
                self._in_flight -= 1

        return handle

    async def _serve(self, call: Call) -> web.StreamResponse:
        began = time.monotonic()
        entry = Entry(site=call.site, method=call.method, query=_without_signature(call.raw_query))
        entry.range, entry.agent = call.header("Range"), call.header("User-Agent")
        try:
            self.route(call)
            rule = self.faults.at_start(call.path, call.method, call.operation)
            if rule is not None and rule.delay:
                entry.fault = f"delay {rule.delay}"
                await asyncio.sleep(rule.delay)
            if rule is not None and rule.drop:
                entry.fault = "drop"
                return _hang_up(call, reset=rule.reset)
            if rule is not None and rule.status is not None:
                entry.fault = f"status {rule.status}"
                answer = self.fault_answer(call, rule)
            else:
                answer = await self.answer(call)
            for _ in range(LOOK_AGAIN):
                with contextlib.suppress(FileNotFoundError):
                    return await self._send_checked(call, answer, entry)
                answer = await self.answer(call)  # the file was replaced between look-up and opening
            return await self._send_checked(call, answer, entry)
        finally:
            entry.operation, entry.path, entry.identity = call.operation, call.path, call.identity
            entry.seconds = round(time.monotonic() - began, 6)
            self.journal.add(entry)

    async def _send_checked(self, call: Call, answer: Answer, entry: Entry) -> web.StreamResponse:
        rule = None
        if answer.part is not None and call.method == "GET":
            part = answer.part
            rule = self.faults.at_body(
                call.path,
                call.method,
                call.operation,
                start=part.start,
                count=part.count,
                partial=answer.status == 206,
            )
        if rule is not None:
            entry.fault = ", ".join(f"{k} {v}" for k, v in rule.as_dict().items() if k not in _CONDITIONS)
            if rule.delay:
                await asyncio.sleep(rule.delay)
            if rule.ignore_range and answer.part is not None and answer.status == 206:
                answer.status, answer.part.start, answer.part.count = 200, 0, answer.part.file.size
                answer.headers.pop("Content-Range", None)
        return await self._send(call, answer, rule, entry)

    async def _send(self, call: Call, answer: Answer, rule: Rule | None, entry: Entry) -> web.StreamResponse:
        entry.status, entry.code = answer.status, answer.code
        response = web.StreamResponse(status=answer.status, headers=answer.headers)
        bodiless = call.method == "HEAD" or answer.status in (204, 304)
        pad = rule.wrong_length or 0 if rule is not None else 0
        fd = open_file(answer.part.file) if answer.part is not None and not bodiless else -1
        try:
            if answer.status not in (204, 304):
                response.content_length = max(0, answer.length + pad)
            await response.prepare(call.request)
            if not bodiless and answer.part is None:
                await response.write(answer.body)
                entry.bytes = len(answer.body)
            elif not bodiless and answer.part is not None:
                await self._send_part(_Transfer(call, response, fd, answer.part, rule, entry))
            entry.complete = bodiless or entry.bytes == response.content_length
            if entry.complete:
                await response.write_eof()
        except (ConnectionError, ssl.SSLError):  # the client went away: what it got is in the entry
            if call.request.transport is not None:
                call.request.transport.abort()
        finally:
            if fd >= 0:
                os.close(fd)
        return response

    async def _send_part(self, transfer: _Transfer) -> None:
        part, transport = transfer.part, transfer.call.request.transport
        if transport is None:
            raise ConnectionResetError("gone before the body")
        if transfer.rule is not None or self._tls is not None or part.count == 0:
            await _send_chunks(transfer)
            return
        loop = asyncio.get_running_loop()
        with os.fdopen(os.dup(transfer.fd), "rb", buffering=0) as stream:
            try:
                await loop.sendfile(transport, stream, part.start, part.count, fallback=False)
            finally:  # it leaves the position where sending ended, also when it fails
                transfer.entry.bytes = max(0, stream.tell() - part.start)
        if transfer.entry.bytes < part.count:  # the file became shorter
            transport.abort()

    # control

    async def _control(self, call: Call) -> Answer:
        if call.raw_path == "/_health":
            return json_answer({"status": "ok", "name": self.name})
        if not hmac.compare_digest(call.header(CONTROL_HEADER).encode(), self._control_secret.encode()):
            return json_answer({"error": f"{CONTROL_HEADER} must be the server's secret"}, 403)
        if call.raw_path == "/_faults":
            return await self._control_faults(call)
        if call.raw_path == "/_requests":
            return await self._control_requests(call)
        return json_answer({"error": "known are /_health, /_faults and /_requests"}, 404)

    async def _control_faults(self, call: Call) -> Answer:
        if call.method in ("POST", "PUT"):
            try:
                self.faults.set(parse_rules(json.loads(await call.body())))
            except (RuleError, ValueError) as error:
                return json_answer({"error": str(error)}, 400)
        elif call.method == "DELETE":
            self.faults.set([])
        rules = [rule.as_dict() for rule in self.faults.rules()]
        return json_answer({"rules": rules, "fileError": self.faults.file_error})

    async def _control_requests(self, call: Call) -> Answer:
        if call.method == "DELETE":
            self.journal.clear()
        for _ in range(
            200
        ):  # at most 1 s: the entry of an answer that a client has just received may not be written yet
            if not self._in_flight:
                break
            await asyncio.sleep(0.005)
        since = call.query.get("since", "0")
        entries = self.journal.since(int(since) if since.isdigit() else 0)
        return json_answer({"requests": entries})


_CONDITIONS: Final = frozenset({"match", "method", "operation", "only_nth", "times", "seen", "fired"})


def _without_signature(raw_query: str) -> str:
    """Return the query for the journal: signatures and tokens are as good as a password while they last."""
    hidden = ("signature", "security-token", "credential", "policy")
    kept = (pair for pair in raw_query.split("&") if not pair.split("=")[0].lower().endswith(hidden))
    return "&".join(kept)


def _hang_up(call: Call, *, reset: bool) -> web.StreamResponse:
    """Close the connection under the client; the response returned is never sent."""
    transport = call.request.transport
    if transport is not None:
        raw = transport.get_extra_info("socket")
        if reset and raw is not None:  # linger of 0 s: the kernel sends RST instead of FIN
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            transport.abort()
        transport.close()  # flushes what was written
    return web.StreamResponse()


async def _send_chunks(transfer: _Transfer) -> None:
    """Send a part in pieces read off the loop, doing what the rule says."""
    part, rule, entry = transfer.part, transfer.rule or Rule(), transfer.entry
    total = max(0, part.count + (rule.wrong_length or 0))
    end = total if rule.cut_after_bytes is None else min(total, rule.cut_after_bytes)
    rate = rule.slow_bytes_per_second
    step = CHUNK_BYTES if not rate else max(1, min(FAULT_CHUNK_BYTES, rate // 20))
    began = time.monotonic()
    while entry.bytes < end:
        wanted = min(step, end - entry.bytes)
        offset = part.start + entry.bytes
        inside = max(0, min(wanted, part.count - entry.bytes))  # behind it: zeros of wrong_length
        data = await asyncio.to_thread(os.pread, transfer.fd, inside, offset) if inside else b""
        if len(data) < inside:  # the file became shorter
            break
        await transfer.response.write(_corrupted(data, offset, rule) + bytes(wanted - inside))
        entry.bytes += wanted
        if rate:
            await asyncio.sleep(max(0.0, began + entry.bytes / rate - time.monotonic()))
    if entry.bytes != total:
        await _flush(transfer.call)
        _hang_up(transfer.call, reset=rule.reset)


async def _all_closed(server: asyncio.Server) -> None:
    """Wait until each connection is closed, at most 1 s, also one that is still in its TLS handshake.

    Before Python 3.12 `wait_closed` returns at once, so its count of connections is looked at first.
    """
    for _ in range(200):
        if not getattr(server, "_active_count", 0):
            break
        await asyncio.sleep(0.005)
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(server.wait_closed(), STOP_SECONDS)


async def _flush(call: Call) -> None:
    """Wait until the kernel has taken all that was written (at most 10 s), so that a cut comes after it."""
    transport = call.request.transport
    for _ in range(1000):
        if transport is None or transport.is_closing() or transport.get_write_buffer_size() == 0:
            return
        await asyncio.sleep(0.01)


def _corrupted(data: bytes, offset: int, rule: Rule) -> bytes:
    """Return the bytes at `offset` of the file, with the rule's byte flipped."""
    at = rule.corrupt_byte_at - offset if rule.corrupt_byte_at is not None else -1
    if not 0 <= at < len(data):
        return data
    return data[:at] + bytes([data[at] ^ 0xFF]) + data[at + 1 :]


S = TypeVar("S", bound=StandIn)


@contextlib.contextmanager
def in_thread(make: Callable[[], S]) -> Iterator[S]:
    """Run a source in a thread with an event loop of its own, for synchronous code. Yields it started.

    Raises: what starting raises; RuntimeError when it does not start or stop within 10 s.
    """
    ready = threading.Event()
    state: dict[str, Any] = {}

    async def live() -> None:
        state["stop"] = asyncio.Event()
        state["loop"] = asyncio.get_running_loop()
        try:
            async with make() as source:
                state["source"] = source
                ready.set()
                await state["stop"].wait()
        except BaseException as error:  # handed to the thread that waits; a lost one would look like a hang
            state["error"] = error
        finally:
            ready.set()

    thread = threading.Thread(target=lambda: asyncio.run(live()), name="source", daemon=True)
    thread.start()
    try:
        if not ready.wait(10):
            raise RuntimeError("the source did not start within 10 s")
        if "error" in state:
            raise state["error"]
        yield state["source"]
    finally:
        if "source" in state:
            state["loop"].call_soon_threadsafe(state["stop"].set)
        thread.join(10)
        if thread.is_alive():
            raise RuntimeError("the source did not stop within 10 s")


def parse_listen(value: str) -> tuple[str, int]:
    """Return (host, port) of HOST:PORT or [IPV6]:PORT.

    Raises: argparse.ArgumentTypeError.
    """
    host, colon, port = value.rpartition(":")
    if not colon or not port.isdigit() or int(port) > 65535:
        raise argparse.ArgumentTypeError(f"{value!r} is not HOST:PORT (port 0: any free one)")
    return host.strip("[]") or "127.0.0.1", int(port)


def common_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags that both sources have."""
    parser.add_argument("--root", required=True, help="folder to serve; created if it does not exist")
    parser.add_argument("--listen", type=parse_listen, default=("127.0.0.1", 0), metavar="HOST:PORT")
    parser.add_argument("--faults-file", help="JSON file with fault rules, re-read when it changes")
    parser.add_argument("--requests-file", help="write each request as a JSON line to this file")
    parser.add_argument("--tls-cert", help="PEM certificate chain; serves https")
    parser.add_argument("--tls-key", help="PEM key of the certificate")
    parser.add_argument("--ready-fd", type=int, help="write the ready line to this descriptor too, then close it")


def common_options(flags: argparse.Namespace) -> dict[str, Any]:
    """Return the keyword arguments of `StandIn` that the common flags stand for."""
    host, port = flags.listen
    names = ("faults_file", "requests_file", "tls_cert", "tls_key")
    return {"host": host, "port": port} | {name: getattr(flags, name) for name in names}


async def serve(source: StandIn, ready_fd: int | None, shown: Callable[[], dict[str, Any]]) -> None:
    """Serve until SIGTERM or SIGINT; announce the address as one JSON line when listening."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    async with source:
        line = json.dumps({"endpoint": source.endpoint, "pid": os.getpid(), **shown()}) + "\n"
        sys.stdout.write(line)
        sys.stdout.flush()
        if ready_fd is not None:
            with os.fdopen(ready_fd, "w") as stream:
                stream.write(line)
        await stop.wait()
