"""Preflight agrees with what real engines said about the same files (`make test-engine` asks them again)."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.engine import record
from tests.engine.recipes import recipes, write, write_base

RECIPES = list(recipes())
RECORDED = record.load()


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("engine") / "base"
    write_base(folder)
    return folder


def test_the_record_covers_every_recipe_and_three_engines() -> None:
    assert len(RECIPES) >= 300
    assert [recipe.name for recipe in RECIPES] == list(RECORDED["adapters"])
    assert len(record.versions(RECORDED)) >= 3
    for entry in RECORDED["adapters"].values():
        assert set(entry["engines"]) == set(record.versions(RECORDED))
    verdicts = Counter(entry["engines"][record.versions(RECORDED)[0]] for entry in RECORDED["adapters"].values())
    assert min(verdicts[verdict] for verdict in ("serves", "refuses", "no effect", "not finite")) >= 3


@pytest.mark.parametrize("part", range(8))
def test_preflight_agrees_with_the_engines(part: int, base: Path, tmp_path: Path) -> None:
    """No late failure, no refusal of what is served rightly; a warning where an older engine differs."""
    newest = record.versions(RECORDED)[0]
    for number, recipe in list(enumerate(RECIPES))[part::8]:
        entry = RECORDED["adapters"][recipe.name]
        digest = write(recipe, tmp_path / str(number))
        assert digest == entry["digest"], f"{recipe.name}: other files than the engine judged"
        judged = record.judge(recipe, tmp_path / str(number), base)
        assert list(record.disagreements(recipe, judged, entry["engines"], newest)) == [], recipe.name
        assert (judged.reason, list(judged.warnings)) == (entry["preflight"], entry["warnings"]), recipe.name
