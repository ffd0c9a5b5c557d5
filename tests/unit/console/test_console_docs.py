"""The page about the console: every picture, every column, and no picture too large."""

from __future__ import annotations

import pytest

from console.rows import _ADAPTER_COLUMNS, COLUMNS
from tests.console.pictures import FOLDER, LARGEST_BYTES, PICTURES

PAGE = (FOLDER.parents[1] / "console.md").read_text()


@pytest.mark.parametrize("name", PICTURES)
def test_each_picture_is_there_small_and_shown(name: str) -> None:
    assert (FOLDER / f"{name}.png").stat().st_size <= LARGEST_BYTES
    assert f"assets/console/{name}.png" in PAGE


def test_no_picture_is_left_over() -> None:
    assert {path.stem for path in FOLDER.iterdir()} == set(PICTURES)


@pytest.mark.parametrize("column", [name for name in (*COLUMNS, *_ADAPTER_COLUMNS) if name != "Adapter"])
def test_each_column_is_explained(column: str) -> None:
    assert f"| {column} |" in PAGE
