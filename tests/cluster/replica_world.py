"""Replicas of the server that are killed, and a record of their writes from audit log and watches."""

from __future__ import annotations

import asyncio
import json
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from api import view
from api.kinds import AIM_SERVICE, INFERENCE_SERVICE, JOB, LEASE, Kind
from api.names import (
    LABEL_ROLE,
    LEASE_NAME,
    ROLE_FETCH,
    ROLE_STAGING,
    ROLE_SUBTREE_SYNC,
)
from api.view import Json
from kube.client import Client
from kube.errors import ApiError
from reconcile.jobs import job_key

ROOT = Path(__file__).parents[2]


@dataclass
class Replica:
    """One process of `aim-adapters serve` with its own name; killed and started again."""

    name: str
    kubeconfig: Path
    log: Path
    options: tuple[str, ...] = ()
    process: subprocess.Popen[bytes] | None = None
    kills: int = 0

    def start(self) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        command = [
            *(sys.executable, "-m", "cli.main", "serve", "--no-admission", f"--kubeconfig={self.kubeconfig}"),
            *("--namespace=default", f"--pod-name={self.name}", "--bind-address=127.0.0.1", f"--health-port={port}"),
            *("--lease-duration=3s", "--lease-renew-period=500ms", "--lease-write-margin=1s"),
            *("--retry-base=2s", "--reaper-period=1h"),
            *self.options,
        ]
        with self.log.open("ab") as out:
            self.process = subprocess.Popen(command, cwd=ROOT, stdout=out, stderr=out)

    def kill(self) -> None:
        """Kill it at any point."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()
        self.kills += 1

    def running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def stop(self) -> None:
        if self.running():
            assert self.process is not None
            self.process.kill()
            self.process.wait()


async def leader(client: Client) -> str:
    """Return the identity of the current leader, "" for none."""
    lease = await client.find(LEASE, "default", LEASE_NAME)
    return view.text(lease, "spec", "holderIdentity") or ""


@dataclass
class Account:
    """All versions of services, InferenceServices and Jobs of a namespace, in the order of their versions."""

    client: Client
    namespace: str
    versions: dict[Kind, list[Json]] = field(default_factory=dict)
    made: list[Json] = field(default_factory=list)  # Jobs in their created form

    async def follow(self, kind: Kind) -> None:
        """Record every change until cancelled."""
        seen = self.versions.setdefault(kind, [])
        _, version = await self.client.list_all(kind, self.namespace)
        while True:
            try:
                async for event in self.client.watch(kind, version, self.namespace):
                    version = view.text(event.object, "metadata", "resourceVersion") or version
                    if event.type in ("ADDED", "MODIFIED"):
                        seen.append(event.object)
                    if event.type == "ADDED" and kind == JOB:
                        self.made.append(event.object)
            except ApiError:
                await asyncio.sleep(0.1)

    def progress(self) -> int:
        """Return the number of writes that only a leader makes."""
        return len(self.made) + len(self.versions.get(INFERENCE_SERVICE, ()))

    def jobs_made_twice(self) -> Iterator[str]:
        """Return Jobs that were created again without a new request for their work.

        A new request means: between the two, a stored spec of the service did not declare the adapter of a staging, or
        declared another set than that of a sync.
        """
        last: dict[str, Json] = {}
        for job in self.made:
            role = view.text(job, "metadata", "labels", LABEL_ROLE) or ""
            if role not in (ROLE_FETCH, ROLE_STAGING, ROLE_SUBTREE_SYNC):
                continue
            work = f"{role} {job_key(job)}"
            if work in last and not self._asked_again(role, last[work], job):
                yield f"{work}: {view.name_of(last[work])} and {view.name_of(job)}"
            last[work] = job

    def _asked_again(self, role: str, first: Json, second: Json) -> bool:
        if role == ROLE_FETCH:
            return False
        owner = first["metadata"]["ownerReferences"][0]["uid"]
        declared = set(_arguments(first, "declared" if role == ROLE_SUBTREE_SYNC else "path"))
        for service in self.versions[AIM_SERVICE]:
            if view.uid_of(service) == owner and version_of(first) < version_of(service) < version_of(second):
                names = {ref.name for ref in view.adapter_refs(service)}
                if names != declared if role == ROLE_SUBTREE_SYNC else not declared <= names:
                    return True
        return False

    def same_content_twice(self) -> Iterator[str]:
        """Return versions of an InferenceService that are equal to the version before."""
        last: dict[str, Any] = {}
        for isvc in self.versions[INFERENCE_SERVICE]:
            metadata = isvc["metadata"]
            content = {
                "spec": isvc["spec"],
                **{key: metadata.get(key) for key in ("labels", "annotations", "ownerReferences")},
            }
            if last.get(view.uid_of(isvc)) == content:
                yield f"{view.name_of(isvc)} {metadata['resourceVersion']}"
            last[view.uid_of(isvc)] = content


def _arguments(job: Json, name: str) -> list[str]:
    """Return the values of an option in a Job's command."""
    (container,) = job["spec"]["template"]["spec"]["containers"]
    return [word.partition("=")[2] for word in container["args"] if word.startswith(f"--{name}=")]


def version_of(obj: Json) -> int:
    """Return the version as a number: with etcd, all objects share one counter."""
    return int(obj["metadata"]["resourceVersion"])


def audited(log: Path, namespace: str, user: str | None = None) -> Counter[tuple[str, str, int]]:
    """Count writes in a namespace by (verb, resource, code), of all users or of one."""
    counted: Counter[tuple[str, str, int]] = Counter()
    for line in log.read_text().splitlines():
        event = json.loads(line)
        reference = event.get("objectRef") or {}
        if user not in (None, event["user"]["username"]):
            continue
        if reference.get("namespace") == namespace and event["verb"] in ("create", "patch", "update", "delete"):
            resource = "/".join(filter(None, (reference["resource"], reference.get("subresource"))))
            counted[event["verb"], resource, event["responseStatus"]["code"]] += 1
    return counted
