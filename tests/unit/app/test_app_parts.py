"""Logs, watchdog, and who may read protected metrics."""

from __future__ import annotations

import asyncio
import io
import json
import logging
import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from app.application import create_application
from app.logs import set_up_logging
from app.metrics import metrics_router
from app.tokens import TokenGate
from app.watchdog import Watchdog
from kube.errors import ServerError


@pytest.fixture
def _root_logger() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    root.handlers[:], root.level = handlers, level


@pytest.mark.usefixtures("_root_logger")
def test_a_line_of_json_has_text_and_keys() -> None:
    stream = io.StringIO()
    set_up_logging("info", "json", stream=stream)
    log = logging.getLogger("x")
    log.info("a thing happened", extra={"ns": "team", "count": 3, "odd": {1, 2}.__class__})
    log.debug("not shown")
    try:
        raise RuntimeError("boom")
    except RuntimeError:
        log.exception("failed")
    first, second = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert (first["message"], first["ns"], first["count"], first["level"]) == ("a thing happened", "team", 3, "info")
    assert first["time"].endswith("Z")
    assert "RuntimeError: boom" in second["stack"]


@pytest.mark.usefixtures("_root_logger")
def test_people_get_logfmt() -> None:
    stream = io.StringIO()
    set_up_logging("debug", "logfmt", stream=stream)
    logging.getLogger("x").info("done", extra={"ns": "a b", "n": 1})
    assert stream.getvalue().rstrip().endswith('INFO    done ns="a b" n=1')


@pytest.mark.usefixtures("_root_logger")
def test_auto_is_json_without_a_terminal() -> None:
    stream = io.StringIO()
    set_up_logging("info", "auto", stream=stream)
    logging.getLogger("x").info("done")
    assert json.loads(stream.getvalue())["message"] == "done"


async def test_the_watchdog_sees_a_stall_and_forgets_it_after_a_minute() -> None:
    clock = [0.0]
    watchdog = Watchdog(clock=lambda: clock[0])
    for late in (0.01, 0.3, 0.02):
        clock[0] += 1
        watchdog.note(late)
    assert watchdog.longest() == 0.3
    clock[0] += 59.5
    assert watchdog.longest() == 0.02
    clock[0] += 60
    assert (watchdog.longest(), watchdog.longest_ever) == (0.0, 0.3)


async def test_the_watchdog_measures_a_real_stall() -> None:
    watchdog = Watchdog(tick_seconds=0.01)
    task = asyncio.create_task(watchdog.run())
    await asyncio.sleep(0.05)
    time.sleep(0.2)  # noqa: ASYNC251 - the stall
    await asyncio.sleep(0.05)
    assert 0.1 < watchdog.longest() < 1
    assert watchdog.longest_cpu() < 0.1, "it slept"
    until = time.thread_time() + 0.3
    while time.thread_time() < until:
        pass
    await asyncio.sleep(0.05)
    task.cancel()
    assert watchdog.longest_cpu() > 0.2, "it worked"


class Reviews:
    """The API server's part: who a token is, and whether they may."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.down = False

    async def create(self, kind: Any, obj: dict[str, Any]) -> dict[str, Any]:
        self.asked.append(kind.kind)
        if self.down:
            raise ServerError(503)
        if kind.kind == "TokenReview":
            token = obj["spec"]["token"]
            return {"status": {"authenticated": token != "bad", "user": {"username": token, "groups": ["g"]}}}
        assert obj["spec"]["nonResourceAttributes"] == {"path": "/metrics", "verb": "get"}
        return {"status": {"allowed": obj["spec"]["user"] == "prometheus"}}


async def ask(gate: TokenGate, header: bytes | None) -> int:
    transport = httpx.ASGITransport(app=create_application(metrics_router(gate)))
    async with httpx.AsyncClient(transport=transport, base_url="https://metrics") as client:
        headers = [(b"authorization", header)] if header is not None else []
        return (await client.get("/metrics", headers=headers)).status_code


@pytest.mark.parametrize(
    ("header", "status"),
    [(None, 401), (b"Basic x", 401), (b"Bearer bad", 401), (b"Bearer stranger", 403), (b"bearer prometheus", 200)],
)
async def test_only_tokens_that_may_read_metrics_pass(header: bytes | None, status: int) -> None:
    assert await ask(TokenGate(Reviews(), "/metrics"), header) == status  # type: ignore[arg-type]


async def test_a_denial_keeps_its_own_words() -> None:
    transport = httpx.ASGITransport(create_application(metrics_router(TokenGate(Reviews(), "/metrics"))))  # type: ignore[arg-type]
    async with httpx.AsyncClient(transport=transport, base_url="http://x") as client:
        answer = await client.get("/metrics", headers={"authorization": "Bearer stranger"})
        assert (answer.status_code, answer.text) == (403, "this token may not GET /metrics\n")
        assert (await client.get("/nothing")).text == "not found\n"


async def test_an_answer_is_remembered_for_a_minute_and_a_failure_is_not() -> None:
    reviews, clock = Reviews(), [0.0]
    gate = TokenGate(reviews, "/metrics", clock=lambda: clock[0])  # type: ignore[arg-type]
    reviews.down = True
    assert await ask(gate, b"Bearer prometheus") == 503
    reviews.down = False
    assert [await ask(gate, b"Bearer prometheus") for _ in range(3)] == [200] * 3
    assert len(reviews.asked) == 3
    clock[0] += 61
    assert await ask(gate, b"Bearer prometheus") == 200
    assert len(reviews.asked) == 5
