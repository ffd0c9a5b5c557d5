"""What all tests share: no deadline for properties on a busy machine, and a collector that skips the suite itself."""

from __future__ import annotations

import gc

from hypothesis import settings

settings.register_profile("aim-adapters", deadline=None, print_blob=True)
settings.load_profile("aim-adapters")


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
