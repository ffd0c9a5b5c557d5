"""Whole outputs of the real kubectl, compared with files (GOLDEN=1 rewrites them)."""

from __future__ import annotations

import copy
import json
import os
import re
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from api.view import JsonObject
from tests.cluster.conftest import Cluster

pytestmark = pytest.mark.cluster

GOLDEN = Path(__file__).parents[1] / "golden" / "admission"
GROUP = "aim.eai.amd.com"
SPACE = "admission-words"
BASE = "acme/words-8b"


def obj(kind: str, version: str, name: str, spec: JsonObject, **metadata: Any) -> JsonObject:
    return {
        "apiVersion": f"{GROUP}/{version}",
        "kind": kind,
        "metadata": {"name": name, "namespace": SPACE, **metadata},
        "spec": spec,
    }


def adapter(name: str, **spec: Any) -> JsonObject:
    plain = {
        "type": "adapter",
        "modelId": f"acme/{name}",
        "sourceUri": f"s3://adapters/{name}/",
        "compatibleWith": [BASE],
    }
    return obj("AIMArtifact", "v1alpha1", name, {key: v for key, v in {**plain, **spec}.items() if v is not None})


def service(name: str, **spec: Any) -> JsonObject:
    """A service that the reconciler does not change."""
    paused = {f"{GROUP}/reconciliation-paused": "true"}
    return obj("AIMService", "v1alpha2", name, {"profile": {"name": "words"}, **spec}, annotations=paused)


def refs(*names: str) -> list[JsonObject]:
    return [{"name": name, "kind": "AIMArtifact"} for name in names]


def profile(name: str, features: list[str], sources: int = 1) -> JsonObject:
    spec = {
        "aimId": "acme/words",
        "image": "registry.example/words:0.13.0",
        "features": features,
        "modelSources": [{"sourceUri": f"hf://{BASE}{'-x' * index}", "modelId": BASE} for index in range(sources)],
    }
    return obj("AIMProfile", "v1alpha2", name, spec)


WORLD = [
    profile("words", ["adapters"]),
    profile("words-plain", []),
    profile("words-scale", ["adapters-scale-only"]),
    profile("words-two", ["adapters"], sources=2),
    # its downloads fail on purpose: only its existence matters here
    obj(
        "AIMArtifact",
        "v1alpha1",
        "words-base",
        {"type": "model", "modelId": BASE, "sourceUri": f"hf://{BASE}"},
        annotations={f"{GROUP}/reconciliation-paused": "true"},
    ),
    adapter("medical"),
    adapter("legal"),
    adapter("restored"),
    adapter("wide", rank=64),
    adapter("elsewhere", compatibleWith=["meta-llama/Llama-3.1-8B"]),
    adapter("exact", compatibleWith=None, parentArtifact="another-base"),
    service("fixed", adapters=refs("medical", "legal")),
    service("live", adapterMode="dynamic", adapters=refs("medical")),
]


@pytest.fixture(scope="module", autouse=True)
def world(cluster: Cluster) -> Iterator[None]:
    cluster.kubectl("create", "namespace", SPACE, check=False)
    cluster.kubectl("apply", "-f", "-", input=WORLD)
    # as after a restore: the recorded path has another name
    frozen = json.dumps({"status": {"adapterPath": "medical"}})
    cluster.kubectl("patch", "aimart", "restored", "-n", SPACE, "--subresource=status", "--type=merge", "-p", frozen)
    cluster.wait(
        lambda: not cluster.apply(service("probe", adapters=refs("medical", "restored")), check=False).count("created")
    )
    yield
    cluster.kubectl("delete", "namespace", SPACE, "--wait=false")


