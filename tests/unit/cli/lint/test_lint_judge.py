"""The whole of lint: rules over files, references among them, assumptions, reports, exit codes."""

from __future__ import annotations

import json
import os
import re
import resource
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from api.reasons import DOCS_URL, Reason
from cli.lint.assume import AssumptionError, assumed_objects, parse_assumption
from cli.lint.document import parse
from cli.lint.explain import explain
from cli.lint.judge import Collected, Finding, judge
from cli.program import cli
from rules.worlds import SnapshotWorld

GOLDEN = Path(__file__).parent / "golden"
PROFILE = """
apiVersion: aim.eai.amd.com/v1alpha2
kind: AIMClusterProfile
metadata: {name: p}
spec: {aimId: q/q, image: 'x:0.13', features: [adapters], modelSources: [{sourceUri: hf://Qwen/Q, modelId: Qwen/Q}]}
"""
BASE = """
apiVersion: aim.eai.amd.com/v1alpha1
kind: AIMArtifact
metadata: {name: base}
spec: {sourceUri: hf://Qwen/Q, modelId: Qwen/Q}
"""
ADAPTER = """
apiVersion: aim.eai.amd.com/v1alpha1
kind: AIMArtifact
metadata: {name: sql}
spec: {type: adapter, sourceUri: hf://o/sql, modelId: o/sql, rank: 64, compatibleWith: [Qwen/Q]}
"""
SERVICE = """
apiVersion: aim.eai.amd.com/v1alpha2
kind: AIMService
metadata: {name: chat}
spec:
  profile: {name: p}
  adapterMode: dynamic
  adapters: [{name: sql, kind: AIMArtifact}]
"""


def lint(*texts: str, namespace: str = "default", assume: tuple[str, ...] = ()) -> list[Finding]:
    collected = Collected()
    collected.add("f.yaml", *parse("---".join(texts)), namespace)
    given = [manifest.obj for manifest in collected.manifests]
    given += assumed_objects([parse_assumption(word) for word in assume], given)
    return judge(collected, SnapshotWorld(given))


def reasons(found: list[Finding], level: str = "error") -> list[str]:
    return [finding.reason for finding in found if finding.level == level]


RAISED = SERVICE + "  adapterRuntime: {maxRank: 64}\n"
CONFIG = """
apiVersion: aim.eai.amd.com/v1alpha1
kind: AIMRuntimeConfig
metadata: {name: default}
spec: {adapterRuntime: {maxRank: 64}}
"""
CASES: dict[str, tuple[tuple[str, ...], tuple[str, ...], list[str]]] = {
    "rank above the built-in ceiling": ((SERVICE, PROFILE, BASE, ADAPTER), (), ["AdapterRankAboveCeiling"]),
    "the service raises it": ((RAISED, PROFILE, BASE, ADAPTER), (), []),
    "a RuntimeConfig among the files raises it": ((SERVICE, PROFILE, BASE, ADAPTER, CONFIG), (), []),
    "the order of files does not matter": ((CONFIG, ADAPTER, BASE, PROFILE, SERVICE), (), []),
    "an assumed RuntimeConfig raises it": (
        (SERVICE, PROFILE, BASE, ADAPTER),
        ("runtimeConfig.adapterRuntime.maxRank=64",),
        [],
    ),
    "an assumed profile lacks the feature": ((RAISED, ADAPTER), ("profile.image=x:0.13",), ["FeatureMissing"]),
    "an assumed profile has it": ((RAISED, ADAPTER), ("profile.features=adapters",), []),
    "assumptions leave given objects alone": (
        (RAISED, PROFILE.replace("features: [adapters], ", ""), ADAPTER),
        ("profile.features=adapters",),
        ["FeatureMissing"],
    ),
    "an assumed adapter's rank": (
        (SERVICE, PROFILE, BASE),
        ("adapter.rank=128", "adapter.compatibleWith=Qwen/Q"),
        ["AdapterRankAboveCeiling"],
    ),
    "another namespace has other objects": (
        (SERVICE.replace("name: chat", "name: chat, namespace: other"), PROFILE, BASE, ADAPTER),
        (),
        [],
    ),
    "v1alpha1 without a profile": (
        (SERVICE.replace("v1alpha2", "v1alpha1").replace("profile: {name: p}", "model: {name: m}"),),
        (),
        [],
    ),
    "v1alpha2 without a profile": (
        (SERVICE.replace("profile: {name: p}", "model: {name: m}"),),
        (),
        ["AdaptersWithoutProfile"],
    ),
    "the same object twice": ((PROFILE, PROFILE), (), ["ObjectDuplicate"]),
    "a version that is not served": ((PROFILE.replace("v1alpha2", "v1"),), (), ["VersionUnknown"]),
    "other kinds are left alone": (("{apiVersion: v1, kind: Secret, metadata: {name: s}}",), (), []),
    "a document that is not an object": (("- 1\n- 2\n",), (), ["NotAnObject"]),
}


