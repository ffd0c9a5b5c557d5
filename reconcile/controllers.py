"""What the controllers of all kinds share: reading Jobs and pods from the caches, waking the owners of a change."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from api.jobs import Progress
from api.kinds import JOB, NODE, POD, Kind
from api.view import Json, dig, mapping, name_of, namespace_of, text, uid_of
from reconcile.cache import Key
from reconcile.engine import KeyFunction, Watch, keys_of_both
from reconcile.informer import Informer
from reconcile.informers import CachedWorld, owner_name, word
from reconcile.jobs import JobState, read_job
from reconcile.poll import Poller, Question
from reconcile.settings import ReconcileSettings
from reconcile.shell import Shell

log = logging.getLogger(__name__)

PROGRESS_INTERVAL = 5.0  # seconds between two looks at a running Job's numbers (contract, section 11, "Progress")

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
    now: Callable[[], datetime] = utc_now

    def find(self, kind: Kind, namespace: str, name: str | None) -> Json | None:
        """Return a cached object, or None."""
        return self.informers[kind].get(namespace if kind.namespaced else "", name) if name else None

    def owned(self, kind: Kind, owner: Json) -> list[Json]:
        """Return the cached objects of a kind, of the owner's namespace, that an object owns."""
        return list(self.informers[kind].by_index("owner", word(owner, uid_of(owner))))

    def jobs(self, owner: Json, role_label: str, role: str, key_annotation: str) -> tuple[JobState, ...]:
        """Return the states of an owner's Jobs of one role."""
        return tuple(
            read_job(job, self.informers[POD].by_index("owner", word(job, uid_of(job))), key_annotation)
            for job in self.owned(JOB, owner)
            if text(job, "metadata", "labels", role_label) == role
        )

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
        return {uid: answer for uid in running if (answer := self.progress.answer(uid)) is not None}


def url_host(address: str) -> str:
    """Return an IP address as it stands in a URL."""
    return f"[{address}]" if ":" in address else address


def parse_progress(body: object) -> Progress | None:
    """Read the answer of `GET /progress`; None when it is none."""
    try:
        return Progress.model_validate(body)
    except ValueError:
        return None


def parse_models(body: object) -> frozenset[str] | None:
    """Read the ids of `GET /v1/models`; None when the answer is none."""
    data = dig(body, "data")
    if not isinstance(data, list):
        return None
    return frozenset(identity for entry in data if (identity := text(entry, "id")))


def keys(objects: Iterable[Json]) -> list[Key]:
    """Return the keys of objects."""
    return [(namespace_of(obj), name_of(obj)) for obj in objects]


def owner_key(kind: Kind) -> Callable[[Json], Keys]:
    """Return a mapping from an object to the key of its owner of that kind."""

    def mapping(obj: Json) -> Keys:
        name = owner_name(obj, kind)
        return [(namespace_of(obj), name)] if name else []

    return mapping


def unless_progress(function: Callable[[Json], Keys]) -> KeyFunction:
    """Map a change as `keys_of_both` does, but to nobody when only the progress of a download moved.

    A base model may be downloaded for hours with thousands of services waiting for it.
    """
    both = keys_of_both(function)

    def concerned(old: dict[str, Any] | None, new: dict[str, Any] | None) -> Keys:
        same = old is not None and new is not None and _beside_progress(old) == _beside_progress(new)
        return () if same else both(old, new)

    return concerned


def _beside_progress(obj: Json) -> tuple[Json, ...]:
    metadata, status = mapping(obj, "metadata"), mapping(obj, "status")
    return {**metadata, "resourceVersion": ""}, mapping(obj, "spec"), {**status, "progress": None}


def job_pod_owner(informers: Mapping[Kind, Informer], kind: Kind) -> Callable[[Json], Keys]:
    """Return a mapping from a Job's pod to the key of the Job's owner of that kind."""
    owner = owner_key(kind)

    def mapping(pod: Json) -> Keys:
        name = owner_name(pod, JOB)
        job = informers[JOB].get(namespace_of(pod), name) if name else None
        return owner(job) if job is not None else []

    return mapping


def node_labels(tools: Tools) -> list[Mapping[str, str]] | None:
    """Return the labels of all nodes; None when nodes are not watched or not known yet."""
    nodes = tools.informers.get(NODE)
    if nodes is None or not nodes.synced.is_set():
        return None
    return [mapping(node, "metadata", "labels") for node in nodes.items()]


def watch_nodes(nodes: Informer | None, everyone: Callable[[], Keys]) -> tuple[Watch, ...]:
    """Return a watch that wakes everyone when a node comes, goes, or changes its labels; its heartbeats wake no one."""
    if nodes is None:
        return ()

    def concerned(old: Json | None, new: Json | None) -> Keys:
        return () if mapping(old, "metadata", "labels") == mapping(new, "metadata", "labels") else everyone()

    return (Watch(nodes, concerned),)


REFUSED_AGAIN = timedelta(minutes=5)  # an apply that the API server refused is tried again after so long
