"""Servers that break the rules: each answer leads to a reason, within bounds, never to wrong bytes.

They speak through a raw socket, for no framework would send what they send.
"""

from __future__ import annotations

import contextlib
import gc
import hashlib
import itertools
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from email.utils import formatdate
from pathlib import Path
from typing import Any

import pytest

from disk.failures import DiskFailure, parse_retry_after
from disk.sources import base as base_module
from disk.sources import hub as hub_module
from disk.sources import s3 as s3_module
from disk.sources.guard import allow_link_local_again
from tests.unit.disk.test_sources import Job
from tests.unit.disk.world import Files, adapter

FILES = adapter(7)
COMMIT = "0" * 40
Sender = Callable[[bytes], None]
Behaviour = Callable[[str, dict[str, str], Sender], None]  # path, headers with lower-case names, what sends


class Hostile:
    """One server; a request ends when its behaviour returns, and with it the connection."""

    def __init__(self, behaviour: Behaviour) -> None:
        self.behaviour = behaviour
        self.asked: list[tuple[str, dict[str, str]]] = []
        self._closed = threading.Event()
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.endpoint = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._socket.accept()
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        def send(data: bytes) -> None:
            if self._closed.is_set():
                raise ConnectionError
            connection.sendall(data)

        with contextlib.suppress(OSError), connection:
            connection.settimeout(5)
            head = b""
            while b"\r\n\r\n" not in head:
                head += connection.recv(65536) or b"\r\n\r\n"
            line, *fields = head.decode("latin-1").split("\r\n\r\n")[0].split("\r\n")
            headers = {name.lower(): value.strip() for name, _, value in (one.partition(":") for one in fields)}
            path = line.split(" ")[1]
            self.asked.append((path, headers))
            self.behaviour(path, headers, send)

    def close(self) -> None:
        self._closed.set()
        self._socket.close()


@pytest.fixture
def serve(clean_environment: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Behaviour], Hostile]]:
    """Start a hostile server that both clients are pointed at."""
    running: list[Hostile] = []

    def start(behaviour: Behaviour) -> Hostile:
        running.append(Hostile(behaviour))
        for name in ("HF_ENDPOINT", "AWS_ENDPOINT_URL"):
            monkeypatch.setenv(name, running[-1].endpoint)
        return running[-1]

    monkeypatch.setenv("HF_TOKEN", "hf_hostileTestTokenSecret")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAHOSTILETESTKEY00")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "x")
    monkeypatch.setattr(hub_module, "_READ_SECONDS", 0.4)
    monkeypatch.setattr(s3_module, "_READ_SECONDS", 0.4)
    yield start
    for one in running:
        one.close()
    allow_link_local_again()
    gc.collect()  # a connection that was left open warns here, in the test that left it


def answer(status: str, body: bytes = b"", *fields: str, length: int | None = None) -> bytes:
    head = [f"HTTP/1.1 {status}", f"Content-Length: {len(body) if length is None else length}", "Connection: close"]
    return "\r\n".join([*head, *fields, "", ""]).encode("latin-1") + body


def chunk(data: bytes) -> bytes:
    return f"{len(data):x}\r\n".encode() + data + b"\r\n"


CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Type: application/json\r\n\r\n"


def hub_listing(files: Files) -> bytes:
    siblings = [
        {"rfilename": name, "size": len(data), "blobId": hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()}
        for name, data in files.items()
    ]
    return json.dumps({"id": "acme/x", "sha": COMMIT, "siblings": siblings}).encode()


def s3_listing(files: Files, *, more: str = "") -> bytes:
    entries = "".join(
        f"<Contents><Key>x/{name}</Key><Size>{len(data)}</Size>"
        f"<ETag>&quot;{hashlib.md5(data).hexdigest()}&quot;</ETag></Contents>"
        for name, data in files.items()
    )
    rest = f"<IsTruncated>true</IsTruncated><NextContinuationToken>{more}</NextContinuationToken>" if more else ""
    rest = rest or "<IsTruncated>false</IsTruncated>"
    return f"<ListBucketResult><Name>b</Name>{rest}{entries}</ListBucketResult>".encode()