@pytest.mark.parametrize(("texts", "assume", "expected"), CASES.values(), ids=CASES)
def test_errors(texts: tuple[str, ...], assume: tuple[str, ...], expected: list[str]) -> None:
    assert reasons(lint(*texts, assume=assume)) == expected


def test_a_rule_points_at_its_field() -> None:
    (error,) = [finding for finding in lint(SERVICE, PROFILE, BASE, ADAPTER) if finding.level == "error"]
    assert (error.path, error.position.line, error.subject) == ("spec.adapters[0].name", 8, "AIMService default/chat")


def test_the_schema_speaks_first_where_both_would() -> None:
    found = lint(SERVICE.replace("dynamic", "dynamik"), PROFILE)
    assert [finding.reason for finding in found if finding.path == "spec.adapterMode"] == ["ValueNotSupported"]


def test_our_kind_in_another_group_is_warned_about() -> None:
    assert reasons(lint(PROFILE.replace("aim.eai.amd.com", "aim.example.com")), "warning") == ["GroupUnknown"]


WRONG = {
    "no value": "profile.features",
    "no field": "profile=1",
    "another subject": "profil.features=a",
    "another field": "profile.feature=a",
}


@pytest.mark.parametrize("written", WRONG.values(), ids=WRONG)
def test_assumptions_that_mean_nothing(written: str) -> None:
    with pytest.raises(AssumptionError):
        parse_assumption(written)


# -- the command ----------------------------------------------------------------------------------------------------


def run(*args: str, stdin: str = "") -> tuple[int, str]:
    done = CliRunner().invoke(cli, ["lint", *args], input=stdin.encode())
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done.exit_code, done.output


def check_golden(name: str, text: str) -> None:
    path = GOLDEN / name
    if os.environ.get("GOLDEN"):
        path.write_text(text)
    assert text == path.read_text()


