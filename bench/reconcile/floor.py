"""The floor: a bare client that makes the same calls with the same objects as fast as it can, without any reason."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from api.kinds import AIM_SERVICE, CONFIG_MAP, INFERENCE_SERVICE, JOB, Kind
from api.view import Json, mapping, name_of
from bench.reconcile.surroundings import NAMESPACE, create_services, fan, namespace, service_name
from reconcile.client import Client

_PLACE_SUFFIX = "-floor"


async def measure(client: Client, place: str, count: int, per_service: dict[str, float]) -> dict[str, float]:
    """Repeat our own calls for `count` services in another namespace; returns seconds, CPU seconds, calls.

    Args: `per_service`: our calls by `verb kind`. Jobs are suspended, so that no pod follows.
    """
    floor = place + _PLACE_SUFFIX
    await client.create(NAMESPACE, namespace(floor))
    await create_services(client, floor, range(count), 0)
    made, _ = await client.list_all(INFERENCE_SERVICE, place)
    jobs, _ = await client.list_all(JOB, place)
    maps, _ = await client.list_all(CONFIG_MAP, place, label_selector="app.kubernetes.io/managed-by")
    status = mapping((await client.get(AIM_SERVICE, place, service_name(0))), "status")
    samples: dict[str, tuple[Kind, Json]] = {"apply inferenceservices": (INFERENCE_SERVICE, made[0])}
    if jobs:
        samples["create jobs"] = (JOB, jobs[0])
    if maps:
        samples["apply configmaps"] = (CONFIG_MAP, maps[0])
    templates = {key: (kind, _bare(obj, floor)) for key, (kind, obj) in samples.items()}
    repeats = {key: round(number) for key, number in per_service.items() if round(number)}
    calls = 0

    async def one(index: int) -> None:
        nonlocal calls
        for key, (kind, template) in templates.items():
            for turn in range(repeats.get(key, 0)):
                obj = template | {"metadata": template["metadata"] | {"name": f"{service_name(index)}-{turn}"}}
                await (client.create(kind, obj) if key.startswith("create") else client.apply(kind, obj))
                calls += 1
        for turn in range(repeats.get("patch aimservices", 0)):
            patch = {"status": dict(status) | {"lastRestage": str(turn)}}
            await client.patch_status(AIM_SERVICE, floor, service_name(index), patch)
            calls += 1
        for turn in range(repeats.get("delete jobs", 0)):
            await client.delete(JOB, floor, f"{service_name(index)}-{turn}")
            calls += 1

    begun, spent = time.monotonic(), time.process_time()
    await fan([lambda index=index: one(index) for index in range(count)])  # type: ignore[misc]
    took = {"seconds": time.monotonic() - begun, "cpu_s": time.process_time() - spent, "calls": calls}
    await asyncio.sleep(0)
    return took


def _bare(obj: Json, place: str) -> dict[str, Any]:
    """Return the object as it was sent, near enough: without what the server adds, in another namespace."""
    kept = {key: value for key, value in obj.items() if key not in ("status", "metadata")}
    metadata = mapping(obj, "metadata")
    kept["metadata"] = {key: metadata[key] for key in ("labels", "annotations") if key in metadata}
    kept["metadata"] |= {"name": name_of(obj), "namespace": place}
    if obj.get("kind") == "Job":
        spec = {key: value for key, value in mapping(obj, "spec").items() if key not in ("selector", "manualSelector")}
        template = dict(mapping(spec, "template"))
        template["metadata"] = {"labels": {"app": "floor"}}
        kept["spec"] = spec | {"suspend": True, "template": template}
        kept["metadata"].pop("labels", None)
    return kept
