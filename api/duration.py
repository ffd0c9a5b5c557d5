"""Durations as people write them: `30s`, `15m`, `1h30m`. Pure."""

from __future__ import annotations

import re
from datetime import timedelta

_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")
_UNITS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400}


def parse_duration(value: str | float) -> timedelta:
    """Return a duration from `30s`, `1h30m`, `250ms`, `2d` or a number of seconds.

    Raises: ValueError for any other text, and for a duration that is too long.
    """
    if not isinstance(value, str):
        return _of_seconds(value)
    text = value.strip()
    if re.fullmatch(r"\d+(\.\d+)?", text):
        return _of_seconds(float(text))
    if not text or not re.fullmatch(f"({_PART.pattern})+", text):
        raise ValueError("is not a valid duration (write 30s, 15m, 1h30m, or a number of seconds)")
    return _of_seconds(sum(float(number) * _UNITS[unit] for number, unit in _PART.findall(text)))


def _of_seconds(number: float) -> timedelta:
    try:
        return timedelta(seconds=number)
    except (OverflowError, ValueError):
        raise ValueError("is not a valid duration: it is too long (write 30s, 15m, 1h30m)") from None
