"""Jobs as this project makes and reads them: one shape for all disk commands, one reading of how they ended."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any, Literal

from api import view
from api.accelerators import GPU_RESOURCE_AMD, GPU_RESOURCE_NVIDIA
from api.job_env import CREDENTIAL_VARIABLES, SECRET_VARIABLES, allowed_in_job, allowed_with_typed_s3
from api.jobs import CREDENTIALS_MOUNT, TERMINATION_LOG, ClientOptions, JobResult, parse_termination_message
from api.kinds import JOB, Kind
from api.names import ANNOTATION_ATTEMPT, KEY_ANNOTATIONS, LABEL_ARTIFACT, LABEL_ROLE, ROLE_FETCH, ROLE_STAGING
from api.reasons import Reason, explain
from api.text import clean
from api.view import Json
from api.words import parse_time
from reconcile.objects import created_labels, owner_reference, whole_number
from reconcile.settings import ReconcileSettings
from rules.environment import merge_env

CONTAINER = "disk"
_USER = 1000
Phase = Literal["waiting", "running", "succeeded", "failed"]
_BENIGN_WAITING = frozenset({"ContainerCreating", "PodInitializing", ""})


@dataclass(frozen=True, slots=True)
class JobState:
    """What is known of one Job.

    `waiting`: no container runs yet, `blocked_by` says why if it is more than starting up. `finished_at` is set, and
    `result` is there if the container said how it ended, once it succeeded or failed. `pod_uid`: of its newest pod.
    `suspended`: why nothing may start its pod, empty for a Job that is not suspended.
    """

    name: str
    uid: str
    phase: Phase
    key: str = ""  # which work it does, from the annotation of its role
    attempt: int = 1
    result: JobResult | None = None
    blocked_by: str = ""
    finished_at: datetime | None = None
    terminating: bool = False
    pod_ip: str | None = None
    artifact: str = ""  # label of the adapter that it stages
    created_at: datetime | None = None
    pod_uid: str = field(default="", compare=False)  # no news of its own
    suspended: str = ""

    @property
    def finished(self) -> bool:
        """Whether it ended, well or badly."""
        return self.phase in ("succeeded", "failed")


def read_job(job: Json, pods: Iterable[Json]) -> JobState:
    """Read a Job's state from the Job and its pods; a container's own result counts before the Job's conditions do."""
    state = JobState(
        name=view.name_of(job),
        uid=view.uid_of(job),
        phase="waiting",
        key=job_key(job),
        attempt=_attempt(job),
        terminating=view.dig(job, "metadata", "deletionTimestamp") is not None,
        artifact=view.text(job, "metadata", "labels", LABEL_ARTIFACT) or "",
        created_at=parse_time(view.dig(job, "metadata", "creationTimestamp")),
    )
    newest = sorted(pods, key=lambda pod: (view.text(pod, "metadata", "creationTimestamp") or "", view.name_of(pod)))
    pod = newest[-1] if newest else None
    container = _container_status(pod)
    ended = view.mapping(container, "state", "terminated")
    result = _read_result(ended.get("message")) if ended else None
    if result is not None:
        return replace(
            state,
            phase="succeeded" if result.ok else "failed",
            result=result,
            finished_at=parse_time(ended.get("finishedAt")),
        )
    end = _end_of(job)
    if end is not None:
        at = parse_time(view.dig(end, "lastTransitionTime"))
        if view.dig(end, "type") == "Failed":
            return replace(state, phase="failed", result=_unspoken(end, ended), finished_at=at)
        return replace(state, phase="succeeded", finished_at=at)  # the pod was gone before it was read
    if view.dig(container, "state", "running") is not None:
        return replace(state, phase="running", pod_ip=view.text(pod, "status", "podIP"))
    return replace(
        state, blocked_by=_blocked_by(pod, container), pod_uid=view.uid_of(pod or {}), suspended=_suspended(job)
    )


QUEUE_LABEL = "kueue.x-k8s.io/queue-name"


def _suspended(job: Json) -> str:
    if not any(
        view.dig(condition, "type") == "Suspended" and view.dig(condition, "status") == "True"
        for condition in view.items(job, "status", "conditions")
    ):
        return ""
    queue = view.text(job, "metadata", "labels", QUEUE_LABEL)
    whose = f'the queue "{queue}" (label {QUEUE_LABEL})' if queue else "another program"
    return f"{Reason.JOB_SUSPENDED}: {whose} suspends the Job (spec.suspend)"


STARTS_WITHIN = timedelta(seconds=10)
"""A Job that waits longer than this reports why (docs/contract.md, Job pods)."""


