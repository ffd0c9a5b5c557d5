"""How a service gets its image and its model sources: from a profile, or from a model and a template."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Literal

from api import view
from api.kinds import (
    AIM_CLUSTER_MODEL,
    AIM_CLUSTER_PROFILE,
    AIM_CLUSTER_SERVICE_TEMPLATE,
    AIM_MODEL,
    AIM_PROFILE,
    AIM_SERVICE_TEMPLATE,
    Kind,
)
from api.record import record
from api.view import Json
from rules.environment import merge_env
from rules.references import Ref, Reference, Resolved, lookup
from rules.world import Index, World

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


@record
class Pipeline:
    """How a service gets its image and its weights, as far as it is known.

    `sources` are the effective model sources, None while the object that lists them is missing or unread. `fitting` are
    the templates among which none was chosen (several fit, or none: empty).
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
        """Every object that this depends on."""
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


NO_TEMPLATE = "no template fits the model, so it is served with 1 GPU on any node that has one"


def without_template(pipeline: Pipeline) -> bool:
    """Whether a model is served without a template, because none fits it."""
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
    if model is None and isinstance(template, Resolved):  # the template alone names the model
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
    candidates = world.find(Index.MODELS_BY_IMAGE, namespace, image)
    if candidates:
        obj = candidates[0]
        kind = AIM_MODEL if view.namespace_of(obj) else AIM_CLUSTER_MODEL
        return Resolved(kind, obj, (kind,), view.namespace_of(obj))
    return None  # the image alone is served, and nothing else is known about it


def _resolve_template(
    world: World, service: object, namespace: str, model: Reference | None
) -> tuple[Reference | None, tuple[Json, ...]]:
    """Return the named one, the model's default, the only one that fits, or of several the one already in use."""
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
        for template in world.find(Index.TEMPLATES_BY_MODEL, namespace, model.name)
        if allowed or view.text(template, "spec", "type") != "unoptimized"
    )
    chosen = fitting[0] if len(fitting) == 1 else _chosen_before(service, fitting)
    if chosen is None:
        return None, fitting
    kind = _template_kind(chosen)
    return Resolved(kind, chosen, (kind,), view.namespace_of(chosen)), ()


def _chosen_before(service: object, fitting: Iterable[Json]) -> Json | None:
    """Return the template that the status records: a later template does not replace that of a running service."""
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
