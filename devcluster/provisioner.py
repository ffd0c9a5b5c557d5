"""Gives each claim of our storage classes a directory: CLAIMS/NAMESPACE/CLAIM/, as a PersistentVolume of type hostPath.

`plan` is pure and decides about one claim or volume; `run` watches and does it. The class for
ReadWriteMany takes every access mode; the other one refuses ReadWriteMany with the event that real provisioners send.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import shutil
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from api.view import JsonObject
from devcluster.by_path import Kube
from devcluster.content import RWO_PROVISIONER, RWX_PROVISIONER
from kube.errors import ApiError, Conflict

log = logging.getLogger(__name__)


_PROVISIONED_BY = "pv.kubernetes.io/provisioned-by"  # what the volume controller and kubectl look at
_STORAGE_PROVISIONER = "volume.kubernetes.io/storage-provisioner"  # set on a claim by the volume controller: do it
_OPEN_MODE = 0o777  # pods of any user write there, as on a network share without squashing
_ATTEMPTS = 6
_PAUSE_S = 0.2  # doubled with each attempt
_PROVISIONERS = (RWX_PROVISIONER, RWO_PROVISIONER)


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to be done: make `volume`, refuse with `reason`, or remove the volume's directory and itself."""

    action: Literal["none", "create", "refuse", "remove"]
    volume: JsonObject | None = None
    reason: str = ""


_NOTHING = Plan("none")


def plan_claim(claim: JsonObject, claims: Path) -> Plan:
    """Decide about a claim that may need a volume of this provisioner."""
    meta, spec = claim["metadata"], claim["spec"]
    provisioner = (meta.get("annotations") or {}).get(_STORAGE_PROVISIONER)
    if provisioner not in _PROVISIONERS or spec.get("volumeName") or meta.get("deletionTimestamp"):
        return _NOTHING
    modes = spec.get("accessModes") or []
    if provisioner == RWO_PROVISIONER and "ReadWriteMany" in modes:
        return Plan(
            "refuse",
            reason=f'failed to provision volume with StorageClass "{spec.get("storageClassName")}": '
            "access mode ReadWriteMany is not supported",
        )
    if spec.get("volumeMode", "Filesystem") != "Filesystem":
        return Plan("refuse", reason=f"volume mode {spec['volumeMode']} is not supported")
    return Plan("create", volume=render_volume(claim, claims, provisioner))


def render_volume(claim: JsonObject, claims: Path, provisioner: str) -> JsonObject:
    """Return the PersistentVolume for a claim, already bound to it by uid."""
    meta, spec = claim["metadata"], claim["spec"]
    namespace, name = meta["namespace"], meta["name"]
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": f"pvc-{meta['uid']}", "annotations": {_PROVISIONED_BY: provisioner}},
        "spec": {
            "storageClassName": spec["storageClassName"],
            "accessModes": spec["accessModes"],
            "capacity": {"storage": spec["resources"]["requests"]["storage"]},
            "persistentVolumeReclaimPolicy": "Delete",
            "volumeMode": "Filesystem",
            "hostPath": {"path": str(claims / namespace / name), "type": "Directory"},
            "claimRef": {
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "namespace": namespace,
                "name": name,
                "uid": meta["uid"],
            },
        },
    }


def plan_volume(volume: JsonObject) -> Plan:
    """Decide about a volume: a released one of this provisioner is deleted with its directory."""
    meta = volume["metadata"]
    ours = (meta.get("annotations") or {}).get(_PROVISIONED_BY) in _PROVISIONERS
    released = (volume.get("status") or {}).get("phase") in ("Released", "Failed")
    wanted_gone = volume["spec"].get("persistentVolumeReclaimPolicy") == "Delete"
    return Plan("remove") if ours and released and wanted_gone else _NOTHING


async def run(kube: Kube, claims: Path, owners: Path) -> None:
    """Serve claims and volumes until cancelled; `owners` is a folder where it notes whose each directory is."""
    worker = Provisioner(kube, claims, owners)
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(worker.watch_claims())
        tasks.create_task(worker.watch_volumes())


