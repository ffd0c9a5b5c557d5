"""An S3 stand-in over a folder: reading and simple writing, with signatures, checksums and errors as S3 has them.

`root/BUCKET/KEY…` is served at once; a new first-level folder is a new bucket.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import ipaddress
import os
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, Final
from urllib.parse import unquote

from devcluster.sources.faults import Rule
from devcluster.sources.s3bucket import (
    ALGORITHMS,
    LARGE_BYTES,
    MAX_KEYS,
    Buckets,
    BucketSettings,
    Entry,
    Listing,
    SettingsError,
    make_token,
    read_token,
)
from devcluster.sources.s3write import Writer
from devcluster.sources.s3xml import (
    CODE_OF_STATUS,
    S3Error,
    document,
    error_document,
    http_time,
    iso_time,
    tags,
    url_encoded,
)
from devcluster.sources.server import (
    Answer,
    Call,
    FilePart,
    RangeError,
    StandIn,
    common_arguments,
    common_options,
    in_thread,
    parse_range,
    serve,
)
from devcluster.sources.sigv4 import Account, Sent, Verified, is_signed, verify

_SERVICE: Final = {"GET": "ListBuckets"}
_BUCKET: Final = {"HEAD": "HeadBucket", "PUT": "CreateBucket", "DELETE": "DeleteBucket"}
_OBJECT: Final = {"GET": "GetObject", "HEAD": "HeadObject", "PUT": "PutObject", "DELETE": "DeleteObject"}
_UPLOAD: Final = {"PUT": "UploadPart", "POST": "CompleteMultipartUpload", "DELETE": "AbortMultipartUpload"}
_READS: Final = frozenset(
    {
        "GetObject",
        "GetObjectAttributes",
        "HeadObject",
        "HeadBucket",
        "ListObjectsV2",
        "ListObjects",
        "GetBucketLocation",
    }
)
READ_TRIES: Final = 5
_SUB_RESOURCES: Final = (
    "accelerate acl analytics cors delete encryption intelligent-tiering inventory legal-hold lifecycle "
    "logging metrics notification object-lock ownershipControls policy policyStatus publicAccessBlock replication "
    "requestPayment restore retention select tagging torrent versioning versions website versionId"
)
_NOT_HERE: Final = frozenset(_SUB_RESOURCES.split())


def operation_of(method: str, bucket: str, key: str, query: dict[str, str]) -> str:
    """Return the API's name of a request; `NotImplemented` and `MethodNotAllowed` for what is not here."""
    if _NOT_HERE & set(query):
        return "NotImplemented"
    if not bucket:
        return _SERVICE.get(method, "MethodNotAllowed")
    if not key:
        if method == "GET":
            listing = "ListObjectsV2" if query.get("list-type") == "2" else "ListObjects"
            return "GetBucketLocation" if "location" in query else "NotImplemented" if "uploads" in query else listing
        return _BUCKET.get(method, "NotImplemented" if method == "POST" else "MethodNotAllowed")
    if "uploads" in query:
        return "CreateMultipartUpload" if method == "POST" else "MethodNotAllowed"
    if "uploadId" in query:
        return _UPLOAD.get(method, "NotImplemented")
    if "attributes" in query:
        return "GetObjectAttributes" if method == "GET" else "NotImplemented"
    return _OBJECT.get(method, "NotImplemented" if method == "POST" else "MethodNotAllowed")


def is_address(host: str) -> bool:
    """Whether a host without port is an IP address."""
    try:
        ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return False
    return True


