"""Cases of users who see the rules for the first time: what is reported, and what is not."""

from __future__ import annotations

from typing import Any

import pytest

from api.errors import Cause, FieldError
from api.kinds import AIM_ARTIFACT, AIM_CLUSTER_MODEL, AIM_CLUSTER_PROFILE, AIM_PROFILE, AIM_RUNTIME_CONFIG, AIM_SERVICE
from api.reasons import Reason
from api.source_uri import SourceUriError, parse_source_uri
from rules.examples import manifest, merge, surroundings
from rules.shared import image_too_old
from rules.validate import validate
from rules.verdict import LONGEST_WARNING, Verdict
from tools.crds import SERVICE_V1ALPHA1_DEPRECATION


def judged(kind: str, spec: dict[str, Any], old: dict[str, Any] | None = None, version: str = "v1alpha2") -> Verdict:
    kinds = {"AIMService": AIM_SERVICE, "AIMProfile": AIM_PROFILE, "AIMRuntimeConfig": AIM_RUNTIME_CONFIG}
    kinds["AIMArtifact"] = AIM_ARTIFACT
    new = manifest(kind, {"spec": spec})
    before = manifest(kind, {"spec": old}) if old is not None else None
    return validate(kinds[kind], new, before, surroundings(), request_version=version)


def said(verdict: Verdict) -> list[str]:
    return [str(error) for error in verdict.errors] + verdict.warning_texts


OF_V1ALPHA1 = {
    "profile": None,
    "model": {"name": "qwen3-8b"},
    "adapterMode": "dynamic",
    "adapters": [{"name": "medical", "kind": "AIMArtifact"}],
}


def test_a_service_of_v1alpha1_is_not_called_invalid_when_it_is_edited_through_v1alpha2() -> None:
    verdict = judged("AIMService", {**OF_V1ALPHA1, "replicas": 2}, OF_V1ALPHA1)
    assert not [text for text in said(verdict) if "spec.profile" in text]


@pytest.mark.parametrize(
    ("value", "fix"), [(48, "choose 64, the next larger one"), (1024, "choose 512, the highest"), (0, "choose 1, ")]
)
def test_the_fix_of_an_unsupported_ceiling_is_a_ceiling(value: int, fix: str) -> None:
    for kind, spec in (("AIMService", {"adapterMode": "dynamic"}), ("AIMRuntimeConfig", {})):
        (error,) = judged(kind, {**spec, "adapterRuntime": {"maxRank": value}}).errors
        assert fix in error.hint


@pytest.mark.parametrize(
    ("uri", "words"),
    [
        ("hf://acme/medical//v2", "folder has no name"),
        ("hf://acme/medical@..", "not a valid branch"),
        ("hf://acme/medical@a/../b", "not a valid branch"),
        ("hf://acme", "organization and name"),
        ("hf:///medical", "organization and name"),
    ],
)
def test_what_is_wrong_with_a_source_is_reported(uri: str, words: str) -> None:
    with pytest.raises(SourceUriError, match=words):
        parse_source_uri(uri)


@pytest.mark.parametrize("uri", ["hf://acme/medical@refs/pr/3", "hf://acme/medical@v1.0", "hf://acme/medical/v2/@main"])
def test_revisions_that_hubs_have_are_accepted(uri: str) -> None:
    assert parse_source_uri(uri).scheme == "hf"


def test_the_tag_that_is_too_old_is_named_beside_a_digest() -> None:
    image = f"registry:5000/aim:0.12.1@sha256:{'a' * 64}"
    spec = {"profile": None, "model": {"image": image}, "adapterMode": "dynamic"}
    assert "spec.model: image tag 0.12.1 is older than 0.13, so no adapter will be loaded" in said(
        judged("AIMService", spec)
    )


@pytest.mark.parametrize(
    ("image", "old"),
    [
        ("aim:0.12_rocm6", True),
        ("reg:5000/aim", False),
        ("aim:0.13_rocm6", False),
        ("aim", False),
        pytest.param(f"aim:{'9' * 5000}.1", False, id="more digits than Python makes a number of"),
    ],
)
def test_a_tag_with_an_underscore_is_read(image: str, old: bool) -> None:
    assert image_too_old(image) is old


@pytest.mark.parametrize(
    ("spec", "warned"),
    [
        ({"acceleratorModel": "H100", "acceleratorVendor": "nvidia"}, False),
        ({"acceleratorModel": "H100"}, False),
        ({"acceleratorModel": "MI300", "acceleratorVendor": "nvidia"}, False),
        ({"acceleratorModel": "MI300"}, True),
        ({"acceleratorModel": "300X", "acceleratorVendor": "amd"}, True),
    ],
)
def test_an_accelerator_of_another_vendor_is_not_a_misspelling(spec: dict[str, str], warned: bool) -> None:
    assert bool(said(judged("AIMProfile", spec))) is warned
    assert bool(said(judged("AIMService", {"profileOverrides": spec}))) is warned


