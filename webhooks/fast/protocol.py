"""uvicorn's HTTP protocol with a short path: a POST that arrived as a whole is answered past ASGI, in one write.

ASGI passes bodies and answers in pieces, through several coroutines. For a review that arrived in one piece this costs
more than its rules. So the protocol asks the application first (`AnswersAtOnce`). A request that the application
cannot answer at once takes the usual path through ASGI.

This file uses internals of uvicorn, as `app/protocol.py` does; see there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from webhooks.fast.outbox import Outbox

DIRECT = "aim_adapters.direct"
"""An ASGI extension of requests that `answer_now` began: see `Direct`."""


class AnswersAtOnce(Protocol):
    """What an application offers to a server that holds a whole request."""

    def answer_now(self, target: bytes, body: bytearray) -> bytes | object | None:
        """Answer a POST: JSON to send with status 200, or anything else: ask again through ASGI.

        Never waits, never raises. Args: `target` as in the request line (path and query). A value that is neither
        bytes nor None comes back as `Direct.begun`.
        """
        ...


class Direct:
    """The short path for the answer to one request that `answer_now` began and could not finish."""

    __slots__ = ("_cycle", "begun")

    def __init__(self, cycle: RequestResponseCycle, begun: object) -> None:
        self._cycle = cycle
        self.begun = begun

    def answer_json(self, body: bytes) -> bool:
        """Answer 200 with JSON in one write; False: nothing was sent, use `send`."""
        cycle = self._cycle
        if not cycle.keep_alive or cycle.disconnected or cycle.response_started or cycle.flow.write_paused:
            return False
        cycle.response_started = cycle.response_complete = True
        cycle.transport.write(_whole_answer(cycle.default_headers, body))
        cycle.message_event.set()
        cycle.on_response()
        return True


def direct_of(scope: Mapping[str, Any]) -> Direct | None:
    """Return the short path of a request, None if nothing of it has begun."""
    extensions = scope.get("extensions")
    found: Direct | None = extensions.get(DIRECT) if extensions else None
    return found


_JSON_HEAD = b"content-length: %d\r\ncontent-type: application/json\r\n\r\n"


def _whole_answer(default_headers: list[tuple[bytes, bytes]], body: bytes) -> bytes:
    head = [b"HTTP/1.1 200 OK\r\n"]
    for name, value in default_headers:
        head += (name, b": ", value, b"\r\n")
    return b"".join((*head, _JSON_HEAD % len(body), body))


def at_once(app: AnswersAtOnce) -> type[AtOnceProtocol]:
    """Return the protocol for one server whose application answers at once."""
    return type("AtOnce", (AtOnceProtocol,), {"at_once": app, "outbox": Outbox()})


class AtOnceProtocol(HttpToolsProtocol):
    """Offers each plain POST that is here as a whole to the application, without a task and without timers.

    `BoundedProtocol` of the server lies above it, and calls each of these methods with `super()`.
    """

    at_once: AnswersAtOnce
    outbox: Outbox
    draining: Callable[[], bool]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._offered: bytearray | None = None  # the body so far of a request that may be answered at once
        self._waits = False  # it is here as a whole, and is answered in this turn of the loop

    def data_received(self, data: bytes) -> None:
        """Send a request whose body is not here as a whole through ASGI."""
        super().data_received(data)
        if self._offered is not None and not self._waits and not self.transport.is_closing():
            self._begin(None)

    def on_message_begin(self) -> None:
        """Answer the request before it first, when both arrived in the same bytes."""
        if self._waits:
            self.outbox.flush()
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """Hold a plain POST until its body is here; begin with anything else."""
        self._offered = bytearray()
        if not self._is_plain_post():
            self._begin(None)

    def _is_plain_post(self) -> bool:
        """Return whether only the body decides if the request can be answered at once: no end, no queue, no extras."""
        return (
            self.parser.get_method() == b"POST"
            and self.parser.get_http_version() == "1.1"
            and self.parser.should_keep_alive()
            and not self.parser.should_upgrade()
            and not self.expect_100_continue
            and not self.flow.write_paused
            and not self.draining()
            and (self.cycle is None or self.cycle.response_complete)
        )

    def _begin(self, begun: object | None) -> None:
        """Begin through ASGI, with the part of the body that is here."""
        body, self._offered = self._offered, None
        super().on_headers_complete()
        if begun is not None:
            extensions: dict[str, object] = self.cycle.scope.setdefault("extensions", {})  # type: ignore[assignment]
            extensions[DIRECT] = Direct(self.cycle, begun)
        if body:
            super().on_body(bytes(body))

    def on_body(self, body: bytes) -> None:
        """Collect a body that may be answered at once."""
        if self._offered is None:
            super().on_body(body)
        else:
            self._offered += body

    def on_message_complete(self) -> None:
        """Ask for the answer, together with other requests of this turn of the loop."""
        if self._offered is None:
            super().on_message_complete()
        else:
            self._waits = True
            self.outbox.ask(self.loop, self)

    def answer(self) -> bytes | None:
        """Return the answer to the held request; None if it goes through ASGI, or the client is gone."""
        self._waits = False
        if self._offered is None or self.transport.is_closing():
            return None
        answer = self.at_once.answer_now(self.url, self._offered)
        if isinstance(answer, bytes):
            self._offered = None
            self.on_response_complete()
            return _whole_answer(self.server_state.default_headers, answer)
        try:
            self._begin(answer)
            super().on_message_complete()
        except Exception:  # an invalid target: in the parser's own time uvicorn answers so
            self.send_400_response("Invalid HTTP request received.")
        return None

    def eof_received(self) -> None:
        """Answer what the client asked before its connection ends."""
        self.outbox.flush()
        super().eof_received()

    def send_400_response(self, msg: str) -> None:
        """Answer what is not HTTP, after the requests before it, and end the connection."""
        self.outbox.flush()
        super().send_400_response(msg)

    def shutdown(self) -> None:
        """End the connection, now or with its last answer."""
        self.outbox.flush()
        super().shutdown()
