"""What an object refers to, as `resolved…` fields of a status report it. Pure.

A part that is not known is None: a status is stored without nulls.
"""

from __future__ import annotations

from typing import Any

from api.kinds import AIM_CLUSTER_RUNTIME_CONFIG, AIM_RUNTIME_CONFIG
from api.view import namespace_of, uid_of
from rules.resolve import MergedRuntimeConfig, Reference, Resolved


def render_reference(reference: Reference | None) -> dict[str, Any] | None:
    """Return kind, name, namespace, scope and UID of what a reference leads to, None where it leads nowhere."""
    if not isinstance(reference, Resolved):
        return None
    return {
        "kind": reference.kind.kind,
        "name": reference.name,
        "namespace": namespace_of(reference.obj) or None,
        "scope": reference.scope,
        "uid": uid_of(reference.obj) or None,
    }


def render_config_reference(config: MergedRuntimeConfig) -> dict[str, Any] | None:
    """Return the same of a RuntimeConfig, None where there is none; of two merged ones the namespace's."""
    if not config.found:
        return None
    found = config.namespaced if config.namespaced is not None else config.cluster
    kind = AIM_RUNTIME_CONFIG if config.namespaced is not None else AIM_CLUSTER_RUNTIME_CONFIG
    return {
        "kind": kind.kind,
        "name": config.name,
        "namespace": namespace_of(found) or None,
        "scope": config.scope,
        "uid": uid_of(found) or None,
    }
