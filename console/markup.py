"""HTML from values. Pure.

Everything that is not already `Html` is cleaned and escaped, so neither can be forgotten.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from html import escape

from api.text import clean

Child = object  # Html, text, number, None (nothing), or an iterable of these

_VOID = frozenset({"input", "link", "meta", "br"})


class Html(str):
    """A string that is HTML."""

    __slots__ = ()


def html(*children: Child) -> Html:
    """Return children one after the other."""
    return Html("".join(map(_render, children)))


def el(tag: str, *children: Child, **attributes: object) -> Html:
    """Return an element.

    Attributes: `class_`, `for_` for Python's own words, `aria_label` for `aria-label`; None and False leave one out,
    True writes it without value.
    """
    written = ""
    for name, value in attributes.items():
        if value is True:
            written += _attribute(name)
        elif value is not None and value is not False:
            written += f'{_attribute(name)}="{escape(clean(str(value)))}"'
    if tag in _VOID:
        return Html(f"<{tag}{written}>")
    inside = "".join([child if child.__class__ is Html else _render(child) for child in children])
    return Html(f"<{tag}{written}>{inside}</{tag}>")


@cache
def _attribute(name: str) -> str:
    return f" {name.rstrip('_').replace('_', '-')}"


def _render(child: Child) -> str:
    if child is None:
        return ""
    if isinstance(child, Html):
        return child
    if isinstance(child, str):
        return escape(clean(child))
    if isinstance(child, Iterable):
        return "".join(map(_render, child))
    return escape(clean(str(child)))
