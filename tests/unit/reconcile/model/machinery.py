"""What moves besides: disks, the commands of the Jobs by the rules of `disk`, KServe and its pods, the garbage."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Literal

from api import view
from api.jobs import FetchSpec, JobResult, JobSpec, Note, ReapSpec, StageSpec, SyncSpec, read_spec
from api.kinds import AIM_SERVICE, DEPLOYMENT, INFERENCE_SERVICE, JOB, PERSISTENT_VOLUME_CLAIM
from api.view import Json
from reconcile.objects import timestamp
from reconcile.service.loading import ServerPod
from reconcile.settings import ReconcileSettings
from tests.unit.reconcile.model.store import Store, copy_json

GRACE = ReconcileSettings().unload_grace
UNFIT = JobResult(ok=False, reason="AdapterFitsNoModule", message="none of its modules is in the base")
Outcome = Literal["ok", "fail", "killed-before", "killed-after", "unread", "start"]
_SPECS: dict[str, type[JobSpec]] = {"sync": SyncSpec, "stage": StageSpec, "reap": ReapSpec, "fetch": FetchSpec}


@dataclass
class Source:
    """What a source URI serves now."""

    content: str
    rank: int = 16
    broken: bool = False
    fits: bool = True  # the base; only a Job that mounts it can see that


@dataclass
class ServiceFolder:
    """What a disk holds of one service."""

    declared: frozenset[str] = frozenset()
    generation: int = 0
    live: dict[str, tuple[str, int]] = field(default_factory=dict)  # path → content, rank
    done: dict[str, str] = field(default_factory=dict)  # path → stage key
    since: dict[str, datetime] = field(default_factory=dict)  # path → when its content came
    unchecked: set[str] = field(default_factory=set)  # paths whose fit no Job has checked
    left: dict[str, datetime] = field(default_factory=dict)  # path → when it last left the directory

    def drop(self, path: str, now: datetime) -> None:
        """Move a path out of the mount."""
        if self.live.pop(path, None) is not None:
            self.left[path] = now
        self.done.pop(path, None)
        self.unchecked.discard(path)


@dataclass
class Pod:
    """A predictor pod. Static servers keep what they loaded; dynamic ones follow their directory."""

    name: str
    template: dict[str, Any]
    ready_since: datetime | None = None
    loaded: frozenset[str] = frozenset()
    contents: dict[str, str] = field(default_factory=dict)  # path → the content that it has loaded
    answer: tuple[frozenset[str], datetime] | None = None  # what it last listed, and when it was asked

    def load(self, listing: dict[str, str]) -> None:
        """Take what the directory holds now; a server looks at a name that it has loaded for changes only here."""
        self.loaded, self.contents = frozenset(listing), dict(listing)


class Machinery:
    """What exists beside the API server. `now` is moved by the walk."""

    def __init__(self, store: Store, now: datetime) -> None:
        self.store = store
        self.now = now
        self.late = False  # servers are not asked again for now
        self.sources: dict[str, Source] = {}
        self.disks: dict[str, dict[str, ServiceFolder]] = {}  # claim UID → service UID → folder
        self.caches: set[str] = set()  # claim UIDs that hold a whole model
        self.job_pods: dict[str, list[dict[str, Any]]] = {}
        self.pods: dict[str, list[Pod]] = {}  # InferenceService UID → pods
        self._pods_made = 0

    # -- Jobs -------------------------------------------------------------------------------------------------------

    def waiting_jobs(self) -> list[dict[str, Any]]:
        return [job for job in self.store.all(JOB) if not view.dig(job, "status", "conditions")]

    def run(self, job: Json, outcome: Outcome) -> None:
        """Let a Job's pod run to its outcome."""
        if outcome == "start":
            self._pod(job, {"running": {}})
            return
        result: JobResult | None = None
        if outcome in ("ok", "killed-after", "unread"):
            result = self._execute(job)
        elif outcome == "fail":
            result = JobResult(ok=False, reason="SourceTimeout", message="no answer", retriable=True)
        spoken = result if outcome in ("ok", "fail") else None
        succeeded = result is not None and result.ok and outcome in ("ok", "unread")
        ended: dict[str, Any] = {"exitCode": 0 if succeeded else 1, "finishedAt": timestamp(self.now)}
        if spoken is not None:
            ended["message"] = spoken.to_termination_message()
        self._pod(job, {"terminated": ended})
        if outcome == "unread":
            self.job_pods.pop(view.uid_of(job), None)
        kind = "Complete" if succeeded else "Failed"
        condition = {
            "type": kind,
            "status": "True",
            "reason": "BackoffLimitExceeded",
            "lastTransitionTime": timestamp(self.now),
        }
        self.store.set_status(JOB, view.name_of(job), {"conditions": [condition]})

    def _pod(self, job: Json, state: dict[str, Any]) -> None:
        status = {"podIP": "127.65.0.9", "containerStatuses": [{"name": "disk", "state": state}]}
        meta = {"name": f"{view.name_of(job)}-p", "creationTimestamp": timestamp(self.now)}
        self.job_pods[view.uid_of(job)] = [{"metadata": meta, "status": status}]
        self.store.version += 1

    def _execute(self, job: Json) -> JobResult:
        container = job["spec"]["template"]["spec"]["containers"][0]
        spec = _parse(container["args"])
        claims = {
            volume["name"]: self.store.get(PERSISTENT_VOLUME_CLAIM, volume["persistentVolumeClaim"]["claimName"])
            for volume in job["spec"]["template"]["spec"]["volumes"]
            if "persistentVolumeClaim" in volume
        }
        if any(claim is None for claim in claims.values()):
            return JobResult(ok=False, reason="JobFailed", message="the pod cannot be scheduled: no claim")
        if isinstance(spec, FetchSpec):
            return self._fetch(spec, claims.get("cache"))
        disk = self.disks.setdefault(view.uid_of(claims["adapter-disk"]), {})
        if isinstance(spec, SyncSpec):
            return _sync(spec, disk, self.now)
        if isinstance(spec, StageSpec):
            return self._stage(spec, disk)
        assert isinstance(spec, ReapSpec)
        gone = [] if spec.dry_run else [uid for uid in disk if uid not in spec.live]
        for uid in gone:
            del disk[uid]
        return JobResult(ok=True, reason="DiskReaped", removed=gone, reclaimed_bytes=len(gone))

    def _fetch(self, spec: FetchSpec, claim: Json | None) -> JobResult:
        if claim is not None:
            self.caches.add(view.uid_of(claim))
        reason = "ModelFetched" if claim is not None else "ModelMeasured"
        return JobResult(ok=True, reason=reason, size_bytes=5 * 2**30)

    def _stage(self, spec: StageSpec, disk: dict[str, ServiceFolder]) -> JobResult:
        folder = disk.get(spec.service_uid)
        if folder is None or spec.path not in folder.declared:
            return JobResult(ok=False, reason="AdapterNotDeclared", message="not declared on this disk")
        source = self.sources.get(spec.source_uri)
        if not spec.fresh and folder.done.get(spec.path) == spec.stage_key and spec.path in folder.live:
            if spec.base_dir and spec.path in folder.unchecked:
                if source is not None and not source.fits:
                    folder.drop(spec.path, self.now)
                    return UNFIT
                folder.unchecked.discard(spec.path)
            return self._staged(spec, folder, "AlreadyStaged")
        if source is None or source.broken:
            return JobResult(ok=False, reason="SourceRepositoryNotFound", message="no such repository")
        if source.rank > spec.max_rank:
            return JobResult(ok=False, reason="AdapterRankExceedsCeiling", message="too high", rank=source.rank)
        if spec.base_dir and not source.fits:
            return UNFIT
        there = folder.live.get(spec.path)
        changes = there is None or there[0] != source.content
        if spec.hold_changed and changes and (there is not None or spec.may_be_listed):
            folder.drop(spec.path, self.now)
            return JobResult(ok=True, reason="AdapterHeldForUnload", rank=source.rank, digest=source.content)
        if changes:
            self._demand_unloaded(spec.path, folder, source)
            folder.since[spec.path] = self.now
        folder.live[spec.path] = (source.content, source.rank)
        folder.done[spec.path] = spec.stage_key
        folder.unchecked.discard(spec.path) if spec.base_dir else folder.unchecked.add(spec.path)
        return self._staged(spec, folder, "AdapterStaged")

    def _demand_unloaded(self, path: str, folder: ServiceFolder, source: Source) -> None:
        """No dynamic server that is ready has other content of this path loaded: its prefix cache would be stale."""
        for pod in (pod for pods in self.pods.values() for pod in pods):
            if pod.ready_since is None or pod.template["env"].get("AIM_ADAPTER_MODE") != "dynamic":
                continue
            has, left = pod.contents.get(path), folder.left.get(path)
            grace_is_over = left is not None and self.now >= left + GRACE
            if has not in (None, source.content) and self._folder(pod.template) is folder and not grace_is_over:
                raise AssertionError(f"{path} changes under {pod.name}, which serves {has}")

    def _folder(self, template: Json) -> ServiceFolder | None:
        claim = self.store.get(PERSISTENT_VOLUME_CLAIM, template["claims"].get("adapter-disk"))
        return self.disks.get(view.uid_of(claim), {}).get(template["subtree"])

    @staticmethod
    def _staged(spec: StageSpec, folder: ServiceFolder, reason: str) -> JobResult:
        content, rank = folder.live[spec.path]
        if rank > spec.max_rank:
            return JobResult(ok=False, reason="AdapterRankExceedsCeiling", message="too high", rank=rank)
        since = int(folder.since[spec.path].timestamp())
        notes = [Note(reason="AdapterFitUnchecked", message="not checked yet")] if spec.path in folder.unchecked else []
        return JobResult(
            ok=True, reason=reason, rank=rank, digest=content, size_bytes=7, staged_at=since, warnings=notes
        )

    # -- KServe -----------------------------------------------------------------------------------------------------

    def tick(self) -> None:
        """Let KServe, the Deployment controller and the pods catch up."""
        living = {view.uid_of(isvc) for isvc in self.store.all(INFERENCE_SERVICE)}
        for gone in self.pods.keys() - living:
            del self.pods[gone]
        for isvc in self.store.all(INFERENCE_SERVICE):
            self._roll(isvc)
        self._collect_claims()
        for claim in self.store.all(PERSISTENT_VOLUME_CLAIM):
            if not claim.get("status"):
                self.store.set_status(PERSISTENT_VOLUME_CLAIM, view.name_of(claim), {"phase": "Bound"})

    def _roll(self, isvc: Json) -> None:
        template, replicas = _template(isvc), isvc["spec"]["predictor"]["minReplicas"]
        pods = [pod for pod in self.pods.get(view.uid_of(isvc), []) if pod.template == template][:replicas]
        while len(pods) < replicas:
            self._pods_made += 1
            pods.append(Pod(f"pod-{self._pods_made}", template))
        for pod in pods:
            self._serve(pod)
        if pods != self.pods.get(view.uid_of(isvc)):
            self.store.version += 1
        self.pods[view.uid_of(isvc)] = pods
        self._report(isvc, template, replicas, pods)

    def _serve(self, pod: Pod) -> None:
        """Start a pod if its volumes are there; a dynamic server looks at its directory."""
        listing = self._directory(pod.template)
        dynamic = pod.template["env"].get("AIM_ADAPTER_MODE") == "dynamic"
        if pod.ready_since is None:
            if listing is None:
                return
            pod.ready_since = self.now
            pod.load(listing)
            self.store.version += 1
        elif dynamic and listing is not None and listing != pod.contents:
            pod.load(listing)
            self.store.version += 1

    def _directory(self, template: Json) -> dict[str, str] | None:
        """What a server finds in its mounts, with the contents: None where it cannot start."""
        for name, claim_name in template["claims"].items():
            claim = self.store.get(PERSISTENT_VOLUME_CLAIM, claim_name)
            if claim is None or (view.terminating(claim) and not self._mounted(claim_name)):
                return None
            if name == "model-cache" and view.uid_of(claim) not in self.caches:
                raise AssertionError("a server mounts a cache that is not complete")
            if name != "adapter-disk":
                continue
            folder = self._folder(template)
            if folder is None:
                return None
            limit = int(template["env"]["AIM_ADAPTER_MAX_RANK"])
            return {path: content for path, (content, rank) in folder.live.items() if rank <= limit}
        return {}

    def _report(self, isvc: Json, template: Json, replicas: int, pods: list[Pod]) -> None:
        name = f"{view.name_of(isvc)}-predictor"
        ready = sum(1 for pod in pods if pod.ready_since is not None)
        if self.store.get(DEPLOYMENT, name) is None:
            owner = [{"uid": view.uid_of(isvc), "kind": "InferenceService", "name": view.name_of(isvc)}]
            self.store.put(
                DEPLOYMENT, {"metadata": {"name": name, "ownerReferences": owner}, "spec": {}}, timestamp(self.now)
            )
        self.store.edit(DEPLOYMENT, name, {"replicas": replicas, "x": template})
        deployment = self.store.objects[(DEPLOYMENT.kind, name)]
        self.store.set_status(
            DEPLOYMENT,
            name,
            {
                "observedGeneration": deployment["metadata"]["generation"],
                "replicas": len(pods),
                "updatedReplicas": len(pods),
                "readyReplicas": ready,
            },
        )
        # maxUnavailable 1: one replica less than wanted is still Available to KServe
        verdict = "True" if ready >= replicas - 1 else "False"
        self.store.set_status(
            INFERENCE_SERVICE, view.name_of(isvc), {"conditions": [{"type": "Ready", "status": verdict}]}
        )

    def server_pods(self, isvc: Json | None, *, asked: bool = True) -> tuple[ServerPod, ...]:
        """Ready pods with what they list now, or (`late`) listed when they were last asked."""
        pods = self.pods.get(view.uid_of(isvc), []) if isvc is not None else []
        return tuple(self._server_pod(pod, asked=asked) for pod in pods if pod.ready_since is not None)

    def _server_pod(self, pod: Pod, *, asked: bool) -> ServerPod:
        moment = self.now + timedelta(seconds=1)  # a moment of the model has no length: asked after all that it wrote
        if not self.late:
            pod.answer = (pod.loaded | {"base"}, self.now)
        elif pod.answer is not None:
            moment = pod.answer[1]
        return ServerPod(
            pod.name,
            pod.ready_since,
            pod.answer[0] if asked and pod.answer is not None else None,
            claim=pod.template["claims"].get("adapter-disk", ""),
            max_rank=int(pod.template["env"].get("AIM_ADAPTER_MAX_RANK", "0")) or None,
            started=pod.ready_since,
            asked=moment,
        )

    # -- claims -----------------------------------------------------------------------------------------------------

    def end_pods_on(self, claim: str) -> None:
        """End all pods that mount a claim."""
        for uid, pods in self.pods.items():
            self.pods[uid] = [pod for pod in pods if claim not in pod.template["claims"].values()]

    def _mounted(self, claim: str) -> bool:
        return any(
            claim in pod.template["claims"].values()
            for pods in self.pods.values()
            for pod in pods
            if pod.ready_since is not None
        )

    def _collect_claims(self) -> None:
        for claim in self.store.all(PERSISTENT_VOLUME_CLAIM):
            if view.terminating(claim) and not self._mounted(view.name_of(claim)):
                self.store.remove(PERSISTENT_VOLUME_CLAIM, view.name_of(claim))
                self.disks.pop(view.uid_of(claim), None)
                self.caches.discard(view.uid_of(claim))

    def live_services(self) -> list[str]:
        return [view.uid_of(service) for service in self.store.all(AIM_SERVICE)]