class S3Server(StandIn):
    """The S3 server. `endpoint` is the base URL for boto3's `endpoint_url`."""

    name = "s3"

    def __init__(
        self,
        root: str | os.PathLike[str],
        *,
        access_key: str,
        secret_key: str,
        region: str = "us-east-1",
        session_token: str = "",
        checksum: str = "SHA256",
        base_hosts: Sequence[str] = ("s3.localhost",),
        large_bytes: int = LARGE_BYTES,
        server_name: str = "AmazonS3",
        **options: Any,
    ) -> None:
        if not access_key or not secret_key:
            raise ValueError("the server needs an access key and a secret key")
        super().__init__(root, secret=secret_key, **options)
        self.account = Account(access_key, secret_key, region, session_token)
        self.buckets = Buckets(self.root, self.digests, checksum, large_bytes)
        self.base_hosts = tuple(base_hosts)
        self.server_name = server_name  # what it stands in for: clients know by it how an ETag of parts is made
        self.writer = Writer(self.buckets)

    def split(self, call: Call) -> tuple[str, str]:
        """Return (bucket, key) of a request in path style or virtual-host style; the key may be empty."""
        path = unquote(call.raw_path).removeprefix("/")
        bucket = self._bucket_of_host(call.header("Host"))
        if bucket:
            return bucket, path
        bucket, _, key = path.partition("/")
        return bucket, key

    def _bucket_of_host(self, header: str) -> str:
        host = header.rpartition(":")[0] if header.rpartition(":")[2].isdigit() else header
        if is_address(host) or host in ("localhost", *self.base_hosts):
            return ""
        for base in self.base_hosts:
            if host.endswith("." + base):
                return host[: -len(base) - 1]
        first, dot, _ = host.partition(".")
        return first if dot and self.buckets.exists(first) else ""

    def route(self, call: Call) -> None:
        """Name the operation; `path` is /BUCKET/KEY in both styles."""
        bucket, key = self.split(call)
        call.path = f"/{bucket}/{key}" if key else f"/{bucket}"
        call.operation = operation_of(call.method, bucket, key, call.query)

    async def answer(self, call: Call) -> Answer:
        """Check signature and rights, then answer; reading of the disk happens in a thread."""
        bucket, key = self.split(call)
        try:
            payload = self._authenticate(call, bucket)
            if call.operation in ("NotImplemented", "MethodNotAllowed"):
                raise S3Error(call.operation)
            if call.operation not in _READS and call.operation != "ListBuckets":
                return await self._write(call, bucket, key, payload)
            for _ in range(READ_TRIES - 1):  # people copy files in while we read: look again when one changes
                with contextlib.suppress(FileNotFoundError):
                    return await asyncio.to_thread(self._read, call, bucket, key)
            return await asyncio.to_thread(self._read, call, bucket, key)
        except S3Error as error:
            return self._error(call, error)
        except SettingsError as error:
            return self._error(call, S3Error("InternalError", f"the stand-in cannot read its settings: {error}"))
        except OSError as error:
            return self._error(call, S3Error("InternalError", f"the stand-in met {error}"))

    def fault_answer(self, call: Call, rule: Rule) -> Answer:
        """Return an error as S3 gives it."""
        status = rule.status or 500
        answer = self._error(call, S3Error(rule.code or CODE_OF_STATUS[status], rule.message, status))
        if rule.retry_after is not None:
            answer.headers["Retry-After"] = str(rule.retry_after)
        return answer

    def _error(self, call: Call, error: S3Error) -> Answer:
        request_id = os.urandom(8).hex().upper()
        headers = {"Content-Type": "application/xml", "x-amz-request-id": request_id, "x-amz-id-2": request_id}
        if "Region" in error.extra or call.operation == "HeadBucket":
            headers["x-amz-bucket-region"] = self.account.region
        if error.code == "InvalidRange" and "ActualObjectSize" in error.extra:
            headers["Content-Range"] = f"bytes */{error.extra['ActualObjectSize']}"
        return Answer(error.status, headers, error_document(error, call.path, request_id), code=error.code)

    # rights

    def _authenticate(self, call: Call, bucket: str) -> str:
        """Return the signed payload word.

        Raises: S3Error.
        """
        sent = Sent(
            call.method,
            call.raw_path,
            call.raw_query,
            {name: ",".join(call.request.headers.getall(name)) for name in _lower(call.request.headers)},
        )
        exists = bool(bucket) and self.buckets.exists(bucket)
        settings = self.buckets.settings(bucket) if exists else BucketSettings()
        if not is_signed(sent):
            if settings.public and call.operation in _READS:
                return ""
            raise S3Error("AccessDenied")
        call.identity = "invalid"
        verified: Verified = verify(sent, self.account, datetime.now(UTC))
        call.identity = verified.access_key
        if settings.allowed_access_keys is not None and verified.access_key not in settings.allowed_access_keys:
            raise S3Error("AccessDenied")
        if bucket and not exists and call.operation != "CreateBucket":
            raise S3Error("NoSuchBucket", BucketName=bucket)
        return verified.payload

    # reading

    def _read(self, call: Call, bucket: str, key: str) -> Answer:
        match call.operation:
            case "ListBuckets":
                return self._list_buckets()
            case "HeadBucket":
                return Answer(200, {"x-amz-bucket-region": self.account.region})
            case "GetBucketLocation":
                region = "" if self.account.region == "us-east-1" else self.account.region
                return _xml(document("LocationConstraint", []).replace(b"><", f">{region}<".encode(), 1))
            case "ListObjectsV2":
                return self._list_v2(call, bucket)
            case "ListObjects":
                return self._list_v1(call, bucket)
            case "GetObjectAttributes":
                return self._attributes(call, bucket, key)
            case _:
                return self._object(call, bucket, key)

    def _list_buckets(self) -> Answer:
        listed = tags(
            ("Bucket", tags([("Name", name), ("CreationDate", "2026-01-01T00:00:00.000Z")]))
            for name in self.buckets.names()
        )
        owner = tags([("ID", "stand-in"), ("DisplayName", "stand-in")])
        return _xml(document("ListAllMyBucketsResult", [("Owner", owner), ("Buckets", listed)]))

    def _list_v2(self, call: Call, bucket: str) -> Answer:
        query = call.query
        prefix, delimiter, encoding = query.get("prefix", ""), query.get("delimiter", ""), _encoding(query)
        token, after, after_prefix = query.get("continuation-token"), query.get("start-after", ""), False
        if token is not None:
            try:
                after, after_prefix = read_token(token)
            except ValueError as error:
                raise S3Error("InvalidArgument", "The continuation token provided is incorrect") from error
        wanted = _max_keys(query)
        page = self.buckets.page(bucket, prefix, delimiter, after=after, after_prefix=after_prefix, max_keys=wanted)
        following = make_token(page.last, page.last in page.prefixes) if page.truncated else None
        shown: list[tuple[str, object]] = [
            ("Name", bucket),
            ("Prefix", url_encoded(prefix, encoding)),
            ("Delimiter", url_encoded(delimiter, encoding) if delimiter else None),
            ("EncodingType", encoding or None),
            ("StartAfter", url_encoded(query["start-after"], encoding) if query.get("start-after") else None),
            ("ContinuationToken", token),
            ("NextContinuationToken", following),
            ("KeyCount", len(page.entries) + len(page.prefixes)),
        ]
        return self._listing(page, wanted, encoding, shown, owner=query.get("fetch-owner") == "true")

    def _list_v1(self, call: Call, bucket: str) -> Answer:
        query = call.query
        prefix, delimiter, encoding = query.get("prefix", ""), query.get("delimiter", ""), _encoding(query)
        marker, wanted = query.get("marker", ""), _max_keys(query)
        is_prefix = bool(delimiter) and marker.endswith(delimiter)
        page = self.buckets.page(bucket, prefix, delimiter, after=marker, after_prefix=is_prefix, max_keys=wanted)
        following = url_encoded(page.last, encoding) if page.truncated and delimiter else None
        shown: list[tuple[str, object]] = [
            ("Name", bucket),
            ("Prefix", url_encoded(prefix, encoding)),
            ("Marker", url_encoded(marker, encoding)),
            ("NextMarker", following),
            ("Delimiter", url_encoded(delimiter, encoding) if delimiter else None),
            ("EncodingType", encoding or None),
        ]
        return self._listing(page, wanted, encoding, shown, owner=True)

    def _listing(
        self, page: Listing, wanted: int, encoding: str, shown: list[tuple[str, object]], *, owner: bool
    ) -> Answer:
        shown += [("MaxKeys", wanted), ("IsTruncated", str(page.truncated).lower())]
        shown += [("Contents", self._listed(entry, encoding, owner)) for entry in page.entries]
        shown += [("CommonPrefixes", tags([("Prefix", url_encoded(p, encoding))])) for p in page.prefixes]
        return _xml(document("ListBucketResult", shown))

    def _listed(self, entry: Entry, encoding: str, owner: bool) -> str:
        algorithm, kind = self.buckets.algorithm(entry)
        return tags(
            [
                ("Key", url_encoded(entry.key, encoding)),
                ("LastModified", iso_time(entry.file.mtime_ns)),
                ("ETag", f'"{self.buckets.etag(entry)}"'),
                ("ChecksumAlgorithm", algorithm or None),
                ("ChecksumType", kind or None),
                ("Size", entry.file.size),
                ("Owner", tags([("ID", "stand-in"), ("DisplayName", "stand-in")]) if owner else None),
                ("StorageClass", "STANDARD"),
            ]
        )

    def _object(self, call: Call, bucket: str, key: str) -> Answer:
        entry = self.buckets.find(bucket, key)
        if entry is None:
            raise S3Error("NoSuchKey", Key=key)
        file, etag = entry.file, f'"{self.buckets.etag(entry)}"'
        headers = {
            "ETag": etag,
            "Last-Modified": http_time(file.mtime_ns),
            "Accept-Ranges": "bytes",
            "Content-Type": call.query.get("response-content-type", entry.settings.content_type),
            "Server": self.server_name,
            "x-amz-request-id": os.urandom(8).hex().upper(),
        }
        if (encryption := self.buckets.encryption(entry)) != "":
            headers["x-amz-server-side-encryption"] = encryption
        if "response-content-disposition" in call.query:
            headers["Content-Disposition"] = call.query["response-content-disposition"]
        if not_modified(call, etag, file.mtime_ns):
            return Answer(304, headers)
        parts = self.buckets.part_sizes(entry)
        span = self._span(call, file.size, parts)
        if span is None and call.header("x-amz-checksum-mode").upper() == "ENABLED":
            algorithm, value, kind = self.buckets.checksum_of(entry)
            if algorithm:
                headers |= {f"x-amz-checksum-{algorithm.lower()}": value, "x-amz-checksum-type": kind}
        if span is None:
            return Answer(200, headers, part=FilePart(file, 0, file.size))
        start, count = span
        headers["Content-Range"] = f"bytes {start}-{start + count - 1}/{file.size}"
        if "partNumber" in call.query and parts:
            headers["x-amz-mp-parts-count"] = str(len(parts))
        return Answer(206, headers, part=FilePart(file, start, count))

    def _attributes(self, call: Call, bucket: str, key: str) -> Answer:
        """Answer GetObjectAttributes. As in S3 an object's parts are listed when it was uploaded with checksums."""
        entry = self.buckets.find(bucket, key)
        if entry is None:
            raise S3Error("NoSuchKey", Key=key)
        asked = {name.strip() for name in call.header("x-amz-object-attributes").split(",")}
        algorithm, value, kind = self.buckets.checksum_of(entry)
        shown: list[tuple[str, object]] = []
        if "ETag" in asked:
            shown.append(("ETag", self.buckets.etag(entry)))
        if "Checksum" in asked and algorithm:
            whole = value.partition("-")[0]
            shown.append(("Checksum", tags([(f"Checksum{algorithm}", whole), ("ChecksumType", kind)])))
        parts = self.buckets.part_sizes(entry)
        if "ObjectParts" in asked and parts:
            shown.append(("ObjectParts", _part_list(call, parts, listed=bool(algorithm))))
        if "StorageClass" in asked:
            shown.append(("StorageClass", "STANDARD"))
        if "ObjectSize" in asked:
            shown.append(("ObjectSize", entry.file.size))
        answer = _xml(document("GetObjectAttributesResponse", shown))
        answer.headers["Last-Modified"] = http_time(entry.file.mtime_ns)
        return answer

    def _span(self, call: Call, size: int, parts: Sequence[int]) -> tuple[int, int] | None:
        """Return (start, count) of a partial answer, None for the whole object.

        Raises: S3Error: InvalidRange, InvalidPartNumber.
        """
        wanted, part = call.header("Range"), call.query.get("partNumber", "")
        if part:
            if wanted:
                raise S3Error("InvalidRequest", "Cannot specify both Range header and partNumber query parameter")
            count = max(1, len(parts))
            if not part.isdigit() or not 1 <= int(part) <= count:
                raise S3Error("InvalidPartNumber", ActualPartCount=str(count), PartNumberRequested=part)
            start, length = (sum(parts[: int(part) - 1]), parts[int(part) - 1]) if parts else (0, size)
            return (start, length) if length else None
        try:
            return parse_range(wanted, size) if wanted else None
        except RangeError as error:
            raise S3Error("InvalidRange", RangeRequested=wanted, ActualObjectSize=str(size)) from error

    # writing

    async def _write(self, call: Call, bucket: str, key: str, payload: str) -> Answer:
        headers = await self.writer.write(call, bucket, key, payload)
        if isinstance(headers, bytes):
            return _xml(headers)
        return Answer(204 if call.method == "DELETE" else 200, headers)


