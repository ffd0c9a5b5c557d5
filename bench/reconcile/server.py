"""One process of the product's server under measurement: its metrics, its CPU, its memory."""

from __future__ import annotations

import asyncio
import os
import re
import socket
import subprocess
import sys
import time
import urllib.request
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
_LINE = re.compile(r"^(\w+)(?:\{(.*)\})? (\S+)$")
_LABEL = re.compile(r'(\w+)="([^"]*)"')
_BUSY_SECONDS = 0.004  # of CPU within 0.1 s: more than timers and open watches use
READS = frozenset({"get", "list", "watch"})


def cpu_of(pid: int) -> float:
    """Return the CPU seconds that all living threads of a process have used, in nanosecond steps."""
    spent = 0
    for task in Path(f"/proc/{pid}/task").iterdir():
        try:
            spent += int((task / "schedstat").read_text().split()[0])
        except (OSError, IndexError):
            continue  # the thread has ended
    return spent / 1e9


@dataclass(slots=True)
class Server:
    """A running server. All times are seconds."""

    process: subprocess.Popen[bytes]
    port: int
    started: float

    def metrics(self) -> list[tuple[str, dict[str, str], float]]:
        """Return every sample of /metrics: name, labels, value."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics", timeout=30) as answer:
            text = answer.read().decode()
        found = (_LINE.match(line) for line in text.splitlines())
        return [(match[1], dict(_LABEL.findall(match[2] or "")), float(match[3])) for match in found if match]

    def calls(self) -> Counter[str]:
        """Return requests to the API so far, by `verb kind`."""
        counted: Counter[str] = Counter()
        for name, labels, value in self.metrics():
            if name == "aim_adapters_api_requests_total":
                counted[f"{labels['verb']} {labels['kind']}"] += int(value)
        return counted

    def value(self, wanted: str) -> float:
        """Return the sum of a metric over its labels."""
        return sum(value for name, _, value in self.metrics() if name == wanted)

    def cpu(self) -> float:
        """Return CPU seconds used so far, all threads, in nanosecond steps."""
        return cpu_of(self.process.pid)

    def rss_mib(self, field: str = "VmRSS") -> float:
        """Return resident memory; `VmHWM` is its peak."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        match = re.search(rf"^{field}:\s+(\d+)", status, re.MULTILINE)
        return int(match[1]) / 1024 if match else 0.0

    def passes(self) -> float:
        """Return how many passes were made."""
        return self.value("aim_adapters_reconcile_seconds_count")

    async def first_pass(self) -> None:
        """Wait until the first pass was made. Raises: TimeoutError after a minute."""
        for _ in range(6000):
            if self.passes():
                return
            await asyncio.sleep(0.01)
        raise TimeoutError("no pass is made")

    async def quiet(self, seconds: float = 2.0, *, within: float = 1800.0) -> float:
        """Wait until no pass and no request happened for this long; return the time since start of the last change.

        Raises: TimeoutError when it never rests.
        """
        begun = changed = busy = time.monotonic()
        before, spent = self._activity(), self.cpu()
        for turn in range(int(within * 10)):
            await asyncio.sleep(0.1)
            if self.cpu() - spent > _BUSY_SECONDS:
                busy = time.monotonic()
            if turn % 10 == 9:  # reading metrics costs the server some milliseconds: not oftener
                now = await asyncio.to_thread(self._activity)
                if now != before:
                    before, changed = now, time.monotonic()
                elif time.monotonic() - changed > seconds:
                    return max(begun, min(busy, changed)) - self.started
            spent = self.cpu()
        raise TimeoutError("the reconciler does not come to rest")

    def _activity(self) -> tuple[float, float]:
        samples = self.metrics()
        passes = sum(value for name, _, value in samples if name == "aim_adapters_reconcile_seconds_count")
        return passes, sum(value for name, _, value in samples if name == "aim_adapters_api_requests_total")


def delta(after: Counter[str], before: Counter[str], *, reads: bool | None = None) -> dict[str, int]:
    """Return what was added, most first; `reads`: only those, or only writes."""
    grown = {key: value - before[key] for key, value in after.items() if value > before[key]}
    kept = {key: n for key, n in grown.items() if reads is None or (key.split()[0] in READS) == reads}
    return dict(sorted(kept.items(), key=lambda entry: -entry[1]))


# the code compiled beforehand, as the image has it
_ENVIRONMENT = {"PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": ""}


@asynccontextmanager
async def running(kubeconfig: Path, log: Path) -> AsyncIterator[Server]:
    """Run the reconciler alone, as its only replica, until the end of the block."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [
        *(sys.executable, "-m", "cli.main", "serve", "--no-leader-election", "--no-admission"),
        *(f"--kubeconfig={kubeconfig}", "--namespace=default", "--bind-address=127.0.0.1", f"--health-port={port}"),
        *("--drain=0s", "--shutdown-grace=10s"),
    ]
    with log.open("ab") as out:
        process = subprocess.Popen(  # noqa: ASYNC220 - it starts at once
            command, cwd=ROOT, stdout=out, stderr=out, env=os.environ | _ENVIRONMENT
        )
    server = Server(process, port, time.monotonic())
    try:
        await _answering(server)
        yield server
    finally:
        process.terminate()
        try:
            await asyncio.to_thread(process.wait, 20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


async def _answering(server: Server) -> None:
    for _ in range(600):
        if server.process.poll() is not None:
            raise RuntimeError(f"the server has ended with code {server.process.returncode}")
        try:
            await asyncio.to_thread(server.metrics)
        except OSError:
            await asyncio.sleep(0.05)
        else:
            return
    raise TimeoutError("the server does not answer")
