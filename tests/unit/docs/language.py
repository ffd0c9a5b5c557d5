"""Finds words that plain technical English avoids, wherever a person reads: strings, comments, pages, test names.

`python -m tests.unit.docs.language [PLACE…]` prints what it finds, for example in `cli` or `docs/lint.md`.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]

# what to avoid (a space stands for any blanks, an upper-case word is not matched unless (?i) says so) → what to write
BANNED: dict[str, str] = {
    r"(?i)\b(tell|tells|told|telling)\b": "report, show, list, say; for two things: distinguish",
    r"(?i)\bmend(s|ed|ing)?\b": "fix",
    r"(?i)\banew\b": "again; for an object: re-create",
    r"(?i)\bby (itself|themselves)\b": "automatically; alone",
    r"(?i)\b(lie|lies|lay|lying) (in|on|at|under|below|beside|behind|there|outside|between|elsewhere)\b": "is, are",
    r"(?i)\bstands?\b(?!-in| in for| for\b| alone)": "is, are; for a state: report",
    r"(?i)\bodd(ly)?\b": "unusual, unexpected, invalid",
    r"(?<![\w/.`])worlds?\b(?![/.]\w|`)": "state, objects, cluster (World is the name of a type)",
    r"(?i)\bours\b": "aim-adapters', this project's",
    r"(?i)\b(no|some)body\b": "no one, another user, another program",
    r"(?i)\bwho(so)?ever\b": "users who, anyone who",
    r"(?i)\bso (long|many|often|short|shortly|few)\b": "this long, this many; as long as",
    r"(?i)(?<!there\s)\b(is|are) no (?!longer\b|more\b|less\b|different\b|better\b|one\b)": "is not a valid …",
    r"(?i)\b(is|are|was|were) said\b": "is reported",
    r"(?i)\b(is|are|was|were) going (?!to\b)": "is being deleted",
    r"(?i)\bgo(es)? on\b": "continues",
    r"(?i)\bin life\b": "in practice, in production",
    r"(?i)\bin sum\b": "in total",
    r"(?i)\bsurroundings\b": "environment",
    r"(?i)\bfor ever\b": "indefinitely, without end",
    r"(?i)\bin the place of\b": "instead of",
    r"(?i)\b(counts|comes|knows|needs|helps|matters|holds|means) not\b": "does not …",
    r"(?i)\bhinder(s|ed|ing)?\b": "prevent, block",
    r"(?i)\b(till|hence|whence|thence|lest|wherefore|thereof|whereof)\b": "until, so, from where, so that … not",
    r"(?i)\b(is|be|become) so(?= or |[,;.)])": "say what holds",
    r"(?i)\bsay (its |--[a-z]|-[a-zA-Z]\b|it with\b)": "pass, set, use",
}

# each folder is checked as one place; each Markdown page is a separate place
ROOMS = (
    *("api", "rules", "kube", "webhooks", "reconcile", "disk", "certs", "console", "app", "cli", "devcluster", "tools"),
    *("bench", "examples", "config", "chart", "tests/chart", "tests/cluster", "tests/console", "tests/unit"),
)
FILES = ("Makefile", "Dockerfile", "pyproject.toml", "mkdocs.yml", ".mkdocs/hooks.py")
PAGES = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md")
TEXTS = frozenset(
    {".yaml", ".yml", ".tpl", ".txt", ".json", ".js", ".css", ".html", ".go", ".toml", ".sh", ".svg", ".md"}
)

SKIPPED = {
    "devcluster/kserve/crd.yaml": "KServe's own text",
    "tests/unit/docs/language.py": "names the words",
    "tests/unit/docs/test_language.py": "names the words",
}
ALLOWED: tuple[tuple[str, str, str], ...] = (
    ("docs/decisions/README.md", "are told by arg", "the title of an older decision"),
    ("docs/decisions/README.md", "Memory lies on huge pages", "the title of an older decision"),
    ("mkdocs.yml", "0011-jobs-are-told-by-arguments.md", "the name of an older decision's file"),
    ("pyproject.toml", "shell | world", "the name of a module"),
    ("pyproject.toml", "registry | worlds", "the name of a module"),
    ("pyproject.toml", "world | environment", "the name of a module"),
    (
        "devcluster/certmanager/main.go",
        "limits by themselves",
        "any edit of the file makes everyone build the program again",
    ),
    ("pyproject.toml", "registry | worlds", "names of modules"),
    ("pyproject.toml", "world | environment", "names of modules"),
)  # (file, words with the word to avoid in them, reason)
OLD_DECISIONS = range(1, 17)  # pages of older decisions are not edited


@dataclass(frozen=True, slots=True)
class Piece:
    """A text that a person reads."""

    line: int  # where it begins
    text: str


@dataclass(frozen=True, slots=True)
class Found:
    """A word to avoid."""

    path: str  # in the repository
    line: int
    word: str
    around: str  # the surrounding words
    better: str

    def __str__(self) -> str:
        return f'{self.path}:{self.line}: "{self.word}" in "{self.around}": write {self.better}'


_PATTERNS = [(re.compile(pattern.replace(" ", r"\s+")), better) for pattern, better in BANNED.items()]


@cache
def places() -> dict[str, tuple[Path, ...]]:
    """Return the files of each place: rooms, folders of tests, pages."""
    found: dict[str, tuple[Path, ...]] = {}
    for room in ROOMS:
        for folder in sorted((ROOT / room).iterdir()) if room == "tests/unit" else [ROOT / room]:
            files = sorted(folder.rglob("*")) if folder.is_dir() else [folder]
            found[_name(folder)] = tuple(file for file in files if file.suffix in {".py", *TEXTS} and file.is_file())
    for file in (*FILES, *PAGES):
        found[file] = (ROOT / file,)
    for page in sorted((ROOT / "docs").rglob("*.md")):
        number = page.name[:4]
        if not (page.parent.name == "decisions" and number.isdecimal() and int(number) in OLD_DECISIONS):
            found[_name(page)] = (page,)
    return {
        name: kept
        for name, files in found.items()
        if (kept := tuple(file for file in files if file.exists() and _name(file) not in SKIPPED))
    }


def _name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def find(place: str) -> Iterator[Found]:
    """Yield the words to avoid in a place."""
    for file in places()[place]:
        for piece in pieces(file):
            yield from judge(_name(file), piece)


def allowed(found: Found) -> bool:
    """Return whether the words are on the list of exceptions."""
    return any(found.path == path and words in found.around for path, words, _ in ALLOWED)


def judge(path: str, piece: Piece) -> Iterator[Found]:
    """Yield the words to avoid in a text of a file."""
    for pattern, better in _PATTERNS:
        for match in pattern.finditer(piece.text):
            line = piece.line + piece.text.count("\n", 0, match.start())
            around = piece.text[max(0, match.start() - 40) : match.end() + 40]
            yield Found(path, line, " ".join(match[0].split()), " ".join(around.split()), better)


def pieces(file: Path) -> Iterable[Piece]:
    """Return the texts of a file: strings, comments and test names of Python, everything of other files."""
    text = file.read_text(encoding="utf-8")
    return _of_python(text) if file.suffix == ".py" else [Piece(1, text)]


def _of_python(text: str) -> Iterator[Piece]:
    tree = ast.parse(text)
    inside: set[int] = set()  # parts of f-strings, which are read as one text
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            inside |= {id(part) for part in ast.walk(node) if isinstance(part, ast.Constant)}
            parts = [part.value if isinstance(part, ast.Constant) else "{}" for part in node.values]
            yield Piece(node.lineno, "".join(str(part) for part in parts))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in inside:
            if " " in node.value:  # one word is a name for programs
                yield Piece(node.lineno, node.value)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test"):
            yield Piece(node.lineno, node.name.replace("_", " "))
    yield from _comments(text)


def _comments(text: str) -> Iterator[Piece]:
    """Yield comments; comments on consecutive lines are one text."""
    begin, last, lines = 0, 0, list[str]()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type != tokenize.COMMENT:
            continue
        line = token.start[0]
        if lines and line != last + 1:
            yield Piece(begin, "\n".join(lines))
            lines = []
        begin = begin if lines else line
        last = line
        lines.append(token.string.lstrip("# "))
    if lines:
        yield Piece(begin, "\n".join(lines))


def _asked(place: str, asked: list[str]) -> bool:
    return any(place == word or place.startswith(f"{word}/") for word in asked)


if __name__ == "__main__":
    asked = sys.argv[1:] or list(places())
    unknown = [word for word in asked if not any(_asked(place, [word]) for place in places())]
    if unknown:
        sys.exit(f"unknown places: {', '.join(unknown)}; known: {', '.join(places())}")
    shown = [found for place in places() if _asked(place, asked) for found in find(place) if not allowed(found)]
    for one in shown:
        print(one)  # noqa: T201 - a command's output
    sys.exit(1 if shown else 0)
