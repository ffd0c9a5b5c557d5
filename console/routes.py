"""The routes of the console below /console: a page, its live stream, its style and script.

Everything is limited: pages in work, streams, the time of a slow reader. A stream has no queue: each visitor gets the
difference between what was sent last and what there is when the connection is free again.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import blake2b
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

from fastapi import APIRouter, Request, Response
from fastapi.routing import APIRoute
from prometheus_client import Counter, Gauge
from starlette.types import Receive, Scope, Send

from console import access
from console.access import Denial, TokenCheck
from console.board import Board
from console.markup import Html
from console.page import Frame, message_page, sign_in_page
from console.query import parse_query
from console.stream import Known, event, stamp_of, whole_page

log = logging.getLogger(__name__)

Handler = Callable[[Request], Coroutine[Any, Any, Response]]

PATH = "/console"
STREAMS = Gauge("aim_adapters_console_streams", "Open live streams of the console.")
TURNED_AWAY = Counter(
    "aim_adapters_console_refused_total",
    "Requests to the console that were refused, by reason: foreign, unauthorized, forbidden, unknown, busy, slow.",
    ["reason"],
)
_REASONS = {401: "unauthorized", 403: "forbidden", 503: "unknown"}
_ASSETS = Path(__file__).parent / "assets"
_TYPES = {".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml"}
_LARGEST_FORM = 16 * 1024
_METHODS = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]
_GET = ["GET", "HEAD"]
_SECURITY = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of the console; times in seconds."""

    requests: int = 8  # pages in work
    streams: int = 16
    period: float = 1.0  # the least time between two updates of one visitor
    heartbeat: float = 15.0  # an empty event after this long without an update detects dead connections
    send: float = 20.0  # for the reader to take one update
    recheck: float = 60.0  # how often the token of an open stream is checked again


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


class DeniedError(Exception):
    """A request ends here, with this response."""

    def __init__(self, response: Response) -> None:
        super().__init__(response.status_code)
        self.response = response


