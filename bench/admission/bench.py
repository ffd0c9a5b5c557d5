"""How fast is admission? `python bench/admission/bench.py [--plain] [--rounds 3] [NAME=https://127.0.0.1:PORT/PATH …]`.

Starts the server as a bare answer, with rules, with rules while the reconciler works through 5,000 services in the same
process, and with --plain once more without the fast path. Checks every verdict, then measures these and any other URLs
interleaved (A B C, C B A): open loop at a fixed rate, then saturation over keep-alive connections. CPU and memory are
those of the listening process; the process that reconciles is stopped while others are measured. Prints a table of
medians with ratios to the bare answer, with and without the fast path against each other URL, what reconciling costs
reviews, memory over 50,000 reviews, and writes `build/bench/admission.json`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import ssl
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import orjson
import uvloop
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from tests.unit.webhooks.corpus import Case, cases  # noqa: E402 - found through the line above

_TICK = os.sysconf("SC_CLK_TCK")
_SETTLE_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class Target:
    """A server to measure; `pid` 0: no process of this machine, no CPU and memory are read.

    `busy`: it works all the time, so it is stopped while others are measured.
    """

    name: str
    host: str
    port: int
    path: str
    pid: int
    busy: bool = False

    @contextmanager
    def going(self) -> Iterator[None]:
        """Continue a stopped process while it is measured."""
        if self.busy:
            os.kill(self.pid, signal.SIGCONT)
            time.sleep(_SETTLE_SECONDS)
        try:
            yield
        finally:
            if self.busy:
                os.kill(self.pid, signal.SIGSTOP)


class Connection(asyncio.Protocol):
    """One keep-alive HTTP/1.1 connection that carries one request at a time."""

    def __init__(self) -> None:
        self._buffer = b""
        self._reply: asyncio.Future[bytes] | None = None
        self._transport: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Collect one answer."""
        self._buffer += data
        head, separator, body = self._buffer.partition(b"\r\n\r\n")
        if not separator or self._reply is None:
            return
        place = head.lower().find(b"content-length:") + 15
        length = int(head[place:].split(b"\r\n", 1)[0])
        if len(body) >= length:
            self._buffer = b""
            reply, self._reply = self._reply, None
            if not reply.done():
                reply.set_result(body)

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail what waits."""
        if self._reply is not None and not self._reply.done():
            self._reply.set_exception(exc or ConnectionResetError())

    def ask(self, request: bytes) -> asyncio.Future[bytes]:
        """Send a request; the answer's body comes later."""
        self._reply = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        return self._reply

    def close(self) -> None:
        """Close the connection."""
        self._transport.close()


async def connect(target: Target, trust: ssl.SSLContext, count: int) -> list[Connection]:
    """Open keep-alive connections."""
    loop = asyncio.get_running_loop()
    made = [
        loop.create_connection(Connection, target.host, target.port, ssl=trust, server_hostname=target.host)
        for _ in range(count)
    ]
    return [protocol for _, protocol in await asyncio.gather(*made)]


def requests(target: Target, corpus: list[Case]) -> list[bytes]:
    """Return the corpus as HTTP requests."""
    head = f"POST {target.path}?timeout=5s HTTP/1.1\r\nHost: {target.host}\r\nContent-Type: application/json\r\n"
    return [head.encode() + b"Content-Length: %d\r\n\r\n" % len(case.body) + case.body for case in corpus]


async def check(target: Target, trust: ssl.SSLContext, corpus: list[Case]) -> list[str]:
    """Return what is wrong with the verdicts."""
    (connection,) = await connect(target, trust, 1)
    wrong = []
    for case, request in zip(corpus, requests(target, corpus), strict=True):
        response = orjson.loads(await connection.ask(request))["response"]
        if response["allowed"] != case.allowed:
            wrong.append(f"{case.fault or 'valid'}: allowed={response['allowed']} {response.get('status', {})}")
    connection.close()
    return wrong


