"""A team in its own namespace: what it applies, and how it reads the result."""

from __future__ import annotations

import json
import shutil
import time
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from api.view import JsonObject
from devcluster.base_models import BASE_MODELS
from devcluster.sample_adapters import SampleAdapter, write_adapter
from tests.cluster.conftest import Cluster

BASES = {model.model_id: model for model in BASE_MODELS}
TINY = BASES["acme/tiny-llama"]
FIXTURES = Path(__file__).parents[2] / "fixtures" / "adapters"
ON_DISK = ("Downloaded", "Loaded")
IMAGE = "aim-dev/model-server:0.13.0"
PIPELINES = ("profile", "template")
# the stand-in reads its folder each second instead of each fifth (the product's minimum), so that the tests wait for
# the product only
_WATCHFUL = {"name": "AIM_STAND_IN_REFRESH_SECONDS", "value": "1"}


@dataclass
class Team:
    """One tenant. `pipeline`: `profile` (v1alpha2) or `template` (v1alpha1)."""

    cluster: Cluster
    namespace: str
    pipeline: str = "profile"

    # -- sources ----------------------------------------------------------------------------------------------------

    def put(self, name: str, *, rank: int = 8, where: str = "hf") -> str:
        """Put a valid adapter for the small base into a source of this namespace; return its URI."""
        if where == "hf":
            write_adapter(Path(self.cluster.info["hub"]["root"]), SampleAdapter(f"{self.namespace}/{name}", TINY, rank))
            return f"hf://{self.namespace}/{name}"
        write_adapter(Path(self.cluster.info["s3"]["root"]), SampleAdapter(f"{self.namespace}/{name}", TINY, rank))
        return f"s3://{self.namespace}/{name}/"

    def put_fixture(self, fixture: str) -> str:
        """Put one of the adapters that the real library wrote onto the hub; return its URI."""
        target = Path(self.cluster.info["hub"]["root"]) / self.namespace / fixture
        if not target.exists():
            shutil.copytree(FIXTURES / fixture, target)
        return f"hf://{self.namespace}/{fixture}"

    def requests(self, source: str) -> list[JsonObject]:
        """Return the requests to a source so far."""
        facts = self.cluster.info[source]
        secret = facts["token"] if source == "hub" else facts["secretKey"]
        request = urllib.request.Request(f"{facts['endpoint']}/_requests", headers={"X-Control-Secret": secret})
        with urllib.request.urlopen(request, timeout=5) as answer:
            body = json.load(answer)
        found: list[JsonObject] = body["requests"] if isinstance(body, dict) else body
        return found

    # -- objects ----------------------------------------------------------------------------------------------------

    def adapter(self, name: str, uri: str | None = None, **spec: Any) -> JsonObject:
        """An AIMArtifact of type adapter for the small base."""
        body = {
            "type": "adapter",
            "modelId": f"acme/{name}"[:120],
            "compatibleWith": [TINY.model_id],
            "sourceUri": uri or f"hf://{self.namespace}/{name}",
            "rank": 8,
        } | spec
        return self._object("v1alpha1", "AIMArtifact", name, {k: v for k, v in body.items() if v is not None})

    def service(
        self, name: str, adapters: list[str] | None = None, *, mode: str = "dynamic", **spec: Any
    ) -> JsonObject:
        """An AIMService of the team's pipeline."""
        body: JsonObject = {"adapterMode": mode, **spec, "env": [*spec.get("env", ()), _WATCHFUL]}
        if adapters:
            body["adapters"] = [{"name": adapter, "kind": "AIMArtifact"} for adapter in adapters]
        if self.pipeline == "profile":
            return self._object("v1alpha2", "AIMService", name, {"profile": {"name": "tiny-mi300x"}} | body)
        return self._object("v1alpha1", "AIMService", name, {"model": {"name": "tiny"}} | body)

    def model_and_template(self) -> list[JsonObject]:
        """The other objects that the template pipeline needs."""
        source = {"modelId": TINY.model_id, "sourceUri": f"hf://{TINY.model_id}", "size": "16Mi"}
        hardware = {"gpu": {"model": "MI300X", "requests": 1}}
        return [
            self._object("v1alpha1", "AIMModel", "tiny", {"image": IMAGE, "modelSources": [source]}),
            self._object("v1alpha1", "AIMServiceTemplate", "tiny", {"modelName": "tiny", "hardware": hardware}),
        ]

    def _object(self, version: str, kind: str, name: str, spec: JsonObject) -> JsonObject:
        metadata = {"name": name, "namespace": self.namespace}
        return {"apiVersion": f"aim.eai.amd.com/{version}", "kind": kind, "metadata": metadata, "spec": spec}

    # -- acting -----------------------------------------------------------------------------------------------------

    def apply(self, *objects: JsonObject) -> str:
        """Apply objects; fail the test if one is refused."""
        return self.cluster.apply(*objects)

    def delete(self, kind: str, name: str) -> None:
        """Delete an object and wait until it is gone."""
        self.cluster.kubectl("delete", kind, name, "-n", self.namespace, "--wait=true")

    # -- looking ----------------------------------------------------------------------------------------------------

    def get(self, kind: str, name: str) -> JsonObject:
        """Return an object, {} when there is none."""
        return self.cluster.get(kind, name, self.namespace) or {}

    def status(self, service: str) -> JsonObject:
        """Return the service's status, {} when there is none."""
        found: JsonObject = self.get("aimservice", service).get("status") or {}
        return found

    def entry(self, service: str, adapter: str) -> JsonObject:
        """Return an adapter's entry in the service's status, {} when there is none."""
        return next((e for e in self.status(service).get("adapters") or [] if e["name"] == adapter), {})

    def condition(self, service: str, kind: str) -> JsonObject:
        """Return a condition of the service, {} when there is none."""
        return next((c for c in self.status(service).get("conditions") or [] if c["type"] == kind), {})

    def isvc(self, service: str) -> JsonObject:
        """Return the service's InferenceService, {} when there is none."""
        found = self.cluster.items("isvc", self.namespace, "-l", f"aim.eai.amd.com/service={service}")
        return found[0] if found else {}

    def pods(self, service: str) -> list[JsonObject]:
        """Return the pods of the model server."""
        return self.cluster.items(
            "pods", self.namespace, "-l", f"aim.eai.amd.com/service={service},component=predictor"
        )

    def running(self, service: str) -> tuple[str, int, int]:
        """Return what must not change when adapters change: pod UID, restart count, InferenceService generation."""
        (pod,) = self.pods(service)
        restarts = sum(status["restartCount"] for status in pod["status"]["containerStatuses"])
        return pod["metadata"]["uid"], restarts, self.isvc(service)["metadata"]["generation"]

    def replaced(self, service: str, before: tuple[str, int, int]) -> bool:
        """Whether one pod runs, and it is not the same as before (see `running`)."""
        pods = self.pods(service)
        return len(pods) == 1 and pods[0]["metadata"]["uid"] != before[0]

    def models(self, service: str) -> set[str]:
        """Ask the model server for its list of models."""
        url = (self.isvc(service).get("status") or {}).get("url")
        if not url:
            return set()
        try:
            with urllib.request.urlopen(f"{url}/v1/models", timeout=5) as answer:
                return {entry["id"] for entry in json.load(answer)["data"]}
        except OSError:
            return set()

    def subtree(self, service: str) -> Path:
        """Return the directory that the service's pods see."""
        found = self.get("aimservice", service)
        claim = found["status"]["adapterDiskPersistentVolumeClaim"]
        return Path(self.cluster.info["claims"], self.namespace, claim, found["metadata"]["uid"])

    def staged(self, service: str) -> set[str]:
        """Return the adapter directories of a service's subtree."""
        root = self.subtree(service)
        return {path.name for path in root.iterdir()} if root.exists() else set()

    # -- waiting ----------------------------------------------------------------------------------------------------

    def until(self, what: str, probe: Callable[[], Any], timeout: float = 150) -> Any:
        """Wait for a fact; show the service and its objects if it does not become true."""
        try:
            return self.cluster.wait(probe, timeout=timeout, what=what)
        except BaseException:
            print(self.cluster.kubectl("get", "aimsvc,aimart,aimpc,isvc,jobs,pods,pvc", "-n", self.namespace).stdout)  # noqa: T201
            print(self.cluster.kubectl("get", "aimsvc,aimart", "-n", self.namespace, "-o", "yaml").stdout)  # noqa: T201
            raise

    def until_loaded(self, service: str, *adapters: str) -> None:
        """Wait until status and server report that all replicas have loaded these adapters, and that they fit."""
        for adapter in adapters:
            self.until(f"{adapter} to be loaded", partial(self._is_loaded, service, adapter))
        assert set(adapters) <= self.models(service)

    def _is_loaded(self, service: str, adapter: str) -> bool:
        entry = self.entry(service, adapter)
        judged = all(note["reason"] != "AdapterFitUnchecked" for note in entry.get("warnings") or ())
        return bool(entry.get("state") == "Loaded" and judged)

    def until_running(self, service: str) -> None:
        """Wait until the service runs."""
        self.until(f"{service} to run", lambda: self.status(service).get("status") == "Running")

    def until_failed(self, service: str, adapter: str, reason: str) -> JsonObject:
        """Wait until an adapter has failed for this reason; return its entry."""

        def failed() -> JsonObject | None:
            entry = self.entry(service, adapter)
            matches = entry.get("state") == "Failed" and entry.get("lastError", "").startswith(reason)
            return entry if matches else None

        found: JsonObject = self.until(f"{adapter} to fail with {reason}", failed)
        return found

    def base_models(self) -> list[JsonObject]:
        """Return the artifacts of base models, which caches create."""
        return [a for a in self.cluster.items("aimartifacts", self.namespace) if a["spec"]["type"] == "model"]

    def versions(self) -> dict[str, str]:
        """Return the resource versions of everything that the reconciler writes in this namespace."""
        kinds = "aimservices aimartifacts aimprofilecaches aimtemplatecaches inferenceservices configmaps pvc jobs"
        found = [item for kind in kinds.split() for item in self.cluster.items(kind, self.namespace)]
        return {f"{item['kind']}/{item['metadata']['name']}": item["metadata"]["resourceVersion"] for item in found}

    def until_at_rest(self, quiet: float = 13.0) -> dict[str, str]:
        """Wait until nothing was written for `quiet` seconds (longer than the sweeps' period); return the versions."""
        since, seen = time.monotonic(), self.versions()
        deadline = since + 90
        while time.monotonic() - since < quiet:
            time.sleep(0.5)
            now = self.versions()
            if now != seen:
                since, seen = time.monotonic(), now
            assert time.monotonic() < deadline, "something is written again and again"
        return seen
