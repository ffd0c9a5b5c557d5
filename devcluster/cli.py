"""The commands of `aim-adapters dev`: `up`, `down`, `info`, `logs`, `build`."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from devcluster.folder import DEFAULT_FOLDER

app = typer.Typer(
    name="dev", help="Run a development cluster on this machine.", no_args_is_help=True, pretty_exceptions_enable=False
)

Folder = Annotated[Path, typer.Option("--dir", help="Folder of the cluster.", show_default=True)]
_FOLDER = Path(DEFAULT_FOLDER)


def parse_settings(pairs: list[str]) -> dict[str, str]:
    """Split NAME=VALUE pairs; the last one of a name wins.

    Raises: typer.BadParameter for a pair without a name or without "=".
    """
    settings: dict[str, str] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name.strip():
            raise typer.BadParameter(f'"{pair}" does not have the form NAME=VALUE', param_hint="--set")
        settings[name.strip()] = value
    return settings


@app.command()
def up(
    folder: Folder = _FOLDER,
    fresh: Annotated[bool, typer.Option("--fresh", help="Delete the previous cluster of the folder first.")] = False,
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="A setting of the server. Repeatable.")
    ] = None,
    control_plane_only: Annotated[bool, typer.Option("--control-plane-only", hidden=True)] = False,
) -> None:
    """Start the cluster, and return when its admission webhooks answer."""
    from devcluster.front import bring_up  # noqa: PLC0415  only this command needs it

    raise typer.Exit(bring_up(folder, parse_settings(settings or []), fresh=fresh, bare=control_plane_only))


@app.command()
def build() -> None:
    """Build the programs that `up` needs unless they exist, and show where they are."""
    from devcluster.front import build_programs  # noqa: PLC0415  only this command needs it

    raise typer.Exit(build_programs(sys.stdout))


@app.command()
def down(folder: Folder = _FOLDER) -> None:
    """Stop the cluster. Its objects and volumes stay in the folder."""
    from devcluster.front import take_down  # noqa: PLC0415  only this command needs it

    raise typer.Exit(take_down(folder))


@app.command()
def info(
    folder: Folder = _FOLDER,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Show addresses, folders and credentials."""
    from devcluster.info import NotRunningError, describe, gather  # noqa: PLC0415  only this command needs it

    try:
        facts = gather(folder)
    except NotRunningError as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(1) from None
    if as_json:
        typer.echo(json.dumps(facts, indent=2))
    else:
        describe(facts)


@app.command()
def logs(
    name: Annotated[str, typer.Argument(help="A process (see `info`) or a pod: NAME or NAMESPACE/NAME.")],
    folder: Folder = _FOLDER,
    follow: Annotated[bool, typer.Option("-f", "--follow", help="Keep printing new lines.")] = False,
) -> None:
    """Print the log of a process or pod."""
    from devcluster.front import print_log  # noqa: PLC0415  only this command needs it

    raise typer.Exit(print_log(folder, name, sys.stdout, follow=follow))


def main() -> None:
    """Run the commands without `aim-adapters`."""
    app()


if __name__ == "__main__":
    main()
