"""The console as one small ASGI application below /console: a page, its live stream, its style and script.

Everything is bounded: requests in work, streams, the time that a slow reader may take. A stream has no queue: each
visitor gets the difference between what was sent last and what there is when the line is free again.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import blake2b
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

from prometheus_client import Counter, Gauge

from console import access
from console.access import Denial, TokenCheck
from console.board import Board
from console.markup import Html
from console.page import Frame, message_page, sign_in_page
from console.query import parse_query
from console.stream import Known, event, stamp_of, whole_page

log = logging.getLogger(__name__)

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

PATH = "/console"
STREAMS = Gauge("aim_adapters_console_streams", "Visitors of the console who are shown changes live.")
TURNED_AWAY = Counter(
    "aim_adapters_console_refused_total",
    "Requests to the console that were turned away: foreign, unauthorized, forbidden, unknown, busy, slow.",
    ["reason"],
)
_REASONS = {401: "unauthorized", 403: "forbidden", 503: "unknown"}
_ASSETS = Path(__file__).parent / "assets"
_TYPES = {".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml"}
_LARGEST_FORM = 16 * 1024
_SECURITY = (
    (
        b"content-security-policy",
        b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        b"form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    ),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
)


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of the console; times in seconds."""

    requests: int = 8  # pages in work
    streams: int = 16
    period: float = 1.0  # the least time between two updates of one visitor
    heartbeat: float = 15.0  # a comment after so long without an update: dead connections are found out
    send: float = 20.0  # for one update to be taken by the reader
    recheck: float = 60.0  # how often the token of an open stream is asked about again


@dataclass(frozen=True, slots=True)
class Asset:
    """A file that the page needs; `version` is a hash of its content."""

    name: str
    body: bytes
    content_type: str
    version: str


def load_assets() -> dict[str, Asset]:
    """Read the page's files: paths below /console -> asset."""
    found = {}
    for path in sorted(_ASSETS.iterdir()):
        if path.suffix in _TYPES:
            body = path.read_bytes()
            version = blake2b(body, digest_size=6).hexdigest()
            found[f"/{path.name}"] = Asset(path.name, body, _TYPES[path.suffix], version)
    return found


