"""One entry of status.adapters: what it depends on, and how it is read and written. Pure.

Source: docs/contract.md, Status.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from api import view
from api.errors import FieldError
from api.jobs import Progress
from api.names import stage_key
from api.reasons import Reason
from api.text import clean
from api.view import AdapterMode, Json
from api.words import parse_time
from reconcile.jobs import JobState
from reconcile.service.loading import ON_DISK, ServerPod, proof_since
from reconcile.settings import ReconcileSettings
from rules.rank import round_up
from rules.references import ArtifactState
from rules.runtime_config import AdapterConfig

NOT_FOUND = Reason.ADAPTER_ARTIFACT_NOT_FOUND
RANK_EXCEEDS = Reason.ADAPTER_RANK_EXCEEDS_CEILING
HELD = Reason.ADAPTER_HELD_FOR_UNLOAD
RESTART_REQUIRED = Reason.RESTART_REQUIRED
RANK_UNKNOWN = (
    f"{Reason.RANK_CEILING_UNKNOWN}: no valid rank ceiling is known: what sets it is not valid or cannot be read"
)
NOT_YET = frozenset({"Pending", "Downloading"})
OLD_CONTENT = "the disk has new content, the running pods keep the old one until they are restarted"
NOT_LOADED_YET = "in static mode the running pods load it only when they are restarted"
_WORDS = (
    "state",
    "stageKey",
    "adapterPath",
    "modelId",
    "digest",
    "lastError",
    "lastObserved",
    "stagedAt",
    "leftDiskAt",
)


@dataclass(frozen=True, slots=True)
class AdapterFacts:
    """What the adapters of one service depend on.

    `findings`: adapter name → what is wrong with it. `claim`/`claim_uid`: the adapter disk, empty while there is none.
    `synced`: the disk knows the present declared set. `mounted`: claim of the disk that the InferenceService mounts,
    empty while it mounts none. `configs`: adapter name → what its Jobs are configured by.
    """

    service: Json
    now: datetime
    settings: ReconcileSettings
    artifacts: Mapping[str, ArtifactState]
    findings: Mapping[str, tuple[FieldError, ...]] = field(default_factory=dict)
    base: Json = field(default_factory=dict)
    claim: str = ""
    claim_uid: str = ""
    synced: bool = False
    max_rank: int | None = None
    stage_jobs: tuple[JobState, ...] = ()
    progress: Mapping[str, Progress] = field(default_factory=dict)  # by Job UID
    configs: Mapping[str, AdapterConfig] = field(default_factory=dict)
    mounted: str = ""
    pull_secrets: tuple[Any, ...] = ()
    pods: tuple[ServerPod, ...] = ()  # ready ones
    gpu_resource: str | None = None  # of the predictor, where it has a name of its own
    free_jobs: int | None = None  # staging Jobs that may start now; None: any number

    @property
    def mode(self) -> AdapterMode:
        """The service's adapter mode."""
        return view.adapter_mode(self.service)

    @property
    def moving(self) -> bool:
        """Whether the servers use another disk than the present one: it was replaced, or is not known."""
        return bool(self.mounted) and self.mounted != self.claim

    @property
    def staying_pods(self) -> list[ServerPod]:
        """Ready pods with the present disk and ceiling: nothing but a restart brings them anything new."""
        return [pod for pod in self.pods if pod.runs_on(self.claim, self.max_rank)]

    @property
    def pods_on_disk(self) -> list[ServerPod]:
        """Ready pods that mount the present disk, as far as is known: what changes there concerns them alone."""
        return [pod for pod in self.pods if pod.claim in (None, self.claim)]

    def stage_key_of(self, artifact: Json, path: str, claim_uid: str) -> str:
        """Return the key under which an adapter is staged to a path of a disk."""
        return stage_key(view.uid_of(artifact), view.source_uri(artifact), view.uid_of(self.service), path, claim_uid)


def reason_of(entry: Json) -> str:
    """The stable reason at the head of an entry's lastError, empty when there is none."""
    return (view.text(entry, "lastError") or "").partition(":")[0]


def held_since(entry: Json, settings: ReconcileSettings) -> datetime | None:
    """Return from when on an answer counts for held content; None: the entry names no end of the wait.

    The end is stamped when the old directory had left the mount. A grace that was changed since only makes it wait.
    """
    until = parse_time(entry.get("nextRetryTime"))
    return proof_since(until - settings.unload_grace) if until is not None else None


def answers_needed_since(service: Json, settings: ReconcileSettings) -> datetime | None:
    """Return the latest moment after which servers have to be asked again, None: no adapter waits for an answer."""
    needed = []
    for entry in view.items(service, "status", "adapters"):
        left = parse_time(view.dig(entry, "leftDiskAt"))
        if view.dig(entry, "state") == "Deleting" and left is not None:
            needed.append(proof_since(left))
        elif isinstance(entry, Mapping) and reason_of(entry) == HELD and (since := held_since(entry, settings)):
            needed.append(since)
    return max(needed, default=None)


def unchecked(entry: Json) -> bool:
    """Whether the adapter was staged before its base was complete, so that its fit is not known."""
    return any(view.dig(note, "reason") == Reason.ADAPTER_FIT_UNCHECKED for note in view.items(entry, "warnings"))


def way_to_serve(rank: int, *, static: bool) -> str:
    """Say how an adapter whose files have this rank comes to be served."""
    needed = round_up(rank)
    if needed is None:
        return "no engine takes a rank above 512"
    if static:
        return f"set spec.rank of the AIMArtifact to {rank}, and the ceiling follows"
    return f"raise adapterRuntime.maxRank to {needed}"


def last_error(reason: str, message: str = "") -> str:
    return clean(f"{reason}: {message}") if message else str(reason)


def readable(entry: Json) -> Json:
    """Return a stored entry without values of a wrong type; one without a state is Pending."""
    if all(isinstance(entry.get(key, ""), str) for key in _WORDS) and view.text(entry, "state"):
        return entry
    kept = {key: value for key, value in entry.items() if key not in _WORDS or isinstance(value, str)}
    return {"state": "Pending", **kept}


def on_present_disk(entry: Json) -> Json:
    """Return a stored entry as it is about the present disk: what is served from another has no digest here."""
    if view.text(entry, "state") in ON_DISK and not entry.get("digest"):
        return without(entry, "loadedReplicas") | {"state": "Pending"}
    return entry


def without(entry: Mapping[str, Any], *keys: str) -> dict[str, Any]:
    return {key: value for key, value in entry.items() if key not in keys}


def on_its_way(entry: Json) -> bool:
    """Return whether a staging Job is expected to bring the adapter to the disk, and nothing blocks it."""
    return entry["state"] in NOT_YET and reason_of(entry) in ("", Reason.QUEUED)


def describe(entries: tuple[dict[str, Any], ...]) -> str:
    """Name each adapter that is not on the disk (or needs a word) and why, in declared order."""
    words = []
    for entry in entries:
        error = view.text(entry, "lastError")
        if entry["state"] in ON_DISK and not error:
            continue
        words.append(f"{entry['name']} is {entry['state']}" + (f": {error}" if error else ""))
    return "; ".join(words)
