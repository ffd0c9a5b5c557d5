"""The objects and models that a cluster comes with, and the facts that `dev info` shows."""

import base64
import json
import struct
from itertools import pairwise
from pathlib import Path

import pytest

from devcluster import content
from devcluster.base_models import BASE_MODELS, BaseModel, render_safetensors, tensor_shapes, write_base_model
from devcluster.folder import Layout, World
from devcluster.info import admission_of, metrics_of, render

INFO_KEYS = {"kubeconfig", "kubectl", "s3", "hub", "claims", "metrics", "admission", "processes", "secrets", "logs"}


@pytest.mark.parametrize("model", BASE_MODELS, ids=lambda model: model.model_id)
def test_a_base_model_is_a_valid_safetensors_file(tmp_path: Path, model: BaseModel) -> None:
    write_base_model(tmp_path, model)
    folder = tmp_path / model.model_id
    raw = (folder / "model.safetensors").read_bytes()
    (length,) = struct.unpack("<Q", raw[:8])
    header = json.loads(raw[8 : 8 + length])
    del header["__metadata__"]
    ends = sorted(entry["data_offsets"] for entry in header.values())
    assert ends[0][0] == 0
    assert all(first[1] == second[0] for first, second in pairwise(ends))
    assert len(raw) == 8 + length + ends[-1][1]
    assert header["model.layers.1.self_attn.v_proj.weight"]["shape"] == [16, 32]
    assert json.loads((folder / "config.json").read_text())["model_type"] == model.model_type
    for name in ("tokenizer.json", "tokenizer_config.json", "generation_config.json"):
        json.loads((folder / name).read_text())


def test_a_base_model_that_is_there_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "acme" / "tiny-llama").mkdir(parents=True)
    write_base_model(tmp_path, BASE_MODELS[0])
    assert list((tmp_path / "acme" / "tiny-llama").iterdir()) == []


def test_weights_depend_on_the_seed_alone() -> None:
    shapes = tensor_shapes(BASE_MODELS[0])
    assert render_safetensors(shapes, seed="a") == render_safetensors(shapes, seed="a")
    assert render_safetensors(shapes, seed="a") != render_safetensors(shapes, seed="b")


def test_every_manifest_has_a_path() -> None:
    secrets = content.source_secrets("default", access_key="a", secret_key="b", token="c")
    config = content.runtime_config(hub="http://h", s3="http://s")
    paths = [content.path_of(m) for m in [*content.bootstrap(), *secrets, config, content.cluster_profile()]]
    assert "/api/v1/namespaces/default/secrets/aim-dev-s3" in paths
    assert "/apis/aim.eai.amd.com/v1alpha2/aimclusterprofiles/tiny-mi300x" in paths


def test_credentials_reach_the_runtime_config_by_secret_only() -> None:
    env = {entry["name"]: entry for entry in content.runtime_config(hub="http://h", s3="http://s")["spec"]["env"]}
    for name in ("HF_TOKEN", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        assert "value" not in env[name]
        assert env[name]["valueFrom"]["secretKeyRef"]["name"] in {"aim-dev-s3", "aim-dev-hub"}
    assert env["HF_ENDPOINT"]["value"] == "http://h"
    assert env["AWS_ENDPOINT_URL"]["value"] == "http://s"


def test_exactly_one_class_is_the_default() -> None:
    classes = [m for m in content.bootstrap() if m["kind"] == "StorageClass"]
    defaults = [
        c["metadata"]["name"]
        for c in classes
        if c["metadata"]["annotations"].get("storageclass.kubernetes.io/is-default-class") == "true"
    ]
    assert defaults == ["aim-dev-rwx"]


def test_info_has_the_promised_shape(tmp_path: Path) -> None:
    world = World(range_index=0, ports={"hub": 1, "s3": 2})
    facts = render(Layout(tmp_path), world, {"processes": {"etcd": 7}, "programs": {"kubectl": "/k"}})
    assert set(facts) >= INFO_KEYS
    assert facts["s3"] == {
        "endpoint": "http://127.0.0.1:2",
        "root": str(tmp_path / "s3"),
        "accessKey": world.s3_access_key,
        "secretKey": world.s3_secret_key,
    }
    assert set(facts["hub"]) == {"endpoint", "root", "token"}
    assert facts["processes"] == {"etcd": 7}
    assert facts["secrets"] == ["aim-dev-s3", "aim-dev-hub"]


def test_admission_is_where_the_api_server_goes() -> None:
    hook = {
        "webhooks": [
            {"clientConfig": {"service": {"name": "hook", "port": 9443}, "caBundle": base64.b64encode(b"PEM").decode()}}
        ]
    }
    service = {"metadata": {"name": "hook"}, "spec": {"clusterIP": "127.64.0.9"}}
    assert admission_of([hook], [service]) == ("https://127.64.0.9:9443", b"PEM")
    assert admission_of([hook], []) == (None, b"")
    del hook["webhooks"][0]["clientConfig"]["caBundle"]
    assert admission_of([hook], [service]) == (None, b"")


def test_metrics_are_those_of_the_service_or_of_a_ready_pod() -> None:
    service = {"spec": {"clusterIP": "127.64.0.9", "ports": [{"name": "metrics", "port": 8080}]}}
    headless = {"spec": {"clusterIP": "None", "ports": [{"name": "metrics", "port": 8080}]}}
    ready = {"metadata": {}, "status": {"podIP": "127.65.0.3", "conditions": [{"type": "Ready", "status": "True"}]}}
    going = {"metadata": {"deletionTimestamp": "x"}, "status": ready["status"]}
    assert metrics_of([service], []) == "http://127.64.0.9:8080/metrics"
    assert metrics_of([headless], [going, ready]) == "http://127.65.0.3:8080/metrics"
    assert metrics_of([], [going]) is None
