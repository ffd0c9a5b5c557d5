"""Every rule's own examples: the one refuses or warns, the other passes."""

from __future__ import annotations

from pathlib import Path

import pytest

from rules.examples import judge_example
from rules.registry import Rule, all_rules
from tools.reference_rules import render

CASES = [pytest.param(entry, kind, id=f"{kind}-{entry.name}") for entry in all_rules() for kind in entry.kinds]


@pytest.mark.parametrize(("entry", "kind"), CASES)
def test_the_refused_example_is_refused(entry: Rule, kind: str) -> None:
    verdict = judge_example(entry, entry.refused, kind)
    assert not verdict.failures
    spoken = [warning.reason for warning in verdict.warnings] if entry.warns else [e.reason for e in verdict.errors]
    assert set(spoken) & set(entry.reasons)
    if entry.warns:
        assert verdict.allowed


@pytest.mark.parametrize(("entry", "kind"), CASES)
def test_the_passing_example_passes(entry: Rule, kind: str) -> None:
    verdict = judge_example(entry, entry.passes, kind)
    assert verdict.allowed, [str(error) for error in verdict.errors]
    assert not {warning.reason for warning in verdict.warnings} & (set(entry.reasons) if entry.warns else set())


def test_rules_are_documented_and_their_names_unique() -> None:
    assert all(entry.says.endswith(".") for entry in all_rules())
    names = [entry.name for entry in all_rules()]
    assert len(names) == len(set(names))


def test_fields_by_reason_name_each_reason_of_the_rule() -> None:
    for rule in all_rules():
        assert rule.fields_by_reason.keys() in (set(), set(rule.reasons)), rule.name
        assert all(set(rule.fields_of(reason).split(", ")) <= set(rule.fields.split(", ")) for reason in rule.reasons)


def test_the_page_is_up_to_date() -> None:
    page = Path(__file__).parents[3] / "docs" / "rules.md"
    assert page.read_text() == render(), "run: make generate"
