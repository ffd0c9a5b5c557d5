"""The cache of a service's base model: which one serves, is it ready. Pure.

Source: docs/contract.md, Caches, Base resolution.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from api import view
from api.kinds import AIM_ARTIFACT, AIM_PROFILE
from api.names import LABEL_MODEL, LABEL_TEMPLATE
from api.reasons import Reason, spoken
from api.view import Json
from reconcile.conditions import Condition
from reconcile.decision import Draft
from reconcile.service.facts import ServiceFacts
from reconcile.service.manifests import (
    CacheOrigin,
    cache_kind,
    cache_name,
    render_cache,
    render_cache_with_disk,
    render_overlay,
)
from rules.pipeline import NO_TEMPLATE, Pipeline, effective_profile, without_template
from rules.references import Missing, Reference, Resolved, Unknown
from rules.seen import ServiceSeen
from rules.world import by_age

READY = "CacheReady"


@dataclass(frozen=True, slots=True)
class CacheView:
    """The cache in use (None: not chosen or not made yet), the bases in it, and their condition.

    `bases` are in the order of the model sources, empty objects for those that are not there yet. `resolved`: all that
    the service refers to was found, so that its plan can be trusted.
    """

    condition: Condition
    cache: Json | None = None
    bases: tuple[Json, ...] = ()
    resolved: bool = True
    failed: bool = False


def _template_origin(facts: ServiceSeen) -> CacheOrigin | None:
    pipeline, kind = facts.pipeline, cache_kind("template")
    if not pipeline.sources:
        return None
    if view.items(facts.new, "spec", "model", "custom", "modelSources"):
        return CacheOrigin(kind, view.name_of(facts.new), "Namespace", pipeline.sources)
    if isinstance(pipeline.template, Resolved):
        own = view.items(pipeline.template.obj, "spec", "modelSources")
        return CacheOrigin(kind, pipeline.template.name, pipeline.template.scope, () if own else pipeline.sources)
    if isinstance(pipeline.model, Resolved):
        return CacheOrigin(kind, pipeline.model.name, pipeline.model.scope, pipeline.sources)
    return None


def _overlay(facts: ServiceSeen) -> dict[str, Any] | None:
    """The service's own profile, where it overrides what must be cached."""
    profile = facts.pipeline.profile
    if not isinstance(profile, Resolved) or not view.items(facts.new, "spec", "profileOverrides", "modelSources"):
        return None
    return render_overlay(facts.new, effective_profile(profile.obj, facts.new))


def cache_origin(facts: ServiceSeen) -> CacheOrigin | None:
    """Return what the service's cache is made for; None while that is not resolved, or when nothing is cached."""
    if facts.pipeline.kind == "template":
        return _template_origin(facts)
    profile = facts.pipeline.profile
    if not isinstance(profile, Resolved) or not facts.pipeline.sources:
        return None
    overlay = _overlay(facts)
    if overlay is not None:
        return CacheOrigin(cache_kind("profile"), view.name_of(overlay), "Namespace")
    return CacheOrigin(cache_kind("profile"), profile.name, profile.scope)


def decide_cache(seen: ServiceFacts, draft: Draft, *, allowed: bool) -> CacheView:
    """Choose the cache, or make it, or have it ask for a disk; return its state.

    Args: `allowed`: the service may be served at all, so that things may be made for it.
    """
    waits = unresolved(seen.facts.pipeline) or _lost(seen)
    if waits is not None:
        return CacheView(waits, resolved=False)
    origin = cache_origin(seen.facts)
    if origin is None:
        if seen.facts.pipeline.kind == "profile":
            message = "the profile has no model sources: it cannot be served"
            return CacheView(Condition(READY, "False", Reason.NO_MODEL_SOURCES, message), resolved=False)
        if seen.facts.pipeline.image is None:
            return CacheView(
                Condition(READY, "False", Reason.NOTHING_TO_SERVE, "no image and no model is named"), resolved=False
            )
        return CacheView(Condition(READY, "True", Reason.NOTHING_TO_CACHE, "the image brings its own model"))
    if allowed and (overlay := _overlay(seen.facts)) is not None:
        draft.apply.append((AIM_PROFILE, overlay))
    cache = _choose(seen, draft, origin, allowed=allowed)
    bases = _bases(seen, cache)
    failed = any(view.text(base, "status", "status") == "Failed" for base in bases)
    return CacheView(_condition(cache, bases, seen.facts.pipeline), cache, bases, failed=failed)


