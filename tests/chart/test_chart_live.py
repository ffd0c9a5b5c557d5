"""The release at work, with pods and live services: its rights, an upgrade, a drain.

Least privilege is shown by the API server's own audit log: each granted rule is used, and none is missed. The served
namespace enforces the Pod Security level `restricted`, so that every Job and model server here passes it.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from api.view import JsonObject
from devcluster.base_models import BASE_MODELS
from devcluster.info import gather
from devcluster.sample_adapters import SampleAdapter, write_adapter
from tests.chart.conftest import (
    CHART,
    NAMESPACE,
    PATIENCE,
    RELEASE,
    ROOT,
    Helm,
    Plane,
    Reviews,
    lives,
    pods,
    roll_out,
    running,
    upgrade,
)

pytestmark = pytest.mark.chart

ACCOUNT = f"system:serviceaccount:{NAMESPACE}:{RELEASE}"
TINY = next(model for model in BASE_MODELS if model.model_id == "acme/tiny-llama")
OTHER = next(model for model in BASE_MODELS if model.model_id != TINY.model_id)
PROFILE = {"name": "tiny-mi300x"}
LEVEL = "pod-security.kubernetes.io/enforce"
BASE_URI = f"hf://{TINY.model_id}"

# Rights that this module's work does not come to, each with what would.
ELSEWHERE = {
    ("update", "secrets"): "a renewal, by time or after damage: tests/cluster/test_certificates.py",
    ("list", "events"): "what a provisioner says of a claim that stays unbound: tests/cluster/test_plugin_people.py",
}
Right = tuple[str, str, str]  # API group, resource (with subresource), verb


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Plane]:
    """A whole cluster with an audit log: it shadows the session's bare control plane."""
    settings = {"reaperPeriod": "10s", "scratchGuard": "0s", "refreshInterval": "5s", "retryBase": "1s"}
    settings["securityProfile"] = "restricted"
    with running(tmp_path_factory.mktemp("rights") / "cluster", settings, bare=False) as plane:
        plane.kubectl("label", "namespace", "default", f"{LEVEL}=restricted")
        yield plane


@pytest.fixture(scope="module")
def worked(plane: Plane) -> list[JsonObject]:
    """Events of our account after a working life: both pipelines, both adapter kinds, edits, refusals, a deletion."""
    hub = Path(gather(plane.folder)["hub"]["root"])
    for name in ("one", "two"):
        write_adapter(hub, SampleAdapter(f"team/{name}", TINY, 8))
    plane.apply(
        artifact("base", type="model", sourceUri=BASE_URI, size="1Gi"),
        artifact("one", type="adapter", modelId="team/one", sourceUri="hf://team/one", compatibleWith=[TINY.model_id]),
        artifact("two", type="adapter", modelId="team/two", sourceUri="hf://team/two", parentArtifact="base"),
        service("profiled", profile=PROFILE, profileOverrides=overrides("1"), **adapters("one", "two")),
    )
    plane.apply(*template_pipeline(), artifact("broken", type="model", sourceUri="hf://team/none", size="1Gi"))
    for name in ("profiled", "templated"):
        plane.wait(lambda name=name: phase(plane, name) == "Running", f"{name} runs", PATIENCE)  # type: ignore[misc]
    plane.apply(service("profiled", profile=PROFILE, profileOverrides=overrides("2"), **adapters("one")))
    wrong = service(
        "wrong", profile={"name": "tiny-mi300x"}, **adapters("base")
    )  # no adapter: confirmed by a live read
    assert "is invalid" in plane.apply(wrong, check=False)
    ambiguous = _object("v1alpha1", "AIMService", "ambiguous", {**adapters("one"), **named("several")})
    plane.wait(
        lambda: "is invalid" in plane.apply(ambiguous, check=False, args=("--dry-run=server",)),
        "the refusal that rests on a cluster model and template",
    )
    plane.wait(lambda: len(adapter_names(plane, "profiled")) == 1, "the second adapter is gone", PATIENCE)
    plane.wait(lambda: phase(plane, "profiled") == "Running", "it runs again", PATIENCE)
    plane.wait(lambda: len(projected_profiles(plane)) == 1, "the old projected profile is gone", PATIENCE)
    plane.kubectl("delete", "aimservice", "templated")
    for kind in ("validatingwebhookconfiguration", "mutatingwebhookconfiguration"):  # healed: get, watch, patch
        change = '[{"op":"remove","path":"/webhooks/0/clientConfig/caBundle"}]'
        plane.kubectl("patch", kind, RELEASE, "--type=json", "-p", change)
        plane.wait(lambda kind=kind: "caBundle" in str(plane.get(kind, RELEASE)), "it is healed")  # type: ignore[misc]
    plane.wait(lambda: any("-reaper-" in name for name in jobs_made(read_audit(plane))), "the disk is swept", PATIENCE)
    return [event for event in read_audit(plane) if event["user"]["username"] == ACCOUNT]