def is_listing(path: str) -> bool:
    return path.startswith("/api/") or "list-type=2" in path


def file_of(path: str) -> bytes:
    return FILES[path.partition("?")[0].rpartition("/")[2]]


def etag_of(data: bytes) -> str:
    return f'ETag: "{hashlib.md5(data).hexdigest()}"'


def good(path: str, headers: dict[str, str], send: Sender) -> None:
    """What an honest server says."""
    if is_listing(path):
        send(answer("200 OK", hub_listing(FILES) if path.startswith("/api/") else s3_listing(FILES)))
        return
    data = file_of(path)
    begin = int(headers.get("range", "bytes=0-")[6:].partition("-")[0])
    if begin:
        span = f"Content-Range: bytes {begin}-{len(data) - 1}/{len(data)}"
        send(answer("206 Partial Content", data[begin:], span, etag_of(data)))
    else:
        send(answer("200 OK", data, etag_of(data)))


def only_files(behaviour: Behaviour) -> Behaviour:
    """Honest listings, and files as `behaviour` sends them."""
    return lambda path, headers, send: (good if is_listing(path) else behaviour)(path, headers, send)


def only_listings(behaviour: Behaviour) -> Behaviour:
    return lambda path, headers, send: (behaviour if is_listing(path) else good)(path, headers, send)


def says(status: str, body: bytes = b"", *fields: str) -> Behaviour:
    return lambda path, headers, send: send(answer(status, body, *fields))


def endless(path: str, headers: dict[str, str], send: Sender) -> None:
    send(CHUNKED + chunk(b'{"a": "'))
    while True:
        send(chunk(b"x" * 65536))


def dripping(path: str, headers: dict[str, str], send: Sender) -> None:
    send(CHUNKED)
    while True:
        send(chunk(b" "))
        time.sleep(0.05)


def endless_headers(path: str, headers: dict[str, str], send: Sender) -> None:
    send(b"HTTP/1.1 200 OK\r\n")
    for number in itertools.count():
        send(b"X-%d: %s\r\n" % (number, b"x" * 60000))


def endless_file(path: str, headers: dict[str, str], send: Sender) -> None:
    send(f"HTTP/1.1 200 OK\r\n{etag_of(file_of(path))}\r\n\r\n".encode() + file_of(path))
    while True:
        send(b"x" * 65536)


def longer_than_said(path: str, headers: dict[str, str], send: Sender) -> None:
    data = file_of(path)
    send(answer("200 OK", data + b"extra", etag_of(data), length=len(data)))


def compressed(path: str, headers: dict[str, str], send: Sender) -> None:
    import gzip

    data = file_of(path)
    send(answer("200 OK", gzip.compress(data), "Content-Encoding: gzip", etag_of(data)))


def other_range(path: str, headers: dict[str, str], send: Sender) -> None:
    data = file_of(path)
    if "range" not in headers:
        send(answer("200 OK", data[:100], etag_of(data), length=len(data)))
        return
    send(
        answer("206 Partial Content", data[50:], f"Content-Range: bytes 50-{len(data) - 1}/{len(data)}", etag_of(data))
    )


def part_unasked(path: str, headers: dict[str, str], send: Sender) -> None:
    data = file_of(path)
    send(answer("206 Partial Content", data[7:], f"Content-Range: bytes 7-{len(data) - 1}/{len(data)}", etag_of(data)))


def range_of_nothing(path: str, headers: dict[str, str], send: Sender) -> None:
    data = file_of(path)
    if "range" not in headers:
        send(answer("200 OK", data[:100], etag_of(data), length=len(data)))
        return
    send(answer("416 Range Not Satisfiable", b"", "Content-Range: bytes */5"))


