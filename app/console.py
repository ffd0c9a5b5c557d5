"""The console over the caches of the process: what it reads, who can open it, and the events it shows."""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from starlette.types import Scope

from api import view
from api.kinds import AIM_ARTIFACT, AIM_SERVICE, EVENT, PERSISTENT_VOLUME_CLAIM, Kind
from api.view import Json
from app.protocol import ABORT
from app.settings import Settings
from app.tokens import TokenGate
from console.board import Board, Sources
from console.routes import PATH, Console
from console.views import Refused
from kube.client import Client
from kube.errors import ApiError, Forbidden, Gone
from kube.informer import Informer
from rules.world import World

log = logging.getLogger(__name__)

OURS = "source=aim-adapters"  # field selector: events that aim-adapters wrote
MOST_EVENTS = 200
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 60.0  # seconds before a broken watch of events is re-opened


def make_console(
    settings: Settings,
    client: Client,
    informers: Mapping[Kind, Informer],
    world: World,
    *,
    events: EventFollower,
    refusals: Sequence[Refused] | None,
) -> Console:
    """Return the console. Args: `refusals` of the admission application, None where there is none."""
    watched = [informers[kind] for kind in (AIM_SERVICE, AIM_ARTIFACT)]
    board = Board(
        Sources(
            world=world,
            claim=lambda namespace, name: world.get(PERSISTENT_VOLUME_CLAIM, namespace, name),
            refusals=lambda: refusals,
            events=lambda: events.newest,
            events_problem=lambda: events.problem,
            problems=lambda: _problems(watched),
            ready=lambda: all(informer.synced.is_set() for informer in watched),
            gaps=tuple(_gaps(settings)),
            replica=settings.pod_name or "",
        )
    )
    for kind, informer in informers.items():
        if kind == AIM_SERVICE:
            informer.add_handler(board.changed)
        elif kind.group == AIM_SERVICE.group or kind == PERSISTENT_VOLUME_CLAIM:
            informer.add_handler(board.touch)
    check = TokenGate(client, PATH).status if settings.console_access == "token" else None
    return Console(board, check=check, abort=_abort)


def _problems(informers: Iterable[Informer]) -> list[str]:
    return [
        f"This page may be out of date: {informer.kind.kind} cannot be watched ({informer.problem})"
        for informer in informers
        if informer.problem is not None
    ]


def _gaps(settings: Settings) -> Iterable[str]:
    """Yield what this process cannot show."""
    if not settings.reconciler:
        yield "This process runs only admission. Another controller writes the states, and disk sizes are not read."
    if settings.admission:
        yield "Refusals are from this replica since its start, without dry runs."
    if settings.namespaces:
        yield f"Only these namespaces are watched: {', '.join(settings.namespaces)}."
    yield "Sizes on disks are reported by staging. The API server keeps events for about an hour."


def _abort(scope: Scope) -> None:
    abort = (scope.get("extensions") or {}).get(ABORT)
    if abort is not None:
        abort()


class EventFollower:
    """Keeps the newest events that aim-adapters wrote, from any replica.

    `newest`: at most MOST_EVENTS, newest last; a new list after each change.
    """

    def __init__(self, client: Client, namespaces: Iterable[str] | None) -> None:
        self.newest: Sequence[Json] = ()
        self._problems: dict[str | None, str] = {}
        self._client = client
        self._scopes = [*sorted(set(namespaces))] if namespaces is not None else [None]
        self._events: OrderedDict[tuple[str, str], dict[str, Any]] = OrderedDict()

    @property
    def problem(self) -> str | None:
        """Why events of some namespace cannot be read, None when all can."""
        return next(iter(self._problems.values()), None)

    async def run(self) -> None:
        """Follow until cancelled."""
        async with asyncio.TaskGroup() as group:
            for scope in self._scopes:
                group.create_task(self._follow(scope), name="console events")

    async def _follow(self, namespace: str | None) -> None:
        pause, version = FIRST_PAUSE, ""
        while True:
            try:
                if not version:
                    version = await self._list(namespace)
                self._problems.pop(namespace, None)
                async for event in self._client.watch(EVENT, version, namespace, field_selector=OURS):
                    pause = FIRST_PAUSE
                    version = str(view.dig(event.object, "metadata", "resourceVersion") or version)
                    if event.type in ("ADDED", "MODIFIED"):
                        self._take([event.object])
                await asyncio.sleep(0.05)  # a server that ends each watch at once must not be asked without pause
            except Gone:
                version = ""
                await asyncio.sleep(FIRST_PAUSE)
            except (ApiError, ValueError, KeyError, TypeError) as error:
                version = ""
                self._problems[namespace] = _reason(error)
                await asyncio.sleep(LONGEST_PAUSE if isinstance(error, Forbidden) else pause)
                pause = min(LONGEST_PAUSE, 2 * pause)

    async def _list(self, namespace: str | None) -> str:
        version = ""
        async for page in self._client.list_pages(EVENT, namespace, field_selector=OURS):
            version = page.resource_version
            self._take(sorted(page.items, key=_version))
            await asyncio.sleep(0)
        return version

    def _take(self, events: Iterable[Json]) -> None:
        """Take in events; the newest are kept."""
        for event in events:
            metadata = view.mapping(event, "metadata")
            key = (str(metadata.get("namespace")), str(metadata.get("name")))
            self._events[key] = _trimmed(event)
            self._events.move_to_end(key)
        if len(self._events) > MOST_EVENTS:
            newest = sorted(self._events.items(), key=lambda entry: _version(entry[1]))[-MOST_EVENTS:]
            self._events = OrderedDict(newest)
        self.newest = list(self._events.values())


_KEPT = ("type", "reason", "message", "count", "lastTimestamp", "eventTime", "involvedObject")


def _trimmed(event: Json) -> dict[str, Any]:
    kept = ("name", "namespace", "resourceVersion", "creationTimestamp")
    metadata = {key: value for key, value in view.mapping(event, "metadata").items() if key in kept}
    return {"metadata": metadata} | {key: event[key] for key in _KEPT if key in event}


def _version(event: Json) -> int:
    version = str(view.dig(event, "metadata", "resourceVersion") or "")
    return int(version) if version.isdigit() else 0


def _reason(error: Exception) -> str:
    if isinstance(error, Forbidden):
        return "aim-adapters has no permission to list and watch events"
    return f"the API server cannot be reached ({type(error).__name__})"
