"""Small LoRA adapters for the sources: what the PEFT library would write for the cluster's base models."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from devcluster.base_models import BASE_MODELS, BaseModel, render_safetensors, tensor_shapes


@dataclass(frozen=True, slots=True)
class SampleAdapter:
    """One adapter: its path below a source's root, the base that it was trained on, its rank and targets."""

    folder: str  # BUCKET/KEY… or ORG/NAME
    base: BaseModel
    rank: int
    targets: tuple[str, ...] = ("q_proj", "v_proj")


GEMMA = next(model for model in BASE_MODELS if model.model_id == "google/gemma-3-27b-it")
S3_ADAPTERS = (SampleAdapter("eai-artifacts/adapters/cs-tone-v3", GEMMA, rank=16),)  # of config/samples/


def write_adapter(root: Path, adapter: SampleAdapter) -> Path:
    """Write the adapter below `root`, once; existing files are kept. Returns its folder."""
    folder = root / adapter.folder
    if folder.exists():
        return folder
    temporary = folder.with_name(f".{folder.name}.tmp")
    temporary.mkdir(parents=True, exist_ok=True)
    (temporary / "adapter_config.json").write_text(json.dumps(render_config(adapter), indent=2, sort_keys=True))
    (temporary / "adapter_model.safetensors").write_bytes(render_safetensors(lora_shapes(adapter), seed=adapter.folder))
    temporary.rename(folder)
    return folder


def render_config(adapter: SampleAdapter) -> dict[str, Any]:
    """Return adapter_config.json with the keys that servers read."""
    return {
        "base_model_name_or_path": adapter.base.model_id,
        "bias": "none",
        "inference_mode": True,
        "lora_alpha": 2 * adapter.rank,
        "lora_dropout": 0.0,
        "modules_to_save": None,
        "peft_type": "LORA",
        "r": adapter.rank,
        "rank_pattern": {},
        "target_modules": sorted(adapter.targets),
        "task_type": "CAUSAL_LM",
        "use_dora": False,
        "use_rslora": False,
    }


def lora_shapes(adapter: SampleAdapter) -> dict[str, tuple[int, ...]]:
    """Return the adapter's tensors: A [rank, in] and B [out, rank] for each targeted weight of the base."""
    shapes: dict[str, tuple[int, ...]] = {}
    for name, shape in tensor_shapes(adapter.base).items():
        module = name.removesuffix(".weight")
        if name == module or module.rpartition(".")[2] not in adapter.targets:
            continue
        out, inner = shape
        shapes[f"base_model.model.{module}.lora_A.weight"] = (adapter.rank, inner)
        shapes[f"base_model.model.{module}.lora_B.weight"] = (out, adapter.rank)
    return shapes
