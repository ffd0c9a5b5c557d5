"""The changes behind `add`, `remove`, `retry` and `rank`: which patch, on which object. Pure.

A list is patched as a whole, with the resource version that it was read at. If another writer changes the object in
between, the API server answers with a conflict, and the caller computes the patch again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from api import view
from api.kinds import AIM_ARTIFACT, AIM_SERVICE, AIM_SERVICE_V1ALPHA1, Kind
from api.names import ANNOTATION_RESTAGE, ANNOTATION_RETRY_STAGING, RANK_CEILINGS
from api.reasons import ENDS_OF_JOBS, Reason
from api.source_uri import SourceUriError, parse_source_uri, source_model_id
from api.view import Json
from rules.validate import validate
from rules.world import World, address
from rules.worlds import OverlayWorld


class EditError(ValueError):
    """The change is not possible for this object; the text says why and what to do instead."""


@dataclass(frozen=True, slots=True)
class Edit:
    """A merge patch of one object. `says` is printed once it is applied; an empty patch: nothing to do."""

    kind: Kind
    namespace: str
    name: str
    patch: Mapping[str, Any] = field(default_factory=dict)
    says: str = ""


def _of_service(service: Json, spec: Mapping[str, Any], says: str) -> Edit:
    """A service of the template pipeline with adapters is written as v1alpha1: v1alpha2 requires a profile."""
    kind = AIM_SERVICE if view.uses_profile_pipeline(service) else AIM_SERVICE_V1ALPHA1
    version = view.text(service, "metadata", "resourceVersion")
    patch = {"metadata": {"resourceVersion": version}, "spec": spec}
    return Edit(kind, view.namespace_of(service), view.name_of(service), patch, says)


def add_adapters(service: Json, adapters: Sequence[str]) -> Edit:
    """Return the edit that declares adapters; already declared ones stay. Raises: EditError."""
    _demand_dynamic(service)
    declared = [dict(entry) for entry in view.items(service, "spec", "adapters") if isinstance(entry, Mapping)]
    names = {ref.name for ref in view.adapter_refs(service)}
    fresh = [name for name in dict.fromkeys(adapters) if name not in names]
    if not fresh:
        return _nothing_to_do(AIM_SERVICE, service, f"already declared: {', '.join(adapters)}")
    entries = [*declared, *({"kind": AIM_ARTIFACT.kind, "name": name} for name in fresh)]
    return _of_service(service, {"adapters": entries}, f"declared: {', '.join(fresh)}")


def _nothing_to_do(kind: Kind, obj: Json, says: str) -> Edit:
    return Edit(kind, view.namespace_of(obj), view.name_of(obj), {}, says)


def remove_adapters(service: Json, adapters: Sequence[str], *, ignore_not_found: bool = False) -> Edit:
    """Return the edit that removes adapters.

    Raises: EditError for an adapter that is not declared, unless `ignore_not_found`.
    """
    _demand_dynamic(service)
    gone = set(adapters)
    kept = [entry for entry in view.items(service, "spec", "adapters") if view.dig(entry, "name") not in gone]
    declared = [ref.name for ref in view.adapter_refs(service)]
    removed = [name for name in declared if name in gone]
    unknown = [name for name in dict.fromkeys(adapters) if name not in declared]
    if unknown and not ignore_not_found:
        names = ", ".join(f'"{name}"' for name in unknown)
        raise EditError(
            f'"{view.name_of(service)}" does not declare {names} (declared: {", ".join(declared) or "none"}); '
            "nothing was removed"
        )
    if not removed:
        return _nothing_to_do(AIM_SERVICE, service, f"not declared: {', '.join(adapters)}")
    return _of_service(service, {"adapters": kept}, f"removed: {', '.join(removed)}")


def _demand_dynamic(service: Json) -> None:
    if view.adapter_mode(service) == "static":
        raise EditError(
            f'"{view.name_of(service)}" is static: its list of adapters is fixed at creation '
            "(delete the service and create it with the new list, or with adapterMode: dynamic)"
        )


def set_ceiling(service: Json, rank: int) -> Edit:
    """Return the edit that sets the service's own rank ceiling. Raises: EditError."""
    if view.adapter_mode(service) == "static":
        raise EditError(f'"{view.name_of(service)}" is static: its ceiling is derived from the largest declared rank')
    if rank not in RANK_CEILINGS:
        raise EditError(f"{rank} is not a supported ceiling; supported: {', '.join(str(one) for one in RANK_CEILINGS)}")
    if view.dig(service, "spec", "adapterRuntime", "maxRank") == rank:
        return _nothing_to_do(AIM_SERVICE, service, f"the ceiling is already {rank}")
    return _of_service(service, {"adapterRuntime": {"maxRank": rank}}, f"rank ceiling: {rank}")


