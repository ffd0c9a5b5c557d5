"""Words for people, in one place: sizes, times, durations. Pure.

The console, the command line and the progress of a download show the same value in the same words.
"""

from __future__ import annotations

from datetime import UTC, datetime

NOTHING = "\N{EN DASH}"  # shown where there is no value
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


def size(count: float | None) -> str:
    """Return bytes for people: `1.5 GiB`, `150 MiB`, `12 B`; a dash where nothing is known."""
    if count is None:
        return NOTHING
    value, place = float(count), 0
    while value >= 1024 and place < len(_UNITS) - 1:
        value, place = value / 1024, place + 1
    digits = 0 if place == 0 or value >= 100 else 1
    return f"{value:.{digits}f} {_UNITS[place]}"


def parse_time(value: object) -> datetime | None:
    """Read an RFC 3339 time; None if the value is not one. A time without a zone is UTC."""
    if not isinstance(value, str):
        return None
    try:
        moment = datetime.fromisoformat(value)
        return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    except ValueError:
        return None


def stamp(moment: datetime) -> str:
    """Return a time for machines: RFC 3339 in UTC, whole seconds."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def absolute(moment: datetime) -> str:
    """Return a time for people, in UTC."""
    return moment.astimezone(UTC).strftime("%d %b %Y, %H:%M:%S UTC")


def ago(moment: datetime, now: datetime) -> str:
    """Return how long ago a time is: `12 s ago`, `3 min ago`, `5 h ago`, `9 d ago`; for the future: `in 12 s`."""
    seconds = (now - moment).total_seconds()
    words = span(abs(seconds))
    if seconds < -1:
        return f"in {words}"
    return "now" if seconds < 2 else f"{words} ago"


def span(seconds: float) -> str:
    """Return a duration in the largest unit of which there are at least two."""
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{int(seconds // length)} {unit}"
    return f"{int(seconds)} s"