REFUSED: dict[str, JsonObject] = {
    "mode-change": service("fixed", adapters=refs("medical", "legal"), adapterMode="dynamic"),
    "static-list-change": service("fixed", adapters=refs("medical", "wide")),
    "max-rank-in-static-mode": service("new", adapters=refs("medical"), adapterRuntime={"maxRank": 64}),
    "same-path": service("new", adapters=refs("medical", "restored")),
    "feature-missing": service("new", profile={"name": "words-plain"}, adapters=refs("medical")),
    "scale-only-dynamic": service("new", profile={"name": "words-scale"}, adapterMode="dynamic"),
    "incompatible-base": service("new", adapters=refs("elsewhere")),
    "wrong-parent": service("new", adapters=refs("exact")),
    "rank-above-ceiling": service("new", adapterMode="dynamic", adapters=refs("medical", "wide")),
    "lowered-below-a-rank": service(
        "live", adapterMode="dynamic", adapters=refs("medical"), adapterRuntime={"maxRank": 8}
    ),
    "not-an-adapter": service("new", adapters=refs("words-base")),
    "several-sources": service("new", profile={"name": "words-two"}, adapters=refs("medical")),
    "dedicated-caching": service("new", adapterMode="dynamic", caching={"mode": "Never"}),
    "without-profile": {
        **service("new"),
        "spec": {"model": {"name": "words"}, "adapters": refs("medical")},
    },
    "nothing-to-serve": {**service("new"), "spec": {"replicas": 1}},
    "not-implemented": service("new", routing={"enabled": True}),
    "reserved-env": service("new", env=[{"name": "PYTHONPATH", "value": "/opt"}]),
    "everything-at-once": service(
        "new",
        adapters=refs("wide", "elsewhere", "words-base"),
        adapterRuntime={"maxRank": 48},
        caching={"mode": "Dedicated"},
        env=[{"name": "PROTOCOL", "value": "v2"}],
        minReplicas=3,
        maxReplicas=2,
    ),
    "artifact-without-compatibility": adapter("new", compatibleWith=None),
    "artifact-rank-on-a-model": obj("AIMArtifact", "v1alpha1", "new", {"sourceUri": "hf://a/b", "rank": 16}),
    "artifact-source-change": adapter("medical", sourceUri="s3://adapters/other/"),
    "artifact-env": adapter("new", env=[{"name": "HF_HOME", "value": "/tmp"}]),
    "artifact-parent-is-an-adapter": adapter("new", compatibleWith=None, parentArtifact="medical"),
    "config-max-rank": obj("AIMRuntimeConfig", "v1alpha1", "new", {"adapterRuntime": {"maxRank": 48}}),
    "config-s3-secret": obj("AIMRuntimeConfig", "v1alpha1", "new", {"artifact": {"s3": {"auth": {"mode": "static"}}}}),
    "profile-without-sources": obj("AIMProfile", "v1alpha2", "new", {"aimId": "acme/words", "image": "a:0.13.0"}),
}


@pytest.mark.parametrize("way", ["client-side", "server-side"])
@pytest.mark.parametrize("case", REFUSED)
def test_golden_refusals(cluster: Cluster, case: str, way: str) -> None:
    args = ("--server-side", "--force-conflicts") if way == "server-side" else ()
    done = cluster.kubectl("apply", "-f", "-", *args, input=REFUSED[case], check=False)
    assert done.returncode == 1
    assert done.stdout == ""
    compare(case, done.stderr, way)


WARNED: dict[str, JsonObject] = {
    "adapter-not-found-yet": service("warned-a", adapters=refs("not-yet")),
    "profile-not-found-yet": service("warned-b", profile={"name": "not-yet"}, adapters=refs("medical")),
    "v1alpha1": {
        **service("warned-c"),
        "apiVersion": f"{GROUP}/v1alpha1",
        "spec": {"model": {"name": "not-yet"}, "adapterMode": "dynamic", "adapters": refs("medical")},
    },
    "fine": service("warned-d", adapters=refs("medical", "legal")),
    "rank-edit": adapter("medical", rank=64),
    "feature-removal": profile("words", []),
    "config-too-low": obj("AIMRuntimeConfig", "v1alpha1", "default", {"adapterRuntime": {"maxRank": 8}}),
    "not-implemented-elsewhere": obj("AIMModel", "v1alpha1", "warned", {"image": "a:0.13.0", "discovery": {}}),
}


@pytest.mark.parametrize("case", WARNED)
def test_golden_warnings(cluster: Cluster, case: str) -> None:
    """Server dry runs, so that no case affects another."""
    done = cluster.kubectl("apply", "-f", "-", "--dry-run=server", input=WARNED[case])
    compare(f"warned-{case}", done.stderr + done.stdout, "client-side")


def compare(name: str, said: str, way: str) -> None:
    """Compare with the golden file; server-side apply has a separate file where its result differs.

    (Server-side apply keeps list entries of another field manager.)
    """
    path, differing = GOLDEN / f"{name}.txt", GOLDEN / f"{name}.{way}.txt"
    if os.environ.get("GOLDEN"):
        if way == "client-side":
            path.write_text(said)
        elif said != path.read_text():
            differing.write_text(said)
    wanted = differing if differing.exists() else path
    assert said == wanted.read_text(), f"GOLDEN=1 rewrites {wanted.name}"


# -- behaves like a built-in kind -----------------------------------------------------------------------------------


