"""Every informer of the process, the indexes that lead from a change to whom it concerns, and the objects they show."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from api import view
from api.kinds import (
    AIM_ARTIFACT,
    AIM_CLUSTER_MODEL,
    AIM_CLUSTER_PROFILE,
    AIM_CLUSTER_RUNTIME_CONFIG,
    AIM_CLUSTER_SERVICE_TEMPLATE,
    AIM_KINDS,
    AIM_MODEL,
    AIM_PROFILE,
    AIM_PROFILE_CACHE,
    AIM_RUNTIME_CONFIG,
    AIM_SERVICE,
    AIM_SERVICE_TEMPLATE,
    AIM_TEMPLATE_CACHE,
    CONFIG_MAP,
    DEPLOYMENT,
    INFERENCE_SERVICE,
    JOB,
    NODE,
    PERSISTENT_VOLUME_CLAIM,
    POD,
    Kind,
)
from api.names import FIELD_OWNER, LABEL_MANAGED_BY
from api.view import Json
from kube.budget import CacheBudget
from kube.cache import IndexFunction, Trim
from kube.client import Client
from kube.informer import Informer
from reconcile.jobs import holds_place
from reconcile.objects import artifact_names
from reconcile.pods import adapter_part
from rules.world import INDEX_WORDS, INDEXED_KINDS, Index, by_age, own_before_shared

OURS = f"{LABEL_MANAGED_BY}={FIELD_OWNER}"
LABEL_ISVC = "serving.kserve.io/inferenceservice"
CACHE_KINDS = (AIM_PROFILE_CACHE, AIM_TEMPLATE_CACHE)


def word(obj: Json, name: str | None) -> str:
    """The index word of something in the object's own namespace."""
    return f"{view.namespace_of(obj)}/{name}"


def _one(obj: Json, name: str | None) -> Iterable[str]:
    return (word(obj, name),) if name else ()


def _placed(index: Index) -> IndexFunction:
    """The words of an index of the rules, in the object's own namespace."""
    words = INDEX_WORDS[index]
    return lambda obj: [word(obj, found) for found in words(obj)]


def _owners(obj: Json) -> Iterable[str]:
    """Words of the owners: of the object's own namespace, whatever other UIDs it contains."""
    return tuple(
        word(obj, uid) for ref in view.items(obj, "metadata", "ownerReferences") if (uid := view.text(ref, "uid"))
    )


def _service_caches(service: Json) -> Iterable[str]:
    cache = view.mapping(service, "status", "cache")
    for reference in ("profileCacheRef", "templateCacheRef"):
        yield from _one(service, view.text(cache, reference, "name"))


_SERVICE: Mapping[str, IndexFunction] = {
    "adapter": _placed(Index.SERVICES_BY_ARTIFACT),
    "profile": _placed(Index.SERVICES_BY_PROFILE),
    "any-profile": INDEX_WORDS[Index.SERVICES_BY_PROFILE],
    "runtime-config": _placed(Index.SERVICES_BY_RUNTIME_CONFIG),
    "any-runtime-config": INDEX_WORDS[Index.SERVICES_BY_RUNTIME_CONFIG],
    "model": _placed(Index.SERVICES_BY_MODEL),
    "any-model": INDEX_WORDS[Index.SERVICES_BY_MODEL],
    "image": lambda obj: filter(None, (view.text(obj, "spec", "model", "image"),)),
    "template": lambda obj: _one(obj, view.text(obj, "spec", "template", "name")),
    "any-template": lambda obj: filter(None, (view.text(obj, "spec", "template", "name"),)),
    "cache": _service_caches,
    "uid": lambda obj: filter(None, (view.text(obj, "metadata", "uid"),)),
}
_ARTIFACT: Mapping[str, IndexFunction] = {
    "source": _placed(Index.ARTIFACTS_BY_SOURCE),
    "parent": lambda obj: _one(obj, view.parent_artifact(obj)),
    "runtime-config": lambda obj: (word(obj, view.runtime_config_name(obj)),),
    "any-runtime-config": lambda obj: (view.runtime_config_name(obj),),
    "uid": lambda obj: filter(None, (view.text(obj, "metadata", "uid"),)),
}
_CACHE: Mapping[str, IndexFunction] = {
    "artifact": lambda obj: [word(obj, name) for name in artifact_names(obj)],
    "origin": lambda obj: _one(obj, view.cached_name(obj)),
    "waiting": lambda obj: () if view.text(obj, "status", "status") == "Ready" else (view.namespace_of(obj),),
    "any-origin": lambda obj: filter(None, (view.cached_name(obj),)),
}
_OWNED: Mapping[str, IndexFunction] = {"owner": _owners}
_POD: Mapping[str, IndexFunction] = {
    "owner": _owners,
    "isvc": lambda obj: _one(obj, view.text(obj, "metadata", "labels", LABEL_ISVC)),
}
_TEMPLATE: Mapping[str, IndexFunction] = {"model": _placed(Index.TEMPLATES_BY_MODEL)}
_MODEL: Mapping[str, IndexFunction] = {"image": _placed(Index.MODELS_BY_IMAGE)}
_INDEX_NAMES: Mapping[Index, str] = {
    Index.ARTIFACTS_BY_SOURCE: "source",
    Index.SERVICES_BY_ARTIFACT: "adapter",
    Index.SERVICES_BY_PROFILE: "profile",
    Index.SERVICES_BY_RUNTIME_CONFIG: "runtime-config",
    Index.SERVICES_BY_MODEL: "model",
    Index.TEMPLATES_BY_MODEL: "model",
    Index.MODELS_BY_IMAGE: "image",
}
"""The caches' names for the indexes of the rules. `any-` before a name: without the namespace."""

