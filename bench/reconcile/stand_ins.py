"""What surrounds the reconciler in a bench: manifests, and a stand-in that binds claims and ends Jobs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import yaml
from msgspec.structs import replace

from api import view
from api.jobs import JobResult
from api.kinds import (
    AIM_ARTIFACT,
    AIM_PROFILE,
    AIM_SERVICE,
    JOB,
    PERSISTENT_VOLUME_CLAIM,
    POD,
    Kind,
)
from api.names import (
    KEY_ANNOTATIONS,
    LABEL_ROLE,
    ROLE_FETCH,
    ROLE_REAPER,
    ROLE_STAGING,
    ROLE_SUBTREE_SYNC,
)
from api.view import Json
from bench.reconcile.server import ROOT
from kube.client import Client
from kube.errors import ApiError, NotFound

NAMESPACE = Kind("", "v1", "namespaces", "Namespace", False)
VOLUME = Kind("", "v1", "persistentvolumes", "PersistentVolume", False)
DEFINITION = Kind("apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", False)
PROFILE, BASE, SOURCE = "llama", "llama-base", "hf://acme/llama"
IN_FLIGHT = 16
_CRD_SECONDS = 30


async def install_kinds(client: Client) -> None:
    """Write our CRDs and KServe's, and wait until they are served."""
    loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    files = [*sorted((ROOT / "chart/files/crds").glob("*.yaml")), ROOT / "devcluster/kserve/crd.yaml"]
    names = []
    for file in files:
        for document in yaml.load_all(file.read_bytes(), Loader=loader):
            if document:
                await client.apply(DEFINITION, document)
                names.append(document["metadata"]["name"])
    for name in names:
        await _established(client, name)


async def _established(client: Client, name: str) -> None:
    for _ in range(_CRD_SECONDS * 10):
        found = await client.get(DEFINITION, None, name)
        if any(
            view.dig(c, "type") == "Established" and view.dig(c, "status") == "True"
            for c in view.items(found, "status", "conditions")
        ):
            return
        await asyncio.sleep(0.1)
    raise TimeoutError(f"{name} is not served")


def namespace(name: str) -> dict[str, Any]:
    """Return a namespace."""
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}


def base_and_profile(place: str, *, disk: bool, projected: bool) -> list[tuple[Kind, dict[str, Any]]]:
    """Return a model artifact and the profile of it; `projected`: with an aimId, so that a profile file is mounted."""
    spec: dict[str, Any] = {"type": "model", "modelId": "acme/llama", "sourceUri": SOURCE, "size": "10Gi"}
    if disk:
        spec["adapterDisk"] = {"size": "50Gi"}
    profile: dict[str, Any] = {
        "modelId": "acme/llama",
        "profileId": "vllm-mi300x-bf16-tp1-latency",
        "image": "registry.example/aim/llama:0.13.1",
        "engine": "vllm",
        "metric": "latency",
        "precision": "bf16",
        "acceleratorVendor": "amd",
        "acceleratorModel": "MI300X",
        "acceleratorCount": 1,
        "features": ["adapters"],
        "modelSources": [{"modelId": "acme/llama", "sourceUri": SOURCE, "size": "10Gi"}],
    }
    if projected:
        profile["aimId"] = "acme/llama"
    return [
        (AIM_ARTIFACT, _object(AIM_ARTIFACT, place, BASE, spec)),
        (AIM_PROFILE, _object(AIM_PROFILE, place, PROFILE, profile)),
    ]


def adapter(place: str, name: str) -> dict[str, Any]:
    """Return an adapter that fits the base."""
    spec = {
        "type": "adapter",
        "modelId": f"acme/{name}",
        "compatibleWith": ["acme/llama"],
        "sourceUri": f"s3://bench/adapters/{name}/",
        "rank": 16,
    }
    return _object(AIM_ARTIFACT, place, name, spec)


def service(place: str, index: int, adapters: int) -> dict[str, Any]:
    """Return the service of a number, dynamic with its own adapters or without any."""
    spec: dict[str, Any] = {"profile": {"name": PROFILE}}
    if adapters:
        spec |= {
            "adapterMode": "dynamic",
            "adapterRuntime": {"maxRank": 32},
            "adapters": [{"name": name, "kind": "AIMArtifact"} for name in adapter_names(index, adapters)],
        }
    return _object(AIM_SERVICE, place, service_name(index), spec)


def service_name(index: int) -> str:
    """Return the name of the service of a number."""
    return f"svc-{index:05d}"


def adapter_names(index: int, adapters: int) -> list[str]:
    """Return the names of a service's own adapters."""
    return [f"svc-{index:05d}-a{number}" for number in range(adapters)]


def _object(kind: Kind, place: str, name: str, spec: dict[str, Any]) -> dict[str, Any]:
    return {
        "apiVersion": kind.api_version,
        "kind": kind.kind,
        "metadata": {"name": name, "namespace": place},
        "spec": spec,
    }


async def fan(work: Iterable[Callable[[], Awaitable[object]]], in_flight: int = IN_FLIGHT) -> None:
    """Do all of it, this many at a time."""
    waiting = iter(work)

    async def worker() -> None:
        for one in waiting:
            await one()

    async with asyncio.TaskGroup() as group:
        for _ in range(in_flight):
            group.create_task(worker())


