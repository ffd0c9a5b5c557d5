"""The commands in the foreground: start a cluster and show its progress, stop it, print logs."""

from __future__ import annotations

import asyncio
import io
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import TextIO

from devcluster.binaries import ensure_programs
from devcluster.folder import Layout, RunningError, empty, hold, is_running, read_state
from devcluster.progress import Event, Printer, Progress, StepError
from devcluster.startup import Options

_STOP_S = 45.0  # how long `down` waits after SIGTERM
_KILL_S = 20.0  # how long `down` waits after SIGKILL
_OTHER_UP_S = 300.0  # how long `up` waits for another `up` in the same folder


def bring_up(folder: Path, settings: dict[str, str], *, fresh: bool, bare: bool, out: TextIO | None = None) -> int:
    """Start the cluster in the folder, print progress until it is ready; return the exit code."""
    out = out or plain(sys.stdout)
    layout = Layout(folder.resolve())
    try:
        return _bring_up(layout, settings, fresh=fresh, bare=bare, out=out)
    except KeyboardInterrupt:
        out.write("interrupted\n")
        return 130
    except (OSError, subprocess.CalledProcessError) as error:
        log = str(layout.logs / "supervisor.log") if isinstance(error, subprocess.CalledProcessError) else ""
        seen = f"{type(error).__name__}: {error}"
        out.write(f"{StepError('start', f'{layout.root} is writable', seen, log)}\n")
        return 1


def plain(out: TextIO) -> TextIO:
    """Return the stream; it writes a question mark for a character that its encoding does not have."""
    if isinstance(out, io.TextIOWrapper):
        out.reconfigure(errors="replace")
    return out


def _bring_up(layout: Layout, settings: dict[str, str], *, fresh: bool, bare: bool, out: TextIO) -> int:
    """Start it. Raises: OSError, CalledProcessError, KeyboardInterrupt."""
    layout.root.mkdir(parents=True, exist_ok=True)
    if fresh and is_running(layout):
        out.write(f"stopping the cluster in {layout.root}\n")
        if (code := take_down(layout.root, out=out)) != 0:
            return code
    try:
        lock = hold(layout)
    except RunningError:
        return _already(layout, out)
    layout.state.unlink(missing_ok=True)  # left by a killed run
    try:
        if fresh:
            empty(layout)
    except ValueError as error:
        os.close(lock)
        out.write(f"{error}\n")
        return 1
    except BaseException:
        os.close(lock)
        raise
    options = Options(str(layout.root), settings, control_plane_only=bare)
    ours, theirs = socket.socketpair()
    with ours:
        try:
            _start_guard(layout, options, theirs, lock)
            return _listen(ours, layout, out)
        except KeyboardInterrupt:
            out.write("interrupted: stopping the cluster\n")
    _wait_stopped(layout, _STOP_S)  # the supervisor sees the closed socket
    return 130


def build_programs(out: TextIO) -> int:
    """Build the missing programs, print where each program is; return the exit code."""
    try:
        programs = asyncio.run(ensure_programs(Progress(Printer(out))))
    except StepError as error:
        out.write(f"{error}\n")
        return 1
    except KeyboardInterrupt:
        out.write("interrupted\n")
        return 130
    for name, path in programs.items():
        out.write(f"{name}: {path}\n")
    return 0


def _start_guard(layout: Layout, options: Options, theirs: socket.socket, lock: int) -> None:
    """Start guard and supervisor in a session of their own; they alone hold socket and lock afterwards."""
    line, held = theirs.fileno(), lock
    supervisor = (sys.executable, "-m", "devcluster.cluster", str(line), options.to_json())
    try:
        layout.logs.mkdir(parents=True, exist_ok=True)
        with (layout.logs / "supervisor.log").open("ab") as log:
            subprocess.run(
                (
                    sys.executable,
                    "-m",
                    "devcluster.guard",
                    "--detach",
                    "--pass-fds",
                    f"{line},{held}",
                    "--",
                    *supervisor,
                ),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=(line, held),
                start_new_session=True,
                check=True,
            )
    finally:  # a start that failed or was interrupted must not hold the folder either
        theirs.close()
        os.close(lock)


def _listen(ours: socket.socket, layout: Layout, out: TextIO) -> int:
    """Print the events of the supervisor, acknowledge readiness; return the exit code."""
    show = Printer(out)
    with ours.makefile("r", encoding="utf-8") as lines:
        for line in lines:
            event = Event(**json.loads(line))
            show(event)
            if event.kind == "ready":
                ours.sendall(b"ok\n")
                return 0
            if event.kind == "fail":
                _wait_stopped(layout, _STOP_S)
                return 1
    out.write(f"the supervisor ended unexpectedly: see {layout.logs / 'supervisor.log'}\n")
    _wait_stopped(layout, _STOP_S)
    return 1


