"""Files under a served root: safe look-up, walking, and digests that are computed once per content."""

from __future__ import annotations

import base64
import hashlib
import itertools
import os
import stat
import threading
import zlib
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

CHUNK_BYTES: Final = 1 << 20
MAX_DEPTH: Final = 64  # folders below a bucket or repository; deeper ones are not served


@dataclass(frozen=True, slots=True)
class Located:
    """One regular file as it was when it was looked up. `path` has no symlink left in it."""

    path: str
    size: int  # bytes
    mtime_ns: int
    inode: int

    @property
    def identity(self) -> tuple[str, int, int, int]:
        """What a digest is cached by: a rewritten or replaced file has another identity."""
        return (self.path, self.size, self.mtime_ns, self.inode)


def is_utf8(name: str) -> bool:
    """Whether a name read from the disk was UTF-8 (others cannot be put into a URL or an answer)."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def plain_names(names: Iterable[str]) -> bool:
    """Whether each path component names something below its folder, and nothing else."""
    return all(n not in ("", ".", "..") and "/" not in n and "\0" not in n and is_utf8(n) for n in names)


class Root:
    """A served folder. Nothing outside of it is ever opened, for any name or symlink."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.path.realpath(path)

    def _inside(self, real: str) -> bool:
        return real == self.path or real.startswith(self.path.rstrip("/") + "/")

    def folder(self, names: Sequence[str]) -> str | None:
        """Return the real path of a folder below the root; None if it does not exist or leads outside."""
        if not plain_names(names):
            return None
        real = os.path.realpath(os.path.join(self.path, *names))
        return real if self._inside(real) and os.path.isdir(real) else None

    def file(self, names: Sequence[str]) -> Located | None:
        """Return a regular file below the root; None if it does not exist, is not regular or is outside."""
        if not names or not plain_names(names):
            return None
        return self._located(os.path.join(self.path, *names))

    def _located(self, path: str) -> Located | None:
        try:
            real = os.path.realpath(path)
            found = os.stat(real)
        except OSError:  # vanished, a loop of links, a name too long
            return None
        if not self._inside(real) or not stat.S_ISREG(found.st_mode):
            return None
        return Located(real, found.st_size, found.st_mtime_ns, found.st_ino)

    def folders(self, names: Sequence[str] = ()) -> list[str]:
        """Return the names of the folders in a folder, sorted, without hidden ones."""
        base = self.folder(names)
        if base is None:
            return []
        with os.scandir(base) as entries:
            found = [e.name for e in entries if not e.name.startswith(".") and is_utf8(e.name) and e.is_dir()]
        return sorted(n for n in found if self.folder([*names, n]) is not None)

    def walk(self, names: Sequence[str]) -> Iterator[tuple[str, Located]]:
        """Yield (path relative to the folder, file) for each file in and below it, in no order.

        Symlinks are followed while they stay inside the root; a link to a folder above itself is not.
        """
        base = self.folder(names)
        if base is not None:
            yield from self._walk(base, "", (base,))

    def _walk(self, folder: str, prefix: str, above: tuple[str, ...]) -> Iterator[tuple[str, Located]]:
        try:
            with os.scandir(folder) as found:
                entries = [e for e in found if is_utf8(e.name)]
        except OSError:  # removed while we walk: people move folders under a running server
            return
        for entry in entries:
            if entry.is_dir():
                real = os.path.realpath(entry.path)
                if self._inside(real) and real not in above and len(above) < MAX_DEPTH:
                    yield from self._walk(real, f"{prefix}{entry.name}/", (*above, real))
            elif (file := self._located(entry.path)) is not None:
                yield prefix + entry.name, file


