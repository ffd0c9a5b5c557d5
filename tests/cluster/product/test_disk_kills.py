"""Staging killed at random moments while a service is edited 20 times: it ends in the declared state."""

from __future__ import annotations

import os
import random
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.product.team import Team

EDITS = 20
NAMES = ("a", "b", "c", "d")


class Killer(threading.Thread):
    """Kills stagings of one namespace, found by their own arguments, a random moment after each was seen."""

    def __init__(self, namespace: str, dice: random.Random) -> None:
        super().__init__(daemon=True)
        self._wanted = f"--namespace={namespace}".encode()
        self._dice = dice
        self._over = threading.Event()
        self._seen: set[int] = set()
        self.kills = 0

    def run(self) -> None:
        while not self._over.is_set():
            for pid in self._stagings():
                if pid not in self._seen:
                    self._seen.add(pid)
                    if self._dice.random() < 0.6:
                        threading.Timer(self._dice.uniform(0, 0.8), self._kill, (pid,)).start()
            time.sleep(0.02)

    def stop(self) -> None:
        self._over.set()
        self.join(5)

    def _stagings(self) -> list[int]:
        return [int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit() and self._is_one(path)]

    def _is_one(self, process: Path) -> bool:
        try:
            arguments = (process / "cmdline").read_bytes().split(b"\0")
        except OSError:
            return False
        return b"stage" in arguments and b"disk" in arguments and self._wanted in arguments

    def _kill(self, pid: int) -> None:
        if self._is_one(Path(f"/proc/{pid}")):
            os.kill(pid, signal.SIGKILL)
            self.kills += 1


@pytest.fixture
def killer(team: Team) -> Iterator[Killer]:
    seed = int(os.environ.get("AIMA_TEST_SEED") or random.SystemRandom().randrange(2**32))
    sys.stdout.write(f"AIMA_TEST_SEED={seed}\n")
    thread = Killer(team.namespace, random.Random(seed))
    thread.start()
    yield thread
    thread.stop()


def _is_whole(folder: Path) -> bool:
    """Whether an adapter's directory holds both files, or was moved away while it was read."""
    try:
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except FileNotFoundError:
        return True
    try:
        names, opened = set(os.listdir(fd)), os.fstat(fd).st_ino
        return {"adapter_config.json", "adapter_model.safetensors"} <= names or opened != folder.stat().st_ino
    except FileNotFoundError:
        return True
    finally:
        os.close(fd)


def test_killed_stagings_end_in_the_declared_state(team: Team, killer: Killer) -> None:
    dice = random.Random(5)
    team.apply(*(team.adapter(name, team.put(name)) for name in NAMES), team.service("svc", ["a"]))
    team.until("the subtree", lambda: team.status("svc").get("adapterSubtreeSyncKey"), timeout=180)
    declared = ["a"]
    for _ in range(EDITS):
        declared = [name for name in NAMES if dice.random() < 0.6]
        team.apply(team.service("svc", declared))
        time.sleep(dice.uniform(0.2, 1.5))
        for name in team.staged("svc"):  # whatever is there is whole
            assert _is_whole(team.subtree("svc") / name), f"{name} is torn"
    killer.stop()
    sys.stdout.write(f"{killer.kills} stagings killed\n")
    for name in declared:
        team.cluster.kubectl(
            "annotate", "aimsvc", "svc", "-n", team.namespace, f"aim.eai.amd.com/retry-staging={name}", "--overwrite"
        )
    team.until("the declared set to be staged", lambda: team.staged("svc") == set(declared), timeout=180)
    team.until_loaded("svc", *declared)
    assert killer.kills > 0
