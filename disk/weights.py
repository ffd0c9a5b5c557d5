"""Reads the part of weights that preflight needs: the header, never the data."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import IO

import orjson

from disk.failures import DiskFailure
from disk.fs import file_size, list_names
from disk.preflight import (
    CONFIG,
    LARGEST_CONFIG,
    LARGEST_HEADER,
    PREFIX_BYTES,
    SAFETENSORS,
    TAIL_BYTES,
    WEIGHTS,
    Finding,
    Limits,
    Verdict,
    Weights,
    base_module_paths,
    check_listing,
    check_weights,
    header_length,
    read_header,
)

_LARGEST_INDEX = 32 * 1024 * 1024  # bytes
_MOST_BASE_FILES = 1000


def inspect_adapter(folder: Path, limits: Limits, base_dir: Path | None = None) -> Verdict:
    """Check the directory of an adapter. Raises: OSError."""
    names = list_names(folder)
    if (finding := check_listing(names)) is not None:
        return Verdict(finding)
    weights = next(name for name in WEIGHTS if name in names)
    config = read_config(folder / CONFIG)
    modules = read_base_modules(base_dir) if base_dir is not None else None
    return check_weights(read_weights(folder / weights), config, limits, modules)


def read_config(path: Path) -> bytes:
    """Read a configuration, at most one byte more than the accepted size. Raises: OSError."""
    with _open_regular(path) as stream:
        return _read_at(stream.fileno(), 0, LARGEST_CONFIG + 1)


def read_weights(path: Path) -> Weights:
    """Read the first bytes of a weights file, its header, and the tail of a zip. Raises: OSError."""
    with _open_regular(path) as stream:
        size = os.fstat(stream.fileno()).st_size
        prefix = _read_at(stream.fileno(), 0, PREFIX_BYTES)
        weights = Weights(path.name, size, prefix)
        if path.name == SAFETENSORS or path.suffix == ".safetensors":
            if (length := header_length(prefix)) is not None:
                weights.header = _read_at(stream.fileno(), 8, min(length, LARGEST_HEADER, size))
        else:
            weights.tail = _read_at(stream.fileno(), max(0, size - TAIL_BYTES), TAIL_BYTES)
    return weights


def _open_regular(path: Path) -> IO[bytes]:
    """Open a regular file for reading: a FIFO can block, and a device can be endless. Raises: OSError."""
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError(errno.EINVAL, "not a regular file", str(path))
    return os.fdopen(fd, "rb", buffering=0)


def _read_at(fd: int, offset: int, count: int) -> bytes:
    pieces: list[bytes] = []
    while count > 0 and (piece := os.pread(fd, count, offset)):
        pieces.append(piece)
        offset, count = offset + len(piece), count - len(piece)
    return b"".join(pieces)


def read_base_modules(folder: Path) -> set[str] | None:
    """Return the module paths of a base model; None when its files are not readable safetensors."""
    try:
        names = list_names(folder)
        if "model.safetensors.index.json" in names:
            return _modules_of_index(folder / "model.safetensors.index.json")
        modules: set[str] = set()
        for name in [name for name in names if name.endswith(".safetensors")][:_MOST_BASE_FILES]:
            tensors = read_header(read_weights(folder / name))
            if isinstance(tensors, Finding):
                return None
            modules |= base_module_paths(tensor.name for tensor in tensors)
        return modules or None
    except OSError:
        return None  # the comparison is optional: the Job of the base reports an unreadable base


def _modules_of_index(path: Path) -> set[str] | None:
    size = file_size(path)
    if size is None or size > _LARGEST_INDEX:
        return None
    try:
        index = orjson.loads(path.read_bytes())
    except orjson.JSONDecodeError:
        return None
    names = index.get("weight_map") if isinstance(index, dict) else None
    return base_module_paths(str(name) for name in names) or None if isinstance(names, dict) else None


def as_failure(finding: Finding) -> DiskFailure:
    """Return the failure of the Job for a finding that rejects an adapter."""
    return DiskFailure(finding.reason, finding.detail)
