"""The life of the node: it stops, is killed, restarts, and leaves nothing behind."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from api.view import JsonObject
from tests.cluster.node.conftest import NODE, NodeProcess, World, is_ready, restarts

pytestmark = pytest.mark.cluster


def processes_with(word: str) -> list[int]:
    """Return the processes that have this word on their command line."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and word.encode() in (entry / "cmdline").read_bytes().split(b"\0"):
                found.append(int(entry.name))
        except OSError:
            continue
    return found


def gone(word: str, seconds: float = 5) -> bool:
    deadline = time.monotonic() + seconds
    while processes_with(word) and time.monotonic() < deadline:
        time.sleep(0.02)
    return not processes_with(word)


async def test_node_is_ready_with_its_gpus_and_labels(world: World) -> None:
    node = await world.kube.get(f"/api/v1/nodes/{NODE}")
    assert is_ready(node)
    assert node["status"]["allocatable"]["amd.com/gpu"] == "8"
    assert node["metadata"]["labels"]["feature.node.kubernetes.io/aim-accelerator.MI300X"] == "true"
    assert await world.kube.get(f"/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/{NODE}")


async def test_killed_node_ends_every_process_and_restarts(world: World, node: NodeProcess) -> None:
    await world.pod("always", "sh", "-c", "setsid sleep 876543 & sleep 876543", pod={"restartPolicy": "Always"})
    await world.pod("never", "sleep", "876543")
    await world.pod("failing", "sleep", "876543", pod={"restartPolicy": "OnFailure"})
    await world.pod("done", "true")
    await world.ended("done")
    for name in ("always", "never", "failing"):
        await world.running(name)
    before = await world.kube.get(world.path("pods", "always"))
    assert processes_with("876543")
    node.stop(signal.SIGKILL)
    assert gone("876543")
    node.start()
    never = await world.until("pods", "never", lambda p: p["status"]["phase"] == "Failed")
    assert never["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 137
    assert any(c["type"] == "DisruptionTarget" and c["status"] == "True" for c in never["status"]["conditions"])
    for name in ("always", "failing"):
        pod = await world.until("pods", name, lambda p: restarts(p) == 1)
        assert pod["status"]["containerStatuses"][0]["lastState"]["terminated"]["reason"] == "ContainerStatusUnknown"
    after = await world.running("always")
    assert after["status"]["podIP"] == before["status"]["podIP"]
    done = await world.kube.get(world.path("pods", "done"))
    assert (done["status"]["phase"], done["status"]["containerStatuses"][0]["restartCount"]) == ("Succeeded", 0)


async def test_stopped_node_ends_its_pods_gracefully(world: World, node: NodeProcess) -> None:
    script = "trap 'echo bye; exit 0' TERM; echo up; while :; do sleep 0.05; done"
    await world.pod("p", "sh", "-c", script, pod={"restartPolicy": "Always"})
    await world.running("p")
    node.stop()
    try:
        assert world.log("p") == "up\nbye\n"
    finally:
        node.start()
    await world.until("pods", "p", lambda p: restarts(p) == 1)


async def test_pod_deleted_while_the_node_was_down(world: World, node: NodeProcess) -> None:
    await world.pod("p", "sleep", "60", pod={"terminationGracePeriodSeconds": 1})
    await world.running("p")
    node.stop(signal.SIGKILL)
    try:
        await world.kube.delete(world.path("pods", "p"))
    finally:
        node.start()
    await world.vanished("pods", "p")


async def test_force_deleted_pod_is_killed(world: World) -> None:
    await world.pod("p", "sleep", "765432", pod={"terminationGracePeriodSeconds": 30})
    await world.running("p")
    await world.kube.delete(world.path("pods", "p"), {"gracePeriodSeconds": 0})
    assert gone("765432", seconds=6)


async def test_job_runs_to_completion(world: World) -> None:
    template = {
        "spec": {
            "restartPolicy": "Never",
            "containers": [
                {"name": "c", "image": "shell:1", "command": ["sh", "-c", "echo ok > /dev/termination-log"]}
            ],
        }
    }
    job = {"kind": "Job", "metadata": {"name": "j"}, "spec": {"backoffLimit": 0, "template": template}}
    await world.put("jobs", job, "batch/v1")
    pods: list[JsonObject] = []
    while not pods:
        pods = await world.kube.list(world.path("pods"), {"labelSelector": "batch.kubernetes.io/job-name=j"})
    state = await world.ended(pods[0]["metadata"]["name"])
    assert state["message"] == "ok\n"
    deadline = time.monotonic() + 10
    while not (await world.kube.get(world.path("jobs", "j", "batch/v1")))["status"].get("succeeded"):
        assert time.monotonic() < deadline


async def test_image_added_to_the_table_starts_a_waiting_pod(world: World, node: NodeProcess) -> None:
    await world.pod("p", image="late:1")
    await world.waiting("p", "ImagePullBackOff")
    text = node.images.read_text()
    fresh = node.images.with_suffix(".new")
    fresh.write_text(text.replace("{", '{"late:*": {"entrypoint": ["true"]}, ', 1))
    os.replace(fresh, node.images)
    try:
        assert (await world.ended("p"))["exitCode"] == 0
    finally:
        node.images.write_text(text)
