"""Selects the files of a source to download. Pure."""

from __future__ import annotations

import fnmatch
from collections.abc import Sequence

from disk.header import SAFETENSORS
from disk.preflight import CONFIG, PICKLE
from disk.sources.base import Listing, RemoteFile

ADAPTER_FILES = (
    CONFIG,
    SAFETENSORS,
    PICKLE,
    "added_tokens.json",
    "chat_template.jinja",
    "merges.txt",
    "special_tokens_map.json",
    "tokenizer.json",
    "tokenizer.model",
    "tokenizer_config.json",
    "vocab.json",
    "vocab.txt",
)


def select_adapter_files(listing: Listing, include: Sequence[str], exclude: Sequence[str]) -> Listing:
    """Keep what serving an adapter needs: its two files, and additions to the tokenizer.

    `include` replaces the additions, and `exclude` removes files. Both keep configuration and weights, which every
    adapter needs. A `.bin` file next to a safetensors file is left out: it has the same content.
    """
    names = {file.name for file in listing.files}
    wanted = set(ADAPTER_FILES) if not include else {name for name in names if _matches(name, include)}
    wanted = {name for name in wanted if not _matches(name, exclude)}
    wanted |= {CONFIG, SAFETENSORS}
    if SAFETENSORS in names:
        wanted.discard(PICKLE)
    else:
        wanted.add(PICKLE)
    return _keep(listing, [file for file in listing.files if file.name in wanted])


def select_model_files(listing: Listing, include: Sequence[str], exclude: Sequence[str]) -> Listing:
    """Keep the files of a base model: without a filter, all outside of folders (docs/contract.md, Model artifacts)."""
    files = listing.files
    if include:
        files = tuple(file for file in files if _matches(file.name, include))
    elif not exclude:
        files = tuple(file for file in files if "/" not in file.name)
    return _keep(listing, [file for file in files if not _matches(file.name, exclude)])


def _matches(name: str, patterns: Sequence[str]) -> bool:
    """Return whether any glob matches; `*` matches slashes too, as in the allow and ignore patterns of the hub."""
    return any(fnmatch.fnmatchcase(name, f"{pattern}*" if pattern.endswith("/") else pattern) for pattern in patterns)


def _keep(listing: Listing, files: Sequence[RemoteFile]) -> Listing:
    return Listing(listing.identity, listing.revision, tuple(files))
