"""`make sbom` and `make audit`: for real once, and what they make of reports that cannot be had here."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path

import pytest

from api.view import JsonObject
from tests.chart.conftest import ROOT
from tools.supply_chain import UNKNOWN, VULNERABLE, add_dependencies, judge_audit, main, read_lock

LOCK = """\
anyio==4.16.0 \\
    --hash=sha256:aa
    # via
    #   -c requirements-dev.lock
    #   fastapi
    #   httpx
fastapi==0.165.0 \\
    --hash=sha256:bb
    # via aim-adapters (pyproject.toml)
httpx==0.28.1 ; sys_platform == 'linux' \\
    --hash=sha256:cc
    # via aim-adapters (pyproject.toml)
"""


def component(name: str, version: str) -> JsonObject:
    hashes = [{"alg": "SHA-256", "content": "aa"}]
    return {"name": name, "version": version, "externalReferences": [{"type": "distribution", "hashes": hashes}]}


BOM: JsonObject = {
    "components": [component("anyio", "4.16.0"), component("FastAPI", "0.165.0"), component("httpx", "0.28.1")]
}


def copy_of(bom: JsonObject) -> JsonObject:
    found: JsonObject = json.loads(json.dumps(bom))
    return found


def test_the_lock_shows_which_package_needs_which() -> None:
    pins = read_lock(LOCK)
    assert {name: (pin.version, pin.via) for name, pin in pins.items()} == {
        "anyio": ("4.16.0", ["fastapi", "httpx"]),
        "fastapi": ("0.165.0", ["aim-adapters"]),
        "httpx": ("0.28.1", ["aim-adapters"]),
    }


def test_the_bill_has_the_graph_of_dependencies() -> None:
    made = add_dependencies(copy_of(BOM), read_lock(LOCK), "aim-adapters")
    graph = {entry["ref"]: entry.get("dependsOn", []) for entry in made["dependencies"]}
    assert graph == {
        "root-component": ["pkg:pypi/fastapi@0.165.0", "pkg:pypi/httpx@0.28.1"],
        "pkg:pypi/fastapi@0.165.0": ["pkg:pypi/anyio@4.16.0"],
        "pkg:pypi/httpx@0.28.1": ["pkg:pypi/anyio@4.16.0"],
        "pkg:pypi/anyio@4.16.0": [],
    }


def test_a_component_without_checksum_or_a_pin_without_component_is_an_error() -> None:
    bare = copy_of(BOM)
    del bare["components"][0]["externalReferences"]
    with pytest.raises(ValueError, match="no checksum for anyio"):
        add_dependencies(bare, read_lock(LOCK), "aim-adapters")
    with pytest.raises(ValueError, match="no component for httpx"):
        add_dependencies({"components": BOM["components"][:2]}, read_lock(LOCK), "aim-adapters")


ASKED: JsonObject = {"name": "anyio", "version": "4.16.0", "vulns": []}
HIT: JsonObject = {"name": "httpx", "version": "0.1", "vulns": [{"id": "PYSEC-1", "fix_versions": ["0.2"]}]}
SKIPPED: JsonObject = {"name": "six", "skip_reason": "not found"}
REPORTS = {
    "all is well": ([ASKED], 0, "1 of 1 packages asked about, 0 known"),
    "one is known": ([ASKED, HIT], VULNERABLE, "httpx 0.1: PYSEC-1 (fixed in: 0.2)"),
    "no service could be asked": ([SKIPPED], UNKNOWN, "NOT AUDITED: 1 of 1 packages (six)"),
    "one is known, others could not be asked": ([HIT, SKIPPED], VULNERABLE, "NOT AUDITED: 1 of 2"),
    "an empty report": ([], UNKNOWN, "0 of 0"),
}


@pytest.mark.parametrize(("packages", "status", "words"), REPORTS.values(), ids=REPORTS)
def test_what_was_not_asked_is_not_called_safe(packages: list[JsonObject], status: int, words: str) -> None:
    found, lines = judge_audit({"dependencies": packages, "fixes": []})
    assert found == status
    assert words in "\n".join(lines)


def test_a_program_that_failed_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "log").write_text("Traceback\nConnectionError: api.osv.dev\n\n")
    assert main(["audit", str(tmp_path / "report"), str(tmp_path / "log")]) == UNKNOWN
    assert "nothing was audited: ConnectionError: api.osv.dev" in capsys.readouterr().out
    assert main([]) == 2


for_real = pytest.mark.skipif(
    not (ROOT / ".venv-audit" / ".installed").exists() and not os.environ.get("AIM_TEST_LONG"),
    reason="the tools are not installed: `make sbom` installs them, and `make test-long` does",
)


def make(target: str) -> subprocess.CompletedProcess[str]:
    """Run a target as people do."""
    return subprocess.run(["make", target], cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)


@for_real
def test_make_sbom_for_real() -> None:
    done = make("sbom")
    assert done.returncode == 0, done.stdout + done.stderr
    bom = json.loads((ROOT / "build" / "sbom.cdx.json").read_text())
    pins = read_lock((ROOT / "requirements.lock").read_text())
    assert bom["bomFormat"] == "CycloneDX"
    assert bom["metadata"]["component"]["name"] == "aim-adapters"
    assert bom["metadata"]["timestamp"]
    assert {entry["name"]: entry["version"] for entry in bom["components"]} == {n: p.version for n, p in pins.items()}
    locked = (ROOT / "requirements.lock").read_text().count("--hash=sha256:")
    told = [h for e in bom["components"] for r in e["externalReferences"] for h in r.get("hashes", [])]
    assert len(told) == locked
    graph = {entry["ref"]: set(entry.get("dependsOn", [])) for entry in bom["dependencies"]}
    reached: set[str] = set()
    waiting = ["root-component"]
    while waiting:
        ref = waiting.pop()
        waiting += graph[ref] - reached
        reached |= graph[ref]
    assert reached == {entry["bom-ref"] for entry in bom["components"]}, "something is in the image for no reason"


@for_real
def test_make_audit_for_real() -> None:
    """The service may be out of reach. The report must match what happened."""
    done = make("audit")
    said = done.stdout + done.stderr
    status = 0 if done.returncode == 0 else int(re.findall(r"Error (\d+)", said)[-1])
    assert status in {0, VULNERABLE, UNKNOWN}, said
    assert ("audited" in said.lower()) == (status == UNKNOWN) or status == VULNERABLE
    assert (" 0 known vulnerabilities" in said) or status != 0
