"""What admission decides: a body in, the bytes of an answer out. Any HTTP server can call it.

Nothing here reads a network on its own, except the bounded confirmation of a refusal.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from api.text import clean
from rules.seen import Context
from rules.validate import Glance, every_rule, validate
from rules.verdict import LONGEST_WARNING, Verdict
from rules.world import World
from webhooks import answer
from webhooks.confirm import ConfirmReader, confirm, needs_confirmation
from webhooks.metrics import AdmissionMetrics
from webhooks.mutate import encode, mutate
from webhooks.review import MUTATE_PATH, VALIDATE_PATH, Malformed, Review, parse_review

log = logging.getLogger(__name__)

MOST_KEPT = 20  # errors that are kept of one refusal

Judge = Callable[[Review], bytes | Verdict]
"""Returns the answer to a review, or a verdict that must be confirmed by live reads first."""


@dataclass(frozen=True, slots=True)
class AdmissionSettings:
    """Limits of admission. `max_in_flight` is the setting of the server with the same name."""

    max_body_bytes: int = 8 * 1024 * 1024
    max_buffered_bytes: int = 128 * 1024 * 1024  # of all bodies that are being received
    max_in_flight: int = 256
    confirm_seconds: float = 1.0
    default_timeout_seconds: float = 5.0
    longest_timeout_seconds: float = 30.0  # the most that a webhook configuration can set
    recent_refusals: int = 200
    admission_only: bool = False
    rollout: str = "maxSurge 0, maxUnavailable 1"
    allowed_download_images: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Refusal:
    """One recent refusal, for people who ask what was refused and why."""

    at: float  # seconds since the epoch
    kind: str
    namespace: str
    name: str
    operation: str
    errors: tuple[str, ...]  # the first of them
    reasons: tuple[str, ...] = ()  # of each of these
    count: int = 0  # of all errors


class Admission:
    """Judges reviews. `refusals` holds the recent ones, newest last (dry runs leave none)."""

    def __init__(
        self,
        world: World,
        confirm_reader: ConfirmReader | None = None,
        settings: AdmissionSettings | None = None,
        metrics: AdmissionMetrics | None = None,
        *,
        read: Callable[[bytes | bytearray], Review | Malformed] = parse_review,
        glance: Glance = every_rule,
    ) -> None:
        """Judge with the objects of the given `World`; without a reader refusals are not confirmed.

        Args: `read` and `glance` may be replaced by faster ones with the same results (`webhooks.fast`).
        """
        self.settings = settings or AdmissionSettings()
        self.metrics = metrics or AdmissionMetrics()
        self.refusals: deque[Refusal] = deque(maxlen=self.settings.recent_refusals)
        self.read = read
        self.in_flight = 0  # reviews between their whole body and their answer
        self.buffered = 0  # bytes of bodies that are being received
        self.webhooks: Mapping[str, Judge] = {VALIDATE_PATH: self.validate, MUTATE_PATH: self.mutate}
        self._world = world
        self._reader = confirm_reader
        self._glance = glance
        self._context = Context(
            self.settings.admission_only, self.settings.rollout, self.settings.allowed_download_images
        )
        self.metrics.in_flight.set_function(lambda: float(self.in_flight))

    # -- how many at once -------------------------------------------------------------------------------------------

    @property
    def full(self) -> bool:
        """Whether as many reviews are in flight as the settings allow."""
        return self.in_flight >= self.settings.max_in_flight

    def enter(self) -> bool:
        """Count a review in, False when there is no room for it. Each success needs one `leave`."""
        if self.full:
            return False
        self.in_flight += 1
        return True

    def leave(self) -> None:
        """Count a review out."""
        self.in_flight -= 1

    # -- the verdict ------------------------------------------------------------------------------------------------

    def validate(self, review: Review) -> bytes | Verdict:
        """Return the answer, or the verdict that must be confirmed by live reads first."""
        if not review.judged:
            return self._not_judged("validate", review)
        verdict = self._judge(review, self._world)
        if self._reader is not None and verdict.findings and needs_confirmation(verdict):
            return verdict
        return self._answer(review, verdict)

    def mutate(self, review: Review) -> bytes:
        """Return the answer with the patch that the object needs."""
        if not review.judged:
            return self._not_judged("mutate", review)
        assert review.kind is not None, "a review without kind is not judged"
        assert review.new is not None, "a review without object is not judged"
        patch = mutate(review.kind, review.new)
        self.metrics.review("mutate", review.kind.kind, review.operation, "allowed")
        return answer.allowed(review.uid, patch=encode(patch) if patch else None)

    async def confirmed(self, review: Review, verdict: Verdict, deadline: float) -> bytes:
        """Return the answer after live reads of the objects that a refusal rests on. Never raises.

        Args: `deadline` by the clock of the event loop.
        """
        try:
            assert self._reader is not None, "without a reader nothing is confirmed"
            # Half of the time that remains: the answer must still travel, and a late one is useless.
            left = (deadline - asyncio.get_running_loop().time()) / 2
            budget = min(self.settings.confirm_seconds, left)
            found = await confirm(lambda world: self._judge(review, world), verdict, self._world, self._reader, budget)
            self.metrics.confirmation("withdrawn" if found.allowed else "confirmed")
            return self._answer(review, found)
        except Exception:
            return self.crashed(review)

    def too_deep(self, found: Malformed) -> bytes:
        """Return the answer to a review whose object is nested more deeply than a parser accepts."""
        self.metrics.turned_away("too_large")
        return answer.failed(found.uid, 422, "Invalid", found.detail)

    def crashed(self, review: Review) -> bytes:
        """Return the answer after an exception, which is being handled; it is logged under a reference."""
        reference = secrets.token_hex(4)
        log.exception("a review could not be answered", extra={"uid": review.uid, "reference": reference})
        self.metrics.turned_away("crashed")
        text = f"aim-adapters could not judge this object; its log has the cause under reference {reference}"
        return answer.failed(review.uid, 500, "InternalError", text)

    def _judge(self, review: Review, world: World) -> Verdict:
        assert review.kind is not None, "a review without kind is not judged"
        assert review.new is not None, "a review without object is not judged"
        return validate(
            review.kind,
            review.new,
            review.old,
            world,
            request_version=review.version,
            context=self._context,
            glance=self._glance,
        )

    def _answer(self, review: Review, verdict: Verdict) -> bytes:
        for failure in verdict.failures:
            log.error("a rule failed", extra={"uid": review.uid, "rule": failure.rule, "traceback": failure.text})
        kind = review.kind.kind if review.kind else ""
        for warning in verdict.warnings:
            self.metrics.rule(warning.reason, "warned")
        if verdict.allowed:
            self.metrics.review("validate", kind, review.operation, "allowed")
            return answer.allowed(review.uid, verdict.warning_texts if verdict.warnings else ())
        reference = _reference(review, verdict)
        self.metrics.review("validate", kind, review.operation, "failed" if verdict.blocked else "refused")
        errors = verdict.errors
        for error in errors:
            self.metrics.rule(error.reason, "refused")
        texts = tuple([str(error) for error in errors])
        if not review.dry_run:
            place = (kind, review.namespace, answer.object_name(review), review.operation)
            reasons = tuple([error.reason for error in errors[:MOST_KEPT]])
            self.refusals.append(Refusal(time.time(), *place, texts[:MOST_KEPT], reasons, len(errors)))
        return answer.refused(review, verdict, errors, texts, reference)

    def _not_judged(self, webhook: str, review: Review) -> bytes:
        self.metrics.review(webhook, "other", "other", "allowed")
        if review.kind is None:
            return answer.allowed(
                review.uid, [clean(f"aim-adapters has no rules for {review.kind_words}", LONGEST_WARNING)]
            )
        return answer.allowed(review.uid)


def _reference(review: Review, verdict: Verdict) -> str:
    """Return the reference that a failed check is logged under, an empty one where no check failed."""
    if not verdict.failures:
        return ""
    reference = secrets.token_hex(4)
    log.error(
        "a review was answered without all checks",
        extra={"uid": review.uid, "reference": reference, "rules": [failure.rule for failure in verdict.failures]},
    )
    return reference
