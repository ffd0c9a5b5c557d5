"""`dev up` and the demo where something is not as it should be: words that say what to do, and never a traceback."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from devcluster import binaries, demo, front
from devcluster.folder import Layout, hold, is_running
from devcluster.node.process import last_words
from devcluster.progress import StepError
from devcluster.ranges import NoRangeError, reserve
from devcluster.startup import check_room, compile_packages


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    for place in (tmp_path / "file", tmp_path / "file" / "below", Path("/proc/1/nowhere")):
        out = io.StringIO()
        assert front.bring_up(place, {}, fresh=False, bare=True, out=out) == 1
        assert "expected:" in out.getvalue()
        assert "Traceback" not in out.getvalue()


def test_a_folder_with_other_files_is_not_emptied(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("x")
    out = io.StringIO()
    assert front.bring_up(tmp_path, {}, fresh=True, bare=True, out=out) == 1
    assert "choose another --dir" in out.getvalue()
    assert (tmp_path / "thesis.tex").exists()
    os.close(hold(Layout(tmp_path)))  # its lock was given back


def test_a_guard_that_cannot_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise subprocess.CalledProcessError(1, ["guard"])

    monkeypatch.setattr(subprocess, "run", fail)
    out = io.StringIO()
    assert front.bring_up(tmp_path / "c", {}, fresh=False, bare=True, out=out) == 1
    assert "supervisor.log" in out.getvalue()


def test_an_interrupt_at_each_stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(front, "_STOP_S", 1.0)
    for where, name in ((front, "hold"), (front, "empty"), (subprocess, "run"), (front, "_listen")):
        with monkeypatch.context() as patch:
            patch.setattr(subprocess, "run", lambda *_, **__: None)
            patch.setattr(where, name, interrupt)
            out = io.StringIO()
            assert front.bring_up(tmp_path / name, {}, fresh=True, bare=True, out=out) == 130
            assert out.getvalue().startswith("interrupted")
        assert not is_running(Layout(tmp_path / name)), "nothing holds the folder any more"


def test_ranges_that_cannot_be_locked(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(NoRangeError, match="AIM_DEV_RANGES_DIR"):
        reserve(tmp_path, lock_dir=tmp_path / "file" / "ranges")


def test_a_cache_that_cannot_be_written_and_a_user_without_a_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(StepError, match="AIM_ADAPTERS_CACHE"):
        binaries._made(tmp_path / "file" / "cache")

    def nobody() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", nobody)
    for name in ("AIM_ADAPTERS_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    assert binaries.cache_dir().is_absolute()


def test_a_full_disk_is_reported_before_anything_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    check_room(tmp_path)
    full = os.statvfs_result((4096, 4096, 1000, 10, 10, 1, 1, 1, 0, 255))
    monkeypatch.setattr(os, "statvfs", lambda _: full)
    with pytest.raises(StepError, match="300 MB free") as caught:
        check_room(tmp_path)
    assert caught.value.seen.startswith("0 MB free")


def test_packages_are_compiled_for_pods(tmp_path: Path) -> None:
    for name in ("api", "tests"):
        (tmp_path / name / "below").mkdir(parents=True)
        (tmp_path / name / "__init__.py").write_text("")
        (tmp_path / name / "below" / "wrong.py").write_text("no python")
    (tmp_path / "notes").mkdir()
    compile_packages(tmp_path)
    assert [path.parent for path in tmp_path.rglob("*.pyc")] == [tmp_path / "api" / "__pycache__"]


def test_what_killed_builds_left_is_removed(tmp_path: Path) -> None:
    (tmp_path / ".build-abc").mkdir()
    (tmp_path / ".build-abc" / "etcd").write_text("half")
    (tmp_path / "bin").mkdir()
    binaries._sweep(tmp_path)
    assert os.listdir(tmp_path) == ["bin"]


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_a_terminal_that_does_not_know_our_letters(encoding: str) -> None:
    stream = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    front.plain(stream).write("… waiting — for 日本\n")
    stream.flush()
    assert stream.buffer.getvalue().endswith(b"\n")


# -- the demo -------------------------------------------------------------------------------------------------------


@pytest.fixture
def quiet_cluster(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """No cluster is started: what the demo would have done with one is noted."""
    done: list[str] = []
    monkeypatch.setattr(demo, "bring_up", lambda *_, **__: done.append("up") or 0)
    monkeypatch.setattr(demo, "take_down", lambda *_, **__: done.append("down") or 0)
    monkeypatch.setattr(demo, "gather", lambda _: {"kubectl": "/bin/false", "kubeconfig": "none"})
    return done


def test_a_step_that_fails_says_expected_and_seen(
    quiet_cluster: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Here kubectl fails in every way: the cluster is stopped all the same."""
    assert demo.main(["--dir", str(tmp_path / "demo")]) == 1
    said = capsys.readouterr().out
    assert "FAILED\n  expected: kubectl succeeds\n  seen: " in said
    assert quiet_cluster == ["up", "down"]


