"""The shell of AIMArtifact: observes from caches, lets `decide` decide, carries it out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any
from urllib.parse import urlencode

import orjson

from api import view
from api.kinds import (
    AIM_ARTIFACT,
    AIM_CLUSTER_RUNTIME_CONFIG,
    AIM_PROFILE_CACHE,
    AIM_RUNTIME_CONFIG,
    AIM_SERVICE,
    AIM_TEMPLATE_CACHE,
    EVENT,
    JOB,
    PERSISTENT_VOLUME_CLAIM,
)
from api.names import (
    ROLE_FETCH,
    ROLE_REAPER,
)
from api.reasons import Reason
from api.view import Json
from kube.cache import Key
from kube.client import Client
from kube.engine import Watch, keys_of_both
from reconcile.artifact.decide import decide
from reconcile.artifact.facts import ArtifactFacts
from reconcile.artifact.manifests import cache_claim_name, disk_claim_name, render_reaper_job
from reconcile.artifact.users import DiskUsers, disk_use
from reconcile.conditions import too_large
from reconcile.controllers import Keys, Tools, keys, owner_key, watch_jobs
from reconcile.decision import Decision, EventNote, sooner
from reconcile.objects import artifact_names, owned_by
from reconcile.world import CACHE_KINDS, word
from rules.bounds import beyond
from rules.runtime_config import resolve_runtime_config
from rules.seen import Context
from rules.validate import judge_stored

_MOST_EVENTS = 50  # of one claim that are read
_FOR_A_SWEEP = timedelta(seconds=2)  # what services change about a disk is looked at by the quarter of an hour


class ArtifactController:
    """Converges AIMArtifacts."""

    name = "artifact"

    def __init__(self, tools: Tools, client: Client) -> None:
        """Take the shared tools; `client` lists living services for a sweep."""
        self._tools = tools
        self._client = client
        self._on_disks = DiskUsers()
        services = tools.informers[AIM_SERVICE]
        for service in services.items():
            self._on_disks.changed(None, service)
        services.add_handler(self._on_disks.changed)

    @property
    def watches(self) -> Sequence[Watch]:
        """Artifacts, and everything whose change may concern one."""
        informers = self._tools.informers
        watch = informers.__getitem__
        return (
            Watch(watch(AIM_ARTIFACT), keys_of_both(self._self_and_children)),
            Watch(watch(AIM_PROFILE_CACHE), keys_of_both(_held)),
            Watch(watch(AIM_TEMPLATE_CACHE), keys_of_both(_held)),
            Watch(watch(AIM_RUNTIME_CONFIG), keys_of_both(self._by_config)),
            Watch(watch(AIM_CLUSTER_RUNTIME_CONFIG), keys_of_both(self._by_config)),
            Watch(watch(PERSISTENT_VOLUME_CLAIM), keys_of_both(owner_key(AIM_ARTIFACT))),
            *watch_jobs(informers, AIM_ARTIFACT),
            Watch(watch(AIM_SERVICE), self._disk_owners, _FOR_A_SWEEP),
        )

    def _self_and_children(self, artifact: Json) -> Keys:
        own = (view.namespace_of(artifact), view.name_of(artifact))
        return [
            own,
            *keys(self._tools.informers[AIM_ARTIFACT].by_index("parent", word(artifact, view.name_of(artifact)))),
        ]

    def _by_config(self, config: Json) -> Keys:
        informer = self._tools.informers[AIM_ARTIFACT]
        if view.namespace_of(config):
            return keys(informer.by_index("runtime-config", word(config, view.name_of(config))))
        return keys(informer.by_index("any-runtime-config", view.name_of(config)))

    def _disk_owners(self, old: dict[str, Any] | None, new: dict[str, Any] | None) -> Keys:
        """The base artifacts whose disks a service used and uses, where that is news to a sweep."""
        if old is not None and new is not None and disk_use(old) == disk_use(new):
            return ()
        return keys_of_both(self._disk_owner)(old, new)

    def _disk_owner(self, service: Json) -> Keys:
        """The base artifact whose disk a service uses: a service that goes leaves bytes there."""
        claim = self._tools.find(
            PERSISTENT_VOLUME_CLAIM,
            view.namespace_of(service),
            view.text(service, "status", "adapterDiskPersistentVolumeClaim"),
        )
        return owner_key(AIM_ARTIFACT)(claim) if claim is not None else []

    async def reconcile(self, key: Key) -> timedelta | None:
        """Make one pass over an artifact."""
        tools = self._tools
        artifact = tools.find(AIM_ARTIFACT, *key)
        if artifact is None or view.terminating(artifact) or view.paused(artifact):
            tools.progress.want(key, {})
            tools.turns.leave((self.name, key))
            return None
        if (large := beyond(AIM_ARTIFACT, artifact)) is not None:
            tools.progress.want(key, {})
            tools.turns.leave((self.name, key))
            decision = Decision(status=too_large(artifact, large.error, tools.now()), at_rest=True)
            return await tools.shell.carry_out(AIM_ARTIFACT, artifact, decision)
        look = await tools.look_at_starts(artifact)
        seen = await self._with_problems(self._observe(key, artifact))
        seen = replace(seen, free_jobs=tools.turns.free((self.name, key)))
        decision = decide(seen)
        recheck = await tools.turns.carry_out(
            (self.name, key), decision, lambda: tools.shell.carry_out(AIM_ARTIFACT, artifact, decision)
        )
        if decision.sweep and seen.disk_claim is not None:
            await self._sweep(artifact, view.name_of(seen.disk_claim), decision)
        return sooner(recheck, look)

    def _observe(self, key: Key, artifact: Json) -> ArtifactFacts:
        tools = self._tools
        namespace = view.namespace_of(artifact)
        context = Context(allowed_images=tools.settings.allowed_download_images)
        errors = tuple(judge_stored(AIM_ARTIFACT, artifact, tools.world, context=context).errors)
        config = resolve_runtime_config(tools.world, namespace, view.runtime_config_name(artifact))
        if view.is_adapter(artifact):
            parent = tools.find(AIM_ARTIFACT, namespace, view.parent_artifact(artifact))
            return ArtifactFacts(artifact, tools.now(), tools.settings, config, errors=errors, parent=parent)
        caches = self._caches(artifact)
        fetches = tools.jobs(artifact, ROLE_FETCH)
        progress = tools.follow(key, fetches)
        disk_claim = self._claim(artifact, "adapterPersistentVolumeClaim", disk_claim_name(artifact))
        return ArtifactFacts(
            artifact,
            tools.now(),
            tools.settings,
            config,
            errors=errors,
            claim=self._claim(artifact, "persistentVolumeClaim", cache_claim_name(artifact)),
            disk_claim=disk_claim,
            disk_wanted=view.dig(artifact, "spec", "adapterDisk") is not None
            or any(view.dig(cache, "spec", "requiresAdapterDisk") is True for cache in caches),
            cache_env=tuple(entry for cache in caches for entry in view.items(cache, "spec", "env")),
            fetches=fetches,
            progress=next(iter(progress.values()), None),
            reap_jobs=tools.jobs(artifact, ROLE_REAPER),
            users=self._users(namespace, disk_claim),
        )

    def _claim(self, artifact: Json, recorded: str, name: str) -> Json | None:
        """Return a claim of the artifact: the one in its status, maybe of another operator, else its own."""
        namespace = view.namespace_of(artifact)
        found = self._tools.find(PERSISTENT_VOLUME_CLAIM, namespace, view.text(artifact, "status", recorded))
        if found is not None and owned_by(found, artifact):
            return found
        return self._tools.find(PERSISTENT_VOLUME_CLAIM, namespace, name)

    def _caches(self, artifact: Json) -> list[Json]:
        found: list[Json] = []
        for kind in CACHE_KINDS:
            found += self._tools.informers[kind].by_index("artifact", word(artifact, view.name_of(artifact)))
        return found

    def _users(self, namespace: str, disk_claim: Json | None) -> tuple[tuple[str, int], ...]:
        """UIDs of the services whose subtree is on this disk, with their staging attempts so far, sorted."""
        return self._on_disks.of(namespace, view.uid_of(disk_claim)) if disk_claim is not None else ()

    async def _with_problems(self, seen: ArtifactFacts) -> ArtifactFacts:
        """Add what provisioners say about claims that are not bound; nothing is asked about bound ones.

        The one read of a pass that no informer answers: a watch over the events of all namespaces would cost the API
        server more than a list for the few claims that wait. `_observe` itself asks only caches.
        """
        if view.is_adapter(seen.artifact):
            return seen
        claim_problem, disk_problem = await self._problem(seen.claim), await self._problem(seen.disk_claim)
        return replace(seen, claim_problem=claim_problem, disk_problem=disk_problem)

    async def _problem(self, claim: Json | None) -> str:
        """Return the last warning of a provisioner about a claim that waits, empty when there is none."""
        if claim is None or view.text(claim, "status", "phase") == "Bound":
            return ""
        selector = f"involvedObject.uid={view.uid_of(claim)},type=Warning"
        path = f"{EVENT.path(view.namespace_of(claim))}?{urlencode({'fieldSelector': selector, 'limit': _MOST_EVENTS})}"
        events = orjson.loads(await self._client.get_raw(path)).get("items") or ()
        failed = [event for event in events if view.dig(event, "reason") == "ProvisioningFailed"]
        newest = sorted(failed, key=lambda event: view.text(event, "lastTimestamp") or "")
        return (view.text(newest[-1], "message") or "") if newest else ""

    async def _sweep(self, artifact: Json, claim: str, decision: Decision) -> None:
        """Make a reaper Job, with the living services as the API server (not a cache) lists them now.

        A list that is not read to its end makes no Job: nothing is ever reaped by half a list.
        """
        tools = self._tools
        listed_at = tools.now()
        uids, _ = await self._client.list_each(AIM_SERVICE, view.namespace_of(artifact), view.uid_of)
        dry_run = decision.sweep == "dry-run"
        job = render_reaper_job(
            artifact, claim, uids, listed_at, dry_run=dry_run, settings=tools.settings, swept=decision.sweep_world
        )
        await tools.shell.create(JOB, job)
        if dry_run:
            tools.shell.tell(artifact, EventNote("Normal", Reason.SWEEP_DRY_RUN, "a dry run of the sweep was started"))


def _held(cache: Json) -> Keys:
    return [(view.namespace_of(cache), name) for name in artifact_names(cache)]
