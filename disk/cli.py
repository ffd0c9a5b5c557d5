"""`aim-adapters disk …` for people: the commands of the Jobs with their help, and `inspect`.

The options are derived from the specifications in `api.jobs`, so the names always match. The environment sets none of
them, because a tenant can write parts of the environment of a Job.
"""

from __future__ import annotations

import inspect as signatures
from pathlib import Path
from typing import Annotated, Any

import typer

from api.jobs import TERMINATION_LOG
from disk.failures import DiskFailure, from_os_error
from disk.job import COMMANDS, is_list, run_command, say

cli = typer.Typer(
    no_args_is_help=True, add_completion=False, help="The commands that Jobs run on an adapter disk or a model cache."
)


def _add(name: str) -> None:
    """Register a command whose options are the fields of a specification, each as text for `read_spec`."""

    def command(**given: Any) -> None:
        log = str(given.pop("termination_log"))
        values = {field: value for field, value in given.items() if value is not None and value != []}
        raise typer.Exit(run_command(name, values, log))

    kind = COMMANDS[name].kind
    parameters = [
        signatures.Parameter(
            field,
            signatures.Parameter.KEYWORD_ONLY,
            default=None,
            annotation=Annotated[
                list[str] | None if is_list(kind, field) else str | None,
                typer.Option(f"--{field.replace('_', '-')}", show_default=False, metavar="VALUE"),
            ],
        )
        for field in kind.__struct_fields__
    ]
    parameters.append(
        signatures.Parameter(
            "termination_log",
            signatures.Parameter.KEYWORD_ONLY,
            default=TERMINATION_LOG,
            annotation=Annotated[
                str,
                typer.Option(
                    "--termination-log",
                    help="The file that the result is written to, as JSON.",
                ),
            ],
        )
    )
    command.__signature__ = signatures.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    cli.command(name, help=COMMANDS[name].help)(command)


for _name in COMMANDS:
    _add(_name)


@cli.command("inspect")
def inspect_command(
    disk: Annotated[Path, typer.Option("--disk", help="The directory where the adapter disk is mounted.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """Show the content of an adapter disk and how much space can be reclaimed."""
    from disk.inspect import inspect_disk  # noqa: PLC0415 - lazy: only this command needs it

    try:
        found = inspect_disk(disk)
    except (DiskFailure, OSError) as error:
        failure = error if isinstance(error, DiskFailure) else from_os_error(error)
        say(f"{failure.reason}: {failure.message}")
        raise typer.Exit(1) from None
    say(found.to_json() if as_json else found.to_table())


if __name__ == "__main__":
    cli()
