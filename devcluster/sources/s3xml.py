"""The XML of S3: errors with their statuses, and listings."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from email.utils import formatdate
from typing import Final
from urllib.parse import quote
from xml.sax.saxutils import escape

NAMESPACE: Final = "http://s3.amazonaws.com/doc/2006-03-01/"

ERRORS: Final = {  # code -> (status, message)
    "AccessDenied": (403, "Access Denied"),
    "AuthorizationHeaderMalformed": (400, "The authorization header is malformed."),
    "AuthorizationQueryParametersError": (400, "The authorization parameters in the query are malformed."),
    "BadDigest": (400, "The checksum that you sent does not match what was received."),
    "BadGateway": (502, "Bad gateway."),
    "BucketAlreadyOwnedByYou": (409, "You have this bucket already."),
    "BucketNotEmpty": (409, "The bucket is not empty."),
    "GatewayTimeout": (504, "Gateway timeout."),
    "InternalError": (500, "We encountered an internal error. Please try again."),
    "InvalidAccessKeyId": (403, "The access key id that you sent does not exist in our records."),
    "InvalidArgument": (400, "Invalid argument."),
    "InvalidBucketName": (400, "The bucket's name is not valid."),
    "InvalidPart": (400, "A part is missing or its ETag differs."),
    "InvalidPartNumber": (416, "The part number is not satisfiable."),
    "InvalidRange": (416, "The requested range is not satisfiable."),
    "InvalidRequest": (400, "Invalid request."),
    "InvalidToken": (400, "The token that you sent is malformed or otherwise invalid."),
    "MethodNotAllowed": (405, "The method is not allowed against this resource."),
    "NoSuchBucket": (404, "The bucket does not exist."),
    "NoSuchKey": (404, "The key does not exist."),
    "NoSuchUpload": (404, "The multipart upload does not exist."),
    "NotImplemented": (501, "This stand-in does not implement that."),
    "OperationAborted": (409, "A conflicting operation is in progress."),
    "PreconditionFailed": (412, "A precondition that you gave did not hold."),
    "RequestTimeTooSkewed": (403, "The difference between the request time and the current time is too large."),
    "RequestTimeout": (408, "The connection was not read from or written to within the timeout."),
    "SignatureDoesNotMatch": (403, "The signature that we calculated does not match the one that you sent."),
    "SlowDown": (503, "Please reduce your request rate."),
    "TooManyRequests": (429, "Too many requests."),
    "Unauthorized": (401, "Unauthorized."),
    "XAmzContentSHA256Mismatch": (400, "The x-amz-content-sha256 header does not match what was received."),
}
CODE_OF_STATUS: Final = {
    400: "InvalidRequest",
    401: "Unauthorized",
    403: "AccessDenied",
    404: "NoSuchKey",
    405: "MethodNotAllowed",
    408: "RequestTimeout",
    409: "OperationAborted",
    412: "PreconditionFailed",
    416: "InvalidRange",
    429: "TooManyRequests",
    500: "InternalError",
    501: "NotImplemented",
    502: "BadGateway",
    503: "SlowDown",
    504: "GatewayTimeout",
}


class S3Error(Exception):
    """An error answer: a code of `ERRORS` (or any other with a status), and further fields."""

    def __init__(self, code: str, message: str = "", status: int = 0, **extra: str) -> None:
        known_status, known_message = ERRORS.get(code, (500, code))
        self.code, self.status, self.message = code, status or known_status, message or known_message
        self.extra = extra
        super().__init__(f"{code}: {self.message}")


def tag(name: str, value: object) -> str:
    """Return one element; the value is escaped, except for markup that `tags` made."""
    return f"<{name}>{value if isinstance(value, Markup) else escape(str(value))}</{name}>"


class Markup(str):
    """Text that is XML already."""

    __slots__ = ()


def tags(pairs: Iterable[tuple[str, object]]) -> Markup:
    """Return elements one after the other; None leaves one out."""
    return Markup("".join(tag(name, value) for name, value in pairs if value is not None))


def document(name: str, pairs: Iterable[tuple[str, object]], namespace: str = NAMESPACE) -> bytes:
    """Return a whole document."""
    xmlns = f' xmlns="{namespace}"' if namespace else ""
    return f'<?xml version="1.0" encoding="UTF-8"?>\n<{name}{xmlns}>{tags(pairs)}</{name}>'.encode()


def error_document(error: S3Error, resource: str, request_id: str) -> bytes:
    """Return the body of an error answer."""
    pairs = [("Code", error.code), ("Message", error.message), *error.extra.items()]
    return document("Error", [*pairs, ("Resource", resource), ("RequestId", request_id)], namespace="")


def url_encoded(text: str, encoding: str) -> str:
    """Return a key for a listing with `encoding-type`."""
    return quote(text, safe="/-_.~*") if encoding == "url" else text


def iso_time(mtime_ns: int) -> str:
    """Return a file's time as listings show it."""
    when = datetime.fromtimestamp(mtime_ns // 1_000_000_000, UTC)
    return when.strftime("%Y-%m-%dT%H:%M:%S.000Z")


def http_time(mtime_ns: int) -> str:
    """Return a file's time as headers show it."""
    return formatdate(mtime_ns // 1_000_000_000, usegmt=True)
