"""The short reading of a review and the whole one give the same answer, byte for byte."""

from __future__ import annotations

import json
from operator import attrgetter
from typing import Any, cast

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.kinds import AIM_ARTIFACT, AIM_SERVICE
from rules.examples import manifest, merge, scene, surroundings
from rules.registry import Rule, all_rules
from rules.worlds import SnapshotWorld
from tests.unit.rules.strategies import json_values, services, worlds
from tests.unit.webhooks.fuzz import bodies
from tests.unit.webhooks.reviews import UID, review
from webhooks.admission import Admission
from webhooks.fast.lean import read_lean
from webhooks.review import Malformed, Review, parse_review

WORLD = surroundings()
APP = Admission(WORLD)
SERVICE = manifest("AIMService", {"spec": {"adapters": [{"name": "medical", "kind": "AIMArtifact"}]}})
NOISE = {
    "metadata": {
        "uid": "u-1",
        "resourceVersion": "7",
        "generation": 3,
        "creationTimestamp": None,
        "labels": {"team": "llm"},
        "annotations": {"kubectl.kubernetes.io/last-applied-configuration": '{"spec":{"adapterMode":"dynamic"}}\n'},
        "managedFields": [{"manager": "kubectl", "fieldsV1": {"f:spec": {'k:{"name":"a"}': {}}}}],
    },
    "status": {
        "conditions": [{"type": "Ready", "status": "True"}],
        "adapterMaxRank": 64,
        "runtime": {"currentReplicas": 2, "minReplicas": 1},
        "cache": {"profileCacheRef": {"name": "qwen3-8b", "kind": "AIMProfileCache"}},
        "resolvedTemplate": {"name": "qwen3-8b-latency", "kind": "AIMServiceTemplate", "scope": "Namespace"},
    },
}
SERVICE_RULES = [entry for entry in all_rules() if AIM_SERVICE.kind in entry.kinds]


def _answer(read: Review | Malformed, world: SnapshotWorld = WORLD) -> bytes | Malformed:
    """Return what is answered to a review: the verdict in bytes, or what is wrong with the body."""
    if isinstance(read, Malformed):
        return read
    return APP._answer(read, APP._judge(read, world)) if read.judged else APP._not_judged("validate", read)


_head = attrgetter("uid", "kind", "kind_words", "version", "operation", "subresource", "dry_run", "namespace", "name")


def _same_both_ways(body: bytes, world: SnapshotWorld = WORLD) -> bool:
    """Assert that both readings agree; returns whether the short one read the body at all."""
    lean = read_lean(body)
    if lean is None:
        return False
    whole = parse_review(body)
    assert isinstance(whole, Review), body
    assert _head(lean) == _head(whole)
    assert _answer(lean, world) == _answer(whole, world)
    return True


@pytest.mark.parametrize("entry", SERVICE_RULES, ids=lambda entry: entry.name)
def test_every_example_is_answered_alike(entry: Rule) -> None:
    for example in (entry.refused, entry.passes):
        spelt = scene(AIM_SERVICE, example)
        sent = review(merge(NOISE, spelt.new), spelt.old and merge(NOISE, spelt.old), version=spelt.version)
        assert _same_both_ways(orjson.dumps(sent), spelt.world)


statuses = st.fixed_dictionaries(
    {},
    optional={
        "adapterMaxRank": st.sampled_from([8, 32, 64]) | json_values,
        "runtime": st.fixed_dictionaries({}, optional={"currentReplicas": st.integers(0, 3) | json_values}),
        "cache": st.sampled_from([{}, {"profileCacheRef": {"name": "qwen3-8b"}}, {"templateCacheRef": None}]),
        "conditions": json_values,
        "resolvedTemplate": st.just({"kind": "AIMServiceTemplate", "name": "qwen3-8b-latency"}) | json_values,
    },
)
metadata = st.fixed_dictionaries(
    {},
    optional={
        "name": st.sampled_from(["chat", "", None, 7]),
        "generateName": st.sampled_from(["chat-", None]),
        "namespace": st.sampled_from(["team-llm", "other", None]),
        "labels": json_values,
        "managedFields": json_values,
    },
)
requests = st.fixed_dictionaries(
    {},
    optional={
        "name": st.sampled_from(["chat", "", None, 7]),
        "operation": st.sampled_from(["CREATE", "UPDATE", "DELETE", "CONNECT", None]),
        "subResource": st.sampled_from([None, "", "status", "scale"]),
        "dryRun": st.sampled_from([True, False, None, 1]),
        "requestKind": st.sampled_from([None, {}, {"version": "v1alpha1"}, {"version": "v1alpha2"}, []]),
        "userInfo": json_values,
    },
)


