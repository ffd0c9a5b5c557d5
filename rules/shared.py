"""Rules that several kinds share, as generators over a place in an object."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache

from api.errors import Cause, FieldError, FieldWarning
from api.source_uri import SourceUriError, parse_source_uri
from api.view import dig, items
from rules.environment import RESERVED_ENV
from rules.seen import invalid
from rules.suggest import did_you_mean, quoted
from rules.verdict import Finding

ACCELERATOR_MODELS = (
    "MI100",
    "MI210",
    "MI250X",
    "MI300A",
    "MI300X",
    "MI308X",
    "MI325X",
    "MI350X",
    "MI355X",
    "V710",
    "W7900",
    "W7800",
    "RX9070",
    "RX7900",
)
"""Models whose PCI device ids we know (interface facts, section 9)."""

_QUANTITY = re.compile(r"^\+?(\d+(?:\.\d*)?|\.\d+)(?:[KMGTPE]i|[kMGTPE]|[eE]\+?\d+)?$")
_OLD_TAG = re.compile(r"^v?(\d+)\.(\d+)(?:[.\-+].*)?$")
_FIRST_TAG_WITH_ADAPTERS = (0, 13)


def unknown_word(path: str, value: object, known: tuple[str, ...]) -> Iterator[Finding]:
    """Refuse a value that is none of the known words, and say which one may have been meant."""
    if value is None or value in known:
        return
    hint = did_you_mean(value, known)
    yield Finding(
        FieldError(path, "WordUnknown", Cause.NOT_SUPPORTED, f"supported values: {quoted(known)}", value, hint)
    )


def reserved_env_findings(names: Iterable[tuple[str, str]]) -> Iterator[Finding]:
    """Refuse variables of the server container that KServe gives a meaning of its own."""
    for path, name in names:
        if name in RESERVED_ENV:
            yield invalid(path, "EnvReserved", "KServe uses this variable for itself", "remove or rename it", name)


def source_findings(obj: object, *path: str) -> Iterator[Finding]:
    """Refuse model sources that can never be downloaded, or whose size is none."""
    prefix = ".".join(path)
    for index, source in enumerate(items(obj, *path)):
        yield from source_uri_finding(f"{prefix}[{index}].sourceUri", dig(source, "sourceUri"))
        yield from size_finding(f"{prefix}[{index}].size", dig(source, "size"))


def source_uri_finding(path: str, uri: object) -> Iterator[Finding]:
    """Refuse a URI that no source can be made of."""
    if not isinstance(uri, str):
        return
    try:
        parse_source_uri(uri)
    except SourceUriError as error:
        yield invalid(path, "SourceUnusable", str(error), value=uri)


def size_finding(path: str, size: object) -> Iterator[Finding]:
    """Refuse a size that is no positive quantity."""
    if size is None or isinstance(size, bool):
        return
    match = _QUANTITY.match(size) if isinstance(size, str) else None
    good = float(match.group(1)) > 0 if match else isinstance(size, int) and size > 0
    if not good:
        yield invalid(path, "SizeUnusable", "a size is a quantity above zero", 'for example "50Gi"', size)


@lru_cache(maxsize=256)
def image_too_old(image: str) -> bool:
    """Whether a tag is visibly older than the first release that serves adapters; anything unclear is not."""
    name, _, tag = image.partition("@")[0].rpartition(":")
    match = _OLD_TAG.match(tag) if name and "/" not in tag else None
    return match is not None and (int(match.group(1)), int(match.group(2))) < _FIRST_TAG_WITH_ADAPTERS


def unfamiliar_accelerator(path: str, model: str | None) -> Iterator[FieldWarning]:
    """Warn about an accelerator model that is close to a known one: its nodes would not be found."""
    if model is None or model in ACCELERATOR_MODELS:
        return
    guess = did_you_mean(model, ACCELERATOR_MODELS)
    if guess:
        shown = model if len(model) <= 20 else f"{model[:19]}…"
        yield FieldWarning(path, "AcceleratorModelUnfamiliar", f'unfamiliar accelerator model "{shown}"; {guess}', 30)


def unimplemented_warnings(spec: Mapping[str, object], paths: Iterable[tuple[str, ...]]) -> Iterator[FieldWarning]:
    """Warn about fields that others may act on, but we do not."""
    for path in paths:
        if dig(spec, *path) is not None:
            yield FieldWarning(
                f"spec.{'.'.join(path)}", "FieldNotImplemented", "aim-adapters does not act on this field", 80
            )
