"""The node as a whole: registers, follows the pods bound to it, and runs each."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import shutil
from collections.abc import Mapping
from pathlib import Path

from api.view import JsonObject
from devcluster.node.host import Host
from devcluster.node.pod import PodWorker
from devcluster.node.resolve import pod_title
from devcluster.service_proxy import Backend, matches

log = logging.getLogger(__name__)
_SWEEP_EVERY = 50  # pods that are gone, between two looks at the logs that they left
_LOGS_KEPT = 500  # folders of logs, the living pods' not counted

_LEFTOVERS_S = 10.0  # how much longer than the pods' grace the node waits for their end


class Agent:
    """Runs every pod that is bound to the node."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._workers: dict[str, PodWorker] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._closing = False
        self._finished = 0
        self.synced = asyncio.Event()

    async def follow(self) -> None:
        """Follow the pods bound to this node until cancelled."""
        events = self._host.kube.watch("/api/v1/pods", {"fieldSelector": f"spec.nodeName={self._host.node_name}"})
        first: list[JsonObject] = []
        async with contextlib.aclosing(events) as stream:
            async for kind, pod in stream:
                if kind == "SYNCED":
                    # those with an address come first, so that they get it back
                    for one in sorted(first, key=lambda p: not (p.get("status") or {}).get("podIP")):
                        self._take(one)
                    first = []
                    self.synced.set()
                elif not self.synced.is_set():
                    first.append(pod)
                elif kind == "DELETED":
                    self._drop(pod)
                else:
                    self._take(pod)

    def _take(self, pod: JsonObject) -> None:
        uid = pod["metadata"]["uid"]
        worker = self._workers.get(uid)
        if worker is not None:
            worker.update(pod)
        elif not self._closing:
            worker = self._workers[uid] = PodWorker(self._host, pod)
            self._tasks[uid] = asyncio.create_task(self._run(worker))

    def _drop(self, pod: JsonObject) -> None:
        worker = self._workers.get(pod["metadata"]["uid"])
        if worker is not None:
            worker.vanish()

    async def _run(self, worker: PodWorker) -> None:
        try:
            await worker.run()
            await worker.gone.wait()
        except Exception:
            log.exception("worker of pod %s broke", pod_title(worker.pod))
            return
        self._workers.pop(worker.uid, None)
        self._tasks.pop(worker.uid, None)
        self._finished += 1
        if self._finished % _SWEEP_EVERY == 0:
            living = {self._host.log_folder(*_named(w.pod)) for w in self._workers.values()}
            await asyncio.to_thread(sweep_logs, self._host.log_folder("", "").parent, living)

    def backends(self, namespace: str, selector: Mapping[str, str], *, unready: bool = False) -> list[Backend]:
        """Return the pods that a Service may send to now, in a stable order."""
        return [
            Backend(worker.ip, worker.pod["spec"]["containers"])
            for worker in self._workers.values()
            if worker.ip
            and worker.pod["metadata"]["namespace"] == namespace
            and matches(selector, worker.pod["metadata"].get("labels") or {})
            and (worker.is_ready or (unready and not worker.stopping.is_set()))
        ]

    def pod_named(self, namespace: str, name: str) -> PodWorker | None:
        """Return the pod of this name, the youngest if there are several."""
        found = [w for w in self._workers.values() if _named(w.pod) == (namespace, name)]
        return found[-1] if found else None

    async def close(self) -> None:
        """Stop every process, with the node's own short grace."""
        self._closing = True
        await asyncio.gather(*(worker.halt() for worker in self._workers.values()))
        tasks = list(self._tasks.values())
        if tasks:
            await asyncio.wait(tasks, timeout=self._host.patience.stop_s + _LEFTOVERS_S)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _named(pod: JsonObject) -> tuple[str, str]:
    return pod["metadata"]["namespace"], pod["metadata"]["name"]


def sweep_logs(folder: Path, living: set[Path], *, keep: int = _LOGS_KEPT) -> None:
    """Remove the oldest logs of pods that are gone, all but the last `keep`."""
    dead = sorted((one for one in folder.iterdir() if one not in living), key=lambda one: one.stat().st_mtime)
    for one in dead[: max(0, len(dead) - keep)]:
        shutil.rmtree(one, ignore_errors=True)
