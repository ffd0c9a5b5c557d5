"""The links of the chain for one adapter: its artifact, its Job, its files, the servers. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping

from api import view
from api.kinds import AIM_ARTIFACT
from api.names import LABEL_ARTIFACT, LABEL_SERVICE
from api.reasons import ENDS_OF_JOBS, Reason, explain
from api.view import Json
from cli.plugin.chain import (
    PLUGIN,
    Link,
    State,
    broken,
    documented_fix,
    fix_of_blocked,
    from_error,
    look_events,
    reason_of_blocked,
)
from cli.plugin.chain_service import server
from cli.plugin.output import size
from cli.plugin.snapshot import Snapshot
from cli.plugin.status import until
from rules.references import Unreadable
from rules.validate import judge_stored

# -- the rules ------------------------------------------------------------------------------------------------------


def refused_adapter(seen: Snapshot, name: str) -> Link | None:
    """Return the error of a declared adapter, or, while nothing is served, that of another one of the list.

    It comes before cache and disk: nothing is created for a service that cannot be served as declared. The same holds
    for a name that the service does not declare: problems of other adapters do not explain a typing error.
    """
    refs = view.adapter_refs(seen.service)
    if name not in {ref.name for ref in refs}:
        return _not_declared(seen, name)
    said = {index: error for error in reversed(seen.errors) if (index := _index_of(error.path)) is not None}
    own = next((said[index] for index in sorted(said) if index < len(refs) and refs[index].name == name), None)
    if own is not None:
        artifact = seen.facts.artifacts.get(name)
        if isinstance(artifact, Mapping) and view.is_adapter(artifact):
            own = next(iter(judge_stored(AIM_ARTIFACT, artifact, seen.world).errors), own)
        return from_error("adapter", own)
    if said and view.condition(seen.service, "InferenceServiceReady").get("status") != "True":
        return from_error("adapter", said[min(said)])
    return None


_ENTRY = re.compile(r"spec\.adapters\[(\d+)\]")


def _index_of(path: str) -> int | None:
    found = _ENTRY.match(path)
    return int(found[1]) if found else None


# -- one adapter ----------------------------------------------------------------------------------------------------


def _not_declared(seen: Snapshot, name: str) -> Link:
    declared = ", ".join(ref.name for ref in view.adapter_refs(seen.service)) or "none"
    return broken(
        "adapter",
        Reason.ADAPTER_NOT_DECLARED_BY_SERVICE,
        f'the service does not declare "{name}" (declared: {declared})',
        f"{PLUGIN} add {seen.name} {name} -n {seen.namespace}",
    )


def _adapter(seen: Snapshot, name: str) -> Link:
    artifact = seen.facts.artifacts.get(name)
    if isinstance(artifact, Unreadable):
        return broken(
            "adapter",
            Reason.REFERENCE_UNREADABLE,
            f'cannot read AIMArtifact "{name}": permission denied',
            "ask an administrator for read access",
            state="waiting",
        )
    if artifact is None:
        return broken(
            "adapter",
            Reason.ADAPTER_ARTIFACT_NOT_FOUND,
            f'AIMArtifact "{name}" does not exist in namespace "{seen.namespace}"',
            f"apply it, or remove it from the service: {PLUGIN} remove {seen.name} {name}",
        )
    if (found := _unfit(seen, name, artifact)) is not None:
        return found
    ceiling = seen.facts.ceiling.value
    return Link(
        "adapter",
        "ok",
        f'AIMArtifact "{name}", rank {view.declared_rank(artifact)}' + (f" of {ceiling}" if ceiling else ""),
    )


_ON_DISK = frozenset({"Downloaded", "Loaded", "LoadRejected"})
_OF_ARTIFACT = frozenset(
    {Reason.RUNTIME_CONFIG_NOT_FOUND, Reason.RUNTIME_CONFIG_UNREADABLE, Reason.RANK_CEILING_UNKNOWN}
)
"""Reasons of an entry that no Job reports: the input of the Job is not known."""


def _unfit(seen: Snapshot, name: str, artifact: Json) -> Link | None:
    """Return why the artifact cannot be staged, by its own checks or the controller's; None once it is on the disk."""
    entry = seen.entry(name)
    state, error = view.text(entry, "state"), view.text(entry, "lastError") or ""
    reason, _, message = error.partition(": ")
    if state in _ON_DISK:
        return None
    if errors := judge_stored(AIM_ARTIFACT, artifact, seen.world).errors:
        return from_error("adapter", errors[0])
    ready = view.condition(artifact, "Ready")
    if ready.get("status") == "False":
        said = str(ready.get("reason"))
        waits: State = "waiting" if said == Reason.PARENT_LACKS_ADAPTER_DISK else "broken"
        return broken("adapter", said, f'AIMArtifact "{name}": {ready.get("message")}', state=waits)
    by_rule = state == "Failed" and reason not in ENDS_OF_JOBS
    if reason in _OF_ARTIFACT or by_rule:
        fix = documented_fix(reason) or "correct the field that the message names"
        return broken("adapter", reason, message or error, fix, f"aim-adapters lint --explain {reason}")
    return None


_RUNS_WELL = frozenset(
    {
        Reason.ADAPTER_HELD_FOR_UNLOAD,
        Reason.RESTART_REQUIRED,
        Reason.ADAPTER_NOT_LISTED,
        Reason.ADAPTER_ARTIFACT_NOT_FOUND,
    }
)


