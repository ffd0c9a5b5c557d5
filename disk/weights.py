"""Reads the part of weights that preflight needs: the header, and a sample of the data."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import IO

import orjson

from disk.failures import DiskFailure
from disk.findings import Finding, Limits, Verdict
from disk.finite import plan_sample
from disk.fit import Shape, base_modules
from disk.fs import file_size, list_names
from disk.header import LARGEST_HEADER, SAFETENSORS, Weights, header_length, read_header
from disk.preflight import CONFIG, LARGEST_CONFIG, PREFIX_BYTES, TAIL_BYTES, WEIGHTS, check_listing, check_weights

_LARGEST_INDEX = 32 * 1024 * 1024  # bytes
_MOST_BASE_FILES = 1000


def inspect_adapter(folder: Path, limits: Limits, base_dir: Path | None = None) -> Verdict:
    """Check the directory of an adapter. Raises: OSError."""
    names = list_names(folder)
    if (finding := check_listing(names)) is not None:
        return Verdict(finding)
    weights = next(name for name in WEIGHTS if name in names)
    config = read_config(folder / CONFIG)
    base = read_base_modules(base_dir) if base_dir is not None else None
    return check_weights(read_weights(folder / weights, sampled=True), config, limits, base)


def read_config(path: Path) -> bytes:
    """Read a configuration, at most one byte more than the accepted size. Raises: OSError."""
    with _open_regular(path) as stream:
        return _read_at(stream.fileno(), 0, LARGEST_CONFIG + 1)


def read_weights(path: Path, *, sampled: bool = False) -> Weights:
    """Read the first bytes of a weights file, its header, and the tail of a zip; `sampled`: some data, too.

    Raises: OSError.
    """
    with _open_regular(path) as stream:
        size = os.fstat(stream.fileno()).st_size
        prefix = _read_at(stream.fileno(), 0, PREFIX_BYTES)
        weights = Weights(path.name, size, prefix)
        if path.name == SAFETENSORS or path.suffix == ".safetensors":
            if (length := header_length(prefix)) is not None:
                weights.header = _read_at(stream.fileno(), 8, min(length, LARGEST_HEADER, size))
                tensors = read_header(weights) if sampled else []
                if not isinstance(tensors, Finding):
                    pieces = plan_sample(tensors)
                    weights.samples = [(one.tensor, _read_at(stream.fileno(), one.begin, one.size)) for one in pieces]
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


def read_base_modules(folder: Path) -> dict[str, Shape | None] | None:
    """Return the modules of a base model with the shapes of their weights; None when its files are not readable."""
    try:
        names = list_names(folder)
        modules: dict[str, Shape | None] = {}
        if "model.safetensors.index.json" in names:
            listed = _modules_of_index(folder / "model.safetensors.index.json")
            if listed is None:
                return None
            modules.update(listed)
        for name in [name for name in names if name.endswith(".safetensors")][:_MOST_BASE_FILES]:
            tensors = read_header(read_weights(folder / name))
            if not isinstance(tensors, Finding):
                modules.update(base_modules(tensors))
            elif not modules:
                return None
        return modules or None
    except OSError:
        return None  # the comparison is optional: the Job of the base reports an unreadable base


def _modules_of_index(path: Path) -> dict[str, None] | None:
    size = file_size(path)
    if size is None or size > _LARGEST_INDEX:
        return None
    try:
        index = orjson.loads(path.read_bytes())
    except orjson.JSONDecodeError:
        return None
    names = index.get("weight_map") if isinstance(index, dict) else None
    if not isinstance(names, dict):
        return None
    return dict.fromkeys(name.rpartition(".")[0] for name in names if "." in name) or None


def as_failure(finding: Finding) -> DiskFailure:
    """Return the failure of the Job for a finding that rejects an adapter."""
    return DiskFailure(finding.reason, finding.detail)
