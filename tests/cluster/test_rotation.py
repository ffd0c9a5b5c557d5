"""Self-managed certificates and their CA rotate during 200 reviews a second through the API server."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import ssl
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from api.kinds import VALIDATING_WEBHOOK_CONFIGURATION
from bench.reconcile.stand_ins import install_kinds
from certs.pem import fingerprint_of, parse_bundle, parse_certificate
from kube.client import Client
from tests.cluster.engine_plane import Plane, started_plane
from tests.cluster.replicas import Replica, install_webhooks, remove_webhooks, replicas
from tests.reviews import LONG, Stream

pytestmark = pytest.mark.cluster

SECONDS = 150.0 if LONG else 26.0
RATE = 200.0  # reviews a second, each of which calls both replicas
LEAST_RATE = 190.0 if LONG else 20.0  # the required rate; in `make test`, other workers use the same two cores
LIVES: dict[str, Any] = {"authority_life": "36s", "certificate_life": "16s", "authority_publish_time": "3s"}


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Plane]:
    """A separate control plane."""
    with started_plane(tmp_path_factory.mktemp("rotation") / "plane") as plane:
        yield plane


@dataclass
class Handshakes:
    """Opens new connections with the current CA bundle, as a client without open connections."""

    client: Client
    replicas: list[Replica]
    made: int = 0
    failed: list[str] = field(default_factory=list)
    leaves: set[str] = field(default_factory=set)
    authorities: set[str] = field(default_factory=set)

    async def run(self) -> None:
        """Shake hands with each replica in turn until cancelled."""
        while True:
            configuration = await self.client.get(VALIDATING_WEBHOOK_CONFIGURATION, None, "validating")
            bundle = base64.b64decode(configuration["webhooks"][0]["clientConfig"]["caBundle"])
            self.authorities |= {fingerprint_of(each) for each in parse_bundle(bundle)}
            context = ssl.create_default_context(cadata=bundle.decode())
            for replica in self.replicas:
                await self._one(context, replica.ports["admission"])
            await asyncio.sleep(0.1)

    async def _one(self, context: ssl.SSLContext, port: int) -> None:
        self.made += 1
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
        except OSError as error:
            self.failed.append(str(error))
            return
        shown = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
        self.leaves.add(fingerprint_of(parse_certificate(ssl.DER_cert_to_PEM_cert(shown).encode())))
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


async def test_rotation_of_certificate_and_ca_fails_no_review(plane: Plane, tmp_path: Path) -> None:
    """Lifetimes are seconds, so that several CAs and many certificates follow each other."""
    async with await Client.connect(str(plane.kubeconfig)) as client:
        await install_kinds(client)
        async with replicas(plane.kubeconfig, tmp_path, reconciler="false", **LIVES) as two:
            await install_webhooks(client, *two)
            hands = Handshakes(client, two)
            with Stream(plane.kubeconfig, RATE) as reviews:
                shaking = asyncio.create_task(hands.run())
                await asyncio.wait([shaking], timeout=SECONDS)
                shaking.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await shaking
            await remove_webhooks(client)
    print(reviews.summary("rotation"))  # noqa: T201 - the proof
    print(  # noqa: T201
        f"  {hands.made} new handshakes, {len(hands.failed)} failed;"
        f" {len(hands.leaves)} leaves, {len(hands.authorities)} authorities"
    )
    assert reviews.failed == []
    assert hands.failed == []
    assert reviews.sent / reviews.elapsed > LEAST_RATE
    assert len(hands.leaves) >= SECONDS / 16
    assert len(hands.authorities) >= 2
    assert hands.made > SECONDS