def set_rank(artifact: Json, rank: int) -> Edit:
    """Return the edit that declares an adapter's rank. Raises: EditError."""
    if view.text(artifact, "spec", "type") != "adapter":
        raise EditError(f'AIMArtifact "{view.name_of(artifact)}" is not an adapter')
    if rank < 1:
        raise EditError("a rank must be at least 1")
    if view.dig(artifact, "spec", "rank") == rank:
        return _nothing_to_do(AIM_ARTIFACT, artifact, f"the rank of {view.name_of(artifact)} is already {rank}")
    version = view.text(artifact, "metadata", "resourceVersion")
    patch = {"metadata": {"resourceVersion": version}, "spec": {"rank": rank}}
    return Edit(
        AIM_ARTIFACT,
        view.namespace_of(artifact),
        view.name_of(artifact),
        patch,
        f"rank of {view.name_of(artifact)}: {rank}",
    )


def retry_staging(service: Json, adapter: str | None, *, restage: bool, word: str) -> Edit:
    """Return the edit that requests another staging: of one adapter, else of the service's failed ones.

    Each new `word` counts once.
    """
    kind, name = (AIM_ARTIFACT, adapter) if adapter is not None else (AIM_SERVICE, view.name_of(service))
    if adapter is None and not restage and not _has_failed(service):
        return _nothing_to_do(kind, service, f"nothing to retry: no adapter of {name} has failed")
    key = ANNOTATION_RESTAGE if restage else ANNOTATION_RETRY_STAGING
    says = f"{kind.kind} {name}: {'download' if restage else 'retry'} requested"
    return Edit(kind, view.namespace_of(service), name, {"metadata": {"annotations": {key: word}}}, says)


def _has_failed(service: Json) -> bool:
    return any(view.text(entry, "state") == "Failed" for entry in view.items(service, "status", "adapters"))


def restarts(service: Json, rank: int) -> str:
    """Return what a new ceiling does to running pods, empty when none restarts."""
    pods = view.integer(service, "status", "runtime", "currentReplicas") or 0
    now = view.integer(service, "status", "adapterMaxRank")
    if not pods or now == rank:
        return ""
    many = "1 pod restarts" if pods == 1 else f"{pods} pods restart"
    return f"the ceiling changes from {now} to {rank}: {many}"


@dataclass(frozen=True, slots=True)
class NewAdapter:
    """What `add --source` says about an adapter that has no artifact yet."""

    source: str
    model_id: str | None = None
    rank: int | None = None
    compatible_with: tuple[str, ...] = ()


def artifact_of(name: str, namespace: str, new: NewAdapter, base_model_id: str | None) -> dict[str, Any]:
    """Return the AIMArtifact of a new adapter. Raises: EditError when a field is neither given nor known."""
    try:
        parse_source_uri(new.source)
    except SourceUriError as error:
        raise EditError(f'"{new.source}" is not a valid source: {error}') from None
    identity = new.model_id or source_model_id(new.source)
    if identity is None:
        raise EditError("pass --model-id ORG/NAME: it does not follow from the source")
    fits = list(new.compatible_with) or ([base_model_id] if base_model_id else [])
    if not fits:
        raise EditError("pass --compatible-with ORG/BASE: the base model of the service is not known yet")
    spec: dict[str, Any] = {"type": "adapter", "sourceUri": new.source, "modelId": identity, "compatibleWith": fits}
    if new.rank is not None:
        spec["rank"] = new.rank
    metadata = {"name": name, "namespace": namespace}
    return {"apiVersion": AIM_ARTIFACT.api_version, "kind": AIM_ARTIFACT.kind, "metadata": metadata, "spec": spec}


