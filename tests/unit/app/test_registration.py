"""The watch over the webhook configurations: what happens to them is reported at once, and costs nothing at rest."""

from __future__ import annotations

import base64

import pytest
from prometheus_client import REGISTRY

from api.kinds import VALIDATING_WEBHOOK_CONFIGURATION
from app import registration
from app.connections import Bounds
from app.registration import Registration
from app.settings import Settings
from kube import follow
from kube.auth import plain_credentials
from kube.client import Client
from tests.unit.app.test_app_servers import AUTHORITY, App, certificate, running
from tests.unit.kube.fake_api import FakeApi, serve
from tests.unit.webhooks.test_registration import rendered
from tests.waiting import in_background, until

PLURAL = VALIDATING_WEBHOOK_CONFIGURATION.plural


def metric(reason: str) -> float | None:
    labels = {"kind": VALIDATING_WEBHOOK_CONFIGURATION.kind, "reason": reason}
    return REGISTRY.get_sample_value("aim_adapters_webhook_configuration_problem", labels)


@pytest.fixture
async def api() -> FakeApi:
    found = FakeApi()
    found.served.add(PLURAL)
    return found


async def test_what_happens_to_a_configuration_is_reported(api: FakeApi, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follow, "PAUSE_SECONDS", 0.05)
    monkeypatch.setattr(registration, "_AGAIN_SECONDS", 0.05)
    settings = Settings(
        namespace="aim-system", service_name="localhost", mutating_webhook_configurations=(), certificates="mounted"
    )
    configuration = rendered("cert-manager", VALIDATING_WEBHOOK_CONFIGURATION)
    (hook,) = configuration["webhooks"]
    hook["clientConfig"]["service"]["name"] = "localhost"
    hook["clientConfig"]["caBundle"] = base64.b64encode(AUTHORITY.certificate).decode()
    async with (
        serve(api) as address,
        Client(plain_credentials(address), within=5) as client,
        running(App(), Bounds(), certificate().context) as server,
    ):
        looked = Registration(client, settings, server.address)
        looked._server_name = "localhost"  # the name in the certificate of these tests
        async with in_background(looked.run()):
            await until(lambda: "does not exist" in (looked.problem() or ""))
            assert metric("Missing") == 1
            api.put(PLURAL, "", "aim-adapters", webhooks=[hook])
            await until(lambda: looked.problem() is None)
            assert metric("Missing") == 0
            asked = len(api.requests)
            api.bookmarks = True
            broken = {**hook, "rules": []}
            api.put(PLURAL, "", "aim-adapters", webhooks=[broken])
            await until(lambda: "does not cover" in (looked.problem() or ""))
            assert metric("RulesIncomplete") == 1
            assert len(api.requests) == asked, "the watch reported it"
            stranger = {**hook["clientConfig"], "caBundle": base64.b64encode(b"not PEM").decode()}
            api.put(PLURAL, "", "aim-adapters", webhooks=[{**hook, "clientConfig": stranger}])
            await until(lambda: "does not verify" in (looked.problem() or ""))
            assert metric("NotTrusted") == 1
            api.put(PLURAL, "", "aim-adapters", webhooks=[hook])
            await until(lambda: looked.problem() is None)
            api.remove(PLURAL, "", "aim-adapters")
            await until(lambda: "does not exist" in (looked.problem() or ""))
            assert "helm upgrade --install" in str(looked.problem())