BOMB = (
    b'<?xml version="1.0"?><!DOCTYPE l [<!ENTITY a0 "'
    + b"x" * 1000
    + b'">'
    + b"".join(b'<!ENTITY a%d "%s">' % (n, b"&a%d;" % (n - 1) * 10) for n in range(1, 9))
    + b"]><ListBucketResult><Name>&a8;</Name></ListBucketResult>"
)

# what breaks the rules, how, and what it may end in (for the hub, for S3)
LOST = {"SourceConnectionLost"}
WRONG = {"SourceResponseInvalid"}
UNREADABLE = WRONG | {"SourceServerError"}  # botocore takes an answer that it cannot parse for one of a broken server
SLOW = {"SourceTimeout", "SourceConnectionLost"}
CASES: dict[str, tuple[Behaviour, set[str]]] = {
    "a listing without end": (only_listings(endless), WRONG),
    "a listing that drips": (only_listings(dripping), SLOW),
    "a listing that is neither JSON nor XML": (only_listings(says("200 OK", b"\xff{<")), UNREADABLE),
    "a listing of nothing": (only_listings(says("200 OK")), WRONG | {"SourcePrefixEmpty"}),
    "a listing of entities": (only_listings(says("200 OK", BOMB)), UNREADABLE | {"SourcePrefixEmpty"}),
    "a listing of null": (only_listings(says("200 OK", b"null")), UNREADABLE),
    "headers without end": (endless_headers, LOST | WRONG),
    "garbage": (lambda path, headers, send: send(b"\0\1\2\3 hello\r\n\r\n"), LOST | WRONG),
    "silence": (lambda path, headers, send: None, LOST),
    "another protocol": (lambda path, headers, send: send(b"SSH-2.0-OpenSSH_9.6\r\n"), LOST | WRONG),
    "not modified": (only_files(says("304 Not Modified")), WRONG),
    "no content": (only_files(says("204 No Content")), WRONG | LOST),
    "a teapot": (only_files(says("418 I'm a teapot")), WRONG),
    "status 999": (only_files(says("999 Unusual")), WRONG | {"SourceServerError"}),
    "redirects without end": (
        lambda path, headers, send: send(answer("307 Temporary Redirect", b"", f"Location: {path}")),
        LOST | WRONG,
    ),
    "a redirect to nowhere": (only_files(says("302 Found")), WRONG | LOST),
    "a redirect to a file": (
        only_files(says("302 Found", b"", "Location: file:///etc/passwd")),
        WRONG | LOST | {"SourceUriInvalid"},
    ),
    "a redirect to the metadata service": (
        only_files(says("302 Found", b"", "Location: http://169.254.169.254/latest/")),
        {"SourceEndpointRefused"} | WRONG,
    ),
    "a file without end": (only_files(endless_file), {"SourceChanged"}),
    "a file in gzip": (only_files(compressed), {"ChecksumMismatch", "SourceConnectionLost", "SourceChanged"}),
    "another range": (only_files(other_range), WRONG),
    "a part without a request": (only_files(part_unasked), WRONG | LOST | {"ChecksumMismatch"}),
    "a range of nothing": (only_files(range_of_nothing), {"SourceChanged"}),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("scheme", ["hf", "s3"])
def test_each_server(
    scheme: str, name: str, serve: Callable[[Behaviour], Hostile], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(base_module, "LARGEST_ANSWER", 1 << 20)
    monkeypatch.setattr(base_module, "LONGEST_ANSWER_SECONDS", 0.3)
    behaviour, reasons = CASES[name]
    server = serve(behaviour)
    job = Job(folder / "disk", f"{scheme}://{'acme' if scheme == 'hf' else 'b'}/x")
    began = time.monotonic()
    failure = job.failure()
    assert failure.reason in reasons, failure
    assert time.monotonic() - began < 15
    assert len(server.asked) < 60, "bounded"
    assert "hf_hostile" not in failure.message


@pytest.mark.parametrize("scheme", ["hf", "s3"])
def test_the_honest_server_of_these_tests_is_believed(
    scheme: str, serve: Callable[[Behaviour], Hostile], folder: Path
) -> None:
    serve(good)
    job = Job(folder / "disk", f"{scheme}://{'acme' if scheme == 'hf' else 'b'}/x")
    assert job.run() == "AdapterStaged"
    assert job.live() == FILES


@pytest.mark.parametrize("scheme", ["hf", "s3"])
def test_more_than_was_listed_is_not_taken(scheme: str, serve: Callable[[Behaviour], Hostile], folder: Path) -> None:
    """Bytes behind the announced length are not part of the file: they are the next answer, or nothing."""
    serve(only_files(longer_than_said))
    job = Job(folder / "disk", f"{scheme}://{'acme' if scheme == 'hf' else 'b'}/x")
    assert job.run() == "AdapterStaged"
    assert job.live() == FILES


@pytest.mark.parametrize(
    "status", ["301 Moved Permanently", "302 Found", "307 Temporary Redirect", "308 Permanent Redirect"]
)
@pytest.mark.parametrize("scheme", ["hf", "s3"])
@pytest.mark.parametrize("what", ["listing", "file"])
def test_no_credentials_go_to_another_origin(
    scheme: str, what: str, status: str, serve: Callable[[Behaviour], Hostile], folder: Path
) -> None:
    """Another port is another origin; a file may come from there, the token may not go there."""
    thief = Hostile(good)

    def elsewhere(path: str, headers: dict[str, str], send: Sender) -> None:
        send(answer(status, b"", f"Location: {thief.endpoint}{path}", "x-amz-bucket-region: eu-west-9"))

    serve((only_listings if what == "listing" else only_files)(elsewhere))
    job = Job(folder / "disk", f"{scheme}://{'acme' if scheme == 'hf' else 'b'}/x")
    try:
        with contextlib.suppress(DiskFailure):
            job.run()
        for _, headers in thief.asked:
            assert "authorization" not in headers
            assert not any("hf_hostile" in value for value in headers.values())
        assert bool(thief.asked) == (scheme == "hf"), "S3 sends each request to the endpoint that was configured"
    finally:
        thief.close()


@pytest.mark.parametrize("tokens", ["one", "many"])
def test_a_listing_of_endless_pages(
    tokens: str, serve: Callable[[Behaviour], Hostile], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pages without keys that always name a next one: the same, or another each time."""
    monkeypatch.setattr(s3_module, "_MOST_LISTING_PAGES", 20)
    numbers = itertools.count()
    server = serve(
        lambda path, headers, send: send(
            answer("200 OK", s3_listing({}, more="t" if tokens == "one" else f"t{next(numbers)}"))
        )
    )
    failure = Job(folder / "disk", "s3://b/x").failure()
    assert failure.reason in ("SourceTooManyFiles", "SourceResponseInvalid", "SourceConnectionLost")
    assert len(server.asked) <= 25


@pytest.mark.parametrize("scheme", ["hf", "s3"])
def test_a_storm_of_429_ends(scheme: str, serve: Callable[[Behaviour], Hostile], folder: Path) -> None:
    server = serve(says("429 Too Many Requests", b"", "Retry-After: 1"))
    job = Job(folder / "disk", f"{scheme}://{'acme' if scheme == 'hf' else 'b'}/x")
    assert job.failure().reason == "SourceRateLimited"
    assert job.waits == [pytest.approx(wait, abs=16) for wait in job.waits]
    assert all(wait >= 1 for wait in job.waits)
    assert len(server.asked) == len(job.waits) + 1 <= 6


NOW = 1_900_000_000.0
WAITS: dict[str, tuple[str, str, int | None]] = {
    "seconds": ("57", "", 57),
    "none": ("", "", None),
    "zero": ("0", "", 0),
    "negative": ("-5", "", None),
    "a fraction": ("1.5", "", None),
    "beyond a day": ("100000", "", 86400),
    "beyond every number": ("9" * 5000, "", 86400),
    "a superscript": ("²", "", None),
    "other digits": ("٣", "", None),
    "words": ("soon", "", None),
    "a date": (formatdate(NOW + 90, usegmt=True), "", 90),
    "a date by the server's clock": (formatdate(5000, usegmt=True), formatdate(4000, usegmt=True), 1000),
    "a date that has passed": (formatdate(NOW - 90, usegmt=True), "", 0),
    "a date far away": ("Fri, 31 Dec 9999 23:59:59 GMT", "", 86400),
    "no date": ("Fri, 99 Foo 2026 25:61:61 GMT", "", None),
    "the year zero": ("Mon, 01 Jan 0000 00:00:00 GMT", "", 0),
    "a date without zone": ("Wed, 21 Oct 2026 07:28:00", "nonsense", 0),
}


@pytest.mark.parametrize(("value", "date", "seconds"), WAITS.values(), ids=WAITS)
def test_how_long_to_wait(value: str, date: str, seconds: int | None) -> None:
    assert parse_retry_after(value, date, clock=lambda: NOW) == seconds


@pytest.mark.parametrize("value", ["²", "9" * 5000, "Fri, 31 Dec 9999 23:59:59 GMT", "\x7f", "soon"])
@pytest.mark.parametrize("scheme", ["hf", "s3"])
def test_unusual_waits_end_in_the_usual_reason(
    scheme: str, value: str, serve: Callable[[Behaviour], Hostile], folder: Path
) -> None:
    serve(says("429 Too Many Requests", b"", f"Retry-After: {value}"))
    job = Job(folder / "disk", f"{scheme}://{'acme' if scheme == 'hf' else 'b'}/x")
    assert job.failure().reason == "SourceRateLimited"


NAMES = [
    "x/adapter\x01.json",
    "x//adapter_config.json",
    "x/../../etc/passwd",
    "x/\u202egnp.exe",
    "x/a/",
    "x/" + "n" * 1000,
]


@pytest.mark.parametrize("key", NAMES)
def test_unusual_keys_beside_an_adapter_are_left_where_they_are(
    key: str, serve: Callable[[Behaviour], Hostile], folder: Path
) -> None:
    """Nothing asks for them: they are not fetched, and they block no adapter."""

    def listing(path: str, headers: dict[str, str], send: Sender) -> None:
        from urllib.parse import quote

        entry = f"<Contents><Key>{quote(key)}</Key><Size>3</Size><ETag>&quot;x&quot;</ETag></Contents>"
        body = s3_listing(FILES).replace(
            b"<Contents>", f"<EncodingType>url</EncodingType>{entry}<Contents>".encode(), 1
        )
        send(answer("200 OK", body))

    server = serve(only_listings(listing))
    job = Job(folder / "disk", "s3://b/x")
    assert job.run() == "AdapterStaged"
    assert job.live() == FILES
    assert not [path for path, _ in server.asked if "passwd" in path or "gnp" in path]


SIZES: dict[str, Any] = {"negative": -1, "text": "many", "huge": 1 << 62, "empty": ""}


@pytest.mark.parametrize("name", SIZES)
def test_impossible_sizes(name: str, serve: Callable[[Behaviour], Hostile], folder: Path) -> None:
    def listing(path: str, headers: dict[str, str], send: Sender) -> None:
        size = len(FILES["adapter_config.json"])
        body = s3_listing(FILES).replace(f"<Size>{size}</Size>".encode(), f"<Size>{SIZES[name]}</Size>".encode())
        send(answer("200 OK", body))

    serve(only_listings(listing))
    assert Job(folder / "disk", "s3://b/x").failure().reason in ("SourceResponseInvalid", "DiskFull")
