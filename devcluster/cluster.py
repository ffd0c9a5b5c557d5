"""The supervisor of one cluster: starts everything in order, keeps it running, stops it.

`dev up` is only the front: it starts a guard (devcluster/guard.py), the guard starts the supervisor, and over a socket
the supervisor tells its progress. Until `up` has acknowledged that all is ready, the end of that socket means that `up`
was killed, and the supervisor stops everything. Afterwards it runs until SIGTERM.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import json
import logging
import os
import signal
import socket
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from devcluster import content, control_plane, provisioner
from devcluster.base_models import BASE_MODELS, write_base_model
from devcluster.binaries import CONTROL_PLANE, HELM_MODULE, ensure_programs
from devcluster.chart_values import is_on, render_values
from devcluster.control_plane import CONTROL_PLANE_NAMES, LOOPBACK, NODE_NAME, PORTS, Site
from devcluster.folder import Layout, World
from devcluster.guard import adopt_orphans, die_with_parent, kill_below
from devcluster.image_table import render_images
from devcluster.kube import Kube, KubeError
from devcluster.pods import describe_pods, is_crashing, is_rolled_out
from devcluster.processes import Command, Keeper, ProcessEndedError, child_environment, tail
from devcluster.progress import Event, Progress, StepError, poll
from devcluster.ranges import NoRangeError, Reservation, free_ports, may_bind, reserve
from devcluster.sample_adapters import S3_ADAPTERS, write_adapter

log = logging.getLogger(__name__)

RELEASE = "aim-adapters"
NAMESPACE = "aim-system"
CHART = Path(__file__).parent.parent / "chart"
_ACK_S = 30.0
_SERVED_S = 120.0
_JUDGED_S = 60.0
_PART_S = 60.0
_HTTPS = 443
_HIGH_HTTPS = 8443
_TAIL = 8  # lines of helm's output in a failure


@dataclass(frozen=True, slots=True)
class Options:
    """What `dev up` was asked for."""

    folder: str  # absolute
    settings: dict[str, str] = field(default_factory=dict)
    control_plane_only: bool = False

    def to_json(self) -> str:
        """Return the options as one line for the supervisor."""
        return json.dumps(asdict(self))


class Link:
    """The supervisor's end of the socket to `dev up`."""

    def __init__(self, descriptor: int) -> None:
        self._socket = socket.socket(fileno=descriptor)
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None

    async def open(self) -> None:
        """Attach it to the running loop."""
        self._reader, self._writer = await asyncio.open_connection(sock=self._socket)

    def send(self, event: Event) -> None:
        """Tell one event; a listener that has gone is no error here."""
        assert self._writer is not None
        if not self._writer.is_closing():
            self._writer.write(json.dumps(event.as_json()).encode() + b"\n")

    async def wait_word(self) -> bool:
        """Wait for a line from `up`; False when it has gone."""
        assert self._reader is not None
        try:
            return bool(await self._reader.readline())
        except OSError:
            return False

    async def close(self) -> None:
        """Send what is left and close."""
        assert self._writer is not None
        with contextlib.suppress(OSError):
            self._writer.close()
            await self._writer.wait_closed()


