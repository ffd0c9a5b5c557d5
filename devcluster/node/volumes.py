"""The volumes of one pod: directories on this machine that its containers mount."""

from __future__ import annotations

import asyncio
import logging
import os
import random
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from api.view import JsonObject
from devcluster.by_path import Kube
from devcluster.node.objects import ObjectStore
from devcluster.node.payload import Payload, TokenRequest, World, is_payload, payload, references, token_requests
from devcluster.node.resolve import ConfigError, PodFacts
from devcluster.paths import path_for
from kube.errors import ApiError

log = logging.getLogger(__name__)

_DATA = "..data"
_LAG_TRIES = 6  # the Node authorizer learns of a binding a little after the node does
_LAG_S = 0.05
_TOKEN_RETRY_S = 5.0
_REMOVALS = 3  # tries to remove a pod's directories


class VolumeError(Exception):
    """A volume that cannot be set up yet."""

    def __init__(self, volume: str, message: str) -> None:
        super().__init__(f'MountVolume.SetUp failed for volume "{volume}" : {message}')


@dataclass(frozen=True, slots=True)
class Owner:
    """Who the files of a pod's volumes belong to, as far as the pod says. None: as they are."""

    group: int | None  # fsGroup
    token_user: int | None  # the one user of all containers


@dataclass(frozen=True, slots=True)
class Ready:
    """A volume that is set up."""

    path: Path
    read_only: bool  # for every mount of it


