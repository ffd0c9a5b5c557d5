"""Runs the health rules of the GitOps page in Python: Argo CD, Flux and Lua are not available here."""

from __future__ import annotations

import re
from typing import Any

import yaml

from tests.unit.docs.pages import DOCS, blocks

PAGE = DOCS / "how-to" / "gitops.md"


class Table(dict[str, Any]):
    """A Lua table: a missing key is nil."""

    def __getattr__(self, name: str) -> Any:
        return self.get(name)

    def __setattr__(self, name: str, value: Any) -> None:
        self[name] = value


def _table(value: Any) -> Any:
    if isinstance(value, dict):
        return Table({key: _table(inner) for key, inner in value.items()})
    return [_table(inner) for inner in value] if isinstance(value, list) else value


def manifest(title: str) -> Any:
    (block,) = [block for block in blocks(PAGE) if block.title == title]
    return yaml.safe_load(block.text)


def run_lua(script: str, obj: dict[str, Any]) -> Table:
    """Run the subset of Lua that the page uses, as Python: assignments, if, for over ipairs, comparisons."""
    lines, depth = [], 1
    for line in script.splitlines():
        words = line.strip().replace("~=", "!=").replace("nil", "None")
        if words in {"end", "else"} or words.startswith("elseif"):
            depth -= 1
        if words == "end":
            continue
        words = re.sub(r"^elseif (.*) then$", r"elif \1:", words)
        words = re.sub(r"^if (.*) then$", r"if \1:", words)
        words = re.sub(r"^for \w+, (\w+) in ipairs\((.*)\) do$", r"for \1 in \2:", words)
        words = {"else": "else:", "hs = {}": "hs = Table()"}.get(words, words)
        lines.append(f"{'    ' * depth}{words}")
        depth += words.endswith(":")
    scope: dict[str, Any] = {"Table": Table}
    exec("def health(obj):\n" + "\n".join(lines), scope)
    result: Table = scope["health"](_table(obj))
    return result


def run_cel(expression: str, obj: dict[str, Any]) -> bool:
    """Evaluate the subset of CEL that the page uses, as Python."""
    python = expression.replace("||", " or ").replace("&&", " and ")
    python = re.sub(r"!has\(([\w.]+)\)", r"(\1 is None)", python)
    python = re.sub(r"has\(([\w.]+)\)", r"(\1 is not None)", python)
    scope = _table({"status": obj.get("status") or {}, "metadata": obj["metadata"]})
    return bool(eval(python, {}, scope))
