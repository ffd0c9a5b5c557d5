"""The launcher for real, in each way of keeping containers apart that this machine allows."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from devcluster.node.process import LAUNCHER, Isolation, Launch, Mount, Process, StartError, choose_mode, rewrite
from devcluster.node.resolve import DEFAULT_PATH, Identity

REPOSITORY = str(Path(__file__).parents[4])
PYTHON_PATHS = (REPOSITORY, sys.prefix, sys.base_prefix)


def probe(mode: str) -> bool:
    place = Path("/tmp") / f"aim-dev-probe-{os.getpid()}"
    command = [sys.executable, "-I", "-S", str(LAUNCHER), "probe", mode, str(place)]
    done = subprocess.run(command, capture_output=True, check=False)
    shutil.rmtree(place, ignore_errors=True)
    return done.returncode == 0


ALLOWED = [mode for mode in ("root", "user") if (mode == "user" or os.geteuid() == 0) and probe(mode)]
needs_root = pytest.mark.skipif("root" not in ALLOWED, reason="becoming another user needs root and namespaces")
isolated = pytest.mark.parametrize("mode", ALLOWED)
every_mode = pytest.mark.parametrize("mode", [*ALLOWED, "none"])

Run = Callable[..., "tuple[int, str]"]


class Box:
    """Runs one command in a container of its own and returns its exit code and output."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.expose: tuple[str, ...] = PYTHON_PATHS
        (folder / "root").mkdir()

    def isolation(self, mode: str) -> Isolation:
        return Isolation(mode, self.folder / "root", self.expose)

    def launch(self, *argv: str, uid: int = 0, **fields: object) -> Launch:
        who = Identity(uid=uid, gid=uid, groups=(), capabilities=(), no_new_privileges=True)
        given = {"env": {"PATH": DEFAULT_PATH}, "cwd": "/", "identity": who, "hostname": "box"} | fields
        return Launch(argv=argv, message_path="/dev/termination-log", scratch=str(self.folder), **given)  # type: ignore[arg-type]

    async def start(self, mode: str, launch: Launch) -> Process:
        with (self.folder / "log").open("wb") as log:
            return await Process.start(self.isolation(mode), launch, log)

    async def run(self, mode: str, *argv: str, **fields: object) -> tuple[int, str]:
        process = await self.start(mode, self.launch(*argv, **fields))  # type: ignore[arg-type]
        return await process.wait(), self.log()

    def log(self) -> str:
        return (self.folder / "log").read_text()


@pytest.fixture
def box(tmp_path: Path) -> Box:
    return Box(tmp_path)


def test_some_isolation_is_tested_here_or_the_kernel_forbids_it() -> None:
    forbidden = Path("/proc/sys/user/max_user_namespaces")
    assert ALLOWED or not forbidden.exists() or forbidden.read_text().strip() == "0" or not probe("user")


@every_mode
async def test_exit_codes(box: Box, mode: str) -> None:
    assert await box.run(mode, "sh", "-c", "echo out; echo err >&2; exit 5") == (5, "out\nerr\n")
    assert (await box.run(mode, "sh", "-c", "ulimit -c 0; sh -c 'kill -SEGV $$'; exit $?"))[0] == 139


@every_mode
async def test_unknown_program_is_reported(box: Box, mode: str) -> None:
    with pytest.raises(StartError, match=r'exec: "nope": executable file not found in \$PATH') as caught:
        await box.run(mode, "nope")
    assert caught.value.stage == "exec"


@isolated
async def test_process_is_the_first_of_its_own_namespace(box: Box, mode: str) -> None:
    code, out = await box.run(mode, "sh", "-c", "echo $$; hostname; ls /proc | grep -c '^[0-9]'")
    assert (code, out.splitlines()[:2]) == (0, ["1", "box"])
    assert int(out.splitlines()[2]) < 10


@isolated
async def test_the_host_shows_only_its_system_read_only(box: Box, mode: str) -> None:
    code, out = await box.run(mode, "sh", "-c", "ls -A /home /mnt /tmp; touch /usr/x /etc/x; touch /tmp/x && ls /tmp")
    assert code == 0
    assert out.count("Read-only file system") == 2
    assert out.endswith("x\n")


