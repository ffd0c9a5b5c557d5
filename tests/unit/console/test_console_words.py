"""Words for people, and texts of strangers made harmless."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.words import ago, parse_time, size, stamp
from console.words import LONGEST_TEXT, harmless

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)

HARMLESS = {
    "plain words stay": ('DiskFull: no room for "cs-tone"', 'DiskFull: no room for "cs-tone"'),
    "lines become one": ("a\nb\tc", "a b c"),
    "a user in a URL goes": ("cannot read s3://AKIA:s3cret@bucket/x", "cannot read s3://…@bucket/x"),
    "a token in a URL goes": ("GET https://hf_abc@hub.example/x: 401", "GET https://…@hub.example/x: 401"),
    "a signed query goes": (
        "GET https://b.example/x?X-Amz-Signature=abc&y=1 failed",
        "GET https://b.example/x?… failed",
    ),
    "a fragment goes": ('"https://b.example/x#token=abc"', '"https://b.example/x?…"'),
    "the value of a variable goes": (
        'spec.env[0].value: Invalid value: "hf_s3cret": is invalid (fix it)',
        'spec.env[0].value: Invalid value: "…": is invalid (fix it)',
    ),
    "of a profile's too": (
        'spec.profileOverrides.containerEnv[2].value: Invalid value: "a\\"b": no',
        'spec.profileOverrides.containerEnv[2].value: Invalid value: "…": no',
    ),
    "a name of a variable stays": (
        'spec.env[0].name: Forbidden: "PYTHONPATH": is reserved',
        'spec.env[0].name: Forbidden: "PYTHONPATH": is reserved',
    ),
    "quotes inside are part of it": (
        'spec.env[1]: Invalid value: "a"b": c": no',
        'spec.env[1]: Invalid value: "…": no',
    ),
    "a whole entry goes": (
        "spec.env[1]: Duplicate value: \"{'name': 'A', 'value': 's3cret'}\": is there twice",
        'spec.env[1]: Duplicate value: "…": is there twice',
    ),
    "of a mapping too": ('spec.engineEnv.TOKEN: Forbidden: "x": no', 'spec.engineEnv.TOKEN: Forbidden: "…": no'),
    "other values stay": ('spec.rank: Invalid value: "3": no', 'spec.rank: Invalid value: "3": no'),
    "direction of writing is not turned": ("safe\u202eexe.", r"safe\u202eexe."),
    "no control characters": ("a\x00\x1b[31mb", r"a\x00\x1b[31mb"),
}


@pytest.mark.parametrize(("given_text", "expected"), HARMLESS.values(), ids=HARMLESS)
def test_harmless(given_text: str, expected: str) -> None:
    assert harmless(given_text) == expected


@given(st.text(max_size=3000))
def test_harmless_is_short_printable_and_settled(text: str) -> None:
    told = harmless(text)
    assert len(told) <= LONGEST_TEXT
    assert told.isprintable()


def test_a_huge_text_costs_little() -> None:
    assert len(harmless("spec.env[0].value: Invalid value: " * 100_000)) == LONGEST_TEXT


@pytest.mark.parametrize(
    ("count", "words"),
    [(None, "\N{EN DASH}"), (0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (2**30, "1.0 GiB"), (2**50, "1024 TiB")],
)
def test_size(count: int | None, words: str) -> None:
    assert size(count) == words


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0, "now"),
        (5, "5 s ago"),
        (119, "119 s ago"),
        (120, "2 min ago"),
        (7300, "2 h ago"),
        (200_000, "2 d ago"),
        (-30, "in 30 s"),
    ],
)
def test_ago(seconds: float, words: str) -> None:
    assert ago(NOW - timedelta(seconds=seconds), NOW) == words


@pytest.mark.parametrize("value", [None, 3, "", "yesterday", "2026-13-40T00:00:00Z", {}])
def test_no_time(value: object) -> None:
    assert parse_time(value) is None


def test_times_round_trip() -> None:
    assert parse_time(stamp(NOW)) == NOW
    assert parse_time("2026-03-01T12:00:00") == NOW