class Console:
    """The ASGI application.

    Args: `check` asks about tokens; without it only connections from inside the pod are answered. `abort` cuts the
    connection of a scope whose reader is too slow.
    """

    def __init__(
        self,
        board: Board,
        *,
        check: TokenCheck | None = None,
        limits: Limits | None = None,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        abort: Callable[[Scope], None] = lambda scope: None,
    ) -> None:
        self.board = board
        self._check, self._now, self._abort = check, now, abort
        self._limits = limits or Limits()
        self._assets = load_assets()
        self._in_work = self._streams = 0
        self._ending = asyncio.Event()

    def close(self) -> None:
        """End all streams: the process is about to end, and visitors look for another replica."""
        self._ending.set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request below /console."""
        if scope["type"] != "http":
            return
        try:
            await self._route(scope, receive, send)
        except Exception:
            log.exception("the console failed")
            with contextlib.suppress(RuntimeError):  # the answer may have begun
                await self._say(send, Denial(500, "Something went wrong", "The log of this replica says what."))

    async def _route(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = str(scope["path"]).removeprefix(PATH)
        if self._check is None:
            denial = access.by_port_forward(scope.get("client"), scope["headers"])
            if denial is not None:
                TURNED_AWAY.labels("foreign").inc()
                await self._say(send, denial)
                return
        if path in ("/sign-in", "/sign-out") and self._check is not None:
            await self._sign(path, scope, receive, send)
        elif scope["method"] not in ("GET", "HEAD"):
            await self._say(
                send, Denial(405, "Read only", "The console answers GET alone."), ((b"allow", b"GET, HEAD"),)
            )
        elif path in self._assets:
            await self._asset(self._assets[path], scope, send)
        elif path == "/":
            await _answer(send, 307, b"", ((b"location", b"../console"),))
        elif path not in ("", "/stream"):
            await self._say(send, Denial(404, "Not here", "There is only /console."), depth=path.count("/"))
        elif (denial := await self._denied(scope)) is not None:
            await self._deny(denial, scope, send)
        elif path == "/stream" and scope["method"] == "GET":
            await self._stream(scope, receive, send)
        else:
            await self._page(scope, send)

    async def _denied(self, scope: Scope) -> Denial | None:
        return await access.by_token(scope["headers"], self._check) if self._check is not None else None

    # -- the page ---------------------------------------------------------------------------------------------------

    async def _page(self, scope: Scope, send: Send) -> None:
        if self._in_work >= self._limits.requests:
            await self._busy(send)
            return
        self._in_work += 1
        try:
            page = await self.board.page(parse_query(scope["query_string"]))
            pieces = [piece async for piece in whole_page(page, self._frame(), self._now())]
        finally:
            self._in_work -= 1
        await _html(send, 200, Html("".join(pieces)))

    def _frame(self, depth: int = 0) -> Frame:
        """Return the addresses, relative: a proxy may show all of it below a path of its own."""
        base = "../" * depth

        def address(name: str) -> str:
            return f"{base}console/{name}?v={self._assets[f'/{name}'].version}"

        css, js, icon = (address(name) for name in ("console.css", "console.js", "icon.svg"))
        return Frame(css, js, icon, signed_in=self._check is not None, base=base)

    async def _asset(self, asset: Asset, scope: Scope, send: Send) -> None:
        fresh = scope["query_string"] == f"v={asset.version}".encode()
        keeping = b"public, max-age=31536000, immutable" if fresh else b"no-cache"
        headers = ((b"content-type", asset.content_type.encode()), (b"cache-control", keeping), *_SECURITY)
        await _answer(send, 200, asset.body, headers)

    # -- who may look -----------------------------------------------------------------------------------------------

    async def _deny(self, denial: Denial, scope: Scope, send: Send) -> None:
        TURNED_AWAY.labels(_REASONS[denial.status]).inc()
        if denial.status == 401 and scope["path"] == PATH:
            await _html(send, 401, sign_in_page(self._frame(), denial.words), ((b"www-authenticate", b"Bearer"),))
        elif denial.status == 401:
            await self._say(send, denial, ((b"www-authenticate", b"Bearer"),))
        else:
            await self._say(send, denial, ((b"retry-after", b"5"),) if denial.status == 503 else ())

    async def _sign(self, path: str, scope: Scope, receive: Receive, send: Send) -> None:
        """Take a token into a cookie, or take the cookie away."""
        assert self._check is not None, "there is nothing to sign in to"
        back = (b"location", b"../console")
        if scope["method"] != "POST" or not access.same_site(scope["headers"]):
            await self._say(send, Denial(405, "Not like this", "Use the form at /console."), ((b"allow", b"POST"),))
            return
        if path == "/sign-out":
            await _answer(send, 303, b"", (back, access.set_cookie(""), *_SECURITY))
            return
        token = access.as_token(_field(await _body(receive), "token"))
        denial = await access.by_token([(b"authorization", f"Bearer {token}".encode())], self._check) if token else None
        if token is None or denial is not None:
            refused = denial or access.BAD_TOKEN
            TURNED_AWAY.labels(_REASONS[refused.status]).inc()
            await _html(send, refused.status, sign_in_page(self._frame(1), refused.words))
            return
        await _answer(send, 303, b"", (back, access.set_cookie(token), *_SECURITY))

    # -- the stream -------------------------------------------------------------------------------------------------

    async def _stream(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._streams >= self._limits.streams or self._ending.is_set():
            await self._busy(send)
            return
        self._streams += 1
        STREAMS.set(self._streams)
        watching = asyncio.create_task(_gone(receive), name="console visitor")
        try:
            headers = ((b"content-type", b"text/event-stream"), (b"cache-control", b"no-store"), *_SECURITY)
            await send({"type": "http.response.start", "status": 200, "headers": list(headers)})
            await self._follow(scope, send, watching)
        except TimeoutError:  # a reader that does not read
            TURNED_AWAY.labels("slow").inc()
            self._abort(scope)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(watching, 1.0)
        finally:
            self._streams -= 1
            STREAMS.set(self._streams)
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)

    async def _follow(self, scope: Scope, send: Send, watching: asyncio.Task[None]) -> None:
        """Send what changes until the visitor leaves, may not look any more, or the process ends."""
        loop, limits = asyncio.get_running_loop(), self._limits
        query, known = parse_query(scope["query_string"]), Known()
        ending = asyncio.create_task(self._ending.wait(), name="console end")
        seen: object = None
        checked = said = loop.time()
        try:
            await self._send(send, b"retry: 3000\n\n")
            first = await self.board.page(query)
            if _stamp_asked(scope["query_string"]) == stamp_of(first):
                known.take(first)
            while not (watching.done() or ending.done()):
                if loop.time() - checked > limits.recheck:
                    if await self._denied(scope) is not None:
                        break
                    checked = loop.time()
                mark = self.board.mark()
                told = None
                if mark != seen:
                    seen, told = mark, await known.update(await self.board.page(query), self._now())
                if told is None and loop.time() - said >= limits.heartbeat:
                    told = event("beat", None)
                if told is not None:
                    await self._send(send, told)
                    said = loop.time()
                await asyncio.wait({watching, ending}, timeout=limits.period, return_when=asyncio.FIRST_COMPLETED)
            if not watching.done():
                await self._send(send, b"", more=False)
        finally:
            ending.cancel()
            await asyncio.gather(ending, return_exceptions=True)

    async def _send(self, send: Send, body: bytes, *, more: bool = True) -> None:
        """Send a piece. Raises: TimeoutError when the reader does not take it."""
        async with asyncio.timeout(self._limits.send):
            await send({"type": "http.response.body", "body": body, "more_body": more})

    # -- other answers ----------------------------------------------------------------------------------------------

    async def _busy(self, send: Send) -> None:
        TURNED_AWAY.labels("busy").inc()
        words = "As many people as this replica serves are looking already; try again in a moment."
        await self._say(send, Denial(503, "Busy", words), ((b"retry-after", b"5"),))

    async def _say(
        self, send: Send, denial: Denial, headers: tuple[tuple[bytes, bytes], ...] = (), *, depth: int = 0
    ) -> None:
        frame = self._frame(depth)
        await _html(send, denial.status, message_page(frame, denial.title, denial.words), headers)


async def _gone(receive: Receive) -> None:
    """Return when the visitor has left."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def _body(receive: Receive) -> bytes:
    """Return the body of a form, as far as forms are allowed to be long."""
    body = bytearray()
    while len(body) <= _LARGEST_FORM:
        message = await receive()
        if message["type"] != "http.request":
            break
        body += message.get("body", b"")
        if not message.get("more_body"):
            break
    return bytes(body[:_LARGEST_FORM])


def _field(body: bytes, name: str) -> str:
    try:
        return parse_qs(body.decode("latin-1"), max_num_fields=10).get(name, [""])[0].strip()
    except ValueError:
        return ""


def _stamp_asked(query_string: bytes) -> str:
    """Return the stamp of the page that a visitor has already."""
    return _field(query_string[:4096], "stamp")


async def _html(send: Send, status: int, page: Html, headers: tuple[tuple[bytes, bytes], ...] = ()) -> None:
    given = ((b"content-type", b"text/html; charset=utf-8"), (b"cache-control", b"no-store"), *_SECURITY, *headers)
    await _answer(send, status, page.encode(errors="replace"), given)


async def _answer(send: Send, status: int, body: bytes, headers: tuple[tuple[bytes, bytes], ...]) -> None:
    length = (b"content-length", b"%d" % len(body))
    await send({"type": "http.response.start", "status": status, "headers": [*headers, length]})
    await send({"type": "http.response.body", "body": body})
