"""Small pure operations on Kubernetes objects that every kind needs: ownership, comparison, patches, quantities."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from decimal import Decimal
from fnmatch import translate
from functools import lru_cache
from itertools import islice
from math import ceil
from typing import Any

from api import view
from api.bounds import MOST_LABELS, of_entries, of_string
from api.kinds import AIM_GROUP, INFERENCE_SERVICE, Kind
from api.names import FIELD_OWNER, LABEL_MANAGED_BY, OWN_LABELS, derive_name, is_label_value
from api.quantity import parse_quantity
from api.view import Json

GIB = 2**30


def owner_reference(kind: Kind, owner: Json, *, controller: bool = True) -> dict[str, Any]:
    """Return an owner reference that lets the garbage collector collect the child; it never blocks a deletion."""
    return {
        "apiVersion": kind.api_version,
        "kind": kind.kind,
        "name": view.name_of(owner),
        "uid": view.uid_of(owner),
        "controller": controller,
        "blockOwnerDeletion": False,
    }


def owned_by(obj: Json, owner: Json) -> bool:
    """Whether one of the object's owner references names this very owner (by UID)."""
    uid = view.uid_of(owner)
    return bool(uid) and any(view.dig(ref, "uid") == uid for ref in view.items(obj, "metadata", "ownerReferences"))


def created_labels(own: Mapping[str, str | None], propagated: Mapping[str, str] = view.EMPTY) -> dict[str, str]:
    """Return the labels of an object that aim-adapters creates: its own ones win, those without a value are left out.

    Source: docs/contract.md, Names and numbers.
    """
    return {**propagated, LABEL_MANAGED_BY: FIELD_OWNER, **{key: value for key, value in own.items() if value}}


def label_value(value: str) -> str:
    """Return a name as a label's value: itself where the API server takes it, else shortened with a hash."""
    return value if is_label_value(value) else derive_name(value)


_NEVER_PROPAGATED = (
    *("app", "component", "serving.kserve.io/*", "batch.kubernetes.io/*", "job-name", "controller-uid"),
    *OWN_LABELS,
)


@lru_cache(maxsize=256)
def _any_of(patterns: tuple[str, ...]) -> re.Pattern[str]:
    """Return one expression for some globs; a config is looked at far more often than it changes."""
    return re.compile("|".join(translate(pattern) for pattern in dict.fromkeys(patterns)))


def propagated_labels(obj: Json, config: Json) -> dict[str, str]:
    """Return an object's labels that its RuntimeConfig propagates; `aim.eai.amd.com/*` always are.

    Labels by which KServe, the Job controller and aim-adapters find their own objects are left out whatever the globs
    say, so that no label of a user takes an object away from its controller or gives it another meaning. Globs and
    labels beyond their bounds are not looked at, so that the work is bounded (docs/contract.md, Bounds).
    """
    patterns: tuple[str, ...] = (f"{AIM_GROUP}/*",)
    if view.dig(config, "labelPropagation", "enabled") is True:
        globs = view.strings(config, "labelPropagation", "match")[: _GLOBS.most]
        patterns += tuple(glob for glob in globs if len(glob) <= _GLOB.most)
    wanted, never = _any_of(patterns), _any_of(_NEVER_PROPAGATED)
    labels = islice(view.mapping(obj, "metadata", "labels").items(), MOST_LABELS)
    return {
        key: value
        for key, value in sorted(labels)
        if isinstance(value, str) and wanted.match(key) and not never.match(key)
    }


_GLOBS = of_entries(("labelPropagation", "match"))
_GLOB = of_string(("labelPropagation", "match", "[]"))


def whole_gibibytes(size_bytes: Decimal, headroom_percent: int) -> str:
    """Return a claim's size: the bytes plus headroom, rounded up to whole Gi (docs/contract.md, Model artifacts)."""
    return f"{max(1, ceil(size_bytes * (100 + headroom_percent) / 100 / GIB))}Gi"


_QUANTITIES = frozenset({"requests", "limits", "sizeLimit"})
_UNORDERED = frozenset({"ownerReferences"})  # a map by UID to the API server: others may add entries of theirs


