"""Warnings about an AIMService that is accepted (docs/contract.md, Services, Admission)."""

from __future__ import annotations

from collections.abc import Iterable

from api import view
from api.errors import FieldWarning
from api.kinds import AIM_SERVICE
from api.names import (
    GPU_ADAPTER_SLOTS,
)
from api.reasons import Reason
from api.view import Json
from rules.engine_args import switches_adapters_off
from rules.environment import ADAPTER_ENV_PREFIX, PREDICTOR_ENV, env_names
from rules.pipeline import NO_TEMPLATE, without_template
from rules.references import Missing, Resolved, Unreadable
from rules.registry import Basis, Example, Output, rule
from rules.seen import ServiceSeen
from rules.shared import (
    env_without_effect_in_jobs,
    image_tag,
    image_too_old,
    not_found_yet,
    possible_name,
    present,
    short,
    unfamiliar_accelerator,
)
from rules.suggest import fit_names

Outputs = Iterable[Output]

_MEDICAL = "spec: {adapters: [{name: medical, kind: AIMArtifact}]}"
_OWN = "{kind: AIMArtifact, metadata: {name: medical}"
_SINGLE_WARNINGS = 3


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
    """A declared artifact may be applied later; the adapter is staged once it exists."""
    artifacts = seen.artifacts
    absent = [ref for ref in seen.refs if artifacts[ref.name] is None]
    possible = [ref for ref in absent if possible_name(ref.name)]
    for ref in absent:
        if ref not in possible:
            yield not_found_yet(ref.path, "AIMArtifact", ref.name, reason=Reason.ADAPTER_ARTIFACT_NOT_FOUND, weight=4)
    if len(possible) > _SINGLE_WARNINGS:
        names = fit_names([ref.name for ref in possible], 60)
        detail = f"these AIMArtifacts do not exist yet: {names}"
        yield FieldWarning("spec.adapters", Reason.ADAPTER_ARTIFACT_NOT_FOUND, detail, 20)
        return
    for ref in possible:
        then = "; it is staged once it does"
        yield not_found_yet(
            ref.path, "AIMArtifact", ref.name, reason=Reason.ADAPTER_ARTIFACT_NOT_FOUND, then=then, room=35
        )


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
    """A profile, model, template or RuntimeConfig that the service names may be applied after it."""
    pipeline = seen.pipeline
    places = (
        ("spec.profile.name", pipeline.profile, ""),
        ("spec.model.name", pipeline.model, "spec.template.name"),
        ("spec.template.name", pipeline.template, "spec.model.name"),
    )
    for path, reference, other_path in places:
        if isinstance(reference, Missing):
            named = view.dig(seen.spec, *path.split(".")[1:]) is not None  # else the object of the other field names it
            kinds = " or ".join(kind.kind for kind in reference.kinds)
            yield not_found_yet(path if named else other_path, kinds, reference.name, weight=10)
    if seen.config.missing:
        then = "; the service waits for it"
        yield not_found_yet("spec.runtimeConfigName", "RuntimeConfig", seen.config.name, then=then, room=40, weight=10)


@rule(
    AIM_SERVICE,
    reason=Reason.PROFILE_NOT_DEPLOYABLE,
    fields="spec.profile.name",
    basis=Basis.WORLD,
    warns=True,
    refused=Example(
        "spec: {profile: {name: qwen3-8b-mi300x}}",
        world="[{kind: AIMClusterProfile, metadata: {name: qwen3-8b-mi300x}, spec: {modelSources: []}}]",
    ),
    passes=Example("spec: {profile: {name: qwen3-8b-mi300x}}"),
    when=("profile", "model"),
)
def profile_not_deployable(seen: ServiceSeen) -> Outputs:
    """A profile without model sources only describes a model, so there is nothing to serve."""
    pipeline = seen.pipeline
    if pipeline.kind == "profile" and isinstance(pipeline.profile, Resolved) and not pipeline.sources:
        detail = "the profile lists no modelSources, so there is nothing to serve"
        yield FieldWarning("spec.profile.name", Reason.PROFILE_NOT_DEPLOYABLE, detail, 15)