@pytest.mark.parametrize("name", ["Medical_LoRA", "a/b", "ключ", "X" * 253, "-a", "a..b"])
def test_a_name_that_no_object_can_have_is_reported_as_invalid(name: str) -> None:
    spec = {"profile": {"name": name}, "runtimeConfigName": name, "adapters": [{"name": name, "kind": "AIMArtifact"}]}
    texts = said(judged("AIMService", spec))
    assert [text.split(":")[0] for text in texts] == [
        "spec.adapters[0].name",
        "spec.profile.name",
        "spec.runtimeConfigName",
    ]
    assert all("is not a valid object name; use a-z, 0-9, - and . only" in text for text in texts)


def test_no_warning_is_cut_by_a_long_name() -> None:
    long = "x" * 253
    spec = {"profile": {"name": long}, "runtimeConfigName": long, "adapters": [{"name": long, "kind": "AIMArtifact"}]}
    texts = said(judged("AIMService", spec))
    assert len(texts) == 3
    assert not [text for text in texts if text.endswith("…")]
    assert len(SERVICE_V1ALPHA1_DEPRECATION) <= LONGEST_WARNING


@pytest.mark.parametrize(
    ("spec", "warned"),
    [
        ({"replicas": 5, "minReplicas": 2}, "fix the number of replicas at 2"),
        ({"replicas": 5, "maxReplicas": 1}, "fix the number of replicas at 1"),
        ({"replicas": 5, "minReplicas": 2, "maxReplicas": 3}, "is scaled"),
        ({"replicas": 2, "minReplicas": 2}, ""),
        ({"replicas": 1, "minReplicas": 2}, ""),
        ({"replicas": 5}, ""),
    ],
)
def test_replicas_without_effect_are_reported(spec: dict[str, int], warned: str) -> None:
    texts = said(judged("AIMService", spec))
    assert [warned in text for text in texts] == ([True] if warned else [])


def test_env_without_effect_is_reported_wherever_a_service_has_env() -> None:
    spec = {
        "adapterMode": "dynamic",
        "caching": {"env": [{"name": "HF_HOME", "value": "/x"}, {"name": "HF_TOKEN", "value": "t"}]},
        "profileOverrides": {
            "containerEnv": [{"name": "AIM_ADAPTER_MAX_RANK", "value": "8"}, {"name": "A", "value": "b"}]
        },
    }
    assert [text.split(": ")[0] for text in said(judged("AIMService", spec))] == [
        "spec.caching.env[0].name",
        "spec.profileOverrides.containerEnv[0].name",
    ]


SECRET = {"secretKeyRef": {"name": "s", "key": "k"}}


@pytest.mark.parametrize(
    ("entry", "path"),
    [
        ({"name": "A=B", "value": "x"}, "name"),
        ({"name": "Ä", "value": "x"}, "name"),
        ({"name": "A", "value": "x", "valueFrom": SECRET}, "valueFrom"),
        ({"name": "A", "valueFrom": {}}, "valueFrom"),
        ({"name": "A", "valueFrom": {**SECRET, "fieldRef": {"fieldPath": "metadata.name"}}}, "valueFrom"),
        ({"name": "a.b-c", "value": ""}, ""),
        ({"name": "A", "value": "", "valueFrom": SECRET}, ""),
        ({"name": "A", "valueFrom": {**SECRET, "fieldRef": None}}, ""),
        ({"name": "A"}, ""),
    ],
)
def test_an_entry_that_is_not_valid_in_a_pod_is_refused(entry: dict[str, Any], path: str) -> None:
    for kind, spec, place in (
        ("AIMService", {"env": [entry]}, "spec.env[0]"),
        ("AIMService", {"profileOverrides": {"containerEnv": [entry]}}, "spec.profileOverrides.containerEnv[0]"),
        ("AIMProfile", {"containerEnv": [entry]}, "spec.containerEnv[0]"),
    ):
        errors = judged(kind, spec).errors
        assert [(error.path, error.reason) for error in errors] == (
            [(f"{place}.{path}", "EnvUnusable")] if path else []
        )


def test_a_download_reads_its_token_from_one_place() -> None:
    both = {"env": [{"name": "HF_TOKEN", "value": "x", "valueFrom": SECRET}]}
    for kind in ("AIMArtifact", "AIMRuntimeConfig"):
        assert [error.path for error in judged(kind, both).errors] == ["spec.env[0].valueFrom"]
    assert [error.path for error in judged("AIMService", {"caching": both}).errors] == ["spec.caching.env[0].valueFrom"]


