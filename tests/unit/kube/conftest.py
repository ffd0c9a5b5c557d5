"""Shared by the tests of the engine: a fake API server and a client to it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from api.kinds import Kind
from kube.auth import plain_credentials
from kube.client import Client
from tests.unit.kube.fake_api import FakeApi, serve

WIDGET = Kind("example.com", "v1", "widgets", "Widget")


@pytest.fixture
async def api() -> FakeApi:
    """A fake API server; `client` talks to it."""
    return FakeApi()


@pytest.fixture
async def client(api: FakeApi) -> AsyncIterator[Client]:
    """A client of the fake API server."""
    async with serve(api) as address, Client(plain_credentials(address), within=5) as client:
        yield client
