"""The order of test files: the longest first, and no file that is gone."""

from __future__ import annotations

from itertools import groupby
from pathlib import Path

from tests.order import SECONDS, Stopwatch, file_of, longest_first

ROOT = Path(__file__).parents[3]


def test_every_file_in_the_table_exists() -> None:
    assert [name for name in SECONDS if not (ROOT / name).is_file()] == []


def test_the_longest_files_come_first_and_others_keep_their_order() -> None:
    long = "tests/cluster/product/test_disk_kills.py"
    longer = "tests/cluster/test_replicas_killed.py"
    given = ["tests/b.py::one", "tests/a.py::two", f"{long}::three", f"{longer}::four"]
    ranks = longest_first(given)
    assert sorted(ranks, key=ranks.__getitem__) == [longer, long, "tests/b.py", "tests/a.py"]


def test_a_file_stays_whole() -> None:
    given = [f"{file}::{number}" for number in range(3) for file in ("tests/b.py", *SECONDS)]
    ranks = longest_first(given)
    ordered = sorted(given, key=lambda nodeid: ranks[file_of(nodeid)])
    assert len(list(groupby(ordered, file_of))) == len(SECONDS) + 1
    assert [nodeid for nodeid in ordered if file_of(nodeid) == "tests/b.py"] == [f"tests/b.py::{n}" for n in range(3)]


def test_the_phases_of_all_tests_of_a_file_add_up() -> None:
    watch = Stopwatch()
    for nodeid, seconds in (("a.py::one", 1.0), ("a.py::one", 0.5), ("b.py::two", 4.0), ("c.py::three", 0.1)):
        watch.add(nodeid, seconds)
    assert watch.slowest(2) == [("b.py", 4.0), ("a.py", 1.5)]
