"""Reads what `doctor` looks at. What cannot be read becomes a sentence in place of the value."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any

import orjson

from api import view
from api.kinds import (
    AIM_GROUP,
    LEASE,
    MUTATING_WEBHOOK_CONFIGURATION,
    POD,
    STORAGE_CLASS,
    VALIDATING_WEBHOOK_CONFIGURATION,
    Kind,
)
from api.view import Json
from cli.plugin.doctor import SERVING_API, Facts, place_of
from kube.client import Client
from kube.errors import ApiError, NotFound

_OF_THE_SERVER = "app.kubernetes.io/name=aim-adapters"
_HEALTH_PORT = 8080
_SECONDS = 5.0


async def gather(client: Client, now: Callable[[], datetime] = lambda: datetime.now(UTC)) -> Facts:
    """Return the facts. Raises: errors of `kube.errors` only where the cluster does not answer at all."""
    groups = (f"{AIM_GROUP}/v1alpha1", f"{AIM_GROUP}/v1alpha2", SERVING_API[0])
    served = {group: await _or_why(_served(client, group)) for group in groups}
    pods = await _or_why(_list(client, POD))
    places = {view.namespace_of(pod) for pod in pods} if not isinstance(pods, str) else set()
    return Facts(
        now(),
        served,
        {
            kind: await _or_why(_list(client, kind))
            for kind in (VALIDATING_WEBHOOK_CONFIGURATION, MUTATING_WEBHOOK_CONFIGURATION)
        },
        pods,
        await _or_why(_leases(client, places)),
        await _or_why(_list(client, STORAGE_CLASS, selector=None)),
        {} if isinstance(pods, str) else {place_of(pod): await _readiness(client, pod) for pod in pods},
    )


async def _or_why(reading: Awaitable[Any]) -> Any:
    try:
        return await reading
    except ApiError as error:
        return f"not known: {error.message or error.reason}"


async def _served(client: Client, group: str) -> frozenset[str] | None:
    try:
        found = orjson.loads(await client.get_raw(f"/apis/{group}", within=_SECONDS))
    except NotFound:
        return None
    return frozenset(view.text(entry, "name") or "" for entry in view.items(found, "resources"))


async def _list(client: Client, kind: Kind, selector: str | None = _OF_THE_SERVER) -> tuple[Json, ...]:
    found, _ = await client.list_all(kind, None, label_selector=selector)
    return tuple(found)


async def _leases(client: Client, namespaces: set[str]) -> tuple[Json, ...]:
    found = [await client.find(LEASE, namespace, "aim-adapters") for namespace in sorted(namespaces)]
    return tuple(lease for lease in found if lease is not None)


async def _readiness(client: Client, pod: Json) -> str:
    """Return what a pod says on /readyz, through the API server; empty where that is not allowed or not possible."""
    path = f"{POD.path(view.namespace_of(pod), view.name_of(pod))}:{_HEALTH_PORT}/proxy/readyz?verbose"
    try:
        return (await client.get_raw(path, within=_SECONDS)).decode("utf-8", "replace")
    except ApiError:
        return ""