def _with(service: Any, status: Any, meta: Any) -> Any:
    return None if service is None else {**service, "metadata": {**service["metadata"], **meta}, "status": status}


@given(services, st.none() | services, st.booleans(), statuses, metadata, requests, worlds)
def test_generated_reviews_are_answered_alike(
    new: Any, old: Any, same: bool, status: Any, meta: Any, request: Any, world: SnapshotWorld
) -> None:
    old = new if same else old
    sent = review(_with(new, status, meta), _with(old, status, {}), **{"name": "chat", **request})
    _same_both_ways(json.dumps(sent).encode(), world)  # with escapes where orjson writes UTF-8
    if not any(_surrogates(value) for value in (status, meta, request)):
        _same_both_ways(json.dumps(sent, ensure_ascii=False).encode(), world)


def _surrogates(value: Any) -> bool:
    return any("\ud800" <= char <= "\udfff" for char in json.dumps(value, ensure_ascii=False))


def test_spoilt_bodies_are_answered_alike() -> None:
    read = [_same_both_ways(body) for _, body in bodies(3000, seed=3) if not _numbers_out_of_range(body)]
    assert sum(read) > 300  # most are of other kinds, or spoilt beyond the short reading


def _numbers_out_of_range(body: bytes) -> bool:
    return b"9" * 300 in body


def _text(**more: Any) -> str:
    return json.dumps(review(merge(NOISE, SERVICE), merge(NOISE, SERVICE), **more))


HOSTILE: dict[str, str | bytes] = {
    "a field twice": _text().replace('"request": {', '"request": {"uid": "first", "object": 1, ', 1),
    "metadata twice": _text().replace('"metadata": {', '"metadata": {"name": "first"}, "metadata": {', 1),
    "spec twice": _text().replace('"spec": {', '"spec": {"adapters": 1}, "spec": {"adapterMode": 1, ', 1),
    "an escaped key": _text().replace('"uid"', '"\\u0075id"').replace('"spec"', '"s\\u0070ec"'),
    "an integer beyond 64 bits in the spec": _text().replace('"spec": {', '"spec": {"minReplicas": 1e30, "a": 1, '),
    "a ceiling beyond 64 bits": _text().replace('"adapterMaxRank": 64', '"adapterMaxRank": 18446744073709551616'),
    "a ceiling that is a float": _text().replace('"adapterMaxRank": 64', '"adapterMaxRank": 64.0'),
    "replicas that are words": _text().replace('"currentReplicas": 2', '"currentReplicas": "2"'),
    "a number that no double holds in the spec": _text().replace('"spec": {', '"spec": {"replicas": 1e999, '),
    "NaN among labels": _text().replace('"llm"', "NaN"),
    "a lone surrogate among labels": _text().replace('"llm"', '"\\ud800"'),
    "a wrong escape among labels": _text().replace('"llm"', '"\\q"'),
    "a control character among labels": _text().replace('"llm"', '"\x01"'),
    "invalid UTF-8 among labels": _text().encode().replace(b'"llm"', b'"\xff"'),
    "a surrogate in UTF-8 among labels": _text().encode().replace(b'"llm"', b'"\xed\xa0\x80"'),
    "invalid UTF-8 in a key": _text().encode().replace(b'"team"', b'"\xc0\xaf"'),
    "invalid UTF-8 in the spec": _text().encode().replace(b'"medical"', b'"\xff"'),
    "good UTF-8": _text().replace('"llm"', '"ü😀"').replace('"medical"', '"ärztlich"'),
    "deep nesting among labels": _text().replace('"llm"', "[" * 2000 + "]" * 2000),
    "deep nesting in the spec": _text().replace('"spec": {', '"spec": {"replicas": ' + "[" * 2000 + "]" * 2000 + ", "),
    "a byte order mark": b"\xef\xbb\xbf" + _text().encode(),
    "something behind the end": _text() + "{}",
    "no metadata": _text().replace('"metadata"', '"metadatum"'),
    "metadata that is a list": _text().replace('"metadata": {', '"metadata": [], "x": {'),
    "no spec": _text().replace('"spec"', '"spectrum"'),
    "a spec that is null": _text().replace('"spec": {', '"spec": null, "x": {'),
    "a spec that is a number": _text().replace('"spec": {', '"spec": 7, "x": {', 1),
    "an old object that is a number": _text(oldObject=7),
    "no old object": _text(oldObject=None),
    "another group": _text().replace("aim.eai.amd.com", "example.com"),
    "a review of another version": _text().replace("admission.k8s.io/v1", "admission.k8s.io/v1beta1"),
    "an empty uid": _text(uid=""),
    "10,000 unknown fields": _text(userInfo={f"unknown-{index}": index for index in range(10_000)}),
}


