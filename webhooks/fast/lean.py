"""A lean reader of reviews of an AIMService: only what rules look at becomes Python objects. Pure.

managedFields, annotations, labels, conditions and user info are most of a body's bytes, and no rule reads them: the
parser skips them. For anything unusual (another kind, a subresource, a deletion, a field of the wrong type, a body that
is not JSON) the lean reader returns None, and `webhooks.review` reads the whole body.

Both readers lead to the same answer. Skipped parts are checked for syntax and encoding; only a number there that no
double can hold (1e999) is not noticed.
"""

from __future__ import annotations

from typing import Annotated, Any, TypedDict, cast

import msgspec
import orjson

from api.bounds import MOST_LABELS
from api.kinds import AIM_GROUP, AIM_SERVICE
from webhooks.review import REVIEW_KIND, REVIEW_VERSION, Review, with_place

_Int = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]  # beyond, the other reader makes it a float


class _Metadata(TypedDict, total=False):
    name: str
    namespace: str
    generateName: str
    labels: msgspec.Raw  # only their size counts


class _Name(TypedDict, total=False):
    name: str


class _Cache(TypedDict, total=False):
    profileCacheRef: _Name
    templateCacheRef: _Name


class _Template(TypedDict, total=False):
    kind: str
    name: str


class _Runtime(TypedDict, total=False):
    currentReplicas: _Int


class _Status(TypedDict, total=False):
    adapterMaxRank: _Int
    cache: _Cache
    resolvedTemplate: _Template
    runtime: _Runtime


class _Service(TypedDict, total=False):
    """What rules read of an AIMService. A rule that reads more adds it here, or the test of its examples fails."""

    metadata: _Metadata
    spec: msgspec.Raw  # read as a whole
    status: _Status


class _KindSpelt(msgspec.Struct, gc=False):
    group: str = ""
    version: str = ""
    kind: str = ""


class _Request(msgspec.Struct, gc=False):
    uid: str
    kind: _KindSpelt
    operation: str
    object: _Service
    oldObject: _Service | None = None  # noqa: N815 - as on the wire
    requestKind: _KindSpelt | None = None  # noqa: N815
    subResource: str | None = None  # noqa: N815
    namespace: str = ""
    name: str = ""
    dryRun: bool | None = None  # noqa: N815


class _Envelope(msgspec.Struct, gc=False):
    kind: str
    apiVersion: str  # noqa: N815
    request: _Request


_DECODER = msgspec.json.Decoder(_Envelope)


def read_lean(body: bytes | bytearray) -> Review | None:
    """Return the review of a created or updated AIMService as far as rules read it; None: use the other reader."""
    try:
        envelope = _DECODER.decode(body)
        if not body.isascii():
            body.decode()  # the parser skips strings without checking their encoding
        return _review(envelope)
    except (msgspec.MsgspecError, ValueError, RecursionError):  # ValueError: a bad encoding, a bad spec
        return None


def _review(envelope: _Envelope) -> Review | None:
    request = envelope.request
    spelt, operation = request.kind, request.operation
    new, old = cast("dict[str, Any]", request.object), cast("dict[str, Any] | None", request.oldObject)
    if envelope.kind != REVIEW_KIND or envelope.apiVersion != REVIEW_VERSION or not request.uid:
        return None
    if spelt.kind != AIM_SERVICE.kind or spelt.group != AIM_GROUP or request.subResource:
        return None
    if operation == "CREATE":
        old = None
    elif operation != "UPDATE" or old is None:
        return None
    _read_labels(new)
    if old is not None:
        _read_labels(old)
    _read_specs(new, old)
    written = request.requestKind
    return Review(
        uid=request.uid,
        kind=AIM_SERVICE,
        kind_words=_SERVICE_WORDS,
        version=(written.version if written else "") or spelt.version,
        operation=operation,
        subresource="",
        dry_run=request.dryRun is True,
        namespace=request.namespace,
        name=request.name,
        new=with_place(new, request.namespace, request.name),
        old=old,
    )


_SERVICE_WORDS = f"{AIM_GROUP}/{AIM_SERVICE.kind}"


_FEW_LABELS = MOST_LABELS * len('"":"",')  # bytes of which each label needs some


def _read_labels(obj: dict[str, Any]) -> None:
    """Parse labels that may be beyond their bound, and leave out others, which no rule reads.

    Raises: ValueError for labels that are not valid JSON.
    """
    metadata: dict[str, Any] = obj.get("metadata") or {}
    labels = metadata.pop("labels", None)
    if labels is not None and len(memoryview(labels)) > _FEW_LABELS:
        metadata["labels"] = orjson.loads(bytes(labels))


def _read_specs(new: dict[str, Any], old: dict[str, Any] | None) -> None:
    """Replace raw specs by parsed ones; equal bytes are parsed once, and then compare as identical.

    Raises: ValueError for a spec that is not valid JSON.
    """
    raw_new, raw_old = new.get("spec"), old.get("spec") if old is not None else None
    if raw_new is not None:
        new["spec"] = orjson.loads(bytes(raw_new))
    if old is not None and raw_old is not None:
        old["spec"] = new["spec"] if raw_new is not None and raw_new == raw_old else orjson.loads(bytes(raw_old))
