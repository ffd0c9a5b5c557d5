"""Why Jobs do not start, where only events report it: a quota that refuses the pod, a volume that cannot be mounted.

Only a Job that waits longer than usual is asked about: one small list of the events of its pod, or of the Job while it
has no pod, at growing intervals. A watch over the events of all namespaces would cost the API server more.
Source: docs/contract.md, Job pods.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from urllib.parse import urlencode

import orjson

from api.kinds import EVENT
from kube.client import Client
from kube.errors import ApiError
from reconcile.decision import sooner
from reconcile.jobs import STARTS_WITHIN, JobState, last_warning, why_waiting

log = logging.getLogger(__name__)

_MOST_EVENTS = 50  # of one object
_MOST_JOBS = 4096  # remembered; the ones asked about longest ago are forgotten first
_SHORTEST, _LONGEST = timedelta(seconds=10), timedelta(minutes=2)  # between two looks at one Job


@dataclass(slots=True)
class _Asked:
    at: datetime
    said: str


@dataclass(slots=True)
class Starts:
    """The last warnings about Jobs that do not start, by UID of the Job."""

    client: Client
    now: Callable[[], datetime]
    _asked: OrderedDict[str, _Asked] = field(default_factory=OrderedDict)

    def why(self, job: JobState) -> str:
        """Return why a Job does not start, empty when it runs or may just be starting."""
        asked = self._asked.get(job.uid)
        return why_waiting(job, self.now(), asked.said if asked is not None else "")

    async def look(self, namespace: str, jobs: Iterable[JobState]) -> timedelta | None:
        """Ask about the Jobs that wait for long; returns when to look again, None when none waits."""
        again: timedelta | None = None
        for job in jobs:
            if job.phase != "waiting" or job.terminating or job.blocked_by or job.created_at is None:
                self._asked.pop(job.uid, None)
                continue
            due = self._due(job, job.created_at)
            if due <= timedelta() and not job.suspended:
                await self._ask(namespace, job)
                due = self._due(job, job.created_at)
            elif due <= timedelta():
                due = _LONGEST
            again = sooner(again, due)
        return again

    def _due(self, job: JobState, created: datetime) -> timedelta:
        """Return how long to wait until a Job is asked about; each wait is a quarter of its age, within bounds."""
        asked = self._asked.get(job.uid)
        if asked is None:
            return created + STARTS_WITHIN - self.now()
        return asked.at + min(max(_SHORTEST, (asked.at - created) / 4), _LONGEST) - self.now()

    async def _ask(self, namespace: str, job: JobState) -> None:
        selector = f"involvedObject.uid={job.pod_uid or job.uid},type=Warning"
        path = f"{EVENT.path(namespace)}?{urlencode({'fieldSelector': selector, 'limit': _MOST_EVENTS})}"
        before = self._asked.pop(job.uid, None)
        said = before.said if before is not None else ""
        try:
            said = last_warning(orjson.loads(await self.client.get_raw(path)).get("items") or ()) or said
        except (ApiError, ValueError) as error:  # the pass continues: the reason is reported later
            log.debug("events are not readable", extra={"namespace": namespace, "job": job.name, "error": str(error)})
        self._asked[job.uid] = _Asked(self.now(), said)
        while len(self._asked) > _MOST_JOBS:
            self._asked.popitem(last=False)
