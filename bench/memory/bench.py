"""Memory of the caches: 1,000 objects of the greatest admitted size, and objects far beyond it.

Prints resident memory and what the caches count. Everything runs in this process; no cluster is needed.
"""

from __future__ import annotations

import argparse
import gc
import json
import logging
import os
import time
from pathlib import Path
from typing import Any, cast

import orjson

from api import words
from api.kinds import AIM_PROFILE, AIM_SERVICE
from api.view import JsonObject
from kube import reading
from kube.budget import CacheBudget
from kube.informer import Informer

OUT = Path(__file__).parents[2] / "build" / "bench" / "memory.json"
BEYOND = 1_480_000  # bytes of an object that fills what the API server accepts


def resident() -> int:
    """Return the resident memory of this process in bytes."""
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def largest(number: int) -> JsonObject:
    """An AIMService near the bound of a spec, in the shape that takes the most memory when parsed: empty objects."""
    args: list[JsonObject] = [{} for _ in range(21_000)]  # 63 KB as JSON
    env = [{"name": f"V{at}", "value": "x" * 650} for at in range(256)]
    spec = {"profile": {"name": "p"}, "env": env, "profileOverrides": {"engineArgs": {"x": args}}}
    return {"metadata": {"name": f"s{number}", "namespace": "ns", "resourceVersion": str(number + 1)}, "spec": spec}


def beyond(number: int) -> bytes:
    """An AIMProfile as the API server sends it, far beyond the bound."""
    args = b",".join([b"{}"] * (BEYOND // 3))
    head = b'{"kind":"AIMProfile","metadata":{"name":"p%d","resourceVersion":"%d"},"spec":{"engineArgs":{"x":['
    return head % (number, number + 1) + args + b"]}}}"


def measure(kind: Any, make: Any, count: int, budget: CacheBudget) -> dict[str, Any]:
    """Take objects in as a list does; return the growth of memory and the cost of each."""
    informer = Informer(cast("Any", None), kind, budget=budget)
    before, began = resident(), time.process_time()
    most = size = 0
    for number in range(count):
        made = make(number)
        text = made if isinstance(made, bytes) else orjson.dumps(made)
        size += len(text)
        informer.store(reading.read_object(text))
        if number % 20 == 0:
            most = max(most, int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE"))
    cpu = (time.process_time() - began) / count
    return {
        "objects": count,
        "json": size,
        "grown": resident() - before,
        "peak": most - before,
        "counted": informer.cache.weight,
        "left_out": len(informer.skipped),
        "cpu_ms": cpu * 1000,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--objects", type=int, default=1_000)
    parser.add_argument("--out", type=Path, default=OUT)
    given = parser.parse_args()
    logging.disable(logging.WARNING)  # a line for each object that is left out
    measure(AIM_SERVICE, largest, 3, CacheBudget())  # what is allocated once
    runs = {
        "greatest admitted size": measure(AIM_SERVICE, largest, given.objects, CacheBudget()),
        "the same, cacheBudget 100Mi": measure(AIM_SERVICE, largest, given.objects, CacheBudget(100 * 2**20)),
        "1.48 MB each": measure(AIM_PROFILE, beyond, 9, CacheBudget()),
    }
    for name, run in runs.items():
        sizes = ", ".join(f"{key} {words.size(run[key])}" for key in ("json", "grown", "peak", "counted"))
        print(
            f"{name}: {run['objects']} objects, {sizes}, left out {run['left_out']}, {run['cpu_ms']:.1f} ms of CPU each"
        )
    given.out.parent.mkdir(parents=True, exist_ok=True)
    given.out.write_text(json.dumps(runs, indent=1))


if __name__ == "__main__":
    main()
