"""References to other objects: found, missing, or unknown because a place could not be read."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import Enum
from typing import Literal, NamedTuple

from api import view
from api.kinds import AIM_ARTIFACT, Kind
from api.record import record
from api.view import Json
from rules.world import World


class Ref(NamedTuple):
    """The address of an object that a conclusion depends on, whether it exists or not."""

    kind: Kind
    namespace: str | None  # None: a cluster kind
    name: str


@record
class Resolved:
    """A reference that leads to an object."""

    kind: Kind
    obj: Json
    tried: Sequence[Kind] = ()  # in order, up to `kind`
    place: str = ""  # the namespace that was looked in

    @property
    def looked_at(self) -> tuple[Ref, ...]:
        """Every address that the reference could have led to first, and the one that it leads to."""
        return _refs(self.tried[: self.tried.index(self.kind) + 1] if self.tried else (), self.place, self.name)

    @property
    def name(self) -> str:
        """The object's name."""
        return view.name_of(self.obj)

    @property
    def scope(self) -> Literal["Namespace", "Cluster"]:
        """Where it was found, in the words of the status fields."""
        return "Namespace" if self.kind.namespaced else "Cluster"


@record
class Missing:
    """A reference to an object that does not exist: every place where it could be was read."""

    name: str
    kinds: Sequence[Kind] = ()
    place: str = ""  # the namespace that was looked in

    @property
    def looked_at(self) -> tuple[Ref, ...]:
        """Every address that it could have led to."""
        return _refs(self.kinds, self.place, self.name)


@record
class Unknown:
    """A reference about which nothing is known: a place where the object could be was not readable."""

    name: str
    kinds: Sequence[Kind] = ()  # in order, up to the one that was not readable
    place: str = ""  # the namespace that was looked in

    @property
    def looked_at(self) -> tuple[Ref, ...]:
        """Every address that it could have led to, as far as was looked."""
        return _refs(self.kinds, self.place, self.name)


def _refs(kinds: Iterable[Kind], namespace: str, name: str) -> tuple[Ref, ...]:
    return tuple(Ref(kind, namespace if kind.namespaced else None, name) for kind in kinds)


Reference = Resolved | Missing | Unknown


class Unreadable(Enum):
    """The state of an object that could not be read (absence would mean nothing)."""

    UNREADABLE = "unreadable"


UNREADABLE = Unreadable.UNREADABLE
ArtifactState = Json | None | Unreadable  # None: it does not exist


def lookup(world: World, kinds: Sequence[Kind], namespace: str, name: str) -> Reference:
    """Return the first object of that name: kinds in order, namespaced ones in `namespace`.

    An object of a later kind is not returned while an earlier kind could not be read, because that one might win. An
    object of which parts were left out is not readable either.
    """
    for kind in kinds:
        obj = world.get(kind, namespace if kind.namespaced else None, name)
        if obj is not None and view.left_out(obj) is not None:
            return Unknown(name, kinds[: kinds.index(kind) + 1], namespace)
        if obj is not None:
            return Resolved(kind, obj, kinds, namespace)
        if not world.knows(kind):
            return Unknown(name, kinds[: kinds.index(kind) + 1], namespace)
    return Missing(name, kinds, namespace)


def artifact_state(world: World, namespace: str, name: str) -> ArtifactState:
    """Return an artifact as far as it is known."""
    artifact = world.get(AIM_ARTIFACT, namespace, name)
    if view.left_out(artifact) is not None or (artifact is None and not world.knows(AIM_ARTIFACT)):
        return UNREADABLE
    return artifact
