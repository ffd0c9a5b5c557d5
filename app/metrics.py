"""The route `/metrics`: open on the health port, or on a port of its own for bearer tokens that may read it."""

from __future__ import annotations

from fastapi import APIRouter, Depends, Request, Response
from prometheus_client import CONTENT_TYPE_LATEST, REGISTRY, disable_created_metrics, generate_latest
from starlette.exceptions import HTTPException

from app.tokens import TokenGate, bearer_token

disable_created_metrics()  # type: ignore[no-untyped-call]  # a second series each, which docs/metrics.md leaves out

_DENIALS = {401: "a bearer token is required", 403: "this token may not GET /metrics", 503: "try again"}


def metrics_router(gate: TokenGate | None = None) -> APIRouter:
    """Return the route. Args: `gate` protects it, and moves it from the health port to the metrics port."""

    async def permitted(request: Request) -> None:
        if gate is None:
            return
        token = bearer_token(request.headers.get("authorization", ""))
        status = await gate.status(token) if token else 401
        if status != 200:
            raise HTTPException(status, _DENIALS[status])

    router = APIRouter(tags=["health" if gate is None else "metrics"], dependencies=[Depends(permitted)])

    @router.api_route("/metrics", methods=["GET", "HEAD"])
    async def metrics() -> Response:
        return Response(generate_latest(REGISTRY), media_type=CONTENT_TYPE_LATEST)

    return router
