"""Defaulted reading of objects as they come from the API server: parsed JSON in, plain values out.

Every function is total: an object of a wrong shape reads as if the field were absent. Rules, reconciler and command
line read objects only through this page, so that a default or a synonym is defined once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, get_args

from api.names import (
    ANNOTATION_PAUSED,
    DEFAULT_RANK,
    DEFAULT_RUNTIME_CONFIG,
    FEATURE_ADAPTERS,
    FEATURE_ADAPTERS_SCALE_ONLY,
)
from api.record import record
from api.source_uri import source_model_id

Json = Mapping[str, Any]
"""An object as it is read: never changed in place."""
JsonObject = dict[str, Any]
"""An object that its holder may change, for example while it makes it."""
AdapterMode = Literal["static", "dynamic"]
ADAPTER_MODES: tuple[AdapterMode, ...] = get_args(AdapterMode)
EMPTY: Json = {}

LEFT_OUT = "aim-adapters: left out"
"""The key of an object that was not read as a whole; no object of the API server has such a key."""

_CACHING_SYNONYMS = {"Auto": "Shared", "Always": "Shared", "Never": "Dedicated"}


def dig(obj: object, *path: str | int) -> Any:
    """Return the value at a path, or None where something on the way is absent or of another type."""
    for part in path:  # exact types first: this runs hundreds of times for each admission review
        if part.__class__ is str and obj.__class__ is dict:
            obj = obj.get(part)
        elif isinstance(part, str):
            obj = obj.get(part) if isinstance(obj, Mapping) else None
        else:
            obj = obj[part] if isinstance(obj, list) and 0 <= part < len(obj) else None
        if obj is None:
            return None
    return obj


def _dig_names(obj: object, path: tuple[str | int, ...]) -> Any:
    """`dig`, with a short cut for what is parsed JSON objects all the way."""
    here = obj
    for part in path:
        if here.__class__ is not dict:
            return None if here is None else dig(obj, *path)
        here = here.get(part)
    return here


def spec_of(obj: object) -> Json:
    """The object's spec, an empty one where there is none."""
    spec = obj.get("spec") if obj.__class__ is dict else dig(obj, "spec")
    return spec if spec.__class__ is dict else mapping(obj, "spec")


def mapping(obj: object, *path: str) -> Json:
    """Return the object at a path, an empty one where there is none."""
    value = _dig_names(obj, path)
    return value if value.__class__ is dict or isinstance(value, Mapping) else EMPTY


def items(obj: object, *path: str) -> Sequence[Any]:
    """Return the list at a path, an empty one where there is none."""
    value = _dig_names(obj, path)
    return value if isinstance(value, list) else ()


def text(obj: object, *path: str | int) -> str | None:
    """Return the non-empty string at a path, or None."""
    value: Any = obj
    for part in path:  # as `_dig_names` does: one call less, where most of all values are read
        if value.__class__ is not dict:
            value = None if value is None else dig(obj, *path)
            break
        value = value.get(part)
    return value if isinstance(value, str) and value else None


def integer(obj: object, *path: str | int) -> int | None:
    """Return the integer at a path (JSON booleans are none), or None."""
    value = _dig_names(obj, path)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def accelerators(gpu: object) -> int | None:
    """Return the accelerators of one replica by a `hardware.gpu` block; `count` is the deprecated name of the field."""
    requests = integer(gpu, "requests")
    return integer(gpu, "count") if requests is None else requests


def strings(obj: object, *path: str) -> tuple[str, ...]:
    """Return the strings of the list at a path, others left out."""
    return tuple(item for item in items(obj, *path) if isinstance(item, str))


# -- metadata -------------------------------------------------------------------------------------------------------


def name_of(obj: object) -> str:
    """metadata.name, or the empty string."""
    metadata = obj.get("metadata") if obj.__class__ is dict else dig(obj, "metadata")
    name = metadata.get("name") if metadata.__class__ is dict else dig(metadata, "name")
    return name if isinstance(name, str) else ""


def namespace_of(obj: object) -> str:
    """metadata.namespace, or the empty string."""
    metadata = obj.get("metadata") if obj.__class__ is dict else dig(obj, "metadata")
    name = metadata.get("namespace") if metadata.__class__ is dict else dig(metadata, "namespace")
    return name if isinstance(name, str) else ""


def uid_of(obj: object) -> str:
    """metadata.uid, or the empty string."""
    return text(obj, "metadata", "uid") or ""


def generation_of(obj: object) -> int:
    """metadata.generation, or 0."""
    return integer(obj, "metadata", "generation") or 0


def annotation(obj: object, name: str) -> str | None:
    """The value of an annotation, or None."""
    return text(obj, "metadata", "annotations", name)


def terminating(obj: object) -> bool:
    """Whether deletion was asked for."""
    return dig(obj, "metadata", "deletionTimestamp") is not None


def left_out(obj: object) -> Json | None:
    """Why an object was not read as a whole (`reason`, `detail`), None if it was: its spec then looks empty."""
    found = obj.get(LEFT_OUT) if isinstance(obj, Mapping) else None
    return found if isinstance(found, Mapping) else None


# -- AIMService -----------------------------------------------------------------------------------------------------


@record
class AdapterRef:
    """One entry of `spec.adapters`, with its place in the list."""

    index: int
    name: str
    kind: str

    @property
    def path(self) -> str:
        """Field path of the entry's name."""
        return f"spec.adapters[{self.index}].name"


def adapter_mode(service: object) -> AdapterMode:
    """spec.adapterMode, `static` unless it is `dynamic`."""
    return "dynamic" if spec_of(service).get("adapterMode") == "dynamic" else "static"


