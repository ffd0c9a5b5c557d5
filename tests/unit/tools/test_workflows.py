"""The workflows name make targets that exist, pin their actions, and release one version everywhere."""

from __future__ import annotations

import re
from typing import Any

import pytest
import yaml

from tests.unit.tools.test_dependencies import PROJECT, ROOT

FOLDER = ROOT / ".github" / "workflows"
WORKFLOWS = {path.name: yaml.safe_load(path.read_text()) for path in sorted(FOLDER.iterdir())}
TARGETS = set(re.findall(r"^\.PHONY: ([a-z-]+)$", (ROOT / "Makefile").read_text(), re.MULTILINE))


def steps(workflow: Any) -> list[dict[str, Any]]:
    """Return the steps of all jobs."""
    return [step for job in workflow["jobs"].values() for step in job["steps"]]


def targets(workflow: Any) -> set[str]:
    """Return the make targets that the steps run."""
    lines = [line.split() for step in steps(workflow) for line in step.get("run", "").splitlines()]
    return {word for line in lines if line[:1] == ["make"] for word in line[1:] if not word.startswith("-")}


def test_what_a_change_must_pass() -> None:
    assert {"lint", "test", "docs", "test-lowest"} <= targets(WORKFLOWS["ci.yaml"])


def test_what_a_release_consists_of() -> None:
    assert {"dist", "sbom"} <= targets(WORKFLOWS["release.yaml"])
    commands = "\n".join(step.get("run", "") for step in steps(WORKFLOWS["release.yaml"]))
    for part in ("docker push", "helm push", "hatchling version"):
        assert part in commands


@pytest.mark.parametrize("name", WORKFLOWS)
def test_targets_exist(name: str) -> None:
    assert targets(WORKFLOWS[name]) <= TARGETS


@pytest.mark.parametrize("name", WORKFLOWS)
def test_actions_are_pinned(name: str) -> None:
    for used in (step["uses"] for step in steps(WORKFLOWS[name]) if "uses" in step):
        assert re.fullmatch(r"[\w/-]+@(v\d+|[0-9a-f]{40})", used), used


@pytest.mark.parametrize("name", WORKFLOWS)
def test_a_job_may_only_read_and_ends_in_time(name: str) -> None:
    assert WORKFLOWS[name]["permissions"] == {"contents": "read"}
    for job in WORKFLOWS[name]["jobs"].values():
        assert 0 < job["timeout-minutes"] <= 90
        assert "permissions" not in job


@pytest.mark.parametrize("name", WORKFLOWS)
def test_caches_are_keyed_by_files_that_exist(name: str) -> None:
    caches = [step["with"] for step in steps(WORKFLOWS[name]) if step.get("uses", "").startswith("actions/cache@")]
    assert caches
    for cache in caches:
        assert cache["path"] == "~/.cache/aim-adapters"
        (patterns,) = re.findall(r"hashFiles\((.*?)\)", cache["key"])
        assert "devcluster/*/go.sum" in patterns
        for pattern in re.findall(r"'(.*?)'", patterns):
            assert list(ROOT.glob(pattern)), pattern


@pytest.mark.parametrize("name", WORKFLOWS)
def test_no_registry_and_no_secret_is_written_down(name: str) -> None:
    """Only variables of the repository say where things go; events reach a shell through its environment."""
    text = (FOLDER / name).read_text()
    hosts = set(re.findall(r"\b[a-z0-9-]+(?:\.[a-z0-9-]+)*\.(?:io|com|org|net|dev)\b", text))
    assert hosts <= {"registry.example.org"}
    for step in steps(WORKFLOWS[name]):
        assert "${{" not in step.get("run", ""), "an expression in a script is code that others can write"


def test_one_version_everywhere() -> None:
    version = PROJECT["project"]["version"]
    chart = yaml.safe_load((ROOT / "chart" / "Chart.yaml").read_text())
    assert (chart["version"], chart["appVersion"]) == (version, version)
    assert f"ARG VERSION={version}\n" in (ROOT / "Dockerfile").read_text()
    released = re.findall(r"^## \[?([0-9][0-9.]*)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert released[:1] == [version]


def test_runs_need_the_python_of_the_project() -> None:
    for workflow in WORKFLOWS.values():
        found = [step["with"]["python-version"] for step in steps(workflow) if "setup-python" in step.get("uses", "")]
        assert found
        assert {f">={version}" for version in found} == {PROJECT["project"]["requires-python"]}
