"""What each command does and says: stage, sync, reap, fetch, inspect."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

import disk.locks as disk_locks
import disk.records as disk_records
import disk.stage as disk_stage
import disk.sync as disk_sync
from api.jobs import SyncSpec, read_spec
from api.reasons import Reason
from disk.download import Pacing
from disk.failures import DiskFailure, from_os_error, redact
from disk.fetch import Fetcher, fetch
from disk.filters import select_adapter_files, select_model_files
from disk.fs import Fs, Moment
from disk.inspect import inspect_disk
from disk.layout import Layout, UnsafeNameError, check_component, marker_name
from disk.progress import Meter
from disk.readahead import read_ahead
from disk.records import Declared, Done, load
from disk.sources.base import Listing, RemoteFile
from disk.stage import Stager, find_staged, stage
from tests.unit.disk.world import (
    MemorySource,
    adapter,
    digest_of,
    fetch_spec,
    look,
    quick,
    reap_spec,
    reason_of,
    run_reap,
    run_stage,
    run_sync,
    safetensors,
    stage_spec,
    sync_spec,
)

A, A2, B = adapter(1), adapter(2), adapter(3, rank=16)
HOUR = 3600.0


def inodes(path: Path) -> dict[str, int]:
    return {name: (path / name).stat().st_ino for name in os.listdir(path)}


@pytest.fixture
def disk(folder: Path) -> Path:
    run_sync(sync_spec(folder, "u1", "a", "b"))
    run_sync(sync_spec(folder, "u2", "a"))
    return folder


# -- stage ----------------------------------------------------------------------------------------------------------


def test_staged_facts(disk: Path) -> None:
    result = run_stage(stage_spec(disk, "u1", "b"), MemorySource(B))
    assert (result.ok, result.reason, result.key) == (True, "AdapterStaged", "key-u1-b")
    assert (result.rank, result.base_model_id, result.revision) == (16, "acme/base", "rev1")
    assert result.size_bytes == sum(len(data) for data in B.values())
    assert result.digest == digest_of(B)
    assert look(disk / "u1", {"b": [B]}) == {"b": B}


def test_a_lost_status_is_rebuilt_without_the_source(disk: Path) -> None:
    """A Job that finds its done-marker ends at once, with all recorded facts."""
    first = run_stage(stage_spec(disk, "u1", "b"), MemorySource(B))

    def never() -> MemorySource:
        raise AssertionError("the source was asked")

    second = stage(Stager(stage_spec(disk, "u1", "b"), Fs(), never, Meter(), quick()))
    assert second.reason == "AlreadyStaged"
    assert replace(second, reason="", message="") == replace(first, reason="", message="")
    assert find_staged(stage_spec(disk, "u1", "b")) == second


def test_content_is_as_old_as_its_directory(disk: Path) -> None:
    first = run_stage(stage_spec(disk, "u1", "a"), MemorySource(A)).staged_at
    assert first is not None
    marker = disk / ".done" / "u1" / "a.json"
    marker.write_text(re.sub(r'"staged_at":\s*[0-9.e+]+', f'"staged_at":{first - 1000}.5', marker.read_text()))
    assert run_stage(stage_spec(disk, "u1", "a"), MemorySource(A)).staged_at == first - 1000
    assert run_stage(stage_spec(disk, "u1", "a", fresh=True), MemorySource(A)).staged_at == first - 1000
    changed = run_stage(stage_spec(disk, "u1", "a", fresh=True), MemorySource(A2)).staged_at
    assert changed is not None
    assert changed >= first


NOT_STAGED = {
    "another key": lambda disk: stage_spec(disk, "u1", "b", stage_key="other"),
    "fresh": lambda disk: stage_spec(disk, "u1", "b", fresh=True),
    "a file is gone": lambda disk: (
        (disk / "u1" / "b" / "adapter_config.json").unlink(),
        stage_spec(disk, "u1", "b"),
    )[1],
    "a file is shorter": lambda disk: (
        os.truncate(disk / "u1" / "b" / "adapter_model.safetensors", 10),
        stage_spec(disk, "u1", "b"),
    )[1],
    "the marker is damaged": lambda disk: (
        (disk / ".done" / "u1" / "b.json").write_text("{"),
        stage_spec(disk, "u1", "b"),
    )[1],
    "the marker is of a later version": lambda disk: (
        (disk / ".done" / "u1" / "b.json").write_text('{"version": 2}'),
        stage_spec(disk, "u1", "b"),
    )[1],
}


@pytest.mark.parametrize("name", NOT_STAGED)
def test_not_treated_as_staged(disk: Path, name: str) -> None:
    run_stage(stage_spec(disk, "u1", "b"), MemorySource(B))
    assert find_staged(NOT_STAGED[name](disk)) is None


def test_a_lowered_ceiling_is_judged_from_the_marker(disk: Path) -> None:
    run_stage(stage_spec(disk, "u1", "b"), MemorySource(B))
    assert reason_of(lambda: find_staged(stage_spec(disk, "u1", "b", max_rank=8))) == "AdapterRankExceedsCeiling"


def test_same_content_does_not_touch_the_live_directory(disk: Path) -> None:
    run_stage(stage_spec(disk, "u1", "a"), MemorySource(A))
    before = inodes(disk / "u1" / "a") | {"": (disk / "u1" / "a").stat().st_ino}
    changes: list[str] = []
    fs = Fs(lambda moment, operation, path: changes.append(str(path)))
    result = run_stage(stage_spec(disk, "u1", "a", stage_key="other", fresh=True), MemorySource(A), fs)
    assert result.reason == "AdapterStaged"
    assert inodes(disk / "u1" / "a") | {"": (disk / "u1" / "a").stat().st_ino} == before
    assert not [path for path in changes if path.startswith(str(disk / "u1"))]
    assert find_staged(stage_spec(disk, "u1", "a", stage_key="other")) is not None


def test_one_content_is_downloaded_once_and_shared(disk: Path) -> None:
    source = MemorySource(A)
    run_stage(stage_spec(disk, "u1", "a"), source)
    opened = list(source.opened)
    run_stage(stage_spec(disk, "u2", "a"), source)
    assert source.opened == opened
    assert inodes(disk / "u1" / "a") == inodes(disk / "u2" / "a")
    run_sync(sync_spec(disk, "u1", "b", generation=2))
    assert look(disk / "u2", {"a": [A]}) == {"a": A}, "removing it from one service harms no other"


def test_two_stagers_download_once(disk: Path) -> None:
    class Slow(MemorySource):
        def open_file(self, file: RemoteFile, offset: int) -> Any:
            time.sleep(0.05)
            return super().open_file(file, offset)

    source = Slow(A)
    threads = [
        threading.Thread(target=run_stage, args=(stage_spec(disk, service, "a"), source)) for service in ("u1", "u2")
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert len(source.opened) == len(A)
    assert look(disk / "u1", {"a": [A]}) == look(disk / "u2", {"a": [A]}) == {"a": A}


def test_a_lock_of_a_machine_that_is_gone_is_not_waited_for(disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A network file system may remember it: while its download grows the holder lives, when it stops it is dead."""
    monkeypatch.setattr(disk_locks, "STALLED_SECONDS", 0.4)
    monkeypatch.setattr(disk_locks, "_LOOK_SECONDS", 0.05)
    source = MemorySource(A)
    key = source.list_files().key
    dead = disk_locks.try_lock(Fs(), Layout(disk).download_lock(key))
    assert dead is not None
    part = Layout(disk).download(key) / "part" / "x"
    part.parent.mkdir(parents=True)
    began = time.monotonic()

    def grow() -> None:
        while time.monotonic() - began < 1.0:
            part.write_bytes(b"x")
            time.sleep(0.05)

    writer = threading.Thread(target=grow)
    writer.start()
    try:
        assert run_stage(stage_spec(disk, "u1", "a"), source).reason == "AdapterStaged"
        assert 1.2 < time.monotonic() - began < 20
    finally:
        writer.join()
        os.close(dead)
    assert look(disk / "u1", {"a": [A]}) == {"a": A}


