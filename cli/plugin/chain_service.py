"""Links of the chain that concern the service itself: spec, profile, feature, cache, base, disk, subtree, server.

Pure: each is a function from a snapshot to a link.
"""

from __future__ import annotations

from api import view
from api.kinds import AIM_ARTIFACT
from api.names import ROLE_FETCH, ROLE_SUBTREE_SYNC
from api.reasons import Reason
from api.view import Json
from cli.plugin.chain import (
    Link,
    State,
    broken,
    fix_of_blocked,
    from_error,
    in_conditions,
    is_held,
    look_claim,
    look_events,
    look_job,
    reason_of_blocked,
)
from cli.plugin.output import size
from cli.plugin.snapshot import Snapshot
from reconcile.pods import trouble_of
from rules.references import Missing, Resolved, Unknown
from rules.validate import judge_stored

# -- service, profile, feature --------------------------------------------------------------------------------------

_FEATURE = frozenset({Reason.FEATURE_MISSING, Reason.FEATURE_SCALE_ONLY})
_OF_SOURCES = frozenset({Reason.MODEL_SOURCES_AMBIGUOUS})


def _service(seen: Snapshot) -> Link:
    service = seen.service
    if view.terminating(service):
        return broken("service", Reason.SERVICE_TERMINATING, f'AIMService "{seen.name}" is being deleted')
    if view.paused(service):
        return broken(
            "service",
            Reason.RECONCILIATION_PAUSED,
            "reconciliation of the service is paused by annotation",
            f"kubectl annotate aimservice -n {seen.namespace} {seen.name} aim.eai.amd.com/reconciliation-paused-",
        )
    for error in seen.errors:
        if error.reason not in _FEATURE | _OF_SOURCES and not error.path.startswith("spec.adapters["):
            return from_error("service", error)
    if (silent := _controller(seen)) is not None:
        return silent
    if (said := _said_by_controller(seen, "service", "ConfigValid")) is not None:
        return said
    if _gate(seen)[0] == Reason.RUNTIME_CONFIG_UNREADABLE:
        return broken("service", *_gate(seen))
    return Link("service", "ok", f"generation {view.generation_of(service)} is valid and handled by the controller")


def _controller(seen: Snapshot) -> Link | None:
    handled = view.integer(seen.service, "status", "observedGeneration") or 0
    if seen.leases is not None and not any(is_held(lease, seen.now) for lease in seen.leases):
        return broken(
            "service",
            Reason.CONTROLLER_SILENT,
            "no controller holds the lease, so no service is being reconciled",
        )
    if handled < view.generation_of(seen.service):
        stored = view.generation_of(seen.service)
        says = f"generation {stored} is stored, the controller has handled {handled or 'none'} so far"
        return broken("service", Reason.CONTROLLER_BEHIND, says, state="waiting")
    return None


def _said_by_controller(seen: Snapshot, link: str, kind: str, *reasons: str) -> Link | None:
    """Return what the controller reports about a service that it does not serve, if the rules find nothing here.

    The controller may read objects that this user cannot read. Without `reasons` any reason counts.
    """
    entry = view.condition(seen.service, kind)
    reason = view.text(entry, "reason") or ""
    served = view.condition(seen.service, "InferenceServiceReady").get("status") == "True"
    if entry.get("status") != "False" or served or seen.errors or (reasons and reason not in reasons):
        return None
    return broken(link, reason, f"{kind} is False: {view.text(entry, 'message') or reason}", look=look_events(seen))


def _gate(seen: Snapshot) -> tuple[str, str]:
    """Return reason and words of what the InferenceService waits for; empty if it waits for nothing."""
    entry = view.condition(seen.service, "InferenceServiceReady")
    if view.text(entry, "reason") != Reason.GATED:
        return "", ""
    message = view.text(entry, "message") or ""
    head, _, rest = message.partition(": ")
    return (head, rest) if in_conditions(head) else (Reason.GATED, message)


