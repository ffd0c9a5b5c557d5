"""The downloads of a namespace that run at once are bounded, and their owners take turns."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, cast

import pytest

from api.kinds import JOB, POD
from api.names import LABEL_ROLE, ROLE_FETCH, ROLE_STAGING, ROLE_SUBTREE_SYNC
from reconcile.decision import Decision
from reconcile.objects import timestamp
from reconcile.turns import STARTS_WITHIN, Owner, Turns
from reconcile.world import make_informers

START = datetime(2026, 1, 1, tzinfo=UTC)


class Scene:
    """Turns over caches, and a clock that a test moves."""

    def __init__(self, limit: int = 3) -> None:
        self.now = START
        self.woken: list[str] = []
        self.informers = make_informers(cast("Any", None))
        self._version = 0
        self.turns = Turns(
            limit,
            self.informers[JOB],
            self.informers[POD],
            lambda controller, key: self.woken.append(key[1]),
            lambda: self.now,
        ).listen()

    def job(self, name: str, *, role: str = ROLE_STAGING, namespace: str = "ns", ended: str = "") -> dict[str, Any]:
        """Put a Job into the cache; `ended`: the condition of its end."""
        self._version += 1
        job: dict[str, Any] = {
            "metadata": {
                "name": name,
                "namespace": namespace,
                "uid": name,
                "labels": {LABEL_ROLE: role},
                "creationTimestamp": timestamp(self.now),
                "resourceVersion": str(self._version),
            },
            "status": {"conditions": [{"type": ended, "status": "True"}] if ended else []},
        }
        self.informers[JOB].store(job)
        return job

    def start(self, service: str, jobs: int, *, queued: bool = False) -> int:
        """A service's pass that starts as many of these Jobs as it may; returns how many."""
        owner: Owner = ("service", ("ns", service))
        started = min(jobs, self.turns.free(owner))
        names = [f"{service}-{number}-{self._version}" for number in range(started)]
        labels = {LABEL_ROLE: ROLE_STAGING}
        made = [{"metadata": {"name": name, "namespace": "ns", "labels": labels}} for name in names]
        decision = Decision(create=tuple((JOB, job) for job in made), queued=queued or started < jobs)
        self.turns.begin(owner, decision)
        for name in names:
            self.job(name)
        self.turns.end(owner)
        return started


def test_no_more_jobs_than_places() -> None:
    scene = Scene()
    assert scene.start("a", 5) == 3
    assert scene.start("b", 5) == 0
    assert scene.turns.free(("service", ("other", "c"))) == 3, "each namespace has its own"


@pytest.mark.parametrize("role", [ROLE_STAGING, ROLE_FETCH, ROLE_SUBTREE_SYNC])
def test_what_counts(role: str) -> None:
    scene = Scene()
    scene.job("one", role=role)
    scene.job("two", role=role, ended="Complete")
    scene.job("three", role=role, ended="Failed")
    assert scene.turns.free(("service", ("ns", "a"))) == (3 if role == ROLE_SUBTREE_SYNC else 2)


def test_a_service_with_many_adapters_does_not_hold_up_the_next_one() -> None:
    scene = Scene()
    assert scene.start("large", 64) == 3
    assert scene.start("small", 1) == 0
    order = []
    for number in range(6):
        running = scene.informers[JOB].by_index("place", "ns")
        job = min(running, key=lambda job: str(job["metadata"]["uid"]))
        scene.woken.clear()
        scene.job(job["metadata"]["name"], ended="Complete")
        assert len(scene.woken) == 1, "one place is free"
        service = scene.woken[0]
        assert scene.start(service, 64 if service == "large" else 1, queued=service == "large" or number > 3) == 1
        order.append(service)
    assert "small" in order[:2]
    assert order.count("large") >= 3


def test_what_was_decided_counts_before_it_is_in_the_cache() -> None:
    scene = Scene()
    first: Owner = ("service", ("ns", "a"))
    job = {"metadata": {"namespace": "ns", "labels": {LABEL_ROLE: ROLE_STAGING}}}
    scene.turns.begin(first, Decision(create=((JOB, job), (JOB, job))))
    assert scene.turns.free(("service", ("ns", "b"))) == 1
    scene.turns.end(first)
    assert scene.turns.free(("service", ("ns", "b"))) == 3


def test_jobs_that_do_not_start_give_their_places_back() -> None:
    scene = Scene()
    assert scene.start("stuck", 3) == 3
    assert scene.start("other", 2) == 0
    owner: Owner = ("service", ("ns", "other"))
    assert scene.turns.begin(owner, Decision(queued=True)) == STARTS_WITHIN, "nothing else would wake it"
    scene.now += STARTS_WITHIN + timedelta(seconds=1)
    assert scene.start("other", 2) == 2


def test_an_owner_that_is_gone_leaves_the_line() -> None:
    scene = Scene(limit=1)
    assert scene.start("a", 1) == 1
    for service in ("b", "c"):
        assert scene.start(service, 1) == 0
    (job,) = scene.informers[JOB].cache.by_index("place", "ns")
    scene.job(job["metadata"]["name"], ended="Complete")
    assert scene.woken == ["b"]
    scene.turns.leave(("service", ("ns", "b")))  # it was deleted
    assert scene.woken == ["b", "c"]
    assert scene.start("c", 1) == 1
    scene.turns.leave(("service", ("ns", "c")))
    assert not scene.turns._lines
