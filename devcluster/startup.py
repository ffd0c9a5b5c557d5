"""The start of one cluster, step by step."""

from __future__ import annotations

import asyncio
import compileall
import contextlib
import json
import logging
import os
import sys
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from api.view import JsonObject
from devcluster import content, control_plane, provisioner
from devcluster.base_models import BASE_MODELS, write_base_model
from devcluster.binaries import CONTROL_PLANE, HELM_MODULE, ensure_programs
from devcluster.by_path import Kube
from devcluster.chart_values import is_on, render_values
from devcluster.control_plane import LOOPBACK, NODE_NAME, PORTS, Site
from devcluster.folder import Layout, World
from devcluster.guard import die_with_parent
from devcluster.image_table import render_images
from devcluster.pods import describe_pods, is_crashing, is_rolled_out
from devcluster.processes import Command, Keeper, child_environment, tail
from devcluster.progress import Progress, StepError, poll
from devcluster.ranges import NoRangeError, Reservation, free_ports, may_bind, reserve
from devcluster.sample_adapters import S3_ADAPTERS, write_adapter
from kube.errors import ApiError

log = logging.getLogger(__name__)

RELEASE = "aim-adapters"
NAMESPACE = "aim-system"
CHART = Path(__file__).parent.parent / "chart"
_NOT_IN_PODS = frozenset({"tests", "bench"})
_SERVED_S = 120.0
_JUDGED_S = 60.0
_PART_S = 60.0
_HTTPS = 443
_HIGH_HTTPS = 8443
_LEAST_ROOM_BYTES = 300_000_000  # etcd takes 128 MB at once, logs and the sample models the rest
_TAIL = 8  # lines of helm's output in a failure


@dataclass(frozen=True, slots=True)
class Options:
    """The options of `dev up`."""

    folder: str  # absolute
    settings: dict[str, str] = field(default_factory=dict)
    control_plane_only: bool = False

    def to_json(self) -> str:
        """Return the options as one line for the supervisor."""
        return json.dumps(asdict(self))


def check_room(folder: Path) -> None:
    """Fail before anything starts if the folder's disk is full; etcd would panic. Raises: StepError."""
    info = os.statvfs(folder)
    free = info.f_bavail * info.f_frsize
    if free < _LEAST_ROOM_BYTES:
        wanted, seen = (f"{size / 1e6:.0f} MB free in {folder}" for size in (_LEAST_ROOM_BYTES, free))
        raise StepError("check the free disk space", wanted, seen)


def compile_packages(root: Path) -> None:
    """Compile the packages of the checkout to bytecode where that is missing, as an image has it.

    Pods may not write beside the packages, so without it each Job would compile all that it imports.
    """
    for package in sorted(root.glob("*/__init__.py")):
        if package.parent.name not in _NOT_IN_PODS:
            compileall.compile_dir(package.parent, quiet=2)


