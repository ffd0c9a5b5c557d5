"""Preflight over real adapters, over each rule, and over random bytes: never an exception, always a reason."""

from __future__ import annotations

import contextlib
import csv
import io
import json
import os
import pickle
import resource
import shutil
import socket
import struct
import time
import zipfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from api.reasons import EXPLANATIONS, JOB_REASONS
from disk.findings import Finding, Limits, Verdict
from disk.finite import first_not_finite, plan_sample
from disk.fit import BaseModules, base_modules
from disk.header import Tensor, Weights, read_header
from disk.lora import module_path, tensor_rank
from disk.preflight import CONFIG, LARGEST_CONFIG, check_config, check_listing, check_weights
from disk.weights import inspect_adapter, read_base_modules, read_weights
from tests.unit.disk.world import FIXTURES, lora_tensors, safetensors

LIMITS = Limits(max_rank=512, declared_rank=512)
ROWS = list(csv.DictReader((FIXTURES / "INDEX.tsv").read_text().splitlines(), delimiter="\t"))
REJECTED = {
    "qwen2-bias-lora-only": "AdapterUsesBias",
    "llama-r8-dora": "AdapterUsesDora",
    "llama-lm-head-saved": "AdapterSavesModules",
    "llama-ia3": "AdapterTypeUnsupported",
    "llama-r1024": "AdapterRankExceedsCeiling",
    "damaged-weights-truncated": "AdapterWeightsTruncated",
    "damaged-lfs-pointer": "AdapterIsLfsPointer",
    "damaged-config-not-json": "AdapterConfigUnreadable",
    "damaged-config-no-r": "AdapterRankMissing",
    "damaged-no-weights": "AdapterWeightsMissing",
}


@pytest.mark.parametrize("row", ROWS, ids=[row["name"] for row in ROWS])
def test_each_real_adapter(row: dict[str, str]) -> None:
    verdict = inspect_adapter(FIXTURES / row["name"], Limits(512, 512, row["base"]))
    warned = {warning.reason for warning in verdict.warnings}
    if row["expect"].startswith("reject"):
        assert verdict.failure is not None
        assert verdict.failure.reason == REJECTED[row["name"]]
        return
    assert verdict.failure is None
    assert verdict.rank == int(row["max_effective_rank"])
    assert verdict.base_name == row["base"]
    assert warned - {"AdapterIsPickle", "AdapterNeedsNewerEngine"} == set()


def test_every_fixture_is_in_the_index() -> None:
    assert {row["name"] for row in ROWS} == {path.name for path in FIXTURES.iterdir() if path.is_dir()}


# -- the rank -------------------------------------------------------------------------------------------------------


def config(**changes: Any) -> bytes:
    values = {"peft_type": "LORA", "r": 8, "lora_alpha": 16, "target_modules": ["q_proj"]} | changes
    return json.dumps({name: value for name, value in values.items() if value != "absent"}).encode()


def weights(data: bytes) -> Weights:
    length = struct.unpack("<Q", data[:8])[0] if len(data) >= 8 else 0
    return Weights("adapter_model.safetensors", len(data), data[:512], data[8 : 8 + length])


def judge(raw: bytes, data: bytes | None = None, limits: Limits = LIMITS, base: BaseModules | None = None) -> Verdict:
    return check_weights(weights(data if data is not None else safetensors(lora_tensors(8))), raw, limits, base)


RANKS = {
    "within": (config(), 8, Limits(8, 8), None, set()),
    "above declared": (config(r=16), 16, Limits(32, 8), None, {"AdapterRankAboveDeclared"}),
    "above the ceiling": (config(r=64), 64, Limits(32, 8), "AdapterRankExceedsCeiling", set()),
    "pattern above r": (config(rank_pattern={"q": 64}), 64, Limits(32, 8), "AdapterRankExceedsCeiling", set()),
    "pattern below r": (config(rank_pattern={"q": 4}), 8, Limits(32, 8), None, {"AdapterNeedsNewerEngine"}),
    "pattern null": (config(rank_pattern=None), 8, Limits(32, 8), None, set()),
}


@pytest.mark.parametrize(("raw", "rank", "limits", "reason", "warned"), RANKS.values(), ids=RANKS)
def test_rank(raw: bytes, rank: int, limits: Limits, reason: str | None, warned: set[str]) -> None:
    verdict = check_config(raw, limits)
    assert (verdict.failure.reason if verdict.failure else None) == reason
    assert verdict.rank == rank
    assert {one.reason for one in verdict.warnings} == warned


def test_an_absent_alpha_is_reported() -> None:
    for raw in (config(lora_alpha=None), config(lora_alpha="absent")):
        failure = check_config(raw, LIMITS).failure
        assert failure is not None
        assert failure.reason == "AdapterAlphaMissing"


@pytest.mark.parametrize("name", ["x\ud800y", "x\x1b[31my", "x\u202ey", "x\ny", "x" * 500_000, 7, None, ["a"]])
def test_what_a_file_names_as_its_base_fits_in_a_status(name: object) -> None:
    """The name goes into records, messages and the service's status: bounded, printable, and valid Unicode."""
    found = check_config(config(base_model_name_or_path=name), LIMITS).base_name
    assert found is None or (found.isprintable() and len(found) <= 200)


def test_the_message_names_all_three_ranks() -> None:
    """The message says which number is which, and what to set."""
    failure = check_config(config(r=64), Limits(32, 16)).failure
    assert failure is not None
    assert all(number in failure.detail for number in ("64", "32", "16"))
    assert "maxRank" in EXPLANATIONS[failure.reason].fix


