"""Small elements of all parts of a page: times, states, progress bars, numbers with their nouns. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from api.reasons import explain
from api.words import NOTHING, absolute, ago, stamp
from console.markup import Html, el, html

# The look of a state: shape and tone. Its word is always beside it, so that no meaning depends on shape or colour.
_LOOKS: Mapping[str, tuple[str, str]] = {
    "Running": ("●", "good"),
    "Loaded": ("●", "good"),
    "Downloaded": ("◕", "good"),
    "Ready": ("●", "good"),
    "Starting": ("◔", "wait"),
    "Downloading": ("◔", "wait"),
    "Pending": ("○", "wait"),
    "Deleting": ("◌", "wait"),
    "Degraded": ("▲", "warn"),
    "LoadRejected": ("✕", "bad"),
    "Failed": ("✕", "bad"),
}
WORDS = {"LoadRejected": "Load rejected"}


def when(moment: datetime | None, now: datetime) -> Html:
    """Return a time: how long ago, the absolute one in its title; the page's script keeps the words fresh."""
    if moment is None:
        return html(NOTHING)
    return el("time", ago(moment, now), datetime=stamp(moment), title=absolute(moment))


def badge(state: str) -> Html:
    """Return a state with its shape."""
    shape, tone = _LOOKS.get(state, ("○", "wait"))
    word = WORDS.get(state, state)
    return el("span", el("span", shape, class_="shape", aria_hidden="true"), " ", word, class_=f"state {tone}")


def reason(word: str) -> Html:
    """Return a reason; its title has what it means and what to do."""
    found = explain(word)
    if found is None:
        return el("b", word)
    return el("b", word, title=f"{found.meaning} What to do: {found.advice}." if found.advice else found.meaning)


def reason_first(text: str) -> Html:
    """Return a text of the form `Reason: message`, or any other as it is."""
    word, colon, message = text.partition(": ")
    return html(reason(word), colon, message) if explain(word) is not None else html(text)


def bar(percentage: int, label: str) -> Html:
    """Return a progress bar; its text is beside it."""
    return el("progress", f"{percentage} %", max=100, value=percentage, aria_label=label)


def count(number: int) -> str:
    """Return a number with its thousands separated."""
    return f"{number:,}".replace(",", "\N{NARROW NO-BREAK SPACE}")


def plural(number: int, one: str, many: str = "") -> str:
    """Return a number with its noun."""
    return f"{count(number)} {one if number == 1 else many or one + 's'}"
