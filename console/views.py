"""Cached objects in, what the page shows out. Pure and total: an object of a wrong shape is shown as unknown.

There are two levels: a `Brief` of every service (cheap, kept), and a `ServiceView` of each service on a visited page.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import zip_longest
from typing import Protocol

from api import view
from api.kinds import AIM_ARTIFACT
from api.quantity import parse_quantity
from api.reasons import Reason
from api.record import record
from api.view import Json
from api.words import parse_time
from console.words import LONGEST_NAME, harmless
from rules.rank import CeilingDecision
from rules.seen import see_service
from rules.world import World

Key = tuple[str, str]  # (namespace, name)

SERVICE_STATES = ("Running", "Starting", "Degraded", "Pending", "Failed")
ADAPTER_STATES = ("Loaded", "Downloaded", "Downloading", "Pending", "Deleting", "LoadRejected", "Failed")
BAD_STATES = frozenset({"Failed", "LoadRejected", "Degraded"})
STAGING = frozenset({"Downloading", "Pending"})
MOST_ERRORS = 5  # of one refusal


@record
class Brief:
    """What is kept of every service: enough to count and filter it, and to find its disk."""

    status: str
    adapters: tuple[str, ...]  # states
    trouble: bool
    staging: bool
    haystack: str  # lower case: what the filter field looks in
    claim: str  # of the adapter disk, "" for none
    contents: tuple[tuple[str, int], ...]  # (digest or own name, bytes) of contents on the disk


@record
class BaseView:
    """The base model."""

    name: str
    model_id: str
    status: str
    percentage: int | None


@record
class Note:
    """A warning: reason and message."""

    reason: str
    message: str


@record
class AdapterView:
    """One adapter of a service. Ranks: `rank` as its files say, `declared` as its artifact says."""

    name: str
    state: str
    leaving: bool  # no longer declared
    rank: int | None
    declared: int | None
    size: int | None  # bytes
    percentage: int | None
    total: int | None
    loaded: int | None  # replicas
    error: str
    attempts: int | None
    next_try: datetime | None
    warnings: tuple[Note, ...]
    since: datetime | None


@record
class DiskView:
    """An adapter disk. `used`: bytes that staging reported, equal contents once; `capacity` None: unknown."""

    namespace: str
    claim: str
    used: int
    services: int
    capacity: int | None
    phase: str


@record
class ServiceView:
    """One service as it is shown."""

    namespace: str
    name: str
    status: str
    mode: str
    serves: str  # profile, model or image
    base: BaseView | None
    adapters: tuple[AdapterView, ...]
    ceiling: int | None
    ceiling_origin: str
    ceiling_asked: int | None  # requested, not in effect yet
    with_adapters: bool
    replicas: str
    ready: int | None
    claim: str  # of its adapter disk, "" for none
    own_bytes: int
    notes: tuple[Note, ...]  # what its conditions report as missing or wrong
    paused: bool
    leaving: bool
    created: datetime | None


@record
class EventView:
    """One event of aim-adapters."""

    at: datetime | None
    bad: bool
    kind: str
    namespace: str
    name: str
    reason: str
    message: str
    count: int


class Refused(Protocol):
    """What admission keeps of a refusal; `at` in seconds since the epoch.

    `errors` are the first of `count`; `reasons` has the reason of each.
    """

    @property
    def at(self) -> float: ...
    @property
    def kind(self) -> str: ...
    @property
    def namespace(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def operation(self) -> str: ...
    @property
    def errors(self) -> tuple[str, ...]: ...
    @property
    def reasons(self) -> tuple[str, ...]: ...
    @property
    def count(self) -> int: ...


@record
class RefusalView:
    """One refusal."""

    at: datetime
    kind: str
    namespace: str
    name: str
    operation: str
    errors: tuple[Note, ...]
    more: int


def _word(value: object, default: str = "") -> str:
    return harmless(value, LONGEST_NAME) if isinstance(value, str) and value else default


def brief(service: Json) -> Brief:
    """Return what is kept of a service."""
    entries = view.items(service, "status", "adapters")
    declared = [ref.name for ref in view.adapter_refs(service)]
    known = {name: entry for entry in entries if (name := view.text(entry, "name"))}
    states = [_word(view.dig(known.get(name), "state"), "Pending") for name in dict.fromkeys(declared)]
    states += [_word(view.dig(entry, "state"), "Pending") for name, entry in known.items() if name not in declared]
    status = _word(view.dig(service, "status", "status"), "Pending")
    own = f"{view.namespace_of(service)}/{view.name_of(service)}"
    words = (own, _serves(service), view.text(service, "status", "resolvedProfile", "name") or "", *known, *declared)
    return Brief(
        status=status,
        adapters=tuple(states),
        trouble=status in BAD_STATES or any(state in BAD_STATES for state in states),
        staging=any(state in STAGING for state in states),
        haystack=" ".join(dict.fromkeys(words)).lower(),
        claim=view.text(service, "status", "adapterDiskPersistentVolumeClaim") or "",
        contents=tuple(
            (view.text(entry, "digest") or f"{own}/{name}", size)
            for name, entry in known.items()
            if (size := view.integer(entry, "sizeBytes"))
        ),
    )


def used_bytes(briefs: Sequence[Brief]) -> int:
    """Return the bytes on a disk that these services share, each content once."""
    contents: dict[str, int] = {}
    for one in briefs:
        contents.update(one.contents)
    return sum(contents.values())


def service_view(service: Json, world: World) -> ServiceView:
    """Return a service as it is shown. What other services use on its disk is not part of it."""
    seen = see_service(service, world)
    with_adapters = view.uses_adapters(service)
    ceiling = seen.ceiling if with_adapters else None
    base = seen.base.artifact if seen.base.known else None
    return ServiceView(
        namespace=_word(view.namespace_of(service)),
        name=_word(view.name_of(service)),
        status=_word(view.dig(service, "status", "status"), "Pending"),
        mode=view.adapter_mode(service),
        serves=_serves(service),
        base=_base(base) if base is not None else None,
        adapters=_adapters(service, world),
        ceiling=_reported_or(service, ceiling),
        ceiling_origin=_word(ceiling.origin) if ceiling is not None else "",
        ceiling_asked=_asked(service, ceiling),
        with_adapters=with_adapters,
        replicas=_word(view.dig(service, "status", "runtime", "replicas")),
        ready=_ready(service),
        claim=_word(view.dig(service, "status", "adapterDiskPersistentVolumeClaim")),
        own_bytes=sum(size for _, size in dict(brief(service).contents).items()),
        notes=_notes(service),
        paused=view.paused(service),
        leaving=view.terminating(service),
        created=parse_time(view.dig(service, "metadata", "creationTimestamp")),
    )


def _serves(service: Json) -> str:
    found = view.profile_name(service)
    for path in (("spec", "model", "name"), ("spec", "model", "image"), ("spec", "template", "name")):
        found = found or view.text(service, *path)
    return _word(found)


def _reported_or(service: Json, ceiling: CeilingDecision | None) -> int | None:
    if ceiling is None:
        return None
    return ceiling.value if ceiling.value is not None else view.integer(service, "status", "adapterMaxRank")


def _asked(service: Json, ceiling: CeilingDecision | None) -> int | None:
    """Return the requested ceiling where it is not in effect: it is not resolved yet, or invalid."""
    if ceiling is None or not (ceiling.deferred or ceiling.invalid_because):
        return None
    return ceiling.asked.value if isinstance(ceiling.asked.value, int) else None


def _ready(service: Json) -> int | None:
    """Return the ready replicas: the first number of `1/2`."""
    number = (view.text(service, "status", "runtime", "replicas") or "").partition("/")[0]
    return int(number) if number.isdigit() and len(number) < 7 else None


def _base(artifact: Json) -> BaseView:
    return BaseView(
        name=_word(view.name_of(artifact)),
        model_id=_word(view.model_id(artifact)),
        status=_word(view.dig(artifact, "status", "status"), "Pending"),
        percentage=_percent(view.integer(artifact, "status", "progress", "percentage")),
    )


def _percent(value: int | None) -> int | None:
    return None if value is None else max(0, min(100, value))


def _adapters(service: Json, world: World) -> tuple[AdapterView, ...]:
    """Return the declared adapters in the user's order, then those that are being removed."""
    known = {
        name: view.mapping(entry)
        for entry in view.items(service, "status", "adapters")
        if (name := view.text(entry, "name"))
    }
    declared = list(dict.fromkeys(ref.name for ref in view.adapter_refs(service)))
    shown = [_adapter(service, world, name, known.get(name, {}), leaving=False) for name in declared]
    shown += [
        _adapter(service, world, name, entry, leaving=True) for name, entry in known.items() if name not in declared
    ]
    return tuple(shown)


