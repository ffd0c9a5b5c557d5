"""The generated definitions: structural rules, names, columns, current files, and the command that writes them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from api import kinds
from api.kinds import AIM_KINDS, Kind
from api.schema import object_schema, structural
from tools import crds, generated
from tools import reference_objects as reference
from tools.crds import crd, render_crds
from tools.generated import Target, drift, run

CRDS = Target("CRDs", "tools.crds", crds.DIRECTORY, cache(render_crds), owned="*.yaml")
PAGE = Target("reference pages", "tools.reference_objects", reference.DIRECTORY, reference.render_reference)
EACH_KIND = pytest.mark.parametrize("kind", AIM_KINDS, ids=lambda kind: kind.kind)

ALLOWED_WORDS = {
    "description",
    "type",
    "format",
    "enum",
    "default",
    "minimum",
    "minLength",
    "maxLength",
    "pattern",
    "minItems",
    "maxItems",
    "maxProperties",
    "nullable",
    "items",
    "additionalProperties",
    "required",
    "properties",
    "x-kubernetes-int-or-string",
    "x-kubernetes-preserve-unknown-fields",
    "x-kubernetes-list-type",
    "x-kubernetes-list-map-keys",
    "x-kubernetes-map-type",
}


def _nodes(schema: dict[str, Any], path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    yield path, schema
    for name, child in schema.get("properties", {}).items():
        yield from _nodes(child, f"{path}.{name}")
    for word in ("items", "additionalProperties"):
        if word in schema:
            yield from _nodes(schema[word], f"{path}[]")


def _structural_faults(path: str, node: dict[str, Any]) -> Iterator[str]:
    """What the API server (or a reader of `kubectl explain`) would not accept in one node."""
    if not node.keys() <= ALLOWED_WORDS:
        yield f"{path}: unknown words {sorted(node.keys() - ALLOWED_WORDS)}"
    free = node.get("x-kubernetes-preserve-unknown-fields") or node.get("x-kubernetes-int-or-string")
    if "type" not in node and not free:
        yield f"{path}: no type"
    if "properties" in node and "additionalProperties" in node:
        yield f"{path}: properties beside additionalProperties"
    if (node.get("type") == "array") != ("items" in node):
        yield f"{path}: array and items go together"
    if not set(node.get("required", ())) <= set(node.get("properties", ())):
        yield f"{path}: requires what it does not have"
    if "enum" in node and "default" in node and node["default"] not in node["enum"]:
        yield f"{path}: default outside the enum"
    if node.get("x-kubernetes-list-type") == "map":
        inner = node["items"]
        for key in node["x-kubernetes-list-map-keys"]:
            if key not in inner.get("required", ()) and "default" not in inner["properties"][key]:
                yield f"{path}: map key {key} may be absent"
    if not node.get("description") and path and not path.endswith("[]") and path != ".metadata":
        yield f"{path}: no description"
    if "  " in node.get("description", "") or "{{" in node.get("description", ""):
        yield f"{path}: description with double blanks or template marks"


@EACH_KIND
def test_schemas_are_structural(kind: Kind) -> None:
    schema = object_schema(kind)
    assert [fault for path, node in _nodes(schema) for fault in _structural_faults(path, node)] == []
    assert set(schema["properties"]) == {"apiVersion", "kind", "metadata", "spec", "status"}


@EACH_KIND
def test_a_status_refuses_no_word(kind: Kind) -> None:
    status = object_schema(kind)["properties"]["status"]
    assert [path for path, node in _nodes(status) if "enum" in node or "default" in node] == []


@EACH_KIND
def test_every_list_of_named_things_is_a_map(kind: Kind) -> None:
    for path, node in _nodes(object_schema(kind)):
        if path.endswith((".env", ".containerEnv", ".imagePullSecrets", ".conditions", ".adapters")):
            assert node["x-kubernetes-list-type"] == "map", path


def test_keys_of_the_adapter_lists() -> None:
    properties = object_schema(kinds.AIM_SERVICE)["properties"]
    assert properties["spec"]["properties"]["adapters"]["x-kubernetes-list-map-keys"] == ["kind", "name"]
    assert properties["status"]["properties"]["adapters"]["x-kubernetes-list-map-keys"] == ["name"]


@EACH_KIND
def test_names_and_subresources(kind: Kind) -> None:
    definition = crd(kind)["spec"]
    assert definition["names"]["categories"] == ["aim", "all"]
    assert definition["scope"] == ("Namespaced" if kind.namespaced else "Cluster")
    assert [version["name"] for version in definition["versions"] if version["storage"]] == [kind.version]
    for version in definition["versions"]:
        assert version["subresources"]["status"] == {}
        columns = version["additionalPrinterColumns"]
        assert columns[-1]["name"] == "Age"
        assert all(_resolves(column["jsonPath"], version["schema"]["openAPIV3Schema"]) for column in columns)


def _resolves(path: str, schema: dict[str, Any]) -> bool:
    if path.startswith(".metadata."):
        return True
    for part in path.strip(".").split("."):
        schema = schema["properties"][part]
    return bool(schema)


def test_short_names_are_distinct() -> None:
    names = [crd(kind)["spec"]["names"]["shortNames"][0] for kind in AIM_KINDS]
    assert len(set(names)) == len(AIM_KINDS)


def test_both_service_versions_are_alike() -> None:
    old, new = crd(kinds.AIM_SERVICE)["spec"]["versions"]
    assert (old["name"], old["storage"], old["served"], old["deprecated"]) == ("v1alpha1", False, True, True)
    assert (new["name"], new["storage"], new["served"], "deprecated" in new) == ("v1alpha2", True, True, False)
    assert old["schema"] == new["schema"]
    assert old["subresources"] == new["subresources"]
    assert 0 < len(old["deprecationWarning"]) <= 256, "the API server's limit"
    names = [[column["name"] for column in version["additionalPrinterColumns"]] for version in (old, new)]
    assert names[0] == ["Status", "Model", "Template", "Mode", "Adapters", "Replicas", "Age"]
    assert names[1] == ["Status", "Model", "Profile", "Mode", "Adapters", "Replicas", "Age"]


def test_only_the_service_scales() -> None:
    scaling = [kind for kind in AIM_KINDS if "scale" in crd(kind)["spec"]["versions"][-1]["subresources"]]
    assert scaling == [kinds.AIM_SERVICE]


def test_definitions_fit_into_the_annotation_of_a_client_side_apply() -> None:
    largest = max(len(json.dumps(crd(kind))) for kind in AIM_KINDS)
    assert largest < 262_144, "kubectl apply keeps the manifest in an annotation of at most 256 KiB"


def test_texts_are_deterministic_and_say_where_they_come_from() -> None:
    first, second = render_crds(), render_crds()
    assert first == second
    for name, text in first.items():
        assert text.startswith("# Generated from the models"), name
        assert not re.search(r"[&*]id\d{3}", text), f"{name}: YAML anchor"
        assert yaml.safe_load(text)["metadata"]["name"] == f"{name.removesuffix('.yaml')}.aim.eai.amd.com"


@pytest.mark.parametrize("target", [CRDS, PAGE], ids=["crds", "reference"])
def test_the_committed_files_are_current(target: Target) -> None:
    assert drift(target, target.directory) == "", f"run `python -m {target.module} write`"


def test_write_then_verify(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--dir", str(tmp_path / "new")]
    assert run(["verify", *arguments], CRDS) == 1
    assert run(["write", *arguments], CRDS) == 0
    assert run(["verify", *arguments], CRDS) == 0
    capsys.readouterr()

    (tmp_path / "new" / "aimservices.yaml").write_text("apiVersion: v1\n")
    (tmp_path / "new" / "aimgone.yaml").write_text("")
    assert run(["verify", *arguments], CRDS) == 1
    printed = capsys.readouterr().out
    assert "-apiVersion: v1" in printed
    assert "aimgone.yaml: nothing generates this file" in printed
    assert "run `python -m tools.crds write`" in printed

    assert run(["write", *arguments], CRDS) == 0
    assert run(["verify", *arguments], CRDS) == 0


def test_a_page_among_others_is_left_its_neighbours(tmp_path: Path) -> None:
    (tmp_path / "written-by-hand.md").write_text("# mine\n")
    generated.write(PAGE, tmp_path)
    assert drift(PAGE, tmp_path) == ""
    assert sorted(path.name for path in tmp_path.iterdir()) == ["objects.md", "written-by-hand.md"]


def test_the_page_names_every_field_and_marks_those_without_effect() -> None:
    page = reference.render_reference()[reference.PAGE]
    for kind in AIM_KINDS:
        assert f"\n## {kind.kind}\n" in page
    assert "| `autoScaling` ○ | any |" in page
    assert "| `adapterMode` | `static` \\| `dynamic` | `static` |" in page
    assert "| **`adapters[].name`** |" in page
    assert all(line.count(" | ") >= 3 for line in page.splitlines() if line.startswith("| `")), "broken table row"


STRUCTURAL_CASES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "nullable is unwrapped, and the words beside it win": (
        {"anyOf": [{"type": "string", "description": "inner"}, {"type": "null"}], "description": "outer"},
        {"description": "outer", "type": "string"},
    ),
    "a reference is written out": (
        {"$ref": "#/$defs/X", "description": "d"},
        {"description": "d", "type": "object", "properties": {"a": {"type": "integer"}}},
    ),
    "a constant is an enum": ({"const": "a", "type": "string"}, {"type": "string", "enum": ["a"]}),
    "default null is none": ({"type": "string", "default": None}, {"type": "string"}),
    "a false default stays": ({"type": "boolean", "default": False}, {"type": "boolean", "default": False}),
    "a free object": (
        {"type": "object", "additionalProperties": True},
        {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
    ),
    "a map": (
        {"type": "object", "additionalProperties": {"type": "string", "title": "T"}},
        {"type": "object", "additionalProperties": {"type": "string"}},
    ),
}


@pytest.mark.parametrize(("source", "expected"), STRUCTURAL_CASES.values(), ids=STRUCTURAL_CASES)
def test_structural(source: dict[str, Any], expected: dict[str, Any]) -> None:
    definitions = {"X": {"type": "object", "properties": {"a": {"type": "integer"}}, "additionalProperties": False}}
    assert structural(source, definitions) == expected
