"""Follows the tutorial as a reader would: its commands in order, on a cluster, in a separate namespace."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.conftest import Cluster
from tests.cluster.docs.reader import Reader
from tests.unit.docs.pages import DOCS, SHELL, blocks

PAGE = DOCS / "tutorial.md"
STEPS = [block for block in blocks(PAGE) if block.title or block.mark.split()[:1] == ["run"]]


@pytest.fixture
def reader(cluster: Cluster, namespace: str, tmp_path: Path) -> Iterator[Reader]:
    """A reader; the adapter that the tutorial puts into the bucket is removed afterwards."""
    yield Reader.at(cluster, namespace, tmp_path)
    for file in sorted((Path(cluster.info["s3"]["root"]) / "eai-artifacts/adapters/my-tone").glob("*")):
        file.unlink()


def test_the_tutorial_works_as_written(reader: Reader, cluster: Cluster, namespace: str) -> None:
    pods: set[str] = set()
    for block in STEPS:
        reader.follow([block])
        if block.language in SHELL:
            found = cluster.items("pods", namespace, "-l", "aim.eai.amd.com/service=gemma-cs,component=predictor")
            pods |= {pod["metadata"]["uid"] for pod in found}
    told = "\n".join(reader.said)
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