_INDEXES: Mapping[Kind, Mapping[str, IndexFunction]] = {
    AIM_SERVICE: _SERVICE,
    AIM_ARTIFACT: _ARTIFACT,
    AIM_PROFILE_CACHE: _CACHE,
    AIM_TEMPLATE_CACHE: _CACHE,
    AIM_PROFILE: _OWNED,
    AIM_SERVICE_TEMPLATE: _TEMPLATE,
    AIM_CLUSTER_SERVICE_TEMPLATE: _TEMPLATE,
    AIM_MODEL: _MODEL,
    AIM_CLUSTER_MODEL: _MODEL,
    INFERENCE_SERVICE: _OWNED,
    JOB: {**_OWNED, "place": lambda obj: (view.namespace_of(obj),) if holds_place(obj) else ()},
    POD: _POD,
    PERSISTENT_VOLUME_CLAIM: _OWNED,
    CONFIG_MAP: _OWNED,
}
_LABELLED = frozenset({JOB, POD, PERSISTENT_VOLUME_CLAIM, CONFIG_MAP, DEPLOYMENT, INFERENCE_SERVICE})
RECONCILED_KINDS = (INFERENCE_SERVICE, JOB, POD, PERSISTENT_VOLUME_CLAIM, CONFIG_MAP, DEPLOYMENT, NODE)


def _trim_pod(obj: Json) -> dict[str, Any]:
    """Keep of a pod what passes read: of one that a Job made, who made it and how it goes."""
    metadata, status = view.mapping(obj, "metadata"), view.mapping(obj, "status")
    trimmed: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {key: metadata[key] for key in _OF_A_POD if key in metadata},
        "status": {key: status[key] for key in _OF_ITS_STATUS if key in status},
    }
    if isvc_of(obj) is not None:
        trimmed["metadata"]["labels"] = metadata["labels"]
        trimmed["spec"] = adapter_part(obj)
    return trimmed


_OF_A_POD = ("name", "namespace", "uid", "resourceVersion", "ownerReferences", "creationTimestamp", "deletionTimestamp")
_OF_ITS_STATUS = ("podIP", "conditions", "containerStatuses")


def _trim_job(obj: Json) -> dict[str, Any]:
    """Keep of a Job what it says of itself and how it ended: what it runs is read from no cache, and is most of it."""
    metadata, conditions = view.mapping(obj, "metadata"), view.items(obj, "status", "conditions")
    return {
        "apiVersion": JOB.api_version,
        "kind": JOB.kind,
        "metadata": {key: value for key, value in metadata.items() if key != "generation"},
        "status": {"conditions": list(conditions)} if conditions else {},
    }


def _trim_node(obj: Json) -> dict[str, Any]:
    metadata = view.mapping(obj, "metadata")
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {key: metadata[key] for key in ("name", "uid", "resourceVersion", "labels") if key in metadata},
    }


_TRIMS: Mapping[Kind, Trim] = {JOB: _trim_job, POD: _trim_pod, NODE: _trim_node}


