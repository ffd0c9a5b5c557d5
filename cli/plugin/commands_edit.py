"""The commands that change services and adapters: shells that read, ask `edit` for the patch, send it, and wait."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from api.text import clean_line
from cli.plugin import options
from cli.plugin.access import FOUND, Access, ProblemError, run
from cli.plugin.output import Shape, answer

if TYPE_CHECKING:
    from api.view import Json
    from cli.plugin.edit import Edit, NewAdapter, Waited
    from kube.client import Client

_MOST_CONFLICTS = 5


@dataclass(frozen=True, slots=True)
class _Target:
    """A service to change, or one of its adapters. `dry_run`: the cluster changes nothing."""

    client: Client
    namespace: str
    service: str
    dry_run: bool = False

    async def read(self) -> Json:
        """Return the service. Raises: ProblemError when it does not exist."""
        from cli.plugin.gather import find_service

        return await find_service(self.client, self.namespace, self.service)

    async def read_artifact(self, name: str) -> Json:
        """Return an adapter's artifact. Raises: ProblemError when it does not exist."""
        from api.kinds import AIM_ARTIFACT

        found = await self.client.find(AIM_ARTIFACT, self.namespace, name)
        if found is None:
            raise ProblemError(f'no AIMArtifact "{name}" in namespace "{self.namespace}"')
        return found

    async def edit(self, make: Callable[[Json], Edit], read: Callable[[], Awaitable[Json]] | None = None) -> None:
        """Read, make the edit, send it, and print what was done.

        Another writer's change between the read and the patch is a conflict: the edit is then made again.
        """
        from cli.plugin.edit import EditError
        from kube.errors import Conflict

        for attempt in range(_MOST_CONFLICTS):
            try:
                edit = make(await (read or self.read)())
            except EditError as error:
                raise ProblemError(str(error), FOUND) from None
            if not edit.patch:
                typer.echo(clean_line(edit.says))
                return
            try:
                await self.client.patch_merge(
                    edit.kind, edit.namespace, edit.name, dict(edit.patch), dry_run=self.dry_run
                )
            except Conflict:
                if attempt + 1 == _MOST_CONFLICTS:
                    raise
                continue
            typer.echo(clean_line(f"{edit.says}{self.note}"))
            return

    async def wait(self, waiting: options.Waiting, what: str, judge: Callable[[Json], Waited]) -> None:
        """Wait for the result if --wait is set, and print it. Raises: ProblemError when the wait fails."""
        from cli.plugin.live import wait_for

        if waiting.wait and not self.dry_run:
            seconds = waiting.timeout
            typer.echo(
                clean_line(await wait_for(self.client, self.namespace, self.service, judge, seconds=seconds, what=what))
            )

    @property
    def note(self) -> str:
        return " (dry run: nothing was changed)" if self.dry_run else ""


@options.command(
    "add chat sql-lora",
    "add chat sql-lora --source hf://acme/sql-lora --rank 32 --wait",
    "add chat sql-lora med-lora --dry-run",
)
def add(
    service: options.Service,
    adapters: options.Adapters,
    *,
    artifact: options.NewArtifact,
    waiting: options.Waiting,
    dry_run: options.DryRun = False,
    access: Access,
) -> None:
    """Declare adapters of a service (dynamic mode).

    With --source the AIMArtifact is created first, unless it exists; its base is the service's.
    """
    from cli.plugin.edit import add_adapters, wait_for_adapters

    new = _new_adapter(artifact, adapters)

    async def go(client: Client) -> None:
        target = _Target(client, access.place, service, dry_run)
        if new is not None:
            await _make_artifact(target, adapters[0], new)
        await target.edit(lambda found: add_adapters(found, adapters))
        what = f"{', '.join(adapters)} to be served"
        await target.wait(waiting, what, lambda found: wait_for_adapters(found, adapters))

    run(access, go)


def _new_adapter(given: options.NewArtifact, adapters: list[str]) -> NewAdapter | None:
    """Return the adapter to create, None without a source. Raises: typer.BadParameter."""
    from cli.plugin.edit import NewAdapter

    if given.source is None:
        if given.model_id or given.rank or given.compatible_with:
            raise typer.BadParameter(
                "--model-id, --rank and --compatible-with describe a new adapter: set --source", param_hint="--source"
            )
        return None
    if len(adapters) != 1:
        raise typer.BadParameter("--source describes one adapter: name exactly one", param_hint="ADAPTER")
    return NewAdapter(given.source, given.model_id, given.rank, tuple(given.compatible_with or ()))


async def _make_artifact(target: _Target, name: str, new: NewAdapter) -> None:
    """Create the artifact unless it exists. Raises: ProblemError when it does not fit the service."""
    from api.kinds import AIM_ARTIFACT
    from cli.plugin.edit import EditError, artifact_of, demand_fit, demand_same
    from cli.plugin.gather import gather
    from kube.errors import AlreadyExists

    client = target.client
    seen = await gather(client, target.namespace, target.service)
    try:
        artifact = artifact_of(name, target.namespace, new, seen.facts.base.model_id)
        try:
            await client.create(AIM_ARTIFACT, artifact, dry_run=True)
        except AlreadyExists:
            demand_same(await client.get(AIM_ARTIFACT, target.namespace, name), new)
            typer.echo(clean_line(f"AIMArtifact {name} exists already"))
            return
        demand_fit(seen.service, artifact, seen.world)
    except EditError as error:
        raise ProblemError(str(error), FOUND) from None
    if not target.dry_run:
        await client.create(AIM_ARTIFACT, artifact)
    typer.echo(clean_line(f"AIMArtifact {name} created{target.note}"))


