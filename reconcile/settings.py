"""The settings of the reconciler: durations, images and defaults (docs/contract.md, Names and numbers)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Literal

CONTROLLERS = (
    "service",
    "artifact",
    "profile-cache",
    "template-cache",
    "profile",
    "cluster-profile",
    "model",
    "cluster-model",
    "template",
    "cluster-template",
)


DEFAULT_JOB_RESOURCES: dict[str, dict[str, Any]] = {
    "requests": {"cpu": "100m", "memory": "128Mi"},
    "limits": {"cpu": "2", "memory": "1Gi"},
}


@dataclass(frozen=True, slots=True)
class ReconcileSettings:
    """Plain values for the pure core; `app.settings` fills them from flags, file and environment."""

    image: str = "aim-adapters:dev"  # of the Jobs: the same as the controller's own
    image_pull_policy: str = "IfNotPresent"
    refresh_interval: timedelta = timedelta(seconds=30)  # AIM_ADAPTER_REFRESH_INTERVAL, at least 5 s
    reaper_period: timedelta = timedelta(minutes=15)
    reaper_idle_period: timedelta = timedelta(days=1)
    reaper_subtree_skew: timedelta = timedelta(minutes=2)
    scratch_guard: timedelta = timedelta(minutes=30)
    unload_grace: timedelta = timedelta(minutes=10)
    claim_bind_timeout: timedelta = timedelta(minutes=2)
    retry_base: timedelta = timedelta(minutes=1)
    retry_limit: timedelta = timedelta(hours=1)
    staging_deadline: timedelta = timedelta(hours=2)
    fetch_deadline: timedelta = timedelta(hours=24)
    jobs_per_namespace: int = 8
    allowed_download_images: tuple[str, ...] = ()  # prefixes; empty: all
    job_resources: Mapping[str, Mapping[str, Any]] = field(default_factory=lambda: DEFAULT_JOB_RESOURCES)
    job_tolerations: tuple[Mapping[str, Any], ...] = ()
    job_node_selector: Mapping[str, str] = field(default_factory=dict)
    job_priority_class_name: str | None = None
    job_ttl: timedelta = timedelta(hours=1)  # a net only: finished Jobs are deleted once recorded
    probe_period: timedelta = timedelta(seconds=10)
    startup_timeout: timedelta = timedelta(hours=1)
    deployment_mode: str = "Standard"
    max_surge: int = 0
    max_unavailable: int = 1
    security_profile: Literal["baseline", "restricted"] = "baseline"
    strict_base: bool = False
    allow_pickle: bool = True
    allow_link_local: bool = False
    progress_port: int = 8088
