"""Checks whether the server will load an adapter. Pure: it sees names, the configuration and the header of weights.

Total: every function returns for any bytes, and each finding has a stable reason.
Source: docs/contract.md, Preflight; the files that PEFT 0.4 to 0.21 writes.
"""

from __future__ import annotations

import json
import math
import re
import struct
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, NamedTuple

import msgspec

from api.names import RANK_CEILINGS
from api.reasons import Reason
from api.text import clean

CONFIG = "adapter_config.json"
SAFETENSORS = "adapter_model.safetensors"
PICKLE = "adapter_model.bin"
WEIGHTS = (SAFETENSORS, PICKLE)

LARGEST_CONFIG = 1024 * 1024  # bytes
LARGEST_HEADER = 24 * 1024 * 1024  # bytes; about 150 000 tensors, as of an adapter for all experts; bounds memory
_LARGEST_POSSIBLE_HEADER = 100_000_000  # bytes; the limit of the format
PREFIX_BYTES = 512  # of a weights file: enough to recognize its format
TAIL_BYTES = 66_000  # of a zip: its end record is in the last 65 557 bytes

_LFS = b"version https://git-lfs.github.com/spec/"
_SHARD = re.compile(r"adapter_model(-\d+-of-\d+\.(safetensors|bin)|\.(safetensors|bin)\.index\.json)")
_OTHER = {"A": "B", "B": "A"}
_LONGEST_BASE_NAME = 200  # characters
_LORA = re.compile(r"\.lora_(?:embedding_)?([AB])(?:\.[A-Za-z0-9_]+)??(?:\.weight)?$")
_OUTER = "base_model.model."
_ELEMENT_BYTES = {
    **dict.fromkeys(("F64", "I64", "U64", "C64"), 8.0),
    **dict.fromkeys(("F32", "I32", "U32"), 4.0),
    **dict.fromkeys(("F16", "BF16", "I16", "U16"), 2.0),
    **dict.fromkeys(("F8_E4M3", "F8_E5M2", "F8_E8M0", "F8_E4M3FNUZ", "F8_E5M2FNUZ", "I8", "U8", "BOOL"), 1.0),
    **dict.fromkeys(("F6_E2M3", "F6_E3M2"), 0.75),
    "F4": 0.5,
}
_MOST_DIMENSIONS = 16
_LARGEST_RANK = 2**31


@dataclass(frozen=True, slots=True)
class Finding:
    """An error or a warning. `reason`: of the group `adapter` or `warning`."""

    reason: Reason
    detail: str


@dataclass(frozen=True, slots=True)
class Limits:
    """The requirements of the server and of the administrator."""

    max_rank: int  # the ceiling
    declared_rank: int
    base_model_id: str | None = None
    strict_base: bool = False
    allow_pickle: bool = True


class Tensor(NamedTuple):
    """One entry of a safetensors header."""

    name: str
    shape: tuple[int, ...]


_Count = Annotated[int, msgspec.Meta(ge=0, lt=2**53)]


class _Entry(msgspec.Struct, gc=False):
    """A tensor as the header describes it. All fields can be absent: `__metadata__` is not a tensor."""

    dtype: str = ""
    shape: tuple[_Count, ...] | None = None
    data_offsets: tuple[_Count, _Count] | None = None


class _Metadata(msgspec.Struct):
    metadata: dict[str, str] = msgspec.field(default_factory=dict, name="__metadata__")


_HEADER = msgspec.json.Decoder(dict[str, _Entry])
_RAW_HEADER = msgspec.json.Decoder(dict[str, msgspec.Raw])
_ENTRY = msgspec.json.Decoder(_Entry)
_METADATA = msgspec.json.Decoder(_Metadata)


@dataclass(frozen=True, slots=True)
class Verdict:
    """The outcome. `failure`: the first finding that rejects the adapter. `rank`: the real rank, if known."""

    failure: Finding | None
    warnings: tuple[Finding, ...] = ()
    rank: int | None = None
    base_name: str | None = None


@dataclass(slots=True)
class Weights:
    """What was read of the weights file: its size, its first bytes, the whole header if it has one, its tail."""

    name: str
    size: int
    prefix: bytes
    header: bytes = b""  # of safetensors: the JSON, without the eight bytes before it
    tail: bytes = b""  # of a .bin


@dataclass(slots=True)
class _Facts:
    rank: int | None = None
    base_name: str | None = None
    warnings: list[Finding] = field(default_factory=list)


