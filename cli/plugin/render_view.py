"""The objects that manifests lead to, as a YAML stream. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

import yaml

from api import view
from api.kinds import AIM_SERVICE
from api.reasons import Reason
from api.view import Json
from cli.plugin.rehearse import Rehearsal
from reconcile.settings import ReconcileSettings

_ORDER = (
    "AIMProfile",
    "AIMProfileCache",
    "AIMTemplateCache",
    "AIMArtifact",
    "PersistentVolumeClaim",
    "ConfigMap",
    "Job",
)
_HEAD = """\
# What these manifests lead to, as the controllers would make it. UIDs stand in for those that a cluster gives;
# names and keys that are made of UIDs differ there, too. Not meant to be applied.
"""


def rehearse(
    objects: Iterable[Json], now: datetime, settings: ReconcileSettings | None = None
) -> tuple[list[dict[str, Any]], list[str], list[str]]:
    """Return the objects made, notes, and what keeps services from being served."""
    rehearsal = Rehearsal(now, settings or ReconcileSettings())
    rehearsal.give(objects)
    rehearsal.play()
    made = sorted(rehearsal.made.values(), key=_place)
    return made, list(dict.fromkeys(rehearsal.notes)), list(_troubles(rehearsal))


def _place(obj: Mapping[str, Any]) -> tuple[str, int, str]:
    kind = str(obj.get("kind"))
    return (view.namespace_of(obj), _ORDER.index(kind) if kind in _ORDER else len(_ORDER), view.name_of(obj))


def _troubles(rehearsal: Rehearsal) -> Iterable[str]:
    for (kind, namespace, name), service in rehearsal.store.items():
        if kind != AIM_SERVICE.kind:
            continue
        ready = view.condition(service, "Ready")
        if ready.get("reason") in (Reason.STARTING, Reason.CREATING, Reason.SERVING):
            continue
        yield f"AIMService {namespace}/{name} would not be served: {ready.get('reason')}: {ready.get('message')}"


def to_yaml(made: Iterable[Mapping[str, Any]]) -> str:
    """Return the stream."""
    dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
    documents = [
        yaml.dump(_bare(obj), Dumper=dumper, sort_keys=False, allow_unicode=True, default_flow_style=False)
        for obj in made
    ]
    return _HEAD + "".join(f"---\n{document}" for document in documents)


def _bare(obj: Mapping[str, Any]) -> dict[str, Any]:
    """Without status, and without references shared between objects (YAML would write aliases)."""
    return {str(key): _copied(value) for key, value in obj.items() if key != "status"}


def _copied(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _copied(member) for key, member in value.items()}
    return [_copied(member) for member in value] if isinstance(value, list | tuple) else value


def summary(made: Iterable[Mapping[str, Any]]) -> list[tuple[str, str, str]]:
    """Return kind, namespace/name and what for, of each object."""
    return [(str(obj.get("kind")), f"{view.namespace_of(obj)}/{view.name_of(obj)}", _owner(obj)) for obj in made]


def _owner(obj: Mapping[str, Any]) -> str:
    owner = view.dig(dict(obj), "metadata", "ownerReferences", 0)
    return f"{view.dig(owner, 'kind')}/{view.dig(owner, 'name')}" if owner else ""
