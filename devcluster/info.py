"""The facts about a running cluster: one JSON object for programs, a table for people."""

from __future__ import annotations

import asyncio
import base64
from pathlib import Path

from rich.console import Console
from rich.table import Table

from api.view import JsonObject
from devcluster import content
from devcluster.by_path import Kube
from devcluster.control_plane import LOOPBACK
from devcluster.folder import Layout, World, is_running, read_state
from devcluster.pods import is_ready
from kube.errors import ApiError

NAMESPACE = "aim-system"
RELEASE = "aim-adapters"
_SELECTOR = f"app.kubernetes.io/instance={RELEASE}"
_HEALTH_PORT = 8080  # the plain port of the server's pods, unless the Service names another


class NotRunningError(Exception):
    """There is no running cluster in the folder."""


def gather(folder: Path) -> JsonObject:
    """Return the facts about the cluster in the folder, as `dev info --json` prints them.

    Raises: NotRunningError.
    """
    layout = Layout(folder.resolve())
    state = read_state(layout) if is_running(layout) else {}
    if not state.get("ready"):
        raise NotRunningError(f"not running: {layout.root} (start it with: aim-adapters dev up --dir {layout.root})")
    facts = render(layout, World.load(layout.world), state)
    if not state.get("controlPlaneOnly"):
        facts |= asyncio.run(_ask(layout))
    return facts


def render(layout: Layout, world: World, state: JsonObject) -> JsonObject:
    """Return the facts in the files; `metrics` and `admission` are null, they come from the API server."""
    programs = state.get("programs", {})
    return {
        "kubeconfig": str(layout.kubeconfig),
        "kubectl": programs.get("kubectl"),
        "s3": {
            "endpoint": f"http://{LOOPBACK}:{world.ports['s3']}",
            "root": str(layout.s3),
            "accessKey": world.s3_access_key,
            "secretKey": world.s3_secret_key,
        },
        "hub": {
            "endpoint": f"http://{LOOPBACK}:{world.ports['hub']}",
            "root": str(layout.hub),
            "token": world.hub_token,
        },
        "claims": str(layout.claims),
        "metrics": None,
        "admission": None,
        "processes": state.get("processes", {}),
        "secrets": [content.S3_SECRET, content.HUB_SECRET],
        "logs": str(layout.logs),
        "dir": str(layout.root),
        "images": str(layout.images),
        "faults": {source: str(layout.faults_of(source)) for source in ("hub", "s3")},
        "helm": programs.get("helm"),
        "namespace": NAMESPACE,
        "settings": world.settings,
        "notices": state.get("notices", []),
    }


async def _ask(layout: Layout) -> JsonObject:
    """Read from the API server where the server answers; unknown facts stay null."""
    async with await Kube.connect(layout.kubeconfig) as kube:
        try:
            services, pods, hooks = await asyncio.gather(
                kube.list(f"/api/v1/namespaces/{NAMESPACE}/services", {"labelSelector": _SELECTOR}),
                kube.list(f"/api/v1/namespaces/{NAMESPACE}/pods", {"labelSelector": _SELECTOR}),
                kube.list(
                    "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations",
                    {"labelSelector": _SELECTOR},
                ),
            )
        except ApiError:
            return {}
    url, ca_bundle = admission_of(hooks, services)
    ca_file = layout.run / "admission-ca.crt"
    if ca_bundle:
        ca_file.write_bytes(ca_bundle)
    return {
        "metrics": metrics_of(services, pods),
        "admission": {"url": url, "caFile": str(ca_file)} if url and ca_bundle else None,
    }


def metrics_of(services: list[JsonObject], pods: list[JsonObject]) -> str | None:
    """Return the URL of the metrics: of the Service that has a port of this name, else of a ready pod."""
    for service in services:
        for port in service["spec"].get("ports") or []:
            if port.get("name") == "metrics" and service["spec"].get("clusterIP") not in (None, "", "None"):
                return f"http://{service['spec']['clusterIP']}:{port['port']}/metrics"
    ready = sorted(address for pod in pods if (address := _ready_address(pod)) is not None)
    return f"http://{ready[0]}:{_HEALTH_PORT}/metrics" if ready else None


def admission_of(hooks: list[JsonObject], services: list[JsonObject]) -> tuple[str | None, bytes]:
    """Return the origin of the admission port and its CA bundle, as the API server uses them."""
    addresses = {service["metadata"]["name"]: service["spec"].get("clusterIP") for service in services}
    for hook in hooks:
        for webhook in hook.get("webhooks") or []:
            client = webhook["clientConfig"]
            address = addresses.get((client.get("service") or {}).get("name"))
            if address and client.get("caBundle"):
                port = client["service"].get("port", 443)
                return f"https://{address}:{port}", base64.b64decode(client["caBundle"])
    return None, b""


def _ready_address(pod: JsonObject) -> str | None:
    terminating = pod["metadata"].get("deletionTimestamp")
    return (pod.get("status") or {}).get("podIP") if is_ready(pod) and not terminating else None


def describe(facts: JsonObject) -> None:
    """Print the facts for people. The secrets are valid in this cluster only."""
    console = Console(soft_wrap=True)
    table = Table(show_header=False, box=None, pad_edge=False)
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    for name, value in facts.items():
        if not value:
            continue
        match value:
            case dict():
                table.add_row(name, "")
                for key, item in value.items():
                    table.add_row(f"  {key}", str(item))
            case list():
                table.add_row(name, ", ".join(map(str, value)))
            case _:
                table.add_row(name, str(value))
    console.print(table)
    console.print(f"\nexport KUBECONFIG={facts['kubeconfig']}", highlight=False)
    if facts["kubectl"]:
        console.print(f"alias kubectl={facts['kubectl']}", highlight=False)
