"""Words that several conditions of a service share: what is missing, what is on its way, and the way out. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from api import view
from api.view import Json
from reconcile.service.adapters import AdaptersDecision
from reconcile.service.cache import storage_problem, unresolved
from reconcile.service.entry import on_its_way
from reconcile.service.facts import ServiceFacts
from reconcile.service.loading import ON_DISK
from reconcile.service.subtree import Disk


def unreadable(seen: ServiceFacts) -> str:
    """Say that the RuntimeConfig cannot be read."""
    return f'RuntimeConfig "{seen.facts.config.name}" cannot be read'


def no_disk(seen: ServiceFacts) -> str:
    """Say why there is no adapter disk."""
    if not seen.base:
        if not seen.facts.pipeline.sources:
            if (waits := unresolved(seen.facts.pipeline)) is not None:
                return f"no base model is known: {waits.message}"
            return "no base model is known: neither profile, template nor model names model sources"
        return "the base model is not resolved yet"
    words = f'base artifact "{view.name_of(seen.base)}" has no adapter disk yet'
    if seen.disk_claim_name:
        words = f'claim "{seen.disk_claim_name}" of base artifact "{view.name_of(seen.base)}" is '
        if view.terminating(seen.disk_claim):
            return words + "being deleted; it is re-created once no pod mounts it"
        words += "not there"
    problem = storage_problem(seen.base)
    return f"{words}: {problem}" if problem else words


def moving(seen: ServiceFacts, disk: Disk, adapters: AdaptersDecision) -> str:
    """Say which disk the pods use while that is not the present one, what the present one lacks, and the way out."""
    kept = seen.wiring
    if kept is None or not view.uses_adapters(seen.service):
        return ""
    if kept.claim == disk.claim:
        old = sorted({pod.claim for pod in seen.pods if pod.claim and pod.claim != kept.claim})
        return f"pods that are being replaced still mount {_claims(old)}" if old else ""
    missing = [entry for entry in adapters.staging if entry["state"] not in ON_DISK]
    stuck = [entry["name"] for entry in missing if not on_its_way(entry)]
    until = _until(disk, missing)
    if seen.stranded:
        said = f'no pod can start{until}: claim "{kept.claim}" that they mount was deleted with its base'
        cure = "; for"
    else:
        said = f'the pods keep claim "{kept.claim}"{until}'
        cure = "; what is served would be lost: for"
        stuck = [name for name in stuck if name in adapters.awaited]
    return f"{said}{cure} {', '.join(stuck)}, {_way_out(seen)}" if stuck and until else said


def _until(disk: Disk, missing: Sequence[Json]) -> str:
    if not disk.claim:
        return ""
    there = ", ".join(f"{entry['name']} is {entry['state']}" for entry in missing)
    return f' until claim "{disk.claim}" holds all adapters' + (f" ({there} there)" if there else "")


def _way_out(seen: ServiceFacts) -> str:
    words = "fix what lastError reports"
    if view.adapter_mode(seen.service) == "dynamic":
        return f"{words} or remove it from spec.adapters"
    return f"{words} or re-create the service without it" if seen.stranded else words


def _claims(names: list[str]) -> str:
    return ("claim " if len(names) == 1 else "claims ") + ", ".join(f'"{name}"' for name in names)


def provisioning(seen: ServiceFacts, disk: Disk) -> str:
    """Say that the service's directory is being made, and what blocks it: the disk, or the Job."""
    problem = storage_problem(seen.base) or disk.problem
    if seen.errors and not seen.may_prepare:
        return (
            "the service's directory on the adapter disk is created once the configuration is valid (see ConfigValid)"
        )
    words = "the service's directory on the adapter disk is being created"
    return f"{words}: {problem}" if problem else words
