"""InferenceService in, Deployment, Service, autoscaler, status and events out. Pure: no I/O and no clock."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import Any, Literal

from api.view import JsonObject
from devcluster.kserve.words import (
    ANNOTATION_AUTOSCALER,
    ANNOTATION_MODE,
    ANNOTATION_STOP,
    API_VERSION,
    CONTAINER,
    DEFAULT_CONTAINER_PORT,
    DIRECT_PORT,
    DIRECT_PORT_NAME,
    EXTENSION_FIELDS,
    KNATIVE,
    KNATIVE_NAMES,
    LABEL_APP,
    LABEL_COMPONENT,
    LABEL_ISVC,
    LABEL_LIMIT,
    OLD_STANDARD,
    PROGRESS_DEADLINE_S,
    SERVICE_PORT,
    STANDARD,
    Settings,
    annotations_of,
    labels_of,
    predictor_name,
    predictor_of,
)

NOT_PASSED_ON = ("kubectl.kubernetes.io/last-applied-configuration", "autoscaling.knative.dev/")
KEPT_ON_DEPLOYMENTS = "deployment.kubernetes.io/"  # the Deployment controller's own annotations
SERVICE_NAME_ENV = "INFERENCE_SERVICE_NAME"
STORAGE_ENV = "STORAGE_URI"
STORAGE_SCHEMES = ("gs", "s3", "hf", "pvc", "file", "http", "https", "hdfs", "webhdfs", "abfs")
STORAGE_VOLUME = "kserve-provision-location"
STORAGE_PATH = "/mnt/models"
RECONCILE_FAILED = "ReconcileFailed"
STOPPED = "Stopped"

Status = Literal["True", "False", "Unknown"]


class RefusedError(Exception):
    """The controller cannot create the objects; the message ends up in the PredictorReady condition."""


class ControllerPanicError(Exception):
    """The real controller crashes on this object and writes no status at all."""


# --- which way ------------------------------------------------------------------------------------------------------


def mode_of(isvc: JsonObject, settings: Settings) -> str:
    """Return the deployment mode: the recorded one holds, then the annotation, then the administrator's default."""
    recorded = (isvc.get("status") or {}).get("deploymentMode")
    mode = str(recorded or annotations_of(isvc).get(ANNOTATION_MODE) or settings.default_mode)
    if mode == OLD_STANDARD:
        return STANDARD
    return KNATIVE if mode in KNATIVE_NAMES else mode


def is_stopped(isvc: JsonObject) -> bool:
    """Return whether its owner requests no pods at all."""
    return annotations_of(isvc).get(ANNOTATION_STOP, "").lower() == "true"


def check(isvc: JsonObject, mode: str) -> None:
    """Raises: RefusedError, ControllerPanicError for what the controller never gets to make."""
    if mode != STANDARD:
        raise RefusedError(f"unsupported deployment mode: {mode}")
    name, namespace = isvc["metadata"]["name"], isvc["metadata"]["namespace"]
    host = f"{predictor_name(name)}-{namespace}"
    if len(host) > LABEL_LIMIT:
        raise RefusedError(
            "fails to create NewRawKubeReconciler for predictor: failed creating host name: invalid domain name "
            f'"{host}": a label must be no more than {LABEL_LIMIT} characters, this one has {len(host)}'
        )
    names = [container.get("name") for container in predictor_of(isvc).get("containers") or []]
    if CONTAINER not in names:
        raise ControllerPanicError(f"no container is named {CONTAINER}")
    uri = next((str(e.get("value", "")) for e in _env_of(isvc) if e.get("name") == STORAGE_ENV), "")
    if uri and uri.partition("://")[0] not in STORAGE_SCHEMES:
        raise RefusedError(f"fails to reconcile predictor: storageUri {uri!r} has no supported scheme")


def _env_of(isvc: JsonObject) -> list[JsonObject]:
    containers = predictor_of(isvc)["containers"]
    return next((list(c.get("env") or []) for c in containers if c.get("name") == CONTAINER), [])


# --- objects --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Plan:
    """The objects that should exist, in the order of creation. `autoscaler` None: the stand-in's own must not exist."""

    service: JsonObject
    deployment: JsonObject  # spec.replicas is absent where another one owns it
    autoscaler: JsonObject | None


