"""The status of a pod, computed from what its containers did. Pure: the node's records in, the API's object out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from api.view import JsonObject

Finding = tuple[bool, str, str]  # whether a condition holds, its reason, its message


@dataclass(slots=True)
class Record:
    """What happened to one container so far. Times are RFC 3339 in UTC, as the API writes them."""

    name: str
    image: str
    is_init: bool = False
    is_sidecar: bool = False  # an init container with restartPolicy Always
    image_id: str = ""
    container_id: str = ""
    restarts: int = 0
    waiting_reason: str = "ContainerCreating"
    waiting_message: str = ""
    running_since: str = ""  # "" while no process runs
    terminated: JsonObject | None = None  # the state, when the last process ended and none replaced it
    last_terminated: JsonObject | None = None  # how the process before this one ended
    started: bool = False  # the startup probe passed, or there is none
    ready: bool = False  # a running container: what the readiness probe says

    @property
    def is_running(self) -> bool:
        """Return whether a process runs now."""
        return bool(self.running_since)

    @property
    def exit_code(self) -> int | None:
        """Return how the last process ended, None while one runs or none ever did."""
        return None if self.terminated is None else int(self.terminated["exitCode"])


@dataclass(frozen=True, slots=True)
class Seen:
    """All that a status is computed from."""

    pod: JsonObject
    records: tuple[Record, ...]  # in the spec's order, init containers first
    pod_ip: str  # "" while the pod has none
    host_ip: str
    start_time: str
    sandbox_ready: bool  # volumes exist and the pod has its address
    stopping: bool  # the pod is being deleted
    verdict: tuple[str, str, str] | None  # (phase, reason, message) that no container decided: a deadline, a lost node
    extra_conditions: tuple[JsonObject, ...]
    now: str


def timestamp(moment: datetime | None = None) -> str:
    """Return a moment (now unless given) as the API writes it: UTC, whole seconds."""
    return (moment or datetime.now(UTC)).astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def build_status(seen: Seen, previous: Mapping[str, Any]) -> JsonObject:
    """Return the whole status; `previous` is the last one, whose transition times live on."""
    phase, reason, message = seen.verdict or (decide_phase(seen), "", "")
    inits = [r for r in seen.records if r.is_init]
    mains = [r for r in seen.records if not r.is_init]
    status: JsonObject = {
        "phase": phase,
        "startTime": seen.start_time,
        "conditions": _conditions(seen, phase, previous.get("conditions") or []),
        "containerStatuses": [container_status(r) for r in mains],
    }
    if inits:
        status["initContainerStatuses"] = [container_status(r) for r in inits]
    if reason:
        status["reason"] = reason
    if message:
        status["message"] = message
    if seen.host_ip:
        status |= {"hostIP": seen.host_ip, "hostIPs": [{"ip": seen.host_ip}]}
    if seen.pod_ip:
        status |= {"podIP": seen.pod_ip, "podIPs": [{"ip": seen.pod_ip}]}
    return status


def decide_phase(seen: Seen) -> str:
    """Return the pod's phase from its containers, by a kubelet's rules."""
    policy = seen.pod["spec"].get("restartPolicy", "Always")
    inits = [r for r in seen.records if r.is_init and not r.is_sidecar]
    mains = [r for r in seen.records if not r.is_init]
    codes = [r.exit_code for r in mains]
    if seen.stopping and not any(r.is_running for r in seen.records):
        ended = [c for c in codes if c is not None]
        return "Succeeded" if len(ended) == len(codes) and not any(ended) else "Failed"
    if policy == "Never" and any(r.exit_code for r in inits):
        return "Failed"
    touched = [r for r in mains if r.is_running or r.terminated or r.last_terminated]
    if len(touched) < len(mains):
        return "Pending"
    over = all(code is not None for code in codes)
    if not over or policy == "Always":
        return "Running"
    if not any(codes):
        return "Succeeded"
    return "Failed" if policy == "Never" else "Running"


def container_status(record: Record) -> JsonObject:
    """Return the API's containerStatus of one record."""
    if record.is_running:
        state: JsonObject = {"running": {"startedAt": record.running_since}}
    elif record.terminated is not None:
        state = {"terminated": record.terminated}
    else:
        waiting = {"reason": record.waiting_reason}
        state = {"waiting": waiting | ({"message": record.waiting_message} if record.waiting_message else {})}
    status: JsonObject = {
        "name": record.name,
        "image": record.image,
        "imageID": record.image_id,
        "state": state,
        "lastState": {"terminated": record.last_terminated} if record.last_terminated else {},
        "ready": is_ready(record),
        "restartCount": record.restarts,
        "started": record.is_running and record.started,
    }
    if record.container_id:
        status["containerID"] = record.container_id
    return status


