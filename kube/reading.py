"""Objects of the API server, read so that one object never costs the others. Pure.

Whole pages and objects are parsed at once as long as they are small. What is large, or what the parser refuses, is read
part by part: an object whose part cannot be read, or is larger than anything that this process acts on, is represented
by its metadata and a note of what was left out (`view.left_out`). What cannot even be identified is `UnreadableError`.
Source: docs/contract.md, Faults of one object.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import orjson

from api import view, words
from api.reasons import Reason
from api.view import JsonObject
from kube import json_parts

WHOLE_BYTES = 512 * 1024  # of one object that is parsed at once: 10 ms of CPU at the most
WHOLE_PAGE_BYTES = 1024 * 1024
LARGEST_PART = 256 * 1024  # of a spec, a status or another part
LARGEST_METADATA = 16 * 1024  # of one field of the metadata of an object that is read part by part
_IDENTITY = ("name", "namespace", "uid", "resourceVersion", "generation", "creationTimestamp", "deletionTimestamp")


class UnreadableError(ValueError):
    """An object that cannot be identified: no metadata that can be read, or no name in it."""


@dataclass(frozen=True, slots=True)
class Page:
    """What a list page holds. `unreadable`: objects that cannot be identified."""

    items: list[JsonObject]
    resource_version: str
    token: str
    kind: str
    unreadable: int = 0


@dataclass(slots=True)
class _Left:
    """What was left out of an object that is read part by part."""

    reason: str = ""
    parts: list[str] = field(default_factory=list)

    def note(self, reason: str, detail: str) -> None:
        self.reason = self.reason or reason
        self.parts.append(detail)

    def fits(self, name: str, size: int) -> bool:
        """Whether a part of this size is kept; notes one that is not."""
        if size > LARGEST_PART:
            self.note(Reason.TOO_LARGE, f"{name} has {words.size(size)}, more than {words.size(LARGEST_PART)}")
        return size <= LARGEST_PART

    def mark(self, obj: JsonObject) -> JsonObject:
        """Note in an object what was left out of it, and return it."""
        if self.parts:
            obj[view.LEFT_OUT] = {"reason": self.reason, "detail": "; ".join(self.parts)}
        return obj


def read_object(text: bytes) -> JsonObject:
    """Return an object whose metadata has a name, as a whole or with a note of what was left out.

    Raises: UnreadableError.
    """
    whole = read_whole(text)
    return read_parts(text) if whole is None else whole


def read_whole(text: bytes) -> JsonObject | None:
    """Return an object that is small and sound, None for one that is read part by part. Raises: UnreadableError."""
    if len(text) > WHOLE_BYTES:
        return None
    try:
        return identified(orjson.loads(text))
    except orjson.JSONDecodeError:
        return None


def identified(parsed: object) -> JsonObject:
    """Return the object itself if it is one with metadata and a name. Raises: UnreadableError."""
    if not isinstance(parsed, dict) or not view.name_of(parsed):
        raise UnreadableError("an object without metadata.name")
    namespace = view.dig(parsed, "metadata", "namespace")
    if not (namespace is None or isinstance(namespace, str)):
        raise UnreadableError("an object whose metadata.namespace is not a string")
    return parsed


def written(obj: object) -> bytes | None:
    """Return an object as JSON; None for one that is nested too deeply to be written, or holds no JSON values."""
    try:
        return orjson.dumps(obj)
    except orjson.JSONEncodeError:
        return None


def reduced(obj: JsonObject) -> JsonObject:
    """Return an object without the parts that are above `LARGEST_PART` or cannot be written, and a note of them."""
    kept: JsonObject = {}
    left = _Left()
    for name, value in obj.items():
        text = written(value)
        if text is None:
            left.note(Reason.UNREADABLE, f"{name} is nested too deeply")
        elif left.fits(name, len(text)):
            kept[name] = value
    if "metadata" not in kept:
        metadata = view.mapping(obj, "metadata")
        kept["metadata"] = {name: metadata[name] for name in _IDENTITY if name in metadata}
    return left.mark(kept)


def without_parts(obj: JsonObject, reason: str, detail: str) -> JsonObject:
    """Return the metadata of an object, its kind, a status of ordinary size, and a note why the rest is left out."""
    kept: JsonObject = {name: obj[name] for name in ("apiVersion", "kind", "metadata") if name in obj}
    if len(written(obj.get("status")) or b"") <= LARGEST_METADATA:
        kept["status"] = obj.get("status", {})
    return {**kept, view.LEFT_OUT: {"reason": reason, "detail": detail}}


def read_page(text: bytes) -> Page:
    """Return a page of a list whose objects are parsed at once. Raises: ValueError if one of them cannot be."""
    parsed = orjson.loads(text)
    items: list[JsonObject] = []
    unreadable = 0
    for item in parsed.get("items") or []:
        try:
            items.append(identified(item))
        except UnreadableError:
            unreadable += 1
    return _page(parsed.get("metadata"), parsed.get("kind"), items, unreadable)


def cut_page(text: bytes) -> tuple[Page, list[bytes]]:
    """Return a page without its objects, and their texts. Raises: ValueError for a text that is not a list."""
    parts = json_parts.members(text)
    metadata, kind = (orjson.loads(parts.get(name, b"null")) for name in ("metadata", "kind"))
    texts = json_parts.elements(parts["items"]) if parts.get("items", b"null") != b"null" else []
    return _page(metadata, kind), texts


def _page(metadata: object, kind: object, items: Sequence[JsonObject] = (), unreadable: int = 0) -> Page:
    version, token = (view.text(metadata, name) or "" for name in ("resourceVersion", "continue"))
    return Page(list(items), version, token, kind if isinstance(kind, str) else "", unreadable)


def read_parts(text: bytes) -> JsonObject:
    """Return an object with a note of what was left out; up to 0.4 s for each MB. Raises: UnreadableError."""
    try:
        parts = json_parts.members(text)
        metadata_parts = json_parts.members(parts["metadata"])
    except (ValueError, KeyError) as error:
        raise UnreadableError("an object without readable metadata") from error
    metadata: JsonObject = {}
    left = _Left()
    for name, value in metadata_parts.items():
        if name != "managedFields" and len(value) <= LARGEST_METADATA:
            _put(metadata, name, value, _Left())
    obj: JsonObject = {"metadata": metadata}
    for name, value in parts.items():
        if name != "metadata" and left.fits(name, len(value)):
            _put(obj, name, value, left)
    return identified(left.mark(obj))


def _put(target: JsonObject, name: str, text: bytes, left: _Left) -> None:
    try:
        target[name] = orjson.loads(text)
    except orjson.JSONDecodeError:
        left.note(Reason.UNREADABLE, f"{name} is nested too deeply, or is not valid JSON")
