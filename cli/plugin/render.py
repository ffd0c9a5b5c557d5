"""`render`: the objects that the controllers create from manifests, without a cluster. Pure.

The controllers' own decisions run over a store of objects: for caches, artifacts and services in turn. What a decision
creates goes into the store in the state that a cluster gives it: claims are bound, and every Job succeeds. This is
repeated until nothing changes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any
from uuid import NAMESPACE_URL, uuid5

from api import view
from api.jobs import JobResult
from api.kinds import (
    AIM_ARTIFACT,
    AIM_CLUSTER_MODEL,
    AIM_CLUSTER_PROFILE,
    AIM_CLUSTER_SERVICE_TEMPLATE,
    AIM_MODEL,
    AIM_PROFILE,
    AIM_PROFILE_CACHE,
    AIM_SERVICE,
    AIM_SERVICE_TEMPLATE,
    AIM_TEMPLATE_CACHE,
    INFERENCE_SERVICE,
    JOB,
    PERSISTENT_VOLUME_CLAIM,
    Kind,
)
from api.names import (
    LABEL_ARTIFACT,
    LABEL_ROLE,
    ROLE_FETCH,
    ROLE_STAGING,
    ROLE_SUBTREE_SYNC,
    inference_service_name,
)
from api.reasons import Reason
from api.view import Json
from cli.plugin.output import dump_yaml
from reconcile.artifact.decide import decide as decide_artifact
from reconcile.artifact.facts import ArtifactFacts
from reconcile.artifact.manifests import cache_claim_name, disk_claim_name
from reconcile.caches.decide import CacheFacts
from reconcile.caches.decide import decide as decide_cache
from reconcile.decision import Decision
from reconcile.jobs import JobState, job_key
from reconcile.objects import artifact_names, without_nulls
from reconcile.service.cache import cache_origin
from reconcile.service.decide import decide as decide_service
from reconcile.service.facts import ServiceFacts
from reconcile.service.manifests import cache_kind
from reconcile.settings import ReconcileSettings
from rules.runtime_config import resolve_runtime_config
from rules.seen import see_service
from rules.validate import judge_stored
from rules.world import Index
from rules.worlds import SnapshotWorld

Address = tuple[str, str, str]
MOST_ROUNDS = 20
_CACHE_KINDS = (AIM_PROFILE_CACHE, AIM_TEMPLATE_CACHE)
ASSUMED_MODEL_BYTES = 60 * 2**30
"""Used where the size of a base model is known to its source only."""


@dataclass(slots=True)
class Rehearsal:
    """The store; `made` holds the created objects in the order of their creation."""

    now: datetime
    settings: ReconcileSettings = field(default_factory=ReconcileSettings)
    store: dict[Address, dict[str, Any]] = field(default_factory=dict)
    made: dict[Address, dict[str, Any]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    _ended: dict[str, list[tuple[str, JobState]]] = field(default_factory=dict)  # owner's UID → (role, state)
    _changed: bool = True

    def give(self, objects: Iterable[Json]) -> None:
        """Put manifests into the store, with the fields that an API server adds."""
        for obj in objects:
            self._put(dict(obj))

    def play(self) -> None:
        """Decide until nothing changes. Bounded: objects that do not settle are reported in a note."""
        for _ in range(MOST_ROUNDS):
            if not self._changed:
                return
            self._changed = False
            self._round()
        self.notes.append("the controllers' decisions did not settle: the result may be incomplete")

    def _round(self) -> None:
        for kind in _CACHE_KINDS:
            for cache in self._all(kind):
                self._carry_out(cache, self._cache(kind, cache))
        for artifact in self._all(AIM_ARTIFACT):
            self._carry_out(artifact, self._artifact(artifact))
        for service in self._all(AIM_SERVICE):
            self._carry_out(service, self._service(service))

    # -- the store --------------------------------------------------------------------------------------------------

    def _all(self, kind: Kind) -> list[dict[str, Any]]:
        return [obj for (name, _, _), obj in self.store.items() if name == kind.kind]

    def _find(self, kind: Kind, namespace: str, name: str | None) -> dict[str, Any] | None:
        return self.store.get((kind.kind, namespace if kind.namespaced else "", name)) if name else None

    @property
    def _world(self) -> SnapshotWorld:
        return SnapshotWorld(self.store.values())

    def _put(self, obj: dict[str, Any]) -> None:
        """Store an object as an API server does: with UID, generation, and the status that it had."""
        key = (str(obj.get("kind")), view.namespace_of(obj), view.name_of(obj))
        old = self.store.get(key)
        metadata = dict(view.mapping(obj, "metadata"))
        metadata.setdefault("uid", str(uuid5(NAMESPACE_URL, "/".join(key))))
        metadata.setdefault("generation", 1)
        metadata.setdefault("creationTimestamp", self.now.strftime("%Y-%m-%dT%H:%M:%SZ"))
        stored = without_nulls({**obj, "metadata": metadata})
        if old is not None and "status" in old and "status" not in stored:
            stored["status"] = old["status"]
        if stored != old:
            self._changed = True
        self.store[key] = stored

    def _carry_out(self, obj: Json, decision: Decision) -> None:
        for kind, wanted in decision.apply:
            self._apply(kind, wanted)
        for kind, wanted in decision.create:
            self._create(kind, wanted)
        key = (str(obj.get("kind")), view.namespace_of(obj), view.name_of(obj))
        stored = self.store[key]
        if stored.get("status") != decision.status:
            self.store[key] = {**stored, "status": dict(decision.status)}
            self._changed = True
        for deletion in decision.delete:
            for states in self._ended.values():
                states[:] = [entry for entry in states if entry[1].name != deletion.name]

    def _apply(self, kind: Kind, wanted: Mapping[str, Any]) -> None:
        """Apply a desired object to the stored one; a partial one (an owner reference) keeps the rest."""
        key = (kind.kind, view.namespace_of(wanted), view.name_of(wanted))
        old = self.store.get(key)
        if old is None or key in self.made:
            self.made[key] = dict(wanted)
        metadata = {**view.mapping(old, "metadata"), **view.mapping(wanted, "metadata")}
        self._put({**(old or {}), **wanted, "metadata": metadata})

    def _create(self, kind: Kind, wanted: Mapping[str, Any]) -> None:
        key = (kind.kind, view.namespace_of(wanted), view.name_of(wanted))
        if key in self.made or key in self.store:
            return
        self.made[key] = dict(wanted)
        if kind.kind == JOB.kind:
            self._end(wanted)
            return
        obj = dict(wanted)
        if kind.kind == PERSISTENT_VOLUME_CLAIM.kind:
            size = view.dig(wanted, "spec", "resources", "requests", "storage")
            obj["status"] = {"phase": "Bound", "capacity": {"storage": size}}
        self._put(obj)

    def _end(self, job: Json) -> None:
        """Record that the Job succeeded."""
        role = view.text(job, "metadata", "labels", LABEL_ROLE) or ""
        key = job_key(job)
        owner = str(view.dig(view.items(job, "metadata", "ownerReferences")[0], "uid"))
        state = JobState(
            view.name_of(job), view.name_of(job), "succeeded", key, 1, self._result(role, job, key), "", self.now
        )
        self._ended.setdefault(owner, []).append((role, state))
        self._changed = True

    def _result(self, role: str, job: Json, key: str) -> JobResult:
        if role == ROLE_STAGING:
            artifact = self._find(
                AIM_ARTIFACT, view.namespace_of(job), view.text(job, "metadata", "labels", LABEL_ARTIFACT)
            )
            return JobResult(
                ok=True,
                reason=Reason.ADAPTER_STAGED,
                message="",
                key=key,
                rank=view.declared_rank(artifact),
                digest="rehearsed",
            )
        if role == ROLE_FETCH:
            measure = any("measure" in str(word) for word in view.items(_container(job), "args"))
            reason = Reason.MODEL_MEASURED if measure else Reason.MODEL_FETCHED
            if measure:
                name = view.text(job, "metadata", "labels", LABEL_ARTIFACT)
                self.notes.append(f'the size of base "{name}" is not known offline: 60Gi is assumed')
            return JobResult(ok=True, reason=reason, message="", key=key, size_bytes=ASSUMED_MODEL_BYTES)
        return JobResult(ok=True, reason=Reason.SUBTREE_SYNCED, message="", key=key)

    def _jobs(self, owner: Json, role: str) -> tuple[JobState, ...]:
        return tuple(state for kind, state in self._ended.get(view.uid_of(owner), ()) if kind == role)

    # -- the deciders -----------------------------------------------------------------------------------------------

    def _cache(self, kind: Kind, cache: Json) -> Decision:
        world, namespace = self._world, view.namespace_of(cache)
        sources = self._sources(cache)
        uris = {uri for source in sources or () if (uri := view.text(source, "sourceUri"))}
        artifacts = {uri: world.find(Index.ARTIFACTS_BY_SOURCE, namespace, uri) for uri in sorted(uris)}
        return decide_cache(CacheFacts(cache, kind, self.now, view.name_of(cache), sources, artifacts))

    def _sources(self, cache: Json) -> Any:
        if own := view.items(cache, "spec", "modelSources"):
            return own
        name = view.cached_name(cache)
        for kind in (
            AIM_PROFILE,
            AIM_CLUSTER_PROFILE,
            AIM_SERVICE_TEMPLATE,
            AIM_CLUSTER_SERVICE_TEMPLATE,
            AIM_MODEL,
            AIM_CLUSTER_MODEL,
        ):
            found = self._find(kind, view.namespace_of(cache), name)
            if found is not None and (sources := view.items(found, "spec", "modelSources")):
                return sources
        return None

    def _artifact(self, artifact: Json) -> Decision:
        world, namespace = self._world, view.namespace_of(artifact)
        config = resolve_runtime_config(world, namespace, view.runtime_config_name(artifact))
        errors = tuple(judge_stored(AIM_ARTIFACT, artifact, world).errors)
        seen = ArtifactFacts(artifact, self.now, self.settings, config, errors=errors)
        if view.is_adapter(artifact):
            return decide_artifact(
                replace(seen, parent=self._find(AIM_ARTIFACT, namespace, view.parent_artifact(artifact)))
            )
        caches = [
            cache
            for kind in _CACHE_KINDS
            for cache in self._all(kind)
            if view.name_of(artifact) in artifact_names(cache)
        ]
        wanted = view.dig(artifact, "spec", "adapterDisk") is not None or any(
            view.dig(cache, "spec", "requiresAdapterDisk") is True for cache in caches
        )
        return decide_artifact(
            replace(
                seen,
                claim=self._find(PERSISTENT_VOLUME_CLAIM, namespace, cache_claim_name(artifact)),
                disk_claim=self._find(PERSISTENT_VOLUME_CLAIM, namespace, disk_claim_name(artifact)),
                disk_wanted=wanted,
                fetches=self._jobs(artifact, ROLE_FETCH),
            )
        )

    def _service(self, service: Json) -> Decision:
        world, namespace = self._world, view.namespace_of(service)
        facts = see_service(service, world)
        base = facts.base.artifact if facts.base.known else {}
        claim = view.text(base, "status", "adapterPersistentVolumeClaim")
        return decide_service(
            ServiceFacts(
                facts=facts,
                now=self.now,
                settings=self.settings,
                errors=tuple(judge_stored(AIM_SERVICE, service, world).errors),
                caches=tuple(caches_of(facts, self._all(cache_kind(facts.pipeline.kind)))),
                disk_claim=self._find(PERSISTENT_VOLUME_CLAIM, namespace, claim),
                sync_jobs=self._jobs(service, ROLE_SUBTREE_SYNC),
                stage_jobs=self._jobs(service, ROLE_STAGING),
                isvc=self._find(INFERENCE_SERVICE, namespace, inference_service_name(view.name_of(service), namespace)),
            )
        )


def _container(job: Json) -> Json:
    containers = view.items(job, "spec", "template", "spec", "containers")
    return view.mapping(containers[0]) if containers else {}


def caches_of(facts: Any, caches: Iterable[Json]) -> list[Json]:
    """Return the caches of a service's namespace for its profile, template or model."""
    origin = cache_origin(facts)
    if origin is None:
        return []
    return sorted(
        (
            cache
            for cache in caches
            if view.namespace_of(cache) == view.namespace_of(facts.new)
            and view.cached_name(cache) == origin.name
            and view.cached_scope(cache) == origin.scope
        ),
        key=view.name_of,
    )


