"""Fields that the schemas accept but aim-adapters does not act on (docs/contract.md, Unimplemented fields)."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any, get_args

from pydantic.fields import FieldInfo

from api.kinds import Kind
from api.models import MODELS
from api.models.common import NOT_ACTED_ON, Shape


@cache
def not_acted_on_paths(kind: Kind) -> tuple[str, ...]:
    """Return the field paths of a kind that are accepted and not acted on, sorted; `[]` means any index.

    Example: `('spec.adapters[].modelId', …, 'spec.autoScaling', …)` for AIMService.
    """
    spec = next(_shapes(MODELS[kind].model_fields["spec"].annotation))
    return tuple(sorted(_marked(spec, "spec")))


def _marked(shape: type[Shape], prefix: str) -> Iterator[str]:
    for field in shape.model_fields.values():
        path = f"{prefix}.{field.alias}"
        if _is_marked(field):
            yield path
            continue
        for inner in _shapes(field.annotation):
            yield from _marked(inner, f"{path}[]" if _is_list(field.annotation) else path)


def _is_marked(field: FieldInfo) -> bool:
    extra = field.json_schema_extra
    return isinstance(extra, dict) and bool(extra.get(NOT_ACTED_ON))


def _shapes(annotation: Any) -> Iterator[type[Shape]]:
    """The models named anywhere in an annotation: `Annotated[list[X], …] | None` names X."""
    if isinstance(annotation, type) and issubclass(annotation, Shape):
        yield annotation
    for part in get_args(annotation):
        yield from _shapes(part)


def _is_list(annotation: Any) -> bool:
    return getattr(annotation, "__origin__", None) is list or any(_is_list(part) for part in get_args(annotation))
