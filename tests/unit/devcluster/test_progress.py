"""What people read while a cluster starts."""

import io

import pytest

from devcluster.progress import Event, Printer, Progress, Step, StepError, poll, render


class Clock:
    """Time that only moves when a test says so."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.now += seconds


async def probe_after(clock: Clock, ready_at: float) -> str | None:
    return None if clock.now >= ready_at else "connection refused"


async def test_a_slow_step_says_what_it_waits_for_and_what_it_sees_every_few_seconds() -> None:
    clock, events = Clock(), list[Event]()
    progress = Progress(events.append, clock)
    with progress.step("kube-apiserver /readyz") as step:
        await poll(
            step, lambda: probe_after(clock, 112.0), expected="200 ok", timeout_s=60, sleep=clock.sleep, period_s=0.5
        )
    ticks = [event for event in events if event.kind == "tick"]
    assert [round(event.elapsed_s) for event in ticks] == [1, 6]
    assert {event.text for event in ticks} == {"connection refused"}
    assert events[-1].kind == "done"
    assert events[-1].elapsed_s == pytest.approx(12.0)
    assert progress.took == {"kube-apiserver /readyz": 12.0}


async def test_a_step_that_never_ends_says_what_was_expected_seen_and_where_to_look() -> None:
    clock, events = Clock(), list[Event]()
    progress = Progress(events.append, clock)
    with pytest.raises(StepError) as caught, progress.step("etcd") as step:
        await poll(
            step,
            lambda: probe_after(clock, 999.0),
            expected="an answer",
            timeout_s=10,
            sleep=clock.sleep,
            log="/d/logs/etcd.log",
        )
    text = str(caught.value)
    for words in ("etcd: failed", "an answer within 10 s", "connection refused", "/d/logs/etcd.log"):
        assert words in text
    assert clock.now == pytest.approx(110.0, abs=0.3)


def test_a_quick_step_is_one_line() -> None:
    out = io.StringIO()
    progress = Progress(Printer(out), Clock())
    with progress.step("addresses") as step:
        step.see("looking")
    progress.ready("ready: /d")
    assert out.getvalue().splitlines() == ["   0.0s  addresses: looking", "   0.0s  ready: /d"]


@pytest.mark.parametrize(
    ("event", "line"),
    [
        (Event("start", "x"), None),
        (Event("tick", "x", "", 2.0), "   2.0s  … x"),
        (Event("tick", "x", "refused", 2.0), "   2.0s  … x: refused"),
        (Event("note", "", "left out", 3.0), "   3.0s  left out"),
        (Event("fail", "x", "x: failed"), "x: failed"),
    ],
)
def test_lines(event: Event, line: str | None) -> None:
    assert render(event) == line


def test_a_failed_step_is_not_reported_as_done() -> None:
    events: list[Event] = []
    progress = Progress(events.append, Clock())

    def fail(step: Step) -> None:
        raise StepError(step.name, "a", "b")

    with pytest.raises(StepError), progress.step("x") as step:
        fail(step)
    assert [event.kind for event in events] == ["start"]
