"""The plain manifests that rule examples are patches of, and the other objects around them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from typing import Any

import yaml

from api.kinds import (
    AIM_ARTIFACT,
    AIM_CLUSTER_MODEL,
    AIM_CLUSTER_PROFILE,
    AIM_CLUSTER_RUNTIME_CONFIG,
    AIM_CLUSTER_SERVICE_TEMPLATE,
    AIM_MODEL,
    AIM_PROFILE,
    AIM_PROFILE_CACHE,
    AIM_RUNTIME_CONFIG,
    AIM_SERVICE,
    AIM_SERVICE_TEMPLATE,
    AIM_TEMPLATE_CACHE,
    Kind,
)
from api.view import Json
from rules.registry import Basis, Example, Rule
from rules.seen import Context
from rules.validate import judge_stored, validate
from rules.verdict import Verdict
from rules.world import KIND_BY_NAME, address
from rules.worlds import SnapshotWorld

NAMESPACE = "team-llm"
_PLAIN = """
AIMService: {metadata: {name: chat}, spec: {profile: {name: qwen3-8b-mi300x}}}
AIMArtifact:
  metadata: {name: medical}
  spec:
    type: adapter
    modelId: acme/medical-lora
    sourceUri: 'hf://acme/medical-lora'
    compatibleWith: [Qwen/Qwen3-8B]
AIMRuntimeConfig: {metadata: {name: default}, spec: {}}
AIMClusterRuntimeConfig: {metadata: {name: default}, spec: {}}
AIMProfile: &profile
  metadata: {name: qwen3-8b-mi300x}
  spec:
    aimId: qwen/qwen3-8b
    modelId: Qwen/Qwen3-8B
    image: 'amdenterpriseai/aim-qwen-qwen3-8b:0.13.0'
    features: [adapters]
    acceleratorModel: MI300X
    modelSources: [{modelId: Qwen/Qwen3-8B, sourceUri: 'hf://Qwen/Qwen3-8B'}]
AIMClusterProfile: *profile
AIMProfileCache: {metadata: {name: qwen3-8b}, spec: {profileName: qwen3-8b-mi300x, profileScope: Cluster}}
AIMTemplateCache: {metadata: {name: qwen3-8b}, spec: {templateName: qwen3-8b-latency}}
AIMModel: &model {metadata: {name: qwen3-8b}, spec: {image: 'amdenterpriseai/aim-qwen-qwen3-8b:0.13.0'}}
AIMClusterModel: *model
AIMServiceTemplate: &template {metadata: {name: qwen3-8b-latency}, spec: {modelName: qwen3-8b, metric: latency}}
AIMClusterServiceTemplate: *template
"""
_SURROUNDINGS = """
- {kind: AIMClusterProfile, metadata: {name: qwen3-8b-mi300x}}
- {kind: AIMArtifact, metadata: {name: medical}}
- kind: AIMArtifact
  metadata: {name: legal}
  spec: {type: adapter, modelId: acme/legal-lora, sourceUri: 'hf://acme/legal-lora', compatibleWith: [Qwen/Qwen3-8B]}
