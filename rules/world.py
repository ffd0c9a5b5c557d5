"""The world as far as it is known: what every rule looks at beside the object itself."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Protocol

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
from api.view import (
    Json,
    adapter_refs,
    is_adapter,
    name_of,
    namespace_of,
    profile_name,
    runtime_config_name,
    source_uri,
    text,
)


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
            text(obj, "metadata", "creationTimestamp") or "9999",
            namespace_of(obj),
            name_of(obj),
        ),
    )


KIND_BY_NAME: Mapping[str, Kind] = {kind.kind: kind for kind in AIM_KINDS}
Address = tuple[str, str, str]  # kind's name, namespace (empty: cluster), name


def address(kind: Kind, namespace: str | None, name: str) -> Address:
    """Return the key under which worlds hold an object."""
    return (kind.kind, (namespace or "") if kind.namespaced else "", name)


class SnapshotWorld:
    """A world made of given objects, indexed once. Later objects replace earlier ones of the same address.

    `unknown` are the kinds of which absence means nothing.
    """

    def __init__(self, objects: Iterable[Json] = (), *, unknown: Iterable[Kind] = ()) -> None:
        """Index the objects; those without a kind of ours are left out."""
        self._unknown = frozenset(kind.kind for kind in unknown)
        self._objects: dict[Address, Json] = {}
        for obj in objects:
            kind = KIND_BY_NAME.get(text(obj, "kind") or "")
            if kind is not None:
                self._objects[address(kind, namespace_of(obj), name_of(obj))] = obj

    def get(self, kind: Kind, namespace: str | None, name: str) -> Json | None:
        """Return the object, or None."""
        return self._objects.get(address(kind, namespace, name))

    def knows(self, kind: Kind) -> bool:
        """Return whether absence of this kind means anything."""
        return kind.kind not in self._unknown

    def objects(self, kind: Kind, namespace: str | None = None) -> list[Json]:
        """Return all objects of a kind, of one namespace or of all, oldest first."""
        return by_age(
            obj
            for (kind_name, place, _), obj in self._objects.items()
            if kind_name == kind.kind and (namespace is None or place == namespace)
        )

    def artifacts_by_source(self, namespace: str, source_uri: str) -> Sequence[Json]:
        """Return the model artifacts of a namespace with exactly this source, oldest first."""
        return [obj for obj in self.objects(AIM_ARTIFACT, namespace) if _is_base(obj, source_uri)]

    def services_by_artifact(self, namespace: str, artifact: str) -> Sequence[Json]:
        """Return the services that declare this adapter."""
        return self._declaring.get((namespace, artifact), [])

    @cached_property
    def _declaring(self) -> Mapping[tuple[str, str], list[Json]]:
        """(namespace, adapter) → services that declare it, oldest first: asked for each artifact of a folder."""
        found: dict[tuple[str, str], list[Json]] = {}
        for service in self.objects(AIM_SERVICE):
            for name in {ref.name for ref in adapter_refs(service)}:
                found.setdefault((namespace_of(service), name), []).append(service)
        return found

    def services_by_base(self, namespace: str, base: str) -> Sequence[Json]:
        """Return the services whose base is this artifact."""
        from rules.resolve import resolve_base  # noqa: PLC0415 - resolution reads worlds, so it comes after this page

        return self._services(namespace, lambda service: resolve_base(self, service).name == base)

    def services_by_profile(self, namespace: str | None, profile: str) -> Sequence[Json]:
        """Return the services that name this profile."""
        return self._services(namespace, lambda service: profile_name(service) == profile)

    def services_by_runtime_config(self, namespace: str | None, name: str) -> Sequence[Json]:
        """Return the services that use the RuntimeConfig of this name."""
        return self._services(namespace, lambda service: runtime_config_name(service) == name)

    def services_by_model(self, namespace: str | None, model: str) -> Sequence[Json]:
        """Return the services that name this model."""
        return self._services(namespace, lambda service: text(service, "spec", "model", "name") == model)

    def templates_by_model(self, namespace: str, model: str) -> Sequence[Json]:
        """Return a model's templates: the namespace's, then the cluster's of other names."""
        own, shared = self._two_scopes(AIM_SERVICE_TEMPLATE, AIM_CLUSTER_SERVICE_TEMPLATE, namespace)
        names = {name_of(obj) for obj in own}
        return [
            obj
            for obj in (*own, *(obj for obj in shared if name_of(obj) not in names))
            if text(obj, "spec", "modelName") == model
        ]

    def models_by_image(self, namespace: str, image: str) -> Sequence[Json]:
        """Return the models with exactly this image."""
        own, shared = self._two_scopes(AIM_MODEL, AIM_CLUSTER_MODEL, namespace)
        return [obj for obj in (*own, *shared) if text(obj, "spec", "image") == image]

    def _two_scopes(self, own: Kind, shared: Kind, namespace: str) -> tuple[list[Json], list[Json]]:
        return self.objects(own, namespace), self.objects(shared)

    def _services(self, namespace: str | None, fits: Callable[[Json], bool]) -> list[Json]:
        return [obj for obj in self.objects(AIM_SERVICE, namespace) if fits(obj)]


