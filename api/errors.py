"""Errors that people see: where, what is wrong, which value, how to fix it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import StrEnum

from api.reasons import Reason
from api.record import record
from api.text import clean, quoted


class Cause(StrEnum):
    """Machine-readable kind of a field error, as `kubectl` and client libraries know them.

    Source: k8s.io/apimachinery `metav1.CauseType`.
    """

    REQUIRED = "FieldValueRequired"
    INVALID = "FieldValueInvalid"
    NOT_SUPPORTED = "FieldValueNotSupported"
    FORBIDDEN = "FieldValueForbidden"
    DUPLICATE = "FieldValueDuplicate"
    NOT_FOUND = "FieldValueNotFound"
    TOO_MANY = "FieldValueTooMany"

    __hash__ = str.__hash__  # consistent with equality, and Enum's own hash costs a Python call for each look-up

    @property
    def words(self) -> str:
        """The words that the API server's own validation prints for this kind of error."""
        return _CAUSE_WORDS[self]


_CAUSE_WORDS = {
    Cause.REQUIRED: "Required value",
    Cause.INVALID: "Invalid value",
    Cause.NOT_SUPPORTED: "Unsupported value",
    Cause.FORBIDDEN: "Forbidden",
    Cause.DUPLICATE: "Duplicate value",
    Cause.NOT_FOUND: "Not found",
    Cause.TOO_MANY: "Too many",
}


@record
class FieldError:
    """One reason why an object is refused.

    `path` as kubectl prints it (`spec.adapters[2].name`); `reason` a stable CamelCase word of the rule
    (`AdapterModeImmutable`), documented in docs/rules.md; `cause` the API server's kind of error; `value` the
    invalid value as the user wrote it (None: no value to show); `hint` what to do next.
    """

    path: str
    reason: Reason
    cause: Cause
    detail: str
    value: object = None
    hint: str = ""

    @property
    def message(self) -> str:
        """The text after the path, in the form of the API server's own field errors."""
        shown = f': "{_printable(self.value)}"' if self.value is not None and self.cause is not Cause.REQUIRED else ""
        fix = f" ({self.hint})" if self.hint else ""
        return clean(f"{self.cause.words}{shown}: {clean(self.detail, _LONGEST_DETAIL)}{fix}")

    @property
    def where(self) -> str:
        """The path as it is shown: keys of mappings in it may hold anything."""
        return clean(self.path, _LONGEST_PATH)

    def __str__(self) -> str:
        return f"{self.where}: {self.message}"


@record
class FieldWarning:
    """Something the user should know about an object that is accepted; most important first by `weight`."""

    path: str
    reason: Reason
    detail: str
    weight: int = 50  # 0 first, 100 last

    def __str__(self) -> str:
        return clean(f"{self.path}: {self.detail}" if self.path else self.detail)


def field_path(loc: Sequence[str | int]) -> str:
    """Turn a pydantic location (`('spec', 'adapters', 2, 'name')`) into a path as kubectl prints it."""
    path = ""
    for part in loc:
        if isinstance(part, int):
            path += f"[{part}]"
        elif part.replace("_", "").replace("-", "").isalnum():
            path += f".{part}" if path else part
        else:
            path += f"[{part}]"
    return path


def sorted_errors(errors: Iterable[FieldError]) -> list[FieldError]:
    """Return the errors once each, by path (indexes in numeric order), then reason."""
    once = set_once(errors)
    if len(once) < 2:
        return once
    return sorted(once, key=lambda error: (_path_key(error.path), error.reason, error.detail))


def set_once(errors: Iterable[FieldError]) -> list[FieldError]:
    """Drop repeated errors and keep the first (values need not be hashable)."""
    seen: dict[tuple[str, str, str], FieldError] = {}
    for error in errors:
        seen.setdefault((error.path, error.reason, error.detail), error)
    return list(seen.values())


def _path_key(path: str) -> list[tuple[int, int, str]]:
    parts = path.replace("]", "").replace("[", ".").split(".")
    return [(0, int(part), "") if part.isdigit() else (1, 0, part) for part in parts]


_LONGEST_SHOWN_VALUE = 120
_LONGEST_PATH = 512
_LONGEST_DETAIL = 2000  # several names of 253 characters fit


def _printable(value: object) -> str:
    """Return a value as the API server shows it: letters of any script unchanged, invisible characters escaped."""
    if isinstance(value, str):
        return quoted(value, _LONGEST_SHOWN_VALUE)
    return clean(_shown(value), _LONGEST_SHOWN_VALUE)


def _shown(value: object) -> str:
    """Return a value other than a string: only the shown part is rendered."""
    if isinstance(value, int) and value.bit_length() > 4 * _LONGEST_SHOWN_VALUE:
        return "a number of several hundred digits"  # Python refuses to write longer ones
    if isinstance(value, dict | list | tuple) and len(value) > _LONGEST_SHOWN_VALUE:
        return f"{len(value)} entries"
    try:
        return str(value)[: _LONGEST_SHOWN_VALUE + 1]
    except (RecursionError, ValueError):
        return "a value that cannot be shown"
