"""Write `crd.yaml`: the InferenceService kind, its pod-spec part taken from an API server's own OpenAPI document.

`python -m devcluster.kserve.schema --kubeconfig FILE` asks a running server, `--openapi FILE` reads its core/v1
document (`/openapi/v3/api/v1`). The result is committed; it changes only when Kubernetes' pods do.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import yaml

from devcluster.by_path import Kube

Schema = dict[str, Any]

CRD_FILE = Path(__file__).with_name("crd.yaml")
GROUP = "serving.kserve.io"
OPENAPI_PATH = "/openapi/v3/api/v1"
POD_SPEC = "io.k8s.api.core.v1.PodSpec"

_QUANTITY = {
    "anyOf": [{"type": "integer"}, {"type": "string"}],
    "pattern": r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$",  # noqa: E501 (one pattern)
    "x-kubernetes-int-or-string": True,
}
_INT_OR_STRING = {"anyOf": [{"type": "integer"}, {"type": "string"}], "x-kubernetes-int-or-string": True}
_SPECIAL = {
    "io.k8s.apimachinery.pkg.api.resource.Quantity": _QUANTITY,
    "io.k8s.apimachinery.pkg.util.intstr.IntOrString": _INT_OR_STRING,
}
_KEPT = (
    "type", "format", "required", "enum", "x-kubernetes-list-type", "x-kubernetes-list-map-keys",
    "x-kubernetes-map-type",
)  # fmt: skip
_STILL_A_MAP = "topologySpreadConstraints"  # the one list of the pod spec that the real kind merges by key


def structural(documents: dict[str, Schema], schema: Schema) -> Schema:
    """Return `schema` as a structural schema: references followed, descriptions and defaults left out.

    `documents` are the OpenAPI document's components by name. Raises: KeyError for a reference into another document.
    """
    reference = schema.get("$ref") or next((part["$ref"] for part in schema.get("allOf", ()) if "$ref" in part), None)
    if reference:
        name = str(reference).rpartition("/")[2]
        return dict(_SPECIAL.get(name) or structural(documents, documents[name]))
    out = {key: schema[key] for key in _KEPT if key in schema}
    if "properties" in schema:
        out["properties"] = {name: structural(documents, part) for name, part in sorted(schema["properties"].items())}
    if isinstance(schema.get("additionalProperties"), dict):
        out["additionalProperties"] = structural(documents, schema["additionalProperties"])
    if "items" in schema:
        out["items"] = structural(documents, schema["items"])
        _default_keys(documents, schema, out)
    return out


def _default_keys(documents: dict[str, Schema], schema: Schema, out: Schema) -> None:
    """Keep the defaults of a list's map keys: a key must be required or have one (a port's protocol is TCP)."""
    for key in out.get("x-kubernetes-list-map-keys", ()):
        if key in out["items"].get("required", ()):
            continue
        part = schema["items"]
        name = (part.get("$ref") or part["allOf"][0]["$ref"]).rpartition("/")[2]
        out["items"]["properties"][key]["default"] = documents[name]["properties"][key]["default"]


def pod_spec_properties(documents: dict[str, Schema]) -> Schema:
    """Return the predictor's pod-spec fields: lists are atomic, and a container needs no name."""
    properties: Schema = structural(documents, documents[POD_SPEC])["properties"]
    for name, part in properties.items():
        if part.get("type") == "array" and name != _STILL_A_MAP:
            for key in ("x-kubernetes-list-type", "x-kubernetes-list-map-keys"):
                part.pop(key, None)
    del properties["containers"]["items"]["required"]
    return properties


def render_crd(documents: dict[str, Schema]) -> Schema:
    """Return the CustomResourceDefinition."""
    predictor = _object({**pod_spec_properties(documents), **_EXTENSIONS})
    spec = _object({"predictor": predictor}, required=["predictor"])
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"inferenceservices.{GROUP}"},
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": {
                "kind": "InferenceService",
                "listKind": "InferenceServiceList",
                "plural": "inferenceservices",
                "singular": "inferenceservice",
                "shortNames": ["isvc"],
            },
            "versions": [
                {
                    "name": "v1beta1",
                    "served": True,
                    "storage": True,
                    "subresources": {"status": {}},
                    "additionalPrinterColumns": [
                        {"name": "URL", "type": "string", "jsonPath": ".status.url"},
                        {
                            "name": "Ready",
                            "type": "string",
                            "jsonPath": ".status.conditions[?(@.type=='Ready')].status",
                        },
                        {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
                    ],
                    "schema": {
                        "openAPIV3Schema": _object(
                            {
                                "apiVersion": _STRING,
                                "kind": _STRING,
                                "metadata": {"type": "object"},
                                "spec": spec,
                                "status": _STATUS,
                            }
                        )
                    },
                }
            ],
        },
    }