def _lower(headers: Any) -> list[str]:
    return list(dict.fromkeys(str(name).lower() for name in headers))


def _xml(body: bytes) -> Answer:
    return Answer(200, {"Content-Type": "application/xml", "x-amz-request-id": os.urandom(8).hex().upper()}, body)


def _part_list(call: Call, parts: Sequence[int], *, listed: bool) -> str:
    """Return one page of an object's parts, without their own checksums."""
    limit, marker = call.header("x-amz-max-parts") or str(MAX_KEYS), call.header("x-amz-part-number-marker") or "0"
    if not limit.isdigit() or not marker.isdigit():
        raise S3Error("InvalidArgument", "max-parts and part-number-marker are integers")
    first, count = int(marker), min(int(limit), MAX_KEYS)
    shown: list[tuple[str, object]] = [("PartsCount", len(parts))]
    if listed:
        page = list(enumerate(parts, start=1))[first : first + count]
        last = page[-1][0] if page else first
        shown += [("PartNumberMarker", first), ("NextPartNumberMarker", last), ("MaxParts", count)]
        shown.append(("IsTruncated", str(bool(page) and last < len(parts)).lower()))
        shown += [("Part", tags([("PartNumber", number), ("Size", size)])) for number, size in page]
    return tags(shown)


def _encoding(query: dict[str, str]) -> str:
    encoding = query.get("encoding-type", "")
    if encoding not in ("", "url"):
        raise S3Error("InvalidArgument", "Invalid Encoding Method specified in Request")
    return encoding


