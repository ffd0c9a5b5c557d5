"""Objects read from a cluster on demand: only those that the rules look up. `DemandWorld` is pure, the rest its shell.

The rules run over the known objects. Objects that they look up and that are not known are read, and the rules run
again, until they look up nothing new. So nothing here repeats which field refers to which object.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from api import view
from api.kinds import (
    Kind,
)
from api.view import Json
from rules.world import INDEXED_KINDS, KIND_BY_NAME, Address, Index, World, address
from rules.worlds import SnapshotWorld

if TYPE_CHECKING:
    from kube.client import Client

MOST_ROUNDS = 12
_AT_ONCE = 8


@dataclass(slots=True)
class Known:
    """What was read so far. A `given` object (from a file) hides the cluster's object of the same address.

    `absent`: addresses that were read and do not exist; `listed`: (kind, namespace or empty) read completely;
    `unreadable`: kinds that this user is not allowed to read, so a missing object may exist.
    """

    given: dict[Address, Json] = field(default_factory=dict)
    read: dict[Address, Json] = field(default_factory=dict)
    absent: set[Address] = field(default_factory=set)
    listed: set[tuple[str, str]] = field(default_factory=set)
    unreadable: set[str] = field(default_factory=set)

    @classmethod
    def start(cls, given: Iterable[Json] = ()) -> Known:
        """Begin with given objects."""
        known = cls()
        for obj in given:
            if (key := address_of(obj)) is not None:
                known.given[key] = obj
        return known

    @property
    def objects(self) -> list[Json]:
        """All known objects; a given one hides the cluster's."""
        return list((self.read | self.given).values())

    def take(self, objects: Iterable[Json]) -> None:
        """Remember objects that were read."""
        for obj in objects:
            if (key := address_of(obj)) is not None:
                self.read[key] = obj

    def settled(self, key: Address) -> bool:
        """Whether an address was read, or need not be."""
        kind, namespace, _ = key
        return (
            key in self.given
            or key in self.read
            or key in self.absent
            or kind in self.unreadable
            or bool({(kind, namespace), (kind, "")} & self.listed)
        )

    def covered(self, listing: tuple[str, str]) -> bool:
        """Whether a kind was read completely for a namespace (empty: all)."""
        kind, _ = listing
        return kind in self.unreadable or listing in self.listed or (kind, "") in self.listed


def address_of(obj: Json) -> Address | None:
    """Return the address of an AIM object, None for another kind."""
    kind = KIND_BY_NAME.get(view.text(obj, "kind") or "")
    return address(kind, view.namespace_of(obj), view.name_of(obj)) if kind is not None else None


class DemandWorld(SnapshotWorld):
    """What is known, as a World that notes the look-ups that it cannot answer."""

    def __init__(self, known: Known) -> None:
        """Use what is known now; after further reads a new World is needed."""
        unreadable = [KIND_BY_NAME[name] for name in known.unreadable if name in KIND_BY_NAME]
        super().__init__(known.objects, unknown=unreadable)
        self._known = known
        self.wanted: set[Address] = set()
        self.wanted_lists: set[tuple[str, str]] = set()

    def get(self, kind: Kind, namespace: str | None, name: str) -> Json | None:
        """Return the object, or None; an address that was never read is noted."""
        key = address(kind, namespace, name)
        if name and not self._known.settled(key):
            self.wanted.add(key)
        return super().get(kind, namespace, name)

    def _want(self, kind: Kind, namespace: str | None) -> None:
        listing = (kind.kind, (namespace or "") if kind.namespaced else "")
        if not self._known.covered(listing):
            self.wanted_lists.add(listing)

    def find(self, index: Index, namespace: str | None, word: str) -> Sequence[Json]:
        """Return what is known; every kind that the index finds is noted as a whole."""
        for kind in INDEXED_KINDS[index]:
            self._want(kind, namespace)
        return super().find(index, namespace, word)


async def complete(client: Client, known: Known, ask: Callable[[World], object]) -> DemandWorld:
    """Read from the cluster until `ask` looks up nothing unknown; return the World of all that is known.

    Raises: the errors of `kube.errors`, except for a kind that this user is not allowed to read (it counts as unknown).
    """
    world = DemandWorld(known)
    for _ in range(MOST_ROUNDS):
        ask(world)
        if not world.wanted and not world.wanted_lists:
            return world
        await _read(client, known, world)
        world = DemandWorld(known)
    return world


async def _read(client: Client, known: Known, world: DemandWorld) -> None:
    gate = asyncio.Semaphore(_AT_ONCE)

    async def one(key: Address) -> None:
        async with gate:
            await read_object(client, known, key)

    async def every(listing: tuple[str, str]) -> None:
        async with gate:
            await read_list(client, known, listing)

    async with asyncio.TaskGroup() as group:
        for listing in sorted(world.wanted_lists):
            group.create_task(every(listing))
        for key in sorted(world.wanted):
            if (key[0], key[1]) not in world.wanted_lists:
                group.create_task(one(key))


async def read_object(client: Client, known: Known, key: Address) -> None:
    """Read one AIM object into what is known."""
    from kube.errors import Forbidden

    kind_name, namespace, name = key
    try:
        obj = await client.find(KIND_BY_NAME[kind_name], namespace or None, name)
    except Forbidden:
        known.unreadable.add(kind_name)
        return
    if obj is None:
        known.absent.add(key)
    else:
        known.take([obj])


async def read_list(client: Client, known: Known, listing: tuple[str, str]) -> None:
    """Read all objects of a kind (of a namespace) into what is known."""
    from kube.errors import Forbidden, NotFound

    kind_name, namespace = listing
    try:
        found, _ = await client.list_all(KIND_BY_NAME[kind_name], namespace or None)
    except Forbidden:
        known.unreadable.add(kind_name)
        return
    except NotFound:
        found = []
    known.take(found)
    known.listed.add(listing)
