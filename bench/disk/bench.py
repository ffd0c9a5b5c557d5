"""How fast is a disk? Staging beside the plain client libraries downloading the same, in the same run.

Prints ratios and writes `build/bench/disk.json`. The sources are the stand-ins on loopback, in processes of their
own; each measurement runs in a process of its own, so that CPU and peak memory are its own. The disk is a folder in
memory where there is one (`--folder` chooses another): the floor syncs nothing, and staging syncs all.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import resource
import shutil
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

TOKEN = "hf_benchToken"
ACCESS_KEY, SECRET_KEY = "AKIABENCHBENCHBENCH", "bench/secret"
GIB = 1 << 30


def header(tensors: Mapping[str, tuple[int, ...]]) -> bytes:
    """Return the start of a safetensors file with these F32 tensors."""
    entries: dict[str, Any] = {}
    offset = 0
    for name, shape in tensors.items():
        size = 4 * shape[0] * shape[1]
        entries[name] = {"dtype": "F32", "shape": list(shape), "data_offsets": [offset, offset + size]}
        offset += size
    raw = json.dumps(entries).encode()
    return struct.pack("<Q", len(raw)) + raw


def write_adapter(folder: Path, size: int, seed: int) -> None:
    """Write an adapter of about `size` bytes, rank 8, content that differs with `seed`."""
    folder.mkdir(parents=True, exist_ok=True)
    config = {"peft_type": "LORA", "r": 8, "lora_alpha": 16, "target_modules": ["q_proj"]}
    config["base_model_name_or_path"] = "acme/base"
    (folder / "adapter_config.json").write_text(json.dumps(config | {"seed": seed}))
    pairs = max(1, size >> 23)
    width = size // (pairs * 64)
    tensors: dict[str, tuple[int, ...]] = {}
    for number in range(pairs):
        tensors[f"base_model.model.model.layers.{number}.q_proj.lora_A.weight"] = (8, width)
        tensors[f"base_model.model.model.layers.{number}.q_proj.lora_B.weight"] = (width, 8)
    block = os.urandom(1 << 20).translate(bytes(byte & 0x3F for byte in range(256)))  # no NaN in it
    left = pairs * 64 * width
    with (folder / "adapter_model.safetensors").open("wb") as stream:
        stream.write(header(tensors))
        while left > 0:
            left -= stream.write(block[:left])


@contextlib.contextmanager
def source(kind: str, root: Path) -> Iterator[str]:
    """Run a stand-in in a process of its own; yield its endpoint."""
    keys = ["--token", TOKEN] if kind == "hub" else ["--access-key", ACCESS_KEY, "--secret-key", SECRET_KEY]
    command = [sys.executable, "-m", f"devcluster.sources.{kind}", "--root", str(root), *keys]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield json.loads(process.stdout.readline())["endpoint"]
    finally:
        process.terminate()
        process.wait(10)


def measured(action: Callable[[], None]) -> dict[str, float]:
    """Run an action in a child; return seconds, CPU seconds and peak memory (MiB) of it."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.close(reader)
            start = time.perf_counter()
            action()
            seconds = time.perf_counter() - start
            used = resource.getrusage(resource.RUSAGE_SELF)
            numbers = {"seconds": seconds, "cpu": used.ru_utime + used.ru_stime, "peak_mib": used.ru_maxrss / 1024}
            os.write(writer, json.dumps(numbers).encode())
            code = 0
        finally:
            os._exit(code)
    os.close(writer)
    with os.fdopen(reader) as stream:
        text = stream.read()
    _, status = os.waitpid(child, 0)
    if status != 0:
        raise RuntimeError("a measured process failed, see above")
    measured: dict[str, float] = json.loads(text)
    return measured


