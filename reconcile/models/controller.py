"""The shell of models and templates of both scopes: observes from caches, lets `decide` decide, carries it out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import timedelta

from api import view
from api.kinds import (
    AIM_CLUSTER_RUNTIME_CONFIG,
    AIM_CLUSTER_SERVICE_TEMPLATE,
    AIM_RUNTIME_CONFIG,
    AIM_SERVICE_TEMPLATE,
    NODE,
    Kind,
)
from api.view import Json
from kube.cache import Key
from kube.engine import Watch, keys_of_both
from reconcile.controllers import Tools, keys, node_labels, watch_nodes
from reconcile.models.decide import ModelFacts, decide
from reconcile.world import MODEL_KINDS
from rules.references import Reference, lookup
from rules.runtime_config import resolve_runtime_config
from rules.validate import judge_stored

_NAMES = {
    "AIMModel": "model",
    "AIMClusterModel": "cluster-model",
    "AIMServiceTemplate": "template",
    "AIMClusterServiceTemplate": "cluster-template",
}
_TEMPLATES = (AIM_SERVICE_TEMPLATE, AIM_CLUSTER_SERVICE_TEMPLATE)


class ModelController:
    """Reports the status of the models or templates of one kind."""

    def __init__(self, tools: Tools, kind: Kind) -> None:
        """Take the shared tools and the kind."""
        self._tools = tools
        self._kind = kind
        self.name = _NAMES[kind.kind]

    @property
    def watches(self) -> Sequence[Watch]:
        """The objects, what they name, and nodes whose labels change."""
        informers = self._tools.informers
        watched = [
            Watch(informers[self._kind], keys_of_both(lambda obj: keys([obj]))),
            Watch(informers[AIM_RUNTIME_CONFIG], keys_of_both(self._by_config)),
            Watch(informers[AIM_CLUSTER_RUNTIME_CONFIG], keys_of_both(self._by_config)),
        ]
        if self._kind in _TEMPLATES:
            watched += [Watch(informers[kind], keys_of_both(self._by_model)) for kind in MODEL_KINDS]
            watched += watch_nodes(informers.get(NODE), lambda: keys(informers[self._kind].items()))
        return tuple(watched)

    def _all(self) -> Iterator[Json]:
        return self._tools.informers[self._kind].items()

    def _by_config(self, config: Json) -> Iterable[Key]:
        """Objects that use a RuntimeConfig; such edits are rare, so all objects are looked through."""
        return keys(obj for obj in self._all() if view.runtime_config_name(obj) == view.name_of(config))

    def _by_model(self, model: Json) -> Iterable[Key]:
        return keys(obj for obj in self._all() if view.text(obj, "spec", "modelName") == view.name_of(model))

    async def reconcile(self, key: Key) -> timedelta | None:
        """Make one pass over a model or template."""
        tools = self._tools
        obj = tools.find(self._kind, *key)
        if obj is None:
            return None
        seen = ModelFacts(
            obj,
            tools.now(),
            resolve_runtime_config(tools.world, view.namespace_of(obj), view.runtime_config_name(obj)),
            errors=tuple(judge_stored(self._kind, obj, tools.world).errors),
            model=self._model(obj),
            nodes=node_labels(tools) if self._kind in _TEMPLATES else None,
        )
        return await tools.shell.carry_out(self._kind, obj, decide(seen))

    def _model(self, obj: Json) -> Reference | None:
        name = view.text(obj, "spec", "modelName")
        return lookup(self._tools.world, MODEL_KINDS, view.namespace_of(obj), name) if name else None
