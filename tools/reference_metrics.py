"""The page of all metrics, from the registered ones themselves: `python -m tools.reference_metrics write|verify`."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from dataclasses import dataclass

from prometheus_client.metrics import MetricWrapperBase
from prometheus_client.registry import Collector

from tools.generated import ROOT, Target, run
from tools.markdown import heading, page, table

PREFIX = "aim_adapters_"
ROOMS = ("webhooks", "kube", "reconcile", "certs", "console", "app")
"""Packages whose modules register metrics in the running server."""

_GROUPS = {
    "admission": "Admission",
    "server": "Servers",
    "console": "Console",
    "certificate": "Certificates",
    "ca": "Certificates",
    "api": "Kubernetes API",
    "cache": "Caches",
    "queue": "Queue and passes",
    "reconcile": "Queue and passes",
    "leader": "Queue and passes",
    "events": "Queue and passes",
    "event": "Process",
}
_OTHERS = "Adapters and Jobs"


@dataclass(frozen=True, slots=True)
class MetricInfo:
    """One metric as Prometheus stores it. `name`: of a counter with `_total`."""

    name: str
    type: str
    labels: tuple[str, ...]
    help: str

    @property
    def group(self) -> str:
        """The heading of the page that lists it."""
        return _GROUPS.get(self.name.removeprefix(PREFIX).partition("_")[0], _OTHERS)


def find_metrics() -> list[MetricInfo]:
    """Return the metrics that the modules of the server hold, by name."""
    found = {}
    for module in _modules():
        for value in vars(importlib.import_module(module)).values():
            if isinstance(value, MetricWrapperBase):
                info = _info(value)
                found[info.name] = info
    from webhooks.metrics import AdmissionMetrics, Seconds  # noqa: PLC0415 - after the modules: it registers in one of its own

    for value in vars(AdmissionMetrics()).values():
        if isinstance(value, MetricWrapperBase | Seconds):
            info = _info(value)
            found[info.name] = info
    return [found[name] for name in sorted(found)]


def _modules() -> Iterator[str]:
    """Yield the modules that make metrics, by what they import."""
    for room in ROOMS:
        for path in sorted((ROOT / room).rglob("*.py")):
            if "from prometheus_client import" in path.read_text(encoding="utf-8") and path.name != "__main__.py":
                yield ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def _info(metric: Collector) -> MetricInfo:
    (family,) = metric.describe()  # type: ignore[attr-defined] # every metric of this project has it
    name = f"{family.name}_total" if family.type == "counter" else family.name
    labels = tuple(getattr(metric, "_labelnames", ()))  # without a sample the library has the labels only here
    return MetricInfo(name, family.type, labels, family.documentation)


def render() -> dict[str, str]:
    """Return the page by file name."""
    return {"metrics.md": page(_lines(find_metrics()))}


def _lines(metrics: list[MetricInfo]) -> Iterator[str]:
    yield from heading("Metrics", "tools.reference_metrics", "the metrics that the server registers")
    yield "`GET /metrics` on the health port (plain, 8080), or on the metrics port by TLS and bearer token when the"
    yield "chart's `metrics.protected` is on. Every replica counts for itself; queues, passes and Jobs count in the"
    yield "one that leads, adapters by state in each. Label values come from closed sets (kinds, verbs, reasons), never"
    yield "from names of objects. Beside these there are the usual `process_…` and `python_…` ones. Dashboard and"
    yield "alerts come with the chart (`metrics.dashboard`, `metrics.rules`)."
    yield ""
    for group in dict.fromkeys([*_GROUPS.values(), _OTHERS]):
        rows = [
            (f"`{info.name}`", info.type, ", ".join(f"`{label}`" for label in info.labels), info.help)
            for info in metrics
            if info.group == group
        ]
        if rows:
            yield from (f"## {group}", "")
            yield from table(("metric", "type", "labels", "description"), rows)
    yield "A histogram `X` is stored as `X_bucket`, `X_count` and `X_sum`."


TARGET = Target("The page of metrics", "tools.reference_metrics", ROOT / "docs", render)


def main(argv: list[str]) -> int:
    """Write or verify the page; returns the exit status."""
    return run(argv, TARGET)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
