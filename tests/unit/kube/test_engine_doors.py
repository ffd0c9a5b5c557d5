"""The private doors of kubernetes-asyncio and aiohttp: each test fails when a release changes one."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web

from kube import auth
from kube.auth import Credentials
from kube.doors import CheckedBody, load_library


def test_the_client_does_not_load_generated_models() -> None:
    """36 MB and a quarter second of every process; and a later ordinary import gets the whole library."""
    code = (
        "import sys; from kube.doors import load_library; load_library();"
        "assert not [m for m in sys.modules if m.startswith('kubernetes_asyncio')];"
        "import kubernetes_asyncio.client as c; assert c.CoreV1Api"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_the_loaders_fill_the_fields_of_the_configuration_that_are_read() -> None:
    configuration_class, config = load_library()
    configuration = configuration_class()
    for field in ("host", "tls_server_name", "proxy", "ssl_ca_cert", "cert_file", "key_file", "verify_ssl"):
        assert hasattr(configuration, field), field
    assert issubclass(config.ConfigException, Exception)
    assert asyncio.iscoroutinefunction(configuration.get_api_key_with_prefix)


async def test_a_body_is_checked_when_it_is_sent_and_not_when_it_is_made() -> None:
    """The exception of the check reaches the caller as the cause of aiohttp's own exception; no body is sent."""
    received: list[bytes] = []

    async def take(request: web.Request) -> web.Response:
        received.append(await request.read())
        return web.Response()

    class NoError(Exception):
        pass

    def refuse() -> None:
        raise NoError

    app = web.Application()
    app.router.add_post("/", take)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    url = f"http://127.0.0.1:{runner.addresses[0][1]}/"
    try:
        async with aiohttp.ClientSession() as session:
            await session.post(url, data=CheckedBody(b"1", lambda: None, content_type="text/plain"))
            refused = CheckedBody(b"2", refuse, content_type="text/plain")
            with pytest.raises(aiohttp.ClientError) as caught:
                await session.post(url, data=refused)
        assert isinstance(caught.value.__cause__, NoError)
    finally:
        await runner.cleanup()
    assert received == [b"1"]


async def test_the_token_file_of_a_pod_is_read_again_after_a_minute_and_after_a_401(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    token_file = tmp_path / "token"
    token_file.write_text("first\n")
    credentials = Credentials("https://127.0.0.1:1", None, None, None, None, _token_file=token_file)
    assert await credentials.header() == "Bearer first"
    token_file.write_text("second\n")
    assert await credentials.header() == "Bearer first"
    await credentials.refresh()
    assert await credentials.header() == "Bearer second"
    token_file.write_text("third\n")
    credentials._read_at -= auth.REFRESH.total_seconds() + 1
    assert await credentials.header() == "Bearer third"


async def test_credentials_in_a_pod_come_from_its_service_account(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    configuration_class, config = load_library()

    def as_in_a_pod(client_configuration: object, try_refresh_token: bool) -> None:
        assert isinstance(client_configuration, configuration_class)
        assert try_refresh_token is False
        client_configuration.host = "http://10.0.0.1:443"

    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    monkeypatch.setattr(config, "load_incluster_config", as_in_a_pod)
    monkeypatch.setattr(auth, "TOKEN_FILE", tmp_path / "token")
    (tmp_path / "token").write_text("secret\n")
    credentials = await auth.load_credentials()
    assert (credentials.server, await credentials.header()) == ("http://10.0.0.1:443", "Bearer secret")
