"""What the commands share: groups of options, texts of `--help`, and completion of names from the cluster."""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import Callable
from dataclasses import MISSING, dataclass, fields, is_dataclass
from typing import Annotated, Any, get_type_hints

import typer

from cli.plugin.access import Access
from cli.plugin.output import Shape

EXITS = "Exit code: 0 success, 1 a problem was found or the change was refused, 2 wrong usage, not found or no cluster."
_COMPLETION_SECONDS = 3.0


# -- commands -------------------------------------------------------------------------------------------------------


def command(*examples: str, exits: str = EXITS) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Make a function a command of the command line.

    Its docstring is the help; exit codes and `examples` are added. A parameter whose type is a dataclass stands for a
    group of options: each field is an option, and the function gets them as one object. So `access: Access` gives a
    command --namespace, --kubeconfig and --context.
    """

    def wrap(function: Callable[..., None]) -> Callable[..., None]:
        own = inspect.signature(function, eval_str=True).parameters.values()
        groups: dict[str, type[Any]] = {one.name: one.annotation for one in own if _is_group(one)}
        parameters = [one for each in own for one in (_options(each.annotation) if each.name in groups else [each])]

        @functools.wraps(function)
        def run(**given: Any) -> None:
            for name, group in groups.items():
                given[name] = group(**{field.name: given.pop(field.name) for field in fields(group)})
            function(**given)

        run.__signature__ = inspect.Signature(  # type: ignore[attr-defined] # read by typer
            [one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in parameters]
        )
        run.__annotations__ = {one.name: one.annotation for one in parameters}
        run.__doc__ = _help(inspect.getdoc(function) or "", exits, examples)
        return run

    return wrap


def _is_group(parameter: inspect.Parameter) -> bool:
    return isinstance(parameter.annotation, type) and is_dataclass(parameter.annotation)


def _options(group: type[Any]) -> list[inspect.Parameter]:
    types = get_type_hints(group, include_extras=True)
    return [
        inspect.Parameter(
            field.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=inspect.Parameter.empty if field.default is MISSING else field.default,
            annotation=types[field.name],
        )
        for field in fields(group)
    ]


def _help(text: str, exits: str, examples: tuple[str, ...]) -> str:
    shown = "\n".join(
        f"  {example if 'aim-adapters' in example else f'kubectl aim-adapters {example}'}" for example in examples
    )
    # a bracket is markup to the library that lays the help out
    return f"{text}\n\n{exits}\n\n\b\nExamples:\n{shown}\n".replace("[", "\\[")


# -- completion -----------------------------------------------------------------------------------------------------


def complete_services(ctx: typer.Context, incomplete: str) -> list[str]:
    """Names of AIMServices of the namespace typed so far; none when the cluster does not answer at once."""
    return _complete(ctx, incomplete, adapters=False)


def complete_adapters(ctx: typer.Context, incomplete: str) -> list[str]:
    """Names of adapter artifacts of the namespace typed so far."""
    return _complete(ctx, incomplete, adapters=True)


def _complete(ctx: typer.Context, incomplete: str, *, adapters: bool) -> list[str]:
    access = Access(**{field.name: ctx.params.get(field.name) for field in fields(Access)})
    try:
        names = asyncio.run(asyncio.wait_for(_names(access, adapters=adapters), _COMPLETION_SECONDS))
    except Exception:  # completion never disturbs what is being typed
        return []
    return [name for name in names if name.startswith(incomplete)]


async def _names(access: Access, *, adapters: bool) -> list[str]:
    from api.kinds import AIM_ARTIFACT, AIM_SERVICE
    from api.view import is_adapter, name_of
    from kube.client import Client

    async with await Client.connect(access.kubeconfig, access.context) as client:
        found, _ = await client.list_all(AIM_ARTIFACT if adapters else AIM_SERVICE, access.place)
    return sorted(name_of(obj) for obj in found if not adapters or is_adapter(obj))


# -- arguments and options ------------------------------------------------------------------------------------------


def parse_seconds(value: str | float) -> float:
    """Read a duration of the command line: 5s, 10m, 1h30m, or a number of seconds. Raises: typer.BadParameter."""
    from api.duration import parse_duration

    try:
        seconds = parse_duration(str(value)).total_seconds()
    except ValueError as error:
        raise typer.BadParameter(f'"{value}" {error}') from None
    if not seconds:
        raise typer.BadParameter("must be more than 0")
    return seconds


Output = Annotated[Shape, typer.Option("-o", "--output", help="Output format.")]
Everywhere = Annotated[bool, typer.Option("-A", "--all-namespaces", help="All namespaces.")]
Service = Annotated[
    str, typer.Argument(metavar="SERVICE", help="Name of the AIMService.", autocompletion=complete_services)
]
OptionalService = Annotated[
    str | None,
    typer.Argument(
        metavar="SERVICE", help="Name of an AIMService.", autocompletion=complete_services, show_default=False
    ),
]
Adapters = Annotated[
    list[str],
    typer.Argument(metavar="ADAPTER…", help="Names of adapter artifacts.", autocompletion=complete_adapters),
]
OptionalAdapter = Annotated[
    str | None,
    typer.Argument(metavar="ADAPTER", help="Name of an adapter.", autocompletion=complete_adapters, show_default=False),
]
DefaultNamespace = Annotated[str, typer.Option("-n", "--namespace", help="Namespace of objects that do not set one.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Send the request as a dry run: the cluster changes nothing.")]


@dataclass(frozen=True, slots=True)
class Waiting:
    """Whether a command waits for its result, and for how long."""

    wait: Annotated[bool, typer.Option("--wait", help="Wait until the change has taken effect, or cannot.")] = False
    timeout: Annotated[
        float,
        typer.Option(
            "--timeout",
            metavar="DURATION",
            parser=parse_seconds,
            help="With --wait: how long to wait, for example 90s; default: 10m.",
            show_default=False,
        ),
    ] = 600


@dataclass(frozen=True, slots=True)
class NewArtifact:
    """The AIMArtifact that `add --source` creates."""

    source: Annotated[
        str | None, typer.Option(metavar="URI", help="Source of a new adapter: hf://… or s3://….", show_default=False)
    ] = None
    model_id: Annotated[
        str | None, typer.Option(metavar="ORG/NAME", help="With --source: its model ID.", show_default=False)
    ] = None
    rank: Annotated[
        int | None, typer.Option(min=1, help="With --source: its rank; 16 if not set.", show_default=False)
    ] = None
    compatible_with: Annotated[
        list[str] | None,
        typer.Option(metavar="ORG/BASE", help="With --source: base models that it fits.", show_default=False),
    ] = None
