"""What helm makes of the chart, without a cluster: golden files, refused values, rights, alerts, dashboard."""

from __future__ import annotations

import functools
import importlib
import json
import os
import re
import subprocess
from itertools import pairwise
from pathlib import Path

import pytest
import yaml
from prometheus_client import REGISTRY, CollectorRegistry

from api.kinds import AIM_KINDS, AIM_SERVICE_V1ALPHA1
from api.view import JsonObject
from app.settings import describe_settings, load_settings
from tests.chart.cases import API_VERSIONS, AUTHORITY, CASES
from tests.chart.conftest import CHART, NAMESPACE, ROOT, Helm
from tools.chart import DERIVED_SETTINGS, TARGET, VALUES, read_values
from tools.generated import drift
from webhooks.metrics import AdmissionMetrics

pytestmark = pytest.mark.chart

GOLDEN = ROOT / "tests" / "golden" / "chart"


def test_lint_finds_nothing(helm: Helm) -> None:
    said = helm.run("lint", "--strict", str(CHART)).stdout
    assert "0 chart(s) failed" in said
    assert "[WARNING]" not in said


@pytest.mark.parametrize("name", CASES)
def test_golden(helm: Helm, name: str) -> None:
    """The definitions are left out: api/ has its own check of them."""
    rendered = helm.template(CASES[name], *API_VERSIONS)
    path = GOLDEN / f"{name}.yaml"
    if os.environ.get("GOLDEN"):
        path.write_text(rendered)
    assert rendered == path.read_text(), f"see the difference with `make golden` and `git diff {path}`"


def test_no_golden_file_without_a_case() -> None:
    assert {path.stem for path in GOLDEN.glob("*.yaml")} == set(CASES)


def test_generated_files_are_current() -> None:
    assert not drift(TARGET, CHART)


REFUSED = {
    "a typo at the top": ({"replcas": 3}, "'replcas' not allowed"),
    "a typo below": ({"image": {"tga": "1"}}, "'tga' not allowed"),
    "a typo in a setting": ({"settings": {"refreshIntervall": "5s"}}, "'refreshIntervall' not allowed"),
    "a setting that the chart derives": ({"settings": {"admissionPort": 1}}, "'admissionPort' not allowed"),
    "a setting of the wrong type": ({"settings": {"workers": "many"}}, "/settings/workers"),
    "a duration without unit": ({"settings": {"refreshInterval": "soon"}}, "/settings/refreshInterval"),
    "a word that is none of the choices": ({"webhooks": {"failurePolicy": "Maybe"}}, "/webhooks/failurePolicy"),
    "a text where a number belongs": ({"replicas": "two"}, "/replicas"),
    "no replica": ({"replicas": 0}, "/replicas"),
    "a timeout as long as clients wait": ({"webhooks": {"timeoutSeconds": 30}}, "/webhooks/timeoutSeconds"),
    "a namespace that cannot be one": ({"namespaces": ["Team A"]}, "/namespaces/0"),
    "a tag in place of a digest": ({"image": {"digest": "latest"}}, "/image/digest"),
    "a life below cert-manager's limit": (
        {"certificates": {"certManager": {"duration": "30m"}}},
        "/certificates/certManager/duration",
    ),
    "a renewal below cert-manager's limit": (
        {"certificates": {"certManager": {"renewBefore": "4m"}}},
        "/certificates/certManager/renewBefore",
    ),
    "a renewal before the issue": (
        {"certificates": {"mode": "cert-manager", "certManager": {"duration": "2h", "renewBefore": "120m"}}},
        "certificates.certManager.renewBefore: 120m is not shorter than duration (2h)",
    ),
    "a wrong issuer": ({"certificates": {"certManager": {"issuerRef": {"kind": "CA", "name": "x"}}}}, "issuerRef/kind"),
    "nothing to run": (
        {"webhooks": {"enabled": False}, "reconciler": {"enabled": False}},
        "both false: nothing would run",
    ),
    "a provided certificate without its authority": (
        {"certificates": {"mode": "provided"}},
        "certificates.caBundle: required",
    ),
    "its own namespace among the served": ({"namespaces": ["a", NAMESPACE]}, "the namespace of the release"),
    "served and excluded namespaces": (
        {"namespaces": ["a"], "webhooks": {"excludedNamespaces": ["b"]}},
        "leave one of the two empty",
    ),
    "a PodMonitor of protected metrics": (
        {"metrics": {"protected": True, "podMonitor": {"enabled": True}}},
        "cannot send the token",
    ),
    "a ServiceMonitor without a Service": (
        {"metrics": {"service": False, "serviceMonitor": {"enabled": True}}},
        "requires metrics.service",
    ),
}


