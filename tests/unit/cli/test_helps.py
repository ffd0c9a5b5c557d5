"""Every `--help` can be read: on a terminal and off it; brackets are brackets, not markup."""

from __future__ import annotations

import re

import pytest
import typer.rich_utils
from typer.testing import CliRunner

from cli.program import COMMANDS, cli
from tools.reference_commands import CommandInfo, describe_commands

HELPS = list(describe_commands())
_ESCAPE = re.compile(r"\x1b\[[0-9;]*m")
_FRAME = str.maketrans(dict.fromkeys("│╭╮╰╯─", " "))


def shown(info: CommandInfo, columns: int) -> str:
    done = CliRunner().invoke(cli, [*info.path.split()[1:], "--help"], env={"COLUMNS": str(columns)})
    assert done.exception is None or isinstance(done.exception, SystemExit)
    assert done.exit_code == 0
    assert done.output.strip()
    return done.output


def words(text: str) -> str:
    """A text without colours, frames and line breaks."""
    return " ".join(_ESCAPE.sub("", text).translate(_FRAME).split())


@pytest.mark.parametrize("info", HELPS, ids=lambda info: info.path)
def test_a_help_can_be_read(info: CommandInfo, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(typer.rich_utils, "FORCE_TERMINAL", False)
    plain = shown(info, 80)
    monkeypatch.setattr(typer.rich_utils, "FORCE_TERMINAL", True)
    coloured = shown(info, 80)
    assert "\x1b[" not in plain
    assert "\x1b[" in coloured
    assert words(coloured) == words(plain)
    assert "\\[" not in plain
    assert all(len(line) <= 80 for line in plain.splitlines())


@pytest.mark.parametrize("info", HELPS, ids=lambda info: info.path)
def test_a_help_says_all_that_was_written(info: CommandInfo) -> None:
    """No word in brackets is taken for markup and swallowed."""
    said = words(shown(info, 200))
    for bracket in re.findall(r"\[[^\]\n]*\]", info.help.replace("\\[", "[")):
        assert bracket in said


def test_the_help_of_all_lists_each_command_with_its_line() -> None:
    said = words(shown(HELPS[0], 200))
    for name, (_, line) in COMMANDS.items():
        assert f"{name} {line}" in said


def test_a_command_that_is_not_there_is_told_with_what_was_meant() -> None:
    done = CliRunner().invoke(cli, ["staus"])
    assert done.exit_code == 2
    assert 'there is no command "staus" (did you mean "status"?)' in words(done.output)
