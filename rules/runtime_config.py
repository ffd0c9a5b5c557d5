"""The RuntimeConfig of an object: the namespace's merged over the cluster's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

from api import view
from api.kinds import AIM_CLUSTER_RUNTIME_CONFIG, AIM_RUNTIME_CONFIG
from api.names import DEFAULT_RUNTIME_CONFIG
from api.view import Json
from rules.environment import merge_env
from rules.references import Ref
from rules.world import World

# Blocks that make sense only as a whole: halves of two would send the secret of one under the rules of the other.
_WHOLE_BLOCKS = frozenset({("artifact", "s3", "auth"), ("artifact", "s3", "tls"), ("artifact", "hub", "caBundleRef")})
_READ_BY_JOBS = ("s3", "hub")  # blocks of `artifact` that say how Jobs reach sources
_DEPRECATED_TOP_LEVEL = ("defaultStorageClassName", "pvcHeadroomPercent")


@dataclass(unsafe_hash=True)  # like a record, but without slots: `spec` is kept
class MergedRuntimeConfig:
    """The namespace's RuntimeConfig of a name over the cluster's, field by field (docs/contract.md, RuntimeConfig).

    It is never changed.
    """

    name: str
    namespaced: Json | None  # the AIMRuntimeConfig, as read
    cluster: Json | None  # the AIMClusterRuntimeConfig, as read
    readable: bool = True  # False: a place where it could be was not read, so absence means nothing
    looked_at: tuple[Ref, ...] = ()

    @property
    def found(self) -> bool:
        """Whether there is one at all."""
        return self.namespaced is not None or self.cluster is not None

    @property
    def missing(self) -> bool:
        """Whether it is named and does not exist (yet), so its content is unknown. An absent `default` is empty."""
        return self.readable and not self.found and self.name not in ("", DEFAULT_RUNTIME_CONFIG)

    @property
    def scope(self) -> Literal["Namespace", "Cluster", "Merged"] | None:
        """Where it comes from, in the words of the status fields; None when there is none."""
        if self.namespaced is not None:
            return "Merged" if self.cluster is not None else "Namespace"
        return "Cluster" if self.cluster is not None else None

    def value(self, *path: str) -> tuple[Any, str]:
        """Return a field's value and its origin (`AIMRuntimeConfig "default"`), or (None, "")."""
        for obj, kind in ((self.namespaced, AIM_RUNTIME_CONFIG), (self.cluster, AIM_CLUSTER_RUNTIME_CONFIG)):
            found = view.dig(obj, "spec", *path)
            if found is not None:
                return found, f'{kind.kind} "{self.name}"'
        return None, ""

    @cached_property
    def spec(self) -> Json:
        """The merged spec; the deprecated top-level fields are used where `storage` does not set them."""
        merged = _merged_block(view.mapping(self.cluster, "spec"), view.mapping(self.namespaced, "spec"), ())
        storage = dict(view.mapping(merged, "storage"))
        for key in _DEPRECATED_TOP_LEVEL:
            if storage.get(key) is None and merged.get(key) is not None:
                storage[key] = merged[key]
        if storage:
            merged["storage"] = storage
        return merged


def resolve_runtime_config(
    world: World, namespace: str, name: str = DEFAULT_RUNTIME_CONFIG, *, cluster_only: bool = False
) -> MergedRuntimeConfig:
    """Return the RuntimeConfigs of a name for a namespace, merged."""
    own = None if cluster_only else world.get(AIM_RUNTIME_CONFIG, namespace, name)
    shared = world.get(AIM_CLUSTER_RUNTIME_CONFIG, None, name)
    readable = (own is not None or world.knows(AIM_RUNTIME_CONFIG)) and (
        shared is not None or world.knows(AIM_CLUSTER_RUNTIME_CONFIG)
    )
    looked = (Ref(AIM_RUNTIME_CONFIG, namespace, name), Ref(AIM_CLUSTER_RUNTIME_CONFIG, None, name))
    return MergedRuntimeConfig(name, own, shared, readable, looked)


def service_runtime_config(world: World, service: object) -> MergedRuntimeConfig:
    """Return the RuntimeConfig that a service (or an artifact, a cache) uses."""
    return resolve_runtime_config(world, view.namespace_of(service), view.runtime_config_name(service))


@dataclass(frozen=True, slots=True)
class AdapterConfig:
    """What the Jobs of an adapter are configured by.

    `unreadable` and `missing`: the name of a RuntimeConfig that cannot be read, or that is named and does not exist;
    empty otherwise. `origins`: blocks of `artifact` with the object that each comes from (`AIMRuntimeConfig "team"`).
    """

    spec: Json
    unreadable: str = ""
    missing: str = ""
    origins: Mapping[str, str] = field(default_factory=dict)

    def origin_of(self, block: str) -> str:
        """Return the object that a block of `artifact` comes from, empty if none has it."""
        return self.origins.get(block, "")


def adapter_runtime_config(world: World, service_config: MergedRuntimeConfig, artifact: object) -> AdapterConfig:
    """Return the configuration that reads an adapter: the artifact's RuntimeConfig laid over the service's.

    The artifact uses the one that it names, else `default`: env by name, its `artifact.s3` and `artifact.hub` blocks
    and its pull secrets as a whole. Source: docs/contract.md, Configuration of an adapter.
    """
    name = view.runtime_config_name(artifact)
    under = service_config
    if name == under.name:
        own, spec = under, under.spec
    else:
        own = resolve_runtime_config(world, view.namespace_of(artifact), name)
        spec = _laid_over(under.spec, own.spec)
    unreadable = next((config.name for config in (under, own) if not config.readable), "")
    origins = {block: own.value("artifact", block)[1] or under.value("artifact", block)[1] for block in _READ_BY_JOBS}
    return AdapterConfig(spec, unreadable, own.name if own is not under and own.missing else "", origins)


def _laid_over(under: Json, over: Json) -> Json:
    merged = dict(under)
    merged["env"] = list(merge_env(view.items(under, "env"), view.items(over, "env")).values())
    blocks = {name: block for name in _READ_BY_JOBS if (block := view.mapping(over, "artifact", name))}
    if blocks:
        merged["artifact"] = dict(view.mapping(under, "artifact")) | blocks
    if secrets := view.items(over, "imagePullSecrets"):
        merged["imagePullSecrets"] = list(secrets)
    return merged


def _merged_block(under: Json, over: Json, path: tuple[str, ...]) -> dict[str, Any]:
    merged = dict(under)
    for key, value in over.items():
        below = merged.get(key)
        here = (*path, key)
        if value is None:
            continue
        if key == "env" and isinstance(value, list) and isinstance(below, list):
            merged[key] = list(merge_env(below, value).values())
        elif isinstance(value, Mapping) and isinstance(below, Mapping) and here not in _WHOLE_BLOCKS:
            merged[key] = _merged_block(below, value, here)
        else:
            merged[key] = value
    return merged
