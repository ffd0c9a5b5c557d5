"""One pod of the node, from its binding to its removal."""

from __future__ import annotations

import asyncio
import copy
import logging
import math
import time
from collections.abc import Callable
from datetime import datetime

from api.view import JsonObject
from devcluster.by_path import STRATEGIC_PATCH, Kube
from devcluster.node.container import Container
from devcluster.node.host import Host
from devcluster.node.resolve import PodFacts, pod_title
from devcluster.node.status import Record, Seen, build_status, difference, is_ready, timestamp
from devcluster.node.volumes import PodVolumes, Ready, VolumeError
from devcluster.paths import path_for
from kube.errors import ApiError, Conflict, NotFound

log = logging.getLogger(__name__)

_OVER = frozenset({"Succeeded", "Failed"})
_GONE_GRACE_S = 2.0  # a pod whose object vanished gets this long
_WRITE_RETRY_S = 0.3
LOST = {
    "exitCode": 137,
    "reason": "ContainerStatusUnknown",
    "message": "The container could not be located when the pod was restarted",
}


class PodWorker:
    """Runs one pod: volumes, init containers, containers, status, removal."""

    def __init__(self, host: Host, pod: JsonObject) -> None:
        self.host = host
        self.pod = pod
        self.uid: str = pod["metadata"]["uid"]
        self.stopping = asyncio.Event()
        self.delete_wanted = asyncio.Event()
        self.gone = asyncio.Event()  # the API server has no such object any more
        self.grace_deadline = math.inf
        self._due = asyncio.Event()
        self._wake_volumes = asyncio.Event()
        self._volumes = PodVolumes(host.kube, host.store, host.pod_folder(self.uid), host.claims, user=self.uid)
        self._written: JsonObject = copy.deepcopy(pod.get("status") or {})
        self._start_time = self._written.get("startTime") or timestamp()
        self._verdict: tuple[str, str, str] | None = None
        self._conditions: tuple[JsonObject, ...] = ()
        self._ip = ""
        self._sandbox_ready = False
        self._containers = [Container(self, spec, record) for spec, record in self._recall()]

    # -- what containers ask ---------------------------------------------------------------------------------------

    @property
    def facts(self) -> PodFacts:
        """Return the values of the downward API."""
        return PodFacts(self._ip, self.host.host_ip, self.host.allocatable)

    @property
    def volumes(self) -> dict[str, Ready]:
        """Return the volumes that are set up, by name."""
        return self._volumes.ready

    @property
    def ip(self) -> str:
        """Return the pod's address, "" while it has none."""
        return self._ip

    @property
    def is_ready(self) -> bool:
        """Return whether the pod takes traffic now: every container is ready, and the pod is not terminating."""
        mains = [c.record for c in self._containers if not c.record.is_init or c.record.is_sidecar]
        return bool(self._ip) and not self.stopping.is_set() and all(is_ready(r) for r in mains)

    def may_log_more(self, container: str) -> bool:
        """Return whether a container runs now, so that its log may grow."""
        return any(c.record.name == container and c.record.is_running for c in self._containers)

    def touch(self) -> None:
        """Report that a record changed: the status must be written."""
        self._due.set()

    async def objects(self, container: JsonObject) -> Callable[[str, str], JsonObject | None]:
        """Return a lookup of the Secrets and ConfigMaps that the container's environment names."""
        wanted: set[tuple[str, str]] = set()
        for source in container.get("envFrom") or []:
            wanted |= {("ConfigMap", r["name"]) for r in [source.get("configMapRef")] if r}
            wanted |= {("Secret", r["name"]) for r in [source.get("secretRef")] if r}
        for entry in container.get("env") or []:
            value = entry.get("valueFrom") or {}
            wanted |= {("ConfigMap", r["name"]) for r in [value.get("configMapKeyRef")] if r}
            wanted |= {("Secret", r["name"]) for r in [value.get("secretKeyRef")] if r}
        namespace = self.pod["metadata"]["namespace"]
        await self.host.store.use(self.uid, namespace, sorted(wanted), self._objects_changed)
        return lambda kind, name: self.host.store.get(namespace, kind, name)

    # -- what the node reports -------------------------------------------------------------------------------------

    def update(self, pod: JsonObject) -> None:
        """Take a newer version of the object."""
        old, self.pod = self.pod, pod
        if any(old["metadata"].get(k) != pod["metadata"].get(k) for k in ("labels", "annotations")):
            self._wake_volumes.set()
        if (old.get("status") or {}).get("conditions") != (pod.get("status") or {}).get("conditions"):
            self._due.set()  # a readiness gate may have opened
        if pod["metadata"].get("deletionTimestamp"):
            self.delete_wanted.set()
            grace = pod["metadata"].get("deletionGracePeriodSeconds")
            self.request_stop(self._default_grace if grace is None else float(grace))

    def vanish(self) -> None:
        """Record that the object is deleted."""
        self.gone.set()
        self.request_stop(_GONE_GRACE_S)

    def request_stop(self, grace_s: float) -> None:
        """Stop the pod; a later call may shorten the grace, never lengthen it."""
        self.grace_deadline = min(self.grace_deadline, asyncio.get_running_loop().time() + grace_s)
        self.stopping.set()
        for container in self._containers:
            if not container.record.is_sidecar:  # those follow when the others have ended
                container.stop.set()
            container.changed.set()
        self._wake_volumes.set()
        self.touch()

    @property
    def _default_grace(self) -> float:
        return float(self.pod["spec"].get("terminationGracePeriodSeconds", 30))

    def _objects_changed(self) -> None:
        self._wake_volumes.set()
        for container in self._containers:
            container.changed.set()

    # -- life ------------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Run the pod to its end and, when its deletion is wanted, remove its object."""
        if (self.pod.get("status") or {}).get("phase") not in _OVER:
            writer = asyncio.create_task(self._keep_status())
            try:
                await self._live()
            except Exception:
                log.exception("pod %s failed by a fault of the node", pod_title(self.pod))
                self._verdict = ("Failed", "UnexpectedNodeError", "the process node failed; its log says how")
            finally:
                writer.cancel()
                await asyncio.gather(writer, return_exceptions=True)
                self.host.addresses.give_back(self._ip)
                self.host.store.release(self.uid)
            await self._write_until_done()
            await asyncio.to_thread(self._volumes.remove)
        await _wait_any(self.delete_wanted, self.gone)
        await self._remove_object()

    async def halt(self) -> None:
        """Stop the processes because the node itself stops; nothing is written to the API server."""
        self.gone.set()
        self.request_stop(self.host.patience.stop_s)

    async def _live(self) -> None:
        self._ip = self.host.addresses.take(self._written.get("podIP") or "")
        self.update(self.pod)
        self.touch()
        if self._verdict:
            return  # checked before anything ran
        work = asyncio.create_task(self._work())
        try:
            limit = self.pod["spec"].get("activeDeadlineSeconds")
            age = time.time() - datetime.fromisoformat(self._start_time).timestamp()
            done, _ = await asyncio.wait({work}, timeout=None if limit is None else max(0.0, limit - age))
            if not done:
                why = "Pod was active on the node longer than the specified deadline"
                self._verdict = ("Failed", "DeadlineExceeded", why)
                self.request_stop(self._default_grace)
            await work
        finally:
            work.cancel()
            await asyncio.gather(work, return_exceptions=True)

    async def _work(self) -> None:
        """Set up, run init containers in order, then all others together."""
        if not await self._set_up():
            return
        self._sandbox_ready = True
        keeper = asyncio.create_task(self._keep_volumes())
        sidecars: list[tuple[Container, asyncio.Task[None]]] = []
        try:
            if await self._initialize(sidecars):
                mains = [c for c in self._containers if not c.record.is_init]
                for main in mains:
                    if main.record.waiting_reason == "PodInitializing":
                        main.record.waiting_reason = "ContainerCreating"
                async with asyncio.TaskGroup() as tasks:
                    for main in mains:
                        tasks.create_task(main.run())
        finally:
            for container, task in reversed(sidecars):
                container.stop.set()
                await asyncio.gather(task, return_exceptions=True)
            keeper.cancel()
            await asyncio.gather(keeper, return_exceptions=True)

    async def _initialize(self, sidecars: list[tuple[Container, asyncio.Task[None]]]) -> bool:
        """Run the init containers; False when the pod must not continue."""
        for container in [c for c in self._containers if c.record.is_init]:
            if self.stopping.is_set():
                return False
            if container.record.is_sidecar:
                task = asyncio.create_task(container.run())
                sidecars.append((container, task))
                await _wait_any(container.started, self.stopping)
                continue
            await container.run()
            if container.record.exit_code != 0:
                return False
        return not self.stopping.is_set()

    async def _set_up(self) -> bool:
        """Set up the volumes, trying again while something is missing; False when the pod is stopped before."""
        pause, told = self.host.patience.retry_first_s, ""
        while not self.stopping.is_set():
            self._wake_volumes.clear()
            try:
                await self._volumes.set_up(self.pod, self.facts, self._objects_changed)
            except VolumeError as error:
                if str(error) != told:
                    told = str(error)
                    self.host.events.warning(self.pod, "FailedMount", told)
            except ApiError as error:
                log.info("volumes of pod %s wait: %s", pod_title(self.pod), error)
            else:
                return True
            await _wait_any(self._wake_volumes, timeout_s=pause)
            pause = min(pause * 2, self.host.patience.retry_max_s)
        return False

    async def _keep_volumes(self) -> None:
        """Write volumes again when an object, the pod's metadata or a token's age asks for it."""
        due = await self._volumes.refresh(self.pod, self.facts)
        while True:
            await _wait_any(self._wake_volumes, timeout_s=None if due is None else max(0.1, due - time.time()))
            self._wake_volumes.clear()
            due = await self._volumes.refresh(self.pod, self.facts)

    # -- records ---------------------------------------------------------------------------------------------------

    def _recall(self) -> list[tuple[JsonObject, Record]]:
        """Return each container's spec with its record: fresh, or what an earlier run of the node left behind."""
        spec = self.pod["spec"]
        status = self.pod.get("status") or {}
        known = {s["name"]: s for s in status.get("initContainerStatuses") or []}
        known |= {s["name"]: s for s in status.get("containerStatuses") or []}
        inits = spec.get("initContainers") or []
        found = []
        for container in [*inits, *spec["containers"]]:
            is_init = container in inits
            record = Record(
                name=container["name"],
                image=container["image"],
                is_init=is_init,
                is_sidecar=is_init and container.get("restartPolicy") == "Always",
                waiting_reason="PodInitializing" if inits and not is_init else "ContainerCreating",
            )
            recall(record, known.get(container["name"]) or {})
            found.append((container, record))
        self._judge_lost([record for _, record in found])
        return found

    def _judge_lost(self, records: list[Record]) -> None:
        """A pod that never restarts and lost a process is over, by the node's stop and not by its own fault."""
        lost = [r for r in records if r.terminated and r.terminated.get("reason") == LOST["reason"]]
        if not lost or self.pod["spec"].get("restartPolicy", "Always") != "Never":
            return
        for record in records:
            if record.terminated is None:
                record.terminated = {**LOST, "finishedAt": timestamp()}
        message = "Pod was terminated in response to imminent node shutdown."
        self._verdict = ("Failed", "Terminated", message)
        self._conditions = (
            {"type": "DisruptionTarget", "status": "True", "reason": "TerminationByKubelet", "message": message},
        )

    # -- the API server --------------------------------------------------------------------------------------------

    def _status(self) -> JsonObject:
        seen = Seen(
            pod=self.pod,
            records=tuple(c.record for c in self._containers),
            pod_ip=self._ip,
            host_ip=self.host.host_ip,
            start_time=self._start_time,
            sandbox_ready=self._sandbox_ready,
            stopping=self.stopping.is_set(),
            verdict=self._verdict if not any(c.record.is_running for c in self._containers) else None,
            extra_conditions=self._conditions,
            now=timestamp(),
        )
        merged = {c["type"]: c for c in (self.pod.get("status") or {}).get("conditions") or []}
        merged |= {c["type"]: c for c in self._written.get("conditions") or []}
        return build_status(seen, {**self._written, "conditions": list(merged.values())})

    async def _keep_status(self) -> None:
        """Write the status whenever it changed, until cancelled or the object is deleted."""
        while not self.gone.is_set():
            await self._due.wait()
            self._due.clear()
            if not await self._write():
                await asyncio.sleep(_WRITE_RETRY_S)
                self._due.set()

    async def _write_until_done(self) -> None:
        while not (self.gone.is_set() or await self._write()):
            await _wait_any(self.gone, timeout_s=_WRITE_RETRY_S)

    async def _write(self) -> bool:
        """Write the status if it differs from the last one written; False when it must be tried again."""
        status = self._status()
        if self.gone.is_set() or status == self._written:
            return True
        meta = self.pod["metadata"]
        path = path_for("v1", "pods", meta["namespace"], meta["name"]) + "/status"
        patch = {"metadata": {"uid": self.uid}, "status": difference(self._written, status)}
        try:
            await self.host.kube.patch(path, patch, content_type=STRATEGIC_PATCH)
        except ApiError as error:
            if isinstance(error, (NotFound, Conflict)):
                self.gone.set()  # or another pod has the name now
                return True
            log.warning("status of pod %s not written: %s", pod_title(self.pod), error)
            return error.status == 422  # the API server refuses it for good; the next change is another try
        self._written = status
        return True

    async def _remove_object(self) -> None:
        """Delete the object for good, as a kubelet does when nothing of the pod runs any more."""
        while not (self.gone.is_set() or await delete_pod(self.host.kube, self.pod)):
            await _wait_any(self.gone, timeout_s=_WRITE_RETRY_S)


