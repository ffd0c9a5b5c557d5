"""`aim-adapters disk`: the overview of adapter disks, and as sub-commands what the Jobs run on a disk.

First the shell that reads the cluster, then the pure part. Sizes are those that staging reported.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

import disk.cli
from api.view import dig, integer, items, name_of, namespace_of, text
from cli.plugin import options
from cli.plugin.access import Access
from cli.plugin.output import BOLD, DIM, Cell, Line, Shape, columns, head, line, size, state

if TYPE_CHECKING:
    from api.view import Json
    from kube.client import Client

_PERIOD = 1.0  # seconds between two reads while a dry run is measured
_HELP = """Show adapter disks: how full each is, by service and adapter, and what a sweep would free.

The sub-commands are what the Jobs run on an adapter disk or a model cache; of these, people need only `inspect`.
"""


class _ShowsByDefault(TyperGroup):
    """A group that shows the overview when no sub-command is named."""

    def parse_args(self, ctx: Any, args: list[str]) -> Any:
        """Put `show` in front of options; --help stays the group's own."""
        if not args or (args[0].startswith("-") and args[0] not in ("--help",)):
            args = ["show", *args]
        return super().parse_args(ctx, args)


app = typer.Typer(cls=_ShowsByDefault, add_completion=False, pretty_exceptions_enable=False, help=_HELP)
app.registered_commands += disk.cli.cli.registered_commands


@app.command("show")
@options.command("disk -n team-llm", "disk -A --measure", "disk --service chat -o json")
def show(
    service: Annotated[
        str | None, typer.Option("--service", help="Only the adapters of this service.", show_default=False)
    ] = None,
    measure: Annotated[
        bool, typer.Option("--measure", help="Measure what can be freed: a dry run of the sweep, on the disk.")
    ] = False,
    everywhere: options.Everywhere = False,
    output: options.Output = Shape.TABLE,
    timeout: Annotated[
        float,
        typer.Option(
            "--timeout",
            metavar="DURATION",
            parser=options.parse_seconds,
            help="With --measure: how long to wait; default: 2m.",
            show_default=False,
        ),
    ] = 120,
    *,
    access: Access,
) -> None:
    """Show the adapter disks of the cluster (the same as `disk` alone)."""
    from cli.plugin.access import run
    from cli.plugin.output import answer

    place = None if everywhere else access.place
    bases, services, claims = run(access, lambda client: _read(client, place, measure=measure, seconds=timeout))
    if service is not None:
        services = [one for one in services if name_of(one) == service]
    disks = view(bases, services, claims)
    answer(disks, lines(disks), output)


async def _read(
    client: Client, namespace: str | None, *, measure: bool, seconds: float
) -> tuple[list[Json], list[Json], dict[tuple[str, str], Json]]:
    from api.kinds import AIM_ARTIFACT, AIM_SERVICE, PERSISTENT_VOLUME_CLAIM
    from api.names import LABEL_ROLE, ROLE_ADAPTER_DISK

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
    """Request a dry run of the sweep, and return the artifact once it has the result."""
    from api.kinds import AIM_ARTIFACT
    from api.names import ANNOTATION_REAP

    word = f"dry-run-{datetime.now(UTC):%Y%m%dT%H%M%S.%f}"
    patch = {"metadata": {"annotations": {ANNOTATION_REAP: word}}}
    await client.patch_merge(AIM_ARTIFACT, namespace_of(base), name_of(base), patch)
    while True:  # bounded by the caller's timeout
        found = await client.get(AIM_ARTIFACT, namespace_of(base), name_of(base))
        if text(found, "status", "lastReapRequest") == word and text(found, "status", "lastReap", "reason"):
            return found
        await asyncio.sleep(_PERIOD)


# -- the overview ---------------------------------------------------------------------------------------------------


def view(
    bases: Sequence[Json], services: Sequence[Json], claims: Mapping[tuple[str, str], Json]
) -> list[dict[str, Any]]:
    """Return the adapter disks of the base artifacts. `claims` by (namespace, name)."""
    disks = []
    for base in sorted(bases, key=lambda one: (namespace_of(one), name_of(one))):
        name = text(base, "status", "adapterPersistentVolumeClaim")
        if name is None:
            continue
        claim = claims.get((namespace_of(base), name))
        rows = [row for service in sorted(services, key=name_of) for row in _rows(service, namespace_of(base), name)]
        disks.append(
            {
                "namespace": namespace_of(base),
                "base": name_of(base),
                "claim": name,
                "phase": text(claim, "status", "phase"),
                "capacity": text(claim, "status", "capacity", "storage")
                or text(claim, "spec", "resources", "requests", "storage"),
                "usedBytes": _used(rows),
                "lastReap": dig(base, "status", "lastReap"),
                "lastReapTime": text(base, "status", "lastReapTime"),
                "adapters": [{key: value for key, value in row.items() if key != "digest"} for row in rows],
            }
        )
    return disks


def _rows(service: Json, namespace: str, claim: str) -> list[dict[str, Any]]:
    if namespace_of(service) != namespace or text(service, "status", "adapterDiskPersistentVolumeClaim") != claim:
        return []
    return [
        {
            "service": name_of(service),
            "adapter": dig(entry, "name"),
            "state": dig(entry, "state"),
            "sizeBytes": integer(entry, "sizeBytes"),
            "digest": dig(entry, "digest"),
        }
        for entry in items(service, "status", "adapters")
    ]


def _used(rows: Sequence[Mapping[str, Any]]) -> int:
    """Return the bytes on the disk. Equal contents are stored once, however many services use them."""
    contents = {row["digest"] or f"{row['service']}/{row['adapter']}": row["sizeBytes"] or 0 for row in rows}
    return sum(contents.values())


def lines(disks: Sequence[Mapping[str, Any]]) -> list[Line]:
    """Return the disks for people."""
    if not disks:
        return [line("no adapter disk found")]
    out: list[Line] = []
    for one in disks:
        facts = " ".join(word for word in (one["capacity"], one["phase"]) if word)
        out.append(line((f"{one['namespace']}/{one['claim']}", BOLD), f"   {facts}   base {one['base']}"))
        out.append(line(f"  in use: {size(one['usedBytes'])}   {_reap_words(one)}"))
        rows: list[list[Cell]] = [head("SERVICE", "ADAPTER", "STATE", "SIZE")]
        rows += [
            [row["service"], row["adapter"], state(row["state"] or "Pending"), size(row["sizeBytes"])]
            for row in one["adapters"]
        ]
        out += columns(rows, indent=2) if one["adapters"] else [line("  ", ("no adapters", DIM))]
        out.append(line(""))
    return out[:-1]


def _reap_words(disk: Mapping[str, Any]) -> str:
    reap = disk["lastReap"]
    if not reap:
        return "reclaimable: not measured yet (use --measure)"
    message = str(reap.get("message") or reap.get("reason") or "")
    count = reap.get("reclaimedBytes")
    if "dry run" in message:
        return f"reclaimable: {size(count)}"
    return f"last sweep: freed {size(count)}" + (f" at {disk['lastReapTime']}" if disk["lastReapTime"] else "")
