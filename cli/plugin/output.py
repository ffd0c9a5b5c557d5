"""The output of commands: lines of styled text, tables in columns, JSON and YAML. Pure, except `show`.

A line is a list of (text, style) pieces. Styles are rich's words (`green`, `bold red`), empty for none. They take
effect on a terminal only, and not where NO_COLOR is set. Each text is cleaned here: names, values and messages of other
programs go to a terminal or into the log of a CI system. JSON and YAML hold the data as they are, with escapes.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import Any

from api import words
from api.text import clean, clean_lines, dump_json, is_clean

Piece = tuple[str, str]
Line = list[Piece]
Cell = str | Piece

GOOD, BAD, WAIT, DIM, BOLD = "green", "bold red", "yellow", "dim", "bold"

STATE_STYLES = {
    **dict.fromkeys(("Loaded", "Running", "Ready", "True", "Bound", "Live"), GOOD),
    **dict.fromkeys(("Failed", "LoadRejected", "Lost"), BAD),
    **dict.fromkeys(("Pending", "Downloading", "Deleting", "Starting", "Degraded", "Progressing", "False"), WAIT),
}


class Shape(StrEnum):
    """The output format of a command."""

    TABLE = "table"
    JSON = "json"
    YAML = "yaml"


def line(*pieces: Cell) -> Line:
    """Make a line of plain and styled texts."""
    return [piece if isinstance(piece, tuple) else (piece, "") for piece in pieces]


def state(word: str) -> Piece:
    """Return a state in its colour."""
    return (word, STATE_STYLES.get(word, "") if isinstance(word, str) else "")


def columns(rows: Sequence[Sequence[Cell]], *, gap: int = 3, indent: int = 0) -> list[Line]:
    """Lay cells out in columns; the last cell of a row is not padded."""
    if not rows:
        return []
    cells = [[cleaned(cell if isinstance(cell, tuple) else (cell, "")) for cell in row] for row in rows]
    width = max(len(row) for row in cells)
    widths = [max((len(row[index][0]) for row in cells if index < len(row)), default=0) for index in range(width)]
    lines: list[Line] = []
    for row in cells:
        pieces: Line = [(" " * indent, "")] if indent else []
        for index, (text, style) in enumerate(row):
            pieces.append((text, style))
            if index + 1 < len(row):
                pieces.append((" " * (widths[index] - len(text) + gap), ""))
        lines.append(pieces)
    return lines


def cleaned(piece: Piece) -> Piece:
    """Return a piece whose text is safe to show, on one line."""
    text, style = piece
    return (clean(text if isinstance(text, str) else str(text)), style)


def head(*names: str) -> list[Cell]:
    """Return the first row of a table."""
    return [(name, DIM) for name in names]


def as_text(lines: Iterable[Line]) -> str:
    """Return lines without styles, for a file or a pipe."""
    return clean_lines("".join("".join(text for text, _ in map(cleaned, pieces)).rstrip() + "\n" for pieces in lines))


def show(lines: Iterable[Line]) -> None:
    """Print lines, in colour on a terminal. A closed pipe is not a failure."""
    lines = list(lines)
    try:
        if sys.stdout.isatty() and not os.environ.get("NO_COLOR"):
            from rich.console import Console
            from rich.text import Text

            console = Console(highlight=False, markup=False, soft_wrap=True)
            for pieces in lines:
                console.print(Text.assemble(*map(cleaned, pieces)))
        else:
            sys.stdout.write(as_text(lines))
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def dump(value: Any, shape: Shape) -> str:
    """Return a value as JSON or YAML."""
    return dump_json(value, indent=2) + "\n" if shape is Shape.JSON else dump_yaml(value)


def dump_yaml(value: Any) -> str:
    """Return a value as YAML: the data as they are, unsafe characters as escapes of YAML, enums as their words."""
    import yaml

    class Dumper(getattr(yaml, "CSafeDumper", yaml.SafeDumper)):  # type: ignore[misc]
        """Quotes each text that is not shown as it is: only between double quotation marks does YAML have escapes."""

    def represent(dumper: Any, text: str) -> Any:
        safe = all(map(is_clean, text.split("\n"))) and not _COMMAND.search(text)
        return dumper.represent_scalar("tag:yaml.org,2002:str", str(text), style=None if safe else '"')

    Dumper.add_representer(str, represent)
    Dumper.add_multi_representer(StrEnum, represent)
    text = yaml.dump(value, Dumper=Dumper, sort_keys=False, allow_unicode=True, default_flow_style=False)
    return clean_lines(str(text))


_COMMAND = re.compile(r"(?:^|\s)::")  # a long text is folded at white space: `::` could begin a line


def answer(view: Any, lines: Iterable[Line], shape: Shape) -> None:
    """Print the answer of a command: the view for programs, the lines for people."""
    if shape is Shape.TABLE:
        show(lines)
    else:
        show([line(row) for row in dump(view, shape).split("\n")[:-1]])


def size(count: int | None) -> str:
    """Return a number of bytes for people, `-` for None."""
    return "-" if count is None else words.size(count)
