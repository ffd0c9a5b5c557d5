"""InferenceService in, Deployment, Service, conditions out: the pure part of the KServe stand-in."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from api.view import JsonObject
from devcluster.kserve import admission, decide, schema, webhook, words
from devcluster.kserve.quantity import canonical
from devcluster.kserve.words import Settings

NOW = "2026-01-02T03:04:05Z"
LATER = "2026-01-02T03:09:00Z"
STANDARD = Settings()
KNATIVE = Settings(default_mode="Knative")


def isvc(
    *, name: str = "demo", namespace: str = "team", annotations: JsonObject | None = None, **predictor: Any
) -> JsonObject:
    container = {
        "name": "kserve-container",
        "image": "x/y:1",
        "env": [{"name": "B", "value": "2"}, {"name": "A", "value": "1"}],
        "ports": [{"name": "http", "containerPort": 8000, "protocol": "TCP"}],
    }
    return {
        "apiVersion": "serving.kserve.io/v1beta1",
        "kind": "InferenceService",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "uid": "u-1",
            "labels": {"team": "a"},
            "annotations": {words.ANNOTATION_MODE: "Standard", **(annotations or {})},
        },
        "spec": {"predictor": {"containers": [container], **predictor}},
    }


def container_of(deployment: JsonObject) -> JsonObject:
    return dict(deployment["spec"]["template"]["spec"]["containers"][0])


# --- mutation ---


def test_defaults_are_those_of_the_real_webhook_and_writing_them_twice_changes_nothing() -> None:
    raw = isvc(annotations={words.ANNOTATION_MODE: "RawDeployment"})
    raw["spec"]["predictor"]["containers"][0] |= {
        "name": "server",
        "resources": {"requests": {"cpu": "4000m", "memory": "32Gi"}, "limits": {"memory": "49152Mi"}},
    }
    raw["spec"]["predictor"]["volumes"] = [{"name": "shm", "emptyDir": {"sizeLimit": "8192Mi"}}]
    before = copy.deepcopy(raw)
    got = admission.default(raw, STANDARD)
    assert raw == before
    container = got["spec"]["predictor"]["containers"][0]
    assert got["metadata"]["annotations"][words.ANNOTATION_MODE] == "Standard"
    assert container["name"] == "kserve-container"
    assert container["resources"] == {
        "requests": {"cpu": "4", "memory": "32Gi"},
        "limits": {"cpu": "1", "memory": "48Gi"},  # a missing key is filled although it is below the request
    }
    assert got["spec"]["predictor"]["volumes"][0]["emptyDir"]["sizeLimit"] == "8Gi"
    assert admission.default(got, STANDARD) == got
    assert admission.patch_of(got, admission.default(got, STANDARD)) == []


def test_the_mode_is_written_only_where_it_is_the_default() -> None:
    bare = isvc()
    bare["metadata"].pop("annotations")
    assert admission.default(bare, STANDARD)["metadata"]["annotations"] == {words.ANNOTATION_MODE: "Standard"}
    assert "annotations" not in admission.default(bare, KNATIVE)["metadata"]


def test_the_token_default_follows_the_administrator() -> None:
    got = admission.default(isvc(), Settings(no_service_account_token=True))
    assert got["spec"]["predictor"]["automountServiceAccountToken"] is False
    kept = admission.default(isvc(automountServiceAccountToken=True), Settings(no_service_account_token=True))
    assert kept["spec"]["predictor"]["automountServiceAccountToken"] is True


def test_no_container_is_a_panic() -> None:
    answer = webhook.mutation({"uid": "7", "object": isvc(containers=[])}, STANDARD)
    assert answer["uid"] == "7"
    assert not answer["allowed"]
    assert "index out of range" in answer["status"]["message"]


def apply_patch(document: Any, operations: list[JsonObject]) -> Any:
    """A JSON patch of add, remove and replace, as RFC 6902 has them."""
    document = copy.deepcopy(document)
    for operation in operations:
        *parents, last = [p.replace("~1", "/").replace("~0", "~") for p in operation["path"].split("/")[1:]]
        target = document
        for part in parents:
            target = target[int(part)] if isinstance(target, list) else target[part]
        key: Any = int(last) if isinstance(target, list) else last
        if operation["op"] == "remove":
            del target[key]
        else:
            target[key] = operation["value"]
    return document


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from(["", "a", "a/b", "~"]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["a", "b/c", "~d", ""]), inner, max_size=3)
    ),
    max_leaves=12,
)


@given(st.dictionaries(st.sampled_from("abc"), JSON), st.dictionaries(st.sampled_from("abc"), JSON))
def test_a_patch_leads_from_old_to_new(old: JsonObject, new: JsonObject) -> None:
    assert apply_patch(old, admission.patch_of(old, new)) == new


QUANTITIES = {
    "49152Mi": "48Gi", "1536Mi": "1536Mi", "1.5Gi": "1536Mi", "4000m": "4", "0.5": "500m", "4": "4", "2000": "2k",
    "1024": "1024", "1024Ki": "1Mi", "0": "0", "100n": "100n", "1e3": "1e3", "12e2": "1200", "0.1Ki": "102400m",
    "lots": "lots",
}  # fmt: skip


@pytest.mark.parametrize(("raw", "expected"), QUANTITIES.items(), ids=QUANTITIES)
def test_quantities_are_written_canonically(raw: str, expected: str) -> None:
    assert canonical(raw) == expected
    assert canonical(expected) == expected


# --- refusals ---

REFUSED: dict[str, tuple[JsonObject, str]] = {
    "a name with a leading digit": (isvc(name="1st"), "'1st'"),
    "a name with a dot": (isvc(name="a.b"), "'a.b'"),
    "min above max": (isvc(minReplicas=3, maxReplicas=2), "minReplicas cannot be greater"),
    "negative min": (isvc(minReplicas=-1), "minReplicas cannot be less than 0"),
    "negative max": (isvc(maxReplicas=-1), "maxReplicas cannot be less than 0"),
    "PYTHONPATH": (isvc(containers=[{"env": [{"name": "PYTHONPATH", "value": "/x"}]}]), "PYTHONPATH"),
    "PROTOCOL": (isvc(containers=[{"env": [{"name": "PROTOCOL", "value": "v3"}]}]), "'v3'"),
    "autoscaler class": (isvc(annotations={words.ANNOTATION_AUTOSCALER: "vpa"}), "[vpa]"),
}


@pytest.mark.parametrize(("new", "says"), REFUSED.values(), ids=REFUSED)
def test_refused_with_403(new: JsonObject, says: str) -> None:
    answer = webhook.validation({"uid": "1", "object": new}, STANDARD)
    assert (answer["allowed"], answer["status"]["code"]) == (False, 403)
    assert says in answer["status"]["message"]


ALLOWED: dict[str, JsonObject] = {
    "plain": isvc(),
    "no upper bound": isvc(minReplicas=3, maxReplicas=0),
    "zero": isvc(minReplicas=0),
    "protocol v2": isvc(containers=[{"env": [{"name": "PROTOCOL", "value": "v2"}]}]),
    "a name that is too long": isvc(name="a" * 60),
    "an unknown mode": isvc(annotations={words.ANNOTATION_MODE: "Raw"}),
    "storage": isvc(containers=[{"env": [{"name": "STORAGE_URI", "value": "x://y"}]}]),
    "strategy with the mode": isvc(deploymentStrategy={"type": "Recreate"}),
}


@pytest.mark.parametrize("new", ALLOWED.values(), ids=ALLOWED)
def test_accepted(new: JsonObject) -> None:
    assert admission.refusal(new, None, STANDARD) is None


def test_a_strategy_needs_the_mode_where_the_default_is_knative() -> None:
    bare = isvc(deploymentStrategy={"type": "Recreate"})
    del bare["metadata"]["annotations"]
    assert "deploymentStrategy" in (admission.refusal(bare, None, KNATIVE) or "")
    assert admission.refusal(isvc(deploymentStrategy={"type": "Recreate"}), None, KNATIVE) is None


def test_the_mode_cannot_change_but_its_annotation_can_go() -> None:
    old = {**isvc(), "status": {"deploymentMode": "Standard"}}
    changed = isvc(annotations={words.ANNOTATION_MODE: "Knative"})
    assert "cannot be changed from 'Standard' to 'Knative'" in (admission.refusal(changed, old, STANDARD) or "")
    bare = isvc()
    del bare["metadata"]["annotations"]
    assert admission.refusal(bare, old, KNATIVE) is None
    assert decide.mode_of({**bare, "status": old["status"]}, KNATIVE) == "Standard"


# --- objects ---


def test_names_labels_annotations_and_selector() -> None:
    thing = isvc(
        annotations={
            "kubectl.kubernetes.io/last-applied-configuration": "{}",
            "autoscaling.knative.dev/min-scale": "1",
            "note": "isvc",
        },
        labels={"tier": "gpu"},
    )
    thing["spec"]["predictor"]["annotations"] = {"note": "predictor", "more": "x"}
    plan = decide.plan(thing)
    labels = {
        "team": "a", "tier": "gpu", "app": "isvc.demo-predictor", "component": "predictor",
        "serving.kserve.io/inferenceservice": "demo",
    }  # fmt: skip
    annotations = {words.ANNOTATION_MODE: "Standard", "note": "predictor", "more": "x"}
    assert plan.autoscaler is not None
    for item in (plan.service, plan.deployment, plan.autoscaler):
        meta = item["metadata"]
        assert (meta["name"], meta["namespace"]) == ("demo-predictor", "team")
        assert (meta["labels"], meta["annotations"]) == (labels, annotations)
        assert meta["ownerReferences"][0]["uid"] == "u-1"
    template = plan.deployment["spec"]["template"]["metadata"]
    assert template == {"labels": labels, "annotations": annotations}
    assert plan.deployment["spec"]["selector"] == {"matchLabels": {"app": "isvc.demo-predictor"}}
    assert plan.service["spec"]["selector"] == {"app": "isvc.demo-predictor"}


def test_the_pod_survives_unchanged_but_for_what_is_added() -> None:
    thing = isvc(
        volumes=[{"name": "shm", "emptyDir": {"medium": "Memory"}}],
        tolerations=[{"key": "amd.com/gpu", "operator": "Exists"}],
        serviceAccountName="runner",
        timeout=60,
        minReplicas=1,
    )
    deployment = decide.render_deployment(thing)
    pod = deployment["spec"]["template"]["spec"]
    assert sorted(pod) == ["containers", "serviceAccountName", "tolerations", "volumes"]
    container = container_of(deployment)
    assert [e["name"] for e in container["env"]] == ["B", "A", "INFERENCE_SERVICE_NAME"]
    assert container["env"][-1]["value"] == "demo"
    assert container["imagePullPolicy"] == "IfNotPresent"
    assert container["readinessProbe"]["tcpSocket"] == {"port": 8000}
    assert deployment["spec"]["progressDeadlineSeconds"] == 600
    assert deployment["spec"]["strategy"]["rollingUpdate"] == {"maxSurge": "25%", "maxUnavailable": "25%"}
    assert "replicas" not in deployment["spec"]


def test_what_the_user_says_wins_except_for_the_service_name() -> None:
    thing = isvc(deploymentStrategy={"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}})
    container = thing["spec"]["predictor"]["containers"][0]
    container |= {
        "imagePullPolicy": "Always",
        "readinessProbe": {"httpGet": {"path": "/v1/models", "port": 8000}},
        "env": [{"name": "INFERENCE_SERVICE_NAME", "value": "mine"}, {"name": "Z", "value": "1"}],
    }
    deployment = decide.render_deployment(thing)
    got = container_of(deployment)
    assert got["imagePullPolicy"] == "Always"
    assert got["readinessProbe"] == container["readinessProbe"]
    assert got["env"] == [{"name": "Z", "value": "1"}, {"name": "INFERENCE_SERVICE_NAME", "value": "demo"}]
    assert deployment["spec"]["strategy"]["rollingUpdate"]["maxUnavailable"] == 1


def test_service_ports() -> None:
    ports = decide.render_service(isvc())["spec"]["ports"]
    assert [(p["name"], p["port"], p["targetPort"]) for p in ports] == [("http", 80, 8000), ("http-direct", 8000, 8000)]
    none = isvc(containers=[{"name": "kserve-container", "image": "x"}])
    assert decide.render_service(none)["spec"]["ports"][0]["targetPort"] == 8080


AUTOSCALERS: dict[str, tuple[str | None, JsonObject, tuple[int, int] | None, int | None]] = {
    # class, predictor → (minimum, maximum) of the autoscaler, replicas written to the Deployment
    "hpa": (None, {"minReplicas": 2, "maxReplicas": 5}, (2, 5), None),
    "hpa needs one at least": ("hpa", {"minReplicas": 0, "maxReplicas": 0}, (1, 1), None),
    "hpa without a maximum": ("hpa", {"minReplicas": 3}, (3, 3), None),
    "none": ("none", {"minReplicas": 3, "maxReplicas": 3}, None, 3),
    "none at zero": ("none", {"minReplicas": 0}, None, 0),
    "none without a number": ("none", {}, None, 1),
    "external": ("external", {"minReplicas": 4}, None, None),
}


@pytest.mark.parametrize(("kind", "predictor", "bounds", "replicas"), AUTOSCALERS.values(), ids=AUTOSCALERS)
def test_replicas_and_autoscaler(
    kind: str | None, predictor: JsonObject, bounds: tuple[int, int] | None, replicas: int | None
) -> None:
    annotations = {words.ANNOTATION_AUTOSCALER: kind} if kind else {}
    plan = decide.plan(isvc(annotations=annotations, **predictor))
    assert plan.deployment["spec"].get("replicas") == replicas
    scaler = plan.autoscaler
    assert (scaler and (scaler["spec"]["minReplicas"], scaler["spec"]["maxReplicas"])) == bounds


def test_replacing_keeps_unrequested_replicas_and_undoes_those_of_none() -> None:
    live = {
        "metadata": {"resourceVersion": "9", "annotations": {"deployment.kubernetes.io/revision": "4", "x": "y"}},
        "spec": {"replicas": 7},
    }
    free = decide.replacing_deployment(decide.render_deployment(isvc()), live)
    assert free["spec"]["replicas"] == 7
    assert free["metadata"]["annotations"]["deployment.kubernetes.io/revision"] == "4"
    assert "x" not in free["metadata"]["annotations"]
    fixed = isvc(annotations={words.ANNOTATION_AUTOSCALER: "none"}, minReplicas=2)
    assert decide.replacing_deployment(decide.render_deployment(fixed), live)["spec"]["replicas"] == 2


def test_two_containers_in_the_wrong_order_have_one_name() -> None:
    two = [{"name": "side", "image": "s"}, {"name": "kserve-container", "image": "x"}]
    names = [
        c["name"] for c in decide.render_deployment(isvc(containers=two))["spec"]["template"]["spec"]["containers"]
    ]
    assert names == ["kserve-container", "kserve-container"]
    with pytest.raises(decide.ControllerPanicError):
        decide.check(isvc(containers=[{"name": "a"}, {"name": "b"}]), "Standard")


def test_storage_uri_injects_and_an_unknown_scheme_fails() -> None:
    thing = isvc()
    thing["spec"]["predictor"]["containers"][0]["env"] = [{"name": "STORAGE_URI", "value": "s3://b/k"}]
    pod = decide.render_deployment(thing)["spec"]["template"]["spec"]
    assert pod["initContainers"][0]["name"] == "storage-initializer"
    assert pod["containers"][0]["volumeMounts"][0]["mountPath"] == "/mnt/models"
    thing["spec"]["predictor"]["containers"][0]["env"][0]["value"] = "ftp://x"
    with pytest.raises(decide.RefusedError, match="scheme"):
        decide.check(thing, "Standard")


NAMES = {
    "longest in a namespace of four": ("n" * 4, 48, True),
    "one more": ("n" * 4, 49, False),
    "longest in a namespace of 21": ("n" * 21, 31, True),
    "one more there": ("n" * 21, 32, False),
}


@pytest.mark.parametrize(("namespace", "length", "fits"), NAMES.values(), ids=NAMES)
def test_name_limits(namespace: str, length: int, fits: bool) -> None:
    thing = isvc(name="a" * length, namespace=namespace)
    label = decide.metadata_of(thing)["labels"]["app"]
    try:
        decide.check(thing, "Standard")
    except decide.RefusedError as error:
        refused = str(error)
    else:
        refused = "the API server refuses the label" if len(label) > 63 else ""
    assert bool(refused) != fits
    assert not refused or "invalid domain name" in refused or len(label) > 63


def test_invalid_modes() -> None:
    for mode in ("Raw", "rawdeployment"):
        thing = isvc(annotations={words.ANNOTATION_MODE: mode})
        with pytest.raises(decide.RefusedError, match="unsupported deployment mode"):
            decide.check(thing, decide.mode_of(thing, STANDARD))
    assert decide.mode_of(isvc(annotations={words.ANNOTATION_MODE: "Serverless"}), STANDARD) == "Knative"


# --- status ---


def deployment(*conditions: tuple[str, str, str, str], generation: int = 3) -> JsonObject:
    listed = [{"type": t, "status": s, "reason": r, "message": m} for t, s, r, m in conditions]
    return {"status": {"observedGeneration": generation, "conditions": listed}}


AVAILABLE = ("Available", "True", "MinimumReplicasAvailable", "m")
UNAVAILABLE = ("Available", "False", "MinimumReplicasUnavailable", "m")
CREATED = ("Progressing", "True", "NewReplicaSetCreated", "m")
ROLLING = ("Progressing", "True", "ReplicaSetUpdated", "m")
COMPLETE = ("Progressing", "True", "NewReplicaSetAvailable", "m")
DEADLINE = ("Progressing", "False", "ProgressDeadlineExceeded", "m")
QUOTA = ("ReplicaFailure", "True", "FailedCreate", "quota")

CONDITIONS: dict[str, tuple[JsonObject | None, str, str]] = {
    "no Deployment": (None, "False", ""),
    "no condition yet": ({"status": {}}, "False", ""),
    "created": (deployment(CREATED), "Unknown", "NewReplicaSetCreated"),
    "waiting": (deployment(UNAVAILABLE, CREATED), "False", "MinimumReplicasUnavailable"),
    "ready": (deployment(AVAILABLE, COMPLETE), "True", "NewReplicaSetAvailable"),
    "rolling with the old pod": (deployment(AVAILABLE, ROLLING), "True", "MinimumReplicasAvailable"),
    "failed roll with the old pod": (deployment(AVAILABLE, DEADLINE), "False", "ProgressDeadlineExceeded"),
    "failed before the first": (deployment(UNAVAILABLE, DEADLINE), "False", "MinimumReplicasUnavailable"),
    "scaling up": (deployment(UNAVAILABLE, COMPLETE), "False", "MinimumReplicasUnavailable"),
    "quota": (deployment(UNAVAILABLE, CREATED, QUOTA), "False", "FailedCreate"),
}


@pytest.mark.parametrize(("seen", "status", "reason"), CONDITIONS.values(), ids=CONDITIONS)
def test_conditions_follow_the_deployment(seen: JsonObject | None, status: str, reason: str) -> None:
    report = decide.report(decide.Seen(isvc(), NOW, deployment=seen))
    by_type = {c["type"]: c for c in report.status["conditions"]}
    assert list(by_type) == ["IngressReady", "PredictorReady", "Ready", "Stopped"]
    predictor, ready = by_type["PredictorReady"], by_type["Ready"]
    assert (predictor["status"], predictor.get("reason", "")) == (status, reason)
    assert ready["status"] == status
    assert ready.get("reason", "") == ("" if status == "True" else reason)
    assert by_type["IngressReady"]["status"] == "True"
    assert (by_type["Stopped"]["status"], by_type["Stopped"]["severity"]) == ("False", "Info")


SERVICE: JsonObject = {"spec": {"clusterIP": "127.64.0.9"}}
POD: JsonObject = {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}


def test_addresses_are_there_before_readiness_and_the_generation_is_the_deployments() -> None:
    waiting = decide.report(
        decide.Seen(isvc(), NOW, deployment=deployment(UNAVAILABLE, generation=9), service=SERVICE)
    ).status
    assert waiting["url"] == waiting["address"]["url"] == "http://127.64.0.9:8000"
    assert "url" not in waiting["components"]["predictor"]
    assert waiting["observedGeneration"] == 9
    ready = decide.report(
        decide.Seen(isvc(), NOW, deployment=deployment(AVAILABLE, COMPLETE), service=SERVICE, pods=(POD,))
    ).status
    assert ready["components"]["predictor"]["url"] == "http://127.64.0.9:8000"
    assert ready["modelStatus"] == {
        "copies": {"failedCopies": 0, "totalCopies": 1},
        "states": {"activeModelState": "Loaded", "targetModelState": "Loaded"},
        "transitionStatus": "UpToDate",
    }


def test_a_second_pass_changes_nothing_and_a_change_renews_its_own_time_only() -> None:
    first = decide.report(decide.Seen(isvc(), NOW, deployment=deployment(UNAVAILABLE), service=SERVICE)).status
    thing = {**isvc(), "status": first}
    again = decide.report(decide.Seen(thing, LATER, deployment=deployment(UNAVAILABLE), service=SERVICE))
    assert again.status == first
    assert again.events == ()
    ready = decide.report(decide.Seen(thing, LATER, deployment=deployment(AVAILABLE, COMPLETE), service=SERVICE))
    times = {c["type"]: c["lastTransitionTime"] for c in ready.status["conditions"]}
    assert times == {"IngressReady": NOW, "PredictorReady": LATER, "Ready": LATER, "Stopped": NOW}
    assert [(e.type, e.reason) for e in ready.events] == [("Normal", "InferenceServiceReady")]
    lost = decide.report(
        decide.Seen({**isvc(), "status": ready.status}, LATER, deployment=deployment(UNAVAILABLE), service=SERVICE)
    )
    assert [(e.type, e.reason) for e in lost.events] == [("Warning", "InferenceServiceNotReady")]


def test_a_refused_object_is_reported_with_the_api_servers_words() -> None:
    report = decide.report(decide.Seen(isvc(), NOW, failure="fails to reconcile predictor: no"))
    by_type = {c["type"]: c for c in report.status["conditions"]}
    for kind in ("PredictorReady", "Ready"):
        assert (by_type[kind]["status"], by_type[kind]["reason"]) == ("False", "ReconcileFailed")
        assert by_type[kind]["message"] == "fails to reconcile predictor: no"
    assert by_type["IngressReady"]["status"] == "Unknown"
    assert "url" not in report.status
    assert report.status["deploymentMode"] == "Standard"
    assert [(e.type, e.reason) for e in report.events] == [("Warning", "InternalError")]


def test_a_stopped_service_says_so_and_has_no_address() -> None:
    first = decide.report(decide.Seen(isvc(), NOW, deployment=deployment(AVAILABLE), service=SERVICE)).status
    thing = {**isvc(annotations={words.ANNOTATION_STOP: "true"}), "status": first}
    status = decide.report(decide.Seen(thing, LATER)).status
    by_type = {c["type"]: c for c in status["conditions"]}
    assert by_type["Stopped"]["status"] == "True"
    assert (by_type["Ready"]["status"], by_type["Ready"]["reason"]) == ("False", "Stopped")
    assert "url" not in status


def crashed(**state: JsonObject) -> JsonObject:
    return {"status": {"containerStatuses": [{"name": "kserve-container", **state}]}}


ENDED = {"reason": "Error", "exitCode": 3, "message": "boom"}


def test_model_status_follows_the_first_pod_and_keeps_the_last_failure() -> None:
    pending = decide.model_status({}, (crashed(state={"running": {}}),), ready=False)
    assert (pending["transitionStatus"], pending["states"]["targetModelState"]) == ("InProgress", "Pending")
    for pod in (
        crashed(state={"terminated": ENDED}),
        crashed(state={"waiting": {"reason": "CrashLoopBackOff"}}, lastState={"terminated": ENDED}),
    ):
        failed = decide.model_status(pending, (pod, POD), ready=False)
        assert failed["transitionStatus"] == "BlockedByFailedLoad"
        assert failed["states"]["targetModelState"] == "FailedToLoad"
        assert failed["lastFailureInfo"] == {"reason": "ModelLoadFailed", "message": "boom", "exitCode": 3}
    recovered = decide.model_status(failed, (POD,), ready=True)
    assert recovered["transitionStatus"] == "UpToDate"
    assert recovered["lastFailureInfo"]["exitCode"] == 3
    empty = decide.model_status({}, (), ready=True)
    assert empty["states"]["targetModelState"] == "Pending"


# --- the kind ---


def test_the_kinds_schema_is_closed_and_its_lists_merge_as_the_real_ones() -> None:
    crd = yaml.load(schema.CRD_FILE.read_text(), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    text = Path(schema.CRD_FILE).read_text()
    assert "preserve-unknown-fields" not in text
    version = crd["spec"]["versions"][0]
    predictor = version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["predictor"]["properties"]
    for name in ("containers", "volumes", "tolerations", "initContainers"):
        assert "x-kubernetes-list-type" not in predictor[name], name
    container = predictor["containers"]["items"]
    assert "required" not in container
    assert container["properties"]["env"]["x-kubernetes-list-map-keys"] == ["name"]
    assert container["properties"]["volumeMounts"]["x-kubernetes-list-map-keys"] == ["mountPath"]
    assert set(schema._EXTENSIONS) == words.EXTENSION_FIELDS
    assert set(schema._EXTENSIONS) < set(predictor)
    assert [c["name"] for c in version["additionalPrinterColumns"]] == ["URL", "Ready", "Age"]
