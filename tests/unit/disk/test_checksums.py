"""Checksums: each kind, of whole files and of parts, and what every variant that an S3 service gives is worth."""

from __future__ import annotations

import hashlib
import itertools
import json
import re
import zlib
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from devcluster.sources.files import new_hasher
from devcluster.sources.s3 import S3Server, running_s3
from devcluster.sources.s3bucket import ALGORITHMS
from disk.checksums import DIGEST_BYTES, Announced, Checker, Mismatch
from disk.download import Pacing
from disk.failures import DiskFailure
from disk.fs import Fs
from disk.layout import Layout
from disk.progress import Meter
from disk.records import Done, load
from disk.sources import open_source
from disk.sources import s3 as s3_module
from disk.stage import Stager, stage
from tests.unit.disk.conftest import ACCESS_KEY, SECRET_KEY
from tests.unit.disk.test_sources import GOOD, WEIGHTS, Job, fixture_files, publish
from tests.unit.disk.world import fetch_spec, reason_of, stage_spec


def test_checksums() -> None:
    data = b"hello"
    for announced in (
        None,
        f"sha256:{hashlib.sha256(data).hexdigest()}",
        f"sha1:{hashlib.sha1(data).hexdigest()}",
        f"md5:{hashlib.md5(data).hexdigest()}",
        f"crc32:{zlib.crc32(data):08x}",
        "crc32c:9a71bb4c",
        "git-sha1:b6fc4c620b67d95f953a5c1c1230aaab5db5a1b0",  # git hash-object of "hello"
    ):
        checker = Checker(Announced.parse(announced), len(data))
        checker.update(data)
        assert checker.finish("f") == hashlib.sha256(data).hexdigest()
        assert checker.verified == (announced or "size").partition(":")[0]
    for kind in DIGEST_BYTES:
        checker = Checker(Announced.parse(f"{kind}:00"), len(data))
        checker.update(data)
        assert reason_of(partial(checker.finish, "f")) == "ChecksumMismatch"
    assert reason_of(lambda: Checker(Announced.parse("rot13:00"), 1)) == "SourceResponseInvalid"


CHECK_VALUES = {"crc32c": "e3069283", "crc64nvme": "ae8b14860a799888", "crc32": "cbf43926"}  # each of b"123456789"


@pytest.mark.parametrize("kind", CHECK_VALUES)
def test_cyclic_checksums_are_the_published_ones(kind: str) -> None:
    for pieces in ([b"123456789"], [b"1234", b"", b"56789"]):
        checker = Checker(Announced(kind, CHECK_VALUES[kind]), 9)
        for piece in pieces:
            checker.update(piece)
        checker.finish("f")
        assert checker.verified == kind


@given(st.data(), st.sampled_from(["sha256", "sha1", "md5", "crc32", "crc32c", "crc64nvme"]))
@settings(max_examples=60, deadline=None)
def test_checksums_of_parts(draw: st.DataObject, kind: str) -> None:
    """However the bytes arrive: the value is that of the parts. A missing, extra or different part is reported."""
    sizes = draw.draw(st.lists(st.integers(1, 40), min_size=1, max_size=6))
    data = draw.draw(st.binary(min_size=sum(sizes), max_size=sum(sizes)))
    cuts = sorted(draw.draw(st.lists(st.integers(0, len(data)), max_size=5)))
    ends = list(itertools.accumulate(sizes))
    parts = [data[end - size : end] for size, end in zip(sizes, ends, strict=True)]
    value = digest_hex(kind, b"".join(bytes.fromhex(digest_hex(kind, part)) for part in parts))

    def verified(announced: Announced) -> bool:
        checker = Checker(announced, len(data))
        for begin, end in itertools.pairwise([0, *cuts, len(data)]):
            checker.update(data[begin:end])
        try:
            checker.finish("f")
        except Mismatch:
            return False
        return checker.verified == f"{kind} of {len(sizes)} parts"

    assert verified(Announced(kind, value, tuple(sizes)))
    assert not verified(Announced(kind, value, (*sizes[:-1], sizes[-1] + 1, 1)))
    assert not verified(Announced(kind, ("1" if value[0] == "0" else "0") + value[1:], tuple(sizes)))


