"""When to replace CA certificates, serving certificates and bundles. Pure: certificates and a time in, a step out.

Why a change of the CA never breaks a handshake: first the new CA is only *trusted* (in the bundle), later it *issues*,
and the old CA stays in the bundle until it expires. A serving certificate cannot outlive the CA that signed it. So when
the old CA expires, no replica still serves a certificate of the old one, however late it noticed the change.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

SKEW = timedelta(
    hours=1
)  # certificates begin this much earlier, for callers with slow clocks; at most a tenth of a lifetime
PUBLISH_TIME = timedelta(minutes=10)  # how long a new CA is trusted before it issues
MAX_TRUSTED = 8  # CA certificates in a bundle: protects against growth, far above what overlaps need


@dataclass(frozen=True, slots=True)
class Validity:
    """Lifetime of a certificate, both ends included, in UTC."""

    not_before: datetime
    not_after: datetime


@dataclass(frozen=True, slots=True)
class Authority:
    """A CA certificate: `fingerprint` is SHA-256 in hex; `has_key`: whether its private key is stored."""

    fingerprint: str
    validity: Validity
    has_key: bool


@dataclass(frozen=True, slots=True)
class Leaf:
    """A serving certificate: its CA, and its names (DNS names and addresses)."""

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
    START = "start"  # nothing usable is stored: create a CA and a serving certificate
    ADD_AUTHORITY = "add-authority"  # trust a new CA; it does not issue yet
    SWITCH_AUTHORITY = "switch-authority"  # the new CA issues from now on
    ISSUE_LEAF = "issue-leaf"
    DROP_EXPIRED = "drop-expired"  # remove expired CA certificates from the bundle


@dataclass(frozen=True, slots=True)
class Decision:
    """`reason` is for the log; `look_again` is when the next step is due if nothing else changes."""

    step: Step
    reason: str
    look_again: datetime


def renew_at(validity: Validity) -> datetime:
    """Return when to replace a certificate: after two thirds of its lifetime.

    Raises: ValueError if the lifetime is empty or negative.
    Source: RFC 5280, section 4.1.2.5 (both ends belong to the lifetime).
    """
    life = validity.not_after - validity.not_before
    if life <= timedelta(0):
        raise ValueError(f"a certificate ends ({validity.not_after}) before it begins ({validity.not_before})")
    return validity.not_before + life * 2 / 3


def is_expired(validity: Validity, now: datetime) -> bool:
    """Return whether a certificate has expired."""
    return now > validity.not_after


def leaf_validity(now: datetime, life: timedelta, issuer: Validity) -> Validity:
    """Return the lifetime of a new serving certificate: it begins early for slow clocks, and never outlives its CA."""
    return Validity(max(now - _skew(life), issuer.not_before), min(now + life, issuer.not_after))


def authority_validity(now: datetime, life: timedelta) -> Validity:
    """Return the lifetime of a new CA certificate."""
    return Validity(now - _skew(life), now + life)


def made_at(validity: Validity) -> datetime:
    """Return when a CA certificate with this lifetime was made: somewhat after its beginning."""
    return validity.not_before + min(SKEW, (validity.not_after - validity.not_before) / 11)


def _skew(life: timedelta) -> timedelta:
    return min(SKEW, life / 10)


def trusted_until(stored: Stored, now: datetime) -> tuple[Authority, ...]:
    """Return the CA certificates that belong in the bundle: all valid ones, without the oldest beyond a maximum."""
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

    Args: `published`: whether all webhook configurations have the stored bundle now.
    """
    later = now + timedelta(hours=12)
    if stored is None:
        return Decision(Step.START, "nothing is stored", later)
    issuing = _find(stored, stored.issuing)
    if issuing is None or not issuing.has_key:
        return Decision(Step.START, "the stored CA has no key", later)
    if is_expired(issuing.validity, now):
        return Decision(Step.START, "the stored CA has expired", later)
    coming = _find(stored, stored.coming)
    if coming is not None and coming.has_key:
        switch_at = made_at(coming.validity) + publish_time
        if published and now >= switch_at:
            return Decision(Step.SWITCH_AUTHORITY, "the new CA is trusted everywhere", later)
        later = min(later, max(switch_at, now + timedelta(seconds=1)))
    elif now >= renew_at(issuing.validity):
        return Decision(Step.ADD_AUTHORITY, "two thirds of the lifetime of the CA are over", later)
    reason = _why_a_new_leaf(stored.leaf, issuing, wanted_names, now)
    if reason:
        return Decision(Step.ISSUE_LEAF, reason, later)
    if len(trusted_until(stored, now)) < len(stored.trusted):
        return Decision(Step.DROP_EXPIRED, "a CA in the bundle has expired", later)
    assert stored.leaf is not None
    due = (renew_at(stored.leaf.validity), renew_at(issuing.validity) if coming is None else later)
    return Decision(Step.NOTHING, "", min(later, *due))


def _find(stored: Stored, fingerprint: str) -> Authority | None:
    return next((authority for authority in stored.trusted if authority.fingerprint == fingerprint), None)


def _why_a_new_leaf(leaf: Leaf | None, issuing: Authority, wanted: frozenset[str], now: datetime) -> str:
    if leaf is None:
        return "there is no usable serving certificate"
    if leaf.issuer != issuing.fingerprint:
        return "another CA signed the serving certificate"
    if not wanted <= leaf.names:
        return f"the serving certificate lacks the names {', '.join(sorted(wanted - leaf.names))}"
    # A certificate that ends together with its CA cannot be extended: the next CA is due first.
    if now >= renew_at(leaf.validity) and leaf.validity.not_after < issuing.validity.not_after:
        return "two thirds of the lifetime of the serving certificate are over"
    return ""
