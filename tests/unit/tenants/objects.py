"""Random objects at their bounds and beyond, of every kind: `objects(kind, rng)`. One seed gives the same object."""

from __future__ import annotations

import json
import re
from functools import cache
from random import Random
from typing import Any

from api.kinds import Kind
from api.schema import object_schema
from rules.examples import NAMESPACE, manifest

_TEXTS = (
    "",
    "acme/model",
    "hf://acme/model@main",
    "s3://bucket/a/",
    "\x1b[31mred\x1b[0m",
    "::error::a line\nof another",
    "a\r\n\tb\x00",
    "\u202eleft\u200b\ufeff",
    "\U0001f600" * 9,
    "é̀" * 20,
    "$(AWS_SECRET_ACCESS_KEY)",
    "../..",
    "<script>",
    "True",
    "1e999",
    "*a*a*a*b",
)
_NUMBERS = (0, -1, 1, 16, 2**31, -(2**63), 2**64 - 1, 1e308, -0.0, 0.1)
_SIZES = (0, 1, 2, 15, 16, 17, 63, 64, 65, 255, 256, 257)
_LENGTHS = (252, 253, 254, 1024, 1025, 4096, 4097, 32_768, 32_769, 70_000)
_DEPTHS = (1, 31, 32, 33, 100, 240)


def objects(kind: Kind, rng: Random) -> dict[str, Any]:
    """Return one object of a kind: mostly of the right shape, with fields that are too large or of another type."""
    schema = _schema(kind)["properties"]
    metadata: dict[str, Any] = {
        "name": f"fuzz-{rng.randrange(10**6)}",
        "uid": str(rng.randrange(10**9)),
        "generation": 1,
    }
    if kind.namespaced:
        metadata["namespace"] = NAMESPACE
    if rng.random() < 0.3:
        metadata["labels"] = {f"label-{i}": rng.choice(_TEXTS) for i in range(rng.choice(_SIZES))}
    if rng.random() < 0.2:
        metadata["annotations"] = {"aim.eai.amd.com/retry-staging": _text(rng)}
    obj = {
        "apiVersion": kind.api_version,
        "kind": kind.kind,
        "metadata": metadata,
        "spec": _any_of(schema["spec"], rng, 0),
    }
    if rng.random() < 0.6:
        obj["status"] = _any_of(schema["status"], rng, 0)
    if rng.random() < 0.05:
        obj["spec" if rng.random() < 0.5 else "status"] = junk(rng)
    return obj


def storable(kind: Kind, rng: Random) -> dict[str, Any]:
    """Return an object that the schemas mostly admit: a plain one with some fields at their bounds, deep or strange."""
    obj = manifest(kind.kind, {})
    properties = _schema(kind)["properties"]["spec"]["properties"]
    spec = dict(obj["spec"])
    for name in rng.sample(sorted(properties), min(len(properties), rng.choice((1, 1, 2, 3)))):
        value = _admitted(properties[name], rng)
        if value is not _NOTHING:
            spec[name] = value
    return {**obj, "spec": spec}


_NOTHING = object()


