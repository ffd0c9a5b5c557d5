"""Texts of tenants, sources and servers, made safe to show. Pure.

Each such text goes through `harmless` before it is shown: it has no control or direction characters, no credentials of
URLs, and a maximum length.
"""

from __future__ import annotations

import re
from functools import lru_cache

from api.text import clean

LONGEST_TEXT = 400  # characters of one message
LONGEST_NAME = 253  # source: Kubernetes object names
# The first `/` ends the part that may hold credentials. A text that was cut there hides what is left of them.
_CREDENTIALS = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]{0,15}://)[^\s/?#\"']*(?:@|…)")
_QUERY = re.compile(r"(?P<url>[A-Za-z][A-Za-z0-9+.-]{0,15}://[^\s?#\"']*)[?#][^\s\"']*")
# `spec.env[0].value: Invalid value: "…": detail`: the value of a variable may be a secret in every list of them.
# A value may contain quotes, so everything up to the last `":` may belong to it. Names are not secret.
_ENV_VALUE = re.compile(
    r"(?P<path>(?:\b(?:env|containerEnv)\[[^\]]*\](?!\.name\b)|\bengineEnv\.)[^:\s]*: [A-Z][\w ]*: )"
    r"\"(?:.*\"(?=:)|.*…\Z)",
    re.IGNORECASE,
)


def harmless(value: object, longest: int = LONGEST_TEXT) -> str:
    """Return a clean text on one line, without credentials of URLs and values of variables.

    What the text is cut to is masked first, so that no cut separates a credential from what it is recognized by.
    """
    text = str(value)
    return _harmless(text if len(text) <= 4 * longest else f"{text[: 4 * longest]}…", longest)


@lru_cache(maxsize=4096)  # the same messages are shown again and again
def _harmless(text: str, longest: int) -> str:
    text = clean(" ".join(text.split()))
    if "://" in text:
        text = _QUERY.sub(r"\g<url>?…", _CREDENTIALS.sub(r"\g<scheme>…@", text))
    if "nv" in text:  # env, containerEnv, engineEnv
        text = _ENV_VALUE.sub(r'\g<path>"…"', text)
    return clean(text, longest)
