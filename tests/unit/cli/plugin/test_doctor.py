"""`doctor`: each thing that can be wrong with an installation, and a whole look at a cluster."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import orjson
import pytest
from aiohttp import web

from api.kinds import MUTATING_WEBHOOK_CONFIGURATION, VALIDATING_WEBHOOK_CONFIGURATION
from cli.plugin.doctor import Facts, as_lines, as_view, examine, healthy
from cli.plugin.doctor_run import gather
from cli.plugin.output import as_text
from kube.auth import plain_credentials
from kube.client import Client
from tests.unit.app.test_app_servers import AUTHORITY
from tests.unit.webhooks.test_registration import rendered

NOW = datetime.now(UTC)
V1, V2 = "aim.eai.amd.com/v1alpha1", "aim.eai.amd.com/v1alpha2"


def in_order() -> Facts:
    """A cluster where nothing is wrong."""
    import base64

    from api.kinds import AIM_KINDS

    configurations = {}
    for kind in (VALIDATING_WEBHOOK_CONFIGURATION, MUTATING_WEBHOOK_CONFIGURATION):
        configuration = rendered("cert-manager", kind)
        for hook in configuration["webhooks"]:
            hook["clientConfig"]["caBundle"] = base64.b64encode(AUTHORITY.certificate).decode()
        configurations[kind] = (configuration,)
    pod = {
        "metadata": {"name": "server-1", "namespace": "aim-system"},
        "status": {"conditions": [{"type": "Ready", "status": "True"}]},
    }
    lease = {
        "metadata": {"name": "aim-adapters"},
        "spec": {"holderIdentity": "server-1_x", "renewTime": NOW.isoformat(), "leaseDurationSeconds": 15},
    }
    return Facts(
        NOW,
        {
            V1: frozenset(kind.plural for kind in AIM_KINDS if kind.version == "v1alpha1"),
            V2: frozenset(kind.plural for kind in AIM_KINDS if kind.version == "v1alpha2"),
            "serving.kserve.io/v1beta1": frozenset({"inferenceservices"}),
        },
        configurations,
        (pod,),
        (lease,),
        ({"metadata": {"name": "shared"}},),
        {"aim-system/server-1": "[+] running: ok\nready\n"},
    )


def test_a_cluster_in_order() -> None:
    checks = examine(in_order())
    assert healthy(checks)
    assert {view["status"] for view in as_view(checks)} == {"ok"}
    assert all(text.startswith("✓ ") for text in as_text(as_lines(checks)).splitlines())


def faults() -> dict[str, tuple[Facts, str]]:
    fine = in_order()
    kind = VALIDATING_WEBHOOK_CONFIGURATION
    pod, lease = dict(fine.pods[0]), dict(fine.leases[0])  # type: ignore[arg-type]
    empty: dict[str, Any] = rendered("cert-manager", kind)
    old = (NOW - timedelta(minutes=5)).isoformat()
    return {
        "no CRDs": (replace(fine, served={**fine.served, V2: None}), "v1alpha2 does not serve"),
        "no KServe": (replace(fine, served={**fine.served, "serving.kserve.io/v1beta1": None}), "install KServe"),
        "no webhook": (replace(fine, configurations={**fine.configurations, kind: ()}), "stored without a review"),
        "no CA": (replace(fine, configurations={**fine.configurations, kind: (empty,)}), "caBundle is empty"),
        "no server": (replace(fine, pods=()), "no pod of the server exists"),
        "not ready": (replace(fine, pods=({**pod, "status": {}},)), "kubectl describe pod -n aim-system server-1"),
        "no leader": (replace(fine, leases=({**lease, "spec": {**lease["spec"], "renewTime": old}},)), "5 min ago"),
        "no storage": (replace(fine, classes=()), "no StorageClass"),
        "an object left out": (
            replace(fine, readiness={"aim-system/server-1": "[!] objects aimservices: left out: AIMService a/b\n"}),
            "left out: AIMService a/b",
        ),
    }


@pytest.mark.parametrize("fault", faults())
def test_each_fault_is_found_and_has_a_fix(fault: str) -> None:
    facts, words = faults()[fault]
    checks = examine(facts)
    assert not healthy(checks)
    (wrong,) = [check for check in checks if check.good is False]
    assert wrong.fix
    assert words in as_text(as_lines(checks))


def test_what_cannot_be_read_is_not_a_fault() -> None:
    why = "not known: pods is forbidden"
    fine = in_order()
    facts = replace(fine, pods=why, leases=why, classes=why, configurations=dict.fromkeys(fine.configurations, why))
    checks = examine(facts)
    assert healthy(checks)
    assert sum(check.good is None for check in checks) == 5
    assert why in as_text(as_lines(checks))


@pytest.fixture
async def cluster() -> AsyncIterator[tuple[str, dict[str, Any]]]:
    """An API server that answers from a table of paths; another path is forbidden."""
    answers: dict[str, Any] = {}

    async def handle(request: web.Request) -> web.Response:
        found = answers.get(request.path)
        if found is None:
            body = {"kind": "Status", "code": 403, "reason": "Forbidden", "message": f"{request.path} is forbidden"}
            return web.Response(body=orjson.dumps(body), status=403, content_type="application/json")
        return web.Response(body=found if isinstance(found, bytes) else orjson.dumps(found))

    app = web.Application()
    app.router.add_route("GET", "/{tail:.*}", handle)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}", answers
    finally:
        await runner.cleanup()


async def test_a_look_at_a_cluster(cluster: tuple[str, dict[str, Any]]) -> None:
    address, answers = cluster
    fine = in_order()
    for group, plurals in fine.served.items():
        assert isinstance(plurals, frozenset)
        answers[f"/apis/{group}"] = {"resources": [{"name": name} for name in plurals]}
    for kind, found in fine.configurations.items():
        answers[kind.path(None)] = {"metadata": {}, "items": list(found)}
    answers["/api/v1/pods"] = {"metadata": {}, "items": list(fine.pods)}
    answers["/apis/storage.k8s.io/v1/storageclasses"] = {"metadata": {}, "items": list(fine.classes)}
    lease = fine.leases[0]
    answers["/apis/coordination.k8s.io/v1/namespaces/aim-system/leases/aim-adapters"] = lease
    answers["/api/v1/namespaces/aim-system/pods/server-1:8080/proxy/readyz"] = b"[!] certificate: expires\nready\n"
    async with Client(plain_credentials(address), within=5) as client:
        checks = examine(await gather(client, lambda: NOW))
        assert [check.name for check in checks if check.good is False] == ["server aim-system/server-1, certificate"]
        answers.clear()
        checks = examine(await gather(client, lambda: NOW))
    assert healthy(checks)
    assert all(check.good is None for check in checks if check.name != "leader"), "nothing may be read"
