"""The interface of every source."""

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
READ_BYTES = 64 * 1024  # the size of one read from a connection
MOST_LISTED_FILES = 20_000
LARGEST_ANSWER = 64 * 1024 * 1024  # bytes of a response without a file: a listing of MOST_LISTED_FILES is far below
LONGEST_ANSWER_SECONDS = 300.0  # also for a server that sends a byte now and then


@dataclass(frozen=True, slots=True)
class RemoteFile:
    """One file of a source.

    `name`: relative to the source's folder. `address`: its name at the source. `pin`: identity of exactly these
    bytes (ETag, blob ID). `checksum`: `sha256:…` or `git-sha1:…`, hexadecimal; None: the listing has none.
    """

    name: str
    address: str
    size: int
    pin: str
    checksum: str | None = None


@dataclass(frozen=True, slots=True)
class Listing:
    """The files of a source, pinned. `identity` names the source with its endpoint; `revision` is for people."""

    identity: str
    revision: str | None
    files: tuple[RemoteFile, ...]

    @property
    def total_bytes(self) -> int:
        """Sum of all sizes."""
        return sum(file.size for file in self.files)

    @property
    def key(self) -> str:
        """Equal for all listings of the same bytes; the folder of their download has this name."""
        parts = [f"{file.name}\0{file.size}\0{file.pin}\0{file.checksum or ''}" for file in self.files]
        strong = all(file.checksum and file.checksum.startswith(("sha256:", "git-sha1:")) for file in self.files)
        return short_hash("listing", "" if strong else self.identity, *sorted(parts), length=32)


@dataclass(frozen=True, slots=True)
class OpenFile:
    """An open file. The `checksum` of the whole file is known only for a read from the start."""

    pieces: Iterator[bytes]  # of about CHUNK_BYTES, from the requested offset
    checksum: Announced | None


def gather(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the same bytes in pieces of about CHUNK_BYTES; yield what arrived before an error, then raise it.

    Otherwise each interruption would lose the gathered bytes, and a series of short connections would make no progress.
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
    """Yield the same bytes without the first `count` bytes, which a server sends that ignores the range."""
    for piece in pieces:
        if count >= len(piece):
            count -= len(piece)
            continue
        yield piece[count:]
        count = 0


def read_answer(pieces: Iterable[bytes], where: str) -> bytes:
    """Read a response without a file, with limits on size and time. Raises: DiskFailure; what `pieces` raise."""
    end = time.monotonic() + LONGEST_ANSWER_SECONDS
    body = bytearray()
    for piece in pieces:
        body += piece
        if len(body) > LARGEST_ANSWER:
            raise DiskFailure(
                Reason.SOURCE_RESPONSE_INVALID, f"{where} sent a listing of more than {LARGEST_ANSWER} bytes"
            )
        if time.monotonic() > end:
            raise DiskFailure(
                Reason.SOURCE_TIMEOUT, f"{where} took more than {LONGEST_ANSWER_SECONDS:.0f} s for a listing"
            )
    return bytes(body)


class Source(Protocol):
    """A remote folder of files. Every error that it raises is a DiskFailure."""

    def list_files(self) -> Listing:
        """Return all files, recursively. Raises: DiskFailure."""

    def checksum_of(self, file: RemoteFile) -> Announced | None:
        """Return the checksum of a whole pinned file, or None when the source has none. Raises: DiskFailure."""

    def open_file(self, file: RemoteFile, offset: int) -> AbstractContextManager[OpenFile]:
        """Stream a pinned file from `offset`. Raises: DiskFailure, also while the pieces are read."""


class SourceOptions(Protocol):
    """The part of the specification of a Job that describes how to reach a source."""

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

    @property
    def hub_ca_file(self) -> str | None: ...
