"""Names, labels, annotations and limits that more than one room spells."""

from __future__ import annotations

import hashlib
import re

from api.kinds import AIM_GROUP

FIELD_OWNER = "aim-adapters"
LEASE_NAME = "aim-adapters"

# Labels and annotations of aim-adapters (docs/contract.md, Annotations of a service, Labels and annotations).
LABEL_SERVICE = f"{AIM_GROUP}/service"
LABEL_ARTIFACT = f"{AIM_GROUP}/artifact"
LABEL_ROLE = f"{AIM_GROUP}/role"  # of Jobs and claims: one of the ROLE_ values
LABEL_PROFILE = f"{AIM_GROUP}/profile"
LABEL_TEMPLATE = f"{AIM_GROUP}/template"
LABEL_MODEL = f"{AIM_GROUP}/model"
LABEL_METRIC = f"{AIM_GROUP}/metric"
LABEL_PRECISION = f"{AIM_GROUP}/precision"
LABEL_COMPONENT = "app.kubernetes.io/component"
LABEL_MANAGED_BY = "app.kubernetes.io/managed-by"
OWN_LABELS = (
    *(LABEL_SERVICE, LABEL_ARTIFACT, LABEL_ROLE, LABEL_PROFILE, LABEL_TEMPLATE, LABEL_MODEL),
    *(LABEL_METRIC, LABEL_PRECISION, LABEL_MANAGED_BY),
)
"""Labels by which aim-adapters finds objects and reports what they are for; a user's labels of these names stay where
the user set them."""
ANNOTATION_STAGE_KEY = f"{AIM_GROUP}/stage-key"
ANNOTATION_ATTEMPT = f"{AIM_GROUP}/attempt"
ANNOTATION_FETCH_KEY = f"{AIM_GROUP}/fetch-key"
ANNOTATION_REAP_KEY = f"{AIM_GROUP}/reap-key"
ANNOTATION_SYNC_KEY = f"{AIM_GROUP}/sync-key"
ANNOTATION_TAKE_OVER = f"{AIM_GROUP}/take-over"  # on a service: take over another operator's InferenceService
ANNOTATION_PAUSED = f"{AIM_GROUP}/reconciliation-paused"
ANNOTATION_RETRY_STAGING = f"{AIM_GROUP}/retry-staging"
ANNOTATION_RESTAGE = f"{AIM_GROUP}/restage"
ANNOTATION_REAP = f"{AIM_GROUP}/reap"  # `dry-run` or any other new value: sweep the adapter disk now
ANNOTATION_MODEL_ID = f"{AIM_GROUP}/model-id"
ANNOTATION_RUNTIME_PROFILE = f"{AIM_GROUP}/runtime-profile"

ROLE_SUBTREE_SYNC = "subtree-sync"
ROLE_STAGING = "adapter-staging"
ROLE_REAPER = "adapter-reaper"
ROLE_FETCH = "model-fetch"
ROLE_MODEL_CACHE = "model-cache"
ROLE_ADAPTER_DISK = "adapter-disk"
KEY_ANNOTATIONS = {  # role of a Job → annotation that says which work it does
    ROLE_SUBTREE_SYNC: ANNOTATION_SYNC_KEY,
    ROLE_STAGING: ANNOTATION_STAGE_KEY,
    ROLE_REAPER: ANNOTATION_REAP_KEY,
    ROLE_FETCH: ANNOTATION_FETCH_KEY,
}

# Ranks (docs/contract.md, Adapter artifacts, Rank ceiling).
RANK_CEILINGS = (1, 8, 16, 32, 64, 128, 256, 320, 512)
DEFAULT_RANK = 16
DEFAULT_MAX_RANK = 32
MAX_ADAPTERS = 64
GPU_ADAPTER_SLOTS = 8
CPU_ADAPTER_SLOTS = 16

FEATURE_ADAPTERS = "adapters"
FEATURE_ADAPTERS_SCALE_ONLY = "adapters-scale-only"
DEFAULT_RUNTIME_CONFIG = "default"

DNS_LABEL_LIMIT = 63
_HASH_LENGTH = 8
_ISVC_NAME_MINIMUM = 10  # one letter, a dash and the hash
_NOT_IN_A_LABEL = re.compile(r"[^a-z0-9]+")

_LABEL_VALUE = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")

ADAPTER_DIRECTORY_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._-]*$"
MODEL_ID_PATTERN = r"^[a-zA-Z0-9_-]+/[a-zA-Z0-9._-]+$"
SOURCE_URI_PATTERN = r"^(hf|s3)://[^ \t\r\n]+$"


def short_hash(*parts: str, length: int = _HASH_LENGTH) -> str:
    """Return `length` hexadecimal digits over all parts; parts cannot run into each other."""
    digest = hashlib.sha256()
    for part in parts:
        raw = part.encode()
        digest.update(len(raw).to_bytes(4, "big"))
        digest.update(raw)
    return digest.hexdigest()[:length]


def derive_name(*parts: str, limit: int = DNS_LABEL_LIMIT) -> str:
    """Return an RFC 1123 label of at most `limit` characters, made from the parts and a hash over *all* of them.

    It starts with a letter, so that it also suits kinds with the stricter RFC 1035 rule.
    Source: docs/contract.md, Job pods.
    """
    readable = _NOT_IN_A_LABEL.sub("-", "-".join(parts).lower()).strip("-")
    if not readable or not readable[0].isalpha():
        readable = f"x{readable}"
    suffix = short_hash(*parts)
    return f"{readable[: limit - len(suffix) - 1].rstrip('-')}-{suffix}"


def is_label_value(value: str) -> bool:
    """Whether the API server accepts a text as a label's value, except the empty text, which it also accepts."""
    return _LABEL_VALUE.fullmatch(value) is not None


def inference_service_name_limit(namespace: str) -> int:
    """Return how many characters KServe leaves for the name of an InferenceService in this namespace.

    Source: docs/contract.md, KServe behaviour.
    """
    return min(48, 52 - len(namespace))


def inference_service_name(service: str, namespace: str) -> str | None:
    """Return the name of a service's InferenceService, or None when the namespace leaves fewer than 10 characters."""
    limit = inference_service_name_limit(namespace)
    if limit < _ISVC_NAME_MINIMUM:
        return None
    return derive_name(service, limit=limit)


def stage_key(artifact_uid: str, source_uri: str, service_uid: str, path: str, claim_uid: str) -> str:
    """Return the key under which the outcome of one staging is recorded (docs/contract.md, Durable truth)."""
    return short_hash("stage", artifact_uid, source_uri, service_uid, path, claim_uid, length=16)


def sync_key(service_uid: str, paths: list[str], claim: str, claim_uid: str) -> str:
    """Return the key of one subtree sync: the declared set and the disk binding (docs/contract.md, Subtree sync)."""
    return short_hash("sync", service_uid, *sorted(paths), claim, claim_uid, length=16)


def fetch_key(artifact_uid: str, source_uri: str, claim_uid: str) -> str:
    """Return the key under which the outcome of a base model's download is recorded."""
    return short_hash("fetch", artifact_uid, source_uri, claim_uid, length=16)
