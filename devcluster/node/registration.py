"""The Node object: registered at the start, kept alive by a Lease, kept Ready."""

from __future__ import annotations

import asyncio
import logging
import platform
from dataclasses import dataclass, field
from datetime import UTC, datetime

from api.view import JsonObject
from devcluster.by_path import STRATEGIC_PATCH, Kube
from devcluster.node.status import timestamp
from devcluster.paths import path_for
from kube.errors import ApiError, Conflict, NotFound

log = logging.getLogger(__name__)

LEASE_NAMESPACE = "kube-node-lease"
_RENEW_S = 10.0
_LEASE_SECONDS = 40
_RETRY_S = 0.2
_ARCHITECTURE = {"x86_64": "amd64", "aarch64": "arm64"}


@dataclass(frozen=True, slots=True)
class Shape:
    """What the node claims to be. The quantities are what the scheduler counts with; nothing enforces them."""

    name: str
    cpu: str = "128"
    memory: str = "1Ti"
    gpus: int = 8
    pods: int = 500
    host_ip: str = "127.0.0.1"
    kubelet_port: int = 0  # 0: no API for logs
    labels: dict[str, str] = field(default_factory=dict)  # over the default ones

    @property
    def capacity(self) -> dict[str, str]:
        """Return capacity, which is allocatable as well."""
        gpus = {"amd.com/gpu": str(self.gpus)} if self.gpus else {}
        return {"cpu": self.cpu, "memory": self.memory, "ephemeral-storage": "1Ti", "pods": str(self.pods), **gpus}


def render_node(shape: Shape) -> JsonObject:
    """Return the Node as it is created: with its labels."""
    architecture = _ARCHITECTURE.get(platform.machine(), platform.machine())
    labels = {
        "kubernetes.io/hostname": shape.name,
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": architecture,
    }
    if shape.gpus:
        labels |= {
            "feature.node.kubernetes.io/aim-accelerator.MI300X": "true",
            "amd.com/gpu.product-name": "AMD_Instinct_MI300X_OAM",
            "amd.com/gpu.device-id": "74a1",
        }
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": shape.name, "labels": labels | shape.labels},
        "spec": {},
    }


def render_status(shape: Shape, now: str) -> JsonObject:
    """Return the Node's status: ready, with its addresses and capacity."""
    fine = {
        "MemoryPressure": ("False", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
        "DiskPressure": ("False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
        "PIDPressure": ("False", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
        "Ready": ("True", "KubeletReady", "the process node is ready"),
    }
    conditions = [
        {
            "type": kind,
            "status": status,
            "reason": reason,
            "message": message,
            "lastHeartbeatTime": now,
            "lastTransitionTime": now,
        }
        for kind, (status, reason, message) in fine.items()
    ]
    status: JsonObject = {
        "capacity": shape.capacity,
        "allocatable": shape.capacity,
        "conditions": conditions,
        "addresses": [
            {"type": "InternalIP", "address": shape.host_ip},
            {"type": "Hostname", "address": shape.name},
        ],
        "nodeInfo": {
            "machineID": "",
            "systemUUID": "",
            "bootID": "",
            "kernelVersion": platform.release(),
            "osImage": "local processes",
            "containerRuntimeVersion": "process://1",
            "kubeletVersion": "v1.36.0-process-node",
            "kubeProxyVersion": "",
            "operatingSystem": "linux",
            "architecture": _ARCHITECTURE.get(platform.machine(), platform.machine()),
        },
    }
    if shape.kubelet_port:
        status["daemonEndpoints"] = {"kubeletEndpoint": {"Port": shape.kubelet_port}}
    return status


class Registration:
    """Keeps the Node and its Lease alive."""

    def __init__(self, kube: Kube, shape: Shape) -> None:
        self._kube = kube
        self._shape = shape
        self._path = path_for("v1", "nodes", None, shape.name)
        self._lease = path_for("coordination.k8s.io/v1", "leases", LEASE_NAMESPACE, shape.name)

    async def register(self) -> None:
        """Create or update the Node, trying until the API server answers. Raises: ApiError if refused."""
        told = ""
        while True:
            try:
                await self._put()
                await self._set_ready()
                return
            except ApiError as error:
                # 403: the server's own roles come up a moment after the server itself
                if error.status in {400, 401, 404, 422}:
                    raise
                if str(error) != told:
                    told = str(error)
                    log.info("node not registered yet: %s", error)
            await asyncio.sleep(_RETRY_S)

    async def keep_alive(self) -> None:
        """Renew the Lease every 10 s, and correct the Node when another writer marked it as not ready."""
        while True:
            try:
                await self._renew()
                node = await self._kube.find(self._path)
                if node is None:
                    await self._put()
                if node is None or not _is_ready(node):
                    await self._set_ready()
            except ApiError as error:
                log.warning("node heartbeat failed: %s", error)
            await asyncio.sleep(_RENEW_S)

    async def _put(self) -> None:
        node = render_node(self._shape)
        try:
            await self._kube.create("/api/v1/nodes", node)
        except ApiError as error:
            if not isinstance(error, Conflict):
                raise
            await self._kube.patch(self._path, {"metadata": {"labels": node["metadata"]["labels"]}})

    async def _set_ready(self) -> None:
        status = render_status(self._shape, timestamp())
        await self._kube.patch_status(self._path, status, content_type=STRATEGIC_PATCH)

    async def _renew(self) -> None:
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        spec = {"holderIdentity": self._shape.name, "leaseDurationSeconds": _LEASE_SECONDS, "renewTime": now}
        try:
            await self._kube.patch(self._lease, {"spec": spec})
        except ApiError as error:
            if not isinstance(error, NotFound):
                raise
            await self._kube.create(
                path_for("coordination.k8s.io/v1", "leases", LEASE_NAMESPACE),
                {
                    "apiVersion": "coordination.k8s.io/v1",
                    "kind": "Lease",
                    "metadata": {"name": self._shape.name},
                    "spec": spec,
                },
            )


def _is_ready(node: JsonObject) -> bool:
    conditions = (node.get("status") or {}).get("conditions") or []
    return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)
