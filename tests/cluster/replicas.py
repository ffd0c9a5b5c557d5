"""Replicas of the server as separate processes without pods, and the webhook configurations that call them."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from api.kinds import AIM_ARTIFACT, MUTATING_WEBHOOK_CONFIGURATION, VALIDATING_WEBHOOK_CONFIGURATION, Kind
from api.view import JsonObject
from kube.client import Client
from kube.errors import ApiError, Denied

ROOT = Path(__file__).resolve().parents[2]
CONFIGURATIONS: dict[str, tuple[Kind, str]] = {
    "validating": (VALIDATING_WEBHOOK_CONFIGURATION, "/validate"),
    "mutating": (MUTATING_WEBHOOK_CONFIGURATION, "/mutate"),
}
_SWITCHES = {"true": "--{0}", "false": "--no-{0}"}
_SERVED = ["aimartifacts", "aimservices"]


@dataclass
class Replica:
    """One running process; `ports` by server (admission, health)."""

    process: subprocess.Popen[bytes]
    log: Path
    ports: dict[str, int] = field(default_factory=dict)

    def get(self, path: str) -> tuple[int, str]:
        """Return status and text of a page on the health port."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.ports['health']}{path}", timeout=5) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def metric(self, line: str) -> float:
        """Return the value of a sample, written as the page has it (`name{label="x"}`); 0 when there is none."""
        for found in self.get("/metrics")[1].splitlines():
            if found.startswith(f"{line} "):
                return float(found.rsplit(" ", 1)[1])
        return 0.0

    def lines(self) -> list[JsonObject]:
        """Return its log."""
        text = self.log.read_text(errors="replace").splitlines()
        return [json.loads(line) for line in text if line.startswith("{") and line.endswith("}")]

    async def started(self, seconds: float = 60) -> None:
        """Wait until it serves, and read its ports."""
        async with asyncio.timeout(seconds):
            while True:
                assert self.process.poll() is None, self.log.read_text()
                found = next((line for line in self.lines() if line["message"] == "serving"), None)
                if found is not None:
                    self.ports = {name: found[name] for name in ("admission", "health") if name in found}
                    return
                await asyncio.sleep(0.02)

    async def ready(self, seconds: float = 60) -> None:
        """Wait until it is ready."""
        async with asyncio.timeout(seconds):
            while (await asyncio.to_thread(self.get, "/readyz"))[0] != 200:  # noqa: ASYNC110 - a page is polled
                await asyncio.sleep(0.05)


@asynccontextmanager
async def replicas(
    kubeconfig: Path, folder: Path, count: int = 2, *, namespace: str = "default", **settings: str
) -> AsyncIterator[list[Replica]]:
    """Run replicas around a block; they are stopped gracefully, and must exit with 0 unless they ended before."""
    given = {
        "kubeconfig": str(kubeconfig),
        "namespace": namespace,
        "bind-address": "127.0.0.1",
        "admission-port": "0",
        "health-port": "0",
        "certificate-names": "127.0.0.1",
        "validating-webhook-configurations": "validating",
        "mutating-webhook-configurations": "mutating",
        "drain": "1s",
        "log-format": "json",
        **{name.replace("_", "-"): value for name, value in settings.items()},
    }
    flags = [_SWITCHES.get(value, "--{0}={1}").format(name, value) for name, value in given.items()]
    running: list[Replica] = []
    try:
        for number in range(count):
            running.append(start(folder / f"replica-{number}-{time.monotonic_ns()}.log", flags))
        for replica in running:
            await replica.started()
        yield running
        for replica in running:
            if replica.process.poll() is None:
                replica.process.send_signal(signal.SIGTERM)
        for replica in running:
            code = await asyncio.to_thread(replica.process.wait, 40)
            assert code in (0, -signal.SIGKILL), replica.log.read_text()[-4000:]
            assert "Traceback" not in replica.log.read_text(), replica.log.read_text()[-4000:]
    finally:
        for replica in running:
            if replica.process.poll() is None:
                replica.process.kill()
                replica.process.wait()


def start(log: Path, flags: list[str]) -> Replica:
    """Start one process."""
    with log.open("wb") as out:
        process = subprocess.Popen(
            [sys.executable, "-m", "cli.main", "serve", *flags],
            cwd=ROOT,
            stdout=out,
            stderr=out,
            stdin=subprocess.DEVNULL,
            env=os.environ | {"PYTHONPATH": str(ROOT)},
        )
    return Replica(process, log)


def webhook_configuration(name: str, url: str, rule: JsonObject) -> JsonObject:
    """A configuration (`validating` or `mutating`) with one webhook; aim-adapters writes its CA bundle."""
    kind, _ = CONFIGURATIONS[name]
    hook = {
        "name": f"{name}.aim-adapters.test",
        "clientConfig": {"url": url},
        "rules": [rule],
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        "failurePolicy": "Fail",
        "timeoutSeconds": 5,
        "matchPolicy": "Equivalent",
    }
    return {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": {"name": name}, "webhooks": [hook]}


async def install_webhooks(client: Client, validating: Replica, mutating: Replica) -> None:
    """Let the API server call both replicas for each review; wait until it receives answers."""
    rule = {
        "apiGroups": [AIM_ARTIFACT.group],
        "apiVersions": ["v1alpha1", "v1alpha2"],
        "operations": ["CREATE", "UPDATE"],
        "resources": _SERVED,
    }
    for (name, (kind, path)), replica in zip(CONFIGURATIONS.items(), (validating, mutating), strict=True):
        url = f"https://127.0.0.1:{replica.ports['admission']}{path}"
        await client.create(kind, webhook_configuration(name, url, rule))
    await judged(client)


async def judged(client: Client, seconds: float = 60) -> None:
    """Wait until the API server refuses an invalid object with a message of aim-adapters."""
    spec = {"type": "adapter", "modelId": "acme/tone", "sourceUri": "hf://acme/tone"}
    wrong = {"apiVersion": AIM_ARTIFACT.api_version, "kind": AIM_ARTIFACT.kind, "spec": spec}
    wrong["metadata"] = {"name": "wrong", "namespace": "default"}
    deadline = time.monotonic() + seconds
    while True:
        said = "it is admitted"
        try:
            await client.create(AIM_ARTIFACT, wrong, dry_run=True)
        except Denied:
            return
        except ApiError as error:
            said = str(error)
        assert time.monotonic() < deadline, said
        await asyncio.sleep(0.1)


async def remove_webhooks(client: Client) -> None:
    """Delete the configurations."""
    for name, (kind, _) in CONFIGURATIONS.items():
        with contextlib.suppress(ApiError):
            await client.delete(kind, None, name)
