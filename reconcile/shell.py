"""Carries out decisions: writes what differs from the caches, and nothing else."""

from __future__ import annotations

import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any, Protocol

from api import view
from api.kinds import (
    AIM_ARTIFACT,
    AIM_PROFILE,
    AIM_PROFILE_CACHE,
    AIM_SERVICE,
    AIM_TEMPLATE_CACHE,
    INFERENCE_SERVICE,
    JOB,
    PERSISTENT_VOLUME_CLAIM,
    Kind,
)
from api.names import FIELD_OWNER, LABEL_MANAGED_BY
from api.reasons import Reason
from api.schema import status_fields
from api.view import Json
from kube.client import Client
from kube.errors import (
    AlreadyExists,
    ApiError,
    Conflict,
    Denied,
    Forbidden,
    Invalid,
    KindNotServed,
    MalformedApply,
    NamespaceTerminating,
    Transient,
    WebhookDown,
)
from kube.informer import Informer, Pass
from reconcile.conditions import told_in
from reconcile.decision import Decision, Delete, EventNote, sooner
from reconcile.jobs import STARTS_WITHIN
from reconcile.meters import JobMeter
from reconcile.objects import agrees, merge_patch, owned_by

log = logging.getLogger(__name__)

_MAX_DELETED = 4096
_DELETED_SECONDS = 30.0  # a deletion that is not seen by then is asked for again


class Recorder(Protocol):
    """Takes events; never blocks."""

    def record(self, obj: dict[str, Any], type_: str, reason: str, message: str) -> None:
        """Note an event about an object."""
        ...


class ApplyRefusedError(Transient):
    """The API server refused an object; the message is meant for the status.

    `lasting`: for what the object says; else it may be fixed at any time: a lack of rights or quota, a webhook
    that does not answer, or (`why` in words) an object of another program that no informer shows.
    `reason`: of a refused InferenceService, for its condition.
    """

    largest_backoff = 60.0  # seconds

    def __init__(self, kind: Kind, name: str, why: ApiError | str) -> None:
        self.reason = _reason_of(kind, why)
        self.message = _NOT_INSTALLED if self.reason == Reason.K_SERVE_NOT_INSTALLED else str(why)
        super().__init__(f"{kind.kind} {name}: {self.message}")
        self.kind = kind
        self.lasting = not isinstance(why, Transient | str)
        if isinstance(why, Transient) and why.largest_backoff is not None:
            self.largest_backoff = why.largest_backoff

    @property
    def words(self) -> str:
        """The message of the condition."""
        return f"not made or changed: {self}"


_NOT_INSTALLED = (
    f"the API server does not serve {INFERENCE_SERVICE.kind} ({INFERENCE_SERVICE.api_version}): KServe is not installed"
)


def _reason_of(kind: Kind, why: ApiError | str) -> Reason:
    """Return what an apply that the API server refused says about its kind."""
    if kind == INFERENCE_SERVICE and isinstance(why, KindNotServed):
        return Reason.K_SERVE_NOT_INSTALLED
    if kind == INFERENCE_SERVICE and isinstance(why, WebhookDown) and "kserve" in str(why).lower():
        return Reason.K_SERVE_UNAVAILABLE
    return Reason.INFERENCE_SERVICE_REFUSED


Again = Callable[[ApplyRefusedError | None], Decision]