# -- the listing ----------------------------------------------------------------------------------------------------


def check_listing(names: Collection[str]) -> Finding | None:
    """Check the file names of a source before anything is downloaded."""
    if CONFIG not in names:
        nested = sorted({name.rsplit("/", 1)[0] for name in names if name.endswith(f"/{CONFIG}")})
        if nested:
            shown = ", ".join(nested[:5]) + (", …" if len(nested) > 5 else "")
            return Finding(Reason.ADAPTER_LAYOUT_NESTED, f"{CONFIG} is not at the top level but in: {shown}")
        return Finding(Reason.ADAPTER_CONFIG_MISSING, f"there is no {CONFIG} (files: {_some(names)})")
    if not any(name in names for name in WEIGHTS):
        shards = sorted(name for name in names if _SHARD.fullmatch(name))
        if shards:
            return Finding(Reason.ADAPTER_SHARDED, f"the weights are in several files: {_some(shards)}")
        return Finding(
            Reason.ADAPTER_WEIGHTS_MISSING, f"neither {SAFETENSORS} nor {PICKLE} exists (files: {_some(names)})"
        )
    return None


def _some(names: Iterable[str]) -> str:
    shown = sorted(name[:80] for name in names)
    return ", ".join(shown[:5]) + (", …" if len(shown) > 5 else "") if shown else "none"


# -- adapter_config.json --------------------------------------------------------------------------------------------


def check_config(raw: bytes, limits: Limits) -> Verdict:
    """Check the configuration alone, before the weights are downloaded."""
    config = _parse_config(raw)
    if isinstance(config, Finding):
        return Verdict(config)
    facts = _Facts(base_name=_text(config.get("base_model_name_or_path")))
    failure = _judge_config(config, limits, facts)
    return Verdict(failure, tuple(facts.warnings), facts.rank, facts.base_name)


def _parse_config(raw: bytes) -> dict[str, Any] | Finding:
    if is_lfs_pointer(raw):
        return Finding(Reason.ADAPTER_IS_LFS_POINTER, f"{CONFIG} is a git-LFS pointer")
    if len(raw) > LARGEST_CONFIG:
        return Finding(Reason.ADAPTER_CONFIG_UNREADABLE, f"{CONFIG} is larger than {LARGEST_CONFIG} bytes")
    try:
        config = json.loads(raw.decode("utf-8"))  # the parser of the server; orjson refuses NaN
    except UnicodeDecodeError:
        return Finding(Reason.ADAPTER_CONFIG_UNREADABLE, f"{CONFIG} is not UTF-8 text")
    except json.JSONDecodeError as error:
        return Finding(Reason.ADAPTER_CONFIG_UNREADABLE, f"{CONFIG} is not JSON: {error.msg} at line {error.lineno}")
    except (ValueError, RecursionError):
        return Finding(Reason.ADAPTER_CONFIG_UNREADABLE, f"{CONFIG} is not readable JSON")
    if not isinstance(config, dict):
        return Finding(Reason.ADAPTER_CONFIG_UNREADABLE, f"{CONFIG} does not contain a JSON object")
    return config


def _judge_config(config: dict[str, Any], limits: Limits, facts: _Facts) -> Finding | None:
    kind = config.get("peft_type")
    if kind != "LORA":
        return Finding(Reason.ADAPTER_TYPE_UNSUPPORTED, f"peft_type is {_shown(kind)}, only LORA can be served")
    if config.get("use_dora"):
        return Finding(Reason.ADAPTER_USES_DORA, f"use_dora is {_shown(config['use_dora'])}")
    if config.get("modules_to_save"):
        return Finding(Reason.ADAPTER_SAVES_MODULES, f"modules_to_save is {_shown(config['modules_to_save'])}")
    if (finding := _judge_targets(config.get("target_modules"))) is not None:
        return finding
    if (finding := _judge_rank(config, limits, facts) or _judge_alpha(config, facts)) is not None:
        return finding
    if config.get("bias") not in (None, "none"):
        facts.warnings.append(Finding(Reason.ADAPTER_USES_BIAS, f"bias is {_shown(config['bias'])}: vLLM refuses it"))
    if config.get("lora_bias"):
        facts.warnings.append(Finding(Reason.ADAPTER_USES_BIAS, "lora_bias is true: engines ignore or refuse it"))
    return _judge_base(config.get("base_model_name_or_path"), limits, facts)