def _adapter(service: Json, world: World, name: str, entry: Json, *, leaving: bool) -> AdapterView:
    artifact = world.get(AIM_ARTIFACT, view.namespace_of(service), name)
    progress = view.mapping(entry, "progress")
    return AdapterView(
        name=_word(name),
        state=_word(entry.get("state"), "Pending"),
        leaving=leaving,
        rank=view.integer(entry, "rank"),
        declared=view.declared_rank(artifact) if artifact is not None else None,
        size=view.integer(entry, "sizeBytes"),
        percentage=_percent(view.integer(progress, "percentage")),
        total=view.integer(progress, "totalBytes") or None,
        loaded=view.integer(entry, "loadedReplicas"),
        error=harmless(entry.get("lastError") or ""),
        attempts=view.integer(entry, "attempts"),
        next_try=parse_time(entry.get("nextRetryTime")),
        warnings=tuple(
            Note(_word(view.dig(note, "reason")), harmless(view.dig(note, "message") or ""))
            for note in view.items(entry, "warnings")
        )[:MOST_ERRORS],
        since=parse_time(entry.get("lastObserved")),
    )


_SHOWN = ("ConfigValid", "CacheReady", "Adapters", "InferenceServiceReady")
_ECHO = Reason.GATED  # only repeats that an earlier condition is not True


