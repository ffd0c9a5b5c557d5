"""What admission fills in: only what a schema default cannot express. Pure and idempotent."""

from __future__ import annotations

import base64
import re
from typing import Any

import orjson

from api import view
from api.bounds import MOST_URI
from api.kinds import AIM_ARTIFACT, Kind
from api.names import MODEL_ID_PATTERN
from api.source_uri import source_model_id
from api.view import Json

Operation = dict[str, Any]  # an RFC 6902 operation

_MODEL_ID = re.compile(MODEL_ID_PATTERN)


def mutate(kind: Kind, obj: Json) -> list[Operation]:
    """Return the JSON patch for an object: `modelId` of a model artifact from its `hf://` source, revision cut off.

    Model sources in lists keep what the user wrote: readers derive the id, and lists of users are never touched.
    A terminating object is not changed. Source: docs/contract.md, Mutation.
    """
    if kind.kind != AIM_ARTIFACT.kind or view.is_adapter(obj) or view.terminating(obj):
        return []
    if view.dig(obj, "spec", "modelId") is not None:
        return []
    uri = view.dig(obj, "spec", "sourceUri")
    if not isinstance(uri, str) or len(uri) > MOST_URI:
        return []
    implied = source_model_id(uri)
    if implied is None or not _MODEL_ID.fullmatch(implied):  # the schema would refuse what we filled in
        return []
    return [{"op": "add", "path": "/spec/modelId", "value": implied}]


def encode(patch: list[Operation]) -> str:
    """Return a patch as the answer carries it."""
    return base64.b64encode(orjson.dumps(patch)).decode()
