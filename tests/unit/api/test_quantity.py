"""Quantities as numbers."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.quantity import parse_quantity

LARGEST = 2**63 - 1
NUMBERS: list[tuple[Any, Any]] = [
    ("1", 1),
    (4, 4),
    (1.5, Decimal("1.5")),
    ("1.", 1),
    (".5", Decimal("0.5")),
    ("250m", Decimal("0.25")),
    ("1k", 1000),
    ("2M", 2_000_000),
    ("1Ki", 1024),
    ("1.5Gi", 3 * 2**29),
    ("2e3", 2000),
    ("-1", -1),
    ("1e5000", LARGEST),
    ("-9Ei", -LARGEST),
    (10**5000, LARGEST),
]


@pytest.mark.parametrize(("value", "number"), NUMBERS, ids=[str(value)[:12] for value, _ in NUMBERS[:-1]] + ["huge"])
def test_quantities(value: Any, number: Any) -> None:
    assert parse_quantity(value) == number


@pytest.mark.parametrize(
    "value", ["x", "", ".", "1 Gi", "1gi", "Gi", "1\n", "1E999999999", True, None, {}, float("nan")]
)
def test_what_is_none(value: Any) -> None:
    assert parse_quantity(value) is None


@given(st.text(alphabet="0123456789.+-eEKGim", max_size=12) | st.text() | st.integers() | st.floats() | st.none())
def test_reading_never_raises(value: Any) -> None:
    number = parse_quantity(value)
    assert number is None or abs(number) <= LARGEST
