"""Writing to the S3 stand-in: objects, multipart uploads, buckets. For people who fill it; it keeps no versions."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import os
import re
import shutil
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import IO, Any, Final
from xml.etree import ElementTree

from devcluster.sources.files import CHUNK_BYTES, Hasher, new_hasher, plain_names
from devcluster.sources.s3bucket import ALGORITHMS, HIDDEN_PREFIX, Buckets, Uploaded
from devcluster.sources.s3xml import S3Error, document
from devcluster.sources.server import Call
from devcluster.sources.sigv4 import UNSIGNED

UPLOADS: Final = ".s3-uploads"  # below the root; not a bucket
TRAILER: Final = "STREAMING-UNSIGNED-PAYLOAD-TRAILER"
MAX_LINE_BYTES: Final = 16 << 10
_NO_SUCH_TYPES: Final = {("CRC64NVME", "COMPOSITE"), ("SHA1", "FULL_OBJECT"), ("SHA256", "FULL_OBJECT")}
_BUCKET_NAME: Final = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
_UPLOAD_ID: Final = re.compile(r"[0-9a-f]{32}")


@dataclass(slots=True)
class _Body:
    """What a body is checked against, and what was received of it."""

    declared: dict[str, str]  # hasher name -> base64 digest
    payload: str
    hashers: dict[str, Hasher] = field(default_factory=dict)
    trailers: dict[str, str] = field(default_factory=dict)

    def take(self, chunk: bytes, stream: IO[bytes]) -> None:
        """Write and hash the next bytes."""
        stream.write(chunk)
        for hasher in self.hashers.values():
            hasher.update(chunk)

    def check(self) -> None:
        """Raise S3Error if something does not match what arrived."""
        sha256 = self.hashers["sha256"].digest()
        if len(self.payload) == 64 and self.payload != sha256.hex():
            raise S3Error("XAmzContentSHA256Mismatch")
        for name, value in (self.declared | _checksums(self.trailers)).items():
            if name in self.hashers and base64.b64encode(self.hashers[name].digest()).decode() != value:
                raise S3Error("BadDigest", f"The {name} that you sent did not match what was received.")


def _checksums(headers: Any) -> dict[str, str]:
    """Return hasher name -> base64 digest of the checksum headers that can be checked here."""
    found = {ours: headers.get(f"x-amz-checksum-{theirs.lower()}") for theirs, ours in ALGORITHMS.items()}
    return {name: value for name, value in found.items() if value}


async def _unchunked(chunks: AsyncIterator[bytes], trailers: dict[str, str]) -> AsyncIterator[bytes]:
    """Yield the content of an `aws-chunked` body and put its trailers into `trailers`.

    Raises: S3Error when it is malformed or ends early.
    """
    buffer = bytearray()
    left, in_trailers = 0, False
    async for chunk in chunks:
        buffer += chunk
        while buffer:
            if left:
                taken = bytes(buffer[:left])
                del buffer[: len(taken)]
                left -= len(taken)
                yield taken
                continue
            line, newline, _ = bytes(buffer[:MAX_LINE_BYTES]).partition(b"\r\n")
            if not newline:
                if len(buffer) >= MAX_LINE_BYTES:
                    raise S3Error("InvalidRequest", "malformed aws-chunked body")
                break
            del buffer[: len(line) + 2]
            if in_trailers:
                name, _, value = line.decode("latin-1").partition(":")
                trailers[name.strip().lower()] = value.strip()
            elif line:  # an empty one ends a chunk's content
                size = line.split(b";")[0]
                if not re.fullmatch(rb"[0-9a-fA-F]{1,8}", size):
                    raise S3Error("InvalidRequest", "malformed aws-chunked body")
                left = int(size, 16)
                in_trailers = left == 0
    if not in_trailers:
        raise S3Error("InvalidRequest", "the aws-chunked body ended early")


@dataclass(slots=True)
class Writer:
    """Writes below the root of the buckets: into a hidden file first, then renamed."""

    buckets: Buckets

    async def write(self, call: Call, bucket: str, key: str, payload: str) -> dict[str, str] | bytes:
        """Do what the operation says; returns headers, or a document.

        Raises: S3Error; OSError from the disk.
        """
        if "x-amz-copy-source" in call.request.headers:
            raise S3Error("NotImplemented", "objects cannot be copied here")
        match call.operation:
            case "CreateBucket":
                return self._create_bucket(bucket)
            case "DeleteBucket":
                return self._delete_bucket(bucket)
            case "PutObject":
                return await self._put(call, bucket, key, payload)
            case "DeleteObject":
                return self._delete(bucket, key)
            case "CreateMultipartUpload":
                return self._create_upload(call, bucket, key)
            case "UploadPart":
                return await self._upload_part(call, payload)
            case "CompleteMultipartUpload":
                return await self._complete(call, bucket, key)
            case _:
                shutil.rmtree(self._upload(call.query["uploadId"]), ignore_errors=True)
                return {}

    def _create_bucket(self, bucket: str) -> dict[str, str]:
        if not _BUCKET_NAME.fullmatch(bucket):
            raise S3Error("InvalidBucketName", BucketName=bucket)
        if self.buckets.exists(bucket):
            raise S3Error("BucketAlreadyOwnedByYou", BucketName=bucket)
        os.mkdir(os.path.join(self.buckets.root.path, bucket))
        return {"Location": f"/{bucket}"}

    def _delete_bucket(self, bucket: str) -> dict[str, str]:
        try:
            os.rmdir(os.path.join(self.buckets.root.path, bucket))
        except OSError as error:
            raise S3Error("BucketNotEmpty", BucketName=bucket) from error
        return {}

    def _target(self, bucket: str, key: str) -> str:
        """Return the path for a key, with its folder made.

        Raises: S3Error for a key that is not a valid path, and for one that leads out of the root.
        """
        names = key.split("/")
        if not plain_names(names) or names[0].startswith(HIDDEN_PREFIX):
            raise S3Error("InvalidArgument", f"the key {key!r} cannot be a file's path (see aliases in the docs)")
        folder = os.path.join(self.buckets.root.path, bucket, *names[:-1])
        try:
            os.makedirs(folder, exist_ok=True)
        except (FileExistsError, NotADirectoryError) as error:
            raise S3Error("InvalidArgument", f"the key {key!r} is below another object") from error
        if self.buckets.root.folder([bucket, *names[:-1]]) is None:
            raise S3Error("AccessDenied")
        target = os.path.join(folder, names[-1])
        if os.path.isdir(target):
            raise S3Error("InvalidArgument", f"there are other objects below the key {key!r}")
        return target

    async def _receive(self, call: Call, path: str, payload: str) -> _Body:
        """Write the body to a new file and check it; the file is removed again when it is not right."""
        declared = _checksums(call.request.headers)
        if call.header("Content-MD5"):
            declared["md5"] = call.header("Content-MD5")
        body = _Body(declared, payload)
        if payload.startswith("STREAMING-") and payload != TRAILER:
            raise S3Error("NotImplemented", f"{payload} is not checked here; use {UNSIGNED} or a signed payload")
        names = {"md5", "sha256", *declared, *(ALGORITHMS.values() if payload == TRAILER else ())}
        body.hashers = {name: new_hasher(name) for name in names}
        chunks = call.chunks() if payload != TRAILER else _unchunked(call.chunks(), body.trailers)
        try:
            with await asyncio.to_thread(open, path, "xb") as stream:
                async for chunk in chunks:
                    await asyncio.to_thread(body.take, chunk, stream)
            body.check()
        except BaseException:  # cancellation too: no half file stays
            os.unlink(path)
            raise
        return body

    async def _put(self, call: Call, bucket: str, key: str, payload: str) -> dict[str, str]:
        if key.endswith("/") and call.header("Content-Length") == "0":  # a console's "folder"
            os.makedirs(os.path.dirname(self._target(bucket, f"{key.rstrip('/')}/x")), exist_ok=True)
            return {"ETag": f'"{hashlib.md5(b"", usedforsecurity=False).hexdigest()}"'}
        target = self._target(bucket, key)
        scratch = os.path.join(self.buckets.root.path, bucket, f".s3-put-{os.urandom(8).hex()}")
        body = await self._receive(call, scratch, payload)
        os.replace(scratch, target)
        return {"ETag": f'"{body.hashers["md5"].digest().hex()}"'}

    def _delete(self, bucket: str, key: str) -> dict[str, str]:
        names = key.split("/")
        if not plain_names(names) or names[0].startswith(HIDDEN_PREFIX):
            return {}
        folder = self.buckets.root.folder([bucket, *names[:-1]])
        path = os.path.join(folder or "", names[-1])
        if folder is None or not os.path.lexists(path) or os.path.isdir(path):
            return {}  # deleting a missing object succeeds
        os.unlink(path)
        top = os.path.join(self.buckets.root.path, bucket)
        while folder != top and folder.startswith(top) and not os.listdir(folder):
            os.rmdir(folder)
            folder = os.path.dirname(folder)
        return {}

    # multipart

    def _upload(self, upload_id: str) -> str:
        folder = os.path.join(self.buckets.root.path, UPLOADS, upload_id)
        if not _UPLOAD_ID.fullmatch(upload_id) or not os.path.isdir(folder):
            raise S3Error("NoSuchUpload", UploadId=upload_id)
        return folder

    def _create_upload(self, call: Call, bucket: str, key: str) -> bytes:
        self._target(bucket, key)
        algorithm = call.header("x-amz-checksum-algorithm").upper()
        if algorithm and algorithm not in ALGORITHMS:
            raise S3Error("InvalidRequest", "Checksum algorithm provided is unsupported.")
        usual = "FULL_OBJECT" if algorithm == "CRC64NVME" else "COMPOSITE"
        kind = call.header("x-amz-checksum-type").upper() or usual
        if algorithm and (algorithm, kind) in _NO_SUCH_TYPES:
            raise S3Error("InvalidRequest", f"The {kind} checksum type cannot be used with {algorithm}.")
        upload_id = os.urandom(16).hex()
        folder = os.path.join(self.buckets.root.path, UPLOADS, upload_id)
        os.makedirs(folder)
        with open(os.path.join(folder, "checksum"), "w", encoding="ascii") as stream:
            stream.write(f"{algorithm} {kind}" if algorithm else "")
        pairs = [("Bucket", bucket), ("Key", key), ("UploadId", upload_id)]
        return document("InitiateMultipartUploadResult", pairs)

    async def _upload_part(self, call: Call, payload: str) -> dict[str, str]:
        number = call.query.get("partNumber", "")
        if not number.isdigit() or not 1 <= int(number) <= 10_000:
            raise S3Error("InvalidArgument", "Part number must be an integer between 1 and 10000, inclusive")
        folder = self._upload(call.query["uploadId"])
        scratch = os.path.join(folder, f"new-{os.urandom(8).hex()}")
        body = await self._receive(call, scratch, payload)
        etag = body.hashers["md5"].digest().hex()
        for old in os.listdir(folder):
            if old.startswith(f"part-{int(number)}-"):
                os.unlink(os.path.join(folder, old))
        os.replace(scratch, os.path.join(folder, f"part-{int(number)}-{etag}"))
        return {"ETag": f'"{etag}"'}

    async def _complete(self, call: Call, bucket: str, key: str) -> bytes:
        try:
            asked = _parts(await call.body())
        except (ValueError, ElementTree.ParseError) as error:
            raise S3Error("InvalidRequest", "The XML that you sent is not well-formed.") from error
        return await asyncio.to_thread(self._join, self._upload(call.query["uploadId"]), asked, bucket, key)

    def _join(self, folder: str, asked: list[tuple[int, str]], bucket: str, key: str) -> bytes:
        paths = [os.path.join(folder, f"part-{number}-{etag}") for number, etag in asked]
        if not paths or not all(map(os.path.isfile, paths)):
            raise S3Error("InvalidPart")
        target = self._target(bucket, key)
        with open(os.path.join(folder, "checksum"), encoding="ascii") as stream:
            algorithm, _, kind = stream.read().partition(" ")
        sizes = tuple(os.path.getsize(path) for path in paths)
        scratch = os.path.join(folder, "whole")
        with open(scratch, "wb") as whole:
            for path in paths:
                with open(path, "rb") as part:
                    shutil.copyfileobj(part, whole, CHUNK_BYTES)
        os.replace(scratch, target)
        shutil.rmtree(folder, ignore_errors=True)
        joined = b"".join(bytes.fromhex(etag) for _, etag in asked)
        etag = f"{hashlib.md5(joined, usedforsecurity=False).hexdigest()}-{len(asked)}"
        file = self.buckets.root.file([bucket, *key.split("/")])
        if file is not None:
            self.buckets.uploaded[file.identity] = Uploaded(sizes, algorithm, kind or "FULL_OBJECT")
        return document("CompleteMultipartUploadResult", [("Bucket", bucket), ("Key", key), ("ETag", f'"{etag}"')])


def _parts(body: bytes) -> list[tuple[int, str]]:
    """Return (number, etag) of each part that a completion names, in its order."""
    found = []
    for part in ElementTree.fromstring(body):  # noqa: S314 - from a signed request of the same machine
        values = {child.tag.rpartition("}")[2]: (child.text or "").strip() for child in part}
        found.append((int(values.get("PartNumber", "")), values.get("ETag", "").strip('"')))
    return found
