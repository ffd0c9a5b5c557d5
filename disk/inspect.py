"""inspect: reports the content of a disk by service and adapter, and how much space can be reclaimed. Read-only."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from pathlib import Path

from api import words
from api.reasons import Reason
from api.text import clean, dump_json
from disk.failures import DiskFailure
from disk.fs import is_directory, list_names
from disk.layout import ASIDE, STAGING, UNLOAD, Layout, UnsafeNameError
from disk.records import Declared, DiskMarker, Done, Entry, is_complete, load, newest_change


@dataclass(frozen=True, slots=True)
class AdapterRow:
    """One adapter of one service. `state`: Live, Held, Missing (declared, but absent), Undeclared, Damaged, Unknown."""

    service_uid: str
    path: str
    state: str
    size_bytes: int
    digest: str
    rank: int | None
    age_seconds: int | None


@dataclass(frozen=True, slots=True)
class StoreRow:
    """One stored content and how many adapters use it."""

    digest: str
    size_bytes: int
    adapters: int


@dataclass(frozen=True, slots=True)
class Report:
    """The report. `reclaimable_bytes`: scratch, and stored contents that no adapter uses."""

    adapters: list[AdapterRow]
    store: list[StoreRow]
    scratch: dict[str, int]  # folder → bytes
    reclaimable_bytes: int

    def to_json(self) -> str:
        """Return the report as JSON."""
        return dump_json(asdict(self), indent=2)

    def to_table(self) -> str:
        """Return the report as a table for people."""
        head = ("SERVICE", "ADAPTER", "STATE", "SIZE", "RANK", "AGE", "DIGEST")
        rows = [
            (
                row.service_uid,
                row.path,
                row.state,
                words.size(row.size_bytes),
                str(row.rank or "-"),
                _age(row.age_seconds),
                row.digest.removeprefix("sha256:")[:12] or "-",
            )
            for row in self.adapters
        ]
        lines = _columns([head, *rows])
        stored = sum(row.size_bytes for row in self.store)
        lines += ["", f"{len(self.store)} contents in the store, {words.size(stored)}"]
        lines += [f"{folder}: {words.size(size)}" for folder, size in self.scratch.items() if size]
        lines.append(f"reclaimable: {words.size(self.reclaimable_bytes)}")
        return "\n".join(lines)


def inspect_disk(root: Path, *, now: float | None = None) -> Report:
    """Inspect a disk. `now`: seconds since the epoch, for tests. Raises: DiskFailure DiskNotOurs, OSError."""
    layout = Layout(root)
    if load(DiskMarker, layout.marker) is None:
        raise DiskFailure(Reason.DISK_NOT_OURS, f"{root} has no marker {layout.marker.name}")
    current = time.time() if now is None else now
    adapters: list[AdapterRow] = []
    used: dict[str, int] = {}
    for service in sorted(_services(layout)):
        for row in _rows(layout, service, current):
            adapters.append(row)
            used[row.digest] = used.get(row.digest, 0) + 1
    store = [
        StoreRow(entry.digest, entry.size_bytes, used.get(entry.digest, 0))
        for name in list_names(layout.store)
        if (entry := load(Entry, layout.store / name / "entry.json")) is not None
    ]
    scratch = {name: _bytes_below(layout.root / name) for name in (STAGING, ASIDE, UNLOAD)}
    reclaimable = sum(scratch.values()) + sum(row.size_bytes for row in store if row.adapters == 0)
    return Report(adapters, store, scratch, reclaimable)


def _services(layout: Layout) -> set[str]:
    live = {name for name in list_names(layout.root) if not name.startswith(".") and is_directory(layout.root / name)}
    known = {name.removesuffix(".json") for name in list_names(layout.declared_root) if not name.startswith(".")}
    return (live | known) - {"lost+found"}


def _rows(layout: Layout, service: str, now: float) -> list[AdapterRow]:
    try:
        declared = load(Declared, layout.declared(service))
        paths = set(list_names(layout.subtree(service))) | set(declared.declared if declared is not None else ())
        done = {path: load(Done, layout.done(service, path)) for path in paths}
    except UnsafeNameError:
        return []
    wanted = set(declared.declared) if declared is not None else set()
    return [_row(layout, service, path, done=done[path], declared=path in wanted, now=now) for path in sorted(paths)]


def _row(layout: Layout, service: str, path: str, *, done: Done | None, declared: bool, now: float) -> AdapterRow:
    live = layout.live(service, path)
    there = is_directory(live)
    if not there:
        state = "Held" if done is not None and done.state == "held" else "Missing"
    elif not declared:
        state = "Undeclared"
    elif done is None:
        state = "Unknown"
    else:
        state = "Live" if is_complete(live, done.files) else "Damaged"
    size = done.size_bytes if done is not None else (_bytes_below(live) if there else 0)
    age = int(now - newest_change(live)) if there else None
    return AdapterRow(
        service, path, state, size, done.digest if done is not None else "", done.rank if done else None, age
    )


def _bytes_below(path: Path) -> int:
    info = path.lstat() if path.exists() else None
    if info is None:
        return 0
    if not is_directory(path):
        return info.st_size
    return sum(_bytes_below(path / name) for name in list_names(path))


def _age(seconds: int | None) -> str:
    """Return an age as kubectl prints it."""
    if seconds is None:
        return "-"
    for unit, length in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= 2 * length:
            return f"{seconds // length}{unit}"
    return f"{max(0, seconds)}s"


def _columns(rows: list[tuple[str, ...]]) -> list[str]:
    rows = [tuple(map(clean, row)) for row in rows]
    widths = [max(len(row[index]) for row in rows) for index in range(len(rows[0]))]
    return ["   ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
