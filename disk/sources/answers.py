"""What the errors of S3 services mean: one table for all services. Pure.

Rows are asked in order, and the first that fits decides. What a service says itself (its code and its message) stays in
the message of the failure.

Source: the error codes that AWS, MinIO, Ceph, Cloudflare R2, Google Cloud Storage, SeaweedFS and gateways before Azure
document for S3.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from api.reasons import Reason
from api.text import clean
from disk.failures import DiskFailure, parse_retry_after, redact

LISTING = "ListObjectsV2"
_LONGEST_SAID = 300  # characters


@dataclass(frozen=True, slots=True)
class Row:
    """One kind of answer: any of `codes` (none: any code), any of `statuses` (none: any), and what it means.

    `operation`: of one operation only. `says`: a part of the message, in lower case. `names_region`: the answer has it.
    `detail`: the words of the failure, with `{where}` and `{region}`.
    """

    reason: Reason
    detail: str
    codes: frozenset[str] = frozenset()
    statuses: frozenset[int] = frozenset()
    operation: str = ""
    says: str = ""
    names_region: bool = False

    def fits(self, answer: Answer) -> bool:
        """Return whether an answer is of this kind."""
        return (
            (not self.codes or answer.code in self.codes)
            and (not self.statuses or answer.status in self.statuses)
            and (not self.operation or answer.operation == self.operation)
            and self.says in answer.message.casefold()
            and (not self.names_region or bool(answer.region))
        )


@dataclass(frozen=True, slots=True)
class Answer:
    """An error as a service gave it. `region`: the one that it names; `headers` in lower case."""

    operation: str
    status: int
    code: str
    message: str
    region: str
    headers: Mapping[str, str]

    @property
    def said(self) -> str:
        """The service's own code and message, for people: one line, bounded."""
        code = self.code if self.code and self.code != str(self.status) else ""
        words = ": ".join(part for part in (" ".join(f"{self.status or ''} {code}".split()), self.message) if part)
        return clean(redact(words), _LONGEST_SAID)  # cut last: a cut credential would not be recognized


def _codes(text: str) -> frozenset[str]:
    return frozenset(text.split())


_SERVER = frozenset(range(500, 600))

