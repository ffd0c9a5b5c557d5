"""How long does a start take in a large cluster? `python bench/startup/bench.py [--services 5000] [--adapters 1]`.

Starts a control plane without nodes, fills it, and starts the whole server (admission and reconciler) over it several
times: the time until /readyz says yes, which means that reviews are answered from full caches. Nothing was reconciled
before, so the reconciler begins with work for every service: the worst moment for a start. Fails above `LIMIT_SECONDS`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from api.kinds import AIM_SERVICE  # noqa: E402 - found through the line above
from bench.reconcile.stand_ins import (  # noqa: E402
    NAMESPACE,
    base_and_profile,
    create_services,
    fan,
    install_kinds,
    namespace,
    service_name,
)
from devcluster.front import bring_up, take_down  # noqa: E402
from kube.client import Client  # noqa: E402

LIMIT_SECONDS = 15.0  # issue: start-up with 5,000 services
PLACE = "bench-start"
_STATUS: dict[str, Any] = {  # about as much as the status of a running service
    "status": "Running",
    "adapterMaxRank": 32,
    "conditions": [
        {
            "type": kind,
            "status": "True",
            "reason": "AsItShouldBe",
            "message": "All is as it should be, and this is a sentence of usual length.",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }
        for kind in ("ConfigValid", "CacheReady", "Adapters", "InferenceServiceReady", "Ready")
    ],
}


async def fill(client: Client, services: int, adapters: int) -> None:
    """Create the objects."""
    await install_kinds(client)
    await client.create(NAMESPACE, namespace(PLACE))
    for kind, obj in base_and_profile(PLACE, disk=True, projected=False):
        await client.create(kind, obj)
    await create_services(client, PLACE, range(services), adapters)

    async def tell(index: int) -> None:
        await client.patch_status(AIM_SERVICE, PLACE, service_name(index), {"status": _STATUS})

    await fan([lambda index=index: tell(index) for index in range(services)])  # type: ignore[misc]


# the code compiled beforehand, as the image has it
_ENVIRONMENT = {"PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": ""}


def start_once(kubeconfig: Path, log: Path) -> dict[str, float]:
    """Start the server, wait until it is ready, end it; returns seconds, CPU seconds, MiB. Raises: RuntimeError."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [
        *(sys.executable, "-m", "cli.main", "serve", f"--kubeconfig={kubeconfig}", "--namespace=default"),
        *("--bind-address=127.0.0.1", "--admission-port=0", f"--health-port={port}", "--drain=0s"),
        *("--lease-duration=4s", "--lease-renew-period=1s", "--lease-write-margin=1s"),
    ]
    begun = time.monotonic()
    with log.open("ab") as out:
        process = subprocess.Popen(command, cwd=ROOT, stdout=out, stderr=out, env=os.environ | _ENVIRONMENT)
    try:
        while not _ready(port):
            if process.poll() is not None or time.monotonic() - begun > 300:
                raise RuntimeError(f"the server does not get ready; see {log}")
            time.sleep(0.05)
        seconds = time.monotonic() - begun
        return {"ready_s": seconds, "cpu_s": _cpu(process.pid), "rss_mib": _rss(process.pid)}
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(40)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _ready(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def _cpu(pid: int) -> float:
    tasks = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(task.read_text().split()[0]) for task in tasks) / 1e9


def _rss(pid: int) -> float:
    found = re.search(r"^VmHWM:\s+(\d+)", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    return int(found[1]) / 1024 if found else 0.0


async def run(options: Any, folder: Path) -> dict[str, Any]:
    """Measure."""
    if await asyncio.to_thread(bring_up, folder, {}, fresh=True, bare=True):
        raise RuntimeError("the control plane does not start")
    kubeconfig, log = folder / "kubeconfig", options.out.parent / "startup.log"
    try:
        async with await Client.connect(str(kubeconfig), within=60) as client:
            begun = time.monotonic()
            await fill(client, options.services, options.adapters)
            filled = time.monotonic() - begun
        starts = [await asyncio.to_thread(start_once, kubeconfig, log) for _ in range(options.rounds)]
    finally:
        await asyncio.to_thread(take_down, folder)
    return {"filled_s": filled, "starts": starts, "load": os.getloadavg()[0]}


def main() -> int:
    """Read the arguments and measure; 1 when the median is above the limit."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--services", type=int, default=5000)
    parser.add_argument("--adapters", type=int, default=1, help="adapters of each service")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "bench" / "startup.json")
    options = parser.parse_args()
    options.out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="aim-bench-") as name:
        result = asyncio.run(run(options, Path(name) / "plane"))
    median = statistics.median(each["ready_s"] for each in result["starts"])
    result |= {"services": options.services, "adapters": options.adapters, "median_s": median, "limit_s": LIMIT_SECONDS}
    options.out.write_text(json.dumps(result, indent=1))
    each = ", ".join(f"{s['ready_s']:.1f} s (CPU {s['cpu_s']:.1f} s, {s['rss_mib']:.0f} MiB)" for s in result["starts"])
    print(f"{options.services} services with {options.adapters} adapters, load average {result['load']:.1f}")
    print(f"  ready after        {each}; median {median:.1f} s, limit {LIMIT_SECONDS:g} s")
    return 1 if median > LIMIT_SECONDS else 0


if __name__ == "__main__":
    sys.exit(main())
