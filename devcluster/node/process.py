"""Starts container processes through the launcher, and reports how they end."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import signal
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO

from devcluster.node.resolve import Identity

LAUNCHER = Path(__file__).with_name("launch.py")
SERVICE_ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
_OUTPUT_LIMIT_BYTES = 10_000  # what is kept of the output of an exec probe or hook, as a kubelet does


class StartError(Exception):
    """A process that could not be started; `stage` is namespace, mount, user or exec."""

    def __init__(self, stage: str, message: str) -> None:
        super().__init__(message)
        self.stage = stage


@dataclass(frozen=True, slots=True)
class Isolation:
    """How containers are kept apart on this machine.

    `mode`: root (namespaces as root), user (a user namespace in addition), none (paths are rewritten instead).
    """

    mode: str
    root: Path  # an empty directory where each container mounts its root, in its own namespace
    expose: tuple[str, ...]  # paths of the host that every container sees, read-only


@dataclass(frozen=True, slots=True)
class Mount:
    """One volume of a container: its path on the host, and its path in the container."""

    source: str
    target: str
    read_only: bool


@dataclass(frozen=True, slots=True)
class Launch:
    """All that a container's process is started from."""

    argv: tuple[str, ...]
    env: Mapping[str, str]
    cwd: str
    identity: Identity
    hostname: str
    message_path: str  # where the container writes its termination message
    scratch: str  # a directory of this container on the host, gone with the pod
    mounts: tuple[Mount, ...] = ()
    read_only_root: bool = False


class Process:
    """A running container process."""

    def __init__(self, shim: asyncio.subprocess.Process, pid: int, launch: Launch, isolation: Isolation) -> None:
        self._shim = shim
        self.pid = pid  # of the container's process, as the host counts
        self._launch = launch
        self._isolation = isolation

    @classmethod
    async def start(cls, isolation: Isolation, launch: Launch, output: BinaryIO) -> Process:
        """Start the process with its output going to a file. Raises: StartError when it does not get as far as exec."""
        shim, pid = await _launch("run", isolation, launch, output=output.fileno())
        return cls(shim, pid, launch, isolation)

    async def wait(self) -> int:
        """Return the exit code, 128 + signal when a signal ended it."""
        code = await self._shim.wait()
        return code if code >= 0 else 128 - code

    def terminate(self) -> None:
        """Send SIGTERM to the container's process."""
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        """Kill the container's process, and with it everything that it started."""
        self._signal(signal.SIGUSR2)  # the launcher's word for it: the shim itself must live to see the end

    def _signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            if self._shim.returncode is None:
                self._shim.send_signal(number)

    async def run_inside(self, argv: Sequence[str], timeout_s: float) -> tuple[int, str]:
        """Run a command in the container; return exit code and output (cut at 10 kB).

        Raises: TimeoutError after killing it; StartError when it cannot be started.
        """
        launch = replace(self._launch, argv=tuple(argv))
        async with asyncio.timeout(timeout_s):
            shim, _ = await _launch("exec", self._isolation, launch, target=self.pid)
            assert shim.stdout is not None
            try:
                output = await shim.stdout.read(_OUTPUT_LIMIT_BYTES)
                while await shim.stdout.read(_OUTPUT_LIMIT_BYTES):
                    pass
                code = await shim.wait()
            except BaseException:
                with contextlib.suppress(ProcessLookupError):
                    shim.kill()
                await asyncio.shield(shim.wait())
                raise
        return (code if code >= 0 else 128 - code), output.decode(errors="replace")


def command_for(isolation: Isolation, launch: Launch) -> dict[str, Any]:
    """Return the launcher's orders, without the descriptors of this start."""
    who = launch.identity
    orders: dict[str, Any] = {
        "mode": isolation.mode,
        "root": str(isolation.root),
        "expose": list(isolation.expose),
        "mounts": [{"source": m.source, "target": m.target, "readOnly": m.read_only} for m in launch.mounts],
        "readOnlyRoot": launch.read_only_root,
        "hostname": launch.hostname[:63],
        "uid": who.uid,
        "gid": who.gid,
        "groups": list(who.groups),
        "capabilities": list(who.capabilities),
        "noNewPrivileges": who.no_new_privileges,
        "umask": 0o022,
        "cwd": launch.cwd,
        "argv": list(launch.argv),
        "env": dict(launch.env),
    }
    if isolation.mode == "none":
        orders |= _without_namespaces(launch)
    return orders


def _without_namespaces(launch: Launch) -> dict[str, Any]:
    """Point arguments and environment at real directories, since nothing can be mounted.

    A tree of symlinks stands for the container's root, so that a directory above several mounts has a place as well.
    """
    tree = os.path.join(launch.scratch, "root")
    _plant(tree, launch.mounts)
    env = {name: rewrite(value, launch.mounts, tree) for name, value in launch.env.items()}
    env["AIM_DEV_ROOT"] = tree
    account = next((m.source for m in launch.mounts if m.target.rstrip("/") == SERVICE_ACCOUNT), None)
    if account and "KUBECONFIG" not in env:  # programs look for the token at a fixed path, which does not exist here
        env["KUBECONFIG"] = _account_kubeconfig(launch.scratch, account, env)
    cwd = rewrite(launch.cwd, launch.mounts, tree)
    return {
        "argv": [rewrite(a, launch.mounts, tree) for a in launch.argv],
        "env": env,
        "cwd": cwd if os.path.isdir(cwd) else "/",
    }


