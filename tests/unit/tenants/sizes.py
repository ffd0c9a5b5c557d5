"""Objects at their bounds and beyond: one for each field of each kind, made of the schemas."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from api import bounds
from api.kinds import Kind
from api.schema import object_schema
from rules.examples import NAMESPACE

Path = tuple[str, ...]
_HEADROOM = 1024  # of the whole spec, for what is required beside the field


@dataclass(frozen=True, slots=True)
class Sized:
    """An object whose one field is as large as it may be (`times` 1), half as large, or too large (2)."""

    kind: Kind
    field: str
    obj: dict[str, Any]


def fields(kind: Kind) -> Iterator[tuple[Path, dict[str, Any]]]:
    """Yield the path and schema of each list, map, string and free-form field of a spec."""
    left: list[tuple[Path, dict[str, Any]]] = [((), object_schema(kind)["properties"]["spec"])]
    while left:
        path, node = left.pop()
        if path and (node.keys() & {"maxItems", "maxLength", "maxProperties"}):
            yield path, node
        for name, child in node.get("properties", {}).items():
            left.append(((*path, name), child))
        for word in ("items", "additionalProperties"):
            if word in node:
                left.append(((*path, "[]"), node[word]))


def sized(kind: Kind, times: float) -> Iterator[Sized]:
    """Yield one object for each field: at its bound times `times`, but never beyond the bound of the whole spec."""
    spec_schema = object_schema(kind)["properties"]["spec"]
    for path, _ in fields(kind):
        spec = _value(spec_schema, (), path, times)
        metadata = {"name": "large", "uid": "u", **({"namespace": NAMESPACE} if kind.namespaced else {})}
        obj = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata, "spec": spec}
        yield Sized(kind, ".".join(path).replace(".[]", "[]"), obj)


def _value(node: dict[str, Any], here: Path, target: Path, times: float) -> Any:
    """Return the smallest value of a schema in which the target is as large as asked."""
    if here == target:
        return _large(node, here, times)
    leads = here == target[: len(here)]
    if node.get("x-kubernetes-preserve-unknown-fields"):
        return {}
    if "properties" in node:
        wanted = {*node.get("required", ())} | ({target[len(here)]} if leads and len(target) > len(here) else set())
        return {
            name: _value(child, (*here, name), target, times)
            for name, child in node["properties"].items()
            if name in wanted
        }
    if node.get("type") == "array":
        return [_value(node["items"], (*here, "[]"), target, times)] if leads else []
    if "additionalProperties" in node:
        return {"a": _value(node["additionalProperties"], (*here, "[]"), target, times)} if leads else {}
    return _small(node)


def _small(node: dict[str, Any]) -> Any:
    if "enum" in node:
        return node["enum"][0]
    if node.get("type") in ("integer", "number"):
        return node.get("minimum", 1)
    if node.get("type") == "boolean":
        return True
    if node.get("x-kubernetes-int-or-string"):
        return "1Gi"
    pattern = node.get("pattern", "")
    return "hf://acme/model" if "hf" in pattern else "https://s3.test" if "http" in pattern else "acme/model"


def _large(node: dict[str, Any], path: Path, times: float) -> Any:
    if node.get("x-kubernetes-preserve-unknown-fields"):
        count = int(times * bounds.MOST_FREE_FORM_BYTES) // 16
        return {f"key-{index:06}": [] for index in range(max(1, count - 8))}
    if node.get("type") == "array":
        most = node["maxItems"] if times <= 1 else bounds.of_entries(path).most  # some schemas allow one entry only
        return [_entry(node["items"], index) for index in range(int(most * times))]
    if "additionalProperties" in node:
        return {f"NAME_{index}": "1" for index in range(int(node["maxProperties"] * times))}
    start = str(_small(node))
    most = int(node["maxLength"] * times)
    return start + "x" * (most - len(start))


def _entry(node: dict[str, Any], index: int) -> Any:
    """Return an entry that differs from the others of its list."""
    if "properties" not in node:
        return _small(node) if "enum" in node else f"acme/model-{index}"
    entry = {
        name: _value(child, (name,), ("?",), 1)
        for name, child in node["properties"].items()
        if name in node.get("required", ())
    }
    for key in ("name", "sourceUri"):
        if key in node["properties"]:
            entry[key] = f"hf://acme/model-{index}" if key == "sourceUri" else f"NAME_{index}"
    return entry
