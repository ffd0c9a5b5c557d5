"""How much does the reconciler cost? `python bench/reconcile/bench.py [1000x0 100x4]`: services x adapters of each.

Starts a control plane without nodes (or takes `--kubeconfig`), runs the product's reconciler against it, and measures
for each: creation of all services until rest, rest, single edits at few and at all services, restart
over the settled objects, edits during the resync, and the floor of a bare client that makes the same calls. No service
ever becomes ready: nothing serves here. Prints tables and writes `build/bench/reconcile.json`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from api import view  # noqa: E402 - found through the line above
from api.kinds import AIM_ARTIFACT, AIM_SERVICE, INFERENCE_SERVICE  # noqa: E402
from api.names import inference_service_name  # noqa: E402
from bench.reconcile import floor  # noqa: E402
from bench.reconcile.phases import Phases  # noqa: E402
from bench.reconcile.server import Server, cpu_of, delta, running  # noqa: E402
from bench.reconcile.stand_ins import (  # noqa: E402
    BASE,
    NAMESPACE,
    Outside,
    base_and_profile,
    create_artifacts,
    create_services,
    install_kinds,
    namespace,
    service_name,
)
from devcluster.folder import Layout  # noqa: E402
from devcluster.front import bring_up, take_down  # noqa: E402
from kube.client import Client  # noqa: E402
from kube.errors import ApiError  # noqa: E402

_EDIT_SECONDS = 30.0  # an edit whose write does not come by then is a failure
_REST_SECONDS = 5.0
_SETTLE_SECONDS = 3600.0
_SAMPLE_SECONDS = 20.0  # between two looks at a long creation: the longest stall is that of the last minute only


@dataclass(slots=True)
class Writes:
    """Waits for changes of InferenceServices."""

    client: Client
    place: str
    _waiting: dict[str, asyncio.Future[float]] = field(default_factory=dict)

    def expect(self, name: str) -> asyncio.Future[float]:
        """Return a future: when (monotonic) the InferenceService of this name changed next."""
        self._waiting[name] = asyncio.get_running_loop().create_future()
        return self._waiting[name]

    @asynccontextmanager
    async def watched(self) -> AsyncIterator[None]:
        """Watch until the end of the block."""
        _, version = await self.client.list_all(INFERENCE_SERVICE, self.place)
        task = asyncio.create_task(self._follow(version))
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _follow(self, version: str) -> None:
        while True:
            try:
                async for event in self.client.watch(INFERENCE_SERVICE, version, self.place):
                    version = view.text(event.object, "metadata", "resourceVersion") or version
                    future = self._waiting.pop(view.name_of(event.object), None)
                    if future is not None and not future.done():
                        future.set_result(time.monotonic())
            except ApiError:
                await asyncio.sleep(0.05)


async def edit(client: Client, writes: Writes, index: int, value: str) -> float:
    """Change a service's environment; returns the seconds until its InferenceService was seen to change."""
    name = service_name(index)
    served = inference_service_name(name, writes.place)
    assert served is not None
    seen = writes.expect(served)
    begun = time.monotonic()
    await client.patch_merge(AIM_SERVICE, writes.place, name, {"spec": {"env": [{"name": "BENCH", "value": value}]}})
    async with asyncio.timeout(_EDIT_SECONDS):
        return await seen - begun


async def idle_edits(client: Client, server: Server, place: str, count: int, services: int) -> dict[str, Any]:
    """Make single edits one after another; returns delays, and calls and CPU of one edit."""
    writes, calls, spent = Writes(client, place), server.calls(), server.cpu()
    delays = []
    async with writes.watched():
        for turn in range(count):
            index = turn * 7919 % services
            delays.append(await edit(client, writes, index, f"{services}-{turn}"))
            await asyncio.sleep(0.05)
    await server.quiet(1.0)
    by = delta(server.calls(), calls, reads=False)
    cpu_ms = (server.cpu() - spent) / count * 1e3
    return _delays(delays) | {"calls": sum(by.values()) / count, "by": by, "cpu_ms": cpu_ms, "services": services}


def _delays(delays: list[float]) -> dict[str, float]:
    ordered = sorted(delays)
    return {
        "edits": len(ordered),
        "p50_ms": statistics.median(ordered) * 1e3,
        "p99_ms": ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))] * 1e3,
        "max_ms": ordered[-1] * 1e3,
    }


