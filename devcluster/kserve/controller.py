"""The shell around `decide`: watches, a queue of keys, and the writes that a plan needs."""

from __future__ import annotations

import asyncio
import json
import logging
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime

from api.view import JsonObject
from devcluster.by_path import Kube
from devcluster.kserve import decide
from devcluster.kserve.words import (
    API_VERSION,
    FIELD_MANAGER,
    FINALIZER,
    KNATIVE,
    LABEL_APP,
    LABEL_ISVC,
    PLURAL,
    Settings,
    predictor_name,
)
from devcluster.paths import path_for
from kube.errors import ApiError, NotFound

log = logging.getLogger(__name__)

Key = tuple[str, str]  # (namespace, name) of an InferenceService
Over = Callable[[JsonObject, JsonObject], JsonObject]  # (desired, live): what to write over the live object

_WORKERS = 4
_RETRY_FIRST_S = 0.25
_RETRY_MAX_S = 60.0

ISVCS = (API_VERSION, PLURAL)
SERVICES = ("v1", "services")
DEPLOYMENTS = ("apps/v1", "deployments")
AUTOSCALERS = ("autoscaling/v2", "horizontalpodautoscalers")


class Store:
    """The objects of one kind, as last read or as last written, the newer ones."""

    def __init__(self, kind: tuple[str, str], selector: str = "") -> None:
        self.kind = kind
        self.params = {"labelSelector": selector} if selector else {}
        self._objects: dict[Key, JsonObject] = {}

    def path(self, namespace: str, name: str | None = None) -> str:
        """Return the REST path of an object, or of its collection."""
        return path_for(*self.kind, namespace, name)

    def get(self, namespace: str, name: str) -> JsonObject | None:
        """Return the object, None when it is not known."""
        return self._objects.get((namespace, name))

    def put(self, item: JsonObject) -> None:
        """Remember an object unless a newer state of it is known."""
        key = (item["metadata"]["namespace"], item["metadata"]["name"])
        known = self._objects.get(key)
        if known is None or _version(item) >= _version(known):
            self._objects[key] = item

    def drop(self, item: JsonObject) -> None:
        """Forget an object, unless its successor is known already."""
        key = (item["metadata"]["namespace"], item["metadata"]["name"])
        known = self._objects.get(key)
        if known is not None and known["metadata"]["uid"] == item["metadata"]["uid"]:
            del self._objects[key]


def _version(item: JsonObject) -> int:
    return int(item["metadata"]["resourceVersion"])


@dataclass(slots=True)
class Queue:
    """Keys to handle: each once, never by two workers at a time, later when asked."""

    ready: asyncio.Queue[Key] = field(default_factory=asyncio.Queue)
    waiting: set[Key] = field(default_factory=set)
    running: set[Key] = field(default_factory=set)
    again: set[Key] = field(default_factory=set)
    failures: dict[Key, int] = field(default_factory=dict)

    def add(self, key: Key) -> None:
        """Handle the key soon."""
        if key in self.running:
            self.again.add(key)
        elif key not in self.waiting:
            self.waiting.add(key)
            self.ready.put_nowait(key)

    async def take(self) -> Key:
        """Return the next key; hand it back with `done`."""
        key = await self.ready.get()
        self.waiting.discard(key)
        self.running.add(key)
        return key

    def done(self, key: Key, *, failed: bool) -> None:
        """Give the key back; after a failure it comes again, later each time."""
        self.running.discard(key)
        if key in self.again:
            self.again.discard(key)
            self.add(key)
        if not failed:
            self.failures.pop(key, None)
            return
        count = self.failures[key] = self.failures.get(key, 0) + 1
        pause = min(_RETRY_MAX_S, _RETRY_FIRST_S * 2 ** min(count - 1, 10))
        asyncio.get_running_loop().call_later(pause, self.add, key)


