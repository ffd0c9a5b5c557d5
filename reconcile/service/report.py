"""What a service reports: conditions, phase, status. Pure; docs/contract.md, Status."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from api.accelerators import labels_sought, node_selector_terms
from api.kinds import AIM_SERVICE
from api.names import ANNOTATION_RESTAGE, ANNOTATION_RETRY_STAGING, ANNOTATION_TAKE_OVER
from api.reasons import Foreign, Reason, spoken
from api.view import (
    adapter_refs,
    annotation,
    condition,
    dig,
    generation_of,
    integer,
    items,
    mapping,
    name_of,
    namespace_of,
    terminating,
    text,
    uid_of,
    uses_adapters,
)
from reconcile.conditions import Condition, render_conditions
from reconcile.pods import PodTrouble, trouble_of
from reconcile.references import render_config_reference, render_reference
from reconcile.service import words
from reconcile.service.adapters import AdaptersDecision
from reconcile.service.cache import CacheView
from reconcile.service.entry import RESTART_REQUIRED, describe, reason_of
from reconcile.service.facts import ServiceFacts
from reconcile.service.inference_service import ANNOTATION_STOP, replicas_of
from reconcile.service.loading import ON_DISK
from reconcile.service.manifests import cache_kind
from reconcile.service.plan import Plan
from reconcile.service.serving import (
    Applied,
    Gate,
    ceiling_in_force,
    rolled_out,
    runs_an_old_version,
)
from reconcile.service.subtree import Disk
from rules.suggest import fit_names

SERVED = "InferenceServiceReady"
_ROOM_FOR_NAMES = 120  # characters
_WAITS_FOR_KSERVE = frozenset({Reason.STOPPED, Reason.K_SERVE_NOT_INSTALLED, Reason.K_SERVE_UNAVAILABLE})
_FAILED_TO_SERVE = frozenset(
    {
        Reason.CRASH_LOOP_BACK_OFF,
        Reason.IMAGE_PULL_BACK_OFF,
        Reason.INVALID_IMAGE_NAME,
        Reason.CREATE_CONTAINER_CONFIG_ERROR,
        Reason.CREATE_CONTAINER_ERROR,
        Reason.RUN_CONTAINER_ERROR,
        Reason.NAME_TAKEN,
        Reason.INFERENCE_SERVICE_REFUSED,
        Reason.RECONCILE_FAILED,
    }
)


def config_valid(seen: ServiceFacts) -> Condition:
    """Return ConfigValid: the rules' errors, and a RuntimeConfig that is named and does not exist."""
    if seen.errors:
        reason = Reason.ADAPTER_CONFIG_INVALID if seen.adapter_errors else seen.errors[0].reason
        return Condition("ConfigValid", "False", reason, "; ".join(str(error) for error in seen.errors))
    config = seen.facts.config
    if config.missing:
        message = (
            f'no AIMRuntimeConfig or AIMClusterRuntimeConfig "{config.name}" exists: create it or correct the name'
        )
        return Condition("ConfigValid", "False", Reason.REFERENCE_NOT_FOUND, f"spec.runtimeConfigName: {message}")
    return Condition("ConfigValid", "True", Reason.CONFIG_VALID)


def adapters_condition(seen: ServiceFacts, disk: Disk, adapters: AdaptersDecision) -> Condition | None:
    """Return Adapters (docs/contract.md, Conditions), None for a service that has nothing to do with them."""
    if not uses_adapters(seen.service) and not adapters.entries:
        return None
    kept = words.moving(seen, disk, adapters)
    if seen.adapter_errors:
        message = "; ".join(str(error) for error in seen.adapter_errors)
        return Condition("Adapters", "False", Reason.ADAPTER_CONFIG_INVALID, _joined(message, kept))
    if not disk.claim_uid:
        return Condition("Adapters", "False", Reason.PARENT_LACKS_ADAPTER_DISK, _joined(words.no_disk(seen), kept))
    if not disk.ready:
        return Condition(
            "Adapters", "False", Reason.ADAPTER_SUBTREE_PROVISIONING, _joined(words.provisioning(seen, disk), kept)
        )
    said = [describe(adapters.entries), _deferred(seen), kept]
    if not disk.synced:
        said.append("the directory on the disk is being brought to the declared set")
        said.append(disk.problem)
    message = "; ".join(word for word in said if word)
    reason = Reason.ADAPTERS_STAGED if adapters.all_on_disk else Reason.ADAPTERS_STAGING
    return Condition("Adapters", "True", reason, message)


