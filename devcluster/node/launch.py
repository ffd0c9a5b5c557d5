"""Starts one container process: namespaces, a root of its own, identity, exec (`python -I -S launch.py run` or `exec`).

It reads one JSON object from standard input (it holds secrets, so it is never on disk or on a command line), becomes
the container's shim, and starts the process as PID 1 of a PID namespace. It imports little: each start pays for it.

Who dies with whom: the node's death kills the shim, the shim's death kills PID 1, and PID 1's death kills the rest.
SIGTERM and its like are passed on to the process; SIGUSR2 means SIGKILL for it. The shim exits as the process did,
with 128 + the signal's number when a signal ended it, which is what a container runtime reports.

An error before exec is written to the status descriptor as one JSON line {"stage": …, "error": …}.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import json
import os
import signal
import sys
from typing import Any, NoReturn

# linux/sched.h, linux/mount.h, linux/prctl.h
CLONE_NEWNS = 0x00020000
CLONE_NEWUTS = 0x04000000
CLONE_NEWIPC = 0x08000000
CLONE_NEWUSER = 0x10000000
CLONE_NEWPID = 0x20000000
MS_RDONLY = 0x1
MS_NOSUID = 0x2
MS_NODEV = 0x4
MS_NOEXEC = 0x8
MS_REMOUNT = 0x20
MS_BIND = 0x1000
MS_REC = 0x4000
MS_PRIVATE = 0x40000
MNT_DETACH = 0x2
PR_SET_PDEATHSIG = 1
PR_CAPBSET_DROP = 24
PR_SET_CHILD_SUBREAPER = 36
PR_SET_NO_NEW_PRIVS = 38
SYS_MOUNT_SETATTR = 442  # the same number on every architecture
SYS_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41, "ppc64le": 203, "s390x": 217}
AT_FDCWD = -100
AT_RECURSIVE = 0x8000
MOUNT_ATTR_RDONLY = 0x1
LAST_CAPABILITY = 63

# what a container sees of the host, read-only; the rest of its root is empty and its own
HOST_DIRS = ("bin", "sbin", "lib", "lib32", "lib64", "libx32", "usr", "etc", "opt", "nix", "gnu", "sys")
EMPTY_DIRS = {
    "tmp": 0o1777,
    "run": 0o755,
    "root": 0o755,  # what is exposed below it must be reachable by every user
    "home": 0o755,
    "mnt": 0o755,
    "var": 0o755,
    "var/tmp": 0o1777,
    "var/run": 0o755,
    "var/log": 0o755,
    "var/lib": 0o755,
    "var/cache": 0o755,
}
DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
DEVICE_LINKS = {"fd": "/proc/self/fd", "stdin": "fd/0", "stdout": "fd/1", "stderr": "fd/2"}
LINK_HOPS = 40  # as the kernel: more symlinks than this are a loop

libc = ctypes.CDLL(None, use_errno=True)
libc.mount.argtypes = (ctypes.c_char_p, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_ulong, ctypes.c_char_p)


class LaunchError(Exception):
    """A start that failed: `stage` is namespace, mount, user or exec."""

    def __init__(self, stage: str, message: str) -> None:
        super().__init__(message)
        self.stage = stage


def _check(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def mount(source: str, target: str, kind: str = "", flags: int = 0, data: str = "") -> None:
    """Mount as mount(2). Raises: OSError that names both ends."""
    made = libc.mount(source.encode(), target.encode(), kind.encode() or None, flags, data.encode() or None)
    _check(made, f"mount {source} on {target}")


def unshare(flags: int) -> None:
    """Leave the named namespaces for new ones. Raises: OSError."""
    _check(libc.unshare(flags), "unshare")


def prctl(option: int, value: int) -> int:
    """Call prctl(2) with one argument and return its result."""
    return int(libc.prctl(option, ctypes.c_ulong(value), ctypes.c_ulong(0), ctypes.c_ulong(0), ctypes.c_ulong(0)))


class _MountAttr(ctypes.Structure):
    _fields_ = (
        ("attr_set", ctypes.c_uint64),
        ("attr_clr", ctypes.c_uint64),
        ("propagation", ctypes.c_uint64),
        ("userns_fd", ctypes.c_uint64),
    )


def set_attributes(path: str, *, set_bits: int = 0, clear_bits: int = 0, recursive: bool) -> None:
    """Change mount attributes (mount_setattr(2), Linux 5.12); older kernels are served by remounts. Raises: OSError."""
    attributes = _MountAttr(set_bits, clear_bits, 0, 0)
    done = libc.syscall(
        ctypes.c_long(SYS_MOUNT_SETATTR),
        ctypes.c_int(AT_FDCWD),
        ctypes.c_char_p(path.encode()),
        ctypes.c_uint(AT_RECURSIVE if recursive else 0),
        ctypes.byref(attributes),
        ctypes.c_size_t(ctypes.sizeof(attributes)),
    )
    if done != 0 and ctypes.get_errno() in (errno.ENOSYS, errno.EPERM):
        _remount(path, read_only=bool(set_bits), recursive=recursive)
        return
    _check(done, f"mount_setattr {path}")


def _remount(path: str, *, read_only: bool, recursive: bool) -> None:
    """Set or clear read-only by one remount per mount, keeping the flags that a user namespace may not drop."""
    keep = {
        "nosuid": MS_NOSUID,
        "nodev": MS_NODEV,
        "noexec": MS_NOEXEC,
        "noatime": 0x400,
        "nodiratime": 0x800,
        "relatime": 0x200000,
    }
    with open("/proc/self/mountinfo", encoding="utf-8") as lines:
        found = [(line.split()[4].replace("\\040", " "), line.split()[5]) for line in lines]
    for point, options in found:
        if point == path or (recursive and point.startswith(path.rstrip("/") + "/")):
            flags = MS_REMOUNT | MS_BIND | (MS_RDONLY if read_only else 0)
            for option in options.split(","):
                flags |= keep.get(option, 0)
            mount("none", point, "", flags)


# ---------------------------------------------------------------------------------------------------------------------
# the new root


class Node:
    """One name in the tree that becomes the new root: a plain directory, or something of the host bound there."""

    __slots__ = ("children", "host", "link", "mode")

    def __init__(self, *, host: str = "", link: str = "", mode: int = 0o755) -> None:
        self.children: dict[str, Node] = {}
        self.host = host  # path on the host that shows here, read-only
        self.link = link  # target, when this is a symlink
        self.mode = mode


class Root:
    """The plan of a container's root, then the mounts that carry it out."""

    def __init__(self, path: str, uid: int, groups: frozenset[int]) -> None:
        self.path = path
        self.uid = uid
        self.groups = groups
        self.tree = Node()
        for name in HOST_DIRS:
            host = f"/{name}"
            if os.path.islink(host):
                self.tree.children[name] = Node(link=os.readlink(host))
            elif os.path.isdir(host):
                self.tree.children[name] = Node(host=host)
        for name, mode in EMPTY_DIRS.items():
            self.node_at(name.split("/")).mode = mode
        self.tree.children["proc"] = Node()
        device_dir = self.tree.children["dev"] = Node()
        device_dir.children["shm"] = Node(mode=0o1777)
        for name in DEVICES:
            device_dir.children[name] = Node(host=f"/dev/{name}")
        for name, target in DEVICE_LINKS.items():
            device_dir.children[name] = Node(link=target)

    def node_at(self, parts: list[str]) -> Node:
        """Return the node at these path components, planning plain directories on the way."""
        node = self.tree
        for part in parts:
            node = node.children.setdefault(part, Node())
        return node

    def canonical(self, path: str) -> list[str]:
        """Return the components of `path` inside the new root, with its symlinks (the host's, or planned) followed."""
        todo = [p for p in path.split("/") if p and p != "."][::-1]
        done: list[str] = []
        hops = 0
        while todo:
            part = todo.pop()
            if part == "..":
                done = done[:-1]
                continue
            link = self._link_at([*done, part])
            if link is None:
                done.append(part)
                continue
            hops += 1
            if hops > LINK_HOPS:
                raise LaunchError("mount", f"{path}: too many levels of symbolic links")
            if link.startswith("/"):
                done = []
            todo.extend([p for p in link.split("/") if p and p != "."][::-1])
        return done

    def _link_at(self, parts: list[str]) -> str | None:
        """Return the symlink target at this place of the new root, None when no symlink is there."""
        node = self.tree
        for index, part in enumerate(parts):
            child = node.children.get(part)
            if child is None:
                host = os.path.join(node.host, *parts[index:]) if node.host else ""
                return os.readlink(host) if host and os.path.islink(host) else None
            node = child
        return node.link or None

    def expose(self, path: str) -> None:
        """Show a path of the host at the same place, for any modes of its parents; symlinks on the way too."""
        parts: list[str] = []
        for part in [p for p in os.path.abspath(path).split("/") if p]:
            parts.append(part)
            here = "/" + "/".join(parts)
            if self._inside_host_dir(parts) and not self._blocked(path):
                return
            if os.path.islink(here):
                target = os.readlink(here)
                parent = self.node_at(parts[:-1])
                if part not in parent.children:
                    parent.children[part] = Node(link=target)
                rest = os.path.abspath(path)[len(here) :]
                self.expose(os.path.normpath(os.path.join(os.path.dirname(here), target)) + rest)
                return
        if os.path.exists(path):
            node = self.node_at(parts)
            node.host = node.host or os.path.abspath(path)

    def _blocked(self, path: str) -> bool:
        """Return whether a directory on the way to `path` is closed to the process."""
        parts = [p for p in os.path.abspath(path).split("/") if p]
        way = ["/" + "/".join(parts[: n + 1]) for n in range(len(parts))]
        return any(os.path.isdir(one) and self._shuts_out(one) for one in way)

    def _inside_host_dir(self, parts: list[str]) -> bool:
        node = self.tree
        for part in parts:
            if node.host:
                return True
            child = node.children.get(part)
            if child is None:
                return False
            node = child
        return bool(node.host)

    # -- carrying it out -------------------------------------------------------------------------------------------

    def build(self, places: list[tuple[list[str], bool]], *, read_only: bool) -> None:
        """Mount everything of the host. `places`: components and whether a directory belongs there, per volume."""
        files = {tuple(parts) for parts, is_dir in places if not is_dir}
        mount("tmpfs", self.path, "tmpfs", MS_NOSUID | MS_NODEV, "mode=0755")
        for name, node in self.tree.children.items():
            self._make(node, (name,), files)
        set_attributes(self.path, set_bits=MOUNT_ATTR_RDONLY, recursive=True)
        if not read_only:
            set_attributes(self.path, clear_bits=MOUNT_ATTR_RDONLY, recursive=False)
        self._proc()
        mount("shm", f"{self.path}/dev/shm", "tmpfs", MS_NOSUID | MS_NODEV, "mode=1777")  # noqa: S108

    def _proc(self) -> None:
        try:
            mount("proc", f"{self.path}/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC)
        except OSError:
            # a user namespace inside a container whose /proc is masked may not mount a fresh one
            mount("/proc", f"{self.path}/proc", "", MS_BIND | MS_REC)

    def _make(self, node: Node, parts: tuple[str, ...], files: set[tuple[str, ...]]) -> None:
        place = f"{self.path}/{'/'.join(parts)}"
        if node.link:
            os.symlink(node.link, place)
            return
        if node.host and not os.path.isdir(node.host):
            _touch(place)
            mount(node.host, place, "", MS_BIND)
            return
        if parts in files:
            _touch(place)
            return
        os.mkdir(place, node.mode)
        os.chmod(place, node.mode)
        if node.host and not self._must_mirror(node, parts, files):
            mount(node.host, place, "", MS_BIND | MS_REC)
            return
        if node.host:
            self._mirror(node)
        for name, child in node.children.items():
            self._make(child, (*parts, name), files)

    def _must_mirror(self, node: Node, parts: tuple[str, ...], files: set[tuple[str, ...]]) -> bool:
        """Return whether the host's directory lacks a path that a volume needs, or is closed to the process."""
        if self._shuts_out(node.host):
            return True
        return any(
            not _has(child, f"{node.host}/{name}", (*parts, name), files) for name, child in node.children.items()
        )

    def _shuts_out(self, host: str) -> bool:
        """Return whether the mode of the directory keeps the process's user out."""
        if self.uid == 0:
            return False
        found = os.stat(host)
        mode = found.st_mode >> (6 if found.st_uid == self.uid else 3 if found.st_gid in self.groups else 0)
        return mode & 0o5 != 0o5

    def _mirror(self, node: Node) -> None:
        """Plan the entries of a host directory one by one, so that others can be added."""
        for entry in os.scandir(node.host):
            child = node.children.get(entry.name)
            if entry.is_symlink():
                if child is None:
                    node.children[entry.name] = Node(link=os.readlink(entry.path))
            elif entry.is_dir() or entry.is_file():
                if child is None:
                    node.children[entry.name] = Node(host=entry.path)
                elif entry.is_dir() and not child.host and not child.link:
                    child.host = entry.path

    def bind(self, source: str, parts: list[str], *, read_only: bool) -> None:
        """Mount one volume (directory or file) at its place. Raises: OSError."""
        place = f"{self.path}/{'/'.join(parts)}"
        if not os.path.lexists(place):  # inside another volume: the directory is made there, as a runtime does
            if os.path.isdir(source):
                os.makedirs(place, exist_ok=True)
            else:
                os.makedirs(os.path.dirname(place), exist_ok=True)
                _touch(place)
        mount(source, place, "", MS_BIND | MS_REC)
        if read_only:
            set_attributes(place, set_bits=MOUNT_ATTR_RDONLY, recursive=True)

    def enter(self) -> None:
        """Make the new root the root, and forget the old one."""
        os.chdir(self.path)
        number = SYS_PIVOT_ROOT.get(os.uname().machine)
        if number is None:
            raise LaunchError("mount", f"pivot_root is not known on {os.uname().machine}")
        moved = libc.syscall(ctypes.c_long(number), ctypes.c_char_p(b"."), ctypes.c_char_p(b"."))
        _check(moved, "pivot_root")
        _check(libc.umount2(b".", MNT_DETACH), "umount the old root")
        os.chdir("/")


def _has(node: Node, host: str, parts: tuple[str, ...], files: set[tuple[str, ...]]) -> bool:
    """Return whether the host already has every path that is planned at and under `host`."""
    if os.path.islink(host) or not os.path.exists(host) or node.link or node.host:
        return False
    if os.path.isdir(host) == (parts in files):
        return False
    return all(_has(child, f"{host}/{name}", (*parts, name), files) for name, child in node.children.items())


def _touch(path: str) -> None:
    os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o644))


