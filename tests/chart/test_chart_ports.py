"""A live server as the chart sets it up: client certificates, metrics for tokens that may read them, one half alone.

No pod runs: the server is a process with the release's own configuration, service account and rights.
"""

from __future__ import annotations

import base64
import http.client
import json
import os
import re
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

from api.view import JsonObject
from devcluster.pki import Authority, Pair
from tests.chart.conftest import NAMESPACE, RELEASE, ROOT, WRONG, Helm, Plane

pytestmark = pytest.mark.chart

SERVED_AS = f"{RELEASE}-webhook.{NAMESPACE}.svc"
SECRET = f"{RELEASE}-webhook-tls"


@dataclass
class Server:
    """A running server. `ports`: admission, health, metrics."""

    plane: Plane
    ports: dict[str, int]
    folder: Path

    def context(self, client: Pair | None = None) -> ssl.SSLContext:
        """TLS that trusts what the webhook configuration trusts, with a client's certificate."""
        found = self.plane.get("validatingwebhookconfiguration", RELEASE) or {}
        bundle = base64.b64decode(found["webhooks"][0]["clientConfig"]["caBundle"]).decode()
        context = ssl.create_default_context(cadata=bundle)
        if client is not None:
            context.load_cert_chain(client.certificate, client.key)
        return context

    def ask(
        self, port: str, path: str, *, client: Pair | None = None, body: JsonObject | None = None, token: str = ""
    ) -> tuple[int, str]:
        """Return status and body of a request by TLS to the name that the API server calls."""
        connection = http.client.HTTPSConnection(SERVED_AS, timeout=10, context=self.context(client))
        raw = socket.create_connection(("127.0.0.1", self.ports[port]), timeout=10)
        connection.sock = self.context(client).wrap_socket(raw, server_hostname=SERVED_AS)
        headers = {"content-type": "application/json"} | ({"authorization": f"Bearer {token}"} if token else {})
        try:
            connection.request("POST" if body else "GET", path, json.dumps(body) if body else None, headers)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        finally:
            connection.close()

    def health(self, path: str) -> int:
        """Return the status of a plain request to the health port; 0 while there is no answer."""
        connection = http.client.HTTPConnection("127.0.0.1", self.ports["health"], timeout=10)
        try:
            connection.request("GET", path)
            return connection.getresponse().status
        except OSError:
            return 0
        finally:
            connection.close()


