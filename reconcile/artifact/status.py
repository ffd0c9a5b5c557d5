"""What an AIMArtifact reports: its status, its configuration, the state of its claims. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from api import view
from api.jobs import Progress
from api.reasons import Reason
from api.view import Json
from api.words import parse_time
from reconcile.artifact.facts import ArtifactFacts
from reconcile.artifact.manifests import cache_storage_class, disk_storage_class
from reconcile.conditions import Condition, render_conditions
from reconcile.decision import Draft
from reconcile.objects import without_nulls


def render_status(
    seen: ArtifactFacts, phase: str, conditions: Iterable[Condition], fields: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the whole status; fields without a value are left out."""
    generation = view.generation_of(seen.artifact)
    rendered = render_conditions(seen.artifact, conditions, generation=generation, now=seen.now)
    status: dict[str, Any] = without_nulls(
        {"status": phase, "observedGeneration": generation, "conditions": rendered, **fields}
    )
    return status


def config_valid(seen: ArtifactFacts) -> Condition:
    """Return ConfigValid: the rules' errors, and a RuntimeConfig that is named and does not exist."""
    if seen.errors:
        message = "; ".join(str(error) for error in seen.errors)
        return Condition("ConfigValid", "False", seen.errors[0].reason, message)
    if seen.config.missing:
        message = f'spec.runtimeConfigName: no AIMRuntimeConfig or AIMClusterRuntimeConfig "{seen.config.name}" exists'
        return Condition("ConfigValid", "False", Reason.REFERENCE_NOT_FOUND, message)
    return Condition("ConfigValid", "True", Reason.CONFIG_VALID)


@dataclass(frozen=True, slots=True)
class _Claim:
    """A claim under report. `used`: a pod mounts it, so that it is bound soon whatever its class's binding mode."""

    condition: str
    claim: Json
    problem: str
    storage_class: str | None
    used: bool


def storage_conditions(seen: ArtifactFacts, draft: Draft) -> list[Condition]:
    """Return the conditions of the claims that exist."""
    spec = seen.config.spec
    claims: list[_Claim] = []
    if seen.claim is not None:  # the download starts with it
        shown = cache_storage_class(seen.artifact, spec)
        claims.append(_Claim("CacheStorageReady", seen.claim, seen.claim_problem, shown, used=True))
    if seen.disk_claim is not None:
        shown = disk_storage_class(seen.artifact, spec)
        claims.append(_Claim("AdapterDiskReady", seen.disk_claim, seen.disk_problem, shown, used=bool(seen.users)))
    return [_claim_condition(claim, seen, draft) for claim in claims]


def _claim_condition(reported: _Claim, seen: ArtifactFacts, draft: Draft) -> Condition:
    kind, claim = reported.condition, reported.claim
    shown = view.text(claim, "spec", "storageClassName") or reported.storage_class or "the cluster's default"
    where = f'claim "{view.name_of(claim)}" of storage class "{shown}"'
    if view.terminating(claim):
        message = f"{where} is being deleted; it is re-created once no pod mounts it"
        return Condition(kind, "False", Reason.CLAIM_TERMINATING, message)
    if view.text(claim, "status", "phase") == "Bound":
        return Condition(kind, "True", Reason.CLAIM_BOUND)
    if reported.problem:
        message = f"{where} is not provisioned: {reported.problem} (the class must support ReadWriteMany)"
        return Condition(kind, "False", Reason.CLAIM_PROVISIONING_FAILED, message)
    created = parse_time(view.dig(claim, "metadata", "creationTimestamp")) or seen.now
    bound_by = created + seen.settings.claim_bind_timeout
    if seen.now < bound_by or not reported.used:
        if seen.now < bound_by:
            draft.look_again(bound_by - seen.now)
        return Condition(kind, "False", Reason.CLAIM_PENDING, f"{where} is not bound yet")
    describe = f"kubectl describe pvc {view.name_of(claim)}"
    message = f"{where} is still not bound; the class must support ReadWriteMany: {describe}"
    return Condition(kind, "False", Reason.CLAIM_UNBOUND, message)


def render_progress(progress: Progress) -> dict[str, Any]:
    """Return status.progress."""
    return {
        "downloadedBytes": progress.downloaded_bytes,
        "totalBytes": progress.total_bytes,
        "percentage": progress.percentage,
        "displayPercentage": f"{progress.percentage} %",
    }


_UNITS = ((2**40, "TiB"), (2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"))


def display_size(size: Decimal | None) -> str | None:
    """Return a size in bytes for people, `51.2 GiB`."""
    if size is None:
        return None
    for factor, unit in _UNITS:
        if size >= factor:
            return f"{float(size) / factor:.1f} {unit}"
    return f"{int(size)} B"


def is_ready(artifact: Json | None) -> bool:
    """Whether a base model may be served."""
    return (
        view.condition(artifact, "Ready").get("status") == "True" and view.text(artifact, "status", "status") == "Ready"
    )
