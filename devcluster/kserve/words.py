"""Names that the real controller writes, and the settings of its stand-in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from api.view import JsonObject

GROUP = "serving.kserve.io"
API_VERSION = f"{GROUP}/v1beta1"
PLURAL = "inferenceservices"
FINALIZER = "inferenceservice.finalizers"
CONTAINER = "kserve-container"
FIELD_MANAGER = "manager"  # what a Go controller that sets none is booked as

ANNOTATION_MODE = f"{GROUP}/deploymentMode"
ANNOTATION_AUTOSCALER = f"{GROUP}/autoscalerClass"
ANNOTATION_STOP = f"{GROUP}/stop"
LABEL_ISVC = f"{GROUP}/inferenceservice"
LABEL_COMPONENT = "component"
LABEL_APP = "app"

STANDARD = "Standard"
KNATIVE = "Knative"
OLD_STANDARD = "RawDeployment"
KNATIVE_NAMES = frozenset({KNATIVE, "Serverless"})
AUTOSCALERS = ("hpa", "keda", "external", "none")

SERVICE_PORT = 80
DIRECT_PORT = 8000  # a port of the Service that needs no root to listen on; KServe has none, see the deviations
DIRECT_PORT_NAME = "http-direct"
DEFAULT_CONTAINER_PORT = 8080
PROGRESS_DEADLINE_S = 600
EXTENSION_FIELDS = frozenset(
    {
        "annotations",
        "batcher",
        "canaryTrafficPercent",
        "containerConcurrency",
        "deploymentStrategy",
        "labels",
        "logger",
        "maxReplicas",
        "minReplicas",
        "scaleMetric",
        "scaleMetricType",
        "scaleTarget",
        "timeout",
    }
)  # fmt: skip (fields of a predictor that are none of a pod spec)
LABEL_LIMIT = 63


@dataclass(frozen=True, slots=True)
class Settings:
    """What an administrator of the real thing sets in its ConfigMap."""

    default_mode: Literal["Standard", "Knative"] = "Standard"
    no_service_account_token: bool = False  # the webhook writes automountServiceAccountToken: false where it is unset


def predictor_name(isvc: str) -> str:
    """Return the name of the Deployment, the Service and the autoscaler."""
    return f"{isvc}-predictor"


def annotations_of(thing: JsonObject) -> dict[str, str]:
    """Return the annotations of an object, or of a predictor, empty when there are none."""
    holder = thing.get("metadata", thing)
    return dict(holder.get("annotations") or {})


def labels_of(thing: JsonObject) -> dict[str, str]:
    """Return the labels of an object, or of a predictor, empty when there are none."""
    holder = thing.get("metadata", thing)
    return dict(holder.get("labels") or {})


def predictor_of(isvc: JsonObject) -> JsonObject:
    """Return `spec.predictor`, empty when it is absent."""
    found = (isvc.get("spec") or {}).get("predictor")
    return found if isinstance(found, dict) else {}
