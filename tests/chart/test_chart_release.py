"""The life of a release on a real API server: install, upgrade, roll back, uninstall, install again, get unstuck."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from api.kinds import AIM_KINDS
from api.view import JsonObject
from tests.chart.admission_stub import AdmissionStub, make_pair
from tests.chart.cases import API_VERSIONS, CASES
from tests.chart.conftest import CHART, NAMESPACE, RELEASE, ROOT, Helm, Plane

pytestmark = pytest.mark.chart

CONFIGURATIONS = ("validatingwebhookconfigurations", "mutatingwebhookconfigurations")
SERVICE_PORT = 8443  # a test need not be root
SMALL: JsonObject = {"service": {"port": SERVICE_PORT}}
BUNDLE = base64.b64encode(b"-----BEGIN CERTIFICATE-----\n").decode()


def artifact(name: str, namespace: str = "default", **spec: Any) -> JsonObject:
    """Return a model artifact."""
    return {
        "apiVersion": "aim.eai.amd.com/v1alpha1",
        "kind": "AIMArtifact",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"sourceUri": "hf://acme/tiny-llama", **spec},
    }


def service(name: str, version: str = "v1alpha2") -> JsonObject:
    """Return an AIMService."""
    return {
        "apiVersion": f"aim.eai.amd.com/{version}",
        "kind": "AIMService",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"model": {"name": "tiny"}},
    }


def bundles(plane: Plane) -> set[str]:
    """Return all caBundles of both configurations."""
    hooks = [hook for kind in CONFIGURATIONS for hook in (plane.get(kind, RELEASE) or {})["webhooks"]]
    assert len(hooks) == 2
    return {hook["clientConfig"].get("caBundle", "") for hook in hooks}


def patch(plane: Plane, change: JsonObject, *args: str, what: str = "aimartifact/a") -> None:
    """`kubectl patch` by merging."""
    plane.kubectl("patch", what, "--type=merge", "-p", json.dumps(change), *args)


def write_bundles(plane: Plane, bundle: str = BUNDLE) -> None:
    """Write caBundles as the server does."""
    change = json.dumps([{"op": "add", "path": "/webhooks/0/clientConfig/caBundle", "value": bundle}])
    for kind in CONFIGURATIONS:
        plane.kubectl("patch", kind, RELEASE, "--type=json", "-p", change)


# -- every object ---------------------------------------------------------------------------------------------------


@pytest.fixture
def foreign_kinds(plane: Plane, cert_manager_definitions: list[Path]) -> Iterator[None]:
    """Kinds of other projects that the chart can create: cert-manager's, and a reduced Prometheus operator's."""
    paths = [ROOT / "tests" / "fixtures" / "chart" / "foreign-kinds.yaml", *cert_manager_definitions]
    files = [word for path in paths for word in ("-f", str(path))]
    plane.kubectl("apply", *files)
    plane.kubectl("wait", "--for=condition=Established", "--timeout=30s", *files)
    yield
    plane.kubectl("delete", *files, "--wait=false")


@pytest.mark.usefixtures("foreign_kinds")
def test_every_object_of_every_case_passes_strict_validation(plane: Plane, release: Helm) -> None:
    release.install("install", SMALL)  # brings our own kinds, which stay
    release.uninstall()
    try:
        for name in ("team-a", "team-b"):
            plane.kubectl("create", "namespace", name)
        for name, values in CASES.items():
            objects = release.objects(values, *API_VERSIONS)
            argv = ("create", "-f", "-", "--dry-run=server", "--validate=strict")
            done = plane.kubectl(*argv, objects=objects, check=False)
            said = done.stdout + done.stderr
            problems = [line for line in said.splitlines() if "server dry run" not in line]
            assert not problems, f"{name}:\n" + "\n".join(problems)
    finally:
        plane.kubectl("delete", "namespace", "team-a", "team-b", "--wait=false", check=False)


@pytest.mark.parametrize("name", CASES)
def test_pods_pass_the_restricted_level(plane: Plane, release: Helm, name: str) -> None:
    """The namespace enforces it; a Deployment would only be warned about, so the pod itself is tried."""
    found = [o for o in release.objects(CASES[name]) if o["kind"] == "Deployment"]
    template = found[0]["spec"]["template"]
    template["spec"].pop("priorityClassName", None)
    template["spec"]["serviceAccountName"] = "default"
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "tried", "namespace": NAMESPACE}}
    plane.apply({**pod, "spec": template["spec"]}, args=("--dry-run=server", "--validate=strict"))
    loose = {**template["spec"], "securityContext": {}}
    assert "violates PodSecurity" in plane.apply({**pod, "spec": loose}, args=("--dry-run=server",), check=False)


# -- life -----------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("no_definitions")
def test_install_brings_everything(plane: Plane, release: Helm) -> None:
    said = release.install("install", SMALL)
    assert "admission and reconciler, for all namespaces" in said
    for kind in AIM_KINDS:
        assert plane.get("crd", f"{kind.plural}.{kind.group}")
    plane.wait(lambda: "No resources found" in plane.kubectl("get", "aim", "-A", check=False).stderr, "all are served")
    assert plane.get("deployment", RELEASE, NAMESPACE)


def test_an_upgrade_to_another_port(plane: Plane, release: Helm) -> None:
    release.install("install", SMALL)
    release.install("upgrade", {"service": {"port": 8444}})
    found = plane.get("service", f"{RELEASE}-webhook", NAMESPACE)
    assert found is not None
    assert [port["port"] for port in found["spec"]["ports"]] == [8444]


def test_upgrade_and_rollback_keep_the_bundles(plane: Plane, release: Helm) -> None:
    release.install("install", SMALL)
    assert bundles(plane) == {""}
    write_bundles(plane)
    release.install("upgrade", {**SMALL, "webhooks": {"timeoutSeconds": 3}})
    assert bundles(plane) == {BUNDLE}
    found = plane.get(CONFIGURATIONS[0], RELEASE)
    assert found is not None
    assert found["webhooks"][0]["timeoutSeconds"] == 3
    release.run("rollback", RELEASE, "1", f"--namespace={NAMESPACE}")
    assert bundles(plane) == {BUNDLE}
    found = plane.get(CONFIGURATIONS[0], RELEASE)
    assert found is not None
    assert found["webhooks"][0]["timeoutSeconds"] == 5


def test_an_upgrade_brings_new_definitions(plane: Plane, release: Helm) -> None:
    release.install("install", SMALL)
    name = "aimartifacts.aim.eai.amd.com"
    # what an older release would have had: no short name
    plane.kubectl("patch", "crd", name, "--type=json", "-p", '[{"op":"remove","path":"/spec/names/shortNames"}]')
    release.install("upgrade", {**SMALL, "commonLabels": {"team": "inference"}})
    found = plane.get("crd", name)
    assert found is not None
    assert found["metadata"]["labels"]["team"] == "inference"


def test_uninstall_keeps_definitions_and_objects_and_a_new_install_takes_them_over(plane: Plane, release: Helm) -> None:
    release.install("install", {**SMALL, "webhooks": {"enabled": False}})
    plane.kubectl("wait", "--for=condition=Established", "crd/aimartifacts.aim.eai.amd.com", "--timeout=30s")
    plane.apply(artifact("kept"))
    before = plane.get("aimartifact", "kept")
    release.uninstall()
    assert plane.get("aimartifact", "kept") == before
    assert plane.get("deployment", RELEASE, NAMESPACE) is None
    release.install("install", SMALL)
    assert plane.get("aimartifact", "kept") == before


def test_crds_are_deleted_with_the_release_on_request(plane: Plane, release: Helm) -> None:
    release.install("install", {**SMALL, "crds": {"keep": False}})
    release.uninstall()  # an upgrade from `keep` to this would do as well
    plane.wait(lambda: plane.get("crd", "aimartifacts.aim.eai.amd.com") is None, "the definition is gone")


@pytest.mark.usefixtures("no_definitions")
def test_the_cluster_config_comes_with_the_first_upgrade_and_stays(plane: Plane, release: Helm) -> None:
    values = {**SMALL, "clusterRuntimeConfig": {"enabled": True, "spec": {"adapterRuntime": {"maxRank": 64}}}}
    assert "is not created yet" in release.install("install", values)
    served = ("api-resources", "--api-group=aim.eai.amd.com", "--no-headers")
    plane.wait(lambda: plane.kubectl(*served, check=False).stdout.count("\n") == len(AIM_KINDS), "all are served")
    said = release.install("upgrade", values)
    assert "is not created yet" not in said
    found = plane.get("aimclusterruntimeconfig", "default")
    assert found is not None
    assert found["spec"]["adapterRuntime"]["maxRank"] == 64
    release.run("rollback", RELEASE, "1", f"--namespace={NAMESPACE}")
    release.uninstall()
    after = plane.get("aimclusterruntimeconfig", "default")
    assert after is not None
    assert after["metadata"]["uid"] == found["metadata"]["uid"]


def test_uninstall_removes_the_webhooks_before_anything_else(plane: Plane, release: Helm) -> None:
    """Prevents: a configuration that is left behind keeps the cluster stuck."""
    release.install("install", SMALL)
    mark = plane.audit_log.stat().st_size
    release.uninstall()

    def order() -> list[str]:
        with plane.audit_log.open() as log:
            log.seek(mark)
            events = [json.loads(line) for line in log if line.endswith("\n")]
        return [
            e["objectRef"]["resource"] for e in events if e["verb"] == "delete" and "Helm" in e.get("userAgent", "")
        ]

    deleted = plane.wait(lambda: order() if "deployments" in order() else None, "the log has the deletions")
    assert set(deleted[:2]) == set(CONFIGURATIONS)


def test_an_uninstall_that_stops_half_way_blocks_no_apply(plane: Plane, release: Helm, tmp_path: Path) -> None:
    """The user may not delete Deployments: helm stops there, as it would when it is killed."""
    release.install("install", SMALL)
    plane.kubectl("wait", "--for=condition=Established", "crd/aimartifacts.aim.eai.amd.com", "--timeout=30s")
    plane.wait(lambda: "failed calling webhook" in plane.apply(artifact("x"), check=False), "the webhook is asked")
    rules = [
        {"apiGroups": ["admissionregistration.k8s.io"], "resources": list(CONFIGURATIONS), "verbs": ["*"]},
        {"apiGroups": [""], "resources": ["secrets"], "verbs": ["*"]},  # where helm keeps its releases
    ]
    labels = {"app.kubernetes.io/part-of": "aim-adapters"}  # cleaned up with the release
    plane.apply(
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRole",
            "metadata": {"name": "half-way", "labels": labels},
            "rules": rules,
        },
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": "half-way", "labels": labels},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "half-way"},
            "subjects": [{"kind": "User", "name": "half-way", "apiGroup": "rbac.authorization.k8s.io"}],
        },
    )
    done = release.uninstall("--kube-as-user=half-way", check=False)
    assert done.returncode != 0
    assert plane.get("deployment", RELEASE, NAMESPACE), "it stopped before this"
    for kind in CONFIGURATIONS:
        assert plane.get(kind, RELEASE) is None
    plane.wait(lambda: "created" in plane.apply(artifact("x"), check=False), "applies work")
    release.uninstall()  # and a second try ends well


def test_rescue_of_a_stuck_cluster(plane: Plane, release: Helm) -> None:
    """The one line of docs/operations.md, and the way back."""
    release.install("install", SMALL)
    plane.kubectl("wait", "--for=condition=Established", "crd/aimartifacts.aim.eai.amd.com", "--timeout=30s")
    plane.wait(lambda: "failed calling webhook" in plane.apply(artifact("x"), check=False), "no webhook answers")
    line = _rescue_line()
    plane.kubectl(*line.split()[1:])
    plane.wait(lambda: "created" in plane.apply(artifact("x"), check=False), "applies work")
    release.install("upgrade", SMALL)
    assert all(plane.get(kind, RELEASE) for kind in CONFIGURATIONS)


def test_the_rescue_is_the_same_everywhere(release: Helm) -> None:
    line = _rescue_line()
    assert line in (CHART / "README.md").read_text()
    assert line in (ROOT / "docs" / "operations.md").read_text()
    assert line in release.install("install", SMALL)


def _rescue_line() -> str:
    found = re.search(r"^kubectl delete .*webhookconfiguration.*$", (CHART / "README.md").read_text(), re.MULTILINE)
    assert found
    return found[0]


def test_a_release_of_another_name_reports_who_owns_the_crds(plane: Plane, release: Helm) -> None:
    release.install("install", SMALL)
    argv = ("install", "other", str(CHART), f"--namespace={NAMESPACE}")
    assert "cannot be imported into the current release" in release.run(*argv, check=False).stderr
    values = ["--set=crds.install=false", "--dry-run=server"]
    release.run(*argv, *values)


@pytest.mark.usefixtures("no_definitions")
def test_taking_over_definitions_that_another_tool_installed(plane: Plane, release: Helm) -> None:
    plane.kubectl("create", "-f", str(CHART / "files" / "crds"))
    argv = ("install", RELEASE, str(CHART), f"--namespace={NAMESPACE}", f"--set=service.port={SERVICE_PORT}")
    assert "cannot be imported" in release.run(*argv, check=False).stderr
    release.run(*argv, "--take-ownership")
    found = plane.get("crd", "aimservices.aim.eai.amd.com")
    assert found is not None
    assert found["metadata"]["annotations"]["meta.helm.sh/release-name"] == RELEASE


# -- what is reviewed -----------------------------------------------------------------------------------------------


@contextmanager
def reviewed(plane: Plane, release: Helm, values: JsonObject | None = None) -> Iterator[AdmissionStub]:
    """Install with a certificate of the test, and answer instead of the server."""
    authority, leaf = make_pair(f"{RELEASE}-webhook.{NAMESPACE}.svc")
    certificates = {"mode": "provided", "caBundle": authority.certificate.decode()}
    release.install("install", {**SMALL, **(values or {}), "certificates": certificates})
    plane.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=30s")
    found = plane.get("service", f"{RELEASE}-webhook", NAMESPACE)
    assert found is not None
    with AdmissionStub(found["spec"]["clusterIP"], SERVICE_PORT, leaf) as stub:
        probe = {**artifact("probe")}
        probe["metadata"]["labels"] = {"refuse": "yes"}
        # both configurations must be active: the mutating one is asked first, and refuses too; so look at the paths
        plane.wait(
            lambda: plane.apply(probe, check=False, args=("--dry-run=server",)) and "/mutate" in str(stub.reviews),
            "the mutating webhook is asked",
        )
        plain = {**artifact("probe", modelId="acme/tiny-llama")}
        plain["metadata"]["labels"] = {"refuse": "yes"}
        plane.wait(
            lambda: plane.apply(plain, check=False, args=("--dry-run=server",)) and "/validate" in str(stub.reviews),
            "the validating webhook is asked",
        )
        stub.reviews.clear()
        yield stub


def test_only_a_new_spec_is_reviewed(plane: Plane, release: Helm) -> None:
    with reviewed(plane, release) as stub:
        plane.apply(artifact("a"))
        assert stub.take() == [
            ("/mutate", "CREATE", "AIMArtifact", "v1alpha1"),
            ("/validate", "CREATE", "AIMArtifact", "v1alpha1"),
        ]
        plane.kubectl("label", "aimartifact", "a", "team=x")
        plane.kubectl("annotate", "aimartifact", "a", "aim.eai.amd.com/retry-staging=1")
        plane.kubectl(
            "patch", "aimartifact", "a", "--type=merge", "-p", '{"metadata":{"finalizers":["example.org/f"]}}'
        )
        patch(plane, {"status": {"status": "Ready"}}, "--subresource=status")
        assert stub.take() == []
        patch(plane, {"spec": {"size": "1Gi"}})
        assert [review[:2] for review in stub.take()] == [("/mutate", "UPDATE"), ("/validate", "UPDATE")]
        patch(plane, {"spec": {"modelId": "acme/tiny-llama"}})
        assert [review[:2] for review in stub.take()] == [("/validate", "UPDATE")]
        plane.kubectl("delete", "aimartifact", "a", "--wait=false")
        patch(plane, {"metadata": {"finalizers": None}})
        assert stub.take() == []


def test_adapters_are_not_asked_about_twice(plane: Plane, release: Helm) -> None:
    with reviewed(plane, release) as stub:
        plane.apply(artifact("b", type="adapter", modelId="acme/tone", compatibleWith=["acme/tiny-llama"]))
        assert [review[:2] for review in stub.take()] == [("/validate", "CREATE")]


def test_both_versions_are_reviewed_as_they_were_written(plane: Plane, release: Helm) -> None:
    with reviewed(plane, release) as stub:
        plane.apply(service("old", "v1alpha1"))
        plane.apply(service("new"))
        assert [review[3] for review in stub.take()] == ["v1alpha1", "v1alpha2"]


def test_every_kind_is_reviewed(plane: Plane, release: Helm) -> None:
    """A patch that creates nothing: what reaches the webhook is refused there, so that no object need be valid."""
    with reviewed(plane, release) as stub:
        for kind in AIM_KINDS:
            spec = _least_spec(kind.plural, kind.version)
            namespace = {"namespace": "default"} if kind.namespaced else {}
            metadata = {"name": "every", "labels": {"refuse": "yes"}, **namespace}
            body = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata, "spec": spec}
            said = plane.apply(body, check=False)
            assert "denied the request" in said, f"{kind.kind}: {said}"
        assert {review[2] for review in stub.take()} == {kind.kind for kind in AIM_KINDS}


def test_namespaces_that_the_server_needs_are_not_reviewed(plane: Plane, release: Helm) -> None:
    with reviewed(plane, release) as stub:
        plane.apply(artifact("c", NAMESPACE), artifact("c", "kube-system"))
        assert stub.take() == []
        plane.kubectl("delete", "aimartifact", "c", "-n", "kube-system")


def test_only_served_namespaces_are_reviewed(plane: Plane, release: Helm) -> None:
    with reviewed(plane, release, {"namespaces": ["default"]}) as stub:
        plane.kubectl("create", "namespace", "not-served")
        plane.apply(artifact("d", "not-served"))
        assert stub.take() == []
        plane.apply(artifact("d"))
        assert stub.take() != []
        plane.kubectl("delete", "namespace", "not-served", "--wait=false")


def test_only_the_first_creation_of_the_release_s_own_config_is_not_reviewed(plane: Plane, release: Helm) -> None:
    values = {"clusterRuntimeConfig": {"enabled": True}}
    config: dict[str, Any] = {
        "apiVersion": "aim.eai.amd.com/v1alpha1",
        "kind": "AIMClusterRuntimeConfig",
        "metadata": {"name": "default", "annotations": {"meta.helm.sh/release-name": RELEASE}},
        "spec": {},
    }
    with reviewed(plane, release, values) as stub:
        plane.kubectl("delete", "aimclusterruntimeconfig", "default", "--ignore-not-found")  # helm made it already
        for change in (
            {"name": "other"},
            {"annotations": {"meta.helm.sh/release-name": "another"}},
            {"annotations": {"x": "y"}},
            {"annotations": None},
        ):
            plane.apply({**config, "metadata": {**config["metadata"], **change}}, args=("--dry-run=server",))
            assert stub.take(dry_runs=True), f"not reviewed with {change}"
        plane.apply(config)
        assert stub.take() == []
        patch(plane, {"spec": {"adapterRuntime": {"maxRank": 8}}}, what="aimclusterruntimeconfig/default")
        assert [review[:2] for review in stub.take()] == [("/validate", "UPDATE")]


def _least_spec(plural: str, version: str) -> JsonObject:
    """Return a spec that the schema of a kind takes: each required field with a value of its type."""
    crd = yaml.safe_load((CHART / "files" / "crds" / f"{plural}.yaml").read_text())
    found = next(v for v in crd["spec"]["versions"] if v["name"] == version)
    spec: JsonObject = _least(found["schema"]["openAPIV3Schema"]["properties"].get("spec", {"type": "object"}))
    return spec


def _least(schema: JsonObject) -> Any:
    if "enum" in schema:
        return schema["enum"][0]
    if "default" in schema:
        return schema["default"]
    match schema.get("type"):
        case "object":
            properties = schema.get("properties", {})
            return {name: _least(properties[name]) for name in schema.get("required", [])}
        case "array":
            return [_least(schema["items"])] * schema.get("minItems", 0)
        case "integer":
            return schema.get("minimum", 1)
        case "boolean":
            return False
    return "hf://acme/tiny-llama" if "(hf|s3)" in schema.get("pattern", "") else "acme/tiny"


# -- rights ---------------------------------------------------------------------------------------------------------

MAY = [
    ("default", "get", "aimservices", True),
    ("default", "patch", "aimservices --subresource=status", True),
    ("default", "patch", "aimservices", False),
    ("default", "delete", "aimartifacts", False),
    ("default", "create", "jobs", True),
    ("default", "list", "secrets", False),
    ("default", "get", "secrets", False),
    (NAMESPACE, "get", f"secrets/{RELEASE}-webhook-tls", True),
    (NAMESPACE, "get", "secrets/other", False),
    (NAMESPACE, "list", "secrets", False),
    ("default", "create", "secrets", False),
    (NAMESPACE, "update", f"leases/{RELEASE}", True),
    ("default", "update", f"leases/{RELEASE}", False),
    ("default", "patch", f"validatingwebhookconfigurations/{RELEASE}", True),
    ("default", "patch", "validatingwebhookconfigurations/other", False),
    ("default", "create", "pods", False),
    ("default", "get", "pods --subresource=log", False),
    ("default", "delete", "persistentvolumeclaims", False),
    ("default", "create", "clusterroles", False),
    ("default", "impersonate", "users", False),
]


def test_the_service_account_has_the_rights_that_it_needs_and_no_more(plane: Plane, release: Helm) -> None:
    release.install("install", SMALL)
    account = f"--as=system:serviceaccount:{NAMESPACE}:{RELEASE}"

    def may(namespace: str, verb: str, what: str) -> bool:
        said = plane.kubectl("auth", "can-i", verb, *what.split(), "-n", namespace, account, check=False).stdout
        return said.strip() == "yes"

    def wrong() -> list[str]:
        return [
            f"{verb} {what} in {where}" for where, verb, what, expected in MAY if may(where, verb, what) != expected
        ]

    plane.wait(lambda: not may("default", "get", "x") and may("default", "get", "aimservices"), "rights are in force")
    assert not wrong()