class Shell:
    """Writes decisions through a (guarded) client; informers see each write at once."""

    def __init__(self, client: Client, informers: Mapping[Kind, Informer], recorder: Recorder, meter: JobMeter) -> None:
        self._client = client
        self._informers = informers
        self._recorder = recorder
        self._meter = meter
        self._deleted: OrderedDict[str, float] = OrderedDict()  # UID → when (monotonic)

    async def carry_out(
        self, kind: Kind, obj: Json, decision: Decision, again: Again | None = None
    ) -> timedelta | None:
        """Carry out a decision about `obj`; returns when to look again, at the latest when a new Job should run.

        Status is stored although an object was refused, and reports it; deletions come last.
        Args: `again` decides again over the caches after something was applied that more follows from, or was refused,
        so that the status reports it at once and is written once. What the pass has taken in of its own writes (by
        `again`, or by `Decision.at_rest`) does not wake it again.
        Raises: ApplyRefusedError after the status was stored; Transient errors of `kube.errors`.
        """
        writer = (kind, (view.namespace_of(obj), view.name_of(obj)))
        decision, refused = await self._make_and_decide_again(decision, again, writer)
        quiet = writer if decision.at_rest and refused is None else None
        await self._store_status(kind, obj, _with_refusal(kind, decision.status, refused), quiet)
        for deletion in decision.delete:
            await self._delete(deletion, quiet)
        for event in decision.events:
            self.tell(event.about or obj, event)
        if refused is not None:
            raise refused
        begun = STARTS_WITHIN if any(made == JOB for made, _ in decision.create) else None
        return sooner(decision.recheck_after, begun)

    async def _make_and_decide_again(
        self, decision: Decision, again: Again | None, writer: Pass
    ) -> tuple[Decision, ApplyRefusedError | None]:
        """Make the objects of a decision; return the decision whose status is stored, and the first refusal."""
        made, refused = await self._make(decision, writer if again or decision.at_rest else None)
        if again is None or (refused is None and (decision.at_rest or not made)):
            return decision, refused
        decision = _after(decision, again(refused))
        if refused is None:
            _, refused = await self._make(decision, writer if decision.at_rest else None)
        return decision, refused

    async def _delete(self, deletion: Delete, writer: Pass | None = None) -> None:
        """Delete an object once: until the watch shows the deletion, other passes want it gone, too."""
        if time.monotonic() - self._deleted.get(deletion.uid, float("-inf")) < _DELETED_SECONDS:
            return
        self._meter.deleting(deletion)
        try:
            await self._client.delete(deletion.kind, deletion.namespace, deletion.name, uid=deletion.uid)
        except Conflict:  # another object of that name by now: it stays
            log.debug("not deleted, it is another object by now", extra={"object": deletion.name})
        else:
            if informer := self._informers.get(deletion.kind):
                namespace = deletion.namespace if deletion.kind.namespaced else ""
                informer.observe_deletion((namespace, deletion.name), deletion.uid, writer)
        self._deleted[deletion.uid] = time.monotonic()
        self._deleted.move_to_end(deletion.uid)
        while len(self._deleted) > _MAX_DELETED:
            self._deleted.popitem(last=False)

    async def _make(self, decision: Decision, writer: Pass | None = None) -> tuple[bool, ApplyRefusedError | None]:
        """Apply and create what is not there; returns whether something was written, and the first refusal."""
        refused: ApplyRefusedError | None = None
        made = False
        apply, create = partial(self._apply, writer=writer), partial(self.create, writer=writer)
        for act, objects in ((apply, decision.apply), (create, decision.create)):
            for wanted_kind, wanted in objects:
                try:
                    made = await act(wanted_kind, wanted) or made
                except NamespaceTerminating:
                    raise
                except ApplyRefusedError as error:
                    refused = refused or error
                except (Denied, Invalid, MalformedApply, Forbidden, WebhookDown, KindNotServed) as error:
                    refused = refused or ApplyRefusedError(wanted_kind, view.name_of(wanted), error)
        return made, refused

    def tell(self, obj: Json, event: EventNote) -> None:
        """Record an event on an object."""
        self._recorder.record(dict(obj), event.type, event.reason, event.message)

    def _live(self, kind: Kind, obj: Json) -> Json | None:
        informer = self._informers.get(kind)
        return informer.get(view.namespace_of(obj) if kind.namespaced else "", view.name_of(obj)) if informer else None

    def _observed(self, kind: Kind, stored: dict[str, Any], writer: Pass | None = None) -> None:
        if informer := self._informers.get(kind):
            informer.observe_write(stored, writer)

    async def _apply(self, kind: Kind, wanted: Mapping[str, Any], *, writer: Pass | None = None) -> bool:
        """Apply where that changes something, over no other version than the one that is known.

        A write that comes late (its sender was paused, another process leads by now) meets another version and is
        refused with a Conflict, and so is one that would re-create what was deleted, or make what is there.
        """
        live = self._live(kind, wanted)
        if agrees(kind, live, wanted):
            return False
        try:
            self._observed(kind, await self._client.apply(kind, _fenced(wanted, live)), writer)
        except Conflict:
            if live is not None or not await self._is_there(kind, wanted):
                raise
        return True

    async def _is_there(self, kind: Kind, wanted: Mapping[str, Any]) -> bool:
        """Take in an object that our informer did not show: it is behind, or the object lost the label it selects by.

        Returns whether the object is as wanted. Raises: ApplyRefusedError when it belongs to another owner or program.
        """
        found = await self._look_up(kind, wanted)
        if found is None:
            return False
        owners = view.items(wanted, "metadata", "ownerReferences")
        if owners and not any(owned_by(found, {"metadata": owner}) for owner in owners):
            raise ApplyRefusedError(
                kind, view.name_of(wanted), f'{kind.kind} "{view.name_of(wanted)}" belongs to another owner'
            )
        maker = view.text(found, "metadata", "labels", LABEL_MANAGED_BY)
        if (
            maker and kind in self._informers and not self._informers[kind].selects(maker)
        ):  # it would never be seen to change
            raise ApplyRefusedError(kind, view.name_of(wanted), _unadopted(kind, view.name_of(wanted), maker))
        self._observed(kind, found)
        return agrees(kind, found, wanted)

    async def _look_up(self, kind: Kind, wanted: Mapping[str, Any]) -> dict[str, Any] | None:
        """Read one object by a list, which every informer may: the chart grants no `get` on what is only watched."""
        namespace = view.namespace_of(wanted) if kind.namespaced else None
        async for page in self._client.list_pages(
            kind, namespace, field_selector=f"metadata.name={view.name_of(wanted)}"
        ):
            for item in page.items:
                return dict(item)
        return None

    async def create(self, kind: Kind, wanted: Mapping[str, Any], *, writer: Pass | None = None) -> bool:
        """Create an object unless it exists; one that exists is left as it is. Returns whether it was created."""
        if self._live(kind, wanted) is not None:
            return False
        try:
            self._observed(kind, await self._client.create(kind, dict(wanted)), writer)
        except AlreadyExists:  # the cache is behind, and the watch reports it soon, if at all
            log.debug("exists already", extra={"object": view.name_of(wanted)})
            await self._check_that_it_is_shown(kind, wanted)
            return False
        return True

    async def _check_that_it_is_shown(self, kind: Kind, wanted: Mapping[str, Any]) -> None:
        """Look whether an object that exists is one that our informer selects.

        Raises: ApplyRefusedError when it is not: waiting for it would never end.
        """
        informer = self._informers.get(kind)
        if informer is None or informer.selects(""):
            return
        found = await self._look_up(kind, wanted)
        maker = view.text(found, "metadata", "labels", LABEL_MANAGED_BY) or ""
        if found is not None and not informer.selects(maker):
            raise ApplyRefusedError(kind, view.name_of(wanted), _unadopted(kind, view.name_of(wanted), maker))

    async def _store_status(self, kind: Kind, obj: Json, status: Mapping[str, Any], writer: Pass | None = None) -> None:
        stored = view.mapping(obj, "status")
        foreign = {key: value for key, value in stored.items() if key not in status and key not in status_fields(kind)}
        patch = merge_patch(stored, {**foreign, **status})
        if not patch:
            return
        body = {"metadata": {"resourceVersion": obj["metadata"]["resourceVersion"]}, "status": patch}
        namespace = view.namespace_of(obj) if kind.namespaced else None
        self._observed(kind, await self._client.patch_status(kind, namespace, view.name_of(obj), body), writer)