@pytest.mark.parametrize(("values", "words"), REFUSED.values(), ids=REFUSED)
def test_refused_values(helm: Helm, values: JsonObject, words: str) -> None:
    assert words in helm.refused(values)


def test_a_parent_chart_may_hand_down_its_globals(helm: Helm) -> None:
    helm.template({"global": {"storageClass": "fast"}})


def test_every_value_is_used_and_described() -> None:
    text = "".join(path.read_text() for path in (CHART / "templates").iterdir())
    for value in read_values(VALUES.read_text()):
        used = re.search(rf"\.Values\.{re.escape(value.path)}\b", text)
        through = [f"$given.{value.path.rpartition('.')[2]}", f'"{value.path.rpartition(".")[2]}"']
        assert used or any(word in text for word in through), f"no template uses {value.path}"


def test_settings_are_either_derived_or_free() -> None:
    known = {info.name for info in describe_settings()}
    assert known >= DERIVED_SETTINGS
    schema = json.loads((CHART / "values.schema.json").read_text())["$defs"]["settings"]["properties"]
    assert set(schema) == {info.key for info in describe_settings() if info.name not in DERIVED_SETTINGS}


@pytest.mark.parametrize("name", CASES)
def test_the_server_takes_the_rendered_settings(helm: Helm, name: str, tmp_path: Path) -> None:
    objects = helm.objects(CASES[name])
    config = tmp_path / "config.yaml"
    config.write_text(_one(objects, "ConfigMap", _name(name))["data"]["config.yaml"])
    settings, warnings = load_settings(config=config, environ={"AIMA_POD_NAME": "x"})
    assert not warnings
    assert settings.namespace == NAMESPACE
    assert settings.admission == (name != "reconciler-only")
    assert settings.reconciler == (name != "admission-only")
    # what the chart names is what the server looks for
    if settings.admission:
        assert _one(objects, "Service", settings.service_name)
        for kind, names in (
            ("ValidatingWebhookConfiguration", settings.validating_webhook_configurations),
            ("MutatingWebhookConfiguration", settings.mutating_webhook_configurations),
        ):
            assert names == tuple(o["metadata"]["name"] for o in objects if o["kind"] == kind)
    grace = _one(objects, "Deployment", _name(name))["spec"]["template"]["spec"]["terminationGracePeriodSeconds"]
    assert settings.shutdown_grace.total_seconds() < grace


def test_defaults_of_settings_fit_the_default_names(helm: Helm) -> None:
    """`aim-adapters serve` without any setting looks for the objects of a release called aim-adapters."""
    plain, _ = load_settings(environ={})
    text = _one(helm.objects({}), "ConfigMap", "aim-adapters")["data"]["config.yaml"]
    rendered = yaml.safe_load(text)
    assert rendered["certificateSecret"] == plain.certificate_secret
    assert rendered["serviceName"] == plain.service_name
    assert rendered["leaseName"] == plain.lease_name
    assert tuple(rendered["validatingWebhookConfigurations"]) == plain.validating_webhook_configurations


# -- webhooks -------------------------------------------------------------------------------------------------------


def test_webhooks_see_every_aim_kind_and_version_and_no_other(helm: Helm) -> None:
    """Prevents: a webhook on pods, nodes or leases keeps everything from starting, itself too."""
    rules = _one(helm.objects({}), "ValidatingWebhookConfiguration", "aim-adapters")["webhooks"][0]["rules"]
    seen = {
        (version, resource, rule["scope"])
        for rule in rules
        for version in rule["apiVersions"]
        for resource in rule["resources"]
    }
    for kind in (*AIM_KINDS, AIM_SERVICE_V1ALPHA1):
        assert (kind.version, kind.plural, "Namespaced" if kind.namespaced else "Cluster") in seen
    assert {resource for _, resource, _ in seen} == {kind.plural for kind in AIM_KINDS}
    assert all(rule["operations"] == ["CREATE", "UPDATE"] for rule in rules)


