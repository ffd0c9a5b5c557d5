"""Which artifacts a cache adopts or creates, and its status. Pure; docs/contract.md, Caches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from api import view
from api.job_env import allowed_in_job, allowed_with_typed_s3
from api.kinds import AIM_ARTIFACT, AIM_PROFILE_CACHE, AIM_TEMPLATE_CACHE, Kind
from api.names import derive_name
from api.reasons import Reason
from api.view import Json
from reconcile.conditions import Condition, render_conditions
from reconcile.decision import Decision, leave_alone
from reconcile.objects import created_labels, owner_reference, without_nulls
from rules.environment import merge_env
from rules.world import by_age


@dataclass(frozen=True, slots=True)
class CacheFacts:
    """All that a pass over one cache looks at.

    `origin`: what it caches for, for messages (`AIMProfile "x"`); `sources`: that object's model sources, None while it
    does not exist. `artifacts`: source URI → model artifacts of the namespace with exactly this source.
    """

    cache: Json
    kind: Kind
    now: datetime
    origin: str
    sources: Sequence[Any] | None
    artifacts: Mapping[str, Sequence[Json]] = field(default_factory=dict)
    resolved: Mapping[str, Any] | None = None
    typed_s3: bool = False


def decide(seen: CacheFacts) -> Decision:
    """Adopt the artifact of each source by exact `sourceUri`, create what is not there, report."""
    if view.paused(seen.cache) or view.terminating(seen.cache):
        return leave_alone(seen.cache)
    if seen.sources is None:
        return _report(
            seen, {}, Condition("ArtifactsReady", "False", Reason.NO_CACHES, f"{seen.origin} does not exist yet")
        )
    create: list[tuple[Kind, Mapping[str, Any]]] = []
    chosen: dict[str, Json] = {}
    for source in seen.sources:
        uri = view.text(source, "sourceUri")
        if uri is None or any(view.source_uri(artifact) == uri for artifact in chosen.values()):
            continue
        artifact = _adopted(seen, uri)
        if artifact is None:
            artifact = render_artifact(seen.cache, seen.kind, source, typed_s3=seen.typed_s3)
            if _leaving(seen, view.name_of(artifact)):
                return _report(seen, _entries(chosen), _TERMINATING)
            create.append((AIM_ARTIFACT, artifact))
        chosen[view.name_of(artifact)] = artifact
    if not chosen:
        return _report(
            seen, {}, Condition("ArtifactsReady", "False", Reason.NO_CACHES, f"{seen.origin} has no model sources")
        )
    return _report(seen, _entries(chosen), _readiness(chosen, creating=bool(create)), tuple(create))


def _allowed_env(*lists: Sequence[Any], typed_s3: bool) -> list[Any]:
    """What an artifact's env may contain; the rest would be refused at its admission."""
    allowed = allowed_with_typed_s3 if typed_s3 else allowed_in_job
    return [entry for name, entry in sorted(merge_env(*lists).items()) if allowed(name)]


_NAME_LIMIT = 50  # leaves room for the names of Jobs and claims that are derived from it
_TERMINATING = Condition(
    "ArtifactsReady", "False", Reason.ARTIFACT_TERMINATING, "an artifact is being deleted; its successor follows"
)


def _dedicated(cache: Json) -> bool:
    return view.text(cache, "spec", "mode") == "Dedicated"


def _adopted(seen: CacheFacts, uri: str) -> Json | None:
    """Return the artifact to use: the recorded one if it stays, else the oldest that a cache of this mode may take."""
    recorded = {view.text(entry, "uid") for entry in view.mapping(seen.cache, "status", "artifacts").values()}
    staying = [artifact for artifact in seen.artifacts.get(uri, ()) if not view.terminating(artifact)]
    for artifact in staying:
        if view.uid_of(artifact) in recorded:
            return artifact
    for artifact in by_age(staying):
        if _owned_by_cache(artifact, seen.cache):
            return artifact
        if (
            not _dedicated(seen.cache)
            and view.dig(artifact, "status", "mode") != "Dedicated"
            and not _owned_by_a_cache(artifact)
        ):
            return artifact
    return None


def _owned_by_cache(artifact: Json, cache: Json) -> bool:
    return any(
        view.dig(ref, "uid") == view.uid_of(cache) for ref in view.items(artifact, "metadata", "ownerReferences")
    )


_CACHES = frozenset({AIM_PROFILE_CACHE.kind, AIM_TEMPLATE_CACHE.kind})


