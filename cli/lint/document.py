"""YAML documents with the place of every field. Pure: text in, documents and problems out.

Values are read as Kubernetes reads YAML (through JSON): timestamps stay strings and keys are strings. A repeated key is
an error; the last one does not win.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import yaml
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from api.reasons import Reason

try:
    from yaml import CSafeLoader as AnyLoader
except ImportError:  # PyYAML without libyaml: the same marks, ten times slower
    from yaml import SafeLoader as AnyLoader  # type: ignore[assignment]

MOST_NODES = 500_000  # of one document with its aliases expanded: far more than etcd can store
MOST_DEPTH = 200

_DOCUMENT = re.compile(r"^---(?=\s|$)", re.MULTILINE)
_DIRECTIVES = re.compile(r"(?:\s*(?:[%#].*)?(?:\n|$))*")
_ORIGIN = re.compile(r"^# Source: (\S+)", re.MULTILINE)  # written by `helm template`
_INT = re.compile(
    r"^(?=[-+0-9])[-+]?_*(?:0_*[xX]_*[0-9a-fA-F][0-9a-fA-F_]*|0_*[bB]_*[01][01_]*|0_*(?:[oO]_*[0-7])?[0-7_]*|[1-9][0-9_]*)$"
)
_FLOAT = re.compile(r"^[-+]?(?:\.[0-9][0-9_]*|[0-9][0-9_]*(?:\.[0-9_]*)?)(?:[eE][-+]?[0-9_]+)?$")
_NOT_FINITE = re.compile(r"^(?:[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))$")
_PATH_PART = re.compile(r"\[([^\]]*)\]|([^.\[\]]+)")
_TEMPLATE = "; render a template first, for example `helm template … | aim-adapters lint -`"
_TAG = "tag:yaml.org,2002:"
_WORDS = "y Y yes Yes YES on On ON true True TRUE n N no No NO off Off OFF false False FALSE"


class Loader(AnyLoader):
    """Reads plain words as kubectl does: `y` is a boolean, 1e3 and 08 are numbers."""


Loader.yaml_implicit_resolvers = {}  # PyYAML's resolvers of YAML 1.1 differ from kubectl's


for _name, _pattern, _first in (
    ("bool", re.compile(f"^(?:{'|'.join(_WORDS.split())})$"), "yYnNtTfFoO"),
    ("null", re.compile(r"^(?:~|null|Null|NULL|)$"), ["~", "n", "N", ""]),
    ("int", _INT, "-+0123456789"),
    ("float", _FLOAT, "-+.0123456789"),
    ("float", _NOT_FINITE, "-+."),
    ("merge", re.compile(r"^<<$"), "<"),
):
    Loader.add_implicit_resolver(f"{_TAG}{_name}", _pattern, list(_first))


@dataclass(frozen=True, slots=True, order=True)
class Position:
    """A place in a file; line and column count from 1."""

    line: int = 1
    column: int = 1


@dataclass(frozen=True, slots=True)
class Problem:
    """Why a text, or a part of it, cannot be read."""

    reason: Reason
    detail: str
    position: Position
    path: str = ""


@dataclass(frozen=True, slots=True)
class Document:
    """One object of a file: its value, and where its fields are. `origin`: the template that helm names, if any."""

    value: Any
    node: Node | None
    offset: int = 0  # lines before the part of the text that the node's marks count from
    origin: str = ""
    problems: tuple[Problem, ...] = ()

    def locate(self, path: str) -> Position:
        """Return where a field is, such as `spec.adapters[1].name`; else the closest existing parent."""
        node, place = self.node, self._position(self.node)
        for part in split_path(path):
            found = _child(node, part)
            if found is None:
                break
            mark, node = found
            place = self._position(mark)
        return place

    def raw(self, path: str) -> str | None:
        """Return a scalar as it is written, or None for anything else."""
        node = self.node
        for part in split_path(path):
            found = _child(node, part)
            if found is None:
                return None
            node = found[1]
        return str(node.value) if isinstance(node, ScalarNode) else None

    def _position(self, node: Node | None) -> Position:
        if node is None or node.start_mark is None:
            return Position(self.offset + 1, 1)
        return Position(self.offset + node.start_mark.line + 1, node.start_mark.column + 1)


def split_path(path: str) -> list[str | int]:
    """Split a field path as kubectl prints it into names and indexes."""
    parts: list[str | int] = []
    for bracket, name in _PATH_PART.findall(path):
        parts.append(name if name else int(bracket) if bracket.isdecimal() else bracket)
    return parts


def _child(node: Node | None, part: str | int) -> tuple[Node, Node] | None:
    """Return the node where a member begins, and its value."""
    if isinstance(node, MappingNode):
        for key, value in node.value:
            if isinstance(key, ScalarNode) and key.value == str(part):
                return key, value
    if isinstance(node, SequenceNode) and isinstance(part, int) and part < len(node.value):
        return node.value[part], node.value[part]
    return None


def parse(text: str, *, is_json: bool = False) -> tuple[list[Document], list[Problem]]:
    """Return the objects of a text, and what could not be read. Lists are split into their items. Never raises.

    A broken document does not affect the others. Empty documents are skipped.
    """
    documents: list[Document] = []
    problems: list[Problem] = []
    for part, offset in _parts(text):
        try:
            documents += _read_part(part, offset)
        except _UnreadableError as error:
            problems.append(error.problem)
        except RecursionError:
            problems.append(Problem(Reason.YAML_TOO_LARGE, "it is nested too deeply", Position(offset + 1, 1)))
        except yaml.YAMLError as error:
            if is_json and (found := _read_json(text)) is not None:
                documents += found
                break
            problems.append(_syntax(error, part, offset))
    return [entry for document in documents for entry in _unpack(document)], problems


def _parts(text: str) -> Iterator[tuple[str, int]]:
    """Split at `---`, so that an error in one document does not hide the others. Yields parts with their first line.

    Directives (`%YAML 1.1`) before a `---` are skipped.
    """
    starts = [match.start() for match in _DOCUMENT.finditer(text)]
    edges = [0, *(start for start in starts if start), len(text)]
    line = 0
    for begin, end in pairwise(edges):
        part = text[begin:end]
        if part.strip() not in ("", "---") and not _DIRECTIVES.fullmatch(part):
            yield part, line
        line += part.count("\n")


class _UnreadableError(Exception):
    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.detail)
        self.problem = problem


def _read_part(part: str, offset: int) -> list[Document]:
    found = []
    origin = match.group(1) if (match := _ORIGIN.search(part[:400])) else ""
    loader = Loader(part)
    try:
        while loader.check_node():
            node: Node = loader.get_node()  # type: ignore[assignment] # check_node said that there is one
            reader = _Reader(offset)
            value = reader.read(node, "", 0)
            if value is not None:
                found.append(Document(value, node, offset, origin, tuple(reader.problems)))
    finally:
        loader.dispose()
    return found


def _read_json(text: str) -> list[Document] | None:
    """Read JSON that is not YAML: objects one after the other (as `jq` prints them), or surrogate pairs.

    Fields of an object that is also valid YAML have places. None: the text is not JSON either.
    """
    found: list[Document] = []
    decoder = json.JSONDecoder()
    try:
        end = lines = 0
        while (place := _after_blanks(text, end)) < len(text):
            lines += text.count("\n", end, place)
            value, end = decoder.raw_decode(text, place)
            found += _placed_json(text[place:end], lines) or [Document(value, None, lines)]
            lines += text.count("\n", place, end)
    except (ValueError, RecursionError):
        return None
    return found


def _placed_json(part: str, offset: int) -> list[Document]:
    try:
        return _read_part(part, offset)
    except (yaml.YAMLError, _UnreadableError, RecursionError):
        return []


def _after_blanks(text: str, place: int) -> int:
    while place < len(text) and text[place] in " \t\r\n":
        place += 1
    return place


def _syntax(error: yaml.YAMLError, part: str, offset: int) -> Problem:
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    if mark is not None:
        words = " ".join(word for word in (getattr(error, "context", None), getattr(error, "problem", None)) if word)
        line = part.split("\n")[mark.line] if mark.line < part.count("\n") + 1 else ""
        if "{{" in line or "{%" in line:
            words += "; render a template first, for example `helm template … | aim-adapters lint -`"
        elif "\t" in line[: mark.column + 1]:
            words += "; indent YAML with spaces, not tabs"
        return Problem(Reason.YAML_INVALID, words, Position(offset + mark.line + 1, mark.column + 1))
    place = getattr(error, "position", None)
    if isinstance(place, int):
        before = part[:place]
        position = Position(offset + before.count("\n") + 1, place - (before.rfind("\n") + 1) + 1)
        return Problem(Reason.YAML_INVALID, "a control character that YAML does not allow", position)
    return Problem(Reason.YAML_INVALID, str(error).splitlines()[0], Position(offset + 1, 1))


def _unpack(document: Document) -> Iterator[Document]:
    """Split a `List` into its objects, as kubectl does, and the lists in it."""
    value = document.value
    is_list = isinstance(value, dict) and str(value.get("kind", "")).endswith("List") and "items" in value
    if not is_list or not isinstance(value["items"], list):
        yield document
        return
    found = _child(document.node, "items")
    nodes = found[1].value if found is not None and isinstance(found[1], SequenceNode) else []
    for index, item in enumerate(value["items"]):
        prefix = f"items[{index}]"
        mine = tuple(
            Problem(one.reason, one.detail, one.position, one.path.removeprefix(f"{prefix}."))
            for one in document.problems
            if one.path == prefix or one.path.startswith(f"{prefix}.")
        )
        node = nodes[index] if index < len(nodes) else None
        if isinstance(item, dict) and value["kind"] != "List":  # an AIMServiceList sets the kind of its items
            said = {"apiVersion": value.get("apiVersion"), "kind": value["kind"].removesuffix("List")} | item
        else:
            said = item
        yield from _unpack(Document(said, node, document.offset, document.origin, mine))


@dataclass(slots=True)
class _Reader:
    """Converts nodes to plain values; collects repeated keys."""

    offset: int
    problems: list[Problem] = field(default_factory=list)
    _nodes: int = 0
    _open: set[int] = field(default_factory=set)

    def read(self, node: Node, path: str, depth: int) -> Any:
        self._nodes += 1
        if self._nodes > MOST_NODES or depth > MOST_DEPTH:
            raise _UnreadableError(
                Problem(Reason.YAML_TOO_LARGE, "it is too large or nested too deeply", self._place(node))
            )
        if isinstance(node, ScalarNode):
            if node.tag == f"{_TAG}float" and _NOT_FINITE.match(node.value):
                detail = (
                    f"{node.value} is not a valid JSON value, so kubectl cannot send it; quote it if a string is meant"
                )
                self.problems.append(Problem(Reason.YAML_INVALID, detail, self._place(node), path))
            return read_scalar(node.tag, node.value)
        if id(node) in self._open:
            raise _UnreadableError(
                Problem(Reason.YAML_INVALID, "an alias refers to a node that contains it", self._place(node))
            )
        self._open.add(id(node))
        try:
            if isinstance(node, SequenceNode):
                return [self.read(item, f"{path}[{index}]", depth + 1) for index, item in enumerate(node.value)]
            return self._mapping(node, path, depth)
        finally:
            self._open.discard(id(node))

    def _mapping(self, node: Node, path: str, depth: int) -> dict[str, Any]:
        merged: dict[str, Any] = {}
        own: dict[str, Any] = {}
        places: dict[str, Node] = {}
        for key, value in node.value:
            if key.tag == f"{_TAG}merge":
                self._merge(merged, value, path, depth)
                continue
            if not isinstance(key, ScalarNode):
                words = "a key must be a plain word" + (_TEMPLATE if isinstance(key, MappingNode) else "")  # {{ … }}
                raise _UnreadableError(Problem(Reason.YAML_INVALID, words, self._place(key)))
            name = str(key.value)
            member = f"{path}.{name}" if path else name
            if name in places:
                first = self._place(places[name]).line
                detail = f'the key "{name}" is already set in line {first}; only one of them would count'
                self.problems.append(Problem(Reason.KEY_DUPLICATE, detail, self._place(key), member))
            places[name] = key
            own[name] = self.read(value, member, depth + 1)
        return merged | own

    def _merge(self, merged: dict[str, Any], node: Node, path: str, depth: int) -> None:
        """Merge `<<: *anchor`: the mapping's own keys win over merged ones, and earlier merges over later ones."""
        for source in node.value if isinstance(node, SequenceNode) else [node]:
            value = self.read(source, path, depth + 1)
            if isinstance(value, dict):
                for name, member in value.items():
                    merged.setdefault(name, member)

    def _place(self, node: Node) -> Position:
        mark = node.start_mark
        return Position(self.offset + mark.line + 1, mark.column + 1) if mark else Position(self.offset + 1, 1)


