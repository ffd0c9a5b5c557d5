"""The rank ceiling, case by case (docs/contract.md, Rank ceiling)."""

from __future__ import annotations

from typing import Any

import pytest

from rules.rank import decide_ceiling, round_up, static_ceiling
from rules.references import UNREADABLE
from rules.runtime_config import MergedRuntimeConfig

ROUNDED = {1: 1, 2: 8, 8: 8, 9: 16, 16: 16, 33: 64, 257: 320, 321: 512, 512: 512, 513: None}


@pytest.mark.parametrize(("rank", "ceiling"), ROUNDED.items())
def test_round_up(rank: int, ceiling: int | None) -> None:
    assert round_up(rank) == ceiling


def test_a_static_ceiling_ignores_ranks_that_no_engine_supports() -> None:
    assert static_ceiling([16, 1024]) == 16
    assert static_ceiling([]) is None
    assert static_ceiling([8], floor=64) == 64


def adapter(rank: int | None = None) -> dict[str, Any]:
    return {"spec": {"type": "adapter"} if rank is None else {"type": "adapter", "rank": rank}}


def config(namespaced: int | None = None, cluster: int | None = None, readable: bool = True) -> MergedRuntimeConfig:
    def holder(rank: int | None) -> dict[str, Any] | None:
        return None if rank is None else {"spec": {"adapterRuntime": {"maxRank": rank}}}

    return MergedRuntimeConfig("default", holder(namespaced), holder(cluster), readable)


def service(mode: str, names: str, rank: int | None = None) -> dict[str, Any]:
    spec: dict[str, Any] = {"adapterMode": mode, "adapters": [{"name": name} for name in names]}
    if rank is not None:
        spec["adapterRuntime"] = {"maxRank": rank}
    return {"metadata": {"name": "s", "namespace": "n"}, "spec": spec}


# service, config, artifacts, reported -> value, deferred, invalid_because
STATIC: dict[str, tuple[Any, ...]] = {
    "largest rank, rounded up": ("ab", {"a": adapter(8), "b": adapter(40)}, None, 64, ()),
    "absent means 16": ("a", {"a": adapter()}, None, 16, ()),
    "down again when all are known": ("a", {"a": adapter(8)}, 64, 8, ()),
    "never below the reported while one is missing": ("ab", {"a": adapter(8), "b": None}, 64, 64, ()),
    "never below the reported while one is unreadable": ("ab", {"a": adapter(8), "b": UNREADABLE}, 64, 64, ()),
    "up at once, missing or not": ("ab", {"a": adapter(128), "b": None}, 64, 128, ()),
    "above 512 is refused, the others count": ("ab", {"a": adapter(8), "b": adapter(513)}, None, 8, ("b",)),
    "above 512 keeps the last valid one": ("ab", {"a": adapter(8), "b": adapter(513)}, 32, 32, ("b",)),
    "no adapters need none": ("", {}, 64, None, ()),
    "nothing known at all": ("a", {"a": None}, None, None, ()),
}


@pytest.mark.parametrize(("names", "artifacts", "reported", "value", "invalid"), STATIC.values(), ids=STATIC)
def test_static(names: str, artifacts: Any, reported: int | None, value: int | None, invalid: tuple[str, ...]) -> None:
    decision = decide_ceiling(service("static", names), config(128), artifacts, reported)
    assert (decision.value, decision.invalid_because, decision.deferred) == (value, invalid, False)


OWN, NAMESPACED = "spec.adapterRuntime.maxRank", 'AIMRuntimeConfig "default"'
CLUSTER, BUILT_IN = 'AIMClusterRuntimeConfig "default"', "built-in default"
ORIGINS: dict[str, tuple[Any, ...]] = {
    "the service wins": (8, config(64, 128), 8, OWN),
    "then the namespace": (None, config(64, 128), 64, NAMESPACED),
    "then the cluster": (None, config(None, 128), 128, CLUSTER),
    "then 32": (None, config(), 32, BUILT_IN),
    "the service needs no config": (8, config(readable=False), 8, OWN),
}


@pytest.mark.parametrize(("own", "configured", "value", "origin"), ORIGINS.values(), ids=ORIGINS)
def test_where_a_dynamic_ceiling_comes_from(own: int | None, configured: Any, value: int, origin: str) -> None:
    decision = decide_ceiling(service("dynamic", "", own), configured, {}, None)
    assert (decision.value, decision.origin) == (value, origin)


DYNAMIC: dict[str, tuple[Any, ...]] = {
    "raising acts at once, also with a missing adapter": (64, {"a": None}, 32, 64, False, ()),
    "lowering waits for a missing adapter": (8, {"a": None}, 32, 32, True, ()),
    "lowering waits for an unreadable adapter": (8, {"a": UNREADABLE}, 32, 32, True, ()),
    "lowering is taken when all ranks fit": (8, {"a": adapter(8)}, 32, 8, False, ()),
    "an absent rank is 16 and resolved": (16, {"a": adapter()}, 32, 16, False, ()),
    "lowering below a resolved rank is invalid": (8, {"a": adapter(16)}, 32, 32, False, ("a",)),
    "first ceiling below a rank: refused, not raised": (8, {"a": adapter(16)}, None, 8, False, ("a",)),
    "rank above a raised ceiling is still refused": (64, {"a": adapter(128)}, 32, 64, False, ("a",)),
    "unchanged": (32, {"a": adapter(16)}, 32, 32, False, ()),
}


@pytest.mark.parametrize(
    ("asked", "artifacts", "reported", "value", "deferred", "invalid"), DYNAMIC.values(), ids=DYNAMIC
)
def test_dynamic(
    asked: int, artifacts: Any, reported: int | None, value: int, deferred: bool, invalid: tuple[str, ...]
) -> None:
    decision = decide_ceiling(service("dynamic", "a", asked), config(), artifacts, reported)
    assert (decision.value, decision.deferred, decision.invalid_because) == (value, deferred, invalid)


def test_a_named_config_that_is_missing_keeps_the_last_ceiling_and_compares_nothing() -> None:
    named = MergedRuntimeConfig("team", None, None)
    decision = decide_ceiling(service("dynamic", "a"), named, {"a": adapter(512)}, 64)
    assert (decision.value, decision.judged, decision.invalid_because) == (64, False, ())


def test_an_unreadable_config_keeps_the_last_ceiling_and_compares_nothing() -> None:
    decision = decide_ceiling(service("dynamic", "a"), config(readable=False), {"a": adapter(512)}, 64)
    assert (decision.value, decision.judged, decision.invalid_because) == (64, False, ())


def test_a_config_value_that_no_engine_supports_keeps_the_last_ceiling() -> None:
    decision = decide_ceiling(service("dynamic", "a"), config(48), {"a": adapter(512)}, 64)
    assert (decision.value, decision.judged) == (64, False)


def test_deciding_twice_changes_nothing() -> None:
    """A pass that changed its own input would never settle."""
    artifacts = {"a": adapter(16), "b": None}
    first = decide_ceiling(service("dynamic", "ab", 8), config(), artifacts, 32)
    assert decide_ceiling(service("dynamic", "ab", 8), config(), artifacts, first.value) == first
