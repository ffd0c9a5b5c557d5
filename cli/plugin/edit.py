"""Changes that people ask for by name: which patch, on which object. Pure.

Lists are patched whole, with the resource version that they were read at: an edit of someone else in between is a
conflict, and the change is worked out again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from api import view
from api.kinds import AIM_ARTIFACT, AIM_SERVICE, AIM_SERVICE_V1ALPHA1, Kind
from api.names import ANNOTATION_RESTAGE, ANNOTATION_RETRY_STAGING, RANK_CEILINGS
from api.reasons import Reason
from api.source_uri import SourceUriError, parse_source_uri, source_model_id
from api.view import Json
from disk.reasons import REASONS as DISK_REASONS
from rules.validate import validate
from rules.world import World, address
from rules.worlds import OverlayWorld


class EditError(ValueError):
    """What was asked for makes no sense for this object; the text says why and what to do instead."""


@dataclass(frozen=True, slots=True)
class Edit:
    """A merge patch of one object. `says` is told once it is done; an empty patch: nothing is to be done."""

    kind: Kind
    namespace: str
    name: str
    patch: Mapping[str, Any] = field(default_factory=dict)
    says: str = ""


def _of_service(service: Json, spec: Mapping[str, Any], says: str) -> Edit:
    """A service of the template pipeline with adapters is written as v1alpha1: v1alpha2 wants a profile for them."""
    kind = AIM_SERVICE if view.uses_profile_pipeline(service) else AIM_SERVICE_V1ALPHA1
    version = view.text(service, "metadata", "resourceVersion")
    patch = {"metadata": {"resourceVersion": version}, "spec": spec}
    return Edit(kind, view.namespace_of(service), view.name_of(service), patch, says)


def add_adapters(service: Json, adapters: Sequence[str]) -> Edit:
    """Return the edit that declares adapters; those that are declared already stay. Raises: EditError."""
    _demand_dynamic(service, "added to")
    declared = [dict(entry) for entry in view.items(service, "spec", "adapters") if isinstance(entry, Mapping)]
    names = {ref.name for ref in view.adapter_refs(service)}
    fresh = [name for name in dict.fromkeys(adapters) if name not in names]
    if not fresh:
        return Edit(
            AIM_SERVICE,
            view.namespace_of(service),
            view.name_of(service),
            {},
            f"already declared: {', '.join(adapters)}",
        )
    entries = [*declared, *({"kind": AIM_ARTIFACT.kind, "name": name} for name in fresh)]
    return _of_service(service, {"adapters": entries}, f"declared: {', '.join(fresh)}")


def remove_adapters(service: Json, adapters: Sequence[str]) -> Edit:
    """Return the edit that takes adapters away; those that are not declared are passed over. Raises: EditError."""
    _demand_dynamic(service, "removed from")
    gone = set(adapters)
    kept = [entry for entry in view.items(service, "spec", "adapters") if view.dig(entry, "name") not in gone]
    removed = [ref.name for ref in view.adapter_refs(service) if ref.name in gone]
    if not removed:
        return Edit(
            AIM_SERVICE, view.namespace_of(service), view.name_of(service), {}, f"not declared: {', '.join(adapters)}"
        )
    return _of_service(service, {"adapters": kept}, f"removed: {', '.join(removed)}")


def _demand_dynamic(service: Json, doing: str) -> None:
    if view.adapter_mode(service) == "static":
        raise EditError(
            f'"{view.name_of(service)}" is static: its list is fixed at creation, nothing can be {doing} it '
            "(delete it and create it with the new list, or with adapterMode: dynamic)"
        )


def set_ceiling(service: Json, rank: int) -> Edit:
    """Return the edit that sets the service's own rank ceiling. Raises: EditError."""
    if view.adapter_mode(service) == "static":
        raise EditError(f'"{view.name_of(service)}" is static: its ceiling follows from the largest declared rank')
    if rank not in RANK_CEILINGS:
        raise EditError(f"{rank} is no supported ceiling: {', '.join(str(one) for one in RANK_CEILINGS)}")
    if view.dig(service, "spec", "adapterRuntime", "maxRank") == rank:
        return Edit(
            AIM_SERVICE, view.namespace_of(service), view.name_of(service), {}, f"the ceiling is {rank} already"
        )
    return _of_service(service, {"adapterRuntime": {"maxRank": rank}}, f"rank ceiling: {rank}")


def set_rank(artifact: Json, rank: int) -> Edit:
    """Return the edit that declares an adapter's rank. Raises: EditError."""
    if view.text(artifact, "spec", "type") != "adapter":
        raise EditError(f'AIMArtifact "{view.name_of(artifact)}" is no adapter')
    if rank < 1:
        raise EditError("a rank is at least 1")
    if view.dig(artifact, "spec", "rank") == rank:
        return Edit(
            AIM_ARTIFACT, view.namespace_of(artifact), view.name_of(artifact), {}, f"its rank is {rank} already"
        )
    version = view.text(artifact, "metadata", "resourceVersion")
    patch = {"metadata": {"resourceVersion": version}, "spec": {"rank": rank}}
    return Edit(
        AIM_ARTIFACT,
        view.namespace_of(artifact),
        view.name_of(artifact),
        patch,
        f"rank of {view.name_of(artifact)}: {rank}",
    )


