"""`check` and `render`: how a manifest is applied, what rolls, what manifests lead to."""

from __future__ import annotations

import json
import os
from copy import deepcopy
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from api.kinds import INFERENCE_SERVICE
from cli.plugin.access import warning_text
from cli.plugin.check import (
    LAST_APPLIED,
    Effect,
    Judged,
    Report,
    as_lines,
    as_view,
    effect,
    observe,
    plan_apply,
    predictor_changes,
    three_way,
)
from cli.plugin.output import as_text
from cli.plugin.render import rehearse
from cli.plugin.snapshot import Snapshot
from cli.program import cli
from reconcile.service.decide import decide
from reconcile.settings import ReconcileSettings
from tests.unit.cli.plugin.scene import NOW, Scene, service

GOLDEN = Path(__file__).parent / "golden"
SETTINGS = ReconcileSettings()


# -- what the server says -------------------------------------------------------------------------------------------

HEADERS = {
    '299 - "spec.adapters: nine adapters"': "spec.adapters: nine adapters",
    '299 - "a \\"quoted\\" word and a \\\\"': 'a "quoted" word and a \\',
    '299 kube-apiserver "old" "Mon, 30 Nov 2026 00:00:00 GMT"': "old",
    "nonsense": "",
    '299 - "cut off': "",
}


@pytest.mark.parametrize(("header", "text"), HEADERS.items())
def test_warning_headers_are_read(header: str, text: str) -> None:
    assert warning_text(header) == text


# -- how it is applied ----------------------------------------------------------------------------------------------

PATCHES: dict[str, tuple[Any, Any, Any, Any]] = {
    # last applied, manifest, live → merge patch
    "nothing to do": ({"a": 1}, {"a": 1}, {"a": 1, "b": 2}, {}),
    "a new field": ({}, {"a": 1}, {}, {"a": 1}),
    "a changed field": ({"a": 1}, {"a": 2}, {"a": 1}, {"a": 2}),
    "a field of the last manifest is removed": ({"a": 1, "b": 1}, {"a": 1}, {"a": 1, "b": 1}, {"b": None}),
    "someone else's stays": ({"a": 1}, {"a": 1}, {"a": 1, "c": 1}, {}),
    "gone already": ({"a": 1, "b": 1}, {"a": 1}, {"a": 1}, {}),
    "lists are values": ({"l": [1, 2]}, {"l": [1]}, {"l": [1, 2]}, {"l": [1]}),
    "deep down": (
        {"m": {"a": 1, "b": 1}},
        {"m": {"a": 2}},
        {"m": {"a": 1, "b": 1, "c": 1}},
        {"m": {"a": 2, "b": None}},
    ),
    "live drifted": ({"a": 1}, {"a": 1}, {"a": 5}, {"a": 1}),
}


@pytest.mark.parametrize(("last", "new", "live", "patch"), PATCHES.values(), ids=PATCHES)
def test_three_way_patches(last: Any, new: Any, live: Any, patch: Any) -> None:
    assert three_way(last, new, live) == patch


def test_what_is_not_there_is_created() -> None:
    assert plan_apply(service(), None).how == "create"


def test_what_was_applied_by_a_client_is_patched() -> None:
    live = service()
    last = deepcopy(live)
    last["spec"]["replicas"] = 2
    live["spec"]["replicas"] = 2
    live["metadata"]["annotations"] = {LAST_APPLIED: json.dumps(last)}
    plan = plan_apply(service(), live)
    assert (plan.how, plan.body) == ("merge", {"spec": {"replicas": None}})


def test_what_was_applied_on_the_server_is_applied_by_the_same_manager() -> None:
    live = service()
    live["metadata"]["managedFields"] = [
        {"manager": "aim-adapters", "operation": "Apply", "subresource": "status"},
        {"manager": "argocd-controller", "operation": "Apply"},
        {"manager": "kubectl-edit", "operation": "Update"},
    ]
    plan = plan_apply(service(), live)
    assert (plan.how, plan.manager) == ("apply", "argocd-controller")


def test_damaged_annotations_are_ignored() -> None:
    live = service()
    live["metadata"]["annotations"] = {LAST_APPLIED: "{"}
    assert plan_apply(service(), live).body == {}


# -- what it does ---------------------------------------------------------------------------------------------------


def running(scene: Scene) -> Snapshot:
    """A snapshot with the InferenceService that the controller would make, and two pods of it."""
    seen = scene.snapshot()
    (isvc,) = [obj for kind, obj in decide(observe(seen, SETTINGS)).apply if kind == INFERENCE_SERVICE]
    deployment = {"spec": {"replicas": 2}, "status": {"replicas": 2, "readyReplicas": 2}}
    return replace(seen, isvc=json.loads(json.dumps(isvc)), deployment=deployment)


