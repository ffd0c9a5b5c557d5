"""Kill each command before and after each file-system operation, and let each operation fail in each way.

A reader looks at the mount at every operation of the run, after the kill, and after the next run to the end. It may
see only absent or whole adapters; nothing that is declared stays away, nothing that was removed comes back, and in
the end the reaper finds nothing but what is used.
"""

from __future__ import annotations

import errno
import itertools
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from disk.failures import DiskFailure, from_os_error
from disk.fetch import Fetcher, fetch
from disk.fs import Fs, Moment
from disk.layout import ASIDE, STAGING, UNLOAD
from disk.progress import Meter
from tests.unit.disk.small import SmallProcess
from tests.unit.disk.world import (
    Files,
    MemorySource,
    Violation,
    adapter,
    copy_with_links,
    digest_of,
    fetch_spec,
    look,
    quick,
    reap_spec,
    run_reap,
    run_stage,
    run_sync,
    stage_spec,
    sync_spec,
)

A, A2, B = adapter(1), adapter(2), adapter(3, rank=16)
ERRORS = (errno.ENOSPC, errno.EIO, errno.EDQUOT, errno.ESTALE)
DISK_REASONS = ("DiskFull", "DiskIoError", "DiskQuotaExceeded", "DiskStale")
HOUR = 3600.0
Act = Callable[[Path, Fs], object]


@dataclass(frozen=True)
class Scenario:
    """One command on one disk.

    `before` builds the disk; `act` is the command under test, and `again` what ends in the declared state (default:
    the command once more); `allowed` is what a reader may see in each service; `wanted` what it sees in the end.
    """

    before: Act
    act: Act
    allowed: dict[str, dict[str, list[Files]]]
    wanted: dict[str, dict[str, Files]]
    again: Act | None = None
    live: tuple[str, ...] = ("u1", "u2")
    can_link: bool = True
    can_exchange: bool = True
    never_absent: dict[str, tuple[str, ...]] = field(default_factory=dict)


def _sync_a_b(disk: Path, fs: Fs) -> None:
    run_sync(sync_spec(disk, "u1", "a", "b"), fs)
    run_sync(sync_spec(disk, "u2", "a"), fs)


def _staged(disk: Path, fs: Fs) -> None:
    _sync_a_b(disk, fs)
    run_stage(stage_spec(disk, "u1", "a"), MemorySource(A), fs)
    run_stage(stage_spec(disk, "u1", "b"), MemorySource(B), fs)


def _staged_twice(disk: Path, fs: Fs) -> None:
    _staged(disk, fs)
    run_stage(stage_spec(disk, "u2", "a"), MemorySource(A), fs)


def _hold(disk: Path, fs: Fs) -> None:
    run_stage(stage_spec(disk, "u1", "a", fresh=True, hold_changed=True), MemorySource(A2), fs)


def _promote_held(disk: Path, fs: Fs) -> None:
    run_stage(stage_spec(disk, "u1", "a", fresh=True), MemorySource(A2), fs)


def _held(disk: Path, fs: Fs) -> None:
    _staged(disk, fs)
    _hold(disk, fs)


def _sweep(*live: str) -> Act:
    def act(disk: Path, fs: Fs) -> None:
        later = time.time() + HOUR
        run_reap(reap_spec(disk, *live, listed_at=later), fs, now=later)

    return act


def _litter(disk: Path, fs: Fs) -> None:
    """A staged disk with what crashes leave, and a service that is gone."""
    _staged_twice(disk, fs)
    for folder, name in ((STAGING, "promote--x"), (ASIDE, "u1--a--x"), (UNLOAD, "u1--b--x"), (STAGING, "get-00")):
        place = disk / folder / name / "files"
        place.mkdir(parents=True)
        (place / "adapter_config.json").write_bytes(b"{}")
    (disk / STAGING / "record--x").write_bytes(b"{")


def _fetch(disk: Path, fs: Fs) -> None:
    fetch(Fetcher(fetch_spec(disk), fs, lambda: MemorySource(A), Meter(), quick()))


