"""One container of a pod: made, started, probed, stopped, started again."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from api.view import JsonObject
from devcluster.node.host import Host
from devcluster.node.images import Image
from devcluster.node.probes import Target, attempt, run_probe
from devcluster.node.process import Launch, Mount, Process, StartError
from devcluster.node.resolve import (
    ConfigError,
    PodFacts,
    command_line,
    container_env,
    expand,
    identity,
    pod_title,
)
from devcluster.node.status import Record, timestamp
from devcluster.node.volumes import Ready, sub_path

log = logging.getLogger(__name__)

MESSAGE_LIMIT_BYTES = 4096  # of a termination message; the rest is cut, as by a kubelet
_MESSAGE_LINES = 80  # FallbackToLogsOnError: this many lines, this many bytes
_MESSAGE_LOG_BYTES = 2048
_DEFAULT_GRACE_S = 30.0


class Pod(Protocol):
    """What a container needs to know of its pod."""

    host: Host
    pod: JsonObject  # as last seen

    @property
    def facts(self) -> PodFacts:
        """Return the values of the downward API."""

    @property
    def volumes(self) -> dict[str, Ready]:
        """Return the volumes that are set up, by name."""

    @property
    def grace_deadline(self) -> float:
        """Return when a stopping pod's processes are killed (loop time)."""

    def touch(self) -> None:
        """Report that a record changed: the status must be written."""

    async def objects(self, container: JsonObject) -> Callable[[str, str], JsonObject | None]:
        """Return a lookup of the Secrets and ConfigMaps that the container's environment names."""


