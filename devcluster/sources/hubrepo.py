"""A repository of the hub as git would see it: file and tree ids, LFS, revisions; read from folders under the root."""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import threading
from collections import OrderedDict
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final
from urllib.parse import quote, unquote

from devcluster.sources.files import Digests, Located, Root

LFS_FROM_BYTES: Final = 1_000_000
LFS_SUFFIXES: Final = (
    ".safetensors",
    ".bin",
    ".pt",
    ".pth",
    ".gguf",
    ".msgpack",
    ".h5",
    ".onnx",
    ".zip",
    ".tar",
    ".gz",
)
SETTINGS_FILE: Final = ".hub.json"
HIDDEN_PREFIX: Final = ".hub"
READ_TRIES: Final = 5
KEPT_REVISIONS: Final = 256  # old trees that are remembered for clients which pinned them
FULL_SHA: Final = re.compile(r"[0-9a-f]{40}")


class SettingsError(ValueError):
    """A `.hub.json` that cannot be read; the text names the file."""


@dataclass(frozen=True, slots=True)
class Settings:
    """What `.hub.json` says about a repository."""

    private: bool = False
    gated: str = ""  # "", "auto" or "manual"
    disabled: bool = False
    allowed_tokens: tuple[str, ...] | None = None  # None: each token of the server
    aliases: tuple[tuple[str, str], ...] = ()  # (served path, path in the folder): for names no file system takes
    moved_to: str = ""  # ORG/NAME: requests are redirected there


def parse_settings(text: str, where: str) -> Settings:
    """Read `.hub.json`.

    Raises: SettingsError for anything but an object of known fields with the right types.
    """
    try:
        raw = json.loads(text)
    except ValueError as error:
        raise SettingsError(f"{where}: not JSON: {error}") from error
    kinds: dict[str, tuple[type, ...]] = {
        "private": (bool,),
        "gated": (bool, str),
        "disabled": (bool,),
        "allowed_tokens": (list,),
        "aliases": (dict,),
        "moved_to": (str,),
    }
    if not isinstance(raw, dict):
        raise SettingsError(f"{where}: must be an object")
    for name, value in raw.items():
        if name not in kinds:
            raise SettingsError(f"{where}: unknown field {name!r}; known are {', '.join(sorted(kinds))}")
        if not isinstance(value, kinds[name]):
            raise SettingsError(f"{where}: {name} must be of type {kinds[name][0].__name__}")
    gated = raw.get("gated", False)
    tokens = raw.get("allowed_tokens")
    return Settings(
        private=raw.get("private", False),
        gated=("manual" if gated else "") if isinstance(gated, bool) else gated,
        disabled=raw.get("disabled", False),
        allowed_tokens=None if tokens is None else tuple(map(str, tokens)),
        aliases=tuple((str(served), str(real)) for served, real in sorted(raw.get("aliases", {}).items())),
        moved_to=raw.get("moved_to", ""),
    )


@dataclass(frozen=True, slots=True)
class Blob:
    """One file of a revision."""

    path: str  # as served
    real: tuple[str, ...]  # names below the root
    file: Located
    oid: str  # git's id; of an LFS file that of its pointer
    sha256: str  # of an LFS file, else empty
    pointer_size: int  # bytes

    @property
    def lfs(self) -> bool:
        """Whether git holds only a pointer to it."""
        return bool(self.sha256)

    @property
    def etag(self) -> str:
        """The unquoted ETag that the hub reports for the content."""
        return self.sha256 or self.oid


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All files of one revision."""

    org: str
    name: str
    sha: str
    blobs: dict[str, Blob]  # by served path, sorted
    trees: dict[str, str]  # folder path -> git's tree id; "" is the root
    modified: datetime

    @property
    def repo_id(self) -> str:
        """ORG/NAME."""
        return f"{self.org}/{self.name}"


def is_lfs(path: str, size: int) -> bool:
    """Whether the hub keeps such a file out of git."""
    return size >= LFS_FROM_BYTES or path.endswith(LFS_SUFFIXES)


def lfs_pointer(sha256: str, size: int) -> bytes:
    """Return the text that git holds for an LFS file (git-lfs specification, version 1)."""
    return f"version https://git-lfs.github.com/spec/v1\noid sha256:{sha256}\nsize {size}\n".encode()


def git_id(kind: str, content: bytes) -> str:
    """Return git's id of an object."""
    return hashlib.sha1(f"{kind} {len(content)}\0".encode() + content, usedforsecurity=False).hexdigest()


