"""No Job runs an image that the administrator does not allow, wherever it is named."""

from __future__ import annotations

from dataclasses import replace

import pytest

from api.kinds import JOB
from reconcile.artifact.decide import decide
from reconcile.decision import Decision
from reconcile.settings import ReconcileSettings
from rules.runtime_config import MergedRuntimeConfig
from tests.unit.reconcile.artifact.test_artifact_decide import KEY, claim, condition, job, model, observe

EVIL, GOOD = "evil.example/tool:1", "registry.example/tools/a:1"
OF_THE_CONFIG = {"spec": {"artifact": {"modelDownloadImage": EVIL}}}


def jobs(decision: Decision) -> list[str]:
    """Return the images of the Jobs that a decision creates."""
    made = [obj for kind, obj in decision.create if kind == JOB]
    return [job["spec"]["template"]["spec"]["containers"][0]["image"] for job in made]


@pytest.mark.parametrize("named_by", ["artifact", "config"])
@pytest.mark.parametrize("allowed", [(), ("registry.example/tools",), ("evil.example",)])
def test_no_job_runs_an_image_that_is_not_allowed(named_by: str, allowed: tuple[str, ...]) -> None:
    artifact = model(size="5Gi", modelDownloadImage=EVIL if named_by == "artifact" else None)
    config = MergedRuntimeConfig("default", OF_THE_CONFIG if named_by == "config" else None, None)
    seen = replace(
        observe(artifact, claim=claim(), config=config),
        settings=ReconcileSettings(allowed_download_images=allowed),
    )
    decision = decide(seen)
    if allowed == ("registry.example/tools",):
        assert jobs(decision) == []
        ready = condition(decision, "Ready")
        assert (ready["status"], ready["reason"]) == ("False", "DownloadImageNotAllowed")
        assert EVIL in ready["message"]
        assert "registry.example/tools" in ready["message"]
    else:
        assert jobs(decision) == [EVIL]


def test_a_running_job_ends_when_its_image_is_not_allowed_any_more() -> None:
    settings = ReconcileSettings(allowed_download_images=("registry.example/tools",))
    failed_before = {"download": {"key": KEY, "attempt": 1, "reason": "SourceGated", "message": "m"}}
    artifact = model(failed_before, size="5Gi", modelDownloadImage=EVIL)
    decision = decide(
        replace(observe(artifact, claim=claim(), fetches=(job("running", attempt=2),)), settings=settings)
    )
    assert [deletion.name for deletion in decision.delete] == ["job"]
    assert condition(decision, "Ready")["reason"] == "DownloadImageNotAllowed"


def test_an_allowed_image_and_the_built_in_one_run() -> None:
    settings = ReconcileSettings(allowed_download_images=("registry.example/tools",))
    for image in (GOOD, None):
        artifact = model(size="5Gi", modelDownloadImage=image)
        seen = replace(observe(artifact, claim=claim()), settings=settings)
        assert jobs(decide(seen)) == [image or settings.image]