S3_ANSWERS: tuple[Row, ...] = (
    Row(
        Reason.SOURCE_RATE_LIMITED,
        "{where} limits the requests",
        _codes(
            "SlowDown SlowDownRead SlowDownWrite Throttling ThrottlingException ThrottledException TooManyRequests "
            "TooManyRequestsException RequestLimitExceeded RequestThrottled BandwidthLimitExceeded rateLimitExceeded "
            "userRateLimitExceeded EgressBandwidthLimitExceeded 429"
        ),
    ),
    Row(Reason.SOURCE_RATE_LIMITED, "{where} limits the requests", statuses=frozenset({429})),
    Row(
        Reason.SOURCE_REGION_WRONG,
        "{where} is in the region {region}",
        _codes(
            "PermanentRedirect TemporaryRedirect Redirect IllegalLocationConstraintException IncorrectEndpoint "
            "AuthorizationHeaderMalformed InvalidRegionName"
        ),
        says="region",
    ),
    Row(
        Reason.SOURCE_REGION_WRONG,
        "{where} is in the region {region}",
        _codes("PermanentRedirect TemporaryRedirect IllegalLocationConstraintException IncorrectEndpoint"),
    ),
    Row(
        Reason.SOURCE_REGION_WRONG,
        "{where} is in the region {region}",
        statuses=frozenset({301, 307, 400}),
        names_region=True,
    ),
    Row(
        Reason.SOURCE_CLOCK_DIFFERS,
        "the clock of the node differs from that of {where}",
        _codes("RequestTimeTooSkewed RequestExpired"),
    ),
    Row(
        Reason.SOURCE_UNAUTHORIZED,
        "{where} did not accept the keys",
        _codes(
            "AuthorizationHeaderMalformed ExpiredToken ExpiredTokenException InvalidAccessKeyId InvalidSecurity "
            "InvalidToken InvalidTokenId SignatureDoesNotMatch TokenRefreshRequired UnauthorizedAccess Unauthorized "
            "MissingSecurityHeader CredentialsNotSupported InvalidCredentials AuthenticationRequired NotSignedUp "
            "XMinioInvalidIAMCredentials XAmzContentSHA256Mismatch AuthorizationQueryParametersError 401"
        ),
    ),
    Row(Reason.SOURCE_UNAUTHORIZED, "{where} did not accept the keys", statuses=frozenset({401})),
    Row(
        Reason.SOURCE_ARCHIVED,
        "an object in {where} is archived",
        _codes("InvalidObjectState ObjectNotInActiveTier RestoreAlreadyInProgress BlobArchived BlobBeingRehydrated"),
    ),
    Row(Reason.SOURCE_BUCKET_NOT_FOUND, "there is no {where}", _codes("NoSuchBucket NoSuchBucketException")),
    Row(
        Reason.SOURCE_BUCKET_NOT_FOUND,
        "the name of {where} is not one that the service accepts",
        _codes("InvalidBucketName InvalidBucketState"),
    ),
    Row(
        Reason.SOURCE_FORBIDDEN,
        "the keys may not decrypt the objects in {where}",
        _codes(
            "KMS.DisabledException KMS.NotFoundException KMS.KMSInvalidStateException KMS.InvalidKeyUsageException "
            "KMS.AccessDeniedException KmsKeyNotFound XMinioKMSKeyNotFound"
        ),
    ),
    Row(
        Reason.SOURCE_FORBIDDEN,
        "the keys may not decrypt the objects in {where}",
        statuses=frozenset({403}),
        says="kms:",
    ),
    Row(
        Reason.SOURCE_FORBIDDEN,
        "the keys may not list {where} (s3:ListBucket)",
        statuses=frozenset({403}),
        operation=LISTING,
    ),
    Row(
        Reason.SOURCE_FORBIDDEN,
        "the keys may not read {where} (s3:GetObject)",
        _codes("AccessDenied AllAccessDisabled AccountProblem MethodNotAllowed UserSuspended Forbidden"),
    ),
    Row(Reason.SOURCE_FORBIDDEN, "the keys may not read {where} (s3:GetObject)", statuses=frozenset({403})),
    Row(
        Reason.SOURCE_RESPONSE_INVALID,
        "{where} does not list its objects",
        _codes("NoSuchKey 404 NotFound"),
        operation=LISTING,
    ),
    Row(
        Reason.SOURCE_CHANGED,
        "an object in {where} was replaced or removed during the download",
        _codes("NoSuchKey PreconditionFailed InvalidRange NoSuchVersion ConditionalRequestConflict 404 412 416"),
    ),
    Row(Reason.SOURCE_CHANGED, "an object in {where} was replaced or removed", statuses=frozenset({404, 412, 416})),
    Row(Reason.SOURCE_SERVER_ERROR, "{where} has an error of its own", statuses=_SERVER),
    Row(
        Reason.SOURCE_SERVER_ERROR,
        "{where} has an error of its own",
        _codes("InternalError ServiceUnavailable OperationAborted RequestTimeout XMinioServerNotInitialized"),
    ),
    Row(Reason.SOURCE_RESPONSE_INVALID, "{where} does not take the request"),
)
"""Every kind of error answer; the last row fits all."""


def from_s3_answer(answer: Answer, where: str, endpoint_has_bucket: bool) -> DiskFailure:
    """Return the failure for an error answer of an S3 service.

    Args: `where` names bucket and endpoint; `endpoint_has_bucket`: the bucket is in the host or path of the endpoint.
    """
    row = next(row for row in S3_ANSWERS if row.fits(answer))
    not_there = row.reason in (Reason.SOURCE_BUCKET_NOT_FOUND, Reason.SOURCE_RESPONSE_INVALID)
    if endpoint_has_bucket and not_there:
        detail = f"the endpoint of {where} has the bucket in it"
        return DiskFailure(Reason.SOURCE_ENDPOINT_HAS_BUCKET, f"{detail} ({answer.said})")
    detail = row.detail.format(where=where, region=answer.region or "that the message names")
    retry_after = parse_retry_after(answer.headers.get("retry-after"), answer.headers.get("date"))
    return DiskFailure(row.reason, f"{detail} ({answer.said})", retry_after=retry_after)
