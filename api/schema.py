"""Structural schemas of the kinds, made from the models. Pure.

pydantic writes JSON schema with references; the API server wants a *structural* schema: no references, every property
typed, no `additionalProperties` beside `properties`. `structural` turns one into the other.
Source: Kubernetes documentation, "Extend the API with CustomResourceDefinitions", structural schemas.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from api import bounds, kinds
from api.kinds import Kind
from api.models import MODELS
from api.models.common import NOT_ACTED_ON

Schema = dict[str, Any]


def object_schema(kind: Kind) -> Schema:
    """Return the structural schema of a whole object of that kind, which is the same for each served version."""
    storage = next(known for known in kinds.AIM_KINDS if known.plural == kind.plural)
    source = MODELS[storage].model_json_schema(by_alias=True)
    schema = structural(source, source.get("$defs", {}))
    schema["properties"]["metadata"] = {"type": "object"}  # a CRD cannot restrict it further
    properties = schema["properties"]
    properties["spec"] = bounds.apply(properties["spec"])
    properties["status"] = _open(bounds.apply(_tolerant(properties["status"]), status=True))
    for word in ("apiVersion", "kind"):
        properties[word]["maxLength"] = bounds.MOST_NAME
    return schema


@cache
def status_fields(kind: Kind) -> frozenset[str]:
    """Return the fields of a kind's status that aim-adapters knows; others belong to other programs."""
    return frozenset(object_schema(kind)["properties"]["status"]["properties"])


def structural(node: Mapping[str, Any], defs: Mapping[str, Any]) -> Schema:
    """Turn pydantic's JSON schema into a structural one; pure, raises KeyError on a reference to nowhere."""
    node = _resolved(node, defs)
    out: Schema = {}
    if "description" in node:
        out["description"] = " ".join(str(node["description"]).split())
    if node.get(NOT_ACTED_ON):
        return out | {"nullable": True, "x-kubernetes-preserve-unknown-fields": True}
    for word in _KEPT_WORDS:
        if word in node and not (word == "default" and node[word] is None):
            out[word] = node[word]
    if "const" in node:
        out["enum"] = [node["const"]]
    if "items" in node:
        out["items"] = structural(node["items"], defs)
    if isinstance(node.get("additionalProperties"), Mapping):
        out["additionalProperties"] = structural(node["additionalProperties"], defs)
    elif node.get("type") == "object" and "properties" not in node:
        out["x-kubernetes-preserve-unknown-fields"] = True  # free-form JSON object
    if node.get("required"):
        out["required"] = sorted(node["required"])
    if "properties" in node:
        out["properties"] = {name: structural(child, defs) for name, child in node["properties"].items()}
    return out


_KEPT_WORDS = (
    "type",
    "format",
    "enum",
    "default",
    "minimum",
    "maximum",
    "minLength",
    "maxLength",
    "pattern",
    "minItems",
    "maxItems",
    "maxProperties",
    "x-kubernetes-int-or-string",
    "x-kubernetes-list-type",
    "x-kubernetes-list-map-keys",
    "x-kubernetes-map-type",
)


def _resolved(node: Mapping[str, Any], defs: Mapping[str, Any]) -> Mapping[str, Any]:
    """Follow references and unwrap `X | null`; keys beside either override what is found there."""
    while True:
        rest = {word: value for word, value in node.items() if word not in ("$ref", "anyOf")}
        if "$ref" in node:
            node = {**defs[node["$ref"].rpartition("/")[2]], **rest}
        elif (inner := _nullable(node)) is not None:
            node = {**_resolved(inner, defs), **rest}
        else:
            return node


def _nullable(node: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return X of `anyOf: [X, null]`, None for anything else."""
    choices = node.get("anyOf", [])
    others = [choice for choice in choices if choice != {"type": "null"}]
    return others[0] if len(others) == 1 < len(choices) else None


def _open(status: Schema) -> Schema:
    """Keep fields that aim-adapters does not know: other controllers, and backups of their objects, contain them."""
    out = dict(status)
    for word in ("items", "additionalProperties"):
        if isinstance(out.get(word), dict):
            out[word] = _open(out[word])
    if "properties" in out:
        out["properties"] = {name: _open(child) for name, child in out["properties"].items()}
        out["x-kubernetes-preserve-unknown-fields"] = True
        out = bounds.of_anything(out, status=True)
    return out


def _tolerant(status: Schema) -> Schema:
    """List a status's known words in its description and accept others, because other controllers write it, too."""
    out = {word: value for word, value in status.items() if word != "enum"}
    if "enum" in status:
        known = ", ".join(status["enum"])
        out["description"] = f"{status.get('description', '')} One of {known}.".strip()
    for word in ("items", "additionalProperties"):
        if isinstance(out.get(word), dict):
            out[word] = _tolerant(out[word])
    if "properties" in out:
        out["properties"] = {name: _tolerant(child) for name, child in out["properties"].items()}
    return out
