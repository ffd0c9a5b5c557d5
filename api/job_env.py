"""Which environment variables may reach a Job that writes to a shared disk. No other place defines it.

A Job runs the project's own program beside other tenants' bytes. Whatever a tenant may set is therefore an allow-list:
credentials, endpoints and tuning of the download clients; never the writer's own settings, the interpreter's or the
loader's (docs/contract.md, Job environment).
"""

from __future__ import annotations

import re

RESERVED_PREDICTOR_ENV = frozenset({"PYTHONPATH", "PROTOCOL", "STORAGE_URI", "INFERENCE_SERVICE_NAME"})
"""KServe uses these variables for itself (docs/contract.md, Predictor environment)."""

SECRET_VARIABLES = "AIM_ADAPTERS_SECRET_VARIABLES"  # noqa: S105 - the name of a variable
"""Names the variables of a Job whose values come from Secrets: its messages show none of these values."""
CREDENTIAL_VARIABLES = ("HF_TOKEN", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
"""Variables whose values are secret wherever they come from."""

ALLOWED_WORDS = "HF_TOKEN, HF_ENDPOINT, HF_HUB_* tuning, AWS_* (no paths), *_PROXY"

_ALLOWED_EXACTLY = frozenset({"HF_TOKEN", "HF_ENDPOINT"})
_PROXY = re.compile(r"^([A-Z][A-Z0-9_]*_PROXY|[a-z][a-z0-9_]*_proxy)$")
_HUB_TUNING = re.compile(r"^HF_HUB_[A-Z0-9_]+$")
_HUB_REFUSED = frozenset(
    {
        "HF_HUB_OFFLINE",
        "HF_HUB_LOCAL_DIR_AUTO_SYMLINK_THRESHOLD",
        "HF_HUB_DISABLE_SYMLINKS_WARNING",
        "HF_HUB_DISABLE_SYMLINKS",
    }
)
_AWS = re.compile(r"^AWS_(?!CSM_)[A-Z0-9_]+$")  # CSM: datagrams about each request, to any host
_NAMES_A_PATH = ("_FILE", "_PATH", "_BUNDLE", "_DIR", "_DIRECTORY", "_HOME", "_CACHE")
_TYPED_S3_TUNING = frozenset(
    {
        "AWS_MAX_ATTEMPTS",
        "AWS_RETRY_MODE",
        "AWS_METADATA_SERVICE_TIMEOUT",
        "AWS_METADATA_SERVICE_NUM_ATTEMPTS",
        "AWS_REQUEST_CHECKSUM_CALCULATION",
        "AWS_RESPONSE_CHECKSUM_VALIDATION",
    }
)


def allowed_in_job(name: str) -> bool:
    """Whether a tenant's environment variable of this name may reach a Job."""
    if name in _ALLOWED_EXACTLY or _PROXY.fullmatch(name):
        return True
    if name.endswith(_NAMES_A_PATH):
        return False
    if _HUB_TUNING.fullmatch(name):
        return name not in _HUB_REFUSED
    return bool(_AWS.fullmatch(name))


def allowed_with_typed_s3(name: str) -> bool:
    """Whether it may reach a Job whose RuntimeConfig has a typed `artifact.s3` block: tuning, no credentials.

    Source: docs/contract.md, S3 settings.
    """
    return allowed_in_job(name) and (not name.startswith("AWS_") or name in _TYPED_S3_TUNING)