async def saturate(
    target: Target, trust: ssl.SSLContext, corpus: list[Case], seconds: float, count: int
) -> list[float]:
    """Return latencies in seconds, as many as fit, with `count` requests in flight."""
    connections = await connect(target, trust, count)
    asked = requests(target, corpus)
    latencies: list[float] = []
    end = time.perf_counter() + seconds

    async def worker(connection: Connection, index: int) -> None:
        while (started := time.perf_counter()) < end:
            await connection.ask(asked[index % len(asked)])
            latencies.append(time.perf_counter() - started)
            index += 7

    await asyncio.gather(*(worker(connection, index) for index, connection in enumerate(connections)))
    for connection in connections:
        connection.close()
    return latencies


async def steady(target: Target, trust: ssl.SSLContext, corpus: list[Case], seconds: float, rate: int) -> list[float]:
    """Return latencies in seconds, from the instant that each request was due."""
    free = await connect(target, trust, 16)
    connections = [*free]
    asked = requests(target, corpus)
    latencies: list[float] = []
    tasks: set[asyncio.Task[None]] = set()
    begin = time.perf_counter()

    async def one(index: int, due: float) -> None:
        connection = free.pop() if free else (await connect(target, trust, 1))[0]
        await connection.ask(asked[index % len(asked)])
        latencies.append(time.perf_counter() - due)
        free.append(connection)

    for index in range(int(seconds * rate)):
        due = begin + index / rate
        await asyncio.sleep(max(0.0, due - time.perf_counter()))
        task = asyncio.create_task(one(index, max(due, time.perf_counter() - 0.002)))
        tasks.add(task)
        task.add_done_callback(tasks.discard)
    await asyncio.gather(*tasks)
    for connection in {*connections, *free}:
        connection.close()
    return latencies


def cpu_seconds(pid: int) -> float:
    """Return user and system time of a process."""
    if not pid:
        return 0.0
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / _TICK


def rss_mib(pid: int) -> float:
    """Return the resident memory of a process."""
    if not pid:
        return 0.0
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    return 0.0