def test_an_old_entry_that_is_not_valid_in_a_pod_does_not_block_other_edits() -> None:
    old = {"env": [{"name": "A", "valueFrom": {}}]}
    verdict = judged("AIMService", merge(old, {"priorityClassName": "high"}), old)
    assert verdict.allowed


def test_broken_services_are_named_before_those_that_restart() -> None:
    service = {
        "kind": "AIMService",
        "metadata": {"name": "chat"},
        "spec": {"adapters": [{"name": "medical", "kind": "AIMArtifact"}]},
        "status": {"runtime": {"currentReplicas": 1}},
    }
    old, new = (manifest("AIMClusterProfile", {"spec": {"features": features}}) for features in (["adapters"], []))
    told = validate(AIM_CLUSTER_PROFILE, new, old, surroundings([service])).warning_texts
    assert [text.split(": ")[0] for text in told] == ["spec.features", "spec"]


def test_a_deferred_lowering_is_reported_on_one_line() -> None:
    spec = {"adapterMode": "dynamic", "adapters": [{"name": "a-name-of-26-characters-xx", "kind": "AIMArtifact"}]}
    status = {"status": {"runtime": {"currentReplicas": 12}, "adapterMaxRank": 512}}
    old = merge(manifest("AIMService", {"spec": {**spec, "adapterRuntime": {"maxRank": 512}}}), status)
    new = merge(old, {"spec": {"adapterRuntime": {"maxRank": 256}}})
    (told,) = [text for text in validate(AIM_SERVICE, new, old, surroundings()).warning_texts if "waits for" in text]
    assert told.endswith("then rolls 12 pods")


def test_a_template_that_can_no_longer_be_named_is_not_suggested() -> None:
    names = ("a-template-for-latency-on-mi300x", "a-template-for-throughput-on-mi300x")
    world = surroundings(
        [
            manifest("AIMServiceTemplate", {"metadata": {"name": name}, "spec": {"modelName": "qwen3-8b"}})
            for name in names
        ]
    )
    old = manifest("AIMService", {"spec": {"profile": None, "model": {"name": "qwen3-8b"}}})
    new = merge(old, {"spec": {"replicas": 2}})
    for before, cure in ((None, "none is chosen; name one"), (old, "none is chosen; set the model's default")):
        (text,) = validate(AIM_SERVICE, new, before, world, request_version="v1alpha1").warning_texts
        assert text.endswith(cure)


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("größe-ключ-模型", "größe-ключ-模型"),
        ("a\nb", "a\\nb"),
        ("a\u202eb", "a\\u202eb"),
        ("a\\b", "a\\\\b"),
        ("\ud800", "\\ud800"),
        ("x" * 200, "x" * 119 + "…"),
        (48, "48"),
    ],
)
def test_values_are_shown_in_their_own_script_and_invisible_characters_are_escaped(value: object, shown: str) -> None:
    assert (
        FieldError("spec.a", Reason.SIZE_UNUSABLE, Cause.INVALID, "no", value).message
        == f'Invalid value: "{shown}": no'
    )


def test_a_model_that_no_template_fits_is_admitted_with_a_warning() -> None:
    spec = {**OF_V1ALPHA1, "model": {"name": "alone"}}
    sources = [{"modelId": "Qwen/Qwen3-8B", "sourceUri": "hf://Qwen/Qwen3-8B"}]
    model = manifest("AIMModel", {"metadata": {"name": "alone"}, "spec": {"modelSources": sources}})
    template = manifest("AIMServiceTemplate", {"metadata": {"name": "its"}, "spec": {"modelName": "alone"}})
    for world, told in (([model], 1), ([model, template], 0), ([], 0)):
        new = manifest("AIMService", {"spec": spec})
        verdict = validate(AIM_SERVICE, new, None, surroundings(world), request_version="v1alpha1")
        assert verdict.allowed
        assert len([text for text in verdict.warning_texts if "no template fits the model" in text]) == told


@pytest.mark.parametrize(
    ("endpoint", "refused"),
    [
        ("https://key:hunter2@s3.example:9000", True),
        ("http://hunter2@s3.example", True),
        ("https://key:hunter2@s3.example?x=1", True),
        ("https://s3.example/path@hunter2", False),
        ("https://[::1]:9000", False),
    ],
)
def test_credentials_in_an_endpoint_are_refused_and_not_repeated(endpoint: str, refused: bool) -> None:
    verdict = judged("AIMRuntimeConfig", {"artifact": {"s3": {"endpoint": endpoint}}})
    assert [error.reason for error in verdict.errors] == ["S3EndpointCredentials"] * refused
    assert not [text for text in said(verdict) if "hunter2" in text]


