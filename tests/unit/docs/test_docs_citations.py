"""Comments and docstrings cite headings of docs/contract.md that exist, and no document outside of the repository."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.unit.docs.pages import DOCS, ROOT, name_of

CONTRACT = DOCS / "contract.md"
SUFFIXES = frozenset({".py", ".md", ".yaml", ".yml", ".toml", ".go", ".sh"})
NOT_SOURCES = frozenset({"build", "dist", "node_modules", "__pycache__"})

# A citation is the page and one or more headings, with commas between them, up to the end of the clause. Links to an
# anchor are the concern of test_docs_links.py.
CITATION = re.compile(r"docs/contract\.md(?!#)(?P<headings>, [^.;:()\"`]+)?")
NEW_LINE = re.compile(r"\s*\n[ \t]*(?:#[ \t]*)?")
OUTSIDE = {
    "a section by its number": re.compile(r"\bcontract, sections? \d", re.IGNORECASE),
    "another document": re.compile(
        r"\b[Ii]nterface facts\b|\b(?:INTERFACE|CONTRACT|KSERVE|FIELD-REPORTS)\b(?:\.md|, )"
    ),
    "the id of a field report": re.compile(r"\b[Ff]ield reports? [LW]\d\d|\"\"\"(?:[LW]\d\d[a-z]?(?:, )?)+:"),
}


def _headings() -> frozenset[str]:
    text = CONTRACT.read_text(encoding="utf-8").partition("\n## Planned\n")[0]
    return frozenset(re.findall(r"^#{2,3} (.+)$", text, re.MULTILINE))


@cache
def _sources() -> tuple[Path, ...]:
    rooms = [path for path in ROOT.iterdir() if path.is_dir() and not path.name.startswith(".")]
    found = [path for path in ROOT.iterdir() if path.is_file() and path.name in ("Makefile", "Dockerfile")]
    found += [path for path in ROOT.iterdir() if path.suffix in SUFFIXES]
    for room in rooms:
        if room.name not in NOT_SOURCES:
            found += [path for path in room.rglob("*") if path.suffix in SUFFIXES and path.is_file()]
    other = {Path(__file__).resolve(), CONTRACT}
    return tuple(sorted(path for path in found if path not in other and NOT_SOURCES.isdisjoint(path.parts)))


def _text(path: Path) -> str:
    return NEW_LINE.sub(" ", path.read_text(encoding="utf-8", errors="replace"))


def unknown_citations(text: str, headings: frozenset[str]) -> Iterator[str]:
    """Yield each citation of the page that names no heading, or one that does not exist."""
    for match in CITATION.finditer(text):
        named = [heading.strip() for heading in (match["headings"] or "").split(", ")[1:]]
        if not named or not headings.issuperset(named):
            yield match[0]


CASES = {
    "one heading": ("Pure; docs/contract.md, Rank ceiling.", []),
    "in brackets": ("the ceiling (docs/contract.md, Rank ceiling), and more", []),
    "several": ("Source: docs/contract.md, Staging, Rank ceiling; what PEFT writes.", []),
    "no heading": ("see docs/contract.md.", ["docs/contract.md"]),
    "another heading": ("docs/contract.md, Rank floor.", ["docs/contract.md, Rank floor"]),
    "one of two": ("docs/contract.md, Staging, Rank floor.", ["docs/contract.md, Staging, Rank floor"]),
}


@pytest.mark.parametrize(("text", "wanted"), CASES.values(), ids=CASES)
def test_a_citation_is_read(text: str, wanted: list[str]) -> None:
    assert list(unknown_citations(text, frozenset({"Rank ceiling", "Staging"}))) == wanted


def test_headings_can_be_cited() -> None:
    text = CONTRACT.read_text(encoding="utf-8")
    titles = re.findall(r"^#{2,3} (.+)$", text, re.MULTILINE)
    assert len(titles) == len(set(titles)), "two headings with one name"
    assert not [title for title in titles if not re.fullmatch(r"[A-Za-z0-9 -]+", title)]


def test_each_cited_heading_exists() -> None:
    headings = _headings()
    unknown = {name_of(path): found for path in _sources() if (found := list(unknown_citations(_text(path), headings)))}
    assert not unknown, "cite as `docs/contract.md, HEADING` (several with commas), and end the clause after it"


def test_the_pages_are_cited() -> None:
    """The search finds citations."""
    assert sum(len(CITATION.findall(_text(path))) for path in _sources()) > 50


@pytest.mark.parametrize("what", OUTSIDE)
def test_nothing_outside_of_the_repository_is_cited(what: str) -> None:
    found = {name_of(path): match[0] for path in _sources() if (match := OUTSIDE[what].search(_text(path)))}
    assert not found, "cite a heading of docs/contract.md, or give the reason in place"
