"""Real helm, and a control plane without nodes: what the chart's tests need. No pod runs here."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TypeVar

import pytest
import yaml

from api.view import JsonObject
from devcluster.binaries import CERT_MANAGER, HELM_MODULE, ensure_go, ensure_programs
from devcluster.front import bring_up, take_down
from devcluster.info import gather
from devcluster.progress import Progress
from tests.cluster.reads import Reads
from tests.reviews import LONG, Stream

T = TypeVar("T")

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "chart"
RELEASE, NAMESPACE = "aim-adapters", "aim-system"
WRONG = {
    "apiVersion": "aim.eai.amd.com/v1alpha1",
    "kind": "AIMArtifact",
    "metadata": {"name": "wrong", "namespace": "default"},
    "spec": {"type": "adapter", "modelId": "acme/tone", "sourceUri": "hf://acme/tone"},
}
REVIEW_RATE = 200.0 if LONG else 50.0  # a second
PATIENCE = 180.0  # seconds: a loaded machine needs a tenth of it
OURS = "app.kubernetes.io/part-of=aim-adapters"
OBJECTS = "aimartifacts,aimservices,aimclusterruntimeconfigs"  # what the tests create


@dataclass
class Helm:
    """The real helm with folders of its own, against a cluster when it has a kubeconfig."""

    program: Path
    home: Path
    kubeconfig: Path | None = None

    def run(self, *args: str, check: bool = True, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
        """Run helm; with `check` a failure fails the test and shows what helm said."""
        folders = {name: str(self.home) for name in ("HELM_CACHE_HOME", "HELM_CONFIG_HOME", "HELM_DATA_HOME", "HOME")}
        kubeconfig = str(self.kubeconfig or self.home / "no-cluster")
        done = subprocess.run(
            [str(self.program), *args],
            input=stdin,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
            env={**os.environ, **folders, "KUBECONFIG": kubeconfig},
        )
        if check and done.returncode != 0:
            pytest.fail(f"helm {' '.join(args)}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
        return done

    def template(self, values: JsonObject, *args: str, release: str = RELEASE, namespace: str = NAMESPACE) -> str:
        """Return the rendered chart, without the definitions unless the values ask for them: they are large."""
        argv = ("template", release, str(CHART), f"--namespace={namespace}", "--values=-", *args)
        return self.run(*argv, stdin=json.dumps({"crds": {"install": False}, **values})).stdout

    def objects(self, values: JsonObject, *args: str) -> list[JsonObject]:
        """Return the rendered chart as objects."""
        return [found for found in yaml.load_all(self.template(values, *args), yaml.CSafeLoader) if found]

    def refused(self, values: JsonObject) -> str:
        """Return what helm says about values that it must refuse."""
        argv = ("template", RELEASE, str(CHART), f"--namespace={NAMESPACE}", "--values=-")
        done = self.run(*argv, stdin=json.dumps(values), check=False)
        assert done.returncode != 0, "helm takes these values"
        return done.stderr

    def install(self, command: str, values: JsonObject | None = None, *args: str) -> str:
        """`helm install` or `helm upgrade` of the chart; returns what it said."""
        argv = (command, RELEASE, str(CHART), f"--namespace={NAMESPACE}", "--values=-", *args)
        return self.run(*argv, stdin=json.dumps(values or {})).stdout

    def uninstall(self, *args: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """`helm uninstall`."""
        return self.run("uninstall", RELEASE, f"--namespace={NAMESPACE}", *args, check=check)


@dataclass
class Plane:
    """A running control plane and the real kubectl."""

    folder: Path
    kubectl_program: Path
    kubeconfig: Path
    audit_log: Path

    @cached_property
    def _reads(self) -> Reads:
        return Reads(self.kubeconfig)

    def kubectl(
        self, *args: str, objects: list[JsonObject] | None = None, check: bool = True
    ) -> subprocess.CompletedProcess[str]:
        """Run kubectl; `objects` go to its standard input."""
        stdin = json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}) if objects is not None else None
        done = subprocess.run(
            [str(self.kubectl_program), *args],
            input=stdin,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            env={**os.environ, "KUBECONFIG": str(self.kubeconfig)},
        )
        if check and done.returncode != 0:
            pytest.fail(f"kubectl {' '.join(args)}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
        return done

    def get(self, kind: str, name: str, namespace: str = "default") -> JsonObject | None:
        """Read one object, None when it does not exist."""
        if self._reads.knows(kind):
            return self._reads.get(kind, name, namespace)
        done = self.kubectl("get", kind, name, "-n", namespace, "-o", "json", "--ignore-not-found")
        return json.loads(done.stdout) if done.stdout.strip() else None

    def apply(self, *objects: JsonObject, check: bool = True, args: tuple[str, ...] = ()) -> str:
        """`kubectl apply` of these objects; returns all that it said."""
        done = self.kubectl("apply", "-f", "-", *args, objects=list(objects), check=check)
        return done.stdout + done.stderr

    def wait(self, probe: Callable[[], T | None], what: str, timeout: float = 30) -> T:
        """Return what `probe` returns once that is true; fail the test after `timeout` seconds."""
        deadline = time.monotonic() + timeout
        while True:
            found = probe()
            if found:
                return found
            if time.monotonic() > deadline:
                pytest.fail(f"not within {timeout:g} s: {what}; last: {found!r}")
            time.sleep(0.2)


class Reviews(Stream):
    """Sends reviews all the time; each must be answered by our rules."""

    def __init__(self, plane: Plane) -> None:
        super().__init__(plane.kubeconfig, REVIEW_RATE)


def upgrade(helm: Helm, *values: str, chart: Path = CHART) -> None:
    """`helm upgrade` with values changed."""
    sets = [f"--set={value}" for value in values]
    helm.run("upgrade", RELEASE, str(chart), f"--namespace={NAMESPACE}", "--reuse-values", *sets)


def roll_out(plane: Plane) -> None:
    """Wait until all replicas are those of the newest Deployment."""
    argv = ("rollout", "status", f"deployment/{RELEASE}", "-n", NAMESPACE, "--timeout=55s")
    plane.wait(lambda: plane.kubectl(*argv, check=False).returncode == 0, "the new pods are there", PATIENCE)


def pods(plane: Plane) -> list[JsonObject]:
    """Return the server's pods that are not on their way out."""
    selector = f"app.kubernetes.io/instance={RELEASE},app.kubernetes.io/component=server"
    found = json.loads(plane.kubectl("get", "pods", "-n", NAMESPACE, "-l", selector, "-o", "json").stdout)["items"]
    return [pod for pod in found if "deletionTimestamp" not in pod["metadata"]]


