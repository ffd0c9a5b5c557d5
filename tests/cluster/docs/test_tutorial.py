"""The tutorial, run as a reader would: its commands in their order, on a cluster, in a namespace of its own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.cluster.conftest import Cluster
from tests.unit.docs.pages import DOCS, ROOT, SHELL, Block, blocks

PAGE = DOCS / "tutorial.md"
STEPS = [block for block in blocks(PAGE) if block.title or block.mark.split()[:1] == ["run"]]
PATIENCE = 240  # seconds for one block


@pytest.fixture
def desk(cluster: Cluster, namespace: str, tmp_path: Path) -> Iterator[tuple[Path, dict[str, str]]]:
    """A reader's folder and environment: the repository's files, kubectl and the plugin on the PATH, the namespace."""
    config = yaml.safe_load(cluster.kubeconfig.read_text())
    for context in config["contexts"]:
        context["context"]["namespace"] = namespace
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(yaml.safe_dump(config))
    kubeconfig.chmod(0o600)
    folder, tools = tmp_path / "desk", tmp_path / "bin"
    folder.mkdir()
    tools.mkdir()
    (folder / "config").symlink_to(ROOT / "config")
    (tools / "kubectl").symlink_to(cluster.info["kubectl"])
    for name in ("aim-adapters", "kubectl-aim_adapters"):
        (tools / name).symlink_to(Path(sys.executable).parent / name)
    path = os.pathsep.join([str(tools), str(Path(sys.executable).parent), os.environ["PATH"]])
    env = {**os.environ, "PATH": path, "KUBECONFIG": str(kubeconfig), "S3": cluster.info["s3"]["root"], "NO_COLOR": "1"}
    yield folder, env
    for name in ("my-tone",):
        for file in sorted((Path(env["S3"]) / "eai-artifacts/adapters" / name).glob("*")):
            file.unlink()


def _run(block: Block, folder: Path, env: dict[str, str]) -> str:
    script = f"set -euo pipefail\n{block.text}"
    done = subprocess.run(
        ["bash", "-c", script], cwd=folder, env=env, capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    said = done.stdout + done.stderr
    fails = "fails" in block.mark.split()
    assert (done.returncode != 0) == fails, f"{block.where}: exit code {done.returncode}\n{block.text}\n{said}"
    return said


def _check_shown(block: Block, said: str) -> None:
    """What the page shows was said by the commands above it; an ellipsis stands for anything."""
    for line in block.text.splitlines():
        pattern = ".*".join(re.escape(part) for part in line.strip().split("…"))
        found = any(re.fullmatch(pattern, seen.strip()) for seen in said.splitlines())
        assert found, f"{block.where}: nothing said {line!r}\n{said}"


def test_the_tutorial_goes_as_it_says(desk: tuple[Path, dict[str, str]], cluster: Cluster, namespace: str) -> None:
    folder, env = desk
    said: list[str] = []
    pods: set[str] = set()
    for block in STEPS:
        if block.language in SHELL:
            said.append(_run(block, folder, env))
            found = cluster.items("pods", namespace, "-l", "aim.eai.amd.com/service=gemma-cs,component=predictor")
            pods |= {pod["metadata"]["uid"] for pod in found}
        elif block.title:
            (folder / block.title).write_text(block.text)
        else:
            _check_shown(block, said[-1])
    told = "\n".join(said)
    assert re.search(r"gemma-cs +Running .* 1/1 ", told)
    assert '"cs-tone-v3"' in told
    assert re.search(r"gemma-cs +Running .* 2/2 ", told)
    assert "its rank 64 is above the ceiling 32" in told
    assert "AdapterRankAboveCeiling" in told
    assert "AdapterArtifactNotFound" in told
    assert len(pods) == 1, "the pod stays the same one"


def test_every_step_of_the_tutorial_is_run_or_about_the_cluster_itself() -> None:
    ours = ("make demo", "aim-adapters dev", "export ", ". .venv")
    for block in blocks(PAGE):
        if block.language in SHELL and not block.mark:
            assert all(line.startswith(ours) for line in block.text.splitlines()), block.where
