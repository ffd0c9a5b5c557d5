"""Arguments of a Job, and its result in the termination message."""

from __future__ import annotations

import json
from typing import get_origin

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from api.jobs import (
    TERMINATION_MESSAGE_LIMIT,
    FetchSpec,
    JobResult,
    JobSpec,
    Note,
    Progress,
    ReapSpec,
    SpecError,
    StageSpec,
    SyncSpec,
    field_types,
    parse_termination_message,
    read_progress,
    read_spec,
)

STAGE = StageSpec(
    namespace="ns",
    service="svc",
    service_uid="su",
    artifact="a",
    artifact_uid="au",
    path="a",
    source_uri="s3://bucket/x/",
    model_id="org/a",
    stage_key="k",
    max_rank=32,
    declared_rank=16,
)
ARGUMENTS: dict[str, tuple[JobSpec, list[str]]] = {
    "lists repeat, in their order": (
        SyncSpec(namespace="ns", service="s", service_uid="u", generation=3, sync_key="k", declared=["b", "a"]),
        [
            "--namespace=ns",
            "--service=s",
            "--service-uid=u",
            "--generation=3",
            "--sync-key=k",
            "--declared=b",
            "--declared=a",
        ],
    ),
    "flags in lower case": (
        ReapSpec(listed_at=1.5, live=["u"], dry_run=True),
        ["--listed-at=1.5", "--live=u", "--dry-run=true"],
    ),
    "unset and default values are left out": (
        FetchSpec(namespace="ns", artifact="a", artifact_uid="u", source_uri="hf://o/n", s3_region=None),
        ["--namespace=ns", "--artifact=a", "--artifact-uid=u", "--source-uri=hf://o/n"],
    ),
    "a number that equals its default is left out": (
        ReapSpec(listed_at=1.5, scratch_guard_seconds=int("1800"), subtree_skew_seconds=int("121")),
        ["--listed-at=1.5", "--subtree-skew-seconds=121"],
    ),
    "a false that is not the default is written": (
        replace(STAGE, allow_pickle=False),
        [*STAGE.to_args(), "--allow-pickle=false"],
    ),
}


@pytest.mark.parametrize(("spec", "arguments"), ARGUMENTS.values(), ids=ARGUMENTS)
def test_arguments(spec: JobSpec, arguments: list[str]) -> None:
    assert sorted(spec.to_args()) == sorted(arguments)
    assert [argument for argument in spec.to_args() if "declared=" in argument] == [
        argument for argument in arguments if "declared=" in argument
    ]


@pytest.mark.parametrize("spec", [spec for spec, _ in ARGUMENTS.values()], ids=ARGUMENTS)
def test_arguments_are_read_back(spec: JobSpec) -> None:
    given: dict[str, str | list[str]] = {}
    for argument in spec.to_args():
        flag, _, value = argument.partition("=")
        name = flag.removeprefix("--").replace("-", "_")
        if get_origin(field_types(type(spec))[name]) is list:
            earlier = given.setdefault(name, [])
            assert isinstance(earlier, list)
            earlier.append(value)
        else:
            given[name] = value
    assert read_spec(type(spec), given) == spec


FETCH = {"namespace": "n", "artifact": "a", "artifact_uid": "u", "source_uri": "hf://o/n"}
INVALID: dict[str, tuple[dict[str, object], list[str]]] = {
    "a missing option": ({"namespace": None}, ["--namespace: must be text"]),
    "a number": ({"progress_port": "x-secret"}, ["--progress-port: must be an integer"]),
    "true or false": ({"measure": "perhaps"}, ["--measure: must be true or false"]),
    "a choice": ({"s3_auth": "secret"}, ["--s3-auth: must be one of chain, static, anonymous"]),
    "no such option": ({"nonsense": "1"}, ["--nonsense: not an option"]),
    "several": (
        {"s3_auth": "x", "progress_port": "y"},
        ["--s3-auth: must be one of chain, static, anonymous", "--progress-port: must be an integer"],
    ),
}


@pytest.mark.parametrize(("wrong", "faults"), INVALID.values(), ids=INVALID)
def test_each_invalid_option_is_named_without_its_value(wrong: dict[str, object], faults: list[str]) -> None:
    with pytest.raises(SpecError) as caught:
        read_spec(FetchSpec, FETCH | wrong)
    assert caught.value.faults == faults


def test_all_missing_options_are_named() -> None:
    with pytest.raises(SpecError) as caught:
        read_spec(ReapSpec, {})
    assert caught.value.faults == ["--listed-at: is required"]


BEYOND: dict[str, object] = {
    "rank": 2**31,
    "sizeBytes": 2**63,
    "reclaimedBytes": 2**70,
    "stagedAt": -1,
    "warnings": [{"reason": "R"}],
    "removed": "name",
}


@pytest.mark.parametrize("key", BEYOND)
def test_a_result_that_a_status_cannot_hold_is_not_a_result(key: str) -> None:
    assert parse_termination_message(json.dumps({"ok": True, "reason": "Staged"})) is not None
    assert parse_termination_message(json.dumps({"ok": True, "reason": "Staged", key: BEYOND[key]})) is None


