"""The front door: one FastAPI application that declares every route of the server.

Three listeners serve the same application: admission (TLS), health (plain HTTP), and metrics (TLS) when these are
protected. The tags of a route name the listeners that serve it, and `at_listener` hides the other routes. So a test, or
any ASGI server, can serve the whole product on one port.

Where to look: `webhooks/routes.py` (/validate, /mutate), `app/health.py` (/healthz, /livez, /readyz),
`app/metrics.py` (/metrics), `console/routes.py` (/console).
"""

from __future__ import annotations

from collections.abc import Iterator
from http import HTTPStatus

from fastapi import APIRouter, FastAPI, Request
from fastapi.responses import PlainTextResponse
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Receive, Scope, Send

LISTENERS = ("admission", "health", "metrics")


def create_application(*routers: APIRouter) -> FastAPI:
    """Return the application. The routers are made by the parts that a process runs (see `app/wiring.py`)."""
    app = FastAPI(title="aim-adapters", openapi_url=None, docs_url=None, redoc_url=None, redirect_slashes=False)
    for router in routers:
        app.include_router(router)
    app.state.routers = routers
    app.add_exception_handler(HTTPException, _plain_error)
    return app


def at_listener(app: FastAPI, name: str) -> ASGIApp:
    """Return an application that serves only the routes with this tag."""
    served = frozenset(_first_segment(route.path) for route in routes_of(app) if name in route.tags)

    async def guarded(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and _first_segment(scope["path"]) not in served:
            await PlainTextResponse("not found\n", 404)(scope, receive, send)
        else:
            await app(scope, receive, send)

    return guarded


def routes_of(app: FastAPI) -> Iterator[APIRoute]:
    """Yield the routes of an application."""
    return (route for router in app.state.routers for route in router.routes if isinstance(route, APIRoute))


def _first_segment(path: str) -> str:
    return path.split("/", 2)[1] if path.startswith("/") else ""


async def _plain_error(request: Request, error: Exception) -> PlainTextResponse:
    """Answer an error in plain text: the callers of these ports do not read FastAPI's JSON."""
    assert isinstance(error, HTTPException), "registered for this class only"
    standard = error.detail == HTTPStatus(error.status_code).phrase
    text = error.detail.lower() if standard else error.detail
    return PlainTextResponse(f"{text}\n", error.status_code, error.headers)
