"""subtree-sync: a service's subtree exists and holds nothing that is not declared (contract, section 6.1)."""

from __future__ import annotations

import errno
from pathlib import Path

from api.jobs import JobResult, SyncSpec
from disk.failures import DiskFailure, from_os_error
from disk.fs import Fs, is_directory, list_names, unique
from disk.layout import Layout, check_component, marker_name, scratch_name
from disk.locks import hold
from disk.records import Declared, claim_disk, load, now, save

_LOCK_SECONDS = 120.0  # a promotion holds the lock for a few renames


def sync(spec: SyncSpec, fs: Fs) -> JobResult:
    """Create the subtree, remember the declared set, move away what is not in it, then delete that.

    Raises: DiskFailure, OSError, UnsafeNameError.
    """
    layout = Layout(Path(spec.disk))
    for path in spec.declared:
        check_component(path)
    claim_disk(fs, layout)
    subtree = layout.subtree(spec.service_uid)
    with hold(fs, layout.service_lock(spec.service_uid), wait_seconds=_LOCK_SECONDS):
        known = load(Declared, layout.declared(spec.service_uid))
        if known is not None and known.generation > spec.generation:
            return _superseded(spec, known)
        _remember(fs, layout, spec, known)
        if not is_directory(subtree):
            fs.ensure_directory(subtree)
            fs.sync_directory(layout.root)
        moved, failures = _move_undeclared(fs, layout, spec)
    freed = _delete(fs, [target for _, target in moved])
    return _result(spec, [name for name, _ in moved], failures, freed)


def _superseded(spec: SyncSpec, known: Declared) -> JobResult:
    return JobResult(
        ok=True,
        reason="SyncSuperseded",
        message=f"the disk follows generation {known.generation} already, this sync is of {spec.generation}",
        key=spec.sync_key,
    )


def _remember(fs: Fs, layout: Layout, spec: SyncSpec, known: Declared | None) -> None:
    """Write the declared set first: from now on no stager promotes anything else."""
    record = Declared(
        service_uid=spec.service_uid,
        generation=spec.generation,
        sync_key=spec.sync_key,
        declared=sorted(set(spec.declared)),
        created_at=known.created_at if known is not None else now(),
    )
    if record != known:
        save(fs, layout.declared(spec.service_uid), record, layout.staging)


def _move_undeclared(fs: Fs, layout: Layout, spec: SyncSpec) -> tuple[list[tuple[str, Path]], list[DiskFailure]]:
    """Rename each undeclared entry out of the subtree. One that fails does not stop the others."""
    subtree, declared = layout.subtree(spec.service_uid), set(spec.declared)
    forget_undeclared(fs, layout, spec.service_uid, declared)
    moved: list[tuple[str, Path]] = []
    failures: list[DiskFailure] = []
    for name in list_names(subtree):
        if name in declared:
            continue
        target = layout.unload / scratch_name(spec.service_uid, name, unique=unique())
        try:
            fs.rename(subtree / name, target)
        except FileNotFoundError:
            continue
        except OSError as error:
            failures.append(from_os_error(error))
        else:
            moved.append((name, target))
    if moved:
        fs.sync_directory(subtree)
        fs.sync_directory(layout.unload)
    return moved, failures


def forget_undeclared(fs: Fs, layout: Layout, service_uid: str, declared: set[str]) -> None:
    """Remove the done-markers of what is not declared, so that adding it again stages it again. Raises: OSError."""
    keep = {marker_name(path) for path in declared}
    folder = layout.done_folder(service_uid)
    gone = [name for name in list_names(folder) if name not in keep]
    for name in gone:
        fs.unlink(folder / name)
    if gone:
        fs.sync_directory(folder)


def _delete(fs: Fs, targets: list[Path]) -> int:
    """Free the space: the last step, and only an attempt, for the reaper comes by later."""
    freed = 0
    for target in targets:
        try:
            freed += fs.remove_tree(target)
        except OSError as error:
            if error.errno == errno.ENOENT:
                continue
    return freed


def _result(spec: SyncSpec, removed: list[str], failures: list[DiskFailure], freed: int) -> JobResult:
    if failures:
        first = failures[0].detail
        failure = DiskFailure("SubtreeMoveFailed", f"{len(failures)} of {len(removed) + len(failures)}: {first}")
        return failure.to_result(spec.sync_key).model_copy(update={"removed": removed})
    return JobResult(
        ok=True,
        reason="SubtreeSynced",
        message=f"{len(spec.declared)} declared, {len(removed)} moved away",
        key=spec.sync_key,
        removed=removed,
        reclaimed_bytes=freed,
    )
