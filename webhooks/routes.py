"""The admission server: two hot endpoints as plain ASGI, everything else through FastAPI.

Nothing here reads a network on its own, except the bounded confirmation of a refusal.
"""

from __future__ import annotations

import asyncio
import logging
import re
import secrets
import time
from collections import deque
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from fastapi import FastAPI

from api.record import record
from rules.seen import Context
from rules.validate import validate
from rules.verdict import Verdict, one_line
from rules.world import World
from webhooks import answer
from webhooks.confirm import ConfirmReader, confirm, needs_confirmation
from webhooks.fast.direct import Direct, direct_of
from webhooks.fast.lean import read_lean
from webhooks.metrics import AdmissionMetrics
from webhooks.mutate import encode, mutate
from webhooks.review import Malformed, Review, parse_review
from webhooks.slots import OverloadedError, Slots

log = logging.getLogger(__name__)

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

VALIDATE_PATH = "/validate"
MUTATE_PATH = "/mutate"
MOST_KEPT = 20  # errors that are kept of one refusal


@dataclass(frozen=True, slots=True)
class AdmissionSettings:
    """Bounds of the admission server."""

    max_body_bytes: int = 8 * 1024 * 1024
    max_buffered_bytes: int = 128 * 1024 * 1024  # bodies being received, all together
    max_in_flight: int = 64
    max_queued: int = 128
    confirm_seconds: float = 1.0
    default_timeout_seconds: float = 5.0
    longest_timeout_seconds: float = 30.0  # the most that a webhook configuration can say
    recent_refusals: int = 200
    admission_only: bool = False
    rollout: str = "maxSurge 0, maxUnavailable 1"


@dataclass(frozen=True, slots=True)
class Refusal:
    """One refusal of the recent past, for people who ask what was refused and why."""

    at: float  # seconds since the epoch
    kind: str
    namespace: str
    name: str
    operation: str
    errors: tuple[str, ...]  # the first of them
    reasons: tuple[str, ...] = ()  # of each of these
    count: int = 0  # of all errors


class _BodyTooLargeError(Exception):
    pass


@record
class _Begun:
    """A review whose verdict has to be confirmed before it is spoken."""

    review: Review
    verdict: Verdict
    started: float  # by the performance counter