@rule(
    AIM_SERVICE,
    reason=Reason.TEMPLATE_NOT_CHOSEN,
    fields="spec.template.name",
    basis=Basis.WORLD,
    warns=True,
    refused=Example(
        "spec: {profile: null, model: {name: qwen3-8b}}",
        world="[{kind: AIMServiceTemplate, metadata: {name: qwen3-8b-throughput}, spec: {modelName: qwen3-8b}}]",
        version="v1alpha1",
    ),
    passes=Example(
        "spec: {profile: null, model: {name: qwen3-8b}, template: {name: qwen3-8b-latency}}",
        world="[{kind: AIMServiceTemplate, metadata: {name: qwen3-8b-throughput}, spec: {modelName: qwen3-8b}}]",
        version="v1alpha1",
    ),
    when=("profile", "model"),
)
def template_not_chosen(seen: ServiceSeen) -> Outputs:
    """A template is chosen automatically only if exactly one fits the model."""
    detail = _why_no_template(seen)
    if detail is not None:
        yield FieldWarning("spec.template.name", Reason.TEMPLATE_NOT_CHOSEN, detail, 15)


def _why_no_template(seen: ServiceSeen) -> str | None:
    fitting = seen.pipeline.fitting
    if len(fitting) > 1 and view.text(seen.spec, "template", "name") is None:
        names = ", ".join(short(view.name_of(template) or "?", 18) for template in fitting[:2])
        names += " …" if len(fitting) > 2 else ""
        fix = "name one" if seen.old is None else "set the model's default"  # a template is named at creation only
        return f"{len(fitting)} templates fit ({names}), none is chosen; {fix}"
    return NO_TEMPLATE if without_template(seen.pipeline) else None