def test_changed_content_waits_until_it_is_unloaded(disk: Path) -> None:
    """New content never appears under a name that a server has loaded."""
    run_stage(stage_spec(disk, "u1", "a"), MemorySource(A))
    restage = {"fresh": True, "hold_changed": True}
    result = run_stage(stage_spec(disk, "u1", "a", **restage), MemorySource(A2))
    assert (result.ok, result.reason, result.key) == (True, "AdapterHeldForUnload", "key-u1-a")
    assert result.digest == digest_of(A2)
    assert look(disk / "u1", {}) == {}
    gone = MemorySource({})
    assert run_stage(stage_spec(disk, "u1", "a", hold_changed=True), gone).reason == "AdapterHeldForUnload"
    assert look(disk / "u1", {}) == {}
    later = time.time() + HOUR
    run_reap(reap_spec(disk, "u1", "u2", listed_at=later), now=later)
    result = run_stage(stage_spec(disk, "u1", "a"), gone)
    assert (result.reason, result.digest, gone.listings) == ("AdapterStaged", digest_of(A2), 0)
    assert look(disk / "u1", {"a": [A2]}) == {"a": A2}


def test_a_first_staging_does_not_wait(disk: Path) -> None:
    assert run_stage(stage_spec(disk, "u1", "a", hold_changed=True), MemorySource(A)).reason == "AdapterStaged"


def test_content_waits_where_a_server_may_list_what_left_the_mount(disk: Path) -> None:
    spec = {"hold_changed": True, "may_be_listed": True}
    assert run_stage(stage_spec(disk, "u1", "a", **spec), MemorySource(A)).reason == "AdapterHeldForUnload"
    assert look(disk / "u1", {}) == {}
    assert run_stage(stage_spec(disk, "u1", "a"), MemorySource({})).reason == "AdapterStaged"
    again = stage_spec(disk, "u1", "a", fresh=True, **spec)
    assert run_stage(again, MemorySource(A)).reason == "AdapterStaged", "the same content is live already"


