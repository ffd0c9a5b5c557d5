"""Shared by the tests of the engine: a fake API server and a client to it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest

from api.kinds import Kind
from reconcile.auth import plain_credentials
from reconcile.client import Client
from tests.unit.reconcile.engine.fake_api import FakeApi, serve

WIDGET = Kind("example.com", "v1", "widgets", "Widget")


@pytest.fixture
async def api() -> FakeApi:
    """A fake API server's world; `client` talks to it."""
    return FakeApi()


@pytest.fixture
async def client(api: FakeApi) -> AsyncIterator[Client]:
    """A client of the fake API server."""
    async with serve(api) as address, Client(plain_credentials(address), within=5) as client:
        yield client


async def until(condition: Callable[[], object], seconds: float = 5.0) -> None:
    """Wait until a condition holds; fails the test after `seconds`."""
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110 - any condition over the fake's world
            await asyncio.sleep(0.01)
