"""The index of all reasons, the page of events and that of disk Jobs: `python -m tools.reference_reasons write|verify`.

Meanings and fixes are in `api.reasons`; the messages are those of the rules' own examples.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache

from api.reasons import EXPLANATIONS, Explanation, Group, Reason, anchor
from cli.lint.explain import Entry, explain
from rules.examples import judge_example
from rules.registry import Rule, all_rules
from tools.generated import ROOT, Target, run
from tools.markdown import cell, heading, page, table
from webhooks.admission import AdmissionSettings
from webhooks.routes import OVERLOADED


@dataclass(frozen=True, slots=True)
class Answer:
    """A message without a reason: what people read, what it means, what to do."""

    text: str
    means: str
    fix: str


ANSWERS = (
    Answer(
        OVERLOADED,
        "The server already judges as many reviews as the setting maxInFlight allows, or receives more than "
        f"{AdmissionSettings().max_buffered_bytes // 2**20} MiB of bodies at once (503 with Retry-After).",
        "try again; if it lasts, raise the setting maxInFlight, or the chart value replicas",
    ),
    Answer(
        "aim-adapters could not judge this object; its log has the cause under reference …",
        "A fault of this program; the object was not stored.",
        "look up the reference in the server's log and report it",
    ),
    Answer(
        "a check of aim-adapters failed; its log has the cause under reference …",
        "One rule failed; what the others found is listed beside it.",
        "fix what is listed; look up the reference in the server's log and report it",
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
        "The schema refuses an adapter that is declared twice, before any webhook is asked.",
        "declare it once",
    ),
)


def render() -> dict[str, str]:
    """Return the pages by file name."""
    return {"errors.md": page(_errors()), "events.md": page(_events()), "reasons.md": page(_jobs())}


def link(reason: Reason, place: str = "errors.md") -> str:
    """Return a link to the section of a reason."""
    return f"[`{reason}`]({place}#{anchor(reason)})"


# -- errors.md ------------------------------------------------------------------------------------------------------


def _errors() -> Iterator[str]:
    yield from heading(
        "Every reason and error message", "tools.reference_reasons", "api/reasons.py and the examples of the rules"
    )
    yield "What you read has a *reason*, a word that never changes, and a message with the details. Look the reason up"
    yield "here, or let the program do it: `aim-adapters lint --explain AdapterRankAboveCeiling`. Each reason has its"
    yield "own anchor, which is the word in lower case: `errors.html#adapterrankaboveceiling`."
    yield "`kubectl aim-adapters why SERVICE` finds the first broken link automatically."
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
    yield "*Example* is a message as kubectl shows it; names and values in it are examples."
    yield ""
    for entry in entries():
        yield from _section(entry)
    yield from ("## Messages without a reason", "")
    yield "They come from the API server, or from the webhook about the request itself."
    yield ""
    yield from table(("message", "means", "what to do"), [(f"`{a.text}`", a.means, a.fix) for a in ANSWERS])


def entries() -> Iterator[Entry]:
    """Yield all that is known of every reason, in alphabetical order."""
    for reason in sorted(Reason):
        entry = explain(reason)
        assert entry is not None
        yield entry


def _section(entry: Entry) -> Iterator[str]:
    yield from (f"### {entry.reason}", "", _text(entry.explanation.meaning), "")
    if entry.explanation.advice:
        yield f"- **What to do**: {_text(entry.explanation.advice)}"
    seen = _CODE.sub(r"`\g<0>`", _text("; ".join(entry.seen)))
    yield f"- **Seen in**: {seen}"
    if entry.fields:
        yield f"- **Fields**: {', '.join(f'`{name}`' for name in entry.fields)}"
    for message in _messages()[entry.reason]:
        yield f"- **Example** {message}"
    yield ""


def _text(text: str) -> str:
    return cell(text).replace("*", r"\*")


_CODE = re.compile(r"status\.adapters\[\]\.lastError|\.warnings\[\]|kubectl aim-adapters why")


@cache
def _messages() -> Mapping[Reason, Iterable[str]]:
    """Return the messages that rules answer their examples with."""
    found: dict[Reason, dict[str, None]] = {reason: {} for reason in Reason}
    for rule in all_rules():
        for reason, message in _spoken(rule):
            found[reason][f"({rule.kinds[0]}): `{message}`"] = None
    return found


def _spoken(rule: Rule) -> Iterator[tuple[Reason, str]]:
    verdict = judge_example(rule, rule.refused, rule.kinds[0])
    for error in verdict.errors:
        if error.reason in rule.reasons and not rule.warns:
            yield error.reason, str(error)
    for warning in verdict.warnings:
        if warning.reason in rule.reasons and rule.warns:
            yield warning.reason, f"Warning: {warning}"


# -- events.md ------------------------------------------------------------------------------------------------------


def _events() -> Iterator[str]:
    yield from heading("Events", "tools.reference_reasons", "api/reasons.py")
    yield "An event reports once that something happened; the present state is in the status. Events come on every"
    yield "change of an adapter's state and only then, on rollouts, downloads and sweeps. They are written by"
    yield "`aim-adapters`; repeats are counted in one event."
    yield ""
    yield from ("```sh", "kubectl get events --field-selector involvedObject.kind=AIMService", "```", "")
    found = {reason: each for reason, each in sorted(EXPLANATIONS.items()) if "event" in each.surfaces}
    rows = [
        (link(reason), each.event_on, each.meaning, each.advice)
        for reason, each in found.items()
        if each.group in (None, "success")
    ]
    yield from table(("reason", "on", "means", "what to do"), rows)
    yield "An event on the AIMArtifact reports a download or sweep that failed, with the reason of the Job:"
    yield ", ".join(link(reason) for reason, each in found.items() if each.group not in (None, "success")) + "."


# -- reasons.md -----------------------------------------------------------------------------------------------------

_TITLES: dict[Group, str] = {
    "success": "Success",
    "source": "The source",
    "disk": "The disk",
    "adapter": "The adapter",
    "warning": "Warnings",
    "command": "The command",
}


def _jobs() -> Iterator[str]:
    yield from heading("Reasons of the disk Jobs", "tools.reference_reasons", "api/reasons.py")
    yield "A Job ends with one of these in its termination message; a failure appears as `Reason: message` in"
    yield "`status.adapters[].lastError`, a warning in `status.adapters[].warnings[]`. The words are stable."
    yield "*Retried*: the same Job may succeed later, and is retried with backoff. The others wait for a change (or for"
    yield "the annotation `aim.eai.amd.com/retry-staging`), and are retried rarely."
    yield ""
    for group, title in _TITLES.items():
        yield from (f"## {title}", "")
        yield from table(("reason", "means", "what to do", "retried"), (_job_row(*one) for one in _of_group(group)))


def _of_group(group: Group) -> Iterator[tuple[Reason, Explanation]]:
    return ((reason, found) for reason, found in EXPLANATIONS.items() if found.group == group)


def _job_row(reason: Reason, found: Explanation) -> tuple[str, str, str, str]:
    return link(reason), found.meaning, found.fix, "yes" if found.retriable else ""


TARGET = Target("The pages of reasons and events", "tools.reference_reasons", ROOT / "docs", render)


def main(argv: list[str]) -> int:
    """Write or verify the pages; returns the exit status."""
    return run(argv, TARGET)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
