"""Self-managed certificates with the real API server: first trust and repair.

`test_rotation.py` tests their rotation during reviews.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

import app.serve
from api.kinds import (
    CONFIG_MAP,
    SECRET,
    VALIDATING_WEBHOOK_CONFIGURATION,
)
from app.serve import Stop
from app.settings import load_settings
from app.wiring import Parts, Wiring
from kube.client import Client
from kube.errors import ApiError
from rules.worlds import SnapshotWorld
from tests.cluster.engine_plane import Plane, started_plane
from tests.cluster.replicas import CONFIGURATIONS, webhook_configuration
from tests.waiting import until
from webhooks.admission import Admission

pytestmark = pytest.mark.cluster

NAMESPACE = "default"


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Plane]:
    """A separate control plane: a broken webhook would block the applies of other tests."""
    with started_plane(tmp_path_factory.mktemp("certs") / "plane") as plane:
        yield plane


def wire(parts: Parts) -> Wiring:
    """ConfigMaps have no rules, so every review is allowed."""
    return Wiring(admission=Admission(SnapshotWorld()))


@asynccontextmanager
async def replica(plane: Plane, **settings: object) -> AsyncIterator[Any]:
    """One admission server on loopback; yields the running process."""
    made: list[Any] = []
    real = app.serve._Process

    class Process(real):  # type: ignore[misc, valid-type]
        def __init__(self, *args: Any) -> None:
            super().__init__(*args)
            made.append(self)

    given = {
        "kubeconfig": str(plane.kubeconfig),
        "namespace": NAMESPACE,
        "reconciler": False,
        "bind_address": "127.0.0.1",
        "admission_port": "0",
        "health_port": "0",
        "certificate_names": "127.0.0.1",
        "validating_webhook_configurations": "validating",
        "mutating_webhook_configurations": "mutating",
        "drain": "1s",
        **settings,
    }
    stop = Stop()
    app.serve._Process = Process  # type: ignore[assignment,misc]
    try:
        task = asyncio.create_task(app.serve.serve(load_settings(given, environ={})[0], stop))
        await until(lambda: task.done() or (made and made[0]._certificate.usable))
        assert not task.done(), task.result()
    finally:
        app.serve._Process = real  # type: ignore[misc]
    try:
        yield made[0]
    finally:
        stop.asked.set()
        assert await task == 0


async def install(client: Client, name: str, port: int) -> None:
    """Install a webhook configuration that calls a replica."""
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}
    obj = webhook_configuration(name, f"https://127.0.0.1:{port}/validate", rule)
    await client.create(CONFIGURATIONS[name][0], obj)


async def bundles(client: Client) -> list[bytes]:
    found = []
    for name, (kind, _) in CONFIGURATIONS.items():
        if (configuration := await client.find(kind, None, name)) is not None:
            found += [base64.b64decode(h["clientConfig"].get("caBundle") or "") for h in configuration["webhooks"]]
    return found


async def review(client: Client) -> None:
    """Ask the API server to create something; both webhooks are called. Raises: ApiError when one fails."""
    obj = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"namespace": NAMESPACE, "name": "reviewed"}}
    await client.create(CONFIG_MAP, obj, dry_run=True)


async def reviewed(client: Client, seconds: float = 20) -> None:
    """Wait until reviews from the API server succeed."""
    async with asyncio.timeout(seconds):
        while True:
            with contextlib.suppress(ApiError):
                await review(client)
                return
            await asyncio.sleep(0.1)


@pytest.fixture
async def client(plane: Plane, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Client]:
    """The administrator's client; removes its configurations and Secrets."""
    monkeypatch.setattr(app.serve, "wire", wire)
    async with await Client.connect(str(plane.kubeconfig)) as client:
        yield client
        for name, (kind, _) in CONFIGURATIONS.items():
            await client.delete(kind, None, name)
        await client.delete(SECRET, NAMESPACE, "aim-adapters-webhook-tls")


async def test_the_api_server_trusts_the_webhook_and_damage_is_repaired(plane: Plane, client: Client) -> None:
    async with replica(plane) as one, replica(plane) as two:
        assert one._certificate.fingerprint == two._certificate.fingerprint
        await install(client, "validating", one._admission.address[1])
        await install(client, "mutating", two._admission.address[1])
        await reviewed(client, 20)
        good = (await bundles(client))[0]
        for damage in ("", base64.b64encode(b"-----BEGIN nothing").decode()):
            path = {"op": "add", "path": "/webhooks/0/clientConfig/caBundle", "value": damage}
            with contextlib.suppress(ApiError):  # the API server refuses a bundle that is not PEM
                await client.patch_json(VALIDATING_WEBHOOK_CONFIGURATION, None, "validating", [path])
            begun = time.monotonic()
            while await bundles(client) != [good, good]:
                assert time.monotonic() - begun < 5
                await asyncio.sleep(0.05)
        await reviewed(client)
