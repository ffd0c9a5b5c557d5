"""A TLS server that takes its time in every step, for tests of connections that are given up while they are made."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import ssl
import stat
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from datetime import UTC, datetime, timedelta

from certs.decide import authority_validity, leaf_validity
from certs.pem import issue_leaf, make_authority, parse_certificate, validity_of
from certs.serve import ServingCertificate

_STEP_S = 0.003
_ANSWER = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}"


@contextlib.contextmanager
def slow_tls() -> Iterator[int]:
    """Serve `{}` over TLS on a loopback port, each step `_STEP_S` late; the port is given."""
    context = _context()
    served: list[threading.Thread] = []
    with socket.create_server(("127.0.0.1", 0), backlog=512) as listener:
        accepting = threading.Thread(target=_accept, args=(listener, context, served))
        accepting.start()
        try:
            yield int(listener.getsockname()[1])
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            accepting.join()
            for thread in served:
                thread.join()


def _context() -> ssl.SSLContext:
    now = datetime.now(UTC)
    authority = make_authority("test", authority_validity(now, timedelta(days=9)))
    life = leaf_validity(now, timedelta(days=1), validity_of(parse_certificate(authority.certificate)))
    serving = ServingCertificate()
    serving.replace(issue_leaf(authority, frozenset({"localhost"}), life))
    return serving.open_context


def trusting() -> ssl.SSLContext:
    """A client's context that takes any certificate."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def _accept(listener: socket.socket, context: ssl.SSLContext, served: list[threading.Thread]) -> None:
    while True:
        try:
            connection, _ = listener.accept()
        except OSError:
            return
        served.append(threading.Thread(target=_serve, args=(connection, context)))
        served[-1].start()


def _serve(connection: socket.socket, context: ssl.SSLContext) -> None:
    connection.settimeout(5)
    time.sleep(_STEP_S)
    with contextlib.suppress(OSError), connection, context.wrap_socket(connection, server_side=True) as talk:
        time.sleep(_STEP_S)
        while talk.recv(65536):
            time.sleep(_STEP_S)
            talk.sendall(_ANSWER)


def client_sockets(port: int) -> int:
    """How many TCP sockets this process has open, but for the server's own."""
    count = 0
    for name in os.listdir("/proc/self/fd"):
        try:
            if not stat.S_ISSOCK(os.fstat(int(name)).st_mode):
                continue
            copy = os.dup(int(name))
        except OSError:  # gone meanwhile
            continue
        with socket.socket(fileno=copy) as sock:
            count += sock.family == socket.AF_INET and sock.getsockname()[1] != port
    return count


async def cut_short(request: Callable[[], Awaitable[object]], after_s: float) -> None:
    """Begin eight requests at once and cancel them so much later."""

    async def one() -> None:
        await request()

    tasks = [asyncio.create_task(one()) for _ in range(8)]
    await asyncio.sleep(after_s)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