BOTH = {"u1": {"a": [A], "b": [B]}, "u2": {"a": [A]}}
CHANGING = {"u1": {"a": [A, A2], "b": [B]}, "u2": {"a": [A]}}
NONE: dict[str, Files] = {}
SCENARIOS = {
    "first sync": Scenario(lambda d, f: None, _sync_a_b, BOTH, {"u1": NONE, "u2": NONE}),
    "first staging": Scenario(
        _sync_a_b,
        lambda d, f: run_stage(stage_spec(d, "u1", "a"), MemorySource(A), f),
        BOTH,
        {"u1": {"a": A}, "u2": NONE},
    ),
    "staging where nothing links": Scenario(
        _sync_a_b,
        lambda d, f: run_stage(stage_spec(d, "u1", "a"), MemorySource(A), f),
        BOTH,
        {"u1": {"a": A}, "u2": NONE},
        can_link=False,
    ),
    "staging of a stored content": Scenario(
        _staged,
        lambda d, f: run_stage(stage_spec(d, "u2", "a"), MemorySource(A), f),
        BOTH,
        {"u1": {"a": A, "b": B}, "u2": {"a": A}},
        never_absent={"u1": ("a", "b")},
    ),
    "changed content, one step": Scenario(
        _staged_twice,
        _promote_held,
        CHANGING,
        {"u1": {"a": A2, "b": B}, "u2": {"a": A}},
        never_absent={"u1": ("a", "b"), "u2": ("a",)},
    ),
    "changed content, two renames": Scenario(
        _staged_twice,
        _promote_held,
        CHANGING,
        {"u1": {"a": A2, "b": B}, "u2": {"a": A}},
        can_exchange=False,
        never_absent={"u1": ("b",), "u2": ("a",)},
    ),
    "changed content is held": Scenario(
        _staged,
        _hold,
        {"u1": {"a": [A], "b": [B]}, "u2": {}},
        {"u1": {"b": B}, "u2": NONE},
        never_absent={"u1": ("b",)},
    ),
    "held content is promoted": Scenario(
        _held,
        _promote_held,
        {"u1": {"a": [A2], "b": [B]}, "u2": {}},
        {"u1": {"a": A2, "b": B}, "u2": NONE},
        never_absent={"u1": ("b",)},
    ),
    "same content again": Scenario(
        _staged_twice,
        lambda d, f: run_stage(stage_spec(d, "u1", "a", fresh=True), MemorySource(A), f),
        BOTH,
        {"u1": {"a": A, "b": B}, "u2": {"a": A}},
        never_absent={"u1": ("a", "b"), "u2": ("a",)},
    ),
    "an adapter is removed": Scenario(
        _staged_twice,
        lambda d, f: run_sync(sync_spec(d, "u1", "b", generation=2), f),
        BOTH,
        {"u1": {"b": B}, "u2": {"a": A}},
        never_absent={"u1": ("b",), "u2": ("a",)},
    ),
    "all adapters are removed": Scenario(
        _staged_twice,
        lambda d, f: run_sync(sync_spec(d, "u1", generation=2), f),
        BOTH,
        {"u1": NONE, "u2": {"a": A}},
        never_absent={"u2": ("a",)},
    ),
    "an adapter is added again": Scenario(
        lambda d, f: (_staged(d, f), run_sync(sync_spec(d, "u1", "b", generation=2), f))[0],
        lambda d, f: (
            run_sync(sync_spec(d, "u1", "a", "b", generation=3), f),
            run_stage(stage_spec(d, "u1", "a"), MemorySource(A), f),
        ),
        BOTH,
        {"u1": {"a": A, "b": B}, "u2": NONE},
        never_absent={"u1": ("b",)},
    ),
    "a sweep": Scenario(
        _litter,
        _sweep("u1"),
        BOTH,
        {"u1": {"a": A, "b": B}},
        live=("u1",),
        never_absent={"u1": ("a", "b")},
    ),
    "a sweep while nothing lives": Scenario(_litter, _sweep(), BOTH, {}, live=()),
}


class Killer:
    """A hook that counts operations, looks at the mount at each, and at one of them kills or fails.

    A run that is killed or fails looks from that operation on: before it, it does what the run without a fault did.
    """

    def __init__(self, scenario: Scenario, disk: Path) -> None:
        self.scenario = scenario
        self.disk = disk
        self.count = 0
        self.at: int | None = None
        self.error: int | None = None
        self.names: list[str] = []

    def __call__(self, moment: Moment, operation: str, path: Path) -> None:
        number, self.count = self.count, self.count + 1
        if self.at is None or number >= self.at:  # up to there, the run that counted the operations has looked
            check_readers(self.scenario, self.disk)
        self.names.append(f"{moment} {operation}")
        if number != self.at:
            return
        if self.error is None:
            os.kill(os.getpid(), signal.SIGKILL)
        raise OSError(self.error or 0, os.strerror(self.error or 0), str(path))


def check_readers(scenario: Scenario, disk: Path) -> None:
    """Look at each service as its pods would. Raises: Violation."""
    for service, allowed in scenario.allowed.items():
        seen = look(disk / service, allowed)
        for name in scenario.never_absent.get(service, ()):
            if name not in seen:
                raise Violation(f"{service}/{name} was absent")


def check_end(scenario: Scenario, disk: Path) -> None:
    """Check the declared state, and that an hour later a sweep leaves only what is used. Raises: AssertionError."""
    check_readers(scenario, disk)
    for service, wanted in scenario.wanted.items():
        assert look(disk / service, scenario.allowed[service]) == wanted, service
    later = time.time() + HOUR
    result = run_reap(reap_spec(disk, *scenario.live, listed_at=later), now=later)
    assert result.ok, result
    for folder in (STAGING, ASIDE, UNLOAD):
        assert os.listdir(disk / folder) == [], folder
    check_readers(scenario, disk)
    held = "held" in str([path.read_text() for path in (disk / ".done").rglob("*.json")])
    stored = {f"sha256:{name}" for name in os.listdir(disk / ".store")}
    used = {digest_of(files) for wanted in scenario.wanted.values() for files in wanted.values()}
    assert stored == (used | {digest_of(A2)} if held else used)
    assert not list(disk.rglob("*record--*"))


