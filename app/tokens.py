"""Paths that only permitted bearer tokens may read: the API server authenticates a token and checks its access."""

from __future__ import annotations

import hashlib
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from api.kinds import Kind
from kube.client import Client
from kube.errors import ApiError

TOKEN_REVIEW = Kind("authentication.k8s.io", "v1", "tokenreviews", "TokenReview", False)
SUBJECT_ACCESS_REVIEW = Kind("authorization.k8s.io", "v1", "subjectaccessreviews", "SubjectAccessReview", False)

REMEMBER_SECONDS = 60.0
MAX_REMEMBERED = 64
MAX_ASKING = 8  # requests to the API server at once: invented tokens must not keep it busy


class TokenGate:
    """Remembers for a minute which tokens may read a path. Keeps a hash of each, never the token."""

    def __init__(self, client: Client, path: str, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._client, self._path, self._clock = client, path, clock
        self._known: OrderedDict[bytes, tuple[float, int]] = OrderedDict()
        self._asking = 0

    async def status(self, token: str) -> int:
        """Return the HTTP status for a request with this token: 200, 401, 403, or 503 when the API server is silent."""
        digest = hashlib.sha256(token.encode()).digest()
        known = self._known.get(digest)
        if known is not None and self._clock() - known[0] < REMEMBER_SECONDS:
            return known[1]
        if self._asking >= MAX_ASKING:
            return 503
        self._asking += 1
        try:
            status = await self._ask(token)
        except ApiError:
            return 503
        finally:
            self._asking -= 1
        self._known[digest] = (self._clock(), status)
        self._known.move_to_end(digest)
        while len(self._known) > MAX_REMEMBERED:
            self._known.popitem(last=False)
        return status

    async def _ask(self, token: str) -> int:
        review = await self._client.create(TOKEN_REVIEW, _object(TOKEN_REVIEW, {"token": token}))
        found = review.get("status") or {}
        if not found.get("authenticated"):
            return 401
        user = found.get("user") or {}
        spec = {
            "user": user.get("username", ""),
            "uid": user.get("uid", ""),
            "groups": user.get("groups") or [],
            "nonResourceAttributes": {"path": self._path, "verb": "get"},
        }
        access = await self._client.create(SUBJECT_ACCESS_REVIEW, _object(SUBJECT_ACCESS_REVIEW, spec))
        return 200 if (access.get("status") or {}).get("allowed") else 403


def bearer_token(authorization: str) -> str:
    """Return the token of an Authorization header, the empty string where it holds none."""
    scheme, _, token = authorization.partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""


def _object(kind: Kind, spec: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": {}, "spec": spec}
