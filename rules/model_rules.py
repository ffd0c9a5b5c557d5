"""What models and service templates may contain (docs/contract.md, Models and templates)."""

from __future__ import annotations

from collections.abc import Iterator

from api import view
from api.errors import Cause, FieldError, FieldWarning
from api.kinds import AIM_CLUSTER_MODEL, AIM_CLUSTER_SERVICE_TEMPLATE, AIM_MODEL, AIM_SERVICE_TEMPLATE
from api.reasons import Reason
from rules.references import Missing, lookup
from rules.registry import Basis, Example, Output, rule
from rules.relations import BASE_REASONS, affected, naming_services
from rules.seen import Seen, forbidden
from rules.shared import not_found_yet, unfamiliar_accelerator, unimplemented_warnings
from rules.verdict import Finding
from rules.world import Index

Outputs = Iterator[Output]
MODELS = (AIM_MODEL, AIM_CLUSTER_MODEL)
TEMPLATES = (AIM_SERVICE_TEMPLATE, AIM_CLUSTER_SERVICE_TEMPLATE)

_DECLARED = (
    "[{kind: AIMArtifact, metadata: {name: qwen3-4b, namespace: team-llm}, "
    "spec: {modelId: Qwen/Qwen3-4B, sourceUri: 'hf://Qwen/Qwen3-4B'}}, "
    "{kind: AIMServiceTemplate, metadata: {name: qwen3-latency}, spec: {modelName: qwen3}}, "
    "{kind: AIMService, metadata: {name: chat}, "
    "spec: {profile: null, model: {name: qwen3}, adapters: [{name: medical, kind: AIMArtifact}]}}]"
)


@rule(
    *MODELS,
    reason=Reason.TOO_MANY_MODEL_SOURCES,
    fields="spec.modelSources",
    refused=Example("spec: {modelSources: [{sourceUri: 'hf://Qwen/Qwen3-8B'}, {sourceUri: 'hf://Qwen/Qwen3-4B'}]}"),
    passes=Example("spec: {modelSources: [{sourceUri: 'hf://Qwen/Qwen3-8B'}]}"),
)
def model_with_several_sources(seen: Seen) -> Outputs:
    """A model has at most one source. The schema checks this first."""
    count = len(view.items(seen.spec, "modelSources"))
    if count > 1:
        detail = f"a model has at most one source, not {count}"
        hint = "create one AIMModel for each"
        yield Finding(
            FieldError("spec.modelSources", Reason.TOO_MANY_MODEL_SOURCES, Cause.TOO_MANY, detail, count, hint)
        )


@rule(
    *MODELS,
    reason=Reason.IMAGE_UNKNOWN,
    fields="spec.image",
    warns=True,
    refused=Example("spec: {image: null}"),
    passes=Example("spec: {image: 'registry.example/aim-qwen3:0.9'}"),
)
def model_without_image(seen: Seen) -> Outputs:
    """A model without an image serves only services that name an image themselves."""
    if not view.text(seen.spec, "image"):
        detail = "missing, so that services of this model wait until it is set (reason ImageUnknown)"
        yield FieldWarning("spec.image", Reason.IMAGE_UNKNOWN, detail, 20)


@rule(
    *TEMPLATES,
    reason=Reason.FIELD_DEPRECATED,
    fields="spec.hardware.gpu.count",
    warns=True,
    refused=Example("spec: {hardware: {gpu: {model: MI300X, count: 1}}}"),
    passes=Example("spec: {hardware: {gpu: {model: MI300X, requests: 1}}}"),
    when=("hardware",),
)
def accelerator_count_is_deprecated(seen: Seen) -> Outputs:
    """The number of accelerators is `requests`; `count` is used where `requests` is absent."""
    if view.dig(seen.spec, "hardware", "gpu", "count") is not None:
        detail = "deprecated; use spec.hardware.gpu.requests"
        yield FieldWarning("spec.hardware.gpu.count", Reason.FIELD_DEPRECATED, detail, 70)


@rule(
    *TEMPLATES,
    reason=Reason.FIELD_IMMUTABLE,
    fields="spec.modelName, spec.metric, spec.precision, spec.hardware",
    basis=Basis.TRANSITION,
    refused=Example("spec: {metric: throughput}", old="spec: {metric: latency}"),
    passes=Example("spec: {metric: latency, env: [{name: A, value: b}]}", old="spec: {metric: latency}"),
)
def template_field_changed(seen: Seen) -> Outputs:
    """Model, metric, precision and hardware identify the template, so they are fixed at creation."""
    for key in ("modelName", "metric", "precision", "hardware"):
        if seen.changed(key):
            yield forbidden(
                f"spec.{key}", Reason.FIELD_IMMUTABLE, "this field is fixed at creation", "create another template"
            )


