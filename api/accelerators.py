"""AMD accelerator models, their PCI device ids and the node labels that show them (docs/contract.md, Accelerators)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

GPU_RESOURCE_AMD = "amd.com/gpu"
GPU_RESOURCE_NVIDIA = "nvidia.com/gpu"
LABEL_ACCELERATOR_PREFIX = "feature.node.kubernetes.io/aim-accelerator."
LABELS_DEVICE_ID = ("amd.com/gpu.device-id", "beta.amd.com/gpu.device-id")
LABEL_PARTITIONING = "amd.com/compute-memory-partition"
UNPARTITIONED = "unpartitioned"

DEVICE_IDS: Mapping[str, Sequence[str]] = {
    "MI100": ("738c", "738e"),
    "MI210": ("740f", "7410"),
    "MI250X": ("7408", "740c"),
    "MI300A": ("74a0",),
    "MI300X": ("74a1", "74a9", "74b5", "74bd"),
    "MI308X": ("74a2", "74a8", "74b6"),
    "MI325X": ("74a5", "74b9"),
    "MI350X": ("75a0", "75b0"),
    "MI355X": ("75a3", "75b3"),
    "V710": ("7460", "7461"),
    "W7900": ("7448", "744a"),
    "W7800": ("7449", "745e"),
    "RX9070": ("7550",),
    "RX7900": ("744c",),
}


def gpu_resource(vendor: str | None) -> str:
    """The extended resource to ask for: AMD's unless the vendor is NVIDIA."""
    return GPU_RESOURCE_NVIDIA if (vendor or "").lower() == "nvidia" else GPU_RESOURCE_AMD


def node_selector_terms(model: str, partitioning: str | None = None) -> list[dict[str, Any]]:
    """Return node selector terms, any of which admits a node of the pool of this accelerator model.

    A partitioning mode other than `unpartitioned` is added to each term.
    """
    terms: list[list[dict[str, Any]]] = [[{"key": f"{LABEL_ACCELERATOR_PREFIX}{model}", "operator": "Exists"}]]
    if ids := DEVICE_IDS.get(model):
        terms += [[{"key": label, "operator": "In", "values": list(ids)}] for label in LABELS_DEVICE_ID]
    if partitioning and partitioning != UNPARTITIONED:
        partition = {"key": LABEL_PARTITIONING, "operator": "In", "values": [partitioning]}
        terms = [[*term, dict(partition)] for term in terms]
    return [{"matchExpressions": term} for term in terms]


def labels_sought(terms: Sequence[Mapping[str, Any]]) -> str:
    """Return the labels of node selector terms in words; the partitioning, which people choose, with its value."""
    words = (
        " and ".join(
            expression["key"]
            + (f"={','.join(expression['values'])}" if expression["key"] == LABEL_PARTITIONING else "")
            for expression in term["matchExpressions"]
        )
        for term in terms
    )
    return " or ".join(dict.fromkeys(words))


def node_matches(labels: Mapping[str, str], terms: Sequence[Mapping[str, Any]]) -> bool:
    """Whether a node with these labels is admitted by any of the terms (`Exists` and `In` only)."""
    return any(
        all(
            expression["key"] in labels
            and (expression["operator"] == "Exists" or labels[expression["key"]] in expression["values"])
            for expression in term["matchExpressions"]
        )
        for term in terms
    )
