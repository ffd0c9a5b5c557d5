"""Which loopback addresses and ports are whose: each running cluster holds a Service range, a pod range and some ports.

A range is held by a lock on a file, so that it is free the moment its holder dies. The file also remembers the folder
that used it last: a stopped cluster finds its addresses again, and others take them only when nothing else is left.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from ipaddress import IPv4Network
from pathlib import Path
from typing import Self

_FIRST_OCTET = 64  # 127.64.0.0/16 is the first Service range, 127.65.0.0/16 its pods' range
_COUNT = 90  # the last pair is 127.242 and 127.243
_FIRST_PORT = 20000  # below the usual ephemeral range (32768…), so that no outgoing connection sits on one
_PORTS_EACH = 100
_MUTEX = "allocate.lock"


class NoRangeError(Exception):
    """No address range can be had; the text says why and what to do."""


@dataclass(frozen=True, slots=True)
class AddressRange:
    """One pair of /16 networks of 127.0.0.0/8 and a hundred ports of 127.0.0.1; `index` counts from 0."""

    index: int

    @property
    def services(self) -> IPv4Network:
        """Return the network of the ClusterIPs."""
        return IPv4Network(f"127.{_FIRST_OCTET + 2 * self.index}.0.0/16")

    @property
    def pods(self) -> IPv4Network:
        """Return the network of the pods' addresses."""
        return IPv4Network(f"127.{_FIRST_OCTET + 2 * self.index + 1}.0.0/16")

    @property
    def ports(self) -> range:
        """Return the ports of 127.0.0.1 that belong to this range."""
        first = _FIRST_PORT + _PORTS_EACH * self.index
        return range(first, first + _PORTS_EACH)


class Reservation:
    """A held range; it is free again when this is closed or the process dies."""

    def __init__(self, held: AddressRange, descriptor: int) -> None:
        self.range = held
        self._descriptor = descriptor

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Give the range back; a second call does nothing."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def default_lock_dir() -> Path:
    """Return the folder of the lock files, the same for all users of the machine."""
    return Path(os.environ.get("AIM_DEV_RANGES_DIR", "/tmp/aim-adapters-ranges"))  # noqa: S108  shared on purpose


def reserve(folder: Path, *, preferred: int | None = None, lock_dir: Path | None = None) -> Reservation:
    """Hold a range for the cluster in `folder`.

    With `preferred` (the index of the folder's existing cluster) exactly that one; else one that this folder used
    before, one that is unused, one whose folder is deleted, and at last one of a stopped cluster, in this order.
    Raises: NoRangeError.
    """
    lock_dir = lock_dir or default_lock_dir()
    owner = str(folder.resolve())
    with contextlib.ExitStack() as stack:
        try:
            _make_shared_dir(lock_dir)
            stack.enter_context(_mutex(lock_dir))
        except OSError as error:
            told = f"{type(error).__name__}: {error}"
            raise NoRangeError(f"{lock_dir} cannot be used ({told}): set AIM_DEV_RANGES_DIR to a folder") from error
        candidates = [preferred] if preferred is not None else _in_order(lock_dir, owner)
        for index in candidates:
            held = _try_hold(lock_dir / f"{index}.lock", owner, index)
            if held is not None:
                return held
    raise NoRangeError(_why(lock_dir, preferred))


def free_ports(ports: range, names: list[str], preferred: dict[str, int]) -> dict[str, int]:
    """Return a free port of 127.0.0.1 for each name, the preferred one where it is free.

    Raises: NoRangeError when the range has too few free ones.
    """
    chosen: dict[str, int] = {}
    for name in names:
        wanted = [preferred[name]] if name in preferred else []
        for port in [*wanted, *ports]:
            if port not in chosen.values() and may_bind("127.0.0.1", port):
                chosen[name] = port
                break
        else:
            raise NoRangeError(f"no free port in {ports.start}-{ports.stop - 1} of 127.0.0.1 for {name}")
    return chosen


def may_bind(address: str, port: int) -> bool:
    """Return whether this user may listen there; low ports are for root, unless the kernel is configured otherwise."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address, port))
        except OSError:
            return False
        return True


def _in_order(lock_dir: Path, owner: str) -> list[int]:
    """Return all indexes, unused ones first."""
    remembered = {index: _owner_of(lock_dir / f"{index}.lock") for index in range(_COUNT)}

    def cost(index: int) -> int:
        before = remembered[index]
        if before == owner:
            return 0
        if before is None:
            return 1
        return 2 if _is_gone(before) else 3

    return sorted(range(_COUNT), key=lambda index: (cost(index), index))


def _is_gone(folder: str) -> bool:
    """Return whether the folder certainly does not exist; one that cannot be read counts as existing."""
    try:
        os.stat(folder)
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError:
        return False
    return False


def _owner_of(path: Path) -> str | None:
    try:
        return str(json.loads(path.read_text())["folder"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _try_hold(path: Path, owner: str, index: int) -> Reservation | None:
    """Lock the file and write the owner into it; None when another process holds it or it cannot be opened."""
    try:
        descriptor = _open_shared(path)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        return None
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, json.dumps({"folder": owner, "pid": os.getpid()}).encode(), 0)
    return Reservation(AddressRange(index), descriptor)


def _why(lock_dir: Path, preferred: int | None) -> str:
    if preferred is None:
        return f"all {_COUNT} address ranges are in use (lock files in {lock_dir}): stop another cluster first"
    holder = _owner_of(lock_dir / f"{preferred}.lock") or "another user's cluster"
    services = AddressRange(preferred).services
    return (
        f"the addresses {services} that this cluster was made with are in use by {holder}: "
        "stop that one (aim-adapters dev down --dir …), or start over with --fresh"
    )


def _make_shared_dir(path: Path) -> None:
    """Make the folder for all users, as /tmp is; one that exists is taken as it is."""
    with contextlib.suppress(FileExistsError):
        path.mkdir(parents=True)
        path.chmod(0o1777)


def _open_shared(path: Path) -> int:
    """Open the lock file, made for all users; existing ones first: some kernels refuse O_CREAT on others' files."""
    try:
        return os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_CREAT | os.O_EXCL, 0o666)
        os.fchmod(descriptor, 0o666)
        return descriptor


@contextlib.contextmanager
def _mutex(lock_dir: Path) -> Iterator[None]:
    """Let one process at a time choose."""
    descriptor = _open_shared(lock_dir / _MUTEX)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