def _already(layout: Layout, out: TextIO) -> int:
    """Report that the folder's cluster is running; if it is starting, wait for it."""
    deadline = time.monotonic() + _OTHER_UP_S
    reported = False
    while time.monotonic() < deadline:
        if read_state(layout).get("ready"):
            out.write(f"already running: {layout.root}\n")
            return 0
        if not is_running(layout):
            out.write(f"{layout.root}: the start by another process failed\n")
            return 1
        if not reported:
            out.write(f"{layout.root}: another process starts or stops this cluster; waiting\n")
            reported = True
        time.sleep(0.2)
    out.write(f"{layout.root}: another process holds the folder and makes no progress; run `aim-adapters dev down`\n")
    return 1


def take_down(folder: Path, *, out: TextIO | None = None) -> int:
    """Stop the folder's cluster and wait until no process of it runs; return the exit code."""
    out = out or plain(sys.stdout)
    layout = Layout(folder.resolve())
    if not is_running(layout):
        layout.state.unlink(missing_ok=True)
        out.write(f"not running: {layout.root}\n")
        return 0
    state = read_state(layout)
    for sig, seconds in ((signal.SIGTERM, _STOP_S), (signal.SIGKILL, _KILL_S)):
        for name in ("supervisor",):
            _send(state.get(name), sig)
        if _wait_stopped(layout, seconds):
            layout.state.unlink(missing_ok=True)
            out.write(f"stopped: {layout.root}\n")
            return 0
    out.write(f"{layout.root}: some processes did not stop: {state.get('processes')}\n")
    return 1


def _send(pid: object, sig: signal.Signals) -> None:
    """Signal a process of the state file. The folder's lock is held, so the state is that of the running cluster."""
    if isinstance(pid, int) and pid > 1:
        try:
            os.kill(pid, sig)
        except ProcessLookupError:
            return


def _wait_stopped(layout: Layout, seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while is_running(layout):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def print_log(folder: Path, name: str, out: TextIO, *, follow: bool) -> int:
    """Print a process's or pod's log; return the exit code."""
    layout = Layout(folder.resolve())
    path = find_log(layout, name)
    if path is None:
        return _print_pod_log(layout, name, out, follow=follow)
    with path.open(encoding="utf-8", errors="replace") as source:
        while True:
            text = source.read()
            if text:
                out.write(text)
                out.flush()
            elif not follow:
                return 0
            else:
                time.sleep(0.2)


def _print_pod_log(layout: Layout, name: str, out: TextIO, *, follow: bool) -> int:
    """Print the log of a pod with kubectl; return the exit code."""
    kubectl = read_state(layout).get("programs", {}).get("kubectl")
    base = (kubectl, "--kubeconfig", str(layout.kubeconfig))
    listing = (
        "get",
        "pods",
        "-A",
        "-o",
        "jsonpath={range .items[*]}{.metadata.namespace}/{.metadata.name}{'\\n'}{end}",
    )
    pods: list[str] = []
    if kubectl and is_running(layout):
        pods = subprocess.run((*base, *listing), capture_output=True, text=True, check=False).stdout.split()
    chosen = choose_pods(name, pods)
    if len(chosen) != 1:
        what = f'several pods match "{name}": {", ".join(chosen)}' if chosen else f'no log of "{name}"'
        names = ", ".join([*known_logs(layout), *sorted(pods)]) or "none"
        out.write(f"{what}; available: {names}\n")
        return 1
    namespace, _, pod = chosen[0].partition("/")
    command = (*base, "logs", "-n", namespace, pod, "--all-containers", *(("-f",) if follow else ()))
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            out.write(line)
            out.flush()
    return process.returncode


def choose_pods(name: str, pods: list[str]) -> list[str]:
    """Return the NAMESPACE/NAME pods that match `name`: exactly, else as a prefix; sorted."""
    exact = [pod for pod in pods if name in (pod, pod.partition("/")[2])]
    return sorted(exact or [pod for pod in pods if pod.startswith(name) or pod.partition("/")[2].startswith(name)])


def find_log(layout: Layout, name: str) -> Path | None:
    """Return the log file of a process or pod, None when there is none."""
    path = layout.log_of(name)
    return path if "/" not in name and path.is_file() else None


def known_logs(layout: Layout) -> list[str]:
    """Return the names that `logs` knows, sorted."""
    return sorted(path.stem for path in layout.logs.glob("*.log"))
