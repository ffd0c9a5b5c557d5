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


def pytest_runtest_logfinish() -> None:
    """Do so again after a test of code that gives frozen objects back to the collector."""
    if gc.get_freeze_count() == 0:
        pytest_collection_finish()
