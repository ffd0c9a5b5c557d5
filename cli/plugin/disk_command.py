"""`aim-adapters disk`: the overview of adapter disks for people, and the commands of the Jobs as sub-commands."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

import disk.cli
from cli.plugin.output import Shape

if TYPE_CHECKING:
    from api.view import Json
    from kube.client import Client

_PERIOD = 1.0  # seconds between two looks at a running dry run
_HELP = """Show adapter disks: how full each is, by service and adapter, and what could be reclaimed.

The sub-commands are what the Jobs run on an adapter disk or a model cache; people need none but `inspect`.
"""


class _ShowsByDefault(TyperGroup):
    """A group that shows the overview when no sub-command is named."""

    def parse_args(self, ctx: Any, args: list[str]) -> Any:
        """Put `show` in front of options; its own help stays the group's."""
        if not args or (args[0].startswith("-") and args[0] not in ("--help",)):
            args = ["show", *args]
        return super().parse_args(ctx, args)


app = typer.Typer(cls=_ShowsByDefault, add_completion=False, pretty_exceptions_enable=False, help=_HELP)
app.registered_commands += disk.cli.cli.registered_commands


@app.command("show")
def show(  # noqa: PLR0917 - each is an option
    service: Annotated[str | None, typer.Option("--service", help="Only this service's adapters.")] = None,
    measure: Annotated[
        bool, typer.Option("--measure", help="Find out what could be reclaimed: a dry run of the sweep, on the disk.")
    ] = False,
    everywhere: Annotated[bool, typer.Option("-A", "--all-namespaces", help="Disks of all namespaces.")] = False,
    output: Annotated[Shape, typer.Option("-o", "--output", help="How the answer is printed.")] = Shape.TABLE,
    timeout: Annotated[int, typer.Option("--timeout", metavar="SECONDS", min=1, help="With --measure.")] = 120,
    namespace: Annotated[str | None, typer.Option("-n", "--namespace", help="Namespace.")] = None,
    kubeconfig: Annotated[str | None, typer.Option(help="Kubeconfig.")] = None,
    context: Annotated[str | None, typer.Option(help="Context of the kubeconfig.")] = None,
) -> None:
    """Show adapter disks of the cluster (what `disk` alone does)."""
    from api.view import name_of  # noqa: PLC0415 - the Jobs load none of this
    from cli.plugin.access import Access, run  # noqa: PLC0415
    from cli.plugin.disk_view import lines, view  # noqa: PLC0415
    from cli.plugin.output import answer  # noqa: PLC0415

    access = Access(kubeconfig, context, namespace)
    place = None if everywhere else access.place
    bases, services, claims = run(access, lambda client: _read(client, place, measure=measure, seconds=timeout))
    if service is not None:
        services = [one for one in services if name_of(one) == service]
    disks = view(bases, services, claims)
    answer(disks, lines(disks), output)


async def _read(
    client: Client, namespace: str | None, *, measure: bool, seconds: float
) -> tuple[list[Json], list[Json], dict[tuple[str, str], Json]]:
    from api.kinds import AIM_ARTIFACT, AIM_SERVICE, PERSISTENT_VOLUME_CLAIM  # noqa: PLC0415 - as above
    from api.names import LABEL_ROLE, ROLE_ADAPTER_DISK  # noqa: PLC0415
    from api.view import name_of, namespace_of, text  # noqa: PLC0415

    artifacts, _ = await client.list_all(AIM_ARTIFACT, namespace)
    bases: list[Json] = [one for one in artifacts if text(one, "status", "adapterPersistentVolumeClaim")]
    if measure:
        async with asyncio.timeout(seconds):
            bases = [await _measure(client, base) for base in bases]
    services, _ = await client.list_all(AIM_SERVICE, namespace)
    claims, _ = await client.list_all(
        PERSISTENT_VOLUME_CLAIM, namespace, label_selector=f"{LABEL_ROLE}={ROLE_ADAPTER_DISK}"
    )
    return bases, list(services), {(namespace_of(one), name_of(one)): one for one in claims}


async def _measure(client: Client, base: Json) -> Json:
    """Ask for a dry run of the sweep, and return the artifact when its outcome is there."""
    from api.kinds import AIM_ARTIFACT  # noqa: PLC0415 - as above
    from api.names import ANNOTATION_REAP  # noqa: PLC0415
    from api.view import name_of, namespace_of, text  # noqa: PLC0415

    word = f"dry-run-{datetime.now(UTC):%Y%m%dT%H%M%S.%f}"
    patch = {"metadata": {"annotations": {ANNOTATION_REAP: word}}}
    await client.patch_merge(AIM_ARTIFACT, namespace_of(base), name_of(base), patch)
    while True:  # bounded by the caller's timeout
        found = await client.get(AIM_ARTIFACT, namespace_of(base), name_of(base))
        if text(found, "status", "lastReapRequest") == word and text(found, "status", "lastReap", "reason"):
            return found
        await asyncio.sleep(_PERIOD)
