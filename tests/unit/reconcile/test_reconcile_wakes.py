"""Whose pass a change asks for: everything that a service's decision reads must wake it when it comes or changes."""

from __future__ import annotations

from typing import Any, cast

import pytest

from api.kinds import AIM_ARTIFACT, AIM_SERVICE, AIM_TEMPLATE_CACHE, Kind
from reconcile.caches.controller import CacheController
from reconcile.client import Client
from reconcile.engine import Controller
from reconcile.informers import CachedWorld, make_informers
from reconcile.manager import make_reconciler
from reconcile.settings import CONTROLLERS, ReconcileSettings
from rules.world import KIND_BY_NAME
from tests.unit.reconcile.test_reconcile_calls import PLACE, Scene

SERVICES: dict[str, dict[str, Any]] = {
    "profiled": {"profile": {"name": "p"}, "runtimeConfigName": "rc"},
    "adapted": {"profile": {"name": "other"}, "adapters": [{"name": "lora", "kind": "AIMArtifact"}]},
    "modelled": {"model": {"name": "m"}},
    "imaged": {"model": {"image": "img:1"}},
    "templated": {"model": {"image": "elsewhere"}, "template": {"name": "t"}},
    "apart": {"profile": {"name": "apart"}, "runtimeConfigName": "apart"},
}
STORED: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("AIMArtifact", "lora", {"type": "adapter", "runtimeConfigName": "keys"}),
    ("AIMModel", "m", {"image": "img:1"}),
    ("AIMServiceTemplate", "t", {"modelName": "m"}),
)
CASES: dict[str, tuple[str, str, dict[str, Any], set[str]]] = {
    "a profile": ("AIMProfile", "p", {}, {"profiled"}),
    "a cluster profile": ("AIMClusterProfile", "p", {}, {"profiled"}),
    "a RuntimeConfig": ("AIMRuntimeConfig", "rc", {}, {"profiled"}),
    "a RuntimeConfig that an adapter names": ("AIMRuntimeConfig", "keys", {}, {"adapted"}),
    "a cluster RuntimeConfig that an adapter names": ("AIMClusterRuntimeConfig", "keys", {}, {"adapted"}),
    "an adapter": ("AIMArtifact", "lora", {"type": "adapter"}, {"adapted"}),
    "a model, by name, image and template": ("AIMModel", "m", {"image": "img:1"}, {"modelled", "imaged", "templated"}),
    "a cluster model": ("AIMClusterModel", "m", {"image": "img:1"}, {"modelled", "imaged", "templated"}),
    "a template by name": ("AIMServiceTemplate", "t", {"modelName": "gone"}, {"templated"}),
    "one more template of the model": ("AIMServiceTemplate", "t2", {"modelName": "m"}, {"modelled", "imaged"}),
    "one more cluster template": ("AIMClusterServiceTemplate", "t2", {"modelName": "m"}, {"modelled", "imaged"}),
}


def _object(kind: Kind, name: str, spec: dict[str, Any]) -> dict[str, Any]:
    metadata = {"name": name} | ({"namespace": PLACE} if kind.namespaced else {})
    return {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata, "spec": spec}


@pytest.fixture
def scene() -> Scene:
    scene = Scene(projected=False)
    for name, spec in SERVICES.items():
        scene.server.add(AIM_SERVICE, _object(AIM_SERVICE, name, spec))
    for kind, name, spec in STORED:
        scene.server.add(KIND_BY_NAME[kind], _object(KIND_BY_NAME[kind], name, spec))
    return scene


def woken(controller: Controller, changed: dict[str, Any]) -> set[str]:
    kind = KIND_BY_NAME[changed["kind"]]
    keys = {key for watch in controller.watches if watch.informer.kind == kind for key in watch.keys(None, changed)}
    assert {namespace for namespace, _ in keys} <= {PLACE}
    return {name for _, name in keys}


@pytest.mark.parametrize(("kind", "name", "spec", "expected"), CASES.values(), ids=CASES)
def test_services(scene: Scene, kind: str, name: str, spec: dict[str, Any], expected: set[str]) -> None:
    assert woken(scene.controller, _object(KIND_BY_NAME[kind], name, spec)) == expected


def test_the_overlay_of_a_service_wakes_it(scene: Scene) -> None:
    overlay = _object(KIND_BY_NAME["AIMProfile"], "profiled-overlay", {})
    owner = {"apiVersion": AIM_SERVICE.api_version, "kind": "AIMService", "name": "profiled", "uid": "u"}
    overlay["metadata"]["ownerReferences"] = [owner]
    assert woken(scene.controller, overlay) == {"profiled"}


@pytest.mark.parametrize("model", ["AIMModel", "AIMClusterModel"])
def test_the_cache_of_a_template_has_its_models_sources(scene: Scene, model: str) -> None:
    cache = _object(AIM_TEMPLATE_CACHE, "t-cache", {"templateName": "t"})
    scene.server.add(AIM_TEMPLATE_CACHE, cache)
    controller = CacheController(scene.controller._tools, AIM_TEMPLATE_CACHE)
    changed = _object(KIND_BY_NAME[model], "m", {"image": "img:2"})
    assert woken(controller, changed) == {"t-cache"}
    assert woken(controller, _object(AIM_ARTIFACT, "any", {"sourceUri": "hf://a/b"})) == {"t-cache"}


def test_only_the_chosen_controllers_are_made() -> None:
    informers = make_informers(cast("Client", None))
    world, nobody = CachedWorld(informers), cast("Any", None)

    def names(*chosen: str) -> list[str]:
        made = make_reconciler(
            nobody,
            informers=informers,
            world=world,
            recorder=nobody,
            settings=ReconcileSettings(),
            wake=nobody,
            selected=chosen or CONTROLLERS,
        )
        return [controller.name for controller in made.controllers]

    assert names() == list(CONTROLLERS)
    assert names("artifact", "service") == ["service", "artifact"]
