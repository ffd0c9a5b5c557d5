"""A TLS echo server with our context, and clients that say what they were shown."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from cryptography import x509

from certs.pem import fingerprint_of


@asynccontextmanager
async def echo_server(context: ssl.SSLContext) -> AsyncIterator[int]:
    """Serve lines back on loopback; yields the port."""

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while line := await reader.readline():
                writer.write(line)
                await writer.drain()
        writer.close()

    server = await asyncio.start_server(echo, "127.0.0.1", 0, ssl=context)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


async def connect(
    port: int, bundle: bytes, name: str = "svc.ns.svc", **options: object
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Connect as the API server does: trusting the bundle only, checking the name."""
    context = ssl.create_default_context(cadata=bundle.decode())
    return await asyncio.open_connection("127.0.0.1", port, ssl=context, server_hostname=name)


def shown(writer: asyncio.StreamWriter) -> str:
    """Return the fingerprint of the certificate that a connection was shown."""
    tls = writer.get_extra_info("ssl_object")
    return fingerprint_of(x509.load_der_x509_certificate(tls.getpeercert(binary_form=True)))


async def close(writer: asyncio.StreamWriter) -> None:
    """Close without minding how the other side takes it."""
    writer.close()
    with contextlib.suppress(OSError, ssl.SSLError):
        await writer.wait_closed()
