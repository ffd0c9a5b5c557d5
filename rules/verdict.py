"""What rules report about an object: findings with the objects that they depend on, and the verdict."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from api.errors import FieldError, FieldWarning, sorted_errors
from api.record import record
from api.text import clean
from rules.references import Ref

_INDEX = re.compile(r"\[\d+\]")
MOST_WARNINGS = 10
LONGEST_WARNING = 120


@record
class Finding:
    """An error, the objects that it depends on, and its subject.

    `rests_on`: objects other than the checked one whose presence, absence or content causes the error; empty when the
    manifest alone does. `subject` distinguishes the same fault at another place (a reordered list) from a new one;
    empty: the error's path without indexes.
    """

    error: FieldError
    rests_on: tuple[Ref, ...] = ()
    subject: str = ""

    @property
    def identity(self) -> tuple[str, str, str]:
        """Equal for the same fault in the old and the new object."""
        return (self.error.reason, self.subject or _INDEX.sub("[]", self.error.path), str(self.error.value))


@dataclass(frozen=True, slots=True)
class Failure:
    """A rule that raised: its name and the traceback, for the log only. A broken warning refuses nothing."""

    rule: str
    text: str
    blocks: bool = True


@record
class Verdict:
    """Everything that the rules report about one object. `failures`: rules that raised; the others still reported."""

    findings: tuple[Finding, ...] = ()
    warnings: tuple[FieldWarning, ...] = ()
    failures: tuple[Failure, ...] = field(default=())

    @property
    def allowed(self) -> bool:
        """Whether the object is accepted."""
        return not self.findings and not self.blocked

    @property
    def blocked(self) -> bool:
        """Whether a rule that can refuse has failed."""
        return any(failure.blocks for failure in self.failures)

    @property
    def errors(self) -> list[FieldError]:
        """The errors once each, sorted by field path."""
        return sorted_errors(finding.error for finding in self.findings)

    @property
    def warning_texts(self) -> list[str]:
        """At most ten texts of at most 120 characters, the most important first."""
        return warning_texts(self.warnings)


NOTHING_SAID = Verdict()
"""The verdict about most objects."""


def warning_texts(warnings: Iterable[FieldWarning]) -> list[str]:
    """Return warnings as Kubernetes wants them: at most ten, each at most 120 characters, most important first."""
    ranked = sorted(warnings, key=lambda warning: (warning.weight, warning.path, warning.detail))
    texts = list(dict.fromkeys(clean(str(warning), LONGEST_WARNING) for warning in ranked))
    if len(texts) <= MOST_WARNINGS:
        return texts
    left = len(texts) - (MOST_WARNINGS - 1)
    return [*texts[: MOST_WARNINGS - 1], f"{left} more warnings were left out; `aim-adapters lint` shows all"]