def _judge_targets(targets: object) -> Finding | None:
    if not targets:
        return Finding(Reason.ADAPTER_TARGETS_NOTHING, f"target_modules is {_shown(targets)}")
    if isinstance(targets, str):
        return None
    if not isinstance(targets, list) or not all(isinstance(target, str) and target for target in targets):
        return Finding(Reason.ADAPTER_CONFIG_UNREADABLE, f"target_modules is {_shown(targets)}, not a list of names")
    return None


def _judge_rank(config: dict[str, Any], limits: Limits, facts: _Facts) -> Finding | None:
    if config.get("r") is None:
        return Finding(Reason.ADAPTER_RANK_MISSING, f'{CONFIG} has no "r"')
    pattern = config.get("rank_pattern") or {}
    if not isinstance(pattern, dict):
        return Finding(Reason.ADAPTER_CONFIG_UNREADABLE, f"rank_pattern is {_shown(pattern)}, not an object")
    for name, value in (("r", config["r"]), *pattern.items()):
        if type(value) is not int or not 0 < value < _LARGEST_RANK:
            return Finding(
                Reason.ADAPTER_CONFIG_UNREADABLE, f"the rank {_shown(name)} is {_shown(value)}, not an integer ≥ 1"
            )
    facts.rank = max(config["r"], *pattern.values()) if pattern else config["r"]
    return judge_rank(facts.rank, limits, facts.warnings)


def _judge_alpha(config: dict[str, Any], facts: _Facts) -> Finding | None:
    """Check that alpha is a number: engines divide it by the rank."""
    alpha, pattern = config.get("lora_alpha"), config.get("alpha_pattern") or {}
    if not isinstance(pattern, dict):
        return Finding(Reason.ADAPTER_CONFIG_UNREADABLE, f"alpha_pattern is {_shown(pattern)}, not an object")
    for name, value in (("lora_alpha", 1 if alpha is None else alpha), *pattern.items()):
        if type(value) not in (int, float) or not math.isfinite(value):
            return Finding(
                Reason.ADAPTER_CONFIG_UNREADABLE, f"the scale {_shown(name)} is {_shown(value)}, not a number"
            )
    if alpha is None:
        facts.warnings.append(Finding(Reason.ADAPTER_ALPHA_MISSING, f'{CONFIG} has no "lora_alpha": vLLM refuses it'))
    return None


def judge_rank(rank: int, limits: Limits, warnings: list[Finding] | None = None) -> Finding | None:
    """Compare a real rank with the ceiling, and warn when it is above the declared rank."""
    if rank > limits.max_rank:
        possible = "" if rank <= RANK_CEILINGS[-1] else f"; no server supports more than {RANK_CEILINGS[-1]}"
        return Finding(
            Reason.ADAPTER_RANK_EXCEEDS_CEILING,
            f"the real rank {rank} is above the ceiling {limits.max_rank} (declared rank {limits.declared_rank})"
            f"{possible}",
        )
    if rank > limits.declared_rank and warnings is not None:
        warnings.append(
            Finding(
                Reason.ADAPTER_RANK_ABOVE_DECLARED,
                f"the real rank is {rank}, the declared rank is {limits.declared_rank}; set spec.rank: {rank}",
            )
        )
    return None


def _judge_base(name: object, limits: Limits, facts: _Facts) -> Finding | None:
    """Compare the names of the base. Of a local path only the last part counts: it is a path of the training host."""
    if not isinstance(name, str) or not name or not limits.base_model_id:
        return None
    named, base = name.rstrip("/").casefold(), limits.base_model_id.casefold()
    is_path = named.startswith((".", "/", "~")) or named.count("/") != 1 or "\\" in named
    if named == base or (is_path and named.replace("\\", "/").rsplit("/", 1)[-1] == base.rsplit("/", 1)[-1]):
        return None
    finding = Finding(
        Reason.ADAPTER_BASE_MISMATCH,
        f"it was trained on {_shown(name)}, the service's base is {_shown(limits.base_model_id)}",
    )
    if limits.strict_base:
        return finding
    facts.warnings.append(finding)
    return None


# -- weights --------------------------------------------------------------------------------------------------------


def is_lfs_pointer(prefix: bytes) -> bool:
    """Return whether a file is a git-LFS pointer."""
    return prefix.startswith(_LFS)


