"""The progress of `dev up`: steps with a name, a start, what was last seen, and an end."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any, Literal, TextIO

Kind = Literal["start", "tick", "done", "fail", "note", "ready"]

_FIRST_TICK_S = 1.0  # a step that takes longer is shown
_TICK_S = 5.0  # and shown again, each time after a pause that is half as long again


@dataclass(frozen=True, slots=True)
class Event:
    """One line of progress. `elapsed_s` counts from the start of the step (of the whole run for notes)."""

    kind: Kind
    step: str
    text: str = ""
    elapsed_s: float = 0.0

    def as_json(self) -> dict[str, Any]:
        """Return the event as a JSON object."""
        return asdict(self)


class StepError(Exception):
    """A failed step of the start: what was expected, what was seen, and which log has more."""

    def __init__(self, step: str, expected: str, seen: str, log: str = "") -> None:
        self.step = step
        self.expected = expected
        self.seen = seen
        self.log = log
        super().__init__(self.describe())

    def describe(self) -> str:
        """Return the lines that a person reads."""
        lines = [f"{self.step}: failed", f"  expected: {self.expected}", f"  seen:     {self.seen}"]
        if self.log:
            lines.append(f"  log:      {self.log}")
        return "\n".join(lines)


class Step:
    """A running step; `see` reports what is observed now."""

    def __init__(self, name: str, emit: Callable[[Event], None], clock: Callable[[], float]) -> None:
        self.name = name
        self.seen = ""
        self._emit = emit
        self._clock = clock
        self.began = clock()
        self._report_at = self.began + _FIRST_TICK_S
        self._pause = _TICK_S

    @property
    def elapsed_s(self) -> float:
        """Return the seconds since the step began."""
        return self._clock() - self.began

    def see(self, what: str) -> None:
        """Record what is observed now, and report it if the last report of this step is some seconds old."""
        self.seen = what
        now = self._clock()
        if now >= self._report_at:
            self._report_at = now + self._pause
            self._pause *= 1.5
            self._emit(Event("tick", self.name, what, self.elapsed_s))


class Progress:
    """Turns steps into events for one listener."""

    def __init__(self, emit: Callable[[Event], None], clock: Callable[[], float] = time.monotonic) -> None:
        self._emit = emit
        self._clock = clock
        self._began = clock()
        self.took: dict[str, float] = {}  # seconds by step, for measurements

    def note(self, text: str) -> None:
        """Report something outside of steps."""
        self._emit(Event("note", "", text, self._clock() - self._began))

    def ready(self, text: str) -> None:
        """Report that the cluster is ready."""
        self._emit(Event("ready", "", text, self._clock() - self._began))

    def failed(self, error: StepError) -> None:
        """Report that the run ends here."""
        self._emit(Event("fail", error.step, error.describe(), self._clock() - self._began))

    @contextmanager
    def step(self, name: str) -> Iterator[Step]:
        """Announce a step; its end is reported when the block ends without an exception."""
        step = Step(name, self._emit, self._clock)
        self._emit(Event("start", name))
        yield step
        self.took[name] = round(step.elapsed_s, 2)
        self._emit(Event("done", name, step.seen, step.elapsed_s))


async def poll(
    step: Step,
    probe: Callable[[], Awaitable[str | None]],
    *,
    expected: str,
    timeout_s: float,
    sleep: Callable[[float], Awaitable[None]],
    log: str = "",
    period_s: float = 0.1,
) -> None:
    """Call `probe` until it returns None; before that it returns what is seen instead of the expected.

    Raises: StepError after `timeout_s` seconds.
    """
    while True:
        seen = await probe()
        if seen is None:
            step.seen = ""
            return
        step.see(seen)
        if step.elapsed_s > timeout_s:
            raise StepError(step.name, f"{expected} within {timeout_s:g} s", seen, log)
        await sleep(period_s)


class Printer:
    """Writes events as lines for people: one per finished step, and one every few seconds for a slow step."""

    def __init__(self, out: TextIO) -> None:
        self._out = out

    def __call__(self, event: Event) -> None:
        """Write one event."""
        line = render(event)
        if line is not None:
            self._out.write(line + "\n")
            self._out.flush()


def render(event: Event) -> str | None:
    """Return the line of an event, None if it has none."""
    seconds = f"{event.elapsed_s:6.1f}s"
    match event.kind:
        case "start":
            return None  # most steps end before a person has read their name; the first tick shows the others
        case "tick":
            return f"{seconds}  … {event.step}" + (f": {event.text}" if event.text else "")
        case "done":
            return f"{seconds}  {event.step}" + (f": {event.text}" if event.text else "")
        case "note" | "ready":
            return f"{seconds}  {event.text}"
        case "fail":
            return event.text