def _job(seen: Snapshot, name: str) -> Link:
    entry = seen.entry(name)
    state, error = view.text(entry, "state") or "Pending", view.text(entry, "lastError") or ""
    reason, _, message = error.partition(": ")
    labels = f"{LABEL_SERVICE}={seen.name},{LABEL_ARTIFACT}={name}"
    look = f"kubectl get jobs,pods -n {seen.namespace} -l {labels}"
    if state in _ON_DISK or (state == "Failed" and _about_files(reason)):
        return Link(
            "job",
            "ok",
            f"staged after {_times(view.integer(entry, 'attempts'))}" if state in _ON_DISK else "the staging Job ran",
        )
    if state == "Failed":
        again = _again(seen, entry)
        fix = documented_fix(reason)
        retry = f"then: {PLUGIN} retry {seen.name} {name} -n {seen.namespace}"
        return Link(
            "job",
            "broken",
            f"staging failed: {reason}: {message}{again}",
            reason,
            f"{fix}; {retry}" if fix else retry,
            look_events(seen),  # the Job is deleted once its result is recorded
        )
    if state == "Downloading":
        if reason == Reason.ADAPTER_HELD_FOR_UNLOAD:
            return broken("job", reason, message, state="waiting")
        percent = view.integer(entry, "progress", "percentage")
        done = f": {percent} % of {size(view.integer(entry, 'progress', 'totalBytes'))}" if percent is not None else ""
        return broken("job", Reason.STAGING_RUNS, f"downloading{done}", state="waiting", look=look)
    if reason == Reason.QUEUED:
        return broken("job", reason, message, state="waiting", look=f"kubectl get jobs -n {seen.namespace}")
    if error and reason not in _RUNS_WELL:
        return broken(
            "job",
            reason_of_blocked(error, Reason.STAGING_BLOCKED),
            f"the staging Job cannot start: {error}",
            fix_of_blocked(error),
            look,
        )
    return broken("job", Reason.STAGING_WAITING, "the staging Job has not started yet", state="waiting", look=look)


_NOT_OF_FILES = frozenset({Reason.ADAPTER_NOT_DECLARED})


def _times(count: int | None) -> str:
    return "one attempt" if (count or 1) == 1 else f"{count} attempts"


def _again(seen: Snapshot, entry: Json) -> str:
    when, tries = view.text(entry, "nextRetryTime"), view.integer(entry, "attempts")
    said = ["tried once" if tries == 1 else f"tried {tries} times"] if tries else []
    if when:
        said.append(f"next try in {until(when, seen)}")
    return f" ({'; '.join(said)})" if said else ""


def _about_files(reason: str) -> bool:
    """Return whether the files are the problem and not the Job: a finding, or a warning that strict mode refuses."""
    found = explain(reason)
    return found is not None and found.group in ("adapter", "warning") and reason not in _NOT_OF_FILES


def _files(seen: Snapshot, name: str) -> Link:
    entry = seen.entry(name)
    reason, _, message = (view.text(entry, "lastError") or "").partition(": ")
    if view.text(entry, "state") == "Failed":
        retry = f"then: {PLUGIN} retry {seen.name} {name} -n {seen.namespace}"
        return Link(
            "files",
            "broken",
            f"the files cannot be served: {reason}: {message}",
            reason,
            f"{documented_fix(reason)}; {retry}".lstrip("; "),
            f"{PLUGIN} inspect {view.text(seen.facts.artifacts.get(name), 'spec', 'sourceUri') or 'SOURCE'}",
        )
    rank = view.integer(entry, "rank")
    facts = [f"rank {rank}"] if rank is not None else []
    if (count := view.integer(entry, "sizeBytes")) is not None:
        facts.append(size(count))
    warned = [view.text(note, "reason") or "" for note in view.items(entry, "warnings")]
    return Link("files", "ok", ", ".join(facts) + (f"; warnings: {', '.join(warned)}" if warned else "") or "complete")


def _adapter_on_server(seen: Snapshot, name: str) -> Link:
    own = server(seen)
    if own.state != "ok":
        return own
    entry = seen.entry(name)
    state, error = view.text(entry, "state") or "", view.text(entry, "lastError") or ""
    reason, _, message = error.partition(": ")
    path = view.text(entry, "adapterPath") or name
    replicas = view.integer(seen.service, "status", "runtime", "currentReplicas") or len(seen.predictor_pods)
    loaded = view.integer(entry, "loadedReplicas")
    if state == "LoadRejected" or reason in (Reason.RESTART_REQUIRED, Reason.MODEL_LIST_UNREADABLE):
        fix = (
            f"kubectl rollout restart -n {seen.namespace} deployment/{seen.isvc_name}-predictor"
            if reason == Reason.RESTART_REQUIRED
            else ""
        )
        return broken("server", reason, message, fix)
    if state == "Loaded":
        return Link(
            "server",
            "ok",
            f'{loaded if loaded is not None else replicas} of {replicas} replicas list the model "{path}"',
        )
    if loaded:
        return broken(
            "server",
            Reason.SOME_REPLICAS_LACK,
            f"only {loaded} of {replicas} replicas list the adapter",
            state="waiting",
        )
    return broken(
        "server", Reason.LOADING_SOON, "the adapter is on the disk, but no replica lists it yet", state="waiting"
    )


OF_ADAPTER = (_adapter, _job, _files, _adapter_on_server)
