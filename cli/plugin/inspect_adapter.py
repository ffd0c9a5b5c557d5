"""`inspect`: what an adapter's files show without a cluster. First the pure part, then the reads.

A folder is read from the disk, a source over the network; of the weights only the header is read.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from api.reasons import EXPLANATIONS, Reason
from cli.plugin.output import BAD, BOLD, DIM, GOOD, WAIT, Cell, Line, columns, line, size
from disk.findings import Finding, Limits, Verdict
from disk.header import LARGEST_HEADER, SAFETENSORS, Weights, header_length, read_header
from disk.preflight import (
    CONFIG,
    LARGEST_CONFIG,
    PREFIX_BYTES,
    TAIL_BYTES,
    WEIGHTS,
    check_config,
    check_listing,
    check_weights,
)
from disk.sources import RemoteFile, Source, open_source
from disk.sources.base import MOST_LISTED_FILES
from disk.weights import read_config, read_weights
from rules.rank import round_up

_TARGETS_SHOWN = 12
_UNBOUNDED = 2**31


@dataclass(frozen=True, slots=True)
class Inspected:
    """What was found. `files`: name → bytes; `config`: adapter_config.json as read, empty if there is none."""

    source: str
    files: Mapping[str, int]
    verdict: Verdict
    config: bytes = b""
    revision: str | None = None
    tensors: int | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)


def view(seen: Inspected) -> dict[str, Any]:
    """Return what was found, for programs."""
    config = _parse(seen.config)
    verdict = seen.verdict
    return {
        "source": seen.source,
        "revision": seen.revision,
        "servable": verdict.failure is None,
        "problem": _finding(verdict.failure) if verdict.failure else None,
        "warnings": [_finding(one) for one in verdict.warnings],
        "rank": verdict.rank,
        "neededCeiling": round_up(verdict.rank) if verdict.rank else None,
        "alpha": config.get("lora_alpha"),
        "targets": _targets(config),
        "base": verdict.base_name or config.get("base_model_name_or_path"),
        "peftType": config.get("peft_type"),
        "tensors": seen.tensors,
        "sizeBytes": sum(seen.files.values()),
        "files": dict(sorted(seen.files.items())),
    }


def _parse(raw: bytes) -> dict[str, Any]:
    try:
        found = json.loads(raw)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _targets(config: Mapping[str, Any]) -> list[str] | str | None:
    found = config.get("target_modules")
    if isinstance(found, list):
        return sorted(str(one) for one in found)
    return found if isinstance(found, str) else None


def _finding(found: Finding) -> dict[str, str]:
    return {"reason": str(found.reason), "detail": found.detail, "fix": EXPLANATIONS[found.reason].fix}


def lines(seen: Inspected) -> list[Line]:
    """Return what was found, for people."""
    shown = view(seen)
    out = [line((shown["source"], BOLD), "   ", _verdict_words(shown))]
    out += columns(_facts(shown), indent=2)
    for found, style in [(shown["problem"], BAD), *((one, WAIT) for one in shown["warnings"])]:
        if found is not None:
            out.append(line("  ", (f"{found['reason']}: {found['detail']}", style)))
            if found["fix"]:
                out.append(line("    fix: ", (found["fix"], BOLD)))
    if shown["servable"] and shown["rank"]:
        out.append(line(("  manifest: ", DIM), f"spec: {{type: adapter, rank: {shown['rank']}, …}}"))
    return out


def _verdict_words(shown: Mapping[str, Any]) -> Cell:
    if not shown["servable"]:
        return ("cannot be served", BAD)
    if any(one["reason"] == Reason.ADAPTER_BASE_MISMATCH for one in shown["warnings"]):
        return ("can be served, but was trained on another base model", WAIT)
    return ("can be served", GOOD)


def _facts(shown: Mapping[str, Any]) -> list[list[Cell]]:
    rows: list[list[Cell]] = []
    if shown["rank"] is not None:
        ceiling = shown["neededCeiling"]
        rows.append(
            [("rank", DIM), f"{shown['rank']} (needs a ceiling of {ceiling})" if ceiling else f"{shown['rank']}"]
        )
    if shown["base"]:
        rows.append([("base", DIM), str(shown["base"])])
    if shown["targets"]:
        rows.append([("targets", DIM), _target_words(shown["targets"])])
    if shown["tensors"] is not None:
        rows.append([("tensors", DIM), str(shown["tensors"])])
    if shown["revision"]:
        rows.append([("revision", DIM), str(shown["revision"])])
    rows.append([("size", DIM), f"{size(shown['sizeBytes'])} in {len(shown['files'])} files"])
    return rows


def _target_words(targets: Sequence[str] | str) -> str:
    if isinstance(targets, str):
        return targets
    more = f" and {len(targets) - _TARGETS_SHOWN} more" if len(targets) > _TARGETS_SHOWN else ""
    return ", ".join(targets[:_TARGETS_SHOWN]) + more


# -- reading --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Reach:
    """How to reach a source. As in a Job, HF_TOKEN, HF_ENDPOINT and AWS_* of the environment are used."""

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
    hub_ca_file: str | None = None


def inspect_folder(folder: Path, limits: Limits) -> Inspected:
    """Inspect a directory. Raises: OSError."""
    files = _files_below(folder)
    if (finding := check_listing(list(files))) is not None:
        config = read_config(folder / CONFIG) if CONFIG in files else b""
        return Inspected(str(folder), files, _with_config(finding, config, limits), config)
    weights = next(name for name in WEIGHTS if name in files)
    read = read_weights(folder / weights, sampled=True)
    return _judge(str(folder), files, read_config(folder / CONFIG), read, limits=limits)


def _files_below(folder: Path) -> dict[str, int]:
    """Return the files of a directory with their sizes, named as a source lists them."""
    found: dict[str, int] = {}
    for place, _, names in os.walk(folder):
        for name in names:
            path = Path(place, name)
            if path.is_file():
                found[path.relative_to(folder).as_posix()] = path.stat().st_size
        if len(found) > MOST_LISTED_FILES:
            break
    return found


def inspect_source(reach: Reach, limits: Limits) -> Inspected:
    """Inspect a source; of the weights only the header is read. Raises: DiskFailure."""
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
    """Return the listing's problem together with the facts of the configuration."""
    known = check_config(config, limits) if config else Verdict(None)
    return Verdict(finding, known.warnings, known.rank, known.base_name)


