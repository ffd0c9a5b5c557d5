"""Watches the webhook configurations of this server, and reports when the API server does not ask it.

One watch for each configuration, of one object: nothing is asked while nothing changes. A CA bundle is tried by a real
handshake with the admission port, as the API server makes it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import ssl
from collections.abc import Callable

from prometheus_client import Gauge

from api.kinds import MUTATING_WEBHOOK_CONFIGURATION, VALIDATING_WEBHOOK_CONFIGURATION, Kind
from api.view import JsonObject
from app.health import reachable
from app.settings import Settings
from kube.client import Client
from kube.errors import ApiError, Forbidden
from webhooks.registration import Expected, Problem, Trouble, bundles_of, not_trusted, problems_of

log = logging.getLogger(__name__)

PROBLEM = Gauge(
    "aim_adapters_webhook_configuration_problem",
    "1 while a webhook configuration of this server is missing or differs from what is served, by reason; /readyz has "
    "the words.",
    ["kind", "reason"],
)
PAUSE_SECONDS = 5.0  # after a watch ended
WATCH_SECONDS = 300
_HANDSHAKE_SECONDS = 5.0
_AGAIN_SECONDS = 2.0  # after a handshake that failed: a new CA and its certificate do not arrive together


class Registration:
    """What is known of the configurations. Args: `address`: host and port of the admission port of this process."""

    def __init__(self, client: Client, settings: Settings, address: Callable[[], tuple[str, int]]) -> None:
        self._client, self._address = client, address
        self._expected = Expected(
            settings.service_name, settings.own_namespace(), settings.namespaces, settings.cluster_kinds_reviewed
        )
        self._names = (
            *((VALIDATING_WEBHOOK_CONFIGURATION, name) for name in settings.validating_webhook_configurations),
            *((MUTATING_WEBHOOK_CONFIGURATION, name) for name in settings.mutating_webhook_configurations),
        )
        self._server_name = f"{settings.service_name}.{settings.own_namespace()}.svc"
        self._found: dict[tuple[Kind, str], list[Problem]] = {}

    def problem(self) -> str | None:
        """Return in words what is wrong, None if nothing is, or nothing is known yet."""
        return "; ".join(str(problem) for found in self._found.values() for problem in found) or None

    async def run(self) -> None:
        """Follow all configurations until cancelled."""
        async with asyncio.TaskGroup() as group:
            for kind, name in self._names:
                group.create_task(self._follow(kind, name), name=f"registration {kind.kind}")

    async def _follow(self, kind: Kind, name: str) -> None:
        while True:
            try:
                found = await self._client.find(kind, None, name)
                await self._judge(kind, name, found)
                version = found["metadata"]["resourceVersion"] if found is not None else "0"
                selector = f"metadata.name={name}"
                async with contextlib.aclosing(
                    self._client.watch(kind, version, field_selector=selector, timeout_seconds=WATCH_SECONDS)
                ) as events:
                    async for event in events:
                        if event.type in ("ADDED", "MODIFIED", "DELETED"):
                            await self._judge(kind, name, None if event.type == "DELETED" else event.object)
            except Forbidden:
                log.debug("the webhook configurations cannot be read", extra={"kind": kind.kind, "object": name})
                await asyncio.sleep(WATCH_SECONDS)  # rights change rarely
            except ApiError as error:
                log.debug("watch of a webhook configuration ended", extra={"error": str(error)})
            await asyncio.sleep(PAUSE_SECONDS)

    async def _judge(self, kind: Kind, name: str, configuration: JsonObject | None) -> None:
        found = problems_of(kind, name, configuration, self._expected)
        if configuration is not None and not found:
            found = await self._distrust(kind, name, configuration)
        before = self._found.get((kind, name))
        self._found[kind, name] = found
        for trouble in Trouble:
            active = any(
                problem.trouble == trouble
                for (known, _), problems in self._found.items()
                if known == kind
                for problem in problems
            )
            PROBLEM.labels(kind.kind, trouble).set(int(active))
        if found and found != before:
            log.warning("the API server does not ask this server about all objects", extra={"problem": str(found[0])})
        elif before and not found:
            log.info("the webhook configuration is in order again", extra={"kind": kind.kind, "object": name})

    async def _distrust(self, kind: Kind, name: str, configuration: JsonObject) -> list[Problem]:
        """Return the problem of a bundle that does not verify the certificate in service; tried twice."""
        for bundle in set(bundles_of(configuration)):
            why = await self._refused(bundle)
            if why is not None:
                await asyncio.sleep(_AGAIN_SECONDS)
                why = await self._refused(bundle)
            if why is not None:
                return [not_trusted(kind, name, why)]
        return []

    async def _refused(self, bundle: bytes) -> str | None:
        """Return why a client with this bundle refuses the certificate, None when it does not."""
        if not bundle.strip():
            return "it is empty"
        try:
            context = ssl.create_default_context(cadata=bundle.decode("ascii"))
        except (ssl.SSLError, ValueError):
            return "it is not PEM"
        host, port = self._address()
        connecting = asyncio.open_connection(reachable(host), port, ssl=context, server_hostname=self._server_name)
        try:
            async with asyncio.timeout(_HANDSHAKE_SECONDS):
                _, writer = await connecting
        except ssl.SSLCertVerificationError as error:
            return error.verify_message
        except (OSError, TimeoutError):
            return None  # the check of the handshake itself reports this
        writer.close()
        with contextlib.suppress(OSError, TimeoutError):
            await writer.wait_closed()
        return None