def unresolved(pipeline: Pipeline) -> Condition | None:
    """Return what of profile, model and template is missing, unread or not chosen; None: nothing."""
    references: tuple[Reference | None, ...] = (pipeline.profile, pipeline.model, pipeline.template)
    for reference in references:
        if isinstance(reference, Missing):
            kinds = " or ".join(kind.kind for kind in reference.kinds)
            return Condition(READY, "False", Reason.REFERENCE_NOT_FOUND, f'no {kinds} "{reference.name}" exists yet')
        if isinstance(reference, Unknown):
            return Condition(READY, "False", Reason.REFERENCE_UNREADABLE, f'"{reference.name}" could not be read')
    if pipeline.kind == "template" and pipeline.template is None and isinstance(pipeline.model, Resolved):
        names = ", ".join(view.name_of(template) for template in pipeline.fitting)
        if names:
            cure = "set spec.defaultServiceTemplate of the model, or re-create the service with spec.template.name"
            message = f"several templates fit: {names}; {cure}"
            return Condition(READY, "False", Reason.TEMPLATE_AMBIGUOUS, message)
        if not pipeline.sources:
            message = f'no template fits model "{pipeline.model.name}", and the model has no modelSources'
            return Condition(READY, "False", Reason.TEMPLATE_NOT_FOUND, message)
    return None


def _lost(seen: ServiceFacts) -> Condition | None:
    """Return what a running server was made from and nothing replaces: without it, another server would be made.

    Model and template of a service never change, so that only a deletion can leave none (or a model's new image).
    """
    pipeline = seen.facts.pipeline
    if pipeline.kind != "template":
        return None
    made_from = view.mapping(seen.live, "metadata", "labels")
    if pipeline.model is None and made_from.get(LABEL_MODEL):
        message = f'no AIMModel or AIMClusterModel has image "{pipeline.image}" any more'
        return Condition(READY, "False", Reason.REFERENCE_NOT_FOUND, message)
    if pipeline.template is None and isinstance(pipeline.model, Resolved) and made_from.get(LABEL_TEMPLATE):
        message = f'no template fits model "{pipeline.model.name}" any more'
        return Condition(READY, "False", Reason.TEMPLATE_NOT_FOUND, message)
    return None


def _choose(seen: ServiceFacts, draft: Draft, origin: CacheOrigin, *, allowed: bool) -> Json | None:
    """Return the cache that serves: its own if it exists, else the oldest other one that suits, else a new one.

    A user's spec is never written: where a user's cache lacks the disk, a second cache asks for it.
    """
    service, wants_disk = seen.service, view.uses_adapters(seen.service)
    name = cache_name(service, origin)
    ours = next((cache for cache in seen.caches if view.name_of(cache) == name), None)
    if view.terminating(ours):
        return None
    if ours is not None:
        if allowed and wants_disk and view.dig(ours, "spec", "requiresAdapterDisk") is not True:
            draft.apply.append((origin.kind, render_cache_with_disk(origin.kind, ours)))
        return ours
    of_a_template = isinstance(seen.facts.pipeline.template, Resolved)
    for cache in by_age(seen.caches):
        if _suits(cache, service, origin, wants_disk=wants_disk, of_a_template=of_a_template):
            return cache
    if allowed:
        draft.apply.append((origin.kind, render_cache(service, origin, requires_disk=wants_disk)))
    return None


