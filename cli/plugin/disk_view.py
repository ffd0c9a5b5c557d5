"""Adapter disks: how full each is, by service and adapter, and what could be reclaimed. Pure.

Sizes are those that staging reported; equal contents lie on a disk once, however many services use them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from api.view import Json, dig, integer, items, name_of, namespace_of, text
from cli.plugin.output import BOLD, DIM, Cell, Line, columns, head, line, size, state


def view(
    bases: Sequence[Json], services: Sequence[Json], claims: Mapping[tuple[str, str], Json]
) -> list[dict[str, Any]]:
    """Return the adapter disks of the base artifacts. `claims` by (namespace, name)."""
    disks = []
    for base in sorted(bases, key=lambda one: (namespace_of(one), name_of(one))):
        name = text(base, "status", "adapterPersistentVolumeClaim")
        if name is None:
            continue
        claim = claims.get((namespace_of(base), name))
        rows = [row for service in sorted(services, key=name_of) for row in _rows(service, namespace_of(base), name)]
        disks.append(
            {
                "namespace": namespace_of(base),
                "base": name_of(base),
                "claim": name,
                "phase": text(claim, "status", "phase"),
                "capacity": text(claim, "status", "capacity", "storage")
                or text(claim, "spec", "resources", "requests", "storage"),
                "usedBytes": _used(rows),
                "lastReap": dig(base, "status", "lastReap"),
                "lastReapTime": text(base, "status", "lastReapTime"),
                "adapters": [{key: value for key, value in row.items() if key != "digest"} for row in rows],
            }
        )
    return disks


def _rows(service: Json, namespace: str, claim: str) -> list[dict[str, Any]]:
    if namespace_of(service) != namespace or text(service, "status", "adapterDiskPersistentVolumeClaim") != claim:
        return []
    return [
        {
            "service": name_of(service),
            "adapter": dig(entry, "name"),
            "state": dig(entry, "state"),
            "sizeBytes": integer(entry, "sizeBytes"),
            "digest": dig(entry, "digest"),
        }
        for entry in items(service, "status", "adapters")
    ]


def _used(rows: Sequence[Mapping[str, Any]]) -> int:
    """Bytes on the disk: each content once."""
    contents = {row["digest"] or f"{row['service']}/{row['adapter']}": row["sizeBytes"] or 0 for row in rows}
    return sum(contents.values())


def lines(disks: Sequence[Mapping[str, Any]]) -> list[Line]:
    """Return the disks for people."""
    if not disks:
        return [line("no adapter disk here")]
    out: list[Line] = []
    for disk in disks:
        facts = " ".join(word for word in (disk["capacity"], disk["phase"]) if word)
        out.append(line((f"{disk['namespace']}/{disk['claim']}", BOLD), f"   {facts}   base {disk['base']}"))
        out.append(line(f"  in use: {size(disk['usedBytes'])}   {_reap_words(disk)}"))
        rows: list[list[Cell]] = [head("SERVICE", "ADAPTER", "STATE", "SIZE")]
        rows += [
            [row["service"], row["adapter"], state(row["state"] or "Pending"), size(row["sizeBytes"])]
            for row in disk["adapters"]
        ]
        out += columns(rows, indent=2) if disk["adapters"] else [line("  ", ("no adapter on it", DIM))]
        out.append(line(""))
    return out[:-1]


def _reap_words(disk: Mapping[str, Any]) -> str:
    reap = disk["lastReap"]
    if not reap:
        return "reclaimable: not measured yet (--measure)"
    told = str(reap.get("message") or reap.get("reason") or "")
    count = reap.get("reclaimedBytes")
    if "dry run" in told:
        return f"reclaimable: {size(count)}"
    return f"last sweep: freed {size(count)}" + (f" at {disk['lastReapTime']}" if disk["lastReapTime"] else "")