async def create_services(client: Client, place: str, numbers: range, adapters: int) -> None:
    """Create services of these numbers, each after its adapters."""

    async def one(index: int) -> None:
        for name in adapter_names(index, adapters):
            await client.create(AIM_ARTIFACT, adapter(place, name))
        await client.create(AIM_SERVICE, service(place, index, adapters))

    await fan([lambda index=index: one(index) for index in numbers])  # type: ignore[misc]


async def create_artifacts(client: Client, place: str, count: int) -> None:
    """Create adapters that no service declares."""
    names = (f"spare-{number:05d}" for number in range(count))
    await fan([lambda name=name: client.create(AIM_ARTIFACT, adapter(place, name)) for name in names])  # type: ignore[misc]


@dataclass(slots=True)
class Outside:
    """Binds claims and lets Jobs end well, as provisioner and kubelet would. Counts what it ended.

    `listeners` get each change of a Job or pod: (kind, type of the event, object).
    """

    client: Client
    ended: int = 0
    listeners: list[Callable[[Kind, str, Json], None]] = field(default_factory=list)
    _seen: set[str] = field(default_factory=set)
    _keys: dict[str, Json] = field(default_factory=dict)  # UID of a Job that has not ended -> its annotations

    @asynccontextmanager
    async def at_work(self) -> AsyncIterator[None]:
        """Work until the end of the block."""
        tasks = [
            asyncio.create_task(self._follow(PERSISTENT_VOLUME_CLAIM, self._bind)),
            asyncio.create_task(self._follow(JOB, self._note)),
            asyncio.create_task(self._follow(POD, self._end)),
        ]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _follow(self, kind: Kind, act: Callable[[Json], Awaitable[None]]) -> None:
        while True:
            found, version = await self.client.list_all(kind)
            await fan([lambda obj=obj: self._once(obj, act) for obj in found])  # type: ignore[misc]
            try:
                async with asyncio.TaskGroup() as group:
                    async for event in self.client.watch(kind, version):
                        for listener in self.listeners:
                            listener(kind, event.type, event.object)
                        if event.type == "ADDED":
                            group.create_task(self._once(event.object, act))
            except* ApiError:
                await asyncio.sleep(0.2)

    async def _once(self, obj: Json, act: Callable[[Json], Awaitable[None]]) -> None:
        if view.uid_of(obj) not in self._seen:
            self._seen.add(view.uid_of(obj))
            try:
                await act(obj)
            except BaseException:
                self._seen.discard(view.uid_of(obj))  # the next list shows it again
                raise

    async def _note(self, job: Json) -> None:
        self._keys[view.uid_of(job)] = view.mapping(job, "metadata", "annotations")

    async def _bind(self, claim: Json) -> None:
        if view.text(claim, "spec", "volumeName"):
            return
        spec = claim["spec"]
        reference = {"kind": "PersistentVolumeClaim", "apiVersion": "v1", "name": view.name_of(claim)}
        volume = {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": f"bench-{view.uid_of(claim)}"},
            "spec": {
                "capacity": {"storage": spec["resources"]["requests"]["storage"]},
                "accessModes": spec["accessModes"],
                "storageClassName": spec.get("storageClassName") or "",
                "volumeMode": spec.get("volumeMode") or "Filesystem",
                "persistentVolumeReclaimPolicy": "Retain",
                "hostPath": {"path": "/nonexistent"},
                "claimRef": reference | {"namespace": view.namespace_of(claim), "uid": view.uid_of(claim)},
            },
        }
        await self.client.create(VOLUME, volume)

    async def _end(self, pod: Json) -> None:
        owner = next((ref for ref in view.items(pod, "metadata", "ownerReferences") if ref["kind"] == "Job"), None)
        role = view.text(pod, "metadata", "labels", LABEL_ROLE)
        if owner is None or role not in _RESULTS:
            return
        try:
            noted = self._keys.pop(owner["uid"], None)
            if noted is None:  # the pod was seen first
                job = await self.client.get(JOB, view.namespace_of(pod), owner["name"])
                noted = view.mapping(job, "metadata", "annotations")
            key = view.text(noted, KEY_ANNOTATIONS[role]) or ""
            said = replace(_RESULTS[role], key=key).to_termination_message()
            await self.client.patch_status(
                POD, view.namespace_of(pod), view.name_of(pod), {"status": _ended(pod, said)}
            )
            self.ended += 1
        except NotFound:
            return


_RESULTS = {
    ROLE_FETCH: JobResult(ok=True, reason="ModelFetched", size_bytes=5 * 2**30),
    ROLE_SUBTREE_SYNC: JobResult(ok=True, reason="SubtreeSynced"),
    ROLE_STAGING: JobResult(ok=True, reason="AdapterStaged", rank=16, digest="sha256:" + "0" * 64, size_bytes=2**24),
    ROLE_REAPER: JobResult(ok=True, reason="DiskReaped"),
}
_MOMENT = "2026-01-01T00:00:00Z"


def _ended(pod: Json, message: str) -> dict[str, Any]:
    container = pod["spec"]["containers"][0]
    ended = {"exitCode": 0, "reason": "Completed", "message": message, "startedAt": _MOMENT, "finishedAt": _now()}
    status = {"name": container["name"], "image": container["image"], "imageID": "bench", "ready": False}
    return {"phase": "Succeeded", "containerStatuses": [status | {"restartCount": 0, "state": {"terminated": ended}}]}


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
