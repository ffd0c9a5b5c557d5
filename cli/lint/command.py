"""`aim-adapters lint`: the shell that reads files, asks `judge`, prints a report."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from typing import Annotated, Any

import typer

_HELP = """Check manifests before they reach a cluster: the rules of admission, offline.

Of directories *.yaml, *.yml and *.json are read. References are looked up among what is given; \
what is missing is a warning.

Exit code: 0 fine, 1 findings, 2 wrong usage or unreadable.

\b
Examples:
  aim-adapters lint deploy/
  kustomize build overlays/prod | aim-adapters lint -
  helm template chart/ | aim-adapters lint -n team-llm --format github -
  aim-adapters lint --assume profile.features=adapters service.yaml
  aim-adapters lint --cluster -n team-llm service.yaml
  aim-adapters lint --format sarif deploy/ > lint.sarif
  aim-adapters lint --explain AdapterRankAboveCeiling
"""
_PROGRESS_FROM = 50  # files: below that it is over before anybody looks


class Format(StrEnum):
    """How findings are printed."""

    TEXT = "text"
    JSON = "json"
    SARIF = "sarif"
    GITHUB = "github"


def add_lint(cli: typer.Typer) -> None:
    """Add the command to a command line."""
    cli.command("lint", help=_HELP)(lint)


def lint(  # noqa: PLR0917 - each is an option
    paths: Annotated[
        list[str] | None,
        typer.Argument(metavar="PATH…|-", show_default=False, help="Files, directories, or - for standard input."),
    ] = None,
    output: Annotated[Format, typer.Option("--format", help="How findings are printed.")] = Format.TEXT,
    namespace: Annotated[
        str, typer.Option("-n", "--namespace", help="Namespace of objects that name none.")
    ] = "default",
    assume: Annotated[
        list[str] | None,
        typer.Option(
            metavar="SUBJECT.FIELD=VALUE",
            help="What referenced objects that are not given hold; SUBJECT: profile, runtimeConfig, adapter, model, "
            "template. Repeatable.",
        ),
    ] = None,
    cluster: Annotated[bool, typer.Option("--cluster", help="Read what is not given from the cluster.")] = False,
    kubeconfig: Annotated[str | None, typer.Option(help="With --cluster: kubeconfig.", show_default=False)] = None,
    context: Annotated[str | None, typer.Option(help="With --cluster: its context.", show_default=False)] = None,
    exclude: Annotated[
        list[str] | None, typer.Option(metavar="GLOB", help="Leave out files below directories. Repeatable.")
    ] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Warnings fail, too.")] = False,
    explain: Annotated[
        str | None, typer.Option(metavar="REASON", help="Tell what a reason means and what to do.", show_default=False)
    ] = None,
) -> None:
    if explain is not None:
        raise typer.Exit(_explain(explain))
    if not paths:
        _fail("name files or directories, or - for standard input (see --help)")
    from cli.lint.assume import AssumptionError, parse_assumption  # noqa: PLC0415 - `--help` is quick
    from cli.lint.files import UnreadableError, find  # noqa: PLC0415

    try:
        assumptions = [parse_assumption(word) for word in assume or ()]
        notes: list[str] = []
        files = find(paths or [], exclude or (), notes)
        summary = _judge(files, namespace, assumptions, (kubeconfig, context) if cluster else None, notes)
    except (AssumptionError, UnreadableError) as error:
        _fail(str(error))
    _print(summary, output)
    raise typer.Exit(1 if summary.failed(strict=strict) else 0)


def _fail(text: str) -> Any:
    typer.echo(f"error: {text}", err=True)
    raise typer.Exit(2)


def _judge(
    files: list[str],
    namespace: str,
    assumptions: list[Any],
    reach: tuple[str | None, str | None] | None,
    notes: list[str],
) -> Any:
    from cli.lint.assume import assumed_objects  # noqa: PLC0415 - as above
    from cli.lint.files import read  # noqa: PLC0415
    from cli.lint.judge import Collected, judge  # noqa: PLC0415
    from cli.lint.report import Summary  # noqa: PLC0415
    from rules.worlds import SnapshotWorld  # noqa: PLC0415

    collected = Collected()
    with _progress("reading", len(files)) as step:
        for file in files:
            collected.add(*read(file), namespace)
            step()
    given = [manifest.obj for manifest in collected.manifests]
    given += assumed_objects(assumptions, given)
    if reach is not None:
        world, unread = _with_cluster(given, collected, reach)
        notes += unread
    else:
        world = SnapshotWorld(given)
    with _progress("judging", len(collected.manifests) if len(files) >= _PROGRESS_FROM else 0) as step:
        findings = judge(collected, world, step=step)
    looked = (len(files), len(collected.manifests), collected.others)
    return Summary(*looked, findings, tuple(notes), offline=reach is None, foreign=collected.foreign)


def _with_cluster(
    given: list[Any], collected: Any, reach: tuple[str | None, str | None]
) -> tuple[Any, tuple[str, ...]]:
    from cli.lint.judge import judge  # noqa: PLC0415 - as above
    from cli.plugin.access import Access, run  # noqa: PLC0415
    from cli.plugin.world import Known, complete  # noqa: PLC0415

    known = Known.start(given)
    world = run(Access(*reach), lambda client: complete(client, known, lambda world: judge(collected, world)))
    return world, tuple(
        f"note: no right to read {kind}; its absence was not judged" for kind in sorted(known.unreadable)
    )


def _print(summary: Any, output: Format) -> None:
    from cli.lint import report  # noqa: PLC0415 - as above

    if output is Format.JSON:
        text = report.to_json(summary)
    elif output is Format.SARIF:
        from importlib.metadata import version  # noqa: PLC0415

        text = report.to_sarif(summary, version("aim-adapters"))
    elif output is Format.GITHUB:
        text = report.to_github(summary)
    else:
        text = report.to_text(summary, _style())
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


_CODES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33"}


def _style() -> Callable[[str, str], str]:
    """Colours on a terminal only, and never where NO_COLOR is set."""
    from cli.lint.report import plain  # noqa: PLC0415 - as above

    if not sys.stdout.isatty() or os.environ.get("NO_COLOR"):
        return plain
    return lambda style, text: f"\x1b[{_CODES[style]}m{text}\x1b[0m"


@contextmanager
def _progress(doing: str, total: int) -> Iterator[Callable[[], None]]:
    """Show how far it is, on a terminal and for many files only."""
    if total < _PROGRESS_FROM or not sys.stderr.isatty():
        yield lambda: None
        return
    from rich.console import Console  # noqa: PLC0415 - only where it is seen
    from rich.progress import Progress  # noqa: PLC0415

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(doing, total=total)
        yield lambda: bar.advance(task)


def _explain(reason: str) -> int:
    from cli.lint.explain import explain, render, suggest, word_of  # noqa: PLC0415 - as above

    reason = word_of(reason)
    entries = explain(reason)
    if not entries:
        guess = suggest(reason)
        typer.echo(f'error: no reason "{reason}" is known' + (f"; {guess}" if guess else ""), err=True)
        return 2
    typer.echo(render(entries), nl=False)
    return 0
