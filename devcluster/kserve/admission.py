"""What the two webhooks say: defaults written into an InferenceService, and refusals. Pure."""

from __future__ import annotations

import copy
import re
from typing import Any

from api.view import JsonObject
from devcluster.kserve.quantity import canonical
from devcluster.kserve.words import (
    ANNOTATION_AUTOSCALER,
    ANNOTATION_MODE,
    AUTOSCALERS,
    CONTAINER,
    KNATIVE,
    OLD_STANDARD,
    STANDARD,
    Settings,
    annotations_of,
    predictor_of,
)

_NAME = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_RESOURCES = {"cpu": "1", "memory": "2Gi"}
_FORBIDDEN_ENV = "PYTHONPATH"
_PROTOCOLS = ("v1", "v2")


class PanicError(Exception):
    """The real webhook crashes on this object; the message is what its caller sees."""


def default(isvc: JsonObject, settings: Settings) -> JsonObject:
    """Return a copy with all that the mutating webhook writes; the same again for its own result.

    Raises: PanicError for a predictor without containers.
    """
    out = copy.deepcopy(isvc)
    _default_mode(out, settings)
    predictor = predictor_of(out)
    containers = predictor.get("containers") or []
    if not containers:
        raise PanicError("panic: runtime error: index out of range [0] with length 0 [recovered]")
    if len(containers) == 1:
        containers[0]["name"] = CONTAINER
    _write_quantities(predictor)
    resources = containers[0].setdefault("resources", {})
    for kind in ("limits", "requests"):
        amounts = resources.setdefault(kind, {})
        for name, amount in _RESOURCES.items():
            amounts.setdefault(name, amount)
    if settings.no_service_account_token:
        predictor.setdefault("automountServiceAccountToken", False)
    return out


def _default_mode(isvc: JsonObject, settings: Settings) -> None:
    mode = annotations_of(isvc).get(ANNOTATION_MODE)
    if mode == OLD_STANDARD or (mode is None and settings.default_mode == STANDARD):
        meta = isvc.setdefault("metadata", {})
        meta["annotations"] = {**annotations_of(isvc), ANNOTATION_MODE: STANDARD}


def _write_quantities(predictor: JsonObject) -> None:
    """Put every quantity of the pod spec into canonical form."""
    for group in ("containers", "initContainers"):
        for container in predictor.get(group) or []:
            for amounts in (container.get("resources") or {}).values():
                if isinstance(amounts, dict):
                    amounts.update({name: canonical(amount) for name, amount in amounts.items()})
    for volume in predictor.get("volumes") or []:
        folder = volume.get("emptyDir")
        if isinstance(folder, dict) and "sizeLimit" in folder:
            folder["sizeLimit"] = canonical(folder["sizeLimit"])


def refusal(new: JsonObject, old: JsonObject | None, settings: Settings) -> str | None:
    """Return why the validating webhook refuses `new`, None when it does not. `old` is None on creation."""
    checks = (_bad_name, _bad_scale, _bad_env, _bad_autoscaler, _bad_strategy)
    for check in checks:
        problem = check(new, settings)
        if problem:
            return problem
    return _mode_changed(new, old) if old else None


def _bad_name(isvc: JsonObject, _: Settings) -> str | None:
    name = str(isvc["metadata"].get("name", ""))
    if _NAME.fullmatch(name):
        return None
    return f"the name {name!r} of the InferenceService does not match {_NAME.pattern!r}"


def _bad_scale(isvc: JsonObject, _: Settings) -> str | None:
    predictor = predictor_of(isvc)
    low, high = predictor.get("minReplicas"), predictor.get("maxReplicas") or 0
    if (low or 0) < 0:
        return "minReplicas cannot be less than 0"
    if high < 0:
        return "maxReplicas cannot be less than 0"
    if low is not None and high and low > high:
        return "minReplicas cannot be greater than maxReplicas"
    return None


def _bad_env(isvc: JsonObject, _: Settings) -> str | None:
    for container in predictor_of(isvc).get("containers") or []:
        for entry in container.get("env") or []:
            name, value = entry.get("name"), entry.get("value", "")
            if name == _FORBIDDEN_ENV:
                return f"environment variable {name} is not allowed in container {container.get('name')}"
            if name == "PROTOCOL" and value and value not in _PROTOCOLS:
                return f"protocol {value!r} is not supported by a custom predictor"
    return None


def _bad_autoscaler(isvc: JsonObject, _: Settings) -> str | None:
    value = annotations_of(isvc).get(ANNOTATION_AUTOSCALER)
    if value is None or value in AUTOSCALERS:
        return None
    return f"[{value}] is not a supported autoscaler class: one of {', '.join(AUTOSCALERS)}"


def _bad_strategy(isvc: JsonObject, settings: Settings) -> str | None:
    mode = annotations_of(isvc).get(ANNOTATION_MODE)
    knative = mode != STANDARD if mode else settings.default_mode == KNATIVE
    if predictor_of(isvc).get("deploymentStrategy") and knative:
        return "customizing deploymentStrategy is only supported for raw deployment mode"
    return None


def _mode_changed(new: JsonObject, old: JsonObject) -> str | None:
    """Compare with the mode that the controller recorded: it holds, whatever the annotation says later."""
    recorded: Any = (old.get("status") or {}).get("deploymentMode")
    wanted = annotations_of(new).get(ANNOTATION_MODE)
    if not recorded or wanted is None or wanted == recorded:
        return None
    return f"update rejected: deploymentMode cannot be changed from '{recorded}' to '{wanted}'"


def patch_of(old: Any, new: Any, path: str = "") -> list[JsonObject]:
    """Return the RFC 6902 operations that lead from `old` to `new` (objects key by key, lists as a whole)."""
    if isinstance(old, dict) and isinstance(new, dict):
        operations: list[JsonObject] = []
        for key in sorted(old.keys() | new.keys()):
            where = f"{path}/{key.replace('~', '~0').replace('/', '~1')}"
            if key not in new:
                operations.append({"op": "remove", "path": where})
            elif key not in old:
                operations.append({"op": "add", "path": where, "value": new[key]})
            else:
                operations += patch_of(old[key], new[key], where)
        return operations
    if isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        return [op for i, (a, b) in enumerate(zip(old, new, strict=True)) for op in patch_of(a, b, f"{path}/{i}")]
    return [] if old == new else [{"op": "replace", "path": path, "value": new}]