# which condition of an object reports that one made for it was refused; the server's refusal is decided about
_TOLD_IN = {
    (AIM_SERVICE, JOB): "Adapters",
    (AIM_SERVICE, AIM_PROFILE): "CacheReady",
    (AIM_SERVICE, AIM_PROFILE_CACHE): "CacheReady",
    (AIM_SERVICE, AIM_TEMPLATE_CACHE): "CacheReady",
    (AIM_ARTIFACT, PERSISTENT_VOLUME_CLAIM): "Ready",
    (AIM_ARTIFACT, JOB): "Ready",
    (AIM_PROFILE_CACHE, AIM_ARTIFACT): "ArtifactsReady",
    (AIM_TEMPLATE_CACHE, AIM_ARTIFACT): "ArtifactsReady",
}


def _with_refusal(kind: Kind, status: Mapping[str, Any], refused: ApplyRefusedError | None) -> Mapping[str, Any]:
    """Return the status to store: the refusal of an object is reported in the condition that is about it."""
    condition = _TOLD_IN.get((kind, refused.kind)) if refused is not None else None
    return told_in(status, condition, refused.words) if refused is not None and condition else status


_ABSENT = "1"  # no object has it: the API server refuses it where the object exists, and heeds it nowhere else


def _fenced(wanted: Mapping[str, Any], live: Json | None) -> dict[str, Any]:
    """Return an object to apply over exactly the live version, or only where there is none.

    Source: Kubernetes, server-side apply: a resourceVersion is compared with that of an object that exists, and a uid
    refuses to make one that does not.
    """
    known = view.mapping(live, "metadata")
    fence = {key: known[key] for key in ("resourceVersion", "uid") if key in known} or {"resourceVersion": _ABSENT}
    return {**wanted, "metadata": {**wanted["metadata"], **fence}}


def _unadopted(kind: Kind, name: str, maker: str) -> str:
    if not maker:
        return (
            f'{kind.kind} "{name}" exists without the label by which it is found: '
            f"set the label {LABEL_MANAGED_BY}={FIELD_OWNER}, or delete the object"
        )
    return (
        f'{kind.kind} "{name}" exists, and its label {LABEL_MANAGED_BY} is "{maker}": stop that operator and add '
        "it to the setting adoptManagedBy to take the object over, or delete the object"
    )


def _after(first: Decision, later: Decision) -> Decision:
    """Return the later decision with the events of both, each once."""
    return replace(later, events=tuple(dict.fromkeys((*first.events, *later.events))))
