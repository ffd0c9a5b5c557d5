"""What models and service templates may say (docs/contract.md, Models and templates)."""

from __future__ import annotations

from collections.abc import Iterator

from api import view
from api.errors import Cause, FieldError, FieldWarning
from api.kinds import AIM_CLUSTER_MODEL, AIM_CLUSTER_SERVICE_TEMPLATE, AIM_MODEL, AIM_SERVICE_TEMPLATE
from api.reasons import Reason
from rules.environment import env_names
from rules.registry import Basis, Example, Output, rule
from rules.relations import BASE_REASONS, affected, naming_services
from rules.resolve import Missing, lookup
from rules.seen import Seen, forbidden
from rules.shared import (
    reserved_env_findings,
    source_findings,
    unfamiliar_accelerator,
    unimplemented_warnings,
    unusable_env_findings,
)
from rules.verdict import Finding

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
    *TEMPLATES,
    reason=(Reason.ENV_RESERVED, Reason.ENV_UNUSABLE),
    fields="spec.env[i].name, spec.modelSources[i].env[j].name",
    refused=Example("spec: {env: [{name: INFERENCE_SERVICE_NAME, value: x}]}"),
    passes=Example("spec: {env: [{name: VLLM_LOGGING_LEVEL, value: DEBUG}]}"),
)
def model_env_reserved(seen: Seen) -> Outputs:
    """KServe gives a few variables of the server container a meaning of its own, and pods do not take every entry."""
    yield from unusable_env_findings(seen.new, "spec", "env")
    yield from reserved_env_findings(env_names(seen.new, "spec", "env"))
    for index, source in enumerate(view.items(seen.spec, "modelSources")):
        prefix = f"spec.modelSources[{index}]."
        yield from reserved_env_findings((prefix + path, name) for path, name in env_names(source, "env"))


@rule(
    *MODELS,
    *TEMPLATES,
    reason=(Reason.SOURCE_UNUSABLE, Reason.SIZE_UNUSABLE),
    fields="spec.modelSources[i].sourceUri, spec.modelSources[i].size",
    refused=Example("spec: {modelSources: [{sourceUri: 'hf://Qwen3-8B'}]}"),
    passes=Example("spec: {modelSources: [{sourceUri: 'hf://Qwen/Qwen3-8B'}]}"),
)
def model_source_of_template_unusable(seen: Seen) -> Outputs:
    """A source that cannot be parsed can never be downloaded."""
    yield from source_findings(seen.new, "spec", "modelSources")


@rule(
    *MODELS,
    reason=Reason.TOO_MANY_MODEL_SOURCES,
    fields="spec.modelSources",
    refused=Example("spec: {modelSources: [{sourceUri: 'hf://Qwen/Qwen3-8B'}, {sourceUri: 'hf://Qwen/Qwen3-4B'}]}"),
    passes=Example("spec: {modelSources: [{sourceUri: 'hf://Qwen/Qwen3-8B'}]}"),
)
def model_with_several_sources(seen: Seen) -> Outputs:
    """A model has at most one source (the schema speaks first)."""
    count = len(view.items(seen.spec, "modelSources"))
    if count > 1:
        detail = f"a model has at most one source, not {count}"
        hint = "make one AIMModel for each"
        yield Finding(
            FieldError("spec.modelSources", Reason.TOO_MANY_MODEL_SOURCES, Cause.TOO_MANY, detail, count, hint)
        )


@rule(
    *TEMPLATES,
    reason=Reason.FIELD_IMMUTABLE,
    fields="spec.modelName, spec.metric, spec.precision, spec.hardware",
    basis=Basis.TRANSITION,
    refused=Example("spec: {metric: throughput}", old="spec: {metric: latency}"),
    passes=Example("spec: {metric: latency, env: [{name: A, value: b}]}", old="spec: {metric: latency}"),
)
def template_field_changed(seen: Seen) -> Outputs:
    """What a template is for is its identity."""
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
    """Services that name the model bind their adapters to its source as it is now: who loses the base is named."""
    if not seen.changed("modelSources"):
        return
    services = seen.world.services_by_model(seen.namespace or None, seen.name)
    broken = [entry for entry in affected(seen, services) if entry.newly_broken(BASE_REASONS)]
    told = "adapters no longer fit in"
    yield from naming_services(
        "spec.modelSources", Reason.SOURCES_EDIT_BREAKS_SERVICES, told, broken, total=len(services)
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
    """A field that others may act on, but we do not."""
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
    """The default template may be applied next; a cluster model's may live in any namespace and is not looked for."""
    name = view.text(seen.spec, "defaultServiceTemplate")
    if name is not None and isinstance(lookup(seen.world, TEMPLATES, seen.namespace, name), Missing):
        yield FieldWarning(
            "spec.defaultServiceTemplate", Reason.REFERENCE_NOT_FOUND, f'no "{name[:50]}" exists yet', 30
        )


@rule(
    *TEMPLATES,
    reason=(Reason.FIELD_NOT_IMPLEMENTED, Reason.ACCELERATOR_MODEL_UNFAMILIAR, Reason.REFERENCE_NOT_FOUND),
    fields="spec.hardware.gpu.minVram, spec.hardware.gpu.model, spec.modelName",
    basis=Basis.WORLD,
    warns=True,
    refused=Example("spec: {hardware: {gpu: {model: MI300X, count: 1, minVram: 64Gi}}}"),
    passes=Example("spec: {hardware: {gpu: {model: MI300X, count: 1}}}"),
)
def template_setting_suspect(seen: Seen) -> Outputs:
    """What has no effect, finds no node, or belongs to a model that is not there yet."""
    if not seen.context.admission_only:
        yield from unimplemented_warnings(seen.spec, [("hardware", "gpu", "minVram")])
    yield from unfamiliar_accelerator("spec.hardware.gpu.model", view.text(seen.spec, "hardware", "gpu", "model"))
    name = view.text(seen.spec, "modelName")
    kinds = MODELS if seen.namespace else (AIM_CLUSTER_MODEL,)
    if name is not None and isinstance(lookup(seen.world, kinds, seen.namespace, name), Missing) and seen.namespace:
        yield FieldWarning("spec.modelName", Reason.REFERENCE_NOT_FOUND, f'no model "{name[:50]}" exists yet', 30)