@pytest.mark.parametrize("name", [name for name in CASES if name != "reconciler-only"])
def test_webhooks_never_see_what_the_server_needs_to_start(helm: Helm, name: str) -> None:
    """They give up long before clients do; the own namespace and kube-system are left out."""
    for found in helm.objects(CASES[name]):
        for hook in found.get("webhooks") or []:
            expression = hook["namespaceSelector"]["matchExpressions"][0]
            assert expression["key"] == "kubernetes.io/metadata.name"
            if expression["operator"] == "NotIn":
                assert {NAMESPACE, "kube-system"} <= set(expression["values"])
            else:
                assert not {NAMESPACE, "kube-system"} & set(expression["values"])
            assert hook["sideEffects"] == "None"
            assert hook["timeoutSeconds"] <= 5
            assert hook["matchPolicy"] == "Equivalent"


def test_cluster_kinds_can_be_left_to_another_installation(helm: Helm) -> None:
    objects = helm.objects({"namespaces": ["team-a"], "webhooks": {"clusterKinds": False}})
    rules = _one(objects, "ValidatingWebhookConfiguration", "aim-adapters")["webhooks"][0]["rules"]
    assert [rule["scope"] for rule in rules] == ["Namespaced"]


FULL_CLUSTER = (
    "apiregistration.k8s.io/v1",
    "admissionregistration.k8s.io/v1",
    "apiextensions.k8s.io/v1",
    "cert-manager.io/v1",
    "monitoring.coreos.com/v1",
    "monitoring.coreos.com/v1/PrometheusRule",
    "monitoring.coreos.com/v1/ServiceMonitor",
    "networking.k8s.io/v1",
    "policy/v1",
    "aim.eai.amd.com/v1alpha1",
    "aim.eai.amd.com/v1alpha1/AIMClusterRuntimeConfig",
)


@pytest.mark.parametrize("name", CASES)
def test_what_argo_cd_renders_has_each_object_once(helm: Helm, name: str) -> None:
    """Of two objects with one name Argo CD keeps the last; an uninstall hook would replace the configuration."""
    objects = helm.objects(CASES[name], *(f"--api-versions={api}" for api in FULL_CLUSTER))
    names = [(o["apiVersion"], o["kind"], o["metadata"].get("namespace"), o["metadata"]["name"]) for o in objects]
    assert sorted(map(str, names)) == sorted({str(one) for one in names})
    assert not [o for o in objects if "helm.sh/hook" in (o["metadata"].get("annotations") or {})]
    configurations = [o for o in objects if o["kind"].endswith("WebhookConfiguration")]
    assert all(o["webhooks"] for o in configurations)


# -- rights ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", CASES)
def test_rights_are_narrow(helm: Helm, name: str) -> None:
    for role in (o for o in helm.objects(CASES[name]) if o["kind"] in {"Role", "ClusterRole"}):
        for rule in role["rules"]:
            assert "*" not in rule["apiGroups"] + rule["resources"] + rule["verbs"]
            assert not {"escalate", "bind", "impersonate", "deletecollection"} & set(rule["verbs"])
            if "secrets" in rule["resources"]:
                assert role["kind"] == "Role"
                assert rule["verbs"] == ["create"] or rule["resourceNames"], "all of a namespace's Secrets"
            if rule["apiGroups"] == ["admissionregistration.k8s.io"]:
                assert rule["resourceNames"]
            if "persistentvolumeclaims" in rule["resources"]:
                assert set(rule["verbs"]) == {"create", "list", "watch"}, "a claim goes with its owner, never by us"


def test_each_rule_has_its_reason(helm: Helm) -> None:
    """A comment above each rule of a role gives its reason."""
    for name in CASES:
        lines = helm.template(CASES[name], "--show-only=templates/rbac.yaml").splitlines()
        for above, line in pairwise(lines):
            if re.match(r"\s*- apiGroups:", line):
                # a creation cannot be bound to a name: it shares its reason with the rule for the name
                told = above.lstrip().startswith("#") or "verbs: [create]" in above
                assert told, f"{name}: a rule without its reason: {line}"


