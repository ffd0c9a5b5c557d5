"""s3:// sources with botocore, the client below boto3: listings, ranges bound to an ETag, checksums where they exist.

boto3 itself would only add its resource layer, and its import time in every Job.
"""

from __future__ import annotations

import os
import re
import urllib.parse
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from api.reasons import Reason
from api.source_uri import S3Source
from disk.checksums import DIGEST_BYTES, Announced
from disk.failures import DiskFailure, from_network_error
from disk.sources.answers import Answer, from_s3_answer
from disk.sources.base import (
    MOST_LISTED_FILES,
    READ_BYTES,
    Listing,
    OpenFile,
    RemoteFile,
    SourceOptions,
    gather,
    read_answer,
    skipped,
)
from disk.sources.guard import check_host
from disk.sources.internals import count_as_redirected, keep_body, replace_session, take_as_stream

if TYPE_CHECKING:
    from mypy_boto3_s3.client import S3Client

_CONNECT_SECONDS = 10
_READ_SECONDS = 60
_POOL = 16
_ETAG = re.compile(r"([0-9a-f]{32})(?:-([1-9][0-9]{0,4}))?")
_COUNT = re.compile(r"[1-9][0-9]{0,4}")
_CHECKSUMS = (  # sha256 first, which is computed anyway; then by strength
    ("ChecksumSHA256", "sha256"),
    ("ChecksumSHA1", "sha1"),
    ("ChecksumCRC64NVME", "crc64nvme"),
    ("ChecksumCRC32C", "crc32c"),
    ("ChecksumCRC32", "crc32"),
)
_MOST_LISTING_PAGES = 2_000  # some services return few keys, or none, on a page
_MOST_PARTS = 10_000  # of one upload, by the limits of S3
_MOST_PARTS_ASKED = 1_000  # one request for the size of each part: 8 GiB in parts of 8 MiB
_PARTS_AT_ONCE = 8
_MOST_PAGES = 20
_NO_SUCH_QUESTION = frozenset((400, 403, 404, 405, 416, 501))
_LARGEST_SECRET_FILE = 64 * 1024  # bytes