def _max_keys(query: dict[str, str]) -> int:
    text = query.get("max-keys", str(MAX_KEYS))
    if not text.isdigit():
        raise S3Error("InvalidArgument", "Provided max-keys not an integer or within integer range")
    return min(int(text), MAX_KEYS)


def _seconds(header: str) -> float | None:
    try:
        return parsedate_to_datetime(header).timestamp() if header else None
    except ValueError:
        return None


def not_modified(call: Call, etag: str, mtime_ns: int) -> bool:
    """Check the conditional headers; whether the answer is 304.

    Raises: S3Error PreconditionFailed, for If-Match and If-Unmodified-Since.
    """
    mtime = mtime_ns // 1_000_000_000
    match, none_match = call.header("If-Match"), call.header("If-None-Match")
    if match and not _etag_in(etag, match):
        raise S3Error("PreconditionFailed", Condition="If-Match")
    unmodified = _seconds(call.header("If-Unmodified-Since"))
    if not match and unmodified is not None and mtime > unmodified:
        raise S3Error("PreconditionFailed", Condition="If-Unmodified-Since")
    if none_match:
        return _etag_in(etag, none_match)
    modified = _seconds(call.header("If-Modified-Since"))
    return modified is not None and mtime <= modified


def _etag_in(etag: str, header: str) -> bool:
    """Whether an If-Match value names an ETag; S3 takes it with and without quotes."""
    return any(tag.strip().strip('"') in (etag.strip('"'), "*") for tag in header.split(","))


