"""What a service refers to, resolved in one way for admission, reconciler and command line."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from typing import Any, Literal, NamedTuple

from api import view
from api.kinds import (
    AIM_ARTIFACT,
    AIM_CLUSTER_MODEL,
    AIM_CLUSTER_PROFILE,
    AIM_CLUSTER_RUNTIME_CONFIG,
    AIM_CLUSTER_SERVICE_TEMPLATE,
    AIM_MODEL,
    AIM_PROFILE,
    AIM_PROFILE_CACHE,
    AIM_RUNTIME_CONFIG,
    AIM_SERVICE_TEMPLATE,
    AIM_TEMPLATE_CACHE,
    Kind,
)
from api.names import DEFAULT_RUNTIME_CONFIG
from api.record import record
from api.view import Json
from rules.world import World


class Ref(NamedTuple):
    """The address of an object that a conclusion rests on, whether it exists or not."""

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
    """A reference that leads nowhere: every place where the object could be was read."""

    name: str
    kinds: Sequence[Kind] = ()
    place: str = ""  # the namespace that was looked in

    @property
    def looked_at(self) -> tuple[Ref, ...]:
        """Every address that it could have led to."""
        return _refs(self.kinds, self.place, self.name)


@record
class Unknown:
    """A reference that nothing is known about: a place where the object could be was not readable."""

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

    An object of a later kind is no answer while an earlier kind could not be read: that one might win.
    """
    for kind in kinds:
        obj = world.get(kind, namespace if kind.namespaced else None, name)
        if obj is not None:
            return Resolved(kind, obj, kinds, namespace)
        if not world.knows(kind):
            return Unknown(name, kinds[: kinds.index(kind) + 1], namespace)
    return Missing(name, kinds, namespace)


# -- profile --------------------------------------------------------------------------------------------------------

_PROFILE_KINDS = (AIM_PROFILE, AIM_CLUSTER_PROFILE)
_OVERRIDDEN = ("acceleratorModel", "acceleratorVendor", "acceleratorCount", "acceleratorPartitioningMode")


def resolve_profile(world: World, service: object) -> Reference | None:
    """Return the profile that a service names: its namespace's first, then the cluster's. None: it names none."""
    name = view.profile_name(service)
    return None if name is None else lookup(world, _PROFILE_KINDS, view.namespace_of(service), name)


def effective_profile(profile: object, service: object) -> dict[str, Any]:
    """Return the profile's spec with the service's `profileOverrides` applied.

    `features` unite, `modelSources` and the accelerator fields replace, `containerEnv` merges by name, `engineEnv` by
    key, `engineArgs` shallowly by key. Neither argument is changed; what no override touches is shared, not copied.
    Source: docs/contract.md, Overrides.
    """
    spec = dict(view.mapping(profile, "spec"))
    overrides = view.mapping(service, "spec", "profileOverrides")
    features = view.effective_features(profile, service)
    if features:
        spec["features"] = list(features)
    sources = view.model_sources(profile, service)
    if sources:
        spec["modelSources"] = list(sources)
    for key in _OVERRIDDEN:
        if overrides.get(key) is not None:
            spec[key] = overrides[key]
    container_env = merge_env(view.items(profile, "spec", "containerEnv"), view.items(overrides, "containerEnv"))
    if container_env:
        spec["containerEnv"] = list(container_env.values())
    for key in ("engineEnv", "engineArgs"):
        merged = {**view.mapping(profile, "spec", key), **view.mapping(overrides, key)}
        if merged:
            spec[key] = merged
    return spec


def merge_env(*lists: Iterable[object]) -> dict[str, dict[str, Any]]:
    """Return name → copy of the entry of several env lists: a later list wins, the first place is kept."""
    merged: dict[str, dict[str, Any]] = {}
    for entries in lists:
        for entry in entries:
            name = view.text(entry, "name")
            if name is not None and isinstance(entry, Mapping):
                merged[name] = dict(entry)
    return merged


# -- RuntimeConfig --------------------------------------------------------------------------------------------------

# Blocks that make sense only as a whole: half of one and half of another would send one's secret by the other's rules.
_WHOLE_BLOCKS = frozenset({("artifact", "s3", "auth"), ("artifact", "s3", "tls")})
_DEPRECATED_TOP_LEVEL = ("defaultStorageClassName", "pvcHeadroomPercent")


@dataclass(unsafe_hash=True)  # like a record, but without slots: `spec` is kept
class MergedRuntimeConfig:
    """The namespace's RuntimeConfig of a name over the cluster's, field by field (docs/contract.md, RuntimeConfig).

    Nobody changes it.
    """

    name: str
    namespaced: Json | None  # the AIMRuntimeConfig, as read
    cluster: Json | None  # the AIMClusterRuntimeConfig, as read
    readable: bool = True  # False: a place where it could be was not read; absence means nothing
    looked_at: tuple[Ref, ...] = ()

    @property
    def found(self) -> bool:
        """Whether there is one at all."""
        return self.namespaced is not None or self.cluster is not None

    @property
    def missing(self) -> bool:
        """Whether it is named and does not exist (yet): what it would say is not known. No `default` says nothing."""
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
        """The merged spec; the deprecated top-level fields count where `storage` says nothing."""
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
    """Return what RuntimeConfigs of a name say for a namespace, merged."""
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


