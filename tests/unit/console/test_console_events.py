"""The follower of our own events: a bounded ring, kept through trouble."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import pytest

from api.kinds import Kind
from app.console import MOST_EVENTS, EventFollower
from kube.errors import ApiError, Forbidden, Gone, Unreachable
from tests.waiting import until


@dataclass
class Page:
    items: list[dict[str, Any]]
    resource_version: str = "100000"


@dataclass
class Change:
    type: str
    object: dict[str, Any]


def event(number: int, **more: Any) -> dict[str, Any]:
    metadata = {"namespace": "a", "name": f"e{number}", "resourceVersion": str(number), "managedFields": ["x"]}
    return {"metadata": metadata, "reason": "AdapterLoaded", "message": f"m{number}", "count": 1} | more


class Api:
    """Lists, and changes that a test hands over; an error instead of a list ends it."""

    def __init__(self, *lists: list[dict[str, Any]] | ApiError) -> None:
        self.lists = list(lists)
        self.changes: asyncio.Queue[Change | ApiError] = asyncio.Queue()
        self.selectors: set[str | None] = set()

    async def list_pages(self, kind: Kind, namespace: str | None, *, field_selector: str) -> AsyncIterator[Page]:
        self.selectors.add(field_selector)
        found = self.lists.pop(0)
        if isinstance(found, ApiError):
            raise found
        yield Page(found)

    async def watch(
        self, kind: Kind, version: str, namespace: str | None, *, field_selector: str
    ) -> AsyncIterator[Change]:
        self.selectors.add(field_selector)
        while True:
            change = await self.changes.get()
            if isinstance(change, ApiError):
                raise change
            yield change


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.console.FIRST_PAUSE", 0.01)
    monkeypatch.setattr("app.console.LONGEST_PAUSE", 0.02)


async def test_the_newest_events_are_kept_and_only_those_of_aim_adapters_requested() -> None:
    api = Api([event(number) for number in range(500, 0, -1)])
    follower = EventFollower(api, None)  # type: ignore[arg-type]
    running = asyncio.create_task(follower.run())
    try:
        await until(lambda: bool(follower.newest))
        assert len(follower.newest) == MOST_EVENTS
        assert [one["message"] for one in follower.newest[-2:]] == ["m499", "m500"]
        assert "managedFields" not in follower.newest[0]["metadata"]
        before = follower.newest
        api.changes.put_nowait(
            Change(
                "MODIFIED", event(400) | {"count": 7, "metadata": event(400)["metadata"] | {"resourceVersion": "501"}}
            )
        )
        await until(lambda: follower.newest is not before)
        assert (follower.newest[-1]["message"], follower.newest[-1]["count"]) == ("m400", 7)
        api.changes.put_nowait(Change("DELETED", event(500)))
        api.changes.put_nowait(Change("ADDED", event(502)))
        await until(lambda: follower.newest[-1]["message"] == "m502")
        assert api.selectors == {"source=aim-adapters"}
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


TROUBLE = {
    "not allowed": (Forbidden(403, "Forbidden", "no"), "has no permission to list and watch events"),
    "not reachable": (Unreachable(0, "Refused", "no"), "the API server cannot be reached (Unreachable)"),
}


@pytest.mark.parametrize(("error", "words"), TROUBLE.values(), ids=TROUBLE)
async def test_a_problem_is_reported_until_it_is_over(error: ApiError, words: str) -> None:
    api = Api([event(1)], error, error, [event(2)])
    follower = EventFollower(api, None)  # type: ignore[arg-type]
    running = asyncio.create_task(follower.run())
    try:
        await until(lambda: bool(follower.newest))
        api.changes.put_nowait(Gone(410, "Expired", "too old"))
        await until(lambda: follower.problem is not None)
        assert words in str(follower.problem)
        await until(lambda: follower.newest[-1]["message"] == "m2")
        await until(lambda: follower.problem is None)
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