def _admitted(node: dict[str, Any], rng: Random) -> Any:
    """Return a value that a schema admits, `_NOTHING` where none is known."""
    if node.get("x-kubernetes-preserve-unknown-fields"):
        value = junk(rng)
        return value if node.get("type") != "object" or isinstance(value, dict) else {"a": value}
    if "properties" in node:
        required = node.get("required", ())
        chosen = {name: _admitted(child, rng) for name, child in node["properties"].items() if name in required}
        if _NOTHING in chosen.values():
            return _NOTHING
        for name in rng.sample(sorted(node["properties"]), min(len(node["properties"]), 2)):
            value = _admitted(node["properties"][name], rng)
            chosen |= {} if value is _NOTHING else {name: value}
        return chosen
    if node.get("type") == "array":
        most = node.get("maxItems", 4)
        keys = node.get("x-kubernetes-list-map-keys", ())
        entries = [_admitted(node["items"], rng) for _ in range(rng.choice((1, 2, min(most, 256))))]
        entries = [entry for entry in entries if entry is not _NOTHING]
        unique = {json.dumps([entry.get(key) for key in keys] if keys else entry): entry for entry in entries}
        return list(unique.values()) if keys or node.get("x-kubernetes-list-type") == "set" else entries
    if "additionalProperties" in node:
        value = _admitted(node["additionalProperties"], rng)
        return (
            {f"KEY_{i}": value for i in range(min(node.get("maxProperties", 4), 64))} if value is not _NOTHING else {}
        )
    if "enum" in node:
        return rng.choice(node["enum"])
    if node.get("type") == "boolean":
        return rng.random() < 0.5
    if node.get("type") in ("integer", "number"):
        return rng.choice((node.get("minimum", 0), node.get("maximum", 2**31 - 1)))
    texts = [*_TEXTS, "x" * node.get("maxLength", 64), "a", "medical", "hf://Qwen/Qwen3-8B", "Qwen/Qwen3-8B", "50Gi"]
    rng.shuffle(texts)
    pattern, least, most = node.get("pattern", ""), node.get("minLength", 0), node.get("maxLength", 64)
    return next((text for text in texts if least <= len(text) <= most and re.search(pattern, text)), _NOTHING)


def junk(rng: Random) -> Any:
    """Return a value of any type."""
    choice = rng.randrange(7)
    if choice == 0:
        return nested(rng.choice(_DEPTHS), rng)
    if choice == 1:
        return [rng.choice((*_TEXTS, *_NUMBERS, None)) for _ in range(rng.choice(_SIZES))]
    if choice == 2:
        return {f"{rng.choice(_TEXTS)}{i}": rng.choice(_NUMBERS) for i in range(rng.choice(_SIZES))}
    if choice == 3:
        return _text(rng)
    return rng.choice((*_NUMBERS, None, True, False, [], {}))


def nested(levels: int, rng: Random) -> Any:
    """Return lists and objects in each other."""
    value: Any = _text(rng)
    for _ in range(levels):
        value = [value] if rng.random() < 0.3 else {"a": value}
    return value


def _text(rng: Random) -> str:
    return rng.choice(_TEXTS) if rng.random() < 0.8 else "x" * rng.choice(_LENGTHS)


@cache
def _schema(kind: Kind) -> dict[str, Any]:
    return object_schema(kind)


def _any_of(node: dict[str, Any], rng: Random, depth: int) -> Any:
    """Return a value for a schema, of another type now and then."""
    if rng.random() < 0.03 or node.get("x-kubernetes-preserve-unknown-fields"):
        return junk(rng)
    if "properties" in node:
        often = 0.7 if depth < 2 else 0.5
        chosen = {
            name: _any_of(child, rng, depth + 1)
            for name, child in node["properties"].items()
            if name in node.get("required", ()) or rng.random() < often
        }
        if rng.random() < 0.03:
            chosen[rng.choice(_TEXTS)] = junk(rng)
        return chosen
    if node.get("type") == "array":
        count = rng.choice(_SIZES) if rng.random() < 0.15 else rng.randrange(4)
        return [_any_of(node["items"], rng, depth + 1) for _ in range(count)]
    if "additionalProperties" in node:
        return {f"KEY_{i}": _any_of(node["additionalProperties"], rng, depth + 1) for i in range(rng.randrange(4))}
    if "enum" in node:
        return rng.choice(node["enum"])
    if node.get("type") == "boolean":
        return rng.random() < 0.5
    if node.get("type") in ("integer", "number"):
        return rng.choice(_NUMBERS)
    if rng.random() < 0.4:
        return rng.choice(("medical", "qwen3-8b", "qwen3-8b-mi300x", "default", "hf://Qwen/Qwen3-8B", "50Gi"))
    return _text(rng)
