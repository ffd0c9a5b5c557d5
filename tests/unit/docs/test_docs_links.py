"""Link targets exist, every page is on the site, and nothing is loaded from another host."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.unit.docs.pages import DOCS, ROOT, all_pages, anchors, blocks, images, links, name_of

HOOKS = (ROOT / ".mkdocs" / "hooks.py").read_text()
FROM_OUTSIDE = dict(re.findall(r'"([\w/.]+\.md)": "(project/[\w.]+)"', HOOKS))


class _Loader(yaml.SafeLoader):
    """Reads mkdocs.yml, whose tags name functions of mkdocs."""


_Loader.add_multi_constructor("tag:yaml.org,2002:python/", lambda loader, suffix, node: suffix)


def _nav(entry: Any) -> list[str]:
    if isinstance(entry, str):
        return [entry]
    if isinstance(entry, dict):
        return [page for inner in entry.values() for page in _nav(inner)]
    return [page for inner in entry for page in _nav(inner)]


@pytest.mark.parametrize("page", all_pages(), ids=name_of)
def test_link_targets_exist(page: Path) -> None:
    for target in [*links(page), *images(page)]:
        if re.match(r"(https?|mailto):", target):
            continue
        path, _, anchor = target.partition("#")
        found = (page.parent / path).resolve() if path else page
        assert found.exists(), f"{name_of(page)}: {target}"
        assert found.is_relative_to(ROOT), f"{name_of(page)}: {target}"
        if anchor and found.suffix == ".md":
            assert anchor in anchors(found), f"{name_of(page)}: {target}"


_ROOMS = """
api app bench certs chart cli config console devcluster disk docs examples kube reconcile rules tests tools webhooks
"""
FOLDERS = "|".join(_ROOMS.split())


@pytest.mark.parametrize("page", all_pages(), ids=name_of)
def test_named_files_exist(page: Path) -> None:
    if page.name == "CHANGELOG.md":  # it names files of the past
        return
    for path in re.findall(rf"`((?:{FOLDERS})/[\w./-]+)`", page.read_text()):
        assert (ROOT / path).exists(), f"{name_of(page)}: {path}"


def test_every_page_is_on_the_site_once() -> None:
    config = yaml.load((ROOT / "mkdocs.yml").read_text(), Loader=_Loader)
    listed = _nav(config["nav"])
    assert len(listed) == len(set(listed))
    there = {path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md")}
    from_outside = {place for source, place in FROM_OUTSIDE.items() if (ROOT / source).exists()}
    assert set(listed) == there | from_outside


def test_nothing_is_loaded_from_another_host() -> None:
    for page in all_pages():
        assert not [block for block in blocks(page) if block.language == "mermaid"], "its script comes from a CDN"
        assert not [image for image in images(page) if re.match(r"(https?:)?//", image)], name_of(page)
    config = yaml.load((ROOT / "mkdocs.yml").read_text(), Loader=_Loader)
    assert config["theme"]["font"] is False
    assert "extra_javascript" not in config
    assert config["strict"] is True


def test_decisions_are_numbered_listed_and_complete() -> None:
    folder = DOCS / "decisions"
    index = (folder / "README.md").read_text()
    found = sorted(path for path in folder.glob("*.md") if path.name != "README.md")
    assert [path.name[:4] for path in found] == [f"{number:04}" for number in range(1, len(found) + 1)]
    for path in found:
        text = path.read_text()
        title = text.splitlines()[0].removeprefix("# ")
        assert f"[{path.name[:4]}]({path.name}) | {title} |" in index
        for part in ("Status: ", "## Context", "## Choice", "## Turned down"):
            assert part in text, f"{path.name}: {part}"
