"""`aim-adapters serve`: one option for each setting, generated from the descriptions of the settings."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from api.text import clean_line
from app.settings import SettingInfo, SettingsError, describe_settings, load_settings

_HELP = """Serve the admission webhooks and run the controllers, until SIGTERM.

Each option is also a variable (AIMA_WORKERS for --workers) and a key of the YAML file (workers).
Options override variables, variables override the file, the file overrides defaults. Durations: 30s, 15m, 1h30m.
"""


def add_serve(cli: typer.Typer) -> None:
    """Add the command to a command line."""
    cli.command("serve", help=_HELP)(_command())


def _command() -> Callable[..., None]:
    """Return the command's function with a signature that lists all settings."""

    def serve(**given: Any) -> None:
        config = given.pop("config")
        check = given.pop("check")
        try:
            settings, warnings = load_settings(given, config=config)
        except SettingsError as error:
            for line in error.lines:
                typer.echo(clean_line(f"error: {line}"), err=True)
            raise typer.Exit(2) from error
        if check:
            typer.echo("the settings are valid")
            return
        raise typer.Exit(_run(settings, warnings))

    parameters = [
        _parameter("config", Path | None, "--config", "YAML file with settings. Default: $AIMA_CONFIG.", "Settings"),
        _parameter("check", bool, "--check", "Check the settings and exit.", "Settings", default=False),
        *(_setting_parameter(info) for info in describe_settings()),
    ]
    serve.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined] # read by typer
    serve.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return serve


def _run(settings: Any, warnings: list[str]) -> int:
    """Start the server; its modules are loaded here, so that `--help` is quick.

    Nearly all objects of modules stay: garbage collection meanwhile took a tenth of the start.
    """
    import gc  # noqa: PLC0415
    import logging  # noqa: PLC0415

    gc.disable()

    from app.logs import set_up_logging  # noqa: PLC0415
    from app.serve import run  # noqa: PLC0415

    gc.enable()
    set_up_logging(settings.log_level, settings.log_format)
    for warning in warnings:
        logging.getLogger(__name__).warning("settings", extra={"problem": warning})
    return run(settings)


def _setting_parameter(info: SettingInfo) -> inspect.Parameter:
    if info.is_switch:
        flag = f"{info.flag}/--no-{info.flag[2:]}"
        return _parameter(info.name, bool | None, flag, _describe(info), info.group)
    shape = "|".join(info.choices) or info.name.upper().rsplit("_", maxsplit=1)[-1]
    return _parameter(info.name, str | None, info.flag, _describe(info), info.group, metavar=shape)


def _describe(info: SettingInfo) -> str:
    return f"{info.description} (default {info.default})" if info.default else info.description


def _parameter(
    name: str,
    type_: Any,
    flag: str,
    description: str,
    panel: str,
    *,
    default: Any = None,
    metavar: str | None = None,
) -> inspect.Parameter:
    option = typer.Option(flag, help=description, rich_help_panel=panel, metavar=metavar, show_default=False)
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[type_, option])
