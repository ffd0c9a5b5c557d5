"""One cluster for all tests of a session, and helpers: the real kubectl, and waiting for a fact."""

from __future__ import annotations

import contextlib
import io
import json
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import pytest

from devcluster.front import bring_up, take_down
from devcluster.info import gather
from tests.cluster.reads import Reads

T = TypeVar("T")

# periods of seconds instead of minutes, so that no test waits for a default;
# $AIM_DEV_SET ("name=value name=value") changes or adds some
SETTINGS = {
    "refresh_interval": "5s",
    "probe_period": "1s",
    "retry_base": "2s",
    "reaper_period": "10s",
    "reaper_subtree_skew": "1s",
    "scratch_guard": "5s",
    "unload_grace": "20s",
    "adopt_managed_by": '["another-operator"]',
    "field_validation": "Strict",  # a misspelt field in a write of the product fails its test
} | {
    name: value
    for name, _, value in (pair.partition("=") for pair in os.environ.get("AIM_DEV_SET", "").split())
    if name
}


@dataclass
class Cluster:
    """A running cluster: its facts (from `dev info --json`) and the real kubectl."""

    folder: Path
    info: dict[str, Any]
    env: dict[str, str] = field(default_factory=dict)

    @cached_property
    def _reads(self) -> Reads:
        return Reads(self.kubeconfig)

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig."""
        return Path(self.info["kubeconfig"])

    def run(
        self, *argv: str | Path, stdin: str | None = None, check: bool = True, timeout: float = 60
    ) -> subprocess.CompletedProcess[str]:
        """Run a program with KUBECONFIG set; with `check`, a failure fails the test and shows the output."""
        done = subprocess.run(
            [str(word) for word in argv],
            input=stdin,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
            env={**os.environ, "KUBECONFIG": str(self.kubeconfig), **self.env},
        )
        if check and done.returncode != 0:
            pytest.fail(f"{' '.join(map(str, argv))}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
        return done

    def kubectl(
        self, *args: str, input: str | dict[str, Any] | list[Any] | None = None, check: bool = True, timeout: float = 60
    ) -> subprocess.CompletedProcess[str]:
        """Run kubectl; `input` (text, an object or several) is given to its standard input."""
        match input:
            case list():
                input = json.dumps({"apiVersion": "v1", "kind": "List", "items": input})
            case dict():
                input = json.dumps(input)
        return self.run(self.info["kubectl"], *args, stdin=input, check=check, timeout=timeout)

    def apply(self, *objects: dict[str, Any], check: bool = True, args: tuple[str, ...] = ()) -> str:
        """`kubectl apply -f -` of these objects; return the output of kubectl."""
        done = self.kubectl("apply", "-f", "-", *args, input=list(objects), check=check)
        return done.stdout + done.stderr

    def get(self, kind: str, name: str, namespace: str = "default") -> dict[str, Any] | None:
        """Read one object, None when it does not exist."""
        if self._reads.knows(kind.lower()):
            return self._reads.get(kind.lower(), name, namespace)
        done = self.kubectl("get", kind, name, "-n", namespace, "-o", "json", "--ignore-not-found")
        return json.loads(done.stdout) if done.stdout.strip() else None

    def items(self, kind: str, namespace: str = "default", *args: str) -> list[dict[str, Any]]:
        """Read a collection."""
        if self._reads.knows(kind.lower()) and args[:-1] in ((), ("-l",)) and len(args) != 1:
            return self._reads.items(kind.lower(), namespace, *args[1:])
        found: list[dict[str, Any]] = json.loads(
            self.kubectl("get", kind, "-n", namespace, "-o", "json", *args).stdout
        )["items"]
        return found

    def wait(self, probe: Callable[[], T | None], timeout: float = 60, what: str = "", period: float = 0.25) -> T:
        """Call `probe` until it returns something true, and return that; fail the test after `timeout` seconds.

        A failed assertion inside the probe counts as "not yet", and is shown after the timeout.
        """
        deadline = time.monotonic() + timeout
        said = ""
        while True:
            try:
                found = probe()
                if found:
                    return found
                said = repr(found)
            except AssertionError as error:
                said = str(error)
            if time.monotonic() > deadline:
                pytest.fail(f"not within {timeout:g} s: {what or probe}; last: {said}")
            time.sleep(period)


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """The session's cluster: the one in $AIM_DEV_DIR (left running), else a new one."""
    if running := os.environ.get("AIM_DEV_DIR"):
        folder = Path(running).resolve()
        yield Cluster(folder, gather(folder))
        return
    folder = tmp_path_factory.mktemp("dev") / "cluster"
    said = io.StringIO()
    try:
        if bring_up(folder, SETTINGS, fresh=False, bare=False, out=said) != 0:
            pytest.fail(f"`dev up` failed:\n{said.getvalue()}")
        yield Cluster(folder, gather(folder))
    finally:
        with contextlib.suppress(OSError):
            take_down(folder, out=said)


@contextlib.contextmanager
def new_namespaces(cluster: Cluster, *tests: str) -> Iterator[tuple[str, ...]]:
    """Namespaces, one for each name of a test, with copies of the sources' Secrets; deleted, not waited for."""
    names = tuple(f"t-{os.getpid() % 100000}-{abs(hash(test)) % 10**6}-{time.monotonic_ns() % 1000}" for test in tests)
    secrets = {name: cluster.get("secret", name) for name in cluster.info["secrets"]}
    wanted: list[dict[str, Any]] = []
    for namespace in names:
        wanted.append({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
        for name, found in secrets.items():
            assert found is not None
            metadata = {"name": name, "namespace": namespace}
            wanted.append({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": found["data"]})
    cluster.apply(*wanted)
    yield names
    cluster.kubectl("delete", "namespace", *names, "--wait=false", check=False)


@contextlib.contextmanager
def new_namespace(cluster: Cluster, test: str) -> Iterator[str]:
    """One such namespace."""
    with new_namespaces(cluster, test) as (name,):
        yield name


@pytest.fixture
def namespace(cluster: Cluster, request: pytest.FixtureRequest) -> Iterator[str]:
    """A namespace of the test's own."""
    with new_namespace(cluster, request.node.nodeid) as name:
        yield name
