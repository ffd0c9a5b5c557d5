"""Golden files: what is rendered, as YAML to be read in a review. `GOLDEN=1` writes them again."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2] / "golden"


class _Plain(yaml.SafeDumper):
    """No anchors: each place shows what it holds."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


_Plain.add_representer(
    str,
    lambda dumper, text: dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None),
)


def check_golden(folder: str, name: str, obj: Any) -> None:
    """Compare an object with its golden file, or write it again."""
    path = ROOT / folder / f"{name}.yaml"
    rendered = yaml.dump(obj, Dumper=_Plain, sort_keys=True, width=120)
    if os.environ.get("GOLDEN") == "1":
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(rendered)
    assert path.exists(), f"{path} is not there: GOLDEN=1 writes it"
    assert rendered == path.read_text(), f"{path} differs: GOLDEN=1 writes it again"
