"""The list of rules: each with what it refuses or warns about, and an example of either side, which tests run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import cache
from traceback import format_exc
from typing import Any

from api.errors import FieldWarning
from api.kinds import Kind
from api.reasons import Reason
from rules.verdict import Failure, Finding


class Basis(Enum):
    """What a rule looks at, and so where it can be asked."""

    BOUND = "bound"  # the size of the manifest; asked before all others, and alone
    OBJECT = "object"  # the manifest alone
    WORLD = "world"  # the manifest and other objects
    TRANSITION = "transition"  # the manifest and its old self: no stored object shows it
    REQUEST = "request"  # the version that the user wrote: no stored object shows it
    STORED = "stored"  # for the reconciler: admission only warns about it, because the object may be applied later

    __hash__ = object.__hash__  # there is one of each; Enum's own hash is a call for every look-up


@dataclass(frozen=True, slots=True)
class Example:
    """A manifest as a merge patch (YAML) over the kind's plain example; `old` makes it an update.

    The other objects are a YAML list, each laid over the plain example of its kind and name.
    """

    new: str
    old: str | None = None
    world: str = "[]"
    version: str = ""  # of the request; empty: the storage version
    allowed_images: tuple[str, ...] = ()  # the setting


Output = Finding | FieldWarning
Check = Callable[[Any], Iterable[Output]]


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule. `reasons` are the stable words that it can report; `warns`: it warns and never refuses.

    `fields`: the fields that its answers are about; `fields_by_reason` where they differ from reason to reason.
    """

    name: str
    kinds: tuple[str, ...]
    basis: Basis
    fields: str
    reasons: tuple[Reason, ...]
    says: str
    check: Check
    warns: bool
    refused: Example
    passes: Example
    when: frozenset[str] = frozenset()  # asked only if one of these fields may need a report; empty: always
    fields_by_reason: Mapping[Reason, str] = field(default_factory=dict)

    def fields_of(self, reason: Reason) -> str:
        """Return the fields that an answer with this reason is about."""
        return self.fields_by_reason.get(reason, self.fields)


_RULES: list[Rule] = []


def rule(
    *kinds: Kind,
    reason: Reason | tuple[Reason, ...],
    fields: str | Mapping[Reason, str],
    refused: Example,
    passes: Example,
    basis: Basis = Basis.OBJECT,
    warns: bool = False,
    when: tuple[str, ...] = (),
    name: str = "",
) -> Callable[[Check], Check]:
    """Register a rule for kinds; the function's docstring is its description in the table of rules.

    `when` names the fields of the spec that the rule is about: if none of them is given, or a glance shows that they
    are as usual, the rule is not asked. `fields` are given by reason where the reasons are about different ones. `name`
    is the function's unless it is given.
    """

    def register(check: Check) -> Check:
        _RULES.append(
            Rule(
                name=name or getattr(check, "__name__", "?"),
                kinds=tuple(kind.kind for kind in kinds),
                basis=basis,
                fields=fields if isinstance(fields, str) else _all_fields(fields),
                reasons=(reason,) if isinstance(reason, Reason) else reason,
                says=" ".join((check.__doc__ or "").split()),
                check=check,
                warns=warns,
                refused=refused,
                passes=passes,
                when=frozenset(when),
                fields_by_reason={} if isinstance(fields, str) else fields,
            )
        )
        return check

    return register


def _all_fields(fields: Mapping[Reason, str]) -> str:
    return ", ".join(dict.fromkeys(part for named in fields.values() for part in named.split(", ")))


def all_rules() -> tuple[Rule, ...]:
    """Return every registered rule in the order of the pages that hold them."""
    return tuple(_RULES)


def rules_for(
    kind: str, *bases: Basis, warns: bool | None = None, about: frozenset[str] | None = None
) -> tuple[Rule, ...]:
    """Return the rules of a kind.

    Of some bases, of errors or warnings only, and of those alone that may have something to say `about` these fields
    of the spec, where asked.
    """
    return tuple(
        entry
        for entry in _RULES
        if kind in entry.kinds
        and (not bases or entry.basis in bases)
        and (warns is None or entry.warns == warns)
        and (about is None or not entry.when or not entry.when.isdisjoint(about))
    )


@cache
def fields_spoken_of() -> frozenset[str]:
    """Return every field of a spec that some rule's `when` names."""
    return frozenset(name for entry in _RULES for name in entry.when)


MOST_COLLECTED = 1000
"""Findings, and warnings, that are collected about one object; people read fewer."""


def run(
    rules: Iterable[Rule], seen: object, *, most: int | None = MOST_COLLECTED
) -> tuple[list[Finding], list[FieldWarning], list[Failure]]:
    """Ask each rule; one that raises is recorded as a failure, and the others are still asked.

    Args: `most` findings and warnings are collected; None: all of them, for a comparison with another list.
    """
    findings: list[Finding] = []
    warnings: list[FieldWarning] = []
    failures: list[Failure] = []
    for entry in rules:
        try:
            for output in entry.check(seen):
                if isinstance(output, Finding):
                    findings.append(output)
                    if len(findings) == most:
                        return findings, warnings, failures
                elif len(warnings) < MOST_COLLECTED:
                    warnings.append(output)
        except Exception:
            failures.append(Failure(entry.name, format_exc(), blocks=not entry.warns))
    return findings, warnings, failures
