"""Checks whether the server will load an adapter. Pure: it sees names, the configuration and the header of weights.

Total: every function returns for any bytes, and each finding has a stable reason.
Source: docs/contract.md, Preflight; the files that PEFT 0.4 to 0.21 writes.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from api.names import RANK_CEILINGS
from api.reasons import Reason
from api.text import clean
from disk.findings import Finding, Limits, Verdict, shown
from disk.finite import first_not_finite
from disk.fit import BaseModules, judge_fit
from disk.header import FLOAT_BYTES, SAFETENSORS, Tensor, Weights, guess, read_header
from disk.lora import (
    half_of,
    is_copy_of_base,
    is_loaded_as_named,
    other_half,
    targeted_parameters,
    tensor_rank,
)

CONFIG = "adapter_config.json"
PICKLE = "adapter_model.bin"
WEIGHTS = (SAFETENSORS, PICKLE)

LARGEST_CONFIG = 1024 * 1024  # bytes
PREFIX_BYTES = 512  # of a weights file: enough to recognize its format
TAIL_BYTES = 66_000  # of a zip: its end record is in the last 65 557 bytes

_LFS = b"version https://git-lfs.github.com/spec/"
_SHARD = re.compile(r"adapter_model(-\d+-of-\d+\.(safetensors|bin)|\.(safetensors|bin)\.index\.json)")
_LONGEST_BASE_NAME = 200  # characters
_LARGEST_RANK = 2**31

NEWER_ENGINE = "0.32"
"""The oldest vLLM of those that were tried (0.15, 0.22, 0.32) that serves what needs a newer one."""

_HARMLESS_INITS = frozenset({"gaussian", "eva", "orthogonal", "mica", "lora_ga"})
"""Values of `init_lora_weights` that leave the weights of the base as they are. Source: vLLM 0.32, PEFTHelper."""

_SAVED_WITH_CLASSIFIERS = frozenset({"classifier", "score"})
_VARIANTS = {
    "alora_invocation_tokens": Reason.ADAPTER_USES_ACTIVATED_LORA,
    "alora_invocation_string": Reason.ADAPTER_USES_ACTIVATED_LORA,
    "layer_replication": Reason.ADAPTER_REPLICATES_LAYERS,
    "use_bdlora": Reason.ADAPTER_USES_BLOCK_DIAGONAL,
    "use_qalora": Reason.ADAPTER_USES_QALORA,
}
"""Options of PEFT that change what an adapter means, and that the engine refuses or ignores."""


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
            places = ", ".join(nested[:5]) + (", …" if len(nested) > 5 else "")
            return Finding(Reason.ADAPTER_LAYOUT_NESTED, f"{CONFIG} is not at the top level but in: {places}")
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
    some = sorted(name[:80] for name in names)
    return ", ".join(some[:5]) + (", …" if len(some) > 5 else "") if some else "none"


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
    if kind is not None and (not isinstance(kind, str) or kind.upper() != "LORA"):
        return Finding(Reason.ADAPTER_TYPE_UNSUPPORTED, f"peft_type is {shown(kind)}, only LORA can be served")
    if config.get("use_dora"):
        return Finding(Reason.ADAPTER_USES_DORA, f"use_dora is {shown(config['use_dora'])}")
    for option, reason in _VARIANTS.items():
        if config.get(option):
            return Finding(reason, f"{option} is {shown(config[option])}")
    failure = _judge_saved(config.get("modules_to_save"), facts) or _judge_biases(config) or _judge_init(config)
    if failure is not None:
        return failure
    if "target_modules" not in config:
        return Finding(Reason.ADAPTER_TARGETS_NOTHING, f'{CONFIG} has no "target_modules"')
    if (finding := _judge_rank(config, limits, facts) or _judge_alpha(config)) is not None:
        return finding
    for option in ("rank_pattern", "alpha_pattern"):
        if config.get(option):
            facts.warnings.append(_needs_newer(f"{option} is set, which older engines ignore"))
            break
    return _judge_base(config.get("base_model_name_or_path"), limits, facts)


def _needs_newer(why: str) -> Finding:
    return Finding(Reason.ADAPTER_NEEDS_NEWER_ENGINE, f"it needs vLLM {NEWER_ENGINE} or newer: {why}")


def _judge_saved(saved: object, facts: _Facts) -> Finding | None:
    """Judge `modules_to_save`; whether such tensors are there is seen in the weights."""
    if not saved:
        return None
    if isinstance(saved, list) and all(isinstance(name, str) and name in _SAVED_WITH_CLASSIFIERS for name in saved):
        facts.warnings.append(_needs_newer(f"modules_to_save is {shown(saved)}, which older engines refuse"))
        return None
    return Finding(Reason.ADAPTER_SAVES_MODULES, f"modules_to_save is {shown(saved)}")


def _judge_biases(config: Mapping[str, Any]) -> Finding | None:
    if config.get("bias", "none") != "none":
        return Finding(Reason.ADAPTER_USES_BIAS, f'bias is {shown(config["bias"])}, not "none"')
    if config.get("lora_bias"):
        return Finding(Reason.ADAPTER_USES_BIAS, f"lora_bias is {shown(config['lora_bias'])}")
    return None


def _judge_init(config: Mapping[str, Any]) -> Finding | None:
    init = config.get("init_lora_weights")
    if not isinstance(init, str) or init.lower() in _HARMLESS_INITS:
        return None
    detail = f"init_lora_weights is {shown(init)}: the adapter belongs to changed weights of the base"
    return Finding(Reason.ADAPTER_INIT_CHANGES_BASE, detail)


def _judge_rank(config: dict[str, Any], limits: Limits, facts: _Facts) -> Finding | None:
    if config.get("r") is None:
        return Finding(Reason.ADAPTER_RANK_MISSING, f'{CONFIG} has no "r"')
    pattern = config.get("rank_pattern") or {}
    if not isinstance(pattern, dict):
        return Finding(Reason.ADAPTER_CONFIG_UNREADABLE, f"rank_pattern is {shown(pattern)}, not an object")
    for name, value in (("r", _whole(config["r"])), *pattern.items()):
        if type(value) is not int or not 0 < value < _LARGEST_RANK:
            return Finding(
                Reason.ADAPTER_CONFIG_UNREADABLE, f"the rank {shown(name)} is {shown(value)}, not an integer ≥ 1"
            )
    facts.rank = max(_configured_ranks(config))
    return judge_rank(facts.rank, limits, facts.warnings)


def _whole(value: object) -> object:
    """Return a number without a fraction as an integer, as Python computes with it."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _configured_ranks(config: Mapping[str, Any]) -> set[int]:
    """Return the ranks that a valid configuration names."""
    return {int(config["r"]), *(config.get("rank_pattern") or {}).values()}


