"""The images that a cluster knows."""

import json
from pathlib import Path

import pytest

from devcluster.image_table import SERVICE_IMAGE, render_images
from devcluster.node.images import ImageTable


@pytest.fixture
def table(tmp_path: Path) -> ImageTable:
    path = tmp_path / "images.json"
    path.write_text(json.dumps(render_images(Path("/venv/bin/python"))))
    return ImageTable(path)


def test_our_image_is_the_command_line_of_this_environment(table: ImageTable) -> None:
    image = table.find(SERVICE_IMAGE)
    assert image is not None
    assert image.entrypoint == ("/venv/bin/aim-adapters",)
    assert image.env["PATH"].startswith("/venv/bin:")
    assert (image.uid, image.gid) == (1000, 1000)


@pytest.mark.parametrize(
    ("tag", "ignores"), [("0.13.0", False), ("0.14.2", False), ("latest", False), ("0.12.3", True), ("0.1.0", True)]
)
def test_model_servers_before_0_13_ignore_adapters(table: ImageTable, tag: str, ignores: bool) -> None:
    image = table.find(f"aim-dev/model-server:{tag}")
    assert image is not None
    assert ("AIM_STAND_IN_IGNORE_ADAPTERS" in image.env) is ignores


def test_other_images_are_unknown(table: ImageTable) -> None:
    assert table.find("nginx:latest") is None
