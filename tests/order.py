"""The order of test files: the longest first, so that no worker is left alone with one at the end.

Only files that take longer than half a minute matter. `make test-cluster` and `make test-chart` print the slowest
files; change a number here when its file becomes much slower or faster.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

SECONDS = {
    "tests/cluster/product/test_durable_truth.py": 200,
    "tests/cluster/test_replicas_killed.py": 150,
    "tests/cluster/product/test_disk_kills.py": 125,
    "tests/cluster/product/test_lifecycle.py": 125,
    "tests/cluster/test_availability.py": 110,
    "tests/cluster/product/test_bounds.py": 95,
    "tests/cluster/product/test_strangers.py": 80,
    "tests/cluster/test_plugin_people.py": 80,
    "tests/cluster/test_devcluster_life.py": 75,
    "tests/cluster/test_devcluster_ends.py": 70,
    "tests/cluster/product/test_tenants.py": 65,
    "tests/cluster/docs/test_how_to_sources.py": 60,
    "tests/cluster/test_engine_faults.py": 60,
    "tests/cluster/docs/test_how_to.py": 60,
    "tests/cluster/test_demo.py": 55,
    "tests/cluster/product/test_replicas.py": 51,
    "tests/cluster/product/test_fixtures.py": 48,
    "tests/cluster/product/test_random_walk.py": 48,
    "tests/cluster/product/test_moving.py": 44,
    "tests/cluster/test_rotation.py": 40,
    "tests/chart/test_chart_live.py": 90,
    "tests/chart/test_cert_manager.py": 45,
    "tests/chart/test_chart_ports.py": 40,
    "tests/chart/test_image.py": 35,
}


def file_of(nodeid: str) -> str:
    """Return the file of a test."""
    return nodeid.partition("::")[0]


def longest_first(nodeids: Iterable[str]) -> dict[str, int]:
    """Return the rank of each file: by its recorded seconds; other files keep their order, after these."""
    files = dict.fromkeys(file_of(nodeid) for nodeid in nodeids)
    return {file: rank for rank, file in enumerate(sorted(files, key=lambda file: -SECONDS.get(file, 0)))}


class Stopwatch:
    """Adds up the seconds of each test file, set-up included."""

    def __init__(self) -> None:
        self._seconds: defaultdict[str, float] = defaultdict(float)

    def add(self, nodeid: str, seconds: float) -> None:
        """Count one phase of a test."""
        self._seconds[file_of(nodeid)] += seconds

    def slowest(self, most: int) -> list[tuple[str, float]]:
        """Return the slowest files with their seconds."""
        return sorted(self._seconds.items(), key=lambda found: -found[1])[:most]
