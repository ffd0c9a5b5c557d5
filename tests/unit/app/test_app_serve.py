"""The whole process over a small API server: start, readiness, certificates, leading, the end."""

from __future__ import annotations

import asyncio
import base64
import os
import signal
import ssl
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import orjson
import pytest
from prometheus_client import REGISTRY

import app.serve
from api.kinds import Kind
from app.serve import Stop
from app.settings import Settings, load_settings
from app.wiring import Parts, Wiring
from certs.decide import authority_validity
from certs.pem import make_authority
from kube.cache import Key
from kube.engine import Watch
from kube.informer import Informer
from rules.worlds import SnapshotWorld
from tests.unit.kube.fake_api import FakeApi, serve, write_kubeconfig
from tests.unit.webhooks.reviews import review
from tests.waiting import until
from webhooks.admission import Admission

WIDGET = Kind("example.com", "v1", "widgets", "Widget")
BODY = orjson.dumps(review({"metadata": {"name": "a"}}, kind=WIDGET))
REVIEW = b"POST /validate HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % len(BODY) + BODY


class Controller:
    """Applies a status to each widget, slowly."""

    name = "widget"

    def __init__(self, parts: Parts, informer: Informer) -> None:
        self.watches = [Watch(informer)]
        self._writer = parts.writer
        self.begun = 0
        self.ended = 0

    async def reconcile(self, key: Key) -> timedelta | None:
        self.begun += 1
        await asyncio.sleep(0.3)
        await self._writer.apply(WIDGET, {"metadata": {"namespace": key[0], "name": key[1]}, "done": True})
        self.ended += 1
        return None


class World:
    """A fake API server with what the process needs, and hooks into what runs."""

    def __init__(self, tmp_path: Path) -> None:
        self.api = FakeApi()
        self.api.served |= {"secrets", "services"}
        self.api.served |= {"validatingwebhookconfigurations", "mutatingwebhookconfigurations"}
        hooks = [{"name": "a", "clientConfig": {}}, {"name": "b", "clientConfig": {"caBundle": "b2xk"}}]
        self.api.put("validatingwebhookconfigurations", "", "aim-adapters", webhooks=hooks)
        self.api.put("mutatingwebhookconfigurations", "", "aim-adapters", webhooks=hooks[:1])
        self.api.put("services", "ns", "aim-adapters-webhook", spec={"clusterIP": "127.0.0.1"})
        self.folder = tmp_path
        self.controllers: list[Controller] = []

    def settings(self, server: str, **more: object) -> Settings:
        path = self.folder / "kubeconfig"
        write_kubeconfig(path, server)
        given: dict[str, object] = {
            "kubeconfig": str(path),
            "namespace": "ns",
            "bind_address": "127.0.0.1",
            "admission_port": "0",
            "health_port": "0",
            "drain": "200ms",
            "shutdown_grace": "5s",
            "lease_duration": "3s",
            "lease_renew_period": "300ms",
            "lease_write_margin": "500ms",
        }
        return load_settings({**given, **more}, environ={})[0]

    def wire(self, parts: Parts) -> Wiring:
        informer = Informer(parts.client, WIDGET)
        controller = Controller(parts, informer)
        self.controllers.append(controller)

        admission = Admission(SnapshotWorld()) if parts.settings.admission else None
        return Wiring([controller], [], [informer], admission)

    def bundles(self) -> list[str]:
        found = []
        for plural in ("validatingwebhookconfigurations", "mutatingwebhookconfigurations"):
            hooks = self.api.objects[(plural, "", "aim-adapters")]["webhooks"]
            found += [hook["clientConfig"].get("caBundle", "") for hook in hooks]
        return found