class S3Reader:
    """A prefix in a bucket."""

    def __init__(self, source: S3Source, options: SourceOptions) -> None:
        self._source = source
        url = options.s3_endpoint or os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL") or ""
        parts = urllib.parse.urlsplit(url)
        if url and (parts.scheme not in ("http", "https") or not parts.hostname):
            raise DiskFailure(Reason.SOURCE_URI_INVALID, "the S3 endpoint is not a valid http(s) URL")
        check_host(parts.hostname or "")
        self._endpoint = url or None
        host = f"{parts.hostname}:{parts.port}" if parts.port else parts.hostname
        self._where = f"bucket {source.bucket} at {host}" if url else f"bucket {source.bucket}"
        in_path = source.bucket in parts.path.strip("/").split("/")
        self._has_bucket = in_path or (parts.hostname or "").startswith(f"{source.bucket.casefold()}.")
        with self._translated():
            self._client = _client(options, self._endpoint)
            replace_session(self._client, lambda session: _BoundedSession(session, self._where))

    def list_files(self) -> Listing:
        """Return all objects below the prefix, except folder markers. Raises: DiskFailure."""
        files: list[RemoteFile] = []
        with self._translated():
            pages = self._client.get_paginator("list_objects_v2").paginate(
                Bucket=self._source.bucket, Prefix=self._source.prefix
            )
            for number, page in enumerate(pages):
                if number >= _MOST_LISTING_PAGES:
                    raise DiskFailure(Reason.SOURCE_TOO_MANY_FILES, f"{self._where} returns an endless listing")
                for entry in page.get("Contents", []):
                    key, size = entry["Key"], entry["Size"]
                    name = key.removeprefix(self._source.prefix)
                    if not name or (key.endswith("/") and size == 0):
                        continue  # consoles create it to show an empty folder
                    if size < 0:
                        raise DiskFailure(
                            Reason.SOURCE_RESPONSE_INVALID, f"{self._where} returned no size for {name!r}"
                        )
                    pin = _plain_etag(entry.get("ETag"))
                    # An ETag is the MD5 only of an object in one part without KMS, which is known when it is opened.
                    files.append(RemoteFile(name, key, size, pin, None))
                if len(files) > MOST_LISTED_FILES:
                    raise DiskFailure(
                        Reason.SOURCE_TOO_MANY_FILES, f"{self._where} has more objects below {self._source.prefix!r}"
                    )
        if not files:
            raise DiskFailure(
                Reason.SOURCE_PREFIX_EMPTY, f'there are no objects below "{self._source.prefix}" in {self._where}'
            )
        identity = f"s3 {self._endpoint or 'aws'} {self._source.bucket} {self._source.prefix}"
        revision = (
            max(files, key=lambda file: (file.size, file.name)).pin or None
        )  # S3 has none: use the ETag of the weights
        return Listing(identity, revision, tuple(sorted(files, key=lambda file: file.name)))

    def checksum_of(self, file: RemoteFile) -> Announced | None:
        """Return the best checksum that the service has for a whole object. Raises: DiskFailure."""
        with self._translated():
            head: Any = self._client.head_object(Bucket=self._source.bucket, Key=file.address, ChecksumMode="ENABLED")
            self._check_pin(head, file)
            return self._announced(file, head)

    def _announced(self, file: RemoteFile, answer: Any) -> Announced | None:
        """Return the best checksum: of the whole object, or of its parts where their sizes are available."""
        told = read_checksums(answer)
        if (whole := next((one for one in told if not one.parts), None)) is not None:
            return Announced(whole.kind, whole.value)
        etag = read_etag(file.pin, answer)
        if etag is not None and not etag.parts:
            return Announced(etag.kind, etag.value)
        composite = next((one for one in told if one.parts > 0), None)
        if (best := composite or etag) is None:
            return None
        layout = self._layout(file, best.parts, has_checksums=composite is not None)
        if layout is None:
            return None
        is_proof = layout.is_known and (composite is not None or _means_parts(answer, best.parts))
        return Announced(best.kind, best.value, layout.sizes, is_proof)

    def _layout(self, file: RemoteFile, count: int, *, has_checksums: bool) -> _Layout | None:
        """Return the sizes of the parts of an object; None: not available, or inconsistent."""
        if count > _MOST_PARTS:
            return None
        if count == 1:
            return _Layout((file.size,), is_known=True)
        sizes = self._listed_parts(file) if has_checksums else []
        if _fits(sizes, count, file.size):
            return _Layout(tuple(sizes), is_known=True)
        first = self._part_size(file, 1, count)
        if first is None:
            return None
        last = file.size - (count - 1) * first
        if count > _MOST_PARTS_ASKED:  # each size costs a request, and such objects are uploaded in parts of one size
            even = (first,) * (count - 1) + (last,)
            return _Layout(even, is_known=False) if _fits(even, count, file.size) else None
        with ThreadPoolExecutor(_PARTS_AT_ONCE, thread_name_prefix="parts") as pool:
            asked = pool.map(lambda number: self._part_size(file, number, count), range(2, count + 1))
            sizes = [first, *(size for size in asked if size is not None)]
        return _Layout(tuple(sizes), is_known=True) if _fits(sizes, count, file.size) else None

    def _listed_parts(self, file: RemoteFile) -> list[int]:
        """Return the sizes in the list of parts; it exists for uploads with checksums, and needs a permission."""
        sizes: list[int] = []
        marker: dict[str, Any] = {}
        for _ in range(_MOST_PAGES):
            answer = self._ask_or_none(
                lambda marker=marker: self._client.get_object_attributes(  # type: ignore[misc]
                    Bucket=self._source.bucket, Key=file.address, ObjectAttributes=["ETag", "ObjectParts"], **marker
                )
            )
            if answer is None:
                return []
            self._check_pin(answer, file)
            found = answer.get("ObjectParts", {})
            page = [part.get("Size", -1) for part in found.get("Parts", [])]
            sizes += page
            if not page or not found.get("IsTruncated") or len(sizes) > _MOST_PARTS:
                return sizes
            marker = {"PartNumberMarker": found.get("NextPartNumberMarker", 0)}
        return []

    def _part_size(self, file: RemoteFile, number: int, count: int) -> int | None:
        """Return the size of one part; None when the service does not support parts."""
        with self._translated():
            answer = self._ask_or_none(
                lambda: self._client.head_object(Bucket=self._source.bucket, Key=file.address, PartNumber=number)
            )
        if answer is None or answer.get("PartsCount", count) != count:
            return None
        self._check_pin(answer, file)
        size = answer.get("ContentLength")
        return size if isinstance(size, int) and 0 < size < file.size else None

    def _ask_or_none(self, ask: Callable[[], Any]) -> Any:
        """Return a response, None when the service does not support or permit the request."""
        from botocore.exceptions import ClientError  # noqa: PLC0415 - lazy: costs start time

        try:
            return ask()
        except ClientError as error:
            if error.response.get("ResponseMetadata", {}).get("HTTPStatusCode") in _NO_SUCH_QUESTION:
                return None
            raise

    @contextmanager
    def open_file(self, file: RemoteFile, offset: int) -> Iterator[OpenFile]:
        """Stream an object from `offset`, if it still has the pinned ETag. Raises: DiskFailure."""
        wanted: dict[str, Any] = {"Bucket": self._source.bucket, "Key": file.address}
        if file.pin:
            wanted["IfMatch"] = f'"{file.pin}"'
        if offset:
            wanted["Range"] = f"bytes={offset}-"
        with self._translated():
            answer = self._get(wanted)
        with closing(answer["Body"]) as body:
            with self._translated():
                self._check_pin(answer, file)
                skip = self._bytes_to_skip(answer, file, offset)
                announced = None if offset else self._announced(file, answer)
            yield OpenFile(self._pieces(body, skip), announced)

    def _get(self, wanted: dict[str, Any]) -> Any:
        """Ask for an object; without the condition where a service refuses it: the ETag is compared then."""
        from botocore.exceptions import ClientError  # noqa: PLC0415 - lazy: costs start time

        try:
            return self._client.get_object(**wanted)
        except ClientError as error:
            if error.response.get("ResponseMetadata", {}).get("HTTPStatusCode") != 412 or "IfMatch" not in wanted:
                raise
            return self._client.get_object(**{name: value for name, value in wanted.items() if name != "IfMatch"})

    def _pieces(self, body: Any, skip: int) -> Iterator[bytes]:
        with self._translated():
            yield from skipped(gather(iter(lambda: body.read(READ_BYTES), b"")), skip)

    def _check_pin(self, answer: Any, file: RemoteFile) -> None:
        etag = _plain_etag(answer.get("ETag"))
        if file.pin and etag and etag != file.pin:
            raise DiskFailure(Reason.SOURCE_CHANGED, f"{file.name} in {self._where} was replaced during the download")

    def _bytes_to_skip(self, answer: Any, file: RemoteFile, offset: int) -> int:
        """Return how many bytes to skip when the server ignored the range."""
        if not offset:
            return 0
        found = re.match(r"bytes (\d+)-", str(answer.get("ContentRange", "")))
        if not found:
            return offset
        if int(found[1]) != offset:
            raise DiskFailure(Reason.SOURCE_RESPONSE_INVALID, f"{self._where} returned another range of {file.name}")
        return 0

    @contextmanager
    def _translated(self) -> Iterator[None]:
        """Raise a DiskFailure for everything that botocore raises."""
        from botocore import exceptions  # noqa: PLC0415 - lazy: costs start time
        from urllib3.exceptions import HTTPError  # noqa: PLC0415 - botocore lets some of its errors through

        try:
            yield
        except DiskFailure:
            raise
        except exceptions.ClientError as error:
            raise self._from_client_error(error) from error
        except (exceptions.NoCredentialsError, exceptions.PartialCredentialsError) as error:
            raise DiskFailure(Reason.SOURCE_UNAUTHORIZED, f"no complete credentials for {self._where}") from error
        except (exceptions.ProfileNotFound, exceptions.ConfigParseError, exceptions.CredentialRetrievalError) as error:
            raise DiskFailure(Reason.SOURCE_CREDENTIALS_UNREADABLE, f"the credentials for {self._where}") from error
        except (exceptions.ParamValidationError, exceptions.InvalidRegionError, exceptions.NoRegionError) as error:
            raise DiskFailure(
                Reason.SOURCE_URI_INVALID, f"{self._where}: bucket, key, region or endpoint is invalid"
            ) from error
        except (exceptions.BotoCoreError, HTTPError, OSError) as error:
            raise from_network_error(error, self._where) from error
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise DiskFailure(
                Reason.SOURCE_RESPONSE_INVALID,
                f"the response of {self._where} is not that of S3 ({type(error).__name__})",
            ) from error

    def _from_client_error(self, error: Any) -> DiskFailure:
        said, meta = error.response.get("Error", {}), error.response.get("ResponseMetadata", {})
        headers = {str(name).lower(): str(value) for name, value in meta.get("HTTPHeaders", {}).items()}
        answer = Answer(
            operation=str(getattr(error, "operation_name", "")),
            status=meta.get("HTTPStatusCode", 0),
            code=str(said.get("Code", "")),
            message=str(said.get("Message") or ""),
            region=str(headers.get("x-amz-bucket-region") or said.get("Region") or ""),
            headers=headers,
        )
        return from_s3_answer(answer, self._where, self._has_bucket)


