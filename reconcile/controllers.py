"""What the controllers of all kinds share: reading Jobs and pods from the caches, waking the owners of a change."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from api import view
from api.jobs import Progress, read_progress
from api.kinds import JOB, NODE, POD, Kind
from api.names import LABEL_ROLE
from api.view import Json
from kube.cache import Key
from kube.engine import GATHER, KeyFunction, Watch, keys_of_both
from kube.informer import Informer
from kube.poll import Poller, Question
from reconcile.jobs import JobState, read_job
from reconcile.settings import ReconcileSettings
from reconcile.shell import Shell
from reconcile.starts import Starts
from reconcile.turns import Turns
from reconcile.world import CachedWorld, owner_name, word

log = logging.getLogger(__name__)

PROGRESS_INTERVAL = 5.0  # seconds between two looks at a running Job's numbers (docs/contract.md, Download progress)

Keys = Iterable[Key]


def utc_now() -> datetime:
    """The clock of the shells; the pure core is given the time."""
    return datetime.now(UTC)


@dataclass(frozen=True, slots=True)
class Tools:
    """What every controller works with."""

    informers: Mapping[Kind, Informer]
    world: CachedWorld
    shell: Shell
    settings: ReconcileSettings
    progress: Poller
    turns: Turns
    starts: Starts
    now: Callable[[], datetime] = utc_now

    def find(self, kind: Kind, namespace: str, name: str | None) -> Json | None:
        """Return a cached object, or None."""
        return self.informers[kind].get(namespace if kind.namespaced else "", name) if name else None

    def owned(self, kind: Kind, owner: Json) -> list[Json]:
        """Return the cached objects of a kind, of the owner's namespace, that an object owns."""
        return list(self.informers[kind].by_index("owner", word(owner, view.uid_of(owner))))

    def jobs(self, owner: Json, role: str) -> tuple[JobState, ...]:
        """Return the states of an owner's Jobs of one role, with why they do not start."""
        return tuple(
            replace(state, blocked_by=self.starts.why(state)) if state.phase == "waiting" else state
            for job in self.owned(JOB, owner)
            if view.text(job, "metadata", "labels", LABEL_ROLE) == role
            for state in (self._read(job),)
        )

    def _read(self, job: Json) -> JobState:
        return read_job(job, self.informers[POD].by_index("owner", word(job, view.uid_of(job))))

    async def look_at_starts(self, owner: Json) -> timedelta | None:
        """Ask why an owner's Jobs do not start, where one waits for long; returns when to look again."""
        jobs = self.owned(JOB, owner)
        return await self.starts.look(view.namespace_of(owner), map(self._read, jobs)) if jobs else None

    def follow(self, key: Key, jobs: Iterable[JobState]) -> dict[str, Progress]:
        """Ask running Jobs for their progress from now on; return what is known, by Job UID."""
        running = {job.uid: job for job in jobs if job.phase == "running" and job.pod_ip}
        port = self.settings.progress_port
        self.progress.want(
            key,
            {
                uid: Question(f"http://{url_host(job.pod_ip or '')}:{port}/progress", PROGRESS_INTERVAL)
                for uid, job in running.items()
            },
        )
        return {uid: answer.said for uid in running if (answer := self.progress.answer(uid)) is not None}


def url_host(address: str) -> str:
    """Return an IP address as a URL spells it."""
    return f"[{address}]" if ":" in address else address


def parse_progress(body: object) -> Progress | None:
    """Read the answer of `GET /progress`; None when it is none."""
    try:
        return read_progress(body)
    except ValueError:
        return None


def parse_models(body: object) -> frozenset[str] | None:
    """Read the ids of `GET /v1/models`; None when the answer is none."""
    data = view.dig(body, "data")
    if not isinstance(data, list):
        return None
    return frozenset(identity for entry in data if (identity := view.text(entry, "id")))


def keys(objects: Iterable[Json]) -> list[Key]:
    """Return the keys of objects."""
    return [(view.namespace_of(obj), view.name_of(obj)) for obj in objects]


def owner_key(kind: Kind) -> Callable[[Json], Keys]:
    """Return a mapping from an object to the key of its owner of that kind."""

    def owner_of(obj: Json) -> Keys:
        name = owner_name(obj, kind)
        return [(view.namespace_of(obj), name)] if name else []

    return owner_of


def unless_progress(function: Callable[[Json], Keys]) -> KeyFunction:
    """Map a change as `keys_of_both` does, but to no one when only the progress of a download moved, or a sweep ended.

    A base model may be downloaded for hours with thousands of services waiting for it. Of an adapter's status only
    its path is read: its state is in the statuses of the services that declare it.
    """
    both = keys_of_both(function)

    def concerned(old: dict[str, Any] | None, new: dict[str, Any] | None) -> Keys:
        same = old is not None and new is not None and _beside_progress(old) == _beside_progress(new)
        return () if same else both(old, new)

    return concerned


