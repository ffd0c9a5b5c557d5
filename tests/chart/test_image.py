"""The Dockerfile: checked by rules, and its steps run in a clean directory, since no container builder can run here."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import threading
from dataclasses import dataclass
from fnmatch import fnmatch
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.chart.conftest import ROOT

DOCKERFILE = ROOT / "Dockerfile"


@dataclass(frozen=True)
class Instruction:
    """One instruction: its word, its arguments, the number of its stage."""

    word: str
    text: str
    stage: int


def read_dockerfile() -> list[Instruction]:
    """Return the instructions, continued lines joined and comments left out."""
    lines = [line for line in DOCKERFILE.read_text().splitlines() if not line.startswith("#")]
    joined = re.sub(r"\\\n\s*", "", "\n".join(lines))
    found, stage = [], -1
    for line in filter(str.strip, joined.splitlines()):
        word, _, text = line.partition(" ")
        stage += word == "FROM"
        found.append(Instruction(word, text.strip(), stage))
    return found


INSTRUCTIONS = read_dockerfile()


def of(word: str, stage: int | None = None) -> list[str]:
    """Return the arguments of all instructions with this word."""
    return [i.text for i in INSTRUCTIONS if i.word == word and stage in {None, i.stage}]


# -- rules ----------------------------------------------------------------------------------------------------------


HADOLINT = ROOT / ".venv-audit" / "bin" / "hadolint"


@pytest.mark.skipif(
    not HADOLINT.exists() and not os.environ.get("AIM_TEST_LONG"),
    reason="the linter is not installed: `make sbom` installs it, and `make test-long` does",
)
def test_the_linter_finds_nothing() -> None:
    subprocess.run(["make", ".venv-audit/.installed"], cwd=ROOT, capture_output=True, timeout=300, check=True)
    done = subprocess.run([HADOLINT, "--no-color", DOCKERFILE], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (0, ""), done.stdout + done.stderr


def test_all_instructions_are_known() -> None:
    known = {
        "ARG",
        "FROM",
        "ENV",
        "WORKDIR",
        "COPY",
        "RUN",
        "LABEL",
        "USER",
        "EXPOSE",
        "HEALTHCHECK",
        "ENTRYPOINT",
        "CMD",
    }
    assert {i.word for i in INSTRUCTIONS} <= known


def test_bases_are_one_release() -> None:
    assert of("ARG")[0].startswith("PYTHON_IMAGE=")
    assert re.fullmatch(r"PYTHON_IMAGE=python:\d+\.\d+\.\d+-slim-[a-z]+(@sha256:[0-9a-f]{64})?", of("ARG")[0])
    assert all(text.split()[0] == "${PYTHON_IMAGE}" for text in of("FROM"))


def test_the_base_has_a_supported_python() -> None:
    version = re.search(r"python:(\d+)\.(\d+)", of("ARG")[0])
    assert version
    assert (int(version[1]), int(version[2])) == sys.version_info[:2], "the lock is made for this one"


def test_the_result_runs_as_an_ordinary_user() -> None:
    assert of("USER", 1) == ["1000:1000"]
    assert json.loads(of("ENTRYPOINT", 1)[0]) == ["aim-adapters"]
    assert json.loads(of("CMD", 1)[0]) == ["serve"]
    last_run = max(n for n, i in enumerate(INSTRUCTIONS) if i.word == "RUN")
    assert next(n for n, i in enumerate(INSTRUCTIONS) if i.word == "USER") > last_run, "no step after it needs root"


def test_only_the_environment_is_carried_over() -> None:
    assert of("COPY", 1) == ["--from=build /opt/aim-adapters /opt/aim-adapters"]
    assert not [text for text in of("RUN", 1) if "install" in text and "uninstall" not in text]


def test_every_installation_is_by_hash_or_local() -> None:
    steps = [step for text in of("RUN") for step in text.split(" && ") if "pip" in step and " install " in step]
    assert len(steps) == 3
    for step in steps:
        assert "--require-hashes" in step or "--no-index" in step
        assert "--only-binary :all:" in step or "--no-index" in step


def test_labels_and_health_check() -> None:
    labels = " ".join(of("LABEL", 1))
    for name in ("title", "description", "licenses", "version", "revision", "base.name"):
        assert f"org.opencontainers.image.{name}=" in labels
    assert "/healthz" in of("HEALTHCHECK", 1)[0]


def test_no_secret_is_asked_for() -> None:
    text = DOCKERFILE.read_text()
    assert not re.search(r"(?i)password|secret|token|https?://(?!127\.0\.0\.1)", text.replace("# syntax", ""))


def test_what_is_copied_is_not_ignored() -> None:
    rules = [line for line in (ROOT / ".dockerignore").read_text().splitlines() if line and not line.startswith("#")]
    assert rules[0] == "*"
    wanted = {name for text in of("COPY", 0) for name in text.split()[:-1]}
    assert {rule[1:] for rule in rules if rule.startswith("!")} == wanted
    packages = set(re.findall(r'"([a-z]+)"', re.search(r"^packages = \[(.*)\]$", _pyproject(), re.MULTILINE)[1]))  # type: ignore[index]
    assert packages <= wanted, "a package of the project is missing in the image"


def test_the_build_lock_is_part_of_the_development_lock() -> None:
    everything = _pins(ROOT / "requirements-dev.lock")
    assert set(_pins(ROOT / "requirements-build.lock").items()) <= set(everything.items()), "run `make lock`"


def _pyproject() -> str:
    return (ROOT / "pyproject.toml").read_text()


def _plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _pins(path: Path) -> dict[str, str]:
    return dict(re.findall(r"^([A-Za-z0-9._-]+)==([^ ;\\]+)", path.read_text(), re.MULTILINE))


# -- the steps ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Run the build stage with its folders in a clean directory; return what stands for /opt/aim-adapters."""
    root = tmp_path_factory.mktemp("image")
    moved = {"/opt/aim-adapters": f"{root}/opt/aim-adapters", "/src": f"{root}/src"}
    run_stage(0, root, moved)
    return root / "opt" / "aim-adapters"


