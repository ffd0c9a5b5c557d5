"""What a pass over one AIMArtifact may look at."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from api.errors import FieldError
from api.jobs import Progress
from api.view import Json
from reconcile.jobs import JobState
from reconcile.settings import ReconcileSettings
from rules.runtime_config import MergedRuntimeConfig


@dataclass(frozen=True, slots=True)
class ArtifactFacts:
    """All that a pass over one artifact looks at.

    `claim_problem` and `disk_problem`: what a provisioner said about a claim, empty when nothing.
    """

    artifact: Json
    now: datetime
    settings: ReconcileSettings
    config: MergedRuntimeConfig
    errors: tuple[FieldError, ...] = ()
    cache_env: tuple[Any, ...] = ()  # env of the caches that hold this artifact
    claim: Json | None = None
    disk_claim: Json | None = None
    disk_wanted: bool = False
    fetches: tuple[JobState, ...] = ()  # download and measuring Jobs
    progress: Progress | None = None
    parent: Json | None = None  # of an exact adapter
    claim_problem: str = ""
    disk_problem: str = ""
    reap_jobs: tuple[JobState, ...] = ()
    free_jobs: int | None = None  # download Jobs that may start now; None: any number
    users: tuple[tuple[str, int], ...] = ()  # services whose subtree is on this disk: (UID, staging attempts so far)
