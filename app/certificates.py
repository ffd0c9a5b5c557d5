"""Connects `certs` to the cluster: the Secret, the webhook configurations and the Service, through the client."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from api import view
from api.kinds import SECRET, SERVICE, Kind
from api.view import JsonObject
from app.settings import Settings
from certs.mounted import MountedAuthorities, MountedCertificate
from certs.serve import ServingCertificate
from certs.store import Lives, SelfManaged, Unavailable
from kube.client import Client
from kube.errors import AlreadyExists, ApiError, Conflict, Forbidden, Invalid, NotFound
from kube.follow import follow
from webhooks.registration import bundles_of

log = logging.getLogger(__name__)


NAMES_SECONDS = 300.0  # between reads of the Service: its address hardly ever changes


class CertificateCluster:
    """The API server as `certs.store` sees it. Every failure is `Unavailable`."""

    def __init__(self, client: Client, settings: Settings) -> None:
        self._client, self._settings = client, settings
        self._namespace = settings.own_namespace()
        self._changed = asyncio.Event()
        self._names: tuple[float, frozenset[str]] = (float("-inf"), frozenset())

    async def fetch_secret(self) -> JsonObject | None:
        """Return the Secret, or None."""
        async with _unavailable("the Secret could not be read"):
            return await self._client.find(SECRET, self._namespace, self._settings.certificate_secret)

    async def create_secret(self, data: dict[str, bytes]) -> bool:
        """Create the Secret; False when it exists."""
        metadata = {"namespace": self._namespace, "name": self._settings.certificate_secret}
        secret = {"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls", "metadata": metadata}
        async with _unavailable("the Secret could not be created"):
            try:
                await self._client.create(SECRET, {**secret, "data": _encode(data)})
            except AlreadyExists:
                return False
        return True

    async def replace_secret(self, secret: JsonObject, data: dict[str, bytes]) -> bool:
        """Put new data into the Secret; False when it changed since it was read."""
        async with _unavailable("the Secret could not be written"):
            try:
                await self._client.put(SECRET, {**secret, "data": _encode(data)})
            except (Conflict, NotFound):
                return False
        return True

    async def fetch_bundles(self) -> list[tuple[str, list[bytes]]]:
        """Return the bundles of each webhook configuration that exists."""
        found = []
        async with _unavailable("a webhook configuration could not be read"):
            for kind, name in self._settings.webhook_configurations():
                configuration = await self._client.find(kind, None, name)
                if configuration is not None:
                    found.append((f"{kind.kind}/{name}", bundles_of(configuration)))
        return found

    async def write_bundle(self, configuration: str, bundle: bytes) -> None:
        """Write a bundle into all webhooks of a configuration, unless that changed since the read."""
        kind, name = next(
            (k, n) for k, n in self._settings.webhook_configurations() if f"{k.kind}/{n}" == configuration
        )
        encoded = base64.b64encode(bundle).decode()
        async with _unavailable("the CA bundle could not be written"):
            found = await self._client.get(kind, None, name)
            version = {"op": "test", "path": "/metadata/resourceVersion", "value": found["metadata"]["resourceVersion"]}
            writes = [
                {"op": "add", "path": f"/webhooks/{index}/clientConfig/caBundle", "value": encoded}
                for index in range(len(view.items(found, "webhooks")))
            ]
            with contextlib.suppress(Conflict, Invalid, NotFound):  # a failed test of the version is Invalid
                await self._client.patch_json(kind, None, name, [version, *writes])

    async def fetch_names(self) -> frozenset[str]:
        """Return the names under which the API server may call: names and addresses of the Service, and the setting."""
        now = asyncio.get_running_loop().time()
        read_at, names = self._names
        if now - read_at < NAMES_SECONDS:
            return names
        service = f"{self._settings.service_name}.{self._namespace}"
        fixed = {self._settings.service_name, service, f"{service}.svc", f"{service}.svc.cluster.local"}
        names = frozenset(fixed | set(self._settings.certificate_names) | await self._service_addresses())
        self._names = (now, names)
        return names

    async def wait_for_change(self, seconds: float) -> None:
        """Return when one of the configurations changed, or after this many seconds."""
        try:
            async with asyncio.timeout(seconds):
                await self._changed.wait()
        except TimeoutError:
            return
        self._changed.clear()

    async def watch(self) -> None:
        """Watch the configurations, so that a damaged bundle is repaired at once; until cancelled."""
        async with asyncio.TaskGroup() as group:
            for kind, name in self._settings.webhook_configurations():
                group.create_task(self._watch_one(kind, name), name=f"watch {kind.kind}")

    async def _watch_one(self, kind: Kind, name: str) -> None:
        last: str | None = None  # the first look reports no change
        async with contextlib.aclosing(follow(self._client, kind, name)) as looks:
            async for found in looks:
                version = "" if found is None else str(found["metadata"]["resourceVersion"])
                if last is not None and version != last:
                    self._changed.set()
                last = version

    async def _service_addresses(self) -> set[str]:
        """Return the addresses of the Service; none without permission to read it: names suffice in most clusters."""
        try:
            service = await self._client.find(SERVICE, self._namespace, self._settings.service_name)
        except Forbidden:
            return set()
        except ApiError as error:
            raise Unavailable(f"the Service could not be read: {error}") from error
        spec = (service or {}).get("spec") or {}
        addresses = spec.get("clusterIPs") or [spec.get("clusterIP")]
        return {address for address in addresses if address and address != "None"}


@asynccontextmanager
async def certificates(client: Client | None, settings: Settings, serving: ServingCertificate) -> AsyncIterator[None]:
    """Maintain the serving certificate around a block, as the settings configure it.

    Args: `client` may be None for mounted certificates.
    """
    if settings.certificates == "mounted":
        mounted = MountedCertificate(settings.certificate_dir, serving)
        mounted.look()
        jobs = [mounted.run()]
    else:
        assert client is not None
        cluster = CertificateCluster(client, settings)
        lives = Lives(settings.authority_life, settings.certificate_life, settings.authority_publish_time)
        jobs = [SelfManaged(cluster, serving, lives=lives).run(), cluster.watch()]
    if settings.client_ca_file is not None:
        jobs.append(MountedAuthorities(settings.client_ca_file, serving).run())
    tasks = [asyncio.create_task(job, name="certificates") for job in jobs]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@asynccontextmanager
async def _unavailable(what: str) -> AsyncIterator[None]:
    try:
        yield
    except ApiError as error:
        raise Unavailable(f"{what}: {error}") from error


def _encode(data: dict[str, bytes]) -> dict[str, str]:
    return {key: base64.b64encode(value).decode() for key, value in data.items()}