class _BoundedSession:
    """An HTTP session for botocore that limits responses without a file; botocore reads them without a limit."""

    def __init__(self, session: Any, where: str) -> None:
        self._session = session
        self._where = where

    def send(self, request: Any) -> Any:
        """Send a request, and read the response unless it is a file. Raises: DiskFailure, errors of botocore."""
        is_file = take_as_stream(request)
        response = self._session.send(request)
        if not is_file or response.status_code >= 300:
            kind = str(response.headers.get("content-type", "")).lower()
            if kind.startswith("text/html") and response.status_code < 500:  # a balancer answers 502 in HTML, too
                response.raw.close()
                detail = f"{self._where} answers with a web page (status {response.status_code})"
                raise DiskFailure(Reason.SOURCE_NOT_AN_API, detail)
            try:
                body = read_answer(response.raw.stream(), self._where)
            except BaseException:
                response.raw.close()  # botocore does not
                raise
            keep_body(response, body)
        return response

    def close(self) -> None:
        """Close all connections."""
        self._session.close()


@dataclass(frozen=True, slots=True)
class _Layout:
    """Sizes of the parts of an object, in bytes. `is_known`: the service reported each one."""

    sizes: tuple[int, ...]
    is_known: bool


@dataclass(frozen=True, slots=True)
class Told:
    """A checksum in a response. `parts`: 0 for one of the whole object, -1 when their number is not known."""

    kind: str
    value: str  # hexadecimal
    parts: int = 0