class Admission:
    """The ASGI application.

    `api` is the FastAPI part; `refusals` are the recent ones, newest last (dry runs leave none).
    """

    def __init__(
        self,
        world: World,
        confirm_reader: ConfirmReader | None = None,
        settings: AdmissionSettings | None = None,
        metrics: AdmissionMetrics | None = None,
    ) -> None:
        """Judge by `world`; without a reader refusals are not confirmed."""
        self.settings = settings or AdmissionSettings()
        self.metrics = metrics or AdmissionMetrics()
        self.refusals: deque[Refusal] = deque(maxlen=self.settings.recent_refusals)
        self.api = _api()
        self._world = world
        self._reader = confirm_reader
        self._context = Context(self.settings.admission_only, self.settings.rollout)
        self._slots = Slots(self.settings.max_in_flight, self.settings.max_queued)
        self.metrics.in_flight.set_function(lambda: float(self._slots.taken))
        self._buffered = 0
        self._hot = {VALIDATE_PATH: self._validate, MUTATE_PATH: self._mutate}

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Serve one ASGI connection."""
        handler = self._hot.get(scope["path"]) if scope["type"] == "http" else None
        if handler is None:
            await self.api(scope, receive, send)
        elif scope["method"] != "POST":
            await _send(send, 405, answer.failed("", 405, "MethodNotAllowed", "use POST"), close=True)
        else:
            await self._serve(handler, scope, receive, send)

    async def _serve(self, handler: _Handler, scope: Message, receive: Receive, send: Send) -> None:
        deadline = asyncio.get_running_loop().time() + _timeout_seconds(scope["query_string"], self.settings)
        direct = direct_of(scope)
        if direct is not None and isinstance(direct.begun, _Begun):
            await self._finish(direct.begun, direct, deadline, send)
            return
        body: bytes | bytearray | None = direct.whole_body() if direct is not None else None
        try:
            if body is None:
                async with asyncio.timeout_at(deadline):
                    body = await self._read_body(scope, receive)
            elif len(body) > self.settings.max_body_bytes:
                raise _BodyTooLargeError
        except _BodyTooLargeError:
            self.metrics.turned_away("too_large")
            text = f"the body is larger than {self.settings.max_body_bytes} bytes"
            await _send(send, 413, answer.failed("", 413, "RequestEntityTooLarge", text), close=True)
            return
        except OverloadedError:
            await self._turn_away(send)
            return
        except TimeoutError:
            self.metrics.turned_away("late")
            await _send(send, 408, answer.failed("", 408, "Timeout", "the body did not arrive in time"), close=True)
            return
        if body is None:  # the client went away
            return
        started = time.perf_counter()
        review = read_lean(body) or parse_review(body)
        if isinstance(review, Malformed):
            self.metrics.turned_away("malformed")
            await _send(send, 400, answer.failed(review.uid, 400, "BadRequest", review.detail))
            return
        if not await self._take_slot(review, deadline, send):
            return
        try:
            reply = handler(review)
            if isinstance(reply, Verdict):
                reply = await self._confirmed(review, reply, deadline)
        except Exception:
            reply = self._crashed(review)
        finally:
            self._slots.give_back()
        await self._reply(reply, started, direct, send)

    def answer_now(self, target: bytes, body: bytearray) -> bytes | object | None:
        """Answer a whole review if nothing has to be waited for (see `webhooks.fast.direct`)."""
        handler = self._hot.get(target.partition(b"?")[0].decode("latin-1"))
        if handler is None or len(body) > self.settings.max_body_bytes:
            return None
        started = time.perf_counter()
        review = read_lean(body) or parse_review(body)
        if isinstance(review, Malformed) or not self._slots.take_free():
            return None
        try:
            reply = handler(review)
        except Exception:
            reply = self._crashed(review)
        finally:
            self._slots.give_back()
        if isinstance(reply, Verdict):
            return _Begun(review, reply, started)
        self.metrics.seconds.observe(time.perf_counter() - started)
        return reply

    async def _finish(self, begun: _Begun, direct: Direct, deadline: float, send: Send) -> None:
        """Confirm and speak a verdict that was reached at once."""
        if not await self._take_slot(begun.review, deadline, send):
            return
        try:
            reply = await self._confirmed(begun.review, begun.verdict, deadline)
        except Exception:
            reply = self._crashed(begun.review)
        finally:
            self._slots.give_back()
        await self._reply(reply, begun.started, direct, send)

    async def _take_slot(self, review: Review, deadline: float, send: Send) -> bool:
        """Take a slot, or answer that there is none."""
        if self._slots.take_free():
            return True
        try:
            await self._slots.take(deadline - asyncio.get_running_loop().time())
        except OverloadedError:
            await self._turn_away(send, review.uid)
            return False
        return True

    async def _reply(self, reply: bytes, started: float, direct: Direct | None, send: Send) -> None:
        self.metrics.seconds.observe(time.perf_counter() - started)
        if direct is None or not direct.answer_json(reply):
            await _send(send, 200, reply)

    async def _read_body(self, scope: Message, receive: Receive) -> bytes | None:
        """Return the whole body, None if the client went away.

        Raises: _BodyTooLargeError as soon as that is known; OverloadedError when too much is being received already.
        """
        limit = self.settings.max_body_bytes
        if _content_length(scope["headers"]) > limit:
            raise _BodyTooLargeError
        message = await receive()
        if message["type"] != "http.request":
            return None
        first: bytes = message.get("body", b"")
        if not message.get("more_body"):
            if len(first) > limit:
                raise _BodyTooLargeError
            return first
        return await self._read_rest(first, receive, limit)

    async def _read_rest(self, first: bytes, receive: Receive, limit: int) -> bytes | None:
        body = bytearray(first)
        counted = len(body)
        self._buffered += counted
        try:
            while True:
                if len(body) > limit:
                    raise _BodyTooLargeError
                if self._buffered > self.settings.max_buffered_bytes:
                    raise OverloadedError
                message = await receive()
                if message["type"] != "http.request":
                    return None
                chunk: bytes = message.get("body", b"")
                body += chunk
                counted += len(chunk)
                self._buffered += len(chunk)
                if not message.get("more_body"):
                    if len(body) > limit:
                        raise _BodyTooLargeError
                    return bytes(body)
        finally:
            self._buffered -= counted

    def _validate(self, review: Review) -> bytes | Verdict:
        """Return the answer, or the verdict that has to be confirmed by live reads first."""
        if not review.judged:
            return self._not_judged("validate", review)
        verdict = self._judge(review, self._world)
        if self._reader is not None and verdict.findings and needs_confirmation(verdict):
            return verdict
        return self._speak(review, verdict)

    def _mutate(self, review: Review) -> bytes:
        if not review.judged:
            return self._not_judged("mutate", review)
        assert review.kind is not None, "a review without kind is not judged"
        assert review.new is not None, "a review without object is not judged"
        patch = mutate(review.kind, review.new)
        self.metrics.review("mutate", review.kind.kind, review.operation, "allowed")
        return answer.allowed(review.uid, patch=encode(patch) if patch else None)

    def _judge(self, review: Review, world: World) -> Verdict:
        assert review.kind is not None, "a review without kind is not judged"
        assert review.new is not None, "a review without object is not judged"
        return validate(
            review.kind, review.new, review.old, world, request_version=review.version, context=self._context
        )

    async def _confirmed(self, review: Review, verdict: Verdict, deadline: float) -> bytes:
        assert self._reader is not None, "without a reader nothing is confirmed"
        # Half of what is left: the answer must still travel, and a late one is none.
        left = (deadline - asyncio.get_running_loop().time()) / 2
        budget = min(self.settings.confirm_seconds, left)
        confirmed = await confirm(lambda world: self._judge(review, world), verdict, self._world, self._reader, budget)
        self.metrics.confirmation("withdrawn" if confirmed.allowed else "confirmed")
        return self._speak(review, confirmed)

    def _speak(self, review: Review, verdict: Verdict) -> bytes:
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
        told = tuple([str(error) for error in errors])
        if not review.dry_run:
            place = (kind, review.namespace, answer.object_name(review), review.operation)
            reasons = tuple([error.reason for error in errors[:MOST_KEPT]])
            self.refusals.append(Refusal(time.time(), *place, told[:MOST_KEPT], reasons, len(errors)))
        return answer.refused(review, verdict, errors, told, reference)

    def _not_judged(self, webhook: str, review: Review) -> bytes:
        self.metrics.review(webhook, "other", "other", "allowed")
        if review.kind is None:
            return answer.allowed(review.uid, [one_line(f"aim-adapters has no rules for {review.kind_words}")])
        return answer.allowed(review.uid)

    def _crashed(self, review: Review) -> bytes:
        reference = secrets.token_hex(4)
        log.exception("a review could not be answered", extra={"uid": review.uid, "reference": reference})
        self.metrics.turned_away("crashed")
        text = f"aim-adapters could not judge this object; its log has the cause under reference {reference}"
        return answer.failed(review.uid, 500, "InternalError", text)

    async def _turn_away(self, send: Send, uid: str = "") -> None:
        self.metrics.turned_away("overload")
        text = "too many reviews at once, try again"
        await _send(send, 503, answer.failed(uid, 503, "ServiceUnavailable", text), retry_after=True)


_Handler = Callable[[Review], bytes | Verdict]


def create_app(
    world: World,
    confirm_reader: ConfirmReader | None = None,
    settings: AdmissionSettings | None = None,
    metrics: AdmissionMetrics | None = None,
) -> Admission:
    """Return the admission server as an ASGI application (to be served over TLS)."""
    return Admission(world, confirm_reader, settings, metrics)


def _api() -> FastAPI:
    api = FastAPI(title="aim-adapters admission", docs_url=None, redoc_url=None, openapi_url=None)

    @api.get("/healthz")
    async def healthz() -> dict[str, str]:
        return {"status": "ok"}

    return api


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


_CONTENT_TYPE = (b"content-type", b"application/json")


async def _send(send: Send, status: int, body: bytes, *, close: bool = False, retry_after: bool = False) -> None:
    headers = [_CONTENT_TYPE, (b"content-length", b"%d" % len(body))]
    if close:
        headers.append((b"connection", b"close"))
    if retry_after:
        headers.append((b"retry-after", b"1"))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def _content_length(headers: list[tuple[bytes, bytes]]) -> int:
    for name, value in headers:
        if name == b"content-length":
            return int(value) if value.isdigit() and len(value) < 19 else 0
    return 0


_DURATION = re.compile(rb"(?:^|&)timeout=((?:\d+(?:\.\d+)?(?:h|m|s|ms))+)(?:&|$)")
_DURATION_PART = re.compile(rb"(\d+(?:\.\d+)?)(ms|h|m|s)")
_UNIT_SECONDS = {b"ms": 0.001, b"s": 1.0, b"m": 60.0, b"h": 3600.0}


def _timeout_seconds(query: bytes, settings: AdmissionSettings) -> float:
    """Return how long a review may take: what the API server says, within our bounds."""
    asked = _asked_timeout(query)
    return settings.default_timeout_seconds if asked is None else min(asked, settings.longest_timeout_seconds)


@lru_cache(maxsize=64)
def _asked_timeout(query: bytes) -> float | None:
    match = _DURATION.search(query[:200])
    if match is None:
        return None
    seconds = sum(float(number) * _UNIT_SECONDS[unit] for number, unit in _DURATION_PART.findall(match.group(1)))
    return seconds if seconds > 0 else None
