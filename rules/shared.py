"""What the rules of several kinds share: findings and warnings about a place in an object."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache

from api import view
from api.accelerators import DEVICE_IDS
from api.errors import Cause, FieldError, FieldWarning
from api.reasons import Reason
from rules.environment import env_names, job_env_allowed
from rules.suggest import did_you_mean, quoted
from rules.verdict import Finding

NAME_WORDS = "use a-z, 0-9, - and . only"
_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")  # RFC 1123, as the API server
_ALIKE = 0.75  # MI300 is close enough to MI300X, H100 is not close enough to MI100
_OLD_TAG = re.compile(r"^v?([0-9]{1,9})\.([0-9]{1,9})(?:[.\-+_].*)?$")
_FIRST_TAG_WITH_ADAPTERS = (0, 13)


def possible_name(name: str) -> bool:
    """Whether an object can have this name; its length is not checked."""
    return _NAME.fullmatch(name) is not None


def unknown_word(path: str, value: object, known: tuple[str, ...]) -> Iterator[Finding]:
    """Refuse a value that is not one of the known words, and suggest the one that may be meant."""
    if value is None or value in known:
        return
    hint = did_you_mean(value, known)
    yield Finding(
        FieldError(path, Reason.WORD_UNKNOWN, Cause.NOT_SUPPORTED, f"supported values: {quoted(known)}", value, hint)
    )


def present(holder: Mapping[str, object], key: str) -> bool:
    """Whether a field is given; `null` counts as absent, `{}` as given."""
    return holder.get(key) is not None


def short(name: str, room: int = 50) -> str:
    """Cut a name, so that a warning that holds it stays within its length."""
    return name if len(name) <= room else f"{name[: room - 1]}…"


def not_found_yet(
    path: str,
    kinds: str,
    name: str,
    *,
    reason: Reason = Reason.REFERENCE_NOT_FOUND,
    then: str = "",
    weight: int = 20,
    room: int = 50,
) -> FieldWarning:
    """Return the warning about a reference to an object that does not exist, but may be applied next.

    Args: `kinds` in words, for example `AIMModel or AIMClusterModel`; `then`: what follows from the absence; `room`:
    how many characters of the name fit.
    """
    if not possible_name(name):
        return FieldWarning(path, reason, f'"{short(name, 30)}" is not a valid object name; {NAME_WORDS}', weight)
    return FieldWarning(path, reason, f'no {kinds} "{short(name, room)}" exists yet{then}', weight)


def env_without_effect_in_jobs(obj: object, *path: str) -> Iterator[FieldWarning]:
    """Warn about variables that download Jobs do not use."""
    for field, name in env_names(obj, *path):
        if not job_env_allowed(name):
            detail = f"{short(name, 40)} has no effect: download Jobs use credentials and tuning only"
            yield FieldWarning(field, Reason.ENV_HAS_NO_EFFECT, detail, 45)


def image_tag(image: str) -> str:
    """Return an image's tag, or an empty string. A digest and the port of a registry are not tags."""
    name, _, tag = image.partition("@")[0].rpartition(":")
    return tag if name and "/" not in tag else ""


@lru_cache(maxsize=256)
def image_too_old(image: str) -> bool:
    """Whether a tag is clearly older than the first release that serves adapters; an unclear tag is not."""
    match = _OLD_TAG.match(image_tag(image))
    return match is not None and (int(match.group(1)), int(match.group(2))) < _FIRST_TAG_WITH_ADAPTERS


def unfamiliar_accelerator(path: str, model: str | None, vendor: str | None = None) -> Iterator[FieldWarning]:
    """Warn about an accelerator model that looks like a misspelling of a known one, so that no node would match.

    Models of another `vendor` are not checked, even if their names are similar.
    """
    if model is None or model in DEVICE_IDS or (vendor or "amd").lower() != "amd":
        return
    guess = did_you_mean(model, DEVICE_IDS, _ALIKE)
    if guess:
        detail = f'unfamiliar accelerator model "{short(model, 20)}"; {guess}'
        yield FieldWarning(path, Reason.ACCELERATOR_MODEL_UNFAMILIAR, detail, 30)


def unimplemented_warnings(spec: Mapping[str, object], paths: Iterable[tuple[str, ...]]) -> Iterator[FieldWarning]:
    """Warn about fields that aim-adapters does not act on."""
    for path in paths:
        if view.dig(spec, *path) is not None:
            yield FieldWarning(
                f"spec.{'.'.join(path)}", Reason.FIELD_NOT_IMPLEMENTED, "aim-adapters does not act on this field", 80
            )
