"""Two tenants on one cluster: what one writes brings it nothing of the other, nor a credential that it may not read."""

from __future__ import annotations

import base64
from collections.abc import Iterator

import pytest

from tests.cluster.conftest import Cluster
from tests.cluster.product.team import Json, Team


@pytest.fixture
def victim(cluster: Cluster, namespace: str) -> Iterator[Team]:
    """The other tenant, with the sources' Secrets and one that nobody else has."""
    other = f"{namespace}-b"
    copies = [cluster.get("secret", name) or {} for name in cluster.info["secrets"]]
    cluster.apply(
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": other}},
        *({**copy, "metadata": {"name": copy["metadata"]["name"], "namespace": other}} for copy in copies),
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": "only-here", "namespace": other},
            "stringData": {"token": "hf_of_the_other_tenant"},
        },
    )
    yield Team(cluster, other)
    cluster.kubectl("delete", "namespace", other, "--wait=false", check=False)


def told(team: Team) -> str:
    """All that somebody without rights on Secrets can read of a namespace."""
    kinds = "aimservices,aimartifacts,inferenceservices,jobs,pods,configmaps,events,aimprofilecaches"
    return team.cluster.kubectl("get", kinds, "-n", team.namespace, "-o", "yaml").stdout


def test_secret_a_source_brings_no_credential_into_a_status(team: Team) -> None:
    """A kubelet replaces `$(NAME)` in the arguments of a container."""
    team.put("a")
    uri = f"hf://{team.namespace}/a/$(AWS_SECRET_ACCESS_KEY)"
    team.apply(team.adapter("leak", uri), team.service("svc", ["leak"]))
    entry = team.until_failed("svc", "leak", "SourcePrefixEmpty")
    assert "$(AWS_SECRET_ACCESS_KEY)" in entry["lastError"]
    secret = team.get("secret", "aim-dev-s3")["data"]["secretAccessKey"]
    assert base64.b64decode(secret).decode() not in told(team)


def test_secret_one_of_another_namespace_is_given_to_nobody(team: Team, victim: Team) -> None:
    team.put("a")
    reference: Json = {"name": "HF_TOKEN", "valueFrom": {"secretKeyRef": {"name": "only-here", "key": "token"}}}
    team.apply(team.adapter("a", env=[reference]), team.service("svc", ["a"]))

    def blocked() -> bool:
        return 'secret "only-here" not found' in team.entry("svc", "a").get("lastError", "") + told(team)

    team.until("the Job to wait for a Secret that is not there", blocked)
    assert team.entry("svc", "a")["state"] not in {"Downloaded", "Loaded"}
    reference["valueFrom"]["secretKeyRef"]["namespace"] = victim.namespace
    said = team.cluster.apply(team.adapter("b", env=[reference]), check=False)
    assert "unknown field" in said, "no field of a reference takes a namespace"
    assert "hf_of_the_other_tenant" not in told(team)


def test_path_a_forged_directory_touches_no_other_disk(team: Team, victim: Team) -> None:
    """Somebody who may write the status of artifacts says where an adapter shall lie, and which claim is its disk."""
    for each in (team, victim):
        each.apply(each.adapter("a", each.put("a")), each.service("svc", ["a"]))
    for each in (team, victim):
        each.until_loaded("svc", "a")
    files = {path: path.stat().st_mtime_ns for path in victim.subtree("svc").rglob("*")}
    assert files
    theirs = victim.status("svc")["adapterDiskPersistentVolumeClaim"]
    path = f"../../{victim.namespace}/{theirs}/{victim.get('aimservice', 'svc')['metadata']['uid']}/a"
    patch = f'{{"status":{{"adapterPath":"{path}"}}}}'
    argv = ("patch", "aimartifact", "a", "-n", team.namespace, "--subresource=status", "--type=merge", "-p", patch)
    said = team.cluster.kubectl(*argv, check=False)
    if said.returncode == 0:  # the schema may refuse it already
        team.cluster.kubectl("annotate", "aimartifact", "a", "-n", team.namespace, "aim.eai.amd.com/restage=1")
        team.until(
            "the path to be refused",
            lambda: "AdapterPathInvalid" in str(team.entry("svc", "a")) + str(team.condition("svc", "Adapters")),
        )
    claim = f'{{"status":{{"adapterPersistentVolumeClaim":"{theirs}"}}}}'
    base = next(obj for obj in team.cluster.items("aimartifacts", team.namespace) if obj["metadata"]["name"] != "a")
    name = base["metadata"]["name"]
    argv = ("patch", "aimartifact", name, "-n", team.namespace, "--subresource=status", "--type=merge", "-p", claim)
    team.cluster.kubectl(*argv)
    own = base["status"]["adapterPersistentVolumeClaim"]
    team.until(
        "the forged claim to be mended",
        lambda: team.get("aimartifact", name)["status"]["adapterPersistentVolumeClaim"] == own,
    )
    assert {path: path.stat().st_mtime_ns for path in victim.subtree("svc").rglob("*")} == files
    assert victim.models("svc") >= {"a"}


def test_level_of_a_model_server_is_baseline(team: Team) -> None:
    """What SECURITY.md says, by the API server's own admission of pods. The chart's tests have the restricted level."""
    team.apply(team.service("svc"))
    team.until_running("svc")
    (pod,) = team.pods("svc")
    baseline, restricted = _admitted(team, pod["spec"], "baseline"), _admitted(team, pod["spec"], "restricted")
    assert "violates" not in baseline
    for lacking in ("unrestricted capabilities", "runAsNonRoot != true"):
        assert lacking in restricted
    for fine in ("allowPrivilegeEscalation", "seccompProfile", "restricted volume types", "runAsUser=0"):
        assert fine not in restricted


def _admitted(team: Team, spec: Json, level: str) -> str:
    """Return what the API server says about a pod in a namespace that enforces a level."""
    name = f"{team.namespace}-{level}"
    labels = {"pod-security.kubernetes.io/enforce": level}
    team.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}})
    wanted = {key: value for key, value in spec.items() if key not in {"nodeName", "serviceAccountName", "priority"}}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "tried", "namespace": name}, "spec": wanted}
    try:
        return team.cluster.apply(pod, check=False, args=("--dry-run=server",))
    finally:
        team.cluster.kubectl("delete", "namespace", name, "--wait=false", check=False)