def plan(isvc: JsonObject) -> Plan:
    """Return the objects of an InferenceService that passed `check`."""
    return Plan(render_service(isvc), render_deployment(isvc), render_autoscaler(isvc))


def metadata_of(isvc: JsonObject) -> JsonObject:
    """Return name, labels, annotations and owner that Service, Deployment and autoscaler share."""
    meta, predictor = isvc["metadata"], predictor_of(isvc)
    name = predictor_name(meta["name"])
    annotations = {**annotations_of(isvc), **annotations_of(predictor)}
    return {
        "name": name,
        "namespace": meta["namespace"],
        "labels": {
            **labels_of(isvc),
            **labels_of(predictor),
            LABEL_APP: f"isvc.{name}",
            LABEL_COMPONENT: "predictor",
            LABEL_ISVC: meta["name"],
        },
        "annotations": {key: value for key, value in annotations.items() if not key.startswith(NOT_PASSED_ON)},
        "ownerReferences": [
            {
                "apiVersion": API_VERSION,
                "kind": "InferenceService",
                "name": meta["name"],
                "uid": meta["uid"],
                "controller": True,
                "blockOwnerDeletion": True,
            }
        ],
    }


def _selector(isvc: JsonObject) -> dict[str, str]:
    return {LABEL_APP: f"isvc.{predictor_name(isvc['metadata']['name'])}"}


def render_service(isvc: JsonObject) -> JsonObject:
    """Return the Service: port 80 as the real one has it, and a direct port for clients of a loopback address."""
    first, *others = predictor_of(isvc)["containers"][0].get("ports") or [{"containerPort": DEFAULT_CONTAINER_PORT}]
    target = first["containerPort"]
    ports = [_port(first.get("name") or "http", SERVICE_PORT, target, first.get("protocol"))]
    ports += [
        _port(p.get("name") or f"port-{p['containerPort']}", p["containerPort"], p["containerPort"], p.get("protocol"))
        for p in others
    ]
    if all(port["port"] != DIRECT_PORT for port in ports):
        ports.append(_port(DIRECT_PORT_NAME, DIRECT_PORT, target, first.get("protocol")))
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata_of(isvc),
        "spec": {"type": "ClusterIP", "selector": _selector(isvc), "ports": ports},
    }


def _port(name: str, port: int, target: int, protocol: str | None) -> JsonObject:
    return {"name": name, "port": port, "targetPort": target, "protocol": protocol or "TCP"}


def render_deployment(isvc: JsonObject) -> JsonObject:
    """Return the Deployment; `spec.replicas` only where the autoscaler class is none."""
    meta, predictor = metadata_of(isvc), predictor_of(isvc)
    spec: JsonObject = {
        "selector": {"matchLabels": _selector(isvc)},
        "strategy": predictor.get("deploymentStrategy")
        or {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "25%", "maxUnavailable": "25%"}},
        "progressDeadlineSeconds": PROGRESS_DEADLINE_S,
        "template": {
            "metadata": {"labels": dict(meta["labels"]), "annotations": dict(meta["annotations"])},
            "spec": _pod_spec(isvc),
        },
    }
    if autoscaler_of(isvc) == "none":
        spec["replicas"] = _min_replicas(isvc)
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": meta, "spec": spec}


def _pod_spec(isvc: JsonObject) -> JsonObject:
    predictor = predictor_of(isvc)
    spec = {key: copy.deepcopy(value) for key, value in predictor.items() if key not in EXTENSION_FIELDS}
    containers: list[JsonObject] = spec["containers"]
    # the real controller copies the predictor's container over the first one and renames it: if that one is another,
    # the name occurs twice and the API server refuses it
    containers[0]["name"] = CONTAINER
    for container in containers:
        container.setdefault("imagePullPolicy", "IfNotPresent")
    server = containers[0]
    _set_env(server, SERVICE_NAME_ENV, isvc["metadata"]["name"])
    if "readinessProbe" not in server:
        port = (server.get("ports") or [{"containerPort": DEFAULT_CONTAINER_PORT}])[0]["containerPort"]
        server["readinessProbe"] = {
            "tcpSocket": {"port": port},
            "timeoutSeconds": 1,
            "periodSeconds": 10,
            "successThreshold": 1,
            "failureThreshold": 3,
        }
    _inject_storage(spec, server)
    return spec


