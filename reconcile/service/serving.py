"""The InferenceService of a service: may it be made, what does it mount, is it applied. Pure.

Source: docs/contract.md, InferenceService.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from api import view
from api.kinds import CONFIG_MAP, INFERENCE_SERVICE
from api.names import FEATURE_ADAPTERS, FEATURE_ADAPTERS_SCALE_ONLY, inference_service_name
from api.reasons import Foreign, Reason
from api.view import Json
from reconcile.conditions import Condition
from reconcile.decision import Draft, EventNote
from reconcile.objects import agrees
from reconcile.service import words
from reconcile.service.adapters import AdaptersDecision
from reconcile.service.cache import CacheView
from reconcile.service.entry import describe, on_its_way
from reconcile.service.facts import ServiceFacts
from reconcile.service.inference_service import CACHE_ROOT, cache_mounts, render_inference_service
from reconcile.service.live import (
    AdapterWiring,
    CacheMount,
    deployment_follows,
    live_cache_mounts,
    live_config_map,
    roll_causes,
)
from reconcile.service.plan import Plan, make_plan
from reconcile.service.profile_file import projected_feature, render_profile_config_map
from reconcile.service.subtree import Disk


@dataclass(frozen=True, slots=True)
class Gate:
    """What keeps the InferenceService from being made; nothing when `reason` is None."""

    reason: Reason | Foreign | None = None
    message: str = ""

    @property
    def open(self) -> bool:
        """Whether nothing does."""
        return self.reason is None


def decide_plan(seen: ServiceFacts) -> Plan | None:
    """Return what to run; a profile that lost its feature under a running server keeps it for this server."""
    wiring = seen.wiring
    keep = None
    if wiring is not None and any(error.reason.startswith("Feature") for error in seen.adapter_errors):
        mounted = live_config_map(seen.live)
        projected = next((obj for obj in seen.config_maps if view.name_of(obj) == mounted), None)
        keep = projected_feature(projected) or (
            FEATURE_ADAPTERS if wiring.mode == "dynamic" else seen.facts.feature or FEATURE_ADAPTERS_SCALE_ONLY
        )
    if keep is None and seen.plan is not None:
        return seen.plan
    return make_plan(seen.facts.pipeline, seen.service, keep_feature=keep)


# -- gate -----------------------------------------------------------------------------------------------------------


def decide_gate(
    seen: ServiceFacts, valid: Condition, plan: Plan | None, cache: CacheView, *, disk: Disk, adapters: AdaptersDecision
) -> Gate:
    """Return what the creation waits for: configuration, base, and (with adapters) the disk and what must be on it."""
    if not valid.true:
        return Gate(valid.reason, valid.message)
    if not cache.condition.true:
        return Gate(cache.condition.reason, cache.condition.message)
    if plan is None:
        return Gate(Reason.IMAGE_UNKNOWN, "neither profile, model nor service names an image")
    if not seen.facts.config.readable:
        return Gate(Reason.RUNTIME_CONFIG_UNREADABLE, words.unreadable(seen))
    return _adapter_gate(seen, disk, adapters) if view.uses_adapters(seen.service) else Gate()


def _adapter_gate(seen: ServiceFacts, disk: Disk, adapters: AdaptersDecision) -> Gate:
    if not disk.claim_uid:
        return Gate(Reason.PARENT_LACKS_ADAPTER_DISK, words.no_disk(seen))
    if not disk.ready:
        return Gate(Reason.ADAPTER_SUBTREE_PROVISIONING, words.provisioning(seen, disk))
    if view.adapter_mode(seen.service) == "static" and not adapters.all_on_disk:
        return Gate(Reason.ADAPTERS_STAGING, f"static mode waits for all adapters: {describe(adapters.staging)}")
    if seen.ceiling.value is None:
        return Gate(Reason.ADAPTERS_STAGING, "the rank ceiling is not known yet")
    return Gate()


# -- what is mounted ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Bindings:
    """What the container mounts: base models and adapter part. `held`: a running server keeps what it has for now."""

    caches: tuple[CacheMount, ...] = ()
    wiring: AdapterWiring | None = None
    held: bool = False


def decide_bindings(
    seen: ServiceFacts, plan: Plan | None, cache: CacheView, disk: Disk, adapters: AdaptersDecision
) -> Bindings:
    """Return what to mount; a running server keeps its own while any of the new is in doubt.

    A base that was replaced brings another cache and another disk: one roll takes over both, when both are ready.
    """
    wanted = cache_mounts(plan, cache.bases) if plan is not None else ()
    wiring = _wiring(seen, disk)
    if seen.live is None:
        return Bindings(wanted, wiring)
    have, kept = live_cache_mounts(seen.live), seen.wiring
    if not cache.condition.true and cache.bases:
        wanted = have
    if _adapters_held(seen, disk, adapters, kept, wiring):
        moving = kept is not None and (not disk.ready or kept.claim != disk.claim)
        return Bindings(have if moving else wanted, kept, held=True)
    if not cache.condition.true and kept is not None and wiring is not None and kept.claim != wiring.claim:
        return Bindings(have, kept, held=True)
    return Bindings(wanted, wiring)


def _wiring(seen: ServiceFacts, disk: Disk) -> AdapterWiring | None:
    """Return the adapter part as the spec wants it, None when it wants none or its parts are not known."""
    kept, service = seen.wiring, seen.service
    rank = seen.ceiling.value or (kept.max_rank if kept else None)
    if not disk.ready or rank is None or not (view.uses_adapters(service) or kept):
        return None
    return AdapterWiring(disk.claim, view.adapter_mode(service), rank)


def _adapters_held(
    seen: ServiceFacts, disk: Disk, adapters: AdaptersDecision, kept: AdapterWiring | None, wiring: AdapterWiring | None
) -> bool:
    """Whether a running server keeps its adapter part as it is (docs/contract.md, Serving gate)."""
    if seen.adapter_errors:
        return True
    if wiring is None:
        return disk.wanted
    if kept is None:  # the first adapters of a running static service: only what is staged is worth a roll
        return view.adapter_mode(seen.service) == "static" and not adapters.all_on_disk
    if kept.claim == wiring.claim:
        return False
    if view.adapter_mode(seen.service) == "static":
        return not adapters.all_on_disk
    return bool(adapters.awaited) or any(on_its_way(entry) for entry in adapters.staging)


def ceiling_in_force(seen: ServiceFacts) -> int | None:
    """Return the last valid ceiling, None where no server needs one.

    A running server keeps its own while its adapter configuration is invalid, and when its last adapter went.
    """
    kept = seen.wiring
    if kept is not None and (seen.adapter_errors or seen.made_by or not view.uses_adapters(seen.service)):
        return kept.max_rank
    if not view.uses_adapters(seen.service):
        return None
    value = seen.ceiling.value
    return value if value is not None else seen.facts.reported_ceiling


# -- apply ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Applied:
    """What this pass does about the InferenceService.

    `causes`: why its pods are replaced, empty when they are not. `made`: the one that is made now, if none was there.
    `held`: what is not known, so that a running server does not follow its spec for now; empty when it does.
    """

    name: str | None
    causes: tuple[str, ...] = ()
    made: Json | None = None
    held: str = ""


def apply_inference_service(
    seen: ServiceFacts, draft: Draft, plan: Plan | None, bindings: Bindings, *, gate: Gate, cache: CacheView
) -> Applied:
    """Make or update the InferenceService and its profile ConfigMap where that is allowed now."""
    name = view.name_of(seen.live) or inference_service_name(
        view.name_of(seen.service), view.namespace_of(seen.service)
    )
    if name is None or plan is None or not _may_apply(seen, gate, cache):
        return Applied(name, held=_unknown(seen, cache))
    if seen.live is not None and not _has_its_model(plan, bindings):
        return Applied(name, held=_awaited_model(plan, cache))
    config_map = render_profile_config_map(seen.service, plan)
    if config_map is not None:
        draft.apply.append((CONFIG_MAP, config_map))
    isvc = render_inference_service(
        seen.service,
        name=name,
        plan=plan,
        caches=bindings.caches,
        wiring=bindings.wiring,
        config=seen.facts.config.spec,
        settings=seen.settings,
        live=seen.live,
    )
    causes: tuple[str, ...] = ()
    if not agrees(INFERENCE_SERVICE, seen.live, isvc):
        draft.apply.append((INFERENCE_SERVICE, isvc))
        causes = roll_causes(seen.live, isvc)
    if causes and not seen.refusal:
        draft.events.append(_roll_event(seen, causes))
    _drop_old_profiles(seen, draft, config_map, causes)
    return Applied(name, causes, isvc if seen.isvc is None and not seen.refusal else None)


def _may_apply(seen: ServiceFacts, gate: Gate, cache: CacheView) -> bool:
    """A running server follows its spec unless that is invalid, or what it needs is not known at the moment."""
    if seen.isvc is not None and (seen.live is None or view.terminating(seen.live)):
        return False
    if seen.live is None:
        return gate.open
    return not seen.made_by and not seen.other_errors and cache.resolved and seen.facts.config.readable


def _has_its_model(plan: Plan, bindings: Bindings) -> bool:
    """Whether what is mounted holds the model that the server would serve.

    A service that was given another model keeps its server as it is until the other model, and what its adapters need,
    is there: a server does not start without its model.
    """
    path = f"{CACHE_ROOT}/{plan.model_id}"
    return plan.model_id is None or not bindings.caches or any(mount.path == path for mount in bindings.caches)


def _awaited_model(plan: Plan, cache: CacheView) -> str:
    why = "its adapters are not ready (see Adapters)" if cache.condition.true else cache.condition.message
    return f"model {plan.model_id} takes over when it is ready: {why}"


def _unknown(seen: ServiceFacts, cache: CacheView) -> str:
    """Say what a running server would have to know to follow its spec; ConfigValid reports errors."""
    if seen.live is None or seen.made_by or seen.other_errors:
        return ""
    if not cache.resolved:
        return f"{cache.condition.reason}: {cache.condition.message}"
    return "" if seen.facts.config.readable else words.unreadable(seen)


def _roll_event(seen: ServiceFacts, causes: tuple[str, ...]) -> EventNote:
    pods = view.integer(seen.deployment, "status", "replicas") or 0
    rank = any("AIM_ADAPTER_MAX_RANK" in cause for cause in causes)
    why = f" ({seen.ceiling.origin})" if rank and seen.ceiling.origin else ""
    whom = ("no pod runs yet", "1 pod is replaced")[pods] if pods < 2 else f"{pods} pods are replaced"
    message = f"{whom}: {', '.join(causes)}{why}"
    return EventNote("Normal", Reason.ADAPTER_MAX_RANK_CHANGED if rank else Reason.PREDICTOR_CHANGED, message)


def _drop_old_profiles(
    seen: ServiceFacts, draft: Draft, config_map: Mapping[str, Any] | None, causes: tuple[str, ...]
) -> None:
    """Delete projected profiles that no pod mounts any more."""
    if seen.live is None or causes or not rolled_out(seen):
        return
    kept = {view.name_of(config_map), live_config_map(seen.live) or ""}
    for old in seen.config_maps:
        if view.name_of(old) not in kept and not view.terminating(old):
            draft.drop(CONFIG_MAP, view.namespace_of(old), view.name_of(old), view.uid_of(old))


def rolled_out(seen: ServiceFacts) -> bool:
    """Whether all pods run the Deployment's present template."""
    deployment = seen.deployment
    if deployment is None or view.integer(deployment, "status", "observedGeneration") != view.generation_of(deployment):
        return False
    replicas, updated = _replicas_and_updated(deployment)
    return updated == replicas and deployment_follows(deployment, seen.live)


def runs_an_old_version(seen: ServiceFacts) -> bool:
    """Whether pods are known to run another template than the present one: a first start has none, nor has scaling."""
    replicas, updated = _replicas_and_updated(seen.deployment)
    return replicas > 0 and (updated != replicas or not deployment_follows(seen.deployment, seen.live))


def _replicas_and_updated(deployment: Json | None) -> tuple[int, int]:
    return view.integer(deployment, "status", "replicas") or 0, view.integer(
        deployment, "status", "updatedReplicas"
    ) or 0