@isolated
async def test_mounts_need_no_place_on_the_host(box: Box, mode: str) -> None:
    for name in ("a", "b", "c"):
        (box.folder / name).mkdir()
        (box.folder / name / "file").write_text(name)
    mounts = (
        Mount(str(box.folder / "a"), "/adapters", True),
        Mount(str(box.folder / "b"), "/etc/aim/deep", False),
        Mount(str(box.folder / "c" / "file"), "/usr/local/one.txt", True),
    )
    script = (
        "cat /adapters/file /etc/aim/deep/file /usr/local/one.txt; touch /adapters/x /etc/aim/deep/x; [ -s /etc/group ]"
    )
    code, out = await box.run(mode, "sh", "-c", script, mounts=mounts, read_only_root=True)
    assert code == 0
    assert out.startswith("abc")
    assert "Read-only file system" in out
    assert (box.folder / "b" / "x").exists()
    assert not (box.folder / "a" / "x").exists()


@isolated
async def test_root_may_not_undo_read_only(box: Box, mode: str) -> None:
    (box.folder / "v").mkdir()
    mounts = (Mount(str(box.folder / "v"), "/v", True),)
    code, _ = await box.run(mode, "sh", "-c", "mount -o remount,rw,bind /v; touch /v/x", mounts=mounts)
    assert code != 0


@isolated
@pytest.mark.parametrize("closed", ["parent", "itself"])
async def test_code_below_a_closed_directory_is_reachable_by_any_user(box: Box, mode: str, closed: str) -> None:
    checkout = box.folder / "closed" / "checkout"
    (checkout / "package").mkdir(parents=True)
    (checkout / "package" / "__init__.py").write_text("print('imported')\n")
    (checkout if closed == "itself" else checkout.parent).chmod(0o700)
    box.expose = (*PYTHON_PATHS, str(checkout))
    env = {"PATH": DEFAULT_PATH, "PYTHONPATH": str(checkout)}
    result = await box.run(mode, sys.executable, "-c", "import package", uid=1000, env=env, read_only_root=True)
    assert result == (0, "imported\n")


@isolated
async def test_symlink_on_the_way_to_exposed_code(box: Box, mode: str) -> None:
    real = box.folder / "real"
    real.mkdir()
    (real / "f").write_text("through\n")
    (box.folder / "link").symlink_to("real")
    box.expose = (str(box.folder / "link"),)
    assert await box.run(mode, "cat", str(box.folder / "link" / "f")) == (0, "through\n")


@needs_root
async def test_user_groups_and_capabilities(box: Box) -> None:
    who = Identity(uid=4711, gid=4712, groups=(4713,), capabilities=(), no_new_privileges=True)
    script = "id -u; id -g; id -G; grep -E 'CapBnd|NoNewPrivs' /proc/self/status | tr -d '\\t'"
    code, out = await box.run("root", "sh", "-c", script, identity=who)
    assert (code, out.split()) == (0, ["4711", "4712", "4712", "4713", "CapBnd:0000000000000000", "NoNewPrivs:1"])


@isolated
async def test_user_of_the_container(box: Box, mode: str) -> None:
    assert await box.run(mode, "id", "-u", uid=1000) == (0, "1000\n")


@every_mode
async def test_sigterm_reaches_the_process_and_kill_its_children(box: Box, mode: str) -> None:
    script = "trap 'echo term' TERM; setsid sleep 654321 & echo up; while :; do sleep 0.05; done"
    process = await box.start(mode, box.launch("sh", "-c", script))
    await _until(lambda: "up" in box.log())
    process.terminate()
    await _until(lambda: "term" in box.log())
    process.kill()
    assert await process.wait() == 137
    await _until(lambda: not _processes("654321"))


@every_mode
async def test_processes_die_with_their_parent(box: Box, mode: str) -> None:
    program = f"""
import asyncio, sys
from pathlib import Path
from devcluster.node.process import *
from devcluster.node.resolve import Identity
async def main():
    isolation = Isolation({mode!r}, Path({str(box.folder / "root")!r}), ())
    who = Identity(0, 0, (), (), True)
    script = "setsid sleep 543210 & sleep 543210"
    launch = Launch(("sh", "-c", script), {{"PATH": "/usr/bin:/bin"}}, "/", who, "box", "/m", {str(box.folder)!r})
    with open({str(box.folder / "log")!r}, "wb") as log:
        await Process.start(isolation, launch, log)
    print("up", flush=True)
    await asyncio.sleep(60)
asyncio.run(main())
"""
    command = [sys.executable, "-c", program]
    parent = subprocess.Popen(command, stdout=subprocess.PIPE, cwd=REPOSITORY)  # noqa: ASYNC220 (it starts at once)
    assert parent.stdout is not None
    assert parent.stdout.readline() == b"up\n"
    await _until(lambda: len(_processes("543210")) >= 3)
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    parent.stdout.close()
    await _until(lambda: not _processes("543210"))


