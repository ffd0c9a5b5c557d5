"""The base of a service: the model artifact that its adapters bind to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from api import view
from api.kinds import AIM_ARTIFACT, AIM_PROFILE_CACHE, AIM_TEMPLATE_CACHE
from api.record import record
from api.view import Json
from rules.pipeline import Pipeline, resolve_pipeline
from rules.references import Ref
from rules.world import Index, World


@record
class BaseResolution:
    """The base-model artifact that a service's adapters bind to.

    known: `artifact` exists and is what the cache resolved, or would adopt · guessed: only the model source implies
    `model_id` · unknown: not even that, so nothing is checked · ambiguous: several model sources (`count`).
    """

    state: Literal["known", "guessed", "unknown", "ambiguous"]
    pipeline: Pipeline
    artifact: Json
    model_id: str | None
    source: Json
    count: int

    @property
    def known(self) -> bool:
        """Whether compatibility can be checked."""
        return self.state == "known"

    @property
    def name(self) -> str:
        """Name of the base artifact, empty unless known."""
        return view.name_of(self.artifact)

    @property
    def looked_at(self) -> tuple[Ref, ...]:
        """Every object that this depends on."""
        if not self.known:
            return self.pipeline.looked_at
        return (*self.pipeline.looked_at, Ref(AIM_ARTIFACT, view.namespace_of(self.artifact), self.name))


def resolve_base(world: World, service: object, pipeline: Pipeline | None = None) -> BaseResolution:
    """Return the base of a service: the artifact that its cache resolved, else the one that a cache would adopt.

    Source: docs/contract.md, Base resolution.
    """
    pipeline = pipeline or resolve_pipeline(world, service)
    if not pipeline.sources:
        return BaseResolution("unknown", pipeline, view.EMPTY, None, view.EMPTY, 0)
    count = len(pipeline.sources)
    if count > 1:
        return BaseResolution("ambiguous", pipeline, view.EMPTY, None, view.EMPTY, count)
    source = pipeline.sources[0]
    if source.__class__ is not dict and not isinstance(source, Mapping):
        source = view.EMPTY
    guess = view.model_id(source)
    namespace = view.namespace_of(service)
    artifact = cached_artifact(world, service, pipeline, source) or adoptable_artifact(
        world, namespace, view.text(source, "sourceUri")
    )
    if artifact is None:
        state: Literal["guessed", "unknown"] = "guessed" if guess else "unknown"
        return BaseResolution(state, pipeline, view.EMPTY, guess, source, 1)
    return BaseResolution("known", pipeline, artifact, view.model_id(artifact) or guess, source, 1)


def adoptable_artifact(world: World, namespace: str, uri: str | None) -> Json | None:
    """Return the model artifact that a shared cache adopts for a source: the oldest that stays, exact source match."""
    if uri is None:
        return None
    for artifact in world.find(Index.ARTIFACTS_BY_SOURCE, namespace, uri):
        if not view.terminating(artifact) and view.text(artifact, "status", "mode") != "Dedicated":
            return artifact
    return None


def cached_artifact(world: World, service: object, pipeline: Pipeline, source: Json) -> Json | None:
    """Return the artifact that the service's recorded cache holds for a source, if it still is that artifact."""
    field_name, kind = (
        ("profileCacheRef", AIM_PROFILE_CACHE)
        if pipeline.kind == "profile"
        else ("templateCacheRef", AIM_TEMPLATE_CACHE)
    )
    cache_name = view.text(service, "status", "cache", field_name, "name")
    if cache_name is None:
        return None
    namespace = view.namespace_of(service)
    cache = world.get(kind, namespace, cache_name)
    for entry in view.mapping(cache, "status", "artifacts").values():
        name = view.text(entry, "name")
        artifact = world.get(AIM_ARTIFACT, namespace, name) if name else None
        if (
            artifact is None
            or view.terminating(artifact)
            or view.source_uri(artifact) != view.text(source, "sourceUri")
        ):
            continue
        if view.text(entry, "uid") in (None, view.uid_of(artifact)):
            return artifact
    return None
