"""Waiting for a result, and following services; on a terminal the output is live."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from api import view
from api.kinds import AIM_SERVICE
from api.text import clean
from api.view import Json
from cli.plugin.access import FOUND, ProblemError
from cli.plugin.edit import Waited
from cli.plugin.output import Line, cleaned, columns, line
from cli.plugin.status import overview
from kube.client import Client
from kube.errors import Gone, Transient

_PERIOD = 1.0  # seconds between two reads
_REDRAW = 0.5  # seconds between two screens
_REPEAT = 30.0  # seconds after which a log repeats what the command waits for
_CUT_PAUSE = 2.0  # seconds before a broken watch is opened again


async def wait_for(
    client: Client, namespace: str, name: str, judge: Callable[[Json], Waited], *, seconds: float, what: str
) -> str:
    """Read a service until `judge` reports that the wait is done; return its words.

    Raises: ProblemError (exit code 1) when the wait has failed, or after `seconds`.
    """
    began = time.monotonic()
    last = Waited(False, "")
    failing_since: float | None = None
    with _ticker(what) as note:
        while time.monotonic() - began < seconds:
            try:
                service = await client.find(AIM_SERVICE, namespace, name)
            except Transient:  # the API server is busy or restarts: wait for it, too
                service = None
            if service is not None:
                last = judge(service)
            if last.done:
                return last.says
            now = time.monotonic()
            failing_since = (failing_since or now) if last.failed else None
            if failing_since is not None and now - failing_since >= 3 * _PERIOD:
                raise ProblemError(last.says, FOUND)
            note(last.says)
            await asyncio.sleep(_PERIOD)
    raise ProblemError(f"timed out after {seconds:g} s: {last.says or what}", FOUND)


@contextmanager
def _ticker(what: str) -> Iterator[Callable[[str], None]]:
    """Show on standard error what the command waits for, and how long already: on a terminal in one moving line.

    Elsewhere each change is a line. The line is repeated every half a minute, so that a log shows that the command is
    still waiting.
    """
    began = time.monotonic()
    if not sys.stderr.isatty():
        said, at = "", began

        def note(words: str) -> None:
            nonlocal said, at
            if words != said or time.monotonic() - at >= _REPEAT:
                said, at = words, time.monotonic()
                sys.stderr.write(f"waiting for {what} ({int(time.monotonic() - began)}s): {clean(words)}\n")
                sys.stderr.flush()

        yield note
        return
    from rich.console import Console
    from rich.text import Text

    with Console(stderr=True).status(Text(f"waiting for {what}")) as shown:
        yield lambda words: shown.update(
            Text(f"waiting for {what} ({int(time.monotonic() - began)}s): {clean(words)}")  # not markup
        )


class Following:
    """The services of a watch, and what changed since the last output."""

    def __init__(self) -> None:
        self.services: dict[tuple[str, str], Json] = {}
        self.changes: list[str] = []

    def take(self, service: Json, *, gone: bool = False) -> None:
        """Take an event."""
        key = (view.namespace_of(service), view.name_of(service))
        old = self.services.get(key)
        if gone:
            self.services.pop(key, None)
            self.changes.append(f"{key[0]}/{key[1]} deleted")
            return
        self.services[key] = service
        self.changes += differences(old, service)

    def lines(self) -> list[Line]:
        """Return the screen: all services, and below them the adapters that are not loaded."""
        _, table = overview(list(self.services.values()))
        moving = [
            [
                f"  {view.namespace_of(service)}/{view.name_of(service)}",
                str(view.dig(entry, "name")),
                str(view.dig(entry, "state")),
                _progress(entry),
            ]
            for service in sorted(self.services.values(), key=lambda one: (view.namespace_of(one), view.name_of(one)))
            for entry in view.items(service, "status", "adapters")
            if view.dig(entry, "state") != "Loaded"
        ]
        return [*table, line(""), *columns(moving)] if moving else table


def _progress(entry: Json) -> str:
    percent = view.dig(entry, "progress", "percentage")
    return f"{percent} %" if percent is not None else (view.text(entry, "lastError") or "")


def differences(old: Json | None, new: Json) -> list[str]:
    """Return what changed between two states of a service, a line each."""
    place = f"{view.namespace_of(new)}/{view.name_of(new)}"
    lines = []
    was, now = view.text(old, "status", "status"), view.text(new, "status", "status") or "Pending"
    if was != now:
        lines.append(f"{place} {was or 'new'} → {now}")
    before = {view.dig(entry, "name"): entry for entry in view.items(old, "status", "adapters")}
    after = {view.dig(entry, "name"): entry for entry in view.items(new, "status", "adapters")}
    for name, entry in after.items():
        then = view.text(before.get(name), "state")
        if then != view.text(entry, "state"):
            error = view.text(entry, "lastError")
            lines.append(
                f"{place} adapter {name} {then or 'new'} → {view.text(entry, 'state')}"
                + (f": {error}" if error else "")
            )
    lines += [f"{place} adapter {name} removed" for name in before if name not in after]
    return lines


async def follow(client: Client, namespace: str | None, name: str | None, seconds: float | None) -> None:
    """Follow services for a time, or until Ctrl-C; prints a screen, or lines into a pipe."""
    following = Following()
    watching = asyncio.create_task(_watch(client, namespace, name, following))
    try:
        await asyncio.wait_for(_draw(following, watching), seconds)
    except TimeoutError:
        return
    finally:
        watching.cancel()


async def _watch(client: Client, namespace: str | None, name: str | None, following: Following) -> None:
    while True:
        try:
            found, version = await client.list_all(AIM_SERVICE, namespace)
            for service in found:
                if name is None or view.name_of(service) == name:
                    following.take(service)
            async for event in client.watch(AIM_SERVICE, version, namespace):
                if event.type != "BOOKMARK" and (name is None or view.name_of(event.object) == name):
                    following.take(event.object, gone=event.type == "DELETED")
        except Gone:
            continue
        except Transient:
            await asyncio.sleep(_CUT_PAUSE)


async def _draw(following: Following, watching: asyncio.Task[None]) -> None:
    if not sys.stdout.isatty():
        while not watching.done():
            changes, following.changes = following.changes, []
            for change in changes:
                sys.stdout.write(f"{time.strftime('%H:%M:%S')} {clean(change)}\n")
            sys.stdout.flush()
            await asyncio.sleep(_REDRAW)
    else:
        from rich.console import Console
        from rich.live import Live
        from rich.text import Text

        console = Console(highlight=False, no_color=bool(os.environ.get("NO_COLOR")))
        with Live(console=console, screen=True, auto_refresh=False) as live:
            while not watching.done():
                pieces = [piece for row in following.lines() for piece in (*map(cleaned, row), ("\n", ""))]
                live.update(Text.assemble(*pieces, no_wrap=True, overflow="ellipsis"), refresh=True)
                await asyncio.sleep(_REDRAW)
    await watching  # the watch ended: raise its error