def jobs_made(events: list[JsonObject]) -> list[str]:
    """Return the names of the Jobs that were created."""
    made = [event["objectRef"] for event in events if event["verb"] == "create" and event.get("objectRef")]
    return [reference.get("name", "") for reference in made if reference["resource"] == "jobs"]


def artifact(name: str, **spec: object) -> JsonObject:
    """Return an AIMArtifact."""
    return _object("v1alpha1", "AIMArtifact", name, spec)


def service(name: str, **spec: object) -> JsonObject:
    """Return a dynamic AIMService."""
    return _object("v1alpha2", "AIMService", name, {"adapterMode": "dynamic", **spec})


def adapters(*names: str) -> JsonObject:
    """Return the part of a spec that declares adapters."""
    return {"adapters": [{"name": name, "kind": "AIMArtifact"} for name in names]}


def overrides(value: str) -> JsonObject:
    """Return overrides that make a profile of the service's own, and a projected one that another value changes."""
    sources = [{"modelId": TINY.model_id, "sourceUri": BASE_URI, "size": "1Gi"}]
    return {"modelSources": sources, "engineEnv": {"EXAMPLE": value}}


def template_pipeline() -> list[JsonObject]:
    """Return model, template and a service of them; and the same as cluster kinds, which only get a status."""
    # another base than the one above, so that the cache makes an artifact of its own
    source = {"modelId": OTHER.model_id, "sourceUri": f"hf://{OTHER.model_id}", "size": "1Gi"}
    image = "aim-dev/model-server:0.13.0"
    several = [source, {**source, "modelId": TINY.model_id, "sourceUri": BASE_URI}]
    hardware = {"gpu": {"model": "MI300X", "requests": 1}}
    return [
        _object("v1alpha1", "AIMClusterModel", "several", {"image": image, "modelSources": [source]}),
        _object(
            "v1alpha1",
            "AIMClusterServiceTemplate",
            "several",
            {"modelName": "several", "hardware": hardware, "modelSources": several},
        ),
        _object("v1alpha1", "AIMModel", "tiny", {"image": image, "modelSources": [source]}),
        _object("v1alpha1", "AIMServiceTemplate", "tiny", {"modelName": "tiny", "hardware": hardware}),
        _object("v1alpha1", "AIMClusterModel", "shared", {"image": image, "modelSources": [source]}),
        _object("v1alpha1", "AIMClusterServiceTemplate", "shared", {"modelName": "shared", "hardware": hardware}),
        _object("v1alpha1", "AIMService", "templated", {"model": {"name": "tiny"}, "adapterMode": "dynamic"}),
    ]


def named(name: str) -> JsonObject:
    """Return the part of a spec that names model and template."""
    return {"model": {"name": name}, "template": {"name": name}, "adapterMode": "dynamic"}


def _object(version: str, kind: str, name: str, spec: JsonObject) -> JsonObject:
    metadata = {"name": name} | ({} if kind.startswith("AIMCluster") else {"namespace": "default"})
    return {"apiVersion": f"aim.eai.amd.com/{version}", "kind": kind, "metadata": metadata, "spec": spec}


def phase(plane: Plane, name: str) -> str:
    """Return a service's `status.status`, once that is about its newest spec."""
    found = plane.get("aimservice", name) or {}
    status = found.get("status") or {}
    return status.get("status", "") if status.get("observedGeneration") == found["metadata"]["generation"] else ""


def adapter_names(plane: Plane, name: str) -> list[str]:
    """Return the adapters in a service's status."""
    found = plane.get("aimservice", name) or {}
    return [entry["name"] for entry in found["status"].get("adapters", [])]


def projected_profiles(plane: Plane) -> list[str]:
    """Return the names of the ConfigMaps that the service `profiled` owns."""
    shown = plane.kubectl("get", "configmaps", "-o", "json", "-l", "aim.eai.amd.com/service=profiled").stdout
    return [found["metadata"]["name"] for found in json.loads(shown)["items"]]


def read_audit(plane: Plane) -> list[JsonObject]:
    """Return all events that are written whole."""
    return [json.loads(line) for line in plane.audit_log.read_text().splitlines() if line.endswith("}")]