def _suits(cache: Json, service: Json, origin: CacheOrigin, *, wants_disk: bool, of_a_template: bool) -> bool:
    """Whether a cache that another user or program made may serve this service.

    A template's cache that names no sources (`of_a_template`) holds what the template, or else its model, says.
    """
    if (
        view.terminating(cache)
        or view.caching_mode(service) == "Dedicated"
        or view.text(cache, "spec", "mode") == "Dedicated"
    ):
        return False
    scope = view.text(cache, "spec", "profileScope") or view.text(cache, "spec", "templateScope")
    if view.cached_name(cache) != origin.name or scope not in (None, origin.scope):
        return False
    own = _uris(view.items(cache, "spec", "modelSources"))
    if own != _uris(origin.sources) and (own or not of_a_template):
        return False
    return not wants_disk or view.dig(cache, "spec", "requiresAdapterDisk") is True


def _uris(sources: Sequence[Any]) -> set[str]:
    return {uri for source in sources if (uri := view.text(source, "sourceUri"))}


def _bases(seen: ServiceFacts, cache: Json | None) -> tuple[Json, ...]:
    """The base artifact of each model source, an empty object where it is not there (or on its way out)."""
    sources = seen.facts.pipeline.sources or ()
    if len(sources) == 1:
        return (seen.base,)
    held: dict[str, Json] = {}
    for entry in view.mapping(cache, "status", "artifacts").values():
        name = view.text(entry, "name")
        artifact = seen.facts.world.get(AIM_ARTIFACT, view.namespace_of(seen.service), name) if name else None
        if artifact is not None and not view.terminating(artifact):
            held[view.source_uri(artifact)] = artifact
    return tuple(held.get(view.text(source, "sourceUri") or "", view.EMPTY) for source in sources)


def _condition(cache: Json | None, bases: Sequence[Json], pipeline: Pipeline) -> Condition:
    if bases and all(view.text(base, "status", "status") == "Ready" for base in bases):
        return Condition(READY, "True", Reason.ALL_CACHES_READY, NO_TEMPLATE if without_template(pipeline) else "")
    waiting = [base for base in bases if base and view.text(base, "status", "status") != "Ready"]
    if waiting:
        return Condition(READY, "False", Reason.CACHES_NOT_READY, "; ".join(_words(base) for base in waiting))
    if cache is None:
        return Condition(READY, "False", Reason.CREATING_CACHES, "the cache is not created yet")
    reported = view.condition(cache, "ArtifactsReady")
    if reported.get("status") == "True":  # its artifacts are not those of the present sources any more
        return Condition(READY, "False", Reason.CREATING_CACHES, f'cache "{view.name_of(cache)}" has not caught up yet')
    reason = spoken(view.text(reported, "reason") or Reason.CREATING_CACHES)
    return Condition(READY, "False", reason, view.text(reported, "message") or "waiting for the cache")


def _words(base: Json) -> str:
    ready = view.condition(base, "Ready")
    detail = ": ".join(word for word in (view.text(ready, "reason"), view.text(ready, "message")) if word)
    words = f'base artifact "{view.name_of(base)}" is not ready' + (f": {detail}" if detail else "")
    problem = storage_problem(base)
    return f"{words}; {problem}" if problem else words


_STORAGE_TROUBLE = frozenset({Reason.CLAIM_UNBOUND, Reason.CLAIM_PROVISIONING_FAILED, Reason.CLAIM_TERMINATING})


def storage_problem(base: Json) -> str:
    """What is wrong with the base's claims, for people who look only at the service."""
    for kind in ("CacheStorageReady", "AdapterDiskReady"):
        entry = view.condition(base, kind)
        if entry.get("status") == "False" and entry.get("reason") in _STORAGE_TROUBLE:
            return view.text(entry, "message") or ""
    return ""