def _judge(
    source: str, files: dict[str, int], config: bytes, weights: Weights, *, limits: Limits, revision: str | None = None
) -> Inspected:
    verdict = _all_problems(check_weights(weights, config, limits, None), weights, config, limits)
    tensors = read_header(weights) if weights.name == SAFETENSORS else None
    count = len(tensors) if isinstance(tensors, list) else None
    return Inspected(source, files, verdict, config, revision, count)


def _all_problems(verdict: Verdict, weights: Weights, config: bytes, limits: Limits) -> Verdict:
    """Return the verdict with the problems that a rank above the ceiling hides.

    Staging stops at the first problem; a person who inspects an adapter wants to know all of them.
    """
    found = verdict.failure
    if found is None or found.reason != Reason.ADAPTER_RANK_EXCEEDS_CEILING:
        return verdict
    failure = Finding(found.reason, f"rank {verdict.rank} is above --max-rank {limits.max_rank}")
    rest = check_weights(weights, config, replace(limits, max_rank=_UNBOUNDED), None)
    hidden = (rest.failure,) if rest.failure is not None else ()
    warnings = tuple(one for one in rest.warnings if one.reason != Reason.ADAPTER_RANK_ABOVE_DECLARED)
    return replace(rest, failure=failure, warnings=(*hidden, *warnings))


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
