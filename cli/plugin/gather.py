"""Reads a snapshot of a service from a cluster: the shell of `status`, `why` and `check`."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from api import view
from api.kinds import (
    AIM_ARTIFACT,
    AIM_PROFILE,
    AIM_SERVICE,
    CONFIG_MAP,
    DEPLOYMENT,
    EVENT,
    INFERENCE_SERVICE,
    JOB,
    LEASE,
    NODE,
    PERSISTENT_VOLUME_CLAIM,
    POD,
    Kind,
)
from api.names import LABEL_ARTIFACT, LABEL_SERVICE, LEASE_NAME, inference_service_name
from api.view import Json
from cli.plugin.access import ProblemError
from cli.plugin.snapshot import Snapshot, job_state
from cli.plugin.world import DemandWorld, Known, complete
from kube.client import Client
from kube.errors import Forbidden, NotFound
from reconcile.jobs import event_time, last_warning
from reconcile.objects import label_value
from reconcile.service.manifests import cache_kind
from rules.references import Resolved
from rules.runtime_config import resolve_runtime_config
from rules.seen import ServiceSeen, see_service
from rules.validate import judge_stored
from rules.world import World

_MOST_EVENTS = 100  # of one object


async def find_service(client: Client, namespace: str, name: str) -> Json:
    """Return a service. Raises: ProblemError that names the existing services."""
    service = await client.find(AIM_SERVICE, namespace, name)
    if service is not None:
        return service
    others, _ = await client.list_all(AIM_SERVICE, namespace)
    names = ", ".join(sorted(view.name_of(one) for one in others)[:5])
    more = "" if len(others) <= 5 else f" and {len(others) - 5} more"
    there = f"existing: {names}{more}" if names else "there is none; try -n NAMESPACE"
    raise ProblemError(f'no AIMService "{name}" in namespace "{namespace}" ({there})')


def ask_of(service: Json) -> Any:
    """Return a function that makes a World look up everything about a service."""

    def ask(world: World) -> None:
        facts = see_service(service, world)
        judge_stored(AIM_SERVICE, service, world)
        look(facts)
        for artifact in (*facts.artifacts.values(), facts.base.artifact):
            if isinstance(artifact, Mapping) and artifact:
                judge_stored(AIM_ARTIFACT, artifact, world)
        for artifact in facts.artifacts.values():
            resolve_runtime_config(world, view.namespace_of(service), view.runtime_config_name(artifact))

    return ask


def look(facts: ServiceSeen) -> None:
    """Compute all facts that are computed when they are first used."""
    _ = (
        facts.pipeline,
        facts.base,
        facts.config,
        facts.artifacts,
        facts.ceiling,
        facts.adapter_findings,
        facts.feature,
    )


async def gather(client: Client, namespace: str, name: str) -> Snapshot:
    """Read a service and what belongs to it. Raises: ProblemError, and the errors of `kube.errors`."""
    service = await find_service(client, namespace, name)
    known = Known()
    known.take([service])
    world = await complete(client, known, ask_of(service))
    return await complete_snapshot(client, service, world, known)


async def complete_snapshot(client: Client, service: Json, world: DemandWorld, known: Known) -> Snapshot:
    """Read the objects of other kinds: Jobs, pods, claims, the InferenceService, events, leases."""
    reader = _Reader(client, known)
    facts = see_service(service, world)
    namespace, name = view.namespace_of(service), view.name_of(service)
    base = facts.base.artifact if facts.base.known else {}
    isvc_name = inference_service_name(name, namespace) or ""
    selectors = [f"{LABEL_SERVICE}={label_value(name)}"]
    if base:
        selectors.append(f"{LABEL_ARTIFACT}={label_value(view.name_of(base))}")
    async with asyncio.TaskGroup() as group:
        jobs = [group.create_task(reader.every(JOB, namespace, selector)) for selector in selectors]
        pods = [group.create_task(reader.every(POD, namespace, selector)) for selector in selectors]
        isvc = group.create_task(reader.one(INFERENCE_SERVICE, namespace, isvc_name))
        deployment = group.create_task(reader.one(DEPLOYMENT, namespace, f"{isvc_name}-predictor"))
        claims = [group.create_task(reader.one(PERSISTENT_VOLUME_CLAIM, namespace, one)) for one in _claims(base)]
        caches = group.create_task(_caches(reader, facts))
        maps = group.create_task(reader.every(CONFIG_MAP, namespace, selectors[0]))
        leases = group.create_task(reader.leases())
        nodes = group.create_task(reader.maybe(NODE))
        events = group.create_task(reader.events(namespace, name))
    all_jobs, all_pods = (_once(obj for task in tasks for obj in task.result()) for tasks in (jobs, pods))
    return Snapshot(
        service=service,
        now=datetime.now(UTC),
        world=world,
        caches=caches.result(),
        claims={view.name_of(claim): claim for task in claims if (claim := task.result()) is not None},
        jobs=all_jobs,
        pods=all_pods,
        warnings=await reader.warnings(namespace, all_jobs, all_pods),
        isvc=isvc.result(),
        deployment=deployment.result(),
        config_maps=tuple(maps.result()),
        events=events.result(),
        leases=leases.result(),
        nodes=nodes.result(),
        unreadable=frozenset(known.unreadable),
    )


def _claims(base: Json) -> list[str]:
    names = (
        view.text(base, "status", "persistentVolumeClaim"),
        view.text(base, "status", "adapterPersistentVolumeClaim"),
    )
    return [name for name in names if name]


def _once(objects: Iterable[Json]) -> tuple[Json, ...]:
    return tuple({view.uid_of(obj) or view.name_of(obj): obj for obj in objects}.values())


async def _caches(reader: _Reader, facts: ServiceSeen) -> tuple[Json, ...]:
    """Return the caches for the service's profile or template, or for its own copy of the profile."""
    pipeline, namespace = facts.pipeline, view.namespace_of(facts.new)
    origins = {
        (found.name, found.scope)
        for found in (pipeline.profile, pipeline.template, pipeline.model)
        if isinstance(found, Resolved)
    }
    if view.items(facts.new, "spec", "profileOverrides", "modelSources"):
        overlays = await reader.every(AIM_PROFILE, namespace, f"{LABEL_SERVICE}={label_value(view.name_of(facts.new))}")
        origins |= {(view.name_of(overlay), "Namespace") for overlay in overlays}
    caches = await reader.every(cache_kind(pipeline.kind), namespace)
    found = [cache for cache in caches if (view.cached_name(cache), view.cached_scope(cache)) in origins]
    return tuple(sorted(found, key=view.name_of))