class Startup:
    """Starts a cluster's processes in order, under a keeper that restarts them, and applies its initial objects."""

    def __init__(self, options: Options, layout: Layout, keeper: Keeper, progress: Progress) -> None:
        self.options = options
        self.layout = layout
        self.keeper = keeper
        self.progress = progress
        self.world = World()
        self.notices: list[str] = []
        self._reservation: Reservation | None = None
        self._kube: Kube | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._site: Site | None = None

    @property
    def programs(self) -> dict[str, Path]:
        """Return the Go programs that are used, by name (none before they are found)."""
        return self._site.programs if self._site else {}

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

    async def stop_tasks(self) -> None:
        """Cancel the tasks of this process."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._kube is not None:
            await self._kube.aclose()

    def give_back(self) -> None:
        """Release the addresses; call it when no process uses them any more."""
        if self._reservation is not None:
            self._reservation.close()

    async def run(self) -> None:
        """Start everything in order. Raises: StepError."""
        check_room(self.layout.root)
        modules = (CONTROL_PLANE,) if self.options.control_plane_only else (CONTROL_PLANE, HELM_MODULE)
        programs = await ensure_programs(self.progress, modules)
        self._settle(programs)
        site = self.site
        control_plane.prepare(site, datetime.now(UTC))
        self._kube = await Kube.connect(self.layout.kubeconfig)
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
        await self._install_chart()
        await self._wait_parts()
        await self._wait_served()
        await self._wait_judged()
        await self._apply_all([self._runtime_config(), content.cluster_profile()])

    def _settle(self, programs: dict[str, Path]) -> None:
        """Choose addresses and ports, and remember them. Raises: StepError."""
        name = "choose addresses on loopback"
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
        """Start the hub and S3, with the base models in the hub."""
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
            *self._on_demand("hub"),
            env={"HUB_TOKEN": self.world.hub_token},
        )
        await self._start_python(
            "s3",
            "devcluster.sources.s3",
            f"--root={self.layout.s3}",
            f"--listen={LOOPBACK}:{self.world.ports['s3']}",
            *self._on_demand("s3"),
            env={"S3_ACCESS_KEY": self.world.s3_access_key, "S3_SECRET_KEY": self.world.s3_secret_key},
        )

    def _on_demand(self, source: str) -> tuple[str, str]:
        """Return the options for a source's faults file and requests file."""
        return (
            f"--faults-file={self.layout.faults_of(source)}",
            f"--requests-file={self.layout.logs / f'{source}-requests.jsonl'}",
        )

    async def _start_parts(self) -> None:
        """Start the node (it forwards Services too) and the InferenceService stand-in."""
        pki = self.layout.pki
        self.layout.images.write_text(json.dumps(render_images(Path(sys.executable)), indent=1) + "\n")
        await asyncio.to_thread(compile_packages, CHART.parent)
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
            f"--client-ca-file={pki / 'ca.crt'}",
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
        """Wait until the stand-ins serve; show what the node cannot do on this machine. Raises: StepError."""
        with contextlib.suppress(FileNotFoundError):
            self.notices = (self.layout.node / "notice").read_text().splitlines()
        for notice in self.notices:
            self.progress.note(f"note: {notice}")
        await self._wait_ready_file("kserve", "the InferenceService webhooks answer")

    def _ready_file(self, name: str) -> Path:
        """Return the file that a part writes once it serves."""
        return self.layout.run / f"{name}.ready"

    async def _wait_ready_file(self, name: str, expected: str) -> None:
        async def probe() -> str | None:
            return None if self._ready_file(name).exists() else tail(self.layout.log_of(name), 1) or "no output yet"

        step = f"start the {name} stand-in"
        await self._wait(step, probe, expected=expected, timeout_s=_PART_S, log_hint=str(self.layout.log_of(name)))

    async def _start_python(
        self, name: str, module: str, *arguments: str, env: dict[str, str] | None = None, grace_s: float = 5.0
    ) -> None:
        """Run a module of this repository with this interpreter."""
        argv = (sys.executable, "-m", module, *arguments)
        await self.keeper.start(Command(name, argv, self.layout.log_of(name), env or {}, grace_s))

    async def _provision(self) -> None:
        """Provision volumes for as long as the cluster runs."""
        while True:
            try:
                async with await Kube.connect(self.layout.kubeconfig_of("provisioner")) as kube:
                    await provisioner.run(kube, self.layout.claims, self.layout.owners)
            except Exception:
                log.exception("the provisioner failed; restarting it")
                await asyncio.sleep(1.0)

    def _secrets(self) -> list[JsonObject]:
        world = self.world
        return content.source_secrets(
            "default", access_key=world.s3_access_key, secret_key=world.s3_secret_key, token=world.hub_token
        )

    def _runtime_config(self) -> JsonObject:
        ports = self.world.ports
        return content.runtime_config(hub=f"http://{LOOPBACK}:{ports['hub']}", s3=f"http://{LOOPBACK}:{ports['s3']}")

    async def _apply_all(self, manifests: list[JsonObject]) -> None:
        """Apply objects; wait a little for a kind or namespace that was just created. Raises: StepError."""
        pending = list(manifests)

        async def put() -> str | None:
            while pending:
                try:
                    await self.kube.apply(
                        content.path_of(pending[0]), pending[0], field_manager=content.FIELD_MANAGER, force=True
                    )
                except ApiError as error:
                    return f"{_name(pending[0])}: {error.message or error}"
                del pending[0]
            return None

        await self._wait(
            f"apply {', '.join(map(_name, manifests))}",
            put,
            expected="the API server accepts the objects",
            timeout_s=30.0,
            log_hint=str(self.layout.log_of("kube-apiserver")),
        )

    async def _install_chart(self) -> None:
        """Install or upgrade the chart as a user would. Raises: StepError."""
        name, log_path = "helm upgrade --install aim-adapters", self.layout.log_of("helm")
        with self.progress.step(name) as step:
            try:
                values = render_values(self.world.settings, service_port=self._service_port())
            except ValueError as error:
                raise StepError(name, "valid settings", str(error)) from error
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
        """Delete helm's record of an operation that a killed start did not finish: helm would refuse to continue.

        Objects that it already created stay, and the next attempt adopts them.
        """
        path = f"/api/v1/namespaces/{NAMESPACE}/secrets"
        pending = f"owner=helm,name={RELEASE},status in (pending-install,pending-upgrade,pending-rollback)"
        for secret in await self.kube.list(path, {"labelSelector": pending}):
            await self.kube.delete(f"{path}/{secret['metadata']['name']}")

    async def _helm(self, *arguments: str) -> tuple[int, str]:
        """Run helm to its end; return the exit code and its output."""
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
        """Return 443, or a port above 1023 if lower ones cannot be bound."""
        return _HTTPS if may_bind(str(self.site.addresses.services[-2]), _HTTPS) else _HIGH_HTTPS

    async def _wait_served(self) -> None:
        """Wait until a pod of the server is ready, and no older revision has pods. Raises: StepError."""
        name = "wait for a ready pod of the server"
        hint = f"{self.layout.log_of('node')}, and the pods' below {self.layout.node / 'logs'}"
        pods_path = f"/api/v1/namespaces/{NAMESPACE}/pods"
        deployment_path = f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments/{RELEASE}"

        async def ask() -> str | None:
            try:
                pods = await self.kube.list(pods_path, {"labelSelector": f"app.kubernetes.io/instance={RELEASE}"})
                deployment = await self.kube.get(deployment_path)
            except ApiError as error:
                return str(error)
            if is_crashing(pods):
                raise StepError(name, "a pod that keeps running", describe_pods(pods), hint)
            return None if is_rolled_out(deployment) else describe_pods(pods)

        await self._wait(
            name,
            ask,
            expected="one ready pod",
            timeout_s=_SERVED_S,
            log_hint=hint,
        )

    async def _wait_judged(self) -> None:
        """Wait until the webhook answers: it refuses an object that nothing else refuses. Raises: StepError."""
        probe = content.probe()
        path = content.path_of(probe).rpartition("/")[0]

        async def ask() -> str | None:
            try:
                await self.kube.request("POST", path, params={"dryRun": "All"}, body=probe, timeout_s=10.0)
            except ApiError as error:
                return None if "denied the request" in error.message else error.message
            return "the API server accepts the object: the webhook is not active yet"

        await self._wait(
            "wait for the admission webhook to refuse an invalid object",
            ask,
            expected="the webhook refuses it",
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


def _name(manifest: JsonObject) -> str:
    return f"{manifest['kind']} {manifest['metadata']['name']}"