def header_length(weights_prefix: bytes) -> int | None:
    """Return the length of the JSON after the first eight bytes of a safetensors file; None for another file."""
    if len(weights_prefix) < 9 or weights_prefix[8:9] != b"{":
        return None
    length: int = struct.unpack("<Q", weights_prefix[:8])[0]
    return length if length <= _LARGEST_POSSIBLE_HEADER else None


def check_weights(weights: Weights, config: bytes, limits: Limits, base_modules: Collection[str] | None) -> Verdict:
    """Check configuration and weights together. `base_modules`: module paths of the base, None: not known."""
    verdict = check_config(config, limits)
    if verdict.failure is not None:
        return verdict
    facts = _Facts(verdict.rank, verdict.base_name, list(verdict.warnings))
    failure = _judge_weights(weights, config, limits, base_modules, facts)
    return Verdict(failure, tuple(facts.warnings), facts.rank, facts.base_name)


def _judge_weights(
    weights: Weights, config: bytes, limits: Limits, base_modules: Collection[str] | None, facts: _Facts
) -> Finding | None:
    if is_lfs_pointer(weights.prefix):
        return Finding(Reason.ADAPTER_IS_LFS_POINTER, f"{weights.name} is a git-LFS pointer of {weights.size} bytes")
    if weights.name == PICKLE:
        return _judge_pickle(weights, limits, facts)
    tensors = read_header(weights)
    if isinstance(tensors, Finding):
        return tensors
    ranks = _configured_ranks(config)
    return _judge_tensors(tensors, ranks, limits, facts) or _judge_modules(tensors, base_modules, facts)


def _judge_pickle(weights: Weights, limits: Limits, facts: _Facts) -> Finding | None:
    if not limits.allow_pickle:
        return Finding(Reason.ADAPTER_PICKLE_REFUSED, f"{weights.name} is an executable pickle")
    if weights.prefix.startswith(b"PK\x03\x04"):
        if b"PK\x05\x06" not in weights.tail:
            return Finding(
                Reason.ADAPTER_WEIGHTS_TRUNCATED,
                f"{weights.name} has no end record: it ends after {weights.size} bytes",
            )
    elif not weights.prefix.startswith(b"\x80"):  # the start of every pickle of protocol 2 and later
        return Finding(
            Reason.ADAPTER_WEIGHTS_UNREADABLE, f"{weights.name} is not a valid PyTorch file ({_guess(weights.prefix)})"
        )
    facts.warnings.append(
        Finding(Reason.ADAPTER_IS_PICKLE, f"{weights.name} is an executable pickle; {SAFETENSORS} is the safe format")
    )
    return None


def read_header(weights: Weights) -> list[Tensor] | Finding:
    """Read a safetensors header and compare it with the size of the file."""
    name, size = weights.name, weights.size
    if size < 9:
        return Finding(Reason.ADAPTER_WEIGHTS_TRUNCATED, f"{name} has {size} bytes")
    if (length := header_length(weights.prefix)) is None:
        return Finding(
            Reason.ADAPTER_WEIGHTS_UNREADABLE, f"{name} is not a valid safetensors file ({_guess(weights.prefix)})"
        )
    if LARGEST_HEADER < length < size:
        return Finding(
            Reason.ADAPTER_WEIGHTS_UNREADABLE, f"the header of {name} has {length} bytes, {LARGEST_HEADER} are read"
        )
    if 8 + length > size or len(weights.header) < length:
        return Finding(
            Reason.ADAPTER_WEIGHTS_TRUNCATED, f"{name} has {size} bytes, its header alone needs {8 + length}"
        )
    entries = _read_entries(memoryview(weights.header)[:length])
    if entries is None:
        return Finding(Reason.ADAPTER_WEIGHTS_UNREADABLE, f"the header of {name} is not a valid safetensors header")
    tensors: list[Tensor] = []
    spans: list[tuple[int, int]] = []
    while entries:
        key, entry = entries.popitem()  # from the end, so that memory is freed meanwhile
        if (span := _span_of(entry)) is None or entry.shape is None:
            return Finding(
                Reason.ADAPTER_WEIGHTS_UNREADABLE, f"the header of {name} describes {_shown(key)} incorrectly"
            )
        tensors.append(Tensor(key, entry.shape))
        spans.append(span)
    tensors.reverse()
    spans.sort()
    return _judge_spans(spans, length, weights) or tensors


