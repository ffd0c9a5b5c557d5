"""Who may look. Pure but for the question to the API server, which the process asks.

By port-forward: only connections from the pod itself arrive there, so whoever may forward ports of the pod may look.
By token: a bearer token of an account that may GET /console, in the header or, for browsers, in a cookie.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from ipaddress import IPv6Address, ip_address
from typing import Any

Headers = Iterable[tuple[bytes, bytes]]
TokenCheck = Callable[[str], Awaitable[int]]  # token -> 200, 401, 403, or 503 when nobody can tell

COOKIE = "aim-console"
_TOKEN = re.compile(r"[A-Za-z0-9._~+/=-]{1,4000}")
_BEARER = b"bearer "
_PROXIED = frozenset(
    {b"forwarded", b"x-forwarded-for", b"x-forwarded-host", b"x-real-ip", b"via", b"x-envoy-peer-metadata"}
)


@dataclass(frozen=True, slots=True)
class Denial:
    """Why somebody may not look: an HTTP status and words."""

    status: int
    title: str
    words: str


FOREIGN = Denial(
    403,
    "Only through a port-forward",
    "The console answers connections from inside the pod only. Run "
    '"kubectl port-forward deployment/aim-adapters 8080:8080" in the namespace of the installation and open '
    "http://localhost:8080/console, or let an administrator switch the console to tokens (setting consoleAccess).",
)
NO_TOKEN = Denial(401, "Sign in", "")
BAD_TOKEN = Denial(401, "Sign in", "This token is not valid, or it has expired.")
NOT_ALLOWED = Denial(403, "Not allowed", "This account may not GET /console: it needs a ClusterRole that says so.")
UNKNOWN = Denial(503, "Try again", "The API server cannot be asked about this token just now.")


def by_port_forward(client: tuple[str, int] | None, headers: Headers) -> Denial | None:
    """Return why a request is no port-forward's, None when it is.

    Names of others in the Host header are refused (a page may make its name mean 127.0.0.1), and so are the traces of a
    proxy in the pod, which makes strangers look local.
    """
    found = dict(headers)
    if client is None or not is_loopback(client[0]) or not _PROXIED.isdisjoint(found):
        return FOREIGN
    host = _host_name(found.get(b"host", b""))
    return None if host == "localhost" or is_loopback(host.strip("[]")) else FOREIGN


def is_loopback(address: str) -> bool:
    """Tell whether an address is the machine's own, also as IPv6 shows an IPv4 one."""
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
    """Return why a request may not look, None when it may."""
    token = token_of(headers)
    if token is None:
        return NO_TOKEN
    status = await check(token)
    return {200: None, 401: BAD_TOKEN, 403: NOT_ALLOWED}.get(status, UNKNOWN)


def token_of(headers: Headers) -> str | None:
    """Return the token of a request: the header's, else the cookie's."""
    for name, value in headers:
        if name == b"authorization" and value[: len(_BEARER)].lower() == _BEARER:
            return as_token(value[len(_BEARER) :].strip().decode("latin-1"))
    return as_token(cookie_of(headers))


def as_token(text: str) -> str | None:
    """Return a text that may be a token, else None."""
    return text if _TOKEN.fullmatch(text) else None


def cookie_of(headers: Headers) -> str:
    """Return our cookie, or the empty string."""
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
    """Tell whether a form comes from our own page, as far as the browser says."""
    found: Mapping[bytes, Any] = dict(headers)
    return found.get(b"sec-fetch-site", b"same-origin") in (b"same-origin", b"none")