class Running:
    """One running process."""

    def __init__(self, process: Any, stop: Stop, task: asyncio.Task[int]) -> None:
        self.process, self.stop, self.task = process, stop, task

    def port(self, name: str) -> int:
        return next(int(server.address[1]) for server in self.process._servers if server.name == name)

    async def get(self, path: str) -> tuple[int, str]:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port("health"))
        return await _get(reader, writer, path)

    async def review(self, world: World) -> tuple[int, str]:
        bundle = base64.b64decode(world.bundles()[0]).decode()
        context = ssl.create_default_context(cadata=bundle)
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", self.port("admission"), ssl=context, server_hostname="aim-adapters-webhook.ns.svc"
        )
        status, text = await _send(reader, writer, REVIEW)
        return status, "reviewed" if '"allowed":true' in text else text


async def _get(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, path: str) -> tuple[int, str]:
    return await _send(reader, writer, f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())


async def _send(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, request: bytes) -> tuple[int, str]:
    writer.write(request)
    head, _, body = (await asyncio.wait_for(reader.read(), 5)).partition(b"\r\n\r\n")
    writer.close()
    return int(head.split()[1]), body.decode()


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


@pytest.fixture(autouse=True)
def _wired(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app.serve, "wire", world.wire)


@asynccontextmanager
async def running(world: World, server: str, **settings: object) -> AsyncIterator[Running]:
    made: list[Any] = []
    real = app.serve._Process

    class Process(real):  # type: ignore[misc, valid-type]
        def __init__(self, *args: Any) -> None:
            super().__init__(*args)
            made.append(self)

    stop = Stop()
    app.serve._Process = Process  # type: ignore[assignment,misc]
    try:
        task = asyncio.create_task(app.serve.serve(world.settings(server, **settings), stop))
        await until(lambda: made and all(s.started for s in made[0]._servers))
    finally:
        app.serve._Process = real  # type: ignore[misc]
    try:
        yield Running(made[0], stop, task)
    finally:
        stop.asked.set()
        assert await asyncio.wait_for(task, 10) == 0


async def ready(process: Running) -> None:
    async with asyncio.timeout(8):
        while (await process.get("/readyz"))[0] != 200:  # noqa: ASYNC110 - a page is polled
            await asyncio.sleep(0.02)


async def test_it_becomes_ready_serves_trusted_tls_and_reconciles(world: World) -> None:
    world.api.put("widgets", "ns", "a")
    async with serve(world.api) as server, running(world, server) as process:
        await ready(process)
        assert len(set(world.bundles())) == 1
        assert await process.review(world) == (200, "reviewed")
        await until(lambda: world.controllers[0].ended)
        assert world.api.objects[("widgets", "ns", "a")]["done"] is True
        assert (await process.get("/healthz"))[0] == 200
        _, metrics = await process.get("/metrics")
        for name in ("certificate_expiry_timestamp_seconds", "leader 1.0", "event_loop_stall_seconds", "cache_objects"):
            assert f"aim_adapters_{name}" in metrics


async def test_the_token_is_sent_and_never_logged(world: World, caplog: pytest.LogCaptureFixture) -> None:
    async with serve(world.api) as server, running(world, server) as process:
        await ready(process)
    assert "secret-token" not in caplog.text


async def test_a_damaged_bundle_is_healed_at_once(world: World) -> None:
    async with serve(world.api) as server, running(world, server) as process:
        await ready(process)
        await until(lambda: len(world.api.watchers) >= 3)
        good = world.bundles()[0]
        hooks = [{"name": "a", "clientConfig": {"caBundle": "AAAA"}}]
        world.api.put("validatingwebhookconfigurations", "", "aim-adapters", webhooks=hooks)
        await until(lambda: set(world.bundles()) == {good}, 3)


async def test_it_is_not_ready_before_its_caches_are_filled(world: World) -> None:
    world.api.served.discard("widgets")
    async with serve(world.api) as server, running(world, server) as process:
        await until(lambda: set(world.bundles()) != {"", "b2xk"})
        await asyncio.sleep(0.3)
        status, text = await process.get("/readyz")
        assert status == 503
        assert "[-] cache widgets: not filled yet" in text
        assert "is its CRD installed?" in text
        world.api.served.add("widgets")
        await asyncio.sleep(0)


