"""The shell of AIMProfileCache and AIMTemplateCache: observes from caches, lets `decide` decide, carries it out."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from api import view
from api.kinds import (
    AIM_ARTIFACT,
    AIM_CLUSTER_MODEL,
    AIM_CLUSTER_PROFILE,
    AIM_CLUSTER_SERVICE_TEMPLATE,
    AIM_MODEL,
    AIM_PROFILE,
    AIM_PROFILE_CACHE,
    AIM_SERVICE_TEMPLATE,
    Kind,
)
from api.view import Json
from kube.cache import Key
from kube.engine import Watch, keys_of_both
from reconcile.caches.decide import CacheFacts, decide
from reconcile.controllers import Keys, Tools, keys, unless_progress
from reconcile.references import render_reference
from reconcile.world import MODEL_KINDS, templates_of, word
from rules.references import Resolved, lookup
from rules.runtime_config import resolve_runtime_config
from rules.world import Index


class CacheController:
    """Converges the caches of one kind."""

    def __init__(self, tools: Tools, kind: Kind) -> None:
        """Take the shared tools and the kind: AIMProfileCache or AIMTemplateCache."""
        self._tools = tools
        self._kind = kind
        self.name = "profile-cache" if kind == AIM_PROFILE_CACHE else "template-cache"
        profile = kind == AIM_PROFILE_CACHE
        templates = (AIM_SERVICE_TEMPLATE, AIM_CLUSTER_SERVICE_TEMPLATE)
        self._origins = (AIM_PROFILE, AIM_CLUSTER_PROFILE) if profile else templates
        self._models = () if profile else (AIM_MODEL, AIM_CLUSTER_MODEL)

    @property
    def watches(self) -> Sequence[Watch]:
        """The caches, what they cache for, and the artifacts that they hold or may adopt."""
        informers = self._tools.informers
        return (
            Watch(informers[self._kind], keys_of_both(lambda cache: keys([cache]))),
            Watch(informers[AIM_ARTIFACT], unless_progress(self._by_artifact)),
            *(Watch(informers[kind], keys_of_both(self._by_origin)) for kind in self._origins),
            *(Watch(informers[kind], keys_of_both(self._by_model)) for kind in self._models),
        )

    def _by_origin(self, origin: Json) -> Keys:
        informer = self._tools.informers[self._kind]
        if view.namespace_of(origin):
            return keys(informer.by_index("origin", word(origin, view.name_of(origin))))
        return keys(informer.by_index("any-origin", view.name_of(origin)))

    def _by_model(self, model: Json) -> Keys:
        """Caches for the model, and for templates that have its sources."""
        found = list(self._by_origin(model))
        for template in templates_of(self._tools.informers, model):
            found += self._by_origin(template)
        return dict.fromkeys(found)

    def _by_artifact(self, artifact: Json) -> Keys:
        """Caches that hold the artifact, and those that miss one of its source (they wait for a successor)."""
        informer = self._tools.informers[self._kind]
        holding = informer.by_index("artifact", word(artifact, view.name_of(artifact)))
        return keys([*holding, *informer.by_index("waiting", view.namespace_of(artifact))])

    async def reconcile(self, key: Key) -> timedelta | None:
        """Make one pass over a cache."""
        tools = self._tools
        cache = tools.find(self._kind, *key)
        if cache is None or view.terminating(cache) or view.paused(cache):
            return None
        origin = self._origin(cache)
        sources = self._sources(cache, origin)
        namespace = view.namespace_of(cache)
        uris = {uri for source in sources or () if (uri := view.text(source, "sourceUri"))}
        config = resolve_runtime_config(tools.world, namespace, view.runtime_config_name(cache))
        seen = CacheFacts(
            cache=cache,
            kind=self._kind,
            now=tools.now(),
            origin=self._words(cache, origin),
            sources=sources,
            artifacts={uri: tools.world.find(Index.ARTIFACTS_BY_SOURCE, namespace, uri) for uri in sorted(uris)},
            resolved=render_reference(origin),
            typed_s3=bool(view.mapping(config.spec, "artifact", "s3")),
        )
        return await tools.shell.carry_out(self._kind, cache, decide(seen))

    def _origin(self, cache: Json) -> Resolved | None:
        """Return the profile, template or model that the cache is for."""
        for kind in (*self._origins, *self._models):
            if kind.namespaced == (view.cached_scope(cache) == "Namespace"):
                found = self._tools.find(kind, view.namespace_of(cache), view.cached_name(cache))
                if found is not None:
                    return Resolved(kind, found)
        return None

    def _words(self, cache: Json, origin: Resolved | None) -> str:
        """What the cache is for, in words."""
        if origin is not None:
            return f'{origin.kind.kind} "{origin.name}"'
        return f'{self._origins[0].kind} "{view.cached_name(cache) or ""}"'

    def _sources(self, cache: Json, origin: Resolved | None) -> Sequence[Any] | None:
        """Return the model sources: the cache's own, its origin's, for a template without any its model's.

        None: what the cache is for does not exist.
        """
        if own := view.items(cache, "spec", "modelSources"):
            return own
        if origin is None:
            return None
        sources = view.items(origin.obj, "spec", "modelSources")
        model = view.text(origin.obj, "spec", "modelName")
        if sources or model is None:
            return sources
        found = lookup(self._tools.world, MODEL_KINDS, view.namespace_of(cache), model)
        return view.items(found.obj, "spec", "modelSources") if isinstance(found, Resolved) else ()
