"""Every field that the schemas accept and nothing acts on is refused on AIMService and warned about elsewhere."""

from __future__ import annotations

from typing import Any

import pytest

from api.kinds import AIM_KINDS, AIM_SERVICE, Kind
from api.models.marks import not_acted_on_paths
from rules.examples import manifest, surroundings
from rules.seen import Context
from rules.validate import validate

CASES = [(kind, path) for kind in AIM_KINDS for path in not_acted_on_paths(kind)]


def with_value(kind: Kind, path: str) -> dict[str, Any]:
    """Return a plain manifest with an empty object at a path."""
    value: Any = {}
    for part in reversed(path.split(".")):
        value = {part.removesuffix("[]"): [value] if part.endswith("[]") else value}
    obj = manifest(kind.kind, {})
    laid: dict[str, Any] = _laid_over(obj, value)
    return laid


def _laid_over(under: Any, over: Any) -> Any:
    if isinstance(under, dict) and isinstance(over, dict):
        return {**under, **{key: _laid_over(under.get(key), part) for key, part in over.items()}}
    return over


@pytest.mark.parametrize(("kind", "path"), CASES, ids=[f"{kind.kind}-{path}" for kind, path in CASES])
def test_a_field_without_effect_is_reported(kind: Kind, path: str) -> None:
    new = with_value(kind, path)
    wanted = path.replace("[]", "[0]")
    verdict = validate(kind, new, None, surroundings())
    spoken = verdict.errors if kind is AIM_SERVICE else verdict.warnings
    assert (wanted, "FieldNotImplemented") in {(said.path, said.reason) for said in spoken}
    beside = validate(kind, new, None, surroundings(), context=Context(admission_only=True))
    reasons = {error.reason for error in beside.errors} | {warning.reason for warning in beside.warnings}
    assert "FieldNotImplemented" not in reasons


def test_there_are_such_fields() -> None:
    assert len(CASES) > 15
