"""Kubernetes quantities in canonical form, as a Go client writes them back."""

from __future__ import annotations

import re
from fractions import Fraction

_FORM = re.compile(r"([+-]?(?:\d+(?:\.\d*)?|\.\d+))(Ki|Mi|Gi|Ti|Pi|Ei|[numkMGTPE]|[eE][+-]?\d+)?")
_BINARY = {"Ki": 1, "Mi": 2, "Gi": 3, "Ti": 4, "Pi": 5, "Ei": 6}
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}


def canonical(value: str | int | float) -> str:
    """Return the quantity with the largest suffix of its own family that needs no fraction (49152Mi is 48Gi).

    A text that is not a quantity is returned unchanged: the API server refuses it. Precision ends at 1n.
    """
    text = str(value)
    match = _FORM.fullmatch(text)
    if match is None:
        return text
    number, suffix = Fraction(match[1]), match[2] or ""
    if suffix in _BINARY:
        amount = number * 1024 ** _BINARY[suffix]
        return _binary(amount) if amount.denominator == 1 else _decimal(amount)
    if suffix[:1] in {"e", "E"} and len(suffix) > 1:
        return _exponent(number * Fraction(10) ** int(suffix[1:]))
    return _decimal(number * Fraction(10) ** _DECIMAL[suffix])


def _binary(amount: Fraction) -> str:
    if amount == 0:
        return "0"
    for suffix, power in reversed(_BINARY.items()):
        if amount % 1024**power == 0:
            return f"{amount // 1024**power}{suffix}"
    return str(amount)


def _decimal(amount: Fraction) -> str:
    if amount == 0:
        return "0"
    for suffix, power in reversed(_DECIMAL.items()):
        scaled = amount / Fraction(10) ** power
        if scaled.denominator == 1:
            return f"{scaled}{suffix}"
    nano = amount * 10**9
    return f"{-(-nano.numerator // nano.denominator)}n"  # rounded up, as Go does


def _exponent(amount: Fraction) -> str:
    if amount == 0:
        return "0"
    power = 18
    while power > -9 and (amount / Fraction(10) ** power).denominator != 1:
        power -= 3
    digits = amount / Fraction(10) ** power
    return f"{digits}e{power}" if power else str(digits)
