"""Kubernetes quantities as numbers: `500m`, `2`, `1.5Gi`, `1e3`."""

from __future__ import annotations

import re
from decimal import Decimal, DecimalException

_FORM = re.compile(r"([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)(Ki|Mi|Gi|Ti|Pi|Ei|n|u|m|k|M|G|T|P|E)?")
_FACTORS = {
    "n": Decimal("1e-9"),
    "u": Decimal("1e-6"),
    "m": Decimal("1e-3"),
    "k": Decimal(10**3),
    "M": Decimal(10**6),
    "G": Decimal(10**9),
    "T": Decimal(10**12),
    "P": Decimal(10**15),
    "E": Decimal(10**18),
    "Ki": Decimal(2**10),
    "Mi": Decimal(2**20),
    "Gi": Decimal(2**30),
    "Ti": Decimal(2**40),
    "Pi": Decimal(2**50),
    "Ei": Decimal(2**60),
}
_LARGEST = Decimal(2**63 - 1)


def parse_quantity(value: object) -> Decimal | None:
    """Return a quantity as a number in its base unit (bytes, cores, …), or None if it is not valid. Never raises.

    A number beyond ±(2⁶³ - 1) becomes that limit, as in the API server.
    Source: Kubernetes API, `resource.Quantity`.
    """
    number = _read(value)
    return None if number is None else max(-_LARGEST, min(_LARGEST, number))


def _read(value: object) -> Decimal | None:
    if isinstance(value, int):
        return None if isinstance(value, bool) else Decimal(value)
    match = _FORM.fullmatch(str(value)) if isinstance(value, str | float) else None
    if match is None:
        return None
    try:
        return Decimal(match[1]) * _FACTORS.get(match[2] or "", Decimal(1))
    except DecimalException:  # an exponent beyond what Decimal holds
        return None
