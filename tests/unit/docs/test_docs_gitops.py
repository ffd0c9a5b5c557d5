"""The health rules of the GitOps page, evaluated over every phase that objects can have."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.docs.health import manifest, run_cel, run_lua

SERVICE = {
    "Pending": "progressing",
    "Starting": "progressing",
    "Running": "healthy",
    "Degraded": "degraded",
    "Failed": "degraded",
}
ARTIFACT = {
    "Pending": "progressing",
    "Progressing": "progressing",
    "Ready": "healthy",
    "Degraded": "degraded",
    "Failed": "degraded",
    "NotAvailable": "degraded",
}
CASES = [("AIMService", phase, wanted) for phase, wanted in SERVICE.items()] + [
    ("AIMArtifact", phase, wanted) for phase, wanted in ARTIFACT.items()
]


def _object(phase: str | None, observed: int | None = 2) -> dict[str, Any]:
    ready = {"type": "Ready", "status": "False", "message": "what is wrong"}
    status = {"status": phase, "observedGeneration": observed, "conditions": [ready]}
    return {"metadata": {"generation": 2}, "status": status} if phase else {"metadata": {"generation": 2}}


@pytest.mark.parametrize(("kind", "phase", "wanted"), CASES)
def test_argo_cd(kind: str, phase: str, wanted: str) -> None:
    script = manifest("argocd-cm.yaml")["data"][f"resource.customizations.health.aim.eai.amd.com_{kind}"]
    assert run_lua(script, _object(phase))["status"].lower() == wanted
    assert run_lua(script, _object(phase, observed=1))["status"] == "Progressing"
    assert run_lua(script, _object(None))["status"] == "Progressing"
    if kind == "AIMService":
        assert run_lua(script, _object(phase))["message"] == "what is wrong"


@pytest.mark.parametrize(("kind", "phase", "wanted"), CASES)
def test_flux(kind: str, phase: str, wanted: str) -> None:
    (rule,) = [rule for rule in manifest("flux.yaml")["spec"]["healthCheckExprs"] if rule["kind"] == kind]
    names = {"inProgress": "progressing", "failed": "degraded", "current": "healthy"}
    seen = [names[key] for key in ("inProgress", "failed", "current") if run_cel(rule[key], _object(phase))]
    assert seen == [wanted]
    assert run_cel(rule["inProgress"], _object(phase, observed=1))
    assert run_cel(rule["inProgress"], _object(None))


def test_every_phase_is_one_that_the_status_knows() -> None:
    from api.models.artifact import AIMArtifactStatus
    from api.models.service import AIMServiceStatus

    for model, phases in ((AIMServiceStatus, SERVICE), (AIMArtifactStatus, ARTIFACT)):
        words = str(model.model_json_schema(by_alias=True)["properties"]["status"])
        assert all(phase in words for phase in phases)
