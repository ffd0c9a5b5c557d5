"""The front door: one application serves every route, with FastAPI's test client as with any ASGI server."""

from __future__ import annotations

from collections.abc import Iterator

import orjson
import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from starlette.types import ASGIApp, Receive, Scope, Send

from app.application import LISTENERS, at_listener, create_application, routes_of
from app.health import Readiness, flag_check, health_router
from app.metrics import metrics_router
from console.routes import Limits
from rules.examples import manifest, surroundings
from tests.console.scene import Scene, service
from tests.unit.webhooks.reviews import UID, review
from webhooks.admission import Admission
from webhooks.fast.admission import make_admission
from webhooks.routes import admission_router

REVIEW = orjson.dumps(review(manifest("AIMService", {})))
TOKEN = {"Authorization": "Bearer good-token"}


@pytest.fixture(params=["port-forward", "token"])
def scene(request: pytest.FixtureRequest) -> Scene:
    found = Scene(console_access=request.param, limits=Limits(period=0.01, recheck=0.0))
    found.put(service("team-a", "gemma"))
    return found


@pytest.fixture
def whole(scene: Scene) -> FastAPI:
    """The application with every route that a process can have."""
    checks = [flag_check("running", lambda: None), flag_check("certificate", lambda: "old", vital=False)]
    admission = admission_router(make_admission(surroundings()))
    return create_application(health_router(checks), metrics_router(), admission, scene.console.router())


@pytest.fixture
def client(whole: FastAPI) -> Iterator[TestClient]:
    with TestClient(forwarded(whole), base_url="http://localhost", follow_redirects=False) as found:
        yield found


def forwarded(app: ASGIApp) -> ASGIApp:
    """Return the application as a port-forward reaches it: from inside the pod."""

    async def local(scope: Scope, receive: Receive, send: Send) -> None:
        await app({**scope, "client": ("127.0.0.1", 1)}, receive, send)

    return local


def test_every_route_answers(whole: FastAPI, client: TestClient, scene: Scene) -> None:
    scene.console.close()  # a stream would last
    expected = {"/readyz": 200, "/console/": 307, "/console/stream": 503, "/console/sign-out": 303}
    expected["/console/sign-in"] = 401  # an empty form
    seen = set()
    for route in routes_of(whole):
        path = route.path.replace("{rest:path}", "nothing")
        method = "POST" if path in ("/validate", "/mutate", "/console/sign-in", "/console/sign-out") else "GET"
        reply = client.request(method, path, content=REVIEW if method == "POST" else None, headers=TOKEN)
        wanted = 404 if path.endswith("nothing") else expected.get(path, 200)
        assert reply.status_code == wanted, (method, path, reply.text)
        seen.add(path)
    assert {"/validate", "/mutate", "/healthz", "/livez", "/readyz", "/metrics", "/console"} < seen


def test_reviews_are_answered(client: TestClient) -> None:
    reply = client.post("/validate?timeout=5s", content=REVIEW)
    assert reply.json()["response"] == {"uid": UID, "allowed": True}


def test_a_stream_is_served_until_its_token_ends() -> None:
    scene = Scene(console_access="token", limits=Limits(period=0.01, recheck=0.0))
    client = TestClient(create_application(scene.console.router()))
    answers = iter([200, 200, 401])
    scene.console._check = lambda token: _later(next(answers))
    reply = client.get("/console/stream", headers=TOKEN)
    assert (reply.status_code, reply.headers["content-type"]) == (200, "text/event-stream")
    assert "event: update" in reply.text


async def _later(status: int) -> int:
    return status


def test_readiness_in_text_and_as_json(client: TestClient) -> None:
    assert client.get("/readyz").text == "[+] running: ok\n[!] certificate: old\nready\n"
    found = Readiness.model_validate(client.get("/readyz", headers={"Accept": "application/json"}).json())
    assert [(check.name, check.status, check.problem) for check in found.checks] == [
        ("running", "ok", None),
        ("certificate", "warning", "old"),
    ]


@pytest.mark.parametrize(("method", "path", "status"), [("GET", "/nothing", 404), ("POST", "/healthz", 405)])
def test_errors_are_plain_text(client: TestClient, method: str, path: str, status: int) -> None:
    reply = client.request(method, path)
    assert (reply.status_code, reply.headers["content-type"]) == (status, "text/plain; charset=utf-8")


@pytest.mark.parametrize("path", ["/docs", "/redoc", "/openapi.json"])
def test_the_schema_is_not_served(client: TestClient, path: str) -> None:
    assert client.get(path).status_code == 404


SERVED = {
    "admission": {"/validate": 200, "/mutate": 200, "/healthz": 405, "/readyz": 404, "/metrics": 404, "/console": 404},
    "health": {"/validate": 404, "/mutate": 404, "/healthz": 405, "/readyz": 405, "/metrics": 405, "/console": 405},
    "metrics": dict.fromkeys(("/validate", "/mutate", "/healthz", "/readyz", "/metrics", "/console"), 404),
}


@pytest.mark.parametrize(("listener", "served"), SERVED.items(), ids=SERVED)
def test_a_listener_serves_only_its_routes(whole: FastAPI, listener: str, served: dict[str, int]) -> None:
    """Each path gets a POST: 404 for hidden routes, 405 for those that only take a GET."""
    client = TestClient(forwarded(at_listener(whole, listener)), base_url="http://localhost")
    assert {path: client.post(path, content=REVIEW).status_code for path in served} == served


def test_each_route_belongs_to_a_listener(whole: FastAPI) -> None:
    for route in routes_of(whole):
        assert route.tags, route.path
        assert set(route.tags) <= set(LISTENERS), route.path


def test_admission_alone_needs_no_other_part() -> None:
    client = TestClient(create_application(admission_router(Admission(surroundings()))))
    assert client.post("/validate", content=REVIEW).status_code == 200