def fs_of(scenario: Scenario, hook: Killer | None) -> Fs:
    """Return the file system of a scenario."""
    return Fs(hook, can_link=scenario.can_link, can_exchange=scenario.can_exchange)


def run_and_be_killed(name: str, disk: str, number: int) -> None:
    """Run a scenario's command; at one operation it kills this process."""
    scenario = SCENARIOS[name]
    killer = Killer(scenario, Path(disk))
    killer.at = number
    scenario.act(killer.disk, fs_of(scenario, killer))


@dataclass
class Bench:
    """Builds copies of a scenario's disk and runs the command on them."""

    name: str
    folder: Path
    small: SmallProcess

    def __post_init__(self) -> None:
        self.scenario = SCENARIOS[self.name]
        self.template = self.folder / "template"
        self.template.mkdir()
        self.scenario.before(self.template, self.fs())

    def fs(self, hook: Killer | None = None) -> Fs:
        return fs_of(self.scenario, hook)

    def disk(self) -> Path:
        disk = self.folder / "disk"
        shutil.rmtree(disk, ignore_errors=True)
        copy_with_links(self.template, disk, {})
        return disk

    def count(self) -> list[str]:
        disk = self.disk()
        killer = Killer(self.scenario, disk)
        self.scenario.act(disk, self.fs(killer))
        check_end(self.scenario, disk)
        return killer.names

    def kill_at(self, number: int) -> Path:
        disk = self.disk()
        status = self.small.call(run_and_be_killed, self.name, str(disk), number)
        assert os.WIFSIGNALED(status), f"operation {number}: a reader saw a violation, or it ended early ({status})"
        return disk

    def fail_at(self, number: int, error: int) -> Path:
        disk = self.disk()
        killer = Killer(self.scenario, disk)
        killer.at, killer.error = number, error
        try:
            self.scenario.act(disk, self.fs(killer))
        except (DiskFailure, OSError) as problem:
            failure = problem if isinstance(problem, DiskFailure) else from_os_error(problem)
            if failure.reason not in DISK_REASONS:
                raise AssertionError(f"unexpected {failure}") from problem
        return disk

    def recover(self, disk: Path) -> None:
        check_readers(self.scenario, disk)
        (self.scenario.again or self.scenario.act)(disk, self.fs(Killer(self.scenario, disk)))
        check_end(self.scenario, disk)


POINTS: dict[str, int] = {}


@pytest.mark.parametrize("name", SCENARIOS)
def test_killed_at_each_operation(name: str, folder: Path, small: SmallProcess) -> None:
    bench = Bench(name, folder, small)
    names = bench.count()
    for number, shown in enumerate(names):
        disk = bench.kill_at(number)
        try:
            bench.recover(disk)
        except BaseException as error:
            raise AssertionError(f"{name}: killed at operation {number} ({shown})") from error
    POINTS[f"kill {name}"] = len(names)


@pytest.mark.parametrize("name", SCENARIOS)
def test_each_operation_fails(name: str, folder: Path, small: SmallProcess) -> None:
    bench = Bench(name, folder, small)
    names = bench.count()
    before = [number for number, shown in enumerate(names) if shown.startswith("before")]
    for number, error in itertools.product(before, ERRORS):
        disk = bench.fail_at(number, error)
        try:
            bench.recover(disk)
        except BaseException as problem:
            raise AssertionError(f"{name}: {errno.errorcode[error]} at {number} ({names[number]})") from problem
    POINTS[f"fail {name}"] = len(before) * len(ERRORS)


def fetch_and_be_killed(cache: str, number: int) -> None:
    """Fetch; at one operation the hook kills this process."""
    seen = itertools.count()

    def hook(moment: Moment, operation: str, path: Path) -> None:
        if next(seen) == number:
            os.kill(os.getpid(), signal.SIGKILL)

    _fetch(Path(cache), Fs(hook))


def test_fetch_killed_at_each_operation(folder: Path, small: SmallProcess) -> None:
    names: list[str] = []
    cache = folder / "count"
    cache.mkdir()
    _fetch(cache, Fs(lambda moment, operation, path: names.append(operation)))
    for number in range(len(names)):
        cache = folder / f"cache{number}"
        cache.mkdir()
        assert os.WIFSIGNALED(small.call(fetch_and_be_killed, str(cache), number))
        _fetch(cache, Fs())
        assert look(cache / "acme", {"base": [A]}) == {"base": A}
        assert os.listdir(cache / ".aim-adapters" / "staging") == []
        shutil.rmtree(cache)
    POINTS["kill fetch"] = len(names)


def test_number_of_points(capsys: pytest.CaptureFixture[str]) -> None:
    """Prints how many points were tried (the last test of this module; it counts what the others did)."""
    with capsys.disabled():
        kills = sum(count for name, count in POINTS.items() if name.startswith("kill"))
        fails = sum(count for name, count in POINTS.items() if name.startswith("fail"))
        sys.stdout.write(f"\ncrash points: {kills} kills, {fails} failing operations\n")
    if len(POINTS) > 2 * len(SCENARIOS):  # not when single tests were selected
        assert kills > 500
        assert fails > 1000
