"""Which environment variables may reach a Job that writes to a shared disk.

A Job runs the project's own program beside other tenants' bytes. Whatever a tenant may set is therefore an allow-list:
credentials, endpoints and tuning of the download clients; never the writer's own settings, the interpreter's or the
loader's (contract, section 11, "Environment").
"""

from __future__ import annotations

import re

RESERVED_PREDICTOR_ENV = frozenset({"PYTHONPATH", "PROTOCOL", "STORAGE_URI", "INFERENCE_SERVICE_NAME"})

_ALLOWED_EXACTLY = frozenset({"HF_TOKEN", "HF_ENDPOINT"})
_PROXIES = frozenset({"HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY"})
_HUB_TUNING = re.compile(r"^HF_HUB_[A-Z0-9_]+$")
_HUB_REFUSED = frozenset({"HF_HUB_CACHE", "HF_HUB_OFFLINE", "HF_HUB_LOCAL_DIR_AUTO_SYMLINK_THRESHOLD"})
_AWS = re.compile(r"^AWS_[A-Z0-9_]+$")
_NAMES_A_PATH = ("_FILE", "_PATH", "_BUNDLE", "_DIR", "_HOME", "_CACHE")
_TYPED_S3_TUNING = frozenset(
    {"AWS_MAX_ATTEMPTS", "AWS_RETRY_MODE", "AWS_REQUEST_CHECKSUM_CALCULATION", "AWS_RESPONSE_CHECKSUM_VALIDATION"}
)


def allowed_in_job(name: str) -> bool:
    """Whether a tenant's environment variable of this name may reach a Job."""
    if name in _ALLOWED_EXACTLY or name.upper() in _PROXIES:
        return True
    if _HUB_TUNING.match(name):
        return name not in _HUB_REFUSED and not name.endswith(_NAMES_A_PATH)
    return bool(_AWS.match(name)) and not name.endswith(_NAMES_A_PATH)


def allowed_with_typed_s3(name: str) -> bool:
    """Whether it may reach a Job whose RuntimeConfig has a typed `artifact.s3` block: tuning, no credentials.

    Source: interface facts, section 3, last sentence.
    """
    return allowed_in_job(name) and (not name.startswith("AWS_") or name in _TYPED_S3_TUNING)
