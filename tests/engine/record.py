"""The record of what engines said about each recipe, and how preflight compares with it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from api.reasons import Reason
from disk.findings import Limits, Verdict
from disk.weights import inspect_adapter
from tests.engine.recipes import CEILING, Recipe

RECORD = Path(__file__).parents[1] / "fixtures" / "engine-verdicts.json"
LIMITS = Limits(CEILING, CEILING)
SERVED_WRONGLY = {
    Reason.ADAPTER_SHAPE_MISMATCH: "a matrix that is too small is copied into a part of the module",
    Reason.ADAPTER_TENSORS_INCOMPLETE: "of two ranks the smaller part counts; of one half alone nothing does",
    Reason.ADAPTER_WEIGHTS_NOT_FLOAT: "integers are taken as numbers, without the scale of their quantization",
    Reason.ADAPTER_CONFIG_UNREADABLE: "a rank with a fraction sets a scale that no training had",
}
"""What preflight refuses although the newest engine serves it: its answers are wrong then."""


@dataclass(frozen=True)
class Judged:
    """A recipe with what preflight says about its files."""

    name: str
    reason: str  # empty: it passes
    warnings: tuple[str, ...]

    @property
    def needs_newer(self) -> bool:
        """Whether it warns that older engines do not serve the adapter."""
        return Reason.ADAPTER_NEEDS_NEWER_ENGINE in self.warnings


def judge(recipe: Recipe, folder: Path, base: Path) -> Judged:
    """Ask preflight about the files of a recipe. A missing file is what the check of the listing reports."""
    verdict: Verdict = inspect_adapter(folder, LIMITS, base)
    reason = str(verdict.failure.reason) if verdict.failure is not None else ""
    return Judged(recipe.name, reason, tuple(sorted(str(one.reason) for one in verdict.warnings)))


def load() -> dict[str, Any]:
    """Return the record."""
    record: dict[str, Any] = json.loads(RECORD.read_text())
    return record


def versions(record: Mapping[str, Any]) -> list[str]:
    """Return the recorded versions of the engine, the newest first."""
    found = {version for entry in record["adapters"].values() for version in entry["engines"]}
    return sorted(found, key=lambda version: [int(part) for part in version.split(".")], reverse=True)


def disagreements(recipe: Recipe, judged: Judged, engines: Mapping[str, str], newest: str) -> Iterator[str]:
    """Return where preflight and the engines disagree: late failures, and refusals of what is served rightly.

    Args: `engines` are the verdicts by version.
    """
    good = "serves" if recipe.effect else "no effect"
    serves = engines[newest] == good
    if not judged.reason and not serves:
        yield f"late failure: vLLM {newest} {engines[newest]}"
    if judged.reason and serves and Reason(judged.reason) not in SERVED_WRONGLY:
        yield f"false refusal {judged.reason}: vLLM {newest} serves it"
    for version, verdict in engines.items():
        if not judged.reason and verdict != good and not judged.needs_newer:
            yield f"no warning: vLLM {version} {verdict}"
