"""The verdict over an AIMService, for those who ask about nothing else (the rules are in `service_rules`)."""

from __future__ import annotations

from api.errors import FieldError
from api.kinds import AIM_SERVICE
from api.view import Json
from rules.seen import DEFAULT_CONTEXT, Context, ServiceSeen
from rules.validate import judge_stored, validate
from rules.verdict import Verdict
from rules.world import World


def validate_service(
    new: Json, old: Json | None, world: World, *, request_version: str = "", context: Context = DEFAULT_CONTEXT
) -> Verdict:
    """Judge a request that creates or updates a service."""
    return validate(AIM_SERVICE, new, old, world, request_version=request_version, context=context)


def config_errors(service: Json, world: World, *, context: Context = DEFAULT_CONTEXT) -> list[FieldError]:
    """Return what makes a stored service unservable, sorted by field path; empty means ConfigValid.

    Findings about single adapters are among them; `see_service(…).adapter_findings` has those by adapter.
    """
    return judge_stored(AIM_SERVICE, service, world, context=context).errors


def see_service(service: Json, world: World, *, context: Context = DEFAULT_CONTEXT) -> ServiceSeen:
    """Return everything that follows from a service and the world: references, base, ceiling, findings (lazily)."""
    return ServiceSeen(AIM_SERVICE, service, None, world, context=context)
