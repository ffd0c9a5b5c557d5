"""The command line: one program, one sub-command for each thing that a person or a Job does.

A sub-command's code is imported only when it is asked for: a Job starts for each adapter, and the server's and the
development cluster's parts are none of its business.
"""

from __future__ import annotations

import importlib
import os
import sys
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

# sub-command → (where its typer application is, or a function that adds the command to one; one line of help)
COMMANDS = {
    "serve": ("app.serve_command:add_serve", "Serve the admission webhooks and run the controllers."),
    "status": ("cli.plugin.commands:add_status", "Show how a service stands, on one screen."),
    "why": ("cli.plugin.commands:add_why", "Say why an adapter is not served, and how to mend it."),
    "watch": ("cli.plugin.commands:add_watch", "Follow services and their adapters live."),
    "add": ("cli.plugin.commands:add_add", "Declare adapters of a service."),
    "remove": ("cli.plugin.commands:add_remove", "Take adapters from a service."),
    "retry": ("cli.plugin.commands:add_retry", "Try failed stagings again now."),
    "rank": ("cli.plugin.commands:add_rank", "Show or change ranks and the rank ceiling."),
    "disk": ("cli.plugin.disk_command:app", "Show adapter disks; and what the Jobs run on them."),
    "inspect": ("cli.plugin.commands_files:add_inspect", "Check an adapter's files, without a cluster."),
    "lint": ("cli.lint.command:add_lint", "Check manifests offline."),
    "check": ("cli.plugin.commands_files:add_check", "Dry-run manifests against the cluster: what would happen."),
    "render": ("cli.plugin.commands_files:add_render", "Show the objects that manifests lead to, offline."),
    "dev": ("devcluster.cli:app", "Run a whole cluster on this machine."),
}


class LazyGroup(TyperGroup):
    """A group that imports a sub-command when it is used, and knows the help of the others without importing them."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the sub-commands in the order of the table."""
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return a sub-command's name and help, for the list of all."""
        return TyperCommand(cmd_name, help=COMMANDS[cmd_name][1]) if cmd_name in COMMANDS else None

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the sub-command that is run (or whose words are completed), imported now."""
        if args and args[0] in COMMANDS:
            return args[0], _load(COMMANDS[args[0]][0]), args[1:]
        if args and not args[0].startswith("-"):
            from rules.suggest import did_you_mean  # noqa: PLC0415 - only for a mistake

            hint = did_you_mean(args[0], COMMANDS)
            ctx.fail(f'there is no command "{args[0]}"' + (f" ({hint})" if hint else ""))
        return super().resolve_command(ctx, args)


def _load(place: str) -> Any:
    """Import a sub-command and return it as the command line library wants it."""
    module, _, name = place.partition(":")
    found: Any = getattr(importlib.import_module(module), name)
    if isinstance(found, typer.Typer):
        return typer.main.get_command(found)
    holder = typer.Typer(pretty_exceptions_enable=False, add_completion=False)
    found(holder)
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
    """Run the command line; as a plugin of kubectl under the name that people type."""
    plugin = os.path.basename(sys.argv[0]).startswith("kubectl-")
    try:
        cli(prog_name="kubectl aim-adapters" if plugin else "aim-adapters", complete_var="_AIM_ADAPTERS_COMPLETE")
    except Exception as error:
        place = COMMANDS.get(sys.argv[1] if len(sys.argv) > 1 else "", ("", ""))[0]
        if not place.startswith(("cli.lint", "cli.plugin")):
            raise
        from cli.plugin.access import print_error, tell  # noqa: PLC0415 - only for a fault of ours

        line, code = tell(error)
        print_error(line)
        sys.exit(code)
