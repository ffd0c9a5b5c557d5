"""The InferenceService of a service: may it be made, what does it mount, is it applied. Pure.

Source: docs/contract.md, InferenceService.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
from reconcile.service.adapters import AdaptersDecision
from reconcile.service.cache import CacheView, storage_problem, unresolved
from reconcile.service.entry import describe
from reconcile.service.inference_service import CACHE_ROOT, cache_mounts, render_inference_service
from reconcile.service.live import (
    AdapterWiring,
    CacheMount,
    deployment_follows,
    live_cache_mounts,
    live_config_map,
    roll_causes,
)
from reconcile.service.loading import ON_DISK
from reconcile.service.observed import Observed
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


def decide_plan(seen: Observed) -> Plan | None:
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
    seen: Observed, valid: Condition, plan: Plan | None, cache: CacheView, *, disk: Disk, adapters: AdaptersDecision
) -> Gate:
    """Return what the creation waits for: configuration, base, and (with adapters) the disk and what must be on it."""
    if not valid.true:
        return Gate(valid.reason, valid.message)
    if not cache.condition.true:
        return Gate(cache.condition.reason, cache.condition.message)
    if plan is None:
        return Gate(Reason.IMAGE_UNKNOWN, "neither profile, model nor service names an image")
    if not seen.facts.config.readable:
        return _unreadable(seen)
    return _adapter_gate(seen, disk, adapters) if view.uses_adapters(seen.service) else Gate()


def _unreadable(seen: Observed) -> Gate:
    """The RuntimeConfig was not read."""
    return Gate(Reason.RUNTIME_CONFIG_UNREADABLE, f'RuntimeConfig "{seen.facts.config.name}" cannot be read')


def _adapter_gate(seen: Observed, disk: Disk, adapters: AdaptersDecision) -> Gate:
    if not disk.claim_uid:
        return Gate(Reason.PARENT_LACKS_ADAPTER_DISK, no_disk(seen))
    if not disk.ready:
        return Gate(Reason.ADAPTER_SUBTREE_PROVISIONING, provisioning(seen, disk))
    if view.adapter_mode(seen.service) == "static" and not adapters.all_on_disk:
        return Gate(Reason.ADAPTERS_STAGING, f"static mode waits for all adapters: {describe(adapters.staging)}")
    if seen.ceiling.value is None:
        return Gate(Reason.ADAPTERS_STAGING, "the rank ceiling is not known yet")
    return Gate()


def no_disk(seen: Observed) -> str:
    """Say why there is no adapter disk."""
    if not seen.base:
        if not seen.facts.pipeline.sources:
            if (waits := unresolved(seen.facts.pipeline)) is not None:
                return f"no base model is known: {waits.message}"
            return "no base model is known: neither profile, template nor model names model sources"
        return "the base model is not resolved yet"
    words = f'base artifact "{view.name_of(seen.base)}" has no adapter disk yet'
    if seen.disk_claim_name:
        words = f'claim "{seen.disk_claim_name}" of base artifact "{view.name_of(seen.base)}" is '
        if view.terminating(seen.disk_claim):
            return words + "being deleted; it goes, and is made anew, when no pod mounts it any more"
        words += "not there"
    problem = storage_problem(seen.base)
    return f"{words}: {problem}" if problem else words


def moving(seen: Observed, disk: Disk, adapters: AdaptersDecision) -> str:
    """Say which disk the pods use while that is not the present one, what the present one lacks, and the way out."""
    kept = seen.wiring
    if kept is None or not view.uses_adapters(seen.service):
        return ""
    if kept.claim == disk.claim:
        old = sorted({pod.claim for pod in seen.pods if pod.claim and pod.claim != kept.claim})
        return f"pods that are being replaced still mount {_claims(old)}" if old else ""
    missing = [entry for entry in adapters.staging if entry["state"] not in ON_DISK]
    stuck = [entry["name"] for entry in missing if not _on_its_way(entry)]
    until = _until(disk, missing)
    if seen.stranded:
        said = f'no pod can start{until}: claim "{kept.claim}" that they mount is gone with its base'
        cure = "; for"
    else:
        said = f'the pods keep claim "{kept.claim}"{until}'
        cure = "; what is served would be lost: for"
        stuck = [name for name in stuck if name in adapters.awaited]
    return f"{said}{cure} {', '.join(stuck)}, {_way_out(seen)}" if stuck and until else said


def _until(disk: Disk, missing: Sequence[Json]) -> str:
    if not disk.claim:
        return ""
    there = ", ".join(f"{entry['name']} is {entry['state']}" for entry in missing)
    return f' until claim "{disk.claim}" holds all adapters' + (f" ({there} there)" if there else "")


def _way_out(seen: Observed) -> str:
    words = "mend what lastError says"
    if view.adapter_mode(seen.service) == "dynamic":
        return f"{words} or remove it from spec.adapters"
    return f"{words} or create the service anew without it" if seen.stranded else words


def _claims(names: list[str]) -> str:
    return ("claim " if len(names) == 1 else "claims ") + ", ".join(f'"{name}"' for name in names)


def provisioning(seen: Observed, disk: Disk) -> str:
    """Say that the service's directory is being made, and what stands in the way: with the disk, or with the Job."""
    problem = storage_problem(seen.base) or disk.problem
    if seen.errors and not seen.may_prepare:
        return (
            "the service's directory on the adapter disk is created once the configuration is valid (see ConfigValid)"
        )
    words = "the service's directory on the adapter disk is being created"
    return f"{words}: {problem}" if problem else words


