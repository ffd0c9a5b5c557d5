"""Metrics of adapters and Jobs: each outcome counts once, each state is right after any change."""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client import REGISTRY

from api.jobs import JobResult
from api.kinds import AIM_SERVICE, JOB, PERSISTENT_VOLUME_CLAIM, POD, Kind
from api.models.service import AdapterStatus
from api.names import ANNOTATION_STAGE_KEY, LABEL_ROLE, ROLE_FETCH, ROLE_STAGING
from kube.client import Client
from kube.errors import Unreachable
from kube.informer import Informer
from reconcile.decision import Decision, Delete
from reconcile.jobs import CONTAINER
from reconcile.meters import ADAPTER_STATES, OTHER, AdapterMeter, JobMeter
from reconcile.shell import Shell

BEGAN = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)
PREFIX = "aim_adapters_"


def value(name: str, **labels: str) -> float:
    return REGISTRY.get_sample_value(PREFIX + name, labels) or 0.0


class Scene:
    """Two informers that are filled by hand, a meter over them, and its clock."""

    def __init__(self) -> None:
        client = cast("Client", None)
        owner = {"owner": lambda obj: [f"a/{obj['metadata']['ownerUid']}"] if "ownerUid" in obj["metadata"] else []}
        self.informers: dict[Kind, Informer] = {JOB: Informer(client, JOB), POD: Informer(client, POD, indexes=owner)}
        self.now = BEGAN
        self.meter = JobMeter(self.informers, lambda: self.now)
        self.versions = iter(range(1, 1000))

    def add(self, name: str, result: JobResult | None, *, role: str = ROLE_STAGING, **job: Any) -> Delete:
        """A Job that ended so; None: it still runs. Returns its deletion."""
        metadata = {
            "namespace": "a",
            "name": name,
            "uid": f"{name}-uid",
            "resourceVersion": str(next(self.versions)),
            "creationTimestamp": f"{self.now:%Y-%m-%dT%H:%M:%SZ}",
            "labels": {LABEL_ROLE: role},
            "annotations": {ANNOTATION_STAGE_KEY: job.pop("key", "key")},
        }
        self.informers[JOB].store({"metadata": metadata, **job})
        state: dict[str, Any] = {"running": {}}
        if result is not None:
            state = {"terminated": {"exitCode": 0, "message": result.to_termination_message()}}
        own = {**metadata, "name": f"{name}-pod", "uid": f"{name}-pod", "ownerUid": f"{name}-uid"}
        self.informers[POD].store(
            {"metadata": own, "status": {"containerStatuses": [{"name": CONTAINER, "state": state}]}}
        )
        return Delete(JOB, "a", name, f"{name}-uid")

    def later(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)


@pytest.fixture
def scene() -> Scene:
    return Scene()


def staged(**more: Any) -> JobResult:
    return JobResult(ok=True, reason="AdapterStaged", **more)


def failed(reason: str = "SourceTimeout") -> JobResult:
    return JobResult(ok=False, reason=reason)


# -- Jobs -----------------------------------------------------------------------------------------------------------


def test_an_outcome_counts_once_however_often_its_job_is_deleted(scene: Scene) -> None:
    labels = {"role": ROLE_STAGING, "result": "succeeded", "reason": "AdapterStaged"}
    before, size = value("job_outcomes_total", **labels), value("staged_bytes_total")
    deletion = scene.add("one", staged(size_bytes=1000))
    for _ in range(3):
        scene.meter.deleting(deletion)
    assert value("job_outcomes_total", **labels) == before + 1
    assert value("staged_bytes_total") == size + 1000
    scene.informers[JOB].drop(("a", "one"))
    scene.meter.deleting(deletion)
    assert value("job_outcomes_total", **labels) == before + 1
    assert not scene.meter._counted, "nothing is remembered of Jobs that are gone"


