"""Which images begin with an allowed prefix: on whole parts only."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rules.images import is_allowed, parse_image

ALLOWED = [
    ("registry.io", "registry.io/team/x:1"),
    ("registry.io/", "registry.io/team/x@sha256:0a"),
    ("registry.io/team", "registry.io/team/x:1"),
    ("registry.io/team/", "registry.io/team/x/y"),
    ("registry.io/team/x", "registry.io/team/x:1"),
    ("registry.io/team/x:1", "registry.io/team/x:1"),
    ("registry.io/team/x@sha256:0a", "registry.io/team/x:1@sha256:0a"),
    ("docker.io/library/busybox", "busybox"),
    ("registry.io/team/x@sha256:0a", "registry.io/team/x@sha256:0a"),
    ("registry.io:5000", "registry.io:5000/x"),
    ("Registry.IO/team", "registry.io/team/x"),
    ("localhost", "localhost/x"),
    ("docker.io", "busybox:1"),
    ("docker.io/library", "busybox"),
    ("busybox", "docker.io/library/busybox:2"),
    ("docker.io/acme", "acme/tool:1"),
    ("index.docker.io", "busybox"),
]
REFUSED = [
    ("registry.io", "evil.io/registry.io/x"),
    ("registry.io", "registry.io.evil.com/x"),
    ("registry.io", "registry.iox/x"),
    ("registry.io", "registry.io:5000/x"),
    ("registry.io:5000", "registry.io/x"),
    ("registry.io/team", "registry.io/teams/x"),
    ("registry.io/team", "registry.io/xteam/x"),
    ("registry.io/team", "registry.io/Team/x"),
    ("registry.io/team/x:1", "registry.io/team/x:10"),
    ("registry.io/team/x:1", "registry.io/team/x"),
    ("registry.io/team/x:1", "registry.io/team/x:1/y"),
    ("registry.io/team/x@sha256:0a", "registry.io/team/x@sha256:0b"),
    ("registry.io/team/x@sha256:0a", "registry.io/team/x"),
    ("registry.io/team", "user@registry.io/team/x"),
    ("registry.io", "http://registry.io/x"),
    ("busybox", "evil.io/library/busybox"),
    ("docker.io/library", "docker.io.evil/library/x"),
    ("registry.io/team", "registry.io/../team/x"),
    ("registry.io", ""),
    ("registry.io/team", "registry.io/team/../evil/x"),
    ("registry.io/team", "registry.io/team//x"),
    ("registry.io/team/x:1", "registry.io/team/x:1@sha256:0a"),
    ("docker.io", "EVIL/x"),
    ("docker.io/library/busybox", "busybox/evil"),
    ("library/python", "python/evil"),
    ("registry.io/library/x", "registry.io/x/evil"),
]


@pytest.mark.parametrize(("prefix", "image"), ALLOWED)
def test_what_a_prefix_allows(prefix: str, image: str) -> None:
    assert is_allowed(image, [prefix])
    assert is_allowed(image, ["other.example", f" {prefix} "])


@pytest.mark.parametrize(("prefix", "image"), REFUSED)
def test_what_a_prefix_does_not_allow(prefix: str, image: str) -> None:
    assert not is_allowed(image, [prefix])


def test_without_prefixes_every_image_is_allowed() -> None:
    assert is_allowed("evil.example/x", [])
    assert is_allowed("evil.example/x", ["", " "])


@given(st.text(alphabet="ab./:@-", max_size=20), st.text(alphabet="ab./:@-", max_size=12))
def test_any_text_has_an_answer(image: str, prefix: str) -> None:
    parse_image(image)
    if is_allowed(image, [prefix]) and prefix.strip():
        assert parse_image(image).registry in {parse_image(prefix).registry, prefix.strip().rstrip("/").lower()}