# ---------------------------------------------------------------------------------------------------------------------
# the process


def new_namespaces(spec: dict[str, Any]) -> None:
    """Leave the host's namespaces. In `user` mode the container's user stands for the one who runs the node."""
    user_namespace = spec["mode"] == "user"
    outer_uid, outer_gid = os.geteuid(), os.getegid()
    try:
        unshare(CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWUTS | CLONE_NEWIPC | (CLONE_NEWUSER if user_namespace else 0))
        if user_namespace:
            _write("/proc/self/setgroups", "deny")
            _write("/proc/self/uid_map", f"{spec['uid']} {outer_uid} 1")
            _write("/proc/self/gid_map", f"{spec['gid']} {outer_gid} 1")
        mount("none", "/", "", MS_REC | MS_PRIVATE)
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)  # again: the change of credentials clears it
    except OSError as error:
        raise LaunchError("namespace", str(error)) from error


def _write(path: str, text: str) -> None:
    # no text file: its codec may have to be imported, and in a new user namespace that may not be permitted any more
    descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(descriptor, text.encode())
    finally:
        os.close(descriptor)


def new_root(spec: dict[str, Any]) -> None:
    """Build the container's root with its volumes and enter it. Raises: LaunchError of stage mount."""
    try:
        root = Root(
            spec["root"], spec["uid"] if spec["mode"] == "root" else 0, frozenset([spec["gid"], *spec["groups"]])
        )
        for path in spec["expose"]:
            root.expose(path)
        volumes = sorted(spec["mounts"], key=lambda m: m["target"].rstrip("/").count("/"))
        outer: list[list[str]] = []
        placed = []
        for volume in volumes:
            parts = root.canonical(volume["target"])
            if not any(parts[: len(o)] == o for o in outer):  # a place inside another volume is made in that volume
                root.node_at(parts)
            outer.append(parts)
            placed.append((volume, parts))
        work_dir = root.canonical(spec["cwd"])
        if not any(work_dir[: len(o)] == o for o in outer):
            root.node_at(work_dir)
        root.build([(parts, os.path.isdir(v["source"])) for v, parts in placed], read_only=spec["readOnlyRoot"])
        for volume, parts in placed:
            root.bind(volume["source"], parts, read_only=volume["readOnly"])
        for path, parts in hidden(spec["expose"], outer):
            root.bind(path, parts, read_only=True)
        root.enter()
        _check(libc.sethostname(spec["hostname"].encode(), len(spec["hostname"].encode())), "sethostname")
    except OSError as error:
        raise LaunchError("mount", str(error)) from error