def test_dry_runs_and_diffs_leave_no_trace(cluster: Cluster) -> None:
    """Prevents: dry run refused or has side effects."""
    new = service("dry", adapters=refs("medical"))
    assert "created (server dry run)" in cluster.kubectl("apply", "-f", "-", "--dry-run=server", input=new).stdout
    diff = cluster.kubectl("diff", "-f", "-", input=new, check=False)
    assert diff.returncode == 1
    assert "+  name: dry" in diff.stdout
    assert cluster.get("aimsvc", "dry", SPACE) is None


def test_ten_applies_of_each_kind_change_nothing(cluster: Cluster) -> None:
    """Prevents: permanent drift after mutation."""
    base = obj(
        "AIMArtifact",
        "v1alpha1",
        "drift",
        {"sourceUri": "hf://acme/drift@main"},
        annotations={f"{GROUP}/reconciliation-paused": "true"},
    )
    plain = service("drift", adapters=refs("medical"))
    cluster.apply(base, plain)
    for args in (("apply",), ("apply", "--server-side", "--force-conflicts"), ("replace",)):
        cluster.kubectl(*args, "-f", "-", input=[base, plain])
        before = _versions(cluster)
        for _ in range(10):
            cluster.kubectl(*args, "-f", "-", input=[base, plain])
        assert _versions(cluster) == before, args
    stored = cluster.get("aimart", "drift", SPACE)
    assert stored is not None
    assert stored["spec"]["modelId"] == "acme/drift"
    assert cluster.kubectl("diff", "-f", "-", input=[base, plain]).returncode == 0


def _versions(cluster: Cluster) -> list[tuple[int, str]]:
    """Return generation and resource version after the reconciler wrote the status of the objects."""

    def read() -> list[tuple[int, str]]:
        found = [cluster.get(kind, "drift", SPACE) for kind in ("aimart", "aimsvc")]
        return [(one["metadata"]["generation"], one["metadata"]["resourceVersion"]) for one in found if one]

    last = read()
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        time.sleep(1.5)
        now = read()
        if now == last:
            return now
        last = now
    pytest.fail("the objects never rest")


def test_labels_annotations_scale_edit_and_patches(cluster: Cluster) -> None:
    cluster.apply(service("handled", adapters=refs("medical")))

    def kubectl(*args: str, check: bool = True) -> Any:
        return cluster.kubectl(*args, "-n", SPACE, check=check)

    assert "labeled" in kubectl("label", "aimsvc", "handled", "team=words").stdout
    assert "annotated" in kubectl("annotate", "aimsvc", "handled", "note=hello").stdout
    assert "scaled" in kubectl("scale", "aimsvc", "handled", "--replicas=2").stdout
    merge = json.dumps({"spec": {"minReplicas": 3, "maxReplicas": 2}})
    refused = kubectl("patch", "aimsvc", "handled", "--type=merge", "-p", merge, check=False)
    assert 'The AIMService "handled" is invalid: spec.minReplicas:' in refused.stderr
    steps = json.dumps([{"op": "replace", "path": "/spec/adapterMode", "value": "dynamic"}])
    refused = kubectl("patch", "aimsvc", "handled", "--type=json", "-p", steps, check=False)
    assert "spec.adapterMode" in refused.stderr
    strategic = kubectl("patch", "aimsvc", "handled", "--type=strategic", "-p", merge, check=False)
    assert "strategic-merge-patch+json is not supported" in strategic.stderr
    stored = cluster.get("aimsvc", "handled", SPACE)
    assert stored is not None
    assert (stored["spec"]["replicas"], stored["metadata"]["labels"]["team"]) == (2, "words")


def test_kubectl_edit_shows_errors_and_saves_a_valid_object(cluster: Cluster, tmp_path: Path) -> None:
    """kubectl reopens a refused object with the reason at the top; the editor then changes nothing."""
    cluster.apply(service("edited", adapters=refs("medical"), replicas=2))
    shown = tmp_path / "shown"

    def edit(expression: str) -> subprocess.CompletedProcess[str]:
        editor = tmp_path / "editor"
        editor.write_text(f'#!/bin/sh\ncp "$1" {shown}\nexec sed -i \'{expression}\' "$1"\n')
        editor.chmod(0o700)
        kubectl = (cluster.info["kubectl"], "edit", "aimsvc", "edited", "-n", SPACE)
        return cluster.run("env", f"KUBE_EDITOR={editor}", f"TMPDIR={tmp_path}", *kubectl, check=False)

    refused = edit("s/^  replicas: 2/  minReplicas: 3\\n  maxReplicas: 2/")
    assert refused.returncode == 1
    assert re.search("^# .*spec.minReplicas: ", shown.read_text(), re.MULTILINE)
    done = edit("s/^  replicas: 2/  replicas: 3/")
    assert "edited" in done.stdout, done.stderr
    stored = cluster.get("aimsvc", "edited", SPACE)
    assert stored is not None
    assert stored["spec"]["replicas"] == 3
    assert "minReplicas" not in stored["spec"]


