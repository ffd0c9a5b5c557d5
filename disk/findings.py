"""What preflight reports about an adapter, and what it is held against. Pure."""

from __future__ import annotations

import json
from dataclasses import dataclass

from api.reasons import Reason


@dataclass(frozen=True, slots=True)
class Finding:
    """An error or a warning. `reason`: of the group `adapter` or `warning`."""

    reason: Reason
    detail: str


@dataclass(frozen=True, slots=True)
class Limits:
    """The requirements of the server and of the administrator."""

    max_rank: int  # the ceiling
    declared_rank: int
    base_model_id: str | None = None
    strict_base: bool = False
    allow_pickle: bool = True


@dataclass(frozen=True, slots=True)
class Verdict:
    """The outcome. `failure`: the first finding that rejects the adapter. `rank`: the real rank, if known."""

    failure: Finding | None
    warnings: tuple[Finding, ...] = ()
    rank: int | None = None
    base_name: str | None = None


def shown(value: object) -> str:
    """Return a value quoted for people: one line, bounded, without control characters."""
    try:
        text = json.dumps(value, ensure_ascii=True)
    except (TypeError, ValueError, RecursionError):
        text = f"a {type(value).__name__}"
    return text if len(text) <= 160 else f"{text[:160]}…"
