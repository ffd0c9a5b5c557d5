"""Mutation: only what a schema default cannot say, idempotent, and no list of a user is touched."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.kinds import AIM_ARTIFACT, AIM_KINDS, Kind
from rules.examples import manifest, merge
from webhooks.mutate import mutate

BASE = manifest("AIMArtifact", {"metadata": {"name": "base"}, "spec": {"sourceUri": "hf://Qwen/Qwen3-8B"}})

CASES: dict[str, tuple[dict[str, Any], str | None]] = {
    "from the source": ({}, "Qwen/Qwen3-8B"),
    "revision and subfolder cut off": ({"spec": {"sourceUri": "hf://Qwen/Qwen3-8B/sub@main"}}, "Qwen/Qwen3-8B"),
    "what the user wrote stays": ({"spec": {"modelId": "acme/mine"}}, None),
    "s3 implies nothing": ({"spec": {"sourceUri": "s3://bucket/x/"}}, None),
    "an adapter says its own": ({"spec": {"type": "adapter"}}, None),
    "a source that cannot be parsed": ({"spec": {"sourceUri": "hf://x"}}, None),
    "an id that the schema would refuse": ({"spec": {"sourceUri": "hf://a.b/c"}}, None),
    "an object on its way out": ({"metadata": {"deletionTimestamp": "2024-01-01T00:00:00Z"}}, None),
}


@pytest.mark.parametrize(("patch", "value"), CASES.values(), ids=CASES)
def test_model_id(patch: dict[str, Any], value: str | None) -> None:
    operations = mutate(AIM_ARTIFACT, merge(BASE, patch))
    assert [operation["value"] for operation in operations] == ([] if value is None else [value])


def apply(obj: dict[str, Any], operations: list[dict[str, Any]]) -> dict[str, Any]:
    """Apply `add` operations on members of objects (RFC 6902)."""
    result = copy.deepcopy(obj)
    for operation in operations:
        assert operation["op"] == "add"
        *parents, last = operation["path"].lstrip("/").split("/")
        holder = result
        for part in parents:
            holder = holder[part]
        holder[last] = operation["value"]
    return result


specs = st.fixed_dictionaries(
    {"sourceUri": st.sampled_from(["hf://a/b", "hf://a/b@c", "hf://a.b/c", "hf://x", "s3://bucket/x/", "", 7, None])},
    optional={"modelId": st.sampled_from(["x/y", "", None, 3]), "type": st.sampled_from(["model", "adapter", None, 1])},
)


@given(st.sampled_from(AIM_KINDS), specs)
def test_mutating_twice_is_mutating_once_and_the_object_stays_as_it_was(kind: Kind, spec: dict[str, Any]) -> None:
    """Prevents: GitOps shows permanent drift after mutation."""
    obj = {"metadata": {"name": "x"}, "spec": {**spec, "modelSources": [{"sourceUri": "hf://a/b"}]}}
    before = copy.deepcopy(obj)
    operations = mutate(kind, obj)
    assert obj == before
    mutated = apply(obj, operations)
    assert mutate(kind, mutated) == []
    assert mutated["spec"]["modelSources"] == before["spec"]["modelSources"]
