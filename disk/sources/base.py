"""What every source can do, in the words of this room."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

from api.names import short_hash
from api.reasons import Reason
from disk.checksums import Announced
from disk.failures import DiskFailure

CHUNK_BYTES = 1024 * 1024
READ_BYTES = 64 * 1024  # what is asked of a connection at once
MOST_LISTED_FILES = 20_000
LARGEST_ANSWER = 64 * 1024 * 1024  # bytes of an answer that is no file: a listing of MOST_LISTED_FILES is far below
LONGEST_ANSWER_SECONDS = 300.0  # however slowly it drips


@dataclass(frozen=True, slots=True)
class RemoteFile:
    """One file of a source.

    `name`: relative to the source's folder. `address`: what the source itself calls it. `pin`: identity of exactly
    these bytes (etag, blob id). `checksum`: `sha256:…` or `git-sha1:…`, hexadecimal; None: the listing has none.
    """

    name: str
    address: str
    size: int
    pin: str
    checksum: str | None = None


@dataclass(frozen=True, slots=True)
class Listing:
    """What a source holds, pinned. `identity` names the source, endpoint included; `revision` is for people."""

    identity: str
    revision: str | None
    files: tuple[RemoteFile, ...]

    @property
    def total_bytes(self) -> int:
        """Sum of all sizes."""
        return sum(file.size for file in self.files)

    @property
    def key(self) -> str:
        """The same for every listing that must lead to the same bytes, hence the name of their download."""
        parts = [f"{file.name}\0{file.size}\0{file.pin}\0{file.checksum or ''}" for file in self.files]
        strong = all(file.checksum and file.checksum.startswith(("sha256:", "git-sha1:")) for file in self.files)
        return short_hash("listing", "" if strong else self.identity, *sorted(parts), length=32)


@dataclass(frozen=True, slots=True)
class OpenFile:
    """A file that is being read; `checksum` of the whole file is known only when it is read from the start."""

    pieces: Iterator[bytes]  # of about CHUNK_BYTES, from the offset that was asked for
    checksum: Announced | None


def gather(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the same bytes in pieces of about CHUNK_BYTES. What arrived before an error is yielded before it is raised.

    Else each cut would cost what was gathered, and a connection that never lives long would bring nothing at all.
    """
    waiting: list[bytes] = []
    size = 0
    try:
        for piece in pieces:
            waiting.append(piece)
            size += len(piece)
            if size >= CHUNK_BYTES:
                yield b"".join(waiting)
                waiting, size = [], 0
    except Exception:
        if waiting:
            yield b"".join(waiting)
        raise
    if waiting:
        yield b"".join(waiting)


def skipped(pieces: Iterable[bytes], count: int) -> Iterator[bytes]:
    """Yield the same bytes without the first `count` ones, which a server sends that ignores a range."""
    for piece in pieces:
        if count >= len(piece):
            count -= len(piece)
            continue
        yield piece[count:]
        count = 0


def read_answer(pieces: Iterable[bytes], where: str) -> bytes:
    """Read an answer that is no file, and only so much and so long of it. Raises: DiskFailure; what `pieces` raise."""
    end = time.monotonic() + LONGEST_ANSWER_SECONDS
    body = bytearray()
    for piece in pieces:
        body += piece
        if len(body) > LARGEST_ANSWER:
            raise DiskFailure(
                Reason.SOURCE_RESPONSE_INVALID, f"{where} sends a listing of more than {LARGEST_ANSWER} bytes"
            )
        if time.monotonic() > end:
            raise DiskFailure(
                Reason.SOURCE_TIMEOUT, f"{where} took more than {LONGEST_ANSWER_SECONDS:.0f} s for a listing"
            )
    return bytes(body)


class Source(Protocol):
    """A folder of files behind a network. Every error that leaves it is a DiskFailure."""

    def list_files(self) -> Listing:
        """Return all files, recursively. Raises: DiskFailure."""

    def checksum_of(self, file: RemoteFile) -> Announced | None:
        """Return the checksum of a whole pinned file, or None when the source has none. Raises: DiskFailure."""

    def open_file(self, file: RemoteFile, offset: int) -> AbstractContextManager[OpenFile]:
        """Stream a pinned file from `offset`. Raises: DiskFailure, also while the pieces are read."""


class SourceOptions(Protocol):
    """The part of a Job's specification that says how to reach a source."""

    @property
    def source_uri(self) -> str: ...
    @property
    def allow_link_local(self) -> bool: ...
    @property
    def s3_endpoint(self) -> str | None: ...
    @property
    def s3_region(self) -> str | None: ...
    @property
    def s3_addressing_style(self) -> str: ...
    @property
    def s3_signature_version(self) -> str: ...
    @property
    def s3_auth(self) -> str: ...
    @property
    def s3_credentials_dir(self) -> str | None: ...
    @property
    def s3_ca_file(self) -> str | None: ...
    @property
    def s3_insecure_skip_verify(self) -> bool: ...
