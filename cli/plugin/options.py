"""The options that many commands share, and completion of names from the cluster."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

import typer

from cli.plugin.access import CONTEXT_HELP, KUBECONFIG_HELP, NAMESPACE_HELP, Access
from cli.plugin.output import Shape

_COMPLETION_SECONDS = 3.0
_PANEL = "Cluster"


def complete_services(ctx: typer.Context, incomplete: str) -> list[str]:
    """Names of AIMServices of the namespace that is typed so far; nothing when the cluster does not answer at once."""
    return _complete(ctx, incomplete, adapters=False)


def complete_adapters(ctx: typer.Context, incomplete: str) -> list[str]:
    """Names of adapter artifacts of the namespace that is typed so far."""
    return _complete(ctx, incomplete, adapters=True)


def _complete(ctx: typer.Context, incomplete: str, *, adapters: bool) -> list[str]:
    given = ctx.params
    access = Access(given.get("kubeconfig"), given.get("context"), given.get("namespace"))
    try:
        names = asyncio.run(asyncio.wait_for(_names(access, adapters=adapters), _COMPLETION_SECONDS))
    except Exception:  # completion never disturbs what is being typed
        return []
    return [name for name in names if name.startswith(incomplete)]


async def _names(access: Access, *, adapters: bool) -> list[str]:
    from api.kinds import AIM_ARTIFACT, AIM_SERVICE  # noqa: PLC0415 - completion only
    from api.view import is_adapter, name_of  # noqa: PLC0415
    from kube.client import Client  # noqa: PLC0415

    async with await Client.connect(access.kubeconfig, access.context) as client:
        found, _ = await client.list_all(AIM_ARTIFACT if adapters else AIM_SERVICE, access.place)
    return sorted(name_of(obj) for obj in found if not adapters or is_adapter(obj))


def _option(*names: str, **more: Any) -> Any:
    return typer.Option(*names, show_default=False, **more)


Namespace = Annotated[str | None, _option("-n", "--namespace", help=NAMESPACE_HELP, rich_help_panel=_PANEL)]
Kubeconfig = Annotated[str | None, _option("--kubeconfig", help=KUBECONFIG_HELP, rich_help_panel=_PANEL)]
Context = Annotated[str | None, _option("--context", help=CONTEXT_HELP, rich_help_panel=_PANEL)]
Output = Annotated[Shape, typer.Option("-o", "--output", help="How the answer is printed.")]
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
Wait = Annotated[bool, typer.Option("--wait", help="Return when it is so, or cannot become so.")]
Timeout = Annotated[int, typer.Option("--timeout", metavar="SECONDS", min=1, help="With --wait: how long at most.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Ask the cluster, but change nothing.")]
EXITS = "Exit code: 0 fine, 1 something is wrong or was refused, 2 wrong usage, nothing there or no cluster."
