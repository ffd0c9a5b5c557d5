"""CustomResourceDefinitions, generated from the models: `python -m api.crds write|verify`.

pydantic writes JSON schema with references; the API server wants a *structural* schema: no references, every property
typed, no `additionalProperties` beside `properties`. `structural` turns one into the other.
Source: Kubernetes documentation, "Extend the API with CustomResourceDefinitions", structural schemas.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import yaml

from api import kinds
from api.generated import ROOT, Target, run
from api.kinds import Kind
from api.models import MODELS
from api.models.common import NOT_ACTED_ON

Schema = dict[str, Any]

DIRECTORY = ROOT / "chart" / "files" / "crds"
HEADER = (
    "# Generated from the models in api/models by `make generate` (python -m api.crds write).\n"
    "# Do not edit: change the models, generate again.\n"
)
SERVICE_V1ALPHA1_DEPRECATION = (
    "AIMService v1alpha1 is deprecated; write aim.eai.amd.com/v1alpha2: the same fields, but adapters need spec.profile"
)


@dataclass(frozen=True, slots=True)
class Column:
    """One column of `kubectl get`; `wide` ones show with `-o wide` only."""

    name: str
    path: str
    description: str
    type: str = "string"
    wide: bool = False

    def render(self) -> Schema:
        """Return the column as the API server wants it."""
        column: Schema = {
            "name": self.name,
            "type": self.type,
            "jsonPath": self.path,
            "description": self.description,
        }
        return column | ({"priority": 1} if self.wide else {})


_STATUS = Column("Status", ".status.status", "Summary of the state.")
_AGE = Column("Age", ".metadata.creationTimestamp", "Time since creation.", "date")
_SERVICE_HEAD = (_STATUS, Column("Model", ".spec.model.name", "Model that the service names."))
_SERVICE_TAIL = (
    Column("Mode", ".spec.adapterMode", "Adapter mode."),
    Column("Adapters", ".status.adapterSummary", "Staged of declared adapters."),
    Column("Replicas", ".status.runtime.replicas", "Ready of desired replicas."),
    _AGE,
)
_RUNTIME_CONFIG = (
    Column("Max Rank", ".spec.adapterRuntime.maxRank", "Rank ceiling of dynamic services.", "integer"),
    Column("Disk Size", ".spec.storage.adapterDiskSize", "Size of adapter disks."),
    Column("Disk Class", ".spec.storage.adapterDiskStorageClassName", "Storage class of adapter disks.", wide=True),
    _AGE,
)
_PROFILE = (
    Column("Model", ".spec.modelId", "Model id."),
    Column("Accelerator", ".spec.acceleratorModel", "Accelerator model."),
    Column("Count", ".spec.acceleratorCount", "Accelerators per replica.", "integer"),
    Column("Status", ".status.status", "Whether a node has the accelerators."),
    Column("Nodes", ".status.matchingNodes", "Nodes that have the accelerators.", "integer", wide=True),
    Column("Features", ".spec.features", "What the image can do.", wide=True),
    Column("Image", ".spec.image", "Image of the model server.", wide=True),
    _AGE,
)
_MODEL = (_STATUS, Column("Image", ".spec.image", "Image of the model server."), _AGE)
_TEMPLATE = (
    Column("Model", ".spec.modelName", "Name of the model."),
    Column("Metric", ".spec.metric", "What it is tuned for."),
    Column("Precision", ".spec.precision", "Numeric format."),
    Column("Status", ".status.status", "Summary of the state."),
    _AGE,
)
_CACHE_MODE = Column("Mode", ".spec.mode", "Shared or Dedicated.", wide=True)

_COLUMNS: Mapping[Kind, tuple[Column, ...]] = {
    kinds.AIM_SERVICE_V1ALPHA1: (
        *_SERVICE_HEAD,
        Column("Template", ".spec.template.name", "Template that the service names."),
        *_SERVICE_TAIL,
    ),
    kinds.AIM_SERVICE: (
        *_SERVICE_HEAD,
        Column("Profile", ".spec.profile.name", "Profile that the service names."),
        *_SERVICE_TAIL,
    ),
    kinds.AIM_ARTIFACT: (
        Column("Type", ".spec.type", "model or adapter."),
        _STATUS,
        Column("Size", ".status.displaySize", "Size of the bytes."),
        Column("Progress", ".status.progress.displayPercentage", "Share that is on disk."),
        Column("Source", ".spec.sourceUri", "Where the bytes come from.", wide=True),
        Column("Parent/Compatible", ".status.compatibility", "Bases that the adapter fits.", wide=True),
        _AGE,
    ),
    kinds.AIM_RUNTIME_CONFIG: _RUNTIME_CONFIG,
    kinds.AIM_CLUSTER_RUNTIME_CONFIG: _RUNTIME_CONFIG,
    kinds.AIM_PROFILE: _PROFILE,
    kinds.AIM_CLUSTER_PROFILE: _PROFILE,
    kinds.AIM_PROFILE_CACHE: (
        _STATUS,
        Column("Profile", ".spec.profileName", "Cached profile."),
        Column("Adapter Disk", ".spec.requiresAdapterDisk", "Whether the base gets an adapter disk.", "boolean"),
        _CACHE_MODE,
        _AGE,
    ),
    kinds.AIM_MODEL: _MODEL,
    kinds.AIM_CLUSTER_MODEL: _MODEL,
    kinds.AIM_SERVICE_TEMPLATE: _TEMPLATE,
    kinds.AIM_CLUSTER_SERVICE_TEMPLATE: _TEMPLATE,
    kinds.AIM_TEMPLATE_CACHE: (
        _STATUS,
        Column("Template", ".spec.templateName", "Cached template."),
        Column("Adapter Disk", ".spec.requiresAdapterDisk", "Whether the base gets an adapter disk.", "boolean"),
        _CACHE_MODE,
        _AGE,
    ),
}

SHORT_NAMES: Mapping[Kind, str] = {
    kinds.AIM_SERVICE: "aimsvc",
    kinds.AIM_ARTIFACT: "aimart",
    kinds.AIM_RUNTIME_CONFIG: "aimrc",
    kinds.AIM_CLUSTER_RUNTIME_CONFIG: "aimclrc",
    kinds.AIM_PROFILE: "aimprf",
    kinds.AIM_CLUSTER_PROFILE: "aimclprf",
    kinds.AIM_PROFILE_CACHE: "aimpc",
    kinds.AIM_MODEL: "aimmdl",
    kinds.AIM_CLUSTER_MODEL: "aimclmdl",
    kinds.AIM_SERVICE_TEMPLATE: "aimtpl",
    kinds.AIM_CLUSTER_SERVICE_TEMPLATE: "aimcltpl",
    kinds.AIM_TEMPLATE_CACHE: "aimtc",
}

_SERVICE_SCALE = {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.runtime.currentReplicas"}


def render_crds() -> dict[str, str]:
    """Return the YAML text of every CustomResourceDefinition by file name (`aimservices.yaml`); deterministic."""
    return {f"{kind.plural}.yaml": _to_yaml(crd(kind)) for kind in kinds.AIM_KINDS}


def crd(kind: Kind) -> Schema:
    """Return the CustomResourceDefinition of a kind (the storage version's for AIMService)."""
    versions = [kinds.AIM_SERVICE_V1ALPHA1, kind] if kind is kinds.AIM_SERVICE else [kind]
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{kind.plural}.{kind.group}"},
        "spec": {
            "group": kind.group,
            "scope": "Namespaced" if kind.namespaced else "Cluster",
            "names": {
                "kind": kind.kind,
                "listKind": f"{kind.kind}List",
                "plural": kind.plural,
                "singular": kind.kind.lower(),
                "shortNames": [SHORT_NAMES[kind]],
                "categories": ["aim", "all"],
            },
            "conversion": {"strategy": "None"},  # versions differ in apiVersion only
            "versions": [_version(version, storage=version is kind) for version in versions],
        },
    }


