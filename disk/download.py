"""Downloads the files of a listing into a folder: resumable, verified, bounded.

A file arrives as `part/<n>` at explicit offsets, and becomes `files/<name>` when it is complete. After a kill, the next
Job resumes there: the name of the folder identifies the pinned bytes, so existing bytes are the right ones.
"""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from api.names import short_hash
from api.reasons import Reason
from disk.checksums import BY_SIZE_ONLY, Checker, Mismatch, StoredFile
from disk.failures import DiskFailure
from disk.fs import Fs, file_size
from disk.layout import FILE_MODE, UnsafeNameError, check_remote_name, find_collision
from disk.progress import Meter
from disk.readahead import read_ahead
from disk.sources.base import CHUNK_BYTES, Listing, RemoteFile, Source

MOST_TRANSFERS = 4
_MOST_ATTEMPTS = 6  # in a row without a new byte
_FIRST_PAUSE_SECONDS = 0.5
_LONGEST_PAUSE_SECONDS = 20.0  # for longer waits the Job fails, and the backoff of the controller applies
_RESERVE_BYTES = 16 * 1024 * 1024  # keep this much of the disk free
_LARGE_BYTES = 8 * 1024 * 1024  # reading ahead in a thread pays from this size on
_WATCH_BYTES = 64 * 1024 * 1024  # check the free space after this many bytes


@dataclass(slots=True)
class Pacing:
    """How long retries wait; tests use short times. `sleep` in seconds."""

    sleep: Callable[[float], None] = time.sleep
    attempts: int = _MOST_ATTEMPTS
    transfers: int = MOST_TRANSFERS
    random: random.Random = field(default_factory=random.Random)

    def pause(self, attempt: int, failure: DiskFailure) -> None:
        """Wait before another attempt, or raise the failure when the wait is too long for a Job."""
        seconds = min(_LONGEST_PAUSE_SECONDS, _FIRST_PAUSE_SECONDS * 2**attempt) * self.random.uniform(0.5, 1.0)
        if failure.retry_after is not None:
            if failure.retry_after > _LONGEST_PAUSE_SECONDS:
                raise failure
            seconds = max(seconds, float(failure.retry_after))
        self.sleep(seconds)