def _object(properties: Schema, required: list[str] | None = None) -> Schema:
    return {"type": "object", "properties": properties, **({"required": required} if required else {})}


_STRING = {"type": "string"}
_INT32 = {"type": "integer", "format": "int32"}
_INT64 = {"type": "integer", "format": "int64"}
_STRINGS = {"type": "object", "additionalProperties": _STRING}
_TIME = {"type": "string"}

_EXTENSIONS: Schema = {
    "annotations": _STRINGS,
    "batcher": _object({"maxBatchSize": _INT64, "maxLatency": _INT64, "timeout": _INT64}),
    "canaryTrafficPercent": _INT64,
    "containerConcurrency": _INT64,
    "deploymentStrategy": _object(
        {"type": _STRING, "rollingUpdate": _object({"maxSurge": _INT_OR_STRING, "maxUnavailable": _INT_OR_STRING})}
    ),
    "labels": _STRINGS,
    "logger": _object({"mode": {"type": "string", "enum": ["all", "request", "response"]}, "url": _STRING}),
    "maxReplicas": _INT32,
    "minReplicas": _INT32,
    "scaleMetric": {"type": "string", "enum": ["cpu", "memory", "concurrency", "rps"]},
    "scaleMetricType": {"type": "string", "enum": ["Utilization", "AverageValue"]},
    "scaleTarget": _INT32,
    "timeout": _INT64,
}

_ADDRESS = _object({"url": _STRING, "name": _STRING, "CACerts": _STRING, "audience": _STRING})
_CONDITION = _object(
    {
        "type": _STRING,
        "status": _STRING,
        "severity": _STRING,
        "reason": _STRING,
        "message": _STRING,
        "lastTransitionTime": _TIME,
    },
    required=["status", "type"],
)
_COMPONENT = _object(
    {
        "address": _ADDRESS,
        "grpcUrl": _STRING,
        "restUrl": _STRING,
        "url": _STRING,
        "latestCreatedRevision": _STRING,
        "latestReadyRevision": _STRING,
        "latestRolledoutRevision": _STRING,
        "previousRolledoutRevision": _STRING,
    }
)
_FAILURE = _object(
    {
        "exitCode": _INT32,
        "location": _STRING,
        "message": _STRING,
        "modelRevisionName": _STRING,
        "reason": _STRING,
        "time": _TIME,
    }
)
_STATUS = _object(
    {
        "address": _ADDRESS,
        "annotations": _STRINGS,
        "components": {"type": "object", "additionalProperties": _COMPONENT},
        "conditions": {"type": "array", "items": _CONDITION},
        "deploymentMode": _STRING,
        "modelStatus": _object(
            {
                "copies": _object({"failedCopies": _INT64, "totalCopies": _INT64}),
                "lastFailureInfo": _FAILURE,
                "states": _object({"activeModelState": _STRING, "targetModelState": _STRING}),
                "transitionStatus": _STRING,
            }
        ),
        "observedGeneration": _INT64,
        "url": _STRING,
    }
)


class _Dumper(yaml.SafeDumper):
    def ignore_aliases(self, data: Any) -> bool:
        return True


def to_yaml(crd: Schema) -> str:
    """Return the file's text, the same for the same schema."""
    head = "# Written by `python -m devcluster.kserve.schema`; do not edit.\n"
    return head + yaml.dump(crd, Dumper=_Dumper, sort_keys=False, default_flow_style=None, width=120)


async def _fetch(kubeconfig: str) -> Schema:
    async with await Kube.connect(kubeconfig) as kube:
        return await kube.get(OPENAPI_PATH)


def main(argv: list[str] | None = None) -> int:
    """Write the CRD file."""
    parser = argparse.ArgumentParser(prog="python -m devcluster.kserve.schema", description=__doc__)
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--kubeconfig")
    source.add_argument("--openapi", type=Path)
    parser.add_argument("--out", type=Path, default=CRD_FILE)
    options = parser.parse_args(argv)
    document = json.loads(options.openapi.read_text()) if options.openapi else asyncio.run(_fetch(options.kubeconfig))
    options.out.write_text(to_yaml(render_crd(document["components"]["schemas"])))
    return 0


if __name__ == "__main__":
    sys.exit(main())