def test_another_job_of_the_same_name_counts_for_itself(scene: Scene) -> None:
    labels = {"role": ROLE_STAGING, "result": "failed", "reason": "SourceTimeout"}
    before = value("job_outcomes_total", **labels)
    first = scene.add("one", failed())
    scene.meter.deleting(first)
    scene.informers[JOB].drop(("a", "one"))
    scene.meter.deleting(scene.add("one", failed()))
    scene.meter.deleting(Delete(JOB, "a", "one", "an older one"))
    assert value("job_outcomes_total", **labels) == before + 2


OUTCOMES = {
    "a documented word": (ROLE_FETCH, failed("DiskFull"), {}, ROLE_FETCH, "failed", "DiskFull"),
    "a word that is not documented": (ROLE_FETCH, failed("Evil-123"), {}, ROLE_FETCH, "failed", OTHER),
    "a role of another program": ("x", failed(), {}, OTHER, "failed", "SourceTimeout"),
    "past its deadline": (
        ROLE_FETCH,
        None,
        {"status": {"conditions": [{"type": "Failed", "status": "True", "reason": "DeadlineExceeded"}]}},
        ROLE_FETCH,
        "failed",
        "JobDeadlineExceeded",
    ),
    "ended well without a word": (
        ROLE_STAGING,
        None,
        {"status": {"conditions": [{"type": "Complete", "status": "True"}]}},
        ROLE_STAGING,
        "succeeded",
        "Complete",
    ),
}


@pytest.mark.parametrize(("role", "result", "job", "role_label", "end", "reason"), OUTCOMES.values(), ids=OUTCOMES)
def test_labels_come_from_closed_sets(
    scene: Scene, role: str, result: JobResult | None, job: dict[str, Any], role_label: str, end: str, reason: str
) -> None:
    before = value("job_outcomes_total", role=role_label, result=end, reason=reason)
    scene.meter.deleting(scene.add("one", result, role=role, **job))
    assert value("job_outcomes_total", role=role_label, result=end, reason=reason) == before + 1


def test_what_did_not_end_or_is_not_a_job_does_not_count(scene: Scene) -> None:
    running = scene.add("one", None)
    scene.meter.deleting(running)
    scene.meter.deleting(Delete(PERSISTENT_VOLUME_CLAIM, "a", "one", "one-uid"))
    scene.meter.deleting(Delete(JOB, "a", "unknown", "unknown-uid"))
    assert not scene.meter._counted
    JobMeter({}).deleting(running)  # without Jobs in sight there is nothing to count, and nothing to break


def test_the_time_to_staged_begins_with_the_first_try(scene: Scene) -> None:
    count, total = value("time_to_staged_seconds_count"), value("time_to_staged_seconds_sum")
    first = scene.add("one", failed())
    scene.later(60)
    scene.meter.deleting(first)
    assert value("time_to_staged_seconds_count") == count, "it is not staged yet"
    scene.later(30)
    held = scene.add("two", JobResult(ok=True, reason="AdapterHeldForUnload"))
    scene.meter.deleting(held)
    assert value("time_to_staged_seconds_count") == count, "what is held is not served yet"
    second = scene.add("three", staged())
    scene.later(10)
    scene.meter.deleting(second)
    assert value("time_to_staged_seconds_count") == count + 1
    assert value("time_to_staged_seconds_sum") == total + 100
    scene.later(1000)
    again = scene.add("four", JobResult(ok=True, reason="AlreadyStaged", size_bytes=7))
    scene.later(5)
    size = value("staged_bytes_total")
    scene.meter.deleting(again)
    assert value("time_to_staged_seconds_sum") == total + 105, "a later staging is a new one"
    assert value("staged_bytes_total") == size, "what was on the disk before is not counted"


def test_clocks_that_disagree_and_sizes_that_lie_break_nothing(scene: Scene) -> None:
    total = value("time_to_staged_seconds_sum")
    deletion = scene.add("one", staged(size_bytes=-5))
    scene.later(-3600)
    scene.meter.deleting(deletion)
    assert value("time_to_staged_seconds_sum") == total