# -- pipelines ------------------------------------------------------------------------------------------------------


@record
class Pipeline:
    """How a service comes to its image and its weights, as far as the world tells.

    `sources` are the effective model sources, None while what would tell them is missing or unread. `fitting` are the
    templates among which none was chosen (several fit, or none: empty).
    """

    kind: Literal["profile", "template"]
    profile: Reference | None = None
    model: Reference | None = None
    template: Reference | None = None
    fitting: tuple[Json, ...] = ()
    sources: Sequence[Any] | None = None
    image: str | None = None

    @property
    def looked_at(self) -> tuple[Ref, ...]:
        """Every object that this rests on."""
        found = (self.profile, self.model, self.template)
        return tuple(ref for reference in found if reference is not None for ref in reference.looked_at)


def resolve_pipeline(world: World, service: object) -> Pipeline:
    """Return a service's pipeline, resolved."""
    return (
        _profile_pipeline(world, service) if view.uses_profile_pipeline(service) else _template_pipeline(world, service)
    )


def _profile_pipeline(world: World, service: object) -> Pipeline:
    reference = resolve_profile(world, service)
    found = reference if isinstance(reference, Resolved) else None
    if found is None:
        overridden = view.items(service, "spec", "profileOverrides", "modelSources")
        return Pipeline("profile", reference, sources=overridden or None)
    return Pipeline(
        "profile",
        found,
        sources=view.model_sources(found.obj, service),
        image=view.text(view.spec_of(found.obj), "image"),
    )


NO_TEMPLATE = "no template fits the model: it is served with 1 GPU, on any node that has one"


def without_template(pipeline: Pipeline) -> bool:
    """Whether a model is served as it is, for no template fits it."""
    return (
        pipeline.kind == "template"
        and isinstance(pipeline.model, Resolved)
        and pipeline.template is None
        and not pipeline.fitting
        and bool(pipeline.sources)
    )


_MODEL_KINDS = (AIM_MODEL, AIM_CLUSTER_MODEL)
_TEMPLATE_KINDS = (AIM_SERVICE_TEMPLATE, AIM_CLUSTER_SERVICE_TEMPLATE)


def _template_pipeline(world: World, service: object) -> Pipeline:
    namespace = view.namespace_of(service)
    model = _resolve_model(world, service, namespace)
    template, fitting = _resolve_template(world, service, namespace, model)
    if model is None and isinstance(template, Resolved):  # the template alone tells the model
        name = view.text(template.obj, "spec", "modelName")
        model = lookup(world, _MODEL_KINDS, namespace, name) if name else None
    return Pipeline(
        kind="template",
        model=model,
        template=template,
        fitting=fitting,
        sources=_template_sources(service, model, template),
        image=_template_image(service, model),
    )


def _resolve_model(world: World, service: object, namespace: str) -> Reference | None:
    name = view.text(service, "spec", "model", "name")
    if name is not None:
        return lookup(world, _MODEL_KINDS, namespace, name)
    image = view.text(service, "spec", "model", "image")
    if image is None:
        return None
    candidates = world.models_by_image(namespace, image)
    if candidates:
        obj = candidates[0]
        kind = AIM_MODEL if view.namespace_of(obj) else AIM_CLUSTER_MODEL
        return Resolved(kind, obj, (kind,), view.namespace_of(obj))
    return None  # the bare image serves; nothing but the image is known of it


def _resolve_template(
    world: World, service: object, namespace: str, model: Reference | None
) -> tuple[Reference | None, tuple[Json, ...]]:
    """Explicit, the model's default, the only one that fits, or of several the one that the service has already."""
    named = view.text(service, "spec", "template", "name")
    if named is None and isinstance(model, Resolved):
        named = view.text(model.obj, "spec", "defaultServiceTemplate")
    if named is not None:
        return lookup(world, _TEMPLATE_KINDS, namespace, named), ()
    if not isinstance(model, Resolved):
        return None, ()
    allowed = view.dig(service, "spec", "template", "allowUnoptimized") is True
    fitting = tuple(
        template
        for template in world.templates_by_model(namespace, model.name)
        if allowed or view.text(template, "spec", "type") != "unoptimized"
    )
    chosen = fitting[0] if len(fitting) == 1 else _chosen_before(service, fitting)
    if chosen is None:
        return None, fitting
    kind = _template_kind(chosen)
    return Resolved(kind, chosen, (kind,), view.namespace_of(chosen)), ()


def _chosen_before(service: object, fitting: Iterable[Json]) -> Json | None:
    """Return the template that the status says is used: one that comes later takes no running service its own."""
    recorded = view.mapping(service, "status", "resolvedTemplate")
    for template in fitting:
        if (_template_kind(template).kind, view.name_of(template)) == (recorded.get("kind"), recorded.get("name")):
            return template
    return None


