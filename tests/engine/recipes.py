"""Adapters by recipe: each option, each form of a name, each shape, each damage, and random valid ones. All by a seed.

The base is a Llama with heads of 32, the smallest that the engine runs on a CPU. Nothing here needs more than Python.
"""

from __future__ import annotations

import array
import hashlib
import json
import math
import random
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

HIDDEN, INNER, VOCABULARY, LAYERS, KEYS = 64, 128, 128, 2, 32
RANK, CEILING = 8, 32
LINEAR = {
    "self_attn.q_proj": (HIDDEN, HIDDEN),
    "self_attn.k_proj": (KEYS, HIDDEN),
    "self_attn.v_proj": (KEYS, HIDDEN),
    "self_attn.o_proj": (HIDDEN, HIDDEN),
    "mlp.gate_proj": (INNER, HIDDEN),
    "mlp.up_proj": (INNER, HIDDEN),
    "mlp.down_proj": (HIDDEN, INNER),
}
"""Linear modules of a layer → rows and columns of their weights."""

OUTER = "base_model.model."
Q, V, DOWN = (f"model.layers.0.{name}" for name in ("self_attn.q_proj", "self_attn.v_proj", "mlp.down_proj"))
_WIDTH = {
    "F64": 8,
    "F32": 4,
    "F16": 2,
    "BF16": 2,
    "F8_E4M3": 1,
    "F8_E5M2": 1,
    "I64": 8,
    "I32": 4,
    "I8": 1,
    "U8": 1,
    "BOOL": 1,
}


@dataclass(frozen=True)
class Matrix:
    """One tensor: its shape, its type, and the standard deviation of its values (0: all zero)."""

    shape: tuple[int, ...]
    dtype: str = "F32"
    spread: float = 0.2


@dataclass
class Recipe:
    """One adapter. `config`: changes of a plain configuration, "absent" removes a key. `damage`: what is done after."""

    name: str
    config: dict[str, Any] = field(default_factory=dict)
    tensors: dict[str, Matrix] = field(default_factory=dict)
    damage: str = ""
    effect: bool = True  # False: the values are zero, so that the answer is the base's


def pair(path: str, rows: int, columns: int, rank: int = RANK, dtype: str = "F32") -> dict[str, Matrix]:
    """Both matrices of a LoRA."""
    return {
        f"{OUTER}{path}.lora_A.weight": Matrix((rank, columns), dtype),
        f"{OUTER}{path}.lora_B.weight": Matrix((rows, rank), dtype),
    }


def plain(rank: int = RANK, dtype: str = "F32") -> dict[str, Matrix]:
    """A usual adapter: query and value of both layers."""
    tensors: dict[str, Matrix] = {}
    for layer in range(LAYERS):
        for name in ("self_attn.q_proj", "self_attn.v_proj"):
            tensors |= pair(f"model.layers.{layer}.{name}", *LINEAR[name], rank, dtype)
    return tensors


# -- recipes --------------------------------------------------------------------------------------------------------

