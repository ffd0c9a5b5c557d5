"""AWS Signature Version 4 from the server's side, recomputed with botocore's own signer."""

from __future__ import annotations

import hmac
import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from urllib.parse import quote, unquote_plus, unquote_to_bytes

from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.compat import HTTPHeaders
from botocore.credentials import Credentials

from devcluster.sources.s3xml import S3Error

MAX_SKEW: Final = timedelta(minutes=15)
MAX_EXPIRES_SECONDS: Final = 604_800
ALGORITHM: Final = "AWS4-HMAC-SHA256"
UNSIGNED: Final = "UNSIGNED-PAYLOAD"
_TIME: Final = "%Y%m%dT%H%M%SZ"
_HEADER: Final = re.compile(
    rf"{ALGORITHM}\s+Credential=(?P<credential>[^,\s]+),\s*SignedHeaders=(?P<signed>[^,\s]+),\s*Signature=(?P<signature>[0-9a-f]+)\s*"
)


@dataclass(frozen=True, slots=True)
class Account:
    """The one pair of keys that a server accepts, and its region."""

    access_key: str
    secret_key: str
    region: str
    session_token: str = ""


@dataclass(frozen=True, slots=True)
class Sent:
    """A request as it came: path and query still percent-encoded, header names in lower case."""

    method: str
    raw_path: str
    raw_query: str
    headers: dict[str, str]


@dataclass(frozen=True, slots=True)
class Verified:
    """What a good signature vouches for."""

    access_key: str
    payload: str  # sha256 in hex, UNSIGNED-PAYLOAD or a STREAMING-… word


@dataclass(frozen=True, slots=True)
class _Claim:
    """A signature and what it covers."""

    credential: tuple[str, ...]  # access key, date, region, service, aws4_request
    signed: tuple[str, ...]
    signature: str
    time: datetime
    token: str
    payload: str
    query: tuple[tuple[str, str], ...]  # decoded, without the signature itself


class _Signer(S3SigV4Auth):
    """botocore's signer over exactly the headers that the client signed, with the server's own normal forms."""

    def __init__(self, account: Account, claim: _Claim) -> None:
        super().__init__(Credentials(account.access_key, account.secret_key), "s3", account.region)
        self._claim = claim

    def headers_to_sign(self, request: Any) -> Any:
        chosen = HTTPHeaders()
        for name in self._claim.signed:
            chosen[name] = request.headers.get(name, "")
        return chosen

    def canonical_query_string(self, request: Any) -> str:
        pairs = sorted((quote(k, safe="-_.~"), quote(v, safe="-_.~")) for k, v in self._claim.query)
        return "&".join(f"{k}={v}" for k, v in pairs)

    def _normalize_url_path(self, path: str) -> str:
        return quote(unquote_to_bytes(path), safe="/-_.~")

    def payload(self, request: Any) -> str:
        return self._claim.payload

    def expected(self, sent: Sent) -> str:
        headers = {k: v for k, v in sent.headers.items() if k != "x-amz-content-sha256"}
        # the signer takes the path from a URL; its host does not matter, the signed Host header does
        request = AWSRequest(method=sent.method, url="http://host", headers=headers)
        request.url = f"http://host{sent.raw_path}"
        if "x-amz-content-sha256" in sent.headers:
            request.headers["X-Amz-Content-SHA256"] = self._claim.payload
        request.context["timestamp"] = self._claim.time.strftime(_TIME)
        canonical = self.canonical_request(request)
        return str(self.signature(self.string_to_sign(request, canonical), request))


def is_signed(sent: Sent) -> bool:
    """Whether a request claims any credentials."""
    return "authorization" in sent.headers or any(
        name in sent.raw_query for name in ("X-Amz-Signature", "X-Amz-Algorithm", "AWSAccessKeyId")
    )


def verify(sent: Sent, account: Account, now: datetime) -> Verified:
    """Check a request's signature, in the header or in the query (presigned).

    Args: now in UTC.
    Raises: S3Error with the code that S3 gives: AccessDenied, InvalidAccessKeyId, RequestTimeTooSkewed,
    SignatureDoesNotMatch, InvalidToken, InvalidRequest, AuthorizationHeaderMalformed or
    AuthorizationQueryParametersError.
    """
    query = tuple(_pairs(sent.raw_query))
    if "authorization" in sent.headers:
        claim = _claim_of_header(sent, query)
        malformed = "AuthorizationHeaderMalformed"
        _check_skew(claim.time, now)
    else:
        claim = _claim_of_query(sent, query, now)
        malformed = "AuthorizationQueryParametersError"
    _check_scope(claim, account, malformed)
    _check_token(claim, account)
    _check_covered(claim, sent)
    expected = _Signer(account, claim).expected(sent)
    if not hmac.compare_digest(expected, claim.signature):
        raise S3Error("SignatureDoesNotMatch", AWSAccessKeyId=claim.credential[0], SignatureProvided=claim.signature)
    return Verified(claim.credential[0], claim.payload)


def _pairs(raw_query: str) -> list[tuple[str, str]]:
    split = (pair.partition("=") for pair in raw_query.split("&") if pair)
    return [(unquote_plus(name), unquote_plus(value)) for name, _, value in split]


