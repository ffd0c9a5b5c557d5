"""The reaper: remove what no existing service needs (docs/contract.md, Reaper).

It removes nothing from a disk without the marker of aim-adapters, follows no link, crosses no mount, and never changes
the subtree of a service that is in the list of live services. It renames each candidate before it deletes it.
"""

from __future__ import annotations

import math
import os
import stat
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from msgspec.structs import replace

from api.jobs import JobResult, ReapSpec
from api.reasons import Reason
from disk.failures import DiskFailure, from_os_error
from disk.fs import Fs, is_directory, list_names, unique
from disk.layout import Layout, UnsafeNameError, check_component, scratch_name
from disk.locks import try_lock
from disk.records import (
    Declared,
    DiskMarker,
    Entry,
    SourceIndex,
    load,
    newest_change,
    refuse_foreign,
    server_now,
    used_digests,
)
from disk.store import is_idle, take_out

_MOST_FAILURES_SHOWN = 5


@dataclass(slots=True)
class _Sweep:
    spec: ReapSpec
    fs: Fs
    layout: Layout
    now: float  # seconds since the epoch, by the clock of the file server where that is available
    removed: list[str] = field(default_factory=list)
    freed: int = 0
    left: int = 0  # what a later sweep can remove: too young, or in use now
    failures: list[str] = field(default_factory=list)

    def is_old(self, path: Path) -> bool:
        """Return whether nothing below a path changed within the guard time. Raises: OSError."""
        return newest_change(path) < self.now - self.spec.scratch_guard_seconds

    def remove(self, path: Path, shown: str, *, rename: bool = True) -> None:
        """Remove one thing, or only count it in a dry run. A failure is recorded, and the sweep continues."""
        try:
            if self.spec.dry_run:
                self.freed += tree_bytes(path)
            else:
                target = path
                if rename:
                    target = self.layout.unload / scratch_name("reaped", path.name, unique=unique())
                    self.fs.rename(path, target)
                    self.fs.sync_directory(path.parent)
                self.freed += self.fs.remove_tree(target)
            self.removed.append(shown)
        except FileNotFoundError:
            return
        except OSError as error:
            self.failures.append(f"{shown}: {from_os_error(error).detail}")

    def attempt(self, action: Callable[[], None], shown: str) -> None:
        """Run one step. A failure is recorded, and the sweep continues."""
        try:
            action()
        except OSError as error:
            self.failures.append(f"{shown}: {from_os_error(error).detail}")


def reap(spec: ReapSpec, fs: Fs, *, now: float | None = None) -> JobResult:
    """Sweep a disk once. `now`: seconds since the epoch, for tests. Raises: DiskFailure DiskNotOurs, OSError."""
    layout = Layout(Path(spec.disk))
    if not math.isfinite(spec.listed_at):
        raise DiskFailure(Reason.SPECIFICATION_INVALID, f"--listed-at: {spec.listed_at} is not a valid time")
    if load(DiskMarker, layout.marker) is None:
        refuse_foreign(layout)
        return JobResult(ok=True, reason=Reason.DISK_REAPED, message="the disk was never used", reclaimed_bytes=0)
    if now is None:
        now = time.time() if spec.dry_run else server_now(fs, layout)  # a dry run writes nothing
    sweep = _Sweep(spec, fs, layout, now)
    for name in list_names(layout.root):
        if not name.startswith(".") and name not in spec.live:
            sweep.attempt(lambda name=name: _reap_subtree(sweep, name), name)  # type: ignore[misc]
    for folder in (layout.staging, layout.aside, layout.unload):
        _reap_scratch(sweep, folder)
    _reap_records(sweep)
    _reap_store(sweep)
    return _result(sweep)


def _reap_subtree(sweep: _Sweep, name: str) -> None:
    """Remove the subtree of a deleted service. Raises: OSError."""
    layout, fs, spec = sweep.layout, sweep.fs, sweep.spec
    try:
        subtree = layout.root / check_component(name)
    except UnsafeNameError:
        return  # aim-adapters uses no such name
    root, info = layout.root.lstat(), subtree.lstat()
    if not stat.S_ISDIR(info.st_mode) or info.st_dev != root.st_dev:
        return
    if _is_too_young(sweep, name):
        sweep.left += 1
        return
    if spec.dry_run:
        sweep.remove(subtree, name)
        return
    if (lock := try_lock(fs, layout.service_lock(name))) is None:
        sweep.left += 1  # a writer holds it: leave it to the next sweep
        return
    try:
        fs.unlink(layout.declared(name))  # from now on no stager promotes into it
        fs.sync_directory(layout.declared_root)
        sweep.remove(subtree, name)
        sweep.remove(layout.done_folder(name), f".done/{name}")
        fs.unlink(layout.service_lock(name))
    finally:
        os.close(lock)


def _is_too_young(sweep: _Sweep, name: str) -> bool:
    """Return whether a subtree can belong to a service that is newer than the list of services. Raises: OSError."""
    declared = load(Declared, sweep.layout.declared(name))
    born = newest_of(sweep.layout.root / name) if declared is None else declared.created_at
    # A list from the future comes from a clock that is ahead, by which young subtrees would look old.
    return born > min(sweep.spec.listed_at, sweep.now) - sweep.spec.subtree_skew_seconds