def why_waiting(state: JobState, now: datetime, warning: str = "") -> str:
    """Return why a Job does not start, `Reason: message`; empty while it may just be starting, and once it runs.

    Args: `warning`: the last warning in the events of its pod, or of the Job while it has none (see `last_warning`).
    """
    if state.phase != "waiting" or state.blocked_by:
        return state.blocked_by
    if state.created_at is None or now - state.created_at < STARTS_WITHIN:
        return ""
    return state.suspended or warning


def last_warning(events: Iterable[Json]) -> str:
    """Return the newest warning of some events as `Reason: message`, empty when there is none."""
    warnings = [event for event in events if view.dig(event, "type") == "Warning" and view.text(event, "reason")]
    newest = max(warnings, key=event_time, default=None)
    if newest is None:
        return ""
    return clean(f"{view.text(newest, 'reason')}: {view.text(newest, 'message') or 'the Job cannot start'}")


def event_time(event: Json) -> str:
    """Return when an event was last seen, as written; empty if it has no time."""
    return (
        view.text(event, "series", "lastObservedTime")
        or view.text(event, "lastTimestamp")
        or view.text(event, "eventTime")
        or str(view.dig(event, "metadata", "creationTimestamp") or "")
    )


_REFERRED = (
    ("s3-credentials", "artifact.s3.auth.credentialsSecretRef"),
    ("s3-ca", "artifact.s3.tls.caBundleRef"),
    ("hub-ca", "artifact.hub.caBundleRef"),
)
"""Volumes of a Job, and the fields of a RuntimeConfig that refer to what they mount."""


def naming_reference(said: str, origin_of: Callable[[str], str]) -> str:
    """Add the field that refers to a volume which cannot be mounted, where the cluster's message names that volume.

    Args: `origin_of` returns the object that a block below `artifact` comes from (`s3` → `AIMRuntimeConfig "team"`).
    """
    for volume, path in _REFERRED:
        if (f'"{volume}"' in said or f"[{volume}" in said) and (origin := origin_of(path.split(".")[1])):
            return clean(f"{said} (referred to by {path} of {origin})")
    return said


_PULLS = frozenset({"ErrImagePull", Reason.IMAGE_PULL_BACK_OFF})  # two words of the kubelet for one thing


def same_trouble(said: str, before: str) -> bool:
    """Whether two messages about a pod that does not start differ only in how the kubelet words them over time."""
    now, old = said.partition(":")[0], before.partition(":")[0]
    return now in _PULLS and old in _PULLS


_CANNOT_START = frozenset(
    {
        *(Reason.FAILED_CREATE, Reason.FAILED_MOUNT, Reason.JOB_SUSPENDED, Reason.UNSCHEDULABLE),
        *(Reason.IMAGE_PULL_BACK_OFF, Reason.INVALID_IMAGE_NAME, Reason.CREATE_CONTAINER_CONFIG_ERROR),
        *(Reason.CREATE_CONTAINER_ERROR, Reason.RUN_CONTAINER_ERROR),
    }
)


def keeps_from_starting(reason: str) -> bool:
    """Whether a reason stays visible until a pod of the next Job runs: a word of Kubernetes about pods that wait."""
    return reason in _CANNOT_START or (bool(reason) and explain(reason) is None)


def holds_place(job: Json) -> bool:
    """Whether a Job counts among the downloads of its namespace that run at once: staging and base models.

    It does from its creation until it has ended or is being deleted. Source: docs/contract.md, Turns.
    """
    if view.text(job, "metadata", "labels", LABEL_ROLE) not in (ROLE_STAGING, ROLE_FETCH) or view.terminating(job):
        return False
    return _end_of(job) is None


WAITS_FOR_TURN = "other downloads of the namespace run; this one waits for its turn"


def _end_of(job: Json) -> Any | None:
    """Return the condition with which a Job ended, None while it runs."""
    for condition in view.items(job, "status", "conditions"):
        if view.dig(condition, "status") == "True" and view.dig(condition, "type") in ("Complete", "Failed"):
            return condition
    return None


def job_key(job: Json) -> str:
    """Return the key of the work that a Job of aim-adapters does; empty for any other Job."""
    role = view.text(job, "metadata", "labels", LABEL_ROLE) or ""
    return view.text(job, "metadata", "annotations", KEY_ANNOTATIONS.get(role, "")) or ""


@lru_cache(maxsize=512)  # each is read some ten times between the end of a Job and its removal
def _parsed(message: str) -> JobResult | None:
    return parse_termination_message(message)


