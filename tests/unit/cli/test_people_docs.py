"""docs/lint.md and docs/kubectl-plugin.md are kept by test: examples with output run, every command line parses."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
import yaml
from typer.main import get_command
from typer.testing import CliRunner

from cli.program import COMMANDS, cli

ROOT = Path(__file__).parents[3]
PAGES = ("docs/lint.md", "docs/kubectl-plugin.md")
_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_NAMES = (("kubectl", "aim-adapters"), ("aim-adapters",))
PEOPLE = [name for name in COMMANDS if name not in ("serve", "dev")]


def blocks(page: str, kind: str) -> list[str]:
    return [body for language, body in _BLOCK.findall((ROOT / page).read_text()) if language == kind]


def arguments(line: str) -> list[str] | None:
    """The program's arguments in a shell line (in any part of a pipe), None where it is not called."""
    for part in line.split("|"):
        words = shlex.split(part.split(">", maxsplit=1)[0])
        for name in _NAMES:
            if tuple(words[: len(name)]) == name:
                return words[len(name) :]
    return None


def command_lines() -> list[tuple[str, str]]:
    found = []
    for page in PAGES:
        shell = [line for body in blocks(page, "sh") if "<<" not in body for line in body.splitlines()]
        console = [line[2:] for body in blocks(page, "console") for line in body.splitlines() if line.startswith("$ ")]
        found += [(page, line) for line in (*shell, *console)]
    return found


def helps() -> list[tuple[str, str]]:
    """The examples of every --help."""
    found = []
    for name in PEOPLE:
        text = CliRunner().invoke(cli, [name, "--help"], env={"COLUMNS": "200", "TERM": "dumb"}).output
        lines = [line.strip(" │") for line in text.splitlines()]
        found += [(name, line) for line in lines if any(line.startswith(" ".join(one)) for one in _NAMES)]
    return found


def parse(args: list[str]) -> None:
    """Parse as the program would, without running anything. Raises: a usage error."""
    group = get_command(cli)
    with group.make_context("aim-adapters", list(args), resilient_parsing=False) as context:
        if context._protected_args or context.args:
            words = [*context._protected_args, *context.args]
            _, command, rest = group.resolve_command(context, words)  # type: ignore[attr-defined]
            command.make_context(words[0], rest, parent=context)


@pytest.mark.parametrize(("page", "line"), command_lines())
def test_every_command_line_of_the_pages_parses(page: str, line: str) -> None:
    args = arguments(line)
    assert args is not None or not line.startswith(("kubectl aim", "aim-"))
    if args and args[0] != "--install-completion":
        parse(args)


@pytest.mark.parametrize(("name", "line"), helps())
def test_every_example_of_the_helps_parses(name: str, line: str) -> None:
    args = arguments(line)
    assert args is not None
    parse(args)


@pytest.mark.parametrize("name", [name for name in PEOPLE if name != "disk"])
def test_every_help_has_examples_and_exit_codes(name: str) -> None:
    text = CliRunner().invoke(cli, [name, "--help"], env={"COLUMNS": "200"}).output
    assert "Examples:" in text
    assert "Exit code" in text


def test_every_command_is_on_the_page() -> None:
    page = (ROOT / "docs/kubectl-plugin.md").read_text()
    for name in PEOPLE:
        assert f"`{name}" in page


def test_outputs_of_the_lint_page_are_real(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for body in blocks("docs/lint.md", "yaml"):
        name = body.splitlines()[0].removeprefix("# ")
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(body)
    monkeypatch.chdir(tmp_path)
    ran = 0
    for body in blocks("docs/lint.md", "console"):
        command, _, output = body.partition("\n")
        args = arguments(command.removeprefix("$ "))
        assert args is not None
        assert CliRunner().invoke(cli, args).output == output
        ran += 1
    assert ran == 2


def test_the_hook_of_the_page_is_the_one_that_exists() -> None:
    (hook,) = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())
    (config,) = [yaml.safe_load(body) for body in blocks("docs/lint.md", "yaml") if "repos:" in body]
    used = config["repos"][0]["hooks"][0]
    assert used["id"] == hook["id"]
    args = shlex.split(hook["entry"])
    assert args[0] == "aim-adapters"
    parse([*args[1:], *used["args"], "a.yaml", "b.yaml"])
    assert re.search(hook["files"], "deploy/a.yaml")
    assert not re.search(hook["files"], "README.md")


def test_the_hook_runs_over_whatever_was_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """pre-commit gives the hook every changed YAML file, those of others too."""
    (hook,) = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())
    manifest = blocks("docs/lint.md", "yaml")[0]
    files = {"values.yaml": "a: 1\n", "chart.yaml": "x: {{ .y }}\n", "bad.yaml": manifest, "package.json": "[]"}
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    args = shlex.split(hook["entry"])[1:]
    assert CliRunner().invoke(cli, [*args, "bad.yaml", "values.yaml"]).exit_code == 1
    done = CliRunner().invoke(cli, [*args, *(name for name in files if name != "bad.yaml")])
    assert (done.exit_code, done.output) == (0, "no findings: 0 objects in 3 files, of which 3 files hold none\n")


def test_the_steps_of_the_ci_example_parse() -> None:
    (workflow,) = [yaml.safe_load(body) for body in blocks("docs/lint.md", "yaml") if "runs-on" in body]
    lines = [step["run"] for step in workflow["jobs"]["lint"]["steps"] if "run" in step]
    ours = [args for line in lines if (args := arguments(line)) is not None]
    assert len(ours) == 2
    for args in ours:
        parse(args)
