"""The envelope: what a body must be to be a review, and what of it is read. Pure; total over any bytes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from api.bounds import MOST_LEVELS
from api.kinds import AIM_GROUP, Kind
from api.reasons import Reason
from api.record import record
from api.view import Json
from rules.world import KIND_BY_NAME

VALIDATE_PATH = "/validate"
MUTATE_PATH = "/mutate"
REVIEW_VERSION = "admission.k8s.io/v1"
REVIEW_KIND = "AdmissionReview"
TOO_DEEP = (
    f"{Reason.TOO_LARGE}: the object is nested more deeply than the JSON parser accepts; at most {MOST_LEVELS} levels "
    "of lists and objects are allowed in a free-form field (nest it less deeply)"
)
_HEAD_BYTES = 4096
_UID = re.compile(rb'"request"\s*:\s*\{\s*"uid"\s*:\s*"([A-Za-z0-9-]{1,64})"')
OPERATIONS = frozenset({"CREATE", "UPDATE", "DELETE", "CONNECT"})


@dataclass(frozen=True, slots=True)
class Malformed:
    """A body that is not a review: `uid` is echoed where there is one."""

    detail: str
    uid: str = ""
    too_deep: bool = False  # a review whose object no JSON parser here takes in


@record
class Review:
    """One admission request, as far as it is read.

    `kind` is None for kinds without rules; `version` is the version that the user wrote (requestKind).
    """

    uid: str
    kind: Kind | None
    kind_words: str  # as the request spells it: for messages
    version: str
    operation: str
    subresource: str
    dry_run: bool
    namespace: str
    name: str
    new: Json | None
    old: Json | None

    @property
    def judged(self) -> bool:
        """Whether rules are asked at all: our kinds, created or updated, the main resource."""
        return (
            self.kind is not None
            and not self.subresource
            and self.operation in ("CREATE", "UPDATE")
            and self.new is not None
        )


def parse_review(body: bytes | bytearray) -> Review | Malformed:
    """Read a body as an AdmissionReview of version v1."""
    try:
        envelope = orjson.loads(body)
    except (orjson.JSONDecodeError, RecursionError) as error:
        if "ecursion" in str(error) or "depth limit" in str(error):
            return Malformed(TOO_DEEP, _uid_at_the_head(body), too_deep=True)
        return Malformed("the body is not JSON")
    if not isinstance(envelope, dict):
        return Malformed("the body is not a JSON object")
    request = envelope.get("request")
    request = request if isinstance(request, dict) else {}
    uid = _text(request, "uid")
    if envelope.get("kind") != REVIEW_KIND:
        return Malformed(f"the body is not an {REVIEW_KIND}", uid)
    if envelope.get("apiVersion") != REVIEW_VERSION:
        return Malformed(f"only {REVIEW_VERSION} reviews are answered: set admissionReviewVersions: [v1]", uid)
    if not uid:
        return Malformed("the review has no request.uid")
    return _review(uid, request)


def _uid_at_the_head(body: bytes | bytearray) -> str:
    """Return the uid of a review that cannot be parsed: the API server writes it before the object."""
    found = _UID.search(body[:_HEAD_BYTES])
    return found.group(1).decode() if found else ""


def _review(uid: str, request: dict[str, Any]) -> Review | Malformed:
    kind_field, written = _mapping(request, "kind"), _mapping(request, "requestKind")
    name_of_kind, group = _text(kind_field, "kind"), _text(kind_field, "group")
    operation = _text(request, "operation")
    if not name_of_kind:
        return Malformed("the review has no request.kind", uid)
    if operation not in OPERATIONS:
        return Malformed("the review's request.operation is none of CREATE, UPDATE, DELETE, CONNECT", uid)
    new, old = request.get("object"), request.get("oldObject")
    if operation in ("CREATE", "UPDATE") and not isinstance(new, dict):
        return Malformed("the review has no request.object", uid)
    if operation == "UPDATE" and not isinstance(old, dict):
        return Malformed("the review of an update has no request.oldObject", uid)
    namespace, name = _text(request, "namespace"), _text(request, "name")
    return Review(
        uid=uid,
        kind=KIND_BY_NAME.get(name_of_kind) if group == AIM_GROUP else None,
        kind_words=f"{group or 'core'}/{name_of_kind or '?'}"[:100],
        version=_text(written, "version") or _text(kind_field, "version"),
        operation=operation,
        subresource=_text(request, "subResource"),
        dry_run=request.get("dryRun") is True,
        namespace=namespace,
        name=name,
        new=with_place(new, namespace, name) if isinstance(new, dict) else None,
        old=old if isinstance(old, dict) and operation == "UPDATE" else None,
    )


def with_place(obj: dict[str, Any], namespace: str, name: str) -> dict[str, Any]:
    """Return the object with the namespace and name of the request where it lacks them (generated names stay open)."""
    metadata = obj.get("metadata")
    metadata = metadata if isinstance(metadata, dict) else {}
    if metadata.get("namespace") and metadata.get("name"):
        return obj
    place = {"namespace": namespace, "name": name}
    missing = {key: value for key, value in place.items() if value and not metadata.get(key)}
    return {**obj, "metadata": {**metadata, **missing}} if missing else obj


def _mapping(holder: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = holder.get(key)
    return value if isinstance(value, dict) else {}


def _text(holder: Mapping[str, Any], key: str) -> str:
    value = holder.get(key)
    return value if isinstance(value, str) else ""
