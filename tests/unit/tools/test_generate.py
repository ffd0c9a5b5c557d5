"""All generated files in one run: each generator takes part, and one that is not current does not hide another."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools import generate
from tools.generated import Target

TOOLS = Path(generate.__file__).parent


def test_each_generator_takes_part() -> None:
    generators = {f"tools.{path.stem}" for path in TOOLS.glob("*.py") if "\nTARGET = Target(" in path.read_text()}
    assert {target.module for target in generate.TARGETS} == generators
    assert len(generators) == len(generate.TARGETS)


def test_every_target_is_verified_also_after_one_that_is_not_current(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    targets = [Target(name, f"tools.{name}", tmp_path, lambda name=name: {f"{name}.md": name}) for name in "abc"]  # type: ignore[misc]
    assert generate.main(["verify"], targets) == 1
    printed = capsys.readouterr().out
    assert all(f"run `python -m tools.{name} write`" in printed for name in "abc")
    assert generate.main(["write"], targets) == 0
    assert generate.main(["verify"], targets) == 0
    (tmp_path / "b.md").write_text("old")
    assert generate.main(["verify"], targets) == 1
    printed = capsys.readouterr().out
    assert "run `python -m tools.b write`" in printed
    assert "run `python -m tools.c write`" not in printed