- {kind: AIMArtifact, metadata: {name: qwen3-8b-base}, spec: {sourceUri: 'hf://Qwen/Qwen3-8B'}}
- {kind: AIMModel, metadata: {name: qwen3-8b}, spec: {modelSources: [{sourceUri: 'hf://Qwen/Qwen3-8B'}]}}
- {kind: AIMServiceTemplate, metadata: {name: qwen3-8b-latency}}
"""
_KINDS = (
    AIM_SERVICE,
    AIM_ARTIFACT,
    AIM_RUNTIME_CONFIG,
    AIM_CLUSTER_RUNTIME_CONFIG,
    AIM_PROFILE,
    AIM_CLUSTER_PROFILE,
    AIM_PROFILE_CACHE,
    AIM_TEMPLATE_CACHE,
    AIM_MODEL,
    AIM_CLUSTER_MODEL,
    AIM_SERVICE_TEMPLATE,
    AIM_CLUSTER_SERVICE_TEMPLATE,
)


class _Loader(yaml.SafeLoader):
    """Safe YAML with two tags for lists and maps of many entries.

    `!repeat {count: 3, name: a, …}`: a list of that many entries, their names numbered; `!keys {count: 3, name: a}`: a
    map with that many keys.
    """


def _repeat(loader: yaml.SafeLoader, node: yaml.Node) -> list[dict[str, Any]]:
    fields = loader.construct_mapping(node) if isinstance(node, yaml.MappingNode) else {}
    count = int(fields.pop("count", 0))
    return [
        {**{str(key): value for key, value in fields.items()}, "name": f"{fields['name']}-{i}"} for i in range(count)
    ]


def _keys(loader: yaml.SafeLoader, node: yaml.Node) -> dict[str, str]:
    return {entry["name"]: "" for entry in _repeat(loader, node)}


_Loader.add_constructor("!repeat", _repeat)
_Loader.add_constructor("!keys", _keys)


@cache
def parse(text: str) -> Any:
    """Parse the YAML of an example; the value is shared and must not be changed."""
    return yaml.load(text, Loader=_Loader)  # noqa: S506 - a subclass of the safe loader


@dataclass(frozen=True, slots=True)
class Scene:
    """An example in full."""

    new: dict[str, Any]
    old: dict[str, Any] | None
    world: SnapshotWorld
    version: str


def scene(kind: Kind, example: Example) -> Scene:
    """Return an example in full for a kind."""
    new = manifest(kind.kind, parse(example.new))
    old = None if example.old is None else manifest(kind.kind, parse(example.old))
    return Scene(new, old, surroundings(parse(example.world)), example.version or kind.version)


def surroundings(patches: Iterable[Any] = ()) -> SnapshotWorld:
    """Return the objects around the examples, with patches laid over objects of the same kind and name."""
    objects: dict[tuple[str, str, str], dict[str, Any]] = {}
    for patch in (*parse(_SURROUNDINGS), *patches):
        kind = KIND_BY_NAME[patch["kind"]]
        key = address(kind, NAMESPACE, patch["metadata"]["name"])
        under = objects.get(key)
        objects[key] = manifest(kind.kind, patch) if under is None else merge(under, patch)
    return SnapshotWorld(objects.values())


def manifest(kind_name: str, patch: Json) -> dict[str, Any]:
    """Return the plain manifest of a kind with a patch; under another name it has the kind and the namespace only."""
    plain = parse(_PLAIN)[kind_name]
    kind = KIND_BY_NAME[kind_name]
    name = (patch.get("metadata") or {}).get("name")
    body: dict[str, Any] = plain if name in (None, plain["metadata"]["name"]) else {"metadata": {}, "spec": {}}
    head: dict[str, Any] = {"apiVersion": kind.api_version, "kind": kind_name}
    if kind.namespaced:
        body = merge({"metadata": {"namespace": NAMESPACE}}, body)
    merged: dict[str, Any] = merge({**head, **body}, patch)
    return merged


def merge(under: Any, patch: Any) -> Any:
    """Lay a JSON merge patch (RFC 7386) over a value; neither is changed."""
    if not isinstance(patch, dict):
        return patch
    result = dict(under) if isinstance(under, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merge(result.get(key), value)
    return result


def kinds() -> tuple[Kind, ...]:
    """Return every kind that has a plain manifest."""
    return _KINDS


def judge_example(entry: Rule, example: Example, kind_name: str) -> Verdict:
    """Check an example as the basis of the rule asks."""
    kind = KIND_BY_NAME[kind_name]
    spelt = scene(kind, example)
    context = Context(allowed_images=example.allowed_images)
    if entry.basis is Basis.STORED:
        return judge_stored(kind, spelt.new, spelt.world, context=context)
    return validate(kind, spelt.new, spelt.old, spelt.world, request_version=spelt.version, context=context)