def _judge_alpha(config: dict[str, Any]) -> Finding | None:
    """Check that alpha is a number: engines divide it by the rank."""
    alpha, pattern = config.get("lora_alpha"), config.get("alpha_pattern") or {}
    if alpha is None:
        return Finding(Reason.ADAPTER_ALPHA_MISSING, f'{CONFIG} has no "lora_alpha"')
    if not isinstance(pattern, dict):
        return Finding(Reason.ADAPTER_CONFIG_UNREADABLE, f"alpha_pattern is {shown(pattern)}, not an object")
    for name, value in (("lora_alpha", alpha), *pattern.items()):
        if type(value) not in (int, float) or not math.isfinite(value):
            return Finding(Reason.ADAPTER_CONFIG_UNREADABLE, f"the scale {shown(name)} is {shown(value)}, not a number")
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
        f"it was trained on {shown(name)}, the service's base is {shown(limits.base_model_id)}",
    )
    if limits.strict_base:
        return finding
    facts.warnings.append(finding)
    return None


# -- weights --------------------------------------------------------------------------------------------------------


def is_lfs_pointer(prefix: bytes) -> bool:
    """Return whether a file is a git-LFS pointer."""
    return prefix.startswith(_LFS)


def check_weights(weights: Weights, config: bytes, limits: Limits, base: BaseModules | None) -> Verdict:
    """Check configuration and weights together. `base`: the modules of the base, None: not known."""
    parsed = _parse_config(config)
    verdict = check_config(config, limits)
    if verdict.failure is not None or isinstance(parsed, Finding):
        return verdict
    facts = _Facts(verdict.rank, verdict.base_name, list(verdict.warnings))
    failure = _judge_weights(weights, parsed, limits, base, facts)
    return Verdict(failure, tuple(facts.warnings), facts.rank, facts.base_name)


def _judge_weights(
    weights: Weights, config: Mapping[str, Any], limits: Limits, base: BaseModules | None, facts: _Facts
) -> Finding | None:
    if is_lfs_pointer(weights.prefix):
        return Finding(Reason.ADAPTER_IS_LFS_POINTER, f"{weights.name} is a git-LFS pointer of {weights.size} bytes")
    if weights.name == PICKLE:
        return _judge_pickle(weights, limits, facts)
    tensors = read_header(weights)
    if isinstance(tensors, Finding):
        return tensors
    targeted = targeted_parameters(config)
    failure = (
        _judge_names(tensors, config)
        or _judge_pairs(tensors, targeted)
        or _judge_ranks(tensors, targeted, _configured_ranks(config), limits, facts)
    )
    if failure is None and base:
        failure, warning = judge_fit(tensors, base, targeted)
        facts.warnings += [warning] if warning is not None else []
    if failure is None and (spoilt := first_not_finite(weights.samples)) is not None:
        return Finding(Reason.ADAPTER_WEIGHTS_NOT_FINITE, f"{shown(spoilt.name)} has NaN or infinite values")
    return failure


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
            Reason.ADAPTER_WEIGHTS_UNREADABLE, f"{weights.name} is not a valid PyTorch file ({guess(weights.prefix)})"
        )
    facts.warnings.append(
        Finding(Reason.ADAPTER_IS_PICKLE, f"{weights.name} is an executable pickle; {SAFETENSORS} is the safe format")
    )
    return None