_TRUE = frozenset({"yes", "true", "on", "y"})
_LEAST_WITH_EXPONENT = 1e21  # a smaller whole float is written to JSON without an exponent, and read as an integer
_NUMBER_BASES = (("0x", 16), ("0b", 2), ("0o", 8))


def read_scalar(tag: str, raw: str) -> Any:
    """Return a scalar as Kubernetes' YAML reader converts it to JSON.

    Source: YAML 1.1 types as go-yaml reads them; base-60 numbers and timestamps are strings there, and a leading zero
    before an 8 or 9 makes no octal number.
    """
    kind = tag.removeprefix(_TAG)
    if kind == "null":
        return None
    if kind == "bool":
        return raw.lower() in _TRUE
    if kind == "int" and (integer := _integer(raw)) is not None:
        return integer
    if kind == "float":
        try:
            number = float(raw.replace("_", ""))
        except ValueError:
            return raw
        return int(number) if number.is_integer() and abs(number) < _LEAST_WITH_EXPONENT else number
    return raw


def _integer(raw: str) -> int | None:
    if not _INT.match(raw):
        return None
    digits = raw.replace("_", "").lower()
    sign = -1 if digits.startswith("-") else 1
    digits = digits.lstrip("+-")
    for prefix, base in _NUMBER_BASES:
        if digits.startswith(prefix):
            return sign * int(digits[2:], base)
    if len(digits) > 1 and digits.startswith("0"):
        return sign * int(digits, 8)
    return sign * int(digits) if len(digits) < 400 else None
