"""What all tests share: no deadline for properties on a busy machine, and a collector that skips the suite itself.

Files run in the order of `tests/order.py`, and a run that was given workers ends with its slowest files.
"""

from __future__ import annotations

import gc

import pytest
from hypothesis import settings

from tests.order import Stopwatch, file_of, longest_first

settings.register_profile("aim-adapters", deadline=None, print_blob=True)
settings.load_profile("aim-adapters")


_SHOWN_FILES = 12
_stopwatch = Stopwatch()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the longest files first; the tests of a file keep their order."""
    ranks = longest_first(item.nodeid for item in items)
    items.sort(key=lambda item: ranks[file_of(item.nodeid)])


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Add up the seconds of a file."""
    _stopwatch.add(report.nodeid, report.duration)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the slowest files where files are the unit of distribution."""
    if terminalreporter.config.getoption("dist", "no") == "loadfile":
        terminalreporter.section("slowest files")
        for file, seconds in _stopwatch.slowest(_SHOWN_FILES):
            terminalreporter.write_line(f"{seconds:.0f}s {file}")


def pytest_collection_finish() -> None:
    """Take the collected tests and the imported modules out of the collector's sight: they stay until the end.

    A full garbage collection then takes about a millisecond instead of 200.
    """
    gc.collect()
    gc.freeze()


_files = {"last": ""}


def pytest_runtest_logstart(nodeid: str) -> None:
    """Do so again where the tests of the file before gave frozen objects back to the collector."""
    file = nodeid.partition("::")[0]
    if file != _files["last"] and gc.get_freeze_count() == 0:
        pytest_collection_finish()
    _files["last"] = file