class OverlayWorld:
    """Another world with some objects replaced (or, with None, taken away): a live read, or an edit being judged."""

    def __init__(self, under: World, replaced: Mapping[Address, Json | None]) -> None:
        """Lay the replaced objects over a world; neither is changed."""
        self._under = under
        self._replaced = replaced

    def get(self, kind: Kind, namespace: str | None, name: str) -> Json | None:
        """Return the replaced object, else the other world's."""
        key = address(kind, namespace, name)
        return self._replaced[key] if key in self._replaced else self._under.get(kind, namespace, name)

    def knows(self, kind: Kind) -> bool:
        """Return what the other world says."""
        return self._under.knows(kind)

    def artifacts_by_source(self, namespace: str, source_uri: str) -> Sequence[Json]:
        """Return the model artifacts of a source, replaced ones judged by their new self."""
        found = [
            obj
            for obj in self._under.artifacts_by_source(namespace, source_uri)
            if address(AIM_ARTIFACT, namespace, name_of(obj)) not in self._replaced
        ]
        fresh = [
            obj
            for (kind, place, _), obj in self._replaced.items()
            if kind == AIM_ARTIFACT.kind and place == namespace and obj is not None and _is_base(obj, source_uri)
        ]
        return by_age([*found, *fresh]) if fresh else found

    def services_by_artifact(self, namespace: str, artifact: str) -> Sequence[Json]:
        """Return what the other world says."""
        return self._under.services_by_artifact(namespace, artifact)

    def services_by_base(self, namespace: str, base: str) -> Sequence[Json]:
        """Return what the other world says."""
        return self._under.services_by_base(namespace, base)

    def services_by_profile(self, namespace: str | None, profile: str) -> Sequence[Json]:
        """Return what the other world says."""
        return self._under.services_by_profile(namespace, profile)

    def services_by_runtime_config(self, namespace: str | None, name: str) -> Sequence[Json]:
        """Return what the other world says."""
        return self._under.services_by_runtime_config(namespace, name)

    def services_by_model(self, namespace: str | None, model: str) -> Sequence[Json]:
        """Return what the other world says."""
        return self._under.services_by_model(namespace, model)

    def templates_by_model(self, namespace: str, model: str) -> Sequence[Json]:
        """Return what the other world says."""
        return self._under.templates_by_model(namespace, model)

    def models_by_image(self, namespace: str, image: str) -> Sequence[Json]:
        """Return what the other world says."""
        return self._under.models_by_image(namespace, image)


def _is_base(artifact: Json, uri: str) -> bool:
    return not is_adapter(artifact) and source_uri(artifact) == uri
