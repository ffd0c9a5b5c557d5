"""The command line: one program, with one sub-command for each task of a person or a Job.

The code of a sub-command is imported only when the sub-command runs. A Job starts for each adapter, so its start must
be fast; it needs nothing of the server or of the development cluster.
"""

from __future__ import annotations

import importlib
import os
import re
import sys
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

# sub-command → (module:name of its function or of its typer application; one line of help)
COMMANDS = {
    "serve": ("app.serve_command:add_serve", "Serve the admission webhooks and run the controllers."),
    "status": ("cli.plugin.commands_show:status", "Show the status of a service on one screen."),
    "why": ("cli.plugin.commands_show:why", "Explain why an adapter is not served, and how to fix it."),
    "doctor": ("cli.plugin.commands_show:doctor", "Check that aim-adapters itself works in the cluster."),
    "watch": ("cli.plugin.commands_show:watch", "Follow services and their adapters live."),
    "add": ("cli.plugin.commands_edit:add", "Declare adapters of a service (dynamic mode)."),
    "remove": ("cli.plugin.commands_edit:remove", "Remove adapters from a service (dynamic mode)."),
    "retry": ("cli.plugin.commands_edit:retry", "Retry failed stagings now."),
    "rank": ("cli.plugin.commands_edit:rank", "Show or change ranks and the rank ceiling."),
    "disk": ("cli.plugin.disk_command:app", "Show adapter disks; the commands of the Jobs are sub-commands."),
    "inspect": ("cli.plugin.commands_files:inspect", "Check the files of an adapter, without a cluster."),
    "lint": ("cli.lint_command:lint", "Check manifests offline."),
    "check": ("cli.plugin.commands_files:check", "Dry-run manifests against the cluster and show the effects."),
    "render": (
        "cli.plugin.commands_files:render",
        "Show the objects that the controllers create from manifests, offline.",
    ),
    "dev": ("devcluster.cli:app", "Run a development cluster on this machine."),
}


class LazyGroup(TyperGroup):
    """A group that imports a sub-command when it runs, and lists the others without importing them."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the sub-commands in the order of the table."""
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return the name and the line of help of a sub-command, for the list of all."""
        return TyperCommand(cmd_name, help=COMMANDS[cmd_name][1]) if cmd_name in COMMANDS else None

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the sub-command to run (or whose words are completed), imported now."""
        if args and args[0] in COMMANDS:
            return args[0], _load(COMMANDS[args[0]][0]), args[1:]
        if args and not args[0].startswith("-"):
            from rules.suggest import did_you_mean

            hint = did_you_mean(args[0], COMMANDS)
            ctx.fail(f'unknown command "{args[0]}"' + (f" ({hint})" if hint else ""))
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        """Run a sub-command; usage errors get plain words instead of those of the validation library."""
        try:
            return super().invoke(ctx)
        except typer.BadParameter as error:
            error.message = _plain(error.message)
            raise


_WORDS = (
    (re.compile(r"^Value error, (?P<rest>.*)$"), r"\g<rest>"),
    (re.compile(r"^Input should be a valid integer.*$"), "must be an integer"),
    (re.compile(r"^Input should be a valid number.*$"), "must be a number"),
    (re.compile(r"^Input should be greater than or equal to (?P<least>\S+)$"), r"must be at least \g<least>"),
    (re.compile(r"^Input should be less than or equal to (?P<most>\S+)$"), r"must be at most \g<most>"),
)


def _plain(message: str) -> str:
    for pattern, words in _WORDS:
        message = pattern.sub(words, message)
    return message


def _load(place: str) -> Any:
    """Import a sub-command and return it as a command of the command line library."""
    module, _, name = place.partition(":")
    found: Any = getattr(importlib.import_module(module), name)
    if isinstance(found, typer.Typer):
        return typer.main.get_command(found)
    holder = typer.Typer(pretty_exceptions_enable=False, add_completion=False)
    if name.startswith("add_"):  # it makes its options itself
        found(holder)
    else:
        holder.command()(found)
    return typer.main.get_command(holder)


cli = typer.Typer(
    cls=LazyGroup,
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    help="LoRA adapters on AMD GPUs: admission, staging, serving.",
)


@cli.callback()
def _root() -> None:
    """LoRA adapters on AMD GPUs: admission, staging, serving."""


def run() -> None:
    """Run the command line; as a plugin of kubectl under the name that is typed."""
    plugin = os.path.basename(sys.argv[0]).startswith("kubectl-")
    try:
        cli(prog_name="kubectl aim-adapters" if plugin else "aim-adapters", complete_var="_AIM_ADAPTERS_COMPLETE")
    except Exception as error:
        place = COMMANDS.get(sys.argv[1] if len(sys.argv) > 1 else "", ("", ""))[0]
        if not place.startswith("cli."):
            raise
        from cli.plugin.access import report

        sys.exit(report(error))