def newest_of(path: Path) -> float:
    """Return when the directory itself last changed, in seconds since the epoch. Raises: OSError."""
    return path.lstat().st_mtime


def _reap_scratch(sweep: _Sweep, folder: Path) -> None:
    """Remove old leftovers of crashes that no process holds a lock on."""
    for name in list_names(folder):
        sweep.attempt(lambda name=name: _reap_leftover(sweep, folder, name), f"{folder.name}/{name}")  # type: ignore[misc]


def _reap_leftover(sweep: _Sweep, folder: Path, name: str) -> None:
    path, shown = folder / name, f"{folder.name}/{name}"
    if not sweep.is_old(path):
        sweep.left += 1
        return
    if not name.startswith("get-") or sweep.spec.dry_run:
        # Rename it first: a writer that is slower than the guard time then finds nothing to promote, never half of it.
        sweep.remove(path, shown, rename=folder != sweep.layout.unload)
        return
    lock_path = sweep.layout.download_lock(name.removeprefix("get-"))
    if (lock := try_lock(sweep.fs, lock_path)) is None:
        sweep.left += 1  # a slow download
        return
    try:
        sweep.remove(path, shown)
        sweep.fs.unlink(lock_path)
    finally:
        os.close(lock)


def _reap_records(sweep: _Sweep) -> None:
    """Remove the records of services that have no subtree."""
    layout = sweep.layout
    done = [layout.done_root / name for name in list_names(layout.done_root)]
    declared = [layout.declared_root / name for name in list_names(layout.declared_root)]
    gone = [path for path in done + declared if _is_forgotten(sweep, path.name.removesuffix(".json"))]
    for path in gone:
        sweep.attempt(lambda path=path: _remove_if_old(sweep, path), path.name)  # type: ignore[misc]


def _is_forgotten(sweep: _Sweep, service_uid: str) -> bool:
    return service_uid not in sweep.spec.live and not is_directory(sweep.layout.root / service_uid)


def _remove_if_old(sweep: _Sweep, path: Path) -> None:
    if sweep.is_old(path):
        sweep.remove(path, str(path.relative_to(sweep.layout.root)), rename=False)
    else:
        sweep.left += 1


def _reap_store(sweep: _Sweep) -> None:
    """Remove contents that no done-marker names and no stager used recently, then what refers to them."""
    layout = sweep.layout
    used = {digest.removeprefix("sha256:") for digest in _used_after(sweep)}
    for name in list_names(layout.store):
        if name not in used:
            sweep.attempt(lambda name=name: _reap_content(sweep, name), f".store/{name}")  # type: ignore[misc]
    for name in list_names(layout.sources):
        path = layout.sources / name
        if not _leads_somewhere(layout, path):
            sweep.attempt(lambda path=path: _remove_if_old(sweep, path), path.name)  # type: ignore[misc]


def _used_after(sweep: _Sweep) -> set[str]:
    """Return the digests in use after this sweep. In a dry run the markers of deleted services still exist."""
    return used_digests(sweep.layout, without=set(sweep.removed) if sweep.spec.dry_run else set())


def _reap_content(sweep: _Sweep, name: str) -> None:
    """Remove one content. A stager links a content within seconds; a slower one starts over. Raises: OSError."""
    layout, spec = sweep.layout, sweep.spec
    if not is_idle(layout, name, sweep.now, spec.subtree_skew_seconds):
        sweep.left += 1
        return
    if spec.dry_run:
        entry = load(Entry, layout.store / name / "entry.json")
        sweep.freed += entry.size_bytes if entry is not None else tree_bytes(layout.store / name)
    else:
        sweep.freed += take_out(sweep.fs, layout, name)
    sweep.removed.append(f".store/{name}")


def _leads_somewhere(layout: Layout, path: Path) -> bool:
    index = load(SourceIndex, path)
    return index is not None and is_directory(layout.stored(index.digest))


def tree_bytes(path: Path) -> int:
    """Return the bytes that deleting a tree frees: those of files without another name. Raises: OSError."""
    info = path.lstat()
    if not stat.S_ISDIR(info.st_mode):
        return info.st_size if info.st_nlink <= 1 else 0
    return sum(tree_bytes(path / name) for name in list_names(path))


def _result(sweep: _Sweep) -> JobResult:
    if sweep.failures:
        shown = "; ".join(sweep.failures[:_MOST_FAILURES_SHOWN])
        failure = DiskFailure(Reason.DISK_OPERATION_FAILED, f"{len(sweep.failures)} removals failed: {shown}")
        return replace(failure.to_result(), removed=sweep.removed, reclaimed_bytes=sweep.freed)
    verb = "would be removed" if sweep.spec.dry_run else "removed"
    return JobResult(
        ok=True,
        reason=Reason.DISK_REAPED,
        message=f"{len(sweep.removed)} {verb}, {sweep.freed} bytes",
        removed=sweep.removed,
        reclaimed_bytes=sweep.freed,
        left=sweep.left,
    )