# -- output ---------------------------------------------------------------------------------------------------------

_ORDER = (
    "AIMProfile",
    "AIMProfileCache",
    "AIMTemplateCache",
    "AIMArtifact",
    "PersistentVolumeClaim",
    "ConfigMap",
    "Job",
)
_HEAD = """\
# The objects that the controllers create from these manifests. UIDs differ in a cluster, and so do the names
# and keys that are derived from UIDs. Do not apply this output.
"""


def rehearse(
    objects: Iterable[Json], now: datetime, settings: ReconcileSettings | None = None
) -> tuple[list[dict[str, Any]], list[str], list[str]]:
    """Return the created objects, notes, and the reasons why services would not be served."""
    rehearsal = Rehearsal(now, settings or ReconcileSettings())
    rehearsal.give(objects)
    rehearsal.play()
    made = sorted(rehearsal.made.values(), key=_place)
    return made, list(dict.fromkeys(rehearsal.notes)), list(_troubles(rehearsal))


def _place(obj: Mapping[str, Any]) -> tuple[str, int, str]:
    kind = str(obj.get("kind"))
    return (view.namespace_of(obj), _ORDER.index(kind) if kind in _ORDER else len(_ORDER), view.name_of(obj))


def _troubles(rehearsal: Rehearsal) -> Iterable[str]:
    for (kind, namespace, name), service in rehearsal.store.items():
        if kind != AIM_SERVICE.kind:
            continue
        ready = view.condition(service, "Ready")
        if ready.get("reason") in (Reason.STARTING, Reason.CREATING, Reason.SERVING):
            continue
        yield f"AIMService {namespace}/{name} would not be served: {ready.get('reason')}: {ready.get('message')}"


def to_yaml(made: Iterable[Mapping[str, Any]]) -> str:
    """Return the objects as a stream of YAML documents."""
    return _HEAD + "".join(f"---\n{dump_yaml(_bare(obj))}" for obj in made)


def _bare(obj: Mapping[str, Any]) -> dict[str, Any]:
    """Return an object without status, as a copy: YAML writes shared parts as aliases."""
    return {str(key): _copied(value) for key, value in obj.items() if key != "status"}


def _copied(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _copied(member) for key, member in value.items()}
    return [_copied(member) for member in value] if isinstance(value, list | tuple) else value


def summary(made: Iterable[Mapping[str, Any]]) -> list[tuple[str, str, str]]:
    """Return kind, namespace/name and owner of each object."""
    return [(str(obj.get("kind")), f"{view.namespace_of(obj)}/{view.name_of(obj)}", _owner(obj)) for obj in made]


def _owner(obj: Mapping[str, Any]) -> str:
    owner = view.dig(dict(obj), "metadata", "ownerReferences", 0)
    return f"{view.dig(owner, 'kind')}/{view.dig(owner, 'name')}" if owner else ""