def _set_env(container: JsonObject, name: str, value: str) -> None:
    env = [entry for entry in container.get("env") or [] if entry.get("name") != name]
    container["env"] = [*env, {"name": name, "value": value}]


def _inject_storage(spec: JsonObject, server: JsonObject) -> None:
    """Add the init container that STORAGE_URI asks for, in silence, as the real thing does."""
    uri = next((e.get("value", "") for e in server["env"] if e.get("name") == STORAGE_ENV), "")
    if not uri:
        return
    spec.setdefault("volumes", []).append({"name": STORAGE_VOLUME, "emptyDir": {}})
    mount = {"name": STORAGE_VOLUME, "mountPath": STORAGE_PATH}
    server.setdefault("volumeMounts", []).append({**mount, "readOnly": True})
    init = {"name": "storage-initializer", "image": "kserve/storage-initializer:latest", "args": [uri, STORAGE_PATH]}
    spec.setdefault("initContainers", []).append({**init, "volumeMounts": [mount]})


def autoscaler_of(isvc: JsonObject) -> str:
    """Return the autoscaler class; the default is hpa."""
    return annotations_of(isvc).get(ANNOTATION_AUTOSCALER, "hpa")


def _min_replicas(isvc: JsonObject) -> int:
    low = predictor_of(isvc).get("minReplicas")
    return 1 if low is None else int(low)


def render_autoscaler(isvc: JsonObject) -> JsonObject | None:
    """Return the HorizontalPodAutoscaler, or None for the classes that have none."""
    if autoscaler_of(isvc) != "hpa":
        return None
    predictor = predictor_of(isvc)
    low = max(1, _min_replicas(isvc))
    meta = metadata_of(isvc)
    target = {"type": "Utilization", "averageUtilization": predictor.get("scaleTarget") or 80}
    return {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": meta,
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": meta["name"]},
            "minReplicas": low,
            "maxReplicas": max(low, predictor.get("maxReplicas") or 0),
            "metrics": [
                {"type": "Resource", "resource": {"name": predictor.get("scaleMetric") or "cpu", "target": target}}
            ],
        },
    }


def check_autoscaler(isvc: JsonObject) -> None:
    """Raises: RefusedError for a class whose kind is not installed (checked after the Deployment was created)."""
    if autoscaler_of(isvc) == "keda":
        raise RefusedError(
            'fails to reconcile predictor: no matches for kind "ScaledObject" in version "keda.sh/v1alpha1"'
        )


def covers(live: Any, desired: Any) -> bool:
    """Return whether `live` has all fields of `desired`; lists must match entry by entry."""
    if isinstance(desired, dict):
        return isinstance(live, dict) and all(key in live and covers(live[key], part) for key, part in desired.items())
    if isinstance(desired, list):
        same = isinstance(live, list) and len(live) == len(desired)
        return same and all(covers(a, b) for a, b in zip(live, desired, strict=True))
    return bool(live == desired)


def replacing_deployment(desired: JsonObject, live: JsonObject) -> JsonObject:
    """Return the whole Deployment to write over `live`; replicas stay unless a number is requested."""
    out = copy.deepcopy(desired)
    out["metadata"]["resourceVersion"] = live["metadata"]["resourceVersion"]
    kept = {key: value for key, value in annotations_of(live).items() if key.startswith(KEPT_ON_DEPLOYMENTS)}
    out["metadata"]["annotations"] = {**out["metadata"]["annotations"], **kept}
    out["spec"].setdefault("replicas", live["spec"].get("replicas", 1))
    return out


def replacing_service(desired: JsonObject, live: JsonObject) -> JsonObject:
    """Return the whole Service to write over `live` (also a foreign one: the real controller takes it over)."""
    out = copy.deepcopy(desired)
    out["metadata"]["resourceVersion"] = live["metadata"]["resourceVersion"]
    for key in ("clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"):
        if key in live["spec"]:
            out["spec"][key] = live["spec"][key]
    return out


