"""What is beyond a bound: one finding about an object that is too large to be judged at all.

It is asked before every rule. The bounds are those of the table `api.bounds`. Nothing here recurses, and the work is
linear in what is within the bounds: the first field that is beyond its bound ends it.
Source: docs/contract.md, Bounds.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

import msgspec
import orjson

from api import bounds, view
from api.errors import Cause, FieldError
from api.kinds import Kind
from api.reasons import EXPLANATIONS, Reason
from api.view import Json
from rules.verdict import Finding

Path = tuple[str, ...]

_MOST_OBJECTS = 24 * 1024
"""Lists and objects of one spec outside of free-form fields; a spec that uses each list to its end has fewer."""
_SHORTEN = "shorten it"


# -- most objects are small -----------------------------------------------------------------------------------------


def _levels(count: int, entries: int) -> Any:
    """Return the type of JSON values with short strings, few entries, and at most this many levels."""
    string = Annotated[str, msgspec.Meta(max_length=bounds.SMALLEST_STRING)]
    scalar: Any = None | bool | int | float | string
    values: Any = scalar
    for _ in range(count):
        few = msgspec.Meta(max_length=entries)
        values = scalar | Annotated[list[values], few] | Annotated[dict[string, values], few]
    return values


_SMALL_LEVELS = 8  # each level doubles the cost of the type, once
_MORE = min(row.most for row in bounds.LISTS if row.most > bounds.SMALLEST_LIST)
_SHORT_LISTS = tuple(
    f'"{name.rpartition(".")[2]}":'.encode() for row in bounds.LISTS if row.most < _MORE for name in row.names
)


class _Small(msgspec.Struct, gc=False):
    """A spec that reaches none of the bounds, whatever its fields are called."""

    spec: _levels(_SMALL_LEVELS, bounds.SMALLEST_LIST)  # type: ignore[valid-type]


class _Medium(msgspec.Struct, gc=False):
    """A spec that reaches none of the bounds, where it has none of the shortest lists."""

    spec: _levels(_SMALL_LEVELS, _MORE)  # type: ignore[valid-type]


def _is_small(spec: object) -> bool:
    """Whether a spec is surely within all bounds; False: perhaps not. This takes some 2 µs for an ordinary service."""
    try:
        text = orjson.dumps(spec)
        if len(text) > bounds.MOST_FREE_FORM_BYTES:
            return False
        msgspec.convert({"spec": spec}, _Small)
    except msgspec.ValidationError:
        return not any(name in text for name in _SHORT_LISTS) and _is_medium(spec)
    except (TypeError, RecursionError):  # deeper than the encoder accepts, or a value of YAML that JSON does not have
        return False
    return True


def _is_medium(spec: object) -> bool:
    try:
        msgspec.convert({"spec": spec}, _Medium)
    except (msgspec.ValidationError, RecursionError):
        return False
    return True


# -- the judgement ----------------------------------------------------------------------------------------------------


def beyond(kind: Kind, obj: Json) -> Finding | None:
    """Return what is wrong with an object that is beyond a bound, None for any other. Total, and never recursive.

    The fields are looked at in their order, so that the same object always has the same finding. An object that was not
    read as a whole is beyond a bound, too.
    """
    if (left := view.left_out(obj)) is not None:
        reason = Reason(left["reason"])
        return Finding(FieldError("spec", reason, Cause.INVALID, str(left["detail"]), None, EXPLANATIONS[reason].fix))
    labels = view.dig(obj, "metadata", "labels")
    if isinstance(labels, dict) and len(labels) > bounds.MOST_LABELS:
        return _too_many("metadata.labels", len(labels), bounds.MOST_LABELS, "remove labels")
    spec = obj.get("spec")
    if spec is None or _is_small(spec):
        return None
    return _look(spec)


def _look(spec: object) -> Finding | None:
    """Look at each field of a spec whose size may be beyond its bound; short strings and lists cannot be."""
    left: list[tuple[object, Path, Path]] = [(spec, (), ("spec",))]  # value, place in the table, place for people
    objects = values = 0
    while left:
        value, path, shown = left.pop()
        if path and path[-1] in _LAST_NAMES and bounds.free_form(path):
            if (found := _free_form(value, shown)) is not None:
                return found
            continue
        if isinstance(value, str):
            string = bounds.of_string(path)
            if len(value) > string.most:
                return _too_long(_field(shown), len(value), string.most, string.fix)
            continue
        if not isinstance(value, dict | list):
            continue
        objects += 1
        values += len(value)
        if len(value) > bounds.SMALLEST_LIST:
            entries = bounds.of_entries(path) if path else bounds.ANY_ENTRIES
            if len(value) > entries.most:
                return _too_many(_field(shown), len(value), entries.most, entries.fix)
        if len(path) > bounds.MOST_LEVELS:
            return _too_deep(_field(shown[:2]))
        if objects > _MOST_OBJECTS or values > bounds.MOST_SPEC_BYTES // 2:
            return _too_many("spec", max(objects, values), _MOST_OBJECTS, "", "lists, objects and values")
        if isinstance(value, dict):
            if (found := _long_key(value, path, shown)) is not None:
                return found
            is_map = bool(path) and path[-1] in bounds.MAPS
            below = [
                (entry, (*path, "[]" if is_map else key), (*shown, f"[{key}]" if is_map else key))
                for key, entry in value.items()
                if isinstance(key, str) and _may_be_large(entry)
            ]
        else:
            below = [
                (entry, (*path, "[]"), (*shown, f"[{index}]"))
                for index, entry in enumerate(value)
                if _may_be_large(entry)
            ]
        left.extend(reversed(below))
    return _whole(spec)


_LAST_NAMES = frozenset(place.rpartition(".")[2] for place in bounds.FREE_FORM)


def _may_be_large(value: object) -> bool:
    """Whether a value has to be looked at: False for scalars, short strings, and small objects of such values."""
    if value.__class__ is str:
        return len(value) > _SHORT
    if value.__class__ is not dict:
        return isinstance(value, dict | list)
    if len(value) > bounds.SMALLEST_LIST:
        return True
    for key, entry in value.items():
        kind = entry.__class__
        if key.__class__ is not str:
            return True
        if kind is str:
            if len(entry) > _SHORT or len(key) > _SHORT:
                return True
        elif kind is dict or kind is list or len(key) > _SHORT:
            return True
    return False


_SHORT = bounds.SMALLEST_STRING


def _long_key(value: dict[Any, Any], path: Path, shown: Path) -> Finding | None:
    for key in value:
        if isinstance(key, str) and len(key) > _SHORT:
            most = bounds.of_string((*path, "{}")).most
            if len(key) > most:
                return _too_long(_field((*shown, f"{key[:40]}…")), len(key), most, "shorten the key")
    return None


def _free_form(value: object, shown: Path) -> Finding | None:
    if not isinstance(value, str | dict | list):
        return None
    try:
        size = len(orjson.dumps(value))
    except TypeError as error:  # deeper than the encoder accepts, or a value of YAML that JSON does not have
        too_deep = "ecursion" in str(error) or _deeper(value, bounds.MOST_LEVELS)
        return _too_deep(_field(shown)) if too_deep else None
    if size > bounds.MOST_FREE_FORM_BYTES:
        return _too_big(_field(shown), size, bounds.MOST_FREE_FORM_BYTES)
    return _too_deep(_field(shown)) if _deeper(value, bounds.MOST_LEVELS) else None


def _deeper(value: object, levels: int) -> bool:
    """Whether a value has more levels of lists and objects, looked at level by level."""
    level = [value] if isinstance(value, dict | list) else []
    while level and levels >= 0:
        level = [entry for holder in level for entry in _entries(holder) if isinstance(entry, dict | list)]
        levels -= 1
    return levels < 0


def _entries(holder: object) -> Iterator[object]:
    if isinstance(holder, dict):
        yield from holder.values()
    elif isinstance(holder, list):
        yield from holder


def _whole(spec: object) -> Finding | None:
    try:
        size = len(orjson.dumps(spec))
    except TypeError:  # YAML has values that JSON does not have; each field is within its bound
        return None
    return _too_big("spec", size, bounds.MOST_SPEC_BYTES) if size > bounds.MOST_SPEC_BYTES else None


def _field(shown: Path) -> str:
    return ".".join(shown).replace(".[", "[")


# -- the finding ------------------------------------------------------------------------------------------------------


def _finding(path: str, cause: Cause, detail: str, fix: str) -> Finding:
    return Finding(FieldError(path, Reason.TOO_LARGE, cause, detail, None, fix))


def _too_many(path: str, found: int, most: int, fix: str, what: str = "entries") -> Finding:
    detail = f"{found} {what}, at most {most} are allowed"
    return _finding(path, Cause.TOO_MANY, detail, fix or "remove some, or spread them over several objects")


def _too_long(path: str, found: int, most: int, fix: str) -> Finding:
    return _finding(path, Cause.INVALID, f"{found} characters, at most {most} are allowed", fix or _SHORTEN)


def _too_big(path: str, found: int, most: int) -> Finding:
    detail = f"{found} bytes as JSON, at most {most} are allowed"
    return _finding(path, Cause.INVALID, detail, "remove what is not needed")


def _too_deep(path: str) -> Finding:
    detail = f"more than {bounds.MOST_LEVELS} levels of lists and objects, at most {bounds.MOST_LEVELS} are allowed"
    return _finding(path, Cause.INVALID, detail, "nest it less deeply")