def environment(kind: str, endpoint: str) -> None:
    """What a Job's pod would have."""
    if kind == "hub":
        os.environ |= {"HF_ENDPOINT": endpoint, "HF_TOKEN": TOKEN, "HF_HUB_DISABLE_XET": "1"}
        os.environ |= {"HF_HUB_DISABLE_PROGRESS_BARS": "1", "HF_HUB_DISABLE_TELEMETRY": "1"}
    else:
        os.environ |= {"AWS_ENDPOINT_URL": endpoint, "AWS_ACCESS_KEY_ID": ACCESS_KEY}
        os.environ |= {"AWS_SECRET_ACCESS_KEY": SECRET_KEY, "AWS_REGION": "us-east-1"}


def plain(kind: str, endpoint: str, names: list[str], target: Path) -> None:
    """The floor: the client library as anybody would call it, one client for each adapter, as in Jobs."""
    environment(kind, endpoint)
    if kind == "hub":
        os.environ["HF_HOME"] = str(target / "home")
        from huggingface_hub import snapshot_download

        for name in names:
            snapshot_download(f"acme/{name}", local_dir=target / name)
        return
    import boto3

    for name in names:
        client = boto3.session.Session().client("s3")
        (target / name).mkdir(parents=True)
        for entry in client.list_objects_v2(Bucket="acme", Prefix=f"{name}/")["Contents"]:
            client.download_file("acme", entry["Key"], str(target / entry["Key"]))


def staged(kind: str, endpoint: str, names: list[str], target: Path, service: str = "u1") -> None:
    """What Jobs do, one after the other in this process."""
    environment(kind, endpoint)
    from api.jobs import StageSpec, SyncSpec
    from disk.job import run_stage, run_sync

    about: dict[str, Any] = {"namespace": "n", "service": "s", "service_uid": service, "disk": str(target)}
    assert run_sync(SyncSpec(**about, generation=1, sync_key="k", declared=names)).ok
    for name in names:
        spec = StageSpec(
            **about,
            artifact=name,
            artifact_uid=name,
            path=name,
            source_uri=f"{'hf' if kind == 'hub' else 's3'}://acme/{name}",
            model_id=f"acme/{name}",
            stage_key=f"{service}-{name}",
            max_rank=64,
            declared_rank=16,
        )
        with contextlib.redirect_stdout(open(os.devnull, "w")):
            result = run_stage(spec)
        assert result.reason == "AdapterStaged", result


def compare(kind: str, endpoint: str, names: list[str], folder: Path, *, size: int, rounds: int) -> dict[str, Any]:
    """Measure floor and staging in turns; ratios of the best of each."""
    floors: list[dict[str, float]] = []
    ours: list[dict[str, float]] = []
    for number in range(rounds):
        for action, found in ((plain, floors), (staged, ours)):
            target = folder / f"{action.__name__}{number}"
            target.mkdir()
            found.append(measured(lambda: action(kind, endpoint, names, target)))  # noqa: B023 - runs at once
            shutil.rmtree(target)
    floor, our = (min(found, key=lambda one: one["seconds"]) for found in (floors, ours))
    total = size * len(names)
    return {
        "floor_mib_per_second": total / floor["seconds"] / (1 << 20),
        "staging_mib_per_second": total / our["seconds"] / (1 << 20),
        "throughput_ratio": floor["seconds"] / our["seconds"],
        "cpu_ratio": our["cpu"] / floor["cpu"],
        "peak_mib": max(one["peak_mib"] for one in ours),
        "floor_peak_mib": max(one["peak_mib"] for one in floors),
    }


def stored(endpoint: str, folder: Path) -> dict[str, float]:
    """Staging of a content that the store has, for one service after another."""
    os.environ.clear()
    target = folder / "stored"
    target.mkdir()
    staged("hub", endpoint, ["big"], target)
    times = []
    for number in range(20):
        start = time.perf_counter()
        staged("hub", endpoint, ["big"], target, f"service{number}")
        times.append((time.perf_counter() - start) * 1000)
    shutil.rmtree(target)
    return {"median_ms": statistics.median(times), "worst_ms": max(times)}