def test_tensors_above_the_configured_rank() -> None:
    """The files are the truth: tensors of rank 64 under a configuration that says 8."""
    verdict = judge(config(), safetensors(lora_tensors(64)), Limits(32, 32))
    assert verdict.failure is not None
    assert verdict.failure.reason == "AdapterRankExceedsCeiling"
    verdict = judge(config(), safetensors(lora_tensors(16)), Limits(32, 8))
    assert verdict.failure is None
    assert verdict.rank == 16
    assert {one.reason for one in verdict.warnings} == {"AdapterRankMismatch", "AdapterRankAboveDeclared"}


TENSORS = {
    "A": (Tensor("base_model.model.m.q_proj.lora_A.weight", (8, 64)), 8),
    "B": (Tensor("base_model.model.m.q_proj.lora_B.weight", (64, 8)), 8),
    "named adapter": (Tensor("base_model.model.m.q_proj.lora_A.default.weight", (8, 64)), 8),
    "experts, first parameter": (Tensor("base_model.model.m.experts.base_layer.lora_A.weight", (8 * 128, 64)), None),
    "embedding A": (Tensor("base_model.model.m.embed.lora_embedding_A", (8, 64)), 8),
    "embedding B": (Tensor("base_model.model.m.embed.lora_embedding_B", (64, 8)), 8),
    "fused experts": (Tensor("base_model.model.m.experts.lora_A.weight", (8 * 128, 64)), None),
    "bias": (Tensor("base_model.model.m.q_proj.lora_B.bias", (64,)), None),
    "base layer": (Tensor("base_model.model.m.q_proj.base_layer.weight", (64, 64)), None),
    "one dimension": (Tensor("base_model.model.m.q_proj.lora_A.weight", (8,)), None),
    "convolution": (Tensor("base_model.model.m.conv.lora_A.weight", (8, 3, 3, 3)), 8),
}


@pytest.mark.parametrize(("tensor", "rank"), TENSORS.values(), ids=TENSORS)
def test_rank_of_a_tensor(tensor: Tensor, rank: int | None) -> None:
    assert tensor_rank(tensor) == rank


def test_module_paths() -> None:
    assert module_path("base_model.model.model.layers.0.q_proj.lora_A.weight") == "model.layers.0.q_proj"
    assert module_path("base_model.model.model.layers.0.q_proj.lora_A.default.weight") == "model.layers.0.q_proj"
    assert module_path("base_model.model.lm_head.weight") is None


# -- the configuration ----------------------------------------------------------------------------------------------

CONFIGS = {
    "not JSON": (b"{", "AdapterConfigUnreadable"),
    "a list": (b"[]", "AdapterConfigUnreadable"),
    "not UTF-8": (b"\xff\xfe{", "AdapterConfigUnreadable"),
    "empty": (b"", "AdapterConfigUnreadable"),
    "huge": (b" " * (LARGEST_CONFIG + 1), "AdapterConfigUnreadable"),
    "deep": (b"[" * 100_000, "AdapterConfigUnreadable"),
    "a number without end": (b'{"r": ' + b"9" * 10_000 + b"}", "AdapterConfigUnreadable"),
    "pointer": (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "AdapterIsLfsPointer"),
    "no type": (config(peft_type="absent"), None),
    "lower case type": (config(peft_type="lora"), None),
    "ADALORA with booleans": (config(peft_type="ADALORA", rank_pattern={"a": [True]}), "AdapterTypeUnsupported"),
    "r null": (config(r=None), "AdapterRankMissing"),
    "r zero": (config(r=0), "AdapterConfigUnreadable"),
    "r text": (config(r="8"), "AdapterConfigUnreadable"),
    "r float": (config(r=8.0), None),
    "r a fraction": (config(r=8.5), "AdapterConfigUnreadable"),
    "r infinite": (config(r=float("inf")), "AdapterConfigUnreadable"),
    "r true": (config(r=True), "AdapterConfigUnreadable"),
    "pattern list": (config(rank_pattern=[1]), "AdapterConfigUnreadable"),
    "pattern value": (config(rank_pattern={"a": "8"}), "AdapterConfigUnreadable"),
    "no targets": (config(target_modules=[]), None),
    "targets null": (config(target_modules=None), None),
    "targets absent": (config(target_modules="absent"), "AdapterTargetsNothing"),
    "targets numbers": (config(target_modules=[1]), None),
    "targets a regex": (config(target_modules=".*q_proj"), None),
    "all-linear": (config(target_modules="all-linear"), None),
    "dora": (config(use_dora=True), "AdapterUsesDora"),
    "saved modules": (config(modules_to_save=["lm_head"]), "AdapterSavesModules"),
    "saved modules empty": (config(modules_to_save=[]), None),
    "r negative": (config(r=-8), "AdapterConfigUnreadable"),
    "byte order mark": (b"\xef\xbb\xbf" + config(), "AdapterConfigUnreadable"),
    "UTF-16": (config().decode().encode("utf-16"), "AdapterConfigUnreadable"),
    "alpha text": (config(lora_alpha="16"), "AdapterConfigUnreadable"),
    "alpha true": (config(lora_alpha=True), "AdapterConfigUnreadable"),
    "alpha NaN": (config(lora_alpha=float("nan")), "AdapterConfigUnreadable"),
    "alpha infinite": (config(lora_alpha=float("inf")), "AdapterConfigUnreadable"),
    "alpha a fraction": (config(lora_alpha=0.5), None),
    "alpha pattern": (config(alpha_pattern={"q": 32}), None),
    "alpha pattern text": (config(alpha_pattern={"q": "32"}), "AdapterConfigUnreadable"),
    "alpha pattern list": (config(alpha_pattern=[1]), "AdapterConfigUnreadable"),
    "rsLoRA": (config(use_rslora=True), None),
    "bias on all": (config(bias="all"), "AdapterUsesBias"),
    "bias null": (config(bias=None), "AdapterUsesBias"),
    "bias absent": (config(bias="absent"), None),
    "LoRA bias": (config(lora_bias=True), "AdapterUsesBias"),
    "saved classifier": (config(modules_to_save=["score"]), None),
    "saved text": (config(modules_to_save="lm_head"), "AdapterSavesModules"),
    "activated": (config(alora_invocation_tokens=[1, 2]), "AdapterUsesActivatedLora"),
    "activated by text": (config(alora_invocation_string="x"), "AdapterUsesActivatedLora"),
    "not activated": (config(alora_invocation_tokens=None), None),
    "replicated": (config(layer_replication=[[0, 2], [1, 2]]), "AdapterReplicatesLayers"),
    "block-diagonal": (config(use_bdlora={"nblocks": 2}), "AdapterUsesBlockDiagonal"),
    "QALoRA": (config(use_qalora=True, qalora_group_size=16), "AdapterUsesQalora"),
    **{
        f"init {init}": (config(init_lora_weights=init), "AdapterInitChangesBase")
        for init in ("pissa", "pissa_niter_16", "olora", "corda", "loftq", "PISSA", "of the future")
    },
    **{
        f"init {init}": (config(init_lora_weights=init), None)
        for init in (True, False, None, "gaussian", "eva", "Orthogonal")
    },
    "NaN somewhere": (config().replace(b'"r": 8', b'"r": 8, "lora_dropout": NaN'), None),
    "unknown keys": (config(future={"x": 1}), None),
}