def used(events: list[JsonObject]) -> set[Right]:
    """Return the rights that requests made use of. A server-side apply that creates needs `create` as well."""
    found: set[Right] = set()
    for event in events:
        reference = event.get("objectRef")
        if not reference or event["responseStatus"]["code"] == 403:
            continue
        resource = "/".join(filter(None, (reference["resource"], reference.get("subresource"))))
        found.add((reference.get("apiGroup", ""), resource, event["verb"]))
        if event["verb"] == "patch" and event["responseStatus"]["code"] == 201:
            found.add((reference.get("apiGroup", ""), resource, "create"))
    return found


def granted(plane: Plane) -> list[tuple[str, JsonObject]]:
    """Return all rules of the release's roles as they are in the cluster: (role, rule)."""
    selector = f"app.kubernetes.io/instance={RELEASE}"
    shown = plane.kubectl("get", "roles,clusterroles", "-A", "-l", selector, "-o", "yaml").stdout
    roles = yaml.safe_load(shown)["items"]
    return [(f"{role['kind']} {role['metadata']['name']}", rule) for role in roles for rule in role["rules"]]


def test_every_pod_passes_the_restricted_level(plane: Plane, worked: list[JsonObject]) -> None:
    """Jobs of every role and a model server came to be in a namespace that enforces it; a looser pod does not."""
    jobs = jobs_made(worked)
    for role in ("fetch", "sync", "stage", "reaper"):
        assert any(f"-{role}-" in name for name in jobs), f"no {role} in {jobs}"
    assert predictors(plane)
    assert "violates PodSecurity" not in plane.kubectl("get", "events", "-A", "-o", "yaml").stdout
    loose = {"containers": [{"name": "c", "image": "aim-dev/model-server:0.13.0"}]}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "loose", "namespace": "default"}, "spec": loose}
    assert "violates PodSecurity" in plane.apply(pod, check=False)


def test_nothing_was_forbidden(worked: list[JsonObject]) -> None:
    refused = [
        f"{event['verb']} {event['requestURI']}: {event['responseStatus'].get('message')}"
        for event in worked
        if event["responseStatus"]["code"] == 403 and "denied the request" not in str(event["responseStatus"])
    ]
    assert not refused


def test_each_granted_right_was_used(plane: Plane, worked: list[JsonObject]) -> None:
    """Each verb of a rule on one of its resources, each resource with one of its verbs."""
    made = used(worked)
    idle = []
    for role, rule in granted(plane):
        pairs = {
            (verb, resource)
            for verb in rule["verbs"]
            for resource in rule["resources"]
            if (rule["apiGroups"][0], resource, verb) in made or (verb, resource) in ELSEWHERE
        }
        idle += [f"{role}: {verb} on any of {rule['resources']}" for verb in {*rule["verbs"]} - {v for v, _ in pairs}]
        idle += [f"{role}: anything on {r}" for r in {*rule["resources"]} - {resource for _, resource in pairs}]
    assert not idle


def test_writes_are_used_one_by_one(plane: Plane, worked: list[JsonObject]) -> None:
    """What changes something is looked at pair by pair."""
    made = used(worked)
    idle = [
        f"{role}: {verb} {resource}"
        for role, rule in granted(plane)
        for verb in rule["verbs"]
        for resource in rule["resources"]
        if verb not in {"get", "list", "watch"}
        and (rule["apiGroups"][0], resource, verb) not in made
        and (verb, resource) not in ELSEWHERE
    ]
    assert not idle


def test_secrets_are_asked_for_by_name_only(worked: list[JsonObject]) -> None:
    for event in worked:
        reference = event.get("objectRef") or {}
        if reference.get("resource") == "secrets":
            assert reference["namespace"] == NAMESPACE
            assert event["verb"] == "create" or reference["name"] == f"{RELEASE}-webhook-tls"


ALWAYS = {  # of every replica, whatever happened
    "aim_adapters_certificate_expiry_timestamp_seconds",
    "aim_adapters_cache_objects",
}
LEADS = {  # of the one that leads, after this module's working life
    "aim_adapters_leader",
    "aim_adapters_adapters",
    "aim_adapters_job_outcomes_total",
    "aim_adapters_queue_latency_seconds_count",
    "aim_adapters_reconcile_seconds_count",
    "aim_adapters_staged_bytes_total",
    "aim_adapters_time_to_staged_seconds_count",
}
SOME = {  # of whichever was asked: quick reviews all go over the API server's one connection, to one replica
    "aim_adapters_admission_reviews_total",
    "aim_adapters_admission_rule_total",
    "aim_adapters_admission_seconds_count",
}