class Supervisor:
    """One run of one cluster."""

    def __init__(self, options: Options, link: Link) -> None:
        self.options = options
        self.layout = Layout(Path(options.folder))
        self.world = World()
        self.link = link
        self.progress = Progress(link.send)
        self.stop = asyncio.Event()
        self.ready = False
        self.began = time.time()
        self.notices: list[str] = []
        self.keeper = Keeper(child_environment(self.layout.root), self.write_state)
        self._reservation: Reservation | None = None
        self._kube: Kube | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._site: Site | None = None

    @property
    def site(self) -> Site:
        """Return where this run lives (known once the addresses are)."""
        assert self._site is not None
        return self._site

    @property
    def kube(self) -> Kube:
        """Return the administrator's client (known once the certificates are)."""
        assert self._kube is not None
        return self._kube

    async def run(self) -> int:
        """Bring the cluster up, hold it, take it down; return the exit code."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.stop.set)
        await self.link.open()
        try:
            return 0 if await self._come_up() and await self._hold() else 1
        finally:
            await self._go_down()
            await self.link.close()

    async def _come_up(self) -> bool:
        """Start all; False when a step failed, or `up` has gone, or a stop is asked for."""
        start = asyncio.create_task(self._start_all())
        word = asyncio.create_task(self.link.wait_word())
        stop = asyncio.create_task(self.stop.wait())
        watched: set[asyncio.Future[Any]] = {start, word, stop, self.keeper.failed}
        await asyncio.wait(watched, return_when=asyncio.FIRST_COMPLETED)
        stop.cancel()
        if not start.done():
            start.cancel()
            with contextlib.suppress(asyncio.CancelledError, StepError):
                await start
            if self.keeper.failed.done():
                self.progress.failed(_ended(self.keeper.failed.result(), self.layout))
            word.cancel()
            return False
        try:
            start.result()
        except StepError as error:
            self.progress.failed(error)
            word.cancel()
            return False
        except Exception as error:
            log.exception("the start failed")
            told = f"{type(error).__name__}: {error}"
            self.progress.failed(StepError("start", "no error", told, str(self.layout.log_of("supervisor"))))
            word.cancel()
            return False
        self.keeper.relax()
        self.ready = True
        self.write_state()
        self.progress.ready(f"ready: {self.layout.root}")
        try:
            return await asyncio.wait_for(word, _ACK_S)
        except TimeoutError:
            return False

    async def _hold(self) -> bool:
        """Wait until a stop is asked for."""
        await self.stop.wait()
        return True

    async def _start_all(self) -> None:
        """Start everything in order. Raises: StepError."""
        modules = (CONTROL_PLANE,) if self.options.control_plane_only else (CONTROL_PLANE, HELM_MODULE)
        programs = await ensure_programs(self.progress, modules)
        self._settle(programs)
        site = self.site
        control_plane.prepare(site, datetime.now(UTC))
        self._kube = Kube.from_kubeconfig(self.layout.kubeconfig)
        await self.keeper.start(control_plane.etcd(site))
        await self.keeper.start(control_plane.kube_apiserver(site))
        if not self.options.control_plane_only:
            await self._start_sources()
        await control_plane.wait_api_server(self.progress, site, self.kube)
        await self.keeper.start(control_plane.kube_controller_manager(site))
        await self.keeper.start(control_plane.kube_scheduler(site))
        await self._apply_all(content.bootstrap())
        self._tasks.append(asyncio.create_task(self._provision()))
        if self.options.control_plane_only:
            await control_plane.wait_service_account(self.progress, site, self.kube)
            return
        await self._start_parts()
        await control_plane.wait_service_account(self.progress, site, self.kube)
        await self._apply_all(self._secrets())
        if not (CHART / "Chart.yaml").exists():
            self.progress.note("the chart is left out: there is none")
            return
        await self._install_chart()
        await self._wait_parts()
        await self._wait_served()
        await self._wait_judged()
        await self._apply_all([self._runtime_config(), content.cluster_profile()])

    def _settle(self, programs: dict[str, Path]) -> None:
        """Choose addresses and ports, and remember them. Raises: StepError."""
        name = "addresses on loopback"
        try:
            self.world = World.load(self.layout.world)
            self._reservation = reserve(self.layout.root, preferred=self.world.range_index)
            addresses = self._reservation.range
            self.world.ports = free_ports(addresses.ports, list(PORTS), self.world.ports)
        except (NoRangeError, ValueError) as error:
            raise StepError(name, "a free range of 127.0.0.0/8", str(error)) from error
        self.world.range_index = addresses.index
        self.world.settings |= self.options.settings
        self.layout.make()
        self.world.save(self.layout.world)
        audit = is_on(self.world.settings, "audit")
        self._site = Site(self.layout, addresses, self.world.ports, programs, audit=audit)

    async def _start_sources(self) -> None:
        """Start hub and S3, with the base models in the hub."""
        for model in BASE_MODELS:
            await asyncio.to_thread(write_base_model, self.layout.hub, model)
        for adapter in S3_ADAPTERS:
            await asyncio.to_thread(write_adapter, self.layout.s3, adapter)
        await self._start_python(
            "hub",
            "devcluster.sources.hub",
            f"--root={self.layout.hub}",
            f"--listen={LOOPBACK}:{self.world.ports['hub']}",
            f"--cdn-listen={LOOPBACK}:{self.world.ports['hub-cdn']}",
            env={"HUB_TOKEN": self.world.hub_token},
        )
        await self._start_python(
            "s3",
            "devcluster.sources.s3",
            f"--root={self.layout.s3}",
            f"--listen={LOOPBACK}:{self.world.ports['s3']}",
            env={"S3_ACCESS_KEY": self.world.s3_access_key, "S3_SECRET_KEY": self.world.s3_secret_key},
        )

    async def _start_parts(self) -> None:
        """Start the node (it forwards Services too) and the InferenceService stand-in."""
        pki = self.layout.pki
        self.layout.images.write_text(json.dumps(render_images(Path(sys.executable)), indent=1) + "\n")
        await self._start_python(
            "node",
            "devcluster.node",
            f"--kubeconfig={self.layout.kubeconfig_of('node')}",
            f"--dir={self.layout.node}",
            f"--name={NODE_NAME}",
            f"--pod-cidr={self.site.addresses.pods}",
            f"--images={self.layout.images}",
            f"--claims={self.layout.claims}",
            f"--kubelet-port={self.world.ports['kubelet']}",
            f"--tls-cert={pki / 'kubelet.crt'}",
            f"--tls-key={pki / 'kubelet.key'}",
            grace_s=15.0,
        )
        self._ready_file("kserve").unlink(missing_ok=True)
        await self._start_python(
            "kserve",
            "devcluster.kserve",
            f"--kubeconfig={self.layout.kubeconfig_of('kserve')}",
            f"--listen={LOOPBACK}:{self.world.ports['kserve']}",
            f"--ready-file={self._ready_file('kserve')}",
        )

    async def _wait_parts(self) -> None:
        """Wait until our stand-ins serve; tell what the node cannot do here. Raises: StepError."""
        with contextlib.suppress(FileNotFoundError):
            self.notices = (self.layout.node / "notice").read_text().splitlines()
        for notice in self.notices:
            self.progress.note(f"note: {notice}")
        if importlib.util.find_spec("devcluster.kserve.__main__") is None:
            return
        await self._wait_ready_file("kserve", "the InferenceService webhooks answer")

    def _ready_file(self, name: str) -> Path:
        """Return the file that a part writes once it serves."""
        return self.layout.run / f"{name}.ready"

    async def _wait_ready_file(self, name: str, expected: str) -> None:
        async def probe() -> str | None:
            return None if self._ready_file(name).exists() else tail(self.layout.log_of(name), 1) or "no word yet"

        await self._wait(name, probe, expected=expected, timeout_s=_PART_S, log_hint=str(self.layout.log_of(name)))

    async def _start_python(
        self, name: str, module: str, *arguments: str, env: dict[str, str] | None = None, grace_s: float = 5.0
    ) -> None:
        """Run a module of ours with this interpreter."""
        if importlib.util.find_spec(module) is None:
            self.progress.note(f"{name} is left out: there is no {module}")
            return
        argv = (sys.executable, "-m", module, *arguments)
        await self.keeper.start(Command(name, argv, self.layout.log_of(name), env or {}, grace_s))

    async def _provision(self) -> None:
        """Give claims their directories, for as long as the cluster runs."""
        while True:
            try:
                async with Kube.from_kubeconfig(self.layout.kubeconfig_of("provisioner")) as kube:
                    await provisioner.run(kube, self.layout.claims, self.layout.owners)
            except Exception:
                log.exception("the provisioner failed and starts again")
                await asyncio.sleep(1.0)

    def _secrets(self) -> list[content.Json]:
        world = self.world
        return content.source_secrets(
            "default", access_key=world.s3_access_key, secret_key=world.s3_secret_key, token=world.hub_token
        )

    def _runtime_config(self) -> content.Json:
        ports = self.world.ports
        return content.runtime_config(hub=f"http://{LOOPBACK}:{ports['hub']}", s3=f"http://{LOOPBACK}:{ports['s3']}")

    async def _apply_all(self, manifests: list[content.Json]) -> None:
        """Apply objects of ours, waiting a little where their kind or namespace only just came. Raises: StepError."""
        hint = str(self.layout.log_of("kube-apiserver"))
        for manifest in manifests:

            async def put(manifest: content.Json = manifest) -> str | None:
                try:
                    await self.kube.apply(
                        content.path_of(manifest), manifest, field_manager=content.FIELD_MANAGER, force=True
                    )
                except KubeError as error:
                    return error.message or str(error)
                return None

            name = f"apply {manifest['kind']} {manifest['metadata']['name']}"
            await self._wait(name, put, expected="the API server takes it", timeout_s=30.0, log_hint=hint)

    async def _install_chart(self) -> None:
        """Install or upgrade the chart as a user would. Raises: StepError."""
        name, log_path = "helm upgrade --install aim-adapters", self.layout.log_of("helm")
        with self.progress.step(name) as step:
            try:
                values = render_values(self.world.settings, service_port=self._service_port())
            except ValueError as error:
                raise StepError(name, "settings that the chart can take", str(error)) from error
            (self.layout.run / "values.json").write_text(json.dumps(values, indent=1) + "\n")
            await self._forget_pending_releases()
            code, said = await self._helm(
                "upgrade",
                RELEASE,
                str(CHART),
                "--install",
                f"--namespace={NAMESPACE}",
                "--create-namespace",
                f"--values={self.layout.run / 'values.json'}",
            )
            await asyncio.to_thread(log_path.write_text, said)
            if code != 0:
                raise StepError(name, "helm exits with 0", "\n".join(said.strip().splitlines()[-_TAIL:]), str(log_path))
            step.seen = f"in namespace {NAMESPACE}"

    async def _forget_pending_releases(self) -> None:
        """Delete helm's record of an operation that a killed start left half done: helm would wait for it for ever.

        What it had made already stays, and is adopted by the next try.
        """
        path = f"/api/v1/namespaces/{NAMESPACE}/secrets"
        pending = f"owner=helm,name={RELEASE},status in (pending-install,pending-upgrade,pending-rollback)"
        for secret in await self.kube.list(path, {"labelSelector": pending}):
            await self.kube.delete(f"{path}/{secret['metadata']['name']}")

    async def _helm(self, *arguments: str) -> tuple[int, str]:
        """Run helm to its end; return the exit code and all that it said."""
        environment = child_environment(self.layout.root) | {
            "KUBECONFIG": str(self.layout.kubeconfig),
            "HELM_CACHE_HOME": str(self.layout.run / "helm"),
            "HELM_CONFIG_HOME": str(self.layout.run / "helm"),
            "HELM_DATA_HOME": str(self.layout.run / "helm"),
        }
        process = await asyncio.create_subprocess_exec(
            self.site.programs["helm"],
            *arguments,
            env=environment,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            preexec_fn=partial(die_with_parent, os.getpid()),
        )
        out, _ = await process.communicate()
        assert process.returncode is not None
        return process.returncode, out.decode(errors="replace")

    def _service_port(self) -> int:
        """Return 443, or a port above 1023 where lower ones may not be bound."""
        return _HTTPS if may_bind(str(self.site.addresses.services[-2]), _HTTPS) else _HIGH_HTTPS

    async def _wait_served(self) -> None:
        """Wait until a pod of the service is ready, and none of an older revision is left. Raises: StepError."""
        name = "a pod of the service is ready"
        hint = f"{self.layout.log_of('node')}, and the pods' below {self.layout.node / 'logs'}"
        pods_path = f"/api/v1/namespaces/{NAMESPACE}/pods"
        deployment_path = f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments/{RELEASE}"

        async def ask() -> str | None:
            try:
                pods = await self.kube.list(pods_path, {"labelSelector": f"app.kubernetes.io/instance={RELEASE}"})
                deployment = await self.kube.get(deployment_path)
            except KubeError as error:
                return str(error)
            if is_crashing(pods):
                raise StepError(name, "a pod that stays", describe_pods(pods), hint)
            return None if is_rolled_out(deployment) else describe_pods(pods)

        await self._wait(
            name,
            ask,
            expected="one is",
            timeout_s=_SERVED_S,
            log_hint=hint,
        )

    async def _wait_judged(self) -> None:
        """Wait until the webhook judges: it refuses an object that nothing else refuses. Raises: StepError."""
        probe = content.probe()
        path = content.path_of(probe).rpartition("/")[0]

        async def ask() -> str | None:
            try:
                await self.kube.request("POST", path, params={"dryRun": "All"}, body=probe, timeout_s=10.0)
            except KubeError as error:
                return None if "denied the request" in error.message else error.message
            return "the API server accepts what the webhook would refuse: the webhook is not active yet"

        await self._wait(
            "the webhook judges a dry run",
            ask,
            expected="it refuses",
            timeout_s=_JUDGED_S,
            log_hint=f"the pods' below {self.layout.node}",
        )

    async def _wait(
        self, name: str, probe: Callable[[], Awaitable[str | None]], *, expected: str, timeout_s: float, log_hint: str
    ) -> None:
        with self.progress.step(name) as step:
            await poll(
                step,
                probe,
                expected=expected,
                timeout_s=timeout_s,
                sleep=asyncio.sleep,
                log=log_hint,
            )

    def write_state(self) -> None:
        """Write which processes run now."""
        state = {
            "ready": self.ready,
            "startedAt": self.began,
            "supervisor": os.getpid(),
            "guard": os.getppid(),
            "processes": {"supervisor": os.getpid(), **self.keeper.pids},
            "programs": {name: str(path) for name, path in (self._site.programs if self._site else {}).items()},
            "notices": self.notices,
            "controlPlaneOnly": self.options.control_plane_only,
        }
        temporary = self.layout.state.with_suffix(".tmp")
        temporary.write_text(json.dumps(state, indent=1) + "\n")
        temporary.replace(self.layout.state)

    async def _go_down(self) -> None:
        """Stop everything: what uses the API server first, so that it can say goodbye."""
        self.ready = False
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.keeper.stop(["node"])
        await self.keeper.stop([name for name in self.keeper.pids if name not in CONTROL_PLANE_NAMES])
        await self.keeper.stop(["kube-controller-manager", "kube-scheduler"])
        await self.keeper.stop(["kube-apiserver"])
        await self.keeper.stop(["etcd"])
        if self._kube is not None:
            await self._kube.aclose()
        kill_below(os.getpid())  # orphans that we adopted, should the guard be gone
        self.layout.state.unlink(missing_ok=True)
        if self._reservation is not None:
            self._reservation.close()


def _ended(error: ProcessEndedError, layout: Layout) -> StepError:
    path = layout.log_of(error.command.name)
    return StepError(f"start {error.command.name}", "it keeps running", f"{error}\n{tail(path)}", str(path))


async def _main(arguments: list[str]) -> int:
    options = Options(**json.loads(arguments[1]))
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    logging.getLogger("httpx").setLevel(logging.WARNING)
    adopt_orphans()
    return await Supervisor(options, Link(int(arguments[0]))).run()


if __name__ == "__main__":
    sys.exit(asyncio.run(_main(sys.argv[1:])))
