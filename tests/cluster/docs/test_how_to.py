"""Follows the how-to pages about adapters as one story: writes their files and runs their commands, in order.

The default run adds, replaces and removes an adapter. The long run continues with the pages about ranks and parents.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
import yaml

from api.view import JsonObject
from devcluster.base_models import BASE_MODELS
from devcluster.sample_adapters import SampleAdapter, write_adapter
from tests.cluster.conftest import Cluster
from tests.cluster.docs.reader import Reader
from tests.unit.docs.pages import DOCS, SHELL, Block, blocks

LONG = bool(os.environ.get("AIM_TEST_LONG"))
TINY = next(model for model in BASE_MODELS if model.model_id == "acme/tiny-llama")


def steps(page: str) -> list[Block]:
    """Return the files and commands of a page."""
    return [block for block in blocks(DOCS / "how-to" / page) if block.title or block.language in SHELL]


@pytest.fixture
def reader(cluster: Cluster, namespace: str, tmp_path: Path) -> Reader:
    """A reader with an adapter in a folder, and the two adapters of the pages on the hub."""
    hub = Path(cluster.info["hub"]["root"])
    for name in ("support-de", "medical"):
        write_adapter(hub, SampleAdapter(f"acme/{name}", TINY, 8))
    reader = Reader.at(cluster, namespace, tmp_path)
    shutil.copytree(hub / "acme/support-de", reader.folder / "checkpoints/support-de")
    reader.env |= {"HF_ENDPOINT": cluster.info["hub"]["endpoint"], "HF_TOKEN": cluster.info["hub"]["token"]}
    return reader


def test_add_raise_move(reader: Reader, cluster: Cluster, namespace: str) -> None:
    """Add an adapter, replace and remove it; raise the ceiling; move from parentArtifact to compatibleWith."""
    (old,) = [block for block in steps("compatible-with.md") if block.title == "old.yaml"]
    reader.follow([old])  # it exists before everything else
    objects = [obj | {"metadata": obj["metadata"] | {"namespace": namespace}} for obj in _load(reader, "old.yaml")]
    cluster.apply(*objects)

    reader.follow(steps("add-an-adapter.md"))
    told = "\n".join(reader.said)
    assert "can be served" in told
    assert "AIMService" in told
    assert "removed: support-de" in told
    if not LONG:  # the rest rolls pods twice; other tests of the default run cover `rank`, `check` and `add`
        return

    reader.follow(steps("raise-the-rank.md"))
    cluster.wait(lambda: _ceiling(cluster, namespace) == 64, timeout=60, what="the ceiling of the page")

    cluster.run(*_plugin(reader, "add", "chat", "medical", "--wait", "--timeout", "120", "-n", namespace))
    reader.follow(steps("compatible-with.md"))
    service = cluster.get("aimservice", "chat", namespace) or {}
    assert [entry["name"] for entry in service["spec"]["adapters"]] == ["medical-v2"]
    assert cluster.get("aimartifact", "medical", namespace) in (None, {})
    assert "fits acme/tiny-llama" in reader.said[-1]


def _load(reader: Reader, name: str) -> list[JsonObject]:
    return list(yaml.safe_load_all((reader.folder / name).read_text()))


def _ceiling(cluster: Cluster, namespace: str) -> int | None:
    service = cluster.get("aimservice", "chat", namespace) or {}
    found: int | None = (service.get("status") or {}).get("adapterMaxRank")
    return found


def _plugin(reader: Reader, *words: str) -> tuple[str, ...]:
    return (str(reader.folder.parent / "bin/kubectl-aim_adapters"), *words)


def test_no_block_of_the_pages_is_skipped() -> None:
    """A block that is neither a command nor a file would be skipped silently."""
    for page in ("add-an-adapter.md", "raise-the-rank.md", "compatible-with.md"):
        for block in blocks(DOCS / "how-to" / page):
            assert block.title or block.language in SHELL, block.where
