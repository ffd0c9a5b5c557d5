"""Computes checksums: of one file while it arrives, and of a whole adapter.

A source announces a checksum of the whole file, or one over the checksums of the parts of its upload. Both are computed
while the bytes arrive, so no file is read twice.
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

from api.reasons import Reason
from disk.failures import DiskFailure

BY_SIZE_ONLY = "size"  # of StoredFile.verified: the source has nothing else to verify the bytes with
DIGEST_BYTES = {"sha256": 32, "sha1": 20, "git-sha1": 20, "md5": 16, "crc64nvme": 8, "crc32c": 4, "crc32": 4}


@dataclass(frozen=True, slots=True)
class Announced:
    """The checksum of a whole file that a source announces. `kind`: a key of DIGEST_BYTES. `value`: hexadecimal.

    `part_sizes`, in bytes: the value is the checksum of the concatenated binary checksums of these parts.
    `is_proof`: False when a difference can have another cause than wrong bytes (the sizes of the parts are only likely,
    or the store can compute its ETags in another way).
    """

    kind: str
    value: str
    part_sizes: tuple[int, ...] = ()
    is_proof: bool = True

    @property
    def name(self) -> str:
        """Return the kind for people and records: `sha256`, `crc32c of 3 parts`."""
        return f"{self.kind} of {len(self.part_sizes)} parts" if self.part_sizes else self.kind

    @classmethod
    def parse(cls, text: str | None) -> Announced | None:
        """Parse `kind:hexadecimal`, the form of listings."""
        if text is None:
            return None
        kind, _, value = text.partition(":")
        return cls(kind, value.lower())


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A complete file: name in the adapter, size in bytes, sha256 in hexadecimal, and what checksum proved it."""

    name: str
    size: int
    sha256: str
    verified: str = BY_SIZE_ONLY


class Mismatch(DiskFailure):
    """The bytes are not the announced ones; `sha256` is that of the received bytes."""

    def __init__(self, detail: str, *, sha256: str, is_proof: bool) -> None:
        super().__init__(Reason.CHECKSUM_MISMATCH, detail)
        self.sha256 = sha256
        self.is_proof = is_proof


def content_digest(files: Iterable[StoredFile]) -> str:
    """Return `sha256:…` over names, sizes and contents of all files."""
    digest = hashlib.sha256()
    for file in sorted(files, key=lambda file: file.name):
        digest.update(f"{file.name}\0{file.size}\0{file.sha256}\n".encode())
    return f"sha256:{digest.hexdigest()}"


class _Hash(Protocol):
    def update(self, data: bytes | memoryview, /) -> None: ...
    def digest(self) -> bytes: ...


class _Crc:
    """A cyclic checksum with the interface of a hashlib object."""

    def __init__(self, function: Callable[[bytes | memoryview, int], int], size: int) -> None:
        self._function = function
        self._size = size
        self._value = 0

    def update(self, data: bytes | memoryview, /) -> None:
        self._value = self._function(data, self._value)

    def digest(self) -> bytes:
        return self._value.to_bytes(self._size, "big")


class _OfParts:
    """The checksum of the checksums of parts."""

    def __init__(self, kind: str, sizes: tuple[int, ...]) -> None:
        self._kind = kind
        self._sizes = iter(sizes)
        self._all = _new_hash(kind, 0)
        self._part = _new_hash(kind, 0)
        self._left = next(self._sizes, 0)

    def update(self, data: bytes | memoryview, /) -> None:
        view = memoryview(data)
        while len(view) > self._left:  # a full part ends when the next one begins, or at the end
            self._part.update(view[: self._left])
            view = view[self._left :]
            if not self._next_part():
                return  # more bytes than parts: the size check finds that too
        self._part.update(view)
        self._left -= len(view)

    def _next_part(self) -> bool:
        self._all.update(self._part.digest())
        self._part = _new_hash(self._kind, 0)
        self._left = next(self._sizes, 0)
        return self._left > 0

    def digest(self) -> bytes:
        self._all.update(self._part.digest())
        return self._all.digest()


class Checker:
    """Computes the sha256 of a file, and the checksum that the source announced."""

    def __init__(self, announced: Announced | None, size: int) -> None:
        self._announced = announced
        self._sha256 = hashlib.sha256()
        self._second: _Hash | None = None
        self.verified = BY_SIZE_ONLY
        if announced is None or (announced.kind == "sha256" and not announced.part_sizes):
            return
        if announced.kind not in DIGEST_BYTES:
            raise DiskFailure(
                Reason.SOURCE_RESPONSE_INVALID, f"the source announces an unknown checksum {announced.kind!r}"
            )
        sizes = announced.part_sizes
        self._second = _OfParts(announced.kind, sizes) if sizes else _new_hash(announced.kind, size)

    def update(self, data: bytes) -> None:
        """Add the next bytes."""
        self._sha256.update(data)
        if self._second is not None:
            self._second.update(data)

    def finish(self, name: str, *, excused: Callable[[str], bool] = lambda _: False) -> str:
        """Return the sha256, and set `verified`.

        Args: `excused` receives the sha256 and decides whether to accept a difference that proves nothing.
        Raises: Mismatch.
        """
        found = self._sha256.hexdigest()
        announced = self._announced
        if announced is None:
            return found
        real = found if self._second is None else self._second.digest().hex()
        if real == announced.value:
            self.verified = announced.name
        elif announced.is_proof or not excused(found):
            detail = f"{name} has {announced.name} {real}, the source announced {announced.value}"
            raise Mismatch(detail, sha256=found, is_proof=announced.is_proof)
        return found


def _new_hash(kind: str, size: int) -> _Hash:
    """Return an empty hash; the hash of git starts with the `size` in bytes."""
    match kind:
        case "git-sha1":
            blob = hashlib.sha1(usedforsecurity=False)
            blob.update(f"blob {size}\0".encode())  # the object header of git
            return blob
        case "crc32":
            return _Crc(zlib.crc32, DIGEST_BYTES[kind])
        case "crc32c" | "crc64nvme":
            # lazy: costs start time, and few files need it; it ships no types
            from awscrt import checksums  # noqa: PLC0415

            function = checksums.crc32c if kind == "crc32c" else checksums.crc64nvme
            return _Crc(function, DIGEST_BYTES[kind])
    return hashlib.new(kind, usedforsecurity=False)