def test_admission_only_writes_nothing_but_its_certificate(helm: Helm) -> None:
    verbs: dict[str, set[str]] = {}
    for role in (o for o in helm.objects(CASES["admission-only"]) if o["kind"] in {"Role", "ClusterRole"}):
        for rule in role["rules"]:
            for resource in rule["resources"]:
                verbs.setdefault(resource, set()).update(rule["verbs"])
    writing = {resource for resource, found in verbs.items() if found - {"get", "list", "watch"}}
    assert writing == {"secrets", "validatingwebhookconfigurations", "mutatingwebhookconfigurations"}


def test_namespaces_leave_only_cluster_kinds_cluster_wide(helm: Helm) -> None:
    objects = helm.objects(CASES["namespaces"])
    resources = {
        resource.partition("/")[0]
        for role in objects
        if role["kind"] == "ClusterRole"
        for rule in role["rules"]
        for resource in rule["resources"]
    }
    configurations = {"validatingwebhookconfigurations", "mutatingwebhookconfigurations"}
    assert resources == {kind.plural for kind in AIM_KINDS if not kind.namespaced} | configurations
    bound = {o["metadata"]["namespace"] for o in objects if o["kind"] == "RoleBinding"}
    assert bound == {"team-a", "team-b", NAMESPACE}


def test_mounted_certificates_need_no_right_on_secrets(helm: Helm) -> None:
    for name in ("cert-manager", "provided"):
        text = helm.template(CASES[name], "--show-only=templates/rbac.yaml")
        assert "secrets" not in text
        (rule,) = [part for part in text.split("  - apiGroups:") if "admissionregistration" in part]
        assert "verbs: [get, watch]" in rule, "the configurations are read, and not written"


# -- pods -----------------------------------------------------------------------------------------------------------


def test_a_changed_setting_rolls_the_pods(helm: Helm) -> None:
    def annotations(values: JsonObject) -> JsonObject:
        deployment = _one(helm.objects(values), "Deployment", "aim-adapters")
        found: JsonObject = deployment["spec"]["template"]["metadata"]["annotations"]
        return found

    assert annotations({}) == annotations({"podDisruptionBudget": {"enabled": False}})
    assert annotations({}) != annotations({"settings": {"workers": 2}})
    assert annotations({}) != annotations({"webhooks": {"clientCA": AUTHORITY}})


def test_one_replica_can_be_drained(helm: Helm) -> None:
    assert not [o for o in helm.objects({"replicas": 1}) if o["kind"] == "PodDisruptionBudget"]


@pytest.mark.parametrize("name", CASES)
def test_every_object_has_the_common_labels(helm: Helm, name: str) -> None:
    for found in helm.objects(CASES[name], *API_VERSIONS):
        labels = found["metadata"]["labels"]
        wanted = {f"app.kubernetes.io/{word}" for word in ("name", "instance", "version", "managed-by", "part-of")}
        assert wanted | {"helm.sh/chart"} | set(CASES[name].get("commonLabels", {})) <= labels.keys(), found["kind"]
        if found["kind"] not in {"AIMClusterRuntimeConfig", "Deployment"} or "fullnameOverride" not in CASES[name]:
            assert _name(name) in found["metadata"]["name"] or found["kind"] == "AIMClusterRuntimeConfig"
        assert ("namespace" in found["metadata"]) != (found["kind"].startswith(CLUSTER_KINDS))
        assert found["metadata"].get("namespace", NAMESPACE) in {NAMESPACE, *CASES[name].get("namespaces", [])}


CLUSTER_KINDS = ("ClusterRole", "Validating", "Mutating", "AIMCluster", "CustomResource")


def test_every_object_of_the_schema_is_closed() -> None:
    """A typo is refused at any depth: only free-form maps, which Kubernetes judges itself, take any key."""
    schema = json.loads((CHART / "values.schema.json").read_text())
    free = {"object", "objects", "stringMap"}

    def open_ones(node: JsonObject, path: str) -> list[str]:
        found = [path] if "properties" in node and node.get("additionalProperties") is not False else []
        for key, inner in node.get("properties", {}).items():
            found += open_ones(inner, f"{path}.{key}")
        for key, inner in node.get("$defs", {}).items():
            found += [] if key in free else open_ones(inner, f"${key}")
        return found

    assert open_ones(schema, "") == []


def test_long_names_stay_names(helm: Helm) -> None:
    release = "a" * 53  # helm's own limit
    values = {"certificates": {"mode": "cert-manager"}, "metrics": {"dashboard": {"enabled": True}}}
    for found in yaml.safe_load_all(helm.template(values, release=release)):
        assert len(found["metadata"]["name"]) <= 63


