"""Implementations of `World`: given objects, and another one with some objects replaced. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from api import view
from api.kinds import AIM_ARTIFACT, AIM_SERVICE, Kind
from api.view import Json
from rules.base import resolve_base
from rules.world import (
    INDEX_WORDS,
    INDEXED_KINDS,
    KIND_BY_NAME,
    Address,
    Index,
    World,
    address,
    by_age,
    own_before_shared,
)

_Listed = dict[tuple[str | None, str], list[Json]]  # (namespace, word); namespace None: all, "": the cluster's


class SnapshotWorld:
    """Given objects. Later objects replace earlier ones of the same address.

    `unknown` are the kinds of which absence means nothing.
    """

    def __init__(self, objects: Iterable[Json] = (), *, unknown: Iterable[Kind] = ()) -> None:
        """Take the objects; those of other kinds than aim-adapters' are left out."""
        self._unknown = frozenset(kind.kind for kind in unknown)
        self._objects: dict[Address, Json] = {}
        self._indexes: dict[Index, _Listed] = {}  # each made at the first question
        for obj in objects:
            kind = KIND_BY_NAME.get(view.text(obj, "kind") or "")
            if kind is not None:
                self._objects[address(kind, view.namespace_of(obj), view.name_of(obj))] = obj

    def get(self, kind: Kind, namespace: str | None, name: str) -> Json | None:
        """Return the object, or None."""
        return self._objects.get(address(kind, namespace, name))

    def knows(self, kind: Kind) -> bool:
        """Return whether absence of this kind means anything."""
        return kind.kind not in self._unknown

    def find(self, index: Index, namespace: str | None, word: str) -> Sequence[Json]:
        """Return the objects that an index lists under a word, oldest first."""
        if index is Index.SERVICES_BY_BASE:  # not indexed: it would resolve the services of all other namespaces, too
            services = self.objects(AIM_SERVICE, namespace)
            return [service for service in services if resolve_base(self, service).name == word]
        listed = self._indexes.get(index)
        if listed is None:
            listed = self._indexes[index] = self._made(index)
        own = listed.get((namespace, word), [])
        if namespace is None or len(INDEXED_KINDS[index]) == 1:
            return own
        return own_before_shared(own, listed.get(("", word), ()))

    def objects(self, kind: Kind, namespace: str | None = None) -> list[Json]:
        """Return all objects of a kind, of one namespace or of all, oldest first."""
        return by_age(
            obj
            for (kind_name, place, _), obj in self._objects.items()
            if kind_name == kind.kind and (namespace is None or place == namespace)
        )

    def _made(self, index: Index) -> _Listed:
        listed: _Listed = {}
        for kind in INDEXED_KINDS[index]:
            for obj in self.objects(kind):
                for word in INDEX_WORDS[index](obj):
                    for namespace in (view.namespace_of(obj), None):
                        listed.setdefault((namespace, word), []).append(obj)
        return listed


class OverlayWorld:
    """Another `World` with some objects replaced (or, with None, removed): a live read, or an edit that is checked."""

    def __init__(self, under: World, replaced: Mapping[Address, Json | None]) -> None:
        """Lay the replaced objects over another `World`; neither is changed."""
        self._under = under
        self._replaced = replaced

    def get(self, kind: Kind, namespace: str | None, name: str) -> Json | None:
        """Return the replaced object, otherwise the one below."""
        key = address(kind, namespace, name)
        return self._replaced[key] if key in self._replaced else self._under.get(kind, namespace, name)

    def knows(self, kind: Kind) -> bool:
        """Return whether the kind is known below."""
        return self._under.knows(kind)

    def find(self, index: Index, namespace: str | None, word: str) -> Sequence[Json]:
        """Return what is listed below; model artifacts of a source follow the replaced objects."""
        found = self._under.find(index, namespace, word)
        if index is not Index.ARTIFACTS_BY_SOURCE:
            return found
        words = INDEX_WORDS[index]
        kept = [obj for obj in found if address(AIM_ARTIFACT, namespace, view.name_of(obj)) not in self._replaced]
        fresh = [
            obj
            for (kind, place, _), obj in self._replaced.items()
            if kind == AIM_ARTIFACT.kind and place == namespace and obj is not None and word in words(obj)
        ]
        return by_age([*kept, *fresh]) if fresh else kept