class PodVolumes:
    """Sets up the volumes of one pod and keeps the written ones current."""

    def __init__(self, kube: Kube, store: ObjectStore, folder: Path, claims: Path, *, user: str) -> None:
        self._kube = kube
        self._store = store
        self._folder = folder  # of this pod; removed with it
        self._claims = claims
        self._user = user  # the pod's uid: whose use of objects this is
        self._tokens: dict[TokenRequest, tuple[str, float]] = {}  # token, and when to ask for the next (epoch seconds)
        self.ready: dict[str, Ready] = {}

    async def set_up(self, pod: JsonObject, facts: PodFacts, changed: Callable[[], None]) -> None:
        """Set up every volume; `changed` is called when an object of a written one changes. Raises: VolumeError."""
        await self._follow_objects(pod, changed)
        for volume in pod["spec"].get("volumes") or []:
            if volume["name"] not in self.ready:
                self.ready[volume["name"]] = await self._one(pod, volume, facts)

    async def refresh(self, pod: JsonObject, facts: PodFacts) -> float | None:
        """Write again what changed; return the epoch seconds of the next token, None without one.

        A volume whose object is deleted keeps its last files.
        """
        for volume in pod["spec"].get("volumes") or []:
            if is_payload(volume) and volume["name"] in self.ready:
                try:
                    await self._write(pod, volume, facts)
                except (ConfigError, ApiError, VolumeError) as error:
                    log.info("volume keeps its last files: %s", error)
                    if token_requests(volume):
                        return time.time() + _TOKEN_RETRY_S
        return min((when for _, when in self._tokens.values()), default=None)

    def remove(self) -> None:
        """Remove the pod's own directories (claims stay).

        What cannot be removed is left, so that the pod is deleted anyway. `ignore_errors` is not enough: it does not
        cover a directory that cannot be closed.
        """
        for _ in range(_REMOVALS):
            try:
                shutil.rmtree(self._folder, ignore_errors=True)
            except OSError as error:
                log.warning("directory of a pod %s: %s", self._folder, error)
            else:
                break
        self.ready.clear()

    async def _follow_objects(self, pod: JsonObject, changed: Callable[[], None]) -> None:
        wanted = {r for volume in pod["spec"].get("volumes") or [] for r in references(volume)}
        try:
            await self._store.use(self._user, pod["metadata"]["namespace"], sorted(wanted), changed)
        except TimeoutError as error:
            raise VolumeError("", "timed out waiting for the API server") from error

    async def _one(self, pod: JsonObject, volume: JsonObject, facts: PodFacts) -> Ready:
        name = volume["name"]
        own = self._folder / "volumes" / name
        if is_payload(volume):
            await self._write(pod, volume, facts)
            return Ready(own, read_only=True)
        if "persistentVolumeClaim" in volume:
            source = volume["persistentVolumeClaim"]
            path = await self._claim(pod, name, source["claimName"])
            _share(path, owner_of(pod).group)
            return Ready(path, read_only=bool(source.get("readOnly")))
        if "emptyDir" in volume:
            own.mkdir(parents=True, exist_ok=True)
            own.chmod(0o777)
            _share(own, owner_of(pod).group)
            return Ready(own, read_only=False)
        if "hostPath" in volume:
            return Ready(_host_path(name, volume["hostPath"]), read_only=False)
        kinds = ", ".join(sorted(set(volume) - {"name"}))
        raise VolumeError(name, f"volumes of type {kinds} are not imitated by the process node")

    async def _claim(self, pod: JsonObject, volume: str, name: str) -> Path:
        """Return the directory of a bound claim. Raises: VolumeError."""
        namespace: str = pod["metadata"]["namespace"]
        claim = await _despite_lag(
            lambda: self._kube.find(path_for("v1", "persistentvolumeclaims", namespace, name)), volume
        )
        if claim is None:
            raise VolumeError(volume, f'persistentvolumeclaim "{name}" not found')
        if claim["metadata"].get("deletionTimestamp") and (claim.get("status") or {}).get("phase") != "Bound":
            raise VolumeError(volume, f'persistentvolumeclaim "{name}" is being deleted')
        if (claim.get("status") or {}).get("phase") != "Bound":
            raise VolumeError(volume, f'persistentvolumeclaim "{name}" is not bound')
        path = self._claims / namespace / name
        if not path.is_dir():
            raise VolumeError(volume, f'persistentvolumeclaim "{name}" has no directory {path}')
        return path

    async def _write(self, pod: JsonObject, volume: JsonObject, facts: PodFacts) -> None:
        """Write the files of a volume if they differ. Raises: VolumeError; ApiError when a token is refused."""
        name = volume["name"]
        for request in token_requests(volume):
            await self._renew(pod, request, name)
        namespace = pod["metadata"]["namespace"]
        world = World(
            pod=pod,
            facts=facts,
            lookup=lambda kind, wanted: self._store.get(namespace, kind, wanted),
            tokens={request: token for request, (token, _) in self._tokens.items()},
        )
        try:
            files = payload(volume, world)
        except ConfigError as error:
            raise VolumeError(name, str(error)) from error
        write_payload(self._folder / "volumes" / name, files, owner_of(pod))

    async def _renew(self, pod: JsonObject, request: TokenRequest, volume: str) -> None:
        """Fetch the token if there is none, or the last one is four fifths through its life."""
        if request in self._tokens and time.time() < self._tokens[request][1]:
            return
        meta, spec = pod["metadata"], pod["spec"]
        account = path_for("v1", "serviceaccounts", meta["namespace"], spec.get("serviceAccountName") or "default")
        body: JsonObject = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {
                "expirationSeconds": request.seconds,
                "boundObjectRef": {"apiVersion": "v1", "kind": "Pod", "name": meta["name"], "uid": meta["uid"]},
            },
        }
        if request.audience:
            body["spec"]["audiences"] = [request.audience]
        answer = await _despite_lag(lambda: self._kube.create(f"{account}/token", body), volume)
        assert answer is not None
        now = time.time()
        expires = datetime.fromisoformat(answer["status"]["expirationTimestamp"]).timestamp()
        life = min(expires - now, request.seconds)
        self._tokens[request] = (answer["status"]["token"], now + life * (0.8 - random.random() * 0.05))  # noqa: S311


async def _despite_lag(ask: Callable[[], Any], volume: str) -> JsonObject | None:
    """Ask the API server, again for a moment when it does not know of the binding yet. Raises: VolumeError."""
    for attempt in range(_LAG_TRIES):
        try:
            found: JsonObject | None = await ask()
        except ApiError as error:
            if error.status == 403 and attempt < _LAG_TRIES - 1:
                await asyncio.sleep(_LAG_S * (attempt + 1))
                continue
            raise VolumeError(volume, error.message) from error
        return found
    raise AssertionError("unreachable: the last attempt returns or raises")


def owner_of(pod: JsonObject) -> Owner:
    """Return whom the pod's volumes belong to."""
    wide = pod["spec"].get("securityContext") or {}
    group = wide.get("fsGroup")
    every = [*pod["spec"]["containers"], *(pod["spec"].get("initContainers") or [])]
    users = {(c.get("securityContext") or {}).get("runAsUser", wide.get("runAsUser")) for c in every}
    return Owner(group=group, token_user=users.pop() if len(users) == 1 else None)