OPTIONS: dict[str, list[Any]] = {
    "peft_type": ["absent", "lora", "Lora", None],
    "task_type": ["absent", None, "SEQ_CLS", "FEATURE_EXTRACTION"],
    "bias": ["absent", None, "all", "lora_only", "", False],
    "lora_bias": [True, False, None],
    "fan_in_fan_out": [True, False],
    "use_rslora": [True, False],
    "use_dora": [True, False, None],
    "init_lora_weights": [
        True,
        False,
        None,
        "gaussian",
        "Gaussian",
        "eva",
        "orthogonal",
        "mica",
        "lora_ga",
        "pissa",
        "pissa_niter_4",
        "olora",
        "corda",
        "loftq",
        "PiSSA",
    ],
    "modules_to_save": [
        None,
        [],
        ["score"],
        ["classifier", "score"],
        ["lm_head"],
        ["embed_tokens"],
        ["lm_head", "score"],
    ],
    "target_modules": ["absent", None, [], "all-linear", ".*q_proj", ["q_proj"], ["nothing"], 7],
    "exclude_modules": [["o_proj"], "o_proj"],
    "layers_to_transform": [[0], 1, None],
    "layers_pattern": ["layers", None],
    "rank_pattern": [
        None,
        {},
        {"q_proj": 8},
        {"nothing": 4},
        {"q_proj": 64},
        {"q_proj": 0},
        {"q_proj": -1},
        {"q_proj": "8"},
        {"q_proj": 8.0},
    ],
    "alpha_pattern": [None, {}, {"q_proj": 32}, {"layers.0.self_attn.q_proj": 4.5}],
    "alora_invocation_tokens": [None, [], [5, 6]],
    "layer_replication": [None, [], [[0, 2], [1, 2]]],
    "use_bdlora": [None, {}, {"target_modules_bd_a": ["q_proj"], "nblocks": 2}],
    "use_qalora": [False, True],
    "trainable_token_indices": [None, [1, 2]],
    "target_parameters": [None, [], ["mlp.experts.gate_up_proj"]],
    "loftq_config": [{}, {"loftq_bits": 4}],
    "corda_config": [None, {"corda_method": "kpm"}],
    "eva_config": [None, {"rho": 2.0}],
    "megatron_config": [None, {"a": 1}],
    "runtime_config": [{"ephemeral_gpu_offload": False}],
    "ensure_weight_tying": [True, False],
    "lora_dropout": [0.0, 0.5],
    "revision": [None, "main"],
    "auto_mapping": [None, {"base_model_class": "LlamaForCausalLM"}],
    "peft_version": ["0.4.0", "0.21.2"],
    "inference_mode": [True, False],
    "r": ["absent", None, 0, -8, "8", 8.0, 8.5, 64, 4, 16],
    "lora_alpha": ["absent", None, 0.5, 1, 256, -16, "16", 16.0],
    "future_option": [{"x": [1]}],
}

PREFIXES = {
    "none": "",
    "base_model": "base_model.",
    "twice": "base_model.model.base_model.model.",
    "compiled": "base_model.model._orig_mod.",
    "wrapped": "base_model.model.module.",
    "language model": "base_model.model.language_model.",
    "transformer": "base_model.model.transformer.",
    "upper case": "BASE_MODEL.MODEL.",
}
ENDINGS = {
    "adapter name": ("lora_A.default.weight", "lora_B.default.weight"),
    "other adapter name": ("lora_A.french.weight", "lora_B.french.weight"),
    "no weight": ("lora_A", "lora_B"),
    "diffusers": ("lora_down.weight", "lora_up.weight"),
    "lower case": ("lora_a.weight", "lora_b.weight"),
    "embedding form": ("lora_embedding_A", "lora_embedding_B"),
    "linear inside": ("lora_A.linear.weight", "lora_B.linear.weight"),
    "bias form": ("lora_A.bias", "lora_B.bias"),
}
ODD_MODULES = {
    "unknown": "self_attn.out_proj",
    "fused query": "self_attn.qkv_proj",
    "fused gate": "mlp.gate_up_proj",
    "norm": "input_layernorm",
    "whole attention": "self_attn",
    "wrong parent": "attention.q_proj",
    "upper case": "self_attn.Q_proj",
    "rotary": "self_attn.rotary_emb",
    "deeper": "self_attn.q_proj.linear",
}
EXTRAS = {
    "norm": (f"{OUTER}model.norm.weight", (HIDDEN,)),
    "layer norm": (f"{OUTER}model.layers.0.input_layernorm.weight", (HIDDEN,)),
    "buffer": (f"{OUTER}model.layers.0.self_attn.rotary_emb.inv_freq", (16,)),
    "embedding": (f"{OUTER}model.embed_tokens.weight", (VOCABULARY, HIDDEN)),
    "saved embedding": (f"{OUTER}model.embed_tokens.modules_to_save.weight", (VOCABULARY, HIDDEN)),
    "head": (f"{OUTER}lm_head.weight", (VOCABULARY, HIDDEN)),
    "tokens": (f"{OUTER}model.embed_tokens.token_adapter.trainable_tokens_delta", (2, HIDDEN)),
    "copied embedding": (f"{OUTER}model.embed_tokens.base_layer.weight", (VOCABULARY, HIDDEN)),
    "copied head": (f"{OUTER}lm_head.base_layer.weight", (VOCABULARY, HIDDEN)),
    "copied linear": (f"{OUTER}{Q}.base_layer.weight", (HIDDEN, HIDDEN)),
    "bias of B": (f"{OUTER}{Q}.lora_B.bias", (HIDDEN,)),
    "bias of the module": (f"{OUTER}{Q}.bias", (HIDDEN,)),
    "magnitude": (f"{OUTER}{Q}.lora_magnitude_vector", (HIDDEN,)),
    "score": (f"{OUTER}score.weight", (2, HIDDEN)),
    "scalar": ("step", (1,)),
}
DAMAGES = (
    "config: not JSON", "config: a list", "config: empty", "config: BOM", "config: UTF-16", "config: trailing comma",
    "config: alpha NaN", "config: alpha infinite", "weights: cut", "weights: header cut", "weights: longer",
    "weights: empty", "weights: no tensors", "weights: LFS pointer", "weights: HTML", "weights: gap",
    "weights: overlap", "weights: NaN first", "weights: NaN last", "weights: infinite", "weights: missing",
    "config: missing",
)  # fmt: skip


