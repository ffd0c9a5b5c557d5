"""The paths on an adapter disk: only names, no file access. Source: docs/contract.md, Disk layout.

All scratch is on the disk itself, so every promotion is a rename within one file system. It is outside of
`<service-uid>/`, the only directory that a model server mounts.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from api.names import ADAPTER_DIRECTORY_PATTERN, short_hash

MARKER = ".aim-adapters-disk.json"  # marks a disk that aim-adapters uses; written at first use
STAGING = ".staging"
ASIDE = ".aside"
UNLOAD = ".unload-tmp"
DONE = ".done"
STORE = ".store"
SOURCES = ".sources"
DECLARED = ".declared"
LOCKS = ".locks"
OUR_FOLDERS = (STAGING, ASIDE, UNLOAD, DONE, STORE, SOURCES, DECLARED, LOCKS)

FILE_MODE = 0o644
DIRECTORY_MODE = 0o755

_COMPONENT = re.compile(ADAPTER_DIRECTORY_PATTERN)
_LONGEST_NAME = 255  # bytes; NAME_MAX of common file systems
_LONGEST_MARKER_STEM = 200  # leaves room for ".json" and the suffix of a temporary file
_LONGEST_REMOTE_PATH = 1024  # bytes
_LONGEST_REMOTE_COMPONENT = 200  # bytes
_DEEPEST_REMOTE_PATH = 8


class UnsafeNameError(ValueError):
    """A name that must not become a path on the disk; the message has the reason."""


def check_component(name: str) -> str:
    """Return a service UID or an adapter path unchanged, if it is a valid name of a directory.

    Raises: UnsafeNameError. Source: docs/contract.md, Staging.
    """
    if not _COMPONENT.fullmatch(name) or len(name.encode()) > _LONGEST_NAME:
        raise UnsafeNameError(f"{name!r} does not match {ADAPTER_DIRECTORY_PATTERN} or is longer than {_LONGEST_NAME}")
    return name


def check_remote_name(name: str) -> str:
    """Return the name of a file of a source unchanged, if it is a safe path in the directory of an adapter.

    Raises: UnsafeNameError for absolute names, `..`, empty parts, backslashes, control characters, and names that
    are too long or too deep.
    """
    if not name or len(name.encode(errors="surrogatepass")) > _LONGEST_REMOTE_PATH:
        raise UnsafeNameError("it is empty or too long")
    parts = name.split("/")
    if len(parts) > _DEEPEST_REMOTE_PATH:
        raise UnsafeNameError(f"it is deeper than {_DEEPEST_REMOTE_PATH} folders")
    for part in parts:
        if part in ("", ".", ".."):
            raise UnsafeNameError("it is absolute, or has an empty, '.' or '..' part")
        if "\\" in part or any(unicodedata.category(char) in ("Cc", "Cs") for char in part):
            raise UnsafeNameError("it contains a backslash or a control character")
        if len(part.encode()) > _LONGEST_REMOTE_COMPONENT:
            raise UnsafeNameError(f"a part is longer than {_LONGEST_REMOTE_COMPONENT} bytes")
    return name


def find_collision(names: Iterable[str]) -> tuple[str, str] | None:
    """Return two names that collide on some file systems (case, Unicode form, file and folder), or None."""
    seen: dict[str, str] = {}
    folders: dict[str, str] = {}
    for name in sorted(names):
        key = unicodedata.normalize("NFC", name).casefold()
        if key in seen:
            return seen[key], name
        seen[key] = name
        parts = key.split("/")
        for depth in range(1, len(parts)):
            folders.setdefault("/".join(parts[:depth]), name)
    for folder, name in folders.items():
        if folder in seen:
            return seen[folder], name
    return None


@dataclass(frozen=True, slots=True)
class Layout:
    """The paths of one adapter disk, mounted at `root`."""

    root: Path

    @property
    def marker(self) -> Path:
        """The file that marks a disk of aim-adapters."""
        return self.root / MARKER

    @property
    def staging(self) -> Path:
        """Downloads, and directories in preparation."""
        return self.root / STAGING

    @property
    def aside(self) -> Path:
        """Live directories that were replaced and will be deleted."""
        return self.root / ASIDE

    @property
    def unload(self) -> Path:
        """Directories that were removed and will be deleted."""
        return self.root / UNLOAD

    @property
    def store(self) -> Path:
        """One copy per content: `<digest>/entry.json` and `<digest>/files/`."""
        return self.root / STORE

    @property
    def sources(self) -> Path:
        """The content of each listing of a source: `<listing key>.json`."""
        return self.root / SOURCES

    @property
    def done_root(self) -> Path:
        """Done-markers, one folder for each service."""
        return self.root / DONE

    @property
    def declared_root(self) -> Path:
        """The last declared set of each service."""
        return self.root / DECLARED

    @property
    def locks(self) -> Path:
        """Lock files."""
        return self.root / LOCKS

    def subtree(self, service_uid: str) -> Path:
        """The directory that the pods of a service mount. Raises: UnsafeNameError."""
        return self.root / check_component(service_uid)

    def live(self, service_uid: str, path: str) -> Path:
        """The directory of an adapter that the server reads. Raises: UnsafeNameError."""
        return self.subtree(service_uid) / check_component(path)

    def done_folder(self, service_uid: str) -> Path:
        """The folder of the done-markers of a service. Raises: UnsafeNameError."""
        return self.done_root / check_component(service_uid)

    def done(self, service_uid: str, path: str) -> Path:
        """The done-marker of one adapter of one service. Raises: UnsafeNameError."""
        return self.done_folder(service_uid) / marker_name(path)

    def declared(self, service_uid: str) -> Path:
        """The last declared set of a service. Raises: UnsafeNameError."""
        return self.declared_root / f"{check_component(service_uid)}.json"

    def service_lock(self, service_uid: str) -> Path:
        """The lock for changes to the subtree of a service. Raises: UnsafeNameError."""
        return self.locks / f"{check_component(service_uid)}.lock"

    def download(self, listing_key: str) -> Path:
        """The folder for the files of one listing; the next Job finds it after a kill."""
        return self.staging / f"get-{listing_key}"

    def download_lock(self, listing_key: str) -> Path:
        """The lock for the download of that listing."""
        return self.locks / f"get-{listing_key}.lock"

    def source_index(self, listing_key: str) -> Path:
        """The record of the content of that listing."""
        return self.sources / f"{listing_key}.json"

    def stored(self, digest: str) -> Path:
        """The entry of a content; `digest` is `sha256:…`."""
        return self.store / check_component(digest.removeprefix("sha256:"))


def marker_name(path: str) -> str:
    """Return the file name of the done-marker of an adapter: `<path>.json`, with a hash if that is too long."""
    check_component(path)
    if len(path) > _LONGEST_MARKER_STEM:
        path = f"{path[: _LONGEST_MARKER_STEM - 20]}~{short_hash(path, length=16)}"
    return f"{path}.json"


def scratch_name(*parts: str, unique: str) -> str:
    """Return a readable name for a scratch directory; `unique` makes it different from all others."""
    readable = "--".join(part[:60] for part in parts)
    return f"{readable}--{unique}"
