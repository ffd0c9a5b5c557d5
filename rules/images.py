"""Which images the Jobs of tenants may run: references of images against allowed prefixes. Pure.

Source: docs/contract.md, Job pods; the reference grammar of the distribution project for registry, tag and digest.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

_DEFAULT_REGISTRY = "docker.io"
_SAME_REGISTRY = frozenset({"index.docker.io", "registry-1.docker.io"})
_PART = re.compile(r"[a-z0-9]+(?:(?:\.|__?|-+)[a-z0-9]+)*")  # of a path


class Image(NamedTuple):
    """The parts of a reference; `tag` and `digest` are empty where it has none."""

    registry: str
    path: str
    tag: str
    digest: str


def parse_image(reference: str) -> Image:
    """Return the parts of a reference, with the registry and the folder that a short one stands for. Total."""
    image = _split(reference)
    if image.registry == _DEFAULT_REGISTRY and "/" not in image.path:
        return image._replace(path=f"library/{image.path}")
    return image


def _split(reference: str) -> Image:
    rest, _, digest = reference.strip().partition("@")
    first, slash, path = rest.partition("/")
    if not slash or not ("." in first or ":" in first or first == "localhost" or first != first.lower()):
        first, path = _DEFAULT_REGISTRY, rest
    registry = first.lower()
    if registry in _SAME_REGISTRY:
        registry = _DEFAULT_REGISTRY
    head, _, last = path.rpartition("/")
    last, _, tag = last.partition(":")
    path = f"{head}/{last}" if head else last
    return Image(registry, path, tag, digest)


def is_allowed(reference: str, prefixes: Iterable[str]) -> bool:
    """Return whether an image begins with one of the prefixes; without prefixes every image is allowed.

    A prefix ends at the end of a registry, of a part of the path, of a tag or of a digest: `registry.io/team` allows
    `registry.io/team/x:1`, and neither `registry.io/teams/x` nor `registry.io:5000/team/x`.
    """
    listed = [prefix.strip() for prefix in prefixes if prefix.strip()]
    return not listed or any(_begins(parse_image(reference), prefix) for prefix in listed)


def _begins(image: Image, prefix: str) -> bool:
    text = prefix.rstrip("/")
    if "/" not in text and ("." in text or text == "localhost" or _has_port(text)):
        return image.registry == (_DEFAULT_REGISTRY if text.lower() in _SAME_REGISTRY else text.lower())
    wanted = parse_image(text)
    if image.registry != wanted.registry or not all(map(_PART.fullmatch, image.path.split("/"))):
        return False
    if wanted.tag or wanted.digest:  # beside a digest, a runtime ignores the tag: a tag allows no digest
        ends = image.digest == wanted.digest and (not wanted.tag or image.tag == wanted.tag)
        return ends and image.path == wanted.path
    # `docker.io/acme` is a folder, too, while `busybox` is an image
    folder = _split(text).path if "/" in text else wanted.path
    return image.path == wanted.path or image.path.startswith(f"{folder}/")


def _has_port(text: str) -> bool:
    host, colon, port = text.partition(":")
    return bool(colon) and port.isdigit() and bool(host)
