"""Durations as people write them: `30s`, `15m`, `1h30m`. Pure."""

from __future__ import annotations

import re
from datetime import timedelta

_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")
_UNITS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400}
WRITE = "write 30s, 15m, 1h30m, or a number of seconds"


def parse_duration(text: str) -> timedelta:
    """Return a duration from `30s`, `1h30m`, `250ms`, `2d` or a number of seconds.

    Raises: ValueError for a text that is none of these, or for a duration that is too long.
    """
    text = text.strip()
    if re.fullmatch(r"\d+(\.\d+)?", text):
        return _seconds(float(text))
    if not text or not re.fullmatch(f"({_PART.pattern})+", text):
        raise ValueError(f"is not a valid duration ({WRITE})")
    return _seconds(sum(float(number) * _UNITS[unit] for number, unit in _PART.findall(text)))


def _seconds(number: float) -> timedelta:
    try:
        return timedelta(seconds=number)
    except OverflowError:
        raise ValueError("is too long a duration") from None