def hidden(exposed: list[str], volumes: list[list[str]]) -> list[tuple[str, list[str]]]:
    """Return what is exposed of the host below a volume (a checkout below /tmp), with its components.

    An image has its program in itself, wherever its volumes are; here the program is shown again on top of them.
    """
    found: dict[str, list[str]] = {}
    for path in exposed:
        for name in (os.path.abspath(path), os.path.realpath(path)):
            parts = [part for part in name.split("/") if part]
            if os.path.exists(name) and any(parts[: len(volume)] == volume for volume in volumes):
                found[name] = parts
    return sorted(found.items(), key=lambda item: len(item[1]))


def drop(spec: dict[str, Any]) -> None:
    """Become the container's user and give up what a container does not have. Raises: LaunchError of stage user."""
    try:
        keep = set(spec["capabilities"])
        for capability in range(LAST_CAPABILITY + 1):
            if capability not in keep:
                prctl(PR_CAPBSET_DROP, capability)  # fails for numbers that this kernel lacks, or without the right to
        if spec["mode"] == "root":  # without namespaces another user could not even reach the volumes
            os.setgroups(spec["groups"])
            os.setresgid(spec["gid"], spec["gid"], spec["gid"])
            os.setresuid(spec["uid"], spec["uid"], spec["uid"])
        if spec["noNewPrivileges"]:
            prctl(PR_SET_NO_NEW_PRIVS, 1)
    except OSError as error:
        raise LaunchError("user", f"cannot become {spec['uid']}:{spec['gid']}: {error}") from error


