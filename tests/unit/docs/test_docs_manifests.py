"""Every manifest in the pages and every example gets the verdict that a cluster would give."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from api.kinds import AIM_GROUP
from api.view import JsonObject
from cli.lint.files import read
from cli.lint.judge import NOT_THERE, Collected, judge
from cli.lint.schema import check_shape
from cli.program import cli
from devcluster.content import cluster_profile, runtime_config
from rules.validate import validate
from rules.world import KIND_BY_NAME, address
from rules.worlds import SnapshotWorld
from tests.unit.docs.pages import ROOT, Block, all_blocks, all_pages, blocks, name_of
from tools.chart import render as render_chart

BUILT_IN = [cluster_profile(), runtime_config(hub="http://127.0.0.1:1", s3="http://127.0.0.1:2")]
ELSEWHERE = frozenset({"docs/lint.md"})  # shows invalid manifests; checked by tests/unit/cli/test_people_docs.py
PAGES_WITH_YAML = [
    page
    for page in all_pages()
    if name_of(page) not in ELSEWHERE and any(block.language == "yaml" for block in blocks(page))
]
EXAMPLES = sorted(path for path in (ROOT / "examples").iterdir() if path.is_dir())


def _objects(block: Block) -> list[JsonObject]:
    try:
        found = [entry for entry in yaml.safe_load_all(block.text) if entry is not None]
    except yaml.YAMLError as error:
        pytest.fail(f"{block.where}: not valid YAML: {error}")
    return found


def _ours(entry: object) -> bool:
    return isinstance(entry, dict) and str(entry.get("apiVersion", "")).startswith(f"{AIM_GROUP}/")


def _placed(obj: JsonObject) -> JsonObject:
    kind = KIND_BY_NAME[obj["kind"]]
    if not kind.namespaced:
        return obj
    return obj | {"metadata": {"namespace": "default"} | obj["metadata"]}


def _key(obj: JsonObject) -> Any:
    return address(KIND_BY_NAME[obj["kind"]], obj["metadata"].get("namespace", ""), obj["metadata"]["name"])


def _judged(page: Path) -> Iterator[tuple[Block, JsonObject, list[str], list[str]]]:
    """Apply a page's manifests one after the other; yield each with the reasons of its errors and warnings."""
    later = [
        _placed(obj) for block in blocks(page) if block.language == "yaml" for obj in _objects(block) if _ours(obj)
    ]
    stored: dict[Any, JsonObject] = {}
    for block in blocks(page):
        for obj in _objects(block) if block.language == "yaml" else []:
            if not _ours(obj):
                continue
            new = _placed(obj)
            kind = KIND_BY_NAME[new["kind"]]
            others = {_key(entry): entry for entry in (*BUILT_IN, *reversed(later), *stored.values())}
            world = SnapshotWorld((others | {_key(new): new}).values())
            shape = [error.reason for error in check_shape(kind, new)]
            version = new["apiVersion"].rpartition("/")[2]
            verdict = validate(kind, new, stored.get(_key(new)), world, request_version=version)
            assert not verdict.failures, f"{block.where}: {verdict.failures}"
            errors = shape + [f"{error.reason} at {error}" for error in verdict.errors]
            warnings = [f"{warning.reason}: {warning}" for warning in verdict.warnings]
            if not errors:
                stored[_key(new)] = new
            yield block, new, errors, warnings


@pytest.mark.parametrize("page", PAGES_WITH_YAML, ids=name_of)
def test_manifests_are_judged_as_marked(page: Path) -> None:
    seen: dict[Block, list[str]] = {}
    for block, obj, errors, warnings in _judged(page):
        seen.setdefault(block, []).extend(errors)
        marked = block.mark.split()
        if "refused" not in marked:
            assert not errors, f"{block.where}: {obj['metadata']['name']}: {errors}"
        expected = marked[marked.index("warned") + 1] if "warned" in marked else None
        said = [
            line
            for line in warnings
            if line.partition(":")[0] not in {expected, "BaseNotFound"} and "deprecated" not in line
        ]
        assert not said or "refused" in marked, f"{block.where}: {said}"
    for block in blocks(page):
        marked = block.mark.split()
        if block.language == "yaml" and "refused" in marked:
            reason = marked[marked.index("refused") + 1]
            assert any(line.startswith(f"{reason} ") for line in seen.get(block, [])), (
                f"{block.where}: {seen.get(block)}"
            )


@pytest.mark.parametrize("page", PAGES_WITH_YAML, ids=name_of)
def test_other_yaml_blocks_have_a_mark(page: Path) -> None:
    for block in blocks(page):
        if block.language != "yaml":
            continue
        for entry in _objects(block):
            known = isinstance(entry, dict) and {"apiVersion", "kind"} <= entry.keys()
            assert known or block.mark.split()[:1] in (["values"], ["yaml"]), f"{block.where}: give it a mark"


def test_chart_values_are_those_of_the_chart() -> None:
    schema = json.loads(render_chart()["values.schema.json"])
    found = [block for block in all_blocks("yaml") if block.mark.split()[:1] == ["values"]]
    assert found
    for block in found:
        for values in _objects(block):
            _check_values(values, schema, schema["$defs"], block.where, "")


def _check_values(values: object, schema: JsonObject, defs: JsonObject, where: str, path: str) -> None:
    if "$ref" in schema:
        schema = defs[schema["$ref"].rpartition("/")[2]]
    if isinstance(values, dict) and schema.get("additionalProperties") is False:
        strange = values.keys() - schema["properties"].keys()
        assert not strange, f"{where}: no such values: {path}{strange}"
        for key, value in values.items():
            _check_values(value, schema["properties"][key], defs, where, f"{path}{key}.")
    elif "enum" in schema:
        assert values in schema["enum"], f"{where}: {path} is {values}"


def test_json_is_json() -> None:
    for block in all_blocks("json"):
        json.loads(block.text)


# -- examples -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("folder", EXAMPLES, ids=lambda path: path.name)
def test_examples_are_valid(folder: Path) -> None:
    collected = Collected()
    for file in sorted(folder.glob("*.yaml")):
        collected.add(*read(str(file)), "default")
    world = SnapshotWorld([manifest.obj for manifest in collected.manifests])
    allowed = {*NOT_THERE, "VersionDeprecated"} - {"AdapterArtifactNotFound", "ReferenceNotFound"}
    found = [finding for finding in judge(collected, world) if finding.reason not in allowed]
    assert not found
    assert collected.manifests


@pytest.mark.parametrize("folder", EXAMPLES, ids=lambda path: path.name)
def test_examples_lead_to_a_server(folder: Path) -> None:
    """The decision functions of the controllers lead each service of an example to its InferenceService."""
    done = CliRunner().invoke(cli, ["render", "-f", str(folder)])
    assert done.exit_code == 0, done.output
    made = [obj["kind"] for obj in yaml.safe_load_all(done.stdout) if obj]
    files = sorted(folder.glob("*.yaml"))
    wanted = [obj for file in files for obj in yaml.safe_load_all(file.read_text()) if obj["kind"] == "AIMService"]
    assert made.count("InferenceService") == len(wanted) > 0


def test_each_example_is_listed() -> None:
    text = (ROOT / "examples" / "README.md").read_text()
    for folder in EXAMPLES:
        assert f"[{folder.name}]({folder.name})" in text