def _profile(seen: Snapshot) -> Link:
    pipeline = seen.facts.pipeline
    for error in seen.errors:
        if error.reason in _OF_SOURCES:
            return from_error("profile", error)
    references = (
        [("profile", pipeline.profile)]
        if pipeline.kind == "profile"
        else [("model", pipeline.model), ("template", pipeline.template)]
    )
    for word, found in references:
        if isinstance(found, Missing):
            kinds = " or ".join(kind.kind for kind in found.kinds)
            says = f'spec.{word} names "{found.name}", but no {kinds} of that name exists'
            return broken(
                word,
                Reason.REFERENCE_NOT_FOUND,
                says,
                f"apply it, or correct spec.{word}.name",
                f"kubectl get {word_kinds(found)} -A",
            )
        if isinstance(found, Unknown):
            return broken(
                word,
                Reason.REFERENCE_UNREADABLE,
                f'cannot read "{found.name}": permission denied',
                "ask an administrator for read access",
                state="waiting",
            )
    if pipeline.kind == "profile" and not pipeline.sources:
        return broken(
            "profile",
            Reason.NO_MODEL_SOURCES,
            f'profile "{_names(pipeline.profile)}" has no model sources, so it serves nothing',
        )
    link = "profile" if pipeline.kind == "profile" else "template"
    if (said := _said_by_controller(seen, link, "CacheReady", *_UNRESOLVED)) is not None:
        return said
    if _gate(seen)[0] == Reason.IMAGE_UNKNOWN:
        return broken(link, *_gate(seen))
    return _template(seen) if pipeline.kind == "template" else Link("profile", "ok", f"{_names(pipeline.profile)}")


_UNRESOLVED = (
    Reason.REFERENCE_NOT_FOUND,
    Reason.REFERENCE_UNREADABLE,
    Reason.TEMPLATE_AMBIGUOUS,
    Reason.TEMPLATE_NOT_FOUND,
    Reason.NOTHING_TO_SERVE,
    Reason.NO_MODEL_SOURCES,
)


def word_kinds(found: Missing) -> str:
    """Return the kinds of a missing reference as kubectl accepts them."""
    return ",".join(kind.plural for kind in found.kinds)


def _template(seen: Snapshot) -> Link:
    pipeline = seen.facts.pipeline
    if pipeline.template is None and len(pipeline.fitting) > 1:
        names = ", ".join(view.name_of(one) for one in pipeline.fitting)
        return broken(
            "template",
            Reason.TEMPLATE_AMBIGUOUS,
            f"several templates fit the model: {names}",
            "set spec.defaultServiceTemplate of the model, or re-create the service with spec.template.name",
        )
    if pipeline.template is None and pipeline.image is None:
        return broken("template", Reason.TEMPLATE_NOT_FOUND, "spec.model has neither a template nor an image")
    return Link("template", "ok", _names(pipeline.template) if pipeline.template else f"image {pipeline.image}")


def _names(found: object) -> str:
    return f'{found.kind.kind} "{found.name}"' if isinstance(found, Resolved) else "-"


def _feature(seen: Snapshot) -> Link:
    for error in seen.errors:
        if error.reason in _FEATURE:
            return from_error("feature", error)
    if not view.uses_adapters(seen.service):
        return Link("feature", "ok", "no adapters: not needed")
    if seen.facts.pipeline.kind == "template":
        return Link("feature", "ok", "not required in the template pipeline; the profile of the image decides")
    return Link("feature", "ok", f'the effective profile has "{seen.facts.feature}"')


# -- cache, base, disk, subtree -------------------------------------------------------------------------------------


