"""A review of an AIMService, as tests ask for it."""

from __future__ import annotations

from api.kinds import AIM_SERVICE
from api.view import Json
from rules.seen import DEFAULT_CONTEXT, Context
from rules.validate import validate
from rules.verdict import Verdict
from rules.world import World


def validate_service(
    new: Json, old: Json | None, world: World, *, request_version: str = "", context: Context = DEFAULT_CONTEXT
) -> Verdict:
    """Check a request that creates or updates a service."""
    return validate(AIM_SERVICE, new, old, world, request_version=request_version, context=context)
