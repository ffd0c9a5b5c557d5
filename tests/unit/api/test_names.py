"""Derived names: within limits, valid, and distinct where their parts are."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.names import (
    DNS_LABEL_LIMIT,
    derive_name,
    inference_service_name,
    inference_service_name_limit,
    short_hash,
    stage_key,
    sync_key,
)

RFC_1035 = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")  # the stricter of the two label rules
PARTS = st.lists(st.text(max_size=80), min_size=1, max_size=4)


@given(PARTS, st.integers(10, DNS_LABEL_LIMIT))
def test_any_parts_give_a_valid_label(parts: list[str], limit: int) -> None:
    name = derive_name(*parts, limit=limit)
    assert len(name) <= limit
    assert RFC_1035.fullmatch(name)
    assert derive_name(*parts, limit=limit) == name


@given(PARTS, PARTS)
def test_other_parts_give_another_name(one: list[str], other: list[str]) -> None:
    assert (derive_name(*one) == derive_name(*other)) == (one == other)


def test_names_with_a_long_common_prefix_stay_apart() -> None:
    prefix = "a-very-long-name-that-many-adapters-of-one-team-have-in-common-" * 3
    names = {derive_name("stage", prefix, f"{prefix}{number}") for number in range(200)}
    assert len(names) == 200


def test_parts_cannot_run_into_each_other() -> None:
    assert derive_name("ab", "c") != derive_name("a", "bc")
    assert short_hash("ab", "c") != short_hash("a", "bc") != short_hash("abc")


def test_a_readable_name_stays_readable() -> None:
    assert derive_name("stage", "gemma-cs", "cs-tone-v3").startswith("stage-gemma-cs-cs-tone-v3-")


@pytest.mark.parametrize(("length", "limit"), [(1, 48), (4, 48), (5, 47), (21, 31), (42, 10), (43, 9), (63, -11)])
def test_inference_service_name_limit(length: int, limit: int) -> None:
    assert inference_service_name_limit("n" * length) == limit


@given(st.text(min_size=1, max_size=253), st.integers(1, 63))
def test_inference_service_names_fit_their_namespace(service: str, length: int) -> None:
    name = inference_service_name(service, "n" * length)
    if length > 42:
        assert name is None, "fewer than 10 characters are left"
    else:
        assert name is not None
        assert RFC_1035.fullmatch(name)
        assert len(name) <= min(48, 52 - length)


STAGE = ("artifact-uid", "hf://o/n", "service-uid", "path", "claim-uid")


@pytest.mark.parametrize("index", range(5))
def test_a_stage_key_depends_on_each_of_its_parts(index: int) -> None:
    other = tuple(part + "x" if place == index else part for place, part in enumerate(STAGE))
    assert stage_key(*STAGE) == stage_key(*STAGE) != stage_key(*other)


def test_a_sync_key_depends_on_the_set_and_the_disk_but_not_on_the_order() -> None:
    key = sync_key("s", ["a", "b"], "claim", "uid")
    assert key == sync_key("s", ["b", "a"], "claim", "uid")
    others = {
        sync_key("s", ["a"], "claim", "uid"),
        sync_key("s", ["a", "b", "c"], "claim", "uid"),
        sync_key("s", ["a", "b"], "other", "uid"),
        sync_key("s", ["a", "b"], "claim", "other"),
        sync_key("t", ["a", "b"], "claim", "uid"),
        key,
    }
    assert len(others) == 6