def _template_kind(template: Json) -> Kind:
    return AIM_SERVICE_TEMPLATE if view.namespace_of(template) else AIM_CLUSTER_SERVICE_TEMPLATE


def _template_sources(service: object, model: Reference | None, template: Reference | None) -> Sequence[Any] | None:
    custom = view.items(service, "spec", "model", "custom", "modelSources")
    if custom:
        return custom
    for reference in (template, model):
        if isinstance(reference, Resolved) and view.items(reference.obj, "spec", "modelSources"):
            return view.items(reference.obj, "spec", "modelSources")
    return () if isinstance(model, Resolved) and isinstance(template, Resolved | None) else None


def _template_image(service: object, model: Reference | None) -> str | None:
    return (
        view.text(service, "spec", "model", "image")
        or view.text(service, "spec", "model", "custom", "baseImage")
        or (view.text(model.obj, "spec", "image") if isinstance(model, Resolved) else None)
    )


# -- base -----------------------------------------------------------------------------------------------------------


@record
class BaseResolution:
    """The base-model artifact that a service's adapters bind to.

    known: `artifact` exists and is what the cache resolved, or would adopt · guessed: only the model source tells
    `model_id` · unknown: not even that; nothing is judged · ambiguous: several model sources (`count`).
    """

    state: Literal["known", "guessed", "unknown", "ambiguous"]
    pipeline: Pipeline
    artifact: Json
    model_id: str | None
    source: Json
    count: int

    @property
    def known(self) -> bool:
        """Whether compatibility can be judged."""
        return self.state == "known"

    @property
    def name(self) -> str:
        """Name of the base artifact, empty unless known."""
        return view.name_of(self.artifact)

    @property
    def looked_at(self) -> tuple[Ref, ...]:
        """Every object that this rests on."""
        if not self.known:
            return self.pipeline.looked_at
        return (*self.pipeline.looked_at, Ref(AIM_ARTIFACT, view.namespace_of(self.artifact), self.name))


def resolve_base(world: World, service: object, pipeline: Pipeline | None = None) -> BaseResolution:
    """Return the base of a service: the artifact that its cache resolved, else the one that a cache would adopt.

    Source: docs/contract.md, Base resolution.
    """
    pipeline = pipeline or resolve_pipeline(world, service)
    if not pipeline.sources:
        return BaseResolution("unknown", pipeline, view.EMPTY, None, view.EMPTY, 0)
    count = len(pipeline.sources)
    if count > 1:
        return BaseResolution("ambiguous", pipeline, view.EMPTY, None, view.EMPTY, count)
    source = pipeline.sources[0]
    if source.__class__ is not dict and not isinstance(source, Mapping):
        source = view.EMPTY
    guess = view.model_id(source)
    namespace = view.namespace_of(service)
    artifact = cached_artifact(world, service, pipeline, source) or adoptable_artifact(
        world, namespace, view.text(source, "sourceUri")
    )
    if artifact is None:
        state: Literal["guessed", "unknown"] = "guessed" if guess else "unknown"
        return BaseResolution(state, pipeline, view.EMPTY, guess, source, 1)
    return BaseResolution("known", pipeline, artifact, view.model_id(artifact) or guess, source, 1)


def adoptable_artifact(world: World, namespace: str, uri: str | None) -> Json | None:
    """Return the model artifact that a shared cache adopts for a source: the oldest that stays, exact source match."""
    if uri is None:
        return None
    for artifact in world.artifacts_by_source(namespace, uri):
        if not view.terminating(artifact) and view.text(artifact, "status", "mode") != "Dedicated":
            return artifact
    return None


def cached_artifact(world: World, service: object, pipeline: Pipeline, source: Json) -> Json | None:
    """Return the artifact that the service's recorded cache holds for a source, if it still is that artifact."""
    field_name, kind = (
        ("profileCacheRef", AIM_PROFILE_CACHE)
        if pipeline.kind == "profile"
        else ("templateCacheRef", AIM_TEMPLATE_CACHE)
    )
    cache_name = view.text(service, "status", "cache", field_name, "name")
    if cache_name is None:
        return None
    namespace = view.namespace_of(service)
    cache = world.get(kind, namespace, cache_name)
    for entry in view.mapping(cache, "status", "artifacts").values():
        name = view.text(entry, "name")
        artifact = world.get(AIM_ARTIFACT, namespace, name) if name else None
        if (
            artifact is None
            or view.terminating(artifact)
            or view.source_uri(artifact) != view.text(source, "sourceUri")
        ):
            continue
        if view.text(entry, "uid") in (None, view.uid_of(artifact)):
            return artifact
    return None


# -- adapters -------------------------------------------------------------------------------------------------------


def artifact_state(world: World, namespace: str, name: str) -> ArtifactState:
    """Return an artifact as far as it is known."""
    artifact = world.get(AIM_ARTIFACT, namespace, name)
    if artifact is None and not world.knows(AIM_ARTIFACT):
        return UNREADABLE
    return artifact
