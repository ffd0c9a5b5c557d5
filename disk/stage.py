"""staging: download one adapter, check it, and promote it into the subtree of a service (docs/contract.md, Staging).

The order matters: the content is complete in the store before a directory of links to it is built. That directory is
complete before one rename (or exchange) makes it live. The done-marker is written last.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from msgspec.structs import replace

from api.jobs import JobResult, Note, StageSpec
from api.reasons import Reason
from disk.checksums import StoredFile
from disk.download import Downloader, Pacing, check_names, with_retries
from disk.failures import DiskFailure
from disk.filters import select_adapter_files
from disk.findings import Limits, Verdict
from disk.fs import Fs, is_directory, is_there, unique
from disk.layout import Layout, scratch_name
from disk.locks import hold
from disk.preflight import CONFIG, check_config, check_listing, judge_rank
from disk.progress import Meter
from disk.records import Declared, Done, Entry, claim_disk, is_complete, load, newest_change, now, save, unverified
from disk.sources.base import Listing, RemoteFile, Source
from disk.store import find_content, find_stored, keep_young, link_out, put
from disk.weights import as_failure, inspect_adapter, read_config

_LOCK_SECONDS = 120.0  # a sync holds the lock only for a few renames
_DOWNLOAD_LOCK_SECONDS = 2 * 3600.0 - 120.0  # shortly before the deadline of the Job, which would report no cause
_SMALL_BYTES = 1024 * 1024  # below that another round trip costs more than the bytes
_MOST_REAPED = 3  # how often a content can disappear from the store before it is linked


@dataclass(slots=True)
class Stager:
    """One staging. `open_source` is called only when there is work: a staged adapter needs no client library."""

    spec: StageSpec
    fs: Fs
    open_source: Callable[[], Source]
    meter: Meter
    pacing: Pacing

    @property
    def layout(self) -> Layout:
        """The disk."""
        return Layout(Path(self.spec.disk))

    @property
    def limits(self) -> Limits:
        """The requirements of preflight."""
        spec = self.spec
        return Limits(spec.max_rank, spec.declared_rank, spec.base_model_id, spec.strict_base, spec.allow_pickle)


def find_staged(spec: StageSpec) -> JobResult | None:
    """Return the recorded outcome if the same staging was done before; None: there is work. Raises: OSError."""
    layout = Layout(Path(spec.disk))
    done = load(Done, layout.done(spec.service_uid, spec.path))
    if done is None or spec.fresh or done.stage_key != spec.stage_key or done.state != "done":
        return None
    if not _is_declared(layout, spec) or not is_complete(layout.live(spec.service_uid, spec.path), done.files):
        return None
    if spec.base_dir and _is_unchecked(done):
        return None
    limits = Limits(spec.max_rank, spec.declared_rank)
    if done.rank is not None and (finding := judge_rank(done.rank, limits)) is not None:
        raise as_failure(finding)
    return _result(spec, done, Reason.ALREADY_STAGED, "it was staged before")


def stage(stager: Stager) -> JobResult:
    """Stage an adapter. Raises: DiskFailure, OSError, UnsafeNameError."""
    spec, fs, layout = stager.spec, stager.fs, stager.layout
    claim_disk(fs, layout)
    _demand_declared(layout, spec)
    if (staged := find_staged(spec)) is not None:
        return staged
    if (checked := _check_fit(stager)) is not None:
        return checked
    if (held := _find_held(stager)) is not None:
        return _stage_held(stager, held)
    source = stager.open_source()
    listing = _list_wanted(stager, source)
    for _ in range(_MOST_REAPED):
        entry = _bring(stager, source, listing)
        try:
            verdict = inspect_adapter(layout.stored(entry.digest) / "files", stager.limits, _base_dir(spec))
            if verdict.failure is not None:
                raise as_failure(verdict.failure)
            return _promote(stager, entry, verdict, listing.revision)
        except FileNotFoundError:
            continue  # a reaper removed the content, or the subtree of the service: check both again
    _demand_declared(layout, spec)
    raise DiskFailure(Reason.DISK_BUSY, "the stored content was removed repeatedly while it was being linked")


def _is_unchecked(done: Done) -> bool:
    """Whether a content was staged while its base was not complete."""
    return any(note.reason == Reason.ADAPTER_FIT_UNCHECKED for note in done.warnings)


def _check_fit(stager: Stager) -> JobResult | None:
    """Compare a staged adapter with its base, which is complete now; the source is not asked. None: nothing to do.

    What does not fit leaves the mount: a static server would end with it. Raises: DiskFailure, OSError.
    """
    spec, fs, layout = stager.spec, stager.fs, stager.layout
    done, live = load(Done, layout.done(spec.service_uid, spec.path)), layout.live(spec.service_uid, spec.path)
    if (
        done is None
        or spec.fresh
        or done.state != "done"
        or done.stage_key != spec.stage_key
        or not _is_unchecked(done)
    ):
        return None
    if not spec.base_dir or not _is_declared(layout, spec) or not is_complete(live, done.files):
        return None
    verdict = inspect_adapter(live, stager.limits, _base_dir(spec))
    away: Path | None = None
    with hold(fs, layout.service_lock(spec.service_uid), wait_seconds=_LOCK_SECONDS):
        _demand_declared(layout, spec)
        if verdict.failure is not None:
            away = _take_out(fs, layout, spec, live)
        else:
            done = replace(done, warnings=_notes(spec, verdict, done.verified))
            _record(fs, layout, spec, done)
    if verdict.failure is not None:
        if away is not None:
            fs.remove_tree(away)
        raise as_failure(verdict.failure)
    return _result(spec, done, Reason.ALREADY_STAGED, "it was staged before, and fits its base")


def _find_held(stager: Stager) -> Done | None:
    """Return the marker of a content that waits in the store for this staging. Raises: OSError."""
    spec, layout = stager.spec, stager.layout
    done = load(Done, layout.done(spec.service_uid, spec.path))
    if done is None or spec.fresh or done.state != "held" or done.stage_key != spec.stage_key:
        return None
    return done if find_content(layout, done.digest) is not None else None


def _stage_held(stager: Stager, held: Done) -> JobResult:
    """Promote a content that waits, without the source, which can have changed. Raises: DiskFailure, OSError."""
    entry = find_content(stager.layout, held.digest)
    if entry is None:
        raise DiskFailure(Reason.DISK_BUSY, "the held content was removed in the meantime")
    verdict = inspect_adapter(stager.layout.stored(entry.digest) / "files", stager.limits, _base_dir(stager.spec))
    if verdict.failure is not None:
        raise as_failure(verdict.failure)
    return _promote(stager, entry, verdict, held.revision)


def _base_dir(spec: StageSpec) -> Path | None:
    return Path(spec.base_dir) if spec.base_dir else None


def _is_declared(layout: Layout, spec: StageSpec) -> bool:
    declared = load(Declared, layout.declared(spec.service_uid))
    return declared is not None and spec.path in declared.declared and is_directory(layout.subtree(spec.service_uid))


def _demand_declared(layout: Layout, spec: StageSpec) -> None:
    if not _is_declared(layout, spec):
        raise DiskFailure(
            Reason.ADAPTER_NOT_DECLARED, f"service {spec.service} does not declare {spec.path} on this disk"
        )


# -- download of the content ----------------------------------------------------------------------------------------


def _list_wanted(stager: Stager, source: Source) -> Listing:
    """List the files of the source, and keep those that serving needs. Raises: DiskFailure."""
    spec = stager.spec
    listing = with_retries(source.list_files, stager.pacing)
    if (finding := check_listing([file.name for file in listing.files])) is not None:
        raise as_failure(finding)
    wanted = select_adapter_files(listing, spec.include, spec.exclude)
    check_names(wanted)
    return wanted


def _bring(stager: Stager, source: Source, listing: Listing) -> Entry:
    """Return the stored content of a listing, downloading it unless it is there. Raises: DiskFailure, OSError."""
    if (entry := _stored(stager, listing)) is not None:
        return entry
    layout = stager.layout
    lock, folder = layout.download_lock(listing.key), layout.download(listing.key)
    sign_of_life = lambda: newest_change(folder)  # noqa: E731 - two writers of one download write the same bytes
    with hold(stager.fs, lock, wait_seconds=_DOWNLOAD_LOCK_SECONDS, sign_of_life=sign_of_life):
        if (entry := _stored(stager, listing)) is not None:  # another Job downloaded it meanwhile
            return entry
        files = _download(stager, source, listing)
        return put(stager.fs, layout, listing_key=listing.key, files=files, revision=listing.revision)


def _stored(stager: Stager, listing: Listing) -> Entry | None:
    entry = find_stored(stager.layout, listing.key)
    if entry is not None:
        try:
            keep_young(stager.fs, stager.layout, entry.digest)
        except FileNotFoundError:
            return None
        stager.meter.start(entry.size_bytes, entry.size_bytes)
    return entry


def _download(stager: Stager, source: Source, listing: Listing) -> list[StoredFile]:
    """Download all files; of a large adapter the configuration first, which reveals most invalid ones."""
    folder = stager.layout.download(listing.key)
    downloader = Downloader(stager.fs, source, folder, stager.meter, stager.pacing)
    downloader.prepare(listing)
    if listing.total_bytes <= _SMALL_BYTES:
        got = downloader.fetch(listing.files)
        downloader.finish()
        return got
    first: list[RemoteFile] = [file for file in listing.files if file.name == CONFIG]
    rest = [file for file in listing.files if file.name != CONFIG]
    got = downloader.fetch(tuple(first))
    verdict = check_config(read_config(downloader.files / CONFIG), stager.limits)
    if verdict.failure is not None:
        raise as_failure(verdict.failure)
    got += downloader.fetch(tuple(rest))
    downloader.finish()
    return got


# -- promotion -------------------------------------------------------------------------------------------------


def _promote(stager: Stager, entry: Entry, verdict: Verdict, revision: str | None) -> JobResult:
    """Build a directory and make it live. Raises: DiskFailure, OSError."""
    spec, fs, layout = stager.spec, stager.fs, stager.layout
    done = _done(spec, entry, verdict, revision)
    live = layout.live(spec.service_uid, spec.path)
    ready = layout.staging / scratch_name("promote", spec.service_uid, spec.path, unique=unique())
    old: Path | None = None
    try:
        if not _lies_there(layout, spec, entry):
            link_out(fs, layout, entry, ready)
            fs.sync_directory(layout.staging)
        with hold(fs, layout.service_lock(spec.service_uid), wait_seconds=_LOCK_SECONDS):
            _demand_declared(layout, spec)
            if _lies_there(layout, spec, entry):
                reason, text = Reason.ADAPTER_STAGED, "the same content was live already"
                done = _as_old_as_before(layout, spec, done)
            elif _must_wait(stager):
                old = _hold_back(fs, layout, spec, done)
                reason, text = (
                    Reason.ADAPTER_HELD_FOR_UNLOAD,
                    "the changed content waits until no server lists the old one",
                )
            else:
                old = _swap_in(fs, layout, spec, ready, live)
                reason, text = Reason.ADAPTER_STAGED, f"{len(entry.files)} files, {entry.size_bytes} bytes"
            if reason == Reason.ADAPTER_STAGED:
                _record(fs, layout, spec, done)
                _recheck(fs, layout, spec, live)
    finally:
        fs.remove_tree(ready)
    if old is not None:
        fs.remove_tree(old)
    return _result(spec, done, reason, text)


def _notes(spec: StageSpec, verdict: Verdict, verified: dict[str, str]) -> list[Note]:
    """Return what deserves a warning beside a success."""
    notes = [Note(reason=one.reason, message=one.detail) for one in verdict.warnings]
    if not spec.base_dir:
        detail = "the base model is not complete, so the fit is not checked against it yet"
        notes.append(Note(reason=Reason.ADAPTER_FIT_UNCHECKED, message=detail))
    return notes + unverified(verified)


def _done(spec: StageSpec, entry: Entry, verdict: Verdict, revision: str | None) -> Done:
    return Done(
        state="done",
        path=spec.path,
        stage_key=spec.stage_key,
        source_uri=spec.source_uri,
        digest=entry.digest,
        size_bytes=entry.size_bytes,
        files=entry.files,
        rank=verdict.rank,
        base_name=verdict.base_name,
        revision=revision,
        verified=entry.verified,
        warnings=_notes(spec, verdict, entry.verified),
        staged_at=now(),
    )


def _lies_there(layout: Layout, spec: StageSpec, entry: Entry) -> bool:
    """Return whether this content is live already; its directory is then not changed.

    The done-marker shows it, or (after a kill between promotion and marker) the files, which are the stored ones.
    """
    live = layout.live(spec.service_uid, spec.path)
    if not is_complete(live, entry.files):
        return False
    done = load(Done, layout.done(spec.service_uid, spec.path))
    if done is not None and done.state == "done" and done.digest == entry.digest:
        return True
    stored = layout.stored(entry.digest) / "files"
    return all((live / name).samefile(stored / name) for name in entry.files)


def _as_old_as_before(layout: Layout, spec: StageSpec, done: Done) -> Done:
    """Return the new marker of content that was live already, with the time of the old one. Raises: OSError."""
    before = load(Done, layout.done(spec.service_uid, spec.path))
    if before is None or before.digest != done.digest or not before.staged_at:
        return done
    return replace(done, staged_at=before.staged_at)


def _must_wait(stager: Stager) -> bool:
    """Return whether a server may list other content: it is live, left the mount lately, or this content waits."""
    spec, layout = stager.spec, stager.layout
    if not spec.hold_changed:
        return False
    if spec.may_be_listed:
        return True
    done = load(Done, layout.done(spec.service_uid, spec.path))
    return is_directory(layout.live(spec.service_uid, spec.path)) or (done is not None and done.state == "held")


def _hold_back(fs: Fs, layout: Layout, spec: StageSpec, done: Done) -> Path | None:
    """Record that the name waits, then move the old directory out of the mount. Raises: OSError."""
    _record(fs, layout, spec, replace(done, state="held"))
    live = layout.live(spec.service_uid, spec.path)
    if not is_directory(live):
        return None
    aside = layout.aside / scratch_name(spec.service_uid, spec.path, unique=unique())
    fs.rename(live, aside)
    fs.sync_directory(layout.subtree(spec.service_uid))
    fs.sync_directory(layout.aside)
    return aside


def _swap_in(fs: Fs, layout: Layout, spec: StageSpec, ready: Path, live: Path) -> Path | None:
    """Make `ready` live, and return the new path of the directory that it replaces. Raises: OSError."""
    subtree = layout.subtree(spec.service_uid)
    aside = layout.aside / scratch_name(spec.service_uid, spec.path, unique=unique())
    if not is_there(live):
        fs.rename(ready, live)
    elif not is_directory(
        live
    ):  # a file or a link that aim-adapters did not create: a directory cannot be renamed over it
        fs.rename(live, aside)
        fs.rename(ready, live)
    else:
        fs.rename(ready, aside)
        if not fs.exchange(
            aside, live
        ):  # one step where the file system supports it; otherwise the name is absent for a moment
            between = layout.aside / scratch_name(spec.service_uid, spec.path, unique=unique())
            fs.rename(live, between)
            fs.rename(aside, live)
            aside = between
    was_there = is_there(aside)
    if was_there:
        fs.sync_directory(layout.aside)
    fs.sync_directory(subtree)
    fs.sync_directory(layout.staging)
    return aside if was_there else None


def _record(fs: Fs, layout: Layout, spec: StageSpec, done: Done) -> None:
    fs.ensure_directory(layout.done_folder(spec.service_uid))
    save(fs, layout.done(spec.service_uid, spec.path), done, layout.staging)


def _recheck(fs: Fs, layout: Layout, spec: StageSpec, live: Path) -> None:
    """Check again: without working locks a sync can have removed the declaration in between."""
    if _is_declared(layout, spec):
        return
    _take_out(fs, layout, spec, live)
    raise DiskFailure(Reason.ADAPTER_NOT_DECLARED, f"{spec.path} was removed from {spec.service} while it was staged")


def _take_out(fs: Fs, layout: Layout, spec: StageSpec, live: Path) -> Path:
    """Move a directory out of the mount, and forget that it was staged. Returns its new path. Raises: OSError."""
    away = layout.unload / scratch_name(spec.service_uid, spec.path, unique=unique())
    fs.rename(live, away)
    fs.unlink(layout.done(spec.service_uid, spec.path))
    fs.sync_directory(layout.subtree(spec.service_uid))
    return away


def _result(spec: StageSpec, done: Done, reason: str, text: str) -> JobResult:
    return JobResult(
        ok=True,
        reason=reason,
        message=text,
        key=spec.stage_key,
        rank=done.rank,
        base_model_id=done.base_name,
        size_bytes=done.size_bytes,
        digest=done.digest,
        revision=done.revision,
        staged_at=int(done.staged_at) or None,
        warnings=done.warnings,
    )
