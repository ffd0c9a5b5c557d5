"""Runs one test body on teams of both pipelines at once: most of its time is waiting, so this takes little longer."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")


def on_both_pipelines(test: Callable[[T], None]) -> Callable[[dict[str, T]], None]:
    """Return a test that runs this body at once on each team of the fixture `teams`."""

    def both(teams: dict[str, T]) -> None:
        side_by_side(test, teams)

    both.__name__, both.__doc__, both.__module__ = test.__name__, test.__doc__, test.__module__
    return both


def side_by_side(body: Callable[[T], None], over: dict[str, T]) -> None:
    """Run a body over each value at once and wait for all; fail with the first failure, and print all.

    Args: `over`: the argument of the body, by the name for its failure.
    """
    with ThreadPoolExecutor(len(over)) as pool:
        running = {name: pool.submit(body, value) for name, value in over.items()}
    failures = {name: error for name, one in running.items() if (error := one.exception()) is not None}
    for name, error in failures.items():
        print(f"over {name}: {error!r}")  # noqa: T201 - shown when it fails
    for error in failures.values():
        raise error
