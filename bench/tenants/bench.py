"""What one tenant's attacks cost the others: `python bench/tenants/bench.py [--applies 200] [--services 20]`.

Brings up a development cluster. For each attack it measures a neighbour's applies (dry runs, one after the other) and
the time until new services of the neighbour have a status, first without and then beside the attack, and prints the
ratio. Attacks are those of `tests/cluster/product/test_tenants_availability.py`.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import io
import json
import os
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from api.kinds import AIM_PROFILE, AIM_SERVICE  # noqa: E402 - found through the line above
from api.view import JsonObject  # noqa: E402
from devcluster.front import bring_up, take_down  # noqa: E402
from devcluster.info import gather  # noqa: E402
from kube.client import Client  # noqa: E402
from kube.errors import ApiError  # noqa: E402
from tests.cluster.conftest import Cluster, new_namespaces  # noqa: E402
from tests.cluster.product.team import Team  # noqa: E402
from tests.cluster.product.test_tenants_availability import (  # noqa: E402
    WIDE,
    create,
    held,
    nested,
    posted,
    without_webhooks,
)

OUT = ROOT / "build" / "bench" / "tenants.json"
PATIENCE = 60.0  # seconds for the services to have a status


@dataclass
class Look:
    """What the neighbour saw: milliseconds of applies, failed applies, seconds until all services had a status."""

    p50: float
    p99: float
    failed: int
    served: float


async def look(client: Client, team: Team, applies: int, services: int) -> Look:
    """Apply and create as the neighbour, and measure."""
    taken: list[float] = []
    failed = 0
    for number in range(applies):
        service = team.service(f"dry-{number}")
        began = time.perf_counter()
        try:
            await client.apply(AIM_SERVICE, service, dry_run=True, field_owner="neighbour")
        except ApiError:
            failed += 1
        taken.append((time.perf_counter() - began) * 1000)
    names = [f"new-{number}" for number in range(services)]
    began = time.perf_counter()
    for name in names:
        try:
            await client.create(AIM_SERVICE, team.service(name))
        except ApiError:
            failed += 1
    served = PATIENCE
    while time.perf_counter() - began < PATIENCE:
        found, _ = await client.list_all(AIM_SERVICE, team.namespace)
        if sum(1 for service in found if service.get("status")) >= services:
            served = time.perf_counter() - began
            break
        await asyncio.sleep(0.05)
    for name in names:
        await client.delete(AIM_SERVICE, team.namespace, name)
    ordered = sorted(taken)
    return Look(statistics.median(taken), ordered[int(len(ordered) * 0.99) - 1], failed, served)


@contextlib.contextmanager
def again_and_again(send: Callable[[], object], threads: int = 2) -> Iterator[None]:
    """Do something in threads for as long as the block runs."""
    end = threading.Event()

    def run() -> None:
        while not end.is_set():
            with contextlib.suppress(OSError, ValueError):
                send()

    running = [threading.Thread(target=run, daemon=True) for _ in range(threads)]
    for thread in running:
        thread.start()
    try:
        yield
    finally:
        end.set()
        for thread in running:
            thread.join(30)


@contextlib.contextmanager
def stored_nested(team: Team) -> Iterator[None]:
    """Objects that are nested deeply, stored while admission was away."""
    with without_webhooks(team.cluster):
        for depth in (260, 1_100, 5_000):
            create(team, nested(AIM_SERVICE, f"deep-{depth}", depth))
            create(team, nested(AIM_PROFILE, f"deep-{depth}", depth))
    try:
        yield
    finally:
        team.cluster.kubectl("delete", "aimservices,aimprofiles", "--all", "-n", team.namespace)


def reviews(team: Team, name: str) -> AbstractContextManager[None]:
    """Reviews of a wide object, sent straight to the port of the webhook."""
    kind, spec = WIDE[name]
    metadata = {"name": "wide", "namespace": team.namespace}
    obj: JsonObject = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata, "spec": spec}
    return again_and_again(lambda: posted(team.cluster, kind, obj), threads=1)


def attacks(team: Team) -> dict[str, Callable[[], AbstractContextManager[None]]]:
    """Return each attack by its name."""
    metrics, admission = str(team.cluster.info["metrics"]), str(team.cluster.info["admission"]["url"])
    return {
        "nothing": contextlib.nullcontext,
        "nested objects in the store": lambda: stored_nested(team),
        "reviews of 34,000 label patterns": lambda: reviews(team, "label patterns"),
        "reviews of 20,000 adapters": lambda: reviews(team, "adapters"),
        "reviews of a 1.5 MB profile": lambda: reviews(team, "a large profile"),
        "reviews of 1,500 chained variables": lambda: reviews(team, "variables that chain"),
        "300 idle connections to the health port": lambda: held(metrics, 300),
        "3,000 connections without a handshake": lambda: held(admission, 3_000),
    }


async def measure(cluster: Cluster, applies: int, services: int) -> dict[str, tuple[Look, Look]]:
    """Return for each attack what the neighbour saw before and beside it."""
    found: dict[str, tuple[Look, Look]] = {}
    with new_namespaces(cluster, "attacks", "suffers") as (attacks_from, suffers):
        team, neighbour = Team(cluster, attacks_from), Team(cluster, suffers)
        async with await Client.connect(str(cluster.kubeconfig)) as client:
            await look(client, neighbour, 20, 2)
            for name, attack in attacks(team).items():
                before = await look(client, neighbour, applies, services)
                with contextlib.ExitStack() as held_up:
                    await asyncio.to_thread(held_up.enter_context, attack())
                    beside = await look(client, neighbour, applies, services)
                found[name] = before, beside
                print(
                    f"{name}: p50 {beside.p50:.1f} ms, {beside.p50 / before.p50:.2f} x; "
                    f"p99 {beside.p99:.1f} ms, {beside.p99 / before.p99:.2f} x; failed {beside.failed}; "
                    f"{services} services with a status after {beside.served:.1f} s, {before.served:.1f} s without",
                    flush=True,
                )
    return found


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--applies", type=int, default=200)
    parser.add_argument("--services", type=int, default=20)
    parser.add_argument("--out", type=Path, default=OUT)
    given = parser.parse_args()
    print(f"load average {os.getloadavg()[0]:.1f}")
    with tempfile.TemporaryDirectory(prefix="aim-bench-") as place:
        folder, said = Path(place) / "cluster", io.StringIO()
        try:
            if bring_up(folder, {}, fresh=False, bare=False, out=said) != 0:
                sys.exit(said.getvalue())
            found = asyncio.run(measure(Cluster(folder, gather(folder)), given.applies, given.services))
        finally:
            take_down(folder, out=said)
    given.out.parent.mkdir(parents=True, exist_ok=True)
    rows = {name: {"before": asdict(before), "beside": asdict(beside)} for name, (before, beside) in found.items()}
    given.out.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