class LiveStream(Response):
    """A response whose body is sent by a function: it can limit the time of each piece, and cut the connection."""

    def __init__(self, follow: Callable[[Scope, Receive, Send], Awaitable[None]]) -> None:
        super().__init__()
        self._follow = follow

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the stream."""
        await self._follow(scope, receive, send)


class Console:
    """The console over a board. `router` has its routes.

    Args: `check` checks tokens; without it only connections from inside the pod are answered. `abort` cuts the
    connection of a request whose reader is too slow.
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

    def router(self) -> APIRouter:
        """Return the routes; the last ones answer what no other route does, with a page for people."""
        console = self

        class Route(APIRoute):
            """A route of the console: denied requests and faults are answered with pages."""

            def get_route_handler(self) -> Handler:
                return console._guarded(super().get_route_handler())

        router = APIRouter(prefix=PATH, tags=["health"], route_class=Route)
        router.add_api_route("", self._page, methods=_GET, response_class=Response)
        router.add_api_route("/stream", self._stream, methods=["GET"], response_class=Response)
        for path, asset in self._assets.items():
            router.add_api_route(path, self._asset(asset), methods=_GET, response_class=Response)
        if self._check is not None:
            router.add_api_route("/sign-in", self._sign_in, methods=_METHODS, response_class=Response)
            router.add_api_route("/sign-out", self._sign_out, methods=_METHODS, response_class=Response)
        router.add_api_route("/", self._slash, methods=_GET, response_class=Response)
        router.add_api_route("", self._nowhere, methods=_METHODS, response_class=Response)
        router.add_api_route("/{rest:path}", self._nowhere, methods=_METHODS, response_class=Response)
        return router

    def _guarded(self, handle: Handler) -> Handler:
        async def guarded(request: Request) -> Response:
            try:
                self._local_or_token(request)
                return await handle(request)
            except DeniedError as denied:
                return denied.response
            except Exception:
                log.exception("the console failed")
                return self._say(Denial(500, "Something went wrong", "The log of this replica has the cause."))

        return guarded

    def _local_or_token(self, request: Request) -> None:
        """Refuse a request from outside of the pod, unless tokens decide. Raises: DeniedError."""
        if self._check is not None:
            return
        denial = access.by_port_forward(request.scope.get("client"), request.scope["headers"])
        if denial is not None:
            TURNED_AWAY.labels("foreign").inc()
            raise DeniedError(self._say(denial))

    async def _admit(self, request: Request) -> None:
        """Raises: DeniedError for a token that may not see the console."""
        denial = await self._denial(request.scope)
        if denial is None:
            return
        TURNED_AWAY.labels(_REASONS[denial.status]).inc()
        if denial.status == 401 and request.scope["path"] == PATH:
            page = sign_in_page(self._frame(), denial.words)
            raise DeniedError(_html(401, page, {"www-authenticate": "Bearer"}))
        if denial.status == 401:
            raise DeniedError(self._say(denial, {"www-authenticate": "Bearer"}))
        raise DeniedError(self._say(denial, {"retry-after": "5"} if denial.status == 503 else {}))

    async def _denial(self, scope: Scope) -> Denial | None:
        return await access.by_token(scope["headers"], self._check) if self._check is not None else None

    # -- the page ---------------------------------------------------------------------------------------------------

    async def _page(self, request: Request) -> Response:
        await self._admit(request)
        if self._in_work >= self._limits.requests:
            return self._busy()
        self._in_work += 1
        try:
            page = await self.board.page(parse_query(request.scope["query_string"]))
            pieces = [piece async for piece in whole_page(page, self._frame(), self._now())]
        finally:
            self._in_work -= 1
        return _html(200, Html("".join(pieces)))

    def _frame(self, depth: int = 0) -> Frame:
        """Return the addresses, relative: a proxy may show all of it below a path of its own."""
        base = "../" * depth

        def address(name: str) -> str:
            return f"{base}console/{name}?v={self._assets[f'/{name}'].version}"

        css, js, icon = (address(name) for name in ("console.css", "console.js", "icon.svg"))
        return Frame(css, js, icon, signed_in=self._check is not None, base=base)

    def _asset(self, asset: Asset) -> Callable[[Request], Awaitable[Response]]:
        async def answer(request: Request) -> Response:
            fresh = request.scope["query_string"] == f"v={asset.version}".encode()
            keeping = "public, max-age=31536000, immutable" if fresh else "no-cache"
            headers = {"content-type": asset.content_type, "cache-control": keeping, **_SECURITY}
            return Response(asset.body, 200, headers)

        return answer

    async def _slash(self) -> Response:
        return Response(None, 307, {"location": "../console"})

    async def _nowhere(self, request: Request) -> Response:
        if request.method not in _GET:
            return self._say(Denial(405, "Read only", "The console answers only GET requests."), {"allow": "GET, HEAD"})
        depth = request.scope["path"].removeprefix(PATH).count("/")
        return self._say(Denial(404, "Not found", "There is only /console."), depth=depth)

    # -- signing in -------------------------------------------------------------------------------------------------

    async def _sign_in(self, request: Request) -> Response:
        """Take a token into a cookie."""
        assert self._check is not None, "there is nothing to sign in to"
        self._only_forms(request)
        token = access.as_token(_field(await _body(request.receive), "token"))
        denial = await access.by_token([(b"authorization", f"Bearer {token}".encode())], self._check) if token else None
        if token is None or denial is not None:
            refused = denial or access.BAD_TOKEN
            TURNED_AWAY.labels(_REASONS[refused.status]).inc()
            return _html(refused.status, sign_in_page(self._frame(1), refused.words))
        return self._back(token)

    async def _sign_out(self, request: Request) -> Response:
        """Take the cookie away."""
        self._only_forms(request)
        return self._back("")

    def _only_forms(self, request: Request) -> None:
        """Raises: DeniedError for all but a form of this page."""
        if request.method != "POST" or not access.same_site(request.scope["headers"]):
            denial = Denial(405, "Not supported", "Use the form at /console.")
            raise DeniedError(self._say(denial, {"allow": "POST"}))

    def _back(self, token: str) -> Response:
        return Response(None, 303, {"location": "../console", **_SECURITY, "set-cookie": access.set_cookie(token)})

    # -- the stream -------------------------------------------------------------------------------------------------

    async def _stream(self, request: Request) -> Response:
        await self._admit(request)
        if self._streams >= self._limits.streams or self._ending.is_set():
            return self._busy()
        return LiveStream(self._show_changes)

    async def _show_changes(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._streams += 1
        STREAMS.set(self._streams)
        watching = asyncio.create_task(_gone(receive), name="console visitor")
        try:
            headers = {"content-type": "text/event-stream", "cache-control": "no-store", **_SECURITY}
            raw = [(name.encode(), value.encode()) for name, value in headers.items()]
            await send({"type": "http.response.start", "status": 200, "headers": raw})
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
        """Send what changes until the visitor leaves, loses access, or the process ends."""
        loop, limits = asyncio.get_running_loop(), self._limits
        query, known = parse_query(scope["query_string"]), Known()
        ending = asyncio.create_task(self._ending.wait(), name="console end")
        seen: object = None
        checked = sent = loop.time()
        try:
            await self._send(send, b"retry: 3000\n\n")
            first = await self.board.page(query)
            if _stamp_asked(scope["query_string"]) == stamp_of(first):
                known.take(first)
            while not (watching.done() or ending.done()):
                if loop.time() - checked > limits.recheck:
                    if await self._denial(scope) is not None:
                        break
                    checked = loop.time()
                mark = self.board.mark()
                update = None
                if mark != seen:
                    seen, update = mark, await known.update(await self.board.page(query), self._now())
                if update is None and loop.time() - sent >= limits.heartbeat:
                    update = event("beat", None)
                if update is not None:
                    await self._send(send, update)
                    sent = loop.time()
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

    def _busy(self) -> Response:
        TURNED_AWAY.labels("busy").inc()
        words = "This replica already serves as many visitors as it allows. Try again in a moment."
        return self._say(Denial(503, "Busy", words), {"retry-after": "5"})

    def _say(self, denial: Denial, headers: dict[str, str] | None = None, *, depth: int = 0) -> Response:
        return _html(denial.status, message_page(self._frame(depth), denial.title, denial.words), headers)


async def _gone(receive: Receive) -> None:
    """Return when the visitor has left."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def _body(receive: Receive) -> bytes:
    """Return the body of a form, up to the longest allowed length."""
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
    """Return the stamp of the page that a visitor already has."""
    return _field(query_string[:4096], "stamp")


def _html(status: int, page: Html, headers: dict[str, str] | None = None) -> Response:
    given = {"content-type": "text/html; charset=utf-8", "cache-control": "no-store", **_SECURITY, **(headers or {})}
    return Response(page.encode(errors="replace"), status, given)
