"""Two tenants on one cluster: nothing that one writes gives access to the other, or to a credential."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import NamedTuple

import pytest

from api.view import JsonObject
from tests.cluster.conftest import Cluster, new_namespaces
from tests.cluster.product.both import on_both_pipelines
from tests.cluster.product.team import PIPELINES, Team


class Tenants(NamedTuple):
    """The attacking tenant and the other one, each with a running service."""

    team: Team
    victim: Team


@pytest.fixture(scope="module")
def teams(cluster: Cluster) -> Iterator[dict[str, Tenants]]:
    """Two tenants on each pipeline; the second one has a Secret."""
    names = [f"{pipeline} {who}" for pipeline in PIPELINES for who in ("attacks", "suffers")]
    with new_namespaces(cluster, *names) as namespaces:
        made = [Team(cluster, name, said.split()[0]) for name, said in zip(namespaces, names, strict=True)]
        for team in made:
            needed = team.model_and_template() if team.pipeline == "template" else []
            team.apply(*needed, team.adapter("a", team.put("a")), team.service("svc", ["a"]))
        tenants = {pipeline: Tenants(*made[at : at + 2]) for pipeline, at in zip(PIPELINES, (0, 2), strict=True)}
        for _, victim in tenants.values():
            own = {"name": "only-here", "namespace": victim.namespace}
            value = {"token": "hf_of_the_other_tenant"}
            cluster.apply({"apiVersion": "v1", "kind": "Secret", "metadata": own, "stringData": value})
        for team in made:
            team.until_loaded("svc", "a")
        yield tenants


def told(team: Team) -> str:
    """Return everything in a namespace that a user without rights on Secrets can read."""
    kinds = "aimservices,aimartifacts,inferenceservices,jobs,pods,configmaps,events,aimprofilecaches,aimtemplatecaches"
    return team.cluster.kubectl("get", kinds, "-n", team.namespace, "-o", "yaml").stdout


@on_both_pipelines
def test_secret_a_source_cannot_put_a_credential_into_a_status(tenants: Tenants) -> None:
    """A kubelet replaces `$(NAME)` in the arguments of a container."""
    team = tenants.team
    uri = f"hf://{team.namespace}/a/$(AWS_SECRET_ACCESS_KEY)"
    team.apply(team.adapter("leak", uri), team.service("svc", ["a", "leak"]))
    entry = team.until_failed("svc", "leak", "SourcePrefixEmpty")
    assert "$(AWS_SECRET_ACCESS_KEY)" in entry["lastError"]
    secret = team.get("secret", "aim-dev-s3")["data"]["secretAccessKey"]
    assert base64.b64decode(secret).decode() not in told(team)


@on_both_pipelines
def test_secret_a_variable_of_a_job_is_not_expanded(tenants: Tenants) -> None:
    """A kubelet replaces `$(NAME)` in the values of variables, too: an endpoint would name the key in its error."""
    team = tenants.team
    secret = team.get("secret", "aim-dev-s3")["data"]["secretAccessKey"]
    key = {"secretKeyRef": {"name": "aim-dev-s3", "key": "secretAccessKey"}}
    env = [
        {"name": "AWS_SECRET_ACCESS_KEY", "valueFrom": key},
        {"name": "HF_ENDPOINT", "value": "http://$(AWS_SECRET_ACCESS_KEY).invalid"},
    ]
    expanded = team.adapter("expanded", team.put("expanded"), env=env)
    team.apply(expanded, team.service("svc", ["a", "expanded"]))
    error = team.until("the download to fail", lambda: team.entry("svc", "expanded").get("lastError"))
    assert error.startswith("Source")
    assert base64.b64decode(secret).decode().lower() not in told(team).lower()
    team.apply(team.service("svc", ["a"]))


@on_both_pipelines
def test_secret_of_another_namespace_reaches_no_job(tenants: Tenants) -> None:
    team, victim = tenants
    reference: JsonObject = {"name": "HF_TOKEN", "valueFrom": {"secretKeyRef": {"name": "only-here", "key": "token"}}}
    team.apply(team.adapter("b", team.put("b"), env=[reference]), team.service("svc", ["a", "b"]))
    team.until("the Job to wait for a Secret that is not there", lambda: 'secret "only-here" not found' in told(team))
    assert team.entry("svc", "b")["state"] not in {"Downloaded", "Loaded"}
    reference["valueFrom"]["secretKeyRef"]["namespace"] = victim.namespace
    said = team.cluster.apply(team.adapter("c", env=[reference]), check=False)
    assert "unknown field" in said, "no field of a reference takes a namespace"
    assert "hf_of_the_other_tenant" not in told(team)


@on_both_pipelines
def test_path_a_forged_directory_changes_no_other_disk(tenants: Tenants) -> None:
    """A user with rights on the status of artifacts sets another path for an adapter, and another claim as its disk."""
    team, victim = tenants
    files = {path: path.stat().st_mtime_ns for path in victim.subtree("svc").rglob("*")}
    assert files
    theirs = victim.status("svc")["adapterDiskPersistentVolumeClaim"]
    path = f"../../{victim.namespace}/{theirs}/{victim.get('aimservice', 'svc')['metadata']['uid']}/a"
    patch = f'{{"status":{{"adapterPath":"{path}"}}}}'
    argv = ("patch", "aimartifact", "a", "-n", team.namespace, "--subresource=status", "--type=merge", "-p", patch)
    said = team.cluster.kubectl(*argv, check=False)
    if said.returncode == 0:  # the schema can refuse it first
        team.cluster.kubectl("annotate", "aimartifact", "a", "-n", team.namespace, "aim.eai.amd.com/restage=1")
        team.until(
            "the path to be refused",
            lambda: "AdapterPathInvalid" in str(team.entry("svc", "a")) + str(team.condition("svc", "Adapters")),
        )
    claim = f'{{"status":{{"adapterPersistentVolumeClaim":"{theirs}"}}}}'
    base = next(
        obj for obj in team.cluster.items("aimartifacts", team.namespace) if obj["spec"].get("type") != "adapter"
    )
    name = base["metadata"]["name"]
    argv = ("patch", "aimartifact", name, "-n", team.namespace, "--subresource=status", "--type=merge", "-p", claim)
    team.cluster.kubectl(*argv)
    own = base["status"]["adapterPersistentVolumeClaim"]
    team.until(
        "the forged claim to be corrected",
        lambda: team.get("aimartifact", name)["status"]["adapterPersistentVolumeClaim"] == own,
    )
    assert {path: path.stat().st_mtime_ns for path in victim.subtree("svc").rglob("*")} == files
    assert victim.models("svc") >= {"a"}


@on_both_pipelines
def test_level_of_a_model_server_is_baseline(tenants: Tenants) -> None:
    """The API server's own admission of pods confirms SECURITY.md. The chart's tests cover the restricted level."""
    team = tenants.team
    (pod,) = team.pods("svc")
    baseline, restricted = _admitted(team, pod["spec"], "baseline"), _admitted(team, pod["spec"], "restricted")
    assert "violates" not in baseline
    for lacking in ("unrestricted capabilities", "runAsNonRoot != true"):
        assert lacking in restricted
    for fine in ("allowPrivilegeEscalation", "seccompProfile", "restricted volume types", "runAsUser=0"):
        assert fine not in restricted


def _admitted(team: Team, spec: JsonObject, level: str) -> str:
    """Return the API server's answer about a pod in a namespace that enforces a level."""
    name = f"{team.namespace}-{level}"
    labels = {"pod-security.kubernetes.io/enforce": level}
    team.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}})
    wanted = {key: value for key, value in spec.items() if key not in {"nodeName", "serviceAccountName", "priority"}}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "tried", "namespace": name}, "spec": wanted}
    try:
        return team.cluster.apply(pod, check=False, args=("--dry-run=server",))
    finally:
        team.cluster.kubectl("delete", "namespace", name, "--wait=false", check=False)
