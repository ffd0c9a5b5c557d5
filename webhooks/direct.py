"""The short way between our server and the hot endpoints: a whole body in, a whole answer out, in one write.

ASGI hands bodies and answers over in pieces, through several coroutines; for a review that arrived in one piece that
costs as much as a third of its rules. A server that knows the short way offers it among the scope's extensions;
without it everything goes the usual way.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

EXTENSION = "aim_adapters.direct"


class Direct(Protocol):
    """What our server offers for one request."""

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