def covers(live: object, desired: object, *, quantities: bool = False) -> bool:
    """Whether the live value already says all that the desired one says, so that applying it would change nothing.

    Mappings may have more keys than desired (the API server and others default fields); lists must agree in length and
    entry by entry. Below `requests`, `limits` and `sizeLimit` quantities are compared by value (`49152Mi` covers
    `48Gi`), elsewhere to the letter: an environment variable `1k` is not `1000`.
    """
    if live == desired:
        return True
    if desired.__class__ is dict or isinstance(desired, Mapping):
        return (live.__class__ is dict or isinstance(live, Mapping)) and _mapping_covered(live, desired, quantities)
    if isinstance(desired, list):
        if not isinstance(live, list) or len(live) != len(desired):
            return False
        for left, right in zip(live, desired, strict=True):  # noqa: SIM110 - a generator costs half as much again here
            if not covers(left, right, quantities=quantities):
                return False
        return True
    if not quantities:
        return False
    have, want = parse_quantity(live), parse_quantity(desired)
    return have is not None and have == want


def _mapping_covered(live: Any, desired: Mapping[Any, Any], quantities: bool) -> bool:
    for key, value in desired.items():  # noqa: SIM110 - this runs a hundred times in each pass
        if not _member_covered(live, key, value, quantities):
            return False
    return True


def _member_covered(live: Mapping[Any, Any], key: Any, value: object, quantities: bool) -> bool:
    if value is None:
        return live.get(key) is None
    if key not in live:
        return value == ""  # the API server stores no empty value of a variable
    if key in _UNORDERED and isinstance(value, list) and isinstance(live[key], list):
        return all(any(covers(have, want) for have in live[key]) for want in value)
    return covers(live[key], value, quantities=quantities or key in _QUANTITIES)


def agrees(kind: Kind, live: Json | None, desired: Json) -> bool:
    """Whether applying the desired object would change nothing about the live one, what we no longer want included."""
    if live is None or not covers(live, desired):
        return False
    if kind != INFERENCE_SERVICE:
        return True
    return not _left_over(view.mapping(live, "spec", "predictor"), desired["spec"]["predictor"])


_OPTIONAL_PREDICTOR_FIELDS = ("imagePullSecrets", "serviceAccountName", "priorityClassName", "affinity", "tolerations")


def _left_over(have: Json, want: Json) -> bool:
    """Whether a predictor has something that we once wrote and do not want any more."""
    if any(have.get(name) for name in _OPTIONAL_PREDICTOR_FIELDS if name not in want):
        return True
    if _more(have, want, "securityContext"):
        return True
    return any(
        _more(old, new, "securityContext")
        or _more(view.mapping(old, "resources"), new["resources"], "requests")
        or _more(view.mapping(old, "resources"), new["resources"], "limits")
        or any(_more(left, right) for left, right in zip(view.items(old, "env"), new["env"], strict=False))
        for old, new in zip(view.items(have, "containers"), want["containers"], strict=False)
    )


def _more(have: Json, want: Json, *path: str) -> bool:
    """Whether a mapping of the live object has keys that the desired one lacks."""
    return bool(view.mapping(have, *path).keys() - view.mapping(want, *path).keys())


def merge_patch(old: Json, new: Json) -> dict[str, Any]:
    """Return the JSON merge patch (RFC 7386) that turns `old` into `new`; empty when they agree."""
    patch: dict[str, Any] = {}
    for key in old.keys() | new.keys():
        before, after = old.get(key), new.get(key)
        if before == after:
            continue
        if isinstance(before, Mapping) and isinstance(after, Mapping):
            if nested := merge_patch(before, after):
                patch[key] = nested
        else:
            patch[key] = after
    return patch


def without_nulls(value: Any) -> Any:
    """Return a copy without null members: what the API server would store."""
    if value.__class__ is str or value.__class__ is int:  # most values; to ask for a Mapping takes ten times as long
        return value
    if value.__class__ is dict or isinstance(value, Mapping):
        return {key: without_nulls(item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [without_nulls(item) for item in value]
    return value


def whole_number(value: object) -> int | None:
    """Read a number that we wrote into a text (an annotation, a variable), None for any other text.

    Others may write there too, so more than nine digits are none: no field of a status holds more, and of thousands
    Python makes no number.
    """
    if not isinstance(value, str) or len(value) > 9 or not (value.isascii() and value.isdecimal()):
        return None
    return int(value)


def timestamp(moment: datetime) -> str:
    """Format a UTC time as the API server does (RFC 3339, whole seconds)."""
    return moment.astimezone(UTC).replace(tzinfo=None).isoformat(timespec="seconds") + "Z"


def artifact_names(cache: Json) -> tuple[str, ...]:
    """Names of the artifacts that a cache holds, sorted: the index from artifacts to caches."""
    return tuple(
        sorted(
            name for entry in view.mapping(cache, "status", "artifacts").values() if (name := view.text(entry, "name"))
        )
    )