class Controller:
    """Makes InferenceServices real, one key at a time."""

    def __init__(self, kube: Kube, settings: Settings) -> None:
        self._kube = kube
        self._settings = settings
        ours = LABEL_ISVC
        self._isvcs = Store(ISVCS)
        self._services = Store(SERVICES, ours)
        self._deployments = Store(DEPLOYMENTS, ours)
        self._autoscalers = Store(AUTOSCALERS, ours)
        self._queue = Queue()
        self._written: dict[Key, tuple[str, int, str]] = {}  # Deployment: uid, generation after our write, our text
        self._posted: dict[Key, str] = {}  # the last Warning about a key, so that a retry does not repeat it

    async def run(self) -> None:
        """Watch and reconcile until cancelled."""
        stores = (self._services, self._deployments, self._autoscalers, self._isvcs)
        synced = [asyncio.Event() for _ in stores]
        async with asyncio.TaskGroup() as tasks:
            for store, event in zip(stores, synced, strict=True):
                tasks.create_task(self._watch(store, event))
            for event in synced:
                await event.wait()
            for _ in range(_WORKERS):
                tasks.create_task(self._work())

    async def _watch(self, store: Store, synced: asyncio.Event) -> None:
        api_version, plural = store.kind
        async for kind, item in self._kube.watch(path_for(api_version, plural), store.params):
            if kind == "SYNCED":
                synced.set()
                continue
            if kind == "DELETED":
                store.drop(item)
            else:
                store.put(item)
            self._queue.add(_key_of(store, item))

    async def _work(self) -> None:
        while True:
            key = await self._queue.take()
            failed = True
            try:
                failed = not await self.reconcile(key)
            except ApiError as error:
                log.warning("reconcile %s/%s: %s", *key, error)
            except Exception:
                log.exception("reconcile %s/%s", *key)
            finally:
                self._queue.done(key, failed=failed)

    async def reconcile(self, key: Key) -> bool:
        """Bring one InferenceService one pass further; return whether it needs no retry. Raises: ApiError."""
        isvc = self._isvcs.get(*key)
        if isvc is None:
            self._written.pop(key, None)
            self._posted.pop(key, None)
            return True
        if isvc["metadata"].get("deletionTimestamp"):
            return await self._let_go(isvc)
        mode = decide.mode_of(isvc, self._settings)
        if mode == KNATIVE:
            await self._tell(key, isvc, decide.Event("Warning", "ServerlessModeRejected", _NO_KNATIVE))
            return True
        isvc = await self._hold(isvc)
        failure = ""
        try:
            decide.check(isvc, mode)
            await self._make(key, isvc)
        except decide.ControllerPanicError as panic:
            log.error("panic on %s/%s: %s", *key, panic)
            return False
        except decide.RefusedError as refused:
            failure = str(refused)
        await self._report(key, isvc, failure, mode)
        return not failure

    async def _let_go(self, isvc: JsonObject) -> bool:
        """Remove the finalizer; the garbage collector follows the owner references."""
        meta = isvc["metadata"]
        if FINALIZER not in (meta.get("finalizers") or []):
            return True
        rest = [name for name in meta["finalizers"] if name != FINALIZER]
        patch = {"metadata": {"finalizers": rest, "resourceVersion": meta["resourceVersion"]}}
        return await self._patch(isvc, patch) is not None

    async def _hold(self, isvc: JsonObject) -> JsonObject:
        """Add the finalizer where it is missing; return the object as it then is."""
        meta = isvc["metadata"]
        finalizers = meta.get("finalizers") or []
        if FINALIZER in finalizers:
            return isvc
        patch = {"metadata": {"finalizers": [*finalizers, FINALIZER], "resourceVersion": meta["resourceVersion"]}}
        changed = await self._patch(isvc, patch)
        return changed if changed is not None else isvc

    async def _patch(self, isvc: JsonObject, patch: JsonObject) -> JsonObject | None:
        """Patch an InferenceService; None if it was deleted in between."""
        meta = isvc["metadata"]
        path = self._isvcs.path(meta["namespace"], meta["name"])
        try:
            changed = await self._kube.patch(path, patch, params={"fieldManager": FIELD_MANAGER})
        except ApiError as error:
            if isinstance(error, NotFound):
                return None
            raise
        self._isvcs.put(changed)
        return changed

    # --- objects ---

    async def _make(self, key: Key, isvc: JsonObject) -> None:
        """Make what the plan says. Raises: RefusedError with the API server's words."""
        namespace, name = key[0], predictor_name(key[1])
        if decide.is_stopped(isvc):
            for store in (self._autoscalers, self._deployments, self._services):
                await self._remove(store, isvc, namespace, name)
            return
        plan = decide.plan(isvc)
        await _judged(self._ensure_service(namespace, plan.service))
        await _judged(self._ensure_deployment(key, plan.deployment))
        decide.check_autoscaler(isvc)
        if plan.autoscaler is None:
            await self._remove(self._autoscalers, isvc, namespace, name)
        else:
            await _judged(self._ensure(self._autoscalers, namespace, plan.autoscaler))

    async def _ensure_service(self, namespace: str, desired: JsonObject) -> None:
        live = self._services.get(namespace, desired["metadata"]["name"])
        if live is not None and decide.covers(live, desired):
            return
        await self._write(self._services, namespace, desired, live, decide.replacing_service)

    async def _ensure(self, store: Store, namespace: str, desired: JsonObject) -> None:
        live = store.get(namespace, desired["metadata"]["name"])
        if live is None or not decide.covers(live, desired):
            await self._write(store, namespace, desired, live, _replacing)

    async def _ensure_deployment(self, key: Key, desired: JsonObject) -> None:
        """Write the Deployment unless it is unchanged: every edit of its spec changes the generation."""
        live = self._deployments.get(key[0], desired["metadata"]["name"])
        text = json.dumps(desired, sort_keys=True)
        if live is not None:
            meta = live["metadata"]
            if self._written.get(key) == (meta["uid"], meta["generation"], text):
                return
        made = await self._write(self._deployments, key[0], desired, live, decide.replacing_deployment)
        self._written[key] = (made["metadata"]["uid"], made["metadata"]["generation"], text)

    async def _write(
        self, store: Store, namespace: str, desired: JsonObject, live: JsonObject | None, over: Over
    ) -> JsonObject:
        """Create or replace; an existing object that was not in the cache is kept. Raises: ApiError."""
        name = desired["metadata"]["name"]
        params = {"fieldManager": FIELD_MANAGER}
        if live is None:
            try:
                made = await self._kube.create(store.path(namespace), desired, params)
            except ApiError as error:
                if error.reason != "AlreadyExists":
                    raise
                live = await self._kube.get(store.path(namespace, name))
        if live is not None:
            made = await self._kube.update(store.path(namespace, name), over(desired, live), params)
        store.put(made)
        return made

    async def _remove(self, store: Store, isvc: JsonObject, namespace: str, name: str) -> None:
        live = store.get(namespace, name)
        owners = live["metadata"].get("ownerReferences") or [] if live else []
        if live is not None and any(owner["uid"] == isvc["metadata"]["uid"] for owner in owners):
            await self._kube.delete(store.path(namespace, name), {"propagationPolicy": "Background"})
            store.drop(live)

    # --- status ---

    async def _report(self, key: Key, isvc: JsonObject, failure: str, mode: str) -> None:
        namespace, name = key[0], predictor_name(key[1])
        deployment = self._deployments.get(namespace, name)
        pods: tuple[JsonObject, ...] = ()
        if deployment is not None and not failure:
            selector = f"{LABEL_APP}=isvc.{name}"
            pods = tuple(await self._kube.list(path_for("v1", "pods", namespace), {"labelSelector": selector}))
        seen = decide.Seen(isvc, _now(), deployment, self._services.get(namespace, name), pods, failure, mode)
        report = decide.report(seen)
        if report.status != isvc.get("status"):
            await self._write_status(isvc, report.status)
        for event in report.events:
            await self._tell(key, isvc, event)
        if not failure:
            self._posted.pop(key, None)

    async def _write_status(self, isvc: JsonObject, status: JsonObject) -> None:
        meta = isvc["metadata"]
        path = self._isvcs.path(meta["namespace"], meta["name"])
        body = {**isvc, "status": status}
        try:
            changed = await self._kube.update(f"{path}/status", body, {"fieldManager": FIELD_MANAGER})
        except ApiError as error:
            if isinstance(error, NotFound):
                return
            raise
        self._isvcs.put(changed)

    async def _tell(self, key: Key, isvc: JsonObject, event: decide.Event) -> None:
        """Post an event; the same warning about the same object is posted once until it is resolved."""
        if event.type == "Warning":
            words = f"{event.reason}: {event.message}"
            if self._posted.get(key) == words:
                return
            self._posted[key] = words
        meta, now = isvc["metadata"], _now()
        body = {
            "metadata": {"name": f"{meta['name']}.{uuid.uuid4().hex[:16]}", "namespace": meta["namespace"]},
            "involvedObject": {
                "apiVersion": API_VERSION,
                "kind": "InferenceService",
                "name": meta["name"],
                "namespace": meta["namespace"],
                "uid": meta["uid"],
                "resourceVersion": meta["resourceVersion"],
            },
            "type": event.type,
            "reason": event.reason,
            "message": event.message[:1000],
            "source": {"component": "v1beta1Controllers"},
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
        }
        try:
            await self._kube.create(path_for("v1", "events", meta["namespace"]), body)
        except ApiError as error:  # an event is a courtesy: its namespace may be going away
            log.info("event %s about %s/%s was not taken: %s", event.reason, *key, error)


_NO_KNATIVE = "Knative is not installed: InferenceServices of this deployment mode are not reconciled"


async def _judged(write: Awaitable[None]) -> None:
    """Await a write.

    Raises: RefusedError when the API server refuses the object, ApiError when trying again may help.
    """
    try:
        await write
    except ApiError as error:
        if error.status in {400, 403, 422}:
            raise decide.RefusedError(f"fails to reconcile predictor: {error.message}") from error
        raise


def _replacing(desired: JsonObject, live: JsonObject) -> JsonObject:
    meta = {**desired["metadata"], "resourceVersion": live["metadata"]["resourceVersion"]}
    return {**desired, "metadata": meta}


def _key_of(store: Store, item: JsonObject) -> Key:
    meta = item["metadata"]
    if store.kind == ISVCS:
        return meta["namespace"], meta["name"]
    named = meta["name"].removesuffix(predictor_name(""))  # a hand may have taken the label away
    return meta["namespace"], (meta.get("labels") or {}).get(LABEL_ISVC) or named


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
