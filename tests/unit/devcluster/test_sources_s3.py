"""The S3 stand-in against the real boto3: what it serves, what it checks, and what it does on demand."""

from __future__ import annotations

import base64
import hashlib
import itertools
import json
import os
import socket
import subprocess
import sys
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import awscrt.checksums
import boto3
import httpx
import pytest
from botocore.auth import S3SigV4Auth, S3SigV4QueryAuth
from botocore.awsrequest import AWSRequest
from botocore.config import Config
from botocore.credentials import Credentials
from botocore.exceptions import (
    ClientError,
    EndpointConnectionError,
    FlexibleChecksumError,
    HTTPClientError,
    IncompleteReadError,
    ReadTimeoutError,
    ResponseStreamingError,
    SSLError,
)

from devcluster.sources.files import new_hasher
from devcluster.sources.s3 import S3Server, running_s3
from devcluster.sources.s3bucket import list_page
from devcluster.sources.server import CONTROL_HEADER

ACCESS, SECRET, REGION = "AKIASTANDIN", "a/secret+key", "eu-test-1"
WEIGHTS = bytes(range(256)) * 800  # 204800 bytes
MD5 = hashlib.md5(WEIGHTS).hexdigest()
ODD_KEYS = ["a b/c d.txt", "größe/日本.txt", "plus+sign&amp=%25.txt", "tilde~'()*!.txt", "a.txt", "a/b.txt", "a0.txt"]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    bucket = tmp_path / "s3" / "adapters"
    (bucket / "lora").mkdir(parents=True)
    (bucket / "lora" / "adapter_config.json").write_bytes(b"{}")
    (bucket / "lora" / "adapter_model.safetensors").write_bytes(WEIGHTS)
    return tmp_path / "s3"


@pytest.fixture
def server(root: Path) -> Iterator[S3Server]:
    with running_s3(root, access_key=ACCESS, secret_key=SECRET, region=REGION) as running:
        yield running


@pytest.fixture
def connect(server: S3Server) -> Iterator[Callable[..., Any]]:
    opened: list[Any] = []

    def client(style: str = "path", retries: int = 0, **options: Any) -> Any:
        s3: Any = {"addressing_style": style}
        config = Config(s3=s3, signature_version="s3v4", retries={"total_max_attempts": retries + 1}, read_timeout=5)
        known: dict[str, Any] = {
            "endpoint_url": server.endpoint,
            "aws_access_key_id": ACCESS,
            "aws_secret_access_key": SECRET,
            "region_name": REGION,
            "config": config,
        }
        opened.append(boto3.client("s3", **(known | options)))
        return opened[-1]

    yield client
    for one in opened:
        one.close()


@pytest.fixture
def s3(connect: Callable[..., Any]) -> Any:
    return connect()


def error_of(call: Callable[[], object]) -> tuple[int, str]:
    with pytest.raises(ClientError) as caught:
        call()
    assert SECRET not in str(caught.value.response)
    return caught.value.response["ResponseMetadata"]["HTTPStatusCode"], caught.value.response["Error"]["Code"]


def put(root: Path, key: str, content: bytes = b"x", bucket: str = "adapters") -> None:
    path = root / bucket / key
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


def sidecar(root: Path, **values: Any) -> None:
    (root / "adapters" / ".s3meta.json").write_text(json.dumps(values))


def keys(answer: Any) -> list[str]:
    return [item["Key"] for item in answer.get("Contents", [])]


# reading


def test_an_object_and_what_is_known_of_it(s3: Any) -> None:
    got = s3.get_object(Bucket="adapters", Key="lora/adapter_model.safetensors")
    assert got["Body"].read() == WEIGHTS
    assert (got["ETag"], got["ContentLength"]) == (f'"{MD5}"', len(WEIGHTS))
    head = s3.head_object(Bucket="adapters", Key="lora/adapter_model.safetensors", ChecksumMode="ENABLED")
    assert head["ChecksumSHA256"] == base64.b64encode(hashlib.sha256(WEIGHTS).digest()).decode()
    assert (head["ChecksumType"], head["ETag"]) == ("FULL_OBJECT", f'"{MD5}"')
    plain = s3.head_object(Bucket="adapters", Key="lora/adapter_model.safetensors")
    assert not [name for name in plain if name.startswith("Checksum")]


def test_buckets(s3: Any, root: Path) -> None:
    (root / "second").mkdir()
    (root / ".hidden").mkdir()
    assert [b["Name"] for b in s3.list_buckets()["Buckets"]] == ["adapters", "second"]
    s3.head_bucket(Bucket="second")
    assert s3.get_bucket_location(Bucket="second")["LocationConstraint"] == REGION
    assert error_of(lambda: s3.head_bucket(Bucket="third")) == (404, "404")
    put(root, "x/y.bin", b"1", bucket="third")  # a new folder is a new bucket at once
    assert s3.get_object(Bucket="third", Key="x/y.bin")["Body"].read() == b"1"


NOT_THERE = {
    "bucket": ("nothing", "x", "NoSuchBucket"),
    "key": ("adapters", "lora/nothing", "NoSuchKey"),
    "a folder is not a key": ("adapters", "lora", "NoSuchKey"),
    "two slashes": ("adapters", "lora//adapter_config.json", "NoSuchKey"),
    "settings": ("adapters", ".s3meta.json", "NoSuchKey"),
    "hidden bucket": (".s3-uploads", "x", "NoSuchBucket"),
}


