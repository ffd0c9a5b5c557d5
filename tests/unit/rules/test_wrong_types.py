"""Wrong types at every path of every kind's plain manifest and of every rule's examples: judged, never a failure."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import pytest

from api.kinds import Kind
from rules.examples import kinds, manifest, scene, surroundings
from rules.registry import all_rules
from rules.validate import validate
from rules.world import KIND_BY_NAME

WRONG: tuple[Any, ...] = (None, True, -1, 10**18, 1.5, "", "x", [], [None], ["x"], {}, {"x": []})


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every path of a value, its own (empty) one first."""
    yield path
    entries = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, part in entries:
        yield from places(part, (*path, key))


def put(obj: dict[str, Any], path: tuple[Any, ...], value: Any) -> dict[str, Any]:
    """A copy of an object with another value at a path."""
    result = copy.deepcopy(obj)
    holder: Any = result
    for key in path[:-1]:
        holder = holder[key]
    holder[path[-1]] = value
    return result


def objects(kind: Kind) -> list[tuple[dict[str, Any], Any]]:
    """The plain manifest, and what the rules of the kind refuse, each with the objects around it."""
    found: list[tuple[dict[str, Any], Any]] = [(manifest(kind.kind, {}), surroundings())]
    for entry in all_rules():
        if kind.kind in entry.kinds:
            spelt = scene(KIND_BY_NAME[kind.kind], entry.refused)
            found.append((spelt.new, spelt.world))
    return found


@pytest.mark.parametrize("kind", kinds(), ids=lambda kind: kind.kind)
def test_wrong_types_at_every_path_never_fail(kind: Kind) -> None:
    seen: set[tuple[Any, ...]] = set()
    for plain, world in objects(kind):
        for path in places(plain.get("spec") or {}, ("spec",)):
            if path in seen:
                continue
            seen.add(path)
            for wrong in WRONG:
                new = put(plain, path, wrong)
                before = copy.deepcopy(new)
                for old in (None, plain):
                    verdict = validate(kind, new, old, world, request_version=kind.version)
                    assert not verdict.failures, (path, wrong, verdict.failures[0].text)
                assert new == before, (path, wrong)
