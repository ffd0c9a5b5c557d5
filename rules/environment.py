"""Which environment variables a user may set, and where (docs/contract.md, Job environment, Predictor environment)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from api import view
from api.job_env import ALLOWED_WORDS as ALLOWED_JOB_ENV_WORDS
from api.job_env import RESERVED_PREDICTOR_ENV as RESERVED_ENV
from api.job_env import allowed_in_job as job_env_allowed
from api.job_env import allowed_with_typed_s3 as job_env_allowed_beside_typed_s3
from api.view import Json

__all__ = [
    "ADAPTER_ENV_PREFIX",
    "ALLOWED_JOB_ENV_WORDS",
    "PREDICTOR_ENV",
    "RESERVED_ENV",
    "env_keys",
    "env_names",
    "job_env_allowed",
    "job_env_allowed_beside_typed_s3",
    "merge_env",
    "usable_env_entry",
]

PREDICTOR_ENV = frozenset(
    {"AIM_CACHE_PATH", "AIM_MODEL_ID", "AIM_ID", "AIM_PROFILE_ID", "AIM_ENGINE", "AIM_METRIC", "AIM_PRECISION"}
)
"""Set by the reconciler on every predictor; a user's entry of the same name has no effect."""

ADAPTER_ENV_PREFIX = "AIM_ADAPTER_"


def env_names(obj: object, *path: str) -> Iterator[tuple[str, str]]:
    """Return (field path of the name, name) for each well-formed entry of an env list."""
    prefix = ".".join(path)
    for index, entry in enumerate(view.items(obj, *path)):
        name = view.text(entry, "name")
        if name is not None:
            yield f"{prefix}[{index}].name", name


def usable_env_entry(entry: Json) -> bool:
    """Whether a pod can use an entry: a valid name, and a value from one place (the rules of Kubernetes 1.32)."""
    name, source = entry.get("name"), entry.get("valueFrom")
    if not isinstance(name, str) or "=" in name or not name.isascii() or not name.isprintable():
        return False
    return source is None or (not entry.get("value") and isinstance(source, Mapping) and _one_given(source))


def _one_given(source: Json) -> bool:
    return len([part for part in source.values() if part is not None]) == 1


def env_keys(obj: object, *path: str) -> Iterator[tuple[str, str]]:
    """Return (field path, name) for each key of an env map."""
    holder = view.dig(obj, *path)
    if isinstance(holder, dict):
        prefix = ".".join(path)
        for name in holder:
            yield f"{prefix}[{name}]", name


def merge_env(*lists: Iterable[object]) -> dict[str, dict[str, Any]]:
    """Return name → copy of the entry of several env lists: a later list wins, the first place is kept."""
    merged: dict[str, dict[str, Any]] = {}
    for entries in lists:
        for entry in entries:
            name = view.text(entry, "name")
            if name is not None and isinstance(entry, Mapping):
                merged[name] = dict(entry)
    return merged
