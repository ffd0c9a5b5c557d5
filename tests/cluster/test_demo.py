"""Runs `make demo` to its end: all chapters, the outputs that the README shows, and no process left."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.cluster

REPOSITORY = Path(__file__).parents[2]
CHAPTERS = (
    "The worked example",
    "Add an adapter from the hub, remove the first one: no restart",
    "A static service waits for all its adapters",
    "What kubectl apply refuses",
)


def test_the_demo_runs_all_chapters_and_the_readme_shows_its_output(tmp_path: Path) -> None:
    folder = tmp_path / "demo"
    done = subprocess.run(
        [sys.executable, "-m", "devcluster.demo", "--dir", str(folder)],
        cwd=REPOSITORY, capture_output=True, text=True, timeout=420, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    said = done.stdout
    assert [chapter for chapter in CHAPTERS if chapter not in said] == []
    assert ": unchanged" in said
    readme = (REPOSITORY / "README.md").read_text()
    shown = [line for line in readme.splitlines() if line.startswith("The AIMService ")]
    shown += re.findall(r"^\S+ created$", readme, re.MULTILINE)
    assert len(shown) > 6
    assert [line for line in shown if line not in said] == []
    left = [
        path
        for path in Path("/proc").glob("[0-9]*/cmdline")
        if str(folder).encode() in _read(path)
    ]  # fmt: skip
    assert left == []


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""
