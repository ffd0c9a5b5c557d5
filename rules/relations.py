"""The other side of a reference: the services that an edit of something they use would break.

Source: docs/contract.md, Edits of shared objects.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache

from api import view
from api.errors import FieldWarning
from api.kinds import AIM_SERVICE
from api.reasons import Reason
from api.view import Json
from rules import adapters as adapter_rules
from rules.registry import Basis, Rule, rules_for, run
from rules.seen import Seen, ServiceSeen
from rules.suggest import fit_names
from rules.verdict import LONGEST_WARNING, Finding
from rules.world import World, address
from rules.worlds import OverlayWorld

MOST_SERVICES_JUDGED = 100
"""An edit of something that thousands use is checked against this many of them, so that no review takes long."""

BASE_REASONS = (
    Reason.MODEL_SOURCES_AMBIGUOUS,
    adapter_rules.REASON_INCOMPATIBLE,
    adapter_rules.REASON_WRONG_PARENT,
    adapter_rules.REASON_NOT_AN_ADAPTER,
)
"""The reasons why a service cannot serve its adapters on another base."""


@dataclass(frozen=True, slots=True)
class Affected:
    """A service before and after an edit of something it uses."""

    before: ServiceSeen
    after: ServiceSeen

    @property
    def label(self) -> str:
        """The service's name in a warning."""
        return view.name_of(self.after.new)

    @property
    def rolls(self) -> bool:
        """Whether running pods restart because the ceiling in use changes."""
        return bool(self.after.pods) and self.before.ceiling.value != self.after.ceiling.value

    def newly_broken(self, reasons: Iterable[Reason] = ()) -> bool:
        """Whether the edit adds an error (of these reasons, if any are given)."""
        wanted = frozenset(reasons)
        had = {finding.identity for finding in _relation_findings(self.before)}
        return any(
            finding.identity not in had and (not wanted or finding.error.reason in wanted)
            for finding in _relation_findings(self.after)
        )


def affected(seen: Seen, services: Sequence[Json]) -> list[Affected]:
    """Return the services as they are before and after the edit, at most `MOST_SERVICES_JUDGED`."""
    key = address(seen.me.kind, seen.me.namespace, seen.me.name)
    before: World = OverlayWorld(seen.world, {key: seen.old})
    after: World = OverlayWorld(seen.world, {key: seen.new})
    chosen = [service for service in services[:MOST_SERVICES_JUDGED] if not view.terminating(service)]
    return [
        Affected(
            ServiceSeen(AIM_SERVICE, service, None, before, context=seen.context),
            ServiceSeen(AIM_SERVICE, service, None, after, context=seen.context),
        )
        for service in chosen
    ]


def naming_services(
    path: str, reason: Reason, words: str, services: Sequence[Affected], *, total: int, weight: int = 1
) -> Iterator[FieldWarning]:
    """Yield one warning that names as many services as fit, then a count; nothing when there is none.

    Args: `words` end where "AIMServices a, b" follows; `total` is how many services there were before the bound.
    """
    if not services:
        return
    names = sorted(_label(entry, services) for entry in services)
    more = "+" if total > MOST_SERVICES_JUDGED else ""
    noun = "AIMServices" if len(names) > 1 else "AIMService"
    room = LONGEST_WARNING - len(path) - len(words) - len(noun) - len(more) - 4
    yield FieldWarning(path, reason, f"{words} {noun} {fit_names(names, room)}{more}", weight)


def _label(entry: Affected, among: Sequence[Affected]) -> str:
    spaces = {view.namespace_of(other.after.new) for other in among}
    return entry.label if len(spaces) == 1 else f"{view.namespace_of(entry.after.new)}/{entry.label}"


def _relation_findings(seen: ServiceSeen) -> list[Finding]:
    return run(_relation_rules(), seen)[0]


@cache
def _relation_rules() -> tuple[Rule, ...]:
    return rules_for(AIM_SERVICE.kind, Basis.WORLD, warns=False)