def _cache(seen: Snapshot) -> Link:
    ready = view.condition(seen.service, "CacheReady")
    if ready.get("reason") == Reason.NOTHING_TO_CACHE:
        return Link("cache", "ok", "the image brings its own model")
    if not seen.caches:
        return broken(
            "cache",
            Reason.CREATING_CACHES,
            "no cache for the profile exists yet",
            state="waiting",
            look=look_events(seen),
        )
    cache = seen.caches[0]
    entry = view.condition(cache, "ArtifactsReady")
    reason, message = view.text(entry, "reason") or "", view.text(entry, "message") or ""
    if reason in (Reason.NO_CACHES, Reason.ARTIFACT_TERMINATING):
        state: State = "broken" if reason == Reason.NO_CACHES else "waiting"
        return broken("cache", reason, f'cache "{view.name_of(cache)}": {message}', state=state)
    if not view.dig(cache, "status", "artifacts") and not seen.base:
        return broken(
            "cache",
            reason or Reason.CREATING_CACHES,
            f'cache "{view.name_of(cache)}" holds no artifact yet: {message}'.rstrip(": "),
            state="waiting",
        )
    return Link("cache", "ok", f'{view.text(cache, "kind") or "cache"} "{view.name_of(cache)}"')


_WAITING_BASE = frozenset({Reason.MEASURING_SOURCE, Reason.DOWNLOADING, Reason.PENDING, ""})
_CLAIM_TROUBLE = frozenset({Reason.CLAIM_UNBOUND, Reason.CLAIM_PROVISIONING_FAILED, Reason.CLAIM_TERMINATING})


def _base(seen: Snapshot) -> Link:
    base = seen.base
    if not base:
        if view.condition(seen.service, "CacheReady").get("reason") == Reason.NOTHING_TO_CACHE:
            return Link("base", "ok", "none: the image brings its own model")
        return broken(
            "base", Reason.CREATING_CACHES, "no base artifact for the profile's source exists yet", state="waiting"
        )
    look = f"kubectl describe aimartifact -n {seen.namespace} {view.name_of(base)}"
    if view.text(base, "status", "status") == "Ready":
        shown_size = view.text(base, "status", "displaySize") or "size unknown"
        return Link(
            "base",
            "ok",
            f'AIMArtifact "{view.name_of(base)}" is ready ({shown_size})',
        )
    if errors := judge_stored(AIM_ARTIFACT, base, seen.world).errors:
        return from_error("base", errors[0])
    storage = view.condition(base, "CacheStorageReady")
    if storage.get("reason") in _CLAIM_TROUBLE:
        return broken(
            "base",
            str(storage["reason"]),
            f'base "{view.name_of(base)}": {storage.get("message")}',
            look=look_claim(seen, "persistentVolumeClaim"),
        )
    ready = view.condition(base, "Ready")
    reason, message = view.text(ready, "reason") or "", view.text(ready, "message") or "not ready yet"
    for job in seen.jobs_of(ROLE_FETCH, base):
        if job.blocked_by and not job.finished:
            return broken(
                "base",
                reason_of_blocked(job.blocked_by, Reason.DOWNLOAD_BLOCKED),
                f'the download of base "{view.name_of(base)}" cannot start: {job.blocked_by}',
                fix_of_blocked(job.blocked_by),
                look=look_job(seen, job.name),
            )
    percent = view.integer(base, "status", "progress", "percentage")
    progress = (
        f", {percent} % of {size(view.integer(base, 'status', 'progress', 'totalBytes'))}"
        if percent is not None
        else ""
    )
    if reason in _WAITING_BASE:
        return broken(
            "base",
            reason or Reason.PENDING,
            f'base "{view.name_of(base)}": {message}{progress}',
            state="waiting",
            look=look,
        )
    return broken("base", reason, f'base "{view.name_of(base)}": {reason}: {message}', look=look)