def _deferred(seen: ServiceFacts) -> str:
    """Say that a lower ceiling waits (docs/contract.md, Dynamic ceiling), empty where none does."""
    ceiling = seen.ceiling
    if not ceiling.deferred:
        return ""
    waiting = fit_names(ceiling.unresolved, _ROOM_FOR_NAMES)
    return (
        f"the rank ceiling stays {ceiling.value} and becomes {ceiling.asked.value} once the rank of {waiting} is known"
    )


# -- InferenceServiceReady ------------------------------------------------------------------------------------------


def served_condition(seen: ServiceFacts, plan: Plan | None, gate: Gate, applied: Applied) -> Condition:
    """Return InferenceServiceReady: a replica that is ready now, and KServe's verdict over the rest.

    With maxSurge 0 and maxUnavailable 1 a Deployment of one replica is Available without a single ready pod, and KServe
    calls it Ready: readiness needs a ready replica.
    """
    if seen.isvc is not None and seen.live is None:
        if _was_a_predecessors(seen):
            message = (
                "the InferenceService of a deleted service with this name is still terminating; "
                "a new one is created once it is gone"
            )
            return Condition(SERVED, "False", Reason.TERMINATING, message)
        whose = "belongs to another owner" if items(seen.isvc, "metadata", "ownerReferences") else "has no owner"
        message = f'InferenceService "{name_of(seen.isvc)}" exists and {whose}'
        return Condition(SERVED, "False", Reason.NAME_TAKEN, message)
    if seen.refusal and not (seen.live is not None and seen.refusal_reason == Reason.K_SERVE_UNAVAILABLE):
        return Condition(SERVED, "False", seen.refusal_reason, seen.refusal)
    if seen.live is None:
        if applied.name is None:
            return Condition(SERVED, "False", Reason.GATED, "the namespace's name leaves no room for the name")
        if not gate.open:
            return Condition(SERVED, "False", Reason.GATED, f"{gate.reason}: {gate.message}")
        return Condition(SERVED, "False", Reason.CREATING, "the InferenceService is being created")
    if terminating(seen.live):
        return Condition(
            SERVED,
            "False",
            Reason.TERMINATING,
            "the InferenceService is being deleted; it is re-created once it is gone",
        )
    return _live_condition(seen, plan, applied)


def _was_a_predecessors(seen: ServiceFacts) -> bool:
    """Whether the InferenceService belongs to a deleted service of this name: the garbage collector takes it."""
    return any(
        dig(reference, "kind") == AIM_SERVICE.kind and dig(reference, "name") == name_of(seen.service)
        for reference in items(seen.isvc, "metadata", "ownerReferences")
    )


def _live_condition(seen: ServiceFacts, plan: Plan | None, applied: Applied) -> Condition:
    serving = seen.serving_replicas
    if serving == 0 and (asleep := _asleep(seen)) is not None:
        return asleep
    ready = condition(seen.live, "Ready").get("status") == "True"
    note, trouble = _rolling(seen, applied), _pod_trouble(seen)
    if ready and serving > 0:
        crash = f"{trouble[0]}: {trouble[1]}" if trouble else ""
        waits = f"a change is not applied yet: {seen.refusal}" if seen.refusal else ""
        message = _joined(note, crash, _made_by(seen), _held(applied), waits)
        return Condition(SERVED, "True", Reason.INFERENCE_SERVICE_READY, message)
    if (stuck := _stuck(seen, plan, trouble)) is not None:
        return stuck
    return _none_ready(seen, applied, note) if ready else _unready(seen, serving, note)


def _asleep(seen: ServiceFacts) -> Condition | None:
    """Return why no replica is wanted now, None when some are."""
    if _none_wanted(seen):
        message = "spec asks for 0 replicas: nothing is served until spec.replicas is raised"
        return Condition(SERVED, "True", Reason.SCALED_TO_ZERO, message)
    if condition(seen.live, "Stopped").get("status") == "True":
        message = (
            f'KServe runs no pods while InferenceService "{name_of(seen.live)}" has annotation {ANNOTATION_STOP}: '
            "remove it to serve"
        )
        return Condition(SERVED, "False", Reason.STOPPED, message)
    return None


