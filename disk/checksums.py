"""Checksums of one file while it passes by, and of a whole adapter."""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from disk.failures import DiskFailure


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file that is whole: its name below the adapter, size in bytes, sha256 in hexadecimal."""

    name: str
    size: int
    sha256: str


def content_digest(files: Iterable[StoredFile]) -> str:
    """Return `sha256:…` over names, sizes and contents of all files."""
    digest = hashlib.sha256()
    for file in sorted(files, key=lambda file: file.name):
        digest.update(f"{file.name}\0{file.size}\0{file.sha256}\n".encode())
    return f"sha256:{digest.hexdigest()}"


class _Hash(Protocol):
    def update(self, data: bytes, /) -> None: ...
    def hexdigest(self) -> str: ...


class _Crc32:
    def __init__(self) -> None:
        self._value = 0

    def update(self, data: bytes, /) -> None:
        self._value = zlib.crc32(data, self._value)

    def hexdigest(self) -> str:
        return f"{self._value:08x}"


class Checker:
    """Computes a file's sha256, and beside it the checksum that the source announced."""

    def __init__(self, announced: str | None, size: int) -> None:
        self._announced = announced
        self._sha256 = hashlib.sha256()
        self._second = _second_hash(announced, size)

    def update(self, data: bytes) -> None:
        """Take the next bytes."""
        self._sha256.update(data)
        if self._second is not None:
            self._second.update(data)

    def finish(self, name: str) -> str:
        """Return the sha256. Raises: DiskFailure ChecksumMismatch."""
        found = self._sha256.hexdigest()
        if self._announced is not None:
            kind, _, wanted = self._announced.partition(":")
            real = found if self._second is None else self._second.hexdigest()
            if real != wanted.lower():
                raise DiskFailure("ChecksumMismatch", f"{name} has {kind} {real}, the source announced {wanted}")
        return found


def _second_hash(announced: str | None, size: int) -> _Hash | None:
    kind = (announced or "sha256:").partition(":")[0]
    match kind:
        case "sha256":
            return None
        case "git-sha1":
            blob = hashlib.sha1(usedforsecurity=False)
            blob.update(f"blob {size}\0".encode())  # git's object header
            return blob
        case "md5":
            return hashlib.md5(usedforsecurity=False)
        case "crc32":
            return _Crc32()
    raise DiskFailure("SourceResponseInvalid", f"the source announces an unknown checksum {kind!r}")
