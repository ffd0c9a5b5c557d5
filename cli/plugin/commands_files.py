"""The commands about files: `check` against a cluster, `render` and `inspect` without one."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cli.plugin import options
from cli.plugin.access import FAILED, FOUND, Access, print_error, run
from cli.plugin.commands import help_text
from cli.plugin.output import Shape, answer

if TYPE_CHECKING:
    from cli.lint.judge import Collected
    from reconcile.settings import ReconcileSettings

Files = Annotated[
    list[str],
    typer.Option("-f", "--filename", metavar="FILE", help="File, directory or - (standard input). Repeatable."),
]


def _collect(paths: list[str], namespace: str) -> Collected:
    """Read manifests; what cannot be read ends the command."""
    from cli.lint.files import UnreadableError, find, read  # noqa: PLC0415 - `--help` is quick
    from cli.lint.judge import Collected  # noqa: PLC0415

    collected = Collected()
    try:
        for file in find(paths):
            collected.add(*read(file), namespace)
    except UnreadableError as error:
        print_error(str(error))
        raise typer.Exit(FAILED) from None
    return collected


# -- check ----------------------------------------------------------------------------------------------------------


def add_check(cli: typer.Typer) -> None:
    """Add `check`."""
    text = help_text(
        "Dry-run manifests against the cluster: what would happen.",
        "Each object is sent as `kubectl apply` would send it, as a dry run: the answer is the cluster's own. Then the "
        "blast radius: which pods roll and why, which rank ceilings move, which services break or are mended.",
        "check -f service.yaml",
        "kustomize build . | kubectl aim-adapters check -f - -n team-llm",
        "check -f deploy/ -o json",
    )
    cli.command("check", help=text)(check)


def check(
    files: Files,
    output: options.Output = Shape.TABLE,
    namespace: options.Namespace = None,
    kubeconfig: options.Kubeconfig = None,
    context: options.Context = None,
) -> None:
    from cli.plugin.check_run import check_all  # noqa: PLC0415 - as above
    from cli.plugin.check_view import as_lines, as_view  # noqa: PLC0415

    access = Access(kubeconfig, context, namespace)
    collected = _collect(files, access.place)
    report = run(access, lambda client: check_all(client, collected))
    answer(as_view(report), as_lines(report), output)
    raise typer.Exit(0 if report.good else FOUND)


# -- render ---------------------------------------------------------------------------------------------------------


def add_render(cli: typer.Typer) -> None:
    """Add `render`."""
    text = help_text(
        "Show the objects that manifests lead to, offline.",
        "The controllers' own decisions, played through with every Job a success: caches, claims, Jobs, ConfigMaps and "
        "the InferenceService, as YAML.",
        "render -f service.yaml -f profile.yaml -f adapters/",
        "render -f . --assume profile.features=adapters -o table",
        "render -f . --config settings.yaml > objects.yaml",
    )
    cli.command("render", help=text)(render)


def render(
    files: Files,
    output: options.Output = Shape.YAML,
    namespace: Annotated[
        str, typer.Option("-n", "--namespace", help="Namespace of objects that name none.")
    ] = "default",
    assume: Annotated[
        list[str] | None,
        typer.Option(metavar="SUBJECT.FIELD=VALUE", help="As for `lint`: what is referred to, but not given."),
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="The service's own settings (the file of `serve --config`)."),
    ] = None,
) -> None:
    from cli.lint.assume import AssumptionError, assumed_objects, parse_assumption  # noqa: PLC0415 - as above
    from cli.plugin.output import columns, head  # noqa: PLC0415
    from cli.plugin.render_view import rehearse, summary, to_yaml  # noqa: PLC0415

    collected = _collect(files, namespace)
    bad = [finding for finding in collected.findings if finding.level == "error"]
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
        rows = [head("KIND", "NAME", "OWNER"), *summary(made)]
        answer(made, columns(rows), output)
    for note in notes:
        typer.echo(f"note: {note}", err=True)
    for finding in bad:
        place = f"{finding.file}:{finding.position.line}:{finding.position.column}"
        print_error(f"{place}: {finding.path}: {finding.message}".replace(": : ", ": "))
    for trouble in troubles:
        print_error(trouble)
    raise typer.Exit(FOUND if bad or troubles else 0)


def _settings(file: Path) -> ReconcileSettings:
    """Return what the controllers would go by under a settings file; one that cannot be read ends the command.

    Variables of this shell are not those of the service, so they do not count.
    """
    from app.settings import SettingsError, load_settings  # noqa: PLC0415 - as above

    try:
        settings, _ = load_settings({}, config=file, environ={})
    except SettingsError as error:
        for line in error.lines:
            print_error(line)
        raise typer.Exit(FAILED) from None
    return settings.reconcile_settings()


def _mutated(kind: Any, obj: Any) -> Any:
    """What admission would fill in."""
    from webhooks.mutate import mutate  # noqa: PLC0415 - as above

    for operation in mutate(kind, obj):
        if operation["path"] == "/spec/modelId":
            obj = {**obj, "spec": {**obj["spec"], "modelId": operation["value"]}}
    return obj


# -- inspect --------------------------------------------------------------------------------------------------------


def add_inspect(cli: typer.Typer) -> None:
    """Add `inspect`."""
    text = help_text(
        "Check an adapter's files, without a cluster.",
        "SOURCE is a directory, hf://org/name[/subfolder][@revision] or s3://bucket/prefix/. The checks are those of "
        "staging; of the weights only the header is read. HF_TOKEN, HF_ENDPOINT and AWS_* of the environment count. "
        "Exit code 1: it cannot be served.",
        "inspect ./my-adapter",
        "inspect hf://acme/sql-lora --max-rank 64 --base Qwen/Qwen3-8B",
        "inspect s3://models/adapters/sql/ --s3-endpoint https://s3.example.com -o json",
    )
    cli.command("inspect", help=text)(inspect)


def inspect(  # noqa: PLR0917 - each is an option
    source: Annotated[str, typer.Argument(metavar="SOURCE", help="Directory or source URI.")],
    max_rank: Annotated[int, typer.Option(min=1, help="Rank ceiling of the server that is to load it.")] = 512,
    rank: Annotated[
        int | None, typer.Option(min=1, help="Rank that its manifest declares.", show_default=False)
    ] = None,
    base: Annotated[str | None, typer.Option(metavar="ORG/NAME", help="Base that it is to run on.")] = None,
    strict_base: Annotated[bool, typer.Option("--strict-base", help="Another base is an error, too.")] = False,
    no_pickle: Annotated[bool, typer.Option("--no-pickle", help="Refuse adapter_model.bin.")] = False,
    s3_endpoint: Annotated[str | None, typer.Option(metavar="URL", help="Endpoint of the S3 service.")] = None,
    s3_region: Annotated[str | None, typer.Option(help="Region of the S3 service.")] = None,
    s3_anonymous: Annotated[bool, typer.Option("--s3-anonymous", help="Ask without credentials.")] = False,
    output: options.Output = Shape.TABLE,
) -> None:
    from cli.plugin.inspect_read import Reach, inspect_folder, inspect_source  # noqa: PLC0415 - as above
    from cli.plugin.inspect_view import lines, view  # noqa: PLC0415
    from disk.failures import DiskFailure  # noqa: PLC0415
    from disk.preflight import Limits  # noqa: PLC0415

    limits = Limits(max_rank, rank if rank is not None else max_rank, base, strict_base, not no_pickle)
    try:
        if "://" in source:
            auth = "anonymous" if s3_anonymous else "chain"
            seen = inspect_source(Reach(source, s3_endpoint=s3_endpoint, s3_region=s3_region, s3_auth=auth), limits)
        elif Path(source).is_dir():
            seen = inspect_folder(Path(source), limits)
        else:
            print_error(f'"{source}" is neither a directory nor a source (hf://org/name, s3://bucket/prefix/)')
            raise typer.Exit(FAILED)
    except DiskFailure as failure:
        print_error(f"{failure.reason}: {failure.message}")
        raise typer.Exit(FAILED) from None
    except OSError as error:
        print_error(f"{error.filename}: {error.strerror}")
        raise typer.Exit(FAILED) from None
    answer(view(seen), lines(seen), output)
    raise typer.Exit(FOUND if seen.verdict.failure is not None else 0)