def changed(before: Snapshot, scene: Scene) -> Effect:
    after = scene.snapshot()
    return effect(before, replace(after, isvc=before.isvc, deployment=before.deployment))


def test_nothing_changes_nothing() -> None:
    assert changed(running(Scene()), Scene()).quiet


def test_a_raised_ceiling_rolls() -> None:
    before, scene = running(Scene()), Scene()
    scene.spec["adapterRuntime"] = {"maxRank": 64}
    found = changed(before, scene)
    assert (found.ceiling, found.pods) == ((32, 64), 2)
    assert found.changes == ("env AIM_ADAPTER_MAX_RANK 32 → 64",)


def test_adapters_of_a_dynamic_service_roll_nothing() -> None:
    before, scene = running(Scene()), Scene()
    scene.spec["adapters"] = [{"kind": "AIMArtifact", "name": "sql"}]
    found = changed(before, scene)
    assert (found.changes, found.adapters_removed) == ((), ("med",))


def test_another_image_rolls() -> None:
    before, scene = running(Scene()), Scene()
    assert scene.profile is not None
    scene.profile["spec"]["image"] = "x:0.14"
    assert "image x:0.13 → x:0.14" in changed(before, scene).changes


def test_more_replicas_roll_nothing() -> None:
    before, scene = running(Scene()), Scene()
    scene.spec["replicas"] = 3
    found = changed(before, scene)
    assert (found.changes, found.scaled) == ((), ("maxReplicas 1 → 3", "minReplicas 1 → 3"))


def test_what_breaks_and_what_is_fixed() -> None:
    before, scene = running(Scene()), Scene()
    assert scene.sql is not None
    scene.sql["spec"]["rank"] = 64
    found = changed(before, scene)
    assert len(found.broken) == 1
    assert "above the ceiling 32" in found.broken[0]
    back = effect(replace(scene.snapshot(), isvc=before.isvc), before)
    assert (back.broken, len(back.fixed)) == ((), 1)


def test_values_of_a_users_variables_are_not_shown() -> None:
    live = {"spec": {"predictor": {"containers": [{"env": [{"name": "TOKEN", "value": "a-secret"}]}]}}}
    wanted = {"spec": {"predictor": {"containers": [{"env": [{"name": "TOKEN", "value": "b-secret"}]}]}}}
    assert predictor_changes(live, wanted) == (["env TOKEN changes"], [])


def test_an_empty_value_is_not_a_change() -> None:
    live = {"spec": {"predictor": {"containers": [{"env": [{"name": "AIM_ID"}]}]}}}
    wanted = {"spec": {"predictor": {"containers": [{"env": [{"name": "AIM_ID", "value": ""}]}]}}}
    assert predictor_changes(live, wanted) == ([], [])


def test_the_report_for_people() -> None:
    judged = Judged("AIMService team/chat", "f.yaml:3", "changed", (), ("f.yaml:9:3: spec.x: careful",))
    rolls = Effect(
        "team/chat", pods=2, changes=("image a → b",), ceiling=(32, 64), ceiling_origin="spec", broken=("bad",)
    )
    text = as_text(as_lines(Report((judged,), (rolls,), ("a note",))))
    assert text.splitlines() == [
        "AIMService team/chat would be changed   f.yaml:3",
        "  warning: f.yaml:9:3: spec.x: careful",
        "",
        "blast radius",
        "  AIMService team/chat",
        "    2 pods roll: image a → b",
        "    rank ceiling 32 → 64 (spec)",
        "    breaks: bad",
        "a note",
    ]


def test_the_report_for_programs() -> None:
    report = Report((Judged("a", "f:1", "refused", ("no",)),), (Effect("team/chat", pods=1, changes=("x",)),))
    view = as_view(report)
    assert (view["accepted"], view["good"], view["services"][0]["rolls"]) == (False, False, True)
    assert json.loads(json.dumps(view)) == view


# -- render ---------------------------------------------------------------------------------------------------------

MANIFESTS = """
apiVersion: aim.eai.amd.com/v1alpha2
kind: AIMClusterProfile
metadata: {name: p}
spec:
  aimId: q/q
  image: example.com/aim:0.13
  features: [adapters]
  acceleratorModel: MI300X
  acceleratorCount: 1
  modelSources: [{sourceUri: hf://Qwen/Q, modelId: Qwen/Q, size: 16Gi}]
---
apiVersion: aim.eai.amd.com/v1alpha1
kind: AIMArtifact
metadata: {name: sql}
spec: {type: adapter, sourceUri: hf://o/sql, modelId: o/sql, rank: 64, compatibleWith: [Qwen/Q]}
---
apiVersion: aim.eai.amd.com/v1alpha2
kind: AIMService
metadata: {name: chat}
spec:
  profile: {name: p}
  adapters: [{name: sql, kind: AIMArtifact}]
"""


