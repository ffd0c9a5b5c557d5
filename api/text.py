r"""Texts that people read, made safe to show. Pure; data and the standard library only.

A name, a value or a message of a server can contain characters that a terminal, a browser or a CI system acts on: ESC,
line breaks, marks for the direction of writing, invisible characters. Every text goes through this module on its way to
a terminal, a log line, a condition, an event, a warning, an HTTP error, the console or a CI system.

One form replaces such a character everywhere: its escape as Go's `%q` and Python write it (`\x1b`, `\u202e`,
`\U000e0001`). People can see which character was there.

| function | for | line breaks |
|---|---|---|
| `clean` | messages, names, cells of a table | one line |
| `clean_line` | a whole line of output | one line |
| `clean_lines` | output of several lines: tracebacks, excerpts, help | kept, and tabs |
| `quoted` | a value between quotation marks | escaped, and backslashes |
| `escape_json` | JSON for programs: the data stay as they are | escaped by JSON |

Source: docs/contract.md, Texts.
"""

from __future__ import annotations

import re
from typing import Any

CUT = "…"

# Spaces of other widths. Python counts them as not printable, but no terminal acts on them.
_WIDE_SPACES = frozenset("\u00a0\u1680\u202f\u205f\u3000") | frozenset(map(chr, range(0x2000, 0x200B)))
# Default_Ignorable_Code_Point of the Unicode database, as far as Python counts them as printable: they have no shape.
_INVISIBLE = frozenset(
    chr(code)
    for first, last in (
        (0x034F, 0x034F),  # combining grapheme joiner
        (0x115F, 0x1160),  # Hangul fillers
        (0x17B4, 0x17B5),  # Khmer inherent vowels
        (0x180B, 0x180F),  # Mongolian variation selectors
        (0x3164, 0x3164),
        (0xFE00, 0xFE0F),  # variation selectors: they can carry hidden data
        (0xFFA0, 0xFFA0),
        (0xE0100, 0xE01EF),
    )
    for code in range(first, last + 1)
)
# `##[error]`, `##vso[task…]`, `##teamcity[…]`: GitHub and Azure look for these anywhere in a line.
# Source: actions/runner, ActionCommand.TryParse.
_MARKER = re.compile(r"##(?=\w*\[)")
_MARKER_ESCAPED = r"\\x23#"
# `::error::…`: a workflow command of GitHub, after white space only. Source: as above, TryParseV2.
_COMMAND = re.compile(r"(?m)^(?P<indent>[^\S\n]*):(?=:)")
_COMMAND_ESCAPED = r"\g<indent>\\x3a"
_KEPT_IN_LINES = frozenset("\n\t")


def clean(text: str, limit: int | None = None) -> str:
    """Return a text on one line without characters that a terminal or a CI system acts on.

    A text with line breaks or tabs gets single spaces instead of them. Other characters are replaced by their escapes.
    The result has at most `limit` characters; a longer text ends with `…`. To clean a text again changes nothing.
    Cost: linear in the text; about 0.1 µs for printable ASCII.
    """
    if not (text.isascii() and text.isprintable() and "##" not in text):
        if limit is not None and len(text) > 4 * limit + 4:  # white space may shrink; what remains is cut anyway
            text = text[: 4 * limit] + CUT
        text = _on_one_line(text)
    return text if limit is None or len(text) <= limit else text[: max(0, limit - 1)] + CUT


def _on_one_line(text: str) -> str:
    if not text.isprintable() and any(char in text for char in _BREAKS):
        text = " ".join(text.split())
    return _MARKER.sub(_MARKER_ESCAPED, _escaped(text))


# what `str.splitlines` and a terminal take as the end of a line, and tabs
_BREAKS = "\n\r\t\v\f\x1c\x1d\x1e\x1f\x85\u2028\u2029"


def clean_line(text: str) -> str:
    r"""Return a text as a whole line of output: as `clean`, and a line that would be a command begins with `\x3a:`."""
    text = clean(text)
    return _COMMAND.sub(_COMMAND_ESCAPED, text) if "::" in text else text


def clean_lines(text: str) -> str:
    r"""Return a text of several lines without characters that a terminal or a CI system acts on.

    Line feeds and tabs stay; CR LF becomes LF. A line that would be a workflow command begins with `\x3a:`.
    """
    if "\r\n" in text:
        text = text.replace("\r\n", "\n")
    text = _MARKER.sub(_MARKER_ESCAPED, _escaped(text, _KEPT_IN_LINES))
    return _COMMAND.sub(_COMMAND_ESCAPED, text) if "::" in text else text


def quoted(text: str, limit: int) -> str:
    """Return a value as the API server quotes it in an error, without the quotation marks, at most `limit` characters.

    Spaces stay; line breaks, tabs and backslashes are escaped, too, so that two values never look the same.
    """
    text = text[: limit + 1]
    if "\\" in text or not text.isprintable():
        text = "".join(_escape(char) if char == "\\" or not char.isprintable() else char for char in text)
    text = _MARKER.sub(_MARKER_ESCAPED, _escaped(text))
    return text if len(text) <= limit else text[: limit - 1] + CUT


def is_clean(text: str) -> bool:
    """Whether a text can be shown as it is, on one line."""
    return clean(text) == text and not _COMMAND.match(text)


def well_formed(text: str) -> str:
    """Return a text that UTF-8 can express: lone surrogates (a file name that is not UTF-8) become their escapes."""
    return text if text.isascii() else _SURROGATE.sub(lambda found: _escape(found[0]), text)


_SURROGATE = re.compile("[\ud800-\udfff]")


def escape_json(dumped: str) -> str:
    r"""Return the same JSON without raw characters that a terminal or a CI system acts on, but for line feeds.

    Each becomes an escape of JSON (`\u202e`), so that a program reads the same data. Source: RFC 8259, section 7.
    """
    if "##" in dumped:
        dumped = _MARKER.sub(r"#\\u0023", dumped)
    table = {ord(char): _json_escape(char) for char in _unsafe(dumped, _KEPT_IN_JSON)}
    return dumped.translate(table) if table else dumped


_KEPT_IN_JSON = frozenset("\n")


def dump_json(value: Any, indent: int | None = None) -> str:
    """Return a value as JSON for programs: the data as they are, also lone surrogates, all unsafe characters escaped.

    What JSON cannot express is written as text.
    """
    import json  # noqa: PLC0415 - lazy: Jobs write no such JSON

    return escape_json(json.dumps(value, ensure_ascii=False, indent=indent, default=str, skipkeys=True))


def _json_escape(char: str) -> str:
    units = char.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[place]:02x}{units[place + 1]:02x}" for place in range(0, len(units), 2))


def _escaped(text: str, kept: frozenset[str] = frozenset()) -> str:
    table = {ord(char): _escape(char) for char in _unsafe(text, kept)}
    return text.translate(table) if table else text


def _unsafe(text: str, kept: frozenset[str]) -> list[str]:
    """Return the different characters of a text that are not shown."""
    if text.isprintable() and (text.isascii() or _INVISIBLE.isdisjoint(text)):
        return []
    return [
        char
        for char in set(text)
        if (not char.isprintable() and char not in _WIDE_SPACES and char not in kept) or char in _INVISIBLE
    ]


def _escape(char: str) -> str:
    return char.encode("unicode_escape").decode("ascii")
