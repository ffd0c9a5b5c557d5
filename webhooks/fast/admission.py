"""Admission with all shortcuts: a lean reader, a glance before the rules, and answers past ASGI."""

from __future__ import annotations

import time

from starlette.types import ASGIApp, Receive, Scope, Send

from api.record import record
from rules.verdict import Verdict
from rules.world import World
from webhooks.admission import Admission, AdmissionSettings
from webhooks.confirm import ConfirmReader
from webhooks.fast.glance import left_to_ask
from webhooks.fast.lean import read_lean
from webhooks.fast.protocol import direct_of
from webhooks.metrics import AdmissionMetrics
from webhooks.review import Malformed, Review, parse_review
from webhooks.routes import deadline_of, json_answer, overloaded


def make_admission(
    world: World,
    confirm_reader: ConfirmReader | None = None,
    settings: AdmissionSettings | None = None,
    metrics: AdmissionMetrics | None = None,
) -> Admission:
    """Return admission with the lean reader and the glance: the same answers with less work."""
    return Admission(world, confirm_reader, settings, metrics, read=read, glance=left_to_ask)


def read(body: bytes | bytearray) -> Review | Malformed:
    """Read a body as an AdmissionReview, only as far as rules look where that is enough."""
    return read_lean(body) or parse_review(body)


@record
class _Begun:
    """A review whose verdict must be confirmed before it is answered."""

    review: Review
    verdict: Verdict
    started: float  # by the performance counter


class FastAdmission:
    """An ASGI application in front of another one: it answers what it can at once, and hands on the rest."""

    def __init__(self, admission: Admission, app: ASGIApp) -> None:
        """Answer for `admission`; `app` serves its routes in the usual way."""
        self._admission, self._app = admission, app
        self._webhooks = {path.encode(): judge for path, judge in admission.webhooks.items()}

    def answer_now(self, target: bytes, body: bytearray) -> bytes | object | None:
        """Answer a whole review if nothing has to be waited for (see `webhooks.fast.protocol`)."""
        admission = self._admission
        judge = self._webhooks.get(target.partition(b"?")[0])
        if judge is None or len(body) > admission.settings.max_body_bytes:
            return None
        started = time.perf_counter()
        review = admission.read(body)
        if isinstance(review, Malformed):
            return admission.too_deep(review) if review.too_deep and review.uid else None
        if admission.full:
            return None
        try:
            reply = judge(review)
        except Exception:
            reply = admission.crashed(review)
        if isinstance(reply, Verdict):
            return _Begun(review, reply, started)
        admission.metrics.seconds.observe(time.perf_counter() - started)
        return reply

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Confirm and answer a review that `answer_now` began; hand on every other request."""
        direct = direct_of(scope)
        if direct is None or not isinstance(direct.begun, _Begun):
            await self._app(scope, receive, send)
            return
        admission, begun = self._admission, direct.begun
        deadline = deadline_of(scope["query_string"], admission.settings)
        if not admission.enter():
            await overloaded(admission, begun.review.uid)(scope, receive, send)
            return
        try:
            reply = await admission.confirmed(begun.review, begun.verdict, deadline)
        finally:
            admission.leave()
        admission.metrics.seconds.observe(time.perf_counter() - begun.started)
        if not direct.answer_json(reply):
            await json_answer(200, reply)(scope, receive, send)