def _stuck(seen: ServiceFacts, plan: Plan | None, trouble: tuple[Reason | Foreign, str] | None) -> Condition | None:
    """Return why pods cannot start; that one waits for a node counts only while no replica serves."""
    unscheduled = trouble is not None and trouble[0] == Reason.UNSCHEDULABLE
    if seen.serving_replicas == 0 and (trouble is None or unscheduled) and (pool := _empty_pool(seen, plan)):
        return Condition(SERVED, "False", Reason.NO_MATCHING_NODE, pool)
    if trouble is not None and (seen.serving_replicas == 0 or not unscheduled):
        return Condition(SERVED, "False", *trouble)
    return None


def _none_ready(seen: ServiceFacts, applied: Applied, note: str) -> Condition:
    """KServe calls it Ready, and no replica is ready now."""
    reason = Reason.ROLLING_OUT if applied.causes or runs_an_old_version(seen) else Reason.STARTING
    none = f"no replica is ready at the moment: 0/{seen.wanted_replicas or replicas_of(seen.service).minimum}"
    return Condition(SERVED, "False", reason, _joined(note, none))


def _made_by(seen: ServiceFacts) -> str:
    """Say that another operator made the server, and how aim-adapters takes it over."""
    if not seen.made_by:
        return ""
    return (
        f'"{seen.made_by}" made the InferenceService: it stays as it is, whatever the spec says, until annotation '
        f'{ANNOTATION_TAKE_OVER} is "true" (then its pods are replaced once)'
    )


def _held(applied: Applied) -> str:
    """Say that the server does not follow its spec, and why."""
    return f"the server stays as it is for now: {applied.held}" if applied.held else ""


def _unready(seen: ServiceFacts, serving: int, note: str) -> Condition:
    """KServe says that it is not ready: its reason, and how many serve all the same.

    What it calls Unknown is that its Deployment has begun, for some 0.1 s: no news to anybody.
    """
    some = f"{serving}/{seen.wanted_replicas} replicas serve" if serving else ""
    for kind in ("PredictorReady", "Ready"):
        entry = condition(seen.live, kind)
        if (reason := text(entry, "reason")) and entry.get("status") != "Unknown":
            return Condition(
                SERVED, "False", spoken(reason), _joined(some, note, text(entry, "message") or "not ready")
            )
    return Condition(SERVED, "False", Reason.STARTING, _joined(some, note, "waiting for the model server"))


def _joined(*words: str) -> str:
    return "; ".join(word for word in words if word)


def _none_wanted(seen: ServiceFacts) -> bool:
    wanted = seen.wanted_replicas
    return replicas_of(seen.service).maximum == 0 if wanted is None else wanted == 0


_ROLLING = "a new version is being rolled out"


def _rolling(seen: ServiceFacts, applied: Applied) -> str:
    """Say that pods are being replaced and why, until the new ones are ready."""
    if seen.deployment is None:
        return ""  # no pods to replace
    if applied.causes:
        return f"{_ROLLING}: {', '.join(applied.causes)}"
    done = rolled_out(seen)
    if done and seen.serving_replicas >= (seen.wanted_replicas or 0):
        return ""
    before = text(condition(seen.service, SERVED), "message") or ""
    start = before.find(_ROLLING)
    if start >= 0:
        return before[start:].partition(";")[0]
    return "" if done or not runs_an_old_version(seen) else _ROLLING


def _pod_trouble(seen: ServiceFacts) -> tuple[Reason | Foreign, str] | None:
    """Return reason and words of the first pod that cannot start; words stay the same from one try to the next."""
    found = trouble_of(seen.predictor_pods)
    if found is None:
        return None
    where = "" if found.kind == "unscheduled" else f" (see kubectl logs -n {found.namespace} {found.pod})"
    return found.reason, f"pod {found.pod}: {_of_trouble(found)}{where}"


def _of_trouble(found: PodTrouble) -> str:
    match found.kind:
        case "crash":
            known = f", last exit code {found.exit_code}" if found.exit_code is not None else ""
            return f"the server keeps crashing{known}" + (f" ({found.ended})" if found.ended else "")
        case "pull":
            return f'image "{found.image or "?"}" cannot be pulled'
        case "waiting":
            return found.message or "the container cannot start"
        case "unscheduled":
            return found.message or "no node takes it"


def _empty_pool(seen: ServiceFacts, plan: Plan | None) -> str:
    if seen.pool_nodes != 0 or plan is None or plan.accelerator_model is None or not plan.gpus:
        return ""
    terms = node_selector_terms(plan.accelerator_model, plan.partitioning)
    return f"no node offers {plan.accelerator_model}: looked for the labels {labels_sought(terms)}"


# -- Ready and phase ------------------------------------------------------------------------------------------------