def _share(path: Path, group: int | None) -> None:
    """Give a volume to the pod's fsGroup, if its root does not belong to it already.

    A kubelet walks a volume that is shared by many nodes never, others always; here the root decides for both.
    """
    if group is None or os.geteuid() != 0:
        return
    found = path.stat()
    if found.st_gid == group and found.st_mode & 0o2070 == 0o2070:
        return
    for folder, _, files in os.walk(path):
        for name in files:
            file = os.path.join(folder, name)
            if not os.path.islink(file):
                os.chown(file, -1, group)
                os.chmod(file, os.stat(file).st_mode | 0o060)
        os.chown(folder, -1, group)
        os.chmod(folder, os.stat(folder).st_mode | 0o2070)  # noqa: S103 (what fsGroup means)


def _host_path(volume: str, source: JsonObject) -> Path:
    path, kind = Path(source["path"]), source.get("type") or ""
    if kind == "DirectoryOrCreate":
        path.mkdir(parents=True, exist_ok=True)
    elif kind == "FileOrCreate":
        path.touch()
    if kind == "Directory" and not path.is_dir():
        raise VolumeError(volume, f"hostPath type check failed: {path} is not a directory")
    if kind == "File" and not path.is_file():
        raise VolumeError(volume, f"hostPath type check failed: {path} is not a file")
    if not path.exists():
        if kind:
            raise VolumeError(volume, f"hostPath type check failed: {path} does not exist")
        path.mkdir(parents=True)
    return path


def sub_path(volume: Ready, wanted: str, *, mount: JsonObject, container: str) -> Path:
    """Return the place inside a volume that a mount shows. Raises: ConfigError when it is missing or leads outside."""
    if not wanted:
        return volume.path
    where = f'failed to prepare subPath for volumeMount "{mount["name"]}" of container "{container}"'
    base = os.path.realpath(volume.path)
    place = os.path.realpath(os.path.join(base, wanted))
    if place != base and not place.startswith(base + "/"):
        raise ConfigError(f'{where}: subPath "{wanted}" leads outside the volume')
    if not os.path.exists(place):
        raise ConfigError(f'{where}: subPath "{wanted}" does not exist in the volume')
    return Path(place)


def write_payload(folder: Path, files: Payload, owner: Owner) -> bool:
    """Write a volume's files so that a reader sees all old or all new ones; return whether anything changed.

    As a kubelet does it: the files are in a hidden directory, `..data` is a symlink to it that is swapped by rename,
    and each name in the volume is a symlink through `..data`.
    """
    wanted = {path: (file.data, _mode_of(file.mode, file.is_token, owner)) for path, file in files.items()}
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o755)
    old = folder / os.readlink(folder / _DATA) if (folder / _DATA).is_symlink() else None
    if old is not None and _read_tree(old) == wanted:
        return False
    fresh = folder / f"..{time.strftime('%Y_%m_%d_%H_%M_%S')}.{random.randrange(10**9):09d}"  # noqa: S311 (a name)
    fresh.mkdir(mode=0o755)
    fresh.chmod(0o755)
    for path, (data, mode) in wanted.items():
        target = fresh / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.touch(mode=0o600)
        target.write_bytes(data)
        _give(target, files[path].is_token, owner)
        target.chmod(mode)
    pointer = folder / "..data_tmp"
    pointer.unlink(missing_ok=True)
    pointer.symlink_to(fresh.name)
    pointer.rename(folder / _DATA)
    _link_names(folder, {path.split("/", 1)[0] for path in wanted})
    if old is not None:
        shutil.rmtree(old, ignore_errors=True)
    return True


def _mode_of(mode: int, is_token: bool, owner: Owner) -> int:
    """Return a file's mode: tokens are for their user only, and fsGroup may read what its owner may."""
    if is_token and (owner.group is not None or owner.token_user is not None):
        mode = 0o600
    return mode | 0o040 if owner.group is not None and os.geteuid() == 0 else mode


def _give(target: Path, is_token: bool, owner: Owner) -> None:
    if os.geteuid() != 0:
        return
    if owner.group is not None:
        os.chown(target, -1, owner.group)
    elif is_token and owner.token_user is not None:
        os.chown(target, owner.token_user, -1)


def _read_tree(folder: Path) -> dict[str, tuple[bytes, int]]:
    return {
        str(file.relative_to(folder)): (file.read_bytes(), file.stat().st_mode & 0o7777)
        for file in folder.rglob("*")
        if file.is_file()
    }


def _link_names(folder: Path, names: set[str]) -> None:
    """Create the names that users see, and remove those of deleted files."""
    for entry in folder.iterdir():
        if not entry.name.startswith("..") and entry.name not in names:
            entry.unlink()
    for name in names:
        link = folder / name
        if not link.is_symlink():
            link.symlink_to(f"{_DATA}/{name}")