# --- status ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Seen:
    """The input of a status. `failure`: why the objects could not be created, empty when they were."""

    isvc: JsonObject
    now: str  # RFC 3339, UTC
    deployment: JsonObject | None = None
    service: JsonObject | None = None
    pods: tuple[JsonObject, ...] = ()
    failure: str = ""
    mode: str = STANDARD


@dataclass(frozen=True, slots=True)
class Event:
    """An event about the InferenceService."""

    type: Literal["Normal", "Warning"]
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Report:
    """The status as it should be, and the events to post once."""

    status: JsonObject
    events: tuple[Event, ...] = ()


@dataclass(frozen=True, slots=True)
class _Finding:
    status: Status
    reason: str = ""
    message: str = ""
    severity: str = ""


@dataclass(slots=True)
class _Conditions:
    """The condition list under construction: what does not change keeps its time."""

    old: dict[str, JsonObject]
    now: str
    new: dict[str, JsonObject] = field(default_factory=dict)

    def set(self, kind: str, found: _Finding) -> None:
        body = {"type": kind, "status": found.status}
        for key in ("reason", "message", "severity"):
            if getattr(found, key):
                body[key] = getattr(found, key)
        before = dict(self.old.get(kind) or {})
        since = before.pop("lastTransitionTime", self.now)
        self.new[kind] = {**body, "lastTransitionTime": since if before == body else self.now}

    def keep(self, kind: str) -> None:
        """Leave a condition as it was; Unknown when it never was anything."""
        if kind in self.old:
            self.new[kind] = self.old[kind]
        else:
            self.set(kind, _Finding("Unknown"))

    def sorted(self) -> list[JsonObject]:
        return [self.new[kind] for kind in sorted(self.new)]


def report(seen: Seen) -> Report:
    """Return status and events for what was seen."""
    old = seen.isvc.get("status") or {}
    was = {condition["type"]: condition for condition in old.get("conditions") or []}
    conditions = _Conditions(was, seen.now)
    if seen.failure:
        status = _failed(seen, old, conditions)
    elif is_stopped(seen.isvc):
        status = _stopped(old, conditions)
    else:
        status = _reconciled(seen, old, conditions)
    if seen.mode == STANDARD:  # a recorded mode never changes, so only an existing one is recorded
        status["deploymentMode"] = STANDARD
    status["conditions"] = conditions.sorted()
    return Report(status, _events(seen, was.get("Ready"), conditions.new["Ready"]))


def _failed(seen: Seen, old: JsonObject, conditions: _Conditions) -> JsonObject:
    finding = _Finding("False", RECONCILE_FAILED, seen.failure)
    conditions.set("PredictorReady", finding)
    conditions.set("Ready", finding)
    conditions.keep("IngressReady")
    conditions.set("Stopped", _Finding("False", severity="Info"))
    return dict(old)


def _stopped(old: JsonObject, conditions: _Conditions) -> JsonObject:
    for kind in ("PredictorReady", "IngressReady", "Ready"):
        conditions.set(kind, _Finding("False", STOPPED))
    conditions.set("Stopped", _Finding("True", severity="Info"))
    return {key: value for key, value in old.items() if key not in {"url", "address", "components"}}


def _reconciled(seen: Seen, old: JsonObject, conditions: _Conditions) -> JsonObject:
    predictor = predictor_condition(seen.deployment)
    conditions.set("PredictorReady", predictor)
    conditions.set("IngressReady", _Finding("True"))  # no ingress is made, so none is waited for
    conditions.set("Ready", _Finding("True") if predictor.status == "True" else predictor)
    conditions.set("Stopped", _Finding("False", severity="Info"))
    status = dict(old)
    generation = ((seen.deployment or {}).get("status") or {}).get("observedGeneration")
    if generation:
        status["observedGeneration"] = generation
    url = url_of(seen.service)
    if url:
        status["url"] = url
        status["address"] = {"url": url}
        status["components"] = {"predictor": {"url": url} if predictor.status == "True" or _had_url(old) else {}}
    status["modelStatus"] = model_status(old.get("modelStatus") or {}, seen.pods, ready=predictor.status == "True")
    return status


