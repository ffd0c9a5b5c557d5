"""Metrics of the serving certificate, in the process's default registry."""

from __future__ import annotations

from prometheus_client import Counter, Gauge

EXPIRY = Gauge(
    "aim_adapters_certificate_expiry_timestamp_seconds", "Unix time at which the certificate being served expires."
)
PROBLEM = Gauge(
    "aim_adapters_certificate_problem",
    "1 while a newer certificate cannot be used and the old one is kept, otherwise 0.",
)
RELOADS = Counter("aim_adapters_certificate_reloads_total", "Certificates that were put into service.")
BUNDLE_REPAIRS = Counter("aim_adapters_ca_bundle_writes_total", "Writes of a caBundle into a webhook configuration.")
