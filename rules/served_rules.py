"""What an AIMService may ask to be served (docs/contract.md, Services, Admission)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from api import view
from api.errors import Cause, FieldError
from api.kinds import AIM_SERVICE
from api.names import (
    FEATURE_ADAPTERS,
    FEATURE_ADAPTERS_SCALE_ONLY,
    inference_service_name_limit,
)
from api.reasons import Reason
from api.view import Json
from rules.references import Resolved
from rules.registry import Basis, Example, Output, rule
from rules.seen import ServiceSeen, forbidden, invalid, required
from rules.shared import present, unknown_word
from rules.verdict import Finding

Outputs = Iterable[Output]


@rule(
    AIM_SERVICE,
    reason=Reason.NOTHING_TO_SERVE,
    fields="spec",
    refused=Example("spec: {profile: null}"),
    passes=Example("spec: {profile: {name: qwen3-8b-mi300x}}"),
    when=("profile", "model"),
)
def nothing_to_serve(seen: ServiceSeen) -> Outputs:
    """A service names a profile or a model."""
    if not present(seen.spec, "profile") and not present(seen.spec, "model"):
        yield required(
            "spec",
            Reason.NOTHING_TO_SERVE,
            "neither spec.profile nor spec.model is set, so there is nothing to serve",
            "set spec.profile.name (`kubectl get aimprf,aimclprf` lists profiles), or spec.model.name in v1alpha1",
        )


@rule(
    AIM_SERVICE,
    reason=Reason.MODEL_NOT_EXACTLY_ONE,
    fields="spec.model",
    refused=Example(
        "spec: {profile: null, model: {name: qwen3-8b, image: 'amdenterpriseai/aim-qwen-qwen3-8b:0.13.0'}}"
    ),
    passes=Example("spec: {profile: null, model: {name: qwen3-8b}}"),
    when=("model",),
)
def model_not_exactly_one(seen: ServiceSeen) -> Outputs:
    """`spec.model` holds exactly one of `name`, `image` and `custom`."""
    if not present(seen.spec, "model"):
        return
    given = [key for key in ("name", "image", "custom") if present(view.mapping(seen.spec, "model"), key)]
    if len(given) != 1:
        found = f"{' and '.join(given)} are set" if given else "none is set"
        yield invalid(
            "spec.model",
            Reason.MODEL_NOT_EXACTLY_ONE,
            f"exactly one of name, image and custom must be set; {found}",
            "keep one" if given else "set spec.model.name",
        )


@rule(
    AIM_SERVICE,
    reason=Reason.CUSTOM_MODEL_SOURCES_NOT_ONE,
    fields="spec.model.custom.modelSources",
    refused=Example("spec: {profile: null, model: {custom: {baseImage: 'aim-base:0.13.0', modelSources: []}}}"),
    passes=Example(
        "spec: {profile: null, model: {custom: {baseImage: 'aim-base:0.13.0', "
        "modelSources: [{sourceUri: 'hf://Qwen/Qwen3-8B'}]}}}"
    ),
    when=("model",),
)
def custom_model_sources_not_one(seen: ServiceSeen) -> Outputs:
    """A custom model has exactly one model source."""
    if not present(view.mapping(seen.spec, "model"), "custom"):
        return
    count = len(view.items(seen.spec, "model", "custom", "modelSources"))
    if count != 1:
        yield invalid(
            "spec.model.custom.modelSources",
            Reason.CUSTOM_MODEL_SOURCES_NOT_ONE,
            f"a custom model has exactly one source, not {count}",
            "list the one source of the weights",
        )


@rule(
    AIM_SERVICE,
    reason=Reason.TEMPLATE_BESIDE_PROFILE,
    fields="spec.template",
    refused=Example("spec: {template: {name: qwen3-8b-latency}}"),
    passes=Example("spec: {profile: {name: qwen3-8b-mi300x}}"),
    when=("template",),
)
def template_beside_profile(seen: ServiceSeen) -> Outputs:
    """`spec.profile` and `spec.template` exclude each other: each of them selects a pipeline."""
    if present(seen.spec, "profile") and present(seen.spec, "template"):
        yield forbidden(
            "spec.template",
            Reason.TEMPLATE_BESIDE_PROFILE,
            "spec.profile is set, and a service uses either a profile or a template",
            "remove spec.template; adjust the profile with spec.profileOverrides",
        )


@rule(
    AIM_SERVICE,
    reason=Reason.PROFILE_NAME_MISSING,
    fields="spec.profile.name",
    refused=Example("spec: {profile: {name: null}}"),
    passes=Example("spec: {profile: {name: qwen3-8b-mi300x}}"),
    when=("profile",),
)
def profile_without_name(seen: ServiceSeen) -> Outputs:
    """`spec.profile` names the profile."""
    profile = seen.spec.get("profile")
    if view.text(profile, "name") is None and isinstance(profile, Mapping) and not present(profile, "selector"):
        yield required(
            "spec.profile.name",
            Reason.PROFILE_NAME_MISSING,
            "a profile is referred to by its name",
            "`kubectl get aimprf,aimclprf` lists profiles",
        )


@rule(
    AIM_SERVICE,
    reason=Reason.OVERRIDES_WITHOUT_PROFILE,
    fields="spec.profileOverrides",
    refused=Example("spec: {profile: null, model: {name: qwen3-8b}, profileOverrides: {acceleratorCount: 2}}"),
    passes=Example("spec: {profileOverrides: {acceleratorCount: 2}}"),
    when=("profileOverrides",),
)
def overrides_without_profile(seen: ServiceSeen) -> Outputs:
    """Overrides need a profile to override."""
    if view.mapping(seen.spec, "profileOverrides") and not present(seen.spec, "profile"):
        yield forbidden(
            "spec.profileOverrides",
            Reason.OVERRIDES_WITHOUT_PROFILE,
            "there is no spec.profile to override",
            "set spec.profile.name, or remove the overrides",
        )


@rule(
    AIM_SERVICE,
    reason=Reason.PARTITIONING_WITHOUT_COUNT,
    fields="spec.profileOverrides.acceleratorCount",
    refused=Example("spec: {profileOverrides: {acceleratorPartitioningMode: cpx}}"),
    passes=Example("spec: {profileOverrides: {acceleratorPartitioningMode: cpx, acceleratorCount: 4}}"),
    when=("profileOverrides",),
)
def partitioning_without_count(seen: ServiceSeen) -> Outputs:
    """Another partitioning mode changes what one accelerator is, so the count must be set again."""
    overrides = view.mapping(seen.spec, "profileOverrides")
    if view.text(overrides, "acceleratorPartitioningMode") and view.integer(overrides, "acceleratorCount") is None:
        yield required(
            "spec.profileOverrides.acceleratorCount",
            Reason.PARTITIONING_WITHOUT_COUNT,
            "acceleratorPartitioningMode is overridden, so the profile's acceleratorCount no longer applies",
            "set how many partitions the service needs",
        )


_LEAST_ISVC_NAME = 10  # a letter, a dash and the hash


@rule(
    AIM_SERVICE,
    reason=Reason.NAMESPACE_NAME_TOO_LONG,
    fields="metadata.namespace",
    refused=Example("metadata: {namespace: a-namespace-with-a-name-that-is-far-too-long-for-it}"),
    passes=Example("metadata: {namespace: team-llm}"),
)
def namespace_name_too_long(seen: ServiceSeen) -> Outputs:
    """KServe derives host names from the names of InferenceService and namespace: a long namespace leaves no room."""
    if inference_service_name_limit(seen.namespace) < _LEAST_ISVC_NAME:
        yield invalid(
            "metadata.namespace",
            Reason.NAMESPACE_NAME_TOO_LONG,
            f"it has {len(seen.namespace)} characters, which leaves fewer than 10 for the InferenceService's name",
            "use a namespace of at most 42 characters",
            seen.namespace,
        )


_UNIMPLEMENTED = {
    ("autoScaling",): "use spec.minReplicas and spec.maxReplicas",
    ("routing",): "use the address in the InferenceService's status.address.url",
    ("scaleFromZero",): "use spec.minReplicas: 1",
    ("overrides",): "name the wanted template in spec.template.name",
    ("profile", "selector"): "name the profile in spec.profile.name",
    ("model", "custom", "hardware", "gpu", "minVram"): "name the model of the GPU in hardware.gpu.model",
}

_UNIMPLEMENTED_HOLDERS = frozenset(path[0] for path in _UNIMPLEMENTED)

_CACHING_MODES = ("Shared", "Dedicated", "Auto", "Always", "Never")

_RESERVED_IN_ADAPTERS = frozenset({"sourceUri", "modelId", "rank"})


@rule(
    AIM_SERVICE,
    reason=Reason.FIELD_NOT_IMPLEMENTED,
    fields="spec.autoScaling, spec.routing, spec.scaleFromZero, spec.overrides, spec.profile.selector, "
    "spec.model.custom.hardware.gpu.minVram, spec.adapters[i].sourceUri, .modelId, .rank",
    refused=Example("spec: {adapters: [{name: medical, kind: AIMArtifact, rank: 8}]}"),
    passes=Example("spec: {adapters: [{name: medical, kind: AIMArtifact}]}"),
    when=("adapters", "autoScaling", "model", "overrides", "profile", "routing", "scaleFromZero"),
)
def field_not_implemented(seen: ServiceSeen) -> Outputs:
    """A field that is known but has no effect is refused, not silently ignored."""
    if seen.context.admission_only:
        return
    if not _UNIMPLEMENTED_HOLDERS.isdisjoint(seen.spec):
        for path, fix in _UNIMPLEMENTED.items():
            if path[0] in seen.spec and view.dig(seen.spec, *path) is not None:
                yield _not_implemented(f"spec.{'.'.join(path)}", fix)
    for index, entry in enumerate(view.items(seen.spec, "adapters")):
        if not isinstance(entry, dict) or _RESERVED_IN_ADAPTERS.isdisjoint(entry):
            continue
        for key in sorted(_RESERVED_IN_ADAPTERS):
            if view.dig(entry, key) is not None:
                yield _not_implemented(f"spec.adapters[{index}].{key}", f"set {key} on the AIMArtifact itself")


def _not_implemented(path: str, fix: str) -> Finding:
    return forbidden(path, Reason.FIELD_NOT_IMPLEMENTED, "this field is not implemented and would have no effect", fix)


@rule(
    AIM_SERVICE,
    reason=Reason.WORD_UNKNOWN,
    fields="spec.adapterMode, spec.caching.mode, spec.adapters[i].kind, spec.profileOverrides.features[i]",
    refused=Example("spec: {profileOverrides: {features: [adapter]}}"),
    passes=Example("spec: {profileOverrides: {features: [adapters]}}"),
    when=("adapterMode", "adapters", "caching", "profileOverrides"),
)
def word_unknown(seen: ServiceSeen) -> Outputs:
    """Modes, kinds and feature tokens have fixed values. The schema checks them first, but files may have met none."""
    mode = seen.spec.get("adapterMode")
    if mode is not None and mode not in view.ADAPTER_MODES:
        yield from unknown_word("spec.adapterMode", mode, view.ADAPTER_MODES)
    if "caching" in seen.spec:
        yield from unknown_word("spec.caching.mode", view.dig(seen.spec, "caching", "mode"), _CACHING_MODES)
    for index, entry in enumerate(view.items(seen.spec, "adapters")):
        kind = entry.get("kind") if entry.__class__ is dict else view.dig(entry, "kind")
        if kind is not None and kind != "AIMArtifact":
            yield from unknown_word(f"spec.adapters[{index}].kind", kind, ("AIMArtifact",))
    if "profileOverrides" not in seen.spec:
        return
    for index, token in enumerate(view.items(seen.spec, "profileOverrides", "features")):
        known = (FEATURE_ADAPTERS, FEATURE_ADAPTERS_SCALE_ONLY)
        yield from unknown_word(f"spec.profileOverrides.features[{index}]", token, known)


@rule(
    AIM_SERVICE,
    reason=Reason.MIN_REPLICAS_ABOVE_MAX,
    fields="spec.minReplicas",
    refused=Example("spec: {minReplicas: 3, maxReplicas: 2}"),
    passes=Example("spec: {minReplicas: 1, maxReplicas: 2}"),
    when=("minReplicas",),
)
def min_replicas_above_max(seen: ServiceSeen) -> Outputs:
    """`spec.minReplicas` is not above `spec.maxReplicas`."""
    low, high = view.integer(seen.spec, "minReplicas"), view.integer(seen.spec, "maxReplicas")
    if low is not None and high is not None and low > high:
        detail = f"it is above spec.maxReplicas, which is {high}"
        yield invalid("spec.minReplicas", Reason.MIN_REPLICAS_ABOVE_MAX, detail, "lower it, or raise maxReplicas", low)


# -- the version of the request and what never changes ----------------------------------------------------------------


@rule(
    AIM_SERVICE,
    reason=Reason.TEMPLATE_IN_V1ALPHA2,
    fields="spec.template",
    basis=Basis.REQUEST,
    refused=Example(
        "spec: {profile: null, model: {name: qwen3-8b}, template: {name: qwen3-8b-latency}}", version="v1alpha2"
    ),
    passes=Example(
        "spec: {profile: null, model: {name: qwen3-8b}, template: {name: qwen3-8b-latency}}", version="v1alpha1"
    ),
    when=("template",),
)
def template_newly_added(seen: ServiceSeen) -> Outputs:
    """Templates belong to v1alpha1: an object that has one keeps it, but v1alpha2 cannot add one."""
    added = present(seen.spec, "template") and not present(seen.old_spec, "template")
    if seen.request_version == "v1alpha2" and added and not present(seen.spec, "profile"):
        yield forbidden(
            "spec.template",
            Reason.TEMPLATE_IN_V1ALPHA2,
            "a template cannot be added through v1alpha2",
            "use spec.profile, or write the service as aim.eai.amd.com/v1alpha1",
        )


@rule(
    AIM_SERVICE,
    reason=Reason.MODEL_IMMUTABLE,
    fields="spec.model",
    basis=Basis.TRANSITION,
    refused=Example(
        "spec: {profile: null, model: {name: llama}}", old="spec: {profile: null, model: {name: qwen3-8b}}"
    ),
    passes=Example(
        "spec: {profile: null, model: {name: qwen3-8b}, replicas: 2}",
        old="spec: {profile: null, model: {name: qwen3-8b}}",
    ),
    when=("model",),
)
def model_changed(seen: ServiceSeen) -> Outputs:
    """The model identifies the service, so it is fixed at creation."""
    if seen.changed("model"):
        yield forbidden(
            "spec.model",
            Reason.MODEL_IMMUTABLE,
            "the model is fixed at creation",
            "create another service for the other model",
        )


@rule(
    AIM_SERVICE,
    reason=Reason.TEMPLATE_IMMUTABLE,
    fields="spec.template",
    basis=Basis.TRANSITION,
    refused=Example(
        "spec: {profile: null, model: {name: qwen3-8b}, template: {name: other}}",
        old="spec: {profile: null, model: {name: qwen3-8b}, template: {name: qwen3-8b-latency}}",
        version="v1alpha1",
    ),
    passes=Example(
        "spec: {profile: null, model: {name: qwen3-8b}, template: {name: qwen3-8b-latency}, replicas: 2}",
        old="spec: {profile: null, model: {name: qwen3-8b}, "
        "template: {name: qwen3-8b-latency, allowUnoptimized: false}}",
        version="v1alpha1",
    ),
    when=("template",),
)
def template_changed(seen: ServiceSeen) -> Outputs:
    """The template is fixed at creation."""
    if _template(seen.old_spec) != _template(seen.spec):
        yield forbidden(
            "spec.template",
            Reason.TEMPLATE_IMMUTABLE,
            "the template is fixed at creation",
            "create another service with the other template",
        )


@rule(
    AIM_SERVICE,
    reason=Reason.CACHING_MODE_IMMUTABLE,
    fields="spec.caching.mode",
    basis=Basis.TRANSITION,
    refused=Example("spec: {caching: {mode: Dedicated}}", old="spec: {caching: {mode: Shared}}"),
    passes=Example("spec: {caching: {mode: Auto}}", old="spec: {caching: {mode: Shared}}"),
    when=("caching",),
)
def caching_mode_changed(seen: ServiceSeen) -> Outputs:
    """The caching mode is fixed at creation. Auto and Always mean Shared, Never means Dedicated."""
    if seen.old_spec.get("caching") == seen.spec.get("caching"):
        return
    was, now = view.caching_mode(seen.old), view.caching_mode(seen.new)
    if was != now:
        yield invalid(
            "spec.caching.mode",
            Reason.CACHING_MODE_IMMUTABLE,
            f"the caching mode is fixed at creation, and it is {was}",
            "create another service with the other mode",
            view.dig(seen.spec, "caching", "mode"),
        )


# -- other objects ----------------------------------------------------------------------------------------------------


@rule(
    AIM_SERVICE,
    reason=Reason.TEMPLATE_OF_ANOTHER_MODEL,
    fields="spec.template.name",
    basis=Basis.WORLD,
    refused=Example(
        "spec: {profile: null, model: {name: qwen3-8b}, template: {name: llama-latency}}",
        world="[{kind: AIMServiceTemplate, metadata: {name: llama-latency}, spec: {modelName: llama}}]",
        version="v1alpha1",
    ),
    passes=Example(
        "spec: {profile: null, model: {name: qwen3-8b}, template: {name: qwen3-8b-latency}}", version="v1alpha1"
    ),
    when=("template",),
)
def template_of_another_model(seen: ServiceSeen) -> Outputs:
    """A template belongs to one model, because its `modelName` never changes."""
    named = view.text(seen.spec, "template", "name")
    if named is None or seen.pipeline.kind != "template":
        return
    template, model = seen.pipeline.template, view.text(seen.spec, "model", "name")
    if model is None or not isinstance(template, Resolved):
        return
    other = view.text(template.obj, "spec", "modelName")
    if other is not None and other != model:
        error = FieldError(
            "spec.template.name",
            Reason.TEMPLATE_OF_ANOTHER_MODEL,
            Cause.INVALID,
            f'this template is for the model "{other}", but the service names "{model}"',
            named,
            "choose a template of that model, or remove spec.template",
        )
        yield Finding(error, template.looked_at)


@rule(
    AIM_SERVICE,
    reason=Reason.REFERENCE_NOT_FOUND,
    fields="spec.runtimeConfigName",
    basis=Basis.STORED,
    refused=Example("spec: {runtimeConfigName: fast}"),
    passes=Example("spec: {runtimeConfigName: default}"),
    when=("runtimeConfigName",),
)
def runtime_config_missing(seen: ServiceSeen) -> Outputs:
    """A RuntimeConfig that is named explicitly must exist. Admission only warns, because it may be applied next."""
    if seen.config.missing:
        error = FieldError(
            "spec.runtimeConfigName",
            Reason.REFERENCE_NOT_FOUND,
            Cause.NOT_FOUND,
            "no AIMRuntimeConfig or AIMClusterRuntimeConfig has this name",
            seen.config.name,
            "create it, or remove the field to use the default",
        )
        yield Finding(error, seen.config.looked_at)


# -- helpers ----------------------------------------------------------------------------------------------------------


def _template(spec: Json) -> tuple[str | None, bool] | None:
    template = view.dig(spec, "template")
    if template is None:
        return None
    return view.text(template, "name"), view.dig(template, "allowUnoptimized") is True