class Provisioner:
    """The shell around the plans."""

    def __init__(self, kube: Kube, claims: Path, owners: Path) -> None:
        self._kube = kube
        self._claims = claims
        self._owners = owners
        self._refused: set[str] = set()  # uids: one event each is enough

    async def watch_claims(self) -> None:
        """Make a volume for each claim that wants one."""
        async for kind, claim in self._kube.watch("/api/v1/persistentvolumeclaims"):
            if kind in ("ADDED", "MODIFIED"):
                await self._guarded(self._serve_claim, claim)

    async def watch_volumes(self) -> None:
        """Remove each volume that its claim has released."""
        async for kind, volume in self._kube.watch("/api/v1/persistentvolumes"):
            if kind in ("ADDED", "MODIFIED"):
                await self._guarded(self._serve_volume, volume)

    async def _guarded(self, work: Callable[[JsonObject], Awaitable[None]], item: JsonObject) -> None:
        """Do one piece of work, trying again a few times; then the object's next event or the next start must do."""
        for attempt in range(_ATTEMPTS):
            try:
                await work(item)
                return
            except (ApiError, OSError) as error:
                log.warning("provisioning of %s failed: %s", item["metadata"]["name"], error)
                await asyncio.sleep(_PAUSE_S * 2**attempt)

    async def _serve_claim(self, claim: JsonObject) -> None:
        plan = plan_claim(claim, self._claims)
        if plan.action == "refuse":
            await self._refuse(claim, plan.reason)
        elif plan.volume is not None:
            meta = claim["metadata"]
            await asyncio.to_thread(make_directory, self._claims, self._owners, _place(meta), meta["uid"])
            try:
                await self._kube.create("/api/v1/persistentvolumes", plan.volume)
            except ApiError as error:
                if not isinstance(error, Conflict):  # the volume exists from an earlier attempt
                    raise

    async def _refuse(self, claim: JsonObject, reason: str) -> None:
        meta = claim["metadata"]
        if meta["uid"] in self._refused:
            return
        self._refused.add(meta["uid"])
        await self._kube.create(
            f"/api/v1/namespaces/{meta['namespace']}/events", render_refusal(claim, reason, datetime.now(UTC))
        )

    async def _serve_volume(self, volume: JsonObject) -> None:
        if plan_volume(volume).action != "remove":
            return
        reference = volume["spec"]["claimRef"]
        await asyncio.to_thread(remove_directory, self._claims, self._owners, _place(reference), reference["uid"])
        await self._kube.delete(f"/api/v1/persistentvolumes/{volume['metadata']['name']}")


def render_refusal(claim: JsonObject, reason: str, now: datetime) -> JsonObject:
    """Return the Warning event that explains why a claim stays Pending. `now` is in UTC."""
    stamp = now.strftime("%Y-%m-%dT%H:%M:%SZ")
    meta = claim["metadata"]
    provisioner = meta["annotations"][_STORAGE_PROVISIONER]
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"generateName": f"{meta['name']}.", "namespace": meta["namespace"]},
        "involvedObject": {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "namespace": meta["namespace"],
            "name": meta["name"],
            "uid": meta["uid"],
            "resourceVersion": meta["resourceVersion"],
        },
        "type": "Warning",
        "reason": "ProvisioningFailed",
        "message": reason,
        "source": {"component": provisioner},
        "firstTimestamp": stamp,
        "lastTimestamp": stamp,
        "count": 1,
    }


def make_directory(claims: Path, owners: Path, place: Path, uid: str) -> None:
    """Make the directory of the claim with this uid, open to every user.

    Files of a deleted claim of the same name are removed first; those of this claim stay.
    """
    directory, owner = claims / place, owners / place
    for parent in (directory.parent, owner.parent):
        parent.mkdir(parents=True, exist_ok=True)
    if directory.exists() and _read(owner) != uid:
        shutil.rmtree(directory)
    owner.write_text(uid)
    directory.mkdir(exist_ok=True)
    directory.chmod(_OPEN_MODE)


def remove_directory(claims: Path, owners: Path, place: Path, uid: str) -> None:
    """Remove the directory of the claim with this uid and all in it; one that a later claim took over stays."""
    if _read(owners / place) != uid:
        return
    shutil.rmtree(claims / place, ignore_errors=True)
    (owners / place).unlink(missing_ok=True)
    for parent in (claims / place.parent, owners / place.parent):
        with contextlib.suppress(OSError):  # other claims of the namespace are still there
            parent.rmdir()


def _place(reference: JsonObject) -> Path:
    return Path(reference["namespace"]) / str(reference["name"])


def _read(path: Path) -> str | None:
    try:
        return path.read_text()
    except OSError:
        return None
