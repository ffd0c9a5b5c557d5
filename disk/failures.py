"""Kinds of failure: a reason, a message with advice, and whether a retry can succeed.

Messages contain texts of libraries only where needed: those can contain signed URLs, and they change.
"""

from __future__ import annotations

import errno
import math
import os
import re
import socket
import ssl
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from email.utils import parsedate_to_datetime
from urllib.parse import quote, urlsplit

from api.job_env import CREDENTIAL_VARIABLES, SECRET_VARIABLES
from api.jobs import JobResult
from api.reasons import EXPLANATIONS, Reason
from api.text import clean


class DiskFailure(Exception):  # noqa: N818 - it is a finding with a reason, not a fault of this program
    """A command cannot complete. `detail` describes what happened; the advice comes from the table in `api.reasons`.
    `retry_after`: in seconds, when the server asks to wait.
    """

    def __init__(self, reason: Reason, detail: str, *, retry_after: int | None = None) -> None:
        self.reason = reason
        self.detail = redact(detail)
        super().__init__(f"{reason}: {self.detail}")
        self.retry_after = retry_after

    @property
    def retriable(self) -> bool:
        """Return whether the same Job can succeed later without any other change."""
        return EXPLANATIONS[self.reason].retriable

    @property
    def problem(self) -> str:
        """Return what happened and the fix, for a command without retries."""
        fix = EXPLANATIONS[self.reason].fix
        return f"{self.detail}; {fix}" if fix else self.detail

    @property
    def message(self) -> str:
        """Return what happened and what to do, including the retry of Jobs."""
        advice = EXPLANATIONS[self.reason].advice
        return f"{self.detail}; {advice}" if advice else self.detail

    def to_result(self, key: str = "") -> JobResult:
        """Return the failure as the result of a Job."""
        return JobResult(
            ok=False,
            reason=self.reason,
            message=self.message,
            retriable=self.retriable,
            retry_after_seconds=self.retry_after,
            key=key,
        )


_DISK_REASONS = {
    errno.ENOSPC: Reason.DISK_FULL,
    errno.EDQUOT: Reason.DISK_QUOTA_EXCEEDED,
    errno.EIO: Reason.DISK_IO_ERROR,
    errno.ESTALE: Reason.DISK_STALE,
    errno.EROFS: Reason.DISK_READ_ONLY,
    errno.EACCES: Reason.DISK_PERMISSION_DENIED,
    errno.EPERM: Reason.DISK_PERMISSION_DENIED,
    errno.ENOTCONN: Reason.DISK_IO_ERROR,
    errno.ETIMEDOUT: Reason.DISK_IO_ERROR,
}


def from_os_error(error: OSError) -> DiskFailure:
    """Return the failure for an error of the disk, by its kind."""
    number = error.errno if error.errno is not None else 0
    reason = _DISK_REASONS.get(number, Reason.DISK_OPERATION_FAILED)
    name = errno.errorcode.get(number, "unknown error")
    where = f" at {error.filename}" if error.filename else ""
    return DiskFailure(reason, f"the disk returned {name}{where}")


def from_network_error(error: BaseException, where: str) -> DiskFailure:
    """Distinguish name resolution, TLS, timeout and a lost connection in the errors of all libraries.

    `where`: the endpoint for people, without credentials or query.
    """
    chain = list(_causes(error))
    for cause in chain:
        if isinstance(cause, DiskFailure):
            return cause
    for cause in chain:
        if isinstance(cause, socket.gaierror):
            return DiskFailure(Reason.SOURCE_DNS_FAILED, f"the name of {where} could not be resolved")
        if isinstance(cause, ssl.SSLCertVerificationError):
            why = getattr(cause, "verify_message", "") or "certificate not trusted"
            return DiskFailure(Reason.SOURCE_TLS_FAILED, f"the certificate of {where} was not accepted ({why})")
        if isinstance(cause, ssl.SSLError) and not isinstance(cause, ssl.SSLEOFError):
            return DiskFailure(Reason.SOURCE_TLS_FAILED, f"no TLS connection to {where}")
    names = {type(cause).__name__ for cause in chain}
    if any(isinstance(cause, TimeoutError) for cause in chain) or any("Timeout" in name for name in names):
        return DiskFailure(Reason.SOURCE_TIMEOUT, f"{where} did not respond in time")
    if any("NameResolution" in name for name in names):
        return DiskFailure(Reason.SOURCE_DNS_FAILED, f"the name of {where} could not be resolved")
    if any(isinstance(cause, ConnectionRefusedError) for cause in chain):
        return DiskFailure(Reason.SOURCE_CONNECTION_LOST, f"{where} refused the connection")
    return DiskFailure(Reason.SOURCE_CONNECTION_LOST, f"the connection to {where} was lost")


