"""pyproject.toml is true: what the product imports is declared, what is declared is imported, and bounds are tested."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[3]
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())
PRODUCT: list[str] = PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
CHECKOUT = ["devcluster", "tools", "tests", "bench", "docs"]
LOCKS = sorted(ROOT.glob("requirements*.lock"))

# of these libraries the code uses what is not documented, so that a release without notice can break it
INTERNALS = {
    "uvicorn": "protocol and request cycle",
    "kubernetes-asyncio": "the token of its configuration",
    "botocore": "HTTP session of a client, body of a response",
    "httpx2": "body of a response",
    "huggingface-hub": "its HTTP client is httpx2",
}
# distributions that nothing imports by name
IMPORTED_BY_OTHERS = {
    "httptools": "uvicorn's protocol imports it",
    "mypy-boto3-s3": "comes with boto3-stubs[s3]",
}


def plain(name: str) -> str:
    """Return the normalized name of a distribution. Source: PEP 503."""
    return re.sub(r"[-_.]+", "-", name).lower()


def parse(requirement: str) -> tuple[str, str]:
    """Return name and versions of a requirement."""
    found = re.fullmatch(r"([A-Za-z0-9._-]+)(?:\[[a-z0-9,]+\])?(.*)", requirement)
    assert found, requirement
    return plain(found[1]), found[2].strip()


RUNTIME = dict(map(parse, PROJECT["project"]["dependencies"]))
DEVELOPMENT = dict(map(parse, PROJECT["project"]["optional-dependencies"]["dev"]))


@cache
def imported(*rooms: str, for_types: bool) -> dict[str, str]:
    """Return the distributions that files of the rooms import, each with one such file.

    `for_types`: count imports below `if TYPE_CHECKING`, which nothing runs, too. A module that is imported by a name in
    a string counts as imported where the string is.
    """
    own = {*PRODUCT, *CHECKOUT}
    distributions = packages_distributions()
    found: dict[str, str] = {}
    for room in rooms:
        for path in sorted((ROOT / room).rglob("*.py")):
            for module in _modules(ast.parse(path.read_text()), for_types=for_types):
                top = module.partition(".")[0]
                if top not in own and top not in sys.stdlib_module_names and top in distributions:
                    found.setdefault(plain(distributions[top][0]), str(path.relative_to(ROOT)))
    return found


def _modules(tree: ast.AST, *, for_types: bool) -> Iterator[str]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING" and not for_types:
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value in _BY_NAME:
            yield node.value
        yield from _modules(node, for_types=for_types)


_BY_NAME = frozenset({"kubernetes_asyncio"})  # imported by importlib.import_module, to start faster


def test_what_the_product_imports_is_declared() -> None:
    undeclared = {name: path for name, path in imported(*PRODUCT, for_types=False).items() if name not in RUNTIME}
    assert not undeclared


def test_what_is_declared_is_imported_by_the_product() -> None:
    unused = RUNTIME.keys() - imported(*PRODUCT, for_types=False).keys() - IMPORTED_BY_OTHERS.keys()
    assert not unused, "only tests need it, or nothing does: move it to the extra `dev`, or remove it"


def test_what_tests_and_tools_import_is_declared() -> None:
    declared = {*RUNTIME, *DEVELOPMENT, *IMPORTED_BY_OTHERS}
    assert not {
        name: path for name, path in imported(*PRODUCT, *CHECKOUT, for_types=True).items() if name not in declared
    }


@pytest.mark.parametrize("name", sorted(INTERNALS))
def test_libraries_whose_internals_are_used_have_an_upper_bound(name: str) -> None:
    assert "<" in RUNTIME[name], f"{INTERNALS[name]}: bound it by the next release that can change this"


def test_lower_bounds_are_those_that_test_lowest_installs() -> None:
    lowest = pins(ROOT / "requirements-lowest.lock")
    for name, versions in RUNTIME.items():
        bound = re.match(r">=([0-9.]+)", versions)
        assert bound, f"{name} has no lower bound"
        assert _release(lowest[name]) == _release(bound[1]), f"{name}: run `make lock`, then `make test-lowest`"


def test_the_image_gets_what_is_declared_and_what_that_needs() -> None:
    locked = pins(ROOT / "requirements.lock")
    assert RUNTIME.keys() <= locked.keys()
    assert not locked.keys() & (DEVELOPMENT.keys() - RUNTIME.keys()), "only tests need it"


@pytest.mark.parametrize("path", LOCKS, ids=[path.name for path in LOCKS])
def test_lock_files_name_no_registry(path: Path) -> None:
    assert pins(path)
    assert not re.search(r"://|^\s*--?(?:extra-)?(?:index|find|trusted)", path.read_text(), re.MULTILINE)


def pins(path: Path) -> dict[str, str]:
    """Return the versions of a lock file."""
    found = re.findall(r"^([A-Za-z0-9._-]+)(?:\[[a-z0-9,]+\])?==([^ ;\\\n]+)", path.read_text(), re.MULTILINE)
    return {plain(name): version for name, version in found}


def _release(version: str) -> tuple[int, ...]:
    """Return the numbers of a version without zeros at its end: 0.115 and 0.115.0 are the same."""
    numbers = [int(part) for part in version.split(".")]
    while numbers and not numbers[-1]:
        numbers.pop()
    return tuple(numbers)
