"""How large an object may be (docs/contract.md, Bounds)."""

from __future__ import annotations

from collections.abc import Iterator

from api.kinds import AIM_KINDS
from api.reasons import Reason
from rules.bounds import beyond
from rules.registry import Basis, Example, Output, rule
from rules.seen import Seen


@rule(
    *AIM_KINDS,
    reason=Reason.TOO_LARGE,
    fields="spec",
    basis=Basis.BOUND,
    refused=Example("metadata: {labels: !keys {count: 257, name: label}}"),
    passes=Example("metadata: {labels: {team: llm}}"),
)
def beyond_a_bound(seen: Seen) -> Iterator[Output]:
    """An object within the [bounds](bounds.md) is judged; one beyond a bound gets this error and no other."""
    if (found := beyond(seen.kind, seen.new)) is not None:
        yield found
