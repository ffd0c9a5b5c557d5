"""The commands about files: `check` against a cluster, `render` and `inspect` without one."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from api.text import clean_line
from cli.plugin import options
from cli.plugin.access import FAILED, FOUND, Access, print_error, run
from cli.plugin.output import Shape, answer

if TYPE_CHECKING:
    from cli.lint.judge import Collected
    from cli.plugin.inspect_adapter import Inspected
    from disk.findings import Limits
    from reconcile.settings import ReconcileSettings

Files = Annotated[
    list[str],
    typer.Option("-f", "--filename", metavar="FILE", help="File, directory or - (standard input). Repeatable."),
]


def _collect(paths: list[str], namespace: str) -> Collected:
    """Read manifests. Raises: typer.Exit when a path cannot be read."""
    from cli.lint.files import UnreadableError, find, read
    from cli.lint.judge import Collected

    collected = Collected()
    try:
        for file in find(paths):
            collected.add(*read(file), namespace)
    except UnreadableError as error:
        print_error(str(error))
        raise typer.Exit(FAILED) from None
    return collected


# -- check ----------------------------------------------------------------------------------------------------------


@options.command(
    "check -f service.yaml",
    "kustomize build . | kubectl aim-adapters check -f - -n team-llm",
    "check -f deploy/ -o json",
)
def check(files: Files, output: options.Output = Shape.TABLE, *, access: Access) -> None:
    """Dry-run manifests against the cluster and show the effects.

    Each object is sent as `kubectl apply` sends it, as a dry run: the answer is the cluster's own. Then the blast
    radius: which pods roll and why, which rank ceilings change, which services break or are fixed.
    """
    from cli.plugin.check import as_lines, as_view
    from cli.plugin.check_run import check_all

    collected = _collect(files, access.place)
    report = run(access, lambda client: check_all(client, collected))
    answer(as_view(report), as_lines(report), output)
    raise typer.Exit(0 if report.good else FOUND)


# -- render ---------------------------------------------------------------------------------------------------------


@options.command(
    "render -f service.yaml -f profile.yaml -f adapters/",
    "render -f . --assume profile.features=adapters -o table",
    "render -f . --config settings.yaml > objects.yaml",
)
def render(
    files: Files,
    output: options.Output = Shape.YAML,
    namespace: options.DefaultNamespace = "default",
    assume: Annotated[
        list[str] | None,
        typer.Option(
            metavar="SUBJECT.FIELD=VALUE", help="As for `lint`: fields of objects that are referenced but not given."
        ),
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Settings file of the server (the file of `serve --config`)."),
    ] = None,
) -> None:
    """Show the objects that the controllers create from manifests, offline.

    Runs the controllers' own decisions and assumes that every Job succeeds: caches, claims, Jobs, ConfigMaps and the
    InferenceService, as YAML.
    """
    from cli.lint.assume import AssumptionError, assumed_objects, parse_assumption
    from cli.plugin.output import columns, head
    from cli.plugin.render import rehearse, summary, to_yaml

    collected = _collect(files, namespace)
    try:
        assumptions = [parse_assumption(word) for word in assume or ()]
    except AssumptionError as error:
        print_error(str(error))
        raise typer.Exit(FAILED) from None
    given = [_mutated(manifest.kind, manifest.obj) for manifest in collected.manifests]
    given += assumed_objects(assumptions, given)
    made, notes, troubles = rehearse(given, datetime.now(UTC), _settings(config) if config is not None else None)
    if output is Shape.YAML:
        sys.stdout.write(to_yaml(made))
    else:
        answer(made, columns([head("KIND", "NAME", "OWNER"), *summary(made)]), output)
    bad = [finding for finding in collected.findings if finding.level == "error"]
    for note in notes:
        typer.echo(clean_line(f"note: {note}"), err=True)
    for finding in bad:
        place = f"{finding.file}:{finding.position.line}:{finding.position.column}"
        print_error(f"{place}: {finding.path}: {finding.message}".replace(": : ", ": "))
    for trouble in troubles:
        print_error(trouble)
    raise typer.Exit(FOUND if bad or troubles else 0)


def _settings(file: Path) -> ReconcileSettings:
    """Return the controllers' settings of a settings file. Raises: typer.Exit when it cannot be used."""
    from cli.server_settings import SettingsFileError, read_reconcile_settings

    try:
        return read_reconcile_settings(file)
    except SettingsFileError as error:
        for line in error.lines:
            print_error(line)
        raise typer.Exit(FAILED) from None