def _read_entries(header: memoryview) -> dict[str, _Entry] | None:
    """Return the tensors that a header describes, in its order; None when it is not a valid header."""
    try:
        _METADATA.decode(header)  # libraries read the file only if this is a map of strings
        try:
            entries = _HEADER.decode(header)
        except msgspec.ValidationError:  # perhaps only because the metadata also has a "shape"
            raw = _RAW_HEADER.decode(header)
            raw.pop("__metadata__", None)
            return {name: _ENTRY.decode(entry) for name, entry in raw.items()}
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    entries.pop("__metadata__", None)
    return entries


def _span_of(entry: _Entry) -> tuple[int, int] | None:
    """Return where the bytes of a tensor are, or None when its description is incomplete or inconsistent."""
    shape, offsets = entry.shape, entry.data_offsets
    if not entry.dtype or shape is None or offsets is None or len(shape) > _MOST_DIMENSIONS:
        return None
    size = offsets[1] - offsets[0]
    element = _ELEMENT_BYTES.get(entry.dtype)
    if size < 0 or (element is not None and math.prod(shape) * element != size):
        return None
    return offsets


def _judge_spans(spans: Sequence[tuple[int, int]], length: int, weights: Weights) -> Finding | None:
    """Check that the data has no gaps and no overlaps, and ends where the file ends."""
    position = 0
    for begin, end in spans:
        if begin != position:
            return Finding(Reason.ADAPTER_WEIGHTS_UNREADABLE, f"the data of {weights.name} has gaps or overlaps")
        position = end
    wanted = 8 + length + position
    if weights.size < wanted:
        return Finding(
            Reason.ADAPTER_WEIGHTS_TRUNCATED, f"{weights.name} has {weights.size} bytes, its header describes {wanted}"
        )
    if weights.size > wanted:
        return Finding(
            Reason.ADAPTER_WEIGHTS_UNREADABLE,
            f"{weights.name} has {weights.size - wanted} bytes more than its header describes",
        )
    return None


def _configured_ranks(config: bytes) -> set[int]:
    parsed = _parse_config(config)
    if isinstance(parsed, Finding):
        return set()
    return {parsed["r"], *(parsed.get("rank_pattern") or {}).values()}


def _judge_tensors(tensors: Sequence[Tensor], configured: set[int], limits: Limits, facts: _Facts) -> Finding | None:
    if not any(_LORA.search(tensor.name) for tensor in tensors):
        return Finding(Reason.ADAPTER_FITS_NO_MODULE, f"{SAFETENSORS} has no lora_A and lora_B tensors")
    if (finding := _judge_pairs(tensors)) is not None:
        return finding
    extra: list[str] = []
    for tensor in tensors:
        if "lora_magnitude_vector" in tensor.name:
            return Finding(Reason.ADAPTER_USES_DORA, f"it has the DoRA tensor {_shown(tensor.name)}")
        if _LORA.search(tensor.name) is None:
            extra.append(tensor.name)
    if extra:
        facts.warnings.append(
            Finding(
                Reason.ADAPTER_EXTRA_TENSORS,
                f"{len(extra)} tensors are not LoRA matrices, for example {_shown(extra[0])}",
            )
        )
    found = {rank for tensor in tensors if (rank := tensor_rank(tensor)) is not None}
    if not found:
        return None
    if (odd := sorted(found - configured)) and configured:
        facts.warnings.append(
            Finding(Reason.ADAPTER_RANK_MISMATCH, f"tensors have rank {odd[-1]}, {CONFIG} says {max(configured)}")
        )
    if facts.rank is not None and max(found) > facts.rank:
        facts.rank = max(found)
        facts.warnings = [one for one in facts.warnings if one.reason != Reason.ADAPTER_RANK_ABOVE_DECLARED]
        return judge_rank(facts.rank, limits, facts.warnings)
    return None


