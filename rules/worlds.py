"""Worlds made of given objects, and worlds with some objects replaced. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property

from api import view
from api.kinds import (
    AIM_ARTIFACT,
    AIM_CLUSTER_MODEL,
    AIM_CLUSTER_SERVICE_TEMPLATE,
    AIM_MODEL,
    AIM_SERVICE,
    AIM_SERVICE_TEMPLATE,
    Kind,
)
from api.view import Json
from rules.resolve import resolve_base
from rules.world import KIND_BY_NAME, Address, World, address, by_age


class SnapshotWorld:
    """A world made of given objects, indexed once. Later objects replace earlier ones of the same address.

    `unknown` are the kinds of which absence means nothing.
    """

    def __init__(self, objects: Iterable[Json] = (), *, unknown: Iterable[Kind] = ()) -> None:
        """Index the objects; those without a kind of ours are left out."""
        self._unknown = frozenset(kind.kind for kind in unknown)
        self._objects: dict[Address, Json] = {}
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
            for name in {ref.name for ref in view.adapter_refs(service)}:
                found.setdefault((view.namespace_of(service), name), []).append(service)
        return found

    def services_by_base(self, namespace: str, base: str) -> Sequence[Json]:
        """Return the services whose base is this artifact."""
        return self._services(namespace, lambda service: resolve_base(self, service).name == base)

    def services_by_profile(self, namespace: str | None, profile: str) -> Sequence[Json]:
        """Return the services that name this profile."""
        return self._services(namespace, lambda service: view.profile_name(service) == profile)

    def services_by_runtime_config(self, namespace: str | None, name: str) -> Sequence[Json]:
        """Return the services that use the RuntimeConfig of this name."""
        return self._services(namespace, lambda service: view.runtime_config_name(service) == name)

    def services_by_model(self, namespace: str | None, model: str) -> Sequence[Json]:
        """Return the services that name this model."""
        return self._services(namespace, lambda service: view.text(service, "spec", "model", "name") == model)

    def templates_by_model(self, namespace: str, model: str) -> Sequence[Json]:
        """Return a model's templates: the namespace's, then the cluster's of other names."""
        own, shared = self._two_scopes(AIM_SERVICE_TEMPLATE, AIM_CLUSTER_SERVICE_TEMPLATE, namespace)
        names = {view.name_of(obj) for obj in own}
        return [
            obj
            for obj in (*own, *(obj for obj in shared if view.name_of(obj) not in names))
            if view.text(obj, "spec", "modelName") == model
        ]

    def models_by_image(self, namespace: str, image: str) -> Sequence[Json]:
        """Return the models with exactly this image."""
        own, shared = self._two_scopes(AIM_MODEL, AIM_CLUSTER_MODEL, namespace)
        return [obj for obj in (*own, *shared) if view.text(obj, "spec", "image") == image]

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
            if address(AIM_ARTIFACT, namespace, view.name_of(obj)) not in self._replaced
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
    return not view.is_adapter(artifact) and view.source_uri(artifact) == uri