def digest_hex(kind: str, data: bytes) -> str:
    """The checksum by another way than the product's: the stand-in's hashers."""
    hasher = new_hasher(kind)
    hasher.update(data)
    return hasher.digest().hex()


# -- what an S3 service gives, by the real client -------------------------------------------------------------------

PARTS = {"part_size": 2000}
COMPOSITE = {name: {"algorithm": name, "type": "COMPOSITE"} for name in ("CRC32", "CRC32C", "SHA1", "SHA256")}
NO_ATTRIBUTES = {"operation": "GetObjectAttributes"}
NO_PARTS = {"operation": "HeadObject", "status": 501}

# what the object is like, faults, what the record says of the weights ("size": nothing could be verified)
VARIANTS: dict[str, tuple[dict[str, Any], list[dict[str, Any]], str]] = {
    **{f"whole {name}": ({"checksum": name}, [], name.lower()) for name in ALGORITHMS},
    **{f"whole {name} of an upload in parts": ({"checksum": name} | PARTS, [], name.lower()) for name in ALGORITHMS},
    **{
        f"parts {name}": ({"checksum": kind} | PARTS, [], f"{name.lower()} of N parts")
        for name, kind in COMPOSITE.items()
    },
    "parts of mixed sizes": (
        {"checksum": COMPOSITE["CRC32C"], "part_sizes": [900, 2500, 1300]},
        [],
        "crc32c of N parts",
    ),
    "one part": ({"checksum": COMPOSITE["SHA1"], "part_size": 1 << 20}, [], "sha1 of N parts"),
    "parts asked one by one, attributes forbidden": (
        {"checksum": COMPOSITE["SHA256"], "part_sizes": [900, 2500, 1300]},
        [NO_ATTRIBUTES | {"status": 403}],
        "sha256 of N parts",
    ),
    "parts asked one by one, attributes unknown": (
        {"checksum": COMPOSITE["CRC32"]} | PARTS,
        [NO_ATTRIBUTES | {"status": 501}],
        "crc32 of N parts",
    ),
    "parts of unknown sizes": (
        {"checksum": COMPOSITE["SHA256"]} | PARTS,
        [NO_ATTRIBUTES | {"status": 405}, NO_PARTS],
        "size",
    ),
    "ETag": ({"checksum": "NONE"}, [], "md5"),
    "ETag with the service's own key": ({"checksum": "NONE", "encryption": "AES256"}, [], "md5"),
    "ETag of parts": ({"checksum": "NONE"} | PARTS, [], "md5 of N parts"),
    "ETag of parts of mixed sizes": ({"checksum": "NONE", "part_sizes": [900, 2500, 1300]}, [], "md5 of N parts"),
    "ETag of unknown parts": ({"checksum": "NONE"} | PARTS, [NO_PARTS], "size"),
    "KMS": ({"checksum": "NONE", "encryption": "aws:kms"}, [], "size"),
    "KMS in parts": ({"checksum": "NONE", "encryption": "aws:kms:dsse"} | PARTS, [], "size"),
    "KMS with a checksum": ({"checksum": "CRC64NVME", "encryption": "aws:kms"}, [], "crc64nvme"),
    "a value of the wrong length": ({"checksum": {"algorithm": "CRC32C", "value": "abcd"}}, [], "md5"),
    "a value that is none": (
        {"checksum": {"algorithm": "SHA256", "value": "=?="}, "encryption": "aws:kms"},
        [],
        "size",
    ),
}


def described(s3: S3Server, place: str, **settings: Any) -> None:
    objects = {f"{place}/{WEIGHTS}": settings}
    (Path(s3.root.path) / "bucket" / ".s3meta.json").write_text(json.dumps({"objects": objects}))


