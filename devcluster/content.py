"""The objects that a cluster comes with. Pure: plain manifests, no I/O."""

from __future__ import annotations

from api.view import JsonObject
from devcluster.paths import path_for

# The group of the cluster's own programs: it may do everything, through RBAC and unlike system:masters.
OPERATORS = "aim-dev:operators"
FIELD_MANAGER = "aim-dev"
S3_SECRET = "aim-dev-s3"  # noqa: S105  a name
HUB_SECRET = "aim-dev-hub"  # noqa: S105  a name
RWX_CLASS = "aim-dev-rwx"
RWO_CLASS = "aim-dev-rwo"
RWX_PROVISIONER = "dev.aim-adapters/shared-directory"
RWO_PROVISIONER = "dev.aim-adapters/single-node-directory"
PROFILE = "tiny-mi300x"
BASE_MODEL = "acme/tiny-llama"
MODEL_SERVER_IMAGE = "aim-dev/model-server:0.13.0"
_GROUP = "aim.eai.amd.com"
_REGION = "us-east-1"

_PLURALS = {
    "Secret": "secrets",
    "Namespace": "namespaces",
    "ClusterRoleBinding": "clusterrolebindings",
    "StorageClass": "storageclasses",
    "AIMClusterRuntimeConfig": "aimclusterruntimeconfigs",
    "AIMClusterProfile": "aimclusterprofiles",
    "AIMArtifact": "aimartifacts",
}


def path_of(manifest: JsonObject) -> str:
    """Return the REST path of one of the manifests of this module."""
    meta = manifest["metadata"]
    return path_for(manifest["apiVersion"], _PLURALS[manifest["kind"]], meta.get("namespace"), meta["name"])


def bootstrap() -> list[JsonObject]:
    """Return what the cluster's own programs need: their rights, and the storage classes."""
    return [
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": "aim-dev:operators"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": OPERATORS}],
        },
        storage_class(RWX_CLASS, RWX_PROVISIONER, default=True),
        storage_class(RWO_CLASS, RWO_PROVISIONER, default=False),
    ]


def storage_class(name: str, provisioner: str, *, default: bool) -> JsonObject:
    """Return a class whose claims are bound as soon as they are made."""
    annotations = {"storageclass.kubernetes.io/is-default-class": "true"} if default else {}
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": name, "annotations": annotations},
        "provisioner": provisioner,
        "reclaimPolicy": "Delete",
        "volumeBindingMode": "Immediate",
        "allowVolumeExpansion": True,
    }


def source_secrets(namespace: str, *, access_key: str, secret_key: str, token: str) -> list[JsonObject]:
    """Return the Secrets with the credentials of hub and S3, under the names that clients commonly read."""
    return [
        _secret(
            namespace,
            S3_SECRET,
            {
                "accessKeyId": access_key,
                "secretAccessKey": secret_key,
                "AWS_ACCESS_KEY_ID": access_key,
                "AWS_SECRET_ACCESS_KEY": secret_key,
            },
        ),
        _secret(namespace, HUB_SECRET, {"token": token, "HF_TOKEN": token}),
    ]


def runtime_config(*, hub: str, s3: str) -> JsonObject:
    """Return the AIMClusterRuntimeConfig `default`: downloads go to this cluster's hub and S3 (their URLs)."""
    return {
        "apiVersion": f"{_GROUP}/v1alpha1",
        "kind": "AIMClusterRuntimeConfig",
        "metadata": {"name": "default"},
        "spec": {
            "env": [
                {"name": "HF_ENDPOINT", "value": hub},
                _from_secret("HF_TOKEN", HUB_SECRET, "token"),
                {"name": "AWS_ENDPOINT_URL", "value": s3},
                {"name": "AWS_REGION", "value": _REGION},
                _from_secret("AWS_ACCESS_KEY_ID", S3_SECRET, "accessKeyId"),
                _from_secret("AWS_SECRET_ACCESS_KEY", S3_SECRET, "secretAccessKey"),
            ]
        },
    }


def cluster_profile() -> JsonObject:
    """Return the AIMClusterProfile that serves the small base model on one MI300X, with adapters."""
    return {
        "apiVersion": f"{_GROUP}/v1alpha2",
        "kind": "AIMClusterProfile",
        "metadata": {"name": PROFILE},
        "spec": {
            "aimId": BASE_MODEL,
            "modelId": BASE_MODEL,
            "profileId": "vllm-mi300x-bf16-tp1-latency",
            "image": MODEL_SERVER_IMAGE,
            "engine": "vllm",
            "metric": "latency",
            "precision": "bf16",
            "type": "optimized",
            "acceleratorVendor": "amd",
            "acceleratorModel": "MI300X",
            "acceleratorType": "gpu",
            "acceleratorCount": 1,
            "features": ["adapters"],
            "modelSources": [{"modelId": BASE_MODEL, "sourceUri": f"hf://{BASE_MODEL}", "size": "16Mi"}],
        },
    }


def probe() -> JsonObject:
    """Return an object that the schema accepts and only the webhook refuses: an adapter that names no base at all.

    It is only ever sent as a dry run. While the webhook is not active the API server accepts it.
    """
    return {
        "apiVersion": f"{_GROUP}/v1alpha1",
        "kind": "AIMArtifact",
        "metadata": {"name": "aim-dev-probe", "namespace": "default"},
        "spec": {"type": "adapter", "modelId": "acme/probe", "sourceUri": "hf://acme/probe"},
    }


def _secret(namespace: str, name: str, values: dict[str, str]) -> JsonObject:
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": name, "namespace": namespace},
        "type": "Opaque",
        "stringData": values,
    }


def _from_secret(name: str, secret: str, key: str) -> JsonObject:
    return {"name": name, "valueFrom": {"secretKeyRef": {"name": secret, "key": key}}}
