"""The model server stand-in, run as the process that a pod runs, over copies of adapters that PEFT wrote."""

from __future__ import annotations

import csv
import hashlib
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from devcluster import model_server as ms
from tests.waiting import within

ADAPTERS = Path(__file__).parents[2] / "fixtures" / "adapters"
MODEL_ID = "acme/tiny-llama"


class Running:
    """One server process: its log is read by a thread, its port comes from the log."""

    def __init__(self, env: dict[str, str]) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "devcluster.model_server"],
            env={"PATH": os.environ["PATH"], "AIM_DEV_POD_IP": "127.0.0.1", "AIM_PORT": "0", **env},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.lines: list[str] = []
        self._reader = threading.Thread(target=self._read)
        self._reader.start()
        self.http = httpx.Client(trust_env=False, timeout=5)

    def _read(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as stream:
            for line in stream:
                self.lines.append(line.rstrip())

    @property
    def log(self) -> str:
        return "\n".join(self.lines)

    def ready(self) -> Running:
        within(lambda: "listening on" in self.log or self.process.poll() is not None, 5)
        assert "listening on" in self.log, self.log
        port = next(line for line in self.lines if "listening on" in line).rpartition(":")[2]
        self.http.base_url = httpx.URL(f"http://127.0.0.1:{port}")
        return self

    def models(self) -> list[str]:
        return [item["id"] for item in self.http.get("/v1/models").json()["data"]]

    def state(self) -> dict[str, Any]:
        return dict(self.http.get("/stand-in").json())

    def ask(self, model: str) -> httpx.Response:
        return self.http.post("/v1/chat/completions", json={"model": model, "messages": []})

    def exit_code(self, seconds: float = 5) -> int:
        code = self.process.wait(seconds)
        self._reader.join(5)
        return code

    def close(self) -> None:
        self.http.close()
        if self.process.poll() is None:
            self.process.kill()
        self.exit_code()


Start = Callable[..., Running]


@pytest.fixture
def world(tmp_path: Path) -> Path:
    """A base model in the cache, an empty subtree, a place for profiles."""
    base = tmp_path / "cache" / MODEL_ID
    base.mkdir(parents=True)
    (base / "config.json").write_text("{}")
    (tmp_path / "adapters").mkdir()
    return tmp_path


@pytest.fixture
def start(world: Path) -> Iterator[Start]:
    started: list[Running] = []

    def run(**env: str) -> Running:
        settings = {
            "AIM_CACHE_PATH": str(world / "cache"),
            "AIM_MODEL_ID": MODEL_ID,
            "AIM_ADAPTER_SOURCE": str(world / "adapters"),
            "AIM_STAND_IN_PROFILES": str(world / "profiles"),
            "AIM_STAND_IN_REFRESH_SECONDS": "0.1",
            "AIM_ADAPTER_MODE": "dynamic",
        }
        started.append(Running({k: v for k, v in {**settings, **env}.items() if v}))
        return started[-1]

    yield run
    for server in started:
        server.close()


def put(world: Path, fixture: str, name: str | None = None) -> Path:
    """Stage as the product does: copied beside, then renamed in whole."""
    target = world / "adapters" / (name or fixture)
    scratch = world / f".{target.name}"
    shutil.copytree(ADAPTERS / fixture, scratch)
    scratch.rename(target)
    return target


def profile(world: Path, features: str, name: str = "p1") -> str:
    path = world / "profiles" / "custom" / "acme" / "aim-1"
    path.mkdir(parents=True, exist_ok=True)
    (path / f"{name}.yaml").write_text(
        f"aim_id: acme/aim-1\nmodel_id: {MODEL_ID}\nmetadata:\n  engine: vllm\n  features: {features}\n"
    )
    return f"custom/acme/aim-1/{name}"


def weights_hash(fixture: str) -> str:
    return hashlib.sha256((ADAPTERS / fixture / ms.SAFETENSORS_FILE).read_bytes()).hexdigest()


# --- serving ---


def test_static_serves_what_it_found_at_start_in_order(world: Path, start: Start) -> None:
    put(world, "qwen2-r16-all-linear", "b")
    put(world, "llama-r8-bin", "a")
    server = start(AIM_ADAPTER_MODE="static").ready()
    cards = server.http.get("/v1/models").json()["data"]
    assert [(c["id"], c["parent"]) for c in cards] == [(MODEL_ID, None), ("a", MODEL_ID), ("b", MODEL_ID)]
    assert cards[1]["root"] == str(world / "adapters" / "a")
    put(world, "llama-r8-qv", "late")
    time.sleep(0.3)
    assert server.models() == [MODEL_ID, "a", "b"]
    assert server.http.post("/v1/load_lora_adapter", json={"lora_name": "x", "lora_path": "/x"}).status_code == 404


def test_an_answer_names_the_content_and_the_unknown_is_404_never_the_base(world: Path, start: Start) -> None:
    put(world, "llama-r8-qv", "medical")
    server = start(AIM_ADAPTER_MODE="static").ready()
    answer = server.ask("medical").json()
    assert answer["model"] == "medical"
    assert weights_hash("llama-r8-qv") in answer["choices"][0]["message"]["content"]
    assert answer["standIn"] == {
        "base": MODEL_ID, "adapter": "medical", "weightsSha256": weights_hash("llama-r8-qv"),
    }  # fmt: skip
    assert server.ask(MODEL_ID).json()["standIn"]["adapter"] is None
    assert server.ask("legal").status_code == 404
    assert server.http.get("/health").status_code == 200


def test_dynamic_loads_reloads_and_unloads_without_a_restart(world: Path, start: Start) -> None:
    server = start().ready()
    assert server.models() == [MODEL_ID]
    path = put(world, "llama-r8-qv", "one")
    within(lambda: "one" in server.models(), 3)
    assert server.ask("one").json()["standIn"]["weightsSha256"] == weights_hash("llama-r8-qv")

    fresh = world / "fresh"
    shutil.copytree(ADAPTERS / "llama-r16-rslora", fresh)
    path.rename(world / "aside")
    fresh.rename(path)
    within(lambda: weights_hash("llama-r16-rslora") in server.ask("one").text, 3)
    assert weights_hash("llama-r16-rslora") in server.ask("one").text

    path.rename(world / "gone")
    within(lambda: "one" not in server.models(), 3)
    assert server.ask("one").status_code == 404
    state = server.state()
    assert state["pid"] == server.process.pid
    assert state["loads"] >= 2
    assert state["unloads"] >= 1


def test_a_rejected_adapter_is_not_tried_again_until_its_files_change(world: Path, start: Start) -> None:
    path = put(world, "damaged-weights-truncated", "x")
    put(world, "llama-r8-qv", "sibling")
    server = start().ready()
    within(lambda: server.state()["rejections"] > 0 and "sibling" in server.models(), 3)
    time.sleep(0.4)
    assert server.state()["rejections"] == 1
    assert server.models() == [MODEL_ID, "sibling"]
    assert "not tried again" in server.log
    shutil.copy(ADAPTERS / "llama-r16-rslora" / ms.SAFETENSORS_FILE, path / ms.SAFETENSORS_FILE)
    within(lambda: "x" in server.models(), 3)
    assert server.models() == [MODEL_ID, "sibling", "x"]


def test_a_busy_engine_is_asked_again(world: Path, start: Start) -> None:
    put(world, "llama-r8-qv", "x")
    server = start(AIM_STAND_IN_FAIL_LOADS="x=2").ready()
    within(lambda: "x" in server.models(), 3)
    assert "x" in server.models()
    assert server.log.count("will be tried again") == 2


def test_skipped_directories_get_one_line_each(world: Path, start: Start) -> None:
    put(world, "llama-r8-qv", "_bad-name")
    put(world, "damaged-no-weights", "no-weights")
    put(world, "damaged-config-not-json", "not-json")
    put(world, "llama-r1024", "too-high")
    (world / "adapters" / "empty").mkdir()
    server = start().ready()
    time.sleep(0.5)
    for name in ("_bad-name", "no-weights", "not-json", "too-high"):
        assert server.log.count(f"skipping adapter directory {name}:") == 1, name
    assert "empty" not in server.log
    assert server.models() == [MODEL_ID]


@pytest.mark.parametrize("row", list(csv.DictReader((ADAPTERS / "INDEX.tsv").read_text().splitlines(), delimiter="\t")),
                         ids=lambda row: row["name"])  # fmt: skip
def test_each_fixture_is_loaded_or_not_as_an_engine_would(row: dict[str, str], world: Path) -> None:
    source = world / "adapters"
    put(world, row["name"])
    seen = ms.scan(source, 512)
    loads = False
    if seen.found:
        try:
            loads = ms.read_adapter(row["name"], source / row["name"], 512).rank == int(row["r"])
        except ValueError:
            loads = False
    assert loads == (row["expect"] == "ok")  # the one warning is about a bias that engines refuse


def test_a_rank_hidden_in_the_tensors_is_refused_at_loading(world: Path) -> None:
    put(world, "llama-rank-pattern")
    assert ms.scan(world / "adapters", 16).found, "the scan looks at r only"
    with pytest.raises(ValueError, match="rank 32"):
        ms.read_adapter("llama-rank-pattern", world / "adapters" / "llama-rank-pattern", 16)


def test_more_adapters_than_memory_stay_listed_and_are_read_again(world: Path, start: Start) -> None:
    for name in ("a", "b", "c"):
        put(world, "llama-r8-qv", name)
    server = start(AIM_ADAPTER_MAX_COUNT="1", AIM_ADAPTER_MAX_CPU_COUNT="2").ready()
    within(lambda: len(server.models()) == 4, 3)
    assert server.state()["resident"] == ["b", "c"]
    assert server.ask("a").status_code == 200
    assert server.state()["resident"] == ["c", "a"]


# --- gates ---

FEATURE_CASES = {
    "adapters, dynamic": ("[adapters]", "dynamic", [MODEL_ID, "x"], True),
    "adapters, static": ("[adapters]", "static", [MODEL_ID, "x"], False),
    "scale-only serves statically whatever the mode": ("[adapters-scale-only]", "dynamic", [MODEL_ID, "x"], False),
    "no feature, no LoRA": ("[]", "dynamic", [MODEL_ID], False),
}


@pytest.mark.parametrize(("features", "mode", "models", "watches"), FEATURE_CASES.values(), ids=FEATURE_CASES)
def test_the_profile_file_gates(
    world: Path, start: Start, features: str, mode: str, models: list[str], watches: bool
) -> None:
    put(world, "llama-r8-qv", "x")
    server = start(AIM_PROFILE_ID=profile(world, features), AIM_ADAPTER_MODE=mode).ready()
    within(lambda: server.models() == models, 1)
    assert server.models() == models
    assert server.state()["lora"] == (len(models) > 1)
    put(world, "llama-r16-rslora", "y")
    within(lambda: "y" in server.models(), 0.5)
    assert ("y" in server.models()) == watches


REFUSALS = {
    "unknown feature": "[loras]",
    "two features": "[adapters, adapters-scale-only]",
    "features is not a list": "adapters",
    "no yaml": "[adapters",
}


@pytest.mark.parametrize("features", REFUSALS.values(), ids=REFUSALS)
def test_a_refused_profile_ends_the_server(world: Path, start: Start, features: str) -> None:
    server = start(AIM_PROFILE_ID=profile(world, features))
    assert server.exit_code() == 1
    assert "p1.yaml" in server.log
    assert "Traceback" not in server.log


STARTS = {
    "the base is missing": ({"AIM_MODEL_ID": "acme/other"}, "acme/other/config.json is missing"),
    "the source is missing": ({"AIM_ADAPTER_SOURCE": "/nowhere"}, "/nowhere: no such directory"),
    "the profile is missing": ({"AIM_PROFILE_ID": "custom/a/b"}, "no profile file"),
    "a profile outside": ({"AIM_PROFILE_ID": "custom/../../etc/x"}, "no profile file"),
    "asked to crash": ({"AIM_STAND_IN_CRASH_AT_START": "true"}, "crashing as asked"),
}


@pytest.mark.parametrize(("env", "words"), STARTS.values(), ids=STARTS)
def test_it_refuses_to_start(start: Start, env: dict[str, str], words: str) -> None:
    server = start(**env)
    assert server.exit_code() == 1
    assert words in server.log


def test_an_unreadable_static_adapter_kills_the_server(world: Path, start: Start) -> None:
    put(world, "damaged-weights-truncated", "x")
    server = start(AIM_ADAPTER_MODE="static")
    assert server.exit_code() == 1
    assert "the engine failed at start" in server.log


def test_static_without_adapters_has_no_lora(start: Start) -> None:
    server = start(AIM_ADAPTER_MODE="STATIC", AIM_ADAPTER_SOURCE="").ready()
    assert server.state()["lora"] is False
    assert server.models() == [MODEL_ID]


def test_an_older_image_ignores_it_all(world: Path, start: Start) -> None:
    put(world, "llama-r8-qv", "x")
    server = start(AIM_STAND_IN_IGNORE_ADAPTERS="true").ready()
    time.sleep(0.3)
    assert server.models() == [MODEL_ID]


def test_an_adapter_that_is_never_listed_never_answers(world: Path, start: Start) -> None:
    put(world, "llama-r8-qv", "x")
    server = start(AIM_STAND_IN_NEVER_LIST="x").ready()
    within(lambda: server.state()["loads"] == 1, 3)
    assert server.models() == [MODEL_ID]
    assert server.ask("x").status_code == 404


# --- life ---


def test_starts_quickly_counts_starts_and_stops_gracefully(world: Path, start: Start) -> None:
    state = world / "state"
    state.mkdir()
    for expected in (1, 2):
        begun = time.monotonic()
        server = start(AIM_STAND_IN_STATE=str(state), POD_NAME="pod-1", AIM_STAND_IN_CRASH_AT_START="0").ready()
        assert time.monotonic() - begun < 2.5  # 0.2 s on an idle machine
        assert server.state()["starts"] == expected
        server.process.send_signal(signal.SIGTERM)
        assert server.exit_code() == 0
    crashed = start(AIM_STAND_IN_STATE=str(state), POD_NAME="pod-1", AIM_STAND_IN_CRASH_AT_START="3")
    assert crashed.exit_code() == 1
    start(AIM_STAND_IN_STATE=str(state), POD_NAME="pod-1", AIM_STAND_IN_CRASH_AT_START="3").ready()


def test_a_start_delay_is_cut_short_by_sigterm(start: Start) -> None:
    server = start(AIM_STAND_IN_START_DELAY="60")
    within(lambda: "base acme" in server.log, 5)
    server.process.send_signal(signal.SIGTERM)
    assert server.exit_code() == 0
    assert "listening" not in server.log


def test_invalid_bodies_are_answered_with_an_error(start: Start) -> None:
    server = start().ready()
    assert server.http.post("/v1/chat/completions", content=b"{").status_code == 400
    assert server.http.post("/v1/chat/completions", content=b"[]").status_code == 400
    assert server.http.post("/v1/chat/completions", json={}).status_code == 400
    assert server.http.post("/v1/unload_lora_adapter", json={"lora_name": "x"}).status_code == 404
    assert server.http.get("/nothing").status_code == 404


# --- settings ---

ENVS: dict[str, tuple[dict[str, str], dict[str, Any]]] = {
    "nothing set": ({}, {"dynamic": False, "refresh_s": 30.0, "max_count": 8, "max_cpu_count": 16, "max_rank": 32}),
    "mode in any case": ({"AIM_ADAPTER_MODE": "Dynamic"}, {"dynamic": True}),
    "invalid mode is static": ({"AIM_ADAPTER_MODE": "auto"}, {"dynamic": False}),
    "refresh below five": ({"AIM_ADAPTER_REFRESH_INTERVAL": "4"}, {"refresh_s": 30.0}),
    "refresh of five": ({"AIM_ADAPTER_REFRESH_INTERVAL": "5"}, {"refresh_s": 5.0}),
    "refresh is not a number": ({"AIM_ADAPTER_REFRESH_INTERVAL": "5s"}, {"refresh_s": 30.0}),
    "rank not supported": ({"AIM_ADAPTER_MAX_RANK": "48"}, {"max_rank": 32}),
    "rank supported": ({"AIM_ADAPTER_MAX_RANK": "320"}, {"max_rank": 320}),
    "zero slots": ({"AIM_ADAPTER_MAX_COUNT": "0"}, {"max_count": 8}),
    "fewer in memory than on the GPU": (
        {"AIM_ADAPTER_MAX_COUNT": "8", "AIM_ADAPTER_MAX_CPU_COUNT": "4"}, {"max_cpu_count": 8},
    ),
}  # fmt: skip


@pytest.mark.parametrize(("env", "expected"), ENVS.values(), ids=ENVS)
def test_variables_fall_back(env: dict[str, str], expected: dict[str, Any]) -> None:
    settings = ms.parse_adapter_settings(env)
    assert {name: getattr(settings, name) for name in expected} == expected


def test_a_pod_listens_on_its_own_address() -> None:
    assert ms.listen_address({"AIM_DEV_POD_IP": "127.65.0.3", "POD_IP": "10.0.0.1"}) == ("127.65.0.3", 8000)
    assert ms.listen_address({"POD_IP": "10.0.0.1", "PORT": "8001"}) == ("10.0.0.1", 8001)
    assert ms.listen_address({}) == ("0.0.0.0", 8000)