def recall(record: Record, status: JsonObject) -> None:
    """Fill a fresh record from the status that an earlier run of the node wrote: its processes are gone."""
    if not status:
        return
    state = status.get("state") or {}
    record.restarts = int(status.get("restartCount") or 0)
    record.image_id = status.get("imageID") or ""
    record.container_id = status.get("containerID") or ""
    record.last_terminated = (status.get("lastState") or {}).get("terminated")
    if "running" in state:
        started = state["running"].get("startedAt")
        record.terminated = {**LOST, "startedAt": started, "finishedAt": timestamp()}
        if record.container_id:
            record.terminated["containerID"] = record.container_id
    elif "terminated" in state:
        record.terminated = state["terminated"]


async def delete_pod(kube: Kube, pod: JsonObject) -> bool:
    """Delete a pod with no grace, if it is still this one; False when it must be tried again."""
    meta = pod["metadata"]
    options = {
        "apiVersion": "v1",
        "kind": "DeleteOptions",
        "gracePeriodSeconds": 0,
        "preconditions": {"uid": meta["uid"]},
    }
    try:
        await kube.delete(path_for("v1", "pods", meta["namespace"], meta["name"]), options)
    except ApiError as error:
        return isinstance(error, Conflict)
    return True


async def _wait_any(*events: asyncio.Event, timeout_s: float | None = None) -> None:
    """Wait for the first of the events, at most this long."""
    waiters = [asyncio.create_task(event.wait()) for event in events]
    try:
        await asyncio.wait(waiters, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for waiter in waiters:
            waiter.cancel()