async def test_the_end_is_in_good_order(world: World) -> None:
    """Not ready at once; the pass in flight is finished; admission is served while the endpoint is withdrawn; the
    lease is free at once for the next."""
    world.api.put("widgets", "ns", "a")
    async with serve(world.api) as server:
        async with running(world, server, drain="600ms") as process:
            await ready(process)
            await until(lambda: world.controllers[0].begun)
            process.stop.asked.set()
            await asyncio.sleep(0.05)
            status, text = await process.get("/readyz")
            assert (status, "shutting down" in text) == (503, True)
            assert await process.review(world) == (200, "reviewed")
            await until(lambda: world.api.objects[("leases", "ns", "aim-adapters")]["spec"]["holderIdentity"] == "")
            assert world.controllers[0].ended == world.controllers[0].begun
            assert not process.task.done()
            assert await process.review(world) == (200, "reviewed")
        async with running(world, server) as other:
            await until(lambda: other.process._lease.is_held, 2)


async def test_it_serves_on_while_reviews_still_come(world: World) -> None:
    """The endpoint is withdrawn late: reviews that still arrive are answered, for longer than `drain`."""
    async with serve(world.api) as server, running(world, server, drain="1s", shutdown_grace="10s") as process:
        await ready(process)
        begun = time.monotonic()
        process.stop.asked.set()
        while time.monotonic() - begun < 2.5:
            assert await process.review(world) == (200, "reviewed")
            await asyncio.sleep(0.05)
        assert not process.task.done()
        assert await asyncio.wait_for(process.task, 3) == 0


async def test_two_replicas_share_certificates_and_one_leads(world: World) -> None:
    """Both replicas are ready and answer; only one leads."""
    world.api.put("widgets", "ns", "a")
    async with serve(world.api) as server, running(world, server) as one, running(world, server) as two:
        await ready(one)
        await ready(two)
        await until(lambda: any(controller.ended for controller in world.controllers))
        assert one.process._certificate.fingerprint == two.process._certificate.fingerprint
        assert min(controller.begun for controller in world.controllers) == 0
        assert await one.review(world) == await two.review(world) == (200, "reviewed")


async def test_mounted_certificates_need_no_rights_in_the_cluster(world: World, tmp_path: Path) -> None:
    folder = tmp_path / "tls"
    folder.mkdir()
    world.api.served -= {"secrets", "services"}
    async with (
        serve(world.api) as server,
        running(world, server, certificates="mounted", certificate_dir=str(folder)) as process,
    ):
        await asyncio.sleep(0.1)
        status, text = await process.get("/readyz")
        assert status == 503
        assert "No such file" in text
        from tests.unit.app.test_app_servers import certificate

        pair = certificate()._pair
        assert pair is not None
        (folder / "tls.crt").write_bytes(pair.certificate)
        (folder / "tls.key").write_bytes(pair.key)
        await ready(process)


async def test_client_authorities_are_followed_and_metrics_ask_for_none(world: World, tmp_path: Path) -> None:
    """A broken file is reported in log, metric and readiness, and breaks no connection."""
    file = tmp_path / "client-ca.crt"
    validity = authority_validity(datetime.now(UTC), timedelta(days=1))
    file.write_bytes(make_authority("clients", validity).certificate)
    settings = {"client_ca_file": str(file), "metrics_auth": True, "metrics_port": "0"}
    async with serve(world.api) as server, running(world, server, **settings) as process:
        await ready(process)
        with pytest.raises((OSError, IndexError)):
            await process.review(world)
        context = ssl.create_default_context(cadata=base64.b64decode(world.bundles()[0]).decode())
        _, writer = await asyncio.open_connection(
            "127.0.0.1", process.port("metrics"), ssl=context, server_hostname="aim-adapters-webhook.ns.svc"
        )
        writer.close()
        file.write_text("garbage")
        await until(lambda: process.process._certificate.problem, 10)
        status, page = await process.get("/readyz")
        assert status == 200
        assert f"[!] certificate: {file}: no PEM certificate could be read" in page
        assert REGISTRY.get_sample_value("aim_adapters_certificate_problem") == 1
        file.write_bytes(make_authority("others", validity).certificate)
        await until(lambda: process.process._certificate.problem is None, 10)