class _Reader:
    """Reads for which "not allowed" and "no such kind" mean "nothing known"."""

    def __init__(self, client: Client, known: Known) -> None:
        self._client = client
        self._known = known

    async def one(self, kind: Kind, namespace: str | None, name: str) -> Json | None:
        try:
            return await self._client.find(kind, namespace, name) if name else None
        except Forbidden:
            self._known.unreadable.add(kind.kind)
            return None

    async def every(self, kind: Kind, namespace: str | None = None, selector: str | None = None) -> list[Json]:
        return list(await self.maybe(kind, namespace, selector) or ())

    async def maybe(
        self, kind: Kind, namespace: str | None = None, selector: str | None = None
    ) -> tuple[Json, ...] | None:
        try:
            found, _ = await self._client.list_all(kind, namespace, label_selector=selector)
        except Forbidden:
            self._known.unreadable.add(kind.kind)
            return None
        except NotFound:
            return ()
        return tuple(found)

    async def leases(self) -> tuple[Json, ...] | None:
        """Return the controllers' leases of all namespaces, None if reading them is not allowed."""
        try:
            return tuple(await self._fields(LEASE, None, f"metadata.name={LEASE_NAME}"))
        except Forbidden:
            return None

    async def events(self, namespace: str, name: str) -> tuple[Json, ...]:
        """Return the newest events about the service, newest first."""
        try:
            found = await self._fields(EVENT, namespace, f"involvedObject.name={name},involvedObject.kind=AIMService")
        except Forbidden:
            return ()
        return tuple(sorted(found, key=event_time, reverse=True)[:_MOST_EVENTS])

    async def warnings(self, namespace: str, jobs: Iterable[Json], pods: tuple[Json, ...]) -> dict[str, str]:
        """Return the last warning about each Job that waits, by its UID."""
        found: dict[str, str] = {}
        for job in jobs:
            state = job_state(job, pods)
            if state.phase == "waiting" and not state.blocked_by:
                try:
                    events = await self._fields(EVENT, namespace, f"involvedObject.uid={state.pod_uid or state.uid}")
                except Forbidden:
                    break
                found[state.uid] = last_warning(events)
        return found

    async def _fields(self, kind: Kind, namespace: str | None, selector: str) -> list[Json]:
        found: list[Json] = []
        async for page in self._client.list_pages(kind, namespace, field_selector=selector):
            found += page.items
        return found
