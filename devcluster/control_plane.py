"""The Kubernetes programs of a cluster: their certificates, their command lines, and when each is ready.

Rendering is pure; `prepare` writes files, the `wait_…` functions ask the API server.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from devcluster.by_path import Kube
from devcluster.content import OPERATORS
from devcluster.folder import Layout
from devcluster.pki import Authority, ensure_signing_key, first_address, render_kubeconfig, write_private
from devcluster.processes import Command
from devcluster.progress import Progress, poll
from devcluster.ranges import AddressRange
from kube.errors import ApiError, NotFound

NODE_NAME = "aim-dev-0"
PORTS = ("etcd", "etcd-peer", "kube-apiserver", "kubelet", "hub", "hub-cdn", "s3", "kserve")
CONTROL_PLANE_NAMES = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler")
LOOPBACK = "127.0.0.1"
_ISSUER = "https://kubernetes.default.svc.cluster.local"
_READY_S = 120.0  # a loaded machine with two cores needs a tenth of it
# EndpointSlices refuse loopback addresses, which is what our pods have: the Service forwarder picks pods by selector
_CONTROLLERS = "*,-endpoints-controller,-endpointslice-controller,-endpointslice-mirroring-controller"

_AUDIT_POLICY = """\
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: None
  nonResourceURLs: ["/healthz*", "/livez*", "/readyz*", "/version", "/openapi*"]
- level: Metadata
"""


@dataclass(frozen=True, slots=True)
class Site:
    """Where one run of a cluster lives: its folder, addresses, ports and programs."""

    layout: Layout
    addresses: AddressRange
    ports: dict[str, int]
    programs: dict[str, Path]
    audit: bool = False

    @property
    def api_server(self) -> str:
        """Return the API server's URL."""
        return f"https://{LOOPBACK}:{self.ports['kube-apiserver']}"

    @property
    def service_address(self) -> str:
        """Return the ClusterIP of the Service `kubernetes`."""
        return str(first_address(str(self.addresses.services)))


USERS: dict[str, tuple[str, tuple[str, ...]]] = {
    # file name: (user, groups)
    "admin": ("aim-dev-admin", ("system:masters",)),
    "controller-manager": ("system:kube-controller-manager", ()),
    "scheduler": ("system:kube-scheduler", ()),
    "node": (f"system:node:{NODE_NAME}", ("system:nodes",)),
    "kserve": ("aim-dev:kserve", (OPERATORS,)),
    "provisioner": ("aim-dev:provisioner", (OPERATORS,)),
}


def prepare(site: Site, now: datetime) -> Authority:
    """Write CA (once), serving certificates, kubeconfigs and signing key; return the CA. `now` in UTC."""
    layout = site.layout
    authority = Authority.ensure(layout.pki)
    names = (LOOPBACK, "localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc", site.service_address)
    authority.issue("kube-apiserver", "kube-apiserver", hosts=names, now=now)
    authority.issue("etcd", "etcd", hosts=(LOOPBACK, "localhost"), now=now)
    authority.issue("etcd-client", "kube-apiserver-etcd-client", now=now)
    authority.issue("kubelet", NODE_NAME, hosts=(LOOPBACK, NODE_NAME), now=now)
    authority.issue("kubelet-client", "kube-apiserver-kubelet-client", groups=("system:masters",), now=now)
    ensure_signing_key(layout.pki / "service-accounts.key")
    for name, (user, groups) in USERS.items():
        pair = authority.issue(name, user, groups=groups, now=now)
        path = layout.kubeconfig if name == "admin" else layout.kubeconfig_of(name)
        write_private(path, render_kubeconfig(site.api_server, authority.pem, user, pair).encode())
    (layout.pki / "audit-policy.yaml").write_text(_AUDIT_POLICY)
    return authority


def etcd(site: Site) -> Command:
    """Return etcd's command: one member, TLS on loopback, no fsync (the data need only survive us, not a power cut)."""
    pki, ports = site.layout.pki, site.ports
    client, peer = f"https://{LOOPBACK}:{ports['etcd']}", f"http://{LOOPBACK}:{ports['etcd-peer']}"
    return _command(
        site,
        "etcd",
        "--name=aim-dev",
        f"--data-dir={site.layout.etcd / 'data'}",
        f"--listen-client-urls={client}",
        f"--advertise-client-urls={client}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=aim-dev={peer}",
        f"--cert-file={pki / 'etcd.crt'}",
        f"--key-file={pki / 'etcd.key'}",
        f"--trusted-ca-file={pki / 'ca.crt'}",
        "--client-cert-auth=true",
        "--unsafe-no-fsync=true",
        "--auto-compaction-retention=0",
        "--logger=zap",
        "--log-level=warn",
    )