@dataclass(slots=True)
class Stalls:
    """The longest stall that a server reported, and how much of it was CPU. Milliseconds."""

    server: Server
    longest_ms: float = 0.0
    cpu_ms: float = 0.0
    by_cpu_ms: float = 0.0  # CPU of that stall of which most was CPU
    idle_ms: float = 0.0  # longest stall of a process beside it that only ticks

    def look(self) -> None:
        """Take in the longest stall of the last minute."""
        told = {name: value * 1e3 for name, _, value in self.server.metrics() if "event_loop_stall_" in name}
        longest, cpu = (told[f"aim_adapters_event_loop_stall_{word}"] for word in ("seconds", "cpu_seconds"))
        if longest > self.longest_ms:
            self.longest_ms, self.cpu_ms = longest, cpu
        self.by_cpu_ms = max(self.by_cpu_ms, cpu)

    def figures(self) -> dict[str, float]:
        """Look once more and return what was seen."""
        self.look()
        return {
            "stall_ms": self.longest_ms,
            "stall_cpu_ms": self.cpu_ms,
            "stall_most_cpu_ms": self.by_cpu_ms,
            "stall_idle_ms": self.idle_ms,
        }

    @asynccontextmanager
    async def watched(self, progress: Callable[[], str]) -> AsyncIterator[None]:
        """Look regularly until the end of the block; the way that was come is written to standard error."""
        task = asyncio.create_task(self._follow(progress))
        idle = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "bench.reconcile.idle", cwd=ROOT, stdout=asyncio.subprocess.PIPE
        )
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            idle.terminate()
            told, _ = await idle.communicate()
            self.idle_ms = float(told or 0) * 1e3

    async def _follow(self, progress: Callable[[], str]) -> None:
        begun = time.monotonic()
        while True:
            await asyncio.sleep(_SAMPLE_SECONDS)
            await asyncio.to_thread(self.look)
            sys.stderr.write(
                f"{time.monotonic() - begun:7.0f} s  {progress()}, RSS {self.server.rss_mib():.0f} MiB,"
                f" CPU {self.server.cpu():.0f} s, stall {self.longest_ms:.0f} ms, load {os.getloadavg()[0]:.1f}\n"
            )


