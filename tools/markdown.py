"""What the generated reference pages share: tables in Markdown, and the note that they are generated. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

_BAR = re.compile(r"(?<!\\)\|")
_PLACEHOLDER = re.compile(r"<(?=[A-Za-z/])")


def heading(title: str, module: str, source: str) -> list[str]:
    """Return the head of a page: its title and where its text comes from."""
    note = f"<!-- Generated from {source} by `make generate` (python -m {module} write). Do not edit. -->"
    return [note, "", f"# {title}", ""]


def cell(text: str) -> str:
    """Return text for one cell of a table: on one line, bars escaped, `<word>` outside of code kept visible."""
    parts = " ".join(text.split()).split("`")
    shown = [part if number % 2 else _PLACEHOLDER.sub("&lt;", part) for number, part in enumerate(parts)]
    return _BAR.sub(r"\\|", "`".join(shown))


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """Yield the lines of a table, with an empty line behind it."""
    yield f"| {' | '.join(columns)} |"
    yield f"|{'---|' * len(columns)}"
    for row in rows:
        yield f"| {' | '.join(cell(entry) for entry in row)} |"
    yield ""


def page(lines: Iterable[str]) -> str:
    """Return the text of a page: lines joined, one line break at the end."""
    return "\n".join(lines).rstrip("\n") + "\n"
