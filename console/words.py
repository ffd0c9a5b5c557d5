"""Texts of tenants, sources and servers, made safe to show. Pure.

Each such text goes through `harmless` before it is shown: it has no control or direction characters, no credentials of
URLs, and a maximum length.
"""

from __future__ import annotations

import re
from functools import lru_cache

LONGEST_TEXT = 400  # characters of one message
LONGEST_NAME = 253  # source: Kubernetes object names
_CREDENTIALS = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]{0,15}://)[^\s/?#\"']*@")
_QUERY = re.compile(r"(?P<url>[A-Za-z][A-Za-z0-9+.-]{0,15}://[^\s?#\"']*)[?#][^\s\"']*")
# `spec.env[0].value: Invalid value: "…": detail`: the value of a variable may be a secret in every list of them.
# A value may contain quotes, so everything up to the last `":` may belong to it. Names are not secret.
_ENV_VALUE = re.compile(
    r"(?P<path>(?:\b(?:env|containerEnv)\[[^\]]*\](?!\.name\b)|\bengineEnv\.)[^:\s]*: [A-Z][\w ]*: )\".*\"(?=:)",
    re.IGNORECASE,
)


def harmless(value: object, longest: int = LONGEST_TEXT) -> str:
    """Return a text on one line, without credentials of URLs, values of variables and unprintable characters.

    Unprintable ones (also those that change the direction of writing) become `\N{REPLACEMENT CHARACTER}`.
    """
    return _harmless(str(value)[: 4 * longest], longest)


@lru_cache(maxsize=4096)  # the same messages are shown again and again
def _harmless(text: str, longest: int) -> str:
    text = " ".join(text.split())
    if not text.isprintable():
        text = "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in text)
    if "://" in text:
        text = _QUERY.sub(r"\g<url>?…", _CREDENTIALS.sub(r"\g<scheme>…@", text))
    if "nv" in text:  # env, containerEnv, engineEnv
        text = _ENV_VALUE.sub(r'\g<path>"…"', text)
    return text if len(text) <= longest else f"{text[: longest - 1]}…"