def _judge_names(tensors: Sequence[Tensor], config: Mapping[str, Any]) -> Finding | None:
    """Check that each tensor is one that the engine loads: one foreign tensor ends the whole adapter."""
    if not any(half_of(tensor.name) for tensor in tensors):
        return Finding(Reason.ADAPTER_FITS_NO_MODULE, f"{SAFETENSORS} has no lora_A and lora_B tensors")
    extra = []
    for tensor in tensors:
        name = tensor.name
        if half_of(name) is not None:
            if not is_loaded_as_named(name):
                return Finding(Reason.ADAPTER_TENSORS_MISNAMED, f"{shown(name)} is not a name that the engine loads")
            if tensor.dtype not in FLOAT_BYTES:
                detail = f"{shown(name)} has the type {shown(tensor.dtype)}, not floating-point numbers"
                return Finding(Reason.ADAPTER_WEIGHTS_NOT_FLOAT, detail)
        elif "lora_magnitude_vector" in name:
            return Finding(Reason.ADAPTER_USES_DORA, f"it has the DoRA tensor {shown(name)}")
        elif not is_copy_of_base(name):
            extra.append(name)
    if not extra:
        return None
    example = f"{len(extra)} tensors are not LoRA matrices, for example {shown(extra[0])}"
    if all(name.endswith((".lora_B.bias", ".lora_A.bias")) for name in extra):
        return Finding(Reason.ADAPTER_USES_BIAS, f"it has the bias {shown(extra[0])}")
    if any(name.split(".")[-2:-1] == [saved] for name in extra for saved in config.get("modules_to_save") or ()):
        return Finding(Reason.ADAPTER_SAVES_MODULES, example)
    return Finding(Reason.ADAPTER_EXTRA_TENSORS, example)


def _judge_pairs(tensors: Sequence[Tensor], targeted: Collection[str]) -> Finding | None:
    """Check that each LoRA matrix has two dimensions or more, and a counterpart with the same rank."""
    alone: dict[str, Tensor] = {}  # name of the counterpart → a matrix that waits for it; most names come in pairs
    for tensor in tensors:
        if half_of(tensor.name) is None:
            continue
        if len(tensor.shape) < 2 or 0 in tensor.shape:
            return Finding(
                Reason.ADAPTER_TENSORS_INCOMPLETE,
                f"{shown(tensor.name)} has the shape {list(tensor.shape)}, so it is not a matrix",
            )
        if (half := alone.pop(tensor.name, None)) is None:
            alone[other_half(tensor.name)] = tensor
        elif (rank := tensor_rank(tensor, targeted)) is not None and rank != (other := tensor_rank(half, targeted)):
            detail = f"{shown(tensor.name)} has rank {rank}, {shown(half.name)} has {other}"
            return Finding(Reason.ADAPTER_TENSORS_INCOMPLETE, detail)
    for missing, tensor in alone.items():
        return Finding(Reason.ADAPTER_TENSORS_INCOMPLETE, f"{shown(tensor.name)} has no counterpart {shown(missing)}")
    return None


def _judge_ranks(
    tensors: Sequence[Tensor], targeted: Collection[str], configured: set[int], limits: Limits, facts: _Facts
) -> Finding | None:
    """Compare the ranks of the matrices with the configuration and the ceiling: the files are the truth."""
    found = {rank for tensor in tensors if (rank := tensor_rank(tensor, targeted)) is not None}
    if odd := sorted(found - configured):
        facts.warnings.append(
            Finding(Reason.ADAPTER_RANK_MISMATCH, f"tensors have rank {odd[-1]}, {CONFIG} says {max(configured)}")
        )
    if facts.rank is not None and found and max(found) > facts.rank:
        facts.rank = max(found)
        facts.warnings = [one for one in facts.warnings if one.reason != Reason.ADAPTER_RANK_ABOVE_DECLARED]
        return judge_rank(facts.rank, limits, facts.warnings)
    return None


# -- words ----------------------------------------------------------------------------------------------------------


def _text(value: object) -> str | None:
    """Return a text for a status: printable and bounded, whatever the file contains."""
    if not isinstance(value, str) or not value:
        return None
    return clean(value, _LONGEST_BASE_NAME)
