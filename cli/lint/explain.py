"""What a reason means, where it is seen, what to do: `api.reasons`, with fields and examples of the rules. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from api.reasons import EXPLANATIONS, Explanation, Reason, find
from rules.suggest import did_you_mean

_ADAPTER = "status.adapters[].lastError, or .warnings[]"


@dataclass(frozen=True, slots=True)
class Entry:
    """All that is known of a reason.

    `seen`: the places where people see it; `fields`: what the rules that use it are about; `example`: a manifest that a
    rule answers with it, as YAML.
    """

    reason: Reason
    explanation: Explanation
    seen: tuple[str, ...]
    fields: tuple[str, ...] = ()
    example: str = ""


def explain(word: str) -> Entry | None:
    """Return all that is known of a reason, None for a word that is not one."""
    reason = find(word)
    if reason is None:
        return None
    explanation = EXPLANATIONS[reason]
    seen, fields = [], []
    for where, field in _of_rules(reason):
        seen.append(where)
        fields += [part.strip() for part in field.split(", ")]
    seen += _places(explanation)
    example = _example(reason) if "rule" in explanation.surfaces else ""
    return Entry(reason, explanation, tuple(dict.fromkeys(seen)), tuple(dict.fromkeys(fields)), example)


def word_of(written: str) -> str:
    """Return the reason in what a user copied: `[Reason]`, `Reason: message`, or the word in any case."""
    word = written.partition(":")[0].strip(" []`\"'")
    return next((str(known) for known in Reason if known.lower() == word.lower()), word)


def suggest(word: str) -> str:
    """Return what an unknown reason may have meant, or an empty string."""
    return did_you_mean(word, [str(known) for known in Reason])


def _places(explanation: Explanation) -> Iterator[str]:
    surfaces = explanation.surfaces
    if "lint" in surfaces:
        yield "lint (the API server refuses it in its own words)"
    if explanation.conditions:
        yield f"condition {', '.join(explanation.conditions)}"
    if "adapter" in surfaces:
        yield _ADAPTER
    if explanation.event_on:
        yield f"event on the {explanation.event_on}"
    if "job" in surfaces:
        yield "the result of a disk Job"
    if "why" in surfaces:
        yield "kubectl aim-adapters why"


def _of_rules(reason: Reason) -> Iterator[tuple[str, str]]:
    """Yield for each rule that uses a reason: where its answer is seen, and the fields that it is about."""
    from rules.registry import Basis, all_rules
    from rules.validate import PAGES

    assert PAGES
    for warns in (False, True):
        found = [rule for rule in all_rules() if reason in rule.reasons and rule.warns == warns]
        kinds = ", ".join(dict.fromkeys(kind for rule in found for kind in rule.kinds))
        of_stored = any(rule.basis in (Basis.OBJECT, Basis.WORLD, Basis.STORED) for rule in found)
        where = "a warning at admission and by lint" if warns else "refused at admission and by lint"
        if of_stored and not warns:
            where += ", and reported in the status of stored objects"
        for rule in found:
            yield f"{where} ({kinds})", rule.fields_of(reason)


def _example(reason: Reason) -> str:
    """Return the example of a rule that is answered with this very reason; empty where no example is."""
    from rules.examples import judge_example
    from rules.registry import all_rules

    for rule in all_rules():
        if reason in rule.reasons:
            verdict = judge_example(rule, rule.refused, rule.kinds[0])
            if reason in {error.reason for error in verdict.errors} | {warning.reason for warning in verdict.warnings}:
                return rule.refused.new
    return ""


def render(entry: Entry) -> str:
    """Return what people read for `--explain`."""
    lines = [f"{entry.reason}: {entry.explanation.meaning}"]
    if entry.explanation.advice:
        lines.append(f"  fix:     {entry.explanation.advice}")
    lines += [f"  {'seen in:' if not number else ' ' * 8} {where}" for number, where in enumerate(entry.seen)]
    if entry.fields:
        lines.append(f"  fields:  {', '.join(entry.fields)}")
    if entry.example:
        lines.append(f"  example: {entry.example}")
    return "\n".join(lines) + "\n"