@pytest.mark.parametrize(("raw", "reason"), CONFIGS.values(), ids=CONFIGS)
def test_configuration(raw: bytes, reason: str | None) -> None:
    failure = check_config(raw, LIMITS).failure
    assert (failure.reason if failure else None) == reason


BASES = {
    "same": ("acme/base", "acme/base", False),
    "other case": ("Acme/Base", "acme/base", False),
    "other model": ("acme/other", "acme/base", True),
    "other organisation": ("elsewhere/base", "acme/base", True),
    "local path, same name": ("/data/models/base/", "acme/base", False),
    "relative path, same name": ("./models/base", "acme/base", False),
    "long path, same name": (f"/data/{'x' * 500}/base", "acme/base", False),
    "windows path, same name": ("C:\\models\\base", "acme/base", False),
    "local path, other name": ("/data/models/checkpoint-12", "acme/base", True),
    "none in the file": (None, "acme/base", False),
    "base unknown": ("acme/other", None, False),
}


@pytest.mark.parametrize(("named", "base", "differs"), BASES.values(), ids=BASES)
def test_base_name(named: str | None, base: str | None, differs: bool) -> None:
    """Local paths of the trainer are compared by their last part; a warning unless strict."""
    raw = config(base_model_name_or_path=named)
    verdict = check_config(raw, Limits(8, 8, base))
    assert verdict.failure is None
    assert [one.reason for one in verdict.warnings] == (["AdapterBaseMismatch"] if differs else [])
    strict = check_config(raw, Limits(8, 8, base, strict_base=True)).failure
    assert (strict is not None) == differs


# -- the listing ----------------------------------------------------------------------------------------------------

LISTINGS = {
    "good": ([CONFIG, "adapter_model.safetensors"], None),
    "bin": ([CONFIG, "adapter_model.bin"], None),
    "nested": ([f"checkpoint-2/{CONFIG}", "checkpoint-2/adapter_model.safetensors"], "AdapterLayoutNested"),
    "no config": (["adapter_model.safetensors"], "AdapterConfigMissing"),
    "nothing": ([], "AdapterConfigMissing"),
    "no weights": ([CONFIG, "README.md"], "AdapterWeightsMissing"),
    "sharded": ([CONFIG, "adapter_model-00001-of-00002.safetensors"], "AdapterSharded"),
    "index": ([CONFIG, "adapter_model.safetensors.index.json"], "AdapterSharded"),
}


@pytest.mark.parametrize(("names", "reason"), LISTINGS.values(), ids=LISTINGS)
def test_listing(names: list[str], reason: str | None) -> None:
    finding = check_listing(names)
    assert (finding.reason if finding else None) == reason


# -- the weights ----------------------------------------------------------------------------------------------------

GOOD = safetensors(lora_tensors(8))


QPROJ = "base_model.model.model.layers.0.self_attn.q_proj"


def named(first: str, second: str) -> dict[str, Any]:
    """A pair of LoRA matrices under these last names."""
    return {f"{QPROJ}.{first}": (8, 8), f"{QPROJ}.{second}": (8, 8)}


def with_header(header: Any, data: bytes = b"") -> bytes:
    raw = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(raw)) + raw + data


def entry(**changes: Any) -> dict[str, Any]:
    return {"dtype": "F32", "shape": [1, 1], "data_offsets": [0, 4]} | changes


LORA, OTHER = "base_model.model.m.lora_A.weight", "base_model.model.m.lora_B.weight"


def pair(dtype: str, size: int) -> dict[str, Any]:
    """Both halves of a LoRA of rank 8 over two dimensions, `size` bytes each."""
    return {
        LORA: {"dtype": dtype, "shape": [8, 2], "data_offsets": [0, size]},
        OTHER: {"dtype": dtype, "shape": [2, 8], "data_offsets": [size, 2 * size]},
    }


