"""The verdict about one object: every rule that applies to it, without errors that an edit did not cause."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache, lru_cache
from typing import Protocol

from api.errors import FieldWarning
from api.kinds import AIM_SERVICE, Kind
from api.reasons import Reason
from api.view import Json
from rules import (
    adapter_list_rules,
    artifact_rules,
    bound_rules,
    config_rules,
    env_rules,
    image_rules,
    model_rules,
    profile_rules,
    reference_rules,
    served_rules,
    service_warnings,
    source_rules,
)
from rules.bounds import beyond
from rules.registry import MOST_COLLECTED, Basis, Rule, rules_for, run
from rules.seen import DEFAULT_CONTEXT, Context, Seen, ServiceSeen, same
from rules.verdict import NOTHING_SAID, Finding, Verdict
from rules.world import World

PAGES = (
    bound_rules,
    served_rules,
    adapter_list_rules,
    reference_rules,
    service_warnings,
    artifact_rules,
    config_rules,
    profile_rules,
    model_rules,
    source_rules,
    env_rules,
    image_rules,
)
"""The modules with rules; importing them registers the rules."""

Fields = frozenset[str]
ToAsk = tuple[tuple[Basis, Fields | None], ...]
"""Bases whose rules are asked, with the fields of the spec that they may report on; None: all fields."""


class Glance(Protocol):
    """A quick look at an object that returns which rules could report something.

    It may return too many bases and fields, never too few: the verdict with it equals the verdict without it.
    """

    def __call__(self, seen: Seen, bases: tuple[Basis, ...]) -> ToAsk:
        """Return what remains to ask; empty: no rule reports anything."""
        ...


def every_rule(seen: Seen, bases: tuple[Basis, ...]) -> ToAsk:
    """Return all rules of the bases: the default, without a glance."""
    return tuple([(basis, None) for basis in bases])


_RATCHETED_WEIGHT = 8
_ON_CREATION = (Basis.OBJECT, Basis.WORLD, Basis.REQUEST)
_ON_UPDATE = (*_ON_CREATION, Basis.TRANSITION)
_WHEN_STORED = (Basis.OBJECT, Basis.WORLD, Basis.STORED)


def validate(
    kind: Kind,
    new: Json,
    old: Json | None,
    world: World,
    *,
    request_version: str = "",
    context: Context = DEFAULT_CONTEXT,
    glance: Glance = every_rule,
) -> Verdict:
    """Check an object that is created (`old` is None) or updated.

    An object beyond a bound gets that one error, and no rule is asked (docs/contract.md, Bounds). An update that leaves
    the spec unchanged (labels, annotations, finalizers, also of a terminating object) is admitted
    without a check. An error that the old object already had is a warning (ratcheting). An error about the version of
    the request that the old object already had is dropped: no stored object causes it.
    Args: `request_version` is the version that the user wrote (`v1alpha2`), empty if unknown; `glance` selects the
    rules to ask and changes the cost, never the verdict. Nothing is changed.
    """
    if old is not None and same(old.get("spec"), new.get("spec")):
        return NOTHING_SAID
    if (large := beyond(kind, new)) is not None:
        return Verdict((large,))
    seen = _see(kind, new, old, world, request_version=request_version, context=context)
    left = glance(seen, _ON_CREATION if old is None else _ON_UPDATE)
    if not left:
        return NOTHING_SAID
    most = MOST_COLLECTED if old is None else None  # an edit: what it did not cause may come first
    findings, warnings, failures = run(_rules_to_ask(kind.kind, left, None), seen, most=most)
    if findings and old is not None and seen.before is not None and beyond(kind, old) is None:
        findings, ratcheted = _ratchet(kind, findings, seen.before)
        warnings.extend(ratcheted)
    return Verdict(tuple(findings), tuple(warnings), tuple(failures))


def judge_stored(kind: Kind, obj: Json, world: World, *, context: Context = DEFAULT_CONTEXT) -> Verdict:
    """Check an object as it is stored: the same rules, except those about a request's version and transitions."""
    return judge_seen(_see(kind, obj, None, world, request_version="", context=context))


def judge_seen(seen: Seen) -> Verdict:
    """Judge a stored object as `judge_stored` does, reusing what was already worked out about it."""
    if (large := beyond(seen.kind, seen.new)) is not None:
        return Verdict((large,))
    findings, warnings, failures = run(_rules_to_ask(seen.kind.kind, every_rule(seen, _WHEN_STORED), False), seen)
    return Verdict(tuple(findings), tuple(warnings), tuple(failures))


def _see(kind: Kind, new: Json, old: Json | None, world: World, *, request_version: str, context: Context) -> Seen:
    maker = ServiceSeen if kind.kind == AIM_SERVICE.kind else Seen
    return maker(kind, new, old, world, request_version=request_version, context=context)


def _ratchet(kind: Kind, findings: Iterable[Finding], before: Seen) -> tuple[list[Finding], list[FieldWarning]]:
    findings = tuple(findings)
    spoken = frozenset(finding.error.reason for finding in findings)
    had = {finding.identity for finding in run(_rules_that_say(kind.kind, spoken), before, most=None)[0]}
    of_the_version = _said_of_requests(kind.kind)
    fresh: list[Finding] = []
    warnings: list[FieldWarning] = []
    for finding in findings:
        if finding.identity in had:
            error = finding.error
            if error.reason in of_the_version:  # the object is valid in the other version
                continue
            if len(warnings) < MOST_COLLECTED:
                detail = f"still invalid: {error.detail}"
                warnings.append(FieldWarning(error.path, error.reason, detail, _RATCHETED_WEIGHT))
        elif len(fresh) < MOST_COLLECTED:
            fresh.append(finding)
    return fresh, warnings


@lru_cache(maxsize=1024)
def _rules_to_ask(kind: str, left: ToAsk, warns: bool | None) -> tuple[Rule, ...]:
    return tuple(entry for basis, fields in left for entry in rules_for(kind, basis, warns=warns, about=fields))


@lru_cache(maxsize=1024)
def _rules_that_say(kind: str, reasons: frozenset[Reason]) -> tuple[Rule, ...]:
    refusing = rules_for(kind, Basis.OBJECT, Basis.WORLD, Basis.REQUEST, warns=False)
    return tuple(entry for entry in refusing if not reasons.isdisjoint(entry.reasons))


@cache
def _said_of_requests(kind: str) -> frozenset[Reason]:
    return frozenset(reason for entry in rules_for(kind, Basis.REQUEST) for reason in entry.reasons)
