"""The pictures show the current output: the refusal is computed again, and each command still exists."""

from __future__ import annotations

import html
import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest
import yaml

from api.view import JsonObject
from cli.lint.explain import explain
from devcluster.content import cluster_profile
from rules.validate import validate
from rules.world import KIND_BY_NAME
from rules.worlds import SnapshotWorld
from tests.unit.docs.pages import DOCS, ROOT, all_pages, images
from tools.reference_commands import describe_commands

PICTURES = sorted((DOCS / "assets/pictures").glob("*.svg"))
BASE = "tiny-llama-hf-acme-tiny-llama-43dc5fac"  # the name that the cache gives it


@pytest.fixture(scope="module")
def script() -> ModuleType:
    """docs/pictures.py, as a module."""
    spec = importlib.util.spec_from_file_location("pictures_of_the_pages", DOCS / "pictures.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look up their module
    spec.loader.exec_module(module)
    return module


def words(picture: Path) -> str:
    """Return the text of a picture on one line."""
    text = picture.read_text(encoding="utf-8")
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", text[text.index("</style>") :])).split())


@pytest.mark.parametrize("picture", PICTURES, ids=lambda path: path.name)
def test_a_picture_fetches_nothing_and_is_shown(picture: Path) -> None:
    text = picture.read_text(encoding="utf-8")
    assert not re.search(r"(?:href|src)\s*=|url\(\s*['\"]?https?:|@import|<script", text)
    shown = {name.rpartition("/")[2] for page in all_pages() for name in images(page)}
    assert picture.name in shown


def test_the_refusal_matches_the_rules(script: ModuleType) -> None:
    info = {"s3": {"accessKey": "a", "secretKey": "b"}, "hub": {"token": "c"}}
    objects: list[JsonObject] = [obj for obj in script.story(info) if obj["kind"] == "AIMArtifact"]
    spec = {"type": "model", "sourceUri": "hf://acme/tiny-llama", "modelId": "acme/tiny-llama"}
    base = {"kind": "AIMArtifact", "metadata": {"name": BASE, "namespace": script.NAMESPACE}, "spec": spec}
    world = SnapshotWorld([*objects, base, cluster_profile()])
    service = yaml.safe_load(script.WRONG)
    verdict = validate(KIND_BY_NAME["AIMService"], service, None, world, request_version="v1alpha2")
    said = words(DOCS / "assets/pictures/refused.svg")
    assert len(verdict.errors) == 4
    for error in verdict.errors:
        assert " ".join(f"* {error}".split()) in said


def test_commands_and_reasons_of_the_pictures_exist() -> None:
    known = {info.path for info in describe_commands()}
    for picture in PICTURES:
        said = words(picture)
        for name in re.findall(r"kubectl aim-adapters (\w+)", said):
            assert f"aim-adapters {name}" in known
        for reason in re.findall(r"\[([A-Z][A-Za-z]+)\]", said):
            assert explain(reason)
    assert ROOT.joinpath("docs/pictures.py").exists()
