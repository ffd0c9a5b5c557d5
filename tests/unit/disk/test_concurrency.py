"""Stagers, syncs and reapers at once, some of them killed, with a reader that polls: 50 rounds, seed printed.

`AIMA_TEST_SEED` repeats a run; `AIMA_TEST_ROUNDS` makes it longer.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import random
import shutil
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from disk.failures import DiskFailure
from disk.fs import Fs, Moment
from tests.unit.disk.small import SmallProcess
from tests.unit.disk.world import (
    Files,
    MemorySource,
    adapter,
    look,
    reap_spec,
    run_reap,
    run_stage,
    run_sync,
    stage_spec,
    sync_spec,
)

CONTENT = {"a": adapter(1), "b": adapter(2, rank=16), "c": adapter(3)}
CHANGED = adapter(9)
ALLOWED: dict[str, list[Files]] = {"a": [CONTENT["a"], CHANGED], "b": [CONTENT["b"]], "c": [CONTENT["c"]]}
SERVICES = ("u1", "u2")
HOUR = 3600.0


def _start(action: Callable[[Fs], object], kill_at: int | None) -> int:
    """Run an action in a process of its own, killed before its n-th operation."""
    child = os.fork()
    if child:
        return child
    code = 0
    seen = [0]

    def hook(moment: Moment, operation: str, path: Path) -> None:
        seen[0] += 1
        if seen[0] == kill_at:
            os.kill(os.getpid(), signal.SIGKILL)

    try:
        action(Fs(hook))
    except (DiskFailure, OSError):
        code = 1
    except BaseException:
        sys.excepthook(*sys.exc_info())
        code = 2
    os._exit(code)


def _actions(disk: Path, dice: random.Random, generation: int) -> list[Callable[[Fs], object]]:
    """The round's processes: two stagers of one adapter, others, a sync of each service, a reaper."""
    path = dice.choice(sorted(CONTENT))
    content = CHANGED if path == "a" and dice.random() < 0.5 else CONTENT[path]
    hold, fresh = dice.random() < 0.3, dice.random() < 0.5
    actions: list[Callable[[Fs], object]] = []
    for service in (*SERVICES, dice.choice(SERVICES)):
        spec = stage_spec(disk, service, path, hold_changed=hold, fresh=fresh)
        actions += [lambda fs, spec=spec: run_stage(spec, MemorySource(content), fs)] * 2  # type: ignore[misc]
        other = stage_spec(disk, service, dice.choice(("b", "c")))
        actions.append(lambda fs, spec=other: run_stage(spec, MemorySource(CONTENT[spec.path]), fs))  # type: ignore[misc]
    for service in SERVICES:
        declared = [name for name in sorted(CONTENT) if dice.random() < 0.6]
        old = sync_spec(disk, service, *CONTENT, generation=generation - 1)
        new = sync_spec(disk, service, *declared, generation=generation)
        actions += [lambda fs, spec=spec: run_sync(spec, fs) for spec in (old, new)]  # type: ignore[misc]
    later = time.time() + (HOUR if dice.random() < 0.5 else 0)
    actions.append(lambda fs: run_reap(reap_spec(disk, *SERVICES, listed_at=later), fs, now=later))
    dice.shuffle(actions)
    return actions


def _watch(disk: Path, children: list[int]) -> int:
    """Poll the mounts until all processes have ended; return how often. Raises: Violation."""
    polls = 0
    failed: list[int] = []
    deadline = time.monotonic() + 60
    while children and time.monotonic() < deadline:
        for service in SERVICES:
            look(disk / service, ALLOWED)
        polls += 1
        for child in list(children):
            done, status = os.waitpid(child, os.WNOHANG)
            if done:
                children.remove(child)
                if os.WIFEXITED(status) and os.WEXITSTATUS(status) == 2:
                    failed.append(child)
    assert not children, "a process hangs"
    assert not failed, "a process ended in an unexpected exception (see stderr)"
    return polls


@pytest.mark.parametrize("locks", ["locks hold", "locks do nothing"])
def test_many_writers_at_once(
    locks: str, folder: Path, capsys: pytest.CaptureFixture[str], small: SmallProcess
) -> None:
    seed = int(os.environ.get("AIMA_TEST_SEED") or random.SystemRandom().randrange(2**32))
    rounds = int(os.environ.get("AIMA_TEST_ROUNDS") or 50)
    with capsys.disabled():
        sys.stdout.write(f"\nconcurrency, {locks}: {rounds} rounds, AIMA_TEST_SEED={seed}\n")
    assert small.call(write_at_once, str(folder), locks, seed, rounds) == 0, "see stderr"
    with capsys.disabled():
        sys.stdout.write((folder / "counted").read_text())


