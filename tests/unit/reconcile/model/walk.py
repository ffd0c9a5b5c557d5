"""A random walk over the cluster: users, Jobs, pods, crashes and lost statuses, with passes in between."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from api import view
from api.kinds import (
    AIM_ARTIFACT,
    AIM_CLUSTER_PROFILE,
    AIM_MODEL,
    AIM_PROFILE_CACHE,
    AIM_RUNTIME_CONFIG,
    AIM_SERVICE,
    AIM_SERVICE_TEMPLATE,
    AIM_TEMPLATE_CACHE,
    CONFIG_MAP,
    INFERENCE_SERVICE,
    JOB,
    PERSISTENT_VOLUME_CLAIM,
    Kind,
)
from api.names import ANNOTATION_PAUSED, ANNOTATION_REAP, ANNOTATION_RESTAGE, ANNOTATION_RETRY_STAGING
from api.view import Json
from reconcile.objects import timestamp
from reconcile.settings import ReconcileSettings
from rules.examples import manifest
from tests.unit.reconcile.model.cluster import Cluster
from tests.unit.reconcile.model.machinery import Machinery, Outcome, Source
from tests.unit.reconcile.model.store import Store

START = datetime(2026, 1, 1, tzinfo=UTC)
ADAPTERS = ("red", "green", "blue")
SERVICES = {"chat": "dynamic", "fixed": "static"}
OUTCOMES: tuple[Outcome, ...] = ("ok", "ok", "ok", "fail", "killed-before", "killed-after", "unread", "start")
BASE_URI = "hf://Qwen/Qwen3-8B"
PROFILE, MODEL, TEMPLATE, SECOND = "qwen3-8b-mi300x", "qwen3-8b", "qwen3-8b-latency", "second"


class Walk:
    """One cluster with its seed. `log`: what was done. `bold`: people also delete generated objects and pause it."""

    def __init__(self, seed: int, *, bold: bool = False) -> None:
        self.rng = random.Random(seed)
        self.bold = bold
        self.store = Store()
        self.machinery = Machinery(self.store, START)
        self.cluster = Cluster(self.store, self.machinery, ReconcileSettings())
        self.log: list[str] = []
        self._contents = 0
        self.pipelines = self.rng.choice((("profile",), ("template",), ("profile", "template")))
        self._make(AIM_CLUSTER_PROFILE, manifest("AIMClusterProfile", {}))
        self._make(AIM_MODEL, manifest("AIMModel", {"spec": {"modelSources": [{"sourceUri": BASE_URI}]}}))
        self._make_template(TEMPLATE)
        for name in ADAPTERS:
            self._make_adapter(name)
        for name in self.rng.sample(sorted(SERVICES), self.rng.randint(1, 2)):
            self._make_service(name)
        if self.rng.random() < 0.5:
            self._make_base()
        if self.rng.random() < 0.7:  # most walks start from a cluster at rest
            self.cluster.settle()

    # -- objects ----------------------------------------------------------------------------------------------------

    def _make(self, kind: Kind, obj: Json) -> None:
        self.machinery.now += timedelta(seconds=1)  # no two objects of one age: the oldest is adopted
        self.store.put(kind, obj, timestamp(self.machinery.now))

    def _make_adapter(self, name: str) -> None:
        uri = f"hf://acme/{name}-{self.rng.randint(1, 2)}"
        self.machinery.sources.setdefault(uri, Source(self._content(), rank=self.rng.choice((8, 16, 16, 64))))
        fits = "Qwen/Qwen3-8B" if self.rng.random() < 0.9 else "other/base"
        spec: dict[str, Any] = {
            "type": "adapter",
            "modelId": f"acme/{name}",
            "sourceUri": uri,
            "compatibleWith": [fits],
            "rank": self.rng.choice((8, 16, 32, 64)),
        }
        self._make(AIM_ARTIFACT, manifest("AIMArtifact", {"metadata": {"name": name}, "spec": spec}))

    def _make_base(self) -> None:
        spec = {"type": "model", "sourceUri": BASE_URI, "modelId": "Qwen/Qwen3-8B", "size": "5Gi"}
        self._make(AIM_ARTIFACT, manifest("AIMArtifact", {"metadata": {"name": "base"}, "spec": spec}))

    def _make_service(self, name: str) -> None:
        mode = SERVICES[name]
        names = self.rng.sample(ADAPTERS, self.rng.randint(1 if mode == "static" else 0, 3))
        pipeline = self.rng.choice(self.pipelines)
        spec: dict[str, Any] = {
            **(
                {"profile": {"name": PROFILE}} if pipeline == "profile" else {"profile": None, "model": {"name": MODEL}}
            ),
            "adapterMode": mode,
            "adapters": [{"name": adapter, "kind": "AIMArtifact"} for adapter in names],
        }
        self._make(AIM_SERVICE, manifest("AIMService", {"metadata": {"name": name}, "spec": spec}))

    def _make_template(self, name: str, **spec: Any) -> None:
        hardware = {"gpu": {"model": "MI300X", "requests": 1}}
        spec = {"modelName": MODEL, "hardware": hardware, **spec}
        self._make(AIM_SERVICE_TEMPLATE, manifest("AIMServiceTemplate", {"metadata": {"name": name}, "spec": spec}))

    def _content(self) -> str:
        self._contents += 1
        return f"sha256:{self._contents}"

    def _any(self, kind: Kind, fits: Callable[[Json], bool] = lambda _: True) -> dict[str, Any] | None:
        found = [obj for obj in self.store.all(kind) if fits(obj)]
        return self.rng.choice(found) if found else None

    def _edit(self, kind: Kind, obj: Json | None, change: Callable[[dict[str, Any]], None]) -> str:
        if obj is None:
            return "-"
        spec = copy.deepcopy(dict(obj["spec"]))
        change(spec)
        self.store.edit(kind, view.name_of(obj), spec)
        return view.name_of(obj)

    # -- what users do ----------------------------------------------------------------------------------------------

    def edit_adapters(self) -> str:
        """Add, remove or reorder; of a static service rarely (the webhook was off)."""
        dynamic_only = self.rng.random() < 0.9
        service = self._any(AIM_SERVICE, lambda obj: not dynamic_only or view.adapter_mode(obj) == "dynamic")
        names = self.rng.sample(ADAPTERS, self.rng.randint(0, 3))

        def change(spec: dict[str, Any]) -> None:
            spec["adapters"] = [{"name": name, "kind": "AIMArtifact"} for name in names]

        return f"{self._edit(AIM_SERVICE, service, change)} {names}"

    def edit_service(self) -> str:
        service = self._any(AIM_SERVICE)
        what = self.rng.choice(("replicas", "env", "resources", "maxRank"))
        if what == "maxRank":
            service = self._any(AIM_SERVICE, lambda obj: view.adapter_mode(obj) == "dynamic")
        value = self.rng.choice((16, 32, 64))

        def change(spec: dict[str, Any]) -> None:
            if what == "replicas":
                spec["replicas"] = self.rng.randint(1, 2)
            elif what == "env":
                spec["env"] = [{"name": "X", "value": str(value)}]
            elif what == "resources":
                spec["resources"] = {"limits": {"cpu": str(value)}}
            else:
                spec["adapterRuntime"] = {"maxRank": value}

        return f"{self._edit(AIM_SERVICE, service, change)} {what} {value}"

    def recreate_service(self) -> str:
        name = self.rng.choice(sorted(SERVICES))
        if self.store.get(AIM_SERVICE, name) is not None:
            self.store.delete(AIM_SERVICE, name)
            if self.rng.random() < 0.3:
                return f"deleted {name}"
        self._make_service(name)
        return name

    def recreate_adapter(self) -> str:
        name = self.rng.choice(ADAPTERS)
        self.store.delete(AIM_ARTIFACT, name)
        if self.rng.random() < 0.3:
            return f"deleted {name}"
        self._make_adapter(name)
        return name

    def edit_rank(self) -> str:
        rank = self.rng.choice((8, 16, 32, 64))
        edited = self._edit(AIM_ARTIFACT, self._any(AIM_ARTIFACT, view.is_adapter), lambda s: s.update(rank=rank))
        return f"{edited} {rank}"

    def lose_base(self) -> str:
        base = self._any(AIM_ARTIFACT, lambda obj: not view.is_adapter(obj))
        if base is None or self.rng.random() < 0.3:
            if self.store.get(AIM_ARTIFACT, "base") is None:
                self._make_base()
            return "made base"
        self.store.delete(AIM_ARTIFACT, view.name_of(base))
        return f"deleted {view.name_of(base)}"

    def lose_cache(self) -> str:
        kind = self.rng.choice((AIM_PROFILE_CACHE, AIM_TEMPLATE_CACHE))
        cache = self._any(kind)
        if cache is not None:
            self.store.delete(kind, view.name_of(cache))
        return "-" if cache is None else view.name_of(cache)

    def edit_origin(self) -> str:
        """Change what services run: the profile or the template; now and then a second template makes it ambiguous."""
        value = str(self.rng.randint(1, 3))
        if self.rng.random() < 0.4:
            profile = self.store.get(AIM_CLUSTER_PROFILE, PROFILE)
            return self._edit(AIM_CLUSTER_PROFILE, profile, lambda spec: spec.update(engineEnv={"P": value}))
        if self.rng.random() < 0.4:
            if self.store.get(AIM_SERVICE_TEMPLATE, SECOND) is None:
                self._make_template(SECOND)
                return "made a second template"
            self.store.delete(AIM_SERVICE_TEMPLATE, SECOND)
            return "deleted the second template"
        template = self.store.get(AIM_SERVICE_TEMPLATE, TEMPLATE)
        env = [{"name": "T", "value": value}]
        return self._edit(AIM_SERVICE_TEMPLATE, template, lambda spec: spec.update(env=env))

    def configure(self) -> str:
        rank = self.rng.choice((16, 32, 64))
        if self.store.get(AIM_RUNTIME_CONFIG, "default") is None:
            spec = {"adapterRuntime": {"maxRank": rank}}
            self._make(AIM_RUNTIME_CONFIG, manifest("AIMRuntimeConfig", {"spec": spec}))
        elif self.rng.random() < 0.3:
            self.store.delete(AIM_RUNTIME_CONFIG, "default")
        else:
            self.store.edit(AIM_RUNTIME_CONFIG, "default", {"adapterRuntime": {"maxRank": rank}})
        return str(rank)

    def ask(self) -> str:
        """Annotate for a retry, a restage or a sweep."""
        kind = self.rng.choice((AIM_SERVICE, AIM_ARTIFACT))
        obj = self._any(kind)
        key = self.rng.choice((ANNOTATION_RETRY_STAGING, ANNOTATION_RESTAGE, ANNOTATION_REAP))
        value = self.rng.choice(("", "dry-run-")) + str(self.rng.randint(1, 99))
        if obj is not None:
            self.store.annotate(kind, view.name_of(obj), key, value)
        return f"{key} {value}"

    def change_source(self) -> str:
        uri = self.rng.choice(sorted(self.machinery.sources))
        source = self.machinery.sources[uri]
        if self.rng.random() < 0.5:
            source.broken = not source.broken
        else:
            source.content = self._content()
        return uri

    def delete_ours(self) -> str:
        """Delete an object that we made: the server, its profile, a disk."""
        kind = self.rng.choice((INFERENCE_SERVICE, CONFIG_MAP, PERSISTENT_VOLUME_CLAIM))
        obj = self._any(kind, lambda one: kind != PERSISTENT_VOLUME_CLAIM or "-adapters-" in view.name_of(one))
        if obj is not None:
            self.store.delete(kind, view.name_of(obj))
        return f"{kind.kind} {view.name_of(obj)}"

    def pause(self) -> str:
        """Pause a service, or resume it."""
        service = self._any(AIM_SERVICE)
        if service is None:
            return "-"
        value = "false" if view.paused(service) else "true"
        self.store.annotate(AIM_SERVICE, view.name_of(service), ANNOTATION_PAUSED, value)
        return f"{view.name_of(service)} {value}"

    # -- what happens -----------------------------------------------------------------------------------------------

    def run_job(self) -> str:
        jobs = self.machinery.waiting_jobs()
        if not jobs:
            return "-"
        job, outcome = self.rng.choice(jobs), self.rng.choice(OUTCOMES)
        self.machinery.run(job, outcome)
        return f"{view.name_of(job)} {outcome}"

    def lose_job(self) -> str:
        """A TTL or a user deletes a Job."""
        job = self._any(JOB)
        if job is not None:
            self.store.delete(JOB, view.name_of(job))
        return "-" if job is None else view.name_of(job)

    def lose_pod(self) -> str:
        for pods in self.machinery.pods.values():
            if pods:
                self.store.version += 1  # a pass must look again
                return pods.pop().name
        return "-"

    def lose_status(self) -> str:
        kind = self.rng.choice((AIM_SERVICE, AIM_ARTIFACT, AIM_PROFILE_CACHE, AIM_TEMPLATE_CACHE))
        obj = self._any(kind)
        if obj is not None:
            self.store.set_status(kind, view.name_of(obj), {})
        return f"{kind.kind} {view.name_of(obj)}"

    def fall_silent(self) -> str:
        """Servers answer no one, or do again."""
        self.cluster.deaf = not self.cluster.deaf
        self.store.version += 1
        return str(self.cluster.deaf)

    def answer_late(self) -> str:
        """The controller decides by what servers said earlier, or asks them again."""
        self.machinery.late = not self.machinery.late
        self.store.version += 1
        return str(self.machinery.late)

    def wait(self) -> str:
        span = timedelta(seconds=self.rng.choice((1, 20, 90, 700, 4000)))
        self.machinery.now += span
        return str(span)

    def follow(self) -> str:
        self.machinery.tick()
        return ""

    def one_pass(self) -> str:
        kind, name = self.rng.choice(self.cluster.addresses())
        steps = self.rng.choice((None, None, None, 0, 1, 2))
        self.cluster.reconcile(kind, name, steps=steps)
        return f"{kind.kind} {name} crash after {steps}"

    def hurry(self) -> str:
        """Edit the list again and again while its Jobs run: what a script does, or two people."""
        words = []
        for _ in range(self.rng.randint(2, 5)):
            words.append(self.edit_adapters())
            for name in sorted(SERVICES):
                self.cluster.reconcile(AIM_SERVICE, name, steps=self.rng.choice((None, None, 1, 2)))
            if self.rng.random() < 0.6:
                words.append(self.run_job())
            if self.rng.random() < 0.2:
                words.append(self.lose_job())
        return "; ".join(words)

    def passes(self) -> str:
        for _ in range(3):
            self.cluster.pass_over_all()
        return ""

    def step(self) -> None:
        users = [
            self.edit_adapters,
            self.edit_adapters,
            self.hurry,
            self.hurry,
            self.edit_service,
            self.recreate_service,
            self.recreate_adapter,
            self.edit_rank,
            self.lose_base,
            self.lose_cache,
            self.edit_origin,
            self.configure,
            self.ask,
            self.change_source,
        ]
        life = [
            self.run_job,
            self.run_job,
            self.run_job,
            self.lose_job,
            self.lose_pod,
            self.lose_status,
            self.wait,
            self.follow,
            self.one_pass,
            self.one_pass,
            self.one_pass,
            self.passes,
        ]
        if self.bold:
            users += [self.delete_ours, self.delete_ours, self.pause]
            life += [self.fall_silent, self.answer_late, self.answer_late]
        action = self.rng.choice(users if self.rng.random() < 0.35 else life)
        self.log.append(f"{action.__name__} {action()}")

    def settle(self) -> None:
        """Fix the sources, remove what is ambiguous, resume what is paused; let everything come to rest."""
        self.store.delete(AIM_SERVICE_TEMPLATE, SECOND)
        for source in self.machinery.sources.values():
            source.broken = False
        self.cluster.deaf = self.machinery.late = False
        self.store.version += 1
        for service in self.store.all(AIM_SERVICE):
            if view.paused(service):
                self.store.annotate(AIM_SERVICE, view.name_of(service), ANNOTATION_PAUSED, "false")
        for claim in self.store.all(PERSISTENT_VOLUME_CLAIM):
            if view.terminating(claim):  # it was deleted under its pods: it goes when they do
                self.machinery.end_pods_on(view.name_of(claim))
        self.cluster.settle()
