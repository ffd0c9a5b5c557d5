"""What an AIMService needs, and its status: cache, directory on the disk, adapters, InferenceService, status. Pure.

Source: docs/contract.md, Caches, Adapter disk, InferenceService, Status.
One file for each step: `cache`, `subtree`, `adapters`, `serving`, `report`.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from api import view
from api.kinds import CONFIG_MAP, INFERENCE_SERVICE, JOB
from api.reasons import Reason
from api.view import Json
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
from rules.environment import merge_env
from rules.references import Unreadable
from rules.runtime_config import MergedRuntimeConfig, resolve_runtime_config

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


def _adapters(seen: ServiceFacts, draft: Draft, disk: Disk) -> AdaptersDecision:
    if (
        not view.adapter_refs(seen.service)
        and not view.items(seen.service, "status", "adapters")
        and not seen.stage_jobs
    ):
        return AdaptersDecision(at_rest=True)
    configs, wiring = _job_configs(seen), seen.wiring
    decided = decide_adapters(
        AdapterFacts(
            service=seen.service,
            now=seen.now,
            settings=seen.settings,
            artifacts=seen.facts.artifacts,
            findings={entry.ref.name: entry.errors for entry in seen.facts.adapter_findings},
            base=seen.base,
            claim=disk.claim,
            claim_uid=disk.claim_uid,
            synced=disk.synced,
            mounted=wiring.claim if wiring is not None else "",
            max_rank=ceiling_in_force(seen),
            stage_jobs=seen.stage_jobs,
            progress=seen.progress,
            configs=configs.specs,
            config_problems=configs.problems,
            pull_secrets=job_pull_secrets(seen),
            pods=seen.pods,
            free_jobs=seen.free_jobs,
        )
    )
    draft.queued = draft.queued or decided.queued
    draft.create += [(JOB, job) for job in decided.create]
    draft.delete += [deletion for deletion in decided.delete if deletion not in draft.delete]
    draft.events += decided.events
    draft.look_again(decided.recheck_after)
    return decided


@dataclass(frozen=True, slots=True)
class _JobConfigs:
    """By adapter name: the RuntimeConfig of its Jobs, or why it is not known."""

    specs: dict[str, Json] = field(default_factory=dict)
    problems: dict[str, str] = field(default_factory=dict)


def _job_configs(seen: ServiceFacts) -> _JobConfigs:
    """Return what the Jobs of each adapter are configured by.

    The adapter's own RuntimeConfig, where it names one, is laid over the service's: env by name, and its `artifact.s3`
    block replaces the service's. A config that cannot be read starts no Job: it would run with wrong credentials.
    Source: docs/contract.md, Configuration of an adapter.
    """
    configs = _JobConfigs()
    for name, artifact in seen.facts.artifacts.items():
        if artifact is None or isinstance(artifact, Unreadable):
            continue
        service_config = seen.facts.config
        own_name = view.text(artifact, "spec", "runtimeConfigName")
        own = resolve_runtime_config(seen.facts.world, view.namespace_of(seen.service), own_name) if own_name else None
        problem = _config_problem(service_config) or (_config_problem(own, required=True) if own else "")
        if problem:
            configs.problems[name] = problem
        configs.specs[name] = _laid_over(service_config.spec, own.spec) if own else service_config.spec
    return configs


def _config_problem(config: MergedRuntimeConfig, *, required: bool = False) -> str:
    if not config.readable:
        message = f'RuntimeConfig "{config.name}" cannot be read, so its credentials are not known'
        return f"{Reason.RUNTIME_CONFIG_UNREADABLE}: {message}"
    if required and config.missing:
        return (
            f'{Reason.RUNTIME_CONFIG_NOT_FOUND}: no AIMRuntimeConfig or AIMClusterRuntimeConfig "{config.name}" exists'
        )
    return ""


def _laid_over(under: Json, over: Json) -> Json:
    merged = dict(under)
    merged["env"] = list(merge_env(view.items(under, "env"), view.items(over, "env")).values())
    if s3 := view.mapping(over, "artifact", "s3"):
        merged["artifact"] = dict(view.mapping(under, "artifact")) | {"s3": s3}
    if secrets := view.items(over, "imagePullSecrets"):
        merged["imagePullSecrets"] = list(secrets)
    return merged