def lives(plane: Plane) -> set[tuple[str, int]]:
    """Return which pods live, and how often each was restarted."""
    return {(p["metadata"]["uid"], p["status"]["containerStatuses"][0]["restartCount"]) for p in pods(plane)}


@pytest.fixture(scope="session")
def helm_program() -> Path:
    """The real helm, built if it is not in the cache."""
    return asyncio.run(ensure_programs(Progress(lambda _: None), (HELM_MODULE,)))["helm"]


@pytest.fixture(scope="session")
def cert_manager_program() -> Path:
    """cert-manager's controllers and CA injector in one program; the first build takes minutes."""
    return asyncio.run(ensure_programs(Progress(lambda _: None), (CERT_MANAGER,)))["certmanager"]


@pytest.fixture(scope="session")
def cert_manager_definitions() -> list[Path]:
    """The definitions of cert-manager's kinds, from the module that the program is built from."""
    go = asyncio.run(ensure_go(Progress(lambda _: None)))
    argv = (str(go), "mod", "download", "-json", "github.com/cert-manager/cert-manager")
    done = subprocess.run(argv, cwd=CERT_MANAGER.folder, capture_output=True, text=True, timeout=300, check=True)
    return sorted((Path(json.loads(done.stdout)["Dir"]) / "deploy" / "crds").glob("cert-manager.io_*.yaml"))


@pytest.fixture(scope="session")
def helm(helm_program: Path, tmp_path_factory: pytest.TempPathFactory) -> Helm:
    """Helm without a cluster."""
    return Helm(helm_program, tmp_path_factory.mktemp("helm"))


@contextlib.contextmanager
def running(folder: Path, settings: dict[str, str], *, bare: bool) -> Iterator[Plane]:
    """Run a cluster around a block; `bare`: the control plane only."""
    said = io.StringIO()
    try:
        if bring_up(folder, {"audit": "true", **settings}, fresh=False, bare=bare, out=said) != 0:
            pytest.fail(f"no cluster:\n{said.getvalue()}")
        info = gather(folder)
        audit_log = Path(info["logs"]) / "audit.log"
        yield Plane(folder, Path(info["kubectl"]), Path(info["kubeconfig"]), audit_log)
    finally:
        with contextlib.suppress(OSError):
            take_down(folder, out=said)


@pytest.fixture(scope="session")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Plane]:
    """A control plane for the session."""
    with running(tmp_path_factory.mktemp("chart") / "cluster", {}, bare=True) as plane:
        yield plane


@pytest.fixture(scope="session")
def system_namespace(plane: Plane) -> None:
    """The release's namespace; it enforces the strictest Pod Security level."""
    plane.kubectl("create", "namespace", NAMESPACE)
    plane.kubectl("label", "namespace", NAMESPACE, "pod-security.kubernetes.io/enforce=restricted")


@pytest.fixture
def release(plane: Plane, system_namespace: None, helm_program: Path, tmp_path: Path) -> Iterator[Helm]:
    """Helm against the control plane; afterwards nothing is left but the definitions, as after any uninstall."""
    helm = Helm(helm_program, tmp_path, plane.kubeconfig)
    yield helm
    helm.uninstall(check=False)
    plane.kubectl("delete", "validatingwebhookconfigurations,mutatingwebhookconfigurations", "--all")
    plane.kubectl("delete", "clusterroles,clusterrolebindings", "-l", OURS)
    if OBJECTS.partition(",")[0] in plane.kubectl("api-resources", "--api-group=aim.eai.amd.com", check=False).stdout:
        plane.kubectl("delete", OBJECTS, "--all", "-A")


@pytest.fixture
def no_definitions(plane: Plane, system_namespace: None) -> None:
    """Take the definitions away, as in a cluster that never saw a release."""
    plane.kubectl("delete", "crd", "-l", OURS, "--wait=false")
    plane.wait(lambda: "No resources" in plane.kubectl("get", "crd", "-l", OURS).stderr, "definitions are gone")
