"""The command line: one program, one sub-command for each thing that a person or a Job does.

A sub-command's code is imported only when it is asked for: a Job starts for each adapter, and the server's and the
development cluster's parts are none of its business.
"""

from __future__ import annotations

import importlib
import sys
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

# sub-command → (where its typer application is, or a function that adds the command to one; one line of help)
COMMANDS = {
    "serve": ("app.serve_command:add_serve", "Serve the admission webhooks and run the controllers."),
    "disk": ("disk.cli:cli", "What the Jobs run on an adapter disk or a model cache."),
    "dev": ("devcluster.cli:app", "Run a whole cluster on this machine."),
}


class LazyGroup(TyperGroup):
    """A group that imports a sub-command when it is used, and knows the help of the others without importing them."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the sub-commands in the order of the table."""
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return a sub-command, imported now unless only the list of all is printed."""
        if cmd_name not in COMMANDS:
            return None
        place, summary = COMMANDS[cmd_name]
        asked = sys.argv[1:2] == [cmd_name]
        return _load(place) if asked else TyperCommand(cmd_name, help=summary)


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


def main() -> None:
    """Run the command line."""
    cli()


if __name__ == "__main__":
    main()
