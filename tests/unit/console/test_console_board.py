"""The index: after any changes it is what a fresh one would be, and pages are cut from it."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from api.kinds import AIM_SERVICE
from console.board import Board, Summary
from console.query import Query
from console.stream import Known, stamp_of
from tests.console.scene import NOW, Scene, adapter, service


def fresh(scene: Scene) -> Board:
    """A board that has seen nothing of the past."""
    board = Board(scene.console.board._sources)
    for one in scene.informers[AIM_SERVICE].items():
        board.changed(None, one)
    return board


def some_service(dice: random.Random, name: str) -> dict[str, Any]:
    states = ["Loaded", "Downloading", "Failed", "Pending", "Downloaded"]
    entries = [adapter(f"a{number}", dice.choice(states)) for number in range(dice.randrange(4))]
    one = service(f"team-{dice.randrange(3)}", name, *entries, status=dice.choice(["Running", "Failed", "Pending"]))
    if dice.random() < 0.3:
        del one["status"]["adapterDiskPersistentVolumeClaim"]
    return one


async def test_step_by_step_equals_all_at_once() -> None:
    dice = random.Random(7)
    scene = Scene()
    for step in range(120):
        name = f"s{dice.randrange(40)}"
        one = some_service(dice, name)
        if dice.random() < 0.3:
            scene.informers[AIM_SERVICE].drop((one["metadata"]["namespace"], name))
        else:
            scene.put(one)
        if dice.random() < 0.2:
            for query in (Query(), Query(words="team-1"), Query(state="attention", size=25)):
                assert await scene.console.board.page(query) == await fresh(scene).page(query), step


async def test_the_summary_counts_everything_whatever_the_filter() -> None:
    scene = Scene()
    scene.base()
    scene.put(
        service("team-a", "a", adapter("x")),
        service("team-a", "b", adapter("x"), adapter("y", "Failed"), status="Degraded"),
    )
    page = await scene.console.board.page(Query(words="nothing fits"))
    assert page.summary == Summary(
        services=2,
        by_status=(("Running", 1), ("Degraded", 1)),
        adapters=3,
        by_state=(("Loaded", 2), ("Failed", 1)),
        trouble=1,
        staging=0,
        disks=1,
        used=118 * 2**20,
    )
    assert (page.matches, page.rows, page.disks) == (0, (), ())
    (disk,) = (await scene.console.board.page(Query(words="team-a/b"))).disks
    assert (disk.services, disk.capacity) == (2, 50 * 2**30)


async def test_pages() -> None:
    scene = Scene()
    scene.put(*(service("team-a", f"s{number:03d}") for number in range(130)))
    page = await scene.console.board.page(Query(page=3))
    assert (page.pages, page.first, [view.name for view in page.rows][:1], len(page.rows)) == (3, 101, ["s100"], 30)
    beyond = await scene.console.board.page(Query(page=99))
    assert beyond.rows == page.rows


async def told(scene: Scene, known: Known, query: Query | None = None) -> dict[str, Any] | None:
    import json

    update = await known.update(await scene.console.board.page(query or Query()), NOW)
    if update is None:
        return None
    name, data = update.decode().strip().split("\n")
    assert name == "event: update"
    found: dict[str, Any] = json.loads(data.removeprefix("data: "))
    return found


async def test_only_what_changed_is_sent() -> None:
    scene = Scene()
    scene.base()
    scene.put(*(service("team-a", f"s{number:03d}", adapter("x")) for number in range(60)))
    known = Known()
    first = await told(scene, known)
    assert first is not None
    assert (len(first["rows"]), len(first["order"])) == (50, 50)
    assert await told(scene, known) is None

    def downloading(percentage: int) -> Callable[[dict[str, Any]], None]:
        def edit(one: dict[str, Any]) -> None:
            one["status"]["adapters"] = [adapter("x", "Downloading", progress={"percentage": percentage})]

        return edit

    scene.change("team-a", "s007", downloading(3))
    update = await told(scene, known)
    assert update is not None
    assert list(update["rows"]) == ["s/team-a/s007"]
    assert (sorted(update["parts"]), "order" in update) == (["summary"], False)
    scene.change("team-a", "s007", downloading(4))
    update = await told(scene, known)
    assert update is not None
    assert (list(update["rows"]), update["parts"]) == (["s/team-a/s007"], {})
    scene.change("team-a", "s059", lambda one: one["metadata"].update(labels={"x": "y"}))
    assert await told(scene, known) is None  # on another page, and nothing shown of it changed
    scene.refuse("bad", "spec.rank: Invalid value")
    update = await told(scene, known)
    assert update is not None
    assert (update["rows"], list(update["parts"])) == ({}, ["refusals"])
    scene.informers[AIM_SERVICE].drop(("team-a", "s000"))
    update = await told(scene, known)
    assert update is not None
    assert (list(update["rows"]), update["order"][0]) == (["s/team-a/s050"], "s/team-a/s001")


async def test_a_first_update_names_the_rows_even_when_there_are_none() -> None:
    first = await told(Scene(), Known(), Query(words="none"))
    assert first is not None
    assert first["order"] == []


async def test_a_base_that_arrives_later_is_seen() -> None:
    scene = Scene()
    scene.put(service("team-a", "gemma", adapter("x")))
    before = await scene.console.board.page(Query())
    assert before.rows[0].base is None
    scene.base(percentage=4)
    after = await scene.console.board.page(Query())
    assert after.rows[0].base is not None
    assert after.rows[0].base.percentage == 4
    assert stamp_of(before) != stamp_of(after)


async def test_without_visitors_nothing_is_worked_out() -> None:
    scene = Scene()
    scene.many(300)
    board = scene.console.board
    for number in range(1_000):
        scene.put(service("team-00", f"short-lived-{number}"))
        scene.informers[AIM_SERVICE].drop(("team-00", f"short-lived-{number}"))
    assert (len(board._dirty), len(board._briefs)) == (300, 0)
    await board.page(Query())
    assert (len(board._dirty), len(board._briefs)) == (0, 300)
