"""Each error that S3 services document, sent by a server to the real client: reason, retry, and the service's words."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from api.reasons import EXPLANATIONS, Reason
from disk.failures import DiskFailure
from disk.sources import open_source
from disk.sources.answers import S3_ANSWERS
from disk.sources.base import RemoteFile, Source
from disk.sources.factory import trim_settings
from tests.unit.disk.test_hostile_servers import Behaviour, Hostile, answer, serve
from tests.unit.disk.world import stage_spec

__all__ = ["serve"]
Serve = Callable[[Behaviour], Hostile]
LISTING = (
    b"<?xml version='1.0'?><ListBucketResult><IsTruncated>false</IsTruncated><Contents>"
    b"<Key>p/adapter_config.json</Key><ETag>%s</ETag><Size>2</Size></Contents></ListBucketResult>"
)
MD5 = "99914b932bd37a50b983c5e7c90ae93b"  # of {}

# service, status, code, message → reason of a file, reason of a listing where it differs
ANSWERS = [
    ("AWS", 403, "AccessDenied", "Access Denied", "SourceForbidden", ""),
    ("AWS", 403, "InvalidAccessKeyId", "The key Id does not exist", "SourceUnauthorized", ""),
    ("AWS", 403, "SignatureDoesNotMatch", "The signature does not match", "SourceUnauthorized", ""),
    ("AWS", 400, "ExpiredToken", "The provided token has expired.", "SourceUnauthorized", ""),
    ("AWS", 400, "InvalidToken", "The provided token is malformed", "SourceUnauthorized", ""),
    ("AWS", 403, "RequestTimeTooSkewed", "The difference is too large", "SourceClockDiffers", ""),
    ("AWS", 403, "InvalidObjectState", "not valid for the storage class", "SourceArchived", ""),
    ("AWS", 403, "AccessDenied", "not authorized to perform: kms:Decrypt", "SourceForbidden", ""),
    ("AWS", 400, "KMS.DisabledException", "the key is disabled", "SourceForbidden", ""),
    ("AWS", 503, "SlowDown", "Please reduce your request rate.", "SourceRateLimited", ""),
    ("AWS", 500, "InternalError", "We encountered an internal error.", "SourceServerError", ""),
    ("AWS", 503, "ServiceUnavailable", "Reduce your request rate", "SourceServerError", ""),
    ("AWS", 404, "NoSuchBucket", "The bucket does not exist", "SourceBucketNotFound", ""),
    ("AWS", 404, "NoSuchKey", "The key does not exist.", "SourceChanged", "SourceResponseInvalid"),
    ("AWS", 416, "InvalidRange", "The range is not satisfiable", "SourceChanged", ""),
    ("AWS", 400, "AuthorizationHeaderMalformed", "the region 'a' is wrong; expecting 'b'", "SourceRegionWrong", ""),
    ("AWS", 400, "IllegalLocationConstraintException", "the region is incompatible", "SourceRegionWrong", ""),
    ("MinIO", 503, "SlowDownRead", "Resource requested is unreadable", "SourceRateLimited", ""),
    ("MinIO", 503, "XMinioServerNotInitialized", "Server not initialized yet", "SourceServerError", ""),
    ("MinIO", 400, "XAmzContentSHA256Mismatch", "The provided value does not match", "SourceUnauthorized", ""),
    ("Ceph", 403, "UserSuspended", "", "SourceForbidden", ""),
    ("Ceph", 403, "QuotaExceeded", "", "SourceForbidden", ""),
    ("R2", 401, "Unauthorized", "Unauthorized", "SourceUnauthorized", ""),
    ("R2", 501, "NotImplemented", "the header is not implemented", "SourceServerError", ""),
    ("R2", 400, "InvalidArgument", "Credential access key has length 20", "SourceResponseInvalid", ""),
    ("R2", 429, "ServiceUnavailable", "Reduce your concurrent request rate", "SourceRateLimited", ""),
    ("GCS", 429, "rateLimitExceeded", "The rate limit was exceeded", "SourceRateLimited", ""),
    ("GCS", 403, "UserProjectAccountProblem", "billing is disabled", "SourceForbidden", ""),
    ("GCS", 400, "InvalidBucketName", "The name is not valid", "SourceBucketNotFound", ""),
    ("SeaweedFS", 500, "InternalError", "we encountered an internal error", "SourceServerError", ""),
    ("SeaweedFS", 404, "NoSuchBucket", "", "SourceBucketNotFound", ""),
    ("gateway to Azure", 409, "BlobArchived", "the blob is archived", "SourceArchived", ""),
    ("gateway to Azure", 503, "ServerBusy", "The server is busy", "SourceServerError", ""),
    ("gateway to Azure", 400, "", "", "SourceResponseInvalid", ""),
]


def error(status: int, code: str, message: str, *fields: str) -> bytes:
    body = f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>{message}</Message></Error>" if code else ""
    return answer(f"{status} No", body.encode(), "Content-Type: application/xml", *fields)


def source(**options: str) -> Source:
    return open_source(stage_spec(Path("/nowhere"), "u1", "a", source_uri="s3://bucket/p", **options))


def failure(ask: Callable[[], object]) -> DiskFailure:
    with pytest.raises(DiskFailure) as caught:
        ask()
    return caught.value


def read(reader: Source, pin: str = MD5) -> bytes:
    file = RemoteFile("adapter_config.json", "p/adapter_config.json", 2, pin, None)
    with reader.open_file(file, 0) as opened:
        return b"".join(opened.pieces)


@pytest.mark.parametrize("case", ANSWERS, ids=lambda case: f"{case[0]} {case[1]} {case[2]}")
def test_each_answer(case: tuple[str, int, str, str, str, str], serve: Serve) -> None:
    _, status, code, message, of_file, of_listing = case
    serve(lambda path, headers, send: send(error(status, code, message)))
    reader = source()
    for ask, reason in ((lambda: read(reader), of_file), (reader.list_files, of_listing or of_file)):
        found = failure(ask)
        assert found.reason == reason
        assert found.retriable == EXPLANATIONS[Reason(reason)].retriable
        assert code in found.detail
        assert message in found.detail
        assert EXPLANATIONS[Reason(reason)].fix or found.retriable, "it passes with time, or has a fix"


def test_a_region_that_the_service_names_is_followed_once_and_then_named(serve: Serve) -> None:
    moved = error(301, "PermanentRedirect", "use the endpoint", "x-amz-bucket-region: eu-central-1")

    def behaviour(path: str, headers: dict[str, str], send: Callable[[bytes], None]) -> None:
        good = answer("200 OK", LISTING % b"x", "Content-Type: application/xml")
        send(good if "/eu-central-1/s3/" in headers["authorization"] else moved)

    server = serve(behaviour)
    assert len(source().list_files().files) == 1
    assert len(source(s3_region="eu-central-1").list_files().files) == 1
    server.behaviour = lambda path, headers, send: send(moved)
    found = failure(source().list_files)
    assert found.reason == "SourceRegionWrong"
    assert "eu-central-1" in found.detail


@pytest.mark.parametrize("status", ["200 OK", "404 Not Found", "403 Forbidden"])
def test_a_web_page_is_not_the_api(status: str, serve: Serve) -> None:
    page = b"<!doctype html><html><body>Console</body></html>"
    server = serve(lambda path, headers, send: send(answer(status, page, "Content-Type: text/html; charset=utf-8")))
    assert failure(source().list_files).reason == "SourceNotAnApi"
    server.behaviour = lambda path, headers, send: send(answer("502 Bad", page, "Content-Type: text/html"))
    assert failure(source().list_files).reason == "SourceServerError", "a balancer answers so while it has no server"


def test_an_endpoint_with_the_bucket_in_it_is_named(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    def behaviour(path: str, headers: dict[str, str], send: Callable[[bytes], None]) -> None:
        twice = path.startswith("/bucket/bucket")
        good = answer("200 OK", LISTING % b"x", "Content-Type: application/xml")
        send(error(404, "NoSuchKey", "The key does not exist.") if twice else good)

    server = serve(behaviour)
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"{server.endpoint}/bucket")
    assert failure(source().list_files).reason == "SourceEndpointHasBucket"
    monkeypatch.setenv("AWS_ENDPOINT_URL", server.endpoint)
    assert len(source().list_files().files) == 1


@pytest.mark.parametrize("spelling", [f'"{MD5}"', f'W/"{MD5}"', MD5])
def test_an_etag_is_the_same_in_each_spelling(spelling: str, serve: Serve) -> None:
    def behaviour(path: str, headers: dict[str, str], send: Callable[[bytes], None]) -> None:
        if "list-type" in path:
            send(
                answer("200 OK", LISTING % spelling.encode().replace(b'"', b"&quot;"), "Content-Type: application/xml")
            )
        else:
            send(answer("200 OK", b"{}", f"ETag: {spelling}"))

    serve(behaviour)
    (file,) = source().list_files().files
    assert read(source(), file.pin or "") == b"{}"


@pytest.mark.parametrize(("etag", "changed"), [(MD5, False), ("0" * 32, True)])
def test_a_refused_condition_is_compared_without_it(etag: str, changed: bool, serve: Serve) -> None:
    """Some services answer 412 although the ETag is the same; only other content has changed."""

    def behaviour(path: str, headers: dict[str, str], send: Callable[[bytes], None]) -> None:
        refused = error(412, "PreconditionFailed", "a condition did not hold")
        send(refused if "if-match" in headers else answer("200 OK", b"{}", f'ETag: "{etag}"'))

    serve(behaviour)
    if changed:
        assert failure(lambda: read(source())).reason == "SourceChanged"
    else:
        assert read(source()) == b"{}"


@pytest.mark.parametrize("name", ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_REGION", "AWS_ENDPOINT_URL"])
def test_a_line_end_behind_a_setting_does_not_matter(name: str, serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    """A Secret that was made with `echo` has one."""
    serve(lambda path, headers, send: send(answer("200 OK", LISTING % b"x", "Content-Type: application/xml")))
    monkeypatch.setenv(name, f" {os.environ.get(name) or 'eu-central-1'}\r\n")
    assert len(source().list_files().files) == 1


def test_a_line_end_inside_a_credential_is_named() -> None:
    environment = {"AWS_SECRET_ACCESS_KEY": "first\nsecond", "AWS_REGION": " eu-central-1\n", "PATH": " kept "}
    found = failure(lambda: trim_settings(environment))
    assert found.reason == "SourceCredentialsUnreadable"
    assert "AWS_SECRET_ACCESS_KEY" in found.detail
    assert "second" not in found.detail
    assert (environment["AWS_REGION"], environment["PATH"]) == ("eu-central-1", " kept ")


def test_every_answer_fits_a_row_and_each_code_is_listed_once() -> None:
    assert not S3_ANSWERS[-1].codes | S3_ANSWERS[-1].statuses
    seen: dict[tuple[str, str, str], Reason] = {}
    for row in S3_ANSWERS:
        for code in row.codes:
            key = (code, row.operation, row.says)
            assert key not in seen, f"{code} is in the table twice"
            seen[key] = row.reason
