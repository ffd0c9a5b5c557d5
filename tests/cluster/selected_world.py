"""A service of each pipeline, for processes with selected controllers, and the rights of each process."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from api import view
from api.kinds import (
    AIM_ARTIFACT,
    AIM_MODEL,
    AIM_PROFILE,
    AIM_PROFILE_CACHE,
    AIM_SERVICE,
    AIM_SERVICE_TEMPLATE,
    AIM_TEMPLATE_CACHE,
    INFERENCE_SERVICE,
    Kind,
)
from api.view import Json
from bench.reconcile.stand_ins import SOURCE, adapter, base_and_profile, service
from devcluster.pki import Authority, render_kubeconfig
from kube.client import Client
from reconcile.settings import CONTROLLERS
from tests.cluster.engine_plane import Plane

MODEL = "llama"
ADAPTERS = ("red", "green")
SELECTED = {"services": ("service",), "others": tuple(name for name in CONTROLLERS if name != "service")}
MAY_WRITE = {
    "services": {
        *("aimservices/status", "aimprofilecaches", "aimtemplatecaches", "inferenceservices", "configmaps"),
        *("jobs", "events"),
    },
    "others": {
        *("aimartifacts", "aimartifacts/status", "aimprofilecaches/status", "aimtemplatecaches/status"),
        *("aimprofiles/status", "aimmodels/status", "aimservicetemplates/status"),
        *("persistentvolumeclaims", "jobs", "events"),
    },
}
REPORTING = (AIM_ARTIFACT, AIM_PROFILE_CACHE, AIM_TEMPLATE_CACHE, AIM_PROFILE, AIM_MODEL, AIM_SERVICE_TEMPLATE)


def as_user(plane: Plane, folder: Path, user: str) -> Path:
    """Write the kubeconfig of a user with all rights and a separate name in the audit log."""
    authority = Authority.ensure(plane.folder / "pki")
    pair = authority.issue(user, user, groups=("system:masters",), now=datetime.now(UTC))
    path = folder / f"kubeconfig-{user}"
    path.write_text(render_kubeconfig(plane.server, authority.pem, user, pair))
    return path


def model_and_template(place: str) -> list[tuple[Kind, dict[str, Any]]]:
    """Return the other objects of the template pipeline, with the source of the profile pipeline's base."""
    sources = [{"modelId": "acme/llama", "sourceUri": SOURCE, "size": "10Gi"}]
    model = {"image": "registry.example/aim/llama:0.13.1", "modelSources": sources}
    template = {"modelName": MODEL, "hardware": {"gpu": {"model": "MI300X", "requests": 1}}}
    return [
        (AIM_MODEL, _object(AIM_MODEL, place, MODEL, model)),
        (AIM_SERVICE_TEMPLATE, _object(AIM_SERVICE_TEMPLATE, place, MODEL, template)),
    ]


def world(place: str) -> list[tuple[Kind, dict[str, Any]]]:
    """Return a service of each pipeline, with its base, profile, model, template and adapters."""
    by_profile, by_template = service(place, 0, 0), service(place, 1, 0)
    by_template["spec"] = {"model": {"name": MODEL}}
    for each in (by_profile, by_template):
        refs = [{"name": name, "kind": "AIMArtifact"} for name in ADAPTERS]
        each["spec"] |= {"adapterMode": "dynamic", "adapters": refs}
    return [
        *base_and_profile(place, disk=False, projected=False),
        *model_and_template(place),
        *((AIM_ARTIFACT, adapter(place, name)) for name in ADAPTERS),
        (AIM_SERVICE, by_profile),
        (AIM_SERVICE, by_template),
    ]


def _object(kind: Kind, place: str, name: str, spec: Json) -> dict[str, Any]:
    metadata = {"name": name, "namespace": place}
    return {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata, "spec": spec}


async def waiting(client: Client, place: str) -> list[Json]:
    """Return the services that wait for their cache."""
    services, _ = await client.list_all(AIM_SERVICE, place)
    return [one for one in services if view.condition(one, "CacheReady").get("reason") == "CachesNotReady"]


async def served(client: Client, place: str) -> list[Json]:
    """Return the services whose adapters are all on the disk, and that have an InferenceService."""
    services, _ = await client.list_all(AIM_SERVICE, place)
    made, _ = await client.list_all(INFERENCE_SERVICE, place)
    owners = {ref["name"] for isvc in made for ref in view.items(isvc, "metadata", "ownerReferences")}
    return [
        one
        for one in services
        if view.condition(one, "Adapters").get("reason") == "AdaptersStaged" and view.name_of(one) in owners
    ]


async def reported(client: Client, place: str) -> set[str]:
    """Return the kinds, but for services, of which an object has a status."""
    return {
        kind.kind
        for kind in REPORTING
        for one in (await client.list_all(kind, place))[0]
        if view.mapping(one, "status")
    }
