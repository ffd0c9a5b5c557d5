"""Secrets and ConfigMaps that the node's pods use, each followed by a watch of its own, as a kubelet does."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from api.view import JsonObject
from devcluster.by_path import Kube
from devcluster.paths import path_for

Reference = tuple[str, str]  # (kind, name); kind is "Secret" or "ConfigMap"
_PLURAL = {"Secret": "secrets", "ConfigMap": "configmaps"}
_LINGER_S = 30.0  # an unused object stays watched this long: the next pod of a series finds it at once
_SYNC_TIMEOUT_S = 10.0


@dataclass(slots=True)
class _Entry:
    task: asyncio.Task[None] | None = None
    value: JsonObject | None = None
    synced: asyncio.Event = field(default_factory=asyncio.Event)
    users: dict[str, Callable[[], None]] = field(default_factory=dict)
    forget: asyncio.TimerHandle | None = None


class ObjectStore:
    """Watches single objects while they are in use. The Node authorizer does not allow wider reads."""

    def __init__(self, kube: Kube) -> None:
        self._kube = kube
        self._entries: dict[tuple[str, str, str], _Entry] = {}

    async def use(
        self, user: str, namespace: str, references: Iterable[Reference], changed: Callable[[], None]
    ) -> None:
        """Follow these objects for `user` and wait until each is known; `changed` is called at every later change.

        Raises: TimeoutError when the API server does not answer in time.
        """
        entries = [self._entry(namespace, reference, user, changed) for reference in references]
        async with asyncio.timeout(_SYNC_TIMEOUT_S):
            for entry in entries:
                await entry.synced.wait()

    def get(self, namespace: str, kind: str, name: str) -> JsonObject | None:
        """Return an object that is in use, None when it does not exist."""
        entry = self._entries.get((namespace, kind, name))
        return entry.value if entry else None

    def release(self, user: str) -> None:
        """Forget a user; an unused object is dropped after a while."""
        loop = asyncio.get_running_loop()
        for key, entry in self._entries.items():
            if entry.users.pop(user, None) is not None and not entry.users:
                entry.forget = loop.call_later(_LINGER_S, self._drop, key)

    async def aclose(self) -> None:
        """End every watch."""
        tasks = [entry.task for entry in self._entries.values() if entry.task]
        for entry in self._entries.values():
            if entry.forget:
                entry.forget.cancel()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._entries.clear()

    def _entry(self, namespace: str, reference: Reference, user: str, changed: Callable[[], None]) -> _Entry:
        key = (namespace, *reference)
        entry = self._entries.get(key)
        if entry is None:
            entry = self._entries[key] = _Entry()
            entry.task = asyncio.create_task(self._follow(key, entry))
        if entry.forget:
            entry.forget.cancel()
            entry.forget = None
        entry.users[user] = changed
        return entry

    def _drop(self, key: tuple[str, str, str]) -> None:
        entry = self._entries.pop(key, None)
        if entry and entry.task:
            entry.task.cancel()

    async def _follow(self, key: tuple[str, str, str], entry: _Entry) -> None:
        namespace, kind, name = key
        events = self._kube.watch(path_for("v1", _PLURAL[kind], namespace), {"fieldSelector": f"metadata.name={name}"})
        async with contextlib.aclosing(events) as stream:
            async for what, item in stream:
                if what == "SYNCED":
                    entry.synced.set()
                    continue
                entry.value = None if what == "DELETED" else item
                for tell in list(entry.users.values()):
                    tell()
