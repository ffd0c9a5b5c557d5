"""Every `--help` can be read: on a terminal and off it; brackets are brackets, not markup."""

from __future__ import annotations

import re

import pytest
import typer.rich_utils
from typer.testing import CliRunner

from cli.plugin.options import parse_seconds
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


def test_the_line_of_a_command_is_the_first_line_of_its_help() -> None:
    lines = {info.path.split()[-1]: info.help.strip().splitlines()[0] for info in HELPS if info.path.count(" ") == 1}
    for name in COMMANDS.keys() - {"serve", "disk", "lint", "dev"}:
        assert lines[name] == COMMANDS[name][1]


USAGE = {
    "an unknown format": (["status", "-o", "wide"], "'wide' is not one of 'table', 'json', 'yaml'."),
    "a word for a number": (["inspect", ".", "--max-rank", "x"], "'--max-rank': must be an integer"),
    "a number below its bound": (["inspect", ".", "--max-rank", "0"], "'--max-rank': must be at least 1"),
    "a word for a duration": (["add", "a", "b", "--timeout", "soon"], '"soon" is not a valid duration (write 30s'),
    "no time at all": (["watch", "--for", "0s"], "must be more than 0"),
}


@pytest.mark.parametrize(("args", "message"), USAGE.values(), ids=USAGE)
def test_usage_errors_have_plain_words(args: list[str], message: str) -> None:
    done = CliRunner().invoke(cli, args, env={"COLUMNS": "200"})
    assert done.exit_code == 2
    assert message in words(done.output)
    assert "Value error" not in done.output
    assert "Input should" not in done.output


DURATIONS = {"5s": 5, "10m": 600, "1h30m": 5400, "600": 600, "0.5": 0.5, "250ms": 0.25, "1d": 86400}


@pytest.mark.parametrize(("text", "seconds"), DURATIONS.items())
def test_durations_are_written_as_for_kubectl(text: str, seconds: float) -> None:
    assert parse_seconds(text) == seconds


def test_an_unknown_command_is_reported_with_a_suggestion() -> None:
    done = CliRunner().invoke(cli, ["staus"])
    assert done.exit_code == 2
    assert 'unknown command "staus" (did you mean "status"?)' in words(done.output)
