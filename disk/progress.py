"""Counts the progress of a download, serves it to the leader on `GET /progress`, and prints it for people."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections import deque
from collections.abc import Callable

from api.jobs import Progress
from api.words import size

_WINDOW_SECONDS = 15.0  # the period over which the rate is computed
_PRINT_SECONDS = 5.0
_REQUEST_SECONDS = 5.0  # slower clients are disconnected


class Meter:
    """Counts bytes from several threads, and prints a line every few seconds."""

    def __init__(
        self, say: Callable[[str], None] = lambda _: None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._say = say
        self._clock = clock
        self._lock = threading.Lock()
        self._total = 0
        self._done = 0
        self._history: deque[tuple[float, int]] = deque([(clock(), 0)], maxlen=256)
        self._printed = clock()

    def start(self, total: int, already: int = 0) -> None:
        """Set the total of bytes, and how many of them exist already."""
        with self._lock:
            self._total, self._done = total, already
            self._history = deque([(self._clock(), already)], maxlen=256)

    def add(self, count: int) -> None:
        """Count bytes that arrived (negative: that were discarded)."""
        with self._lock:
            self._done = max(0, self._done + count)
            now = self._clock()
            if now - self._history[-1][0] >= 0.25:
                self._history.append((now, self._done))
            due = now - self._printed >= _PRINT_SECONDS
            if due:
                self._printed = now
        if due:
            self._say(describe(self.snapshot()))

    def snapshot(self) -> Progress:
        """Return the progress in the form that the leader reads."""
        with self._lock:
            now = self._clock()
            recent = [point for point in self._history if now - point[0] <= _WINDOW_SECONDS] or [self._history[-1]]
            span = now - recent[0][0]
            rate = max(0, int((self._done - recent[0][1]) / span)) if span > 0 else 0
            done, total = self._done, self._total
        left = max(0, total - done)
        return Progress(
            downloaded_bytes=done,
            total_bytes=total,
            percentage=min(100, done * 100 // total) if total else 0,
            bytes_per_second=rate,
            remaining_seconds=left // rate if rate else None,
        )


def describe(progress: Progress) -> str:
    """Return the progress as a line for people."""
    rest = f", {progress.remaining_seconds} s left" if progress.remaining_seconds is not None else ""
    return (
        f"{progress.percentage:3d} %  {size(progress.downloaded_bytes)} of {size(progress.total_bytes)}"
        f"  {size(progress.bytes_per_second)}/s{rest}"
    )


def serve_progress(meter: Meter, port: int) -> Callable[[], None]:
    """Serve only `GET /progress`, on the address of the pod, until the returned function is called.

    If the port is not available, the progress is not served, and the download continues. Port 0 serves nothing.
    """
    if port == 0:
        return lambda: None
    from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer  # noqa: PLC0415 - lazy: start time

    class Handler(BaseHTTPRequestHandler):
        timeout = _REQUEST_SECONDS
        server_version = "aim-adapters"
        sys_version = ""

        def do_GET(self) -> None:
            """Answer the only path."""
            if self.path != "/progress":
                self.send_error(404)
                return
            body = meter.snapshot().to_json()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Log nothing: the leader asks every few seconds."""

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, request: object, client_address: object) -> None:
            """Log no traceback when a client disconnects."""

    address = os.environ.get("POD_IP") or "::"
    Server.address_family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        server = Server((address, port), Handler)
    except OSError:
        return lambda: None
    threading.Thread(target=server.serve_forever, name="progress", daemon=True).start()

    def stop() -> None:
        server.shutdown()
        server.server_close()

    return stop