class Container:
    """Runs one container until it need not run any more."""

    def __init__(self, pod: Pod, spec: JsonObject, record: Record) -> None:
        self._pod = pod
        self.spec = spec
        self.record = record
        self.stop = asyncio.Event()
        self.changed = asyncio.Event()  # something it waits for may have changed
        self.started = asyncio.Event()  # the startup probe passed, or the container ended
        self._crashes = 0
        self._process: Process | None = None

    @property
    def _policy(self) -> str:
        if self.record.is_sidecar:
            return "Always"
        policy: str = self._pod.pod["spec"].get("restartPolicy", "Always")
        return "OnFailure" if self.record.is_init and policy == "Always" else policy

    def may_run_again(self, code: int) -> bool:
        """Return whether the restart policy requires another process after this exit code."""
        return self._policy == "Always" or (self._policy == "OnFailure" and code != 0)

    async def run(self) -> None:
        """Run until the policy is satisfied or the container is stopped."""
        if self.record.exit_code is not None and not self.may_run_again(self.record.exit_code):
            return
        try:
            while not self.stop.is_set():
                await self._one_life()
                code = self.record.exit_code
                if code is None or not self.may_run_again(code) or self.stop.is_set():
                    return
                await self._back_off()
        finally:
            self.started.set()

    async def _one_life(self) -> None:
        """Create, start, watch over and record one process."""
        loop = asyncio.get_running_loop()
        process = await self._create()
        if process is None:
            return
        began = loop.time()
        self._process = process
        try:
            code = await self._watch_over(process)
        finally:
            self._process = None
        if loop.time() - began >= self._pod.host.patience.crash_reset_s:
            self._crashes = 0
        self._ended(code)

    # -- creating --------------------------------------------------------------------------------------------------

    async def _create(self) -> Process | None:
        """Start a process, trying again while it cannot be created; None when stopped, or exec failed (recorded)."""
        pause = self._pod.host.patience.retry_first_s
        while not self.stop.is_set():
            self.changed.clear()
            try:
                image = self._image()
                launch = await self._launch(image)
                return await self._start(image, launch)
            except ConfigError as error:
                self._wait_for(error)
            except StartError as error:
                if error.stage == "exec":
                    self._failed_to_execute(str(error))
                    return None
                self._wait_for(ConfigError(f"{error.stage}: {error}", "CreateContainerError"))
            await self._pause(pause)
            pause = min(pause * 2, self._pod.host.patience.retry_max_s)
        return None

    def _image(self) -> Image:
        """Return the container's image. Raises: ConfigError as a kubelet whose pull failed."""
        wanted = self.spec["image"]
        try:
            found = self._pod.host.images.find(wanted)
        except (ValueError, OSError) as error:
            raise ConfigError(str(error), "ErrImagePull") from error
        if found is not None:
            return found
        if self.spec.get("imagePullPolicy") == "Never":
            raise ConfigError(
                f'Container image "{wanted}" is not present with pull policy of Never', "ErrImageNeverPull"
            )
        why = f'failed to pull image "{wanted}": no local command stands for it on this node'
        if self.record.waiting_reason in {"ErrImagePull", "ImagePullBackOff"}:
            raise ConfigError(f'Back-off pulling image "{wanted}": ErrImagePull: {why}', "ImagePullBackOff")
        raise ConfigError(why, "ErrImagePull")

    async def _launch(self, image: Image) -> Launch:
        """Return what the process is started from. Raises: ConfigError."""
        pod, host = self._pod.pod, self._pod.host
        lookup = await self._pod.objects(self.spec)
        env = container_env(pod, self.spec, image, self._pod.facts, lookup)
        who = identity(pod, self.spec, image)
        argv = command_line(image, self.spec, env)
        hostname = pod["spec"].get("hostname") or pod["metadata"]["name"]
        env = {
            "HOME": "/root" if who.uid == 0 else "/",
            "HOSTNAME": hostname,
            "KUBERNETES_SERVICE_HOST": host.api_host,
            "KUBERNETES_SERVICE_PORT": host.api_port,
            "KUBERNETES_SERVICE_PORT_HTTPS": host.api_port,
            **env,
            "AIM_DEV_POD_IP": self._pod.facts.pod_ip,
        }
        context = self.spec.get("securityContext") or {}
        return Launch(
            argv=tuple(argv),
            env=env,
            cwd=self.spec.get("workingDir") or image.working_dir,
            identity=who,
            hostname=hostname,
            message_path=self._message_path,
            scratch=str(self._folder()),
            mounts=tuple(self._mounts(env)),
            read_only_root=bool(context.get("readOnlyRootFilesystem")),
        )

    def _mounts(self, env: dict[str, str]) -> list[Mount]:
        """Return the container's mounts. Raises: ConfigError when a subPath is missing."""
        mounts = []
        for mount in self.spec.get("volumeMounts") or []:
            volume = self._pod.volumes[mount["name"]]
            inside = mount.get("subPath") or expand(mount.get("subPathExpr") or "", env)
            source = sub_path(volume, inside, mount=mount, container=self.record.name)
            mounts.append(Mount(str(source), mount["mountPath"], volume.read_only or bool(mount.get("readOnly"))))
        taken = {m.target.rstrip("/") for m in mounts}
        if "/etc/hosts" not in taken:
            mounts.append(Mount(str(self._hosts_file()), "/etc/hosts", False))
        mounts.append(Mount(str(self._message_file()), self._message_path, False))
        return mounts

    @property
    def _message_path(self) -> str:
        return str(self.spec.get("terminationMessagePath") or "/dev/termination-log")

    def _folder(self) -> Path:
        folder = self._pod.host.pod_folder(self._pod.pod["metadata"]["uid"]) / "containers" / self.record.name
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def _message_file(self) -> Path:
        """Return a fresh, empty termination message file that any user may write."""
        file = self._folder() / "termination-log"
        file.write_bytes(b"")
        file.chmod(0o666)
        return file

    def _hosts_file(self) -> Path:
        pod = self._pod.pod
        name = pod["spec"].get("hostname") or pod["metadata"]["name"]
        lines = ["127.0.0.1 localhost", "::1 localhost ip6-localhost", f"{self._pod.facts.pod_ip} {name}"]
        lines += [f"{a['ip']} {' '.join(a.get('hostnames') or [])}" for a in pod["spec"].get("hostAliases") or []]
        file = self._folder() / "hosts"
        file.write_text("\n".join(lines) + "\n")
        file.chmod(0o644)
        return file

    async def _start(self, image: Image, launch: Launch) -> Process:
        """Start the process and record that it runs. Raises: StartError."""
        record = self.record
        number = record.restarts + 1 if record.terminated or record.last_terminated else 0
        with self.log_file(number).open("wb") as output:
            try:
                process = await Process.start(self._pod.host.isolation, launch, output)
            except StartError as error:
                if error.stage == "exec":
                    record.restarts = number
                raise
        record.restarts = number
        if record.terminated is not None:
            record.last_terminated, record.terminated = record.terminated, None
        record.running_since = timestamp()
        record.container_id = f"process://{secrets.token_hex(32)}"
        record.image_id = f"{self.spec['image'].partition('@')[0]}@sha256:{image.digest}"
        record.started = "startupProbe" not in self.spec
        record.ready = "readinessProbe" not in self.spec
        if record.started:
            self.started.set()
        self._pod.touch()
        return process

    def log_file(self, number: int) -> Path:
        """Return the log of the container's process of this number (0 is the first)."""
        meta = self._pod.pod["metadata"]
        folder = self._pod.host.log_folder(meta["namespace"], meta["name"])
        folder.mkdir(parents=True, exist_ok=True)
        return folder / f"{self.record.name}-{number}.log"

    def _wait_for(self, error: ConfigError) -> None:
        """Record why the container cannot be created now, and post one event."""
        record = self.record
        if (record.waiting_reason, record.waiting_message) == (error.reason, str(error)):
            return
        known = record.waiting_reason in {"ErrImagePull", "ImagePullBackOff"}
        if record.terminated is not None:
            record.last_terminated, record.terminated = record.terminated, None
        record.waiting_reason, record.waiting_message = error.reason, str(error)
        self._pod.touch()
        events, pod, name = self._pod.host.events, self._pod.pod, record.name
        if error.reason == "ImagePullBackOff":
            events.normal(pod, "BackOff", f'Back-off pulling image "{self.spec["image"]}"', container=name)
        elif error.reason == "ErrImagePull" and not known:
            events.warning(pod, "Failed", str(error), container=name)
            events.warning(pod, "Failed", "Error: ErrImagePull", container=name)
        else:
            events.warning(pod, "Failed", f"Error: {error}", container=name)

    def _failed_to_execute(self, message: str) -> None:
        """Record a program that could not be executed, as a runtime reports it."""
        now = timestamp()
        text = f"failed to create containerd task: unable to start container process: {message}"
        self._pod.host.events.warning(self._pod.pod, "Failed", f"Error: {text}", container=self.record.name)
        self._terminated(
            {"exitCode": 128, "reason": "StartError", "message": text, "startedAt": now, "finishedAt": now}
        )

    # -- running ---------------------------------------------------------------------------------------------------

    async def _watch_over(self, process: Process) -> int:
        """Probe and stop the process as needed; return its exit code."""
        exited = asyncio.create_task(process.wait())
        unhealthy: asyncio.Future[float] = asyncio.get_running_loop().create_future()
        minders = asyncio.create_task(self._mind(process, unhealthy))
        stopped = asyncio.create_task(self.stop.wait())
        try:
            ends: set[asyncio.Future[Any]] = {exited, stopped, unhealthy}
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            if not exited.done():
                deadline = None if stopped.done() else asyncio.get_running_loop().time() + unhealthy.result()
                await self._end(process, exited, deadline)
            return await exited
        except asyncio.CancelledError:
            process.kill()
            await asyncio.shield(exited)
            raise
        finally:
            tasks: list[asyncio.Task[Any]] = [minders, stopped, exited]
            for task in tasks:
                task.cancel()
            for outcome in await asyncio.gather(*tasks, return_exceptions=True):
                if isinstance(outcome, Exception):
                    log.error("probe or hook of container %s broke", self.record.name, exc_info=outcome)

    async def _end(self, process: Process, exited: asyncio.Task[int], deadline: float | None) -> None:
        """Stop the process: hook, SIGTERM, grace, SIGKILL. The pod's own deadline holds as well, and may move."""
        loop = asyncio.get_running_loop()
        self.record.ready = False
        self._pod.touch()
        if deadline is None:
            self._pod.host.events.normal(
                self._pod.pod, "Killing", f"Stopping container {self.record.name}", container=self.record.name
            )

        def left() -> float:
            return min(self._pod.grace_deadline, deadline if deadline is not None else math.inf) - loop.time()

        hook = (self.spec.get("lifecycle") or {}).get("preStop")
        if hook and left() > 0:
            await self._hook("PreStop", hook, process, left())
        process.terminate()
        while not exited.done() and left() > 0:
            self.changed.clear()
            moved = asyncio.create_task(self.changed.wait())
            waiting: set[asyncio.Future[Any]] = {exited, moved}
            await asyncio.wait(waiting, timeout=left(), return_when=asyncio.FIRST_COMPLETED)
            moved.cancel()
        process.kill()

    async def _hook(self, kind: str, hook: JsonObject, process: Process, timeout_s: float) -> bool:
        """Run a lifecycle hook, post its failure, and return whether it succeeded."""
        problem = await attempt(hook, self._target(process), timeout_s)
        if problem:
            self._pod.host.events.warning(
                self._pod.pod, f"Failed{kind}Hook", f"{kind}Hook failed: {problem}", container=self.record.name
            )
        return not problem

    def _target(self, process: Process) -> Target:
        return Target(self.spec, self._pod.facts.pod_ip, process)

    async def _mind(self, process: Process, unhealthy: asyncio.Future[float]) -> None:
        """Run hooks and probes; `unhealthy` gets the grace in seconds when the process is to be replaced."""
        hook = (self.spec.get("lifecycle") or {}).get("postStart")
        if hook and not await self._hook("PostStart", hook, process, 3600.0):
            self._give_up(unhealthy, {})
            return
        if "startupProbe" in self.spec and not await self._startup(process, unhealthy):
            return
        async with asyncio.TaskGroup() as tasks:
            if "readinessProbe" in self.spec:
                tasks.create_task(self._readiness(process))
            if "livenessProbe" in self.spec:
                tasks.create_task(self._liveness(process, unhealthy))

    async def _startup(self, process: Process, unhealthy: asyncio.Future[float]) -> bool:
        """Probe until started; False when it never will."""
        verdict: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

        def decided(good: bool, _: str) -> None:
            if not verdict.done():
                verdict.set_result(good)

        probe = self.spec["startupProbe"]
        probing = asyncio.create_task(
            run_probe(probe, self._target(process), eager=True, decided=decided, failed=self._tell("Startup"))
        )
        try:
            started = await verdict
        finally:
            probing.cancel()
        if started:
            self.record.started = True
            self.started.set()
            self._pod.touch()
        else:
            self._killing(f"Container {self.record.name} failed startup probe, will be restarted")
            self._give_up(unhealthy, probe)
        return started

    async def _readiness(self, process: Process) -> None:
        def decided(good: bool, _: str) -> None:
            if not self.stop.is_set():
                self.record.ready = good
                self._pod.touch()

        probe = self.spec["readinessProbe"]
        await run_probe(probe, self._target(process), eager=True, decided=decided, failed=self._tell("Readiness"))

    async def _liveness(self, process: Process, unhealthy: asyncio.Future[float]) -> None:
        probe = self.spec["livenessProbe"]

        def decided(good: bool, _: str) -> None:
            if not good and not self.stop.is_set():
                self._killing(f"Container {self.record.name} failed liveness probe, will be restarted")
                self._give_up(unhealthy, probe)

        await run_probe(probe, self._target(process), eager=False, decided=decided, failed=self._tell("Liveness"))

    def _tell(self, kind: str) -> Callable[[str], None]:
        def failed(message: str) -> None:
            if not self.stop.is_set():
                self._pod.host.events.warning(
                    self._pod.pod, "Unhealthy", f"{kind} probe failed: {message}", container=self.record.name
                )

        return failed

    def _killing(self, message: str) -> None:
        self._pod.host.events.normal(self._pod.pod, "Killing", message, container=self.record.name)

    def _give_up(self, unhealthy: asyncio.Future[float], probe: JsonObject) -> None:
        grace = probe.get("terminationGracePeriodSeconds")
        if grace is None:
            grace = self._pod.pod["spec"].get("terminationGracePeriodSeconds", _DEFAULT_GRACE_S)
        if not unhealthy.done():
            unhealthy.set_result(float(grace))

    # -- ended -----------------------------------------------------------------------------------------------------

    def _ended(self, code: int) -> None:
        """Record how the process ended."""
        state: JsonObject = {
            "exitCode": code,
            "reason": "Completed" if code == 0 else "Error",
            "startedAt": self.record.running_since,
            "finishedAt": timestamp(),
            "containerID": self.record.container_id,
        }
        message = self._message(code)
        if message:
            state["message"] = message
        self._terminated(state)

    def _terminated(self, state: JsonObject) -> None:
        record = self.record
        if record.terminated is not None:
            record.last_terminated = record.terminated
        record.terminated = state
        record.running_since = ""
        record.ready = record.started = False
        self._pod.touch()

    def _message(self, code: int) -> str:
        """Return the termination message, at most 4096 bytes; the log's end when that is the policy."""
        file = self._folder() / "termination-log"
        raw = _read_at_most(file, MESSAGE_LIMIT_BYTES)
        if not raw and code != 0 and self.spec.get("terminationMessagePolicy") == "FallbackToLogsOnError":
            raw = _end_of_log(self.log_file(self.record.restarts))
        return raw.decode(errors="ignore")

    async def _back_off(self) -> None:
        """Wait before the next process: the first one follows at once, then the pauses double."""
        patience = self._pod.host.patience
        self._crashes += 1
        if self._crashes == 1:
            return
        pause = min(patience.crash_first_s * 2 ** (self._crashes - 2), patience.crash_max_s)
        record = self.record
        title = pod_title(self._pod.pod)
        message = f"back-off {pause:g}s restarting failed container={record.name} pod={title}"
        record.last_terminated, record.terminated = record.terminated, None
        record.waiting_reason, record.waiting_message = "CrashLoopBackOff", message
        self._pod.touch()
        self._pod.host.events.warning(
            self._pod.pod,
            "BackOff",
            f"Back-off restarting failed container {record.name} in pod {title}",
            container=record.name,
        )
        self.changed.clear()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self.stop.wait(), pause)

    async def _pause(self, seconds: float) -> None:
        """Wait, but no longer than until something changes or the container is stopped."""
        waiters = [asyncio.create_task(self.stop.wait()), asyncio.create_task(self.changed.wait())]
        try:
            await asyncio.wait(waiters, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for waiter in waiters:
                waiter.cancel()


def _read_at_most(file: Path, limit: int) -> bytes:
    try:
        with file.open("rb") as stream:
            return stream.read(limit)
    except OSError:
        return b""


def _end_of_log(file: Path) -> bytes:
    """Return the last 80 lines or 2048 bytes of a log, whichever is less."""
    try:
        with file.open("rb") as stream:
            stream.seek(0, 2)
            stream.seek(max(0, stream.tell() - _MESSAGE_LOG_BYTES))
            lines = stream.read().splitlines(keepends=True)
    except OSError:
        return b""
    return b"".join(lines[-_MESSAGE_LINES:])
