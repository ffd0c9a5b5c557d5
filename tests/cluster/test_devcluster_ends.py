"""All ways to end a whole cluster with pods: none leaves a process, and the cluster continues after a restart."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from devcluster.folder import Layout, is_running, read_state
from devcluster.front import bring_up, take_down
from devcluster.guard import descendants, parent_of
from devcluster.info import gather
from tests.waiting import within

from .conftest import SETTINGS, Cluster

pytestmark = pytest.mark.cluster


def guard_of(folder: Path) -> int:
    """Return the guard's id from the supervisor's state ("" while there is none)."""
    return int(read_state(Layout(folder)).get("guard", 0))


def commands_of(pids: list[int]) -> str:
    """Return the command lines of these processes."""
    lines = []
    for pid in pids:
        try:
            lines.append(Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace"))
        except OSError:
            continue
    return "\n".join(lines)


def all_dead(pids: list[int]) -> bool:
    return all(parent_of(pid) is None for pid in pids)


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "cluster"
    yield path
    take_down(path, out=io.StringIO())


def test_killed_up_killed_supervisor_and_down_leave_nothing_and_the_cluster_continues(folder: Path) -> None:
    # `up` is killed when the pods of the service run but are not ready
    front = subprocess.Popen(
        (sys.executable, "-m", "devcluster.cli", "up", "--dir", str(folder)), stdout=subprocess.DEVNULL
    )
    try:
        assert within(lambda: "aim-adapters serve" in commands_of(descendants(guard_of(folder) or os.getpid())), 120)
        started = [guard_of(folder), *descendants(guard_of(folder))]
    finally:
        front.kill()
        front.wait()
    assert within(lambda: all_dead(started) and not is_running(Layout(folder)), 120)

    # files of the killed process do not block a new start; then the supervisor is killed
    said = io.StringIO()
    assert bring_up(folder, SETTINGS, fresh=False, bare=False, out=said) == 0, said.getvalue()
    cluster = Cluster(folder, gather(folder))
    cluster.kubectl("create", "configmap", "kept", "--from-literal=a=b")
    started = [guard_of(folder), *descendants(guard_of(folder))]
    assert "aim-adapters serve" in commands_of(started)
    os.kill(cluster.info["processes"]["supervisor"], signal.SIGKILL)
    assert within(lambda: all_dead(started) and not is_running(Layout(folder)), 120), commands_of(started)

    # the objects are still there, with the same webhook, addresses and credentials
    said = io.StringIO()
    assert bring_up(folder, {}, fresh=False, bare=False, out=said) == 0, said.getvalue()
    again = Cluster(folder, gather(folder))
    assert again.get("configmap", "kept") is not None
    for key in ("s3", "hub", "metrics", "settings", "kubeconfig"):
        assert again.info[key] == cluster.info[key]
    assert again.info["admission"]["url"] == cluster.info["admission"]["url"]
    started = [guard_of(folder), *descendants(guard_of(folder))]
    assert take_down(folder, out=io.StringIO()) == 0
    assert all_dead(started), commands_of(started)