@dataclass(slots=True)
class Shape:
    """One measurement: a number of services with a number of adapters each."""

    client: Client
    outside: Outside
    kubeconfig: Path
    log: Path
    services: int
    small: int
    adapters: int
    edits: int
    projected: bool = False
    artifacts: int = 0
    floor: bool = True
    jobs_floor: bool = True
    others: dict[str, int] = field(default_factory=dict)  # name -> PID of what else uses the CPU

    @property
    def place(self) -> str:
        """The namespace."""
        return f"bench-{self.adapters}{'p' if self.projected else ''}"

    async def measure(self) -> dict[str, Any]:
        """Run all steps; returns their figures."""
        result: dict[str, Any] = {"services": self.services, "adapters": self.adapters, "load": os.getloadavg()[0]}
        await self.client.create(NAMESPACE, namespace(self.place))
        for kind, obj in base_and_profile(self.place, disk=bool(self.adapters), projected=self.projected):
            await self.client.create(kind, obj)
        async with running(self.kubeconfig, self.log) as server:
            await self._base_ready()
            await server.quiet()
            await create_services(self.client, self.place, range(self.small), self.adapters)
            await server.quiet()
            result["edit_few"] = await idle_edits(self.client, server, self.place, self.edits, self.small)
            result["create"] = await self._create(server)
            self._known_so_far(result)
            result["rest"] = await self._rest(server)
            result["edit_all"] = await idle_edits(self.client, server, self.place, self.edits, self.services)
            if self.artifacts:
                result["artifacts"] = await self._add_artifacts(server)
        result["restart"] = await self._restart(resync_edits=False)
        result["resync"] = await self._restart(resync_edits=True)
        result["load_end"] = os.getloadavg()[0]
        self._known_so_far(result)
        if self.floor:
            task = floor.Task(
                self.kubeconfig,
                self.place,
                self.services - self.small,
                self.adapters,
                result["create"]["by"],
                result["create"].pop("samples"),
            )
            result["floor"] = await floor.measure(self.client, task, jobs_run=False)
            if self.adapters and self.jobs_floor:
                result["floor_jobs"] = await floor.measure(self.client, task, jobs_run=True)
        return result

    def _known_so_far(self, result: dict[str, Any]) -> None:
        """Keep what a long run has found out, whatever becomes of the rest."""
        known = {key: value for key, value in result.items() if key != "create"}
        known["create"] = {key: value for key, value in result["create"].items() if key != "samples"}
        self.log.with_suffix(".partial.json").write_text(json.dumps(known, indent=1))

    async def _base_ready(self) -> None:
        async with asyncio.timeout(120):
            async for event in self.client.watch(AIM_ARTIFACT, "0", self.place):
                if view.name_of(event.object) == BASE and view.text(event.object, "status", "status") == "Ready":
                    return

    async def _create(self, server: Server) -> dict[str, Any]:
        """Create the services that are not there yet and wait for rest."""
        calls, spent, rss, passes = server.calls(), server.cpu(), server.rss_mib(), server.passes()
        count = self.services - self.small
        phases, stalls = Phases(self.client, self.outside, self.place, self.adapters), Stalls(server)
        async with phases.watched(), stalls.watched(lambda: f"{len(phases.settled)} of {count} settled"):
            await asyncio.sleep(0.5)  # the watch is open
            begun, others = time.monotonic(), self._others_cpu()
            await create_services(self.client, self.place, range(self.small, self.services), self.adapters)
            created = time.monotonic() - begun
            settled = await phases.all_settled(count, within=_SETTLE_SECONDS) - begun
            spent = server.cpu() - spent
            others = {name: used - others[name] for name, used in self._others_cpu().items()}
            quiet = server.started + await server.quiet() - begun
        made = delta(server.calls(), calls, reads=False)
        stored, _ = await self.client.list_all(AIM_SERVICE, self.place)
        told = sum(1 for obj in stored if view.text(obj, "status", "status") == "Starting")
        served, _ = await self.client.list_all(INFERENCE_SERVICE, self.place)
        return {
            "created_s": created,
            "settled_s": settled,
            "quiet_s": quiet,
            "phases": phases.table(),
            "samples": await phases.collect(),
            "right": told == len(served) == self.services,
            "by": made,
            "calls_per_service": sum(made.values()) / count,
            "passes_per_service": (server.passes() - passes) / count,
            "cpu_s": spent,
            "others_cpu_s": others,
            "rss_before_mib": rss,
            "rss_mib": server.rss_mib(),
            "rss_peak_mib": server.rss_mib("VmHWM"),
            **stalls.figures(),
        }

    def _others_cpu(self) -> dict[str, float]:
        return {name: cpu_of(pid) for name, pid in self.others.items()}

    async def _add_artifacts(self, server: Server) -> dict[str, Any]:
        """Create adapters that no service uses and wait until each has its status."""
        calls, spent, begun = server.calls(), server.cpu(), time.monotonic()
        await create_artifacts(self.client, self.place, self.artifacts)
        settled = server.started + await server.quiet() - begun
        made = sum(delta(server.calls(), calls, reads=False).values())
        return {
            "count": self.artifacts,
            "settled_s": settled,
            "calls_per_artifact": made / self.artifacts,
            "cpu_s": server.cpu() - spent,
            "rss_mib": server.rss_mib(),
        }

    async def _rest(self, server: Server) -> dict[str, Any]:
        """Look for a while at services that are not ready and of which nothing changes."""
        calls, spent, passes = server.calls(), server.cpu(), server.passes()
        await asyncio.sleep(_REST_SECONDS)
        return {
            "seconds": _REST_SECONDS,
            "writes": delta(server.calls(), calls, reads=False),
            "passes": server.passes() - passes,
            "cpu_s": server.cpu() - spent,
        }

    async def _restart(self, *, resync_edits: bool) -> dict[str, Any]:
        """Start over the settled objects, with or without edits while it reads everything."""
        writes, delays = Writes(self.client, self.place), []
        async with writes.watched(), running(self.kubeconfig, self.log) as server:
            if resync_edits:
                await server.first_pass()
                for turn in range(self.edits):
                    if turn and server.passes() > self.services * (1 + self.adapters):
                        break  # it is through
                    index = self.services - 1 - turn * 31 % self.services
                    delays.append(await edit(self.client, writes, index, f"resync-{turn}"))
            settled = await server.quiet()
            calls = server.calls()
            reads = {key: n for key, n in calls.items() if key.split()[0] == "list"}
            figures: dict[str, Any] = {
                "settled_s": settled,
                "writes": {key: n for key, n in calls.items() if key.split()[0] not in ("list", "watch", "get")},
                "lists": sum(reads.values()),
                "gets": sum(n for key, n in calls.items() if key.startswith("get ")),
                "passes": server.passes(),
                "cpu_s": server.cpu(),
                "rss_mib": server.rss_mib(),
                **Stalls(server).figures(),
            }
        return figures | (_delays(delays) if resync_edits else {})


