"""What a visitor requests: a filter, a state, a page. Pure; accepts any query string."""

from __future__ import annotations

from collections.abc import Callable
from urllib.parse import parse_qsl, urlencode

from api.record import record
from api.text import is_clean
from console.views import ADAPTER_STATES, SERVICE_STATES, Brief

PAGE_SIZES = (50, 25, 100)  # the first is the default
LONGEST_FILTER = 100
MOST_PAGES = 100_000

ALL, TROUBLE, STAGING = "", "attention", "staging"
_STATES = frozenset({ALL, TROUBLE, STAGING, *SERVICE_STATES, *(f"adapter-{state}" for state in ADAPTER_STATES)})


@record
class Query:
    """One view of the services: `words` all must appear; `state` as in the select field; `page` counts from 1."""

    words: str = ""
    state: str = ALL
    page: int = 1
    size: int = PAGE_SIZES[0]

    def matcher(self) -> Callable[[Brief], bool]:
        """Return a function that returns whether a service belongs to this view."""
        words, in_state = self.words.split(), self._state_matcher()

        def matches(one: Brief) -> bool:
            for word in words:
                if word not in one.haystack:
                    return False
            return in_state is None or in_state(one)

        return matches

    def _state_matcher(self) -> Callable[[Brief], bool] | None:
        state = self.state
        if state == ALL:
            return None
        if state == TROUBLE:
            return lambda one: one.trouble
        if state == STAGING:
            return lambda one: one.staging
        if state.startswith("adapter-"):
            wanted = state.removeprefix("adapter-")
            return lambda one: wanted in one.adapters
        return lambda one: one.status == state

    @property
    def open(self) -> bool:
        """Whether the view shows all services."""
        return not self.words and self.state == ALL

    def at(self, page: int) -> str:
        """Return the query string of another page of this view, with its question mark; "" for the plain page."""
        parts = {"q": self.words, "state": self.state, "page": page if page > 1 else "", "size": self.size}
        if self.size == PAGE_SIZES[0]:
            del parts["size"]
        query = urlencode({key: value for key, value in parts.items() if value})
        return f"?{query}" if query else ""


def parse_query(query_string: bytes) -> Query:
    """Read a query string; invalid parts are ignored."""
    try:
        pairs = parse_qsl(query_string[:4096].decode("latin-1"), max_num_fields=20, encoding="utf-8", errors="replace")
    except ValueError:
        return Query()
    given = dict(reversed(pairs))  # the first of several counts
    state = given.get("state", ALL)
    return Query(
        words=_words(given.get("q", "")),
        state=state if state in _STATES else ALL,
        page=_number(given.get("page", ""), 1, MOST_PAGES),
        size=size if (size := _number(given.get("size", ""), PAGE_SIZES[0], max(PAGE_SIZES))) in PAGE_SIZES else 50,
    )


def _words(text: str) -> str:
    shown = "".join(char if is_clean(char) else " " for char in text[: 4 * LONGEST_FILTER])
    return " ".join(shown.lower().split())[:LONGEST_FILTER].strip()


def _number(text: str, default: int, most: int) -> int:
    return min(most, max(1, int(text))) if text.isascii() and text.isdigit() and len(text) < 8 else default