def read_checksums(answer: Any) -> list[Told]:
    """Return the valid checksums of a response, the preferred ones first."""
    is_composite = answer.get("ChecksumType") == "COMPOSITE"
    told: list[Told] = []
    for field, kind in _CHECKSUMS:
        text, dash, count = str(answer.get(field) or "").partition("-")
        value = _from_base64(text)
        if value is None or len(value) != 2 * DIGEST_BYTES[kind] or (dash and not _COUNT.fullmatch(count)):
            continue
        parts = int(count) if dash else _parts_of(answer) if is_composite else 0
        told.append(Told(kind, value, parts))
    return told


def _parts_of(answer: Any) -> int:
    """Return the number of parts of an object, -1 when the response does not contain it."""
    found = _ETAG.fullmatch(str(answer.get("ETag", "")).strip('"').lower())
    return int(found[2]) if found and found[2] else -1


def read_etag(pin: str, answer: Any) -> Told | None:
    """Return the MD5 in an ETag, None where it is another value, as with keys of KMS or of the customer.

    Source: Amazon S3 API reference, `Object`, field `ETag`.
    """
    found = _ETAG.fullmatch(pin.lower())
    if found is None or answer.get("ServerSideEncryption") not in (None, "", "AES256"):
        return None
    if answer.get("SSECustomerAlgorithm"):
        return None
    return Told("md5", found[1], int(found[2] or 0))


def _plain_etag(value: object) -> str:
    """Return an ETag without quotation marks, and without the mark of a weak one: some services write it."""
    return str(value or "").removeprefix("W/").strip('"')


