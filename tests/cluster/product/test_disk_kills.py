"""Staging killed at random moments while a service is edited 20 times: it ends in the declared state."""

from __future__ import annotations

import os
import random
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.cluster.product.both import side_by_side
from tests.cluster.product.team import Team

EDITS = 20
NAMES = ("a", "b", "c", "d")


class Killer(threading.Thread):
    """Kills staging processes of some namespaces, found by their arguments, at a random moment after their start."""

    def __init__(self, namespaces: Iterable[str], dice: random.Random) -> None:
        super().__init__(daemon=True)
        self._wanted = {f"--namespace={namespace}".encode(): namespace for namespace in namespaces}
        self._dice = dice
        self._over: set[str] = set()
        self._seen: set[int] = set()
        self.kills: Counter[str] = Counter()

    def run(self) -> None:
        while not self._over >= set(self._wanted.values()):
            for pid, namespace in self._stagings():
                if pid not in self._seen and namespace not in self._over:
                    self._seen.add(pid)
                    if self._dice.random() < 0.6:
                        threading.Timer(self._dice.uniform(0, 0.8), self._kill, (pid, namespace)).start()
            time.sleep(0.02)

    def spare(self, *namespaces: str) -> None:
        """Stop killing in these namespaces, except processes that are already selected."""
        self._over.update(namespaces)

    def _stagings(self) -> Iterator[tuple[int, str]]:
        for path in Path("/proc").iterdir():
            if path.name.isdigit() and int(path.name) not in self._seen and (namespace := self._namespace(path)):
                yield int(path.name), namespace

    def _namespace(self, process: Path) -> str | None:
        """Return the namespace that a process stages for, None for other processes."""
        try:
            arguments = (process / "cmdline").read_bytes().split(b"\0")
        except OSError:
            return None
        if b"stage" not in arguments or b"disk" not in arguments:
            return None
        return next((self._wanted[word] for word in arguments if word in self._wanted), None)

    def _kill(self, pid: int, namespace: str) -> None:
        if self._namespace(Path(f"/proc/{pid}")) == namespace:
            os.kill(pid, signal.SIGKILL)
            self.kills[namespace] += 1


@pytest.fixture
def killer(teams: dict[str, Team]) -> Iterator[Killer]:
    seed = int(os.environ.get("AIMA_TEST_SEED") or random.SystemRandom().randrange(2**32))
    sys.stdout.write(f"AIMA_TEST_SEED={seed}\n")
    namespaces = [team.namespace for team in teams.values()]
    thread = Killer(namespaces, random.Random(seed))
    thread.start()
    yield thread
    thread.spare(*namespaces)
    thread.join(5)


def _is_whole(folder: Path) -> bool:
    """Whether an adapter's directory has both files, or was moved away during the check."""
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


def test_killed_stagings_end_in_the_declared_state(teams: dict[str, Team], killer: Killer) -> None:
    side_by_side(partial(_edit_under_kills, killer), teams)


def _edit_under_kills(killer: Killer, team: Team) -> None:
    dice = random.Random(5)
    team.apply(*(team.adapter(name, team.put(name)) for name in NAMES), team.service("svc", ["a"]))
    team.until("the subtree", lambda: team.status("svc").get("adapterSubtreeSyncKey"), timeout=180)
    declared = ["a"]
    for _ in range(EDITS):
        declared = [name for name in NAMES if dice.random() < 0.6]
        team.apply(team.service("svc", declared))
        time.sleep(dice.uniform(0.2, 1.5))
        for name in team.staged("svc"):  # every directory is complete
            assert _is_whole(team.subtree("svc") / name), f"{name} is torn"
    killer.spare(team.namespace)
    sys.stdout.write(f"{team.pipeline}: {killer.kills[team.namespace]} stagings killed\n")
    for name in declared:
        team.cluster.kubectl(
            "annotate", "aimsvc", "svc", "-n", team.namespace, f"aim.eai.amd.com/retry-staging={name}", "--overwrite"
        )
    team.until("the declared set to be staged", lambda: team.staged("svc") == set(declared), timeout=180)
    team.until_loaded("svc", *declared)
    assert killer.kills[team.namespace] > 0
