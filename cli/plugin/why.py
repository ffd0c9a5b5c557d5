"""`why`: why an adapter is not served. Walks the chain from the service to the server, to the first broken link.

Pure: a snapshot in, links out. Each link is a function `Snapshot -> Link`; tuples list them in order.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from api import view
from cli.plugin.chain import Link
from cli.plugin.chain_adapter import OF_ADAPTER, refused_adapter
from cli.plugin.chain_service import OF_SPEC, OF_STORAGE, server
from cli.plugin.output import BAD, BOLD, DIM, GOOD, WAIT, Line, line
from cli.plugin.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class Walk:
    """The walk for one adapter (None: for the service): all links up to the first that does not hold."""

    adapter: str | None
    links: tuple[Link, ...]

    @property
    def broken(self) -> Link | None:
        """The link at which the walk ended, None if all hold."""
        last = self.links[-1] if self.links else None
        return last if last is not None and last.state != "ok" else None


def walk(seen: Snapshot, adapter: str | None = None) -> list[Walk]:
    """Return the walks: for the one adapter, else for each declared one, else for the service alone."""
    names = [adapter] if adapter is not None else [ref.name for ref in view.adapter_refs(seen.service)]
    own = _follow(OF_SPEC, seen)
    if own[-1].state != "ok":
        return [Walk(adapter, own)]
    refused = {name: link for name in names if (link := refused_adapter(seen, name)) is not None}
    storage = (*own, *_follow(OF_STORAGE, seen))
    if not names or (storage[-1].state != "ok" and not refused):
        return [Walk(adapter, storage if storage[-1].state != "ok" else (*storage, server(seen)))]
    return [
        Walk(name, (*own, refused[name]) if name in refused else _walk_adapter(seen, storage, name))
        for name in dict.fromkeys(names)
    ]


def _walk_adapter(seen: Snapshot, storage: tuple[Link, ...], name: str) -> tuple[Link, ...]:
    if storage[-1].state != "ok":
        return storage
    return (*storage, *_follow(tuple(_bind(step, name) for step in OF_ADAPTER), seen))


def _bind(step: Callable[[Snapshot, str], Link], name: str) -> Callable[[Snapshot], Link]:
    return lambda seen: step(seen, name)


def _follow(steps: tuple[Callable[[Snapshot], Link], ...], seen: Snapshot) -> tuple[Link, ...]:
    links: list[Link] = []
    for step in steps:
        links.append(step(seen))
        if links[-1].state != "ok":
            break
    return tuple(links)


# -- output ---------------------------------------------------------------------------------------------------------

_MARKS = {"ok": ("✔", GOOD), "waiting": ("…", WAIT), "broken": ("✖", BAD)}


def as_view(seen: Snapshot, walks: list[Walk]) -> dict[str, Any]:
    """Return the walks for programs."""
    return {
        "service": {"namespace": seen.namespace, "name": seen.name},
        "served": all(one.broken is None for one in walks),
        "walks": [
            {
                "adapter": one.adapter,
                "broken": one.broken.link if one.broken else None,
                "links": [asdict(link) for link in one.links],
            }
            for one in walks
        ],
    }


def as_lines(seen: Snapshot, walks: list[Walk]) -> list[Line]:
    """Return the walks for people: the first broken one in full, the others in one line each."""
    main = next((one for one in walks if one.broken is not None and one.broken.state == "broken"), None) or next(
        (one for one in walks if one.broken is not None), walks[0]
    )
    subject = f", adapter {main.adapter}" if main.adapter else ""
    lines = [line((f"{seen.namespace}/{seen.name}{subject}", BOLD), f" ({view.adapter_mode(seen.service)})")]
    for link in main.links:
        mark, style = _MARKS[link.state]
        reason = f" [{link.reason}]" if link.reason else ""
        lines.append(line("  ", (mark, style), f" {link.link:<8} {link.says}", (reason, DIM)))
        if link.fix:
            lines.append(line(f"      {'fix' if link.state == 'broken' else 'next'}:  ", (link.fix, BOLD)))
        if link.look:
            lines.append(line("      look: ", link.look))
    if main.broken is None:
        lines.append(line("  ", ("nothing is broken", GOOD)))
    return [*lines, *(_short(other) for other in walks if other is not main)]


def _short(one: Walk) -> Line:
    if one.broken is None:
        return line("  ", ("✔", GOOD), f" adapter {one.adapter} is served")
    mark, style = _MARKS[one.broken.state]
    return line(
        "  ",
        (mark, style),
        f" adapter {one.adapter}: {one.broken.link}: {one.broken.says}",
        (f" [{one.broken.reason}]", DIM),
    )
