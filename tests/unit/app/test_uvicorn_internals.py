"""The server uses internals of uvicorn, in three files. A release that changes one of them fails here, with its name.

When it does: read the new source of uvicorn's `httptools_impl.py` and `server.py` beside `app/protocol.py`,
`app/server.py` and `webhooks/fast/protocol.py`, change those where they need it, and write down the new fingerprints.
"""

from __future__ import annotations

import inspect
import re
from hashlib import blake2b
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

ROOT = Path(__file__).parents[3]
USERS = ("app/protocol.py", "app/server.py", "webhooks/fast/protocol.py")

KNOWN: dict[str, tuple[Any, str]] = {
    "HttpToolsProtocol.connection_made": (HttpToolsProtocol.connection_made, "0a47c60eea25"),
    "HttpToolsProtocol.connection_lost": (HttpToolsProtocol.connection_lost, "be99a8fab6a5"),
    "HttpToolsProtocol.eof_received": (HttpToolsProtocol.eof_received, "0522a90c03f1"),
    "HttpToolsProtocol._unset_keepalive_if_required": (HttpToolsProtocol._unset_keepalive_if_required, "73aec69f7dd7"),
    "HttpToolsProtocol.data_received": (HttpToolsProtocol.data_received, "0b0758ca0584"),
    "HttpToolsProtocol.send_400_response": (HttpToolsProtocol.send_400_response, "535f1dd45a4c"),
    "HttpToolsProtocol.on_message_begin": (HttpToolsProtocol.on_message_begin, "fa1793fb5641"),
    "HttpToolsProtocol.on_headers_complete": (HttpToolsProtocol.on_headers_complete, "c05f438e0509"),
    "HttpToolsProtocol._start_asgi_task": (HttpToolsProtocol._start_asgi_task, "857f6e85212c"),
    "HttpToolsProtocol.on_body": (HttpToolsProtocol.on_body, "337e54f37cb6"),
    "HttpToolsProtocol.on_message_complete": (HttpToolsProtocol.on_message_complete, "ceb7d23780e3"),
    "HttpToolsProtocol.on_response_complete": (HttpToolsProtocol.on_response_complete, "41dbcb20eefa"),
    "HttpToolsProtocol.shutdown": (HttpToolsProtocol.shutdown, "3901bbc9a026"),
    "HttpToolsProtocol.timeout_keep_alive_handler": (HttpToolsProtocol.timeout_keep_alive_handler, "5bffb8d4b4bd"),
    "RequestResponseCycle.__init__": (RequestResponseCycle.__init__, "db517958413a"),
    "RequestResponseCycle.run_asgi": (RequestResponseCycle.run_asgi, "2568fa74e467"),
    "RequestResponseCycle.send": (RequestResponseCycle.send, "1f5ca238e930"),
    "RequestResponseCycle.receive": (RequestResponseCycle.receive, "9e7e8f6bd718"),
    "uvicorn.Server.serve": (uvicorn.Server.serve, "1b119b04b1fa"),
    "uvicorn.Server._serve": (uvicorn.Server._serve, "2ef60af67f03"),
    "uvicorn.Server.startup": (uvicorn.Server.startup, "d3668eb38686"),
    "uvicorn.Server.main_loop": (uvicorn.Server.main_loop, "7febbebfe340"),
    "uvicorn.Server.capture_signals": (uvicorn.Server.capture_signals, "fe6df5b13303"),
    "uvicorn.Server.shutdown": (uvicorn.Server.shutdown, "07c2d9280ce1"),
}


def fingerprint(function: Any) -> str:
    """Return a hash of a function's source; white space does not count."""
    source = re.sub(r"\s+", " ", inspect.getsource(function))
    return blake2b(source.encode(), digest_size=6).hexdigest()


@pytest.mark.parametrize("name", KNOWN)
def test_a_function_that_is_overridden_or_called_is_unchanged(name: str) -> None:
    function, known = KNOWN[name]
    assert fingerprint(function) == known, f"uvicorn {uvicorn.__version__} changed {name}"


def test_the_attributes_exist() -> None:
    made = inspect.getsource(HttpToolsProtocol.__init__) + inspect.getsource(HttpToolsProtocol.on_message_begin)
    for name in ("connections", "cycle", "expect_100_continue", "flow", "loop", "parser", "pipeline", "server_state"):
        assert f"self.{name}" in made, name
    for name in ("timeout_keep_alive", "timeout_keep_alive_task", "transport", "url"):
        assert f"self.{name}" in made, name
    made = inspect.getsource(RequestResponseCycle.__init__)
    for name in ("default_headers", "disconnected", "flow", "keep_alive", "message_event", "on_response", "scope"):
        assert f"self.{name}" in made, name
    for name in ("response_complete", "response_started", "transport"):
        assert f"self.{name}" in made, name


def test_only_these_files_use_internals() -> None:
    importing = {
        str(path.relative_to(ROOT))
        for room in ("api", "rules", "kube", "webhooks", "reconcile", "disk", "certs", "console", "app", "cli")
        for path in (ROOT / room).rglob("*.py")
        if re.search(r"^(from|import) uvicorn\b", path.read_text(), re.MULTILINE)
    }
    assert importing == set(USERS)
