"""The commands about services: thin shells that read, ask a pure module, print."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cli.plugin import options
from cli.plugin.access import FOUND, Access, ProblemError, run
from cli.plugin.options import EXITS
from cli.plugin.output import Shape, answer

if TYPE_CHECKING:
    from collections.abc import Callable

    from api.view import Json
    from cli.plugin.edit import Edit, NewAdapter, Waited
    from kube.client import Client

_MOST_CONFLICTS = 5


def help_text(summary: str, body: str, *examples: str) -> str:
    """Return a command's help: what it does, exit codes, examples."""
    shown = "\n".join(
        f"  {example if 'aim-adapters' in example else f'kubectl aim-adapters {example}'}" for example in examples
    )
    text = f"{summary}\n\n{body}\n\n{EXITS}\n\n\b\nExamples:\n{shown}\n"
    return text.replace("[", "\\[")  # a bracket is markup to the library that lays the help out


# -- status, why, watch ---------------------------------------------------------------------------------------------


def add_status(cli: typer.Typer) -> None:
    """Add `status`."""
    text = help_text(
        "Show how a service stands, on one screen.",
        "Mode, rank ceiling and where it comes from, base model, disk; each adapter with state, rank, size, progress "
        "and last error. Without a name: all services of the namespace in a row each.",
        "status chat -n team-llm",
        "status -A",
        "status chat -o json",
    )
    cli.command("status", help=text)(status)


def status(  # noqa: PLR0917 - each is an option
    service: options.OptionalService = None,
    everywhere: Annotated[bool, typer.Option("-A", "--all-namespaces", help="Services of all namespaces.")] = False,
    output: options.Output = Shape.TABLE,
    namespace: options.Namespace = None,
    kubeconfig: options.Kubeconfig = None,
    context: options.Context = None,
) -> None:
    if everywhere and service is not None:
        raise typer.BadParameter("one service lives in one namespace: say it with -n", param_hint="--all-namespaces")
    access = Access(kubeconfig, context, namespace)
    if service is None:
        services = run(access, lambda client: _services(client, None if everywhere else access.place))
        from cli.plugin.status import overview  # noqa: PLC0415 - `--help` is quick

        views, rows = overview(services)
        if not services and output is Shape.TABLE:
            typer.echo(f"no AIMService in {'any namespace' if everywhere else f'namespace {access.place}'}")
            return
        answer(views, rows, output)
        return
    from cli.plugin.gather import gather  # noqa: PLC0415
    from cli.plugin.status import lines, view  # noqa: PLC0415

    seen = run(access, lambda client: gather(client, access.place, service))
    answer(view(seen), lines(seen), output)


async def _services(client: Client, namespace: str | None) -> list[Json]:
    from api.kinds import AIM_SERVICE  # noqa: PLC0415

    found, _ = await client.list_all(AIM_SERVICE, namespace)
    return list(found)


def add_why(cli: typer.Typer) -> None:
    """Add `why`."""
    text = help_text(
        "Say why an adapter is not served, and how to mend it.",
        "Walks service → profile → feature → cache → base → disk → subtree → adapter → job → files → server, and stops "
        "at the first link that does not hold. Without ADAPTER: all declared ones. Exit code 1: some link does not "
        "hold (yet).",
        "why chat",
        "why chat sql-lora -n team-llm",
        "why chat -o json",
    )
    cli.command("why", help=text)(why)


def why(  # noqa: PLR0917 - as above
    service: options.Service,
    adapter: options.OptionalAdapter = None,
    output: options.Output = Shape.TABLE,
    namespace: options.Namespace = None,
    kubeconfig: options.Kubeconfig = None,
    context: options.Context = None,
) -> None:
    from cli.plugin.gather import gather  # noqa: PLC0415 - as above
    from cli.plugin.why import as_lines, as_view, walk  # noqa: PLC0415

    access = Access(kubeconfig, context, namespace)
    seen = run(access, lambda client: gather(client, access.place, service))
    walks = walk(seen, adapter)
    answer(as_view(seen, walks), as_lines(seen, walks), output)
    raise typer.Exit(FOUND if any(one.broken for one in walks) else 0)


def add_watch(cli: typer.Typer) -> None:
    """Add `watch`."""
    text = help_text(
        "Follow services and their adapters live.",
        "On a terminal a picture that changes, into a pipe a line for each change. Ends with Ctrl-C.",
        "watch",
        "watch chat -n team-llm",
        "watch -A --for 60 | tee changes.log",
    )
    cli.command("watch", help=text)(watch)


