"""The short way between our server and the hot endpoints: a whole body in, a whole answer out, in one write.

ASGI hands bodies and answers over in pieces, through several coroutines; for a review that arrived in one piece that
costs as much as a third of its rules. So the server asks the application first, where it `AnswersAtOnce`. What cannot
be answered without waiting goes the usual way, and finds a `Direct` among the scope's extensions; without either
everything works too.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

EXTENSION = "aim_adapters.direct"


@runtime_checkable
class AnswersAtOnce(Protocol):
    """What an application offers to a server that has a whole request in its hands."""

    def answer_now(self, target: bytes, body: bytearray) -> bytes | object | None:
        """Answer a POST: JSON to send with status 200, or anything else: ask again, the usual way.

        Never waits, never raises. Args: `target` as in the request line (path and query). What is returned beside
        bytes comes back as `Direct.begun`.
        """
        ...


class Direct(Protocol):
    """What our server offers for one request."""

    begun: object | None
    """What `answer_now` left to be finished."""

    def whole_body(self) -> bytes | bytearray | None:
        """Return the body if all of it is here already, else None; it is read once, here or through `receive`."""
        ...

    def answer_json(self, body: bytes) -> bool:
        """Answer 200 with JSON, all at once; False: nothing was sent, use `send`."""
        ...

    def abort(self) -> None:
        """Cut the connection."""
        ...


def direct_of(scope: Mapping[str, Any]) -> Direct | None:
    """Return the short way of a request, None where the server offers none."""
    extensions = scope.get("extensions")
    found: Direct | None = extensions.get(EXTENSION) if extensions else None
    return found
