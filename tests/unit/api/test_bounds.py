"""The table of bounds: every schema has one for each list, map and string."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from api import bounds
from api.kinds import AIM_KINDS, Kind
from api.schema import object_schema
from tools.reference_bounds import render

EACH_KIND = pytest.mark.parametrize("kind", AIM_KINDS, ids=lambda kind: kind.kind)


def nodes(schema: dict[str, Any], path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], dict[str, Any]]]:
    yield path, schema
    for name, child in schema.get("properties", {}).items():
        yield from nodes(child, (*path, name))
    for word in ("items", "additionalProperties"):
        if word in schema:
            yield from nodes(schema[word], (*path, "[]"))


def unbounded(node: dict[str, Any]) -> list[str]:
    """Return the words that a node of a schema lacks."""
    wanted: list[str] = []
    if node.get("x-kubernetes-preserve-unknown-fields"):
        wanted = ["maxItems", "maxLength", "maxProperties"]
    elif "enum" in node:
        return []
    elif node.get("type") == "string" or node.get("x-kubernetes-int-or-string"):
        wanted = ["maxLength"]
    elif node.get("type") == "array":
        wanted = ["maxItems"]
    elif "additionalProperties" in node:
        wanted = ["maxProperties"]
    return [word for word in wanted if word not in node]


@EACH_KIND
def test_every_list_map_and_string_has_a_bound(kind: Kind) -> None:
    assert {path: lacks for path, node in nodes(object_schema(kind)) if (lacks := unbounded(node))} == {}


@EACH_KIND
def test_no_bound_of_a_spec_is_above_the_table(kind: Kind) -> None:
    spec = object_schema(kind)["properties"]["spec"]
    for path, node in nodes(spec):
        if path and not node.get("x-kubernetes-preserve-unknown-fields"):
            assert node.get("maxItems", 0) <= bounds.of_entries(path).most, path
            assert node.get("maxProperties", 0) <= bounds.of_entries(path).most, path
            assert node.get("maxLength", 0) <= bounds.of_string(path).most, path


def test_free_form_fields_are_those_of_the_schemas() -> None:
    found = set()
    for kind in AIM_KINDS:
        for path, node in nodes(object_schema(kind)["properties"]["spec"]):
            if node.get("x-kubernetes-preserve-unknown-fields"):
                assert bounds.free_form(path), path
                found.add(".".join(path).replace(".[]", "[]"))
    assert found == bounds.FREE_FORM


def test_maps_are_those_of_the_schemas() -> None:
    found = set()
    for kind in AIM_KINDS:
        for path, node in nodes(object_schema(kind)["properties"]["spec"]):
            if "additionalProperties" in node:
                found.add(path[-1])
    assert found == bounds.MAPS


def test_each_row_of_the_table_is_used_by_a_schema() -> None:
    used = set()
    for kind in AIM_KINDS:
        for path, node in nodes(object_schema(kind)["properties"]["spec"]):
            if path:
                used |= {bounds.of_entries(path), bounds.of_string(path)}
            if "additionalProperties" in node:
                used.add(bounds.of_string((*path, "{}")))
    assert {*bounds.LISTS, *bounds.STRINGS} <= used


@pytest.mark.parametrize(
    ("path", "most"),
    [
        (("adapters",), 64),
        (("env",), 256),
        (("modelSources", "[]", "env"), 256),
        (("profileOverrides", "engineEnv"), 256),
        (("modelSources",), 16),
        (("compatibleWith",), 64),
        (("profileOverrides", "features"), 16),
        (("labelPropagation", "match"), 64),
        (("storage", "downloadFilter", "include"), 64),
        (("imagePullSecrets",), 16),
        (("anything", "else"), bounds.MOST_ENTRIES),
    ],
)
def test_bounds_of_lists(path: tuple[str, ...], most: int) -> None:
    assert bounds.of_entries(path).most == most


@pytest.mark.parametrize(
    ("path", "most"),
    [
        (("adapters", "[]", "name"), 253),
        (("modelSources", "[]", "sourceUri"), 1024),
        (("compatibleWith", "[]"), 1024),
        (("env", "[]", "name"), 253),
        (("env", "[]", "value"), 32 * 1024),
        (("profileOverrides", "engineEnv", "[]"), 32 * 1024),
        (("image",), 4 * 1024),
    ],
)
def test_bounds_of_strings(path: tuple[str, ...], most: int) -> None:
    assert bounds.of_string(path).most == most


def test_the_page_is_up_to_date() -> None:
    page = Path(__file__).parents[3] / "docs" / "bounds.md"
    assert page.read_text() == render(), "run: make generate"