# -- what is mounted ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Bindings:
    """What the container mounts: base models and adapter part. `held`: a running server keeps what it has for now."""

    caches: tuple[CacheMount, ...] = ()
    wiring: AdapterWiring | None = None
    held: bool = False


def decide_bindings(
    seen: Observed, plan: Plan | None, cache: CacheView, disk: Disk, adapters: AdaptersDecision
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


def _wiring(seen: Observed, disk: Disk) -> AdapterWiring | None:
    """Return the adapter part as the spec wants it, None when it wants none or its parts are not known."""
    kept, service = seen.wiring, seen.service
    rank = seen.ceiling.value or (kept.max_rank if kept else None)
    if not disk.ready or rank is None or not (view.uses_adapters(service) or kept):
        return None
    return AdapterWiring(disk.claim, view.adapter_mode(service), rank)


def _adapters_held(
    seen: Observed, disk: Disk, adapters: AdaptersDecision, kept: AdapterWiring | None, wiring: AdapterWiring | None
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
    return bool(adapters.awaited) or any(_on_its_way(entry) for entry in adapters.staging)


def _on_its_way(entry: Json) -> bool:
    return entry["state"] in ("Pending", "Downloading") and not entry.get("lastError")


def ceiling_in_force(seen: Observed) -> int | None:
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
    seen: Observed, draft: Draft, plan: Plan | None, bindings: Bindings, *, gate: Gate, cache: CacheView
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


def _may_apply(seen: Observed, gate: Gate, cache: CacheView) -> bool:
    """A running server follows its spec unless that is invalid, or what it needs is not known at the moment."""
    if seen.isvc is not None and (seen.live is None or view.terminating(seen.live)):
        return False
    if seen.live is None:
        return gate.open
    return not seen.made_by and not seen.other_errors and cache.resolved and seen.facts.config.readable


def _has_its_model(plan: Plan, bindings: Bindings) -> bool:
    """Whether what is mounted holds the model that the server would be told to serve.

    A service that was given another model keeps its server as it is until the other model, and what its adapters need,
    is there: told to serve what is not mounted, it would not start.
    """
    path = f"{CACHE_ROOT}/{plan.model_id}"
    return plan.model_id is None or not bindings.caches or any(mount.path == path for mount in bindings.caches)


def _awaited_model(plan: Plan, cache: CacheView) -> str:
    why = "its adapters are not ready (see Adapters)" if cache.condition.true else cache.condition.message
    return f"model {plan.model_id} takes over when it is ready: {why}"


def _unknown(seen: Observed, cache: CacheView) -> str:
    """Say what a running server would have to know to follow its spec; errors are told by ConfigValid."""
    if seen.live is None or seen.made_by or seen.other_errors:
        return ""
    if not cache.resolved:
        return f"{cache.condition.reason}: {cache.condition.message}"
    return "" if seen.facts.config.readable else _unreadable(seen).message


def _roll_event(seen: Observed, causes: tuple[str, ...]) -> EventNote:
    pods = view.integer(seen.deployment, "status", "replicas") or 0
    rank = any("AIM_ADAPTER_MAX_RANK" in cause for cause in causes)
    why = f" ({seen.ceiling.origin})" if rank and seen.ceiling.origin else ""
    whom = ("no pod runs yet", "1 pod is replaced")[pods] if pods < 2 else f"{pods} pods are replaced"
    message = f"{whom}: {', '.join(causes)}{why}"
    return EventNote("Normal", Reason.ADAPTER_MAX_RANK_CHANGED if rank else Reason.PREDICTOR_CHANGED, message)


def _drop_old_profiles(
    seen: Observed, draft: Draft, config_map: Mapping[str, Any] | None, causes: tuple[str, ...]
) -> None:
    """Delete projected profiles that no pod mounts any more."""
    if seen.live is None or causes or not rolled_out(seen):
        return
    kept = {view.name_of(config_map), live_config_map(seen.live) or ""}
    for old in seen.config_maps:
        if view.name_of(old) not in kept and not view.terminating(old):
            draft.drop(CONFIG_MAP, view.namespace_of(old), view.name_of(old), view.uid_of(old))


def rolled_out(seen: Observed) -> bool:
    """Whether all pods run the Deployment's present template."""
    deployment = seen.deployment
    if deployment is None or view.integer(deployment, "status", "observedGeneration") != view.generation_of(deployment):
        return False
    replicas, updated = _replicas_and_updated(deployment)
    return updated == replicas and deployment_follows(deployment, seen.live)


def runs_an_old_version(seen: Observed) -> bool:
    """Whether pods are known to run another template than the present one: a first start has none, nor has scaling."""
    replicas, updated = _replicas_and_updated(seen.deployment)
    return replicas > 0 and (updated != replicas or not deployment_follows(seen.deployment, seen.live))


def _replicas_and_updated(deployment: Json | None) -> tuple[int, int]:
    return view.integer(deployment, "status", "replicas") or 0, view.integer(
        deployment, "status", "updatedReplicas"
    ) or 0
