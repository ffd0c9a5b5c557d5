"""Answers to reviews as bytes: what the API server and the user see of a verdict. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import orjson

from api import view
from api.bounds import MOST_NAME
from api.errors import FieldError
from api.kinds import AIM_GROUP
from api.text import clean
from rules.registry import MOST_COLLECTED
from rules.verdict import Verdict
from webhooks.review import REVIEW_KIND, REVIEW_VERSION, Review

MOST_CAUSES = 200
"""More errors than anyone reads; the rest is only counted."""

_ALLOWED_HEAD = (
    b'{"apiVersion":"' + REVIEW_VERSION.encode() + b'","kind":"' + REVIEW_KIND.encode() + b'","response":{"uid":'
)


def allowed(uid: str, warnings: Sequence[str] = (), patch: str | None = None) -> bytes:
    """Return an answer that admits; `patch` is a JSON patch in base64."""
    body = _ALLOWED_HEAD + orjson.dumps(uid) + b',"allowed":true'
    if warnings:
        body += b',"warnings":' + orjson.dumps(list(warnings))
    if patch is not None:
        body += b',"patchType":"JSONPatch","patch":' + orjson.dumps(patch)
    return body + b"}}"


def refused(
    review: Review, verdict: Verdict, errors: Sequence[FieldError], texts: Sequence[str], reference: str = ""
) -> bytes:
    """Return an answer that refuses, as the API server answers its own validation.

    Args: `errors` are the verdict's, sorted; `texts` are the same errors as text.
    Code 422 reason `Invalid`; 500 reason `InternalError` with `reference` (it is in the log) when a
    rule failed: what the other rules found is among the causes.
    Source: docs/contract.md, Verdicts; k8s.io/apimachinery `errors.NewInvalid`.
    """
    kind, name = (review.kind.kind if review.kind else ""), clean(object_name(review), MOST_NAME)
    texts = texts[:MOST_CAUSES]
    causes = [_cause(error, text_) for error, text_ in zip(errors, texts, strict=False)]
    if len(errors) > MOST_CAUSES:
        least = "at least " if len(verdict.findings) >= MOST_COLLECTED else ""
        more = f"{least}{len(errors) - MOST_CAUSES} more errors"
        causes.append({"reason": "FieldValueInvalid", "message": more, "field": ""})
    summary = texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
    message = f'{kind}.{AIM_GROUP} "{name}" is invalid: {summary}'
    code, reason = 422, "Invalid"
    if verdict.blocked:
        code, reason = 500, "InternalError"
        internal = f"a check of aim-adapters failed; its log has the cause under reference {reference}"
        causes.append({"reason": "InternalError", "message": internal, "field": ""})
        message = f"{internal}; in addition: {message}" if texts else internal
    details = {"name": name, "group": AIM_GROUP, "kind": kind, "causes": causes}
    return _answer(
        review.uid,
        {
            "status": {
                "status": "Failure",
                "message": message,
                "reason": reason,
                "code": code,
                "details": details,
            },
            **({"warnings": verdict.warning_texts} if verdict.warnings else {}),
        },
    )


def failed(uid: str, code: int, reason: str, message: str) -> bytes:
    """Return an answer that refuses for a reason outside of the object: a bad body, overload, an internal error."""
    return _answer(uid, {"status": {"status": "Failure", "message": clean(message), "reason": reason, "code": code}})


def object_name(review: Review) -> str:
    """Return the name to show: the object's, or what its name will be generated from."""
    return (
        view.text(review.new, "metadata", "name")
        or review.name
        or view.text(review.new, "metadata", "generateName")
        or ""
    )


def _cause(error: FieldError, text: str) -> dict[str, str]:
    return {"reason": str(error.cause), "message": text.removeprefix(f"{error.where}: "), "field": error.where}


def _answer(uid: str, response: dict[str, Any]) -> bytes:
    return orjson.dumps(
        {
            "apiVersion": REVIEW_VERSION,
            "kind": REVIEW_KIND,
            "response": {"uid": uid, "allowed": False, **response},
        }
    )
