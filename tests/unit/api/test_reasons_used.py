"""Reasons are used as members of the enum: none is spelled out as text, and none is documented without use."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from api.models.service import AdapterStatus
from api.reasons import EXPLANATIONS, Reason

ROOT = Path(__file__).parents[3]
ROOMS = ("api", "rules", "kube", "webhooks", "reconcile", "disk", "certs", "console", "app", "cli", "tools")

ALSO_STATES = frozenset(
    {
        Reason.CONFIG_VALID,  # the type of the condition
        Reason.INFERENCE_SERVICE_READY,  # likewise
        Reason.STOPPED,  # the type of a condition of KServe
        Reason.DOWNLOADING,  # a state of adapters
        Reason.PENDING,  # a state of adapters, services, artifacts, claims
        Reason.STARTING,  # a state of services
        Reason.INTERNAL_ERROR,  # the reason of a Kubernetes Status, in an answer with code 500
    }
)
"""Words that are something else as well, so that they are written as text there."""

OF_OTHERS = frozenset(
    {
        Reason.INVALID_IMAGE_NAME,
        Reason.CREATE_CONTAINER_CONFIG_ERROR,
        Reason.CREATE_CONTAINER_ERROR,
        Reason.RUN_CONTAINER_ERROR,
        Reason.PROGRESS_DEADLINE_EXCEEDED,
        Reason.FAILED_CREATE,
    }
)
"""Words of Kubernetes and KServe that come in as they are."""

_WORD = re.compile(r"""["']([A-Z][A-Za-z0-9]+)(?=: |["'])""")
_USE = re.compile(r"\bReason\.([A-Z0-9_]+)")
_SPEAK = {"JobResult": None, "Note": None, "broken": 1}  # calls whose reason is a str → its place among the arguments


@cache
def sources() -> dict[str, str]:
    """The text of every module but the table itself."""
    found = {
        str(path.relative_to(ROOT)): path.read_text(encoding="utf-8")
        for room in ROOMS
        for path in sorted((ROOT / room).rglob("*.py"))
    }
    del found["api/reasons.py"]
    return found


def spelled_out(source: str) -> Iterator[tuple[str, int]]:
    """Yield with their lines the words that are a whole text of a module, or its head before a colon."""
    for number, line in enumerate(source.splitlines(), 1):
        for word in _WORD.findall(line):
            yield word, number


def test_no_reason_is_spelled_out() -> None:
    wrong = [
        f"{path}:{line}: write Reason.{Reason(word).name}"
        for path, source in sources().items()
        for word, line in spelled_out(source)
        if word in EXPLANATIONS.keys() - ALSO_STATES
    ]
    assert not wrong


def test_words_that_are_states_too_are_still_written_as_such() -> None:
    assert {word for source in sources().values() for word, _ in spelled_out(source)} >= ALSO_STATES


def test_no_text_is_given_as_a_reason() -> None:
    """Of the calls that take any text; for all others mypy demands a member."""
    wrong = []
    for path, source in sources().items():
        for node in ast.walk(ast.parse(source)) if any(f"{name}(" in source for name in _SPEAK) else ():
            if not isinstance(node, ast.Call) or getattr(node.func, "id", "") not in _SPEAK:
                continue
            place = _SPEAK[getattr(node.func, "id", "")]
            given = [keyword.value for keyword in node.keywords if keyword.arg == "reason"]
            given += node.args[place : place + 1] if place is not None else []
            wrong += [f"{path}:{node.lineno}" for reason in given if isinstance(reason, ast.Constant)]
    assert not wrong


def test_each_reason_is_used() -> None:
    used = {name for source in sources().values() for name in _USE.findall(source)}
    unused = {reason for reason in Reason if reason.name not in used} - OF_OTHERS
    assert unused == {Reason(f"Adapter{state}") for state in states()}


def states() -> set[str]:
    """The states of adapters: the event of a change is called after the new one."""
    schema = AdapterStatus.model_json_schema(by_alias=True)["properties"]["state"]
    found: set[str] = set(next(one["enum"] for one in schema["anyOf"] if "enum" in one))
    return found


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ('x = "DiskFull"', "DiskFull"),
        ('x = f"DiskFull: {y}"', "DiskFull"),
        ('"""A word: DiskFull."""', None),
        ('x = "DiskFuller"', "DiskFuller"),
    ],
)
def test_texts_are_found(text: str, word: str | None) -> None:
    assert [found for found, _ in spelled_out(text)] == ([word] if word else [])