def _plant(tree: str, mounts: Sequence[Mount]) -> None:
    """Make the tree of symlinks; a mount inside another one has no place in it."""
    taken: list[str] = []
    for one in sorted(mounts, key=lambda m: m.target.count("/")):
        target = one.target.rstrip("/")
        if any(target.startswith(t + "/") for t in taken):
            continue
        taken.append(target)
        link = tree + target
        os.makedirs(os.path.dirname(link), exist_ok=True)
        if os.path.islink(link):
            os.unlink(link)
        os.symlink(one.source, link)


def _account_kubeconfig(folder: str, account: str, env: Mapping[str, str]) -> str:
    """Write a kubeconfig (JSON is YAML) that uses the service account's files, and return its path."""
    path = os.path.join(folder, "kubeconfig")
    server = f"https://{env['KUBERNETES_SERVICE_HOST']}:{env['KUBERNETES_SERVICE_PORT']}"
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "pod",
        "contexts": [{"name": "pod", "context": {"cluster": "pod", "user": "pod"}}],
        "clusters": [{"name": "pod", "cluster": {"server": server, "certificate-authority": f"{account}/ca.crt"}}],
        "users": [{"name": "pod", "user": {"tokenFile": f"{account}/token"}}],
    }
    Path(path).write_text(json.dumps(config))
    return path


def rewrite(text: str, mounts: Sequence[Mount], tree: str) -> str:
    """Replace each mount path, or directory above one that this machine does not have, by its place in the tree."""
    names = {m.target.rstrip("/") for m in mounts}
    for target in list(names):
        above = [target[:at] for at, letter in enumerate(target) if letter == "/" and at]
        names |= {path for path in above if not os.path.exists(path)}
    names.discard("")
    if not names:
        return text
    pattern = "|".join(re.escape(name) for name in sorted(names, key=len, reverse=True))
    return re.sub(rf"(?<![\w./-])(?:{pattern})(?![\w.-])", lambda found: tree + found.group(0), text)


async def _launch(
    verb: str, isolation: Isolation, launch: Launch, *, output: int | None = None, target: int = 0
) -> tuple[asyncio.subprocess.Process, int]:
    """Start the launcher and wait until it has executed the program. Raises: StartError."""
    reading, writing = os.pipe()
    orders = command_for(isolation, launch) | {"statusFd": writing, "parent": os.getpid(), "target": target}
    try:
        shim = await asyncio.create_subprocess_exec(
            sys.executable,
            "-I",
            "-S",
            str(LAUNCHER),
            verb,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE if output is None else output,
            stderr=asyncio.subprocess.STDOUT,
            pass_fds=[writing],
            env={},
            start_new_session=True,
        )
    except BaseException:
        os.close(reading)
        raise
    finally:
        os.close(writing)
    assert shim.stdin is not None
    try:
        shim.stdin.write(json.dumps(orders).encode())
        shim.stdin.close()
        report = await _read_all(reading)
    except BaseException:
        with contextlib.suppress(ProcessLookupError):
            shim.kill()
        await asyncio.shield(shim.wait())
        raise
    pid = 0
    for line in report.splitlines():
        word = json.loads(line)
        if "error" in word:
            await shim.wait()
            raise StartError(word["stage"], word["error"])
        pid = word["pid"]
    if not pid:
        raise StartError("namespace", f"the launcher ended with exit code {await shim.wait()}")
    return shim, pid


async def _read_all(descriptor: int) -> bytes:
    """Read a pipe to its end and close it."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    pipe = os.fdopen(descriptor, "rb", buffering=0)
    transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), pipe)
    try:
        return await reader.read()
    finally:
        transport.close()


def last_words(output: bytes) -> str:
    """Return the last line of a program's output; of a traceback the line that names the error."""
    lines = output.decode(errors="replace").strip().splitlines()
    return lines[-1].strip()[-300:] if lines else "no word"


async def choose_mode(root: Path, wanted: str = "auto") -> tuple[str, str]:
    """Return (mode, notice): the best isolation that this machine allows; the notice names what is missing, or "".

    Raises: ValueError when a mode was demanded that does not work here.
    """
    candidates = ("root", "user") if os.geteuid() == 0 else ("user",)
    reasons: list[str] = []
    for mode in candidates if wanted == "auto" else () if wanted == "none" else (wanted,):
        trial = await asyncio.create_subprocess_exec(
            sys.executable,
            "-I",
            "-S",
            str(LAUNCHER),
            "probe",
            mode,
            str(root),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
            env={},
        )
        _, words = await trial.communicate()
        if trial.returncode == 0:
            return mode, ""
        reasons.append(f"{mode}: {last_words(words)}")
    if wanted not in {"auto", "none"}:
        raise ValueError(f'isolation "{wanted}" does not work on this machine: {reasons[0]}')
    return "none", (
        "containers run without namespaces here: mount paths are rewritten in arguments and environment, "
        f"and read-only is not enforced ({'; '.join(reasons) or 'asked for'})"
    )