DYNAMIC = {"adapterMode": "dynamic"}
_ARGS: dict[str, tuple[dict[str, Any], dict[str, Any], str | None]] = {
    "in the profile": ({"enable-lora": False}, DYNAMIC, "spec.profile.name"),
    "as text": ({"enable_lora": "False"}, DYNAMIC, "spec.profile.name"),
    "a flag without a value": ({"--no-enable-lora": ""}, DYNAMIC, "spec.profile.name"),
    "a flag that says no to no": ({"no-enable-lora": "false"}, DYNAMIC, None),
    "not needed": ({"enable-lora": False}, {}, None),
    "switched on again": (
        {"enable-lora": False},
        DYNAMIC | {"profileOverrides": {"engineArgs": {"enable_lora": True}}},
        None,
    ),
    "by the override": (
        {"enable-lora": True},
        DYNAMIC | {"profileOverrides": {"engineArgs": {"enable-lora": False}}},
        "spec.profileOverrides.engineArgs",
    ),
    "by the environment": (
        {},
        DYNAMIC | {"env": [{"name": "A"}, {"name": "AIM_ENGINE_ARGS", "value": '{"no-enable-lora": true}'}]},
        "spec.env[1].value",
    ),
    "no JSON": ({}, DYNAMIC | {"env": [{"name": "AIM_ENGINE_ARGS", "value": "--no-enable-lora"}]}, None),
    "other arguments": ({"max-lora-rank": 0, "lora-modules": False}, DYNAMIC, None),
}


@pytest.mark.parametrize(("args", "spec", "path"), _ARGS.values(), ids=_ARGS)
def test_arguments_that_disable_lora(args: dict[str, Any], spec: dict[str, Any], path: str | None) -> None:
    world = surroundings([manifest("AIMClusterProfile", {"spec": {"engineArgs": args}})])
    verdict = validate(AIM_SERVICE, manifest("AIMService", {"spec": spec}), None, world)
    found = [warning.path for warning in verdict.warnings if warning.reason == "EngineArgsSwitchAdaptersOff"]
    assert found == ([path] if path else [])


@pytest.mark.parametrize(("hidden", "named"), [(False, True), (True, False)])
def test_an_edit_of_a_clusters_model_names_services_that_use_it(hidden: bool, named: bool) -> None:
    image = "registry.example/aim-qwen3:0.9"
    was, now = ({"image": image, "modelSources": [{"sourceUri": f"hf://Qwen/{n}"}]} for n in ("Qwen3-8B", "Qwen3-4B"))
    service = {"profile": None, "model": {"name": "qwen3"}, "adapters": [{"name": "medical", "kind": "AIMArtifact"}]}
    world = [
        {"kind": "AIMServiceTemplate", "metadata": {"name": "qwen3-latency"}, "spec": {"modelName": "qwen3"}},
        {"kind": "AIMArtifact", "metadata": {"name": "4b"}, "spec": {"sourceUri": "hf://Qwen/Qwen3-4B"}},
        {"kind": "AIMService", "metadata": {"name": "chat"}, "spec": service},
    ]
    if hidden:
        world.append({"kind": "AIMModel", "metadata": {"name": "qwen3"}, "spec": was})
    old, new = (manifest("AIMClusterModel", {"metadata": {"name": "qwen3"}, "spec": spec}) for spec in (was, now))
    verdict = validate(AIM_CLUSTER_MODEL, new, old, surroundings(world))
    told = ["spec.modelSources: adapters no longer fit in AIMService chat"]
    assert verdict.warning_texts == (told if named else [])


def test_credentials_in_a_source_are_refused_and_not_repeated() -> None:
    (error,) = judged("AIMArtifact", {"sourceUri": "s3://AKIAEXAMPLE:hidden@adapters/french"}).errors
    assert (error.path, error.reason) == ("spec.sourceUri", "SourceUnusable")
    assert "s3://***@adapters/french" in error.message
    assert "AKIAEXAMPLE" not in error.message
    assert "hidden" not in error.message


def test_an_unknown_type_has_no_follow_on_errors() -> None:
    spec = {"type": "lora", "rank": 8}
    assert [error.reason for error in judged("AIMArtifact", spec).errors] == ["TypeUnknown"]


def test_a_missing_type_is_named_where_only_adapters_have_a_field() -> None:
    (error, *_) = judged("AIMArtifact", {"type": None, "rank": 8, "compatibleWith": None}).errors
    assert "spec.type is not set and defaults to model" in error.detail
