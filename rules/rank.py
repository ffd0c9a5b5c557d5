"""The LoRA rank ceiling: the value that the container starts with, and the adapters that exceed it.

Source: docs/contract.md, Rank ceiling.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence

from api import view
from api.names import DEFAULT_MAX_RANK, RANK_CEILINGS
from api.record import record
from api.view import AdapterRef
from rules.references import ArtifactState, Unreadable
from rules.runtime_config import MergedRuntimeConfig

HIGHEST_RANK = RANK_CEILINGS[-1]
ORIGIN_SERVICE = "spec.adapterRuntime.maxRank"
ORIGIN_BUILT_IN = "built-in default"
ORIGIN_STATIC = "largest declared rank"
ORIGIN_REPORTED = "status.adapterMaxRank"
SUPPORTED_RANKS = ", ".join(str(rank) for rank in RANK_CEILINGS)


def round_up(rank: int) -> int | None:
    """Return the smallest supported ceiling that holds a rank, or None above 512."""
    place = bisect_left(RANK_CEILINGS, rank)
    return RANK_CEILINGS[place] if place < len(RANK_CEILINGS) else None


def next_supported(value: object) -> str:
    """Return what to write instead of a ceiling that no engine supports."""
    if not isinstance(value, int) or isinstance(value, bool):
        return "choose one of these values"
    larger = round_up(value)
    return f"choose {HIGHEST_RANK}, the highest value" if larger is None else f"choose {larger}, the next larger one"


def static_ceiling(ranks: Iterable[int], floor: int | None = None) -> int | None:
    """Return the ceiling of a static service: the largest rank rounded up, never below `floor`.

    Ranks above 512 do not count (their adapters are refused). None: no rank is known.
    """
    known = [rounded for rank in ranks if (rounded := round_up(rank)) is not None]
    if floor is not None:
        known.append(floor)
    return max(known, default=None)


@record
class Ceiling:
    """The ceiling that is asked for and where it is set; `value` None: it cannot be read."""

    value: int | None
    origin: str

    @property
    def supported(self) -> bool:
        """Whether an engine can start with it."""
        return self.value in RANK_CEILINGS


def dynamic_ceiling(service: object, config: MergedRuntimeConfig) -> Ceiling:
    """Return the asked ceiling of a dynamic service: service, namespace and cluster RuntimeConfig, 32; first wins."""
    own = view.integer(service, "spec", "adapterRuntime", "maxRank")
    if own is not None:
        return Ceiling(own, ORIGIN_SERVICE)
    if not config.readable or config.missing:
        return Ceiling(None, "")
    value, origin = config.value("adapterRuntime", "maxRank")
    if isinstance(value, int) and not isinstance(value, bool):
        return Ceiling(value, origin)
    return Ceiling(DEFAULT_MAX_RANK, ORIGIN_BUILT_IN)


_ASKED_IN_STATIC_MODE = Ceiling(HIGHEST_RANK, "highest supported rank")


def asked_ceiling(service: object, config: MergedRuntimeConfig) -> Ceiling:
    """Return the ceiling that adapters are compared with; its value is None when none can be compared.

    That is the case when it cannot be read, or is a value that no engine supports.
    """
    if view.adapter_mode(service) == "static":
        return _ASKED_IN_STATIC_MODE
    asked = dynamic_ceiling(service, config)
    return asked if asked.supported else Ceiling(None, asked.origin)


@record
class CeilingDecision:
    """The ceiling in use, and the one that is asked for.

    `value` goes to status.adapterMaxRank and AIM_ADAPTER_MAX_RANK; None: none is needed, or none is known yet.
    `asked` is what adapters are compared with; its value is None when none can be compared.
    `deferred`: the asked one is lower and waits for `unresolved` adapters. `invalid_because`: adapters whose rank the
    asked one cannot hold, so that a lower one is not used.
    """

    value: int | None
    origin: str
    asked: Ceiling
    deferred: bool = False
    invalid_because: tuple[str, ...] = ()
    unresolved: tuple[str, ...] = ()

    @property
    def judged(self) -> bool:
        """Whether adapters can be compared with a ceiling at all."""
        return self.asked.value is not None


def decide_ceiling(
    service: object,
    config: MergedRuntimeConfig,
    artifacts: Mapping[str, ArtifactState],
    reported: int | None,
    *,
    refs: Sequence[AdapterRef] | None = None,
) -> CeilingDecision:
    """Decide the ceiling of a service.

    Args: `artifacts` by declared name (None: missing); `reported` is status.adapterMaxRank, the last valid one;
    `refs` are the declared adapters where the caller has read them already.
    Source: docs/contract.md, Static ceiling, Dynamic ceiling.
    """
    missing: list[str] = []
    ranks: dict[str, int] = {}
    for name in sorted({ref.name for ref in (view.adapter_refs(service) if refs is None else refs)}):
        artifact = artifacts.get(name)
        if artifact is None or isinstance(artifact, Unreadable):
            missing.append(name)
            continue
        spec = view.spec_of(artifact)
        if spec.get("type") == "adapter":
            ranks[name] = view.rank_of(spec)
    unresolved = tuple(missing)
    asked = asked_ceiling(service, config)
    if view.adapter_mode(service) == "static":
        return _decide_static(asked, ranks, unresolved, reported)
    return _decide_dynamic(asked, ranks, unresolved, reported)


def _decide_static(
    asked: Ceiling, ranks: Mapping[str, int], unresolved: tuple[str, ...], reported: int | None
) -> CeilingDecision:
    too_high = tuple(name for name, rank in ranks.items() if rank > HIGHEST_RANK)
    if not ranks and not unresolved:
        return CeilingDecision(None, ORIGIN_STATIC, asked)
    keep = bool(unresolved or too_high)
    value = static_ceiling(ranks.values(), reported if keep else None)
    origin = ORIGIN_REPORTED if keep and value == reported and value is not None else ORIGIN_STATIC
    return CeilingDecision(value, origin, asked, invalid_because=too_high, unresolved=unresolved)


def _decide_dynamic(
    asked: Ceiling, ranks: Mapping[str, int], unresolved: tuple[str, ...], reported: int | None
) -> CeilingDecision:
    if asked.value is None:  # keep it, and compare nothing
        return CeilingDecision(reported, ORIGIN_REPORTED if reported else "", asked, unresolved=unresolved)
    too_high = tuple(name for name, rank in ranks.items() if rank > asked.value)
    lower = reported is not None and asked.value < reported
    deferred = lower and bool(unresolved)
    if lower and (too_high or unresolved):
        return CeilingDecision(reported, ORIGIN_REPORTED, asked, deferred, too_high, unresolved)
    return CeilingDecision(asked.value, asked.origin, asked, deferred, too_high, unresolved)
