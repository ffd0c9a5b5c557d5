"""The image table: which local command stands for which container image."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class Image:
    """What a real image contains: its entry point, arguments, environment, user and working directory."""

    entrypoint: tuple[str, ...]
    cmd: tuple[str, ...]
    env: dict[str, str]
    uid: int | None  # None: the image names no user, which means root
    gid: int | None
    working_dir: str
    digest: str  # 64 hexadecimal digits over the entry, so that a changed entry is another image


class ImageTable:
    """A JSON file `{"NAME:TAG": {"entrypoint": […], "cmd": […], "env": {…}, "user": "1000", "workingDir": "/"}}`.

    A name may be a pattern (fnmatch). An exact name wins, then patterns in the file's order. The file is read again
    when it changed, so that images can be added to a running node.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._stamp: tuple[int, int] | None = None
        self._entries: dict[str, Image] = {}

    def find(self, reference: str) -> Image | None:
        """Return the image of this reference, None when nothing stands for it. Raises: ValueError on a broken file."""
        self._refresh()
        if reference in self._entries:
            return self._entries[reference]
        return next((image for pattern, image in self._entries.items() if fnmatchcase(reference, pattern)), None)

    def programs(self) -> list[str]:
        """Return the first word of every entry point that is an absolute path."""
        self._refresh()
        return sorted({i.entrypoint[0] for i in self._entries.values() if i.entrypoint and i.entrypoint[0][0] == "/"})

    def _refresh(self) -> None:
        found = self._path.stat()
        stamp = (found.st_mtime_ns, found.st_size)
        if stamp != self._stamp:
            self._entries = parse_images(self._path.read_text(), str(self._path))
            self._stamp = stamp


def parse_images(text: str, source: str) -> dict[str, Image]:
    """Parse an image table. Raises: ValueError that names `source` and the entry."""
    try:
        table = json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"{source}: no JSON: {error}") from error
    if not isinstance(table, dict):
        raise ValueError(f"{source}: expected an object of image names")
    return {name: _image(entry, f"{source}: {name}") for name, entry in table.items()}


def _image(entry: Any, where: str) -> Image:
    if not isinstance(entry, dict):
        raise ValueError(f"{where}: expected an object")
    uid, gid = _user(str(entry.get("user", "")), where)
    return Image(
        entrypoint=tuple(map(str, entry.get("entrypoint", ()))),
        cmd=tuple(map(str, entry.get("cmd", ()))),
        env={str(k): str(v) for k, v in (entry.get("env") or {}).items()},
        uid=uid,
        gid=gid,
        working_dir=str(entry.get("workingDir", "/")),
        digest=hashlib.sha256(json.dumps(entry, sort_keys=True).encode()).hexdigest(),
    )


def _user(text: str, where: str) -> tuple[int | None, int | None]:
    """Split "UID[:GID]". Raises: ValueError for names, which would need a passwd file of the image's own."""
    if not text:
        return None, None
    uid, _, gid = text.partition(":")
    if not uid.isdigit() or (gid and not gid.isdigit()):
        raise ValueError(f'{where}: user "{text}" must be a number, or two with a colon')
    return int(uid), int(gid) if gid else None
