"""What an AIMService may say, and what is said about it (docs/contract.md, Services, Admission)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from api import view
from api.errors import Cause, FieldError, FieldWarning
from api.kinds import AIM_SERVICE
from api.names import (
    FEATURE_ADAPTERS,
    FEATURE_ADAPTERS_SCALE_ONLY,
    GPU_ADAPTER_SLOTS,
    MAX_ADAPTERS,
    RANK_CEILINGS,
    inference_service_name_limit,
)
from api.reasons import Reason
from api.view import Json
from rules import adapters as adapter_rules
from rules.engine_args import switches_adapters_off
from rules.environment import ADAPTER_ENV_PREFIX, PREDICTOR_ENV, RESERVED_ENV, env_keys, env_names, job_env_allowed
from rules.rank import SUPPORTED_RANKS, next_supported
from rules.registry import Basis, Example, Output, rule
from rules.resolve import NO_TEMPLATE, Missing, Resolved, Unreadable, without_template
from rules.seen import ServiceSeen, forbidden, invalid, required
from rules.shared import (
    NAME_WORDS,
    image_tag,
    image_too_old,
    possible_name,
    reserved_env_findings,
    source_findings,
    unfamiliar_accelerator,
    unknown_word,
    unusable_env_findings,
)
from rules.suggest import fit_names, quoted
from rules.verdict import Finding

Outputs = Iterable[Output]

# -- what is served -------------------------------------------------------------------------------------------------


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
    if not _present(seen.spec, "profile") and not _present(seen.spec, "model"):
        yield required(
            "spec",
            Reason.NOTHING_TO_SERVE,
            "neither spec.profile nor spec.model is set: nothing tells what to serve",
            "set spec.profile.name, `kubectl get aimprf,aimclprf` lists them; or spec.model.name in v1alpha1",
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
    if not _present(seen.spec, "model"):
        return
    given = [key for key in ("name", "image", "custom") if _present(view.mapping(seen.spec, "model"), key)]
    if len(given) != 1:
        told = f"{' and '.join(given)} are set" if given else "none is set"
        yield invalid(
            "spec.model",
            Reason.MODEL_NOT_EXACTLY_ONE,
            f"exactly one of name, image and custom tells the model; {told}",
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
    if not _present(view.mapping(seen.spec, "model"), "custom"):
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
    """`spec.template` belongs to the template pipeline, `spec.profile` chooses the other one."""
    if _present(seen.spec, "profile") and _present(seen.spec, "template"):
        yield forbidden(
            "spec.template",
            Reason.TEMPLATE_BESIDE_PROFILE,
            "spec.profile is set, and a profile already says what a template would",
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
    if view.text(profile, "name") is None and isinstance(profile, Mapping) and not _present(profile, "selector"):
        yield required(
            "spec.profile.name",
            Reason.PROFILE_NAME_MISSING,
            "the profile has no name",
            "kubectl get aimprf,aimclprf lists profiles",
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
    if view.mapping(seen.spec, "profileOverrides") and not _present(seen.spec, "profile"):
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
    """Another partitioning changes what one accelerator is, so the count is said anew."""
    overrides = view.mapping(seen.spec, "profileOverrides")
    if view.text(overrides, "acceleratorPartitioningMode") and view.integer(overrides, "acceleratorCount") is None:
        yield required(
            "spec.profileOverrides.acceleratorCount",
            Reason.PARTITIONING_WITHOUT_COUNT,
            "acceleratorPartitioningMode is overridden, so the profile's count no longer means the same",
            "say how many partitions the service needs",
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
    """KServe derives host names from InferenceService and namespace: a long namespace leaves no room."""
    if inference_service_name_limit(seen.namespace) < _LEAST_ISVC_NAME:
        yield invalid(
            "metadata.namespace",
            Reason.NAMESPACE_NAME_TOO_LONG,
            f"with {len(seen.namespace)} characters it leaves fewer than 10 for the InferenceService's name",
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
    """A field that is known but not acted on is refused, never ignored in silence."""
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
    """Modes, kinds and feature tokens are fixed words (the schema speaks first; here for files that never met one)."""
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


# -- the list of adapters -------------------------------------------------------------------------------------------


@rule(
    AIM_SERVICE,
    reason=Reason.ADAPTER_DECLARED_TWICE,
    fields="spec.adapters[i]",
    refused=Example("spec: {adapters: [{name: medical, kind: AIMArtifact}, {name: medical, kind: AIMArtifact}]}"),
    passes=Example("spec: {adapters: [{name: medical, kind: AIMArtifact}, {name: legal, kind: AIMArtifact}]}"),
    when=("adapters",),
)
def adapter_declared_twice(seen: ServiceSeen) -> Outputs:
    """An adapter is declared once (the schema's map key speaks first)."""
    if len({ref.name for ref in seen.refs}) == len(seen.refs):
        return
    first: dict[tuple[str, str], int] = {}
    for ref in seen.refs:
        earlier = first.setdefault((ref.kind, ref.name), ref.index)
        if earlier != ref.index:
            detail = f"spec.adapters[{earlier}] declares the same adapter"
            error = FieldError(
                f"spec.adapters[{ref.index}]",
                Reason.ADAPTER_DECLARED_TWICE,
                Cause.DUPLICATE,
                detail,
                ref.name,
                "remove one",
            )
            yield Finding(error, subject=ref.name)


@rule(
    AIM_SERVICE,
    reason=Reason.TOO_MANY_ADAPTERS,
    fields="spec.adapters",
    refused=Example("spec: {adapters: !repeat {count: 65, name: adapter, kind: AIMArtifact}}"),
    passes=Example("spec: {adapters: [{name: medical, kind: AIMArtifact}]}"),
    when=("adapters",),
)
def too_many_adapters(seen: ServiceSeen) -> Outputs:
    """A service declares at most 64 adapters."""
    count = len(view.items(seen.spec, "adapters"))
    if count > MAX_ADAPTERS:
        detail = f"{count} adapters are declared, at most {MAX_ADAPTERS} are possible"
        hint = "spread them over several services of the same profile: they share the base"
        yield Finding(FieldError("spec.adapters", Reason.TOO_MANY_ADAPTERS, Cause.TOO_MANY, detail, count, hint))


@rule(
    AIM_SERVICE,
    reason=Reason.MAX_RANK_IN_STATIC_MODE,
    fields="spec.adapterRuntime.maxRank",
    refused=Example("spec: {adapterMode: static, adapterRuntime: {maxRank: 64}}"),
    passes=Example("spec: {adapterMode: dynamic, adapterRuntime: {maxRank: 64}}"),
    when=("adapterRuntime",),
)
def max_rank_in_static_mode(seen: ServiceSeen) -> Outputs:
    """In static mode the ceiling follows from the declared adapters, so it cannot be set."""
    value = view.dig(seen.spec, "adapterRuntime", "maxRank")
    if value is not None and not seen.dynamic:
        yield invalid(
            "spec.adapterRuntime.maxRank",
            Reason.MAX_RANK_IN_STATIC_MODE,
            "in static mode the ceiling is the largest rank of the declared adapters and cannot be set",
            "remove it; only adapterMode: dynamic takes one",
            value,
        )


@rule(
    AIM_SERVICE,
    reason=Reason.MAX_RANK_UNSUPPORTED,
    fields="spec.adapterRuntime.maxRank",
    refused=Example("spec: {adapterMode: dynamic, adapterRuntime: {maxRank: 48}}"),
    passes=Example("spec: {adapterMode: dynamic, adapterRuntime: {maxRank: 64}}"),
    when=("adapterRuntime",),
)
def max_rank_unsupported(seen: ServiceSeen) -> Outputs:
    """The ceiling is one of the values that engines start with."""
    value = view.dig(seen.spec, "adapterRuntime", "maxRank")
    if value is not None and value not in RANK_CEILINGS:
        yield Finding(
            FieldError(
                "spec.adapterRuntime.maxRank",
                Reason.MAX_RANK_UNSUPPORTED,
                Cause.NOT_SUPPORTED,
                f"supported values: {SUPPORTED_RANKS}",
                value,
                next_supported(value),
            )
        )


@rule(
    AIM_SERVICE,
    reason=Reason.RUNTIME_CONFIG_MAX_RANK_UNSUPPORTED,
    fields="spec.runtimeConfigName",
    basis=Basis.WORLD,
    refused=Example(
        "spec: {adapterMode: dynamic}",
        world="[{kind: AIMRuntimeConfig, metadata: {name: default}, spec: {adapterRuntime: {maxRank: 48}}}]",
    ),
    passes=Example(
        "spec: {adapterMode: dynamic, adapterRuntime: {maxRank: 64}}",
        world="[{kind: AIMRuntimeConfig, metadata: {name: default}, spec: {adapterRuntime: {maxRank: 48}}}]",
    ),
    when=("adapterMode",),
)
def runtime_config_max_rank_unsupported(seen: ServiceSeen) -> Outputs:
    """A RuntimeConfig that got past admission with a value that no engine takes serves no dynamic service."""
    if not seen.dynamic or view.dig(seen.spec, "adapterRuntime", "maxRank") is not None:
        return
    value, origin = seen.config.value("adapterRuntime", "maxRank")
    if value is not None and value not in RANK_CEILINGS:
        detail = f"{origin} sets adapterRuntime.maxRank to {value!r}; supported values: {SUPPORTED_RANKS}"
        error = FieldError(
            "spec.runtimeConfigName",
            Reason.RUNTIME_CONFIG_MAX_RANK_UNSUPPORTED,
            Cause.INVALID,
            detail,
            seen.config.name,
            "mend the RuntimeConfig, or set spec.adapterRuntime.maxRank on this service",
        )
        yield Finding(error, seen.config.looked_at)


@rule(
    AIM_SERVICE,
    reason=Reason.DEDICATED_CACHING_WITH_ADAPTERS,
    fields="spec.caching.mode",
    refused=Example("spec: {adapters: [{name: medical, kind: AIMArtifact}], caching: {mode: Dedicated}}"),
    passes=Example("spec: {adapters: [{name: medical, kind: AIMArtifact}], caching: {mode: Shared}}"),
    when=("caching",),
)
def dedicated_caching_with_adapters(seen: ServiceSeen) -> Outputs:
    """A dedicated cache makes a base of its own for the service; adapters live on the disk of the shared one."""
    if view.caching_mode(seen.new) == "Dedicated" and seen.uses_adapters:
        why = "adapters are declared" if seen.refs else "adapterMode is dynamic"
        yield invalid(
            "spec.caching.mode",
            Reason.DEDICATED_CACHING_WITH_ADAPTERS,
            f"{why}, and adapters live on the disk of a shared base",
            "use mode Shared, the default",
            view.dig(seen.spec, "caching", "mode"),
        )


@rule(
    AIM_SERVICE,
    reason=Reason.ADAPTER_DISK_ON_SERVICE,
    fields="spec.storage.adapterDiskSize, spec.storage.adapterDiskStorageClassName",
    refused=Example("spec: {storage: {adapterDiskSize: 100Gi}}"),
    passes=Example("spec: {storage: {defaultStorageClassName: fast}}"),
    when=("storage",),
)
def adapter_disk_on_service(seen: ServiceSeen) -> Outputs:
    """The adapter disk is shared by all services of a base, so no single service says what it is like."""
    for key in ("adapterDiskSize", "adapterDiskStorageClassName"):
        if view.dig(seen.spec, "storage", key) is not None:
            yield forbidden(
                f"spec.storage.{key}",
                Reason.ADAPTER_DISK_ON_SERVICE,
                "the adapter disk belongs to the base and is shared by its services",
                "set spec.adapterDisk on the base AIMArtifact, or storage in the RuntimeConfig",
            )


@rule(
    AIM_SERVICE,
    reason=Reason.MIN_REPLICAS_ABOVE_MAX,
    fields="spec.minReplicas",
    refused=Example("spec: {minReplicas: 3, maxReplicas: 2}"),
    passes=Example("spec: {minReplicas: 1, maxReplicas: 2}"),
    when=("minReplicas",),
)
def min_replicas_above_max(seen: ServiceSeen) -> Outputs:
    """The least number of replicas does not exceed the greatest."""
    low, high = view.integer(seen.spec, "minReplicas"), view.integer(seen.spec, "maxReplicas")
    if low is not None and high is not None and low > high:
        yield invalid(
            "spec.minReplicas", Reason.MIN_REPLICAS_ABOVE_MAX, f"is above spec.maxReplicas {high}", "lower it", low
        )


@rule(
    AIM_SERVICE,
    reason=(Reason.ENV_RESERVED, Reason.ENV_UNUSABLE),
    fields="spec.env[i].name, spec.profileOverrides.containerEnv[i].name, spec.profileOverrides.engineEnv[name], "
    "spec.env[i].valueFrom, spec.caching.env[i]",
    refused=Example("spec: {env: [{name: PYTHONPATH, value: /opt}, {name: TOKEN, value: x, valueFrom: {}}]}"),
    passes=Example("spec: {env: [{name: VLLM_LOGGING_LEVEL, value: DEBUG}]}"),
    when=("caching", "env", "profileOverrides"),
)
def env_reserved(seen: ServiceSeen) -> Outputs:
    """KServe gives a few variables of the server container a meaning of its own, and pods do not take every entry."""
    yield from unusable_env_findings(seen.new, "spec", "env")
    if "caching" in seen.spec:
        yield from unusable_env_findings(seen.new, "spec", "caching", "env", names=False)
    if not RESERVED_ENV.isdisjoint(seen.env):
        yield from reserved_env_findings(env_names(seen.new, "spec", "env"))
    if "profileOverrides" not in seen.spec:
        return
    yield from unusable_env_findings(seen.new, "spec", "profileOverrides", "containerEnv")
    yield from reserved_env_findings(env_names(seen.new, "spec", "profileOverrides", "containerEnv"))
    yield from reserved_env_findings(env_keys(seen.new, "spec", "profileOverrides", "engineEnv"))
    for index, source in enumerate(view.items(seen.spec, "profileOverrides", "modelSources")):
        prefix = f"spec.profileOverrides.modelSources[{index}]."
        yield from reserved_env_findings((prefix + path, name) for path, name in env_names(source, "env"))


@rule(
    AIM_SERVICE,
    reason=(Reason.SOURCE_UNUSABLE, Reason.SIZE_UNUSABLE),
    fields="spec.profileOverrides.modelSources[i], spec.model.custom.modelSources[i]",
    refused=Example("spec: {profileOverrides: {modelSources: [{sourceUri: 'hf://Qwen3-8B'}]}}"),
    passes=Example("spec: {profileOverrides: {modelSources: [{sourceUri: 'hf://Qwen/Qwen3-8B@main'}]}}"),
    when=("profileOverrides", "model"),
)
def model_source_unusable(seen: ServiceSeen) -> Outputs:
    """A source that cannot be parsed can never be downloaded."""
    yield from source_findings(seen.new, "spec", "profileOverrides", "modelSources")
    yield from source_findings(seen.new, "spec", "model", "custom", "modelSources")


# -- the version of the request -------------------------------------------------------------------------------------


@rule(
    AIM_SERVICE,
    reason=Reason.ADAPTERS_WITHOUT_PROFILE,
    fields="spec.profile",
    basis=Basis.REQUEST,
    refused=Example(
        "spec: {profile: null, model: {name: qwen3-8b}, adapters: [{name: medical, kind: AIMArtifact}]}",
        version="v1alpha2",
    ),
    passes=Example(
        "spec: {profile: null, model: {name: qwen3-8b}, adapters: [{name: medical, kind: AIMArtifact}]}",
        version="v1alpha1",
    ),
    when=("adapters",),
)
def adapters_without_profile(seen: ServiceSeen) -> Outputs:
    """In v1alpha2 adapters need a profile, which tells whether the image can serve them."""
    if seen.request_version == "v1alpha2" and seen.refs and not view.uses_profile_pipeline(seen.new):
        yield required(
            "spec.profile",
            Reason.ADAPTERS_WITHOUT_PROFILE,
            "adapters are declared, and in v1alpha2 they need a profile",
            "set spec.profile.name, or write the service as aim.eai.amd.com/v1alpha1",
        )


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
    """Templates end with v1alpha1: an object that has one keeps it, none gets one through v1alpha2."""
    added = _present(seen.spec, "template") and not _present(seen.old_spec, "template")
    if seen.request_version == "v1alpha2" and added and not _present(seen.spec, "profile"):
        yield forbidden(
            "spec.template",
            Reason.TEMPLATE_IN_V1ALPHA2,
            "a template cannot be added through v1alpha2",
            "use spec.profile, or write the service as aim.eai.amd.com/v1alpha1",
        )


# -- what never changes ---------------------------------------------------------------------------------------------


@rule(
    AIM_SERVICE,
    reason=Reason.ADAPTER_MODE_IMMUTABLE,
    fields="spec.adapterMode",
    basis=Basis.TRANSITION,
    refused=Example("spec: {adapterMode: dynamic}", old="spec: {adapterMode: static}"),
    passes=Example("spec: {adapterMode: static, replicas: 2}", old="spec: {adapterMode: null}"),
    when=("adapterMode",),
)
def adapter_mode_changed(seen: ServiceSeen) -> Outputs:
    """The mode is a start-up property of the pod."""
    was_dynamic = seen.old_spec.get("adapterMode") == "dynamic"
    if was_dynamic != seen.dynamic:
        was, now = ("dynamic", "static") if was_dynamic else ("static", "dynamic")
        yield invalid(
            "spec.adapterMode",
            Reason.ADAPTER_MODE_IMMUTABLE,
            f"the mode is fixed at creation and is {was}",
            f"delete the service and create it again with adapterMode: {now}",
            now,
        )


@rule(
    AIM_SERVICE,
    reason=Reason.STATIC_ADAPTERS_IMMUTABLE,
    fields="spec.adapters",
    basis=Basis.TRANSITION,
    refused=Example(
        "spec: {adapters: [{name: medical, kind: AIMArtifact}, {name: legal, kind: AIMArtifact}]}",
        old="spec: {adapters: [{name: medical, kind: AIMArtifact}]}",
    ),
    passes=Example(
        "spec: {adapters: [{name: legal, kind: AIMArtifact}, {name: medical, kind: AIMArtifact}]}",
        old="spec: {adapters: [{name: medical, kind: AIMArtifact}, {name: legal, kind: AIMArtifact}]}",
    ),
    when=("adapters",),
)
def static_adapters_changed(seen: ServiceSeen) -> Outputs:
    """A static service loads its adapters at start; compared as a set, so that order is free."""
    if seen.dynamic or seen.old_spec.get("adapterMode") == "dynamic":
        return
    if seen.old_spec.get("adapters") == seen.spec.get("adapters"):
        return
    was = {(ref.kind, ref.name) for ref in view.adapter_refs(seen.old)}
    now = {(ref.kind, ref.name) for ref in seen.refs}
    if was == now:
        return
    added, removed = sorted(name for _, name in now - was), sorted(name for _, name in was - now)
    told = " and ".join(
        f"{quoted(names[:3])}{' …' if len(names) > 3 else ''} {'is' if len(names) == 1 else 'are'} {verb}"
        for names, verb in ((added, "added"), (removed, "removed"))
        if names
    )
    yield forbidden(
        "spec.adapters",
        Reason.STATIC_ADAPTERS_IMMUTABLE,
        f"in static mode the adapters are fixed at creation; {told}",
        "create another service with adapterMode: dynamic, where the list can be edited at any time",
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
    """What a service serves is its identity."""
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
    """The cache is chosen at creation; Auto and Always mean Shared, Never means Dedicated."""
    if seen.old_spec.get("caching") == seen.spec.get("caching"):
        return
    was, now = view.caching_mode(seen.old), view.caching_mode(seen.new)
    if was != now:
        yield invalid(
            "spec.caching.mode",
            Reason.CACHING_MODE_IMMUTABLE,
            f"the caching mode is fixed at creation and is {was}",
            "create another service with the other mode",
            view.dig(seen.spec, "caching", "mode"),
        )


# -- relations ------------------------------------------------------------------------------------------------------


@rule(
    AIM_SERVICE,
    reason=(Reason.FEATURE_MISSING, Reason.FEATURE_SCALE_ONLY),
    fields="spec.profileOverrides.features",
    basis=Basis.WORLD,
    refused=Example(
        "spec: {adapters: [{name: medical, kind: AIMArtifact}]}",
        world="[{kind: AIMClusterProfile, metadata: {name: qwen3-8b-mi300x}, spec: {features: []}}]",
    ),
    passes=Example(
        "spec: {adapters: [{name: medical, kind: AIMArtifact}], profileOverrides: {features: [adapters]}}",
        world="[{kind: AIMClusterProfile, metadata: {name: qwen3-8b-mi300x}, spec: {features: []}}]",
    ),
    when=("adapters", "adapterMode"),
)
def feature_missing(seen: ServiceSeen) -> Outputs:
    """The effective profile must advertise that its image serves adapters; we never infer it from the intent."""
    reference = seen.pipeline.profile
    if not seen.uses_adapters or not isinstance(reference, Resolved) or seen.feature == FEATURE_ADAPTERS:
        return
    path, who = "spec.profileOverrides.features", f'{reference.kind.kind} "{reference.name}"'
    if seen.feature is None:
        why = "adapters are declared" if seen.refs else "adapterMode is dynamic"
        yield required(
            path,
            Reason.FEATURE_MISSING,
            f'{why}, but {who} does not advertise the feature "adapters"',
            'if its image is AIM 0.13 or newer, set spec.profileOverrides.features: ["adapters"]',
            reference.looked_at,
        )
    elif seen.dynamic:
        yield required(
            path,
            Reason.FEATURE_SCALE_ONLY,
            f'adapterMode is dynamic, but {who} advertises "adapters-scale-only", which allows static mode only',
            'use adapterMode: static, or set spec.profileOverrides.features: ["adapters"] if its image can do more',
            reference.looked_at,
        )


@rule(
    AIM_SERVICE,
    reason=Reason.MODEL_SOURCES_AMBIGUOUS,
    fields="spec.profileOverrides.modelSources, spec.profile.name or spec.model.name",
    basis=Basis.WORLD,
    refused=Example(
        "spec: {adapters: [{name: medical, kind: AIMArtifact}], "
        "profileOverrides: {modelSources: [{sourceUri: 'hf://Qwen/Qwen3-8B'}, {sourceUri: 'hf://Qwen/Qwen3-4B'}]}}"
    ),
    passes=Example(
        "spec: {adapters: [{name: medical, kind: AIMArtifact}], "
        "profileOverrides: {modelSources: [{sourceUri: 'hf://Qwen/Qwen3-8B'}]}}"
    ),
    when=("adapters", "adapterMode"),
)
def model_sources_ambiguous(seen: ServiceSeen) -> Outputs:
    """Adapters bind to one base; several model sources leave open which."""
    if not seen.uses_adapters or seen.base.state != "ambiguous":
        return
    count = seen.base.count
    rests_on = seen.pipeline.looked_at
    if view.items(seen.spec, "profileOverrides", "modelSources"):
        path, value, rests_on = "spec.profileOverrides.modelSources", None, ()
        detail = f"{count} model sources leave open which base the adapters belong to"
    elif seen.pipeline.kind == "profile":
        path, value = "spec.profile.name", view.text(seen.spec, "profile", "name")
        detail = f"this profile has {count} model sources, which leaves open the base that the adapters belong to"
    else:
        path, value = "spec.model.name", view.text(seen.spec, "model", "name")
        detail = f"this model has {count} model sources, which leaves open the base that the adapters belong to"
    hint = "serve adapters with exactly one model source"
    if seen.pipeline.kind == "profile":
        hint += "; spec.profileOverrides.modelSources replaces the profile's list"
    yield Finding(FieldError(path, Reason.MODEL_SOURCES_AMBIGUOUS, Cause.INVALID, detail, value, hint), rests_on)


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
    """A template belongs to one model (its `modelName` never changes)."""
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
            f'this template is for the model "{other}", the service names "{model}"',
            named,
            "choose a template of the model, or leave the choice open",
        )
        yield Finding(error, template.looked_at)


_MEDICAL = "spec: {adapters: [{name: medical, kind: AIMArtifact}]}"
_DYNAMIC_MEDICAL = "spec: {adapterMode: dynamic, adapters: [{name: medical, kind: AIMArtifact}]}"
_OWN = "{kind: AIMArtifact, metadata: {name: medical}"


@rule(
    AIM_SERVICE,
    reason=adapter_rules.REASON_NOT_AN_ADAPTER,
    fields="spec.adapters[i].name",
    basis=Basis.WORLD,
    refused=Example("spec: {adapters: [{name: qwen3-8b-base, kind: AIMArtifact}]}"),
    passes=Example(_MEDICAL),
    when=("adapters",),
)
def adapter_not_an_adapter(seen: ServiceSeen) -> Outputs:
    """Only artifacts of type adapter are declared; the base comes from the profile or model."""
    return seen.findings_about_adapters(adapter_rules.REASON_NOT_AN_ADAPTER)


@rule(
    AIM_SERVICE,
    reason=adapter_rules.REASON_PATH_INVALID,
    fields="spec.adapters[i].name",
    basis=Basis.WORLD,
    refused=Example(_MEDICAL, world=f"[{_OWN}, status: {{adapterPath: ../medical}}}}]"),
    passes=Example(_MEDICAL, world=f"[{_OWN}, status: {{adapterPath: medical-v1}}}}]"),
    when=("adapters",),
)
def adapter_path_invalid(seen: ServiceSeen) -> Outputs:
    """The path is one directory name that the server accepts; a frozen one is read, never corrected."""
    return seen.findings_about_adapters(adapter_rules.REASON_PATH_INVALID)


@rule(
    AIM_SERVICE,
    reason=adapter_rules.REASON_PATH_DUPLICATE,
    fields="spec.adapters[i].name (the later one)",
    basis=Basis.WORLD,
    refused=Example(
        "spec: {adapters: [{name: medical, kind: AIMArtifact}, {name: legal, kind: AIMArtifact}]}",
        world="[{kind: AIMArtifact, metadata: {name: legal}, status: {adapterPath: medical}}]",
    ),
    passes=Example("spec: {adapters: [{name: medical, kind: AIMArtifact}, {name: legal, kind: AIMArtifact}]}"),
    when=("adapters",),
)
def adapter_path_duplicate(seen: ServiceSeen) -> Outputs:
    """The path is the directory and the served model's name, so it is unique within a service."""
    return seen.findings_about_adapters(adapter_rules.REASON_PATH_DUPLICATE)


@rule(
    AIM_SERVICE,
    reason=adapter_rules.REASON_INCOMPATIBLE,
    fields="spec.adapters[i].name",
    basis=Basis.WORLD,
    refused=Example(_MEDICAL, world=f"[{_OWN}, spec: {{compatibleWith: [meta-llama/Llama-3.1-8B]}}}}]"),
    passes=Example(_MEDICAL, world=f"[{_OWN}, spec: {{compatibleWith: [Qwen/Qwen3-4B, Qwen/Qwen3-8B]}}}}]"),
    when=("adapters",),
)
def adapter_incompatible(seen: ServiceSeen) -> Outputs:
    """A logical adapter names the base's model id in `compatibleWith`; judged only against a base that exists."""
    return seen.findings_about_adapters(adapter_rules.REASON_INCOMPATIBLE)


@rule(
    AIM_SERVICE,
    reason=adapter_rules.REASON_WRONG_PARENT,
    fields="spec.adapters[i].name",
    basis=Basis.WORLD,
    refused=Example(_MEDICAL, world=f"[{_OWN}, spec: {{compatibleWith: null, parentArtifact: other-base}}}}]"),
    passes=Example(_MEDICAL, world=f"[{_OWN}, spec: {{compatibleWith: null, parentArtifact: qwen3-8b-base}}}}]"),
    when=("adapters",),
)
def adapter_parent_mismatch(seen: ServiceSeen) -> Outputs:
    """An exact adapter belongs to one base artifact, by name."""
    return seen.findings_about_adapters(adapter_rules.REASON_WRONG_PARENT)


@rule(
    AIM_SERVICE,
    reason=adapter_rules.REASON_RANK_ABOVE_CEILING,
    fields="spec.adapters[i].name",
    basis=Basis.WORLD,
    refused=Example(_DYNAMIC_MEDICAL, world=f"[{_OWN}, spec: {{rank: 64}}}}]"),
    passes=Example(
        "spec: {adapterMode: dynamic, adapterRuntime: {maxRank: 64}, adapters: [{name: medical, kind: AIMArtifact}]}",
        world=f"[{_OWN}, spec: {{rank: 64}}}}]",
    ),
    when=("adapters",),
)
def adapter_rank_above_ceiling(seen: ServiceSeen) -> Outputs:
    """The container starts with one rank capacity; the message says where it comes from."""
    return seen.findings_about_adapters(adapter_rules.REASON_RANK_ABOVE_CEILING)


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
    """A RuntimeConfig named on purpose must exist; admission only warns, since it may be applied next."""
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


# -- warnings -------------------------------------------------------------------------------------------------------


@rule(
    AIM_SERVICE,
    reason=Reason.ADAPTER_ARTIFACT_NOT_FOUND,
    fields="spec.adapters[i].name",
    basis=Basis.WORLD,
    warns=True,
    refused=Example("spec: {adapters: [{name: not-yet, kind: AIMArtifact}]}"),
    passes=Example(_MEDICAL),
    when=("adapters",),
)
def adapter_not_found_yet(seen: ServiceSeen) -> Outputs:
    """A missing artifact is picked up when it appears."""
    artifacts = seen.artifacts
    absent = [ref for ref in seen.refs if artifacts[ref.name] is None]
    missing = [ref for ref in absent if possible_name(ref.name)]
    for ref in absent:
        if ref not in missing:
            detail = f'no AIMArtifact can be named "{_short(ref.name, 30)}": {NAME_WORDS}'
            yield FieldWarning(ref.path, Reason.ADAPTER_ARTIFACT_NOT_FOUND, detail, 4)
    if len(missing) > _SINGLE_WARNINGS:
        names = fit_names([ref.name for ref in missing], 60)
        yield FieldWarning(
            "spec.adapters", Reason.ADAPTER_ARTIFACT_NOT_FOUND, f"AIMArtifacts not found yet: {names}", 20
        )
        return
    for ref in missing:
        detail = f'AIMArtifact "{_short(ref.name, 35)}" not found yet; it is staged once it exists'
        yield FieldWarning(ref.path, Reason.ADAPTER_ARTIFACT_NOT_FOUND, detail, 20)


_SINGLE_WARNINGS = 3


@rule(
    AIM_SERVICE,
    reason=Reason.REFERENCE_NOT_FOUND,
    fields="spec.profile.name, spec.model.name, spec.template.name, spec.runtimeConfigName",
    basis=Basis.WORLD,
    warns=True,
    refused=Example("spec: {profile: {name: not-yet}}"),
    passes=Example("spec: {profile: {name: qwen3-8b-mi300x}}"),
    when=("profile", "model", "template", "runtimeConfigName"),
)
def reference_not_found_yet(seen: ServiceSeen) -> Outputs:
    """What a service refers to may be applied after it."""
    pipeline = seen.pipeline
    places = (
        ("spec.profile.name", pipeline.profile, ""),
        ("spec.model.name", pipeline.model, "spec.template.name"),
        ("spec.template.name", pipeline.template, "spec.model.name"),
    )
    for path, reference, other_path in places:
        if isinstance(reference, Missing):
            named = view.dig(seen.spec, *path.split(".")[1:]) is not None  # else what the other field says names it
            kinds = " or ".join(kind.kind for kind in reference.kinds)
            detail = f'no {kinds} "{_short(reference.name)}" exists yet'
            if not possible_name(reference.name):
                detail = f'nothing can be named "{_short(reference.name, 30)}": {NAME_WORDS}'
            yield FieldWarning(path if named else other_path, Reason.REFERENCE_NOT_FOUND, detail, 10)
    if seen.config.missing:
        name = seen.config.name
        detail = f'no RuntimeConfig "{_short(name, 40)}" exists yet; the service waits for it'
        if not possible_name(name):
            detail = f'nothing can be named "{_short(name, 30)}": {NAME_WORDS}'
        yield FieldWarning("spec.runtimeConfigName", Reason.REFERENCE_NOT_FOUND, detail, 10)


@rule(
    AIM_SERVICE,
    reason=(Reason.BASE_NOT_FOUND, Reason.PROFILE_NOT_DEPLOYABLE, Reason.TEMPLATE_NOT_CHOSEN),
    fields="spec.profile.name, spec.model.name",
    basis=Basis.WORLD,
    warns=True,
    refused=Example(
        _MEDICAL, world="[{kind: AIMArtifact, metadata: {name: qwen3-8b-base}, spec: {sourceUri: 'hf://a/b'}}]"
    ),
    passes=Example(_MEDICAL),
    when=("profile", "model"),
)
def base_not_found_yet(seen: ServiceSeen) -> Outputs:
    """Nothing is judged about adapters until their base exists; what can be guessed is said."""
    pipeline = seen.pipeline
    path = "spec.profile.name" if pipeline.kind == "profile" else "spec.model.name"
    if pipeline.kind == "profile" and isinstance(pipeline.profile, Resolved) and not pipeline.sources:
        yield FieldWarning(
            path, Reason.PROFILE_NOT_DEPLOYABLE, "the profile has no modelSources: there is nothing to serve", 15
        )
    elif len(pipeline.fitting) > 1 and view.text(seen.spec, "template", "name") is None:
        names = ", ".join(
            _short(view.text(template, "metadata", "name") or "?", 18) for template in pipeline.fitting[:2]
        )
        names += " …" if len(pipeline.fitting) > 2 else ""
        cure = "name one" if seen.old is None else "set the model's default"  # a template is named at creation only
        detail = f"{len(pipeline.fitting)} templates fit ({names}): none is chosen; {cure}"
        yield FieldWarning("spec.template.name", Reason.TEMPLATE_NOT_CHOSEN, detail, 15)
    elif without_template(pipeline):
        yield FieldWarning("spec.template.name", Reason.TEMPLATE_NOT_CHOSEN, NO_TEMPLATE, 15)
    elif seen.refs and seen.base.state == "guessed":
        detail = f"no base artifact for {_short(seen.base.model_id or '', 40)} yet; adapters are judged once it exists"
        yield FieldWarning(path, Reason.BASE_NOT_FOUND, detail, 60)


@rule(
    AIM_SERVICE,
    reason=Reason.ADAPTER_PROBABLY_INCOMPATIBLE,
    fields="spec.adapters[i].name",
    basis=Basis.WORLD,
    warns=True,
    refused=Example(
        _MEDICAL,
        world="[{kind: AIMArtifact, metadata: {name: qwen3-8b-base}, spec: {sourceUri: 'hf://a/b'}}, "
        f"{_OWN}, spec: {{compatibleWith: [meta-llama/Llama-3.1-8B]}}}}]",
    ),
    passes=Example(_MEDICAL),
    when=("adapters",),
)
def adapter_probably_incompatible(seen: ServiceSeen) -> Outputs:
    """Without a base artifact the profile's source only suggests the model id: a warning, not a refusal."""
    if seen.base.state != "guessed" or not seen.base.model_id:
        return
    for ref in seen.refs:
        artifact = seen.artifacts.get(ref.name)
        if artifact is None or isinstance(artifact, Unreadable):
            continue
        fits = [str(name) for name in view.items(artifact, "spec", "compatibleWith")]
        if fits and seen.base.model_id not in fits:
            detail = f"it fits {_short(fits[0], 30)}; the model source suggests {_short(seen.base.model_id, 30)}"
            yield FieldWarning(ref.path, Reason.ADAPTER_PROBABLY_INCOMPATIBLE, detail, 5)


@rule(
    AIM_SERVICE,
    reason=(
        Reason.CEILING_CHANGE_ROLLS,
        Reason.CEILING_CHANGE_DEFERRED,
        Reason.PROFILE_CHANGE_ROLLS,
        Reason.AUTOSCALING_CHANGE_ROLLS,
    ),
    fields="spec.adapterRuntime.maxRank, spec.profile, spec.minReplicas",
    basis=Basis.TRANSITION,
    warns=True,
    refused=Example(
        "{spec: {adapterMode: dynamic, adapterRuntime: {maxRank: 64}}, status: {runtime: {currentReplicas: 2}}}",
        old="{spec: {adapterMode: dynamic}, status: {runtime: {currentReplicas: 2}}}",
    ),
    passes=Example(
        "{spec: {adapterMode: dynamic, adapterRuntime: {maxRank: 32}}, status: {runtime: {currentReplicas: 2}}}",
        old="{spec: {adapterMode: dynamic}, status: {runtime: {currentReplicas: 2}}}",
    ),
    when=(
        "adapterMode",
        "adapterRuntime",
        "maxReplicas",
        "minReplicas",
        "profile",
        "profileOverrides",
        "runtimeConfigName",
    ),
)
def change_rolls_pods(seen: ServiceSeen) -> Outputs:
    """A change of the container's env or of the deployment mode restarts every pod."""
    before = seen.before if seen.pods else None
    if before is None:
        return
    rolls = f"rolls {seen.pods} pod{'s' if seen.pods != 1 else ''}"
    pods = f"{rolls} ({seen.context.rollout})"
    if seen.dynamic and seen.pipeline.kind == before.pipeline.kind:
        was = seen.reported_ceiling or before.ceiling.value
        if seen.ceiling.deferred and not seen.ceiling.invalid_because:
            waits = fit_names(seen.ceiling.unresolved, 30)
            detail = f"lowering from {was} to {seen.ceiling.asked.value} waits for {waits}, then {rolls}"
            yield FieldWarning("spec.adapterRuntime.maxRank", Reason.CEILING_CHANGE_DEFERRED, detail, 0)
        elif was is not None and seen.ceiling.value is not None and was != seen.ceiling.value:
            detail = f"changing the ceiling from {was} to {seen.ceiling.value} {pods}"
            yield FieldWarning("spec.adapterRuntime.maxRank", Reason.CEILING_CHANGE_ROLLS, detail, 0)
    for key in ("profile", "profileOverrides"):
        if seen.changed(key):
            yield FieldWarning(f"spec.{key}", Reason.PROFILE_CHANGE_ROLLS, f"this change {pods}", 0)
            break
    if _autoscales(seen.old_spec) != _autoscales(seen.spec):
        turned = "on" if _autoscales(seen.spec) else "off"
        yield FieldWarning(
            "spec.minReplicas", Reason.AUTOSCALING_CHANGE_ROLLS, f"turning autoscaling {turned} {pods}", 0
        )


@rule(
    AIM_SERVICE,
    reason=Reason.MORE_ADAPTERS_THAN_SLOTS,
    fields="spec.adapters",
    warns=True,
    refused=Example("spec: {adapters: !repeat {count: 9, name: adapter, kind: AIMArtifact}}"),
    passes=Example("spec: {adapters: !repeat {count: 8, name: adapter, kind: AIMArtifact}}"),
    when=("adapters",),
)
def more_adapters_than_slots(seen: ServiceSeen) -> Outputs:
    """The GPU holds eight adapters at a time; more are swapped in and out, and requests wait for each other."""
    count = len(seen.refs)
    if count > GPU_ADAPTER_SLOTS:
        detail = (
            f"{count} adapters share {GPU_ADAPTER_SLOTS} GPU slots: requests for others wait while one is swapped in"
        )
        yield FieldWarning("spec.adapters", Reason.MORE_ADAPTERS_THAN_SLOTS, detail, 40)


@rule(
    AIM_SERVICE,
    reason=Reason.IMAGE_TOO_OLD,
    fields="spec.profile.name, spec.model.image",
    basis=Basis.WORLD,
    warns=True,
    refused=Example(
        _MEDICAL,
        world="[{kind: AIMClusterProfile, metadata: {name: qwen3-8b-mi300x}, spec: {image: 'aim-qwen:0.12.1'}}]",
    ),
    passes=Example(_MEDICAL),
    when=("adapters", "adapterMode"),
)
def image_predates_adapters(seen: ServiceSeen) -> Outputs:
    """Images before 0.13 ignore the adapter settings: bytes are staged, nothing is loaded."""
    image = seen.pipeline.image
    if seen.uses_adapters and image is not None and image_too_old(image):
        path = "spec.profile.name" if seen.pipeline.kind == "profile" else "spec.model"
        tag = _short(image_tag(image), 20)
        yield FieldWarning(
            path, Reason.IMAGE_TOO_OLD, f"image tag {tag} is older than 0.13: it will load no adapter", 3
        )


@rule(
    AIM_SERVICE,
    reason=Reason.ENGINE_ARGS_SWITCH_ADAPTERS_OFF,
    fields="spec.profileOverrides.engineArgs, spec.env[i].value, spec.profile.name",
    basis=Basis.WORLD,
    warns=True,
    refused=Example(
        "spec: {profileOverrides: {engineArgs: {enable-lora: false}}, adapters: [{name: medical, kind: AIMArtifact}]}"
    ),
    passes=Example(
        "spec: {profileOverrides: {engineArgs: {max-lora-rank: 32}}, adapters: [{name: medical, kind: AIMArtifact}]}"
    ),
    when=("adapters", "adapterMode"),
)
def engine_args_switch_adapters_off(seen: ServiceSeen) -> Outputs:
    """The engine does as its arguments say: bytes are staged, nothing is loaded."""
    if seen.uses_adapters and (found := switches_adapters_off(seen)) is not None:
        field, key = found
        where = "the profile's engineArgs" if field == "spec.profile.name" else "it"
        detail = f'"{_short(key, 20)}" in {where} switches the adapters of the engine off: it will load none'
        yield FieldWarning(field, Reason.ENGINE_ARGS_SWITCH_ADAPTERS_OFF, detail, 3)


@rule(
    AIM_SERVICE,
    reason=(
        Reason.FIELD_DEPRECATED,
        Reason.REPLICAS_IGNORED,
        Reason.ENV_HAS_NO_EFFECT,
        Reason.ACCELERATOR_MODEL_UNFAMILIAR,
    ),
    fields="spec.cacheModel, spec.replicas, spec.env[i].name, spec.caching.env[i].name, "
    "spec.profileOverrides.containerEnv[i].name, spec.profileOverrides.acceleratorModel",
    warns=True,
    refused=Example("spec: {cacheModel: true}"),
    passes=Example("spec: {caching: {mode: Shared}}"),
    when=("cacheModel", "caching", "minReplicas", "maxReplicas", "env", "profileOverrides"),
)
def setting_without_effect(seen: ServiceSeen) -> Outputs:
    """What is accepted but has no effect is said."""
    if view.dig(seen.spec, "cacheModel") is not None:
        yield FieldWarning(
            "spec.cacheModel", Reason.FIELD_DEPRECATED, "deprecated and ignored; use spec.caching.mode", 70
        )
    yield from _replicas_ignored(seen.spec)
    for path, name in (
        *((f"spec.env[{index}].name", name) for index, name in enumerate(seen.env)),
        *env_names(seen.new, "spec", "profileOverrides", "containerEnv"),
    ):
        if name in PREDICTOR_ENV or (seen.uses_adapters and name.startswith(ADAPTER_ENV_PREFIX)):
            detail = f"{_short(name, 40)} is always set for the server; this has no effect"
            yield FieldWarning(path, Reason.ENV_HAS_NO_EFFECT, detail, 45)
    for path, name in env_names(seen.new, "spec", "caching", "env"):
        if not job_env_allowed(name):
            detail = f"{_short(name, 40)} has no effect: download Jobs take credentials and tuning only"
            yield FieldWarning(path, Reason.ENV_HAS_NO_EFFECT, detail, 45)
    if "profileOverrides" in seen.spec:
        overrides = view.mapping(seen.spec, "profileOverrides")
        model = view.text(overrides, "acceleratorModel")
        vendor = view.text(overrides, "acceleratorVendor") or view.text(view.spec_of(seen.profile), "acceleratorVendor")
        yield from unfamiliar_accelerator("spec.profileOverrides.acceleratorModel", model, vendor)


# -- helpers --------------------------------------------------------------------------------------------------------


def _present(holder: Json, key: str) -> bool:
    """Whether a field is given; `null` counts as absent, `{}` as given."""
    return holder.get(key) is not None


def _short(text_: str, room: int = 50) -> str:
    """Cut a name so that a warning stays on its line."""
    return text_ if len(text_) <= room else f"{text_[: room - 1]}…"


def _replicas_ignored(spec: Json) -> Iterable[FieldWarning]:
    """`replicas` counts only where neither bound is given (docs/contract.md, Replicas); the schema fills in 1."""
    replicas, low, high = (view.integer(spec, key) for key in ("replicas", "minReplicas", "maxReplicas"))
    least = 1 if low is None else low
    if replicas in (None, 1) or (low is None and high is None):
        return
    if _autoscales(spec):
        detail = "ignored: minReplicas and maxReplicas differ, so the number of replicas is scaled"
        yield FieldWarning("spec.replicas", Reason.REPLICAS_IGNORED, detail, 50)
    elif replicas != least:
        detail = f"ignored: minReplicas and maxReplicas fix the number of replicas at {least}"
        yield FieldWarning("spec.replicas", Reason.REPLICAS_IGNORED, detail, 50)


def _template(spec: Json) -> tuple[str | None, bool] | None:
    template = view.dig(spec, "template")
    if template is None:
        return None
    return view.text(template, "name"), view.dig(template, "allowUnoptimized") is True


def _autoscales(spec: Json) -> bool:
    """Whether replicas follow the load: the bounds differ after their defaults (docs/contract.md, Replicas)."""
    if "minReplicas" not in spec and "maxReplicas" not in spec:
        return False
    low, high = view.integer(spec, "minReplicas"), view.integer(spec, "maxReplicas")
    if low is None and high is None:
        return False
    least = 1 if low is None else low
    return least != (least if high is None else high)