@pytest.mark.parametrize(("module", "fits"), [("model.layers.0.self_attn.q_proj", True), ("other.q_proj", False)])
def test_the_fit_is_checked_later_without_the_source(disk: Path, folder: Path, module: str, fits: bool) -> None:
    """The base was not complete when the adapter was staged: once it is, only the disk is read."""
    result = run_stage(stage_spec(disk, "u1", "a"), MemorySource(A))
    assert "AdapterFitUnchecked" in [note.reason for note in result.warnings]
    base = folder / "base"
    base.mkdir()
    (base / "model.safetensors").write_bytes(safetensors({f"{module}.weight": (8, 8)}))
    gone = MemorySource({})
    spec = stage_spec(disk, "u1", "a", base_dir=str(base))
    if fits:
        for _ in range(2):
            result = run_stage(spec, gone)
            assert (result.reason, result.digest) == ("AlreadyStaged", digest_of(A))
            assert "AdapterFitUnchecked" not in [note.reason for note in result.warnings]
        assert look(disk / "u1", {"a": [A]}) == {"a": A}
    else:
        with pytest.raises(DiskFailure) as caught:
            run_stage(spec, gone)
        assert caught.value.reason == "AdapterFitsNoModule"
        assert look(disk / "u1", {}) == {}
        assert os.listdir(disk / ".unload-tmp") == []
    assert gone.listings == 0


def test_static_mode_replaces(disk: Path) -> None:
    run_stage(stage_spec(disk, "u1", "a"), MemorySource(A))
    run_stage(stage_spec(disk, "u1", "a", fresh=True), MemorySource(A2))
    assert look(disk / "u1", {"a": [A, A2]}) == {"a": A2}
    assert os.listdir(disk / ".aside") == []


NOT_DECLARED = {
    "no sync was here": lambda disk: stage_spec(disk, "u9", "a"),
    "another path": lambda disk: stage_spec(disk, "u2", "b"),
    "the subtree is gone": lambda disk: ((disk / "u2").rmdir(), stage_spec(disk, "u2", "a"))[1],
}


@pytest.mark.parametrize("name", NOT_DECLARED)
def test_undeclared_is_not_promoted(disk: Path, name: str) -> None:
    source = MemorySource(A)
    spec = NOT_DECLARED[name](disk)
    assert reason_of(lambda: run_stage(spec, source)) == "AdapterNotDeclared"
    assert source.listings == 0, "nothing is downloaded without a service that needs it"
    assert not (disk / spec.service_uid / spec.path).exists()


