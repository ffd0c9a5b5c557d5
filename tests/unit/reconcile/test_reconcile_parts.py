"""Comparison, patches, conditions, Jobs: the small parts that every pass rests on."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import reconcile
from api.jobs import JobResult
from api.kinds import AIM_PROFILE_CACHE, INFERENCE_SERVICE
from api.names import FIELD_OWNER, LABEL_ARTIFACT, LABEL_MANAGED_BY, LABEL_ROLE, OWN_LABELS
from api.reasons import Foreign, Reason
from api.words import parse_time
from reconcile.conditions import OWN_TYPES, Condition, render_conditions
from reconcile.decision import Draft, leave_alone, sooner
from reconcile.jobs import read_job, retry_at
from reconcile.objects import (
    agrees,
    covers,
    created_labels,
    label_value,
    merge_patch,
    propagated_labels,
    timestamp,
    whole_gibibytes,
    whole_number,
)
from reconcile.service.container import ordered_env
from reconcile.settings import ReconcileSettings
from tests.unit.reconcile.model.life import START

COVERED: dict[str, tuple[Any, Any, bool]] = {
    "the same": ({"a": [1, {"b": 2}]}, {"a": [1, {"b": 2}]}, True),
    "others default fields": ({"a": 1, "b": 2}, {"a": 1}, True),
    "a field is missing": ({"b": 2}, {"a": 1}, False),
    "null means absent": ({"b": 2}, {"a": None, "b": 2}, True),
    "null is not there": ({"a": 1}, {"a": None}, False),
    "a longer list": ({"a": [1, 2]}, {"a": [1]}, False),
    "another order": ({"a": [2, 1]}, {"a": [1, 2]}, False),
    "quantities by value": ({"limits": {"memory": "48Gi"}}, {"limits": {"memory": "49152Mi"}}, True),
    "a number for a quantity": ({"requests": {"cpu": 4}}, {"requests": {"cpu": "4"}}, True),
    "variables to the letter": ({"env": [{"value": "1000"}]}, {"env": [{"value": "1k"}]}, False),
    "an empty variable is stored without its value": ({"name": "X"}, {"name": "X", "value": ""}, True),
    "others own it too": (
        {"ownerReferences": [{"uid": "x"}, {"uid": "y"}]},
        {"ownerReferences": [{"uid": "y"}]},
        True,
    ),
    "we do not own it": ({"ownerReferences": [{"uid": "x"}]}, {"ownerReferences": [{"uid": "y"}]}, False),
}


@pytest.mark.parametrize(("live", "desired", "expected"), COVERED.values(), ids=COVERED)
def test_covers(live: Any, desired: Any, expected: bool) -> None:
    assert covers(live, desired) is expected


def isvc(**predictor: Any) -> dict[str, Any]:
    container = {"env": [{"name": "A", "value": "1"}], "resources": {"requests": {"cpu": "4"}, "limits": {"cpu": "4"}}}
    return {"spec": {"predictor": {"containers": [container | predictor.pop("container", {})], **predictor}}}


LEFT_OVER: dict[str, dict[str, Any]] = {
    "a pull secret": isvc(imagePullSecrets=[{"name": "x"}]),
    "a security context": isvc(securityContext={"runAsUser": 1}),
    "an extended resource": isvc(container={"resources": {"requests": {"cpu": "4", "x": "1"}, "limits": {"cpu": "4"}}}),
    "a reference instead of a value": isvc(container={"env": [{"name": "A", "value": "1", "valueFrom": {}}]}),
}


@pytest.mark.parametrize("live", LEFT_OVER.values(), ids=LEFT_OVER)
def test_what_we_no_longer_want_is_seen(live: dict[str, Any]) -> None:
    assert not agrees(INFERENCE_SERVICE, live, isvc())
    assert agrees(INFERENCE_SERVICE, isvc(), isvc())
    assert agrees(AIM_PROFILE_CACHE, live, {"spec": {}})
    assert not agrees(AIM_PROFILE_CACHE, None, {})


JSON = st.recursive(
    st.booleans() | st.integers() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=10,
)
OBJECTS = st.dictionaries(st.text(max_size=3), JSON, max_size=4)


def patched(obj: Any, patch: Any) -> Any:
    if not isinstance(patch, dict):
        return patch
    result = dict(obj) if isinstance(obj, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = patched(result.get(key), value)
    return result


@given(OBJECTS, OBJECTS)
def test_a_merge_patch_leads_from_old_to_new(old: Any, new: Any) -> None:
    patch = merge_patch(old, new)
    assert patched(old, patch) == new
    assert merge_patch(new, new) == {}


@given(JSON)
def test_everything_covers_itself(value: Any) -> None:
    assert covers(value, value)


@pytest.mark.parametrize("name", ["plain", "with.dots_and-dashes", "x" * 63])
def test_a_name_that_is_a_label_value_stays(name: str) -> None:
    assert label_value(name) == name


@given(st.text(max_size=300))
def test_any_name_becomes_a_label_value(name: str) -> None:
    value = label_value(name)
    assert len(value) <= 63
    assert label_value(value) == value
    assert "\n" not in value


def test_labels_by_which_others_find_their_pods_are_never_propagated() -> None:
    config = {"labelPropagation": {"enabled": True, "match": ["*"]}}
    labels = {"app": "x", "serving.kserve.io/y": "z", "mine": "1", "aim.eai.amd.com/t": "2"}
    obj = {"metadata": {"labels": labels}}
    assert propagated_labels(obj, config) == {"mine": "1", "aim.eai.amd.com/t": "2"}
    assert propagated_labels(obj, {}) == {"aim.eai.amd.com/t": "2"}


def test_no_label_of_a_user_overrides_an_own_one() -> None:
    config = {"labelPropagation": {"enabled": True, "match": ["*", "app.kubernetes.io/*"]}}
    foreign = dict.fromkeys(OWN_LABELS, "Helm") | {"app.kubernetes.io/part-of": "shop"}
    propagated = propagated_labels({"metadata": {"labels": foreign}}, config)
    assert propagated == {"app.kubernetes.io/part-of": "shop"}
    own = {LABEL_ROLE: "staging", LABEL_ARTIFACT: None}
    assert created_labels(own, foreign) == foreign | {LABEL_MANAGED_BY: FIELD_OWNER, LABEL_ROLE: "staging"}


def test_sizes_have_headroom_and_are_whole() -> None:
    assert whole_gibibytes(Decimal(10 * 2**30), 10) == "11Gi"
    assert whole_gibibytes(Decimal(10 * 2**30 + 1), 0) == "11Gi"
    assert whole_gibibytes(Decimal(1), 10) == "1Gi"


@given(st.text(max_size=12) | st.integers() | st.none() | st.floats(allow_nan=False, allow_infinity=False))
def test_parsing_never_raises(value: Any) -> None:
    parse_time(value)


@pytest.mark.parametrize(
    ("value", "number"), [("0", 0), ("320", 320), ("", None), ("-1", None), ("٣", None), ("9" * 5000, None), (3, None)]
)
def test_numbers_in_texts(value: Any, number: int | None) -> None:
    assert whole_number(value) == number


def test_times_are_written_as_they_are_read() -> None:
    assert parse_time(timestamp(START)) == START


@given(
    st.lists(
        st.fixed_dictionaries(
            {"name": st.sampled_from("ABCDE"), "value": st.sampled_from(["1", "$(A)", "$(B)/$(C)", "$(E)"])}
        ),
        unique_by=lambda entry: entry["name"],
    ),
    st.randoms(),
)
def test_the_order_of_env_never_depends_on_who_wrote_it(entries: Any, random: Any) -> None:
    shuffled = list(entries)
    random.shuffle(shuffled)
    assert ordered_env(shuffled) == ordered_env(entries)
    assert len(ordered_env(entries)) == len(entries)


def test_an_entry_follows_what_it_names() -> None:
    names = [entry["name"] for entry in ordered_env([{"name": "A", "value": "$(Z)"}, {"name": "Z", "value": "1"}])]
    assert names == ["Z", "A"]


def test_transition_times_move_with_the_status_alone() -> None:
    condition = Condition("Ready", "False", Foreign("Waiting"), "for a")
    first = render_conditions({}, [condition], generation=1, now=START)
    obj = {"status": {"conditions": first}}
    later = START + timedelta(hours=1)
    other_words = render_conditions(obj, [replace(condition, message="for b")], generation=2, now=later)
    assert other_words[0]["lastTransitionTime"] == first[0]["lastTransitionTime"]
    turned = render_conditions(obj, [Condition("Ready", "True", Foreign("Done"))], generation=2, now=later)
    assert turned[0]["lastTransitionTime"] == "2026-01-01T01:00:00Z"


def test_a_draft_names_a_deletion_once_and_the_earliest_recheck() -> None:
    draft = Draft()
    for _ in range(2):
        draft.drop(AIM_PROFILE_CACHE, "n", "c", "u")
    draft.look_again(timedelta(hours=1))
    draft.look_again(timedelta(minutes=1))
    draft.look_again(None)
    decision = draft.decision({"a": 1})
    assert (len(decision.delete), decision.recheck_after) == (1, timedelta(minutes=1))
    assert leave_alone({"status": {"a": 1}}).status == {"a": 1}
    assert sooner(timedelta(0)) == timedelta(seconds=1)
    assert sooner(None) is None


# -- Jobs -----------------------------------------------------------------------------------------------------------

JOB = {
    "metadata": {
        "name": "j",
        "uid": "u",
        "labels": {"aim.eai.amd.com/role": "adapter-staging"},
        "annotations": {"aim.eai.amd.com/stage-key": "k", "aim.eai.amd.com/attempt": "3"},
    }
}


def pod(state: dict[str, Any] | None = None, created: str = "1", **status: Any) -> dict[str, Any]:
    containers = [{"name": "disk", "state": state, "image": "img"}] if state is not None else []
    meta = {"name": f"p{created}", "creationTimestamp": created}
    return {"metadata": meta, "status": {"containerStatuses": containers, "podIP": "10.0.0.1", **status}}


def done(result: JobResult) -> dict[str, Any]:
    return {"terminated": {"message": result.to_termination_message(), "finishedAt": "2026-01-01T00:00:00Z"}}


def finished(kind: str, reason: str = "") -> dict[str, Any]:
    return JOB | {"status": {"conditions": [{"type": kind, "status": "True", "reason": reason}]}}


GOOD, BAD = JobResult(ok=True, reason="AdapterStaged"), JobResult(ok=False, reason="SourceGated")
UNSCHEDULABLE = [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/1 nodes"}]
READINGS: dict[str, tuple[dict[str, Any], list[dict[str, Any]], tuple[str, str, str]]] = {
    "no pod yet": (JOB, [], ("waiting", "", "")),
    "starting": (JOB, [pod({"waiting": {"reason": "ContainerCreating"}})], ("waiting", "", "")),
    "no node": (JOB, [pod(conditions=UNSCHEDULABLE)], ("waiting", "", "Unschedulable: 0/1 nodes")),
    "a Secret is missing": (
        JOB,
        [pod({"waiting": {"reason": "CreateContainerConfigError", "message": 'secret "s" not found'}})],
        ("waiting", "", 'CreateContainerConfigError: secret "s" not found'),
    ),
    "running": (JOB, [pod({"running": {}})], ("running", "", "")),
    "its own word": (JOB, [pod(done(GOOD))], ("succeeded", "AdapterStaged", "")),
    "its own word before the Job's": (finished("Complete"), [pod(done(BAD))], ("failed", "SourceGated", "")),
    "a success without a word": (finished("Complete"), [], ("succeeded", "", "")),
    "past its deadline": (finished("Failed", "DeadlineExceeded"), [], ("failed", "JobDeadlineExceeded", "")),
    "killed": (finished("Failed", "BackoffLimitExceeded"), [], ("failed", "JobFailed", "")),
    "an evicted pod has a successor": (JOB, [pod(done(BAD)), pod({"running": {}}, "2")], ("running", "", "")),
    "a foreign message": (JOB, [pod({"terminated": {"message": "boom"}})], ("waiting", "", "")),
}


@pytest.mark.parametrize(("job", "pods", "expected"), READINGS.values(), ids=READINGS)
def test_reading_a_job(job: dict[str, Any], pods: list[dict[str, Any]], expected: tuple[str, str, str]) -> None:
    state = read_job(job, pods)
    assert (state.phase, state.result.reason if state.result else "", state.blocked_by) == expected
    assert (state.key, state.attempt, state.finished) == ("k", 3, state.phase in ("succeeded", "failed"))


def test_how_it_was_killed_is_reported() -> None:
    killed = pod({"terminated": {"exitCode": 137, "reason": "OOMKilled"}})
    state = read_job(finished("Failed", "BackoffLimitExceeded"), [killed])
    assert state.result is not None
    assert "exit code 137 (OOMKilled)" in state.result.message


def test_retries_double_up_to_a_bound() -> None:
    settings = ReconcileSettings()
    waits = [(retry_at(START, attempt, settings, None) - START).total_seconds() for attempt in range(1, 9)]
    assert waits == [60, 120, 240, 480, 960, 1920, 3600, 3600]
    assert retry_at(START, 10**9, settings, None) == START + timedelta(hours=1)
    assert retry_at(START, 1, settings, 600) == START + timedelta(minutes=10)
    assert retry_at(START, 1, settings, 10**9) == START + timedelta(hours=1)


@given(JSON, st.lists(JSON, max_size=2))
def test_reading_never_raises(job: Any, pods: Any) -> None:
    read_job(job, pods)


def test_conditions_of_other_programs_stay_in_their_place() -> None:
    theirs = {"type": "Scanned", "status": "True", "reason": "Clean", "message": "", "extra": 1}
    before = {"type": "ConfigValid", "status": "True", "reason": "ConfigValid", "message": ""}
    gone = {"type": "Adapters", "status": "True", "reason": "AdaptersStaged", "message": ""}
    obj = {"status": {"conditions": [before, theirs, gone]}}
    new = [Condition("ConfigValid", "True", Reason.CONFIG_VALID), Condition("Ready", "False", Reason.PENDING)]
    found = render_conditions(obj, new, generation=1, now=START)
    assert [entry["type"] for entry in found] == ["ConfigValid", "Scanned", "Ready"]
    assert found[1] is theirs
    again = render_conditions({"status": {"conditions": found}}, new, generation=1, now=START)
    assert again == found


def test_every_condition_that_is_written_is_known_as_an_own_one() -> None:
    """A type that is not listed would be taken for another program's, and would never be removed."""
    pattern = re.compile(r'Condition\(\s*"(\w+)"|_Claim\("(\w+)"|(?:READY|SERVED) = "(\w+)"')
    sources = [path.read_text() for path in Path(reconcile.__file__).parent.rglob("*.py")]
    written = {word for source in sources for words in pattern.findall(source) for word in words if word}
    assert written == OWN_TYPES
