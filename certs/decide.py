"""When to replace what: certificate authorities, leaves, bundles. Pure: certificates and a time in, a step out.

How a change of the authority never breaks a handshake: the new authority is first only *trusted* (in the bundle),
later it *issues*, and the old one stays in the bundle until it expires. A leaf cannot outlive the authority that signed
it, so at that moment no replica can still be serving a leaf of the old one, however late it noticed the change.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

SKEW = timedelta(
    hours=1
)  # certificates begin so much earlier, for clocks that are behind ours; at most a tenth of a life
PUBLISH_TIME = timedelta(minutes=10)  # a new authority is trusted for so long before it issues
MAX_TRUSTED = 8  # authorities in a bundle: a net against growth, far above what overlaps need


@dataclass(frozen=True, slots=True)
class Validity:
    """Life of a certificate, both ends included, in UTC."""

    not_before: datetime
    not_after: datetime


@dataclass(frozen=True, slots=True)
class Authority:
    """A certificate authority: `fingerprint` is SHA-256 in hex; `has_key` tells whether we can sign with it."""

    fingerprint: str
    validity: Validity
    has_key: bool


@dataclass(frozen=True, slots=True)
class Leaf:
    """A serving certificate: by which authority, for which names (DNS names and addresses)."""

    issuer: str  # fingerprint
    validity: Validity
    names: frozenset[str]


@dataclass(frozen=True, slots=True)
class Stored:
    """What the Secret holds. `trusted` in the bundle's order; `issuing` and `coming` are fingerprints ("" for none)."""

    trusted: tuple[Authority, ...]
    issuing: str
    coming: str
    leaf: Leaf | None


class Step(StrEnum):
    """The one change that is due."""

    NOTHING = "nothing"
    START = "start"  # nothing usable is stored: make an authority and a leaf
    ADD_AUTHORITY = "add-authority"  # trust a new one; it does not issue yet
    SWITCH_AUTHORITY = "switch-authority"  # the new one issues from now on
    ISSUE_LEAF = "issue-leaf"
    DROP_EXPIRED = "drop-expired"  # take dead authorities out of the bundle


@dataclass(frozen=True, slots=True)
class Decision:
    """`reason` is for the log; `look_again` is when time alone makes a step due."""

    step: Step
    reason: str
    look_again: datetime


def renew_at(validity: Validity) -> datetime:
    """Return when to replace a certificate: two thirds through its life.

    Raises: ValueError if the life is empty or negative.
    Source: RFC 5280, section 4.1.2.5 (both ends belong to the life).
    """
    life = validity.not_after - validity.not_before
    if life <= timedelta(0):
        raise ValueError(f"a certificate ends ({validity.not_after}) before it begins ({validity.not_before})")
    return validity.not_before + life * 2 / 3


def is_expired(validity: Validity, now: datetime) -> bool:
    """Tell whether a certificate is past its end."""
    return now > validity.not_after


def leaf_validity(now: datetime, life: timedelta, issuer: Validity) -> Validity:
    """Return the life of a new leaf: begins early for slow clocks, never outlives its authority."""
    return Validity(max(now - _skew(life), issuer.not_before), min(now + life, issuer.not_after))


def authority_validity(now: datetime, life: timedelta) -> Validity:
    """Return the life of a new authority."""
    return Validity(now - _skew(life), now + life)


def made_at(validity: Validity) -> datetime:
    """Return when an authority with this life was made: somewhat after its beginning."""
    return validity.not_before + min(SKEW, (validity.not_after - validity.not_before) / 11)


def _skew(life: timedelta) -> timedelta:
    return min(SKEW, life / 10)


def trusted_until(stored: Stored, now: datetime) -> tuple[Authority, ...]:
    """Return the authorities that belong in the bundle: all that live, the oldest left out beyond a bound."""
    alive = [authority for authority in stored.trusted if not is_expired(authority.validity, now)]
    needed = {stored.issuing, stored.coming}
    while len(alive) > MAX_TRUSTED:
        spare = [authority for authority in alive if authority.fingerprint not in needed]
        if not spare:
            break
        alive.remove(min(spare, key=lambda authority: authority.validity.not_after))
    return tuple(alive)


def decide(
    stored: Stored | None,
    wanted_names: frozenset[str],
    now: datetime,
    *,
    published: bool,
    publish_time: timedelta = PUBLISH_TIME,
) -> Decision:
    """Return the next step for a self-managed certificate.

    Args: `published` tells whether all webhook configurations carry the stored bundle just now.
    """
    later = now + timedelta(hours=12)
    if stored is None:
        return Decision(Step.START, "nothing is stored", later)
    issuing = _find(stored, stored.issuing)
    if issuing is None or not issuing.has_key:
        return Decision(Step.START, "the stored authority cannot issue", later)
    if is_expired(issuing.validity, now):
        return Decision(Step.START, "the stored authority has expired", later)
    coming = _find(stored, stored.coming)
    if coming is not None and coming.has_key:
        switch_at = made_at(coming.validity) + publish_time
        if published and now >= switch_at:
            return Decision(Step.SWITCH_AUTHORITY, "the new authority is trusted everywhere", later)
        later = min(later, max(switch_at, now + timedelta(seconds=1)))
    elif now >= renew_at(issuing.validity):
        return Decision(Step.ADD_AUTHORITY, "the authority is two thirds through its life", later)
    reason = _why_a_new_leaf(stored.leaf, issuing, wanted_names, now)
    if reason:
        return Decision(Step.ISSUE_LEAF, reason, later)
    if len(trusted_until(stored, now)) < len(stored.trusted):
        return Decision(Step.DROP_EXPIRED, "an authority in the bundle has expired", later)
    assert stored.leaf is not None
    due = (renew_at(stored.leaf.validity), renew_at(issuing.validity) if coming is None else later)
    return Decision(Step.NOTHING, "", min(later, *due))


def _find(stored: Stored, fingerprint: str) -> Authority | None:
    return next((authority for authority in stored.trusted if authority.fingerprint == fingerprint), None)


def _why_a_new_leaf(leaf: Leaf | None, issuing: Authority, wanted: frozenset[str], now: datetime) -> str:
    if leaf is None:
        return "there is no usable serving certificate"
    if leaf.issuer != issuing.fingerprint:
        return "the serving certificate is of another authority"
    if not wanted <= leaf.names:
        return f"the serving certificate lacks the names {', '.join(sorted(wanted - leaf.names))}"
    # A leaf that ends with its authority would come out no longer-lived: the next authority is on its way.
    if now >= renew_at(leaf.validity) and leaf.validity.not_after < issuing.validity.not_after:
        return "the serving certificate is two thirds through its life"
    return ""
