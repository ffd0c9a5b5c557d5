"""Who can open the console. Pure, except for the token check, which the process passes in.

By port-forward: connections from inside the pod, so users who can forward ports of the pod can open the console.
By token: a bearer token of an account that may GET /console, in the header or, for browsers, in a cookie.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from ipaddress import IPv6Address, ip_address
from typing import Any

Headers = Iterable[tuple[bytes, bytes]]
TokenCheck = Callable[[str], Awaitable[int]]  # token -> 200, 401, 403, or 503 when the API server does not answer

COOKIE = "aim-console"
_TOKEN = re.compile(r"[A-Za-z0-9._~+/=-]{1,4000}")
_BEARER = b"bearer "
_PROXIED = frozenset(
    {b"forwarded", b"x-forwarded-for", b"x-forwarded-host", b"x-real-ip", b"via", b"x-envoy-peer-metadata"}
)


@dataclass(frozen=True, slots=True)
class Denial:
    """Why a visitor has no access: an HTTP status and a text."""

    status: int
    title: str
    words: str


FOREIGN = Denial(
    403,
    "Only through a port-forward",
    "The console answers only connections from inside the pod. Run "
    '"kubectl port-forward deployment/aim-adapters 8080:8080" in the namespace of the installation and open '
    "http://localhost:8080/console, or ask an administrator to enable tokens (setting consoleAccess).",
)
NO_TOKEN = Denial(401, "Sign in", "")
BAD_TOKEN = Denial(401, "Sign in", "This token is not valid, or it has expired.")
NOT_ALLOWED = Denial(403, "Not allowed", "This account may not GET /console. It needs a ClusterRole that allows this.")
UNKNOWN = Denial(503, "Try again", "The API server cannot check this token now.")


def by_port_forward(client: tuple[str, int] | None, headers: Headers) -> Denial | None:
    """Return why a request does not come from a port-forward, None when it does.

    Foreign names in the Host header are refused (a web page may point its name at 127.0.0.1), and so are the headers of
    a proxy in the pod, which makes remote clients look local.
    """
    found = dict(headers)
    if client is None or not is_loopback(client[0]) or not _PROXIED.isdisjoint(found):
        return FOREIGN
    host = _host_name(found.get(b"host", b""))
    return None if host == "localhost" or is_loopback(host.strip("[]")) else FOREIGN


def is_loopback(address: str) -> bool:
    """Return whether an address is a loopback address, also an IPv4 one in IPv6 form."""
    try:
        parsed = ip_address(address)
    except ValueError:
        return False
    mapped = parsed.ipv4_mapped if isinstance(parsed, IPv6Address) else None
    return (mapped or parsed).is_loopback


def _host_name(host: bytes) -> str:
    text = host.decode("latin-1").lower()
    return text[: text.index("]") + 1] if text.startswith("[") and "]" in text else text.partition(":")[0]


async def by_token(headers: Headers, check: TokenCheck) -> Denial | None:
    """Return why a request has no access, None when it has."""
    token = token_of(headers)
    if token is None:
        return NO_TOKEN
    status = await check(token)
    return {200: None, 401: BAD_TOKEN, 403: NOT_ALLOWED}.get(status, UNKNOWN)


def token_of(headers: Headers) -> str | None:
    """Return the token of a request: that of the header, else that of the cookie."""
    for name, value in headers:
        if name == b"authorization" and value[: len(_BEARER)].lower() == _BEARER:
            return as_token(value[len(_BEARER) :].strip().decode("latin-1"))
    return as_token(cookie_of(headers))


def as_token(text: str) -> str | None:
    """Return a text that may be a token, else None."""
    return text if _TOKEN.fullmatch(text) else None


def cookie_of(headers: Headers) -> str:
    """Return the cookie of the console, or the empty string."""
    for name, value in headers:
        if name == b"cookie":
            for part in value.decode("latin-1").split(";"):
                key, _, text = part.strip().partition("=")
                if key == COOKIE:
                    return text
    return ""


def set_cookie(token: str) -> str:
    """Return a Set-Cookie header that keeps a token in the browser until it is closed, out of reach of scripts.

    Its path is that of the form, /console; an empty token removes the cookie.
    """
    end = "" if token else "; Max-Age=0"
    return f"{COOKIE}={token}; HttpOnly; SameSite=Strict{end}"


def same_site(headers: Headers) -> bool:
    """Return whether a form comes from the console's own page, as far as the browser reports it."""
    found: Mapping[bytes, Any] = dict(headers)
    return found.get(b"sec-fetch-site", b"same-origin") in (b"same-origin", b"none")
