"""Starts local programs as children that never outlive us, starts them again when they end, and stops them."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import BinaryIO

from devcluster.guard import die_with_parent

_LOG_LIMIT_BYTES = 20_000_000  # a longer log starts over with the next start of its process
_RESTART_FIRST_S = 0.5
_RESTART_MAX_S = 15.0
_STEADY_S = 30.0  # a process that ran this long starts again without waiting long
_TAIL_BYTES = 4000


@dataclass(frozen=True, slots=True)
class Command:
    """One program to run: a name for people, its command line, its environment (added to this process's), its log."""

    name: str
    argv: tuple[str, ...]
    log: Path
    env: dict[str, str] = field(default_factory=dict)
    grace_s: float = 5.0  # between SIGTERM and SIGKILL
    death_signal: int = signal.SIGKILL  # what it gets when we die


class ProcessEndedError(Exception):
    """A process ended while the cluster was still starting."""

    def __init__(self, command: Command, code: int) -> None:
        self.command = command
        self.code = code
        super().__init__(f"{command.name} ended with exit code {code}")


class Keeper:
    """Keeps a set of processes running.

    Until `relax` is called, the first end of any process is an error and sets `failed`; afterwards it is restarted.
    """

    def __init__(self, base_env: dict[str, str], on_change: Callable[[], None]) -> None:
        self._base_env = base_env
        self._on_change = on_change
        self._running: dict[str, asyncio.subprocess.Process] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._commands: dict[str, Command] = {}
        self._stopping: set[str] = set()
        self._strict = True
        self.failed: asyncio.Future[ProcessEndedError] = asyncio.get_running_loop().create_future()
        self.restarts: dict[str, int] = {}

    @property
    def pids(self) -> dict[str, int]:
        """Return the ids of the processes that run now, by name."""
        return {name: process.pid for name, process in self._running.items() if process.returncode is None}

    def relax(self) -> None:
        """From now on start again what ends."""
        self._strict = False

    async def start(self, command: Command) -> None:
        """Start the process and keep it running."""
        self._commands[command.name] = command
        process = await self._spawn(command)
        self._tasks[command.name] = asyncio.create_task(self._keep(command, process))

    async def stop(self, names: Iterable[str]) -> None:
        """Stop these processes together: SIGTERM, their grace, SIGKILL. Unknown names are ignored."""
        chosen = [name for name in names if name in self._tasks]
        self._stopping.update(chosen)
        await asyncio.gather(*(self._stop_one(name) for name in chosen))

    async def _stop_one(self, name: str) -> None:
        process = self._running.get(name)
        if process is not None and process.returncode is None:
            _signal(process, signal.SIGTERM)
            try:
                await asyncio.wait_for(asyncio.shield(process.wait()), self._commands[name].grace_s)
            except TimeoutError:
                _signal(process, signal.SIGKILL)
                await process.wait()
        task = self._tasks.pop(name)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        self._running.pop(name, None)

    async def _keep(self, command: Command, process: asyncio.subprocess.Process) -> None:
        delay = _RESTART_FIRST_S
        while True:
            began = time.monotonic()
            code = await process.wait()
            if command.name in self._stopping:
                return
            if self._strict:
                if not self.failed.done():
                    self.failed.set_result(ProcessEndedError(command, code))
                return
            if time.monotonic() - began > _STEADY_S:
                delay = _RESTART_FIRST_S
            self._on_change()
            await asyncio.sleep(delay)
            delay = min(delay * 2, _RESTART_MAX_S)
            self.restarts[command.name] = self.restarts.get(command.name, 0) + 1
            process = await self._spawn(command)

    async def _spawn(self, command: Command) -> asyncio.subprocess.Process:
        with _open_log(command.log) as log:
            process = await asyncio.create_subprocess_exec(
                *command.argv,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**self._base_env, **command.env},
                preexec_fn=partial(die_with_parent, os.getpid(), command.death_signal),
                start_new_session=True,  # a Ctrl-C in the terminal of `up` is not meant for it
            )
        self._running[command.name] = process
        self._on_change()
        return process


def child_environment(folder: Path) -> dict[str, str]:
    """Return the environment of children: this process's without proxies, which must not serve loopback."""
    environment = {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}
    environment |= {"PYTHONUNBUFFERED": "1", "AIM_DEV_DIR": str(folder)}
    for name in ("KUBECONFIG", "KUBEBUILDER_ASSETS"):
        environment.pop(name, None)
    return environment


def tail(path: Path, lines: int = 8) -> str:
    """Return the last lines of a log ("" when there is none)."""
    try:
        with path.open("rb") as source:
            source.seek(0, os.SEEK_END)
            source.seek(max(0, source.tell() - _TAIL_BYTES))
            text = source.read().decode(errors="replace")
    except OSError:
        return ""
    return "\n".join(text.strip().splitlines()[-lines:])


def _open_log(path: Path) -> BinaryIO:
    too_long = path.exists() and path.stat().st_size > _LOG_LIMIT_BYTES
    return path.open("wb" if too_long else "ab")


def _signal(process: asyncio.subprocess.Process, sig: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        process.send_signal(sig)