def test_a_raised_ceiling_needs_no_second_download(disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The weights of an adapter whose configuration is refused are not fetched; what was fetched is kept."""
    monkeypatch.setattr(disk_stage, "_SMALL_BYTES", 100)
    source = MemorySource(adapter(1, rank=64))
    assert reason_of(lambda: run_stage(stage_spec(disk, "u1", "a", max_rank=32), source)) == "AdapterRankExceedsCeiling"
    assert [name for name, _ in source.opened] == ["adapter_config.json"]
    assert run_stage(stage_spec(disk, "u1", "a", max_rank=64), source).reason == "AdapterStaged"
    assert [name for name, _ in source.opened] == ["adapter_config.json", "adapter_model.safetensors"]


def test_pickle_beside_safetensors_is_not_fetched(disk: Path) -> None:
    source = MemorySource(A | {"adapter_model.bin": b"PK"})
    run_stage(stage_spec(disk, "u1", "a"), source)
    assert sorted(os.listdir(disk / "u1" / "a")) == sorted(A)


def test_base_modules_are_compared(disk: Path, tmp_path: Path) -> None:
    """An adapter that fits no module answers like the base; it is kept out of the subtree."""
    base = tmp_path / "base"
    base.mkdir()
    (base / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"other.q_proj.weight": "f"}}))
    spec = stage_spec(disk, "u1", "a", base_dir=str(base))
    assert reason_of(lambda: run_stage(spec, MemorySource(A))) == "AdapterFitsNoModule"
    assert look(disk / "u1", {}) == {}


def test_modes_do_not_depend_on_the_umask(disk: Path) -> None:
    """The server reads under another uid."""
    old = os.umask(0o077)
    try:
        run_sync(sync_spec(disk, "u3", "a"))
        run_stage(stage_spec(disk, "u3", "a"), MemorySource(A))
    finally:
        os.umask(old)
    for path in ((disk / "u3"), *(disk / "u3").rglob("*")):
        assert path.stat().st_mode & 0o777 == (0o755 if path.is_dir() else 0o644)


def test_modes_are_fixed_after_a_kill_under_a_strict_umask(folder: Path) -> None:
    """Between mkdir and chmod a directory has what the umask left: the next Job fixes it."""
    before = os.umask(0o077)
    try:
        run_sync(sync_spec(folder, "u1", "a"))
        for path in (folder / "u1", folder / ".staging", folder / ".store"):
            path.chmod(0o700)
        run_sync(sync_spec(folder, "u1", "a", generation=2))
        run_stage(stage_spec(folder, "u1", "a"), MemorySource(A))
    finally:
        os.umask(before)
    assert {path.stat().st_mode & 0o777 for path in (folder / "u1", folder / "u1" / "a", folder / ".store")} == {0o755}


@pytest.mark.parametrize("what", ["file", "link", "broken link", "fifo", "socket", "empty directory"])
def test_what_blocks_the_path_of_an_adapter_is_moved_aside(disk: Path, tmp_path: Path, what: str) -> None:
    live = disk / "u1" / "a"
    (tmp_path / "kept").write_text("kept")
    with contextlib.closing(socket.socket(socket.AF_UNIX)) as server:
        match what:
            case "file":
                live.write_text("x")
            case "link":
                live.symlink_to(tmp_path)
            case "broken link":
                live.symlink_to(tmp_path / "nowhere")
            case "fifo":
                os.mkfifo(live)
            case "socket":
                server.bind(str(live))
            case _:
                live.mkdir()
        assert run_stage(stage_spec(disk, "u1", "a"), MemorySource(A)).reason == "AdapterStaged"
    assert look(disk / "u1", {"a": [A]}) == {"a": A}
    assert not live.is_symlink()
    assert os.listdir(disk / ".aside") == []
    assert (tmp_path / "kept").read_text() == "kept"


def test_every_byte_is_synced_before_it_is_promoted(disk: Path) -> None:
    """On a network file system a rename must not be seen before the data that it names."""
    log: list[tuple[str, str]] = []

    def hook(moment: Moment, operation: str, path: Path) -> None:
        if moment == "after":
            log.append((operation, str(path)))

    run_stage(stage_spec(disk, "u1", "a"), MemorySource(A), Fs(hook))
    promoted = log.index(("rename", str(disk / "u1" / "a")))
    written = {path for operation, path in log[:promoted] if operation == "write" and "/part/" in path}
    for path in written:
        last_write = max(index for index, entry in enumerate(log) if entry == ("write", path))
        assert ("fsync", path) in log[last_write:promoted]
    ready = next(path for operation, path in log if operation == "mkdir" and "promote--" in path)
    last_link = max(i for i, (operation, path) in enumerate(log) if operation == "link" and path.startswith(ready))
    assert ("fsync_directory", ready) in log[last_link:promoted]
    assert ("fsync_directory", str(disk / "u1")) in log[promoted:]
    done = next(i for i, (operation, path) in enumerate(log) if path.endswith(".done/u1/a.json"))
    assert log[done][0] == "rename"
    assert done > promoted


def test_a_full_disk(disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.statvfs

    def full(path: Any) -> Any:
        info = real(path)
        return os.statvfs_result((*info[:3], 10, 10, *info[5:10]))

    monkeypatch.setattr(os, "statvfs", full)
    source = MemorySource(A)
    assert reason_of(lambda: run_stage(stage_spec(disk, "u1", "a"), source)) == "DiskFull"
    assert source.opened == []


def test_links_in_scratch_are_not_followed(disk: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    source = MemorySource(A)
    spec = stage_spec(disk, "u1", "a")
    Layout(disk).download(_key(source)).symlink_to(outside)
    with pytest.raises((DiskFailure, OSError)):
        run_stage(spec, source)
    assert os.listdir(outside) == []


def _key(source: MemorySource) -> str:
    return select_adapter_files(source.list_files(), (), ()).key


# -- sync -----------------------------------------------------------------------------------------------------------


def test_sync_follows_the_declared_set(disk: Path) -> None:
    """Weak spots 1 and 2: A, then A and B, then A again really prunes B; removed and added again stages again."""
    for path, files in (("a", A), ("b", B)):
        run_stage(stage_spec(disk, "u1", path), MemorySource(files))
    result = run_sync(sync_spec(disk, "u1", "a", generation=2))
    assert (result.ok, result.reason, result.removed) == (True, "SubtreeSynced", ["b"])
    assert look(disk / "u1", {"a": [A]}) == {"a": A}
    assert run_sync(sync_spec(disk, "u1", "a", "b", generation=3)).removed == []
    source = MemorySource(B)
    assert run_stage(stage_spec(disk, "u1", "b"), source).reason == "AdapterStaged"
    assert run_sync(sync_spec(disk, "u1", "a", generation=4)).removed == ["b"]
    assert look(disk / "u1", {"a": [A]}) == {"a": A}


def test_an_older_sync_changes_nothing(disk: Path) -> None:
    run_sync(sync_spec(disk, "u1", "a", generation=5))
    run_stage(stage_spec(disk, "u1", "a"), MemorySource(A))
    result = run_sync(sync_spec(disk, "u1", generation=4))
    assert (result.ok, result.reason, result.key) == (True, "SyncSuperseded", "sync-u1-4")
    assert look(disk / "u1", {"a": [A]}) == {"a": A}
    declared = load(Declared, Layout(disk).declared("u1"))
    assert declared is not None
    assert (declared.generation, declared.declared) == (5, ["a"])


def test_the_subtree_itself_is_never_replaced(disk: Path) -> None:
    """A replaced subPath directory is stale for every pod that mounts it."""
    before = (disk / "u1").stat().st_ino
    for generation in range(2, 6):
        run_sync(sync_spec(disk, "u1", *"ab"[: generation % 3], generation=generation))
    assert (disk / "u1").stat().st_ino == before


def test_one_failing_move_does_not_stop_the_others(disk: Path) -> None:
    for path, files in (("a", A), ("b", B)):
        run_stage(stage_spec(disk, "u1", path), MemorySource(files))

    def hook(moment: Moment, operation: str, path: Path) -> None:
        if (moment, operation) == ("before", "rename") and "u1--a--" in path.name:
            raise OSError(errno.EIO, "broken", str(path))

    result = run_sync(sync_spec(disk, "u1", generation=2), Fs(hook))
    assert (result.ok, result.reason, result.removed, result.retriable) == (False, "SubtreeMoveFailed", ["b"], True)
    assert look(disk / "u1", {"a": [A]}) == {"a": A}
    assert run_sync(sync_spec(disk, "u1", generation=2)).removed == ["a"]


def test_files_and_links_in_a_subtree_are_moved_away_unfollowed(disk: Path, tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("x")
    (disk / "u1" / "link").symlink_to(tmp_path)
    (disk / "u1" / "file").write_text("x")
    assert run_sync(sync_spec(disk, "u1", "a", generation=2)).removed == ["file", "link"]
    assert (tmp_path / "precious").exists()


def test_a_full_disk_does_not_keep_adapters(disk: Path) -> None:
    """Removing must work when nothing can be written any more: room is made first."""
    run_stage(stage_spec(disk, "u1", "a"), MemorySource(A))
    content = Layout(disk).stored(digest_of(A))
    os.utime(content / "entry.json", (1, 1))

    def hook(moment: Moment, operation: str, path: Path) -> None:
        if (moment, operation) == ("before", "write") and content.exists():
            raise OSError(errno.ENOSPC, "full", str(path))

    result = run_sync(sync_spec(disk, "u1", "b", generation=2), Fs(hook))
    assert result.ok, result
    assert look(disk / "u1", {}) == {}
    assert not content.exists()


def test_removed_bytes_are_freed_at_once(disk: Path) -> None:
    run_stage(stage_spec(disk, "u1", "b"), MemorySource(B))
    os.utime(Layout(disk).stored(digest_of(B)) / "entry.json", (1, 1))  # staged long ago
    result = run_sync(sync_spec(disk, "u1", "a", generation=2))
    assert result.reclaimed_bytes is not None
    assert result.reclaimed_bytes >= sum(len(data) for data in B.values())
    assert os.listdir(disk / ".store") == []


def test_foreign_disks_are_left_alone(folder: Path) -> None:
    (folder / "somebody").mkdir()
    (folder / "lost+found").mkdir()
    assert reason_of(lambda: run_sync(sync_spec(folder, "u1"))) == "DiskNotOurs"
    assert reason_of(lambda: run_reap(reap_spec(folder, listed_at=time.time() + HOUR))) == "DiskNotOurs"
    assert sorted(os.listdir(folder)) == ["lost+found", "somebody"]


@pytest.mark.parametrize("path", ["../x", "a/b", ".hidden", "", "-x", "a\n", "x" * 256])
def test_invalid_paths(path: str, folder: Path) -> None:
    with pytest.raises(UnsafeNameError):
        run_sync(sync_spec(folder, "u1", path))
    with pytest.raises(UnsafeNameError):
        check_component(path)


def test_long_names_have_short_markers() -> None:
    one, other = "x" * 252 + "1", "x" * 252 + "2"
    assert len(marker_name(one)) < 240
    assert marker_name(one) != marker_name(other)
    assert marker_name("short") == "short.json"


# -- reap -----------------------------------------------------------------------------------------------------------


def aged(disk: Path) -> None:
    """Make everything that was staged look old."""
    for entry in disk.glob(".store/*/entry.json"):
        os.utime(entry, (1, 1))
    for declared in disk.glob(".declared/*.json"):
        record = json.loads(declared.read_text())
        declared.write_text(json.dumps(record | {"created_at": 1.0}))


def test_a_dead_service_is_reaped_at_the_next_sweep(disk: Path) -> None:
    run_stage(stage_spec(disk, "u1", "a"), MemorySource(A))
    run_stage(stage_spec(disk, "u2", "a"), MemorySource(A))
    run_stage(stage_spec(disk, "u1", "b"), MemorySource(B))
    aged(disk)
    dry = run_reap(reap_spec(disk, "u2", listed_at=time.time(), dry_run=True))
    assert look(disk / "u1", {"a": [A], "b": [B]}) == {"a": A, "b": B}
    result = run_reap(reap_spec(disk, "u2", listed_at=time.time()))
    assert result.ok
    assert "u1" in result.removed
    assert set(dry.removed) <= set(result.removed)
    assert not (disk / "u1").exists()
    assert look(disk / "u2", {"a": [A]}) == {"a": A}
    assert os.listdir(disk / ".store") == [digest_of(A).removeprefix("sha256:")]
    size = sum(len(data) for data in B.values())
    assert dry.reclaimed_bytes is not None
    assert result.reclaimed_bytes is not None
    assert min(dry.reclaimed_bytes, result.reclaimed_bytes) >= size
    assert not (disk / ".done" / "u1").exists()
    assert not (disk / ".declared" / "u1.json").exists()


def test_a_service_newer_than_the_list_is_spared(disk: Path) -> None:
    run_stage(stage_spec(disk, "u1", "a"), MemorySource(A))
    now = time.time()
    result = run_reap(reap_spec(disk, listed_at=now + 60), now=now + 300)  # within the skew of two minutes
    assert result.removed == []
    assert look(disk / "u1", {"a": [A]}) == {"a": A}
    assert run_reap(reap_spec(disk, listed_at=now + 121), now=now + 300).removed != []


@pytest.mark.parametrize("ahead", [HOUR, 10 * 365 * 24 * HOUR])
def test_a_list_by_a_clock_that_is_ahead_takes_nothing_young(disk: Path, ahead: float) -> None:
    run_stage(stage_spec(disk, "u1", "a"), MemorySource(A))
    run_reap(reap_spec(disk, listed_at=time.time() + ahead))
    assert look(disk / "u1", {"a": [A]}) == {"a": A}


def test_a_subtree_made_by_a_clock_that_is_behind_is_young(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The node's clock is a day behind; the file server's own says when the subtree was made."""
    monkeypatch.setattr(disk_records, "now", lambda: time.time() - 24 * HOUR)
    monkeypatch.setattr(disk_sync, "now", lambda: time.time() - 24 * HOUR)
    run_sync(sync_spec(folder, "u1", "a"))
    run_stage(stage_spec(folder, "u1", "a"), MemorySource(A))
    run_reap(reap_spec(folder, listed_at=time.time()))
    assert look(folder / "u1", {"a": [A]}) == {"a": A}


@pytest.mark.parametrize("listed_at", [float("nan"), float("inf"), -float("inf")])
def test_a_list_without_a_valid_time_is_refused(disk: Path, listed_at: float) -> None:
    assert reason_of(lambda: run_reap(reap_spec(disk, listed_at=listed_at))) == "SpecificationInvalid"
    assert (disk / "u1").is_dir()


def test_young_scratch_is_spared_and_old_is_not(disk: Path) -> None:
    for name in (".staging/x", ".aside/x", ".unload-tmp/x"):
        (disk / name).mkdir()
        (disk / name / "file").write_text("x")
    assert run_reap(reap_spec(disk, "u1", "u2", listed_at=time.time())).removed == []
    later = time.time() + 1801
    removed = run_reap(reap_spec(disk, "u1", "u2", listed_at=later), now=later).removed
    assert set(removed) >= {".staging/x", ".aside/x", ".unload-tmp/x"}


def test_a_download_that_is_running_is_spared_however_slow(disk: Path) -> None:
    from disk.locks import try_lock

    layout = Layout(disk)
    (layout.download("key") / "part").mkdir(parents=True)
    lock = try_lock(Fs(), layout.download_lock("key"))
    assert lock is not None
    later = time.time() + HOUR
    assert run_reap(reap_spec(disk, "u1", "u2", listed_at=later), now=later).removed == []
    os.close(lock)
    assert run_reap(reap_spec(disk, "u1", "u2", listed_at=later), now=later).removed == [".staging/get-key"]
    assert not layout.download_lock("key").exists()


def test_links_are_not_followed_when_reaping(disk: Path, tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("x")
    (disk / "dead").symlink_to(tmp_path)
    (disk / "u1" / "link").symlink_to(tmp_path)
    (disk / ".staging" / "link").symlink_to(tmp_path)
    aged(disk)
    later = time.time() + HOUR
    run_reap(reap_spec(disk, listed_at=later), now=later)
    assert (tmp_path / "precious").exists()
    assert not (disk / "u1").exists()


def test_a_disk_that_was_never_used(folder: Path) -> None:
    result = run_reap(reap_spec(folder, listed_at=time.time()))
    assert (result.ok, result.removed) == (True, [])
    assert os.listdir(folder) == []


def test_one_failure_does_not_stop_the_sweep(disk: Path) -> None:
    aged(disk)

    def hook(moment: Moment, operation: str, path: Path) -> None:
        if (moment, operation) == ("before", "rename") and "u1" in path.name:
            raise OSError(errno.EIO, "broken", str(path))

    later = time.time() + HOUR
    result = run_reap(reap_spec(disk, listed_at=later), Fs(hook), now=later)
    assert (result.ok, result.reason, result.retriable) == (False, "DiskOperationFailed", True)
    assert "u2" in result.removed
    assert (disk / "u1").exists()


# -- fetch ----------------------------------------------------------------------------------------------------------

BASE = {"config.json": b"{}", "model.safetensors": b"x" * 9000, "onnx/model.onnx": b"y", "original/x.pth": b"z"}


def run_fetch(cache: Path, source: MemorySource, **changes: Any) -> Any:
    spec = fetch_spec(cache, **changes)
    return fetch(Fetcher(spec, Fs(), lambda: source, Meter(), Pacing(sleep=lambda _: None)))


def files_below(path: Path) -> set[str]:
    return {str(one.relative_to(path)) for one in path.rglob("*") if one.is_file()}


def test_fetch_skips_subfolders_and_ends_at_once_the_second_time(folder: Path) -> None:
    source = MemorySource(BASE)
    result = run_fetch(folder, source)
    assert (result.reason, result.size_bytes, result.revision) == ("ModelFetched", 9002, "rev1")
    assert files_below(folder / "acme" / "base") == {"config.json", "model.safetensors"}
    again = run_fetch(folder, source)
    assert (again.reason, again.digest, source.listings) == ("ModelFetched", result.digest, 1)


def test_fetch_filters(folder: Path) -> None:
    run_fetch(folder, MemorySource(BASE), include=["*.json", "onnx/*"], exclude=["*.onnx"])
    assert files_below(folder / "acme" / "base") == {"config.json"}
    assert reason_of(lambda: run_fetch(folder, MemorySource(BASE), source_uri="hf://a/b", include=["no"])) == (
        "SourcePrefixEmpty"
    )


def test_fetch_repairs_a_damaged_cache(folder: Path) -> None:
    run_fetch(folder, MemorySource(BASE))
    (folder / "acme" / "base" / "config.json").unlink()
    run_fetch(folder, MemorySource(BASE))
    assert files_below(folder / "acme" / "base") == {"config.json", "model.safetensors"}


def test_measure_writes_nothing(folder: Path) -> None:
    result = run_fetch(folder / "not" / "there", MemorySource(BASE), measure=True)
    assert (result.ok, result.reason, result.size_bytes) == (True, "ModelMeasured", 9002)
    assert os.listdir(folder) == []


@pytest.mark.parametrize(
    ("changes", "directory"),
    [
        ({"model_id": None}, "acme/base"),
        ({"model_id": "x/y"}, "x/y"),
        ({"model_id": None, "source_uri": "s3://bucket/x"}, "base"),
    ],
)
def test_where_a_model_goes(folder: Path, changes: dict[str, Any], directory: str) -> None:
    run_fetch(folder, MemorySource(BASE), **changes)
    assert (folder / directory / "config.json").exists()


def test_a_model_id_cannot_leave_the_cache(folder: Path) -> None:
    assert reason_of(lambda: run_fetch(folder, MemorySource(BASE), model_id="../../x")) == "SpecificationInvalid"


# -- inspect --------------------------------------------------------------------------------------------------------


def test_inspect(disk: Path) -> None:
    run_stage(stage_spec(disk, "u1", "a"), MemorySource(A))
    run_stage(stage_spec(disk, "u2", "a"), MemorySource(A))
    run_stage(stage_spec(disk, "u1", "a", fresh=True, hold_changed=True), MemorySource(A2))
    (disk / "u1" / "stray").mkdir()
    (disk / ".aside" / "x").write_text("12345")
    report = inspect_disk(disk)
    states = {(row.service_uid, row.path): row.state for row in report.adapters}
    assert states == {
        ("u1", "a"): "Held",
        ("u1", "b"): "Missing",
        ("u1", "stray"): "Undeclared",
        ("u2", "a"): "Live",
    }
    assert json.loads(report.to_json())["reclaimable_bytes"] == report.reclaimable_bytes == 5
    table = report.to_table()
    assert "Held" in table
    assert digest_of(A).removeprefix("sha256:")[:12] in table
    assert {row.digest: row.adapters for row in report.store} == {digest_of(A): 1, digest_of(A2): 1}


def test_inspect_refuses_other_disks(folder: Path) -> None:
    assert reason_of(lambda: inspect_disk(folder)) == "DiskNotOurs"


# -- small things ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("number", "reason"),
    [
        (errno.ENOSPC, "DiskFull"),
        (errno.EDQUOT, "DiskQuotaExceeded"),
        (errno.EIO, "DiskIoError"),
        (errno.ESTALE, "DiskStale"),
        (errno.EROFS, "DiskReadOnly"),
        (errno.EACCES, "DiskPermissionDenied"),
        (errno.ENOTDIR, "DiskOperationFailed"),
    ],
)
def test_kinds_of_disk_trouble(number: int, reason: str) -> None:
    assert from_os_error(OSError(number, "x", "/adapter-disk/y")).reason == reason


def test_messages_contain_no_terminal_control() -> None:
    shown = redact("a\x1b[2Jb\x07c\u202ed\ud800e\nf\x9bg")
    assert shown == r"a\x1b[2Jb\x07c\u202ed\ud800e f\x9bg"


@pytest.mark.parametrize(
    "secret",
    [
        "hf_abcdefghijklmnop",
        "AKIAABCDEFGHIJKLMNOP",
        "Authorization: Bearer abc.def",
        "https://h/x?X-Amz-Signature=0123abcd&y=1",
        "http://user:password@proxy:3128",
    ],
)
def test_secrets_are_removed(secret: str) -> None:
    shown = redact(f"failed for {secret} here\nand there")
    assert "\n" not in shown
    for part in ("abcdefghijklmnop", "ABCDEFGHIJKLMNOP", "abc.def", "0123abcd", "password"):
        assert part not in shown


def test_values_of_secrets_are_removed_from_any_message(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIM_ADAPTERS_SECRET_VARIABLES", "HF_ENDPOINT,HTTPS_PROXY")
    monkeypatch.setenv("HF_ENDPOINT", "https://Mirror.Internal:8443/hub")
    monkeypatch.setenv("HTTPS_PROXY", "p@ss/word+1")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wJalrXUtnFEMI")
    monkeypatch.setenv("AWS_REGION", "eu-north-1")
    shown = redact("mirror.internal:8443 refused; p%40ss%2Fword%2B1; wjalrxutnfemi.invalid; eu-north-1; the-end")
    assert shown == "[redacted] refused; [redacted]; [redacted].invalid; eu-north-1; the-end"


def listing(*names: str) -> Listing:
    return Listing("x", None, tuple(RemoteFile(name, name, 1, name) for name in names))


def test_selected_files() -> None:
    found = listing("adapter_config.json", "adapter_model.safetensors", "README.md", "tokenizer.json", "ckpt/x.pt")

    def chosen(include: list[str], exclude: list[str]) -> list[str]:
        return [file.name for file in select_adapter_files(found, include, exclude).files]

    assert chosen([], []) == ["adapter_config.json", "adapter_model.safetensors", "tokenizer.json"]
    assert chosen(["README*"], []) == ["adapter_config.json", "adapter_model.safetensors", "README.md"]
    assert chosen([], ["*"]) == ["adapter_config.json", "adapter_model.safetensors"]
    assert [file.name for file in select_model_files(listing("a", "b/c"), [], []).files] == ["a"]
    assert [file.name for file in select_model_files(listing("a", "b/c"), [], ["a"]).files] == ["b/c"]
    assert [file.name for file in select_model_files(listing("a", "b/c"), ["b/"], []).files] == ["b/c"]


def test_listing_keys() -> None:
    """Strong checksums make listings of two sources one download; weak ones keep them apart."""
    strong = RemoteFile("f", "x/f", 1, "p", "sha256:00")
    weak = RemoteFile("f", "x/f", 1, "p", None)
    assert Listing("one", None, (strong,)).key == Listing("other", None, (strong,)).key
    assert Listing("one", None, (weak,)).key != Listing("other", None, (weak,)).key
    assert Listing("one", None, (weak,)).key != Listing("one", None, (RemoteFile("f", "f", 2, "p"),)).key


def test_done_markers_hold_the_facts(disk: Path) -> None:
    run_stage(stage_spec(disk, "u1", "a"), MemorySource(A))
    done = load(Done, Layout(disk).done("u1", "a"))
    assert done is not None
    assert (done.state, done.stage_key, done.digest) == ("done", "key-u1-a", digest_of(A))
    assert (done.rank, done.revision, done.source_uri) == (8, "rev1", "hf://acme/a")
    assert done.files == {name: len(data) for name, data in A.items()}


def test_specifications_survive_their_arguments(folder: Path) -> None:
    spec = sync_spec(folder, "u1", "a", "b")
    values: dict[str, Any] = {"declared": []}
    for argument in spec.to_args():
        name, _, value = argument.removeprefix("--").partition("=")
        if name == "declared":
            values["declared"].append(value)
        else:
            values[name.replace("-", "_")] = value
    assert read_spec(SyncSpec, values) == spec


@pytest.mark.parametrize("behaviour", ["copies", "refuses", "ends early"])
def test_copies_are_whole(folder: Path, behaviour: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where nothing links: a reflink or a copy by the file server, and reading and writing where neither works."""
    data = os.urandom(3 << 20)
    (folder / "from").write_bytes(data)

    def refuse(*args: Any) -> int:
        raise OSError(errno.EOPNOTSUPP, "no")

    if behaviour != "copies":
        monkeypatch.setattr(os, "copy_file_range", refuse if behaviour == "refuses" else lambda *args: 0)
    Fs(can_link=False).link_or_copy(folder / "from", folder / "to")
    assert (folder / "to").read_bytes() == data
    assert (folder / "to").stat().st_mtime_ns == (folder / "from").stat().st_mtime_ns
    assert (folder / "to").stat().st_mode & 0o777 == 0o644


def test_reading_ahead() -> None:
    """All pieces in order; what the stream raises comes in its place; leaving early ends the thread."""
    pieces = [bytes([number]) * 10 for number in range(50)]
    with read_ahead(iter(pieces)) as ahead:
        assert list(ahead) == pieces

    def broken() -> Iterator[bytes]:
        yield b"one"
        raise DiskFailure(Reason.SOURCE_TIMEOUT, "x")

    got: list[bytes] = []
    with pytest.raises(DiskFailure), read_ahead(broken()) as ahead:
        got.extend(ahead)
    assert got == [b"one"]
    with read_ahead(b"x" for _ in iter(int, 1)) as ahead:
        assert next(ahead) == b"x"
    assert not [thread for thread in threading.enumerate() if thread.name == "read-ahead"]
