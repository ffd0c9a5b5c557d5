"""The whole cluster works when `up` returns, at the addresses that `info` prints."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest

from .conftest import Cluster

pytestmark = pytest.mark.cluster

INFO_KEYS = {"kubeconfig", "kubectl", "s3", "hub", "claims", "metrics", "admission", "processes", "secrets", "logs"}


def test_info_is_one_json_object_with_every_promised_key(cluster: Cluster) -> None:
    said = cluster.run(sys.executable, "-m", "devcluster.cli", "info", "--dir", cluster.folder, "--json").stdout
    facts = json.loads(said)
    assert set(facts) >= INFO_KEYS
    assert set(facts["s3"]) == {"endpoint", "root", "accessKey", "secretKey"}
    assert set(facts["hub"]) == {"endpoint", "root", "token"}
    assert set(facts["admission"]) == {"url", "caFile"}
    for path in (facts["kubeconfig"], facts["kubectl"], facts["claims"], facts["logs"], facts["admission"]["caFile"]):
        assert Path(path).exists(), path
    for pid in facts["processes"].values():
        assert Path(f"/proc/{pid}").exists()
    expected = {"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "node", "kserve", "hub", "s3"}
    assert expected <= set(facts["processes"])


def test_info_for_people_names_the_same_things(cluster: Cluster) -> None:
    said = cluster.run(sys.executable, "-m", "devcluster.cli", "info", "--dir", cluster.folder).stdout
    for words in (cluster.info["hub"]["endpoint"], cluster.info["metrics"], "export KUBECONFIG="):
        assert words in said


def test_metrics_and_admission_answer_at_the_addresses_of_info(cluster: Cluster) -> None:
    assert cluster.info["metrics"].endswith("/metrics")
    assert "python_info" in httpx.get(cluster.info["metrics"], trust_env=False).text
    with httpx.Client(verify=_trust(cluster.info["admission"]["caFile"]), trust_env=False) as client:
        review = {
            "apiVersion": "admission.k8s.io/v1",
            "kind": "AdmissionReview",
            "request": {
                "uid": "u",
                "operation": "CREATE",
                "kind": {"group": "aim.eai.amd.com", "version": "v1alpha1", "kind": "AIMArtifact"},
                "resource": {"group": "aim.eai.amd.com", "version": "v1alpha1", "resource": "aimartifacts"},
                "namespace": "default",
                "name": "x",
                "userInfo": {},
                "object": adapter("x", "default"),
            },
        }
        answer = client.post(f"{cluster.info['admission']['url']}/validate", json=review)
    assert answer.status_code == 200
    assert answer.json()["response"]["uid"] == "u"


def _trust(ca_file: str) -> Any:
    import ssl

    return ssl.create_default_context(cafile=ca_file)


def adapter(name: str, namespace: str, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "aim.eai.amd.com/v1alpha1",
        "kind": "AIMArtifact",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"type": "adapter", "modelId": f"acme/{name}", "sourceUri": f"s3://adapters/{name}", **spec},
    }


def test_a_wrong_manifest_is_refused_by_the_webhook(cluster: Cluster) -> None:
    done = cluster.kubectl("apply", "-f", "-", input=adapter("x", "default"), check=False)
    assert done.returncode == 1
    assert 'The AIMArtifact "x" is invalid' in done.stderr


def test_the_smallest_useful_manifest_is_accepted(cluster: Cluster) -> None:
    service = {
        "apiVersion": "aim.eai.amd.com/v1alpha2",
        "kind": "AIMService",
        "metadata": {"name": "chat", "namespace": "default"},
        "spec": {"profile": {"name": "tiny-mi300x"}, "adapterMode": "dynamic"},
    }
    said = cluster.apply(
        adapter("x", "default", compatibleWith=["acme/tiny-llama"]), service, args=("--dry-run=server",)
    )
    assert "created (server dry run)" in said


def test_the_initial_objects_of_the_cluster(cluster: Cluster) -> None:
    nodes = cluster.items("nodes")
    assert [node["status"]["allocatable"]["amd.com/gpu"] for node in nodes] == ["8"]
    labels = nodes[0]["metadata"]["labels"]
    assert labels["feature.node.kubernetes.io/aim-accelerator.MI300X"] == "true"
    for secret in cluster.info["secrets"]:
        assert cluster.get("secret", secret) is not None
    config = cluster.get("aimclusterruntimeconfig", "default")
    assert config is not None
    env = {entry["name"]: entry.get("value") for entry in config["spec"]["env"]}
    assert env["HF_ENDPOINT"] == cluster.info["hub"]["endpoint"]
    assert env["AWS_ENDPOINT_URL"] == cluster.info["s3"]["endpoint"]
    profile = cluster.get("aimclusterprofile", "tiny-mi300x")
    assert profile is not None
    assert profile["spec"]["features"] == ["adapters"]


def test_files_put_into_a_source_are_served_immediately(cluster: Cluster) -> None:
    import boto3
    from huggingface_hub import HfApi

    hub, s3 = cluster.info["hub"], cluster.info["s3"]
    org = f"org{os.getpid()}"
    folder = Path(hub["root"]) / org / "adapter"
    folder.mkdir(parents=True)
    (folder / "adapter_config.json").write_text("{}")
    api = HfApi(endpoint=hub["endpoint"], token=hub["token"])
    assert "adapter_config.json" in api.list_repo_files(f"{org}/adapter")
    assert "model.safetensors" in api.list_repo_files("acme/tiny-llama")
    bucket = Path(s3["root"]) / f"bucket{os.getpid()}"
    (bucket / "a").mkdir(parents=True)
    (bucket / "a" / "file").write_text("x")
    client = boto3.client(
        "s3",
        endpoint_url=s3["endpoint"],
        aws_access_key_id=s3["accessKey"],
        aws_secret_access_key=s3["secretKey"],
        region_name="us-east-1",
    )
    try:
        listed = client.list_objects_v2(Bucket=bucket.name)
        assert [item["Key"] for item in listed["Contents"]] == ["a/file"]
    finally:
        client.close()


def test_logs_of_a_pod(cluster: Cluster) -> None:
    pod = cluster.items("pods", "aim-system")[0]["metadata"]["name"]
    command = (sys.executable, "-m", "devcluster.cli", "logs", "--dir", cluster.folder)
    for name in (pod, f"aim-system/{pod}"):
        assert '"message"' in cluster.run(*command, name).stdout
    done = cluster.run(*command, "aim-system/", check=False)
    assert done.returncode == 1
    assert pod in done.stdout


def test_a_namespace_of_a_test_has_the_sources_secrets(cluster: Cluster, namespace: str) -> None:
    names = {secret["metadata"]["name"] for secret in cluster.items("secrets", namespace)}
    assert set(cluster.info["secrets"]) <= names


def test_two_replicas_of_the_service_run_under_its_own_account(cluster: Cluster) -> None:
    def ready() -> bool:
        pods = cluster.items("pods", "aim-system")
        return [c["ready"] for pod in pods for c in pod["status"].get("containerStatuses", [])].count(True) == 2

    cluster.wait(ready, what="two ready pods")
    accounts = {pod["spec"]["serviceAccountName"] for pod in cluster.items("pods", "aim-system")}
    assert accounts == {"aim-adapters"}


def test_up_in_a_running_cluster_is_quick_and_changes_nothing(cluster: Cluster) -> None:
    done = subprocess.run(
        (sys.executable, "-m", "devcluster.cli", "up", "--dir", str(cluster.folder)),
        capture_output=True,
        text=True,
        timeout=20,
        check=True,
    )
    assert "already running" in done.stdout
