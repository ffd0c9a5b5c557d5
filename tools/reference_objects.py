"""The reference page of all objects, generated from the models: `python -m tools.reference_objects write|verify`."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from api import kinds
from api.kinds import Kind
from api.models import MODELS
from api.models.common import NOT_ACTED_ON, SharedShape
from tools.crds import SHORT_NAMES
from tools.generated import ROOT, Target, run

DIRECTORY = ROOT / "docs" / "reference"
PAGE = "objects.md"

_HEAD = """\
<!-- Generated from the models in api/models by `make generate` (tools.reference_objects). Do not edit. -->
# Objects, field by field

Every kind of group `aim.eai.amd.com`, as the API server's schemas have it. What the fields mean together, and which
combinations are refused, is in the [rules](../rules.md).

- **bold** fields are required.
- ○ accepted, not acted on: any value passes the schema, so that manifests written for other operators apply. On
  AIMService such a field is refused with a message, on every other kind a warning names it.
- A *quantity* is a Kubernetes quantity (`50Gi`, `4`, `500m`).
- Lists "by …" are maps for `kubectl apply`: entries merge by that key, and none may appear twice.
- Status fields hold what the controller reports; their listed words are the known ones, not a restriction.

"""

Node = Mapping[str, Any]


def render_reference() -> dict[str, str]:
    """Return the Markdown text of the page by file name."""
    return {PAGE: _HEAD + "\n".join([*_kind_table(), *_kind_sections(), *_shared_sections()]) + "\n"}


def _kind_table() -> Iterator[str]:
    yield "| kind | versions | scope | short name | |"
    yield "|---|---|---|---|---|"
    for kind in kinds.AIM_KINDS:
        versions = "v1alpha2, v1alpha1 (deprecated)" if kind is kinds.AIM_SERVICE else kind.version
        scope = "namespace" if kind.namespaced else "cluster"
        summary = " ".join((MODELS[kind].__doc__ or "").split())
        yield f"| [{kind.kind}](#{kind.kind.lower()}) | {versions} | {scope} | `{SHORT_NAMES[kind]}` | {summary} |"
    yield ""


def _kind_sections() -> Iterator[str]:
    printed: dict[str, str] = {}  # name of the part's model → kind that it was printed under
    for kind in kinds.AIM_KINDS:
        schema = MODELS[kind].model_json_schema(by_alias=True)
        yield from (f"## {kind.kind}", "", " ".join((MODELS[kind].__doc__ or "").split()), "")
        for part in ("spec", "status"):
            yield from _part(kind, part, schema, printed)


def _part(kind: Kind, part: str, schema: Node, printed: dict[str, str]) -> Iterator[str]:
    model = _model_name(schema["properties"][part])
    yield from (f"### {kind.kind}: {part}", "")
    if model in printed:
        yield from (f"The same fields as [{printed[model]}](#{printed[model].lower()}-{part}).", "")
        return
    printed[model] = kind.kind
    yield from _field_table(schema["$defs"][model], schema["$defs"])


def _shared_sections() -> Iterator[str]:
    yield from ("## Shared shapes", "")
    defs: dict[str, Any] = {}
    for model in MODELS.values():
        defs |= model.model_json_schema(by_alias=True).get("$defs", {})
    for name in sorted(_SHARED_NAMES & defs.keys()):
        yield from (f"### {name}", "", " ".join(defs[name].get("description", "").split()), "")
        yield from _field_table(defs[name], defs)


_SHARED_NAMES = {shape.__name__ for shape in SharedShape.__subclasses__()}


def _field_table(shape: Node, defs: Node) -> Iterator[str]:
    yield "| field | type | default | meaning |"
    yield "|---|---|---|---|"
    for row in _rows(shape, defs, ""):
        yield row.render()
    yield ""


@dataclass(frozen=True, slots=True)
class _Row:
    path: str
    type: str
    default: str
    meaning: str
    required: bool
    not_acted_on: bool

    def render(self) -> str:
        name = f"`{self.path}`"
        name = f"**{name}**" if self.required else name
        mark = " ○" if self.not_acted_on else ""
        return f"| {name}{mark} | {self.type} | {self.default} | {_cell(self.meaning)} |"


def _rows(shape: Node, defs: Node, prefix: str) -> Iterator[_Row]:
    for name, field in shape.get("properties", {}).items():
        node = _unwrapped(field)
        default = node.get("default")
        yield _Row(
            path=f"{prefix}{name}",
            type=_type_words(node),
            default="" if default is None else f"`{default}`",
            meaning=" ".join(node.get("description", "").split()),
            required=name in shape.get("required", ()),
            not_acted_on=bool(node.get(NOT_ACTED_ON)),
        )
        inner, suffix = _inner_model(node)
        if inner and inner not in _SHARED_NAMES:
            yield from _rows(defs[inner], defs, f"{prefix}{name}{suffix}.")


def _unwrapped(node: Node) -> Node:
    """`X | null` as X, with the words beside it."""
    choices = [choice for choice in node.get("anyOf", ()) if choice != {"type": "null"}]
    if len(choices) != 1:
        return node
    return {**choices[0], **{word: value for word, value in node.items() if word != "anyOf"}}


def _model_name(node: Node) -> str:
    return str(_unwrapped(node).get("$ref", "")).rpartition("/")[2]


def _inner_model(node: Node) -> tuple[str, str]:
    """The model of the fields below this one, and what its path needs: `[]` for a list, `.<key>` for a map."""
    if "items" in node:
        return _model_name(node["items"]), "[]"
    if isinstance(node.get("additionalProperties"), Mapping):
        return _model_name(node["additionalProperties"]), ".<key>"
    return _model_name(node), ""


def _type_words(node: Node) -> str:
    if node.get(NOT_ACTED_ON):
        return "any"
    if node.get("x-kubernetes-int-or-string"):
        return "quantity"
    if "enum" in node or "const" in node:
        return " \\| ".join(f"`{value}`" for value in node.get("enum") or [node["const"]])
    if "$ref" in node:
        return _link(_model_name(node)) or "object"
    kind = node.get("type")
    if kind == "array":
        keys = node.get("x-kubernetes-list-map-keys")
        by = f", by {' and '.join(keys)}" if keys else ", a set" if node.get("x-kubernetes-list-type") == "set" else ""
        return f"list of {_type_words(node['items'])}{_bounds(node)}{by}"
    if kind == "object":
        values = node.get("additionalProperties")
        return f"map to {_type_words(values)}" if isinstance(values, Mapping) else "JSON object"
    if node.get("format") == "date-time":
        return "time"
    return f"{kind}{_bounds(node)}" + (f" `{_cell(node['pattern'])}`" if "pattern" in node else "")


def _link(model: str) -> str:
    return f"[{model}](#{model.lower()})" if model in _SHARED_NAMES else ""


def _bounds(node: Node) -> str:
    if node.get("maxItems") is not None:
        low, high = node.get("minItems"), node["maxItems"]
        return f" (exactly {high})" if low == high else f" (at most {high})"
    if node.get("minimum") is not None:
        return f" ≥ {node['minimum']}"
    if node.get("maxLength") is not None:
        return f" of {node.get('minLength', 0)} to {node['maxLength']} characters"
    return ", not empty" if node.get("minLength") else ""


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;") if "`" not in text else text.replace("|", "\\|")


TARGET = Target("reference pages", "tools.reference_objects", DIRECTORY, render_reference)


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:], TARGET))