def test_the_metrics_count_these_changes(plane: Plane, worked: list[JsonObject]) -> None:
    """What operators ask for has samples above zero on live servers, and what they show is documented."""
    pages = [scrape(f"http://{pod['status']['podIP']}:8080/metrics") for pod in pods(plane)]
    assert len(pages) == 2
    for page in pages:
        assert {name for name in ALWAYS if page.get(name, 0) <= 0} == set()
    (leading,) = [page for page in pages if page["aim_adapters_leader"] == 1]
    assert {name for name in LEADS if leading.get(name, 0) <= 0} == set()
    assert {name for name in SOME if not any(page.get(name, 0) > 0 for page in pages)} == set()
    documented = set(re.findall(r"^\| `(aim_adapters_\w+)`", (ROOT / "docs" / "metrics.md").read_text(), re.MULTILINE))
    for name in {name for page in pages for name in page if name.startswith("aim_adapters_")}:
        assert name in documented or re.sub(r"_(bucket|count|sum)$", "", name) in documented


def readiness(pod: JsonObject) -> str:
    """Return what a replica reports on /readyz."""
    with urllib.request.urlopen(f"http://{pod['status']['podIP']}:8080/readyz?verbose", timeout=10) as answer:
        return str(answer.read().decode())


def doctor(plane: Plane) -> subprocess.CompletedProcess[str]:
    """Run `aim-adapters doctor` as the administrator."""
    argv = [sys.executable, "-m", "cli.main", "doctor", f"--kubeconfig={plane.kubeconfig}"]
    return subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=False, timeout=60)


def test_a_webhook_configuration_that_is_gone_is_reported(plane: Plane, worked: list[JsonObject]) -> None:
    """By every replica on /readyz and in a metric, and by `doctor`; all of them report when it is back."""
    kind = "validatingwebhookconfiguration"
    metric = "aim_adapters_webhook_configuration_problem"
    stored = yaml.safe_load(plane.kubectl("get", kind, RELEASE, "-o", "yaml").stdout)
    before = doctor(plane)
    assert before.returncode == 0, before.stdout
    plane.kubectl("delete", kind, RELEASE)
    try:
        for pod in pods(plane):
            plane.wait(lambda pod=pod: "does not exist" in readiness(pod), "it is reported", 10)  # type: ignore[misc]
            assert readiness(pod).endswith("\nready\n"), "reviews are still answered, so the replica stays in service"
            assert scrape(f"http://{pod['status']['podIP']}:8080/metrics")[metric] == 1
        found = doctor(plane)
        assert found.returncode == 1
        assert "✖ ValidatingWebhookConfiguration: there is none" in found.stdout
    finally:
        metadata = {name: stored["metadata"][name] for name in ("name", "labels")}
        plane.apply({**stored, "metadata": metadata})
    for pod in pods(plane):
        plane.wait(lambda pod=pod: "does not exist" not in readiness(pod), "it is back", 15)  # type: ignore[misc]
        assert scrape(f"http://{pod['status']['podIP']}:8080/metrics")[metric] == 0


def scrape(url: str) -> dict[str, float]:
    """Return the sum of each metric's samples."""
    with urllib.request.urlopen(url, timeout=10) as answer:
        families = list(text_string_to_metric_families(answer.read().decode()))
    found: dict[str, float] = {}
    for sample in (sample for family in families for sample in family.samples):
        found[sample.name] = found.get(sample.name, 0.0) + sample.value
    return found


# -- upgrade and drain ----------------------------------------------------------------------------------------------


def predictors(plane: Plane) -> set[tuple[str, int]]:
    """Return the model servers' pods, and how often each was restarted."""
    shown = plane.kubectl("get", "pods", "-o", "json", "-l", "serving.kserve.io/inferenceservice").stdout
    return {
        (pod["metadata"]["uid"], pod["status"]["containerStatuses"][0]["restartCount"])
        for pod in json.loads(shown)["items"]
    }


def generations(plane: Plane) -> dict[str, int]:
    """Return the generation of each InferenceService."""
    shown = plane.kubectl("get", "inferenceservices", "-o", "json").stdout
    return {found["metadata"]["name"]: found["metadata"]["generation"] for found in json.loads(shown)["items"]}


