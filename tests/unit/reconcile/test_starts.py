"""Why Jobs do not start: what is asked of the API server, how often, and what the status says of the answers."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, cast
from urllib.parse import unquote

import orjson
import pytest

from kube.client import Client
from kube.errors import Forbidden
from reconcile.jobs import (
    QUEUE_LABEL,
    JobState,
    keeps_from_starting,
    last_warning,
    naming_reference,
    read_job,
    same_trouble,
    why_waiting,
)
from reconcile.service.decide import decide
from reconcile.starts import Starts
from tests.unit.reconcile.model.life import START
from tests.unit.reconcile.service.scene import KEY, SYNCED, observe

WAITING = JobState("stage-1", "job-uid", "waiting", created_at=START)
MOUNT = 'FailedMount: MountVolume.SetUp failed for volume "s3-credentials" : secret "nope" not found'


def warning(reason: str, message: str, at: str = "2026-03-01T00:00:00Z", type_: str = "Warning") -> dict[str, Any]:
    return {"type": type_, "reason": reason, "message": message, "lastTimestamp": at}


class Server:
    """Answers lists of events."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.events: list[dict[str, Any]] = []
        self.forbidden = False
        self.now = START

    async def get_raw(self, path: str) -> bytes:
        self.asked.append(unquote(path))
        if self.forbidden:
            raise Forbidden(403, "events is forbidden")
        return orjson.dumps({"items": self.events})

    def starts(self) -> Starts:
        return Starts(cast("Client", self), lambda: self.now)


async def test_a_job_that_may_just_be_starting_is_not_asked_about() -> None:
    server = Server()
    starts = server.starts()
    server.now = START + timedelta(seconds=4)
    assert await starts.look("team", [WAITING]) == timedelta(seconds=6)
    assert not server.asked
    assert starts.why(WAITING) == ""


async def test_a_job_that_waits_is_asked_about_ever_less_often() -> None:
    server = Server()
    starts = server.starts()
    server.events = [warning("FailedCreate", "exceeded quota: q")]
    for second in range(0, 3600, 5):
        server.now = START + timedelta(seconds=second)
        await starts.look("team", [WAITING])
    assert starts.why(WAITING) == "FailedCreate: exceeded quota: q"
    assert 30 <= len(server.asked) <= 45
    assert "involvedObject.uid=job-uid,type=Warning" in server.asked[0]


async def test_the_pod_is_asked_about_once_there_is_one_and_nothing_once_it_runs() -> None:
    server = Server()
    starts = server.starts()
    server.now = START + timedelta(seconds=11)
    await starts.look("team", [replace(WAITING, pod_uid="pod-uid")])
    assert "involvedObject.uid=pod-uid" in server.asked[0]
    assert await starts.look("team", [replace(WAITING, phase="running")]) is None
    assert await starts.look("team", [replace(WAITING, blocked_by="ImagePullBackOff: x")]) is None
    assert await starts.look("team", [replace(WAITING, terminating=True)]) is None
    assert len(server.asked) == 1


async def test_a_reason_stays_when_its_event_has_expired_or_cannot_be_read() -> None:
    server = Server()
    starts = server.starts()
    server.now, server.events = START + timedelta(seconds=10), [warning("FailedMount", "no Secret")]
    await starts.look("team", [WAITING])
    server.now, server.events = START + timedelta(hours=2), []
    await starts.look("team", [WAITING])
    server.now, server.forbidden = START + timedelta(hours=4), True
    await starts.look("team", [WAITING])
    assert len(server.asked) == 3
    assert starts.why(WAITING) == "FailedMount: no Secret"


async def test_a_suspended_job_is_known_without_a_question() -> None:
    server = Server()
    starts = server.starts()
    condition = {"type": "Suspended", "status": "True"}
    metadata = {"name": "j", "uid": "j", "creationTimestamp": "2026-03-01T00:00:00Z"}
    job = {"metadata": metadata | {"labels": {QUEUE_LABEL: "gpu"}}, "status": {"conditions": [condition]}}
    state = read_job(job, [])
    server.now = cast("datetime", state.created_at) + timedelta(seconds=9)
    assert starts.why(state) == "", "queues suspend each Job for a moment"
    server.now += timedelta(seconds=2)
    await starts.look("team", [state])
    assert starts.why(state).startswith('JobSuspended: the queue "gpu"')
    assert "another program" in read_job({**job, "metadata": metadata}, []).suspended
    assert not server.asked


