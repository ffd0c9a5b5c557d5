"""Describes the pods of the server in one line, while a person waits for them. Pure."""

from __future__ import annotations

from api.view import JsonObject

_HOPELESS = 4  # restarts


def describe_pods(pods: list[JsonObject]) -> str:
    """Return how many pods are ready, and what keeps the first other one ("0 of 2 pods ready; a: ErrImagePull: …")."""
    living = [pod for pod in pods if not pod["metadata"].get("deletionTimestamp")]
    if not living:
        return "no pods yet"
    waiting = sorted((pod for pod in living if not is_ready(pod)), key=lambda pod: str(pod["metadata"]["name"]))
    text = f"{len(living) - len(waiting)} of {len(living)} pods ready"
    if not waiting:
        return text
    reason = _reason(waiting[0])
    return f"{text}; {waiting[0]['metadata']['name']}: {reason}" if reason else text


def is_rolled_out(deployment: JsonObject) -> bool:
    """Return whether only the newest revision of the Deployment has pods, and at least one is available."""
    status = deployment.get("status") or {}
    seen = status.get("observedGeneration", 0) >= deployment["metadata"]["generation"]
    updated = status.get("updatedReplicas", 0)
    return bool(seen and updated and status.get("replicas") == updated and status.get("availableReplicas", 0) > 0)


def is_crashing(pods: list[JsonObject]) -> bool:
    """Return whether every pod keeps crashing, so that waiting longer does not help."""
    counts = [
        sum(c.get("restartCount") or 0 for c in (pod.get("status") or {}).get("containerStatuses") or [])
        for pod in pods
        if not pod["metadata"].get("deletionTimestamp")
    ]
    return bool(counts) and min(counts) >= _HOPELESS


def _end(terminated: JsonObject) -> str:
    """Return how a container ended last: exit code, reason, the last line of its message."""
    message = (terminated.get("message") or "").strip().splitlines()
    said = f": {message[-1]}" if message else ""
    return f"it last ended with exit code {terminated.get('exitCode', '?')} ({terminated.get('reason', '?')}){said}"


def is_ready(pod: JsonObject) -> bool:
    """Return whether the pod has the condition Ready."""
    conditions = (pod.get("status") or {}).get("conditions") or []
    return any(condition["type"] == "Ready" and condition["status"] == "True" for condition in conditions)


def _reason(pod: JsonObject) -> str:
    """Return why the pod is not ready, as its status says it; "" when it says nothing yet."""
    status = pod.get("status") or {}
    for container in status.get("containerStatuses") or []:
        state = container.get("state") or {}
        if restarts := container.get("restartCount"):
            return f"restarted {restarts} times; {_end((container.get('lastState') or {}).get('terminated') or {})}"
        for which in ("waiting", "terminated"):
            if reason := (state.get(which) or {}).get("reason"):
                message = (state[which].get("message") or "").strip().splitlines()
                return f"{reason}: {message[-1]}" if message else str(reason)
        if "running" in state:
            return "running, its readiness probe fails so far"
    for condition in status.get("conditions") or []:
        if condition["type"] == "PodScheduled" and condition["status"] == "False":
            return f"not scheduled: {condition.get('message', '')}"
    return str(status.get("phase") or "")
