"""The world as far as it is known: what every rule looks at beside the object itself."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from api.kinds import Kind
from api.view import Json, name_of, namespace_of


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


def by_age(artifacts: Iterable[Json]) -> list[Json]:
    """Sort objects oldest first, then by namespace and name, so that a choice among equals is stable."""
    return sorted(
        artifacts,
        key=lambda obj: (
            str(obj.get("metadata", {}).get("creationTimestamp") or "9999"),
            namespace_of(obj),
            name_of(obj),
        ),
    )
