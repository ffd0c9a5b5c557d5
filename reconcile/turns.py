"""Whose download may start next in a namespace: the number of Jobs is bounded, and their owners take turns.

A Job has a place from its creation to its end. One that does not start (a Secret that is missing, a full node pool)
gives its place back after a while, so that it does not hold up the others. The line is in memory alone: after
a restart the first passes form it again. Source: docs/contract.md, Turns.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import islice
from typing import Any

from api import view
from api.kinds import JOB
from api.view import Json
from api.words import parse_time
from kube.cache import Key
from kube.informer import Informer
from reconcile.decision import Decision, sooner
from reconcile.jobs import holds_place, read_job
from reconcile.world import word

STARTS_WITHIN = timedelta(minutes=1)
"""A Job whose container does not run after this time gives its place back."""

Owner = tuple[str, Key]
"""The controller of an owner of Jobs, and the owner's key."""


@dataclass
class Turns:
    """The places of all namespaces.

    Args: `limit`: places of each namespace; `wake(controller, key)` asks for a pass.
    """

    limit: int
    jobs: Informer
    pods: Informer
    wake: Callable[[str, Key], None]
    now: Callable[[], datetime]
    _lines: dict[str, OrderedDict[Owner, None]] = field(default_factory=dict)
    _starting: dict[Owner, int] = field(default_factory=dict)  # decided, and not in the cache yet

    def listen(self) -> Turns:
        """Wake owners when a Job ends."""
        self.jobs.add_handler(self._changed)
        return self

    def free(self, owner: Owner) -> int:
        """Return how many Jobs an owner may start now: one where others wait, too."""
        namespace = owner[1][0]
        free = self.limit - self._taken(namespace)
        line = self._lines.get(namespace)
        if not line or (len(line) == 1 and owner in line):
            return max(0, free)
        for place, waiting in enumerate(line):
            if place >= free or waiting == owner:
                break
        else:
            place = len(line)
        return 1 if place < free else 0

    def begin(self, owner: Owner, decision: Decision) -> timedelta | None:
        """Note what a decision starts, and whether more waits; returns when to look again. `end` must follow."""
        namespace = owner[1][0]
        started = sum(1 for kind, obj in decision.create if kind == JOB and holds_place(obj))
        if started:
            self._starting[owner] = started
        if not decision.queued:
            self.leave(owner)
            return None
        line = self._lines.setdefault(namespace, OrderedDict())
        line.setdefault(owner, None)
        if started:
            line.move_to_end(owner)  # it had its turn
            self._wake_next(namespace)
        front = next(iter(line))
        return STARTS_WITHIN if front == owner else None  # a Job that does not start ends nothing: look at the clock

    def leave(self, owner: Owner) -> None:
        """Take an owner that waits for nothing out of its line, and wake the next ones."""
        namespace = owner[1][0]
        line = self._lines.get(namespace)
        if line is None or owner not in line:
            return
        del line[owner]
        if line:
            self._wake_next(namespace)
        else:
            del self._lines[namespace]

    def end(self, owner: Owner) -> None:
        """The decision is carried out: its Jobs are in the cache."""
        self._starting.pop(owner, None)

    async def carry_out(
        self, owner: Owner, decision: Decision, carry: Callable[[], Awaitable[timedelta | None]]
    ) -> timedelta | None:
        """Carry out a decision between `begin` and `end`; returns when to look again."""
        again = self.begin(owner, decision)
        try:
            return sooner(await carry(), again)
        finally:
            self.end(owner)

    def _taken(self, namespace: str) -> int:
        jobs = self.jobs.by_index("place", namespace)
        starting = sum(count for (_, key), count in self._starting.items() if key[0] == namespace)
        if len(jobs) + starting < self.limit:
            return len(jobs) + starting
        return starting + sum(1 for job in jobs if not self._given_back(job))

    def _given_back(self, job: Json) -> bool:
        created = parse_time(view.dig(job, "metadata", "creationTimestamp"))
        if created is None or self.now() - created < STARTS_WITHIN:
            return False
        state = read_job(job, self.pods.by_index("owner", word(job, view.uid_of(job))))
        return state.phase == "waiting"

    def _changed(self, old: Mapping[str, Any] | None, new: Mapping[str, Any] | None) -> None:
        if old is None or not holds_place(old) or (new is not None and holds_place(new)):
            return
        self._wake_next(view.namespace_of(old))

    def _wake_next(self, namespace: str) -> None:
        """Wake as many owners as there are places, first come, first served."""
        line = self._lines.get(namespace)
        if line:
            for controller, key in list(islice(line, max(0, self.limit - self._taken(namespace)))):
                self.wake(controller, key)
