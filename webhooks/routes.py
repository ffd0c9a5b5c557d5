"""The admission endpoints as routes of FastAPI: how a review travels over HTTP.

Bodies are read here, not by FastAPI: their size, their time and the memory of all of them together are limited.
"""

from __future__ import annotations

import asyncio
import re
import time
from functools import lru_cache

from fastapi import APIRouter, Request, Response
from starlette.types import Receive, Scope, Send

from webhooks import answer
from webhooks.admission import Admission, AdmissionSettings, Judge
from webhooks.review import MUTATE_PATH, VALIDATE_PATH, Malformed

OVERLOADED = "too many reviews at once, try again"


class BodyTooLargeError(Exception):
    """A body is longer than the settings allow."""


class OverloadedError(Exception):
    """More is being received than memory is reserved for."""


class NoAnswer(Response):
    """Nothing: the client is gone."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send nothing."""


def admission_router(admission: Admission) -> APIRouter:
    """Return the routes `/validate` and `/mutate`."""
    router = APIRouter(tags=["admission"])

    @router.post(VALIDATE_PATH)
    async def validate(request: Request) -> Response:
        return await review(admission, admission.validate, request)

    @router.post(MUTATE_PATH)
    async def mutate(request: Request) -> Response:
        return await review(admission, admission.mutate, request)

    return router


async def review(admission: Admission, judge: Judge, request: Request) -> Response:
    """Answer one review."""
    deadline = deadline_of(request.scope["query_string"], admission.settings)
    try:
        async with asyncio.timeout_at(deadline):
            body = await read_body(admission, request)
    except BodyTooLargeError:
        admission.metrics.turned_away("too_large")
        text = f"the body is larger than {admission.settings.max_body_bytes} bytes"
        return json_answer(413, answer.failed("", 413, "RequestEntityTooLarge", text), {"connection": "close"})
    except OverloadedError:
        return overloaded(admission)
    except TimeoutError:
        admission.metrics.turned_away("late")
        text = "the body did not arrive in time"
        return json_answer(408, answer.failed("", 408, "Timeout", text), {"connection": "close"})
    if body is None:
        return NoAnswer()
    started = time.perf_counter()
    found = admission.read(body)
    if isinstance(found, Malformed):
        if found.too_deep and found.uid:
            return json_answer(200, admission.too_deep(found))
        admission.metrics.turned_away("malformed")
        return json_answer(400, answer.failed(found.uid, 400, "BadRequest", found.detail))
    if not admission.enter():
        return overloaded(admission, found.uid)
    try:
        reply = judge(found)
        if not isinstance(reply, bytes):
            reply = await admission.confirmed(found, reply, deadline)
    except Exception:
        reply = admission.crashed(found)
    finally:
        admission.leave()
    admission.metrics.seconds.observe(time.perf_counter() - started)
    return json_answer(200, reply)


def overloaded(admission: Admission, uid: str = "") -> Response:
    """Return the answer to a review for which there is no room: the API server tries again."""
    admission.metrics.turned_away("overload")
    return json_answer(503, answer.failed(uid, 503, "ServiceUnavailable", OVERLOADED), {"retry-after": "1"})


def json_answer(status: int, body: bytes, headers: dict[str, str] | None = None) -> Response:
    """Return a response with a body that is JSON already."""
    return Response(body, status, headers, media_type="application/json")


async def read_body(admission: Admission, request: Request) -> bytes | None:
    """Return the whole body, None if the client went away.

    Raises: BodyTooLargeError as soon as that is known; OverloadedError when too much is being received already.
    """
    limit = admission.settings.max_body_bytes
    if _content_length(request.headers.get("content-length", "")) > limit:
        raise BodyTooLargeError
    message = await request.receive()
    if message["type"] != "http.request":
        return None
    first: bytes = message.get("body", b"")
    if not message.get("more_body"):
        if len(first) > limit:
            raise BodyTooLargeError
        return first
    return await _read_rest(admission, first, request.receive, limit)


async def _read_rest(admission: Admission, first: bytes, receive: Receive, limit: int) -> bytes | None:
    """Read a body that arrives in pieces; its bytes are counted until it is complete."""
    body = bytearray(first)
    counted = len(body)
    admission.buffered += counted
    try:
        while True:
            if len(body) > limit:
                raise BodyTooLargeError
            if admission.buffered > admission.settings.max_buffered_bytes:
                raise OverloadedError
            message = await receive()
            if message["type"] != "http.request":
                return None
            chunk: bytes = message.get("body", b"")
            body += chunk
            counted += len(chunk)
            admission.buffered += len(chunk)
            if not message.get("more_body"):
                if len(body) > limit:
                    raise BodyTooLargeError
                return bytes(body)
    finally:
        admission.buffered -= counted


def _content_length(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else 0


_DURATION = re.compile(rb"(?:^|&)timeout=((?:\d+(?:\.\d+)?(?:h|m|s|ms))+)(?:&|$)")
_DURATION_PART = re.compile(rb"(\d+(?:\.\d+)?)(ms|h|m|s)")
_UNIT_SECONDS = {b"ms": 0.001, b"s": 1.0, b"m": 60.0, b"h": 3600.0}


def deadline_of(query: bytes, settings: AdmissionSettings) -> float:
    """Return until when a review may take, by the event loop's clock: what the API server asks, within the limits."""
    asked = _asked_timeout(query)
    seconds = settings.default_timeout_seconds if asked is None else min(asked, settings.longest_timeout_seconds)
    return asyncio.get_running_loop().time() + seconds


@lru_cache(maxsize=64)
def _asked_timeout(query: bytes) -> float | None:
    match = _DURATION.search(query[:200])
    if match is None:
        return None
    seconds = sum(float(number) * _UNIT_SECONDS[unit] for number, unit in _DURATION_PART.findall(match.group(1)))
    return seconds if seconds > 0 else None