def test_an_upgrade_disturbs_no_service_and_loses_no_review(
    plane: Plane, worked: list[JsonObject], helm_program: Path, tmp_path: Path
) -> None:
    """From the chart as a version before would have been: other labels, so that every object changes and pods roll."""
    helm = Helm(helm_program, tmp_path, plane.kubeconfig)
    older = tmp_path / "older"
    shutil.copytree(CHART, older)
    described = (older / "Chart.yaml").read_text()
    (older / "Chart.yaml").write_text(described.replace("version: 0.1.0", "version: 0.0.9"))
    upgrade(helm, chart=older)
    roll_out(plane)
    plane.wait(lambda: len(predictors(plane)) == 1, "only the pod of the service that is left", PATIENCE)
    before, served, revision = predictors(plane), generations(plane), lives(plane)
    with Reviews(plane) as reviews:
        upgrade(helm)
        roll_out(plane)
        plane.wait(lambda: len(pods(plane)) == 2 and not lives(plane) & revision, "all are new", PATIENCE)
        reviews.more(5)
    print(reviews.summary("upgrade"))  # noqa: T201 - the proof
    assert reviews.failed == []
    assert predictors(plane) == before
    assert generations(plane) == served
    assert phase(plane, "profiled") == "Running"


def test_a_drain_takes_one_replica_at_a_time(plane: Plane, worked: list[JsonObject], tmp_path: Path) -> None:
    first, second = sorted(pod["metadata"]["name"] for pod in pods(plane))
    with Reviews(plane) as reviews:
        assert "created" in evict(plane, first, tmp_path)
        assert "disruption budget" in evict(plane, second, tmp_path)
        plane.wait(lambda: ready(plane) == 2 and first not in names(plane), "another took its place", PATIENCE)
        plane.wait(lambda: "created" in evict(plane, second, tmp_path), "then the other may go", PATIENCE)
        plane.wait(lambda: ready(plane) == 2 and second not in names(plane), "and is replaced too", PATIENCE)
    print(reviews.summary("drain"))  # noqa: T201 - the proof
    assert reviews.failed == []


def evict(plane: Plane, name: str, folder: Path) -> str:
    """Evict a pod as a drain does; return what the API server says."""
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name, "namespace": NAMESPACE}}
    path = folder / "eviction.json"
    path.write_text(json.dumps(eviction))
    url = f"/api/v1/namespaces/{NAMESPACE}/pods/{name}/eviction"
    done = plane.kubectl("create", "--raw", url, "-f", str(path), check=False)
    return "created" if done.returncode == 0 else done.stderr


def names(plane: Plane) -> set[str]:
    """Return the names of the server's pods."""
    return {pod["metadata"]["name"] for pod in pods(plane)}


def ready(plane: Plane) -> int:
    """Return how many of the server's pods are ready."""
    conditions = [c for pod in pods(plane) for c in pod["status"].get("conditions", [])]
    return sum(c["type"] == "Ready" and c["status"] == "True" for c in conditions)


def test_a_release_for_some_namespaces_works_with_rights_there_only(
    plane: Plane, worked: list[JsonObject], helm_program: Path, tmp_path: Path
) -> None:
    """The last test of this module: from here on only `default` is served."""
    helm = Helm(helm_program, tmp_path, plane.kubeconfig)
    before = predictors(plane)
    upgrade(helm, "namespaces={default}", "reconciler.nodes=false")
    roll_out(plane)
    mark = len(read_audit(plane))
    hub = Path(gather(plane.folder)["hub"]["root"])
    write_adapter(hub, SampleAdapter("team/three", TINY, 8))
    plane.apply(
        artifact(
            "three", type="adapter", modelId="team/x", sourceUri="hf://team/three", compatibleWith=[TINY.model_id]
        ),
        service("profiled", profile=PROFILE, profileOverrides=overrides("2"), **adapters("one", "three")),
    )
    plane.wait(lambda: states(plane, "profiled").get("three") in {"Downloaded", "Loaded"}, "it is staged", PATIENCE)
    assert predictors(plane) == before
    later = [event for event in read_audit(plane)[mark:] if event["user"]["username"] == ACCOUNT]
    assert [event["requestURI"] for event in later if event["responseStatus"]["code"] == 403] == []
    account = f"--as={ACCOUNT}"
    for verb, what in (("list", "aimservices"), ("create", "jobs"), ("list", "pods")):
        argv = ("auth", "can-i", verb, what, account, "-n")
        assert plane.kubectl(*argv, "default", check=False).stdout.strip() == "yes"
        assert plane.kubectl(*argv, "kube-public", check=False).stdout.strip() == "no"


def states(plane: Plane, name: str) -> dict[str, str]:
    """Return the state of each adapter of a service."""
    found = plane.get("aimservice", name) or {}
    return {entry["name"]: entry["state"] for entry in found["status"].get("adapters", [])}
