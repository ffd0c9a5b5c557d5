"""Small base models for the hub: real file formats and module names, invented weights, a few dozen kilobytes each."""

from __future__ import annotations

import json
import random
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_LAYERS = 2
_HIDDEN = 32
_KV = 16  # grouped-query attention: keys and values are half as wide
_MLP = 64
_VOCABULARY = 128
_BYTES_PER_VALUE = 2  # bf16


@dataclass(frozen=True, slots=True)
class BaseModel:
    """One model: its id (ORG/NAME), architecture names of `transformers`, whether attention has biases."""

    model_id: str
    model_type: str
    architecture: str
    attention_bias: bool


BASE_MODELS = (
    BaseModel("acme/tiny-llama", "llama", "LlamaForCausalLM", attention_bias=False),
    BaseModel("acme/tiny-qwen2", "qwen2", "Qwen2ForCausalLM", attention_bias=True),
    BaseModel("google/gemma-3-27b-it", "gemma3_text", "Gemma3ForCausalLM", attention_bias=False),  # of the samples
)


def write_base_model(root: Path, model: BaseModel) -> None:
    """Write the model to ROOT/ORG/NAME/, once; existing files are kept."""
    folder = root / model.model_id
    if folder.exists():
        return
    temporary = folder.with_name(f".{folder.name}.tmp")
    temporary.mkdir(parents=True, exist_ok=True)
    files = {
        "config.json": _dump(render_config(model)),
        "generation_config.json": _dump({"bos_token_id": 1, "eos_token_id": 2}),
        "tokenizer.json": _dump(render_tokenizer()),
        "tokenizer_config.json": _dump({"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": 512}),
        "README.md": f"# {model.model_id}\nA random model of a development cluster.\n".encode(),
        "model.safetensors": render_safetensors(tensor_shapes(model), seed=model.model_id),
    }
    for name, content in files.items():
        (temporary / name).write_bytes(content)
    temporary.rename(folder)


def render_config(model: BaseModel) -> dict[str, Any]:
    """Return config.json as `transformers` writes it for such a model (the fields that tools read)."""
    return {
        "architectures": [model.architecture],
        "model_type": model.model_type,
        "attention_bias": model.attention_bias,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "hidden_act": "silu",
        "hidden_size": _HIDDEN,
        "intermediate_size": _MLP,
        "max_position_embeddings": 512,
        "num_attention_heads": 4,
        "num_hidden_layers": _LAYERS,
        "num_key_value_heads": 2,
        "rms_norm_eps": 1e-6,
        "rope_theta": 10000.0,
        "tie_word_embeddings": False,
        "torch_dtype": "bfloat16",
        "vocab_size": _VOCABULARY,
    }


def tensor_shapes(model: BaseModel) -> dict[str, tuple[int, ...]]:
    """Return the model's tensors: name to shape, [out, in] for weights."""
    shapes: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (_VOCABULARY, _HIDDEN)}
    for layer in range(_LAYERS):
        prefix = f"model.layers.{layer}"
        shapes[f"{prefix}.input_layernorm.weight"] = (_HIDDEN,)
        for name, out in (("q_proj", _HIDDEN), ("k_proj", _KV), ("v_proj", _KV)):
            shapes[f"{prefix}.self_attn.{name}.weight"] = (out, _HIDDEN)
            if model.attention_bias:
                shapes[f"{prefix}.self_attn.{name}.bias"] = (out,)
        shapes[f"{prefix}.self_attn.o_proj.weight"] = (_HIDDEN, _HIDDEN)
        shapes[f"{prefix}.post_attention_layernorm.weight"] = (_HIDDEN,)
        shapes[f"{prefix}.mlp.gate_proj.weight"] = (_MLP, _HIDDEN)
        shapes[f"{prefix}.mlp.up_proj.weight"] = (_MLP, _HIDDEN)
        shapes[f"{prefix}.mlp.down_proj.weight"] = (_HIDDEN, _MLP)
    shapes["model.norm.weight"] = (_HIDDEN,)
    shapes["lm_head.weight"] = (_VOCABULARY, _HIDDEN)
    return shapes


def render_safetensors(shapes: dict[str, tuple[int, ...]], *, seed: str) -> bytes:
    """Return a safetensors file (bf16) with these tensors and values that depend on the seed alone.

    Source: the format's own description: header length as 8 bytes little-endian, JSON header padded with spaces to a
    multiple of 8, data without gaps.
    """
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    offset = 0
    for name, shape in shapes.items():
        size = _BYTES_PER_VALUE
        for length in shape:
            size *= length
        header[name] = {"dtype": "BF16", "shape": list(shape), "data_offsets": [offset, offset + size]}
        offset += size
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    source = random.Random(seed)  # noqa: S311  weights, no secret
    # a bf16 of small size: sign and exponent from a short list, any mantissa; no infinity, no NaN
    data = b"".join(bytes((source.randrange(256), source.choice((0x3C, 0x3D, 0xBC, 0xBD)))) for _ in range(offset // 2))
    return struct.pack("<Q", len(text)) + text + data


def render_tokenizer() -> dict[str, Any]:
    """Return a byte-less word-level tokenizer with the model's vocabulary."""
    vocabulary = {"<unk>": 0, "<s>": 1, "</s>": 2} | {f"t{number}": number for number in range(3, _VOCABULARY)}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [],
        "normalizer": None,
        "pre_tokenizer": {"type": "Whitespace"},
        "post_processor": None,
        "decoder": None,
        "model": {"type": "WordLevel", "vocab": vocabulary, "unk_token": "<unk>"},
    }


def _dump(value: dict[str, Any]) -> bytes:
    return json.dumps(value, indent=2).encode() + b"\n"
