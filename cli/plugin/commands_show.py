"""The commands that show services: thin shells that read, ask a pure module, print."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from api.text import clean_line
from cli.plugin import options
from cli.plugin.access import FOUND, Access, run
from cli.plugin.output import Shape, answer

if TYPE_CHECKING:
    from api.view import Json
    from cli.plugin.doctor import Check
    from kube.client import Client

_LOOK_AGAIN_SECONDS = 2.0


@options.command("status chat -n team-llm", "status -A", "status chat -o json")
def status(
    service: options.OptionalService = None,
    everywhere: options.Everywhere = False,
    output: options.Output = Shape.TABLE,
    *,
    access: Access,
) -> None:
    """Show the status of a service on one screen.

    Mode, rank ceiling and where it comes from, base model, disk; each adapter with state, rank, size, progress and
    last error. Without a name: all services of the namespace, one per row.
    """
    from cli.plugin.gather import gather
    from cli.plugin.status import lines, overview, view

    if service is not None:
        if everywhere:
            raise typer.BadParameter(
                "-A cannot be combined with a service name; use -n NAMESPACE", param_hint="--all-namespaces"
            )
        seen = run(access, lambda client: gather(client, access.place, service))
        answer(view(seen), lines(seen), output)
        return
    services = run(access, lambda client: _services(client, None if everywhere else access.place))
    views, rows = overview(services)
    if not services and output is Shape.TABLE:
        typer.echo(clean_line(f"no AIMService in {'any namespace' if everywhere else f'namespace {access.place}'}"))
        return
    answer(views, rows, output)


async def _services(client: Client, namespace: str | None) -> list[Json]:
    from api.kinds import AIM_SERVICE

    found, _ = await client.list_all(AIM_SERVICE, namespace)
    return list(found)


@options.command("why chat", "why chat sql-lora -n team-llm", "why chat -o json")
def why(
    service: options.Service,
    adapter: options.OptionalAdapter = None,
    output: options.Output = Shape.TABLE,
    *,
    access: Access,
) -> None:
    """Explain why an adapter is not served, and how to fix it.

    Checks service → profile → feature → cache → base → disk → subtree → adapter → job → files → server, and stops at
    the first link that does not hold. Without ADAPTER: all declared adapters. Exit code 1: some link does not hold
    (yet).
    """
    from cli.plugin.gather import gather
    from cli.plugin.why import as_lines, as_view, walk

    seen = run(access, lambda client: gather(client, access.place, service))
    walks = walk(seen, adapter)
    answer(as_view(seen, walks), as_lines(seen, walks), output)
    raise typer.Exit(FOUND if any(one.broken for one in walks) else 0)


@options.command("doctor", "doctor --wait 2m", "doctor -o json")
def doctor(
    wait: Annotated[
        float | None,
        typer.Option(
            "--wait",
            metavar="DURATION",
            parser=options.parse_seconds,
            help="Look again until nothing is wrong, at most for this time, for example 2m.",
            show_default=False,
        ),
    ] = None,
    output: options.Output = Shape.TABLE,
    *,
    access: Access,
) -> None:
    """Check that aim-adapters itself works in the cluster.

    CRDs; webhook configurations, their rules and CA; the pods of the server, with what they report about certificates,
    watches and objects that are left out; the leader; KServe; storage classes. Each fault comes with its fix. What you
    have no right to read is shown with a question mark.
    """
    from cli.plugin.doctor import as_lines, as_view, healthy

    checks = run(access, lambda client: _examined(client, wait or 0.0))
    answer(as_view(checks), as_lines(checks), output)
    raise typer.Exit(0 if healthy(checks) else FOUND)


async def _examined(client: Client, seconds: float) -> list[Check]:
    """Return the checks, made again until nothing is wrong or the time is over."""
    import asyncio

    from cli.plugin.doctor import examine, healthy
    from cli.plugin.doctor_run import gather

    loop = asyncio.get_running_loop()
    until = loop.time() + seconds
    while True:
        checks = examine(await gather(client))
        if healthy(checks) or loop.time() >= until:
            return checks
        await asyncio.sleep(_LOOK_AGAIN_SECONDS)


@options.command("watch", "watch chat -n team-llm", "watch -A --for 60 | tee changes.log")
def watch(
    service: options.OptionalService = None,
    everywhere: options.Everywhere = False,
    seconds: Annotated[
        float | None,
        typer.Option(
            "--for",
            metavar="DURATION",
            parser=options.parse_seconds,
            help="End after this long, for example 90s or 10m.",
            show_default=False,
        ),
    ] = None,
    *,
    access: Access,
) -> None:
    """Follow services and their adapters live.

    On a terminal the screen is updated; in a pipe each change is a line. Ends with Ctrl-C.
    """
    from cli.plugin.live import follow

    run(access, lambda client: follow(client, None if everywhere else access.place, service, seconds))