def _notes(service: Json) -> tuple[Note, ...]:
    """Return what the conditions report as missing or wrong, in the order of their dependencies."""
    entries = [view.condition(service, kind) for kind in _SHOWN]
    return tuple(
        Note(_word(entry.get("reason")), harmless(entry.get("message") or ""))
        for entry in entries
        if entry.get("status") == "False" and entry.get("reason") != _ECHO
    )


def disk_view(namespace: str, claim: str, used: int, services: int, pvc: Json | None) -> DiskView:
    """Return an adapter disk. Args: `services` counts those on it; `pvc` is the claim, None when it is not known."""
    capacity = parse_quantity(view.text(pvc, "status", "capacity", "storage"))
    return DiskView(
        namespace=namespace,
        claim=_word(claim),
        used=used,
        services=services,
        capacity=None if capacity is None else int(capacity),
        phase=_word(view.dig(pvc, "status", "phase")),
    )


def event_view(event: Json) -> EventView:
    """Return an event as it is shown."""
    about = view.mapping(event, "involvedObject")
    stamps = (event.get("lastTimestamp"), event.get("eventTime"), view.dig(event, "metadata", "creationTimestamp"))
    return EventView(
        at=next((moment for value in stamps if (moment := parse_time(value)) is not None), None),
        bad=event.get("type") == "Warning",
        kind=_word(about.get("kind")),
        namespace=_word(about.get("namespace")),
        name=_word(about.get("name")),
        reason=_word(event.get("reason")),
        message=harmless(event.get("message") or ""),
        count=view.integer(event, "count") or 1,
    )


def refusal_view(refusal: Refused) -> RefusalView:
    """Return a refusal as it is shown."""
    return RefusalView(
        at=datetime.fromtimestamp(refusal.at, UTC),
        kind=_word(refusal.kind),
        namespace=_word(refusal.namespace),
        name=_word(refusal.name),
        operation=_word(refusal.operation),
        errors=tuple(
            Note(_word(reason), harmless(error))
            for error, reason in zip_longest(refusal.errors[:MOST_ERRORS], refusal.reasons[:MOST_ERRORS], fillvalue="")
        ),
        more=max(0, refusal.count - MOST_ERRORS),
    )
