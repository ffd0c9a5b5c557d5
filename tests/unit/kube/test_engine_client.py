"""The client over a real socket: errors, guard, pages, watch lines of any length."""

from __future__ import annotations

import asyncio
import dataclasses
import json
from collections.abc import Callable

import pytest
import uvloop
from aiohttp import web

from api import view
from kube.auth import plain_credentials
from kube.client import Client
from kube.errors import (
    AlreadyExists,
    ApiError,
    Conflict,
    Denied,
    Forbidden,
    Gone,
    Invalid,
    MalformedApply,
    NotFound,
    NotLeading,
    ServerError,
    Terminal,
    TooManyRequests,
    Transient,
    Unauthorized,
    Unreachable,
    WebhookDown,
    parse_error,
)
from tests.slow_tls import client_sockets, cut_short, slow_tls, trusting
from tests.unit.kube.conftest import WIDGET
from tests.unit.kube.fake_api import FakeApi, serve, status

CASES: dict[str, tuple[int, str, str, type[ApiError], type[Exception]]] = {
    "rbac": (403, "Forbidden", 'widgets is forbidden: User "x" cannot', Forbidden, Transient),
    "a webhook's no": (403, "Forbidden", 'admission webhook "v" denied the request: bad', Denied, Terminal),
    "a webhook's no with a code of its own": (400, "", 'admission webhook "v" denied the request: x', Denied, Terminal),
    "unknown field under apply": (500, "", "failed to create typed patch object (a/b)", MalformedApply, Terminal),
    "webhook down": (500, "InternalError", 'failed calling webhook "v": dial', WebhookDown, Transient),
    "schema": (422, "Invalid", "spec.x: Required value", Invalid, Terminal),
    "lost update": (409, "Conflict", "the object has been modified", Conflict, Transient),
    "taken name": (409, "AlreadyExists", "exists", AlreadyExists, Transient),
    "compacted": (410, "Expired", "too old", Gone, Transient),
    "expired in a watch": (500, "Expired", "too old", Gone, Transient),
    "absent": (404, "NotFound", "no", NotFound, Transient),
    "who are you": (401, "Unauthorized", "", Unauthorized, Transient),
    "busy": (429, "TooManyRequests", "", TooManyRequests, Transient),
    "proxy page": (502, "", "", ServerError, Transient),
    "teapot": (418, "", "", Invalid, Terminal),
}


@pytest.mark.parametrize(("code", "reason", "message", "kind", "retry"), CASES.values(), ids=CASES)
def test_errors_say_whether_trying_again_helps(
    code: int, reason: str, message: str, kind: type[ApiError], retry: type[Exception]
) -> None:
    body = (
        f'{{"reason": "{reason}", "message": {message!r}}}'.replace("'", "\0").replace('"v"', "v").replace('"x"', "x")
    )
    error = parse_error(code, body.replace("\0", '"').encode(), "7")
    assert type(error) is kind
    assert isinstance(error, retry)


def test_an_answer_that_is_not_json_keeps_its_words() -> None:
    assert parse_error(502, b"<html>bad gateway</html>").message == "<html>bad gateway</html>"


def test_a_webhook_that_is_down_is_named_without_what_changes_from_one_try_to_the_next() -> None:
    said = 'Internal error occurred: failed calling webhook "v.x": failed to call webhook: read tcp 127.0.0.1:4711->…'
    error = parse_error(500, json.dumps({"reason": "InternalError", "message": said}).encode())
    assert error.message == 'Internal error occurred: failed calling webhook "v.x": it gives no answer'


def test_retry_after_comes_from_header_or_details() -> None:
    by_header, by_details = parse_error(429, b"", "7"), parse_error(500, b'{"details": {"retryAfterSeconds": 3}}')
    assert isinstance(by_header, Transient)
    assert isinstance(by_details, Transient)
    assert (by_header.retry_after, by_details.retry_after) == (7, 3)


async def test_create_get_apply_delete(api: FakeApi, client: Client) -> None:
    obj = {"metadata": {"namespace": "ns", "name": "a"}, "spec": {"x": 1}}
    created = await client.create(WIDGET, obj)
    with pytest.raises(AlreadyExists):
        await client.create(WIDGET, obj)
    assert (await client.get(WIDGET, "ns", "a"))["spec"] == {"x": 1}
    applied = await client.apply(WIDGET, {**obj, "spec": {"x": 2}})
    assert applied["metadata"]["resourceVersion"] != created["metadata"]["resourceVersion"]
    assert "fieldManager=aim-adapters&force=true" in api.requests[-1][1]
    with pytest.raises(Conflict):
        await client.delete(WIDGET, "ns", "a", uid="another")
    assert await client.delete(WIDGET, "ns", "a", uid=created["metadata"]["uid"]) is True
    assert await client.delete(WIDGET, "ns", "a") is False
    assert await client.find(WIDGET, "ns", "a") is None


async def test_a_dry_run_says_so(api: FakeApi, client: Client) -> None:
    await client.apply(WIDGET, {"metadata": {"namespace": "ns", "name": "a"}}, dry_run=True)
    assert "dryRun=All" in api.requests[-1][1]


async def test_unknown_fields_are_looked_for_only_when_warnings_are_read(api: FakeApi, client: Client) -> None:
    obj = {"metadata": {"namespace": "ns", "name": "a"}, "spec": {}}
    await client.apply(WIDGET, obj)
    await client.patch_status(WIDGET, "ns", "a", {"status": {"x": 1}})
    assert ["fieldValidation=Ignore" in path for _, path in api.requests[-2:]] == [True, True]
    client.heard = []
    await client.apply(WIDGET, obj)
    assert "fieldValidation" not in api.requests[-1][1]


