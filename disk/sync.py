"""subtree-sync: make the subtree of a service contain only declared adapters (docs/contract.md, Subtree sync)."""

from __future__ import annotations

import errno
from dataclasses import dataclass, field
from pathlib import Path

from msgspec.structs import replace

from api.jobs import JobResult, SyncSpec
from api.reasons import Reason
from disk.failures import DiskFailure, from_os_error
from disk.fs import Fs, is_directory, list_names, unique
from disk.layout import Layout, check_component, marker_name, scratch_name
from disk.locks import hold
from disk.records import Declared, Done, claim_disk, load, now, save, server_now, used_digests
from disk.store import is_idle, take_out

_LOCK_SECONDS = 120.0  # a promotion holds the lock only for a few renames
_STORE_GUARD_SECONDS = 120.0  # content that a stager used since then is left to the reaper


def sync(spec: SyncSpec, fs: Fs) -> JobResult:
    """Create the subtree, record the declared set, move everything else out, then delete what was moved.

    Raises: DiskFailure, OSError, UnsafeNameError.
    """
    layout = Layout(Path(spec.disk))
    for path in spec.declared:
        check_component(path)
    claim_disk(fs, layout)
    subtree = layout.subtree(spec.service_uid)
    with hold(fs, layout.service_lock(spec.service_uid), wait_seconds=_LOCK_SECONDS):
        known = load(Declared, layout.declared(spec.service_uid))
        is_old = known is not None and known.generation > spec.generation
        if known is not None and is_old and is_directory(subtree):
            return _superseded(spec, known)
        if not is_old:
            _remember(fs, layout, spec, known)
        is_new = not is_directory(subtree)
        fs.ensure_directory(subtree)
        if is_new:
            fs.sync_directory(layout.root)
        moved = _move_undeclared(fs, layout, spec) if not is_old else _Moved()
    freed = _delete(fs, layout, moved)
    return _result(spec, moved, freed)


@dataclass(slots=True)
class _Moved:
    """What was moved out: names, new paths, the contents it consists of; and what could not be moved."""

    names: list[str] = field(default_factory=list)
    targets: list[Path] = field(default_factory=list)
    digests: set[str] = field(default_factory=set)
    failures: list[DiskFailure] = field(default_factory=list)


def _superseded(spec: SyncSpec, known: Declared) -> JobResult:
    return JobResult(
        ok=True,
        reason=Reason.SYNC_SUPERSEDED,
        message=f"the disk follows generation {known.generation} already, this sync is for {spec.generation}",
        key=spec.sync_key,
    )


def _remember(fs: Fs, layout: Layout, spec: SyncSpec, known: Declared | None) -> None:
    """Write the declared set first. From then on no stager promotes anything else."""
    record = Declared(
        service_uid=spec.service_uid,
        generation=spec.generation,
        sync_key=spec.sync_key,
        declared=sorted(set(spec.declared)),
        # The reaper holds it against another machine's clock: the later of two is the one that spares a young subtree
        # when this node's clock is behind.
        created_at=known.created_at if known is not None else max(now(), server_now(fs, layout)),
    )
    if record == known:
        return
    try:
        save(fs, layout.declared(spec.service_uid), record, layout.staging)
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        # A full disk must not keep adapters from being removed: make room first, then remember, then look again.
        _delete(fs, layout, _move_undeclared(fs, layout, spec))
        save(fs, layout.declared(spec.service_uid), record, layout.staging)


def _move_undeclared(fs: Fs, layout: Layout, spec: SyncSpec) -> _Moved:
    """Rename each undeclared entry out of the subtree. A failure does not stop the others. Raises: OSError."""
    subtree, declared = layout.subtree(spec.service_uid), set(spec.declared)
    moved = _Moved(digests=_forget_undeclared(fs, layout, spec.service_uid, declared))
    for name in list_names(subtree):
        if name in declared:
            continue
        target = layout.unload / scratch_name(spec.service_uid, name, unique=unique())
        try:
            fs.rename(subtree / name, target)
        except FileNotFoundError:
            continue
        except OSError as error:
            moved.failures.append(from_os_error(error))
        else:
            moved.names.append(name)
            moved.targets.append(target)
    if moved.names:
        fs.sync_directory(subtree)
        fs.sync_directory(layout.unload)
    return moved


def _forget_undeclared(fs: Fs, layout: Layout, service_uid: str, declared: set[str]) -> set[str]:
    """Remove the done-markers of what is not declared, so that adding it again stages it again.

    Returns the digests that they named. Raises: OSError.
    """
    keep = {marker_name(path) for path in declared}
    folder = layout.done_folder(service_uid)
    gone = [name for name in list_names(folder) if name not in keep]
    digests = {done.digest for name in gone if (done := load(Done, folder / name)) is not None}
    for name in gone:
        fs.unlink(folder / name)
    if gone:
        fs.sync_directory(folder)
    return digests


def _delete(fs: Fs, layout: Layout, moved: _Moved) -> int:
    """Free the space, also in the store. This is the last step; the reaper retries what fails here."""
    freed = 0
    try:
        for target in moved.targets:
            freed += fs.remove_tree(target)
        unused = moved.digests - used_digests(layout) if moved.digests else set()
        now = server_now(fs, layout) if unused else 0.0
        for digest in sorted(unused):
            if is_idle(layout, digest, now, _STORE_GUARD_SECONDS):
                freed += take_out(fs, layout, digest)
    except OSError:
        return freed
    return freed


def _result(spec: SyncSpec, moved: _Moved, freed: int) -> JobResult:
    if moved.failures:
        total = len(moved.names) + len(moved.failures)
        failure = DiskFailure(
            Reason.SUBTREE_MOVE_FAILED, f"{len(moved.failures)} of {total}: {moved.failures[0].detail}"
        )
        return replace(failure.to_result(spec.sync_key), removed=moved.names)
    return JobResult(
        ok=True,
        reason=Reason.SUBTREE_SYNCED,
        message=f"{len(spec.declared)} declared, {len(moved.names)} moved out",
        key=spec.sync_key,
        removed=moved.names,
        reclaimed_bytes=freed,
    )