def recipes(seed: int = 17) -> Iterator[Recipe]:
    """Return all recipes, in an order that the seed does not change; it decides the random ones and the values."""
    yield Recipe("plain", tensors=plain())
    for option, values in OPTIONS.items():
        for value in values:
            yield Recipe(f"option {option}={json.dumps(value)}", {option: value}, plain())
    yield from _names()
    yield from _shapes()
    for what, (name, shape) in EXTRAS.items():
        yield Recipe(f"extra {what}", tensors=plain() | {name: Matrix(shape)})
    yield Recipe(
        "extra score, saved", {"modules_to_save": ["score"]}, plain() | {EXTRAS["score"][0]: Matrix((2, HIDDEN))}
    )
    for dtype in _WIDTH:
        yield Recipe(f"type {dtype}", tensors=plain(dtype=dtype))
    yield Recipe("type mixed", tensors=pair(Q, *LINEAR["self_attn.q_proj"], dtype="BF16") | pair(V, KEYS, HIDDEN))
    for damage in DAMAGES:
        yield Recipe(f"damage {damage}", tensors=plain(), damage=damage)
    for half in "AB":
        left = {name: tensor for name, tensor in plain().items() if f"{Q}.lora_{half}" not in name}
        yield Recipe(f"half {half} missing", tensors=left)
    zero = {name: Matrix(one.shape, one.dtype, 0.0 if "lora_B" in name else 0.2) for name, one in plain().items()}
    yield Recipe("zero", tensors=zero, effect=False)
    yield from _random(random.Random(seed))


def _names() -> Iterator[Recipe]:
    for what, prefix in PREFIXES.items():
        yield Recipe(f"prefix {what}", tensors={prefix + name[len(OUTER) :]: one for name, one in plain().items()})
        mixed = {name: one for name, one in plain().items() if Q not in name}
        mixed |= {prefix + name[len(OUTER) :]: one for name, one in pair(Q, HIDDEN, HIDDEN).items()}
        yield Recipe(f"prefix {what}, one module", tensors=mixed)
    for what, (first, second) in ENDINGS.items():
        renamed = {
            name.replace("lora_A.weight", first).replace("lora_B.weight", second): one for name, one in plain().items()
        }
        yield Recipe(f"ending {what}", tensors=renamed)
        yield Recipe(f"ending {what}, beside", tensors=plain() | {f"{OUTER}{DOWN}.{first}": Matrix((RANK, INNER))})
    for what, module in ODD_MODULES.items():
        odd = pair(f"model.layers.0.{module}", HIDDEN, HIDDEN)
        yield Recipe(f"module {what}", tensors=odd)
        yield Recipe(f"module {what}, beside", tensors=plain() | odd)
    for layer in ("2", "99", "00", "-1", "x"):
        odd = pair(f"model.layers.{layer}.self_attn.q_proj", HIDDEN, HIDDEN)
        yield Recipe(f"layer {layer}", tensors=odd)
        yield Recipe(f"layer {layer}, beside", tensors=plain() | odd)


