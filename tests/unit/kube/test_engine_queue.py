"""The work queue: the core with times given, the waiting shell on a real loop."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube.errors import ServerError, Unreachable
from kube.queue import FIRST_BACKOFF, LARGEST_BACKOFF, QueueCore, WorkQueue

A, B, C = ("ns", "a"), ("ns", "b"), ("ns", "c")


def core() -> QueueCore:
    return QueueCore(jitter=lambda: 0.0)


def pop(queue: QueueCore, now: float = 0.0) -> tuple[str, str] | None:
    found = queue.pop(now)
    return found[0] if found else None


def test_a_key_added_thrice_is_handled_once() -> None:
    queue = core()
    for _ in range(3):
        queue.add(A, 0)
    assert pop(queue) == A
    assert pop(queue) is None


def test_a_key_in_work_is_not_handed_out_again_until_done() -> None:
    queue = core()
    queue.add(A, 0)
    assert pop(queue) == A
    queue.add(A, 1)
    assert pop(queue) is None
    queue.done(A, 2)
    assert pop(queue, 2) == A


def test_namespaces_take_turns() -> None:
    queue = core()
    for name in ("1", "2", "3"):
        queue.add(("big", name), 0)
    queue.add(("small", "x"), 0)
    assert [pop(queue) for _ in range(4)] == [("big", "1"), ("small", "x"), ("big", "2"), ("big", "3")]


def test_edits_overtake_a_resync_which_still_gets_its_share() -> None:
    queue = core()
    for number in range(50):
        queue.add(("ns", f"old-{number}"), 0, low=True)
    for number in range(20):
        queue.add(("ns", f"new-{number}"), 0)
    first = [pop(queue) for _ in range(16)]
    assert sum(1 for key in first if key and key[1].startswith("old")) == 2


def test_an_edit_lifts_a_key_out_of_the_resync() -> None:
    queue = core()
    for key in (A, B, C):
        queue.add(key, 0, low=True)
    queue.add(C, 0)
    assert [pop(queue) for _ in range(4)] == [C, A, B, None]


def test_the_earliest_of_several_times_counts() -> None:
    queue = core()
    queue.add_after(A, 10, now=0)
    queue.add_after(A, 3, now=0)
    queue.add_after(A, 7, now=0)
    assert queue.next_due() == 3
    assert pop(queue, 2.9) is None
    assert pop(queue, 3) == A
    queue.done(A, 3)
    assert queue.next_due() is None


def test_a_pass_drops_the_time_that_was_set_before_it() -> None:
    queue = core()
    queue.add_after(A, 10, now=0)
    queue.add(A, 1)
    assert pop(queue, 1) == A
    queue.done(A, 2)
    assert pop(queue, 100) is None


def test_backoff_doubles_is_bounded_and_is_forgotten_after_success() -> None:
    queue = core()
    delays = [queue.retry(A, 0) for _ in range(40)]
    assert delays[:3] == [FIRST_BACKOFF, 2 * FIRST_BACKOFF, 4 * FIRST_BACKOFF]
    assert max(delays) == LARGEST_BACKOFF
    queue.forget(A)
    assert queue.retry(A, 0) == FIRST_BACKOFF


def test_trouble_of_the_server_is_tried_again_soon() -> None:
    queue = core()
    assert max(queue.retry(A, 0, at_most=15) for _ in range(40)) == 15
    assert Unreachable(0).largest_backoff == ServerError(503).largest_backoff == 15


def test_backoff_honours_what_the_server_asked_for() -> None:
    assert core().retry(A, 0, at_least=30) == 30


@given(st.lists(st.tuples(st.sampled_from("adtrpD"), st.integers(0, 3), st.booleans()), max_size=60))
def test_no_key_is_lost_and_none_is_in_two_hands(steps: list[tuple[str, int, bool]]) -> None:
    """Whatever the order of calls: a key asked for after its pass began is handed out again."""
    queue, now = core(), 0.0
    held: set[tuple[str, str]] = set()
    wanted: set[tuple[str, str]] = set()
    for action, number, low in steps:
        key = (f"ns-{number % 2}", str(number))
        now += 1
        if action == "a":
            queue.add(key, now, low=low)
            wanted.add(key)
        elif action == "t":
            queue.add_after(key, 5, now)
        elif action == "r":
            queue.retry(key, now)
        elif action in "pd":
            found = queue.pop(now)
            if found:
                assert found[0] not in held
                held.add(found[0])
                wanted.discard(found[0])
        elif held:
            key = sorted(held)[0]
            held.discard(key)
            queue.done(key, now)
    for key in sorted(held):
        queue.done(key, now)
    got: set[tuple[str, str]] = set()
    while found := queue.pop(now):
        got.add(found[0])
    assert wanted <= got


async def test_a_waiting_worker_gets_a_delayed_key() -> None:
    queue = WorkQueue("test")
    queue.add_after(A, timedelta(milliseconds=30))
    assert await asyncio.wait_for(queue.get(), 2) == A
    queue.close()


async def test_each_key_wakes_one_of_many_workers() -> None:
    queue = WorkQueue("test")
    workers = [asyncio.create_task(queue.get()) for _ in range(3)]
    await asyncio.sleep(0)
    for key in (A, B, C):
        queue.add(key)
    assert set(await asyncio.wait_for(asyncio.gather(*workers), 2)) == {A, B, C}
    queue.close()


async def test_keys_that_come_at_once_wake_as_many_workers() -> None:
    queue = WorkQueue("test")
    workers = [asyncio.create_task(queue.get()) for _ in range(4)]
    await asyncio.sleep(0)
    queue.add_all((A, B))
    await asyncio.sleep(0)
    queue.add_all_after((B, C), timedelta(milliseconds=30))
    done, waiting = await asyncio.wait(workers, timeout=0.3)
    assert sorted(worker.result() for worker in done) == sorted((A, B, C))
    queue.done(B)  # its time came while it was in work
    assert await asyncio.wait_for(waiting.pop(), 2) == B
    queue.close()


async def test_a_cancelled_worker_hands_its_wake_up_on() -> None:
    queue = WorkQueue("test")
    first, second = asyncio.create_task(queue.get()), asyncio.create_task(queue.get())
    await asyncio.sleep(0)
    queue.add(A)
    first.cancel()
    assert await asyncio.wait_for(second, 2) == A
    with pytest.raises(asyncio.CancelledError):
        await first
    queue.close()


async def test_due_keys_do_not_spin_the_loop_while_all_workers_are_busy() -> None:
    queue = WorkQueue("test")
    queue.add_after(A, timedelta(0))
    await asyncio.sleep(0.05)
    assert len(queue) == 1
    assert queue._timer is None
    queue.close()
