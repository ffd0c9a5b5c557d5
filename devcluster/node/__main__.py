"""`python -m devcluster.node`: run the process node until SIGTERM."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import urlsplit

import aiohttp
import uvloop

from devcluster.by_path import Kube
from devcluster.node.agent import Agent
from devcluster.node.events import Events
from devcluster.node.host import Addresses, Host, Patience
from devcluster.node.images import ImageTable
from devcluster.node.logs_api import LogsApi, server_tls
from devcluster.node.objects import ObjectStore
from devcluster.node.process import Isolation, choose_mode
from devcluster.node.registration import Registration, Shape
from devcluster.service_proxy import ServiceProxy
from kube.auth import NoCredentials
from kube.errors import ApiError

log = logging.getLogger("devcluster.node")
_PATIENCE = Patience()
REPOSITORY = Path(__file__).resolve().parents[2]


def parser() -> argparse.ArgumentParser:
    """Return the command line."""
    p = argparse.ArgumentParser(prog="python -m devcluster.node", description="Run pods as local processes.")
    p.add_argument("--kubeconfig", type=Path, required=True, help="of system:node:NAME")
    p.add_argument("--dir", type=Path, required=True, help="the node's own folder")
    p.add_argument("--name", default="aim-dev-0")
    p.add_argument("--pod-cidr", default="127.65.0.0/16")
    p.add_argument("--images", type=Path, required=True, help="JSON: image → local command")
    p.add_argument("--claims", type=Path, required=True, help="folder with NAMESPACE/CLAIM per volume claim")
    p.add_argument("--isolation", choices=["auto", "root", "user", "none"], default="auto")
    p.add_argument("--expose", action="append", default=[], help="path that every container sees, read-only")
    p.add_argument("--kubelet-port", type=int, default=0, help="where logs are served (0: nowhere)")
    p.add_argument("--tls-cert", type=Path, help="serving certificate for logs")
    p.add_argument("--tls-key", type=Path)
    p.add_argument("--client-ca-file", type=Path, help="CA of the clients that may read logs")
    p.add_argument("--gpus", type=int, default=8)
    p.add_argument("--cpu", default="128")
    p.add_argument("--memory", default="1Ti")
    p.add_argument("--pods", type=int, default=500)
    p.add_argument("--label", action="append", default=[], metavar="NAME=VALUE")
    p.add_argument("--crash-backoff", type=float, default=_PATIENCE.crash_first_s, help="seconds, doubling")
    p.add_argument("--crash-backoff-max", type=float, default=_PATIENCE.crash_max_s)
    p.add_argument("--stop-grace", type=float, default=_PATIENCE.stop_s, help="seconds for pods when the node stops")
    p.add_argument("--no-service-proxy", action="store_true", help="leave ClusterIPs to others")
    p.add_argument("--ready-fd", type=int, help="gets one line when the node follows its pods")
    p.add_argument("--verbose", action="store_true")
    return p


def exposed_paths(programs: Sequence[str], extra: Sequence[str]) -> tuple[str, ...]:
    """Return what containers must see to run our own code: the checkout, the interpreter, the images' programs."""
    found = {str(REPOSITORY), sys.prefix, sys.base_prefix, os.path.dirname(os.path.realpath(sys.executable))}
    for program in programs:
        environment = Path(program).parent.parent
        if (environment / "pyvenv.cfg").exists():
            found |= {str(environment), str(Path(os.path.realpath(program)).parent.parent)}
        else:
            found |= {program, os.path.realpath(program)}
    found |= {os.path.abspath(path) for path in extra}
    return tuple(sorted(found - {"/"}))


def closed_to_others(exposed: Sequence[str]) -> str:
    """Return a file that every container needs and only its owner may read, "" when there is none.

    Directories above what is exposed do not matter: the launcher leads around them.
    """
    for needed in (Path(__file__), Path(os.__file__), Path(aiohttp.__file__), Path(os.path.realpath(sys.executable))):
        inside = [p for p in (needed, *needed.parents) if any(str(p).startswith(e + "/") for e in exposed)]
        for path in inside:
            if not path.stat().st_mode & (0o005 if path.is_dir() else 0o004):
                return str(path)
    return ""