def _shapes() -> Iterator[Recipe]:
    for name, (rows, columns) in LINEAR.items():
        path = f"model.layers.1.{name}"
        a, b = f"{OUTER}{path}.lora_A.weight", f"{OUTER}{path}.lora_B.weight"
        shapes = {
            "wider": ((RANK, columns * 2), (rows, RANK)),
            "narrower": ((RANK, columns // 2), (rows, RANK)),
            "higher": ((RANK, columns), (rows * 2, RANK)),
            "lower": ((RANK, columns), (rows // 2, RANK)),
            "rank 1": ((1, columns), (rows, 1)),
            "rank 32": ((32, columns), (rows, 32)),
            "rank 64": ((64, columns), (rows, 64)),
            "two ranks": ((RANK, columns), (rows, 4)),
            "flat": ((RANK * columns,), (rows, RANK)),
            "exchanged": ((rows, RANK), (RANK, columns)),
        }
        for what, (first, second) in shapes.items():
            rank = first[0] if what.startswith("rank") else RANK
            yield Recipe(f"shape {name} {what}", {"r": rank}, {a: Matrix(first), b: Matrix(second)})
    yield Recipe("shape head", tensors=pair("lm_head", VOCABULARY, HIDDEN))
    yield Recipe("shape head, higher", tensors=pair("lm_head", VOCABULARY * 2, HIDDEN))
    yield Recipe("shape head, lower", tensors=pair("lm_head", VOCABULARY // 2, HIDDEN))
    for what, vocabulary in (("fits", VOCABULARY), ("longer", VOCABULARY + 8), ("shorter", VOCABULARY - 8)):
        embedding = {
            f"{OUTER}model.embed_tokens.lora_embedding_A": Matrix((RANK, vocabulary)),
            f"{OUTER}model.embed_tokens.lora_embedding_B": Matrix((HIDDEN, RANK)),
        }
        yield Recipe(f"shape embedding {what}", tensors=embedding)


def _random(rng: random.Random) -> Iterator[Recipe]:
    """Valid adapters: any modules of any layers, ranks by pattern or alike, each type of number."""
    for number in range(60):
        rank = rng.choice((1, 2, 4, 8, 16, 32))
        dtype = rng.choice(("F32", "F32", "F16", "BF16"))
        chosen = rng.sample(sorted(LINEAR), rng.randint(1, len(LINEAR)))
        tensors: dict[str, Matrix] = {}
        pattern = {}
        for name in chosen:
            own = rng.choice((rank, rank, rank, min(CEILING, rank * 2)))
            if own != rank:
                pattern[name.rpartition(".")[2]] = own
            for layer in sorted(rng.sample(range(LAYERS), rng.randint(1, LAYERS))):
                tensors |= pair(f"model.layers.{layer}.{name}", *LINEAR[name], own, dtype)
        config = {"r": rank, "lora_alpha": rank * 2, "use_rslora": rng.random() < 0.3, "rank_pattern": pattern}
        config["target_modules"] = [name.rpartition(".")[2] for name in chosen]
        yield Recipe(f"random {number}", config, tensors)


# -- files ----------------------------------------------------------------------------------------------------------


def write(recipe: Recipe, folder: Path, seed: int = 17) -> str:
    """Write an adapter; return the digest of its files."""
    folder.mkdir(parents=True)
    config = {
        "base_model_name_or_path": "acme/tiny",
        "bias": "none",
        "lora_alpha": 16,
        "peft_type": "LORA",
        "r": RANK,
        "target_modules": ["q_proj", "v_proj"],
        "task_type": "CAUSAL_LM",
    } | recipe.config
    raw = json.dumps({key: value for key, value in config.items() if value != "absent"}).encode()
    weights = safetensors(recipe.tensors, random.Random(f"{seed} {recipe.name}"))
    damaged_config, damaged_weights = _damage(recipe.damage, raw, weights)
    digest = hashlib.sha256()
    for name, data in (("adapter_config.json", damaged_config), ("adapter_model.safetensors", damaged_weights)):
        if data is not None:
            (folder / name).write_bytes(data)
            digest.update(name.encode() + data)
    return digest.hexdigest()


def _damage(what: str, config: bytes, weights: bytes) -> tuple[bytes | None, bytes | None]:
    length = struct.unpack("<Q", weights[:8])[0]
    header, data = json.loads(weights[8 : 8 + length]), weights[8 + length :]
    moved = {name: {**one, "data_offsets": [n + 4 for n in one["data_offsets"]]} for name, one in header.items()}
    laid = {
        name: {**one, "data_offsets": [0, one["data_offsets"][1] - one["data_offsets"][0]]}
        for name, one in header.items()
    }
    nan, infinite = struct.pack("<f", math.nan), struct.pack("<f", math.inf)
    configs: Mapping[str, bytes | None] = {
        "config: not JSON": config[:-9],
        "config: a list": b"[" + config + b"]",
        "config: empty": b"",
        "config: BOM": b"\xef\xbb\xbf" + config,
        "config: UTF-16": config.decode().encode("utf-16"),
        "config: trailing comma": config[:-1] + b",}",
        "config: alpha NaN": config.replace(b'"lora_alpha": 16', b'"lora_alpha": NaN'),
        "config: alpha infinite": config.replace(b'"lora_alpha": 16', b'"lora_alpha": Infinity'),
        "config: missing": None,
    }
    files: Mapping[str, bytes | None] = {
        "weights: cut": weights[:-4],
        "weights: header cut": weights[:40],
        "weights: longer": weights + b"\0" * 4,
        "weights: empty": b"",
        "weights: no tensors": _file({}, b""),
        "weights: LFS pointer": b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n",
        "weights: HTML": b"<!DOCTYPE html><html><body>Sign in</body></html>",
        "weights: gap": _file(moved, b"\0" * 4 + data),
        "weights: overlap": _file(laid, data),
        "weights: NaN first": weights[: 8 + length] + nan + data[4:],
        "weights: NaN last": weights[:-4] + nan,
        "weights: infinite": weights[:-4] + infinite,
        "weights: missing": None,
    }
    return configs.get(what, config), files.get(what, weights)


def safetensors(tensors: Mapping[str, Matrix], rng: random.Random) -> bytes:
    """Return a safetensors file with these tensors and random values."""
    header: dict[str, Any] = {}
    body = bytearray()
    for name, tensor in tensors.items():
        data = _values(tensor, rng)
        header[name] = {
            "dtype": tensor.dtype,
            "shape": tensor.shape,
            "data_offsets": [len(body), len(body) + len(data)],
        }
        body += data
    return _file(header, bytes(body))


def _file(header: Mapping[str, Any], data: bytes) -> bytes:
    raw = json.dumps(header).encode()
    raw += b" " * (-len(raw) % 8)
    return struct.pack("<Q", len(raw)) + raw + data


def _values(tensor: Matrix, rng: random.Random) -> bytes:
    count = math.prod(tensor.shape)
    if tensor.dtype.startswith("F8"):  # both signs of numbers from about 0.1 to 1
        return bytes(rng.randrange(0x2C, 0x38) | rng.choice((0, 0x80)) for _ in range(count))
    if tensor.dtype not in ("F64", "F32", "F16", "BF16"):
        return bytes(rng.randrange(2) for _ in range(count * _WIDTH[tensor.dtype]))
    numbers = array.array("f", (rng.gauss(0, tensor.spread) if tensor.spread else 0.0 for _ in range(count)))
    if tensor.dtype == "F64":
        return array.array("d", numbers).tobytes()
    if tensor.dtype == "F32":
        return numbers.tobytes()
    if tensor.dtype == "F16":
        return struct.pack(f"<{count}e", *numbers)
    whole = numbers.tobytes()  # the upper half of a float32 is a bfloat16
    return b"".join(whole[at + 2 : at + 4] for at in range(0, len(whole), 4))


def write_base(folder: Path) -> None:
    """Write the base: its files are those of a Llama with random weights."""
    folder.mkdir(parents=True)
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": HIDDEN,
        "intermediate_size": INNER,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "head_dim": 32,
        "vocab_size": VOCABULARY,
        "max_position_embeddings": 512,
        "rms_norm_eps": 1e-6,
        "tie_word_embeddings": False,
        "torch_dtype": "float32",
        "bos_token_id": 1,
        "eos_token_id": 2,
    }
    (folder / "config.json").write_text(json.dumps(config))
    tensors = {
        "model.embed_tokens.weight": Matrix((VOCABULARY, HIDDEN)),
        "lm_head.weight": Matrix((VOCABULARY, HIDDEN)),
    }
    for layer in range(LAYERS):
        for name, shape in LINEAR.items():
            tensors[f"model.layers.{layer}.{name}.weight"] = Matrix(shape)
        for norm in ("input_layernorm", "post_attention_layernorm"):
            tensors[f"model.layers.{layer}.{norm}.weight"] = Matrix((HIDDEN,), spread=1.0)
    tensors["model.norm.weight"] = Matrix((HIDDEN,), spread=1.0)
    (folder / "model.safetensors").write_bytes(safetensors(tensors, random.Random("base")))
