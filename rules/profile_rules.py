"""What profiles and their caches may say (docs/contract.md, Profiles, Caches, Feature gate)."""

from __future__ import annotations

from collections.abc import Iterator

from api import view
from api.errors import FieldWarning
from api.kinds import AIM_CLUSTER_PROFILE, AIM_PROFILE, AIM_PROFILE_CACHE, AIM_TEMPLATE_CACHE
from api.names import FEATURE_ADAPTERS, FEATURE_ADAPTERS_SCALE_ONLY
from api.reasons import Reason
from rules.environment import env_keys, env_names, job_env_allowed
from rules.registry import Basis, Example, Output, rule
from rules.relations import BASE_REASONS, Affected, affected, naming_services
from rules.resolve import Missing, Resolved, lookup
from rules.seen import Seen, invalid, required, tidy
from rules.shared import (
    reserved_env_findings,
    source_findings,
    unfamiliar_accelerator,
    unknown_word,
    unusable_env_findings,
)

Outputs = Iterator[Output]
PROFILES = (AIM_PROFILE, AIM_CLUSTER_PROFILE)
CACHES = (AIM_PROFILE_CACHE, AIM_TEMPLATE_CACHE)

_ROLLING_FIELDS = (
    "image",
    "engine",
    "engineArgs",
    "engineEnv",
    "containerEnv",
    "resources",
    "modelSources",
    "features",
    "metric",
    "precision",
    "acceleratorModel",
    "acceleratorVendor",
    "acceleratorCount",
    "acceleratorPartitioningMode",
    "profileId",
    "serviceAccountName",
    "imagePullSecrets",
)


@rule(
    *PROFILES,
    reason=(Reason.AIM_ID_WITHOUT_SOURCES, Reason.SOURCES_WITHOUT_AIM_ID),
    fields="spec.aimId, spec.modelSources",
    refused=Example("spec: {aimId: null}"),
    passes=Example("spec: {aimId: null, modelSources: null}"),
)
def aim_id_and_sources_apart(seen: Seen) -> Outputs:
    """A deployable profile has both an aimId and modelSources; one that only describes has neither."""
    aim_id, sources = view.text(seen.spec, "aimId"), view.items(seen.spec, "modelSources")
    if aim_id and not sources:
        yield required(
            "spec.modelSources",
            Reason.AIM_ID_WITHOUT_SOURCES,
            "spec.aimId is set, and a deployable profile also says where its weights are",
            "list the model source, or remove spec.aimId",
        )
    elif sources and not aim_id:
        yield required(
            "spec.aimId",
            Reason.SOURCES_WITHOUT_AIM_ID,
            "spec.modelSources is set, and a deployable profile also has an aimId",
            "set it as the image spells it, or remove spec.modelSources",
        )


@rule(
    *PROFILES,
    reason=Reason.AIM_ID_IMMUTABLE,
    fields="spec.aimId",
    basis=Basis.TRANSITION,
    refused=Example("spec: {aimId: meta-llama/other}", old="spec: {aimId: qwen/qwen3-8b}"),
    passes=Example("spec: {aimId: qwen/qwen3-8b, acceleratorCount: 2}", old="spec: {aimId: qwen/qwen3-8b}"),
)
def aim_id_changed(seen: Seen) -> Outputs:
    """What a profile is for is its identity."""
    if (view.text(seen.old_spec, "aimId") or "") != (view.text(seen.spec, "aimId") or ""):
        yield invalid(
            "spec.aimId",
            Reason.AIM_ID_IMMUTABLE,
            "this field is fixed at creation",
            "create another profile",
            view.text(seen.spec, "aimId"),
        )


@rule(
    *PROFILES,
    reason=Reason.WORD_UNKNOWN,
    fields="spec.features[i]",
    refused=Example("spec: {features: [adaptors]}"),
    passes=Example("spec: {features: [adapters-scale-only]}"),
)
def profile_feature_unknown(seen: Seen) -> Outputs:
    """An unknown feature token makes the image refuse its profile file (the schema speaks first)."""
    for index, token in enumerate(view.items(seen.spec, "features")):
        yield from unknown_word(f"spec.features[{index}]", token, (FEATURE_ADAPTERS, FEATURE_ADAPTERS_SCALE_ONLY))