def test_keys_that_are_never_staged_are_forgotten_in_the_end(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("reconcile.meters._MOST_WAITING", 3)
    for number in range(8):
        scene.meter.deleting(scene.add(f"job-{number}", failed(), key=f"key-{number}"))
    assert list(scene.meter._first) == ["key-5", "key-6", "key-7"]


def test_the_shell_counts_only_what_the_status_has_recorded(scene: Scene) -> None:
    """A status that could not be written leaves the Job, and its outcome, for the next pass."""
    labels = {"role": ROLE_STAGING, "result": "succeeded", "reason": "AdapterStaged"}
    before = value("job_outcomes_total", **labels)
    answers: list[Exception | None] = [Unreachable(0, "Cut", "no answer"), None]
    deleted: list[str] = []

    async def patch_status(*_: object) -> dict[str, Any]:
        if (error := answers.pop(0)) is not None:
            raise error
        return {"metadata": {"namespace": "a", "name": "chat", "resourceVersion": "9"}}

    async def delete(_: Kind, __: str, name: str, *, uid: str) -> None:
        deleted.append(name)

    client = cast("Client", SimpleNamespace(patch_status=patch_status, delete=delete))
    shell = Shell(client, scene.informers, SimpleNamespace(record=print), scene.meter)
    service = {"metadata": {"namespace": "a", "name": "chat", "resourceVersion": "1"}}
    decision = Decision(status={"phase": "x"}, delete=(scene.add("one", staged()),))
    with pytest.raises(Unreachable):
        asyncio.run(shell.carry_out(AIM_SERVICE, service, decision))
    assert (value("job_outcomes_total", **labels), deleted) == (before, [])
    asyncio.run(shell.carry_out(AIM_SERVICE, service, decision))
    assert (value("job_outcomes_total", **labels), deleted) == (before + 1, ["one"])


# -- adapters -------------------------------------------------------------------------------------------------------


def service(*states: str | None) -> dict[str, Any]:
    entries = [{"name": f"n{number}", "state": state} for number, state in enumerate(states)]
    return {"metadata": {"namespace": "a", "name": "chat"}, "status": {"adapters": entries}}


def gauge() -> dict[str, float]:
    return {state: value("adapters", state=state) for state in (*ADAPTER_STATES, OTHER)}


def test_every_state_of_the_schema_has_its_series_from_the_start() -> None:
    states = AdapterStatus.model_json_schema()["properties"]["state"]["anyOf"][0]["enum"]
    assert set(states) == set(ADAPTER_STATES)
    AdapterMeter()
    for state in ADAPTER_STATES:
        assert REGISTRY.get_sample_value("aim_adapters_adapters", {"state": state}) == 0


def test_a_service_comes_changes_and_goes() -> None:
    meter = AdapterMeter()
    meter.changed(None, service("Pending", "Loaded"))
    meter.changed(service("Pending", "Loaded"), service("Downloading", "Loaded"))
    assert {state: count for state, count in gauge().items() if count} == {"Downloading": 1, "Loaded": 1}
    meter.changed(service("Downloading", "Loaded"), None)
    assert not any(gauge().values())


def test_unusual_services_are_counted_too() -> None:
    meter = AdapterMeter()
    meter.changed(None, {"metadata": {}, "status": {"adapters": "none"}})
    meter.changed(None, service("Invented", None))
    assert {state: count for state, count in gauge().items() if count} == {"Pending": 1, OTHER: 1}


@settings(max_examples=40)
@given(st.lists(st.tuples(st.integers(0, 3), st.none() | st.lists(st.sampled_from([*ADAPTER_STATES, "Odd"])))))
def test_after_any_changes_the_gauge_is_what_a_count_would_say(changes: list[tuple[int, list[str] | None]]) -> None:
    meter = AdapterMeter()
    cache: dict[int, dict[str, Any] | None] = {}
    for name, states in changes:
        new = service(*states) if states is not None else None
        meter.changed(cache.get(name), new)
        cache[name] = new
    counted = Counter(
        entry["state"] if entry["state"] in ADAPTER_STATES else OTHER
        for known in cache.values()
        if known is not None
        for entry in known["status"]["adapters"]
    )
    assert gauge() == {state: counted[state] for state in gauge()}
