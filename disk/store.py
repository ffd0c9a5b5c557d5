"""One copy per content in `.store/<digest>/`; live trees are hard links into it (or copies)."""

from __future__ import annotations

import errno
from pathlib import Path

from disk.checksums import StoredFile, content_digest
from disk.fs import Fs, unique
from disk.layout import Layout, scratch_name
from disk.records import Entry, SourceIndex, is_complete, load, newest_change, save


def find_stored(layout: Layout, listing_key: str) -> Entry | None:
    """Return the stored content of a listing, if it is complete. Raises: OSError."""
    index = load(SourceIndex, layout.source_index(listing_key))
    return find_content(layout, index.digest) if index is not None else None


def find_content(layout: Layout, digest: str) -> Entry | None:
    """Return a stored content, if it is complete. Raises: OSError."""
    folder = layout.stored(digest)
    entry = load(Entry, folder / "entry.json")
    return entry if entry is not None and is_complete(folder / "files", entry.files) else None


def keep_young(fs: Fs, layout: Layout, digest: str) -> None:
    """Mark a content as recently used, for the reaper. Raises: OSError."""
    fs.touch(layout.stored(digest) / "entry.json")


def put(fs: Fs, layout: Layout, *, listing_key: str, files: list[StoredFile], revision: str | None) -> Entry:
    """Move a complete, synced download into the store, and record its listing. Raises: OSError."""
    download = layout.download(listing_key)
    digest = content_digest(files)
    entry = find_content(layout, digest)
    if entry is None:
        entry = Entry(
            digest=digest,
            size_bytes=sum(file.size for file in files),
            files={file.name: file.size for file in files},
            verified={file.name: file.verified for file in files},
            revision=revision,
        )
        _move_in(fs, layout, download, entry)
    else:
        keep_young(fs, layout, digest)
    save(fs, layout.source_index(listing_key), SourceIndex(digest=digest), layout.staging)
    fs.remove_tree(download)  # it exists only if the content was stored before
    return entry


def _move_in(fs: Fs, layout: Layout, download: Path, entry: Entry) -> None:
    """Rename the folder of the download into the store. Before that, a kill leaves a download to resume."""
    target = layout.stored(entry.digest)
    fs.remove_tree(download / "part")
    save(fs, download / "entry.json", entry, layout.staging)
    try:
        fs.rename(download, target)
    except OSError as error:
        if error.errno not in (errno.EEXIST, errno.ENOTEMPTY):
            raise
        if find_content(layout, entry.digest) is None:  # incomplete: move it out of the way
            fs.rename(target, layout.aside / scratch_name("store", unique=unique()))
            fs.rename(download, target)
    fs.sync_directory(layout.store)
    fs.sync_directory(layout.staging)


def is_idle(layout: Layout, digest: str, now: float, guard_seconds: float) -> bool:
    """Return whether no stager used a content recently, by the time stamp of its entry. Raises: OSError."""
    try:
        touched = (layout.stored(digest) / "entry.json").lstat().st_mtime
    except FileNotFoundError:
        touched = newest_change(layout.stored(digest))
    return touched < now - guard_seconds


def take_out(fs: Fs, layout: Layout, digest: str) -> int:
    """Remove a content from the store and return the freed bytes. A stager that links it meanwhile starts over.

    Raises: OSError.
    """
    target = layout.unload / scratch_name("store", unique=unique())
    try:
        fs.rename(layout.stored(digest), target)
    except FileNotFoundError:
        return 0
    fs.sync_directory(layout.store)
    return fs.remove_tree(target)


def link_out(fs: Fs, layout: Layout, entry: Entry, target: Path) -> None:
    """Build a directory with the stored content, durably. Raises: OSError (FileNotFoundError: reaped)."""
    source = layout.stored(entry.digest) / "files"
    fs.make_directory(target)
    folders = {target}
    for name in sorted(entry.files):
        folder = target
        for part in name.split("/")[:-1]:
            folder /= part
            fs.ensure_directory(folder)
            folders.add(folder)
        fs.link_or_copy(source / name, target / name)
    for folder in sorted(folders, reverse=True):
        fs.sync_directory(folder)