def _read_result(message: object) -> JobResult | None:
    return _parsed(message) if isinstance(message, str) else None


def _attempt(job: Json) -> int:
    written = whole_number(view.text(job, "metadata", "annotations", ANNOTATION_ATTEMPT))
    return 1 if written is None else written


def _container_status(pod: Json | None) -> Json:
    for status in view.items(pod, "status", "containerStatuses"):
        if view.dig(status, "name") == CONTAINER:
            return view.mapping(status)
    return {}


def _blocked_by(pod: Json | None, container: Json) -> str:
    waiting = view.mapping(container, "state", "waiting")
    reason = view.text(waiting, "reason") or ""
    if reason not in _BENIGN_WAITING:
        return clean(f"{reason}: {view.text(waiting, 'message') or 'the container cannot start'}")
    for condition in view.items(pod, "status", "conditions"):
        if view.dig(condition, "type") == "PodScheduled" and view.dig(condition, "status") == "False":
            reason = view.text(condition, "reason") or Reason.UNSCHEDULABLE
            return clean(f"{reason}: {view.text(condition, 'message') or 'no node fits'}")
    return ""


def _unspoken(condition: Any, ended: Json) -> JobResult:
    """Describe a failure of which the container itself said nothing: killed, evicted, past its deadline."""
    reason = view.text(condition, "reason") or Reason.JOB_FAILED
    words = {
        "DeadlineExceeded": (Reason.JOB_DEADLINE_EXCEEDED, "the Job ran past its deadline"),
        "PodFailurePolicy": (Reason.JOB_FAILED, "the pod failed"),
        "BackoffLimitExceeded": (Reason.JOB_FAILED, "the container ended without a word"),
    }
    stable, sentence = words.get(reason, (Reason.JOB_FAILED, view.text(condition, "message") or "the Job failed"))
    if (code := view.dig(ended, "exitCode")) is not None:
        sentence += f", exit code {code}"
        if ended.get("reason") not in (None, "Error"):
            sentence += f" ({ended['reason']})"
    return JobResult(ok=False, reason=stable, message=clean(sentence), retriable=True)


@dataclass(frozen=True, slots=True)
class JobCredentials:
    """How a Job reaches its source: plain env (by reference), and for a typed s3 block files and options."""

    env: tuple[dict[str, Any], ...] = ()
    volumes: tuple[dict[str, Any], ...] = ()
    mounts: tuple[dict[str, Any], ...] = ()
    options: ClientOptions = field(default_factory=ClientOptions)


def job_credentials(config: Json, source_uri: str, *env_lists: Any) -> JobCredentials:
    """Return what a Job that reads a source gets from this merged RuntimeConfig; later env lists win by name.

    Only allowed names pass, whatever set them. A typed `artifact.s3` block replaces AWS credentials in env by files,
    and only a Job that reads `s3://` mounts these: a download from a hub needs no S3 Secret. One that reads `hf://`
    mounts the CA bundle of `artifact.hub`.
    """
    s3 = view.mapping(config, "artifact", "s3")
    allowed = allowed_with_typed_s3 if s3 else allowed_in_job
    env = merge_env(view.items(config, "env"), *env_lists)
    kept = tuple(env[name] for name in sorted(env) if allowed(name))
    if s3 and source_uri.startswith("s3://"):
        return _typed_s3(s3, kept)
    bundle = view.mapping(config, "artifact", "hub", "caBundleRef")
    if source_uri.startswith("hf://") and _names_a_key(bundle):
        path = f"{CREDENTIALS_MOUNT}/hub-ca"
        mounts = ({"name": "hub-ca", "mountPath": path, "readOnly": True},)
        options = ClientOptions(hub_ca_file=f"{path}/ca.crt")
        return JobCredentials(env=kept, volumes=(_bundle_volume("hub-ca", bundle),), mounts=mounts, options=options)
    return JobCredentials(env=kept)


def _names_a_key(bundle: Json) -> bool:
    return bool(view.text(bundle, "name") and view.text(bundle, "key"))


