"""Words for people: sizes, ages, and texts of strangers made harmless. Pure.

Whatever a tenant, a source or a server wrote goes through `harmless` before it is shown: no control or direction
characters, no credentials of URLs, no end of patience.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from functools import lru_cache

LONGEST_TEXT = 400  # characters of one message
DASH = "\N{EN DASH}"  # where there is nothing to show
LONGEST_NAME = 253  # source: Kubernetes object names
_CREDENTIALS = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]{0,15}://)[^\s/?#\"']*@")
_QUERY = re.compile(r"(?P<url>[A-Za-z][A-Za-z0-9+.-]{0,15}://[^\s?#\"']*)[?#][^\s\"']*")
# `spec.env[0].value: Invalid value: "…": detail`: a variable's value may be a secret, wherever variables are listed. It
# is shown as it was written, quotes included, so that all up to the last `":` may belong to it. Names are no secrets.
_ENV_VALUE = re.compile(
    r"(?P<path>(?:\b(?:env|containerEnv)\[[^\]]*\](?!\.name\b)|\bengineEnv\.)[^:\s]*: [A-Z][\w ]*: )\".*\"(?=:)",
    re.IGNORECASE,
)


def harmless(value: object, longest: int = LONGEST_TEXT) -> str:
    """Return a text on one line, without credentials of URLs, values of variables and unprintable characters.

    Unprintable ones (among them those that turn the direction of writing) become `\N{REPLACEMENT CHARACTER}`.
    """
    return _harmless(str(value)[: 4 * longest], longest)


@lru_cache(maxsize=4096)  # the same messages are shown again and again
def _harmless(text: str, longest: int) -> str:
    text = " ".join(text.split())
    if not text.isprintable():
        text = "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in text)
    if "://" in text:
        text = _QUERY.sub(r"\g<url>?…", _CREDENTIALS.sub(r"\g<scheme>…@", text))
    if "nv" in text:  # env, containerEnv, engineEnv
        text = _ENV_VALUE.sub(r'\g<path>"…"', text)
    return text if len(text) <= longest else f"{text[: longest - 1]}…"


def size(count: int | None) -> str:
    """Return bytes as people read them: `1.5 GiB`; a dash where nothing is known."""
    if count is None:
        return DASH
    value = float(count)
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if value < 1024 or unit == "TiB":
            digits = 0 if unit == "B" or value >= 100 else 1
            return f"{value:.{digits}f} {unit}"
        value /= 1024
    raise AssertionError("unreachable")


def parse_time(value: object) -> datetime | None:
    """Read an RFC 3339 time, None when it is none."""
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
    """Return how long ago something was: `12 s ago`, `3 min ago`, `5 h ago`, `9 d ago`; of the future: `in 12 s`."""
    seconds = (now - moment).total_seconds()
    words = span(abs(seconds))
    if seconds < -1:
        return f"in {words}"
    return "now" if seconds < 2 else f"{words} ago"


def span(seconds: float) -> str:
    """Return a duration in the largest unit of which there are two."""
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{int(seconds // length)} {unit}"
    return f"{int(seconds)} s"