async def test_a_client_may_have_its_fields_checked(api: FakeApi) -> None:
    async with serve(api) as address, Client(plain_credentials(address), field_validation="Strict") as client:
        await client.guarded(Countdown(5.0)).apply(WIDGET, {"metadata": {"namespace": "ns", "name": "a"}})
    assert "fieldValidation=Strict" in api.requests[-1][1]


async def test_a_slow_answer_is_unreachable(api: FakeApi, client: Client) -> None:
    api.fail = [5.0]
    with pytest.raises(Unreachable, match="Timeout"):
        await client.get(WIDGET, "ns", "a", within=0.1)


async def test_no_server_is_unreachable() -> None:
    from kube.auth import plain_credentials

    async with Client(plain_credentials("http://127.0.0.1:1")) as client:
        with pytest.raises(Unreachable):
            await client.get(WIDGET, "ns", "a")


class Countdown:
    """A guard that says the next of some answers."""

    def __init__(self, *seconds: float) -> None:
        self.seconds = list(seconds)

    def remaining(self) -> float:
        return self.seconds.pop(0) if len(self.seconds) > 1 else self.seconds[0]


async def test_no_write_leaves_without_the_guard(api: FakeApi, client: Client) -> None:
    guarded = client.guarded(Countdown(0.0))
    with pytest.raises(NotLeading):
        await guarded.apply(WIDGET, {"metadata": {"namespace": "ns", "name": "a"}})
    with pytest.raises(NotLeading):
        await guarded.delete(WIDGET, "ns", "a")
    assert api.requests == []


async def test_the_guard_is_asked_again_when_the_body_is_sent(api: FakeApi, client: Client) -> None:
    """The lease ran out while the write waited for a connection."""
    guarded = client.guarded(Countdown(5.0, 0.0))
    with pytest.raises(NotLeading):
        await guarded.apply(WIDGET, {"metadata": {"namespace": "ns", "name": "a"}})
    assert api.objects == {}


async def test_a_guarded_write_ends_before_its_lease(api: FakeApi, client: Client) -> None:
    api.fail = [5.0]
    guarded = client.guarded(Countdown(0.2))
    with pytest.raises(Unreachable, match="Timeout"):
        await guarded.apply(WIDGET, {"metadata": {"namespace": "ns", "name": "a"}})
    assert "timeout=200ms" in api.requests[-1][1]


async def test_a_guard_does_not_block_reads(api: FakeApi, client: Client) -> None:
    api.put("widgets", "ns", "a")
    assert await client.guarded(Countdown(0.0)).get(WIDGET, "ns", "a")


async def test_lists_come_in_pages_with_one_version(api: FakeApi, client: Client) -> None:
    for number in range(250):
        api.put("widgets", "ns", f"{number:04}")
    pages = [page async for page in client.list_pages(WIDGET, limit=120)]
    assert [len(page.items) for page in pages] == [100, 120, 30]
    assert {page.resource_version for page in pages} == {"250"}
    assert pages[0].items[0]["kind"] == "Widget"


async def test_pages_shrink_when_objects_are_large(api: FakeApi, client: Client) -> None:
    for number in range(150):
        api.put("widgets", "ns", f"{number:04}", data="x" * 20_000)
    pages = [page async for page in client.list_pages(WIDGET)]
    assert [len(page.items) for page in pages] == [100, 24, 24, 2]


async def test_a_list_is_begun_again_when_its_token_expires(api: FakeApi, client: Client) -> None:
    for number in range(150):
        api.put("widgets", "ns", f"{number:04}")

    def once() -> None:
        api.page_hook = None
        api.compact()

    api.page_hook = once
    items, version = await client.list_all(WIDGET)
    assert (len(items), version) == (150, str(api.now))


async def test_a_watch_event_may_be_larger_than_any_buffer(api: FakeApi, client: Client) -> None:
    api.put("widgets", "ns", "big", data="x" * 3_000_000, status={"phase": "Ready"})
    async for event in client.watch(WIDGET, "0"):
        assert event.object["metadata"]["name"] == "big"
        assert event.object["status"] == {"phase": "Ready"}
        left = view.left_out(event.object)
        assert left == {"reason": "TooLarge", "detail": "data has 2.9 MiB, more than 256 KiB"}
        break


async def test_a_401_is_tried_once_more_with_fresh_credentials(api: FakeApi, client: Client) -> None:
    api.put("widgets", "ns", "a")
    api.fail = [status(401, "Unauthorized")]
    assert await client.get(WIDGET, "ns", "a")
    api.fail = [status(401, "Unauthorized"), status(401, "Unauthorized")]
    with pytest.raises(Unauthorized):
        await client.get(WIDGET, "ns", "a")


async def test_busy_server_says_for_how_long(api: FakeApi, client: Client) -> None:
    answer: web.Response = status(429, "TooManyRequests", headers={"Retry-After": "9"})
    api.fail = [answer]
    with pytest.raises(TooManyRequests) as caught:
        await client.get(WIDGET, "ns", "a")
    assert caught.value.retry_after == 9


@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def test_requests_that_are_cancelled_while_they_connect_leave_no_socket(
    loop: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    """At any moment of the handshake, and though the loop ends right after the client."""

    async def run(port: int, after_s: float) -> int:
        before = client_sockets(port)
        credentials = dataclasses.replace(plain_credentials(f"https://127.0.0.1:{port}"), tls=trusting())
        async with Client(credentials, within=5) as client:
            await cut_short(lambda: client.get(WIDGET, "default", "x"), after_s)
        return client_sockets(port) - before

    with slow_tls() as port:
        left = []
        for step in range(25):
            with asyncio.Runner(loop_factory=loop) as runner:
                left.append(runner.run(run(port, step * 0.001)))
    assert left == [0] * 25
