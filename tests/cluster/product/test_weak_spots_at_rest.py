"""Weak spots at rest and in messages; the others are in test_durable_truth."""

from __future__ import annotations

import os
from collections import Counter

from api.view import JsonObject
from tests.cluster.product.both import on_both_pipelines
from tests.cluster.product.team import Team

LONG = os.environ.get("AIM_TEST_LONG") == "1"
RESTLESS = 200 if LONG else 16  # services that are not ready: with 200, the reference operator never stops writing


@on_both_pipelines
def test_weak_spot_13_the_order_of_a_static_list_has_no_meaning(team: Team) -> None:
    """Another order is accepted, and changes neither pods nor staged adapters."""
    team.apply(team.adapter("a", team.put("a")), team.adapter("b", team.put("b")))
    team.apply(team.service("svc", ["a", "b"], mode="static"))
    team.until_loaded("svc", "a", "b")
    team.until_running("svc")
    before = team.running("svc")
    jobs = {job["metadata"]["name"] for job in team.cluster.items("jobs", team.namespace)}

    assert "configured" in team.apply(team.service("svc", ["b", "a"], mode="static"))
    generation = team.get("aimservice", "svc")["metadata"]["generation"]
    team.until("the order to be handled", lambda: team.status("svc")["observedGeneration"] == generation)
    team.until_at_rest(quiet=3)
    assert team.running("svc") == before
    assert {job["metadata"]["name"] for job in team.cluster.items("jobs", team.namespace)} <= jobs
    assert {entry["name"]: entry["state"] for entry in team.status("svc")["adapters"]} == {"a": "Loaded", "b": "Loaded"}


@on_both_pipelines
def test_weak_spot_14_passes_report_the_same_failure_once(team: Team) -> None:
    """Each failed attempt is counted on one event; a pass without an attempt writes no event."""
    team.apply(team.adapter("broken"), team.service("svc", ["broken", "missing"]))
    first = team.until_failed("svc", "broken", "SourceRepositoryNotFound")
    team.until("another try", lambda: team.entry("svc", "broken").get("attempts", 0) > first["attempts"])
    for number in range(8):  # each of these causes a pass
        team.cluster.kubectl("annotate", "aimsvc", "svc", f"poke={number}", "--overwrite", "-n", team.namespace)
    told: Counter[str] = Counter()
    for event in team.cluster.items("events", team.namespace):
        if event["type"] == "Warning" and event["involvedObject"]["name"] == "svc":
            told[f"{event['reason']}: {event['message']}"] += event.get("count") or 1
    tries = team.entry("svc", "broken")["attempts"]
    (failure,) = [times for words, times in told.items() if "adapter broken: " in words]
    assert failure <= tries, (told, tries)
    assert [words for words, times in told.items() if times > 1 and "adapter broken: " not in words] == []


@on_both_pipelines
def test_weak_spot_16_hundreds_that_are_not_ready_rest(team: Team) -> None:
    """Unready conditions keep their times, so that no pass wakes the next."""
    half = RESTLESS // 2
    unknown: JsonObject = {"profile" if team.pipeline == "profile" else "model": {"name": "not-yet"}}
    waiting = [team.service(f"no-base-{index}", **unknown) for index in range(half)]
    waiting += [team.service(f"static-{index}", ["not-yet"], mode="static") for index in range(half)]
    listed = {"apiVersion": "v1", "kind": "List", "items": waiting}
    team.cluster.kubectl("create", "-f", "-", input=listed, timeout=180)

    def told() -> bool:
        found = team.cluster.items("aimservices", team.namespace)
        return len(found) == RESTLESS and all((one.get("status") or {}).get("conditions") for one in found)

    team.until("events for all", told)
    before = team.until_at_rest(quiet=8)  # longer than refresh_interval and probe_period
    assert sum(1 for name in before if name.startswith("AIMService/")) == RESTLESS
    ready = {
        condition["status"]
        for one in team.cluster.items("aimservices", team.namespace)
        for condition in one["status"]["conditions"]
        if condition["type"] == "Ready"
    }
    assert ready == {"False"}