def _means_parts(answer: Any, count: int) -> bool:
    """Return whether `…-N` of this service is the MD5 of the MD5s of the parts; some services write another value.

    A single `…-1` can also be a value that MinIO invents when the computation of MD5s is off.
    """
    server = str(answer.get("ResponseMetadata", {}).get("HTTPHeaders", {}).get("server", "")).lower()
    return server.startswith("amazons3") or (count > 1 and server.startswith(("minio", "ceph")))


def _fits(sizes: Sequence[int], count: int, total: int) -> bool:
    return len(sizes) == count and sum(sizes) == total and all(isinstance(size, int) and size > 0 for size in sizes)


def _client(options: SourceOptions, endpoint: str | None) -> S3Client:
    """Build the client. Credentials come from the chain of the environment, from mounted files, or there are none."""
    from botocore import UNSIGNED  # noqa: PLC0415 - lazy: costs start time
    from botocore.config import Config  # noqa: PLC0415
    from botocore.session import get_session  # noqa: PLC0415

    signature: Any = "s3v4" if options.s3_signature_version == "s3v4" else None
    if options.s3_auth == "anonymous":
        signature = UNSIGNED
    config = Config(
        connect_timeout=_CONNECT_SECONDS,
        read_timeout=_READ_SECONDS,
        max_pool_connections=_POOL,
        retries={"total_max_attempts": 1},  # disk.download decides about retries
        signature_version=signature,
        s3=cast("Any", {"addressing_style": options.s3_addressing_style}),
        response_checksum_validation="when_required",  # disk.checksums verifies the whole object, also after a resume
        user_agent_extra="aim-adapters",
    )
    verify: bool | str | None = None
    if options.s3_insecure_skip_verify:
        verify = False
    elif options.s3_ca_file:
        verify = _readable(Path(options.s3_ca_file))
    region = options.s3_region or os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION") or "us-east-1"
    session: Any = get_session()
    session.register_component("data_loader", _loader())
    client: Any = session.create_client(
        "s3", region, endpoint_url=endpoint, config=config, verify=verify, **_static_credentials(options)
    )
    client.meta.events.register("before-sign.s3.GetObject", _ask_for_checksum)
    client.meta.events.register("before-call.s3.HeadBucket", count_as_redirected)
    return cast("S3Client", client)


@cache
def _loader() -> Any:
    """Return the parsed description of the service, once per process: it takes most of the time of a client."""
    from botocore.loaders import create_loader  # noqa: PLC0415 - lazy, as above

    return create_loader()


def _ask_for_checksum(request: Any, **_: Any) -> None:
    """Have GetObject return the checksum of the object, without a second computation by botocore."""
    request.headers["x-amz-checksum-mode"] = "ENABLED"


def _static_credentials(options: SourceOptions) -> dict[str, str]:
    """Read mounted keys; empty: use the chain of the environment. Raises: DiskFailure."""
    if options.s3_auth != "static":
        return {}
    folder = Path(options.s3_credentials_dir or "")
    keys = {
        "aws_access_key_id": _secret(folder / "accessKeyId"),
        "aws_secret_access_key": _secret(folder / "secretAccessKey"),
    }
    if (folder / "sessionToken").exists():
        keys["aws_session_token"] = _secret(folder / "sessionToken")
    return keys


def _secret(path: Path) -> str:
    try:
        if path.stat().st_size <= _LARGEST_SECRET_FILE and (text := path.read_text().strip()):
            return text
    except (OSError, UnicodeDecodeError):
        pass
    raise DiskFailure(Reason.SOURCE_CREDENTIALS_UNREADABLE, f"the mounted file {path.name} is missing or empty")


def _readable(path: Path) -> str:
    if not os.access(path, os.R_OK):
        raise DiskFailure(Reason.SOURCE_CREDENTIALS_UNREADABLE, f"the mounted CA file {path.name} cannot be read")
    return str(path)


def _from_base64(value: object) -> str | None:
    """Convert a base64 checksum of S3 to hexadecimal; None for any other value."""
    import base64  # noqa: PLC0415 - used on one path only
    import binascii  # noqa: PLC0415

    if not isinstance(value, str) or not value:
        return None
    try:
        return base64.b64decode(value, validate=True).hex()
    except (binascii.Error, ValueError):
        return None