@options.command("remove chat sql-lora", "remove chat sql-lora --wait --delete-artifact")
def remove(
    service: options.Service,
    adapters: options.Adapters,
    delete_artifact: Annotated[bool, typer.Option("--delete-artifact", help="Delete the AIMArtifacts, too.")] = False,
    ignore_not_found: Annotated[
        bool, typer.Option("--ignore-not-found", help="An adapter that is not declared is not an error.")
    ] = False,
    *,
    waiting: options.Waiting,
    dry_run: options.DryRun = False,
    access: Access,
) -> None:
    """Remove adapters from a service (dynamic mode).

    The artifacts stay, and other services keep them; --delete-artifact deletes them too.
    """
    from api.kinds import AIM_ARTIFACT
    from cli.plugin.edit import remove_adapters, wait_for_removal

    async def go(client: Client) -> None:
        target = _Target(client, access.place, service, dry_run)
        await target.edit(lambda found: remove_adapters(found, adapters, ignore_not_found=ignore_not_found))
        what = f"{', '.join(adapters)} to be unloaded"
        await target.wait(waiting, what, lambda found: wait_for_removal(found, adapters))
        for name in adapters if delete_artifact else ():
            there = await client.delete(AIM_ARTIFACT, access.place, name, dry_run=dry_run)
            typer.echo(clean_line(f"AIMArtifact {name} {'deleted' if there else 'does not exist'}{target.note}"))

    run(access, go)


@options.command("retry chat", "retry chat sql-lora --wait", "retry chat sql-lora --restage")
def retry(
    service: options.Service,
    adapter: options.OptionalAdapter = None,
    restage: Annotated[
        bool, typer.Option("--restage", help="Download again, also what is already on the disk.")
    ] = False,
    *,
    waiting: options.Waiting,
    access: Access,
) -> None:
    """Retry failed stagings now.

    With ADAPTER only that adapter, in all services that declare it; without ADAPTER all failed adapters of the
    service. --restage downloads a staged adapter again, for a source whose content changed.
    """
    from api.view import adapter_refs
    from cli.plugin.edit import retry_staging, wait_for_retry

    word = datetime.now(UTC).isoformat()

    async def go(client: Client) -> None:
        target = _Target(client, access.place, service)
        found = await target.read()
        names = [ref.name for ref in adapter_refs(found)]
        if adapter is not None and adapter not in names:
            raise ProblemError(f'"{service}" does not declare "{adapter}" (declared: {", ".join(names) or "none"})')
        await target.edit(lambda one: retry_staging(one, adapter, restage=restage, word=word))
        waited = [adapter] if adapter is not None else names
        what = f"{', '.join(waited)} to be served"
        await target.wait(waiting, what, lambda one: wait_for_retry(one, waited, found, restage=restage))

    run(access, go)


@options.command("rank chat", "rank chat 64 --yes --wait", "rank chat sql-lora 32")
def rank(
    service: options.Service,
    words: Annotated[list[str] | None, typer.Argument(metavar="CEILING | ADAPTER RANK", show_default=False)] = None,
    yes: Annotated[bool, typer.Option("-y", "--yes", help="Change the ceiling although pods restart.")] = False,
    *,
    waiting: options.Waiting,
    dry_run: options.DryRun = False,
    output: options.Output = Shape.TABLE,
    access: Access,
) -> None:
    """Show or change ranks and the rank ceiling.

    With one number: the service's own ceiling (dynamic mode). With an adapter and a number: the rank that its
    AIMArtifact declares. A new ceiling restarts the pods; the command then needs --yes.
    """
    from cli.plugin.edit import set_rank
    from cli.plugin.gather import gather
    from cli.plugin.status import rank_lines, rank_view

    match words or []:
        case []:
            seen = run(access, lambda client: gather(client, access.place, service))
            answer(rank_view(seen), rank_lines(seen), output)
        case [number] if number.isdecimal():
            run(
                access,
                lambda client: _set_ceiling(
                    _Target(client, access.place, service, dry_run), int(number), waiting, yes=yes
                ),
            )
        case [adapter, number] if number.isdecimal():

            async def change(client: Client) -> None:
                target = _Target(client, access.place, service, dry_run)
                await target.edit(lambda one: set_rank(one, int(number)), lambda: target.read_artifact(adapter))

            run(access, change)
        case _:
            raise typer.BadParameter("write nothing, CEILING, or ADAPTER RANK (numbers)", param_hint="CEILING")


async def _set_ceiling(target: _Target, number: int, waiting: options.Waiting, *, yes: bool) -> None:
    from cli.plugin.edit import EditError, restarts, set_ceiling, wait_for_ceiling

    found = await target.read()
    try:
        set_ceiling(found, number)  # an invalid ceiling is reported before the pods are
    except EditError as error:
        raise ProblemError(str(error), FOUND) from None
    if (warning := restarts(found, number)) and not yes and not target.dry_run:
        raise ProblemError(f"{warning}; pass --yes to do it", FOUND)
    await target.edit(lambda one: set_ceiling(one, number))
    await target.wait(waiting, f"the ceiling {number}", lambda one: wait_for_ceiling(one, number))