WEIGHT_FILES = {
    "good": (GOOD, None),
    "truncated": (GOOD[:-1], "AdapterWeightsTruncated"),
    "header truncated": (GOOD[:40], "AdapterWeightsTruncated"),
    "eight bytes": (GOOD[:8], "AdapterWeightsTruncated"),
    "empty": (b"", "AdapterWeightsTruncated"),
    "longer": (GOOD + b"\0", "AdapterWeightsUnreadable"),
    "pointer": (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n", "AdapterIsLfsPointer"),
    "html": (b"<!DOCTYPE html><html><body>Sign in</body></html>", "AdapterWeightsUnreadable"),
    "zip": (b"PK\x03\x04" + b"\0" * 100, "AdapterWeightsUnreadable"),
    "header not JSON": (with_header(b"{nonsense"), "AdapterWeightsUnreadable"),
    "header a list": (with_header(b"{}"), "AdapterFitsNoModule"),
    "gap": (with_header({LORA: entry(data_offsets=[4, 8])}, b"\0" * 8), "AdapterWeightsUnreadable"),
    "overlap": (
        with_header({LORA: entry(), "b": entry(data_offsets=[2, 6])}, b"\0" * 6),
        "AdapterWeightsUnreadable",
    ),
    "size contradicts shape": (with_header({LORA: entry(shape=[2, 2])}, b"\0" * 4), "AdapterWeightsUnreadable"),
    "negative offset": (with_header({LORA: entry(data_offsets=[-4, 0])}), "AdapterWeightsUnreadable"),
    "offsets backwards": (with_header({LORA: entry(data_offsets=[4, 0])}), "AdapterWeightsUnreadable"),
    "huge offset": (with_header({LORA: entry(data_offsets=[0, 2**60])}), "AdapterWeightsUnreadable"),
    "shape text": (with_header({LORA: entry(shape="1")}), "AdapterWeightsUnreadable"),
    "entry a number": (with_header({LORA: 1}), "AdapterWeightsUnreadable"),
    "no LoRA tensors": (with_header({"x": entry()}, b"\0" * 4), "AdapterFitsNoModule"),
    "unknown dtype": (
        with_header({LORA: entry(dtype="F3"), OTHER: entry(dtype="F3", data_offsets=[4, 8])}, b"\0" * 8),
        "AdapterWeightsNotFloat",
    ),
    "float8": (with_header(pair("F8_E4M3", 16), b"\0" * 32), None),
    "integers": (with_header(pair("I32", 64), b"\0" * 128), "AdapterWeightsNotFloat"),
    "name of the adapter": (
        safetensors(named("lora_A.default.weight", "lora_B.default.weight")),
        "AdapterTensorsMisnamed",
    ),
    "no .weight": (safetensors(named("lora_A", "lora_B")), "AdapterTensorsMisnamed"),
    "embedding": (safetensors(named("lora_embedding_A", "lora_embedding_B")), None),
    "bias of a half": (safetensors(lora_tensors(8) | {f"{QPROJ}.lora_B.bias": (8,)}), "AdapterUsesBias"),
    "norm": (safetensors(lora_tensors(8) | {"base_model.model.model.norm.weight": (8,)}), "AdapterExtraTensors"),
    "buffer": (safetensors(lora_tensors(8) | {f"{QPROJ}.rotary_emb.inv_freq": (8,)}), "AdapterExtraTensors"),
    "trained tokens": (
        safetensors(
            lora_tensors(8) | {"base_model.model.model.embed_tokens.token_adapter.trainable_tokens_delta": (2, 8)}
        ),
        "AdapterExtraTensors",
    ),
    "embedding of the base": (
        safetensors(lora_tensors(8) | {"base_model.model.model.embed_tokens.base_layer.weight": (9, 8)}),
        None,
    ),
    "head of the base": (safetensors(lora_tensors(8) | {"base_model.model.lm_head.base_layer.weight": (9, 8)}), None),
    "another layer of the base": (
        safetensors(lora_tensors(8) | {f"{QPROJ}.base_layer.weight": (8, 8)}),
        "AdapterExtraTensors",
    ),
    "bfloat16": (with_header(pair("BF16", 32), b"\0" * 64), None),
    "tensors of no bytes beside it": (
        with_header({"x": entry(shape=[0], data_offsets=[0, 0])} | pair("F32", 64), b"\0" * 128),
        "AdapterExtraTensors",
    ),
    "metadata": (with_header({"__metadata__": {"format": "pt", "shape": "[1]"}} | pair("F32", 64), b"\0" * 128), None),
    "metadata a number": (with_header({"__metadata__": 5} | pair("F32", 64), b"\0" * 128), "AdapterWeightsUnreadable"),
    "metadata of numbers": (
        with_header({"__metadata__": {"format": 5}} | pair("F32", 64), b"\0" * 128),
        "AdapterWeightsUnreadable",
    ),
    "padded by 12 MiB": (with_header(json.dumps(pair("F32", 64)).encode() + b" " * (12 << 20), b"\0" * 128), None),
    "header above what is read": (
        struct.pack("<Q", 40 << 20) + b"{}" + b" " * (40 << 20),
        "AdapterWeightsUnreadable",
    ),
    "no lora_B": (with_header({LORA: entry()}, b"\0" * 4), "AdapterTensorsIncomplete"),
    "no lora_A": (with_header({OTHER: entry()}, b"\0" * 4), "AdapterTensorsIncomplete"),
    "halves of two ranks": (
        with_header({LORA: entry(shape=[2, 1], data_offsets=[0, 8]), OTHER: entry(data_offsets=[8, 12])}, b"\0" * 12),
        "AdapterTensorsIncomplete",
    ),
    "a vector": (
        with_header({LORA: entry(shape=[1]), OTHER: entry(data_offsets=[4, 8])}, b"\0" * 8),
        "AdapterTensorsIncomplete",
    ),
    "rank zero": (
        with_header({LORA: entry(shape=[0, 9], data_offsets=[0, 0]), OTHER: entry(shape=[9, 0], data_offsets=[0, 0])}),
        "AdapterTensorsIncomplete",
    ),
    "one name twice": (
        with_header(json.dumps(pair("F32", 64))[:-1].encode() + b', "x": 1, "x": {}}', b"\0" * 128),
        "AdapterWeightsUnreadable",
    ),
    "dora tensor": (
        safetensors(lora_tensors(8) | {"base_model.model.m.lora_magnitude_vector": (8,)}),
        "AdapterUsesDora",
    ),
}


@pytest.mark.parametrize(("data", "reason"), WEIGHT_FILES.values(), ids=WEIGHT_FILES)
def test_weights(data: bytes, reason: str | None) -> None:
    failure = judge(config(r=8), data).failure
    assert (failure.reason if failure else None) == reason


PICKLES = {
    "zip": (b"PK\x03\x04" + b"\0" * 50, b"\0PK\x05\x06" + b"\0" * 18, None),
    "zip cut": (b"PK\x03\x04" + b"\0" * 50, b"\0" * 50, "AdapterWeightsTruncated"),
    "old pickle": (b"\x80\x02}q\0.", b"", None),
    "nonsense": (b"hello", b"", "AdapterWeightsUnreadable"),
    "pointer": (b"version https://git-lfs.github.com/spec/v1\n", b"", "AdapterIsLfsPointer"),
}


def test_nothing_is_ever_unpickled(tmp_path: Path) -> None:
    """A pickle that would create a file when it is loaded, directly and inside a zip."""
    trap = tmp_path / "sprung"

    class Trap:
        def __reduce__(self) -> Any:
            return Path.touch, (trap,)

    (tmp_path / "a").mkdir()
    (tmp_path / "a" / CONFIG).write_bytes(config())
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as stream:
        stream.writestr("adapter_model/data.pkl", pickle.dumps(Trap()))
    for data in (pickle.dumps(Trap()), archive.getvalue()):
        (tmp_path / "a" / "adapter_model.bin").write_bytes(data)
        assert [one.reason for one in inspect_adapter(tmp_path / "a", LIMITS).warnings] == ["AdapterIsPickle"]
        assert not trap.exists()


@pytest.mark.parametrize("place", [CONFIG, "adapter_model.safetensors", "adapter_model.bin"])
@pytest.mark.parametrize("what", ["fifo", "device", "folder", "socket", "link to nowhere"])
def test_a_special_file_is_not_waited_for(tmp_path: Path, place: str, what: str) -> None:
    """A local folder may hold anything: a special file is reported at once."""
    (tmp_path / CONFIG).write_bytes(config())
    if place == CONFIG:
        (tmp_path / "adapter_model.safetensors").write_bytes(GOOD)
    (tmp_path / place).unlink(missing_ok=True)
    with contextlib.closing(socket.socket(socket.AF_UNIX)) as server:
        match what:
            case "fifo":
                os.mkfifo(tmp_path / place)
            case "device":
                (tmp_path / place).symlink_to("/dev/zero")
            case "folder":
                (tmp_path / place).mkdir()
            case "socket":
                server.bind(str(tmp_path / place))
            case _:
                (tmp_path / place).symlink_to(tmp_path / "nowhere")
        with pytest.raises(OSError, match=r"regular|No such|link"):
            inspect_adapter(tmp_path, LIMITS)


def test_links_of_a_hub_cache_are_followed(tmp_path: Path) -> None:
    (tmp_path / "blob").write_bytes(GOOD)
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / CONFIG).write_bytes(config())
    (tmp_path / "a" / "adapter_model.safetensors").symlink_to(tmp_path / "blob")
    assert inspect_adapter(tmp_path / "a", LIMITS).failure is None


