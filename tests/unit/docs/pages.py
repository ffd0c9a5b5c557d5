"""Reads the pages: code blocks with their marks, links, anchors, commands.

A mark is a comment above a block. AIM manifests need no mark: a test judges them. `test: refused REASON` and
`test: warned REASON` expect a refusal or a warning. `test: values` marks values of the chart. `test: yaml` marks other
YAML. The cluster test runs a block with `test: run`, and expects `test: run fails` to fail.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
DOCS = ROOT / "docs"
OUTSIDE = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md", "examples/README.md", "chart/README.md")

_FENCE = re.compile(
    r"(?:^[ ]*<!-- test: (?P<mark>[^\n]*?) -->\n)?"
    r"^(?P<indent>[ ]*)(?P<ticks>`{3,})(?P<language>\w*)(?:[ ]+title=\"(?P<title>[^\"]+)\")?[^\n]*\n"
    r"(?P<text>.*?)^[ ]*(?P=ticks)[ ]*$",
    re.MULTILINE | re.DOTALL,
)
_LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")
_IMAGE = re.compile(r"!\[[^\]]*\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#{1,6} +(.*)$", re.MULTILINE)
_HERE = re.compile(r"<<-?\s*['\"]?(\w+)")
SHELL = frozenset({"sh", "bash", "shell", "console"})


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block. `language` may be empty; `title` is the name of a file that it shows."""

    page: str  # relative to the repository
    line: int
    language: str
    title: str
    mark: str
    text: str

    @property
    def where(self) -> str:
        """Place for messages."""
        return f"{self.page}:{self.line}"


@cache
def all_pages() -> tuple[Path, ...]:
    """Return every page: those in docs/, and those outside of it that are on the site."""
    outside = [ROOT / name for name in OUTSIDE if (ROOT / name).exists()]
    return (*sorted(DOCS.rglob("*.md")), *outside)


def name_of(page: Path) -> str:
    """Return a page's path in the repository."""
    return page.relative_to(ROOT).as_posix()


@cache
def blocks(page: Path) -> tuple[Block, ...]:
    """Return the blocks of a page, in order."""
    text = page.read_text(encoding="utf-8")
    found = []
    for match in _FENCE.finditer(text):
        indent = len(match["indent"])
        body = "".join(
            line[min(indent, len(line) - len(line.lstrip(" "))) :] for line in match["text"].splitlines(True)
        )
        line = text.count("\n", 0, match.start("ticks")) + 1
        found.append(
            Block(name_of(page), line, match["language"], match["title"] or "", (match["mark"] or "").strip(), body)
        )
    return tuple(found)


def all_blocks(*languages: str) -> Iterator[Block]:
    """Yield the blocks in some languages of all pages."""
    for page in all_pages():
        yield from (block for block in blocks(page) if block.language in languages)


def prose(page: Path) -> str:
    """Return a page's text without its blocks."""
    return _FENCE.sub("", page.read_text(encoding="utf-8"))


def links(page: Path) -> list[str]:
    """Return the targets of all links of a page, except those in code."""
    text = re.sub(r"`[^`\n]*`", "`code`", prose(page))
    return _LINK.findall(text)


def images(page: Path) -> list[str]:
    """Return the targets of all pictures of a page."""
    return _IMAGE.findall(prose(page))


@cache
def anchors(page: Path) -> frozenset[str]:
    """Return the anchors of a page's headings, as GitHub and the site derive them."""
    found: set[str] = set()
    for title in _HEADING.findall(prose(page)):
        words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", title).replace("`", "").lower()
        slug = re.sub(r"[^\w\- ]", "", words).strip().replace(" ", "-")
        found |= {slug, re.sub(r"-+", "-", slug)}
    return frozenset(found)


# -- commands -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Command:
    """One simple command of a shell block: its words, without redirections."""

    where: str
    words: tuple[str, ...]


def shell_lines(block: Block) -> Iterator[str]:
    """Yield the command lines of a block, joined and without comments; in `console`, those after `$ `."""
    text = block.text.replace("\\\n", " ")
    end = ""  # of a here-document
    for line in text.splitlines():
        stripped = line.strip()
        if end:
            end = "" if stripped == end else end
            continue
        end = found[1] if (found := _HERE.search(stripped)) else ""
        if block.language == "console":
            if stripped.startswith("$ "):
                yield stripped[2:]
        elif stripped and not stripped.startswith("#"):
            yield stripped


def commands(block: Block) -> Iterator[Command]:
    """Yield the simple commands of a shell block, including those inside `$(…)`."""
    for line in shell_lines(block):
        yield from _split(line, block.where)


_OPERATORS = frozenset({"|", "||", "&&", ";", "&"})


def _split(line: str, where: str) -> Iterator[Command]:
    for inner in _substitutions(line):
        yield from _split(inner, where)
    lexer = shlex.shlex(_without_substitutions(line), posix=True, punctuation_chars="|&;<>")
    lexer.whitespace_split = True
    lexer.commenters = "#"
    words: list[str] = []
    skip = False
    for token in lexer:
        if token in _OPERATORS:
            yield from _command(words, where)
            words = []
        elif token and set(token) <= set("<>&"):
            skip = True
        elif skip:
            skip = False
        else:
            words.append(token)
    yield from _command(words, where)


def _command(words: list[str], where: str) -> Iterator[Command]:
    while words and re.fullmatch(r"[A-Za-z_]\w*=.*", words[0]):
        words = words[1:]
    if words:
        yield Command(where, tuple(words))


def _substitutions(line: str) -> list[str]:
    return [line[start + 2 : end] for start, end in _spans(line)]


def _without_substitutions(line: str) -> str:
    for start, end in reversed(_spans(line)):
        line = f"{line[:start]}SUBSTITUTED{line[end + 1 :]}"
    return line


def _spans(line: str) -> list[tuple[int, int]]:
    """Return the outermost `$(…)`: index of `$` and of the closing bracket."""
    found, depth, start, position = [], 0, 0, 0
    while position < len(line):
        if line.startswith("$(", position):
            start = position if depth == 0 else start
            depth += 1
            position += 1
        elif depth and line[position] == "(":
            depth += 1
        elif depth and line[position] == ")":
            depth -= 1
            if depth == 0:
                found.append((start, position))
        position += 1
    return found