def execute(spec: dict[str, Any]) -> NoReturn:
    """Replace this process by the container's. Raises: LaunchError of stage exec."""
    os.umask(spec["umask"])
    for ignored in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores them, and an ignored signal outlives exec
        signal.signal(ignored, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    try:
        os.chdir(spec["cwd"])
    except OSError as error:
        raise LaunchError("exec", f'chdir to cwd "{spec["cwd"]}" failed: {error.strerror}') from error
    program = spec["argv"][0]
    try:
        os.execvpe(program, spec["argv"], spec["env"])  # noqa: S606 (this is what the launcher is for)
    except FileNotFoundError as error:
        where = "in $PATH" if "/" not in program else "at that path"
        raise LaunchError("exec", f'exec: "{program}": executable file not found {where}') from error
    except OSError as error:
        raise LaunchError("exec", f'exec: "{program}": {error.strerror}') from error


def child(spec: dict[str, Any], alive: int) -> NoReturn:
    """Be the container's process: PID 1 of its namespace. Never returns to the shim's code.

    `alive` is the reading end of a pipe that only the shim writes: its end of file means that the shim has ended.
    """
    try:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGQUIT):
            signal.signal(number, signal.SIG_DFL)
        os.setsid()
        if spec["mode"] != "none":
            if spec.get("target"):
                os.chdir("/")
            else:
                new_root(spec)
        drop(spec)
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)  # after the change of user, which clears it
        os.set_blocking(alive, False)
        with contextlib.suppress(BlockingIOError):
            if os.read(alive, 1) == b"":
                os._exit(1)
        execute(spec)
    except LaunchError as error:
        report(spec, error)
    except BaseException as error:  # a forked child must never run the shim's code
        report(spec, LaunchError("mount", f"{type(error).__name__}: {error}"))
    os._exit(128)


