"""The output formats of findings: text, JSON, SARIF 2.1.0, GitHub annotations. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from api.reasons import DOCS_URL, EXPLANATIONS, Reason, help_uri
from api.text import clean, clean_line, dump_json, well_formed
from cli.lint.judge import NOT_THERE, Finding

STDIN = "stdin"
_SARIF_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"


@dataclass(frozen=True, slots=True)
class Summary:
    """What was checked, and the findings."""

    files: int
    objects: int
    others: int  # objects of kinds that are not checked
    findings: Sequence[Finding]
    notes: tuple[str, ...] = ()
    offline: bool = True
    foreign: int = 0  # files without an AIM object

    def count(self, level: str) -> int:
        """Return the number of findings of a level."""
        return sum(1 for finding in self.findings if finding.level == level)

    def failed(self, *, strict: bool) -> bool:
        """Return whether the command fails."""
        return bool(self.findings) if strict else self.count("error") > 0


Style = Callable[[str, str], str]  # (name of a style, text) → text


def plain(style: str, text: str) -> str:
    """Return the text unchanged: the output is not a terminal."""
    return text


def to_text(summary: Summary, style: Style = plain) -> str:
    """Return a line for each finding, as compilers write them, and a last line with the totals."""
    lines = [_text_line(finding, style) for finding in summary.findings]
    lines += [style("dim", clean_line(note)) for note in summary.notes]
    if summary.offline and any(finding.reason in NOT_THERE for finding in summary.findings):
        lines.append(
            style("dim", "for objects that are not in the files, use --cluster or --assume SUBJECT.FIELD=VALUE")
        )
    lines.append(_sum_up(summary, style))
    return "\n".join(lines) + "\n"


def _text_line(finding: Finding, style: Style) -> str:
    place = clean_line(f"{finding.file}:{finding.position.line}:{finding.position.column}")
    origin = f" (from {clean(finding.origin)})" if finding.origin else ""
    level = style("red" if finding.level == "error" else "yellow", finding.level)
    path = f"{finding.path}: " if finding.path else ""
    subject = f" {style('dim', clean(finding.subject))}" if finding.subject else ""
    message = clean(f"{path}{finding.message}")
    return f"{style('bold', place)}{origin}: {level}: {message} [{finding.reason}]{subject}"


def _sum_up(summary: Summary, style: Style) -> str:
    errors, warnings = summary.count("error"), summary.count("warning")
    looked = f"{_many(summary.objects, 'object')} in {_many(summary.files, 'file')}"
    if summary.foreign:
        looked += f", of which {_many(summary.foreign, 'file')} {'holds' if summary.foreign == 1 else 'hold'} none"
    if summary.others:
        looked += f" ({_many(summary.others, 'object')} of other kinds not checked)"
    if not summary.findings:
        return f"{style('green', 'no findings')}: {looked}"
    totals = f"{_many(errors, 'error')}, {_many(warnings, 'warning')}"
    return f"{style('red' if errors else 'yellow', totals)}: {looked}; see --explain REASON"


def _many(count: int, word: str) -> str:
    return f"{count} {word}" if count == 1 else f"{count} {word}s"


def to_json(summary: Summary) -> str:
    """Return one JSON object; its shape is stable within version 1."""
    body = {
        "version": 1,
        "summary": {
            "files": summary.files,
            "filesWithoutObjects": summary.foreign,
            "objects": summary.objects,
            "otherObjects": summary.others,
            "errors": summary.count("error"),
            "warnings": summary.count("warning"),
        },
        "notes": list(summary.notes),
        "findings": [_json_finding(finding) for finding in summary.findings],
    }
    return dump_json(body, indent=2) + "\n"


def _json_finding(finding: Finding) -> dict[str, Any]:
    return {
        "file": finding.file,
        "line": finding.position.line,
        "column": finding.position.column,
        "level": finding.level,
        "reason": finding.reason,
        "path": finding.path,
        "message": finding.message,
        "object": finding.subject,
        "template": finding.origin or None,
    }


def to_sarif(summary: Summary, version: str, docs_url: str = DOCS_URL) -> str:
    """Return a SARIF 2.1.0 log with one run: what code hosts show beside the lines of a change.

    `docs_url`: where the pages of the documentation are served.
    """
    reasons = sorted({finding.reason for finding in summary.findings})
    rules = [_sarif_rule(reason, docs_url) for reason in reasons]
    driver = {"name": "aim-adapters lint", "version": version, "rules": rules}
    log = {
        "$schema": _SARIF_SCHEMA,
        "version": "2.1.0",
        "runs": [
            {
                "tool": {"driver": driver},
                "columnKind": "unicodeCodePoints",
                "results": [_sarif_result(finding, reasons) for finding in summary.findings],
            }
        ],
    }
    return dump_json(log, indent=2) + "\n"


def _sarif_rule(reason: Reason, docs_url: str) -> Mapping[str, Any]:
    found = EXPLANATIONS[reason]
    return {
        "id": str(reason),
        "name": str(reason),
        "shortDescription": {"text": found.meaning},
        "help": {"text": found.advice or found.meaning},
        "helpUri": help_uri(reason, docs_url),
    }


def _sarif_result(finding: Finding, reasons: list[Reason]) -> Mapping[str, Any]:
    location: dict[str, Any] = {
        "physicalLocation": {
            "artifactLocation": {"uri": quote(well_formed(finding.file).replace("\\", "/"))},
            "region": {"startLine": finding.position.line, "startColumn": finding.position.column},
        }
    }
    if finding.path or finding.subject:
        name = " ".join(part for part in (finding.subject, finding.path) if part)
        location["logicalLocations"] = [{"fullyQualifiedName": name, "kind": "member"}]
    path = f"{finding.path}: " if finding.path else ""
    identity = hashlib.sha256(
        f"{finding.subject}\0{finding.path}\0{finding.reason}".encode("utf-8", "replace")
    ).hexdigest()[:16]
    return {
        "ruleId": finding.reason,
        "ruleIndex": reasons.index(finding.reason),
        "level": finding.level,
        "message": {"text": f"{path}{finding.message}"},
        "locations": [location],
        "partialFingerprints": {"fieldAndReason/v1": identity},
    }


def to_github(summary: Summary) -> str:
    """Return workflow commands: GitHub shows each beside its line."""
    return "".join(f"{line}\n" for line in _github_lines(summary.findings))


def _github_lines(findings: Iterable[Finding]) -> Iterator[str]:
    for finding in findings:
        path = f"{finding.path}: " if finding.path else ""
        properties = {
            "file": finding.file,
            "line": str(finding.position.line),
            "col": str(finding.position.column),
            "title": f"{finding.reason} {finding.subject}".strip(),
        }
        written = ",".join(f"{key}={_escaped(value, property_=True)}" for key, value in properties.items())
        yield f"::{finding.level} {written}::{_escaped(path + finding.message)}"


def _escaped(text: str, *, property_: bool = False) -> str:
    """Clean a text and escape it as workflow commands require. Source: GitHub Actions, "Workflow commands"."""
    text = clean(text)
    for raw, coded in (("%", "%25"), ("\r", "%0D"), ("\n", "%0A")):
        text = text.replace(raw, coded)
    if property_:
        text = text.replace(":", "%3A").replace(",", "%2C")
    return text