def _disk(seen: Snapshot) -> Link:
    if not view.uses_adapters(seen.service):
        return Link("disk", "ok", "no adapters: not needed")
    claim = seen.disk_claim_name
    if not claim:
        return _no_disk(seen)
    ready = view.condition(seen.base, "AdapterDiskReady")
    if ready.get("reason") in _CLAIM_TROUBLE:
        look = look_claim(seen, "adapterPersistentVolumeClaim")
        return broken("disk", str(ready["reason"]), f"adapter disk: {ready.get('message')}", look=look)
    found = seen.claims.get(claim)
    if found is not None:
        return _disk_claim(seen, claim, found)
    if "PersistentVolumeClaim" in seen.unreadable:
        return Link("disk", "ok", f'claim "{claim}" (no permission to read claims)')
    return broken(
        "disk",
        Reason.DISK_NOT_BOUND,
        f'the adapter disk\'s claim "{claim}" does not exist',
        "the controller re-creates it; if it does not, check the controller's log",
    )


def _no_disk(seen: Snapshot) -> Link:
    """Return the link for a base without an adapter disk: it is being created, or none is requested."""
    base = seen.base
    asked = view.dig(base, "spec", "adapterDisk") is not None or any(
        view.dig(cache, "spec", "requiresAdapterDisk") is True for cache in seen.caches
    )
    says = f'base "{view.name_of(base)}" has no adapter disk yet'
    if not asked:
        says += ", and neither its spec nor a cache requests one"
    return broken(
        "disk",
        Reason.PARENT_LACKS_ADAPTER_DISK,
        says,
        state="waiting" if asked else "broken",
        look=f"kubectl describe aimartifact -n {seen.namespace} {view.name_of(base)}",
    )


def _disk_claim(seen: Snapshot, claim: str, found: Json) -> Link:
    """Return whether pods can mount the claim."""
    look = look_claim(seen, "adapterPersistentVolumeClaim")
    whose = f'the adapter disk\'s claim "{claim}"'
    if view.terminating(found):
        return broken("disk", Reason.CLAIM_TERMINATING, f"{whose} is being deleted", look=look)
    phase = view.text(found, "status", "phase") or "Pending"
    if phase == "Lost":
        fix = "delete the claim: the controller creates a new disk and stages the adapters again"
        return broken("disk", Reason.DISK_NOT_BOUND, f"{whose} has lost its volume", fix, look)
    if phase == "Pending" and not view.text(seen.service, "status", "adapterDiskPersistentVolumeClaimUid"):
        return broken("disk", Reason.CLAIM_PENDING, f"{whose} is not bound yet", look=look, state="waiting")
    capacity = (
        view.text(found, "status", "capacity", "storage")
        or view.text(found, "spec", "resources", "requests", "storage")
        or ""
    )
    return Link("disk", "ok", f'claim "{claim}" {capacity} is {phase}')


def _subtree(seen: Snapshot) -> Link:
    if not view.uses_adapters(seen.service):
        return Link("subtree", "ok", "no adapters: not needed")
    status = seen.service.get("status") or {}
    claim = seen.claims.get(seen.disk_claim_name)
    recorded = view.text(status, "adapterDiskPersistentVolumeClaimUid")
    jobs = seen.jobs_of(ROLE_SUBTREE_SYNC, seen.service)
    job = jobs[-1] if jobs else None
    done = bool(recorded) and (claim is None or view.uid_of(claim) == recorded)
    if job is not None and job.phase == "failed":
        reason = job.result.reason if job.result else Reason.JOB_FAILED
        message = job.result.message if job.result else "the subtree-sync Job failed"
        says = f"the directory cannot be synchronized: {reason}: {message}"
        return broken("subtree", reason, says, look=look_job(seen, job.name))
    if job is not None and job.blocked_by:
        return broken(
            "subtree",
            reason_of_blocked(job.blocked_by, Reason.STAGING_BLOCKED),
            f"the subtree-sync Job cannot start: {job.blocked_by}",
            fix_of_blocked(job.blocked_by),
            look=look_job(seen, job.name),
        )
    if not done:
        says = "the service's directory on the adapter disk is being created"
        return broken(
            "subtree",
            Reason.ADAPTER_SUBTREE_PROVISIONING,
            says,
            state="waiting",
            look=look_job(seen, job.name) if job else look_events(seen),
        )
    return Link("subtree", "ok", f"directory {view.uid_of(seen.service)} is on the disk")


