"""The floor: a bare client that makes the same calls with the same objects as fast as it can, without any reason.

`measure` runs it as a process of its own (`python -m bench.reconcile.floor`), so that its CPU is its own.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import Awaitable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from api import view
from api.kinds import AIM_ARTIFACT, AIM_SERVICE, CONFIG_MAP, EVENT, INFERENCE_SERVICE, JOB, POD, Kind
from api.names import ROLE_STAGING, ROLE_SUBTREE_SYNC
from api.view import Json
from bench.reconcile.server import ROOT
from bench.reconcile.stand_ins import IN_FLIGHT, NAMESPACE, adapter_names, create_services, namespace, service_name
from kube.client import Client
from kube.errors import ApiError
from reconcile.objects import merge_patch, owner_reference

_PLACE_SUFFIX = "-floor"
_WITHIN = 1800.0


@dataclass(frozen=True, slots=True)
class Task:
    """What the floor repeats.

    `calls`: our own calls about all services by `verb kind`, spread evenly. `samples`: what one service led to: `isvc`,
    `event`, `statuses` (each a whole status), a Job of each role, `artifact` (its status).
    """

    kubeconfig: Path
    place: str
    services: int
    adapters: int
    calls: Mapping[str, int]
    samples: Mapping[str, Any]


async def measure(client: Client, task: Task, *, jobs_run: bool) -> dict[str, float]:
    """Repeat our own calls in another namespace; returns seconds, CPU seconds of the bare client, calls.

    Args: `jobs_run`: the Jobs have pods, and what follows from the end of a Job waits for it, as it must for us; else
    they are suspended, and all calls are made one after another.
    """
    place = f"{task.place}{_PLACE_SUFFIX}{'-jobs' if jobs_run else ''}"
    await client.create(NAMESPACE, namespace(place))
    await create_services(client, place, range(task.services), task.adapters)
    plan = {
        "kubeconfig": str(task.kubeconfig),
        "place": place,
        "services": task.services,
        "adapters": task.adapters,
        "calls": dict(task.calls),
        "samples": dict(task.samples),
        "jobs_run": jobs_run,
    }
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "bench.reconcile.floor"),
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    out, _ = await process.communicate(json.dumps(plan).encode())
    if process.returncode:
        raise RuntimeError("the floor failed")
    result: dict[str, float] = json.loads(out)
    return result


# -- the bare client ------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Floor:
    client: Client
    place: str
    plan: Json
    owners: Mapping[str, Json]
    calls: int = 0
    ended: dict[str, asyncio.Event] = field(default_factory=dict)
    slots: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(IN_FLIGHT))

    async def call(self, work: Awaitable[Any]) -> Any:
        async with self.slots:
            self.calls += 1
            return await work

    def share(self, key: str, index: int) -> int:
        """How many calls of a kind fall to the service of a number."""
        made, services = self.plan["calls"].get(key, 0), self.plan["services"]
        return int(made * (index + 1) // services - made * index // services)

    async def service(self, index: int) -> None:
        """Make all calls about one service, in the order in which we make them."""
        samples, name = self.plan["samples"], service_name(index)
        for artifact in adapter_names(index, self.share("patch aimartifacts", index)):
            patch = {"status": samples["artifact"] | {"adapterPath": artifact}}
            await self.call(self.client.patch_status(AIM_ARTIFACT, self.place, artifact, patch))
        jobs, statuses = self.share("create jobs", index), self.share("patch aimservices", index)
        first = await self._make_jobs(name, ROLE_SUBTREE_SYNC, range(min(jobs, 1)))
        if jobs:
            await self._tell(name, range(min(statuses, 1)))
            await self._wait(first)
        for kind, key in ((CONFIG_MAP, "config_map"), (INFERENCE_SERVICE, "isvc")):
            for _ in range(self.share(f"apply {kind.plural}", index)):
                await self.call(self.client.apply(kind, self._object(samples[key][0], kind, name, name)))
        rest = await self._make_jobs(name, ROLE_STAGING, range(1, jobs))
        await self._tell(name, range(1 if jobs else 0, min(statuses, 2)))
        await self._drop(first)
        await self._wait(rest)
        await self._tell(name, range(2 if jobs else min(statuses, 2), statuses))
        await self._drop(rest[: max(0, self.share("delete jobs", index) - len(first))])
        for turn in range(self.share("create events", index)):
            event = self._object(samples["event"][0], EVENT, f"{name}.{turn}", name)
            event["involvedObject"] = dict(view.mapping(event, "involvedObject")) | {
                "namespace": self.place,
                "name": name,
            }
            await self.call(self.client.create(EVENT, event))

    async def _make_jobs(self, service: str, role: str, numbers: Iterable[int]) -> list[Json]:
        made = []
        for number in numbers:
            job = self._object(self.plan["samples"][role], JOB, f"{service}-{number}", service)
            if not self.plan["jobs_run"]:
                job["spec"]["suspend"] = True
            self.ended[view.name_of(job)] = asyncio.Event()
            made.append(await self.call(self.client.create(JOB, job)))
        return made

    async def _tell(self, service: str, turns: Iterable[int]) -> None:
        statuses = [{}, *self.plan["samples"]["statuses"]]
        for turn in turns:
            here = min(turn, len(statuses) - 2)
            patch = merge_patch(statuses[here], statuses[here + 1]) | {"lastRestage": f"{turn}"}
            await self.call(self.client.patch_status(AIM_SERVICE, self.place, service, {"status": patch}))

    async def _wait(self, jobs: Iterable[Json]) -> None:
        if self.plan["jobs_run"]:
            for job in jobs:
                await self.ended[view.name_of(job)].wait()

    async def _drop(self, jobs: Iterable[Json]) -> None:
        for job in jobs:
            await self.call(self.client.delete(JOB, self.place, view.name_of(job), uid=view.uid_of(job)))

    def _object(self, sample: Json, kind: Kind, name: str, service: str) -> dict[str, Any]:
        """Return a sample as it was sent, near enough: without what the server added, of another name and owner."""
        kept: dict[str, Any] = {key: value for key, value in sample.items() if key not in ("status", "metadata")}
        metadata = {
            key: value for key, value in view.mapping(sample, "metadata").items() if key in ("labels", "annotations")
        }
        metadata |= {"name": name, "namespace": self.place}
        if kind != EVENT:
            metadata["ownerReferences"] = [owner_reference(AIM_SERVICE, self.owners[service])]
        if kind == JOB:
            kept["spec"] = {key: value for key, value in kept["spec"].items() if key not in ("selector", "suspend")}
            template = kept["spec"]["template"]
            own = _own_labels(view.mapping(template, "metadata", "labels"))
            kept["spec"]["template"] = template | {"metadata": {"labels": own}}
            metadata["labels"] = _own_labels(metadata["labels"])
        return kept | {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata}

    async def watch_pods(self) -> None:
        """Learn which Jobs have ended, until cancelled."""
        version = "0"
        while True:
            try:
                async for event in self.client.watch(POD, version, self.place):
                    version = view.text(event.object, "metadata", "resourceVersion") or version
                    if view.text(event.object, "status", "phase") == "Succeeded":
                        for owner in view.items(event.object, "metadata", "ownerReferences"):
                            if (ended := self.ended.get(owner["name"])) is not None:
                                ended.set()
            except ApiError:
                version = "0"
                await asyncio.sleep(0.05)


def _own_labels(labels: Json) -> dict[str, Any]:
    return {key: value for key, value in labels.items() if "controller-uid" not in key and "job-name" not in key}


async def _run(plan: Json) -> dict[str, float]:
    async with await Client.connect(plan["kubeconfig"], within=60) as client:
        services, _ = await client.list_all(AIM_SERVICE, plan["place"])
        floor = _Floor(client, plan["place"], plan, {view.name_of(service): service for service in services})
        watching = asyncio.create_task(floor.watch_pods()) if plan["jobs_run"] else None
        begun, spent = time.monotonic(), time.process_time()
        async with asyncio.timeout(_WITHIN), asyncio.TaskGroup() as group:
            for index in range(plan["services"]):
                group.create_task(floor.service(index))
        took = {"seconds": time.monotonic() - begun, "cpu_s": time.process_time() - spent, "calls": floor.calls}
        if watching is not None:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)
    return took


def main() -> int:
    """Carry out the plan that is read from standard input, and print what it took."""
    sys.stdout.write(json.dumps(asyncio.run(_run(json.load(sys.stdin)))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