def report(spec: dict[str, Any], error: LaunchError) -> None:
    """Report to the node why the start failed."""
    os.write(spec["statusFd"], json.dumps({"stage": error.stage, "error": str(error)}).encode() + b"\n")


def supervise(pid: int, *, group: bool) -> int:
    """Wait for the process, passing signals on; return the exit code that a runtime would report.

    `group`: there is no PID namespace, so SIGKILL goes to the process group and leftovers are killed one by one.
    """

    def pass_on(number: int, _frame: object) -> None:
        wanted = signal.SIGKILL if number == signal.SIGUSR2 else number
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pid, wanted) if group and wanted == signal.SIGKILL else os.kill(pid, wanted)

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGQUIT):
        signal.signal(number, pass_on)
    while True:
        found, status = os.waitpid(-1, 0)
        if found == pid:
            break
    if group:
        kill_leftovers(pid)
    return os.WEXITSTATUS(status) if os.WIFEXITED(status) else 128 + os.WTERMSIG(status)


def kill_leftovers(pid: int) -> None:
    """Kill what the process left behind: its group, and the orphans that this subreaper adopted."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)
    for _ in range(100):  # each round kills one generation; bounded, in case something cannot be killed
        try:
            with open(f"/proc/self/task/{os.getpid()}/children", encoding="ascii") as file:
                left = file.read().split()
        except OSError:
            return
        if not left:
            return
        for one in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(one), signal.SIGKILL)
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            return


def run(spec: dict[str, Any]) -> int:
    """Start a container's process and stay as its shim. Returns the exit code."""
    if spec["mode"] == "none":
        prctl(PR_SET_CHILD_SUBREAPER, 1)
    else:
        new_namespaces(spec)
    return fork(spec)


