"""InferenceServiceReady, Ready and status.status at every moment of a server's life."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from api import view
from api.kinds import AIM_SERVICE, INFERENCE_SERVICE
from api.models import MODELS
from api.reasons import Reason
from reconcile.conditions import Condition
from reconcile.decision import Decision
from reconcile.service.decide import decide
from reconcile.service.facts import ServiceFacts
from reconcile.service.loading import ServerPod
from reconcile.service.report import ready_condition
from reconcile.service.serving import Gate
from tests.unit.reconcile.model.life import START
from tests.unit.reconcile.service.scene import CLAIM, SYNCED, observe, profile, rendered


def running(spec: dict[str, Any] | None = None, *world: dict[str, Any], **service: Any) -> ServiceFacts:
    """A dynamic service whose InferenceService is as it should be."""
    seen = observe({"spec": {"adapterMode": "dynamic"} | (spec or {}), "status": SYNCED, **service}, *world)
    (isvc,) = rendered(decide(seen), INFERENCE_SERVICE)
    isvc["metadata"]["uid"] = "isvc-uid"
    return replace(seen, isvc=isvc)


def deployment(ready: int, replicas: int = 1, *, updated: int | None = None, lag: bool = False) -> dict[str, Any]:
    return {
        "metadata": {"generation": 2},
        "spec": {"replicas": replicas},
        "status": {
            "observedGeneration": 1 if lag else 2,
            "replicas": replicas,
            "updatedReplicas": replicas if updated is None else updated,
            "readyReplicas": ready,
        },
    }


def with_verdict(seen: ServiceFacts, ready: str, reason: str = "", message: str = "") -> ServiceFacts:
    entries = [
        {"type": kind, "status": ready} | ({"reason": reason, "message": message} if reason else {})
        for kind in ("Ready", "PredictorReady")
    ]
    assert seen.isvc is not None
    return replace(seen, isvc={**seen.isvc, "status": {"conditions": entries}})


LAST = {"kind": "AIMService", "name": "chat", "uid": "the-last-one"}


def pod(**status: Any) -> dict[str, Any]:
    return {"metadata": {"name": "chat-abc", "namespace": "team-llm"}, "status": {"containerStatuses": [status]}}


CRASHING = pod(state={"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 40s"}}, restartCount=4)
BETWEEN = pod(state={"running": {}}, restartCount=4, ready=False, lastState={"terminated": {"exitCode": 137}})
PULLING = pod(state={"waiting": {"reason": "ErrImagePull", "message": "try 7"}}, image="reg/aim:1")
UNSCHEDULABLE = {
    "metadata": {"name": "chat-abc", "namespace": "team-llm"},
    "status": {"conditions": [{"type": "PodScheduled", "status": "False", "message": "0/3 nodes are available"}]},
}
LEAVING = CRASHING | {"metadata": CRASHING["metadata"] | {"deletionTimestamp": "2026-01-01T00:00:00Z"}}

STOPPED = {"conditions": [{"type": "Stopped", "status": "True"}]}
TRUE = ("True", "InferenceServiceReady", "Running")
CASES: dict[str, tuple[ServiceFacts, tuple[str, str, str]]] = {
    "nothing is there yet, this pass makes it": (observe({"spec": {}}), ("False", "Starting", "Starting")),
    "KServe has said nothing": (running(), ("False", "Starting", "Starting")),
    "a replica serves": (with_verdict(replace(running(), deployment=deployment(1)), "True"), TRUE),
    "KServe's Deployment has begun, which is not news": (
        with_verdict(replace(running(), deployment=deployment(0)), "Unknown", "NewReplicaSetCreated", "created"),
        ("False", "Starting", "Starting"),
    ),
    "KServe calls it ready before any pod is": (
        with_verdict(replace(running(), deployment=deployment(0)), "True"),
        ("False", "Starting", "Starting"),
    ),
    "KServe calls it ready, there is no Deployment yet": (
        with_verdict(running(), "True"),
        ("False", "Starting", "Starting"),
    ),
    "the only replica is being replaced": (
        with_verdict(replace(running(), deployment=deployment(0, updated=0)), "True"),
        ("False", "RollingOut", "Starting"),
    ),
    "one of two is being replaced": (
        with_verdict(replace(running({"replicas": 2}), deployment=deployment(1, 2, updated=1)), "True"),
        TRUE,
    ),
    "scaling up, one serves": (
        with_verdict(
            replace(running({"replicas": 2}), deployment=deployment(1, 2)), "False", "MinimumReplicasUnavailable", "m"
        ),
        ("False", "MinimumReplicasUnavailable", "Degraded"),
    ),
    "a failed roll with the old one serving": (
        with_verdict(replace(running(), deployment=deployment(1, 2)), "False", "ProgressDeadlineExceeded", "m"),
        ("False", "ProgressDeadlineExceeded", "Degraded"),
    ),
    "past the deadline before the first readiness": (
        with_verdict(replace(running(), deployment=deployment(0)), "False", "ProgressDeadlineExceeded", "m"),
        ("False", "ProgressDeadlineExceeded", "Starting"),
    ),
    "no replicas are wanted": (
        with_verdict(replace(running({"replicas": 0}), deployment=deployment(0, 0)), "True"),
        ("True", "ScaledToZero", "Running"),
    ),
    "a user stopped it": (
        replace(running(), isvc={**view.mapping(running().isvc), "status": STOPPED}),
        ("False", "Stopped", "Pending"),
    ),
    "its pods are on their way out": (
        replace(running(), deployment=deployment(1), isvc={**view.mapping(running().isvc), "status": STOPPED}),
        ("False", "Starting", "Degraded"),
    ),
    "a crash loop at the first start": (
        with_verdict(replace(running(), deployment=deployment(0), predictor_pods=(CRASHING,)), "False"),
        ("False", "CrashLoopBackOff", "Failed"),
    ),
    "between two crashes": (
        with_verdict(replace(running(), deployment=deployment(0), predictor_pods=(BETWEEN,)), "True"),
        ("False", "CrashLoopBackOff", "Failed"),
    ),
    "a pod that is leaving crashes": (
        with_verdict(replace(running(), deployment=deployment(1), predictor_pods=(LEAVING,)), "True"),
        TRUE,
    ),
    "the new version crashes beside the old": (
        with_verdict(
            replace(running({"replicas": 2}), deployment=deployment(1, 2, updated=1), predictor_pods=(CRASHING,)),
            "True",
        ),
        ("True", "InferenceServiceReady", "Degraded"),
    ),
    "the image cannot be pulled": (
        with_verdict(replace(running(), deployment=deployment(0), predictor_pods=(PULLING,)), "False"),
        ("False", "ImagePullBackOff", "Failed"),
    ),
    "no node has room": (
        with_verdict(replace(running(), deployment=deployment(0), predictor_pods=(UNSCHEDULABLE,)), "False"),
        ("False", "Unschedulable", "Starting"),
    ),
    "no node of the pool exists": (
        with_verdict(replace(running(), deployment=deployment(0), pool_nodes=0), "False"),
        ("False", "NoMatchingNode", "Starting"),
    ),
    "KServe cannot make it": (
        with_verdict(replace(running(), deployment=None), "False", "ReconcileFailed", "quota"),
        ("False", "ReconcileFailed", "Failed"),
    ),
    "the API server refuses our apply": (
        replace(running(), refusal="denied the request: no"),
        ("False", "InferenceServiceRefused", "Failed"),
    ),
    "refused while the old one serves": (
        replace(running(), deployment=deployment(1), refusal="denied the request: no"),
        ("False", "InferenceServiceRefused", "Degraded"),
    ),
    "the name is taken": (
        replace(observe({"spec": {}}), isvc={"metadata": {"name": "chat-00643bf8", "uid": "other"}}),
        ("False", "NameTaken", "Failed"),
    ),
    "the last service of this name had it": (
        replace(
            observe({"spec": {}}),
            isvc={"metadata": {"name": "chat-00643bf8", "ownerReferences": [LAST]}},
        ),
        ("False", "Terminating", "Starting"),
    ),
    "another service has it": (
        replace(
            observe({"spec": {}}),
            isvc={"metadata": {"name": "chat-00643bf8", "ownerReferences": [LAST | {"name": "other"}]}},
        ),
        ("False", "NameTaken", "Failed"),
    ),
    "it is being deleted": (
        replace(
            running(),
            isvc={
                **view.mapping(running().isvc),
                "metadata": {**view.mapping(running().isvc, "metadata"), "deletionTimestamp": "now"},
            },
        ),
        ("False", "Terminating", "Starting"),
    ),
}


@pytest.mark.parametrize(("seen", "expected"), CASES.values(), ids=CASES)
def test_readiness(seen: ServiceFacts, expected: tuple[str, str, str]) -> None:
    status = decide(seen).status
    MODELS[AIM_SERVICE].model_validate({**seen.service, "status": status})
    conditions = {entry["type"]: entry for entry in status["conditions"]}
    served = conditions["InferenceServiceReady"]
    assert (served["status"], served["reason"], status["status"]) == expected
    assert conditions["Ready"]["status"] == served["status"]


WAITS = Gate(Reason.ADAPTERS_STAGING, "static mode waits for all adapters")
READY: dict[str, tuple[Gate, tuple[str, str], str]] = {
    "it is made and starts": (Gate(), ("False", "Starting"), "Starting"),
    "nothing is made yet": (WAITS, ("False", "Gated"), "AdaptersStaging"),
    "it starts, although a new one would not be made now": (WAITS, ("False", "Starting"), "Starting"),
    "it serves, although a new one would not be made now": (WAITS, ("True", "InferenceServiceReady"), "Serving"),
}


@pytest.mark.parametrize(("gate", "served", "reason"), READY.values(), ids=READY)
def test_ready_says_what_the_server_that_is_there_waits_for(gate: Gate, served: Any, reason: str) -> None:
    valid = Condition("ConfigValid", "True", Reason.CONFIG_VALID)
    assert ready_condition(valid, gate, Condition("InferenceServiceReady", *served)).reason == reason


def test_words_that_stay_the_same_from_one_crash_to_the_next() -> None:
    later = CRASHING | {
        "status": {
            "containerStatuses": [
                {"state": {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 5m"}}, "restartCount": 9}
            ]
        }
    }
    words = [
        decide(with_verdict(replace(running(), deployment=deployment(0), predictor_pods=(one,)), "False")).status
        for one in (CRASHING, later)
    ]
    assert words[0] == words[1]


def test_an_empty_pool_names_the_labels() -> None:
    seen = with_verdict(replace(running(), deployment=deployment(0), pool_nodes=0), "False")
    message = next(c["message"] for c in decide(seen).status["conditions"] if c["type"] == "Ready")
    assert "feature.node.kubernetes.io/aim-accelerator.MI300X" in message
    assert "amd.com/gpu.device-id" in message
    part = profile(acceleratorModel="MI300X", acceleratorPartitioningMode="cpx")
    seen = with_verdict(replace(running({}, part), deployment=deployment(0), pool_nodes=0), "False")
    assert "amd.com/compute-memory-partition=cpx" in served_message(decide(seen))


def served_message(decision: Decision) -> str:
    return next(str(c["message"]) for c in decision.status["conditions"] if c["type"] == "InferenceServiceReady")


def test_a_first_start_and_scaling_replace_no_pod() -> None:
    """A Deployment whose controller has not yet looked at it says nothing of a new version."""
    for replicas in (0, 1):
        starting = replace(running(), deployment=deployment(0, replicas, lag=True))
        assert "new version" not in served_message(decide(with_verdict(starting, "False")))


def test_a_roll_is_reported_until_the_new_pod_is_ready() -> None:
    """With one replica the old pod goes first: while the new one starts, the status still says why nothing serves."""
    why = "a new version is being rolled out: env AIM_ADAPTER_MAX_RANK 32 → 64"
    told = {"type": "InferenceServiceReady", "status": "True", "reason": "InferenceServiceReady", "message": why}
    seen = with_verdict(running(status=SYNCED | {"conditions": [told]}), "True")
    started = decide(replace(seen, deployment=deployment(0)))
    assert served_message(started).startswith(why)
    assert started.status["status"] == "Starting"
    assert served_message(decide(replace(seen, deployment=deployment(1)))) == ""


NO_PROFILE = 'no AIMProfile or AIMClusterProfile "gone" exists yet'


def test_a_server_that_cannot_follow_its_spec_says_so() -> None:
    seen = with_verdict(replace(running(), deployment=deployment(1)), "True")
    lost = observe(
        {"spec": {"adapterMode": "dynamic", "profile": {"name": "gone"}, "replicas": 2}, "status": SYNCED},
    )
    decision = decide(replace(lost, isvc=seen.isvc, deployment=seen.deployment))
    assert rendered(decision, INFERENCE_SERVICE) == []
    assert served_message(decision) == (f"the server stays as it is for now: ReferenceNotFound: {NO_PROFILE}")


def test_a_roll_says_why_as_long_as_it_lasts() -> None:
    seen = with_verdict(replace(running(), deployment=deployment(1)), "True")
    raised = observe(
        {
            "spec": {"adapterMode": "dynamic", "adapterRuntime": {"maxRank": 64}},
            "status": SYNCED | {"adapterMaxRank": 32},
        }
    )
    decision = decide(replace(raised, isvc=seen.isvc, deployment=seen.deployment))
    (event,) = decision.events
    assert event.reason == "AdapterMaxRankChanged"
    assert "32 → 64" in event.message
    assert "spec.adapterRuntime.maxRank" in event.message
    (isvc,) = rendered(decision, INFERENCE_SERVICE)
    stored = observe({"spec": raised.service["spec"], "status": dict(decision.status)})
    rolling = replace(
        stored, isvc=isvc | {"status": view.dig(seen.isvc, "status")}, deployment=deployment(1, 2, updated=1)
    )
    again = decide(rolling)
    assert again.events == ()
    message = next(c["message"] for c in again.status["conditions"] if c["type"] == "InferenceServiceReady")
    assert "AIM_ADAPTER_MAX_RANK 32 → 64" in message
    done = decide(replace(rolling, deployment=deployment(1)))
    assert next(c["message"] for c in done.status["conditions"] if c["type"] == "InferenceServiceReady") == ""


def test_a_profile_that_loses_its_feature_rolls_nothing() -> None:
    seen = with_verdict(replace(running(), deployment=deployment(1)), "True")
    config_maps = tuple(obj for kind, obj in decide(seen).apply if kind.kind == "ConfigMap")
    lost = observe({"spec": {"adapterMode": "dynamic"}, "status": SYNCED}, profile(features=[]))
    decision = decide(replace(lost, isvc=seen.isvc, deployment=seen.deployment, config_maps=config_maps))
    assert rendered(decision, INFERENCE_SERVICE) == []
    conditions = {entry["type"]: (entry["status"], entry["reason"]) for entry in decision.status["conditions"]}
    assert conditions["ConfigValid"] == ("False", "AdapterConfigInvalid")
    assert conditions["Adapters"] == ("False", "AdapterConfigInvalid")
    assert conditions["Ready"] == ("True", "Serving")
    assert decision.status["status"] == "Degraded"


def test_another_configuration_error_leaves_the_server_as_it_is() -> None:
    seen = with_verdict(replace(running(), deployment=deployment(1)), "True")
    bad = observe({"spec": {"adapterMode": "dynamic", "env": [{"name": "PYTHONPATH", "value": "x"}]}, "status": SYNCED})
    decision = decide(replace(bad, isvc=seen.isvc, deployment=seen.deployment))
    assert rendered(decision, INFERENCE_SERVICE) == []
    assert decision.status["status"] == "Degraded"


def test_a_paused_or_leaving_service_is_left_alone() -> None:
    for metadata in (
        {"annotations": {"aim.eai.amd.com/reconciliation-paused": "true"}},
        {"deletionTimestamp": "2026-01-01T00:00:00Z"},
    ):
        decision = decide(observe({"metadata": metadata, "spec": {}, "status": {"status": "Running"}}))
        assert (decision.apply, decision.create, decision.delete, decision.events) == ((), (), (), ())
        assert decision.status == {"status": "Running"}


def test_an_adapter_that_pods_keep_is_deleting_for_a_bounded_time() -> None:
    entry = {"name": "old", "adapterPath": "old", "state": "Deleting", "stageKey": "k", "digest": "d", "attempts": 1}
    status = SYNCED | {"adapters": [entry | {"lastObserved": "2026-01-01T00:00:00Z"}]}
    seen = replace(
        running(),
        facts=observe({"spec": {"adapterMode": "dynamic"}, "status": status}).facts,
        pods=(ServerPod("p", START, frozenset({"old"})),),
        disk_claim=CLAIM,
    )
    first = decide(seen)
    assert first.status["adapters"][0]["state"] == "Deleting"
    key = first.create[0][1]["metadata"]["annotations"]["aim.eai.amd.com/sync-key"]
    status = status | {"adapterSubtreeSyncKey": key}
    synced = replace(seen, facts=observe({"spec": {"adapterMode": "dynamic"}, "status": status}).facts)
    assert decide(synced).status["adapters"][0]["state"] == "Deleting"
    kept = decide(synced).status["adapters"]
    assert kept[0]["leftDiskAt"] == "2026-01-01T00:00:00Z"
    told = SYNCED | {"adapterSubtreeSyncKey": key, "adapters": kept}
    moved = replace(seen, facts=observe({"spec": {"adapterMode": "dynamic"}, "status": told}).facts)
    for asked, stays in ((None, True), (START + timedelta(seconds=0.9), True), (START + timedelta(seconds=1), False)):
        later = ServerPod("p", START, frozenset({"base"}), asked=asked)
        assert ("adapters" in decide(replace(moved, pods=(later,))).status) == stays, asked
    overdue = decide(replace(moved, now=START + timedelta(minutes=10)))
    assert "adapters" not in overdue.status
    assert [event.reason for event in overdue.events] == ["AdapterUnloadOverdue"]


def test_an_adapter_is_not_deleting_without_end_where_its_disk_is_gone() -> None:
    entry = {"name": "old", "adapterPath": "old", "state": "Deleting", "stageKey": "k", "digest": "d", "attempts": 1}
    spec = {"adapterMode": "static", "adapters": []}
    status = SYNCED | {"adapters": [entry | {"lastObserved": "2026-01-01T00:00:00Z"}]}
    seen = replace(running(), facts=observe({"spec": spec, "status": status}).facts, disk_claim=None)
    for listed, stays in ((frozenset({"base", "old"}), True), (frozenset({"base"}), False)):
        decision = decide(replace(seen, pods=(ServerPod("p", START, listed),)))
        assert ("adapters" in decision.status) == stays


def test_nothing_is_announced_while_the_configuration_holds_it_up() -> None:
    adapters = [{"name": "medical", "kind": "AIMArtifact"}]
    held = observe({"spec": {"adapterMode": "dynamic", "adapters": adapters, "minReplicas": 4, "maxReplicas": 2}})
    decision = decide(held)
    assert decision.create == ()
    message = next(c["message"] for c in decision.status["conditions"] if c["type"] == "Adapters")
    assert message.endswith("is created once the configuration is valid (see ConfigValid)")
    spec = {"adapterMode": "dynamic", "adapters": adapters, "adapterRuntime": {"maxRank": 7}}
    (entry,) = decide(observe({"spec": spec, "status": SYNCED})).status["adapters"]
    assert entry["lastError"].startswith("RankCeilingUnknown: no valid rank ceiling is known")


@pytest.mark.parametrize(("known", "current"), [(None, 1), (deployment(1, 2), 2)], ids=["by its pods", "as it says"])
def test_pods_whose_deployment_is_not_there_are_counted(known: dict[str, Any] | None, current: int) -> None:
    """KServe re-creates a Deployment: `loadedReplicas` stays a number out of `currentReplicas`."""
    seen = replace(running(), deployment=known, pods=(ServerPod("chat-abc", START, frozenset()),))
    runtime = decide(seen).status["runtime"]
    assert (runtime["currentReplicas"], runtime["replicas"]) == (current, f"1/{current}")
