"""Which images the Jobs of tenants may run: references of images against allowed prefixes. Pure.

Source: docs/contract.md, Job pods; the reference grammar of the distribution project for registry, tag and digest.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

_DEFAULT_REGISTRY = "docker.io"
_SAME_REGISTRY = frozenset({"index.docker.io", "registry-1.docker.io"})


class Image(NamedTuple):
    """The parts of a reference; `tag` and `digest` are empty where it has none."""

    registry: str
    path: str
    tag: str
    digest: str


def parse_image(reference: str) -> Image:
    """Return the parts of a reference, with the registry and the folder that a short one stands for. Total."""
    rest, _, digest = reference.strip().partition("@")
    first, slash, path = rest.partition("/")
    if not slash or not ("." in first or ":" in first or first == "localhost"):
        first, path = _DEFAULT_REGISTRY, rest
    registry = first.lower()
    if registry in _SAME_REGISTRY:
        registry = _DEFAULT_REGISTRY
    head, _, last = path.rpartition("/")
    last, _, tag = last.partition(":")
    path = f"{head}/{last}" if head else last
    if registry == _DEFAULT_REGISTRY and "/" not in path:
        path = f"library/{path}"
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
    if (wanted.digest and wanted.digest != image.digest) or (wanted.tag and wanted.tag != image.tag):
        return False
    if image.registry != wanted.registry:
        return False
    exactly = bool(wanted.tag or wanted.digest)
    if image.path == wanted.path or (not exactly and image.path.startswith(f"{wanted.path}/")):
        return True
    # `docker.io/acme` is a folder, too, while `busybox` is an image
    folder = wanted.path.removeprefix("library/") if text.partition("/")[1] else ""
    return bool(folder) and not exactly and image.path.startswith(f"{folder}/")


def _has_port(text: str) -> bool:
    host, colon, port = text.partition(":")
    return bool(colon) and port.isdigit() and bool(host)
