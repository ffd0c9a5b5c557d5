"""Errors as people read them: paths, words, order."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.errors import Cause, FieldError, FieldWarning, field_path, sorted_errors
from api.reasons import Reason

PATHS: dict[str, tuple[tuple[str | int, ...], str]] = {
    "nested": (("spec", "adapters", 2, "name"), "spec.adapters[2].name"),
    "first is an index": ((0, "name"), "[0].name"),
    "two indexes": (("a", 1, 2), "a[1][2]"),
    "a key with a dot": (("metadata", "annotations", "a.b/c"), "metadata.annotations[a.b/c]"),
    "a key with a dash": (("spec", "engineArgs", "max-model-len"), "spec.engineArgs.max-model-len"),
    "nothing": ((), ""),
}


@pytest.mark.parametrize(("loc", "path"), PATHS.values(), ids=PATHS)
def test_field_path(loc: tuple[str | int, ...], path: str) -> None:
    assert field_path(loc) == path


@given(st.lists(st.integers(0, 99) | st.text(max_size=6)))
def test_field_path_is_total(loc: list[str | int]) -> None:
    assert isinstance(field_path(loc), str)


def _error(path: str, reason: Reason = Reason.RANK_BELOW_ONE, detail: str = "d") -> FieldError:
    return FieldError(path, reason, Cause.INVALID, detail)


def test_errors_are_sorted_by_path_with_numeric_indexes_and_listed_once() -> None:
    errors = [_error("spec.b"), _error("spec.a[10].x"), _error("spec.a[9].x"), _error("spec.a"), _error("spec.b")]
    assert [error.path for error in sorted_errors(errors)] == ["spec.a", "spec.a[9].x", "spec.a[10].x", "spec.b"]


@given(
    st.lists(
        st.builds(_error, st.sampled_from(["spec.a", "spec.a[1]", "spec.a[x]", "", "[0]"]), st.sampled_from(Reason))
    )
)
def test_sorting_is_total_and_stable(errors: list[FieldError]) -> None:
    once = sorted_errors(errors)
    assert sorted_errors(once) == once == sorted_errors(reversed(errors))


def test_an_error_reads_as_the_api_server_writes_its_own() -> None:
    error = FieldError("spec.rank", Reason.RANK_ABOVE_HIGHEST, Cause.INVALID, "is above 512", 700, "choose 512 or less")
    assert str(error) == 'spec.rank: Invalid value: "700": is above 512 (choose 512 or less)'


def test_a_missing_value_is_not_shown() -> None:
    assert (
        str(FieldError("spec.profile", Reason.ADAPTERS_WITHOUT_PROFILE, Cause.REQUIRED, "is needed", ""))
        == "spec.profile: Required value: is needed"
    )


def test_values_are_shown_in_one_line_and_bounded() -> None:
    message = FieldError("p", Reason.SIZE_UNUSABLE, Cause.INVALID, "d", "a\nb\x1b[31m" + "x" * 500).message
    assert "\n" not in message
    assert "\x1b" not in message
    assert len(message) < 200


@pytest.mark.parametrize("cause", Cause)
def test_every_cause_has_words(cause: Cause) -> None:
    assert cause.words


def test_a_warning_names_its_field() -> None:
    assert str(FieldWarning("spec.x", Reason.FIELD_DEPRECATED, "is ignored")) == "spec.x: is ignored"
    assert str(FieldWarning("", Reason.PROFILE_EDIT_ROLLS, "rolls 2 pods")) == "rolls 2 pods"
