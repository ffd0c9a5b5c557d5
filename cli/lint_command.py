"""`aim-adapters lint`: the shell that reads files, asks `judge`, prints a report.

It is above both `cli.lint` and `cli.plugin`: with --cluster it reads objects as the plugin does.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any, NoReturn

import typer

from api.reasons import DOCS_URL
from api.text import clean_line, clean_lines
from cli.plugin import options

_PROGRESS_FROM = 50  # files; fewer are read before a progress bar can be seen


class Format(StrEnum):
    """The output format of findings."""

    TEXT = "text"
    JSON = "json"
    SARIF = "sarif"
    GITHUB = "github"


@dataclass(frozen=True, slots=True)
class Cluster:
    """Whether references are read from a cluster, and from which: a group of options."""

    cluster: Annotated[
        bool, typer.Option("--cluster", help="Read referenced objects that are not given from the cluster.")
    ] = False
    kubeconfig: Annotated[str | None, typer.Option(help="With --cluster: kubeconfig.", show_default=False)] = None
    context: Annotated[
        str | None, typer.Option(help="With --cluster: context of the kubeconfig.", show_default=False)
    ] = None


@options.command(
    "aim-adapters lint deploy/",
    "kustomize build overlays/prod | aim-adapters lint -",
    "helm template chart/ | aim-adapters lint -n team-llm --format github -",
    "aim-adapters lint --assume profile.features=adapters service.yaml",
    "aim-adapters lint --cluster -n team-llm service.yaml",
    "aim-adapters lint --format sarif deploy/ > lint.sarif",
    "aim-adapters lint --explain AdapterRankAboveCeiling",
    exits="Exit code: 0 no findings that fail, 1 findings, 2 wrong usage or an unreadable file.",
)
def lint(
    paths: Annotated[
        list[str] | None,
        typer.Argument(metavar="PATH…|-", show_default=False, help="Files, directories, or - for standard input."),
    ] = None,
    output: Annotated[Format, typer.Option("--format", help="Output format of the findings.")] = Format.TEXT,
    namespace: options.DefaultNamespace = "default",
    assume: Annotated[
        list[str] | None,
        typer.Option(
            metavar="SUBJECT.FIELD=VALUE",
            help="Fields of objects that are referenced but not given; SUBJECT: profile, runtimeConfig, adapter, "
            "model, template. Repeatable.",
        ),
    ] = None,
    *,
    cluster: Cluster,
    exclude: Annotated[
        list[str] | None, typer.Option(metavar="GLOB", help="Skip files below directories. Repeatable.")
    ] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Warnings fail, too.")] = False,
    docs_url: Annotated[
        str,
        typer.Option(metavar="URL", help="With --format sarif: address of the documentation, for each helpUri."),
    ] = DOCS_URL,
    explain: Annotated[
        str | None,
        typer.Option(metavar="REASON", help="Explain a reason and how to fix it, then exit.", show_default=False),
    ] = None,
) -> None:
    """Check manifests before they reach a cluster: the rules of admission, offline.

    In directories, *.yaml, *.yml and *.json are read. References are looked up among the given objects; a missing
    object is a warning.
    """
    if explain is not None:
        raise typer.Exit(_explain(explain))
    if not paths:
        _fail("name files or directories, or - for standard input (see --help)")
    from cli.lint.assume import AssumptionError, parse_assumption
    from cli.lint.files import UnreadableError, find

    try:
        assumptions = [parse_assumption(word) for word in assume or ()]
        notes: list[str] = []
        files = find(paths, exclude or (), notes)
        summary = _judge(files, namespace, assumptions, cluster, notes)
    except (AssumptionError, UnreadableError) as error:
        _fail(str(error))
    _print(summary, output, docs_url)
    raise typer.Exit(1 if summary.failed(strict=strict) else 0)


def _fail(text: str) -> NoReturn:
    typer.echo(clean_line(f"error: {text}"), err=True)
    raise typer.Exit(2)


def _judge(files: list[str], namespace: str, assumptions: list[Any], cluster: Cluster, notes: list[str]) -> Any:
    """Read the files and check them; `notes` gets what could not be looked at."""
    from cli.lint.assume import assumed_objects
    from cli.lint.files import read
    from cli.lint.judge import Collected, judge
    from cli.lint.report import Summary
    from rules.worlds import SnapshotWorld

    collected = Collected()
    with _progress("reading", len(files)) as step:
        for file in files:
            collected.add(*read(file), namespace)
            step()
    given = [manifest.obj for manifest in collected.manifests]
    given += assumed_objects(assumptions, given)
    if cluster.cluster:
        world, unread = _with_cluster(given, collected, cluster)
        notes += unread
    else:
        world = SnapshotWorld(given)
    with _progress("checking", len(collected.manifests) if len(files) >= _PROGRESS_FROM else 0) as step:
        findings = judge(collected, world, step=step)
    looked = (len(files), len(collected.manifests), collected.others)
    return Summary(*looked, findings, tuple(notes), offline=not cluster.cluster, foreign=collected.foreign)


def _with_cluster(given: list[Any], collected: Any, cluster: Cluster) -> tuple[Any, tuple[str, ...]]:
    """Return the given objects with those of the cluster that they refer to, and notes about unreadable kinds."""
    from cli.lint.judge import judge
    from cli.plugin.access import Access, run
    from cli.plugin.world import Known, complete

    known = Known.start(given)
    access = Access(kubeconfig=cluster.kubeconfig, context=cluster.context)
    world = run(access, lambda client: complete(client, known, lambda world: judge(collected, world)))
    return world, tuple(
        f"note: not allowed to read {kind}; missing objects of this kind are not reported"
        for kind in sorted(known.unreadable)
    )


def _print(summary: Any, output: Format, docs_url: str) -> None:
    from cli.lint import report

    if output is Format.JSON:
        text = report.to_json(summary)
    elif output is Format.SARIF:
        from importlib.metadata import version

        text = report.to_sarif(summary, version("aim-adapters"), docs_url)
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
    """Return how text is styled: in colour on a terminal only, and not where NO_COLOR is set."""
    from cli.lint.report import plain

    if not sys.stdout.isatty() or os.environ.get("NO_COLOR"):
        return plain
    return lambda style, text: f"\x1b[{_CODES[style]}m{text}\x1b[0m"


@contextmanager
def _progress(doing: str, total: int) -> Iterator[Callable[[], None]]:
    """Show progress, on a terminal and for many files only."""
    if total < _PROGRESS_FROM or not sys.stderr.isatty():
        yield lambda: None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(doing, total=total)
        yield lambda: bar.advance(task)


def _explain(reason: str) -> int:
    from cli.lint.explain import explain, render, suggest, word_of

    reason = word_of(reason)
    entry = explain(reason)
    if entry is None:
        guess = suggest(reason)
        typer.echo(clean_line(f'error: unknown reason "{reason}"' + (f"; {guess}" if guess else "")), err=True)
        return 2
    typer.echo(clean_lines(render(entry)), nl=False)
    return 0
