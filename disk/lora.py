"""The names of LoRA tensors: which ones the engine loads, and the module of the base that each belongs to. Pure.

Source: the names that PEFT writes, and vLLM's parser of them (0.15 to 0.32).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any

from disk.header import Tensor

_OUTER = "base_model.model."
_LORA = re.compile(r"\.lora_(?:embedding_)?([AB])(?:\.(?!bias$)[A-Za-z0-9_]+)??(?:\.weight)?$")
_LOADED = re.compile(r"\.lora_[AB]\.weight$|\.lora_embedding_[AB]$")
_COPIED_LAYERS = (".embed_tokens.base_layer.weight", ".lm_head.base_layer.weight")
_EXPERTS = re.compile(r"\.experts(\.base_layer)?$")
_OTHER = {"A": "B", "B": "A"}


def half_of(name: str) -> str | None:
    """Return which half of a LoRA a tensor is by its name, "A" or "B"; None: it is not a LoRA matrix."""
    match = _LORA.search(name)
    return match[1] if match else None


def other_half(name: str) -> str:
    """Return the name of the counterpart of a LoRA matrix."""
    match = _LORA.search(name)
    assert match is not None, "it is a LoRA matrix"
    at = match.start(1)
    return f"{name[:at]}{_OTHER[match[1]]}{name[at + 1 :]}"


def is_loaded_as_named(name: str) -> bool:
    """Return whether the engine takes the name of a LoRA matrix (`….lora_A.weight`, not `….lora_A.default.weight`)."""
    return _LOADED.search(name) is not None


def is_copy_of_base(name: str) -> bool:
    """Return whether a tensor is the base's own embedding or head, which PEFT saves beside its LoRA."""
    return name.endswith(_COPIED_LAYERS)


def module_path(tensor_name: str) -> str | None:
    """Return the module of the base that a LoRA tensor belongs to, or None for other tensors."""
    match = _LORA.search(tensor_name)
    if match is None:
        return None
    path = tensor_name[: match.start()]
    return path.replace(_OUTER, "") if path.startswith(_OUTER) else path  # each one, as the engine does


def targeted_parameters(config: Mapping[str, Any]) -> frozenset[str]:
    """Return the modules whose parameters are trained as such: `mlp.experts` of `mlp.experts.gate_up_proj`."""
    parameters = config.get("target_parameters")
    if not isinstance(parameters, list):
        return frozenset()
    return frozenset(name.rpartition(".")[0] for name in parameters if isinstance(name, str) and "." in name)


def is_of_parameters(path: str, targeted: Collection[str]) -> bool:
    """Return whether the LoRA of a module has a matrix for all experts: rank times their number rows."""
    plain = path.removesuffix(".base_layer")
    return _EXPERTS.search(path) is not None or any(plain == name or plain.endswith(f".{name}") for name in targeted)


def tensor_rank(tensor: Tensor, targeted: Collection[str] = ()) -> int | None:
    """Return the rank of a LoRA matrix, or None: not one, or one for all experts (rank times their number)."""
    half, path = half_of(tensor.name), module_path(tensor.name)
    if half is None or path is None or len(tensor.shape) < 2 or is_of_parameters(path, targeted):
        return None
    return tensor.shape[0] if half == "A" else tensor.shape[1]
