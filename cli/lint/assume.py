"""`--assume profile.features=adapters`: fields of objects that are referenced but not given. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import yaml

from api import view
from api.kinds import (
    AIM_ARTIFACT,
    AIM_CLUSTER_MODEL,
    AIM_CLUSTER_PROFILE,
    AIM_CLUSTER_RUNTIME_CONFIG,
    AIM_SERVICE,
    AIM_SERVICE_TEMPLATE,
    Kind,
)
from api.view import Json
from cli.lint.document import split_path
from cli.lint.schema import schema_of
from rules.suggest import did_you_mean
from rules.world import KIND_BY_NAME
from rules.worlds import SnapshotWorld

SUBJECTS: Mapping[str, Kind] = {
    "profile": AIM_CLUSTER_PROFILE,
    "runtimeConfig": AIM_CLUSTER_RUNTIME_CONFIG,
    "adapter": AIM_ARTIFACT,
    "model": AIM_CLUSTER_MODEL,
    "template": AIM_SERVICE_TEMPLATE,
}
_PLAIN_ADAPTER = {"type": "adapter", "sourceUri": "hf://assumed/adapter", "modelId": "assumed/adapter"}


class AssumptionError(ValueError):
    """An invalid assumption; the text says why."""


@dataclass(frozen=True, slots=True)
class Assumption:
    """One field of every referenced object of one kind that is not given."""

    subject: str
    path: tuple[str | int, ...]
    value: Any


def parse_assumption(written: str) -> Assumption:
    """Read `SUBJECT.FIELD=VALUE`; the value is YAML, a list may be written `a,b`. Raises: AssumptionError."""
    left, equals, raw = written.partition("=")
    subject, _, path = left.strip().partition(".")
    if not equals or not path:
        raise AssumptionError(
            f'"{written}" does not have the form SUBJECT.FIELD=VALUE, for example profile.features=adapters'
        )
    if subject not in SUBJECTS:
        hint = did_you_mean(subject, SUBJECTS)
        raise AssumptionError(
            f'"{subject}" is not supported; supported: {", ".join(SUBJECTS)}' + (f" ({hint})" if hint else "")
        )
    parts = tuple(split_path(path.removeprefix("spec.")))
    schema = _schema_at(SUBJECTS[subject], parts, written)
    try:
        value = yaml.safe_load(raw)
    except yaml.YAMLError as error:
        raise AssumptionError(f'"{raw}" is not valid YAML') from error
    if schema.get("type") == "array" and not isinstance(value, list):
        value = [word.strip() for word in raw.split(",")]
    return Assumption(subject, parts, value)


def _schema_at(kind: Kind, parts: tuple[str | int, ...], written: str) -> Mapping[str, Any]:
    schema: Mapping[str, Any] = schema_of(kind)["properties"]["spec"]
    for part in parts:
        if isinstance(part, int):
            schema = schema.get("items", {})
            continue
        properties = schema.get("properties", {})
        if part not in properties and properties:
            hint = did_you_mean(part, properties)
            raise AssumptionError(f'"{written}": {kind.kind} has no field "{part}"' + (f" ({hint})" if hint else ""))
        schema = properties.get(part, {})
    return schema


def assumed_objects(assumptions: Iterable[Assumption], objects: Iterable[Json]) -> list[Json]:
    """Return the objects that AIMServices refer to and that are not given, with the assumed fields."""
    given = list(objects)
    specs: dict[str, dict[str, Any]] = {}
    for one in assumptions:
        _put(specs.setdefault(one.subject, {}), one.path, one.value)
    if not specs:
        return []
    world = SnapshotWorld(given)
    made: dict[tuple[str, str, str], Json] = {}
    for service in world.objects(AIM_SERVICE):
        namespace = view.namespace_of(service)
        for subject, name in _referenced(service):
            if subject in specs and name and not _exists(world, subject, namespace, name):
                made[(subject, namespace, name)] = _object(subject, namespace, name, specs[subject])
    return list(made.values())


def _referenced(service: Json) -> Iterable[tuple[str, str | None]]:
    yield "profile", view.profile_name(service)
    yield "runtimeConfig", view.runtime_config_name(service)
    yield "model", view.text(service, "spec", "model", "name")
    yield "template", view.text(service, "spec", "template", "name")
    for ref in view.adapter_refs(service):
        yield "adapter", ref.name


def _exists(world: SnapshotWorld, subject: str, namespace: str, name: str) -> bool:
    kind = SUBJECTS[subject]
    bare = kind.kind.removeprefix("AIMCluster").removeprefix("AIM")
    both = [KIND_BY_NAME[full] for full in (f"AIM{bare}", f"AIMCluster{bare}") if full in KIND_BY_NAME]
    return any(world.get(one, namespace, name) is not None for one in both)


def _object(subject: str, namespace: str, name: str, spec: Mapping[str, Any]) -> Json:
    kind = SUBJECTS[subject]
    metadata = {"name": name} | ({"namespace": namespace} if kind.namespaced else {})
    plain = _PLAIN_ADAPTER if subject == "adapter" else {}
    return {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata, "spec": {**plain, **spec}}


def _put(into: dict[str, Any], path: tuple[str | int, ...], value: Any) -> None:
    place: Any = into
    for part, following in pairwise(path):
        empty: Any = [] if isinstance(following, int) else {}
        if isinstance(part, int):
            while len(place) <= part:
                place.append({})
            place = place[part]
        else:
            place = place.setdefault(part, empty)
    last = path[-1]
    if isinstance(last, int):
        place.append(value)
    else:
        place[last] = value
