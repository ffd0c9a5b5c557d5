"""Finds and reads the files of `lint`: its shell. It only reads."""

from __future__ import annotations

import fnmatch
import os
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from api import view
from api.reasons import Reason
from cli.lint.document import Document, Position, Problem, parse

SUFFIXES = frozenset({".yaml", ".yml", ".json"})
_OURS = re.compile(rb"aim\.eai\.amd|\bAIM[A-Z][a-z]")
_WIDE = (b"\xff\xfe", b"\xfe\xff")  # byte order marks of UTF-16: such a file is reported, whatever it holds
_CHART = "Chart.yaml"
_KUSTOMIZATIONS = frozenset({"kustomization.yaml", "kustomization.yml", "Kustomization"})
_PATCH_KEYS = ("patches", "patchesStrategicMerge", "patchesJson6902")
STDIN = "-"


class UnreadableError(Exception):
    """A given path cannot be read; the text says which and why."""


def find(paths: Sequence[str], exclude: Sequence[str] = (), notes: list[str] | None = None) -> list[str]:
    """Return the files of the paths, those below directories sorted; `-` is standard input.

    Hidden directories and links to directories are not entered. The templates of a Helm chart (not yet YAML) and the
    patches that a kustomization names (parts of objects) are skipped, and `notes` lists them. `exclude` are globs over
    a file's path or name.
    Raises: UnreadableError.
    """
    found: dict[str, None] = {}
    for path in paths:
        if path == STDIN or not os.path.isdir(path):
            if path != STDIN and not os.path.exists(path):
                raise UnreadableError(f"{path}: no such file or directory")
            found[path] = None
            continue
        for file in _manifests(path, notes if notes is not None else []):
            if not any(
                fnmatch.fnmatch(file, glob) or fnmatch.fnmatch(os.path.basename(file), glob) for glob in exclude
            ):
                found[file] = None
    return list(found)


def _manifests(folder: str, notes: list[str]) -> Iterator[str]:
    files = list(_below(folder, notes))
    patches: set[str] = set()
    for file in files:
        if os.path.basename(file) in _KUSTOMIZATIONS and (named := _patches(file)):
            place = os.path.dirname(file) or "."
            render = f"kustomize build {place} | aim-adapters lint -"
            notes.append(f"note: the patches of {file} were skipped; to check them, run {render}")
            patches |= named
    yield from (file for file in files if file not in patches)


def _patches(file: str) -> set[str]:
    """Return the patch files of a kustomization, none if it cannot be read."""
    try:
        documents, _ = parse(Path(file).read_text("utf-8-sig"))
    except (OSError, UnicodeDecodeError):
        return set()
    named: set[str] = set()
    for document in documents:
        for entry in (entry for key in _PATCH_KEYS for entry in view.items(document.value, key)):
            path = entry if isinstance(entry, str) else view.text(entry, "path")
            if path and "\n" not in path:
                named.add(os.path.normpath(os.path.join(os.path.dirname(file), path)))
    return named


def _below(folder: str, notes: list[str]) -> Iterator[str]:
    def fail(error: OSError) -> None:
        raise UnreadableError(f"{error.filename}: {error.strerror}")

    for place, folders, names in os.walk(folder, onerror=fail):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        if _CHART in names and "templates" in folders:
            folders.remove("templates")
            render = f"helm template {place} | aim-adapters lint -"
            notes.append(f"note: {os.path.join(place, 'templates')} was skipped; to check it, run {render}")
        for name in sorted(names):
            if os.path.splitext(name)[1].lower() in SUFFIXES:
                yield os.path.normpath(os.path.join(place, name))


def read(file: str) -> tuple[str, list[Document], list[Problem]]:
    """Return the file's name for people, its documents and problems. Raises: UnreadableError.

    A file without the AIM API group and without an AIM kind (values, a workflow, data) is not parsed, whatever its
    syntax. A kustomization is not parsed either: its targets may name AIM kinds. Standard input is always parsed.
    """
    try:
        raw = sys.stdin.buffer.read() if file == STDIN else Path(file).read_bytes()
    except OSError as error:
        raise UnreadableError(f"{file}: {error.strerror}") from error
    shown = "stdin" if file == STDIN else file
    if file != STDIN and not _OURS.search(raw) and not raw.startswith(_WIDE):
        return shown, [], []
    if os.path.basename(file) in _KUSTOMIZATIONS:
        return shown, [], []
    try:
        words = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw[: error.start].count(b"\n") + 1
        return shown, [], [Problem(Reason.TEXT_NOT_UTF8, "the text is not UTF-8", Position(line, 1))]
    documents, problems = parse(words, is_json=file.lower().endswith(".json") or raw[:1] in (b"{", b"["))
    return shown, documents, problems