def ready_condition(valid: Condition, gate: Gate, served: Condition) -> Condition:
    """Return Ready: it is served, whatever else is wrong; else the first cause."""
    if served.true:
        reason = served.reason if served.reason == Reason.SCALED_TO_ZERO else Reason.SERVING
        return Condition("Ready", "True", reason, served.message if reason == served.reason else "")
    if not valid.true:
        return Condition("Ready", "False", valid.reason, valid.message)
    if served.reason == Reason.GATED and gate.reason is not None:
        return Condition("Ready", "False", gate.reason, gate.message)
    return Condition("Ready", "False", served.reason, served.message)


def phase(seen: ServiceFacts, valid: Condition, served: Condition, cache: CacheView, adapters: AdaptersDecision) -> str:
    """Return status.status."""
    if served.true:
        bad = any(entry["state"] in ("Failed", "LoadRejected") for entry in adapters.declared)
        restart = any(reason_of(entry) == RESTART_REQUIRED for entry in adapters.declared)
        stuck = _pod_trouble(seen) is not None and served.reason != Reason.SCALED_TO_ZERO
        return "Degraded" if not valid.true or bad or restart or stuck else "Running"
    if seen.live is not None and seen.serving_replicas > 0:
        return "Degraded"
    if not valid.true or served.reason in _FAILED_TO_SERVE:
        return "Failed"
    if served.reason == Reason.GATED:
        return "Failed" if cache.failed else "Pending"
    return "Pending" if served.reason in _WAITS_FOR_KSERVE else "Starting"


# -- status ---------------------------------------------------------------------------------------------------------


def render_status(
    seen: ServiceFacts, conditions: Iterable[Condition], adapters: AdaptersDecision, disk: Disk, cache: CacheView
) -> dict[str, Any]:
    """Return the whole status but for the phase; fields without a value are None."""
    service, pipeline = seen.service, seen.facts.pipeline
    uses = uses_adapters(service)
    on_disk = sum(1 for entry in adapters.declared if entry["state"] in ON_DISK)
    declared = len({ref.name for ref in adapter_refs(service)})
    generation = generation_of(service)
    return {
        "observedGeneration": generation,
        "conditions": render_conditions(service, conditions, generation=generation, now=seen.now),
        "resolvedProfile": render_reference(pipeline.profile),
        "resolvedModel": render_reference(pipeline.model),
        "resolvedTemplate": render_reference(pipeline.template),
        "resolvedRuntimeConfig": render_config_reference(seen.facts.config),
        "cache": _cache_status(seen, cache),
        "runtime": _runtime(seen),
        "adapters": list(adapters.entries) or None,
        "adapterSummary": f"{on_disk}/{declared}" if declared or uses else None,
        "adapterMaxRank": ceiling_in_force(seen),
        "adapterSubtreeSyncKey": disk.recorded.key or None,
        "adapterDiskPersistentVolumeClaim": disk.recorded.claim or None,
        "adapterDiskPersistentVolumeClaimUid": disk.recorded.claim_uid or None,
        "lastRetryStaging": annotation(service, ANNOTATION_RETRY_STAGING)
        or text(service, "status", "lastRetryStaging"),
        "lastRestage": annotation(service, ANNOTATION_RESTAGE) or text(service, "status", "lastRestage"),
    }


def _cache_status(seen: ServiceFacts, view: CacheView) -> dict[str, Any] | None:
    cache = view.cache
    if cache is None or not uid_of(cache):
        kept = mapping(seen.service, "status", "cache")
        return dict(kept) if kept else None
    pipeline = seen.facts.pipeline.kind
    reference = {
        "kind": cache_kind(pipeline).kind,
        "name": name_of(cache),
        "namespace": namespace_of(cache),
        "scope": "Namespace",
        "uid": uid_of(cache),
    }
    return {"profileCacheRef" if pipeline == "profile" else "templateCacheRef": reference}


def _runtime(seen: ServiceFacts) -> dict[str, Any] | None:
    if seen.deployment is None and seen.live is None:
        return None
    bounds = replicas_of(seen.service)
    desired = bounds.minimum if seen.wanted_replicas is None else seen.wanted_replicas
    current = seen.serving_replicas if seen.deployment is None else integer(seen.deployment, "status", "replicas")
    return {
        "currentReplicas": current or 0,
        "desiredReplicas": desired,
        "minReplicas": bounds.minimum,
        "maxReplicas": bounds.maximum,
        "replicas": f"{seen.serving_replicas}/{desired}",
    }