def table(result: dict[str, Any]) -> str:
    """Return one shape's figures for people."""
    made, rest = result["create"], result["rest"]
    again, resync = result["restart"], result["resync"]
    few, full = result["edit_few"], result["edit_all"]
    calls = ", ".join(f"{key} {n}" for key, n in made["by"].items())
    rows = {
        "settled": f"{made['settled_s']:.1f} s (created in {made['created_s']:.1f} s, all events sent after"
        f" {made['quiet_s']:.1f} s), as expected: {made['right']}",
        **_phases_row(result),
        "calls per service": f"{made['calls_per_service']:.2f} in {made['passes_per_service']:.2f} passes: {calls}",
        "CPU, stall": f"{made['cpu_s']:.2f} s, {_stall(made)}",
        **_others_row(made),
        "RSS": f"{made['rss_before_mib']:.0f} -> {made['rss_mib']:.0f} MiB, peak {made['rss_peak_mib']:.0f}",
        **_floor_row(result),
        "at rest": f"{sum(rest['writes'].values())} writes, {rest['passes']:.0f} passes, CPU {rest['cpu_s']:.2f} s"
        f" in {rest['seconds']:.0f} s",
        f"edit at {few['services']}": _edit(few),
        f"edit at {full['services']}": _edit(full),
        **_artifacts_row(result),
        "restart": f"{again['settled_s']:.1f} s, {sum(again['writes'].values())} writes, {again['lists']} list pages,"
        f" {again['gets']} gets, CPU {again['cpu_s']:.2f} s, RSS {again['rss_mib']:.0f} MiB,"
        f" stall {_stall(again)}",
        "edits in a resync": f"{resync['edits']}: p50 {resync['p50_ms']:.0f}, p99 {resync['p99_ms']:.0f} ms",
    }
    title = f"{result['services']} services, {result['adapters']} adapters each; load average"
    lines = [f"{title} {result['load']:.1f} at the start, {result['load_end']:.1f} at the end"]
    return "\n".join([*lines, *(f"  {key:19} {value}" for key, value in rows.items())])


def _stall(row: dict[str, Any]) -> str:
    idle = f"; {row['stall_idle_ms']:.0f} ms in a process that only ticks" if row["stall_idle_ms"] else ""
    cpu = f"{row['stall_cpu_ms']:.0f} of it CPU, {row['stall_most_cpu_ms']:.0f} in any"
    return f"{row['stall_ms']:.0f} ms ({cpu}{idle})"


def _floor_row(result: dict[str, Any]) -> dict[str, str]:
    if "floor" not in result:
        return {}
    rows, made = {}, result["create"]
    for key, title in (("floor", "floor, calls alone"), ("floor_jobs", "floor, Jobs run")):
        if bare := result.get(key):
            ratios = (
                f"{made['settled_s'] / bare['seconds']:.2f} x its time, {made['cpu_s'] / bare['cpu_s']:.2f} x its CPU"
            )
            like = " (like for like)" if key == "floor_jobs" or not result["adapters"] else " (its Jobs never run)"
            floor = f"{bare['seconds']:.1f} s, CPU {bare['cpu_s']:.2f} s for {bare['calls']} calls"
            rows[title] = f"{floor}; aim-adapters: {ratios}{like}"
    return rows


def _others_row(made: dict[str, Any]) -> dict[str, str]:
    used = sorted(made["others_cpu_s"].items(), key=lambda entry: -entry[1])
    return {"CPU of others": ", ".join(f"{name} {seconds:.1f} s" for name, seconds in used)} if used else {}


def _phases_row(result: dict[str, Any]) -> dict[str, str]:
    steps = result["create"]["phases"]
    words = (f"{step} {took['p50_s']:.2f} ({took['max_s']:.2f})" for step, took in steps.items())
    return {"steps, p50 (max) s": ", ".join(words)} if result["adapters"] else {}