def run_stage(stage: int, root: Path, moved: dict[str, str], programs: str = str(Path(sys.executable).parent)) -> None:
    """Run the instructions of a stage below `root`, with the folders that they name moved there."""
    environment = {**os.environ, "PATH": f"{programs}:/usr/bin:/bin"}
    environment.pop("PYTHONPATH", None)
    folder = root
    for instruction in (i for i in INSTRUCTIONS if i.stage == stage):
        text = instruction.text
        for path, other in moved.items():
            text = re.sub(rf"(?<![\w/.]){re.escape(path)}(?=[/\s]|$)", other, text)
        match instruction.word:
            case "ENV":
                environment |= dict(pair.split("=", 1) for pair in text.split())
            case "WORKDIR":
                folder = Path(text)
                folder.mkdir(parents=True)
            case "COPY":
                *names, target = text.split()
                for name in names:
                    _copy(ROOT / name, folder / target if target != "./" else folder / name)
            case "RUN":
                done = subprocess.run(
                    ["/bin/sh", "-ec", text],
                    cwd=folder,
                    env=environment,
                    capture_output=True,
                    text=True,
                    timeout=500,
                    check=False,
                )
                if done.returncode != 0:
                    pytest.fail(f"RUN {text}\n{done.stdout}{done.stderr}")


def _copy(source: Path, target: Path) -> None:
    if source.is_dir():
        shutil.copytree(source, target, ignore=lambda _, names: [n for n in names if fnmatch(n, "__pycache__")])
    else:
        shutil.copy2(source, target)


