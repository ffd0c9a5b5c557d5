"""Whatever the objects look like no pass raises; a second one writes nothing; meaningless orders change nothing."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from api.kinds import AIM_SERVICE, INFERENCE_SERVICE, JOB
from api.models import MODELS
from reconcile.decision import Decision
from reconcile.jobs import JobState
from reconcile.objects import agrees, merge_patch
from reconcile.service.decide import decide
from reconcile.service.facts import ServiceFacts
from reconcile.service.loading import ServerPod
from reconcile.settings import ReconcileSettings
from rules.examples import surroundings
from rules.seen import see_service
from rules.validate import judge_stored
from tests.unit.reconcile.model.life import START
from tests.unit.reconcile.service.scene import BASE, CLAIM, KEY, STAGED, SYNCED, observe, rendered

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)


def odd(**known: Any) -> Any:
    """An object that has some of the known fields, each as it should be or as it should not."""
    return st.fixed_dictionaries({}, optional={key: JSON | value for key, value in known.items()})


REFS = st.lists(st.fixed_dictionaries({"name": st.sampled_from(["medical", "legal", "missing"])}) | JSON, max_size=3)
SPEC = odd(
    profile=st.just({"name": "qwen3-8b-mi300x"}),
    model=st.just({"name": "qwen3-8b"}),
    profileOverrides=odd(
        modelSources=st.just([{"sourceUri": "hf://Qwen/Qwen3-8B"}]), features=st.just(["adapters"]), engineArgs=JSON
    ),
    adapterMode=st.sampled_from(["static", "dynamic"]),
    adapters=REFS,
    adapterRuntime=odd(maxRank=st.sampled_from([8, 32, 64])),
    env=st.lists(odd(name=st.just("X"), value=st.just("$(X)")), max_size=2),
    resources=odd(requests=odd(cpu=st.just("1")), limits=odd(memory=st.just("1Gi"))),
    replicas=st.integers(0, 3),
    minReplicas=st.integers(0, 3),
    maxReplicas=st.integers(1, 3),
    imagePullSecrets=JSON,
    caching=odd(mode=st.sampled_from(["Shared", "Never"]), env=JSON),
)
ENTRY = odd(
    name=st.sampled_from(["medical", "legal", "gone"]),
    state=st.sampled_from(["Pending", "Downloaded", "Loaded", "LoadRejected", "Failed", "Deleting"]),
    stageKey=st.just(KEY),
    digest=st.just("sha256:1"),
    attempts=st.integers(0, 3),
    adapterPath=st.just("medical"),
    lastError=st.sampled_from(["RestartRequired: x", "AdapterHeldForUnload: y", "Other"]),
    lastObserved=st.just("2026-01-01T00:00:00Z"),
    nextRetryTime=st.sampled_from(["2025-01-01T00:00:00Z", "2027-01-01T00:00:00Z"]),
    rank=st.sampled_from([8, 512]),
)
STATUS = odd(
    adapters=st.lists(ENTRY, max_size=3),
    adapterSubtreeSyncKey=st.just("k"),
    adapterDiskPersistentVolumeClaimUid=st.just("claim-uid"),
    adapterMaxRank=st.sampled_from([8, 64]),
    conditions=JSON,
    cache=JSON,
)
JOBS = st.lists(
    st.builds(
        JobState,
        name=st.just("job"),
        uid=st.just("job-uid"),
        phase=st.sampled_from(["waiting", "running", "succeeded", "failed"]),
        key=st.sampled_from([KEY, "other", ""]),
        attempt=st.integers(0, 3),
        finished_at=st.none() | st.just(START),
        terminating=st.booleans(),
    ),
    max_size=3,
)
PODS = st.lists(
    st.builds(
        ServerPod,
        st.just("pod"),
        st.none() | st.just(START),
        st.none() | st.frozensets(st.sampled_from(["medical", "legal"])),
    ),
    max_size=2,
)


@given(SPEC, STATUS, JOBS, JOBS, PODS, JSON, st.none() | st.just(CLAIM), st.sampled_from(["", "refused"]))
@settings(max_examples=200, deadline=None)
def test_deciding_never_raises(
    spec: Any, status: Any, sync_jobs: Any, stage_jobs: Any, pods: Any, junk: Any, claim: Any, refusal: str
) -> None:
    service = {"metadata": {"name": "chat", "namespace": "team-llm", "uid": "service-uid"}, "spec": spec}
    service["status"] = status
    world = surroundings([BASE])
    live = {"metadata": {"uid": "i", "ownerReferences": [{"uid": "service-uid"}]}, "spec": junk, "status": junk}
    for isvc, deployment in ((None, None), (live, None), (live, {"metadata": {}, "spec": junk, "status": junk})):
        decide(
            ServiceFacts(
                see_service(service, world),
                START,
                ReconcileSettings(),
                errors=tuple(judge_stored(AIM_SERVICE, service, world).errors),
                disk_claim=claim,
                sync_jobs=tuple(sync_jobs),
                stage_jobs=tuple(stage_jobs),
                pods=tuple(pods),
                isvc=isvc,
                deployment=deployment,
                predictor_pods=({"metadata": {"name": "p"}, "status": junk},),
                config_maps=({"metadata": {"name": "c"}, "data": junk},),
                refusal=refusal,
            )
        )


GOOD_ENTRY: st.SearchStrategy[dict[str, Any]] = st.sampled_from(
    [
        STAGED | {"stageKey": KEY},
        STAGED | {"stageKey": KEY, "state": "Failed", "nextRetryTime": "2026-01-01T01:00:00Z", "attempts": 2},
        STAGED | {"stageKey": "another"},
        {"name": "gone", "adapterPath": "gone", "stageKey": "x", "digest": "d", "state": "Loaded"},
        {"name": "medical", "state": "Pending"},
    ]
)
GOOD_SPEC: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {
        "adapterMode": st.sampled_from(["static", "dynamic"]),
        "adapters": st.lists(
            st.sampled_from(["medical", "legal", "missing"]).map(lambda name: {"name": name, "kind": "AIMArtifact"}),
            unique_by=lambda entry: entry["name"],
            max_size=3,
        ),
    },
    optional={
        "replicas": st.integers(0, 3),
        "maxReplicas": st.integers(1, 3),
        "env": st.lists(
            st.sampled_from("ABC").map(lambda name: {"name": name, "value": "$(A)"}),
            unique_by=lambda entry: entry["name"],
        ),
        "adapterRuntime": st.just({"maxRank": 64}),
    },
)


@given(GOOD_SPEC, st.lists(GOOD_ENTRY, unique_by=lambda entry: entry["name"], max_size=3), JOBS, PODS)
@settings(max_examples=150, deadline=None)
def test_a_second_pass_over_what_was_stored_writes_nothing(spec: Any, entries: Any, jobs: Any, pods: Any) -> None:
    seen = observe({"spec": spec, "status": SYNCED | {"adapters": entries}})
    seen = replace(seen, stage_jobs=tuple(jobs), pods=tuple(pods))
    first = decide(seen)
    MODELS[AIM_SERVICE].model_validate({**seen.service, "status": first.status})
    settled, decision = seen, first
    for _ in range(4):  # what the first pass stored may wake another one
        stored = observe({"spec": spec, "status": copy.deepcopy(dict(decision.status))})
        settled = replace(settled, facts=stored.facts, errors=stored.errors, isvc=_applied(settled, decision))
        settled = replace(settled, stage_jobs=_left(settled, decision))
        before, decision = decision, decide(settled)
        if merge_patch(before.status, decision.status) == {} and not _writes(settled, decision):
            break
    assert merge_patch(before.status, decision.status) == {}
    assert _writes(settled, decision) == []
    assert decision.events == ()


def _applied(seen: ServiceFacts, decision: Decision) -> Any:
    for isvc in rendered(decision, INFERENCE_SERVICE):
        return isvc | {"metadata": isvc["metadata"] | {"uid": "isvc-uid"}}
    return seen.isvc


def _left(seen: ServiceFacts, decision: Decision) -> tuple[JobState, ...]:
    """The Jobs after a pass: deleted ones are gone, new ones wait."""
    gone = {deletion.uid for deletion in decision.delete}
    kept = tuple(job for job in seen.stage_jobs if job.uid not in gone and not job.terminating)
    made = tuple(
        JobState(
            job["metadata"]["name"],
            job["metadata"]["name"],
            "waiting",
            key=job["metadata"]["annotations"]["aim.eai.amd.com/stage-key"],
            attempt=int(job["metadata"]["annotations"]["aim.eai.amd.com/attempt"]),
        )
        for job in rendered(decision, JOB)
        if "aim.eai.amd.com/stage-key" in job["metadata"]["annotations"]
    )
    return (*kept, *made)


def _writes(seen: ServiceFacts, decision: Decision) -> list[str]:
    changed = [
        obj["metadata"]["name"]
        for kind, obj in decision.apply
        if kind == INFERENCE_SERVICE and not agrees(kind, seen.isvc, obj)
    ]
    made = [obj["metadata"]["name"] for _, obj in decision.create if "stage-key" in str(obj["metadata"]["annotations"])]
    return [*changed, *made, *(deletion.name for deletion in decision.delete)]


@given(GOOD_SPEC, st.randoms())
@settings(max_examples=60, deadline=None)
def test_orders_that_mean_nothing_change_nothing(spec: Any, random: Any) -> None:
    shuffled = copy.deepcopy(spec)
    for key in ("adapters", "env"):
        random.shuffle(shuffled.get(key, []))
    first, second = (decide(observe({"spec": one, "status": dict(SYNCED)})) for one in (spec, shuffled))
    assert rendered(first, INFERENCE_SERVICE) == rendered(second, INFERENCE_SERVICE)
    assert _keys(first) == _keys(second)


def _keys(decision: Decision) -> set[str]:
    return {job["metadata"]["name"] for job in rendered(decision, JOB)}