# -- monitoring -----------------------------------------------------------------------------------------------------


def _metrics() -> dict[str, set[str]]:
    """Return all time series of the server by name, with the labels of each."""
    for module in (
        "app.protocol",
        "app.registration",
        "app.watchdog",
        "certs.metrics",
        "kube.metrics",
        "reconcile.metrics",
    ):
        importlib.import_module(module)
    registry = CollectorRegistry()
    AdmissionMetrics(registry)
    found: dict[str, set[str]] = {}
    for collector in {*REGISTRY._collector_to_names, *registry._collector_to_names}:
        labels = set(getattr(collector, "_labelnames", ()))
        for metric in collector.describe() if hasattr(collector, "describe") else []:
            suffixes = {"counter": ["_total"], "histogram": ["_bucket", "_count", "_sum"]}.get(metric.type, [""])
            for suffix in suffixes:
                found[metric.name + suffix] = labels | ({"le"} if suffix == "_bucket" else set())
    return found


def _expressions() -> list[tuple[str, str]]:
    alerts = yaml.safe_load((CHART / "files" / "alerts.yaml").read_text())
    found = [(rule["alert"], rule["expr"]) for group in alerts["groups"] for rule in group["rules"]]
    dashboard = json.loads((CHART / "files" / "dashboard.json").read_text())
    found += [(p["title"], t["expr"]) for p in dashboard["panels"] for t in p.get("targets", [])]
    return found


def test_alerts_and_dashboard_speak_of_real_metrics() -> None:
    metrics = _metrics()
    for title, expression in _expressions():
        names = re.findall(r"\baim_adapters_\w+", expression)
        assert names, f"{title}: no metric in {expression}"
        for name in names:
            assert name in metrics, f"{title}: no such metric: {name}"
        grouped = {label.strip() for found in re.findall(r"\bby \(([^)]*)\)", expression) for label in found.split(",")}
        matched = set(re.findall(r"[{,]\s*(\w+)\s*=", expression))
        allowed = set().union(*(metrics[name] for name in names)) | {"pod", "namespace"}
        assert grouped | matched <= allowed, f"{title}: unknown labels: {(grouped | matched) - allowed}"
        for opening, closing in ("()", "{}", "[]"):
            assert expression.count(opening) == expression.count(closing), f"{title}: {expression}"


PARSER = ROOT / ".venv-audit" / "bin" / "python"
PARSE = """
import json, sys, promql_parser
for title, text in json.load(sys.stdin):
    try:
        promql_parser.parse(text)
    except Exception as error:
        print(f"{title}: {error}: {text}")
"""


@pytest.mark.skipif(
    not PARSER.exists() and not os.environ.get("AIM_TEST_LONG"),
    reason="the parser is not installed: `make sbom` installs it, and `make test-long` does",
)
def test_alerts_and_dashboard_are_expressions_of_prometheus() -> None:
    """Grammar, functions and types, by a port of Prometheus' own parser; as they are rendered, with Grafana's words."""
    subprocess.run(["make", ".venv-audit/.installed"], cwd=ROOT, capture_output=True, timeout=300, check=True)
    words = {"SELECTOR": 'namespace="aim-system",pod=~"aim-adapters-.*"', "$__rate_interval": "5m", "$namespace": "x"}
    expressions = [("a wrong one is found", "rate(aim_adapters_leader)")]
    for title, text in _expressions():
        rendered = functools.reduce(lambda so_far, word: so_far.replace(word, words[word]), words, text)
        expressions.append((title, rendered))
    given = json.dumps(expressions)
    argv = [str(PARSER), "-c", PARSE]
    done = subprocess.run(argv, input=given, capture_output=True, text=True, timeout=60, check=True)
    (wrong,) = done.stdout.splitlines()
    assert wrong.startswith("a wrong one is found: expected type matrix")


