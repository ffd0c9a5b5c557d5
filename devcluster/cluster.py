"""The supervisor of one cluster: starts everything in order, keeps it running, stops it.

`dev up` starts a guard (devcluster/guard.py), and the guard starts the supervisor. The supervisor reports its progress
over a socket. Until `up` has acknowledged that the cluster is ready, a closed socket means that `up` was killed. The
supervisor then stops everything. Afterwards it runs until SIGTERM.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import signal
import socket
import sys
import time
from pathlib import Path
from typing import Any

from devcluster.control_plane import CONTROL_PLANE_NAMES
from devcluster.folder import Layout
from devcluster.guard import adopt_orphans, kill_below
from devcluster.processes import Keeper, ProcessEndedError, child_environment, tail
from devcluster.progress import Event, Progress, StepError
from devcluster.startup import Options, Startup

log = logging.getLogger(__name__)

_ACK_S = 30.0


class Link:
    """The supervisor's end of the socket to `dev up`."""

    def __init__(self, descriptor: int) -> None:
        self._socket = socket.socket(fileno=descriptor)
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None

    async def open(self) -> None:
        """Attach it to the running loop."""
        self._reader, self._writer = await asyncio.open_connection(sock=self._socket)

    def send(self, event: Event) -> None:
        """Send one event; a closed connection is ignored."""
        assert self._writer is not None
        if not self._writer.is_closing():
            self._writer.write(json.dumps(event.as_json()).encode() + b"\n")

    async def wait_word(self) -> bool:
        """Wait for a line from `up`; False when `up` has ended."""
        assert self._reader is not None
        try:
            return bool(await self._reader.readline())
        except OSError:
            return False

    async def close(self) -> None:
        """Send what is left and close."""
        assert self._writer is not None
        with contextlib.suppress(OSError):
            self._writer.close()
            await self._writer.wait_closed()


class Supervisor:
    """One run of one cluster."""

    def __init__(self, options: Options, link: Link) -> None:
        self.options = options
        self.layout = Layout(Path(options.folder))
        self.link = link
        self.progress = Progress(link.send)
        self.stop = asyncio.Event()
        self.ready = False
        self.began = time.time()
        self.keeper = Keeper(child_environment(self.layout.root), self.write_state)
        self.startup = Startup(options, self.layout, self.keeper, self.progress)

    async def run(self) -> int:
        """Start the cluster, keep it running, stop it; return the exit code."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.stop.set)
        await self.link.open()
        try:
            return 0 if await self._come_up() and await self._hold() else 1
        finally:
            await self._go_down()
            await self.link.close()

    async def _come_up(self) -> bool:
        """Start everything; False when a step failed, `up` has ended, or a stop is requested."""
        start = asyncio.create_task(self.startup.run())
        word = asyncio.create_task(self.link.wait_word())
        stop = asyncio.create_task(self.stop.wait())
        watched: set[asyncio.Future[Any]] = {start, word, stop, self.keeper.failed}
        await asyncio.wait(watched, return_when=asyncio.FIRST_COMPLETED)
        stop.cancel()
        if not start.done():
            start.cancel()
            with contextlib.suppress(asyncio.CancelledError, StepError):
                await start
            if self.keeper.failed.done():
                self.progress.failed(_ended(self.keeper.failed.result(), self.layout))
            word.cancel()
            return False
        try:
            start.result()
        except StepError as error:
            self.progress.failed(error)
            word.cancel()
            return False
        except Exception as error:
            log.exception("the start failed")
            seen = f"{type(error).__name__}: {error}"
            self.progress.failed(StepError("start", "no error", seen, str(self.layout.log_of("supervisor"))))
            word.cancel()
            return False
        self.keeper.relax()
        self.ready = True
        self.write_state()
        self.progress.ready(f"ready: {self.layout.root}")
        try:
            return await asyncio.wait_for(word, _ACK_S)
        except TimeoutError:
            return False

    async def _hold(self) -> bool:
        """Wait until a stop is requested."""
        await self.stop.wait()
        return True

    def write_state(self) -> None:
        """Write the list of running processes."""
        state = {
            "ready": self.ready,
            "startedAt": self.began,
            "supervisor": os.getpid(),
            "guard": os.getppid(),
            "processes": {"supervisor": os.getpid(), **self.keeper.pids},
            "programs": {name: str(path) for name, path in self.startup.programs.items()},
            "notices": self.startup.notices,
            "controlPlaneOnly": self.options.control_plane_only,
        }
        temporary = self.layout.state.with_suffix(".tmp")
        temporary.write_text(json.dumps(state, indent=1) + "\n")
        temporary.replace(self.layout.state)

    async def _go_down(self) -> None:
        """Stop everything, the clients of the API server first, so that they can finish."""
        self.ready = False
        await self.startup.stop_tasks()
        await self.keeper.stop(["node"])
        await self.keeper.stop([name for name in self.keeper.pids if name not in CONTROL_PLANE_NAMES])
        await self.keeper.stop(["kube-controller-manager", "kube-scheduler"])
        await self.keeper.stop(["kube-apiserver"])
        await self.keeper.stop(["etcd"])
        kill_below(os.getpid())  # orphans that we adopted, should the guard be gone
        self.layout.state.unlink(missing_ok=True)
        self.startup.give_back()


def _ended(error: ProcessEndedError, layout: Layout) -> StepError:
    path = layout.log_of(error.command.name)
    return StepError(f"start {error.command.name}", "the process keeps running", f"{error}\n{tail(path)}", str(path))


async def _main(arguments: list[str]) -> int:
    options = Options(**json.loads(arguments[1]))
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    adopt_orphans()
    return await Supervisor(options, Link(int(arguments[0]))).run()


if __name__ == "__main__":
    sys.exit(asyncio.run(_main(sys.argv[1:])))