@pytest.mark.parametrize(("prefix", "tail", "reason"), PICKLES.values(), ids=PICKLES)
def test_pickle(prefix: bytes, tail: bytes, reason: str | None) -> None:
    file = Weights("adapter_model.bin", 100, prefix, tail=tail)
    verdict = check_weights(file, config(), LIMITS, None)
    assert (verdict.failure.reason if verdict.failure else None) == reason
    if reason is None:
        assert [one.reason for one in verdict.warnings] == ["AdapterIsPickle"]
        refused = check_weights(file, config(), Limits(8, 8, allow_pickle=False), None).failure
        assert refused is not None
        assert refused.reason == "AdapterPickleRefused"


# -- the base's modules ---------------------------------------------------------------------------------------------

LLAMA = base_modules(
    Tensor(f"model.layers.{layer}.{module}.weight", (8, 8))
    for layer in range(2)
    for module in ("self_attn.q_proj", "self_attn.v_proj", "mlp.experts.0.up_proj", "mlp.experts.1.up_proj")
)
FITS = {
    "all": (("model.layers.0.self_attn.q_proj",), LLAMA, None, set()),
    "none, prefix": (("language_model.model.layers.0.self_attn.q_proj",), LLAMA, "AdapterFitsNoModule", set()),
    "none, module": (("model.layers.0.self_attn.o_proj",), LLAMA, "AdapterModuleUnknown", set()),
    "some": (
        ("model.layers.0.self_attn.q_proj", "model.layers.9.self_attn.q_proj"),
        LLAMA,
        None,
        {"AdapterFitsPartly"},
    ),
    "fused experts": (("model.layers.0.mlp.experts",), LLAMA, None, set()),
    "base without its outermost module": (
        ("transformer.h.0.attn.c_attn",),
        base_modules([Tensor("h.0.attn.c_attn.weight", (8, 8)), Tensor("wte.weight", (9, 8))]),
        None,
        set(),
    ),
    "base unknown": (("whatever",), {}, None, set()),
}


