"""Passes wait while many reviews come in, and only then."""

from __future__ import annotations

import asyncio

import pytest

from kube.courtesy import MANY, SPACING, WINDOW, Courtesy


class World:
    """A clock and a count of answered reviews."""

    def __init__(self) -> None:
        self.now, self.answered = 100.0, 7
        self.courtesy = Courtesy(lambda: self.answered, clock=lambda: self.now)

    def go_on(self, seconds: float, reviews_a_second: float) -> None:
        self.now += seconds
        self.answered += round(seconds * reviews_a_second)


@pytest.mark.parametrize("rate", [0, 1, 20, MANY * 0.9])
def test_without_many_reviews_passes_begin_at_once(rate: float) -> None:
    world = World()
    world.go_on(1000, 0)
    for _ in range(100):
        world.go_on(1.0, rate)
        assert world.courtesy.wait_seconds() == 0


def test_while_many_come_passes_are_spaced_out_and_afterwards_not() -> None:
    world = World()
    world.go_on(2 * WINDOW, 200)
    waits = [world.courtesy.wait_seconds() for _ in range(4)]
    assert waits == pytest.approx([0, SPACING, 2 * SPACING, 3 * SPACING])
    world.go_on(4 * SPACING, 3000)
    assert world.courtesy.wait_seconds() == pytest.approx(0)
    world.go_on(2 * WINDOW, 0)
    world.courtesy.wait_seconds()
    world.go_on(2 * WINDOW, 0)
    assert [world.courtesy.wait_seconds() for _ in range(50)] == [0.0] * 50


def test_no_pass_waits_longer_than_all_who_came_before() -> None:
    world = World()
    world.go_on(2 * WINDOW, 500)
    assert max(world.courtesy.wait_seconds() for _ in range(80)) <= 80 * SPACING


async def test_between_two_passes_the_loop_turns() -> None:
    courtesy, order = Courtesy(), list[str]()

    async def worker() -> None:
        for _ in range(3):
            await courtesy.turn()
            order.append("pass")

    async def somebody_else() -> None:
        while order.count("pass") < 12:
            order.append("other")
            await asyncio.sleep(0)

    async with asyncio.timeout(5):
        await asyncio.gather(somebody_else(), *(worker() for _ in range(4)))
    assert "pass pass" not in " ".join(order)


async def test_a_turn_is_waited_for() -> None:
    world = World()
    courtesy = Courtesy(lambda: world.answered, spacing=0.05, clock=lambda: world.now)
    world.go_on(2 * WINDOW, 500)
    loop = asyncio.get_running_loop()
    begun = loop.time()
    await asyncio.gather(*(courtesy.turn() for _ in range(4)))
    assert loop.time() - begun >= 0.14


async def test_without_admission_nothing_is_waited_for() -> None:
    courtesy = Courtesy()
    async with asyncio.timeout(5):
        for _ in range(10_000):
            await courtesy.turn()
