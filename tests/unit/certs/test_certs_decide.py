"""When certificates are replaced, and in which order trust and service change."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from certs.decide import (
    SKEW,
    Authority,
    Leaf,
    Step,
    Stored,
    Validity,
    authority_validity,
    decide,
    leaf_validity,
    made_at,
    renew_at,
    trusted_until,
)

T0 = datetime(2026, 1, 1, tzinfo=UTC)
DAY = timedelta(days=1)
NAMES = frozenset({"svc.ns.svc"})


def authority(fingerprint: str, start: datetime = T0, life: timedelta = 300 * DAY, *, key: bool = True) -> Authority:
    return Authority(fingerprint, Validity(start - SKEW, start + life), key)


def leaf(issuer: str, start: datetime = T0, life: timedelta = 90 * DAY, names: frozenset[str] = NAMES) -> Leaf:
    return Leaf(issuer, Validity(start - SKEW, start + life), names)


FRESH = Stored((authority("a"),), "a", "", leaf("a"))
OVERLAP = Stored((authority("a"), authority("b", T0 + 210 * DAY)), "a", "b", leaf("a", T0 + 200 * DAY))
SWITCHED = Stored((authority("a", key=False), authority("b", T0 + 210 * DAY)), "b", "", leaf("b", T0 + 211 * DAY))

CASES = {
    "nothing stored": (None, T0, True, Step.START),
    "all fresh": (FRESH, T0 + DAY, True, Step.NOTHING),
    "the leaf is two thirds through": (FRESH, T0 + 61 * DAY, True, Step.ISSUE_LEAF),
    "the leaf is not yet two thirds through": (FRESH, T0 + 59 * DAY, True, Step.NOTHING),
    "the leaf lacks a name": (replace(FRESH, leaf=leaf("a", names=frozenset())), T0, True, Step.ISSUE_LEAF),
    "the leaf has a name more": (replace(FRESH, leaf=leaf("a", names=NAMES | {"x"})), T0, True, Step.NOTHING),
    "the leaf is damaged": (replace(FRESH, leaf=None), T0, True, Step.ISSUE_LEAF),
    "the leaf is someone else's": (replace(FRESH, leaf=leaf("?")), T0, True, Step.ISSUE_LEAF),
    "the authority's key is lost": (replace(FRESH, trusted=(authority("a", key=False),)), T0, True, Step.START),
    "the authority is two thirds through": (FRESH, T0 + 201 * DAY, True, Step.ADD_AUTHORITY),
    "the authority is dead": (FRESH, T0 + 301 * DAY, True, Step.START),
    "a new authority is trusted but too young to issue": (OVERLAP, T0 + 210 * DAY, True, Step.NOTHING),
    "a new authority is not in all bundles": (OVERLAP, T0 + 211 * DAY, False, Step.NOTHING),
    "a new authority has been trusted long enough": (OVERLAP, T0 + 211 * DAY, True, Step.SWITCH_AUTHORITY),
    "the old authority still lives": (SWITCHED, T0 + 212 * DAY, True, Step.NOTHING),
    "the old authority is dead": (
        replace(SWITCHED, leaf=leaf("b", T0 + 300 * DAY)),
        T0 + 301 * DAY,
        True,
        Step.DROP_EXPIRED,
    ),
    "a leaf cut short by its authority waits for the next one": (
        replace(OVERLAP, leaf=leaf("a", T0 + 200 * DAY, 100 * DAY)),
        T0 + 290 * DAY,
        False,
        Step.NOTHING,
    ),
}


@pytest.mark.parametrize(("stored", "now", "published", "step"), CASES.values(), ids=CASES)
def test_the_next_step(stored: Stored | None, now: datetime, published: bool, step: Step) -> None:
    assert decide(stored, NAMES, now, published=published).step is step


def test_it_looks_again_when_time_alone_makes_a_step_due() -> None:
    now = T0 + 60 * DAY - timedelta(hours=2)
    again = decide(FRESH, NAMES, now, published=True).look_again
    assert decide(FRESH, NAMES, again, published=True).step is Step.ISSUE_LEAF


def test_renewal_is_at_two_thirds() -> None:
    assert renew_at(Validity(T0, T0 + 90 * DAY)) == T0 + 60 * DAY
    with pytest.raises(ValueError, match="before it begins"):
        renew_at(Validity(T0, T0))


def test_a_leaf_tolerates_slow_clocks_and_never_outlives_its_authority() -> None:
    issuer = Validity(T0 - SKEW, T0 + 10 * DAY)
    assert leaf_validity(T0 + DAY, 90 * DAY, issuer) == Validity(T0 + DAY - SKEW, T0 + 10 * DAY)


@pytest.mark.parametrize("life", [timedelta(seconds=20), timedelta(hours=1), 90 * DAY])
def test_what_was_just_made_is_not_due_at_once(life: timedelta) -> None:
    """Also for short lives, whose beginning must not be put further back than they last."""
    issuer = authority_validity(T0, life * 3)
    assert renew_at(issuer) > T0 + life
    assert renew_at(leaf_validity(T0, life, issuer)) > T0 + life / 2
    assert abs(made_at(issuer) - T0) < timedelta(seconds=1)


def test_a_bundle_is_bounded_but_keeps_what_issues() -> None:
    many = tuple(authority(f"{n}", T0 + n * DAY) for n in range(20))
    kept = {a.fingerprint for a in trusted_until(Stored(many, "0", "1", None), T0)}
    assert len(kept) == 8
    assert {"0", "1", "19"} <= kept


moments = st.integers(-200 * 24, 800 * 24).map(lambda hours: T0 + timedelta(hours=hours))


@given(st.sampled_from([None, FRESH, OVERLAP, SWITCHED]), moments, st.booleans())
def test_it_is_total_and_always_looks_again_later(stored: Stored | None, now: datetime, published: bool) -> None:
    decision = decide(stored, NAMES, now, published=published)
    if decision.step is Step.NOTHING:
        assert decision.look_again > now