@pytest.mark.parametrize(("modules", "base", "reason", "warned"), FITS.values(), ids=FITS)
def test_modules(modules: tuple[str, ...], base: BaseModules, reason: str | None, warned: set[str]) -> None:
    verdict = judge(config(), safetensors(lora_tensors(8, modules)), base=base)
    assert (verdict.failure.reason if verdict.failure else None) == reason
    assert {one.reason for one in verdict.warnings} == warned


VISION = base_modules(
    Tensor(name, (8, 8))
    for name in (
        "language_model.model.layers.0.self_attn.q_proj.weight",
        "language_model.model.embed_tokens.weight",
        "vision_tower.vision_model.encoder.layers.0.self_attn.q_proj.weight",
        "multi_modal_projector.mm_input_projection_weight",
    )
)
QWEN_VL = base_modules(
    Tensor(name, (8, 8)) for name in ("model.layers.0.self_attn.q_proj.weight", "visual.blocks.0.attn.qkv.weight")
)
FUSED = base_modules(
    Tensor(f"model.layers.0.{name}", (2, 8, 8)) for name in ("mlp.experts.gate_up_proj", "mlp.experts.down_proj")
) | {"model.layers.0.self_attn.q_proj": (8, 8)}
TIED = base_modules([Tensor("model.embed_tokens.weight", (8, 8)), Tensor("model.layers.0.q_proj.weight", (8, 8))])
RENAMED = {
    "new names, old files": ("model.language_model.layers.0.self_attn.q_proj", VISION, None),
    "old names, old files": ("language_model.model.layers.0.self_attn.q_proj", VISION, None),
    "vision": ("model.vision_tower.vision_model.encoder.layers.0.self_attn.q_proj", VISION, None),
    "no prefix of the text": ("model.layers.0.self_attn.q_proj", VISION, "AdapterFitsNoModule"),
    "new names, Qwen's files": ("model.language_model.layers.0.self_attn.q_proj", QWEN_VL, None),
    "old names, Qwen's files": ("model.layers.0.self_attn.q_proj", QWEN_VL, None),
    "vision, Qwen's files": ("model.visual.blocks.0.attn.qkv", QWEN_VL, None),
    "compiled": ("_orig_mod.model.layers.0.self_attn.q_proj", QWEN_VL, "AdapterFitsNoModule"),
    "a language model in a text base": ("language_model.model.layers.0.self_attn.q_proj", LLAMA, "AdapterFitsNoModule"),
    "first parameter of experts": ("model.layers.0.mlp.experts.base_layer", FUSED, None),
    "one expert of fused ones": ("model.layers.0.mlp.experts.1.up_proj", FUSED, None),
    "all of separate experts": ("model.layers.0.mlp.experts", LLAMA, None),
    "tied head": ("lm_head", TIED, None),
    "a norm": ("model.layers.0.norm", TIED | {"model.layers.0.norm": (8,)}, "AdapterModuleUnknown"),
}


@pytest.mark.parametrize(("module", "base", "reason"), RENAMED.values(), ids=RENAMED)
def test_modules_are_compared_as_the_engine_names_them(module: str, base: BaseModules, reason: str | None) -> None:
    verdict = judge(config(), safetensors(lora_tensors(8, (module,))), base=base)
    assert (verdict.failure.reason if verdict.failure else None) == reason
    assert verdict.warnings == ()


def test_one_module_that_the_class_lacks_ends_the_whole_adapter() -> None:
    """A wrong layer of a known module has no effect; a module that no layer has is refused with all others."""
    modules = ("model.layers.0.self_attn.q_proj", "model.layers.0.self_attn.out_proj")
    verdict = judge(config(), safetensors(lora_tensors(8, modules)), base=LLAMA)
    assert verdict.failure is not None
    assert verdict.failure.reason == "AdapterModuleUnknown"
    assert "out_proj" in verdict.failure.detail


SHAPES = {
    "fits": ((8, 64), (32, 8), None),
    "wider": ((8, 128), (32, 8), "columns"),
    "narrower": ((8, 32), (32, 8), "columns"),
    "higher": ((8, 64), (64, 8), "rows"),
    "lower": ((8, 64), (16, 8), "rows"),
}


@pytest.mark.parametrize(("a", "b", "what"), SHAPES.values(), ids=SHAPES)
def test_shapes_are_compared_with_the_base(a: tuple[int, int], b: tuple[int, int], what: str | None) -> None:
    base = base_modules([Tensor("model.layers.0.self_attn.q_proj.weight", (32, 64), "BF16")])
    data = safetensors({f"{QPROJ}.lora_A.weight": a, f"{QPROJ}.lora_B.weight": b})
    failure = judge(config(), data, base=base).failure
    assert (failure is None) == (what is None)
    if failure is not None and what is not None:
        assert failure.reason == "AdapterShapeMismatch"
        assert what in failure.detail
    packed = base_modules([Tensor("model.layers.0.self_attn.q_proj.qweight", (4, 64), "I32")])
    assert judge(config(), data, base=packed).failure is None, "of a quantized base the shapes are not known"


def test_shapes_of_an_embedding_and_of_gpt2_are_transposed() -> None:
    base = base_modules([Tensor("model.embed_tokens.weight", (100, 64)), Tensor("h.0.attn.c_attn.weight", (64, 192))])
    embedding = {"base_model.model.model.embed_tokens.lora_embedding_A": (8, 100)}
    embedding["base_model.model.model.embed_tokens.lora_embedding_B"] = (64, 8)
    gpt2 = {"base_model.model.h.0.attn.c_attn.lora_A.weight": (8, 64)}
    gpt2["base_model.model.h.0.attn.c_attn.lora_B.weight"] = (192, 8)
    assert judge(config(), safetensors(embedding | gpt2), base=base).failure is None


