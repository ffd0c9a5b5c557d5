"""kube-apiserver keeps its connections to us: under failurePolicy Fail no request fails while replicas restart."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
from collections import Counter
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.cluster.conftest import Cluster

pytestmark = pytest.mark.cluster

REVIEWS = int(os.environ.get("AIM_RESTART_REVIEWS", "1500"))  # `make test-long` asks for 10,000
AT_ONCE = 8
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
    """Delete one pod of ours, wait until two are ready again, then the other."""
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


async def test_w01_no_request_fails_through_a_restart_of_each_replica(cluster: Cluster) -> None:
    """W01: "no endpoints available for service" blocks applies."""
    with proxy(cluster) as origin:
        answers = await drive(cluster, origin)
    assert set(answers) == {201, 422}
    assert sum(answers.values()) >= REVIEWS
