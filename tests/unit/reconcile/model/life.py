"""A tidy cluster for stories: objects by short words, passes on demand."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from api import view
from api.kinds import AIM_ARTIFACT, AIM_CLUSTER_PROFILE, AIM_RUNTIME_CONFIG, AIM_SERVICE, INFERENCE_SERVICE, JOB, Kind
from api.names import LABEL_ROLE, inference_service_name
from api.view import Json
from reconcile.objects import timestamp
from reconcile.settings import ReconcileSettings
from rules.examples import NAMESPACE, manifest
from tests.unit.reconcile.model.cluster import Cluster
from tests.unit.reconcile.model.machinery import Machinery, ServiceFolder, Source
from tests.unit.reconcile.model.store import Store

START = datetime(2026, 1, 1, tzinfo=UTC)


class Life:
    """A cluster with one profile (`qwen3-8b-mi300x`); stories add the rest."""

    def __init__(self, **profile: Any) -> None:
        self.store = Store()
        self.machinery = Machinery(self.store, START)
        self.settings = ReconcileSettings()
        self.cluster = Cluster(self.store, self.machinery, self.settings)
        self.make(AIM_CLUSTER_PROFILE, {"spec": profile})

    # -- objects ----------------------------------------------------------------------------------------------------

    def make(self, kind: Kind, patch: Json) -> None:
        self.store.put(kind, manifest(kind.kind, patch), timestamp(self.machinery.now))

    def adapter(self, name: str, *, rank: int = 16, uri: str | None = None, content: str | None = None) -> None:
        uri = uri or f"hf://acme/{name}"
        self.machinery.sources[uri] = Source(content or f"sha256:{name}", rank)
        spec = {
            "type": "adapter",
            "modelId": "acme/x",
            "sourceUri": uri,
            "compatibleWith": ["Qwen/Qwen3-8B"],
            "rank": rank,
        }
        self.make(AIM_ARTIFACT, {"metadata": {"name": name}, "spec": spec})

    def service(self, mode: str = "dynamic", adapters: Sequence[str] = (), **spec: Any) -> None:
        declared = [{"name": name, "kind": "AIMArtifact"} for name in adapters]
        self.make(AIM_SERVICE, {"spec": {"adapterMode": mode, "adapters": declared, **spec}})

    def config(self, **spec: Any) -> None:
        self.make(AIM_RUNTIME_CONFIG, {"spec": spec})

    def edit(self, **spec: Any) -> None:
        """Edit the service `chat`; `adapters` by their names."""
        new = copy.deepcopy(dict(self.chat["spec"]))
        if "adapters" in spec:
            spec["adapters"] = [{"name": name, "kind": "AIMArtifact"} for name in spec["adapters"]]
        self.store.edit(AIM_SERVICE, "chat", new | spec)

    # -- what is there ----------------------------------------------------------------------------------------------

    @property
    def chat(self) -> dict[str, Any]:
        return self.store.objects[(AIM_SERVICE.kind, "chat")]

    @property
    def status(self) -> Mapping[str, Any]:
        status: dict[str, Any] = self.chat.get("status", {})
        return status

    @property
    def isvc(self) -> dict[str, Any] | None:
        return self.store.get(INFERENCE_SERVICE, inference_service_name("chat", NAMESPACE))

    @property
    def folder(self) -> ServiceFolder:
        """The service's directory on the disk that its status names."""
        return self.machinery.disks[self.status["adapterDiskPersistentVolumeClaimUid"]][view.uid_of(self.chat)]

    def state(self, adapter: str) -> str | None:
        return view.text(self.entry(adapter), "state")

    def entry(self, adapter: str) -> Json:
        return next((entry for entry in view.items(self.chat, "status", "adapters") if entry["name"] == adapter), {})

    def condition(self, kind: str) -> tuple[str, str]:
        found = view.condition(self.chat, kind)
        return found["status"], found["reason"]

    def message(self, kind: str) -> str:
        return str(view.condition(self.chat, kind).get("message", ""))

    def jobs(self, role: str) -> list[dict[str, Any]]:
        return [job for job in self.store.all(JOB) if job["metadata"]["labels"][LABEL_ROLE] == role]

    # -- what happens -----------------------------------------------------------------------------------------------

    def passes(self, rounds: int = 10) -> None:
        """Let the controllers come to rest, Jobs and pods standing still."""
        for _ in range(rounds):
            if not self.cluster.pass_over_all():
                return
        raise AssertionError(f"never rests: {self.store.writes[-10:]}")

    def settle(self) -> None:
        self.cluster.settle()

    def run_jobs(self, role: str, outcome: Any = "ok") -> None:
        for job in self.jobs(role):
            self.machinery.run(job, outcome)

    def writes_of(self, rounds: int = 3) -> list[str]:
        """What some more passes write, whatever the time."""
        self.store.writes.clear()
        self.cluster.events.clear()
        for _ in range(rounds):
            for kind, name in self.cluster.addresses():
                self.cluster.reconcile(kind, name)
        return list(self.store.writes)


__all__ = ["START", "Life"]