def _mutated(kind: Any, obj: Any) -> Any:
    """Return the object with the defaults of admission."""
    from webhooks.mutate import mutate

    for operation in mutate(kind, obj):
        if operation["path"] == "/spec/modelId":
            obj = {**obj, "spec": {**obj["spec"], "modelId": operation["value"]}}
    return obj


# -- inspect --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Demands:
    """What the server expects of an adapter: the options of the checks."""

    max_rank: Annotated[int, typer.Option(min=1, help="Rank ceiling of the server that will load it.")] = 512
    rank: Annotated[int | None, typer.Option(min=1, help="Rank that its manifest declares.", show_default=False)] = None
    base: Annotated[
        str | None, typer.Option(metavar="ORG/NAME", help="Base model that it will run on.", show_default=False)
    ] = None
    strict_base: Annotated[bool, typer.Option("--strict-base", help="Another base model is an error.")] = False
    no_pickle: Annotated[bool, typer.Option("--no-pickle", help="Refuse adapter_model.bin.")] = False

    @property
    def limits(self) -> Limits:
        """The limits as staging has them."""
        from disk.findings import Limits

        rank = self.rank if self.rank is not None else self.max_rank
        return Limits(self.max_rank, rank, self.base, self.strict_base, not self.no_pickle)


@dataclass(frozen=True, slots=True)
class S3:
    """How an S3 source is reached."""

    s3_endpoint: Annotated[
        str | None, typer.Option(metavar="URL", help="Endpoint of the S3 service.", show_default=False)
    ] = None
    s3_region: Annotated[str | None, typer.Option(help="Region of the S3 service.", show_default=False)] = None
    s3_anonymous: Annotated[bool, typer.Option("--s3-anonymous", help="Read without credentials.")] = False


@options.command(
    "inspect ./my-adapter",
    "inspect hf://acme/sql-lora --max-rank 64 --base Qwen/Qwen3-8B",
    "inspect s3://models/adapters/sql/ --s3-endpoint https://s3.example.com -o json",
)
def inspect(
    source: Annotated[str, typer.Argument(metavar="SOURCE", help="Directory or source URI.")],
    *,
    demands: Demands,
    s3: S3,
    output: options.Output = Shape.TABLE,
) -> None:
    """Check the files of an adapter, without a cluster.

    SOURCE is a directory, hf://org/name[/subfolder][@revision] or s3://bucket/prefix/. The checks are those of
    staging; of the weights only the header is read. HF_TOKEN, HF_ENDPOINT and AWS_* of the environment are used.
    Exit code 1: it cannot be served.
    """
    from cli.plugin.inspect_adapter import lines, view
    from disk.failures import DiskFailure

    try:
        seen = _inspect(source, demands.limits, s3)
    except DiskFailure as failure:
        print_error(f"{failure.reason}: {failure.problem}")
        raise typer.Exit(FAILED) from None
    except OSError as error:
        print_error(f"{error.filename}: {error.strerror}")
        raise typer.Exit(FAILED) from None
    answer(view(seen), lines(seen), output)
    raise typer.Exit(FOUND if seen.verdict.failure is not None else 0)


def _inspect(source: str, limits: Limits, s3: S3) -> Inspected:
    """Read an adapter. Raises: DiskFailure, OSError, typer.Exit for a source of neither kind."""
    from cli.plugin.inspect_adapter import Reach, inspect_folder, inspect_source

    if "://" in source:
        auth = "anonymous" if s3.s3_anonymous else "chain"
        reach = Reach(source, s3_endpoint=s3.s3_endpoint, s3_region=s3.s3_region, s3_auth=auth)
        return inspect_source(reach, limits)
    if Path(source).is_dir():
        return inspect_folder(Path(source), limits)
    print_error(f'"{source}" is neither a directory nor a source (hf://org/name, s3://bucket/prefix/)')
    raise typer.Exit(FAILED)