def _sync(spec: SyncSpec, disk: dict[str, ServiceFolder], now: datetime) -> JobResult:
    folder = disk.get(spec.service_uid)
    if folder is not None and folder.generation > spec.generation:
        return JobResult(ok=True, reason="SyncSuperseded")
    folder = disk.setdefault(spec.service_uid, ServiceFolder())
    folder.declared, folder.generation = frozenset(spec.declared), spec.generation
    for path in list(folder.live):
        if path not in folder.declared:
            folder.drop(path, now)
    return JobResult(ok=True, reason="SubtreeSynced", key=spec.sync_key)


def _parse(args: list[str]) -> JobSpec:
    kind = _SPECS[args[1]]
    values: dict[str, Any] = {}
    for argument in args[2:]:
        name, _, value = argument.removeprefix("--").partition("=")
        name = name.replace("-", "_")
        if name == "termination_log":
            continue
        if name in ("declared", "live", "include", "exclude"):
            values.setdefault(name, []).append(value)
        else:
            values[name] = value
    return read_spec(kind, values)


def _template(isvc: Json) -> dict[str, Any]:
    """What makes a pod of an InferenceService another pod."""
    predictor = copy_json(isvc["spec"]["predictor"])
    for key in ("minReplicas", "maxReplicas", "deploymentStrategy"):
        predictor.pop(key, None)
    container = predictor["containers"][0]
    return {
        "predictor": predictor,
        "labels": dict(isvc["metadata"].get("labels", {})),
        "annotations": dict(isvc["metadata"].get("annotations", {})),
        "env": {entry["name"]: view.text(entry, "value") for entry in container["env"]},
        "claims": {
            volume["name"]: volume["persistentVolumeClaim"]["claimName"]
            for volume in predictor["volumes"]
            if "persistentVolumeClaim" in volume
        },
        "subtree": next(
            (
                view.dig(mount, "subPath")
                for mount in view.items(container, "volumeMounts")
                if mount["name"] == "adapter-disk"
            ),
            None,
        ),
    }
