"""The parent of the supervisor: however the supervisor ends, no process that it started stays.

Run as `python -m devcluster.guard --detach --pass-fds 3,4 -- COMMAND…`. It adopts every orphan below itself (child
subreaper), so that a process whose parents were all killed is still found and killed. It imports nothing heavy, holds
no state, and does nothing else, so that there is little that could end it before its time.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time
from pathlib import Path

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_SWEEP_S = 20.0  # a process in uninterruptible sleep may need a while to die; then we give up on it
_libc = ctypes.CDLL(None, use_errno=True)


def die_with_parent(parent: int, sig: int = signal.SIGKILL) -> None:
    """Ask the kernel to send `sig` to this process when its parent ends; for use between fork and exec.

    `parent` is the expected parent: when it has ended already, this process ends too.
    """
    _libc.prctl(_PR_SET_PDEATHSIG, sig, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


def adopt_orphans() -> None:
    """Become the parent of every orphan among our descendants."""
    _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def descendants(root: int) -> list[int]:
    """Return the processes below `root`, children before grandchildren."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            parent = parent_of(int(entry.name))
            if parent is not None:
                children.setdefault(parent, []).append(int(entry.name))
    found: list[int] = []
    frontier = [root]
    while frontier:
        frontier = [child for parent in frontier for child in children.get(parent, [])]
        found.extend(frontier)
    return found


def parent_of(pid: int) -> int | None:
    """Return the parent's id, None when the process is gone or a zombie."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    state, parent = stat.rpartition(")")[2].split()[:2]  # the name before it may hold spaces and brackets
    return None if state == "Z" else int(parent)


def kill_below(root: int, *, seconds: float = _SWEEP_S) -> list[int]:
    """Kill every process below `root` and reap own children; return the ids of those that did not die in time."""
    deadline = time.monotonic() + seconds
    while True:
        left = descendants(root)
        for pid in left:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        _reap()
        if not left or time.monotonic() > deadline:
            return left
        time.sleep(0.02)


def _reap() -> None:
    while True:
        try:
            pid, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return


def main(arguments: list[str]) -> int:
    """Run the command, wait for its end, then end all that is left below; return the command's exit code.

    With `--detach` the caller's child ends at once, so that the caller need not wait for the guard.
    """
    fds = [int(fd) for fd in arguments[arguments.index("--pass-fds") + 1].split(",")]
    command = arguments[arguments.index("--") + 1 :]
    if "--detach" in arguments and os.fork() != 0:
        os._exit(0)
    adopt_orphans()
    guard = os.getpid()
    child = os.fork()
    if child == 0:
        die_with_parent(guard, signal.SIGTERM)
        for fd in fds:
            os.set_inheritable(fd, True)
        os.execv(command[0], command)  # noqa: S606  no shell is wanted
    signal.signal(signal.SIGTERM, lambda *_: os.kill(child, signal.SIGTERM))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    os.close(fds[0])  # the line to `up`: its end must be seen there when the supervisor ends; the others (locks) stay
    code = 1
    while True:
        pid, status = os.waitpid(-1, 0)
        if pid == child:
            code = os.waitstatus_to_exitcode(status)
            break
    kill_below(guard)
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
