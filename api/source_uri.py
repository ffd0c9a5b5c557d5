"""The one parser of source URIs: `hf://org/name[/subfolder][@revision]` and `s3://bucket/prefix/`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal


class SourceUriError(ValueError):
    """The URI is not a valid source; the message says what is wrong and what to write.

    `shown` is the URI as messages may repeat it: without credentials.
    """

    def __init__(self, message: str, shown: str) -> None:
        """Take the message and the URI that it is about."""
        super().__init__(message)
        self.shown = shown


_HF_SHAPE = "hf://org/name[/subfolder][@revision]"
_S3_SHAPE = "s3://bucket/prefix/"
_HF_PART = re.compile(r"^[A-Za-z0-9_][A-Za-z0-9._-]*$")
_BUCKET = re.compile(r"^[A-Za-z0-9][A-Za-z0-9._-]{0,254}$")  # what S3 clients accept: stores differ in what they allow
_WHITE = re.compile(r"\s")
_SCHEME = re.compile(r"^([A-Za-z][A-Za-z0-9+.-]*)://")
_CREDENTIALS = re.compile(r"^([a-z0-9]+://)[^/@]*:[^/@]*@")
_HUB_PAGE = re.compile(r"^(?:https?://)?(?:www\.)?(?:huggingface\.co|hf\.co)/([^/\s]+/[^/\s?#]+)")
_BUCKET_HOST = re.compile(r"^https?://([A-Za-z0-9.-]+)\.s3[.-][A-Za-z0-9.-]*amazonaws\.com(/[^\s?#]*)?")
_WRITTEN_OTHERWISE = re.compile(r"^(hf|s3):/{0,2}([^/\s].*)$", re.IGNORECASE)
_ORG_AND_NAME = re.compile(r"^[A-Za-z0-9_][A-Za-z0-9._-]*/[A-Za-z0-9_][A-Za-z0-9._-]*$")


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
    if _CREDENTIALS.match(uri):
        masked = _CREDENTIALS.sub(r"\1***@", uri)
        raise SourceUriError("credentials do not belong in a source URI; put them into a Secret", masked)
    scheme, separator, rest = uri.partition("://")
    try:
        if separator and scheme == "hf":
            return _parse_hf(rest)
        if separator and scheme == "s3":
            return _parse_s3(rest)
    except _ShapeError as error:
        raise SourceUriError(str(error), uri) from None
    raise SourceUriError(_wrong_scheme(uri), uri)


class _ShapeError(ValueError):
    """What is wrong behind the scheme."""


def _wrong_scheme(uri: str) -> str:
    meant = _meant(uri)
    if meant is not None:
        return f"it must begin with hf:// or s3://; write {meant}"
    scheme = _SCHEME.match(uri)
    problem = f"{scheme[1]}:// is not supported" if scheme else "it must begin with hf:// or s3://"
    return f"{problem}; write {_HF_SHAPE} or {_S3_SHAPE}"


def _meant(uri: str) -> str | None:
    """Return the source that a page of the hub, a bucket's host or a misspelled scheme probably means."""
    if page := _HUB_PAGE.match(uri):
        return f"hf://{page[1]}"
    if bucket := _BUCKET_HOST.match(uri):
        return f"s3://{bucket[1]}{bucket[2] or '/'}"
    if slip := _WRITTEN_OTHERWISE.match(uri):
        return f"{slip[1].lower()}://{slip[2]}"
    return f"hf://{uri}" if _ORG_AND_NAME.match(uri) else None


def source_model_id(uri: object) -> str | None:
    """Return the model id implied by an `hf://` URI, or None for anything else (total: never raises)."""
    if not isinstance(uri, str):
        return None
    return _known_model_id(uri) if len(uri) <= _LONGEST_REMEMBERED else _known_model_id.__wrapped__(uri)


_LONGEST_REMEMBERED = 256


@lru_cache(maxsize=2048)
def _known_model_id(uri: str) -> str | None:
    """Parse once: many services share few sources, and each of their reviews asks for it."""
    try:
        source = parse_source_uri(uri)
    except SourceUriError:
        return None
    return source.model_id if isinstance(source, HubSource) else None


def _parse_hf(rest: str) -> HubSource:
    if _WHITE.search(rest):
        raise _ShapeError(f"white space is not allowed: {_HF_SHAPE}")
    path, _, revision = rest.partition("@")
    if "@" in rest and not revision:
        raise _ShapeError(f"the revision after @ is empty: {_HF_SHAPE}")
    parts = path.rstrip("/").split("/")
    if len(parts) < 2 or not all(parts[:2]):
        raise _ShapeError(f"organization and name are needed: {_HF_SHAPE}")
    org, name, *folders = parts
    for part in (org, name):
        if not _HF_PART.match(part):
            raise _ShapeError(f"{part!r} is not a valid organization or repository name: {_HF_SHAPE}")
    if not all(folders):
        raise _ShapeError(f"a folder has no name (two slashes in a row): {_HF_SHAPE}")
    if any(folder in (".", "..") for folder in folders):
        raise _ShapeError("'.' and '..' are not allowed in the subfolder")
    if revision and any(part in ("", ".", "..") for part in revision.split("/")):
        raise _ShapeError(f"{revision!r} is not a valid branch, tag or commit: {_HF_SHAPE}")
    return HubSource(org, name, "/".join(folders), revision or None)


def _parse_s3(rest: str) -> S3Source:
    bucket, _, prefix = rest.partition("/")
    if not _BUCKET.match(bucket):
        raise _ShapeError(f"{bucket!r} is not a valid bucket name: {_S3_SHAPE}")
    prefix = prefix.lstrip("/")
    return S3Source(bucket, prefix if not prefix or prefix.endswith("/") else f"{prefix}/")
