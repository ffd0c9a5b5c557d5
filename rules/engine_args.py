"""Arguments of the engine, and those that disable LoRA, so that staged adapters are never loaded."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from api import view
from api.view import Json
from rules.seen import ServiceSeen

ENGINE_ARGS = "AIM_ENGINE_ARGS"
_ON, _OFF = "enable-lora", "no-enable-lora"
_NO = frozenset({"false", "0", "no", "off"})


def switches_adapters_off(seen: ServiceSeen) -> tuple[str, str] | None:
    """Return the field and the argument that disable LoRA in the engine, None if none does.

    A later layer wins: profile, profileOverrides, the service's AIM_ENGINE_ARGS.
    Source: docs/contract.md, Predictor environment.
    """
    given: dict[str, tuple[str, str, Any]] = {}
    for field, args in _layers(seen):
        for key, value in args.items():
            if "lora" in key and value is not None:
                given[key.lstrip("-").replace("_", "-")] = (field, key, value)
    if _OFF in given and not _is_no(given[_OFF][2]):
        return given[_OFF][:2]
    if _ON in given and _is_no(given[_ON][2]):
        return given[_ON][:2]
    return None


def _layers(seen: ServiceSeen) -> Iterable[tuple[str, Json]]:
    yield "spec.profile.name", view.mapping(seen.profile, "spec", "engineArgs")
    if "profileOverrides" in seen.spec:
        yield "spec.profileOverrides.engineArgs", view.mapping(seen.spec, "profileOverrides", "engineArgs")
    if ENGINE_ARGS in seen.env:
        index = seen.env.index(ENGINE_ARGS)
        yield (
            f"spec.env[{index}].value",
            parse_engine_args(view.text(view.items(seen.spec, "env")[index], "value") or "") or {},
        )


def parse_engine_args(value: str) -> dict[str, Any] | None:
    """Return the JSON object in a value of AIM_ENGINE_ARGS, None if it is not one."""
    try:
        parsed = json.loads(value)
    except (ValueError, RecursionError):
        return None
    return parsed if isinstance(parsed, dict) else None


def _is_no(value: object) -> bool:
    return str(value).lower() in _NO