@rule(
    *MODELS,
    reason=Reason.SOURCES_EDIT_BREAKS_SERVICES,
    fields="spec.modelSources",
    basis=Basis.WORLD,
    warns=True,
    refused=Example(
        "{metadata: {name: qwen3}, spec: {modelSources: [{sourceUri: 'hf://Qwen/Qwen3-4B'}]}}",
        old="{metadata: {name: qwen3}, spec: {modelSources: [{sourceUri: 'hf://Qwen/Qwen3-8B'}]}}",
        world=_DECLARED,
    ),
    passes=Example(
        "{metadata: {name: qwen3}, spec: {modelSources: [{sourceUri: 'hf://Qwen/Qwen3-8B', size: 16Gi}]}}",
        old="{metadata: {name: qwen3}, spec: {modelSources: [{sourceUri: 'hf://Qwen/Qwen3-8B'}]}}",
        world=_DECLARED,
    ),
)
def model_edit_breaks_services(seen: Seen) -> Outputs:
    """Lists the services whose adapters do not fit the new source of the model."""
    if not seen.changed("modelSources"):
        return
    services = seen.world.find(Index.SERVICES_BY_MODEL, seen.namespace or None, seen.name)
    broken = [entry for entry in affected(seen, services) if entry.newly_broken(BASE_REASONS)]
    words = "adapters no longer fit in"
    yield from naming_services(
        "spec.modelSources", Reason.SOURCES_EDIT_BREAKS_SERVICES, words, broken, total=len(services)
    )


@rule(
    *MODELS,
    reason=Reason.FIELD_NOT_IMPLEMENTED,
    fields="spec.custom, spec.customTemplates, spec.discovery, spec.imageMetadata",
    warns=True,
    refused=Example("spec: {discovery: {enabled: true}}"),
    passes=Example("spec: {image: 'amdenterpriseai/aim-qwen-qwen3-8b:0.13.0'}"),
)
def model_field_not_implemented(seen: Seen) -> Outputs:
    """aim-adapters does not act on this field; other controllers may."""
    if not seen.context.admission_only:
        paths = [("custom",), ("customTemplates",), ("discovery",), ("imageMetadata",)]
        yield from unimplemented_warnings(seen.spec, paths)


@rule(
    AIM_MODEL,
    reason=Reason.REFERENCE_NOT_FOUND,
    fields="spec.defaultServiceTemplate",
    basis=Basis.WORLD,
    warns=True,
    refused=Example("spec: {defaultServiceTemplate: not-yet}"),
    passes=Example("spec: {defaultServiceTemplate: null}"),
)
def default_template_not_found_yet(seen: Seen) -> Outputs:
    """The default template that the model names may be applied later."""
    name = view.text(seen.spec, "defaultServiceTemplate")
    if name is not None and isinstance(lookup(seen.world, TEMPLATES, seen.namespace, name), Missing):
        kinds = " or ".join(kind.kind for kind in TEMPLATES)
        yield not_found_yet("spec.defaultServiceTemplate", kinds, name, weight=30, room=24)


@rule(
    *TEMPLATES,
    reason=Reason.FIELD_NOT_IMPLEMENTED,
    fields="spec.hardware.gpu.minVram",
    warns=True,
    refused=Example("spec: {hardware: {gpu: {model: MI300X, requests: 1, minVram: 64Gi}}}"),
    passes=Example("spec: {hardware: {gpu: {model: MI300X, requests: 1}}}"),
    when=("hardware",),
)
def template_field_not_implemented(seen: Seen) -> Outputs:
    """aim-adapters does not act on this field; other controllers may."""
    if not seen.context.admission_only:
        yield from unimplemented_warnings(seen.spec, [("hardware", "gpu", "minVram")])


@rule(
    *TEMPLATES,
    reason=Reason.ACCELERATOR_MODEL_UNFAMILIAR,
    fields="spec.hardware.gpu.model",
    warns=True,
    refused=Example("spec: {hardware: {gpu: {model: MI300x, requests: 1}}}"),
    passes=Example("spec: {hardware: {gpu: {model: MI300X, requests: 1}}}"),
    when=("hardware",),
)
def template_accelerator_unfamiliar(seen: Seen) -> Outputs:
    """The accelerator model looks like a misspelling of a known one, so no node will match."""
    yield from unfamiliar_accelerator("spec.hardware.gpu.model", view.text(seen.spec, "hardware", "gpu", "model"))


@rule(
    AIM_SERVICE_TEMPLATE,
    reason=Reason.REFERENCE_NOT_FOUND,
    fields="spec.modelName",
    basis=Basis.WORLD,
    warns=True,
    refused=Example("spec: {modelName: not-yet}"),
    passes=Example("spec: {modelName: qwen3-8b}"),
)
def model_of_template_not_found_yet(seen: Seen) -> Outputs:
    """The model that the template names may be applied later."""
    name = view.text(seen.spec, "modelName")
    if name is not None and seen.namespace and isinstance(lookup(seen.world, MODELS, seen.namespace, name), Missing):
        kinds = " or ".join(kind.kind for kind in MODELS)
        yield not_found_yet("spec.modelName", kinds, name, weight=30)
