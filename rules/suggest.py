"""Suggestions for misspelled words, and lists that fit on a line."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from difflib import get_close_matches

_LONGEST = 64  # no known word is longer, and the cost of a comparison grows with the square
_SIMILAR = 0.6  # difflib's own default: one wrong letter in a short word, two in a longer one


def did_you_mean(value: object, known: Iterable[str], similar: float = _SIMILAR) -> str:
    """Return `did you mean "…"?` for the closest known word (letter case counts least), or an empty string."""
    if not isinstance(value, str) or not 0 < len(value) <= _LONGEST:
        return ""
    by_lower = {word.lower(): word for word in known}
    close = get_close_matches(value.lower(), list(by_lower), n=1, cutoff=similar)
    return f'did you mean "{by_lower[close[0]]}"?' if close else ""


def quoted(words: Iterable[str]) -> str:
    """Return words quoted and joined: `"a", "b"`."""
    return ", ".join(f'"{word}"' for word in words)


def fit_names(names: Sequence[str], room: int) -> str:
    """Return as many names as fit in `room` characters, then a count: `a, b and 3 more`. At least one is shown."""
    for shown in range(min(len(names), room), 0, -1):  # each name takes a character
        left = len(names) - shown
        text = ", ".join(names[:shown]) + (f" and {left} more" if left else "")
        if len(text) <= room or shown == 1:
            return text
    return ""
