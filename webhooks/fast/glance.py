"""A glance at a service: which of its fields could a rule report on? Nearly always none, and that is cheap to find out.

A look may name too many fields, never too few: a rule whose `when` names none of them reports nothing, warnings
included. A look that is in doubt returns None, and every rule of its basis runs, as for a basis without a look. Only
the rules decide and report. Tests compare each look with every rule's refused example and with generated services
and objects.
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
    """Return which rules have to run for an object; empty: they would report nothing.

    When a look fails, the rules run one by one, and each may fail for its own reason.
    """
    if not isinstance(seen, ServiceSeen):
        given = fields_spoken_of() & {*seen.spec, *seen.old_spec}
        return tuple([(basis, given) for basis in bases])
    left: ToAsk = ()
    for basis in bases:
        try:
            fields = _LOOKS[basis](seen) if basis in _LOOKS else None
        except Exception:  # the rules run into the same problem, and report it
            fields = None
        if fields is None or fields:
            left += ((basis, fields),)
    return left


# -- the manifest alone ---------------------------------------------------------------------------------------------

_MODES = (None, *view.ADAPTER_MODES)
_PLAIN_CACHING: tuple[Json, ...] = ({}, {"mode": "Shared"})
_PLAIN_ENTRY = frozenset({"name", "kind"})
_ENV_SPOKEN_OF = RESERVED_ENV | PREDICTOR_ENV
_LONGEST_NAMESPACE = max(n for n in range(1, 64) if inference_service_name("x", "n" * n) is not None)


def _in_manifest(seen: ServiceSeen) -> Fields:
    """Return the fields whose values are not the usual ones."""
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
"""Whether a field has a usual value, which no rule reports on. A field that is not listed is never plain; `_always`: no
rule is about this field alone."""


# -- the manifest and other objects ---------------------------------------------------------------------------------


def _in_world(seen: ServiceSeen) -> Fields | None:
    """Return references that lead nowhere yet, and `adapters` if one is not fine; None if anything else is not."""
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
    """Return whether a service only lacks its model, which does not exist yet: then nothing else is known about it."""
    pipeline = seen.pipeline
    return (
        pipeline.kind == "template"
        and isinstance(pipeline.model, Missing)
        and not pipeline.fitting
        and not isinstance(pipeline.template, Resolved)
    )


def _all_fine(seen: ServiceSeen, entries: Iterable[Json]) -> bool:
    """Return whether every entry is an adapter with its own path that may be served under the ceiling."""
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


# -- the manifest and its old version, the API version of the request--------------------------------------------------

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
    """Return the changed fields among those that are immutable or that restart pods."""
    old, new = seen.old_spec, seen.spec
    found = [field for field in _COMPARED if old.get(field) != new.get(field)]
    if not seen.dynamic:
        if old.get("adapters") != new.get("adapters"):
            found.append("adapters")
    elif seen.pods and (seen.reported_ceiling is None or seen.asked_ceiling.value != seen.reported_ceiling):
        found.append("adapterRuntime")
    return frozenset(found) if found else _NOTHING


def _in_version(seen: ServiceSeen) -> Fields | None:
    """Return None (everything) where the pipeline is not that of v1alpha2."""
    spec = seen.spec
    plain = seen.request_version != "v1alpha2" or (spec.get("profile").__class__ is dict and "template" not in spec)
    return _NOTHING if plain else None


_LOOKS: Mapping[Basis, Callable[[ServiceSeen], Fields | None]] = {
    Basis.OBJECT: _in_manifest,
    Basis.WORLD: _in_world,
    Basis.TRANSITION: _in_edit,
    Basis.REQUEST: _in_version,
}
