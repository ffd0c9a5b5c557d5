"""What an AIMService needs and how it stands: cache, subtree, adapters, InferenceService, status. Pure.

Source: contract, sections 2 to 8 and 11.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from api.accelerators import node_selector_terms
from api.errors import FieldError
from api.jobs import Progress
from api.kinds import (
    AIM_CLUSTER_RUNTIME_CONFIG,
    AIM_PROFILE,
    AIM_RUNTIME_CONFIG,
    CONFIG_MAP,
    INFERENCE_SERVICE,
    JOB,
    Kind,
)
from api.names import FEATURE_ADAPTERS, FEATURE_ADAPTERS_SCALE_ONLY, inference_service_name, sync_key
from api.view import (
    EMPTY,
    Json,
    adapter_mode,
    adapter_refs,
    condition,
    dig,
    generation_of,
    integer,
    items,
    mapping,
    name_of,
    namespace_of,
    runtime_config_name,
    terminating,
    text,
    uid_of,
    uses_adapters,
)
from reconcile.conditions import Condition, render_conditions
from reconcile.decision import Decision, Delete, EventNote, sooner
from reconcile.jobs import JobState, retry_at
from reconcile.objects import owned_by, without_nulls
from reconcile.service import adapters as adapter_life
from reconcile.service.adapters import AdaptersDecision, ServerPod, decide_adapters, declared_paths, describe
from reconcile.service.manifests import (
    AdapterWiring,
    cache_kind,
    cache_name,
    live_wiring,
    render_cache,
    render_inference_service,
    render_overlay,
    render_profile_config_map,
    render_sync_job,
    replicas_of,
)
from reconcile.service.plan import Plan, make_plan
from reconcile.settings import ReconcileSettings
from rules.resolve import Missing, Reference, Resolved, Unknown, effective_profile
from rules.seen import ServiceSeen

ADAPTER_CONFIG_REASONS = frozenset(
    {
        "AdapterDeclaredTwice",
        "AdapterIncompatible",
        "AdapterNotAnAdapter",
        "AdapterParentMismatch",
        "AdapterPathDuplicate",
        "AdapterPathInvalid",
        "AdapterRankAboveCeiling",
        "DedicatedCachingWithAdapters",
        "FeatureMissing",
        "FeatureScaleOnly",
        "MaxRankInStaticMode",
        "MaxRankUnsupported",
        "ModelSourcesAmbiguous",
        "RuntimeConfigMaxRankUnsupported",
        "TooManyAdapters",
    }
)
_FAILED_TO_SERVE = frozenset({"CrashLoopBackOff", "NameTaken", "InferenceServiceRefused", "ReconcileFailed"})
_NEVER_ON_DISK = frozenset({"AdapterNotAnAdapter", "AdapterPathDuplicate", "AdapterPathInvalid"})


@dataclass(frozen=True, slots=True)
class Observed:
    """All that a pass over one service looks at.

    `facts`: what follows from the service and the world by the rules. `caches`: caches of the namespace for the same
    profile or template. `progress`: by Job UID. `pods`: ready pods of the predictor with what their servers list.
    `pool_nodes`: nodes that offer the accelerator, None when nodes are not watched. `refusal`: what the API server
    said when it last refused our InferenceService.
    """

    facts: ServiceSeen
    now: datetime
    settings: ReconcileSettings
    errors: tuple[FieldError, ...] = ()
    caches: tuple[Json, ...] = ()
    disk_claim: Json | None = None
    sync_jobs: tuple[JobState, ...] = ()
    stage_jobs: tuple[JobState, ...] = ()
    progress: Mapping[str, Progress] = field(default_factory=dict)
    adapter_configs: Mapping[str, Json] = field(default_factory=dict)
    isvc: Json | None = None
    deployment: Json | None = None
    predictor_pods: tuple[Json, ...] = ()
    pods: tuple[ServerPod, ...] = ()
    config_maps: tuple[Json, ...] = ()
    pool_nodes: int | None = None
    refusal: str = ""

    @property
    def service(self) -> Json:
        """The service itself."""
        return self.facts.new


def decide(seen: Observed) -> Decision:
    """Return everything that this service needs now."""
    return _Pass(seen).run()


@dataclass
class _Pass:
    seen: Observed
    apply: list[tuple[Kind, Mapping[str, Any]]] = field(default_factory=list)
    create: list[tuple[Kind, Mapping[str, Any]]] = field(default_factory=list)
    delete: list[Delete] = field(default_factory=list)
    events: list[EventNote] = field(default_factory=list)
    recheck: timedelta | None = None
    _cache_in_use: Json | None = None

    def run(self) -> Decision:
        seen = self.seen
        config_valid = self._config_valid()
        adapter_errors = tuple(error for error in seen.errors if self._about_adapters(error))
        live = self._own_isvc()
        plan = self._plan(adapter_errors, live)
        cache_ready = self._cache(config_valid, plan)
        disk = self._disk(config_valid)
        adapters = self._adapters(disk)
        wiring = self._wiring(disk, adapter_errors, live)
        gate = self._gate(config_valid, cache_ready, disk, adapters, plan)
        served = self._serve(plan, wiring, live, gate)
        adapters_condition = self._adapters_condition(adapter_errors, disk, adapters)
        ready = self._ready(config_valid, gate, served)
        conditions = [config_valid, cache_ready, served, ready]
        if adapters_condition is not None:
            conditions.append(adapters_condition)
        status = self._status(conditions, adapters, disk, cache_ready)
        status["status"] = self._phase(config_valid, served, adapters, gate)
        return Decision(
            apply=tuple(self.apply),
            create=tuple(self.create),
            status=without_nulls(status),
            delete=tuple(self.delete),
            events=tuple(self.events),
            recheck_after=self.recheck,
        )

    # -- configuration ----------------------------------------------------------------------------------------------

    def _about_adapters(self, error: FieldError) -> bool:
        return uses_adapters(self.seen.service) and error.reason in ADAPTER_CONFIG_REASONS

    def _config_valid(self) -> Condition:
        seen = self.seen
        errors = list(seen.errors)
        if errors:
            about_adapters = any(self._about_adapters(error) for error in errors)
            reason = "AdapterConfigInvalid" if about_adapters else errors[0].reason
            return Condition("ConfigValid", "False", reason, "; ".join(str(error) for error in errors))
        config = seen.facts.config
        if text(seen.service, "spec", "runtimeConfigName") and config.readable and not config.found:
            message = (
                f'no AIMRuntimeConfig or AIMClusterRuntimeConfig "{config.name}" exists: create it or correct the name'
            )
            return Condition("ConfigValid", "False", "ReferenceNotFound", f"spec.runtimeConfigName: {message}")
        return Condition("ConfigValid", "True", "ConfigValid")

    def _own_isvc(self) -> Json | None:
        isvc = self.seen.isvc
        return isvc if isvc is not None and owned_by(isvc, self.seen.service) else None

    def _plan(self, adapter_errors: tuple[FieldError, ...], live: Json | None) -> Plan | None:
        """Return what to run; a profile that lost its feature under a running server keeps it for this server."""
        keep = None
        wiring = live_wiring(live)
        if wiring is not None and any(error.reason.startswith("Feature") for error in adapter_errors):
            keep = (
                FEATURE_ADAPTERS if wiring.mode == "dynamic" else self.seen.facts.feature or FEATURE_ADAPTERS_SCALE_ONLY
            )
        return make_plan(self.seen.facts.pipeline, self.seen.service, keep_feature=keep)

    # -- cache and base ---------------------------------------------------------------------------------------------

    def _base(self) -> Json:
        base = self.seen.facts.base
        return base.artifact if base.known and not terminating(base.artifact) else EMPTY

    def _cache(self, valid: Condition, plan: Plan | None) -> Condition:
        """Choose or make the cache; report it."""
        missing = self._unresolved()
        if missing is not None:
            return missing
        pipeline = self.seen.facts.pipeline
        if not pipeline.sources:
            if pipeline.kind == "template" and plan is not None:
                return Condition("CacheReady", "True", "NothingToCache", "the image brings its own model")
            return Condition(
                "CacheReady", "False", "NoModelSources", "the profile has no model sources: it cannot be served"
            )
        origin = self._origin()
        if origin is None:
            return Condition("CacheReady", "True", "NothingToCache", "the image brings its own model")
        chosen = self._choose_cache(*origin, valid)
        return self._cache_condition(chosen)

    def _unresolved(self) -> Condition | None:
        pipeline = self.seen.facts.pipeline
        references: tuple[Reference | None, ...] = (pipeline.profile, pipeline.model, pipeline.template)
        for reference in references:
            if isinstance(reference, Missing):
                kinds = " or ".join(kind.kind for kind in reference.kinds)
                message = f'no {kinds} "{reference.name}" exists yet'
                return Condition("CacheReady", "False", "ReferenceNotFound", message)
            if isinstance(reference, Unknown):
                return Condition("CacheReady", "False", "ReferenceUnreadable", f'"{reference.name}" could not be read')
        if pipeline.kind == "template" and pipeline.template is None and isinstance(pipeline.model, Resolved):
            names = ", ".join(name_of(template) for template in pipeline.fitting)
            if names:
                message = f"several templates fit: {names}; set spec.template.name"
                return Condition("CacheReady", "False", "TemplateAmbiguous", message)
            if not pipeline.sources:
                return Condition("CacheReady", "False", "TemplateNotFound", "no template fits the model")
        return None

    def _origin(self) -> tuple[Kind, str, str] | None:
        """Return the kind of cache, and name and scope of the profile or template that it caches for."""
        pipeline = self.seen.facts.pipeline
        if pipeline.kind == "profile":
            if not isinstance(pipeline.profile, Resolved):
                return None
            if items(self.seen.service, "spec", "profileOverrides", "modelSources"):
                overlay = render_overlay(self.seen.service, effective_profile(pipeline.profile.obj, self.seen.service))
                self.apply.append((AIM_PROFILE, overlay))
                return cache_kind("profile"), overlay["metadata"]["name"], "Namespace"
            return cache_kind("profile"), pipeline.profile.name, pipeline.profile.scope
        source = pipeline.template if isinstance(pipeline.template, Resolved) else pipeline.model
        if not isinstance(source, Resolved):
            return None
        return cache_kind("template"), source.name, source.scope

    def _choose_cache(self, kind: Kind, origin: str, scope: str, valid: Condition) -> Json | None:
        """Return the cache that serves: ours, made or given its disk where needed, or a user's that already suits.

        A user's spec is never written: where theirs lacks the disk, one of ours beside it asks for it.
        """
        wants_disk = uses_adapters(self.seen.service)
        ours = cache_name(self.seen.service, origin, scope)
        for cache in self.seen.caches:
            suits = not wants_disk or dig(cache, "spec", "requiresAdapterDisk") is True
            if name_of(cache) != ours and suits and not terminating(cache):
                return cache
        existing = next((cache for cache in self.seen.caches if name_of(cache) == ours), None)
        if valid.true and not terminating(existing):
            needs = wants_disk or dig(existing, "spec", "requiresAdapterDisk") is True
            if existing is None or (needs and dig(existing, "spec", "requiresAdapterDisk") is not True):
                sources = self.seen.facts.pipeline.sources or ()
                cache = render_cache(self.seen.service, kind, origin, scope, requires_disk=needs, sources=sources)
                self.apply.append((kind, cache))
                return existing or cache
        return existing

    def _cache_condition(self, cache: Json | None) -> Condition:
        self._cache_in_use = cache
        if cache is None:
            return Condition("CacheReady", "False", "CreatingCaches", "the cache is not created yet")
        base = self._base()
        if base and text(base, "status", "status") == "Ready":
            return Condition("CacheReady", "True", "AllCachesReady")
        if base:
            ready = condition(base, "Ready")
            words = ": ".join(word for word in (text(ready, "reason"), text(ready, "message")) if word)
            message = f'base artifact "{name_of(base)}" is not ready' + (f": {words}" if words else "")
            problem = self._storage_problem(base)
            return Condition("CacheReady", "False", "CachesNotReady", f"{message}; {problem}" if problem else message)
        ready = condition(cache, "ArtifactsReady")
        return Condition(
            "CacheReady",
            "False",
            text(ready, "reason") or "CreatingCaches",
            text(ready, "message") or "waiting for the cache",
        )

    def _storage_problem(self, base: Json) -> str:
        """What is wrong with the base's claims, for people who look only at the service."""
        for kind in ("CacheStorageReady", "AdapterDiskReady"):
            entry = condition(base, kind)
            if entry.get("status") == "False" and entry.get("reason") in ("ClaimUnbound", "ClaimProvisioningFailed"):
                return str(entry.get("message"))
        return ""

    # -- disk and adapters ------------------------------------------------------------------------------------------

    def _disk(self, valid: Condition) -> _Disk:
        """Return the state of the adapter disk and of this service's subtree; makes and deletes sync Jobs."""
        seen = self.seen
        service = seen.service
        status = mapping(service, "status")
        claim = text(self._base(), "status", "adapterPersistentVolumeClaim") or ""
        bound = seen.disk_claim is not None and not terminating(seen.disk_claim)
        claim_uid = uid_of(seen.disk_claim) if claim and bound else ""
        recorded = _Recorded(
            key=text(status, "adapterSubtreeSyncKey") or "",
            claim=text(status, "adapterDiskPersistentVolumeClaim") or "",
            claim_uid=text(status, "adapterDiskPersistentVolumeClaimUid") or "",
        )
        wanted = uses_adapters(service) or bool(live_wiring(self._own_isvc()))
        if not wanted or not claim_uid or not self._subtree_allowed(valid):
            return _Disk(wanted, claim if claim_uid else "", claim_uid, recorded, synced=False)
        rejected = frozenset(
            entry.ref.name
            for entry in seen.facts.adapter_findings
            if any(error.reason in _NEVER_ON_DISK for error in entry.errors)
        )
        paths = declared_paths(service, seen.facts.artifacts, rejected)
        key = sync_key(uid_of(service), paths, claim, claim_uid)
        done, problem = self._sync(key, recorded.key, claim, paths)
        if done:
            recorded = _Recorded(key, claim, claim_uid)
        return _Disk(wanted, claim, claim_uid, recorded, synced=done, problem=problem)

    def _subtree_allowed(self, valid: Condition) -> bool:
        """A service that may never be served gets no subtree; single invalid adapters do not hold the others back."""
        return valid.true or all(error.reason.startswith("Adapter") for error in self.seen.errors)

    def _sync(self, key: str, recorded: str, claim: str, paths: list[str]) -> tuple[bool, str]:
        """Return whether the disk knows the declared set, and what stands in the way; one sync runs at a time."""
        seen = self.seen
        namespace = namespace_of(seen.service)
        busy = False
        attempt, failed_at, problem = 0, None, ""
        done = recorded == key
        for job in seen.sync_jobs:
            if job.terminating:
                busy = busy or not job.finished
                continue
            if job.key != key:
                self.delete.append(Delete(JOB, namespace, job.name, job.uid))
                busy = busy or not job.finished
            elif job.phase == "succeeded" or done:
                done = True
                self.delete.append(Delete(JOB, namespace, job.name, job.uid))
            elif job.phase == "failed":
                result = job.result
                problem = f"{result.reason}: {result.message}" if result else "the subtree-sync Job failed"
                attempt, failed_at = job.attempt, job.finished_at or seen.now
                due = retry_at(failed_at, attempt, seen.settings, None)
                if due > seen.now:
                    self.recheck = sooner(self.recheck, due - seen.now)
                    busy = True
                else:
                    self.delete.append(Delete(JOB, namespace, job.name, job.uid))
            else:
                busy, problem = True, job.blocked_by
        if not done and not busy:
            secrets = self._pull_secrets()
            job_object = render_sync_job(
                seen.service,
                claim=claim,
                key=key,
                paths=paths,
                attempt=attempt + 1,
                pull_secrets=secrets,
                settings=seen.settings,
            )
            self.create.append((JOB, job_object))
        return done, problem

    def _pull_secrets(self) -> tuple[Any, ...]:
        own = items(self.seen.service, "spec", "imagePullSecrets")
        return tuple(own or items(self.seen.facts.config.spec, "imagePullSecrets"))

    def _adapters(self, disk: _Disk) -> AdaptersDecision:
        seen = self.seen
        if not adapter_refs(seen.service) and not items(seen.service, "status", "adapters") and not seen.stage_jobs:
            return AdaptersDecision()
        decided = decide_adapters(
            adapter_life.Observed(
                service=seen.service,
                now=seen.now,
                settings=seen.settings,
                artifacts=seen.facts.artifacts,
                findings={entry.ref.name: entry.errors for entry in seen.facts.adapter_findings},
                base=self._base(),
                claim=disk.claim,
                claim_uid=disk.claim_uid,
                synced=disk.synced,
                max_rank=seen.facts.ceiling.value,
                stage_jobs=seen.stage_jobs,
                progress=seen.progress,
                configs=seen.adapter_configs,
                pull_secrets=self._pull_secrets(),
                pods=seen.pods,
            )
        )
        self.create += [(JOB, job) for job in decided.create]
        self.delete += decided.delete
        self.events += decided.events
        self.recheck = sooner(self.recheck, decided.recheck_after)
        return decided

    def _wiring(self, disk: _Disk, adapter_errors: tuple[FieldError, ...], live: Json | None) -> AdapterWiring | None:
        """Return the adapter part of the container; a running server keeps its own while any of it is in doubt."""
        service = self.seen.service
        kept = live_wiring(live)
        if live is not None and (adapter_errors or (disk.wanted and not disk.ready)):
            return kept
        if not uses_adapters(service) or not disk.ready:
            return None
        rank = self.seen.facts.ceiling.value or (kept.max_rank if kept else None)
        return AdapterWiring(disk.claim, adapter_mode(service), rank) if rank is not None else kept

    def _adapters_condition(
        self, errors: tuple[FieldError, ...], disk: _Disk, adapters: AdaptersDecision
    ) -> Condition | None:
        if not uses_adapters(self.seen.service) and not adapters.entries:
            return None
        if errors:
            return Condition("Adapters", "False", "AdapterConfigInvalid", "; ".join(str(error) for error in errors))
        if not disk.claim_uid:
            return Condition("Adapters", "False", "ParentLacksAdapterDisk", self._no_disk())
        if not disk.ready:
            message = f"creating the service's directory on the adapter disk {disk.problem}".strip()
            return Condition("Adapters", "False", "AdapterSubtreeProvisioning", message)
        words = describe(adapters.entries)
        if not disk.synced:
            note = "the directory on the disk is being brought to the declared set"
            words = "; ".join(part for part in (words, f"{note}: {disk.problem}" if disk.problem else note) if part)
        if adapters.all_on_disk:
            return Condition("Adapters", "True", "AdaptersStaged", words)
        return Condition("Adapters", "True", "AdaptersStaging", words)

    def _no_disk(self) -> str:
        base = self._base()
        if not base:
            return "the base model is not resolved yet"
        problem = self._storage_problem(base)
        words = f'base artifact "{name_of(base)}" has no adapter disk yet'
        return f"{words}: {problem}" if problem else words

    # -- InferenceService -------------------------------------------------------------------------------------------

    def _gate(
        self, valid: Condition, cache: Condition, disk: _Disk, adapters: AdaptersDecision, plan: Plan | None
    ) -> str:
        """Return what keeps the InferenceService from being created, empty when nothing does (contract, section 7)."""
        if not valid.true:
            return f"{valid.reason}: {valid.message}"
        if plan is None:
            return f"{cache.reason}: {cache.message}"
        if not cache.true:
            return f"{cache.reason}: {cache.message}"
        if uses_adapters(self.seen.service):
            if not disk.claim_uid:
                return f"ParentLacksAdapterDisk: {self._no_disk()}"
            if not disk.ready:
                return "AdapterSubtreeProvisioning: the service's directory on the adapter disk is being created"
            if adapter_mode(self.seen.service) == "static" and not adapters.all_on_disk:
                return f"AdaptersStaging: static mode waits for all adapters: {describe(adapters.declared)}"
            if self.seen.facts.ceiling.value is None:
                return "AdaptersStaging: the rank ceiling is not known yet"
        return ""

    def _serve(self, plan: Plan | None, wiring: AdapterWiring | None, live: Json | None, gate: str) -> Condition:
        seen = self.seen
        name = inference_service_name(name_of(seen.service), namespace_of(seen.service))
        foreign = seen.isvc is not None and live is None
        if foreign and name is not None:
            message = f'InferenceService "{name}" exists and belongs to another owner'
            return Condition("InferenceServiceReady", "False", "NameTaken", message)
        if name is None or (live is None and gate):
            return Condition("InferenceServiceReady", "False", "Gated", gate or "the namespace's name is too long")
        if plan is not None and self._may_update(live, gate) and not terminating(live):
            self._apply_isvc(name, plan, wiring, live)
        return self._served(live)

    def _may_update(self, live: Json | None, gate: str) -> bool:
        """A running server follows its spec unless what it needs is not known at the moment."""
        return not gate or (live is not None and bool(self._base() or not self.seen.facts.pipeline.sources))

    def _apply_isvc(self, name: str, plan: Plan, wiring: AdapterWiring | None, live: Json | None) -> None:
        seen = self.seen
        config_map = render_profile_config_map(seen.service, plan)
        if config_map is not None:
            self.apply.append((CONFIG_MAP, config_map))
        isvc = render_inference_service(
            seen.service,
            name=name,
            plan=plan,
            base=self._base(),
            wiring=wiring,
            config=seen.facts.config.spec,
            settings=seen.settings,
            live=live,
        )
        self.apply.append((INFERENCE_SERVICE, isvc))
        self._tell_of_roll(wiring, live)
        keep = name_of(config_map) if config_map else ""
        if live is not None and self._rolled_out():
            self.delete += [
                Delete(CONFIG_MAP, namespace_of(old), name_of(old), uid_of(old))
                for old in seen.config_maps
                if name_of(old) != keep and not _mounts(live, name_of(old))
            ]

    def _tell_of_roll(self, wiring: AdapterWiring | None, live: Json | None) -> None:
        before = live_wiring(live)
        if before is None or wiring is None or before.max_rank == wiring.max_rank:
            return
        pods = integer(self.seen.deployment, "status", "replicas") or 0
        message = (
            f"the rank ceiling goes from {before.max_rank} to {wiring.max_rank} ({self.seen.facts.ceiling.origin}); "
            f"{pods} pods are restarted for it"
        )
        self.events.append(EventNote("Normal", "AdapterMaxRankChanged", message))

    def _rolled_out(self) -> bool:
        deployment = self.seen.deployment
        replicas = integer(deployment, "status", "replicas") or 0
        settled = integer(deployment, "status", "observedGeneration") == generation_of(deployment)
        return (
            deployment is not None and settled and (integer(deployment, "status", "updatedReplicas") or 0) == replicas
        )

    def _served(self, live: Json | None) -> Condition:
        """Return InferenceServiceReady: KServe's verdict, with what only Deployment and pods show."""
        if self.seen.refusal:
            return Condition("InferenceServiceReady", "False", "InferenceServiceRefused", self.seen.refusal)
        if live is None:
            return Condition("InferenceServiceReady", "False", "Creating", "the InferenceService is being created")
        ready = condition(live, "Ready")
        if ready.get("status") == "True":
            rolling = "" if self._rolled_out() or self.seen.deployment is None else "a new version is being rolled out"
            return Condition("InferenceServiceReady", "True", "InferenceServiceReady", rolling)
        if crash := self._crash():
            return Condition("InferenceServiceReady", "False", "CrashLoopBackOff", crash)
        if pool := self._empty_pool():
            return Condition("InferenceServiceReady", "False", "NoMatchingNode", pool)
        predictor = condition(live, "PredictorReady")
        for entry in (predictor, ready):
            if entry.get("reason"):
                detail = text(entry, "message") or "not ready"
                return Condition("InferenceServiceReady", "False", str(entry["reason"]), detail)
        return Condition("InferenceServiceReady", "False", "Starting", "waiting for the model server")

    def _crash(self) -> str:
        for pod in sorted(self.seen.predictor_pods, key=name_of):
            for status in items(pod, "status", "containerStatuses"):
                reason = text(status, "state", "waiting", "reason") or ""
                if reason and reason not in ("ContainerCreating", "PodInitializing"):
                    detail = text(status, "state", "waiting", "message") or ""
                    code = dig(status, "lastState", "terminated", "exitCode")
                    ended = f", last exit code {code}" if code is not None else ""
                    where = f"kubectl logs -n {namespace_of(pod)} {name_of(pod)}"
                    return f"pod {name_of(pod)}: {reason}{ended}: {detail} (see {where})"
        return ""

    def _empty_pool(self) -> str:
        plan = make_plan(self.seen.facts.pipeline, self.seen.service)
        if self.seen.pool_nodes != 0 or plan is None or plan.accelerator_model is None or not plan.gpus:
            return ""
        terms = node_selector_terms(plan.accelerator_model, plan.partitioning)
        labels = " or ".join(dict.fromkeys(term["matchExpressions"][0]["key"] for term in terms))
        return f"no node offers {plan.accelerator_model}: looked for the labels {labels}"

    # -- status -----------------------------------------------------------------------------------------------------

    def _ready(self, valid: Condition, gate: str, served: Condition) -> Condition:
        if served.true:
            return Condition("Ready", "True", "Serving")
        if not valid.true:
            return Condition("Ready", "False", valid.reason, valid.message)
        if served.reason == "Gated" and gate:
            reason, _, message = gate.partition(": ")
            return Condition("Ready", "False", reason, message)
        return Condition("Ready", "False", served.reason, served.message)

    def _phase(self, valid: Condition, served: Condition, adapters: AdaptersDecision, gate: str) -> str:
        if served.true:
            bad = {"Failed", "LoadRejected"}
            restart = any(adapter_life.reason_of(entry) == adapter_life.RESTART_REQUIRED for entry in adapters.entries)
            failing = any(entry["state"] in bad for entry in adapters.declared)
            return "Degraded" if not valid.true or failing or restart else "Running"
        if self.seen.pods:
            return "Degraded"
        if not valid.true or served.reason in (
            "CrashLoopBackOff",
            "NameTaken",
            "InferenceServiceRefused",
            "ReconcileFailed",
        ):
            return "Failed"
        return "Pending" if served.reason == "Gated" else "Starting"

    def _status(
        self, conditions: list[Condition], adapters: AdaptersDecision, disk: _Disk, cache: Condition
    ) -> dict[str, Any]:
        seen = self.seen
        service = seen.service
        pipeline = seen.facts.pipeline
        on_disk = sum(1 for entry in adapters.declared if entry["state"] in adapter_life.ON_DISK)
        declared = len({ref.name for ref in adapter_refs(service)})
        ceiling = seen.facts.ceiling.value if uses_adapters(service) else None
        return {
            "observedGeneration": generation_of(service),
            "conditions": render_conditions(service, conditions, generation=generation_of(service), now=seen.now),
            "resolvedProfile": _reference(pipeline.profile),
            "resolvedModel": _reference(pipeline.model),
            "resolvedTemplate": _reference(pipeline.template),
            "resolvedRuntimeConfig": self._resolved_config(),
            "cache": self._cache_status(),
            "runtime": self._runtime(),
            "adapters": list(adapters.entries) or None,
            "adapterSummary": f"{on_disk}/{declared}" if declared or uses_adapters(service) else None,
            "adapterMaxRank": ceiling if ceiling is not None else integer(service, "status", "adapterMaxRank"),
            "adapterSubtreeSyncKey": disk.recorded.key or None,
            "adapterDiskPersistentVolumeClaim": disk.recorded.claim or None,
            "adapterDiskPersistentVolumeClaimUid": disk.recorded.claim_uid or None,
        }

    def _resolved_config(self) -> dict[str, Any] | None:
        config = self.seen.facts.config
        if not config.found:
            return None
        found = config.namespaced if config.namespaced is not None else config.cluster
        kind = AIM_RUNTIME_CONFIG if config.namespaced is not None else AIM_CLUSTER_RUNTIME_CONFIG
        return {
            "kind": kind.kind,
            "name": runtime_config_name(self.seen.service),
            "namespace": namespace_of(found) or None,
            "scope": config.scope,
            "uid": uid_of(found),
        }

    def _cache_status(self) -> dict[str, Any] | None:
        cache = self._cache_in_use
        if cache is None or not uid_of(cache):
            kept = mapping(self.seen.service, "status", "cache")
            return dict(kept) if kept else None
        kind = cache_kind(self.seen.facts.pipeline.kind)
        key = "profileCacheRef" if self.seen.facts.pipeline.kind == "profile" else "templateCacheRef"
        reference = {
            "kind": kind.kind,
            "name": name_of(cache),
            "namespace": namespace_of(cache),
            "scope": "Namespace",
            "uid": uid_of(cache),
        }
        return {key: reference}

    def _runtime(self) -> dict[str, Any] | None:
        deployment = self.seen.deployment
        if deployment is None and self._own_isvc() is None:
            return None
        bounds = replicas_of(self.seen.service)
        current = integer(deployment, "status", "replicas") or 0
        desired = integer(deployment, "spec", "replicas")
        desired = bounds.minimum if desired is None else desired
        return {
            "currentReplicas": current,
            "desiredReplicas": desired,
            "minReplicas": bounds.minimum,
            "maxReplicas": bounds.maximum,
            "replicas": f"{integer(deployment, 'status', 'readyReplicas') or 0}/{desired}",
        }


@dataclass(frozen=True, slots=True)
class _Recorded:
    """The last successful sync: its key and the disk that it was on."""

    key: str
    claim: str
    claim_uid: str


@dataclass(frozen=True, slots=True)
class _Disk:
    """The adapter disk as it concerns one service."""

    wanted: bool
    claim: str
    claim_uid: str
    recorded: _Recorded
    synced: bool
    problem: str = ""

    @property
    def ready(self) -> bool:
        """Whether the subtree exists on the present disk."""
        return bool(self.claim_uid) and self.recorded.claim_uid == self.claim_uid


def _reference(reference: Reference | None) -> dict[str, Any] | None:
    if not isinstance(reference, Resolved):
        return None
    return {
        "kind": reference.kind.kind,
        "name": reference.name,
        "namespace": namespace_of(reference.obj) or None,
        "scope": reference.scope,
        "uid": uid_of(reference.obj),
    }


def _mounts(isvc: Json, config_map: str) -> bool:
    volumes = items(isvc, "spec", "predictor", "volumes")
    return any(dig(volume, "configMap", "name") == config_map for volume in volumes)