def is_ready(record: Record) -> bool:
    """Return whether a container counts as ready; an init container is ready when it completed."""
    if record.is_init and not record.is_sidecar:
        return record.exit_code == 0
    return record.is_running and record.started and record.ready


def _conditions(seen: Seen, phase: str, previous: Iterable[JsonObject]) -> list[JsonObject]:
    before = {c["type"]: c for c in previous}
    wanted: list[tuple[str, Finding]] = [
        ("PodReadyToStartContainers", (seen.sandbox_ready and phase not in {"Succeeded", "Failed"}, "", "")),
        ("Initialized", _initialized(seen, phase)),
        ("Ready", _pod_ready(seen, phase, before)),
        ("ContainersReady", _containers_ready(seen, phase)),
        ("PodScheduled", (True, "", "")),  # a pod made with its nodeName passed no scheduler
    ]
    rendered = [_condition(kind, *finding) for kind, finding in wanted] + list(seen.extra_conditions)
    return [_transition(before.get(c["type"]), c, seen.now) for c in rendered]


def _condition(kind: str, true: bool, reason: str, message: str) -> JsonObject:
    condition: JsonObject = {"type": kind, "status": "True" if true else "False"}
    if reason:
        condition["reason"] = reason
    if message:
        condition["message"] = message
    return condition


def _transition(old: JsonObject | None, condition: JsonObject, now: str) -> JsonObject:
    same = old is not None and old.get("status") == condition["status"] and old.get("lastTransitionTime")
    return condition | {"lastTransitionTime": old["lastTransitionTime"] if old and same else now}


def _initialized(seen: Seen, phase: str) -> Finding:
    if phase == "Succeeded":
        return True, "PodCompleted", ""
    missing = [r.name for r in seen.records if r.is_init and not _init_done(r)]
    if not missing or any(r.is_running or r.terminated or r.last_terminated for r in seen.records if not r.is_init):
        return True, "", ""
    return False, "ContainersNotInitialized", f"containers with incomplete status: [{' '.join(missing)}]"


def _init_done(record: Record) -> bool:
    return record.started and record.is_running if record.is_sidecar else record.exit_code == 0


def _containers_ready(seen: Seen, phase: str) -> Finding:
    if phase == "Succeeded":
        return False, "PodCompleted", ""
    if phase == "Failed":
        return False, "PodFailed", ""
    unready = [r.name for r in seen.records if (not r.is_init or r.is_sidecar) and not is_ready(r)]
    if unready:
        return False, "ContainersNotReady", f"containers with unready status: [{' '.join(unready)}]"
    return True, "", ""


def _pod_ready(seen: Seen, phase: str, before: Mapping[str, JsonObject]) -> Finding:
    ready, reason, message = _containers_ready(seen, phase)
    if not ready:
        return ready, reason, message
    gates = [g["conditionType"] for g in seen.pod["spec"].get("readinessGates") or []]
    shut = [gate for gate in gates if before.get(gate, {}).get("status") != "True"]
    if shut:
        return (
            False,
            "ReadinessGatesNotReady",
            f'corresponding condition of pod readiness gate "{shut[0]}" is not True.',
        )
    return True, "", ""


def difference(old: Mapping[str, Any], new: JsonObject) -> JsonObject:
    """Return the strategic merge patch of a status: the new one, with what is no longer there set to null."""
    gone = {key: None for key in ("reason", "message") if key in old and key not in new}
    patch = new | gone
    conditions = []
    before = {c["type"]: c for c in old.get("conditions") or []}
    for condition in new["conditions"]:
        stale = {
            k: None for k in ("reason", "message") if k in before.get(condition["type"], {}) and k not in condition
        }
        conditions.append(condition | stale)
    return patch | {"conditions": conditions}
