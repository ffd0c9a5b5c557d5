"""A real control plane and the process node for all tests of this folder; a namespace for each test."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from api.view import JsonObject
from devcluster.by_path import Kube
from devcluster.paths import path_for
from tests.waiting import until

PYTHON = sys.executable
ROOT = Path(__file__).parents[3]
NODE = "aim-dev-0"
IMAGES = {
    "shell:1": {"entrypoint": []},
    "python:1": {"entrypoint": [PYTHON], "user": "1000"},
    "printer:1": {"entrypoint": ["/bin/echo", "entry"], "cmd": ["default"]},
}
_numbers = itertools.count(1)


@dataclass
class Plane:
    """A running control plane."""

    folder: Path
    world: JsonObject

    @property
    def kubeconfig(self) -> Path:
        return self.folder / "kubeconfig"

    @property
    def second_octet(self) -> int:
        return 64 + 2 * int(self.world["range_index"])


class NodeProcess:
    """The process node as a child of the tests."""

    def __init__(self, plane: Plane, *extra: str) -> None:
        self.plane = plane
        self.folder = plane.folder / "node"
        self.images = plane.folder / "images.json"
        self.images.write_text(json.dumps(IMAGES))
        self.extra = extra
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        pki, ports = self.plane.folder / "pki", self.plane.world["ports"]
        reading, writing = os.pipe()
        with (self.plane.folder / "logs" / "node.log").open("ab") as log:
            self.process = subprocess.Popen(
                [
                    *(PYTHON, "-m", "devcluster.node", "--name", NODE, "--dir", str(self.folder)),
                    *("--kubeconfig", str(pki / "node.kubeconfig"), "--claims", str(self.plane.folder / "claims")),
                    *("--pod-cidr", f"127.{self.plane.second_octet + 1}.0.0/16", "--images", str(self.images)),
                    *("--kubelet-port", str(ports["kubelet"]), "--tls-cert", str(pki / "kubelet.crt")),
                    *("--tls-key", str(pki / "kubelet.key"), "--client-ca-file", str(pki / "ca.crt")),
                    *("--ready-fd", str(writing), "--stop-grace", "1"),
                    *("--crash-backoff", "0.3", "--crash-backoff-max", "1", *self.extra),
                ],
                pass_fds=[writing],
                stdout=log,
                stderr=log,
                cwd=ROOT,
            )
        os.close(writing)
        with os.fdopen(reading, "rb") as pipe:
            assert pipe.read() == b"ready\n", (self.plane.folder / "logs" / "node.log").read_text()[-3000:]

    def stop(self, number: int = signal.SIGTERM) -> None:
        assert self.process is not None
        self.process.send_signal(number)
        self.process.wait(20)


@pytest.fixture(scope="session")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Plane]:
    """Bring up a control plane without node and product."""
    folder = tmp_path_factory.mktemp("node-plane")
    cli = [PYTHON, "-m", "devcluster.cli"]
    up = [*cli, "up", "--dir", str(folder), "--control-plane-only"]
    done = subprocess.run(up, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    yield Plane(folder, json.loads((folder / "world.json").read_text()))
    subprocess.run([*cli, "down", "--dir", str(folder)], cwd=ROOT, check=True, capture_output=True)


@pytest.fixture(scope="session")
def node(plane: Plane) -> Iterator[NodeProcess]:
    """Run the process node; $AIM_TEST_ISOLATION selects another way to isolate containers.

    With `none`, the tests of missing features fail, and as root some of them leave files on the machine.
    """
    process = NodeProcess(plane, "--isolation", os.environ.get("AIM_TEST_ISOLATION", "auto"))
    process.start()
    yield process
    process.stop()


class World:
    """What a test does: create objects in its own namespace, and wait for their state."""

    def __init__(self, kube: Kube, plane: Plane, node: NodeProcess, namespace: str) -> None:
        self.kube = kube
        self.plane = plane
        self.node = node
        self.namespace = namespace

    def path(self, plural: str, name: str | None = None, api: str = "v1") -> str:
        return path_for(api, plural, self.namespace, name)

    async def put(self, plural: str, manifest: JsonObject, api: str = "v1") -> JsonObject:
        return await self.kube.create(self.path(plural, api=api), {"apiVersion": api, **manifest})

    async def secret(self, name: str, **data: str) -> None:
        await self.put("secrets", {"kind": "Secret", "metadata": {"name": name}, "stringData": data})

    async def claim(self, name: str) -> Path:
        """Make a volume claim and return its directory."""
        spec = {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Gi"}}}
        await self.put(
            "persistentvolumeclaims", {"kind": "PersistentVolumeClaim", "metadata": {"name": name}, "spec": spec}
        )
        await self.until("persistentvolumeclaims", name, lambda c: c["status"].get("phase") == "Bound")
        return self.plane.folder / "claims" / self.namespace / name

    async def pod(
        self, name: str, *command: str, image: str = "shell:1", pod: JsonObject | None = None, **container: Any
    ) -> JsonObject:
        """Create a pod of one container `c`; without a token and without restarts by default."""
        one = {"name": "c", "image": image, **({"command": list(command)} if command else {}), **container}
        spec = {
            "restartPolicy": "Never",
            "automountServiceAccountToken": False,
            "terminationGracePeriodSeconds": 2,
            "containers": [one],
            **(pod or {}),
        }
        return await self.put(
            "pods", {"kind": "Pod", "metadata": {"name": name, "labels": {"app": name}}, "spec": spec}
        )

    async def until(
        self, plural: str, name: str, check: Callable[[JsonObject], Any], seconds: float = 15
    ) -> JsonObject:
        """Wait until the object fits and return it."""
        last: JsonObject = {}
        try:
            async with asyncio.timeout(seconds):
                watch = self.kube.watch(self.path(plural), {"fieldSelector": f"metadata.name={name}"})
                async with contextlib.aclosing(watch) as events:
                    async for kind, item in events:
                        if kind in {"ADDED", "MODIFIED"}:
                            last = item
                            if check(item):
                                return item
        except TimeoutError:
            pytest.fail(
                f"{plural}/{name} did not come to fit in {seconds} s: {json.dumps(last.get('status'), indent=1)}"
            )
        raise AssertionError

    async def ended(self, name: str) -> JsonObject:
        """Wait until the pod ends and return its container's terminated state."""
        pod = await self.until("pods", name, lambda p: p["status"]["phase"] in {"Succeeded", "Failed"})
        state: JsonObject = pod["status"]["containerStatuses"][0]["state"]["terminated"]
        return state

    async def running(self, name: str) -> JsonObject:
        return await self.until("pods", name, is_ready)

    async def waiting(self, name: str, reason: str) -> JsonObject:
        """Wait for a waiting reason and return the waiting state."""

        def check(pod: JsonObject) -> bool:
            return waiting_state(pod).get("reason") == reason

        return waiting_state(await self.until("pods", name, check))

    async def vanished(self, plural: str, name: str, seconds: float = 10) -> None:
        deadline = time.monotonic() + seconds
        while await self.kube.find(self.path(plural, name)) is not None:
            assert time.monotonic() < deadline, f"{plural}/{name} is still there after {seconds} s"
            await asyncio.sleep(0.05)

    async def event(self, pod: str, reason: str, seconds: float = 10) -> JsonObject:
        deadline = time.monotonic() + seconds
        while True:
            events = await self.kube.list(self.path("events"))
            found = [e for e in events if e["involvedObject"]["name"] == pod and e["reason"] == reason]
            if found:
                return found[0]
            assert time.monotonic() < deadline, f"no event {reason} about {pod}: {[e['reason'] for e in events]}"
            await asyncio.sleep(0.1)

    async def logged(self, pod: str, text: str, seconds: float = 10) -> None:
        """Wait until the pod has written this."""
        await until(lambda: text in self.log(pod), seconds)

    def log(self, pod: str, number: int = 0, container: str = "c") -> str:
        return (
            self.node.folder / "logs" / "pods" / f"{self.namespace}_{pod}" / f"{container}-{number}.log"
        ).read_text()


def waiting_state(pod: JsonObject) -> JsonObject:
    statuses = pod["status"].get("containerStatuses") or [{}]
    return (statuses[0].get("state") or {}).get("waiting") or {}


def restarts(pod: JsonObject) -> int:
    return sum(s["restartCount"] for s in pod["status"].get("containerStatuses") or [])


def is_ready(pod: JsonObject) -> bool:
    return any(c["type"] == "Ready" and c["status"] == "True" for c in pod["status"].get("conditions") or [])


@pytest.fixture
async def world(plane: Plane, node: NodeProcess) -> AsyncIterator[World]:
    """A namespace with its default service account; it is deleted afterwards, pods first."""
    async with await Kube.connect(plane.kubeconfig) as kube:
        name = f"t{next(_numbers)}"
        await kube.create("/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        one = World(kube, plane, node, name)
        await one.until("serviceaccounts", "default", lambda _: True)
        await one.until("configmaps", "kube-root-ca.crt", lambda _: True)
        yield one
        await kube.request("DELETE", one.path("pods"), params={"gracePeriodSeconds": 0})
        await kube.delete(path_for("v1", "namespaces", None, name))
