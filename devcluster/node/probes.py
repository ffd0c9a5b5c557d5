"""Probes and lifecycle hooks: one attempt each, and the loop that counts them."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from dataclasses import dataclass

import aiohttp

from api.view import JsonObject
from devcluster.node.process import Process, StartError
from kube.wire import Sockets

# Uncounted attempts until the first success, between the counted ones, so that a start need not wait for the period.
EAGER_PERIOD_S = 0.25
_EAGER_START_S = 1.0  # and failures in the first second are not counted, since nothing starts in no time


@dataclass(frozen=True, slots=True)
class Target:
    """What a probe or hook acts upon."""

    container: JsonObject
    pod_ip: str
    process: Process


@dataclass(frozen=True, slots=True)
class Timing:
    """How often a probe runs and what it takes to change its mind. Seconds and counts, with the API's defaults."""

    initial_delay_s: float
    period_s: float
    timeout_s: float
    success_threshold: int
    failure_threshold: int

    @classmethod
    def of(cls, probe: JsonObject) -> Timing:
        """Read a probe's fields."""
        return cls(
            initial_delay_s=float(probe.get("initialDelaySeconds") or 0),
            period_s=float(probe.get("periodSeconds") or 10),
            timeout_s=float(probe.get("timeoutSeconds") or 1),
            success_threshold=int(probe.get("successThreshold") or 1),
            failure_threshold=int(probe.get("failureThreshold") or 3),
        )


class Attempts:
    """Counts a probe's results: `verdict` is None until one of the thresholds is reached, then the last one."""

    def __init__(self, timing: Timing) -> None:
        self._timing = timing
        self._successes = 0
        self._failures = 0
        self.verdict: bool | None = None

    def add(self, success: bool, *, counted: bool = True) -> bool:
        """Take one result and return whether the verdict changed; an uncounted failure is forgotten."""
        if success:
            self._successes, self._failures = self._successes + 1, 0
            if self._successes >= self._timing.success_threshold:
                return self._decide(True)
        elif counted:
            self._successes, self._failures = 0, self._failures + 1
            if self._failures >= self._timing.failure_threshold:
                return self._decide(False)
        return False

    def _decide(self, verdict: bool) -> bool:
        changed, self.verdict = self.verdict != verdict, verdict
        return changed


async def run_probe(
    probe: JsonObject,
    target: Target,
    *,
    eager: bool,
    decided: Callable[[bool, str], None],
    failed: Callable[[str], None],
) -> None:
    """Probe until cancelled. `decided` gets each changed verdict, `failed` the message of each counted failure.

    `eager`: look for the first success more often than the period says (only with a success threshold of 1).
    """
    timing = Timing.of(probe)
    attempts = Attempts(timing)
    loop = asyncio.get_running_loop()
    await asyncio.sleep(timing.initial_delay_s)
    due = loop.time() + (min(_EAGER_START_S, timing.period_s) if eager else 0)
    while True:
        counted = loop.time() >= due
        if counted:
            due = loop.time() + timing.period_s
        message = await attempt(probe, target, timing.timeout_s)
        if message and counted:
            failed(message)
        if attempts.add(not message, counted=counted):
            assert attempts.verdict is not None
            decided(attempts.verdict, message)
        looking = eager and attempts.verdict is None and timing.success_threshold == 1
        pause = due - loop.time()
        await asyncio.sleep(max(0.01, min(pause, EAGER_PERIOD_S) if looking else pause))


async def attempt(handler: JsonObject, target: Target, timeout_s: float) -> str:
    """Run a probe or hook once and return why it failed, "" when it did not."""
    try:
        async with asyncio.timeout(timeout_s):
            if "exec" in handler:
                code, output = await target.process.run_inside(handler["exec"]["command"], timeout_s)
                return "" if code == 0 else f"command exited with {code}: {output.strip()[:300]}"
            if "httpGet" in handler:
                return await _http(handler["httpGet"], target)
            if "tcpSocket" in handler or "grpc" in handler:  # gRPC: only that something listens is checked
                await _tcp(handler.get("tcpSocket") or handler["grpc"], target)
                return ""
            if "sleep" in handler:
                await asyncio.sleep(float(handler["sleep"]["seconds"]))
                return ""
    except TimeoutError:
        return f"timed out after {timeout_s:g}s"
    except (OSError, StartError) as error:
        return str(error)
    return "no handler that the process node imitates"


def port_number(container: JsonObject, port: int | str) -> int:
    """Return a port by number or by the container's name for it. Raises: OSError when no port has that name."""
    if isinstance(port, int) or str(port).isdigit():
        return int(port)
    found = next((p["containerPort"] for p in container.get("ports") or [] if p.get("name") == port), None)
    if found is None:
        raise OSError(f'couldn\'t find port "{port}" in container "{container["name"]}"')
    return int(found)


async def _tcp(where: JsonObject, target: Target) -> None:
    host = where.get("host") or target.pod_ip
    _, writer = await asyncio.open_connection(host, port_number(target.container, where["port"]))
    writer.close()


def _no_verification() -> ssl.SSLContext:
    """Return a context that accepts any certificate, as a kubelet's probes do."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


_TLS = _no_verification()


async def _http(where: JsonObject, target: Target) -> str:
    scheme = str(where.get("scheme") or "HTTP").lower()
    host = where.get("host") or target.pod_ip
    url = (
        f"{scheme}://{host}:{port_number(target.container, where['port'])}/{str(where.get('path') or '/').lstrip('/')}"
    )
    headers = {"User-Agent": "kube-probe/1.36", "Accept": "*/*"}
    headers |= {h["name"]: h["value"] for h in where.get("httpHeaders") or []}
    sockets = Sockets()  # a probe that times out inside a handshake leaves no connection behind
    connector = aiohttp.TCPConnector(ssl=_TLS, force_close=True, socket_factory=sockets.make)
    try:
        async with (
            aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(total=None)) as session,
            session.get(url, headers=headers, allow_redirects=False) as answer,
        ):
            await answer.read()
    except aiohttp.ClientError as error:
        return f'Get "{url}": {error or type(error).__name__}'
    finally:
        await sockets.close()
    if 200 <= answer.status < 400:
        return ""
    return f"HTTP probe failed with statuscode: {answer.status}"
