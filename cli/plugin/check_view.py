"""The answer of `check`, for people and programs. Pure."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from cli.plugin.check import Effect, Judged, Report
from cli.plugin.output import BAD, BOLD, DIM, GOOD, WAIT, Line, line

_WORDS = {
    "created": ("would be created", GOOD),
    "changed": ("would be changed", WAIT),
    "unchanged": ("is so already", DIM),
    "refused": ("would be refused", BAD),
}


def as_view(report: Report) -> dict[str, Any]:
    """Return the report for programs."""
    return {
        "accepted": not any(one.errors for one in report.judged),
        "good": report.good,
        "objects": [_lists(asdict(one)) for one in report.judged],
        "services": [_effect(one) for one in report.effects],
        "notes": list(report.notes),
    }


def _lists(found: dict[str, Any]) -> dict[str, Any]:
    return {key: list(value) if isinstance(value, tuple) else value for key, value in found.items()}


def _effect(one: Effect) -> dict[str, Any]:
    found = _lists(asdict(one))
    before, after = found.pop("ceiling")
    return found | {"rolls": bool(one.changes) and one.pods > 0, "ceilingBefore": before, "ceilingAfter": after}


def as_lines(report: Report) -> list[Line]:
    """Return the report for people: the objects, then the blast radius."""
    out = [found for one in report.judged for found in _judged(one)]
    loud = [one for one in report.effects if not one.quiet]
    if not any(one.errors for one in report.judged):
        out += [line(""), line(("blast radius", BOLD))]
        out += [found for one in loud for found in _blast(one)]
        if not loud:
            out.append(line("  ", ("no pod rolls, no ceiling moves, nothing breaks", GOOD)))
    return out + [line((note, DIM)) for note in report.notes]


def _judged(one: Judged) -> list[Line]:
    words, style = _WORDS[one.outcome]
    out = [line(f"{one.subject} ", (words, style), (f"   {one.place}", DIM))]
    out += [line("  ", ("error: ", BAD), text) for text in one.errors]
    out += [line("  ", ("warning: ", WAIT), text) for text in one.warnings]
    return out


def _blast(one: Effect) -> list[Line]:
    out = [line(f"  AIMService {one.service}", (" (new)" if one.created else "", GOOD))]
    if one.changes and one.pods:
        pods = "1 pod rolls" if one.pods == 1 else f"{one.pods} pods roll"
        out.append(line("    ", (pods, WAIT), f": {', '.join(one.changes)}"))
    elif one.changes:
        out.append(line(f"    the server starts with: {', '.join(one.changes)}"))
    elif not one.created:
        out.append(line("    ", ("no pod rolls", GOOD)))
    if one.scaled:
        out.append(line(f"    replicas: {', '.join(one.scaled)}"))
    before, after = one.ceiling
    if one.created and after is not None:
        out.append(line(f"    rank ceiling {after} ({one.ceiling_origin})"))
    elif before != after:
        out.append(line(f"    rank ceiling {before or 'none'} → {after or 'none'} ({one.ceiling_origin})"))
    if one.adapters_added:
        out.append(line(f"    staged: {', '.join(one.adapters_added)}"))
    if one.adapters_removed and not one.created:
        out.append(line(f"    unloaded: {', '.join(one.adapters_removed)}"))
    out += [line("    ", ("breaks: ", BAD), text) for text in one.broken]
    out += [line("    ", ("mends: ", GOOD), text) for text in one.mended]
    return out
