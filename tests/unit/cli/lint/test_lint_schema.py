"""Shapes: what the schema refuses, and in which words."""

from __future__ import annotations

from typing import Any

import pytest

from api.kinds import AIM_ARTIFACT, AIM_CLUSTER_PROFILE, AIM_KINDS, AIM_SERVICE, Kind
from cli.lint.schema import check_shape
from tests.manifests import full


def service(**spec: Any) -> dict[str, Any]:
    return {"apiVersion": "aim.eai.amd.com/v1alpha2", "kind": "AIMService", "metadata": {"name": "chat"}, "spec": spec}


def named(name: object) -> dict[str, Any]:
    return service() | {"metadata": {"name": name}}


CASES: dict[str, tuple[Kind, dict[str, Any], list[tuple[str, str]]]] = {
    "a plain service": (AIM_SERVICE, service(profile={"name": "p"}), []),
    "a null counts as absent": (AIM_SERVICE, service(profile={"name": "p"}, replicas=None), []),
    "an unknown field": (AIM_SERVICE, service(replica=1), [("spec.replica", "FieldUnknown")]),
    "an unknown field deep down": (
        AIM_SERVICE,
        service(adapters=[{"name": "a", "knd": "x"}]),
        [("spec.adapters[0].knd", "FieldUnknown")],
    ),
    "an unknown top field": (AIM_SERVICE, service() | {"data": {}}, [("data", "FieldUnknown")]),
    "text for a number": (AIM_SERVICE, service(replicas="2"), [("spec.replicas", "TypeWrong")]),
    "a bool for a number": (AIM_SERVICE, service(replicas=True), [("spec.replicas", "TypeWrong")]),
    "a whole float is a number": (AIM_SERVICE, service(replicas=2.0), []),
    "a mapping for a list": (AIM_SERVICE, service(adapters={"name": "a"}), [("spec.adapters", "TypeWrong")]),
    "a null in a list": (AIM_SERVICE, service(adapters=[None]), [("spec.adapters[0]", "TypeWrong")]),
    "below the minimum": (AIM_SERVICE, service(replicas=-1), [("spec.replicas", "NumberOutOfBounds")]),
    "more than 32 bits": (AIM_SERVICE, service(replicas=2**31), [("spec.replicas", "NumberOutOfBounds")]),
    "no supported word": (AIM_SERVICE, service(adapterMode="dyn"), [("spec.adapterMode", "ValueNotSupported")]),
    "an entry twice": (
        AIM_SERVICE,
        service(adapters=[{"name": "a"}, {"name": "a", "kind": "AIMArtifact"}]),
        [("spec.adapters[1]", "ListEntryDuplicate")],
    ),
    "a token twice": (
        AIM_SERVICE,
        service(profileOverrides={"features": ["adapters", "adapters"]}),
        [("spec.profileOverrides.features[1]", "ListEntryDuplicate")],
    ),
    "65 adapters": (
        AIM_SERVICE,
        service(adapters=[{"name": f"a{i}"} for i in range(65)]),
        [("spec.adapters", "ListTooLong")],
    ),
    "an empty name": (AIM_SERVICE, service(adapters=[{"name": ""}]), [("spec.adapters[0].name", "TextTooShort")]),
    "a required field": (AIM_ARTIFACT, {"metadata": {"name": "a"}, "spec": {}}, [("spec.sourceUri", "FieldRequired")]),
    "no spec": (AIM_ARTIFACT, {"metadata": {"name": "a"}}, [("spec", "FieldRequired")]),
    "a source of another scheme": (
        AIM_ARTIFACT,
        {"metadata": {"name": "a"}, "spec": {"sourceUri": "http://x"}},
        [("spec.sourceUri", "PatternMismatch")],
    ),
    "a quantity": (
        AIM_ARTIFACT,
        {"metadata": {"name": "a"}, "spec": {"sourceUri": "hf://a/b", "size": "5 GB"}},
        [("spec.size", "PatternMismatch")],
    ),
    "a list for a quantity": (
        AIM_ARTIFACT,
        {"metadata": {"name": "a"}, "spec": {"sourceUri": "hf://a/b", "size": []}},
        [("spec.size", "TypeWrong")],
    ),
    "no metadata": (AIM_SERVICE, {"spec": {}}, [("metadata", "FieldRequired")]),
    "no name": (AIM_SERVICE, service() | {"metadata": {}}, [("metadata.name", "FieldRequired")]),
    "a generated name": (AIM_SERVICE, service() | {"metadata": {"generateName": "a-"}}, []),
    "an upper-case name": (AIM_SERVICE, named("Chat"), [("metadata.name", "NameInvalid")]),
    "a number as name": (AIM_SERVICE, named(5), [("metadata.name", "TypeWrong")]),
    "a label that is a number": (
        AIM_SERVICE,
        service() | {"metadata": {"name": "a", "labels": {"x/y": 1}}},
        [("metadata.labels[x/y]", "TypeWrong")],
    ),
    "labels that the API server takes": (
        AIM_SERVICE,
        service() | {"metadata": {"name": "a", "labels": {"x.Y_z": "", "team.ai/x": "a.b_c-D", "n": None}}},
        [],
    ),
    "a label with a blank": (
        AIM_SERVICE,
        service() | {"metadata": {"name": "a", "labels": {"x": "b c"}}},
        [("metadata.labels.x", "NameInvalid")],
    ),
    "a label that is too long": (
        AIM_SERVICE,
        service() | {"metadata": {"name": "a", "labels": {"x": "a" * 64}}},
        [("metadata.labels.x", "NameInvalid")],
    ),
    "keys that are none": (
        AIM_SERVICE,
        service() | {"metadata": {"name": "a", "annotations": {"a b": "c d", "a/b/c": "", "/x": "", "Team.ai/x": ""}}},
        [(f"metadata.annotations[{key}]", "NameInvalid") for key in ("a b", "a/b/c", "/x")],
    ),
    "a slip in metadata": (
        AIM_SERVICE,
        service() | {"metadata": {"name": "a", "lables": {"x": "y"}}},
        [("metadata.lables", "FieldUnknown")],
    ),
    "a cluster kind in a namespace": (
        AIM_CLUSTER_PROFILE,
        {"metadata": {"name": "p", "namespace": "n"}, "spec": {"image": "i"}},
        [("metadata.namespace", "NamespaceOnClusterKind")],
    ),
    "a namespace that none can be": (
        AIM_SERVICE,
        service() | {"metadata": {"name": "a", "namespace": "team.llm"}},
        [("metadata.namespace", "NameInvalid")],
    ),
}


@pytest.mark.parametrize(("kind", "obj", "errors"), CASES.values(), ids=CASES)
def test_shape(kind: Kind, obj: dict[str, Any], errors: list[tuple[str, str]]) -> None:
    assert [(error.path, error.reason) for error in check_shape(kind, obj)] == errors


def test_what_may_have_been_meant() -> None:
    (error,) = check_shape(AIM_SERVICE, service(replcas=1))
    assert error.hint == 'did you mean "replicas"?'


@pytest.mark.parametrize("kind", AIM_KINDS, ids=lambda kind: kind.kind)
def test_every_field_of_every_kind_passes(kind: Kind) -> None:
    assert check_shape(kind, full(kind)) == []
