"""The index of all that users can be told, and the page of events: `python -m tools.reference_reasons write|verify`.

Meanings stand beside the words: with the rules, in `disk.reasons`, `cli.plugin.reasons` and `cli.lint.reasons`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass

from cli.lint.explain import Entry, all_reasons, explain
from cli.plugin.reasons import EVENTS
from disk.reasons import REASONS as DISK_REASONS
from rules.examples import judge_example
from rules.registry import Rule, all_rules
from tools.generated import ROOT, Target, run
from tools.markdown import heading, page, table


@dataclass(frozen=True, slots=True)
class Answer:
    """Something that is said without a reason word of ours: what people read, what it means, what to do."""

    text: str
    means: str
    fix: str


ANSWERS = (
    Answer(
        "too many reviews at once, try again",
        "The server turns reviews away for a moment (503 with Retry-After).",
        "try again; if it lasts, raise the setting maxInFlight or the chart's replicas",
    ),
    Answer(
        "aim-adapters could not judge this object; its log has the cause under reference …",
        "A fault of this program; the object was not stored.",
        "look up the reference in the server's log and report it",
    ),
    Answer(
        "a check of aim-adapters failed; its log has the cause under reference …",
        "One rule broke; what the others found is listed beside it.",
        "mend what is listed; look up the reference in the server's log and report it",
    ),
    Answer(
        "could not be confirmed now and is judged again later: …",
        "A refusal that rests on another object could not be confirmed by a live read in time; the object is stored.",
        "look at ConfigValid of the object: the controller judges it again",
    ),
    Answer(
        "the body is larger than … bytes",
        "The review was not read (413).",
        "make the object smaller; the API server itself takes no more than 3 MiB",
    ),
    Answer("the body did not arrive in time", "The review was cut off (408).", "check the network to the server"),
    Answer(
        "failed calling webhook … connect: connection refused, or no endpoints available",
        "No replica of aim-adapters answers, so the API server refuses (failurePolicy Fail).",
        "see whether its pods are ready; the rescue is in [Rescue](how-to/rescue.md)",
    ),
    Answer(
        "failed calling webhook … context deadline exceeded",
        "The answer did not come within the webhook's timeoutSeconds.",
        "try again; check the network policy between API server and pods, and the pods' load",
    ),
    Answer(
        "failed calling webhook … x509: certificate signed by unknown authority",
        "The caBundle of the webhook configuration does not match the served certificate.",
        "self-managed: restart the server, it writes the bundle; otherwise see [Rescue](how-to/rescue.md)",
    ),
    Answer(
        "strict decoding error: unknown field …",
        "The kind has no such field; kubectl refuses it before any webhook is asked.",
        "correct the name; [the objects](reference/objects.md) have every field",
    ),
    Answer(
        "Duplicate value … spec.adapters",
        "The schema says first that an adapter is declared twice.",
        "declare it once",
    ),
)


def render() -> dict[str, str]:
    """Return the pages by file name."""
    return {"errors.md": page(_errors()), "events.md": page(_events())}


def all_words() -> dict[str, list[Entry]]:
    """Return every reason that users can meet, with all its meanings, in alphabetical order."""
    return {reason: explain(reason) for reason in all_reasons()}


def _errors() -> Iterator[str]:
    yield from heading(
        "Every reason and error message", "tools.reference_reasons", "what rules, Jobs and controllers say"
    )
    yield "What you read has a *reason*, a word that never changes, and a message with the details. Look the reason up"
    yield "here, or let the program do it: `aim-adapters lint --explain AdapterRankAboveCeiling`."
    yield "`kubectl aim-adapters why SERVICE` finds the first broken link by itself."
    yield ""
    yield from table(
        ("where you read it", "form"),
        [
            ("`kubectl apply`, refused", '`spec.adapters[0].name: Invalid value: "wide": what is wrong (the fix)`'),
            ("`kubectl apply`, warned", "`Warning: spec.adapters[0].name: what to know`"),
            ("a condition", "`type`, `status`, `reason`, `message` (`kubectl describe aimsvc NAME`)"),
            ("`status.adapters[].lastError`, `.warnings[]`", "`Reason: message`"),
            ("an [event](events.md)", "`reason`, `message` (`kubectl get events`)"),
            ("`aim-adapters lint`", "`file:line:column: error: path: message [Reason]`"),
        ],
    )
    yield from ("## All reasons", "")
    rows = (
        (f"`{reason}`", entry.where, entry.means, entry.fix)
        for reason, entries in all_words().items()
        for entry in entries
    )
    yield from table(("reason", "where", "means", "what to do"), rows)
    yield from ("## What rules say", "")
    yield "The message of each [rule](rules.md)'s own example, as kubectl shows it. Names and values are examples."
    yield ""
    said = (row for rule in all_rules() for row in _spoken(rule))
    yield from table(("reason", "kind", "message"), dict.fromkeys(said))
    yield from ("## Messages without a reason", "")
    yield "Said by the API server, or by the webhook about the request itself."
    yield ""
    yield from table(("message", "means", "what to do"), [(f"`{a.text}`", a.means, a.fix) for a in ANSWERS])


def _spoken(rule: Rule) -> Iterator[tuple[str, str, str]]:
    kind = rule.kinds[0]
    verdict = judge_example(rule, rule.refused, kind)
    for error in verdict.errors:
        if error.reason in rule.reasons and not rule.warns:
            yield f"`{error.reason}`", kind, f"`{error}`"
    for warning in verdict.warnings:
        if warning.reason in rule.reasons and rule.warns:
            yield f"`{warning.reason}`", kind, f"`Warning: {warning}`"


def _events() -> Iterator[str]:
    yield from heading("Events", "tools.reference_reasons", "cli/plugin/reasons.py and disk/reasons.py")
    yield "An event tells that something happened, once; what *is* stands in the status. Events come on every change of"
    yield "an adapter's state and only then, on rollouts, downloads and sweeps. They are written by `aim-adapters`;"
    yield "repeats are counted in one event."
    yield ""
    yield from ("```sh", "kubectl get events --field-selector involvedObject.kind=AIMService", "```", "")
    rows = [(f"`{reason}`", each.where, each.means, each.fix) for reason, each in sorted(EVENTS.items())]
    yield from table(("reason", "on", "means", "what to do"), rows)
    yield "A download or sweep that failed is told on the AIMArtifact with its own reason:"
    failures = sorted(name for name, each in DISK_REASONS.items() if each.group in ("source", "disk", "command"))
    yield ", ".join(f"`{name}`" for name in failures) + "."
    yield "[Reasons of the disk Jobs](reasons.md) explains them."


TARGET = Target("The pages of reasons and events", "tools.reference_reasons", ROOT / "docs", render)


def main(argv: list[str]) -> int:
    """Write or verify the pages; returns the exit status."""
    return run(argv, TARGET)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
