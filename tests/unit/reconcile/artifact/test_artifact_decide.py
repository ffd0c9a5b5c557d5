"""Base models and adapters: what they need, their status, when their disk is swept."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.errors import Cause, FieldError
from api.jobs import JobResult, Progress
from api.kinds import AIM_ARTIFACT
from api.models import MODELS
from api.names import fetch_key
from api.reasons import Reason
from reconcile.artifact.decide import decide
from reconcile.artifact.facts import ArtifactFacts
from reconcile.artifact.manifests import render_reaper_job
from reconcile.artifact.sweep import world_hash
from reconcile.decision import Decision
from reconcile.jobs import JobState
from reconcile.objects import merge_patch
from reconcile.settings import ReconcileSettings
from rules.examples import manifest
from rules.runtime_config import MergedRuntimeConfig
from tests.unit.reconcile.golden import check_golden
from tests.unit.reconcile.model.life import START

CONFIG = MergedRuntimeConfig("default", None, None)
URI = "hf://Qwen/Qwen3-8B"


def model(status: dict[str, Any] | None = None, metadata: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    meta = {"name": "base", "uid": "base-uid", "generation": 3} | (metadata or {})
    made = manifest("AIMArtifact", {"metadata": meta, "spec": {"type": "model", "sourceUri": URI} | spec})
    return made | ({"status": status} if status else {})


def adapter(**spec: Any) -> dict[str, Any]:
    plain = {"type": "adapter", "modelId": "a/b", "sourceUri": "hf://a/b"}
    return manifest("AIMArtifact", {"metadata": {"name": "lora", "uid": "lora-uid"}, "spec": plain | spec})


def observe(artifact: dict[str, Any], **rest: Any) -> ArtifactFacts:
    return ArtifactFacts(artifact, START, ReconcileSettings(), rest.pop("config", CONFIG), **rest)


def claim(name: str = "cache", *, bound: bool = True, **metadata: Any) -> dict[str, Any]:
    meta = {"name": name, "uid": f"{name}-uid", "creationTimestamp": "2026-01-01T00:00:00Z"} | metadata
    spec = {"resources": {"requests": {"storage": "6Gi"}}}
    return {"metadata": meta, "spec": spec, "status": {"phase": "Bound" if bound else "Pending"}}


KEY = fetch_key("base-uid", URI, "cache-uid")


def job(phase: Any, result: JobResult | None = None, *, key: str = KEY, attempt: int = 1, **rest: Any) -> JobState:
    return JobState("job", "job-uid", phase, key=key, attempt=attempt, result=result, finished_at=START, **rest)


def fetched(**rest: Any) -> JobResult:
    return JobResult(ok=True, reason="ModelFetched", size_bytes=5 * 2**30, **rest)


FAILED = JobResult(ok=False, reason="SourceGated", message="let us in")
DONE = {"download": {"key": KEY, "attempt": 1, "completed": True, "sizeBytes": 5, "reason": "ModelFetched"}}
WAITING = {
    "download": {
        "key": KEY,
        "attempt": 2,
        "reason": "SourceGated",
        "message": "m",
        "nextRetryTime": "2026-01-01T00:02:00Z",
    }
}
RETRY = {"annotations": {"aim.eai.amd.com/retry-staging": "1"}}
LIVE_CLAIM = {"claim": claim()}
# what is seen, (status, reason of Ready), kinds created, names of deleted Jobs
MODELS_CASES: dict[str, tuple[ArtifactFacts, tuple[str, str], list[str], int]] = {
    "the size is not known: the source is measured": (observe(model()), ("Pending", "MeasuringSource"), ["Job"], 0),
    "the size is declared: a claim": (
        observe(model(size="5Gi")),
        ("Pending", "Pending"),
        ["PersistentVolumeClaim"],
        0,
    ),
    "the declared size is more than any disk has: a claim that stays Pending": (
        observe(model(size="1e5000")),
        ("Pending", "Pending"),
        ["PersistentVolumeClaim"],
        0,
    ),
    "it was measured: a claim": (
        observe(model({"discoveredSizeBytes": 7 * 2**30})),
        ("Pending", "Pending"),
        ["PersistentVolumeClaim"],
        0,
    ),
    "the measuring Job says it": (
        observe(model(), fetches=(job("succeeded", fetched(), key=fetch_key("base-uid", URI, "")),)),
        ("Pending", "MeasuringSource"),
        [],
        1,
    ),
    "the claim is there: the download": (observe(model(size="5Gi"), **LIVE_CLAIM), ("Pending", "Pending"), ["Job"], 0),
    "a claim without a size (lost status): the download finds its marker": (
        observe(model(), **LIVE_CLAIM),
        ("Pending", "Pending"),
        ["Job"],
        0,
    ),
    "the pod waits": (observe(model(), **LIVE_CLAIM, fetches=(job("waiting"),)), ("Pending", "Pending"), [], 0),
    "the pod is held up": (
        observe(model(), **LIVE_CLAIM, fetches=(job("waiting", blocked_by="Unschedulable: no"),)),
        ("Pending", "DownloadBlocked"),
        [],
        0,
    ),
    "it downloads": (
        observe(model(), **LIVE_CLAIM, fetches=(job("running"),)),
        ("Progressing", "Downloading"),
        [],
        0,
    ),
    "it is complete": (
        observe(model(), **LIVE_CLAIM, fetches=(job("succeeded", fetched()),)),
        ("Ready", "ModelCached"),
        [],
        1,
    ),
    "it ended well without a word: once more": (
        observe(model(), **LIVE_CLAIM, fetches=(job("succeeded"),)),
        ("Pending", "Pending"),
        ["Job"],
        1,
    ),
    "it failed": (
        observe(model(), **LIVE_CLAIM, fetches=(job("failed", FAILED),)),
        ("Failed", "SourceGated"),
        [],
        1,
    ),
    "it failed without a word": (
        observe(model(), **LIVE_CLAIM, fetches=(job("failed"),)),
        ("Failed", "JobFailed"),
        [],
        1,
    ),
    "the retry is not due": (observe(model(WAITING), **LIVE_CLAIM), ("Failed", "SourceGated"), [], 0),
    "the retry is due": (
        replace(observe(model(WAITING), **LIVE_CLAIM), now=START + timedelta(minutes=2)),
        ("Failed", "SourceGated"),
        ["Job"],
        0,
    ),
    "a retry is asked for": (observe(model(WAITING, RETRY), **LIVE_CLAIM), ("Failed", "SourceGated"), ["Job"], 0),
    "that retry was answered": (
        observe(model({"download": WAITING["download"] | {"lastRetry": "1"}}, RETRY), **LIVE_CLAIM),
        ("Failed", "SourceGated"),
        [],
        0,
    ),
    "a recorded Job that is still there goes": (
        observe(model(DONE), **LIVE_CLAIM, fetches=(job("succeeded", fetched()),)),
        ("Ready", "ModelCached"),
        [],
        1,
    ),
    "another claim means another download": (
        observe(model(DONE), claim=claim(uid="new-uid")),
        ("Pending", "Pending"),
        ["Job"],
        0,
    ),
    "the claim is being deleted": (
        observe(model(DONE), claim=claim(deletionTimestamp="2026-01-01T00:00:00Z")),
        ("Pending", "ClaimTerminating"),
        [],
        0,
    ),
    "a disk is wanted": (
        observe(model(DONE), **LIVE_CLAIM, disk_wanted=True),
        ("Ready", "ModelCached"),
        ["PersistentVolumeClaim"],
        0,
    ),
    "the disk is there": (
        observe(model(DONE), **LIVE_CLAIM, disk_wanted=True, disk_claim=claim("disk")),
        ("Ready", "ModelCached"),
        [],
        0,
    ),
    "its RuntimeConfig does not exist": (
        observe(model(runtimeConfigName="fast"), config=MergedRuntimeConfig("fast", None, None)),
        ("Failed", "ConfigInvalid"),
        [],
        0,
    ),
    "its RuntimeConfig cannot be read": (
        observe(model(size="5Gi"), config=MergedRuntimeConfig("default", None, None, readable=False)),
        ("Pending", "RuntimeConfigUnreadable"),
        [],
        0,
    ),
}


@pytest.mark.parametrize(("seen", "ready", "created", "deleted"), MODELS_CASES.values(), ids=MODELS_CASES)
def test_model(seen: ArtifactFacts, ready: tuple[str, str], created: list[str], deleted: int) -> None:
    decision = decide(seen)
    assert (decision.status["status"], condition(decision, "Ready")["reason"]) == ready
    assert [obj["kind"] for _, obj in decision.create] == created
    assert len(decision.delete) == deleted
    check_status(seen, decision)
    second = decide(replace(seen, artifact={**seen.artifact, "status": decision.status}, fetches=()))
    if not decision.delete and not seen.fetches:
        assert merge_patch(decision.status, second.status) == {}


def condition(decision: Decision, kind: str) -> Any:
    return next(entry for entry in decision.status["conditions"] if entry["type"] == kind)


def check_status(seen: ArtifactFacts, decision: Decision) -> None:
    MODELS[AIM_ARTIFACT].model_validate({**seen.artifact, "status": decision.status})


STORAGE: dict[str, tuple[dict[str, Any], str, tuple[str, str]]] = {
    "bound": ({"claim": claim()}, "CacheStorageReady", ("True", "ClaimBound")),
    "young": ({"claim": claim(bound=False)}, "CacheStorageReady", ("False", "ClaimPending")),
    "old and still not bound": (
        {"claim": claim(bound=False, creationTimestamp="2025-12-31T23:00:00Z")},
        "CacheStorageReady",
        ("False", "ClaimUnbound"),
    ),
    "the provisioner says no": (
        {"claim": claim(bound=False), "claim_problem": "only RWO"},
        "CacheStorageReady",
        ("False", "ClaimProvisioningFailed"),
    ),
    "a disk that no pod uses yet may wait for its first consumer": (
        {"disk_claim": claim("disk", bound=False, creationTimestamp="2025-12-31T23:00:00Z")},
        "AdapterDiskReady",
        ("False", "ClaimPending"),
    ),
    "a disk in use must be bound": (
        {"disk_claim": claim("disk", bound=False, creationTimestamp="2025-12-31T23:00:00Z"), "users": (("u", 0),)},
        "AdapterDiskReady",
        ("False", "ClaimUnbound"),
    ),
    "a disk on its way out": (
        {"disk_claim": claim("disk", deletionTimestamp="2026-01-01T00:00:00Z")},
        "AdapterDiskReady",
        ("False", "ClaimTerminating"),
    ),
}


@pytest.mark.parametrize(("seen", "kind", "expected"), STORAGE.values(), ids=STORAGE)
def test_storage(seen: dict[str, Any], kind: str, expected: tuple[str, str]) -> None:
    decision = decide(observe(model(DONE), **seen))
    found = condition(decision, kind)
    assert (found["status"], found["reason"]) == expected


NOT_MODEL = FieldError(
    "spec.parentArtifact", Reason.PARENT_NOT_MODEL, Cause.INVALID, "this AIMArtifact is an adapter itself"
)
PARENT = model({"adapterPersistentVolumeClaim": "disk"})
ADAPTERS: dict[str, tuple[ArtifactFacts, tuple[str, str], int]] = {
    "logical": (observe(adapter(compatibleWith=["o/n"])), ("Ready", "AdapterValidated"), 0),
    "its parent does not exist": (observe(adapter(parentArtifact="base")), ("Pending", "ParentArtifactNotFound"), 0),
    "its parent is an adapter": (
        observe(adapter(parentArtifact="base"), parent=adapter(), errors=(NOT_MODEL,)),
        ("Failed", "ParentArtifactNotModel"),
        0,
    ),
    "its parent has no disk": (
        observe(adapter(parentArtifact="base"), parent=model()),
        ("Pending", "ParentLacksAdapterDisk"),
        1,
    ),
    "its parent owns it": (observe(adapter(parentArtifact="base"), parent=PARENT), ("Ready", "AdapterValidated"), 1),
    "its parent is going": (
        observe(adapter(parentArtifact="base"), parent=model(metadata={"deletionTimestamp": "now"})),
        ("Pending", "ParentArtifactNotFound"),
        0,
    ),
    "its RuntimeConfig does not exist": (
        observe(
            adapter(compatibleWith=["o/n"], runtimeConfigName="fast"), config=MergedRuntimeConfig("fast", None, None)
        ),
        ("Failed", "ConfigInvalid"),
        0,
    ),
}


@pytest.mark.parametrize(("seen", "expected", "applied"), ADAPTERS.values(), ids=ADAPTERS)
def test_adapter(seen: ArtifactFacts, expected: tuple[str, str], applied: int) -> None:
    decision = decide(seen)
    assert (decision.status["status"], condition(decision, "Ready")["reason"]) == expected
    assert len(decision.apply) == applied
    check_status(seen, decision)


def test_a_parent_is_made_owner_once() -> None:
    seen = observe(adapter(parentArtifact="base"), parent=PARENT)
    ((_, partial),) = decide(seen).apply
    (reference,) = partial["metadata"]["ownerReferences"]
    assert (reference["uid"], reference["controller"]) == ("base-uid", False)
    owned = {**seen.artifact, "metadata": seen.artifact["metadata"] | {"ownerReferences": [reference]}}
    assert decide(replace(seen, artifact=owned)).apply == ()


def test_an_adapter_goes_with_its_parent_though_that_has_a_successor() -> None:
    """The garbage collector and the successor of a deleted base are equally fast."""
    seen = observe(adapter(parentArtifact="base"), parent=PARENT)
    ((_, partial),) = decide(seen).apply
    (reference,) = partial["metadata"]["ownerReferences"]
    dead = reference | {"uid": "the-last-base"}
    orphan = {**seen.artifact, "metadata": seen.artifact["metadata"] | {"ownerReferences": [dead]}}
    decision = decide(replace(seen, artifact=orphan))
    assert decision.apply == ()
    assert (decision.status["status"], condition(decision, "Ready")["reason"]) == ("Pending", "ParentArtifactNotFound")


def test_the_frozen_path_is_kept() -> None:
    seen = observe(adapter(compatibleWith=["o/n"]) | {"status": {"adapterPath": "from-a-restore"}})
    assert decide(seen).status["adapterPath"] == "from-a-restore"


def test_progress_of_a_running_download() -> None:
    seen = observe(model(), **LIVE_CLAIM, fetches=(job("running"),))
    told = replace(seen, progress=Progress(downloaded_bytes=1, total_bytes=4, percentage=25))
    progress = {"downloadedBytes": 1, "totalBytes": 4, "percentage": 25, "displayPercentage": "25 %"}
    assert decide(told).status["progress"] == progress
    kept = replace(seen, artifact=model({"progress": progress}))
    assert decide(kept).status["progress"] == progress


def test_a_dedicated_caches_artifact_is_marked() -> None:
    owner = {"ownerReferences": [{"kind": "AIMProfileCache", "uid": "c", "name": "c"}]}
    assert decide(observe(model(metadata=owner))).status["mode"] == "Dedicated"
    assert decide(observe(model())).status["mode"] == "Shared"


# -- sweeps ---------------------------------------------------------------------------------------------------------

USERS = (("a", 1), ("b", 2))
DISK = {"claim": claim(), "disk_claim": claim("disk"), "disk_wanted": True}
SWEPT = DONE | {"lastReapTime": "2026-01-01T00:00:00Z", "lastReapWorld": world_hash(USERS)}
ASK = {"annotations": {"aim.eai.amd.com/reap": "now"}}
PREVIEW = {"annotations": {"aim.eai.amd.com/reap": "dry-run-1"}}
QUARTER, DAY = timedelta(minutes=15), timedelta(days=1)


def later(seen: ArtifactFacts, after: timedelta) -> ArtifactFacts:
    return replace(seen, now=START + after)


SWEEPS: dict[str, tuple[ArtifactFacts, str, timedelta | None]] = {
    "no disk": (observe(model(DONE), claim=claim(), users=USERS), "", None),
    "no service there, young": (observe(model(DONE), **DISK), "", QUARTER),
    "its only service came and went before the first sweep": (
        later(observe(model(DONE), **DISK), QUARTER),
        "sweep",
        QUARTER,
    ),
    "no service there, swept": (
        observe(model(SWEPT | {"lastReapWorld": world_hash(())}), **DISK),
        "",
        DAY,
    ),
    "not bound, so never used": (
        later(observe(model(DONE), **DISK | {"disk_claim": claim("disk", bound=False)}), timedelta(days=9)),
        "",
        None,
    ),
    "young": (observe(model(DONE), **DISK, users=USERS), "", QUARTER),
    "the first period is over": (later(observe(model(DONE), **DISK, users=USERS), QUARTER), "sweep", QUARTER),
    "nothing changed for a quarter": (
        later(observe(model(SWEPT), **DISK, users=USERS), QUARTER),
        "",
        DAY - QUARTER,
    ),
    "nothing changed for a day": (later(observe(model(SWEPT), **DISK, users=USERS), DAY), "sweep", QUARTER),
    "a service went": (later(observe(model(SWEPT), **DISK, users=USERS[:1]), QUARTER), "sweep", QUARTER),
    "a writer tried again": (
        later(observe(model(SWEPT), **DISK, users=(("a", 1), ("b", 3))), QUARTER),
        "sweep",
        QUARTER,
    ),
    "the last service went, not due yet": (observe(model(SWEPT), **DISK), "", QUARTER),
    "asked for": (observe(model(SWEPT, ASK), **DISK, users=USERS), "sweep", QUARTER),
    "a preview asked for": (observe(model(SWEPT, PREVIEW), **DISK, users=USERS), "dry-run", QUARTER),
    "asked for and answered": (
        observe(model(SWEPT | {"lastReapRequest": "now"}, ASK), **DISK, users=USERS),
        "",
        DAY,
    ),
    "one is running": (
        later(observe(model(DONE), **DISK, users=USERS, reap_jobs=(job("running", key="sweep:x:-"),)), DAY),
        "",
        None,
    ),
    "the disk is going": (
        later(observe(model(DONE), **DISK | {"disk_claim": claim("disk", deletionTimestamp="now")}, users=USERS), DAY),
        "",
        None,
    ),
}


@pytest.mark.parametrize(("seen", "sweep", "recheck"), SWEEPS.values(), ids=SWEEPS)
def test_sweep(seen: ArtifactFacts, sweep: str, recheck: timedelta | None) -> None:
    decision = decide(seen)
    assert (decision.sweep, decision.recheck_after) == (sweep, recheck)
    if sweep:
        assert decision.sweep_world == world_hash(seen.users)
    check_status(seen, decision)


REAPED = JobResult(ok=True, reason="DiskReaped", message="1 removed", removed=["gone"], reclaimed_bytes=9)


def ended(key: str, result: JobResult | None = REAPED, phase: Any = "succeeded", **metadata: Any) -> Decision:
    seen = observe(model(SWEPT, metadata or None), **DISK, users=(), reap_jobs=(job(phase, result, key=key),))
    decision = decide(later(seen, timedelta(minutes=1)))
    check_status(seen, decision)
    assert len(decision.delete) == 1
    return decision


def test_a_sweep_is_recorded_with_the_state_that_it_swept() -> None:
    decision = ended("sweep:old-world:-")
    assert decision.status["lastReapWorld"] == "old-world"  # not today's: a service went meanwhile
    assert decision.status["lastReapTime"] == "2026-01-01T00:00:00Z"
    assert decision.status["lastReap"] == {
        "reason": "DiskReaped",
        "message": "1 removed",
        "reclaimedBytes": 9,
        "removed": ["gone"],
    }
    assert [event.reason for event in decision.events] == ["DiskReaped"]
    assert decision.recheck_after == QUARTER - timedelta(minutes=1)


def test_a_preview_counts_as_no_sweep() -> None:
    decision = ended("dry-run:old-world:-")
    assert decision.status["lastReapWorld"] == SWEPT["lastReapWorld"]
    assert decision.status["lastReapTime"] == SWEPT["lastReapTime"]
    assert "nothing was removed" in decision.status["lastReap"]["message"]
    assert [event.reason for event in decision.events] == ["SweepDryRun"]


def test_a_failed_sweep_is_tried_at_the_next_tick() -> None:
    failed = JobResult(ok=False, reason="DiskIoError", message="m")
    decision = ended("sweep:old-world:-", failed, "failed")
    assert decision.status["lastReap"]["reason"] == "DiskIoError"
    assert [event.type for event in decision.events] == ["Warning"]
    seen = observe(model(dict(decision.status)), **DISK, users=())
    assert decide(later(seen, QUARTER)).sweep == "sweep"


def test_a_sweep_that_went_unread_is_recorded_all_the_same() -> None:
    decision = ended("sweep:w:-", None)
    assert (decision.status["lastReap"]["reason"], decision.status["lastReapWorld"]) == ("DiskReaped", "w")


def test_a_request_is_answered_by_its_job_and_only_then() -> None:
    seen = observe(model(SWEPT, ASK), **DISK, users=USERS)
    asked = decide(seen)
    assert "lastReapRequest" not in asked.status
    made = render_reaper_job(
        seen.artifact, "disk", ["b", "a"], START, dry_run=False, settings=seen.settings, swept=asked.sweep_world
    )
    key = made["metadata"]["annotations"]["aim.eai.amd.com/reap-key"]
    running = decide(replace(seen, reap_jobs=(job("running", key=key),)))
    assert (running.status["lastReapRequest"], running.sweep) == ("now", "")


def test_goldens() -> None:
    config = {"storage": {"defaultStorageClassName": "shared", "adapterDiskSize": "80Gi"}}
    merged = MergedRuntimeConfig("default", {"spec": config, "metadata": {"name": "default"}}, None)
    first = decide(observe(model(size="60Gi", adapterDisk={}), config=merged, disk_wanted=True))
    for (_, obj), name in zip(first.create, ("cache", "disk"), strict=True):
        check_golden("artifact", f"claim-{name}", obj)
    fetch = decide(observe(model(size="60Gi"), config=merged, claim=claim()))
    ((_, obj),) = fetch.create
    check_golden("jobs", "fetch", obj)
    measure = decide(observe(model(), config=merged))
    ((_, obj),) = measure.create
    check_golden("jobs", "measure", obj)
    reaper = render_reaper_job(
        model(), "disk", ["b", "a"], START, dry_run=True, settings=ReconcileSettings(), swept="w"
    )
    check_golden("jobs", "reaper", reaper)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
ODD = st.fixed_dictionaries(
    {
        "metadata": st.fixed_dictionaries({"name": st.just("x"), "uid": st.just("u")}, optional={"annotations": JSON}),
        "spec": st.fixed_dictionaries(
            {},
            optional={
                "type": st.sampled_from(["model", "adapter", "x"]) | JSON,
                "size": JSON,
                "sourceUri": JSON,
                "parentArtifact": JSON,
                "env": JSON,
                "adapterDisk": JSON,
                "downloadFilter": JSON,
                "imagePullSecrets": JSON,
            },
        )
        | JSON,
        "status": st.fixed_dictionaries(
            {}, optional={"download": JSON, "conditions": JSON, "lastReapTime": JSON, "progress": JSON}
        )
        | JSON,
    }
)


@given(ODD, st.none() | st.just(claim()), st.none() | st.just(claim("disk")), st.booleans())
def test_deciding_never_raises(artifact: dict[str, Any], cache: Any, disk: Any, wanted: bool) -> None:
    jobs = (job("failed"), job("running", attempt=2))
    decide(
        observe(artifact, claim=cache, disk_claim=disk, disk_wanted=wanted, fetches=jobs, reap_jobs=jobs, users=USERS)
    )
