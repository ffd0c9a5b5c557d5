"""The console in the whole process, over a small API server: from an object to the page, and the end."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path
from typing import Any

import httpx
import pytest

import app.serve
from api.kinds import AIM_KINDS
from app.serve import Stop
from app.settings import load_settings
from tests.console.scene import adapter, service
from tests.unit.console.test_console_http import events
from tests.unit.kube.fake_api import FakeApi, serve, write_kubeconfig
from tests.waiting import until


@pytest.mark.parametrize("console", [True, False])
async def test_the_console_in_the_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, console: bool) -> None:
    made: list[Any] = []
    real = app.serve._Process
    monkeypatch.setattr(app.serve, "_Process", lambda *args: made.append(real(*args)) or made[0])
    api = FakeApi()
    api.served |= {kind.plural for kind in AIM_KINDS}
    one = service("team-a", "gemma", adapter("cs-tone-v3"))
    api.put("aimservices", "team-a", "gemma", spec=one["spec"], status=one["status"])
    api.put("events", "team-a", "e1", reason="AdapterLoaded", message="written by another replica", type="Normal")
    stop = Stop()
    async with serve(api) as server, asyncio.timeout(60):
        write_kubeconfig(tmp_path / "kubeconfig", server)
        given: dict[str, Any] = {
            "kubeconfig": str(tmp_path / "kubeconfig"),
            "namespace": "ns",
            "bind_address": "127.0.0.1",
        }
        given |= {"health_port": "0", "drain": "200ms", "admission": False, "console": console}
        # nothing reconciles here: the controllers wait for a lease that another process holds
        api.put("leases", "ns", "aim-adapters", spec=_held())
        task = asyncio.create_task(app.serve.serve(load_settings(given, environ={})[0], stop))
        await until(lambda: bool(made) and all(one.started for one in made[0]._servers))
        url = f"http://127.0.0.1:{made[0]._servers[0].address[1]}/console"
        async with httpx.AsyncClient(trust_env=False, timeout=30) as http:
            if not console:
                assert (await http.get(url)).status_code == 404
            else:
                await _look(http, url, api, stop)
        stop.ask() if not stop.asked.is_set() else None
        assert await task == 0


async def _look(http: httpx.AsyncClient, url: str, api: FakeApi, stop: Stop) -> None:
    async with http.stream("GET", f"{url}/stream") as answer:
        heard = events(answer)
        told = ""
        while not ("gemma" in told and "written by another replica" in told):
            told += json.dumps((await anext(heard))[1])
        assert "serves no admission webhook" in told
        stop.ask()
        began = time.monotonic()
        async for _ in heard:
            pass
        assert time.monotonic() - began < 3


def _held() -> dict[str, Any]:
    from datetime import UTC, datetime

    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    return {"holderIdentity": "other", "leaseDurationSeconds": 3600, "renewTime": now, "acquireTime": now}