def record_of(disk: Path) -> Done:
    done = load(Done, Layout(disk).done("u1", "a"))
    assert done is not None
    return done


def verified(disk: Path) -> str:
    return re.sub(r"\d+ parts", "N parts", record_of(disk).verified[WEIGHTS])


@pytest.mark.parametrize(("settings", "faults", "how"), VARIANTS.values(), ids=VARIANTS)
def test_each_variant(s3: S3Server, folder: Path, settings: dict[str, Any], faults: list[Any], how: str) -> None:
    """The record shows what verified the bytes. Wrong bytes are reported wherever a checksum exists."""
    publish(s3, GOOD, fixture_files(GOOD), "bucket")
    described(s3, GOOD, **settings)
    job = Job(folder / "disk", f"s3://bucket/{GOOD}")
    wrong = {"match": f"*{WEIGHTS}", "operation": "GetObject", "corrupt_byte_at": 4000}
    s3.set_faults([*faults, wrong])
    if how != "size":
        failure = job.failure()
        assert (failure.reason, WEIGHTS in failure.message) == ("ChecksumMismatch", True)
        s3.set_faults([*faults, wrong | {"times": 1}])
    else:
        s3.set_faults(faults)
    assert job.run() == "AdapterStaged"
    assert job.live() == fixture_files(GOOD)
    assert verified(job.disk) == how
    assert record_of(job.disk).verified["adapter_config.json"] == "sha256"
    warned = [note.message for note in record_of(job.disk).warnings if note.reason == "SourceNotVerified"]
    assert bool(warned) == (how == "size")
    assert all(WEIGHTS in message and "1 of 2 files" in message for message in warned)


def test_parts_as_a_real_client_uploads_them(s3: S3Server, folder: Path) -> None:
    """Parts of three sizes, with the checksum that the client library's transfers ask for."""
    import boto3

    files = fixture_files(GOOD)
    publish(s3, GOOD, {"adapter_config.json": files["adapter_config.json"]}, "bucket")
    client = boto3.client("s3", region_name="us-east-1")
    target: Any = {"Bucket": "bucket", "Key": f"{GOOD}/{WEIGHTS}"}
    upload_id = client.create_multipart_upload(**target, ChecksumAlgorithm="CRC32")["UploadId"]
    upload = target | {"UploadId": upload_id}
    weights = files[WEIGHTS]
    parts: list[Any] = []
    for number, (begin, end) in enumerate([(0, 1000), (1000, 7000), (7000, len(weights))], start=1):
        answer = client.upload_part(**upload, PartNumber=number, Body=weights[begin:end])
        parts.append({"PartNumber": number, "ETag": answer["ETag"]})
    client.complete_multipart_upload(**upload, MultipartUpload={"Parts": parts})
    job = Job(folder / "disk", f"s3://bucket/{GOOD}")
    s3.set_faults([{"match": f"*{WEIGHTS}", "corrupt_byte_at": 4000}])
    assert job.failure().reason == "ChecksumMismatch"
    s3.set_faults([])
    assert job.run() == "AdapterStaged"
    assert verified(job.disk) == "crc32 of N parts"


