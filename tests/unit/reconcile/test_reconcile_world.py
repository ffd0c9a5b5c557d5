"""The caches and a set of given objects answer alike who uses something."""

from __future__ import annotations

from typing import Any, cast

import pytest

from api import view
from api.kinds import AIM_SERVICE
from reconcile.world import CachedWorld, make_informers
from rules.world import Index
from rules.worlds import SnapshotWorld

SPECS: dict[str, dict[str, Any]] = {
    "by-profile": {"profile": {"name": "wanted"}, "runtimeConfigName": "wanted"},
    "by-model": {"model": {"name": "wanted"}},
    "by-image": {"model": {"image": "wanted"}},
    "by-adapter": {"profile": {"name": "other"}, "adapters": [{"name": "wanted", "kind": "AIMArtifact"}]},
    "odd": {"profile": "wanted", "model": ["wanted"], "adapters": "wanted", "runtimeConfigName": 5},
}
SERVICES = [
    {
        "apiVersion": AIM_SERVICE.api_version,
        "kind": "AIMService",
        "metadata": {"name": name, "namespace": namespace, "resourceVersion": "1"},
        "spec": spec,
    }
    for namespace in ("here", "there")
    for name, spec in SPECS.items()
]


@pytest.mark.parametrize(
    ("index", "name"),
    [
        (Index.SERVICES_BY_PROFILE, "by-profile"),
        (Index.SERVICES_BY_MODEL, "by-model"),
        (Index.SERVICES_BY_RUNTIME_CONFIG, "by-profile"),
        (Index.SERVICES_BY_ARTIFACT, "by-adapter"),
    ],
)
def test_who_uses_it(index: Index, name: str) -> None:
    informers = make_informers(cast("Any", None))
    for service in SERVICES:
        informers[AIM_SERVICE].store(service)
    scopes = ["here", "elsewhere"] if index is Index.SERVICES_BY_ARTIFACT else ["here", "elsewhere", None]
    for world in (SnapshotWorld(SERVICES), CachedWorld(informers)):
        found = [
            {(view.namespace_of(service), view.name_of(service)) for service in world.find(index, scope, "wanted")}
            for scope in scopes
        ]
        assert found == [{("here", name)}, set(), {("here", name), ("there", name)}][: len(scopes)]