def _had_url(old: JsonObject) -> bool:
    return "url" in ((old.get("components") or {}).get("predictor") or {})


def url_of(service: JsonObject | None) -> str:
    """Return the address that serves as `status.url` here: the Service's own (loopback) address, direct port."""
    address = ((service or {}).get("spec") or {}).get("clusterIP", "")
    return f"http://{address}:{DIRECT_PORT}" if address and address != "None" else ""


def predictor_condition(deployment: JsonObject | None) -> _Finding:
    """Return PredictorReady from a Deployment's conditions; of several rules that apply the last one wins."""
    found = {c["type"]: c for c in ((deployment or {}).get("status") or {}).get("conditions") or []}
    available, progressing = found.get("Available", {}), found.get("Progressing", {})
    failure = found.get("ReplicaFailure", {})
    result = _Finding("False")
    if available.get("status") == "True":
        result = _of("True", available)
    if progressing.get("status") == "False" and progressing.get("message"):
        result = _of("False", progressing)
    elif progressing.get("status") == "True":
        if progressing.get("reason") == "NewReplicaSetAvailable":
            result = _of("True", progressing)
        elif not available:
            result = _of("Unknown", progressing)
    if available.get("status") == "False":
        result = _of("False", available)
    if failure.get("status") == "True":
        result = _of("False", failure)
    return result


def _of(status: Status, condition: JsonObject) -> _Finding:
    return _Finding(status, condition.get("reason", ""), condition.get("message", ""))


def model_status(old: JsonObject, pods: tuple[JsonObject, ...], *, ready: bool) -> JsonObject:
    """Return `status.modelStatus`: it is that of the first pod of the list; the last failure is kept."""
    status = {key: value for key, value in old.items() if key == "lastFailureInfo"}
    active = (old.get("states") or {}).get("activeModelState", "")
    count = sum(_is_ready(pod) for pod in pods)
    status["copies"] = {"failedCopies": 0, "totalCopies": count}
    failure = None if ready or not pods else _failure(pods[0])
    if ready and pods:
        status["states"] = {"activeModelState": "Loaded", "targetModelState": "Loaded"}
        status["transitionStatus"] = "UpToDate"
    elif failure:
        status["states"] = {"activeModelState": active, "targetModelState": "FailedToLoad"}
        status["transitionStatus"] = "BlockedByFailedLoad"
        status["lastFailureInfo"] = failure
    else:
        status["states"] = {"activeModelState": active, "targetModelState": "Pending"}
        status["transitionStatus"] = "InProgress"
    return status


def _is_ready(pod: JsonObject) -> bool:
    conditions = (pod.get("status") or {}).get("conditions") or []
    return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)


def _failure(pod: JsonObject) -> JsonObject | None:
    """Return why the container failed: it ended with an error, now or before it was put into back-off."""
    for container in (pod.get("status") or {}).get("containerStatuses") or []:
        if container["name"] != CONTAINER:
            continue
        state, last = container.get("state") or {}, container.get("lastState") or {}
        ended = state.get("terminated")
        if (state.get("waiting") or {}).get("reason") == "CrashLoopBackOff":
            ended = last.get("terminated") or {}
        elif not ended or ended.get("reason") != "Error":
            return None
        message = ended.get("message") or ended.get("reason") or ""
        return {"reason": "ModelLoadFailed", "message": message, "exitCode": int(ended.get("exitCode") or 0)}
    return None


def _events(seen: Seen, was: JsonObject | None, now: JsonObject) -> tuple[Event, ...]:
    name = seen.isvc["metadata"]["name"]
    events: list[Event] = []
    if seen.failure:
        events.append(Event("Warning", "InternalError", seen.failure))
    before = (was or {}).get("status")
    if now["status"] == "True" and before != "True":
        events.append(Event("Normal", "InferenceServiceReady", f"InferenceService [{name}] is Ready"))
    elif before == "True" and now["status"] != "True":
        events.append(Event("Warning", "InferenceServiceNotReady", f"InferenceService [{name}] is no longer Ready"))
    return tuple(events)