WANTED = {  # what operators ask for, and the series that answers
    "admission requests by verdict": ("aim_adapters_admission_reviews_total", {"webhook", "kind", "verdict"}),
    "admission requests by rule": ("aim_adapters_admission_rule_total", {"reason", "effect"}),
    "latency histogram": ("aim_adapters_admission_seconds_bucket", {"le"}),
    "queue depth": ("aim_adapters_queue_depth", {"controller"}),
    "queue latency": ("aim_adapters_queue_latency_seconds_bucket", {"controller", "le"}),
    "reconcile errors by reason": ("aim_adapters_reconcile_errors_total", {"controller", "reason"}),
    "adapters by state": ("aim_adapters_adapters", {"state"}),
    "time to staged": ("aim_adapters_time_to_staged_seconds_bucket", {"le"}),
    "bytes staged": ("aim_adapters_staged_bytes_total", set()),
    "job outcomes": ("aim_adapters_job_outcomes_total", {"role", "result", "reason"}),
    "leader": ("aim_adapters_leader", set()),
    "certificate expiry": ("aim_adapters_certificate_expiry_timestamp_seconds", set()),
    "event loop stall": ("aim_adapters_event_loop_stall_seconds", set()),
    "cache age": ("aim_adapters_cache_age_seconds", {"kind"}),
}
NEVER_A_LABEL = {"name", "namespace", "service", "artifact", "adapter", "uid", "user", "path", "source", "node", "ip"}


@pytest.mark.parametrize(("name", "labels"), WANTED.values(), ids=WANTED)
def test_the_metric_that_operators_ask_for_exists(name: str, labels: set[str]) -> None:
    metrics = _metrics()
    assert labels <= metrics[name]
    page = (ROOT / "docs" / "metrics.md").read_text()
    assert f"`{re.sub(r'_(bucket|sum|count)$', '', name)}`" in page


def test_no_metric_has_a_label_of_unbounded_values() -> None:
    for name, labels in _metrics().items():
        if name.startswith("aim_adapters_"):
            assert not labels & NEVER_A_LABEL, name
            assert name == name.lower()
            assert not name.endswith(("_ms", "_milliseconds", "_minutes", "_kb", "_mb")), "base units"


def test_the_dashboard_shows_every_metric() -> None:
    shown = {name for _, text in _expressions() for name in re.findall(r"\baim_adapters_\w+", text)}
    for name in _metrics():
        if name.startswith("aim_adapters_"):
            family = re.sub(r"_(bucket|count|sum)$", "", name)
            assert any(each.startswith(family) for each in shown), f"neither dashboard nor alerts use {name}"


def test_alerts_say_what_to_do() -> None:
    alerts = yaml.safe_load((CHART / "files" / "alerts.yaml").read_text())
    for rule in (rule for group in alerts["groups"] for rule in group["rules"]):
        assert set(rule["annotations"]) == {"summary", "description"}
        assert rule["labels"]["severity"] in {"critical", "warning"}
        assert "SELECTOR" in rule["expr"]


# -- documentation --------------------------------------------------------------------------------------------------


def test_operations_names_every_alert() -> None:
    page = (ROOT / "docs" / "operations.md").read_text()
    alerts = yaml.safe_load((CHART / "files" / "alerts.yaml").read_text())
    for rule in (rule for group in alerts["groups"] for rule in group["rules"]):
        assert f"`{rule['alert']}`" in page


@pytest.mark.parametrize("page", ["docs/operations.md", "SECURITY.md", "chart/README.md"])
def test_values_that_the_pages_name_exist(page: str) -> None:
    known = {value.path for value in read_values(VALUES.read_text())}
    settings = {f"settings.{info.key}" for info in describe_settings() if info.name not in DERIVED_SETTINGS}
    groups = {path.partition(".")[0] for path in known}
    for text in re.findall(r"`([^`\n]+)`", (ROOT / page).read_text()):
        for path in re.findall(r"(?:^|[\s,])([a-z]\w*(?:\.\w+)+)(?==|$|\s)", text):
            parents = {path.rsplit(".", depth)[0] for depth in range(3)}  # podSecurityContext.runAsUser is a part
            if path.partition(".")[0] in groups:
                assert parents & (known | settings), f"{page}: no such value: {path}"


def _name(case: str) -> str:
    return str(CASES[case].get("fullnameOverride", "aim-adapters"))


def _one(objects: list[JsonObject], kind: str, name: str) -> JsonObject:
    found = [o for o in objects if o["kind"] == kind and o["metadata"]["name"] == name]
    assert len(found) == 1, f"{kind} {name}: {len(found)} times"
    return found[0]
