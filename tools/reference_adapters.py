"""The page of what can be served: `python -m tools.reference_adapters write|verify`.

Its source is the record of what real engines said (`make test-engine`), a fixture of the tests.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from typing import Any

from api.reasons import Reason, anchor
from tools.generated import ROOT, Target, run
from tools.markdown import heading, page, table

_RECORD = ROOT / "tests" / "fixtures" / "engine-verdicts.json"
_VERDICTS = {
    "serves": "served",
    "refuses": "refused",
    "no effect": "loaded, no effect",
    "not finite": "loaded, answers are nonsense",
}
_GROUPS = {
    "option": ("Options of PEFT", "Each option of `adapter_config.json`, alone in an otherwise plain adapter."),
    "ending": ("Names of matrices", "The end of the tensor names, in place of `.lora_A.weight` and `.lora_B.weight`."),
    "prefix": ("Prefixes", "What comes before the path of the module, in place of `base_model.model.`."),
    "module": ("Modules", "A module that the base does not have under this name; `beside`: with valid ones."),
    "layer": (
        "Layers",
        "A layer that the base of two layers does not have, or another spelling; `beside`: with valid ones.",
    ),
    "extra": ("Other tensors", "A tensor that is not a LoRA matrix, beside valid ones."),
    "half": ("Halves", "One of the two matrices is missing."),
    "type": ("Types", "The type of all numbers."),
    "shape": ("Shapes", "One matrix of another size than its module, or another rank than the ceiling of 32 allows."),
    "damage": ("Damaged files", "What transfers and editors do to files."),
}


def render() -> str:
    """Return the page."""
    return page(_lines(json.loads(_RECORD.read_text())["adapters"]))


def _lines(adapters: Mapping[str, Any]) -> Iterator[str]:
    versions = sorted(
        {version for entry in adapters.values() for version in entry["engines"]},
        key=lambda version: [int(part) for part in version.split(".")],
    )
    yield from heading("What can be served", "tools.reference_adapters", "tests/fixtures/engine-verdicts.json")
    yield (
        f"What vLLM {', '.join(versions[:-1])} and {versions[-1]} do with {len(adapters)} adapters, and what preflight "
        "says. The engines were asked on a CPU, with a small Llama. The newest engine decides; where an older one "
        "refuses an adapter or answers wrongly, preflight warns."
    )
    yield ""
    yield (
        "*Served* means that the answer differs from that of the base. *Loaded, no effect* means that it does not, "
        "and that the engine reports no error."
    )
    yield ""
    for group, (title, words) in _GROUPS.items():
        members = {name: entry for name, entry in adapters.items() if name.split(" ", 1)[0] == group}
        if not members:
            continue
        yield f"## {title}"
        yield ""
        yield words
        yield ""
        columns = ("adapter", *(f"vLLM {version}" for version in versions), "preflight")
        yield from table(columns, _rows(members, versions))
    yield "## Ask the engines again"
    yield ""
    yield (
        "`make test-engine` installs the engines from locks, asks them about every adapter, compares the answers with "
        "preflight, and writes the record. It is not part of `make test`, which compares preflight with the record."
    )


def _rows(members: Mapping[str, Any], versions: list[str]) -> Iterator[tuple[str, ...]]:
    """Yield one row for all adapters of an option (or kind) with the same outcome."""
    rows: dict[tuple[str, ...], list[str]] = {}
    for name, entry in members.items():
        what = name.split(" ", 1)[1]
        option, _, value = what.partition("=")
        outcome = (*(_VERDICTS[entry["engines"][version]] for version in versions), _preflight(entry))
        rows.setdefault((option if value else what, *outcome), []).append(value)
    for (what, *found), values in rows.items():
        shown = ", ".join(f"`{value}`" for value in values if value)
        yield (f"`{what}`: {shown}" if shown else what, *found)


def _preflight(entry: Mapping[str, Any]) -> str:
    if entry["preflight"]:
        reason = Reason(entry["preflight"])
        return f"[`{reason}`](errors.md#{anchor(reason)})"
    return "passes" + "".join(f", warns [`{one}`](errors.md#{anchor(Reason(one))})" for one in entry["warnings"])


TARGET = Target("The page of adapters", "tools.reference_adapters", ROOT / "docs", lambda: {"adapters.md": render()})


def main() -> int:
    """Write or verify the page."""
    return run(sys.argv[1:], TARGET)


if __name__ == "__main__":
    sys.exit(main())
