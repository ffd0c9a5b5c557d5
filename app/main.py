"""The command line: one program, one sub-command for each thing that a person or a Job does."""

from __future__ import annotations

import typer

cli = typer.Typer(no_args_is_help=True, add_completion=True, help="LoRA adapters on AMD GPUs: admission, staging, serving.")


def main() -> None:
    """Run the command line."""
    cli()
