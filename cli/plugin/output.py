"""The output of commands: lines of styled text, tables in columns, JSON and YAML. Pure, except `show`.

A line is a list of (text, style) pieces. Styles are rich's words (`green`, `bold red`), empty for none. They take
effect on a terminal only, and not where NO_COLOR is set.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import Any

from api import words

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
    return (word, STATE_STYLES.get(word, ""))


def columns(rows: Sequence[Sequence[Cell]], *, gap: int = 3, indent: int = 0) -> list[Line]:
    """Lay cells out in columns; the last cell of a row is not padded."""
    if not rows:
        return []
    cells = [[cell if isinstance(cell, tuple) else (cell, "") for cell in row] for row in rows]
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


def head(*names: str) -> list[Cell]:
    """Return the first row of a table."""
    return [(name, DIM) for name in names]


def as_text(lines: Iterable[Line]) -> str:
    """Return lines without styles, for a file or a pipe."""
    return "".join("".join(text for text, _ in pieces).rstrip() + "\n" for pieces in lines)


def show(lines: Iterable[Line]) -> None:
    """Print lines, in colour on a terminal. A closed pipe is not a failure."""
    lines = list(lines)
    try:
        if sys.stdout.isatty() and not os.environ.get("NO_COLOR"):
            from rich.console import Console
            from rich.text import Text

            console = Console(highlight=False, markup=False, soft_wrap=True)
            for pieces in lines:
                console.print(Text.assemble(*pieces))
        else:
            sys.stdout.write(as_text(lines))
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def dump(value: Any, shape: Shape) -> str:
    """Return a value as JSON or YAML."""
    if shape is Shape.JSON:
        import orjson

        return orjson.dumps(value, option=orjson.OPT_INDENT_2).decode() + "\n"
    import yaml

    class Dumper(yaml.SafeDumper):
        """Writes the members of an enum (reasons) as the words that they are."""

    Dumper.add_multi_representer(StrEnum, lambda dumper, word: dumper.represent_str(str(word)))
    return str(yaml.dump(value, Dumper=Dumper, sort_keys=False, allow_unicode=True))


def answer(view: Any, lines: Iterable[Line], shape: Shape) -> None:
    """Print the answer of a command: the view for programs, the lines for people."""
    if shape is Shape.TABLE:
        show(lines)
    else:
        show([line(row) for row in dump(view, shape).splitlines()])


def size(count: int | None) -> str:
    """Return a number of bytes for people, `-` for None."""
    return "-" if count is None else words.size(count)
