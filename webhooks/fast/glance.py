"""A glance at a service: about which of its fields may something have to be said? Nearly always none: that is cheap.

A look names fields too many, never too few: rules whose `when` names none of them have nothing to say, warnings
included. Where a look is in doubt it gives up, and every rule of its basis is asked. The rules alone decide and speak.
Tests hold each look against every rule's refused example and against generated services and worlds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from api import view
from api.kinds import AIM_ARTIFACT
from api.names import FEATURE_ADAPTERS, GPU_ADAPTER_SLOTS, RANK_CEILINGS, inference_service_name
from api.view import Json
from rules.adapters import is_fine
from rules.engine_args import switches_adapters_off
from rules.environment import ADAPTER_ENV_PREFIX, PREDICTOR_ENV, RESERVED_ENV, usable_env_entry
from rules.references import Missing, Resolved
from rules.registry import Basis, fields_spoken_of
from rules.seen import Seen, ServiceSeen
from rules.shared import image_too_old
from rules.validate import Fields, ToAsk

_NOTHING: Fields = frozenset()
_WHAT_IS_SERVED: Fields = frozenset({"profile", "model"})


def left_to_ask(seen: Seen, bases: Iterable[Basis]) -> ToAsk:
    """Return what the rules have to be asked about an object; empty: they have nothing to say.

    A look that fails leaves the answer to the rules, which are asked one by one and may fail by themselves.
    """
    if not isinstance(seen, ServiceSeen):
        given = fields_spoken_of() & {*seen.spec, *seen.old_spec}
        return tuple([(basis, given) for basis in bases])
    left: ToAsk = ()
    for basis in bases:
        try:
            fields = _LOOKS[basis](seen)
        except Exception:  # whatever it was, the rules meet it too and say so
            fields = None
        if fields is None or fields:
            left += ((basis, fields),)
    return left


# -- the manifest by itself -----------------------------------------------------------------------------------------

_MODES = (None, *view.ADAPTER_MODES)
_PLAIN_CACHING: tuple[Json, ...] = ({}, {"mode": "Shared"})
_PLAIN_ENTRY = frozenset({"name", "kind"})
_ENV_SPOKEN_OF = RESERVED_ENV | PREDICTOR_ENV
_LONGEST_NAMESPACE = max(n for n in range(1, 64) if inference_service_name("x", "n" * n) is not None)


def _in_manifest(seen: ServiceSeen) -> Fields:
    """Fields that are not as plain as they nearly always are."""
    spec = seen.spec
    if len(seen.namespace) > _LONGEST_NAMESPACE or _WHAT_IS_SERVED.isdisjoint(spec):
        return _WHAT_IS_SERVED | fields_spoken_of().intersection(spec)
    found = [field for field in spec if not _PLAIN.get(field, _never)(spec)]
    return fields_spoken_of().intersection(found) if found else _NOTHING


def _plain_adapters(spec: Json) -> bool:
    entries = spec["adapters"]
    if entries.__class__ is not list or len(entries) > GPU_ADAPTER_SLOTS:
        return False
    names = set()
    for entry in entries:
        if entry.__class__ is not dict or entry.keys() != _PLAIN_ENTRY or entry["kind"] != "AIMArtifact":
            return False
        name = entry["name"]
        if name.__class__ is not str or not name:
            return False
        names.add(name)
    return len(names) == len(entries)


def _plain_runtime(spec: Json) -> bool:
    runtime = spec["adapterRuntime"]
    return (
        runtime.__class__ is dict
        and spec.get("adapterMode") == "dynamic"
        and ("maxRank" not in runtime or runtime["maxRank"] in RANK_CEILINGS)
    )


def _plain_env(spec: Json) -> bool:
    for entry in spec["env"]:
        name = entry["name"]
        if name.__class__ is not str or name in _ENV_SPOKEN_OF or name.startswith(ADAPTER_ENV_PREFIX):
            return False
        if not usable_env_entry(entry):
            return False
    return True


def _only_named(reference: Json) -> bool:
    return len(reference) == 1 and view.text(reference, "name") is not None


def _always(_: Json) -> bool:
    return True


def _never(_: Json) -> bool:
    return False


_PLAIN: Mapping[str, Callable[[Json], bool]] = {
    "adapterMode": lambda spec: spec["adapterMode"] in _MODES,
    "adapterRuntime": _plain_runtime,
    "adapters": _plain_adapters,
    "caching": lambda spec: spec["caching"] in _PLAIN_CACHING,
    "env": _plain_env,
    "imagePullSecrets": _always,
    "model": lambda spec: _only_named(spec["model"]),
    "priorityClassName": _always,
    "profile": lambda spec: _only_named(spec["profile"]),
    "replicas": _always,
    "resources": _always,
    "runtimeConfigName": _always,
    "serviceAccountName": _always,
    "template": lambda spec: "profile" not in spec,
    "tolerations": _always,
}
"""How each field nearly always is. One that is not here is never plain; `_always`: no rule about it alone exists."""


# -- the manifest and other objects ---------------------------------------------------------------------------------


def _in_world(seen: ServiceSeen) -> Fields | None:
    """What leads nowhere yet, and `adapters` if one of them is not as it should be; None if anything else is not."""
    spec, pipeline = seen.spec, seen.pipeline
    if _misses_config(seen):
        return None
    found = _NOTHING
    if not pipeline.sources or not _leads_somewhere(seen):
        if not _names_a_missing_model(seen):
            return None
        found = _REFERENCES
    adapters = spec.get("adapters") or ()
    if not adapters and not seen.dynamic:
        return found
    if pipeline.image is not None and image_too_old(pipeline.image):
        return None
    if pipeline.profile is not None and seen.feature != FEATURE_ADAPTERS:
        return None
    if switches_adapters_off(seen) is not None:
        return None
    if seen.base.state != ("unknown" if found else "known") or seen.asked_ceiling.value is None:
        return None
    return found if _all_fine(seen, adapters) else found | _ADAPTERS


_REFERENCES: Fields = frozenset({"profile", "model", "template", "runtimeConfigName"})
_ADAPTERS: Fields = frozenset({"adapters"})


def _leads_somewhere(seen: ServiceSeen) -> bool:
    pipeline = seen.pipeline
    if pipeline.kind == "profile":
        return isinstance(pipeline.profile, Resolved)
    return (
        "template" not in seen.spec and isinstance(pipeline.model, Resolved) and isinstance(pipeline.template, Resolved)
    )


def _names_a_missing_model(seen: ServiceSeen) -> bool:
    """Tell whether a service is merely earlier than its model: nothing else is known about it then."""
    pipeline = seen.pipeline
    return (
        pipeline.kind == "template"
        and isinstance(pipeline.model, Missing)
        and not pipeline.fitting
        and not isinstance(pipeline.template, Resolved)
    )


def _all_fine(seen: ServiceSeen, entries: Iterable[Json]) -> bool:
    """Tell whether every entry is an adapter with a path of its own that may be served under the ceiling."""
    asked, base, world, namespace = seen.asked_ceiling, seen.base, seen.world, seen.namespace
    paths = set()
    for entry in entries:
        artifact = world.get(AIM_ARTIFACT, namespace, entry["name"])
        spec = view.spec_of(artifact)
        if artifact is None or spec.get("type") != "adapter":
            return False
        path = view.adapter_path(artifact)
        if path in paths or not is_fine(spec, path, base, asked):
            return False
        paths.add(path)
    return True


def _misses_config(seen: ServiceSeen) -> bool:
    return "runtimeConfigName" in seen.spec and seen.config.missing


def _in_stored_object(seen: ServiceSeen) -> Fields | None:
    """Everything, where the RuntimeConfig that is named does not exist."""
    return None if _misses_config(seen) else _NOTHING


# -- the manifest and its old self, the version that the user wrote ---------------------------------------------------

_COMPARED = (
    "adapterMode",
    "adapterRuntime",
    "caching",
    "maxReplicas",
    "minReplicas",
    "model",
    "profile",
    "profileOverrides",
    "runtimeConfigName",
    "template",
)


def _in_edit(seen: ServiceSeen) -> Fields:
    """Changed fields of those that are fixed or that roll pods."""
    old, new = seen.old_spec, seen.spec
    found = [field for field in _COMPARED if old.get(field) != new.get(field)]
    if not seen.dynamic:
        if old.get("adapters") != new.get("adapters"):
            found.append("adapters")
    elif seen.pods and (seen.reported_ceiling is None or seen.asked_ceiling.value != seen.reported_ceiling):
        found.append("adapterRuntime")
    return frozenset(found) if found else _NOTHING


def _in_version(seen: ServiceSeen) -> Fields | None:
    """Everything, where the pipeline is not v1alpha2's."""
    spec = seen.spec
    plain = seen.request_version != "v1alpha2" or (spec.get("profile").__class__ is dict and "template" not in spec)
    return _NOTHING if plain else None


_LOOKS: Mapping[Basis, Callable[[ServiceSeen], Fields | None]] = {
    Basis.OBJECT: _in_manifest,
    Basis.WORLD: _in_world,
    Basis.TRANSITION: _in_edit,
    Basis.REQUEST: _in_version,
    Basis.STORED: _in_stored_object,
}
