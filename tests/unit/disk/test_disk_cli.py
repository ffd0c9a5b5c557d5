"""The commands as a Job runs them: a process, arguments, a termination message, an exit code; no secret anywhere."""

from __future__ import annotations

import io
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import asdict

from api.jobs import (
    FetchSpec,
    JobResult,
    JobSpec,
    ReapSpec,
    StageSpec,
    SyncSpec,
    parse_termination_message,
    read_progress,
)
from api.reasons import JOB_REASONS
from api.words import size
from devcluster.sources.hub import HubServer
from devcluster.sources.s3 import S3Server
from disk import job
from disk.job import execute
from disk.progress import Meter, describe, serve_progress
from tests.unit.disk.conftest import ACCESS_KEY, SECRET_KEY, TOKEN
from tests.unit.disk.world import adapter, fetch_spec, look, reap_spec, stage_spec, sync_spec

ROOT = Path(__file__).parents[3]
A = adapter(1)
SPECS: dict[str, type[JobSpec]] = {"stage": StageSpec, "sync": SyncSpec, "reap": ReapSpec, "fetch": FetchSpec}


@dataclass
class Run:
    """How a process ended."""

    code: int
    output: str
    result: JobResult | None


def command(name: str, spec: JobSpec | None, *more: str) -> list[str]:
    return [sys.executable, "-m", "disk.job", name, *(spec.to_args() if spec else []), *more]


def environment(**extra: str) -> dict[str, str]:
    """A Job's environment: no HOME; this checkout instead of an installed program."""
    return {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), **extra}