def run_in_image(built: Path, tmp_path: Path, *argv: str) -> subprocess.CompletedProcess[str]:
    """Run a program as a container would: the image's variables, and none of the test's."""
    environment = {"PATH": f"{built}/bin:/usr/bin:/bin", "HOME": str(tmp_path), "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(argv, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize("command", ["serve", "disk"])
def test_the_entry_point_works(built: Path, tmp_path: Path, command: str) -> None:
    program, *_ = json.loads(of("ENTRYPOINT", 1)[0])
    done = run_in_image(built, tmp_path, str(built / "bin" / program), command, "--help")
    assert done.returncode == 0, done.stderr
    assert "Usage" in done.stdout


def test_serve_reads_its_settings_and_misses_only_a_cluster(built: Path, tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("healthPort: 0\nadmissionPort: 0\n")
    argv = (str(built / "bin" / "aim-adapters"), "serve", f"--config={tmp_path}/config.yaml")
    done = run_in_image(built, tmp_path, *argv)
    assert done.returncode == 2
    assert "no credentials for a cluster" in done.stdout + done.stderr


def test_the_result_can_install_nothing_and_holds_no_tests(built: Path, tmp_path: Path) -> None:
    python = str(built / "bin" / "python")
    for module in ("pip", "setuptools", "hatchling", "pytest", "hypothesis", "boto3", "uv"):
        done = run_in_image(built, tmp_path, python, "-c", f"import {module}")
        assert "No module named" in done.stderr, f"{module} is in the image"
    assert "/src" not in run_in_image(built, tmp_path, python, "-c", "import app; print(app.__file__)").stdout


def test_the_image_contains_the_product_and_nothing_else_of_the_checkout(built: Path) -> None:
    (packages,) = (built / "lib").glob("python*/site-packages")
    product = set(re.findall(r'"([a-z]+)"', re.search(r"^packages = \[(.*)\]$", _pyproject(), re.MULTILINE)[1]))  # type: ignore[index]
    found = {path.name for path in packages.iterdir()}
    assert product <= found
    folders = {path.name for path in ROOT.iterdir() if path.is_dir() and path.name[0] not in "._"}
    assert {"devcluster", "tools", "tests"} <= folders - product
    assert not found & (folders - product)


def test_versions_are_those_of_the_lock(built: Path, tmp_path: Path) -> None:
    code = "import importlib.metadata as m, json; print(json.dumps({d.name: d.version for d in m.distributions()}))"
    found = json.loads(run_in_image(built, tmp_path, str(built / "bin" / "python"), "-c", code).stdout)
    pins = {
        re.sub(r"[-_.]+", "-", name).lower(): version for name, version in _pins(ROOT / "requirements.lock").items()
    }
    for name, version in found.items():
        if name != "aim-adapters":
            assert pins[re.sub(r"[-_.]+", "-", name).lower()] == version


def test_the_last_step_leaves_nothing_that_installs(tmp_path: Path) -> None:
    """The second stage's step, on a Python of its own that stands for the base's in /usr/local."""
    python = tmp_path / "usr" / "local"
    subprocess.run([sys.executable, "-m", "venv", str(python)], check=True, timeout=120)
    (python / "lib" / "python3.11" / "ensurepip").mkdir()
    steps = [i for i in INSTRUCTIONS if i.stage == 1 and i.word == "RUN"]
    (step,) = steps
    text = step.text.replace("/usr/local/", f"{python}/")
    assert str(python) in text
    environment = {"PATH": f"{python}/bin:/usr/bin:/bin", "HOME": str(tmp_path)}
    subprocess.run(["/bin/sh", "-ec", text], cwd=tmp_path, env=environment, check=True, timeout=60, capture_output=True)
    assert not [path for path in (python / "lib" / "python3.11").rglob("*") if path.name in {"pip", "ensurepip"}]


@pytest.mark.parametrize(("answer", "alive"), [(200, True), (503, False), (None, False)])
def test_the_health_check_knows_alive_from_dead(built: Path, tmp_path: Path, answer: int | None, alive: bool) -> None:
    class Health(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(answer if answer is not None and self.path == "/healthz" else 404)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Health) as server:
        port = server.server_address[1]
        threading.Thread(target=server.serve_forever, daemon=True).start()
        if answer is None:
            server.shutdown()
            server.server_close()
        argv = json.loads(of("HEALTHCHECK", 1)[0].partition("CMD ")[2])
        argv[-1] = argv[-1].replace(":8080", f":{port}")
        done = run_in_image(built, tmp_path, *argv)
        server.shutdown()
    assert (done.returncode == 0) == alive