@every_mode
async def test_a_command_runs_inside_a_running_container(box: Box, mode: str) -> None:
    (box.folder / "v").mkdir()
    mounts = (Mount(str(box.folder / "v"), "/v", False),)
    (box.folder / "v").chmod(0o777)
    process = await box.start(mode, box.launch("sleep", "60", uid=1000, mounts=mounts))
    assert await process.run_inside(["sh", "-c", "echo in > /v/x; cat /v/x; exit 3"], 10) == (3, "in\n")
    assert (box.folder / "v" / "x").read_text() == "in\n"
    if mode != "none":
        assert (await process.run_inside(["id", "-u"], 10))[1] == "1000\n"
    with pytest.raises(TimeoutError):
        await process.run_inside(["sleep", "50"], 0.3)
    process.kill()
    await process.wait()


async def test_without_namespaces_paths_lead_to_the_real_directories(box: Box) -> None:
    (box.folder / "cache").mkdir()
    (box.folder / "cache" / "w").write_text("weights\n")
    mounts = (Mount(str(box.folder / "cache"), "/workspace/cache/acme/tiny", True),)
    env = {"PATH": DEFAULT_PATH, "AIM_CACHE_PATH": "/workspace/cache", "OTHER": "/workspaces/cache"}
    script = 'cat "$AIM_CACHE_PATH/acme/tiny/w" /workspace/cache/acme/tiny/w; echo $OTHER'
    code, out = await box.run("none", "sh", "-c", script, mounts=mounts, env=env)
    assert (code, out) == (0, "weights\nweights\n/workspaces/cache\n")


@pytest.mark.skipif(os.geteuid() != 0, reason="everything here runs without root already")
def test_user_namespace_without_root() -> None:
    python = shutil.which("python3", path="/usr/bin:/bin")
    if python is None or "user" not in ALLOWED:
        pytest.skip("no interpreter that another user may run, or no user namespaces")
    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        folder = Path(name)
        folder.chmod(0o755)
        script = shutil.copy(LAUNCHER, folder / "launch.py")
        root = folder / "mine"
        root.mkdir()
        os.chown(root, 65534, 65534)
        command = [python, "-I", "-S", str(script), "probe", "user", str(root)]
        done = subprocess.run(command, user=65534, group=65534, extra_groups=[], capture_output=True, check=False)
    assert done.returncode == 0, done.stderr


async def test_a_demanded_mode_that_does_not_work_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("devcluster.node.process.LAUNCHER", tmp_path / "absent.py")
    with pytest.raises(ValueError, match='isolation "user" does not work on this machine'):
        await choose_mode(tmp_path, "user")
    mode, notice = await choose_mode(tmp_path)
    assert mode == "none"
    assert "read-only is not enforced" in notice


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("/adapters", "/t/adapters"),
        ("--in=/adapters/x,/adapters", "--in=/t/adapters/x,/t/adapters"),
        ("/adapters2 /my/adapters", "/adapters2 /my/adapters"),
        ('{"p": "/work-space/cache"}', '{"p": "/t/work-space/cache"}'),
        ("/etc/passwd", "/etc/passwd"),
    ],
)
def test_rewriting_of_paths(text: str, expected: str) -> None:
    mounts = [
        Mount("/real/a", "/adapters", True),
        Mount("/real/b", "/work-space/cache/x/", True),
        Mount("/c", "/etc/c", True),
    ]
    assert rewrite(text, mounts, "/t") == expected


def test_orders_travel_on_standard_input_only(box: Box) -> None:
    orders = json.dumps({"env": {"SECRET": "x"}})
    done = subprocess.run(
        [sys.executable, "-I", "-S", str(LAUNCHER), "run"], input=orders.encode(), capture_output=True, check=False
    )
    assert done.returncode != 0


async def _until(check: Callable[[], bool], seconds: float = 10) -> None:
    deadline = time.monotonic() + seconds
    while not check():
        assert time.monotonic() < deadline
        time.sleep(0.02)  # noqa: ASYNC251 (nothing else runs on this loop)


def _processes(word: str) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and word in (entry / "cmdline").read_text():
                found.append(int(entry.name))
        except (OSError, UnicodeDecodeError):
            continue
    return found
