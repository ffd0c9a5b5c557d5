"""Metrics of admission. Label children are looked up once: a look-up costs more than the count."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from functools import cache, lru_cache
from itertools import accumulate

from prometheus_client import REGISTRY, CollectorRegistry, Counter, Gauge
from prometheus_client.core import HistogramMetricFamily
from prometheus_client.registry import Collector

_BUCKETS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)


class Seconds(Collector):
    """A histogram for one writing thread, at a tenth of the cost of one that locks each of its numbers."""

    def __init__(self, name: str, help_text: str) -> None:
        """Start at zero."""
        self._name, self._help = name, help_text
        self._counts = [0] * (len(_BUCKETS) + 1)
        self._sum = 0.0

    def observe(self, seconds: float) -> None:
        """Count one time."""
        self._counts[bisect_left(_BUCKETS, seconds)] += 1
        self._sum += seconds

    def describe(self) -> Iterator[HistogramMetricFamily]:
        """Return name and help text without numbers."""
        yield HistogramMetricFamily(self._name, self._help)

    def collect(self) -> Iterator[HistogramMetricFamily]:
        """Return the numbers in Prometheus form: each bucket includes those below it."""
        bounds = [*(str(bound) for bound in _BUCKETS), "+Inf"]
        buckets = list(zip(bounds, map(float, accumulate(self._counts)), strict=True))
        yield HistogramMetricFamily(self._name, self._help, buckets=buckets, sum_value=self._sum)


@cache
def process_metrics() -> AdmissionMetrics:
    """Return the metrics that the process exports, registered once."""
    return AdmissionMetrics(REGISTRY)


class AdmissionMetrics:
    """The metrics of admission; one set per registry."""

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        """Register in the given registry, or in a new one."""
        registry = registry or CollectorRegistry()
        self.registry = registry
        self._reviews = Counter(
            "aim_adapters_admission_reviews_total",
            "Reviews answered, by webhook, kind, operation and verdict (allowed, refused, failed)",
            ["webhook", "kind", "operation", "verdict"],
            registry=registry,
        )
        self._rules = Counter(
            "aim_adapters_admission_rule_total",
            "Errors and warnings that rules returned, by reason and effect (refused, warned)",
            ["reason", "effect"],
            registry=registry,
        )
        self.seconds = Seconds("aim_adapters_admission_seconds", "Time from the complete request body to the answer")
        registry.register(self.seconds)
        self._confirmations = Counter(
            "aim_adapters_admission_confirmations_total",
            "Refusals that rest on another object, by the outcome of the live read (confirmed, withdrawn)",
            ["outcome"],
            registry=registry,
        )
        self._turned_away = Counter(
            "aim_adapters_admission_turned_away_total",
            "Requests that got no verdict, by cause (overload, too_large, malformed, late, crashed)",
            ["why"],
            registry=registry,
        )
        self.in_flight = Gauge(
            "aim_adapters_admission_in_flight", "Reviews in flight: received and not answered yet", registry=registry
        )
        self._review = lru_cache(maxsize=512)(self._reviews.labels)
        self._rule = lru_cache(maxsize=512)(self._rules.labels)

    def review(self, webhook: str, kind: str, operation: str, verdict: str) -> None:
        """Count one answered review."""
        self._review(webhook, kind, operation, verdict).inc()

    def rule(self, reason: str, effect: str) -> None:
        """Count one error or warning."""
        self._rule(reason, effect).inc()

    def confirmation(self, outcome: str) -> None:
        """Count one refusal that was confirmed or withdrawn."""
        self._confirmations.labels(outcome).inc()

    def turned_away(self, why: str) -> None:
        """Count one request that got no verdict."""
        self._turned_away.labels(why).inc()
