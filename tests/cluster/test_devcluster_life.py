"""The life of a cluster: it starts, continues, starts from scratch, and never leaves a process.

Most tests use only the control plane, which starts in seconds and has the same supervisor.
"""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from devcluster.folder import Layout, is_running, read_state
from devcluster.front import bring_up, find_log, print_log, take_down
from devcluster.guard import descendants
from devcluster.info import NotRunningError, gather
from tests.waiting import within

pytestmark = pytest.mark.cluster


def processes_of(folder: Path) -> dict[int, str]:
    """Return running processes that name the folder on their command line, or belong to its cluster."""
    found = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            environment = (entry / "environ").read_bytes().split(b"\0")
        except OSError:
            continue
        if str(folder) in command or f"AIM_DEV_DIR={folder}".encode() in environment:
            found[int(entry.name)] = command
    return found


def up(folder: Path, *, fresh: bool = False, settings: dict[str, str] | None = None) -> str:
    said = io.StringIO()
    code = bring_up(folder, settings or {}, fresh=fresh, bare=True, out=said)
    assert code == 0, said.getvalue()
    return said.getvalue()


def kubectl(folder: Path, *args: str) -> str:
    facts = gather(folder)
    done = subprocess.run(
        [facts["kubectl"], "--kubeconfig", facts["kubeconfig"], *args],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "cluster"
    yield path
    take_down(path, out=io.StringIO())
    assert processes_of(path) == {}


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A cluster for tests that do not change it."""
    path = tmp_path_factory.mktemp("running") / "cluster"
    try:
        up(path)
        yield path
    finally:
        take_down(path, out=io.StringIO())


def test_up_reports_its_result_and_down_leaves_nothing(folder: Path) -> None:
    said = up(folder)
    assert "kube-apiserver /readyz" in said
    assert said.rstrip().endswith(f"ready: {folder}")
    running = gather(folder)["processes"]
    assert {"supervisor", "etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler"} <= set(running)
    assert set(running.values()) <= set(processes_of(folder))
    assert "aim-dev-rwx (default)" in kubectl(folder, "get", "storageclass")
    assert take_down(folder, out=io.StringIO()) == 0
    assert processes_of(folder) == {}
    with pytest.raises(NotRunningError, match="dev up"):
        gather(folder)
    assert take_down(folder, out=io.StringIO()) == 0


def test_up_on_a_running_cluster_reports_it_and_changes_nothing(running: Path) -> None:
    before = gather(running)["processes"]
    assert up(running) == f"already running: {running}\n"
    assert gather(running)["processes"] == before


def test_a_used_folder_continues_its_cluster_and_fresh_starts_from_scratch(folder: Path) -> None:
    up(folder, settings={"audit": "true"})
    kubectl(folder, "create", "configmap", "kept", "--from-literal=a=b")
    first, ca = gather(folder), (folder / "pki" / "ca.crt").read_bytes()
    take_down(folder, out=io.StringIO())
    up(folder, settings={"two": "2"})
    second = gather(folder)
    assert "kept" in kubectl(folder, "get", "configmap")
    assert (folder / "pki" / "ca.crt").read_bytes() == ca
    assert second["s3"] == first["s3"]
    assert second["hub"] == first["hub"]
    assert second["settings"] == {"audit": "true", "two": "2"}
    assert (folder / "logs" / "audit.log").stat().st_size > 0
    up(folder, fresh=True)
    assert "kept" not in kubectl(folder, "get", "configmap")
    assert (folder / "pki" / "ca.crt").read_bytes() != ca
    assert gather(folder)["settings"] == {}


def test_two_clusters_run_side_by_side(running: Path, folder: Path) -> None:
    up(folder)
    addresses = {
        kubectl(f, "get", "service", "kubernetes", "-o", "jsonpath={.spec.clusterIP}") for f in (folder, running)
    }
    assert len(addresses) == 2
    assert gather(folder)["kubeconfig"] != gather(running)["kubeconfig"]
    take_down(folder, out=io.StringIO())
    assert processes_of(folder) == {}
    assert "default" in kubectl(running, "get", "namespace")


@pytest.mark.parametrize("seconds", [0.4, 1.5])
def test_a_killed_up_leaves_nothing(folder: Path, seconds: float) -> None:
    front = subprocess.Popen(
        (sys.executable, "-m", "devcluster.cli", "up", "--dir", str(folder), "--control-plane-only"),
        stdout=subprocess.DEVNULL,
    )
    time.sleep(seconds)  # the test is about the moment of the kill
    front.kill()
    front.wait()
    assert within(lambda: not is_running(Layout(folder)) and processes_of(folder) == {})


@pytest.mark.parametrize("victim", ["supervisor", "guard", "both"])
def test_a_killed_supervisor_leaves_nothing(folder: Path, victim: str) -> None:
    up(folder)
    state = read_state(Layout(folder))
    for name in ("guard", "supervisor"):
        if victim in (name, "both"):
            os.kill(state[name], signal.SIGKILL)
    assert within(lambda: processes_of(folder) == {} and not is_running(Layout(folder))), processes_of(folder)
    with pytest.raises(NotRunningError):
        gather(folder)
    up(folder)
    assert "default" in kubectl(folder, "get", "namespace")


def test_a_program_that_dies_later_is_started_again(folder: Path) -> None:
    up(folder)
    before = gather(folder)["processes"]
    os.kill(before["kube-scheduler"], signal.SIGKILL)
    assert within(lambda: gather(folder)["processes"].get("kube-scheduler") not in (None, before["kube-scheduler"]))
    os.kill(before["etcd"], signal.SIGKILL)
    assert within(lambda: gather(folder)["processes"].get("etcd") not in (None, before["etcd"]))
    assert within(lambda: _answers(folder))


def _answers(folder: Path) -> bool:
    try:
        return "default" in kubectl(folder, "get", "namespace")
    except AssertionError:
        return False


def test_a_failed_start_reports_what_was_expected_and_seen_and_leaves_nothing(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assets = tmp_path / "assets"
    assets.mkdir()
    (assets / "etcd").write_text("#!/bin/sh\necho the disk is on fire; exit 7\n")
    (assets / "etcd").chmod(0o755)
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(assets))
    said = io.StringIO()
    assert bring_up(folder, {}, fresh=False, bare=True, out=said) == 1
    for words in ("etcd", "expected:", "the disk is on fire", str(folder / "logs" / "etcd.log")):
        assert words in said.getvalue()
    assert processes_of(folder) == {}


def test_claims_are_bound_to_directories_that_are_deleted_with_them(running: Path) -> None:
    folder = running
    manifest = folder / "claim.json"
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "disk"},
        "spec": {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Gi"}}},
    }
    manifest.write_text(json.dumps(claim))
    directory = folder / "claims" / "default" / "disk"
    kubectl(folder, "apply", "-f", str(manifest))
    kubectl(folder, "wait", "pvc/disk", "--for=jsonpath={.status.phase}=Bound", "--timeout=30s")
    (directory / "file").write_text("x")
    kubectl(folder, "delete", "pvc", "disk")
    assert within(lambda: not directory.exists())
    kubectl(folder, "apply", "-f", str(manifest))
    kubectl(folder, "wait", "pvc/disk", "--for=jsonpath={.status.phase}=Bound", "--timeout=30s")
    assert list(directory.iterdir()) == []
    refused = {**claim, "metadata": {"name": "many"}, "spec": {**claim["spec"], "storageClassName": "aim-dev-rwo"}}  # type: ignore[dict-item]
    manifest.write_text(json.dumps(refused))
    kubectl(folder, "apply", "-f", str(manifest))
    assert within(
        lambda: "ReadWriteMany is not supported" in kubectl(folder, "get", "events", "--field-selector=type=Warning")
    )


def test_logs_of_processes(running: Path) -> None:
    said = io.StringIO()
    assert print_log(running, "kube-scheduler", said, follow=False) == 0
    assert "Starting Kubernetes Scheduler" in said.getvalue()
    said = io.StringIO()
    assert print_log(running, "nobody", said, follow=False) == 1
    assert "kube-apiserver" in said.getvalue()
    assert find_log(Layout(running), "../world.json") is None


def test_the_programs_are_children_of_the_supervisor_and_it_of_the_guard(running: Path) -> None:
    state = read_state(Layout(running))
    below = descendants(state["guard"])
    assert set(state["processes"].values()) <= set(below)


def _heed_interrupts() -> None:
    """A shell starts its background jobs with SIGINT ignored, and child processes inherit that."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def test_an_interrupted_up_stops_its_processes_and_reports_it(folder: Path) -> None:
    front = subprocess.Popen(
        (sys.executable, "-m", "devcluster.cli", "up", "--dir", str(folder), "--control-plane-only"),
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=_heed_interrupts,  # noqa: PLW1509 - the child execs at once, and no thread runs here
    )
    assert within((folder / "logs" / "kube-apiserver.log").exists)
    front.send_signal(signal.SIGINT)
    said, _ = front.communicate(timeout=60)
    assert front.returncode == 130
    assert "interrupted" in said
    assert processes_of(folder) == {}