async def measure(target: Target, trust: ssl.SSLContext, corpus: list[Case], options: Any) -> dict[str, float]:
    """Measure one target once: steady (after some reviews that do not count), then saturated."""
    row: dict[str, float] = {}
    await steady(target, trust, corpus, _SETTLE_SECONDS, options.rate)
    for name, run in (
        ("steady", steady(target, trust, corpus, options.seconds, options.rate)),
        ("full", saturate(target, trust, corpus, options.seconds, options.connections)),
    ):
        before, started = cpu_seconds(target.pid), time.perf_counter()
        latencies = sorted(await run)
        spent, took = cpu_seconds(target.pid) - before, time.perf_counter() - started
        row |= {
            f"{name}_rps": len(latencies) / took,
            f"{name}_p50_ms": latencies[len(latencies) // 2] * 1e3,
            f"{name}_p99_ms": latencies[int(len(latencies) * 0.99)] * 1e3,
            f"{name}_max_ms": latencies[-1] * 1e3,
            f"{name}_cpu_us": spent / len(latencies) * 1e6,
        }
    row["rss_mib"] = rss_mib(target.pid)
    row["load"] = os.getloadavg()[0]
    return row


async def flat_memory(target: Target, trust: ssl.SSLContext, corpus: list[Case], reviews: int) -> tuple[float, float]:
    """Return RSS before and after many reviews (after a warm-up of 5,000)."""
    await _push(target, trust, corpus, 5_000)
    before = rss_mib(target.pid)
    await _push(target, trust, corpus, reviews)
    return before, rss_mib(target.pid)


async def _push(target: Target, trust: ssl.SSLContext, corpus: list[Case], reviews: int) -> None:
    done = 0
    while done < reviews:
        done += len(await saturate(target, trust, corpus, 1.0, 32))


def make_certs(folder: Path) -> None:
    """Write ca.crt, tls.crt and tls.key for 127.0.0.1."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "bench")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem = certificate.public_bytes(serialization.Encoding.PEM)
    (folder / "tls.crt").write_bytes(pem)
    (folder / "ca.crt").write_bytes(pem)
    (folder / "tls.key").write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )


_NAMES = {"bare": "bare", "rules": "ours", "resync": "resync"}
PLAIN = "plain"


@contextmanager
def started(mode: str, certs: Path, log: Path, more: list[str]) -> Iterator[Target]:
    """Run one of the servers. Args: `mode` as of `bench.admission.server`, or `plain`; `more` arguments of it."""
    arguments = ["rules", "--plain"] if mode == PLAIN else [mode]
    command = [sys.executable, "-m", "bench.admission.server", *arguments, "--certs", str(certs), *more]
    with (
        log.open("a") as told,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=told, text=True, cwd=ROOT) as process,
    ):
        try:
            assert process.stdout is not None
            port = int(process.stdout.readline())
            target = Target(_NAMES.get(mode, mode), "127.0.0.1", port, "/validate", process.pid, mode == "resync")
            with target.going():
                pass
            yield target
        finally:
            process.kill()


_OWN = {*_NAMES.values(), PLAIN}
_COLUMNS = {
    "steady_p50_ms": "p50 ms",
    "steady_p99_ms": "p99 ms",
    "steady_max_ms": "max ms",
    "steady_cpu_us": "CPU us",
    "full_rps": "full: reviews/s",
    "full_p99_ms": "full: p99 ms",
    "full_cpu_us": "full: CPU us",
    "rss_mib": "RSS MiB",
}


def _foreign(text: str) -> Target:
    name, _, url = text.partition("=")
    parts = urlsplit(url)
    port = parts.port or 443
    return Target(name, parts.hostname or "", port, parts.path or "/", listening_pid(port))


def listening_pid(port: int) -> int:
    """Return the process of this machine that listens on a port, 0 where none is found."""
    listening = "0A"  # TCP_LISTEN, as /proc spells it
    rows = [line.split() for name in ("tcp", "tcp6") for line in Path("/proc/net", name).read_text().splitlines()[1:]]
    sockets = {f"socket:[{row[9]}]" for row in rows if row[3] == listening and int(row[1].split(":")[1], 16) == port}
    for link in Path("/proc").glob("[0-9]*/fd/*"):
        with suppress(OSError):
            if str(link.readlink()) in sockets:
                return int(link.parts[2])
    return 0


def table(rows: dict[str, list[dict[str, float]]]) -> str:
    """Return medians with ratios to the first target."""
    found = medians(rows)
    lines = [f"{'':12}" + "".join(f"{title:>20}" for title in _COLUMNS.values())]
    base = next(iter(found.values()))
    for name, values in found.items():
        cells = "".join(f"{values[k]:>12.2f} x{values[k] / base[k] if base[k] else 0:>5.2f} " for k in _COLUMNS)
        lines.append(f"{name:12}{cells}")
    return "\n".join(lines)


def medians(rows: dict[str, list[dict[str, float]]]) -> dict[str, dict[str, float]]:
    """Return the median of each figure over the rounds, by target."""
    return {
        name: {key: statistics.median(row[key] for row in found) for key in found[0]} for name, found in rows.items()
    }


def against(rows: dict[str, list[dict[str, float]]], others: list[str]) -> str:
    """Return the ratios to other servers, with the fast path and without it, and what it saves."""
    found = medians(rows)
    keys = ("full_cpu_us", "full_rps", "steady_cpu_us", "steady_p50_ms", "steady_p99_ms")
    pairs = [(name, other) for other in others for name in ("ours", PLAIN)] + [("ours", PLAIN)]
    lines = [f"{'':24}" + "".join(f"{_COLUMNS[key]:>18}" for key in keys)]
    for name, other in pairs:
        if name in found and other in found:
            ratios = "".join(f"{found[name][key] / (found[other][key] or 1):>17.2f}x" for key in keys)
            lines.append(f"{f'{name} / {other}':24}{ratios}")
    return "\n".join(lines)


def beside_the_reconciler(rows: dict[str, list[dict[str, float]]]) -> str:
    """Return what a full resync in the same process costs reviews, and what was aimed at."""
    found = medians(rows)
    ours, busy = found["ours"], found["resync"]
    parts = (
        ("reviews/s", "full_rps", ">= 0.80"),
        ("p99 at the fixed rate", "steady_p99_ms", "<= 1.20"),
        ("p50 at the fixed rate", "steady_p50_ms", ""),
    )
    told = [f"{name} x{busy[key] / ours[key]:.2f}{f' (to reach: {aim})' if aim else ''}" for name, key, aim in parts]
    return "during a full resync: " + ", ".join(told)


def read_corpus(folder: Path) -> list[Case]:
    """Return another corpus: bodies, and `expect.json` with a list of `file`, `allowed` and `why`."""
    entries = json.loads((folder / "expect.json").read_text())
    return [Case((folder / entry["file"]).read_bytes(), entry["allowed"], entry["why"]) for entry in entries]


async def run(options: Any, targets: list[Target], trust: ssl.SSLContext) -> dict[str, Any]:
    """Check, measure, and return everything."""
    corpus = cases() if options.corpus is None else read_corpus(options.corpus)
    ours = next(target for target in targets if target.name == "ours")
    wrong = await check(ours, trust, corpus)
    sys.stdout.write(
        f"verdicts right: {len(corpus) - len(wrong)} of {len(corpus)}\n" + "".join(f"  {w}\n" for w in wrong)
    )
    rows: dict[str, list[dict[str, float]]] = {target.name: [] for target in targets}
    for number in range(options.rounds):
        for target in targets if number % 2 == 0 else reversed(targets):
            with target.going():
                rows[target.name].append(await measure(target, trust, corpus, options))
    loads = [row["load"] for found in rows.values() for row in found]
    sys.stdout.write(
        f"load average {min(loads):.1f} to {max(loads):.1f}, this bench included; medians of {options.rounds} rounds; "
        f"at {options.rate}/s, then full with {options.connections} connections\n{table(rows)}\n"
    )
    sys.stdout.write(f"{against(rows, [target.name for target in targets if target.name not in _OWN])}\n")
    if "resync" in rows:
        sys.stdout.write(f"{beside_the_reconciler(rows)}\n")
    if not options.reviews:
        return {"wrong": wrong, "rows": rows, "load": os.getloadavg()}
    before, after = await flat_memory(ours, trust, corpus, options.reviews)
    sys.stdout.write(f"RSS over {options.reviews} reviews: {before:.1f} -> {after:.1f} MiB\n")
    return {"wrong": wrong, "rows": rows, "rss": [before, after], "load": os.getloadavg()}


def main() -> int:
    """Read the arguments and measure; 1 when a verdict was wrong."""
    parser = argparse.ArgumentParser()
    parser.add_argument("others", nargs="*", help="NAME=https://host:port/path, trusted by --ca")
    parser.add_argument("--ca", type=Path)
    parser.add_argument("--modes", nargs="*", default=list(_NAMES), choices=[*_NAMES, PLAIN], help="servers to start")
    parser.add_argument("--plain", action="store_true", help="measure without the fast path, too")
    parser.add_argument("--huge-pages", action="store_true", help="with the setting hugePages")
    parser.add_argument("--corpus", type=Path, help="folder with another corpus")
    parser.add_argument("--fixtures", type=Path, help="objects of that corpus (a JSON list)")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--rate", type=int, default=200)
    parser.add_argument("--connections", type=int, default=32)
    parser.add_argument("--reviews", type=int, default=50_000)
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "bench" / "admission.json")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        certs = Path(name)
        make_certs(certs)
        trust = ssl.create_default_context(cafile=str(certs / "ca.crt"))
        if options.ca:
            trust.load_verify_locations(cafile=str(options.ca))
        options.out.parent.mkdir(parents=True, exist_ok=True)
        with ExitStack() as stack:
            log = options.out.with_suffix(".log")
            log.unlink(missing_ok=True)
            modes = [*options.modes, *([PLAIN] if options.plain and PLAIN not in options.modes else [])]
            more = ["--huge-pages"] if options.huge_pages else []
            more += ["--fixtures", str(options.fixtures.resolve())] if options.fixtures else []
            targets = [stack.enter_context(started(mode, certs, log, more)) for mode in modes]
            result = uvloop.run(run(options, [*targets, *map(_foreign, options.others)], trust))
    options.out.write_text(json.dumps(result, indent=1))
    return 1 if result["wrong"] else 0


if __name__ == "__main__":
    sys.exit(main())
