"""What an adapter's files tell without a cluster: rank, targets, base, size, problems. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from cli.plugin.output import BAD, BOLD, DIM, GOOD, WAIT, Cell, Line, columns, line, size
from disk.preflight import Finding, Verdict
from disk.reasons import ADVICE
from rules.rank import round_up

_TARGETS_SHOWN = 12


@dataclass(frozen=True, slots=True)
class Inspected:
    """What was found. `files`: name → bytes; `config`: adapter_config.json as it is, empty: none."""

    source: str
    files: Mapping[str, int]
    verdict: Verdict
    config: bytes = b""
    revision: str | None = None
    tensors: int | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)


def view(seen: Inspected) -> dict[str, Any]:
    """Return what was found, for programs."""
    config = _parse(seen.config)
    verdict = seen.verdict
    return {
        "source": seen.source,
        "revision": seen.revision,
        "servable": verdict.failure is None,
        "problem": _finding(verdict.failure) if verdict.failure else None,
        "warnings": [_finding(one) for one in verdict.warnings],
        "rank": verdict.rank,
        "neededCeiling": round_up(verdict.rank) if verdict.rank else None,
        "alpha": config.get("lora_alpha"),
        "targets": _targets(config),
        "base": verdict.base_name or config.get("base_model_name_or_path"),
        "peftType": config.get("peft_type"),
        "tensors": seen.tensors,
        "sizeBytes": sum(seen.files.values()),
        "files": dict(sorted(seen.files.items())),
    }


def _parse(raw: bytes) -> dict[str, Any]:
    try:
        found = json.loads(raw)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _targets(config: Mapping[str, Any]) -> list[str] | str | None:
    found = config.get("target_modules")
    if isinstance(found, list):
        return sorted(str(one) for one in found)
    return found if isinstance(found, str) else None


def _finding(found: Finding) -> dict[str, str]:
    return {"reason": found.reason, "detail": found.detail, "fix": ADVICE.get(found.reason, "")}


def lines(seen: Inspected) -> list[Line]:
    """Return what was found, for people."""
    shown = view(seen)
    verdict = ("can be served", GOOD) if shown["servable"] else ("cannot be served", BAD)
    out = [line((shown["source"], BOLD), "   ", verdict)]
    rows: list[list[Cell]] = []
    if shown["rank"] is not None:
        ceiling = shown["neededCeiling"]
        rows.append(
            [("rank", DIM), f"{shown['rank']} (needs a ceiling of {ceiling})" if ceiling else f"{shown['rank']}"]
        )
    if shown["base"]:
        rows.append([("base", DIM), str(shown["base"])])
    if shown["targets"]:
        rows.append([("targets", DIM), _target_words(shown["targets"])])
    if shown["tensors"] is not None:
        rows.append([("tensors", DIM), str(shown["tensors"])])
    if shown["revision"]:
        rows.append([("revision", DIM), str(shown["revision"])])
    rows.append([("size", DIM), f"{size(shown['sizeBytes'])} in {len(shown['files'])} files"])
    out += columns(rows, indent=2)
    for found, style in [(shown["problem"], BAD), *((one, WAIT) for one in shown["warnings"])]:
        if found is not None:
            out.append(line("  ", (f"{found['reason']}: {found['detail']}", style)))
            if found["fix"]:
                out.append(line("    fix: ", (found["fix"], BOLD)))
    if shown["servable"] and shown["rank"]:
        out.append(line(("  manifest: ", DIM), f"spec: {{type: adapter, rank: {shown['rank']}, …}}"))
    return out


def _target_words(targets: Sequence[str] | str) -> str:
    if isinstance(targets, str):
        return targets
    more = f" and {len(targets) - _TARGETS_SHOWN} more" if len(targets) > _TARGETS_SHOWN else ""
    return ", ".join(targets[:_TARGETS_SHOWN]) + more