def demand_fit(service: Json, artifact: Json, world: World) -> None:
    """Check the service with the new adapter against the rules, before anything is created.

    Raises: EditError with the first error.
    """
    added = add_adapters(service, [view.name_of(artifact)]).patch.get("spec", {})
    there = {address(AIM_ARTIFACT, view.namespace_of(artifact), view.name_of(artifact)): artifact}
    edited = {**service, "spec": {**view.spec_of(service), **added}}
    for error in validate(AIM_SERVICE, edited, service, OverlayWorld(world, there)).errors:
        raise EditError(f"nothing was created: the service would be refused: {error.path}: {error.message}")


def demand_same(artifact: Json, new: NewAdapter) -> None:
    """Check that an existing artifact is the one that was meant. Raises: EditError."""
    name, source = view.name_of(artifact), view.text(artifact, "spec", "sourceUri")
    if source != new.source:
        raise EditError(f'AIMArtifact "{name}" exists with another source: {source}')
    if new.rank is not None and view.declared_rank(artifact) != new.rank:
        raise EditError(
            f'AIMArtifact "{name}" exists with rank {view.declared_rank(artifact)} '
            f"(change it: kubectl aim-adapters rank SERVICE {name} {new.rank})"
        )


@dataclass(frozen=True, slots=True)
class Waited:
    """How far a wait has come. `failed`: it does not succeed without a change."""

    done: bool
    says: str
    failed: bool = False


def wait_for_adapters(service: Json, adapters: Sequence[str]) -> Waited:
    """Return whether all adapters are served (or, without a running server, on the disk)."""
    entries = {view.dig(entry, "name"): entry for entry in view.items(service, "status", "adapters")}
    serving = bool(view.dig(service, "status", "runtime", "currentReplicas"))
    words, done, failed = [], True, False
    for name in adapters:
        entry = entries.get(name)
        state = view.text(entry, "state") or "Pending"
        error = view.text(entry, "lastError") or ""
        percent = view.dig(entry, "progress", "percentage")
        words.append(
            f"{name} {state}" + (f" {percent} %" if percent is not None else "") + (f": {error}" if error else "")
        )
        done = done and (state == "Loaded" or (state == "Downloaded" and not serving))
        failed = failed or state in ("Failed", "LoadRejected")
    return Waited(done, "; ".join(words), failed)


def wait_for_retry(service: Json, adapters: Sequence[str], before: Json, *, restage: bool) -> Waited:
    """As `wait_for_adapters`, but the state of an adapter counts only after the retry.

    `before`: the service when the retry was requested. Only `restage` stages a staged adapter again.
    """
    old = {view.dig(entry, "name"): entry for entry in view.items(before, "status", "adapters")}
    now = {view.dig(entry, "name"): entry for entry in view.items(service, "status", "adapters")}
    plain = wait_for_adapters(service, adapters)
    stale = [
        name
        for name in adapters
        if (restage or view.text(old.get(name), "state") == "Failed")
        and (view.integer(now.get(name), "attempts") or 0) <= (view.integer(old.get(name), "attempts") or 0)
        and (view.text(now.get(name), "lastError") or Reason.JOB_FAILED).partition(":")[0] in ENDS_OF_JOBS
    ]
    if not stale:
        return plain
    return Waited(False, f"{plain.says} (not retried yet: {', '.join(stale)})")


def wait_for_removal(service: Json, adapters: Sequence[str]) -> Waited:
    """Return whether the adapters are out of the status: no server lists them any more."""
    left = {view.dig(entry, "name"): view.text(entry, "state") for entry in view.items(service, "status", "adapters")}
    words = [f"{name} {left[name]}" for name in adapters if name in left]
    return Waited(not words, "; ".join(words) or "removed")


def wait_for_ceiling(service: Json, rank: int) -> Waited:
    """Return whether the ceiling is set and the pods run with it."""
    now = view.dig(service, "status", "adapterMaxRank")
    handled = (view.dig(service, "status", "observedGeneration") or 0) >= (
        view.dig(service, "metadata", "generation") or 0
    )
    state = view.text(service, "status", "status") or "Pending"
    done = now == rank and handled and state in ("Running", "Degraded")
    return Waited(done, f"ceiling {now if now is not None else 'unknown'}, service {state}", state == "Failed")
