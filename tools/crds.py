"""CustomResourceDefinitions, generated from the models: `python -m tools.crds write|verify`."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import yaml

from api import kinds
from api.kinds import Kind
from api.schema import Schema, object_schema
from tools.generated import ROOT, Target, run

DIRECTORY = ROOT / "chart" / "files" / "crds"
HEADER = (
    "# Generated from the models in api/models by `make generate` (python -m tools.crds write).\n"
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


class _PlainDumper(yaml.SafeDumper):
    """Writes shared parts out each time: anchors are hard to read and some tools refuse them."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _to_yaml(document: Schema) -> str:
    body = yaml.dump(document, Dumper=_PlainDumper, sort_keys=False, width=110, allow_unicode=True)
    return HEADER + body


TARGET = Target("CRDs", "tools.crds", DIRECTORY, render_crds, owned="*.yaml")


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:], TARGET))
