"""The pages of commands and make targets, from their own help: `python -m tools.reference_commands write|verify`."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import typer

from cli.program import cli
from tools.generated import ROOT, Target, run
from tools.markdown import heading, page, table

_TARGET = re.compile(r"^(?P<name>[a-z-]+):(?P<needs>[^#\n]*)(?:## (?P<help>.*))?$", re.MULTILINE)
_SERVE = "aim-adapters serve"


@dataclass(frozen=True, slots=True)
class CommandInfo:
    """One command as the command line library knows it. `path`: the words to type; options with all spellings."""

    path: str
    usage: str
    help: str
    arguments: tuple[tuple[str, str], ...]  # name, help
    options: tuple[tuple[str, str], ...]  # spellings, help
    flags: frozenset[str]  # every spelling that is accepted, hidden ones too
    is_group: bool


def describe_commands() -> Iterator[CommandInfo]:
    """Yield all commands, each group before its commands."""
    root = typer.main.get_command(cli)
    yield from _walk(root, typer.Context(root, info_name="aim-adapters"), "aim-adapters")


def _walk(command: Any, context: Any, path: str) -> Iterator[CommandInfo]:
    parameters = list(command.params)
    options = [each for each in parameters if each.param_type_name == "option"]
    spelt = [spelling for each in options for spelling in (*each.opts, *each.secondary_opts)]
    yield CommandInfo(
        path=path,
        usage=" ".join(command.get_usage(context).removeprefix("Usage:").split()),
        help=(command.help or "").replace("\b\n", ""),
        arguments=tuple(_records(parameters, context, "argument")),
        options=tuple(_records(parameters, context, "option")),
        flags=frozenset([*spelt, "--help"]),
        is_group=hasattr(command, "list_commands"),
    )
    if hasattr(command, "list_commands"):
        for name in command.list_commands(context):
            _, inner, _ = command.resolve_command(context, [name])
            yield from _walk(inner, typer.Context(inner, info_name=name, parent=context), f"{path} {name}")


def _records(parameters: list[Any], context: Any, kind: str) -> Iterator[tuple[str, str]]:
    for each in parameters:
        if each.param_type_name == kind and not each.hidden and (record := each.get_help_record(context)):
            yield record


def describe_targets() -> dict[str, str]:
    """Return the help of every make target that has one, in the Makefile's order."""
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    return {found["name"]: found["help"] for found in _TARGET.finditer(text) if found["help"]}


def render() -> dict[str, str]:
    """Return the pages by file name."""
    return {"commands.md": page(_commands()), "make.md": page(_targets())}


def _commands() -> Iterator[str]:
    yield from heading("Commands", "tools.reference_commands", "the commands' own help")
    yield "`aim-adapters` is one program. Installed as `kubectl-aim_adapters` on the `PATH` it is a plugin of kubectl:"
    yield "`kubectl aim-adapters status` is `aim-adapters status`."
    yield ""
    infos = list(describe_commands())
    rows = [(f"[`{info.path}`](#{_anchor(info.path)})", _summary(info)) for info in infos[1:] if not info.is_group]
    yield from table(("command", "does"), rows)
    for info in infos[1:]:
        if not info.is_group:
            yield from _section(info)


def _section(info: CommandInfo) -> Iterator[str]:
    yield from (f"## {info.path}", "", "```text", info.usage, "```", "")
    text, _, examples = info.help.partition("Examples:\n")
    yield from (_prose(text.strip()), "")
    if examples:
        yield from ("```sh", *(line.strip() for line in examples.rstrip().splitlines() if line.strip()), "```", "")
    if info.arguments:
        yield from table(("argument", "meaning"), [(f"`{name}`", words) for name, words in info.arguments])
    if info.path == _SERVE:
        own = [record for record in info.options if record[0].split()[0] in ("--config", "--check")]
        yield from table(("option", "meaning"), [(f"`{name}`", words) for name, words in own])
        yield from ("All further options are [settings](settings.md).", "")
    elif info.options:
        yield from table(("option", "meaning"), [(f"`{name}`", words) for name, words in info.options])


def _prose(text: str) -> str:
    return re.sub(r"<(?=[A-Za-z/])", "&lt;", text)


def _summary(info: CommandInfo) -> str:
    return info.help.strip().partition("\n\n")[0]


def _anchor(path: str) -> str:
    return path.replace(" ", "-")


def _targets() -> Iterator[str]:
    yield from heading("Make targets", "tools.reference_commands", "the Makefile")
    yield "`make` lists them. They need Python 3.11 and set up everything else themselves; CI calls only these."
    yield ""
    yield from table(("target", "does"), [(f"`make {name}`", words) for name, words in describe_targets().items()])


TARGET = Target("The pages of commands and make targets", "tools.reference_commands", ROOT / "docs", render)


def main(argv: list[str]) -> int:
    """Write or verify the pages; returns the exit status."""
    return run(argv, TARGET)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