@pytest.mark.parametrize("error", [KeyError("status"), TypeError("x"), subprocess.TimeoutExpired("kubectl", 60)])
def test_a_step_that_meets_the_unexpected_says_so(
    error: Exception,
    quiet_cluster: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def broken(self: demo.Demo, *_: Any, **__: Any) -> None:
        raise error

    monkeypatch.setattr(demo.Demo, "run", broken)
    assert demo.main(["--dir", str(tmp_path / "demo")]) == 1
    said = capsys.readouterr().out
    assert "expected: Apply the worked example" in said
    assert f"seen: {type(error).__name__}" in said
    assert quiet_cluster == ["up", "down"]


def test_an_interrupted_demo_stops_what_it_started(
    quiet_cluster: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupt(self: demo.Demo, *_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(demo.Demo, "run", interrupt)
    assert demo.main(["--dir", str(tmp_path / "demo"), "--keep"]) == 130
    assert "interrupted" in capsys.readouterr().out
    assert quiet_cluster == ["up", "down"]


def test_a_second_demo_does_not_delete_the_cluster_of_the_first(
    quiet_cluster: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with demo._alone(tmp_path / "demo"):
        assert demo.main(["--dir", str(tmp_path / "demo")]) == 1
    assert "another demo" in capsys.readouterr().out
    assert quiet_cluster == []


def test_a_failed_wait_shows_the_state_even_when_nothing_answers(tmp_path: Path) -> None:
    told = demo.Demo({"kubectl": "/bin/false", "kubeconfig": "none"})._state(None)
    assert "does not answer" in told


def test_what_is_applied_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    told = demo.Demo({"kubectl": "/bin/true", "kubeconfig": "none"})
    told.run("apply", "-f", "-", stdin=demo._service("chat", ["support-de"]))
    said = capsys.readouterr().out
    assert said.startswith("$ kubectl apply -f - <<'EOF'\n    apiVersion: aim.eai.amd.com/v1alpha2\n")
    assert "      - name: support-de\n        kind: AIMArtifact\n" in said


def test_a_proxy_in_the_environment_is_not_used_for_loopback(monkeypatch: pytest.MonkeyPatch) -> None:
    class Models(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(json.dumps({"data": [{"id": "base"}]}).encode())

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Models)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
            monkeypatch.setenv(name, "http://127.0.0.1:9")
        monkeypatch.delenv("no_proxy", raising=False)
        url = f"http://127.0.0.1:{server.server_address[1]}"
        monkeypatch.setattr(demo.Demo, "isvc", lambda self, service: {"status": {"url": url}})
        assert demo.Demo({}).models("any") == ["base"]
    finally:
        server.shutdown()
        server.server_close()


def test_no_module_needs_a_home_or_a_locale() -> None:
    """The commands print their help with an almost empty environment, and to a terminal that knows ASCII only."""
    environment = {"PATH": "/usr/bin:/bin", "LC_ALL": "C", "PYTHONIOENCODING": "ascii", "PYTHONPATH": os.getcwd()}
    done = subprocess.run(
        [sys.executable, "-m", "devcluster.cli", "--help"], env=environment, capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("output", "words"),
    [
        (b"", "no word"),
        (b"Traceback (most recent call last):\n  File x\nLookupError: unknown\n\n", "LookupError: unknown"),
        (b"\xff\n", "\ufffd"),
        (b"x" * 1000, "x" * 300),
    ],
)
def test_a_notice_is_one_line(output: bytes, words: str) -> None:
    """What the node cannot do on this machine is one line, with the reason alone."""
    assert last_words(output) == words