def render(text: str, *args: str) -> tuple[int, str, str]:
    done = CliRunner().invoke(cli, ["render", "-f", "-", *args], input=text.encode())
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done.exit_code, done.stdout, done.stderr


def test_golden_render() -> None:
    code, text, _ = render(MANIFESTS, "-n", "team")
    assert code == 0
    path = GOLDEN / "render.yaml"
    if os.environ.get("GOLDEN"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    assert text == path.read_text()


def test_what_a_static_service_leads_to() -> None:
    code, text, _ = render(MANIFESTS, "-n", "team")
    objects = [obj for obj in yaml.safe_load_all(text) if obj]
    assert code == 0
    assert sorted({obj["kind"] for obj in objects}) == [
        "AIMArtifact", "AIMProfileCache", "ConfigMap", "InferenceService", "Job", "PersistentVolumeClaim",
    ]  # fmt: skip
    assert all(obj["metadata"]["namespace"] == "team" for obj in objects)
    (isvc,) = [obj for obj in objects if obj["kind"] == "InferenceService"]
    env = {one["name"]: one.get("value") for one in isvc["spec"]["predictor"]["containers"][0]["env"]}
    assert (env["AIM_ADAPTER_MODE"], env["AIM_ADAPTER_MAX_RANK"]) == ("static", "64")
    assert [
        obj["spec"]["resources"]["requests"]["storage"] for obj in objects if obj["kind"] == "PersistentVolumeClaim"
    ] == [
        "50Gi",
        "18Gi",
    ]


def test_rendering_is_deterministic() -> None:
    assert render(MANIFESTS)[1] == render(MANIFESTS)[1]


def test_a_size_that_only_the_source_knows_is_noted() -> None:
    code, _, said = render(MANIFESTS.replace(", size: 16Gi", ""))
    assert code == 0
    assert "60Gi is assumed" in said


def test_what_would_not_be_served_is_reported() -> None:
    code, text, said = render(MANIFESTS.replace("features: [adapters]", "features: []"))
    assert code == 1
    assert "would not be served: AdapterConfigInvalid" in said
    assert "InferenceService" not in text.replace("# ", "")


def test_a_missing_profile_can_be_assumed() -> None:
    service_only = MANIFESTS.split("---", 1)[1]
    assert render(service_only)[0] == 1
    assumed = (
        "--assume",
        "profile.features=adapters",
        "--assume",
        "profile.image=x:0.13",
        "--assume",
        "profile.aimId=q/q",
    )
    code, text, _ = render(service_only, *assumed, "--assume", "profile.modelSources=[{sourceUri: hf://Qwen/Q}]")
    assert code == 0
    assert "kind: InferenceService" in text


def test_the_settings_of_the_service_count(tmp_path: Path) -> None:
    """The Jobs are rendered as the controllers would with these settings; a bad file ends it with a line per fault."""
    settings = tmp_path / "settings.yaml"
    settings.write_text("stagingDeadline: 11m\n")
    plain, ours = (render(MANIFESTS, *more)[1] for more in ((), ("--config", str(settings))))
    assert "activeDeadlineSeconds: 660" in ours
    assert "activeDeadlineSeconds: 660" not in plain
    settings.write_text("stagingDeadlin: 11m\nclaimBindTimeout: soon\n")
    code, _, said = render(MANIFESTS, "--config", str(settings))
    assert code == 2
    assert 'unknown key "stagingDeadlin"' in said
    assert len(said.strip().splitlines()) == 2


def test_as_a_table() -> None:
    code, text, _ = render(MANIFESTS, "-o", "table")
    assert code == 0
    assert text.splitlines()[0].split() == ["KIND", "NAME", "OWNER"]


def test_the_template_pipeline() -> None:
    source = {"sourceUri": "hf://Qwen/Q", "modelId": "Qwen/Q", "size": "16Gi"}
    shared = {"apiVersion": "aim.eai.amd.com/v1alpha1"}
    given = [
        {
            **shared,
            "kind": "AIMModel",
            "metadata": {"name": "m", "namespace": "t"},
            "spec": {"image": "x:1", "modelSources": [source]},
        },
        {
            **shared,
            "kind": "AIMServiceTemplate",
            "metadata": {"name": "tpl", "namespace": "t"},
            "spec": {"modelName": "m", "hardware": {"gpu": {"model": "MI300X", "requests": 1}}},
        },
        {
            **shared,
            "kind": "AIMService",
            "metadata": {"name": "chat", "namespace": "t"},
            "spec": {"model": {"name": "m"}},
        },
    ]
    made, _, troubles = rehearse(given, datetime(2024, 1, 1, tzinfo=UTC))
    assert troubles == []
    assert {"AIMTemplateCache", "InferenceService"} <= {obj["kind"] for obj in made}


def test_no_manifests_lead_to_nothing() -> None:
    assert rehearse([], NOW) == ([], [], [])
