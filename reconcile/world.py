"""Every informer of the process, the indexes that lead from a change to whom it concerns, and the world they show."""

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
from kube.cache import IndexFunction, Trim
from kube.client import Client
from kube.informer import Informer
from reconcile.caches.decide import artifact_names
from reconcile.service.live import adapter_part
from rules.world import by_age

OURS = f"{LABEL_MANAGED_BY}={FIELD_OWNER}"
LABEL_ISVC = "serving.kserve.io/inferenceservice"
CACHE_KINDS = (AIM_PROFILE_CACHE, AIM_TEMPLATE_CACHE)


def word(obj: Json, name: str | None) -> str:
    """The index word of something in the object's own namespace."""
    return f"{view.namespace_of(obj)}/{name}"


def _one(obj: Json, name: str | None) -> Iterable[str]:
    return (word(obj, name),) if name else ()


def _owners(obj: Json) -> Iterable[str]:
    """Words of the owners: of the object's own namespace, whatever UIDs of others somebody wrote into it."""
    return tuple(
        word(obj, uid) for ref in view.items(obj, "metadata", "ownerReferences") if (uid := view.text(ref, "uid"))
    )


def _service_caches(service: Json) -> Iterable[str]:
    cache = view.mapping(service, "status", "cache")
    for reference in ("profileCacheRef", "templateCacheRef"):
        yield from _one(service, view.text(cache, reference, "name"))


_SERVICE: Mapping[str, IndexFunction] = {
    "adapter": lambda obj: [word(obj, ref.name) for ref in view.adapter_refs(obj)],
    "profile": lambda obj: _one(obj, view.profile_name(obj)),
    "any-profile": lambda obj: filter(None, (view.profile_name(obj),)),
    "runtime-config": lambda obj: (word(obj, view.runtime_config_name(obj)),),
    "any-runtime-config": lambda obj: (view.runtime_config_name(obj),),
    "model": lambda obj: _one(obj, view.text(obj, "spec", "model", "name")),
    "any-model": lambda obj: filter(None, (view.text(obj, "spec", "model", "name"),)),
    "image": lambda obj: filter(None, (view.text(obj, "spec", "model", "image"),)),
    "template": lambda obj: _one(obj, view.text(obj, "spec", "template", "name")),
    "any-template": lambda obj: filter(None, (view.text(obj, "spec", "template", "name"),)),
    "cache": _service_caches,
    "uid": lambda obj: filter(None, (view.text(obj, "metadata", "uid"),)),
}
_ARTIFACT: Mapping[str, IndexFunction] = {
    "source": lambda obj: () if view.is_adapter(obj) else _one(obj, view.source_uri(obj)),
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
_TEMPLATE: Mapping[str, IndexFunction] = {"model": lambda obj: _one(obj, view.text(obj, "spec", "modelName"))}
_MODEL: Mapping[str, IndexFunction] = {"image": lambda obj: _one(obj, view.text(obj, "spec", "image"))}

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
    JOB: _OWNED,
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
) -> dict[Kind, Informer]:
    """Return the informers by kind: our own kinds always (admission needs them), the rest for the reconciler.

    Args: `adopted`: what other operators call themselves in the label managed-by; theirs are seen like our own.
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
        )
        for kind in kinds
    }


class CachedWorld:
    """The world as the informers show it (`rules.world.World`)."""

    def __init__(self, informers: Mapping[Kind, Informer]) -> None:
        self._informers = informers

    def get(self, kind: Kind, namespace: str | None, name: str) -> Json | None:
        """Return a cached object, or None."""
        informer = self._informers.get(kind)
        if informer is None:
            return None
        return informer.cache.get((namespace or "") if kind.namespaced else "", name)

    def knows(self, kind: Kind) -> bool:
        """Return whether the kind was listed completely and its watch is not known to be broken."""
        informer = self._informers.get(kind)
        return informer is not None and informer.synced.is_set()

    def artifacts_by_source(self, namespace: str, source_uri: str) -> Sequence[Json]:
        """Return model artifacts with exactly this source, oldest first."""
        return by_age(self._find(AIM_ARTIFACT, "source", f"{namespace}/{source_uri}"))

    def services_by_artifact(self, namespace: str, artifact: str) -> Sequence[Json]:
        """Return the services that declare the adapter."""
        return self._find(AIM_SERVICE, "adapter", f"{namespace}/{artifact}")

    def services_by_base(self, namespace: str, base: str) -> Sequence[Json]:
        """Return the services whose cache holds the base artifact."""
        found: dict[str, Json] = {}
        for kind in CACHE_KINDS:
            for cache in self._find(kind, "artifact", f"{namespace}/{base}"):
                for service in self._find(AIM_SERVICE, "cache", word(cache, view.name_of(cache))):
                    found[view.name_of(service)] = service
        return [found[name] for name in sorted(found)]

    def services_by_profile(self, namespace: str | None, profile: str) -> Sequence[Json]:
        """Return the services that name the profile, of one namespace or of all."""
        return self._scoped(AIM_SERVICE, "profile", namespace, profile)

    def services_by_runtime_config(self, namespace: str | None, name: str) -> Sequence[Json]:
        """Return the services that use the RuntimeConfig, of one namespace or of all."""
        return self._scoped(AIM_SERVICE, "runtime-config", namespace, name)

    def services_by_model(self, namespace: str | None, model: str) -> Sequence[Json]:
        """Return the services that name the model, of one namespace or of all."""
        return self._scoped(AIM_SERVICE, "model", namespace, model)

    def templates_by_model(self, namespace: str, model: str) -> Sequence[Json]:
        """Return the templates of a model: the namespace's, then the cluster's of other names; oldest first."""
        own = by_age(self._find(AIM_SERVICE_TEMPLATE, "model", f"{namespace}/{model}"))
        names = {view.name_of(template) for template in own}
        shared = by_age(self._find(AIM_CLUSTER_SERVICE_TEMPLATE, "model", f"/{model}"))
        return [*own, *(template for template in shared if view.name_of(template) not in names)]

    def models_by_image(self, namespace: str, image: str) -> Sequence[Json]:
        """Return the models with exactly this image: the namespace's, then the cluster's; oldest first."""
        own = by_age(self._find(AIM_MODEL, "image", f"{namespace}/{image}"))
        return [*own, *by_age(self._find(AIM_CLUSTER_MODEL, "image", f"/{image}"))]

    def _scoped(self, kind: Kind, index: str, namespace: str | None, name: str) -> Sequence[Json]:
        if namespace is not None:
            return self._find(kind, index, f"{namespace}/{name}")
        return self._find(kind, f"any-{index}", name)

    def _find(self, kind: Kind, index: str, wanted: str) -> Sequence[Json]:
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
