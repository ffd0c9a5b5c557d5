"""Makes equal parts of cached objects one and the same: most of an InferenceService is that of its neighbours.

No I/O and no clock. What is shared is never changed, as nothing in a cache is.
"""

from __future__ import annotations

from typing import Any

import orjson

MOST_PARTS = 8_192  # that are remembered; above it all are forgotten, and learned again as they come
LARGEST_PART = 1_024  # bytes of JSON; larger ones are seldom equal, their own parts may be


class Sharing:
    """Remembers parts of objects: strings, and mappings and lists by what they say."""

    def __init__(self) -> None:
        self._known: dict[str | bytes, Any] = {}

    def share(self, obj: dict[str, Any]) -> None:
        """Put in place of each part of a fresh object the equal one that came first; changes `obj`.

        Sections (metadata, spec, status) are taken apart without a look at them as a whole: no two are equal.
        """
        if len(self._known) > MOST_PARTS:
            self._known.clear()
        for section, value in obj.items():
            if value.__class__ is dict:
                self._take_apart(value)
            elif value.__class__ is str:
                obj[section] = self._known.setdefault(value, value)

    def _take_apart(self, part: dict[str, Any]) -> None:
        known = self._known
        for key, child in part.items():
            kind = child.__class__
            if kind is str:
                part[key] = known.setdefault(child, child)
            elif kind is dict or kind is list:
                part[key] = self._shared(child)

    def _shared(self, part: Any) -> Any:
        written = orjson.dumps(part)
        found = self._known.get(written)
        if found is not None:
            return found
        if part.__class__ is dict:
            self._take_apart(part)
        else:
            self._take_apart_list(part)
        if len(written) <= LARGEST_PART:
            self._known[written] = part
        return part

    def _take_apart_list(self, part: list[Any]) -> None:
        for index, child in enumerate(part):
            kind = child.__class__
            if kind is str:
                part[index] = self._known.setdefault(child, child)
            elif kind is dict or kind is list:
                part[index] = self._shared(child)
