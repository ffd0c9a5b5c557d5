"""The parts of a JSON text, found without building objects of them. Pure.

A page of a list, or an object, that no parser takes as a whole (nested too deeply, text that is not UTF-8) is cut into
its parts, so that only the part at fault is lost. msgspec cuts what it can read, at the speed of C; what it refuses is
cut by a scan for braces and strings, which has no limit of depth and takes up to 0.4 s for each MB.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

_MEMBERS = msgspec.json.Decoder(dict[str, msgspec.Raw])
_ELEMENTS = msgspec.json.Decoder(list[msgspec.Raw])
# a string as a whole (possessive: a text that never ends costs one look), or a bracket, or a comma
_TOKEN = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"|[{}\[\],]', re.DOTALL)
_OPENING, _CLOSING, _COMMA = b"{[", b"}]", ord(",")


def members(text: bytes) -> dict[str, bytes]:
    """Return the members of a JSON object: name → JSON text. Raises: ValueError for a text that is not an object."""
    try:
        return {name: bytes(value) for name, value in _MEMBERS.decode(text).items()}
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return dict(map(_member, _split(text, b"{", b"}")))


def elements(text: bytes) -> list[bytes]:
    """Return the elements of a JSON list as JSON texts. Raises: ValueError for a text that is not a list."""
    try:
        return [bytes(value) for value in _ELEMENTS.decode(text)]
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return list(_split(text, b"[", b"]"))


def _member(text: bytes) -> tuple[str, bytes]:
    found = _TOKEN.match(text)
    rest = text[found.end() :].lstrip() if found is not None else b""
    if found is None or not text.startswith(b'"') or not rest.startswith(b":"):
        raise ValueError("a member of an object has no name")
    return found.group()[1:-1].decode("utf-8", "replace"), rest[1:].strip()


def _split(text: bytes, opening: bytes, closing: bytes) -> Iterator[bytes]:
    """Yield the texts between the commas of the outermost brackets."""
    text = text.strip()
    if not (text.startswith(opening) and text.endswith(closing)):
        raise ValueError(f"not a JSON text in {opening.decode()}{closing.decode()}")
    depth, start = 0, 1
    for token in _TOKEN.finditer(text):
        first = text[token.start()]
        if first in _OPENING:
            depth += 1
        elif first in _CLOSING:
            depth -= 1
            if depth == 0:
                break
        elif depth == 1 and first == _COMMA:
            yield text[start : token.start()].strip()
            start = token.end()
    else:
        raise ValueError("a bracket is not closed")
    if token.end() != len(text):
        raise ValueError("text follows the last bracket")
    if last := text[start : token.start()].strip():
        yield last