async def test_a_missing_client_ca_is_reported_and_ends_it(
    world: World, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "ca.crt").write_text("garbage")
    async with serve(world.api) as server:
        assert await app.serve.serve(world.settings(server, client_ca_file=str(tmp_path / "ca.crt")), Stop()) == 1
    assert "cannot serve" in caplog.text


async def test_admission_only_takes_no_lease(world: World) -> None:
    async with serve(world.api) as server, running(world, server, reconciler=False) as process:
        await ready(process)
    assert not [key for key in world.api.objects if key[0] == "leases"]
    assert world.controllers[0].begun == 0


async def test_reconciler_only_needs_no_certificate(world: World) -> None:
    world.api.put("widgets", "ns", "a")
    async with serve(world.api) as server, running(world, server, admission=False) as process:
        await ready(process)
        await until(lambda: world.controllers[0].ended)
    assert not [key for key in world.api.objects if key[0] == "secrets"]


async def test_protected_metrics(world: World) -> None:
    async with serve(world.api) as server, running(world, server, metrics_auth=True, metrics_port="0") as process:
        await ready(process)
        assert (await process.get("/metrics"))[0] == 404
        bundle = base64.b64decode(world.bundles()[0]).decode()
        reader, writer = await asyncio.open_connection(
            "127.0.0.1",
            process.port("metrics"),
            ssl=ssl.create_default_context(cadata=bundle),
            server_hostname="aim-adapters-webhook.ns.svc",
        )
        assert (await _get(reader, writer, "/metrics"))[0] == 401


async def test_a_taken_port_is_reported_and_ends_it(world: World, caplog: pytest.LogCaptureFixture) -> None:
    async with serve(world.api) as server:
        port = server.rsplit(":", 1)[1]
        code = await app.serve.serve(world.settings(server, health_port=port), Stop())
    assert code == 1
    assert "cannot serve" in caplog.text


async def test_missing_credentials_are_reported_and_end_it(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    settings, _ = load_settings({"kubeconfig": str(tmp_path / "none")}, environ={})
    assert await app.serve.serve(settings, Stop()) == 2
    assert "no credentials for a cluster" in caplog.text


async def spawn(world: World, server: str, *more: str) -> asyncio.subprocess.Process:
    world.settings(server)
    ports = ("--bind-address", "127.0.0.1", "--admission-port", "0", "--health-port", "0")
    command = (sys.executable, "-m", "cli.main", "serve", "--no-reconciler", "--namespace", "ns", *ports, *more)
    env = {**os.environ, "AIMA_KUBECONFIG": str(world.folder / "kubeconfig")}
    root = Path(app.serve.__file__).parents[1]
    return await asyncio.create_subprocess_exec(*command, stderr=asyncio.subprocess.PIPE, env=env, cwd=root)


@pytest.mark.parametrize(
    ("signals", "code"), [((signal.SIGTERM,), 0), ((signal.SIGINT,), 0), ((signal.SIGINT, signal.SIGINT), 130)]
)
async def test_signals(world: World, signals: tuple[int, ...], code: int) -> None:
    async with serve(world.api) as server:
        process = await spawn(world, server, "--drain", "1s")
        assert process.stderr is not None
        while b'"serving"' not in (line := await asyncio.wait_for(process.stderr.readline(), 20)):
            assert line, "the process ended early"
        for number in signals:
            process.send_signal(number)
            await asyncio.sleep(0.2)
        output = await asyncio.wait_for(process.stderr.read(), 15)
        assert await asyncio.wait_for(process.wait(), 5) == code
        assert b"Traceback" not in output
