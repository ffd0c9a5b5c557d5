"""Writes the files that are generated from the models, or verifies that they are current."""

from __future__ import annotations

import argparse
import difflib
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True, slots=True)
class Target:
    """Something to generate: `render` gives texts by file name, which go below `directory`.

    `owned`: glob of the files that must all be generated; empty: the directory may hold other files.
    """

    title: str
    module: str
    directory: Path
    render: Callable[[], dict[str, str]]
    owned: str = ""


def run(argv: Sequence[str], target: Target) -> int:
    """Run `write` or `verify`; return the exit status (1: a file is not current; the diff goes to standard output)."""
    parser = argparse.ArgumentParser(prog=f"python -m {target.module}", description=f"Generate {target.title}.")
    parser.add_argument("action", choices=("write", "verify"))
    parser.add_argument("--dir", type=Path, default=target.directory, help="where the files lie")
    options = parser.parse_args(argv)
    if options.action == "write":
        write(target, options.dir)
        return 0
    difference = drift(target, options.dir)
    if difference:
        sys.stdout.write(f"{difference}\n{target.title} are not current: run `python -m {target.module} write`\n")
    return 1 if difference else 0


def write(target: Target, directory: Path) -> None:
    """Write all files again, and remove generated files that have no source any more."""
    directory.mkdir(parents=True, exist_ok=True)
    texts = target.render()
    for name, text in texts.items():
        (directory / name).write_text(text, encoding="utf-8")
    for stale in _strangers(target, directory, texts):
        stale.unlink()


def drift(target: Target, directory: Path) -> str:
    """Return a diff from the files as they are to what they should be; empty when they are current."""
    texts = target.render()
    parts: list[str] = []
    for name, text in texts.items():
        path = directory / name
        current = path.read_text(encoding="utf-8") if path.exists() else ""
        parts += difflib.unified_diff(
            current.splitlines(), text.splitlines(), str(path), f"{name} (generated)", lineterm=""
        )
    parts += [f"{path}: nothing generates this file" for path in _strangers(target, directory, texts)]
    return "\n".join(parts)


def _strangers(target: Target, directory: Path, texts: dict[str, str]) -> list[Path]:
    if not target.owned:
        return []
    return sorted(path for path in directory.glob(target.owned) if path.name not in texts)
