"""Which adapters an AIMService may declare, and in which mode (docs/contract.md, Services, Adapter mode, Admission)."""

from __future__ import annotations

from collections.abc import Iterable

from api import view
from api.errors import Cause, FieldError
from api.kinds import AIM_SERVICE
from api.names import (
    FEATURE_ADAPTERS,
    RANK_CEILINGS,
)
from api.reasons import Reason
from rules import adapters as adapter_rules
from rules.rank import SUPPORTED_RANKS, next_supported
from rules.references import Resolved
from rules.registry import Basis, Example, Output, rule
from rules.seen import ServiceSeen, forbidden, invalid, required
from rules.suggest import quoted
from rules.verdict import Finding

Outputs = Iterable[Output]


@rule(
    AIM_SERVICE,
    reason=Reason.ADAPTER_DECLARED_TWICE,
    fields="spec.adapters[i]",
    refused=Example("spec: {adapters: [{name: medical, kind: AIMArtifact}, {name: medical, kind: AIMArtifact}]}"),
    passes=Example("spec: {adapters: [{name: medical, kind: AIMArtifact}, {name: legal, kind: AIMArtifact}]}"),
    when=("adapters",),
)
def adapter_declared_twice(seen: ServiceSeen) -> Outputs:
    """An adapter is declared once. The schema checks this first, but files may have met none."""
    if len({ref.name for ref in seen.refs}) == len(seen.refs):
        return
    first: dict[tuple[str, str], int] = {}
    for ref in seen.refs:
        earlier = first.setdefault((ref.kind, ref.name), ref.index)
        if earlier != ref.index:
            detail = f"already listed as spec.adapters[{earlier}]"
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
    reason=Reason.MAX_RANK_IN_STATIC_MODE,
    fields="spec.adapterRuntime.maxRank",
    refused=Example("spec: {adapterMode: static, adapterRuntime: {maxRank: 64}}"),
    passes=Example("spec: {adapterMode: dynamic, adapterRuntime: {maxRank: 64}}"),
    when=("adapterRuntime",),
)
def max_rank_in_static_mode(seen: ServiceSeen) -> Outputs:
    """In static mode the rank ceiling follows from the declared adapters, so it cannot be set."""
    value = view.dig(seen.spec, "adapterRuntime", "maxRank")
    if value is not None and not seen.dynamic:
        yield invalid(
            "spec.adapterRuntime.maxRank",
            Reason.MAX_RANK_IN_STATIC_MODE,
            "in static mode the ceiling is the largest rank of the declared adapters and cannot be set",
            "remove it; it can be set only with adapterMode: dynamic",
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
    """The rank ceiling is one of the values that engines support."""
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
    """A dynamic service cannot use a stored RuntimeConfig whose rank ceiling no engine supports."""
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
            "fix the RuntimeConfig, or set spec.adapterRuntime.maxRank on this service",
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
    """Adapters are stored on the disk of a shared base, and a dedicated cache makes a base for one service only."""
    if view.caching_mode(seen.new) == "Dedicated" and seen.uses_adapters:
        why = "adapters are declared" if seen.refs else "adapterMode is dynamic"
        yield invalid(
            "spec.caching.mode",
            Reason.DEDICATED_CACHING_WITH_ADAPTERS,
            f"{why}, and adapters are stored on the disk of a shared base",
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
    """All services of a base share its adapter disk, so a service cannot set the size or class of that disk."""
    for key in ("adapterDiskSize", "adapterDiskStorageClassName"):
        if view.dig(seen.spec, "storage", key) is not None:
            yield forbidden(
                f"spec.storage.{key}",
                Reason.ADAPTER_DISK_ON_SERVICE,
                "the adapter disk belongs to the base and is shared by its services",
                "set spec.adapterDisk on the base AIMArtifact, or storage in the RuntimeConfig",
            )


# -- the version of the request and what never changes ----------------------------------------------------------------


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
    """In v1alpha2 adapters need a profile, which states whether the image can serve them."""
    if seen.request_version == "v1alpha2" and seen.refs and not view.uses_profile_pipeline(seen.new):
        yield required(
            "spec.profile",
            Reason.ADAPTERS_WITHOUT_PROFILE,
            "adapters are declared, and in v1alpha2 they need a profile",
            "set spec.profile.name, or write the service as aim.eai.amd.com/v1alpha1",
        )


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
    """The adapter mode is a start-up property of the pod, so it is fixed at creation."""
    was_dynamic = seen.old_spec.get("adapterMode") == "dynamic"
    if was_dynamic != seen.dynamic:
        was, now = ("dynamic", "static") if was_dynamic else ("static", "dynamic")
        yield invalid(
            "spec.adapterMode",
            Reason.ADAPTER_MODE_IMMUTABLE,
            f"the adapter mode is fixed at creation, and it is {was}",
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
    """A static service loads its adapters at start, so their set is fixed at creation. Their order may change."""
    if seen.dynamic or seen.old_spec.get("adapterMode") == "dynamic":
        return
    if seen.old_spec.get("adapters") == seen.spec.get("adapters"):
        return
    was = {(ref.kind, ref.name) for ref in view.adapter_refs(seen.old)}
    now = {(ref.kind, ref.name) for ref in seen.refs}
    if was == now:
        return
    added, removed = sorted(name for _, name in now - was), sorted(name for _, name in was - now)
    difference = " and ".join(
        f"{quoted(names[:3])}{' …' if len(names) > 3 else ''} {'is' if len(names) == 1 else 'are'} {verb}"
        for names, verb in ((added, "added"), (removed, "removed"))
        if names
    )
    yield forbidden(
        "spec.adapters",
        Reason.STATIC_ADAPTERS_IMMUTABLE,
        f"in static mode the adapters are fixed at creation; {difference}",
        "create another service with adapterMode: dynamic, where the list can be edited at any time",
    )


# -- other objects ----------------------------------------------------------------------------------------------------


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
    """The effective profile must list a feature that states how far its image serves adapters."""
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
            'use adapterMode: static, or set spec.profileOverrides.features: ["adapters"] if its image supports it',
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
    """Adapters belong to one base model, so a service with adapters has exactly one model source."""
    if not seen.uses_adapters or seen.base.state != "ambiguous":
        return
    count = seen.base.count
    rests_on = seen.pipeline.looked_at
    if view.items(seen.spec, "profileOverrides", "modelSources"):
        path, value, rests_on = "spec.profileOverrides.modelSources", None, ()
        detail = f"there are {count} model sources, so the base of the adapters is not clear"
    elif seen.pipeline.kind == "profile":
        path, value = "spec.profile.name", view.text(seen.spec, "profile", "name")
        detail = f"this profile has {count} model sources, so the base of the adapters is not clear"
    else:
        path, value = "spec.model.name", view.text(seen.spec, "model", "name")
        detail = f"this model has {count} model sources, so the base of the adapters is not clear"
    hint = "use exactly one model source with adapters"
    if seen.pipeline.kind == "profile":
        hint += "; spec.profileOverrides.modelSources replaces the profile's list"
    yield Finding(FieldError(path, Reason.MODEL_SOURCES_AMBIGUOUS, Cause.INVALID, detail, value, hint), rests_on)


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
    """Only artifacts of type adapter can be declared; the base model comes from the profile or model."""
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
    """The path is one directory name that the server accepts. A path in status.adapterPath is fixed."""
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
    """The path is the adapter's directory and its served model name, so it is unique within a service."""
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
    """`compatibleWith` of an adapter lists the model id of the base. This is checked once the base exists."""
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
    """An adapter with `parentArtifact` can be served only on that base artifact."""
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
    """The server starts with one rank ceiling, and no adapter may exceed it. The message shows where it comes from."""
    return seen.findings_about_adapters(adapter_rules.REASON_RANK_ABOVE_CEILING)
