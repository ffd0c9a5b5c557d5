"""What the API server can answer, as a few exceptions whose type says whether trying again can help.

No I/O: a status code and a body in, an exception out.
"""

# ruff: noqa: N818 - these read as Kubernetes spells its reasons (NotFound, Conflict), without "Error"
from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import orjson

_SOON = 15.0  # seconds; trouble of the server, not of one object: when it is over, all keys should find out soon
_TEXT_LIMIT = 2_000  # characters of a non-JSON error body that are worth keeping


class Transient(Exception):
    """Trying again later may succeed: the key goes back to the work queue with backoff."""

    retry_after: float | None = None  # seconds the other side asked us to wait; None: it did not say
    largest_backoff: float | None = None  # seconds; None: the work queue's own limit


class Terminal(Exception):
    """Trying again without a change cannot succeed: becomes a condition and waits for a new spec."""


class NotLeading(Transient):
    """A write was held back because this process does not (or no longer) hold the lease."""

    largest_backoff = _SOON


class ApiError(Exception):
    """An answer of the API server that is not a success.

    `status` is the HTTP code (0: there was no answer), `reason` the CamelCase word of the Status object,
    `message` its text, `details` its details (kind, name, causes).
    """

    def __init__(
        self, status: int, reason: str = "", message: str = "", details: Mapping[str, Any] | None = None
    ) -> None:
        super().__init__(f"{status} {reason}: {message}" if status else f"{reason}: {message}")
        self.status = status
        self.reason = reason
        self.message = message
        self.details: Mapping[str, Any] = details or {}


class Unreachable(ApiError, Transient):
    """No complete answer came: connection refused, cut, or timed out. A write may or may not have happened."""

    largest_backoff = _SOON


class ServerError(ApiError, Transient):
    """5xx, a webhook that could not be called included."""

    largest_backoff = _SOON


class WebhookDown(ServerError):
    """An admission webhook (KServe's, for one) gave no answer; `message` names it, without addresses that change."""


class TooManyRequests(ApiError, Transient):
    """429, or another code with Retry-After: the server is busy and says for how long."""


class Unauthorized(ApiError, Transient):
    """401, also after the credentials were read again."""

    largest_backoff = _SOON


class Forbidden(ApiError, Transient):
    """403 by RBAC, quota or a terminating namespace: it may be lifted without a new spec."""


class NamespaceTerminating(Forbidden):
    """403: the namespace is terminating, with everything in it."""


class NotFound(ApiError, Transient):
    """404: the object, its namespace or its kind does not exist."""


class KindNotServed(NotFound):
    """404: the API server does not serve the kind, as while a CRD is not installed."""


class Conflict(ApiError, Transient):
    """409: someone else changed the object, or owns the field."""


class AlreadyExists(Conflict):
    """409 on create: an object of that name is there."""


class Gone(ApiError, Transient):
    """410: the resource version (or the continue token) is too old; list again."""


class Denied(ApiError, Terminal):
    """An admission webhook or policy refused the object: a configuration error, not RBAC."""


class Invalid(ApiError, Terminal):
    """422 or 400: the object breaks the schema or a rule of the API server."""


class MalformedApply(ApiError, Terminal):
    """The apply did not fit the kind's schema (unknown field, wrong type): our bug, permanent."""


_BY_STATUS: dict[int, type[ApiError]] = {
    400: Invalid,
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    405: Invalid,
    406: Invalid,
    409: Conflict,
    410: Gone,
    413: Invalid,
    415: Invalid,
    422: Invalid,
    429: TooManyRequests,
}


_CALLED = re.compile(r'(failed calling webhook "[^"]*").*', re.DOTALL)


def parse_error(status: int, body: bytes, retry_after: str | None = None) -> ApiError:
    """Return the exception for an answer with this code and body (a Status object, or any text).

    Args: `retry_after` is the header as it came; only whole seconds are understood.
    Source: docs/contract.md, Errors from the API server.
    """
    reason, message, details = _read_status(body)
    kind = _choose(status, reason, message)
    if kind is WebhookDown:
        message = _CALLED.sub(r"\1: it gives no answer", message)
    error = kind(status, reason, message, details)
    seconds = _seconds(retry_after, details)
    if seconds is not None and isinstance(error, Transient):
        error.retry_after = seconds
    return error


def _choose(status: int, reason: str, message: str) -> type[ApiError]:
    if "failed to create typed patch object" in message:
        return MalformedApply
    if "failed calling webhook" in message:
        return WebhookDown
    if 400 <= status < 500 and "denied the request" in message:
        return Denied
    if status == 403 and "because it is being terminated" in message:
        return NamespaceTerminating
    if status == 404 and ("could not find the requested resource" in message or message == "404 page not found"):
        return KindNotServed
    if status == 409 and reason == "AlreadyExists":
        return AlreadyExists
    if reason in ("Expired", "Gone"):
        return Gone
    if status in _BY_STATUS:
        return _BY_STATUS[status]
    return Invalid if 400 <= status < 500 else ServerError


def _read_status(body: bytes) -> tuple[str, str, Mapping[str, Any]]:
    try:
        parsed = orjson.loads(body)
    except orjson.JSONDecodeError:
        parsed = None
    if not isinstance(parsed, dict):
        return "", body[:_TEXT_LIMIT].decode(errors="replace").strip(), {}
    details = parsed.get("details")
    return (
        str(parsed.get("reason") or ""),
        str(parsed.get("message") or ""),
        details if isinstance(details, dict) else {},
    )


def _seconds(header: str | None, details: Mapping[str, Any]) -> float | None:
    if header is not None and header.strip().isdigit():
        return float(header)
    value = details.get("retryAfterSeconds")
    return float(value) if isinstance(value, int) and value > 0 else None
