"""Rules that several kinds share, as generators over a place in an object."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache

from api import view
from api.accelerators import DEVICE_IDS
from api.errors import Cause, FieldError, FieldWarning
from api.reasons import Reason
from api.source_uri import SourceUriError, parse_source_uri
from rules.environment import RESERVED_ENV, usable_env_entry
from rules.seen import invalid
from rules.suggest import did_you_mean, quoted
from rules.verdict import Finding

NAME_WORDS = "names have a-z, 0-9, - and . only"
_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")  # RFC 1123, as the API server
_ALIKE = 0.75  # H100 is no slip for MI100, MI300 is one for MI300X
_QUANTITY = re.compile(r"^\+?(\d+(?:\.\d*)?|\.\d+)(?:[KMGTPE]i|[kMGTPE]|[eE]\+?\d+)?$")
_OLD_TAG = re.compile(r"^v?([0-9]{1,9})\.([0-9]{1,9})(?:[.\-+_].*)?$")
_FIRST_TAG_WITH_ADAPTERS = (0, 13)


def possible_name(name: str) -> bool:
    """Whether an object of that name can ever be created, but for its length."""
    return _NAME.fullmatch(name) is not None


def unknown_word(path: str, value: object, known: tuple[str, ...]) -> Iterator[Finding]:
    """Refuse a value that is none of the known words, and say which one may have been meant."""
    if value is None or value in known:
        return
    hint = did_you_mean(value, known)
    yield Finding(
        FieldError(path, Reason.WORD_UNKNOWN, Cause.NOT_SUPPORTED, f"supported values: {quoted(known)}", value, hint)
    )


def reserved_env_findings(names: Iterable[tuple[str, str]]) -> Iterator[Finding]:
    """Refuse variables of the server container that KServe gives a meaning of its own."""
    for path, name in names:
        if name in RESERVED_ENV:
            yield invalid(
                path, Reason.ENV_RESERVED, "KServe uses this variable for itself", "remove or rename it", name
            )


def unusable_env_findings(obj: object, *path: str, names: bool = True) -> Iterator[Finding]:
    """Refuse entries that no pod can take: the API server would refuse the pods, long after the object.

    Without `names`, only where the value comes from is looked at: other rules speak about the names.
    """
    prefix = ".".join(path)
    for index, entry in enumerate(view.items(obj, *path)):
        if not isinstance(entry, Mapping) or usable_env_entry(entry):
            continue
        name, source = entry.get("name"), entry.get("valueFrom")
        if not isinstance(name, str) or not name:
            continue  # a matter of shape, which the schema speaks about
        if usable_env_entry({"name": name}):
            both = entry.get("value") and source
            detail = "value and valueFrom are both set" if both else "valueFrom does not name exactly one source"
            hint = "keep one of the two" if both else "for example valueFrom.secretKeyRef with name and key"
            yield invalid(f"{prefix}[{index}].valueFrom", Reason.ENV_UNUSABLE, f"{detail}: no pod takes that", hint)
        elif names:
            detail = "a variable's name is of printable ASCII characters other than ="
            yield invalid(f"{prefix}[{index}].name", Reason.ENV_UNUSABLE, detail, "rename it", name)


def source_findings(obj: object, *path: str) -> Iterator[Finding]:
    """Refuse model sources that can never be downloaded, or whose size is none."""
    prefix = ".".join(path)
    for index, source in enumerate(view.items(obj, *path)):
        yield from source_uri_finding(f"{prefix}[{index}].sourceUri", view.dig(source, "sourceUri"))
        yield from size_finding(f"{prefix}[{index}].size", view.dig(source, "size"))


def source_uri_finding(path: str, uri: object) -> Iterator[Finding]:
    """Refuse a URI that no source can be made of."""
    if not isinstance(uri, str):
        return
    try:
        parse_source_uri(uri)
    except SourceUriError as error:
        yield invalid(path, Reason.SOURCE_UNUSABLE, str(error), value=uri)


def size_finding(path: str, size: object) -> Iterator[Finding]:
    """Refuse a size that is no positive quantity."""
    if size is None or isinstance(size, bool):
        return
    match = _QUANTITY.match(size) if isinstance(size, str) else None
    good = float(match.group(1)) > 0 if match else isinstance(size, int) and size > 0
    if not good:
        yield invalid(path, Reason.SIZE_UNUSABLE, "a size is a quantity above zero", 'for example "50Gi"', size)


def image_tag(image: str) -> str:
    """Return an image's tag, empty where it has none: a digest and a registry's port are none."""
    name, _, tag = image.partition("@")[0].rpartition(":")
    return tag if name and "/" not in tag else ""


@lru_cache(maxsize=256)
def image_too_old(image: str) -> bool:
    """Whether a tag is visibly older than the first release that serves adapters; anything unclear is not."""
    match = _OLD_TAG.match(image_tag(image))
    return match is not None and (int(match.group(1)), int(match.group(2))) < _FIRST_TAG_WITH_ADAPTERS


def unfamiliar_accelerator(path: str, model: str | None, vendor: str | None = None) -> Iterator[FieldWarning]:
    """Warn about an accelerator model that is close to a known one: its nodes would not be found.

    Models of another `vendor` are none of ours, however alike their names are.
    """
    if model is None or model in DEVICE_IDS or (vendor or "amd").lower() != "amd":
        return
    guess = did_you_mean(model, DEVICE_IDS, _ALIKE)
    if guess:
        shown = model if len(model) <= 20 else f"{model[:19]}…"
        yield FieldWarning(
            path, Reason.ACCELERATOR_MODEL_UNFAMILIAR, f'unfamiliar accelerator model "{shown}"; {guess}', 30
        )


def unimplemented_warnings(spec: Mapping[str, object], paths: Iterable[tuple[str, ...]]) -> Iterator[FieldWarning]:
    """Warn about fields that others may act on, but we do not."""
    for path in paths:
        if view.dig(spec, *path) is not None:
            yield FieldWarning(
                f"spec.{'.'.join(path)}", Reason.FIELD_NOT_IMPLEMENTED, "aim-adapters does not act on this field", 80
            )