def _artifacts_row(result: dict[str, Any]) -> dict[str, str]:
    if "artifacts" not in result:
        return {}
    row = result["artifacts"]
    words = f"{row['settled_s']:.1f} s, {row['calls_per_artifact']:.2f} calls each, CPU {row['cpu_s']:.2f} s"
    return {f"{row['count']} artifacts": f"{words}, RSS {row['rss_mib']:.0f} MiB"}


def _edit(row: dict[str, Any]) -> str:
    return f"{row['calls']:.1f} calls, CPU {row['cpu_ms']:.1f} ms, p50 {row['p50_ms']:.0f} p99 {row['p99_ms']:.0f} ms"


async def run(options: Any, kubeconfig: Path, log: Path, others: dict[str, int]) -> dict[str, Any]:
    """Measure all shapes."""
    results = []
    async with await Client.connect(str(kubeconfig), within=60) as client:
        await install_kinds(client)
        outside = Outside(client)
        async with outside.at_work():
            for services, adapters in options.shapes:
                shape = Shape(
                    client,
                    outside,
                    kubeconfig,
                    log,
                    services=services,
                    small=min(options.small, services // 2),
                    adapters=adapters,
                    edits=options.edits,
                    projected=options.projected,
                    artifacts=options.artifacts,
                    floor=options.floor,
                    jobs_floor=options.jobs_floor,
                    others=others,
                )
                results.append(await shape.measure())
                sys.stdout.write(table(results[-1]) + "\n")
                sys.stdout.flush()
    return {"shapes": results, "load": os.getloadavg()}


@asynccontextmanager
async def _plane(given: Path | None, folder: Path) -> AsyncIterator[Path]:
    """Yield the kubeconfig of a control plane without nodes: the given one, or one that lives as long as the block."""
    if given is not None:
        yield given
        return
    if await asyncio.to_thread(bring_up, folder, {}, fresh=True, bare=True):
        raise RuntimeError("the control plane does not start")
    try:
        with _scheduler_halted(folder):
            yield folder / "kubeconfig"
    finally:
        await asyncio.to_thread(take_down, folder)


@contextmanager
def _scheduler_halted(folder: Path) -> Iterator[None]:
    """Halt the scheduler: there is no node, and it would say so of each pod with three more calls."""
    pid = _pids(folder)["kube-scheduler"]
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def _pids(folder: Path) -> dict[str, int]:
    """Return the processes of the control plane by name."""
    found: dict[str, int] = json.loads(Layout(folder).state.read_text())["processes"]
    return found


async def _main(options: Any) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="aim-bench-") as name:
        async with _plane(options.kubeconfig, Path(name) / "plane") as kubeconfig:
            pids = _pids(kubeconfig.parent) if options.kubeconfig is None else {}
            others = {name: pid for name, pid in pids.items() if name.startswith(("etcd", "kube-"))}
            others["this bench"] = os.getpid()
            return await run(options, kubeconfig, options.out.parent / "reconcile.log", others)


_SHORT = [(300, 0), (30, 4)]  # some three minutes on a quiet machine


def _shape(word: str) -> tuple[int, int]:
    services, _, adapters = word.partition("x")
    return int(services), int(adapters)


def main() -> int:
    """Read the arguments and measure; 1 when a restart or rest wrote something, or an object came out wrong."""
    parser = argparse.ArgumentParser()
    parser.add_argument("shapes", type=_shape, nargs="*", default=_SHORT, help="services x adapters of each: 1000x4")
    parser.add_argument("--small", type=int, default=100, help="services at which the first edits are measured")
    parser.add_argument("--projected", action="store_true", help="profiles have an aimId: a ConfigMap per service")
    parser.add_argument("--edits", type=int, default=30)
    parser.add_argument("--artifacts", type=int, default=0, help="adapters besides that no service declares")
    parser.add_argument("--floor", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument(
        "--jobs-floor", action=argparse.BooleanOptionalAction, default=True, help="a floor with pods too"
    )
    parser.add_argument("--kubeconfig", type=Path, help="a running control plane that may be filled")
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "bench" / "reconcile.json")
    options = parser.parse_args()
    options.out.parent.mkdir(parents=True, exist_ok=True)
    result = asyncio.run(_main(options))
    options.out.write_text(json.dumps(result, indent=1))
    wrong = [
        shape
        for shape in result["shapes"]
        if shape["restart"]["writes"] or shape["rest"]["writes"] or not shape["create"]["right"]
    ]
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
