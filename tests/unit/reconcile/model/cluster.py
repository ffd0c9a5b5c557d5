"""The controllers over the cluster in memory: each observes as its shell does, decides, and is carried out."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from api import view
from api.jobs import Progress
from api.kinds import (
    AIM_ARTIFACT,
    AIM_CLUSTER_PROFILE,
    AIM_MODEL,
    AIM_PROFILE,
    AIM_PROFILE_CACHE,
    AIM_SERVICE,
    AIM_SERVICE_TEMPLATE,
    AIM_TEMPLATE_CACHE,
    CONFIG_MAP,
    DEPLOYMENT,
    INFERENCE_SERVICE,
    JOB,
    PERSISTENT_VOLUME_CLAIM,
    Kind,
)
from api.names import (
    LABEL_ROLE,
    ROLE_FETCH,
    ROLE_REAPER,
    ROLE_STAGING,
    ROLE_SUBTREE_SYNC,
    inference_service_name,
)
from api.view import Json
from reconcile.artifact import decide as artifact
from reconcile.artifact.facts import ArtifactFacts
from reconcile.artifact.manifests import cache_claim_name, disk_claim_name, render_reaper_job
from reconcile.caches import decide as caches
from reconcile.caches.decide import CacheFacts
from reconcile.decision import Decision
from reconcile.jobs import JobState, read_job
from reconcile.objects import artifact_names, timestamp
from reconcile.service import decide as service
from reconcile.service.cache import cache_origin
from reconcile.service.facts import ServiceFacts
from reconcile.service.live import live_wiring
from reconcile.settings import ReconcileSettings
from rules.examples import NAMESPACE
from rules.runtime_config import resolve_runtime_config
from rules.seen import see_service
from rules.validate import judge_stored
from rules.world import Index
from tests.unit.reconcile.model.machinery import Machinery
from tests.unit.reconcile.model.store import Store

CACHES = (AIM_PROFILE_CACHE, AIM_TEMPLATE_CACHE)
RECONCILED = (AIM_ARTIFACT, *CACHES, AIM_SERVICE)


class Cluster:
    """Passes over objects. `on_decision` sees every decision before it is carried out."""

    def __init__(self, store: Store, machinery: Machinery, settings: ReconcileSettings) -> None:
        self.store, self.machinery, self.settings = store, machinery, settings
        self.rechecks: list[timedelta] = []
        self.events: list[str] = []
        self.deaf = False  # whether servers answer no one
        self.told_of: dict[
            str, frozenset[str]
        ] = {}  # service UID → what pods had loaded when its status was last written
        self._at_rest: dict[tuple[str, str, int, datetime], list[timedelta]] = {}

    def addresses(self) -> list[tuple[Kind, str]]:
        return [(kind, view.name_of(obj)) for kind in RECONCILED for obj in self.store.all(kind)]

    def decide(self, kind: Kind, name: str) -> tuple[dict[str, Any], Decision] | None:
        obj = self.store.get(kind, name)
        if obj is None:
            return None
        if kind in CACHES:
            return obj, self._cache(kind, obj)
        return obj, self._artifact(obj) if kind == AIM_ARTIFACT else self._service(obj)

    def reconcile(self, kind: Kind, name: str, *, steps: int | None = None) -> bool:
        """Make a pass; `steps`: crash after this many writes. Returns whether something was written."""
        decided = self.decide(kind, name)
        version = self.store.version
        wrote = self.carry_out(kind, *decided, steps=steps) if decided is not None else False
        changed = wrote or self.store.version != version  # else a second pass would be this one once more
        if decided is not None and decided[1].at_rest and steps is None and changed:
            again = self.decide(kind, name)
            assert again is not None
            assert not self.carry_out(kind, *again), f"{kind.kind} {name} was reported to be at rest"
        return wrote

    def carry_out(self, kind: Kind, obj: dict[str, Any], decision: Decision, *, steps: int | None = None) -> bool:
        before = len(self.store.writes)
        now = timestamp(self.machinery.now)
        left = steps if steps is not None else 1 << 30
        for wanted_kind, wanted in decision.apply:
            if left <= 0:
                return True
            left -= self.store.apply(wanted_kind, wanted, now)
        for wanted_kind, wanted in decision.create:
            if left <= 0:
                return True
            left -= self.store.create(wanted_kind, wanted, now)
        if left <= 0:
            return True
        left -= self.store.store_status(kind, obj, decision.status)
        if kind == AIM_SERVICE and not self.deaf:
            self.told_of[view.uid_of(obj)] = self._loaded(obj)
        for deletion in decision.delete:
            if left <= 0:
                return True
            if self.store.delete(deletion.kind, deletion.name, deletion.uid):
                self.store.writes.append(f"delete {deletion.kind.kind} {deletion.name}")
                left -= 1
        self.events += [f"{view.name_of(obj)}: {event.reason}: {event.message}" for event in decision.events]
        if decision.sweep and left > 0:
            self._sweep(obj, decision)
        if decision.recheck_after is not None:
            self.rechecks.append(decision.recheck_after)
        return len(self.store.writes) > before

    def _loaded(self, service_object: Json) -> frozenset[str]:
        isvc = self.store.get(INFERENCE_SERVICE, inference_service_name(view.name_of(service_object), NAMESPACE))
        return frozenset(path for pod in self.machinery.pods.get(view.uid_of(isvc), ()) for path in pod.loaded)

    def _sweep(self, obj: Json, decision: Decision) -> None:
        job = render_reaper_job(
            obj,
            disk_claim_name(obj),
            self.machinery.live_services(),
            self.machinery.now,
            dry_run=decision.sweep == "dry-run",
            settings=self.settings,
            swept=decision.sweep_world,
        )
        self.store.create(JOB, job, timestamp(self.machinery.now))

    # -- observations -----------------------------------------------------------------------------------------------

    def _jobs(self, owner: Json, role: str) -> tuple[JobState, ...]:
        return tuple(
            read_job(job, self.machinery.job_pods.get(view.uid_of(job), ()))
            for job in self.store.owned(JOB, owner)
            if view.text(job, "metadata", "labels", LABEL_ROLE) == role
        )

    def _artifact(self, obj: Json) -> Decision:
        world, store = self.store.world(), self.store
        errors = tuple(judge_stored(AIM_ARTIFACT, obj, world).errors)
        config = resolve_runtime_config(world, NAMESPACE, view.text(obj, "spec", "runtimeConfigName") or "default")
        if view.is_adapter(obj):
            parent = store.get(AIM_ARTIFACT, view.parent_artifact(obj))
            return artifact.decide(
                ArtifactFacts(obj, self.machinery.now, self.settings, config, errors=errors, parent=parent)
            )
        known = [cache for kind in CACHES for cache in store.all(kind)]
        holding = [cache for cache in known if view.name_of(obj) in artifact_names(cache)]
        disk = store.get(PERSISTENT_VOLUME_CLAIM, disk_claim_name(obj))
        return artifact.decide(
            ArtifactFacts(
                obj,
                self.machinery.now,
                self.settings,
                config,
                errors=errors,
                claim=store.get(PERSISTENT_VOLUME_CLAIM, cache_claim_name(obj)),
                disk_claim=disk,
                disk_wanted=view.dig(obj, "spec", "adapterDisk") is not None
                or any(view.dig(cache, "spec", "requiresAdapterDisk") is True for cache in holding),
                fetches=self._jobs(obj, ROLE_FETCH),
                reap_jobs=self._jobs(obj, ROLE_REAPER),
                users=self._users(disk),
            )
        )

    def _users(self, disk: Json | None) -> tuple[tuple[str, int], ...]:
        found = [
            obj
            for obj in self.store.all(AIM_SERVICE)
            if disk is not None and view.text(obj, "status", "adapterDiskPersistentVolumeClaimUid") == view.uid_of(disk)
        ]
        return tuple(
            (
                view.uid_of(obj),
                sum(view.integer(entry, "attempts") or 0 for entry in view.items(obj, "status", "adapters")),
            )
            for obj in found
        )

    def _cache(self, cache_kind: Kind, obj: Json) -> Decision:
        kind, origin = self._origin(cache_kind, obj)
        name = view.text(obj, "spec", "profileName") or view.text(obj, "spec", "templateName")
        sources = view.items(obj, "spec", "modelSources") or (
            view.items(origin, "spec", "modelSources") if origin is not None else None
        )
        world = self.store.world()
        found = {
            uri: world.find(Index.ARTIFACTS_BY_SOURCE, NAMESPACE, uri)
            for source in sources or ()
            if (uri := view.text(source, "sourceUri"))
        }
        return caches.decide(CacheFacts(obj, cache_kind, self.machinery.now, f'{kind.kind} "{name}"', sources, found))

    def _origin(self, cache_kind: Kind, obj: Json) -> tuple[Kind, Json | None]:
        """What a cache is for: a profile, or a template (a model, where the service has no template)."""
        if cache_kind == AIM_PROFILE_CACHE:
            kind = AIM_CLUSTER_PROFILE if view.text(obj, "spec", "profileScope") == "Cluster" else AIM_PROFILE
            return kind, self.store.get(kind, view.text(obj, "spec", "profileName"))
        name = view.text(obj, "spec", "templateName")
        template = self.store.get(AIM_SERVICE_TEMPLATE, name)
        if template is None:
            return AIM_MODEL, self.store.get(AIM_MODEL, name)
        if view.items(template, "spec", "modelSources"):
            return AIM_SERVICE_TEMPLATE, template
        return AIM_SERVICE_TEMPLATE, self.store.get(AIM_MODEL, view.text(template, "spec", "modelName"))

    def _service(self, obj: Json) -> Decision:
        return service.decide(self.observe_service(obj))

    def observe_service(self, obj: Json) -> ServiceFacts:
        store, machinery = self.store, self.machinery
        facts = see_service(obj, store.world())
        isvc = store.get(INFERENCE_SERVICE, inference_service_name(view.name_of(obj), NAMESPACE))
        origin, wiring = cache_origin(facts), live_wiring(isvc)
        claim = view.text(facts.base.artifact, "status", "adapterPersistentVolumeClaim") if facts.base.known else None
        stage_jobs = self._jobs(obj, ROLE_STAGING)
        return ServiceFacts(
            facts,
            machinery.now,
            self.settings,
            errors=tuple(judge_stored(AIM_SERVICE, obj, store.world()).errors),
            caches=tuple(
                cache
                for cache in (store.all(origin.kind) if origin is not None else ())
                if origin is not None
                and origin.name in (view.text(cache, "spec", "profileName"), view.text(cache, "spec", "templateName"))
            ),
            disk_claim=store.get(PERSISTENT_VOLUME_CLAIM, claim),
            kept_claim=store.get(PERSISTENT_VOLUME_CLAIM, wiring.claim) if wiring is not None else None,
            sync_jobs=self._jobs(obj, ROLE_SUBTREE_SYNC),
            stage_jobs=stage_jobs,
            progress={
                job.uid: Progress(downloaded_bytes=1, total_bytes=2, percentage=50)
                for job in stage_jobs
                if job.phase == "running"
            },
            isvc=isvc,
            deployment=store.get(DEPLOYMENT, f"{view.name_of(isvc)}-predictor") if isvc else None,
            pods=machinery.server_pods(isvc, asked=not self.deaf),
            config_maps=tuple(store.owned(CONFIG_MAP, obj)),
        )

    # -- convergence ------------------------------------------------------------------------------------------------

    def pass_over_all(self) -> bool:
        """One pass over each object; returns whether anything was written."""
        wrote = False
        for kind, name in self.addresses():
            key = (kind.kind, name, self.store.version, self.machinery.now)
            if key in self._at_rest:  # a pass over the very same state would do nothing again
                self.rechecks += self._at_rest[key]
                continue
            known = len(self.rechecks)
            wrote = self.reconcile(kind, name) or wrote
            if key[2] == self.store.version:
                self._at_rest[key] = self.rechecks[known:]
        return wrote

    def settle(self, *, rounds: int = 120, waits: int = 14) -> None:
        """Let everything that is on its way happen, without faults, until nothing moves any more.

        What fails for good is retried without end: after this many waits in which only that happened it counts as rest.
        Raises: AssertionError when it does not come to rest.
        """
        same, before = 0, ""
        for _ in range(rounds):
            self._work_off()
            picture = self._picture()
            same = same + 1 if picture == before else 0
            before = picture
            wait = min((wait for wait in self.rechecks if wait < timedelta(hours=2)), default=None)
            if wait is None or same >= waits:
                return
            self.machinery.now += wait
        raise AssertionError(f"it does not settle: {self.store.writes[-12:]}")

    def _work_off(self) -> None:
        """Run Jobs and pods and passes until there is nothing to do at this moment."""
        for _ in range(40):
            version = self.store.version
            self.rechecks.clear()
            for job in self.machinery.waiting_jobs():
                self.machinery.run(job, "ok")
            self.machinery.tick()
            for _ in range(20):
                if not self.pass_over_all():
                    break
            else:
                raise AssertionError(f"it never rests: {self.store.writes[-12:]}")
            if self.store.version == version:
                return
        raise AssertionError(f"always something to do: {self.store.writes[-12:]}")

    def _picture(self) -> str:
        """All states, without times and numbers."""
        words = []
        for kind in RECONCILED:
            for obj in self.store.all(kind):
                adapters = [(entry["name"], entry["state"]) for entry in view.items(obj, "status", "adapters")]
                words.append((view.name_of(obj), view.text(obj, "status", "status"), adapters, self._folders()))
        return repr(words)

    def _folders(self) -> str:
        disks = self.machinery.disks.values()
        return repr([sorted(folder.live.items()) for disk in disks for folder in disk.values()])
