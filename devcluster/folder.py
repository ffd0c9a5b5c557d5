"""The folder of one cluster: where everything lies, and what is remembered between its runs."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from devcluster.pki import write_private

DEFAULT_FOLDER = ".aim-dev"
_MARK = "world.json"  # a folder with this file (or an empty one) may be emptied


@dataclass(frozen=True, slots=True)
class Layout:
    """The paths below the cluster's folder (absolute)."""

    root: Path

    @property
    def kubeconfig(self) -> Path:
        """Return the administrator's kubeconfig."""
        return self.root / "kubeconfig"

    @property
    def pki(self) -> Path:
        """Return the folder of CA, certificates and keys."""
        return self.root / "pki"

    @property
    def etcd(self) -> Path:
        """Return etcd's data folder."""
        return self.root / "etcd"

    @property
    def logs(self) -> Path:
        """Return the folder of the processes' logs."""
        return self.root / "logs"

    @property
    def claims(self) -> Path:
        """Return the folder of the volumes: NAMESPACE/CLAIM/ each."""
        return self.root / "claims"

    @property
    def owners(self) -> Path:
        """Return the folder that notes by NAMESPACE/CLAIM which claim (uid) a directory of `claims` belongs to."""
        return self.root / "owners"

    @property
    def hub(self) -> Path:
        """Return the root of the hub stand-in: ORG/NAME/… is served."""
        return self.root / "hub"

    @property
    def s3(self) -> Path:
        """Return the root of the S3 stand-in: BUCKET/KEY… is served."""
        return self.root / "s3"

    @property
    def node(self) -> Path:
        """Return the process node's own folder."""
        return self.root / "node"

    @property
    def run(self) -> Path:
        """Return the folder of what is true only while the cluster runs."""
        return self.root / "run"

    @property
    def lock(self) -> Path:
        """Return the file that is locked while the cluster runs."""
        return self.run / "lock"

    @property
    def state(self) -> Path:
        """Return the file that lists the running processes."""
        return self.run / "state.json"

    @property
    def world(self) -> Path:
        """Return the file with what a cluster must keep over a restart."""
        return self.root / _MARK

    @property
    def images(self) -> Path:
        """Return the image table of the process node."""
        return self.root / "images.json"

    def faults_of(self, source: str) -> Path:
        """Return the file that makes a source (`hub`, `s3`) fail on demand; absent: it works."""
        return self.root / "faults" / f"{source}.json"

    def kubeconfig_of(self, user: str) -> Path:
        """Return the kubeconfig of one of our own programs."""
        return self.pki / f"{user}.kubeconfig"

    def log_of(self, name: str) -> Path:
        """Return the log file of a process."""
        return self.logs / f"{name}.log"

    def make(self) -> None:
        """Make every folder that is needed from the start."""
        faults = self.faults_of("hub").parent
        for path in (self.root, self.etcd, self.logs, self.claims, self.hub, self.s3, self.node, self.run, faults):
            path.mkdir(parents=True, exist_ok=True)
        self.pki.mkdir(exist_ok=True)
        self.pki.chmod(0o700)
        self.etcd.chmod(0o700)


@dataclass(slots=True)
class World:
    """What a cluster is made with and keeps: addresses, credentials of its sources, settings by `--set`."""

    range_index: int | None = None  # None: not chosen yet
    ports: dict[str, int] = field(default_factory=dict)
    settings: dict[str, str] = field(default_factory=dict)
    # Known on purpose: config/samples/ carries them too, and the sources answer on loopback only.
    s3_access_key: str = "aim-dev-access-key"
    s3_secret_key: str = "aim-dev-secret-key"  # noqa: S105
    hub_token: str = "hf_aim_dev_token"  # noqa: S105

    @classmethod
    def load(cls, path: Path) -> World:
        """Read the file; a new World if there is none.

        Raises: ValueError when the file is not valid.
        """
        try:
            text = path.read_text()
        except FileNotFoundError:
            return cls()
        try:
            return cls(**json.loads(text))
        except (ValueError, TypeError) as error:
            raise ValueError(f"{path} cannot be read ({error}): start over with --fresh") from error

    def save(self, path: Path) -> None:
        """Write the file (it holds credentials, so for the owner only)."""
        write_private(path, json.dumps(asdict(self), indent=1).encode() + b"\n")


class RunningError(Exception):
    """The folder's cluster runs (or is about to stop)."""


def hold(layout: Layout) -> int:
    """Lock the folder for a cluster that is about to run; return the descriptor to hand on.

    Raises: RunningError when another process holds it.
    """
    layout.run.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(layout.lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise RunningError(str(layout.root)) from None
    return descriptor


def is_running(layout: Layout) -> bool:
    """Return whether a process holds the folder."""
    if not layout.lock.exists():
        return False
    try:
        os.close(hold(layout))
    except RunningError:
        return True
    return False


def read_state(layout: Layout) -> dict[str, Any]:
    """Return what the supervisor last wrote about its processes ({} when there is nothing)."""
    try:
        state = json.loads(layout.state.read_text())
    except (OSError, ValueError):
        return {}
    return state if isinstance(state, dict) else {}


def empty(layout: Layout) -> None:
    """Remove everything of a stopped cluster; the folder itself and its lock stay.

    Raises: ValueError when the folder holds files but not a cluster, so that a mistyped --dir deletes nothing.
    """
    entries = [path for path in layout.root.iterdir() if path != layout.run] if layout.root.is_dir() else []
    if entries and not layout.world.exists() and not (layout.pki / "ca.crt").exists():
        raise ValueError(f"{layout.root} holds files but not a cluster: choose another --dir")
    for path in sorted(
        entries, key=lambda entry: entry.name == _MARK
    ):  # the mark last, so that an interrupted removal can continue
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()