_STARTING = frozenset(
    {Reason.CREATING, Reason.STARTING, Reason.TERMINATING, Reason.ROLLING_OUT, Reason.MINIMUM_REPLICAS_UNAVAILABLE}
)


def server(seen: Snapshot) -> Link:
    """Return the link of the InferenceService and its pods."""
    ready = view.condition(seen.service, "InferenceServiceReady")
    reason, message = view.text(ready, "reason") or "", view.text(ready, "message") or ""
    if reason == Reason.SCALED_TO_ZERO:
        return broken("server", reason, message)
    if ready.get("status") == "True":
        replicas = view.text(seen.service, "status", "runtime", "replicas") or "?"
        return Link("server", "ok", f'InferenceService "{seen.isvc_name}" is ready, {replicas} replicas')
    if reason != Reason.NO_MATCHING_NODE and (stuck := _stuck_pod(seen)) is not None:
        return stuck
    if reason == Reason.GATED:
        return _gated(seen, message)
    return _no_pods(seen) or _not_ready(seen, reason, message)


def _gated(seen: Snapshot, message: str) -> Link:
    """Return the link for an InferenceService that the controller does not create yet."""
    known, rest = _gate(seen)
    static_waits = view.adapter_mode(seen.service) == "static" and known == Reason.ADAPTERS_STAGING
    fix = "fix or remove the named adapters" if static_waits else ""
    return broken("server", known, f"no InferenceService yet: {rest or message}", fix, state="waiting")


def _not_ready(seen: Snapshot, reason: str, message: str) -> Link:
    look = f"kubectl get inferenceservice,deployment,pods -n {seen.namespace} -l aim.eai.amd.com/service={seen.name}"
    if reason and reason not in _STARTING:
        return broken("server", reason, f"the server is not ready: {reason}: {message}", look=look)
    says = message or "the InferenceService is being created"
    return broken("server", reason or Reason.CREATING, says, state="waiting", look=look)


def _no_pods(seen: Snapshot) -> Link | None:
    """Return the link for a Deployment that cannot create pods: quota, admission."""
    failure = view.condition(seen.deployment, "ReplicaFailure")
    if seen.predictor_pods or failure.get("status") != "True":
        return None
    look = f"kubectl describe deployment -n {seen.namespace} {seen.isvc_name}-predictor"
    return broken("server", Reason.NO_PODS, f"no pod of the server can be created: {failure.get('message')}", look=look)


def _stuck_pod(seen: Snapshot) -> Link | None:
    found = trouble_of(seen.predictor_pods)
    if found is None:
        return None
    look = f"kubectl describe pod -n {seen.namespace} {found.pod}"
    match found.kind:
        case "unscheduled":
            says = f"pod {found.pod} is not scheduled: {found.message or found.waiting}"
            return broken("server", found.reason, says, "free resources for it, or request less", look)
        case "crash":
            known = f", last exit code {found.exit_code}" if found.exit_code is not None else ""
            says = f"pod {found.pod} keeps crashing{known}"
            look = f"kubectl logs -n {seen.namespace} {found.pod} --previous"
            return broken("server", found.reason, says, look=look)
        case "pull" | "waiting":
            says = f"pod {found.pod} cannot start: {found.waiting}: {found.message}".rstrip(": ")
            reason = found.reason if in_conditions(found.reason) else Reason.POD_PENDING
            return broken("server", reason, says, fix_of_blocked(f"{found.waiting} {found.message}"), look)


OF_SPEC = (_service, _profile, _feature)
OF_STORAGE = (_cache, _base, _disk, _subtree)