def test_many_parts_are_inferred_from_the_first(s3: S3Server, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Above a bound not every part is asked for; where that led astray the bytes are taken when they came twice."""
    monkeypatch.setattr(s3_module, "_MOST_PARTS_ASKED", 2)
    publish(s3, GOOD, fixture_files(GOOD), "bucket")
    described(s3, GOOD, checksum="NONE", part_size=2000)
    job = Job(folder / "even", f"s3://bucket/{GOOD}")
    assert (job.run(), verified(job.disk)) == ("AdapterStaged", "md5 of N parts")
    assert sum(entry["operation"] == "HeadObject" for entry in s3.requests()) == 1
    described(s3, GOOD, checksum="NONE", part_sizes=[2000, 1900, 2100, 2000])
    job = Job(folder / "odd", f"s3://bucket/{GOOD}")
    assert (job.run(), verified(job.disk)) == ("AdapterStaged", "size")


def test_a_store_with_other_etags(folder: Path, clean_environment: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """`…-N` of an unknown service may be anything: bytes that came twice the same are what it has."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", ACCESS_KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET_KEY)
    (folder / "s3").mkdir()
    keys = {"access_key": ACCESS_KEY, "secret_key": SECRET_KEY}
    with running_s3(folder / "s3", **keys, server_name="OtherStore") as server:
        publish(server, GOOD, fixture_files(GOOD), "bucket")
        count = -(-len(fixture_files(GOOD)[WEIGHTS]) // 2000)
        described(server, GOOD, checksum="NONE", part_size=2000, etag=f"{'0' * 32}-{count}")
        job = Job(folder / "odd", f"s3://bucket/{GOOD}", s3_endpoint=server.endpoint)
        assert (job.run(), verified(job.disk)) == ("AdapterStaged", "size")
        described(server, GOOD, checksum="NONE", part_size=2000)
        job = Job(folder / "usual", f"s3://bucket/{GOOD}", s3_endpoint=server.endpoint)
        assert (job.run(), verified(job.disk)) == ("AdapterStaged", "md5 of N parts")
        job = Job(folder / "altered", f"s3://bucket/{GOOD}", s3_endpoint=server.endpoint)
        places = [{"match": f"*{WEIGHTS}", "corrupt_byte_at": at, "times": 1} for at in (4000, 4001)]
        server.set_faults(places)
        assert job.failure().reason == "ChecksumMismatch", "altered in two ways"


def test_a_resume_is_verified_as_a_whole(s3: S3Server, folder: Path) -> None:
    files = fixture_files(GOOD)
    publish(s3, GOOD, files, "bucket")
    described(s3, GOOD, checksum=COMPOSITE["CRC32C"], part_size=2000)
    job = Job(folder / "disk", f"s3://bucket/{GOOD}")
    s3.set_faults([{"match": f"*{WEIGHTS}", "cut_after_bytes": 5000}])
    with pytest.raises(DiskFailure):
        stage(Stager(job.spec, Fs(), lambda: open_source(job.spec), Meter(), Pacing(attempts=1)))
    s3.set_faults([])
    assert (job.run(), verified(job.disk)) == ("AdapterStaged", "crc32c of N parts")


@pytest.mark.parametrize("kind", ["hub", "s3"])
def test_a_file_that_rotted_in_scratch_is_fetched_again(
    kind: str, request: pytest.FixtureRequest, folder: Path
) -> None:
    """What an earlier Job left complete is held against the source again, and is fetched again when it is damaged."""
    server = request.getfixturevalue(kind)
    files = fixture_files(GOOD) | {"tokenizer.json": b"{}"}
    publish(server, GOOD, files)
    job = Job(folder / "disk", f"{'hf' if kind == 'hub' else 's3'}://acme/{GOOD}")
    server.set_faults([{"match": "*tokenizer.json", "status": 403}])
    assert job.failure().reason == "SourceForbidden"
    (whole,) = (job.disk / ".staging").glob(f"get-*/files/{WEIGHTS}")
    data = bytearray(whole.read_bytes())
    data[4000] ^= 1
    whole.write_bytes(data)
    server.set_faults([])
    assert job.run() == "AdapterStaged"
    assert job.live() == files


LIES: dict[str, dict[str, Any]] = {
    "a part larger than the object": {"ObjectParts": {"Parts": [{"Size": 1 << 40}], "IsTruncated": False}},
    "no sizes": {"ObjectParts": {"Parts": [{}, {}], "IsTruncated": False}},
    "negative sizes": {"ObjectParts": {"Parts": [{"Size": -1}] * 6, "IsTruncated": False}},
    "pages without end": {"ObjectParts": {"Parts": [{"Size": 1}], "IsTruncated": True, "NextPartNumberMarker": 0}},
    "nothing": {},
}


@pytest.mark.parametrize("lie", LIES)
def test_a_service_that_lies_about_parts(lie: str, s3: S3Server, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts that cannot be are not believed: they are asked for one by one."""
    publish(s3, GOOD, fixture_files(GOOD), "bucket")
    described(s3, GOOD, checksum=COMPOSITE["CRC32C"], part_size=2000)
    spec = stage_spec(folder / "disk", "u1", "a", source_uri=f"s3://bucket/{GOOD}")
    reader: Any = open_source(spec)
    monkeypatch.setattr(reader._client, "get_object_attributes", lambda **_: LIES[lie], raising=False)
    weights = next(file for file in reader.list_files().files if file.name == WEIGHTS)
    announced = reader.checksum_of(weights)
    assert sum(announced.part_sizes) == weights.size
    assert set(announced.part_sizes[:-1]) == {2000}


ANSWERS: dict[str, tuple[dict[str, Any], list[tuple[str, int]]]] = {
    "nothing": ({}, []),
    "whole": ({"ChecksumCRC32C": "AAAAAA=="}, [("crc32c", 0)]),
    "the type says composite, the ETag how many": (
        {"ChecksumCRC32": "AAAAAA==", "ChecksumType": "COMPOSITE", "ETag": f'"{"0" * 32}-7"'},
        [("crc32", 7)],
    ),
    "composite of an unknown number": ({"ChecksumCRC32": "AAAAAA==", "ChecksumType": "COMPOSITE"}, [("crc32", -1)]),
    "the value says how many": ({"ChecksumCRC32": "AAAAAA==-3"}, [("crc32", 3)]),
    "no parts": ({"ChecksumCRC32": "AAAAAA==-0"}, []),
    "no number": ({"ChecksumCRC32": "AAAAAA==-x"}, []),
    "no text": ({"ChecksumCRC32": 7, "ChecksumSHA1": None}, []),
    "too short": ({"ChecksumCRC64NVME": "AAAAAA=="}, []),
}


@pytest.mark.parametrize(("answer", "told"), ANSWERS.values(), ids=ANSWERS)
def test_checksums_in_answers(answer: dict[str, Any], told: list[tuple[str, int]]) -> None:
    assert [(one.kind, one.parts) for one in s3_module.read_checksums(answer)] == told


@pytest.mark.parametrize(
    ("pin", "answer", "parts"),
    [
        ("0" * 32, {}, 0),
        ("A" * 32, {"ServerSideEncryption": "AES256"}, 0),
        (f"{'0' * 32}-12", {}, 12),
        ("0" * 32, {"ServerSideEncryption": "aws:kms"}, None),
        ("0" * 32, {"ServerSideEncryption": "aws:fsx"}, None),
        ("0" * 32, {"SSECustomerAlgorithm": "AES256"}, None),
        (f"{'0' * 32}-0", {}, None),
        (f"{'0' * 32}-123456", {}, None),
        ("not hexadecimal", {}, None),
        ("", {}, None),
    ],
)
def test_what_an_etag_is(pin: str, answer: dict[str, Any], parts: int | None) -> None:
    told = s3_module.read_etag(pin, answer)
    assert (told.parts if told is not None else None) == parts


def test_a_fetched_model_reports_what_was_not_verified(s3: S3Server, folder: Path) -> None:
    from disk.fetch import Fetcher, fetch

    publish(s3, "base", {"config.json": b"{}", WEIGHTS: b"weights"}, "bucket")
    described(s3, "base", checksum="NONE", encryption="aws:kms")
    spec = fetch_spec(folder / "cache", source_uri="s3://bucket/base/")
    (folder / "cache").mkdir()
    for _ in range(2):  # the second finds it there
        result = fetch(Fetcher(spec, Fs(), lambda: open_source(spec), Meter(), Pacing()))
        assert [note.reason for note in result.warnings] == ["SourceNotVerified"]
