"""Every reason that people can meet: what it means, what to do. From rules, disk, conditions, events, lint. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from cli.lint.reasons import REASONS as LINT_REASONS
from rules.suggest import did_you_mean

_WHERE_RULE = "refused at admission and by lint; ConfigValid on stored objects"


@dataclass(frozen=True, slots=True)
class Entry:
    """One meaning of a reason. `where`: where people meet it; `example`: what earns it, as YAML."""

    reason: str
    where: str
    means: str
    fix: str = ""
    fields: str = ""
    example: str = ""


def explain(reason: str) -> list[Entry]:
    """Return all that is known of a reason (a rule, a disk Job, a condition, an event may speak a word), or nothing."""
    sources = (_of_lint, _of_rules, _of_disk, _of_conditions, _of_events)
    return [entry for source in sources for entry in source(reason)]


def word_of(written: str) -> str:
    """Return the reason in what somebody copied: `[Reason]`, `Reason: message`, or the word in any case."""
    word = written.partition(":")[0].strip(" []`\"'")
    return next((known for known in all_reasons() if known.lower() == word.lower()), word)


def suggest(reason: str) -> str:
    """Return what an unknown reason may have meant, or an empty string."""
    return did_you_mean(reason, all_reasons())


def all_reasons() -> list[str]:
    """Return every documented reason, sorted."""
    from cli.plugin.reasons import CONDITIONS, EVENTS
    from disk.reasons import REASONS as DISK_REASONS
    from rules.registry import all_rules
    from rules.validate import PAGES

    assert PAGES
    of_rules = {reason for rule in all_rules() for reason in rule.reasons}
    return sorted({*LINT_REASONS, *of_rules, *DISK_REASONS, *CONDITIONS, *EVENTS})


def _of_lint(reason: str) -> Iterator[Entry]:
    if (found := LINT_REASONS.get(reason)) is not None:
        yield Entry(reason, "said by lint (the API server refuses it in its own words)", found.means, found.fix)


def _of_rules(reason: str) -> Iterator[Entry]:
    from rules.registry import all_rules
    from rules.validate import PAGES

    assert PAGES
    for rule in all_rules():
        if reason not in rule.reasons:
            continue
        where = "a warning at admission and by lint" if rule.warns else _WHERE_RULE
        kinds = ", ".join(rule.kinds)
        yield Entry(reason, f"{where} ({kinds})", rule.says, _rule_fix(reason), rule.fields, rule.refused.new)


def _rule_fix(reason: str) -> str:
    """The fix that the rule's own example is answered with."""
    from rules.examples import judge_example
    from rules.registry import all_rules

    for rule in all_rules():
        if reason in rule.reasons:
            for error in judge_example(rule, rule.refused, rule.kinds[0]).errors:
                if error.reason == reason and error.hint:
                    return error.hint
    return ""


def _of_disk(reason: str) -> Iterator[Entry]:
    from disk.reasons import REASONS as DISK_REASONS

    if (found := DISK_REASONS.get(reason)) is not None:
        again = "; it is tried again by itself" if found.retriable and "by itself" not in found.advice else ""
        where = "status.adapters[].lastError, or warnings[]; the result of a Job on the disk"
        yield Entry(reason, where, found.meaning, f"{found.advice}{again}".strip("; "))


def _of_conditions(reason: str) -> Iterator[Entry]:
    from cli.plugin.reasons import CONDITIONS

    if (found := CONDITIONS.get(reason)) is not None:
        yield Entry(reason, f"status: {found.where}", found.means, found.fix)


def _of_events(reason: str) -> Iterator[Entry]:
    from cli.plugin.reasons import EVENTS

    if (found := EVENTS.get(reason)) is not None:
        yield Entry(reason, f"event on the {found.where}", found.means, found.fix)


def render(entries: list[Entry]) -> str:
    """Return what people read for `--explain`."""
    lines: list[str] = []
    for entry in entries:
        lines += [f"{entry.reason}: {entry.means}", f"  seen in: {entry.where}"]
        if entry.fields:
            lines.append(f"  fields:  {entry.fields}")
        if entry.fix:
            lines.append(f"  fix:     {entry.fix}")
        if entry.example:
            lines.append(f"  example: {entry.example}")
        lines.append("")
    return "\n".join(lines[:-1]) + "\n"
