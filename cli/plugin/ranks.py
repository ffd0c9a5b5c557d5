"""Ranks of a service's adapters against its ceiling: `rank SERVICE`. The reading is a snapshot's."""

from __future__ import annotations

from typing import Any

from cli.plugin.gather import gather
from cli.plugin.output import BAD, BOLD, DIM, Cell, Line, columns, head, line
from cli.plugin.snapshot import Snapshot
from cli.plugin.status import view as status_view
from kube.client import Client
from rules.rank import SUPPORTED_RANKS


async def read(client: Client, namespace: str, service: str) -> Snapshot:
    """Read what `view` looks at."""
    return await gather(client, namespace, service)


def view(seen: Snapshot) -> dict[str, Any]:
    """Return ceiling and ranks for programs."""
    shown = status_view(seen)
    return {
        "ceiling": shown["ceiling"],
        "adapters": [{key: one[key] for key in ("name", "declaredRank", "rank", "state")} for one in shown["adapters"]],
    }


def lines(seen: Snapshot) -> list[Line]:
    """Return ceiling and ranks for people."""
    shown = view(seen)
    ceiling = shown["ceiling"] or {}
    value = ceiling.get("value")
    out = [line("ceiling ", (str(value or "not known yet"), BOLD), f" ({ceiling.get('origin') or '-'})")]
    if ceiling.get("asked") is not None:
        out.append(line(f"asked for: {ceiling['asked']}"))
    rows: list[list[Cell]] = [head("ADAPTER", "DECLARED", "REAL", "FITS")]
    for one in shown["adapters"]:
        highest = max(one["declaredRank"] or 0, one["rank"] or 0)
        fits: Cell = "-" if value is None or not highest else "yes" if highest <= value else ("no", BAD)
        rows.append([one["name"], str(one["declaredRank"] or "-"), str(one["rank"] or "-"), fits])
    return [*out, *(columns(rows) if shown["adapters"] else []), line((f"supported: {SUPPORTED_RANKS}", DIM))]