@pytest.mark.parametrize("hostile", HOSTILE.values(), ids=HOSTILE)
def test_hostile_bodies_are_answered_alike(hostile: str | bytes) -> None:
    _same_both_ways(hostile.encode() if isinstance(hostile, str) else hostile)


WHOLE = [
    "a ceiling beyond 64 bits",
    "a ceiling that is a float",
    "replicas that are words",
    "a number that no double holds in the spec",
    "NaN among labels",
    "a lone surrogate among labels",
    "a wrong escape among labels",
    "a control character among labels",
    "invalid UTF-8 among labels",
    "a surrogate in UTF-8 among labels",
    "invalid UTF-8 in a key",
    "invalid UTF-8 in the spec",
    "deep nesting among labels",
    "deep nesting in the spec",
    "a byte order mark",
    "something behind the end",
    "metadata that is a list",
    "an old object that is a number",
    "no old object",
    "another group",
    "a review of another version",
    "an empty uid",
]


@pytest.mark.parametrize("name", WHOLE)
def test_what_is_out_of_the_ordinary_is_read_whole(name: str) -> None:
    hostile = HOSTILE[name]
    assert read_lean(hostile.encode() if isinstance(hostile, str) else hostile) is None


def test_other_kinds_and_operations_are_read_whole() -> None:
    artifact = manifest("AIMArtifact", {})
    for sent in (
        review(artifact, kind=AIM_ARTIFACT),
        review(SERVICE, operation="DELETE"),
        review(SERVICE, SERVICE, subResource="status"),
    ):
        assert read_lean(orjson.dumps(sent)) is None


def test_a_number_that_no_double_holds_is_not_seen_where_no_rule_reads() -> None:
    body = _text().replace('"llm"', "1e999").encode()
    assert isinstance(parse_review(body), Malformed)
    assert read_lean(body) is not None


def test_an_unchanged_spec_is_parsed_once() -> None:
    lean = read_lean(orjson.dumps(review(merge(NOISE, SERVICE), SERVICE)))
    assert lean is not None
    assert lean.new is not None
    assert lean.old is not None
    assert lean.new["spec"] is lean.old["spec"]
    assert lean.uid == UID


def test_only_what_rules_read_becomes_objects() -> None:
    lean = read_lean(orjson.dumps(review(merge(NOISE, SERVICE), merge(NOISE, SERVICE))))
    assert lean is not None
    assert lean.new is not None
    assert set(lean.new) == {"metadata", "spec", "status"}
    assert lean.new["metadata"] == {"name": "chat", "namespace": "team-llm"}
    assert set(lean.new["status"]) == {"adapterMaxRank", "runtime", "cache", "resolvedTemplate"}


def test_the_template_of_a_running_service_is_read() -> None:
    other = manifest("AIMServiceTemplate", {"metadata": {"name": "other"}, "spec": {"modelName": "qwen3-8b"}})
    old = merge(NOISE, manifest("AIMService", {"spec": {"profile": None, "model": {"name": "qwen3-8b"}}}))
    body = orjson.dumps(review(merge(old, {"spec": {"replicas": 2}}), old, version="v1alpha1"))
    assert _same_both_ways(body, surroundings([other]))
    read = read_lean(body)
    assert read is not None
    assert b"TemplateNotChosen" not in cast("bytes", _answer(read, surroundings([other])))
    assert b"templates fit" not in cast("bytes", _answer(read, surroundings([other])))