@rule(
    AIM_SERVICE,
    reason=Reason.BASE_NOT_FOUND,
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
    """The base artifact does not exist yet. Adapters are checked once it does."""
    if seen.refs and seen.base.state == "guessed" and _why_no_template(seen) is None:
        path = "spec.profile.name" if seen.pipeline.kind == "profile" else "spec.model.name"
        detail = f"no base artifact for {short(seen.base.model_id or '', 40)} yet; adapters are checked once it exists"
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
    """Without a base artifact, the model source only suggests the base's model id, so a mismatch is a warning."""
    if seen.base.state != "guessed" or not seen.base.model_id:
        return
    for ref in seen.refs:
        artifact = seen.artifacts.get(ref.name)
        if artifact is None or isinstance(artifact, Unreadable):
            continue
        fits = [str(name) for name in view.items(artifact, "spec", "compatibleWith")]
        if fits and seen.base.model_id not in fits:
            detail = (
                f'"{short(ref.name, 40)}" fits {short(fits[0], 30)}, but the model source suggests '
                f"{short(seen.base.model_id, 30)}"
            )
            yield FieldWarning(ref.path, Reason.ADAPTER_PROBABLY_INCOMPATIBLE, detail, 5)


_ROLLING = (
    "adapterMode",
    "adapterRuntime",
    "maxReplicas",
    "minReplicas",
    "profile",
    "profileOverrides",
    "runtimeConfigName",
)
_RUNS_32 = "{spec: {adapterMode: dynamic}, status: {runtime: {currentReplicas: 2}}}"


@rule(
    AIM_SERVICE,
    reason=(Reason.CEILING_CHANGE_ROLLS, Reason.CEILING_CHANGE_DEFERRED),
    fields="spec.adapterRuntime.maxRank",
    basis=Basis.TRANSITION,
    warns=True,
    refused=Example(
        "{spec: {adapterMode: dynamic, adapterRuntime: {maxRank: 64}}, status: {runtime: {currentReplicas: 2}}}",
        old=_RUNS_32,
    ),
    passes=Example(
        "{spec: {adapterMode: dynamic, adapterRuntime: {maxRank: 32}}, status: {runtime: {currentReplicas: 2}}}",
        old=_RUNS_32,
    ),
    when=_ROLLING,
)
def ceiling_change_rolls(seen: ServiceSeen) -> Outputs:
    """Another rank ceiling restarts every pod. A lower one waits until all declared adapters exist."""
    before = seen.before if seen.pods else None
    if before is None or not seen.dynamic or seen.pipeline.kind != before.pipeline.kind:
        return
    was = seen.reported_ceiling or before.ceiling.value
    if seen.ceiling.deferred and not seen.ceiling.invalid_because:
        waits = fit_names(seen.ceiling.unresolved, 30)
        detail = f"lowering from {was} to {seen.ceiling.asked.value} waits for {waits}, then {_rolls(seen)}"
        yield FieldWarning("spec.adapterRuntime.maxRank", Reason.CEILING_CHANGE_DEFERRED, detail, 0)
    elif was is not None and seen.ceiling.value is not None and was != seen.ceiling.value:
        detail = f"changing the ceiling from {was} to {seen.ceiling.value} {_rolls_how(seen)}"
        yield FieldWarning("spec.adapterRuntime.maxRank", Reason.CEILING_CHANGE_ROLLS, detail, 0)


@rule(
    AIM_SERVICE,
    reason=Reason.PROFILE_CHANGE_ROLLS,
    fields="spec.profile, spec.profileOverrides",
    basis=Basis.TRANSITION,
    warns=True,
    refused=Example(
        "{spec: {profileOverrides: {acceleratorCount: 2}}, status: {runtime: {currentReplicas: 2}}}",
        old="{spec: {profileOverrides: {acceleratorCount: 1}}, status: {runtime: {currentReplicas: 2}}}",
    ),
    passes=Example(
        "spec: {profileOverrides: {acceleratorCount: 2}}", old="spec: {profileOverrides: {acceleratorCount: 1}}"
    ),
    when=_ROLLING,
)
def profile_change_rolls(seen: ServiceSeen) -> Outputs:
    """Another profile, or other overrides, restart every pod."""
    if not seen.pods:
        return
    for key in ("profile", "profileOverrides"):
        if seen.changed(key):
            detail = f"this change {_rolls_how(seen)}"
            yield FieldWarning(f"spec.{key}", Reason.PROFILE_CHANGE_ROLLS, detail, 0)
            return


@rule(
    AIM_SERVICE,
    reason=Reason.AUTOSCALING_CHANGE_ROLLS,
    fields="spec.minReplicas, spec.maxReplicas",
    basis=Basis.TRANSITION,
    warns=True,
    refused=Example(
        "{spec: {minReplicas: 1, maxReplicas: 3}, status: {runtime: {currentReplicas: 2}}}",
        old="{spec: {replicas: 2}, status: {runtime: {currentReplicas: 2}}}",
    ),
    passes=Example(
        "{spec: {minReplicas: 1, maxReplicas: 3}, status: {runtime: {currentReplicas: 2}}}",
        old="{spec: {minReplicas: 1, maxReplicas: 2}, status: {runtime: {currentReplicas: 2}}}",
    ),
    when=_ROLLING,
)
def autoscaling_change_rolls(seen: ServiceSeen) -> Outputs:
    """Turning autoscaling on or off changes the deployment mode, which restarts every pod."""
    if seen.old is not None and seen.pods and _autoscales(seen.old_spec) != _autoscales(seen.spec):
        turned = "on" if _autoscales(seen.spec) else "off"
        detail = f"turning autoscaling {turned} {_rolls_how(seen)}"
        yield FieldWarning("spec.minReplicas", Reason.AUTOSCALING_CHANGE_ROLLS, detail, 0)


def _rolls(seen: ServiceSeen) -> str:
    return f"rolls {seen.pods} pod{'s' if seen.pods != 1 else ''}"


def _rolls_how(seen: ServiceSeen) -> str:
    return f"{_rolls(seen)} ({seen.context.rollout})"


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
    """The GPU holds eight adapters at a time. With more, adapters are swapped in and out, and requests wait."""
    count = len(seen.refs)
    if count > GPU_ADAPTER_SLOTS:
        detail = f"{count} adapters share {GPU_ADAPTER_SLOTS} GPU slots, so requests wait while one is swapped in"
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
    """Images before 0.13 ignore the adapter settings, so adapters are staged but not loaded."""
    image = seen.pipeline.image
    if seen.uses_adapters and image is not None and image_too_old(image):
        path = "spec.profile.name" if seen.pipeline.kind == "profile" else "spec.model"
        detail = f"image tag {short(image_tag(image), 20)} is older than 0.13, so no adapter will be loaded"
        yield FieldWarning(path, Reason.IMAGE_TOO_OLD, detail, 3)


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
    """Arguments can disable LoRA in the engine, so adapters are staged but not loaded."""
    if seen.uses_adapters and (found := switches_adapters_off(seen)) is not None:
        field, key = found
        where = " in the profile's engineArgs" if field == "spec.profile.name" else ""
        detail = f'"{short(key, 20)}"{where} disables LoRA in the engine, so no adapter will be loaded'
        yield FieldWarning(field, Reason.ENGINE_ARGS_SWITCH_ADAPTERS_OFF, detail, 3)


@rule(
    AIM_SERVICE,
    reason=Reason.FIELD_DEPRECATED,
    fields="spec.cacheModel",
    warns=True,
    refused=Example("spec: {cacheModel: true}"),
    passes=Example("spec: {caching: {mode: Shared}}"),
    when=("cacheModel",),
)
def cache_model_deprecated(seen: ServiceSeen) -> Outputs:
    """`spec.cacheModel` is accepted but has no effect: models are always cached."""
    if present(seen.spec, "cacheModel"):
        detail = "deprecated and ignored; use spec.caching.mode"
        yield FieldWarning("spec.cacheModel", Reason.FIELD_DEPRECATED, detail, 70)


@rule(
    AIM_SERVICE,
    reason=Reason.REPLICAS_IGNORED,
    fields="spec.replicas",
    warns=True,
    refused=Example("spec: {replicas: 5, minReplicas: 1, maxReplicas: 3}"),
    passes=Example("spec: {replicas: 5}"),
    when=("minReplicas", "maxReplicas"),
)
def replicas_ignored(seen: ServiceSeen) -> Outputs:
    """`spec.replicas` has an effect only if neither minReplicas nor maxReplicas is set."""
    spec = seen.spec
    replicas, low, high = (view.integer(spec, key) for key in ("replicas", "minReplicas", "maxReplicas"))
    least = 1 if low is None else low
    if replicas in (None, 1) or (low is None and high is None):  # the schema fills in 1
        return
    if _autoscales(spec):
        detail = "ignored: minReplicas and maxReplicas differ, so the number of replicas is scaled"
        yield FieldWarning("spec.replicas", Reason.REPLICAS_IGNORED, detail, 50)
    elif replicas != least:
        detail = f"ignored: minReplicas and maxReplicas fix the number of replicas at {least}"
        yield FieldWarning("spec.replicas", Reason.REPLICAS_IGNORED, detail, 50)


@rule(
    AIM_SERVICE,
    reason=Reason.ENV_HAS_NO_EFFECT,
    fields="spec.env[i].name, spec.profileOverrides.containerEnv[i].name, spec.caching.env[i].name",
    warns=True,
    refused=Example("spec: {env: [{name: AIM_MODEL_ID, value: x}]}"),
    passes=Example("spec: {env: [{name: VLLM_LOGGING_LEVEL, value: DEBUG}]}"),
    when=("caching", "env", "profileOverrides"),
)
def env_without_effect(seen: ServiceSeen) -> Outputs:
    """The controller always sets some variables of the server, and download Jobs use credentials and tuning only."""
    for path, name in (
        *((f"spec.env[{index}].name", name) for index, name in enumerate(seen.env)),
        *env_names(seen.new, "spec", "profileOverrides", "containerEnv"),
    ):
        if name in PREDICTOR_ENV or (seen.uses_adapters and name.startswith(ADAPTER_ENV_PREFIX)):
            detail = f"{short(name, 40)} has no effect: the controller always sets it for the server"
            yield FieldWarning(path, Reason.ENV_HAS_NO_EFFECT, detail, 45)
    yield from env_without_effect_in_jobs(seen.new, "spec", "caching", "env")


@rule(
    AIM_SERVICE,
    reason=Reason.ACCELERATOR_MODEL_UNFAMILIAR,
    fields="spec.profileOverrides.acceleratorModel",
    warns=True,
    refused=Example("spec: {profileOverrides: {acceleratorModel: MI300x}}"),
    passes=Example("spec: {profileOverrides: {acceleratorModel: MI300X}}"),
    when=("profileOverrides",),
)
def override_accelerator_unfamiliar(seen: ServiceSeen) -> Outputs:
    """The accelerator model looks like a misspelling of a known one, so no node will match."""
    overrides = view.mapping(seen.spec, "profileOverrides")
    model = view.text(overrides, "acceleratorModel")
    vendor = view.text(overrides, "acceleratorVendor") or view.text(view.spec_of(seen.profile), "acceleratorVendor")
    yield from unfamiliar_accelerator("spec.profileOverrides.acceleratorModel", model, vendor)


def _autoscales(spec: Json) -> bool:
    """Whether replicas follow the load: the bounds differ after their defaults (docs/contract.md, Replicas)."""
    if "minReplicas" not in spec and "maxReplicas" not in spec:
        return False
    low, high = view.integer(spec, "minReplicas"), view.integer(spec, "maxReplicas")
    if low is None and high is None:
        return False
    least = 1 if low is None else low
    return least != (least if high is None else high)