def test_the_rank_of_experts_is_that_of_the_configuration() -> None:
    """Matrices for all experts have rank times experts rows, whatever the module is called."""
    for module, parameters in (
        ("mlp.experts", ["mlp.experts.down_proj"]),
        ("moe.bank", ["moe.bank.w1", "moe.bank.w2"]),
    ):
        tensors = {}
        for path in (f"model.layers.0.{module}", f"model.layers.0.{module}.base_layer"):
            tensors[f"base_model.model.{path}.lora_A.weight"] = (16 * 32, 8)
            tensors[f"base_model.model.{path}.lora_B.weight"] = (8, 16 * 32)
        raw = config(r=16, target_modules=[], target_parameters=parameters)
        verdict = judge(raw, safetensors(tensors), Limits(64, 16))
        assert (verdict.failure, verdict.warnings, verdict.rank) == (None, (), 16)


# -- the values -----------------------------------------------------------------------------------------------------

SPECIAL = {
    ("F32", "<f"): (float("nan"), float("inf"), float("-inf")),
    ("F16", "<e"): (float("nan"), float("inf"), float("-inf")),
    ("F64", "<d"): (float("nan"), float("inf"), float("-inf")),
}
LARGE = {"<f": (3.4e38, -1e38, 0.0), "<e": (65504.0, -1.5, 0.0), "<d": (1.7e308, -1.0, 0.0)}


@pytest.mark.parametrize("kind", SPECIAL, ids=lambda kind: kind[0])
def test_nan_and_infinity_are_found_and_large_numbers_are_not_taken_for_them(kind: tuple[str, str]) -> None:
    dtype, code = kind
    tensor = Tensor("x", (4,), dtype)
    for value in SPECIAL[kind]:
        assert first_not_finite([(tensor, struct.pack(f"{code}{code[1] * 2}", 1.0, value, 2.0))]) is tensor
    assert first_not_finite([(tensor, struct.pack(f"{code}{code[1] * 2}", *LARGE[code]))]) is None


def test_nan_in_formats_that_python_does_not_pack() -> None:
    cases = {
        "BF16": (bytes((0x80, 0x7F)), bytes((0xC0, 0xFF)), bytes((0x7F, 0x7F))),
        "F8_E4M3": (b"\x7f", b"\xff", b"\x7e"),
        "F8_E5M2": (b"\x7c", b"\xff", b"\x7b"),
    }
    for dtype, (infinite, nan, largest) in cases.items():
        tensor = Tensor("x", (1,), dtype)
        assert first_not_finite([(tensor, infinite)]) is tensor
        assert first_not_finite([(tensor, nan)]) is tensor
        assert first_not_finite([(tensor, largest)]) is None


def test_a_nan_anywhere_in_small_weights_is_found(tmp_path: Path) -> None:
    (tmp_path / CONFIG).write_bytes(config())
    good = safetensors(lora_tensors(8))
    for at in (len(good) - 4, len(good) - 8 * 8 * 4, len(good) - 2 * 8 * 8 * 4):
        spoilt = good[:at] + struct.pack("<f", float("nan")) + good[at + 4 :]
        (tmp_path / "adapter_model.safetensors").write_bytes(spoilt)
        failure = inspect_adapter(tmp_path, LIMITS).failure
        assert failure is not None
        assert failure.reason == "AdapterWeightsNotFinite"
    (tmp_path / "adapter_model.safetensors").write_bytes(good)
    assert inspect_adapter(tmp_path, LIMITS).failure is None


@pytest.mark.parametrize("count", [1, 300, 100_000])
def test_of_large_weights_one_percent_is_read_of_every_tensor(count: int) -> None:
    size = (2 << 30) // count // 8 * 8
    tensors = [Tensor(f"t{number}", (size // 4,), "F32", number * size, size) for number in range(count)]
    pieces = list(plan_sample(tensors))
    assert sum(piece.size for piece in pieces) * 100 <= 2 << 30
    assert {piece.tensor.name for piece in pieces} == {tensor.name for tensor in tensors}
    for piece in pieces:
        assert piece.tensor.begin <= piece.begin
        assert piece.begin + piece.size <= piece.tensor.begin + piece.tensor.size
        assert (piece.begin - piece.tensor.begin) % 8 == piece.size % 8 == 0


# -- each fix works -------------------------------------------------------------------------------------------------

FIXES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "AdapterTargetsNothing": ({"target_modules": "absent"}, {"target_modules": None}),
    "AdapterAlphaMissing": ({"lora_alpha": None}, {"lora_alpha": 16}),
    "AdapterUsesBias": ({"bias": "all"}, {"bias": "none", "lora_bias": False}),
    "AdapterUsesDora": ({"use_dora": True}, {"use_dora": False}),
    "AdapterSavesModules": ({"modules_to_save": ["lm_head"]}, {"modules_to_save": None}),
    "AdapterInitChangesBase": ({"init_lora_weights": "pissa"}, {"init_lora_weights": True}),  # as converted
    "AdapterUsesActivatedLora": ({"alora_invocation_tokens": [1]}, {"alora_invocation_tokens": None}),
    "AdapterReplicatesLayers": ({"layer_replication": [[0, 1]]}, {"layer_replication": None}),
    "AdapterUsesBlockDiagonal": ({"use_bdlora": {"nblocks": 2}}, {"use_bdlora": None}),
    "AdapterUsesQalora": ({"use_qalora": True}, {"use_qalora": False}),
    "AdapterTypeUnsupported": ({"peft_type": "LOHA"}, {"peft_type": "LORA"}),
    "AdapterRankMissing": ({"r": None}, {"r": 8}),
}


@pytest.mark.parametrize("reason", FIXES)
def test_an_adapter_that_follows_the_fix_is_accepted(reason: str) -> None:
    bad, good = FIXES[reason]
    failure = judge(config(**bad)).failure
    assert failure is not None
    assert failure.reason == reason
    assert judge(config(**good)).failure is None
    assert judge(config(**good)).warnings == ()


def test_base_modules_are_read_from_headers_or_index(folder: Path) -> None:
    (folder / "model-1.safetensors").write_bytes(safetensors({"a.b.weight": (2,)}))
    (folder / "model-2.safetensors").write_bytes(safetensors({"a.c.weight": (2,)}))
    assert read_base_modules(folder) == {"a.b": (2,), "a.c": (2,)}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"x.y.weight": "f"}}))
    assert read_base_modules(folder) == {"x.y": None, "a.b": (2,), "a.c": (2,)}
    (folder / "model.safetensors.index.json").write_text("[")
    assert read_base_modules(folder) is None
    assert read_base_modules(folder / "nothing") is None


