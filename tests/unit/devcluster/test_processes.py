"""Processes: kept running, stopped, and never left behind."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from devcluster.guard import descendants, kill_below
from devcluster.processes import Command, Keeper, child_environment, tail
from tests.waiting import within


def alive(pid: int) -> bool:
    """Return whether the process exists and is not a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def shell(tmp_path: Path, name: str, script: str, grace_s: float = 5.0) -> Command:
    return Command(name, ("/bin/sh", "-c", script), tmp_path / f"{name}.log", grace_s=grace_s)


async def test_an_end_while_starting_is_reported(tmp_path: Path) -> None:
    keeper = Keeper(child_environment(tmp_path), lambda: None)
    await keeper.start(shell(tmp_path, "a", "echo too bad; exit 3"))
    error = await asyncio.wait_for(keeper.failed, 5)
    assert (error.command.name, error.code) == ("a", 3)
    assert tail(tmp_path / "a.log") == "too bad"
    await keeper.stop(["a"])


async def test_a_process_that_ends_later_is_restarted(tmp_path: Path) -> None:
    changes: list[None] = []
    keeper = Keeper(child_environment(tmp_path), lambda: changes.append(None))
    await keeper.start(shell(tmp_path, "a", "exec sleep 60"))
    keeper.relax()
    first = keeper.pids["a"]
    os.kill(first, signal.SIGKILL)
    for _ in range(200):
        if keeper.pids.get("a") not in (None, first):
            break
        await asyncio.sleep(0.02)
    assert keeper.pids["a"] != first
    assert keeper.restarts == {"a": 1}
    await keeper.stop(["a", "unknown"])
    assert keeper.pids == {}
    assert len(changes) >= 3


async def test_stop_asks_first_and_kills_after_the_grace(tmp_path: Path) -> None:
    keeper = Keeper(child_environment(tmp_path), lambda: None)
    await keeper.start(shell(tmp_path, "polite", "trap 'echo bye; exit 0' TERM; echo up; while :; do sleep 0.05; done"))
    await keeper.start(shell(tmp_path, "deaf", "trap '' TERM; echo up; while :; do sleep 0.05; done", grace_s=0.3))
    for name in ("polite", "deaf"):
        for _ in range(200):
            if tail(tmp_path / f"{name}.log"):
                break
            await asyncio.sleep(0.02)
    began = time.monotonic()
    await keeper.stop(["polite", "deaf"])
    assert 0.3 <= time.monotonic() - began < 3
    assert tail(tmp_path / "polite.log") == "up\nbye"


def test_proxies_do_not_reach_the_children(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy:1")
    monkeypatch.setenv("no_proxy", "x")
    monkeypatch.setenv("KUBECONFIG", "/elsewhere")
    environment = child_environment(tmp_path)
    assert {"HTTPS_PROXY", "no_proxy", "KUBECONFIG"}.isdisjoint(environment)
    assert environment["AIM_DEV_DIR"] == str(tmp_path)


GUARDED = """
import os, subprocess, sys, time
# a child, and a grandchild whose own parent ends at once: an orphan in a session of its own
subprocess.Popen(["/bin/sh", "-c", "sleep 300 & echo $! > orphan.tmp; mv orphan.tmp orphan"], start_new_session=True)
open("supervisor", "w").write(str(os.getpid()))
time.sleep(300)
"""


def guard(tmp_path: Path) -> tuple[subprocess.Popen[bytes], int, int]:
    """Start a guard over a program with an orphan below it; return the guard, the program's id, the orphan's id."""
    read, write = os.pipe()
    process = subprocess.Popen(
        (sys.executable, "-m", "devcluster.guard", "--pass-fds", str(write), "--", sys.executable, "-c", GUARDED),
        cwd=tmp_path,
        pass_fds=(write,),
        start_new_session=True,
    )
    os.close(read)
    os.close(write)
    assert within(lambda: (tmp_path / "orphan").exists() and (tmp_path / "supervisor").exists())
    return process, int((tmp_path / "supervisor").read_text()), int((tmp_path / "orphan").read_text())


@pytest.mark.parametrize("sig", [signal.SIGKILL, signal.SIGTERM])
def test_the_guard_kills_what_a_dead_supervisor_left(tmp_path: Path, sig: signal.Signals) -> None:
    process, supervisor, orphan = guard(tmp_path)
    assert alive(orphan)
    os.kill(supervisor, sig)
    assert process.wait(10) != 0
    assert within(lambda: not alive(orphan))


def test_the_supervisor_notices_when_its_guard_dies(tmp_path: Path) -> None:
    process, supervisor, orphan = guard(tmp_path)
    process.kill()
    process.wait(10)
    assert within(lambda: not alive(supervisor))
    os.kill(orphan, signal.SIGKILL)  # the real supervisor would have done it


def test_kill_below_takes_the_whole_tree() -> None:
    with subprocess.Popen(("/bin/sh", "-c", "sleep 300 & sleep 300 & wait")) as top:
        assert within(lambda: len(descendants(top.pid)) == 2)
        below = descendants(top.pid)
        assert kill_below(top.pid, seconds=5) == []
        assert within(lambda: not any(map(alive, below)))
        top.wait(5)
