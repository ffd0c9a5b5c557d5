"""Advisory locks on the disk. They avoid double work of Jobs; safety does not depend on them.

Decision 0005 has the reasoning: every change is atomic and is checked again afterwards. On a network file system
without working locks, Jobs can do work twice, but no reader sees a wrong state.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from api.reasons import Reason
from disk.failures import DiskFailure
from disk.fs import Fs

STALLED_SECONDS = 600.0  # far longer than a writer needs to hash existing files, or waits between attempts
_LOOK_SECONDS = 5.0
_POLL_SECONDS = 0.05
_NO_LOCKS_HERE = (errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL)
_MOST_REOPENINGS = 100


@contextlib.contextmanager
def hold(
    fs: Fs, path: Path, *, wait_seconds: float, sign_of_life: Callable[[], object] | None = None
) -> Iterator[None]:
    """Hold an exclusive lock; it ends with the process that holds it, however that ends.

    Some network file systems keep the lock of a machine that no longer exists. Where the work tolerates a second
    writer, the caller passes `sign_of_life`: if its value does not change for STALLED_SECONDS, the holder counts as
    dead, and the caller continues without the lock.
    Raises: DiskFailure DiskBusy when another one holds it for `wait_seconds`; OSError.
    """
    fd = try_lock(fs, path)
    if fd is None:
        fd = _wait(fs, path, wait_seconds, sign_of_life)
    try:
        yield
    finally:
        if fd is not None:
            os.close(fd)


def _wait(fs: Fs, path: Path, wait_seconds: float, sign_of_life: Callable[[], object] | None) -> int | None:
    """Return the descriptor of the lock, None when its holder shows no sign of life. Raises: as `hold`."""
    began = alive = looked = time.monotonic()
    sign = sign_of_life() if sign_of_life is not None else None
    while (fd := try_lock(fs, path)) is None:
        now = time.monotonic()
        if now - began >= wait_seconds:
            raise DiskFailure(Reason.DISK_BUSY, f"another Job has held {path.name} for {wait_seconds:.0f} seconds")
        if sign_of_life is not None and now - looked >= _LOOK_SECONDS:
            looked = now
            if (seen := sign_of_life()) != sign:
                sign, alive = seen, now
            elif now - alive >= STALLED_SECONDS:
                return None
        time.sleep(_POLL_SECONDS)
    return fd


def try_lock(fs: Fs, path: Path) -> int | None:
    """Return a file descriptor that holds the lock until it is closed, or None when another process holds it.

    On a file system without locks, the descriptor holds nothing, and the caller continues. Raises: OSError.
    """
    for _ in range(_MOST_REOPENINGS):
        fd = fs.open_for_locking(path)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno in _NO_LOCKS_HERE:
                return fd
            os.close(fd)
            if error.errno in (errno.EAGAIN, errno.EACCES):
                return None
            raise
        if _is_still_there(fd, path):
            return fd
        os.close(fd)  # a reaper removed the file after it was opened and before it was locked: lock the new one
    return None


def _is_still_there(fd: int, path: Path) -> bool:
    try:
        return os.fstat(fd).st_ino == path.lstat().st_ino
    except FileNotFoundError:
        return False