@pytest.mark.parametrize("shape", ["text", "json", "sarif", "github"])
def test_golden_reports(shape: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(GOLDEN)
    code, text = run("--format", shape, "faults.yaml")
    assert code == 1
    check_golden(f"faults.{shape}", re.sub(r'"version": "0[^"]*"', '"version": "0"', text))


def test_sarif_is_well_formed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(GOLDEN)
    log = json.loads(run("--format", "sarif", "faults.yaml")[1])
    assert log["version"] == "2.1.0"
    (one,) = log["runs"]
    rules = one["tool"]["driver"]["rules"]
    assert len({rule["id"] for rule in rules}) == len(rules)
    assert all(rule["shortDescription"]["text"] and rule["help"]["text"] for rule in rules)
    assert len({rule["shortDescription"]["text"] for rule in rules}) == len(rules)
    assert all(rule["helpUri"] == f"{DOCS_URL}errors.html#{rule['id'].lower()}" for rule in rules)
    for result in one["results"]:
        assert rules[result["ruleIndex"]]["id"] == result["ruleId"]
        assert result["level"] in ("error", "warning")
        assert result["message"]["text"]
        place = result["locations"][0]["physicalLocation"]
        assert place["artifactLocation"]["uri"] == "faults.yaml"
        assert place["region"]["startLine"] >= 1
        assert place["region"]["startColumn"] >= 1


def test_sarif_points_at_the_pages_where_they_are_served(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(GOLDEN)
    log = json.loads(run("--format", "sarif", "--docs-url", "https://docs.team.svc/aim", "faults.yaml")[1])
    rules = log["runs"][0]["tool"]["driver"]["rules"]
    assert all(rule["helpUri"] == f"https://docs.team.svc/aim/errors.html#{rule['id'].lower()}" for rule in rules)


# -- SARIF 2.1.0: the objects that we write, as OASIS defines them (required properties, optional properties) ----------

SHAPES: dict[str, tuple[str, str]] = {
    "sarifLog": ("version runs", "$schema inlineExternalProperties properties"),
    "run": (
        "tool",
        "invocations columnKind results artifacts originalUriBaseIds automationDetails language properties",
    ),
    "tool": ("driver", "extensions properties"),
    "toolComponent": ("name", "version semanticVersion informationUri organization fullName rules properties"),
    "reportingDescriptor": ("id", "name shortDescription fullDescription help helpUri defaultConfiguration properties"),
    "multiformatMessageString": ("text", "markdown properties"),
    "reportingConfiguration": ("", "enabled level rank parameters properties"),
    "result": (
        "message",
        "ruleId ruleIndex rule kind level locations fingerprints partialFingerprints relatedLocations properties",
    ),
    "message": ("", "text markdown id arguments properties"),
    "location": ("", "id physicalLocation logicalLocations message properties"),
    "physicalLocation": ("", "artifactLocation region contextRegion properties"),
    "artifactLocation": ("", "uri uriBaseId index description properties"),
    "region": ("", "startLine startColumn endLine endColumn charOffset charLength snippet message properties"),
    "logicalLocation": ("", "name fullyQualifiedName decoratedName kind parentIndex index properties"),
}
MEMBERS = {
    "runs": "run",
    "tool": "tool",
    "driver": "toolComponent",
    "rules": "reportingDescriptor",
    "shortDescription": "multiformatMessageString",
    "fullDescription": "multiformatMessageString",
    "help": "multiformatMessageString",
    "defaultConfiguration": "reportingConfiguration",
    "results": "result",
    "message": "message",
    "locations": "location",
    "physicalLocation": "physicalLocation",
    "artifactLocation": "artifactLocation",
    "region": "region",
    "logicalLocations": "logicalLocation",
}


def check_sarif(shape: str, found: dict[str, Any]) -> None:
    """Check an object against its shape; properties of another name are refused, as the schema does."""
    required, optional = (set(words.split()) for words in SHAPES[shape])
    assert required <= found.keys() <= required | optional, (shape, found.keys())
    for key, value in found.items():
        for inner in value if isinstance(value, list) else [value]:
            if isinstance(inner, dict) and key in MEMBERS:
                check_sarif(MEMBERS[key], inner)
    if shape == "region":
        assert all(isinstance(number, int) and number >= 1 for number in found.values())
    if shape == "artifactLocation":
        assert re.fullmatch(r"[A-Za-z0-9._~:/?#\[\]@!$&'()*+,;=%-]+", found["uri"]), "a URI reference"
        assert not re.search(r"%(?![0-9A-Fa-f]{2})", found["uri"])
    if shape == "result":
        assert found["message"]["text"]
        assert found.get("level", "warning") in ("none", "note", "warning", "error")
        assert all(isinstance(text, str) for text in found.get("partialFingerprints", {}).values())


def test_sarif_is_what_the_standard_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "a folder, 100% own"
    folder.mkdir()
    (folder / "fäults.yaml").write_text((GOLDEN / "faults.yaml").read_text())
    monkeypatch.chdir(tmp_path)
    for args, stdin in (((".",), ""), ((str(folder),), ""), (("-",), SERVICE), (("-",), "a: [")):
        log = json.loads(run("--format", "sarif", *args, stdin=stdin)[1])
        check_sarif("sarifLog", log)
        assert (log["version"], log["$schema"]) == ("2.1.0", "https://json.schemastore.org/sarif-2.1.0.json")
        (one,) = log["runs"]
        assert one["columnKind"] in ("utf16CodeUnits", "unicodeCodePoints")
        assert one["results"]
        prints = [result["partialFingerprints"] for result in one["results"]]
        assert len({json.dumps(found, sort_keys=True) for found in prints}) == len(prints), "each result is another"


def test_directories_are_read_recursively_and_stdin_too(tmp_path: Path) -> None:
    (tmp_path / "a" / ".git").mkdir(parents=True)
    (tmp_path / "a" / "p.yml").write_text(PROFILE)
    (tmp_path / "a" / "b.json").write_text(json.dumps(yaml.safe_load(BASE)))
    (tmp_path / "a" / "notes.txt").write_text("no: [yaml")
    (tmp_path / "a" / ".git" / "x.yaml").write_text("no: [yaml")
    code, text = run(str(tmp_path), "-", stdin=f"{RAISED}---{ADAPTER}")
    assert (code, text) == (0, "no findings: 4 objects in 3 files\n")


def test_files_can_be_left_out(tmp_path: Path) -> None:
    (tmp_path / "templates").mkdir()
    (tmp_path / "templates" / "x.yaml").write_text("kind: AIMService\na: {{ .x }}")
    assert run(str(tmp_path))[0] == 1
    assert run("--exclude", "*/templates/*", str(tmp_path))[0] == 0


def test_files_without_aim_objects_are_skipped(tmp_path: Path) -> None:
    """Values, workflows, data, templates of a chart: files of other kinds in a directory with AIM manifests."""
    files = {
        "values.yaml": "replicas: 2\n",
        ".pre-commit-config.yaml": "repos: []\n",
        "package.json": '{"name": "x"}',
        "list.json": "[1, 2]",
        "broken.yaml": "a: [",
        "latin.yaml": "name: caf\xe9\n",
        "chart/Chart.yaml": "apiVersion: v2\nname: x\nversion: 0.1.0\n",
        "chart/templates/a.yaml": "kind: AIMService\nname: {{ .x }}\n{{- if .y }}\n",
        "kust/kustomization.yaml": "resources: [a.yaml]\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(text.encode("latin-1"))
    (tmp_path / "ours.yaml").write_text(PROFILE)
    code, text = run(str(tmp_path))
    assert code == 0
    assert text.splitlines() == [
        f"note: {tmp_path}/chart/templates was skipped; to check it, run "
        f"helm template {tmp_path}/chart | aim-adapters lint -",
        "no findings: 1 object in 9 files, of which 8 files hold none",
    ]
    assert run(str(tmp_path / "values.yaml"))[0] == 0
    assert run("-", stdin="replicas: 2")[0] == 1


def test_a_namespace_that_is_a_number_is_reported() -> None:
    code, text = run("-", stdin=BASE.replace("metadata: {", "metadata: {namespace: 5, ", 1))
    assert code == 1
    assert 'metadata.namespace: Invalid value: "5"' in text


def test_a_kustomization_and_its_patches_are_skipped(tmp_path: Path) -> None:
    """A patch is a part of an object, and the kustomization may name AIM kinds as targets."""
    files = {
        "base/ours.yaml": PROFILE,
        "over/kustomization.yaml": "patches:\n- path: part.yaml\n  target: {kind: AIMService}\n- patch: 'a: b\n  '\n"
        "patchesStrategicMerge: [deep/more.yaml, ../base/gone.yaml]\n",
        "over/part.yaml": "apiVersion: aim.eai.amd.com/v1alpha2\nkind: AIMService\nmetadata: {name: x}\n",
        "over/deep/more.yaml": "apiVersion: aim.eai.amd.com/v1alpha2\nkind: AIMService\nmetadata: {name: x}\n",
        "odd/kustomization.yml": "patches: {kind: AIMService}\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    code, text = run(str(tmp_path))
    over = tmp_path / "over"
    assert code == 0, text
    assert text.splitlines() == [
        f"note: the patches of {over}/kustomization.yaml were skipped; to check them, run "
        f"kustomize build {over} | aim-adapters lint -",
        "no findings: 1 object in 3 files, of which 2 files hold none",
    ]
    assert run(str(over / "part.yaml"))[0] == 1  # what is named is looked at


EXITS: dict[str, tuple[tuple[str, ...], str, int]] = {
    "fine": (("-",), PROFILE, 0),
    "an error": (("-",), "a: [", 1),
    "a warning": (("-",), SERVICE, 0),
    "a warning counts with --strict": (("--strict", "-"), SERVICE, 1),
    "no such file": (("/nonexistent/x.yaml",), "", 2),
    "no path": ((), "", 2),
    "a wrong option": (("--nope",), "", 2),
    "a wrong assumption": (("--assume", "x", "-"), "", 2),
    "an unknown reason": (("--explain", "Nope"), "", 2),
}


@pytest.mark.parametrize(("args", "stdin", "code"), EXITS.values(), ids=EXITS)
def test_exit_codes(args: tuple[str, ...], stdin: str, code: int) -> None:
    assert run(*args, stdin=stdin)[0] == code


def test_text_that_is_not_utf8(tmp_path: Path) -> None:
    (tmp_path / "x.yaml").write_bytes(b"kind: AIMService\nb: \xff\n")
    (tmp_path / "y.yaml").write_bytes("kind: AIMService\n".encode("utf-16"))
    code, text = run(str(tmp_path))
    assert code == 1
    assert "x.yaml:2:1: error: the text is not UTF-8 [TextNotUtf8]" in text
    assert "y.yaml:1:1: error: the text is not UTF-8 [TextNotUtf8]" in text


def test_every_reason_is_explained_with_where_it_is_seen() -> None:
    for reason in Reason:
        entry = explain(reason)
        assert entry is not None
        assert entry.reason is reason
        assert entry.seen, reason
        assert bool(entry.fields) == ("rule" in entry.explanation.surfaces), reason


def test_explain_shows_meaning_field_and_fix() -> None:
    code, text = run("--explain", "AdapterRankAboveCeiling")
    assert code == 0
    assert "fix:" in text
    assert "spec.adapters" in text


def test_explain_shows_an_example_that_earns_the_reason() -> None:
    """A rule may have several reasons; its example is shown for those that it really earns."""
    of_feature, of_count = explain("FeatureMissing"), explain("FeatureScaleOnly")
    assert of_feature is not None
    assert of_count is not None
    assert of_feature.example
    assert not of_count.example


def objects(count: int) -> list[dict[str, Any]]:
    made: list[dict[str, Any]] = [yaml.safe_load(PROFILE), yaml.safe_load(BASE)]
    for index in range(count // 2):
        service, adapter = yaml.safe_load(SERVICE), yaml.safe_load(ADAPTER)
        service["metadata"]["name"], adapter["metadata"]["name"] = f"s{index}", f"a{index}"
        service["spec"]["adapters"] = [{"name": f"a{(index + k) % (count // 2)}"} for k in range(8)]
        made += [service, adapter]
    return made


def test_a_thousand_manifests_within_three_seconds(tmp_path: Path) -> None:
    for index, obj in enumerate(objects(1000)):
        (tmp_path / f"{index}.yaml").write_text(yaml.safe_dump(obj))
    before = resource.getrusage(resource.RUSAGE_SELF)
    code, text = run("--format", "json", str(tmp_path))
    after = resource.getrusage(resource.RUSAGE_SELF)
    assert (code, json.loads(text)["summary"]["objects"]) == (1, 1002)
    assert after.ru_utime - before.ru_utime < 3.0  # processor time: the machine may be busy with other tests