@rule(
    *PROFILES,
    reason=(Reason.ENV_RESERVED, Reason.ENV_UNUSABLE),
    fields="spec.containerEnv[i].name, spec.engineEnv[name], spec.modelSources[i].env[j].name",
    refused=Example("spec: {containerEnv: [{name: STORAGE_URI, value: x}]}"),
    passes=Example("spec: {containerEnv: [{name: VLLM_LOGGING_LEVEL, value: DEBUG}]}"),
)
def profile_env_reserved(seen: Seen) -> Outputs:
    """KServe gives a few variables of the server container a meaning of its own, and pods do not take every entry."""
    yield from unusable_env_findings(seen.new, "spec", "containerEnv")
    yield from reserved_env_findings(env_names(seen.new, "spec", "containerEnv"))
    yield from reserved_env_findings(env_keys(seen.new, "spec", "engineEnv"))
    for index, source in enumerate(view.items(seen.spec, "modelSources")):
        prefix = f"spec.modelSources[{index}]."
        yield from reserved_env_findings((prefix + path, name) for path, name in env_names(source, "env"))


@rule(
    *PROFILES,
    AIM_TEMPLATE_CACHE,
    reason=(Reason.SOURCE_UNUSABLE, Reason.SIZE_UNUSABLE),
    fields="spec.modelSources[i].sourceUri, spec.modelSources[i].size",
    refused=Example("spec: {modelSources: [{sourceUri: 'hf://Qwen3-8B'}]}"),
    passes=Example("spec: {modelSources: [{sourceUri: 'hf://Qwen/Qwen3-8B'}]}"),
)
def profile_source_unusable(seen: Seen) -> Outputs:
    """A source that cannot be parsed can never be downloaded."""
    yield from source_findings(seen.new, "spec", "modelSources")


@rule(
    *PROFILES,
    reason=(Reason.FIELD_DEPRECATED, Reason.ACCELERATOR_MODEL_UNFAMILIAR),
    fields="spec.manualSelectionOnly, spec.acceleratorModel",
    warns=True,
    refused=Example("spec: {acceleratorModel: MI300x}"),
    passes=Example("spec: {acceleratorModel: MI300X}"),
)
def profile_setting_suspect(seen: Seen) -> Outputs:
    """An accelerator model that is almost a known one finds no node; a deprecated field is said."""
    yield from unfamiliar_accelerator(
        "spec.acceleratorModel", view.text(seen.spec, "acceleratorModel"), view.text(seen.spec, "acceleratorVendor")
    )
    if view.dig(seen.spec, "manualSelectionOnly") is not None:
        yield FieldWarning(
            "spec.manualSelectionOnly", Reason.FIELD_DEPRECATED, "deprecated; use autoSelectionPolicy", 70
        )


@rule(
    *PROFILES,
    reason=(Reason.FEATURE_REMOVAL_BREAKS_SERVICES, Reason.SOURCES_EDIT_BREAKS_SERVICES, Reason.PROFILE_EDIT_ROLLS),
    fields="spec.features, spec.modelSources, spec",
    basis=Basis.WORLD,
    warns=True,
    refused=Example(
        "spec: {features: []}",
        old="spec: {features: [adapters]}",
        world="[{kind: AIMService, metadata: {name: chat}, spec: {adapters: [{name: medical, kind: AIMArtifact}]}}]",
    ),
    passes=Example(
        "spec: {features: []}",
        old="spec: {features: [adapters]}",
        world="[{kind: AIMService, metadata: {name: chat}, spec: {profileOverrides: {features: [adapters]}, "
        "adapters: [{name: medical, kind: AIMArtifact}]}}]",
    ),
)
def profile_edit_concerns_services(seen: Seen) -> Outputs:
    """Services use the profile as it is now: who loses what they need, and whose pods restart.

    A new profile may be one that services waited for, or hide the cluster's of the same name from them. Where it is
    there already (files that are judged as a whole), the services say so themselves.
    """
    is_new = seen.old is None
    if is_new and seen.world.get(seen.kind, seen.namespace or None, seen.name) is not None:
        return
    if not is_new and not any(seen.changed(key) for key in _ROLLING_FIELDS):
        return
    services = seen.world.services_by_profile(seen.namespace or None, seen.name)
    among = [entry for entry in affected(seen, services) if _uses(seen, entry.after.pipeline.profile)]
    total = len(services)
    if is_new or seen.changed("features"):
        broken = [entry for entry in among if entry.newly_broken((Reason.FEATURE_MISSING, Reason.FEATURE_SCALE_ONLY))]
        told = "a feature that it lacks is needed by" if is_new else "the removed feature is needed by"
        yield from naming_services("spec.features", Reason.FEATURE_REMOVAL_BREAKS_SERVICES, told, broken, total=total)
    if is_new or seen.changed("modelSources"):
        broken = [entry for entry in among if entry.newly_broken(BASE_REASONS)]
        told = "adapters do not fit in" if is_new else "adapters no longer fit in"
        yield from naming_services("spec.modelSources", Reason.SOURCES_EDIT_BREAKS_SERVICES, told, broken, total=total)
    rolls = [entry for entry in among if entry.after.pods and (not is_new or _hides_another(seen, entry))]
    told = "it rolls the pods of" if is_new else "this edit rolls the pods of"
    yield from naming_services("spec", Reason.PROFILE_EDIT_ROLLS, told, rolls, total=total, weight=2)


