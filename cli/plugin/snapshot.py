"""Everything that is known about one service, read once: the input of `status`, `why` and `check`. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cached_property

from api import view
from api.errors import FieldError
from api.kinds import AIM_SERVICE
from api.names import LABEL_ROLE, inference_service_name
from api.view import Json
from reconcile.jobs import JobState, read_job, why_waiting
from rules.seen import ServiceSeen, see_service
from rules.validate import judge_stored
from rules.world import World
from rules.worlds import SnapshotWorld


@dataclass(frozen=True)
class Snapshot:
    """One service and the objects that belong to it.

    `world`: other AIM objects; `caches`: caches for its profile or template; `claims` by name; `jobs` and `pods`: those
    of the service and of its base; `leases` of the controllers and `nodes`: None if this user is not allowed to read
    them; `unreadable`: kinds that this user is not allowed to read; `warnings`: by UID of a Job that waits, the last
    warning in its events or those of its pod.
    """

    service: Json
    now: datetime
    world: World = field(default_factory=SnapshotWorld)
    caches: tuple[Json, ...] = ()
    claims: Mapping[str, Json] = field(default_factory=dict)
    jobs: tuple[Json, ...] = ()
    pods: tuple[Json, ...] = ()
    isvc: Json | None = None
    deployment: Json | None = None
    config_maps: tuple[Json, ...] = ()
    events: tuple[Json, ...] = ()
    leases: tuple[Json, ...] | None = None
    nodes: tuple[Json, ...] | None = None
    unreadable: frozenset[str] = frozenset()
    warnings: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def facts(self) -> ServiceSeen:
        """What the rules derive from the service and the other objects."""
        return see_service(self.service, self.world)

    @cached_property
    def errors(self) -> tuple[FieldError, ...]:
        """The errors of the rules: why it cannot be served now."""
        return tuple(judge_stored(AIM_SERVICE, self.service, self.world).errors)

    @property
    def name(self) -> str:
        """Name of the service."""
        return view.name_of(self.service)

    @property
    def namespace(self) -> str:
        """Namespace of the service."""
        return view.namespace_of(self.service)

    @property
    def isvc_name(self) -> str:
        """Name of its InferenceService."""
        return inference_service_name(self.name, self.namespace) or ""

    @property
    def base(self) -> Json:
        """The base artifact, empty while it is not known."""
        base = self.facts.base
        return base.artifact if base.known else {}

    @property
    def disk_claim_name(self) -> str:
        """Name of the adapter disk's claim, empty while there is none."""
        return view.text(self.base, "status", "adapterPersistentVolumeClaim") or ""

    @property
    def predictor_pods(self) -> list[Json]:
        """Pods of the model server."""
        label = "serving.kserve.io/inferenceservice"
        return [pod for pod in self.pods if view.text(pod, "metadata", "labels", label) == self.isvc_name]

    def entry(self, adapter: str) -> Json:
        """Return the adapter's entry in status, empty if there is none."""
        for entry in view.items(self.service, "status", "adapters"):
            if view.dig(entry, "name") == adapter:
                return view.mapping(entry)
        return {}

    def jobs_of(self, role: str, owner: Json) -> list[JobState]:
        """Return the states of an owner's Jobs of one role, newest attempt last."""
        found = []
        for job in self.jobs:
            owners = {view.dig(ref, "uid") for ref in view.items(job, "metadata", "ownerReferences")}
            if view.uid_of(owner) in owners and view.text(job, "metadata", "labels", LABEL_ROLE) == role:
                state = job_state(job, self.pods)
                why = why_waiting(state, self.now, self.warnings.get(state.uid, ""))
                found.append(replace(state, blocked_by=why))
        return sorted(found, key=lambda job: job.attempt)


def job_state(job: Json, pods: Iterable[Json]) -> JobState:
    """Return the state of a Job, given its pods among others."""
    return read_job(job, [pod for pod in pods if _owned(pod, view.uid_of(job))])


def _owned(obj: Json, uid: str) -> bool:
    return any(view.dig(ref, "uid") == uid for ref in view.items(obj, "metadata", "ownerReferences"))
