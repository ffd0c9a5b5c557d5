"""Is this process well? `/healthz`, `/readyz` and `/metrics` as one small ASGI application.

Alive: the event loop turns. Ready: a real TLS handshake on the admission port succeeds, the caches that admission reads
are filled, and the end has not begun. Trouble that readiness cannot mend (a certificate that could not be renewed yet,
another kind's watch) is told in the answer, and does not take the process out of service.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from prometheus_client import CONTENT_TYPE_LATEST, REGISTRY, disable_created_metrics, generate_latest

from app.servers import AsgiApp, Receive, Scope, Send, answer

disable_created_metrics()  # type: ignore[no-untyped-call]  # a second series each, which docs/metrics.md leaves out

HANDSHAKE_SECONDS = 2.0
HANDSHAKE_CACHE_SECONDS = 1.0  # several probes in a second share one handshake


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that is looked at: `problem` returns what is wrong, or None. `vital`: a problem costs readiness."""

    name: str
    problem: Callable[[], Awaitable[str | None]]
    vital: bool = True


def flag_check(name: str, problem: Callable[[], str | None], *, vital: bool = True) -> Check:
    """Return a check of something that is known without waiting."""

    async def look() -> str | None:
        return problem()

    return Check(name, look, vital)


class Handshake:
    """Shakes hands with our own admission port, as the API server would."""

    def __init__(self, host: str, port: int) -> None:
        self._host, self._port = _reachable(host), port
        self._succeeded_at = float("-inf")
        self._running = asyncio.Lock()
        # Who signed it is the caller's affair; that a handshake comes to its end, with whatever certificate, is ours.
        self._context = ssl.create_default_context()
        self._context.check_hostname = False
        self._context.verify_mode = ssl.CERT_NONE

    async def problem(self) -> str | None:
        """Return why a handshake fails, None when it succeeds."""
        async with self._running:
            if time.monotonic() - self._succeeded_at < HANDSHAKE_CACHE_SECONDS:
                return None
            found = await self._shake()
            if found is None:
                self._succeeded_at = time.monotonic()
            return found

    async def _shake(self) -> str | None:
        try:
            async with asyncio.timeout(HANDSHAKE_SECONDS):
                _, writer = await asyncio.open_connection(self._host, self._port, ssl=self._context)
        except (OSError, ssl.SSLError, TimeoutError) as error:
            return f"TLS handshake on port {self._port}: {error or type(error).__name__}"
        writer.close()
        with contextlib.suppress(OSError, ssl.SSLError, TimeoutError):
            async with asyncio.timeout(HANDSHAKE_SECONDS):
                await writer.wait_closed()
        return None


def health_app(checks: list[Check], *, metrics: bool = True) -> AsgiApp:
    """Return the application. Args: `metrics` also answers /metrics."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        path = scope["path"]
        if scope["method"] not in ("GET", "HEAD"):
            await answer(send, 405, "only GET\n")
        elif path in ("/healthz", "/livez"):
            await answer(send, 200, "ok\n")
        elif path == "/readyz":
            ready, text = await report(checks)
            await answer(send, 200 if ready else 503, text)
        elif path == "/metrics" and metrics:
            await answer(send, 200, generate_latest(REGISTRY), [(b"content-type", CONTENT_TYPE_LATEST.encode())])
        else:
            await answer(send, 404, "not found; there are /healthz, /readyz, /metrics\n")

    return app


async def report(checks: list[Check]) -> tuple[bool, str]:
    """Return whether all vital checks pass, and a line for each check."""
    problems = await asyncio.gather(*(check.problem() for check in checks))
    ready, lines = True, []
    for check, problem in zip(checks, problems, strict=True):
        if problem is None:
            lines.append(f"[+] {check.name}: ok")
        elif check.vital:
            ready = False
            lines.append(f"[-] {check.name}: {problem}")
        else:
            lines.append(f"[!] {check.name}: {problem}")
    lines.append("ready" if ready else "not ready")
    return ready, "\n".join(lines) + "\n"


def _reachable(host: str) -> str:
    """Return an address on which a listener on `host` can be reached from here."""
    return {"::": "::1", "0.0.0.0": "127.0.0.1"}.get(host, host)  # noqa: S104 - compared, not bound
