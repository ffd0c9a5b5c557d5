"""The world as far as it is known: what every rule looks at beside the object itself."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from api import view
from api.kinds import (
    AIM_KINDS,
    Kind,
)
from api.view import Json


class World(Protocol):
    """Objects by kind and name. Implemented by informer caches, by files (lint) and by `SnapshotWorld`.

    `knows(kind)` tells whether absence means anything: False when that kind could not be read (no permission, not
    synced), and then no rule concludes from an object's absence.
    """

    def get(self, kind: Kind, namespace: str | None, name: str) -> Json | None:
        """Return the object, or None. `namespace` is ignored for cluster kinds."""
        ...

    def knows(self, kind: Kind) -> bool:
        """Return whether all objects of this kind are known."""
        ...

    def artifacts_by_source(self, namespace: str, source_uri: str) -> Sequence[Json]:
        """Return the *model* artifacts of a namespace with exactly this source, oldest first."""
        ...

    def services_by_artifact(self, namespace: str, artifact: str) -> Sequence[Json]:
        """Return the AIMServices of a namespace that declare this artifact as an adapter."""
        ...

    def services_by_base(self, namespace: str, base: str) -> Sequence[Json]:
        """Return the AIMServices of a namespace whose base is this model artifact."""
        ...

    def services_by_profile(self, namespace: str | None, profile: str) -> Sequence[Json]:
        """Return the AIMServices (of a namespace, or of all: None) that name this profile."""
        ...

    def services_by_runtime_config(self, namespace: str | None, name: str) -> Sequence[Json]:
        """Return the AIMServices (of a namespace, or of all: None) that use the RuntimeConfig of this name."""
        ...

    def services_by_model(self, namespace: str | None, model: str) -> Sequence[Json]:
        """Return the AIMServices (of a namespace, or of all: None) that name this model."""
        ...

    def templates_by_model(self, namespace: str, model: str) -> Sequence[Json]:
        """Return the service templates of a model: the namespace's, then the cluster's of other names; oldest first."""
        ...

    def models_by_image(self, namespace: str, image: str) -> Sequence[Json]:
        """Return the models with exactly this image: the namespace's, then the cluster's; oldest first."""
        ...


def by_age(artifacts: Iterable[Json]) -> list[Json]:
    """Sort objects oldest first, then by namespace and name, so that a choice among equals is stable."""
    found = artifacts if isinstance(artifacts, list) else list(artifacts)
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
    """Return the key under which worlds hold an object."""
    return (kind.kind, (namespace or "") if kind.namespaced else "", name)
