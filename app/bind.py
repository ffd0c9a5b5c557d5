"""Bound sockets for the listeners of the server."""

from __future__ import annotations

import socket


def bind(address: str, port: int) -> socket.socket:
    """Return a bound TCP socket. `::` also accepts IPv4, and becomes 0.0.0.0 where IPv6 is disabled.

    Raises: OSError, whose text names address and port.
    """
    if address == "::":
        try:
            return _bind(socket.AF_INET6, address, port)
        except OSError as error:
            if _ipv6_works():
                raise _named(error, address, port) from error
            address = "0.0.0.0"  # noqa: S104 - what `::` means without IPv6
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        return _bind(family, address, port)
    except OSError as error:
        raise _named(error, address, port) from error


def _bind(family: int, address: str, port: int) -> socket.socket:
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        sock.bind((address, port))
        sock.setblocking(False)
    except OSError:
        sock.close()
        raise
    return sock


def _ipv6_works() -> bool:
    try:
        _bind(socket.AF_INET6, "::1", 0).close()
    except OSError:
        return False
    return True


def _named(error: OSError, address: str, port: int) -> OSError:
    return OSError(error.errno, f"cannot listen on {address} port {port}: {error.strerror}")
