"""A dataclass that is cheap to make, for values that every review makes many times."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar, dataclass_transform

Made = TypeVar("Made")


@dataclass_transform(frozen_default=True)
def record(cls: type[Made]) -> type[Made]:
    """Make a dataclass with slots that must not change: frozen for the type checker, equal and hashable by its fields.

    A dataclass that is frozen at run time takes 1.4 µs to make instead of 0.4 µs, since it sets each field by a call. A
    frozen `msgspec.Struct` is as fast, but reads its values from other programs, which these do not.
    """
    return dataclass(slots=True, unsafe_hash=True)(cls)