async def start_host(args: argparse.Namespace, kube: Kube, events: Events, store: ObjectStore) -> Host:
    """Look at the machine and return what the pods share. Raises: ValueError."""
    root = args.dir / "run" / "root"
    mode, notice = await choose_mode(root, args.isolation)
    images = ImageTable(args.images)
    exposed = exposed_paths(images.programs(), args.expose)
    notices = [notice] if notice else []
    if mode == "root" and (closed := closed_to_others(exposed)):
        notices.append(f"only root may read {closed}: containers that run as another user fail (chmod -R o+rX)")
    for one in notices:
        log.warning(one)
    (args.dir / "notice").write_text("".join(f"{one}\n" for one in notices))
    server = urlsplit(kube.server)
    return Host(
        kube=kube,
        store=store,
        events=events,
        images=images,
        isolation=Isolation(mode, root, exposed),
        addresses=Addresses(args.pod_cidr),
        folder=args.dir,
        claims=args.claims,
        node_name=args.name,
        api_host=server.hostname or "127.0.0.1",
        api_port=str(server.port or 443),
        allocatable=shape_of(args).capacity,
        patience=Patience(crash_first_s=args.crash_backoff, crash_max_s=args.crash_backoff_max, stop_s=args.stop_grace),
    )


def shape_of(args: argparse.Namespace) -> Shape:
    """Return what the node claims to be."""
    return Shape(
        name=args.name,
        cpu=args.cpu,
        memory=args.memory,
        gpus=args.gpus,
        pods=args.pods,
        kubelet_port=args.kubelet_port,
        labels=dict(label.partition("=")[::2] for label in args.label),
    )


async def serve_logs(args: argparse.Namespace, host: Host, agent: Agent) -> asyncio.Server | None:
    """Serve logs if there is a certificate for it."""
    if not (args.kubelet_port and args.tls_cert and args.tls_key and args.client_ca_file):
        return None

    def is_running(namespace: str, pod: str, container: str) -> bool:
        worker = agent.pod_named(namespace, pod)
        return worker is not None and worker.may_log_more(container)

    api = LogsApi(host.log_folder, is_running)
    tls = server_tls(args.tls_cert, args.tls_key, args.client_ca_file.read_bytes())
    return await api.serve("127.0.0.1", args.kubelet_port, tls)


async def run(args: argparse.Namespace) -> None:
    """Run the node until SIGTERM or SIGINT."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    async with await Kube.connect(args.kubeconfig, user_agent="process-node") as kube:
        events, store = Events(kube, args.name), ObjectStore(kube)
        host = await start_host(args, kube, events, store)
        registration = Registration(kube, shape_of(args))
        agent = Agent(host)
        logs = await serve_logs(args, host, agent)
        jobs = [events.run(), stay(registration, agent, args.ready_fd)]
        if not args.no_service_proxy:
            jobs.append(ServiceProxy(kube, agent.backends).run())
        tasks = [asyncio.create_task(job) for job in jobs]
        waiting = asyncio.create_task(stop.wait())
        try:
            done, _ = await asyncio.wait([*tasks, waiting], return_when=asyncio.FIRST_COMPLETED)
            await agent.close()
            for task in done - {waiting}:
                task.result()  # they end only with an error
        finally:
            for task in [*tasks, waiting]:
                task.cancel()
            await asyncio.gather(*tasks, waiting, return_exceptions=True)
            if logs:
                logs.close()
            await store.aclose()


async def stay(registration: Registration, agent: Agent, ready_fd: int | None) -> None:
    """Register, then follow pods and keep the Node alive until cancelled."""
    await registration.register()
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(registration.keep_alive())
        tasks.create_task(agent.follow())
        await agent.synced.wait()
        log.info("the node follows its pods")
        if ready_fd is not None:
            with contextlib.suppress(OSError):
                os.write(ready_fd, b"ready\n")
                os.close(ready_fd)


def main() -> int:
    """Run the node; exit code 1 with one line of explanation when it cannot."""
    args = parser().parse_args()
    level = logging.DEBUG if args.verbose else logging.INFO
    logging.basicConfig(level=level, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    logging.getLogger("asyncio").setLevel(logging.WARNING)
    logging.getLogger("kube").setLevel(logging.ERROR)  # watches wait for a pod's binding: refused for a moment
    for field in ("dir", "images", "claims", "kubeconfig"):
        setattr(args, field, getattr(args, field).absolute())
    for private in ("pods", "run"):
        (args.dir / private).mkdir(parents=True, exist_ok=True, mode=0o700)
    failed = False
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(run(args))
    except* (ValueError, OSError, ApiError, NoCredentials) as errors:
        for error in errors.exceptions:
            log.error("%s", error)
        failed = True
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
