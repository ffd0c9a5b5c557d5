"""A service's directory on the adapter disk: is it there, does it hold the declared set, which Job is needed. Pure.

Source: docs/contract.md, Subtree sync. One sync Job of a service exists at a time. A set that was synced once counts as
synced only as long as no other sync may have run since: see `_Sync`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from api import view
from api.kinds import JOB
from api.names import sync_key
from api.reasons import Reason, spoken
from api.view import Json
from reconcile.decision import Draft, EventNote
from reconcile.jobs import JobState, retry_at
from reconcile.service.facts import ServiceFacts
from reconcile.service.manifests import render_sync_job
from reconcile.service.staging import found_undeclared
from rules.references import ArtifactState, Unreadable

_NEVER_ON_DISK = frozenset({Reason.ADAPTER_NOT_AN_ADAPTER, Reason.ADAPTER_PATH_DUPLICATE, Reason.ADAPTER_PATH_INVALID})


@dataclass(frozen=True, slots=True)
class Recorded:
    """The last successful sync that the status records: its key, and the disk that it was on."""

    key: str
    claim: str
    claim_uid: str


@dataclass(frozen=True, slots=True)
class Disk:
    """The adapter disk as it concerns one service.

    `wanted`: the service has or needs a directory there. `claim` and `claim_uid` are empty while the base has no disk.
    `synced`: the directory holds the declared set and nothing else. `problem`: why it does not, where that is known.
    `at_rest`: once this pass is written, the next step is a Job's.
    """

    wanted: bool
    claim: str
    claim_uid: str
    recorded: Recorded
    synced: bool = False
    problem: str = ""
    at_rest: bool = False

    @property
    def ready(self) -> bool:
        """Whether the directory exists on the present disk."""
        return bool(self.claim_uid) and self.recorded.claim_uid == self.claim_uid


def decide_disk(seen: ServiceFacts, draft: Draft, *, allowed: bool) -> Disk:
    """Return the state of the disk and of this service's directory; makes and deletes sync Jobs.

    A service that may not be served gets no directory (`allowed`); one that has it keeps following its declared set,
    also while no base is known: what is removed then leaves the disk that the servers still mount.
    """
    status = seen.status
    recorded = Recorded(
        key=view.text(status, "adapterSubtreeSyncKey") or "",
        claim=view.text(status, "adapterDiskPersistentVolumeClaim") or "",
        claim_uid=view.text(status, "adapterDiskPersistentVolumeClaimUid") or "",
    )
    named = seen.disk_claim_name
    there = (
        seen.disk_claim is not None and view.name_of(seen.disk_claim) == named and not view.terminating(seen.disk_claim)
    )
    claim_uid = view.uid_of(seen.disk_claim) if named and there else ""
    claim = named if claim_uid else ""
    has_directory = bool(recorded.claim_uid) or seen.wiring is not None or _left_something(seen)
    wanted = view.uses_adapters(seen.service) or has_directory
    if not named and _mounts_recorded_disk(seen, recorded):
        kept = _Sync(seen, draft, recorded.claim, recorded.claim_uid, recorded).run()
        return replace(kept, claim="", claim_uid="")
    if not wanted or not claim_uid or not (allowed or has_directory):
        return Disk(wanted, claim, claim_uid, recorded)
    return _Sync(seen, draft, claim, claim_uid, recorded).run()


def _mounts_recorded_disk(seen: ServiceFacts, recorded: Recorded) -> bool:
    """Whether the disk of the last sync is still there, and is the one that the servers mount."""
    kept = seen.kept_claim
    if kept is None or view.terminating(kept):
        return False
    return (view.name_of(kept), view.uid_of(kept)) == (recorded.claim, recorded.claim_uid)


def _left_something(seen: ServiceFacts) -> bool:
    """Whether Jobs or entries show a directory that no record names: the status was lost before a server was made."""
    if seen.sync_jobs:
        return True
    return any(
        view.text(entry, "stageKey") and (view.integer(entry, "attempts") or view.text(entry, "state") == "Deleting")
        for entry in view.items(seen.service, "status", "adapters")
    )


@dataclass
class _Sync:
    """Brings the directory to the declared set.

    The recorded key is what the directory held after the last success. It stops to count as soon as another sync may
    have moved something: while a Job of another key exists, while an adapter that is declared again was on its way out,
    and when a staging Job found its adapter undeclared. The removed entries are marked in the status before the Job is
    made that moves them away, so that no crash in between leaves a moved directory behind that the status calls staged.
    """

    seen: ServiceFacts
    draft: Draft
    claim: str
    claim_uid: str
    recorded: Recorded

    def run(self) -> Disk:
        paths = self._paths()
        key = sync_key(view.uid_of(self.seen.service), paths, self.claim, self.claim_uid)
        own = sorted((job for job in self.seen.sync_jobs if job.key == key), key=lambda job: -job.attempt)
        foreign = [job for job in self.seen.sync_jobs if job.key != key]
        newest = next((job for job in own if not job.terminating), None)
        alone = own == [newest] and not foreign
        self._drop_others(newest)
        if newest is not None and newest.phase == "succeeded" and not _superseded(newest):
            self._drop(newest)
            return self._done(key, at_rest=alone)
        leaving = self._leaving_unmarked()
        recorded = self._counting(key, doubted=bool(foreign) or leaving)
        if newest is None and recorded.key == key:
            return self._done(key, at_rest=not own)
        waits = bool(foreign or own) or leaving
        problem = self._next(key, paths, newest, waits=waits)
        on_its_way = not waits if newest is None else not newest.finished and alone
        return Disk(True, self.claim, self.claim_uid, recorded, problem=problem, at_rest=on_its_way)

    def _done(self, key: str, *, at_rest: bool) -> Disk:
        """Return the disk with the declared set on it; the key is of this very disk, whatever is recorded beside it."""
        done = Recorded(key, self.claim, self.claim_uid)
        return Disk(True, self.claim, self.claim_uid, done, synced=True, at_rest=at_rest)

    def _counting(self, key: str, *, doubted: bool) -> Recorded:
        """Return the record, without its key where another sync may have moved something since."""
        recorded = self.recorded
        if recorded.key == key and (doubted or self._coming_back() or self._found_undeclared()):
            return Recorded("", recorded.claim, recorded.claim_uid)
        return recorded

    def _drop_others(self, newest: JobState | None) -> None:
        for job in self.seen.sync_jobs:
            if job is not newest and not job.terminating:
                self._drop(job)

    def _paths(self) -> list[str]:
        facts = self.seen.facts
        rejected = frozenset(
            entry.ref.name
            for entry in facts.adapter_findings
            if any(error.reason in _NEVER_ON_DISK for error in entry.errors)
        )
        return declared_paths(self.seen.service, facts.artifacts, rejected)

    def _drop(self, job: JobState) -> None:
        self.draft.drop(JOB, view.namespace_of(self.seen.service), job.name, job.uid)

    def _entries(self) -> Sequence[Any]:
        return view.items(self.seen.service, "status", "adapters")

    def _declared(self) -> set[str]:
        return {ref.name for ref in view.adapter_refs(self.seen.service)}

    def _coming_back(self) -> bool:
        """Whether an adapter is declared again while its removal was under way."""
        declared = self._declared()
        return any(view.text(e, "state") == "Deleting" and view.text(e, "name") in declared for e in self._entries())

    def _leaving_unmarked(self) -> bool:
        """Whether an adapter that is not declared any more is not marked so in the stored status yet."""
        declared = self._declared()
        return any(
            view.text(entry, "name") not in declared
            and view.text(entry, "stageKey")
            and view.text(entry, "state") != "Deleting"
            for entry in self._entries()
        )

    def _found_undeclared(self) -> bool:
        """Whether a staging Job reports that the disk does not know its adapter as declared (it goes in this pass)."""
        return any(not job.terminating and found_undeclared(job) for job in self.seen.stage_jobs)

    def _next(self, key: str, paths: list[str], newest: JobState | None, *, waits: bool) -> str:
        """Make the next Job if it is time; return what blocks it."""
        if newest is None:
            if not waits:
                self._make(key, paths, 1)
            return ""
        if not newest.finished:
            return self._blocked(newest.blocked_by)
        result = newest.result
        problem = (
            f"{result.reason}: {result.message}" if result else f"{Reason.JOB_FAILED}: the subtree-sync Job failed"
        )
        due = retry_at(newest.finished_at or self.seen.now, newest.attempt, self.seen.settings, None)
        if due > self.seen.now:
            self.draft.look_again(due - self.seen.now)
        else:
            self._make(key, paths, newest.attempt + 1)
            self._drop(newest)
        return problem

    def _blocked(self, said: str) -> str:
        """Return why the Job cannot start; the first time for a reason, an event reports it."""
        before = view.text(view.condition(self.seen.service, "Adapters"), "message") or ""
        reason = said.partition(":")[0]
        if said and f"{reason}: " not in before:
            words = f"the directory of the service on the adapter disk cannot be synchronized yet: {said}"
            self.draft.events.append(EventNote("Warning", spoken(reason), words))
        return said

    def _make(self, key: str, paths: list[str], attempt: int) -> None:
        job = render_sync_job(
            self.seen.service,
            claim=self.claim,
            key=key,
            paths=paths,
            attempt=attempt,
            pull_secrets=job_pull_secrets(self.seen),
            settings=self.seen.settings,
            config=self.seen.facts.config.spec,
            gpu_resource=self.seen.plan.gpu_resource if self.seen.plan is not None else None,
        )
        self.draft.create.append((JOB, job))


def _superseded(job: JobState) -> bool:
    """Whether the disk knew a newer set than this Job brought: it changed nothing."""
    return job.result is not None and job.result.reason == Reason.SYNC_SUPERSEDED


def declared_paths(service: Json, artifacts: Mapping[str, ArtifactState], rejected: frozenset[str]) -> list[str]:
    """Return the directories that may live in the subtree, sorted.

    An adapter that is invalid now keeps the directory it may have; one that never can have one (`rejected`) has none.
    A missing artifact's path is the one last seen.
    """
    old = {
        view.text(entry, "name"): view.text(entry, "adapterPath") for entry in view.items(service, "status", "adapters")
    }
    paths = set()
    for ref in view.adapter_refs(service):
        artifact = artifacts.get(ref.name)
        if ref.name in rejected:
            continue
        if artifact is None or isinstance(artifact, Unreadable):
            paths.add(old.get(ref.name) or ref.name)
        elif view.is_adapter(artifact):
            paths.add(view.adapter_path(artifact))
    return sorted(paths)


def job_pull_secrets(seen: ServiceFacts) -> tuple[Any, ...]:
    """Pull secrets of the service's Jobs: its own, else its RuntimeConfig's."""
    own = view.items(seen.service, "spec", "imagePullSecrets")
    return tuple(own or view.items(seen.facts.config.spec, "imagePullSecrets"))