@pytest.mark.parametrize(("bucket", "key", "code"), NOT_THERE.values(), ids=NOT_THERE)
def test_what_is_not_there(server: S3Server, root: Path, bucket: str, key: str, code: str) -> None:
    sidecar(root)
    (root / ".s3-uploads").mkdir()
    (root / ".s3-uploads" / "x").write_text("x")
    got = signed(server, f"/{bucket}/{key}")
    assert (got.status_code, f"<Code>{code}</Code>" in got.text) == (404, True)


@pytest.mark.parametrize("style", ["path", "virtual"])
@pytest.mark.parametrize("key", ODD_KEYS)
def test_unusual_keys(
    connect: Callable[..., Any], server: S3Server, root: Path, monkeypatch: pytest.MonkeyPatch, style: str, key: str
) -> None:
    resolve_locally(monkeypatch)
    put(root, key, key.encode())
    s3 = connect(style, endpoint_url=f"http://s3.localhost:{server.ports['s3']}")
    assert s3.get_object(Bucket="adapters", Key=key)["Body"].read() == key.encode()
    assert keys(s3.list_objects_v2(Bucket="adapters", Prefix=key)) == [key]
    assert {r["path"] for r in server.requests()} == {f"/adapters/{key}", "/adapters"}


def resolve_locally(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let names below localhost resolve to loopback, as RFC 6761 wants and not every C library does."""
    real = socket.getaddrinfo

    def resolve(host: Any, *arguments: Any, **options: Any) -> Any:
        name = host.decode() if isinstance(host, bytes) else host
        return real("127.0.0.1" if name and name.endswith((".localhost", ".svc")) else host, *arguments, **options)

    monkeypatch.setattr(socket, "getaddrinfo", resolve)


def test_virtual_hosts(
    connect: Callable[..., Any], server: S3Server, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    resolve_locally(monkeypatch)
    (root / "with.dots").mkdir()
    put(root, "k", b"dots", bucket="with.dots")
    port = server.ports["s3"]
    known = connect("virtual", endpoint_url=f"http://s3.localhost:{port}")
    assert known.get_object(Bucket="with.dots", Key="k")["Body"].read() == b"dots"
    assert error_of(lambda: known.get_object(Bucket="missing", Key="k")) == (404, "NoSuchBucket")
    other = connect(
        "virtual", endpoint_url=f"http://minio.default.svc:{port}"
    )  # any host whose first label is a bucket
    assert keys(other.list_objects_v2(Bucket="adapters", Prefix="lora/")) == [
        "lora/adapter_config.json",
        "lora/adapter_model.safetensors",
    ]
    path_style = connect("path", endpoint_url=f"http://minio.default.svc:{port}")
    assert path_style.get_object(Bucket="with.dots", Key="k")["Body"].read() == b"dots"


def test_nothing_outside_of_the_root_is_served(server: S3Server, s3: Any, root: Path, tmp_path: Path) -> None:
    (tmp_path / "secret.txt").write_text("secret")
    (tmp_path / "secrets").mkdir()
    (tmp_path / "secrets" / "a.txt").write_text("secret")
    (root / "adapters" / "out.txt").symlink_to(tmp_path / "secret.txt")
    (root / "adapters" / "outdir").symlink_to(tmp_path / "secrets")
    (root / "adapters" / "loop").symlink_to(root / "adapters")
    (root / "adapters" / "inside.txt").symlink_to(root / "adapters" / "lora" / "adapter_config.json")
    (root / "linked").symlink_to(tmp_path / "secrets")
    os.mkfifo(root / "adapters" / "pipe")
    assert keys(s3.list_objects_v2(Bucket="adapters")) == [
        "inside.txt",
        "lora/adapter_config.json",
        "lora/adapter_model.safetensors",
    ]
    for path in ("/adapters/out.txt", "/adapters/outdir/a.txt", "/adapters/pipe", "/linked/a.txt"):
        assert signed(server, path).status_code == 404, path
    for path in ("/adapters/..%2F..%2Fsecret.txt", "/..%2Fsecrets/a.txt", "/%2E%2E/secret.txt", "/adapters/%00"):
        got = signed(server, path)
        assert got.status_code in (403, 404), path  # an encoded slash is signed in another way than S3 reads it
        assert got.text.startswith("<?xml")
    for key in (
        "../../secret.txt",
        "../secrets/a.txt",
        "lora/../../../secret.txt",
        "outdir/a.txt",
        "/etc/passwd",
        "\0",
    ):
        assert server.buckets.find("adapters", key) is None, key
    assert not server.buckets.exists("..")
    assert not server.buckets.exists("linked")


def test_hostile_keys_can_be_served_through_aliases(s3: Any, server: S3Server, root: Path) -> None:
    hostile = ["lora/../../evil", "/abs/evil", "lora//double", "lora/./dot", "lora/folder/", "x" * 1000]
    sidecar(root, aliases=dict.fromkeys(hostile, "lora/adapter_config.json"))
    assert set(hostile) <= set(keys(s3.list_objects_v2(Bucket="adapters")))
    assert s3.get_object(Bucket="adapters", Key="lora//double")["Body"].read() == b"{}"
    assert s3.get_object(Bucket="adapters", Key="x" * 1000)["Body"].read() == b"{}"


def test_files_that_change_under_the_server_are_never_mixed(s3: Any, root: Path) -> None:
    stop = threading.Event()

    def churn() -> None:
        number = 0
        while not stop.is_set():
            number += 1
            scratch = root / f".new-{number}"
            scratch.write_bytes(bytes([number % 256]) * 50_000)
            scratch.replace(root / "adapters" / "moving.bin")
            (root / "adapters" / "sometimes").unlink(missing_ok=True)
            (root / "adapters" / "sometimes").write_bytes(b"x")
            time.sleep(0.001)

    put(root, "moving.bin", bytes(50_000))
    writer = threading.Thread(target=churn)
    writer.start()
    try:
        for _ in range(60):
            got = s3.get_object(Bucket="adapters", Key="moving.bin")  # the client checks the checksum
            body = got["Body"].read()
            assert got["ETag"] == f'"{hashlib.md5(body).hexdigest()}"'
            assert "moving.bin" in keys(s3.list_objects_v2(Bucket="adapters"))
    finally:
        stop.set()
        writer.join(10)


# listing


def test_more_than_a_thousand_keys_come_in_pages(s3: Any, server: S3Server, root: Path) -> None:
    wanted = sorted(f"many/{number:05} ü.txt" for number in range(2100))
    for key in wanted:
        put(root, key)
    pages = list(s3.get_paginator("list_objects_v2").paginate(Bucket="adapters", Prefix="many/"))
    assert [len(keys(page)) for page in pages] == [1000, 1000, 100]
    assert [key for page in pages for key in keys(page)] == wanted
    old = list(s3.get_paginator("list_objects").paginate(Bucket="adapters", Prefix="many/"))
    assert [key for page in old for key in keys(page)] == wanted
    assert [r["operation"] for r in server.requests()] == ["ListObjectsV2"] * 3 + ["ListObjects"] * 3


def test_delimiter_start_after_and_small_pages(s3: Any, root: Path) -> None:
    for key in ("a/1", "a/2", "b.txt", "c/1", "c/d/2", "e.txt"):
        put(root, key)
    whole = s3.list_objects_v2(Bucket="adapters", Delimiter="/")
    assert keys(whole) == ["b.txt", "e.txt"]
    assert [p["Prefix"] for p in whole["CommonPrefixes"]] == ["a/", "c/", "lora/"]
    paged = s3.get_paginator("list_objects_v2").paginate(
        Bucket="adapters", Delimiter="/", PaginationConfig={"PageSize": 1}
    )
    seen = [key for page in paged for key in [*keys(page), *(p["Prefix"] for p in page.get("CommonPrefixes", []))]]
    assert seen == ["a/", "b.txt", "c/", "e.txt", "lora/"]
    assert keys(s3.list_objects_v2(Bucket="adapters", StartAfter="c/1", Prefix="c/")) == ["c/d/2"]
    assert s3.list_objects_v2(Bucket="adapters", MaxKeys=0)["KeyCount"] == 0
    v1 = s3.list_objects(Bucket="adapters", Delimiter="/", MaxKeys=1)
    assert (v1["IsTruncated"], v1["NextMarker"]) == (True, "a/")
    assert keys(s3.list_objects(Bucket="adapters", Delimiter="/", Marker="a/", MaxKeys=1)) == ["b.txt"]
    assert error_of(lambda: s3.list_objects_v2(Bucket="adapters", ContinuationToken="junk")) == (400, "InvalidArgument")


def test_a_listing_says_what_the_objects_are(s3: Any) -> None:
    listed = s3.list_objects_v2(Bucket="adapters", Prefix="lora/adapter_m")["Contents"]
    assert len(listed) == 1
    assert (listed[0]["ETag"], listed[0]["Size"], listed[0]["ChecksumAlgorithm"]) == (
        f'"{MD5}"',
        len(WEIGHTS),
        ["SHA256"],
    )
    assert abs((listed[0]["LastModified"] - datetime.now(UTC)).total_seconds()) < 60


def test_pages_partition_any_set_of_keys() -> None:
    found = sorted(["a", "a/", "a/b", "a/b/c", "a0", "b/x", "b/y", "ü/z", "日"])
    for size in range(1, 6):
        after, after_prefix, seen = "", False, []
        for _ in range(20):
            got, prefixes, more = list_page(found, "", "/", after=after, after_prefix=after_prefix, max_keys=size)
            assert len(got) + len(prefixes) <= size
            seen += sorted(got + prefixes)
            after = max(got[-1:] + prefixes[-1:], default="")
            after_prefix = after in prefixes
            if not more:
                break
        assert seen == ["a", "a/", "a0", "b/", "ü/", "日"], size


# ranges and conditions


RANGES = {
    "a middle": ("bytes=10-19", 206, WEIGHTS[10:20], "bytes 10-19/204800"),
    "to the end": ("bytes=204790-", 206, WEIGHTS[204790:], "bytes 204790-204799/204800"),
    "a suffix": ("bytes=-5", 206, WEIGHTS[-5:], "bytes 204795-204799/204800"),
    "beyond the end": ("bytes=204790-999999", 206, WEIGHTS[204790:], "bytes 204790-204799/204800"),
    "several": ("bytes=0-1,3-4", 200, WEIGHTS, None),
    "malformed": ("bytes=x-", 200, WEIGHTS, None),
}


@pytest.mark.parametrize(("header", "status", "body", "content_range"), RANGES.values(), ids=RANGES)
def test_ranges(s3: Any, header: str, status: int, body: bytes, content_range: str | None) -> None:
    got = s3.get_object(Bucket="adapters", Key="lora/adapter_model.safetensors", Range=header)
    assert (got["ResponseMetadata"]["HTTPStatusCode"], got.get("ContentRange")) == (status, content_range)
    assert got["Body"].read() == body
    assert ("ChecksumSHA256" in got) == (status == 200)  # a part has no checksum of the whole


def test_conditions_and_part_numbers(s3: Any) -> None:
    target = {"Bucket": "adapters", "Key": "lora/adapter_model.safetensors"}
    assert s3.get_object(**target, IfMatch=f'"{MD5}"')["Body"].read() == WEIGHTS
    assert error_of(lambda: s3.get_object(**target, IfMatch='"other"')) == (412, "PreconditionFailed")
    assert error_of(lambda: s3.get_object(**target, IfNoneMatch=MD5)) == (304, "304")
    assert error_of(lambda: s3.get_object(**target, Range="bytes=204800-")) == (416, "InvalidRange")
    yesterday = datetime.now(UTC) - timedelta(days=1)
    assert error_of(lambda: s3.get_object(**target, IfUnmodifiedSince=yesterday)) == (412, "PreconditionFailed")
    assert s3.get_object(**target, IfModifiedSince=yesterday)["ContentLength"] == len(WEIGHTS)
    part = s3.get_object(**target, PartNumber=1)
    assert (part["ContentRange"], part["Body"].read()) == ("bytes 0-204799/204800", WEIGHTS)
    assert error_of(lambda: s3.get_object(**target, PartNumber=2)) == (416, "InvalidPartNumber")


def test_a_changed_object_fails_the_condition_of_a_resume(s3: Any, root: Path) -> None:
    target = {"Bucket": "adapters", "Key": "lora/adapter_model.safetensors"}
    etag = s3.head_object(**target)["ETag"]
    put(root, "lora/adapter_model.safetensors", WEIGHTS[::-1])
    assert error_of(lambda: s3.get_object(**target, Range="bytes=5-", IfMatch=etag)) == (412, "PreconditionFailed")


# checksums


@pytest.mark.parametrize("algorithm", ["CRC32", "CRC32C", "SHA1", "SHA256", "CRC64NVME", "NONE"])
def test_checksums_and_the_client_that_checks_them(s3: Any, server: S3Server, root: Path, algorithm: str) -> None:
    sidecar(root, objects={"lora/*": {"checksum": algorithm}})
    target = {"Bucket": "adapters", "Key": "lora/adapter_model.safetensors"}
    got = s3.get_object(**target)
    assert got["Body"].read() == WEIGHTS
    names = [name for name in got if name.startswith("Checksum") and name != "ChecksumType"]
    assert names == ([] if algorithm == "NONE" else [f"Checksum{algorithm}"])
    server.set_faults([{"corrupt_byte_at": 77}])
    body = s3.get_object(**target)["Body"]
    if algorithm == "NONE":
        assert hashlib.md5(body.read()).hexdigest() != MD5
    else:
        with pytest.raises(FlexibleChecksumError):
            body.read()


def test_checksums_are_right() -> None:
    assert new_hasher("crc32").digest() == b"\0\0\0\0"
    crc = new_hasher("crc64nvme")
    crc.update(b"123456789")
    assert crc.digest().hex() == "ae8b14860a799888"  # the check value of CRC-64/NVME
    crc32c = new_hasher("crc32c")
    crc32c.update(b"123456789")
    assert crc32c.digest().hex() == "e3069283"  # the check value of CRC-32C
    crc32 = new_hasher("crc32")
    crc32.update(WEIGHTS)
    assert int.from_bytes(crc32.digest(), "big") == zlib.crc32(WEIGHTS)


def test_multipart_looking_etags(s3: Any, root: Path) -> None:
    part = 50_000
    digests = b"".join(hashlib.md5(WEIGHTS[at : at + part]).digest() for at in range(0, len(WEIGHTS), part))
    composite = {"algorithm": "SHA256", "value": "abc=-5", "type": "COMPOSITE"}
    sidecar(
        root,
        objects={
            "*.safetensors": {"part_size": part, "checksum": composite},
            "*.json": {"etag": "0123-2", "checksum": "NONE"},
        },
    )
    weights = s3.head_object(Bucket="adapters", Key="lora/adapter_model.safetensors", ChecksumMode="ENABLED")
    assert weights["ETag"] == f'"{hashlib.md5(digests).hexdigest()}-5"'
    assert (weights["ChecksumSHA256"], weights["ChecksumType"]) == ("abc=-5", "COMPOSITE")
    assert s3.head_object(Bucket="adapters", Key="lora/adapter_config.json")["ETag"] == '"0123-2"'


def test_composite_checksums_and_the_list_of_parts(s3: Any, root: Path) -> None:
    sizes = [50_000, 100_000, 50_000, 4_800]
    settings = {"part_sizes": [*sizes[:2], 50_000], "checksum": {"algorithm": "CRC32C", "type": "COMPOSITE"}}
    sidecar(root, objects={"lora/*.safetensors": settings})
    target = {"Bucket": "adapters", "Key": "lora/adapter_model.safetensors"}
    pieces = [WEIGHTS[end - size : end] for size, end in zip(sizes, itertools.accumulate(sizes), strict=True)]
    of_parts = b"".join(awscrt.checksums.crc32c(piece).to_bytes(4, "big") for piece in pieces)
    value = base64.b64encode(awscrt.checksums.crc32c(of_parts).to_bytes(4, "big")).decode()
    head = s3.head_object(**target, ChecksumMode="ENABLED")
    assert (head["ChecksumCRC32C"], head["ChecksumType"]) == (f"{value}-4", "COMPOSITE")
    assert head["ETag"].endswith('-4"')
    wanted = ["ETag", "Checksum", "ObjectParts", "StorageClass", "ObjectSize"]
    found = s3.get_object_attributes(**target, ObjectAttributes=wanted, MaxParts=3)
    assert found["Checksum"] == {"ChecksumCRC32C": value, "ChecksumType": "COMPOSITE"}
    assert (f'"{found["ETag"]}"', found["ObjectSize"]) == (head["ETag"], len(WEIGHTS))
    first = found["ObjectParts"]
    assert ([part["Size"] for part in first["Parts"]], first["IsTruncated"]) == (sizes[:3], True)
    marker = first["NextPartNumberMarker"]
    rest = s3.get_object_attributes(**target, ObjectAttributes=["ObjectParts"], PartNumberMarker=marker)["ObjectParts"]
    assert ([part["PartNumber"] for part in rest["Parts"]], rest["IsTruncated"]) == ([4], False)
    for number, piece in enumerate(pieces, start=1):
        part = s3.get_object(**target, PartNumber=number)
        assert (part["PartsCount"], part["Body"].read()) == (4, piece)
    assert error_of(lambda: s3.get_object(**target, PartNumber=5)) == (416, "InvalidPartNumber")


def test_an_object_without_checksums_lists_no_parts(s3: Any, root: Path) -> None:
    sidecar(root, objects={"lora/*.safetensors": {"part_size": 50_000, "checksum": "NONE"}})
    target = {"Bucket": "adapters", "Key": "lora/adapter_model.safetensors"}
    found = s3.get_object_attributes(**target, ObjectAttributes=["ObjectParts", "Checksum"])
    assert (found["ObjectParts"], found.get("Checksum")) == ({"TotalPartsCount": 5}, None)


def test_an_etag_under_a_key_of_kms_says_nothing(s3: Any, root: Path) -> None:
    sidecar(root, objects={"lora/*": {"encryption": "aws:kms"}})
    head = s3.head_object(Bucket="adapters", Key="lora/adapter_model.safetensors")
    assert (head["ServerSideEncryption"], MD5 in head["ETag"]) == ("aws:kms", False)


@pytest.mark.parametrize(
    "settings",
    [
        {"checksum": {"algorithm": "SHA256", "type": "COMPOSITE"}},
        {"checksum": {"algorithm": "SHA256", "type": "HALF"}},
        {"checksum": "MD4"},
        {"encryption": "rot13"},
        {"part_sizes": [5, 0]},
    ],
)
def test_settings_that_cannot_be(server: S3Server, s3: Any, root: Path, settings: dict[str, Any]) -> None:
    sidecar(root, objects={"*": settings})
    got = signed(server, "/adapters/lora/adapter_model.safetensors")
    assert (got.status_code, "cannot read its settings" in got.text) == (500, True)


def test_large_objects_are_not_hashed(root: Path) -> None:
    with running_s3(root, access_key=ACCESS, secret_key=SECRET, large_bytes=1000) as server:
        got = signed(server, "/adapters/lora/adapter_model.safetensors", region="us-east-1")
    assert got.headers["ETag"].endswith('-1"')
    assert got.headers["x-amz-server-side-encryption"] == "aws:kms"  # so that the ETag is not used as an MD5
    assert not [name for name in got.headers if name.startswith("x-amz-checksum")]


# signatures


def signed(
    server: S3Server,
    path: str,
    method: str = "GET",
    *,
    access: str = ACCESS,
    secret: str = SECRET,
    region: str = REGION,
    service: str = "s3",
    token: str | None = None,
    headers: dict[str, str] | None = None,
    after: Callable[[AWSRequest], None] = lambda request: None,
) -> httpx.Response:
    """Send one request signed by botocore's signer; `after` may spoil it."""
    request = AWSRequest(method=method, url=server.endpoint + path, headers=headers or {})
    S3SigV4Auth(Credentials(access, secret, token), service, region).add_auth(request)
    after(request)
    sent = {name: value for name, value in request.headers.items() if name.lower() != "host"}
    return httpx.request(method, httpx.URL(str(request.url)), headers=sent)


def header(name: str, value: str) -> Callable[[AWSRequest], None]:
    def change(request: AWSRequest) -> None:
        del request.headers[name]
        if value:
            request.headers[name] = value

    return change


OBJECT = "/adapters/lora/adapter_config.json"
SIGNATURES: dict[str, tuple[dict[str, Any], int, str]] = {
    "good": ({}, 200, ""),
    "wrong secret": ({"secret": "other"}, 403, "SignatureDoesNotMatch"),
    "unknown key": ({"access": "AKIANOBODY"}, 403, "InvalidAccessKeyId"),
    "another region": ({"region": "us-east-1"}, 400, "AuthorizationHeaderMalformed"),
    "another service": ({"service": "sqs"}, 400, "AuthorizationHeaderMalformed"),
    "unsigned": ({"after": header("Authorization", "")}, 403, "AccessDenied"),
    "basic": ({"after": header("Authorization", "Basic Zm9vOmJhcg==")}, 400, "InvalidRequest"),
    "garbled": ({"after": header("Authorization", "AWS4-HMAC-SHA256 x")}, 400, "AuthorizationHeaderMalformed"),
    "other time": ({"after": header("X-Amz-Date", "20200101T000000Z")}, 403, "RequestTimeTooSkewed"),
    "no time": ({"after": header("X-Amz-Date", "")}, 403, "AccessDenied"),
    "no payload hash": ({"after": header("X-Amz-Content-SHA256", "")}, 400, "InvalidRequest"),
    "other payload hash": ({"after": header("X-Amz-Content-SHA256", "0" * 64)}, 403, "SignatureDoesNotMatch"),
    "unsigned header": ({"after": header("x-amz-meta-x", "1")}, 403, "AccessDenied"),
    "an unknown token": ({"token": "tok"}, 400, "InvalidToken"),
}


@pytest.mark.parametrize(("options", "status", "code"), SIGNATURES.values(), ids=SIGNATURES)
def test_signatures(server: S3Server, options: dict[str, Any], status: int, code: str) -> None:
    got = signed(server, OBJECT, **options)
    assert (got.status_code, f"<Code>{code}</Code>" in got.text) == (status, bool(code)), got.text
    assert server.requests()[-1]["identity"] in (ACCESS, "invalid", "anonymous")
    assert SECRET not in got.text


def test_a_changed_path_query_or_method_breaks_the_signature(server: S3Server) -> None:
    def to(path: str) -> Callable[[AWSRequest], None]:
        def change(request: AWSRequest) -> None:
            request.url = server.endpoint + path

        return change

    for path in ("/adapters/lora/adapter_model.safetensors", f"{OBJECT}?partNumber=1", f"{OBJECT}?x"):
        got = signed(server, OBJECT, after=to(path))
        assert (got.status_code, "SignatureDoesNotMatch" in got.text) == (403, True), path
    assert signed(server, "/adapters?list-type=2&prefix=a%20b%2Bc").status_code == 200
    assert signed(server, "/adapters?prefix=b&list-type=2&delimiter=%2F").status_code == 200


@pytest.mark.parametrize(("minutes", "status"), [(-16, 403), (-14, 200), (14, 200), (16, 403)])
def test_clock_skew(server: S3Server, monkeypatch: pytest.MonkeyPatch, minutes: int, status: int) -> None:
    then = datetime.now(UTC) + timedelta(minutes=minutes)
    monkeypatch.setattr("botocore.auth.get_current_datetime", lambda: then.replace(tzinfo=None))
    got = signed(server, OBJECT)
    assert got.status_code == status
    assert ("RequestTimeTooSkewed" in got.text) == (status == 403)


def test_client_errors_of_credentials(connect: Callable[..., Any]) -> None:
    def code(**options: Any) -> tuple[int, str]:
        return error_of(lambda: connect(**options).get_object(Bucket="adapters", Key="lora/adapter_config.json"))

    assert code(aws_secret_access_key="other") == (403, "SignatureDoesNotMatch")
    assert code(aws_access_key_id="AKIANOBODY") == (403, "InvalidAccessKeyId")
    head = connect(aws_secret_access_key="other")
    assert error_of(lambda: head.head_object(Bucket="adapters", Key="lora/adapter_config.json")) == (403, "403")


def test_session_tokens(root: Path) -> None:
    with running_s3(root, access_key=ACCESS, secret_key=SECRET, region=REGION, session_token="temporary") as server:
        assert signed(server, OBJECT, token="temporary").status_code == 200
        assert "InvalidAccessKeyId" in signed(server, OBJECT).text
        assert "InvalidToken" in signed(server, OBJECT, token="expired").text
        assert "temporary" not in json.dumps(server.requests())


def test_presigned_links(s3: Any, server: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    target = {"Bucket": "adapters", "Key": "lora/adapter_model.safetensors"}
    link = s3.generate_presigned_url("get_object", Params=target, ExpiresIn=60)
    assert httpx.get(link).content == WEIGHTS
    assert httpx.get(link, headers={"Range": "bytes=0-9"}).content == WEIGHTS[:10]
    assert "SignatureDoesNotMatch" in httpx.get(link.replace("Expires=60", "Expires=61")).text
    assert "SignatureDoesNotMatch" in httpx.get(link[:-1] + ("0" if link[-1] != "0" else "1")).text
    assert httpx.head(link).status_code == 403  # another method
    past = datetime.now(UTC) - timedelta(minutes=2)
    monkeypatch.setattr("botocore.auth.get_current_datetime", lambda: past.replace(tzinfo=None))
    request = AWSRequest(method="GET", url=server.endpoint + OBJECT)
    S3SigV4QueryAuth(Credentials(ACCESS, SECRET), "s3", REGION, expires=60).add_auth(request)
    assert "Request has expired" in httpx.get(str(request.url)).text
    assert "Signature=" not in json.dumps(server.requests())


def test_rights_by_bucket(server: S3Server, s3: Any, root: Path) -> None:
    sidecar(root, allowed_access_keys=["AKIASOMEBODY"])
    assert error_of(lambda: s3.list_objects_v2(Bucket="adapters")) == (403, "AccessDenied")
    sidecar(root, public=True)
    assert httpx.get(server.endpoint + OBJECT).content == b"{}"
    assert httpx.put(server.endpoint + OBJECT, content=b"x").status_code == 403
    (root / "adapters" / ".s3meta.json").write_text('{"publik": true}')  # unreadable is not open
    assert httpx.get(server.endpoint + OBJECT).status_code == 500
    assert error_of(lambda: s3.list_objects_v2(Bucket="adapters")) == (500, "InternalError")


def test_what_is_not_implemented_says_so(s3: Any) -> None:
    target = {"Bucket": "adapters", "Key": "lora/adapter_config.json"}
    assert error_of(lambda: s3.get_object_tagging(**target)) == (501, "NotImplemented")
    assert error_of(lambda: s3.get_bucket_policy(Bucket="adapters")) == (501, "NotImplemented")
    assert error_of(lambda: s3.copy_object(**target, CopySource="adapters/x")) == (501, "NotImplemented")


# writing


def test_put_and_delete(s3: Any, root: Path) -> None:
    s3.create_bucket(Bucket="fresh", CreateBucketConfiguration={"LocationConstraint": REGION})
    etag = s3.put_object(Bucket="fresh", Key="a b/ü+1.bin", Body=WEIGHTS)["ETag"]
    assert etag == f'"{MD5}"'
    assert (root / "fresh" / "a b" / "ü+1.bin").read_bytes() == WEIGHTS
    assert error_of(lambda: s3.delete_bucket(Bucket="fresh")) == (409, "BucketNotEmpty")
    s3.delete_object(Bucket="fresh", Key="a b/ü+1.bin")
    s3.delete_object(Bucket="fresh", Key="never/there")
    assert not list((root / "fresh").iterdir())
    s3.delete_bucket(Bucket="fresh")
    assert not (root / "fresh").exists()
    for key in ("../out", ".s3meta.json", "a//b", "lora/adapter_config.json/below", "lora"):
        assert error_of(lambda key=key: s3.put_object(Bucket="adapters", Key=key, Body=b"x"))[0] in (400, 403)  # type: ignore[misc]


def test_a_wrong_body_is_not_kept(server: S3Server, s3: Any, root: Path) -> None:
    wrong = base64.b64encode(hashlib.sha256(b"other").digest()).decode()
    put_it = {"Bucket": "adapters", "Key": "new", "Body": b"body"}
    assert error_of(lambda: s3.put_object(**put_it, ChecksumSHA256=wrong)) == (400, "BadDigest")
    request = AWSRequest(method="PUT", url=f"{server.endpoint}/adapters/new", data=b"signed")
    S3SigV4Auth(Credentials(ACCESS, SECRET), "s3", REGION).add_auth(request)
    got = httpx.put(str(request.url), headers=dict(request.headers.items()), content=b"forged")
    assert (got.status_code, "XAmzContentSHA256Mismatch" in got.text) == (400, True)
    assert sorted(p.name for p in (root / "adapters").iterdir()) == ["lora"]


def test_multipart_upload(s3: Any, root: Path, tmp_path: Path) -> None:
    content = os.urandom(9 << 20)  # above the client's threshold of 8 MiB
    (tmp_path / "big.bin").write_bytes(content)
    s3.upload_file(str(tmp_path / "big.bin"), "adapters", "big.bin")
    assert (root / "adapters" / "big.bin").read_bytes() == content
    assert s3.head_object(Bucket="adapters", Key="big.bin")["ETag"].endswith('-2"')
    told = s3.head_object(Bucket="adapters", Key="big.bin", ChecksumMode="ENABLED")
    assert (told["ChecksumType"], told["ChecksumCRC32"][-2:]) == ("COMPOSITE", "-2")  # what the client asked for
    s3.download_file("adapters", "big.bin", str(tmp_path / "back.bin"))
    assert (tmp_path / "back.bin").read_bytes() == content
    upload = s3.create_multipart_upload(Bucket="adapters", Key="gone.bin")["UploadId"]
    s3.abort_multipart_upload(Bucket="adapters", Key="gone.bin", UploadId=upload)
    part = {"Bucket": "adapters", "Key": "gone.bin", "UploadId": upload, "PartNumber": 1, "Body": b"x"}
    assert error_of(lambda: s3.upload_part(**part)) == (404, "NoSuchUpload")


# faults


STATUSES = {
    400: "InvalidRequest",
    401: "Unauthorized",
    403: "AccessDenied",
    404: "NoSuchKey",
    429: "TooManyRequests",
    500: "InternalError",
    503: "SlowDown",
}


@pytest.mark.parametrize(("status", "code"), STATUSES.items())
def test_status_faults(s3: Any, server: S3Server, status: int, code: str) -> None:
    server.set_faults([{"match": "/adapters/lora/*", "status": status, "retry_after": 7, "times": 1}])
    with pytest.raises(ClientError) as caught:
        s3.get_object(Bucket="adapters", Key="lora/adapter_config.json")
    meta = caught.value.response["ResponseMetadata"]
    assert (meta["HTTPStatusCode"], caught.value.response["Error"]["Code"]) == (status, code)
    assert meta["HTTPHeaders"]["retry-after"] == "7"
    assert s3.get_object(Bucket="adapters", Key="lora/adapter_config.json")["ContentLength"] == 2


def test_the_code_of_a_fault_can_be_given(s3: Any, server: S3Server) -> None:
    server.set_faults([{"status": 400, "code": "ExpiredToken", "message": "The provided token has expired."}])
    assert error_of(lambda: s3.list_objects_v2(Bucket="adapters")) == (400, "ExpiredToken")


def test_the_client_retries_what_is_temporary(connect: Callable[..., Any], server: S3Server) -> None:
    server.set_faults([{"operation": "GetObject", "status": 503, "times": 1}])
    got = connect(retries=2).get_object(Bucket="adapters", Key="lora/adapter_config.json")
    assert got["Body"].read() == b"{}"
    assert [(r["operation"], r["status"]) for r in server.requests()] == [("GetObject", 503), ("GetObject", 200)]


@pytest.mark.parametrize(("reset", "error"), [(False, IncompleteReadError), (True, ResponseStreamingError)])
@pytest.mark.parametrize("at", [0, 70_000, 204_799])
def test_a_cut_and_the_resume_behind_it(
    s3: Any, server: S3Server, at: int, reset: bool, error: type[Exception]
) -> None:
    server.set_faults([{"match": "*.safetensors", "cut_after_bytes": at, "reset": reset, "times": 1}])
    target = {"Bucket": "adapters", "Key": "lora/adapter_model.safetensors"}
    got, had = s3.get_object(**target), bytearray()
    with pytest.raises(error):
        read_into(had, got["Body"])
    assert reset or len(had) == at
    assert had == WEIGHTS[: len(had)]
    rest = s3.get_object(**target, Range=f"bytes={len(had)}-", IfMatch=got["ETag"])["Body"].read()
    assert bytes(had) + rest == WEIGHTS
    first, second = server.requests()
    assert (first["bytes"], first["complete"], second["bytes"]) == (at, False, len(WEIGHTS) - len(had))
    assert second["range"] == f"bytes={len(had)}-"


def read_into(had: bytearray, body: Any) -> None:
    for chunk in body.iter_chunks(1024):
        had += chunk


def test_drop_delay_slow_and_wrong_length(connect: Callable[..., Any], server: S3Server) -> None:
    target = {"Bucket": "adapters", "Key": "lora/adapter_model.safetensors"}
    s3 = connect()
    server.set_faults([{"drop": True}])
    with pytest.raises(HTTPClientError):
        s3.get_object(**target)
    server.set_faults([{"slow_bytes_per_second": 1_000_000}])
    began = time.monotonic()
    assert s3.get_object(**target)["Body"].read() == WEIGHTS
    assert 0.15 < time.monotonic() - began < 2
    server.set_faults([{"wrong_length": -10}])
    with pytest.raises(FlexibleChecksumError):
        s3.get_object(**target)["Body"].read()
    server.set_faults([{"delay": 1.0}])
    impatient = connect(config=Config(read_timeout=0.2, retries={"total_max_attempts": 1}))
    with pytest.raises(ReadTimeoutError):
        impatient.get_object(**target)


def test_a_server_that_is_down_has_its_own_reason(connect: Callable[..., Any]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound, not listening: refused
        s3 = connect(endpoint_url=f"http://127.0.0.1:{taken.getsockname()[1]}")
        with pytest.raises(EndpointConnectionError):
            s3.list_buckets()


def test_the_journal_over_http(server: S3Server, s3: Any) -> None:
    s3.get_object(Bucket="adapters", Key="lora/adapter_config.json")["Body"].read()
    headers = {CONTROL_HEADER: SECRET}
    assert httpx.get(f"{server.endpoint}/_requests").status_code == 403
    entry = httpx.get(f"{server.endpoint}/_requests", headers=headers).json()["requests"][0]
    wanted = {"operation": "GetObject", "path": OBJECT, "status": 200, "bytes": 2, "identity": ACCESS, "complete": True}
    assert {name: entry[name] for name in wanted} == wanted
    httpx.delete(f"{server.endpoint}/_requests", headers=headers)
    assert server.requests() == []


# as a program, and over TLS


def test_as_a_program(root: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "devcluster.sources.s3", "--root", str(root), "--region", REGION]
    env = os.environ | {"S3_ACCESS_KEY": ACCESS, "S3_SECRET_KEY": SECRET}
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=env) as process:
        assert process.stdout is not None
        ready = json.loads(process.stdout.readline())
        assert (ready["pid"], ready["region"]) == (process.pid, REGION)
        assert httpx.get(f"{ready['endpoint']}/adapters").status_code == 403
        process.terminate()
        assert process.wait(5) == 0


def test_over_tls(root: Path, connect: Callable[..., Any], tmp_path: Path) -> None:
    cert, key = self_signed(tmp_path)
    content = os.urandom(3 << 20)
    with running_s3(
        root, access_key=ACCESS, secret_key=SECRET, region=REGION, tls_cert=str(cert), tls_key=str(key)
    ) as server:
        s3 = connect(endpoint_url=server.endpoint, verify=str(cert))
        with (tmp_path / "up.bin").open("w+b") as stream:  # over TLS the client streams with a trailing checksum
            stream.write(content)
            stream.seek(0)
            s3.put_object(Bucket="adapters", Key="up.bin", Body=stream)
        assert (root / "adapters" / "up.bin").read_bytes() == content
        assert s3.get_object(Bucket="adapters", Key="up.bin")["Body"].read() == content
        untrusting = connect(endpoint_url=server.endpoint)
        with pytest.raises(SSLError, match="certificate"):
            untrusting.list_buckets()


def self_signed(folder: Path) -> tuple[Path, Path]:
    from ipaddress import ip_address

    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "s3")])
    now = datetime.now(UTC)
    builder = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
    builder = (
        builder.serial_number(1).not_valid_before(now - timedelta(days=1)).not_valid_after(now + timedelta(days=1))
    )
    alternative = x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))])
    cert = builder.add_extension(alternative, False).sign(key, hashes.SHA256())
    pem = serialization.Encoding.PEM
    (folder / "tls.crt").write_bytes(cert.public_bytes(pem))
    private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    (folder / "tls.key").write_bytes(private)
    return folder / "tls.crt", folder / "tls.key"


async def test_in_the_loop_of_a_test(root: Path) -> None:
    async with S3Server(root, access_key=ACCESS, secret_key=SECRET) as server, httpx.AsyncClient() as client:
        assert (await client.get(f"{server.endpoint}/_health")).status_code == 200