def watch(  # noqa: PLR0917 - as above
    service: options.OptionalService = None,
    everywhere: Annotated[bool, typer.Option("-A", "--all-namespaces", help="Services of all namespaces.")] = False,
    seconds: Annotated[
        float | None, typer.Option("--for", metavar="SECONDS", min=0.1, help="End after so long.", show_default=False)
    ] = None,
    namespace: options.Namespace = None,
    kubeconfig: options.Kubeconfig = None,
    context: options.Context = None,
) -> None:
    from cli.plugin.live import follow  # noqa: PLC0415 - as above

    access = Access(kubeconfig, context, namespace)
    run(access, lambda client: follow(client, None if everywhere else access.place, service, seconds))


# -- add, remove, retry, rank ---------------------------------------------------------------------------------------


async def _edit(client: Client, read: Callable[[], Any], make: Callable[[Any], Edit], *, dry_run: bool) -> str:
    """Read, work out the edit, send it; again when someone else wrote in between. Returns what was done, in words."""
    from cli.plugin.edit import EditError  # noqa: PLC0415 - as above
    from kube.errors import Conflict  # noqa: PLC0415

    for attempt in range(_MOST_CONFLICTS):
        try:
            edit = make(await read())
        except EditError as error:
            raise ProblemError(str(error), FOUND) from None
        if not edit.patch:
            return edit.says
        try:
            await client.patch_merge(edit.kind, edit.namespace, edit.name, dict(edit.patch), dry_run=dry_run)
        except Conflict:
            if attempt + 1 == _MOST_CONFLICTS:
                raise
            continue
        return f"{edit.says} (dry run: nothing was changed)" if dry_run else edit.says
    raise AssertionError("unreachable: the last attempt returns or raises")


def add_add(cli: typer.Typer) -> None:
    """Add `add`."""
    text = help_text(
        "Declare adapters of a service (dynamic mode).",
        "With --source the AIMArtifact is made first, unless there is one; its base is the service's.",
        "add chat sql-lora",
        "add chat sql-lora --source hf://acme/sql-lora --rank 32 --wait",
        "add chat sql-lora med-lora --dry-run",
    )
    cli.command("add", help=text)(add)


def add(  # noqa: PLR0917 - as above
    service: options.Service,
    adapters: options.Adapters,
    source: Annotated[str | None, typer.Option(metavar="URI", help="hf://… or s3://… of a new adapter.")] = None,
    model_id: Annotated[str | None, typer.Option(metavar="ORG/NAME", help="With --source: its model id.")] = None,
    rank: Annotated[int | None, typer.Option(min=1, help="With --source: its rank; absent means 16.")] = None,
    compatible_with: Annotated[
        list[str] | None, typer.Option(metavar="ORG/BASE", help="With --source: bases that it fits.")
    ] = None,
    wait: options.Wait = False,
    timeout: options.Timeout = 600,
    dry_run: options.DryRun = False,
    namespace: options.Namespace = None,
    kubeconfig: options.Kubeconfig = None,
    context: options.Context = None,
) -> None:
    from cli.plugin.edit import NewAdapter, add_adapters, wait_for_adapters  # noqa: PLC0415 - as above

    if source is not None and len(adapters) != 1:
        raise typer.BadParameter("--source describes one adapter: name one", param_hint="ADAPTER")
    if source is None and (model_id or rank or compatible_with):
        raise typer.BadParameter(
            "--model-id, --rank and --compatible-with describe a new adapter: say its --source", param_hint="--source"
        )
    access = Access(kubeconfig, context, namespace)
    new = NewAdapter(source, model_id, rank, tuple(compatible_with or ())) if source is not None else None

    async def go(client: Client) -> None:
        if new is not None:
            typer.echo(await _make_artifact(client, access.place, service, adapters[0], new, dry_run=dry_run))
        reader = _reader(client, access.place, service)
        typer.echo(await _edit(client, reader, lambda found: add_adapters(found, adapters), dry_run=dry_run))
        if wait and not dry_run:
            judge = lambda found: wait_for_adapters(found, adapters)  # noqa: E731 - a closure in one line reads best
            typer.echo(
                await _wait(client, access.place, service, judge, timeout, f"{', '.join(adapters)} to be served")
            )

    run(access, go)


def _reader(client: Client, namespace: str, service: str) -> Callable[[], Any]:
    from cli.plugin.gather import find_service  # noqa: PLC0415 - as above

    return lambda: find_service(client, namespace, service)


async def _wait(  # noqa: PLR0917 - all callers give all
    client: Client, namespace: str, service: str, judge: Callable[[Json], Waited], seconds: float, what: str
) -> str:
    from cli.plugin.live import wait_for  # noqa: PLC0415 - as above

    return await wait_for(client, namespace, service, judge, seconds=seconds, what=what)


