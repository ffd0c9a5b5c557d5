"""Is this process well? The routes `/healthz`, `/livez` and `/readyz`.

Alive: the event loop runs. Ready: a real TLS handshake on the admission port succeeds, the caches that admission reads
are filled, and the process is not shutting down. A problem that a restart or another replica cannot fix (a certificate
that could not be renewed yet, the watch of another kind) is reported, and does not take the process out of service.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from fastapi import APIRouter, Request, Response
from fastapi.responses import PlainTextResponse
from pydantic import BaseModel

from api.text import clean

HANDSHAKE_SECONDS = 2.0
HANDSHAKE_CACHE_SECONDS = 1.0  # several probes in a second share one handshake


@dataclass(frozen=True, slots=True)
class Check:
    """One check: `problem` returns what is wrong, or None. `vital`: a problem costs readiness."""

    name: str
    problem: Callable[[], Awaitable[str | None]]
    vital: bool = True


def flag_check(name: str, problem: Callable[[], str | None], *, vital: bool = True) -> Check:
    """Return a check whose result is known without waiting."""

    async def look() -> str | None:
        return problem()

    return Check(name, look, vital)


class Handshake:
    """Shakes hands with the admission port of this process, as the API server would."""

    def __init__(self, host: str, port: int) -> None:
        self._host, self._port = host, port
        self._succeeded_at = float("-inf")
        self._running = asyncio.Lock()
        # The check asks whether a handshake completes with any certificate. Who signed it concerns the API server.
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
            await shake_hands(self._host, self._port, self._context)
        except (OSError, ssl.SSLError, TimeoutError) as error:
            return f"TLS handshake on port {self._port}: {error or type(error).__name__}"
        return None


async def shake_hands(host: str, port: int, context: ssl.SSLContext, server_name: str | None = None) -> None:
    """Complete a TLS handshake with a listener of this process, and close the connection.

    Raises: OSError (also ssl.SSLError), TimeoutError.
    """
    async with asyncio.timeout(HANDSHAKE_SECONDS):
        _, writer = await asyncio.open_connection(_reachable(host), port, ssl=context, server_hostname=server_name)
    writer.close()
    with contextlib.suppress(OSError, ssl.SSLError, TimeoutError):
        async with asyncio.timeout(HANDSHAKE_SECONDS):
            await writer.wait_closed()


class CheckReport(BaseModel):
    """What one check found. `warning`: a problem that does not cost readiness."""

    name: str
    status: Literal["ok", "failed", "warning"]
    problem: str | None = None


class Readiness(BaseModel):
    """The answer of /readyz."""

    ready: bool
    checks: list[CheckReport]

    def text(self) -> str:
        """Return a line for each check, and the verdict."""
        signs = {"ok": "+", "failed": "-", "warning": "!"}
        lines = [f"[{signs[check.status]}] {check.name}: {clean(check.problem or 'ok')}" for check in self.checks]
        return "\n".join([*lines, "ready" if self.ready else "not ready"]) + "\n"


_GET = ["GET", "HEAD"]


def health_router(checks: Sequence[Check]) -> APIRouter:
    """Return the routes. /readyz answers in text; as JSON to a client that asks for application/json."""
    router = APIRouter(tags=["health"])

    @router.api_route("/healthz", methods=_GET, tags=["admission"], response_class=PlainTextResponse)
    @router.api_route("/livez", methods=_GET, response_class=PlainTextResponse)
    async def alive() -> str:
        return "ok\n"

    @router.api_route("/readyz", methods=_GET, response_model=Readiness, responses={503: {"model": Readiness}})
    async def ready(request: Request) -> Response:
        found = await report(checks)
        status = 200 if found.ready else 503
        if "application/json" in request.headers.get("accept", ""):
            return Response(found.model_dump_json(), status, media_type="application/json")
        return PlainTextResponse(found.text(), status)

    return router


async def report(checks: Sequence[Check]) -> Readiness:
    """Run all checks; ready when all vital ones pass."""
    problems = await asyncio.gather(*(check.problem() for check in checks))
    found = [_report(check, problem) for check, problem in zip(checks, problems, strict=True)]
    return Readiness(ready=all(check.status != "failed" for check in found), checks=found)


def _report(check: Check, problem: str | None) -> CheckReport:
    if problem is None:
        return CheckReport(name=check.name, status="ok")
    return CheckReport(name=check.name, status="failed" if check.vital else "warning", problem=problem)


def _reachable(host: str) -> str:
    """Return an address on which a listener on `host` can be reached from here."""
    return {"::": "::1", "0.0.0.0": "127.0.0.1"}.get(host, host)  # noqa: S104 - compared, not bound
