"""The cluster's folder: locked while it runs, remembered when it does not, emptied only when it holds a cluster."""

import os
from pathlib import Path

import pytest

from devcluster.folder import Layout, RunningError, World, empty, hold, is_running, read_state
from devcluster.front import choose_pods


def test_one_holder_at_a_time(tmp_path: Path) -> None:
    layout = Layout(tmp_path / "d")
    assert not is_running(layout)
    held = hold(layout)
    assert is_running(layout)
    with pytest.raises(RunningError):
        hold(layout)
    os.close(held)
    assert not is_running(layout)


def test_the_file_is_readable_for_its_owner_only(tmp_path: Path) -> None:
    path = tmp_path / "world.json"
    world = World.load(path)
    world.range_index, world.settings = 3, {"reaperPeriod": "5s"}
    world.save(path)
    assert World.load(path) == world
    assert path.stat().st_mode & 0o777 == 0o600


def test_the_credentials_are_those_that_the_samples_carry() -> None:
    world = World()
    samples = Path(__file__).parents[3] / "config" / "samples"
    for path in samples.glob("aim_*_lora_adapters.yaml"):
        assert f"accessKeyId: {world.s3_access_key}" in path.read_text()
        assert world.s3_secret_key in path.read_text()


@pytest.mark.parametrize("text", ["nonsense", '{"unknown": 1}', "[]"])
def test_a_file_that_cannot_be_read_names_the_way_out(tmp_path: Path, text: str) -> None:
    path = tmp_path / "world.json"
    path.write_text(text)
    with pytest.raises(ValueError, match="--fresh"):
        World.load(path)


def test_empty_removes_a_cluster_but_never_other_files(tmp_path: Path) -> None:
    layout = Layout(tmp_path / "d")
    layout.make()
    World().save(layout.world)
    (layout.hub / "acme").mkdir()
    (layout.root / "link").symlink_to(tmp_path)
    empty(layout)
    assert [path.name for path in layout.root.iterdir()] == ["run"]
    assert tmp_path.exists()
    home = Layout(tmp_path / "home")
    home.root.mkdir()
    (home.root / "thesis.tex").write_text("years of work")
    with pytest.raises(ValueError, match="not a cluster"):
        empty(home)
    assert (home.root / "thesis.tex").exists()
    empty(Layout(tmp_path / "absent"))


def test_absent_or_broken_state_is_empty(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    assert read_state(layout) == {}
    layout.run.mkdir()
    layout.state.write_text("{")
    assert read_state(layout) == {}


PODS = ["aim-system/aim-adapters-1", "aim-system/aim-adapters-12", "default/aim-adapters-1", "default/chat-predictor-x"]


@pytest.mark.parametrize(
    ("name", "pods"),
    [
        ("default/aim-adapters-1", ["default/aim-adapters-1"]),
        ("aim-adapters-1", ["aim-system/aim-adapters-1", "default/aim-adapters-1"]),
        ("chat", ["default/chat-predictor-x"]),
        ("aim-system/aim-adapters-12", ["aim-system/aim-adapters-12"]),
        ("nobody", []),
    ],
)
def test_which_pod_a_name_means(name: str, pods: list[str]) -> None:
    assert choose_pods(name, PODS) == pods
