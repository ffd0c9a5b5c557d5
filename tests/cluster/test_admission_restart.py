"""kube-apiserver keeps connections to the webhook: with failurePolicy Fail, no request fails while replicas restart.

A killed replica fails only the reviews that it was answering, until its endpoint is withdrawn.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.cluster.conftest import Cluster
from tests.reviews import LONG, Stream

pytestmark = pytest.mark.cluster

REVIEWS = 10_000 if LONG else 1500
AT_ONCE = 8
KILL_RATE = 200.0 if LONG else 100.0  # reviews a second
WITHDRAWN_SECONDS = 2.0  # time until the endpoint of a dead replica is withdrawn
PATH = "/apis/aim.eai.amd.com/v1alpha1/namespaces/default/aimartifacts?dryRun=All"


@contextlib.contextmanager
def proxy(cluster: Cluster) -> Iterator[str]:
    """The API server without TLS and authentication, on loopback."""
    command = [cluster.info["kubectl"], "--kubeconfig", str(cluster.kubeconfig), "proxy", "--port=0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield f"http://{process.stdout.readline().rsplit(' ', 1)[1].strip()}"
        finally:
            process.terminate()


def artifact(index: int) -> dict[str, Any]:
    spec: dict[str, Any] = {
        "type": "adapter",
        "modelId": "a/b",
        "sourceUri": "s3://a-bucket/b/",
        "compatibleWith": ["a/c"],
    }
    if index % 5 == 0:
        spec["compatibleWith"] = []
    return {
        "apiVersion": "aim.eai.amd.com/v1alpha1",
        "kind": "AIMArtifact",
        "metadata": {"name": f"restart-{index}", "namespace": "default"},
        "spec": spec,
    }


async def replace_replicas(cluster: Cluster, half_done: asyncio.Event) -> None:
    """Delete one pod of the server, wait until two are ready again, then delete the other."""
    await half_done.wait()
    namespace = cluster.info["namespace"]

    def pods() -> list[dict[str, Any]]:
        return [pod for pod in cluster.items("pods", namespace) if "deletionTimestamp" not in pod["metadata"]]

    def ready(pod: dict[str, Any]) -> bool:
        return any(c["type"] == "Ready" and c["status"] == "True" for c in pod["status"].get("conditions", []))

    names = [pod["metadata"]["name"] for pod in pods() if pod["metadata"]["name"].startswith("aim-adapters")]
    for name in names:
        await asyncio.to_thread(cluster.kubectl, "delete", "pod", name, "-n", namespace, "--wait=false")
        await asyncio.to_thread(
            cluster.wait,
            lambda gone=name: (
                len([pod for pod in pods() if ready(pod)]) >= len(names)
                and gone not in {pod["metadata"]["name"] for pod in pods()}
            ),
            120,
            "a successor is ready",
        )


async def drive(cluster: Cluster, origin: str) -> Counter[int]:
    answers: Counter[int] = Counter()
    begun, replaced = asyncio.Event(), asyncio.Event()
    numbers = iter(range(REVIEWS * 100))

    async def worker(client: httpx.AsyncClient) -> None:
        while sum(answers.values()) < REVIEWS or not replaced.is_set():
            index = next(numbers)
            response = await client.post(f"{origin}{PATH}", json=artifact(index))
            wanted = 422 if index % 5 == 0 else 201
            if response.status_code != wanted:
                pytest.fail(f"{response.status_code} instead of {wanted}: {response.text[:500]}")
            answers[response.status_code] += 1
            begun.set()

    async def replace() -> None:
        await replace_replicas(cluster, begun)
        replaced.set()

    async with httpx.AsyncClient(timeout=30) as client, asyncio.TaskGroup() as group:
        group.create_task(replace())
        for _ in range(AT_ONCE):
            group.create_task(worker(client))
    return answers


async def test_no_request_fails_through_a_restart_of_each_replica(cluster: Cluster) -> None:
    """Applies never fail with "no endpoints available for service"."""
    with proxy(cluster) as origin:
        answers = await drive(cluster, origin)
    assert set(answers) == {201, 422}
    assert sum(answers.values()) >= REVIEWS


def server_pods(cluster: Cluster) -> list[dict[str, Any]]:
    """Return the server's pods that are not terminating."""
    found = cluster.items("pods", cluster.info["namespace"], "-l", "app.kubernetes.io/component=server")
    return [pod for pod in found if "deletionTimestamp" not in pod["metadata"]]


def process_of(pod: dict[str, Any]) -> int:
    """Return the server process of a pod, found by its environment."""
    wanted = f"AIMA_POD_NAME={pod['metadata']['name']}".encode()
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            has_name = wanted in (path / "environ").read_bytes().split(b"\0")
            if has_name and b"serve" in (path / "cmdline").read_bytes().split(b"\0"):
                return int(path.name)
    pytest.fail(f"no process of {pod['metadata']['name']}")


def is_leader(cluster: Cluster, pod: dict[str, Any]) -> bool:
    """Return whether a pod holds the lease."""
    lease = cluster.get("lease", "aim-adapters", cluster.info["namespace"])
    return lease is not None and lease["spec"].get("holderIdentity", "").startswith(pod["metadata"]["name"])


def test_a_killed_replica_fails_only_the_reviews_in_flight(cluster: Cluster) -> None:
    """kill -9 of the leader and of the other replica: failures are retryable, and end within 2 s."""
    pods = server_pods(cluster)
    assert len(pods) == 2
    for pod in sorted(pods, key=lambda pod: is_leader(cluster, pod)):
        name, restarts = pod["metadata"]["name"], pod["status"]["containerStatuses"][0]["restartCount"]

        def back(name: str = name, restarts: int = restarts) -> bool:
            found = next(each for each in server_pods(cluster) if each["metadata"]["name"] == name)
            status = found["status"]["containerStatuses"][0]
            return bool(status["restartCount"] > restarts and status["ready"])

        role = "leader" if is_leader(cluster, pod) else "stand-by"
        with Stream(cluster.kubeconfig, KILL_RATE) as reviews:
            reviews.more(50)
            killed = time.monotonic()
            os.kill(process_of(pod), signal.SIGKILL)
            cluster.wait(back, 90, f"{name} is back")
            reviews.more(50)
        print(reviews.summary(f"kill -9 of the {role}"))  # noqa: T201 - the proof
        last = max((failure.at - killed for failure in reviews.failed), default=0.0)
        print(f"  the last that failed was sent {last:.2f} s after the kill")  # noqa: T201
        assert [failure for failure in reviews.failed if not failure.retryable] == []
        assert [failure for failure in reviews.failed if failure.at > killed + WITHDRAWN_SECONDS] == []
        assert len(reviews.failed) < KILL_RATE * WITHDRAWN_SECONDS