# -- whatever the bytes ---------------------------------------------------------------------------------------------


def _is_sound(verdict: Verdict) -> None:
    found = [verdict.failure, *verdict.warnings]
    for finding in found:
        if finding is not None:
            assert finding.reason in JOB_REASONS
            assert len(finding.detail) < 1500
            assert finding.detail.isprintable()
    assert verdict.rank is None or verdict.rank >= 1


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=8,
)
KEYS = (
    "peft_type",
    "r",
    "rank_pattern",
    "lora_alpha",
    "alpha_pattern",
    "target_modules",
    "modules_to_save",
    "use_dora",
    "bias",
)
SPARE = settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@SPARE
@given(st.binary(max_size=300), st.binary(max_size=600))
def test_random_bytes(raw: bytes, data: bytes) -> None:
    _is_sound(judge(raw, data))
    _is_sound(judge(config(), data))


@SPARE
@given(st.fixed_dictionaries({}, optional=dict.fromkeys(KEYS, JSON_VALUES)), JSON_VALUES)
def test_random_configurations(changes: dict[str, Any], base: Any) -> None:
    raw = json.dumps({"peft_type": "LORA", "r": 8, "target_modules": ["x"], "base_model_name_or_path": base} | changes)
    _is_sound(check_config(raw.encode(), Limits(8, 8, "acme/base")))
    _is_sound(judge(raw.encode()))


@SPARE
@given(st.dictionaries(st.text(max_size=40), JSON_VALUES, max_size=5), st.binary(max_size=40))
def test_random_headers(header: dict[str, Any], data: bytes) -> None:
    _is_sound(judge(config(), with_header(header, data)))


@SPARE
@given(st.integers(min_value=0, max_value=len(GOOD) - 1), st.binary(min_size=1, max_size=4))
def test_damaged_files(at: int, noise: bytes) -> None:
    _is_sound(judge(config(), GOOD[:at] + noise + GOOD[at + len(noise) :]))
    _is_sound(judge(config(), GOOD[:at]))


@pytest.mark.parametrize("name", [row["name"] for row in ROWS])
def test_every_prefix_of_real_files(name: str, folder: Path) -> None:
    copy = folder / name
    shutil.copytree(FIXTURES / name, copy)
    for path in sorted(copy.glob("adapter_*")):
        whole = path.read_bytes()
        for length in range(0, len(whole), max(1, len(whole) // 25)):
            path.write_bytes(whole[:length])
            verdict = inspect_adapter(copy, LIMITS)
            _is_sound(verdict)
            assert verdict.failure is not None, f"{path.name} cut at {length} passes"
        path.write_bytes(whole)


# -- only headers are read ------------------------------------------------------------------------------------------


def test_two_gigabytes_cost_no_more_than_their_header(tmp_path: Path) -> None:
    tensors: dict[str, tuple[int, ...]] = {}
    modules = tuple(f"model.layers.{number}.self_attn.q_proj" for number in range(64))
    for module in modules:
        tensors[f"base_model.model.{module}.lora_A.weight"] = (64, 64 * 1024)
        tensors[f"base_model.model.{module}.lora_B.weight"] = (64 * 1024, 64)
    header: dict[str, Any] = {}
    offset = 0
    for name, shape in tensors.items():
        size = 4 * shape[0] * shape[1]
        header[name] = {"dtype": "F32", "shape": list(shape), "data_offsets": [offset, offset + size]}
        offset += size
    path = tmp_path / "adapter_model.safetensors"
    path.write_bytes(with_header(header))
    with path.open("r+b") as stream:
        stream.truncate(path.stat().st_size + offset)  # a hole: 2 GiB that take no room
    (tmp_path / CONFIG).write_bytes(config(r=64))
    assert path.stat().st_size > 2 * 1024**3
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start = time.perf_counter()
    verdict = inspect_adapter(tmp_path, LIMITS)
    seconds = time.perf_counter() - start
    assert verdict.failure is None
    assert verdict.rank == 64
    assert seconds < 0.5  # bench/disk measures it; this only shows that no data is read
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50 * 1024  # KiB


def test_a_giant_header_is_refused_unread(tmp_path: Path) -> None:
    path = tmp_path / "adapter_model.safetensors"
    path.write_bytes(struct.pack("<Q", 1 << 40) + b"{" + b" " * 1000)
    with path.open("r+b") as stream:
        stream.truncate(1 << 41)
    assert read_weights(path).header == b""
    finding = read_header(read_weights(path))
    assert isinstance(finding, Finding)
    assert finding.reason == "AdapterWeightsUnreadable"