async def _make_artifact(
    client: Client, namespace: str, service: str, name: str, new: NewAdapter, *, dry_run: bool
) -> str:
    from api.kinds import AIM_ARTIFACT  # noqa: PLC0415 - as above
    from cli.plugin.edit import EditError, artifact_of, demand_fit, demand_same  # noqa: PLC0415
    from cli.plugin.gather import gather  # noqa: PLC0415
    from kube.errors import AlreadyExists  # noqa: PLC0415

    seen = await gather(client, namespace, service)
    try:
        artifact = artifact_of(name, namespace, new, seen.facts.base.model_id)
        try:
            await client.create(AIM_ARTIFACT, artifact, dry_run=True)
        except AlreadyExists:
            demand_same(await client.get(AIM_ARTIFACT, namespace, name), new)
            return f"AIMArtifact {name} is there already"
        demand_fit(seen.service, artifact, seen.world)
    except EditError as error:
        raise ProblemError(str(error), FOUND) from None
    if not dry_run:
        await client.create(AIM_ARTIFACT, artifact)
    return f"AIMArtifact {name} created" + (" (dry run)" if dry_run else "")


def add_remove(cli: typer.Typer) -> None:
    """Add `remove`."""
    text = help_text(
        "Take adapters from a service (dynamic mode).",
        "The artifacts stay, and so do other services that declare them; --delete-artifact deletes them too.",
        "remove chat sql-lora",
        "remove chat sql-lora --wait --delete-artifact",
    )
    cli.command("remove", help=text)(remove)


def remove(  # noqa: PLR0917 - as above
    service: options.Service,
    adapters: options.Adapters,
    delete_artifact: Annotated[bool, typer.Option("--delete-artifact", help="Delete the AIMArtifacts, too.")] = False,
    wait: options.Wait = False,
    timeout: options.Timeout = 600,
    dry_run: options.DryRun = False,
    namespace: options.Namespace = None,
    kubeconfig: options.Kubeconfig = None,
    context: options.Context = None,
) -> None:
    from api.kinds import AIM_ARTIFACT  # noqa: PLC0415 - as above
    from cli.plugin.edit import remove_adapters, wait_for_removal  # noqa: PLC0415

    access = Access(kubeconfig, context, namespace)

    async def go(client: Client) -> None:
        reader = _reader(client, access.place, service)
        typer.echo(await _edit(client, reader, lambda found: remove_adapters(found, adapters), dry_run=dry_run))
        if wait and not dry_run:
            judge = lambda found: wait_for_removal(found, adapters)  # noqa: E731 - as above
            typer.echo(
                await _wait(client, access.place, service, judge, timeout, f"{', '.join(adapters)} to be unloaded")
            )
        for name in adapters if delete_artifact else ():
            gone = await client.delete(AIM_ARTIFACT, access.place, name, dry_run=dry_run)
            typer.echo(
                f"AIMArtifact {name} {'deleted' if gone else 'was not there'}" + (" (dry run)" if dry_run else "")
            )

    run(access, go)


def add_retry(cli: typer.Typer) -> None:
    """Add `retry`."""
    text = help_text(
        "Try failed stagings again now.",
        "With ADAPTER that one, in all services that declare it; without it all failed ones of the service. --restage "
        "fetches a staged adapter again, for a source that moved.",
        "retry chat",
        "retry chat sql-lora --wait",
        "retry chat sql-lora --restage",
    )
    cli.command("retry", help=text)(retry)


def retry(  # noqa: PLR0917 - as above
    service: options.Service,
    adapter: options.OptionalAdapter = None,
    restage: Annotated[bool, typer.Option("--restage", help="Fetch again what is staged already.")] = False,
    wait: options.Wait = False,
    timeout: options.Timeout = 600,
    namespace: options.Namespace = None,
    kubeconfig: options.Kubeconfig = None,
    context: options.Context = None,
) -> None:
    from api.kinds import AIM_ARTIFACT, AIM_SERVICE  # noqa: PLC0415 - as above
    from api.view import adapter_refs  # noqa: PLC0415
    from cli.plugin.edit import ask_again, wait_for_retry  # noqa: PLC0415
    from cli.plugin.gather import find_service  # noqa: PLC0415

    access = Access(kubeconfig, context, namespace)
    word = datetime.now(UTC).isoformat()
    kind, name = (AIM_ARTIFACT, adapter) if adapter is not None else (AIM_SERVICE, service)

    async def go(client: Client) -> None:
        found = await find_service(client, access.place, service)
        names = [ref.name for ref in adapter_refs(found)]
        if adapter is not None and adapter not in names:
            raise ProblemError(f'"{service}" does not declare "{adapter}" (declared: {", ".join(names) or "none"})')
        edit = ask_again(kind, access.place, name, restage=restage, word=word)
        await client.patch_merge(edit.kind, edit.namespace, edit.name, dict(edit.patch))
        typer.echo(edit.says)
        if wait:
            waited = [adapter] if adapter is not None else names
            judge = lambda one: wait_for_retry(one, waited, found, restage=restage)  # noqa: E731 - as above
            typer.echo(await _wait(client, access.place, service, judge, timeout, f"{', '.join(waited)} to be served"))

    run(access, go)


