"""What an object refers to, as `resolved…` fields of a status report it. Pure.

A part that is not known is None: a status is stored without nulls.
"""

from __future__ import annotations

from typing import Any

from api import view
from api.kinds import AIM_CLUSTER_RUNTIME_CONFIG, AIM_RUNTIME_CONFIG, Kind
from api.view import Json
from rules.references import Reference, Resolved
from rules.runtime_config import MergedRuntimeConfig


def render_reference(reference: Reference | None) -> dict[str, Any] | None:
    """Return kind, name, namespace, scope and UID of what a reference leads to, None where it leads nowhere."""
    if not isinstance(reference, Resolved):
        return None
    return _render(reference.kind, reference.name, reference.obj, reference.scope)


def render_config_reference(config: MergedRuntimeConfig) -> dict[str, Any] | None:
    """Return the same of a RuntimeConfig, None where there is none; of two merged ones the namespace's."""
    if not config.found:
        return None
    found = config.namespaced if config.namespaced is not None else config.cluster
    kind = AIM_RUNTIME_CONFIG if config.namespaced is not None else AIM_CLUSTER_RUNTIME_CONFIG
    return _render(kind, config.name, found, config.scope)


def _render(kind: Kind, name: str, obj: Json | None, scope: str | None) -> dict[str, Any]:
    return {
        "kind": kind.kind,
        "name": name,
        "namespace": view.namespace_of(obj) or None,
        "scope": scope,
        "uid": view.uid_of(obj) or None,
    }