def tree_ids(blobs: dict[str, str]) -> dict[str, str]:
    """Return git's id of each folder. Args: file path -> git id."""
    children: dict[str, dict[str, tuple[str, str]]] = {"": {}}
    for path, oid in blobs.items():
        folder, _, name = path.rpartition("/")
        children.setdefault(folder, {})[name] = ("100644", oid)
        while folder:
            children.setdefault(folder, {})
            folder = folder.rpartition("/")[0]
    done: dict[str, str] = {}
    for folder in sorted(children, key=lambda f: -f.count("/") if f else 1):  # deepest first, the root last
        entries = children[folder]
        ordered = sorted(entries.items(), key=lambda e: e[0] + ("/" if e[1][0] == "40000" else ""))
        content = b"".join(f"{mode} {name}\0".encode() + bytes.fromhex(oid) for name, (mode, oid) in ordered)
        done[folder] = git_id("tree", content)
        if folder:
            parent, _, name = folder.rpartition("/")
            children.setdefault(parent, {})[name] = ("40000", done[folder])
    return done


@dataclass(slots=True)
class _Cached:
    stamp: tuple[object, ...]
    snapshot: Snapshot


@dataclass(slots=True)
class Repositories:
    """The repositories under a root. Methods read the disk: call them off the event loop. Safe for threads."""

    root: Root
    digests: Digests
    _cache: OrderedDict[tuple[str, str], _Cached] = field(default_factory=OrderedDict)
    _old: OrderedDict[tuple[str, str, str], Snapshot] = field(default_factory=OrderedDict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def folders(self, org: str, name: str) -> dict[str, str]:
        """Return revision -> folder name of a repository; empty if there is no such repository."""
        if "@" in name or name.startswith("."):
            return {}
        found = [f for f in self.root.folders([org]) if f == name or f.startswith(name + "@")]
        return {unquote(f[len(name) + 1 :]) or "main": f for f in found}

    def names(self) -> list[tuple[str, str]]:
        """Return all (organisation, name), sorted."""
        return sorted({(org, f.partition("@")[0]) for org in self.root.folders() for f in self.root.folders([org])})

    def settings(self, org: str, name: str) -> Settings:
        """Return the settings of a repository, the default ones when it has no file.

        Raises: SettingsError.
        """
        file = self.root.file([org, name, SETTINGS_FILE])
        if file is None:
            return Settings()
        where = f"{org}/{name}/{SETTINGS_FILE}"
        try:
            with open(file.path, encoding="utf-8") as stream:
                return parse_settings(stream.read(), where)
        except (OSError, UnicodeDecodeError) as error:
            raise SettingsError(f"{where}: {error}") from error

    def snapshot(self, org: str, name: str, revision: str) -> Snapshot | None:
        """Return the files of a revision: a name, a full commit id, or one that was current earlier.

        Of an earlier one only the files that did not change since can still be served; the caller finds out by
        looking them up. None: no such revision.
        """
        folders = self.folders(org, name)
        if revision in folders:
            return self._read(org, name, folders[revision], revision)
        if not FULL_SHA.fullmatch(revision):
            return None
        for known, folder in folders.items():
            if (found := self._read(org, name, folder, known)) is not None and found.sha == revision:
                return found
        with self._lock:
            return self._old.get((org, name, revision))

    def still_there(self, blob: Blob) -> bool:
        """Return whether the content of a snapshot is still on the disk."""
        file = self.root.file(blob.real)
        if file is None:
            return False
        if file.identity == blob.file.identity:
            return True
        digest = self.digests.of(file, "sha256" if blob.lfs else "gitblob")[0].hex()
        return digest == (blob.sha256 or blob.oid)

    def _read(self, org: str, name: str, folder: str, revision: str) -> Snapshot | None:
        for _ in range(READ_TRIES - 1):  # people copy files in while we read: look again when one changes meanwhile
            with contextlib.suppress(FileNotFoundError):
                return self._read_once(org, name, folder, revision)
        return self._read_once(org, name, folder, revision)

    def _read_once(self, org: str, name: str, folder: str, revision: str) -> Snapshot | None:
        if self.root.folder([org, folder]) is None:
            return None
        found = dict(sorted(self._files(org, name, folder)))
        stamp = tuple((path, file.identity) for path, (_, file) in found.items())
        with self._lock:
            cached = self._cache.get((org, folder))
        if cached is not None and cached.stamp == stamp:
            return cached.snapshot
        blobs = {path: self._blob(path, real, file) for path, (real, file) in found.items()}
        trees = tree_ids({path: blob.oid for path, blob in blobs.items()})
        sha = revision if FULL_SHA.fullmatch(revision) else git_id("commit", f"{org}/{name} {trees['']}".encode())
        newest = max((blob.file.mtime_ns for blob in blobs.values()), default=0)
        snapshot = Snapshot(org, name, sha, blobs, trees, datetime.fromtimestamp(newest // 1_000_000_000, UTC))
        with self._lock:
            self._cache[(org, folder)] = _Cached(stamp, snapshot)
            self._old[(org, name, sha)] = snapshot
            while len(self._old) > KEPT_REVISIONS:
                self._old.popitem(last=False)
        return snapshot

    def _files(self, org: str, name: str, folder: str) -> list[tuple[str, tuple[tuple[str, ...], Located]]]:
        found = []
        for path, file in self.root.walk([org, folder]):
            parts = path.split("/")
            if not parts[0].startswith(HIDDEN_PREFIX) and ".git" not in parts[:-1]:
                found.append((path, ((org, folder, *parts), file)))
        for served, real in self.settings(org, name).aliases:
            names = (org, folder, *real.split("/"))
            if (target := self.root.file(names)) is not None:
                found.append((served, (names, target)))
        return found

    def _blob(self, path: str, real: tuple[str, ...], file: Located) -> Blob:
        if not is_lfs(path, file.size):
            return Blob(path, real, file, self.digests.of(file, "gitblob")[0].hex(), "", 0)
        sha256 = self.digests.of(file, "sha256")[0].hex()
        pointer = lfs_pointer(sha256, file.size)
        return Blob(path, real, file, git_id("blob", pointer), sha256, len(pointer))


def tree_entries(snapshot: Snapshot, folder: str, recursive: bool, expand: bool) -> list[dict[str, Any]] | None:
    """Return what the tree endpoint lists, sorted by path; None when there is no such folder."""
    if folder not in snapshot.trees:
        return None
    inside = f"{folder}/" if folder else ""
    entries = [folder_entry(snapshot, f, expand) for f in snapshot.trees if f and _below(f, inside, recursive)]
    entries += [file_entry(snapshot, b, expand) for p, b in snapshot.blobs.items() if _below(p, inside, recursive)]
    return sorted(entries, key=lambda e: str(e["path"]))


def _below(path: str, inside: str, recursive: bool) -> bool:
    return path.startswith(inside) and (recursive or "/" not in path[len(inside) :])


def _expanded(snapshot: Snapshot, expand: bool) -> dict[str, Any]:
    if not expand:
        return {}
    commit = {"id": snapshot.sha, "title": "Files as found on the disk", "date": wire_time(snapshot.modified)}
    return {"lastCommit": commit}


def folder_entry(snapshot: Snapshot, path: str, expand: bool) -> dict[str, Any]:
    """Return one folder as the tree and paths-info endpoints show it."""
    return {"type": "directory", "oid": snapshot.trees[path], "size": 0, "path": path} | _expanded(snapshot, expand)


def file_entry(snapshot: Snapshot, blob: Blob, expand: bool) -> dict[str, Any]:
    """Return one file as the tree and paths-info endpoints show it."""
    entry: dict[str, Any] = {"type": "file", "oid": blob.oid, "size": blob.file.size, "path": blob.path}
    if blob.lfs:
        entry["lfs"] = {"oid": blob.sha256, "size": blob.file.size, "pointerSize": blob.pointer_size}
    return entry | _expanded(snapshot, expand)


def sibling(blob: Blob, with_metadata: bool) -> dict[str, Any]:
    """Return one file as the model's information lists it."""
    entry: dict[str, Any] = {"rfilename": blob.path}
    if with_metadata:
        entry |= {"size": blob.file.size, "blobId": blob.oid}
        if blob.lfs:
            entry["lfs"] = {"sha256": blob.sha256, "size": blob.file.size, "pointerSize": blob.pointer_size}
    return entry


def model_info(snapshot: Snapshot, settings: Settings, with_metadata: bool) -> dict[str, Any]:
    """Return the model's information as /api/models/ORG/NAME shows it."""
    peft = any(path.rpartition("/")[2] == "adapter_config.json" for path in snapshot.blobs)
    return {
        "_id": git_id("repo", snapshot.repo_id.encode())[:24],
        "id": snapshot.repo_id,
        "modelId": snapshot.repo_id,
        "author": snapshot.org,
        "sha": snapshot.sha,
        "lastModified": wire_time(snapshot.modified),
        "createdAt": wire_time(snapshot.modified),
        "private": settings.private,
        "gated": settings.gated or False,
        "disabled": settings.disabled,
        "downloads": 0,
        "likes": 0,
        "tags": ["peft", "lora"] if peft else [],
        "library_name": "peft" if peft else "transformers",
        "usedStorage": sum(blob.file.size for blob in snapshot.blobs.values()),
        "siblings": [sibling(blob, with_metadata) for blob in snapshot.blobs.values()],
    }


def wire_time(when: datetime) -> str:
    """Return a UTC time as the hub writes it, with milliseconds."""
    return when.strftime("%Y-%m-%dT%H:%M:%S.000Z")


def url_path(path: str) -> str:
    """Return a path percent-encoded for a URL; dots that a client would fold away are encoded too."""
    return "/".join(
        part.replace(".", "%2E") if part in (".", "..") else quote(part, safe="") for part in path.split("/")
    )
