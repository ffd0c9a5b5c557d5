"""Watches the webhook configurations of this server, and reports when the API server does not ask it.

One watch for each configuration, of one object: nothing is asked while nothing changes. A CA bundle is tried by a real
handshake with the admission port, as the API server makes it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import ssl

from prometheus_client import Gauge

from api.kinds import Kind
from api.view import JsonObject
from app.health import shake_hands
from app.settings import Settings
from kube.client import Client
from kube.follow import follow
from webhooks.registration import Expected, Problem, Trouble, bundles_of, not_trusted, problems_of

log = logging.getLogger(__name__)

PROBLEM = Gauge(
    "aim_adapters_webhook_configuration_problem",
    "1 while a webhook configuration of this server is missing or differs from what is served, by reason; /readyz has "
    "the words.",
    ["kind", "reason"],
)
_AGAIN_SECONDS = 2.0  # after a handshake that failed: a new CA and its certificate do not arrive together


class Registration:
    """What is known of the configurations. Args: `address`: host and port of the admission port of this process."""

    def __init__(self, client: Client, settings: Settings, address: tuple[str, int]) -> None:
        self._client, self._address, self._names = client, address, settings.webhook_configurations()
        self._expected = Expected(
            settings.service_name, settings.own_namespace(), settings.namespaces, settings.cluster_kinds_reviewed
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
        async with contextlib.aclosing(follow(self._client, kind, name)) as looks:
            async for configuration in looks:
                await self._judge(kind, name, configuration)

    async def _judge(self, kind: Kind, name: str, configuration: JsonObject | None) -> None:
        found = problems_of(kind, name, configuration, self._expected)
        if configuration is not None and not found:
            found = await self._distrust(kind, name, configuration)
        before = self._found.get((kind, name))
        self._found[kind, name] = found
        current = {problem.trouble for (known, _), all_ in self._found.items() if known == kind for problem in all_}
        for trouble in Trouble:
            PROBLEM.labels(kind.kind, trouble).set(int(trouble in current))
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
        try:
            await shake_hands(*self._address, context, self._server_name)
        except ssl.SSLCertVerificationError as error:
            return error.verify_message
        except (OSError, TimeoutError):
            return None  # the check of the handshake itself reports this
        return None