def preflight(folder: Path) -> dict[str, float]:
    """Preflight of an adapter with 2 GiB of weights (a hole: the header and 1 % of the data are read)."""
    from disk.findings import Limits
    from disk.preflight import check_weights
    from disk.weights import inspect_adapter, read_config, read_weights

    target = folder / "preflight"
    write_adapter(target, 1 << 20, 0)
    tensors = {
        f"base_model.model.model.layers.{number}.{module}.lora_{side}.weight": (64, 4096) if side == "A" else (4096, 64)
        for number in range(128)
        for module in ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj", "extra_proj")
        for side in "AB"
    }
    raw = header(tensors)
    with (target / "adapter_model.safetensors").open("wb") as stream:
        stream.write(raw)
        stream.truncate(len(raw) + len(tensors) * 4 * 64 * 4096)
    times, used = [], []
    for _ in range(20):
        start, before = time.perf_counter(), time.process_time()
        assert inspect_adapter(target, Limits(64, 64)).failure is None
        times.append((time.perf_counter() - start) * 1000)
        used.append((time.process_time() - before) * 1000)  # what it costs when others have the machine, too
    headers = []
    for _ in range(20):
        start = time.perf_counter()
        weights = read_weights(target / "adapter_model.safetensors")
        config = read_config(target / "adapter_config.json")
        assert check_weights(weights, config, Limits(64, 64), None).failure is None
        headers.append((time.perf_counter() - start) * 1000)
    size = (target / "adapter_model.safetensors").stat().st_size
    shutil.rmtree(target)
    return {
        "gib": size / GIB,
        "median_ms": statistics.median(times),
        "worst_ms": max(times),
        "worst_cpu_ms": max(used),
        "header_only_median_ms": statistics.median(headers),
    }


def main() -> None:
    """Run all of it."""
    parser = argparse.ArgumentParser(description=__doc__)
    memory = Path("/dev/shm")
    parser.add_argument("--folder", type=Path, default=memory if os.access(memory, os.W_OK) else None)
    parser.add_argument("--mib", type=int, default=1024, help="size of the big adapter")
    parser.add_argument("--small", type=int, default=200, help="number of small adapters")
    parser.add_argument("--rounds", type=int, default=2, help="measurements of each; the best counts")
    parser.add_argument("--output", type=Path, default=ROOT / "build" / "bench" / "disk.json")
    options = parser.parse_args()
    results: dict[str, Any] = {"folder": str(options.folder), "cpus": os.cpu_count()}
    folder = Path(tempfile.mkdtemp(prefix="aim-bench-", dir=options.folder))
    kept = dict(os.environ)
    try:
        root = folder / "source"
        write_adapter(root / "acme" / "big", options.mib << 20, 0)
        small = [f"small{number}" for number in range(options.small)]
        for number, name in enumerate(small):
            write_adapter(root / "acme" / name, 64 << 10, number)
        for kind in ("hub", "s3"):
            with source(kind, root) as endpoint:
                results[f"{kind} 1 adapter of {options.mib} MiB"] = compare(
                    kind, endpoint, ["big"], folder, size=options.mib << 20, rounds=options.rounds
                )
                results[f"{kind} {options.small} adapters of 64 KiB"] = compare(
                    kind, endpoint, small, folder, size=64 << 10, rounds=options.rounds
                )
                if kind == "hub":
                    results["staging a stored adapter for another service"] = stored(endpoint, folder)
            os.environ |= kept
        results["preflight"] = preflight(folder)
    finally:
        shutil.rmtree(folder)
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(json.dumps(results, indent=2))
    for name, value in results.items():
        numbers = value if isinstance(value, dict) else {"": value}
        shown = "  ".join(f"{key} {one:.2f}" if isinstance(one, float) else f"{one}" for key, one in numbers.items())
        print(f"{name:50s} {shown}")


if __name__ == "__main__":
    main()
