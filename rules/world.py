"""The objects around the one that is judged: the protocol through which every rule reads them, and its indexes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import StrEnum, auto
from typing import Protocol

from api import view
from api.kinds import (
    AIM_ARTIFACT,
    AIM_CLUSTER_MODEL,
    AIM_CLUSTER_SERVICE_TEMPLATE,
    AIM_KINDS,
    AIM_MODEL,
    AIM_SERVICE,
    AIM_SERVICE_TEMPLATE,
    Kind,
)
from api.view import Json


class Index(StrEnum):
    """A way from a word to the objects that refer to it. Members are strings, because a string's hash is cached."""

    ARTIFACTS_BY_SOURCE = auto()  # source URI → model artifacts with exactly this source
    SERVICES_BY_ARTIFACT = auto()  # name of an adapter artifact → services that declare it
    SERVICES_BY_BASE = auto()  # name of a model artifact → services whose base it is
    SERVICES_BY_PROFILE = auto()  # name of a profile → services that name it
    SERVICES_BY_RUNTIME_CONFIG = auto()  # name of a RuntimeConfig → services that use it
    SERVICES_BY_MODEL = auto()  # name of a model → services that name it
    TEMPLATES_BY_MODEL = auto()  # name of a model → its service templates
    MODELS_BY_IMAGE = auto()  # image → models with exactly this image


class World(Protocol):
    """Objects by kind and name. Implemented by informer caches, by files (lint) and by `SnapshotWorld`."""

    def get(self, kind: Kind, namespace: str | None, name: str) -> Json | None:
        """Return the object, or None. `namespace` is ignored for cluster kinds."""
        ...

    def knows(self, kind: Kind) -> bool:
        """Return whether all objects of this kind are known.

        False when the kind could not be read (no permission, not synced). An object's absence then means nothing, and
        no rule concludes from it.
        """
        ...

    def find(self, index: Index, namespace: str | None, word: str) -> Sequence[Json]:
        """Return the objects that an index lists under a word.

        Args: `namespace` None: those of all namespaces (services only).
        Returns: of kinds that exist in both scopes, the namespace's objects come before the cluster's of other names.
        Artifacts, templates and models are sorted oldest first.
        """
        ...


INDEXED_KINDS: Mapping[Index, tuple[Kind, ...]] = {
    Index.ARTIFACTS_BY_SOURCE: (AIM_ARTIFACT,),
    Index.SERVICES_BY_ARTIFACT: (AIM_SERVICE,),
    Index.SERVICES_BY_BASE: (AIM_SERVICE,),
    Index.SERVICES_BY_PROFILE: (AIM_SERVICE,),
    Index.SERVICES_BY_RUNTIME_CONFIG: (AIM_SERVICE,),
    Index.SERVICES_BY_MODEL: (AIM_SERVICE,),
    Index.TEMPLATES_BY_MODEL: (AIM_SERVICE_TEMPLATE, AIM_CLUSTER_SERVICE_TEMPLATE),
    Index.MODELS_BY_IMAGE: (AIM_MODEL, AIM_CLUSTER_MODEL),
}
"""The kinds that an index finds, the namespaced one first."""

Words = Callable[[Json], Iterable[str]]


def _at(*path: str) -> Words:
    return lambda obj: filter(None, (view.text(obj, *path),))


INDEX_WORDS: Mapping[Index, Words] = {
    Index.ARTIFACTS_BY_SOURCE: lambda obj: () if view.is_adapter(obj) else filter(None, (view.source_uri(obj),)),
    Index.SERVICES_BY_ARTIFACT: lambda obj: {ref.name: None for ref in view.adapter_refs(obj)},
    Index.SERVICES_BY_PROFILE: lambda obj: filter(None, (view.profile_name(obj),)),
    Index.SERVICES_BY_RUNTIME_CONFIG: lambda obj: (view.runtime_config_name(obj),),
    Index.SERVICES_BY_MODEL: _at("spec", "model", "name"),
    Index.TEMPLATES_BY_MODEL: _at("spec", "modelName"),
    Index.MODELS_BY_IMAGE: _at("spec", "image"),
}
"""The words of an object in each index. SERVICES_BY_BASE has none: a service's base follows from other objects."""


def own_before_shared(own: Iterable[Json], shared: Iterable[Json]) -> list[Json]:
    """Return a namespace's objects, then the cluster's of other names."""
    first = list(own)
    names = {view.name_of(obj) for obj in first}
    return [*first, *(obj for obj in shared if view.name_of(obj) not in names)]


def by_age(objects: Iterable[Json]) -> list[Json]:
    """Sort objects oldest first, then by namespace and name, so that a choice among equals is stable."""
    found = objects if isinstance(objects, list) else list(objects)
    if len(found) < 2:
        return found
    return sorted(
        found,
        key=lambda obj: (
            view.text(obj, "metadata", "creationTimestamp") or "9999",
            view.namespace_of(obj),
            view.name_of(obj),
        ),
    )


KIND_BY_NAME: Mapping[str, Kind] = {kind.kind: kind for kind in AIM_KINDS}
Address = tuple[str, str, str]  # kind's name, namespace (empty: cluster), name


def address(kind: Kind, namespace: str | None, name: str) -> Address:
    """Return the key of an object in each `World`."""
    return (kind.kind, (namespace or "") if kind.namespaced else "", name)
