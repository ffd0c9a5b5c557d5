"""What calls itself pure is kept pure: each such module is in the import contract that forbids I/O."""

from __future__ import annotations

import ast
import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CONTRACT = "the pure core does no I/O"
# "Pure." at the end of the summary, "Pure: …", "Pure and total: …", "(pure)", "No I/O …"; not "Pure but for …".
CLAIM = re.compile(r"(?:^|[.?:;] |\n)Pure(?:[.;:]| and )|\(pure\)|(?:^|\n)No I/O(?! of)")


def pyproject() -> dict[str, object]:
    loaded: dict[str, object] = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    return loaded


def claiming() -> set[str]:
    """Names of the modules whose docstring says that they are pure."""
    rooms = pyproject()["root_packages"]
    assert isinstance(rooms, list)
    found = set()
    for path in (path for room in rooms for path in (ROOT / room).rglob("*.py")):
        if CLAIM.search(ast.get_docstring(ast.parse(path.read_text())) or ""):
            module = path.relative_to(ROOT).with_suffix("")
            found.add(".".join(part for part in module.parts if part != "__init__"))
    return found


def listed() -> set[str]:
    contracts = pyproject()["contracts"]
    assert isinstance(contracts, list)
    (one,) = [contract for contract in contracts if contract["name"] == CONTRACT]
    return set(one["source_modules"])


def covered(module: str, patterns: set[str]) -> bool:
    """Whether a module, or a package around it, is in the contract (`*` stands for one name)."""
    parts = module.split(".")
    heads = [".".join(parts[: end + 1]) for end in range(len(parts))]
    return any(
        re.fullmatch(re.escape(pattern).replace(r"\*", r"[^.]+"), head) for pattern in patterns for head in heads
    )


def test_every_module_that_calls_itself_pure_is_in_the_contract() -> None:
    modules = claiming()
    assert len(modules) > 60, "the pattern no longer finds the claims"
    assert sorted(module for module in modules if not covered(module, listed())) == []


def test_the_contract_lists_no_module_that_does_not_exist() -> None:
    for pattern in listed():
        if "*" not in pattern:
            path = ROOT / pattern.replace(".", "/")
            assert path.is_dir() or path.with_suffix(".py").is_file(), pattern
