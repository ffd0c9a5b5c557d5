"""Reads of an adapter what preflight needs: from a folder, or from a source over the network. Shell of `inspect`."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from cli.plugin.inspect_view import Inspected
from disk.fs import list_names
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
    check_config,
    check_listing,
    check_weights,
    header_length,
    read_header,
)
from disk.sources import RemoteFile, Source, open_source
from disk.weights import read_config, read_weights


@dataclass(frozen=True, slots=True)
class Reach:
    """How to reach a source: HF_TOKEN, HF_ENDPOINT and AWS_* of the environment count, as in a Job."""

    source_uri: str
    allow_link_local: bool = False
    s3_endpoint: str | None = None
    s3_region: str | None = None
    s3_addressing_style: str = "auto"
    s3_signature_version: str = "auto"
    s3_auth: str = "chain"
    s3_credentials_dir: str | None = None
    s3_ca_file: str | None = None
    s3_insecure_skip_verify: bool = False


def inspect_folder(folder: Path, limits: Limits) -> Inspected:
    """Look at a directory. Raises: OSError."""
    names = list_names(folder)
    files = {name: (folder / name).stat().st_size for name in names if (folder / name).is_file()}
    if (finding := check_listing(list(files))) is not None:
        config = read_config(folder / CONFIG) if CONFIG in files else b""
        return Inspected(str(folder), files, _with_config(finding, config, limits), config)
    weights = next(name for name in WEIGHTS if name in files)
    return _judge(str(folder), files, read_config(folder / CONFIG), read_weights(folder / weights), limits=limits)


def inspect_source(reach: Reach, limits: Limits) -> Inspected:
    """Look at a source; of the weights only the header is read. Raises: DiskFailure."""
    source = open_source(reach)
    listing = source.list_files()
    by_name = {file.name: file for file in listing.files}
    files = {file.name: file.size for file in listing.files}
    config = _read(source, by_name[CONFIG], 0, LARGEST_CONFIG + 1) if CONFIG in by_name else b""
    if (finding := check_listing(list(by_name))) is not None:
        verdict = _with_config(finding, config, limits)
        return Inspected(reach.source_uri, files, verdict, config, listing.revision)
    weights = next(by_name[name] for name in WEIGHTS if name in by_name)
    return _judge(
        reach.source_uri, files, config, _read_weights(source, weights), limits=limits, revision=listing.revision
    )


def _with_config(finding: Finding, config: bytes, limits: Limits) -> Verdict:
    """The listing's fault counts; what the configuration tells is shown all the same."""
    told = check_config(config, limits) if config else Verdict(None)
    return Verdict(finding, told.warnings, told.rank, told.base_name)


def _judge(
    source: str, files: dict[str, int], config: bytes, weights: Weights, *, limits: Limits, revision: str | None = None
) -> Inspected:
    verdict = check_weights(weights, config, limits, None)
    tensors = read_header(weights) if weights.name == SAFETENSORS else None
    count = len(tensors) if isinstance(tensors, list) else None
    return Inspected(source, files, verdict, config, revision, count)


def _read_weights(source: Source, file: RemoteFile) -> Weights:
    prefix = _read(source, file, 0, PREFIX_BYTES)
    weights = Weights(os.path.basename(file.name), file.size, prefix)
    if file.name.endswith(".safetensors"):
        if (length := header_length(prefix)) is not None:
            weights.header = _read(source, file, 8, min(length, LARGEST_HEADER, file.size))
    else:
        weights.tail = _read(source, file, max(0, file.size - TAIL_BYTES), TAIL_BYTES)
    return weights


def _read(source: Source, file: RemoteFile, offset: int, count: int) -> bytes:
    """Read a part of a file; the rest of the stream is not fetched. Raises: DiskFailure."""
    got = bytearray()
    with source.open_file(file, offset) as stream:
        for piece in stream.pieces:
            got += piece
            if len(got) >= count:
                break
    return bytes(got[:count])