_NEWS_OF_ITS_OWN = dict.fromkeys(("progress", "lastReap", "lastReapTime", "lastReapWorld", "lastReapRequest"))


def _beside_progress(obj: Json) -> tuple[Json, ...]:
    metadata, status = {**view.mapping(obj, "metadata"), "resourceVersion": ""}, view.mapping(obj, "status")
    told = {"adapterPath": view.adapter_path(obj)} if view.is_adapter(obj) else {**status, **_NEWS_OF_ITS_OWN}
    return metadata, view.mapping(obj, "spec"), told


SIBLINGS = timedelta(seconds=1)


def watch_jobs(informers: Mapping[Kind, Informer], kind: Kind) -> tuple[Watch, ...]:
    """Return watches over the Jobs of owners of a kind, and over their pods; see `_OfJobs`."""
    of_jobs = _OfJobs(informers[JOB], informers[POD], owner_key(kind))
    return Watch(of_jobs.jobs, of_jobs.by_job), Watch(of_jobs.pods, of_jobs.by_pod, of_jobs.gather)


@dataclass(frozen=True, slots=True)
class _OfJobs:
    """Maps changes of Jobs and of their pods to the owners of the Jobs.

    A Job and its pod change ten times from creation to removal: counters, finalizers, the scheduler's words. A change
    wakes the owner when `read_job` reads something else than before, which is all that a pass reads of them. When one
    of several Jobs of an owner has ended, the others get a moment to end too: one pass records them together.
    """

    jobs: Informer
    pods: Informer
    owner: Callable[[Json], Keys]

    def by_job(self, old: dict[str, Any] | None, new: dict[str, Any] | None) -> Keys:
        if old is None or new is None or _said(old) != _said(new):
            return keys_of_both(self.owner)(old, new)
        if view.items(old, "status", "conditions") == view.items(new, "status", "conditions"):
            return ()
        now = self._pods_of(new)
        return () if read_job(old, now) == read_job(new, now) else self.owner(new)

    def by_pod(self, old: Json | None, new: Json | None) -> Keys:
        pod = new if new is not None else old
        job = self._job_of(pod)
        concerned = self.owner(job) if job is not None else ()
        if job is None or not concerned or view.mapping(old, "status") == view.mapping(new, "status"):
            return ()
        now = self._pods_of(job)
        others = [other for other in now if view.name_of(other) != view.name_of(pod)]
        before = others if old is None else [*others, old]
        return () if read_job(job, now) == read_job(job, before) else concerned

    def gather(self, old: Json | None, new: Json | None) -> timedelta:
        job = self._job_of(new)
        if job is None or not self._finished(job):
            return GATHER
        uids = (view.text(reference, "uid") for reference in view.items(job, "metadata", "ownerReferences"))
        siblings = (other for uid in uids for other in self.jobs.by_index("owner", word(job, uid)))
        return GATHER if all(map(self._finished, siblings)) else SIBLINGS

    def _pods_of(self, job: Json) -> Sequence[Json]:
        return self.pods.by_index("owner", word(job, view.uid_of(job)))

    def _finished(self, job: Json) -> bool:
        return read_job(job, self._pods_of(job)).finished

    def _job_of(self, pod: Json | None) -> Json | None:
        name = owner_name(pod, JOB) if pod is not None else None
        return self.jobs.get(view.namespace_of(pod), name) if name else None


_OF_A_JOB = ("uid", "labels", "annotations", "ownerReferences", "deletionTimestamp")


def _said(job: Json) -> list[Any]:
    """What a Job says beside its status."""
    return [view.dig(job, "metadata", key) for key in _OF_A_JOB]


def node_labels(tools: Tools) -> list[Mapping[str, str]] | None:
    """Return the labels of all nodes; None when nodes are not watched or not known yet."""
    nodes = tools.informers.get(NODE)
    if nodes is None or not nodes.synced.is_set():
        return None
    return [view.mapping(node, "metadata", "labels") for node in nodes.items()]


def watch_nodes(nodes: Informer | None, everyone: Callable[[], Keys]) -> tuple[Watch, ...]:
    """Return a watch that wakes everyone when a node comes, goes, or changes its labels; its heartbeats wake no one."""
    if nodes is None:
        return ()

    def concerned(old: Json | None, new: Json | None) -> Keys:
        return () if view.mapping(old, "metadata", "labels") == view.mapping(new, "metadata", "labels") else everyone()

    return (Watch(nodes, concerned),)


REFUSED_AGAIN = timedelta(minutes=5)  # an apply that the API server refused is retried after this time
