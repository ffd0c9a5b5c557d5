"""Environment and resources of the model server's container. Pure.

Source: docs/contract.md, Container, Predictor environment.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

from api import view
from api.accelerators import gpu_resource
from api.quantity import parse_quantity
from api.view import Json
from reconcile.service.plan import Plan
from rules.engine_args import ENGINE_ARGS, parse_engine_args
from rules.environment import ADAPTER_ENV_PREFIX, merge_env


def environment(
    service: Json, plan: Plan, *, cache_root: str | None, adapters: Mapping[str, str]
) -> list[dict[str, Any]]:
    """Return env, one entry per name: profile < override < service < aim-adapters."""
    user = merge_env(plan.env, view.items(service, "spec", "env"))
    if adapters:  # all of them are set here then, also those that a mode leaves out
        user = {name: entry for name, entry in user.items() if not name.startswith(ADAPTER_ENV_PREFIX)}
    ours: dict[str, str | None] = {
        "AIM_CACHE_PATH": cache_root,
        "AIM_MODEL_ID": plan.model_id,
        "AIM_ID": "" if plan.model_id else plan.aim_id,
        "AIM_PROFILE_ID": plan.profile_id,
        "AIM_ENGINE": plan.engine,
        "AIM_METRIC": plan.metric,
        "AIM_PRECISION": plan.precision,
        ENGINE_ARGS: _engine_args(plan, user.get(ENGINE_ARGS)),
        **adapters,
    }
    entries = user | {name: {"name": name, "value": value} for name, value in ours.items() if value is not None}
    return ordered_env(list(entries.values()))


def _engine_args(plan: Plan, user: Mapping[str, Any] | None) -> str | None:
    """Merge the user's AIM_ENGINE_ARGS (a JSON object) deeply over the profile's; other text is kept."""
    merged: Any = dict(plan.engine_args)
    given = user.get("value") if user else None
    if isinstance(given, str):
        parsed = parse_engine_args(given)
        if parsed is None:
            return None
        merged = _deep_merge(merged, parsed)
    elif user is not None:
        return None
    return json.dumps(merged, sort_keys=True, separators=(",", ":")) if merged else None


def _deep_merge(under: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(under)
    for key, value in over.items():
        below = merged.get(key)
        merged[key] = _deep_merge(below, value) if isinstance(below, Mapping) and isinstance(value, Mapping) else value
    return merged


_REFERENCE = re.compile(r"\$\(([A-Za-z_.-][A-Za-z0-9_.-]*)\)")


def ordered_env(entries: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Sort env by name, an entry behind those that its `$(…)` names: the order never depends on who wrote what.

    Entries that name each other in a circle stay in the order of their names.
    """
    by_name = {entry["name"]: dict(entry) for entry in entries}
    ordered: dict[str, dict[str, Any]] = {}
    visiting: set[str] = set()
    for first in sorted(by_name):
        left = [first]
        while left:
            name = left[-1]
            if name not in visiting:
                visiting.add(name)
                left += [needed for needed in reversed(_named_in(by_name[name])) if _is_new(needed, by_name, visiting)]
            else:
                left.pop()
                ordered.setdefault(name, by_name[name])
    return list(ordered.values())


def _is_new(name: str, by_name: Mapping[str, object], visiting: set[str]) -> bool:
    return name in by_name and name not in visiting


def _named_in(entry: Mapping[str, Any]) -> list[str]:
    """Return the variables that the value of an entry names, sorted."""
    value = entry.get("value")
    return sorted(set(_REFERENCE.findall(value))) if isinstance(value, str) else []


def resources(service: Json, plan: Plan) -> dict[str, Any]:
    """Return requests and limits, all four of CPU and memory written, limit = max(limit, request).

    Source: docs/contract.md, KServe behaviour.
    """
    units = max(1, plan.gpus)
    requests: dict[str, Any] = {"cpu": str(4 * units), "memory": f"{32 * units}Gi"}
    limits: dict[str, Any] = {"cpu": str(4 * units), "memory": f"{48 * units}Gi"}
    for given in (plan.resources, view.mapping(service, "spec", "resources")):
        requests |= {key: value for key, value in view.mapping(given, "requests").items() if value is not None}
        limits |= {key: value for key, value in view.mapping(given, "limits").items() if value is not None}
    if plan.gpus:
        gpu = plan.gpu_resource or gpu_resource(plan.accelerator_vendor)
        requests[gpu] = limits[gpu] = str(plan.gpus)
    for name in ("cpu", "memory"):
        if _quantity(limits[name]) < _quantity(requests[name]):
            limits[name] = requests[name]
    return {
        "requests": {key: str(requests[key]) for key in sorted(requests)},
        "limits": {key: str(limits[key]) for key in sorted(limits)},
    }


def _quantity(value: object) -> Decimal:
    return parse_quantity(value) or Decimal(0)
