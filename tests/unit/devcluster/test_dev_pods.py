"""How waiting for pods reads."""

from typing import Any

import pytest

from devcluster.pods import describe_pods, is_crashing, is_rolled_out


def pod(name: str, ready: bool = False, **status: Any) -> dict[str, Any]:
    conditions = [{"type": "Ready", "status": str(ready)}, *status.pop("conditions", [])]
    return {"metadata": {"name": name}, "status": {"conditions": conditions, **status}}


def container(**fields: Any) -> dict[str, Any]:
    return {"containerStatuses": [fields]}


ENDED = {"terminated": {"exitCode": 3, "reason": "Error", "message": "too bad\n"}}
GOING = {"metadata": {"name": "old", "deletionTimestamp": "x"}, "status": {}}
CASES = {
    "nothing": ([GOING], "no pods yet"),
    "all ready": ([pod("a", ready=True), GOING], "1 of 1 pods ready"),
    "image": (
        [
            pod("b", **container(state={"waiting": {"reason": "ErrImagePull", "message": "one\nnot known"}})),
            pod("a", True),
        ],
        "1 of 2 pods ready; b: ErrImagePull: not known",
    ),
    "crashed": ([pod("a", **container(state={"terminated": {"reason": "Error"}}))], "0 of 1 pods ready; a: Error"),
    "starting": (
        [pod("a", **container(state={"running": {}}))],
        "0 of 1 pods ready; a: running, its readiness probe fails so far",
    ),
    "restarting": (
        [pod("a", **container(state={"running": {}}, restartCount=2, lastState=ENDED))],
        "0 of 1 pods ready; a: restarted 2 times; it last ended with exit code 3 (Error): too bad",
    ),
    "unschedulable": (
        [pod("a", conditions=[{"type": "PodScheduled", "status": "False", "message": "0/1 nodes"}])],
        "0 of 1 pods ready; a: not scheduled: 0/1 nodes",
    ),
    "silent": ([pod("a", phase="Pending")], "0 of 1 pods ready; a: Pending"),
}


@pytest.mark.parametrize(("pods", "text"), CASES.values(), ids=CASES)
def test_pods_in_a_line(pods: list[dict[str, Any]], text: str) -> None:
    assert describe_pods(pods) == text


@pytest.mark.parametrize(
    ("generation", "status", "done"),
    [
        (1, {}, False),
        (1, {"observedGeneration": 1, "replicas": 2, "updatedReplicas": 2}, False),
        (1, {"observedGeneration": 1, "replicas": 2, "updatedReplicas": 2, "availableReplicas": 1}, True),
        (2, {"observedGeneration": 1, "replicas": 2, "updatedReplicas": 2, "availableReplicas": 2}, False),
        (2, {"observedGeneration": 2, "replicas": 3, "updatedReplicas": 1, "availableReplicas": 2}, False),
    ],
    ids=["new", "none available", "one available", "not seen yet", "old ones left"],
)
def test_rolled_out(generation: int, status: dict[str, Any], done: bool) -> None:
    assert is_rolled_out({"metadata": {"generation": generation}, "status": status}) is done


def test_crashing_is_when_every_pod_restarts_again_and_again() -> None:
    often, once = (pod("a", **container(state={}, restartCount=count)) for count in (4, 1))
    assert is_crashing([often, often])
    assert not is_crashing([often, once])
    assert not is_crashing([])
