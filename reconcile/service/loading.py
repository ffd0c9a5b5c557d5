"""What the ready model servers say about an adapter that is on the disk: Loaded, LoadRejected, or not yet. Pure.

Source: docs/contract.md, Loaded adapters, Retry and refresh.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from api import view
from api.reasons import Reason
from api.view import Json
from api.words import parse_time

ON_DISK = frozenset({"Downloaded", "Loaded", "LoadRejected"})
NOT_LISTED = Reason.ADAPTER_NOT_LISTED
NO_LIST = Reason.MODEL_LIST_UNREADABLE
_MISSED_INTERVALS = 3  # refresh intervals after which a server that does not list an adapter has rejected it


@dataclass(frozen=True, slots=True)
class ServerPod:
    """A ready pod of the predictor. `listed`: the model ids that its server listed, None while it was not asked.

    `asked`: when that answer was asked for, by the clock that stamps the status; None where it is not known.

    `claim` and `max_rank`: the adapter disk that it mounts ("" for none) and the ceiling it was started with, None
    where that is not known. `started`: when its server was started, None where only its readiness is known.
    """

    name: str
    ready_since: datetime | None
    listed: frozenset[str] | None = None
    claim: str | None = None
    max_rank: int | None = None
    started: datetime | None = None
    mute: bool = False  # it was asked a few times, and gave no list
    asked: datetime | None = None

    def runs_on(self, claim: str, max_rank: int | None) -> bool:
        """Whether the pod has this disk and this ceiling, as far as is known; the others are about to be replaced."""
        return self.claim in (None, claim) and (self.max_rank is None or max_rank in (None, self.max_rank))


def may_list(pods: Sequence[ServerPod], path: object, since: datetime | None = None) -> bool:
    """Whether a ready server lists the path, or may do so because it was not asked (not `since` a moment)."""
    return any(
        pod.listed is None or path in pod.listed or (since is not None and (pod.asked is None or pod.asked < since))
        for pod in pods
    )


def proof_since(stamp: datetime) -> datetime:
    """Return from when on an answer proves something about the time after a stamp, which has whole seconds."""
    return stamp + timedelta(seconds=1)


def _listing(pods: Sequence[ServerPod], path: object) -> int:
    """How many servers are known to list a path."""
    return sum(1 for pod in pods if pod.listed is not None and path in pod.listed)


def keeps_older(pod: ServerPod, path: object, moment: datetime | None, *, known: bool) -> bool:
    """Whether a static server was started before the present content came to the disk (or this is not known).

    In whole seconds: of two things in the same second, what a server lists was there before it, and what it does not
    list came after it where the pod is `known` to have been there then.
    """
    started = pod.started or pod.ready_since
    if started is None or moment is None or started < moment:
        return True
    return known and started == moment and pod.listed is not None and path not in pod.listed


@dataclass(frozen=True, slots=True)
class Present:
    """What a pod must run on to be asked why it does not list an adapter: claim of the disk and rank ceiling."""

    claim: str
    max_rank: int | None


def judge_loading(
    entry: dict[str, Any],
    pods: Sequence[ServerPod],
    present: Present,
    *,
    now: datetime,
    refresh: timedelta,
    namespace: str,
) -> tuple[dict[str, Any], timedelta | None]:
    """Return the entry of a staged adapter as the ready servers list it, and when to look again."""
    path = entry["adapterPath"]
    if not pods:
        return _without_replicas(entry) | {"state": "Downloaded"}, None
    if any(pod.listed is None for pod in pods):  # one was not asked yet: the entry stays
        entry = entry | {"state": entry["state"] if view.text(entry, "state") in ON_DISK else "Downloaded"}
        return entry | _unheard(entry, pods, namespace), None
    listing = _listing(pods, path)
    entry = entry | {"loadedReplicas": listing}
    if listing == len(pods):
        return entry | {"state": "Loaded"}, None
    able = [pod for pod in pods if pod.runs_on(present.claim, present.max_rank)]
    refusing, recheck = _refusing_pod(entry, able, path, now=now, patience=_MISSED_INTERVALS * refresh)
    if refusing is None:
        return entry | {"state": "Downloaded"}, recheck
    logs = _logs(namespace, refusing)
    message = f"pod {refusing} is ready and does not list it; see {logs} (images before 0.13 load no adapters)"
    return entry | {"state": "LoadRejected", "lastError": f"{NOT_LISTED}: {message}"}, recheck


def _unheard(entry: Json, pods: Sequence[ServerPod], namespace: str) -> dict[str, Any]:
    """Say which server gives no list, so that it is not known what it serves; the words of a refusal stay."""
    mute = min((pod.name for pod in pods if pod.mute and pod.listed is None), default=None)
    if mute is None or entry["state"] == "LoadRejected":
        return {}
    message = f"pod {mute} is ready, but GET /v1/models gives no list of models; what it serves is not known"
    return {"lastError": f"{NO_LIST}: {message}; see {_logs(namespace, mute)} and the NetworkPolicies"}


def _logs(namespace: str, pod: str) -> str:
    return f"kubectl logs -n {namespace} {pod}"


def as_served(entry: dict[str, Any], before: Json, pods: Sequence[ServerPod]) -> dict[str, Any]:
    """Return the entry of an adapter as pods serve it that do not use the present disk (yet).

    `before`: what the status said; it stays where a pod was not asked yet.
    """
    if entry["state"] == "LoadRejected":
        return entry
    if any(pod.listed is None for pod in pods):
        said = {key: before[key] for key in ("state", "loadedReplicas") if key in before}
        return entry | said if view.text(before, "state") in ON_DISK else entry
    listing = _listing(pods, entry["adapterPath"])
    if listing:
        return entry | {"state": "Loaded" if listing == len(pods) else "Downloaded", "loadedReplicas": listing}
    entry = entry | {"loadedReplicas": 0}
    return entry | {"state": "Downloaded"} if entry["state"] in ON_DISK else entry


def counted(entry: dict[str, Any], pods: Sequence[ServerPod]) -> dict[str, Any]:
    """Return the entry with the number of servers that list it; not all were asked yet: with at least one."""
    listing = _listing(pods, entry["adapterPath"])
    return entry | {"loadedReplicas": listing or entry.get("loadedReplicas", 1)}


def recounted(entry: dict[str, Any], pods: Sequence[ServerPod]) -> dict[str, Any]:
    """Return the entry of a failed adapter with how many servers list it all the same, where that was ever counted."""
    if not pods:
        return _without_replicas(entry)
    if "loadedReplicas" not in entry or any(pod.listed is None for pod in pods):
        return entry
    return entry | {"loadedReplicas": _listing(pods, entry["adapterPath"])}


def _without_replicas(entry: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in entry.items() if key != "loadedReplicas"}


def _refusing_pod(
    entry: Json, pods: Sequence[ServerPod], path: str, *, now: datetime, patience: timedelta
) -> tuple[str | None, timedelta | None]:
    """Return the first pod that had its time since it was ready and the adapter was there, and when the next has."""
    staged = now
    if view.text(entry, "state") in ON_DISK:
        staged = parse_time(entry.get("lastObserved")) or now
    if (
        view.text(entry, "state") == "LoadRejected"
    ):  # some pod had all its time: since the adapter was there, all had it
        staged -= patience
    waits: list[timedelta] = []
    for pod in sorted(pods, key=lambda pod: pod.name):
        if pod.listed is None or path in pod.listed:
            continue
        due = max(staged, pod.ready_since or staged) + patience
        if due <= now:
            return pod.name, None
        waits.append(due - now)
    return None, min(waits, default=None)
