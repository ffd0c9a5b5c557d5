"""What an AIMService needs, and its status: cache, directory on the disk, adapters, InferenceService, status. Pure.

Source: docs/contract.md, Caches, Adapter disk, InferenceService, Status.
One file for each step: `cache`, `subtree`, `adapters`, `serving`, `report`.
"""

from __future__ import annotations

from dataclasses import replace

from api import view
from api.errors import FieldError
from api.kinds import CONFIG_MAP, INFERENCE_SERVICE, JOB
from reconcile.decision import Decision, Draft, leave_alone
from reconcile.objects import without_nulls
from reconcile.service.adapters import AdaptersDecision, decide_adapters
from reconcile.service.cache import decide_cache
from reconcile.service.entry import AdapterFacts
from reconcile.service.facts import ServiceFacts
from reconcile.service.report import (
    adapters_condition,
    config_valid,
    phase,
    ready_condition,
    render_status,
    served_condition,
)
from reconcile.service.serving import (
    Applied,
    apply_inference_service,
    ceiling_in_force,
    decide_bindings,
    decide_gate,
    decide_plan,
)
from reconcile.service.subtree import Disk, decide_disk, job_pull_secrets
from rules.base import resolve_base
from rules.reference_rules import refused_adapters
from rules.references import Unreadable
from rules.runtime_config import AdapterConfig, adapter_runtime_config

OF_THE_SERVER = frozenset({CONFIG_MAP, INFERENCE_SERVICE})


def decide(seen: ServiceFacts) -> Decision:
    """Return everything that this service needs now."""
    if view.paused(seen.service) or view.terminating(seen.service):
        return leave_alone(seen.service)
    draft = Draft()
    valid = config_valid(seen)
    plan = decide_plan(seen)
    cache = decide_cache(seen, draft, allowed=valid.true or seen.may_prepare)
    disk = decide_disk(seen, draft, allowed=valid.true or seen.may_prepare)
    adapters = _adapters(seen, draft, disk)
    gate = decide_gate(seen, valid, plan, cache, disk=disk, adapters=adapters)
    bindings = decide_bindings(seen, plan, cache, disk, adapters)
    applied = apply_inference_service(seen, draft, plan, bindings, gate=gate, cache=cache)
    if applied.made is not None:  # the status is about the state after this pass; a refusal is decided about again
        seen = replace(seen, isvc=applied.made)
    served = served_condition(seen, plan, gate, applied)
    conditions = [valid, cache.condition, served, ready_condition(valid, gate, served)]
    if (about_adapters := adapters_condition(seen, disk, adapters)) is not None:
        conditions.append(about_adapters)
    status = render_status(seen, conditions, adapters, disk, cache)
    status["status"] = phase(seen, valid, served, cache, adapters)
    decision = draft.decision(without_nulls(status))
    return replace(decision, at_rest=_at_rest(seen, decision, disk, adapters, applied))


def _at_rest(seen: ServiceFacts, decision: Decision, disk: Disk, adapters: AdaptersDecision, applied: Applied) -> bool:
    """Whether nothing follows from what this pass writes.

    Adapters live on from the status, a roll is reported until it is over, and a new cache may bring another base.
    """
    if any(kind != JOB for kind, _ in decision.create) or any(deletion.kind != JOB for deletion in decision.delete):
        return False
    if not (disk.at_rest and adapters.at_rest) if disk.wanted else seen.stage_jobs or decision.status.get("adapters"):
        return False
    if any(kind not in OF_THE_SERVER or (kind == INFERENCE_SERVICE and not applied.made) for kind, _ in decision.apply):
        return False
    told = {**seen.service, "status": decision.status}
    base, after = seen.facts.base, resolve_base(seen.facts.world, told, seen.facts.pipeline)
    return (after.state, after.artifact) == (base.state, base.artifact)


def _findings(seen: ServiceFacts) -> dict[str, tuple[FieldError, ...]]:
    """Return what is wrong with single adapters, by name: their artifacts themselves, or for this service."""
    refused = {name: (error,) for name, error in refused_adapters(seen.facts).items()}
    return {entry.ref.name: entry.errors for entry in seen.facts.adapter_findings} | refused


def _adapters(seen: ServiceFacts, draft: Draft, disk: Disk) -> AdaptersDecision:
    if (
        not view.adapter_refs(seen.service)
        and not view.items(seen.service, "status", "adapters")
        and not seen.stage_jobs
    ):
        return AdaptersDecision(at_rest=True)
    wiring = seen.wiring
    decided = decide_adapters(
        AdapterFacts(
            service=seen.service,
            now=seen.now,
            settings=seen.settings,
            artifacts=seen.facts.artifacts,
            findings=_findings(seen),
            base=seen.base,
            claim=disk.claim,
            claim_uid=disk.claim_uid,
            synced=disk.synced,
            mounted=wiring.claim if wiring is not None else "",
            max_rank=ceiling_in_force(seen),
            stage_jobs=seen.stage_jobs,
            progress=seen.progress,
            configs=_job_configs(seen),
            pull_secrets=job_pull_secrets(seen),
            pods=seen.pods,
            gpu_resource=seen.plan.gpu_resource if seen.plan is not None else None,
            free_jobs=seen.free_jobs,
        )
    )
    draft.queued = draft.queued or decided.queued
    draft.create += [(JOB, job) for job in decided.create]
    draft.delete += [deletion for deletion in decided.delete if deletion not in draft.delete]
    draft.events += decided.events
    draft.look_again(decided.recheck_after)
    return decided


def _job_configs(seen: ServiceFacts) -> dict[str, AdapterConfig]:
    """Return what the Jobs of each adapter are configured by, by name of the adapter."""
    config, world = seen.facts.config, seen.facts.world
    return {
        name: adapter_runtime_config(world, config, artifact)
        for name, artifact in seen.facts.artifacts.items()
        if artifact is not None and not isinstance(artifact, Unreadable)
    }
