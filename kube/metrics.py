"""Metrics of the engine, in the process's default registry; docs/metrics.md has each."""

from __future__ import annotations

from prometheus_client import Counter, Gauge, Histogram

API_REQUESTS = Counter(
    "aim_adapters_api_requests_total",
    "Requests to the Kubernetes API by verb, kind and HTTP code (0: no answer).",
    ["verb", "kind", "code"],
)
QUEUE_DEPTH = Gauge(
    "aim_adapters_queue_depth", "Keys that wait for a worker, without those whose time has not come.", ["controller"]
)
QUEUE_LATENCY = Histogram(
    "aim_adapters_queue_latency_seconds",
    "Time from a key's entry into the work queue to the start of its pass.",
    ["controller"],
    buckets=(0.001, 0.005, 0.025, 0.1, 0.25, 1, 5, 30, 120),
)
QUEUE_RETRIES = Counter("aim_adapters_queue_retries_total", "Keys put back with backoff.", ["controller"])
RECONCILE_SECONDS = Histogram(
    "aim_adapters_reconcile_seconds",
    "Duration of one pass over one key.",
    ["controller"],
    buckets=(0.001, 0.005, 0.025, 0.1, 0.25, 1, 5, 30),
)
RECONCILE_ERRORS = Counter(
    "aim_adapters_reconcile_errors_total", "Passes that ended with an error, by its type.", ["controller", "reason"]
)
CACHE_OBJECTS = Gauge("aim_adapters_cache_objects", "Objects in an informer's cache.", ["kind"])
CACHE_BYTES = Gauge(
    "aim_adapters_cache_bytes",
    "Memory of an informer's cache: an estimate made from the JSON of its objects.",
    ["kind"],
)
CACHE_BUDGET = Gauge(
    "aim_adapters_cache_budget_bytes", "Memory that all caches may use together (setting cacheBudget); 0: no limit."
)
OBJECTS_SKIPPED = Counter(
    "aim_adapters_objects_skipped_total",
    "Objects that were not taken in as a whole, by kind and reason; /readyz?verbose names them.",
    ["kind", "reason"],
)
CACHE_AGE = Gauge(
    "aim_adapters_cache_age_seconds", "Time since the API server last said anything on an informer's watch.", ["kind"]
)
CACHE_RELISTS = Counter("aim_adapters_cache_relists_total", "Full lists made by an informer.", ["kind"])
CACHE_FAILURES = Counter(
    "aim_adapters_cache_failures_total", "Lists and watches that failed, by reason.", ["kind", "reason"]
)
LEADER = Gauge("aim_adapters_leader", "1 while this process holds the lease, else 0.")
EVENTS_DROPPED = Counter(
    "aim_adapters_events_dropped_total", "Events that were not written, because too many came or the write failed."
)