def free_ports(count: int) -> list[int]:
    """Return free ports."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [found.getsockname()[1] for found in sockets]
    for found in sockets:
        found.close()
    return ports


@contextmanager
def served(plane: Plane, release: Helm, folder: Path, values: JsonObject) -> Iterator[Server]:
    """Install the release, and run its server as its pod would, under its own service account."""
    ports = dict(zip(("admission", "health", "metrics"), free_ports(3), strict=True))
    release.install("install", {"ports": ports, "reconciler": {"enabled": False}, **values})
    plane.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=30s")
    data = (plane.get("configmap", RELEASE, NAMESPACE) or {})["data"]
    for name, text in data.items():  # as the volume of the pod shows them
        (folder / name).write_text(text.replace("/etc/aim-adapters/config/", f"{folder}/"))
    token = plane.kubectl("create", "token", RELEASE, "-n", NAMESPACE).stdout.strip()
    kubeconfig = yaml.safe_load(plane.kubeconfig.read_text())
    kubeconfig["users"] = [{"name": entry["name"], "user": {"token": token}} for entry in kubeconfig["users"]]
    (folder / "kubeconfig").write_text(yaml.safe_dump(kubeconfig))
    argv = [sys.executable, "-m", "cli.main", "serve", "--bind-address=127.0.0.1", f"--kubeconfig={folder}/kubeconfig"]
    environment = {**os.environ, "AIMA_CONFIG": f"{folder}/config.yaml", "AIMA_POD_NAME": "tried"}
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(argv, cwd=ROOT, env=environment, stdout=log, stderr=log)
        server = Server(plane, ports, folder)
        try:
            plane.wait(lambda: server.health("/readyz") == 200, f"it is ready: {folder}/log", 60)
            yield server
        finally:
            process.terminate()
            process.wait(timeout=40)
            plane.kubectl("delete", "secret", SECRET, "-n", NAMESPACE, "--ignore-not-found")


def review() -> JsonObject:
    """A review that our rules refuse."""
    request: dict[str, Any] = {
        "uid": "1",
        "operation": "CREATE",
        "kind": {"group": "aim.eai.amd.com", "version": "v1alpha1", "kind": "AIMArtifact"},
        "requestKind": {"group": "aim.eai.amd.com", "version": "v1alpha1", "kind": "AIMArtifact"},
        "namespace": "default",
        "name": "wrong",
        "object": WRONG,
    }
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}


def account(plane: Plane, name: str, *, reads: bool) -> str:
    """Make a service account, with the right to read metrics or without; return a token of it."""
    labels = {"app.kubernetes.io/part-of": "aim-adapters"}  # cleaned up with the release
    objects: list[JsonObject] = [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, "namespace": "default"}}
    ]
    if reads:
        rules = [{"nonResourceURLs": ["/metrics"], "verbs": ["get"]}]
        head = {"apiVersion": "rbac.authorization.k8s.io/v1", "metadata": {"name": name, "labels": labels}}
        objects += [
            {**head, "kind": "ClusterRole", "rules": rules},
            {
                **head,
                "kind": "ClusterRoleBinding",
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name},
                "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": "default"}],
            },
        ]
    plane.apply(*objects)
    return plane.kubectl("create", "token", name, "-n", "default").stdout.strip()


def test_client_certificates_and_protected_metrics(plane: Plane, release: Helm, tmp_path: Path) -> None:
    """One live server shows both: they are independent of each other."""
    clients, others = (Authority.ensure(tmp_path / name) for name in ("clients", "others"))
    ours, theirs = (each.issue("client", "kube-apiserver", now=datetime.now(UTC)) for each in (clients, others))
    may, may_not = account(plane, "prometheus", reads=True), account(plane, "nobody", reads=False)
    values = {"webhooks": {"clientCA": clients.pem.decode()}, "metrics": {"protected": True}}
    with served(plane, release, tmp_path, values) as server:
        for stranger in (None, theirs):
            with pytest.raises((ssl.SSLError, OSError, http.client.HTTPException)):
                server.ask("admission", "/validate", client=stranger, body=review())
        status, said = server.ask("admission", "/validate", client=ours, body=review())
        assert status == 200
        assert "spec.compatibleWith" in said

        assert plane.get("lease", RELEASE, NAMESPACE) is None, "admission only: there is no leader"
        assert server.health("/metrics") == 404, "the plain port shows none"
        assert server.ask("metrics", "/metrics")[0] == 401
        assert server.ask("metrics", "/metrics", token="made.up.token")[0] == 401
        assert server.ask("metrics", "/metrics", token=may_not)[0] == 403
        status, page = server.ask("metrics", "/metrics", token=may)
        assert status == 200
        shown = {line.split()[2] for line in page.splitlines() if line.startswith("# TYPE aim_adapters_")}
        assert shown <= set(re.findall(r"^\| `(aim_adapters_\w+)`", (ROOT / "docs" / "metrics.md").read_text(), re.M))
        assert "aim_adapters_admission_reviews_total" in page
        log = (tmp_path / "log").read_text()
        for token in (may, may_not, "made.up.token"):
            assert token not in log


def test_reconciler_only_takes_what_is_wrong_and_reports_it(plane: Plane, release: Helm, tmp_path: Path) -> None:
    """No webhook configuration, no certificate, no admission port; the same rules speak in the status."""
    modes = {"webhooks": {"enabled": False}, "reconciler": {"enabled": True}}
    with served(plane, release, tmp_path, modes) as server:
        for kind in ("validatingwebhookconfiguration", "mutatingwebhookconfiguration"):
            assert plane.get(kind, RELEASE) is None
        assert "created" in plane.apply(WRONG)

        def reported() -> bool:
            return "spec.compatibleWith" in str((plane.get("aimartifact", "wrong") or {}).get("status"))

        plane.wait(reported, f"the status says what admission would have: {tmp_path}/log", 60)
        assert plane.get("lease", RELEASE, NAMESPACE)
        assert plane.get("secret", SECRET, NAMESPACE) is None
        with pytest.raises(OSError, match="refused"):
            socket.create_connection(("127.0.0.1", server.ports["admission"]), timeout=5)
    plane.kubectl("delete", "lease", RELEASE, "-n", NAMESPACE)