class Downloader:
    """Downloads files of one listing into one folder. `fetch` can be called several times, for some files each."""

    def __init__(self, fs: Fs, source: Source, folder: Path, meter: Meter, pacing: Pacing) -> None:
        self._fs = fs
        self._source = source
        self._folder = folder
        self._meter = meter
        self._pacing = pacing
        self._stop = threading.Event()
        self._disproved = False  # a checksum without proof differs from bytes that arrived twice
        self._watched = 0  # bytes since the last check of the free space

    @property
    def files(self) -> Path:
        """The folder of complete files."""
        return self._folder / "files"

    def prepare(self, listing: Listing) -> None:
        """Create the folder, count the bytes that exist already, and check that the rest fits on the disk.

        Raises: DiskFailure (DiskFull), OSError.
        """
        self._fs.ensure_directory(self._folder)
        self._fs.ensure_directory(self.files)
        self._fs.ensure_directory(self._folder / "part")
        already = sum(self._bytes_here(file) for file in listing.files)
        self._meter.start(listing.total_bytes, already)
        check_space(self._folder, listing.total_bytes - already)

    def fetch(self, files: tuple[RemoteFile, ...]) -> list[StoredFile]:
        """Download these files and return them, in the same order. Raises: DiskFailure, OSError."""
        if self._pacing.transfers <= 1 or len(files) <= 1:
            return [self._fetch_file(file) for file in files]
        with ThreadPoolExecutor(self._pacing.transfers, thread_name_prefix="transfer") as pool:
            waiting = [pool.submit(self._fetch_file, file) for file in files]
            wait(waiting, return_when=FIRST_EXCEPTION)
            if any(future.done() and future.exception() for future in waiting):
                self._stop.set()
                for future in waiting:
                    future.cancel()
        return _results(waiting)

    def finish(self) -> None:
        """Make the names of all files durable. Raises: OSError."""
        folders = {self.files} | {path for path in self.files.rglob("*") if path.is_dir()}
        for folder in sorted(folders, reverse=True):
            self._fs.sync_directory(folder)

    def _part(self, file: RemoteFile) -> Path:
        return self._folder / "part" / short_hash(file.name, file.pin, str(file.size), length=24)

    def _bytes_here(self, file: RemoteFile) -> int:
        if file_size(self.files / file.name) == file.size:
            return file.size
        return min(file.size, file_size(self._part(file)) or 0)

    def _fetch_file(self, file: RemoteFile) -> StoredFile:
        whole = self.files / file.name
        if file_size(whole) == file.size:
            if (stored := self._verify(file, whole)) is not None:
                return stored
            self._meter.add(-file.size)
            self._fs.unlink(whole)
        self._make_parents(file)
        try:
            return self._fetch_part(file, whole)
        except Mismatch as first:
            self._start_over(file)
            try:
                return self._fetch_part(file, whole, seen=first.sha256)
            except Mismatch:
                self._start_over(file)
                raise

    def _verify(self, file: RemoteFile, whole: Path) -> StoredFile | None:
        """Verify a file of an earlier Job against the source; None: it is not the announced file."""
        checker = Checker(with_retries(lambda: self._source.checksum_of(file), self._pacing), file.size)
        _feed(whole, checker)
        try:
            # it was verified when it arrived; a checksum without proof does not change that
            sha256 = checker.finish(file.name, excused=lambda _: True)
        except Mismatch:
            return None
        return StoredFile(file.name, file.size, sha256, checker.verified)

    def _start_over(self, file: RemoteFile) -> None:
        self._meter.add(-file.size)
        self._fs.unlink(self._part(file))

    def excuses(self, seen: str | None, found: str) -> bool:
        """Return whether to accept a different checksum without proof: the same bytes arrived twice."""
        if seen == found:
            self._disproved = True  # the source computes its checksums in another way: do not download all files twice
        return self._disproved

    def _make_parents(self, file: RemoteFile) -> None:
        folder = self.files
        for part in file.name.split("/")[:-1]:
            folder /= part
            self._fs.ensure_directory(folder)

    def _fetch_part(self, file: RemoteFile, whole: Path, *, seen: str | None = None) -> StoredFile:
        """Download one file completely, over as many connections as needed.

        Args: `seen` is the sha256 of the bytes of an earlier attempt. Raises: DiskFailure, OSError.
        """
        part = self._part(file)
        fd = self._fs.open_for_writing(part)
        try:
            transfer = _Transfer(self, file, part, fd, seen)
            transfer.run()
            os.fchmod(fd, FILE_MODE)
            self._fs.sync_file(fd, part)
        finally:
            os.close(fd)
        self._fs.rename(part, whole)
        return StoredFile(file.name, file.size, transfer.sha256, transfer.verified)

    def check_stop(self) -> None:
        """Raise _Stopped when another file failed finally."""
        if self._stop.is_set():
            raise _Stopped

    def write(self, fd: int, piece: bytes, offset: int, part: Path) -> None:
        """Write one piece, count it, and check the free space from time to time. Raises: DiskFailure, OSError."""
        self._fs.write_at(fd, piece, offset, part)
        self._meter.add(len(piece))
        self._watched += len(piece)  # several threads: a lost update only delays the next check
        if self._watched >= _WATCH_BYTES:
            self._watched = 0
            check_space(self._folder, 0)

    @property
    def source(self) -> Source:
        """The source of the files."""
        return self._source

    @property
    def pacing(self) -> Pacing:
        """How long retries wait."""
        return self._pacing