def test_the_newest_warning_counts() -> None:
    events = [
        warning("FailedMount", "old", "2026-03-01T00:00:00Z"),
        warning("FailedAttachVolume", "new", "2026-03-01T00:05:00Z"),
        warning("Pulled", "newest", "2026-03-01T00:06:00Z", type_="Normal"),
        {"type": "Warning"},
    ]
    assert last_warning(events) == "FailedAttachVolume: new"
    assert last_warning([]) == ""
    assert why_waiting(WAITING, START + timedelta(seconds=10), "X: y") == "X: y"


@pytest.mark.parametrize(
    ("said", "named"),
    [
        (MOUNT, True),
        ("FailedMount: Unable to attach or mount volumes: unmounted volumes=[s3-ca adapter-disk]", True),
        ('FailedMount: MountVolume.SetUp failed for volume "hub-ca" : configmap "ca" not found', True),
        ('FailedMount: MountVolume.SetUp failed for volume "adapter-disk" : rpc error', False),
    ],
)
def test_the_field_that_refers_to_a_volume_is_named(said: str, named: bool) -> None:
    block = "hub" if "hub-ca" in said else "s3"
    origins = {block: 'AIMRuntimeConfig "team"'}
    assert ('AIMRuntimeConfig "team"' in naming_reference(said, lambda wanted: origins.get(wanted, ""))) is named
    assert naming_reference(said, lambda _: "") == said


def test_only_wording_of_the_kubelet() -> None:
    assert same_trouble("ErrImagePull: not found", "ImagePullBackOff: back-off")
    assert not same_trouble(MOUNT, "ImagePullBackOff: back-off")
    assert keeps_from_starting("FailedCreatePodSandBox")
    assert not keeps_from_starting("SourceForbidden")
    assert not keeps_from_starting("")


# -- in the status --------------------------------------------------------------------------------------------------


def after(entry: dict[str, Any], *jobs: JobState) -> tuple[dict[str, Any], list[tuple[str, str]]]:
    """Return the adapter's entry after a pass, and the reasons of events with whom they are about."""
    spec = {"adapters": [{"name": "medical", "kind": "AIMArtifact"}], "adapterMode": "dynamic"}
    status = SYNCED | {"adapters": [{"name": "medical", "adapterPath": "medical", "stageKey": KEY} | entry]}
    decision = decide(replace(observe({"spec": spec, "status": status}), stage_jobs=jobs))
    told = [
        (str(event.reason), str((event.about or {}).get("kind", "AIMService")))
        for event in decision.events
        if event.type == "Warning"
    ]
    return next(found for found in decision.status["adapters"] if found["name"] == "medical"), told


def test_a_job_that_cannot_start_is_in_the_status_and_in_one_event() -> None:
    job = replace(WAITING, key=KEY, blocked_by=MOUNT)
    entry, told = after({"state": "Pending"}, job)
    assert (entry["state"], entry["lastError"]) == ("Pending", MOUNT)
    assert told == [("FailedMount", "AIMService"), ("FailedMount", "AIMArtifact")]
    again, told = after(entry, job)
    assert again["lastError"] == MOUNT
    assert not told, "once for each reason"


def test_the_reason_stays_until_a_pod_runs() -> None:
    blocked = {"state": "Pending", "lastError": MOUNT, "attempts": 1}
    waiting, _ = after(blocked, replace(WAITING, key=KEY, attempt=2))
    assert waiting["lastError"] == MOUNT
    runs, _ = after(blocked, replace(WAITING, key=KEY, attempt=2, phase="running"))
    assert "lastError" not in runs
    assert runs["state"] == "Downloading"


def test_a_job_that_never_started_leaves_its_reason_at_its_deadline() -> None:
    job = {
        "metadata": {"name": "j", "uid": "j", "annotations": {}},
        "status": {
            "conditions": [
                {
                    "type": "Failed",
                    "status": "True",
                    "reason": "DeadlineExceeded",
                    "lastTransitionTime": "2026-03-01T00:00:00Z",
                }
            ]
        },
    }
    ended = replace(read_job(job, []), key=KEY)
    entry, _ = after({"state": "Pending", "lastError": MOUNT}, ended)
    assert (entry["state"], entry["lastError"]) == ("Pending", MOUNT)
    assert entry["nextRetryTime"]
    other, _ = after({"state": "Downloading"}, ended)
    assert other["lastError"].startswith("JobDeadlineExceeded")
