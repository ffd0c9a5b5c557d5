"""Reviews as kube-apiserver sends them, for tests."""

from __future__ import annotations

import copy
from typing import Any

import httpx
import orjson
from fastapi import FastAPI

from api.kinds import AIM_SERVICE, Kind
from app.application import create_application
from webhooks.admission import Admission
from webhooks.routes import admission_router

UID = "7f0b2f0e-9f5c-4b8e-8a8e-0d6f5d1c2b3a"


def review(
    new: dict[str, Any] | None,
    old: dict[str, Any] | None = None,
    *,
    kind: Kind = AIM_SERVICE,
    version: str = "",
    operation: str = "",
    **more: Any,
) -> dict[str, Any]:
    """Return an AdmissionReview; `more` replaces fields of the request."""
    operation = operation or ("CREATE" if old is None else "UPDATE")
    gvk = {"group": kind.group, "version": kind.version, "kind": kind.kind}
    request: dict[str, Any] = {
        "uid": UID,
        "kind": gvk,
        "resource": {"group": kind.group, "version": kind.version, "resource": kind.plural},
        "requestKind": {**gvk, "version": version or kind.version},
        "name": (new or old or {}).get("metadata", {}).get("name", ""),
        "namespace": (new or old or {}).get("metadata", {}).get("namespace", ""),
        "operation": operation,
        "userInfo": {"username": "alice", "groups": ["system:authenticated"]},
        "object": copy.deepcopy(new),
        "oldObject": copy.deepcopy(old),
        "dryRun": False,
        "options": {"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1"},
        **more,
    }
    return {"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": request}


def application(admission: Admission) -> FastAPI:
    """Return the application that serves only admission."""
    return create_application(admission_router(admission))


async def post(admission: Admission, body: bytes | dict[str, Any], path: str = "/validate") -> httpx.Response:
    """Send a body to the application in this process."""
    transport = httpx.ASGITransport(app=application(admission))
    async with httpx.AsyncClient(transport=transport, base_url="https://admission") as client:
        return await client.post(path, content=body if isinstance(body, bytes) else orjson.dumps(body))


async def answer(admission: Admission, body: bytes | dict[str, Any], path: str = "/validate") -> dict[str, Any]:
    """Return the `response` of the answer."""
    reply = (await post(admission, body, path)).json()
    assert reply["apiVersion"] == "admission.k8s.io/v1"
    assert reply["kind"] == "AdmissionReview"
    response: dict[str, Any] = reply["response"]
    return response