def adapter_refs(service: object) -> tuple[AdapterRef, ...]:
    """The well-formed entries of spec.adapters in the user's order."""
    refs: list[AdapterRef] = []
    for index, entry in enumerate(items(service, "spec", "adapters")):
        if entry.__class__ is not dict and not isinstance(entry, Mapping):
            continue
        name, kind = entry.get("name"), entry.get("kind")
        if name and isinstance(name, str):
            refs.append(AdapterRef(index, name, kind if kind and isinstance(kind, str) else "AIMArtifact"))
    return tuple(refs)


def uses_adapters(service: object) -> bool:
    """Whether the adapter contract applies: adapters are declared, or may be at any time (dynamic mode)."""
    return adapter_mode(service) == "dynamic" or bool(adapter_refs(service))


def profile_name(service: object) -> str | None:
    """spec.profile.name: set means the profile pipeline."""
    return text(service, "spec", "profile", "name")


def uses_profile_pipeline(service: object) -> bool:
    """`spec.profile` set → profile pipeline, otherwise template pipeline (docs/contract.md, Pipelines)."""
    profile = spec_of(service).get("profile")
    return profile.__class__ is dict or isinstance(profile, Mapping)


def runtime_config_name(obj: object) -> str:
    """spec.runtimeConfigName, or `default`."""
    return text(obj, "spec", "runtimeConfigName") or DEFAULT_RUNTIME_CONFIG


def caching_mode(service: object) -> Literal["Shared", "Dedicated"]:
    """The caching mode after its synonyms (docs/contract.md, Caching mode)."""
    mode = text(service, "spec", "caching", "mode") or "Shared"
    return "Dedicated" if _CACHING_SYNONYMS.get(mode, mode) == "Dedicated" else "Shared"


def paused(obj: object) -> bool:
    """Whether reconciliation of this object is paused by annotation."""
    return annotation(obj, ANNOTATION_PAUSED) == "true"


# -- profiles -------------------------------------------------------------------------------------------------------


def effective_features(profile: object, service: object) -> tuple[str, ...]:
    """Profile's features united with the service's overrides, sorted (an override adds, never removes)."""
    return tuple(
        sorted({*strings(profile, "spec", "features"), *strings(service, "spec", "profileOverrides", "features")})
    )


def feature_token(features: Sequence[str]) -> str | None:
    """The token that has an effect: with both in the union `adapters` wins (docs/contract.md, Feature gate)."""
    for token in (FEATURE_ADAPTERS, FEATURE_ADAPTERS_SCALE_ONLY):
        if token in features:
            return token
    return None


def model_sources(profile: object, service: object = None) -> Sequence[Any]:
    """The effective model sources: an override replaces the profile's list."""
    overrides = spec_of(service).get("profileOverrides") if service is not None else None
    return (items(overrides, "modelSources") if overrides is not None else ()) or items(profile, "spec", "modelSources")


# -- AIMArtifact ----------------------------------------------------------------------------------------------------


def is_adapter(artifact: object) -> bool:
    """spec.type is `adapter` (default `model`)."""
    return spec_of(artifact).get("type") == "adapter"


def declared_rank(artifact: object) -> int:
    """spec.rank, 16 when absent (docs/contract.md, Adapter artifacts)."""
    return rank_of(spec_of(artifact))


def rank_of(spec: Json) -> int:
    """spec.rank of an adapter's spec, 16 when absent."""
    rank = spec.get("rank")
    return rank if isinstance(rank, int) and rank.__class__ is not bool else DEFAULT_RANK


def adapter_path(artifact: object, name: str | None = None) -> str:
    """The directory and served model id: the fixed status.adapterPath, or the artifact's name."""
    return text(artifact, "status", "adapterPath") or name_of(artifact) or (name or "")


def source_uri(artifact: object) -> str:
    """spec.sourceUri, or the empty string."""
    return text(artifact, "spec", "sourceUri") or ""


def model_id(artifact_or_source: object) -> str | None:
    """`modelId` of an artifact's spec or of a model source, else the id that its `hf://` source implies."""
    spec = dig(artifact_or_source, "spec")
    holder = spec if spec is not None else artifact_or_source
    return text(holder, "modelId") or source_model_id(dig(holder, "sourceUri"))


def cache_directory(artifact: object) -> str:
    """Directory of a base model on its cache claim and below `/workspace/cache`: its model id, else its name."""
    return model_id(artifact) or name_of(artifact)


def compatible_with(artifact: object) -> tuple[str, ...]:
    """spec.compatibleWith (logical mode), empty when absent."""
    return strings(artifact, "spec", "compatibleWith")


def parent_artifact(artifact: object) -> str | None:
    """spec.parentArtifact (exact mode), or None."""
    parent = spec_of(artifact).get("parentArtifact")
    return parent if isinstance(parent, str) and parent else None


def cached_name(cache: object) -> str | None:
    """Name of the profile, template or model that an AIMProfileCache or AIMTemplateCache is made for, or None."""
    return text(cache, "spec", "profileName") or text(cache, "spec", "templateName")


def cached_scope(cache: object) -> str:
    """Scope of what a cache is made for: `Cluster`, or `Namespace` (also where it is not set)."""
    return text(cache, "spec", "profileScope") or text(cache, "spec", "templateScope") or "Namespace"


def condition(obj: object, kind: str) -> Json:
    """The condition of that type, an empty object where there is none."""
    for entry in items(obj, "status", "conditions"):
        if dig(entry, "type") == kind:
            return entry if isinstance(entry, Mapping) else EMPTY
    return EMPTY