def add_rank(cli: typer.Typer) -> None:
    """Add `rank`."""
    text = help_text(
        "Show or change ranks and the rank ceiling.",
        "With a number alone: the service's own ceiling (dynamic mode). With an adapter and a number: the rank that "
        "its AIMArtifact declares. A changed ceiling restarts the pods; that is told first, and done with --yes only.",
        "rank chat",
        "rank chat 64 --yes --wait",
        "rank chat sql-lora 32",
    )
    cli.command("rank", help=text)(rank)


def rank(  # noqa: PLR0917 - as above
    service: options.Service,
    words: Annotated[list[str] | None, typer.Argument(metavar="CEILING | ADAPTER RANK", show_default=False)] = None,
    yes: Annotated[bool, typer.Option("-y", "--yes", help="Change it although pods restart.")] = False,
    wait: options.Wait = False,
    timeout: options.Timeout = 600,
    dry_run: options.DryRun = False,
    output: options.Output = Shape.TABLE,
    namespace: options.Namespace = None,
    kubeconfig: options.Kubeconfig = None,
    context: options.Context = None,
) -> None:
    from cli.plugin import ranks  # noqa: PLC0415 - as above

    access = Access(kubeconfig, context, namespace)
    match [*(words or ())]:
        case []:
            seen = run(access, lambda client: ranks.read(client, access.place, service))
            answer(ranks.view(seen), ranks.lines(seen), output)
        case [number] if number.isdecimal():
            run(
                access,
                lambda client: _set_ceiling(client, access.place, service, int(number), yes=yes, dry_run=dry_run),
            )
            if wait and not dry_run:
                from cli.plugin.edit import wait_for_ceiling  # noqa: PLC0415

                judge = lambda one: wait_for_ceiling(one, int(number))  # noqa: E731 - as above
                what = f"the ceiling {number}"
                typer.echo(run(access, lambda client: _wait(client, access.place, service, judge, timeout, what)))
        case [adapter, number] if number.isdecimal():
            run(access, lambda client: _set_rank(client, access.place, adapter, int(number), dry_run=dry_run))
        case _:
            raise typer.BadParameter("give nothing, CEILING, or ADAPTER RANK (numbers)", param_hint="CEILING")


async def _set_ceiling(client: Client, namespace: str, service: str, number: int, *, yes: bool, dry_run: bool) -> None:
    from api.view import integer  # noqa: PLC0415 - as above
    from cli.plugin.edit import EditError, set_ceiling  # noqa: PLC0415
    from cli.plugin.gather import find_service  # noqa: PLC0415

    found = await find_service(client, namespace, service)
    try:
        set_ceiling(found, number)  # what makes no sense is said before the pods are
    except EditError as error:
        raise ProblemError(str(error), FOUND) from None
    pods = integer(found, "status", "runtime", "currentReplicas") or 0
    now = integer(found, "status", "adapterMaxRank")
    if pods and now != number and not yes and not dry_run:
        many = "1 pod" if pods == 1 else f"{pods} pods"
        raise ProblemError(f"the ceiling goes from {now} to {number}: {many} will restart; say --yes", FOUND)
    reader = _reader(client, namespace, service)
    typer.echo(await _edit(client, reader, lambda one: set_ceiling(one, number), dry_run=dry_run))


async def _set_rank(client: Client, namespace: str, adapter: str, number: int, *, dry_run: bool) -> None:
    from api.kinds import AIM_ARTIFACT  # noqa: PLC0415 - as above
    from cli.plugin.edit import set_rank  # noqa: PLC0415

    async def read() -> Json:
        found = await client.find(AIM_ARTIFACT, namespace, adapter)
        if found is None:
            raise ProblemError(f'no AIMArtifact "{adapter}" in namespace "{namespace}"')
        return found

    typer.echo(await _edit(client, read, lambda one: set_rank(one, number), dry_run=dry_run))