def test_missing_rights_are_reported_as_for_a_built_in_kind(cluster: Cluster) -> None:
    for args, wanted in (
        (("create", "aimsvc"), "yes"),
        (("patch", "aimsvc/fixed", "--subresource=scale"), "yes"),
        (("create", "aimsvc", "--as=somebody"), "no"),
    ):
        done = cluster.kubectl("auth", "can-i", *args, "-n", SPACE, check=False)
        assert (done.stdout.strip(), done.returncode) == (wanted, int(wanted == "no")), args


def test_another_field_owner_conflicts_and_can_take_over(cluster: Cluster) -> None:
    """Prevents: server-side apply ownership conflicts."""
    mine = service("owned", adapterMode="dynamic", adapters=refs("medical"), adapterRuntime={"maxRank": 32})
    cluster.kubectl("apply", "--server-side", "-f", "-", input=mine)
    theirs = copy.deepcopy(mine)
    theirs["spec"]["adapterRuntime"]["maxRank"] = 64
    args = ("apply", "--server-side", "--field-manager=other", "-f", "-")
    refused = cluster.kubectl(*args, input=theirs, check=False)
    assert "conflict" in refused.stderr
    assert "serverside-applied" in cluster.kubectl(*args, "--force-conflicts", input=theirs).stdout


def test_generated_names_are_checked(cluster: Cluster) -> None:
    plain = service("x", adapters=refs("medical"))
    plain["metadata"].pop("name")
    plain["metadata"]["generateName"] = "made-"
    assert "made-" in cluster.kubectl("create", "-f", "-", input=plain).stdout
    plain["spec"]["minReplicas"], plain["spec"]["maxReplicas"] = 3, 2
    refused = cluster.kubectl("create", "-f", "-", input=plain, check=False)
    assert 'The AIMService "made-' in refused.stderr


def test_a_hundred_objects_in_one_apply(cluster: Cluster) -> None:
    many = [adapter(f"many-{index}") for index in range(100)]
    said = cluster.kubectl("apply", "-f", "-", "--dry-run=server", input=many, timeout=120).stdout
    assert said.count("created (server dry run)") == 100


def test_a_request_through_the_other_version_is_judged_by_its_own_version(cluster: Cluster) -> None:
    """matchPolicy Equivalent converts the object; the rule about versions reads the requested version."""
    old = {
        **service("legacy"),
        "apiVersion": f"{GROUP}/v1alpha1",
        "spec": {"model": {"name": "not-yet"}, "adapterMode": "dynamic", "adapters": refs("medical")},
    }
    cluster.apply(old)
    edited = json.dumps({"spec": {"adapters": refs("medical", "legal")}})
    done = cluster.kubectl(
        "patch", f"aimservices.v1alpha2.{GROUP}", "legacy", "-n", SPACE, "--type=merge", "-p", edited
    )
    assert "patched" in done.stdout
    stored = cluster.get("aimsvc", "legacy", SPACE)
    assert stored is not None
    assert len(stored["spec"]["adapters"]) == 2


def test_a_terminating_object_can_lose_its_finalizer_and_nothing_else(cluster: Cluster) -> None:
    """Prevents: removing a finalizer is refused, or all edits of a terminating object are allowed."""
    held = service("held", adapters=refs("medical"))
    held["metadata"]["finalizers"] = ["example.com/held"]
    cluster.apply(held)
    cluster.kubectl("delete", "aimsvc", "held", "-n", SPACE, "--wait=false")
    edit = json.dumps({"metadata": {"finalizers": None}, "spec": {"adapterMode": "dynamic"}})
    refused = cluster.kubectl("patch", "aimsvc", "held", "-n", SPACE, "--type=merge", "-p", edit, check=False)
    assert "spec.adapterMode" in refused.stderr
    free = json.dumps({"metadata": {"finalizers": None}})
    cluster.kubectl("patch", "aimsvc", "held", "-n", SPACE, "--type=merge", "-p", free)
    cluster.wait(lambda: cluster.get("aimsvc", "held", SPACE) is None, what="the object is gone")


def test_namespaces_are_matched_both_ways(cluster: Cluster) -> None:
    """Objects in kube-system are not reviewed, objects in any other namespace are."""
    bad = service("selected", minReplicas=3, maxReplicas=2)
    for space, judged in (("kube-system", False), ("default", True)):
        bad["metadata"]["namespace"] = space
        done = cluster.kubectl("apply", "-f", "-", "--dry-run=server", input=bad, check=False)
        assert ("spec.minReplicas" in done.stderr) == judged, space