@pytest.mark.parametrize(
    "body",
    [{"percentage": 101}, {"percentage": -1}, {"totalBytes": 2**63}, {"downloadedBytes": "x"}, [], None, "x", 7],
    ids=repr,
)
def test_an_answer_that_is_not_a_progress_is_refused(body: object) -> None:
    with pytest.raises(ValueError, match=r"."):
        read_progress(body)


def test_progress_is_read_back_and_leaves_out_an_unknown_time() -> None:
    progress = Progress(downloaded_bytes=1, total_bytes=4, percentage=25)
    assert json.loads(progress.to_json()) == {
        "downloadedBytes": 1,
        "totalBytes": 4,
        "percentage": 25,
        "bytesPerSecond": 0,
    }
    assert read_progress(json.loads(progress.to_json())) == progress


def test_no_specification_has_a_place_for_a_secret() -> None:
    fields = {name for spec in (StageSpec, SyncSpec, ReapSpec, FetchSpec) for name in spec.__struct_fields__}
    assert [name for name in fields if "token" in name or "secret" in name or "password" in name] == []


TEXTS = st.text(st.characters(codec="utf-8"), max_size=3000) | st.text('é😀\n"\\', max_size=3000)
NOTES = st.lists(st.builds(Note, reason=st.text(max_size=40), message=TEXTS), max_size=4)
RESULTS = st.builds(
    JobResult,
    ok=st.booleans(),
    reason=st.from_regex(r"\A[A-Z][A-Za-z]{0,40}\Z"),
    message=TEXTS,
    retriable=st.booleans(),
    key=st.text("0123456789abcdef", max_size=16),
    rank=st.none() | st.integers(1, 1024),
    base_model_id=st.none() | st.text(max_size=200),
    removed=st.lists(st.text(max_size=200), max_size=100),
    warnings=NOTES,
)


@given(RESULTS)
def test_a_termination_message_fits_and_is_read_back(result: JobResult) -> None:
    text = result.to_termination_message()
    assert len(text.encode()) <= TERMINATION_MESSAGE_LIMIT
    read = parse_termination_message(text)
    assert read is not None
    assert (read.ok, read.reason, read.key, read.rank) == (result.ok, result.reason, result.key, result.rank)


HUGE = {
    "message": JobResult(ok=False, reason="R", message="😀" * 50_000),
    "removed": JobResult(ok=True, reason="R", removed=["é" * 255] * 5_000),
    "warnings": JobResult(ok=True, reason="R", warnings=[Note(reason="N", message="x" * 5_000)] * 50),
    "one long warning": JobResult(ok=True, reason="R", warnings=[Note(reason="N", message="x" * 50_000)]),
    "base model id": JobResult(ok=True, reason="R", base_model_id="b" * 50_000),
    "revision": JobResult(ok=True, reason="R", revision="r" * 50_000),
    "reason": JobResult(ok=False, reason="R" * 5_000),
    "reason, key and digest, all escapes": JobResult(
        ok=False, reason="\x01" * 9_000, key="\x02" * 9_000, digest="\x03" * 9_000, message="m" * 9_000
    ),
}


@pytest.mark.parametrize("result", HUGE.values(), ids=HUGE)
def test_huge_results_are_shortened(result: JobResult) -> None:
    text = result.to_termination_message()
    assert len(text.encode()) <= TERMINATION_MESSAGE_LIMIT
    assert parse_termination_message(text) is not None


def test_names_that_are_not_unicode_are_reported_too() -> None:
    result = JobResult(ok=True, reason="DiskReaped", message="\udc80 gone", removed=["caf\udce9", "plain"])
    read = parse_termination_message(result.to_termination_message())
    assert read is not None
    assert read.message == "\\udc80 gone"
    assert read.removed == ["caf\\udce9", "plain"]


def test_keys_on_the_wire_are_camel_case() -> None:
    wire = json.loads(JobResult(ok=True, reason="Staged", size_bytes=5, base_model_id="o/n").to_termination_message())
    assert wire == {"ok": True, "reason": "Staged", "sizeBytes": 5, "baseModelId": "o/n"}


FOREIGN: list[object] = [
    None,
    "",
    "   ",
    "killed",
    "{}",
    "[]",
    "null",
    '{"ok": true}',
    '{"ok": "maybe", "reason": 3}',
    7,
    b"{}",
    {},
]


@pytest.mark.parametrize("text", FOREIGN, ids=repr)
def test_a_text_of_another_program_is_not_a_result(text: object) -> None:
    assert parse_termination_message(text) is None


@given(st.text() | st.binary() | st.none() | st.recursive(st.none() | st.text(), st.lists).map(json.dumps))
def test_parsing_never_raises(text: object) -> None:
    parse_termination_message(text)


def test_a_newer_writer_may_add_fields() -> None:
    read = parse_termination_message('{"ok": true, "reason": "Staged", "somethingNew": 1}')
    assert read is not None
    assert read.reason == "Staged"
