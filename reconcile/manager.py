"""All controllers of the process and the polls that they share: the one place that lists them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from api.kinds import (
    AIM_CLUSTER_MODEL,
    AIM_CLUSTER_PROFILE,
    AIM_CLUSTER_SERVICE_TEMPLATE,
    AIM_MODEL,
    AIM_PROFILE,
    AIM_PROFILE_CACHE,
    AIM_SERVICE,
    AIM_SERVICE_TEMPLATE,
    AIM_TEMPLATE_CACHE,
    JOB,
    POD,
    Kind,
)
from kube.cache import Key
from kube.client import Client
from kube.engine import Controller
from kube.informer import Informer
from kube.poll import Poller
from reconcile.artifact.controller import ArtifactController
from reconcile.caches.controller import CacheController
from reconcile.controllers import Tools, parse_models, parse_progress, utc_now
from reconcile.meters import AdapterMeter, JobMeter
from reconcile.models.controller import ModelController
from reconcile.profiles.controller import ProfileController
from reconcile.service.controller import ServiceController
from reconcile.settings import CONTROLLERS, ReconcileSettings
from reconcile.shell import Recorder, Shell
from reconcile.starts import Starts
from reconcile.turns import Turns
from reconcile.world import CachedWorld

__all__ = ["CONTROLLERS", "Reconciler", "make_reconciler"]


@dataclass(frozen=True, slots=True)
class Reconciler:
    """Controllers to run in an engine, and the polls to run beside it."""

    controllers: tuple[Controller, ...]
    pollers: tuple[Poller, ...]

    async def poll(self) -> None:
        """Run all polls until cancelled; only the leader has questions to ask."""
        async with asyncio.TaskGroup() as group:
            for poller in self.pollers:
                group.create_task(poller.run())


def make_reconciler(
    client: Client,
    *,
    informers: Mapping[Kind, Informer],
    world: CachedWorld,
    recorder: Recorder,
    settings: ReconcileSettings,
    wake: Callable[[str, Key], None],
    selected: Collection[str] = CONTROLLERS,
) -> Reconciler:
    """Return the selected controllers.

    Args: `client` writes only while the lease is held; `wake(controller, key)` asks the engine for a pass.
    """
    shell = Shell(client, informers, recorder, JobMeter(informers))
    informers[AIM_SERVICE].add_handler(AdapterMeter().changed)
    servers = Poller(parse_models, lambda key: wake("service", key))
    service_progress = Poller(parse_progress, lambda key: wake("service", key))
    artifact_progress = Poller(parse_progress, lambda key: wake("artifact", key))
    turns = Turns(settings.jobs_per_namespace, informers[JOB], informers[POD], wake, utc_now).listen()
    starts = Starts(client, utc_now)
    service_tools = Tools(informers, world, shell, settings, service_progress, turns, starts)
    artifact_tools = Tools(informers, world, shell, settings, artifact_progress, turns, starts)
    known: dict[str, Controller] = {
        "service": ServiceController(service_tools, servers),
        "artifact": ArtifactController(artifact_tools, client),
        "profile-cache": CacheController(artifact_tools, AIM_PROFILE_CACHE),
        "template-cache": CacheController(artifact_tools, AIM_TEMPLATE_CACHE),
        "profile": ProfileController(artifact_tools, AIM_PROFILE),
        "cluster-profile": ProfileController(artifact_tools, AIM_CLUSTER_PROFILE),
        "model": ModelController(artifact_tools, AIM_MODEL),
        "cluster-model": ModelController(artifact_tools, AIM_CLUSTER_MODEL),
        "template": ModelController(artifact_tools, AIM_SERVICE_TEMPLATE),
        "cluster-template": ModelController(artifact_tools, AIM_CLUSTER_SERVICE_TEMPLATE),
    }
    controllers = tuple(known[name] for name in CONTROLLERS if name in selected)
    return Reconciler(controllers, (servers, service_progress, artifact_progress))