def kube_apiserver(site: Site) -> Command:
    """Return kube-apiserver's command: Node and RBAC authorization, default admission plugins and NodeRestriction."""
    pki = site.layout.pki
    audit = (
        (f"--audit-policy-file={pki / 'audit-policy.yaml'}", f"--audit-log-path={site.layout.logs / 'audit.log'}")
        if site.audit
        else ()
    )
    return _command(
        site,
        "kube-apiserver",
        f"--etcd-servers=https://{LOOPBACK}:{site.ports['etcd']}",
        f"--etcd-cafile={pki / 'ca.crt'}",
        f"--etcd-certfile={pki / 'etcd-client.crt'}",
        f"--etcd-keyfile={pki / 'etcd-client.key'}",
        f"--bind-address={LOOPBACK}",
        f"--advertise-address={LOOPBACK}",
        f"--secure-port={site.ports['kube-apiserver']}",
        f"--tls-cert-file={pki / 'kube-apiserver.crt'}",
        f"--tls-private-key-file={pki / 'kube-apiserver.key'}",
        f"--client-ca-file={pki / 'ca.crt'}",
        "--authorization-mode=Node,RBAC",
        "--enable-admission-plugins=NodeRestriction",
        "--allow-privileged=true",
        f"--service-cluster-ip-range={site.addresses.services}",
        f"--service-account-issuer={_ISSUER}",
        f"--service-account-key-file={pki / 'service-accounts.key'}",
        f"--service-account-signing-key-file={pki / 'service-accounts.key'}",
        f"--kubelet-certificate-authority={pki / 'ca.crt'}",
        f"--kubelet-client-certificate={pki / 'kubelet-client.crt'}",
        f"--kubelet-client-key={pki / 'kubelet-client.key'}",
        "--kubelet-preferred-address-types=InternalIP",
        "--endpoint-reconciler-type=none",  # the endpoints of Service `kubernetes` would be a loopback address: refused
        "--profiling=false",
        *audit,
    )


def kube_controller_manager(site: Site) -> Command:
    """Return kube-controller-manager's command; leads at once, since it is the only one."""
    pki = site.layout.pki
    return _command(
        site,
        "kube-controller-manager",
        f"--kubeconfig={site.layout.kubeconfig_of('controller-manager')}",
        f"--controllers={_CONTROLLERS}",
        f"--service-account-private-key-file={pki / 'service-accounts.key'}",
        f"--root-ca-file={pki / 'ca.crt'}",
        f"--cluster-signing-cert-file={pki / 'ca.crt'}",
        f"--cluster-signing-key-file={pki / 'ca.key'}",
        f"--service-cluster-ip-range={site.addresses.services}",
        "--use-service-account-credentials=true",
        "--leader-elect=false",
        "--secure-port=0",
        "--profiling=false",
        "--kube-api-qps=200",
        "--kube-api-burst=400",
        "--concurrent-job-syncs=20",  # of 5: each waits for four calls, and a service has a Job for each adapter
    )


def kube_scheduler(site: Site) -> Command:
    """Return kube-scheduler's command; leads at once, since it is the only one."""
    return _command(
        site,
        "kube-scheduler",
        f"--kubeconfig={site.layout.kubeconfig_of('scheduler')}",
        "--leader-elect=false",
        "--secure-port=0",
        "--profiling=false",
    )


def _command(site: Site, name: str, *flags: str) -> Command:
    return Command(name, (str(site.programs[name]), *flags), site.layout.log_of(name), grace_s=3.0)


async def wait_api_server(progress: Progress, site: Site, kube: Kube) -> None:
    """Wait until kube-apiserver says that it is ready.

    Raises: StepError.
    """

    async def probe() -> str | None:
        try:
            await kube.text("/readyz", timeout_s=5.0)
        except ApiError as error:
            return _failing_checks(error.message)
        return None

    with progress.step("wait for kube-apiserver /readyz") as step:
        await poll(
            step,
            probe,
            expected="200 ok",
            timeout_s=_READY_S,
            sleep=asyncio.sleep,
            log=str(site.layout.log_of("kube-apiserver")),
        )


async def wait_service_account(progress: Progress, site: Site, kube: Kube) -> None:
    """Wait until the namespace `default` has its service account: then the controller manager works.

    Raises: StepError.
    """
    await wait_object(
        progress,
        kube,
        "wait for the default service account",
        "/api/v1/namespaces/default/serviceaccounts/default",
        log=str(site.layout.log_of("kube-controller-manager")),
    )


async def wait_object(
    progress: Progress,
    kube: Kube,
    name: str,
    path: str,
    *,
    log: str,
    timeout_s: float = _READY_S,
    missing: Callable[[dict[str, object]], str | None] = lambda _: None,
) -> None:
    """Wait until the object at `path` exists and `missing` returns None for it.

    Raises: StepError.
    """

    async def probe() -> str | None:
        try:
            return missing(await kube.get(path, timeout_s=5.0))
        except ApiError as error:
            return "does not exist yet" if isinstance(error, NotFound) else error.message

    with progress.step(name) as step:
        await poll(step, probe, expected="the object exists", timeout_s=timeout_s, sleep=asyncio.sleep, log=log)


def _failing_checks(message: str) -> str:
    """Shorten the answer of /readyz to the checks that fail."""
    failing = [line.split()[0].removeprefix("[-]") for line in message.splitlines() if line.startswith("[-]")]
    return f"not ready: {', '.join(failing)}" if failing else (message.splitlines() or [""])[0]
