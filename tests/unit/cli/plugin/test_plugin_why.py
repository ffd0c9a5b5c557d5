"""`why`: for every way in which an adapter is not served, the link that is found, its reason, and a fix."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from api.jobs import JobResult
from api.names import ROLE_FETCH, ROLE_SUBTREE_SYNC
from api.reasons import EXPLANATIONS, Reason
from cli.plugin.output import as_text
from cli.plugin.why import as_lines, as_view, walk
from tests.unit.cli.plugin.scene import Scene, condition, job, lease, pod

Spoil = Callable[[Scene], object]


def nothing(scene: Scene) -> None:
    return


def stop(reason: str, message: str = "because") -> str:
    return JobResult(ok=False, reason=reason, message=message).to_termination_message()


def failed(error: str) -> Spoil:
    return lambda scene: scene.adapter(
        state="Failed", lastError=error, digest=None, nextRetryTime="2024-05-01T12:05:00Z"
    )


def queued(scene: Scene) -> None:
    scene.adapter(state="Pending", lastError="Queued: other downloads run", digest=None)


def artifact_says(reason: str) -> Spoil:
    def spoil(scene: Scene) -> None:
        assert scene.sql is not None
        scene.sql["status"]["conditions"] = [condition("Ready", "False", reason, "because")]
        scene.adapter(state="Pending", digest=None)

    return spoil


def pending(error: str) -> Spoil:
    return lambda scene: scene.adapter(state="Pending", lastError=error, digest=None)


def base_fails(reason: str, message: str = "because") -> Spoil:
    return lambda scene: scene.base_says("Ready", "False", reason, message)


def claim_says(kind: str, reason: str) -> Spoil:
    def spoil(scene: Scene) -> None:
        if kind == "CacheStorageReady":
            scene.base_says("Ready", "False", "Pending")
        scene.base_says(kind, "False", reason, "because")

    return spoil


def server_says(reason: str, message: str = "because") -> Spoil:
    return lambda scene: scene.say("InferenceServiceReady", "False", reason, message)


def cache_says(reason: str) -> Spoil:
    """The service is not served, and the controller says why of its cache; the rules seen from here say nothing."""

    def spoil(scene: Scene) -> None:
        scene.say("CacheReady", "False", reason, "because")
        scene.say("InferenceServiceReady", "False", "Gated", f"{reason}: because")

    return spoil


def config_says(reason: str) -> Spoil:
    def spoil(scene: Scene) -> None:
        scene.say("ConfigValid", "False", reason, "because")
        scene.say("InferenceServiceReady", "False", "Gated", f"{reason}: because")

    return spoil


def no_pods(scene: Scene) -> None:
    scene.say("InferenceServiceReady", "False", "MinimumReplicasUnavailable")
    scene.pods = []
    scene.deployment = {"status": {"conditions": [condition("ReplicaFailure", "True", "FailedCreate", "quota")]}}


def unbound(scene: Scene) -> None:
    not_yet_synced(scene)
    scene.claims["disk"]["status"] = {"phase": "Pending"}


def unreadable_profile(scene: Scene) -> None:
    scene.profile = None
    scene.unreadable = frozenset({"AIMProfile", "AIMClusterProfile"})


def gated(mode: str, message: str) -> Spoil:
    def spoil(scene: Scene) -> None:
        scene.spec["adapterMode"] = mode
        scene.say("InferenceServiceReady", "False", "Gated", message)

    return spoil


def waiting_pod(reason: str) -> Spoil:
    def spoil(scene: Scene) -> None:
        scene.say("InferenceServiceReady", "False", "Starting")
        scene.pods[0]["status"]["containerStatuses"][0]["state"] = {"waiting": {"reason": reason, "message": "no"}}

    return spoil


def unscheduled(scene: Scene) -> None:
    scene.say("InferenceServiceReady", "False", "Starting")
    scene.pods[0]["status"]["conditions"] = [condition("PodScheduled", "False", "Unschedulable", "0/3 nodes")]


def no_disk(scene: Scene, *, asked: bool = True) -> None:
    assert scene.base is not None
    del scene.base["status"]["adapterPersistentVolumeClaim"]
    scene.caches[0]["spec"]["requiresAdapterDisk"] = asked


def not_yet_synced(scene: Scene) -> None:
    del scene.status["adapterDiskPersistentVolumeClaimUid"]


def sync_job(scene: Scene, message: str | None = None, waiting: str = "") -> None:
    not_yet_synced(scene)
    scene.jobs = job(ROLE_SUBTREE_SYNC, "u-service", message, waiting)


def fetch_blocked(scene: Scene) -> None:
    scene.base_says("Ready", "False", "Pending")
    scene.jobs = job(ROLE_FETCH, "u-base", waiting="ImagePullBackOff")


def no_base(scene: Scene) -> None:
    scene.base = None
    scene.caches[0]["status"] = {}


def base_elsewhere(scene: Scene) -> None:
    scene.base = None
    scene.caches[0]["status"] = {"conditions": [condition("ArtifactsReady", "False", "CachesNotReady")]}


def no_template(scene: Scene) -> None:
    two_templates(scene)
    scene.more = scene.more[:1]
    scene.say("CacheReady", "False", "TemplateNotFound", "no template fits")
    scene.say("InferenceServiceReady", "False", "Gated", "TemplateNotFound: no template fits")
    scene.spec["adapterMode"] = "dynamic"


def two_templates(scene: Scene) -> None:
    scene.spec.pop("profile")
    scene.spec["model"] = {"name": "m"}
    shared = {"apiVersion": "aim.eai.amd.com/v1alpha1"}
    scene.more = [
        {**shared, "kind": "AIMClusterModel", "metadata": {"name": "m"}, "spec": {"image": "x:0.13"}},
        *(
            {
                **shared,
                "kind": "AIMServiceTemplate",
                "metadata": {"name": name, "namespace": "team"},
                "spec": {"modelName": "m"},
            }
            for name in ("a", "b")
        ),
    ]


CASES: dict[str, tuple[Spoil, str, str, str]] = {
    # what is spoilt → link, state, reason
    "being deleted": (
        lambda scene: scene.service["metadata"].update(deletionTimestamp="2024-05-01T11:00:00Z"),
        "service",
        "broken",
        "ServiceTerminating",
    ),
    "paused": (
        lambda scene: scene.service["metadata"].update(annotations={"aim.eai.amd.com/reconciliation-paused": "true"}),
        "service",
        "broken",
        "ReconciliationPaused",
    ),
    "no controller": (lambda scene: setattr(scene, "leases", []), "service", "broken", "ControllerSilent"),
    "a dead controller": (
        lambda scene: setattr(scene, "leases", [lease("2024-05-01T11:00:00Z")]),
        "service",
        "broken",
        "ControllerSilent",
    ),
    "the newest spec is not handled": (
        lambda scene: scene.service["metadata"].update(generation=4),
        "service",
        "waiting",
        "ControllerBehind",
    ),
    "an invalid spec": (
        lambda scene: scene.spec.update(minReplicas=3, maxReplicas=1),
        "service",
        "broken",
        "MinReplicasAboveMax",
    ),
    "a RuntimeConfig that is not there": (
        lambda scene: scene.spec.update(runtimeConfigName="fast"),
        "service",
        "broken",
        "ReferenceNotFound",
    ),
    "no profile": (lambda scene: setattr(scene, "profile", None), "profile", "broken", "ReferenceNotFound"),
    "a profile without sources": (
        lambda scene: scene.profile["spec"].update(modelSources=[]),  # type: ignore[index]
        "profile",
        "broken",
        "NoModelSources",
    ),
    "two sources": (
        lambda scene: scene.profile["spec"]["modelSources"].append({"sourceUri": "hf://a/b"}),  # type: ignore[index]
        "profile",
        "broken",
        "ModelSourcesAmbiguous",
    ),
    "two templates fit": (two_templates, "template", "broken", "TemplateAmbiguous"),
    "no feature": (
        lambda scene: scene.profile["spec"].update(features=[]),  # type: ignore[index]
        "feature",
        "broken",
        "FeatureMissing",
    ),
    "scale only, but dynamic": (
        lambda scene: scene.profile["spec"].update(features=["adapters-scale-only"]),  # type: ignore[index]
        "feature",
        "broken",
        "FeatureScaleOnly",
    ),
    "no cache": (lambda scene: setattr(scene, "caches", []), "cache", "waiting", "CreatingCaches"),
    "a cache without sources": (
        lambda scene: scene.caches[0]["status"].update(conditions=[condition("ArtifactsReady", "False", "NoCaches")]),
        "cache",
        "broken",
        "NoCaches",
    ),
    "no base yet": (no_base, "cache", "waiting", "CreatingCaches"),
    "the base downloads": (
        lambda scene: scene.base_says("Ready", "False", "Downloading"),
        "base",
        "waiting",
        "Downloading",
    ),
    "the base cannot be fetched": (
        lambda scene: scene.base_says("Ready", "False", "SourceUnauthorized", "401"),
        "base",
        "broken",
        "SourceUnauthorized",
    ),
    "the download cannot start": (fetch_blocked, "base", "broken", "ImagePullBackOff"),
    "the cache claim stays unbound": (
        claim_says("CacheStorageReady", "ClaimUnbound"),
        "base",
        "broken",
        "ClaimUnbound",
    ),
    "no disk, asked for": (no_disk, "disk", "waiting", "ParentLacksAdapterDisk"),
    "no disk, and none requested": (
        lambda scene: no_disk(scene, asked=False),
        "disk",
        "broken",
        "ParentLacksAdapterDisk",
    ),
    "a class without ReadWriteMany": (
        lambda scene: scene.base_says("AdapterDiskReady", "False", "ClaimProvisioningFailed", "RWX"),
        "disk",
        "broken",
        "ClaimProvisioningFailed",
    ),
    "the claim is gone": (lambda scene: scene.claims.pop("disk"), "disk", "broken", "DiskNotBound"),
    "the claim lost its volume": (
        lambda scene: scene.claims["disk"].update(status={"phase": "Lost"}),
        "disk",
        "broken",
        "DiskNotBound",
    ),
    "the subtree is being made": (not_yet_synced, "subtree", "waiting", "AdapterSubtreeProvisioning"),
    "another disk": (
        lambda scene: scene.claims["disk"]["metadata"].update(uid="u-new"),
        "subtree",
        "waiting",
        "AdapterSubtreeProvisioning",
    ),
    "the sync cannot start": (
        lambda scene: sync_job(scene, waiting="ErrImagePull"),
        "subtree",
        "broken",
        "StagingBlocked",
    ),
    "no template fits": (no_template, "template", "broken", "TemplateNotFound"),
    "the sync failed": (lambda scene: sync_job(scene, stop("DiskReadOnly")), "subtree", "broken", "DiskReadOnly"),
    "not declared": (lambda scene: scene.spec["adapters"].pop(0), "adapter", "broken", "AdapterNotDeclaredByService"),
    "not declared, and the cache is missing": (
        lambda scene: (scene.spec["adapters"].pop(0), setattr(scene, "caches", [])),
        "adapter",
        "broken",
        "AdapterNotDeclaredByService",
    ),
    "no artifact": (lambda scene: setattr(scene, "sql", None), "adapter", "broken", "AdapterArtifactNotFound"),
    "another base": (
        lambda scene: scene.sql["spec"].update(compatibleWith=["a/b"]),  # type: ignore[index]
        "adapter",
        "broken",
        "AdapterIncompatible",
    ),
    "a rank above the ceiling": (
        lambda scene: scene.sql["spec"].update(rank=64),  # type: ignore[index]
        "adapter",
        "broken",
        "AdapterRankAboveCeiling",
    ),
    "a model, no adapter": (
        lambda scene: scene.sql["spec"].update(type="model"),  # type: ignore[index]
        "adapter",
        "broken",
        "AdapterNotAnAdapter",
    ),
    "its parent is missing": (artifact_says("ParentArtifactNotFound"), "adapter", "broken", "ParentArtifactNotFound"),
    "its parent is an adapter": (
        artifact_says("ParentArtifactNotModel"),
        "adapter",
        "broken",
        "ParentArtifactNotModel",
    ),
    "its parent has no disk": (artifact_says("ParentLacksAdapterDisk"), "adapter", "waiting", "ParentLacksAdapterDisk"),
    "its artifact is invalid, by another's rules": (
        artifact_says("ConfigInvalid"),
        "adapter",
        "broken",
        "ConfigInvalid",
    ),
    "its RuntimeConfig is not there": (
        pending("RuntimeConfigNotFound: x"),
        "adapter",
        "broken",
        "RuntimeConfigNotFound",
    ),
    "its RuntimeConfig cannot be read": (
        pending("RuntimeConfigUnreadable: x"),
        "adapter",
        "broken",
        "RuntimeConfigUnreadable",
    ),
    "the ceiling is not known": (pending("RankCeilingUnknown: x"), "adapter", "broken", "RankCeilingUnknown"),
    "a base that only the controller sees": (
        failed("AdapterIncompatible: it fits a/b"),
        "adapter",
        "broken",
        "AdapterIncompatible",
    ),
    "not started": (
        lambda scene: scene.adapter(state="Pending", digest=None, attempts=None),
        "job",
        "waiting",
        "StagingWaiting",
    ),
    "the Job cannot start": (
        lambda scene: scene.adapter(state="Pending", lastError="ErrImagePull: no such image"),
        "job",
        "broken",
        "StagingBlocked",
    ),
    "a volume of the Job is missing": (
        lambda scene: scene.adapter(state="Pending", lastError='FailedMount: secret "s3" not found'),
        "job",
        "broken",
        "FailedMount",
    ),
    "a quota refuses the Job's pod": (
        lambda scene: scene.adapter(state="Pending", lastError="FailedCreate: exceeded quota: team"),
        "job",
        "broken",
        "FailedCreate",
    ),
    "the Job is suspended": (
        lambda scene: scene.adapter(state="Pending", lastError='JobSuspended: the queue "gpu" suspends the Job'),
        "job",
        "broken",
        "JobSuspended",
    ),
    "it downloads": (
        lambda scene: scene.adapter(state="Downloading", progress={"percentage": 40, "totalBytes": 100}),
        "job",
        "waiting",
        "StagingRuns",
    ),
    "it waits for the old one": (
        lambda scene: scene.adapter(state="Downloading", lastError="AdapterHeldForUnload: listed"),
        "job",
        "waiting",
        "AdapterHeldForUnload",
    ),
    "a private source": (failed("SourceUnauthorized: 401"), "job", "broken", "SourceUnauthorized"),
    "a Job that waits for its turn": (queued, "job", "waiting", "Queued"),
    "a spec that no parser reads": (config_says("Unreadable"), "service", "broken", "Unreadable"),
    "more than the caches hold": (config_says("CacheBudgetExceeded"), "service", "broken", "CacheBudgetExceeded"),
    "a full disk": (failed("DiskFull: no space"), "job", "broken", "DiskFull"),
    "a Job killed": (failed("JobFailed: exit code 137"), "job", "broken", "JobFailed"),
    "no config": (failed("AdapterConfigMissing: no config"), "files", "broken", "AdapterConfigMissing"),
    "a real rank above": (failed("AdapterRankExceedsCeiling: 64 > 32"), "files", "broken", "AdapterRankExceedsCeiling"),
    "the image crashes": (waiting_pod("CrashLoopBackOff"), "server", "broken", "CrashLoopBackOff"),
    "the image is missing": (waiting_pod("ErrImagePull"), "server", "broken", "ImagePullBackOff"),
    "no room": (unscheduled, "server", "broken", "Unschedulable"),
    "the image's name is none": (waiting_pod("InvalidImageName"), "server", "broken", "InvalidImageName"),
    "a Secret of the container is missing": (
        waiting_pod("CreateContainerConfigError"),
        "server",
        "broken",
        "CreateContainerConfigError",
    ),
    "the container cannot be made": (waiting_pod("CreateContainerError"), "server", "broken", "CreateContainerError"),
    "the container cannot be run": (waiting_pod("RunContainerError"), "server", "broken", "RunContainerError"),
    "a word of the kubelet that we do not know": (waiting_pod("NodeLost"), "server", "broken", "PodPending"),
    "no pods can be made": (no_pods, "server", "broken", "NoPods"),
    "the image crashes, seen by the controller": (
        server_says("CrashLoopBackOff"),
        "server",
        "broken",
        "CrashLoopBackOff",
    ),
    "KServe cannot make the Deployment": (server_says("ReconcileFailed"), "server", "broken", "ReconcileFailed"),
    "KServe is not installed": (server_says("KServeNotInstalled"), "server", "broken", "KServeNotInstalled"),
    "KServe's webhook is away": (server_says("KServeUnavailable"), "server", "broken", "KServeUnavailable"),
    "KServe says FailedCreate": (server_says("FailedCreate"), "server", "broken", "FailedCreate"),
    "no progress": (server_says("ProgressDeadlineExceeded"), "server", "broken", "ProgressDeadlineExceeded"),
    "a rollout": (server_says("RollingOut"), "server", "waiting", "RollingOut"),
    "too few": (server_says("MinimumReplicasUnavailable"), "server", "waiting", "MinimumReplicasUnavailable"),
    "on its way out": (server_says("Terminating"), "server", "waiting", "Terminating"),
    "being created": (server_says("Creating"), "server", "waiting", "Creating"),
    "no replicas wanted": (
        lambda scene: scene.say("InferenceServiceReady", "True", "ScaledToZero", "0 replicas are asked for"),
        "server",
        "broken",
        "ScaledToZero",
    ),
    "stopped in KServe": (server_says("Stopped", "KServe runs no pods"), "server", "broken", "Stopped"),
    "the gate says nothing known": (server_says("Gated", "something"), "server", "waiting", "Gated"),
    "no image": (server_says("Gated", "ImageUnknown: no image"), "profile", "broken", "ImageUnknown"),
    "the RuntimeConfig cannot be read": (
        server_says("Gated", "RuntimeConfigUnreadable: no right"),
        "service",
        "broken",
        "RuntimeConfigUnreadable",
    ),
    "invalid in the controller's eyes": (
        config_says("AdapterConfigInvalid"),
        "service",
        "broken",
        "AdapterConfigInvalid",
    ),
    "the controller may not read": (cache_says("ReferenceUnreadable"), "profile", "broken", "ReferenceUnreadable"),
    "no template in the controller's eyes": (cache_says("TemplateNotFound"), "profile", "broken", "TemplateNotFound"),
    "you may not read the profile": (unreadable_profile, "profile", "waiting", "ReferenceUnreadable"),
    "the base is not in the cache": (base_elsewhere, "cache", "waiting", "CachesNotReady"),
    "the artifact of the cache goes": (
        lambda scene: scene.caches[0]["status"].update(
            conditions=[condition("ArtifactsReady", "False", "ArtifactTerminating")]
        ),
        "cache",
        "waiting",
        "ArtifactTerminating",
    ),
    "the base is measured": (base_fails("MeasuringSource"), "base", "waiting", "MeasuringSource"),
    "the base is about to start": (base_fails("Pending"), "base", "waiting", "Pending"),
    "the base is invalid, by another's rules": (base_fails("ConfigInvalid"), "base", "broken", "ConfigInvalid"),
    "the base's claim goes": (base_fails("ClaimTerminating"), "base", "broken", "ClaimTerminating"),
    "the base's download is blocked": (base_fails("DownloadBlocked"), "base", "broken", "DownloadBlocked"),
    "the base's config cannot be read": (
        base_fails("RuntimeConfigUnreadable"),
        "base",
        "broken",
        "RuntimeConfigUnreadable",
    ),
    "the base's Job died": (base_fails("JobFailed"), "base", "broken", "JobFailed"),
    "the cache claim cannot be made": (
        claim_says("CacheStorageReady", "ClaimProvisioningFailed"),
        "base",
        "broken",
        "ClaimProvisioningFailed",
    ),
    "the disk's claim is not bound yet": (unbound, "disk", "waiting", "ClaimPending"),
    "the disk's claim stays unbound": (
        claim_says("AdapterDiskReady", "ClaimUnbound"),
        "disk",
        "broken",
        "ClaimUnbound",
    ),
    "the disk's claim goes": (
        lambda scene: scene.claims["disk"]["metadata"].update(deletionTimestamp="2024-05-01T11:00:00Z"),
        "disk",
        "broken",
        "ClaimTerminating",
    ),
    "a Job past its deadline": (failed("JobDeadlineExceeded: 2 h"), "job", "broken", "JobDeadlineExceeded"),
    "removed while it was staged": (failed("AdapterNotDeclared: gone"), "job", "broken", "AdapterNotDeclared"),
    "no such node": (server_says("NoMatchingNode", "no node offers MI300X"), "server", "broken", "NoMatchingNode"),
    "the name is taken": (server_says("NameTaken", "x"), "server", "broken", "NameTaken"),
    "refused": (server_says("InferenceServiceRefused", "quota"), "server", "broken", "InferenceServiceRefused"),
    "starting": (server_says("Starting"), "server", "waiting", "Starting"),
    "static waits for a sibling": (
        gated("static", "AdaptersStaging: static mode waits for all adapters: med is Failed"),
        "server",
        "waiting",
        "AdaptersStaging",
    ),
    "not loaded yet": (
        lambda scene: scene.adapter(state="Downloaded", loadedReplicas=0),
        "server",
        "waiting",
        "LoadingSoon",
    ),
    "one replica lacks it": (
        lambda scene: scene.adapter(state="Downloaded", loadedReplicas=1),
        "server",
        "waiting",
        "SomeReplicasLack",
    ),
    "rejected by the server": (
        lambda scene: scene.adapter(state="LoadRejected", lastError="AdapterNotListed: pod x does not list it"),
        "server",
        "broken",
        "AdapterNotListed",
    ),
    "its server gives no list": (
        lambda scene: scene.adapter(state="Downloaded", lastError="ModelListUnreadable: pod x is ready, but"),
        "server",
        "broken",
        "ModelListUnreadable",
    ),
    "old content": (
        lambda scene: scene.adapter(state="Downloaded", lastError="RestartRequired: new content"),
        "server",
        "broken",
        "RestartRequired",
    ),
}


@pytest.mark.parametrize(("spoil", "link", "state", "reason"), CASES.values(), ids=CASES)
def test_first_broken_link(spoil: Spoil, link: str, state: str, reason: str) -> None:
    scene = Scene()
    spoil(scene)
    (found,) = walk(scene.snapshot(), "sql")
    assert found.broken is not None
    assert (found.broken.link, found.broken.state, found.broken.reason) == (link, state, reason)
    assert found.broken.fix, "every broken link says what to do"
    assert all(one.state == "ok" for one in found.links[:-1])


def test_a_healthy_adapter_is_walked_to_the_end() -> None:
    (found,) = walk(Scene().snapshot(), "sql")
    assert found.broken is None
    assert [one.link for one in found.links] == [
        "service", "profile", "feature", "cache", "base", "disk", "subtree", "adapter", "job", "files", "server",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "reason", [reason for reason, one in EXPLANATIONS.items() if one.group in ("source", "disk", "adapter")]
)
def test_every_failure_of_a_job_is_found_with_its_fix(reason: Reason) -> None:
    scene = Scene()
    failed(f"{reason}: what happened")(scene)
    (found,) = walk(scene.snapshot(), "sql")
    assert found.broken is not None
    assert found.broken.reason == reason
    assert EXPLANATIONS[reason].advice in found.broken.fix
    assert "retry chat sql" in found.broken.fix


def test_without_an_adapter_each_one_is_walked() -> None:
    scene = Scene()
    scene.adapter(state="Failed", lastError="SourceUnauthorized: 401")
    walks = walk(scene.snapshot())
    assert [(one.adapter, one.broken.link if one.broken else None) for one in walks] == [("sql", "job"), ("med", None)]


def test_a_service_without_adapters_ends_at_the_server() -> None:
    scene = Scene()
    scene.spec["adapters"] = []
    (found,) = walk(scene.snapshot())
    assert (found.adapter, found.links[-1].link, found.broken) == (None, "server", None)


def test_leases_that_may_not_be_read_judge_nothing() -> None:
    scene = Scene(leases=None)
    assert walk(scene.snapshot(), "sql")[0].broken is None


def test_claims_that_may_not_be_read_judge_nothing() -> None:
    scene = Scene()
    scene.claims = {}
    seen = replace(scene.snapshot(), unreadable=frozenset({"PersistentVolumeClaim"}))
    assert walk(seen, "sql")[0].broken is None


def test_the_text_for_people() -> None:
    scene = Scene()
    scene.adapter(state="Failed", lastError="SourceUnauthorized: 401 from the hub", attempts=3, digest=None,
                  nextRetryTime="2024-05-01T12:05:00Z")  # fmt: skip
    seen = scene.snapshot()
    text = as_text(as_lines(seen, walk(seen)))
    assert text.startswith("team/chat, adapter sql (dynamic)\n  ✔ service")
    assert "✖ job      staging failed: SourceUnauthorized: 401 from the hub (tried 3 times; next try in" in text
    assert "[SourceUnauthorized]" in text
    assert "✔ adapter med is served" in text


def test_the_view_for_programs() -> None:
    seen = Scene(sql=None).snapshot()
    view = as_view(seen, walk(seen))
    assert view["served"] is False
    assert [one["broken"] for one in view["walks"]] == ["adapter", None]
    assert view["walks"][0]["links"][-1]["reason"] == "AdapterArtifactNotFound"


def test_a_second_pod_that_is_stuck_is_found() -> None:
    scene = Scene()
    waiting_pod("CrashLoopBackOff")(scene)
    scene.pods.insert(0, pod("pod-9"))
    found = walk(scene.snapshot(), "sql")[0].broken
    assert found is not None
    assert "pod-0" in found.says