def open_file(file: Located) -> int:
    """Open for reading and return the descriptor.

    Raises: FileNotFoundError when it is not the file that was looked up any more; OSError otherwise.
    """
    fd = os.open(file.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    found = os.fstat(fd)
    same = (found.st_size, found.st_mtime_ns, found.st_ino) == (file.size, file.mtime_ns, file.inode)
    if not same or not stat.S_ISREG(found.st_mode):
        os.close(fd)
        raise FileNotFoundError(f"{file.path} has changed")
    return fd


class _Crc:
    """A cyclic checksum with the shape of a hashlib object."""

    def __init__(self, function: Callable[[bytes | memoryview, int], int], size: int) -> None:
        self.function, self.size, self.value = function, size, 0

    def update(self, data: bytes | memoryview) -> None:
        self.value = self.function(data, self.value)

    def digest(self) -> bytes:
        return self.value.to_bytes(self.size, "big")


def _crc(name: str) -> _Crc:
    if name == "crc32":
        return _Crc(zlib.crc32, 4)
    # lazy: a hub needs none of it; it ships no types
    from awscrt import checksums  # noqa: PLC0415

    return _Crc(checksums.crc32c, 4) if name == "crc32c" else _Crc(checksums.crc64nvme, 8)


class _OfParts:
    """The checksum over the checksums of parts, as S3 makes ETags and composite checksums of multipart uploads."""

    def __init__(self, name: str, sizes: Sequence[int]) -> None:
        self.name, self.sizes = name, itertools.chain(sizes, itertools.repeat(sizes[-1]))  # the last one repeats
        self.left, self.parts = next(self.sizes), 0
        self.part, self.all = new_hasher(name), new_hasher(name)

    def _close_part(self) -> None:
        self.all.update(self.part.digest())
        self.parts += 1
        self.part, self.left = new_hasher(self.name), next(self.sizes)

    def update(self, data: bytes | memoryview) -> None:
        view = memoryview(data)
        while view:
            if self.left == 0:
                self._close_part()
            taken = view[: self.left]
            self.part.update(taken)
            self.left -= len(taken)
            view = view[len(taken) :]

    def digest(self) -> bytes:
        self._close_part()
        return self.all.digest()


class Hasher(Protocol):
    """What hashlib's objects and those of this module have in common."""

    def update(self, data: bytes | memoryview, /) -> None:
        """Take the next bytes in."""

    def digest(self) -> bytes:
        """Return the digest of all bytes so far."""


def new_hasher(name: str, size: int = 0) -> Hasher:
    """Return a fresh hasher: a hashlib name, `crc32`, `crc32c`, `crc64nvme`, `gitblob` or `parts:NAME:BYTES[,BYTES…]`.

    Args: size in bytes; git puts it before the content. Of the sizes of parts the last one repeats.
    """
    if name.startswith("crc"):
        return _crc(name)
    if name == "gitblob":
        return hashlib.sha1(b"blob %d\0" % size, usedforsecurity=False)
    if name.startswith("parts:"):
        _, inner, sizes = name.split(":")
        return _OfParts(inner, [int(one) for one in sizes.split(",")])
    return hashlib.new(name, usedforsecurity=False)


class Digests:
    """Digests of files, each computed once per identity and shared by all requests; safe for threads."""

    def __init__(self, max_entries: int = 200_000) -> None:
        self._max = max_entries
        self._known: OrderedDict[tuple[object, ...], bytes] = OrderedDict()
        self._lock = threading.Lock()
        self._busy: dict[tuple[object, ...], threading.Lock] = {}

    def of(self, file: Located, *names: str) -> list[bytes]:
        """Return the digests in the requested order. Reads the file at most once, in 1 MiB steps.

        Raises: FileNotFoundError when it changes meanwhile; OSError when it cannot be read.
        """
        found = self._look_up(file, names)
        if found is not None:
            return found
        with self._lock:
            busy = self._busy.setdefault(file.identity, threading.Lock())
        try:
            with busy:  # two requests for one new file: the second one waits and finds it
                return self._look_up(file, names) or self._compute(file, names)
        finally:
            with self._lock:
                self._busy.pop(file.identity, None)

    def _look_up(self, file: Located, names: Sequence[str]) -> list[bytes] | None:
        with self._lock:
            found = [self._known.get((*file.identity, name)) for name in names]
        values = [f for f in found if f is not None]
        return values if len(values) == len(names) else None

    def _compute(self, file: Located, names: Sequence[str]) -> list[bytes]:
        hashers = [new_hasher(name, file.size) for name in names]
        fd = open_file(file)
        with os.fdopen(fd, "rb", buffering=0) as stream:
            buffer = memoryview(bytearray(min(CHUNK_BYTES, max(file.size, 1))))
            while (count := stream.readinto(buffer)) > 0:
                for hasher in hashers:
                    hasher.update(buffer[:count])
            after = os.fstat(stream.fileno())
        if (after.st_size, after.st_mtime_ns) != (file.size, file.mtime_ns):
            raise FileNotFoundError(f"{file.path} has changed")
        values = [hasher.digest() for hasher in hashers]
        self._keep(file, names, values)
        return values

    def _keep(self, file: Located, names: Sequence[str], values: Sequence[bytes]) -> None:
        with self._lock:
            for name, value in zip(names, values, strict=True):
                self._known[(*file.identity, name)] = value
            while len(self._known) > self._max:
                self._known.popitem(last=False)


def b64(value: bytes) -> str:
    """Return base64 text, as S3 writes checksums."""
    return base64.b64encode(value).decode()