def _version(kind: Kind, *, storage: bool) -> Schema:
    deprecation = {} if storage else {"deprecated": True, "deprecationWarning": SERVICE_V1ALPHA1_DEPRECATION}
    scale = {"scale": dict(_SERVICE_SCALE)} if kind.plural == kinds.AIM_SERVICE.plural else {}
    return {
        "name": kind.version,
        "served": True,
        "storage": storage,
        **deprecation,
        "additionalPrinterColumns": [column.render() for column in _COLUMNS[kind]],
        "subresources": {"status": {}, **scale},
        "schema": {"openAPIV3Schema": object_schema(kind)},
    }


def object_schema(kind: Kind) -> Schema:
    """Return the structural schema of a whole object of that kind; any served version, they are alike."""
    storage = next(known for known in kinds.AIM_KINDS if known.plural == kind.plural)
    source = MODELS[storage].model_json_schema(by_alias=True)
    schema = structural(source, source.get("$defs", {}))
    schema["properties"]["metadata"] = {"type": "object"}  # nothing else may be said about it
    schema["properties"]["status"] = _tolerant(schema["properties"]["status"])
    return schema


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
    "x-kubernetes-int-or-string",
    "x-kubernetes-list-type",
    "x-kubernetes-list-map-keys",
    "x-kubernetes-map-type",
)


def _resolved(node: Mapping[str, Any], defs: Mapping[str, Any]) -> Mapping[str, Any]:
    """Follow references and unwrap `X | null`; what stands beside either wins over what is found there."""
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


def _tolerant(status: Schema) -> Schema:
    """Name a status's known words in its description instead of refusing others: other controllers write it too."""
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


class _PlainDumper(yaml.SafeDumper):
    """Writes shared parts out each time: anchors are hard to read and some tools refuse them."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _to_yaml(document: Schema) -> str:
    body = yaml.dump(document, Dumper=_PlainDumper, sort_keys=False, width=110, allow_unicode=True)
    return HEADER + body


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:], Target("CRDs", "api.crds", DIRECTORY, render_crds, owned="*.yaml")))