class _Transfer:
    """The download of one file: survives lost connections, and keeps the running checksums."""

    def __init__(self, owner: Downloader, file: RemoteFile, part: Path, fd: int, seen: str | None) -> None:
        self._owner = owner
        self._file = file
        self._part = part
        self._fd = fd
        self._seen = seen
        self._offset = 0
        self._checker: Checker | None = None
        self.sha256 = ""
        self.verified = BY_SIZE_ONLY

    def run(self) -> None:
        """Fetch all bytes, then verify them. Raises: DiskFailure, OSError."""
        attempt = 0
        self._take_up()
        while self._checker is None or self._offset < self._file.size:
            before = self._offset
            try:
                self._stream()
            except DiskFailure as failure:
                attempt = attempt + 1 if self._offset == before else 1
                if failure.reason not in PASSES_SOON or attempt >= self._owner.pacing.attempts:
                    raise
                self._owner.pacing.pause(attempt - 1, failure)
        self.sha256 = self._checker.finish(
            self._file.name, excused=lambda found: self._owner.excuses(self._seen, found)
        )
        self.verified = self._checker.verified

    def _take_up(self) -> None:
        """Resume after an earlier Job: add the existing bytes to the checksums. Raises: DiskFailure, OSError."""
        here = os.fstat(self._fd).st_size
        if here > self._file.size:
            os.ftruncate(self._fd, 0)
            return
        if here == 0 and self._file.size > 0:
            return
        announced = with_retries(lambda: self._owner.source.checksum_of(self._file), self._owner.pacing)
        self._checker = Checker(announced, self._file.size)
        self._offset = _feed(self._part, self._checker)

    def _stream(self) -> None:
        """Read one connection to the end. Raises: DiskFailure, OSError."""
        file = self._file
        with self._owner.source.open_file(file, self._offset) as opened:
            if self._checker is None:
                self._checker = Checker(opened.checksum, file.size)
            if file.size - self._offset < _LARGE_BYTES:
                self._take(opened.pieces, self._checker)
            else:
                with read_ahead(opened.pieces) as pieces:
                    self._take(pieces, self._checker)
        if self._offset < file.size:
            raise DiskFailure(
                Reason.SOURCE_CONNECTION_LOST, f"{file.name} ended after {self._offset} of {file.size} bytes"
            )

    def _take(self, pieces: Iterator[bytes], checker: Checker) -> None:
        """Hash and write the arriving bytes. Raises: DiskFailure, OSError."""
        file = self._file
        for piece in pieces:
            self._owner.check_stop()
            if self._offset + len(piece) > file.size:
                raise DiskFailure(Reason.SOURCE_CHANGED, f"{file.name} is longer than the {file.size} bytes announced")
            checker.update(piece)
            self._owner.write(self._fd, piece, self._offset, self._part)
            self._offset += len(piece)


class _Stopped(Exception):  # noqa: N818 - a signal between threads
    """Another file failed, and its failure is reported."""


PASSES_SOON = frozenset(
    (
        Reason.SOURCE_SERVER_ERROR,
        Reason.SOURCE_RATE_LIMITED,
        Reason.SOURCE_TIMEOUT,
        Reason.SOURCE_CONNECTION_LOST,
        Reason.SOURCE_DNS_FAILED,
    )
)
_T = TypeVar("_T")


def with_retries(action: Callable[[], _T], pacing: Pacing) -> _T:
    """Repeat an action while its failure can pass within a Job. Raises: DiskFailure, the last one."""
    for attempt in range(pacing.attempts):
        try:
            return action()
        except DiskFailure as failure:
            if failure.reason not in PASSES_SOON or attempt + 1 >= pacing.attempts:
                raise
            pacing.pause(attempt, failure)
    raise AssertionError("a Pacing has at least one attempt")


def check_names(listing: Listing) -> None:
    """Refuse names that must not become paths. Raises: DiskFailure SourceNameRefused, SourceTooManyFiles."""
    for file in listing.files:
        try:
            check_remote_name(file.name)
        except UnsafeNameError as error:
            raise DiskFailure(Reason.SOURCE_NAME_REFUSED, f"{file.name[:200]!r}: {error}") from error
    if (pair := find_collision(file.name for file in listing.files)) is not None:
        raise DiskFailure(Reason.SOURCE_NAME_REFUSED, f"{pair[0]!r} and {pair[1]!r} collide on some file systems")


def check_space(folder: Path, wanted: int) -> None:
    """Check that there is enough free space to start or to continue. Raises: DiskFailure DiskFull, OSError."""
    info = os.statvfs(folder)
    free = info.f_bavail * info.f_frsize
    if info.f_blocks > 0 and free < wanted + _RESERVE_BYTES:
        raise DiskFailure(Reason.DISK_FULL, f"{wanted + _RESERVE_BYTES} bytes are needed and {free} are free")


def _feed(path: Path, checker: Checker) -> int:
    """Add a file to the checksums and return its length. Raises: OSError."""
    length = 0
    with path.open("rb", buffering=0) as stream:
        while piece := stream.read(CHUNK_BYTES):
            checker.update(piece)
            length += len(piece)
    return length


def _results(futures: list[Future[StoredFile]]) -> list[StoredFile]:
    """Return all results, or raise the failure that stopped the others."""
    errors = [error for future in futures if not future.cancelled() and (error := future.exception()) is not None]
    real = [error for error in errors if not isinstance(error, _Stopped)]
    if real:
        raise real[0]
    return [future.result() for future in futures]
