"""Metrics of adapters and Jobs, in the process's default registry; docs/metrics.md has each."""

from __future__ import annotations

from prometheus_client import Counter, Gauge, Histogram

ADAPTERS = Gauge(
    "aim_adapters_adapters", "Adapters in the status of services, by state; each replica knows all.", ["state"]
)
TIME_TO_STAGED = Histogram(
    "aim_adapters_time_to_staged_seconds",
    "Time from the first staging Job of an adapter to the record that its content is on the disk, retries included.",
    buckets=(1, 2.5, 5, 10, 30, 60, 120, 300, 900, 1800, 3600, 7200),
)
STAGED_BYTES = Counter(
    "aim_adapters_staged_bytes_total",
    "Bytes that staging Jobs wrote to adapter disks, excluding content already there.",
)
JOB_OUTCOMES = Counter(
    "aim_adapters_job_outcomes_total",
    "Jobs that ended, by role, result (succeeded, failed) and reason (Other: a word that is not documented).",
    ["role", "result", "reason"],
)
