"""The one parser of source URIs: `hf://org/name[/subfolder][@revision]` and `s3://bucket/prefix/`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal


class SourceUriError(ValueError):
    """The URI cannot be a source; the message says what is wrong and shows the expected shape."""


_HF_SHAPE = "hf://org/name[/subfolder][@revision]"
_S3_SHAPE = "s3://bucket/prefix/"
_HF_PART = re.compile(r"^[A-Za-z0-9_][A-Za-z0-9._-]*$")
_BUCKET = re.compile(r"^[A-Za-z0-9][A-Za-z0-9._-]{0,254}$")  # what S3 clients take: stores differ in what they allow
_WHITE = re.compile(r"\s")


@dataclass(frozen=True, slots=True)
class HubSource:
    """A repository on a Hugging Face hub; `subfolder` without slashes at its ends, empty for the root."""

    org: str
    name: str
    subfolder: str = ""
    revision: str | None = None  # None: the hub's default branch
    scheme: Literal["hf"] = "hf"

    @property
    def repo(self) -> str:
        """`org/name`."""
        return f"{self.org}/{self.name}"

    @property
    def model_id(self) -> str:
        """The model id that this source implies, without subfolder and revision (docs/contract.md, Source URIs)."""
        return self.repo


@dataclass(frozen=True, slots=True)
class S3Source:
    """A prefix in a bucket; `prefix` ends in a slash unless it is empty (the whole bucket)."""

    bucket: str
    prefix: str = ""
    scheme: Literal["s3"] = "s3"


Source = HubSource | S3Source


def parse_source_uri(uri: str) -> Source:
    """Parse a source URI.

    Raises: SourceUriError, with the shape that was expected.
    Source: docs/contract.md, Source URIs.
    """
    scheme, separator, rest = uri.partition("://")
    if not separator or scheme not in ("hf", "s3"):
        raise SourceUriError(f"the scheme must be hf or s3: {_HF_SHAPE} or {_S3_SHAPE}")
    return _parse_hf(rest) if scheme == "hf" else _parse_s3(rest)


def source_model_id(uri: object) -> str | None:
    """Return the model id implied by an `hf://` URI, or None for anything else (total: never raises)."""
    if not isinstance(uri, str):
        return None
    return _known_model_id(uri) if len(uri) <= _LONGEST_REMEMBERED else _known_model_id.__wrapped__(uri)


_LONGEST_REMEMBERED = 256


@lru_cache(maxsize=2048)
def _known_model_id(uri: str) -> str | None:
    """Parse once: many services share few sources, and each review of one asks."""
    try:
        source = parse_source_uri(uri)
    except SourceUriError:
        return None
    return source.model_id if isinstance(source, HubSource) else None


def _parse_hf(rest: str) -> HubSource:
    if _WHITE.search(rest):
        raise SourceUriError(f"white space is not allowed: {_HF_SHAPE}")
    path, _, revision = rest.partition("@")
    if "@" in rest and not revision:
        raise SourceUriError(f"the revision after @ is empty: {_HF_SHAPE}")
    parts = path.rstrip("/").split("/")
    if len(parts) < 2 or not all(parts[:2]):
        raise SourceUriError(f"organisation and name are needed: {_HF_SHAPE}")
    org, name, *folders = parts
    for part in (org, name):
        if not _HF_PART.match(part):
            raise SourceUriError(f"{part!r} is no organisation or repository name: {_HF_SHAPE}")
    if not all(folders):
        raise SourceUriError(f"a folder without a name (two slashes in a row): {_HF_SHAPE}")
    if any(folder in (".", "..") for folder in folders):
        raise SourceUriError("'.' and '..' are not allowed in the subfolder")
    if revision and any(part in ("", ".", "..") for part in revision.split("/")):
        raise SourceUriError(f"{revision!r} is no branch, tag or commit: {_HF_SHAPE}")
    return HubSource(org, name, "/".join(folders), revision or None)


def _parse_s3(rest: str) -> S3Source:
    bucket, _, prefix = rest.partition("/")
    if not _BUCKET.match(bucket):
        raise SourceUriError(f"{bucket!r} is no bucket name: {_S3_SHAPE}")
    prefix = prefix.lstrip("/")
    return S3Source(bucket, prefix if not prefix or prefix.endswith("/") else f"{prefix}/")
