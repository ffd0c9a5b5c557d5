"""A set-up for the disk's tests: sources without a network, specifications, and a reader that trusts nothing."""

from __future__ import annotations

import json
import os
import struct
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from api.jobs import FetchSpec, JobResult, ReapSpec, StageSpec, SyncSpec
from disk.checksums import Announced, StoredFile, content_digest
from disk.download import Pacing
from disk.failures import DiskFailure
from disk.fs import Fs
from disk.progress import Meter
from disk.reap import reap
from disk.sources.base import Listing, OpenFile, RemoteFile
from disk.stage import Stager, stage
from disk.sync import sync

FIXTURES = Path(__file__).parents[2] / "fixtures" / "adapters"
Files = dict[str, bytes]


def reason_of(action: Callable[[], object]) -> str:
    """Return the reason of the failure that an action ends with; the test fails where it ends well."""
    with pytest.raises(DiskFailure) as caught:
        action()
    return caught.value.reason


def safetensors(tensors: Mapping[str, tuple[int, ...]], fill: int = 0) -> bytes:
    """Return a valid file with F32 tensors of these shapes, each byte `fill`."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    offset = 0
    for name, shape in tensors.items():
        size = 4
        for length in shape:
            size *= length
        header[name] = {"dtype": "F32", "shape": list(shape), "data_offsets": [offset, offset + size]}
        offset += size
    raw = json.dumps(header).encode()
    raw += b" " * (-len(raw) % 8)
    return struct.pack("<Q", len(raw)) + raw + bytes([fill]) * offset


def lora_tensors(rank: int, modules: tuple[str, ...] = ("model.layers.0.self_attn.q_proj",)) -> dict[str, Any]:
    """Return names and shapes of a LoRA adapter's tensors."""
    tensors: dict[str, tuple[int, ...]] = {}
    for module in modules:
        tensors[f"base_model.model.{module}.lora_A.weight"] = (rank, 8)
        tensors[f"base_model.model.{module}.lora_B.weight"] = (8, rank)
    return tensors


def adapter(fill: int = 0, rank: int = 8, **config: Any) -> Files:
    """Return the files of a small adapter; another `fill` is other content of the same size."""
    settings = {
        "base_model_name_or_path": "acme/base",
        "bias": "none",
        "lora_alpha": 16,
        "peft_type": "LORA",
        "r": rank,
        "target_modules": ["q_proj"],
    } | config
    return {
        "adapter_config.json": json.dumps(settings).encode(),
        "adapter_model.safetensors": safetensors(lora_tensors(rank), fill),
    }


def digest_of(files: Files) -> str:
    """The content digest that the disk must compute."""
    import hashlib

    return content_digest(StoredFile(n, len(b), hashlib.sha256(b).hexdigest()) for n, b in files.items())


@dataclass
class MemorySource:
    """A source in memory; counts what is asked of it."""

    files: Files
    identity: str = "memory"
    piece: int = 4096
    listings: int = 0
    opened: list[tuple[str, int]] = field(default_factory=list)
    fail_next: list[DiskFailure] = field(default_factory=list)

    def list_files(self) -> Listing:
        import hashlib

        self.listings += 1
        if self.fail_next:
            raise self.fail_next.pop(0)
        files = tuple(
            RemoteFile(name, name, len(data), (sha := hashlib.sha256(data).hexdigest()), f"sha256:{sha}")
            for name, data in sorted(self.files.items())
        )
        return Listing(self.identity, "rev1", files)

    def checksum_of(self, file: RemoteFile) -> Announced | None:
        return Announced.parse(file.checksum)

    @contextmanager
    def open_file(self, file: RemoteFile, offset: int) -> Iterator[OpenFile]:
        self.opened.append((file.name, offset))
        data = self.files[file.name]
        pieces = (data[at : at + self.piece] for at in range(offset, len(data), self.piece))
        yield OpenFile(pieces, self.checksum_of(file))


def stage_spec(disk: Path, service: str, path: str, **changes: Any) -> StageSpec:
    """A staging of one adapter, as the controller writes it."""
    values: dict[str, Any] = {
        "disk": str(disk),
        "namespace": "ns",
        "service": f"svc-{service}",
        "service_uid": service,
        "artifact": path,
        "artifact_uid": f"uid-{path}",
        "path": path,
        "source_uri": f"hf://acme/{path}",
        "model_id": f"acme/{path}",
        "stage_key": f"key-{service}-{path}",
        "max_rank": 64,
        "declared_rank": 16,
    }
    return StageSpec(**(values | changes))


