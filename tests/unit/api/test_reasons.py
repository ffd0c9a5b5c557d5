"""The table of reasons: complete, each text its own, and what the texts name is real."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, get_args

import pytest
import yaml

from api.kinds import AIM_KINDS
from api.reasons import DOCS_URL, EXPLANATIONS, Explanation, Group, Reason, Surface, anchor, explain, find, help_uri
from app.settings import describe_settings
from tools.crds import crd

ROOT = Path(__file__).parents[3]


def test_the_table_and_the_enum_are_complete() -> None:
    assert set(EXPLANATIONS) == set(Reason)


def test_a_member_is_named_after_its_word() -> None:
    for reason in Reason:
        assert re.fullmatch(r"[A-Z][A-Za-z0-9]+", reason.value)
        assert re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", reason.value).upper() == reason.name


def test_the_words_are_in_order() -> None:
    assert [reason.value for reason in Reason] == sorted(Reason)


def test_a_word_is_hashed_as_the_text_that_it_equals() -> None:
    assert {Reason.DISK_FULL: 1}["DiskFull"] == 1  # type: ignore[index]
    assert str(Reason.DISK_FULL) == f"{Reason.DISK_FULL}" == "DiskFull"


# -- the texts ------------------------------------------------------------------------------------------------------


def test_no_two_reasons_share_a_meaning_or_a_fix() -> None:
    for part in ("meaning", "fix"):
        texts = Counter(getattr(found, part).casefold().rstrip(".") for found in EXPLANATIONS.values())
        del texts[""]
        shared = [text for text, count in texts.items() if count > 1]
        assert not shared, part


def test_a_meaning_is_sentences_and_a_fix_is_a_clause() -> None:
    for reason, found in EXPLANATIONS.items():
        assert re.fullmatch(r"[A-Za-z\"].*\.", found.meaning), reason
        assert len(found.meaning) < 300, reason
        assert not found.fix.endswith("."), reason
        assert found.fix[:1] == found.fix[:1].lower(), reason


def test_without_a_fix_nothing_is_wrong_or_time_helps() -> None:
    for reason, found in EXPLANATIONS.items():
        assert found.fix or found.fine or found.waits or found.retriable, reason
        assert not (found.fine and (found.fix or found.waits or found.retriable)), reason
        assert bool(found.advice) != found.fine, reason


def test_where_a_reason_is_seen() -> None:
    for reason, found in EXPLANATIONS.items():
        assert found.surfaces, reason
        assert set(found.surfaces) <= set(get_args(Surface)), reason
        assert len(set(found.surfaces)) == len(found.surfaces), reason
        assert ("condition" in found.surfaces) == bool(found.conditions), reason
        assert ("event" in found.surfaces) == bool(found.event_on), reason
        assert found.group in (None, *get_args(Group)), reason
        assert ("job" in found.surfaces) == (found.group is not None), reason


def test_advice() -> None:
    assert Explanation("m.", "do this").advice == "do this"
    assert Explanation("m.", "do this", retriable=True).advice == "do this; it is retried automatically"
    assert Explanation("m.", retriable=True).advice == "it is retried automatically"
    assert Explanation("m.", waits=True).advice == "wait; it passes automatically"
    assert Explanation("m.", "do this", waits=True).advice == "wait; if it lasts, do this"
    assert Explanation("m.", fine=True).advice == ""


# -- what the texts name --------------------------------------------------------------------------------------------

OF_OTHERS = frozenset({"fsGroup"})
"""Names of fields that belong to Kubernetes."""

_CAMEL = re.compile(r"(?<![\w/.-])[a-z]+[A-Z]\w*")
_PATH = re.compile(r"(?<![\w/.-])(?:spec|status|metadata|storage|artifact|adapterRuntime|downloadFilter)(?:\.\w+)+")


def _fields(schema: dict[str, Any], path: str = "") -> Iterator[str]:
    for name, member in schema.get("properties", {}).items():
        yield f"{path}.{name}"
        yield from _fields(member, f"{path}.{name}")
        yield from _fields(member.get("items", {}), f"{path}.{name}")


@cache
def fields() -> frozenset[str]:
    """Every field of every kind, as `.spec.profile.name`."""
    found = {".metadata.name", ".metadata.namespace"}
    for kind in AIM_KINDS:
        for version in crd(kind)["spec"]["versions"]:
            found.update(_fields(version["schema"]["openAPIV3Schema"]))
    return frozenset(found)


def is_field(mention: str) -> bool:
    """Whether some kind has the field, or a block with it: `artifact.s3.auth.mode` is one of RuntimeConfigs."""
    return any(path.endswith(f".{mention}") for path in fields())


@cache
def settings() -> dict[str, str]:
    """Settings by every name that they have: key, flag, variable."""
    return {name: info.key for info in describe_settings() for name in (info.key, info.flag, info.variable)}


@cache
def chart_values() -> dict[str, Any]:
    """The default values of the chart."""
    found: dict[str, Any] = yaml.safe_load((ROOT / "chart" / "values.yaml").read_text(encoding="utf-8"))
    return found


def unreal_names(text: str) -> Iterator[str]:
    """Yield what a text names that does not exist: fields, settings, flags, variables, values of the chart."""
    known = settings()
    for path in _PATH.findall(text):
        if not is_field(path):
            yield path
    for word in _CAMEL.findall(text):
        if word not in known and word not in OF_OTHERS and not is_field(word):
            yield word
    for word in re.findall(r"\bsetting (\w+)", text) + re.findall(r"(?<!\w)--[a-z][\w-]*|\bAIMA_\w+", text):
        if word not in known:
            yield word
    for word in re.findall(r"\bchart values? ([\w.]+)", text):
        found: Any = chart_values()
        for part in word.split("."):
            found = found.get(part) if isinstance(found, dict) else None
        if found is None:
            yield word


def test_what_the_texts_name_exists() -> None:
    unreal = {
        reason: [*unreal_names(found.meaning), *unreal_names(found.fix)] for reason, found in EXPLANATIONS.items()
    }
    assert not {reason: names for reason, names in unreal.items() if names}


@pytest.mark.parametrize(
    "text",
    [
        "raise the setting mostReviews",
        "set spec.adapterRuntime.highestRank",
        "set maximalRank",
        "start with --max-reviews",
        "set AIMA_MAX_REVIEWS",
        "the chart value reconciler.mode",
    ],
)
def test_what_does_not_exist_is_found(text: str) -> None:
    assert list(unreal_names(text))


# -- look-ups -------------------------------------------------------------------------------------------------------


def test_look_ups() -> None:
    assert find("DiskFull") is Reason.DISK_FULL
    assert find("diskfull") is None
    assert explain("DiskFull") is EXPLANATIONS[Reason.DISK_FULL]
    assert explain("NoSuchReason") is None


def test_each_reason_has_an_anchor_of_its_own() -> None:
    assert len({anchor(reason) for reason in Reason}) == len(Reason)
    assert anchor(Reason.ADAPTER_RANK_ABOVE_CEILING) == "adapterrankaboveceiling"


def test_the_address_of_the_help() -> None:
    assert help_uri(Reason.DISK_FULL) == f"{DOCS_URL}errors.html#diskfull"
    assert help_uri(Reason.DISK_FULL, "http://docs.team.svc") == "http://docs.team.svc/errors.html#diskfull"


def test_the_placeholder_can_never_be_a_host() -> None:
    """Source: RFC 2606, section 2: `.example` is reserved."""
    assert re.match(r"https://[a-z-]+\.example/", DOCS_URL)