def ask_again(kind: Kind, namespace: str, name: str, *, restage: bool, word: str) -> Edit:
    """Return the edit that asks for another staging; any new `word` counts once."""
    key = ANNOTATION_RESTAGE if restage else ANNOTATION_RETRY_STAGING
    says = "it is fetched again" if restage else "it is tried again"
    return Edit(kind, namespace, name, {"metadata": {"annotations": {key: word}}}, f"{kind.kind} {name}: {says}")


@dataclass(frozen=True, slots=True)
class NewAdapter:
    """What `add --source` says about an adapter that has no artifact yet."""

    source: str
    model_id: str | None = None
    rank: int | None = None
    compatible_with: tuple[str, ...] = ()


def artifact_of(name: str, namespace: str, new: NewAdapter, base_model_id: str | None) -> dict[str, Any]:
    """Return the AIMArtifact of a new adapter. Raises: EditError when what it needs is neither said nor known."""
    try:
        parse_source_uri(new.source)
    except SourceUriError as error:
        raise EditError(f'"{new.source}" is no source: {error}') from None
    identity = new.model_id or source_model_id(new.source)
    if identity is None:
        raise EditError("say --model-id ORG/NAME: the source does not tell it")
    fits = list(new.compatible_with) or ([base_model_id] if base_model_id else [])
    if not fits:
        raise EditError("say --compatible-with ORG/BASE: the service's base is not known yet")
    spec: dict[str, Any] = {"type": "adapter", "sourceUri": new.source, "modelId": identity, "compatibleWith": fits}
    if new.rank is not None:
        spec["rank"] = new.rank
    metadata = {"name": name, "namespace": namespace}
    return {"apiVersion": AIM_ARTIFACT.api_version, "kind": AIM_ARTIFACT.kind, "metadata": metadata, "spec": spec}


def demand_fit(service: Json, artifact: Json, world: World) -> None:
    """Ask the rules about the service with a new adapter beside its others, before anything is made.

    Raises: EditError with the first thing that would be refused.
    """
    added = add_adapters(service, [view.name_of(artifact)]).patch.get("spec", {})
    there = {address(AIM_ARTIFACT, view.namespace_of(artifact), view.name_of(artifact)): artifact}
    edited = {**service, "spec": {**view.spec_of(service), **added}}
    for error in validate(AIM_SERVICE, edited, service, OverlayWorld(world, there)).errors:
        raise EditError(f"nothing was made, for the service would be refused: {error.path}: {error.message}")


def demand_same(artifact: Json, new: NewAdapter) -> None:
    """Check that an artifact that is there already is the one that was meant. Raises: EditError."""
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
    """How far what is waited for has come. `failed`: it will not come by itself."""

    done: bool
    says: str
    failed: bool = False


def wait_for_adapters(service: Json, adapters: Sequence[str]) -> Waited:
    """Whether all adapters are served (or, without a running server, on the disk)."""
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
    """As `wait_for_adapters`, but what an adapter says of itself counts only when it was really tried again.

    `before`: the service as it was when the retry was asked for. What is staged is tried again by `restage` only.
    """
    old = {view.dig(entry, "name"): entry for entry in view.items(before, "status", "adapters")}
    now = {view.dig(entry, "name"): entry for entry in view.items(service, "status", "adapters")}
    plain = wait_for_adapters(service, adapters)
    stale = [
        name
        for name in adapters
        if (restage or view.text(old.get(name), "state") == "Failed")
        and (view.integer(now.get(name), "attempts") or 0) <= (view.integer(old.get(name), "attempts") or 0)
        and (view.text(now.get(name), "lastError") or Reason.JOB_FAILED).partition(":")[0] in {*DISK_REASONS, *_OF_JOBS}
    ]
    if not stale:
        return plain
    return Waited(False, f"{plain.says} (not tried again yet: {', '.join(stale)})")


_OF_JOBS = frozenset({Reason.JOB_FAILED, Reason.JOB_DEADLINE_EXCEEDED})


def wait_for_removal(service: Json, adapters: Sequence[str]) -> Waited:
    """Whether the adapters are out of the status: no server lists them any more."""
    left = {view.dig(entry, "name"): view.text(entry, "state") for entry in view.items(service, "status", "adapters")}
    words = [f"{name} {left[name]}" for name in adapters if name in left]
    return Waited(not words, "; ".join(words) or "gone")


def wait_for_ceiling(service: Json, rank: int) -> Waited:
    """Whether the ceiling holds and the pods run with it."""
    now = view.dig(service, "status", "adapterMaxRank")
    handled = (view.dig(service, "status", "observedGeneration") or 0) >= (
        view.dig(service, "metadata", "generation") or 0
    )
    state = view.text(service, "status", "status") or "Pending"
    done = now == rank and handled and state in ("Running", "Degraded")
    return Waited(done, f"ceiling {now if now is not None else 'unknown'}, service {state}", state == "Failed")
