"""The CRDs on a real API server: installed, read back, enforced. No webhook is active."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from api import kinds
from api.kinds import AIM_KINDS, AIM_SERVICE, AIM_SERVICE_V1ALPHA1, Kind
from api.models.marks import not_acted_on_paths
from api.view import JsonObject
from tests.manifests import full, full_status
from tools.crds import DIRECTORY, SHORT_NAMES, crd, render_crds

pytestmark = pytest.mark.cluster

EACH_KIND = pytest.mark.parametrize("kind", AIM_KINDS, ids=lambda kind: kind.kind)


class Kubectl:
    """The real kubectl against one API server."""

    def __init__(self, program: str, kubeconfig: str) -> None:
        self._command = [program, "--kubeconfig", kubeconfig]

    def __call__(self, *arguments: str, stdin: JsonObject | None = None) -> subprocess.CompletedProcess[str]:
        text = None if stdin is None else json.dumps(stdin)
        return subprocess.run(
            [*self._command, *arguments], input=text, capture_output=True, text=True, check=False, timeout=60
        )

    def ok(self, *arguments: str, stdin: JsonObject | None = None) -> str:
        """Run kubectl, expect success, return its output."""
        done = self(*arguments, stdin=stdin)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def refused(self, manifest: JsonObject) -> str:
        """Apply a manifest, expect a refusal, return the message."""
        done = self("apply", "--validate=strict", "-f", "-", stdin=manifest)
        assert done.returncode != 0, done.stdout
        return done.stderr

    def apply(self, manifest: JsonObject) -> str:
        """Apply a manifest under strict validation."""
        return self.ok("apply", "--validate=strict", "-f", "-", stdin=manifest)

    def get(self, *arguments: str) -> JsonObject:
        """Return one object."""
        found: JsonObject = json.loads(self.ok("get", *arguments, "-o", "json"))
        return found


@pytest.fixture(scope="module")
def kubectl(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kubectl]:
    """A bare control plane with the CRDs from the committed files."""
    folder = str(tmp_path_factory.mktemp("crds"))
    dev = [sys.executable, "-m", "devcluster.cli"]
    subprocess.run([*dev, "up", "--dir", folder, "--control-plane-only"], check=True, timeout=1500, capture_output=True)
    try:
        told = subprocess.run([*dev, "info", "--dir", folder, "--json"], check=True, capture_output=True, timeout=60)
        info = json.loads(told.stdout)
        kubectl = Kubectl(info["kubectl"], info["kubeconfig"])
        kubectl.ok("apply", "--validate=strict", "-f", str(DIRECTORY))
        kubectl.ok("wait", "--for=condition=Established", "crd", "--all", "--timeout=60s")
        yield kubectl
    finally:
        subprocess.run([*dev, "down", "--dir", folder], check=True, timeout=120, capture_output=True)


def _resource(kind: Kind) -> str:
    return f"{kind.plural}.{kind.version}.{kind.group}"


def _spec(spec: JsonObject, name: str = "probe", kind: Kind = AIM_SERVICE) -> JsonObject:
    return {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": {"name": name}, "spec": spec}


@EACH_KIND
def test_a_definition_is_read_back_unchanged(kubectl: Kubectl, kind: Kind) -> None:
    stored = kubectl.get("crd", f"{kind.plural}.{kind.group}")
    assert stored["spec"] == crd(kind)["spec"]
    bad = [entry for entry in stored["status"]["conditions"] if entry["type"] in ("NonStructuralSchema", "Terminating")]
    assert bad == []
    assert kubectl.ok("apply", "--validate=strict", "-f", str(DIRECTORY / f"{kind.plural}.yaml")).endswith(
        "unchanged\n"
    )


def test_installed_files_are_the_generated_ones(kubectl: Kubectl) -> None:
    listed = json.loads(kubectl.ok("get", "crd", "-o", "json"))["items"]
    names = {entry["metadata"]["name"] for entry in listed if entry["spec"]["group"] == kinds.AIM_GROUP}
    assert names == {yaml.safe_load(text)["metadata"]["name"] for text in render_crds().values()}


@EACH_KIND
def test_every_field_is_accepted_and_read_back(kubectl: Kubectl, kind: Kind) -> None:
    manifest = full(kind)
    kubectl.apply(manifest)
    assert kubectl.get(_resource(kind), "full")["spec"] == manifest["spec"]
    assert "unchanged" in kubectl.apply(manifest), "a second apply shows drift"


@EACH_KIND
def test_every_status_field_is_stored_and_only_by_the_subresource(kubectl: Kubectl, kind: Kind) -> None:
    status = full_status(kind)
    kubectl.apply(full(kind, "told"))
    patch = json.dumps({"status": status})
    kubectl.ok("patch", _resource(kind), "told", "--type=merge", "-p", patch)
    assert "status" not in kubectl.get(_resource(kind), "told")
    kubectl.ok("patch", _resource(kind), "told", "--subresource=status", "--type=merge", "-p", patch)
    assert kubectl.get(_resource(kind), "told")["status"] == status


@EACH_KIND
def test_unknown_fields_are_refused_or_pruned_with_a_warning(kubectl: Kubectl, kind: Kind) -> None:
    manifest = full(kind, "unknown")
    manifest["spec"]["notOurs"] = 1
    assert 'unknown field "spec.notOurs"' in kubectl.refused(manifest)
    done = kubectl("apply", "--validate=warn", "-f", "-", stdin=manifest)
    assert done.returncode == 0
    assert 'unknown field "spec.notOurs"' in done.stderr
    assert "notOurs" not in kubectl.get(_resource(kind), "unknown")["spec"]


@EACH_KIND
def test_short_name_and_category(kubectl: Kubectl, kind: Kind) -> None:
    resources = kubectl.ok("api-resources", "--api-group", kind.group, "--categories=aim,all", "--no-headers")
    lines = [line.split() for line in resources.splitlines()]
    assert [kind.plural, SHORT_NAMES[kind]] in [line[:2] for line in lines]


def test_each_service_version_reads_the_other(kubectl: Kubectl) -> None:
    old, new = full(AIM_SERVICE_V1ALPHA1, "written-old"), full(AIM_SERVICE, "written-new")
    done = kubectl("apply", "--validate=strict", "-f", "-", stdin=old)
    assert done.returncode == 0
    assert "AIMService v1alpha1 is deprecated; write aim.eai.amd.com/v1alpha2" in done.stderr
    kubectl.apply(new)
    for name in ("written-old", "written-new"):
        seen = [kubectl.get(_resource(version), name) for version in (AIM_SERVICE_V1ALPHA1, AIM_SERVICE)]
        assert [found["apiVersion"] for found in seen] == ["aim.eai.amd.com/v1alpha1", "aim.eai.amd.com/v1alpha2"]
        assert seen[0]["spec"] == seen[1]["spec"] == old["spec"]
        assert seen[0]["metadata"]["uid"] == seen[1]["metadata"]["uid"]
    old["spec"]["replicas"] = 3
    kubectl.apply(old)
    assert kubectl.get(_resource(AIM_SERVICE), "written-old")["spec"]["replicas"] == 3


def test_columns_of_both_service_versions(kubectl: Kubectl) -> None:
    kubectl.apply(full(AIM_SERVICE, "shown"))
    patch = json.dumps({"status": full_status(AIM_SERVICE)})
    kubectl.ok("patch", _resource(AIM_SERVICE), "shown", "--subresource=status", "--type=merge", "-p", patch)
    new = kubectl.ok("get", _resource(AIM_SERVICE), "shown").splitlines()
    assert new[0].split() == ["NAME", "STATUS", "MODEL", "PROFILE", "MODE", "ADAPTERS", "REPLICAS", "AGE"]
    assert new[1].split()[:7] == ["shown", "Running", "m", "p", "dynamic", "0/1", "1/2"]
    old = kubectl.ok("get", _resource(AIM_SERVICE_V1ALPHA1), "shown").splitlines()
    assert old[0].split() == ["NAME", "STATUS", "MODEL", "TEMPLATE", "MODE", "ADAPTERS", "REPLICAS", "AGE"]
    assert old[1].split()[3] == "t"


def test_columns_of_an_artifact(kubectl: Kubectl) -> None:
    kind = kinds.AIM_ARTIFACT
    kubectl.apply(full(kind, "shown"))
    patch = json.dumps({"status": full_status(kind)})
    kubectl.ok("patch", _resource(kind), "shown", "--subresource=status", "--type=merge", "-p", patch)
    plain = kubectl.ok("get", "aimart", "shown").splitlines()
    assert plain[0].split() == ["NAME", "TYPE", "STATUS", "SIZE", "PROGRESS", "AGE"]
    wide = kubectl.ok("get", "aimart", "shown", "-o", "wide").splitlines()
    assert {"SOURCE", "PARENT/COMPATIBLE"} <= set(wide[0].split())
    assert "fits org/base" in wide[1]


def test_scale(kubectl: Kubectl) -> None:
    kubectl.apply(_spec({"profile": {"name": "p"}}, "scaled"))
    kubectl.ok("scale", "aimsvc/scaled", "--replicas=4")
    assert kubectl.get("aimsvc", "scaled")["spec"]["replicas"] == 4


def test_defaults(kubectl: Kubectl) -> None:
    kubectl.apply(_spec({"profile": {"name": "p"}, "adapters": [{"name": "a"}], "caching": {}}, "defaulted"))
    assert kubectl.get("aimsvc", "defaulted")["spec"] == {
        "profile": {"name": "p"},
        "adapterMode": "static",
        "adapters": [{"name": "a", "kind": "AIMArtifact"}],
        "caching": {"mode": "Shared"},
        "replicas": 1,
    }
    kubectl.apply(_spec({"sourceUri": "hf://o/n"}, "defaulted", kinds.AIM_ARTIFACT))
    assert kubectl.get("aimart", "defaulted")["spec"] == {"type": "model", "sourceUri": "hf://o/n"}
    kubectl.apply(_spec({"storage": {}, "artifact": {"s3": {"auth": {}}}}, "defaulted", kinds.AIM_RUNTIME_CONFIG))
    assert kubectl.get("aimrc", "defaulted")["spec"] == {"storage": {}, "artifact": {"s3": {"auth": {}}}}


ANY_VALUES: tuple[Any, ...] = ({}, [], "text", 7, 1.5, True, {"deep": [{"er": 1}]})


@pytest.mark.parametrize("value", ANY_VALUES, ids=json.dumps)
@pytest.mark.parametrize("kind", [kind for kind in AIM_KINDS if not_acted_on_paths(kind)], ids=lambda kind: kind.kind)
def test_fields_without_effect_accept_any_value(kubectl: Kubectl, kind: Kind, value: object) -> None:
    manifest = full(kind, "any")
    for path in not_acted_on_paths(kind):
        _put(manifest, path.split("."), value)
    kubectl.apply(manifest)
    assert kubectl.get(_resource(kind), "any")["spec"] == manifest["spec"]


def _put(node: Any, path: list[str], value: object) -> None:
    name, *rest = path
    if not rest:
        node[name] = value
    elif name.endswith("[]"):
        _put(node[name[:-2]][0], rest, value)
    else:
        _put(node[name], rest, value)


def test_null_counts_as_absent(kubectl: Kubectl) -> None:
    spec = {"profile": {"name": "p"}, "routing": None, "adapterMode": None, "env": None, "caching": None}
    kubectl.ok("create", "--validate=strict", "-f", "-", stdin=_spec(spec, "nulls"))
    stored = kubectl.get("aimsvc", "nulls")["spec"]
    assert stored["adapterMode"] == "static"
    assert stored.get("routing") is None


def _adapters(count: int) -> list[JsonObject]:
    return [{"name": f"a-{number}"} for number in range(count)]


REFUSED: dict[str, tuple[JsonObject, str]] = {
    "several at once, each with its path": (
        _spec({"adapterMode": "Static", "replicas": -1, "profileOverrides": {"features": ["lora"]}}),
        'spec.adapterMode: Unsupported value: "Static": supported values: "static", "dynamic"',
    ),
    "an unknown feature": (
        _spec({"profileOverrides": {"features": ["lora"]}}),
        "spec.profileOverrides.features[0]: Unsupported value",
    ),
    "the same adapter twice": (
        _spec({"adapters": [*_adapters(1), *_adapters(1)]}),
        "spec.adapters[1]: Duplicate value",
    ),
    "the same variable twice": (_spec({"env": [{"name": "A"}, {"name": "A"}]}), "spec.env[1]: Duplicate value"),
    "the same pull secret twice": (
        _spec({"imagePullSecrets": [{"name": "s"}, {"name": "s"}]}),
        "spec.imagePullSecrets[1]: Duplicate value",
    ),
    "65 adapters": (_spec({"adapters": _adapters(65)}), "spec.adapters: Too many"),
    "a kind that is not an artifact": (
        _spec({"adapters": [{"name": "a", "kind": "AIMModel"}]}),
        "spec.adapters[0].kind: Unsupported value",
    ),
    "an adapter without a name": (_spec({"adapters": [{}]}), "spec.adapters[0].name: Required value"),
    "a name of 254 characters": (_spec({"adapters": [{"name": "a" * 254}]}), "spec.adapters[0].name: Too long"),
    "ceiling 0": (_spec({"adapterRuntime": {"maxRank": 0}}), "spec.adapterRuntime.maxRank: Invalid value"),
    "a caching mode of no list": (_spec({"caching": {"mode": "Once"}}), "spec.caching.mode: Unsupported value"),
    "no quantity": (_spec({"resources": {"limits": {"memory": "x"}}}), "spec.resources.limits.memory: Invalid value"),
    "no spec": ({**_spec({}), "spec": None}, "spec: Required value"),
    "no source": (_spec({}, kind=kinds.AIM_ARTIFACT), "spec.sourceUri: Required value"),
    "another scheme": (_spec({"sourceUri": "https://o/n"}, kind=kinds.AIM_ARTIFACT), "spec.sourceUri: Invalid value"),
    "a model id without organisation": (
        _spec({"sourceUri": "hf://o/n", "modelId": "n"}, kind=kinds.AIM_ARTIFACT),
        "spec.modelId: Invalid value",
    ),
    "rank 0": (_spec({"sourceUri": "hf://o/n", "rank": 0}, kind=kinds.AIM_ARTIFACT), "spec.rank: Invalid value"),
    "a type of no list": (
        _spec({"sourceUri": "hf://o/n", "type": "lora"}, kind=kinds.AIM_ARTIFACT),
        "spec.type: Unsupported value",
    ),
    "a profile without image": (_spec({}, kind=kinds.AIM_PROFILE), "spec.image: Required value"),
    "two sources of a model": (
        _spec({"modelSources": [{"sourceUri": "hf://o/n"}] * 2}, kind=kinds.AIM_MODEL),
        "spec.modelSources: Too many",
    ),
    "an endpoint without scheme": (
        _spec({"artifact": {"s3": {"endpoint": "s3.example.com"}}}, kind=kinds.AIM_RUNTIME_CONFIG),
        "spec.artifact.s3.endpoint: Invalid value",
    ),
}


@pytest.mark.parametrize(("manifest", "message"), REFUSED.values(), ids=REFUSED)
def test_refused(kubectl: Kubectl, manifest: JsonObject, message: str) -> None:
    printed = kubectl.refused(manifest)
    assert message in printed
    assert f'The {manifest["kind"]} "probe" is invalid' in printed


def test_server_side_appliers_share_a_list_by_key(kubectl: Kubectl) -> None:
    def apply(owner: str, adapter: str) -> None:
        manifest = _spec({"adapterMode": "dynamic", "adapters": [{"name": adapter}]}, "shared")
        manifest["metadata"]["namespace"] = "default"
        kubectl.ok("apply", "--server-side", f"--field-manager={owner}", "-f", "-", stdin=manifest)

    apply("one", "a")
    apply("two", "b")
    names = [entry["name"] for entry in kubectl.get("aimsvc", "shared")["spec"]["adapters"]]
    assert names == ["a", "b"], "each owner keeps its own entry"
    apply("two", "c")
    names = [entry["name"] for entry in kubectl.get("aimsvc", "shared")["spec"]["adapters"]]
    assert names == ["a", "c"]


EXPLAINED = {
    "aimservice.spec.adapterMode": "Immutable",
    "aimartifact.spec.rank": "LoRA rank",
    "aimruntimeconfig.spec.adapterRuntime.maxRank": "ceiling",
}


@pytest.mark.parametrize(("path", "words"), EXPLAINED.items(), ids=EXPLAINED)
def test_explain(kubectl: Kubectl, path: str, words: str) -> None:
    assert words in kubectl.ok("explain", path)


def test_worked_example(kubectl: Kubectl, tmp_path: Path) -> None:
    manifests = [
        {
            "apiVersion": "aim.eai.amd.com/v1alpha1",
            "kind": "AIMArtifact",
            "metadata": {"name": "gemma-3-27b-it-cache"},
            "spec": {
                "type": "model",
                "modelId": "google/gemma-3-27b-it",
                "sourceUri": "hf://google/gemma-3-27b-it",
                "size": "60Gi",
                "adapterDisk": {"size": "50Gi"},
            },
        },
        {
            "apiVersion": "aim.eai.amd.com/v1alpha1",
            "kind": "AIMArtifact",
            "metadata": {"name": "cs-tone-v3"},
            "spec": {
                "type": "adapter",
                "modelId": "acme/cs-tone-v3",
                "compatibleWith": ["google/gemma-3-27b-it"],
                "sourceUri": "s3://eai-artifacts/adapters/cs-tone-v3/",
                "rank": 16,
            },
        },
        {
            "apiVersion": "aim.eai.amd.com/v1alpha1",
            "kind": "AIMService",
            "metadata": {"name": "gemma-cs"},
            "spec": {
                "model": {"name": "gemma-3-27b-it"},
                "adapterMode": "dynamic",
                "adapters": [{"name": "cs-tone-v3", "kind": "AIMArtifact"}],
            },
        },
    ]
    path = tmp_path / "example.yaml"
    path.write_text(yaml.safe_dump_all(manifests))
    kubectl.ok("apply", "--validate=strict", "-f", str(path))
    assert kubectl.ok("apply", "--validate=strict", "-f", str(path)).count("unchanged") == 3
