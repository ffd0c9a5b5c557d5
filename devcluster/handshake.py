"""Closes a connection whose TLS handshake was given up: httpx does so after an error, not for a cancelled task."""

from __future__ import annotations

from typing import Any


class ClosesWhenGivenUp:
    """A trace of the connection that one request makes. Pass it as `extensions={"trace": ClosesWhenGivenUp()}`.

    Source: httpx, "Request extensions", and httpcore's names of events.
    """

    def __init__(self) -> None:
        self._connection: Any = None

    async def __call__(self, event: str, info: dict[str, Any]) -> None:
        """Take note of an event."""
        if event == "connection.connect_tcp.complete":
            self._connection = info["return_value"]
        elif event == "connection.start_tls.complete":
            self._connection = None
        elif event == "connection.start_tls.failed" and self._connection is not None:
            await self._connection.aclose()
