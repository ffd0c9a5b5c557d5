"""The health rules of the GitOps page, evaluated over every phase that objects can have."""

from __future__ import annotations

import re
from typing import Any

import pytest
import yaml

from tests.unit.docs.pages import DOCS, blocks

PAGE = DOCS / "how-to" / "gitops.md"
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


class Table(dict[str, Any]):
    """A Lua table: what is not there is nil."""

    def __getattr__(self, name: str) -> Any:
        return self.get(name)

    def __setattr__(self, name: str, value: Any) -> None:
        self[name] = value


def _table(value: Any) -> Any:
    if isinstance(value, dict):
        return Table({key: _table(inner) for key, inner in value.items()})
    return [_table(inner) for inner in value] if isinstance(value, list) else value


def _manifest(title: str) -> Any:
    (block,) = [block for block in blocks(PAGE) if block.title == title]
    return yaml.safe_load(block.text)


def _run_lua(script: str, obj: dict[str, Any]) -> Table:
    """Run the little Lua that the page uses, as Python: assignments, if, for over ipairs, comparisons."""
    lines, depth = [], 1
    for line in script.splitlines():
        words = line.strip().replace("~=", "!=").replace("nil", "None")
        if words in {"end", "else"} or words.startswith("elseif"):
            depth -= 1
        if words == "end":
            continue
        words = re.sub(r"^elseif (.*) then$", r"elif \1:", words)
        words = re.sub(r"^if (.*) then$", r"if \1:", words)
        words = re.sub(r"^for \w+, (\w+) in ipairs\((.*)\) do$", r"for \1 in \2:", words)
        words = {"else": "else:", "hs = {}": "hs = Table()"}.get(words, words)
        lines.append(f"{'    ' * depth}{words}")
        depth += words.endswith(":")
    scope: dict[str, Any] = {"Table": Table}
    exec("def health(obj):\n" + "\n".join(lines), scope)
    result: Table = scope["health"](_table(obj))
    return result


def _run_cel(expression: str, obj: dict[str, Any]) -> bool:
    """Evaluate the little CEL that the page uses, as Python."""
    python = expression.replace("||", " or ").replace("&&", " and ")
    python = re.sub(r"!has\(([\w.]+)\)", r"(\1 is None)", python)
    python = re.sub(r"has\(([\w.]+)\)", r"(\1 is not None)", python)
    scope = _table({"status": obj.get("status") or {}, "metadata": obj["metadata"]})
    return bool(eval(python, {}, scope))


def _object(phase: str | None, observed: int | None = 2) -> dict[str, Any]:
    ready = {"type": "Ready", "status": "False", "message": "what is wrong"}
    status = {"status": phase, "observedGeneration": observed, "conditions": [ready]}
    return {"metadata": {"generation": 2}, "status": status} if phase else {"metadata": {"generation": 2}}


@pytest.mark.parametrize(("kind", "phase", "wanted"), CASES)
def test_argo_cd(kind: str, phase: str, wanted: str) -> None:
    script = _manifest("argocd-cm.yaml")["data"][f"resource.customizations.health.aim.eai.amd.com_{kind}"]
    assert _run_lua(script, _object(phase))["status"].lower() == wanted
    assert _run_lua(script, _object(phase, observed=1))["status"] == "Progressing"
    assert _run_lua(script, _object(None))["status"] == "Progressing"
    if kind == "AIMService":
        assert _run_lua(script, _object(phase))["message"] == "what is wrong"


@pytest.mark.parametrize(("kind", "phase", "wanted"), CASES)
def test_flux(kind: str, phase: str, wanted: str) -> None:
    (rule,) = [rule for rule in _manifest("flux.yaml")["spec"]["healthCheckExprs"] if rule["kind"] == kind]
    names = {"inProgress": "progressing", "failed": "degraded", "current": "healthy"}
    seen = [names[key] for key in ("inProgress", "failed", "current") if _run_cel(rule[key], _object(phase))]
    assert seen == [wanted]
    assert _run_cel(rule["inProgress"], _object(phase, observed=1))
    assert _run_cel(rule["inProgress"], _object(None))


def test_every_phase_is_one_that_the_status_knows() -> None:
    from api.models.artifact import AIMArtifactStatus
    from api.models.service import AIMServiceStatus

    for model, phases in ((AIMServiceStatus, SERVICE), (AIMArtifactStatus, ARTIFACT)):
        words = str(model.model_json_schema(by_alias=True)["properties"]["status"])
        assert all(phase in words for phase in phases)
