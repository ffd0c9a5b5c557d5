"""Each statement of SECURITY.md names its tests, and each of these tests exists."""

from __future__ import annotations

import ast
import re
from functools import cache

import pytest

from tests.unit.docs.pages import ROOT

PAGE = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
REFERENCE = re.compile(r"`(?P<path>tests/[\w/.-]+\.py)::(?P<test>\w+)`")
ANY_TEST = re.compile(r"\btest_\w+|tests/[\w/.-]+")


@cache
def functions_in(path: str) -> frozenset[str]:
    """Return the names of the test functions of a file."""
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    functions = (node for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    return frozenset(node.name for node in functions if node.name.startswith("test_"))


def tables() -> list[list[list[str]]]:
    """Return the tables of the page: rows of cells, the first row is the head."""
    blocks = re.findall(r"(?m)(?:^\|.*\|$\n?)+", PAGE)
    rows = [[line.strip("|").split(" | ") for line in block.splitlines()] for block in blocks]
    return [[[cell.strip() for cell in row] for row in [table[0], *table[2:]]] for table in rows]


CLAIMS = [pytest.param(row, id=row[0][:60]) for table in tables() if table[0][-1] == "shown by" for row in table[1:]]


def test_the_tables_are_found() -> None:
    assert len(CLAIMS) > 60
    assert len(REFERENCE.findall(PAGE)) > 80


@pytest.mark.parametrize("row", CLAIMS)
def test_each_statement_names_tests_and_nothing_else(row: list[str]) -> None:
    *_, shown_by = row
    assert REFERENCE.sub("REF", shown_by).replace("REF, ", "") == "REF"


def test_each_named_test_exists() -> None:
    missing = [
        f"{path}::{test}"
        for path, test in REFERENCE.findall(PAGE)
        if not (ROOT / path).is_file() or test not in functions_in(path)
    ]
    assert missing == []


def test_no_name_of_a_test_escapes_the_check() -> None:
    rest = REFERENCE.sub("", PAGE)
    beyond = [name for name in ANY_TEST.findall(rest) if name not in ("tests/cluster", "tests/chart")]
    example = "tests/unit/tenants/test_tenants_pure.py"
    assert beyond == [example, "test_no_field_of_a_spec_takes_a_namespace"]
    assert "test_no_field_of_a_spec_takes_a_namespace" in functions_in(example)


def test_every_section_with_statements_says_what_does_not_hold() -> None:
    sections = re.split(r"(?m)^## ", PAGE)[1:]
    with_claims = [section for section in sections if "| shown by |" in section]
    assert len(with_claims) >= 10
    for section in with_claims:
        assert "\n### Limits\n" in section, section.splitlines()[0]
