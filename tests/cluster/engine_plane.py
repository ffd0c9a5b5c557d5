"""A separate control plane for tests that break it, a proxy that cuts connections, and a small writer process.

Run as a program (`python -m tests.cluster.engine_plane KUBECONFIG NAMESPACE IDENTITY SECONDS`) it is one candidate for
a lease of SECONDS. While it leads, it writes one ConfigMap again and again, as controllers do: by the shell, over an
informer.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import os
import signal
import ssl
import sys
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import yaml

from api.kinds import CONFIG_MAP
from devcluster.front import bring_up, take_down
from kube.client import Client
from kube.errors import Transient
from kube.informer import Informer
from kube.lease import Lease
from reconcile.decision import Decision
from reconcile.shell import Shell

LEASE_DURATION = timedelta(seconds=1)  # the shortest duration that a Lease object can have
LEASE_RENEW = timedelta(milliseconds=200)
LEASE_MARGIN = timedelta(milliseconds=250)
BETWEEN_WRITES = 0.004  # seconds: several pairs of candidates share the machine
WRITTEN = "written"  # the ConfigMap that candidates write


@dataclass
class Plane:
    """A running control plane, with the folder layout of the development cluster."""

    folder: Path

    @property
    def kubeconfig(self) -> Path:
        return self.folder / "kubeconfig"

    @property
    def audit_log(self) -> Path:
        """Return the path of the audit log, one line per request; it exists only with the setting `audit`."""
        return self.folder / "logs" / "audit.log"

    @property
    def server(self) -> str:
        return str(yaml.safe_load(self.kubeconfig.read_text())["clusters"][0]["cluster"]["server"])

    def pid(self, name: str) -> int:
        """Process id of a part that this plane started."""
        found = json.loads((self.folder / "run" / "state.json").read_text())
        return int(_find(found, name))

    def kill(self, name: str) -> None:
        """Kill a part; the plane starts it again."""
        os.kill(self.pid(name), signal.SIGKILL)

    def wait_ready(self, seconds: float = 60) -> None:
        """Wait until the API server answers."""
        context = ssl.create_default_context(cafile=str(self.folder / "pki" / "ca.crt"))
        deadline = time.monotonic() + seconds
        while True:
            try:
                urllib.request.urlopen(f"{self.server}/livez", context=context, timeout=2)
            except OSError as error:
                if getattr(error, "code", 0) in (401, 403):
                    return
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.2)
            else:
                return

    def compact(self) -> None:
        """Compact the whole history of etcd, over its JSON gateway."""
        pki = self.folder / "pki"
        context = ssl.create_default_context(cafile=str(pki / "ca.crt"))
        context.load_cert_chain(str(pki / "etcd-client.crt"), str(pki / "etcd-client.key"))
        port = json.loads((self.folder / "world.json").read_text())["ports"]["etcd"]

        def call(path: str, body: dict[str, Any]) -> Any:
            request = urllib.request.Request(f"https://127.0.0.1:{port}{path}", json.dumps(body).encode())
            with urllib.request.urlopen(request, context=context, timeout=10) as answer:
                return json.loads(answer.read())

        revision = call("/v3/kv/range", {"key": "AA==", "limit": 1})["header"]["revision"]
        call("/v3/kv/compaction", {"revision": revision, "physical": True})


@contextlib.contextmanager
def started_plane(folder: Path, **settings: str) -> Iterator[Plane]:
    """Run a bare control plane during a block."""
    said = io.StringIO()
    try:
        if bring_up(folder, settings, fresh=False, bare=True, out=said) != 0:
            raise RuntimeError(f"the control plane did not start:\n{said.getvalue()}")
        yield Plane(folder)
    finally:
        with contextlib.suppress(OSError):
            take_down(folder, out=said)


def _find(state: Any, name: str) -> Any:
    """Find `name: pid` anywhere in the state file."""
    if isinstance(state, dict):
        if isinstance(state.get(name), int):
            return state[name]
        for value in state.values():
            if (found := _find(value, name)) is not None:
                return found
    return None


@dataclass
class Proxy:
    """Forwards TCP to the API server; can cut all connections, and refuse new ones."""

    target: tuple[str, int]
    refuse: bool = False
    delay: float = 0.0
    _writers: set[asyncio.StreamWriter] = field(default_factory=set)
    _handlers: set[asyncio.Task[None]] = field(default_factory=set)
    _server: asyncio.Server | None = None

    async def start(self) -> int:
        self._server = await asyncio.start_server(self._handle, "127.0.0.1", 0)
        return int(self._server.sockets[0].getsockname()[1])

    async def stop(self) -> None:
        assert self._server is not None
        self.refuse = True
        self._server.close()
        while self._handlers:
            self.cut()
            await asyncio.wait(self._handlers, timeout=0.1)

    def cut(self) -> None:
        """Reset every connection, also in the middle of a message."""
        for writer in list(self._writers):
            writer.transport.abort()

    async def _handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._handlers.add(task)
        task.add_done_callback(self._handlers.discard)
        if self.refuse:
            writer.transport.abort()
            return
        try:
            up_reader, up_writer = await asyncio.open_connection(*self.target)
        except OSError:
            writer.transport.abort()
            return
        self._writers |= {writer, up_writer}
        try:
            await asyncio.gather(self._pump(reader, up_writer), self._pump(up_reader, writer))
        finally:
            for each in (writer, up_writer):
                each.transport.abort()
                self._writers.discard(each)

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(65536):
                if self.delay:
                    await asyncio.sleep(self.delay)
                writer.write(data)
                await writer.drain()
        writer.transport.abort()


def behind(proxy_port: int, plane: Plane, folder: Path) -> Path:
    """Write a kubeconfig whose server is the proxy."""
    config = yaml.safe_load(plane.kubeconfig.read_text())
    config["clusters"][0]["cluster"]["server"] = f"https://127.0.0.1:{proxy_port}"
    path = folder / "kubeconfig-proxy"
    path.write_text(yaml.safe_dump(config))
    return path


async def candidate(kubeconfig: str, namespace: str, identity: str, seconds: str) -> None:
    """Take part in the election; while leading, write (holder, term, number). A term is one time of leadership."""
    async with await Client.connect(kubeconfig, within=5) as client:
        lease = Lease(
            client,
            namespace,
            identity,
            duration=timedelta(seconds=float(seconds)),
            renew_period=LEASE_RENEW,
            write_margin=LEASE_MARGIN,
        )
        writer = client.guarded(lease)
        stop = asyncio.Event()
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
        electing = asyncio.create_task(lease.run())
        informer = Informer(client, CONFIG_MAP, namespaces=[namespace])
        recorder = SimpleNamespace(record=lambda *_: None)
        shell = Shell(writer, {CONFIG_MAP: informer}, recorder, cast("Any", recorder))
        watching = asyncio.create_task(informer.run())
        await informer.synced.wait()
        writing = asyncio.create_task(_write_while_leading(lease, shell, namespace, identity))
        stopped = asyncio.create_task(stop.wait())
        await asyncio.wait((stopped, writing), return_when=asyncio.FIRST_COMPLETED)
        if writing.done():
            writing.result()  # it never returns normally: show the error on standard error
        writing.cancel()
        watching.cancel()
        await asyncio.gather(writing, watching, return_exceptions=True)
        electing.cancel()
        await asyncio.gather(electing, return_exceptions=True)
        await lease.release()


async def _write_while_leading(lease: Lease, shell: Shell, namespace: str, identity: str) -> None:
    number = 0
    while True:
        await lease.wait_held()
        number += 1
        data = {"holder": identity, "term": f"{_term(lease)}", "number": f"{number}"}
        wanted = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"namespace": namespace, "name": WRITTEN},
            "data": data,
        }
        with contextlib.suppress(Transient):
            await shell.carry_out(CONFIG_MAP, wanted, Decision(apply=((CONFIG_MAP, wanted),)))
        await asyncio.sleep(BETWEEN_WRITES)


def _term(lease: Lease) -> int:
    """Return the number of lease transitions."""
    assert lease._seen is not None
    return int(lease._seen.obj["spec"]["leaseTransitions"])


if __name__ == "__main__":
    asyncio.run(candidate(*sys.argv[1:5]))