def _typed_s3(s3: Json, env: tuple[dict[str, Any], ...]) -> JobCredentials:
    volumes: list[dict[str, Any]] = []
    mounts: list[dict[str, Any]] = []
    options: dict[str, Any] = {
        "s3_endpoint": view.text(s3, "endpoint"),
        "s3_region": view.text(s3, "region"),
        "s3_addressing_style": view.text(s3, "addressingStyle") or "auto",
        "s3_signature_version": view.text(s3, "signatureVersion") or "auto",
        "s3_auth": view.text(s3, "auth", "mode") or "chain",
        "s3_insecure_skip_verify": view.dig(s3, "tls", "insecureSkipVerify") is True,
    }
    secret = view.mapping(s3, "auth", "credentialsSecretRef")
    if options["s3_auth"] == "static" and view.text(secret, "name"):
        keys = {
            "accessKeyId": view.text(secret, "accessKeyIdKey") or "accessKeyId",
            "secretAccessKey": view.text(secret, "secretAccessKeyKey") or "secretAccessKey",
        }
        if session := view.text(secret, "sessionTokenKey"):
            keys["sessionToken"] = session
        volumes.append(_secret_volume("s3-credentials", secret["name"], keys))
        options["s3_credentials_dir"] = f"{CREDENTIALS_MOUNT}/s3"
        mounts.append({"name": "s3-credentials", "mountPath": options["s3_credentials_dir"], "readOnly": True})
    bundle = view.mapping(s3, "tls", "caBundleRef")
    if _names_a_key(bundle):
        volumes.append(_bundle_volume("s3-ca", bundle))
        mounts.append({"name": "s3-ca", "mountPath": f"{CREDENTIALS_MOUNT}/s3-ca", "readOnly": True})
        options["s3_ca_file"] = f"{CREDENTIALS_MOUNT}/s3-ca/ca.crt"
    return JobCredentials(env=env, volumes=tuple(volumes), mounts=tuple(mounts), options=ClientOptions(**options))


def _secret_volume(volume: str, secret: str, keys: Mapping[str, str]) -> dict[str, Any]:
    entries = [{"key": key, "path": path} for path, key in keys.items()]
    return {"name": volume, "secret": {"secretName": secret, "items": entries, "defaultMode": 0o440}}


def _bundle_volume(volume: str, bundle: Json) -> dict[str, Any]:
    entries = [{"key": bundle["key"], "path": "ca.crt"}]
    if bundle.get("kind") == "Secret":
        return {"name": volume, "secret": {"secretName": bundle["name"], "items": entries, "defaultMode": 0o440}}
    return {"name": volume, "configMap": {"name": bundle["name"], "items": entries}}


@dataclass(frozen=True, slots=True)
class ClaimMount:
    """Where the container sees a claim, or (with `sub_path`) one directory of it."""

    volume: str
    claim: str
    path: str
    sub_path: str | None = None
    read_only: bool = False


@dataclass(frozen=True, slots=True)
class JobPlan:
    """All that one Job differs in from another; it is made beside its owner, in the owner's namespace."""

    name: str
    role: str
    owner_kind: Kind
    owner: Json
    command: str  # the `aim-adapters disk` sub-command
    args: Sequence[str]
    key: str
    deadline: timedelta
    attempt: int = 1
    labels: Mapping[str, str | None] = field(default_factory=dict)
    propagated: Mapping[str, str] = field(default_factory=dict)  # labels of a user
    claims: tuple[ClaimMount, ...] = ()
    credentials: JobCredentials = field(default_factory=JobCredentials)
    image: str | None = None
    gpu_resource: str | None = None  # of the predictor, where it has a name of its own
    pull_secrets: Sequence[Any] = ()
    progress: bool = False


def render_job(plan: JobPlan, settings: ReconcileSettings) -> dict[str, Any]:
    """Return the Job: non-root, read-only root, no token, one attempt (the controller owns retries).

    Source: docs/contract.md, Job pods, Names and numbers.
    """
    labels = created_labels({**plan.labels, LABEL_ROLE: plan.role}, plan.propagated)
    return {
        "apiVersion": JOB.api_version,
        "kind": JOB.kind,
        "metadata": {
            "name": plan.name,
            "namespace": view.namespace_of(plan.owner),
            "labels": labels,
            "annotations": {KEY_ANNOTATIONS[plan.role]: plan.key, ANNOTATION_ATTEMPT: str(plan.attempt)},
            "ownerReferences": [owner_reference(plan.owner_kind, plan.owner)],
        },
        "spec": {
            "backoffLimit": 0,
            "activeDeadlineSeconds": int(plan.deadline.total_seconds()),
            "ttlSecondsAfterFinished": int(settings.job_ttl.total_seconds()),
            "podFailurePolicy": {
                "rules": [{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}]
            },
            "template": {"metadata": {"labels": labels}, "spec": _pod_spec(plan, settings)},
        },
    }