def _claim_of_header(sent: Sent, query: tuple[tuple[str, str], ...]) -> _Claim:
    header = sent.headers["authorization"]
    if not header.startswith("AWS4-"):
        raise S3Error("InvalidRequest", f"The authorization mechanism is not supported. Please use {ALGORITHM}.")
    found = _HEADER.fullmatch(header)
    if found is None:
        raise S3Error("AuthorizationHeaderMalformed", "Credential, SignedHeaders and Signature are needed.")
    if "x-amz-content-sha256" not in sent.headers:
        raise S3Error("InvalidRequest", "Missing required header for this request: x-amz-content-sha256")
    return _Claim(
        credential=tuple(found["credential"].rsplit("/", 4)),
        signed=tuple(found["signed"].lower().split(";")),
        signature=found["signature"],
        time=_time(sent.headers.get("x-amz-date", ""), "AccessDenied"),
        token=sent.headers.get("x-amz-security-token", ""),
        payload=sent.headers["x-amz-content-sha256"],
        query=query,
    )


def _claim_of_query(sent: Sent, query: tuple[tuple[str, str], ...], now: datetime) -> _Claim:
    """Read a presigned request and check that it is valid now."""
    values = dict(query)
    if "X-Amz-Algorithm" not in values:
        raise S3Error("InvalidRequest", f"The authorization mechanism is not supported. Please use {ALGORITHM}.")
    bad = "AuthorizationQueryParametersError"
    needed = ("X-Amz-Credential", "X-Amz-Date", "X-Amz-Expires", "X-Amz-SignedHeaders", "X-Amz-Signature")
    missing = [name for name in needed if not values.get(name)]
    if missing or values["X-Amz-Algorithm"] != ALGORITHM:
        raise S3Error(bad, f"{ALGORITHM} needs {', '.join(needed)}; missing: {', '.join(missing) or 'none'}.")
    signed_at = _time(values["X-Amz-Date"], bad)
    expires = values["X-Amz-Expires"]
    if not expires.isdigit() or int(expires) > MAX_EXPIRES_SECONDS:
        raise S3Error(bad, f"X-Amz-Expires must be a number of seconds up to {MAX_EXPIRES_SECONDS}.")
    if signed_at - MAX_SKEW > now:
        raise S3Error("AccessDenied", "Request is not valid yet")
    if signed_at + timedelta(seconds=int(expires)) < now:
        raise S3Error("AccessDenied", "Request has expired", Expires=expires)
    return _Claim(
        credential=tuple(values["X-Amz-Credential"].rsplit("/", 4)),
        signed=tuple(values["X-Amz-SignedHeaders"].lower().split(";")),
        signature=values["X-Amz-Signature"],
        time=signed_at,
        token=values.get("X-Amz-Security-Token", ""),
        payload=sent.headers.get("x-amz-content-sha256", UNSIGNED),
        query=tuple((k, v) for k, v in query if k != "X-Amz-Signature"),
    )


def _time(text: str, code: str) -> datetime:
    try:
        return datetime.strptime(text, _TIME).replace(tzinfo=UTC)
    except ValueError as error:
        raise S3Error(code, "AWS authentication requires a valid X-Amz-Date") from error


def _check_skew(signed_at: datetime, now: datetime) -> None:
    if abs(signed_at - now) > MAX_SKEW:
        raise S3Error(
            "RequestTimeTooSkewed",
            RequestTime=signed_at.strftime(_TIME),
            ServerTime=now.strftime("%Y-%m-%dT%H:%M:%SZ"),
            MaxAllowedSkewMilliseconds="900000",
        )


def _check_scope(claim: _Claim, account: Account, malformed: str) -> None:
    if len(claim.credential) != 5 or claim.credential[4] != "aws4_request":
        raise S3Error(malformed, "The credential must be ACCESS-KEY/DATE/REGION/s3/aws4_request.")
    access_key, date, region, service, _ = claim.credential
    if access_key != account.access_key:
        raise S3Error("InvalidAccessKeyId", AWSAccessKeyId=access_key)
    if date != claim.time.strftime("%Y%m%d"):
        raise S3Error(malformed, f"Invalid credential date {date!r}: it is not that of X-Amz-Date.")
    if region != account.region:
        message = f"the region {region!r} is wrong; expecting {account.region!r}"
        raise S3Error(malformed, message, Region=account.region)
    if service != "s3":
        raise S3Error(malformed, f"the service {service!r} is wrong; expecting 's3'")


def _check_token(claim: _Claim, account: Account) -> None:
    if account.session_token and not claim.token:
        raise S3Error("InvalidAccessKeyId", AWSAccessKeyId=claim.credential[0])  # a temporary key needs its token
    if not hmac.compare_digest(claim.token.encode(), account.session_token.encode()):
        raise S3Error("InvalidToken")


def _check_covered(claim: _Claim, sent: Sent) -> None:
    """Refuse a request with x-amz- headers, or a host, that the signature does not cover."""
    loose = [n for n in sent.headers if n.startswith("x-amz-") and n not in claim.signed]
    if "host" not in claim.signed:
        loose.append("host")
    if loose:
        raise S3Error(
            "AccessDenied", "There were headers which were not signed", HeadersNotSigned=", ".join(sorted(loose))
        )