def enter(spec: dict[str, Any]) -> int:
    """Start a process inside a running container (exec probes, hooks). Returns the exit code."""
    if spec["mode"] != "none":
        kinds = [("user", CLONE_NEWUSER)] if spec["mode"] == "user" else []
        kinds += [("pid", CLONE_NEWPID), ("ipc", CLONE_NEWIPC), ("uts", CLONE_NEWUTS), ("mnt", CLONE_NEWNS)]
        try:
            opened = [(os.open(f"/proc/{spec['target']}/ns/{name}", os.O_RDONLY), flag) for name, flag in kinds]
            for descriptor, flag in opened:
                _check(libc.setns(descriptor, flag), "setns")
        except OSError as error:
            raise LaunchError("namespace", str(error)) from error
    return fork(spec)


def fork(spec: dict[str, Any]) -> int:
    """Fork the container's process, report its PID, and supervise it."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(writing)
        child(spec, reading)
    os.close(reading)
    os.write(spec["statusFd"], json.dumps({"pid": pid}).encode() + b"\n")
    os.close(spec["statusFd"])  # the child's exec closes the last copy: the node reads the end as "started"
    return supervise(pid, group=spec["mode"] == "none")


def probe(mode: str, place: str) -> int:
    """Return 0 when this machine allows `mode`: namespaces, a tmpfs, a read-only bind mount and pivot_root."""
    spec: dict[str, Any] = {
        "mode": mode,
        "uid": 0 if mode == "root" else 1000,
        "gid": 0 if mode == "root" else 1000,
        "statusFd": 2,
    }
    spec.update(root=place, groups=[], expose=[], mounts=[], cwd="/", readOnlyRoot=True, hostname="probe")
    try:
        os.makedirs(place, exist_ok=True)
        new_namespaces(spec)
        pid = os.fork()
        if pid == 0:
            try:
                new_root(spec)
                os._exit(0)
            except BaseException as error:  # a forked child must never run the parent's code
                report(spec, LaunchError("mount", str(error)))
                os._exit(1)
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    except LaunchError as error:
        report(spec, error)
        return 1


def main() -> int:
    """Do what the first argument says; the rest comes as JSON on standard input."""
    if sys.argv[1] == "probe":
        return probe(sys.argv[2], sys.argv[3])
    spec = json.load(sys.stdin)
    os.set_inheritable(spec["statusFd"], False)
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL if spec["mode"] != "none" else signal.SIGUSR2)
    if os.getppid() != spec["parent"]:
        return 1  # the node died meanwhile
    quiet = os.open("/dev/null", os.O_RDONLY)
    os.dup2(quiet, 0)
    try:
        code = run(spec) if sys.argv[1] == "run" else enter(spec)
    except LaunchError as error:
        report(spec, error)
        return 128
    return code


if __name__ == "__main__":
    os._exit(main())