def literally(argument: str) -> str:
    """Return an argument, or the value of a variable, so that the kubelet passes it on as it is.

    It replaces `$(NAME)` by the variable of that name before the program starts, and `$$` by a dollar sign: a source
    of `hf://org/name/$(AWS_SECRET_ACCESS_KEY)` would put the key on a command line and into the status.
    Source: Kubernetes API, `Container.args` and `EnvVar.value`.
    """
    return argument.replace("$", "$$")


def _literal_value(variable: Mapping[str, Any]) -> dict[str, Any]:
    """Return a variable whose value the kubelet passes on as it is: it replaces `$(NAME)` in values, too."""
    value = variable.get("value")
    return {**variable, "value": literally(value)} if isinstance(value, str) else dict(variable)


def _secret_names(env: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the variable that names those from Secrets, whose values no message of the Job shows.

    Those that are credentials by their names need not be named.
    """
    secret = (str(variable["name"]) for variable in env if view.mapping(variable, "valueFrom", "secretKeyRef"))
    names = [name for name in secret if name not in CREDENTIAL_VARIABLES]
    return [{"name": SECRET_VARIABLES, "value": ",".join(names)}] if names else []


def _pod_spec(plan: JobPlan, settings: ReconcileSettings) -> dict[str, Any]:
    spec: dict[str, Any] = {
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": _USER,
            "runAsGroup": _USER,
            "fsGroup": _USER,
            "fsGroupChangePolicy": "OnRootMismatch",
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [_container(plan, settings)],
        "volumes": [{"name": "tmp", "emptyDir": {}}, *map(_claim_volume, plan.claims), *plan.credentials.volumes],
    }
    spec["tolerations"] = [*map(_tolerated, _gpu_resources(plan)), *map(dict, settings.job_tolerations)]
    if settings.job_node_selector:
        spec["nodeSelector"] = dict(settings.job_node_selector)
    if settings.job_priority_class_name:
        spec["priorityClassName"] = settings.job_priority_class_name
    if plan.pull_secrets:
        spec["imagePullSecrets"] = [dict(secret) for secret in plan.pull_secrets if isinstance(secret, Mapping)]
    return spec


def _gpu_resources(plan: JobPlan) -> list[str]:
    """Return the resources whose taints Jobs tolerate, as predictors do: a cluster may have no other nodes."""
    known = (GPU_RESOURCE_AMD, GPU_RESOURCE_NVIDIA, plan.gpu_resource or "")
    return [resource for resource in dict.fromkeys(known) if resource]


def _tolerated(resource: str) -> dict[str, Any]:
    return {"key": resource, "operator": "Exists", "effect": "NoSchedule"}


def _container(plan: JobPlan, settings: ReconcileSettings) -> dict[str, Any]:
    tmp = {"name": "tmp", "mountPath": "/tmp"}  # noqa: S108 - a volume of the pod's own
    pod_ip = {"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}
    container: dict[str, Any] = {
        "name": CONTAINER,
        "image": plan.image or settings.image,
        "imagePullPolicy": settings.image_pull_policy,
        "args": ["disk", plan.command, f"--termination-log={TERMINATION_LOG}", *map(literally, plan.args)],
        "env": [*map(_literal_value, plan.credentials.env), *_secret_names(plan.credentials.env), pod_ip],
        "resources": {part: dict(amounts) for part, amounts in settings.job_resources.items()},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": [tmp, *map(_volume_mount, plan.claims), *plan.credentials.mounts],
    }
    if plan.progress:
        container["ports"] = [{"name": "progress", "containerPort": settings.progress_port}]
    return container


def _claim_volume(mount: ClaimMount) -> dict[str, Any]:
    source: dict[str, Any] = {"claimName": mount.claim} | ({"readOnly": True} if mount.read_only else {})
    return {"name": mount.volume, "persistentVolumeClaim": source}


def _volume_mount(mount: ClaimMount) -> dict[str, Any]:
    rendered: dict[str, Any] = {"name": mount.volume, "mountPath": mount.path}
    if mount.read_only:
        rendered["readOnly"] = True
    if mount.sub_path:
        rendered["subPath"] = mount.sub_path
    return rendered


def retry_at(failed_at: datetime, attempts: int, settings: ReconcileSettings, retry_after: int | None) -> datetime:
    """Return when a failed Job is tried again: a delay that doubles up to a bound; the source may ask for more.

    Source: docs/contract.md, Retry and refresh.
    """
    doublings = min(max(attempts - 1, 0), 30)  # far beyond any limit already
    delay: timedelta = min(settings.retry_base * (1 << doublings), settings.retry_limit)
    return failed_at + max(delay, timedelta(seconds=min(retry_after or 0, 3600)))