def sync_spec(disk: Path, service: str, *declared: str, generation: int = 1) -> SyncSpec:
    """A sync of one service's declared set."""
    return SyncSpec(
        disk=str(disk),
        namespace="ns",
        service=f"svc-{service}",
        service_uid=service,
        generation=generation,
        sync_key=f"sync-{service}-{generation}",
        declared=sorted(declared),
    )


def fetch_spec(cache: Path, **changes: Any) -> FetchSpec:
    """A fetch of a base model."""
    values: dict[str, Any] = {
        "cache": str(cache),
        "namespace": "ns",
        "artifact": "base",
        "artifact_uid": "uid-base",
        "source_uri": "hf://acme/base",
        "model_id": "acme/base",
    }
    return FetchSpec(**(values | changes))


def reap_spec(disk: Path, *live: str, listed_at: float, **changes: Any) -> ReapSpec:
    """A sweep."""
    return ReapSpec(disk=str(disk), live=list(live), listed_at=listed_at, **changes)


def quick() -> Pacing:
    """Retries that do not wait, one transfer at a time, so that operations come in one order."""
    return Pacing(sleep=lambda _: None, transfers=1)


def run_stage(spec: StageSpec, source: MemorySource, fs: Fs | None = None) -> JobResult:
    """Stage from memory."""
    return stage(Stager(spec, fs or Fs(), lambda: source, Meter(), quick()))


def run_sync(spec: SyncSpec, fs: Fs | None = None) -> JobResult:
    """Sync."""
    return sync(spec, fs or Fs())


def run_reap(spec: ReapSpec, fs: Fs | None = None, now: float | None = None) -> JobResult:
    """Sweep."""
    return reap(spec, fs or Fs(), now=now)


class Violation(AssertionError):  # noqa: N818 - it reads as what it is
    """A reader saw what it must never see."""


def look(subtree: Path, allowed: dict[str, list[Files]]) -> dict[str, Files]:
    """Read all that a server would see below a subtree; each directory is one of its allowed contents, whole.

    A directory that is moved away while it is read has vanished; its files are read through the directory that was
    opened first, as a server reads through one path lookup. Raises: Violation.
    """
    seen: dict[str, Files] = {}
    try:
        names = sorted(os.listdir(subtree))
    except FileNotFoundError:
        return seen
    for name in names:
        found = _read_directory(f"{subtree}/{name}")
        if found is None:
            continue
        if name not in allowed:
            raise Violation(f"{name} appeared")
        if found not in allowed[name]:
            raise Violation(f"{name} is torn: { ({one: len(data) for one, data in found.items()}) }")
        seen[name] = found
    return seen


def _read_directory(path: str) -> Files | None:
    """Return a directory's files, or None when it is gone or was moved away while it was read."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    except FileNotFoundError:
        return None
    try:
        files: Files = {}
        try:
            for name in os.listdir(fd):
                files[name] = _read_file(name, fd)
        except FileNotFoundError:
            if _is_still(path, fd):
                raise Violation(f"files vanish from {os.path.basename(path)} while it is live") from None
            return None
        return files if _is_still(path, fd) else None
    finally:
        os.close(fd)


def _read_file(name: str, folder: int) -> bytes:
    fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW, dir_fd=folder)
    try:
        pieces = []
        while piece := os.read(fd, 65536):
            pieces.append(piece)
        return b"".join(pieces)
    finally:
        os.close(fd)


def _is_still(path: str, fd: int) -> bool:
    try:
        return os.fstat(fd).st_ino == os.lstat(path).st_ino
    except FileNotFoundError:
        return False


def fast_folder() -> Path:
    """A folder in memory where there is one: hundreds of disks are built, and each syncs its files."""
    memory = Path("/dev/shm")
    return Path(tempfile.mkdtemp(prefix="aim-disk-", dir=memory if os.access(memory, os.W_OK) else None))


def copy_with_links(source: Path | str, target: Path | str, known: dict[int, str]) -> None:
    """Copy a tree with its times; files that share an inode share one in the copy."""
    os.mkdir(target, mode=0o755)
    for entry in os.scandir(source):
        copy = f"{target}/{entry.name}"
        info = entry.stat(follow_symlinks=False)
        if entry.is_dir(follow_symlinks=False):
            copy_with_links(entry.path, copy, known)
        elif info.st_ino in known:
            os.link(known[info.st_ino], copy)
        else:
            known[info.st_ino] = copy
            with open(entry.path, "rb", buffering=0) as old, open(copy, "wb", buffering=0) as new:
                new.write(old.readall())
            os.utime(copy, ns=(info.st_atime_ns, info.st_mtime_ns))
