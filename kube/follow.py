"""Follows one object: what it is now, and each time that it changes. Costs nothing while it does not."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator

from api.kinds import Kind
from api.view import JsonObject
from kube.client import Client
from kube.errors import ApiError, Forbidden

log = logging.getLogger(__name__)

PAUSE_SECONDS = 5.0  # after a watch ended or broke
FORBIDDEN_SECONDS = 300.0  # after an answer that the object cannot be read: rights change rarely


async def follow(client: Client, kind: Kind, name: str) -> AsyncGenerator[JsonObject | None, None]:
    """Yield a cluster-scoped object as it is, and again whenever it may have changed; None: it does not exist.

    Never ends and never raises an error of `kube.errors`: after a failure it begins again.
    """
    while True:
        try:
            found = await client.find(kind, None, name)
            yield found
            version = found["metadata"]["resourceVersion"] if found is not None else "0"
            watch = client.watch(kind, version, field_selector=f"metadata.name={name}")
            async with contextlib.aclosing(watch) as events:
                async for event in events:
                    if event.type in ("ADDED", "MODIFIED", "DELETED"):
                        yield None if event.type == "DELETED" else event.object
        except Forbidden:
            log.debug("an object cannot be read", extra={"kind": kind.kind, "object": name})
            await asyncio.sleep(FORBIDDEN_SECONDS)
        except ApiError as error:
            log.debug("the watch of an object ended", extra={"kind": kind.kind, "object": name, "error": str(error)})
        await asyncio.sleep(PAUSE_SECONDS)
