"""The records on a disk: done-markers, declared sets, store entries. Each is written as a whole.

A record that is missing or unreadable counts as absent: the work is then done again.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Collection
from pathlib import Path
from typing import Literal, TypeVar

import msgspec

from api.jobs import Note
from api.reasons import Reason
from disk.checksums import BY_SIZE_ONLY
from disk.failures import DiskFailure
from disk.fs import Fs, file_size, is_directory, list_names, read_record
from disk.layout import OUR_FOLDERS, Layout

_HARMLESS_NAMES = (
    "lost+found",
)  # what file systems create in an empty volume; names with a leading dot are harmless too
_LONGEST_SHOWN = 80  # characters of a name in a message


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """Base of all records."""

    version: Literal[1] = 1


class DiskMarker(Record, frozen=True, kw_only=True):
    """The marker of a disk that aim-adapters uses."""

    kind: Literal["aim-adapters-disk"] = "aim-adapters-disk"


class Declared(Record, frozen=True, kw_only=True):
    """The last declared set of a service."""

    service_uid: str
    generation: int
    sync_key: str
    declared: list[str]
    created_at: float  # seconds since the epoch: when the subtree was first synced


class Done(Record, frozen=True, kw_only=True):
    """What is, or will be, under one name of one service.

    `held`: the content waits in the store until servers unload the name; nothing is live.
    """

    state: Literal["done", "held"]
    path: str
    stage_key: str
    source_uri: str
    digest: str
    size_bytes: int
    files: dict[str, int]  # name → size in bytes
    rank: int | None = None
    base_name: str | None = None
    revision: str | None = None
    verified: dict[str, str] = {}  # name → the kind of checksum that the source provided, or "size"
    warnings: list[Note] = []
    staged_at: float = 0.0  # seconds since the epoch


class Entry(Record, frozen=True, kw_only=True):
    """A content in the store."""

    digest: str
    size_bytes: int
    files: dict[str, int]
    verified: dict[str, str] = {}
    revision: str | None = None


class SourceIndex(Record, frozen=True, kw_only=True):
    """The content that a listing led to."""

    digest: str


class Fetched(Record, frozen=True, kw_only=True):
    """A complete base model in its cache."""

    source_uri: str
    directory: str  # relative to the cache
    listing_key: str
    digest: str
    size_bytes: int
    files: dict[str, int]
    verified: dict[str, str] = {}
    revision: str | None = None
    fetched_at: float = 0.0


_R = TypeVar("_R", bound=Record)


def load(kind: type[_R], path: Path) -> _R | None:
    """Read a record; None when it is missing or not one of that kind. Raises: OSError."""
    raw = read_record(path)
    if raw is None:
        return None
    try:
        return msgspec.convert(raw, kind, strict=False)
    except msgspec.ValidationError:
        return None


def save(fs: Fs, path: Path, record: Record, scratch: Path) -> None:
    """Write a record durably, by way of a scratch folder. Raises: OSError."""
    fs.write_record(path, msgspec.to_builtins(record), scratch)


def claim_disk(fs: Fs, layout: Layout) -> None:
    """Mark an empty disk, and refuse one with other data. Raises: DiskFailure DiskNotOurs, OSError."""
    if load(DiskMarker, layout.marker) is None:
        refuse_foreign(layout)
        fs.ensure_directory(layout.staging)
        save(fs, layout.marker, DiskMarker(), layout.staging)
    for name in OUR_FOLDERS:
        fs.ensure_directory(layout.root / name)


def refuse_foreign(layout: Layout) -> None:
    """Raise DiskNotOurs when a disk without a marker contains anything."""
    found = [name for name in list_names(layout.root) if not name.startswith(".") and name not in _HARMLESS_NAMES]
    if found:
        raise DiskFailure(
            Reason.DISK_NOT_OURS, f"the disk has no marker {layout.marker.name} but contains {found[0]!r}"
        )


def unverified(verified: dict[str, str]) -> list[Note]:
    """Return a warning when only the size of some files was verified."""
    names = sorted(name for name, how in verified.items() if how == BY_SIZE_ONLY)
    if not names:
        return []
    shown = names[0] if len(names[0]) <= _LONGEST_SHOWN else f"{names[0][:_LONGEST_SHOWN]}…"
    text = f"the source has no checksum that matches {len(names)} of {len(verified)} files, such as {shown!r}: "
    return [Note(reason=Reason.SOURCE_NOT_VERIFIED, message=f"{text}only their sizes were verified")]


def is_complete(folder: Path, files: dict[str, int]) -> bool:
    """Return whether a directory contains all these files with these sizes. Raises: OSError."""
    return is_directory(folder) and all(file_size(folder / name) == size for name, size in files.items())


def now() -> float:
    """Return seconds since the epoch. Decisions compare it with other machines only with minutes of tolerance."""
    return time.time()


def server_now(fs: Fs, layout: Layout) -> float:
    """Return the time of the file server: ages are differences of its own time stamps. Raises: OSError."""
    fs.touch(layout.marker)
    return layout.marker.stat().st_mtime


def used_digests(layout: Layout, *, without: Collection[str] = ()) -> set[str]:
    """Return the digests in done-markers, except those of the services in `without`. Raises: OSError."""
    folders = [folder for folder in _folders(layout.done_root) if folder.name not in without]
    markers = (folder / name for folder in folders for name in list_names(folder))
    return {done.digest for path in markers if (done := load(Done, path)) is not None}


def _folders(path: Path) -> list[Path]:
    return [path / name for name in list_names(path) if is_directory(path / name)]


def newest_change(path: Path) -> float:
    """Return the latest change below a path, by the clock of the file server (0.0: no such path). Raises: OSError."""
    newest = 0.0
    with contextlib.suppress(FileNotFoundError):
        info = path.lstat()
        newest = max(info.st_mtime, info.st_ctime)
        if is_directory(path):
            for name in list_names(path):
                newest = max(newest, newest_change(path / name))
    return newest
