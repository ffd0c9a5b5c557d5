"""What profiles and their caches may contain (docs/contract.md, Profiles, Caches, Feature gate)."""

from __future__ import annotations

from collections.abc import Iterator

from api import view
from api.errors import FieldWarning
from api.kinds import AIM_CLUSTER_PROFILE, AIM_PROFILE, AIM_PROFILE_CACHE
from api.names import FEATURE_ADAPTERS, FEATURE_ADAPTERS_SCALE_ONLY
from api.reasons import Reason
from rules.references import Missing, Resolved, lookup
from rules.registry import Basis, Example, Output, rule
from rules.relations import BASE_REASONS, Affected, affected, naming_services
from rules.seen import Seen, invalid, required, same
from rules.shared import not_found_yet, unfamiliar_accelerator, unknown_word
from rules.world import Index

Outputs = Iterator[Output]
PROFILES = (AIM_PROFILE, AIM_CLUSTER_PROFILE)

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
    fields={Reason.AIM_ID_WITHOUT_SOURCES: "spec.modelSources", Reason.SOURCES_WITHOUT_AIM_ID: "spec.aimId"},
    refused=Example("spec: {aimId: null}"),
    passes=Example("spec: {aimId: null, modelSources: null}"),
)
def aim_id_and_sources_apart(seen: Seen) -> Outputs:
    """A deployable profile has both an aimId and modelSources. A profile that only describes a model has neither."""
    aim_id, sources = view.text(seen.spec, "aimId"), view.items(seen.spec, "modelSources")
    if aim_id and not sources:
        yield required(
            "spec.modelSources",
            Reason.AIM_ID_WITHOUT_SOURCES,
            "spec.aimId is set, and a deployable profile also lists the source of its weights",
            "list the model source, or remove spec.aimId",
        )
    elif sources and not aim_id:
        yield required(
            "spec.aimId",
            Reason.SOURCES_WITHOUT_AIM_ID,
            "spec.modelSources is set, and a deployable profile also has an aimId",
            "set it as in the image, or remove spec.modelSources",
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
    """The aimId identifies the profile, so it is fixed at creation."""
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
    """The image refuses a profile file with an unknown feature token. The schema checks this first."""
    for index, token in enumerate(view.items(seen.spec, "features")):
        yield from unknown_word(f"spec.features[{index}]", token, (FEATURE_ADAPTERS, FEATURE_ADAPTERS_SCALE_ONLY))


@rule(
    *PROFILES,
    reason=Reason.ACCELERATOR_MODEL_UNFAMILIAR,
    fields="spec.acceleratorModel",
    warns=True,
    refused=Example("spec: {acceleratorModel: MI300x}"),
    passes=Example("spec: {acceleratorModel: MI300X}"),
    when=("acceleratorModel",),
)
def profile_accelerator_unfamiliar(seen: Seen) -> Outputs:
    """The accelerator model looks like a misspelling of a known one, so no node will match."""
    yield from unfamiliar_accelerator(
        "spec.acceleratorModel", view.text(seen.spec, "acceleratorModel"), view.text(seen.spec, "acceleratorVendor")
    )


@rule(
    *PROFILES,
    reason=Reason.FIELD_DEPRECATED,
    fields="spec.manualSelectionOnly",
    warns=True,
    refused=Example("spec: {manualSelectionOnly: true}"),
    passes=Example("spec: {}"),
    when=("manualSelectionOnly",),
)
def profile_field_deprecated(seen: Seen) -> Outputs:
    """`spec.manualSelectionOnly` is deprecated: `spec.autoSelectionPolicy` replaces it."""
    if view.dig(seen.spec, "manualSelectionOnly") is not None:
        detail = "deprecated; use autoSelectionPolicy"
        yield FieldWarning("spec.manualSelectionOnly", Reason.FIELD_DEPRECATED, detail, 70)


@rule(
    *PROFILES,
    reason=(Reason.FEATURE_REMOVAL_BREAKS_SERVICES, Reason.SOURCES_EDIT_BREAKS_SERVICES, Reason.PROFILE_EDIT_ROLLS),
    fields={
        Reason.FEATURE_REMOVAL_BREAKS_SERVICES: "spec.features",
        Reason.SOURCES_EDIT_BREAKS_SERVICES: "spec.modelSources",
        Reason.PROFILE_EDIT_ROLLS: "spec",
    },
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
    """Lists the services that this edit would break, and those whose pods it would restart.

    A new profile may be one that services wait for, or may hide the cluster profile of the same name from them. If it
    exists already (files that are checked together), the rules about the services report it.
    """
    is_new = seen.old is None
    if is_new and seen.world.get(seen.kind, seen.namespace or None, seen.name) is not None:
        return
    if not is_new and not any(seen.changed(key) for key in _ROLLING_FIELDS):
        return
    services = seen.world.find(Index.SERVICES_BY_PROFILE, seen.namespace or None, seen.name)
    among = [entry for entry in affected(seen, services) if _uses(seen, entry.after.pipeline.profile)]
    total = len(services)
    if is_new or seen.changed("features"):
        broken = [entry for entry in among if entry.newly_broken((Reason.FEATURE_MISSING, Reason.FEATURE_SCALE_ONLY))]
        words = "a feature that it lacks is needed by" if is_new else "the removed feature is needed by"
        yield from naming_services("spec.features", Reason.FEATURE_REMOVAL_BREAKS_SERVICES, words, broken, total=total)
    if is_new or seen.changed("modelSources"):
        broken = [entry for entry in among if entry.newly_broken(BASE_REASONS)]
        words = "adapters do not fit in" if is_new else "adapters no longer fit in"
        yield from naming_services("spec.modelSources", Reason.SOURCES_EDIT_BREAKS_SERVICES, words, broken, total=total)
    rolls = [entry for entry in among if entry.after.pods and (not is_new or _hides_another(seen, entry))]
    words = "it rolls the pods of" if is_new else "this edit rolls the pods of"
    yield from naming_services("spec", Reason.PROFILE_EDIT_ROLLS, words, rolls, total=total, weight=2)


def _hides_another(seen: Seen, service: Affected) -> bool:
    """Whether the service has used a profile of the same name and other content."""
    hidden = service.before.pipeline.profile
    if not isinstance(hidden, Resolved):
        return False
    was = view.spec_of(hidden.obj)
    return any(not same(was.get(key), seen.spec.get(key), nulls=False) for key in _ROLLING_FIELDS)


def _uses(seen: Seen, reference: object) -> bool:
    """Whether a service's profile is this very object (one of its namespace hides the cluster's of the same name)."""
    return isinstance(reference, Resolved) and reference.kind.kind == seen.kind.kind


@rule(
    AIM_PROFILE_CACHE,
    reason=Reason.REFERENCE_NOT_FOUND,
    fields="spec.profileName",
    basis=Basis.WORLD,
    warns=True,
    refused=Example("spec: {profileName: not-yet}"),
    passes=Example("spec: {profileName: qwen3-8b-mi300x, profileScope: Cluster}"),
)
def profile_of_cache_not_found_yet(seen: Seen) -> Outputs:
    """The profile that the cache names may be applied later."""
    name = view.text(seen.spec, "profileName")
    kind = AIM_CLUSTER_PROFILE if view.text(seen.spec, "profileScope") == "Cluster" else AIM_PROFILE
    if name is not None and isinstance(lookup(seen.world, (kind,), seen.namespace, name), Missing):
        yield not_found_yet("spec.profileName", kind.kind, name)


@rule(
    AIM_PROFILE_CACHE,
    reason=Reason.ADAPTER_DISK_ON_DEDICATED_CACHE,
    fields="spec.requiresAdapterDisk",
    warns=True,
    refused=Example("spec: {mode: Dedicated, requiresAdapterDisk: true}"),
    passes=Example("spec: {mode: Shared, requiresAdapterDisk: true}"),
)
def adapter_disk_on_dedicated_cache(seen: Seen) -> Outputs:
    """Adapters are served from shared caches only, so a dedicated cache does not use an adapter disk."""
    if view.text(seen.spec, "mode") == "Dedicated" and view.dig(seen.spec, "requiresAdapterDisk") is True:
        detail = "adapters are served from shared caches only; this disk would not be used"
        yield FieldWarning("spec.requiresAdapterDisk", Reason.ADAPTER_DISK_ON_DEDICATED_CACHE, detail, 30)