def make_informers(
    client: Client,
    *,
    namespaces: Iterable[str] | None = None,
    reconciling: bool = True,
    nodes: bool = True,
    adopted: Sequence[str] = (),
    budget: CacheBudget | None = None,
) -> dict[Kind, Informer]:
    """Return the informers by kind: our own kinds always (admission needs them), the rest for the reconciler.

    Args:
        budget: the memory that their caches share.
        adopted: what other operators call themselves in the label managed-by; theirs are seen like our own.
    """
    scope = list(namespaces) if namespaces is not None else None
    ours = f"{LABEL_MANAGED_BY} in ({','.join((FIELD_OWNER, *adopted))})" if adopted else OURS
    kinds: list[Kind] = list(AIM_KINDS)
    if reconciling:
        kinds += [kind for kind in RECONCILED_KINDS if nodes or kind != NODE]
    return {
        kind: Informer(
            client,
            kind,
            namespaces=scope,
            label_selector=ours if kind in _LABELLED else None,
            indexes=_INDEXES.get(kind),
            trim=_TRIMS.get(kind),
            budget=budget,
        )
        for kind in kinds
    }


class CachedWorld:
    """The objects that the informers show (`rules.world.World`)."""

    def __init__(self, informers: Mapping[Kind, Informer]) -> None:
        self._informers = informers

    def get(self, kind: Kind, namespace: str | None, name: str) -> Json | None:
        """Return a cached object, or None."""
        informer = self._informers.get(kind)
        if informer is None:
            return None
        return informer.cache.get((namespace or "") if kind.namespaced else "", name)

    def knows(self, kind: Kind) -> bool:
        """Return whether the kind was listed completely."""
        informer = self._informers.get(kind)
        return informer is not None and informer.synced.is_set()

    def find(self, index: Index, namespace: str | None, word: str) -> Sequence[Json]:
        """Return the objects that an index lists under a word, of one namespace or (services) of all."""
        if index is Index.SERVICES_BY_BASE:
            return self._services_by_base(namespace, word)
        kinds, name = INDEXED_KINDS[index], _INDEX_NAMES[index]
        if namespace is None:
            return self._listed(kinds[0], f"any-{name}", word)
        own = self._listed(kinds[0], name, f"{namespace}/{word}")
        if kinds[0] is AIM_SERVICE:
            return own
        if len(kinds) == 1:
            return by_age(own)
        return own_before_shared(by_age(own), by_age(self._listed(kinds[1], name, f"/{word}")))

    def _services_by_base(self, namespace: str | None, base: str) -> list[Json]:
        """Return the services whose cache holds the base artifact."""
        found: dict[str, Json] = {}
        for kind in CACHE_KINDS:
            for cache in self._listed(kind, "artifact", f"{namespace}/{base}"):
                for service in self._listed(AIM_SERVICE, "cache", word(cache, view.name_of(cache))):
                    found[view.name_of(service)] = service
        return [found[name] for name in sorted(found)]

    def _listed(self, kind: Kind, index: str, wanted: str) -> Sequence[Json]:
        informer = self._informers.get(kind)
        return informer.by_index(index, wanted) if informer else []


PROFILE_KINDS = (AIM_PROFILE, AIM_CLUSTER_PROFILE)
CONFIG_KINDS = (AIM_RUNTIME_CONFIG, AIM_CLUSTER_RUNTIME_CONFIG)
MODEL_KINDS = (AIM_MODEL, AIM_CLUSTER_MODEL)
TEMPLATE_KINDS = (AIM_SERVICE_TEMPLATE, AIM_CLUSTER_SERVICE_TEMPLATE)


def isvc_of(obj: Json) -> str | None:
    """Name of the InferenceService that a Deployment or pod belongs to."""
    return view.text(obj, "metadata", "labels", LABEL_ISVC)


def owner_name(obj: Json, kind: Kind) -> str | None:
    """Name of the object's owner of that kind."""
    for reference in view.items(obj, "metadata", "ownerReferences"):
        if view.dig(reference, "kind") == kind.kind and str(view.dig(reference, "apiVersion")).startswith(kind.group):
            return view.text(reference, "name")
    return None


def templates_of(informers: Mapping[Kind, Informer], model: Json) -> list[Json]:
    """Return the templates of a model: of its namespace, or of all namespaces and the cluster for a cluster model."""
    namespace, name = view.namespace_of(model), view.name_of(model)
    if namespace:
        return list(informers[AIM_SERVICE_TEMPLATE].by_index("model", f"{namespace}/{name}"))
    known = (template for kind in TEMPLATE_KINDS for template in informers[kind].items())
    return [template for template in known if view.text(template, "spec", "modelName") == name]