@contextlib.contextmanager
def running_s3(root: str | os.PathLike[str], *, access_key: str, secret_key: str, **options: Any) -> Iterator[S3Server]:
    """Run a server in a thread for synchronous code; yields it (endpoint, set_faults, requests)."""
    with in_thread(lambda: S3Server(root, access_key=access_key, secret_key=secret_key, **options)) as server:
        yield server


def main(arguments: Sequence[str] | None = None) -> None:
    """Serve until SIGTERM; prints one JSON line with `endpoint`, `region` and `pid` when ready."""
    parser = argparse.ArgumentParser(prog="python -m devcluster.sources.s3", description=__doc__)
    common_arguments(parser)
    env = os.environ
    parser.add_argument("--access-key", default=env.get("S3_ACCESS_KEY", ""), help="default: $S3_ACCESS_KEY")
    parser.add_argument("--secret-key", default=env.get("S3_SECRET_KEY", ""), help="default: $S3_SECRET_KEY")
    parser.add_argument("--session-token", default=env.get("S3_SESSION_TOKEN", ""), help="default: $S3_SESSION_TOKEN")
    parser.add_argument("--region", default="us-east-1")
    parser.add_argument("--checksum", choices=["NONE", *ALGORITHMS], default="SHA256", help="what each object has")
    parser.add_argument("--base-host", action="append", metavar="HOST", help="BUCKET.HOST is virtual-host style")
    flags = parser.parse_args(arguments)
    if not flags.access_key or not flags.secret_key:
        parser.error("keys are needed: --access-key and --secret-key, or $S3_ACCESS_KEY and $S3_SECRET_KEY")
    server = S3Server(
        flags.root,
        access_key=flags.access_key,
        secret_key=flags.secret_key,
        session_token=flags.session_token,
        region=flags.region,
        checksum=flags.checksum,
        base_hosts=flags.base_host or ("s3.localhost",),
        **common_options(flags),
    )
    asyncio.run(serve(server, flags.ready_fd, lambda: {"region": flags.region}))


if __name__ == "__main__":
    main()