def _judge_pairs(tensors: Sequence[Tensor]) -> Finding | None:
    """Check that each LoRA matrix has two dimensions or more, and a counterpart with the same rank."""
    alone: dict[str, Tensor] = {}  # name of the counterpart → a matrix that waits for it; most names come in pairs
    for tensor in tensors:
        if (match := _LORA.search(tensor.name)) is None:
            continue
        if len(tensor.shape) < 2 or 0 in tensor.shape:
            return Finding(
                Reason.ADAPTER_TENSORS_INCOMPLETE,
                f"{_shown(tensor.name)} has the shape {list(tensor.shape)}, so it is not a matrix",
            )
        if (half := alone.pop(tensor.name, None)) is None:
            at = match.start(1)
            alone[f"{tensor.name[:at]}{_OTHER[match[1]]}{tensor.name[at + 1 :]}"] = tensor
        elif (rank := tensor_rank(tensor)) is not None and rank != (other := tensor_rank(half)):
            detail = f"{_shown(tensor.name)} has rank {rank}, {_shown(half.name)} has {other}"
            return Finding(Reason.ADAPTER_TENSORS_INCOMPLETE, detail)
    for missing, tensor in alone.items():
        return Finding(Reason.ADAPTER_TENSORS_INCOMPLETE, f"{_shown(tensor.name)} has no counterpart {_shown(missing)}")
    return None


def tensor_rank(tensor: Tensor) -> int | None:
    """Return the rank of a LoRA matrix, or None: not one, or of fused experts (rank times their number)."""
    match = _LORA.search(tensor.name)
    if match is None or len(tensor.shape) < 2 or ".experts.lora_" in tensor.name:
        return None
    return tensor.shape[0] if match[1] == "A" else tensor.shape[1]


def _judge_modules(tensors: Sequence[Tensor], base_modules: Collection[str] | None, facts: _Facts) -> Finding | None:
    """Compare the module paths of adapter and base. A module without a match loads, but has no effect."""
    if not base_modules:
        return None
    ours = sorted({path for tensor in tensors if (path := module_path(tensor.name)) is not None})
    known = _with_parents(base_modules)
    unknown = [path for path in ours if not _is_known(path, known)]
    if not unknown:
        return None
    example = f"{_shown(unknown[0])} is not in the base, which has {_shown(sorted(base_modules)[0])}"
    if len(unknown) == len(ours):
        return Finding(Reason.ADAPTER_FITS_NO_MODULE, f"none of its {len(ours)} modules is in the base: {example}")
    facts.warnings.append(
        Finding(Reason.ADAPTER_FITS_PARTLY, f"{len(unknown)} of its {len(ours)} modules are not in the base: {example}")
    )
    return None


def module_path(tensor_name: str) -> str | None:
    """Return the module of the base that a LoRA tensor belongs to, or None for other tensors."""
    match = _LORA.search(tensor_name)
    return tensor_name[: match.start()].removeprefix(_OUTER) if match else None


def base_module_paths(tensor_names: Iterable[str]) -> set[str]:
    """Return the module paths of a base from the names of its tensors (`….q_proj.weight` → `….q_proj`)."""
    return {name.rpartition(".")[0] for name in tensor_names if "." in name}


def _with_parents(modules: Collection[str]) -> set[str]:
    """Return all paths and their parents: an adapter for fused experts names their common parent."""
    known: set[str] = set()
    for module in modules:
        while module and module not in known:
            known.add(module)
            module = module.rpartition(".")[0]  # noqa: PLW2901 - walks up
    return known


def _is_known(path: str, known: set[str]) -> bool:
    if path in known:
        return True
    outer, _, inner = path.partition(".")
    # Some bases are saved without their outermost module (GPT-2: "h.0…" for "transformer.h.0…"); transformers adds
    # it on loading. With any other prefix the engine loads the adapter and answers like the base.
    return outer in ("transformer", "model") and outer not in known and inner in known


# -- words ----------------------------------------------------------------------------------------------------------


def _guess(prefix: bytes) -> str:
    """Describe what a file looks like."""
    start = prefix.lstrip()[:64].lower()
    if start.startswith((b"<!doctype", b"<html")):
        return "it looks like an HTML page"
    if start.startswith(b"<?xml"):
        return "it looks like XML, perhaps an error response"
    if start.startswith(b"{"):
        return "it looks like JSON, perhaps an error response"
    if prefix.startswith(b"PK\x03\x04"):
        return "it looks like a zip file, perhaps a .bin with another name"
    return "unknown format"


def _text(value: object) -> str | None:
    """Return a text for a status: printable and bounded, whatever the file contains."""
    if not isinstance(value, str) or not value:
        return None
    return clean(value, _LONGEST_BASE_NAME)


def _shown(value: object) -> str:
    """Return a value quoted for people: one line, bounded, without control characters."""
    try:
        text = json.dumps(value, ensure_ascii=True)
    except (TypeError, ValueError, RecursionError):
        text = f"a {type(value).__name__}"
    return text if len(text) <= 160 else f"{text[:160]}…"
