"""Probes, and Services that depend on them."""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import Any

import pytest

from api.view import JsonObject
from tests.cluster.node.conftest import World, is_ready, restarts

pytestmark = pytest.mark.cluster

# answers with the pod's name; /health is 503 while /sick has a file of that name
SERVER = """
import http.server, os, socket, sys
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        sick = self.path == "/health" and os.path.exists("/sick/" + socket.gethostname())
        self.send_response(503 if sick else 200)
        self.end_headers()
        self.wfile.write(socket.gethostname().encode())
    def log_message(self, *_): pass
http.server.ThreadingHTTPServer((os.environ["POD_IP"], 8000), Handler).serve_forever()
"""
IP = {"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}
HEALTH = {"httpGet": {"path": "/health", "port": "http"}, "periodSeconds": 1}


async def server(world: World, name: str, labels: JsonObject | None = None, **fields: Any) -> None:
    container = {
        "name": "c",
        "image": "python:1",
        "args": ["-u", "-c", SERVER],
        "env": [IP],
        "ports": [{"name": "http", "containerPort": 8000}],
        **fields,
    }
    spec = {"automountServiceAccountToken": False, "terminationGracePeriodSeconds": 0, "containers": [container]}
    if "volumeMounts" in fields:
        spec["volumes"] = [{"name": "sick", "persistentVolumeClaim": {"claimName": "sick"}}]
    meta = {"name": name, "labels": labels or {"app": name}}
    await world.put("pods", {"kind": "Pod", "metadata": meta, "spec": spec})


async def service(world: World, name: str, target: int | str = "http") -> str:
    """Make a Service for the pods labelled `web` and return its address."""
    spec = {"selector": {"app": "web"}, "ports": [{"port": 8080, "targetPort": target}]}
    made = await world.put("services", {"kind": "Service", "metadata": {"name": name}, "spec": spec})
    address: str = made["spec"]["clusterIP"]
    await listening(address)
    return address


async def listening(address: str, port: int = 8080, seconds: float = 5) -> None:
    """Wait until something listens there."""
    async with asyncio.timeout(seconds):
        while True:
            with contextlib.suppress(OSError):
                _, writer = await asyncio.open_connection(address, port)
                writer.close()
                return
            await asyncio.sleep(0.02)


async def ask(address: str, port: int = 8080) -> str:
    """Return the server's answer, "" when the connection is refused or closed at once."""
    try:
        async with asyncio.timeout(5):
            reader, writer = await asyncio.open_connection(address, port)
            writer.write(b"GET / HTTP/1.0\r\n\r\n")
            answer = await reader.read()
            writer.close()
    except OSError:
        return ""
    return answer.rpartition(b"\r\n\r\n")[2].decode()


async def test_readiness_follows_its_probe(world: World) -> None:
    script = "touch /tmp/ok; sleep 1; rm /tmp/ok; sleep 60"
    probe = {"exec": {"command": ["test", "-e", "/tmp/ok"]}, "periodSeconds": 1, "failureThreshold": 1}
    await world.pod("p", "sh", "-c", script, readinessProbe=probe)
    await world.running("p")
    await world.until("pods", "p", lambda p: not is_ready(p))
    assert "Readiness probe failed" in (await world.event("p", "Unhealthy"))["message"]
    pod = await world.kube.get(world.path("pods", "p"))
    assert pod["status"]["phase"] == "Running"
    assert pod["status"]["containerStatuses"][0]["restartCount"] == 0


async def test_failed_liveness_restarts(world: World) -> None:
    probe = {"exec": {"command": ["false"]}, "periodSeconds": 1, "failureThreshold": 1}
    fields: JsonObject = {"livenessProbe": {**probe, "terminationGracePeriodSeconds": 1}}
    await world.pod("p", "sleep", "60", pod={"restartPolicy": "Always"}, **fields)
    pod = await world.until("pods", "p", lambda p: restarts(p) >= 1)
    assert pod["status"]["containerStatuses"][0]["lastState"]["terminated"]["exitCode"] == 137
    assert "failed liveness probe" in (await world.event("p", "Killing"))["message"]


async def test_startup_probe_delays_the_others(world: World) -> None:
    startup = {"tcpSocket": {"port": 8000}, "periodSeconds": 1, "failureThreshold": 30}
    liveness = {"exec": {"command": ["false"]}, "periodSeconds": 1, "failureThreshold": 1}
    await world.pod("p", "sleep", "3", startupProbe=startup, livenessProbe=liveness)
    state = await world.ended("p")
    assert state["exitCode"] == 0  # liveness did not run
    pod = await world.kube.get(world.path("pods", "p"))
    assert pod["status"]["containerStatuses"][0]["restartCount"] == 0


async def test_http_probe_by_port_name_makes_ready_soon(world: World) -> None:
    slow = {**HEALTH, "periodSeconds": 10, "failureThreshold": 360}
    await server(world, "web", startupProbe=slow, readinessProbe=slow)
    began = time.monotonic()
    await world.running("web")
    assert time.monotonic() - began < 5  # a success counts long before the period ends


async def test_service_reaches_every_ready_pod_in_turn(world: World) -> None:
    for name in ("one", "two"):
        await server(world, name, {"app": "web"}, readinessProbe=HEALTH)
        await world.running(name)
    address = await service(world, "svc")
    assert {await ask(address) for _ in range(4)} == {"one", "two"}


async def test_service_without_ready_pod_closes_at_once(world: World) -> None:
    address = await service(world, "svc", 8000)
    began = time.monotonic()
    assert await ask(address) == ""
    assert time.monotonic() - began < 1


async def test_unready_and_deleted_pods_are_withdrawn(world: World) -> None:
    sick = await world.claim("sick")
    mounts = [{"name": "sick", "mountPath": "/sick"}]
    for name in ("one", "two", "three"):
        await server(world, name, {"app": "web"}, readinessProbe={**HEALTH, "failureThreshold": 1}, volumeMounts=mounts)
        await world.running(name)
    address = await service(world, "svc")
    await world.kube.delete(world.path("pods", "one"))
    await world.vanished("pods", "one")
    assert {await ask(address) for _ in range(6)} == {"two", "three"}
    (sick / "two").touch()
    await world.until("pods", "two", lambda p: not is_ready(p))
    assert {await ask(address) for _ in range(4)} == {"three"}
    (sick / "two").unlink()
    await world.running("two")
    assert {await ask(address) for _ in range(6)} == {"two", "three"}


async def test_large_answers_pass_completely_and_half_closed(world: World) -> None:
    code = """
import os, socket
listener = socket.create_server((os.environ["POD_IP"], 8000))
while True:
    connection, _ = listener.accept()
    size = 0
    while block := connection.recv(1 << 20):
        size += len(block)
    if size:  # a probe only connects
        connection.sendall(b"%d;" % size + b"y" * 20_000_000)
    connection.close()
"""
    await server(world, "web", {"app": "web"}, args=["-c", code], readinessProbe={"tcpSocket": {"port": 8000}})
    address = await service(world, "svc", 8000)
    await world.running("web")
    async with asyncio.timeout(20):
        reader, writer = await asyncio.open_connection(address, 8080)
        writer.write(b"x" * 5_000_000)
        writer.write_eof()
        answer = await reader.read()
        writer.close()
    assert answer.startswith(b"5000000;")
    assert len(answer) == len("5000000;") + 20_000_000


async def test_two_pods_use_the_same_port(world: World) -> None:
    for name in ("one", "two"):
        await server(world, name, readinessProbe=HEALTH)
    addresses = [(await world.running(name))["status"]["podIP"] for name in ("one", "two")]
    assert [await ask(address, 8000) for address in addresses] == ["one", "two"]
