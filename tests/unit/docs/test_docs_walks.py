"""The walks of CONTRIBUTING.md name commits that exist, with their titles and the files that they touch."""

from __future__ import annotations

import re
import subprocess
from functools import cache
from pathlib import Path

import pytest

from tests.unit.docs.pages import ROOT

_ROW = re.compile(r"^\| `(?P<hash>[0-9a-f]{7,40})` (?P<title>.*?) \| (?P<why>.*) \|$", re.MULTILINE)
_FILE = re.compile(r"`([\w./-]+/[\w./-]+|[\w-]+\.py)`")
WALKS = [found.groupdict() for found in _ROW.finditer((ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"))]


def git(*words: str) -> str:
    done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, timeout=30, check=False)
    return done.stdout.strip() if done.returncode == 0 else ""


@cache
def whole_history() -> bool:
    """Whether the whole history is here: not a shallow clone, and not a copy of the files with another history."""
    return git("rev-parse", "--is-shallow-repository") == "false" and int(git("rev-list", "--count", "HEAD") or 0) > 150


def test_there_are_walks() -> None:
    assert len(WALKS) >= 10


@pytest.mark.parametrize("row", WALKS, ids=lambda row: row["hash"])
def test_a_commit_has_the_title_and_files_of_its_row(row: dict[str, str]) -> None:
    if not whole_history():
        pytest.skip("no git history here (a shallow clone, or no clone)")
    assert git("log", "-1", "--format=%s", row["hash"]) == row["title"]
    touched = git("show", "--name-only", "--format=", row["hash"]).splitlines()
    for named in _FILE.findall(row["why"]):
        if not named.startswith("docs/") or Path(named).suffix:
            assert any(named in path for path in touched), f"{row['hash']} does not touch {named}"