def write_at_once(folder: str, locks: str, seed: int, rounds: int) -> None:
    """Let the rounds' processes write, and check what readers see. Raises: AssertionError."""
    if locks == "locks do nothing":
        fcntl.flock = _no_locks  # type: ignore[assignment]
    dice = random.Random(seed)
    disk = Path(folder) / "disk"
    disk.mkdir()
    polls = started = 0
    for number in range(rounds):
        generation = 10 * number + 5
        actions = _actions(disk, dice, generation)
        children = [_start(one, dice.randrange(1, 60) if dice.random() < 0.25 else None) for one in actions]
        started += len(children)
        polls += _watch(disk, children)
        for service in SERVICES:
            _end_round(disk, service, dice, generation)
    later = time.time() + HOUR
    assert run_reap(reap_spec(disk, *SERVICES, listed_at=later), now=later).ok
    assert [os.listdir(disk / name) for name in (".staging", ".aside", ".unload-tmp")] == [[], [], []]
    (Path(folder) / "counted").write_text(f"concurrency: {started} processes, {polls} polls, no violation\n")


def _no_locks(fd: int, operation: int) -> None:
    """A network file system without locks."""
    raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))


def _end_round(disk: Path, service: str, dice: random.Random, generation: int) -> None:
    """What a controller does after each change: sync, then stage; nothing undeclared is there afterwards."""
    declared = [name for name in sorted(CONTENT) if dice.random() < 0.6]
    assert run_sync(sync_spec(disk, service, *declared, generation=generation + 1)).ok
    assert set(look(disk / service, ALLOWED)) <= set(declared)
    for path in declared:
        content = dice.choice(ALLOWED[path])
        result = run_stage(stage_spec(disk, service, path, fresh=True), MemorySource(content))
        assert result.reason == "AdapterStaged", result
        assert look(disk / service, ALLOWED)[path] == content
    assert set(look(disk / service, ALLOWED)) == set(declared)


class SyncBetween:
    """A hook that, at one operation of a stager, starts a sync which no longer declares the adapter."""

    def __init__(self, disk: Path, number: int) -> None:
        self.disk = disk
        self.number = number
        self.count = 0
        self.child: int | None = None
        self.ended = False

    def __call__(self, moment: Moment, operation: str, path: Path) -> None:
        number, self.count = self.count, self.count + 1
        if self.child is not None and not self.ended:
            self.ended = os.waitpid(self.child, os.WNOHANG)[0] != 0
        if self.ended:  # with working locks not even for a moment
            assert look(self.disk / "u1", {}) == {}
        if number != self.number:
            return
        self.child = os.fork()
        if self.child == 0:
            code = 1
            try:
                os.closerange(3, 256)  # a lock lives as long as any copy of its descriptor
                run_sync(sync_spec(self.disk, "u1", generation=2))
                code = 0
            finally:
                os._exit(code)
        time.sleep(0.01)  # enough for a sync that need not wait for the stager


def test_an_old_stager_does_not_bring_back_what_was_removed(folder: Path, small: SmallProcess) -> None:
    """A sync runs between each two operations of a stager: the removed adapter is not there in the end."""
    assert small.call(sync_between_each_two_operations, str(folder)) == 0, "see stderr"


def sync_between_each_two_operations(folder: str) -> None:
    """Run the stager once for each of its operations. Raises: AssertionError."""
    for number in range(500):
        disk = Path(folder) / f"disk{number}"
        disk.mkdir()
        run_sync(sync_spec(disk, "u1", "a"))
        between = SyncBetween(disk, number)
        with contextlib.suppress(DiskFailure):
            run_stage(stage_spec(disk, "u1", "a"), MemorySource(CONTENT["a"]), Fs(between))
        if between.child is None:
            assert number > 40, "there were fewer operations than a staging has"
            return
        assert between.ended or os.waitpid(between.child, 0)[1] == 0
        assert look(disk / "u1", {"a": [CONTENT["a"]]}) == {}
        shutil.rmtree(disk)
    raise AssertionError("a staging without an end")
