"""Keeps Jobs from link-local and cloud metadata addresses, which provide credentials: a tenant chooses the endpoint.

The check replaces the address lookup of every client library in this process. So it covers a name that resolves to such
an address, a redirect, and a name server that answers a second query differently.
"""

from __future__ import annotations

import contextlib
import ipaddress
import os
import socket
from typing import Any

from api.reasons import Reason
from disk.failures import DiskFailure

_METADATA = frozenset(
    ipaddress.ip_address(address)
    for address in (
        "fd00:ec2::254",  # AWS, instance metadata over IPv6
        "fd00:ec2::23",  # AWS, pod identity
        "fd20:ce::254",  # Google Cloud, metadata over IPv6
        "100.100.100.200",  # Alibaba Cloud, metadata
        "168.63.129.16",  # Azure, wire server
        "192.0.0.192",  # Oracle Cloud, metadata
    )
)
_NAT64 = ipaddress.ip_network("64:ff9b::/96")  # RFC 6052: a gateway translates to the IPv4 address in the last 32 bits
_resolve = socket.getaddrinfo
_state = {"refusing": False}


def is_refused(address: str) -> bool:
    """Return whether a numeric address is link-local or known to serve cloud metadata."""
    try:
        ip = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return False
    inner = getattr(ip, "ipv4_mapped", None) or getattr(ip, "sixtofour", None)
    if ip in _NAT64:
        inner = ipaddress.IPv4Address(int(ip) & 0xFFFF_FFFF)
    return any(one.is_link_local or one in _METADATA for one in (ip, inner) if one is not None)


def check_host(host: str) -> None:
    """Refuse a host that is a refused address in any spelling: with a proxy, this process does not resolve the name.

    Does nothing unless `refuse_link_local` was called. Raises: DiskFailure SourceEndpointRefused.
    """
    if not _state["refusing"]:
        return
    address = host.strip("[]")
    with contextlib.suppress(OSError):
        address = socket.inet_ntoa(socket.inet_aton(address))  # 2852039166, 0xa9.254.43518
    if is_refused(address):
        raise DiskFailure(Reason.SOURCE_ENDPOINT_REFUSED, f"{host} is a link-local or metadata address")


def refuse_link_local() -> None:
    """Refuse these addresses in this process from now on. A second call changes nothing."""
    os.environ["AWS_EC2_METADATA_DISABLED"] = "true"  # otherwise botocore waits for a response that cannot arrive
    if not _state["refusing"]:
        socket.getaddrinfo = _guarded
        _state["refusing"] = True


def allow_link_local_again() -> None:
    """Undo `refuse_link_local` (tests)."""
    socket.getaddrinfo = _resolve
    _state["refusing"] = False


def _guarded(host: Any, *args: Any, **kwargs: Any) -> Any:
    found = _resolve(host, *args, **kwargs)
    for entry in found:
        if is_refused(str(entry[4][0])):
            shown = host.decode(errors="replace") if isinstance(host, bytes) else host
            raise DiskFailure(Reason.SOURCE_ENDPOINT_REFUSED, f"{shown} is a link-local or metadata address")
    return found
