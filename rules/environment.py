"""Which environment a user may set where (contract, section 11, "Environment")."""

from __future__ import annotations

from collections.abc import Iterator

from api.view import dig, items, text

RESERVED_ENV = frozenset({"PYTHONPATH", "PROTOCOL", "STORAGE_URI", "INFERENCE_SERVICE_NAME"})
"""KServe's server container gives these a meaning of its own; ours would break by them (contract, section 7)."""

PREDICTOR_ENV = frozenset(
    {"AIM_CACHE_PATH", "AIM_MODEL_ID", "AIM_ID", "AIM_PROFILE_ID", "AIM_ENGINE", "AIM_METRIC", "AIM_PRECISION"}
)
"""Set by the reconciler on every predictor; a user's entry of the same name has no effect."""

ADAPTER_ENV_PREFIX = "AIM_ADAPTER_"

_HUB_SETTINGS = frozenset({"HF_TOKEN", "HF_ENDPOINT"})
_HUB_TUNING_PREFIX = "HF_HUB_"
_HUB_NOT_TUNING = frozenset(
    {
        "HF_HUB_CACHE",
        "HF_HUB_OFFLINE",
        "HF_HUB_LOCAL_DIR_AUTO_SYMLINK_THRESHOLD",
        "HF_HUB_DISABLE_SYMLINKS_WARNING",
        "HF_HUB_DISABLE_SYMLINKS",
        "HF_HUB_TOKEN_PATH",
    }
)
_FOLDER_WORDS = ("_CACHE", "_PATH", "_DIR", "_HOME", "_FILE")
_AWS_PREFIX = "AWS_"
_AWS_PATHS = frozenset({"AWS_CA_BUNDLE", "AWS_DATA_PATH", "AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"})
_PROXY_SUFFIX = "_PROXY"

_TUNING_BESIDE_TYPED_S3 = frozenset(
    {
        "AWS_MAX_ATTEMPTS",
        "AWS_RETRY_MODE",
        "AWS_METADATA_SERVICE_TIMEOUT",
        "AWS_METADATA_SERVICE_NUM_ATTEMPTS",
        "AWS_REQUEST_CHECKSUM_CALCULATION",
        "AWS_RESPONSE_CHECKSUM_VALIDATION",
    }
)

ALLOWED_JOB_ENV_WORDS = "HF_TOKEN, HF_ENDPOINT, HF_HUB_* tuning, AWS_* (no paths), *_PROXY"


def job_env_allowed(name: str) -> bool:
    """Whether an artifact (or what else reaches a Job) may set this variable.

    An allow-list: the writer's own settings, the interpreter, the loader and every path stay ours.
    """
    if name.upper().endswith(_PROXY_SUFFIX):
        return name in (name.upper(), name.lower())
    if name in _HUB_SETTINGS:
        return True
    if name.endswith(_FOLDER_WORDS):
        return False
    if name.startswith(_HUB_TUNING_PREFIX):
        return name not in _HUB_NOT_TUNING
    return name.startswith(_AWS_PREFIX) and name not in _AWS_PATHS


def job_env_allowed_beside_typed_s3(name: str) -> bool:
    """Whether an artifact may set this variable beside a typed s3 block: tuning and proxies only."""
    if name.startswith(_AWS_PREFIX):
        return name in _TUNING_BESIDE_TYPED_S3
    return job_env_allowed(name)


def env_names(obj: object, *path: str) -> Iterator[tuple[str, str]]:
    """Return (field path of the name, name) for each well-formed entry of an env list."""
    prefix = ".".join(path)
    for index, entry in enumerate(items(obj, *path)):
        name = text(entry, "name")
        if name is not None:
            yield f"{prefix}[{index}].name", name


def env_keys(obj: object, *path: str) -> Iterator[tuple[str, str]]:
    """Return (field path, name) for each key of an env map."""
    holder = dig(obj, *path)
    if isinstance(holder, dict):
        prefix = ".".join(path)
        for name in holder:
            yield f"{prefix}[{name}]", name