_SECRET = re.compile(
    r"hf_[A-Za-z0-9]{8,}"  # tokens of the hub
    r"|(?:AKIA|ASIA)[A-Z0-9]{12,}"  # AWS key ids
    r"|(?i:bearer\s+\S+)"
    r"|(?i:(?:X-Amz-[A-Za-z-]+|Signature|token|sig)=[^&\s]+)"
    r"|(?<=://)[^/\s@]+(?=@)"  # user:password or token of a proxy or an endpoint
)
_LONGEST_DETAIL = 1500
_SHORTEST_SECRET = 4  # characters; a shorter value is part of ordinary words


def _values_of_secrets() -> list[str]:
    """Return the values that came from Secrets, the longest first, with the host of each that is a URL."""
    names = [*CREDENTIAL_VARIABLES, *os.environ.get(SECRET_VARIABLES, "").split(",")]
    found = {" ".join(os.environ.get(name, "").split()) for name in names}  # as the text is: on one line
    for value in list(found):
        with suppress(ValueError):
            found |= {urlsplit(value).netloc, quote(value, safe="")}
    return sorted((value for value in found if len(value) >= _SHORTEST_SECRET), key=len, reverse=True)


def redact(text: str) -> str:
    """Remove everything that looks like a credential, and all values of Secrets, from a text for people.

    Returns one line. It is cut last, so that no cut separates a credential from what it is recognized by.
    """
    line = " ".join(text.split())
    for value in _values_of_secrets():
        line = re.sub(re.escape(value), "[redacted]", line, flags=re.IGNORECASE)  # a host is shown in lower case
    return clean(_SECRET.sub("[redacted]", line), _LONGEST_DETAIL)


_LONGEST_WAIT = 24 * 3600  # seconds; a server that asks for more is contacted again after a day
_SECONDS = re.compile(r"[0-9]{1,10}")


def parse_retry_after(value: object, date: object = None, *, clock: Callable[[], float] = time.time) -> int | None:
    """Return how many seconds a source asks to wait, None when it does not. Total.

    Args: the values of `Retry-After` (seconds or a date) and of `Date` (the same clock; without it, the local clock).
    Source: RFC 9110, section 10.2.3.
    """
    text = str(value or "").strip()
    if text.isascii() and text.isdigit():  # isdigit alone accepts "²" as well
        return min(int(text), _LONGEST_WAIT) if _SECONDS.fullmatch(text) else _LONGEST_WAIT
    if (until := _seconds_since_epoch(text)) is None:
        return None
    since = _seconds_since_epoch(str(date or ""))
    return min(max(0, math.ceil(until - (clock() if since is None else since))), _LONGEST_WAIT)


def _seconds_since_epoch(text: str) -> float | None:
    try:
        return parsedate_to_datetime(text).timestamp() if 0 < len(text) < 100 else None
    except (ValueError, TypeError, OverflowError, IndexError):
        return None


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Yield the error and its causes, outermost first; bounded, and safe against cycles."""
    seen: set[int] = set()
    waiting: list[BaseException] = [error]
    while waiting and len(seen) < 32:
        current = waiting.pop(0)
        if id(current) in seen:
            continue
        seen.add(id(current))
        yield current
        inner = [current.__cause__, current.__context__, getattr(current, "error", None), *current.args]
        if isinstance(getattr(current, "reason", None), BaseException):  # urllib3 and urllib store the cause there
            inner.append(current.reason)  # type: ignore[attr-defined]
        waiting += [cause for cause in inner if isinstance(cause, BaseException)]
