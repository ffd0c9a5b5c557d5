"""What the pods of a predictor say: the adapter disk that they mount, when they started, why one cannot start. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from api import view
from api.reasons import Foreign, Reason, spoken
from api.view import Json
from api.words import parse_time
from reconcile.objects import whole_number

CONTAINER = "kserve-container"
ADAPTER_VOLUME = "adapter-disk"
MAX_RANK_ENV = "AIM_ADAPTER_MAX_RANK"
_STARTING_UP = frozenset({"ContainerCreating", "PodInitializing"})
_PULL_PROBLEMS = frozenset({"ErrImagePull", Reason.IMAGE_PULL_BACK_OFF})  # two words of the kubelet for one thing
_CRASHES = 2  # restarts after which a container that is not ready counts as crashing


@dataclass(frozen=True, slots=True)
class PodTrouble:
    """Why a pod cannot start. `waiting`: the kubelet's or scheduler's word; `ended`: how its container ended, if not by
    an error.
    """

    kind: Literal["crash", "pull", "waiting", "unscheduled"]
    reason: Reason | Foreign
    pod: str
    namespace: str
    message: str = ""
    waiting: str = ""
    image: str = ""
    exit_code: int | None = None
    ended: str = ""


def trouble_of(pods: Iterable[Json]) -> PodTrouble | None:
    """Return why the first pod cannot start, None when each can; a container's trouble counts before a wait for a node.

    Pods that are being deleted are not asked.
    """
    asked = sorted((pod for pod in pods if not view.terminating(pod)), key=view.name_of)
    for read in (_container_trouble, _scheduling_trouble):
        for pod in asked:
            if (found := read(pod)) is not None:
                return found
    return None


def _container_trouble(pod: Json) -> PodTrouble | None:
    name, namespace = view.name_of(pod), view.namespace_of(pod)
    for status in view.items(pod, "status", "containerStatuses"):
        waiting = view.text(status, "state", "waiting", "reason") or ""
        message = view.text(status, "state", "waiting", "message") or ""
        ended = view.mapping(status, "lastState", "terminated") or view.mapping(status, "state", "terminated")
        crashes = (view.integer(status, "restartCount") or 0) >= _CRASHES and ended
        if waiting == Reason.CRASH_LOOP_BACK_OFF or (crashes and view.dig(status, "ready") is not True):
            why, code = view.text(ended, "reason"), view.integer(ended, "exitCode")
            word = why if why and why != "Error" else ""
            return PodTrouble("crash", Reason.CRASH_LOOP_BACK_OFF, name, namespace, exit_code=code, ended=word)
        if waiting in _PULL_PROBLEMS:
            image, reason = view.text(status, "image") or "", Reason.IMAGE_PULL_BACK_OFF
            return PodTrouble("pull", reason, name, namespace, message=message, waiting=waiting, image=image)
        if waiting and waiting not in _STARTING_UP:
            return PodTrouble("waiting", spoken(waiting), name, namespace, message=message, waiting=waiting)
    return None


def _scheduling_trouble(pod: Json) -> PodTrouble | None:
    for entry in view.items(pod, "status", "conditions"):
        if view.dig(entry, "type") == "PodScheduled" and view.dig(entry, "status") == "False":
            message, word = view.text(entry, "message") or "", view.text(entry, "reason") or ""
            name, namespace = view.name_of(pod), view.namespace_of(pod)
            return PodTrouble("unscheduled", Reason.UNSCHEDULABLE, name, namespace, message=message, waiting=word)
    return None


def mounted_by(pod: Json) -> tuple[str | None, int | None]:
    """Return the adapter disk's claim that a predictor pod mounts ("" for none) and its ceiling; None: not known."""
    if "spec" not in pod:
        return None, None
    claim = next((view.text(v, "persistentVolumeClaim", "claimName") for v in _adapter_volumes(pod)), "")
    env = (entry for container in view.items(pod, "spec", "containers") for entry in view.items(container, "env"))
    rank = next((view.text(entry, "value") for entry in env if view.dig(entry, "name") == MAX_RANK_ENV), None)
    return claim, whole_number(rank)


def server_started(pod: Json) -> datetime | None:
    """When the model server of a predictor pod was started, None where the kubelet does not say."""
    for status in view.items(pod, "status", "containerStatuses"):
        if view.dig(status, "name") == CONTAINER:
            return parse_time(view.text(status, "state", "running", "startedAt"))
    return None


def adapter_part(pod: Json) -> dict[str, Any]:
    """Return of a pod's spec what `mounted_by` reads."""
    env = (entry for container in view.items(pod, "spec", "containers") for entry in view.items(container, "env"))
    rank = [entry for entry in env if view.dig(entry, "name") == MAX_RANK_ENV]
    return {"volumes": _adapter_volumes(pod), "containers": [{"env": rank}] if rank else []}


def _adapter_volumes(pod: Json) -> list[Any]:
    return [volume for volume in view.items(pod, "spec", "volumes") if view.dig(volume, "name") == ADAPTER_VOLUME]