def _hides_another(seen: Seen, service: Affected) -> bool:
    """Whether the service has used a profile of the same name that says something else."""
    hidden = service.before.pipeline.profile
    if not isinstance(hidden, Resolved):
        return False
    was = view.spec_of(hidden.obj)
    return any(tidy(was.get(key)) != tidy(seen.spec.get(key)) for key in _ROLLING_FIELDS)


def _uses(seen: Seen, reference: object) -> bool:
    """Whether a service's profile is this very object (one of its namespace hides the cluster's of the same name)."""
    return isinstance(reference, Resolved) and reference.kind.kind == seen.kind.kind


@rule(
    *CACHES,
    reason=Reason.ENV_HAS_NO_EFFECT,
    fields="spec.env[i].name",
    warns=True,
    refused=Example("spec: {env: [{name: HF_HOME, value: /tmp}]}"),
    passes=Example("spec: {env: [{name: HF_TOKEN, value: from-a-secret}]}"),
)
def cache_env_without_effect(seen: Seen) -> Outputs:
    """A cache's env reaches download Jobs, which take credentials and tuning only."""
    for path, name in env_names(seen.new, "spec", "env"):
        if not job_env_allowed(name):
            detail = f"{name[:40]} has no effect: download Jobs take credentials and tuning only"
            yield FieldWarning(path, Reason.ENV_HAS_NO_EFFECT, detail, 45)


@rule(
    AIM_PROFILE_CACHE,
    reason=(Reason.REFERENCE_NOT_FOUND, Reason.ADAPTER_DISK_ON_DEDICATED_CACHE),
    fields="spec.profileName, spec.requiresAdapterDisk",
    basis=Basis.WORLD,
    warns=True,
    refused=Example("spec: {profileName: not-yet}"),
    passes=Example("spec: {profileName: qwen3-8b-mi300x, profileScope: Cluster}"),
)
def profile_cache_suspect(seen: Seen) -> Outputs:
    """The profile may come later; a dedicated cache's base serves no adapters."""
    name = view.text(seen.spec, "profileName")
    kinds = (AIM_CLUSTER_PROFILE,) if view.text(seen.spec, "profileScope") == "Cluster" else (AIM_PROFILE,)
    if name is not None and isinstance(lookup(seen.world, kinds, seen.namespace, name), Missing):
        detail = f'no {kinds[0].kind} "{name[:50]}" exists yet'
        yield FieldWarning("spec.profileName", Reason.REFERENCE_NOT_FOUND, detail, 20)
    if view.text(seen.spec, "mode") == "Dedicated" and view.dig(seen.spec, "requiresAdapterDisk") is True:
        detail = "adapters are served from shared caches only; this disk would not be used"
        yield FieldWarning("spec.requiresAdapterDisk", Reason.ADAPTER_DISK_ON_DEDICATED_CACHE, detail, 30)