def run(folder: Path, name: str, spec: JobSpec | None, *more: str, **extra: str) -> Run:
    log = folder / "termination-log"
    log.write_text("")
    done = subprocess.run(
        command(name, spec, f"--termination-log={log}", *more),
        env=environment(**extra),
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return Run(done.returncode, done.stdout + done.stderr, parse_termination_message(log.read_text()))


def publish(server: HubServer | S3Server, place: str, files: dict[str, bytes]) -> None:
    folder = Path(server.root.path) / place
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in files.items():
        (folder / name).write_bytes(data)


def test_from_staging_to_reaping(folder: Path, hub: HubServer) -> None:
    publish(hub, "acme/a", A)
    disk = folder / "disk"
    disk.mkdir()
    settings = {"HF_ENDPOINT": hub.endpoint, "HF_TOKEN": TOKEN}
    steps: list[tuple[str, JobSpec, str]] = [
        ("sync", sync_spec(disk, "u1", "a"), "SubtreeSynced"),
        ("stage", stage_spec(disk, "u1", "a"), "AdapterStaged"),
        ("stage", stage_spec(disk, "u1", "a"), "AlreadyStaged"),
        ("reap", reap_spec(disk, "u1", listed_at=time.time()), "DiskReaped"),
        ("fetch", fetch_spec(disk / "u1" / "..", source_uri="hf://acme/a", measure=True), "ModelMeasured"),
    ]
    for name, spec, reason in steps:
        ended = run(folder, name, spec, **settings)
        assert ended.result is not None, ended.output
        assert (ended.code, ended.result.ok, ended.result.reason) == (0, True, reason), ended.output
    assert look(disk / "u1", {"a": [A]}) == {"a": A}
    shown = subprocess.run(
        command("inspect", None, f"--disk={disk}"), env=environment(), capture_output=True, text=True, check=True
    )
    assert re.search(r"u1 +a +Live", shown.stdout)


def test_failures_exit_with_one(folder: Path, hub: HubServer) -> None:
    disk = folder / "disk"
    disk.mkdir()
    run(folder, "sync", sync_spec(disk, "u1", "a"))
    ended = run(folder, "stage", stage_spec(disk, "u1", "a"), HF_ENDPOINT=hub.endpoint, HF_TOKEN=TOKEN)
    assert ended.code == 1
    assert ended.result is not None
    assert (ended.result.ok, ended.result.reason) == (False, "SourceRepositoryNotFound")
    assert ended.result.key == "key-u1-a"
    assert "Traceback" not in ended.output


WRONG = {
    "missing options": ([], "--service-uid"),
    "not a number": (["--generation=x"], "--generation"),
    "unknown option": (["--nonsense=1"], None),
    "a path that is none": (
        ["--namespace=n", "--service=s", "--service-uid=u", "--generation=1", "--sync-key=k", "--declared=../x"],
        "..",
    ),
    "a disk that is none": (
        ["--disk=/proc/nothing", "--namespace=n", "--service=s", "--service-uid=u", "--generation=1", "--sync-key=k"],
        None,
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_command_lines(folder: Path, name: str) -> None:
    arguments, shown = WRONG[name]
    ended = run(folder, "sync", None, *arguments)
    assert ended.code != 0
    assert "Traceback" not in ended.output
    if shown is not None:
        assert ended.result is not None
        assert ended.result.reason == "SpecificationInvalid"
        assert shown in ended.result.message


@pytest.mark.parametrize("name", SPECS)
def test_every_field_is_an_option_and_nothing_else(name: str) -> None:
    shown = subprocess.run(
        command(name, None, "--help"),
        env=environment(COLUMNS="200", TERM="dumb"),
        capture_output=True,
        text=True,
        check=True,
    )
    options = set(re.findall(r"--[a-z][a-z0-9-]*", shown.stdout)) - {"--help", "--termination-log"}
    assert options == {f"--{field.replace('_', '-')}" for field in SPECS[name].__struct_fields__}


LEFT = {
    "nothing": [],
    "help": ["sync", "--help"],
    "a value as a word of its own": ["sync", "--namespace", "n"],
    "an unknown option": ["sync", "--nonsense=1"],
    "the name of a field": ["sync", "--service_uid=u"],
    "another command": ["inspect", "--disk=/x"],
}


@pytest.mark.parametrize("name", LEFT)
def test_what_no_job_passes_is_left_to_the_library_of_the_command_line(name: str) -> None:
    assert job.run_plain(LEFT[name]) is None


@pytest.mark.parametrize("name", SPECS)
def test_a_job_starts_without_the_library_of_the_command_line(name: str, folder: Path) -> None:
    code = "import sys; from cli.main import main\ntry: main()\nfinally: print(sorted(sys.modules))"
    log = f"--termination-log={folder / 'log'}"
    done = subprocess.run(
        [sys.executable, "-c", code, "disk", name, log], env=environment(), capture_output=True, text=True, check=False
    )
    assert done.returncode == 1, done.stderr
    assert "SpecificationInvalid" in (folder / "log").read_text()
    assert not {"typer", "rich", "asyncio", "pydantic", "huggingface_hub", "botocore"} & set(
        re.findall(r"'(\w+)'", done.stdout.splitlines()[-1])
    )


def test_the_environment_sets_no_option(folder: Path) -> None:
    """Weak spot 11: what a tenant may write into a Job's environment cannot redirect the writer."""
    other = folder / "other"
    other.mkdir()
    disk = folder / "disk"
    disk.mkdir()
    names = {field for kind in SPECS.values() for field in kind.__struct_fields__}
    hostile = {
        f"{prefix}{field.upper()}": str(other)
        for field in names
        for prefix in ("", "DISK_", "AIMA_", "AIM_ADAPTERS_", "SYNC_", "DISK_SYNC_", "AIM_ADAPTERS_DISK_SYNC_")
    }
    ended = run(folder, "sync", sync_spec(disk, "u1", "a"), **hostile)
    assert ended.code == 0, ended.output
    assert os.listdir(other) == []
    assert (disk / "u1").is_dir()


def test_an_unexpected_fault_is_a_result_and_no_traceback(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def broken(spec: SyncSpec) -> JobResult:
        raise KeyError("hf_secretsecretsecret")

    values = asdict(sync_spec(folder, "u1"))
    result = execute(SyncSpec, values, broken, str(folder / "log"))
    assert (result.ok, result.reason, result.retriable) == (False, "InternalError", True)
    assert "test_disk_cli.py" in result.message
    assert "secretsecret" not in result.message + capsys.readouterr().out
    assert parse_termination_message((folder / "log").read_text()) == result


@pytest.mark.parametrize("encoding", ["ascii", "utf-8"])
def test_any_text_can_be_printed(encoding: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Arguments that are not valid text, and a terminal that knows ASCII only: the result is still written."""
    out = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    monkeypatch.setattr("sys.stdout", out)
    job.say("x\ud800 \u65e5")
    job.report(JobResult(ok=False, reason="SourceNameRefused", message="x\ud800\x1b \u65e5"), str(folder / "log"))
    assert b"SourceNameRefused" in out.buffer.getvalue()
    assert parse_termination_message((folder / "log").read_text()) is not None


def test_a_stopped_job_reports_it_and_the_next_one_resumes(folder: Path, hub: HubServer) -> None:
    """SIGTERM, then SIGKILL, in the middle of a download; the third Job continues where they ended."""
    big = A | {"adapter_model.safetensors": A["adapter_model.safetensors"], "tokenizer.json": os.urandom(8 << 20)}
    publish(hub, "acme/a", big)
    disk = folder / "disk"
    disk.mkdir()
    log = folder / "termination-log"
    run(folder, "sync", sync_spec(disk, "u1", "a"))
    hub.set_faults([{"match": "*tokenizer.json*", "slow_bytes_per_second": 4 << 20}])
    settings = environment(HF_ENDPOINT=hub.endpoint, HF_TOKEN=TOKEN)
    arrived = 0
    for number in (signal.SIGTERM, signal.SIGKILL):
        log.write_text("")
        job = subprocess.Popen(
            command("stage", stage_spec(disk, "u1", "a"), f"--termination-log={log}"),
            env=settings,
            stdout=subprocess.PIPE,
            text=True,
        )
        arrived = _wait_for_more(disk, arrived)
        job.send_signal(number)
        output, _ = job.communicate(timeout=20)
        assert "Traceback" not in output
        result = parse_termination_message(log.read_text())
        if number == signal.SIGTERM:
            assert job.returncode == 1
            assert result is not None
            assert (result.reason, result.retriable, result.key) == ("Interrupted", True, "key-u1-a")
        else:
            assert result is None
        assert look(disk / "u1", {}) == {}
    hub.set_faults([])
    mark = len(hub.requests())
    ended = run(folder, "stage", stage_spec(disk, "u1", "a"), HF_ENDPOINT=hub.endpoint, HF_TOKEN=TOKEN)
    assert ended.code == 0, ended.output
    assert look(disk / "u1", {"a": [big]}) == {"a": big}
    sent = [entry["bytes"] for entry in hub.requests()[mark:] if "tokenizer.json" in entry["path"]]
    assert sum(sent) <= (8 << 20) - arrived + 4096


def _wait_for_more(disk: Path, than: int) -> int:
    """Wait until more bytes of a download are on the disk; return how many."""
    end = time.monotonic() + 20
    while time.monotonic() < end:
        here = max((part.stat().st_size for part in disk.glob(".staging/get-*/part/*")), default=0)
        if here >= than + (1 << 20):
            return here
        time.sleep(0.01)
    raise AssertionError("no bytes arrive")


def test_no_secret_in_arguments_output_messages_or_on_the_disk(folder: Path, hub: HubServer, s3: S3Server) -> None:
    """Searches all that a Job leaves behind, after successes and failures, for every secret that it was given."""
    publish(hub, "acme/a", A)
    publish(s3, "bucket/b", adapter(2))
    disk = folder / "disk"
    disk.mkdir()
    run(folder, "sync", sync_spec(disk, "u1", "a", "b"))
    keys = {"AWS_ENDPOINT_URL": s3.endpoint, "AWS_ACCESS_KEY_ID": ACCESS_KEY, "AWS_SECRET_ACCESS_KEY": SECRET_KEY}
    token = {"HF_ENDPOINT": hub.endpoint, "HF_TOKEN": TOKEN}
    seen = ""
    for faults in ([], [{"status": 403}], [{"status": 401}], [{"status": 400, "message": TOKEN + SECRET_KEY}]):
        hub.set_faults(faults)
        s3.set_faults(faults)
        for spec in (
            stage_spec(disk, "u1", "a", fresh=True),
            stage_spec(disk, "u1", "b", fresh=True, source_uri="s3://bucket/b"),
        ):
            ended = run(folder, "stage", spec, **token, **keys)
            assert ended.result is not None
            assert ended.result.ok == (not faults)
            seen += ended.output + ended.result.to_termination_message() + " ".join(command("stage", spec))
    for path in disk.rglob("*"):
        seen += str(path) + (path.read_bytes().decode(errors="replace") if path.is_file() else "")
    for secret in (TOKEN, ACCESS_KEY, SECRET_KEY):
        assert secret not in seen


def test_memory_is_bounded(folder: Path, hub: HubServer, s3: S3Server) -> None:
    """400 MB through each client cost no more than 150 MB."""
    size = 400 << 20
    for server, place in ((hub, "acme/a"), (s3, "bucket/b")):
        publish(server, place, A)
        with (Path(server.root.path) / place / "tokenizer.json").open("wb") as stream:
            stream.truncate(size)
    disk = folder / "disk"
    disk.mkdir()
    run(folder, "sync", sync_spec(disk, "u1", "a", "b"))
    measure = (
        "import sys; from disk.cli import cli\n"
        "try: cli(sys.argv[1:])\n"  # VmHWM: getrusage would count the process that started this one, too
        "finally: print('peak', int(open('/proc/self/status').read().split('VmHWM:')[1].split()[0]) // 1024)\n"
    )
    keys = {"AWS_ENDPOINT_URL": s3.endpoint, "AWS_ACCESS_KEY_ID": ACCESS_KEY, "AWS_SECRET_ACCESS_KEY": SECRET_KEY}
    for spec, settings in (
        (stage_spec(disk, "u1", "a"), {"HF_ENDPOINT": hub.endpoint, "HF_TOKEN": TOKEN}),
        (stage_spec(disk, "u1", "b", source_uri="s3://bucket/b"), keys),
    ):
        done = subprocess.run(
            [sys.executable, "-c", measure, "stage", *spec.to_args(), f"--termination-log={folder}/log"],
            env=environment(**settings),
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        peak = int(done.stdout.rsplit("peak ", 1)[1])
        assert peak < 150, f"{peak} MiB"


# -- progress -------------------------------------------------------------------------------------------------------


def _get(url: str) -> Any:
    with urllib.request.urlopen(url, timeout=5) as answer:
        return json.loads(answer.read())


@pytest.mark.parametrize("address", ["127.0.0.1", "::1", None])
def test_progress_is_served_and_nothing_else(address: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("POD_IP", raising=False)
    if address is not None:
        monkeypatch.setenv("POD_IP", address)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    meter = Meter()
    meter.start(1000, 100)
    stop = serve_progress(meter, port)
    host = "[::1]" if address == "::1" else "127.0.0.1"
    try:
        meter.add(400)
        got = read_progress(_get(f"http://{host}:{port}/progress"))
        assert (got.downloaded_bytes, got.total_bytes, got.percentage) == (500, 1000, 50)
        for path in ("/", "/progress/x", "/etc/passwd", "/progress?x"):
            with pytest.raises(urllib.error.HTTPError) as caught:
                _get(f"http://{host}:{port}{path}")
            caught.value.close()
            assert caught.value.code == 404
    finally:
        stop()


def test_a_port_in_use_does_not_fail_the_job(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POD_IP", "127.0.0.1")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        serve_progress(Meter(), taken.getsockname()[1])()
    serve_progress(Meter(), 0)()


def test_rate_and_remaining_time() -> None:
    now = [0.0]
    said: list[str] = []
    meter = Meter(said.append, clock=lambda: now[0])
    meter.start(1 << 30)
    for _ in range(20):
        now[0] += 0.5
        meter.add(10 << 20)
    seen = meter.snapshot()
    assert seen.bytes_per_second == 20 << 20
    assert seen.remaining_seconds == ((1 << 30) - (200 << 20)) // (20 << 20)
    assert len(said) == 2, "a line each five seconds"
    assert "19 %" in describe(seen)
    assert size(10) == "10 B"
    meter.add(-(1 << 40))
    assert meter.snapshot().downloaded_bytes == 0


# -- documents ------------------------------------------------------------------------------------------------------


def test_reasons_do_not_clash_with_those_of_conditions() -> None:
    """Words that already have a meaning in a condition; docs/contract.md, Conditions."""
    conditions = {"AdapterConfigInvalid", "AdaptersStaging", "AdaptersStaged", "ParentLacksAdapterDisk"}
    assert not conditions & JOB_REASONS