def _owned_by_a_cache(artifact: Json) -> bool:
    return any(
        view.dig(reference, "kind") in _CACHES for reference in view.items(artifact, "metadata", "ownerReferences")
    )


def _leaving(seen: CacheFacts, name: str) -> bool:
    return any(view.name_of(artifact) == name for found in seen.artifacts.values() for artifact in found)


def render_artifact(cache: Json, kind: Kind, source: Any, *, typed_s3: bool = False) -> dict[str, Any]:
    """Return the model artifact for a source that no artifact has yet, named after the source: two caches agree on it.

    An artifact of a shared cache has no owner: it outlives the cache. A dedicated one dies with its cache.
    """
    uri = view.text(source, "sourceUri") or ""
    identity = view.model_id(source)
    dedicated = _dedicated(cache)
    spec: dict[str, Any] = {
        "type": "model",
        "sourceUri": uri,
        "modelId": identity,
        "size": source.get("size") if isinstance(source, Mapping) else None,
        "storageClassName": view.text(cache, "spec", "storageClassName"),
        "runtimeConfigName": view.text(cache, "spec", "runtimeConfigName"),
        "modelDownloadImage": view.text(cache, "spec", "downloadImage"),
        "env": _allowed_env(view.items(cache, "spec", "env"), view.items(source, "env"), typed_s3=typed_s3) or None,
        "imagePullSecrets": list(view.items(cache, "spec", "imagePullSecrets")) or None,
    }
    readable = (identity or uri.rstrip("/")).rpartition("/")[2] or "model"
    metadata: dict[str, Any] = {
        "name": derive_name(readable, uri, *((view.uid_of(cache),) if dedicated else ()), limit=_NAME_LIMIT),
        "namespace": view.namespace_of(cache),
        "labels": created_labels({}),
    }
    if dedicated:
        metadata["ownerReferences"] = [owner_reference(kind, cache)]
    return {
        "apiVersion": AIM_ARTIFACT.api_version,
        "kind": AIM_ARTIFACT.kind,
        "metadata": metadata,
        "spec": without_nulls(spec),
    }


def _entries(chosen: Mapping[str, Json]) -> dict[str, Any]:
    return {
        name: without_nulls(
            {
                "uid": view.uid_of(artifact) or None,
                "name": name,
                "model": view.model_id(artifact),
                "status": view.text(artifact, "status", "status") or "Pending",
                "persistentVolumeClaim": view.text(artifact, "status", "persistentVolumeClaim"),
                "mountPoint": f"/workspace/cache/{view.model_id(artifact)}" if view.model_id(artifact) else None,
            }
        )
        for name, artifact in sorted(chosen.items())
    }


def _readiness(chosen: Mapping[str, Json], *, creating: bool) -> Condition:
    waiting = [name for name, artifact in sorted(chosen.items()) if view.text(artifact, "status", "status") != "Ready"]
    if not waiting:
        return Condition("ArtifactsReady", "True", Reason.ALL_CACHES_READY)
    if creating:
        return Condition("ArtifactsReady", "False", Reason.CREATING_CACHES, f"creating {', '.join(waiting)}")
    words = []
    for name in waiting:
        ready = next(
            (entry for entry in view.items(chosen[name], "status", "conditions") if view.dig(entry, "type") == "Ready"),
            view.EMPTY,
        )
        words.append(f"{name}: {ready.get('reason')}: {ready.get('message')}" if ready else f"{name} is pending")
    return Condition("ArtifactsReady", "False", Reason.CACHES_NOT_READY, "; ".join(words))


_FAILED = "Failed"


def _report(
    seen: CacheFacts,
    entries: dict[str, Any],
    ready: Condition,
    create: tuple[tuple[Kind, Mapping[str, Any]], ...] = (),
) -> Decision:
    failed = any(entry["status"] == _FAILED for entry in entries.values())
    phase = "Ready" if ready.true else _FAILED if failed else "Progressing" if entries else "Pending"
    overall = Condition("Ready", ready.status, ready.reason, ready.message)
    generation = view.generation_of(seen.cache)
    resolved = "resolvedProfile" if seen.kind == AIM_PROFILE_CACHE else "resolvedTemplate"
    status = {
        resolved: dict(seen.resolved) if seen.resolved else None,
        "status": phase,
        "observedGeneration": generation,
        "artifacts": entries,
        "conditions": render_conditions(seen.cache, (ready, overall), generation=generation, now=seen.now),
    }
    return Decision(create=create, status=without_nulls(status))
