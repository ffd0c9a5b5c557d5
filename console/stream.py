"""The difference between a visitor's page and the current one, as server-sent events. Pure, except for pauses."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import datetime
from hashlib import blake2b

import orjson

from console.board import Page
from console.markup import Html
from console.page import Frame, after_rows, before_rows
from console.parts import PARTS, opened, part_views
from console.rows import row_id, service_rows
from console.views import ServiceView
from kube.slices import Slices


def stamp_of(page: Page) -> str:
    """Return a short text that differs when anything on the page differs."""
    shown = repr((sorted(part_views(page).items()), page.rows))
    return blake2b(shown.encode("utf-8", "replace"), digest_size=9).hexdigest()


class Known:
    """What one visitor sees; nothing at first."""

    def __init__(self) -> None:
        self._parts: dict[str, object] = {}
        self._rows: dict[str, ServiceView] | None = None

    def take(self, page: Page) -> None:
        """Note that the visitor has this page."""
        self._parts, self._rows = part_views(page), {row_id(view): view for view in page.rows}

    async def update(self, page: Page, now: datetime) -> bytes | None:
        """Return the event that updates the visitor to this page, None when nothing differs."""
        parts = {name for name, view in part_views(page).items() if self._parts.get(name, self) != view}
        rows = {row_id(view): view for view in page.rows}
        had = self._rows or {}
        moved = self._rows is None or list(rows) != list(had)  # a first update lists the rows to keep, maybe none
        changed = [name for name, view in rows.items() if had.get(name) != view]
        if not (parts or moved or changed):
            return None
        slices, bodies = Slices(), {}
        for name in changed:
            bodies[name] = str(service_rows(rows[name], now, opened=opened(page)))
            await slices.breathe()
        update: dict[str, object] = {
            "stamp": stamp_of(page),
            "rows": bodies,
            "parts": {name: str(PARTS[name](page, now)) for name in sorted(parts)},
        }
        if moved:
            update["order"] = list(rows)
        self.take(page)
        return event("update", update)


def event(name: str, data: object) -> bytes:
    """Return one server-sent event; JSON contains no raw line ends, so the data is one line."""
    return b"event: " + name.encode() + b"\ndata: " + orjson.dumps(data) + b"\n\n"


async def whole_page(page: Page, frame: Frame, now: datetime) -> AsyncIterator[Html]:
    """Yield the whole page in pieces, with pauses."""
    yield before_rows(page, frame, stamp_of(page), now)
    slices = Slices()
    for view in page.rows:
        yield service_rows(view, now, opened=opened(page))
        await slices.breathe()
    yield after_rows(page, now)
