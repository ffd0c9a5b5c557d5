"""An admission server for tests: records each review, allows all but objects labelled `refuse`. TLS, on one address."""

from __future__ import annotations

import json
import ssl
import tempfile
import threading
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Self

from api.view import JsonObject
from certs.decide import Validity
from certs.pem import Pair, issue_leaf, make_authority


def make_pair(*names: str) -> tuple[Pair, Pair]:
    """Return an authority and a leaf of it, both valid for a day."""
    now = datetime.now(UTC)
    validity = Validity(now - timedelta(hours=1), now + timedelta(days=1))
    authority = make_authority("chart tests", validity)
    return authority, issue_leaf(authority, frozenset(names), validity)


@dataclass
class AdmissionStub:
    """Serves while in its `with` block."""

    address: str
    port: int
    leaf: Pair
    reviews: list[tuple[str, JsonObject]] = field(default_factory=list)  # path, the review's request

    def __enter__(self) -> Self:
        stub = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                review = json.loads(self.rfile.read(int(self.headers["content-length"])))
                request = review["request"]
                stub.reviews.append((self.path.partition("?")[0], request))
                labels = (request.get("object") or {}).get("metadata", {}).get("labels") or {}
                answer = {"uid": request["uid"], "allowed": "refuse" not in labels}
                body = json.dumps({**review, "request": None, "response": answer}).encode()
                self.send_response(200)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:
                """Say nothing."""

        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        with tempfile.TemporaryDirectory() as folder:
            for name, content in (("tls.crt", self.leaf.certificate), ("tls.key", self.leaf.key)):
                (Path(folder) / name).write_bytes(content)
            context.load_cert_chain(Path(folder) / "tls.crt", Path(folder) / "tls.key")
        self._server = ThreadingHTTPServer((self.address, self.port), Handler)
        self._server.daemon_threads = True
        self._server.block_on_close = False
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.1}, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()

    def take(self, *, dry_runs: bool = False) -> list[tuple[str, str, str, str]]:
        """Return and forget what was reviewed: (path, operation, kind, version); dry runs are left out."""
        found = [
            (path, request["operation"], request["kind"]["kind"], request["requestKind"]["version"])
            for path, request in self.reviews
            if dry_runs or not request.get("dryRun")
        ]
        self.reviews.clear()
        return found
