"""What is connected to what: the informers, the controllers over them, and admission over the same caches.

This is the one list to extend for a new kind.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from api.kinds import AIM_KINDS, Kind
from api.view import Json
from app.memory import make_budget
from app.settings import Settings
from kube.cache import Key
from kube.client import Client
from kube.engine import Controller
from kube.events import EventRecorder
from kube.informer import Informer
from reconcile.manager import CONTROLLERS, make_reconciler
from reconcile.world import CachedWorld, make_informers
from rules.references import Ref

if TYPE_CHECKING:
    from console.routes import Console
    from webhooks.admission import Admission, Refusal


@dataclass(frozen=True, slots=True)
class Parts:
    """What the process provides to its parts.

    `client` always reads and writes; `writer` shares its connections, and writes only while the lease is held.
    """

    settings: Settings
    client: Client
    writer: Client
    recorder: EventRecorder
    wake: Callable[[str, Key], None]  # (controller, key): request a pass

    def namespaces(self) -> tuple[str, ...] | None:
        """Return the namespaces to watch, None for all: an informer's argument."""
        return self.settings.namespaces or None


@dataclass(slots=True)
class Wiring:
    """What the process runs.

    `informers` always run; those of the controllers need not be listed. `admission_informers` must be filled before the
    process is ready. `jobs` (pollers) run in the background, each until cancelled.
    """

    controllers: list[Controller] = field(default_factory=list)
    informers: list[Informer] = field(default_factory=list)
    admission_informers: list[Informer] = field(default_factory=list)
    admission: Admission | None = None
    console: Console | None = None
    jobs: list[Callable[[], Awaitable[None]]] = field(default_factory=list)


def wire(parts: Parts) -> Wiring:
    """Return everything that runs with these settings."""
    settings = parts.settings
    informers = make_informers(
        parts.client,
        namespaces=parts.namespaces(),
        reconciling=settings.reconciler,
        nodes=settings.nodes,
        adopted=settings.adopt_managed_by,
        budget=make_budget(settings.cache_budget),
    )
    world = CachedWorld(informers)
    wiring = Wiring(informers=list(informers.values()))
    refusals = None
    if settings.admission:
        wiring.admission_informers = [informers[kind] for kind in AIM_KINDS]
        wiring.admission = admission = _admission(parts, world)
        refusals = admission.refusals
    if settings.console:
        _add_console(wiring, parts, informers, world, refusals)
    if settings.reconciler:
        reconciler = make_reconciler(
            parts.writer,
            informers=informers,
            world=world,
            recorder=parts.recorder,
            settings=settings.reconcile_settings(),
            wake=parts.wake,
            selected=CONTROLLERS if "*" in settings.controllers else settings.controllers,
        )
        wiring.controllers = list(reconciler.controllers)
        wiring.jobs.append(reconciler.poll)
    return wiring


# A process loads only what it runs: with everything, a start takes a third longer.


def _admission(parts: Parts, world: CachedWorld) -> Admission:
    from webhooks.admission import Admission, AdmissionSettings  # noqa: PLC0415
    from webhooks.metrics import process_metrics  # noqa: PLC0415

    settings = parts.settings
    judging = AdmissionSettings(
        max_in_flight=settings.max_in_flight,
        admission_only=not settings.reconciler,
        allowed_download_images=settings.allowed_download_images,
        rollout=f"maxSurge {settings.max_surge}, maxUnavailable {settings.max_unavailable}",
    )
    make: Callable[..., Admission] = Admission
    if settings.fast_path:
        from webhooks.fast.admission import make_admission as make  # noqa: PLC0415
    return make(world, LiveReader(parts.client), judging, process_metrics())


def _add_console(
    wiring: Wiring,
    parts: Parts,
    informers: Mapping[Kind, Informer],
    world: CachedWorld,
    refusals: Sequence[Refusal] | None,
) -> None:
    from app.console import EventFollower, make_console  # noqa: PLC0415

    events = EventFollower(parts.client, parts.namespaces())
    wiring.console = make_console(parts.settings, parts.client, informers, world, events=events, refusals=refusals)
    wiring.jobs.append(events.run)


@dataclass(frozen=True, slots=True)
class LiveReader:
    """Reads objects from the API server, to confirm a refusal that rests on them."""

    client: Client

    async def read(self, ref: Ref) -> Json | None:
        """Return the object as it is stored now, None when it does not exist. Raises: errors of `kube.errors`."""
        return await self.client.find(ref.kind, ref.namespace, ref.name)
